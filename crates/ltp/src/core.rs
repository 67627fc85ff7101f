//! State shared by all sessions of an engine, and state common to each session.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use ::session::path::{Burst, Handle};
use ::session::timer::Timer;
use ::session::{self, Base, Credit, StoreRefusal, User};
use engine::{IndexRequest, PathId, Rng, Time};

use super::config::{Config, Remote};
use super::cookies::Cookies;
use super::indication::{Block, Indication, Limit, Stats};
use super::sealed::{Sealed, extensions};
use super::silence::{Probe, Silence};
use super::transport::flow::{Outcome, Seq};
use super::transport::record;
use crate::segment::ltpt::{Congestion, Transport};
use crate::segment::{Body, Extension, SessionId};
use crate::{authentication, refusal};

/// A session's timers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Alarm {
    /// Timeout of the report on the checkpoint with this serial number.
    Checkpoint(u64),
    /// Timeout of the acknowledgement of the report with this serial number.
    Report(u64),
    /// Timeout of the acknowledgement of a cancellation.
    Cancel,
    /// Silence of the peer.
    Inactivity,
    /// Gaps may be reported again.
    Gaps,
    /// Units queued for this engine are due.
    Units(u64),
    /// The host's processing delay has expired.
    Host,
    /// Retry of an LTP-T transfer.
    Retry(Seq),
    /// Expiry of an LTP-T transfer.
    Expiry(Seq),
}

impl session::Alarm for Alarm {
    fn why(self) -> &'static str {
        match self {
            Self::Checkpoint(_) => "checkpoint",
            Self::Report(_) => "report",
            Self::Cancel => "cancel",
            Self::Inactivity => "inactivity",
            Self::Gaps => "gaps",
            Self::Units(_) => "units",
            Self::Host => "host",
            Self::Retry(_) => "retry",
            Self::Expiry(_) => "expiry",
        }
    }

    fn awaits_peer(self) -> bool {
        match self {
            Self::Checkpoint(_) | Self::Report(_) | Self::Cancel | Self::Inactivity => true,
            Self::Gaps | Self::Units(_) | Self::Host | Self::Retry(_) | Self::Expiry(_) => false,
        }
    }
}

/// Purpose of an effect that only LTP has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Task {
    /// Reads the records of an earlier run.
    Load,
    /// Records the parts of a session.
    Record,
    /// Records the route of a relayed block.
    Route,
}

pub(crate) type Job = session::Job<Task>;

pub(crate) type Shared = session::Shared<Alarm, Task>;

/// Sessions whose files were received.
pub(crate) type Done = session::done::Done<SessionId>;

/// State shared by all sessions of an engine.
#[derive(Debug)]
pub(crate) struct Core {
    pub(crate) config: Config,
    pub(crate) shared: Shared,
    pub(crate) user: User<Indication, Limit>,
    pub(crate) stats: Stats,
    pub(crate) rng: Rng,
    /// Time at which segments of sessions last arrived on each path, since it came up.
    pub(crate) received_at: BTreeMap<PathId, Time>,
    /// Time of the last planned probe on each path with a silent peer.
    pub(crate) probes: BTreeMap<PathId, Time>,
    /// Time at which reports were last acknowledged on each path.
    pub(crate) acked: BTreeMap<PathId, Time>,
    /// Bytes that may be sent on each path in sessions whose peers have not proven themselves.
    credit: BTreeMap<PathId, Credit>,
    /// Paths on which a peer replied under a random number of this engine.
    pub(crate) proven: BTreeSet<PathId>,
    /// Sessions whose files are complete.
    pub(crate) done: Done,
    /// Number of sessions under way.
    pub(crate) sessions: usize,
    /// Number of ranges tracked in all receptions.
    pub(crate) ranges: usize,
    /// Bytes of units queued, sent or received.
    pub(crate) units: usize,
    /// Complete blocks for the user of an engine of blocks; `None` if blocks are named files.
    pub(crate) blocks: Option<VecDeque<Block>>,
    /// Results of LTP-T hops that their transfers have not processed yet.
    pub(crate) outcomes: VecDeque<Outcome>,
    /// Time of the input or timer being handled.
    pub(crate) now: Time,
}

impl Core {
    pub(crate) fn new(config: Config, rng: Rng) -> Self {
        Self {
            shared: Shared::new(config.limits.buffers),
            user: User::new(),
            stats: Stats::default(),
            rng,
            received_at: BTreeMap::new(),
            probes: BTreeMap::new(),
            acked: BTreeMap::new(),
            credit: BTreeMap::new(),
            proven: BTreeSet::new(),
            done: Done::new(),
            sessions: 0,
            ranges: 0,
            units: 0,
            blocks: None,
            outcomes: VecDeque::new(),
            now: Time::ZERO,
            config,
        }
    }

    /// Initial serial number: random and nonzero (RFC 5326 §9.1).
    pub(crate) fn first_serial(&mut self) -> u64 {
        // Two bytes on the wire, with room to count up.
        (1 << 7) + self.rng.below((1 << 14) - (1 << 7) - 256)
    }

    /// Notes bytes of a peer that has not proven itself; replies leave on this path.
    pub(crate) fn earn(&mut self, path: PathId, len: usize) {
        let credit = self.credit.entry(path).or_insert(Credit::for_received(0));
        credit.earn(len);
        credit.cap();
    }

    /// Whether a peer that has not proven itself may get this many bytes more.
    pub(crate) fn spend(&mut self, path: PathId, len: usize) -> bool {
        let may = self.credit.get_mut(&path).is_some_and(|credit| credit.spend(len));
        self.stats.held_back += u64::from(!may);
        may
    }

    /// Forgets what is known of the peer on a path that went down.
    pub(crate) fn forget_path(&mut self, path: PathId) {
        self.received_at.remove(&path);
        self.probes.remove(&path);
        self.acked.remove(&path);
        self.credit.remove(&path);
        self.proven.remove(&path);
    }

    /// Removes the record of a block for another engine, by the session that brought it.
    pub(crate) fn remove_record(&mut self, session: SessionId) {
        let request = IndexRequest::Remove { key: record::key(session) };
        self.shared.index(Handle::NOBODY, Job::Forget, request);
    }

    /// Counts data dropped for lack of room.
    pub(crate) fn no_room(&mut self) {
        self.stats.data_dropped += 1;
        if self.shared.became_full() {
            self.user.indicate(Indication::LimitReached(Limit::WriteBuffer));
        }
    }

    /// Time from `at` to the next retransmission on a path. Sessions with a silent peer take turns,
    /// so that probes are evenly spaced and soon detect the end of an outage.
    pub(crate) fn probe_wait(
        &mut self,
        path: Option<PathId>,
        at: Time,
        silence: Silence,
        timer: Timer,
        probe: Probe,
    ) -> Duration {
        let packet = path.and_then(|id| self.shared.paths.get(&id));
        let packet = packet.map(|path| path.time_of(path.mtu())).unwrap_or_default();
        let [one, most] =
            [1, self.sessions].map(|sessions| silence.wait(timer, probe, packet, sessions));
        let Some(path) = path.filter(|_| most > one) else { return one };
        let last = self.probes.get(&path).map_or(at, |last| (*last).max(at));
        let turn = (last + one).min(at + most);
        self.probes.insert(path, turn);
        turn.since(at)
    }

    /// Time within which the peer should have replied.
    pub(crate) fn answer_time(&self, base: &Base<Alarm>, remote: &Remote) -> Duration {
        base.seat.round_trip(&self.shared.paths).timeout(remote.initial_rtt)
    }
}

/// Peer of a session, and how to address it.
#[derive(Debug)]
pub(crate) struct Peer {
    pub(crate) session: SessionId,
    pub(crate) remote: Remote,
    pub(crate) cookies: Cookies,
    /// LTP-T extensions of data segments, if the session is a hop of a transfer.
    transport: Vec<(u8, Vec<u8>)>,
    /// Extensions of a cancellation, which have its cause.
    cause: Vec<(u8, Vec<u8>)>,
    /// Whether the peer has proven that it receives segments, or need not: the session is this
    /// engine's own.
    pub(crate) is_proven: bool,
}

impl Peer {
    pub(crate) fn new(session: SessionId, remote: Remote) -> Self {
        let (transport, cause) = (Vec::new(), Vec::new());
        let (cookies, is_proven) = (Cookies::default(), false);
        Self { session, remote, cookies, transport, cause, is_proven }
    }

    /// Adds the block's transfer to each data segment.
    pub(crate) fn set_transport(&mut self, transport: &Transport) {
        self.transport = transport.values();
    }

    /// Adds the block's size to each data segment.
    pub(crate) fn set_block_size(&mut self, size: u64) {
        let transport = Transport { size: Some(size), ..Transport::default() };
        for (tag, value) in transport.values() {
            if let Some(entry) = self.transport.iter_mut().find(|(other, _)| *other == tag) {
                entry.1 = value;
            }
        }
    }

    /// Adds the congested resource to a cancellation.
    pub(crate) fn set_congestion(&mut self, congestion: Congestion) {
        let transport = Transport { congestion: Some(congestion), ..Transport::default() };
        self.cause = transport.values();
    }

    /// Adds the reason why the block cannot be stored to a cancellation.
    pub(crate) fn set_store_refusal(&mut self, reason: StoreRefusal) {
        self.cause = vec![refusal::extension(reason)];
    }

    /// Extensions of a segment besides those for security.
    fn values(&self, body: &Body<'_>) -> &[(u8, Vec<u8>)] {
        match body {
            Body::Data(_) => &self.transport,
            Body::Cancel { .. } => &self.cause,
            Body::Report(_) | Body::ReportAck { .. } | Body::CancelAck { .. } => &[],
        }
    }

    /// Bytes of the largest segment of this session, without its extensions.
    pub(crate) fn segment_max(&self, mtu: usize) -> usize {
        self.datagram_max(mtu).saturating_sub(self.extensions_len())
    }

    /// Bytes of the largest datagram.
    pub(crate) fn datagram_max(&self, mtu: usize) -> usize {
        self.remote.datagram_max.map_or(mtu, |max| max.min(mtu))
    }

    /// Bytes of a segment's extensions.
    pub(crate) fn extensions_len(&self) -> usize {
        let authentication = self.remote.authentication.as_ref().map_or(0, authentication::len);
        let transport: usize = extensions(&self.transport).map(Extension::encoded_len).sum();
        authentication + self.cookies.len() + transport
    }

    /// Writes a segment into the batch; `false` if it must wait for the next one. A segment larger
    /// than the path's MTU, or than the peer's credit, is dropped.
    pub(crate) fn push(&self, core: &mut Core, burst: &mut Burst<'_>, body: Body<'_>) -> bool {
        let authentication = self.remote.authentication.as_ref();
        let (cookies, transport) = (&self.cookies, self.values(&body));
        let segment = Sealed { session: self.session, body, authentication, cookies, transport };
        let len = segment.encoded_len();
        if len > burst.mtu() {
            core.stats.oversize += 1;
            return true;
        }
        if !burst.has_room(len) {
            return false;
        }
        if !self.is_proven && !core.spend(burst.path, len) {
            return true;
        }
        let Some(place) = burst.push(len) else { return false };
        if segment.encode(place).is_err() {
            debug_assert!(false, "a segment of our own cannot be encoded");
            place.fill(0xff);
        }
        core.stats.sent.count(&body);
        true
    }
}
