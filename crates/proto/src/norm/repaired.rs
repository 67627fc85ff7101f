//! What was sent to repair a block, and how much of what is asked for is still to be sent.
//!
//! Repairs go out as soon as they are asked for. Those who asked later, before they can have heard
//! the repairs, may lack more: then the rest follows. That takes no more repairs than to collect
//! requests first, because parity mends other losses at each receiver, and saves the time of it.

use std::time::Duration;

use engine::Time;

use super::bits::Bits;

/// A block that was repaired.
#[derive(Debug)]
pub(crate) struct Repaired {
    /// Parity segments that were sent, unasked or asked for.
    used: u16,
    /// How many of them before the round of repairs under way.
    before: u16,
    /// How many of them, sent in it, were not asked for.
    spare: u16,
    /// Segments that were sent again by number in this round.
    again: Bits,
    /// Until then, who asks for more of it has not yet got this.
    until: Time,
    /// Whether a round of repairs has begun.
    has_begun: bool,
}

/// What is asked for of a block: the segments by number, and the most that one receiver misses.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wanted<'a> {
    pub(crate) symbols: &'a Bits,
    pub(crate) missing: u16,
}

impl Repaired {
    /// A block with which so much parity was sent unasked.
    pub(crate) fn new(auto_parity: u16) -> Self {
        Self {
            used: auto_parity,
            before: auto_parity,
            spare: 0,
            again: Bits::new(),
            until: Time::ZERO,
            has_begun: false,
        }
    }

    /// Parity that was sent before anything was asked for.
    pub(crate) fn unasked(&self) -> u16 {
        if self.has_begun { 0 } else { self.used }
    }

    /// Receivers ask for more: a round of repairs begins, or goes on. Whether it is the block's
    /// first.
    pub(crate) fn requested(&mut self, now: Time, round_trip: Duration) -> bool {
        if now < self.until {
            return false;
        }
        (self.before, self.spare) = (self.used, 0);
        self.again = Bits::new();
        self.until = now + round_trip;
        !std::mem::replace(&mut self.has_begun, true)
    }

    /// Whether something was sent in this round.
    pub(crate) fn is_under_way(&self) -> bool {
        self.used > self.before || self.again.len() > 0
    }

    /// Parity segments to send besides those that are under way.
    pub(crate) fn lacking(&self, wanted: Wanted<'_>, block_len: u16) -> u16 {
        if !self.is_under_way() {
            return wanted.missing;
        }
        // Receivers that heard of it count it in, and then name the ones that follow; others ask
        // for as many as they miss.
        let next = u32::from(block_len) + u32::from(self.used - self.spare);
        let unsent = wanted.symbols.iter().filter(|symbol| u32::from(*symbol) >= next).count();
        let unsent = u16::try_from(unsent).unwrap_or(u16::MAX);
        unsent.max(wanted.missing.saturating_sub(self.needed()))
    }

    /// Parity segments sent in this round because they were asked for.
    fn needed(&self) -> u16 {
        self.used - self.before - self.spare
    }

    /// So many parity segments more than the `lacking` ones, for those that are lost.
    pub(crate) fn spare(&self, lacking: u16, block_len: u16) -> u16 {
        if lacking == 0 {
            return 0;
        }
        margin(self.needed().saturating_add(lacking), block_len).saturating_sub(self.spare)
    }

    /// Parity segments that were never sent, of `parity`.
    pub(crate) fn left(&self, parity: u16) -> u16 {
        parity.saturating_sub(self.used)
    }

    /// Takes parity that was never sent, which there must be, and up to so much to spare: which
    /// segments, counted from the first parity segment.
    pub(crate) fn take(&mut self, lacking: u16, spare: u16, parity: u16) -> std::ops::Range<u16> {
        let first = self.used;
        let spare = spare.min(self.left(parity).saturating_sub(lacking));
        self.used += lacking + spare;
        self.spare += spare;
        first..self.used
    }

    /// No parity is left that nobody has.
    pub(crate) fn use_up(&mut self, parity: u16) {
        // What is sent by number counts by number.
        self.used = parity;
        (self.before, self.spare) = (parity, 0);
    }

    /// A segment is to be sent again by number; `false` if it is under way.
    pub(crate) fn again(&mut self, symbol: u16) -> bool {
        self.again.insert(symbol)
    }

    /// A repair left: who asks for more before `until` has not yet got it.
    pub(crate) fn went(&mut self, until: Time) {
        self.until = self.until.max(until);
    }
}

/// So many repairs more of a block with `block_len` segments, of which `missing` are lacked, that
/// as many losses among the repairs seldom cost another round: mean and two deviations, at the
/// share of losses that the block had.
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
    fn who_asks_later_gets_the_rest() {
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
        assert_eq!(lacking(&block, &[64, 66, 67], 3), 1, "one that went unasked was lost");
        assert_eq!(block.take(1, 0, 8), 4..5);
        // A round trip later, what is missing was lost.
        assert!(!block.requested(now + ROUND_TRIP, ROUND_TRIP), "it is not the first round");
        assert_eq!(lacking(&block, &[66], 1), 1);
        assert_eq!(block.take(1, 0, 8), 5..6);
        assert_eq!(lacking(&block, &[66, 68], 2), 1);
        assert_eq!(block.left(8), 2);
    }

    #[test]
    fn who_asks_later_gets_some_to_spare() {
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
    fn what_is_sent_by_number_is_sent_once_a_round() {
        let mut block = Repaired::new(0);
        block.requested(Time::ZERO, ROUND_TRIP);
        block.use_up(4);
        assert!(block.again(7) && !block.again(7) && block.again(66));
        block.went(Time::ZERO + 2 * ROUND_TRIP);
        block.requested(Time::ZERO + ROUND_TRIP, ROUND_TRIP);
        assert!(!block.again(7), "it left so much later");
        block.requested(Time::ZERO + 2 * ROUND_TRIP, ROUND_TRIP);
        assert!(block.again(7));
        assert_eq!(block.left(4), 0);
    }

    #[test]
    fn margins() {
        let some = [(1, 64), (3, 64), (10, 64), (32, 64), (1, 1), (0, 64), (5, 6)];
        let margins = some.map(|(missing, block_len)| margin(missing, block_len));
        assert_eq!(margins, [1, 1, 5, 32, 1, 0, 5]);
    }
}
