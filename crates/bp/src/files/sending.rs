//! Sending of files.

use std::collections::BTreeSet;

use bytes::Bytes;
use engine::{Completion, EffectError, FileName, OpenMode, Time};

use super::super::agent::{Agent, RequestError, SendRequest};
use super::super::layer::Content;
use super::super::routes::Priority;
use super::{Alarm, Failure, FileId, Files, Indication, SendError, Use};
use crate::codec::bp7::{BundleFlags, BundleId, Eid, Status, StatusReport};
use crate::codec::file_part::{FilePart, NAME_MAX, crc_append};

/// A file being sent.
#[derive(Debug)]
pub(super) struct Sending {
    name: String,
    to: Eid,
    transfer: u64,
    step: Step,
    /// The file, once open, and its length in bytes.
    source: Option<(engine::FileId, u64)>,
    /// Offset of the next part; `None` after the last.
    next: Option<u64>,
    parts: u64,
    /// Bundles still at this node; bundles whose delivery is not reported.
    here: BTreeSet<BundleId>,
    unreported: BTreeSet<BundleId>,
}

/// Current step.
#[derive(Debug)]
enum Step {
    /// Opening the file.
    Opening,
    /// Opening the working file of a part.
    Making(Making),
    /// Reading or writing a piece of the part, at this offset of it.
    Copying { making: Making, file: engine::FileId, crc: u32, at: u64 },
    /// Writing its header, then syncing.
    Ending { making: Making, file: engine::FileId, is_written: bool },
    /// Waiting for room in the agent's store.
    Stalled(Making),
    /// Waiting until bundles have been sent.
    Waiting,
}

/// Part that is being written.
#[derive(Clone, Debug)]
pub(super) struct Making {
    working: FileName,
    offset: u64,
    len: u64,
    header: u64,
}

impl Files {
    /// Sends a file of this node's store to another node under a name. Ends with
    /// [`Indication::Sent`].
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
        if self.sending.len() >= self.config.limits.files {
            return Err(SendError::Full);
        }
        if name.len() > NAME_MAX {
            return Err(SendError::Name);
        }
        let transfer = self.rng.next_u64();
        let id = FileId(transfer);
        let sending = Sending {
            name: name.to_owned(),
            to: to.clone(),
            transfer,
            step: Step::Opening,
            source: None,
            next: Some(0),
            parts: 0,
            here: BTreeSet::new(),
            unreported: BTreeSet::new(),
        };
        self.sending.insert(id, sending);
        self.open(Use::Send(id), source, OpenMode::Read);
        self.listen(now);
        Ok(id)
    }

    pub(super) fn sending_effect_done(
        &mut self,
        now: Time,
        id: FileId,
        result: Result<Completion, EffectError>,
    ) {
        let Some(sending) = self.sending.get_mut(&id) else {
            if let Ok(Completion::Opened { file, .. }) = result {
                self.close(file);
            }
            return;
        };
        let result = match result {
            Ok(result) => result,
            Err(error) => return self.end(id, Err(Failure::Store(error))),
        };
        match (std::mem::replace(&mut sending.step, Step::Waiting), result) {
            (Step::Opening, Completion::Opened { file, len, .. }) => {
                sending.source = Some((file, len));
                let parts = self.config.part.map_or(1, |part| len.div_ceil(part.max(1)));
                if parts > self.config.limits.parts {
                    return self.end(id, Err(Failure::TooManyParts));
                }
                self.next_part(id);
            }
            (Step::Making(making), Completion::Opened { file, .. }) => {
                let Some(part) = self.part(id, &making) else { return };
                let crc = part.crc().unwrap_or_default();
                self.copy(id, making, file, crc, 0);
            }
            (Step::Copying { making, file, crc, at }, Completion::Read(bytes)) => {
                if bytes.is_empty() {
                    let cut = EffectError::Failed("the file shrank".to_owned());
                    return self.end(id, Err(Failure::Store(cut)));
                }
                let (crc, to) = (crc_append(crc, &bytes), making.header + at);
                let at = at + bytes.len() as u64;
                if let Some(sending) = self.sending.get_mut(&id) {
                    sending.step = Step::Copying { making, file, crc, at };
                }
                self.write(Use::Send(id), file, to, bytes);
            }
            (Step::Copying { making, file, crc, at }, _) => self.copy(id, making, file, crc, at),
            (Step::Ending { making, file, is_written: false }, _) => {
                sending.step = Step::Ending { making, file, is_written: true };
                self.sync(Use::Send(id), file);
            }
            (Step::Ending { making, file, is_written: true }, _) => {
                self.close(file);
                self.hand_in(now, id, making);
            }
            (step, _) => sending.step = step,
        }
    }

    fn part<'a>(&'a self, id: FileId, making: &Making) -> Option<FilePart<'a>> {
        let sending = self.sending.get(&id)?;
        let (_, total) = sending.source?;
        let Sending { transfer, name, .. } = sending;
        Some(FilePart { transfer: *transfer, total, offset: making.offset, name })
    }

    /// Starts the next part of a file, if there is one and few enough are queued.
    fn next_part(&mut self, id: FileId) {
        let (most, ahead) = (self.config.part, self.config.limits.ahead.max(1));
        let Some(sending) = self.sending.get_mut(&id) else { return };
        let (Step::Waiting, Some((_, total)), Some(offset)) =
            (&sending.step, sending.source, sending.next)
        else {
            return;
        };
        if sending.here.len() >= ahead {
            return;
        }
        let len = most.map_or(total, |most| most.max(1)).min(total - offset);
        let working = format!("files-{:016x}-{}", sending.transfer, sending.parts);
        let working = FileName::spool(&working).expect("letters and digits are a name");
        let making = Making { working: working.clone(), offset, len, header: 0 };
        let Some(part) = self.part(id, &making) else { return };
        let header = part.header_len() as u64;
        let Some(sending) = self.sending.get_mut(&id) else { return };
        sending.parts += 1;
        sending.next = Some(offset + len).filter(|next| *next < total);
        sending.step = Step::Making(Making { header, ..making });
        self.open(Use::Send(id), working, OpenMode::Truncate);
    }

    /// Copies the next piece of a part, or ends it.
    fn copy(&mut self, id: FileId, making: Making, file: engine::FileId, crc: u32, at: u64) {
        let read = self.config.limits.read.max(1) as u64;
        if at == making.len {
            let header = self.part(id, &making).and_then(|part| part.encode(crc).ok());
            let Some(sending) = self.sending.get_mut(&id) else { return };
            sending.step = Step::Ending { making, file, is_written: false };
            self.write(Use::Send(id), file, 0, Bytes::from(header.unwrap_or_default()));
            return;
        }
        let here = usize::try_from(read.min(making.len - at)).unwrap_or(usize::MAX);
        let from = making.offset + at;
        let Some(sending) = self.sending.get_mut(&id) else { return };
        let Some((source, _)) = sending.source else { return };
        sending.step = Step::Copying { making, file, crc, at };
        self.read(Use::Send(id), source, from, here);
    }

    /// Hands a part to the agent.
    fn hand_in(&mut self, now: Time, id: FileId, making: Making) {
        let Some(sending) = self.sending.get_mut(&id) else { return };
        let flags =
            if self.config.reports { BundleFlags::REPORT_DELIVERY } else { BundleFlags::default() };
        let len = making.header + making.len;
        let request = SendRequest {
            source: Some(self.config.endpoint.clone()),
            destination: sending.to.clone(),
            report_to: None,
            lifetime: self.config.lifetime,
            flags,
            priority: Priority::Normal,
            version: self.config.version,
            custody: self.config.custody,
            hop_limit: None,
            key: None,
            payload: Content::File { name: making.working.clone(), offset: 0, len },
            owns_file: true,
        };
        match self.node.with_agent(now, |agent: &mut Agent| agent.send(now, request)) {
            Ok(bundle) => {
                sending.here.insert(bundle.clone());
                if self.config.reports {
                    sending.unreported.insert(bundle.clone());
                }
                self.bundles.insert(bundle, id);
                let until = now + self.config.lifetime;
                self.timers.set(Alarm::Unreported(id), until, "a file without a delivery report");
                sending.step = Step::Waiting;
                self.next_part(id);
            }
            Err(RequestError::Full) => {
                sending.step = Step::Stalled(making);
                self.stalled.insert(id);
            }
            Err(error) => self.end(id, Err(Failure::Refused(error))),
        }
    }

    /// Handles a bundle that was sent to a neighbour.
    pub(super) fn forwarded(&mut self, now: Time, bundle: &BundleId) {
        if let Some(id) = self.bundles.get(bundle).copied()
            && let Some(sending) = self.sending.get_mut(&id)
        {
            sending.here.remove(bundle);
            self.next_part(id);
            self.end_if_done(id);
        }
        self.room(now);
    }

    /// Retries files that wait for room.
    fn room(&mut self, now: Time) {
        for id in std::mem::take(&mut self.stalled) {
            let Some(sending) = self.sending.get_mut(&id) else { continue };
            if let Step::Stalled(making) = std::mem::replace(&mut sending.step, Step::Waiting) {
                self.hand_in(now, id, making);
            }
        }
    }

    pub(super) fn deleted(&mut self, now: Time, bundle: &BundleId) {
        if let Some(id) = self.bundles.get(bundle).copied() {
            self.end(id, Err(Failure::Deleted));
        }
        self.room(now);
    }

    pub(super) fn reported(&mut self, report: &StatusReport) {
        let StatusReport { source, creation, .. } = report;
        let bundle = BundleId { source: source.clone(), creation: *creation, offset: None };
        let Some(id) = self.bundles.get(&bundle).copied() else { return };
        if report.deleted != Status::NotAsserted {
            return self.end(id, Err(Failure::Deleted));
        }
        if report.delivered == Status::NotAsserted {
            return;
        }
        if let Some(sending) = self.sending.get_mut(&id) {
            sending.unreported.remove(&bundle);
        }
        self.end_if_done(id);
    }

    fn end_if_done(&mut self, id: FileId) {
        let Some(sending) = self.sending.get(&id) else { return };
        let is_made = sending.next.is_none() && matches!(sending.step, Step::Waiting);
        let is_gone = sending.unreported.is_empty();
        // A reported delivery counts even without an acknowledgment.
        if is_made && is_gone && (self.config.reports || sending.here.is_empty()) {
            self.end(id, Ok(()));
        }
    }

    pub(super) fn end(&mut self, id: FileId, result: Result<(), Failure>) {
        let Some(sending) = self.sending.remove(&id) else { return };
        self.timers.cancel(Alarm::Unreported(id));
        self.stalled.remove(&id);
        let open = [
            sending.source.map(|(file, _)| file),
            match &sending.step {
                Step::Copying { file, .. } | Step::Ending { file, .. } => Some(*file),
                Step::Opening | Step::Making(_) | Step::Stalled(_) | Step::Waiting => None,
            },
        ];
        for file in open.into_iter().flatten() {
            self.close(file);
        }
        let working = match sending.step {
            Step::Making(making)
            | Step::Copying { making, .. }
            | Step::Ending { making, .. }
            | Step::Stalled(making) => Some(making.working),
            Step::Opening | Step::Waiting => None,
        };
        if let Some(working) = working {
            self.remove(working);
        }
        self.bundles.retain(|_, of| *of != id);
        self.indications.push_back(Indication::Sent {
            file: id,
            name: sending.name,
            is_reported: self.config.reports && result.is_ok(),
            result,
        });
    }
}
