//! Repairs sent for a block, and the part of new requests that they do not cover.
//!
//! Repairs are sent as soon as they are requested. Receivers whose later requests cannot account
//! for those repairs may lack more: then only the difference follows. This takes no more repairs
//! than collecting requests first, because parity repairs different losses at each receiver, and
//! it saves the waiting time.

use std::time::Duration;

use engine::Time;

use super::bits::Bits;

/// Repair state of a block.
#[derive(Debug, Default)]
pub(crate) struct Repaired {
    /// Parity segments sent, proactively or on request.
    used: u16,
    /// Number of parity segments sent before the current round of repairs.
    before: u16,
    /// Number of parity segments sent in this round as spares.
    spare: u16,
    /// Source segments retransmitted in this round.
    again: Bits,
    /// When this round began, or its last repair was sent: requests cannot account for it until a
    /// round trip later.
    since: Option<Time>,
    /// Whether a round of repairs has started.
    has_begun: bool,
}

/// Requested part of a block: segments by number, and the largest number that one receiver misses.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wanted<'a> {
    pub(crate) symbols: &'a Bits,
    pub(crate) missing: u16,
}

impl Repaired {
    /// Block with `auto_parity` proactive parity segments.
    pub(crate) fn new(auto_parity: u16) -> Self {
        Self { used: auto_parity, before: auto_parity, ..Self::default() }
    }

    /// Number of parity segments sent before any request.
    pub(crate) fn proactive(&self) -> u16 {
        if self.has_begun { 0 } else { self.used }
    }

    /// Begins or continues a round of repairs. Returns whether the round is the block's first.
    pub(crate) fn requested(&mut self, now: Time, round_trip: Duration) -> bool {
        if self.is_in_flight(now, round_trip) {
            return false;
        }
        (self.before, self.spare) = (self.used, 0);
        self.again = Bits::new();
        self.since = Some(now);
        !std::mem::replace(&mut self.has_begun, true)
    }

    /// Whether requests cannot account for this round's repairs yet. The round trip is the present
    /// estimate: it may have changed since.
    fn is_in_flight(&self, now: Time, round_trip: Duration) -> bool {
        self.since.is_some_and(|since| now < since + round_trip)
    }

    /// Whether anything was sent in this round.
    pub(crate) fn is_under_way(&self) -> bool {
        self.used > self.before || self.again.len() > 0
    }

    /// Number of parity segments to send in addition to the ones in flight.
    pub(crate) fn lacking(&self, wanted: Wanted<'_>, block_len: u16) -> u16 {
        if !self.is_under_way() {
            return wanted.missing;
        }
        // Receivers that know of this parity count it, and name the segments after it; others
        // request as many segments as they lack.
        let next = u32::from(block_len) + u32::from(self.used - self.spare);
        let unsent = wanted.symbols.iter().filter(|symbol| u32::from(*symbol) >= next).count();
        let unsent = u16::try_from(unsent).unwrap_or(u16::MAX);
        unsent.max(wanted.missing.saturating_sub(self.needed()))
    }

    /// Parity segments sent in this round because they were requested.
    fn needed(&self) -> u16 {
        self.used - self.before - self.spare
    }

    /// Number of spare parity segments in addition to the `lacking` ones, to cover losses among the
    /// repairs.
    pub(crate) fn spare(&self, lacking: u16, block_len: u16) -> u16 {
        if lacking == 0 {
            return 0;
        }
        margin(self.needed().saturating_add(lacking), block_len).saturating_sub(self.spare)
    }

    /// Number of unsent parity segments, of `parity`.
    pub(crate) fn left(&self, parity: u16) -> u16 {
        parity.saturating_sub(self.used)
    }

    /// Takes unsent parity: `lacking` segments, which must exist, and up to `spare` more. Returns
    /// the rows, counted from the first parity segment.
    pub(crate) fn take(&mut self, lacking: u16, spare: u16, parity: u16) -> std::ops::Range<u16> {
        let first = self.used;
        let spare = spare.min(self.left(parity).saturating_sub(lacking));
        self.used += lacking + spare;
        self.spare += spare;
        first..self.used
    }

    /// Marks all parity as sent.
    pub(crate) fn use_up(&mut self, parity: u16) {
        // Segments sent by number are counted by number.
        self.used = parity;
        (self.before, self.spare) = (parity, 0);
    }

    /// Retransmits a segment by number. Returns `false` if that is already under way.
    pub(crate) fn again(&mut self, symbol: u16) -> bool {
        self.again.insert(symbol)
    }

    /// Whether all `block_len` source segments were retransmitted, which requests cannot account for
    /// yet.
    pub(crate) fn covers(&self, now: Time, round_trip: Duration, block_len: u16) -> bool {
        let source = self.again.len() - self.again.len_from(block_len);
        self.is_in_flight(now, round_trip) && source >= u32::from(block_len)
    }

    /// Notes a sent repair.
    pub(crate) fn on_sent(&mut self, at: Time) {
        self.since = self.since.max(Some(at));
    }
}

/// Number of spare repairs for a block with `block_len` segments of which `missing` are lacking,
/// so that losses among the repairs seldom cost another round. It is the mean plus two standard
/// deviations, at the block's loss rate.
///
/// 3 of 64: 3 · 0.047 / 0.953 + 2 · sqrt(3 · 0.047) = 0.9, so 1; 10 of 64: 1.9 + 2.5, so 5.
fn margin(missing: u16, block_len: u16) -> u16 {
    let count = f64::from(missing);
    let share = (count / f64::from(block_len.max(1))).min(0.5);
    let more = count * share / (1.0 - share) + 2.0 * (count * share).sqrt();
    (more.ceil() as u16).min(missing)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bits(symbols: &[u16]) -> Bits {
        let mut bits = Bits::new();
        symbols.iter().for_each(|symbol| {
            bits.insert(*symbol);
        });
        bits
    }

    const ROUND_TRIP: Duration = Duration::from_millis(100);

    #[test]
    fn later_requests_get_the_rest() {
        let mut block = Repaired::new(2);
        let now = Time::from_nanos(1);
        let lacking = |block: &Repaired, symbols: &[u16], missing| {
            let symbols = bits(symbols);
            block.lacking(Wanted { symbols: &symbols, missing }, 64)
        };
        assert!(block.requested(now, ROUND_TRIP));
        assert_eq!(lacking(&block, &[66, 67], 2), 2);
        assert_eq!(block.take(2, 0, 8), 2..4);
        assert!(!block.requested(now, ROUND_TRIP), "it is under way");
        assert_eq!(lacking(&block, &[66], 1), 0);
        assert_eq!(lacking(&block, &[66, 67, 68], 3), 1, "it misses one more");
        assert_eq!(lacking(&block, &[67, 68], 2), 1, "it has heard one of two");
        assert_eq!(lacking(&block, &[64, 66, 67], 3), 1, "one that went proactive was lost");
        assert_eq!(block.take(1, 0, 8), 4..5);
        // One round trip later, missing repairs were lost.
        assert!(!block.requested(now + ROUND_TRIP, ROUND_TRIP), "it is not the first round");
        assert_eq!(lacking(&block, &[66], 1), 1);
        assert_eq!(block.take(1, 0, 8), 5..6);
        assert_eq!(lacking(&block, &[66, 68], 2), 1);
        assert_eq!(block.left(8), 2);
    }

    #[test]
    fn later_requests_get_spare_parity() {
        let mut block = Repaired::new(0);
        block.requested(Time::ZERO, ROUND_TRIP);
        let mut ask = |symbols: &[u16]| {
            let symbols = bits(symbols);
            let missing = symbols.len() as u16;
            let lacking = block.lacking(Wanted { symbols: &symbols, missing }, 64);
            block.take(lacking, block.spare(lacking, 64), 14)
        };
        assert_eq!(ask(&[64]), 0..2, "and one to spare");
        assert!(ask(&[64]).is_empty());
        assert_eq!(ask(&[64, 65, 66]), 2..4);
        assert_eq!(ask(&[65, 66, 67]), 4..6, "it has heard one");
        let many: Vec<_> = (64..74).collect();
        assert_eq!(ask(&many), 6..14, "the last there are");
    }

    #[test]
    fn requested_segments_are_sent_once_per_round() {
        let mut block = Repaired::new(0);
        block.requested(Time::ZERO, ROUND_TRIP);
        block.use_up(4);
        assert!(block.again(7) && !block.again(7) && block.again(66));
        block.on_sent(Time::ZERO + ROUND_TRIP);
        block.requested(Time::ZERO + ROUND_TRIP, ROUND_TRIP);
        assert!(!block.again(7), "it left so much later");
        block.requested(Time::ZERO + 2 * ROUND_TRIP, ROUND_TRIP);
        assert!(block.again(7));
        assert_eq!(block.left(4), 0);
    }

    #[test]
    fn repair_margins_match_examples() {
        let some = [(1, 64), (3, 64), (10, 64), (32, 64), (1, 1), (0, 64), (5, 6)];
        let margins = some.map(|(missing, block_len)| margin(missing, block_len));
        assert_eq!(margins, [1, 1, 5, 32, 1, 0, 5]);
    }
}
