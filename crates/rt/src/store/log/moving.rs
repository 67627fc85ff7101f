//! Emptying of segments whose entries are mostly no records any more.
//!
//! The records of a segment are appended again. A removal hides earlier entries of its key: it is
//! appended again, too, unless the segment is the oldest, or the key has a record again.

use std::fs;
use std::io;
use std::os::unix::fs::FileExt as _;

use bytes::Bytes;

use super::segment::{Entries, Found, Kind};
use super::{Inside, Place, SPARES, Segment};
use crate::store::disk::reason;

impl Segment {
    /// Bytes that are freed when the segment is emptied.
    const fn gain(&self, is_oldest: bool) -> u64 {
        let removals = if is_oldest { 0 } else { self.removals };
        self.len.saturating_sub(self.live + removals)
    }
}

impl Inside {
    /// Empties segments where that is due.
    pub(super) fn tidy(&mut self) {
        while self.is_untidy() {
            if let Err(error) = self.empty(self.next_to_empty()) {
                return self.report("move", &reason(&error));
            }
        }
    }

    /// Whether a segment should be emptied: less than half of all is records, or on a full disk a
    /// segment's worth is not.
    pub(super) fn is_untidy(&self) -> bool {
        let all: u64 = self.segments.iter().map(|segment| segment.len).sum();
        let most = match self.reserve.is_full() {
            true => self.live + self.segment_max,
            false => self.live + self.live.max(self.slack) + 2 * self.segment_max,
        };
        all > most && self.segments.len() > 1
    }

    /// Place of the segment to empty next: where that frees most, or the oldest if it frees little
    /// anywhere, because its end makes the removals in others superfluous.
    fn next_to_empty(&self) -> usize {
        let all_but_last = self.segments.iter().enumerate().rev().skip(1);
        let best = all_but_last.max_by_key(|(at, segment)| segment.gain(*at == 0));
        match best {
            Some((at, segment)) if segment.gain(at == 0) >= segment.len / 4 => at,
            Some(_) | None => 0,
        }
    }

    /// Appends what a segment has again, and frees its file.
    pub(super) fn empty(&mut self, at: usize) -> io::Result<()> {
        let Some(segment) = self.segments.get(at) else { return Ok(()) };
        if segment.live > 0 || at > 0 && segment.removals > 0 {
            self.move_entries(at)?;
        }
        self.retire(at)
    }

    fn move_entries(&mut self, at: usize) -> io::Result<()> {
        let Some(segment) = self.segments.get(at) else { return Ok(()) };
        let mut content = vec![0; segment.len as usize];
        segment.file.read_exact_at(&mut content, 0)?;
        let (number, content) = (segment.number, Bytes::from(content));
        let mut entries = Entries::new(&content, segment.salt);
        let (mut moved, mut bytes) = (Vec::new(), 0);
        while let Some(found) = entries.next() {
            let Found::Entry(entry) = found else { continue };
            let place = self.places.get(entry.key);
            let is_record =
                |place: Place| (place.segment, place.offset as usize) == (number, entry.offset);
            match (entry.kind, entry.value) {
                (Kind::Put, Some(value)) if place.is_some_and(is_record) => {
                    moved.push((Kind::Put, entry.key, content.slice_ref(value)));
                }
                // A damaged record hides earlier ones like a removal.
                (Kind::Put, None) | (Kind::Remove, _) if at > 0 && place.is_none() => {
                    moved.push((Kind::Remove, entry.key, Bytes::new()));
                }
                (Kind::Put | Kind::Remove | Kind::Seal, _) => continue,
            }
            bytes += entry.len as u64;
            if bytes > self.segment_max / 2 {
                self.write(std::mem::take(&mut moved))?;
                bytes = 0;
            }
        }
        self.write(moved)
    }

    /// Frees the file of an emptied segment. Its end is safe before another one is emptied, whose
    /// removals hide entries in it.
    fn retire(&mut self, at: usize) -> io::Result<()> {
        let Some(segment) = self.segments.get(at) else { return Ok(()) };
        let path = self.path(segment.number);
        if self.spares.len() < SPARES && !self.reserve.is_full() {
            let spare = path.with_extension("spare");
            fs::rename(&path, &spare)?;
            self.spares.push(spare);
        } else {
            fs::remove_file(&path)?;
        }
        self.segments.remove(at);
        self.sync_directory()
    }
}
