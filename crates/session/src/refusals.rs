//! Rate limit of refusals.
//!
//! A peer may repeat refused requests as fast as it can, and some retry upon each refusal. Without
//! a limit, two hosts would fill a link with attempts and refusals. So each path gets a few
//! refusals a second, and all together a few more. The engine counts those left out; the peer is
//! informed of the refusal when it retries later.

use std::collections::BTreeMap;
use std::time::Duration;

use engine::{PathId, Time};

/// Burst of refusals. The same number passes within the second after the burst, which makes 10 in
/// that second.
const BURST: u32 = 5;

/// Interval of further refusals on a path.
const INTERVAL: Duration = Duration::from_millis(200);

/// Burst of refusals on all paths together.
const BURST_OF_ALL: u32 = 50;
const INTERVAL_OF_ALL: Duration = Duration::from_millis(20);

/// Paths whose rates are tracked at one time.
const PATHS_MAX: usize = 1024;

/// Rate limits of refusals on the paths of an engine.
#[derive(Debug, Default)]
pub struct Refusals {
    of_all: Rate,
    of_path: BTreeMap<PathId, Rate>,
}

impl Refusals {
    /// Whether a refusal may be sent on a path now; it then counts as sent.
    pub fn admit(&mut self, now: Time, path: PathId) -> bool {
        if self.of_path.len() >= PATHS_MAX {
            self.of_path.retain(|_, rate| rate.full_at > now);
        }
        let is_new = !self.of_path.contains_key(&path);
        if is_new && self.of_path.len() >= PATHS_MAX {
            return false;
        }
        let rate = self.of_path.entry(path).or_default();
        let admits = rate.admits(now, BURST, INTERVAL)
            && self.of_all.admits(now, BURST_OF_ALL, INTERVAL_OF_ALL);
        if admits {
            rate.take(now, INTERVAL);
            self.of_all.take(now, INTERVAL_OF_ALL);
        }
        admits
    }

    /// Forgets a path.
    pub fn forget(&mut self, path: PathId) {
        self.of_path.remove(&path);
    }
}

/// A token bucket.
#[derive(Clone, Copy, Debug, Default)]
struct Rate {
    /// Time at which all tokens are back.
    full_at: Time,
}

impl Rate {
    fn admits(self, now: Time, burst: u32, interval: Duration) -> bool {
        self.full_at.since(now) <= interval * (burst - 1)
    }

    fn take(&mut self, now: Time, interval: Duration) {
        self.full_at = self.full_at.max(now) + interval;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATH: PathId = PathId(1);

    fn admitted(refusals: &mut Refusals, path: PathId, from_ms: u64, to_ms: u64) -> usize {
        let at = |ms: u64| Time::from_nanos(ms * 1_000_000);
        (from_ms..to_ms).filter(|ms| refusals.admit(at(*ms), path)).count()
    }

    #[test]
    fn a_path_gets_ten_a_second_at_most() {
        let mut refusals = Refusals::default();
        assert_eq!(admitted(&mut refusals, PATH, 0, 1000), 9);
        assert_eq!(admitted(&mut refusals, PATH, 1000, 11_000), 50);
        assert_eq!(admitted(&mut refusals, PATH, 20_000, 21_000), 9, "after a pause");
    }

    #[test]
    fn paths_have_own_and_shared_limits() {
        let mut refusals = Refusals::default();
        admitted(&mut refusals, PATH, 0, 1000);
        assert_eq!(admitted(&mut refusals, PathId(2), 1000, 1001), 1);
        let now = Time::from_nanos(60_000_000_000);
        let of_many = (0..5000).filter(|n| refusals.admit(now, PathId(10 + n))).count();
        assert_eq!(of_many, BURST_OF_ALL as usize);
        assert!(refusals.of_path.len() <= PATHS_MAX);
    }
}
