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
use wire::named_codes;
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
        !matches!(self, Self::NotAsserted)
    }

    fn read(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let mut array = Array::begin(reader)?;
        let asserted = array.read(reader, cbor::boolean)?;
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

named_codes! {
    /// Reason for an event (RFC 9171 §6.1.1, RFC 9172 §7.1).
    #[derive(Default)]
    Reason(u64, "reason {}") {
        /// 0.
        #[default]
        NoInformation = 0, "no additional information";
        /// 1.
        LifetimeExpired = 1, "lifetime expired";
        /// 2.
        UnidirectionalLink = 2, "forwarded over a unidirectional link";
        /// 3.
        TransmissionCanceled = 3, "transmission canceled";
        /// 4.
        DepletedStorage = 4, "depleted storage";
        /// 5: the destination's endpoint is unavailable.
        DestinationUnavailable = 5, "destination endpoint unavailable";
        /// 6.
        NoRoute = 6, "no known route to the destination";
        /// 7.
        NoTimelyContact = 7, "no timely contact with the next node";
        /// 8.
        BlockUnintelligible = 8, "block unintelligible";
        /// 9.
        HopLimitExceeded = 9, "hop limit exceeded";
        /// 10.
        TrafficPared = 10, "traffic pared";
        /// 11.
        BlockUnsupported = 11, "block unsupported";
        /// 12.
        MissingSecurity = 12, "missing security operation";
        /// 13.
        UnknownSecurity = 13, "unknown security operation";
        /// 14.
        UnexpectedSecurity = 14, "unexpected security operation";
        /// 15.
        FailedSecurity = 15, "failed security operation";
        /// 16.
        ConflictingSecurity = 16, "conflicting security operation";
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
        let kind = array.uint(&mut reader)?;
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
            *status = list.read(reader, Status::read)?;
        }
        // Skips unknown further items.
        while list.more(reader)? {
            cbor::item(reader)?;
        }
        let [received, forwarded, delivered, deleted] = statuses;
        let reason = Reason::from_code(array.uint(reader)?);
        array.item(reader)?;
        let source = Eid::read(reader, bounds.eid_max)?;
        let creation = array.read(reader, CreationTimestamp::read)?;
        let mut fragment = None;
        if array.more(reader)? {
            let offset = cbor::uint(reader)?;
            fragment = Some((offset, array.uint(reader)?));
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
