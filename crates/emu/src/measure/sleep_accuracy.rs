use std::thread;
use std::time::{Duration, Instant};

/// Number of measured sleeps.
const NAPS: usize = 200;
const NAP: Duration = Duration::from_millis(2);
/// Lateness bound for 99 % of the sleeps.
const LATE: Duration = Duration::from_millis(1);
/// Lateness bound for all sleeps.
const WORST: Duration = Duration::from_millis(10);

/// Whether a thread that only sleeps is woken as punctually as an emulator must be: an emulator on
/// this machine would be at least as late. Takes half a second.
#[must_use]
pub fn is_calm() -> bool {
    let late = |_| {
        let started = Instant::now();
        thread::sleep(NAP);
        started.elapsed() - NAP
    };
    let mut late: Vec<_> = (0..NAPS).map(late).collect();
    late.sort_unstable();
    late[NAPS - NAPS / 100 - 1] <= LATE && late[NAPS - 1] <= WORST
}
