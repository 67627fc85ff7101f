//! Records of files being sent and joined.

use bytes::Bytes;
use engine::{FileName, IndexRequest};
use session::record::{Reader, Writer};

use super::Joined;
use crate::codec::bp7::Eid;

const VERSION: u8 = 1;

/// Prefixes of keys, and the part that they share.
pub(super) const PREFIX: &str = "file-";
const SENT: &str = "file-send-";
pub(super) const JOINED: &str = "file-join-";

/// A file that is being sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Sent {
    pub(super) source: FileName,
    pub(super) name: String,
    pub(super) to: Eid,
    pub(super) transfer: u64,
    /// Number that the keys of its bundles begin with; another one once it begins again.
    pub(super) attempt: u64,
    /// Size in bytes, and time of the last change.
    pub(super) total: u64,
    pub(super) modified: Option<u64>,
    /// Most bytes in a bundle.
    pub(super) part: Option<u64>,
    /// Offset of the first part that the node has not stored; `None` after the last.
    pub(super) next: Option<u64>,
    /// Number of bundles so far.
    pub(super) bundles: u64,
    /// Milliseconds since the beginning of 2000 when the first part was sent, with a clock.
    pub(super) started_ms: Option<u64>,
    /// Process of a node whose store is in memory.
    pub(super) memory_of: Option<u32>,
}

impl Sent {
    fn key(&self) -> String {
        format!("{SENT}{:016x}", self.transfer)
    }

    pub(super) fn put(&self) -> IndexRequest {
        let mut out = Writer::new(VERSION);
        out.name(Some(&self.source));
        out.bytes(self.name.as_bytes());
        out.bytes(self.to.to_string().as_bytes());
        for number in [self.transfer, self.attempt, self.total, self.bundles] {
            out.u64(number);
        }
        for number in [self.modified, self.part, self.next, self.started_ms] {
            out.option(number);
        }
        out.option(self.memory_of);
        IndexRequest::Put { key: self.key(), value: out.finish() }
    }

    pub(super) fn removal(&self) -> IndexRequest {
        IndexRequest::Remove { key: self.key() }
    }

    /// Begins again with the first part, whose bundles have other keys than before.
    pub(super) fn begin_again(&mut self, attempt: u64) {
        self.attempt = attempt;
        self.next = Some(0);
        self.bundles = 0;
    }

    pub(super) fn decode(key: &str, value: &Bytes) -> Option<Self> {
        key.strip_prefix(SENT)?;
        let mut fields = Reader::new(VERSION, value)?;
        let sent = Self {
            source: fields.name()??,
            name: fields.text()?,
            to: fields.text()?.parse().ok()?,
            transfer: fields.u64()?,
            attempt: fields.u64()?,
            total: fields.u64()?,
            bundles: fields.u64()?,
            modified: fields.option()?,
            part: fields.option()?,
            next: fields.option()?,
            started_ms: fields.option()?,
            memory_of: fields.option()?,
        };
        let is_sound = sent.next.is_none_or(|next| next <= sent.total) && sent.part != Some(0);
        (is_sound && fields.is_empty() && sent.key() == key).then_some(sent)
    }
}

impl Joined {
    fn key(&self) -> String {
        format!("{JOINED}{}", self.stem())
    }

    pub(super) fn put(&self) -> IndexRequest {
        let mut out = Writer::new(VERSION);
        for text in [&self.source, &self.name, self.named.as_deref().unwrap_or_default()] {
            out.bytes(text.as_bytes());
        }
        for number in [self.transfer, self.total, self.order] {
            out.u64(number);
        }
        out.ranges(&self.there);
        IndexRequest::Put { key: self.key(), value: out.finish() }
    }

    pub(super) fn removal(&self) -> IndexRequest {
        IndexRequest::Remove { key: self.key() }
    }

    pub(super) fn decode(key: &str, value: &Bytes) -> Option<Self> {
        key.strip_prefix(JOINED)?;
        let mut fields = Reader::new(VERSION, value)?;
        let (source, name, named) = (fields.text()?, fields.text()?, fields.text()?);
        let joined = Self {
            transfer: fields.u64()?,
            source,
            name,
            total: fields.u64()?,
            named: Some(named).filter(|named| !named.is_empty()),
            order: fields.u64()?,
            there: fields.ranges()?,
        };
        let is_sound = joined.there.end() <= joined.total;
        (is_sound && fields.is_empty() && joined.key() == key).then_some(joined)
    }
}

/// The record of a file as it is written again; for tests of untrusted input.
#[must_use]
pub fn reencoded(key: &str, value: &Bytes) -> Option<IndexRequest> {
    let sent = Sent::decode(key, value).map(|sent| sent.put());
    sent.or_else(|| Joined::decode(key, value).map(|joined| joined.put()))
}
