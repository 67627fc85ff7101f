//! A UDP socket that sends and receives datagrams in batches.

use std::fmt;
use std::io::{self, IoSliceMut};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd};
use std::sync::atomic::{AtomicI32, AtomicU64, AtomicUsize, Ordering};

use engine::Ecn;
use quinn_udp::{EcnCodepoint, RecvMeta, Transmit, UdpSocketState};
use rustix::io::Errno;
use rustix::net::sockopt;
use socket2::{Domain, InterfaceIndexOrAddress, Protocol, SockRef, Type};

use crate::Group;
use crate::refusals::{Meaning, forgivable};

/// Maximum datagrams that the kernel accepts in one batch (`UDP_MAX_SEGMENTS`).
pub(crate) const SEGMENTS_MAX: usize = 64;

/// Bytes of a received batch of datagrams: at most one IP packet's payload.
const RECEIVE_BYTES: usize = 65_536;

/// Errors in a row that a send call takes for reports about earlier datagrams.
pub(crate) const REPORTS_MAX: u32 = 4;

/// Batches per receive call: few, so that their memory stays in the processor's cache.
const RECEIVE_BATCHES: usize = 8;

/// A non-blocking UDP socket with segmentation offload in both directions, where available.
pub struct Socket {
    socket: std::net::UdpSocket,
    state: UdpSocketState,
    local: SocketAddr,
    refusals: AtomicU64,
    /// Number of the last error about an earlier datagram; 0 without one.
    report: AtomicI32,
    /// Maximum datagrams per batch.
    segments_max: AtomicUsize,
    /// Errors that the next calls return.
    #[cfg(test)]
    pub(crate) faults: tests::Faults,
}

/// Sizes of the kernel's socket buffers, in bytes of datagrams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Buffers {
    /// Size of the buffer for received datagrams that wait to be read.
    pub receive: usize,
    /// Size of the buffer for datagrams that wait to be sent.
    pub send: usize,
}

impl Default for Buffers {
    /// Returns 32 MiB to receive, 20 ms at 10 Gbit/s with the kernel's bookkeeping, and 4 MiB to
    /// send.
    fn default() -> Self {
        Self { receive: 32 << 20, send: 4 << 20 }
    }
}

/// Progress of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sent {
    /// The whole batch was sent.
    All,
    /// The socket's buffer is full after this many bytes: wait until it is writable.
    Blocked(usize),
    /// The device's queue is full after this many bytes. The socket does not report when there is
    /// room again, so retry a little later.
    Congested(usize),
    /// The system refused a part of the batch, which is lost.
    Refused(Refusal),
}

/// Part of a batch that the system refused to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// Bytes sent before it.
    pub sent: usize,
    /// Bytes refused.
    pub lost: usize,
    /// Error of the system.
    pub error: Errno,
}

/// Reusable memory to receive into.
pub struct ReceiveBuffers {
    bytes: Vec<u8>,
    metas: [RecvMeta; RECEIVE_BATCHES],
}

/// Datagrams of one size that arrived together from one peer.
#[derive(Clone, Copy, Debug)]
pub struct Arrival<'a> {
    /// Sender.
    pub from: SocketAddr,
    /// Address to which the datagrams were sent, if the kernel reports it.
    pub to: Option<IpAddr>,
    /// Congestion mark (ECN).
    pub ecn: Ecn,
    /// Length of each datagram but the last, which may be shorter.
    pub stride: usize,
    /// Datagrams, one after the other.
    pub bytes: &'a [u8],
}

impl Socket {
    /// Opens a socket on `address`; port 0 lets the system choose.
    ///
    /// Logs a warning if the kernel grants smaller buffers than requested, with the setting that
    /// lifts its limit.
    ///
    /// # Errors
    /// The port is in use, the address is not this machine's, or no descriptor is left.
    pub fn bind(address: SocketAddr, buffers: Buffers) -> io::Result<Self> {
        let socket = open(address, Protocol::UDP)?;
        ignore_groups(&socket, address)?;
        match socket.bind(&address.into()) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::AddrInUse && only_groups_use(address) => {
                socket.set_reuse_address(true)?;
                socket.bind(&address.into())?;
                socket.set_reuse_address(false)?;
            }
            Err(error) => return Err(error),
        }
        enlarge(&socket, buffers)?;
        Self::new(socket)
    }

    /// Opens a socket that receives only datagrams sent to a group. Other programs on this machine
    /// may do the same.
    pub(crate) fn join(group: &Group, buffers: Buffers) -> io::Result<Self> {
        let socket = open(group.address, Protocol::UDP)?;
        ignore_groups(&socket, group.address)?;
        socket.set_reuse_address(true)?;
        socket.bind(&group.destination().into())?;
        match group.address.ip() {
            IpAddr::V4(address) => {
                let interface = InterfaceIndexOrAddress::Index(group.interface);
                socket.join_multicast_v4_n(&address, &interface)?;
            }
            IpAddr::V6(address) => socket.join_multicast_v6(&address, group.interface)?,
        }
        enlarge(&socket, buffers)?;
        Self::new(socket)
    }

    /// Opens a UDP-Lite socket, which the kernel may not support. It sends and receives datagrams
    /// one by one.
    pub(crate) fn bind_lite(address: SocketAddr, buffers: Buffers) -> io::Result<Self> {
        let socket =
            open(address, Protocol::UDPLITE).map_err(|error| {
                match Errno::from_io_error(&error) {
                    Some(Errno::PROTONOSUPPORT) => {
                        io::Error::new(io::ErrorKind::Unsupported, "this kernel has no UDP-Lite")
                    }
                    _ => error,
                }
            })?;
        ignore_groups(&socket, address)?;
        socket.bind(&address.into())?;
        enlarge(&socket, buffers)?;
        Ok(Self { segments_max: AtomicUsize::new(1), ..Self::new(socket)? })
    }

    fn new(socket: socket2::Socket) -> io::Result<Self> {
        let socket = std::net::UdpSocket::from(socket);
        let state = UdpSocketState::new((&socket).into())?;
        let local = socket.local_addr()?;
        let segments_max = AtomicUsize::new(SEGMENTS_MAX);
        let (refusals, report) = (AtomicU64::new(0), AtomicI32::new(0));
        Ok(Self {
            socket,
            state,
            local,
            refusals,
            report,
            segments_max,
            #[cfg(test)]
            faults: tests::Faults::default(),
        })
    }

    /// Lets receive sockets of groups share this socket's port.
    pub(crate) fn share_port(&self) -> io::Result<()> {
        SockRef::from(&self.socket).set_reuse_address(true)
    }

    /// Sets the interface and TTL for a group, and loops datagrams back to this machine.
    pub(crate) fn aim(&self, group: &Group) -> io::Result<()> {
        let socket = SockRef::from(&self.socket);
        match group.address.ip() {
            IpAddr::V4(address) => {
                let any = Ipv4Addr::UNSPECIFIED;
                let index = group.interface;
                sockopt::set_ip_multicast_if_with_ifindex(&self.socket, &address, &any, index)?;
                socket.set_multicast_ttl_v4(group.ttl)?;
                socket.set_multicast_loop_v4(true)
            }
            IpAddr::V6(_) => {
                socket.set_multicast_if_v6(group.interface)?;
                socket.set_multicast_hops_v6(group.ttl)?;
                socket.set_multicast_loop_v6(true)
            }
        }
    }

    /// Returns the local address of datagrams to the peer of [`Socket::connect`].
    pub(crate) fn connected_from(&self) -> io::Result<SocketAddr> {
        self.socket.local_addr()
    }

    /// Connects to one peer: datagrams of others are not received, and [`Socket::refusals`] counts
    /// the times without a listener there.
    ///
    /// # Errors
    ///
    /// There is no route to that address.
    pub fn connect(&self, peer: SocketAddr) -> io::Result<()> {
        self.socket.connect(peer)
    }

    /// Returns the number of times that the system reported a peer's port without a listener.
    #[must_use]
    pub fn refusals(&self) -> u64 {
        self.refusals.load(Ordering::Relaxed)
    }

    fn try_send(&self, transmit: &Transmit<'_>) -> io::Result<()> {
        #[cfg(test)]
        tests::next(&self.faults.send)?;
        self.state.try_send((&self.socket).into(), transmit)
    }

    fn try_receive(
        &self,
        slices: &mut [IoSliceMut<'_>],
        metas: &mut [RecvMeta],
    ) -> io::Result<usize> {
        #[cfg(test)]
        tests::next(&self.faults.receive)?;
        self.state.recv((&self.socket).into(), slices, metas)
    }

    /// Removes and returns the last report about an earlier datagram that came from a router, if
    /// there was one: the destination was unreachable at that time.
    pub(crate) fn take_report(&self) -> Option<Errno> {
        let number = self.report.swap(0, Ordering::Relaxed);
        (number != 0).then(|| Errno::from_raw_os_error(number))
    }

    fn refused(&self) {
        self.refusals.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns the address it is bound to.
    #[must_use]
    pub fn local(&self) -> SocketAddr {
        self.local
    }

    /// Whether batches are sent with one call; if not, datagrams are sent one by one.
    #[must_use]
    pub fn sends_batches(&self) -> bool {
        self.batch_max() > 1
    }

    fn batch_max(&self) -> usize {
        self.state.max_gso_segments().min(self.segments_max.load(Ordering::Relaxed))
    }

    /// Lets IP fragment datagrams that are longer than the path takes, for peers to which none can
    /// be shorter. From then on datagrams are sent one by one.
    pub(crate) fn allow_fragments(&self) -> io::Result<()> {
        self.segments_max.store(1, Ordering::Relaxed);
        if self.local.is_ipv6() {
            sockopt::set_ipv6_mtu_discover(&self.socket, sockopt::Ipv6PathMtuDiscovery::DONT)?;
            set_option(self, libc::IPPROTO_IPV6, libc::IPV6_DONTFRAG, 0)?;
        }
        // Peers with IPv4 addresses of a socket for IPv6, too.
        sockopt::set_ip_mtu_discover(&self.socket, sockopt::Ipv4PathMtuDiscovery::DONT)?;
        Ok(())
    }

    /// Whether IP may fragment datagrams.
    pub(crate) fn allows_fragments(&self) -> bool {
        let of_four = || sockopt::ip_mtu_discover(&self.socket).ok();
        let of_six = || sockopt::ipv6_mtu_discover(&self.socket).ok();
        if self.local.is_ipv6() {
            of_six() == Some(sockopt::Ipv6PathMtuDiscovery::DONT)
        } else {
            of_four() == Some(sockopt::Ipv4PathMtuDiscovery::DONT)
        }
    }

    /// Sends `bytes` as datagrams of `segment` bytes, the last of which may be shorter. `source` is
    /// the address to send from, if the socket is bound to several.
    ///
    /// # Errors
    ///
    /// Errors that show a defect of this program; see [`Sent::Refused`] for others. An earlier
    /// report of a peer without a listener does not count as an error.
    pub fn send(
        &self,
        to: SocketAddr,
        source: Option<IpAddr>,
        ecn: Ecn,
        bytes: &[u8],
        segment: usize,
    ) -> io::Result<Sent> {
        let (mut done, mut reports) = (0, REPORTS_MAX);
        // An empty buffer is one datagram without content.
        while done < bytes.len() || bytes.is_empty() {
            let piece = segment.saturating_mul(self.batch_max()).min(bytes.len() - done);
            let contents = &bytes[done..done + piece];
            let transmit = Transmit {
                destination: to,
                ecn: codepoint(ecn),
                contents,
                segment_size: (piece > segment).then_some(segment),
                src_ip: source,
            };
            let error = match self.try_send(&transmit) {
                Ok(()) => {
                    done += piece;
                    reports = REPORTS_MAX;
                    if bytes.is_empty() {
                        break;
                    }
                    continue;
                }
                Err(error) => error,
            };
            let (error, meaning) = forgivable(error)?;
            match meaning {
                Meaning::NotNow => return Ok(Sent::Blocked(done)),
                Meaning::Congested => return Ok(Sent::Congested(done)),
                // The first refusal of a batch disables batches: retry in pieces.
                Meaning::Lost if piece > segment && self.batch_max() == 1 => continue,
                // The system may report the fate of an earlier datagram; this one was not sent.
                Meaning::PortClosed | Meaning::TooLong | Meaning::Unreachable if reports > 0 => {
                    reports -= 1;
                    if meaning == Meaning::PortClosed {
                        self.refused();
                    }
                    continue;
                }
                Meaning::PortClosed
                | Meaning::TooLong
                | Meaning::Unreachable
                | Meaning::Lost
                | Meaning::Defect => {}
            }
            return Ok(Sent::Refused(Refusal { sent: done, lost: piece, error }));
        }
        Ok(Sent::All)
    }

    /// Receives up to one kernel call's worth and passes each batch to `take`. Returns the number
    /// of batches; 0 when there is nothing to receive.
    ///
    /// # Errors
    ///
    /// Errors that show a defect of this program; others cost at most a datagram.
    pub fn receive(
        &self,
        buffers: &mut ReceiveBuffers,
        mut take: impl FnMut(Arrival<'_>),
    ) -> io::Result<usize> {
        let mut slices = buffers.bytes.chunks_exact_mut(RECEIVE_BYTES);
        let mut slices: [_; RECEIVE_BATCHES] =
            std::array::from_fn(|_| IoSliceMut::new(slices.next().unwrap_or_default()));
        let count = match self.try_receive(&mut slices, &mut buffers.metas) {
            Ok(count) => count,
            Err(error) => {
                let (error, meaning) = forgivable(error)?;
                match meaning {
                    Meaning::PortClosed => self.refused(),
                    Meaning::Unreachable | Meaning::Lost => {
                        self.report.store(error.raw_os_error(), Ordering::Relaxed);
                    }
                    Meaning::NotNow | Meaning::Congested | Meaning::TooLong | Meaning::Defect => {}
                }
                return Ok(0);
            }
        };
        for (meta, slice) in buffers.metas.iter().zip(&slices).take(count) {
            take(Arrival {
                from: meta.addr,
                to: meta.dst_ip,
                ecn: mark(meta.ecn),
                stride: meta.stride,
                bytes: &slice[..meta.len],
            });
        }
        Ok(count)
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl fmt::Debug for Socket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Socket").field("local", &self.local).finish_non_exhaustive()
    }
}

impl ReceiveBuffers {
    /// Allocates the memory of one receive call: 512 KiB.
    #[must_use]
    pub fn new() -> Self {
        Self {
            bytes: vec![0; RECEIVE_BYTES * RECEIVE_BATCHES],
            metas: std::array::from_fn(|_| RecvMeta::default()),
        }
    }
}

impl Default for ReceiveBuffers {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for ReceiveBuffers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReceiveBuffers").finish_non_exhaustive()
    }
}

fn open(address: SocketAddr, protocol: Protocol) -> io::Result<socket2::Socket> {
    socket2::Socket::new(Domain::for_address(address), Type::DGRAM.cloexec(), Some(protocol))
}

/// Ignores groups that other programs have joined, which a socket on all addresses would receive.
/// Emulators of Linux may not have the option.
fn ignore_groups(socket: &socket2::Socket, address: SocketAddr) -> io::Result<()> {
    let ignored = match address {
        SocketAddr::V4(_) => socket.set_multicast_all_v4(false),
        SocketAddr::V6(_) => socket.set_multicast_all_v6(false),
    };
    match ignored {
        Err(error) if error.raw_os_error() == Some(libc::ENOPROTOOPT) => {
            tracing::debug!("the system cannot ignore groups of other programs");
            Ok(())
        }
        ignored => ignored,
    }
}

/// Whether all users of a port are receive sockets of groups, so that sharing the port takes no
/// datagrams from another program.
fn only_groups_use(address: SocketAddr) -> bool {
    let loopback: IpAddr = match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        IpAddr::V4(_) | IpAddr::V6(_) => return false,
    };
    std::net::UdpSocket::bind((loopback, address.port())).is_ok()
}

/// Enlarges the kernel's buffers as requested, or as far as the kernel allows.
fn enlarge(socket: &socket2::Socket, buffers: Buffers) -> io::Result<()> {
    // Without the privilege to exceed the limit, the second call sets the largest allowed size.
    if sockopt::set_socket_recv_buffer_size_force(socket, buffers.receive).is_err() {
        socket.set_recv_buffer_size(buffers.receive)?;
    }
    socket.set_send_buffer_size(buffers.send)?;
    // The kernel reports twice the size that was set; the other half is for its own use.
    let receive = socket.recv_buffer_size()? / 2;
    if receive < buffers.receive {
        tracing::warn!(
            "the kernel buffers {receive} bytes of arriving datagrams, not {requested}: datagrams \
             will be lost at high rates; raise the limit with \
             `sysctl -w net.core.rmem_max={requested}`",
            requested = buffers.receive
        );
    }
    let send = socket.send_buffer_size()? / 2;
    if send < buffers.send {
        tracing::warn!(
            "the kernel buffers {send} bytes of leaving datagrams, not {requested}: high rates may \
             not be reached; raise the limit with `sysctl -w net.core.wmem_max={requested}`",
            requested = buffers.send
        );
    }
    Ok(())
}

/// Sets an option of a socket that no library wraps.
#[expect(unsafe_code, reason = "no library sets these options")]
pub(crate) fn set_option(
    socket: &impl AsFd,
    level: libc::c_int,
    option: libc::c_int,
    value: libc::c_int,
) -> io::Result<()> {
    let len = libc::socklen_t::try_from(size_of_val(&value)).expect("it has four bytes");
    let fd = socket.as_fd().as_raw_fd();
    // SAFETY: the descriptor stays open while it is borrowed, and the kernel reads `len` bytes of
    // `value`, which has that size and outlives the call.
    let result = unsafe { libc::setsockopt(fd, level, option, (&raw const value).cast(), len) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

fn codepoint(ecn: Ecn) -> Option<EcnCodepoint> {
    match ecn {
        Ecn::NotEct => None,
        Ecn::Ect0 => Some(EcnCodepoint::Ect0),
        Ecn::Ect1 => Some(EcnCodepoint::Ect1),
        Ecn::Ce => Some(EcnCodepoint::Ce),
    }
}

fn mark(codepoint: Option<EcnCodepoint>) -> Ecn {
    match codepoint {
        None => Ecn::NotEct,
        Some(EcnCodepoint::Ect0) => Ecn::Ect0,
        Some(EcnCodepoint::Ect1) => Ecn::Ect1,
        Some(EcnCodepoint::Ce) => Ecn::Ce,
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::collections::VecDeque;
    use std::sync::Mutex;
    use std::time::{Duration, Instant};

    use super::*;

    /// Errors that the next calls of a socket return.
    #[derive(Debug, Default)]
    pub(crate) struct Faults {
        pub(crate) send: Mutex<VecDeque<Errno>>,
        pub(crate) receive: Mutex<VecDeque<Errno>>,
    }

    pub(super) fn next(queue: &Mutex<VecDeque<Errno>>) -> io::Result<()> {
        queue.lock().unwrap().pop_front().map_or(Ok(()), |error| Err(error.into()))
    }

    fn pair() -> (Socket, Socket) {
        let any = "127.0.0.1:0".parse().unwrap();
        let small = Buffers { receive: 1 << 20, send: 1 << 20 };
        (Socket::bind(any, small).unwrap(), Socket::bind(any, small).unwrap())
    }

    /// Receives until `datagrams` have arrived, or for one second.
    fn collect(socket: &Socket, datagrams: usize) -> Vec<Vec<u8>> {
        let mut buffers = ReceiveBuffers::new();
        let mut all = Vec::new();
        let start = Instant::now();
        while all.len() < datagrams && start.elapsed() < Duration::from_secs(1) {
            let take = |arrival: Arrival<'_>| {
                let empty = arrival.bytes.is_empty().then(Vec::new);
                let rest = arrival.bytes.chunks(arrival.stride.max(1)).map(<[u8]>::to_vec);
                all.extend(empty.into_iter().chain(rest));
            };
            if socket.receive(&mut buffers, take).unwrap() == 0 {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        all
    }

    #[test]
    fn batches_arrive_intact() {
        let (a, b) = pair();
        for (len, segment) in [(0usize, 0), (10, 10), (64 * 1000, 1000), (5 * 1472 + 7, 1472)] {
            let bytes: Vec<u8> = (0..len).map(|i| (i * 7 % 251) as u8).collect();
            let sent = a.send(b.local(), None, Ecn::NotEct, &bytes, segment).unwrap();
            assert_eq!(sent, Sent::All);
            let expected = if len == 0 { 1 } else { len.div_ceil(segment) };
            let got = collect(&b, expected);
            assert_eq!(got.len(), expected);
            assert_eq!(got.concat(), bytes);
            assert!(got.iter().rev().skip(1).all(|datagram| datagram.len() == segment));
        }
    }

    #[test]
    fn marks_and_addresses_arrive() {
        let (a, b) = pair();
        a.send(b.local(), None, Ecn::Ect0, b"hello", 5).unwrap();
        let mut buffers = ReceiveBuffers::new();
        let mut arrived = None;
        for _ in 0..1000 {
            let take = |got: Arrival<'_>| arrived = Some((got.from, got.to, got.ecn));
            if b.receive(&mut buffers, take).unwrap() > 0 {
                break;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(arrived, Some((a.local(), Some(b.local().ip()), Ecn::Ect0)));
    }

    #[test]
    fn closed_ports_are_not_errors() {
        let (a, b) = pair();
        let gone = b.local();
        drop(b);
        for _ in 0..3 {
            assert_eq!(a.send(gone, None, Ecn::NotEct, b"x", 1).unwrap(), Sent::All);
        }
        assert_eq!(a.receive(&mut ReceiveBuffers::new(), |_| {}).unwrap(), 0);
    }

    #[test]
    fn connected_sockets_report_closed_ports() {
        let (a, b) = pair();
        let gone = b.local();
        drop(b);
        a.connect(gone).unwrap();
        for _ in 0..3 {
            assert_eq!(a.send(gone, None, Ecn::NotEct, b"x", 1).unwrap(), Sent::All);
        }
        assert_eq!(a.receive(&mut ReceiveBuffers::new(), |_| {}).unwrap(), 0);
        assert!(a.refusals() > 0);
    }

    #[test]
    fn a_port_in_use_is_an_error() {
        let (a, _) = pair();
        let error = Socket::bind(a.local(), Buffers::default()).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
    }
}
