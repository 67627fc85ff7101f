//! End of a reception: the checksum, the rename, and the state kept of a failed one.

use engine::{FilestoreRequest, Time};
use session::storage::Storage as _;

use super::{Phase, Receiver};
use crate::core::{Alarm, Core, Job};
use crate::directory;
use crate::indication::{Failure, Finished, Indication};
use crate::packet::{Content, StatusCode};
use crate::received;

impl Receiver {
    /// Finishes the session if everything has arrived.
    pub(super) fn check_complete(&mut self, core: &mut Core, now: Time) {
        if self.phase != Phase::Receiving || self.spool.file().is_none() {
            return;
        }
        self.spool.sum_up(&mut core.shared, self.base.seat.handle, self.extent.ranges.prefix());
        if !self.is_whole() {
            return;
        }
        self.phase = Phase::Verifying;
        self.base.disarm_all(&mut core.shared);
        self.spool.flush(&mut core.shared, self.base.seat.handle);
        self.summed_up(core, now);
    }

    /// Continues after a part of the checksum was computed.
    pub(super) fn summed_up(&mut self, core: &mut Core, now: Time) {
        let handle = self.base.seat.handle;
        self.spool.sum_up(&mut core.shared, handle, self.extent.ranges.prefix());
        if self.phase != Phase::Verifying {
            return;
        }
        let (Some(end), Some(description)) = (self.extent.end(), self.description.as_ref()) else {
            return;
        };
        let Some(value) = self.spool.value(end) else { return };
        if description.checksum.is_some_and(|checksum| checksum != value) {
            // §4.3: a file that does not match its checksum is discarded.
            self.forget_record(core);
            self.refuse(core, now, StatusCode::Unspecified);
            return;
        }
        if description.content == Content::Directory {
            self.phase = Phase::Reading;
            self.read_listing(core, now);
        } else {
            self.phase = Phase::Syncing;
            self.progress.sync(&mut core.shared, handle, &self.spool);
        }
    }

    pub(super) fn read_listing(&mut self, core: &mut Core, now: Time) {
        let (Some(file), Some(end)) = (self.spool.file(), self.extent.end()) else { return };
        let at = self.listing.len() as u64;
        if at < end {
            let piece = core.config.limits.buffers.read_piece as u64;
            let len = piece.min(end - at).max(1) as usize;
            core.shared.read(self.base.seat.handle, file, at, len);
            return;
        }
        match directory::decode(&self.listing) {
            Some(entries) => {
                core.user.indicate(Indication::Listing { id: self.id, entries });
                self.succeed(core, now);
                self.discard(core);
            }
            None => self.refuse(core, now, StatusCode::Unspecified),
        }
    }

    pub(super) fn storage_failed(&mut self, core: &mut Core, now: Time) {
        core.stats.storage_errors += 1;
        self.refuse(core, now, StatusCode::ReceiverResources);
    }

    pub(super) fn synced(&mut self, core: &mut Core) {
        let is_syncing = self.progress.synced();
        match self.phase {
            Phase::Syncing if !is_syncing => {
                let description = self
                    .description
                    .as_ref()
                    .and_then(|description| description.destination.clone());
                let Some(to) = description else { return };
                self.phase = Phase::Installing;
                self.spool.close(&mut core.shared);
                let request = FilestoreRequest::Install { from: self.spool.name.clone(), to };
                core.shared.filestore(self.base.seat.handle, Job::Install, request);
            }
            Phase::Receiving => {
                if self.progress.settle() {
                    self.put_record(core);
                }
            }
            Phase::Syncing
            | Phase::Asking
            | Phase::Verifying
            | Phase::Reading
            | Phase::Installing
            | Phase::Closing(_)
            | Phase::Done => self.progress.drop_syncing(),
        }
    }

    pub(super) fn installed(&mut self, core: &mut Core, now: Time) {
        self.forget_record(core);
        if let (Some(description), Some(end)) = (self.description.as_ref(), self.extent.end()) {
            received::record(core, received::key(self.id.number, &description.identity), end);
        }
        self.succeed(core, now);
    }

    /// Reports success to the user and the sender.
    pub(super) fn succeed(&mut self, core: &mut Core, now: Time) {
        self.outcome = Some(StatusCode::Ok);
        self.finished(core, Ok(()));
        self.conclude(core, now, StatusCode::Ok);
    }

    /// Reports the result to the sender. A path that stays down does not keep the session for ever.
    fn conclude(&mut self, core: &mut Core, now: Time, code: StatusCode) {
        if self.reports.is_unwanted() {
            self.close(core);
            return;
        }
        self.phase = Phase::Closing(code);
        let inactivity = core.inactivity(&self.base, &self.remote);
        self.base.alarm(&mut core.shared, Alarm::Inactivity, now, inactivity);
        self.volunteer(core);
    }

    /// Removes the record of an incomplete file, if there is one.
    pub(super) fn forget_record(&mut self, core: &mut Core) {
        // A record being stored is removed afterwards.
        if !self.progress.safe().is_empty() && !self.record.is_busy() {
            core.forget_record(self.number);
        }
        self.progress.forget();
        self.record.drop_waiting();
    }

    pub(super) fn finished(&self, core: &mut Core, result: Result<(), Failure>) {
        core.user.indicate(Indication::Finished(Finished {
            id: self.id,
            result,
            is_confirmed: result.is_ok(),
            name: self.name(),
            size: self.extent.end().unwrap_or_else(|| self.extent.ranges.covered()),
            resumed: self.resumed,
        }));
    }

    /// Ends the session, and reports the reason to the sender.
    pub(crate) fn refuse(&mut self, core: &mut Core, now: Time, code: StatusCode) {
        if matches!(self.phase, Phase::Closing(_) | Phase::Done) {
            return;
        }
        let has_no_sender = self.phase == Phase::Asking;
        self.fail(core, Failure { is_ours: true, code });
        if has_no_sender {
            self.close(core);
        } else {
            self.conclude(core, now, code);
        }
    }

    /// Reports the failure to the user, and keeps state that may be useful later.
    pub(super) fn fail(&mut self, core: &mut Core, failure: Failure) {
        self.outcome = Some(failure.code);
        self.finished(core, Err(failure));
        self.base.disarm_all(&mut core.shared);
        self.reports.clear();
        // State is kept even when the user cancels: a later request for the file resumes.
        let kept = self.partial().filter(|partial| !partial.ranges.is_empty());
        match kept {
            Some(partial) if self.phase != Phase::Verifying => {
                self.spool.abandon(&mut core.shared);
                core.keep_partial(self.number, partial);
                self.progress.forget();
            }
            Some(_) | None => {
                self.forget_record(core);
                self.discard(core);
            }
        }
    }

    /// Deletes the working file.
    pub(super) fn discard(&mut self, core: &mut Core) {
        self.spool.abandon(&mut core.shared);
        if self.spool.is_started() {
            let request = FilestoreRequest::DenyFile(self.spool.name.clone());
            core.shared.filestore(self.base.seat.handle, Job::Forget, request);
        }
    }

    /// Ends silently, for another session in its place or about the same file.
    pub(crate) fn vanish(&mut self, core: &mut Core) {
        self.forget_record(core);
        self.discard(core);
        self.close(core);
    }

    pub(super) fn close(&mut self, core: &mut Core) {
        self.base.disarm_all(&mut core.shared);
        self.spool.abandon(&mut core.shared);
        self.phase = Phase::Done;
    }
}
