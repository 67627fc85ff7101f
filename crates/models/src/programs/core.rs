//! State shared by the sessions of a node.

use crate::flow::Job as FlowJob;
use std::collections::{BTreeMap, VecDeque};

use engine::{Effect, PathId, Ticket, Timers};

use super::config::Limits;
use super::indication::Indication;

/// Purpose of an effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Job {
    Open,
    Flow(FlowJob),
    Install,
    /// The result is ignored.
    Forget,
}

/// Timer of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Wait {
    /// Next write of the program.
    Write,
    /// Next keystroke.
    Key,
    /// Login.
    Grace,
    /// Silence of the peer.
    Silence,
}

#[derive(Debug)]
pub(super) struct Core {
    pub(super) limits: Limits,
    pub(super) effects: VecDeque<Effect>,
    pub(super) indications: VecDeque<Indication>,
    pub(super) timers: Timers<(PathId, Wait)>,
    pub(super) uses: BTreeMap<Ticket, (PathId, Job)>,
    tickets: u64,
}

impl Core {
    pub(super) fn new(limits: Limits) -> Self {
        Self {
            limits,
            effects: VecDeque::new(),
            indications: VecDeque::new(),
            timers: Timers::new(),
            uses: BTreeMap::new(),
            tickets: 0,
        }
    }

    pub(super) fn next_ticket(&mut self) -> Ticket {
        self.tickets += 1;
        Ticket(self.tickets)
    }

    pub(super) fn indicate(&mut self, indication: Indication) {
        self.indications.push_back(indication);
    }

    pub(super) fn forget(&mut self, path: PathId) {
        for wait in [Wait::Write, Wait::Key, Wait::Grace, Wait::Silence] {
            self.timers.cancel((path, wait));
        }
    }
}
