//! Session that receives into a working file: its checks, and the steps until it is safely stored.

use engine::{FileName, Time};
use session::StoreRefusal;
use session::delivery::Event;
use session::path::Class;
use session::sum::Value;

use super::super::core::{Alarm, Core};
use super::super::indication::{Failure, Indication, PeerError};
use super::super::records;
use super::sink::Sink;
use super::{Phase, Receiver};
use crate::segment::CancelReason;

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
                self.verify(core, u64::MAX);
            }
            let is_recorded = self.sink.relay().is_some_and(|relay| relay.is_recorded);
            if self.red_is_here() && self.extent.is_mixed() && !self.is_safe && !is_recorded {
                // Green data may arrive late or never; the red part is stored without it.
                self.save(core);
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
        self.phase = Phase::Storing;
        self.base.disarm(&mut core.shared, Alarm::Inactivity);
        if let Some(delivery) = self.sink.delivery_mut() {
            delivery.complete(&mut core.shared, self.base.seat.handle);
        }
        self.summed_up(core);
    }

    /// Processes the completion of an effect on the working file.
    pub(super) fn on_delivery(&mut self, core: &mut Core, now: Time, event: &Event) {
        match (event, &self.sink) {
            (Event::Opened, sink) => {
                let described = match sink {
                    Sink::File(filing) => filing.described(),
                    Sink::Units(_) | Sink::Block(_) | Sink::Relay(_) => None,
                };
                if let Some((start, end)) = described {
                    self.ranges.insert(start, end);
                }
                if self.is_resumed {
                    self.check_resumed(core);
                }
                self.check_complete(core);
                // A report may wait for a record of what the file holds.
                self.base.want(&mut core.shared, Class::Control);
            }
            (Event::Summed, _) => self.summed_up(core),
            (Event::Saved | Event::Stored, Sink::Relay(_)) => self.write_down(core),
            (Event::Saved, Sink::File(_) | Sink::Units(_) | Sink::Block(_)) => self.saved(core),
            (Event::Stored, Sink::File(_)) if core.blocks.is_some() => self.hand_over_file(core),
            (Event::Stored, Sink::File(_) | Sink::Units(_) | Sink::Block(_)) => self.stored(core),
            (Event::Installed, _) => self.installed(core, now),
            (Event::NotInstalled(cause) | Event::Failed(cause), _) => {
                self.cannot_store(core, *cause);
            }
        }
    }

    /// Syncs the data received so far.
    pub(super) fn save(&mut self, core: &mut Core) {
        let delivery = self.sink.delivery_mut();
        if let Some(delivery) = delivery.filter(|delivery| !delivery.is_saving()) {
            let handle = self.base.seat.handle;
            delivery.save(&mut core.shared, handle, core.now, &self.ranges);
        }
    }

    /// Computes the checksum of the working file, whose content has `content` bytes. Returns it
    /// once all of it is computed.
    fn verify(&mut self, core: &mut Core, content: u64) -> Option<Value> {
        let prefix = self.ranges.prefix().min(content);
        let (shared, handle) = (&mut core.shared, self.base.seat.handle);
        self.sink.delivery_mut()?.verify(shared, handle, prefix, Some(content))
    }

    /// Continues after a part of the checksum was computed.
    pub(super) fn summed_up(&mut self, core: &mut Core) {
        let content = match &self.sink {
            Sink::File(filing) => filing.content(self.extent.end),
            Sink::Units(_) | Sink::Block(_) | Sink::Relay(_) => None,
        };
        let Some(content) = content else { return };
        let Some(sum) = self.verify(core, content) else { return };
        let Sink::File(filing) = &mut self.sink else { return };
        match filing.check(&core.config.format, content, sum) {
            Ok(()) => {
                filing.delivery.sync(&mut core.shared, self.base.seat.handle);
            }
            Err(error) => self.refuse(core, error),
        }
    }

    pub(super) fn refuse(&mut self, core: &mut Core, error: PeerError) {
        core.user.indicate(Indication::PeerError { id: self.peer.session, error });
        self.cancel(core, CancelReason::System);
    }

    pub(super) fn cannot_store(&mut self, core: &mut Core, cause: StoreRefusal) {
        core.stats.storage_errors += 1;
        self.fail(core, Failure::of_store(cause));
    }

    /// Gives the file its name.
    pub(super) fn install(&mut self, core: &mut Core) {
        let Sink::File(filing) = &mut self.sink else { return };
        let name = filing.file().map_or("", |file| &file.name);
        match FileName::file(name) {
            Ok(to) => filing.delivery.install(&mut core.shared, self.base.seat.handle, to),
            Err(error) => self.fail(core, Failure::of_store((&error).into())),
        }
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
        // From now on a later run may receive segments of the session again without harm. The agent
        // discards a copy of a bundle, which costs less if nothing of it was recorded.
        let is_recorded = core.blocks.is_none() || self.record.is_used();
        if self.sink.file().is_some() && is_recorded {
            records::record_done(core, self.peer.session, self.extent.red.unwrap_or_default());
        }
        self.record.remove(core, self.base.seat.handle, self.peer.session);
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
