//! The entry of a file in a directory (draft-wood-tsvwg-saratoga-22 §4.3.1).

use wire::cursor::{Reader, Writer};
use wire::{DecodeError, EncodeError};

use super::{Width, read_path, write_path};

/// Kind of a directory entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum EntryKind {
    /// A file.
    File,
    /// A special file: a device, a stream.
    Special,
    /// A directory.
    Directory,
    /// A special directory.
    SpecialDirectory,
}

/// Directory entry of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry<'a> {
    /// Kind.
    pub kind: EntryKind,
    /// Whether it may be sent over UDP-Lite.
    pub udp_lite: bool,
    /// Width of the size.
    pub width: Width,
    /// File size in bytes; 0 for directories and streams.
    pub size: u64,
    /// Modification time, in seconds since 2000-01-01 UTC, including leap seconds.
    pub modified: u32,
    /// Creation time, likewise.
    pub created: u32,
    /// Path, without the NUL.
    pub path: &'a [u8],
}

impl<'a> Entry<'a> {
    pub(super) fn encoded_len(&self) -> usize {
        2 + self.width.bytes() + 8 + self.path.len() + 1
    }

    /// Decodes the record of a directory: its entries, each padded with any number of NULs.
    ///
    /// # Errors
    /// The bytes are not a valid record.
    pub fn decode_record(bytes: &'a [u8]) -> Result<Vec<Self>, DecodeError> {
        let mut reader = Reader::new(bytes);
        let mut entries = Vec::new();
        loop {
            while reader.clone().rest().first() == Some(&0) {
                reader.u8()?;
            }
            if reader.is_empty() {
                return Ok(entries);
            }
            entries.push(Self::read_one(&mut reader)?);
        }
    }

    /// Appends the entry to the record of a directory.
    ///
    /// # Errors
    /// A field cannot be encoded; nothing is appended.
    pub fn append_to(&self, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        let mut bytes = vec![0; self.encoded_len()];
        self.write(&mut Writer::new(&mut bytes))?;
        out.append(&mut bytes);
        Ok(())
    }

    /// Reads an entry at the end of a packet, where more NULs may follow.
    pub(super) fn read(reader: &mut Reader<'a>) -> Result<Self, DecodeError> {
        let entry = Self::read_one(reader)?;
        let at = reader.offset();
        if reader.rest().iter().any(|byte| *byte != 0) {
            return Err(DecodeError::invalid(at, "something follows the path"));
        }
        Ok(entry)
    }

    fn read_one(reader: &mut Reader<'a>) -> Result<Self, DecodeError> {
        let at = reader.offset();
        let properties = reader.u16()?;
        let bit = |number: u32| properties >> (15 - number) & 1 != 0;
        if !bit(0) {
            return Err(DecodeError::invalid(at, "the first bit of an entry's properties is 0"));
        }
        let width = Width::from_code(u32::from(properties >> 6));
        let size = width.read(reader)?;
        let (modified, created) = (reader.u32()?, reader.u32()?);
        let path = read_path(reader)?;
        let kind = match (bit(6), bit(7)) {
            (false, false) => EntryKind::File,
            (true, false) => EntryKind::Special,
            (false, true) => EntryKind::Directory,
            (true, true) => EntryKind::SpecialDirectory,
        };
        Ok(Self { kind, udp_lite: bit(13), width, size, modified, created, path })
    }

    pub(super) fn write(&self, writer: &mut Writer<'_>) -> Result<(), EncodeError> {
        let (special, directory) = match self.kind {
            EntryKind::File => (0, 0),
            EntryKind::Special => (1, 0),
            EntryKind::Directory => (0, 1),
            EntryKind::SpecialDirectory => (1, 1),
        };
        let properties: u16 = 1 << 15
            | special << 9
            | directory << 8
            | (self.width as u16) << 6
            | u16::from(self.udp_lite) << 2;
        writer.put(&properties.to_be_bytes())?;
        self.width.write(writer, self.size, "the size")?;
        writer.put(&self.modified.to_be_bytes())?;
        writer.put(&self.created.to_be_bytes())?;
        write_path(writer, self.path)
    }
}
