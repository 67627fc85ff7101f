//! What a sender that heeds congestion remembers of its packets, and when it may send the next
//! (draft-wood-tsvwg-saratoga-congestion-control-12 §2.1, draft-eddy-tsvwg-saratoga-tfrc-12).
//!
//! Each DATA packet has a number here, repairs like new data. An answer to a question tells the fate
//! of all packets that left before the question: they are in a hole, or arrived.

use std::collections::VecDeque;
use std::time::Duration;

use engine::Time;
use wire::saratoga::Hole;

use super::tfrc::Tfrc;

/// Packets that are due within this time leave together, so that a timer a packet is not needed.
const BATCH: Duration = Duration::from_millis(1);

/// Packets that left one after the other, all of one length but the last.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Run {
    /// The number of the first.
    number: u64,
    packets: u64,
    /// Bytes in each.
    len: u64,
    /// What of the file they brought.
    start: u64,
    end: u64,
    /// When the first and the last left.
    since: Time,
    until: Time,
    /// Questions that were asked before.
    question: u64,
    /// Whether the allowed rate held one of them back.
    is_held: bool,
}

impl Run {
    fn next(&self) -> u64 {
        self.number + self.packets
    }

    /// When a packet of the run left; those between the first and the last evenly spread.
    fn left_at(&self, index: u64) -> Time {
        let (gaps, took) = (self.packets.saturating_sub(1).max(1), self.until.since(self.since));
        self.since + took.mul_f64(index as f64 / gaps as f64)
    }

    /// Forgets what lies before `offset`, a limit between two packets.
    fn forget_until(&mut self, offset: u64) {
        let count = (offset - self.start) / self.len;
        self.since = self.left_at(count);
        self.number += count;
        self.packets -= count;
        self.start = offset;
    }
}

/// An answer of the receiver to a question.
#[derive(Debug)]
pub(crate) struct Answer<'a> {
    /// When the question left, and its number.
    pub(crate) at: Time,
    pub(crate) question: u64,
    /// Whether it came at once, so that it tells of the round trip.
    pub(crate) is_prompt: bool,
    /// Whether other packets of the same answer tell of other holes.
    pub(crate) is_partial: bool,
    /// All below this is there, or in a hole.
    pub(crate) known_to: u64,
    /// In order.
    pub(crate) holes: &'a [Hole],
}

/// The control of one session.
#[derive(Debug)]
pub(crate) struct Control {
    tfrc: Tfrc,
    /// Packets of which the fate is not known, in the order in which they left.
    runs: VecDeque<Run>,
    runs_max: usize,
    /// The number of the next packet.
    next: u64,
    /// When the last packet was due, and its bytes.
    last: Option<(Time, usize)>,
    /// How much a driver that came late makes up for.
    credit: Duration,
    is_held: bool,
    /// The newest question that was answered.
    answered: u64,
    /// Since when arriving bytes are counted, how many there were, and whether the allowed rate
    /// held any of them back.
    counting: Option<Time>,
    arrived: u64,
    was_held: bool,
    /// Whether anything was sent since the wait for an answer began.
    has_sent: bool,
}

impl Control {
    /// Control over packets of `segment` bytes. `rtt` is the round trip, if it is known;
    /// `late` how late a driver may come; at most `runs_max` series of packets are remembered.
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

    pub(crate) fn memory(&self) -> usize {
        self.runs.len() * size_of::<Run>()
    }

    /// Time within which the receiver is asked for a STATUS: half of a round trip, so that one
    /// answer may be lost. While that is not known, each packet asks.
    pub(crate) fn ask_within(&self) -> Duration {
        self.tfrc.rtt().unwrap_or_default() / 2
    }

    fn due(&self) -> Option<Time> {
        self.last.map(|(at, len)| at + self.tfrc.interval(len))
    }

    /// Whether a packet may leave at this time; if not, when to ask again.
    pub(crate) fn may_send(&mut self, at: Time) -> Result<(), Time> {
        let Some(due) = self.due().filter(|due| *due > at) else { return Ok(()) };
        self.is_held = true;
        let interval = self.last.map_or(BATCH, |(_, len)| self.tfrc.interval(len));
        Err(due + BATCH.saturating_sub(interval))
    }

    /// A packet with this part of the file left, after so many questions.
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

    /// The receiver answered. Whether that was news.
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

    /// Tells the losses; the bytes that arrived, if the fate of any is known now.
    fn settle(&mut self, answer: &Answer<'_>) -> Option<u64> {
        let mut arrived = None;
        let mut kept = VecDeque::new();
        let count = self.runs.partition_point(|run| run.question < answer.question);
        for mut run in self.runs.drain(..count) {
            // A packet that is known in part only is not known.
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

    /// Counts what arrived, and tells its rate once a round trip.
    fn count(&mut self, now: Time, settled: Option<u64>) {
        let Some(settled) = settled else { return };
        let Some(since) = self.counting else {
            // What came with the first answer came in a time that is not known.
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

    /// No answer came in time: the rate is halved. Whether to wait for another.
    pub(crate) fn silence(&mut self, now: Time) -> bool {
        let is_idle = !std::mem::take(&mut self.has_sent);
        self.tfrc.silence(now, is_idle)
    }

    /// Begins to wait for an answer; how long to wait.
    pub(crate) fn wait(&mut self) -> Duration {
        self.has_sent = false;
        self.tfrc.patience()
    }
}

/// Tells which packets of a run are in holes below `known`; how many bytes are.
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

    /// An answer to a question that left then.
    fn answer(at: Time, question: u64, known_to: u64, holes: &[Hole]) -> Answer<'_> {
        Answer { at, question, is_prompt: true, is_partial: false, known_to, holes }
    }

    fn control() -> Control {
        Control::new(1000, Some(RTT), Duration::ZERO, 8)
    }

    #[test]
    fn packets_leave_at_the_allowed_rate() {
        let mut control = control();
        // Four packets a round trip: 25 ms each.
        assert_eq!(control.may_send(millis(0)), Ok(()));
        control.sent(millis(0), 0, 1000, 0);
        assert_eq!(control.may_send(millis(24)), Err(millis(25)));
        assert_eq!(control.may_send(millis(26)), Ok(()));
        control.sent(millis(26), 1000, 500, 0);
        // The one was late, which the next makes up for.
        assert_eq!(control.may_send(millis(26)), Err(Time::from_nanos(37_500_000)));
        control.sent(millis(80), 1500, 1000, 0);
        assert_eq!(control.may_send(millis(80)), Err(millis(103)), "but no more than 2 ms");
    }

    #[test]
    fn an_answer_tells_of_what_left_before_its_question() {
        let mut control = control();
        for packet in 0..10 {
            // Questions 1 and 2 go with packets 3 and 6.
            let question = u64::from(packet > 3) + u64::from(packet > 6);
            control.sent(millis(packet * 25), packet * 1000, 1000, question);
        }
        assert_eq!(control.runs.len(), 3);
        assert!(control.answered(millis(200), &answer(millis(100), 1, 4000, &[])));
        assert_eq!(control.runs.len(), 2);
        assert!(!control.answered(millis(201), &answer(millis(100), 1, 4000, &[])), "nothing new");
        let rate = control.tfrc.rate();
        // Packet 5 is missing. So is 8, but that left after the question.
        let holes = [Hole { start: 5000, last: 5999 }, Hole { start: 8000, last: 8999 }];
        control.answered(millis(300), &answer(millis(200), 2, 9000, &holes));
        assert_eq!(control.runs.len(), 1);
        assert!(control.tfrc.rate() < rate, "{}", control.tfrc.rate());
        let rate = control.tfrc.rate();
        // 8 left 75 ms after 5: the same event. A repair of 5 is lost 300 ms later: another.
        control.sent(millis(425), 5000, 1000, 3);
        control.answered(millis(500), &answer(millis(400), 3, 10_000, &holes[1..]));
        assert!(control.tfrc.rate() >= rate);
        control.answered(millis(600), &answer(millis(500), 4, 10_000, &holes[..1]));
        assert!(control.tfrc.rate() < rate);
        assert!(control.runs.is_empty());
    }

    #[test]
    fn what_an_answer_does_not_reach_is_kept() {
        let mut control = control();
        for packet in 0..4 {
            control.sent(millis(packet), packet * 1000, 1000, 0);
        }
        control.answered(millis(100), &answer(millis(0), 1, 2500, &[]));
        let run = &control.runs[0];
        assert_eq!((run.number, run.packets, run.start, run.end), (2, 2, 2000, 4000));
        assert_eq!((run.since, run.until), (millis(2), millis(3)));
        // Of an answer in parts each tells of some holes, and none of what arrived.
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
        assert_eq!(control.memory(), 8 * size_of::<Run>());
    }
}
