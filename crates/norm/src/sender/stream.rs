//! Sending of a stream: takes its bytes, requests acknowledgements, and releases old blocks.

use engine::Time;
use session::path::Burst;

use super::flush::{Announcement, Poll};
use super::{Alarm, Class, Core, Failure, Outgoing, Sender};
use crate::config::EndGame;
use crate::indication::Indication;
use crate::members::{Members, Persistence};
use crate::message::{Ack, FIELD_BITS_ASSUMED, NodeId, Position};
use crate::transmission::Output;

/// Receivers' progress in a stream. Members acknowledge segments, counted from 1.
#[derive(Debug)]
pub(super) struct Flow {
    pub(super) members: Members,
    mark: Option<Mark>,
    /// Earliest time for the next watermark.
    next: Time,
}

/// Watermark: a segment announced so that receivers request missing data before it, and with
/// [`EndGame::Acknowledged`] acknowledge if nothing is missing (RFC 5740 §5.5.3).
#[derive(Debug)]
struct Mark {
    at: u64,
    /// Bytes up to the watermark.
    bytes: u64,
    /// Whether the segment was the last one written.
    is_end: bool,
    /// Time of the first announcement.
    since: Option<Time>,
    poll: Poll,
}

impl Sender {
    /// The stream, if there is one: nothing is sent after it.
    pub(crate) fn stream(&mut self) -> Option<&mut Outgoing> {
        self.objects.back_mut().filter(|object| object.is_stream())
    }

    pub(crate) fn has_stream(&self) -> bool {
        self.objects.back().is_some_and(Outgoing::is_stream)
    }

    /// Stream with this number, while it is writable.
    pub(crate) fn writable(&mut self, number: u64) -> Option<&mut Outgoing> {
        self.stream().filter(|object| object.id.number == number && object.is_writable())
    }

    /// Starts a stream, if the object is one.
    pub(super) fn begin_stream(&mut self) {
        if self.has_stream() {
            let members = self.members.without_acknowledgements();
            self.flow = Some(Flow { members, mark: None, next: Time::ZERO });
        }
    }

    /// Members that acknowledge objects, and those that acknowledge segments.
    pub(super) fn all_members(&mut self) -> impl Iterator<Item = &mut Members> {
        let flow = self.flow.as_mut().map(|flow| &mut flow.members);
        std::iter::once(&mut self.members).chain(flow)
    }

    /// Resumes after an outage of the path or of its return link.
    pub(super) fn resume_stream(&mut self) {
        if let Some(mark) = self.flow.as_mut().and_then(|flow| flow.mark.as_mut()) {
            mark.poll.repeat();
        }
    }

    /// Number of a closed stream whose bytes were all acknowledged, once receivers were silent for
    /// as many flushes as the RFC requires (§5.1.1). A receiver that has everything need not stay
    /// to acknowledge the end.
    pub(super) fn stream_taken(&self, now: Time, most: Persistence, receivers: u32) -> Option<u64> {
        let stream = self.objects.back().filter(|object| object.is_stream() && object.is_sent())?;
        let has_all = self.flow.as_ref()?.members.least(receivers)? + 1 >= stream.segments_sent();
        let patience = most.patience.min(self.transmission.twice() * most.polls);
        let most = Persistence { patience, ..most };
        let is_silent = self.members.is_in_vain(stream.id.number, receivers, now, most);
        (has_all && is_silent && !stream.is_open_stream()).then_some(stream.id.number)
    }

    /// Proceeds after a write, or after room was found for one.
    pub(crate) fn written(&mut self, core: &mut Core, now: Time) {
        self.make_room(core, now);
        if self.stream().is_some_and(|stream| stream.has_new()) {
            self.advance(core, now);
        }
    }

    /// Releases blocks that need not be kept, and notifies the user of the room.
    pub(super) fn make_room(&mut self, core: &mut Core, now: Time) {
        let Some(stream) = self.objects.back_mut().filter(|object| object.is_stream()) else {
            return;
        };
        if core.config.sender.end == EndGame::Flush {
            // The last data may still be requested: after the back-off of a receiver, the delay of
            // its request, and the time for collecting requests; doubled for safety.
            let keep =
                self.transmission.round_trip() * 2 * (u32::from(self.transmission.backoff) + 2);
            if let Some(at) = stream.release_old(now, keep) {
                self.base.alarm(&mut core.shared, Alarm::Room, now, at.since(now));
            }
        }
        if stream.announce_room() {
            let id = stream.id;
            core.user.indicate(Indication::Writable { id });
        }
    }

    /// Checks whether a watermark is due.
    pub(super) fn check_stream(&mut self, core: &mut Core, now: Time) {
        let stream = self.objects.back().filter(|object| object.is_open_stream());
        let (Some(stream), Some(flow)) = (stream, self.flow.as_mut()) else {
            // Once the stream has an end, this end is announced like the end of other objects.
            self.end_mark(core);
            return;
        };
        let is_asking = core.config.sender.end == EndGame::Acknowledged;
        let is_idle = stream.is_idle() && !self.repairs.is_collecting;
        let sent = stream.segments_sent();
        let at = match &flow.mark {
            Some(mark) if is_idle && (mark.at < sent || !mark.is_end) => sent,
            Some(_) if is_asking || is_idle || !stream.has_new() => 0,
            // Another watermark is due soon.
            Some(_) => {
                self.end_mark(core);
                return;
            }
            None if is_idle => sent,
            None if is_asking => stream.half_sent(),
            None => 0,
        };
        if at > stream.segments_announced() {
            let bytes = stream.bytes_before(at);
            let wait = flow.next.since(now);
            let due = wait.is_zero();
            let is_end = is_idle;
            let poll = Poll::new(due);
            flow.mark = Some(Mark { at, bytes, is_end, since: None, poll });
            self.base.disarm(&mut core.shared, Alarm::Watermark);
            if !due {
                self.base.alarm(&mut core.shared, Alarm::Watermark, now, wait);
            }
        }
        if flow.mark.as_ref().is_some_and(|mark| mark.poll.due) {
            self.base.want(&mut core.shared, Class::Control);
        }
        self.make_room(core, now);
    }

    fn end_mark(&mut self, core: &mut Core) {
        if let Some(flow) = self.flow.as_mut()
            && flow.mark.take().is_some()
        {
            self.base.disarm(&mut core.shared, Alarm::Watermark);
        }
    }

    /// Repeats the current watermark after the repairs that are about to be sent.
    pub(super) fn stream_lacks(&mut self, node: NodeId) {
        let Some(flow) = self.flow.as_mut() else { return };
        // The receiver is active, and is polled further.
        flow.members.lacks(node, u64::MAX);
        if let Some(mark) = flow.mark.as_mut() {
            (mark.poll.due, mark.poll.sent) = (true, 0);
        }
    }

    /// Processes a receiver's acknowledgement of a stream position.
    pub(super) fn on_stream_ack(
        &mut self,
        core: &mut Core,
        now: Time,
        node: NodeId,
        ack: &Ack<'_>,
    ) {
        let Ok(position) = Position::decode(ack.payload, FIELD_BITS_ASSUMED) else { return };
        let stream = self.objects.back_mut().filter(|object| object.number() == position.object);
        let (Some(stream), Some(flow)) = (stream, self.flow.as_mut()) else { return };
        let Some(at) = stream.segment_number(position.id) else { return };
        if !flow.members.acknowledge(node, at, None) {
            return;
        }
        if let Some(at) = flow.members.least(core.config.sender.receivers) {
            stream.release(at);
        }
        self.finish_mark(core, now);
        self.advance(core, now);
    }

    /// Repeats the watermark when its timer fires.
    pub(super) fn mark_again(&mut self, core: &mut Core, now: Time) {
        self.finish_mark(core, now);
        if let Some(mark) = self.flow.as_mut().and_then(|flow| flow.mark.as_mut()) {
            mark.poll.due = true;
            self.base.want(&mut core.shared, Class::Control);
        }
    }

    /// Ends the watermark if all receivers acknowledged it, or none requests anything before it.
    fn finish_mark(&mut self, core: &mut Core, now: Time) {
        let config = &core.config.sender;
        let most = self.persistence(core);
        let wait = self.transmission.twice();
        let are_unknown = self.is_group && config.receivers == 0;
        let stream = self.objects.back_mut().filter(|object| object.is_open_stream());
        let (Some(stream), Some(flow)) = (stream, self.flow.as_mut()) else { return };
        let Some(mark) = flow.mark.as_ref() else { return };
        let standing = flow.members.standing(mark.at, config.receivers);
        let is_over = match config.end {
            EndGame::Flush => mark.poll.sent >= config.robust_factor,
            EndGame::Acknowledged => {
                // In a group of unknown size, all receivers get time to reply.
                let late = mark.since.is_some_and(|since| now >= since + wait);
                let is_announced = !are_unknown || !mark.is_end || mark.poll.sent >= 2 && late;
                let is_in_vain = flow.members.is_in_vain(mark.at, config.receivers, now, most);
                if is_in_vain && !standing.is_complete() {
                    stream.failure = Some(match standing.expected {
                        0 => Failure::NoReceiver,
                        known => Failure::Unacknowledged { missing: known - standing.have, known },
                    });
                    self.advance(core, now);
                    return;
                }
                is_announced && standing.is_complete()
            }
        };
        if !is_over {
            return;
        }
        stream.on_announced(mark.at);
        let (id, bytes, acknowledged) = (stream.id, mark.bytes, standing.have);
        core.user.indicate(Indication::Flushed { id, bytes, acknowledged });
        self.end_mark(core);
        self.check_stream(core, now);
    }

    /// Sends the watermark. Returns `false` if that must wait for the next batch.
    pub(super) fn emit_mark(&mut self, core: &mut Core, burst: &mut Burst<'_>) -> bool {
        let now = burst.departure();
        let most = self.persistence(core);
        let stream = self.objects.back().filter(|object| object.is_open_stream());
        let (Some(stream), Some(flow)) = (stream, self.flow.as_mut()) else { return true };
        let is_held = self.repairs.is_collecting || stream.has_repairs();
        let Some(mark) = flow.mark.as_mut().filter(|mark| mark.poll.due && !is_held) else {
            return true;
        };
        let (fec, object) = (core.config.sender.fec, stream.number());
        let position = Position { fec, object, id: stream.segment_id(mark.at) };
        let is_group = self.is_group;
        let announcement = Announcement { position, through: mark.at, is_group, most };
        let mut out = Output { core, transmission: &mut self.transmission, burst };
        if !mark.poll.emit(&mut out, &mut flow.members, announcement) {
            return false;
        }
        mark.since.get_or_insert(now);
        let (sent, twice) = (mark.poll.sent, self.transmission.twice());
        // At most one request per round trip, and its acknowledgements.
        flow.next = now + if self.is_group { twice } else { twice / 2 };
        let wait = match core.config.sender.end {
            EndGame::Flush => twice,
            EndGame::Acknowledged => self.flush_gap(core, now, sent),
        };
        self.base.alarm(&mut core.shared, Alarm::Watermark, now, wait);
        true
    }
}
