//! Lateness of packets and of loops.

use std::fmt;
use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use engine::Time;

/// Maximum recorded lateness, in nanoseconds: a minute.
const MOST: u64 = 60_000_000_000;
/// Binary logarithm of the histogram's unit: 2^9 ns, about half a microsecond.
const UNIT: u32 = 9;
/// Significant bits of a bucket's bounds: three decimal digits.
const BITS: u32 = 11;
const HALF: usize = 1 << (BITS - 1);

/// Index of the bucket for a lateness. Values up to 2^11 units have a bucket each; from there on,
/// each doubling has 2^10 buckets.
const fn place(nanos: u64) -> usize {
    let units = nanos >> UNIT;
    let shift = (u64::BITS - units.leading_zeros()).saturating_sub(BITS);
    shift as usize * HALF + (units >> shift) as usize
}

/// Upper bound of a bucket, in nanoseconds.
const fn most_at(place: usize) -> u64 {
    let shift = (place / HALF).saturating_sub(1);
    let units = (place - shift * HALF + 1) as u64;
    (units << shift << UNIT) - 1
}

/// Histogram of lateness, filled by the threads that must be in time. Other threads read it
/// without synchronising with them.
pub struct Timings {
    counts: Box<[AtomicU64]>,
    most: AtomicU64,
}

impl Default for Timings {
    fn default() -> Self {
        Self::new()
    }
}

impl Timings {
    /// Returns an empty histogram.
    #[must_use]
    pub fn new() -> Self {
        let counts = (0..=place(MOST)).map(|_| AtomicU64::new(0)).collect();
        Self { counts, most: AtomicU64::new(0) }
    }

    /// Counts `count` events that were late by `late`.
    pub fn record(&self, late: Duration, count: u32) {
        let nanos = u64::try_from(late.as_nanos()).unwrap_or(u64::MAX);
        let counted = &self.counts[place(nanos.min(MOST))];
        // The engines of several transfers may share a host's histogram.
        counted.fetch_add(u64::from(count), Ordering::Relaxed);
        if nanos > self.most.load(Ordering::Relaxed) {
            self.most.fetch_max(nanos, Ordering::Relaxed);
        }
    }

    /// Returns a snapshot of the histogram.
    #[must_use]
    pub fn so_far(&self) -> Lateness {
        let counts = self.counts.iter().enumerate();
        let counts = counts.map(|(place, count)| (place as u32, count.load(Ordering::Relaxed)));
        let counts: Vec<_> = counts.filter(|(_, count)| *count > 0).collect();
        let packets = counts.iter().map(|(_, count)| count).sum();
        Lateness { counts, packets, most: self.most.load(Ordering::Relaxed) }
    }
}

impl fmt::Debug for Timings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.so_far().fmt(f)
    }
}

/// Lateness of packets after their logical times, to half a microsecond or three digits.
#[derive(Clone, Default)]
pub struct Lateness {
    /// Buckets with their counts, in order.
    counts: Vec<(u32, u64)>,
    packets: u64,
    most: u64,
}

impl Lateness {
    /// Returns the number of packets.
    #[must_use]
    pub fn packets(&self) -> u64 {
        self.packets
    }

    /// Returns the lateness that the share `quantile` of the packets, from 0 to 1, does not exceed.
    #[must_use]
    pub fn quantile(&self, quantile: f64) -> Duration {
        let rank = (quantile * self.packets as f64).ceil().max(1.0) as u64;
        let mut below = 0;
        let reached = self.counts.iter().find(|(_, count)| {
            below += count;
            below >= rank
        });
        let nanos = reached.map_or(0, |(place, _)| most_at(*place as usize));
        Duration::from_nanos(nanos.min(self.most))
    }

    /// Returns the maximum lateness.
    #[must_use]
    pub fn most(&self) -> Duration {
        Duration::from_nanos(self.most)
    }
}

impl fmt::Debug for Lateness {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lateness")
            .field("packets", &self.packets())
            .field("half", &self.quantile(0.5))
            .field("most", &self.most())
            .finish()
    }
}

/// Recorder of the lateness of a driver's loop: of timers and of wake-ups.
#[derive(Debug, Default)]
pub(crate) struct Observed {
    timings: Option<Arc<Timings>>,
    run_delay: Option<RunDelay>,
}

impl Observed {
    /// Sets the histogram to record into.
    pub(crate) fn set(&mut self, timings: Arc<Timings>) {
        self.timings = Some(timings);
    }

    /// Notes that the calling thread starts the loop.
    pub(crate) fn begin(&mut self) {
        self.run_delay = self.timings.as_ref().and_then(|_| RunDelay::open());
    }

    /// Records something done at `now` that was due at `due`.
    pub(crate) fn done(&self, now: Time, due: Time) {
        if let Some(timings) = &self.timings {
            timings.record(now.since(due), 1);
        }
    }

    /// Records the end of a wait: a packet may have waited as long as the thread did.
    pub(crate) fn woken(&mut self) {
        if let Some((timings, run_delay)) = self.timings.as_ref().zip(self.run_delay.as_mut()) {
            timings.record(run_delay.since_last(), 1);
        }
    }
}

/// Time that a runnable thread waited for a processor, as the kernel counts it
/// (`CONFIG_SCHED_INFO`).
#[derive(Debug)]
struct RunDelay {
    file: File,
    before: u64,
}

impl RunDelay {
    /// Opens the run delay of the calling thread; `None` where the kernel does not count it.
    fn open() -> Option<Self> {
        let file = File::open("/proc/thread-self/schedstat").ok()?;
        let before = read(&file)?;
        Some(Self { file, before })
    }

    /// Returns the delay since the last call.
    fn since_last(&mut self) -> Duration {
        let now = read(&self.file).unwrap_or(self.before);
        let before = std::mem::replace(&mut self.before, now);
        Duration::from_nanos(now.saturating_sub(before))
    }
}

/// Parses the nanoseconds that a thread has waited, the second of three numbers.
fn read(file: &File) -> Option<u64> {
    let mut text = [0; 64];
    let len = file.read_at(&mut text, 0).ok()?;
    let text = std::str::from_utf8(text.get(..len)?).ok()?;
    text.split_whitespace().nth(1)?.parse().ok()
}

/// Lateness up to which results are valid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Bound for 99 % of the packets, timers or wake-ups.
    pub usual: Duration,
    /// Bound for all packets, timers or wake-ups.
    pub most: Duration,
}

impl Default for Bounds {
    /// Returns 1 ms for 99 %, 10 ms for all.
    fn default() -> Self {
        Self { usual: Duration::from_millis(1), most: Duration::from_millis(10) }
    }
}

/// A bound that was exceeded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Excess {
    /// Lateness of 99 % of the events.
    Usual {
        /// Measured lateness.
        late: Duration,
        /// Bound.
        bound: Duration,
    },
    /// Maximum lateness.
    Most {
        /// Measured lateness.
        late: Duration,
        /// Bound.
        bound: Duration,
    },
}

impl Bounds {
    /// Returns the bounds that an engine exceeded.
    pub fn excesses(&self, lateness: &Lateness) -> impl Iterator<Item = Excess> + use<> {
        let late = lateness.quantile(0.99);
        // A host sends little: with fewer than 100 events, the latest is not a 99th percentile.
        let is_often = late > self.usual && lateness.packets() >= 100;
        let often = is_often.then_some(Excess::Usual { late, bound: self.usual });
        let late = lateness.most();
        let once = (late > self.most).then_some(Excess::Most { late, bound: self.most });
        often.into_iter().chain(once)
    }
}

impl fmt::Display for Excess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Usual { late, bound } => {
                write!(
                    f,
                    "99 % of timers and wake-ups were up to {late:.1?} late (bound {bound:?})"
                )
            }
            Self::Most { late, bound } => {
                write!(f, "a timer or wake-up was {late:.1?} late (bound {bound:?})")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unobserved_loops_record_nothing() {
        let (late, timings) = (Time::from_secs(2), Arc::new(Timings::new()));
        let mut observed = Observed::default();
        observed.begin();
        observed.done(late, Time::from_secs(1));
        observed.woken();
        observed.set(Arc::clone(&timings));
        observed.done(late, Time::from_secs(1));
        assert_eq!(timings.so_far().packets(), 1);
        assert_eq!(timings.so_far().most(), Duration::from_secs(1));
    }

    #[test]
    fn a_thread_that_waits_for_a_processor_is_late() {
        let Some(mut run_delay) = RunDelay::open() else { return };
        // There are more busy threads than processors, so each thread waits for its turn.
        let over = AtomicU64::new(0);
        let count = std::thread::available_parallelism().map_or(1, usize::from) + 1;
        std::thread::scope(|scope| {
            for _ in 0..count {
                scope.spawn(|| {
                    while over.load(Ordering::Relaxed) == 0 {
                        std::hint::spin_loop();
                    }
                });
            }
            let mut waited = Duration::ZERO;
            while waited == Duration::ZERO {
                waited += run_delay.since_last();
            }
            over.store(1, Ordering::Relaxed);
        });
    }

    #[test]
    fn quantiles_match_the_recorded_values() {
        let timings = Timings::new();
        assert_eq!(timings.so_far().quantile(0.5), Duration::ZERO);
        timings.record(Duration::from_micros(20), 99);
        timings.record(Duration::from_hours(1), 1);
        let lateness = timings.so_far();
        assert_eq!(lateness.packets(), 100);
        for quantile in [0.0, 0.5, 0.99] {
            let nanos = lateness.quantile(quantile).as_nanos();
            assert!((20_000..20_512).contains(&nanos), "{quantile}: {nanos} ns");
        }
        assert!(lateness.quantile(1.0) >= Duration::from_secs(59), "{lateness:?}");
        assert_eq!(lateness.most(), Duration::from_hours(1));
    }

    #[test]
    fn lateness_has_three_digits() {
        let mut before = 0;
        for step in 0..60_000_u64 {
            let nanos = step * step * 16;
            let place = place(nanos);
            assert!(place >= before, "{nanos} ns");
            let found = most_at(place);
            assert!(found >= nanos && found - nanos <= (nanos / 1000).max(511), "{nanos}: {found}");
            before = place;
        }
        assert!(place(MOST) < 18_500, "{} places", place(MOST));
    }

    #[test]
    fn other_threads_read_consistent_counts() {
        let timings = Timings::new();
        std::thread::scope(|scope| {
            let count = || {
                for micros in 0..100_000 {
                    timings.record(Duration::from_micros(micros % 3_000), 2);
                }
            };
            let counting = [scope.spawn(count), scope.spawn(count)];
            let mut before = 0;
            while !counting.iter().all(|thread| thread.is_finished()) {
                let counted = timings.so_far().packets();
                assert!(counted >= before && counted.is_multiple_of(2), "{counted} after {before}");
                before = counted;
            }
        });
        assert_eq!(timings.so_far().packets(), 400_000, "none is lost where two count");
        assert_eq!(timings.so_far().most(), Duration::from_micros(2_999));
    }
}
