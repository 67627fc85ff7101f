//! Records of bundles in an agent's store, from which it recovers after a restart. The first field
//! of a record is its kind, in one byte.

use bytes::Bytes;
use session::record::{Reader, Writer};

use super::super::layer::Content;
use super::Version;
use super::gone::Left;
use super::head::Key;
use super::numbers::Used;
use crate::codec::bp7::{BundleId, CreationTimestamp, Eid};

const VERSION: u8 = 1;
const HELD: u8 = 1;
const GONE: u8 = 2;
const USED: u8 = 3;
const CLOCKS: u8 = 4;
const REQUEST: u8 = 5;
const SECRET: u8 = 6;

/// Places of a payload.
const IN_RECORD: u8 = 0;
const IN_FILE: u8 = 1;
const APART: u8 = 2;

/// Longest payload in the record of its bundle. Longer ones have a record of their own.
const PAYLOAD_MAX: usize = 4096;

/// Whether a payload of this length has a record of its own.
pub(super) const fn is_apart(len: usize) -> bool {
    len > PAYLOAD_MAX
}

/// All clocks at one moment, recorded so that a later run knows the time that has passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Clocks {
    pub(super) kept_ms: u64,
    /// Number of the machine's boot, and milliseconds since then.
    pub(super) boot: Option<(u64, u64)>,
    pub(super) dtn_ms: Option<u64>,
}

/// Record of a bundle.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Record {
    Held(HeldRecord),
    /// Delivered, forwarded or deleted.
    Gone {
        key: Key,
        expires_ms: u64,
        left: Left,
    },
    /// Creation times of bundles created here.
    Used(Used),
    /// All clocks at one moment.
    Clocks(Clocks),
    /// Request by which a user sent a bundle.
    Request(RequestRecord),
    /// Secret behind the numbers of transmissions.
    Secret(u64),
}

/// A user's request, and the bundle that it sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct RequestRecord {
    pub(super) key: u128,
    /// Number of the bundle.
    pub(super) bundle: u64,
    pub(super) id: BundleId,
}

/// Payload of a bundle in the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Payload {
    Here(Content),
    /// In a record of its own, with this length.
    Apart(u64),
}

/// A bundle in the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct HeldRecord {
    /// Blocks before the payload, as received.
    pub(super) head: Bytes,
    pub(super) tail: Bytes,
    pub(super) payload: Payload,
    /// Whether the file is deleted with the bundle.
    pub(super) owns_file: bool,
    /// Milliseconds, see [`Clock::kept_ms`](super::clock::Clock::kept_ms).
    pub(super) received_ms: u64,
    pub(super) expires_ms: u64,
    /// Its age on arrival, in milliseconds.
    pub(super) age_ms: u64,
    pub(super) priority: u8,
    /// Nodes that received a copy.
    pub(super) sent: Vec<Eid>,
    /// Neighbour over whose link it came.
    pub(super) by: Option<Eid>,
    /// Number of times that it had come back.
    pub(super) returns: u8,
    /// Security rules whose operations it passed.
    pub(super) verified: Vec<u32>,
}

impl Record {
    /// Bytes of the bundle in the record.
    fn bytes(&self) -> usize {
        let Self::Held(held) = self else { return 0 };
        let payload = match &held.payload {
            Payload::Here(Content::Bytes(bytes)) => bytes.len(),
            Payload::Here(Content::File { .. }) | Payload::Apart(_) => 0,
        };
        held.head.len() + held.tail.len() + payload
    }

    pub(super) fn encode(&self) -> Bytes {
        let mut out = Writer::with_capacity(VERSION, self.bytes());
        match self {
            Self::Held(held) => held.encode(&mut out),
            Self::Gone { key, expires_ms, left } => {
                out.u8(GONE);
                out.flag(match key.version {
                    Version::Six => false,
                    Version::Seven => true,
                });
                put_eid(&mut out, Some(&key.source));
                put_creation(&mut out, key.creation);
                out.option(key.fragment.map(|(offset, _)| offset));
                out.option(key.fragment.map(|(_, len)| len));
                out.u64(*expires_ms);
                out.flag(*left != Left::Here);
                if let Left::Forwarded { giver, hops, returns } = left {
                    put_eid(&mut out, giver.as_ref());
                    out.option(*hops);
                    out.u8(*returns);
                }
            }
            Self::Used(Used { until_ms, run }) => {
                out.u8(USED);
                out.u64(*until_ms);
                out.u64(*run);
            }
            Self::Clocks(Clocks { kept_ms, boot, dtn_ms }) => {
                out.u8(CLOCKS);
                out.u64(*kept_ms);
                out.option(boot.map(|(id, _)| id));
                out.option(boot.map(|(_, ms)| ms));
                out.option(*dtn_ms);
            }
            Self::Request(request) => request.encode(&mut out),
            Self::Secret(secret) => {
                out.u8(SECRET);
                out.u64(*secret);
            }
        }
        out.finish()
    }

    /// Decodes a record; `None` if it is damaged, or of another version.
    pub(super) fn decode(record: &Bytes) -> Option<Self> {
        let mut fields = Reader::new(VERSION, record)?;
        let record = match fields.u8()? {
            HELD => Self::Held(HeldRecord::decode(&mut fields)?),
            GONE => {
                let version = if fields.flag()? { Version::Seven } else { Version::Six };
                let (source, creation) = (eid(&mut fields)??, creation(&mut fields)?);
                let fragment = fields.option()?.zip(fields.option()?);
                let key = Key { version, source, creation, fragment };
                let (expires_ms, mut left) = (fields.u64()?, Left::Here);
                if fields.flag()? {
                    let (giver, hops) = (eid(&mut fields)?, fields.option()?);
                    left = Left::Forwarded { giver, hops, returns: fields.u8()? };
                }
                Self::Gone { key, expires_ms, left }
            }
            USED => Self::Used(Used { until_ms: fields.u64()?, run: fields.u64()? }),
            CLOCKS => Self::Clocks(Clocks {
                kept_ms: fields.u64()?,
                boot: fields.option()?.zip(fields.option()?),
                dtn_ms: fields.option()?,
            }),
            REQUEST => Self::Request(RequestRecord::decode(&mut fields)?),
            SECRET => Self::Secret(fields.u64()?),
            _ => return None,
        };
        fields.is_empty().then_some(record)
    }
}

impl RequestRecord {
    fn encode(&self, out: &mut Writer) {
        out.u8(REQUEST);
        out.u128(self.key);
        out.u64(self.bundle);
        put_eid(out, Some(&self.id.source));
        put_creation(out, self.id.creation);
    }

    fn decode(fields: &mut Reader) -> Option<Self> {
        let (key, bundle) = (fields.u128()?, fields.u64()?);
        let (source, creation) = (eid(fields)??, creation(fields)?);
        Some(Self { key, bundle, id: BundleId { source, creation, offset: None } })
    }
}

impl HeldRecord {
    fn encode(&self, out: &mut Writer) {
        out.u8(HELD);
        out.bytes(&self.head);
        out.bytes(&self.tail);
        match &self.payload {
            Payload::Here(Content::Bytes(bytes)) => {
                out.u8(IN_RECORD);
                out.bytes(bytes);
            }
            Payload::Here(Content::File { name, offset, len }) => {
                out.u8(IN_FILE);
                out.name(Some(name));
                out.u64(*offset);
                out.u64(*len);
            }
            Payload::Apart(len) => {
                out.u8(APART);
                out.u64(*len);
            }
        }
        out.flag(self.owns_file);
        for number in [self.received_ms, self.expires_ms, self.age_ms] {
            out.u64(number);
        }
        out.u8(self.priority);
        out.count(self.sent.len());
        self.sent.iter().for_each(|node| put_eid(out, Some(node)));
        put_eid(out, self.by.as_ref());
        out.u8(self.returns);
        out.count(self.verified.len());
        self.verified.iter().for_each(|rule| out.u32(*rule));
    }

    fn decode(fields: &mut Reader) -> Option<Self> {
        let (head, tail) = (fields.bytes()?, fields.bytes()?);
        let payload = match fields.u8()? {
            IN_RECORD => Payload::Here(Content::Bytes(fields.bytes()?)),
            IN_FILE => {
                let (name, offset) = (fields.name()??, fields.u64()?);
                Payload::Here(Content::File { name, offset, len: fields.u64()? })
            }
            APART => Payload::Apart(fields.u64()?),
            _ => return None,
        };
        Some(Self {
            head,
            tail,
            payload,
            owns_file: fields.flag()?,
            received_ms: fields.u64()?,
            expires_ms: fields.u64()?,
            age_ms: fields.u64()?,
            priority: fields.u8()?,
            sent: (0..fields.u32()?).map(|_| eid(fields)?).collect::<Option<_>>()?,
            by: eid(fields)?,
            returns: fields.u8()?,
            verified: (0..fields.u32()?).map(|_| fields.u32()).collect::<Option<_>>()?,
        })
    }
}

fn put_creation(out: &mut Writer, CreationTimestamp { time_ms, sequence }: CreationTimestamp) {
    out.u64(time_ms);
    out.u64(sequence);
}

fn creation(fields: &mut Reader) -> Option<CreationTimestamp> {
    Some(CreationTimestamp { time_ms: fields.u64()?, sequence: fields.u64()? })
}

/// An endpoint or a node; an empty text if there is none.
fn put_eid(out: &mut Writer, eid: Option<&Eid>) {
    out.bytes(eid.map(Eid::to_string).unwrap_or_default().as_bytes());
}

fn eid(fields: &mut Reader) -> Option<Option<Eid>> {
    let text = fields.text()?;
    if text.is_empty() { Some(None) } else { text.parse().ok().map(Some) }
}
