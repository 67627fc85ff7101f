//! Records of files being sent and joined.

use engine::{Area, FileName, IndexRequest};
use session::ranges::Ranges;
use wire::cursor::Reader;

use super::Joined;
use crate::codec::bp7::Eid;

const VERSION: u8 = 1;

/// Prefixes of keys.
const SENT: &str = "send-";
const JOINED: &str = "join-";

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
        let mut out = vec![VERSION];
        let is_spooled = self.source.area() == Area::Spool;
        out.push(u8::from(is_spooled));
        for text in [self.source.path(), &self.name, &self.to.to_string()] {
            put_text(&mut out, text);
        }
        for number in [self.transfer, self.attempt, self.total, self.bundles] {
            out.extend(number.to_be_bytes());
        }
        let memory_of = self.memory_of.map(u64::from);
        for number in [self.modified, self.part, self.next, self.started_ms, memory_of] {
            put_option(&mut out, number);
        }
        IndexRequest::Put { key: self.key(), value: out.into() }
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

    pub(super) fn decode(key: &str, value: &[u8]) -> Option<Self> {
        key.strip_prefix(SENT)?;
        let mut reader = Reader::new(value);
        if reader.u8().ok()? != VERSION {
            return None;
        }
        let is_spooled = reader.u8().ok()? != 0;
        let path = text(&mut reader)?;
        let source =
            if is_spooled { FileName::spool(&path) } else { FileName::file(&path) }.ok()?;
        let sent = Self {
            source,
            name: text(&mut reader)?,
            to: text(&mut reader)?.parse().ok()?,
            transfer: reader.uint(8).ok()?,
            attempt: reader.uint(8).ok()?,
            total: reader.uint(8).ok()?,
            bundles: reader.uint(8).ok()?,
            modified: option(&mut reader)?,
            part: option(&mut reader)?,
            next: option(&mut reader)?,
            started_ms: option(&mut reader)?,
            memory_of: option(&mut reader)?.map(u32::try_from).transpose().ok()?,
        };
        let is_sound = sent.next.is_none_or(|next| next <= sent.total) && sent.part != Some(0);
        (is_sound && reader.is_empty() && sent.key() == key).then_some(sent)
    }
}

impl Joined {
    fn key(&self) -> String {
        format!("{JOINED}{}", self.stem())
    }

    pub(super) fn put(&self) -> IndexRequest {
        let mut out = vec![VERSION];
        for text in [&self.source, &self.name, self.named.as_deref().unwrap_or_default()] {
            put_text(&mut out, text);
        }
        for number in [self.transfer, self.total, self.order] {
            out.extend(number.to_be_bytes());
        }
        for (start, end) in self.there.iter() {
            out.extend(start.to_be_bytes());
            out.extend(end.to_be_bytes());
        }
        IndexRequest::Put { key: self.key(), value: out.into() }
    }

    pub(super) fn removal(&self) -> IndexRequest {
        IndexRequest::Remove { key: self.key() }
    }

    pub(super) fn decode(key: &str, value: &[u8]) -> Option<Self> {
        key.strip_prefix(JOINED)?;
        let mut reader = Reader::new(value);
        if reader.u8().ok()? != VERSION {
            return None;
        }
        let (source, name) = (text(&mut reader)?, text(&mut reader)?);
        let named = Some(text(&mut reader)?).filter(|named| !named.is_empty());
        let mut joined = Self {
            transfer: reader.uint(8).ok()?,
            source,
            name,
            total: reader.uint(8).ok()?,
            there: Ranges::new(),
            named,
            order: reader.uint(8).ok()?,
        };
        while !reader.is_empty() {
            let (start, end) = (reader.uint(8).ok()?, reader.uint(8).ok()?);
            if start >= end || end > joined.total || !joined.there.would_add_range(start, end) {
                return None;
            }
            joined.there.insert(start, end);
        }
        (joined.key() == key).then_some(joined)
    }
}

/// The record of a file as it is written again; for tests of untrusted input.
#[must_use]
pub fn reencoded(key: &str, value: &[u8]) -> Option<IndexRequest> {
    let sent = Sent::decode(key, value).map(|sent| sent.put());
    sent.or_else(|| Joined::decode(key, value).map(|joined| joined.put()))
}

fn put_text(out: &mut Vec<u8>, text: &str) {
    out.extend((text.len() as u64).to_be_bytes());
    out.extend(text.as_bytes());
}

fn text(reader: &mut Reader<'_>) -> Option<String> {
    let len = usize::try_from(reader.uint(8).ok()?).ok()?;
    String::from_utf8(reader.take(len).ok()?.to_vec()).ok()
}

fn put_option(out: &mut Vec<u8>, number: Option<u64>) {
    out.push(u8::from(number.is_some()));
    out.extend(number.unwrap_or_default().to_be_bytes());
}

fn option(reader: &mut Reader<'_>) -> Option<Option<u64>> {
    let is_there = reader.u8().ok()? != 0;
    let number = reader.uint(8).ok()?;
    Some(is_there.then_some(number))
}
