//! Sender side of congestion control: TFMCC (RFC 4654 §3) as used by NORM (RFC 5740 §5.5.2.3).
//!
//! Each receiver reports the rate that is fair on its path. The receiver with the lowest rate, the
//! current limiting receiver (CLR), sets the sender's rate and replies to every probe.

use std::collections::BTreeMap;
use std::time::Duration;

use engine::Time;
use session::losses::{RTT_LEAST, initial_window};

use crate::message::{self, CcFeedback, CcFlags, CcNode, NodeId};

/// Messages due within this time are sent together, so that not every message needs a timer.
const BATCH: Duration = Duration::from_millis(1);

/// Maximum number of receivers named in one probe, as in the reference implementation.
const ENTRIES_MAX: usize = 5;

/// Probes without a reply of the CLR after which the rate is halved.
const AGE_MAX: i32 = 4;

/// Minimum time without data after which the rate is halved: longer than a pause of the host or a
/// round of repairs. As in the reference implementation; the RFC uses one round trip.
const IDLE_LEAST: Duration = Duration::from_secs(1);

/// Weight of the previous estimate of a round trip: for receivers that reply to every probe, and
/// for others.
const FORMER_OFTEN: f64 = 0.9;
const FORMER_SELDOM: f64 = 0.5;

/// Ratio below which two rates count as equal; the receiver farther away then limits.
const ALIKE: f64 = 1.1;

/// Multiple of the lowest rate up to which a receiver may soon become the CLR.
const NEAR: f64 = 1.5;

/// Weight of a new message's length in the mean.
const LENGTH_WEIGHT: f64 = 0.05;

/// Rate control of one sender. Rates are in bytes per second, without the path's overhead.
#[derive(Debug, Default)]
pub(crate) struct Congestion {
    setup: Setup,
    /// Mean length of messages with data.
    segment: f64,
    pub(crate) rate: f64,
    /// Whether no receiver has reported a loss yet.
    is_slow_start: bool,
    limiting: Option<NodeId>,
    reporters: BTreeMap<NodeId, Reporter>,
    /// Sequence number of the last probe.
    sequence: u16,
    /// Time of the last check for a rate increase, and of the last halving.
    raised: Time,
    halved: Time,
    /// Whether the rate rises slowly after a change of the CLR.
    is_climbing: bool,
    /// Whether the rate held back messages since the last probe, and since the one before.
    held: (bool, bool),
    /// Time at which the last message was due, and its length.
    last: Option<(Time, usize)>,
    last_data: Option<Time>,
}

/// Receiver that reports.
#[derive(Clone, Copy, Debug)]
struct Reporter {
    /// Round trip in seconds.
    rtt: f64,
    rate: f64,
    /// Flags of its last report.
    flags: CcFlags,
    /// Sequence number of the last probe to which the receiver replied.
    sequence: u16,
}

impl Reporter {
    /// Whether the receiver's rate is a multiple of the receive rate rather than the equation's.
    fn is_measured(&self) -> bool {
        self.flags.contains(CcFlags::START) || self.flags.contains(CcFlags::LIMIT)
    }
}

/// Path and group of a sender.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Setup {
    /// Bytes of the longest message.
    pub(crate) segment: usize,
    /// Upper limit of the rate, in bytes per second.
    pub(crate) ceiling: f64,
    /// Assumed greatest round trip (GRTT).
    pub(crate) grtt: Duration,
    /// Whether there may be receivers in the group that have not reported yet.
    pub(crate) is_group: bool,
    /// Round trip to a single receiver, if the light time is known.
    pub(crate) light: Option<Duration>,
    /// Maximum number of remembered receivers.
    pub(crate) reporters_max: usize,
    pub(crate) robust_factor: u32,
    /// Maximum driver delay.
    pub(crate) late: Duration,
}

impl Congestion {
    pub(crate) fn new(setup: Setup) -> Self {
        let segment = setup.segment.max(1) as f64;
        let (is_slow_start, held) = (true, (true, true));
        let mut this = Self { setup, segment, is_slow_start, held, ..Self::default() };
        let mut first = this.least(setup.grtt);
        if let Some(light) = setup.light.filter(|_| !setup.is_group) {
            // One segment per second until a receiver replies; one initial window per round trip
            // once that is known (RFC 5348 §4.2).
            let window = initial_window(segment) / light.as_secs_f64().max(RTT_LEAST);
            first = first.max(segment).max(window);
        }
        this.set(first, setup.grtt);
        this
    }

    /// Initial and minimum rate: one segment per second, or per greatest round trip if that is
    /// longer (§5.5.2.3).
    fn least(&self, grtt: Duration) -> f64 {
        self.segment / grtt.as_secs_f64().max(1.0)
    }

    fn set(&mut self, rate: f64, grtt: Duration) {
        self.rate = rate.max(self.least(grtt)).min(self.setup.ceiling);
    }

    /// Sets the path's maximum rate.
    pub(crate) fn set_ceiling(&mut self, ceiling: f64) {
        self.setup.ceiling = ceiling;
        self.rate = self.rate.min(ceiling);
    }

    /// Time between two segments at the current rate.
    pub(crate) fn interval(&self) -> Duration {
        Duration::from_secs_f64(self.segment / self.rate)
    }

    /// Round trip to the CLR, if there is one.
    pub(crate) fn rtt(&self) -> Option<Duration> {
        let limiting = self.reporters.get(&self.limiting?)?;
        Some(Duration::from_secs_f64(limiting.rtt))
    }

    fn due(&self) -> Option<Time> {
        self.last.map(|(at, len)| at + Duration::from_secs_f64(len as f64 / self.rate))
    }

    /// Time at which the next data message is due, if the rate holds it back and none was sent
    /// since `since`.
    pub(crate) fn waits(&self, now: Time, since: Time) -> Option<Time> {
        let due = self.due().filter(|due| *due > now)?;
        self.last_data.is_none_or(|last| last < since).then_some(due)
    }

    /// Whether a data message may be sent at this time; the error is the time to try again.
    pub(crate) fn check_pace(&mut self, at: Time) -> Result<(), Time> {
        let Some(due) = self.due().filter(|due| *due > at) else { return Ok(()) };
        self.held.0 = true;
        let interval = self.last.map_or(BATCH, |(last, _)| due.since(last));
        Err(due + BATCH.saturating_sub(interval))
    }

    /// Accounts for a sent message.
    pub(crate) fn sent(&mut self, at: Time, len: usize, is_data: bool) {
        let earliest = at - (2 * BATCH + self.setup.late);
        self.last = Some((self.due().map_or(at, |due| due.max(earliest)), len));
        if is_data {
            self.segment += LENGTH_WEIGHT * (len as f64 - self.segment);
            self.last_data = Some(at);
        }
    }

    /// Lowers the rate before data is sent after an idle period (§5.5.2.3).
    pub(crate) fn resume(&mut self, at: Time, grtt: Duration) {
        let Some(last) = self.last_data else { return };
        let since = self.due().map_or(last, |due| due.max(last));
        let round = self.rtt().unwrap_or(grtt).max(IDLE_LEAST);
        let rounds = libm::floor(at.since(since).as_secs_f64() / round.as_secs_f64());
        if rounds < 1.0 {
            return;
        }
        self.set(self.rate * libm::exp2(-rounds), grtt);
        self.last_data = Some(at);
        self.held = (false, false);
        if self.rate <= self.least(grtt) {
            self.is_slow_start = true;
        }
    }

    /// Processes a receiver's report (§5.5.2.2). `took` is the time since the probe it replies to,
    /// if it names one.
    pub(crate) fn received(
        &mut self,
        now: Time,
        node: NodeId,
        cc: &CcFeedback,
        took: Option<Duration>,
        grtt: Duration,
    ) {
        if cc.flags.contains(CcFlags::LEAVE) {
            self.leaves(node);
            return;
        }
        let former = self.reporters.get(&node).copied();
        let is_stale = former.is_some_and(|former| age(cc.sequence, former.sequence) < 0);
        let is_full = former.is_none() && self.reporters.len() >= self.setup.reporters_max.max(1);
        if cc.rate == 0 || is_stale || is_full {
            return;
        }
        let rtt = self.round_trip(node, cc, took, grtt);
        let mut rate = message::rate(cc.rate);
        let reporter = Reporter { rtt, rate, flags: cc.flags, sequence: cc.sequence };
        if !reporter.is_measured() && !cc.flags.contains(CcFlags::RTT) {
            // The receiver had no round trip of its own, and computed with the greatest round trip
            // (RFC 4654 §3.3).
            rate *= grtt.as_secs_f64() / rtt;
        }
        let reporter = Reporter { rate, ..reporter };
        self.reporters.insert(node, reporter);
        self.is_slow_start &= cc.flags.contains(CcFlags::START);
        self.choose(node, reporter);
        if self.limiting == Some(node) {
            self.adjust(now, reporter, former.is_none(), grtt);
        }
    }

    /// Smoothed round trip to a receiver.
    fn round_trip(
        &self,
        node: NodeId,
        cc: &CcFeedback,
        took: Option<Duration>,
        grtt: Duration,
    ) -> f64 {
        let former = self.reporters.get(&node).map(|reporter| reporter.rtt);
        let reported = cc.flags.contains(CcFlags::RTT).then(|| message::rtt(cc.rtt).as_secs_f64());
        let is_often = cc.flags.contains(CcFlags::CLR)
            || cc.flags.contains(CcFlags::PLR)
            || !self.setup.is_group;
        let (former, weight) =
            if is_often { (former, FORMER_OFTEN) } else { (reported.or(former), FORMER_SELDOM) };
        let rtt = match (former, took.map(|took| took.as_secs_f64())) {
            (Some(former), Some(took)) => weight * former + (1.0 - weight) * took,
            (Some(one), None) | (None, Some(one)) => one,
            (None, None) => reported.unwrap_or(grtt.as_secs_f64()),
        };
        rtt.max(RTT_LEAST)
    }

    /// Makes the receiver that just reported the CLR if its rate is the lowest.
    fn choose(&mut self, node: NodeId, reporter: Reporter) {
        let limiting = self.limiting.and_then(|node| self.reporters.get(&node));
        let limits = limiting.is_none_or(|limiting| {
            let is_alike = reporter.rate < ALIKE * limiting.rate;
            reporter.rate < limiting.rate || is_alike && reporter.rtt > ALIKE * limiting.rtt
        });
        if limits && self.limiting != Some(node) {
            self.is_climbing = self.limiting.is_some() && !self.is_slow_start;
            self.limiting = Some(node);
        }
    }

    /// Follows the report of the CLR.
    fn adjust(&mut self, now: Time, reporter: Reporter, is_first: bool, grtt: Duration) {
        if self.is_slow_start && is_first && !self.setup.is_group {
            // No other receiver has to be polled: start as TFRC does (RFC 5348 §4.2).
            let initial = initial_window(self.segment) / reporter.rtt;
            self.set(self.rate.max(initial), grtt);
            self.raised = now;
        }
        let target = reporter.rate;
        if target <= self.rate {
            self.lower(reporter, grtt);
            self.raised = now;
            return;
        }
        let rtt = if self.is_slow_start { self.farthest() } else { reporter.rtt };
        let rounds = (now.since(self.raised).as_secs_f64() / rtt).min(1.0);
        let most = if self.is_climbing {
            self.rate + rounds * self.segment / rtt
        } else {
            self.rate * libm::exp2(rounds)
        };
        self.is_climbing &= most < target;
        self.set(target.min(most), grtt);
        self.raised = now;
    }

    /// Follows a report below the current rate.
    fn lower(&mut self, reporter: Reporter, grtt: Duration) {
        let mut target = reporter.rate;
        if reporter.is_measured() {
            // Twice the receive rate is low if little was sent, or while the report predates the
            // last increase.
            if self.is_slow_start || !(self.held.0 || self.held.1) {
                return;
            }
            target = target.max(initial_window(self.segment) / reporter.rtt).min(self.rate);
        }
        self.set(target, grtt);
        self.is_climbing = false;
    }

    /// Greatest round trip of reporting receivers: in slow start, the farthest must have had time
    /// to object.
    fn farthest(&self) -> f64 {
        self.reporters.values().map(|reporter| reporter.rtt).fold(RTT_LEAST, f64::max)
    }

    /// Forgets a receiver.
    fn leaves(&mut self, node: NodeId) {
        self.reporters.remove(&node);
        if self.limiting == Some(node) {
            self.succeed();
        }
    }

    /// Chooses a new CLR among the receivers that reported recently.
    fn succeed(&mut self) {
        self.limiting = None;
        let (sequence, robust) = (self.sequence, self.robust());
        self.reporters.retain(|_, reporter| age(sequence, reporter.sequence) <= robust);
        let lowest = self.reporters.iter_mut().min_by(|(_, a), (_, b)| a.rate.total_cmp(&b.rate));
        match lowest {
            Some((node, reporter)) => {
                // No immediate reply was requested so far.
                reporter.sequence = sequence;
                self.limiting = Some(*node);
                self.is_climbing = !self.is_slow_start;
            }
            None => self.is_slow_start = true,
        }
    }

    fn robust(&self) -> i32 {
        i32::try_from(self.setup.robust_factor).unwrap_or(i32::MAX).max(AGE_MAX)
    }

    /// Processes the sending of a probe. `is_busy` if there is data to send.
    pub(crate) fn probes(&mut self, now: Time, sequence: u16, is_busy: bool, grtt: Duration) {
        self.sequence = sequence;
        self.held = (false, self.held.0);
        if !is_busy {
            // Data sent meanwhile does not show whether the rate is too high.
            for reporter in self.reporters.values_mut() {
                reporter.sequence = sequence;
            }
            return;
        }
        let Some(limiting) = self.limiting.and_then(|node| self.reporters.get(&node)) else {
            return;
        };
        let age = age(sequence, limiting.sequence);
        let rtt = Duration::from_secs_f64(limiting.rtt);
        if age > AGE_MAX && now.since(self.halved) >= rtt {
            self.set(self.rate / 2.0, grtt);
            self.halved = now;
        }
        if age > self.robust()
            && let Some(node) = self.limiting
        {
            self.leaves(node);
        }
    }

    /// Receivers named in a probe: first the CLR, then those without a measured round trip, then
    /// those with the lowest rates (§5.5.2.1).
    pub(crate) fn entries(&self) -> Vec<CcNode> {
        let Some(limiting) = self.limiting else { return Vec::new() };
        let lowest = self.reporters.get(&limiting).map_or(0.0, |reporter| reporter.rate);
        let recent = |reporter: &Reporter| age(self.sequence, reporter.sequence) <= self.robust();
        let listed = self.reporters.iter().filter(|(_, reporter)| recent(reporter));
        let mut listed: Vec<_> = listed.collect();
        listed.sort_by(|(a, first), (b, second)| {
            let knows = |reporter: &Reporter| reporter.flags.contains(CcFlags::RTT);
            let is_other = |node: NodeId| node != limiting;
            let rank = |node: NodeId, reporter: &Reporter| (is_other(node), knows(reporter));
            let ranks = rank(**a, first).cmp(&rank(**b, second));
            ranks.then(first.rate.total_cmp(&second.rate))
        });
        let entry = |(node, reporter): (&NodeId, &Reporter)| {
            let role = match (*node == limiting, reporter.rate <= NEAR * lowest) {
                (true, _) => CcFlags::CLR,
                (false, true) => CcFlags::PLR,
                (false, false) => CcFlags::NONE,
            };
            let start = if self.is_slow_start { CcFlags::START } else { CcFlags::NONE };
            CcNode {
                node: *node,
                flags: role | CcFlags::RTT | start,
                rtt: message::quantise_rtt(Duration::from_secs_f64(reporter.rtt)),
                rate: message::quantise_rate(reporter.rate),
            }
        };
        listed.into_iter().take(ENTRIES_MAX).map(entry).collect()
    }
}

/// Number of probes between two sequence numbers; negative if the first is older.
fn age(sequence: u16, earlier: u16) -> i32 {
    i32::from(sequence.wrapping_sub(earlier) as i16)
}

#[cfg(test)]
mod tests {
    use super::*;

    const RTT: Duration = Duration::from_millis(100);
    const GRTT: Duration = Duration::from_millis(200);
    const START: CcFlags = CcFlags(CcFlags::START.0 | CcFlags::RTT.0);

    fn millis(millis: u64) -> Time {
        Time::from_nanos(millis * 1_000_000)
    }

    fn near(found: f64, expected: f64) -> bool {
        (found / expected - 1.0).abs() < 0.01
    }

    fn congestion(is_group: bool) -> Congestion {
        Congestion::new(Setup {
            segment: 1000,
            ceiling: f64::INFINITY,
            grtt: GRTT,
            is_group,
            light: None,
            reporters_max: 8,
            robust_factor: 20,
            late: Duration::ZERO,
        })
    }

    /// Simulates a report in reply to the last probe, one round trip later, by a node with a
    /// request for an immediate reply.
    fn reports(congestion: &mut Congestion, at: u64, (node, flags): (u32, CcFlags), rate: f64) {
        let cc = CcFeedback {
            sequence: congestion.sequence,
            flags: flags | CcFlags::PLR,
            rtt: message::quantise_rtt(RTT),
            rate: message::quantise_rate(rate),
            ..CcFeedback::default()
        };
        congestion.received(millis(at), NodeId(node), &cc, Some(RTT), GRTT);
    }

    fn probes(congestion: &mut Congestion, at: u64) {
        let sequence = congestion.sequence.wrapping_add(1);
        congestion.probes(millis(at), sequence, true, GRTT);
    }

    #[test]
    fn slow_start_follows_the_lowest_report_and_doubles_at_most() {
        let mut group = congestion(true);
        assert!(near(group.rate, 1000.0), "a segment a second");
        reports(&mut group, 1000, (1, START), 50_000.0);
        assert!(near(group.rate, 2000.0), "{}", group.rate);
        reports(&mut group, 1050, (1, START), 50_000.0);
        assert!(near(group.rate, 2828.4), "half a round trip: {}", group.rate);
        for (at, expected) in [(1150, 5657.0), (1250, 11_314.0), (1350, 22_627.0)] {
            reports(&mut group, at, (1, START), 50_000.0);
            assert!(near(group.rate, expected), "{}", group.rate);
        }
        reports(&mut group, 1450, (1, START), 40_000.0);
        assert!(near(group.rate, 40_000.0), "{}", group.rate);
        // A lower report of another receiver is not followed while nobody lost anything.
        reports(&mut group, 1500, (2, START), 30_000.0);
        assert_eq!(group.limiting, Some(NodeId(2)));
        assert!(near(group.rate, 40_000.0), "{}", group.rate);
        reports(&mut group, 1600, (3, CcFlags::RTT), 10_000.0);
        assert_eq!((group.limiting, group.is_slow_start), (Some(NodeId(3)), false));
        assert!(near(group.rate, 10_000.0), "{}", group.rate);
    }

    #[test]
    fn one_receiver_allows_four_segments_in_the_first_round_trip() {
        let mut alone = congestion(false);
        reports(&mut alone, 100, (1, START), 2000.0);
        assert!(near(alone.rate, 40_000.0), "{}", alone.rate);
    }

    #[test]
    fn new_limiting_receiver_raises_rate_by_a_segment_per_round_trip() {
        let mut group = congestion(true);
        reports(&mut group, 100, (1, CcFlags::RTT), 10_000.0);
        reports(&mut group, 100, (2, CcFlags::RTT), 100_000.0);
        assert_eq!(group.limiting, Some(NodeId(1)));
        for at in 1..10 {
            reports(&mut group, 100 + at * 100, (1, CcFlags::RTT), 10_000.0);
        }
        reports(&mut group, 1100, (1, CcFlags::RTT | CcFlags::LEAVE), 10_000.0);
        assert_eq!(group.limiting, Some(NodeId(2)));
        for round in 1..=9_u32 {
            reports(&mut group, 1000 + u64::from(round) * 100, (2, CcFlags::RTT), 100_000.0);
            let expected = 10_000.0 * f64::from(1 + round);
            assert!(near(group.rate, expected), "{round}: {}", group.rate);
        }
        reports(&mut group, 2000, (2, CcFlags::RTT), 300_000.0);
        assert!(near(group.rate, 110_000.0), "{}", group.rate);
    }

    #[test]
    fn farthest_of_similar_rates_limits() {
        let mut group = congestion(true);
        reports(&mut group, 100, (1, CcFlags::RTT), 10_000.0);
        reports(&mut group, 110, (2, CcFlags::RTT), 10_500.0);
        assert_eq!(group.limiting, Some(NodeId(1)));
        let far = CcFeedback {
            flags: CcFlags::RTT,
            rtt: message::quantise_rtt(3 * RTT),
            rate: message::quantise_rate(10_500.0),
            ..CcFeedback::default()
        };
        group.received(millis(120), NodeId(3), &far, Some(3 * RTT), GRTT);
        assert_eq!(group.limiting, Some(NodeId(3)));
        assert!((group.rtt().unwrap_or_default().as_secs_f64() - 0.3).abs() < 0.03);
    }

    #[test]
    fn missing_round_trips_default_to_the_maximum() {
        let mut group = congestion(true);
        reports(&mut group, 100, (1, CcFlags::NONE), 600.0);
        assert!(near(group.reporters[&NodeId(1)].rate, 1200.0), "{group:?}");
        reports(&mut group, 100, (2, CcFlags::LIMIT), 600.0);
        assert!(near(group.reporters[&NodeId(2)].rate, 600.0), "{group:?}");
    }

    #[test]
    fn silence_halves_the_rate_down_to_a_segment_a_second() {
        let mut group = congestion(true);
        reports(&mut group, 100, (1, CcFlags::RTT), 10_000.0);
        reports(&mut group, 200, (2, CcFlags::RTT), 8000.0);
        reports(&mut group, 250, (1, CcFlags::RTT), 10_000.0);
        group.set(8000.0, GRTT);
        for round in 1..=4 {
            probes(&mut group, 200 + round * 100);
        }
        assert!(near(group.rate, 8000.0), "{}", group.rate);
        for (round, expected) in [(5, 4000.0), (6, 2000.0), (7, 1000.0), (8, 1000.0), (9, 1000.0)] {
            probes(&mut group, 200 + round * 100);
            assert!(near(group.rate, expected), "{round}: {}", group.rate);
        }
        // The other one reported equally long ago: after 20 rounds no receiver is left.
        (10..=21).for_each(|round| probes(&mut group, 200 + round * 100));
        assert_eq!((group.limiting, group.is_slow_start), (None, true));
        assert!(group.reporters.is_empty());
        assert!(near(group.rate, 1000.0), "{}", group.rate);
    }

    #[test]
    fn an_active_receiver_replaces_a_silent_one() {
        let mut group = congestion(true);
        reports(&mut group, 100, (1, CcFlags::RTT), 10_000.0);
        for round in 1..=21 {
            probes(&mut group, 100 + round * 100);
            if round % 8 == 0 {
                reports(&mut group, 150 + round * 100, (2, CcFlags::RTT), 90_000.0);
            }
        }
        assert_eq!(group.limiting, Some(NodeId(2)));
        assert!(!group.reporters.contains_key(&NodeId(1)));
        assert!(!group.is_slow_start && group.is_climbing);
    }

    #[test]
    fn replies_to_old_probes_are_ignored() {
        let mut group = congestion(true);
        (0..10).for_each(|round| probes(&mut group, round * 100));
        reports(&mut group, 1000, (1, CcFlags::RTT), 10_000.0);
        let old = CcFeedback {
            sequence: 4,
            flags: CcFlags::RTT,
            rate: message::quantise_rate(10.0),
            ..CcFeedback::default()
        };
        group.received(millis(1000), NodeId(1), &old, None, GRTT);
        assert!(near(group.reporters[&NodeId(1)].rate, 10_000.0));
        let none = CcFeedback { sequence: 10, rate: 0, ..old };
        group.received(millis(1000), NodeId(1), &none, None, GRTT);
        assert!(near(group.reporters[&NodeId(1)].rate, 10_000.0));
    }

    #[test]
    fn a_pause_lowers_the_rate() {
        let mut alone = congestion(false);
        reports(&mut alone, 100, (1, CcFlags::RTT), 64_000.0);
        alone.set(64_000.0, GRTT);
        alone.sent(millis(100), 1000, true);
        // 15.6 ms are the transmission time of the message itself.
        alone.resume(millis(1100), GRTT);
        assert!(near(alone.rate, 64_000.0), "{}", alone.rate);
        alone.sent(millis(1100), 1000, true);
        alone.resume(millis(3200), GRTT);
        assert!(near(alone.rate, 16_000.0), "{}", alone.rate);
        alone.sent(millis(3200), 1000, true);
        alone.resume(millis(60_000), GRTT);
        assert!(near(alone.rate, 1000.0), "{}", alone.rate);
        assert!(alone.is_slow_start);
    }

    #[test]
    fn application_limited_senders_keep_their_rate() {
        let mut alone = congestion(false);
        reports(&mut alone, 100, (1, CcFlags::RTT), 64_000.0);
        alone.set(64_000.0, GRTT);
        let limit = CcFlags::RTT | CcFlags::LIMIT;
        (1..=2).for_each(|round| probes(&mut alone, round * 100));
        reports(&mut alone, 300, (1, limit), 50_000.0);
        assert!(near(alone.rate, 64_000.0), "{}", alone.rate);
        alone.sent(millis(300), 1000, true);
        assert!(alone.check_pace(millis(301)).is_err());
        reports(&mut alone, 400, (1, limit), 50_000.0);
        assert!(near(alone.rate, 50_000.0), "{}", alone.rate);
        // Four segments per round trip are always allowed.
        reports(&mut alone, 500, (1, limit), 10_000.0);
        assert!(near(alone.rate, 40_000.0), "{}", alone.rate);
        alone.set_ceiling(5000.0);
        assert!(near(alone.rate, 5000.0), "{}", alone.rate);
    }

    #[test]
    fn messages_leave_at_the_rate() {
        let mut alone = congestion(false);
        alone.set(100_000.0, GRTT);
        assert_eq!(alone.check_pace(millis(0)), Ok(()));
        alone.sent(millis(0), 1000, true);
        assert_eq!(alone.check_pace(millis(9)), Err(millis(10)));
        alone.sent(millis(10), 500, false);
        assert_eq!(alone.check_pace(millis(10)), Err(millis(15)));
        // A delay of 2 ms of the driver is made up for.
        alone.sent(millis(115), 1000, true);
        assert_eq!(alone.check_pace(millis(115)), Err(millis(123)));
        // A new rate applies at once.
        alone.set(200_000.0, GRTT);
        assert_eq!(alone.check_pace(millis(115)), Err(millis(118)));
    }

    #[test]
    fn a_probe_names_five_receivers() {
        let mut group = congestion(true);
        assert!(group.entries().is_empty());
        for (node, flags, rate) in [
            (1, CcFlags::RTT, 50_000.0),
            (2, CcFlags::NONE, 60_000.0),
            (3, CcFlags::RTT, 10_000.0),
            (4, CcFlags::RTT, 14_000.0),
            (5, CcFlags::RTT, 40_000.0),
            (6, CcFlags::RTT, 45_000.0),
        ] {
            reports(&mut group, 100, (node, flags), rate);
        }
        let entries = group.entries();
        let listed: Vec<_> = entries.iter().map(|entry| (entry.node.0, entry.flags)).collect();
        let rtt = CcFlags::RTT;
        let expected =
            [(3, rtt | CcFlags::CLR), (2, rtt), (4, rtt | CcFlags::PLR), (5, rtt), (6, rtt)];
        assert_eq!(listed, expected);
        assert_eq!(entries[0].rtt, message::quantise_rtt(RTT));
        // At most eight receivers are remembered.
        (10..40).for_each(|node| reports(&mut group, 200, (node, rtt), 1e6));
        assert_eq!(group.reporters.len(), 8);
    }
}
