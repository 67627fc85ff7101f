//! Transfers of LTP-T: what an engine knows of each while it sends, passes on or receives it.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bytes::Bytes;
use engine::{FileId, FileName};
use wire::ltp::{CancelReason, End as Side, SessionId};
use wire::ltpt::{Congestion, Transport};

use super::super::indication::Failure;
use super::super::request::SendRequest;
use super::config::{Config, Routing};
use super::indication::{FlowId, Transfer};
use crate::path::Handle;
use crate::ranges::Ranges;
use crate::recent::Recent;
use crate::routing::routes::{Limits, Router};

/// A transfer, as this engine counts them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Seq(pub(crate) u64);

/// What became of a hop of a transfer.
#[derive(Debug)]
pub(crate) enum Outcome {
    /// The session to the next engine is over.
    Sent {
        flow: Seq,
        result: Result<(), Failure>,
        is_confirmed: bool,
        size: u64,
        congestion: Option<Congestion>,
    },
    /// All of the block is here, and safe.
    Kept { flow: Seq, file: Option<FileId>, shape: Shape },
    /// The block was for this engine, and is here.
    Delivered { flow: Seq },
    /// The session that brought the block ended early.
    Broken { flow: Seq, failure: Failure },
}

/// What a reception knows of a block for another engine.
#[derive(Debug)]
pub(crate) struct Relay {
    pub(crate) service: u64,
    /// The extensions with which it goes on.
    pub(crate) onward: Transport,
    /// What came since the sender behind was last told.
    pub(crate) fresh: Vec<(u64, Bytes)>,
    /// Whether it was written down whereto it goes.
    pub(crate) is_recorded: bool,
    /// The last segment of the block, once that came.
    pub(crate) last: Option<Last>,
    /// What was in the working file when it was last to be synced.
    pub(crate) synced: Ranges,
}

impl Relay {
    pub(crate) fn new(service: u64, onward: Transport) -> Self {
        let (fresh, synced) = (Vec::new(), Ranges::new());
        Self { service, onward, fresh, is_recorded: false, last: None, synced }
    }

    pub(crate) fn memory(&self) -> usize {
        let last = self.last.as_ref().map_or(0, |last| last.bytes.len());
        let fresh = self.fresh.iter().map(|(_, bytes)| bytes.len()).sum::<usize>();
        last + fresh + self.synced.len() * 2 * size_of::<u64>()
    }
}

/// A block in a working file.
#[derive(Clone, Debug)]
pub(crate) struct Stored {
    pub(crate) file: FileName,
    pub(crate) service: u64,
    pub(crate) shape: Shape,
}

/// How a block is made up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Shape {
    /// Where its bytes are that came. What is missing between them is green.
    pub(crate) parts: Ranges,
    /// How many it has, if that was told: the end of a green block may be lost.
    pub(crate) end: Option<u64>,
    /// Those of its red part.
    pub(crate) red: u64,
    /// Its last segment.
    pub(crate) last: Option<Last>,
}

/// The last segment of a block, as it came: where it begins, and its bytes. It goes on as a segment of its
/// own, because some client services tell from it what the block is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Last {
    pub(crate) offset: u64,
    pub(crate) bytes: Bytes,
}

/// Where a block comes from.
#[derive(Clone, Debug)]
pub(crate) enum Origin {
    /// From a file of this engine, as a transfer that its user knows by this session.
    Here { request: SendRequest, id: SessionId },
    /// From the engine that began this session.
    Before(SessionId),
}

/// A transfer.
#[derive(Debug)]
pub(crate) struct Flow {
    pub(crate) id: FlowId,
    pub(crate) destination: u64,
    pub(crate) service: u64,
    /// The extensions with which it goes on.
    pub(crate) onward: Transport,
    pub(crate) origin: Origin,
    /// Whether this engine is the last.
    pub(crate) is_last: bool,
    /// The session that brings it, until all is safe.
    pub(crate) incoming: Option<Handle>,
    /// The session to the next engine.
    pub(crate) outgoing: Option<Handle>,
    /// All of it, once that is safe.
    pub(crate) kept: Option<Stored>,
    /// Whether the next engine has it.
    pub(crate) is_forwarded: bool,
    /// Sessions to the next engine that began.
    pub(crate) sessions: u32,
    /// Those that failed for another reason than want of room.
    pub(crate) failures: u32,
    /// Bytes of the storage that it counts for.
    pub(crate) reserved: u64,
}

impl Flow {
    pub(crate) fn new(id: FlowId, destination: u64, onward: Transport, origin: Origin) -> Self {
        Self {
            id,
            destination,
            service: 0,
            onward,
            origin,
            is_last: false,
            incoming: None,
            outgoing: None,
            kept: None,
            is_forwarded: false,
            sessions: 0,
            failures: 0,
            reserved: 0,
        }
    }

    pub(crate) const fn transfer(&self) -> Transfer {
        Transfer { flow: self.id, destination: self.destination }
    }

    /// The engine that it came from, if it is another.
    pub(crate) const fn before(&self) -> Option<u64> {
        match self.origin {
            Origin::Here { .. } => None,
            Origin::Before(session) => Some(session.originator),
        }
    }

    /// Ranges tracked of what is kept.
    pub(crate) fn ranges(&self) -> usize {
        self.kept.as_ref().map_or(0, |kept| kept.shape.parts.len())
    }

    /// Time to wait after a hop failed once more.
    pub(crate) fn back_off(&mut self, config: &Config, congestion: Option<Congestion>) -> Duration {
        if let Some(congestion) = congestion {
            let retry_after =
                Duration::from_secs(congestion.retry_after_s.min(u64::from(u32::MAX)));
            return retry_after.clamp(config.retry, config.retry_max.max(config.retry));
        }
        // 1, 2, 4, … 512, 600 s.
        let wait = config.retry.saturating_mul(1 << self.failures.min(20));
        self.failures += 1;
        wait.min(config.retry_max)
    }
}

/// Whether a transfer ends with a hop that ended so, or that is tried again.
pub(crate) const fn is_final(failure: Failure, is_from_here: bool) -> bool {
    match failure.reason {
        CancelReason::User | CancelReason::Unreachable | CancelReason::Miscolored => true,
        // A file that cannot be read does not get better.
        CancelReason::System => matches!(failure.by, Side::Sender) && is_from_here,
        CancelReason::RetransmissionLimit | CancelReason::CycleLimit | CancelReason::Other(_) => {
            false
        }
    }
}

/// All transfers of an engine.
#[derive(Debug)]
pub(crate) struct Flows {
    all: BTreeMap<Seq, Flow>,
    /// Those of each id, of which a last engine may have several: one from each engine before it.
    by_id: BTreeSet<(FlowId, Seq)>,
    /// Those that are over, and the engine they came from.
    pub(crate) finished: Recent<FlowId, Finished>,
    next: u64,
    /// Bytes of storage that are taken.
    pub(crate) stored: u64,
    pub(crate) router: Option<Box<Router>>,
}

/// What is remembered of a transfer that is over.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Finished {
    /// The engine it came from, if it is another.
    pub(crate) before: Option<u64>,
    /// Whether this engine was the last.
    pub(crate) is_last: bool,
}

impl Flows {
    pub(crate) fn new(engine: u64, config: Option<&Config>) -> Self {
        let router = config.and_then(|config| match &config.routing {
            Routing::Static { .. } => None,
            Routing::Contacts(plan) => {
                Some(Box::new(Router::new(engine, plan.0.as_ref().clone(), Limits::default())))
            }
        });
        Self {
            all: BTreeMap::new(),
            by_id: BTreeSet::new(),
            finished: Recent::new(),
            next: 0,
            stored: 0,
            router,
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.all.len()
    }

    pub(crate) fn memory(&self) -> usize {
        self.all.len() * (size_of::<Flow>() + size_of::<(FlowId, Seq)>())
            + self.finished.len() * 2 * size_of::<(FlowId, Finished)>()
            + self.all.values().map(Flow::ranges).sum::<usize>() * 2 * size_of::<u64>()
    }

    pub(crate) fn get(&self, seq: Seq) -> Option<&Flow> {
        self.all.get(&seq)
    }

    pub(crate) fn get_mut(&mut self, seq: Seq) -> Option<&mut Flow> {
        self.all.get_mut(&seq)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (Seq, &Flow)> {
        self.all.iter().map(|(seq, flow)| (*seq, flow))
    }

    /// Whether a block is kept that came by this session.
    pub(crate) fn keeps(&self, session: SessionId) -> bool {
        let is_it = |origin: &Origin| matches!(origin, Origin::Before(other) if *other == session);
        self.all.values().any(|flow| flow.kept.is_some() && is_it(&flow.origin))
    }

    /// Those of an id, which are few.
    pub(crate) fn of(&self, id: FlowId) -> impl Iterator<Item = (Seq, &Flow)> {
        let range = (id, Seq(0))..=(id, Seq(u64::MAX));
        self.by_id.range(range).filter_map(|(_, seq)| Some((*seq, self.all.get(seq)?)))
    }

    pub(crate) fn insert(&mut self, flow: Flow) -> Seq {
        self.next += 1;
        let seq = Seq(self.next);
        self.stored += flow.reserved;
        self.by_id.insert((flow.id, seq));
        self.all.insert(seq, flow);
        seq
    }

    pub(crate) fn remove(&mut self, seq: Seq) -> Option<Flow> {
        let flow = self.all.remove(&seq)?;
        self.by_id.remove(&(flow.id, seq));
        self.stored -= flow.reserved;
        Some(flow)
    }

    /// Counts `bytes` of storage for a transfer; `false` if there is no room for them.
    pub(crate) fn reserve(&mut self, seq: Seq, bytes: u64, max: u64) -> bool {
        let Some(flow) = self.all.get_mut(&seq) else { return true };
        let more = bytes.saturating_sub(flow.reserved);
        if more > max.saturating_sub(self.stored) {
            return false;
        }
        flow.reserved += more;
        self.stored += more;
        true
    }
}
