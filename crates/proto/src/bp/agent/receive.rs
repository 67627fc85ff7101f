//! Bundles that come (RFC 9171 §5.6).

use std::collections::VecDeque;

use bytes::{Bytes, BytesMut};
use engine::{Completion, EffectError, FileName, OpenMode, Time};
use wire::bp7::{BUNDLE_AGE, BlockFlags, BundleFlags, HOP_COUNT, Head, PREVIOUS_NODE, Reason};

use super::super::layer::{Command, Event, LinkId, Refusal, TransferId};
use super::held::{ages, previous_node};
use super::intake::{Body, Fed, Filing, Giver, Intake, READ, Reading};
use super::{Agent, Held, Indication, Limit, LinkRef, Priority};

/// What is processed before unknown blocks are: types of RFC 9171, and the security blocks of RFC 9172, which
/// are kept as they are.
const KNOWN: [u64; 5] = [PREVIOUS_NODE, BUNDLE_AGE, HOP_COUNT, 11, 12];

/// Where a bundle comes from.
#[derive(Clone, Copy, Debug)]
struct Origin {
    layer: usize,
    link: LinkId,
    transfer: TransferId,
}

impl Agent {
    /// Takes what a layer has to say. Layers are numbered by whoever has them, as in [`LinkRef`].
    pub fn handle_event(&mut self, now: Time, layer: usize, event: Event) {
        match event {
            Event::Up { link, neighbour } => self.link_up(now, LinkRef { layer, link }, neighbour),
            Event::Down { link, why } => self.link_down(now, LinkRef { layer, link }, why),
            Event::Begins { link, transfer, octets } => {
                self.begins(Origin { layer, link, transfer }, octets);
            }
            Event::Piece { link, transfer, octets } => {
                self.piece(Origin { layer, link, transfer }, &octets);
            }
            Event::Whole { link, transfer, file } => {
                self.whole(now, Origin { layer, link, transfer }, file);
            }
            Event::Broken { transfer, .. } => {
                if let Some(number) = self.transfers.remove(&(layer, transfer)) {
                    self.drop_intake(number);
                }
            }
            Event::Sent { link, tag, outcome } => {
                self.sent(now, LinkRef { layer, link }, tag, outcome);
            }
            Event::PeerFault { .. } => self.statistics.malformed += 1,
        }
    }

    fn begins(&mut self, origin: Origin, octets: Option<u64>) {
        let Origin { layer, link, transfer } = origin;
        let is_full = self.intakes.len() >= self.config.limits.incoming;
        if is_full {
            self.user.limit_reached(Limit::Incoming);
        }
        if !self.is_ready || is_full || !self.has_room(octets.unwrap_or(0)) {
            self.refuse(origin, Refusal::NoResources);
            return;
        }
        let number = self.number();
        let giver = Giver::Layer { layer, link, transfer };
        self.transfers.insert((layer, transfer), number);
        self.intakes.insert(number, Intake::new(giver, Body::Memory(BytesMut::new())));
    }

    fn refuse(&mut self, origin: Origin, why: Refusal) {
        let Origin { layer, link, transfer } = origin;
        self.statistics.refused += 1;
        self.command(layer, Command::Refuse { link, transfer, why });
    }

    fn piece(&mut self, origin: Origin, octets: &Bytes) {
        let Some(&number) = self.transfers.get(&(origin.layer, origin.transfer)) else { return };
        if !self.take_in(number, octets) {
            self.transfers.remove(&(origin.layer, origin.transfer));
            self.statistics.malformed += 1;
            self.drop_intake(number);
            self.refuse(origin, Refusal::NotAcceptable);
        }
    }

    /// Takes the next octets of a bundle; whether it may be one still.
    fn take_in(&mut self, number: u64, octets: &Bytes) -> bool {
        let bounds = self.config.limits.head;
        let Some(intake) = self.intakes.get_mut(&number) else { return true };
        let fed = intake.feed(octets, &bounds);
        self.take(number, fed)
    }

    /// Keeps what was made clear of a bundle; whether it may be one still.
    fn take(&mut self, number: u64, fed: Fed) -> bool {
        let pieces = match fed {
            Fed::Nothing => return true,
            Fed::Malformed => return false,
            Fed::Payload(pieces) => pieces,
            Fed::Begins(pieces) => {
                self.place(number);
                pieces
            }
        };
        self.keep(number, pieces);
        true
    }

    /// Decides where a payload goes whose length is known now.
    pub(super) fn place(&mut self, number: u64) {
        let limits = self.config.limits;
        let Some(intake) = self.intakes.get(&number) else { return };
        let Some(len) = intake.head().map(|head| head.payload().len) else { return };
        let is_short = len <= limits.inline as u64;
        let fits = self.memory.saturating_add(len as usize) <= limits.memory;
        if !matches!(intake.body, Body::Memory(_)) || (is_short && fits) {
            return;
        }
        let name = self.store.file_name(number);
        let waiting = VecDeque::new();
        let filing =
            Filing { name: name.clone(), file: None, waiting, unwritten: 0, syncing: false };
        if let Some(intake) = self.intakes.get_mut(&number) {
            intake.body = Body::File(filing);
        }
        self.store.open(number, name, OpenMode::Truncate);
    }

    /// Keeps pieces of a payload.
    pub(super) fn keep(&mut self, number: u64, pieces: Vec<(u64, Bytes)>) {
        let write_ahead = self.config.limits.write_ahead;
        let Some(intake) = self.intakes.get_mut(&number) else { return };
        match &mut intake.body {
            Body::Memory(octets) => {
                for (_, piece) in pieces {
                    octets.extend_from_slice(&piece);
                }
            }
            Body::File(filing) => {
                for (offset, piece) in pieces {
                    filing.unwritten += piece.len();
                    match filing.file {
                        Some(file) => self.store.write(number, file, offset, piece),
                        None => filing.waiting.push_back((offset, piece)),
                    }
                }
                let is_ahead = filing.unwritten > write_ahead;
                if let Giver::Layer { layer, link, .. } = intake.giver
                    && is_ahead
                    && !intake.is_paused
                {
                    intake.is_paused = true;
                    self.commands.push_back((layer, Command::Pause { link }));
                }
            }
            Body::There(_) => {}
        }
    }

    fn whole(&mut self, now: Time, origin: Origin, file: Option<(FileName, u64)>) {
        let Some(&number) = self.transfers.get(&(origin.layer, origin.transfer)) else {
            if file.is_some() {
                self.refuse(origin, Refusal::NoResources);
            }
            return;
        };
        let bounds = self.config.limits.head;
        let Some(intake) = self.intakes.get_mut(&number) else { return };
        let Some((name, end)) = file else {
            let fed = intake.feed_last(&bounds);
            self.take(number, fed);
            self.finish_if_written(now, number);
            return;
        };
        intake.is_whole = true;
        let reading =
            Reading { name: name.clone(), file: None, at: 0, end, payload_only: false, owns: true };
        intake.body = Body::There(reading);
        self.store.open(number, name, OpenMode::Read);
    }

    /// Goes on with a bundle of which all has come, once all of it is written and synced.
    pub(super) fn finish_if_written(&mut self, now: Time, number: u64) {
        let persistent = self.config.persistent;
        let Some(intake) = self.intakes.get_mut(&number) else { return };
        if !intake.is_whole {
            return;
        }
        if let Body::File(filing) = &mut intake.body {
            let Some(file) = filing.file.filter(|_| filing.unwritten == 0) else { return };
            if persistent && !filing.syncing {
                filing.syncing = true;
                self.store.sync(number, file);
                return;
            }
            if persistent {
                return;
            }
        }
        self.finish_intake(now, number);
    }

    pub(super) fn intake_opened(
        &mut self,
        now: Time,
        number: u64,
        answer: Result<Completion, EffectError>,
    ) {
        let opened = match answer {
            Ok(Completion::Opened { file, .. }) => file,
            Ok(_) => return,
            Err(error) => return self.fail_intake(now, number, error),
        };
        let Some(intake) = self.intakes.get_mut(&number) else {
            self.store.close(opened);
            self.store.delete(self.store.file_name(number));
            return;
        };
        match &mut intake.body {
            Body::File(filing) => {
                filing.file = Some(opened);
                for (offset, piece) in std::mem::take(&mut filing.waiting) {
                    self.store.write(number, opened, offset, piece);
                }
                self.finish_if_written(now, number);
            }
            Body::There(reading) => {
                reading.file = Some(opened);
                self.read_on(now, number);
            }
            Body::Memory(_) => self.store.close(opened),
        }
    }

    pub(super) fn intake_written(
        &mut self,
        now: Time,
        number: u64,
        octets: usize,
        answer: Result<Completion, EffectError>,
    ) {
        if let Err(error) = answer {
            return self.fail_intake(now, number, error);
        }
        let write_ahead = self.config.limits.write_ahead;
        let Some(intake) = self.intakes.get_mut(&number) else { return };
        if let Body::File(filing) = &mut intake.body {
            filing.unwritten = filing.unwritten.saturating_sub(octets);
            if let Giver::Layer { layer, link, .. } = intake.giver
                && intake.is_paused
                && filing.unwritten <= write_ahead / 2
            {
                intake.is_paused = false;
                self.commands.push_back((layer, Command::Resume { link }));
            }
        }
        self.finish_if_written(now, number);
    }

    pub(super) fn intake_synced(
        &mut self,
        now: Time,
        number: u64,
        answer: Result<Completion, EffectError>,
    ) {
        match answer {
            Ok(_) => self.finish_intake(now, number),
            Err(error) => self.fail_intake(now, number, error),
        }
    }

    /// Reads the next part of a file.
    fn read_on(&mut self, now: Time, number: u64) {
        let Some(Intake { body: Body::There(reading), .. }) = self.intakes.get_mut(&number) else {
            return;
        };
        let left = reading.end.saturating_sub(reading.at);
        if left == 0 {
            self.finish_intake(now, number);
            return;
        }
        if let Some(file) = reading.file {
            let len = usize::try_from(left).unwrap_or(READ).min(READ);
            self.store.read(number, file, reading.at, len);
        }
    }

    pub(super) fn intake_read(
        &mut self,
        now: Time,
        number: u64,
        answer: Result<Completion, EffectError>,
    ) {
        let octets = match answer {
            Ok(Completion::Read(octets)) => octets,
            Ok(_) => return,
            Err(error) => return self.fail_intake(now, number, error),
        };
        let Some(intake) = self.intakes.get_mut(&number) else { return };
        if let Body::There(reading) = &mut intake.body {
            reading.at += octets.len() as u64;
            if octets.is_empty() {
                // It is shorter than whoever gave it said.
                reading.end = reading.at;
            }
        }
        let bounds = self.config.limits.head;
        if intake.feed(&octets, &bounds) == Fed::Malformed {
            let giver = intake.giver;
            self.statistics.malformed += 1;
            self.drop_intake(number);
            self.turn_away(giver, Refusal::NotAcceptable);
            return;
        }
        self.read_on(now, number);
    }

    /// The store failed: the bundle cannot be taken.
    fn fail_intake(&mut self, now: Time, number: u64, error: EffectError) {
        let Some(giver) = self.intakes.get(&number).map(|intake| intake.giver) else { return };
        if error == EffectError::NoSpace {
            self.user.limit_reached(Limit::Octets);
        } else {
            self.user.indicate(Indication::StoreFailed(error));
        }
        self.drop_intake(number);
        self.turn_away(giver, Refusal::NoResources);
        self.pump_all(now);
    }

    /// Tells whoever gave a bundle that it is not taken.
    pub(super) fn turn_away(&mut self, giver: Giver, why: Refusal) {
        match giver {
            Giver::Layer { layer, link, transfer } => {
                self.transfers.remove(&(layer, transfer));
                self.refuse(Origin { layer, link, transfer }, why);
            }
            Giver::User { .. } | Giver::Agent => {}
        }
    }

    /// Forgets a bundle that came in part, and what was written of it.
    fn drop_intake(&mut self, number: u64) {
        let Some(intake) = self.intakes.remove(&number) else { return };
        self.resume(&intake);
        // A file that is being opened goes when it is open.
        if let Some((Some(file), name)) = intake.leaves() {
            self.store.close(file);
            self.store.delete(name);
        }
        self.user.limit_left(Limit::Incoming);
    }

    fn resume(&mut self, intake: &Intake) {
        if let Giver::Layer { layer, link, .. } = intake.giver
            && intake.is_paused
        {
            self.command(layer, Command::Resume { link });
        }
    }

    /// All of a bundle is here.
    fn finish_intake(&mut self, now: Time, number: u64) {
        let Some(mut intake) = self.intakes.remove(&number) else { return };
        self.user.limit_left(Limit::Incoming);
        self.resume(&intake);
        if let Giver::Layer { layer, transfer, .. } = intake.giver {
            self.transfers.remove(&(layer, transfer));
        }
        let file = match &intake.body {
            Body::Memory(_) => None,
            Body::File(filing) => filing.file,
            Body::There(reading) => reading.file,
        };
        if let Some(file) = file {
            self.store.close(file);
        }
        let finished = intake.finish();
        let Some((head, tail)) = finished else {
            self.statistics.malformed += 1;
            self.leave_intake(&intake);
            return self.turn_away(intake.giver, Refusal::NotAcceptable);
        };
        let (payload, owns_file) = intake.content(&head);
        let priority = match intake.giver {
            Giver::User { priority } => priority,
            Giver::Layer { .. } | Giver::Agent => Priority::Normal,
        };
        let bounds = self.config.limits.head;
        let max = self.config.limits.lifetime_ms;
        let (age_ms, expires) = ages(&head, now, self.config.clock, max, &bounds);
        let from = previous_node(&head, &bounds);
        let content = Held::new(head, tail, (payload, owns_file));
        let held = Held { received: now, age_ms, expires, priority, from, ..content };
        self.judge(now, number, held, intake.giver);
    }

    fn leave_intake(&mut self, intake: &Intake) {
        if let Some((_, name)) = intake.leaves() {
            self.store.delete(name);
        }
    }

    /// Whether a bundle that is whole is taken.
    fn judge(&mut self, now: Time, number: u64, mut held: Held, giver: Giver) {
        let is_ours = matches!(giver, Giver::User { .. } | Giver::Agent);
        if !is_ours {
            self.statistics.received += 1;
            let id = held.id();
            let known = self.by_id.get(&id);
            if known.is_some() || self.gone.contains(&id) {
                self.statistics.duplicates += 1;
                // A copy of what is not safe yet is not safe either: both are answered at once.
                let storing = known.and_then(|number| self.givers.get_mut(number));
                match storing {
                    Some(givers) => givers.push(giver),
                    None => self.say_accepted(giver),
                }
                return self.leave_content(&held);
            }
            if held.expires <= now {
                self.statistics.expired += 1;
                self.leave_content(&held);
                return self.say_accepted(giver);
            }
            if !self.has_room(held.octets()) {
                self.leave_content(&held);
                return self.turn_away(giver, Refusal::NoResources);
            }
            match process_blocks(&mut held.head) {
                Blocks::Fine => {}
                Blocks::Report => {
                    let flag = BundleFlags::REPORT_RECEPTION;
                    self.report_of(now, &held, flag, Reason::BlockUnsupported);
                }
                Blocks::Delete => {
                    self.statistics.deleted += 1;
                    let flag = BundleFlags::REPORT_DELETION;
                    self.report_of(now, &held, flag, Reason::BlockUnsupported);
                    self.leave_content(&held);
                    return self.say_accepted(giver);
                }
            }
        }
        self.admit(now, number, held, giver);
    }

    /// The peer is rid of a bundle that is not needed here.
    fn say_accepted(&mut self, giver: Giver) {
        match giver {
            Giver::Layer { layer, link, transfer } => {
                self.command(layer, Command::Accept { link, transfer });
            }
            Giver::User { .. } | Giver::Agent => {}
        }
    }
}

/// What blocks that nobody here knows ask for.
enum Blocks {
    Fine,
    Report,
    Delete,
}

/// Does with unknown blocks what their flags say (RFC 9171 §5.6 step 4).
fn process_blocks(head: &mut Head) -> Blocks {
    let mut found = Blocks::Fine;
    let mut discarded = Vec::new();
    for block in head.blocks().iter().filter(|block| !KNOWN.contains(&block.kind())) {
        let flags = block.flags();
        if flags.contains(BlockFlags::DELETE_BUNDLE) {
            return Blocks::Delete;
        }
        if flags.contains(BlockFlags::REPORT) {
            found = Blocks::Report;
        }
        if flags.contains(BlockFlags::DISCARD) {
            discarded.push(block.number());
        }
    }
    for number in discarded {
        head.remove_block(number);
    }
    found
}
