//! Segments of coded blocks that are sent again, because all parity was sent.

use std::collections::BTreeSet;

use engine::Time;

use super::coded::{Coded, CodedBlock, Step};
use super::{Core, Outgoing, Shape};
use crate::bits::Bits;

/// Source segments queued at once after all parity was sent.
const AGAIN_MAX: u32 = 256;

/// Maximum number of segments sent again that are remembered: those of a round trip.
const REPEATS_MAX: usize = 1 << 16;

/// Maximum number of blocks of which a NACK names segments.
const NAMED_MAX: usize = 64;

impl CodedBlock {
    /// Next row of parity to send, if no source segment is to be sent again instead. After all
    /// segments were sent, those that receivers name are sent again, and then all in turn: parity,
    /// and the source segments from the last to the first, because at receivers parity takes the
    /// places of the first ones missing, where source segments are of no more use.
    pub(super) fn row(&self, block_len: u16, parity: u16) -> Option<u16> {
        if self.queued > 0 {
            return None;
        }
        if self.next_row < parity {
            return Some(self.next_row);
        }
        let all = u32::from(block_len) + u32::from(parity);
        let row = match self.named.iter().next() {
            Some(named) => named.checked_sub(block_len),
            None => u16::try_from(self.again % all).ok(),
        };
        row.filter(|row| *row < parity)
    }
}

impl Coded {
    /// Notes that a segment was sent again, if receivers can request it meanwhile.
    fn note_repeated(&mut self, block: u32, symbol: u16, number: u64) {
        if self.is_one_way {
            return;
        }
        if self.repeats.len() >= REPEATS_MAX {
            self.repeats.pop_front();
        }
        self.repeats.push_back((number, block, symbol));
    }
}

impl Outgoing {
    /// Queues source segments again, because all parity was sent: those that receivers name, or
    /// the next ones.
    pub(super) fn send_again(&mut self, core: &mut Core, shape: &Shape, block: u32) -> Step {
        let block_len = shape.partition.block_len(block);
        let (parity, all) = (u32::from(shape.coding.parity), shape.symbols(block));
        let Some(state) = self.coded.blocks.get_mut(&block) else { return Step::Enough };
        let Some(source) = self.source.as_mut() else { return Step::Enough };
        let more = state.goal.saturating_sub(state.sent_soon());
        let more = more.min(AGAIN_MAX.saturating_sub(state.queued).into());
        for _ in 0..more {
            let named = state.named.iter().next();
            let next = state.again % all;
            let in_turn = next.checked_sub(parity).map(|at| block_len - 1 - at as u16);
            // Otherwise parity comes next.
            let Some(symbol) = named.or(in_turn).filter(|symbol| *symbol < block_len) else {
                break;
            };
            let (start, end) = shape.segment_span(block, symbol);
            if !source.request(start, end, core.config.limits.repairs) {
                break;
            }
            match named {
                Some(named) => state.named.remove(named),
                None => state.again = next + 1,
            }
            state.is_named = named.is_some();
            state.queued += 1;
        }
        let queued = state.queued;
        self.coded.repeating.insert(block);
        self.coded.change(block, |_| ());
        if queued == 0 { Step::Enough } else { Step::Waits }
    }

    /// Notes that a parity segment of a block was sent, maybe again.
    pub(super) fn on_parity_sent(&mut self, block: u32, symbol: u16, number: u64, shape: &Shape) {
        let (parity, all) = (shape.coding.parity, shape.symbols(block));
        let Some(state) = self.coded.blocks.get_mut(&block) else { return };
        if state.next_row < parity {
            state.next_row += 1;
            return;
        }
        state.is_named = state.named.contains(symbol);
        if state.is_named {
            state.named.remove(symbol);
        } else {
            state.again = (state.again + 1) % all;
        }
        self.coded.note_repeated(block, symbol, number);
    }

    /// Whether source segments of a block are queued to be sent again.
    pub(super) fn is_repeating(&self, block: u32) -> bool {
        self.coded.blocks.get(&block).is_some_and(|state| state.queued > 0)
    }

    /// Notes that no source segments are queued any more. A segment that was also requested was
    /// queued once, and counted twice.
    pub(super) fn end_repeats(&mut self) {
        let is_over = self.source.as_ref().is_none_or(|source| !source.has_repairs());
        while is_over && let Some(block) = self.coded.repeating.pop_first() {
            if self.coded.blocks.contains_key(&block) {
                self.coded.change(block, |state| state.queued = 0);
            }
        }
    }

    /// Notes that a source segment was sent again.
    pub(super) fn on_repeated(
        &mut self,
        block: u32,
        symbol: u16,
        number: u64,
        at: Time,
        shape: &Shape,
    ) {
        self.restore_state(block, shape.partition.block_len(block));
        self.coded.on_sent(block, number, at);
        self.coded.change(block, |state| state.queued = state.queued.saturating_sub(1));
        self.coded.note_repeated(block, symbol, number);
    }

    /// Notes the segments of a block that a receiver requests, if all parity of it was sent:
    /// any other segment would mostly be there already.
    pub(super) fn note_named(&mut self, block: u32, named: &Bits) {
        let Some(shape) = &self.shape else { return };
        if named.len() == 0 || self.coded.named.len() >= NAMED_MAX {
            return;
        }
        let (parity, block_len) = (shape.coding.parity, shape.partition.block_len(block));
        self.restore_state(block, block_len);
        let is_exhausted =
            self.coded.blocks.get(&block).is_some_and(|state| state.next_row >= parity);
        if is_exhausted {
            self.coded.named.push((block, named.clone()));
        }
    }

    /// Takes over the segments that a receiver named, without those sent again after the message
    /// that it had received last.
    pub(super) fn take_named(&mut self, through: u64) {
        let mut blocks = BTreeSet::new();
        for (block, named) in std::mem::take(&mut self.coded.named) {
            if !self.coded.blocks.contains_key(&block) {
                continue;
            }
            self.coded.change(block, |state| {
                // Another receiver may lack other segments.
                if state.known.len() <= 1 {
                    state.named = Bits::new();
                }
                state.named.union(&named);
                state.is_named = true;
            });
            blocks.insert(block);
        }
        if blocks.is_empty() {
            return;
        }
        let repeats = self.coded.repeats.iter().rev();
        for (_, block, symbol) in repeats.take_while(|(number, ..)| *number > through) {
            if blocks.contains(block)
                && let Some(state) = self.coded.blocks.get_mut(block)
            {
                state.named.remove(*symbol);
            }
        }
    }
}
