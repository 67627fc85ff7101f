//! UDP-Lite (RFC 3828) in addition to UDP: the checksum covers only the start of a datagram, so
//! that a link may deliver damaged content.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicUsize, Ordering};

use engine::{Ecn, PathId};

use crate::socket::{Arrival, set_option};
use crate::{Buffers, Peers, Refusal, Sent, Socket};

/// Length of a UDP-Lite header, which every checksum covers (§3.1).
const HEADER: usize = 8;

/// `UDPLITE_SEND_CSCOV` and `UDPLITE_RECV_CSCOV` of Linux's `udplite.h`.
const SEND_COVERAGE: libc::c_int = 10;
const RECEIVE_COVERAGE: libc::c_int = 11;

/// A protocol's use of UDP-Lite.
#[derive(Clone, Copy, Debug)]
pub struct UdpLite {
    /// Bytes at the start of a datagram that its checksum covers; `None` if it must use UDP.
    /// Datagrams that arrive by UDP-Lite and give `None` are dropped.
    pub coverage: fn(&[u8]) -> Option<usize>,
    /// Minimum coverage. Datagrams that cover less are dropped.
    pub coverage_min: usize,
    /// Whether a datagram's sender accepts UDP-Lite, according to the datagram; `None` without an
    /// indication.
    pub offer: fn(&[u8]) -> Option<bool>,
    /// Whether peers are assumed to support UDP-Lite until they indicate otherwise.
    pub assumed: bool,
}

/// UDP-Lite socket of one driver, on the address and port of its UDP socket.
#[derive(Debug)]
pub(crate) struct Lite {
    socket: Socket,
    rules: UdpLite,
    /// Current checksum coverage of sent datagrams, header included.
    covers: AtomicUsize,
}

impl Lite {
    /// Opens the UDP-Lite socket at the address of `udp`.
    pub(crate) fn open(rules: UdpLite, udp: &Socket, buffers: Buffers) -> io::Result<Self> {
        let socket = Socket::bind_lite(udp.local(), buffers)?;
        set(&socket, RECEIVE_COVERAGE, rules.coverage_min.saturating_add(HEADER))?;
        Ok(Self { socket, rules, covers: AtomicUsize::new(0) })
    }

    pub(crate) fn socket(&self) -> &Socket {
        &self.socket
    }

    /// Whether datagrams to a peer are sent by UDP-Lite.
    pub(crate) fn reaches(&self, peers: &Peers, path: PathId) -> bool {
        peers.takes_lite(path).unwrap_or(self.rules.assumed)
    }

    /// Records whether the senders of these datagrams accept UDP-Lite.
    pub(crate) fn record_offers(&self, peers: &mut Peers, arrival: &Arrival<'_>) {
        for datagram in arrival.bytes.chunks(arrival.stride.max(1)) {
            if let Some(takes) = (self.rules.offer)(datagram) {
                peers.set_takes_lite(arrival.from, takes);
            }
        }
    }

    /// Whether a datagram may arrive by UDP-Lite.
    pub(crate) fn admits(&self, datagram: &[u8]) -> bool {
        (self.rules.coverage)(datagram).is_some()
    }

    /// Sends datagrams of `segment` bytes one by one, each by UDP-Lite or `udp` according to its
    /// coverage.
    pub(crate) fn send(
        &self,
        udp: &Socket,
        to: SocketAddr,
        source: Option<IpAddr>,
        ecn: Ecn,
        bytes: &[u8],
        segment: usize,
    ) -> io::Result<Sent> {
        let mut done = 0;
        for datagram in bytes.chunks(segment.max(1)) {
            let sent = match (self.rules.coverage)(datagram) {
                None => udp.send(to, source, ecn, datagram, datagram.len())?,
                Some(covered) => {
                    self.cover(covered)?;
                    match self.socket.send(to, source, ecn, datagram, datagram.len())? {
                        // The driver waits for its UDP socket only.
                        Sent::Blocked(done) => Sent::Congested(done),
                        sent @ (Sent::All | Sent::Congested(_) | Sent::Refused(_)) => sent,
                    }
                }
            };
            match sent {
                Sent::All => done += datagram.len(),
                Sent::Blocked(_) => return Ok(Sent::Blocked(done)),
                Sent::Congested(_) => return Ok(Sent::Congested(done)),
                Sent::Refused(refusal) => {
                    return Ok(Sent::Refused(Refusal { sent: done, ..refusal }));
                }
            }
        }
        Ok(Sent::All)
    }

    /// Sets the checksum coverage of datagrams sent from here on.
    fn cover(&self, bytes: usize) -> io::Result<()> {
        // Only the driver's thread sends.
        let covers = bytes.saturating_add(HEADER);
        if self.covers.load(Ordering::Relaxed) != covers {
            set(&self.socket, SEND_COVERAGE, covers)?;
            self.covers.store(covers, Ordering::Relaxed);
        }
        Ok(())
    }
}

/// Sets a UDP-Lite option to a number of bytes.
fn set(socket: &impl AsFd, option: libc::c_int, bytes: usize) -> io::Result<()> {
    let value = libc::c_int::try_from(bytes).unwrap_or(libc::c_int::MAX);
    set_option(socket, libc::IPPROTO_UDPLITE, option, value)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use engine::Time;

    use super::*;
    use crate::ReceiveBuffers;

    const BUFFERS: Buffers = Buffers { receive: 1 << 18, send: 1 << 18 };

    /// The first byte is the coverage; "u" goes by UDP.
    fn coverage(datagram: &[u8]) -> Option<usize> {
        datagram.first().filter(|first| **first != b'u').map(|first| usize::from(*first))
    }

    fn offer(datagram: &[u8]) -> Option<bool> {
        match datagram {
            b"u yes" => Some(true),
            b"u no." => Some(false),
            _ => None,
        }
    }

    fn pair(coverage_min: usize) -> Option<(Socket, Lite)> {
        let udp = Socket::bind("127.0.0.1:0".parse().unwrap(), BUFFERS).unwrap();
        let rules = UdpLite { coverage, coverage_min, offer, assumed: false };
        match Lite::open(rules, &udp, BUFFERS) {
            Ok(lite) => Some((udp, lite)),
            Err(error) => {
                assert_eq!(error.kind(), io::ErrorKind::Unsupported, "{error}");
                testing::skipped!("{error}");
                None
            }
        }
    }

    /// Datagrams received within a quarter of a second, until the expected number has arrived.
    fn received(socket: &Socket, count: usize) -> Vec<Vec<u8>> {
        let mut all = Vec::new();
        for _ in 0..250 {
            let take = |arrival: Arrival<'_>| {
                all.extend(arrival.bytes.chunks(arrival.stride.max(1)).map(<[u8]>::to_vec));
            };
            if socket.receive(&mut ReceiveBuffers::new(), take).unwrap() == 0 {
                if all.len() >= count {
                    break;
                }
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        all
    }

    #[test]
    fn udp_and_udp_lite_datagrams_use_their_own_sockets() {
        let Some(((here, lite), (there, other))) = pair(10).zip(pair(10)) else { return };
        assert_eq!(lite.socket().local(), here.local());
        let mut bytes = Vec::new();
        for first in [b'u', 10, 200, b'u', 11] {
            bytes.extend([first; 100]);
        }
        bytes.extend([30; 40]);
        let to = there.local();
        let sent = lite.send(&here, to, None, Ecn::NotEct, &bytes, 100).unwrap();
        assert_eq!(sent, Sent::All);
        assert_eq!(received(&there, 2), [[b'u'; 100], [b'u'; 100]]);
        let firsts: Vec<_> =
            received(other.socket(), 4).iter().map(|it| (it[0], it.len())).collect();
        assert_eq!(firsts, [(10, 100), (200, 100), (11, 100), (30, 40)]);
        assert!(!lite.socket().sends_batches());
    }

    #[test]
    fn checksums_cover_the_requested_bytes() {
        let Some(((here, lite), (there, other))) = pair(10).zip(pair(20)) else { return };
        for covered in [19u8, 20, 0, 21, 10] {
            let datagram = [covered; 50];
            lite.send(&here, there.local(), None, Ecn::NotEct, &datagram, 50).unwrap();
        }
        let firsts: Vec<_> = received(other.socket(), 2).iter().map(|it| it[0]).collect();
        assert_eq!(firsts, [20, 21], "who asks for 20 bytes gets nothing with less");
    }

    #[test]
    fn peers_indicate_udp_lite_support() {
        let Some((here, lite)) = pair(10) else { return };
        let mut peers = Peers::new(4, Duration::from_secs(1));
        let path = peers.add(here.local());
        assert!(!lite.reaches(&peers, path));
        for (bytes, takes) in [(&b"u yes"[..], true), (b"other", true), (b"u no.", false)] {
            let (from, ecn, stride) = (here.local(), Ecn::NotEct, bytes.len());
            lite.record_offers(&mut peers, &Arrival { from, to: None, ecn, stride, bytes });
            assert_eq!(lite.reaches(&peers, path), takes);
        }
        peers.origin(Time::ZERO, here.local(), None);
        assert_eq!(peers.takes_lite(path), Some(false));
    }
}
