//! Administrative records (RFC 9171 §6.1): payloads that report on bundles.
//!
//! A record is an array of its type and its content. The content of a status report, type 1, is an
//! array:
//!
//! | item | field |
//! |---|---|
//! | array of 4 or more | received, forwarded, delivered, deleted: each an array of a boolean |
//! | | and maybe a time |
//! | number | reason |
//! | endpoint | source node of the reported bundle |
//! | array of 2 | its creation timestamp |
//! | number | if it was a fragment: its offset |
//! | number | if it was a fragment: bytes of its payload |

use wire::cursor::Reader;
use wire::{DecodeError, EncodeError};

use super::{Bounds, CreationTimestamp};
use crate::codec::cbor::{self, Array};
use crate::codec::eid::Eid;

const STATUS_REPORT: u64 = 1;

/// An administrative record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AdministrativeRecord {
    /// Status of a bundle.
    StatusReport(StatusReport),
    /// A record of another type.
    Other {
        /// The type.
        kind: u64,
        /// Content, one item of CBOR.
        content: Box<[u8]>,
    },
}

/// Status of a bundle.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StatusReport {
    /// Reception.
    pub received: Status,
    /// Forwarding.
    pub forwarded: Status,
    /// Delivery.
    pub delivered: Status,
    /// Deletion.
    pub deleted: Status,
    /// Reason.
    pub reason: Reason,
    /// Source of the bundle.
    pub source: Eid,
    /// Creation time of the bundle.
    pub creation: CreationTimestamp,
    /// Offset and payload length in bytes of a fragment.
    pub fragment: Option<(u64, u64)>,
}

/// Status of one event.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Status {
    /// The event is not asserted.
    #[default]
    NotAsserted,
    /// The event is asserted.
    Asserted,
    /// The event is asserted, at this time: milliseconds since 2000-01-01.
    At(u64),
}

impl Status {
    /// Whether the event is asserted.
    #[must_use]
    pub const fn is_asserted(self) -> bool {
        match self {
            Self::NotAsserted => false,
            Self::Asserted | Self::At(_) => true,
        }
    }

    fn read(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let mut array = Array::begin(reader)?;
        array.item(reader)?;
        let asserted = cbor::boolean(reader)?;
        let mut time = None;
        if array.more(reader)? {
            time = Some(cbor::uint(reader)?);
            array.end(reader)?;
        }
        Ok(match (asserted, time) {
            (true, Some(time)) => Self::At(time),
            (true, None) => Self::Asserted,
            (false, _) => Self::NotAsserted,
        })
    }

    fn write(self, out: &mut Vec<u8>) {
        cbor::put_array(out, if matches!(self, Self::At(_)) { 2 } else { 1 });
        cbor::put_boolean(out, self.is_asserted());
        if let Self::At(time) = self {
            cbor::put_uint(out, time);
        }
    }
}

/// Reason for an event (RFC 9171 §6.1.1, RFC 9172 §7.1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reason {
    /// 0.
    #[default]
    NoInformation,
    /// 1.
    LifetimeExpired,
    /// 2.
    UnidirectionalLink,
    /// 3.
    TransmissionCanceled,
    /// 4.
    DepletedStorage,
    /// 5: the destination's endpoint is unavailable.
    DestinationUnavailable,
    /// 6.
    NoRoute,
    /// 7.
    NoTimelyContact,
    /// 8.
    BlockUnintelligible,
    /// 9.
    HopLimitExceeded,
    /// 10.
    TrafficPared,
    /// 11.
    BlockUnsupported,
    /// 12.
    MissingSecurity,
    /// 13.
    UnknownSecurity,
    /// 14.
    UnexpectedSecurity,
    /// 15.
    FailedSecurity,
    /// 16.
    ConflictingSecurity,
    /// A code without a name.
    Other(u64),
}

impl Reason {
    const NAMED: [Self; 17] = [
        Self::NoInformation,
        Self::LifetimeExpired,
        Self::UnidirectionalLink,
        Self::TransmissionCanceled,
        Self::DepletedStorage,
        Self::DestinationUnavailable,
        Self::NoRoute,
        Self::NoTimelyContact,
        Self::BlockUnintelligible,
        Self::HopLimitExceeded,
        Self::TrafficPared,
        Self::BlockUnsupported,
        Self::MissingSecurity,
        Self::UnknownSecurity,
        Self::UnexpectedSecurity,
        Self::FailedSecurity,
        Self::ConflictingSecurity,
    ];

    /// Returns the reason with this code.
    #[must_use]
    pub fn from_code(code: u64) -> Self {
        let place = usize::try_from(code).ok();
        place.and_then(|place| Self::NAMED.get(place).copied()).unwrap_or(Self::Other(code))
    }

    /// Returns the code on the wire.
    #[must_use]
    pub fn code(self) -> u64 {
        match self {
            Self::Other(code) => code,
            named => Self::NAMED.iter().position(|reason| *reason == named).unwrap_or(0) as u64,
        }
    }
}

impl AdministrativeRecord {
    /// Decodes a record, which must be the whole payload.
    ///
    /// # Errors
    /// The bytes are not a record, or not a status report although their type is 1.
    pub fn decode(payload: &[u8], bounds: &Bounds) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(payload);
        let mut array = Array::begin(&mut reader)?;
        array.item(&mut reader)?;
        let kind = cbor::uint(&mut reader)?;
        array.item(&mut reader)?;
        let record = match kind {
            STATUS_REPORT => Self::StatusReport(StatusReport::read(&mut reader, bounds)?),
            kind => Self::Other { kind, content: cbor::item(&mut reader)?.into() },
        };
        array.end(&mut reader)?;
        reader.finish()?;
        Ok(record)
    }

    /// Encodes the record.
    ///
    /// # Errors
    /// The source cannot be encoded in this version.
    pub fn to_vec(&self) -> Result<Vec<u8>, EncodeError> {
        let mut out = Vec::new();
        cbor::put_array(&mut out, 2);
        match self {
            Self::StatusReport(report) => {
                cbor::put_uint(&mut out, STATUS_REPORT);
                report.write(&mut out)?;
            }
            Self::Other { kind, content } => {
                cbor::put_uint(&mut out, *kind);
                out.extend_from_slice(content);
            }
        }
        Ok(out)
    }
}

impl StatusReport {
    fn read(reader: &mut Reader<'_>, bounds: &Bounds) -> Result<Self, DecodeError> {
        let mut array = Array::begin(reader)?;
        array.item(reader)?;
        let mut statuses = [Status::NotAsserted; 4];
        let mut list = Array::begin(reader)?;
        for status in &mut statuses {
            list.item(reader)?;
            *status = Status::read(reader)?;
        }
        // Skips unknown further items.
        while list.more(reader)? {
            cbor::item(reader)?;
        }
        let [received, forwarded, delivered, deleted] = statuses;
        array.item(reader)?;
        let reason = Reason::from_code(cbor::uint(reader)?);
        array.item(reader)?;
        let source = Eid::read(reader, bounds.eid_max)?;
        array.item(reader)?;
        let creation = CreationTimestamp::read(reader)?;
        let mut fragment = None;
        if array.more(reader)? {
            let offset = cbor::uint(reader)?;
            array.item(reader)?;
            fragment = Some((offset, cbor::uint(reader)?));
            array.end(reader)?;
        }
        Ok(Self { received, forwarded, delivered, deleted, reason, source, creation, fragment })
    }

    fn write(&self, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        cbor::put_array(out, if self.fragment.is_some() { 6 } else { 4 });
        cbor::put_array(out, 4);
        for status in [self.received, self.forwarded, self.delivered, self.deleted] {
            status.write(out);
        }
        cbor::put_uint(out, self.reason.code());
        self.source.write(out)?;
        self.creation.write(out);
        if let Some((offset, len)) = self.fragment {
            cbor::put_uint(out, offset);
            cbor::put_uint(out, len);
        }
        Ok(())
    }
}
