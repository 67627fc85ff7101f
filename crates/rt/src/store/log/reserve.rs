//! Space that is kept free for changes that free space.

use std::io;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use engine::EffectError;
use rustix::fs::FallocateFlags;

use crate::store::disk::reason;
use crate::store::free_bytes;

/// Interval at which free space is checked again.
const LOOK: Duration = Duration::from_secs(1);

/// An empty file that takes the space. When the disk is full it is removed.
#[derive(Debug)]
pub(super) struct Reserve {
    path: PathBuf,
    bytes: u64,
    /// Time at which the reserved space was given up, or at which reserving was last retried.
    missing_since: Option<Instant>,
    /// Whether it is missing because the disk is full.
    is_full: bool,
}

impl Reserve {
    /// Reserves the space, if possible.
    pub(super) fn new(path: PathBuf, bytes: u64) -> Self {
        let mut reserve = Self { path, bytes, missing_since: None, is_full: false };
        reserve.take();
        reserve
    }

    fn take(&mut self) {
        let taken = || -> io::Result<()> {
            let file = std::fs::File::create(&self.path)?;
            if self.bytes > 0 {
                rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, self.bytes)?;
            }
            Ok(())
        };
        let taken = taken().map_err(|error| reason(&error));
        if let Err(why) = &taken {
            tracing::debug!("no room is kept free: {why}");
            // A partial reserve would be useless.
            let _ = std::fs::remove_file(&self.path);
        }
        self.missing_since = taken.is_err().then(Instant::now);
        self.is_full = taken == Err(EffectError::NoSpace);
    }

    pub(super) fn give_up(&mut self) {
        if self.missing_since.is_none() {
            // If another process removed the file, the space is free as well.
            let _ = std::fs::remove_file(&self.path);
            self.missing_since = Some(Instant::now());
        }
        self.is_full = true;
    }

    /// Whether the disk was full when space was last needed.
    pub(super) const fn is_full(&self) -> bool {
        self.is_full
    }

    /// Reserves the space again when twice as much is free.
    pub(super) fn look(&mut self) {
        if self.missing_since.is_none_or(|since| since.elapsed() < LOOK) {
            return;
        }
        self.missing_since = Some(Instant::now());
        let free = self.path.parent().and_then(|directory| free_bytes(directory).ok());
        if free.is_some_and(|free| free > 2 * self.bytes) {
            self.take();
        }
    }
}
