//! File that arrives: it is written to a working file, verified, synced, and renamed.
//!
//! The protocol decides which data arrives, whether the checksum is correct, and what a record
//! holds. The order of storage effects is decided here. With it a crash at any moment loses
//! nothing that was confirmed:
//!
//! * a record covers only data that was synced before;
//! * a file gets its name when all of it is synced;
//! * a sync proves nothing about data written after its request.

#[cfg(test)]
mod tests;

use std::time::Duration;

use engine::{Completion, EffectError, FileId, FileName, FilestoreRequest, OpenMode, Time};

use crate::journal::Slot;
use crate::path::Handle;
use crate::ranges::Ranges;
use crate::spool::Spool;
use crate::storage::{JournalPolicy, Storage};
use crate::sum::{Sum, Value};
use crate::{Alarm, Job, Seat, Shared, StoreRefusal};

/// Part of the configured interval after which a fast store saves progress.
const FAST: u32 = 8;

/// Interval between two saves as a multiple of the time that a save takes: at most a sixteenth of
/// the time is spent on saves.
const SPARE: u32 = 16;

/// File that arrives.
#[derive(Debug)]
pub struct Delivery {
    /// Working file.
    pub spool: Spool,
    /// Record of the reception, for protocols that have one for each file.
    pub record: Slot,
    step: Step,
    /// Parts that were saved.
    safe: Ranges,
    save: Option<Save>,
    /// Time that the last save took.
    save_took: Duration,
    /// Pending syncs.
    syncs: u32,
    /// Bytes covered at the last save.
    covered: u64,
    /// Whether an earlier run was renaming the file, and perhaps did.
    was_installing: bool,
}

/// Save under way.
#[derive(Debug)]
struct Save {
    /// Parts being synced, to be safe next.
    parts: Ranges,
    began: Time,
}

/// Step of a delivery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Data is missing.
    Receiving,
    /// Complete; the checksum is being computed.
    Verifying,
    /// All of it is being synced.
    Syncing,
    /// All of it is safely stored.
    Stored,
    /// Being renamed.
    Installing,
    /// It ended, and the working file stays as it is.
    Left,
    /// It ended, and the working file is deleted.
    Discarded,
}

/// Result of a storage effect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// The working file is open.
    Opened,
    /// A part of the checksum was computed.
    Summed,
    /// The parts being saved are stored, and can be recorded.
    Saved,
    /// All of the file is safely stored.
    Stored,
    /// The file has its name.
    Installed,
    /// The file could not be renamed.
    NotInstalled(StoreRefusal),
    /// Data could not be read or written.
    Failed(StoreRefusal),
}

impl Delivery {
    /// Delivery with a working file that is not open yet.
    pub fn new(working: FileName) -> Self {
        Self {
            spool: Spool::new(working),
            record: Slot::default(),
            step: Step::Receiving,
            safe: Ranges::new(),
            save: None,
            save_took: Duration::ZERO,
            syncs: 0,
            covered: 0,
            was_installing: false,
        }
    }

    /// Continues with parts that an earlier run stored.
    pub fn resume(&mut self, safe: Ranges) {
        self.covered = safe.covered();
        self.safe = safe;
    }

    /// Continues with a complete file that an earlier run was renaming.
    pub fn resume_installing(&mut self) {
        self.step = Step::Stored;
        self.was_installing = true;
    }

    /// Present step.
    pub fn step(&self) -> Step {
        self.step
    }

    /// Whether all of the file is safely stored.
    pub fn is_stored(&self) -> bool {
        matches!(self.step, Step::Stored | Step::Installing)
    }

    /// Parts that were saved.
    pub fn safe(&self) -> &Ranges {
        &self.safe
    }

    /// Parts that a record may cover, of those received: all of a stored file, or what was saved.
    pub fn recordable(&self, ranges: &Ranges) -> Ranges {
        if self.is_stored() { ranges.clone() } else { self.safe.clone() }
    }

    /// Opens the working file. Its content stays if an earlier run stored parts of it.
    pub fn open(&mut self, storage: &mut impl Storage, handle: Handle, sum: Option<Sum>) {
        let mode = if self.safe.is_empty() { OpenMode::Truncate } else { OpenMode::Write };
        self.spool.open(storage, handle, sum, mode, &self.safe);
    }

    /// Appends data of which nothing was received before. Returns `false` if there is no room for
    /// it; the path is paused until pending writes make room.
    #[inline]
    pub fn append<A: Alarm, J>(
        &mut self,
        shared: &mut Shared<A, J>,
        seat: &Seat,
        ranges: &mut Ranges,
        offset: u64,
        data: &[u8],
    ) -> bool {
        if !self.spool.append(shared, seat.handle, offset, data) {
            if let Some(path) = seat.path.filter(|_| self.spool.is_writing()) {
                shared.pause(path);
            }
            return false;
        }
        ranges.insert(offset, offset + data.len() as u64);
        true
    }

    /// Time from new data to the next save. A save costs little if the store is fast, and each byte
    /// that arrives after the last one is sent again after a crash.
    pub fn save_wait(&self, policy: JournalPolicy) -> Duration {
        (self.save_took * SPARE).clamp(policy.interval / FAST, policy.interval)
    }

    /// Whether there is enough new data for a save.
    pub fn is_save_due(&self, ranges: &Ranges, policy: JournalPolicy) -> bool {
        ranges.covered().saturating_sub(self.covered) >= policy.bytes
    }

    /// Whether there is no data that was not saved.
    pub fn is_saved(&self, ranges: &Ranges) -> bool {
        self.covered == ranges.covered()
    }

    /// Whether parts are being synced, to be safe next.
    pub fn is_saving(&self) -> bool {
        self.save.is_some()
    }

    /// Counts the present parts as saved.
    pub fn count_saved(&mut self, ranges: &Ranges) {
        self.covered = ranges.covered();
    }

    /// Syncs the written parts; [`Event::Saved`] follows. Returns `false` if there is no open file.
    pub fn save(
        &mut self,
        storage: &mut impl Storage,
        handle: Handle,
        now: Time,
        ranges: &Ranges,
    ) -> bool {
        self.count_saved(ranges);
        self.spool.flush(storage, handle);
        if self.spool.file().is_some() && !self.is_saving() {
            self.save = Some(Save { parts: ranges.clone(), began: now });
            self.sync_written(storage, handle);
        }
        self.spool.file().is_some()
    }

    /// Begins to verify a complete file.
    pub fn complete(&mut self, storage: &mut impl Storage, handle: Handle) {
        self.step = Step::Verifying;
        self.spool.flush(storage, handle);
    }

    /// Continues the checksum over the first `prefix` bytes. Returns that of a complete file of
    /// `size` bytes, once all of it was summed up.
    pub fn verify(
        &mut self,
        storage: &mut impl Storage,
        handle: Handle,
        prefix: u64,
        size: Option<u64>,
    ) -> Option<Value> {
        self.spool.sum_up(storage, handle, prefix);
        size.filter(|_| self.step == Step::Verifying).and_then(|size| self.spool.value(size))
    }

    /// Syncs all of an open file; [`Event::Stored`] follows.
    pub fn sync(&mut self, storage: &mut impl Storage, handle: Handle) {
        debug_assert!(self.spool.file().is_some(), "a sync that is not requested never ends");
        self.step = Step::Syncing;
        self.spool.flush(storage, handle);
        self.sync_written(storage, handle);
    }

    fn sync_written(&mut self, storage: &mut impl Storage, handle: Handle) {
        self.syncs += 1;
        self.spool.sync(storage, handle);
    }

    /// Gives a stored file its name.
    pub fn install<A: Alarm, J>(
        &mut self,
        shared: &mut Shared<A, J>,
        handle: Handle,
        to: FileName,
    ) {
        self.step = Step::Installing;
        self.spool.close(shared);
        shared.install(handle, self.spool.name.clone(), to);
    }

    /// Ends the delivery, and leaves the working file as it is.
    pub fn leave(&mut self, storage: &mut impl Storage) {
        self.spool.abandon(storage);
        if self.step != Step::Discarded {
            self.step = Step::Left;
        }
    }

    /// Ends the delivery, and deletes the working file.
    pub fn discard<A: Alarm, J>(&mut self, shared: &mut Shared<A, J>, handle: Handle) {
        self.spool.abandon(shared);
        self.step = Step::Discarded;
        if self.spool.is_started() || self.record.is_used() {
            self.delete(shared, handle);
        }
    }

    fn delete<A: Alarm, J>(&self, shared: &mut Shared<A, J>, handle: Handle) {
        let request = FilestoreRequest::DenyFile(self.spool.name.clone());
        shared.filestore(handle, Job::Forget, request);
    }

    /// Forgets the saved parts, which no record covers any more.
    pub fn forget(&mut self) {
        self.safe = Ranges::new();
    }

    /// Handles the completion of an effect on the file. Parts of an earlier run that are not in the
    /// file are removed from `ranges`.
    pub fn on_done<A: Alarm, J>(
        &mut self,
        shared: &mut Shared<A, J>,
        handle: Handle,
        now: Time,
        ranges: &mut Ranges,
        job: &Job<J>,
        result: Result<Completion, EffectError>,
    ) -> Option<Event> {
        match (job, result) {
            (Job::Write { cost }, result) => {
                self.spool.written();
                shared.written(*cost);
                result.err().map(|error| Event::Failed((&error).into()))
            }
            (Job::Open, Ok(Completion::Opened { file, len, .. })) => {
                self.on_opened(shared, handle, ranges, file, len)
            }
            (Job::Read { offset, len }, Ok(Completion::Read(bytes))) => {
                let read = self.spool.read_done(*offset, *len, bytes);
                Some(read.map_or(Event::Failed(StoreRefusal::Failed), |()| Event::Summed))
            }
            (Job::Sync, Ok(_)) => self.on_synced(now),
            (Job::Install, Ok(_)) => Some(Event::Installed),
            (Job::Install, Err(EffectError::NotFound)) if self.was_installing => {
                Some(Event::Installed)
            }
            (Job::Install, Err(error)) => Some(Event::NotInstalled((&error).into())),
            (Job::Open | Job::Read { .. } | Job::Sync, Err(error)) => {
                Some(Event::Failed((&error).into()))
            }
            (Job::Open | Job::Read { .. }, Ok(_)) => Some(Event::Failed(StoreRefusal::Failed)),
            (Job::Repair { .. } | Job::Forget | Job::Own(_), _) => None,
        }
    }

    fn on_opened<A: Alarm, J>(
        &mut self,
        shared: &mut Shared<A, J>,
        handle: Handle,
        ranges: &mut Ranges,
        file: FileId,
        len: u64,
    ) -> Option<Event> {
        if matches!(self.step, Step::Left | Step::Discarded) {
            shared.close(file);
            if self.step == Step::Discarded {
                // Opening created the file, perhaps after it was deleted.
                self.delete(shared, handle);
            }
            return None;
        }
        self.spool.opened(shared, handle, file, len, ranges);
        self.safe.remove(len, u64::MAX);
        Some(Event::Opened)
    }

    fn on_synced(&mut self, now: Time) -> Option<Event> {
        self.syncs = self.syncs.saturating_sub(1);
        if self.syncs > 0 {
            return None;
        }
        let save = self.save.take();
        match self.step {
            Step::Receiving => {
                let Save { parts, began } = save?;
                (self.safe, self.save_took) = (parts, now.since(began));
                Some(Event::Saved)
            }
            Step::Syncing => {
                self.step = Step::Stored;
                Some(Event::Stored)
            }
            Step::Verifying | Step::Stored | Step::Installing | Step::Left | Step::Discarded => {
                None
            }
        }
    }
}
