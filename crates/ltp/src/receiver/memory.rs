//! Session that receives into memory: a block of units, or a short block for hand-over.

use bytes::Bytes;

use super::super::core::Core;
use super::super::indication::{Indication, Limit, PeerError};
use super::Receiver;
use super::sink::Sink;
use crate::segment::Unit;

/// Limit that leaves no room for a block in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lacks {
    /// Limit on a single block.
    Leave,
    /// Limit on all blocks together.
    Memory,
}

impl Receiver {
    pub(super) fn accept_in_memory(
        &mut self,
        core: &mut Core,
        start: u64,
        end: u64,
        data: &[u8],
    ) -> bool {
        let lacks = self.lacks_room(core, end);
        let (Sink::Units(block) | Sink::Block(block)) = &mut self.sink else { return false };
        if let Some(lacks) = lacks {
            core.stats.data_dropped += 1;
            if lacks == Lacks::Memory {
                core.user.limit_reached(Limit::Units);
            }
            return false;
        }
        let len = block.len().max(end as usize);
        core.units += len - block.len();
        block.resize(len, 0);
        block[start as usize..end as usize].copy_from_slice(data);
        self.ranges.insert(start, end);
        true
    }

    /// Reason why the block cannot be held in memory up to `end`, if any.
    pub(super) fn lacks_room(&self, core: &Core, end: u64) -> Option<Lacks> {
        let limits = &core.config.limits;
        let more = end.saturating_sub(self.sink.in_memory() as u64);
        if end > limits.units as u64 {
            return Some(Lacks::Leave);
        }
        (more > limits.units_total.saturating_sub(core.units) as u64).then_some(Lacks::Memory)
    }

    /// Finishes the session if the block is complete.
    pub(super) fn check_memory(&mut self, core: &mut Core) {
        if self.extent.end.is_none_or(|end| self.ranges.gaps(0, end).next().is_some()) {
            if self.red_is_here() && self.extent.red > Some(0) && !self.is_safe {
                // Green data may never arrive.
                self.safe(core);
            }
            return;
        }
        match &self.sink {
            Sink::Block(_) => self.hand_over_memory(core),
            Sink::Units(block) => {
                let block = Bytes::copy_from_slice(block);
                self.indicate_units(core, &block);
            }
            Sink::File(_) | Sink::Relay(_) => {}
        }
    }

    /// Indicates the units of a complete block.
    fn indicate_units(&mut self, core: &mut Core, block: &Bytes) {
        let Ok(units) = Unit::decode_all(block) else {
            self.refuse(core, PeerError::NotUnits);
            return;
        };
        for Unit { service, data } in units {
            let (id, bytes) = (self.peer.session, block.slice_ref(data));
            core.user.indicate(Indication::Data { id, service, bytes });
        }
        self.installed(core, self.base.last_received);
    }
}
