//! Incomplete files, kept so that a later session resumes them.

use std::collections::BTreeMap;

use bytes::Bytes;
use engine::FileName;
use wire::checksum::crc32c;

use crate::ranges::Ranges;

const VERSION: u8 = 1;

/// Prefix of the keys of records and of the names of working files.
pub const SPOOL_PREFIX: &str = "sar-";

/// Incomplete file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Partial {
    /// METADATA packet without the session number: a file resumes only if this is identical.
    pub(crate) identity: Bytes,
    /// Local name of the file.
    pub(crate) destination: FileName,
    /// Ranges safely stored.
    pub(crate) ranges: Ranges,
}

/// All incomplete files. A number names the record and the working file.
#[derive(Debug, Default)]
pub(crate) struct Partials {
    /// Files without a session, the oldest first.
    waiting: BTreeMap<u64, (u32, Partial)>,
    order: u64,
}

impl Partials {
    pub(crate) fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Bytes of memory used.
    pub(crate) fn memory(&self) -> usize {
        let one = |partial: &Partial| {
            partial.identity.len() + partial.ranges.len() * 2 * size_of::<u64>() + 128
        };
        self.waiting.values().map(|(_, partial)| one(partial)).sum()
    }

    /// Keeps a file. Returns the number of the file that was dropped to make room.
    pub(crate) fn keep(&mut self, number: u32, partial: Partial, max: usize) -> Option<u32> {
        self.order += 1;
        self.waiting.insert(self.order, (number, partial));
        if self.waiting.len() <= max {
            return None;
        }
        self.waiting.pop_first().map(|(_, (number, _))| number)
    }

    /// Takes the file that would resume.
    pub(crate) fn take(
        &mut self,
        identity: &[u8],
        destination: &FileName,
    ) -> Option<(u32, Partial)> {
        let same =
            |partial: &Partial| partial.identity == identity && partial.destination == *destination;
        let (&order, _) = self.waiting.iter().find(|(_, (_, partial))| same(partial))?;
        self.waiting.remove(&order)
    }

    /// Whether a number is in use.
    pub(crate) fn has(&self, number: u32) -> bool {
        self.waiting.values().any(|(other, _)| *other == number)
    }
}

/// Name of a record and of a working file.
pub(crate) fn key(number: u32) -> String {
    format!("{SPOOL_PREFIX}{number:08x}")
}

/// Number in such a name.
pub(crate) fn number(key: &str) -> Option<u32> {
    let digits = key.strip_prefix(SPOOL_PREFIX)?;
    u32::from_str_radix(digits, 16).ok().filter(|_| digits.len() == 8)
}

impl Partial {
    /// Encodes a record: version, destination, identity, ranges, CRC-32C; each list with its
    /// length.
    pub(crate) fn to_bytes(&self) -> Bytes {
        let mut out = vec![VERSION];
        for text in [self.destination.path().as_bytes(), &self.identity] {
            out.extend((text.len() as u32).to_be_bytes());
            out.extend(text);
        }
        out.extend((self.ranges.len() as u32).to_be_bytes());
        for (start, end) in self.ranges.iter() {
            out.extend(start.to_be_bytes());
            out.extend(end.to_be_bytes());
        }
        out.extend(crc32c(&out).to_be_bytes());
        out.into()
    }

    /// Decodes a record; `None` if it is invalid or damaged.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let (content, check) = bytes.split_last_chunk::<4>()?;
        if crc32c(content) != u32::from_be_bytes(*check) {
            return None;
        }
        let mut rest = content.strip_prefix(&[VERSION])?;
        let destination = std::str::from_utf8(text(&mut rest)?).ok()?;
        let destination = FileName::file(destination).ok()?;
        let identity = Bytes::copy_from_slice(text(&mut rest)?);
        let count = u32::from_be_bytes(take(&mut rest)?);
        let mut ranges = Ranges::new();
        for _ in 0..count {
            let start = u64::from_be_bytes(take(&mut rest)?);
            ranges.insert(start, u64::from_be_bytes(take(&mut rest)?));
        }
        Some(Self { identity, destination, ranges })
    }
}

/// Length-prefixed bytes.
fn text<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let len = u32::from_be_bytes(take(rest)?);
    rest.split_off(..usize::try_from(len).ok()?)
}

fn take<const N: usize>(rest: &mut &[u8]) -> Option<[u8; N]> {
    let (first, others) = rest.split_first_chunk::<N>()?;
    *rest = others;
    Some(*first)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn partial(name: &str) -> Partial {
        let mut ranges = Ranges::new();
        ranges.insert(0, 100);
        ranges.insert(200, 300);
        let destination = FileName::file(name).expect("a plain name");
        Partial { identity: Bytes::from_static(b"metadata"), destination, ranges }
    }

    #[test]
    fn records_round_trip_and_damage_is_detected() {
        let bytes = partial("a/b").to_bytes();
        assert_eq!(Partial::decode(&bytes), Some(partial("a/b")));
        for i in 0..bytes.len() {
            let mut damaged = bytes.to_vec();
            damaged[i] ^= 4;
            assert_eq!(Partial::decode(&damaged), None);
            assert_eq!(Partial::decode(&bytes[..i]), None);
        }
        assert_eq!(number(&key(0xa0b)), Some(0xa0b));
        assert_eq!((number("sar-1"), number("cfdp-00000001")), (None, None));
    }

    #[test]
    fn the_oldest_entry_is_evicted() {
        let mut partials = Partials::default();
        assert_eq!(partials.keep(1, partial("a"), 2), None);
        assert_eq!(partials.keep(2, partial("b"), 2), None);
        assert_eq!(partials.keep(3, partial("c"), 2), Some(1));
        assert!(partials.take(b"metadata", &partial("a").destination).is_none());
        assert!(partials.take(b"other", &partial("b").destination).is_none());
        let taken = partials.take(b"metadata", &partial("b").destination);
        assert_eq!(taken.map(|(number, _)| number), Some(2));
        assert!(partials.has(3) && !partials.has(2));
        assert_eq!(partials.len(), 1);
    }
}
