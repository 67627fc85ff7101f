//! RaptorQ code of one block (RFC 6330), computed by crate `raptorq`.
//!
//! * Rows of parity are the repair symbols; row 0 has the number of source symbols as its encoding
//!   symbol id. They can be numbered on without end.
//! * As many symbols as the block has suffice in 99 of 100 cases; each further one makes a failure
//!   a hundred times less likely (§5.8).
//! * The block is in memory while it is computed, a few times.

use std::ops::Range;

use bytes::Bytes;
use raptorq::{
    EncodingPacket, ObjectTransmissionInformation, PayloadId, SourceBlockDecoder,
    SourceBlockEncoder, SourceBlockEncodingPlan,
};

use super::code::CodeError;
use super::decoder::RecoverError;
use super::long::{Columns, LongError};
use super::received::Received;

/// Code of one block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RaptorQ {
    source: u16,
    symbol_len: u16,
}

impl RaptorQ {
    /// Highest number of source symbols of a block (§5.1.2).
    pub const SOURCE_MAX: u16 = 56_403;

    /// Creates the code of blocks of `source` symbols of `symbol_len` bytes.
    ///
    /// # Errors
    ///
    /// See [`CodeError`].
    pub fn new(source: u16, symbol_len: usize) -> Result<Self, CodeError> {
        let (source_symbols, max) = (usize::from(source), usize::from(Self::SOURCE_MAX));
        if source == 0 {
            return Err(CodeError::NoSource);
        }
        if source_symbols > max {
            return Err(CodeError::TooLong { source_symbols, parity: 0, max });
        }
        let len = u16::try_from(symbol_len).ok().filter(|len| *len > 0);
        let symbol_len = len.ok_or(CodeError::SymbolLength(symbol_len))?;
        Ok(Self { source, symbol_len })
    }

    /// Length of a symbol in bytes.
    #[must_use]
    pub fn symbol_len(&self) -> usize {
        self.symbol_len.into()
    }

    /// Bytes of the block, with the last symbol filled up.
    fn block_bytes(&self) -> usize {
        usize::from(self.source) * self.symbol_len()
    }

    /// One block without sub-blocks: symbols are contiguous. Their columns are independent of each
    /// other, so that any length will do.
    fn information(&self) -> ObjectTransmissionInformation {
        ObjectTransmissionInformation::new(self.block_bytes() as u64, self.symbol_len, 1, 1, 1)
    }

    /// Computes parity rows from all source symbols, one behind the other into `out`.
    ///
    /// # Errors
    ///
    /// `out` has another length, or `source` cannot be read.
    pub fn encode(
        &self,
        source: &mut dyn Columns,
        rows: Range<u16>,
        out: &mut [u8],
    ) -> Result<(), LongError> {
        if out.len() != rows.len() * self.symbol_len() {
            return Err(LongError::NoSymbol);
        }
        let mut data = Vec::with_capacity(self.block_bytes());
        for place in 0..self.source {
            data.extend_from_slice(source.get(place, 0, self.symbol_len())?);
        }
        // The crate's own cache of plans is shared by the process and never emptied.
        let plan = SourceBlockEncodingPlan::generate(self.source);
        let information = self.information();
        let encoder = SourceBlockEncoder::with_encoding_plan(0, &information, &data, &plan);
        let made = encoder.repair_packets(rows.start.into(), rows.len() as u32);
        for (packet, to) in made.iter().zip(out.chunks_exact_mut(self.symbol_len())) {
            to.copy_from_slice(packet.data());
        }
        Ok(())
    }

    /// Recovers missing source symbols in place.
    ///
    /// # Errors
    ///
    /// [`LongError::Dependent`] if the symbols do not suffice although they are enough in number;
    /// then the block is as before. Too few symbols, or `block` cannot be read or written.
    pub fn recover(
        &self,
        block: &mut dyn Columns,
        received: &Received<'_>,
    ) -> Result<(), LongError> {
        let Received { missing, parity, extra } = *received;
        let count = parity.len() + extra.len();
        if missing.len() > count {
            return Err(RecoverError { missing: missing.len(), parity: count }.into());
        }
        if missing.is_empty() {
            return Ok(());
        }
        let len = self.symbol_len();
        let repair =
            |row: u16, bytes: &[u8]| packet(u32::from(self.source) + u32::from(row), bytes);
        let mut packets = Vec::with_capacity(usize::from(self.source) + extra.len());
        let mut rows = parity.to_vec();
        rows.sort_by_key(|(_, place)| *place);
        let mut lost = missing.iter().copied().peekable();
        let mut rows = rows.into_iter().peekable();
        for place in 0..self.source {
            if lost.next_if_eq(&place).is_none() {
                packets.push(packet(place.into(), block.get(place, 0, len)?));
            }
            while let Some((row, _)) = rows.next_if(|(_, other)| *other == place) {
                packets.push(repair(row, block.get(place, 0, len)?));
            }
        }
        if extra.iter().any(|(_, bytes)| bytes.len() != len) {
            return Err(LongError::NoSymbol);
        }
        packets.extend(extra.iter().map(|(row, bytes): &(u16, Bytes)| repair(*row, bytes)));
        let (information, block_bytes) = (self.information(), self.block_bytes() as u64);
        let mut decoder = SourceBlockDecoder::new(0, &information, block_bytes);
        let whole = decoder.decode(packets).ok_or(LongError::Dependent)?;
        for place in missing {
            let at = usize::from(*place) * len;
            block.put(*place, 0, whole.get(at..at + len).ok_or(LongError::NoSymbol)?)?;
        }
        Ok(())
    }
}

fn packet(symbol: u32, bytes: &[u8]) -> EncodingPacket {
    EncodingPacket::new(PayloadId::new(0, symbol), bytes.to_vec())
}

#[cfg(test)]
mod tests;
