//! Scoreboard of data in flight: sending times, acknowledgments, losses, and the delivery rate
//! (RFC 6675, RFC 8985, draft-cheng-iccrg-delivery-rate-estimation).

mod rate;
mod reordering;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::time::Duration;

use engine::Time;
use session::ranges::Ranges;

use self::rate::{DeliveryRate, Newest, Snapshot};
use self::reordering::Reordering;
use super::cc::RateSample;

/// Segment in flight.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Record {
    pub(crate) start: u64,
    pub(crate) end: u64,
    sent_at: Time,
    sacked: bool,
    lost: bool,
    /// Whether a retransmission is in flight.
    resent: bool,
    /// Number of transmissions.
    sends: u32,
    /// Whether it was sent more than once, so that an acknowledgment is ambiguous.
    ambiguous: bool,
    /// State of the delivery rate when it was sent.
    rate: Snapshot,
}

impl Record {
    fn len(&self) -> u64 {
        self.end - self.start
    }
}

/// Content of one acknowledgment.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Delivery {
    /// Bytes acknowledged cumulatively.
    pub(crate) acked: u64,
    /// Bytes newly acknowledged selectively.
    pub(crate) sacked: u64,
    /// Bytes acknowledged for the first time, in either way.
    pub(crate) newly_delivered: u64,
    /// Times since cumulatively acknowledged segments were sent, if sent once.
    pub(crate) acked_rtt: Option<Elapsed>,
    /// Times since selectively acknowledged segments were sent, if sent once.
    pub(crate) sacked_rtt: Option<Elapsed>,
    /// Whether a retransmitted segment is acknowledged cumulatively.
    pub(crate) resent_acked: bool,
    /// Bytes of the longest segment acknowledged for the first time, in either way.
    pub(crate) longest: u64,
    newest: Option<Newest>,
    /// End of the highest byte that had arrived before this acknowledgment.
    highest_before: Option<u64>,
}

/// Times since the first and the last of some segments were sent.
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

/// Segments in flight.
#[derive(Clone, Debug)]
pub(crate) struct Scoreboard {
    records: VecDeque<Record>,
    /// Selectively acknowledged ranges, in whole segments.
    sacked: Ranges,
    una: u64,
    nxt: u64,
    sacked_bytes: u64,
    lost_bytes: u64,
    resent_bytes: u64,
    /// Bytes that duplicate acknowledgments report as delivered, without naming them.
    phantom: u64,
    /// End of the range in which unacknowledged data was considered lost.
    lost_to: u64,
    /// `lost_to` without timeouts: after an undone timeout, earlier decisions of the scoreboard or
    /// by time are not repeated.
    judged_to: u64,
    /// Position before which nothing waits for retransmission.
    resend_from: u64,
    /// End of the last retransmitted byte: HighRxt.
    high_resent: u64,
    /// Retransmissions in order of time.
    resends: VecDeque<(Time, u64)>,
    rate: DeliveryRate,
    reordering: Reordering,
    /// Minimum round trip; shorter samples are ignored.
    least_rtt: Option<Duration>,
}

impl Scoreboard {
    /// Empty scoreboard; `at` is sent next.
    pub(crate) fn new(at: u64) -> Self {
        Self {
            records: VecDeque::new(),
            sacked: Ranges::new(),
            una: at,
            nxt: at,
            sacked_bytes: 0,
            lost_bytes: 0,
            resent_bytes: 0,
            phantom: 0,
            lost_to: at,
            judged_to: at,
            resend_from: at,
            high_resent: at,
            resends: VecDeque::new(),
            rate: DeliveryRate::new(),
            reordering: Reordering::new(at),
            least_rtt: None,
        }
    }

    /// Sets the minimum round trip of the connection, if known.
    pub(crate) fn least_rtt(&mut self, least: Option<Duration>) {
        self.least_rtt = least;
    }

    /// Bytes sent and not acknowledged cumulatively: FlightSize.
    pub(crate) fn out(&self) -> u64 {
        self.nxt - self.una
    }

    /// Estimated bytes in the network.
    pub(crate) fn pipe(&self) -> u64 {
        let gone = self.sacked_bytes + self.lost_bytes + self.phantom;
        (self.out() + self.resent_bytes).saturating_sub(gone)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    pub(crate) fn has_sacked(&self) -> bool {
        self.sacked_bytes > 0
    }

    pub(crate) fn sacked(&self) -> u64 {
        self.sacked_bytes
    }

    /// Bytes of the retransmissions in flight.
    pub(crate) fn resent(&self) -> u64 {
        self.resent_bytes
    }

    /// Whether the path reorders.
    pub(crate) fn is_reordered(&self) -> bool {
        self.reordering.is_seen()
    }

    /// Allowed lateness of a segment, in quarters of the minimum round trip.
    pub(crate) fn reordering_steps(&self) -> u32 {
        self.reordering.steps()
    }

    /// Allows more lateness after a segment considered lost was late (RFC 8985 §6.2, step 4).
    pub(crate) fn on_late_segment(&mut self) {
        self.reordering.allow_more();
    }

    /// Notes the end of a recovery.
    pub(crate) fn recovered(&mut self) {
        self.reordering.recovered();
    }

    pub(crate) fn lost(&self) -> u64 {
        self.lost_bytes
    }

    pub(crate) fn delivered(&self) -> u64 {
        self.rate.delivered()
    }

    /// Memory of the segments held, in bytes.
    pub(crate) fn memory(&self) -> usize {
        self.records.len() * size_of::<Record>() + self.sacked.len() * 64
    }

    /// Notes that everything allowed was sent and no more data is available.
    pub(crate) fn app_limited(&mut self) {
        self.rate.app_limited(self.pipe());
    }

    pub(crate) fn is_app_limited(&self) -> bool {
        self.rate.is_app_limited()
    }

    /// Adds new bytes `start..end`.
    pub(crate) fn send(&mut self, now: Time, start: u64, end: u64) {
        if self.records.is_empty() {
            self.rate.begin(now);
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
            rate: self.rate.snapshot(),
        };
        self.records.push_back(record);
    }

    /// Notes the retransmission of the segment at `index`.
    pub(crate) fn resend(&mut self, now: Time, index: usize) {
        let Some(record) = self.records.get_mut(index) else { return };
        if !record.resent {
            record.resent = true;
            self.resent_bytes += record.len();
        }
        record.ambiguous = true;
        record.sends = record.sends.saturating_add(1);
        record.sent_at = now;
        record.rate = self.rate.snapshot();
        self.high_resent = self.high_resent.max(record.end);
        self.resends.push_back((now, record.start));
    }

    /// Segment at `index`, split if longer than `most`.
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

    /// First lost segment that was not retransmitted.
    pub(crate) fn next_lost(&mut self) -> Option<usize> {
        if self.lost_bytes == 0 {
            return None;
        }
        let from = self.index_of(self.resend_from);
        let found = self.records.range(from..).position(|r| r.lost && !r.resent && !r.sacked);
        let index = found.map(|at| from + at);
        self.resend_from = index.map_or(self.nxt, |index| self.records[index].start);
        index
    }

    /// Last unacknowledged segment in flight.
    pub(crate) fn last_unsacked(&self) -> Option<usize> {
        self.records.iter().rposition(|record| !record.sacked)
    }

    /// Segment below the highest acknowledged one, beyond the retransmitted ones (rule 3 of
    /// NextSeg, RFC 6675 §4).
    pub(crate) fn next_unsure(&self) -> Option<usize> {
        let highest = self.sacked.end();
        let from = self.index_of(self.high_resent);
        let mut rest = self.records.range(from..).take_while(|record| record.end < highest);
        rest.position(|record| !record.sacked && !record.resent).map(|at| from + at)
    }

    /// Acknowledges everything before `una`.
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
                self.sacked_bytes -= len;
                continue;
            }
            self.lost_bytes -= if record.lost { len } else { 0 };
            self.resent_bytes -= if record.resent { len } else { 0 };
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

    /// Acknowledges `start..end` selectively. Returns whether any of it is new.
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
        self.lost_bytes -= if record.lost { len } else { 0 };
        self.resent_bytes -= if record.resent { len } else { 0 };
        self.sacked_bytes += len;
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
        delivery.newly_delivered += len;
        delivery.longest = delivery.longest.max(len);
        let took = now.since(record.sent_at);
        self.reordering.arrived(record.end, !record.ambiguous, &mut delivery.highest_before);
        self.rate.deliver(now, len, record.sent_at, record.rate, &mut delivery.newest);
        // An acknowledgment within less than the minimum round trip is of the original (RFC 8985
        // §6.2).
        if !record.ambiguous || self.least_rtt.is_none_or(|least| took >= least) {
            self.reordering.advance(record.sent_at, record.end, took);
        }
    }

    /// Delivery rate.
    pub(crate) fn rate(&self, delivery: &Delivery) -> Option<RateSample> {
        self.rate.sample(delivery.newest?, self.least_rtt)
    }

    /// Counts another duplicate acknowledgment, for one delivered segment.
    pub(crate) fn add_phantom(&mut self, bytes: u64) {
        let rest = self.out().saturating_sub(self.lost_bytes);
        self.phantom = (self.phantom + bytes).min(rest);
    }

    /// Removes explained bytes from that count.
    pub(crate) fn take_phantom(&mut self, bytes: u64) {
        self.phantom = self.phantom.saturating_sub(bytes);
    }

    pub(crate) fn clear_phantom(&mut self) {
        self.phantom = 0;
    }

    /// End of lost data by the scoreboard's rule: more than two segments, or three runs, are
    /// acknowledged after it (IsLost, RFC 6675 §4).
    pub(crate) fn loss_edge(&self, mss: u64) -> Option<u64> {
        const DUP_THRESH: u64 = 3;
        let (mut runs, mut bytes) = (0, 0);
        for (start, end) in self.sacked.iter().rev() {
            runs += 1;
            bytes += end - start;
            if runs >= DUP_THRESH || bytes > (DUP_THRESH - 1) * mss {
                return Some(start);
            }
        }
        None
    }

    /// Marks data before `edge` as lost, unless marked before. Returns its bytes.
    pub(crate) fn lose_to(&mut self, edge: u64) -> u64 {
        let mut bytes = 0;
        let from = self.index_of(self.lost_to);
        for index in from..self.records.len() {
            if self.records[index].end > edge {
                break;
            }
            bytes += self.lose(index);
        }
        self.lost_to = self.lost_to.max(edge);
        self.judged_to = self.judged_to.max(edge);
        bytes
    }

    /// Marks the first segment as lost. Returns its bytes.
    pub(crate) fn lose_first(&mut self) -> u64 {
        if self.records.is_empty() { 0 } else { self.lose(0) }
    }

    /// Bytes of the first segment in flight.
    pub(crate) fn first_len(&self) -> u64 {
        self.records.front().map_or(0, Record::len)
    }

    /// Start of the first lost segment that was not retransmitted.
    pub(crate) fn first_lost(&mut self) -> Option<u64> {
        self.next_lost().map(|index| self.records[index].start)
    }

    /// Marks segments in flight with more than `most` bytes as lost. Returns their bytes.
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

    /// Marks the original transmission of a segment as lost.
    fn lose(&mut self, index: usize) -> u64 {
        let record = &mut self.records[index];
        if record.sacked || record.lost {
            return 0;
        }
        record.lost = true;
        self.lost_bytes += record.len();
        self.resend_from = self.resend_from.min(record.start);
        record.len()
    }

    /// Marks a retransmission as lost, too.
    fn lose_again(&mut self, index: usize) -> u64 {
        let len = self.lose(index);
        let record = &mut self.records[index];
        record.resent = false;
        self.resent_bytes -= record.len();
        self.resend_from = self.resend_from.min(record.start);
        len.max(record.len())
    }

    /// Marks data as lost that was sent more than `allowance` before data that arrived (RFC 8985
    /// §6.2). Returns its bytes, and the time of the next check.
    pub(crate) fn lose_by_time(&mut self, now: Time, allowance: Duration) -> (u64, Option<Time>) {
        let Some(rack) = self.reordering.rack() else { return (0, None) };
        let patience = rack.took + allowance;
        let (mut bytes, mut again): (u64, Option<Time>) = (0, None);
        // Segments sent once are in order of time.
        let mut index = self.index_of(self.lost_to);
        while let Some(record) = self.records.get(index).copied() {
            if !record.sacked && !record.ambiguous {
                if !rack.is_after(record.sent_at, record.end) {
                    break;
                }
                if record.sent_at + patience > now {
                    again = Some(record.sent_at + patience);
                    break;
                }
                bytes += self.lose(index);
            }
            self.lost_to = record.end;
            self.judged_to = self.judged_to.max(record.end);
            index += 1;
        }
        // Retransmitted segments have an order of their own.
        while let Some((at, start)) = self.resends.front().copied() {
            let index = self.index_of(start);
            let record = self.records.get(index).filter(|r| r.start <= start && start < r.end);
            if let Some(record) = record.filter(|r| !r.sacked && r.resent && r.sent_at == at) {
                if !rack.is_after(at, record.end) {
                    break;
                }
                if at + patience > now {
                    again = Some(again.map_or(at + patience, |other| other.min(at + patience)));
                    break;
                }
                bytes += self.lose_again(index);
            }
            self.resends.pop_front();
        }
        (bytes, again)
    }

    /// Marks all unacknowledged data as lost after a timeout. If the first segment is selectively
    /// acknowledged, the peer has discarded it, and its SACK information is dropped (RFC 2018 §8).
    pub(crate) fn lose_all(&mut self) -> u64 {
        if self.records.front().is_some_and(|record| record.sacked) {
            self.records.iter_mut().for_each(|record| record.sacked = false);
            self.sacked = Ranges::new();
            self.sacked_bytes = 0;
        }
        let before = self.lost_bytes;
        self.lost_bytes = 0;
        for record in self.records.iter_mut().filter(|record| !record.sacked) {
            (record.lost, record.resent) = (true, false);
            self.lost_bytes += record.len();
        }
        self.resent_bytes = 0;
        self.phantom = 0;
        self.resends.clear();
        (self.lost_to, self.resend_from) = (self.nxt, self.una);
        self.lost_bytes.saturating_sub(before)
    }

    /// Marks data in flight of the missing `start..end` as lost, except retransmissions within
    /// `embargo`, which the peer cannot have reported. Returns its bytes.
    pub(crate) fn lose_hole(&mut self, now: Time, start: u64, end: u64, embargo: Duration) -> u64 {
        let mut bytes = 0;
        for index in self.index_of(start)..self.records.len() {
            let record = self.records[index];
            if record.start >= end {
                break;
            }
            if record.sacked || (record.resent && now < record.sent_at + embargo) {
                continue;
            }
            bytes += if record.resent { self.lose_again(index) } else { self.lose(index) };
        }
        bytes
    }

    /// Marks the first segment in flight as lost, and the last, even if it was retransmitted.
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

    /// Excludes data already sent from round trip samples.
    pub(crate) fn forget_times(&mut self) {
        self.records.iter_mut().for_each(|record| record.ambiguous = true);
    }

    /// End of the first segment, if it is lost after `transmissions` and lies before `stop`.
    pub(crate) fn worn(&self, transmissions: u32, stop: u64) -> Option<u64> {
        let first = self.records.front()?;
        let worn = first.lost && !first.resent && first.sends >= transmissions;
        (worn && first.end <= stop).then_some(first.end)
    }

    /// End of the selectively acknowledged data from `at` on.
    pub(crate) fn held_from(&self, at: u64) -> u64 {
        self.sacked.containing(at).map_or(at, |(_, end)| end)
    }

    /// Undoes spurious losses. Decisions of the scoreboard or by time stay, as in Linux: the next
    /// acknowledgment would repeat them. Retransmissions may still be lost.
    pub(crate) fn forgive(&mut self) {
        self.records.iter_mut().for_each(|record| record.lost = false);
        (self.lost_bytes, self.phantom) = (0, 0);
        (self.lost_to, self.resend_from) = (self.judged_to.max(self.una), self.nxt);
    }

    /// Time since the last transmission of the first segment in flight.
    pub(crate) fn head_age(&self, now: Time) -> Option<Duration> {
        self.records.front().map(|record| now.since(record.sent_at))
    }
}
