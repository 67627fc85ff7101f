//! What of a reception would survive a restart.

use super::super::core::Core;
use super::super::keeping::{Keeping, Part};
use super::{Phase, Receiver, Record};
use crate::ranges::Ranges;

impl Receiver {
    /// What became of a part of the transaction that came.
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

    /// Saves the progress now, unless that is being done, or there is nothing new that can be saved.
    pub(crate) fn keep(&mut self, core: &mut Core) {
        let Record { slot, progress, submitted, .. } = &self.record;
        let is_saving = progress.is_syncing() || slot.is_busy();
        let is_new =
            self.spool.file().is_some() && submitted.ranges.covered() < self.ranges.covered();
        if self.phase == Phase::Receiving && !is_saving && is_new {
            self.save_progress(core);
        }
    }

    /// The last record is in the store, or could not be kept.
    pub(super) fn record_is_there(&mut self, is_kept: bool) {
        if is_kept {
            self.record.recorded = self.record.submitted.clone();
        }
    }
}
