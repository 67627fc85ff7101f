//! Space that is kept free for changes that free space.

use std::io;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use engine::EffectError;
use rustix::fs::FallocateFlags;

use crate::store::free_bytes;
use crate::store::system::reason;

/// Interval at which free space is checked again.
const LOOK: Duration = Duration::from_secs(1);

/// An empty file that takes the space. When the disk is full it is removed.
#[derive(Debug)]
pub(super) struct Reserve {
    path: PathBuf,
    bytes: u64,
    is_taken: bool,
    /// Whether the disk was full when space was last needed.
    is_full: bool,
    /// Time at which free space was last checked.
    looked: Instant,
}

impl Reserve {
    /// Reserves the space, if possible.
    pub(super) fn new(path: PathBuf, bytes: u64) -> Self {
        let mut reserve =
            Self { path, bytes, is_taken: false, is_full: false, looked: Instant::now() };
        reserve.take();
        reserve
    }

    fn take(&mut self) {
        let taken = || -> io::Result<()> {
            let options = &mut std::fs::File::options();
            let file = options.write(true).create(true).truncate(false).open(&self.path)?;
            if self.bytes > 0 {
                rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, self.bytes)?;
            }
            file.set_len(self.bytes)
        };
        let taken = taken().map_err(|error| reason(&error));
        if let Err(why) = &taken {
            tracing::debug!("no room is kept free: {why}");
            // A partial reserve would be useless.
            let _ = std::fs::remove_file(&self.path);
        }
        self.is_taken = taken.is_ok();
        self.is_full = taken == Err(EffectError::NoSpace);
    }

    /// Notes that the disk is full.
    pub(super) fn note_full(&mut self) {
        (self.is_full, self.looked) = (true, Instant::now());
    }

    /// Frees the space.
    pub(super) fn give_up(&mut self) {
        if self.is_taken {
            // If another process removed the file, the space is free as well.
            let _ = std::fs::remove_file(&self.path);
            self.is_taken = false;
        }
        self.note_full();
    }

    /// Whether the disk was full when space was last needed.
    pub(super) const fn is_full(&self) -> bool {
        self.is_full
    }

    /// Looks whether the disk is still full: if twice the space is free, it is reserved again.
    pub(super) fn look(&mut self) {
        if self.is_taken && !self.is_full || self.looked.elapsed() < LOOK {
            return;
        }
        self.looked = Instant::now();
        let free = self.path.parent().and_then(|directory| free_bytes(directory).ok());
        if free.is_none_or(|free| free <= 2 * self.bytes) {
            return;
        }
        self.is_full = false;
        if !self.is_taken {
            self.take();
        }
    }
}
