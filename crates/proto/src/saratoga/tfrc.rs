//! The rate at which a sender may send, from what it learns of losses and of the round trip: TFRC
//! (RFC 5348), in the variant where the sender counts the losses (§7).
//!
//! TFRC takes every loss for a sign of congestion. Over a link with bit errors it is slow, however
//! much of the link is free: at a round trip of 50 ms, packets of 1,400 octets and one packet in a
//! hundred lost it sends 2.5 Mbit/s.

use std::collections::VecDeque;
use std::time::Duration;

use engine::Time;

/// The loss intervals that are averaged, and their weights from the newest on (§5.4).
const WEIGHTS: [f64; 8] = [1.0, 1.0, 1.0, 1.0, 0.8, 0.6, 0.4, 0.2];

/// The weight of what was known of the round trip before a sample (§4.3, §4.5).
const FORMER: f64 = 0.9;

/// At least one segment goes in this time, in seconds: `t_mbi` (§4.3).
const BACKOFF_MOST: f64 = 64.0;

/// How long an answer may take while no round trip was measured (§4.2).
const PATIENCE_FIRST: Duration = Duration::from_secs(2);

/// The shortest round trip reckoned with, in seconds: hosts do not keep shorter times.
const RTT_LEAST: f64 = 0.001;

/// Most values of the receive rate that are held: those of two round trips, one each.
const RECEIVED_MOST: usize = 4;

/// The part of the throughput equation that depends on the loss event rate, `f(p)` (§8.1).
fn slowness(loss: f64) -> f64 {
    (2.0 * loss / 3.0).sqrt() + 12.0 * (3.0 * loss / 8.0).sqrt() * loss * (1.0 + 32.0 * loss * loss)
}

/// The throughput equation (§3.1) with `t_RTO` = 4 R and `b` = 1, in octets a second.
fn throughput(segment: f64, rtt: f64, loss: f64) -> f64 {
    segment / (rtt * slowness(loss))
}

/// The loss event rate at which the equation gives this rate, as near as halving 48 times comes.
fn loss_at(segment: f64, rtt: f64, rate: f64) -> f64 {
    let (mut low, mut high) = (0.0, 1.0);
    for _ in 0..48 {
        let middle = f64::midpoint(low, high);
        if throughput(segment, rtt, middle) > rate { low = middle } else { high = middle }
    }
    high
}

/// Loss events, and the packets between them (§5).
#[derive(Debug, Default)]
struct Losses {
    /// Packets from the beginning of each earlier event to that of the next, the newest first.
    intervals: VecDeque<f64>,
    /// The packet with which the last event began, and when it left.
    event: Option<(u64, Time)>,
    /// The newest packet of which the fate is known.
    newest: u64,
}

/// What a lost packet means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Meaning {
    /// It belongs to an event that is known.
    Known,
    /// An event began with it.
    Event,
    /// The first event began with it.
    First,
}

impl Losses {
    /// A packet was lost that left then. Losses within one round trip are one event (§5.2).
    fn lose(&mut self, number: u64, at: Time, rtt: f64) -> Meaning {
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

    /// An interval came to its end.
    fn close(&mut self, packets: f64) {
        self.intervals.truncate(WEIGHTS.len() - 1);
        self.intervals.push_front(packets);
    }

    /// The loss event rate `p`, zero before the first loss (§5.4).
    fn rate(&self) -> f64 {
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

/// What a sender knows of its path, and the rate that this allows.
#[derive(Debug)]
pub(crate) struct Tfrc {
    /// Octets in a full packet.
    segment: f64,
    /// The round trip in seconds, and whether it was measured.
    rtt: Option<f64>,
    is_measured: bool,
    /// The square root of the round trip: its mean, and that of the last sample (§4.5).
    root_mean: f64,
    root: f64,
    /// The allowed rate in octets a second.
    rate: f64,
    /// When it was last doubled.
    doubled: Time,
    /// The rates at which data was seen to arrive in the last two round trips; empty before the
    /// first was seen, which stands for no limit.
    received: Vec<(Time, f64)>,
    received_most: f64,
    /// The limit that they set.
    limit: f64,
    losses: Losses,
    /// Whether a loss event began since the receive rate was last seen.
    is_new_event: bool,
}

impl Tfrc {
    /// A sender of packets of `segment` octets; `rtt` is the round trip, if something is known of it.
    pub(crate) fn new(segment: usize, rtt: Option<Duration>) -> Self {
        let segment = segment.max(1) as f64;
        let rtt = rtt.map(|rtt| rtt.as_secs_f64().max(RTT_LEAST));
        let mut this = Self {
            segment,
            rtt,
            is_measured: false,
            root_mean: 1.0,
            root: 1.0,
            // A packet a second, until something is known (§4.2).
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

    /// The round trip; `None` before anything is known of it.
    pub(crate) fn rtt(&self) -> Option<Duration> {
        self.rtt.map(Duration::from_secs_f64)
    }

    /// The allowed rate in octets a second: less while the round trip is longer than it used to
    /// be, because then a queue is filling (§4.5).
    pub(crate) fn rate(&self) -> f64 {
        (self.rate * self.root_mean / self.root).max(self.least())
    }

    /// Time from one packet to the next, if the first has `len` octets (§4.6).
    pub(crate) fn interval(&self, len: usize) -> Duration {
        Duration::from_secs_f64(len as f64 / self.rate())
    }

    /// How long to wait for an answer before the rate is halved (§4.3, step 3).
    pub(crate) fn patience(&self) -> Duration {
        let Some(rtt) = self.rtt else { return PATIENCE_FIRST };
        Duration::from_secs_f64((4.0 * rtt).max(2.0 * self.segment / self.rate()))
    }

    /// The least rate.
    fn least(&self) -> f64 {
        self.segment / BACKOFF_MOST
    }

    /// The rate of the first round trip (§4.2).
    fn initial(&self, rtt: f64) -> f64 {
        // 1,000 octets: four segments. 1,460 octets: 4,380.
        let window = (4.0 * self.segment).min((2.0 * self.segment).max(4380.0));
        (window / rtt).max(self.least())
    }

    /// An answer came after this time (§4.3, steps 1 and 2).
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

    /// The packet of this number, which left then, did not arrive.
    pub(crate) fn lost(&mut self, number: u64, at: Time) {
        let Some(rtt) = self.rtt else { return };
        self.losses.newest = self.losses.newest.max(number);
        match self.losses.lose(number, at, rtt) {
            Meaning::Known => {}
            Meaning::Event => self.is_new_event = true,
            Meaning::First => {
                // The packets up to here say little, because the rate grew all the time: an interval
                // is made up at which the equation gives the rate that arrived (§6.3.1).
                let seen =
                    if self.received_most > 0.0 { self.received_most } else { self.rate / 2.0 };
                let target = seen.max(self.segment / (2.0 * rtt));
                self.losses.close(1.0 / loss_at(self.segment, rtt, target));
                self.is_new_event = true;
            }
        }
    }

    /// The fate of all packets up to this number is known.
    pub(crate) fn settled(&mut self, number: u64) {
        self.losses.newest = self.losses.newest.max(number);
    }

    /// Data arrives at this rate. A sender that had less to send than it was allowed to is not held
    /// to it (§4.3, step 4).
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

    /// The allowed rate after an answer (§4.3, step 4).
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

    /// No answer came for as long as [`Tfrc::patience`] says; `is_idle` if nothing was sent in that
    /// time. Whether the rate was halved, and waiting goes on (§4.4).
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
        // The number in the description of this file, in Mbit/s.
        assert!((throughput(1400.0, 0.05, 0.01) * 8e-6 - 2.5).abs() < 0.05);
    }

    #[test]
    fn the_average_of_loss_intervals() {
        // §5.4: the earlier intervals give 2,200 / 6.
        let mut losses = Losses { event: Some((1000, Time::ZERO)), ..Losses::default() };
        losses.intervals = (1..=8).map(|hundreds| f64::from(hundreds) * 100.0).collect();
        losses.newest = 1009;
        assert!(near(losses.rate(), 6.0 / 2200.0));
        // A current one of 1,000 packets counts, because the average grows by it: to 2,600 / 6.
        losses.newest = 1999;
        assert!(near(losses.rate(), 6.0 / 2600.0));
        // Of two earlier intervals, or of the current one and the newest, the larger sum.
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
        assert_eq!(losses.lose(15, millis(150), 0.1), Meaning::Known, "told late, or again");
        assert_eq!(losses.intervals, [11.0]);
    }

    #[test]
    fn slow_start_doubles_each_round_trip_within_twice_what_arrives() {
        let mut tfrc = Tfrc::new(1000, None);
        assert_eq!((tfrc.rate(), tfrc.patience()), (1000.0, Duration::from_secs(2)));
        // §4.2: four segments a round trip.
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
        // §6.3.1: the first loss brings it to the rate that arrived.
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
        // With losses, what it may send is at most twice what is taken for arriving.
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
    fn who_had_less_to_send_is_not_held_to_what_arrived() {
        let mut tfrc = Tfrc::new(1000, Some(RTT));
        tfrc.sample(millis(100), RTT);
        tfrc.arrives(millis(200), 40_000.0, false);
        tfrc.arrives(millis(900), 5_000.0, true);
        assert!(near(tfrc.limit, 80_000.0));
        // §4.3: with a loss, half of what was known, or 0.85 of what arrived.
        tfrc.lost(10, millis(900));
        tfrc.arrives(millis(1000), 10_000.0, true);
        assert!(near(tfrc.limit, 20_000.0));
        tfrc.arrives(millis(2000), 5_000.0, false);
        assert!(near(tfrc.limit, 10_000.0), "what is older than two round trips is forgotten");
    }
}
