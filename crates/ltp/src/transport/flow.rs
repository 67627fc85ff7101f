//! LTP-T transfers: state of each while the engine sends, forwards or receives it.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bytes::Bytes;
use engine::{FileId, FileName};
use routing::routes::Router;
use routing::settings::Settings;
use session::StoreRefusal;
use session::path::Handle;
use session::ranges::Ranges;
use session::recent::Recent;

use crate::config::transport::{Config, Routing};
use crate::indication::Failure;
use crate::indication::transport::{FlowId, Transfer};
use crate::request::SendRequest;
use crate::segment::ltpt::{Congestion, Transport};
use crate::segment::{CancelReason, End as Side, SessionId};

/// Local number of a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Seq(pub(crate) u64);

/// Result of a hop of a transfer.
#[derive(Debug)]
pub(crate) enum Outcome {
    /// The session to the next engine ended.
    Sent {
        flow: Seq,
        result: Result<(), Failure>,
        is_confirmed: bool,
        size: u64,
        congestion: Option<Congestion>,
    },
    /// The block is complete and stored.
    Kept { flow: Seq, file: Option<FileId>, shape: Shape },
    /// The block was for this engine, and is complete.
    Delivered { flow: Seq },
    /// The session that brought the block ended early.
    Broken { flow: Seq, failure: Failure },
}

/// State at a reception of a block for another engine.
#[derive(Debug)]
pub(crate) struct Relay {
    pub(crate) service: u64,
    /// Extensions with which the block is forwarded.
    pub(crate) onward: Transport,
    /// Data received since the onward sender was last updated.
    pub(crate) fresh: Vec<(u64, Bytes)>,
    /// Whether its route was recorded.
    pub(crate) is_recorded: bool,
    /// Last segment of the block, once received.
    pub(crate) last: Option<Last>,
}

impl Relay {
    pub(crate) fn new(service: u64, onward: Transport) -> Self {
        Self { service, onward, fresh: Vec::new(), is_recorded: false, last: None }
    }
}

/// Block in a working file.
#[derive(Clone, Debug)]
pub(crate) struct Stored {
    pub(crate) file: FileName,
    pub(crate) service: u64,
    pub(crate) shape: Shape,
}

/// Structure of a block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Shape {
    /// Ranges received. Missing data between them is green.
    pub(crate) parts: Ranges,
    /// Total bytes, if known: the end of a green block may be lost.
    pub(crate) end: Option<u64>,
    /// Bytes of its red part.
    pub(crate) red: u64,
    /// Last segment.
    pub(crate) last: Option<Last>,
}

/// Last segment of a block as received: its offset and its bytes. It is forwarded as a separate
/// segment, because some client services infer the kind of block from it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Last {
    pub(crate) offset: u64,
    pub(crate) bytes: Bytes,
}

/// Origin of a block.
#[derive(Clone, Debug)]
pub(crate) enum Origin {
    /// A file of this engine, as a transfer known to the user by this session.
    Here { request: SendRequest, id: SessionId },
    /// The engine that started this session.
    Before(SessionId),
}

/// LTP-T transfer.
#[derive(Debug)]
pub(crate) struct Flow {
    pub(crate) id: FlowId,
    pub(crate) destination: u64,
    pub(crate) service: u64,
    /// Extensions with which the block is forwarded.
    pub(crate) onward: Transport,
    pub(crate) origin: Origin,
    /// Whether this engine is the destination.
    pub(crate) is_last: bool,
    /// Session that brings the block, until all is stored.
    pub(crate) incoming: Option<Handle>,
    /// Session to the next engine.
    pub(crate) outgoing: Option<Handle>,
    /// Complete block, once stored.
    pub(crate) kept: Option<Stored>,
    /// Whether the next engine accepted the block.
    pub(crate) is_forwarded: bool,
    /// Number of sessions started to the next engine.
    pub(crate) sessions: u32,
    /// Number of those sessions that failed for a reason other than lack of room.
    pub(crate) failures: u32,
    /// Bytes of storage reserved for the block.
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

    /// Previous engine, if any.
    pub(crate) const fn before(&self) -> Option<u64> {
        match self.origin {
            Origin::Here { .. } => None,
            Origin::Before(session) => Some(session.originator),
        }
    }

    /// Number of ranges tracked of the stored block.
    pub(crate) fn ranges(&self) -> usize {
        self.kept.as_ref().map_or(0, |kept| kept.shape.parts.len())
    }

    /// Time to wait after another failure of a hop.
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

/// Whether a hop's failure ends the transfer, instead of causing a retry.
pub(crate) const fn is_final(failure: Failure, is_from_here: bool) -> bool {
    // Other attempts do not help, unless the receiver makes room. The user who sends the file can
    // try again.
    if let Some(refusal) = failure.store_refusal() {
        return is_from_here || !matches!(refusal, StoreRefusal::NoSpace | StoreRefusal::Failed);
    }
    match failure.reason {
        CancelReason::User | CancelReason::Unreachable | CancelReason::Miscolored => true,
        // Another attempt does not help if the file cannot be read.
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
    /// Transfers by identifier. The destination may have several with one identifier: one from
    /// each previous engine.
    by_id: BTreeSet<(FlowId, Seq)>,
    /// Finished transfers, and their previous engines.
    pub(crate) finished: Recent<FlowId, Finished>,
    next: u64,
    /// Bytes of storage in use.
    pub(crate) stored: u64,
    pub(crate) router: Option<Box<Router>>,
}

/// State remembered of a finished transfer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Finished {
    /// Previous engine, if any.
    pub(crate) before: Option<u64>,
    /// Whether this engine was the destination.
    pub(crate) is_last: bool,
}

impl Flows {
    pub(crate) fn new(engine: u64, config: Option<&Config>) -> Self {
        let router = config.and_then(|config| match &config.routing {
            Routing::Static { .. } => None,
            Routing::Contacts(plan) => {
                Some(Box::new(Router::new(engine, plan.0.as_ref().clone(), Settings::default())))
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

    pub(crate) fn get(&self, seq: Seq) -> Option<&Flow> {
        self.all.get(&seq)
    }

    pub(crate) fn get_mut(&mut self, seq: Seq) -> Option<&mut Flow> {
        self.all.get_mut(&seq)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (Seq, &Flow)> {
        self.all.iter().map(|(seq, flow)| (*seq, flow))
    }

    /// Whether a block of this session is stored.
    pub(crate) fn keeps(&self, session: SessionId) -> bool {
        let is_it = |origin: &Origin| matches!(origin, Origin::Before(other) if *other == session);
        self.all.values().any(|flow| flow.kept.is_some() && is_it(&flow.origin))
    }

    /// Transfers with an identifier, which are few.
    pub(crate) fn with_id(&self, id: FlowId) -> impl Iterator<Item = (Seq, &Flow)> {
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

    /// Reserves `bytes` of storage for a transfer. Returns `false` if there is no room.
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
