//! Records of bundles in an agent's store, from which it recovers after a restart.
//!
//! ```text
//! version 2 | kind | fields | CRC-32C of everything before it
//! ```
//!
//! Numeric fields have 8 bytes; byte strings follow their length in 4 bytes.

use bytes::{Buf as _, BufMut as _, Bytes, BytesMut};
use engine::{Area, FileName};
use wire::checksum::crc32c;

use super::super::layer::Content;
use super::Version;
use super::gone::Left;
use super::head::Key;
use super::numbers::Used;
use crate::codec::bp7::{BundleId, CreationTimestamp, Eid};

const VERSION: u8 = 2;
const HELD: u8 = 1;
const GONE: u8 = 2;
const USED: u8 = 3;
const CLOCKS: u8 = 4;
const REQUEST: u8 = 5;

/// Bytes of a record besides those of the bundle, in most cases.
const SHORT: usize = 128;

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
        let mut out = BytesMut::with_capacity(SHORT + self.bytes());
        out.put_u8(VERSION);
        match self {
            Self::Held(held) => held.encode(&mut out),
            Self::Gone { key, expires_ms, left } => {
                out.put_u8(GONE);
                out.put_u8(match key.version {
                    Version::Six => 6,
                    Version::Seven => 7,
                });
                put(&mut out, key.source.to_string().as_bytes());
                put_creation(&mut out, key.creation);
                out.put_u8(u8::from(key.fragment.is_some()));
                let (offset, len) = key.fragment.unwrap_or((0, 0));
                out.put_u64(offset);
                out.put_u64(len);
                out.put_u64(*expires_ms);
                if let Left::Forwarded { giver, hops, returns } = left {
                    put(&mut out, &name(giver.as_ref()));
                    out.put_u8(u8::from(hops.is_some()));
                    out.put_u8(hops.unwrap_or(0));
                    out.put_u8(*returns);
                }
            }
            Self::Used(Used { until_ms, run }) => {
                out.put_u8(USED);
                out.put_u64(*until_ms);
                out.put_u64(*run);
            }
            Self::Clocks(Clocks { kept_ms, boot, dtn_ms }) => {
                out.put_u8(CLOCKS);
                out.put_u64(*kept_ms);
                let (id, ms) = boot.unwrap_or_default();
                for (is_known, number) in [
                    (boot.is_some(), id),
                    (boot.is_some(), ms),
                    (dtn_ms.is_some(), dtn_ms.unwrap_or(0)),
                ] {
                    out.put_u8(u8::from(is_known));
                    out.put_u64(number);
                }
            }
            Self::Request(request) => request.encode(&mut out),
        }
        let check = crc32c(&out);
        out.put_u32(check);
        out.freeze()
    }

    /// Decodes a record; `None` if it is damaged, or of another version.
    pub(super) fn decode(bytes: &Bytes) -> Option<Self> {
        let end = bytes.len().checked_sub(4)?;
        let found = u32::from_be_bytes(bytes[end..].try_into().ok()?);
        if crc32c(&bytes[..end]) != found {
            return None;
        }
        let mut rest = bytes.slice(..end);
        if rest.try_get_u8().ok()? != VERSION {
            return None;
        }
        let record = match rest.try_get_u8().ok()? {
            HELD => Self::Held(HeldRecord::decode(&mut rest)?),
            GONE => {
                let version = match rest.try_get_u8().ok()? {
                    6 => Version::Six,
                    7 => Version::Seven,
                    _ => return None,
                };
                let source = eid(&take(&mut rest)?)?;
                let creation = creation(&mut rest)?;
                let is_fragment = rest.try_get_u8().ok()? != 0;
                let fragment = (rest.try_get_u64().ok()?, rest.try_get_u64().ok()?);
                let fragment = is_fragment.then_some(fragment);
                let key = Key { version, source, creation, fragment };
                let expires_ms = rest.try_get_u64().ok()?;
                let mut left = Left::Here;
                if !rest.is_empty() {
                    let (giver, has_hops) = (node(&mut rest)?, rest.try_get_u8().ok()? != 0);
                    let hops = Some(rest.try_get_u8().ok()?).filter(|_| has_hops);
                    left = Left::Forwarded { giver, hops, returns: rest.try_get_u8().ok()? };
                }
                Self::Gone { key, expires_ms, left }
            }
            USED => {
                let (until_ms, run) = (rest.try_get_u64().ok()?, rest.try_get_u64().ok()?);
                Self::Used(Used { until_ms, run })
            }
            CLOCKS => {
                let kept_ms = rest.try_get_u64().ok()?;
                let (id, ms) = (maybe_u64(&mut rest)?, maybe_u64(&mut rest)?);
                Self::Clocks(Clocks { kept_ms, boot: id.zip(ms), dtn_ms: maybe_u64(&mut rest)? })
            }
            REQUEST => Self::Request(RequestRecord::decode(&mut rest)?),
            _ => return None,
        };
        rest.is_empty().then_some(record)
    }
}

impl RequestRecord {
    fn encode(&self, out: &mut BytesMut) {
        out.put_u8(REQUEST);
        out.put_u128(self.key);
        out.put_u64(self.bundle);
        put(out, self.id.source.to_string().as_bytes());
        put_creation(out, self.id.creation);
    }

    fn decode(rest: &mut Bytes) -> Option<Self> {
        let key = rest.try_get_u128().ok()?;
        let (bundle, source) = (rest.try_get_u64().ok()?, eid(&take(rest)?)?);
        let creation = creation(rest)?;
        Some(Self { key, bundle, id: BundleId { source, creation, offset: None } })
    }
}

impl HeldRecord {
    fn encode(&self, out: &mut BytesMut) {
        out.put_u8(HELD);
        put(out, &self.head);
        put(out, &self.tail);
        match &self.payload {
            Payload::Apart(len) => {
                out.put_u8(3);
                out.put_u64(*len);
            }
            Payload::Here(Content::Bytes(bytes)) => {
                out.put_u8(0);
                put(out, bytes);
            }
            Payload::Here(Content::File { name, offset, len }) => {
                out.put_u8(match name.area() {
                    Area::Files => 1,
                    Area::Spool => 2,
                });
                put(out, name.path().as_bytes());
                out.put_u64(*offset);
                out.put_u64(*len);
            }
        }
        out.put_u8(u8::from(self.owns_file));
        for number in [self.received_ms, self.expires_ms, self.age_ms] {
            out.put_u64(number);
        }
        out.put_u8(self.priority);
        out.put_u32(self.sent.len() as u32);
        for node in &self.sent {
            put(out, node.to_string().as_bytes());
        }
        put(out, &name(self.by.as_ref()));
        out.put_u8(self.returns);
        out.put_u32(self.verified.len() as u32);
        self.verified.iter().for_each(|rule| out.put_u32(*rule));
    }

    fn decode(rest: &mut Bytes) -> Option<Self> {
        let (head, tail) = (take(rest)?, take(rest)?);
        let payload = match rest.try_get_u8().ok()? {
            0 => Payload::Here(Content::Bytes(take(rest)?)),
            3 => Payload::Apart(rest.try_get_u64().ok()?),
            area @ (1 | 2) => {
                let name = take(rest)?;
                let name = std::str::from_utf8(&name).ok()?;
                let name = if area == 1 { FileName::file(name) } else { FileName::spool(name) };
                let (name, offset, len) =
                    (name.ok()?, rest.try_get_u64().ok()?, rest.try_get_u64().ok()?);
                Payload::Here(Content::File { name, offset, len })
            }
            _ => return None,
        };
        let owns_file = rest.try_get_u8().ok()? != 0;
        let (received_ms, expires_ms, age_ms) =
            (rest.try_get_u64().ok()?, rest.try_get_u64().ok()?, rest.try_get_u64().ok()?);
        let priority = rest.try_get_u8().ok()?;
        let mut sent = Vec::new();
        for _ in 0..rest.try_get_u32().ok()? {
            sent.push(eid(&take(rest)?)?);
        }
        // Records of earlier versions end here.
        let (mut by, mut returns, mut verified) = (None, 0, Vec::new());
        if !rest.is_empty() {
            by = node(rest)?;
            returns = rest.try_get_u8().ok()?;
            for _ in 0..rest.try_get_u32().ok()? {
                verified.push(rest.try_get_u32().ok()?);
            }
        }
        Some(Self {
            head,
            tail,
            payload,
            owns_file,
            received_ms,
            expires_ms,
            age_ms,
            priority,
            sent,
            by,
            returns,
            verified,
        })
    }
}

fn put(out: &mut BytesMut, bytes: &[u8]) {
    out.put_u32(bytes.len() as u32);
    out.put_slice(bytes);
}

fn take(rest: &mut Bytes) -> Option<Bytes> {
    let len = rest.try_get_u32().ok()? as usize;
    (len <= rest.len()).then(|| rest.split_to(len))
}

fn put_creation(out: &mut BytesMut, CreationTimestamp { time_ms, sequence }: CreationTimestamp) {
    out.put_u64(time_ms);
    out.put_u64(sequence);
}

fn creation(rest: &mut Bytes) -> Option<CreationTimestamp> {
    let (time_ms, sequence) = (rest.try_get_u64().ok()?, rest.try_get_u64().ok()?);
    Some(CreationTimestamp { time_ms, sequence })
}

/// Name of a node; empty if there is none.
fn name(node: Option<&Eid>) -> Vec<u8> {
    node.map(Eid::to_string).unwrap_or_default().into_bytes()
}

/// A node, or none.
fn node(rest: &mut Bytes) -> Option<Option<Eid>> {
    let text = take(rest)?;
    if text.is_empty() { Some(None) } else { eid(&text).map(Some) }
}

fn maybe_u64(rest: &mut Bytes) -> Option<Option<u64>> {
    let is_known = rest.try_get_u8().ok()? != 0;
    let number = rest.try_get_u64().ok()?;
    Some(is_known.then_some(number))
}

fn eid(text: &[u8]) -> Option<Eid> {
    std::str::from_utf8(text).ok()?.parse().ok()
}
