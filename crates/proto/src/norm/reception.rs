//! What a receiver measures for congestion control: the rate at which a sender's messages arrive,
//! the losses among them, and the rate that is fair beside TCP (RFC 4654 §4; RFC 5740 §5.5.2.2).

use std::collections::VecDeque;
use std::time::Duration;

use engine::Time;
use wire::norm::{self, CcFeedback, CcFlags, CcNode};

use crate::losses::{Losses, Meaning, RTT_LEAST, initial_window, loss_at, throughput};

/// A message is lost once so many that left later have arrived (RFC 4654 §5.1).
const LATER: u8 = 3;

/// The shortest time over which the rate is measured: drivers hand over what arrived in batches.
const SPAN_LEAST: Duration = Duration::from_millis(10);

/// Parts of a span, each of which is forgotten as a whole; and most that there are if little of what
/// comes is data.
const PARTS: u32 = 8;
const PARTS_MAX: usize = 64;

/// NORM_DATA messages over which the rate is measured at the least: in slow start, which shall not
/// wait for them, and once something was lost.
const DATA_LEAST: [u32; 2] = [1, 4];

/// The weight of a message's length in their mean, and what that is before the first.
const LENGTH_WEIGHT: f64 = 0.05;
const LENGTH_ASSUMED: f64 = 1024.0;

/// Runs of missing messages that are told apart: where late ones would make them more, what is
/// between them counts as one.
const GAPS_MAX: usize = 64;

/// Silence after which a sender began anew, in round trips and in times between two messages
/// (RFC 4654 §4.3.1).
const IDLE: u32 = 10;

/// What is measured of one life of a sender.
#[derive(Debug)]
pub(crate) struct Reception {
    /// The number of the newest message, unwrapped, and when it came.
    newest: Option<(u64, Time)>,
    gaps: Vec<Gap>,
    losses: Losses,
    /// Whether a loss was seen since the sender last began.
    has_lost: bool,
    /// Until when losses belong to the event that ended slow start.
    first_until: Time,
    /// The round trip that the sender measured, in seconds.
    rtt: Option<f64>,
    /// The rate for which the interval before the first loss was made up, while no round trip was
    /// measured.
    guessed: Option<f64>,
    parts: VecDeque<Part>,
    /// The mean length of NORM_DATA, and when the last one came.
    nominal: f64,
    last_data: Option<Time>,
    /// Whether something was lost since then.
    lost_since: bool,
    /// The part that the sender gave this receiver.
    role: Role,
}

/// Messages that are missing.
#[derive(Clone, Copy, Debug)]
struct Gap {
    /// The first, and the one behind the last.
    first: u64,
    end: u64,
    /// The messages before and after, when these came.
    before: (u64, Time),
    after: (u64, Time),
    /// Later ones that arrived.
    later: u8,
}

/// What arrived in a part of a span.
#[derive(Clone, Copy, Debug)]
struct Part {
    /// When the message before came, and the last of these.
    since: Time,
    until: Time,
    bytes: u64,
    /// Messages with data.
    data: u32,
}

/// The part of a receiver in congestion control.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Role {
    /// It speaks after a random wait.
    #[default]
    Other,
    /// It sets the rate, the current limiting receiver, and answers every probe at once.
    Limiting,
    /// It may come to do so, and answers at once too.
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
    /// When a message should have arrived (RFC 4654 §5.2).
    fn time_of(&self, number: u64) -> Time {
        let ((from, since), (to, until)) = (self.before, self.after);
        since + until.since(since).mul_f64((number - from) as f64 / (to - from) as f64)
    }

    /// The first message that should have arrived after a moment.
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
        Self {
            newest: None,
            gaps: Vec::new(),
            losses: Losses::default(),
            has_lost: false,
            first_until: Time::ZERO,
            rtt: None,
            guessed: None,
            parts: VecDeque::new(),
            nominal: LENGTH_ASSUMED,
            last_data: None,
            lost_since: false,
            role: Role::Other,
        }
    }

    pub(crate) fn role(&self) -> Role {
        self.role
    }

    /// Whether the sender told how long the round trip is.
    pub(crate) fn has_rtt(&self) -> bool {
        self.rtt.is_some()
    }

    /// The sender says what it knows of this receiver, if it does.
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
        let rtt = norm::rtt(own.rtt).as_secs_f64().max(RTT_LEAST);
        self.rtt = Some(rtt);
        // What was made up with a longer round trip would allow too much (RFC 4654 §5.6).
        if let Some(target) = self.guessed.take()
            && let Some(first) = self.losses.first_interval()
        {
            *first = 1.0 / loss_at(self.nominal, rtt, target);
        }
    }

    /// The round trip: as measured, or the greatest in the group.
    fn rtt(&self, grtt: Duration) -> f64 {
        self.rtt.unwrap_or(grtt.as_secs_f64()).max(RTT_LEAST)
    }

    /// A message of `len` bytes arrived. Whether a loss event began.
    pub(crate) fn arrived(
        &mut self,
        now: Time,
        sequence: u16,
        (len, is_data): (usize, bool),
        (grtt, send_rate): (Duration, Option<f64>),
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
        // What came in a time of silence says nothing of the rate.
        if !is_data || !self.data(now, len, grtt, send_rate) {
            self.count((now, before), (len, is_data), self.rtt(grtt));
        }
        is_event
    }

    /// A message came late: it is not lost.
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

    /// One more message arrived, the newest: tells which are lost.
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

    /// A message was lost that should have arrived then. Whether an event began.
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
                // What was sent before the sender could hear of it says nothing new, and in slow
                // start that is much: a round trip is added, because the way may have got longer.
                self.first_until = at + Duration::from_secs_f64(2.0 * rtt);
                true
            }
        };
        self.has_lost |= is_event;
        is_event
    }

    /// Makes up the interval before the first loss: that at which the rate that arrived is fair
    /// (RFC 4654 §5.6).
    fn make_up(&mut self, rtt: f64) {
        let least = self.nominal / (2.0 * rtt);
        let target = self.rate(rtt).unwrap_or(least).max(least);
        self.losses.close(1.0 / loss_at(self.nominal, rtt, target));
        self.guessed = self.rtt.is_none().then_some(target);
    }

    /// Notes NORM_DATA; whether the sender was idle before, and begins anew.
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

    /// Counts a message for the rate. `before` is when the one before came.
    fn count(&mut self, (now, before): (Time, Time), (len, is_data): (usize, bool), rtt: f64) {
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
        // The first is not needed if the others are enough.
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

    /// The rate at which messages arrive, in bytes a second, once there are some.
    fn rate(&self, rtt: f64) -> Option<f64> {
        let (first, last) = (self.parts.front()?, self.parts.back()?);
        let span = Duration::from_secs_f64(rtt).max(SPAN_LEAST);
        let took = last.until.since(first.since).max(span);
        let bytes: u64 = self.parts.iter().map(|part| part.bytes).sum();
        Some(bytes as f64 / took.as_secs_f64())
    }

    /// The rate that the sender should not exceed, in bytes a second, and whether it is what
    /// arrives, and not the equation, that says so.
    pub(crate) fn fair(&self, grtt: Duration, send_rate: f64) -> (f64, CcFlags) {
        let rtt = self.rtt(grtt);
        // While nothing was measured, what the sender says has to do.
        let most = 2.0 * self.rate(rtt).unwrap_or(send_rate);
        if !self.has_lost {
            return (most.max(1.0), CcFlags::START);
        }
        let fair = throughput(self.nominal, rtt, self.losses.rate());
        // Of a few segments in a round trip nobody can tell (RFC 5348 §4.3).
        let most = most.max(initial_window(self.nominal) / rtt);
        if most < fair {
            return (most.max(1.0), CcFlags::LIMIT);
        }
        (fair.max(1.0), CcFlags::NONE)
    }

    /// How near the rate is to what the sender sends, 0 if it is far below, 1 if there is no reason
    /// to speak: who has more to complain speaks sooner.
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

    /// What is told of all that (RFC 5740 §4.2.3.5), in answer to a probe of this number.
    pub(crate) fn feedback(&self, sequence: u16, grtt: Duration, send_rate: f64) -> CcFeedback {
        let (fair, flags) = self.fair(grtt, send_rate);
        let loss = if self.has_lost { self.losses.rate() } else { 0.0 };
        // 32 bits: half of them are of the reference implementation alone.
        let loss = (loss * f64::from(u32::MAX)) as u32;
        let known = if self.rtt.is_some() { CcFlags::RTT } else { CcFlags::NONE };
        CcFeedback {
            sequence,
            flags: flags | known | self.role.flag(),
            rtt: norm::quantise_rtt(Duration::from_secs_f64(self.rtt(grtt))),
            loss: (loss >> 16) as u16,
            rate: norm::quantise_rate(fair),
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
        Some(CcNode { node: norm::NodeId(1), flags, rtt: norm::quantise_rtt(rtt), rate: 0 })
    }

    /// NORM_DATA of 1,000 bytes.
    fn arrives(reception: &mut Reception, at: Time, sequence: u16) -> bool {
        reception.arrived(at, sequence, (LEN, true), (RTT, Some(100_000.0)))
    }

    /// One every 10 ms, 100,000 bytes a second, from the first number up to the last, without some.
    fn stream(reception: &mut Reception, (first, last): (u64, u64), lost: &[u64]) -> Vec<u64> {
        let numbers = (first..=last).filter(|number| !lost.contains(number));
        numbers.filter(|n| arrives(reception, millis(n * 10), *n as u16)).collect()
    }

    fn near(found: f64, expected: f64) -> bool {
        (found / expected - 1.0).abs() < 0.01
    }

    #[test]
    fn slow_start_reports_twice_what_arrives() {
        let mut reception = Reception::new();
        assert_eq!(reception.fair(RTT, 5000.0), (10_000.0, CcFlags::START), "nothing is known");
        stream(&mut reception, (1, 100), &[]);
        let (rate, flags) = reception.fair(RTT, 100_000.0);
        assert!(near(rate, 200_000.0), "{rate}");
        assert_eq!(flags, CcFlags::START);
        // Four times as much from now on: half a round trip later half of that is seen.
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
        assert!(near(norm::rate(feedback.rate), 800_000.0));
    }

    #[test]
    fn few_messages_are_measured_over_a_longer_time() {
        let mut reception = Reception::new();
        // One in a second, and a short one before or behind it.
        for behind in [50, 950] {
            for n in 0..8 {
                reception.arrived(millis(n * 1000), 2 * n as u16, (LEN, true), (RTT, Some(1e3)));
                let at = millis(n * 1000 + behind);
                reception.arrived(at, 2 * n as u16 + 1, (36, false), (RTT, Some(1e3)));
                let (rate, _) = reception.fair(RTT, 1000.0);
                assert!(n == 0 || (1900.0..2200.0).contains(&rate), "{n}: {rate}");
            }
            reception = Reception::new();
        }
    }

    #[test]
    fn the_first_loss_makes_up_an_interval_that_gives_what_arrived() {
        let mut reception = Reception::new();
        reception.assigned(entry(CcFlags::RTT, RTT));
        assert_eq!(stream(&mut reception, (1, 103), &[100]), [103], "after three later ones");
        let (rate, flags) = reception.fair(RTT, 100_000.0);
        // 9 of 10 arrived in the round trip before; 103.25 ms is the round trip as it was told.
        assert!((85_000.0..101_000.0).contains(&rate), "{rate}");
        assert_eq!(flags, CcFlags::NONE);
        let feedback = reception.feedback(1, RTT, 100_000.0);
        assert_eq!(feedback.flags, CcFlags::RTT);
        let loss = f64::from(u32::from(feedback.loss) << 16 | u32::from(feedback.loss_low));
        let told = norm::rtt(norm::quantise_rtt(RTT)).as_secs_f64();
        let by_equation = throughput(1000.0, told, loss / f64::from(u32::MAX));
        assert!(near(by_equation, rate), "{by_equation} {rate}");
    }

    #[test]
    fn regular_loss_gives_the_rate_of_the_equation() {
        let mut reception = Reception::new();
        reception.assigned(entry(CcFlags::RTT, RTT));
        let lost: Vec<u64> = (1..=100).map(|n| n * 100).collect();
        let events = stream(&mut reception, (1, 9950), &lost);
        assert_eq!(events.len(), 99);
        let told = norm::rtt(norm::quantise_rtt(RTT)).as_secs_f64();
        let (rate, flags) = reception.fair(RTT, 100_000.0);
        // One loss event in a hundred messages.
        assert!(near(rate, throughput(1000.0, told, 0.01)), "{rate}");
        assert_eq!(flags, CcFlags::NONE);
        // What arrives is much less from now on: twice that is the limit.
        for n in 0..200_u64 {
            arrives(&mut reception, millis(99_600 + n * 50), 9951 + n as u16);
        }
        let (rate, flags) = reception.fair(RTT, 100_000.0);
        assert!(near(rate, 40_000.0), "{rate}");
        assert_eq!(flags, CcFlags::LIMIT);
        // Four segments in a round trip are allowed even if next to nothing arrives.
        for n in 0..50_u64 {
            arrives(&mut reception, millis(110_000 + n * 900), 10_151 + n as u16);
        }
        let (rate, flags) = reception.fair(RTT, 100_000.0);
        assert!(near(rate, 4000.0 / told), "{rate}");
        assert_eq!(flags, CcFlags::LIMIT);
    }

    #[test]
    fn losses_of_one_round_trip_are_one_event() {
        let mut reception = Reception::new();
        reception.assigned(entry(CcFlags::RTT, RTT));
        let events = stream(&mut reception, (1, 700), &[100, 105, 115, 500, 501, 505, 540, 600]);
        // The first one lasts longer: until what left before it was heard of has passed.
        assert_eq!(events, [103, 504, 543, 603]);
        // Of 50 in a row, 500 ms long, four are first ones of an event at 11 in a round trip.
        let lost: Vec<u64> = (800..850).collect();
        let before = reception.losses.rate();
        assert_eq!(stream(&mut reception, (701, 900), &lost), [852]);
        assert!(reception.losses.rate() > 2.0 * before);
    }

    #[test]
    fn what_comes_late_is_not_lost() {
        let mut reception = Reception::new();
        for (at, number) in [1, 2, 5, 3, 6, 4, 7, 8, 9, 10, 65_530, 11].into_iter().enumerate() {
            let is_event = arrives(&mut reception, millis(at as u64 * 10), number);
            assert!(!is_event, "{number}");
        }
        assert_eq!(reception.fair(RTT, 1.0).1, CcFlags::START);
        assert!(reception.gaps.is_empty());
    }

    #[test]
    fn what_comes_late_does_not_make_gaps_without_end() {
        let mut reception = Reception::new();
        arrives(&mut reception, millis(0), 0);
        arrives(&mut reception, millis(1), 30_000);
        for number in (1..15_000).map(|n| n * 2) {
            arrives(&mut reception, millis(2), number);
            assert!(reception.gaps.len() <= GAPS_MAX, "{number}: {}", reception.gaps.len());
        }
        // At the edge of one nothing is told apart.
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
    fn after_silence_the_sender_may_begin_anew() {
        let mut reception = Reception::new();
        reception.assigned(entry(CcFlags::RTT, RTT));
        stream(&mut reception, (1, 200), &[100]);
        assert_eq!(reception.fair(RTT, 100_000.0).1, CcFlags::NONE);
        // Silence with a loss in it may be one of the way.
        arrives(&mut reception, millis(4_000), 202);
        assert!(!reception.fair(RTT, 100_000.0).1.contains(CcFlags::START));
        arrives(&mut reception, millis(6_000), 203);
        assert_eq!(reception.fair(RTT, 7_000.0), (14_000.0, CcFlags::START));
    }

    #[test]
    fn a_shorter_round_trip_shortens_what_was_made_up() {
        let guess = 4 * RTT;
        let mut reception = Reception::new();
        for n in (1..=103).filter(|n| *n != 100_u64) {
            reception.arrived(millis(n * 10), n as u16, (LEN, true), (guess, Some(100_000.0)));
        }
        let (before, _) = reception.fair(guess, 100_000.0);
        assert!((85_000.0..101_000.0).contains(&before), "{before}");
        reception.assigned(entry(CcFlags::RTT | CcFlags::CLR, RTT));
        assert_eq!(reception.role(), Role::Limiting);
        let (after, _) = reception.fair(guess, 100_000.0);
        assert!(near(after, before), "{before} {after}");
    }

    #[test]
    fn who_has_more_to_complain_speaks_sooner() {
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
