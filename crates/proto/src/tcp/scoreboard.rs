//! What is in flight: what was sent when, what the peer has, what is lost, and how fast it arrives
//! (RFC 6675, RFC 8985, draft-cheng-iccrg-delivery-rate-estimation).

use std::collections::VecDeque;
use std::time::Duration;

use engine::Time;

use super::cc::RateSample;
use crate::ranges::Ranges;

/// Recoveries for which a longer allowance for reordering lasts (`TCP_RACK_RECOVERY_THRESH`).
const STEPS_LAST: u32 = 16;

/// One segment in flight.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Record {
    pub(crate) start: u64,
    pub(crate) end: u64,
    sent_at: Time,
    sacked: bool,
    lost: bool,
    /// A retransmission is under way.
    resent: bool,
    /// How often it was sent.
    sends: u32,
    /// It was sent more than once, so an acknowledgment may be of either.
    ambiguous: bool,
    app_limited: bool,
    /// What was delivered when it was sent, when that was, and when the first segment was sent of
    /// those that the rate is measured over.
    delivered: u64,
    delivered_at: Time,
    first_sent_at: Time,
}

impl Record {
    fn len(&self) -> u64 {
        self.end - self.start
    }
}

/// What one acknowledgment told.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Delivery {
    /// Octets acknowledged cumulatively.
    pub(crate) acked: u64,
    /// Octets newly acknowledged selectively.
    pub(crate) sacked: u64,
    /// Octets first acknowledged, in either way.
    pub(crate) newly_delivered: u64,
    /// Times since segments were sent that are acknowledged cumulatively, and were sent once.
    pub(crate) acked_rtt: Option<Elapsed>,
    /// Times since segments were sent that are acknowledged selectively, and were sent once.
    pub(crate) sacked_rtt: Option<Elapsed>,
    /// A retransmitted segment is acknowledged cumulatively.
    pub(crate) resent_acked: bool,
    /// Bytes of the longest segment that was first acknowledged, in either way.
    pub(crate) longest: u64,
    newest: Option<Newest>,
    /// Behind the highest byte that had arrived before this acknowledgment.
    highest_before: Option<u64>,
}

/// Times since the first and since the last of some segments were sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Elapsed {
    pub(crate) oldest: Duration,
    pub(crate) latest: Duration,
}

impl Elapsed {
    fn with(range: Option<Self>, took: Duration) -> Self {
        let Self { oldest, latest } = range.unwrap_or(Self { oldest: took, latest: took });
        Self { oldest: oldest.max(took), latest: latest.min(took) }
    }
}

#[derive(Clone, Copy, Debug)]
struct Newest {
    prior_delivered: u64,
    prior_at: Time,
    sent_at: Time,
    first_sent_at: Time,
    app_limited: bool,
}

#[derive(Clone, Debug)]
pub(crate) struct Scoreboard {
    records: VecDeque<Record>,
    /// What is acknowledged selectively, in whole segments.
    sacked: Ranges,
    una: u64,
    nxt: u64,
    sacked_octets: u64,
    lost_octets: u64,
    resent_octets: u64,
    /// Octets that duplicate acknowledgments say have left, without saying which.
    phantom: u64,
    /// What lies before it and is not acknowledged was held for lost once.
    lost_to: u64,
    /// `lost_to` without timeouts: if a timeout is taken back, what the scoreboard or the time has
    /// decided before it is not decided again.
    judged_to: u64,
    /// Nothing before it waits to be sent again.
    resend_from: u64,
    /// Behind the last octet that was sent again: HighRxt.
    high_resent: u64,
    /// Retransmissions in the order of time.
    resends: VecDeque<(Time, u64)>,
    delivered: u64,
    delivered_at: Time,
    first_sent_at: Time,
    /// Until so much is delivered, samples are of an application that had less to send.
    app_limited_until: u64,
    /// When the segment was sent that was sent last of those that arrived, its end, and the time it
    /// took.
    rack: Option<(Time, u64, Duration)>,
    /// The least round trip, below which nothing is believed.
    least_rtt: Option<Duration>,
    /// Behind the highest octet that arrived.
    highest: u64,
    /// Something arrived after what was sent later.
    reordered: bool,
    /// Quarters of the least round trip that something may be late.
    steps: u32,
    /// Recoveries after which that is one quarter again.
    steps_last: u32,
}

impl Scoreboard {
    /// Nothing is in flight; `at` is sent next.
    pub(crate) fn new(at: u64) -> Self {
        Self {
            records: VecDeque::new(),
            sacked: Ranges::new(),
            una: at,
            nxt: at,
            sacked_octets: 0,
            lost_octets: 0,
            resent_octets: 0,
            phantom: 0,
            lost_to: at,
            judged_to: at,
            resend_from: at,
            high_resent: at,
            resends: VecDeque::new(),
            delivered: 0,
            delivered_at: Time::ZERO,
            first_sent_at: Time::ZERO,
            app_limited_until: 0,
            rack: None,
            least_rtt: None,
            highest: at,
            reordered: false,
            steps: 1,
            steps_last: 0,
        }
    }

    /// The least round trip of the connection, as far as it is known.
    pub(crate) fn least_rtt(&mut self, least: Option<Duration>) {
        self.least_rtt = least;
    }

    /// Octets sent and not acknowledged cumulatively: FlightSize.
    pub(crate) fn out(&self) -> u64 {
        self.nxt - self.una
    }

    /// Octets thought to be in the network.
    pub(crate) fn pipe(&self) -> u64 {
        let gone = self.sacked_octets + self.lost_octets + self.phantom;
        (self.out() + self.resent_octets).saturating_sub(gone)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    pub(crate) fn has_sacked(&self) -> bool {
        self.sacked_octets > 0
    }

    pub(crate) fn sacked(&self) -> u64 {
        self.sacked_octets
    }

    /// Whether the path reorders.
    pub(crate) fn is_reordered(&self) -> bool {
        self.reordered
    }

    /// In quarters of the least round trip, how much later a segment may come.
    pub(crate) fn reordering_steps(&self) -> u32 {
        self.steps
    }

    /// What was held for lost was late: it may be later from now on (RFC 8985 §6.2, step 4).
    pub(crate) fn was_reordered(&mut self) {
        self.reordered = true;
        self.steps = (self.steps + 1).min(16);
        self.steps_last = STEPS_LAST;
    }

    /// A recovery is over. After 16 of them without a late segment, one quarter of the least round
    /// trip is enough again (RFC 8985 §6.2, step 4).
    pub(crate) fn recovered(&mut self) {
        self.steps_last = self.steps_last.saturating_sub(1);
        if self.steps_last == 0 {
            self.steps = 1;
        }
    }

    pub(crate) fn lost(&self) -> u64 {
        self.lost_octets
    }

    pub(crate) fn delivered(&self) -> u64 {
        self.delivered
    }

    /// Segments held, for the memory they take.
    pub(crate) fn memory(&self) -> usize {
        self.records.len() * size_of::<Record>() + self.sacked.len() * 64
    }

    /// All that is allowed is sent, and nothing more is there to send.
    pub(crate) fn app_limited(&mut self) {
        self.app_limited_until = (self.delivered + self.pipe()).max(1);
    }

    pub(crate) fn is_app_limited(&self) -> bool {
        // What is sent behind the last of it is limited, too, until something more was there to send.
        self.app_limited_until > 0 && self.delivered <= self.app_limited_until
    }

    /// New octets `start..end` are sent.
    pub(crate) fn send(&mut self, now: Time, start: u64, end: u64) {
        if self.records.is_empty() {
            (self.first_sent_at, self.delivered_at) = (now, now);
        }
        self.nxt = end;
        let record = Record {
            start,
            end,
            sent_at: now,
            sacked: false,
            lost: false,
            resent: false,
            sends: 1,
            ambiguous: false,
            app_limited: self.is_app_limited(),
            delivered: self.delivered,
            delivered_at: self.delivered_at,
            first_sent_at: self.first_sent_at,
        };
        self.records.push_back(record);
    }

    /// The segment at `index` is sent again.
    pub(crate) fn resend(&mut self, now: Time, index: usize) {
        let limited = self.is_app_limited();
        let Some(record) = self.records.get_mut(index) else { return };
        if !record.resent {
            record.resent = true;
            self.resent_octets += record.len();
        }
        record.ambiguous = true;
        record.sends = record.sends.saturating_add(1);
        record.sent_at = now;
        record.app_limited = limited;
        record.delivered = self.delivered;
        record.delivered_at = self.delivered_at;
        record.first_sent_at = self.first_sent_at;
        self.high_resent = self.high_resent.max(record.end);
        self.resends.push_back((now, record.start));
    }

    /// The segment at `index`, cut in two if it is longer than `most`.
    pub(crate) fn segment(&mut self, index: usize, most: u64) -> Option<(u64, u64)> {
        let record = self.records.get_mut(index)?;
        if record.len() > most {
            let mut rest = *record;
            let middle = record.start + most;
            record.end = middle;
            rest.start = middle;
            self.records.insert(index + 1, rest);
        }
        self.records.get(index).map(|record| (record.start, record.end))
    }

    fn index_of(&self, at: u64) -> usize {
        self.records.partition_point(|record| record.end <= at)
    }

    /// The first segment that is lost and was not sent again.
    pub(crate) fn next_lost(&mut self) -> Option<usize> {
        if self.lost_octets == 0 {
            return None;
        }
        let from = self.index_of(self.resend_from);
        let found = self.records.range(from..).position(|r| r.lost && !r.resent && !r.sacked);
        let index = found.map(|at| from + at);
        self.resend_from = index.map_or(self.nxt, |index| self.records[index].start);
        index
    }

    /// The last segment in flight that is not acknowledged.
    pub(crate) fn last_unsacked(&self) -> Option<usize> {
        self.records.iter().rposition(|record| !record.sacked)
    }

    /// A segment below the highest that is acknowledged, beyond what was sent again (rule 3 of
    /// NextSeg, RFC 6675 §4).
    pub(crate) fn next_unsure(&self) -> Option<usize> {
        let highest = self.sacked.end();
        let from = self.index_of(self.high_resent);
        let mut rest = self.records.range(from..).take_while(|record| record.end < highest);
        rest.position(|record| !record.sacked && !record.resent).map(|at| from + at)
    }

    /// Everything before `una` is acknowledged.
    pub(crate) fn acknowledge(&mut self, now: Time, una: u64, delivery: &mut Delivery) {
        delivery.acked = una - self.una;
        self.una = una;
        while let Some(front) = self.records.front_mut() {
            if front.start >= una {
                break;
            }
            let mut record = *front;
            record.end = record.end.min(una);
            if front.end <= una {
                self.records.pop_front();
            } else {
                front.start = una;
            }
            let len = record.len();
            if record.sacked {
                self.sacked_octets -= len;
                continue;
            }
            self.lost_octets -= if record.lost { len } else { 0 };
            self.resent_octets -= if record.resent { len } else { 0 };
            delivery.resent_acked |= record.ambiguous;
            if !record.ambiguous {
                let took = now.since(record.sent_at);
                delivery.acked_rtt = Some(Elapsed::with(delivery.acked_rtt, took));
            }
            self.deliver(now, &record, delivery);
        }
        self.sacked.remove(0, una);
        while self.resends.front().is_some_and(|(_, start)| *start < una) {
            self.resends.pop_front();
        }
        self.lost_to = self.lost_to.max(una);
        self.resend_from = self.resend_from.max(una);
        self.high_resent = self.high_resent.max(una);
    }

    /// `start..end` is acknowledged selectively. It says whether any of that is news.
    pub(crate) fn sack(
        &mut self,
        now: Time,
        start: u64,
        end: u64,
        delivery: &mut Delivery,
    ) -> bool {
        let mut at = start.max(self.una);
        let mut any = false;
        loop {
            let gap = self.sacked.gaps(at, end).next();
            let Some((from, to)) = gap else { return any };
            at = to;
            let first = self.records.partition_point(|record| record.start < from);
            let mut covered = None;
            for index in first..self.records.len() {
                let record = self.records[index];
                if record.end > to {
                    break;
                }
                self.sack_one(now, index, delivery);
                covered = Some((covered.map_or(record.start, |(start, _)| start), record.end));
            }
            if let Some((start, end)) = covered {
                self.sacked.insert(start, end);
                any = true;
            }
        }
    }

    fn sack_one(&mut self, now: Time, index: usize, delivery: &mut Delivery) {
        let record = self.records[index];
        if record.sacked {
            return;
        }
        let len = record.len();
        self.lost_octets -= if record.lost { len } else { 0 };
        self.resent_octets -= if record.resent { len } else { 0 };
        self.sacked_octets += len;
        delivery.sacked += len;
        if !record.ambiguous {
            let took = now.since(record.sent_at);
            delivery.sacked_rtt = Some(Elapsed::with(delivery.sacked_rtt, took));
        }
        self.deliver(now, &record, delivery);
        let place = &mut self.records[index];
        (place.sacked, place.lost, place.resent) = (true, false, false);
    }

    fn deliver(&mut self, now: Time, record: &Record, delivery: &mut Delivery) {
        let len = record.len();
        self.delivered += len;
        self.delivered_at = now;
        delivery.newly_delivered += len;
        delivery.longest = delivery.longest.max(len);
        let took = now.since(record.sent_at);
        // One acknowledgment may cover segments on both sides of a gap, in any order of its blocks:
        // only what arrived before it shows that the path reorders.
        let highest = *delivery.highest_before.get_or_insert(self.highest);
        self.reordered |= !record.ambiguous && record.end < highest;
        self.highest = self.highest.max(record.end);
        if delivery.newest.is_none_or(|newest| record.delivered >= newest.prior_delivered) {
            delivery.newest = Some(Newest {
                prior_delivered: record.delivered,
                prior_at: record.delivered_at,
                sent_at: record.sent_at,
                first_sent_at: record.first_sent_at,
                app_limited: record.app_limited,
            });
            self.first_sent_at = record.sent_at;
        }
        // An acknowledgment that comes sooner than any other is of the original (RFC 8985 §6.2).
        let sure = !record.ambiguous || self.least_rtt.is_none_or(|least| took >= least);
        let later = self.rack.is_none_or(|(at, end, _)| (record.sent_at, record.end) > (at, end));
        if later && sure {
            self.rack = Some((record.sent_at, record.end, took));
        }
    }

    /// The rate at which data was delivered.
    pub(crate) fn rate(&self, delivery: &Delivery) -> Option<RateSample> {
        let newest = delivery.newest?;
        let sending = newest.sent_at.since(newest.first_sent_at);
        let arriving = self.delivered_at.since(newest.prior_at);
        let interval = sending.max(arriving);
        // What arrives faster than the round trip is an artefact of the acknowledgments.
        let sound = !interval.is_zero() && self.least_rtt.is_none_or(|least| interval >= least);
        sound.then_some(RateSample {
            delivered: self.delivered - newest.prior_delivered,
            interval,
            prior_delivered: newest.prior_delivered,
            app_limited: newest.app_limited,
        })
    }

    /// One more duplicate acknowledgment says that a segment has left.
    pub(crate) fn add_phantom(&mut self, octets: u64) {
        let rest = self.out().saturating_sub(self.lost_octets);
        self.phantom = (self.phantom + octets).min(rest);
    }

    /// So much of what they said is explained.
    pub(crate) fn take_phantom(&mut self, octets: u64) {
        self.phantom = self.phantom.saturating_sub(octets);
    }

    pub(crate) fn clear_phantom(&mut self) {
        self.phantom = 0;
    }

    /// Where the scoreboard's rule puts the end of what is lost: more than two segments, or three
    /// runs, are acknowledged behind it (IsLost, RFC 6675 §4).
    pub(crate) fn loss_edge(&self, mss: u64) -> Option<u64> {
        const DUP_THRESH: u64 = 3;
        let (mut runs, mut octets) = (0, 0);
        for (start, end) in self.sacked.iter().rev() {
            runs += 1;
            octets += end - start;
            if runs >= DUP_THRESH || octets > (DUP_THRESH - 1) * mss {
                return Some(start);
            }
        }
        None
    }

    /// Holds for lost what lies before `edge` and was not held for lost before. Returns its octets.
    pub(crate) fn lose_to(&mut self, edge: u64) -> u64 {
        let mut octets = 0;
        let from = self.index_of(self.lost_to);
        for index in from..self.records.len() {
            if self.records[index].end > edge {
                break;
            }
            octets += self.lose(index);
        }
        self.lost_to = self.lost_to.max(edge);
        self.judged_to = self.judged_to.max(edge);
        octets
    }

    /// Holds the first segment for lost. Returns its octets.
    pub(crate) fn lose_first(&mut self) -> u64 {
        if self.records.is_empty() { 0 } else { self.lose(0) }
    }

    /// Bytes of the first segment in flight.
    pub(crate) fn first_len(&self) -> u64 {
        self.records.front().map_or(0, Record::len)
    }

    /// Where the first segment begins that is lost and was not sent again.
    pub(crate) fn first_lost(&mut self) -> Option<u64> {
        self.next_lost().map(|index| self.records[index].start)
    }

    /// Marks segments under way with more than `most` bytes as lost. Returns their bytes.
    pub(crate) fn lose_longer(&mut self, most: u64) -> u64 {
        let mut lost = 0;
        for index in 0..self.records.len() {
            let record = self.records[index];
            if record.sacked || record.len() <= most || (record.lost && !record.resent) {
                continue;
            }
            lost += if record.resent { self.lose_again(index) } else { self.lose(index) };
        }
        lost
    }

    /// The segment as it was sent first is lost.
    fn lose(&mut self, index: usize) -> u64 {
        let record = &mut self.records[index];
        if record.sacked || record.lost {
            return 0;
        }
        record.lost = true;
        self.lost_octets += record.len();
        self.resend_from = self.resend_from.min(record.start);
        record.len()
    }

    /// What was sent again is lost, too.
    fn lose_again(&mut self, index: usize) -> u64 {
        let len = self.lose(index);
        let record = &mut self.records[index];
        record.resent = false;
        self.resent_octets -= record.len();
        self.resend_from = self.resend_from.min(record.start);
        len.max(record.len())
    }

    /// What was sent before something that arrived, by more than `allowance`, is lost (RFC 8985
    /// §6.2). Returns its octets, and when to look again.
    pub(crate) fn lose_by_time(&mut self, now: Time, allowance: Duration) -> (u64, Option<Time>) {
        let Some((rack_at, rack_end, took)) = self.rack else { return (0, None) };
        let patience = took + allowance;
        let (mut octets, mut again): (u64, Option<Time>) = (0, None);
        // Segments that were sent once lie in the order of time.
        let mut index = self.index_of(self.lost_to);
        while let Some(record) = self.records.get(index).copied() {
            if !record.sacked && !record.ambiguous {
                if (record.sent_at, record.end) >= (rack_at, rack_end) {
                    break;
                }
                if record.sent_at + patience > now {
                    again = Some(record.sent_at + patience);
                    break;
                }
                octets += self.lose(index);
            }
            self.lost_to = record.end;
            self.judged_to = self.judged_to.max(record.end);
            index += 1;
        }
        // Those that were sent again are in an order of their own.
        while let Some((at, start)) = self.resends.front().copied() {
            let index = self.index_of(start);
            let record = self.records.get(index).filter(|r| r.start <= start && start < r.end);
            if let Some(record) = record.filter(|r| !r.sacked && r.resent && r.sent_at == at) {
                if (at, record.end) >= (rack_at, rack_end) {
                    break;
                }
                if at + patience > now {
                    again = Some(again.map_or(at + patience, |other| other.min(at + patience)));
                    break;
                }
                octets += self.lose_again(index);
            }
            self.resends.pop_front();
        }
        (octets, again)
    }

    /// The timer ran out: everything is lost that is not acknowledged. If the first segment is
    /// acknowledged selectively, the peer has thrown it away, and what it said counts no more
    /// (RFC 2018 §8).
    pub(crate) fn lose_all(&mut self) -> u64 {
        if self.records.front().is_some_and(|record| record.sacked) {
            self.records.iter_mut().for_each(|record| record.sacked = false);
            self.sacked = Ranges::new();
            self.sacked_octets = 0;
        }
        let before = self.lost_octets;
        self.lost_octets = 0;
        for record in self.records.iter_mut().filter(|record| !record.sacked) {
            (record.lost, record.resent) = (true, false);
            self.lost_octets += record.len();
        }
        self.resent_octets = 0;
        self.phantom = 0;
        self.resends.clear();
        (self.lost_to, self.resend_from) = (self.nxt, self.una);
        self.lost_octets.saturating_sub(before)
    }

    /// The peer lacks `start..end`: what is in flight of it is lost, but for what was sent again
    /// within `embargo`, of which the peer cannot know. Returns its octets.
    pub(crate) fn lose_hole(&mut self, now: Time, start: u64, end: u64, embargo: Duration) -> u64 {
        let mut octets = 0;
        for index in self.index_of(start)..self.records.len() {
            let record = self.records[index];
            if record.start >= end {
                break;
            }
            if record.sacked || (record.resent && now < record.sent_at + embargo) {
                continue;
            }
            octets += if record.resent { self.lose_again(index) } else { self.lose(index) };
        }
        octets
    }

    /// The first segment in flight is lost, and the last, even if it was sent again.
    pub(crate) fn lose_ends(&mut self) {
        let last = self.last_unsacked();
        for index in [Some(0), last].into_iter().flatten() {
            match self.records.get(index) {
                Some(record) if record.resent => _ = self.lose_again(index),
                Some(_) => _ = self.lose(index),
                None => {}
            }
        }
    }

    /// What left says nothing of the round trip any more.
    pub(crate) fn forget_times(&mut self) {
        self.records.iter_mut().for_each(|record| record.ambiguous = true);
    }

    /// The end of the first segment, if it is lost after it was sent so often, and lies before `stop`.
    pub(crate) fn worn(&self, transmissions: u32, stop: u64) -> Option<u64> {
        let first = self.records.front()?;
        let worn = first.lost && !first.resent && first.sends >= transmissions;
        (worn && first.end <= stop).then_some(first.end)
    }

    /// The end of what is acknowledged selectively from `at` on.
    pub(crate) fn held_from(&self, at: u64) -> u64 {
        self.sacked.containing(at).map_or(at, |(_, end)| end)
    }

    /// Nothing is lost after all. What was held for lost by the scoreboard or by its time stays
    /// decided, as in Linux: it would be held for lost again by the next acknowledgment. What was sent
    /// again may be lost still.
    pub(crate) fn forgive(&mut self) {
        self.records.iter_mut().for_each(|record| record.lost = false);
        (self.lost_octets, self.phantom) = (0, 0);
        (self.lost_to, self.resend_from) = (self.judged_to.max(self.una), self.nxt);
    }

    /// Time since the first segment in flight was last sent.
    pub(crate) fn head_age(&self, now: Time) -> Option<Duration> {
        self.records.front().map(|record| now.since(record.sent_at))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MSS: u64 = 100;

    fn at(millis: u64) -> Time {
        Time::from_nanos(millis * 1_000_000)
    }

    /// Ten segments of 100 octets, one a millisecond.
    fn ten() -> Scoreboard {
        let mut board = Scoreboard::new(1000);
        (0..10).for_each(|n| board.send(at(n), 1000 + n * MSS, 1000 + (n + 1) * MSS));
        board
    }

    fn segment(board: &mut Scoreboard, index: Option<usize>) -> Option<(u64, u64)> {
        index.and_then(|index| board.segment(index, MSS))
    }

    #[test]
    fn three_runs_or_more_than_two_segments_make_a_loss() {
        let mut board = ten();
        let mut news = Delivery::default();
        assert!(board.sack(at(60), 1200, 1300, &mut news));
        assert_eq!(board.loss_edge(MSS), None);
        assert!(board.sack(at(61), 1400, 1500, &mut news));
        assert_eq!(board.loss_edge(MSS), None, "two runs, 200 octets");
        assert!(!board.sack(at(62), 1400, 1500, &mut news), "no news");
        assert!(board.sack(at(62), 1500, 1600, &mut news));
        assert_eq!(board.loss_edge(MSS), Some(1200), "300 octets, the third hundred of them there");
        assert_eq!((news.sacked, news.newly_delivered), (300, 300));
        assert_eq!(board.lose_to(1200), 200);
        // 1,000 - 300 - 200.
        assert_eq!((board.pipe(), board.lost()), (500, 200));
        let lost = board.next_lost();
        assert_eq!(segment(&mut board, lost), Some((1000, 1100)));
        board.resend(at(63), 0);
        let lost = board.next_lost();
        assert_eq!(segment(&mut board, lost), Some((1100, 1200)));
        board.resend(at(63), 1);
        assert_eq!((board.next_lost(), board.pipe()), (None, 700));
        let unsure = board.next_unsure();
        assert_eq!(segment(&mut board, unsure), Some((1300, 1400)));
        board.acknowledge(at(120), 1400, &mut news);
        assert_eq!((board.out(), board.pipe(), news.resent_acked), (600, 400, true));
    }

    #[test]
    fn what_was_sent_well_before_what_arrived_is_lost_by_time() {
        let mut board = ten();
        let mut news = Delivery::default();
        // Sent at 3 ms, arrives after 50.
        board.sack(at(53), 1300, 1400, &mut news);
        // Sent at 0, 1, 2 ms: due after 50 ms and an allowance of 1.
        assert_eq!(board.lose_by_time(at(51), at(1).since(at(0))), (100, Some(at(52))));
        assert_eq!(board.lose_by_time(at(53), at(1).since(at(0))), (200, None));
        (0..3).for_each(|index| board.resend(at(54), index));
        assert_eq!(board.lose_by_time(at(99), Duration::ZERO), (0, None));
        // Sent again at 54 ms; what was sent at 60 arrives at 110, so that is lost again.
        board.send(at(60), 2000, 2100);
        board.sack(at(110), 2000, 2100, &mut news);
        let (octets, again) = board.lose_by_time(at(110), Duration::ZERO);
        assert_eq!((octets, again), (900, None), "three again and six for the first time");
        let lost = board.next_lost();
        assert_eq!(segment(&mut board, lost), Some((1000, 1100)));
    }

    #[test]
    fn only_what_arrives_behind_an_earlier_report_is_reordered() {
        let mut board = ten();
        // The peer acknowledges every second segment. The first waits for that, the second is lost,
        // and the third brings an acknowledgment of the first with a report of the third.
        let mut news = Delivery::default();
        board.sack(at(60), 1200, 1300, &mut news);
        board.acknowledge(at(60), 1100, &mut news);
        assert!(!board.is_reordered());
        // An acknowledgment is lost; the next one reports the newest block first.
        let mut news = Delivery::default();
        board.sack(at(63), 1700, 1800, &mut news);
        board.sack(at(63), 1400, 1600, &mut news);
        assert!(!board.is_reordered());
        board.sack(at(64), 1300, 1400, &mut Delivery::default());
        assert!(board.is_reordered(), "it arrived after 1400 to 1600 had");
    }

    #[test]
    fn a_longer_allowance_for_reordering_ends_after_16_recoveries() {
        let mut board = ten();
        board.was_reordered();
        (0..15).for_each(|_| board.recovered());
        assert_eq!(board.reordering_steps(), 2);
        board.recovered();
        assert_eq!(board.reordering_steps(), 1);
    }

    #[test]
    fn what_was_lost_before_a_timeout_is_not_judged_again_after_it() {
        let mut board = ten();
        let mut news = Delivery::default();
        board.sack(at(53), 1300, 1400, &mut news);
        assert_eq!(board.lose_by_time(at(53), Duration::ZERO), (300, None));
        board.lose_all();
        board.forgive();
        assert_eq!(board.lose_by_time(at(53), Duration::ZERO), (0, None));
        board.sack(at(57), 1700, 1800, &mut news);
        assert_eq!(board.lose_by_time(at(57), Duration::ZERO), (300, None), "1400 to 1700");
    }

    #[test]
    fn a_time_out_loses_all_and_can_be_forgiven() {
        let mut board = ten();
        let mut news = Delivery::default();
        board.sack(at(60), 1200, 1300, &mut news);
        assert_eq!(board.lose_all(), 900);
        assert_eq!(board.pipe(), 0);
        board.forgive();
        assert_eq!((board.pipe(), board.next_lost()), (900, None));
        // The peer throws away what it had acknowledged at the front.
        board.acknowledge(at(70), 1200, &mut news);
        assert_eq!(board.lose_all(), 800);
        assert!(!board.has_sacked());
    }

    #[test]
    fn duplicate_acknowledgments_without_sack_count_as_segments_that_left() {
        let mut board = ten();
        (0..3).for_each(|_| board.add_phantom(MSS));
        assert_eq!(board.pipe(), 700);
        assert_eq!(board.lose_first(), 100);
        board.resend(at(50), 0);
        assert_eq!(board.pipe(), 700);
        (0..20).for_each(|_| board.add_phantom(MSS));
        assert_eq!(board.pipe(), 100, "the retransmission");
    }

    #[test]
    fn long_segments_are_cut() {
        let mut board = ten();
        assert_eq!(board.segment(0, 60), Some((1000, 1060)));
        assert_eq!(board.segment(1, 60), Some((1060, 1100)));
        let mut news = Delivery::default();
        board.acknowledge(at(9), 1080, &mut news);
        assert_eq!((board.segment(0, 60), board.out()), (Some((1080, 1100)), 920));
    }

    #[test]
    fn the_rate_is_that_of_the_slower_of_sending_and_arriving() {
        let mut board = Scoreboard::new(0);
        let mut news = Delivery::default();
        // Sent at once, arriving at one a 10 ms.
        (0..10).for_each(|n| board.send(at(0), n * MSS, (n + 1) * MSS));
        board.acknowledge(at(100), 100, &mut news);
        board.send(at(100), 1000, 1100);
        for n in 1..10 {
            board.acknowledge(at(100 + 10 * n), 100 + n * 100, &mut Delivery::default());
        }
        let mut news = Delivery::default();
        board.acknowledge(at(200), 1100, &mut news);
        let rate = board.rate(&news).expect("a sample");
        // 1,000 octets from 100 to 200 ms.
        assert_eq!((rate.delivered, rate.interval), (1000, Duration::from_millis(100)));
    }

    #[derive(Clone, Copy, Debug)]
    enum Op {
        Send(u64),
        Ack(u64),
        Sack(u64, u64),
        LoseTo(u64),
        LoseByTime,
        LoseAll,
        Resend,
        Forgive,
    }

    fn op() -> impl Strategy<Value = Op> {
        prop_oneof![
            6 => (1..=MSS).prop_map(Op::Send),
            2 => (0..300_u64).prop_map(Op::Ack),
            4 => (0..1000_u64, 1..300_u64).prop_map(|(start, len)| Op::Sack(start, start + len)),
            1 => (0..500_u64).prop_map(Op::LoseTo),
            2 => Just(Op::LoseByTime),
            1 => Just(Op::LoseAll),
            4 => Just(Op::Resend),
            1 => Just(Op::Forgive),
        ]
    }

    proptest! {
        #[test]
        fn the_counts_are_those_of_the_segments(ops in prop::collection::vec(op(), 1..120)) {
            let mut board = Scoreboard::new(0);
            let mut news = Delivery::default();
            for (n, op) in ops.into_iter().enumerate() {
                let now = at(n as u64);
                let (una, nxt) = (board.una, board.nxt);
                match op {
                    Op::Send(len) => board.send(now, nxt, nxt + len),
                    Op::Ack(by) => board.acknowledge(now, (una + by).min(nxt), &mut news),
                    Op::Sack(start, end) => {
                        let (start, end) = ((una + start).min(nxt), (una + end).min(nxt));
                        board.sack(now, start, end, &mut news);
                    }
                    Op::LoseTo(by) => _ = board.lose_to((una + by).min(nxt)),
                    Op::LoseByTime => _ = board.lose_by_time(now, Duration::ZERO),
                    Op::LoseAll => _ = board.lose_all(),
                    Op::Resend => {
                        let index = board.next_lost();
                        index.into_iter().for_each(|index| board.resend(now, index));
                    }
                    Op::Forgive => board.forgive(),
                }
                let sum = |which: fn(&Record) -> bool| -> u64 {
                    board.records.iter().filter(|r| which(r)).map(Record::len).sum()
                };
                prop_assert_eq!(board.sacked_octets, sum(|r| r.sacked));
                prop_assert_eq!(board.lost_octets, sum(|r| r.lost));
                prop_assert_eq!(board.resent_octets, sum(|r| r.resent));
                prop_assert_eq!(board.out(), sum(|_| true));
                prop_assert_eq!(board.sacked.covered(), board.sacked_octets);
                prop_assert!(board.records.iter().all(|r| !r.sacked || !(r.lost || r.resent)));
                // A pointer never hides what waits to be sent again.
                let first = board.records.iter().position(|r| r.lost && !r.resent);
                prop_assert_eq!(board.next_lost(), first);
            }
        }
    }
}
