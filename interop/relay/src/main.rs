//! A UDP relay that drops a seeded share of the datagrams and writes a capture.
//!
//! ```text
//! relay NEAR FAR TARGET LOSS SEED CAPTURE
//! ```
//!
//! Datagrams that arrive at `NEAR` leave from `FAR` towards `TARGET`; those that arrive at `FAR`
//! leave from `NEAR` towards the last sender to `NEAR`. So each end sees the relay as its peer, at
//! one address. The n-th datagram of a direction has the same fate in every run with the same
//! seed. The relay ends when its standard input does, and prints its counters as one JSON object.

mod capture;

use std::io::{self, Read};
use std::net::{SocketAddr, SocketAddrV4, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use std::{env, thread};

use capture::Capture;

const USAGE: &str = "usage: relay NEAR FAR TARGET LOSS SEED CAPTURE";
/// Size of a socket's buffers in bytes; the kernel may grant less.
const BUFFER: usize = 4 << 20;
/// Receive timeout of a direction, after which it checks for the end of the relay.
const POLL: Duration = Duration::from_millis(50);

fn main() -> io::Result<()> {
    let args: Vec<String> = env::args().skip(1).collect();
    let [near, far, target, loss, seed, capture] = &args[..] else {
        return Err(usage(USAGE));
    };
    let loss: f64 = loss.parse().map_err(|_| usage("LOSS is a share from 0 to 1"))?;
    let seed: u64 = seed.parse().map_err(|_| usage("SEED is a whole number"))?;
    let target: SocketAddrV4 = target.parse().map_err(|_| usage("TARGET is ADDRESS:PORT"))?;

    let relay = Arc::new(Relay {
        near: bind(near)?,
        far: bind(far)?,
        target,
        client: Mutex::new(None),
        capture: Mutex::new(Capture::create(capture)?),
        ended: AtomicBool::new(false),
    });
    relay.near.set_read_timeout(Some(POLL))?;
    relay.far.set_read_timeout(Some(POLL))?;
    println!("ready");

    let forward = start(&relay, Direction::Forward, Fate::new(seed, 1, loss));
    let back = start(&relay, Direction::Back, Fate::new(seed, 2, loss));
    // The end of standard input is the signal to stop.
    io::stdin().read_to_end(&mut Vec::new())?;
    relay.ended.store(true, Ordering::Relaxed);
    let forward = forward.join().map_err(|_| io::Error::other("a direction panicked"))??;
    let back = back.join().map_err(|_| io::Error::other("a direction panicked"))??;
    relay.capture.lock().unwrap_or_else(PoisonError::into_inner).finish()?;
    println!("{{\"forward\":{},\"back\":{}}}", forward.json(), back.json());
    Ok(())
}

/// Opens a socket whose buffers are so large that only the relay drops datagrams.
fn bind(address: &str) -> io::Result<UdpSocket> {
    let socket = UdpSocket::bind(address)?;
    let options = socket2::SockRef::from(&socket);
    options.set_recv_buffer_size(BUFFER)?;
    options.set_send_buffer_size(BUFFER)?;
    Ok(socket)
}

fn usage(text: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, text)
}

struct Relay {
    near: UdpSocket,
    far: UdpSocket,
    target: SocketAddrV4,
    client: Mutex<Option<SocketAddrV4>>,
    capture: Mutex<Capture>,
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
            let (len, source) = match from.recv_from(&mut buffer) {
                Ok((len, SocketAddr::V4(source))) => (len, source),
                Ok((_, SocketAddr::V6(_))) => continue,
                // A timeout, or the ICMP error of a datagram to an end that has gone.
                Err(_) => continue,
            };
            let Some(target) = self.target_of(direction, source) else { continue };
            let bytes = &buffer[..len];
            let lost = fate.lost();
            counters.datagrams.fetch_add(1, Ordering::Relaxed);
            counters.bytes.fetch_add(len as u64, Ordering::Relaxed);
            self.capture
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .record(source, target, bytes, lost)?;
            if lost {
                counters.lost.fetch_add(1, Ordering::Relaxed);
            } else {
                // Fails if the end has gone; the transfer's result will show that.
                let _ = to.send_to(bytes, target);
            }
        }
        Ok(counters)
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
    fn the_directions_differ_and_repeat() {
        let fates = |stream| -> Vec<bool> {
            let mut fate = Fate::new(7, stream, 0.5);
            (0..64).map(|_| fate.lost()).collect()
        };
        assert_eq!(fates(1), fates(1));
        assert_ne!(fates(1), fates(2));
    }
}
