//! Tests of real times on machines that sometimes stall.

use std::fmt::Debug;
use std::panic::{AssertUnwindSafe, catch_unwind, panic_any, resume_unwind};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use slowlight_emu::measure::is_calm;

/// Failures allowed although the machine is calm before and after: a stall may be shorter than the
/// test.
const FAILURES: usize = 3;
/// Time limit for retries while the machine is not calm.
const PATIENCE: Duration = Duration::from_secs(60);

/// Panic payload of a test that was late, or not in time.
struct Late;

/// Asserts a condition that a stalled machine may violate.
#[track_caller]
#[expect(clippy::print_stderr, reason = "a test says what was wrong")]
pub(crate) fn assert_in_time(is_so: bool, observed: &dyn Debug) {
    if !is_so {
        eprintln!("late at {}: {observed:?}", std::panic::Location::caller());
        panic_any(Late);
    }
}

/// Runs a test of real times, one at a time, and retries it when it was late while the machine may
/// have stalled. Skips it, with a message, if the machine is never calm.
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
            testing::left_out!("for {PATIENCE:?} this machine woke nobody in time");
            return;
        }
        was_calm = calm;
    }
}
