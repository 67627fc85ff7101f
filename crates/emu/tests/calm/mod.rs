//! Tests of real times, on machines that at times hold everybody up.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use slowlight_emu::measure::is_calm;

/// How often it may fail although the machine is calm before it and after it: less than the time of
/// a test is enough to hold one up.
const FAILURES: usize = 3;
/// How long it is tried while the machine is not.
const PATIENCE: Duration = Duration::from_secs(60);

/// Runs a test of real times, one at a time, and again when it failed while the machine may have
/// held it up. What this machine never lets it do, it leaves out, and says so.
#[expect(clippy::print_stderr, reason = "tests say what was left out")]
pub(crate) fn calmly(test: impl Fn()) {
    static ALONE: Mutex<()> = Mutex::new(());
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let until = Instant::now() + PATIENCE;
    let (mut failures, mut was_calm) = (0, true);
    loop {
        let Err(failure) = catch_unwind(AssertUnwindSafe(&test)) else { return };
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
