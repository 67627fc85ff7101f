//! Progress of a run of the suite.

use std::cell::{Cell, RefCell};
use std::fmt;

use crate::Time;

/// Progress of a run, for the message of a failure. Kept outside the world to survive a panic.
#[derive(Debug)]
pub(super) struct Progress {
    pub(super) seed: Cell<u64>,
    pub(super) events: Cell<u64>,
    pub(super) now: Cell<Time>,
    pub(super) what: RefCell<String>,
}

impl Progress {
    pub(super) fn new() -> Self {
        Self {
            seed: Cell::new(0),
            events: Cell::new(0),
            now: Cell::new(Time::ZERO),
            what: RefCell::new(String::new()),
        }
    }
}

impl fmt::Display for Progress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (seed, events, now) = (self.seed.get(), self.events.get(), self.now.get());
        write!(f, "seed {seed}, event {events} at {now} s, world: {}", self.what.borrow())
    }
}
