//! The primary block (RFC 5050 §4.5.1): who sends what to whom, who has custody, and for how long.
//!
//! | bytes | field |
//! |---|---|
//! | 1 | version, 6 |
//! | SDNV | bundle processing control flags |
//! | SDNV | bytes of the block behind this field |
//! | 8 SDNVs | scheme and rest of destination, source, report-to and custodian: places in the dictionary, or node and service |
//! | SDNV | creation time, seconds since the beginning of 2000 |
//! | SDNV | creation sequence number |
//! | SDNV | lifetime, seconds |
//! | SDNV | bytes of the dictionary; 0 if endpoints are numbers (RFC 6260) |
//! | … | dictionary: texts, each with a 0 behind |
//! | 2 SDNVs | of a fragment: its offset, bytes of the whole |

use super::{Bounds, Reference, VERSION, whole};
use crate::codes::flags;
use crate::cursor::Reader;
use crate::eid::Eid;
use crate::ltp::sdnv;
use crate::{DecodeError, DecodeErrorKind, EncodeError};

/// Bundle processing control flags (§4.2). Those that nobody knows are kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BundleFlags(pub u64);

flags!(BundleFlags);

impl BundleFlags {
    /// The bundle is a fragment. Set and cleared as [`Primary::fragment`] says.
    pub const FRAGMENT: Self = Self(0x1);
    /// The payload is an administrative record.
    pub const ADMINISTRATIVE: Self = Self(0x2);
    /// The bundle must not be fragmented.
    pub const MUST_NOT_FRAGMENT: Self = Self(0x4);
    /// Custody is asked for.
    pub const CUSTODY: Self = Self(0x8);
    /// One node at most is behind the destination.
    pub const SINGLETON: Self = Self(0x10);
    /// The application is asked for an acknowledgment.
    pub const ACKNOWLEDGE: Self = Self(0x20);
    /// A report of reception is asked for.
    pub const REPORT_RECEPTION: Self = Self(0x4000);
    /// A report of custody is asked for.
    pub const REPORT_CUSTODY: Self = Self(0x8000);
    /// A report of forwarding is asked for.
    pub const REPORT_FORWARDING: Self = Self(0x1_0000);
    /// A report of delivery is asked for.
    pub const REPORT_DELIVERY: Self = Self(0x2_0000);
    /// A report of deletion is asked for.
    pub const REPORT_DELETION: Self = Self(0x4_0000);
    /// All reports.
    pub const REPORTS: Self = Self(0x7_c000);
    /// The bits of the priority.
    const PRIORITY: Self = Self(0x180);

    /// The priority.
    #[must_use]
    pub const fn priority(self) -> Priority {
        match (self.0 & Self::PRIORITY.0) >> 7 {
            0 => Priority::Bulk,
            1 => Priority::Normal,
            2 => Priority::Expedited,
            _ => Priority::Reserved,
        }
    }

    /// With another priority.
    #[must_use]
    pub const fn with_priority(self, priority: Priority) -> Self {
        let bits = match priority {
            Priority::Bulk => 0,
            Priority::Normal => 1,
            Priority::Expedited => 2,
            Priority::Reserved => 3,
        };
        Self(self.without(Self::PRIORITY).0 | bits << 7)
    }
}

/// How urgent a bundle is among those of its source.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Priority {
    /// 0.
    Bulk,
    /// 1.
    Normal,
    /// 2.
    Expedited,
    /// 3, which has no meaning yet.
    Reserved,
}

/// When a bundle was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CreationTimestamp {
    /// Seconds since the beginning of 2000, UTC.
    pub time_s: u64,
    /// Tells apart what was made in the same second.
    pub sequence: u64,
}

/// Which part of the whole a fragment's payload is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Fragment {
    /// Where it begins.
    pub offset: u64,
    /// Bytes of the whole.
    pub total: u64,
}

/// What tells a bundle from all others. Two fragments that begin at the same byte may differ in their lengths, too.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BundleId {
    /// Its source.
    pub source: Eid,
    /// When it was made.
    pub creation: CreationTimestamp,
    /// Where a fragment begins.
    pub offset: Option<u64>,
}

/// The primary block.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Primary {
    /// Flags.
    pub flags: BundleFlags,
    /// Where the bundle goes.
    pub destination: Eid,
    /// Who sent it.
    pub source: Eid,
    /// Where reports about it go.
    pub report_to: Eid,
    /// Who has custody.
    pub custodian: Eid,
    /// When it was made.
    pub creation: CreationTimestamp,
    /// Seconds from then on until nobody needs it any more.
    pub lifetime_s: u64,
    /// The dictionary that blocks refer to, which may be empty until the block is written; `None` if endpoints are
    /// numbers.
    pub dictionary: Option<Box<[u8]>>,
    /// Which part of the whole it has, if it is a fragment.
    pub fragment: Option<Fragment>,
}

/// The bytes of a primary block, and the dictionary in them.
pub(super) type Encoded = (Vec<u8>, Option<Box<[u8]>>);

impl Primary {
    /// What tells the bundle from all others.
    #[must_use]
    pub fn id(&self) -> BundleId {
        BundleId {
            source: self.source.clone(),
            creation: self.creation,
            offset: self.fragment.map(|fragment| fragment.offset),
        }
    }

    /// What the specification forbids about it, if anything (§4.2). Received blocks are not refused for that.
    #[must_use]
    pub const fn conflict(&self) -> Option<&'static str> {
        let flags = self.flags;
        let asks = flags.intersects(BundleFlags::REPORTS) || flags.contains(BundleFlags::CUSTODY);
        if flags.contains(BundleFlags::ADMINISTRATIVE) && asks {
            return Some("an administrative record asks for no custody and no reports");
        }
        if self.source.is_none() && asks {
            return Some("a bundle of nobody asks for no custody and no reports");
        }
        if self.source.is_none() && !flags.contains(BundleFlags::MUST_NOT_FRAGMENT) {
            return Some("a bundle of nobody must not be fragmented");
        }
        if let Some(Fragment { offset, total }) = self.fragment
            && offset > total
        {
            return Some("a fragment begins beyond its whole");
        }
        None
    }

    /// The endpoint that a block refers to.
    ///
    /// # Errors
    /// The place is not in the dictionary, or what stands there is no endpoint; the offset is the place.
    pub fn resolve(&self, reference: Reference) -> Result<Eid, DecodeError> {
        resolve(self.dictionary.as_deref(), reference, usize::MAX)
    }

    /// The place of an endpoint, which is put into the dictionary if it is not there.
    ///
    /// # Errors
    /// Endpoints are numbers and this one has none, or it has no text.
    pub fn refer(&mut self, eid: &Eid) -> Result<Reference, EncodeError> {
        match &mut self.dictionary {
            Some(dictionary) => {
                let mut bytes = dictionary.to_vec();
                let reference = refer(&mut bytes, eid)?;
                *dictionary = bytes.into();
                Ok(reference)
            }
            None => numbers(eid),
        }
    }

    /// The bytes of the block, numbers in their shortest form. The dictionary begins with the one that is there.
    ///
    /// # Errors
    /// Flags contradict the source or each other, a fragment begins beyond its whole, or an endpoint has no form.
    pub fn to_vec(&self) -> Result<Vec<u8>, EncodeError> {
        self.encode().map(|(bytes, _)| bytes)
    }

    /// The bytes, and the dictionary in them.
    pub(super) fn encode(&self) -> Result<Encoded, EncodeError> {
        if let Some(conflict) = self.conflict() {
            return Err(EncodeError::Conflict(conflict));
        }
        let flags = match self.fragment {
            Some(_) => self.flags.with(BundleFlags::FRAGMENT),
            None => self.flags.without(BundleFlags::FRAGMENT),
        };
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

impl CreationTimestamp {
    pub(super) fn read(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(Self { time_s: sdnv::read(reader)?, sequence: sdnv::read(reader)? })
    }

    pub(super) fn write(self, out: &mut Vec<u8>) {
        sdnv::append(out, self.time_s);
        sdnv::append(out, self.sequence);
    }
}

/// Node and service of an endpoint (RFC 6260 §2.2).
fn numbers(eid: &Eid) -> Result<Reference, EncodeError> {
    match *eid {
        Eid::None => Ok(Reference { scheme: 0, part: 0 }),
        Eid::Ipn { node, service } => Ok(Reference { scheme: node, part: service }),
        Eid::Dtn(_) | Eid::Uri(_) | Eid::Unknown { .. } => {
            Err(EncodeError::Conflict("only ipn endpoints do without a dictionary"))
        }
    }
}

/// The place of an endpoint in a dictionary, where it is put if it is not there.
fn refer(dictionary: &mut Vec<u8>, eid: &Eid) -> Result<Reference, EncodeError> {
    if matches!(eid, Eid::Unknown { .. }) {
        return Err(EncodeError::Conflict("an endpoint of an unknown scheme has no text"));
    }
    let text = eid.to_string();
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
