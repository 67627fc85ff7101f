//! Reception of bundles (RFC 9171 §5.6).

use std::collections::VecDeque;

use bytes::{Bytes, BytesMut};
use engine::{Completion, EffectError, EffectResult, FileName, OpenMode, Receive, Time};

use super::super::layer::{Command, Content, Event, LinkId, Refusal, TransferId};
use super::clock::ages;
use super::head::Head;
use super::held::Arrival;
use super::intake::{Body, Fed, Filing, Giver, Intake, There};
use super::shares::Account;
use super::store::Job;
use super::{Agent, Held, Indication, Limit, LinkRef, Priority, Reply};
use crate::codec::bp7::{BundleFlags, Eid, Reason};

/// Most bytes of memory reserved for a payload before it arrives: the announced length is not to
/// be trusted.
const AT_ONCE: usize = 16 << 20;

/// Shortest payload, received at once, that stays in the buffer it came in, in bytes. Half of the
/// pieces' maximum, so that at most twice the payload is held.
const LONG: usize = Receive::PIECE_MAX / 2;
/// Shortest piece that waits for the store in the buffer it came in, in bytes.
const SHORT: usize = 4 << 10;

/// Origin of a bundle.
#[derive(Clone, Copy, Debug)]
struct Origin {
    layer: usize,
    link: LinkId,
    transfer: TransferId,
}

impl Agent {
    /// Handles an event of a layer. Layers are numbered as in [`LinkRef`].
    pub fn handle_event(&mut self, now: Time, layer: usize, event: Event) {
        match event {
            Event::Up { link, neighbour } => {
                self.forwarder.link_up(&mut self.core, now, LinkRef { layer, link }, neighbour)
            }
            Event::Down { link, why } => {
                self.forwarder.link_down(&mut self.core, now, LinkRef { layer, link }, why)
            }
            Event::Begins { link, transfer, bytes } => {
                self.begins(now, Origin { layer, link, transfer }, bytes);
            }
            Event::Piece { link, transfer, bytes } => {
                self.piece(now, Origin { layer, link, transfer }, &bytes);
            }
            Event::Whole { link, transfer, file } => {
                self.whole(now, Origin { layer, link, transfer }, file);
            }
            Event::Broken { transfer, keep, .. } => {
                if let Some(number) = self.intakes.transfers.remove(&(layer, transfer)) {
                    self.broken(now, number, keep);
                }
            }
            Event::Sent { link, tag, outcome } => {
                self.on_sent(now, LinkRef { layer, link }, tag, outcome);
            }
            Event::PeerFault { link, what } => {
                self.core.statistics.malformed += 1;
                self.note(LinkRef { layer, link }, what);
            }
            Event::Refused { link, why } => {
                self.core.statistics.refused += 1;
                match why {
                    Refusal::NotAcceptable => self.note_too_long(now, LinkRef { layer, link }),
                    Refusal::NoResources | Refusal::Completed | Refusal::Retransmit => {
                        self.core.user.limit_reached(Limit::Bytes);
                    }
                }
            }
            Event::Notice { link, what } => self.note(LinkRef { layer, link }, what),
        }
    }

    /// Reports something of a peer that an operator should know.
    fn note(&mut self, at: LinkRef, what: &'static str) {
        let node = self.forwarder.links.node(at).cloned();
        self.core.user.indicate(Indication::Notice { node, what });
    }

    /// Reports once a minute that bundles come for which there never is room.
    pub(super) fn note_too_long(&mut self, now: Time, at: LinkRef) {
        if self.discards.count(now, None, Reason::DepletedStorage).is_some() {
            self.note(at, "a bundle is longer than the store, or than its neighbour's share of it");
        }
    }

    fn begins(&mut self, now: Time, origin: Origin, bytes: Option<u64>) {
        let Origin { layer, link, transfer } = origin;
        let is_full = self.intakes.len() >= self.core.config.limits.incoming;
        if is_full {
            self.core.user.limit_reached(Limit::Incoming);
        }
        let giver = Giver::Layer { layer, link, transfer };
        let by = self.giver_node(giver);
        let (account, bytes) = (Account::new(giver, by.clone()), bytes.unwrap_or(0));
        if account.never_fits(&self.core.config.limits, bytes) {
            self.note_too_long(now, LinkRef { layer, link });
            return self.refuse(origin, Refusal::NotAcceptable);
        }
        if !self.core.stock.is_ready || is_full || !self.core.check_share(&account, bytes) {
            self.refuse(origin, Refusal::NoResources);
            return;
        }
        let number = self.core.number();
        self.core.stock.shares.begin(number, account, bytes);
        self.intakes.transfers.insert((layer, transfer), number);
        let mut intake = Intake::new(giver, Body::Memory(BytesMut::new()));
        intake.by = by;
        self.intakes.insert(number, intake);
    }

    fn refuse(&mut self, origin: Origin, why: Refusal) {
        let Origin { layer, link, transfer } = origin;
        self.reply(Giver::Layer { layer, link, transfer }, None, Reply::Refused(why));
    }

    fn piece(&mut self, now: Time, origin: Origin, bytes: &Bytes) {
        let Some(number) = self.intakes.transfers.get(&(origin.layer, origin.transfer)).copied()
        else {
            return;
        };
        let bounds = self.core.config.limits.head;
        let received = self.core.stock.shares.receive(number, bytes.len() as u64);
        if !self.reserve(now, number, received) {
            return;
        }
        let Some(intake) = self.intakes.get_mut(number) else { return };
        let fed = intake.feed(bytes, &bounds);
        if matches!(fed, Fed::Begins(_))
            && (self.turn_away(number) || !self.reserve_length(now, number))
        {
            return;
        }
        if !self.take(number, fed) {
            self.reject_malformed(number);
        }
    }

    /// Whether there is room for a bundle of the length in its head.
    fn reserve_length(&mut self, now: Time, number: u64) -> bool {
        let head = self.intakes.get(number).and_then(|intake| intake.head());
        let Some(head) = head else { return true };
        let len = head.payload_len().saturating_add(head.encoded_len() as u64);
        self.reserve(now, number, len)
    }

    /// Refuses a bundle that is being received. Returns its giver.
    pub(super) fn refuse_intake(&mut self, number: u64, why: Refusal) -> Option<Giver> {
        let intake = self.intakes.get(number)?;
        let (giver, id) = (intake.giver, intake.id());
        self.drop_intake(number);
        self.reply(giver, id, Reply::Refused(why));
        Some(giver)
    }

    /// Rejects data that are not a valid bundle.
    fn reject_malformed(&mut self, number: u64) {
        if self.refuse_intake(number, Refusal::NotAcceptable).is_some() {
            self.core.statistics.malformed += 1;
        }
    }

    /// Handles a link that broke during reception. The received part is kept as a fragment if the
    /// layer promised that to the sender.
    fn broken(&mut self, now: Time, number: u64, keep: bool) {
        self.let_flow(number);
        let is_cut = keep && self.intakes.get_mut(number).is_some_and(|intake| intake.cut());
        if is_cut {
            self.finish_if_written(now, number);
        } else {
            self.drop_intake(number);
        }
    }

    /// Keeps the result of feeding bytes; returns whether it may still be a bundle.
    fn take(&mut self, number: u64, fed: Fed) -> bool {
        let piece = match fed {
            Fed::Nothing => return true,
            Fed::Malformed => return false,
            Fed::Payload(piece) => piece,
            Fed::Begins(piece) => {
                self.place(number);
                piece
            }
        };
        if let Some((offset, bytes)) = piece {
            self.keep(number, offset, bytes);
        }
        true
    }

    /// Chooses the place of a payload whose length is now known.
    pub(super) fn place(&mut self, number: u64) {
        let limits = self.core.config.limits;
        let Some(intake) = self.intakes.get(number) else { return };
        let Some(len) = intake.head().map(Head::payload_len) else { return };
        if !matches!(intake.body, Body::Memory(_)) {
            return;
        }
        let is_short = len <= limits.inline as u64;
        let in_memory = self.core.stock.memory.saturating_add(self.intakes.memory);
        if is_short && in_memory.saturating_add(len as usize) <= limits.inline_total {
            return self.intakes.collect(number, len as usize);
        }
        let name = self.core.stock.store.file_name(number);
        let waiting = VecDeque::new();
        let filing =
            Filing { name: name.clone(), file: None, waiting, unwritten: 0, syncing: false };
        if let Some(intake) = self.intakes.get_mut(number) {
            intake.body = Body::File(filing);
        }
        self.core.stock.store.effects.open(Job::Open { intake: number }, name, OpenMode::Truncate);
    }

    /// Stores a piece of a payload.
    pub(super) fn keep(&mut self, number: u64, offset: u64, piece: Bytes) {
        let Some(intake) = self.intakes.get_mut(number) else { return };
        let len = intake.head().map_or(0, Head::payload_len);
        match &mut intake.body {
            Body::Memory(bytes) => {
                if piece.len() as u64 == len && piece.len() >= LONG {
                    intake.body = Body::Whole(piece);
                    return;
                }
                if bytes.is_empty() {
                    // Otherwise all of it would move each time it grows.
                    bytes.reserve(usize::try_from(len).map_or(AT_ONCE, |len| len.min(AT_ONCE)));
                }
                bytes.extend_from_slice(&piece);
            }
            Body::File(filing) => {
                // A short piece may share a large buffer for as long as it waits here.
                let piece = match piece.len() {
                    0..SHORT => Bytes::copy_from_slice(&piece),
                    _ => piece,
                };
                filing.unwritten += piece.len();
                match filing.file {
                    Some(file) => self.core.stock.store.write(number, file, offset, piece),
                    None => filing.waiting.push_back((offset, piece)),
                }
                self.throttle(number);
            }
            Body::Whole(_) | Body::There(_) => {}
        }
    }

    /// Pauses a neighbour while too many bytes of one of its bundles wait for the store.
    fn throttle(&mut self, number: u64) {
        let write_ahead = self.core.config.limits.write_ahead;
        let Some(intake) = self.intakes.get_mut(number) else { return };
        let Giver::Layer { layer, link, .. } = intake.giver else { return };
        match intake.flow(write_ahead) {
            Some(true) => {
                let is_first = self.intakes.hold_back(LinkRef { layer, link }, number);
                if is_first {
                    self.core.command(layer, Command::Pause { link });
                }
            }
            Some(false) => self.let_flow(number),
            None => {}
        }
    }

    /// Ends a bundle's pause of its neighbour.
    fn let_flow(&mut self, number: u64) {
        let Some(intake) = self.intakes.get_mut(number) else { return };
        intake.is_paused = false;
        let Giver::Layer { layer, link, .. } = intake.giver else { return };
        if self.intakes.let_flow(LinkRef { layer, link }, number) {
            self.core.command(layer, Command::Resume { link });
        }
    }

    fn whole(&mut self, now: Time, origin: Origin, file: Option<(FileName, u64)>) {
        let Some(number) = self.intakes.transfers.get(&(origin.layer, origin.transfer)).copied()
        else {
            if file.is_some() {
                self.refuse(origin, Refusal::NoResources);
            }
            return;
        };
        let bounds = self.core.config.limits.head;
        let Some(intake) = self.intakes.get_mut(number) else { return };
        let Some((name, end)) = file else {
            let fed = intake.feed_last(&bounds);
            if self.take(number, fed) {
                self.finish_if_written(now, number);
            } else {
                self.reject_malformed(number);
            }
            return;
        };
        intake.is_whole = true;
        intake.body = Body::There(There { name: name.clone(), payload_at: None, owns: true });
        intake.parts = Some(Content::File { name, offset: 0, len: end }.into());
        self.read_parts(now, number);
    }

    /// Finishes a completely received bundle once it is written and synced.
    pub(super) fn finish_if_written(&mut self, now: Time, number: u64) {
        let persistent = self.core.config.persistent;
        let Some(intake) = self.intakes.get_mut(number) else { return };
        if !intake.is_whole {
            return;
        }
        if let Body::File(filing) = &mut intake.body {
            let Some(file) = filing.file.filter(|_| filing.unwritten == 0) else { return };
            if persistent && !filing.syncing {
                filing.syncing = true;
                self.core.stock.store.effects.sync(Job::Sync { intake: number }, file);
                return;
            }
            if persistent {
                return;
            }
        }
        self.finish_intake(now, number);
    }

    pub(super) fn intake_opened(&mut self, now: Time, number: u64, result: EffectResult) {
        let opened = match result {
            Ok(Completion::Opened { file, .. }) => file,
            Ok(_) => return,
            Err(error) => return self.fail_intake(now, number, error),
        };
        let Some(intake) = self.intakes.get_mut(number) else {
            self.core.stock.store.effects.close(opened);
            self.core.stock.store.delete(self.core.stock.store.file_name(number));
            return;
        };
        match &mut intake.body {
            Body::File(filing) => {
                filing.file = Some(opened);
                for (offset, piece) in std::mem::take(&mut filing.waiting) {
                    self.core.stock.store.write(number, opened, offset, piece);
                }
                self.finish_if_written(now, number);
            }
            Body::Memory(_) | Body::Whole(_) | Body::There(_) => {
                self.core.stock.store.effects.close(opened)
            }
        }
    }

    pub(super) fn intake_written(
        &mut self,
        now: Time,
        number: u64,
        bytes: usize,
        result: EffectResult,
    ) {
        if let Err(error) = result {
            return self.fail_intake(now, number, error);
        }
        let Some(intake) = self.intakes.get_mut(number) else { return };
        if let Body::File(filing) = &mut intake.body {
            filing.unwritten = filing.unwritten.saturating_sub(bytes);
            self.throttle(number);
        }
        self.read_parts(now, number);
        self.finish_if_written(now, number);
    }

    /// Reads the next part of a bundle, unless a read is pending or the store has fallen behind.
    pub(super) fn read_parts(&mut self, now: Time, number: u64) {
        let most = self.core.config.limits.write_ahead;
        let job = Job::Part { intake: number };
        loop {
            let Some(intake) = self.intakes.get_mut(number) else { return };
            let is_behind = intake.unwritten() > most;
            let Some(parts) = &mut intake.parts else { return };
            if parts.is_pending || is_behind {
                return;
            }
            match (parts.left.front(), parts.reading) {
                (None, _) => {
                    intake.is_whole = true;
                    intake.parts = None;
                    return self.finish_if_written(now, number);
                }
                (Some(Content::Bytes(bytes)), _) => {
                    let bytes = bytes.clone();
                    parts.left.pop_front();
                    self.feed_part(number, &bytes);
                }
                (Some(Content::File { name, .. }), None) => {
                    parts.is_pending = true;
                    return self.core.stock.store.effects.open(job, name.clone(), OpenMode::Read);
                }
                (Some(Content::File { offset, len, .. }), Some((file, at))) => {
                    let left = offset.saturating_add(*len).saturating_sub(at);
                    if left > 0 {
                        parts.is_pending = true;
                        return self.core.stock.store.effects.read(job, file, at, left);
                    }
                    parts.reading = None;
                    parts.left.pop_front();
                    self.core.stock.store.effects.close(file);
                }
            }
        }
    }

    fn feed_part(&mut self, number: u64, bytes: &Bytes) {
        let bounds = self.core.config.limits.head;
        let Some(intake) = self.intakes.get_mut(number) else { return };
        let fed = intake.feed(bytes, &bounds);
        if !self.take(number, fed) {
            self.reject_malformed(number);
        }
    }

    /// Handles an opened file of a part, or a piece read from it.
    pub(super) fn part_done(&mut self, now: Time, number: u64, result: EffectResult) {
        let intake = self.intakes.get_mut(number);
        let Some((body, parts)) = intake.and_then(|it| Some((&it.body, it.parts.as_mut()?))) else {
            return self.core.stock.store.effects.close_orphan(&result);
        };
        parts.is_pending = false;
        let Some(Content::File { offset, len, .. }) = parts.left.front() else { return };
        match (result, &mut parts.reading) {
            (Ok(Completion::Opened { file, .. }), reading) => *reading = Some((file, *offset)),
            (Ok(Completion::Read(bytes)), Some((_, at))) => {
                *at += bytes.len() as u64;
                if bytes.is_empty() && matches!(body, Body::There(_)) {
                    // It is shorter than its giver announced, and no valid bundle.
                    *at = offset.saturating_add(*len);
                } else if bytes.is_empty() {
                    return self.fail_intake(now, number, EffectError::NotFound);
                }
                self.feed_part(number, &bytes);
            }
            (Ok(_), _) => return,
            (Err(error), _) => return self.fail_intake(now, number, error),
        }
        self.read_parts(now, number);
    }

    /// Refuses a bundle because the store failed.
    pub(super) fn fail_intake(&mut self, now: Time, number: u64, error: EffectError) {
        if self.intakes.get(number).is_none() {
            return;
        }
        self.on_store_failure(error);
        if self.refuse_intake(number, Refusal::NoResources) == Some(Giver::Fragments) {
            self.join_failed(now, number);
        }
        self.forwarder.pump_all(&mut self.core, now);
    }

    /// Reports that the store did not take a bundle.
    pub(super) fn on_store_failure(&mut self, error: EffectError) {
        if error == EffectError::NoSpace {
            self.core.user.limit_reached(Limit::Bytes);
        } else {
            self.core.user.indicate(Indication::StoreFailed(error));
        }
    }

    /// Discards a partly received bundle, and its file.
    pub(super) fn drop_intake(&mut self, number: u64) {
        self.let_flow(number);
        self.core.stock.shares.end(number);
        let Some(intake) = self.intakes.remove(number) else { return };
        intake.open_files().for_each(|file| self.core.stock.store.effects.close(file));
        for name in intake.read_from.iter().chain(intake.leaves()) {
            self.core.stock.store.delete(name.clone());
        }
        self.core.user.limit_left(Limit::Incoming);
    }

    /// Finishes the reception of a bundle.
    pub(super) fn finish_intake(&mut self, now: Time, number: u64) {
        self.let_flow(number);
        self.core.stock.shares.end(number);
        let Some(mut intake) = self.intakes.remove(number) else { return };
        self.core.user.limit_left(Limit::Incoming);
        if let Giver::Layer { layer, transfer, .. } = intake.giver {
            self.intakes.transfers.remove(&(layer, transfer));
        }
        intake.open_files().for_each(|file| self.core.stock.store.effects.close(file));
        let (bounds, id) = (self.core.config.limits.head, intake.id());
        let Some((head, tail)) = intake.finish(&bounds) else {
            self.core.statistics.malformed += 1;
            if let Some(name) = intake.leaves() {
                self.core.stock.store.delete(name.clone());
            }
            let refused = Reply::Refused(Refusal::NotAcceptable);
            return self.reply(intake.giver, id, refused);
        };
        let (payload, owns_file) = intake.content(&head);
        if let Some(name) = intake.read_from.take() {
            self.core.stock.store.delete(name);
        }
        let by = self.begun_by(&intake);
        if intake.secured.is_none() && self.is_to_be_secured(&head) {
            return self.secure(now, number, intake.giver, by, head, payload, owns_file);
        }
        let priority = match intake.giver {
            Giver::User { priority, .. } => priority,
            Giver::Layer { .. } | Giver::Agent | Giver::Remains | Giver::Fragments => {
                head.priority().unwrap_or(Priority::Normal)
            }
        };
        let max = self.lifetime_max(&head, intake.giver, by.as_ref());
        let (age_ms, expires) = ages(&head, now, self.core.clock(), max, &bounds);
        let from = head.previous_node(&bounds);
        let content = Held::new(head, tail, payload, owns_file);
        let arrival = Arrival {
            by,
            is_secured: intake.secured.is_some(),
            verified: intake.secured.take().unwrap_or_default(),
            ..Arrival::default()
        };
        let held = Held { received: now, age_ms, expires, priority, from, arrival, ..content };
        self.judge(now, number, Box::new(held), intake.giver);
    }

    /// Decides whether a whole bundle is accepted.
    fn judge(&mut self, now: Time, number: u64, mut held: Box<Held>, giver: Giver) {
        let verdict = if giver == Giver::Fragments {
            // It may have come whole in the meantime.
            if self.core.stock.knows(&held.key()) { Err(None) } else { Ok(()) }
        } else if giver.is_here() {
            Ok(())
        } else {
            self.core.statistics.received += 1;
            self.weigh(now, &mut held, giver)
        };
        match verdict {
            Ok(()) => self.admit(now, number, held, giver),
            Err(reply) => {
                self.core.leave_content(&held);
                if let Some(reply) = reply {
                    self.reply(giver, Some(held.id()), reply);
                }
            }
        }
    }

    /// Whether an arrived bundle is kept. An error is the reply to its giver, if one is due now.
    fn weigh(&mut self, now: Time, held: &mut Held, giver: Giver) -> Result<(), Option<Reply>> {
        if let Some(why) = self.refuses(&held.head) {
            return Err(Some(Reply::Refused(why)));
        }
        if let Some(reason) = self.rejects(&held.head, held.arrival.is_secured) {
            return Err(Some(self.discard_arrived(now, held, reason)));
        }
        let key = held.key();
        let total = held.head.fragment().map(|fragment| fragment.total);
        if let (Some((offset, len)), Some(total)) = (key.fragment, total)
            && offset.checked_add(len).is_none_or(|end| end > total)
        {
            self.core.statistics.malformed += 1;
            return Err(Some(Reply::Refused(Refusal::NotAcceptable)));
        }
        let known = self.repeats(held);
        if let (None, Some(before)) = (known, self.returns_of(held)) {
            self.take_returned(held, before.0, before.1)?;
        } else if known.is_some() || self.core.stock.gone.contains(&key) || self.is_redundant(held)
        {
            self.core.statistics.duplicates += 1;
            // A copy of an unsafe bundle is not safe either: both get the same reply.
            if known.is_some_and(|number| self.intakes.add_giver(number, giver)) {
                return Err(None);
            }
            let signals = self.custodian.signal_redundant(&mut self.core, now, held);
            self.send_signals(now, signals);
            let reply = self.note_copy(held);
            if reply == Reply::NotNeeded {
                self.report_arrival(now, held);
            }
            return Err(Some(reply));
        }
        if let Some(why) = self.breaks_rule(&held.head, held.arrival.by.as_ref()) {
            return Err(Some(Reply::Refused(why)));
        }
        if held.expires <= now {
            return Err(Some(self.delete_late(now, held)));
        }
        let (account, _) = self.core.share_of(held);
        if !self.core.check_share(&account, held.bytes()) || !self.check_place(held) {
            return Err(Some(Reply::Refused(Refusal::NoResources)));
        }
        if let Some(violation) = self.fault_of_six(&held.head, false) {
            return Err(Some(self.discard_violating(now, held, violation)));
        }
        let bounds = self.core.config.limits.head;
        let unknown = held.head.process_unknown(&mut held.tail, &bounds);
        if unknown.deletes {
            self.report_arrival(now, held);
        }
        if unknown.reports {
            self.report_block(now, held);
        }
        if unknown.deletes {
            Err(Some(self.delete_arrived(now, held, Reason::BlockUnsupported)))
        } else {
            Ok(())
        }
    }

    /// Deletes an arrived bundle, with reports if requested; the reply to its giver.
    pub(super) fn discard_arrived(&mut self, now: Time, held: &Held, reason: Reason) -> Reply {
        self.report_arrival(now, held);
        self.delete_arrived(now, held, reason)
    }

    fn delete_arrived(&mut self, now: Time, held: &Held, reason: Reason) -> Reply {
        self.core.statistics.deleted += 1;
        self.note_discard(now, held, None, reason);
        self.report_of(now, held, BundleFlags::REPORT_DELETION, reason);
        Reply::NotNeeded
    }

    /// Handles a copy of a held bundle that was elsewhere: it came back in a loop, perhaps before
    /// the acknowledgement of its transmission. Nodes on that way take the held bundle for a
    /// repetition, unless its hop count is higher than when it was sent. Each transmission adds at
    /// most one hop, however many copies come. After too many of them the giver keeps the copy.
    fn note_copy(&mut self, copy: &Held) -> Reply {
        let limits = &self.core.config.limits;
        let is_last =
            self.core.config.routing.is_copying() || self.core.is_for_us(copy.destination());
        let held = self
            .core
            .stock
            .by_key
            .get(&copy.key())
            .and_then(|number| self.core.stock.bundles.get_mut(number));
        let Some(held) = held.filter(|held| !is_last && held.was_elsewhere(copy, &limits.head))
        else {
            return Reply::NotNeeded;
        };
        let arrival = &mut held.arrival;
        if !arrival.is_tried {
            return Reply::NotNeeded;
        }
        if arrival.hops >= limits.returns {
            return Reply::Refused(Refusal::NotAcceptable);
        }
        arrival.hops += 1;
        arrival.is_tried = false;
        Reply::NotNeeded
    }

    /// Deletes a bundle that arrived after its lifetime, with a report if requested, as if it had
    /// expired here; the reply to its giver.
    fn delete_late(&mut self, now: Time, held: &Held) -> Reply {
        self.core.statistics.expired += 1;
        let reason = self.core.end_of_life(now, held);
        self.report_arrival(now, held);
        self.report_of(now, held, BundleFlags::REPORT_DELETION, reason);
        self.core.user.indicate(Indication::Deleted { id: held.id(), reason });
        Reply::NotNeeded
    }

    /// Neighbour that began a bundle.
    pub(super) fn begun_by(&self, intake: &Intake) -> Option<Eid> {
        intake.by.clone().or_else(|| self.giver_node(intake.giver))
    }

    /// Neighbour over whose link a bundle came.
    pub(super) fn giver_node(&self, giver: Giver) -> Option<Eid> {
        match giver {
            Giver::Layer { layer, link, .. } => {
                self.forwarder.links.known(LinkRef { layer, link }).cloned()
            }
            Giver::User { .. } | Giver::Agent | Giver::Remains | Giver::Fragments => None,
        }
    }
}
