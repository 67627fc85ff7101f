//! Dispatch of inputs to transactions.

use std::time::Duration;

use engine::{Completion, EffectError, PathEvent, PathId, Ticket, Time};
use session::path::{Handle, Pacing, Path};
use session::{Admission, Credit, Guest, Turns as _, Vacancy};
use wire::{DecodeError, DecodeErrorKind};

use super::core::{Base, Core, Job, Task, reverse};
use super::finished;
use super::indication::{Indication, Limit, NoRoom, PeerError};
use super::receiver::Receiver;
use super::{Entity, Transaction};
use crate::pdu::{
    Ack, Acknowledged, Body, ConditionCode, Direction, Header, Pdu, TransactionId,
    TransactionStatus, TransmissionMode, Version,
};

/// Maximum number of other entities for which misdirected PDUs are indicated.
const MISDIRECTED_MAX: usize = 8;

/// Interval between indications of PDUs that cannot be decoded.
const UNDECODABLE_EVERY: Duration = Duration::from_secs(60);

/// Metadata PDUs kept of receptions that gave way before their data arrived.
const STAGED_MAX: usize = 256;

/// Minimum time between two indications of lost files.
const LOST_INTERVAL: Duration = Duration::from_millis(100);

impl Entity {
    /// Processes a received datagram.
    #[inline]
    pub(super) fn receive(&mut self, now: Time, from: PathId, datagram: &[u8]) {
        // The header has the length of the PDU (§5.1.3); padding may follow.
        let decoded = Pdu::decode_first(datagram);
        if let Err(error) = decoded {
            self.undecodable(now, from, datagram, error);
        }
        let pdu = decoded.ok().filter(|(pdu, _)| {
            let peer = match pdu.header.direction {
                Direction::TowardReceiver => pdu.header.source,
                Direction::TowardSender => pdu.header.destination,
            };
            pdu.header.crc || !self.core.config.remote(peer.0).crc
        });
        let Some((pdu, len)) = pdu else {
            self.core.stats.decode_errors += 1;
            return;
        };
        if len < datagram.len() {
            self.surplus(now, from, &pdu, len, datagram);
        }
        let datagram = &datagram[..len];
        self.core.stats.received.count(&pdu.body);
        let here = match pdu.header.direction {
            Direction::TowardReceiver => pdu.header.destination,
            Direction::TowardSender => pdu.header.source,
        };
        if here.0 != self.core.config.entity {
            if self.relay(now, from, &pdu, datagram) {
                return;
            }
            self.core.stats.stray += 1;
            if pdu.header.direction == Direction::TowardReceiver {
                self.misdirected(from, here.0);
            }
            return;
        }
        let id = pdu.header.transaction();
        let handle = match self.last {
            Some((last, handle)) if last == id => Some(handle),
            Some(_) | None => self.by_id.get(&id).copied(),
        };
        match handle.or_else(|| self.accept(now, from, &pdu, datagram)) {
            Some(handle) => {
                self.last = Some((id, handle));
                self.deliver(now, from, handle, &pdu, datagram);
            }
            None => self.answer_stranger(now, from, &pdu),
        }
    }

    /// Indicates a PDU of a transaction under way that breaks the format, at most once a minute. One
    /// with a wrong CRC was damaged on the way.
    fn undecodable(&mut self, now: Time, path: PathId, datagram: &[u8], error: DecodeError) {
        let Ok(header) = Header::decode(datagram) else { return };
        let id = header.transaction();
        let is_damaged = matches!(error.kind, DecodeErrorKind::Checksum { .. });
        if is_damaged || now < self.undecodable_from || self.is_free(id) {
            return;
        }
        self.undecodable_from = now + UNDECODABLE_EVERY;
        let error = PeerError::Undecodable { name: Pdu::name_of_first(datagram), error };
        self.core.user.indicate(Indication::PeerError { path, id, error });
    }

    /// Counts the bytes behind a PDU, which are not read: one datagram carries one PDU. Indicates
    /// them for a transaction under way, as seldom as [`Self::undecodable`].
    #[cold]
    fn surplus(&mut self, now: Time, path: PathId, pdu: &Pdu<'_>, len: usize, datagram: &[u8]) {
        self.core.stats.surplus += 1;
        let id = pdu.header.transaction();
        if now < self.undecodable_from || self.is_free(id) {
            return;
        }
        self.undecodable_from = now + UNDECODABLE_EVERY;
        let (name, count) = (Pdu::name_of_first(datagram), datagram.len() - len);
        let error = PeerError::Surplus { name, count };
        self.core.user.indicate(Indication::PeerError { path, id, error });
    }

    /// Indicates PDUs for another entity: once for each entity, and for a few entities only.
    fn misdirected(&mut self, path: PathId, destination: u64) {
        if self.misdirected.len() < MISDIRECTED_MAX && !self.misdirected.contains(&destination) {
            self.misdirected.push(destination);
            self.core.user.indicate(Indication::Misdirected { path, destination });
        }
    }

    #[inline]
    pub(super) fn deliver(
        &mut self,
        now: Time,
        from: PathId,
        handle: Handle,
        pdu: &Pdu<'_>,
        datagram: &[u8],
    ) {
        let Some(transaction) = self.slots.get_mut(handle) else { return };
        let core = &mut self.core;
        if !comes_by(transaction, core, now, from) {
            core.stats.stray += 1;
            return;
        }
        match transaction {
            Transaction::Receiver(receiver) => {
                if !admits_header(&mut receiver.base.header, &pdu.header) {
                    core.stats.decode_errors += 1;
                    return;
                }
                receiver.base.credit.earn(datagram.len());
                receiver.wake(core, now);
            }
            // A reply under a number of this entity proves that its PDUs arrive.
            Transaction::Sender(sender) => sender.base.credit = Credit::Unlimited,
        }
        match (transaction, pdu.body) {
            (Transaction::Receiver(receiver), Body::FileData(data)) => {
                receiver.on_data(core, now, &data);
            }
            (Transaction::Receiver(receiver), Body::Metadata(metadata)) => {
                receiver.on_metadata(core, now, &metadata, datagram);
            }
            (Transaction::Receiver(receiver), Body::Eof(eof)) => {
                receiver.on_eof(core, now, &eof, datagram);
            }
            (Transaction::Receiver(receiver), Body::Ack(ack)) => receiver.on_ack(core, now, &ack),
            (Transaction::Receiver(receiver), Body::Prompt(prompt)) => {
                receiver.on_prompt(core, now, prompt);
            }
            (Transaction::Sender(sender), Body::Ack(ack)) => sender.on_ack(core, now, &ack),
            (Transaction::Sender(sender), Body::Nak(nak)) => sender.on_nak(core, now, &nak),
            (Transaction::Sender(sender), Body::KeepAlive(keep_alive)) => {
                sender.on_keep_alive(core, now, keep_alive);
            }
            (Transaction::Sender(sender), Body::Finished(finished)) => {
                sender.on_finished(core, now, &finished);
            }
            (
                Transaction::Receiver(_),
                Body::Finished(_) | Body::Nak(_) | Body::KeepAlive(_) | Body::Unknown { .. },
            )
            | (
                Transaction::Sender(_),
                Body::FileData(_)
                | Body::Metadata(_)
                | Body::Eof(_)
                | Body::Prompt(_)
                | Body::Unknown { .. },
            ) => core.stats.stray += 1,
        }
        self.settle(handle);
    }

    /// Starts a reception, if this PDU may start one.
    pub(super) fn accept(
        &mut self,
        now: Time,
        from: PathId,
        pdu: &Pdu<'_>,
        datagram: &[u8],
    ) -> Option<Handle> {
        let begins = match pdu.body {
            Body::Metadata(_) | Body::FileData(_) => true,
            // An EOF without Metadata suffices to request the rest; a cancelled unknown transaction
            // has ended.
            Body::Eof(eof) => {
                pdu.header.mode == TransmissionMode::Acknowledged
                    && eof.condition == ConditionCode::NoError
            }
            Body::Finished(_)
            | Body::Ack(_)
            | Body::Nak(_)
            | Body::Prompt(_)
            | Body::KeepAlive(_)
            | Body::Unknown { .. } => false,
        };
        let id = pdu.header.transaction();
        let toward_receiver = pdu.header.direction == Direction::TowardReceiver;
        if !begins || !toward_receiver || !self.loaded || !self.may_send_here(from, pdu) {
            return None;
        }
        if let Some(over) = self.closed.get(id) {
            if !over.is_about_another(now, pdu, datagram) {
                return None;
            }
            self.closed.forget(id);
        }
        let guest = self.guest(Some(from), pdu.header.source.0);
        if !self.find_place(now, guest) {
            self.core.stats.receptions_refused += 1;
            self.core.user.limit_reached(Limit::Transactions);
            if let Body::Metadata(metadata) = pdu.body
                && pdu.header.mode == TransmissionMode::Unacknowledged
            {
                let name = metadata.destination_name.to_str_lossy().into_owned();
                self.lost(now, NoRoom { id, name, progress: 0 });
            }
            return None;
        }
        let handle = self.begin_reception(now, Some(from), &pdu.header);
        self.deliver_staged(now, from, handle, pdu);
        Some(handle)
    }

    /// Delivers the Metadata of a reception that gave way before its data arrived.
    fn deliver_staged(&mut self, now: Time, from: PathId, handle: Handle, first: &Pdu<'_>) {
        let id = first.header.transaction();
        let Some(metadata) = self.staged.forget(&id) else { return };
        if !matches!(first.body, Body::Metadata(_))
            && let Ok(pdu) = Pdu::decode(&metadata)
        {
            self.deliver(now, from, handle, &pdu, &metadata);
        }
    }

    /// Whether the source may send files here on this path.
    fn may_send_here(&self, from: PathId, pdu: &Pdu<'_>) -> bool {
        let (config, source) = (&self.core.config, pdu.header.source.0);
        let known = config.accept_unknown || config.remotes.contains_key(&source);
        // Relayed PDUs come from the previous entity, not from their source.
        let relayed = pdu.header.destination.0 != config.entity;
        let right_way = relayed || config.remote(source).path.is_none_or(|path| path == from);
        known && right_way && source != config.entity
    }

    /// Finds a place for another reception. If none is free, the weakest one gives way.
    fn find_place(&mut self, now: Time, guest: Guest) -> bool {
        let config = &self.core.config;
        let shares = Admission::with_places(config.limits.transactions)
            .reserving_for_known(!config.remotes.is_empty());
        loop {
            match self.core.shared.places.search(shares, self.by_id.len(), now, guest) {
                Vacancy::Free => return true,
                Vacancy::None => return false,
                Vacancy::Of(handle) => {
                    self.core.user.limit_reached(Limit::Transactions);
                    let before = self.by_id.len();
                    self.displace(now, handle);
                    // The record of the displaced reception is being removed: another one would
                    // give way for nothing.
                    if self.by_id.len() == before && before >= shares.all {
                        return false;
                    }
                }
            }
        }
    }

    /// Removes the weakest reception. Returns its path.
    pub fn displace_weakest(&mut self, now: Time) -> Option<PathId> {
        let Vacancy::Of(handle) = self.core.shared.places.weakest_stranger(now) else {
            return None;
        };
        let path = self.slots.get(handle)?.base().seat.path;
        self.displace(now, handle);
        path
    }

    /// Whether a transaction uses a path.
    pub fn uses(&self, path: PathId) -> bool {
        self.core.shared.paths.has_sessions(path)
    }

    /// Removes a reception to make room for another, unless it ends by itself.
    fn displace(&mut self, now: Time, handle: Handle) {
        let Some(Transaction::Receiver(receiver)) = self.slots.get_mut(handle) else {
            self.core.shared.places.leave(handle);
            return;
        };
        if !receiver.give_way(&mut self.core) {
            self.core.shared.places.exempt(handle);
            return;
        }
        self.core.stats.receptions_displaced += 1;
        self.core.shared.places.leave(handle);
        let (id, pdu) = (receiver.base.id(), receiver.staged_pdu());
        if let Some(pdu) = pdu {
            self.staged.insert_within(STAGED_MAX, id, pdu);
        }
        if let Some(lost) = receiver.lost_file() {
            self.lost(now, lost);
        }
        self.settle(handle);
    }

    /// Indicates a file of class 1 that is lost for lack of room, a few times a second.
    fn lost(&mut self, now: Time, lost: NoRoom) {
        self.core.stats.files_without_room += 1;
        if now >= self.lost_from {
            self.lost_from = now + LOST_INTERVAL;
            self.core.user.indicate(Indication::NoRoom(lost));
        }
    }

    /// Peer that sends files of this source on a path.
    fn guest(&self, from: Option<PathId>, source: u64) -> Guest {
        let paths = &self.core.shared.paths;
        let host = paths.host(from.unwrap_or_default());
        let path = self.core.config.remote(source).path;
        Guest { host, is_known: path.is_some_and(|path| paths.host(path) == host) }
    }

    pub(super) fn begin_reception(
        &mut self,
        now: Time,
        from: Option<PathId>,
        header: &Header,
    ) -> Handle {
        let guest = self.guest(from, header.source.0);
        let id = header.transaction();
        let handle = self.slots.reserve();
        let remote = self.core.config.remote(header.source.0).clone();
        let mut base = Base::new(handle, reverse(header), header.source.0, remote);
        base.seat.path = base.seat.path.or(from);
        base.last_received = now;
        let path = base.seat.path.and_then(|path| self.core.shared.paths.get(&path));
        let is_limited_below = path.is_some_and(Path::is_above_a_layer);
        base.credit = if guest.is_known || is_limited_below {
            Credit::Unlimited
        } else {
            Credit::for_received(0)
        };
        self.core.shared.places.enter(handle, now, guest);
        let receiver = Receiver::new(base, &mut self.core, now);
        let mut transaction = Transaction::Receiver(Box::new(receiver));
        // PDUs under way when the path went down still arrive.
        if !transaction.base().running(&self.core) {
            transaction.follow(&mut self.core, now);
        }
        self.fill(handle, id, transaction);
        handle
    }

    /// Replies to a PDU of no transaction under way, so that the peer can end it.
    pub(super) fn answer_stranger(&mut self, now: Time, from: PathId, pdu: &Pdu<'_>) {
        self.core.stats.stray += 1;
        if pdu.header.mode == TransmissionMode::Unacknowledged {
            return;
        }
        let id = pdu.header.transaction();
        let (of, condition, status) = match pdu.body {
            Body::Eof(eof) if pdu.header.direction == Direction::TowardReceiver => {
                let status = match self.closed.get(id) {
                    Some(_) => TransactionStatus::Terminated,
                    // The PDU would have started a reception if there were room: the sender may
                    // retry.
                    None if eof.condition == ConditionCode::NoError => return,
                    None => TransactionStatus::Unrecognized,
                };
                (Acknowledged::Eof, eof.condition, status)
            }
            Body::Finished(finished) if finished.end_system => {
                // Puts are not remembered, so the PDU may belong to a finished one.
                (Acknowledged::Finished, finished.condition, TransactionStatus::Undefined)
            }
            Body::Eof(_)
            | Body::Finished(_)
            | Body::FileData(_)
            | Body::Ack(_)
            | Body::Metadata(_)
            | Body::Nak(_)
            | Body::Prompt(_)
            | Body::KeepAlive(_)
            | Body::Unknown { .. } => return,
        };
        if !self.loaded {
            return;
        }
        let is_refusal = status != TransactionStatus::Terminated;
        if is_refusal && !self.core.shared.replies.refusals.admit(now, from) {
            self.core.stats.refusals_left_out += 1;
            self.core.user.limit_reached(Limit::Refusals);
            return;
        }
        let mut credit = Credit::for_received(pdu.encoded_len() as u64);
        let subtype = u8::from(of == Acknowledged::Finished);
        let body = Body::Ack(Ack { directive: of, subtype, condition, status });
        let ack = Pdu { header: reverse(&pdu.header), body };
        self.reply(from, ack.to_vec().ok(), &mut credit);
        if of == Acknowledged::Eof {
            let known = self.closed.get(id).map(|over| over.pdu.clone());
            let known = known.filter(|pdu| !pdu.is_empty());
            if let Some(Ok(Pdu { body: Body::Finished(finished), .. })) =
                known.as_deref().map(Pdu::decode)
            {
                let (condition, delivery) = (finished.condition, finished.delivery);
                self.core.user.indicate(Indication::FinishedRepeated { id, condition, delivery });
            }
            self.reply(from, known, &mut credit);
        }
    }

    /// Queues a PDU of no transaction under way, as far as the credit of its peer allows.
    pub(super) fn reply(&mut self, path: PathId, pdu: Option<Vec<u8>>, credit: &mut Credit) {
        let Some(pdu) = pdu else { return };
        let mtu = self.core.shared.paths.get(&path).map_or(usize::MAX, Path::mtu);
        let pdu = finished::fitted(pdu, mtu.min(credit.left()));
        if !credit.spend(pdu.len()) {
            self.core.stats.held_back += 1;
            return;
        }
        if self.core.shared.replies.push(path, pdu) {
            return;
        }
        self.core.stats.replies_dropped += 1;
        self.core.user.limit_reached(Limit::Replies);
    }

    pub(super) fn path_event(&mut self, now: Time, id: PathId, event: PathEvent) {
        let config = &self.core.config;
        let remote = config.remotes.values().find(|remote| remote.path == Some(id));
        let configured = remote.is_some() || config.default_remote.path == Some(id);
        let pacing = Pacing {
            rate_bps: remote.unwrap_or(&config.default_remote).rate_bps,
            catch_up: config.catch_up,
            ..Pacing::default()
        };
        let change = self.core.shared.path_event(id, event, pacing);
        let is_up = self.core.shared.paths.get(&id).is_some_and(Path::is_up);
        if change.is_none() && is_up {
            return;
        }
        let only = self.core.shared.only_path();
        let in_use = self.uses(id);
        // Most paths of strangers have no transaction.
        let concerned = if in_use || only.is_some() { usize::MAX } else { 0 };
        for transaction in self.slots.iter_mut().take(concerned) {
            let base = transaction.base_mut();
            if base.seat.path.is_none()
                && let Some(only) = only
            {
                base.seat.set_path(&mut self.core.shared.paths, only);
            }
            if base.seat.path == Some(id) && change.is_some() {
                transaction.follow(&mut self.core, now);
            }
        }
        if !is_up && !in_use && !configured {
            // Addresses of a single datagram would otherwise be kept for ever.
            self.core.shared.paths.remove(id);
        }
    }

    pub(super) fn effect_done(
        &mut self,
        now: Time,
        ticket: Ticket,
        answer: Result<Completion, EffectError>,
    ) {
        let Some((handle, job)) = self.core.shared.completed(ticket) else { return };
        if handle == Handle::NOBODY || job == Job::Forget {
            match job {
                Job::Own(Task::Load) => self.restore(now, answer),
                Job::Own(Task::Sequence(safe)) => {
                    if answer.is_err() {
                        self.core.stats.record_errors += 1;
                    }
                    self.sequences_reserved(now, safe);
                }
                Job::Own(Task::Operation(number)) => self.job_done(now, number, answer),
                Job::Forget
                | Job::Open
                | Job::Read { .. }
                | Job::Repair { .. }
                | Job::Write { .. }
                | Job::Sync
                | Job::Install
                | Job::Own(Task::Request | Task::Journal) => {}
            }
            return;
        }
        match self.slots.get_mut(handle) {
            Some(Transaction::Sender(sender)) => sender.done(&mut self.core, now, job, answer),
            Some(Transaction::Receiver(receiver)) => {
                receiver.done(&mut self.core, now, job, answer);
            }
            None => self.core.shared.orphaned(&job, &answer),
        }
        self.settle(handle);
    }

    /// Whether no transaction with this identifier is known.
    pub(super) fn is_free(&self, id: TransactionId) -> bool {
        !self.by_id.contains_key(&id) && self.closed.get(id).is_none()
    }
}

/// Whether a PDU of a transaction may arrive on a path. If so, the transaction moves to that path.
fn comes_by(transaction: &mut Transaction, core: &mut Core, now: Time, from: PathId) -> bool {
    let base = transaction.base_mut();
    if base.seat.path == Some(from) {
        return true;
    }
    if !base.may_move(core, now) {
        return false;
    }
    base.seat.set_path(&mut core.shared.paths, from);
    // Timers stopped with the old path would not be restarted by the new one.
    if base.is_frozen() || !base.running(core) {
        transaction.follow(core, now);
    } else {
        transaction.want_all(core);
    }
    true
}

/// Whether a header is consistent with earlier ones of a reception. Updates the known header.
fn admits_header(known: &mut Header, header: &Header) -> bool {
    // The CRC flag is not protected by the CRC, so a sender that once sent one must continue to.
    // Offsets of 64 bits can be requested only by PDUs with such offsets, which version 000 does
    // not have.
    if known.crc && !header.crc {
        return false;
    }
    known.crc = header.crc;
    if header.large_file && known.version == Version::V0 {
        return false;
    }
    known.large_file |= header.large_file;
    true
}
