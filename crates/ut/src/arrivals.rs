//! Received PDUs, kept below until their content is safe.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use ::cfdp::pdu::{Body, Direction, Pdu, TransactionId, TransmissionMode};
use ::cfdp::{self, Keeping, Part};
use bp::layer::Content;
use bytes::Bytes;
use engine::{
    Completion, EffectError, Engine as _, FileId, FilestoreRequest, Input, OpenMode, Receive,
    StoreEffect, Ticket, Time,
};

use super::below::{Arrival, Below};
use super::{LayeredEntity, Owner};

/// Longest arrival that is read, in bytes: room for several of the longest PDUs.
const BYTES_MAX: u64 = 1 << 20;

/// Wait for the beginning of a file whose end arrived first, where no inactivity timeout is set.
const BEGINNING_WAIT: Duration = Duration::from_secs(3600);

/// Origin and content of an arrival.
#[derive(Debug)]
struct Came {
    from: u64,
    content: Content,
    leaves_file: bool,
    /// Deadline, if it contains the end of a file whose beginning is missing.
    until: Option<Time>,
}

/// An arrival taken from below.
#[derive(Debug)]
struct Held {
    came: Came,
    step: Step,
}

#[derive(Debug)]
enum Step {
    Opening,
    Reading(FileId),
    /// All PDUs were delivered; these parts are not safe.
    Keeping(Vec<(TransactionId, Part)>),
}

/// Arrivals that are not accepted.
#[derive(Debug, Default)]
pub(super) struct Arrivals {
    waiting: VecDeque<(Arrival, Came)>,
    held: BTreeMap<Arrival, Held>,
    /// Arrivals for which the entity had no room; retried when there is room.
    later: VecDeque<(Arrival, Came)>,
    /// Whether the entity has paused reception.
    pub(super) is_paused: bool,
    /// Whether data may have become safe, or there may be room.
    is_changed: bool,
}

impl Arrivals {
    pub(super) fn came(
        &mut self,
        arrival: Arrival,
        from: u64,
        content: Content,
        leaves_file: bool,
    ) {
        self.waiting.push_back((arrival, Came { from, content, leaves_file, until: None }));
    }

    pub(super) fn len(&self) -> usize {
        self.waiting.len() + self.held.len() + self.later.len()
    }

    /// Whether any is from this entity.
    pub(super) fn are_from(&self, number: u64) -> bool {
        let waiting = self.waiting.iter().chain(&self.later).map(|(_, came)| came.from);
        waiting.chain(self.held.values().map(|held| held.came.from)).any(|from| from == number)
    }

    /// Forgets an arrival that the layer below no longer has.
    pub(super) fn forget(&mut self, arrival: Arrival) {
        self.waiting.retain(|(waiting, _)| *waiting != arrival);
        self.later.retain(|(late, _)| *late != arrival);
        // An open file is closed first.
        if self.held.get(&arrival).is_some_and(|held| matches!(held.step, Step::Keeping(_))) {
            self.held.remove(&arrival);
        }
    }

    /// Next deadline of an end without a beginning.
    pub(super) fn next_end(&self) -> Option<Time> {
        self.later.iter().filter_map(|(_, came)| came.until).min()
    }

    /// Removes and returns expired ends without a beginning, and the oldest of more than `most`.
    fn given_up(&mut self, now: Time, most: usize) -> Vec<(Arrival, Came)> {
        let is_over = |came: &Came| came.until.is_some_and(|until| until <= now);
        let orphans = self.later.iter().filter(|(_, came)| came.until.is_some() && !is_over(came));
        let mut excess = orphans.count().saturating_sub(most);
        let (mut kept, mut gone) = (VecDeque::new(), Vec::new());
        for (arrival, came) in std::mem::take(&mut self.later) {
            let is_excess = came.until.is_some() && !is_over(&came) && excess > 0;
            excess -= usize::from(is_excess);
            if is_excess || is_over(&came) {
                gone.push((arrival, came));
            } else {
                kept.push_back((arrival, came));
            }
        }
        self.later = kept;
        gone
    }

    /// Schedules another check of which arrivals are safe.
    pub(super) fn look_again(&mut self) {
        self.is_changed = true;
    }
}

impl<B: Below> LayeredEntity<B> {
    /// Delivers arrivals to the entity, as far as it has room; returns whether there were any.
    pub(super) fn hand_up(&mut self, now: Time) -> bool {
        if !self.entity.is_restored() {
            return false;
        }
        let mut some = false;
        if std::mem::take(&mut self.arrivals.is_changed) {
            some = true;
            for arrival in self.arrivals.held.keys().copied().collect::<Vec<_>>() {
                self.go_on(now, arrival);
            }
            while let Some(late) = self.arrivals.later.pop_back() {
                self.arrivals.waiting.push_front(late);
            }
        }
        while !self.arrivals.is_paused
            && let Some((arrival, came)) = self.arrivals.waiting.pop_front()
        {
            some = true;
            if self.arrivals.held.len() >= self.config.limits.arrivals.max(1)
                && !self.make_room(now)
            {
                self.arrivals.waiting.push_front((arrival, came));
                return false;
            }
            self.take(now, arrival, came);
        }
        some
    }

    /// Releases the arrival that waits for a Metadata PDU, because later arrivals may contain that
    /// PDU. A restart now would lose its data.
    fn make_room(&mut self, now: Time) -> bool {
        let Self { arrivals, entity, .. } = self;
        let is_stuck = |(_, held): &(&Arrival, &Held)| match &held.step {
            Step::Keeping(parts) => {
                parts.iter().any(|(id, _)| entity.keeping(*id, Part::Metadata) == Keeping::Dropped)
            }
            Step::Opening | Step::Reading(_) => false,
        };
        let found = arrivals.held.iter().find(is_stuck).map(|(arrival, _)| *arrival);
        if let Some(arrival) = found {
            self.statistics.unsafe_ends += 1;
            self.let_go(now, arrival);
        }
        found.is_some()
    }

    fn take(&mut self, now: Time, arrival: Arrival, came: Came) {
        let content = came.content.clone();
        self.arrivals.held.insert(arrival, Held { came, step: Step::Opening });
        match content {
            Content::Bytes(bytes) => self.split(now, arrival, &bytes),
            Content::File { len, .. } if len > BYTES_MAX => {
                self.statistics.malformed += 1;
                self.let_go(now, arrival);
            }
            Content::File { name, .. } => {
                let mode = OpenMode::Read;
                self.ask_store(arrival, |ticket| StoreEffect::Open { ticket, name, mode });
            }
        }
    }

    fn ask_store(&mut self, arrival: Arrival, effect: impl FnOnce(Ticket) -> StoreEffect) {
        self.ask(Owner::Read(arrival), effect(Ticket(0)).into());
    }

    /// Handles the completion of a read of an arrival's file.
    pub(super) fn read(
        &mut self,
        now: Time,
        arrival: Arrival,
        result: Result<Completion, EffectError>,
    ) {
        let Some(held) = self.arrivals.held.get_mut(&arrival) else {
            return self.close_orphan(&result);
        };
        match (&held.step, result) {
            (Step::Opening, Ok(Completion::Opened { file, .. })) => {
                held.step = Step::Reading(file);
                let (offset, len) = match &held.came.content {
                    Content::File { offset, len, .. } => (*offset, *len),
                    Content::Bytes(_) => (0, 0),
                };
                let len = usize::try_from(len).unwrap_or(usize::MAX);
                self.ask_store(arrival, |ticket| StoreEffect::Read { ticket, file, offset, len });
            }
            (Step::Reading(file), Ok(Completion::Read(bytes))) => {
                self.effects.push_back(StoreEffect::Close { file: *file }.into());
                self.split(now, arrival, &bytes);
            }
            (Step::Reading(file), _) => {
                self.effects.push_back(StoreEffect::Close { file: *file }.into());
                self.not_read(now, arrival);
            }
            (Step::Opening, _) => self.not_read(now, arrival),
            (Step::Keeping(_), _) => {}
        }
    }

    /// Refuses an arrival; the layer below may deliver it again.
    fn not_read(&mut self, now: Time, arrival: Arrival) {
        self.statistics.unread += 1;
        if let Some(held) = self.arrivals.held.remove(&arrival) {
            self.below.refuse(now, arrival);
            self.leave_file(held.came);
        }
    }

    /// Closes a file that is no longer needed.
    pub(super) fn close_orphan(&mut self, result: &Result<Completion, EffectError>) {
        if let Ok(Completion::Opened { file, .. }) = result {
            self.effects.push_back(StoreEffect::Close { file: *file }.into());
        }
    }

    /// Delivers the PDUs of an arrival, which are concatenated.
    fn split(&mut self, now: Time, arrival: Arrival, bytes: &Bytes) {
        let Some(held) = self.arrivals.held.get(&arrival) else { return };
        let (from, mut at, mut parts) = (held.came.from, 0, Vec::new());
        while at < bytes.len() {
            let Ok(len) = Pdu::len_of_first(&bytes[at..]) else {
                self.statistics.malformed += 1;
                break;
            };
            let refused = self.entity.stats().receptions_refused;
            let part = self.hand_up_pdu(now, from, &bytes[at..at + len]);
            self.pass_effects();
            at += len;
            let Some((id, part)) = part else { continue };
            let is_end = part == Part::End;
            if self.entity.stats().receptions_refused > refused {
                // There is no room for one more reception now.
                return self.put_off(arrival);
            }
            match self.entity.keeping(id, part) {
                // The store is behind; or the end arrived first, which does not start a reception
                // of class 1. The whole arrival is delivered again after a change.
                Keeping::Dropped => return self.put_off(arrival),
                Keeping::Unknown if is_end => return self.put_off_end(now, arrival),
                Keeping::Taken => parts.push((id, part)),
                Keeping::Unknown | Keeping::Safe | Keeping::Over => {}
            }
            // PDUs that wait for a reception to begin may continue now.
            self.arrivals.is_changed |= !is_end && !self.arrivals.later.is_empty();
        }
        if let Some(held) = self.arrivals.held.get_mut(&arrival) {
            held.step = Step::Keeping(parts);
            if let Content::Bytes(bytes) = &mut held.came.content {
                *bytes = Bytes::new();
            }
        }
        self.go_on(now, arrival);
    }

    fn put_off(&mut self, arrival: Arrival) {
        if let Some(held) = self.arrivals.held.remove(&arrival) {
            self.arrivals.later.push_back((arrival, held.came));
        }
    }

    /// Keeps the end of a file whose beginning is missing, for at most the inactivity timeout.
    /// Beyond the bound, the oldest is refused.
    fn put_off_end(&mut self, now: Time, arrival: Arrival) {
        let Some(held) = self.arrivals.held.get_mut(&arrival) else { return };
        let wait = match self.entity.config().remote(held.came.from).inactivity {
            cfdp::Timer::Fixed(wait) => wait,
            cfdp::Timer::Auto => BEGINNING_WAIT,
        };
        held.came.until.get_or_insert(now + wait);
        self.put_off(arrival);
        self.give_up_ends(now);
    }

    /// Refuses ends of files whose beginnings did not arrive.
    pub(super) fn give_up_ends(&mut self, now: Time) {
        for (arrival, came) in self.arrivals.given_up(now, self.config.limits.arrivals) {
            self.statistics.ends_refused += 1;
            self.below.refuse(now, arrival);
            self.leave_file(came);
        }
    }

    /// Makes the content of an arrival safe, and accepts it if it is.
    fn go_on(&mut self, now: Time, arrival: Arrival) {
        let Some(held) = self.arrivals.held.get_mut(&arrival) else { return };
        let Step::Keeping(parts) = &mut held.step else { return };
        let entity = &mut self.entity;
        parts.retain(|(id, part)| entity.keeping(*id, *part) == Keeping::Taken);
        parts.iter().for_each(|(id, _)| entity.keep(now, *id));
        let is_safe = parts.is_empty();
        self.pass_effects();
        if is_safe {
            self.let_go(now, arrival);
        }
    }

    /// Delivers a PDU; returns the part that no peer would retransmit soon: over a layer that
    /// retries for hours, class 2 waits as long.
    fn hand_up_pdu(&mut self, now: Time, from: u64, pdu: &[u8]) -> Option<(TransactionId, Part)> {
        let path = self.path_to(from);
        self.entity.handle_input(now, Input::Receive(Receive::datagram(path, pdu)));
        let Ok(Pdu { header, body }) = Pdu::decode(pdu) else { return None };
        let is_requested_again = B::REPEATS && header.mode == TransmissionMode::Acknowledged;
        if is_requested_again || header.direction != Direction::TowardReceiver {
            return None;
        }
        let part = match body {
            Body::FileData(data) => Part::Data { offset: data.offset, len: data.data.len() as u64 },
            Body::Metadata(_) => Part::Metadata,
            Body::Eof(_) => Part::End,
            Body::Finished(_)
            | Body::Ack(_)
            | Body::Nak(_)
            | Body::Prompt(_)
            | Body::KeepAlive(_)
            | Body::Unknown { .. } => return None,
        };
        Some((header.transaction(), part))
    }

    /// Accepts an arrival: the layer below may discard it.
    fn let_go(&mut self, now: Time, arrival: Arrival) {
        if let Some(held) = self.arrivals.held.remove(&arrival) {
            self.below.accept(now, arrival);
            self.leave_file(held.came);
        }
    }

    fn leave_file(&mut self, came: Came) {
        if let Content::File { name, .. } = came.content
            && came.leaves_file
        {
            let request = FilestoreRequest::DenyFile(name);
            let effect = StoreEffect::Filestore { ticket: Ticket(0), request };
            self.ask(Owner::Nobody, effect.into());
        }
    }
}
