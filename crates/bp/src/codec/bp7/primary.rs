//! The primary block (RFC 9171 §4.3.1): endpoints and lifetime of a bundle.
//!
//! | item | field |
//! |---|---|
//! | number | version, 7 |
//! | number | bundle processing control flags |
//! | number | CRC type |
//! | endpoint | destination |
//! | endpoint | source node |
//! | endpoint | report-to |
//! | array of 2 | creation timestamp: time, sequence number |
//! | number | lifetime, milliseconds |
//! | number | of a fragment: its offset |
//! | number | of a fragment: bytes of the whole |
//! | byte string | CRC, if its type is not 0 |

use wire::cursor::Reader;
use wire::{DecodeError, DecodeErrorKind, EncodeError};

use super::crc::Check;
use super::{Bounds, BundleFlags, CrcType, Fragment, VERSION};
use crate::codec::bundle;
use crate::codec::cbor::{self, Array};
use crate::codec::eid::Eid;

/// Creation time of a bundle (§4.2.7).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CreationTimestamp {
    /// Milliseconds since 2000-01-01 00:00 UTC, without leap seconds; 0 if its node had no clock.
    pub time_ms: u64,
    /// Sequence number of bundles created at the same time.
    pub sequence: u64,
}

/// Identity of a bundle (§4.3.1). Two fragments that start at the same byte may also differ in
/// length.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BundleId {
    /// Source.
    pub source: Eid,
    /// Creation time.
    pub creation: CreationTimestamp,
    /// Offset of a fragment.
    pub offset: Option<u64>,
}

/// The primary block.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Primary {
    /// Flags.
    pub flags: BundleFlags,
    /// CRC type.
    pub crc: CrcType,
    /// Destination.
    pub destination: Eid,
    /// Node that created it; the null endpoint if anonymous.
    pub source: Eid,
    /// Endpoint that receives reports about the bundle.
    pub report_to: Eid,
    /// Creation time.
    pub creation: CreationTimestamp,
    /// Lifetime in milliseconds after the creation time.
    pub lifetime_ms: u64,
    /// Part of the whole payload, if it is a fragment.
    pub fragment: Option<Fragment>,
}

impl Primary {
    /// Encodes the block in its shortest form, with its CRC.
    ///
    /// # Errors
    /// Flags contradict the source or each other (§4.2.3), a fragment starts beyond its whole, or
    /// an endpoint cannot be encoded in this version.
    pub fn to_vec(&self) -> Result<Vec<u8>, EncodeError> {
        if let Some(conflict) = self.conflict() {
            return Err(EncodeError::Conflict(conflict));
        }
        let flags = Fragment::flags(self.fragment, self.flags);
        let mut out = Vec::with_capacity(64);
        let items = 8 + 2 * usize::from(self.fragment.is_some());
        cbor::put_array(&mut out, items + usize::from(self.crc != CrcType::None));
        cbor::put_uint(&mut out, u64::from(VERSION));
        cbor::put_uint(&mut out, flags.0);
        cbor::put_uint(&mut out, self.crc.code());
        for eid in [&self.destination, &self.source, &self.report_to] {
            eid.write(&mut out)?;
        }
        self.creation.write(&mut out);
        cbor::put_uint(&mut out, self.lifetime_ms);
        if let Some(fragment) = self.fragment {
            cbor::put_uint(&mut out, fragment.offset);
            cbor::put_uint(&mut out, fragment.total);
        }
        let mut check = Check::new(self.crc);
        check.update(&out);
        self.crc.write_value(check, &mut out, &[]);
        Ok(out)
    }

    /// Returns the rule of the specification that the block breaks, if any. The decoder still
    /// accepts such blocks.
    #[must_use]
    pub const fn conflict(&self) -> Option<&'static str> {
        let reports = self.flags.intersects(BundleFlags::REPORTS);
        if self.flags.contains(BundleFlags::ADMINISTRATIVE) && reports {
            return Some("an administrative record must not request reports");
        }
        if self.source.is_none() && reports {
            return Some("a bundle without source must not request reports");
        }
        bundle::conflict(self.flags, self.fragment, self.source.is_none())
    }

    pub(super) fn read(reader: &mut Reader<'_>, bounds: &Bounds) -> Result<Self, DecodeError> {
        let (offset, bytes) = (reader.offset(), reader.left());
        let mut array = Array::begin(reader)?;
        array.item(reader)?;
        let at = reader.offset();
        let version = cbor::uint(reader)?;
        if version != u64::from(VERSION) {
            let kind = DecodeErrorKind::Version(u8::try_from(version).unwrap_or(u8::MAX));
            return Err(DecodeError { offset: at, kind });
        }
        let flags = BundleFlags(array.uint(reader)?);
        let crc = array.read(reader, CrcType::read)?;
        let mut eid = || {
            array.item(reader)?;
            Eid::read(reader, bounds.eid_max)
        };
        let (destination, source, report_to) = (eid()?, eid()?, eid()?);
        let creation = array.read(reader, CreationTimestamp::read)?;
        let lifetime_ms = array.uint(reader)?;
        let fragment = if flags.contains(BundleFlags::FRAGMENT) {
            let offset = array.uint(reader)?;
            Some(Fragment { offset, total: array.uint(reader)? })
        } else {
            None
        };
        crc.read_end(reader, array, bytes, offset)?;
        Ok(Self { flags, crc, destination, source, report_to, creation, lifetime_ms, fragment })
    }
}

impl CreationTimestamp {
    pub(super) fn read(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let mut array = Array::begin(reader)?;
        let time_ms = array.uint(reader)?;
        let sequence = array.uint(reader)?;
        array.end(reader)?;
        Ok(Self { time_ms, sequence })
    }

    pub(super) fn write(self, out: &mut Vec<u8>) {
        cbor::put_array(out, 2);
        cbor::put_uint(out, self.time_ms);
        cbor::put_uint(out, self.sequence);
    }
}
