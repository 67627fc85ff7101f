//! Incomplete block of a received object.

use std::collections::BTreeMap;

use bytes::{Bytes, BytesMut};
use engine::Time;

use super::{Bits, Shape};
use crate::bits::{join, len_of, runs, skip, take};
use crate::coding::{Coding, SURPLUS_MAX};
use crate::message::Form;

/// Incomplete block.
#[derive(Debug, Default)]
pub(super) struct Block {
    /// Source segments at their places, up to the last one received; parity takes places of missing
    /// ones.
    pub(super) buffer: BytesMut,
    pub(super) have: Bits,
    /// Parity segments by the places they take.
    pub(super) parity: BTreeMap<u16, u16>,
    /// No earlier place is free: places never become free again.
    free_from: u16,
    pub(super) cost: usize,
    /// Symbols requested by other receivers.
    pub(super) by_others: Bits,
    /// Time of the last request, and whether anything requested has arrived since.
    pub(super) requested_at: Option<Time>,
    pub(super) is_answered: bool,
    /// Whether there was no memory for the block: its segments go to the file directly, and parity
    /// is useless.
    pub(super) is_direct: bool,
    /// Parity segment of a block in the file that has no place there.
    pub(super) spare: Option<Bytes>,
    /// Parity segments beyond the missing ones, by their numbers: the code needs more than the
    /// block has segments.
    pub(super) extra: Vec<(u16, Bytes)>,
    /// Number of recoveries for which the segments did not suffice.
    surplus: u16,
    /// Whether enough segments of a block in the file arrived, and the rest is being recovered.
    pub(super) is_recovering: bool,
    /// Number of source segments of a block in memory that were written to the file.
    written: u32,
}

impl Block {
    pub(super) fn new(buffer: BytesMut, cost: usize) -> Self {
        Self { buffer, cost, is_answered: true, ..Self::default() }
    }

    /// Puts a segment at a place; the rest of a shorter one is zeros.
    #[inline]
    fn put(&mut self, place: u16, segment: usize, payload: &[u8]) {
        let at = usize::from(place) * segment;
        if self.buffer.len() < at {
            self.buffer.resize(at, 0);
        }
        if self.buffer.len() == at {
            self.buffer.extend_from_slice(payload);
        } else {
            let end = self.buffer.len().max(at + payload.len());
            self.buffer.resize(end, 0);
            self.buffer[at..at + payload.len()].copy_from_slice(payload);
        }
        if self.buffer.len() < at + segment {
            self.buffer.resize(at + segment, 0);
        }
        self.buffer[at + payload.len()..at + segment].fill(0);
    }

    /// Takes the runs of source segments to write to the file, if any arrived since the last time.
    pub(super) fn take_unwritten(&mut self, block_len: u16) -> Vec<(u16, u16)> {
        let source = self.have.len() - self.have.len_from(block_len);
        if self.is_direct || source == std::mem::replace(&mut self.written, source) {
            return Vec::new();
        }
        runs(self.have.iter().take_while(|symbol| *symbol < block_len))
    }

    /// Forgets requests, those of others, too.
    pub(super) fn forget_requests(&mut self) {
        (self.requested_at, self.is_answered) = (None, true);
        self.by_others = Bits::new();
    }

    /// Forgets source segments from `first` on, except places that parity takes.
    pub(super) fn forget_from(&mut self, first: u16, block_len: u16) {
        let beyond: Vec<_> =
            self.have.iter().filter(|symbol| (first..block_len).contains(symbol)).collect();
        beyond.into_iter().for_each(|symbol| self.have.remove(symbol));
        self.free_from = 0;
    }

    /// Forgets all parity.
    pub(super) fn forget_parity(&mut self) {
        let placed = std::mem::take(&mut self.parity).into_values();
        let extra = std::mem::take(&mut self.extra).into_iter().map(|(symbol, _)| symbol);
        placed.chain(extra).for_each(|symbol| self.have.remove(symbol));
        (self.spare, self.surplus, self.free_from) = (None, 0, 0);
    }

    /// Place of a missing source segment that no parity takes.
    pub(super) fn free_place(&mut self, block_len: u16) -> Option<u16> {
        let is_free = |place: &u16| !self.have.contains(*place) && !self.parity.contains_key(place);
        let place = (self.free_from..block_len).find(is_free);
        self.free_from = place.unwrap_or(block_len);
        place
    }

    /// Moves parity away from the place of a source segment that arrived.
    #[inline]
    pub(super) fn make_place(&mut self, symbol: u16, block_len: u16, segment: usize) {
        let Some(parity) = self.parity.remove(&symbol) else { return };
        let from = usize::from(symbol) * segment;
        // Until a recovery fails, there are as many places as segments.
        let Some(place) = self.free_place(block_len) else {
            let bytes = Bytes::copy_from_slice(&self.buffer[from..from + segment]);
            self.extra.push((parity, bytes));
            return;
        };
        let to = usize::from(place) * segment;
        if self.buffer.len() < to + segment {
            self.buffer.resize(to + segment, 0);
        }
        self.buffer.copy_within(from..from + segment, to);
        self.parity.insert(place, parity);
    }

    /// Drops the parity at the place of a source segment of a block in the file. The segments may
    /// suffice now, although a recovery with the same number of them failed.
    pub(super) fn drop_parity(&mut self, symbol: u16) {
        if let Some(parity) = self.parity.remove(&symbol) {
            self.have.remove(parity);
            self.surplus = 0;
        }
    }

    /// Number of segments with which a recovery is worth a try.
    pub(super) fn needed(&self, block_len: u16) -> u32 {
        u32::from(block_len) + u32::from(self.surplus)
    }

    /// Wants another segment after a recovery that failed. Segments that never suffice are forged:
    /// all parity is forgotten.
    pub(super) fn want_another(&mut self) {
        self.is_recovering = false;
        self.surplus += 1;
        if self.surplus > SURPLUS_MAX {
            self.forget_parity();
        }
    }

    /// Rows of the extra parity segments, with their bytes.
    pub(super) fn extra_rows(&self, block_len: u16) -> Vec<(u16, Bytes)> {
        let row = |(symbol, bytes): &(u16, Bytes)| (symbol - block_len, bytes.clone());
        self.extra.iter().map(row).collect()
    }

    /// Whether it was requested after `since`. With `>`, a timer that fires exactly at the end of
    /// the hold-off finds the request due again.
    pub(super) fn was_requested(&self, since: Time) -> bool {
        self.requested_at.is_some_and(|at| at > since)
    }

    /// Whether what it lacks is to be requested, if that was not done after `since`.
    pub(super) fn is_due(&self, since: Time) -> bool {
        !self.is_recovering && !self.was_requested(since)
    }

    /// Whether others requested everything in `wanted`. Any parity segment repairs any loss, so
    /// only the number of requested parity segments counts.
    pub(super) fn is_requested(&self, wanted: &[(u16, u16)], block_len: u16) -> bool {
        let is_listed = |(first, last): &(u16, u16)| {
            let source = *first..block_len.min(last + 1);
            self.by_others.gaps(source).next().is_none()
        };
        let parity = |(first, last): &(u16, u16)| (last + 1).saturating_sub(block_len.max(*first));
        let parity: u32 = wanted.iter().map(|run| u32::from(parity(run))).sum();
        self.by_others.len_from(block_len) >= parity && wanted.iter().all(is_listed)
    }

    /// Notes segments that another receiver requests of a block with `parity` parity segments.
    pub(super) fn note_others(
        &mut self,
        form: Form,
        first: u16,
        last: u16,
        block_len: u16,
        parity: u16,
    ) {
        let (first, end) = match form {
            // Here the symbol number holds a count.
            Form::Erasures => (block_len, block_len.saturating_add(first)),
            Form::Items | Form::Ranges | Form::Other(_) => (first, last.saturating_add(1)),
        };
        if let Some(last) = end.min(block_len.saturating_add(parity)).checked_sub(1) {
            self.by_others.insert_all(first, last);
        }
    }

    /// Adds a segment: a source segment at its place, parity at that of a missing one.
    #[inline]
    pub(super) fn add(&mut self, symbol: u16, block_len: u16, segment: usize, payload: &[u8]) {
        if symbol < block_len {
            self.make_place(symbol, block_len, segment);
            self.put(symbol, segment, payload);
        } else if let Some(place) = self.free_place(block_len) {
            self.put(place, segment, payload);
            self.parity.insert(place, symbol);
        } else {
            self.extra.push((symbol, whole(payload, segment)));
        }
    }

    /// Rows of parity segments, and their places.
    pub(super) fn rows(&self, block_len: u16) -> Vec<(u16, u16)> {
        self.parity.iter().map(|(place, symbol)| (symbol - block_len, *place)).collect()
    }

    /// Bytes of source segments received.
    pub(super) fn counted(&self, shape: &Shape, number: u32) -> u64 {
        let lens = self.have.iter().map(|symbol| shape.partition.segment_len(number, symbol));
        lens.map(u64::from).sum()
    }

    /// Block without memory for its data: it only records which segments arrived.
    pub(super) fn direct(cost: usize) -> Self {
        Self { is_direct: true, ..Self::new(BytesMut::new(), cost) }
    }

    /// Memory needed to record which of `block_len` segments arrived.
    pub(super) fn direct_cost(block_len: u16) -> usize {
        size_of::<Self>() + usize::from(block_len).div_ceil(64) * size_of::<u64>()
    }

    /// Runs of segments to request, as (first, last), with at most `usable` parity segments in the
    /// block.
    ///
    /// A sender of long blocks sends each parity segment once: such blocks want those after the
    /// last one received, and then source segments.
    pub(super) fn wanted(&self, block_len: u16, coding: &Coding, usable: u16) -> Vec<(u16, u16)> {
        let missing: Vec<_> = self.have.gaps(0..block_len).collect();
        if self.is_direct {
            return missing;
        }
        let lacks = self.needed(block_len).saturating_sub(self.have.len());
        let after = self.have.last().filter(|_| coding.is_long()).map_or(0, |last| last + 1);
        let room = usize::from(usable).saturating_sub(self.parity.len() + self.extra.len());
        let most = lacks.min(u32::try_from(room).unwrap_or(u32::MAX));
        let unsent: Vec<_> =
            self.have.gaps(after.max(block_len)..block_len + coding.parity).collect();
        let fresh = take(&unsent, most);
        // Source segments are requested for the part that parity cannot cover.
        let rest = lacks - len_of(&fresh);
        let explicit = skip(&missing, len_of(&missing).saturating_sub(rest));
        join(explicit, fresh)
    }
}

/// Parity segment of full length: the rest is zeros.
pub(super) fn whole(payload: &[u8], segment: usize) -> Bytes {
    let mut whole = vec![0; segment];
    whole[..payload.len()].copy_from_slice(payload);
    whole.into()
}
