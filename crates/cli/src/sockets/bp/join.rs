//! Joins files that arrive in several bundles: writes parts at their offsets, and names the file
//! when it is complete.
//!
//! A part is confirmed once it is synced and recorded, so a killed receiver resumes with the parts
//! it has.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use bp::codec::file_part::{FilePart, HEADER_MAX, crc_append};
use engine::FileName;
use indicatif::ProgressBar;
use serde::{Deserialize, Serialize};
use service::api::model::Delivery;

use super::recv::Payload;
use super::{kept, names};
use crate::sockets::screen::Screen;

/// Largest number of ranges per file.
const STRETCHES_MAX: usize = 65_536;
/// Number of completed files to remember, because a part may arrive again.
const WHOLE_KEPT: usize = 1024;

/// Outcome of a payload.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// Not a part of a file.
    Other,
    /// A part of an incomplete file, or a duplicate.
    Part,
    /// The last part of a file: path and size in bytes.
    Whole(PathBuf, u64),
}

/// Incomplete files below a folder.
pub(super) struct Joins<'a> {
    into: &'a Path,
    /// Folder of parts and records.
    parts: PathBuf,
    screen: &'a Screen,
    bars: BTreeMap<PathBuf, ProgressBar>,
}

/// Record of an incomplete file.
#[derive(Debug, Serialize, Deserialize)]
struct Record {
    name: String,
    total: u64,
    /// Received ranges: begin and end, in order, with gaps between.
    there: Vec<(u64, u64)>,
    /// Final name, once it is chosen.
    named: Option<String>,
}

impl<'a> Joins<'a> {
    pub(super) fn new(into: &'a Path, screen: &'a Screen) -> Self {
        let parts = into.join(FileName::SPOOL_DIRECTORY).join("parts");
        Self { into, parts, screen, bars: BTreeMap::new() }
    }

    /// Takes a payload, if it is a part of a file. The payload may be confirmed unless this returns
    /// [`Outcome::Other`], in which case the bytes read are put back.
    pub(super) fn take(
        &mut self,
        delivery: &Delivery,
        payload: &mut Payload<'_>,
    ) -> Result<Outcome> {
        let beginning = payload.peek(HEADER_MAX)?;
        let Ok((part, crc)) = FilePart::decode(&beginning) else { return Ok(Outcome::Other) };
        let Some(len) = delivery.bytes.checked_sub(part.header_len() as u64) else {
            return Ok(Outcome::Other);
        };
        let Some(end) = part.offset.checked_add(len).filter(|end| *end <= part.total) else {
            return Ok(Outcome::Other);
        };
        let source = crate::sockets::session::hash(delivery.source.as_bytes());
        let stem = self.parts.join(format!("{:016x}-{source:016x}", part.transfer));
        let (paper, data) = (stem.with_extension("json"), stem.with_extension("data"));
        let found: Option<Record> = kept::read(&paper)?;
        let is_new = found.is_none();
        let mut record = found.unwrap_or_else(|| Record::of(&part));
        if record.named.is_some() && data.exists() {
            // The process ended before it renamed the file.
            record.named = None;
        }
        if record.name != part.name || record.total != part.total {
            return Ok(Outcome::Other);
        }
        if record.named.is_none() && !record.has(part.offset, end) {
            if !record.takes(part.offset, end) {
                return Ok(Outcome::Other);
            }
            let Some(file) = self.room_for(&data, &part)? else { return Ok(Outcome::Other) };
            if is_new {
                kept::write(&paper, &record)?;
            }
            let bar = self.bar(&stem, &record);
            if !write((&data, file), &bar, (&part, crc), payload)? {
                if record.there.is_empty() {
                    std::fs::remove_file(&data)?;
                    std::fs::remove_file(&paper)?;
                }
                return Ok(Outcome::Other);
            }
            record.add(part.offset, end);
            kept::write(&paper, &record)?;
        } else {
            payload.skip()?;
        }
        if record.named.is_some() || !record.is_whole() {
            return Ok(Outcome::Part);
        }
        let place = self.name((&paper, &data), &mut record, (part.transfer, &delivery.source))?;
        if let Some(bar) = self.bars.remove(&stem) {
            bar.finish_and_clear();
        }
        self.forget_old()?;
        Ok(Outcome::Whole(place, record.total))
    }

    fn bar(&mut self, stem: &Path, record: &Record) -> ProgressBar {
        let bar = self.bars.entry(stem.to_owned());
        let bar = bar.or_insert_with(|| self.screen.bar(&record.name, Some(record.total)));
        bar.set_position(record.there.iter().map(|(start, end)| end - start).sum());
        bar.clone()
    }

    /// Data file of the length that the part gives, if the file system can hold it.
    fn room_for(&self, data: &Path, part: &FilePart<'_>) -> Result<Option<File>> {
        std::fs::create_dir_all(&self.parts).with_context(|| self.parts.display().to_string())?;
        let open = || -> io::Result<File> {
            let mut how = File::options();
            let file = how.read(true).write(true).create(true).truncate(false).open(data)?;
            // Sparse: a file that is too long for the file system fails before anything is written.
            if file.metadata()?.len() != part.total {
                file.set_len(part.total)?;
            }
            Ok(file)
        };
        match open() {
            Ok(file) => Ok(Some(file)),
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::FileTooLarge | io::ErrorKind::InvalidInput
                ) =>
            {
                std::fs::remove_file(data)?;
                Ok(None)
            }
            Err(error) => Err(error).with_context(|| data.display().to_string()),
        }
    }

    /// Renames a complete file; never overwrites another one.
    fn name(
        &self,
        (paper, data): (&Path, &Path),
        record: &mut Record,
        (transfer, source): (u64, &str),
    ) -> Result<PathBuf> {
        let last = record.name.rsplit('/').next().unwrap_or_default();
        let wanted = match FileName::file(last) {
            Ok(name) if !last.starts_with(".bundle-") => name.path().to_owned(),
            Ok(_) | Err(_) => format!("file-{transfer:016x}"),
        };
        let hashed =
            names::of_hash(&[record.name.as_bytes(), source.as_bytes(), &transfer.to_be_bytes()]);
        let numbered = format!("{wanted}.{transfer:016x}");
        let mut renamed = |name: String| -> Result<Option<PathBuf>> {
            let place = self.into.join(&name);
            record.named = Some(name);
            kept::write(paper, record)?;
            let is_renamed = names::rename(data, &place);
            if !is_renamed.with_context(|| place.display().to_string())? {
                return Ok(None);
            }
            record.there.clear();
            kept::write(paper, record)?;
            Ok(Some(place))
        };
        // The file system may allow no name that long.
        for name in [wanted, numbered] {
            if let Ok(Some(place)) = renamed(name) {
                return Ok(place);
            }
        }
        let place = self.into.join(&hashed);
        renamed(hashed)?
            .ok_or_else(|| io::Error::from(io::ErrorKind::AlreadyExists))
            .with_context(|| format!("{}; move it away", place.display()))
    }

    /// Removes records of files that were completed long ago.
    fn forget_old(&self) -> Result<()> {
        let mut papers = Vec::new();
        for entry in std::fs::read_dir(&self.parts)? {
            let path = entry?.path();
            let is_paper = path.extension().is_some_and(|extension| extension == "json");
            if is_paper && !path.with_extension("data").exists() {
                papers.push((path.metadata()?.modified()?, path));
            }
        }
        papers.sort_unstable();
        for (_, path) in papers.iter().rev().skip(WHOLE_KEPT) {
            std::fs::remove_file(path)?;
        }
        Ok(())
    }
}

/// Writes a part at its offset; returns whether its checksum is right. Puts the payload back if
/// not.
fn write(
    (data, file): (&Path, File),
    bar: &ProgressBar,
    (part, crc): (&FilePart<'_>, u32),
    payload: &mut Payload<'_>,
) -> Result<bool> {
    let header = payload.take(part.header_len());
    let (mut found, mut at) = (part.crc()?, part.offset);
    while let Some(piece) = payload.piece()? {
        file.write_all_at(&piece, at).with_context(|| data.display().to_string())?;
        found = crc_append(found, &piece);
        at += piece.len() as u64;
        bar.inc(piece.len() as u64);
    }
    if found != crc {
        tracing::warn!(%part, "what looks like a part of a file is damaged, or something else");
        payload.put_back(header, file, (part.offset, at));
        return Ok(false);
    }
    file.sync_data().with_context(|| data.display().to_string())?;
    Ok(true)
}

impl Record {
    fn of(part: &FilePart<'_>) -> Self {
        Self { name: part.name.to_owned(), total: part.total, there: Vec::new(), named: None }
    }

    /// Whether all of a range was received. An empty file has one part of no bytes.
    fn has(&self, start: u64, end: u64) -> bool {
        start < end && self.there.iter().any(|(from, to)| *from <= start && end <= *to)
    }

    /// Whether nothing of a range was received and the record has room for it.
    fn takes(&self, start: u64, end: u64) -> bool {
        let is_apart = |(from, to): &(u64, u64)| end <= *from || *to <= start;
        self.there.iter().all(is_apart) && self.there.len() < STRETCHES_MAX
    }

    /// Records a new range.
    fn add(&mut self, start: u64, end: u64) {
        let at = self.there.partition_point(|(from, _)| *from < start);
        self.there.insert(at, (start, end));
        self.there.dedup_by(|later, earlier| {
            let touches = earlier.1 == later.0;
            if touches {
                earlier.1 = later.1;
            }
            touches
        });
    }

    fn is_whole(&self) -> bool {
        self.there == [(0, self.total)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stretches_that_touch_are_one() {
        let part = FilePart { transfer: 1, total: 40, offset: 0, name: "log" };
        let mut record = Record::of(&part);
        for (start, end) in [(10, 20), (30, 40), (0, 10)] {
            assert!(record.takes(start, end) && !record.has(start, end));
            record.add(start, end);
        }
        assert_eq!(record.there, [(0, 20), (30, 40)]);
        assert!(record.has(5, 15) && !record.has(15, 25));
        assert!(!record.takes(15, 25) && record.takes(20, 30) && !record.is_whole());
        record.add(20, 30);
        assert!(record.is_whole());
        let mut empty = Record::of(&FilePart { total: 0, ..part });
        assert!(!empty.has(0, 0) && empty.takes(0, 0));
        empty.add(0, 0);
        assert!(empty.is_whole());
    }
}
