//! Reading of the segments of an earlier run.

use std::collections::BTreeSet;
use std::io;

use cap_std::fs::OpenOptions;

use super::segment::{self, BEGIN, Entries, Entry, Found, Kind, Salt};
use super::{DIRECTORY, Inside, NEW, Place, SPARE, Segment, name};
use crate::store::system::sync_directory;

/// Number in the name of a segment.
fn number(name: &str) -> Option<u32> {
    let digits = name.strip_suffix(".log").filter(|digits| digits.len() == 8)?;
    u32::from_str_radix(digits, 16).ok()
}

impl Inside {
    /// Reads the segments of an earlier run, and removes files that were to become segments.
    pub(super) fn read_all(&mut self) -> io::Result<()> {
        let mut numbers = BTreeSet::new();
        for entry in self.directory.entries()? {
            let name = entry?.file_name();
            let Some(name) = name.to_str() else { continue };
            match number(name) {
                Some(number) => _ = numbers.insert(number),
                None if name == NEW || name.ends_with(SPARE) => self.directory.remove_file(name)?,
                None => {}
            }
        }
        // A segment may have its name only in the memory of the system.
        sync_directory(&self.directory)?;
        let last = numbers.last().copied();
        for number in numbers {
            self.read(number, Some(number) == last)?;
        }
        if self.segments.is_empty() {
            self.append_segment(last.map_or(0, |last| last + 1))?;
        }
        Ok(())
    }

    fn read(&mut self, number: u32, is_last: bool) -> io::Result<()> {
        let name = name(number);
        let at_name = |error| io::Error::other(format!("{DIRECTORY}/{name}: {error}"));
        let content = self.directory.read(&name).map_err(at_name)?;
        let Some(salt) = segment::salt(&content) else {
            let aside = format!("{name}.damaged");
            tracing::warn!(aside, "a segment of records without its head is kept");
            return self.directory.rename(&name, &self.directory, aside);
        };
        let options = &mut OpenOptions::new();
        let file = self.directory.open_with(&name, options.read(true).write(true));
        let file = file.map_err(at_name)?.into_std();
        if is_last {
            // A process that was killed may have left a batch that is not safe.
            file.sync_all().map_err(at_name)?;
        }
        self.segments.push_back(Segment::new(number, file, salt));
        let confirmed = if is_last { last_batch(&content, salt) } else { content.len() };
        let mut entries = Entries::new(&content, salt);
        let (mut lost, mut end) = (0, BEGIN as usize);
        loop {
            let found = if entries.end() < confirmed {
                entries.next()
            } else {
                entries.intact().map(Found::Entry)
            };
            match found {
                // Of the last segment it may be there although none followed.
                Some(Found::Entry(Entry { kind: Kind::Seal, .. })) => {}
                Some(Found::Entry(entry)) => {
                    end = entry.offset + entry.len;
                    self.replay(number, &entry);
                }
                Some(Found::Gap(len)) => lost += len,
                None => break,
            }
        }
        if lost > 0 || !is_last && !entries.is_sealed() {
            tracing::warn!(name, lost, "a damaged part of the records is ignored");
        }
        let Some(segment) = self.segments.back_mut() else { return Ok(()) };
        segment.len = end as u64;
        if is_last && content.len() > end {
            // Nothing of it may become valid again behind what is appended.
            segment.file.set_len(segment.len)?;
            segment.file.sync_all()?;
        }
        Ok(())
    }

    fn replay(&mut self, segment: u32, entry: &Entry<'_>) {
        let place = Place { segment, offset: entry.offset as u32, len: entry.len as u32 };
        match (entry.kind, entry.value) {
            (Kind::Put, Some(_)) => self.place(entry.key, place),
            (Kind::Put, None) => {
                tracing::warn!(key = entry.key, "a damaged record is ignored");
                self.displace(entry.key, place);
            }
            (Kind::Remove, _) => self.displace(entry.key, place),
            (Kind::Seal, _) => {}
        }
    }
}

/// Start of the last batch in the last segment. All before it was confirmed; of the batch, what is
/// behind a damaged entry was not.
fn last_batch(content: &[u8], salt: Salt) -> usize {
    let mut entries = Entries::new(content, salt);
    let mut start = BEGIN as usize;
    while let Some(found) = entries.next() {
        if let Found::Entry(entry) = found
            && entry.is_first
        {
            start = entry.offset;
        }
    }
    start
}
