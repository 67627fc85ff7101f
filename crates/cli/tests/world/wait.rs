//! Waiting for what others do.

use std::time::{Duration, Instant};

/// Waits until something holds, for 20 s at most.
pub(crate) fn wait_for(what: &str, mut holds: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < Duration::from_secs(20), "{what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}
