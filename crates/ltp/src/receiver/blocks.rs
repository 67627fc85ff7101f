//! Session whose block is passed to the user unchanged, for an engine [of
//! blocks](crate::Node::of_blocks).

use engine::Time;

use super::super::core::{Alarm, Core};
use super::super::indication::{Block, BlockContent};
use super::sink::{Filing, Sink};
use super::{Phase, Receiver};
use crate::segment::AGGREGATION_SERVICE;

impl Receiver {
    /// Whether a block for hand-over is too long to be held in memory up to `end`.
    pub(super) fn is_beyond_memory(&self, core: &Core, end: u64) -> bool {
        matches!(self.sink, Sink::Block(_))
            && self.service != AGGREGATION_SERVICE
            && self.lacks_room(core, end).is_some()
    }

    /// Moves a block from memory to a working file. Data without room is requested again.
    pub(super) fn spill(&mut self, core: &mut Core) {
        let Sink::Block(block) = &mut self.sink else { return };
        let block = std::mem::take(block);
        core.units -= block.len();
        let (shared, seat) = (&mut core.shared, &self.base.seat);
        let mut filing = Box::new(Filing::new(self.peer.session));
        filing.delivery.open(shared, seat.handle, None);
        for (start, end) in std::mem::take(&mut self.ranges).iter() {
            let part = &block[start as usize..end as usize];
            filing.delivery.append(shared, seat, &mut self.ranges, start, part);
        }
        self.sink = Sink::File(filing);
    }

    /// Hands over a complete block in memory.
    pub(super) fn hand_over_memory(&mut self, core: &mut Core) {
        self.base.disarm(&mut core.shared, Alarm::Inactivity);
        let Sink::Block(block) = &mut self.sink else { return };
        let block = std::mem::take(block);
        core.units -= block.len();
        self.hand_over(core, BlockContent::Bytes(block.into()));
    }

    /// Hands over a complete block in a synced working file.
    pub(super) fn hand_over_file(&mut self, core: &mut Core) {
        let Sink::File(filing) = &mut self.sink else { return };
        filing.delivery.spool.close(&mut core.shared);
        let len = filing.file().map_or(0, |file| file.size);
        let content = BlockContent::File(filing.delivery.spool.name.clone(), len);
        self.hand_over(core, content);
    }

    fn hand_over(&mut self, core: &mut Core, content: BlockContent) {
        self.phase = Phase::Offered;
        let (id, service, path) = (self.peer.session, self.service, self.base.seat.path);
        if let Some(blocks) = &mut core.blocks {
            blocks.push_back(Block { id, service, path, content });
        }
    }

    /// Processes the user's acceptance of the block.
    pub(crate) fn accepted(&mut self, core: &mut Core, now: Time) {
        if self.phase == Phase::Offered {
            self.installed(core, now);
        }
    }
}
