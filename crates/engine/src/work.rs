//! Computations over an open file, off the packet path.

use std::fmt::{self, Debug};
use std::sync::Arc;

use bytes::Bytes;

use crate::EffectError;

/// An open file, for a [`FileJob`].
pub trait FileBytes {
    /// Reads bytes from `offset` on. Returns their number, which is less than the length of `to`
    /// only at the end of the file.
    ///
    /// # Errors
    ///
    /// Errors of the store.
    fn read_at(&mut self, offset: u64, to: &mut [u8]) -> Result<usize, EffectError>;

    /// Writes bytes from `offset` on.
    ///
    /// # Errors
    ///
    /// Errors of the store.
    fn write_at(&mut self, offset: u64, bytes: &[u8]) -> Result<(), EffectError>;
}

/// Computation over an open file.
///
/// It depends on nothing but the file and itself, so that a simulation stays deterministic.
pub trait FileJob: Debug + Send + Sync {
    /// Carries it out, and returns its result.
    ///
    /// # Errors
    ///
    /// Errors of the store.
    fn run(&self, file: &mut dyn FileBytes) -> Result<Bytes, EffectError>;

    /// Number of bytes that it reads and writes, by which slow stores charge for it.
    fn cost(&self) -> u64;
}

/// A [`FileJob`] in an effect. Copies are the same computation.
#[derive(Clone)]
pub struct Work(Arc<dyn FileJob>);

impl Work {
    /// Wraps a computation.
    pub fn new(job: impl FileJob + 'static) -> Self {
        Self(Arc::new(job))
    }

    /// Carries it out, and returns its result.
    ///
    /// # Errors
    ///
    /// Errors of the store.
    pub fn run(&self, file: &mut dyn FileBytes) -> Result<Bytes, EffectError> {
        self.0.run(file)
    }

    /// Number of bytes that it reads and writes.
    #[must_use]
    pub fn cost(&self) -> u64 {
        self.0.cost()
    }
}

impl Debug for Work {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl PartialEq for Work {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for Work {}
