//! Tests that cannot run on a machine.

use std::fs::OpenOptions;
use std::io::Write as _;

/// Notes that a test, or a part of one, is skipped for lack of a tool or a right. If the variable
/// `SLOWLIGHT_REQUIRE_TOOLS` is set, as in continuous integration, the test fails instead.
#[macro_export]
macro_rules! skipped {
    ($($why:tt)+) => {
        $crate::skip::note(&format!($($why)+), std::env::var_os("SLOWLIGHT_REQUIRE_TOOLS").is_some())
    };
}

/// Notes that a test, or a part of one, is left out, because it takes long or the machine is busy.
#[macro_export]
macro_rules! left_out {
    ($($why:tt)+) => {
        $crate::skip::note(&format!($($why)+), false)
    };
}

/// Prints why a test is skipped, and appends it to the file of the variable `SLOWLIGHT_SKIPPED`,
/// from which `make test` counts.
#[expect(clippy::print_stderr, reason = "a test that is skipped says so")]
pub fn note(why: &str, fails: bool) {
    assert!(!fails, "needed here: {why}");
    let test = std::thread::current().name().unwrap_or("main").to_owned();
    eprintln!("skipped: {test}: {why}");
    let Some(path) = std::env::var_os("SLOWLIGHT_SKIPPED") else { return };
    let file = OpenOptions::new().append(true).create(true).open(path);
    let line = format!("{test}: {why}\n");
    file.and_then(|mut file| file.write_all(line.as_bytes())).expect("the list can be written");
}
