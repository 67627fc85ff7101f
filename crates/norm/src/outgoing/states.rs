//! States of the blocks of a coded object, within a bound on memory.
//!
//! A dropped state leaves only the next row of parity. It is restored when a receiver reports on
//! the block or requests a part of it. Its source segments were sent by then.

use super::Outgoing;
use super::coded::{Coded, CodedBlock};

/// Bytes of an entry of the map of states without its state, and of an entry of `known`.
const ENTRY: usize = 64;
const KNOWN: usize = 32;

/// Number of states that are compared for one to drop.
const COMPARED: usize = 64;

impl CodedBlock {
    /// Bytes of memory used.
    pub(super) fn memory(&self) -> usize {
        let parts = self.runs.memory() + self.named.memory() + self.known.len() * KNOWN;
        size_of::<Self>() + ENTRY + parts
    }
}

impl Coded {
    /// Forgets the state of a block, except for its next row of parity.
    pub(super) fn drop_state(&mut self, block: u32) {
        let Some(state) = self.blocks.remove(&block) else { return };
        self.kept.bytes -= state.memory();
        self.short.remove(&block);
        let (rows, at) = (&mut self.kept.rows, block as usize);
        if rows.len() <= at && state.next_row > 0 {
            rows.resize(at + 1, 0);
        }
        if let Some(row) = rows.get_mut(at) {
            *row = state.next_row;
        }
    }

    /// Drops states beyond the bound, the oldest first, except those of blocks from `end` on and
    /// of `kept`.
    fn drop_states(&mut self, end: u32, kept: u32) {
        while self.kept.bytes > self.kept.most {
            let next = self.kept.next.min(end);
            let turn = self.blocks.range(next..end).chain(self.blocks.range(..next));
            let turn = turn.filter(|(block, _)| **block != kept).take(COMPARED);
            let mut turn = turn.map(|(block, state)| (*block, state)).peekable();
            let Some(first) = turn.peek().map(|(block, _)| *block) else { return };
            // One that has something to send is dropped only if many others have, too.
            let is_idle = |state: &CodedBlock| !state.is_short() && state.queued == 0;
            let idle = turn.find(|(_, state)| is_idle(state)).map(|(block, _)| block);
            let block = idle.unwrap_or(first);
            self.kept.next = block + 1;
            self.drop_state(block);
        }
    }
}

impl Outgoing {
    /// Sets the bytes that the states of blocks may take.
    #[cfg(test)]
    pub(crate) fn limit_states(&mut self, bytes: usize) {
        self.coded.kept.most = bytes;
    }

    /// Drops states of blocks beyond the bound on memory, except that of `kept`.
    pub(super) fn bound_states(&mut self, kept: u32) {
        self.coded.drop_states(self.at.block, kept);
    }

    /// Restores the state of a block whose source segments were all sent.
    pub(super) fn restore_state(&mut self, block: u32, block_len: u16) {
        if block >= self.at.block || self.coded.blocks.contains_key(&block) {
            return;
        }
        let next_row = self.coded.kept.rows.get(block as usize).copied().unwrap_or(0);
        let sent = u64::from(block_len) + u64::from(next_row);
        self.coded.change(block, |state| {
            (state.sent, state.next_row) = (sent, next_row);
            state.runs.skip(sent);
        });
        self.bound_states(block);
    }
}
