//! A session whose block is handed to the user as it is, for an engine [of blocks](crate::ltp::Node::of_blocks).

use engine::{OpenMode, Time};
use wire::ltp::AGGREGATION_SERVICE;

use super::super::core::{Alarm, Core};
use super::super::indication::{Block, BlockContent};
use super::sink::{Filing, Sink};
use super::{Phase, Receiver};
use crate::ranges::Ranges;

impl Receiver {
    /// Whether a block that is handed over grows too long to be held in memory up to `end`.
    pub(super) fn is_beyond_memory(&self, core: &Core, end: u64) -> bool {
        matches!(self.sink, Sink::Block(_))
            && self.service != AGGREGATION_SERVICE
            && self.lacks_room(core, end).is_some()
    }

    /// Goes on in a working file with what was held in memory. What it has no room for is asked for again.
    pub(super) fn spill(&mut self, core: &mut Core) {
        let Sink::Block(block) = &mut self.sink else { return };
        let block = std::mem::take(block);
        core.units -= block.len();
        let handle = self.base.seat.handle;
        let (mode, nothing) = (OpenMode::Truncate, Ranges::new());
        let mut filing = Box::new(Filing::new(self.peer.session));
        filing.spool.open_summed(&mut core.shared, handle, None, mode, &nothing);
        for (start, end) in std::mem::take(&mut self.ranges).iter() {
            let part = &block[start as usize..end as usize];
            if filing.spool.append(&mut core.shared, handle, start, part) {
                self.ranges.insert(start, end);
            }
        }
        self.sink = Sink::File(filing);
    }

    /// Hands over a block that is whole, and in memory.
    pub(super) fn hand_over_memory(&mut self, core: &mut Core) {
        self.base.disarm(&mut core.shared, Alarm::Inactivity);
        let Sink::Block(block) = &mut self.sink else { return };
        let block = std::mem::take(block);
        core.units -= block.len();
        self.hand_over(core, BlockContent::Bytes(block.into()));
    }

    /// Hands over a block that is whole, in the working file, and synced.
    pub(super) fn hand_over_file(&mut self, core: &mut Core) {
        let Sink::File(filing) = &mut self.sink else { return };
        filing.spool.close(&mut core.shared);
        let len = filing.file().map_or(0, |file| file.size);
        let content = BlockContent::File(filing.spool.name.clone(), len);
        self.hand_over(core, content);
    }

    fn hand_over(&mut self, core: &mut Core, content: BlockContent) {
        self.phase = Phase::Installing;
        let (id, service, path) = (self.peer.session, self.service, self.base.seat.path);
        if let Some(blocks) = &mut core.blocks {
            blocks.push_back(Block { id, service, path, content });
        }
    }

    /// The user has the block.
    pub(crate) fn accepted(&mut self, core: &mut Core, now: Time) {
        if core.blocks.is_some() && self.phase == Phase::Installing {
            self.installed(core, now);
        }
    }
}
