//! Reception of bundles (RFC 9171 §5.6): from a layer in pieces or as a file, or from this node.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use bytes::{Bytes, BytesMut};
use engine::{Completion, EffectError, EffectResult, FileId, FileName, OpenMode, Receive, Time};

use super::super::layer::{Command, Content, Refusal, TransferId};
use super::admission::{Reply, check_head, check_rules};
use super::forwarder::Forwarder;
use super::head::Head;
use super::held::Held;
use super::intake::{Body, Fed, Filing, Giver, Intake, There};
use super::shares::Account;
use super::stock::Core;
use super::store::{Job, Storing};
use super::{Indication, Limit, LinkRef};
use crate::codec::bp7::{BundleId, Reason};

/// Most bytes of memory reserved for a payload before it arrives: the announced length is not to
/// be trusted.
const AT_ONCE: usize = 16 << 20;

/// Shortest payload, received at once, that stays in the buffer it came in, in bytes. Half of the
/// pieces' maximum, so that at most twice the payload is held.
const LONG: usize = Receive::PIECE_MAX / 2;
/// Shortest piece that waits for the store in the buffer it came in, in bytes.
const SHORT: usize = 4 << 10;

/// Bundles being received.
#[derive(Debug, Default)]
pub(super) struct Reception {
    intakes: BTreeMap<u64, Box<Intake>>,
    /// Transfers of layers, and the bundles that they carry.
    transfers: BTreeMap<(usize, TransferId), u64>,
    /// Paused neighbours, and the bundles that cause the pause.
    held_back: BTreeMap<LinkRef, BTreeSet<u64>>,
    /// Bytes of the payloads that are collected in memory.
    memory: usize,
}

/// Result of a reception.
#[derive(Debug)]
pub(super) enum Arrived {
    /// All of the bundle is in its place.
    Complete(Giver, Box<Held>),
    /// The store failed, and the bundle with this number was refused.
    Failed(Giver, u64),
}

impl Reception {
    /// Whether one more bundle may be received.
    pub(super) fn has_place(&self, core: &Core) -> bool {
        self.intakes.len() < core.config.limits.incoming
    }

    /// Replies to the giver of a bundle.
    pub(super) fn reply(&mut self, core: &mut Core, to: Giver, id: Option<BundleId>, reply: Reply) {
        match to {
            Giver::Layer { at: LinkRef { layer, link }, transfer } => {
                let command = match reply {
                    Reply::Safe | Reply::NotNeeded => Command::Accept { link, transfer },
                    Reply::Refused(why) => {
                        self.transfers.remove(&(layer, transfer));
                        core.statistics.refused += 1;
                        Command::Refuse { link, transfer, why }
                    }
                };
                core.command(layer, command);
            }
            Giver::User { .. } => {
                let Some(id) = id else { return };
                core.user.indicate(match reply {
                    Reply::Safe => Indication::Stored { id },
                    Reply::NotNeeded => return,
                    Reply::Refused(Refusal::NoResources) => {
                        Indication::Deleted { id, reason: Reason::DepletedStorage }
                    }
                    // Its file is shorter than requested.
                    Reply::Refused(_) => {
                        Indication::Deleted { id, reason: Reason::BlockUnintelligible }
                    }
                });
            }
            Giver::Agent | Giver::Remains | Giver::Fragments => {}
        }
    }

    /// Begins the reception of a bundle from a layer, or refuses it.
    pub(super) fn on_begin(
        &mut self,
        core: &mut Core,
        forwarder: &Forwarder,
        now: Time,
        at: LinkRef,
        transfer: TransferId,
        bytes: Option<u64>,
    ) {
        let is_full = !self.has_place(core);
        if is_full {
            core.user.limit_reached(Limit::Incoming);
        }
        let giver = Giver::Layer { at, transfer };
        let by = forwarder.giver_node(giver);
        let (account, bytes) = (Account::new(giver, by.clone()), bytes.unwrap_or(0));
        if account.never_fits(&core.config.limits, bytes) {
            forwarder.note_too_long(core, now, at);
            return self.reply(core, giver, None, Reply::Refused(Refusal::NotAcceptable));
        }
        if !core.stock.is_ready || is_full || !core.check_share(&account, bytes) {
            return self.reply(core, giver, None, Reply::Refused(Refusal::NoResources));
        }
        let number = core.allocate_number();
        core.stock.shares.begin(number, account, bytes);
        self.transfers.insert((at.layer, transfer), number);
        let mut intake = Intake::new(giver, Body::Memory(BytesMut::new()));
        intake.by = by;
        self.intakes.insert(number, Box::new(intake));
    }

    /// Receives the next bytes of a bundle.
    pub(super) fn on_piece(
        &mut self,
        core: &mut Core,
        forwarder: &Forwarder,
        now: Time,
        at: LinkRef,
        transfer: TransferId,
        bytes: &Bytes,
    ) {
        let number = self.transfers.get(&(at.layer, transfer)).copied();
        let Some(number) = number else { return };
        let received = core.stock.shares.receive(number, bytes.len() as u64);
        if !self.reserve(core, forwarder, now, number, received) {
            return;
        }
        let Some(intake) = self.intakes.get_mut(&number) else { return };
        let fed = intake.feed(bytes, &core.config.limits.head);
        if matches!(fed, Fed::Begins(_))
            && let Some(head) = intake.head()
        {
            let len = head.payload_len().saturating_add(head.encoded_len() as u64);
            if let Err(why) = check(core, forwarder, intake, head) {
                self.refuse(core, number, why);
                return;
            }
            if !self.reserve(core, forwarder, now, number, len) {
                return;
            }
        }
        self.take(core, number, fed);
    }

    /// Receives the end of a bundle, or all of it in a file.
    pub(super) fn on_whole(
        &mut self,
        core: &mut Core,
        at: LinkRef,
        transfer: TransferId,
        file: Option<(FileName, u64)>,
    ) -> Option<Arrived> {
        let number = self.transfers.get(&(at.layer, transfer)).copied();
        let Some(number) = number else {
            if file.is_some() {
                let refused = Reply::Refused(Refusal::NoResources);
                self.reply(core, Giver::Layer { at, transfer }, None, refused);
            }
            return None;
        };
        let intake = self.intakes.get_mut(&number)?;
        let Some((name, end)) = file else {
            let fed = intake.feed_last(&core.config.limits.head);
            self.take(core, number, fed);
            return self.finish_if_written(core, number);
        };
        intake.is_whole = true;
        intake.body = Body::There(There { name: name.clone(), payload_at: None, owns: true });
        intake.parts = Some(Content::File { name, offset: 0, len: end }.into());
        self.read_parts(core, number)
    }

    /// Handles a link that broke during reception. The received part is kept as a fragment if the
    /// layer promised that to the sender.
    pub(super) fn on_broken(
        &mut self,
        core: &mut Core,
        layer: usize,
        transfer: TransferId,
        keep: bool,
    ) -> Option<Arrived> {
        let number = self.transfers.remove(&(layer, transfer))?;
        self.let_flow(core, number);
        if keep && self.intakes.get_mut(&number).is_some_and(|intake| intake.cut()) {
            return self.finish_if_written(core, number);
        }
        self.discard(core, number);
        None
    }

    /// Receives a bundle created here.
    pub(super) fn begin(
        &mut self,
        core: &mut Core,
        giver: Giver,
        head: Head,
        payload: Content,
        owns: bool,
    ) -> Option<Arrived> {
        let number = core.allocate_number();
        match payload {
            Content::Bytes(bytes) => {
                let intake = Intake::with_head(giver, Body::Memory(BytesMut::new()), head);
                self.begin_under(core, number, Box::new(intake), &bytes)
            }
            Content::File { name, offset, len } => {
                let there = There { name: name.clone(), payload_at: Some(offset), owns };
                let mut intake = Intake::with_head(giver, Body::There(there), head);
                intake.is_whole = true;
                intake.parts = Some(Content::File { name, offset, len }.into());
                core.stock.shares.begin(number, Account::new(giver, None), len);
                self.intakes.insert(number, Box::new(intake));
                self.read_parts(core, number)
            }
        }
    }

    /// Receives a bundle with this payload under a number.
    pub(super) fn begin_under(
        &mut self,
        core: &mut Core,
        number: u64,
        mut intake: Box<Intake>,
        payload: &Bytes,
    ) -> Option<Arrived> {
        let fed = intake.feed(payload, &core.config.limits.head);
        intake.is_whole = true;
        let account = Account::new(intake.giver, intake.by.clone());
        core.stock.shares.begin(number, account, payload.len() as u64);
        self.intakes.insert(number, intake);
        self.place(core, number);
        if let Fed::Payload(Some((offset, piece))) = fed {
            self.keep(core, number, offset, piece);
        }
        self.finish_if_written(core, number)
    }

    /// Receives a bundle that is read from its contents.
    pub(super) fn read(
        &mut self,
        core: &mut Core,
        number: u64,
        intake: Box<Intake>,
    ) -> Option<Arrived> {
        self.intakes.insert(number, intake);
        self.read_parts(core, number)
    }

    /// Receives a bundle that is reassembled from fragments.
    pub(super) fn join(&mut self, core: &mut Core, number: u64, intake: Intake) -> Option<Arrived> {
        self.intakes.insert(number, Box::new(intake));
        self.place(core, number);
        self.read_parts(core, number)
    }

    /// Reserves room for an arriving bundle, of which this length is known now. Where the store is
    /// full the youngest arriving bundles are refused. Returns whether this one goes on.
    fn reserve(
        &mut self,
        core: &mut Core,
        forwarder: &Forwarder,
        now: Time,
        number: u64,
        bytes: u64,
    ) -> bool {
        loop {
            let missing = core.stock.shares.missing(number, bytes);
            let Some((account, more)) = missing else { return true };
            if account.never_fits(&core.config.limits, bytes) {
                let giver = self.refuse(core, number, Refusal::NotAcceptable);
                if let Some(Giver::Layer { at, .. }) = giver {
                    forwarder.note_too_long(core, now, at);
                }
                return false;
            }
            if core.check_share(&account, more) {
                core.stock.shares.grow(number, more);
                return true;
            }
            // Others are refused only if that makes room: never for a share that is used up.
            let is_full = !core.check_room(more);
            let is_partial =
                |number: &u64| self.intakes.get(number).is_some_and(|intake| !intake.is_whole);
            let youngest = core.stock.shares.youngest().find(is_partial).filter(|_| is_full);
            let refused = youngest.filter(|youngest| *youngest > number).unwrap_or(number);
            self.refuse(core, refused, Refusal::NoResources);
            if refused == number {
                return false;
            }
        }
    }

    /// Refuses a bundle that is being received. Returns its giver.
    fn refuse(&mut self, core: &mut Core, number: u64, why: Refusal) -> Option<Giver> {
        core.stock.shares.end(number);
        let intake = self.intakes.get(&number)?;
        let (giver, id) = (intake.giver, intake.id());
        self.discard(core, number);
        self.reply(core, giver, id, Reply::Refused(why));
        Some(giver)
    }

    /// Keeps the result of feeding bytes, or rejects data that are not a valid bundle.
    fn take(&mut self, core: &mut Core, number: u64, fed: Fed) {
        let piece = match fed {
            Fed::Nothing => return,
            Fed::Malformed => {
                if self.refuse(core, number, Refusal::NotAcceptable).is_some() {
                    core.statistics.malformed += 1;
                }
                return;
            }
            Fed::Payload(piece) => piece,
            Fed::Begins(piece) => {
                self.place(core, number);
                piece
            }
        };
        if let Some((offset, bytes)) = piece {
            self.keep(core, number, offset, bytes);
        }
    }

    /// Chooses the place of a payload whose length is now known.
    fn place(&mut self, core: &mut Core, number: u64) {
        let limits = core.config.limits;
        let Some(intake) = self.intakes.get_mut(&number) else { return };
        let Some(len) = intake.head().map(Head::payload_len) else { return };
        if !matches!(intake.body, Body::Memory(_)) {
            return;
        }
        let is_short = len <= limits.inline as u64;
        let in_memory = core.stock.memory.saturating_add(self.memory);
        if is_short && in_memory.saturating_add(len as usize) <= limits.inline_total {
            self.memory = self.memory.saturating_add(len as usize).saturating_sub(intake.memory);
            intake.memory = len as usize;
            return;
        }
        let name = core.stock.store.file_name(number);
        let waiting = VecDeque::new();
        let filing =
            Filing { name: name.clone(), file: None, waiting, unwritten: 0, syncing: false };
        intake.body = Body::File(filing);
        let job = Job::Intake { number, step: Storing::Open };
        core.stock.store.effects.open(job, name, OpenMode::Truncate);
    }

    /// Stores a piece of a payload.
    fn keep(&mut self, core: &mut Core, number: u64, offset: u64, piece: Bytes) {
        let Some(intake) = self.intakes.get_mut(&number) else { return };
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
                    Some(file) => core.stock.store.write(number, file, offset, piece),
                    None => filing.waiting.push_back((offset, piece)),
                }
                self.throttle(core, number);
            }
            Body::Whole(_) | Body::There(_) => {}
        }
    }

    /// Pauses a neighbour while too many bytes of one of its bundles wait for the store.
    fn throttle(&mut self, core: &mut Core, number: u64) {
        let Some(intake) = self.intakes.get_mut(&number) else { return };
        let Giver::Layer { at, .. } = intake.giver else { return };
        match intake.flow(core.config.limits.write_ahead) {
            Some(true) => {
                let held_back = self.held_back.entry(at).or_default();
                let is_first = held_back.is_empty();
                held_back.insert(number);
                if is_first {
                    core.command(at.layer, Command::Pause { link: at.link });
                }
            }
            Some(false) => self.let_flow(core, number),
            None => {}
        }
    }

    /// Ends a bundle's pause of its neighbour.
    fn let_flow(&mut self, core: &mut Core, number: u64) {
        let Some(intake) = self.intakes.get_mut(&number) else { return };
        intake.is_paused = false;
        let Giver::Layer { at, .. } = intake.giver else { return };
        let Some(held_back) = self.held_back.get_mut(&at) else { return };
        if held_back.remove(&number) && held_back.is_empty() {
            self.held_back.remove(&at);
            core.command(at.layer, Command::Resume { link: at.link });
        }
    }

    /// Finishes a completely received bundle once it is written and synced.
    fn finish_if_written(&mut self, core: &mut Core, number: u64) -> Option<Arrived> {
        let persistent = core.config.persistent;
        let intake = self.intakes.get_mut(&number).filter(|intake| intake.is_whole)?;
        if let Body::File(filing) = &mut intake.body {
            let file = filing.file.filter(|_| filing.unwritten == 0)?;
            if persistent && !filing.syncing {
                filing.syncing = true;
                core.stock.store.effects.sync(Job::Intake { number, step: Storing::Sync }, file);
            }
            if persistent {
                return None;
            }
        }
        self.finish(core, number)
    }

    /// Handles a completed effect of an arriving bundle.
    pub(super) fn on_effect(
        &mut self,
        core: &mut Core,
        number: u64,
        step: Storing,
        result: EffectResult,
    ) -> Option<Arrived> {
        let completion = match result {
            Ok(completion) => completion,
            Err(error) => return self.fail(core, number, error),
        };
        match (step, completion) {
            (Storing::Open, Completion::Opened { file, .. }) => self.opened(core, number, file),
            (Storing::Write { bytes }, _) => self.written(core, number, bytes),
            (Storing::Sync, _) => self.finish(core, number),
            (Storing::Part, completion) => self.on_part_done(core, number, completion),
            (Storing::Open, _) => None,
        }
    }

    fn opened(&mut self, core: &mut Core, number: u64, opened: FileId) -> Option<Arrived> {
        let store = &mut core.stock.store;
        let Some(intake) = self.intakes.get_mut(&number) else {
            store.effects.close(opened);
            store.delete(store.file_name(number));
            return None;
        };
        match &mut intake.body {
            Body::File(filing) => {
                filing.file = Some(opened);
                for (offset, piece) in std::mem::take(&mut filing.waiting) {
                    store.write(number, opened, offset, piece);
                }
                self.finish_if_written(core, number)
            }
            Body::Memory(_) | Body::Whole(_) | Body::There(_) => {
                store.effects.close(opened);
                None
            }
        }
    }

    fn written(&mut self, core: &mut Core, number: u64, bytes: usize) -> Option<Arrived> {
        let intake = self.intakes.get_mut(&number)?;
        if let Body::File(filing) = &mut intake.body {
            filing.unwritten = filing.unwritten.saturating_sub(bytes);
            self.throttle(core, number);
        }
        self.read_parts(core, number).or_else(|| self.finish_if_written(core, number))
    }

    /// Reads the next part of a bundle, unless a read is pending or the store has fallen behind.
    fn read_parts(&mut self, core: &mut Core, number: u64) -> Option<Arrived> {
        let most = core.config.limits.write_ahead;
        let job = Job::Intake { number, step: Storing::Part };
        loop {
            let intake = self.intakes.get_mut(&number)?;
            let is_behind = intake.unwritten() > most;
            let parts = intake.parts.as_mut().filter(|parts| !parts.is_pending && !is_behind)?;
            match (parts.left.front(), parts.reading) {
                (None, _) => {
                    intake.is_whole = true;
                    intake.parts = None;
                    return self.finish_if_written(core, number);
                }
                (Some(Content::Bytes(bytes)), _) => {
                    let bytes = bytes.clone();
                    parts.left.pop_front();
                    self.feed_part(core, number, &bytes);
                }
                (Some(Content::File { name, .. }), None) => {
                    parts.is_pending = true;
                    core.stock.store.effects.open(job, name.clone(), OpenMode::Read);
                    return None;
                }
                (Some(Content::File { offset, len, .. }), Some((file, at))) => {
                    let left = offset.saturating_add(*len).saturating_sub(at);
                    if left > 0 {
                        parts.is_pending = true;
                        core.stock.store.effects.read(job, file, at, left);
                        return None;
                    }
                    parts.reading = None;
                    parts.left.pop_front();
                    core.stock.store.effects.close(file);
                }
            }
        }
    }

    fn feed_part(&mut self, core: &mut Core, number: u64, bytes: &Bytes) {
        let Some(intake) = self.intakes.get_mut(&number) else { return };
        let fed = intake.feed(bytes, &core.config.limits.head);
        self.take(core, number, fed);
    }

    /// Handles an opened file of a part, or a piece read from it.
    fn on_part_done(
        &mut self,
        core: &mut Core,
        number: u64,
        completion: Completion,
    ) -> Option<Arrived> {
        let intake = self.intakes.get_mut(&number);
        let Some((body, parts)) = intake.and_then(|it| Some((&it.body, it.parts.as_mut()?))) else {
            core.stock.store.effects.close_orphan(&Ok(completion));
            return None;
        };
        parts.is_pending = false;
        let Some(Content::File { offset, len, .. }) = parts.left.front() else {
            return None;
        };
        match (completion, &mut parts.reading) {
            (Completion::Opened { file, .. }, reading) => *reading = Some((file, *offset)),
            (Completion::Read(bytes), Some((_, at))) => {
                *at += bytes.len() as u64;
                if bytes.is_empty() && matches!(body, Body::There(_)) {
                    // It is shorter than its giver announced, and no valid bundle.
                    *at = offset.saturating_add(*len);
                } else if bytes.is_empty() {
                    return self.fail(core, number, EffectError::NotFound);
                }
                self.feed_part(core, number, &bytes);
            }
            (_, _) => return None,
        }
        self.read_parts(core, number)
    }

    /// Refuses a bundle because the store failed.
    fn fail(&mut self, core: &mut Core, number: u64, error: EffectError) -> Option<Arrived> {
        let giver = self.intakes.get(&number)?.giver;
        core.on_store_failure(error);
        self.refuse(core, number, Refusal::NoResources);
        Some(Arrived::Failed(giver, number))
    }

    /// Discards a partly received bundle, and its file.
    pub(super) fn discard(&mut self, core: &mut Core, number: u64) {
        let Some(intake) = self.remove(core, number) else { return };
        for name in intake.read_from.iter().chain(intake.file_to_delete()) {
            core.stock.store.delete(name.clone());
        }
        core.user.limit_left(Limit::Incoming);
    }

    /// Ends a reception, and closes its files.
    fn remove(&mut self, core: &mut Core, number: u64) -> Option<Box<Intake>> {
        self.let_flow(core, number);
        core.stock.shares.end(number);
        let intake = self.intakes.remove(&number)?;
        self.memory = self.memory.saturating_sub(intake.memory);
        intake.open_files().for_each(|file| core.stock.store.effects.close(file));
        Some(intake)
    }

    /// Finishes the reception of a bundle.
    fn finish(&mut self, core: &mut Core, number: u64) -> Option<Arrived> {
        let mut intake = self.remove(core, number)?;
        core.user.limit_left(Limit::Incoming);
        if let Giver::Layer { at, transfer } = intake.giver {
            self.transfers.remove(&(at.layer, transfer));
        }
        let (giver, id) = (intake.giver, intake.id());
        let Some((head, tail)) = intake.finish(&core.config.limits.head) else {
            core.statistics.malformed += 1;
            if let Some(name) = intake.file_to_delete() {
                core.stock.store.delete(name.clone());
            }
            self.reply(core, giver, id, Reply::Refused(Refusal::NotAcceptable));
            return None;
        };
        let (payload, owns_file) = intake.content(&head);
        if let Some(name) = intake.read_from.take() {
            core.stock.store.delete(name);
        }
        let mut held = Held::new(number, head, tail, payload, owns_file);
        let arrival = &mut held.arrival;
        (arrival.by, arrival.is_secured) = (intake.by, intake.secured.is_some());
        arrival.verified = intake.secured.unwrap_or_default();
        Some(Arrived::Complete(giver, Box::new(held)))
    }
}

/// Checks a bundle whose head has come; an error is the reason to refuse it.
fn check(core: &Core, forwarder: &Forwarder, intake: &Intake, head: &Head) -> Result<(), Refusal> {
    check_head(core, head)?;
    // A duplicate takes no room: it is answered as such once it is whole.
    if core.stock.knows(&head.key()) {
        return Ok(());
    }
    let by = intake.by.clone().or_else(|| forwarder.giver_node(intake.giver));
    check_rules(core, forwarder, head, by.as_ref())
}
