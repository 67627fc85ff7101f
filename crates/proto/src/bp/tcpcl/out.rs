//! What is to be sent next over a stream.

use std::collections::VecDeque;

use bytes::Bytes;

/// Octets that wait to be sent, and how many did.
#[derive(Debug, Default)]
pub(super) struct Out {
    octets: VecDeque<Bytes>,
    /// Octets that were ever put here.
    put: u64,
    /// Octets that the driver took.
    taken: u64,
}

impl Out {
    pub(super) fn push(&mut self, octets: Bytes) {
        if !octets.is_empty() {
            self.put += octets.len() as u64;
            self.octets.push_back(octets);
        }
    }

    /// Octets that wait.
    pub(super) const fn waiting(&self) -> usize {
        (self.put - self.taken) as usize
    }

    /// Octets that were ever put here.
    pub(super) const fn put(&self) -> u64 {
        self.put
    }

    /// Octets that the driver took.
    pub(super) const fn taken(&self) -> u64 {
        self.taken
    }

    /// Fills `place`, which is not longer than what waits.
    pub(super) fn fill(&mut self, mut place: &mut [u8]) {
        while !place.is_empty() {
            let Some(octets) = self.octets.front_mut() else { return };
            let here = octets.len().min(place.len());
            let (filled, later) = place.split_at_mut(here);
            filled.copy_from_slice(&octets.split_to(here));
            place = later;
            self.taken += here as u64;
            if octets.is_empty() {
                self.octets.pop_front();
            }
        }
    }
}
