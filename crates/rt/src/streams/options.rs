//! How the kernel's TCP is set for a stream.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use engine::EffectError;
use rustix::io::Errno;
use rustix::net::sockopt;
use socket2::{Domain, Protocol, SockRef, Socket, TcpKeepalive, Type};

/// How the kernel's TCP is set for a stream.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StreamOptions {
    /// The address of a stream's near end need not be this host's (`IP_TRANSPARENT`): a listener is
    /// handed what the system diverts to it, and a stream may begin at the address of another host.
    pub transparent: bool,
    /// The congestion control, as the kernel names it; `None`: the namespace's.
    pub congestion: Option<String>,
    /// The send buffer, in bytes; `None`: it grows by itself. A size that is said does not grow.
    pub send_buffer: Option<usize>,
    /// The receive buffer, in bytes; `None`: it grows by itself.
    pub receive_buffer: Option<usize>,
    /// Bytes that may wait in the kernel before they are sent the first time, beyond which a stream
    /// has no room (`TCP_NOTSENT_LOWAT`); `None`: as many as the send buffer takes.
    pub unsent_max: Option<u32>,
    /// The most that one stream sends, in bit/s (`SO_MAX_PACING_RATE`).
    pub rate_bps: Option<u64>,
    /// The longest segment to announce and send, in bytes; `None`: what the MTU takes.
    pub mss: Option<u16>,
    /// Asking an idle peer after so long whether it is there.
    pub keep_alive: Option<Duration>,
    /// Giving up when what was sent, a SYN included, is not acknowledged for so long
    /// (`TCP_USER_TIMEOUT`); `None`: as the system has it, about two minutes for a SYN and a
    /// quarter of an hour later.
    pub timeout: Option<Duration>,
    /// A stream whose direction from here has not ended in order, and that is closed, is a reset to
    /// its peer (`SO_LINGER` of no time): also when the process dies, where the kernel would tell the
    /// peer that all has come. A stream that was ended still delivers what was sent.
    pub reset_on_death: bool,
}

/// Probes of an idle peer before it is given up.
const PROBES: u32 = 4;

impl StreamOptions {
    /// A socket that listens. Streams that it takes inherit how it is set.
    pub(super) fn listen(&self, address: SocketAddr, backlog: i32) -> io::Result<Socket> {
        let socket = self.open(address)?;
        if address.is_ipv6() {
            socket.set_only_v6(true)?;
        }
        socket.bind(&address.into())?;
        socket.listen(backlog)?;
        Ok(socket)
    }

    /// A socket that is being connected from an address, if one is said.
    pub(super) fn connect(&self, from: Option<SocketAddr>, to: SocketAddr) -> io::Result<Socket> {
        let socket = self.open(to)?;
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
        // A port may be used again at once, and by streams to different peers.
        socket.set_reuse_address(true)?;
        // Pieces are as long as an engine has them: there is nothing to wait for.
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
            // Without the privilege to exceed it, the system's limit holds.
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

    /// Whether the system takes all of these, which are for streams of the family of `address`.
    ///
    /// # Errors
    /// Names the option that it does not take, and what to do.
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

/// Resets the peer when the socket is closed, and forgets what waits to be sent.
pub(super) fn reset_at_close(socket: &std::net::TcpStream) {
    // It may be over already: then there is nobody to be reset.
    let _ = SockRef::from(socket).set_linger(Some(Duration::ZERO));
}

/// Closing the socket from here on delivers what waits to be sent, and then the end.
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

    // SAFETY: the option takes plain data, which lives until the call returns, of the length that is
    // said.
    let result = unsafe {
        let len = size_of::<T>() as libc::socklen_t;
        libc::setsockopt(socket.as_raw_fd(), level, option, (&raw const value).cast(), len)
    };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Reason why a stream is not made, in words.
pub(super) fn why_not(error: &io::Error) -> EffectError {
    match Errno::from_io_error(error) {
        Some(Errno::CONNREFUSED) => EffectError::Failed("nobody listens there".to_owned()),
        Some(Errno::TIMEDOUT) => EffectError::Failed("the peer does not answer".to_owned()),
        Some(Errno::PERM | Errno::ACCESS) => EffectError::NotAllowed,
        _ => EffectError::Failed(error.to_string()),
    }
}
