//! Session that receives into a working file: its checks, and the steps until it is safely stored.

use engine::{FileId, FileName, FilestoreRequest, Time};
use session::storage::Storage as _;

use super::super::core::{Alarm, Core, Job};
use super::super::indication::{Cause, Failure, Indication, PeerError};
use super::super::marks;
use super::sink::Sink;
use super::{Phase, Receiver};
use crate::segment::{CancelReason, End};

impl Receiver {
    /// Finishes the session if everything has arrived.
    pub(super) fn check_complete(&mut self, core: &mut Core) {
        if self.phase != Phase::Receiving {
            return;
        }
        match self.sink {
            Sink::Units(_) | Sink::Block(_) => self.check_memory(core),
            Sink::File(_) | Sink::Relay(_) => self.check_stored(core),
        }
    }

    fn check_stored(&mut self, core: &mut Core) {
        let is_open = self.sink.open_file().is_some();
        let whole = self.extent.end.filter(|end| self.ranges.gaps(0, *end).next().is_none());
        if whole.is_none() {
            if is_open && self.extent.end.is_some() {
                self.sum_up(core, u64::MAX);
            }
            let is_recorded = self.sink.relay().is_some_and(|relay| relay.is_recorded);
            let is_new = !self.is_safe && self.syncs == 0 && !is_recorded;
            if self.red_is_here() && self.extent.is_mixed() && is_new {
                // Green data may arrive late or never; the red part is stored without it.
                self.flush_spool(core);
                self.sync(core);
            }
            return;
        }
        if !is_open {
            return;
        }
        if self.sink.relay().is_some() {
            self.keep_all(core);
            return;
        }
        self.phase = Phase::Verifying;
        self.base.disarm(&mut core.shared, Alarm::Inactivity);
        self.flush_spool(core);
        self.summed_up(core);
    }

    /// Notes that the working file is open.
    pub(super) fn opened(&mut self, core: &mut Core, file: FileId, len: u64) {
        let handle = self.base.seat.handle;
        let described = match &self.sink {
            Sink::File(filing) => filing.described(),
            Sink::Units(_) | Sink::Block(_) | Sink::Relay(_) => None,
        };
        if let Some(spool) = self.sink.spool_mut() {
            spool.opened(&mut core.shared, handle, file, len, &mut self.ranges);
        }
        if let Some((start, end)) = described {
            self.ranges.insert(start, end);
        }
        self.check_complete(core);
    }

    /// Writes collected data to the store.
    pub(super) fn flush_spool(&mut self, core: &mut Core) {
        if let Some(spool) = self.sink.spool_mut() {
            spool.flush(&mut core.shared, self.base.seat.handle);
        }
    }

    /// Computes the checksum of the working file, up to `most` bytes of it.
    fn sum_up(&mut self, core: &mut Core, most: u64) {
        let until = self.ranges.prefix().min(most);
        if let Some(spool) = self.sink.spool_mut() {
            spool.sum_up(&mut core.shared, self.base.seat.handle, until);
        }
    }

    pub(super) fn sync(&mut self, core: &mut Core) {
        let Some(file) = self.sink.open_file() else { return };
        self.syncs += 1;
        if let Some(relay) = self.sink.relay_mut() {
            relay.synced = self.ranges.clone();
        }
        core.shared.sync(self.base.seat.handle, file);
    }

    /// Continues after a part of the checksum was computed.
    pub(super) fn summed_up(&mut self, core: &mut Core) {
        let content = match &self.sink {
            Sink::File(filing) => filing.content(self.extent.end),
            Sink::Units(_) | Sink::Block(_) | Sink::Relay(_) => None,
        };
        let Some(content) = content else { return };
        self.sum_up(core, content);
        if self.phase != Phase::Verifying {
            return;
        }
        let Sink::File(filing) = &mut self.sink else { return };
        match filing.check(&core.config.format, content) {
            Some(Ok(())) => {
                self.phase = Phase::Syncing;
                self.sync(core);
            }
            Some(Err(error)) => self.refuse(core, error),
            None => {}
        }
    }

    pub(super) fn refuse(&mut self, core: &mut Core, error: PeerError) {
        core.user.indicate(Indication::PeerError { id: self.peer.session, error });
        self.cancel(core, CancelReason::System);
    }

    pub(super) fn storage_failed(&mut self, core: &mut Core) {
        core.stats.storage_errors += 1;
        let failure = Failure::new(End::Receiver, CancelReason::System);
        self.fail(core, Failure { cause: Some(Cause::Store), ..failure });
    }

    pub(super) fn synced(&mut self, core: &mut Core) {
        self.syncs = self.syncs.saturating_sub(1);
        match (self.phase, &self.sink) {
            (Phase::Syncing, _) if self.syncs > 0 => {}
            (Phase::Syncing, Sink::Relay(_)) => {
                self.phase = Phase::Installing;
                self.write_down(core);
            }
            (Phase::Syncing, Sink::File(_)) if core.blocks.is_some() => self.hand_over_file(core),
            (Phase::Syncing, Sink::File(_)) => self.install(core),
            (Phase::Receiving, Sink::Relay(_)) => self.write_down(core),
            (Phase::Receiving, Sink::File(_) | Sink::Units(_) | Sink::Block(_)) => self.safe(core),
            (Phase::Syncing, Sink::Units(_) | Sink::Block(_))
            | (
                Phase::Verifying
                | Phase::Installing
                | Phase::Telling
                | Phase::Cancelling { .. }
                | Phase::Closing
                | Phase::Done,
                _,
            ) => {}
        }
    }

    /// Gives the file its name.
    fn install(&mut self, core: &mut Core) {
        let Sink::File(filing) = &mut self.sink else { return };
        let name = filing.file().map_or("", |file| &file.name);
        let Ok(to) = FileName::file(name) else {
            self.cancel(core, CancelReason::Unreachable);
            return;
        };
        self.phase = Phase::Installing;
        filing.spool.close(&mut core.shared);
        let request = FilestoreRequest::Install { from: filing.spool.name.clone(), to };
        core.shared.filestore(self.base.seat.handle, Job::Install, request);
    }

    /// Notes that the red part is safely stored, and replies to waiting checkpoints.
    pub(super) fn safe(&mut self, core: &mut Core) {
        self.is_safe = true;
        let red = self.extent.red.unwrap_or_default();
        for checkpoint in std::mem::take(&mut self.reporting.waiting) {
            let (lower, upper) = match self.reporting.reports.get(checkpoint.report) {
                Some(before) => (before.lower, before.upper),
                None => (0, red),
            };
            self.make_reports(core, checkpoint.serial, lower, upper);
        }
    }

    pub(super) fn installed(&mut self, core: &mut Core, now: Time) {
        // From now on a later run may receive segments of the session again without harm.
        self.mark.clear(core, self.peer.session);
        if self.sink.file().is_some() {
            marks::record_done(core, self.peer.session, self.extent.red.unwrap_or_default());
        }
        self.safe(core);
        core.shared.places.include(self.base.seat.handle);
        self.phase = Phase::Telling;
        self.finished(core, Ok(()));
        self.watch_silence(core, now);
        if self.extent.red == Some(0) || self.base.seat.path.is_none() {
            self.close(core);
        } else {
            self.close_if_reported(core);
        }
    }
}
