//! The engine's records in segments, to which changes are appended: all changes of a turn share
//! one write and one sync.
//!
//! The newest entry of a key is its record; [`Places`] has the place of each. When less than half
//! of the bytes are records, and the others are many, segments are emptied (`moving.rs`). Their
//! files are used for later segments: writing over a file needs no change of the file system, and
//! its syncs take a third of the time.

mod moving;
mod places;
mod reading;
mod reserve;
mod segment;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use bytes::Bytes;
use cap_std::ambient_authority;
use cap_std::fs::{Dir, OpenOptions};
use engine::{EffectError, IndexRequest};

use super::free_bytes;
use super::system::{reason, sync_directory};
use places::{Place, Places};
use reserve::Reserve;
use segment::{BEGIN, Batch, HEAD, Kind, Salt};

/// Directory of the segments, below that of the store.
const DIRECTORY: &str = "records";
/// File of the reserved space, beside it.
const RESERVE: &str = "reserve";
/// Bounds on the length of a segment. A 64th of the free space is within them on most disks.
const SEGMENT: (u64, u64) = (1 << 20, 16 << 20);
/// Most bytes of entries that are no records, where the records are fewer. A node forgets bundles
/// about as fast as they arrive: with little of it, the few records would be moved all the time.
const SLACK_MAX: u64 = 64 << 20;
/// Name of a file that is to become a segment, and end of the name of one that may.
const NEW: &str = "new";
const SPARE: &str = ".spare";
/// Longest value.
const VALUE_MAX: usize = 1 << 30;
/// Emptied files that are kept for later segments.
const SPARES: usize = 2;

/// The records in one directory.
#[derive(Debug)]
pub(super) struct Log {
    inside: Mutex<Inside>,
}

#[derive(Debug)]
struct Inside {
    directory: Dir,
    /// In their order. The last one grows.
    segments: VecDeque<Segment>,
    places: Places,
    /// Bytes of the entries that are records.
    live: u64,
    /// Length of a segment that is followed by another.
    segment_max: u64,
    /// Bytes of entries that are no records, which may be there in any case.
    slack: u64,
    /// Names of emptied files.
    spares: Vec<String>,
    reserve: Reserve,
    /// Time at which a segment could not be emptied.
    stuck_since: Option<Instant>,
    /// Error of the last failed change, reported once.
    reported: Option<EffectError>,
}

#[derive(Debug)]
struct Segment {
    number: u32,
    file: File,
    salt: Salt,
    /// End of its last entry.
    len: u64,
    /// Bytes of its entries that are records.
    live: u64,
    /// Bytes of its removals.
    removals: u64,
    /// Whether it cannot be read, or what was not confirmed could not be cut off.
    is_faulty: bool,
}

impl Segment {
    const fn new(number: u32, file: File, salt: Salt) -> Self {
        Self { number, file, salt, len: BEGIN, live: 0, removals: 0, is_faulty: false }
    }

    /// Reads it up to the end of its last entry.
    fn content(&self) -> io::Result<Bytes> {
        let mut content = vec![0; self.len as usize];
        self.file.read_exact_at(&mut content, 0)?;
        Ok(content.into())
    }
}

/// Name of a segment.
fn name(number: u32) -> String {
    format!("{number:08x}.log")
}

type Change = Result<(), EffectError>;

impl Log {
    /// Opens the segments below a directory, or creates them.
    pub(super) fn open(state: &Path) -> io::Result<Self> {
        // What the log takes now counts: a start on a full disk must not change its measures.
        let taken = |path: &Path| fs::symlink_metadata(path).map_or(0, |found| found.len());
        let segments = fs::read_dir(state.join(DIRECTORY)).into_iter().flatten().flatten();
        let log: u64 = segments.map(|entry| taken(&entry.path())).sum();
        let free =
            free_bytes(state)?.saturating_add(taken(&state.join(RESERVE))).saturating_add(log);
        let segment_max = (free / 64).clamp(SEGMENT.0, SEGMENT.1);
        let slack = (free / 16).min(SLACK_MAX);
        Self::with_segments(state, segment_max, (2 * segment_max).min(free / 8), slack)
    }

    fn with_segments(
        state: &Path,
        segment_max: u64,
        reserved: u64,
        slack: u64,
    ) -> io::Result<Self> {
        let directory = state.join(DIRECTORY);
        for path in [&directory, &state.join(RESERVE)] {
            // A user who may write to the store must not choose what is written.
            if fs::symlink_metadata(path).is_ok_and(|found| found.is_symlink()) {
                let path = path.display();
                return Err(io::Error::other(format!("{path} is a symbolic link; remove it")));
            }
        }
        fs::create_dir_all(&directory)?;
        File::open(state)?.sync_all()?;
        let directory = Dir::open_ambient_dir(directory, ambient_authority())?;
        let reserve = Reserve::new(state.join(RESERVE), reserved);
        let mut inside = Inside {
            directory,
            segments: VecDeque::new(),
            places: Places::default(),
            live: 0,
            segment_max,
            slack,
            spares: Vec::new(),
            reserve,
            stuck_since: None,
            reported: None,
        };
        inside.read_all()?;
        Ok(Self { inside: Mutex::new(inside) })
    }

    /// Locks the state, which is changed after all writes have succeeded, so that it is consistent
    /// even after a panic.
    fn inside(&self) -> MutexGuard<'_, Inside> {
        self.inside.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Applies changes: those that succeed survive a crash when this returns.
    pub(super) fn change(&self, requests: &[&IndexRequest]) -> Vec<Change> {
        self.inside().change(requests)
    }

    /// Empties old segments where that is due. Takes longer than a change.
    pub(super) fn tidy(&self) {
        self.inside().tidy();
    }

    /// Loads the records whose keys have this prefix, in order of their keys. Skips a damaged one
    /// with a warning.
    pub(super) fn load(&self, prefix: &str) -> io::Result<Vec<(String, Bytes)>> {
        self.inside().load(prefix)
    }

    /// Removes all records.
    pub(super) fn clear(&self) -> io::Result<()> {
        self.inside().clear()
    }
}

impl Inside {
    fn segment(&mut self, number: u32) -> Option<&mut Segment> {
        let at = self.segments.binary_search_by_key(&number, |segment| segment.number).ok()?;
        self.segments.get_mut(at)
    }

    fn place(&mut self, key: &str, place: Place) {
        let former = self.places.insert(key, place);
        self.count_out(former);
        self.live += u64::from(place.len);
        if let Some(segment) = self.segment(place.segment) {
            segment.live += u64::from(place.len);
        }
    }

    /// Removes a record, because of an entry at this place.
    fn displace(&mut self, key: &str, place: Place) {
        let former = self.places.remove(key);
        self.count_out(former);
        if let Some(segment) = self.segment(place.segment) {
            segment.removals += u64::from(place.len);
        }
    }

    fn count_out(&mut self, former: Option<Place>) {
        let Some(place) = former else { return };
        self.live -= u64::from(place.len);
        if let Some(segment) = self.segment(place.segment) {
            segment.live -= u64::from(place.len);
        }
    }

    fn load(&self, prefix: &str) -> io::Result<Vec<(String, Bytes)>> {
        let found = self.places.iter().filter(|(key, _)| key.starts_with(prefix));
        let mut places: Vec<(String, Place)> = found.collect();
        places.sort_unstable_by_key(|(_, place)| (place.segment, place.offset));
        let mut records = Vec::with_capacity(places.len());
        let mut places = places.into_iter().peekable();
        for segment in &self.segments {
            let is_here = |(_, place): &(String, Place)| place.segment == segment.number;
            if !places.peek().is_some_and(is_here) {
                continue;
            }
            let content = segment.content()?;
            while let Some((key, place)) = places.next_if(is_here) {
                let entry = segment::entry(&content, segment.salt, place.offset as usize);
                match entry.and_then(|entry| entry.value) {
                    // A slice would keep the whole segment in memory.
                    Some(value) => records.push((key, Bytes::copy_from_slice(value))),
                    None => tracing::warn!(key, "a damaged record is ignored"),
                }
            }
        }
        records.sort_unstable_by(|(one, _), (other, _)| one.cmp(other));
        Ok(records)
    }

    fn clear(&mut self) -> io::Result<()> {
        let next = self.segments.back().map_or(0, |segment| segment.number + 1);
        // The oldest first, as in `retire`.
        while let Some(segment) = self.segments.pop_front() {
            self.directory.remove_file(name(segment.number))?;
            sync_directory(&self.directory)?;
        }
        (self.places, self.live) = (Places::default(), 0);
        self.append_segment(next)
    }

    fn change(&mut self, requests: &[&IndexRequest]) -> Vec<Change> {
        self.reserve.look();
        let mut answers = Vec::with_capacity(requests.len());
        let mut rest = requests;
        while !rest.is_empty() {
            let (some, others) = rest.split_at(self.few(rest));
            rest = others;
            match self.all_with_room(some) {
                Ok(done) => {
                    self.reported = None;
                    answers.extend(done);
                }
                Err(error) => match reason(&error) {
                    EffectError::NoSpace => answers.extend(self.what_makes_room(some)),
                    error => {
                        self.report("write", &error);
                        answers.extend(some.iter().map(|_| Err(error.clone())));
                    }
                },
            }
        }
        answers
    }

    /// Applies all changes or none. On a full disk it first frees what is not needed.
    fn all_with_room(&mut self, requests: &[&IndexRequest]) -> io::Result<Vec<Change>> {
        match self.all(requests) {
            Err(error) if reason(&error) == EffectError::NoSpace => {
                self.reserve.note_full();
                let is_freed = !self.spares.is_empty() || self.is_untidy();
                self.drop_spares();
                if self.is_untidy() {
                    self.reserve.give_up();
                    self.tidy();
                }
                if is_freed { self.all(requests) } else { Err(error) }
            }
            done => done,
        }
    }

    fn drop_spares(&mut self) {
        for spare in self.spares.drain(..) {
            // It may be gone.
            let _ = self.directory.remove_file(spare);
        }
    }

    /// Number of changes that fit in half a segment; at least one.
    fn few(&self, requests: &[&IndexRequest]) -> usize {
        let mut bytes = 0;
        let fits = |request: &&&IndexRequest| {
            bytes += size(request) as u64;
            bytes <= self.segment_max / 2
        };
        requests.iter().take_while(fits).count().max(1)
    }

    /// A broken disk refuses each change: one report is enough.
    fn report(&mut self, what: &str, error: &EffectError) {
        if self.reported.as_ref() != Some(error) {
            tracing::warn!("cannot {what} records: {error}");
            self.reported = Some(error.clone());
        }
    }

    /// Applies all changes or none, with one sync. Those that no segment can hold fail alone.
    fn all(&mut self, requests: &[&IndexRequest]) -> io::Result<Vec<Change>> {
        let mut changes: Vec<(Kind, &str, Bytes)> = Vec::with_capacity(requests.len());
        let mut answers = Vec::with_capacity(requests.len());
        for request in requests {
            let mut answer = Ok(());
            match request {
                IndexRequest::Put { key, value } if is_too_long(key, value) => {
                    answer = Err(EffectError::Failed("the record is too long".to_owned()));
                }
                IndexRequest::Put { key, value } => changes.push((Kind::Put, key, value.clone())),
                // Without a record there is nothing to remove.
                IndexRequest::Remove { key } => {
                    if !changes.is_empty() || self.places.get(key).is_some() {
                        changes.push((Kind::Remove, key, Bytes::new()));
                    }
                }
                IndexRequest::Load { .. } => {}
            }
            answers.push(answer);
        }
        self.write(changes)?;
        Ok(answers)
    }

    /// Appends changes with one sync, then carries them out.
    fn write(&mut self, changes: Vec<(Kind, &str, Bytes)>) -> io::Result<()> {
        if changes.is_empty() {
            return Ok(());
        }
        let bytes = changes.iter().map(|(_, key, value)| (key.len() + value.len() + HEAD) as u64);
        self.make_place(bytes.sum())?;
        let salt = self.segments.back().map_or(Salt([0; 8]), |segment| segment.salt);
        let mut batch = Batch::new(salt);
        let written = changes.into_iter().map(|(kind, key, value)| {
            let place = batch.add(kind, key, value);
            (kind, key, place)
        });
        let written: Vec<_> = written.collect();
        let (segment, start) = self.append(&batch)?;
        for (kind, key, (at, len)) in written {
            let place = Place { segment, offset: (start + at) as u32, len: len as u32 };
            match kind {
                Kind::Put => self.place(key, place),
                Kind::Remove => self.displace(key, place),
                Kind::Seal => {}
            }
        }
        Ok(())
    }

    /// Appends a batch to the last segment and syncs it. Returns its place.
    fn append(&mut self, batch: &Batch) -> io::Result<(u32, u64)> {
        let Some(segment) = self.segments.back_mut() else {
            return Err(io::Error::other("there is no segment"));
        };
        let place = (segment.number, segment.len);
        let done = batch.write(&segment.file, segment.len).and_then(|()| segment.file.sync_data());
        if let Err(error) = done {
            // What was written of it must not be read after a restart.
            if let Err(error) = segment.file.set_len(segment.len) {
                tracing::warn!("cannot take back a part of the records: {error}");
                segment.is_faulty = true;
            }
            return Err(error);
        }
        segment.len += batch.len();
        Ok(place)
    }

    /// Seals the last segment and begins another one if it has no place for this many bytes.
    fn make_place(&mut self, bytes: u64) -> io::Result<()> {
        let Some(last) = self.segments.back() else { return self.append_segment(0) };
        let has_place = last.len == BEGIN || last.len.saturating_add(bytes) <= self.segment_max;
        if has_place && !last.is_faulty {
            return Ok(());
        }
        let (number, mut seal) = (last.number + 1, Batch::new(last.salt));
        seal.add(Kind::Seal, "", Bytes::new());
        self.append(&seal)?;
        let done = self.append_segment(number);
        if let (Err(_), Some(last)) = (&done, self.segments.back_mut()) {
            // It goes on growing, over its seal.
            last.len -= seal.len();
        }
        done
    }

    /// Creates a segment. Its head is safe before it has its name, because its file may have the
    /// content of a former segment.
    fn append_segment(&mut self, number: u32) -> io::Result<()> {
        let directory = &self.directory;
        if let Some(spare) = self.spares.pop() {
            directory.rename(spare, directory, NEW)?;
        }
        let options = &mut OpenOptions::new();
        let options = options.read(true).write(true).create(true).truncate(false);
        let file = directory.open_with(NEW, options)?.into_std();
        let salt = Salt::random()?;
        segment::begin(&file, salt)?;
        file.sync_all()?;
        let name = name(number);
        directory.rename(NEW, directory, &name)?;
        if let Err(error) = sync_directory(directory) {
            // The one before it goes on growing, and must be the last one after a restart.
            let _ = directory.remove_file(name);
            return Err(error);
        }
        self.segments.push_back(Segment::new(number, file, salt));
        Ok(())
    }

    /// Applies changes when the disk is full. Changes that replace or remove a record use the
    /// reserve; the others fail.
    fn what_makes_room(&mut self, requests: &[&IndexRequest]) -> Vec<Change> {
        let makes: Vec<bool> = requests.iter().map(|request| self.makes_room(request)).collect();
        let some: Vec<&IndexRequest> =
            requests.iter().zip(&makes).filter_map(|(one, makes)| makes.then_some(*one)).collect();
        // The reserve is kept if no request can use it: giving it up would only leave its space to
        // the next write.
        let mut done = Vec::new().into_iter();
        if !some.is_empty() {
            self.reserve.give_up();
            self.drop_spares();
            done = self
                .all(&some)
                .unwrap_or_else(|error| vec![Err(reason(&error)); some.len()])
                .into_iter();
        }
        let no_room = || Err(EffectError::NoSpace);
        makes
            .iter()
            .map(|makes| if *makes { done.next() } else { None }.unwrap_or_else(no_room))
            .collect()
    }

    fn makes_room(&self, request: &IndexRequest) -> bool {
        match request {
            IndexRequest::Put { key, .. } => self.places.get(key).is_some(),
            IndexRequest::Remove { .. } | IndexRequest::Load { .. } => true,
        }
    }
}

/// Bytes of the entry of a change.
const fn size(request: &IndexRequest) -> usize {
    match request {
        IndexRequest::Put { key, value } => HEAD + key.len() + value.len(),
        IndexRequest::Remove { key } => HEAD + key.len(),
        IndexRequest::Load { .. } => 0,
    }
}

const fn is_too_long(key: &str, value: &Bytes) -> bool {
    key.len() > u8::MAX as usize || value.len() > VALUE_MAX
}
