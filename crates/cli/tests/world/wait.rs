//! Waiting for what others do.

use std::time::{Duration, Instant};

/// How long anything may take on a machine that does much else: a SYN that is lost five times is sent
/// again after half a minute.
const PATIENCE: Duration = Duration::from_secs(60);

/// Waits until something holds.
pub(crate) fn wait_for(what: &str, mut holds: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < PATIENCE, "{what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}
