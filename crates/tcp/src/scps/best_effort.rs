//! Best-effort transport service, BETS: both sides continue without lost data (CCSDS 714.0-B-2).

use std::time::Duration;

use session::settings;

settings! {
    /// Limits of the service. The defaults are the reference implementation's.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Bets {
        /// Time after which a receiver that has read everything before a hole skips it.
        pub receive_timeout: Duration as Span [Interval] = Duration::from_micros(1_048_577),
        /// Transmissions of a segment after which a sender gives up on it.
        pub transmissions: u32 as Number [Least(1)] = 20,
        /// Holes in either direction that wait to be fetched by the user. At this number nothing
        /// more is skipped.
        pub holes: usize as Number = 50,
    }
}

/// Skipped range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hole {
    /// Stream offset.
    pub offset: u64,
    /// Length in bytes.
    pub bytes: u64,
}

/// Data skipped since the last call.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Holes {
    /// Missing ranges, which are read as zeros.
    pub received: Vec<Hole>,
    /// Ranges that the sender gave up.
    pub sent: Vec<Hole>,
}

/// State of the service.
#[derive(Clone, Debug, Default)]
pub(crate) struct BestEffort {
    holes: Holes,
}

impl BestEffort {
    pub(crate) fn take(&mut self) -> Holes {
        std::mem::take(&mut self.holes)
    }

    /// Whether another received hole can be reported.
    pub(crate) fn may_skip(&self, bets: &Bets) -> bool {
        self.holes.received.len() < bets.holes
    }

    /// Whether a sent hole at `offset` can be reported; a hole that follows the last one is joined
    /// to it.
    pub(crate) fn may_give_up(&self, bets: &Bets, offset: u64) -> bool {
        let joins = |hole: &Hole| hole.offset + hole.bytes == offset;
        self.holes.sent.len() < bets.holes || self.holes.sent.last().is_some_and(joins)
    }

    pub(crate) fn skipped(&mut self, offset: u64, bytes: u64) {
        add(&mut self.holes.received, Hole { offset, bytes });
    }

    pub(crate) fn gave_up(&mut self, offset: u64, bytes: u64) {
        add(&mut self.holes.sent, Hole { offset, bytes });
    }

    pub(crate) fn memory(&self) -> usize {
        (self.holes.received.len() + self.holes.sent.len()) * size_of::<Hole>()
    }
}

fn add(holes: &mut Vec<Hole>, hole: Hole) {
    match holes.last_mut() {
        Some(last) if last.offset + last.bytes == hole.offset => last.bytes += hole.bytes,
        Some(_) | None => holes.push(hole),
    }
}
