//! Administrative records (RFC 5050 §6.1): payloads that report on bundles and transfer custody.
//!
//! | bytes | field |
//! |---|---|
//! | 1 | type, 4 bits; 1 if the bundle is a fragment, 4 bits |
//! | 1 | status report: flags of the reported events |
//! | 1 | status report: reason; custody signal: 0x80 if it succeeded, and a reason |
//! | 2 SDNVs | of a fragment: its offset, bytes of its payload |
//! | 2 SDNVs each | times of the events: seconds, nanoseconds; of a custody signal one |
//! | 2 SDNVs | the bundle's creation time and sequence number |
//! | SDNV, … | the bundle's source, as text with its length |
//!
//! An aggregate custody signal (CCSDS 734.2-B) has, behind the type and a byte as in a custody
//! signal, pairs of SDNVs: runs of the numbers in the bundles' custody enhancement blocks. Its
//! layout here is the one Wireshark's dissector reads.

use wire::cursor::Reader;
use wire::named_codes;
use wire::sdnv;
use wire::{DecodeError, EncodeError};

use super::{Bounds, CreationTimestamp, whole};
use crate::codec::eid::Eid;

const STATUS_REPORT: u8 = 1;
const CUSTODY_SIGNAL: u8 = 2;
const AGGREGATE_CUSTODY_SIGNAL: u8 = 4;
const FOR_FRAGMENT: u8 = 1;
const SUCCEEDED: u8 = 0x80;

/// An administrative record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AdministrativeRecord {
    /// Type 1: status of a bundle.
    StatusReport(StatusReport),
    /// Type 2: acceptance or refusal of custody of a bundle.
    CustodySignal(CustodySignal),
    /// Type 4: acceptance or refusal of custody of several bundles.
    AggregateCustodySignal(AggregateCustodySignal),
    /// A record of another type.
    Other {
        /// The first byte: type and flags.
        first: u8,
        /// Remaining bytes.
        content: Box<[u8]>,
    },
}

/// Bundle that a record is about.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Subject {
    /// Source of the bundle.
    pub source: Eid,
    /// Creation time.
    pub creation: CreationTimestamp,
    /// Offset and payload length in bytes of a fragment.
    pub fragment: Option<(u64, u64)>,
}

/// Time (§6.1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct DtnTime {
    /// Seconds since 2000-01-01 00:00 UTC.
    pub seconds: u64,
    /// Nanoseconds within the second.
    pub nanoseconds: u64,
}

/// Status of a bundle (§6.1.1).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StatusReport {
    /// The bundle.
    pub subject: Subject,
    /// Time of reception.
    pub received: Option<DtnTime>,
    /// Time at which custody was accepted.
    pub custody: Option<DtnTime>,
    /// Time of forwarding.
    pub forwarded: Option<DtnTime>,
    /// Time of delivery.
    pub delivered: Option<DtnTime>,
    /// Time of deletion.
    pub deleted: Option<DtnTime>,
    /// Reason.
    pub reason: Reason,
}

/// Acceptance or refusal of custody of a bundle (§6.1.2).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CustodySignal {
    /// The bundle.
    pub subject: Subject,
    /// Whether custody was accepted.
    pub succeeded: bool,
    /// Reason for a refusal.
    pub reason: CustodyReason,
    /// Time of the decision.
    pub time: DtnTime,
}

/// Acceptance or refusal of custody of several bundles.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AggregateCustodySignal {
    /// Whether custody was accepted.
    pub succeeded: bool,
    /// Reason for a refusal.
    pub reason: CustodyReason,
    /// Custody numbers of the bundles.
    pub fills: Vec<Fill>,
}

/// A run of custody numbers, in its wire form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fill {
    /// Start: the number for the first fill, for others the distance from the last number of the
    /// previous fill.
    pub start: u64,
    /// Number of custody numbers.
    pub length: u64,
}

named_codes! {
    /// Reason for an event (§6.1.1).
    Reason(u8, "reason {}") {
        /// 0.
        NoInformation = 0, "no additional information";
        /// 1.
        LifetimeExpired = 1, "lifetime expired";
        /// 2.
        UnidirectionalLink = 2, "forwarded over a unidirectional link";
        /// 3.
        TransmissionCanceled = 3, "transmission canceled";
        /// 4.
        DepletedStorage = 4, "depleted storage";
        /// 5.
        DestinationUnintelligible = 5, "destination endpoint unintelligible";
        /// 6.
        NoRoute = 6, "no known route to the destination";
        /// 7.
        NoTimelyContact = 7, "no timely contact with the next node";
        /// 8.
        BlockUnintelligible = 8, "block unintelligible";
    }
}

named_codes! {
    /// Reason why custody was refused, 0 to 127 (§6.1.2).
    CustodyReason(u8, "reason {}") {
        /// 0.
        NoInformation = 0, "no additional information";
        /// 3: the node already has the bundle.
        RedundantReception = 3, "redundant reception";
        /// 4.
        DepletedStorage = 4, "depleted storage";
        /// 5.
        DestinationUnintelligible = 5, "destination endpoint unintelligible";
        /// 6.
        NoRoute = 6, "no known route to the destination";
        /// 7.
        NoTimelyContact = 7, "no timely contact with the next node";
        /// 8.
        BlockUnintelligible = 8, "block unintelligible";
    }
}

impl AdministrativeRecord {
    /// Decodes a record, which must be the whole payload.
    ///
    /// # Errors
    /// The bytes are not a record of their type, or exceed a bound.
    pub fn decode(payload: &[u8], bounds: &Bounds) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(payload);
        let first = reader.u8()?;
        let is_fragment = first & FOR_FRAGMENT != 0;
        let record = match first >> 4 {
            STATUS_REPORT => {
                Self::StatusReport(StatusReport::read(&mut reader, is_fragment, bounds)?)
            }
            CUSTODY_SIGNAL => {
                Self::CustodySignal(CustodySignal::read(&mut reader, is_fragment, bounds)?)
            }
            AGGREGATE_CUSTODY_SIGNAL => {
                Self::AggregateCustodySignal(AggregateCustodySignal::read(&mut reader, bounds)?)
            }
            _ => Self::Other { first, content: reader.rest().into() },
        };
        reader.finish()?;
        Ok(record)
    }

    /// Encodes the record.
    ///
    /// # Errors
    /// A source has no text, or a reason does not fit.
    pub fn to_vec(&self) -> Result<Vec<u8>, EncodeError> {
        match self {
            Self::StatusReport(report) => report.to_vec(),
            Self::CustodySignal(signal) => signal.to_vec(),
            Self::AggregateCustodySignal(signal) => {
                let first = AGGREGATE_CUSTODY_SIGNAL << 4;
                let mut out = vec![first, custody_byte(signal.succeeded, signal.reason)?];
                for fill in &signal.fills {
                    sdnv::append(&mut out, fill.start);
                    sdnv::append(&mut out, fill.length);
                }
                Ok(out)
            }
            Self::Other { first, content } => Ok([&[*first], &content[..]].concat()),
        }
    }
}

impl Subject {
    const fn first(&self, kind: u8) -> u8 {
        kind << 4 | if self.fragment.is_some() { FOR_FRAGMENT } else { 0 }
    }

    fn read_fragment(
        reader: &mut Reader<'_>,
        is_fragment: bool,
    ) -> Result<Option<(u64, u64)>, DecodeError> {
        if !is_fragment {
            return Ok(None);
        }
        Ok(Some((sdnv::read(reader)?, sdnv::read(reader)?)))
    }

    fn write_fragment(&self, out: &mut Vec<u8>) {
        if let Some((offset, len)) = self.fragment {
            sdnv::append(out, offset);
            sdnv::append(out, len);
        }
    }

    fn read(
        reader: &mut Reader<'_>,
        fragment: Option<(u64, u64)>,
        bounds: &Bounds,
    ) -> Result<Self, DecodeError> {
        let creation = CreationTimestamp::read(reader)?;
        let at = reader.offset();
        let len = sdnv::read(reader)?;
        if len > bounds.eid_max as u64 {
            return Err(DecodeError::invalid(at, "an endpoint is longer than the bound"));
        }
        let at = reader.offset();
        let text = str::from_utf8(reader.take(len as usize)?).ok();
        let source = text.and_then(|text| text.parse().ok());
        let source = source.ok_or(DecodeError::invalid(at, "the source is not an endpoint"))?;
        Ok(Self { source, creation, fragment })
    }

    fn write(&self, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        self.creation.write(out);
        let text = self.source.to_text()?;
        sdnv::append(out, text.len() as u64);
        out.extend_from_slice(text.as_bytes());
        Ok(())
    }
}

impl DtnTime {
    fn read(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(Self { seconds: sdnv::read(reader)?, nanoseconds: sdnv::read(reader)? })
    }

    fn write(self, out: &mut Vec<u8>) {
        sdnv::append(out, self.seconds);
        sdnv::append(out, self.nanoseconds);
    }
}

impl StatusReport {
    fn read(
        reader: &mut Reader<'_>,
        is_fragment: bool,
        bounds: &Bounds,
    ) -> Result<Self, DecodeError> {
        let flags = reader.u8()?;
        let reason = Reason::from_code(reader.u8()?);
        let fragment = Subject::read_fragment(reader, is_fragment)?;
        let mut times = [None; 5];
        for (bit, time) in times.iter_mut().enumerate() {
            if flags & 1 << bit != 0 {
                *time = Some(DtnTime::read(reader)?);
            }
        }
        let [received, custody, forwarded, delivered, deleted] = times;
        let subject = Subject::read(reader, fragment, bounds)?;
        Ok(Self { subject, received, custody, forwarded, delivered, deleted, reason })
    }

    fn to_vec(&self) -> Result<Vec<u8>, EncodeError> {
        let times = [self.received, self.custody, self.forwarded, self.delivered, self.deleted];
        let bit = |(bit, time): (usize, &Option<DtnTime>)| u8::from(time.is_some()) << bit;
        let flags = times.iter().enumerate().map(bit).sum();
        let mut out = vec![self.subject.first(STATUS_REPORT), flags, self.reason.code()];
        self.subject.write_fragment(&mut out);
        times.into_iter().flatten().for_each(|time| time.write(&mut out));
        self.subject.write(&mut out)?;
        Ok(out)
    }
}

impl CustodySignal {
    fn read(
        reader: &mut Reader<'_>,
        is_fragment: bool,
        bounds: &Bounds,
    ) -> Result<Self, DecodeError> {
        let byte = reader.u8()?;
        let fragment = Subject::read_fragment(reader, is_fragment)?;
        let time = DtnTime::read(reader)?;
        let subject = Subject::read(reader, fragment, bounds)?;
        let reason = CustodyReason::from_code(byte & !SUCCEEDED);
        Ok(Self { subject, succeeded: byte & SUCCEEDED != 0, reason, time })
    }

    fn to_vec(&self) -> Result<Vec<u8>, EncodeError> {
        let byte = custody_byte(self.succeeded, self.reason)?;
        let mut out = vec![self.subject.first(CUSTODY_SIGNAL), byte];
        self.subject.write_fragment(&mut out);
        self.time.write(&mut out);
        self.subject.write(&mut out)?;
        Ok(out)
    }
}

impl AggregateCustodySignal {
    fn read(reader: &mut Reader<'_>, bounds: &Bounds) -> Result<Self, DecodeError> {
        let byte = reader.u8()?;
        let mut fills = Vec::new();
        while !reader.is_empty() {
            if fills.len() >= bounds.fills_max {
                let what = "a custody signal has more fills than the bound";
                return Err(DecodeError::invalid(reader.offset(), what));
            }
            let (start, length) = (sdnv::read(reader)?, whole(sdnv::read(reader))?);
            fills.push(Fill { start, length });
        }
        let reason = CustodyReason::from_code(byte & !SUCCEEDED);
        Ok(Self { succeeded: byte & SUCCEEDED != 0, reason, fills })
    }
}

fn custody_byte(succeeded: bool, reason: CustodyReason) -> Result<u8, EncodeError> {
    let reason = reason.code();
    if reason & SUCCEEDED != 0 {
        return Err(EncodeError::TooLarge { field: "the reason of a custody signal" });
    }
    Ok(reason | if succeeded { SUCCEEDED } else { 0 })
}
