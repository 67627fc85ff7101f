//! Recovery of lost segments by parity.

use super::{Block, Shape};
use crate::core::Core;
use crate::fec::{Received, SliceColumns};

impl Shape {
    /// Recovers the missing source segments of a block in memory.
    pub(super) fn recover(&self, core: &mut Core, block: &mut Block, block_len: u16) -> bool {
        let segment = self.room.segment;
        let full = usize::from(block_len) * segment;
        block.buffer.resize(full, 0);
        let missing: Vec<_> = block.have.missing(block_len).collect();
        if missing.is_empty() {
            return true;
        }
        if let Some(code) = self.coding.long_code(block_len, segment) {
            let (parity, extra) = (block.rows(block_len), block.extra_rows(block_len));
            let mut columns = SliceColumns::new(&mut block.buffer, segment);
            let received = Received { missing: &missing, parity: &parity, extra: &extra };
            if code.recover(&mut core.long, &mut columns, &received).is_err() {
                return false;
            }
            core.stats.recovered += missing.len() as u64;
            return true;
        }
        let Some((field, source, parity)) = self.coding.kind() else { return false };
        let decoder = core.decoder(field, source, parity, self.room);
        let Some(decoder) = decoder else { return false };
        decoder.start(block_len);
        let source = block.have.iter().take_while(|symbol| *symbol < block_len);
        let source = source.map(|symbol| (symbol, symbol));
        let parity = block.parity.iter().map(|(place, symbol)| (*place, *symbol));
        for (place, symbol) in source.chain(parity) {
            let at = usize::from(place) * segment;
            decoder.add(symbol, &block.buffer[at..at + segment]);
        }
        if decoder.recover().is_err() {
            return false;
        }
        for symbol in &missing {
            let at = usize::from(*symbol) * segment;
            if let Some(made) = decoder.symbol(*symbol) {
                block.buffer[at..at + segment].copy_from_slice(&made[..segment]);
            }
        }
        core.stats.recovered += missing.len() as u64;
        true
    }
}
