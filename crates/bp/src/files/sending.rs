//! Sending of files.

use std::collections::BTreeSet;

use bytes::Bytes;
use engine::{Completion, EffectError, EffectResult, FileId as OpenFile, FileName, OpenMode, Time};

use super::{Expiry, Failure, FileId, Files, Indication, SendError, Use, record};
use crate::agent::SendRequest;
use crate::app::{Excerpt, NodeFacts, Order, Outgoing, OutgoingId};
use crate::codec::bp7::{BundleFlags, Eid};
use crate::codec::file_part::{FilePart, NAME_MAX, crc_append};

/// A file being sent.
#[derive(Debug)]
pub(super) struct Sending {
    record: record::Sent,
    step: Step,
    source: Option<OpenFile>,
    /// Bytes of the part being handed in that the node has read.
    passed: u64,
    /// Bundles not forwarded yet, and those whose delivery is not reported.
    queued: BTreeSet<OutgoingId>,
    unreported: BTreeSet<OutgoingId>,
    /// Whether it was started by an earlier run.
    is_resumed: bool,
}

/// Current step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Opening,
    Recording,
    /// Waiting for the node, or until fewer bundles are queued in it.
    Ready,
    /// Computing the checksum of the next part.
    Checking {
        len: u64,
        at: u64,
        crc: u32,
    },
    /// The node is about to store a part.
    Handing {
        id: OutgoingId,
        len: u64,
    },
    /// The node has all parts.
    Handed,
}

impl Sending {
    fn new(record: record::Sent, is_resumed: bool) -> Self {
        Self {
            record,
            step: Step::Opening,
            source: None,
            passed: 0,
            queued: BTreeSet::new(),
            unreported: BTreeSet::new(),
            is_resumed,
        }
    }

    fn part(&self, offset: u64) -> FilePart<'_> {
        let record::Sent { transfer, total, name, .. } = &self.record;
        FilePart { transfer: *transfer, total: *total, offset, name }
    }
}

impl Files {
    /// Sends a file of the store to an endpoint under a name. Ends with [`Indication::Sent`].
    /// Continues the transfer that an earlier run started for the same request.
    ///
    /// # Errors
    ///
    /// Too many files are being sent, or the name is too long.
    pub fn send(
        &mut self,
        now: Time,
        source: FileName,
        name: &str,
        to: &Eid,
    ) -> Result<FileId, SendError> {
        let part = self.config.part;
        let is_it = |sending: &Sending| {
            let record::Sent { source: earlier, name: called, to: there, part: of, .. } =
                &sending.record;
            sending.is_resumed
                && (earlier, called.as_str(), there, of) == (&source, name, to, &part)
        };
        let earlier = self.sending.iter().find(|(_, sending)| is_it(sending));
        if let Some((id, _)) = earlier {
            return Ok(*id);
        }
        if self.sending.len() >= self.config.limits.sending {
            return Err(SendError::Full);
        }
        if name.len() > NAME_MAX {
            return Err(SendError::Name);
        }
        let transfer = self.rng.next_u64();
        let id = FileId(transfer);
        let record = record::Sent {
            source: source.clone(),
            name: name.to_owned(),
            to: to.clone(),
            transfer,
            attempt: transfer,
            total: 0,
            modified: None,
            part,
            next: Some(0),
            bundles: 0,
            started_ms: self.now_ms(now),
            memory_of: None,
        };
        self.sending.insert(id, Sending::new(record, false));
        self.effects.open(Use::Send(id), source, OpenMode::Read);
        Ok(id)
    }

    /// Bytes of a file that the node has, and its size; `None` once it is over.
    #[must_use]
    pub fn progress(&self, id: FileId) -> Option<(u64, u64)> {
        let Sending { record, passed, .. } = self.sending.get(&id)?;
        Some((record.next.map_or(record.total, |next| next + passed), record.total))
    }

    /// Continues a file of an earlier run. Its first parts may have expired since.
    pub(super) fn resume(&mut self, now: Time, mut record: record::Sent) {
        let id = FileId(record.transfer);
        let age_ms = self.now_ms(now).zip(record.started_ms);
        let age_ms = age_ms.map_or(Some(0), |(now, started)| now.checked_sub(started));
        if age_ms.is_none_or(|age| u128::from(age) >= self.config.lifetime.as_millis()) {
            record.begin_again(self.rng.next_u64());
            record.started_ms = self.now_ms(now);
        }
        let source = record.source.clone();
        self.sending.insert(id, Sending::new(record, true));
        self.effects.open(Use::Send(id), source, OpenMode::Read);
    }

    pub(super) fn node_up(&mut self, now: Time, facts: NodeFacts) {
        self.node = Some(facts);
        for id in self.sending.keys().copied().collect::<Vec<_>>() {
            self.next_part(now, id);
        }
    }

    pub(super) fn sending_done(&mut self, now: Time, id: FileId, result: EffectResult) {
        let Some(sending) = self.sending.get_mut(&id) else {
            return self.effects.close_orphan(&result);
        };
        let result = match result {
            Ok(result) => result,
            Err(error) => return self.end(id, Err(Failure::Store(error))),
        };
        match (sending.step, result) {
            (Step::Opening, Completion::Opened { file, len, modified }) => {
                sending.source = Some(file);
                let record = &mut sending.record;
                if !sending.is_resumed {
                    (record.total, record.modified) = (len, modified);
                } else if (record.total, record.modified) != (len, modified) {
                    return self.end(id, Err(Failure::Store(EffectError::Changed)));
                }
                self.record(id);
            }
            (Step::Recording, _) => {
                sending.step = match sending.record.next {
                    Some(_) => Step::Ready,
                    None => Step::Handed,
                };
                self.next_part(now, id);
                self.end_if_done(id);
            }
            (Step::Checking { len, at, crc }, Completion::Read(bytes)) => {
                if bytes.is_empty() {
                    return self.end(id, Err(Failure::Store(EffectError::Changed)));
                }
                let (at, crc) = (at + bytes.len() as u64, crc_append(crc, &bytes));
                sending.step = Step::Checking { len, at, crc };
                self.check(now, id);
            }
            _ => {}
        }
    }

    fn record(&mut self, id: FileId) {
        let Some(sending) = self.sending.get_mut(&id) else { return };
        sending.step = Step::Recording;
        let put = sending.record.put();
        self.effects.index(Use::Send(id), put);
    }

    /// Begins the next part of a file, if there is one and few enough are queued.
    fn next_part(&mut self, now: Time, id: FileId) {
        let Some(facts) = self.node.filter(|_| !self.is_stopped) else { return };
        let ahead = self.config.limits.ahead.max(1);
        let Some(sending) = self.sending.get_mut(&id) else { return };
        if sending.step != Step::Ready || sending.queued.len() >= ahead {
            return;
        }
        let record = &mut sending.record;
        if record.memory_of != facts.memory_of {
            // The node has lost the earlier parts. A receiver that has them skips them.
            record.begin_again(self.rng.next_u64());
            record.memory_of = facts.memory_of;
        }
        let Some(offset) = record.next else { return };
        let left = record.total - offset;
        let len = record.part.unwrap_or(u64::MAX).min(left);
        let crc = sending.part(offset).crc().unwrap_or_default();
        sending.step = Step::Checking { len, at: 0, crc };
        self.check(now, id);
    }

    /// Reads the next bytes of a part for its checksum, or hands it to the node.
    fn check(&mut self, now: Time, id: FileId) {
        let Some(sending) = self.sending.get(&id) else { return };
        let (Step::Checking { len, at, .. }, Some(file), Some(offset)) =
            (sending.step, sending.source, sending.record.next)
        else {
            return;
        };
        if at < len {
            self.effects.read(Use::Send(id), file, offset + at, len - at);
        } else {
            self.hand_in(now, id);
        }
    }

    fn hand_in(&mut self, now: Time, id: FileId) {
        let outgoing = OutgoingId(self.next_outgoing);
        self.next_outgoing += 1;
        let request = self.request();
        let (is_followed, is_reported) =
            (self.node.is_some_and(|facts| facts.follows), self.config.reports);
        let Some(sending) = self.sending.get_mut(&id) else { return };
        let (Step::Checking { len, crc, .. }, Some(offset)) = (sending.step, sending.record.next)
        else {
            return;
        };
        let part = sending.part(offset);
        let excerpt = Excerpt {
            file: sending.record.source.clone(),
            offset,
            len,
            crc_before: part.crc().unwrap_or_default(),
            crc_after: crc,
        };
        let header = part.encode(crc).unwrap_or_default();
        let request = SendRequest {
            destination: sending.record.to.clone(),
            // If the node's reply is lost, the part is not sent twice.
            key: Some(u128::from(sending.record.attempt) << 64 | u128::from(offset)),
            payload: crate::layer::Content::Bytes(Bytes::from(header)),
            ..request
        };
        sending.step = Step::Handing { id: outgoing, len };
        sending.passed = 0;
        if is_followed {
            sending.queued.insert(outgoing);
            if is_reported {
                sending.unreported.insert(outgoing);
            }
            let until = now + self.config.lifetime;
            self.timers.set(Expiry(id), until, "a file without a delivery report");
        }
        self.outgoing.insert(outgoing, id);
        let excerpt = Some(excerpt).filter(|excerpt| excerpt.len > 0);
        self.orders.push_back(Order::Send(Box::new(Outgoing { id: outgoing, request, excerpt })));
    }

    /// A request with these settings, without destination and payload.
    fn request(&self) -> SendRequest {
        let config = &self.config;
        let mut flags = config.flags;
        if config.reports {
            flags = flags.with(BundleFlags::REPORT_DELIVERY);
        }
        SendRequest {
            source: config.endpoint.clone(),
            report_to: config.report_to.clone(),
            lifetime: config.lifetime,
            flags,
            priority: config.priority,
            version: config.version,
            custody: config.custody,
            hop_limit: config.hop_limit,
            ..SendRequest::new(Eid::None, Bytes::new())
        }
    }

    /// Waits for room, at most for the lifetime of a bundle.
    pub(super) fn on_waiting(&mut self, now: Time, id: OutgoingId, why: String) {
        let Some(file) = self.outgoing.get(&id).copied() else { return };
        if self.timers.get(Expiry(file)).is_none() {
            let until = now + self.config.lifetime;
            self.timers.set(Expiry(file), until, "a part for which the node has no room");
        }
        self.indications.push_back(Indication::Waiting { file, why });
    }

    /// File of which a bundle is a part.
    fn file_of(&mut self, id: OutgoingId) -> Option<(FileId, &mut Sending)> {
        let file = *self.outgoing.get(&id)?;
        Some((file, self.sending.get_mut(&file)?))
    }

    pub(super) fn on_passed(&mut self, id: OutgoingId, bytes: u64) {
        if let Some((_, sending)) = self.file_of(id) {
            sending.passed = bytes;
        }
    }

    pub(super) fn on_stored(&mut self, id: OutgoingId) {
        let Some((file, sending)) = self.file_of(id) else { return };
        let Step::Handing { id: handed, len } = sending.step else { return };
        if handed != id {
            return;
        }
        let record = &mut sending.record;
        record.bundles += 1;
        let next = record.next.map(|next| next + len);
        record.next = next.filter(|next| *next < record.total);
        sending.passed = 0;
        if self.node.is_some_and(|facts| !facts.follows) {
            self.timers.cancel(Expiry(file));
        }
        self.record(file);
    }

    pub(super) fn on_forwarded(&mut self, now: Time, id: OutgoingId) {
        let Some((file, sending)) = self.file_of(id) else { return };
        sending.queued.remove(&id);
        self.next_part(now, file);
        self.end_if_done(file);
    }

    pub(super) fn on_delivered(&mut self, now: Time, id: OutgoingId) {
        let Some((_, sending)) = self.file_of(id) else { return };
        sending.unreported.remove(&id);
        // A reported delivery counts even without an acknowledgment.
        self.on_forwarded(now, id);
    }

    pub(super) fn on_lost(&mut self, id: OutgoingId, failure: Failure) {
        if let Some(file) = self.outgoing.get(&id).copied() {
            self.end(file, Err(failure));
        }
    }

    /// Ends a file whose last part has expired.
    pub(super) fn expire(&mut self, id: FileId) {
        let Some(sending) = self.sending.get(&id) else { return };
        let failure = match sending.step {
            Step::Handing { .. } => {
                Failure::Refused("the node had no room for a part within its lifetime".to_owned())
            }
            _ => Failure::Unreported,
        };
        self.end(id, Err(failure));
    }

    fn end_if_done(&mut self, id: FileId) {
        let Some(sending) = self.sending.get(&id) else { return };
        let waits_for = if self.config.reports { &sending.unreported } else { &sending.queued };
        if sending.step == Step::Handed && waits_for.is_empty() {
            self.end(id, Ok(()));
        }
    }

    pub(super) fn end(&mut self, id: FileId, result: Result<(), Failure>) {
        let Some(sending) = self.sending.remove(&id) else { return };
        self.timers.cancel(Expiry(id));
        self.effects.close(sending.source);
        let is_followed = self.node.is_some_and(|facts| facts.follows);
        // A node that is asked again later may take the rest.
        let is_over =
            is_followed || matches!(result, Ok(()) | Err(Failure::Store(EffectError::Changed)));
        if is_over {
            self.effects.index(Use::Nobody, sending.record.removal());
        }
        self.outgoing.retain(|bundle, of| {
            let is_other = *of != id;
            if !is_other {
                self.orders.push_back(Order::Forget(*bundle));
            }
            is_other
        });
        self.indications.push_back(Indication::Sent {
            file: id,
            is_reported: self.config.reports
                && is_followed
                && result.is_ok()
                && !sending.is_resumed,
            name: sending.record.name,
            bundles: sending.record.bundles,
            result,
        });
    }
}
