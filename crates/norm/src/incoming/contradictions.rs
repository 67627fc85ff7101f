//! Messages that contradict what was learnt about an object.

use super::Incoming;
use crate::core::Core;
use crate::indication::Failure;

/// Messages that contradict the learnt FEC information, with none in between that confirms it,
/// after which the object is given up. The learnt information was then damaged.
const CONTRADICTIONS_MAX: u32 = 8;

impl Incoming {
    /// Counts messages that contradict the learnt FEC information. An object with the wrong
    /// partition would be requested without end.
    pub(super) fn compare(&mut self, is_same: bool) -> Result<(), Failure> {
        self.contradictions = if is_same { 0 } else { self.contradictions + 1 };
        if self.contradictions < CONTRADICTIONS_MAX {
            return Ok(());
        }
        Err(Failure::Settings("the sender contradicts itself about its segments".to_owned()))
    }

    /// Counts a segment that has no place in the learnt partition.
    pub(super) fn contradict(&mut self, core: &mut Core) {
        core.stats.data_dropped += 1;
        if let Err(failure) = self.compare(false) {
            self.fail(core, failure);
        }
    }
}
