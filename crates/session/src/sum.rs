//! Checksum of a file, of any kind.

use std::collections::BTreeMap;

use bytes::Bytes;
use engine::FileId;
use md5::{Digest as _, Md5};
use sha1::Sha1;
use wire::checksum::{Checksum, ChecksumType};

use crate::UnexpectedLength;
use crate::path::Handle;
use crate::storage::Storage;

/// Pending reads of a file to sum up.
pub(crate) const READS_MAX: usize = 4;

/// A checksum being computed.
#[derive(Clone, Debug)]
pub enum Sum {
    /// One of CFDP's.
    Check(Checksum),
    /// MD5, and its position.
    Md5(Box<Md5>, u64),
    /// SHA-1, and its position.
    Sha1(Box<Sha1>, u64),
}

/// Final value of a checksum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Value {
    /// A number.
    Check(u32),
    /// MD5.
    Md5([u8; 16]),
    /// SHA-1.
    Sha1([u8; 20]),
}

impl Sum {
    /// Checksum of nothing, unless the type is null.
    pub fn checksum(kind: ChecksumType) -> Option<Self> {
        Checksum::new(kind).map(Self::Check)
    }

    /// MD5 of nothing.
    pub fn md5() -> Self {
        Self::Md5(Box::default(), 0)
    }

    /// SHA-1 of nothing.
    pub fn sha1() -> Self {
        Self::Sha1(Box::default(), 0)
    }

    /// Whether the file must be fed in order; otherwise pieces may come in any order.
    pub fn is_sequential(&self) -> bool {
        match self {
            Self::Check(checksum) => checksum.kind().is_sequential(),
            Self::Md5(..) | Self::Sha1(..) => true,
        }
    }

    /// End of the last piece fed.
    pub fn position(&self) -> u64 {
        match self {
            Self::Check(checksum) => checksum.position(),
            Self::Md5(_, position) | Self::Sha1(_, position) => *position,
        }
    }

    /// Adds the piece that begins at `offset`: in a sequential kind, at [`Sum::position`].
    pub fn update(&mut self, offset: u64, piece: &[u8]) {
        match self {
            Self::Check(checksum) => checksum.update(offset, piece),
            Self::Md5(digest, position) => {
                digest.update(piece);
                *position = offset + piece.len() as u64;
            }
            Self::Sha1(digest, position) => {
                digest.update(piece);
                *position = offset + piece.len() as u64;
            }
        }
    }

    /// The value of what was fed.
    pub fn finish(&self) -> Value {
        match self {
            Self::Check(checksum) => Value::Check(checksum.finish()),
            Self::Md5(digest, _) => Value::Md5(digest.clone().finalize().into()),
            Self::Sha1(digest, _) => Value::Sha1(digest.clone().finalize().into()),
        }
    }
}

/// A file being read to sum it up.
#[derive(Debug)]
pub struct Reading {
    /// The checksum so far.
    pub sum: Sum,
    /// Offset of the next read, for a sequential checksum.
    next: u64,
    /// Pending reads.
    pub reads: usize,
    /// Data read out of order.
    early: BTreeMap<u64, Bytes>,
}

impl Reading {
    /// Nothing read yet.
    pub fn new(sum: Sum) -> Self {
        Self { sum, next: 0, reads: 0, early: BTreeMap::new() }
    }

    /// Sums up data that was read for another purpose, if it is next.
    pub fn feed(&mut self, offset: u64, bytes: &[u8]) {
        if !self.sum.is_sequential() {
            self.sum.update(offset, bytes);
        } else if offset == self.sum.position() {
            self.sum.update(offset, bytes);
            self.next = self.next.max(self.sum.position());
        }
    }

    /// Continues reading up to `end`.
    pub fn read_on(&mut self, storage: &mut impl Storage, handle: Handle, file: FileId, end: u64) {
        let piece = storage.room().read_piece.max(1);
        while self.next < end && self.reads < READS_MAX {
            let len = piece.min(usize::try_from(end - self.next).unwrap_or(piece));
            storage.read(handle, file, self.next, len);
            self.reads += 1;
            self.next += len as u64;
        }
    }

    /// Accepts the result of a read. An error if it is shorter than requested.
    pub fn take(
        &mut self,
        offset: u64,
        requested: usize,
        bytes: Bytes,
    ) -> Result<(), UnexpectedLength> {
        self.reads = self.reads.saturating_sub(1);
        if bytes.len() != requested {
            return Err(UnexpectedLength);
        }
        if !self.sum.is_sequential() {
            self.sum.update(offset, &bytes);
            return Ok(());
        }
        self.early.insert(offset, bytes);
        while let Some(bytes) = self.early.remove(&self.sum.position()) {
            self.sum.update(self.sum.position(), &bytes);
        }
        Ok(())
    }
}

impl Value {
    /// The checksum, if it is one of CFDP's.
    pub fn check(self) -> Option<u32> {
        match self {
            Self::Check(value) => Some(value),
            Self::Md5(_) | Self::Sha1(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_sum_up_like_the_whole() {
        // RFC 1321 §A.5 and FIPS 180, of "abc".
        let md5 = [
            0x90, 0x01, 0x50, 0x98, 0x3c, 0xd2, 0x4f, 0xb0, 0xd6, 0x96, 0x3f, 0x7d, 0x28, 0xe1,
            0x7f, 0x72,
        ];
        let sha1 = [
            0xa9, 0x99, 0x3e, 0x36, 0x47, 0x06, 0x81, 0x6a, 0xba, 0x3e, 0x25, 0x71, 0x78, 0x50,
            0xc2, 0x6c, 0x9c, 0xd0, 0xd8, 0x9d,
        ];
        for (mut sum, value) in [(Sum::md5(), Value::Md5(md5)), (Sum::sha1(), Value::Sha1(sha1))] {
            sum.update(0, b"a");
            sum.update(sum.position(), b"bc");
            assert_eq!((sum.position(), sum.finish(), value.check()), (3, value, None));
        }
    }
}
