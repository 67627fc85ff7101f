//! Socket options of streams.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use engine::EffectError;
use rustix::io::Errno;
use rustix::net::sockopt;
use socket2::{Domain, Protocol, SockRef, Socket, TcpKeepalive, Type};

/// Socket options of a stream.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StreamOptions {
    /// Allows local addresses of other hosts (`IP_TRANSPARENT`). A listener then accepts
    /// connections that the system diverts to it, and a stream may begin at the address of another
    /// host.
    pub transparent: bool,
    /// Congestion control by its kernel name; `None`: the namespace's default.
    pub congestion: Option<String>,
    /// Send buffer in bytes; `None`: autotuned. A given size does not grow.
    pub send_buffer: Option<usize>,
    /// Receive buffer in bytes; `None`: autotuned.
    pub receive_buffer: Option<usize>,
    /// Unsent bytes in the kernel above which a stream has no room (`TCP_NOTSENT_LOWAT`); `None`:
    /// the size of the send buffer.
    pub unsent_max: Option<u32>,
    /// Maximum rate of one stream, in bit/s (`SO_MAX_PACING_RATE`).
    pub rate_bps: Option<u64>,
    /// Maximum segment size (MSS) to announce and send, in bytes; `None`: from the MTU.
    pub mss: Option<u16>,
    /// Idle time before keep-alive probes.
    pub keep_alive: Option<Duration>,
    /// Time without acknowledgment of sent data or a SYN after which the connection is aborted
    /// (`TCP_USER_TIMEOUT`); `None`: the system's default, about two minutes for a SYN and a
    /// quarter of an hour for data.
    pub timeout: Option<Duration>,
    /// Time after which an attempt to connect is given up; `None`: that of `timeout`.
    pub connecting: Option<Duration>,
    /// Resets the peer when a stream is closed before its direction has ended in order (`SO_LINGER`
    /// of zero), also when the process dies. Otherwise the kernel would signal to the peer that all
    /// data has arrived. A stream that was ended still delivers its data.
    pub reset_on_death: bool,
}

/// Keep-alive probes before a peer is given up.
const PROBES: u32 = 4;

impl StreamOptions {
    /// Opens a listening socket. Streams that it accepts inherit its options.
    pub(super) fn listen(&self, address: SocketAddr, backlog: i32) -> io::Result<Socket> {
        let socket = self.open(address)?;
        if address.is_ipv6() {
            socket.set_only_v6(true)?;
        }
        socket.bind(&address.into())?;
        socket.listen(backlog)?;
        Ok(socket)
    }

    /// Starts connecting a socket, from a given address if any.
    pub(super) fn connect(&self, from: Option<SocketAddr>, to: SocketAddr) -> io::Result<Socket> {
        let socket = self.open(to)?;
        if self.connecting.is_some() {
            // It limits the retransmissions of the SYN, too.
            socket.set_tcp_user_timeout(self.connecting)?;
        }
        if let Some(from) = from {
            socket.bind(&from.into())?;
        }
        match socket.connect(&to.into()) {
            Ok(()) => Ok(socket),
            Err(error) if error.raw_os_error() == Some(libc::EINPROGRESS) => Ok(socket),
            Err(error) => Err(error),
        }
    }

    fn open(&self, address: SocketAddr) -> io::Result<Socket> {
        let kind = Type::STREAM.nonblocking().cloexec();
        let socket = Socket::new(Domain::for_address(address), kind, Some(Protocol::TCP))?;
        // A port may be reused at once, and by streams to different peers.
        socket.set_reuse_address(true)?;
        // The engine chooses the length of pieces: Nagle's algorithm would only delay them.
        socket.set_tcp_nodelay(true)?;
        self.apply(&socket, address)?;
        Ok(socket)
    }

    fn apply(&self, socket: &Socket, address: SocketAddr) -> io::Result<()> {
        if self.transparent {
            match address {
                SocketAddr::V4(_) => socket.set_ip_transparent_v4(true)?,
                SocketAddr::V6(_) => socket.set_ip_transparent_v6(true)?,
            }
        }
        if let Some(name) = &self.congestion {
            socket.set_tcp_congestion(name.as_bytes())?;
        }
        if let Some(size) = self.send_buffer
            && force_send_buffer(socket, size).is_err()
        {
            // Without the privilege to exceed it, the system's limit applies.
            socket.set_send_buffer_size(size)?;
        }
        if let Some(size) = self.receive_buffer
            && sockopt::set_socket_recv_buffer_size_force(socket, size).is_err()
        {
            socket.set_recv_buffer_size(size)?;
        }
        if let Some(bytes) = self.unsent_max {
            socket.set_tcp_notsent_lowat(bytes)?;
        }
        if let Some(rate) = self.rate_bps {
            // 8 Mbit/s are 1,000,000 bytes per second.
            set(socket, libc::SOL_SOCKET, libc::SO_MAX_PACING_RATE, rate.div_ceil(8).max(1))?;
        }
        if let Some(mss) = self.mss {
            socket.set_tcp_mss(u32::from(mss))?;
        }
        if let Some(idle) = self.keep_alive {
            // The kernel counts in whole seconds.
            let second = Duration::from_secs(1);
            let every = (idle / PROBES).max(second);
            let how = TcpKeepalive::new().with_time(idle.max(second)).with_interval(every);
            socket.set_tcp_keepalive(&how.with_retries(PROBES))?;
        }
        if self.reset_on_death {
            socket.set_linger(Some(Duration::ZERO))?;
        }
        socket.set_tcp_user_timeout(self.timeout)
    }

    /// Checks that the system supports these options for streams of the address family of
    /// `address`.
    ///
    /// # Errors
    ///
    /// Names the unsupported option, and what to do.
    pub fn check(&self, address: SocketAddr) -> io::Result<()> {
        let Err(error) = self.open(address) else { return Ok(()) };
        let explained = |what: String| io::Error::new(error.kind(), format!("{what}: {error}"));
        let alone = Self { transparent: self.transparent, ..Self::default() };
        if let Some(name) = &self.congestion {
            let remedy = format!(
                "the kernel has no congestion control {name:?}; those it has are in \
                 /proc/sys/net/ipv4/tcp_available_congestion_control, and \
                 `modprobe tcp_{name}` may add it"
            );
            if (Self { congestion: self.congestion.clone(), ..Self::default() })
                .open(address)
                .is_err()
            {
                return Err(explained(remedy));
            }
        }
        if alone.open(address).is_err() {
            return Err(explained("IP_TRANSPARENT needs root, or CAP_NET_ADMIN".to_owned()));
        }
        Err(explained("the kernel does not take the options of a stream".to_owned()))
    }
}

/// Resets the peer when the socket is closed, and discards unsent data.
pub(super) fn reset_at_close(socket: &std::net::TcpStream) {
    // The connection may have ended: then the peer cannot be reset.
    let _ = SockRef::from(socket).set_linger(Some(Duration::ZERO));
}

/// Makes closing the socket deliver the unsent data, and then the end.
pub(super) fn deliver_at_close(socket: &std::net::TcpStream) {
    // As above.
    let _ = SockRef::from(socket).set_linger(None);
}

fn force_send_buffer(socket: &Socket, size: usize) -> io::Result<()> {
    let size = libc::c_int::try_from(size).unwrap_or(libc::c_int::MAX);
    set(socket, libc::SOL_SOCKET, libc::SO_SNDBUFFORCE, size)
}

/// Sets an option that no crate of ours wraps.
#[expect(unsafe_code, reason = "a socket option that no crate of ours wraps")]
fn set<T: Copy>(
    socket: &Socket,
    level: libc::c_int,
    option: libc::c_int,
    value: T,
) -> io::Result<()> {
    use std::os::fd::AsRawFd as _;

    // SAFETY: the option takes plain data of the given length, which lives until the call returns.
    let result = unsafe {
        let len = size_of::<T>() as libc::socklen_t;
        libc::setsockopt(socket.as_raw_fd(), level, option, (&raw const value).cast(), len)
    };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Reason why a stream was not made.
pub(super) fn why_not(error: &io::Error) -> EffectError {
    match Errno::from_io_error(error) {
        Some(Errno::CONNREFUSED) => EffectError::Failed("connection refused".to_owned()),
        Some(Errno::TIMEDOUT) => EffectError::Failed("the peer does not respond".to_owned()),
        Some(Errno::PERM | Errno::ACCESS) => EffectError::NotAllowed,
        _ => EffectError::Failed(error.to_string()),
    }
}
