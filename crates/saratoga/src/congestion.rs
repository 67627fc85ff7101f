//! Congestion control of a sender: its record of sent packets, and the time of the next one
//! (draft-wood-tsvwg-saratoga-congestion-control-12 §2.1, draft-eddy-tsvwg-saratoga-tfrc-12).
//!
//! Each DATA packet is numbered, repairs like new data. The STATUS for a request determines the
//! fate of all packets sent before that request: they are in a hole, or arrived.

use std::collections::VecDeque;
use std::time::Duration;

use engine::Time;

use super::tfrc::Tfrc;
use crate::packet::Hole;

/// Packets due within this time are sent together, so that not every packet needs a timer.
const BATCH: Duration = Duration::from_millis(1);

/// Consecutive packets of the same length, except the last.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Run {
    /// Number of the first packet.
    number: u64,
    packets: u64,
    /// Bytes in each packet.
    len: u64,
    /// Range of the file they carry.
    start: u64,
    end: u64,
    /// Sending times of the first and the last packet.
    since: Time,
    until: Time,
    /// Number of STATUS requests sent before.
    question: u64,
    /// Whether the allowed rate held back one of these packets.
    is_held: bool,
}

impl Run {
    fn next(&self) -> u64 {
        self.number + self.packets
    }

    /// Sending time of a packet, evenly interpolated between the first and the last.
    fn left_at(&self, index: u64) -> Time {
        let (gaps, took) = (self.packets.saturating_sub(1).max(1), self.until.since(self.since));
        self.since + took.mul_f64(index as f64 / gaps as f64)
    }

    /// Forgets packets before `offset`, a packet boundary.
    fn forget_until(&mut self, offset: u64) {
        let count = (offset - self.start) / self.len;
        self.since = self.left_at(count);
        self.number += count;
        self.packets -= count;
        self.start = offset;
    }
}

/// STATUS in reply to a request.
#[derive(Debug)]
pub(crate) struct Answer<'a> {
    /// Sending time and number of the request.
    pub(crate) at: Time,
    pub(crate) question: u64,
    /// Whether the request was sent at once, so that it measures the round trip.
    pub(crate) is_prompt: bool,
    /// Whether other packets of the same STATUS list further holes.
    pub(crate) is_partial: bool,
    /// Offset below which all data has arrived or is in a hole.
    pub(crate) known_to: u64,
    /// Holes in ascending order.
    pub(crate) holes: &'a [Hole],
}

/// Rate control of one session.
#[derive(Debug)]
pub(crate) struct Control {
    tfrc: Tfrc,
    /// Packets of unknown fate, in sending order.
    runs: VecDeque<Run>,
    runs_max: usize,
    /// Number of the next packet.
    next: u64,
    /// Time at which the last packet was due, and its bytes.
    last: Option<(Time, usize)>,
    /// Maximum driver delay that is made up for.
    credit: Duration,
    is_held: bool,
    /// Newest request with a reply.
    answered: u64,
    /// Start of the current measurement of the receive rate, its bytes, and whether the allowed
    /// rate held any of them back.
    counting: Option<Time>,
    arrived: u64,
    was_held: bool,
    /// Whether anything was sent since the wait for a reply began.
    has_sent: bool,
}

impl Control {
    /// Rate control for packets of `segment` bytes. `rtt` is the round trip, if known; `late` the
    /// maximum driver delay. At most `runs_max` runs are remembered.
    pub(crate) fn new(
        segment: usize,
        rtt: Option<Duration>,
        late: Duration,
        runs_max: usize,
    ) -> Self {
        Self {
            tfrc: Tfrc::new(segment, rtt),
            runs: VecDeque::new(),
            runs_max: runs_max.max(1),
            next: 0,
            last: None,
            credit: 2 * BATCH + late,
            is_held: false,
            answered: 0,
            counting: None,
            arrived: 0,
            was_held: false,
            has_sent: false,
        }
    }

    /// Interval of STATUS requests: half of a round trip, so that one reply may be lost. Before
    /// that is known, each packet requests one.
    pub(crate) fn ask_within(&self) -> Duration {
        self.tfrc.rtt().unwrap_or_default() / 2
    }

    fn due(&self) -> Option<Time> {
        self.last.map(|(at, len)| at + self.tfrc.interval(len))
    }

    /// Checks that a packet may be sent at this time; the error is the time to try again.
    pub(crate) fn check_pace(&mut self, at: Time) -> Result<(), Time> {
        let Some(due) = self.due().filter(|due| *due > at) else { return Ok(()) };
        self.is_held = true;
        let interval = self.last.map_or(BATCH, |(_, len)| self.tfrc.interval(len));
        Err(due + BATCH.saturating_sub(interval))
    }

    /// Records a sent packet with this part of the file, after `question` requests.
    pub(crate) fn sent(&mut self, at: Time, offset: u64, len: usize, question: u64) {
        let earliest = at - self.credit;
        self.last = Some((self.due().map_or(at, |due| due.max(earliest)), len));
        self.has_sent = true;
        let is_held = std::mem::take(&mut self.is_held);
        let (number, bytes) = (self.next, len as u64);
        self.next += 1;
        let end = offset + bytes;
        if let Some(run) = self.runs.back_mut()
            && run.question == question
            && run.end == offset
            && run.end - run.start == run.packets * run.len
            && bytes <= run.len
        {
            run.packets += 1;
            run.end = end;
            run.until = at;
            run.is_held |= is_held;
            return;
        }
        if self.runs.len() >= self.runs_max {
            self.runs.pop_front();
        }
        self.runs.push_back(Run {
            number,
            packets: 1,
            len: bytes,
            start: offset,
            end,
            since: at,
            until: at,
            question,
            is_held,
        });
    }

    /// Processes a STATUS. Returns whether it is new.
    pub(crate) fn answered(&mut self, now: Time, answer: &Answer<'_>) -> bool {
        let is_news = answer.question > self.answered;
        self.answered = self.answered.max(answer.question);
        if answer.is_prompt && is_news {
            self.tfrc.sample(now, now.since(answer.at));
        }
        let settled = self.settle(answer);
        self.count(now, settled);
        self.tfrc.update(now);
        is_news
    }

    /// Reports losses to TFRC. Returns the bytes that arrived, if any fate became known.
    fn settle(&mut self, answer: &Answer<'_>) -> Option<u64> {
        let mut arrived = None;
        let mut kept = VecDeque::new();
        let count = self.runs.partition_point(|run| run.question < answer.question);
        for mut run in self.runs.drain(..count) {
            // A partly known packet counts as unknown.
            let known = run.end.min(answer.known_to).saturating_sub(run.start);
            let known = if known == run.end.saturating_sub(run.start) {
                run.end
            } else {
                run.start + known / run.len * run.len
            };
            let lost = tell_losses(&mut self.tfrc, &run, known, answer.holes);
            if known == run.start || answer.is_partial {
                kept.push_back(run);
                continue;
            }
            *arrived.get_or_insert(0) += (known - run.start).saturating_sub(lost);
            self.was_held |= run.is_held;
            if known < run.end {
                run.forget_until(known);
                self.tfrc.settled(run.number - 1);
                kept.push_back(run);
            } else {
                self.tfrc.settled(run.next() - 1);
            }
        }
        kept.append(&mut self.runs);
        self.runs = kept;
        arrived
    }

    /// Counts received bytes, and reports their rate once per round trip.
    fn count(&mut self, now: Time, settled: Option<u64>) {
        let Some(settled) = settled else { return };
        let Some(since) = self.counting else {
            // The time in which the first reply's data arrived is unknown.
            self.counting = Some(now);
            self.was_held = false;
            return;
        };
        self.arrived += settled;
        let took = now.since(since);
        if self.tfrc.rtt().is_none_or(|rtt| took < rtt) {
            return;
        }
        let rate = self.arrived as f64 / took.as_secs_f64();
        self.tfrc.arrives(now, rate, !self.was_held);
        self.counting = Some(now);
        self.arrived = 0;
        self.was_held = false;
    }

    /// Halves the rate after a missing reply. Returns whether to wait for another.
    pub(crate) fn silence(&mut self, now: Time) -> bool {
        let is_idle = !std::mem::take(&mut self.has_sent);
        self.tfrc.silence(now, is_idle)
    }

    /// Starts the wait for a reply. Returns its duration.
    pub(crate) fn wait(&mut self) -> Duration {
        self.has_sent = false;
        self.tfrc.patience()
    }
}

/// Reports packets of a run in holes below `known` as lost. Returns their bytes.
fn tell_losses(tfrc: &mut Tfrc, run: &Run, known: u64, holes: &[Hole]) -> u64 {
    let first = holes.partition_point(|hole| hole.last < run.start);
    let (mut lost, mut covered) = (0, run.start);
    for hole in &holes[first..] {
        let (start, end) = (hole.start.max(covered), hole.last.saturating_add(1).min(known));
        if start >= end {
            break;
        }
        lost += end - start;
        covered = end;
        for index in (start - run.start) / run.len..=(end - 1 - run.start) / run.len {
            tfrc.lost(run.number + index, run.left_at(index));
        }
    }
    lost
}

#[cfg(test)]
mod tests {
    use super::*;

    const RTT: Duration = Duration::from_millis(100);

    fn millis(millis: u64) -> Time {
        Time::from_nanos(millis * 1_000_000)
    }

    /// Reply to a request sent at `at`.
    fn answer(at: Time, question: u64, known_to: u64, holes: &[Hole]) -> Answer<'_> {
        Answer { at, question, is_prompt: true, is_partial: false, known_to, holes }
    }

    fn control() -> Control {
        Control::new(1000, Some(RTT), Duration::ZERO, 8)
    }

    #[test]
    fn packets_leave_at_the_allowed_rate() {
        let mut control = control();
        // Four packets per round trip: 25 ms each.
        assert_eq!(control.check_pace(millis(0)), Ok(()));
        control.sent(millis(0), 0, 1000, 0);
        assert_eq!(control.check_pace(millis(24)), Err(millis(25)));
        assert_eq!(control.check_pace(millis(26)), Ok(()));
        control.sent(millis(26), 1000, 500, 0);
        // One was late, and the next compensates.
        assert_eq!(control.check_pace(millis(26)), Err(Time::from_nanos(37_500_000)));
        control.sent(millis(80), 1500, 1000, 0);
        assert_eq!(control.check_pace(millis(80)), Err(millis(103)), "but no more than 2 ms");
    }

    #[test]
    fn statuses_cover_packets_sent_before_their_request() {
        let mut control = control();
        for packet in 0..10 {
            // Requests 1 and 2 go with packets 3 and 6.
            let question = u64::from(packet > 3) + u64::from(packet > 6);
            control.sent(millis(packet * 25), packet * 1000, 1000, question);
        }
        assert_eq!(control.runs.len(), 3);
        assert!(control.answered(millis(200), &answer(millis(100), 1, 4000, &[])));
        assert_eq!(control.runs.len(), 2);
        assert!(!control.answered(millis(201), &answer(millis(100), 1, 4000, &[])), "nothing new");
        let rate = control.tfrc.rate();
        // Packet 5 is missing. So is 8, but that was sent after the request.
        let holes = [Hole { start: 5000, last: 5999 }, Hole { start: 8000, last: 8999 }];
        control.answered(millis(300), &answer(millis(200), 2, 9000, &holes));
        assert_eq!(control.runs.len(), 1);
        assert!(control.tfrc.rate() < rate, "{}", control.tfrc.rate());
        let rate = control.tfrc.rate();
        // 8 was sent 75 ms after 5: the same event. A repair of 5 is lost 300 ms later: another.
        control.sent(millis(425), 5000, 1000, 3);
        control.answered(millis(500), &answer(millis(400), 3, 10_000, &holes[1..]));
        assert!(control.tfrc.rate() >= rate);
        control.answered(millis(600), &answer(millis(500), 4, 10_000, &holes[..1]));
        assert!(control.tfrc.rate() < rate);
        assert!(control.runs.is_empty());
    }

    #[test]
    fn packets_beyond_the_status_are_kept() {
        let mut control = control();
        for packet in 0..4 {
            control.sent(millis(packet), packet * 1000, 1000, 0);
        }
        control.answered(millis(100), &answer(millis(0), 1, 2500, &[]));
        let run = &control.runs[0];
        assert_eq!((run.number, run.packets, run.start, run.end), (2, 2, 2000, 4000));
        assert_eq!((run.since, run.until), (millis(2), millis(3)));
        // Each part of a split STATUS lists some holes, and confirms nothing.
        let holes = [Hole { start: 3000, last: 3999 }];
        let part = Answer { is_partial: true, ..answer(millis(100), 2, 4000, &holes) };
        control.answered(millis(200), &part);
        assert_eq!(control.runs.len(), 1);
    }

    #[test]
    fn memory_is_bounded() {
        let mut control = control();
        for packet in 0..100 {
            control.sent(millis(packet), packet * 2000, 1000, 0);
        }
        assert_eq!(control.runs.len(), 8);
    }
}
