//! Segments of the most recent blocks that receivers lacked.
//!
//! While there is more to send, a repair costs only its own transmission time. At the end, each
//! round of repairs costs a round trip in which nothing else is sent. The last blocks, sent within
//! a round's time of the end, therefore carry proactive parity. It is one segment more than the
//! worst of the recent blocks lacked, or none if nothing was lost.

use std::collections::{BTreeMap, VecDeque};

/// Number of recent blocks considered.
const BLOCKS: u64 = 128;

/// Number of segments of recent blocks missing at the receiver that lacked most.
#[derive(Debug, Default)]
pub(crate) struct Losses {
    sent: u64,
    lacked: BTreeMap<u64, u16>,
}

impl Losses {
    /// Counts a block and returns its number among all blocks sent.
    pub(crate) fn block_begins(&mut self) -> u64 {
        let number = self.sent;
        self.sent += 1;
        if let Some(past) = self.sent.checked_sub(BLOCKS) {
            self.lacked = self.lacked.split_off(&past);
        }
        number
    }

    /// Notes that a receiver lacked `count` segments of a block.
    pub(crate) fn lacked(&mut self, number: u64, count: u16) {
        if number + BLOCKS >= self.sent {
            let lacked = self.lacked.entry(number).or_insert(0);
            *lacked = count.max(*lacked);
        }
    }

    /// Parity segments for each of the last blocks, at most a quarter of `block_len`: an outage is
    /// not expected to repeat.
    pub(crate) fn parity(&self, block_len: u16) -> u16 {
        let worst = self.lacked.values().copied().max().unwrap_or(0);
        if worst == 0 { 0 } else { (worst + 1).min(block_len.div_ceil(4)) }
    }
}

/// Number of the newest segments by which a receiver's loss is judged.
const WINDOW: u32 = 1_000;

/// Number of segments above which an assumed loss has no weight.
const KNOWN: f64 = 500.0;

/// Number of segments of which none arrived that count as an outage. Their loss says nothing about
/// later ones.
const OUTAGE: u32 = 64;

/// Minimum number of segments between two reports that are kept.
const STEP: u32 = 16;

/// Number of runs of losses from which on their mean length is used.
const RUNS_LEAST: u32 = 5;

/// Maximum factor by which bursts widen the distribution of arrivals.
const SPREAD_MAX: f64 = 12.0;

/// Loss to a receiver, from its reports on a coded object.
#[derive(Clone, Debug, Default)]
pub(crate) struct Loss {
    /// Segments sent and received, as of the newest report.
    newest: Option<(u32, u32)>,
    /// Both without outages, after each report of the window; the newest last.
    points: VecDeque<(u32, u32)>,
    /// Counter of runs of losses in the newest report, and runs since the first.
    counter: u16,
    runs: u32,
    /// Segments sent and received before the receiver restarted.
    before: (u32, u32),
}

impl Loss {
    /// Processes a report: of the first `sent` segments of an object `arrived` were received, and
    /// there were `runs` runs of lost messages, modulo 65,536.
    pub(crate) fn reported(&mut self, sent: u32, arrived: u32, runs: u16) {
        let arrived = arrived.min(sent);
        if self.newest.is_some_and(|newest| sent > newest.0 && arrived < newest.1) {
            self.joins(sent, arrived, runs);
            return;
        }
        let Some((sent_before, arrived_before)) = self.newest else {
            self.newest = Some((sent, arrived));
            self.counter = runs;
            self.runs = u32::from(runs);
            self.points.extend([(0, 0), (sent, arrived)]);
            return;
        };
        // A late report has nothing to add.
        if sent < sent_before || arrived < arrived_before || sent - sent_before < STEP {
            return;
        }
        self.runs += u32::from(runs.wrapping_sub(self.counter));
        (self.newest, self.counter) = (Some((sent, arrived)), runs);
        let (more, came) = (sent - sent_before, arrived - arrived_before);
        if came == 0 && more >= OUTAGE {
            return;
        }
        let (all, all_came) = self.points.back().copied().unwrap_or_default();
        self.points.push_back((all + more, all_came + came.min(more)));
        while let Some((second, _)) = self.points.get(1)
            && all + more - second >= WINDOW
        {
            self.points.pop_front();
        }
    }

    /// Processes the first report of a receiver that restarted: it knows nothing of what was sent
    /// before.
    pub(crate) fn joins(&mut self, sent: u32, arrived: u32, runs: u16) {
        let arrived = arrived.min(sent);
        (self.newest, self.before) = (Some((sent, arrived)), (sent, arrived));
        (self.counter, self.runs) = (runs, 0);
        if self.points.is_empty() {
            self.points.push_back((0, 0));
        }
    }

    /// Segments by which the loss is judged, and how many of them were lost.
    fn window(&self) -> (f64, f64) {
        let (Some(first), Some(last)) = (self.points.front(), self.points.back()) else {
            return (0.0, 0.0);
        };
        let sent = f64::from(last.0 - first.0);
        (sent, sent - f64::from(last.1 - first.1))
    }

    /// Loss to expect, if `assumed` without reports: the upper end of the range of one standard
    /// deviation, so that too little is seldom sent.
    pub(crate) fn expected(&self, assumed: f64) -> f64 {
        let (sent, lost) = self.window();
        if sent < 1.0 {
            return assumed;
        }
        let weight = (sent / KNOWN).min(1.0);
        weight * upper(lost, sent) + (1.0 - weight) * assumed
    }

    /// Loss measured, and the number of segments that it was measured with.
    pub(crate) fn measured(&self) -> Option<(f64, f64)> {
        let (sent, lost) = self.window();
        (sent > 0.0).then(|| (lost / sent, sent))
    }

    /// Factor by which bursts of losses widen the distribution of arrivals: with a mean length L of
    /// runs, neighbouring losses correlate by r = 1 − 1/L − p/(L(1 − p)), and the variance of the
    /// number of arrivals is (1 + r)/(1 − r) times that of independent losses.
    pub(crate) fn spread(&self) -> f64 {
        let Some((sent, arrived)) = self.newest.filter(|_| self.runs >= RUNS_LEAST) else {
            return 1.0;
        };
        let sent = sent - self.before.0;
        let lost = f64::from(sent.saturating_sub(arrived.saturating_sub(self.before.1)));
        let loss = (lost / f64::from(sent.max(1))).min(0.95);
        let length = (lost / f64::from(self.runs)).max(1.0);
        let correlation = 1.0 - 1.0 / length - loss / (length * (1.0 - loss));
        let correlation = correlation.clamp(0.0, 0.999);
        ((1.0 + correlation) / (1.0 - correlation)).sqrt().clamp(1.0, SPREAD_MAX)
    }
}

/// Upper end of Wilson's interval of one standard deviation for a share of `lost` in `sent`.
fn upper(lost: f64, sent: f64) -> f64 {
    let share = lost / sent;
    let middle = share + 0.5 / sent;
    let half = (share * (1.0 - share) / sent + 0.25 / (sent * sent)).sqrt();
    (middle + half) / (1.0 + 1.0 / sent)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_blocks_count() {
        let mut losses = Losses::default();
        assert_eq!(losses.parity(64), 0);
        let first = losses.block_begins();
        losses.lacked(first, 3);
        losses.lacked(first, 2);
        assert_eq!((losses.parity(64), losses.parity(8)), (4, 2));
        for _ in 0..BLOCKS - 1 {
            assert_eq!(losses.parity(64), 4);
            losses.block_begins();
        }
        assert_eq!(losses.parity(64), 4);
        losses.block_begins();
        assert_eq!(losses.parity(64), 0);
        losses.lacked(first, 9);
        assert_eq!(losses.parity(64), 0, "that was long ago");
        losses.lacked(BLOCKS, 40);
        assert_eq!(losses.parity(64), 16);
    }

    #[test]
    fn recent_reports_count() {
        let mut loss = Loss::default();
        assert_eq!((loss.expected(0.01), loss.measured()), (0.01, None));
        loss.reported(100, 90, 0);
        let few = loss.expected(0.01);
        assert!((0.03..0.05).contains(&few), "{few}");
        for n in 2..=20_u32 {
            loss.reported(100 * n, 90 * n, 0);
        }
        let same = loss.expected(0.01);
        assert!((0.1..0.115).contains(&same), "{same}");
        // The loss rises: a window later the former loss is forgotten.
        for n in 1..=10_u32 {
            loss.reported(2_000 + 100 * n, 1_800 + 70 * n, 0);
        }
        let more = loss.expected(0.01);
        assert!((0.3..0.32).contains(&more), "{more}");
        assert_eq!(loss.measured(), Some((0.3, 1_000.0)));
    }

    #[test]
    fn outages_do_not_count() {
        let mut loss = Loss::default();
        loss.reported(1_000, 950, 0);
        loss.reported(2_000, 950, 1);
        loss.reported(2_100, 1_045, 1);
        let found = loss.measured().map(|(loss, _)| loss);
        assert_eq!(found, Some(0.05));
        // A late report changes nothing.
        loss.reported(1_500, 1_000, 1);
        assert_eq!(loss.measured().map(|(loss, _)| loss), found);
    }

    #[test]
    fn receivers_that_restarted_lost_nothing_before() {
        let mut loss = Loss::default();
        loss.reported(1_000, 950, 3);
        // The counter of the restarted receiver begins at 0.
        loss.reported(2_000, 10, 0);
        loss.reported(2_100, 105, 1);
        assert_eq!(loss.measured().map(|(loss, _)| loss), Some(55.0 / 1_100.0));
        let mut late = Loss::default();
        late.joins(5_000, 20, 0);
        assert_eq!((late.expected(0.01), late.measured()), (0.01, None));
        late.reported(5_100, 110, 7);
        assert_eq!(late.measured(), Some((0.1, 100.0)));
        assert!(late.spread() < 2.0, "{}", late.spread());
    }

    #[test]
    fn bursts_widen_the_distribution() {
        let mut loss = Loss::default();
        assert_eq!(loss.spread(), 1.0);
        // Runs of 50 at a loss of 5 %.
        loss.reported(20_000, 19_000, 20);
        assert!((9.0..10.5).contains(&loss.spread()), "{}", loss.spread());
        let mut single = Loss::default();
        single.reported(20_000, 18_000, 1_800);
        assert!(single.spread() < 1.01, "{}", single.spread());
    }
}
