//! End of a reception: the checksum, the rename, and the state kept of a failed one.

use engine::Time;
use session::StoreRefusal;
use session::delivery::Step;
use session::storage::Storage as _;

use super::{Phase, Receiver};
use crate::core::{Alarm, Core};
use crate::directory;
use crate::indication::{Failure, Finished, Indication};
use crate::packet::{Content, StatusCode};
use crate::received;

impl Receiver {
    /// Finishes the session if everything has arrived.
    pub(super) fn check_complete(&mut self, core: &mut Core, now: Time) {
        if self.phase != Phase::Receiving || self.delivery.spool.file().is_none() {
            return;
        }
        self.summed_up(core, now);
        if !self.is_whole() {
            return;
        }
        self.phase = Phase::Storing;
        self.base.disarm_all(&mut core.shared);
        self.delivery.complete(&mut core.shared, self.base.seat.handle);
        self.summed_up(core, now);
    }

    /// Continues after a part of the checksum was computed.
    pub(super) fn summed_up(&mut self, core: &mut Core, now: Time) {
        let (handle, prefix) = (self.base.seat.handle, self.extent.ranges.prefix());
        let sum = self.delivery.verify(&mut core.shared, handle, prefix, self.extent.end());
        let (Some(value), Some(description)) = (sum, self.description.as_ref()) else { return };
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
            self.delivery.sync(&mut core.shared, handle);
        }
    }

    pub(super) fn read_listing(&mut self, core: &mut Core, now: Time) {
        let (Some(file), Some(end)) = (self.delivery.spool.file(), self.extent.end()) else {
            return;
        };
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
                self.delivery.discard(&mut core.shared, self.base.seat.handle);
            }
            None => self.refuse(core, now, StatusCode::Unspecified),
        }
    }

    pub(super) fn cannot_store(&mut self, core: &mut Core, now: Time, cause: StoreRefusal) {
        core.stats.storage_errors += 1;
        self.refuse_for(core, now, Failure::of_store(cause));
    }

    pub(super) fn install(&mut self, core: &mut Core) {
        let description = self.description.as_ref();
        let destination = description.and_then(|description| description.destination.clone());
        let Some(to) = destination else { return };
        self.delivery.install(&mut core.shared, self.base.seat.handle, to);
    }

    pub(super) fn installed(&mut self, core: &mut Core, now: Time) {
        // An agent discards the copy of a bundle. If it came so fast that nothing of it was saved,
        // that costs less than a record.
        let is_recorded = !core.takes_bundles || !self.delivery.safe().is_empty();
        self.forget_record(core);
        if is_recorded
            && let (Some(description), Some(end)) = (self.description.as_ref(), self.extent.end())
        {
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
        if !self.delivery.safe().is_empty() && !self.delivery.record.is_busy() {
            core.forget_record(self.number);
        }
        self.delivery.forget();
        self.delivery.record.drop_waiting();
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
        self.refuse_for(core, now, Failure::here(code));
    }

    pub(super) fn refuse_for(&mut self, core: &mut Core, now: Time, failure: Failure) {
        if matches!(self.phase, Phase::Closing(_) | Phase::Done) {
            return;
        }
        let has_no_sender = self.phase == Phase::Asking;
        self.fail(core, failure);
        if has_no_sender {
            self.close(core);
        } else {
            self.conclude(core, now, failure.code);
        }
    }

    /// Reports the failure to the user, and keeps state that may be useful later.
    pub(super) fn fail(&mut self, core: &mut Core, failure: Failure) {
        self.outcome = Some(failure.code);
        self.finished(core, Err(failure));
        self.base.disarm_all(&mut core.shared);
        self.reports.clear();
        // State is kept even when the user cancels: a later request for the file resumes. The agent
        // that refuses a bundle has removed its file.
        let is_gone = core.takes_bundles && self.delivery.step() == Step::Installing;
        let kept = self.partial().filter(|partial| !partial.ranges.is_empty() && !is_gone);
        match kept {
            Some(partial) if self.delivery.step() != Step::Verifying => {
                self.delivery.leave(&mut core.shared);
                core.keep_partial(self.number, partial);
                self.delivery.forget();
            }
            Some(_) | None => {
                self.forget_record(core);
                self.delivery.discard(&mut core.shared, self.base.seat.handle);
            }
        }
    }

    /// Ends silently, for another session in its place or about the same file.
    pub(crate) fn vanish(&mut self, core: &mut Core) {
        self.forget_record(core);
        self.delivery.discard(&mut core.shared, self.base.seat.handle);
        self.close(core);
    }

    pub(super) fn close(&mut self, core: &mut Core) {
        self.base.disarm_all(&mut core.shared);
        self.delivery.leave(&mut core.shared);
        self.phase = Phase::Done;
    }
}
