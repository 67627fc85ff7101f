//! Reads the members of an archive, with limits on what it can claim.

use std::fs::File;
use std::os::unix::fs::FileExt as _;

use tar::{EntryType, GnuExtSparseHeader, GnuSparseHeader, Header};

use crate::entry::{Extent, Modified};
use crate::error::{Fault, UnpackError};

/// Unit of an archive.
pub(crate) const BLOCK: u64 = 512;
pub(crate) const BLOCK_LEN: usize = 512;
/// Two blocks of zeros end an archive.
pub(crate) const END: u64 = 2 * BLOCK;
/// Largest member with records or a long name.
const RECORDS_MAX: u64 = 64 * 1024;
/// Largest number of ranges of a sparse file: 16 MiB.
const EXTENTS_MAX: usize = 1 << 20;

/// Length with the padding to whole blocks.
pub(crate) fn padded(len: u64) -> u64 {
    len.div_ceil(BLOCK).saturating_mul(BLOCK)
}

/// Member of an archive, before any of its claims is trusted.
#[derive(Debug)]
pub(crate) struct Member {
    pub(crate) name: Vec<u8>,
    pub(crate) content: Content,
    pub(crate) mode: u32,
    pub(crate) modified: Modified,
    /// Offset of the content.
    pub(crate) start: u64,
}

/// Content of a member.
#[derive(Debug)]
pub(crate) enum Content {
    File {
        len: u64,
        /// Ranges of a sparse file; their bytes follow each other in the archive.
        extents: Option<Box<[Extent]>>,
    },
    Directory,
    Link {
        target: Vec<u8>,
    },
    /// Kind that is never unpacked.
    Other(&'static str),
}

/// Members of an archive, in order.
pub(crate) struct Members<'a> {
    archive: &'a File,
    len: u64,
    offset: u64,
}

/// Extensions that precede a member and apply to it.
#[derive(Default)]
struct Records {
    name: Option<Vec<u8>>,
    target: Option<Vec<u8>>,
    size: Option<u64>,
    modified: Option<Modified>,
    /// GNU tar's later formats of sparse files: the content begins with a list of ranges.
    sparse: bool,
}

impl<'a> Members<'a> {
    pub(crate) fn new(archive: &'a File) -> Result<Self, UnpackError> {
        let metadata = archive.metadata().map_err(UnpackError::archive)?;
        Ok(Self { archive, len: metadata.len(), offset: 0 })
    }

    /// Offset of the next header.
    pub(crate) fn offset(&self) -> u64 {
        self.offset
    }

    /// Returns the next member, or `None` at the end of the archive.
    pub(crate) fn next(&mut self) -> Result<Option<Member>, UnpackError> {
        let mut records = Records::default();
        loop {
            if self.offset >= self.len {
                return Ok(None);
            }
            let begin = self.offset;
            let mut header = Header::new_old();
            self.block(header.as_mut_bytes())?;
            if header.as_bytes().iter().all(|byte| *byte == 0) {
                return Ok(None);
            }
            let fault = |fault| UnpackError::Archive { offset: begin, fault };
            if !has_checksum(&header) {
                return Err(fault(Fault::Checksum));
            }
            let size = header.entry_size().map_err(|_| fault(Fault::Number))?;
            match header.entry_type() {
                EntryType::XHeader => {
                    let bytes = self.extension(size, begin)?;
                    records.read(&bytes).ok_or(fault(Fault::Record))?;
                }
                // Defaults for all members: none that is used here.
                EntryType::XGlobalHeader => self.skip(size, begin)?,
                EntryType::GNULongName => records.name = Some(text(self.extension(size, begin)?)),
                EntryType::GNULongLink => records.target = Some(text(self.extension(size, begin)?)),
                kind => return self.member(&header, kind, records, begin).map(Some),
            }
        }
    }

    fn member(
        &mut self,
        header: &Header,
        kind: EntryType,
        records: Records,
        begin: u64,
    ) -> Result<Member, UnpackError> {
        let fault = |fault| UnpackError::Archive { offset: begin, fault };
        let name = records.name.unwrap_or_else(|| header.path_bytes().into_owned());
        let size = records.size.map_or_else(|| header.entry_size(), Ok);
        let size = size.map_err(|_| fault(Fault::Number))?;
        let has_content = !matches!(kind, EntryType::Directory | EntryType::Symlink)
            && !matches!(kind, EntryType::Link | EntryType::Char | EntryType::Block)
            && kind != EntryType::Fifo;
        // Before POSIX a name that ends in `/` was that of a folder.
        let old_folder = kind == EntryType::Regular && name.ends_with(b"/");
        let content = match kind {
            EntryType::Directory => Content::Directory,
            EntryType::Regular if old_folder => Content::Directory,
            EntryType::Regular | EntryType::Continuous if records.sparse => {
                Content::Other("a sparse file in a format that is not supported")
            }
            EntryType::Regular | EntryType::Continuous => {
                Content::File { len: size, extents: None }
            }
            EntryType::GNUSparse => {
                let (len, extents) = self.sparse(header, size, begin)?;
                Content::File { len, extents: Some(extents) }
            }
            EntryType::Symlink => {
                let field = || header.link_name_bytes().unwrap_or_default().into_owned();
                Content::Link { target: records.target.unwrap_or_else(field) }
            }
            EntryType::Link => Content::Other("a hard link"),
            EntryType::Char | EntryType::Block => Content::Other("a device"),
            EntryType::Fifo => Content::Other("a named pipe"),
            _ => Content::Other("of an unknown kind"),
        };
        let start = self.offset;
        if has_content {
            self.skip(size, begin)?;
        }
        // A header has no sign; GNU tar writes times before 1970 as the two's complement.
        let secs = header.mtime().unwrap_or_default().cast_signed();
        Ok(Member {
            name,
            content,
            mode: header.mode().unwrap_or(0o644),
            modified: records.modified.unwrap_or(Modified { secs, nanos: 0 }),
            start,
        })
    }

    /// Reads the next block.
    fn block(&mut self, block: &mut [u8; BLOCK_LEN]) -> Result<(), UnpackError> {
        let offset = self.offset;
        if self.len - offset < BLOCK {
            return Err(UnpackError::Archive { offset, fault: Fault::Truncated });
        }
        self.archive.read_exact_at(block, offset).map_err(UnpackError::archive)?;
        self.offset += BLOCK;
        Ok(())
    }

    /// Passes over the content of a member, which must be in the archive.
    fn skip(&mut self, size: u64, begin: u64) -> Result<(), UnpackError> {
        let end = self.offset.checked_add(size).filter(|end| *end <= self.len);
        let end = end.ok_or(UnpackError::Archive { offset: begin, fault: Fault::Truncated })?;
        // The last member may lack its padding.
        self.offset = end.next_multiple_of(BLOCK).min(self.len);
        Ok(())
    }

    /// Reads a member that describes the next one.
    fn extension(&mut self, size: u64, begin: u64) -> Result<Vec<u8>, UnpackError> {
        if size > RECORDS_MAX {
            return Err(UnpackError::Archive { offset: begin, fault: Fault::RecordsTooLong });
        }
        let start = self.offset;
        self.skip(size, begin)?;
        let mut bytes = vec![0; usize::try_from(size).unwrap_or_default()];
        self.archive.read_exact_at(&mut bytes, start).map_err(UnpackError::archive)?;
        Ok(bytes)
    }

    /// Reads the length and the ranges of a sparse file of which `size` bytes are stored.
    fn sparse(
        &mut self,
        header: &Header,
        size: u64,
        begin: u64,
    ) -> Result<(u64, Box<[Extent]>), UnpackError> {
        let fault = |fault| UnpackError::Archive { offset: begin, fault };
        let gnu = header.as_gnu().ok_or(fault(Fault::Extents))?;
        let len = gnu.real_size().map_err(|_| fault(Fault::Number))?;
        let mut extents = Extents { found: Vec::new(), end: 0, stored: 0 };
        extents.add(&gnu.sparse).map_err(fault)?;
        let mut is_extended = gnu.is_extended();
        while is_extended {
            let mut more = GnuExtSparseHeader::new();
            self.block(more.as_mut_bytes())?;
            extents.add(more.sparse()).map_err(fault)?;
            is_extended = more.is_extended();
        }
        if extents.end > len || extents.stored != size {
            return Err(fault(Fault::Extents));
        }
        Ok((len, extents.found.into_boxed_slice()))
    }
}

/// Ranges of a sparse file while they are read.
struct Extents {
    found: Vec<Extent>,
    end: u64,
    stored: u64,
}

impl Extents {
    fn add(&mut self, slots: &[GnuSparseHeader]) -> Result<(), Fault> {
        for slot in slots.iter().filter(|slot| !slot.is_empty()) {
            let offset = slot.offset().map_err(|_| Fault::Number)?;
            let len = slot.length().map_err(|_| Fault::Number)?;
            // Each range begins in a new block of the archive.
            if offset < self.end || !self.stored.is_multiple_of(BLOCK) {
                return Err(Fault::Extents);
            }
            self.end = offset.checked_add(len).ok_or(Fault::Extents)?;
            self.stored = self.stored.checked_add(len).ok_or(Fault::Extents)?;
            if len == 0 {
                continue;
            }
            if self.found.len() == EXTENTS_MAX {
                return Err(Fault::TooManyExtents);
            }
            self.found.push(Extent { offset, len });
        }
        Ok(())
    }
}

fn has_checksum(header: &Header) -> bool {
    let mut expected = header.clone();
    expected.set_cksum();
    expected.cksum().ok() == header.cksum().ok() && header.cksum().is_ok()
}

/// Text of a member that ends with a NUL.
fn text(mut bytes: Vec<u8>) -> Vec<u8> {
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    bytes.truncate(end);
    bytes
}

impl Records {
    /// Reads records `LENGTH KEY=VALUE\n`; `None` if one of them is invalid. A value may have
    /// newlines.
    fn read(&mut self, mut bytes: &[u8]) -> Option<()> {
        while !bytes.is_empty() {
            let space = bytes.iter().position(|byte| *byte == b' ')?;
            let len: usize = str::from_utf8(bytes.get(..space)?).ok()?.parse().ok()?;
            let record = bytes.get(space + 1..len)?.strip_suffix(b"\n")?;
            bytes = bytes.get(len..)?;
            let equals = record.iter().position(|byte| *byte == b'=')?;
            let (key, value) = (record.get(..equals)?, record.get(equals + 1..)?);
            match key {
                b"path" => self.name = Some(value.to_vec()),
                b"linkpath" => self.target = Some(value.to_vec()),
                b"size" => self.size = Some(str::from_utf8(value).ok()?.parse().ok()?),
                b"mtime" => self.modified = Some(decimal(str::from_utf8(value).ok()?)?),
                _ if key.starts_with(b"GNU.sparse.") => self.sparse = true,
                _ => {}
            }
        }
        Some(())
    }
}

/// Reads seconds with decimals; those beyond nanoseconds are dropped.
fn decimal(text: &str) -> Option<Modified> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let secs: i64 = whole.parse().ok()?;
    if !fraction.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let digits: String = fraction.chars().chain("000000000".chars()).take(9).collect();
    let nanos: u32 = digits.parse().ok()?;
    if nanos > 0 && whole.starts_with('-') {
        Some(Modified { secs: secs.checked_sub(1)?, nanos: 1_000_000_000 - nanos })
    } else {
        Some(Modified { secs, nanos })
    }
}
