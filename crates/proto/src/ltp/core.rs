//! What all sessions of an engine share, and what each session has in common.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use engine::{PathId, Rng, Time};
use wire::ltp::{Body, Extension, SessionId};
use wire::ltpt::{Congestion, Transport};

use super::config::{Config, Remote};
use super::cookies::Cookies;
use super::indication::{Block, Indication, Limit, Stats};
use super::marks::Done;
use super::sealed::Sealed;
use super::silence::{Probe, Silence};
use super::transport::flow::{Outcome, Seq};
use crate::authentication::Authentication;
use crate::path::Burst;
use crate::session::{self, Base, User};
use crate::timer::Timer;

/// A session's timers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Alarm {
    /// The report on the checkpoint with this serial number is overdue.
    Checkpoint(u64),
    /// The acknowledgement of the report with this serial number is overdue.
    Report(u64),
    /// The acknowledgement of a cancellation is overdue.
    Cancel,
    /// Nothing came for too long.
    Inactivity,
    /// Gaps may be reported again.
    Gaps,
    /// The units gathered for this engine have waited long enough.
    Units(u64),
    /// This host has taken its time.
    Host,
    /// A transfer of LTP-T is tried again.
    Retry(Seq),
    /// A transfer of LTP-T is of no use any more.
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

/// What an effect was for that only LTP has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Task {
    /// Take up the marks of an earlier run.
    Load,
    /// The session has its mark.
    Mark,
    /// It is written down whereto a block goes that is kept for another engine.
    Record,
}

pub(crate) type Job = session::Job<Task>;

pub(crate) type Shared = session::Shared<Alarm, Task>;

/// What all sessions of an engine share.
#[derive(Debug)]
pub(crate) struct Core {
    pub(crate) config: Config,
    pub(crate) shared: Shared,
    pub(crate) user: User<Indication, Limit>,
    pub(crate) stats: Stats,
    pub(crate) rng: Rng,
    /// When segments of sessions last arrived by each path, since it came up.
    pub(crate) received_at: BTreeMap<PathId, Time>,
    /// When the last probe of those that are planned leaves by each path whose peer is silent.
    pub(crate) probes: BTreeMap<PathId, Time>,
    /// When reports were last acknowledged by each path.
    pub(crate) acked: BTreeMap<PathId, Time>,
    /// Sessions whose files are here.
    pub(crate) done: Done,
    /// Sessions under way.
    pub(crate) sessions: usize,
    /// Ranges tracked, in all receptions.
    pub(crate) ranges: usize,
    /// Bytes of units that are gathered, sent or received.
    pub(crate) units: usize,
    /// Blocks for the user, who takes them as they are; `None` if blocks are files with names.
    pub(crate) blocks: Option<VecDeque<Block>>,
    /// What became of hops of transfers of LTP-T, until the transfers are told.
    pub(crate) outcomes: VecDeque<Outcome>,
    /// The time of the input or timer that is being handled.
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

    /// A serial number to begin with: random and not 0 (RFC 5326 §9.1).
    pub(crate) fn first_serial(&mut self) -> u64 {
        // Two bytes on the wire, with room to count on.
        (1 << 7) + self.rng.below((1 << 14) - (1 << 7) - 256)
    }

    /// Data that came is dropped for lack of room.
    pub(crate) fn no_room(&mut self) {
        self.stats.data_dropped += 1;
        if self.shared.became_full() {
            self.user.indicate(Indication::LimitReached(Limit::WriteBuffer));
        }
    }

    /// Time from `at` to the next retransmission by a path. Sessions with a silent peer take turns,
    /// so that probes follow each other at even intervals and soon find out that an outage is over.
    pub(crate) fn probe_wait(
        &mut self,
        path: Option<PathId>,
        at: Time,
        silence: Silence,
        (timer, probe): (Timer, Probe),
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

    /// Time within which the peer should have answered.
    pub(crate) fn answer_time(&self, base: &Base<Alarm>, remote: &Remote) -> Duration {
        base.seat.round_trip(&self.shared.paths).timeout(remote.initial_rtt)
    }
}

/// The other end of a session, and how it is written to.
#[derive(Debug)]
pub(crate) struct Peer {
    pub(crate) session: SessionId,
    pub(crate) remote: Remote,
    pub(crate) cookies: Cookies,
    /// The extensions of LTP-T in data, if the session is a hop of a transfer.
    transport: Vec<(u8, Vec<u8>)>,
    /// The same in a cancellation, if it is for want of room.
    congestion: Vec<(u8, Vec<u8>)>,
}

impl Peer {
    pub(crate) fn new(session: SessionId, remote: Remote) -> Self {
        let (transport, congestion) = (Vec::new(), Vec::new());
        Self { session, remote, cookies: Cookies::default(), transport, congestion }
    }

    /// Says with each data segment whereto the block goes.
    pub(crate) fn set_transport(&mut self, transport: &Transport) {
        self.transport = transport.values();
    }

    /// Says with each data segment how large the block is.
    pub(crate) fn set_block_size(&mut self, size: u64) {
        let transport = Transport { size: Some(size), ..Transport::default() };
        for (tag, value) in transport.values() {
            if let Some(entry) = self.transport.iter_mut().find(|(other, _)| *other == tag) {
                entry.1 = value;
            }
        }
    }

    /// Says with a cancellation what there is not enough of.
    pub(crate) fn set_congestion(&mut self, congestion: Congestion) {
        let transport = Transport { congestion: Some(congestion), ..Transport::default() };
        self.congestion = transport.values();
    }

    /// The extensions of LTP-T in a segment.
    fn values(&self, body: &Body<'_>) -> &[(u8, Vec<u8>)] {
        match body {
            Body::Data(_) => &self.transport,
            Body::Cancel { .. } => &self.congestion,
            Body::Report(_) | Body::ReportAck { .. } | Body::CancelAck { .. } => &[],
        }
    }

    /// The largest segment this session may send, without the extensions it gets.
    pub(crate) fn segment_max(&self, mtu: usize) -> usize {
        self.datagram_max(mtu).saturating_sub(self.extensions_len())
    }

    /// The largest datagram it may send.
    pub(crate) fn datagram_max(&self, mtu: usize) -> usize {
        self.remote.datagram_max.map_or(mtu, |max| max.min(mtu))
    }

    /// Bytes of the extensions that a segment gets.
    pub(crate) fn extensions_len(&self) -> usize {
        let authentication = self.remote.authentication.as_ref().map_or(0, Authentication::len);
        let transport: usize = extensions(&self.transport).map(Extension::encoded_len).sum();
        authentication + self.cookies.len() + transport
    }

    /// Writes one segment into the batch; `false` if it must wait for the next one. A segment that is
    /// larger than the path takes cannot be sent at all, and is left out.
    pub(crate) fn push(&self, core: &mut Core, burst: &mut Burst<'_>, body: Body<'_>) -> bool {
        let authentication = self.remote.authentication.as_ref();
        let (cookies, transport) = (&self.cookies, self.values(&body));
        let segment = Sealed { session: self.session, body, authentication, cookies, transport };
        let len = segment.encoded_len();
        if len > burst.mtu() {
            core.stats.oversize += 1;
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

/// Extensions of LTP-T, by their tags and values.
pub(crate) fn extensions(values: &[(u8, Vec<u8>)]) -> impl Iterator<Item = Extension<'_>> {
    values.iter().map(|(tag, value)| Extension { tag: *tag, value })
}
