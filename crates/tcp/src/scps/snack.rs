//! Selective negative acknowledgments: the receiver's report of a hole, and the sender's use of it
//! (CCSDS 714.0-B-2).
//!
//! Holes are counted from the acknowledgment number of the same segment, in units known to both
//! sides. A unit is the smaller segment size of the two SYNs, minus the options of every data
//! segment (12 bytes with timestamps). A hole starts at its unit, rounded down, and has enough
//! units to cover it. With units of 1,448 bytes and 2,896 to 4,500 missing: offset 2, size 2.

use std::time::Duration;

use engine::Time;
use session::settings;

use crate::reassembly::Reassembly;

settings! {
    /// Settings of selective negative acknowledgments.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Snack {
        /// Offered form. A peer that only supports the short form gets the short form.
        pub form: SnackForm = SnackForm::Short,
        /// Age of a hole before it is reported, which should exceed the time by which the path may
        /// reorder packets.
        pub delay("snack_delay"): Duration as Span = Duration::ZERO,
        /// Number of reports of the first hole before the next ones are reported.
        pub repeats("snack_repeats"): u32 as Number [Least(1)] = 3,
    }
}

/// Form of SNACK.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum SnackForm {
    /// One hole.
    #[default]
    Short,
    /// One hole, and a bit for each following unit.
    Bits,
}

/// Maximum bytes of a bit vector in a header with timestamps: 40 minus 12 for those, 2 of padding
/// and 6 for the rest of the option.
pub(crate) const BITS_MAX: usize = 20;

/// Content of one SNACK option.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SnackOption {
    pub(crate) offset: u16,
    pub(crate) size: u16,
    bits: [u8; BITS_MAX],
    len: u8,
}

impl SnackOption {
    pub(crate) fn bits(&self) -> &[u8] {
        &self.bits[..usize::from(self.len)]
    }
}

/// Receiving half: choice of the next hole to report.
#[derive(Clone, Debug, Default)]
pub(crate) struct Snacking {
    /// Acknowledgment number for which the first hole was reported, and the number of reports.
    first: u64,
    repeated: u32,
    /// Position before which holes were reported in this round, and its start.
    cursor: u64,
    round_at: Option<Time>,
    /// Times at which data first arrived beyond earlier data: those that matter for the delay,
    /// oldest first.
    beyond: Vec<(Time, u64)>,
    /// End of the data received when the delay began.
    ripe: u64,
}

/// Number of times remembered while a delay runs; further arrivals share one.
const MOMENTS: usize = 16;

impl Snacking {
    /// Notes data up to `end`, beyond a hole.
    pub(crate) fn arrived(&mut self, now: Time, snack: &Snack, end: u64) {
        if snack.delay.is_zero() {
            self.ripe = self.ripe.max(end);
            return;
        }
        if self.beyond.last().is_some_and(|(_, highest)| *highest >= end) {
            return;
        }
        if self.beyond.len() == MOMENTS {
            // The later time covers both, so that nothing is reported too early.
            self.beyond.remove(MOMENTS / 2);
        }
        self.beyond.push((now, end));
    }

    /// Time at which the next hole held back by its delay is due.
    pub(crate) fn due_at(&self, snack: &Snack) -> Option<Time> {
        self.beyond.first().map(|(at, _)| *at + snack.delay)
    }

    pub(crate) fn ripen(&mut self, now: Time, snack: &Snack) {
        while let Some((at, end)) = self.beyond.first().copied() {
            if at + snack.delay > now {
                break;
            }
            self.ripe = self.ripe.max(end);
            self.beyond.remove(0);
        }
    }

    /// Hole to report in the next acknowledgment, with the following units if the form includes
    /// them.
    pub(crate) fn next(
        &mut self,
        now: Time,
        snack: &Snack,
        form: SnackForm,
        unit: u64,
        rtt: Option<Duration>,
        receive: &Reassembly,
    ) -> Option<SnackOption> {
        self.ripen(now, snack);
        let next = receive.next();
        if self.first != next {
            (self.first, self.repeated) = (next, 0);
            self.cursor = next;
            self.round_at = None;
        }
        let (start, end) = self.choose(now, snack, rtt, receive)?;
        self.round_at = self.round_at.or(Some(now));
        let offset = u16::try_from((start - next) / unit).ok()?;
        // The hole is reported from the unit in which it begins: the data of that unit before the
        // hole has arrived.
        let from = next + u64::from(offset) * unit;
        let size = (end - from).div_ceil(unit).min(u64::from(u16::MAX)) as u16;
        let mut option = SnackOption { offset, size, bits: [0; BITS_MAX], len: 0 };
        if form == SnackForm::Bits {
            let behind = from + u64::from(size) * unit;
            option.len = fill_bits(&mut option.bits, behind, unit, receive);
        }
        Some(option)
    }

    fn choose(
        &mut self,
        now: Time,
        snack: &Snack,
        rtt: Option<Duration>,
        receive: &Reassembly,
    ) -> Option<(u64, u64)> {
        let ripe = self.ripe;
        let is_ripe = |hole: &(u64, u64)| hole.0 < ripe;
        let first = receive.holes_from(receive.next()).next().filter(is_ripe)?;
        if self.repeated < snack.repeats.max(1) {
            self.repeated += 1;
            self.cursor = self.cursor.max(first.1);
            return Some(first);
        }
        if let Some(hole) = receive.holes_from(self.cursor).next().filter(is_ripe) {
            self.cursor = hole.1;
            return Some(hole);
        }
        // All were reported. Retransmissions take a round trip, and may be lost again.
        let again = self.round_at? + rtt?;
        if now < again {
            return None;
        }
        self.round_at = None;
        (self.repeated, self.cursor) = (1, first.1);
        Some(first)
    }
}

/// Sets the bit of each complete unit from `at` on. Returns the number of bytes needed.
fn fill_bits(bits: &mut [u8; BITS_MAX], at: u64, unit: u64, receive: &Reassembly) -> u8 {
    let mut len = 0;
    for number in 0..BITS_MAX as u64 * 8 {
        let start = at + number * unit;
        if start >= receive.highest() {
            break;
        }
        if receive.has(start, start + unit) {
            let place = (number / 8) as usize;
            bits[place] |= 0x80 >> (number % 8);
            len = place as u8 + 1;
        }
    }
    len
}

/// Ranges reported by a SNACK from `ack` on, each with whether it is missing. The second and later
/// ones are from the bit vector, up to its last complete unit.
pub(crate) fn holes(
    ack: u64,
    unit: u64,
    offset: u16,
    size: u16,
    bits: &[u8],
) -> impl Iterator<Item = (u64, u64, bool)> + '_ {
    let start = ack + u64::from(offset) * unit;
    let behind = start + u64::from(size) * unit;
    let bit = |number: usize| bits[number / 8] & 0x80 >> (number % 8) != 0;
    // Padding is also zeros: bits after the last one set have no meaning.
    let count = (0..bits.len() * 8).rev().find(|number| bit(*number)).map_or(0, |last| last + 1);
    let mut number = 0;
    let runs = std::iter::from_fn(move || {
        let from = number;
        while number < count && bit(number) == bit(from) {
            number += 1;
        }
        let at = |number: usize| behind + number as u64 * unit;
        (from < number).then(|| (at(from), at(number), !bit(from)))
    });
    (size > 0).then_some((start, behind, true)).into_iter().chain(runs)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const UNIT: u64 = 100;

    fn millis(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    /// Received units.
    fn received(units: &[u64]) -> (Reassembly, Snacking) {
        received_with(units, &Snack::default(), Time::from_secs(1))
    }

    fn received_with(units: &[u64], snack: &Snack, now: Time) -> (Reassembly, Snacking) {
        let mut receive = Reassembly::new(1000, 100_000, 1000);
        let mut snacking = Snacking::default();
        for unit in units {
            let at = 1000 + unit * UNIT;
            receive.insert(at, &[7; UNIT as usize], u64::MAX);
            snacking.arrived(now, snack, at + UNIT);
        }
        (receive, snacking)
    }

    fn option(
        snacking: &mut Snacking,
        form: SnackForm,
        receive: &Reassembly,
    ) -> Option<(u16, u16)> {
        let now = Time::from_secs(1);
        let next = snacking.next(now, &Snack::default(), form, UNIT, None, receive);
        next.map(|option| (option.offset, option.size))
    }

    #[test]
    fn first_hole_is_reported_three_times_before_the_others() {
        let (receive, mut snacking) = received(&[2, 3, 5, 9]);
        let holes: Vec<_> =
            (0..6).map(|_| option(&mut snacking, SnackForm::Short, &receive)).collect();
        // 0 and 1, 4, 6 to 8.
        assert_eq!(
            holes,
            [Some((0, 2)), Some((0, 2)), Some((0, 2)), Some((4, 1)), Some((6, 3)), None]
        );
    }

    #[test]
    fn reports_start_over_after_a_round_trip() {
        let (receive, mut snacking) = received(&[1, 3]);
        let snack = Snack { repeats: 1, ..Snack::default() };
        let mut at = |ms| {
            let option = snacking.next(
                Time::from_secs(1) + millis(ms),
                &snack,
                SnackForm::Short,
                UNIT,
                Some(millis(100)),
                &receive,
            );
            option.map(|option| option.offset)
        };
        assert_eq!([at(0), at(10), at(99)], [Some(0), Some(2), None]);
        assert_eq!([at(100), at(110), at(150)], [Some(0), Some(2), None]);
    }

    #[test]
    fn a_hole_is_not_reported_before_its_delay() {
        let snack = Snack { delay: millis(30), ..Snack::default() };
        let now = Time::from_secs(1);
        let (mut receive, mut snacking) = received_with(&[1], &snack, now);
        receive.insert(1300, &[7; 100], u64::MAX);
        snacking.arrived(now + millis(20), &snack, 1400);
        assert_eq!(snacking.due_at(&snack), Some(now + millis(30)));
        let mut at = |ms| {
            let option =
                snacking.next(now + millis(ms), &snack, SnackForm::Short, UNIT, None, &receive);
            option.map(|option| (option.offset, option.size))
        };
        let reported = [at(29), at(30), at(31), at(32), at(33), at(50)];
        assert_eq!(reported, [None, Some((0, 1)), Some((0, 1)), Some((0, 1)), None, Some((2, 1))]);
    }

    #[test]
    fn new_acknowledgments_restart_at_their_first_hole() {
        let (mut receive, mut snacking) = received(&[1, 3, 5]);
        (0..4).for_each(|_| _ = option(&mut snacking, SnackForm::Short, &receive));
        receive.insert(1000, &[7; 100], u64::MAX);
        assert_eq!(option(&mut snacking, SnackForm::Short, &receive), Some((0, 1)));
    }

    #[test]
    fn bits_describe_segments_after_the_hole() {
        let (receive, mut snacking) = received(&[2, 3, 5, 9]);
        let option = snacking
            .next(Time::from_secs(1), &Snack::default(), SnackForm::Bits, UNIT, None, &receive)
            .expect("a hole");
        // Units 2 to 9: 1 1 0 1 0 0 0 1.
        assert_eq!((option.offset, option.size, option.bits()), (0, 2, &[0b1101_0001][..]));
        let repeated: Vec<_> =
            holes(1000, UNIT, option.offset, option.size, option.bits()).collect();
        let expected = [
            (1000, 1200, true),
            (1200, 1400, false),
            (1400, 1500, true),
            (1500, 1600, false),
            (1600, 1900, true),
            (1900, 2000, false),
        ];
        assert_eq!(repeated, expected);
    }

    #[test]
    fn a_hole_that_ends_within_a_unit_is_rounded_up() {
        let mut receive = Reassembly::new(1000, 100_000, 1000);
        let mut snacking = Snacking::default();
        receive.insert(1130, &[7; 20], u64::MAX);
        receive.insert(1250, &[7; 20], u64::MAX);
        snacking.arrived(Time::from_secs(1), &Snack::default(), 1270);
        let mut next = || option(&mut snacking, SnackForm::Short, &receive);
        // 1,000 to 1,130; 1,150 to 1,250 lies in units 1 and 2.
        assert_eq!([next(), next(), next(), next()][2..], [Some((0, 2)), Some((1, 2))]);
    }

    proptest! {
        #[test]
        fn snacks_report_holes_and_received_data_correctly(
            pieces in prop::collection::vec((1..60_u64, 1..300_usize), 1..20),
            unit in 1..200_u64,
        ) {
            let mut receive = Reassembly::new(1000, 100_000, 1000);
            let mut snacking = Snacking::default();
            for (at, len) in pieces {
                receive.insert(1000 + at * 37, &vec![7; len], u64::MAX);
            }
            snacking.arrived(Time::ZERO, &Snack::default(), receive.highest());
            let all: Vec<_> = receive.holes_from(1000).collect();
            let mut covered = 0;
            for _ in 0..all.len() + 2 {
                let (snack, form) = (Snack::default(), SnackForm::Bits);
                let option = snacking.next(Time::ZERO, &snack, form, unit, None, &receive);
                let Some(SnackOption { offset, size, .. }) = option.as_ref() else { break };
                covered += 1;
                let bits = option.as_ref().map_or(&[][..], SnackOption::bits);
                let found: Vec<_> = holes(receive.next(), unit, *offset, *size, bits).collect();
                for (start, end, missing) in &found {
                    prop_assert!(*missing || receive.has(*start, *end));
                }
                let (start, end, _) = found[0];
                prop_assert!(all.iter().any(|hole| start <= hole.0 && hole.1 <= end));
            }
            prop_assert_eq!(covered, if all.is_empty() { 0 } else { all.len() + 2 });
        }
    }
}
