//! Ports that no other program of the machine uses during a test.

use std::net::{TcpListener, UdpSocket};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixListener};

/// Below the ports that kernels assign to outgoing connections and to sockets bound to port 0:
/// another program may take such a port while its owner restarts.
const RANGE: std::ops::Range<u16> = 20_000..32_000;

/// Port that is free for TCP and UDP, and reserved against other tests until dropped.
#[derive(Debug)]
pub(crate) struct Port {
    pub(crate) number: u16,
    /// Its name is reserved in the network namespace.
    _reserved: UnixListener,
}

impl Port {
    /// Reserves a port.
    pub(crate) fn reserve() -> Self {
        // Concurrent tests start at different places.
        let begin = std::process::id().wrapping_mul(61) as u16 % RANGE.len() as u16;
        let candidates = (RANGE.start + begin..RANGE.end).chain(RANGE.start..RANGE.start + begin);
        candidates.into_iter().find_map(Self::of).expect("a free port")
    }

    fn of(number: u16) -> Option<Self> {
        let name = format!("slowlight/test-port/{number}");
        let name = SocketAddr::from_abstract_name(name).expect("a short name");
        let reserved = UnixListener::bind_addr(&name).ok()?;
        let local = ("127.0.0.1", number);
        let is_free = TcpListener::bind(local).is_ok() && UdpSocket::bind(local).is_ok();
        is_free.then_some(Self { number, _reserved: reserved })
    }
}
