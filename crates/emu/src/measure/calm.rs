use std::thread;
use std::time::{Duration, Instant};

/// Sleeps that are looked at.
const NAPS: usize = 200;
const NAP: Duration = Duration::from_millis(2);
/// How late all but one of a hundred may end.
const LATE: Duration = Duration::from_millis(1);
/// How late any of them may end.
const WORST: Duration = Duration::from_millis(10);

/// Whether somebody who only sleeps is woken as punctually as an emulator has to be: what such a
/// program is told too late, the emulator cannot be told in time. Takes half a second.
#[must_use]
pub fn is_calm() -> bool {
    let late = |_| {
        let begun = Instant::now();
        thread::sleep(NAP);
        begun.elapsed() - NAP
    };
    let mut late: Vec<_> = (0..NAPS).map(late).collect();
    late.sort_unstable();
    late[NAPS - NAPS / 100 - 1] <= LATE && late[NAPS - 1] <= WORST
}
