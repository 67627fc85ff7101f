//! Known extent of a block: its red part, its green part and its end (RFC 5326 §3.1.1).

use crate::segment::DataKind;

/// Known extent of a block.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Extent {
    /// End of the red part.
    pub(super) red: Option<u64>,
    /// End of the block.
    pub(super) end: Option<u64>,
    /// Known start of green data.
    pub(super) green: u64,
    /// End of the highest red data received.
    pub(super) red_front: u64,
}

/// Contradiction between a segment and earlier ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Misfit {
    /// The segment's colour differs from known data at the same place.
    Miscolored,
    /// The segment lies beyond the end.
    Beyond,
    /// The segment ends a part or the block at another place.
    ConflictingEnd,
}

/// Whether a segment ends the block.
pub(super) fn ends_block(kind: DataKind) -> bool {
    matches!(kind, DataKind::EndOfRedBlock | DataKind::EndOfGreenBlock)
}

impl Extent {
    pub(super) const fn new() -> Self {
        Self { red: None, end: None, green: u64::MAX, red_front: 0 }
    }

    /// Contradiction between a segment and earlier ones, whose data extends to `front`.
    pub(super) fn misfit(
        &self,
        kind: DataKind,
        start: u64,
        end: u64,
        front: u64,
    ) -> Option<Misfit> {
        let is_miscolored = if kind.is_red() {
            end > self.green || self.red.is_some_and(|red| end > red)
        } else {
            start < self.red_front || self.red.is_some_and(|red| start < red)
        };
        if is_miscolored {
            return Some(Misfit::Miscolored);
        }
        if self.end.is_some_and(|known| end > known) {
            return Some(Misfit::Beyond);
        }
        let conflict = |known: Option<u64>| known.is_some_and(|known| known != end);
        let (ends_red, is_last) = (kind.ends_red(), ends_block(kind));
        // Nothing ends before received data either.
        let is_low = ends_red && end < self.red_front || is_last && end < front;
        let conflicts = is_low || ends_red && conflict(self.red) || is_last && conflict(self.end);
        conflicts.then_some(Misfit::ConflictingEnd)
    }

    /// Learns from an accepted segment.
    pub(super) fn learn(&mut self, kind: DataKind, start: u64, end: u64) {
        if kind.is_red() {
            self.red_front = self.red_front.max(end);
        }
        if kind.ends_red() {
            self.red = Some(end);
        }
        if ends_block(kind) {
            self.end = Some(end);
            // Such a segment ends a block without a red part.
            if !kind.is_red() && self.red.is_none() && self.green == 0 {
                self.red = Some(0);
            }
        }
        if !kind.is_red() {
            self.green = self.green.min(start);
            if self.green == 0 {
                self.red = Some(0);
            }
        }
    }

    /// Whether green data follows the red part: otherwise the last segment of the red part would
    /// have ended the block.
    pub(super) fn is_mixed(&self) -> bool {
        self.red.is_some_and(|red| red > 0 && self.end.is_none_or(|end| end > red))
    }

    /// End of the red part, or the known start of green data. The flag is set for the former.
    pub(super) fn colors(&self) -> (u64, bool) {
        (self.red.unwrap_or(self.green), self.red.is_some())
    }

    /// Fixes the extent when no more data arrives. A red part without a known end then ends where
    /// green data starts: there is no gap between them.
    pub(super) fn fix_end(&mut self) {
        self.red = self.red.or(Some(self.green));
    }
}
