//! The parts of a block: its red part, its green part and its end, as far as they are known
//! (RFC 5326 §3.1.1).

use wire::ltp::DataKind;

/// The parts of a block.
#[derive(Debug)]
pub(super) struct Extent {
    /// Where the red part ends.
    pub(super) red: Option<u64>,
    /// Where the block ends.
    pub(super) end: Option<u64>,
    /// Where green data begins, as far as it is known.
    pub(super) green: u64,
    /// End of the highest red data that arrived.
    red_front: u64,
}

/// Contradiction of a segment and those before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Misfit {
    /// It has data of one colour where the other is.
    Miscolored,
    /// It lies behind the end.
    Beyond,
    /// It ends a part or the block elsewhere.
    ConflictingEnd,
}

/// Whether the block ends with a segment.
pub(super) fn ends_block(kind: DataKind) -> bool {
    matches!(kind, DataKind::EndOfRedBlock | DataKind::EndOfGreenBlock)
}

impl Extent {
    pub(super) const fn new() -> Self {
        Self { red: None, end: None, green: u64::MAX, red_front: 0 }
    }

    /// The contradiction of a segment and those before, which brought data up to `front`.
    pub(super) fn misfit(
        &self,
        kind: DataKind,
        (start, end): (u64, u64),
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
        // Nor does anything end before what is here.
        let is_low = ends_red && end < self.red_front || is_last && end < front;
        let conflicts = is_low || ends_red && conflict(self.red) || is_last && conflict(self.end);
        conflicts.then_some(Misfit::ConflictingEnd)
    }

    /// Learns from a segment that was taken.
    pub(super) fn learn(&mut self, kind: DataKind, (start, end): (u64, u64)) {
        if kind.is_red() {
            self.red_front = self.red_front.max(end);
        }
        if kind.ends_red() {
            self.red = Some(end);
        }
        if ends_block(kind) {
            self.end = Some(end);
            // A block without a red part ends with this.
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

    /// Whether green data follows the red part: else its last segment would have ended the block.
    pub(super) fn is_mixed(&self) -> bool {
        self.red.is_some_and(|red| red > 0 && self.end.is_none_or(|end| end > red))
    }

    /// Where the red part ends, or at least where green data begins, and whether the former.
    pub(super) fn colors(&self) -> (u64, bool) {
        (self.red.unwrap_or(self.green), self.red.is_some())
    }

    /// No more arrives. If it is not known where the red part ends, it ends where the green one
    /// begins: there is no gap between them.
    pub(super) fn is_over(&mut self) {
        self.red = self.red.or(Some(self.green));
    }
}
