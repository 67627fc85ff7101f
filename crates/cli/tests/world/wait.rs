//! Waits for conditions.

use std::time::{Duration, Instant};

/// Time limit on a busy machine: a SYN that is lost six times is retransmitted after a minute.
const PATIENCE: Duration = Duration::from_secs(180);

/// Waits until something holds.
pub(crate) fn wait_for(what: &str, mut holds: impl FnMut() -> bool) {
    let started = Instant::now();
    while !holds() {
        assert!(started.elapsed() < PATIENCE, "{what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}
