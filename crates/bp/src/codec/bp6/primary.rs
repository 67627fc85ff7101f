//! The primary block (RFC 5050 §4.5.1): endpoints, custodian and lifetime of a bundle.
//!
//! | bytes | field |
//! |---|---|
//! | 1 | version, 6 |
//! | SDNV | bundle processing control flags |
//! | SDNV | bytes of the block behind this field |
//! | 8 SDNVs | destination, source, report-to, custodian: each two offsets in the |
//! | | dictionary, or node and service |
//! | SDNV | creation time, seconds since 2000-01-01 |
//! | SDNV | creation sequence number |
//! | SDNV | lifetime, seconds |
//! | SDNV | bytes of the dictionary; 0 if endpoints are numbers (RFC 6260) |
//! | … | dictionary: texts, each terminated by a 0 |
//! | 2 SDNVs | of a fragment: its offset, bytes of the whole |

use wire::cursor::Reader;
use wire::sdnv;
use wire::{DecodeError, DecodeErrorKind, EncodeError};

use super::{Bounds, BundleFlags, Fragment, Reference, VERSION, whole};
use crate::codec::bp7;
use crate::codec::bundle;
use crate::codec::eid::Eid;

impl BundleFlags {
    /// The bits of the priority.
    const PRIORITY: Self = Self(0x180);

    /// Returns the priority.
    #[must_use]
    pub const fn priority(self) -> Priority {
        match (self.0 & Self::PRIORITY.0) >> 7 {
            0 => Priority::Bulk,
            1 => Priority::Normal,
            2 => Priority::Expedited,
            _ => Priority::Reserved,
        }
    }

    /// Returns the flags with another priority.
    #[must_use]
    pub const fn with_priority(self, priority: Priority) -> Self {
        Self(self.without(Self::PRIORITY).0 | (priority as u64) << 7)
    }
}

/// Priority of a bundle among the bundles of its source.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Priority {
    /// 0.
    Bulk,
    /// 1.
    Normal,
    /// 2.
    Expedited,
    /// 3, reserved.
    Reserved,
}

/// Creation time of a bundle.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CreationTimestamp {
    /// Seconds since 2000-01-01 00:00 UTC.
    pub time_s: u64,
    /// Sequence number of bundles created in the same second.
    pub sequence: u64,
}

/// The primary block.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Primary {
    /// Flags.
    pub flags: BundleFlags,
    /// Destination.
    pub destination: Eid,
    /// Source.
    pub source: Eid,
    /// Endpoint that receives reports about the bundle.
    pub report_to: Eid,
    /// Current custodian.
    pub custodian: Eid,
    /// Creation time.
    pub creation: CreationTimestamp,
    /// Lifetime in seconds after the creation time.
    pub lifetime_s: u64,
    /// Dictionary that blocks refer to, which may be empty until the block is encoded; `None` if
    /// endpoints are numbers.
    pub dictionary: Option<Box<[u8]>>,
    /// Part of the whole payload, if it is a fragment.
    pub fragment: Option<Fragment>,
}

/// Bytes of a primary block, and the dictionary in them.
pub(super) type Encoded = (Vec<u8>, Option<Box<[u8]>>);

impl Primary {
    /// Returns the rule of the specification that the block breaks, if any (§4.2). The decoder
    /// still accepts such blocks.
    #[must_use]
    pub const fn conflict(&self) -> Option<&'static str> {
        let flags = self.flags;
        let requests = flags.intersects(BundleFlags::REPORTS_AND_CUSTODY);
        if flags.contains(BundleFlags::ADMINISTRATIVE) && requests {
            return Some("an administrative record must not request custody or reports");
        }
        if self.source.is_none() && requests {
            return Some("a bundle without source must not request custody or reports");
        }
        bundle::conflict(flags, self.fragment, self.source.is_none())
    }

    /// Returns the endpoint that a block refers to.
    ///
    /// # Errors
    /// The offset is outside the dictionary, or its text is not an endpoint; the error's offset is
    /// this one.
    pub fn resolve(&self, reference: Reference) -> Result<Eid, DecodeError> {
        resolve(self.dictionary.as_deref(), reference, usize::MAX)
    }

    /// Encodes the block with numbers in their shortest form. The dictionary starts with the
    /// current one.
    ///
    /// # Errors
    /// Flags contradict the source or each other, a fragment starts beyond its whole, or an
    /// endpoint cannot be encoded.
    pub fn to_vec(&self) -> Result<Vec<u8>, EncodeError> {
        self.encode().map(|(bytes, _)| bytes)
    }

    /// Encodes the block; also returns its dictionary.
    pub(super) fn encode(&self) -> Result<Encoded, EncodeError> {
        if let Some(conflict) = self.conflict() {
            return Err(EncodeError::Conflict(conflict));
        }
        let flags = Fragment::flags(self.fragment, self.flags);
        let mut dictionary = self.dictionary.as_deref().map(<[u8]>::to_vec);
        let mut inner = Vec::with_capacity(64);
        for eid in [&self.destination, &self.source, &self.report_to, &self.custodian] {
            let reference = match &mut dictionary {
                Some(dictionary) => refer(dictionary, eid)?,
                None => numbers(eid)?,
            };
            sdnv::append(&mut inner, reference.scheme);
            sdnv::append(&mut inner, reference.part);
        }
        let texts = dictionary.as_deref().unwrap_or_default();
        let CreationTimestamp { time_s, sequence } = self.creation;
        for value in [time_s, sequence, self.lifetime_s, texts.len() as u64] {
            sdnv::append(&mut inner, value);
        }
        inner.extend_from_slice(texts);
        if let Some(Fragment { offset, total }) = self.fragment {
            sdnv::append(&mut inner, offset);
            sdnv::append(&mut inner, total);
        }
        let mut out = vec![VERSION];
        sdnv::append(&mut out, flags.0);
        sdnv::append(&mut out, inner.len() as u64);
        out.extend(inner);
        Ok((out, dictionary.map(Into::into)))
    }

    pub(super) fn read(reader: &mut Reader<'_>, bounds: &Bounds) -> Result<Self, DecodeError> {
        let at = reader.offset();
        let version = reader.u8()?;
        if version != VERSION {
            return Err(DecodeError { offset: at, kind: DecodeErrorKind::Version(version) });
        }
        let flags = BundleFlags(sdnv::read(reader)?);
        let len = usize::try_from(sdnv::read(reader)?).unwrap_or(usize::MAX);
        let mut inner = reader.part(len)?;
        whole(Self::read_inner(&mut inner, flags, bounds))
    }

    fn read_inner(
        reader: &mut Reader<'_>,
        flags: BundleFlags,
        bounds: &Bounds,
    ) -> Result<Self, DecodeError> {
        let mut references = [(Reference { scheme: 0, part: 0 }, 0); 4];
        for (reference, at) in &mut references {
            *at = reader.offset();
            *reference = Reference::read(reader)?;
        }
        let creation = CreationTimestamp::read(reader)?;
        let lifetime_s = sdnv::read(reader)?;
        let len = usize::try_from(sdnv::read(reader)?).unwrap_or(usize::MAX);
        let bytes = reader.take(len)?;
        let dictionary = (len > 0).then_some(bytes);
        let eid = |(reference, offset): (Reference, usize)| {
            resolve(dictionary, reference, bounds.eid_max)
                .map_err(|error| DecodeError { offset, ..error })
        };
        let [destination, source, report_to, custodian] = references.map(eid);
        let fragment = if flags.contains(BundleFlags::FRAGMENT) {
            Some(Fragment { offset: sdnv::read(reader)?, total: sdnv::read(reader)? })
        } else {
            None
        };
        reader.finish()?;
        Ok(Self {
            flags,
            destination: destination?,
            source: source?,
            report_to: report_to?,
            custodian: custodian?,
            creation,
            lifetime_s,
            dictionary: dictionary.map(Into::into),
            fragment,
        })
    }
}

impl From<CreationTimestamp> for bp7::CreationTimestamp {
    fn from(CreationTimestamp { time_s, sequence }: CreationTimestamp) -> Self {
        Self { time_ms: time_s.saturating_mul(1000), sequence }
    }
}

impl From<bp7::CreationTimestamp> for CreationTimestamp {
    fn from(bp7::CreationTimestamp { time_ms, sequence }: bp7::CreationTimestamp) -> Self {
        Self { time_s: time_ms / 1000, sequence }
    }
}

impl CreationTimestamp {
    pub(super) fn read(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(Self { time_s: sdnv::read(reader)?, sequence: sdnv::read(reader)? })
    }

    pub(super) fn write(self, out: &mut Vec<u8>) {
        sdnv::append(out, self.time_s);
        sdnv::append(out, self.sequence);
    }
}

/// Returns node and service of an endpoint (RFC 6260 §2.2).
fn numbers(eid: &Eid) -> Result<Reference, EncodeError> {
    match *eid {
        Eid::None => Ok(Reference { scheme: 0, part: 0 }),
        Eid::Ipn { node, service } => Ok(Reference { scheme: node, part: service }),
        Eid::Dtn(_) | Eid::Uri(_) | Eid::Unknown { .. } => {
            Err(EncodeError::Conflict("only ipn endpoints do without a dictionary"))
        }
    }
}

/// Returns the reference of an endpoint in a dictionary; adds the endpoint if it is missing.
fn refer(dictionary: &mut Vec<u8>, eid: &Eid) -> Result<Reference, EncodeError> {
    let text = eid.to_text()?;
    let (scheme, part) = text.split_once(':').unwrap_or((&text, ""));
    let mut place = |text: &str| {
        let entry = [text.as_bytes(), &[0]].concat();
        let found = dictionary.windows(entry.len()).position(|window| window == entry);
        found.unwrap_or_else(|| {
            dictionary.extend(entry);
            dictionary.len() - text.len() - 1
        }) as u64
    };
    Ok(Reference { scheme: place(scheme), part: place(part) })
}

fn resolve(
    dictionary: Option<&[u8]>,
    Reference { scheme, part }: Reference,
    max: usize,
) -> Result<Eid, DecodeError> {
    let Some(dictionary) = dictionary else { return Ok(Eid::from_numbers(scheme, part)) };
    let text = |place: u64| {
        let place = usize::try_from(place).ok()?;
        let entry = dictionary.get(place..)?;
        let end = entry.iter().position(|byte| *byte == 0)?;
        str::from_utf8(&entry[..end]).ok()
    };
    let wrong = |what| DecodeError::invalid(usize::try_from(scheme).unwrap_or(usize::MAX), what);
    let (Some(scheme), Some(part)) = (text(scheme), text(part)) else {
        return Err(wrong("an endpoint is not in the dictionary"));
    };
    if scheme.len() + part.len() + 1 > max {
        return Err(wrong("an endpoint is longer than the bound"));
    }
    format!("{scheme}:{part}").parse().map_err(|_| wrong("the dictionary has no endpoint there"))
}
