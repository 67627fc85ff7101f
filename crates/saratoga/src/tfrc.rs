//! TFRC (RFC 5348): the sending rate allowed by losses and the round trip, in the variant where
//! the sender detects losses (§7).
//!
//! TFRC takes every loss for congestion. Over a link with bit errors it is slow, regardless of the
//! free rate: at a round trip of 50 ms, with packets of 1,400 bytes and 1 % of packets lost, it
//! sends 2.5 Mbit/s.

use std::time::Duration;

use engine::Time;

use session::losses::{Losses, Meaning, RTT_LEAST, initial_window, loss_at, throughput};

/// Weight of the previous estimate of the round trip (§4.3, §4.5).
const FORMER: f64 = 0.9;

/// Maximum time between two segments, in seconds: `t_mbi` (§4.3).
const BACKOFF_MOST: f64 = 64.0;

/// Timeout of a reply before a round trip was measured (§4.2).
const PATIENCE_FIRST: Duration = Duration::from_secs(2);

/// Number of receive rates kept: two round trips, one per update.
const RECEIVED_MOST: usize = 4;

/// State of a sender's path, and the allowed rate.
#[derive(Debug)]
pub(crate) struct Tfrc {
    /// Bytes of a full packet.
    segment: f64,
    /// Round trip in seconds, and whether it was measured.
    rtt: Option<f64>,
    is_measured: bool,
    /// Square root of the round trip: its mean, and the last sample's (§4.5).
    root_mean: f64,
    root: f64,
    /// Allowed rate in bytes per second.
    rate: f64,
    /// Time of the last doubling.
    doubled: Time,
    /// Receive rates of the last two round trips; empty before the first, which means no limit.
    received: Vec<(Time, f64)>,
    received_most: f64,
    /// Limit set by them.
    limit: f64,
    losses: Losses,
    /// Whether a loss event began since the last receive rate.
    is_new_event: bool,
}

impl Tfrc {
    /// TFRC for packets of `segment` bytes; `rtt` is the round trip, if known.
    pub(crate) fn new(segment: usize, rtt: Option<Duration>) -> Self {
        let segment = segment.max(1) as f64;
        let rtt = rtt.map(|rtt| rtt.as_secs_f64().max(RTT_LEAST));
        let mut this = Self {
            segment,
            rtt,
            is_measured: false,
            root_mean: 1.0,
            root: 1.0,
            // One packet per second until the round trip is known (§4.2).
            rate: segment,
            doubled: Time::ZERO,
            received: Vec::new(),
            received_most: 0.0,
            limit: f64::INFINITY,
            losses: Losses::default(),
            is_new_event: false,
        };
        if let Some(rtt) = rtt {
            this.rate = this.initial(rtt);
        }
        this
    }

    /// Round trip; `None` before anything is known.
    pub(crate) fn rtt(&self) -> Option<Duration> {
        self.rtt.map(Duration::from_secs_f64)
    }

    /// Allowed rate in bytes per second: less while the round trip exceeds its mean, because then a
    /// queue builds up (§4.5).
    pub(crate) fn rate(&self) -> f64 {
        (self.rate * self.root_mean / self.root).max(self.least())
    }

    /// Time to the next packet after one of `len` bytes (§4.6).
    pub(crate) fn interval(&self, len: usize) -> Duration {
        Duration::from_secs_f64(len as f64 / self.rate())
    }

    /// Time to wait for a reply before the rate is halved (§4.3, step 3).
    pub(crate) fn patience(&self) -> Duration {
        let Some(rtt) = self.rtt else { return PATIENCE_FIRST };
        Duration::from_secs_f64((4.0 * rtt).max(2.0 * self.segment / self.rate()))
    }

    /// Minimum rate.
    fn least(&self) -> f64 {
        self.segment / BACKOFF_MOST
    }

    /// Rate of the first round trip (§4.2).
    fn initial(&self, rtt: f64) -> f64 {
        (initial_window(self.segment) / rtt).max(self.least())
    }

    /// Processes a round trip sample (§4.3, steps 1 and 2).
    pub(crate) fn sample(&mut self, now: Time, took: Duration) {
        let took = took.as_secs_f64().max(RTT_LEAST);
        self.root = took.sqrt();
        let Some(former) = self.rtt.filter(|_| self.is_measured) else {
            self.rtt = Some(took);
            self.is_measured = true;
            self.root_mean = self.root;
            self.doubled = now;
            self.rate = self.initial(took);
            return;
        };
        self.rtt = Some(FORMER * former + (1.0 - FORMER) * took);
        self.root_mean = FORMER * self.root_mean + (1.0 - FORMER) * self.root;
    }

    /// Processes the loss of the packet of this number, sent at `at`.
    pub(crate) fn lost(&mut self, number: u64, at: Time) {
        let Some(rtt) = self.rtt else { return };
        match self.losses.lose(number, at, rtt) {
            Meaning::Known => {}
            Meaning::Event => self.is_new_event = true,
            Meaning::First => {
                // The packets so far prove little, because the rate grew all the time: the first
                // interval is the one for which the equation yields the receive rate (§6.3.1).
                let observed =
                    if self.received_most > 0.0 { self.received_most } else { self.rate / 2.0 };
                let target = observed.max(self.segment / (2.0 * rtt));
                self.losses.close(1.0 / loss_at(self.segment, rtt, target));
                self.is_new_event = true;
            }
        }
    }

    /// Notes that the fate of all packets up to this number is known.
    pub(crate) fn settled(&mut self, number: u64) {
        self.losses.settled(number);
    }

    /// Processes a receive rate. A sender that had less to send than allowed is not limited by it
    /// (§4.3, step 4).
    pub(crate) fn arrives(&mut self, now: Time, rate: f64, had_less: bool) {
        let is_new_event = std::mem::take(&mut self.is_new_event);
        self.received_most = self.received_most.max(rate);
        let mut rate = rate;
        if had_less {
            if is_new_event {
                self.received.iter_mut().for_each(|(_, rate)| *rate /= 2.0);
                rate *= 0.85;
            }
            let most = self.received.iter().map(|(_, rate)| *rate).fold(rate, f64::max);
            self.received = vec![(now, most)];
            self.limit = if is_new_event { most } else { 2.0 * most };
            return;
        }
        let recent = 2.0 * self.rtt.unwrap_or(BACKOFF_MOST);
        self.received.retain(|(at, _)| now.since(*at).as_secs_f64() <= recent);
        if self.received.len() >= RECEIVED_MOST {
            self.received.remove(0);
        }
        self.received.push((now, rate));
        self.limit = 2.0 * self.received_now();
    }

    fn received_now(&self) -> f64 {
        self.received.iter().map(|(_, rate)| *rate).fold(0.0, f64::max)
    }

    /// Updates the allowed rate after a reply (§4.3, step 4).
    pub(crate) fn update(&mut self, now: Time) {
        let Some(rtt) = self.rtt else { return };
        let loss = self.losses.rate();
        if loss > 0.0 {
            let fair = throughput(self.segment, rtt, loss);
            self.rate = fair.min(self.limit).max(self.least());
        } else if now.since(self.doubled).as_secs_f64() >= rtt {
            self.rate = (2.0 * self.rate).min(self.limit).max(self.initial(rtt));
            self.doubled = now;
        }
    }

    /// Handles a missing reply after [`Tfrc::patience`]; `is_idle` if nothing was sent in that
    /// time. Returns whether the rate was halved and waiting continues (§4.4).
    pub(crate) fn silence(&mut self, now: Time, is_idle: bool) -> bool {
        let loss = self.losses.rate();
        let received = if self.received.is_empty() { f64::INFINITY } else { self.received_now() };
        let Some(rtt) = self.rtt.filter(|_| self.is_measured) else {
            self.rate = (self.rate / 2.0).max(self.least());
            return !is_idle;
        };
        let recovery = self.initial(rtt);
        let is_slow = if loss > 0.0 { received < recovery } else { self.rate < 2.0 * recovery };
        if is_idle && is_slow {
            return false;
        }
        if loss > 0.0 {
            let fair = throughput(self.segment, rtt, loss);
            let limit = if fair > 2.0 * received { received } else { fair / 2.0 };
            let limit = limit.max(self.least());
            self.received = vec![(now, limit / 2.0)];
            self.limit = limit;
            self.update(now);
        } else {
            self.rate = (self.rate / 2.0).max(self.least());
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RTT: Duration = Duration::from_millis(100);

    fn millis(millis: u64) -> Time {
        Time::from_nanos(millis * 1_000_000)
    }

    fn near(found: f64, expected: f64) -> bool {
        (found / expected - 1.0).abs() < 1e-4
    }

    #[test]
    fn slow_start_doubles_up_to_twice_the_receive_rate() {
        let mut tfrc = Tfrc::new(1000, None);
        assert_eq!((tfrc.rate(), tfrc.patience()), (1000.0, Duration::from_secs(2)));
        // §4.2: four segments per round trip.
        tfrc.sample(millis(100), RTT);
        assert!(near(tfrc.rate(), 40_000.0));
        assert_eq!(tfrc.patience(), 4 * RTT);
        for (at, arrives, expected) in [
            (150, 10_000.0, 40_000.0),
            (200, 40_000.0, 80_000.0),
            (250, 40_000.0, 80_000.0),
            (300, 80_000.0, 160_000.0),
            (400, 90_000.0, 180_000.0),
            (500, 90_000.0, 180_000.0),
        ] {
            tfrc.sample(millis(at), RTT);
            tfrc.arrives(millis(at), arrives, false);
            tfrc.update(millis(at));
            assert!(near(tfrc.rate(), expected), "{at}: {}", tfrc.rate());
        }
        // §6.3.1: the first loss sets it to the receive rate.
        tfrc.lost(300, millis(450));
        tfrc.update(millis(600));
        assert!(near(tfrc.rate(), 90_000.0), "{}", tfrc.rate());
    }

    #[test]
    fn silence_halves_the_rate() {
        let mut tfrc = Tfrc::new(1000, None);
        assert!(tfrc.silence(millis(2000), false));
        assert!(near(tfrc.rate(), 500.0));
        tfrc.sample(millis(2100), RTT);
        // §4.4: no loss is known.
        assert!(tfrc.silence(millis(2600), false));
        assert!(near(tfrc.rate(), 20_000.0));
        assert!(!tfrc.silence(millis(3000), true), "who sends nothing expects no answer");
        assert!(near(tfrc.rate(), 20_000.0));
        // With losses, the limit is twice the receive rate.
        tfrc.arrives(millis(3100), 80_000.0, false);
        tfrc.lost(10, millis(3000));
        tfrc.update(millis(3100));
        assert!(near(tfrc.rate(), 80_000.0));
        for expected in [40_000.0, 20_000.0, 10_000.0] {
            assert!(tfrc.silence(millis(3500), false));
            assert!(near(tfrc.rate(), expected), "{}", tfrc.rate());
        }
        for _ in 0..20 {
            tfrc.silence(millis(4000), false);
        }
        assert!(near(tfrc.rate(), 1000.0 / 64.0), "a packet in 64 s");
    }

    #[test]
    fn a_longer_round_trip_lowers_the_rate_at_once() {
        let mut tfrc = Tfrc::new(1000, None);
        tfrc.sample(millis(100), RTT);
        tfrc.sample(millis(200), 4 * RTT);
        // §4.5: the mean of the roots is 0.9 * 0.316228 + 0.1 * 0.632456 = 0.347851, the last root
        // 0.632456; 40,000 * 0.55 = 22,000.
        assert!(near(tfrc.rate(), 22_000.0), "{}", tfrc.rate());
    }

    #[test]
    fn application_limited_senders_may_exceed_the_receive_rate() {
        let mut tfrc = Tfrc::new(1000, Some(RTT));
        tfrc.sample(millis(100), RTT);
        tfrc.arrives(millis(200), 40_000.0, false);
        tfrc.arrives(millis(900), 5_000.0, true);
        assert!(near(tfrc.limit, 80_000.0));
        // §4.3: with a loss, half of the known rates, or 0.85 of the receive rate.
        tfrc.lost(10, millis(900));
        tfrc.arrives(millis(1000), 10_000.0, true);
        assert!(near(tfrc.limit, 20_000.0));
        tfrc.arrives(millis(2000), 5_000.0, false);
        assert!(near(tfrc.limit, 10_000.0), "what is older than two round trips is forgotten");
    }
}
