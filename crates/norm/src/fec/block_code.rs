//! Codes of long blocks: parity is numbered on until it suffices.

use std::ops::Range;

use super::code::CodeError;
use super::long::{Columns, Long, LongError, LongWork};
#[cfg(feature = "raptorq")]
use super::raptorq::RaptorQ;
use super::received::Received;

/// Code of one long block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlockCode {
    /// Reed–Solomon code in O(n log n).
    Leopard(Long),
    /// RaptorQ code of RFC 6330.
    #[cfg(feature = "raptorq")]
    RaptorQ(RaptorQ),
}

impl BlockCode {
    /// Code of blocks of `source` symbols by RFC 6330.
    ///
    /// # Errors
    ///
    /// There is no such code.
    #[cfg(feature = "raptorq")]
    pub fn raptorq(source: u16, symbol_len: usize) -> Result<Self, CodeError> {
        RaptorQ::new(source, symbol_len).map(Self::RaptorQ)
    }

    /// As with the feature `raptorq`, but refuses all blocks.
    ///
    /// # Errors
    ///
    /// This build lacks the code.
    #[cfg(not(feature = "raptorq"))]
    pub fn raptorq(_: u16, _: usize) -> Result<Self, CodeError> {
        Err(CodeError::NotBuilt("raptorq"))
    }

    /// Length of a symbol in bytes.
    #[must_use]
    pub fn symbol_len(&self) -> usize {
        match self {
            Self::Leopard(code) => code.symbol_len(),
            #[cfg(feature = "raptorq")]
            Self::RaptorQ(code) => code.symbol_len(),
        }
    }

    /// Computes parity rows from all source symbols, one behind the other into `out`.
    ///
    /// # Errors
    ///
    /// The code has no such rows, `out` has another length, or `source` cannot be read.
    pub fn encode(
        &self,
        work: &mut LongWork,
        source: &mut dyn Columns,
        rows: Range<u16>,
        out: &mut [u8],
    ) -> Result<(), LongError> {
        match self {
            Self::Leopard(code) => code.encode(work, source, rows, out),
            #[cfg(feature = "raptorq")]
            Self::RaptorQ(code) => code.encode(source, rows, out),
        }
    }

    /// Recovers missing source symbols in place.
    ///
    /// # Errors
    ///
    /// As [`Long::recover`]. After [`LongError::Dependent`] the block is as before, and one more
    /// symbol may suffice.
    pub fn recover(
        &self,
        work: &mut LongWork,
        block: &mut dyn Columns,
        received: &Received<'_>,
    ) -> Result<(), LongError> {
        match self {
            Self::Leopard(code) => code.recover(work, block, received.missing, received.parity),
            #[cfg(feature = "raptorq")]
            Self::RaptorQ(code) => code.recover(block, received),
        }
    }
}
