//! Losses and the rate that is fair to TCP: the throughput equation and the history of loss
//! events, common to TFRC (RFC 5348) and TFMCC (RFC 4654). Sections refer to RFC 5348; RFC 4654
//! §2.1 and §5 have the same text.

use std::collections::VecDeque;
use std::time::Duration;

use engine::Time;

/// Weights of the averaged loss intervals, from the newest on (§5.4).
const WEIGHTS: [f64; 8] = [1.0, 1.0, 1.0, 1.0, 0.8, 0.6, 0.4, 0.2];

/// Shortest round-trip time used in calculations, in seconds: hosts do not measure shorter times
/// reliably.
pub const RTT_LEAST: f64 = 0.001;

/// The part of the throughput equation that depends on the loss event rate, `f(p)` (§8.1).
fn slowness(loss: f64) -> f64 {
    (2.0 * loss / 3.0).sqrt() + 12.0 * (3.0 * loss / 8.0).sqrt() * loss * (1.0 + 32.0 * loss * loss)
}

/// The throughput equation (§3.1) with `t_RTO` = 4 R and `b` = 1, in bytes a second.
pub fn throughput(segment: f64, rtt: f64, loss: f64) -> f64 {
    segment / (rtt * slowness(loss))
}

/// Loss event rate at which the equation gives this rate, by 48 bisections.
pub fn loss_at(segment: f64, rtt: f64, rate: f64) -> f64 {
    let (mut low, mut high) = (0.0, 1.0);
    for _ in 0..48 {
        let middle = f64::midpoint(low, high);
        if throughput(segment, rtt, middle) > rate { low = middle } else { high = middle }
    }
    high
}

/// Bytes of the first round trip's packets (§4.2): four of 1,000 bytes, 4,380 bytes of longer
/// ones.
pub fn initial_window(segment: f64) -> f64 {
    (4.0 * segment).min((2.0 * segment).max(4380.0))
}

/// Loss events, and the packets between them (§5).
#[derive(Debug, Default)]
pub struct Losses {
    /// Packets from the start of each earlier event to the start of the next, the newest first.
    intervals: VecDeque<f64>,
    /// First packet of the last event, and its time.
    event: Option<(u64, Time)>,
    /// Newest packet known as received or lost.
    newest: u64,
    /// Number of closed intervals, including forgotten ones.
    closed: u64,
}

/// Meaning of a lost packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Meaning {
    /// The packet belongs to a known event.
    Known,
    /// The packet begins an event.
    Event,
    /// The packet begins the first event.
    First,
}

impl Losses {
    /// Records a lost packet that left, or should have arrived, at this time. Losses within one
    /// round trip are one event (§5.2).
    pub fn lose(&mut self, number: u64, at: Time, rtt: f64) -> Meaning {
        self.settled(number);
        let Some((start, since)) = self.event else {
            self.event = Some((number, at));
            return Meaning::First;
        };
        if number <= start || at.since(since).as_secs_f64() <= rtt {
            return Meaning::Known;
        }
        self.close((number - start) as f64);
        self.event = Some((number, at));
        Meaning::Event
    }

    /// Closes an interval.
    pub fn close(&mut self, packets: f64) {
        self.intervals.truncate(WEIGHTS.len() - 1);
        self.intervals.push_front(packets);
        self.closed += 1;
    }

    /// Records that all packets up to this number are received or lost.
    pub fn settled(&mut self, number: u64) {
        self.newest = self.newest.max(number);
    }

    /// End of the last event: later losses begin a new one (§5.2).
    pub fn event_until(&self, rtt: f64) -> Time {
        self.event.map_or(Time::ZERO, |(_, at)| at + Duration::from_secs_f64(rtt))
    }

    /// Synthetic interval before the first event, unless it is forgotten.
    pub fn first_interval(&mut self) -> Option<&mut f64> {
        if self.closed > WEIGHTS.len() as u64 { None } else { self.intervals.back_mut() }
    }

    /// Loss event rate `p`, zero before the first loss (§5.4).
    pub fn rate(&self) -> f64 {
        let Some((start, _)) = self.event else { return 0.0 };
        let current = (self.newest.max(start) - start + 1) as f64;
        let weigh = |packets: &mut dyn Iterator<Item = f64>| -> f64 {
            packets.zip(WEIGHTS).map(|(packets, weight)| packets * weight).sum()
        };
        let count = self.intervals.len();
        let earlier = || self.intervals.iter().copied();
        let with = weigh(&mut std::iter::once(current).chain(earlier()).take(count.max(1)));
        let without = weigh(&mut earlier());
        let weights: f64 = WEIGHTS.iter().take(count.max(1)).sum();
        (weights / with.max(without)).min(1.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn millis(millis: u64) -> Time {
        Time::from_nanos(millis * 1_000_000)
    }

    fn near(found: f64, expected: f64) -> bool {
        (found / expected - 1.0).abs() < 1e-4
    }

    #[test]
    fn the_throughput_equation() {
        // §3.1 with s = 1000, R = 0.1 s. At p = 0.01 the denominator is
        // 0.1 * (0.0816497 + 12 * 0.0612372 * 0.01 * 1.0032) = 0.00890217.
        assert!(near(throughput(1000.0, 0.1, 0.01), 112_332.0));
        // At p = 0.1 it is 0.1 * (0.2581989 + 12 * 0.1936492 * 0.1 * 1.32) = 0.05649392.
        assert!(near(throughput(1000.0, 0.1, 0.1), 17_701.0));
        // At p = 1 it is 0.1 * (0.8164966 + 12 * 0.6123724 * 33) = 24.33160.
        assert!(near(throughput(1000.0, 0.1, 1.0), 41.0988));
        assert!(near(loss_at(1000.0, 0.1, 112_332.0), 0.01));
        assert!(near(loss_at(1000.0, 0.1, 17_701.0), 0.1));
        // In Mbit/s.
        assert!((throughput(1400.0, 0.05, 0.01) * 8e-6 - 2.5).abs() < 0.05);
    }

    #[test]
    fn the_average_of_loss_intervals() {
        // §5.4: the earlier intervals give 2,200 / 6.
        let mut losses = Losses { event: Some((1000, Time::ZERO)), ..Losses::default() };
        losses.intervals = (1..=8).map(|hundreds| f64::from(hundreds) * 100.0).collect();
        losses.newest = 1009;
        assert!(near(losses.rate(), 6.0 / 2200.0));
        // A current interval of 1,000 packets counts, because it raises the average: to 2,600 / 6.
        losses.newest = 1999;
        assert!(near(losses.rate(), 6.0 / 2600.0));
        // The larger sum: of two earlier intervals, or of the current one and the newest.
        losses.intervals.truncate(2);
        assert!(near(losses.rate(), 2.0 / 1100.0));
        losses.newest = 1099;
        assert!(near(losses.rate(), 2.0 / 300.0));
    }

    #[test]
    fn losses_within_a_round_trip_are_one_event() {
        let mut losses = Losses::default();
        assert_eq!(losses.lose(10, millis(100), 0.1), Meaning::First);
        assert_eq!(losses.lose(11, millis(110), 0.1), Meaning::Known);
        assert_eq!(losses.lose(20, millis(200), 0.1), Meaning::Known);
        assert_eq!(losses.lose(21, millis(210), 0.1), Meaning::Event);
        assert_eq!(losses.lose(15, millis(150), 0.1), Meaning::Known, "reported late, or again");
        assert_eq!(losses.intervals, [11.0]);
    }

    #[test]
    fn the_first_interval_is_forgotten_after_eight() {
        let mut losses = Losses::default();
        assert_eq!(losses.first_interval(), None);
        for interval in 1..=8 {
            losses.close(f64::from(interval));
            assert_eq!(losses.first_interval(), Some(&mut 1.0));
        }
        losses.close(9.0);
        assert_eq!(losses.first_interval(), None);
    }
}
