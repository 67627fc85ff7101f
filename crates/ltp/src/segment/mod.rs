//! The Licklider Transmission Protocol (RFC 5326; profile CCSDS 734.1-B): segments.
//!
//! A session carries one block of client data as segments. The first part of the block may be red,
//! which is retransmitted until complete; the rest is green, which is sent once.

mod display;
mod least;
mod list;
pub mod ltpt;
#[cfg(test)]
mod tests;
mod unit;

use wire::cursor::{Reader, Writer};
use wire::named_codes;
use wire::sdnv;
use wire::{DecodeError, DecodeErrorKind, EncodeError};

pub(crate) use self::least::least_segment;
pub use self::list::{Claim, Claims, Extension, Extensions};
use self::list::{header_count, read_claims};
pub use self::unit::{AGGREGATION_SERVICE, Unit};

/// The UDP and DCCP port of LTP (RFC 7122).
pub const PORT: u16 = 1113;

/// Session ID: the originator and its session number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionId {
    /// Engine that sends the block.
    pub originator: u64,
    /// Session number at the originator.
    pub number: u64,
}

/// One segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment<'a> {
    /// Session of the segment.
    pub session: SessionId,
    /// Extensions before the content, at most 15.
    pub header: Extensions<'a>,
    /// Content.
    pub body: Body<'a>,
    /// Extensions behind the content, at most 15.
    pub trailer: Extensions<'a>,
}

/// Content of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Body<'a> {
    /// Part of the block (types 0 to 4 and 7).
    Data(Data<'a>),
    /// Reception report for the red part (type 8).
    Report(Report<'a>),
    /// Acknowledgement of a report (type 9).
    ReportAck {
        /// Serial number of the report.
        serial: u64,
    },
    /// Cancellation of the session (types 12 and 14).
    Cancel {
        /// Side that cancels the session.
        by: End,
        /// Reason of the cancellation.
        reason: CancelReason,
    },
    /// Acknowledgement of a cancellation (types 13 and 15).
    CancelAck {
        /// Side that cancelled the session.
        by: End,
    },
}

/// Side of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum End {
    /// Engine that sends the block.
    Sender,
    /// Engine that receives it.
    Receiver,
}

named_codes! {
    /// Reason for cancelling a session (§3.2.4).
    CancelReason(u8, "reason {}") {
        /// USR_CNCLD: the client service cancelled it.
        User = 0, "the client service wanted it";
        /// UNREACH: the client service cannot be reached.
        Unreachable = 1, "the client service cannot be reached";
        /// RLEXC: a segment reached its retransmission limit.
        RetransmissionLimit = 2, "retransmission limit reached";
        /// MISCOLORED: red data arrived where green was expected, or the reverse.
        Miscolored = 3, "miscolored data";
        /// SYS_CNCLD: a system error.
        System = 4, "an error of the system";
        /// RXMTCYCEXC: too many cycles of reports and retransmissions.
        CycleLimit = 5, "limit of retransmission cycles reached";
    }
}

/// Kind of a data segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum DataKind {
    /// Type 0: red, neither checkpoint nor end.
    Red,
    /// Type 1: red; requests a report.
    Checkpoint,
    /// Type 2: last of the red part, before green data.
    EndOfRedPart,
    /// Type 3: last of a block that is all red.
    EndOfRedBlock,
    /// Type 4: green, not the end.
    Green,
    /// Type 7: last of a block whose end is green.
    EndOfGreenBlock,
}

impl DataKind {
    /// Whether the segment belongs to the red part.
    #[must_use]
    pub const fn is_red(self) -> bool {
        match self {
            Self::Red | Self::Checkpoint | Self::EndOfRedPart | Self::EndOfRedBlock => true,
            Self::Green | Self::EndOfGreenBlock => false,
        }
    }

    /// Whether the segment requests a report.
    #[must_use]
    pub const fn is_checkpoint(self) -> bool {
        match self {
            Self::Checkpoint | Self::EndOfRedPart | Self::EndOfRedBlock => true,
            Self::Red | Self::Green | Self::EndOfGreenBlock => false,
        }
    }

    /// Whether the segment ends the red part.
    #[must_use]
    pub const fn ends_red(self) -> bool {
        matches!(self, Self::EndOfRedPart | Self::EndOfRedBlock)
    }

    const fn code(self) -> u8 {
        match self {
            Self::Red => 0,
            Self::Checkpoint => 1,
            Self::EndOfRedPart => 2,
            Self::EndOfRedBlock => 3,
            Self::Green => 4,
            Self::EndOfGreenBlock => 7,
        }
    }
}

/// Part of the block (§3.2.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Data<'a> {
    /// Kind of segment.
    pub kind: DataKind,
    /// Client service that receives it.
    pub service: u64,
    /// Offset in the block.
    pub offset: u64,
    /// Serial numbers of a checkpoint; `Some` if and only if the kind is a checkpoint.
    pub checkpoint: Option<Checkpoint>,
    /// Data.
    pub data: &'a [u8],
}

/// The serial numbers of a checkpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Checkpoint {
    /// Serial number of the checkpoint.
    pub serial: u64,
    /// Serial number of the report to which the checkpoint responds; 0 if none.
    pub report: u64,
}

impl Data<'_> {
    /// Length of a data segment without its data and without extensions, for data of `len` bytes.
    #[must_use]
    pub const fn overhead(
        session: SessionId,
        service: u64,
        offset: u64,
        len: u64,
        checkpoint: Option<Checkpoint>,
    ) -> usize {
        let serials = match checkpoint {
            Some(Checkpoint { serial, report }) => sdnv::len(serial) + sdnv::len(report),
            None => 0,
        };
        2 + sdnv::len(session.originator)
            + sdnv::len(session.number)
            + sdnv::len(service)
            + sdnv::len(offset)
            + sdnv::len(len)
            + serials
    }
}

/// Reception report for the red part between two bounds (§3.2.2). Claims nothing about bytes
/// outside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Report<'a> {
    /// Serial number of the report.
    pub serial: u64,
    /// Serial number of the checkpoint to which the report responds; 0 if none.
    pub checkpoint: u64,
    /// Upper bound of the scope, exclusive.
    pub upper: u64,
    /// Lower bound of the scope.
    pub lower: u64,
    /// Received parts, relative to `lower`.
    pub claims: Claims<'a>,
}

impl Report<'_> {
    /// Returns the received parts as offsets in the block: start and end, in order.
    pub fn received(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        let lower = self.lower;
        self.claims.iter().map(move |claim| {
            let start = lower + claim.offset;
            (start, start + claim.length)
        })
    }
}

impl<'a> Segment<'a> {
    /// Creates a segment without extensions.
    #[must_use]
    pub const fn new(session: SessionId, body: Body<'a>) -> Self {
        Self { session, header: Extensions::NONE, body, trailer: Extensions::NONE }
    }

    /// Decodes a segment that is all of `bytes`.
    ///
    /// # Errors
    /// The bytes are not a segment of version 0.
    pub fn decode(bytes: &'a [u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(bytes);
        let segment = Self::read(&mut reader)?;
        reader.finish()?;
        Ok(segment)
    }

    /// Length in bytes of the segment at the start of `bytes`. A datagram has one segment (RFC
    /// 5326 §3); a captured packet may hold several datagrams.
    ///
    /// # Errors
    /// The bytes do not start with a segment of version 0.
    pub fn len_of_first(bytes: &[u8]) -> Result<usize, DecodeError> {
        let mut reader = Reader::new(bytes);
        Segment::read(&mut reader)?;
        Ok(reader.offset())
    }

    fn read(reader: &mut Reader<'a>) -> Result<Self, DecodeError> {
        let control = reader.u8()?;
        if control >> 4 != 0 {
            let kind = DecodeErrorKind::Version(control >> 4);
            return Err(DecodeError { offset: 0, kind });
        }
        let originator = sdnv::read(reader)?;
        let number = sdnv::read(reader)?;
        let counts = reader.u8()?;
        let header = Extensions::read(reader, usize::from(counts >> 4), ())?;
        let body = Body::read(control & 0x0f, reader)?;
        let trailer = Extensions::read(reader, usize::from(counts & 0x0f), ())?;
        Ok(Self { session: SessionId { originator, number }, header, body, trailer })
    }

    /// Length on the wire, in bytes.
    #[must_use]
    pub fn encoded_len(&self) -> usize {
        let session = sdnv::len(self.session.originator) + sdnv::len(self.session.number);
        2 + session
            + self.header.encoded_len()
            + self.body.encoded_len()
            + self.trailer.encoded_len()
    }

    /// Writes the segment to exactly `out`.
    ///
    /// # Errors
    /// `out` has another length, or a field cannot be encoded.
    pub fn encode(&self, out: &mut [u8]) -> Result<(), EncodeError> {
        let mut writer = Writer::new(out);
        writer.u8(self.body.code())?;
        sdnv::write(&mut writer, self.session.originator)?;
        sdnv::write(&mut writer, self.session.number)?;
        writer.u8(header_count(&self.header)? << 4 | header_count(&self.trailer)?)?;
        self.header.write(&mut writer)?;
        self.body.write(&mut writer)?;
        self.trailer.write(&mut writer)?;
        writer.finish()
    }

    /// Encodes the segment into a vector.
    ///
    /// # Errors
    /// A field cannot be encoded.
    pub fn to_vec(&self) -> Result<Vec<u8>, EncodeError> {
        let mut out = vec![0; self.encoded_len()];
        self.encode(&mut out)?;
        Ok(out)
    }
}

impl<'a> Body<'a> {
    fn read(code: u8, reader: &mut Reader<'a>) -> Result<Self, DecodeError> {
        let data = |reader: &mut Reader<'a>, kind| Ok(Self::Data(Data::read(kind, reader)?));
        match code {
            0 => data(reader, DataKind::Red),
            1 => data(reader, DataKind::Checkpoint),
            2 => data(reader, DataKind::EndOfRedPart),
            3 => data(reader, DataKind::EndOfRedBlock),
            4 => data(reader, DataKind::Green),
            7 => data(reader, DataKind::EndOfGreenBlock),
            8 => Ok(Self::Report(Report::read(reader)?)),
            9 => Ok(Self::ReportAck { serial: sdnv::read(reader)? }),
            12 | 14 => {
                let by = if code == 12 { End::Sender } else { End::Receiver };
                Ok(Self::Cancel { by, reason: CancelReason::from_code(reader.u8()?) })
            }
            13 => Ok(Self::CancelAck { by: End::Sender }),
            15 => Ok(Self::CancelAck { by: End::Receiver }),
            _ => Err(DecodeError::invalid(0, "the segment type is undefined")),
        }
    }

    const fn code(&self) -> u8 {
        match self {
            Self::Data(data) => data.kind.code(),
            Self::Report(_) => 8,
            Self::ReportAck { .. } => 9,
            Self::Cancel { by: End::Sender, .. } => 12,
            Self::CancelAck { by: End::Sender } => 13,
            Self::Cancel { by: End::Receiver, .. } => 14,
            Self::CancelAck { by: End::Receiver } => 15,
        }
    }

    fn encoded_len(&self) -> usize {
        match self {
            Self::Data(data) => {
                let len = data.data.len() as u64;
                let none = SessionId::default();
                let head = Data::overhead(none, data.service, data.offset, len, data.checkpoint);
                // Without the header before the content.
                head - 4 + data.data.len()
            }
            Self::Report(report) => {
                sdnv::len(report.serial)
                    + sdnv::len(report.checkpoint)
                    + sdnv::len(report.upper)
                    + sdnv::len(report.lower)
                    + sdnv::len(report.claims.len() as u64)
                    + report.claims.encoded_len()
            }
            Self::ReportAck { serial } => sdnv::len(*serial),
            Self::Cancel { .. } => 1,
            Self::CancelAck { .. } => 0,
        }
    }

    fn write(&self, writer: &mut Writer<'_>) -> Result<(), EncodeError> {
        match self {
            Self::Data(data) => data.write(writer),
            Self::Report(report) => {
                for value in [report.serial, report.checkpoint, report.upper, report.lower] {
                    sdnv::write(writer, value)?;
                }
                sdnv::write(writer, report.claims.len() as u64)?;
                report.claims.write(writer)
            }
            Self::ReportAck { serial } => sdnv::write(writer, *serial),
            Self::Cancel { reason, .. } => writer.u8(reason.code()),
            Self::CancelAck { .. } => Ok(()),
        }
    }
}

impl<'a> Data<'a> {
    fn read(kind: DataKind, reader: &mut Reader<'a>) -> Result<Self, DecodeError> {
        let service = sdnv::read(reader)?;
        let offset = sdnv::read(reader)?;
        let at = reader.offset();
        let len = sdnv::read(reader)?;
        if offset.checked_add(len).is_none() {
            return Err(DecodeError::invalid(at, "the data ends beyond 2^64 bytes"));
        }
        let checkpoint = if kind.is_checkpoint() {
            let at = reader.offset();
            let serial = sdnv::read(reader)?;
            if serial == 0 {
                return Err(DecodeError::invalid(at, "a checkpoint's serial number is 0"));
            }
            Some(Checkpoint { serial, report: sdnv::read(reader)? })
        } else {
            None
        };
        let len = usize::try_from(len).unwrap_or(usize::MAX);
        Ok(Self { kind, service, offset, checkpoint, data: reader.take(len)? })
    }

    fn write(&self, writer: &mut Writer<'_>) -> Result<(), EncodeError> {
        sdnv::write(writer, self.service)?;
        sdnv::write(writer, self.offset)?;
        sdnv::write(writer, self.data.len() as u64)?;
        match (self.kind.is_checkpoint(), self.checkpoint) {
            (true, Some(Checkpoint { serial, report })) if serial > 0 => {
                sdnv::write(writer, serial)?;
                sdnv::write(writer, report)?;
            }
            (false, None) => {}
            _ => return Err(EncodeError::Conflict("a checkpoint has serial numbers above 0")),
        }
        writer.put(self.data)
    }
}

impl<'a> Report<'a> {
    fn read(reader: &mut Reader<'a>) -> Result<Self, DecodeError> {
        let at = reader.offset();
        let serial = sdnv::read(reader)?;
        if serial == 0 {
            return Err(DecodeError::invalid(at, "a report's serial number is 0"));
        }
        let checkpoint = sdnv::read(reader)?;
        let at = reader.offset();
        let upper = sdnv::read(reader)?;
        let lower = sdnv::read(reader)?;
        if lower > upper {
            return Err(DecodeError::invalid(at, "a report's bounds are the wrong way round"));
        }
        let claims = read_claims(reader, upper - lower)?;
        Ok(Self { serial, checkpoint, upper, lower, claims })
    }
}
