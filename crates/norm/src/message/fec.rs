//! Coding of objects: FEC schemes, symbol IDs, and the object transmission information.

use wire::cursor::{Reader, Writer};
use wire::{DecodeError, EncodeError};

use super::extension::{self, EXT_FTI};

/// Default bits per field element, where an EXT_FTI leaves it open (RFC 5510 §4.2.3).
pub const FIELD_BITS_DEFAULT: u8 = 8;

/// Assumed bits per field element in messages of scheme 2 that cannot carry an EXT_FTI, until one
/// has been received. The reference implementation assumes this, and chooses scheme 2 only for
/// blocks that need 16 bits.
pub const FIELD_BITS_ASSUMED: u8 = 16;

/// Maximum size of an object in bytes (the 48 bits of `object_size`).
pub const OBJECT_SIZE_MAX: u64 = (1 << 48) - 1;

/// Length of a payload ID that is one word of block and symbol, in bytes.
const WORD: usize = 4;

wire::codes! {
    /// FEC scheme, the meaning of `fec_id` (RFC 5052, which also defines the registry).
    Scheme {
        /// No code, compact (RFC 5445 §3).
        NoCode = 0;
        /// Reed–Solomon over GF(2^m), m from 2 to 16 (RFC 5510 §4).
        ReedSolomonM = 2;
        /// Reed–Solomon over GF(2^8) (RFC 5510 §5).
        ReedSolomon8 = 5;
        /// RaptorQ (RFC 6330 §3).
        RaptorQ = 6;
        /// A small block systematic code, identified by a FEC instance ID (RFC 5445 §5).
        SmallBlockSystematic = 129;
        /// A compact code, identified by a FEC instance ID (RFC 5445 §4).
        Compact = 130;
    }
}

/// Identifier of a symbol within its object: `fec_payload_id`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PayloadId {
    /// Source block number.
    pub block: u32,
    /// Encoding symbol ID: source symbols first, then parity. In a request of erasures, the number
    /// of missing symbols. IDs of scheme 6 have 24 bits; those above 65,535 are not decoded.
    pub symbol: u16,
    /// Number of source symbols of the block. `Some` if and only if the scheme is 129, the only one
    /// that carries it.
    pub block_len: Option<u16>,
}

/// Position in a sender's transmission, in requests for repair and in acknowledgements of a flush
/// (RFC 5740 §4.3.1, figure 19, and §4.3.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Position {
    /// Scheme, which determines the layout of `id`.
    pub fec: Scheme,
    /// Object.
    pub object: u16,
    /// Symbol.
    pub id: PayloadId,
}

/// FEC object transmission information, the header extension EXT_FTI (RFC 5740 §4.2.1).
///
/// | scheme | `het = 64`, then |
/// |---|---|
/// | 0 | `hel` 4, object size 48, reserved 16, segment size 16, block length 32 |
/// | 2 | `hel` 4, object size 48, m 8, symbols per packet 8 (1), segment size 16, |
/// | | block length 16, parity 16 |
/// | 5 | `hel` 3, object size 48, segment size 16, block length 8, parity 8 |
/// | 6 | `hel` 4, object size 40, reserved 8, segment size 16, blocks 8, sub-blocks 16, |
/// | | alignment 8, padding 16 |
/// | 129 | `hel` 4, object size 48, FEC instance 16, segment size 16, block length 16, parity 16 |
/// | 130 | `hel` 4, object size 48, FEC instance 16, segment size 16, block length 32 |
///
/// In schemes 2 and 5, RFC 5510 has `max_n` in the last field, source and parity symbols together.
/// The reference implementation uses only the number of parity symbols, as RFC 5740 does for
/// scheme
/// 129. This codec follows it for interoperability.
///
/// No RFC defines EXT_FTI of scheme 6. It has the encoded object transmission information of RFC
/// 6330 §3.3, padded to whole words.
///
/// Fields that the scheme does not carry are 0 after decoding and ignored in encoding.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Fti {
    /// Size of the object in bytes; of a stream, of the sender's buffer. At most
    /// [`OBJECT_SIZE_MAX`].
    pub object_size: u64,
    /// Size of a symbol in bytes: the sender's NormSegmentSize.
    pub segment_size: u16,
    /// Source symbols of the longest block. Scheme 6 does not carry it: it follows from the size and
    /// the number of blocks, and is at least 1.
    pub block_len: u16,
    /// Maximum parity symbols of a block (schemes 2, 5 and 129).
    pub parity: u16,
    /// m, bits per field element (scheme 2): 2 to 16, or 0 for [`FIELD_BITS_DEFAULT`].
    pub field_bits: u8,
    /// FEC instance ID (schemes 129 and 130).
    pub instance: u16,
    /// Z, number of source blocks (scheme 6).
    pub blocks: u8,
    /// N, number of sub-blocks of a source block (scheme 6).
    pub sub_blocks: u16,
    /// Al, of which the size of a symbol is a multiple (scheme 6).
    pub alignment: u8,
}

impl Scheme {
    /// Length of a payload ID in bytes; `None` if the layout is unknown.
    #[must_use]
    pub const fn payload_id_len(self) -> Option<usize> {
        match self {
            Self::NoCode
            | Self::ReedSolomonM
            | Self::ReedSolomon8
            | Self::RaptorQ
            | Self::Compact => Some(WORD),
            Self::SmallBlockSystematic => Some(8),
            Self::Other(_) => None,
        }
    }

    /// Length of EXT_FTI in bytes; `None` if the layout is unknown.
    #[must_use]
    pub const fn fti_len(self) -> Option<usize> {
        match self {
            Self::NoCode
            | Self::ReedSolomonM
            | Self::RaptorQ
            | Self::SmallBlockSystematic
            | Self::Compact => Some(16),
            Self::ReedSolomon8 => Some(12),
            Self::Other(_) => None,
        }
    }

    /// Returns the highest source block number, which is the mask at which a stream's block numbers
    /// wrap. Scheme 2 depends on `field_bits`; 0 if the layout is unknown.
    #[must_use]
    pub fn block_mask(self, field_bits: u8) -> u32 {
        match self.payload_id_len() {
            Some(WORD) => u32::MAX >> self.symbol_bits(field_bits),
            Some(_) => u32::MAX,
            None => 0,
        }
    }

    /// Returns the bits of the encoding symbol ID. An invalid m is clamped, so that a caller's
    /// argument cannot make a shift overflow.
    fn symbol_bits(self, field_bits: u8) -> u32 {
        match self {
            Self::NoCode | Self::SmallBlockSystematic | Self::Compact | Self::Other(_) => 16,
            Self::ReedSolomonM => u32::from(field_bits.clamp(2, 16)),
            Self::ReedSolomon8 => 8,
            Self::RaptorQ => 24,
        }
    }
}

impl PayloadId {
    /// Creates an ID for a scheme other than 129.
    #[must_use]
    pub const fn new(block: u32, symbol: u16) -> Self {
        Self { block, symbol, block_len: None }
    }

    #[inline]
    pub(super) fn read(
        reader: &mut Reader<'_>,
        fec: Scheme,
        field_bits: u8,
    ) -> Result<Self, DecodeError> {
        match fec.payload_id_len() {
            Some(WORD) => {
                let (bits, at) = (fec.symbol_bits(field_bits), reader.offset());
                let word = reader.u32()?;
                let Ok(symbol) = u16::try_from(word & ((1 << bits) - 1)) else {
                    return Err(DecodeError::invalid(at, "the symbol's number is above 65,535"));
                };
                Ok(Self { block: word >> bits, symbol, block_len: None })
            }
            Some(_) => {
                let block = reader.u32()?;
                let block_len = Some(reader.u16()?);
                Ok(Self { block, symbol: reader.u16()?, block_len })
            }
            None => Err(DecodeError::invalid(reader.offset(), "the FEC scheme is not known")),
        }
    }

    #[inline]
    pub(super) fn write(
        self,
        writer: &mut Writer<'_>,
        fec: Scheme,
        field_bits: u8,
    ) -> Result<(), EncodeError> {
        let Self { block, symbol, block_len } = self;
        match (fec.payload_id_len(), block_len) {
            (Some(WORD), None) => {
                let bits = fec.symbol_bits(field_bits);
                if u32::from(symbol) >> bits != 0 {
                    return Err(EncodeError::TooLarge { field: "encoding_symbol_id" });
                }
                if block > u32::MAX >> bits {
                    return Err(EncodeError::TooLarge { field: "source_block_number" });
                }
                writer.put(&(block << bits | u32::from(symbol)).to_be_bytes())
            }
            (Some(WORD), Some(_)) => {
                Err(EncodeError::Conflict("only scheme 129 carries the block length"))
            }
            (Some(_), Some(block_len)) => {
                writer.put(&block.to_be_bytes())?;
                writer.put(&block_len.to_be_bytes())?;
                writer.put(&symbol.to_be_bytes())
            }
            (Some(_), None) => Err(EncodeError::Conflict("scheme 129 requires the block length")),
            (None, _) => Err(EncodeError::Conflict("the FEC scheme is not known")),
        }
    }
}

impl Position {
    /// Decodes a position that is all of `bytes`: the payload of an acknowledgement of a flush.
    ///
    /// # Errors
    /// The bytes are not a position, or the scheme is unknown.
    pub fn decode(bytes: &[u8], field_bits: u8) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(bytes);
        let position = Self::read(&mut reader, field_bits)?;
        reader.finish()?;
        Ok(position)
    }

    /// Length on the wire in bytes; 4 if the scheme is unknown.
    #[must_use]
    pub const fn encoded_len(&self) -> usize {
        match self.fec.payload_id_len() {
            Some(len) => 4 + len,
            None => 4,
        }
    }

    /// Writes the position to the start of `out` and returns its length, at most 12.
    ///
    /// # Errors
    /// `out` is too short, or a field cannot be encoded.
    pub fn encode(&self, out: &mut [u8], field_bits: u8) -> Result<usize, EncodeError> {
        let mut writer = Writer::new(out);
        self.write(&mut writer, field_bits)?;
        Ok(writer.position())
    }

    pub(super) fn read(reader: &mut Reader<'_>, field_bits: u8) -> Result<Self, DecodeError> {
        let fec = Scheme::from_code(reader.u8()?);
        reader.u8()?;
        let object = reader.u16()?;
        Ok(Self { fec, object, id: PayloadId::read(reader, fec, field_bits)? })
    }

    pub(super) fn write(&self, writer: &mut Writer<'_>, field_bits: u8) -> Result<(), EncodeError> {
        writer.u8(self.fec.code())?;
        writer.u8(0)?;
        writer.put(&self.object.to_be_bytes())?;
        self.id.write(writer, self.fec, field_bits)
    }
}

impl Fti {
    /// Returns the bits per field element in this scheme.
    #[must_use]
    pub const fn effective_field_bits(&self) -> u8 {
        match self.field_bits {
            0 => FIELD_BITS_DEFAULT,
            bits => bits,
        }
    }

    /// Source symbols of the longest block in scheme 6 (RFC 6330 §4.4.1.2); `None` without blocks or
    /// symbols, or if they are too many.
    fn longest_block(&self) -> Option<u16> {
        let (segment_size, blocks) = (u64::from(self.segment_size), u64::from(self.blocks));
        if segment_size == 0 || blocks == 0 {
            return None;
        }
        let symbols = self.object_size.div_ceil(segment_size);
        u16::try_from(symbols.div_ceil(blocks).max(1)).ok()
    }

    /// Reads the content of the extension, behind `het` and `hel`.
    pub(super) fn read(mut reader: Reader<'_>, fec: Scheme) -> Result<Self, DecodeError> {
        let at = reader.offset();
        if Some(reader.remaining() + 2) != fec.fti_len() {
            return Err(DecodeError::invalid(at, "EXT_FTI has another length than its scheme's"));
        }
        let object_size = reader.uint(if fec == Scheme::RaptorQ { 5 } else { 6 })?;
        let mut fti = Self { object_size, ..Self::default() };
        match fec {
            Scheme::NoCode | Scheme::Compact => {
                let instance = reader.u16()?;
                if fec == Scheme::Compact {
                    fti.instance = instance;
                }
                fti.segment_size = reader.u16()?;
                let at = reader.offset();
                let Ok(block_len) = u16::try_from(reader.u32()?) else {
                    return Err(DecodeError::invalid(at, "a block has more symbols than numbers"));
                };
                fti.block_len = block_len;
            }
            Scheme::ReedSolomonM => {
                let at = reader.offset();
                fti.field_bits = reader.u8()?;
                if !matches!(fti.field_bits, 0 | 2..=16) {
                    return Err(DecodeError::invalid(at, "m is not from 2 to 16"));
                }
                // A packet with several symbols would be decoded as one symbol.
                if reader.u8()? > 1 {
                    return Err(DecodeError::invalid(at + 1, "a packet holds several symbols"));
                }
                fti.segment_size = reader.u16()?;
                fti.block_len = reader.u16()?;
                fti.parity = reader.u16()?;
            }
            Scheme::ReedSolomon8 => {
                fti.segment_size = reader.u16()?;
                fti.block_len = u16::from(reader.u8()?);
                fti.parity = u16::from(reader.u8()?);
            }
            Scheme::RaptorQ => {
                reader.u8()?;
                fti.segment_size = reader.u16()?;
                let at = reader.offset();
                fti.blocks = reader.u8()?;
                fti.sub_blocks = reader.u16()?;
                fti.alignment = reader.u8()?;
                reader.u16()?;
                let Some(block_len) = fti.longest_block() else {
                    return Err(DecodeError::invalid(at, "a block has more symbols than numbers"));
                };
                fti.block_len = block_len;
            }
            Scheme::SmallBlockSystematic => {
                fti.instance = reader.u16()?;
                fti.segment_size = reader.u16()?;
                fti.block_len = reader.u16()?;
                fti.parity = reader.u16()?;
            }
            Scheme::Other(_) => {
                return Err(DecodeError::invalid(at, "the FEC scheme is not known"));
            }
        }
        Ok(fti)
    }

    pub(super) fn write(&self, writer: &mut Writer<'_>, fec: Scheme) -> Result<(), EncodeError> {
        let Some(len) = fec.fti_len() else {
            return Err(EncodeError::Conflict("the FEC scheme is not known"));
        };
        extension::write_head(writer, EXT_FTI, len)?;
        let size_len = if fec == Scheme::RaptorQ { 5 } else { 6 };
        writer.uint(self.object_size, size_len, "object_size")?;
        let Self { segment_size, block_len, parity, field_bits, instance, .. } = *self;
        match fec {
            Scheme::NoCode | Scheme::Compact => {
                let instance = if fec == Scheme::Compact { instance } else { 0 };
                writer.put(&instance.to_be_bytes())?;
                writer.put(&segment_size.to_be_bytes())?;
                writer.put(&u32::from(block_len).to_be_bytes())
            }
            Scheme::ReedSolomonM => {
                if !matches!(field_bits, 0 | 2..=16) {
                    return Err(EncodeError::Conflict("m is not from 2 to 16"));
                }
                writer.put(&[field_bits, 1])?;
                writer.put(&segment_size.to_be_bytes())?;
                writer.put(&block_len.to_be_bytes())?;
                writer.put(&parity.to_be_bytes())
            }
            Scheme::ReedSolomon8 => {
                writer.put(&segment_size.to_be_bytes())?;
                writer.uint(u64::from(block_len), 1, "fec_max_block_len")?;
                writer.uint(u64::from(parity), 1, "fec_num_parity")
            }
            Scheme::RaptorQ => {
                writer.u8(0)?;
                writer.put(&segment_size.to_be_bytes())?;
                writer.u8(self.blocks)?;
                writer.put(&self.sub_blocks.to_be_bytes())?;
                writer.put(&[self.alignment, 0, 0])
            }
            Scheme::SmallBlockSystematic => {
                for half in [instance, segment_size, block_len, parity] {
                    writer.put(&half.to_be_bytes())?;
                }
                Ok(())
            }
            Scheme::Other(_) => Err(EncodeError::Conflict("the FEC scheme is not known")),
        }
    }
}
