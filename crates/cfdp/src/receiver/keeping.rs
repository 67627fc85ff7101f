//! Durability of a reception.

use engine::Time;
use session::ranges::Ranges;

use super::super::core::Core;
use super::super::keeping::{Keeping, Part};
use super::{Phase, Receiver};

impl Receiver {
    /// Durability of a received part of the transaction.
    pub(crate) fn keeping(&self, core: &Core, part: Part) -> Keeping {
        let holds = |ranges: &Ranges, offset: u64, len: u64| {
            ranges.gaps(offset, offset.saturating_add(len)).next().is_none()
        };
        let recorded = &self.record.recorded;
        let (is_here, is_safe) = match part {
            Part::Metadata => (self.metadata.is_some(), recorded.metadata),
            Part::End => (self.eof.is_some(), recorded.eof),
            Part::Data { offset, len } => {
                (holds(&self.ranges, offset, len), holds(&recorded.ranges, offset, len))
            }
        };
        match (is_here, is_safe || !core.config.journal.enabled) {
            (false, _) => Keeping::Dropped,
            (true, false) => Keeping::Taken,
            (true, true) => Keeping::Safe,
        }
    }

    /// Saves the progress now, unless that is under way or there is nothing new to save.
    pub(crate) fn keep(&mut self, core: &mut Core, now: Time) {
        let (delivery, submitted) = (&self.delivery, &self.record.submitted);
        let is_saving = delivery.is_saving() || delivery.record.is_busy();
        let is_new =
            delivery.spool.file().is_some() && submitted.ranges.covered() < self.ranges.covered();
        if self.phase == Phase::Receiving && !is_saving && is_new {
            self.save_progress(core, now);
        }
    }

    /// Notes that the last record is stored, or could not be.
    pub(super) fn record_is_there(&mut self, is_kept: bool) {
        if is_kept {
            self.record.recorded = self.record.submitted.clone();
        }
    }
}
