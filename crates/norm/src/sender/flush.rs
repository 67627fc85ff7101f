//! End of transfers: announcement, acknowledgement, completion (RFC 5740 §4.2.3.1, §5.1.1,
//! §5.5.3).

use std::time::Duration;

use engine::Time;
use session::path::{Burst, Class};
use session::timer;

use super::{Sender, finished};
use crate::config::EndGame;
use crate::core::{Alarm, Core};
use crate::indication::Failure;
use crate::members::{Members, Persistence, Standing};
use crate::message::{Body, Command, Extensions, NodeId, NodeList, Position};
use crate::outgoing::{Announced, Outgoing};
use crate::refusal::Refusal;
use crate::transmission::Output;

/// Bytes of NORM_CMD(FLUSH) before its list, with the longest payload identifier.
const FLUSH_HEADER: usize = 24;

/// Minimum time between unacknowledged flushes. Over a path of microseconds, all of them would be
/// sent before a receiver that is not scheduled could request anything.
const FLUSH_GAP_MIN: Duration = Duration::from_millis(50);

/// Maximum time between flushes to a group that wait for distant receivers.
const FLUSH_GAP_MAX: Duration = Duration::from_secs(60);

/// Number of flushes per round trip to a single silent receiver, at least [`FLUSH_GAP_IN_SILENCE`]
/// apart.
///
/// After an unannounced outage, the first flush that arrives triggers the request for missing
/// data. It takes a quarter of a round trip until it is sent, half a round trip until it arrives,
/// and one for the request and its repairs: less than two in total.
const FLUSHES_IN_SILENCE: u32 = 4;
const FLUSH_GAP_IN_SILENCE: Duration = Duration::from_millis(100);

/// Time after which the sender gives up on a receiver that sends messages but neither acknowledges
/// nor requests anything.
const REFUSAL: Duration = Duration::from_secs(600);

/// Announcement of the position up to which everything was sent and repaired: the end or, with
/// [`EndGame::Acknowledged`], the end of an object while later ones are being sent.
#[derive(Debug)]
struct Flush {
    /// Last object sent completely.
    through: u64,
    /// Whether the object is the last of all.
    is_end: bool,
    poll: Poll,
}

/// State of an announcement.
#[derive(Debug)]
pub(super) struct Poll {
    /// Last receiver polled for an acknowledgement, if some did not fit in the same message.
    after: Option<NodeId>,
    /// Number of times that it was sent.
    pub(super) sent: u32,
    pub(super) due: bool,
}

/// Announced position, and who is polled for an acknowledgement.
#[derive(Clone, Copy, Debug)]
pub(super) struct Announcement {
    pub(super) position: Position,
    /// Number by which receivers acknowledge the position.
    pub(super) through: u64,
    pub(super) is_group: bool,
    pub(super) most: Persistence,
}

impl Poll {
    /// Announcement that is due at once, or later.
    pub(super) fn new(due: bool) -> Self {
        Self { after: None, sent: 0, due }
    }

    /// Repeats the announcement, if it was sent. Returns whether it was.
    pub(super) fn repeat(&mut self) -> bool {
        self.due |= self.sent > 0;
        self.sent > 0
    }

    /// Sends an announcement (§4.2.3, §5.1.1) in as many messages as needed to name the receivers
    /// that are polled (§5.5.3). Returns `false` if the rest must wait for the next batch.
    pub(super) fn emit(
        &mut self,
        out: &mut Output<'_, '_>,
        members: &mut Members,
        announcement: Announcement,
    ) -> bool {
        let Announcement { position, through, is_group, most } = announcement;
        let (end, receivers) = (out.core.config.sender.end, out.core.config.sender.receivers);
        // Receivers whose replies to probes were suppressed are not known yet.
        let are_unknown = is_group && receivers == 0 && self.sent == 0;
        let whoever = are_unknown || members.expects_others(receivers);
        loop {
            let now = out.departure();
            let room = (out.burst.mtu().saturating_sub(FLUSH_HEADER) / 4).max(1);
            let mut nodes = match end {
                EndGame::Acknowledged => {
                    members.to_ask(through, whoever, now, most, self.after, room + 1)
                }
                EndGame::Flush => Vec::new(),
            };
            let is_last = nodes.len() <= room;
            nodes.truncate(room);
            let body = Body::Command(Command::Flush {
                sender: out.transmission.header(),
                fec: position.fec,
                object: position.object,
                id: position.id,
                ackers: NodeList::new(&nodes),
                others: Extensions::NONE,
            });
            if !out.push(body) {
                return false;
            }
            members.requested(&nodes, out.departure());
            self.after = nodes.last().copied().filter(|_| !is_last);
            if is_last {
                self.due = false;
                self.sent += 1;
                return true;
            }
        }
    }
}

/// Flushes of a sender.
#[derive(Debug, Default)]
pub(super) struct Flushes {
    under_way: Option<Flush>,
    /// Earliest time for a flush that requests acknowledgements in the middle of a transfer.
    earliest: Time,
}

impl Flushes {
    /// Repeats the current announcement. Returns whether there is one.
    pub(super) fn repeat(&mut self) -> bool {
        self.under_way.as_mut().is_some_and(|flush| flush.poll.repeat())
    }

    pub(super) fn is_due(&self) -> bool {
        self.under_way.as_ref().is_some_and(|flush| flush.poll.due)
    }

    /// Stops announcements.
    pub(super) fn stop(&mut self) {
        self.under_way = None;
    }
}

impl Sender {
    /// Last object such that everything requested of it and of all earlier objects was sent; and
    /// whether it is the last of all.
    fn sent_through(&self) -> Option<(u64, bool)> {
        let mut objects = self.objects.iter();
        let sent = objects.by_ref().take_while(|object| object.is_settled());
        let last = sent.last()?.id.number;
        // The written part of a stream is announced separately.
        let end = self.objects.iter().rev().find(|object| !object.is_open_stream());
        let is_end = end.is_some_and(|object| object.id.number == last);
        Some((last, is_end && !self.repairs.is_collecting))
    }

    /// Announces a new position up to which everything was sent.
    pub(super) fn check_flush(&mut self, core: &mut Core, now: Time) {
        let is_asking = core.config.sender.end == EndGame::Acknowledged;
        let sent = self.sent_through().filter(|(_, is_end)| *is_end || is_asking);
        let Some((through, is_end)) = sent else {
            self.end_flush(core);
            return;
        };
        if is_end && self.next_round(core, now) {
            self.end_flush(core);
            return;
        }
        let wait = self.flushes.earliest.since(now);
        match self.flushes.under_way.as_mut() {
            Some(flush) if (flush.through, flush.is_end) == (through, is_end) => return,
            // An announcement that was not sent yet takes the new position.
            Some(flush) if flush.poll.sent == 0 && !is_end => {
                flush.through = through;
                return;
            }
            Some(_) | None => self.end_flush(core),
        }
        // One request for all small objects of a round trip: not more acknowledgements than
        // segments.
        let due = is_end || wait.is_zero();
        let poll = Poll::new(due);
        self.flushes.under_way = Some(Flush { through, is_end, poll });
        // Acknowledgements that arrived during the repairs suffice.
        self.finish_objects(core, now);
        if self.objects.is_empty() {
            return;
        }
        if due {
            self.base.want(&mut core.shared, Class::Control);
        } else {
            self.base.alarm(&mut core.shared, Alarm::Flush, now, wait);
        }
    }

    /// Withdraws an announcement that is no longer true.
    pub(super) fn end_flush(&mut self, core: &mut Core) {
        self.flushes.under_way = None;
        self.base.disarm(&mut core.shared, Alarm::Flush);
    }

    pub(super) fn flush_again(&mut self, core: &mut Core, now: Time) {
        self.finish_objects(core, now);
        self.check_flush(core, now);
        let robust = core.config.sender.robust_factor;
        let Some(flush) = self.flushes.under_way.as_mut() else { return };
        if core.config.sender.end == EndGame::Flush && flush.poll.sent >= robust {
            let open = usize::from(self.objects.back().is_some_and(Outgoing::is_open_stream));
            self.finish_front(core, self.objects.len() - open, None, |_| Ok(()));
        } else if !self.base.is_armed(Alarm::Flush) {
            flush.poll.due = true;
            self.base.want(&mut core.shared, Class::Control);
        }
    }

    pub(super) fn persistence(&self, core: &Core) -> Persistence {
        let config = &core.config.sender;
        let auto = timer::inactivity(self.transmission.round_trip());
        let patience = config.patience.duration(auto, 0);
        Persistence { polls: config.robust_factor, patience, refusal: REFUSAL.min(patience) }
    }

    /// Finishes objects that every receiver has, or whose receivers do not reply.
    pub(super) fn finish_objects(&mut self, core: &mut Core, now: Time) {
        let config = &core.config.sender;
        let Some(flush) =
            self.flushes.under_way.as_ref().filter(|_| config.end == EndGame::Acknowledged)
        else {
            return;
        };
        let (through, receivers) = (flush.through, config.receivers);
        let most = self.persistence(core);
        let wait = self.transmission.twice();
        let are_unknown = self.is_group && receivers == 0;
        let taken = self.stream_taken(now, most, receivers).filter(|number| *number <= through);
        let is_over = |object: &&Outgoing| {
            if taken == Some(object.id.number) {
                return true;
            }
            let number = object.id.number;
            let standing = self.members.standing(number, receivers);
            // In a group of unknown size, all receivers get time to reply, and are polled again.
            let end = object.announced.filter(|_| number <= through);
            end.is_some_and(|end| !are_unknown || end.is_again && now >= end.first + wait)
                && (standing.is_complete() || self.members.is_in_vain(number, receivers, now, most))
        };
        let count = self.objects.iter().take_while(is_over).count();
        self.finish_front(core, count, taken, |standing| match standing {
            Standing { expected: 0, .. } => Err(Failure::NoReceiver),
            Standing { expected, have, .. } if have < expected => {
                Err(Failure::Unacknowledged { missing: expected - have, known: expected })
            }
            Standing { .. } => Ok(()),
        });
    }

    /// Finishes the first objects.
    fn finish_front(
        &mut self,
        core: &mut Core,
        count: usize,
        taken: Option<u64>,
        result: impl Fn(Standing) -> Result<(), Failure>,
    ) {
        let mut last = None;
        for mut object in self.objects.drain(..count) {
            object.close(core);
            core.free.push(object.handle);
            last = Some(object.id.number);
            let standing = self.members.standing(object.id.number, core.config.sender.receivers);
            let is_confirmed =
                standing.have > 0 && standing.have >= self.members.len() && !self.members.are_more;
            let is_taken = taken == Some(object.id.number);
            let result = if is_taken { Ok(()) } else { result(standing) };
            finished(core, &object, result, standing.have, is_confirmed || is_taken);
        }
        if let Some(last) = last.filter(|_| self.objects.is_empty()) {
            self.members.keep(last);
        }
        self.rest(core);
    }

    /// Announces the end, and requests acknowledgements.
    pub(super) fn emit_flush(&mut self, core: &mut Core, burst: &mut Burst<'_>) -> bool {
        let most = self.persistence(core);
        let through = self.flushes.under_way.as_ref().map_or(0, |flush| flush.through);
        let position = self.end_of(core, through);
        let (Some(position), Some(flush)) = (position, self.flushes.under_way.as_mut()) else {
            self.end_flush(core);
            return true;
        };
        let announcement = Announcement { position, through, is_group: self.is_group, most };
        let mut out = Output { core, transmission: &mut self.transmission, burst };
        if !flush.poll.emit(&mut out, &mut self.members, announcement) {
            return false;
        }
        let (at, sent) = (burst.departure(), flush.poll.sent);
        for object in self.objects.iter_mut().filter(|object| object.id.number <= through) {
            let first = object.announced.map(|end| end.first);
            let is_again = first.is_some();
            object.announced = Some(Announced { first: first.unwrap_or(at), is_again });
        }
        let answers = self.segment_time(core) * self.members.len();
        self.flushes.earliest = at + self.transmission.twice().max(answers);
        let wait = self.flush_gap(core, at, sent);
        self.base.alarm(&mut core.shared, Alarm::Flush, at, wait);
        true
    }

    /// Time until the next flush after `sent` flushes.
    pub(super) fn flush_gap(&self, core: &Core, now: Time, sent: u32) -> Duration {
        let config = &core.config.sender;
        let twice = self.transmission.twice();
        if config.is_one_way() {
            return FLUSH_GAP_MIN;
        }
        if config.end == EndGame::Flush {
            return twice.max(FLUSH_GAP_MIN);
        }
        if self.is_group {
            let rarer = sent.saturating_sub(config.robust_factor);
            return (twice * (1 << rarer.min(16))).min(twice.max(FLUSH_GAP_MAX));
        }
        let is_silent = sent > 1 && now.since(self.base.last_received) >= twice;
        let often = (self.transmission.round_trip() / FLUSHES_IN_SILENCE).max(FLUSH_GAP_IN_SILENCE);
        if is_silent { often } else { twice }
    }

    /// The last segment of an object.
    fn end_of(&self, core: &Core, number: u64) -> Option<Position> {
        let object = self.objects.iter().find(|object| object.id.number == number)?;
        Some(Position { fec: core.config.sender.fec, object: object.number(), id: object.end() })
    }

    /// Notes that a receiver cannot store an object. It is not polled any more; if all receivers
    /// are known and none can store it, the object ends.
    pub(super) fn on_refusal(
        &mut self,
        core: &mut Core,
        now: Time,
        node: NodeId,
        refusal: Refusal,
    ) {
        let mut objects = self.objects.iter();
        let object = objects.find(|object| object.number() == refusal.object);
        let Some(object) = object.filter(|object| !object.is_open_stream()) else { return };
        let number = object.id.number;
        if !self.members.refuse(node, number) {
            return;
        }
        let receivers = core.config.sender.receivers;
        let standing = self.members.standing(number, receivers);
        let are_known = !self.is_group || receivers > 0;
        if are_known && standing.is_complete() && standing.have == 0 {
            self.cancel(core, now, number, Failure::Refused(refusal.reason));
        } else {
            self.finish_objects(core, now);
            self.check_flush(core, now);
        }
    }
}
