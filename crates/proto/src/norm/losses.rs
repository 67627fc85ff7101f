//! Segments of the most recent blocks that receivers lacked.
//!
//! While there is more to send, a repair costs only its own transmission time. At the end, each
//! round of repairs costs a round trip in which nothing else is sent. The last blocks, sent within
//! a round's time of the end, therefore carry proactive parity. It is one segment more than the
//! worst of the recent blocks lacked, or none if nothing was lost.

use std::collections::BTreeMap;

/// Number of recent blocks considered.
const BLOCKS: u64 = 128;

/// Number of segments of recent blocks missing at the receiver that lacked most.
#[derive(Debug, Default)]
pub(crate) struct Losses {
    sent: u64,
    lacked: BTreeMap<u64, u16>,
}

impl Losses {
    /// Counts a block and returns its number among all blocks sent.
    pub(crate) fn block_begins(&mut self) -> u64 {
        let number = self.sent;
        self.sent += 1;
        if let Some(past) = self.sent.checked_sub(BLOCKS) {
            self.lacked = self.lacked.split_off(&past);
        }
        number
    }

    /// Notes that a receiver lacked `count` segments of a block.
    pub(crate) fn lacked(&mut self, number: u64, count: u16) {
        if number + BLOCKS >= self.sent {
            let lacked = self.lacked.entry(number).or_insert(0);
            *lacked = count.max(*lacked);
        }
    }

    /// Parity segments for each of the last blocks, at most a quarter of `block_len`: an outage is
    /// not expected to repeat.
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
