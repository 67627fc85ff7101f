//! A segment: a file of changes in their order.
//!
//! ```text
//! segment: begin | begin | entries | seal, if a segment follows
//! begin:   "SLRLOG" 0 1 | salt (8) | CRC-32C of both (4)
//! entry:   CRC-32C of salt and the rest of the head (4) | head | key | value
//! head:    CRC-32C of the value (4) | length of the value (4) | length of the key (1) | kind (1)
//! ```
//!
//! The kind of the first entry of a batch has the bit 0x80. A batch is written when the one before
//! it is safe, so entries in front of such an entry were confirmed.
//!
//! Numbers are big-endian. A file is used again for a later segment. Its new salt makes the
//! entries of its former content invalid, and hides what a sender of bundles would have to know to
//! put an entry into a value.

use std::fs::File;
use std::io::{self, IoSlice};
use std::os::unix::fs::FileExt as _;

use bytes::Bytes;
use crc32c::{crc32c, crc32c_append};

const MAGIC: [u8; 8] = *b"SLRLOG\0\x01";
/// Length of a segment's own head: twice the same, because nothing can be read without it.
pub(super) const BEGIN: u64 = 2 * COPY as u64;
const COPY: usize = 20;
/// Length of an entry's checksum and head.
pub(super) const HEAD: usize = 14;
/// Bit of the kind of a batch's first entry.
const FIRST: u8 = 0x80;
/// Slices of one write (`IOV_MAX`).
const SLICES: usize = 1024;

/// Random number of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Salt(pub(super) [u8; 8]);

impl Salt {
    pub(super) fn random() -> io::Result<Self> {
        let mut salt = [0; 8];
        rustix::rand::getrandom(&mut salt, rustix::rand::GetRandomFlags::empty())?;
        Ok(Self(salt))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Put,
    Remove,
    /// No entry follows in this segment.
    Seal,
}

impl Kind {
    const fn from_byte(byte: u8) -> Option<Self> {
        match byte & !FIRST {
            1 => Some(Self::Put),
            2 => Some(Self::Remove),
            3 => Some(Self::Seal),
            _ => None,
        }
    }

    const fn byte(self) -> u8 {
        match self {
            Self::Put => 1,
            Self::Remove => 2,
            Self::Seal => 3,
        }
    }
}

/// An entry in a segment's content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Entry<'a> {
    pub(super) kind: Kind,
    /// Whether a batch begins with it.
    pub(super) is_first: bool,
    pub(super) key: &'a str,
    /// `None` if its checksum is wrong.
    pub(super) value: Option<&'a [u8]>,
    pub(super) offset: usize,
    pub(super) len: usize,
}

/// Entries that are written together.
pub(super) struct Batch {
    salt: Salt,
    /// Checksums, heads and keys.
    heads: Vec<u8>,
    /// End of each entry's part of `heads`, and its value.
    entries: Vec<(usize, Bytes)>,
    len: u64,
}

impl Batch {
    pub(super) const fn new(salt: Salt) -> Self {
        Self { salt, heads: Vec::new(), entries: Vec::new(), len: 0 }
    }

    /// Adds an entry whose key has at most 255 bytes. Returns its place in the batch, and its
    /// length.
    pub(super) fn add(&mut self, kind: Kind, key: &str, value: Bytes) -> (u64, u64) {
        let start = self.heads.len();
        self.heads.extend_from_slice(&[0; 4]);
        self.heads.extend_from_slice(&crc32c(&value).to_be_bytes());
        self.heads.extend_from_slice(&(value.len() as u32).to_be_bytes());
        let first = if self.entries.is_empty() { FIRST } else { 0 };
        self.heads.extend_from_slice(&[key.len() as u8, kind.byte() | first]);
        self.heads.extend_from_slice(key.as_bytes());
        let sum = crc32c_append(crc32c(&self.salt.0), &self.heads[start + 4..]);
        self.heads[start..start + 4].copy_from_slice(&sum.to_be_bytes());
        let at = self.len;
        let len = (self.heads.len() - start + value.len()) as u64;
        self.len += len;
        self.entries.push((self.heads.len(), value));
        (at, len)
    }

    pub(super) const fn len(&self) -> u64 {
        self.len
    }

    /// Writes all entries, from this offset on.
    pub(super) fn write(&self, file: &File, offset: u64) -> io::Result<()> {
        let mut slices = Vec::with_capacity(2 * self.entries.len());
        let mut start = 0;
        for (end, value) in &self.entries {
            slices.push(IoSlice::new(&self.heads[start..*end]));
            start = *end;
            if !value.is_empty() {
                slices.push(IoSlice::new(value));
            }
        }
        let (mut rest, mut at) = (&mut slices[..], offset);
        while !rest.is_empty() {
            let some = &rest[..rest.len().min(SLICES)];
            match rustix::io::pwritev(file, some, at) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(written) => {
                    at += written as u64;
                    IoSlice::advance_slices(&mut rest, written);
                }
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }
}

/// Writes the head of a new segment.
pub(super) fn begin(file: &File, salt: Salt) -> io::Result<()> {
    let mut begin = [MAGIC, salt.0].concat();
    begin.extend_from_slice(&crc32c(&begin).to_be_bytes());
    file.write_all_at(&begin.repeat(2), 0)
}

/// The salt in the head of a segment's content; `None` if it has no valid head.
pub(super) fn salt(content: &[u8]) -> Option<Salt> {
    content.chunks_exact(COPY).take(2).find_map(|begin| {
        let (whole, sum) = begin.split_last_chunk::<4>()?;
        let salt = *whole.strip_prefix(&MAGIC)?.first_chunk::<8>()?;
        (crc32c(whole).to_be_bytes() == *sum).then_some(Salt(salt))
    })
}

/// The entry at an offset, if there is a valid one.
pub(super) fn entry(content: &[u8], salt: Salt, offset: usize) -> Option<Entry<'_>> {
    let rest = content.get(offset..)?;
    let (head, after) = rest.split_first_chunk::<HEAD>()?;
    let kind = Kind::from_byte(head[13])?;
    let key = after.get(..usize::from(head[12]))?;
    let sum = crc32c_append(crc32c_append(crc32c(&salt.0), &head[4..]), key);
    if sum.to_be_bytes() != head[..4] {
        return None;
    }
    let number =
        |at: usize| u32::from_be_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
    let begin = HEAD + key.len();
    let len = begin.checked_add(number(8) as usize)?;
    let value = rest.get(begin..len).filter(|value| crc32c(value) == number(4));
    let key = std::str::from_utf8(key).ok()?;
    let is_first = head[13] & FIRST != 0;
    Some(Entry { kind, is_first, key, value, offset, len })
}

/// The entries of a segment, and gaps between them that are damaged.
pub(super) struct Entries<'a> {
    content: &'a [u8],
    salt: Salt,
    at: usize,
    /// Whether the seal was found. Nothing is behind it.
    is_sealed: bool,
}

/// Content of a segment at some place.
pub(super) enum Found<'a> {
    Entry(Entry<'a>),
    /// Bytes that are no entry, with entries behind them.
    Gap(usize),
}

impl<'a> Entries<'a> {
    pub(super) const fn new(content: &'a [u8], salt: Salt) -> Self {
        Self { content, salt, at: BEGIN as usize, is_sealed: false }
    }

    pub(super) const fn is_sealed(&self) -> bool {
        self.is_sealed
    }

    /// End of what was returned.
    pub(super) const fn end(&self) -> usize {
        self.at
    }

    /// The next entry, if it follows without a gap and is whole.
    pub(super) fn intact(&mut self) -> Option<Entry<'a>> {
        let next = entry(self.content, self.salt, self.at);
        next.filter(|next| next.value.is_some()).and_then(|next| self.pass(next))
    }

    fn pass(&mut self, next: Entry<'a>) -> Option<Entry<'a>> {
        // A value that is cut off ends the content.
        if self.is_sealed || self.at + next.len > self.content.len() {
            return None;
        }
        self.at += next.len;
        self.is_sealed = next.kind == Kind::Seal;
        Some(next)
    }

    /// The next entry, or the gap before it.
    pub(super) fn next(&mut self) -> Option<Found<'a>> {
        let adjacent = entry(self.content, self.salt, self.at);
        if let Some(found) = adjacent.and_then(|next| self.pass(next)) {
            return Some(Found::Entry(found));
        }
        if self.is_sealed {
            return None;
        }
        let is_entry = |at: &usize| entry(self.content, self.salt, *at).is_some();
        let next = (self.at + 1..self.content.len()).find(is_entry)?;
        let gap = next - self.at;
        self.at = next;
        Some(Found::Gap(gap))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SALT: Salt = Salt([7; 8]);

    fn written(entries: &[(Kind, &str, &[u8])]) -> Vec<u8> {
        let file = tempfile::tempfile().unwrap();
        begin(&file, SALT).unwrap();
        let mut batch = Batch::new(SALT);
        for (kind, key, value) in entries {
            batch.add(*kind, key, Bytes::copy_from_slice(value));
        }
        batch.write(&file, BEGIN).unwrap();
        let mut content = vec![0; (BEGIN + batch.len()) as usize];
        file.read_exact_at(&mut content, 0).unwrap();
        content
    }

    fn keys(content: &[u8]) -> Vec<String> {
        let mut entries = Entries::new(content, SALT);
        let next = || match entries.next()? {
            Found::Entry(entry) => {
                Some(format!("{}{}", entry.key, entry.value.map_or(0, <[u8]>::len)))
            }
            Found::Gap(len) => Some(format!("gap {len}")),
        };
        std::iter::from_fn(next).collect()
    }

    #[test]
    fn entries_are_read_as_written_until_the_seal() {
        let mut content = written(&[
            (Kind::Put, "a", b"value"),
            (Kind::Remove, "b", b""),
            (Kind::Seal, "", b""),
            (Kind::Put, "behind", b""),
        ]);
        assert_eq!(salt(&content), Some(SALT));
        assert_eq!(keys(&content), ["a5", "b0", "0"]);
        content[10] ^= 1;
        assert_eq!(salt(&content), Some(SALT));
        content[COPY] ^= 1;
        assert_eq!(salt(&content), None);
    }

    #[test]
    fn batches_of_many_entries_are_written_whole() {
        let names: Vec<String> = (0..3000).map(|number| number.to_string()).collect();
        let entries: Vec<_> =
            names.iter().map(|name| (Kind::Put, name.as_str(), name.as_bytes())).collect();
        assert_eq!(keys(&written(&entries)).len(), 3000);
    }

    #[test]
    fn a_damaged_entry_costs_itself_alone() {
        let entries: &[(Kind, &str, &[u8])] =
            &[(Kind::Put, "a", b"one"), (Kind::Put, "b", b"two"), (Kind::Put, "c", b"three")];
        let whole = written(entries);
        for at in BEGIN as usize..whole.len() {
            let mut content = whole.clone();
            content[at] ^= 1;
            let kept = keys(&content);
            let intact = ["a3", "b3", "c5"].iter().filter(|key| kept.iter().any(|it| it == *key));
            assert_eq!(intact.count(), 2, "{at}: {kept:?}");
        }
        // Values of senders are no entries: they do not know the salt.
        let mut forged = Batch::new(Salt([0; 8]));
        forged.add(Kind::Put, "forged", Bytes::new());
        let mut content = written(&[(Kind::Put, "a", &forged.heads), (Kind::Put, "b", b"")]);
        content[BEGIN as usize] ^= 1;
        let kept = keys(&content);
        assert!(kept.len() == 2 && kept[0].starts_with("gap") && kept[1] == "b0", "{kept:?}");
    }

    #[test]
    fn an_entry_that_is_cut_off_ends_a_segment() {
        let content = written(&[(Kind::Put, "a", b"one"), (Kind::Put, "b", b"two")]);
        for len in BEGIN as usize..content.len() {
            let mut entries = Entries::new(&content[..len], SALT);
            let first = (len - BEGIN as usize) >= HEAD + 4;
            assert_eq!(entries.intact().is_some(), first, "{len}");
            assert!(entries.intact().is_none(), "{len}");
        }
    }
}
