//! The CCSDS File Delivery Protocol: PDUs, user operations and file checksums.
//!
//! Source: CCSDS 727.0-B-5 (header version 001), and the PDUs of issues 1 to 4 (version 000) where
//! they differ. Decoding borrows from the input and allocates nothing; encoding writes into a
//! slice. Unknown values survive decoding and encoding; reserved bits do not.

mod codes;
mod directive;
mod display;
mod header;
mod sfo;
mod tlv;
mod user;

#[cfg(test)]
mod tests;

use std::ops::Range;

use crc::{Algorithm, Crc, Table};
pub use wire::checksum::ChecksumType;
use wire::cursor::{Reader, Writer};
use wire::{DecodeError, DecodeErrorKind, EncodeError};

pub use self::codes::{
    Acknowledged, ConditionCode, DeliveryCode, Direction, FaultHandler, FileStatus,
    FilestoreAction, PromptResponse, RecordContinuation, TransactionStatus, TransmissionMode,
    Version,
};
pub use self::directive::{
    Ack, Eof, FileData, Finished, KeepAlive, Metadata, Nak, Prompt, SegmentMetadata,
    SegmentRequest, SegmentRequests,
};
pub use self::header::{EntityId, Header, TransactionId, Width};
pub use self::sfo::{SfoReport, SfoRequest, TraceControl};
pub use self::tlv::{FilestoreRequest, FilestoreResponse, FilestoreStatus, IdField, Lv, Tlv, Tlvs};
pub use self::user::{
    ProxyPut, PutDetail, Suspension, TransactionField, UserOperation, UserRequest,
};

use self::header::Contents;

/// CRC-16 that may end a PDU (§4.1.3): CCITT polynomial, initially all ones.
const PDU_CRC_ALGORITHM: Algorithm<u16> = Algorithm {
    width: 16,
    poly: 0x1021,
    init: 0xffff,
    refin: false,
    refout: false,
    xorout: 0,
    check: 0x29b1,
    residue: 0,
};

static PDU_CRC: Crc<u16, Table<16>> = Crc::<u16, Table<16>>::new(&PDU_CRC_ALGORITHM);

/// Length of a directive code, in bytes.
const DIRECTIVE_CODE_LEN: usize = 1;

/// One protocol data unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pdu<'a> {
    /// Header shared by the PDUs of the transaction.
    pub header: Header,
    /// Body.
    pub body: Body<'a>,
}

/// Body of a PDU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Body<'a> {
    /// Part of the file.
    FileData(FileData<'a>),
    /// Directive 04.
    Eof(Eof),
    /// Directive 05.
    Finished(Finished<'a>),
    /// Directive 06.
    Ack(Ack),
    /// Directive 07.
    Metadata(Metadata<'a>),
    /// Directive 08.
    Nak(Nak<'a>),
    /// Directive 09.
    Prompt(Prompt),
    /// Directive 0C.
    KeepAlive(KeepAlive),
    /// Directive that the book does not define.
    Unknown {
        /// The directive code.
        code: u8,
        /// Bytes behind it.
        data: &'a [u8],
    },
}

impl<'a> Pdu<'a> {
    /// Decodes a PDU that is all of `bytes`.
    ///
    /// With the CRC flag set, verifies the CRC before it decodes the body. The CRC cannot protect
    /// the flag itself: a caller that expects a CRC must check `header.crc`.
    ///
    /// # Errors
    /// Anything that is not one complete, intact PDU.
    #[inline]
    pub fn decode(bytes: &'a [u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(bytes);
        Self::read(&mut reader, Reader::finish)
    }

    /// Decodes the PDU at the start of `bytes`. Returns it with its length in bytes, by its header
    /// (§5.1.3).
    ///
    /// # Errors
    /// Anything that does not start with one complete, intact PDU.
    #[inline]
    pub fn decode_first(bytes: &'a [u8]) -> Result<(Self, usize), DecodeError> {
        let mut reader = Reader::new(bytes);
        let pdu = Self::read(&mut reader, |_| Ok(()))?;
        Ok((pdu, reader.offset()))
    }

    /// Reads a PDU, and checks what is behind it before its contents.
    #[inline]
    fn read(
        reader: &mut Reader<'a>,
        behind: impl FnOnce(&Reader<'a>) -> Result<(), DecodeError>,
    ) -> Result<Self, DecodeError> {
        let bytes = reader.left();
        let (mut header, contents) = Header::read(reader)?;
        let mut body = reader.part(contents.data_field_len)?;
        behind(reader)?;
        if header.crc {
            body = checked(bytes, body)?;
        }
        let body = if contents.file_data {
            let data = FileData::read(&header, contents.segment_metadata, &mut body)?;
            Body::FileData(data)
        } else {
            Body::read_directive(&mut header, &mut body)?
        };
        Ok(Self { header, body })
    }

    /// Length in bytes of the PDU at the start of `bytes`, from its header; the next of several
    /// consecutive PDUs starts there.
    ///
    /// # Errors
    /// An unknown version, or an input that ends before the PDU does.
    pub fn len_of_first(bytes: &[u8]) -> Result<usize, DecodeError> {
        let mut reader = Reader::new(bytes);
        let (_, contents) = Header::read(&mut reader)?;
        reader.part(contents.data_field_len)?;
        Ok(reader.offset())
    }

    /// Name of the PDU at the start of `bytes`, by its header and directive code only: the rest may
    /// be malformed.
    #[must_use]
    pub fn name_of_first(bytes: &[u8]) -> &'static str {
        let mut reader = Reader::new(bytes);
        match Header::read(&mut reader) {
            Ok((_, contents)) if contents.file_data => return "file data",
            Ok(_) => {}
            Err(_) => return "unknown",
        }
        match reader.u8() {
            Ok(0x04) => "EOF",
            Ok(0x05) => "Finished",
            Ok(0x06) => "ACK",
            Ok(0x07) => "Metadata",
            Ok(0x08) => "NAK",
            Ok(0x09) => "Prompt",
            Ok(0x0c) => "Keep Alive",
            Ok(_) | Err(_) => "unknown",
        }
    }

    /// Length of the PDU, in bytes.
    #[must_use]
    pub fn encoded_len(&self) -> usize {
        self.header.encoded_len() + self.body.encoded_len(&self.header) + self.header.crc_len()
    }

    /// Writes the PDU to the start of `out` and returns its length, [`Pdu::encoded_len`].
    ///
    /// # Errors
    /// `out` is too short, or a value does not fit its field. The content of `out` is then
    /// undefined.
    pub fn encode(&self, out: &mut [u8]) -> Result<usize, EncodeError> {
        let header = &self.header;
        let mut writer = Writer::new(out);
        let segment_metadata =
            matches!(self.body, Body::FileData(FileData { segment_metadata: Some(_), .. }));
        let contents = Contents {
            file_data: matches!(self.body, Body::FileData(_)),
            segment_metadata,
            data_field_len: self.body.encoded_len(header) + header.crc_len(),
        };
        header.write(&mut writer, contents)?;
        self.body.write(header, &mut writer)?;
        let end = writer.position();
        if !header.crc {
            return Ok(end);
        }
        let crc = PDU_CRC.checksum(&out[..end]).to_be_bytes();
        let room = out.len();
        let needed = end + crc.len();
        let place = out.get_mut(end..needed).ok_or(EncodeError::NoRoom { needed, room })?;
        place.copy_from_slice(&crc);
        Ok(needed)
    }

    /// Encodes the PDU into a vector.
    ///
    /// # Errors
    /// A value does not fit its field.
    pub fn to_vec(&self) -> Result<Vec<u8>, EncodeError> {
        let mut out = vec![0; self.encoded_len()];
        self.encode(&mut out)?;
        Ok(out)
    }
}

/// Returns the part of `body` before the CRC, if the CRC over all of `bytes` matches.
fn checked<'a>(bytes: &[u8], mut body: Reader<'a>) -> Result<Reader<'a>, DecodeError> {
    let Some(len) = body.remaining().checked_sub(2) else {
        let kind = DecodeErrorKind::Truncated { needed: 2, found: body.remaining() };
        return Err(DecodeError { offset: body.offset(), kind });
    };
    let rest = body.part(len)?;
    let offset = body.offset();
    let found = body.u16()?;
    let computed = PDU_CRC.checksum(&bytes[..offset]);
    if found != computed {
        let kind =
            DecodeErrorKind::Checksum { found: u32::from(found), computed: u32::from(computed) };
        return Err(DecodeError { offset, kind });
    }
    Ok(rest)
}

impl<'a> Body<'a> {
    fn read_directive(header: &mut Header, reader: &mut Reader<'a>) -> Result<Self, DecodeError> {
        match reader.u8()? {
            0x04 => Ok(Self::Eof(Eof::read(header, reader)?)),
            0x05 => Ok(Self::Finished(Finished::read(header, reader)?)),
            0x06 => Ok(Self::Ack(Ack::read(reader)?)),
            0x07 => Ok(Self::Metadata(Metadata::read(header, reader)?)),
            0x08 => Ok(Self::Nak(Nak::read(header, reader)?)),
            0x09 => {
                let keep_alive = reader.u8()? & 0x80 != 0;
                reader.finish()?;
                let response =
                    if keep_alive { PromptResponse::KeepAlive } else { PromptResponse::Nak };
                Ok(Self::Prompt(Prompt { response }))
            }
            0x0c => {
                let progress = reader.uint(header.file_size_len())?;
                reader.finish()?;
                Ok(Self::KeepAlive(KeepAlive { progress }))
            }
            code => Ok(Self::Unknown { code, data: reader.rest() }),
        }
    }

    fn write(&self, header: &Header, writer: &mut Writer<'_>) -> Result<(), EncodeError> {
        if let Some(code) = self.directive_code() {
            writer.u8(code)?;
        }
        match self {
            Self::FileData(FileData { segment_metadata, offset, data }) => {
                if let Some(metadata) = segment_metadata {
                    metadata.write(writer)?;
                }
                writer.uint(*offset, header.file_size_len(), "offset")?;
                writer.put(data)
            }
            Self::Eof(eof) => eof.write(header, writer),
            Self::Finished(finished) => finished.write(header, writer),
            Self::Ack(ack) => ack.write(writer),
            Self::Metadata(metadata) => metadata.write(header, writer),
            Self::Nak(nak) => nak.write(header, writer),
            Self::Prompt(Prompt { response }) => {
                writer.u8(u8::from(*response == PromptResponse::KeepAlive) << 7)
            }
            Self::KeepAlive(KeepAlive { progress }) => {
                writer.uint(*progress, header.file_size_len(), "progress")
            }
            Self::Unknown { data, .. } => writer.put(data),
        }
    }

    fn encoded_len(&self, header: &Header) -> usize {
        match self {
            Self::FileData(FileData { segment_metadata, data, .. }) => {
                segment_metadata.map_or(0, |metadata| metadata.encoded_len())
                    + header.file_size_len()
                    + data.len()
            }
            Self::Eof(eof) => DIRECTIVE_CODE_LEN + eof.encoded_len(header),
            Self::Finished(finished) => DIRECTIVE_CODE_LEN + 1 + tlv::tlvs_len(&finished.tlvs),
            Self::Ack(_) => DIRECTIVE_CODE_LEN + 2,
            Self::Metadata(metadata) => DIRECTIVE_CODE_LEN + metadata.encoded_len(header),
            Self::Nak(nak) => DIRECTIVE_CODE_LEN + nak.encoded_len(header),
            Self::Prompt(_) => DIRECTIVE_CODE_LEN + 1,
            Self::KeepAlive(_) => DIRECTIVE_CODE_LEN + header.file_size_len(),
            Self::Unknown { data, .. } => DIRECTIVE_CODE_LEN + data.len(),
        }
    }

    /// Returns the directive code (§5.2, table 5-4); `None` for file data.
    #[must_use]
    pub const fn directive_code(&self) -> Option<u8> {
        match self {
            Self::FileData(_) => None,
            Self::Eof(_) => Some(0x04),
            Self::Finished(_) => Some(0x05),
            Self::Ack(_) => Some(0x06),
            Self::Metadata(_) => Some(0x07),
            Self::Nak(_) => Some(0x08),
            Self::Prompt(_) => Some(0x09),
            Self::KeepAlive(_) => Some(0x0c),
            Self::Unknown { code, .. } => Some(*code),
        }
    }
}

/// A file data PDU whose data the caller writes into place: sends a file without a second copy.
///
/// ```
/// # use slowlight_cfdp as cfdp;
/// use cfdp::pdu::*;
/// # let header = Header { version: Version::V1, direction: Direction::TowardReceiver,
/// #   mode: TransmissionMode::Acknowledged, crc: true, large_file: false,
/// #   segmentation_control: false, entity_width: Width::ONE, sequence_width: Width::ONE,
/// #   source: EntityId(1), sequence: 7, destination: EntityId(2) };
/// let head = FileDataHeader { header, segment_metadata: None, offset: 997 };
/// let mut datagram = vec![0; head.encoded_len(5)];
/// let place = head.encode(5, &mut datagram)?;
/// datagram[place].copy_from_slice(b"hello");
/// head.finish(&mut datagram);
/// # assert!(matches!(Pdu::decode(&datagram).unwrap().body,
/// #   Body::FileData(FileData { offset: 997, data: b"hello", .. })));
/// # Ok::<(), wire::EncodeError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileDataHeader<'a> {
    /// Header shared by the PDUs of the transaction.
    pub header: Header,
    /// Application's metadata of the segment.
    pub segment_metadata: Option<SegmentMetadata<'a>>,
    /// Offset of the data in the file.
    pub offset: u64,
}

impl FileDataHeader<'_> {
    /// Length of the PDU without the data, in bytes, including the CRC.
    #[must_use]
    pub fn overhead(&self) -> usize {
        self.header.encoded_len()
            + self.segment_metadata.map_or(0, |metadata| metadata.encoded_len())
            + self.header.file_size_len()
            + self.header.crc_len()
    }

    /// Length of the PDU with `data_len` bytes of data.
    #[must_use]
    pub fn encoded_len(&self, data_len: usize) -> usize {
        self.overhead() + data_len
    }

    /// Writes everything before the data and returns the range of the data in `out`.
    ///
    /// # Errors
    /// `out` is too short for the whole PDU, or a value does not fit its field.
    #[inline]
    pub fn encode(&self, data_len: usize, out: &mut [u8]) -> Result<Range<usize>, EncodeError> {
        let needed = self.encoded_len(data_len);
        if out.len() < needed {
            return Err(EncodeError::NoRoom { needed, room: out.len() });
        }
        let mut writer = Writer::new(out);
        let contents = Contents {
            file_data: true,
            segment_metadata: self.segment_metadata.is_some(),
            data_field_len: needed - self.header.encoded_len(),
        };
        self.header.write(&mut writer, contents)?;
        if let Some(metadata) = self.segment_metadata {
            metadata.write(&mut writer)?;
        }
        writer.uint(self.offset, self.header.file_size_len(), "offset")?;
        let start = writer.position();
        Ok(start..start + data_len)
    }

    /// Completes the PDU once the data is in place: `pdu` is exactly the PDU. Only needed with the
    /// CRC flag; otherwise a no-op.
    ///
    /// # Panics
    /// If `pdu` is shorter than a CRC.
    #[inline]
    pub fn finish(&self, pdu: &mut [u8]) {
        if !self.header.crc {
            return;
        }
        let (covered, place) =
            pdu.split_last_chunk_mut::<2>().expect("a PDU with a CRC holds at least the CRC");
        *place = PDU_CRC.checksum(covered).to_be_bytes();
    }
}
