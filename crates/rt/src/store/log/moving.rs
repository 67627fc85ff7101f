//! Emptying of segments whose entries are mostly no records any more.
//!
//! The records of a segment are appended again. A removal hides earlier entries of its key: it is
//! appended again, too, unless the segment is the oldest, or the key has a record again.

use std::io;
use std::time::{Duration, Instant};

use bytes::Bytes;
use engine::EffectError;

use super::segment::{Entries, Found, Kind};
use super::{Inside, Place, SPARE, SPARES, Segment, name};
use crate::store::system::{reason, sync_directory};

/// Pause after a segment could not be emptied.
const PAUSE: Duration = Duration::from_secs(1);

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
        if self.stuck_since.is_some_and(|since| since.elapsed() < PAUSE) {
            return;
        }
        self.stuck_since = None;
        while self.is_untidy() {
            let Some(at) = self.next_to_empty() else { return };
            if let Err(error) = self.empty(at) {
                let error = reason(&error);
                if error != EffectError::NoSpace
                    && let Some(segment) = self.segments.get_mut(at)
                {
                    segment.is_faulty = true;
                }
                self.stuck_since = Some(Instant::now());
                return self.report("move", &error);
            }
        }
    }

    /// Whether a segment should be emptied: less than half of all is records, or on a full disk a
    /// segment's worth is not.
    pub(super) fn is_untidy(&self) -> bool {
        let all: u64 = self.segments.iter().map(|segment| segment.len).sum();
        let most = if self.reserve.is_full() {
            self.live + self.segment_max
        } else {
            self.live + self.live.max(self.slack) + 2 * self.segment_max
        };
        all > most && self.segments.len() > 1
    }

    /// Place of the segment to empty next: where that frees most, or the oldest if that is less
    /// than the removals take, which its end may make superfluous.
    fn next_to_empty(&self) -> Option<usize> {
        let all_but_last = self.segments.iter().enumerate().rev().skip(1);
        let best = all_but_last
            .filter(|(_, segment)| !segment.is_faulty)
            .max_by_key(|(at, segment)| segment.gain(*at == 0));
        let removals: u64 = self.segments.iter().map(|segment| segment.removals).sum();
        match best {
            Some((at, segment)) if segment.gain(at == 0) > removals.min(segment.len / 4) => {
                Some(at)
            }
            Some(_) if self.segments.front().is_some_and(|oldest| !oldest.is_faulty) => Some(0),
            Some((at, _)) => Some(at),
            None => None,
        }
    }

    /// Appends what a segment has again, and frees its file.
    pub(super) fn empty(&mut self, at: usize) -> io::Result<()> {
        let Some(segment) = self.segments.get(at) else { return Ok(()) };
        let number = segment.number;
        if segment.live > 0 || at > 0 && segment.removals > 0 {
            self.move_entries(at)?;
        }
        self.give_up_damaged(number)?;
        self.retire(at)
    }

    /// Removes the records of a segment that could not be read, so that earlier ones of their keys
    /// do not come back.
    fn give_up_damaged(&mut self, number: u32) -> io::Result<()> {
        if self.segment(number).is_none_or(|segment| segment.live == 0) {
            return Ok(());
        }
        let is_here = |(key, place): (String, Place)| (place.segment == number).then_some(key);
        let keys: Vec<String> = self.places.iter().filter_map(is_here).collect();
        for key in &keys {
            tracing::warn!(key, "a damaged record is ignored");
        }
        self.write(keys.iter().map(|key| (Kind::Remove, key.as_str(), Bytes::new())).collect())
    }

    fn move_entries(&mut self, at: usize) -> io::Result<()> {
        let Some(segment) = self.segments.get(at) else { return Ok(()) };
        let (number, content) = (segment.number, segment.content()?);
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
        let (directory, name) = (&self.directory, name(segment.number));
        if self.spares.len() < SPARES && !self.reserve.is_full() {
            let spare = format!("{name}{SPARE}");
            directory.rename(name, directory, &spare)?;
            self.spares.push(spare);
        } else {
            directory.remove_file(name)?;
        }
        self.segments.remove(at);
        sync_directory(&self.directory)
    }
}
