//! What receivers lacked of the blocks that were sent last.
//!
//! While there is more to send, repairs cost no time beside their own. At the end each round of them
//! costs a round trip in which nothing else is sent. So the last blocks, which are sent within the
//! time of a round from the end, go out with as much parity as the worst of those before lacked, and
//! one segment more; none if those lacked nothing.

use std::collections::BTreeMap;

/// Blocks that are looked back on.
const BLOCKS: u64 = 128;

/// What the blocks sent last lacked at the receiver that lacked most.
#[derive(Debug, Default)]
pub(crate) struct Losses {
    sent: u64,
    lacked: BTreeMap<u64, u16>,
}

impl Losses {
    /// A block begins: its number among all blocks sent.
    pub(crate) fn block_begins(&mut self) -> u64 {
        let number = self.sent;
        self.sent += 1;
        if let Some(past) = self.sent.checked_sub(BLOCKS) {
            self.lacked = self.lacked.split_off(&past);
        }
        number
    }

    /// A receiver would have had all of a block with so many parity segments.
    pub(crate) fn lacked(&mut self, number: u64, count: u16) {
        if number + BLOCKS >= self.sent {
            let lacked = self.lacked.entry(number).or_insert(0);
            *lacked = count.max(*lacked);
        }
    }

    /// Parity segments for each of the last blocks, which have up to `block_len` segments: no more
    /// than a quarter as many, because an outage does not come again for having been.
    pub(crate) fn parity(&self, block_len: u16) -> u16 {
        let worst = self.lacked.values().copied().max().unwrap_or(0);
        if worst == 0 { 0 } else { (worst + 1).min(block_len.div_ceil(4)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_blocks_count() {
        let mut losses = Losses::default();
        assert_eq!(losses.parity(64), 0);
        let first = losses.block_begins();
        losses.lacked(first, 3);
        losses.lacked(first, 2);
        assert_eq!((losses.parity(64), losses.parity(8)), (4, 2));
        for _ in 0..BLOCKS - 1 {
            assert_eq!(losses.parity(64), 4);
            losses.block_begins();
        }
        assert_eq!(losses.parity(64), 4);
        losses.block_begins();
        assert_eq!(losses.parity(64), 0);
        losses.lacked(first, 9);
        assert_eq!(losses.parity(64), 0, "that was long ago");
        losses.lacked(BLOCKS, 40);
        assert_eq!(losses.parity(64), 16);
    }
}
