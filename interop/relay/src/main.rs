//! A UDP relay that drops a seeded share of the datagrams and writes a capture, if asked to.
//!
//! ```text
//! relay NEAR FAR TARGET LOSS SEED [CAPTURE]
//! ```
//!
//! Datagrams that arrive at `NEAR` leave from `FAR` towards `TARGET`; those that arrive at `FAR`
//! leave from `NEAR` towards the last sender to `NEAR`. So each end sees the relay as its peer, at
//! one address. The n-th datagram of a direction has the same fate in every run with the same
//! seed. The relay ends when its standard input does, and prints its counters as one JSON object.

mod capture;

use std::io::{self, IoSliceMut, Read};
use std::net::{SocketAddr, SocketAddrV4, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use std::{env, thread};

use capture::Capture;
use quinn_udp::{RecvMeta, Transmit, UdpSocketState};

const USAGE: &str = "usage: relay NEAR FAR TARGET LOSS SEED [CAPTURE]";
/// Size of a socket's buffers in bytes; the kernel may grant less.
const BUFFER: usize = 4 << 20;
/// Receive timeout of a direction, after which it checks for the end of the relay.
const POLL: Duration = Duration::from_millis(50);

fn main() -> io::Result<()> {
    let args: Vec<String> = env::args().skip(1).collect();
    let (fixed, capture) = args.split_at(args.len().min(5));
    let ([near, far, target, loss, seed], [] | [_]) = (fixed, capture) else {
        return Err(usage(USAGE));
    };
    let loss: f64 = loss.parse().map_err(|_| usage("LOSS is a share from 0 to 1"))?;
    let seed: u64 = seed.parse().map_err(|_| usage("SEED is a whole number"))?;
    let target: SocketAddrV4 = target.parse().map_err(|_| usage("TARGET is ADDRESS:PORT"))?;

    let relay = Arc::new(Relay {
        near: Socket::bind(near)?,
        far: Socket::bind(far)?,
        target,
        client: Mutex::new(None),
        capture: Mutex::new(capture.first().map(|path| Capture::create(path)).transpose()?),
        ended: AtomicBool::new(false),
    });
    println!("ready");

    let forward = start(&relay, Direction::Forward, Fate::new(seed, 1, loss));
    let back = start(&relay, Direction::Back, Fate::new(seed, 2, loss));
    // The end of standard input is the signal to stop.
    io::stdin().read_to_end(&mut Vec::new())?;
    relay.ended.store(true, Ordering::Relaxed);
    let forward = forward.join().map_err(|_| io::Error::other("a direction panicked"))??;
    let back = back.join().map_err(|_| io::Error::other("a direction panicked"))??;
    if let Some(capture) = relay.capture.lock().unwrap_or_else(PoisonError::into_inner).as_mut() {
        capture.finish()?;
    }
    println!("{{\"forward\":{},\"back\":{}}}", forward.json(), back.json());
    Ok(())
}

/// A UDP socket that takes and gives batches of datagrams of one length.
struct Socket {
    socket: UdpSocket,
    state: UdpSocketState,
}

impl Socket {
    /// Opens a socket whose buffers are so large that only the relay drops datagrams.
    fn bind(address: &str) -> io::Result<Self> {
        let socket = UdpSocket::bind(address)?;
        let options = socket2::SockRef::from(&socket);
        options.set_recv_buffer_size(BUFFER)?;
        options.set_send_buffer_size(BUFFER)?;
        let state = UdpSocketState::new((&socket).into())?;
        socket.set_nonblocking(false)?;
        socket.set_read_timeout(Some(POLL))?;
        Ok(Self { socket, state })
    }

    /// Waits for the next batch.
    fn receive(&self, buffer: &mut [u8]) -> io::Result<RecvMeta> {
        let mut meta = [RecvMeta::default()];
        // One batch only: with more, the system would wait until all are there.
        self.state.recv((&self.socket).into(), &mut [IoSliceMut::new(buffer)], &mut meta)?;
        Ok(meta[0])
    }

    /// Sends `count` datagrams of `meta.stride` bytes, the last of which may be shorter.
    fn send(&self, target: SocketAddrV4, meta: &RecvMeta, bytes: &[u8], count: usize) {
        let send = |contents, segment_size| {
            let transmit = Transmit {
                destination: target.into(),
                ecn: meta.ecn,
                contents,
                segment_size,
                src_ip: None,
            };
            self.state.try_send((&self.socket).into(), &transmit)
        };
        let is_batch = count > 1 && count <= self.state.max_gso_segments();
        if count == 0 || is_batch && send(bytes, Some(meta.stride)).is_ok() {
            return;
        }
        for (start, end) in datagrams(bytes.len(), meta.stride) {
            // Fails if the end has gone; the transfer's result will show that.
            let _ = send(&bytes[start..end], None);
        }
    }
}

/// Places of the datagrams in a batch of `len` bytes.
fn datagrams(len: usize, stride: usize) -> impl Iterator<Item = (usize, usize)> {
    let count = len.div_ceil(stride.max(1)).max(1);
    (0..count).map(move |at| (at * stride, ((at + 1) * stride).min(len)))
}

fn usage(text: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, text)
}

struct Relay {
    near: Socket,
    far: Socket,
    target: SocketAddrV4,
    client: Mutex<Option<SocketAddrV4>>,
    capture: Mutex<Option<Capture>>,
    ended: AtomicBool,
}

#[derive(Clone, Copy)]
enum Direction {
    Forward,
    Back,
}

#[derive(Default)]
struct Counters {
    datagrams: AtomicU64,
    bytes: AtomicU64,
    lost: AtomicU64,
}

impl Counters {
    fn count(&self, bytes: usize, lost: bool) {
        self.datagrams.fetch_add(1, Ordering::Relaxed);
        self.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
        self.lost.fetch_add(lost.into(), Ordering::Relaxed);
    }

    fn json(&self) -> String {
        format!(
            "{{\"datagrams\":{},\"bytes\":{},\"lost\":{}}}",
            self.datagrams.load(Ordering::Relaxed),
            self.bytes.load(Ordering::Relaxed),
            self.lost.load(Ordering::Relaxed)
        )
    }
}

fn start(
    relay: &Arc<Relay>,
    direction: Direction,
    fate: Fate,
) -> thread::JoinHandle<io::Result<Counters>> {
    let relay = Arc::clone(relay);
    thread::spawn(move || relay.carry(direction, fate))
}

impl Relay {
    /// Forwards the datagrams of one direction until the relay ends.
    fn carry(&self, direction: Direction, mut fate: Fate) -> io::Result<Counters> {
        let counters = Counters::default();
        let (from, to) = match direction {
            Direction::Forward => (&self.near, &self.far),
            Direction::Back => (&self.far, &self.near),
        };
        let mut buffer = vec![0; 65_536];
        while !self.ended.load(Ordering::Relaxed) {
            // A timeout, or the ICMP error of a datagram to an end that has gone.
            let Ok(meta) = from.receive(&mut buffer) else { continue };
            let SocketAddr::V4(source) = meta.addr else { continue };
            let Some(target) = self.target_of(direction, source) else { continue };
            let bytes = &buffer[..meta.len];
            // Datagrams between two lost ones leave as one batch.
            let (mut first, mut count) = (0, 0);
            for (start, end) in datagrams(meta.len, meta.stride) {
                let lost = fate.lost();
                counters.count(end - start, lost);
                self.record((source, target), &bytes[start..end], lost)?;
                if lost {
                    to.send(target, &meta, &bytes[first..start], count);
                    (first, count) = (end, 0);
                } else {
                    count += 1;
                }
            }
            to.send(target, &meta, &bytes[first..], count);
        }
        Ok(counters)
    }

    fn record(
        &self,
        (source, target): (SocketAddrV4, SocketAddrV4),
        bytes: &[u8],
        lost: bool,
    ) -> io::Result<()> {
        let mut capture = self.capture.lock().unwrap_or_else(PoisonError::into_inner);
        capture.as_mut().map_or(Ok(()), |capture| capture.record(source, target, bytes, lost))
    }

    fn target_of(&self, direction: Direction, source: SocketAddrV4) -> Option<SocketAddrV4> {
        let mut client = self.client.lock().unwrap_or_else(PoisonError::into_inner);
        match direction {
            Direction::Forward => {
                *client = Some(source);
                Some(self.target)
            }
            Direction::Back => *client,
        }
    }
}

/// Sequence of dropped datagrams: SplitMix64 (Steele, Lea and Flood, 2014), one state per
/// direction.
struct Fate {
    state: u64,
    loss: f64,
}

impl Fate {
    fn new(seed: u64, stream: u64, loss: f64) -> Self {
        Self { state: seed.wrapping_mul(0x2545_f491_4f6c_dd1d).wrapping_add(stream << 32), loss }
    }

    fn lost(&mut self) -> bool {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^= z >> 31;
        // The upper 53 bits, as a number from 0 up to 1.
        ((z >> 11) as f64 / (1u64 << 53) as f64) < self.loss
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_share_lost_is_the_share_asked_for() {
        for loss in [0.0, 0.05, 1.0] {
            let mut fate = Fate::new(7, 1, loss);
            let lost = (0..100_000).filter(|_| fate.lost()).count() as f64 / 100_000.0;
            // Five standard deviations of a binomial share at 0.05: 5 * 0.00069.
            assert!((lost - loss).abs() <= 0.0035, "{lost} of {loss}");
        }
    }

    #[test]
    fn batches_are_cut_into_their_datagrams() {
        let cut = |len, stride| datagrams(len, stride).collect::<Vec<_>>();
        assert_eq!(cut(25, 10), [(0, 10), (10, 20), (20, 25)]);
        assert_eq!(cut(10, 10), [(0, 10)]);
        assert_eq!(cut(0, 0), [(0, 0)]);
    }

    #[test]
    fn the_directions_differ_and_repeat() {
        let fates = |stream| -> Vec<bool> {
            let mut fate = Fate::new(7, stream, 0.5);
            (0..64).map(|_| fate.lost()).collect()
        };
        assert_eq!(fates(1), fates(1));
        assert_ne!(fates(1), fates(2));
    }
}
