//! Tests of real times, on machines that at times hold everybody up.

use std::fmt::Debug;
use std::panic::{AssertUnwindSafe, catch_unwind, panic_any, resume_unwind};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use slowlight_emu::measure::is_calm;

/// How often it may fail although the machine is calm before it and after it: less than the time of
/// a test is enough to hold one up.
const FAILURES: usize = 3;
/// How long it is tried while the machine is not.
const PATIENCE: Duration = Duration::from_secs(60);

/// Something came later than it should, or not as others did that are in time.
struct Late;

/// Asserts what may not be so where the machine holds up a test.
#[track_caller]
#[expect(clippy::print_stderr, reason = "a test says what was wrong")]
pub(crate) fn assert_in_time(is_so: bool, seen: &dyn Debug) {
    if !is_so {
        eprintln!("late at {}: {seen:?}", std::panic::Location::caller());
        panic_any(Late);
    }
}

/// Runs a test of real times, one at a time, and again when something came late while the machine may
/// have held it up. What this machine never lets it do, it leaves out, and says so.
#[expect(clippy::print_stderr, reason = "tests say what was left out")]
pub(crate) fn calmly(test: impl Fn()) {
    static ALONE: Mutex<()> = Mutex::new(());
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let until = Instant::now() + PATIENCE;
    let (mut failures, mut was_calm) = (0, is_calm());
    loop {
        let Err(failure) = catch_unwind(AssertUnwindSafe(&test)) else { return };
        if !failure.is::<Late>() {
            resume_unwind(failure);
        }
        let calm = is_calm();
        failures += usize::from(was_calm && calm);
        if failures == FAILURES {
            resume_unwind(failure);
        }
        if Instant::now() > until {
            eprintln!("left out: for {PATIENCE:?} this machine woke nobody in time");
            return;
        }
        was_calm = calm;
    }
}
