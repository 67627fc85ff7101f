//! A session that receives into memory: a block of units, or a short one that is handed over.

use bytes::Bytes;
use wire::ltp::Unit;

use super::super::core::Core;
use super::super::indication::{Indication, Limit, PeerError};
use super::Receiver;
use super::sink::Sink;

/// What a block that is held in memory lacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lacks {
    /// None may be so long.
    Leave,
    /// What all may hold is used up.
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

    /// What keeps the block from being held in memory up to `end`, if anything does.
    pub(super) fn lacks_room(&self, core: &Core, end: u64) -> Option<Lacks> {
        let limits = &core.config.limits;
        let more = end.saturating_sub(self.sink.in_memory() as u64);
        if end > limits.units as u64 {
            return Some(Lacks::Leave);
        }
        (more > limits.units_total.saturating_sub(core.units) as u64).then_some(Lacks::Memory)
    }

    /// Goes on to the end if the block is whole.
    pub(super) fn check_memory(&mut self, core: &mut Core) {
        if self.extent.end.is_none_or(|end| self.ranges.gaps(0, end).next().is_some()) {
            if self.red_is_here() && self.extent.red > Some(0) && !self.is_safe {
                // Green data may never come.
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

    /// Indicates the units of a block that is whole.
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
