//! Queue of bytes to send over a stream.

use std::collections::VecDeque;

use bytes::Bytes;

/// Queued bytes, and counters.
#[derive(Debug, Default)]
pub(super) struct Out {
    bytes: VecDeque<Bytes>,
    /// Bytes queued since the start.
    put: u64,
    /// Bytes taken by the driver.
    taken: u64,
}

impl Out {
    pub(super) fn push(&mut self, bytes: Bytes) {
        if !bytes.is_empty() {
            self.put += bytes.len() as u64;
            self.bytes.push_back(bytes);
        }
    }

    /// Bytes in the queue.
    pub(super) const fn waiting(&self) -> usize {
        (self.put - self.taken) as usize
    }

    /// Bytes queued since the start.
    pub(super) const fn put(&self) -> u64 {
        self.put
    }

    /// Bytes taken by the driver.
    pub(super) const fn taken(&self) -> u64 {
        self.taken
    }

    /// Fills `place`, which is not longer than the queue.
    pub(super) fn fill(&mut self, mut place: &mut [u8]) {
        while !place.is_empty() {
            let Some(bytes) = self.bytes.front_mut() else { return };
            let here = bytes.len().min(place.len());
            let (filled, later) = place.split_at_mut(here);
            filled.copy_from_slice(&bytes.split_to(here));
            place = later;
            self.taken += here as u64;
            if bytes.is_empty() {
                self.bytes.pop_front();
            }
        }
    }
}
