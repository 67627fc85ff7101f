//! Arrival times of single datagrams.

use std::io;
use std::net::UdpSocket;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use super::Stamped;
use super::stamp::cut;
use crate::world::Host;

const PORT: u16 = 4000;
/// Bytes of the IPv4 and UDP headers.
const HEADERS: usize = 28;
/// Minimum time between wake-ups of the sender: datagrams due in between are sent at once.
const BURST_GAP: Duration = Duration::from_micros(500);

/// Spacing of datagrams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pace {
    /// Length of the IP packet in bytes, at least 36.
    pub len: usize,
    /// Average time between datagrams.
    pub gap: Duration,
    /// Number of datagrams.
    pub count: u32,
    /// Datagrams passed to the kernel at once, 1 to 60.
    pub at_once: u32,
    /// Time after the last send during which datagrams may arrive.
    pub patience: Duration,
}

/// Times of a datagram since 1970: sent, and received by the other host's kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Crossing {
    /// Number, from 0.
    pub number: u32,
    /// Time just before the datagram was sent.
    pub sent: Duration,
    /// Time just after the datagram was sent.
    pub sent_by: Duration,
    /// Arrival time; `None` if the datagram was lost.
    pub came: Option<Duration>,
}

/// Sends datagrams from one host to another. Returns all of them in the order of sending, and the
/// number that arrived after one that was sent later.
///
/// # Errors
///
/// The system refused.
pub fn cross(near: &Host, far: &Host, pace: &Pace) -> io::Result<(Vec<Crossing>, u64)> {
    let (from, to) = (near.plan().address, far.plan().address);
    let sender = near.within(|| UdpSocket::bind((from, 0)))??;
    let receiver = far.within(|| Stamped::bind((to, PORT).into()))??;
    receiver.set_patience(Duration::from_millis(100))?;
    sender.connect((to, PORT))?;
    let sent_all = AtomicBool::new(false);
    let (mut crossings, came) = thread::scope(|scope| {
        let receiving = scope.spawn(|| receive(&receiver, pace, &sent_all));
        let sent = send(&sender, pace);
        sent_all.store(true, Ordering::Release);
        let came = receiving.join().map_err(|_| io::Error::other("the receiver failed"))??;
        Ok::<_, io::Error>((sent?, came))
    })?;
    let mut reordered = 0;
    let mut latest = None;
    for (number, at) in came {
        reordered += u64::from(latest.is_some_and(|latest| number < latest));
        latest = latest.max(Some(number));
        if let Some(crossing) = crossings.get_mut(number as usize) {
            crossing.came = Some(at);
        }
    }
    Ok((crossings, reordered))
}

fn send(socket: &UdpSocket, pace: &Pace) -> io::Result<Vec<Crossing>> {
    rt::wake_exactly();
    let payload = pace.len - HEADERS;
    if pace.at_once > 1 {
        cut(socket, payload)?;
    }
    let mut datagrams = vec![0x5a; payload * pace.at_once.max(1) as usize];
    let mut sent = Vec::with_capacity(pace.count as usize);
    let started = Instant::now();
    let mut woken = Duration::ZERO;
    let mut number = 0;
    while number < pace.count {
        let due = pace.gap * number;
        if due > woken {
            let sleep = due.max(woken + BURST_GAP).saturating_sub(started.elapsed());
            if !sleep.is_zero() {
                thread::sleep(sleep);
            }
            woken = started.elapsed();
        }
        let numbers = number..(number + pace.at_once.max(1)).min(pace.count);
        for (number, datagram) in numbers.clone().zip(datagrams.chunks_exact_mut(payload)) {
            datagram[..4].copy_from_slice(&number.to_be_bytes());
        }
        let before = time_of_day();
        socket.send(&datagrams[..numbers.len() * payload])?;
        let after = time_of_day();
        sent.extend(numbers.clone().map(|number| Crossing {
            number,
            sent: before,
            sent_by: after,
            came: None,
        }));
        number = numbers.end;
    }
    Ok(sent)
}

fn receive(
    socket: &Stamped,
    pace: &Pace,
    sent_all: &AtomicBool,
) -> io::Result<Vec<(u32, Duration)>> {
    let mut datagram = vec![0; pace.len];
    let mut came = Vec::with_capacity(pace.count as usize);
    let mut quiet_since = None;
    while came.len() < pace.count as usize {
        if let Some((_, at)) = socket.receive(&mut datagram)? {
            let number = datagram.first_chunk().map_or(u32::MAX, |word| u32::from_be_bytes(*word));
            came.push((number, at));
        } else if sent_all.load(Ordering::Acquire) {
            let since = quiet_since.get_or_insert_with(Instant::now);
            if since.elapsed() > pace.patience {
                break;
            }
        }
    }
    Ok(came)
}

fn time_of_day() -> Duration {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default()
}

/// Deviations of arrival times from a perfect link, in nanoseconds, ascending.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Errors(Vec<i64>);

impl Errors {
    /// Returns the error that the share `quantile` of the packets, from 0 to 1, does not exceed.
    #[must_use]
    pub fn quantile(&self, quantile: f64) -> i64 {
        let last = self.0.len().saturating_sub(1);
        let index = (quantile * self.0.len() as f64).ceil() as usize;
        self.0.get(index.saturating_sub(1).min(last)).copied().unwrap_or_default()
    }

    /// Returns the number of packets.
    #[must_use]
    pub fn packets(&self) -> usize {
        self.0.len()
    }
}

/// Compares arrivals with a perfect line of `bps` bit/s, on which each packet takes `framed`
/// bytes, followed by `delay`. The line starts a packet when it is sent, or when the previous
/// packet ends if that is later.
#[must_use]
pub fn errors(crossings: &[Crossing], framed: usize, bps: Option<u64>, delay: Duration) -> Errors {
    let bits = framed as u128 * 8 * 1_000_000_000;
    let service = bps.map_or(0, |bps| (bits / u128::from(bps.max(1))) as i128);
    let nanos = |time: Duration| time.as_nanos() as i128;
    let mut line = 0;
    let mut errors = Vec::with_capacity(crossings.len());
    for crossing in crossings {
        line = nanos(crossing.sent).max(line) + service;
        if let Some(came) = crossing.came {
            errors.push((nanos(came) - line - nanos(delay)) as i64);
        }
    }
    errors.sort_unstable();
    Errors(errors)
}

/// Returns the arrival rate of packets of `framed` bytes, in bit/s, for a line that is always busy
/// and loses no packet. `None` if fewer than two packets arrived.
#[must_use]
pub fn rate(crossings: &[Crossing], framed: usize) -> Option<f64> {
    let mut came = crossings.iter().filter_map(|crossing| Some((crossing.number, crossing.came?)));
    let (first, from) = came.next()?;
    let (last, until) = came.next_back()?;
    let seconds = until.checked_sub(from)?.as_secs_f64();
    (seconds > 0.0).then(|| f64::from(last - first) * framed as f64 * 8.0 / seconds)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn crossing(number: u32, sent: u64, came: Option<u64>) -> Crossing {
        let micros = Duration::from_micros;
        Crossing { number, sent: micros(sent), sent_by: micros(sent), came: came.map(micros) }
    }

    #[test]
    fn timing_errors_account_for_queueing() {
        // 125 bytes at 1 Mbit/s take 1 ms; the second waits for the first, the fourth does not
        // wait.
        let crossings = [
            crossing(0, 0, Some(6_000)),
            crossing(1, 100, Some(7_010)),
            crossing(2, 200, None),
            crossing(3, 9_000, Some(15_030)),
        ];
        let errors = errors(&crossings, 125, Some(1_000_000), Duration::from_millis(5));
        assert_eq!(errors.0, [0, 10_000, 30_000]);
        assert_eq!((errors.quantile(0.5), errors.quantile(1.0)), (10_000, 30_000));
        assert_eq!(Errors::default().quantile(0.5), 0);
    }

    #[test]
    fn rate_is_measured_between_first_and_last_arrival() {
        let crossings: Vec<_> = (0..11)
            .map(|number| crossing(number, 0, Some(5_000 + 1_000 * u64::from(number))))
            .collect();
        assert_eq!(rate(&crossings, 125), Some(1e6));
        assert_eq!(rate(&crossings[..1], 125), None);
    }
}
