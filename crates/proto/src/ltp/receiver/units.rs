//! A session that receives a block of units.

use bytes::Bytes;
use wire::ltp::Unit;

use super::super::core::Core;
use super::super::indication::{Indication, Limit, PeerError};
use super::Receiver;

impl Receiver {
    pub(super) fn accept_units(
        &mut self,
        core: &mut Core,
        start: u64,
        end: u64,
        data: &[u8],
    ) -> bool {
        let Some(block) = self.units.as_mut() else { return false };
        let limits = &core.config.limits;
        let is_large = end > limits.units as u64;
        let more = end.saturating_sub(block.len() as u64);
        if is_large || more > limits.units_total.saturating_sub(core.units) as u64 {
            core.stats.data_dropped += 1;
            if !is_large {
                core.user.limit_reached(Limit::Units);
            }
            return false;
        }
        core.units += more as usize;
        block.resize(block.len() + more as usize, 0);
        block[start as usize..end as usize].copy_from_slice(data);
        self.ranges.insert(start, end);
        true
    }

    /// Octets of a block of units, which the bound on those counts.
    pub(crate) fn units(&self) -> usize {
        self.units.as_ref().map_or(0, Vec::len)
    }

    /// Hands on the units of a block that is whole.
    pub(super) fn check_units(&mut self, core: &mut Core) {
        let Some(block) = &self.units else { return };
        if self.end.is_none_or(|end| self.ranges.gaps(0, end).next().is_some()) {
            if self.red_is_here() && self.red > Some(0) && !self.is_safe {
                // Green data may never come.
                self.safe(core);
            }
            return;
        }
        if core.blocks.is_some() {
            self.hand_over_memory(core);
            return;
        }
        let block = Bytes::copy_from_slice(block);
        let Ok(units) = Unit::decode_all(&block) else {
            self.refuse(core, PeerError::NotUnits);
            return;
        };
        for Unit { service, data } in units {
            let (id, bytes) = (self.peer.session, block.slice_ref(data));
            core.user.indicate(Indication::Data { id, service, bytes });
        }
        self.installed(core, self.base.last_heard);
    }
}
