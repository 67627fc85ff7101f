//! Receiver side of congestion control: the rate at which a sender's messages arrive, their
//! losses, and the TCP-friendly rate (RFC 4654 §4; RFC 5740 §5.5.2.2).

use std::collections::VecDeque;
use std::time::Duration;

use engine::Time;
use session::losses::{Losses, Meaning, RTT_LEAST, initial_window, loss_at, throughput};

use crate::message::{self, CcFeedback, CcFlags, CcNode};

/// Number of later messages after which a missing one counts as lost (RFC 4654 §5.1).
const LATER: u8 = 3;

/// Minimum time over which the rate is measured: drivers hand over received datagrams in batches.
const SPAN_LEAST: Duration = Duration::from_millis(10);

/// Parts of a measurement span, each discarded as a whole; also their maximum number if little of
/// the traffic is data.
const PARTS: u32 = 8;
const PARTS_MAX: usize = 64;

/// Minimum number of NORM_DATA messages over which the rate is measured: in slow start, which must
/// not wait for them, and after the first loss.
const DATA_LEAST: [u32; 2] = [1, 4];

/// Weight of a new message's length in the mean, and the initial mean.
const LENGTH_WEIGHT: f64 = 0.05;
const LENGTH_ASSUMED: f64 = 1024.0;

/// Maximum number of separate gaps: late messages that would split a gap beyond it are ignored.
const GAPS_MAX: usize = 64;

/// Silence after which a sender counts as restarted, in round trips and in message intervals
/// (RFC 4654 §4.3.1).
const IDLE: u32 = 10;

/// Measurements of one instance of a sender.
#[derive(Debug, Default)]
pub(crate) struct Reception {
    /// Number of the newest message, unwrapped, and its arrival.
    newest: Option<(u64, Time)>,
    gaps: Vec<Gap>,
    losses: Losses,
    /// Whether a loss was detected since the sender last started.
    has_lost: bool,
    /// End of the time in which losses belong to the event that ended slow start.
    first_until: Time,
    /// Round trip measured by the sender, in seconds.
    rtt: Option<f64>,
    /// Rate used to compute the interval before the first loss, while no round trip was measured.
    guessed: Option<f64>,
    parts: VecDeque<Part>,
    /// Mean length of NORM_DATA, and the arrival of the last one.
    nominal: f64,
    last_data: Option<Time>,
    /// Whether anything was lost since that NORM_DATA.
    lost_since: bool,
    /// Role assigned to this receiver by the sender.
    pub(crate) role: Role,
}

/// Run of missing messages.
#[derive(Clone, Copy, Debug)]
struct Gap {
    /// First missing message, and the one after the last.
    first: u64,
    end: u64,
    /// Messages before and after the gap, with their arrivals.
    before: (u64, Time),
    after: (u64, Time),
    /// Number of later messages that arrived.
    later: u8,
}

/// Arrivals in a part of a span.
#[derive(Clone, Copy, Debug)]
struct Part {
    /// Arrival of the message before the first, and of the last.
    since: Time,
    until: Time,
    bytes: u64,
    /// Number of messages with data.
    data: u32,
}

/// Role of a receiver in congestion control.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Role {
    /// Replies after a random wait.
    #[default]
    Other,
    /// Current limiting receiver: sets the rate and replies to every probe at once.
    Limiting,
    /// Potential limiting receiver: may become the CLR, and also replies at once.
    MayLimit,
}

impl Role {
    fn flag(self) -> CcFlags {
        match self {
            Self::Other => CcFlags::NONE,
            Self::Limiting => CcFlags::CLR,
            Self::MayLimit => CcFlags::PLR,
        }
    }
}

impl Gap {
    /// Expected arrival of a missing message (RFC 4654 §5.2).
    fn time_of(&self, number: u64) -> Time {
        let ((from, since), (to, until)) = (self.before, self.after);
        since + until.since(since).mul_f64((number - from) as f64 / (to - from) as f64)
    }

    /// First missing message expected after `at`.
    fn after(&self, at: Time) -> u64 {
        let ((from, since), (to, until)) = (self.before, self.after);
        if at >= until {
            return to;
        }
        let part = at.since(since).as_secs_f64() / until.since(since).as_secs_f64();
        from + (part * (to - from) as f64) as u64 + 1
    }
}

impl Reception {
    pub(crate) fn new() -> Self {
        Self { nominal: LENGTH_ASSUMED, ..Self::default() }
    }

    /// Whether the sender has reported the round trip.
    pub(crate) fn has_rtt(&self) -> bool {
        self.rtt.is_some()
    }

    /// Stores the sender's report about this receiver, if there is one.
    pub(crate) fn assigned(&mut self, own: Option<CcNode>) {
        self.role = Role::Other;
        let Some(own) = own else { return };
        if own.flags.contains(CcFlags::CLR) {
            self.role = Role::Limiting;
        } else if own.flags.contains(CcFlags::PLR) {
            self.role = Role::MayLimit;
        }
        if !own.flags.contains(CcFlags::RTT) {
            return;
        }
        let rtt = message::rtt(own.rtt).as_secs_f64().max(RTT_LEAST);
        self.rtt = Some(rtt);
        // An interval computed with a longer round trip would allow too much (RFC 4654 §5.6).
        if let Some(target) = self.guessed.take()
            && let Some(first) = self.losses.first_interval()
        {
            *first = 1.0 / loss_at(self.nominal, rtt, target);
        }
    }

    /// Measured round trip, or the greatest of the group.
    fn rtt(&self, grtt: Duration) -> f64 {
        self.rtt.unwrap_or(grtt.as_secs_f64()).max(RTT_LEAST)
    }

    /// Processes a message of `len` bytes. Returns whether a loss event began.
    pub(crate) fn arrived(
        &mut self,
        now: Time,
        sequence: u16,
        len: usize,
        is_data: bool,
        grtt: Duration,
        send_rate: Option<f64>,
    ) -> bool {
        let Some((newest, before)) = self.newest else {
            self.newest = Some((u64::from(sequence) + (1 << 16), now));
            if is_data {
                self.data(now, len, grtt, send_rate);
            }
            return false;
        };
        let ahead = sequence.wrapping_sub(newest as u16);
        let mut is_event = false;
        if (1..0x8000).contains(&ahead) {
            let number = newest + u64::from(ahead);
            self.newest = Some((number, now));
            if ahead > 1 {
                self.lost_since = true;
                let (before, after) = ((newest, before), (number, now));
                self.gaps.push(Gap { first: newest + 1, end: number, before, after, later: 0 });
            }
            is_event = self.settle(number, self.rtt(grtt));
        } else {
            self.fill(newest.saturating_sub(u64::from(ahead.wrapping_neg())));
        }
        // Arrivals during silence do not measure the rate.
        if !is_data || !self.data(now, len, grtt, send_rate) {
            self.count(now, before, len, is_data, self.rtt(grtt));
        }
        is_event
    }

    /// Removes a late message from the gaps.
    fn fill(&mut self, number: u64) {
        let Some(at) = self.gaps.iter().position(|gap| (gap.first..gap.end).contains(&number))
        else {
            return;
        };
        let gap = self.gaps[at];
        if self.gaps.len() >= GAPS_MAX && gap.first < number && number + 1 < gap.end {
            return;
        }
        self.gaps.remove(at);
        let parts = [Gap { end: number, ..gap }, Gap { first: number + 1, ..gap }];
        self.gaps.extend(parts.into_iter().filter(|gap| gap.first < gap.end));
    }

    /// Counts the newest message, and decides which older messages are lost. Returns whether a
    /// loss event began.
    fn settle(&mut self, number: u64, rtt: f64) -> bool {
        self.losses.settled(number);
        if self.gaps.is_empty() {
            return false;
        }
        for gap in &mut self.gaps {
            gap.later += 1;
        }
        let (due, waiting): (Vec<Gap>, _) = self.gaps.iter().partition(|gap| gap.later >= LATER);
        self.gaps = waiting;
        let mut is_event = false;
        for gap in &due {
            let mut number = gap.first;
            while number < gap.end {
                is_event |= self.lose(number, gap.time_of(number), rtt);
                let known = self.losses.event_until(rtt).max(self.first_until);
                number = gap.after(known).max(number + 1);
            }
        }
        is_event
    }

    /// Counts a loss expected to arrive at `at`. Returns whether a loss event began.
    fn lose(&mut self, number: u64, at: Time, rtt: f64) -> bool {
        if at <= self.first_until {
            self.losses.settled(number);
            return false;
        }
        let is_event = match self.losses.lose(number, at, rtt) {
            Meaning::Known => false,
            Meaning::Event => true,
            Meaning::First => {
                self.make_up(rtt);
                // Messages sent before the sender could react to the loss carry no news, and in
                // slow start they are many. One round trip is added, as the path's delay may have
                // grown.
                self.first_until = at + Duration::from_secs_f64(2.0 * rtt);
                true
            }
        };
        self.has_lost |= is_event;
        is_event
    }

    /// Computes the interval before the first loss: the one for which the receive rate is fair
    /// (RFC 4654 §5.6).
    fn make_up(&mut self, rtt: f64) {
        let least = self.nominal / (2.0 * rtt);
        let target = self.rate(rtt).unwrap_or(least).max(least);
        self.losses.close(1.0 / loss_at(self.nominal, rtt, target));
        self.guessed = self.rtt.is_none().then_some(target);
    }

    /// Counts NORM_DATA. Returns whether the sender resumes after an idle time.
    fn data(&mut self, now: Time, len: usize, grtt: Duration, send_rate: Option<f64>) -> bool {
        let len = len as f64;
        let has_lost = std::mem::take(&mut self.lost_since);
        let Some(last) = self.last_data.replace(now) else {
            self.nominal = len;
            return false;
        };
        self.nominal += LENGTH_WEIGHT * (len - self.nominal);
        let between = send_rate.filter(|rate| *rate > 0.0).map_or(0.0, |rate| len / rate);
        let limit = f64::from(IDLE) * self.rtt(grtt).max(between);
        let was_idle = !has_lost && now.since(last).as_secs_f64() > limit;
        if was_idle {
            self.has_lost = false;
            self.parts.clear();
        }
        was_idle
    }

    /// Counts a message for the rate. `before` is the arrival of the previous one.
    fn count(&mut self, now: Time, before: Time, len: usize, is_data: bool, rtt: f64) {
        let span = Duration::from_secs_f64(rtt).max(SPAN_LEAST);
        let (bytes, data) = (len as u64, u32::from(is_data));
        match self.parts.back_mut() {
            Some(part) if part.until.since(part.since) < span / PARTS => {
                part.until = now;
                part.bytes += bytes;
                part.data += data;
            }
            Some(_) | None => {
                self.parts.push_back(Part { since: before, until: now, bytes, data });
            }
        }
        let least = DATA_LEAST[usize::from(self.has_lost)];
        let mut data: u32 = self.parts.iter().map(|part| part.data).sum();
        // The first part is dropped if the others suffice.
        while let [first, second, ..] = *self.parts.make_contiguous()
            && now.since(second.since) >= span
            && data - first.data >= least
        {
            data -= first.data;
            self.parts.pop_front();
        }
        if self.parts.len() > PARTS_MAX {
            self.parts.pop_front();
        }
    }

    /// Receive rate, in bytes per second, once measured.
    fn rate(&self, rtt: f64) -> Option<f64> {
        let (first, last) = (self.parts.front()?, self.parts.back()?);
        let span = Duration::from_secs_f64(rtt).max(SPAN_LEAST);
        let took = last.until.since(first.since).max(span);
        let bytes: u64 = self.parts.iter().map(|part| part.bytes).sum();
        Some(bytes as f64 / took.as_secs_f64())
    }

    /// Rate that the sender should not exceed, in bytes per second, and whether it follows from the
    /// receive rate instead of the equation.
    pub(crate) fn fair(&self, grtt: Duration, send_rate: f64) -> (f64, CcFlags) {
        let rtt = self.rtt(grtt);
        // Before a measurement, the sender's advertised rate is used.
        let most = 2.0 * self.rate(rtt).unwrap_or(send_rate);
        if !self.has_lost {
            return (most.max(1.0), CcFlags::START);
        }
        let fair = throughput(self.nominal, rtt, self.losses.rate());
        // A few segments per round trip are too few to judge (RFC 5348 §4.3).
        let most = most.max(initial_window(self.nominal) / rtt);
        if most < fair {
            return (most.max(1.0), CcFlags::LIMIT);
        }
        (fair.max(1.0), CcFlags::NONE)
    }

    /// Ratio of the fair rate to the sender's: 0 if far lower, 1 if there is no reason to report. A
    /// lower value makes the report earlier.
    pub(crate) fn bias(&self, grtt: Duration, send_rate: f64) -> f64 {
        if send_rate <= 0.0 {
            return 1.0;
        }
        let (fair, flags) = self.fair(grtt, send_rate);
        if flags.contains(CcFlags::START) {
            return (fair / 2.0 / send_rate).min(1.0);
        }
        ((fair / send_rate).clamp(0.5, 0.9) - 0.5) / 0.4
    }

    /// Feedback (RFC 5740 §4.2.3.5) in reply to the probe with this number.
    pub(crate) fn feedback(&self, sequence: u16, grtt: Duration, send_rate: f64) -> CcFeedback {
        let (fair, flags) = self.fair(grtt, send_rate);
        let loss = if self.has_lost { self.losses.rate() } else { 0.0 };
        // 32 bits; only the reference implementation has the lower half.
        let loss = (loss * f64::from(u32::MAX)) as u32;
        let known = if self.rtt.is_some() { CcFlags::RTT } else { CcFlags::NONE };
        CcFeedback {
            sequence,
            flags: flags | known | self.role.flag(),
            rtt: message::quantise_rtt(Duration::from_secs_f64(self.rtt(grtt))),
            loss: (loss >> 16) as u16,
            rate: message::quantise_rate(fair),
            loss_low: loss as u16,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RTT: Duration = Duration::from_millis(100);
    const LEN: usize = 1000;

    fn millis(millis: u64) -> Time {
        Time::from_nanos(millis * 1_000_000)
    }

    fn entry(flags: CcFlags, rtt: Duration) -> Option<CcNode> {
        Some(CcNode { node: message::NodeId(1), flags, rtt: message::quantise_rtt(rtt), rate: 0 })
    }

    /// Delivers NORM_DATA of 1,000 bytes.
    fn arrives(reception: &mut Reception, at: Time, sequence: u16) -> bool {
        reception.arrived(at, sequence, LEN, true, RTT, Some(100_000.0))
    }

    /// Delivers one message every 10 ms, 100,000 bytes per second, from the first number to the
    /// last, except some.
    fn stream(reception: &mut Reception, (first, last): (u64, u64), lost: &[u64]) -> Vec<u64> {
        let numbers = (first..=last).filter(|number| !lost.contains(number));
        numbers.filter(|n| arrives(reception, millis(n * 10), *n as u16)).collect()
    }

    fn near(found: f64, expected: f64) -> bool {
        (found / expected - 1.0).abs() < 0.01
    }

    #[test]
    fn slow_start_reports_twice_the_receive_rate() {
        let mut reception = Reception::new();
        assert_eq!(reception.fair(RTT, 5000.0), (10_000.0, CcFlags::START), "nothing is known");
        stream(&mut reception, (1, 100), &[]);
        let (rate, flags) = reception.fair(RTT, 100_000.0);
        assert!(near(rate, 200_000.0), "{rate}");
        assert_eq!(flags, CcFlags::START);
        // Four times as much from now on: half of it is measured half a round trip later.
        let go_on = |reception: &mut Reception, from: u64, to: u64| {
            for n in from..to {
                let at = millis(1000) + Duration::from_micros((n + 1) * 2500);
                assert!(!arrives(reception, at, (101 + n) as u16));
            }
            reception.fair(RTT, 100_000.0).0
        };
        let rate = go_on(&mut reception, 0, 20);
        assert!((400_000.0..550_000.0).contains(&rate), "{rate}");
        let rate = go_on(&mut reception, 20, 60);
        assert!(near(rate, 800_000.0), "{rate}");
        let feedback = reception.feedback(7, RTT, 100_000.0);
        assert_eq!((feedback.sequence, feedback.flags, feedback.loss), (7, CcFlags::START, 0));
        assert!(near(message::rate(feedback.rate), 800_000.0));
    }

    #[test]
    fn few_messages_are_measured_over_a_longer_time() {
        let mut reception = Reception::new();
        // One per second, and a short one before or after it.
        for behind in [50, 950] {
            for n in 0..8 {
                reception.arrived(millis(n * 1000), 2 * n as u16, LEN, true, RTT, Some(1e3));
                let at = millis(n * 1000 + behind);
                reception.arrived(at, 2 * n as u16 + 1, 36, false, RTT, Some(1e3));
                let (rate, _) = reception.fair(RTT, 1000.0);
                assert!(n == 0 || (1900.0..2200.0).contains(&rate), "{n}: {rate}");
            }
            reception = Reception::new();
        }
    }

    #[test]
    fn first_loss_interval_matches_the_receive_rate() {
        let mut reception = Reception::new();
        reception.assigned(entry(CcFlags::RTT, RTT));
        assert_eq!(stream(&mut reception, (1, 103), &[100]), [103], "after three later ones");
        let (rate, flags) = reception.fair(RTT, 100_000.0);
        // 9 of 10 arrived in the previous round trip; 103.25 ms is the reported round trip.
        assert!((85_000.0..101_000.0).contains(&rate), "{rate}");
        assert_eq!(flags, CcFlags::NONE);
        let feedback = reception.feedback(1, RTT, 100_000.0);
        assert_eq!(feedback.flags, CcFlags::RTT);
        let loss = f64::from(u32::from(feedback.loss) << 16 | u32::from(feedback.loss_low));
        let reported = message::rtt(message::quantise_rtt(RTT)).as_secs_f64();
        let by_equation = throughput(1000.0, reported, loss / f64::from(u32::MAX));
        assert!(near(by_equation, rate), "{by_equation} {rate}");
    }

    #[test]
    fn regular_loss_gives_the_rate_of_the_equation() {
        let mut reception = Reception::new();
        reception.assigned(entry(CcFlags::RTT, RTT));
        let lost: Vec<u64> = (1..=100).map(|n| n * 100).collect();
        let events = stream(&mut reception, (1, 9950), &lost);
        assert_eq!(events.len(), 99);
        let reported = message::rtt(message::quantise_rtt(RTT)).as_secs_f64();
        let (rate, flags) = reception.fair(RTT, 100_000.0);
        // One loss event in 100 messages.
        assert!(near(rate, throughput(1000.0, reported, 0.01)), "{rate}");
        assert_eq!(flags, CcFlags::NONE);
        // Much less arrives from now on: twice the receive rate is the limit.
        for n in 0..200_u64 {
            arrives(&mut reception, millis(99_600 + n * 50), 9951 + n as u16);
        }
        let (rate, flags) = reception.fair(RTT, 100_000.0);
        assert!(near(rate, 40_000.0), "{rate}");
        assert_eq!(flags, CcFlags::LIMIT);
        // Four segments per round trip are allowed even if next to nothing arrives.
        for n in 0..50_u64 {
            arrives(&mut reception, millis(110_000 + n * 900), 10_151 + n as u16);
        }
        let (rate, flags) = reception.fair(RTT, 100_000.0);
        assert!(near(rate, 4000.0 / reported), "{rate}");
        assert_eq!(flags, CcFlags::LIMIT);
    }

    #[test]
    fn losses_of_one_round_trip_are_one_event() {
        let mut reception = Reception::new();
        reception.assigned(entry(CcFlags::RTT, RTT));
        let events = stream(&mut reception, (1, 700), &[100, 105, 115, 500, 501, 505, 540, 600]);
        // The first event lasts longer: until messages sent before the sender knew of it have
        // arrived.
        assert_eq!(events, [103, 504, 543, 603]);
        // Four of 50 losses in a row, over 500 ms, begin an event, at 11 per round trip.
        let lost: Vec<u64> = (800..850).collect();
        let before = reception.losses.rate();
        assert_eq!(stream(&mut reception, (701, 900), &lost), [852]);
        assert!(reception.losses.rate() > 2.0 * before);
    }

    #[test]
    fn reordered_messages_are_not_losses() {
        let mut reception = Reception::new();
        for (at, number) in [1, 2, 5, 3, 6, 4, 7, 8, 9, 10, 65_530, 11].into_iter().enumerate() {
            let is_event = arrives(&mut reception, millis(at as u64 * 10), number);
            assert!(!is_event, "{number}");
        }
        assert_eq!(reception.fair(RTT, 1.0).1, CcFlags::START);
        assert!(reception.gaps.is_empty());
    }

    #[test]
    fn tracked_gaps_are_bounded() {
        let mut reception = Reception::new();
        arrives(&mut reception, millis(0), 0);
        arrives(&mut reception, millis(1), 30_000);
        for number in (1..15_000).map(|n| n * 2) {
            arrives(&mut reception, millis(2), number);
            assert!(reception.gaps.len() <= GAPS_MAX, "{number}: {}", reception.gaps.len());
        }
        // At the limit no further gaps are kept.
        let before = reception.gaps.iter().map(|gap| gap.end - gap.first).sum::<u64>();
        arrives(&mut reception, millis(3), 29_999);
        let after = reception.gaps.iter().map(|gap| gap.end - gap.first).sum::<u64>();
        assert_eq!((before - after, reception.gaps.len()), (1, GAPS_MAX));
    }

    #[test]
    fn numbers_wrap() {
        let mut reception = Reception::new();
        assert_eq!(stream(&mut reception, (60_000, 140_000), &[]), []);
        assert_eq!(stream(&mut reception, (140_001, 200_000), &[150_000]), [150_003]);
    }

    #[test]
    fn after_silence_the_sender_may_restart() {
        let mut reception = Reception::new();
        reception.assigned(entry(CcFlags::RTT, RTT));
        stream(&mut reception, (1, 200), &[100]);
        assert_eq!(reception.fair(RTT, 100_000.0).1, CcFlags::NONE);
        // Silence with a loss in it may be an outage.
        arrives(&mut reception, millis(4_000), 202);
        assert!(!reception.fair(RTT, 100_000.0).1.contains(CcFlags::START));
        arrives(&mut reception, millis(6_000), 203);
        assert_eq!(reception.fair(RTT, 7_000.0), (14_000.0, CcFlags::START));
    }

    #[test]
    fn shorter_round_trips_shorten_the_first_interval() {
        let guess = 4 * RTT;
        let mut reception = Reception::new();
        for n in (1..=103).filter(|n| *n != 100_u64) {
            reception.arrived(millis(n * 10), n as u16, LEN, true, guess, Some(100_000.0));
        }
        let (before, _) = reception.fair(guess, 100_000.0);
        assert!((85_000.0..101_000.0).contains(&before), "{before}");
        reception.assigned(entry(CcFlags::RTT | CcFlags::CLR, RTT));
        assert_eq!(reception.role, Role::Limiting);
        let (after, _) = reception.fair(guess, 100_000.0);
        assert!(near(after, before), "{before} {after}");
    }

    #[test]
    fn a_lower_rate_is_reported_sooner() {
        let mut reception = Reception::new();
        stream(&mut reception, (1, 100), &[]);
        assert!(reception.bias(RTT, 100_000.0) > 0.95);
        assert!((reception.bias(RTT, 400_000.0) - 0.25).abs() < 0.01);
        assert_eq!(reception.bias(RTT, 0.0), 1.0);
        stream(&mut reception, (101, 9950), &(2..100).map(|n| n * 100).collect::<Vec<_>>());
        let (fair, _) = reception.fair(RTT, 100_000.0);
        assert_eq!(reception.bias(RTT, 3.0 * fair), 0.0);
        assert!((reception.bias(RTT, fair / 0.7) - 0.5).abs() < 0.01);
        assert_eq!(reception.bias(RTT, fair), 1.0);
    }
}
