//! The best-effort transport service, BETS: both sides go on without what is lost (CCSDS 714.0-B-2).

use std::time::Duration;

use crate::settings;

settings! {
    /// Bounds of what either side tries. The defaults are the reference implementation's.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Bets {
        /// Time after which a receiver that has read all before a hole continues without it.
        pub receive_timeout: Duration as Span [Interval] = Duration::from_micros(1_048_577),
        /// Transmissions of a segment after which a sender gives it up.
        pub transmissions: u32 as Number [Least(1)] = 20,
        /// Holes that wait to be fetched by the user, in either direction. With so many nothing
        /// further is left out.
        pub holes: usize as Number = 50,
    }
}

/// Bytes that were left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hole {
    /// Bytes of the stream before it.
    pub offset: u64,
    /// Bytes it is long.
    pub bytes: u64,
}

/// What was left out since the user asked last.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Holes {
    /// Bytes that did not come: what is read in their place is zeros.
    pub received: Vec<Hole>,
    /// Bytes that were given up.
    pub sent: Vec<Hole>,
}

/// The state of the service.
#[derive(Clone, Debug, Default)]
pub(crate) struct BestEffort {
    holes: Holes,
}

impl BestEffort {
    pub(crate) fn take(&mut self) -> Holes {
        std::mem::take(&mut self.holes)
    }

    /// Whether one more received hole can be told of.
    pub(crate) fn may_skip(&self, bets: &Bets) -> bool {
        self.holes.received.len() < bets.holes
    }

    /// Whether a hole at `offset` that was sent can be told of: one that follows the last joins it.
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
