//! Options of a segment (RFC 9293 §3.2, RFC 7323, RFC 2018, CCSDS 714.0-B-2).

use std::fmt;
use std::iter::FusedIterator;

use wire::{DecodeError, DecodeErrorKind, EncodeError};

use super::HEADER_LEN;

const END: u8 = 0;
const NO_OPERATION: u8 = 1;
const MAXIMUM_SEGMENT_SIZE: u8 = 2;
const WINDOW_SCALE: u8 = 3;
const SACK_PERMITTED: u8 = 4;
const SACK: u8 = 5;
const TIMESTAMPS: u8 = 8;
const SCPS_CAPABILITIES: u8 = 20;
const SNACK: u8 = 21;
const RECORD_BOUNDARY: u8 = 22;
const CORRUPTION: u8 = 23;

/// One option. A known kind with a wrong length is [`TcpOption::Unknown`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TcpOption<'a> {
    /// 1: padding between options.
    NoOperation,
    /// 2: maximum segment size of its sender, without headers (RFC 9293 §3.7.1).
    MaximumSegmentSize(u16),
    /// 3: left shift of its sender's windows (RFC 7323 §2).
    WindowScale(u8),
    /// 4: its sender supports SACK (RFC 2018 §2).
    SackPermitted,
    /// 5: data its sender received beyond the acknowledgment (RFC 2018 §3).
    Sack(SackBlocks),
    /// 8: time stamps (RFC 7323 §3).
    Timestamps {
        /// TSval, the sender's clock.
        value: u32,
        /// TSecr, the echoed time stamp.
        echo: u32,
    },
    /// 20 of length 4: SCPS-TP capabilities of its sender.
    ScpsCapabilities(Capabilities),
    /// 20 of another length: extended capabilities, as on the wire.
    ScpsExtended(&'a [u8]),
    /// 21: a hole, relative to the acknowledgment in units of the segment size, and bits for the
    /// data behind it.
    Snack {
        /// Units from the acknowledgment to the hole.
        offset: u16,
        /// Length of the hole in units.
        size: u16,
        /// One bit per unit behind the hole, first bit highest: 1 if received.
        bits: &'a [u8],
    },
    /// 22: a record ends with this segment.
    RecordBoundary,
    /// 23: its sender attributes losses to corruption.
    CorruptionExperienced,
    /// Any other option.
    Unknown {
        /// Kind.
        kind: u8,
        /// Bytes behind its length.
        data: &'a [u8],
    },
}

/// SCPS-TP capabilities of a host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Capabilities {
    /// Bit vector, as on the wire.
    pub bits: u8,
    /// Connection number in compressed headers; 0 if there is none.
    pub connection: u8,
}

impl Capabilities {
    /// Best-effort service.
    pub const BETS: u8 = 0x80;
    /// The short form of SNACK.
    pub const SNACK_SHORT: u8 = 0x40;
    /// SNACK with a bit vector.
    pub const SNACK_LONG: u8 = 0x20;
    /// Header compression; makes the connection number valid.
    pub const COMPRESSION: u8 = 0x10;
    /// Network-layer time stamps.
    pub const NETWORK_TIMESTAMPS: u8 = 0x08;
}

/// Sequence numbers from `left` to the one before `right`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SackBlock {
    /// First sequence number.
    pub left: u32,
    /// Sequence number behind the last.
    pub right: u32,
}

/// Up to four blocks, the maximum in a header.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct SackBlocks {
    blocks: [SackBlock; Self::MAX],
    len: u8,
}

impl SackBlocks {
    /// Maximum blocks in a header without other options.
    pub const MAX: usize = 4;

    /// Adds a block; `false` if there is no room.
    pub fn push(&mut self, block: SackBlock) -> bool {
        let Some(place) = self.blocks.get_mut(usize::from(self.len)) else { return false };
        *place = block;
        self.len += 1;
        true
    }

    /// Returns the blocks.
    #[must_use]
    pub fn as_slice(&self) -> &[SackBlock] {
        &self.blocks[..usize::from(self.len)]
    }
}

impl FromIterator<SackBlock> for SackBlocks {
    /// Takes the first four.
    fn from_iter<I: IntoIterator<Item = SackBlock>>(blocks: I) -> Self {
        let mut all = Self::default();
        for block in blocks.into_iter().take(Self::MAX) {
            all.push(block);
        }
        all
    }
}

impl fmt::Debug for SackBlocks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.as_slice()).finish()
    }
}

impl TcpOption<'_> {
    /// Length in bytes.
    #[must_use]
    pub fn encoded_len(&self) -> usize {
        match self {
            Self::NoOperation => 1,
            Self::SackPermitted | Self::RecordBoundary | Self::CorruptionExperienced => 2,
            Self::WindowScale(_) => 3,
            Self::MaximumSegmentSize(_) | Self::ScpsCapabilities(_) => 4,
            Self::Sack(blocks) => 2 + 8 * blocks.as_slice().len(),
            Self::Timestamps { .. } => 10,
            Self::Snack { bits, .. } => 6 + bits.len(),
            Self::ScpsExtended(data) | Self::Unknown { data, .. } => 2 + data.len(),
        }
    }

    /// Returns its kind.
    #[must_use]
    pub fn kind(&self) -> u8 {
        match self {
            Self::NoOperation => NO_OPERATION,
            Self::MaximumSegmentSize(_) => MAXIMUM_SEGMENT_SIZE,
            Self::WindowScale(_) => WINDOW_SCALE,
            Self::SackPermitted => SACK_PERMITTED,
            Self::Sack(_) => SACK,
            Self::Timestamps { .. } => TIMESTAMPS,
            Self::ScpsCapabilities(_) | Self::ScpsExtended(_) => SCPS_CAPABILITIES,
            Self::Snack { .. } => SNACK,
            Self::RecordBoundary => RECORD_BOUNDARY,
            Self::CorruptionExperienced => CORRUPTION,
            Self::Unknown { kind, .. } => *kind,
        }
    }

    /// Whether the option can be decoded again: its kind matches its length.
    fn has_form(&self) -> bool {
        match self {
            Self::ScpsExtended(data) => data.len() != 2,
            Self::Unknown { kind, data } => {
                !matches!(*kind, END | NO_OPERATION)
                    && matches!(read(*kind, data), TcpOption::Unknown { .. })
            }
            Self::Sack(blocks) => blocks.len > 0,
            Self::NoOperation
            | Self::MaximumSegmentSize(_)
            | Self::WindowScale(_)
            | Self::SackPermitted
            | Self::Timestamps { .. }
            | Self::ScpsCapabilities(_)
            | Self::Snack { .. }
            | Self::RecordBoundary
            | Self::CorruptionExperienced => true,
        }
    }

    /// Writes the option to the start of `out`, which is long enough, and returns its length.
    #[inline]
    fn write(&self, out: &mut [u8]) -> usize {
        let len = self.encoded_len();
        out[0] = self.kind();
        if let Self::NoOperation = self {
            return len;
        }
        out[1] = len as u8;
        match self {
            Self::NoOperation
            | Self::SackPermitted
            | Self::RecordBoundary
            | Self::CorruptionExperienced => {}
            Self::MaximumSegmentSize(size) => out[2..4].copy_from_slice(&size.to_be_bytes()),
            Self::WindowScale(shift) => out[2] = *shift,
            Self::Sack(blocks) => {
                for (place, block) in out[2..].chunks_exact_mut(8).zip(blocks.as_slice()) {
                    place[..4].copy_from_slice(&block.left.to_be_bytes());
                    place[4..].copy_from_slice(&block.right.to_be_bytes());
                }
            }
            Self::Timestamps { value, echo } => {
                out[2..6].copy_from_slice(&value.to_be_bytes());
                out[6..10].copy_from_slice(&echo.to_be_bytes());
            }
            Self::ScpsCapabilities(Capabilities { bits, connection }) => {
                out[2..4].copy_from_slice(&[*bits, *connection]);
            }
            Self::Snack { offset, size, bits } => {
                out[2..4].copy_from_slice(&offset.to_be_bytes());
                out[4..6].copy_from_slice(&size.to_be_bytes());
                out[6..len].copy_from_slice(bits);
            }
            Self::ScpsExtended(data) | Self::Unknown { data, .. } => {
                out[2..len].copy_from_slice(data);
            }
        }
        len
    }
}

impl fmt::Display for TcpOption<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoOperation => f.write_str("nop"),
            Self::MaximumSegmentSize(size) => write!(f, "mss {size}"),
            Self::WindowScale(shift) => write!(f, "scale {shift}"),
            Self::SackPermitted => f.write_str("sack-permitted"),
            Self::Sack(blocks) => {
                f.write_str("sack")?;
                blocks.as_slice().iter().try_for_each(|b| write!(f, " {}-{}", b.left, b.right))
            }
            Self::Timestamps { value, echo } => write!(f, "ts {value} {echo}"),
            Self::ScpsCapabilities(Capabilities { bits, connection }) => {
                write!(f, "scps {bits:#04x} id {connection}")
            }
            Self::ScpsExtended(data) => write!(f, "scps-extended {} bytes", data.len()),
            Self::Snack { offset, size, bits } => {
                write!(f, "snack {offset}+{size}")?;
                if bits.is_empty() { Ok(()) } else { write!(f, " and {} bits", bits.len() * 8) }
            }
            Self::RecordBoundary => f.write_str("eor"),
            Self::CorruptionExperienced => f.write_str("corruption"),
            Self::Unknown { kind, data } => write!(f, "option {kind} of {} bytes", data.len()),
        }
    }
}

/// Length of the options in bytes, padded to a multiple of four.
#[must_use]
pub fn options_len(options: &[TcpOption<'_>]) -> usize {
    options.iter().map(TcpOption::encoded_len).sum::<usize>().next_multiple_of(4)
}

/// Writes the options and fills the rest of `out` with the end-of-list option.
pub(crate) fn encode(options: &[TcpOption<'_>], out: &mut [u8]) -> Result<(), EncodeError> {
    let mut at = 0;
    for option in options {
        if !option.has_form() {
            return Err(EncodeError::Conflict("an option of this kind has not this length"));
        }
        at += option.write(&mut out[at..]);
    }
    out[at..].fill(END);
    Ok(())
}

/// Options of a header: an iterator over the bytes.
///
/// The iterator stops at the end of the list, or with an error at an option of invalid length,
/// behind which options cannot be found.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Options<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Options<'a> {
    /// Creates an iterator over these bytes.
    #[must_use]
    pub const fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0 }
    }

    /// Returns the bytes, including padding.
    #[must_use]
    pub const fn as_bytes(&self) -> &'a [u8] {
        self.bytes
    }

    fn end(&mut self) {
        self.at = self.bytes.len();
    }
}

impl<'a> Iterator for Options<'a> {
    type Item = Result<TcpOption<'a>, DecodeError>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        let rest = &self.bytes[self.at..];
        let kind = *rest.first()?;
        if kind == END {
            self.end();
            return None;
        }
        if kind == NO_OPERATION {
            self.at += 1;
            return Some(Ok(TcpOption::NoOperation));
        }
        let offset = HEADER_LEN + self.at;
        let Some(len) = rest.get(1) else {
            self.end();
            let kind = DecodeErrorKind::Truncated { needed: 2, found: 1 };
            return Some(Err(DecodeError { offset, kind }));
        };
        let len = usize::from(*len);
        if len < 2 {
            self.end();
            return Some(Err(DecodeError::invalid(offset + 1, "the option's length is below 2")));
        }
        let Some(data) = rest.get(2..len) else {
            self.end();
            let kind = DecodeErrorKind::Truncated { needed: len, found: rest.len() };
            return Some(Err(DecodeError { offset, kind }));
        };
        self.at += len;
        Some(Ok(read(kind, data)))
    }
}

impl FusedIterator for Options<'_> {}

impl fmt::Debug for Options<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(*self).finish()
    }
}

/// Decodes an option of this kind with these bytes behind its length.
#[inline]
fn read(kind: u8, data: &[u8]) -> TcpOption<'_> {
    match (kind, data) {
        (MAXIMUM_SEGMENT_SIZE, [a, b]) => {
            TcpOption::MaximumSegmentSize(u16::from_be_bytes([*a, *b]))
        }
        (WINDOW_SCALE, [shift]) => TcpOption::WindowScale(*shift),
        (SACK_PERMITTED, []) => TcpOption::SackPermitted,
        (SACK, data) if matches!(data.len(), 8 | 16 | 24 | 32) => {
            let blocks = data.as_chunks::<4>().0.as_chunks::<2>().0.iter();
            let block = |[left, right]: &[[u8; 4]; 2]| SackBlock {
                left: u32::from_be_bytes(*left),
                right: u32::from_be_bytes(*right),
            };
            TcpOption::Sack(blocks.map(block).collect())
        }
        (TIMESTAMPS, [a, b, c, d, e, f, g, h]) => TcpOption::Timestamps {
            value: u32::from_be_bytes([*a, *b, *c, *d]),
            echo: u32::from_be_bytes([*e, *f, *g, *h]),
        },
        (SCPS_CAPABILITIES, [bits, connection]) => {
            TcpOption::ScpsCapabilities(Capabilities { bits: *bits, connection: *connection })
        }
        (SCPS_CAPABILITIES, data) => TcpOption::ScpsExtended(data),
        (SNACK, [a, b, c, d, bits @ ..]) => TcpOption::Snack {
            offset: u16::from_be_bytes([*a, *b]),
            size: u16::from_be_bytes([*c, *d]),
            bits,
        },
        (RECORD_BOUNDARY, []) => TcpOption::RecordBoundary,
        (CORRUPTION, []) => TcpOption::CorruptionExperienced,
        (kind, data) => TcpOption::Unknown { kind, data },
    }
}
