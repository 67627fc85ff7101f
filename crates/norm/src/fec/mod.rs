//! Forward error correction of blocks of segments: partition of an object into source blocks, and
//! a systematic Reed–Solomon erasure code over them.
//!
//! * [`Partition`] is the block partition of RFC 5052 §9.1.
//! * [`Code`] is one code: a [`Field`], the source symbols of a full block, and the parity
//!   symbols.
//! * [`Encoder`] takes the source symbols of a block as they are sent, and computes its parity
//!   symbols.
//! * [`Decoder`] takes received symbols of a block and recovers the missing ones.
//! * [`BlockCode`] is a code for blocks of thousands of symbols: [`Long`] or, with the feature
//!   `raptorq`, that of RFC 6330. [`needed`] is the number of symbols to send.
//!
//! # The code words
//!
//! [`Code`] has those of L. Rizzo's erasure codec, which the NRL library uses for the FEC encoding
//! ids 5 and 129 (both GF(2⁸), polynomial 0x11d) and 2 (GF(2¹⁶), polynomial 0x1100b). A block is a
//! polynomial of degree below `k` that takes the value of source symbol `i` at the point `x(i)`;
//! parity symbol `j` is its value at `x(k + j)`; `x(0) = 0` and `x(i) = α^(i − 1)`.
//!
//! RFC 5510 §8.2.1 claims compatibility with that codec but has `x(i) = α^i`, which yields
//! different parity. The deployed programs use the library, so its code is used here.
//!
//! Two more properties follow the library and not the RFC:
//!
//! * A block that is shorter than `k` is coded as one of `k` symbols whose last ones are zero (the
//!   RFC has another matrix for each length). Its parity symbol `j` has the encoding symbol id
//!   `block length + j`, but the code word position `k + j`.
//! * The 16-bit elements of GF(2¹⁶) are in the order of the machine it runs on, in practice little
//!   endian. For segments of an odd length it sends half of the parity's last element, from which
//!   the last byte cannot be recovered; here such a length is refused.

mod block_code;
mod code;
mod decoder;
mod encoder;
mod field;
mod kernel;
mod long;
mod partition;
mod quantile;
#[cfg(feature = "raptorq")]
mod raptorq;
mod received;
mod symbols;
#[cfg(test)]
mod tests;

pub use block_code::BlockCode;
pub use code::{Code, CodeError};
pub use decoder::{Decoder, RecoverError};
pub use encoder::Encoder;
pub use field::Field;
pub use kernel::Path;
pub use long::{Columns, Long, LongError, LongWork, ReadColumns, SliceColumns};
pub use partition::{Location, Partition, PartitionError};
pub use quantile::{needed, quantile};
#[cfg(feature = "raptorq")]
pub use raptorq::RaptorQ;
pub use received::Received;
