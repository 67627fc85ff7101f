//! One connection: the state machine of RFC 9293 §3.10.
//!
//! It is driven by its stack: segments and time come in, packets are pulled. What its user is to be
//! told is noted in [`Events`], which the stack takes after each call.

mod ack;
mod close;
mod limits;
mod losses;
mod open;
mod output;
mod path_mtu;
mod scps;
mod segment;
mod timers;

pub(crate) use self::open::{Negotiated, Offer};
pub(crate) use self::path_mtu::LIFETIME;
pub(crate) use self::scps::{RateKey, Space};
pub(crate) use self::segment::Stray;

use std::time::Duration;

use engine::{PathId, Time};

use self::limits::Limited;
use self::path_mtu::PathMtu;
use super::autotune::ReceiveTuning;
use super::cc::{self, Control};
use super::config::{Config, Options};
use super::indication::{CloseReason, Counts, Info, ListenerId, State};
use super::packet::Flow;
use super::reassembly::Reassembly;
use super::recovery::Phase;
use super::rtt::Rtt;
use super::scoreboard::Scoreboard;
use super::send_buffer::SendBuffer;
use super::seq;

/// What the user is to be told.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Events {
    pub(crate) established: bool,
    pub(crate) readable: bool,
    pub(crate) writable: bool,
    pub(crate) peer_closed: bool,
    pub(crate) closed: Option<CloseReason>,
    /// The end of a record can be read.
    pub(crate) record: bool,
    /// Something was left out.
    pub(crate) holes: bool,
    /// SCPS-TP was wanted, and the peer does not have it.
    pub(crate) plain_tcp: bool,
    /// It has found out how long packets may be on its path.
    pub(crate) path_mtu: Option<usize>,
}

/// What a connection must know of its stack's settings.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rules {
    pub(crate) robust: bool,
    challenge_interval: Duration,
    fin_wait: Duration,
    pub(crate) gaps: usize,
}

impl Rules {
    pub(crate) fn of(config: &Config) -> Self {
        Self {
            robust: config.robust,
            challenge_interval: config.challenge_interval,
            fin_wait: config.fin_wait,
            gaps: config.limits.gaps,
        }
    }
}

/// What the main timer is armed for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Purpose {
    /// To send again what is in flight.
    Retransmit,
    /// To send something, before that.
    TailLossProbe,
    /// To ask for the window.
    Persist,
}

/// Time stamps (RFC 7323), when both sides understand them.
#[derive(Clone, Copy, Debug)]
struct Stamps {
    /// What is added to the clock.
    offset: u32,
    /// TS.Recent, and when it was taken.
    recent: u32,
    recent_at: Time,
}

/// What would be taken back, and how it would show.
#[derive(Clone, Copy, Debug)]
struct Undo {
    /// The first acknowledgment would echo an older time stamp than this.
    stamp: Option<u32>,
    /// Octets that were sent again and are not reported to have come twice.
    unexplained: u64,
    any: bool,
}

/// When what is due.
#[derive(Clone, Copy, Debug, Default)]
struct Timers {
    main: Option<(Time, Purpose)>,
    syn_at: Option<Time>,
    ack_at: Option<Time>,
    reorder_at: Option<Time>,
    keep_alive_at: Option<Time>,
    pace_at: Option<Time>,
    linger_at: Option<Time>,
    snack_at: Option<Time>,
    skip_at: Option<Time>,
}

impl Timers {
    /// All but the waiting for a peer's end stood still for so long.
    fn put_off(&mut self, by: Duration) {
        if let Some((at, _)) = &mut self.main {
            *at += by;
        }
        let others = [
            &mut self.syn_at,
            &mut self.ack_at,
            &mut self.reorder_at,
            &mut self.keep_alive_at,
            &mut self.pace_at,
            &mut self.snack_at,
            &mut self.skip_at,
        ];
        others.into_iter().flatten().for_each(|at| *at += by);
    }
}

/// What was done to open it.
#[derive(Clone, Copy, Debug, Default)]
struct Syns {
    /// SYNs sent, answers to those of the peer that came again among them.
    tries: u32,
    /// Those that nobody answered in time.
    timeouts: u32,
}

/// One connection.
#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) flow: Flow,
    pub(crate) path: PathId,
    /// The listener it came to.
    pub(crate) listener: Option<ListenerId>,
    mtu: usize,
    path_mtu: PathMtu,
    options: Options,
    rules: Rules,
    state: State,
    pub(crate) events: Events,
    counts: Counts,

    // What is sent.
    iss: u64,
    una: u64,
    nxt: u64,
    /// The peer's window, the largest it ever was, and the segment that told it.
    window: u64,
    window_max: u64,
    window_told: (u64, u64),
    send_scale: u8,
    peer_mss: u16,
    send: SendBuffer,
    /// Where the last short segment ended.
    short_end: u64,
    /// The user writes no more: a FIN follows the last octet.
    finished: bool,
    board: Scoreboard,
    control: Box<dyn Control>,
    seed: u64,
    phase: Phase,
    rtt: Rtt,
    undo: Option<Undo>,
    /// Duplicate acknowledgments in a row.
    duplicates: u32,
    /// What was sent next when a recovery, or a time-out, last began.
    recover: u64,
    /// Time-outs in a row.
    timeouts: u32,
    /// A segment is to be sent whatever the window: the first that was lost.
    urgent: bool,
    /// Send what the peer's window takes, however little: the timer said so.
    override_window: bool,
    /// The peer is to be asked for its window, or whether it is there.
    window_probe: bool,
    /// A tail loss probe is due, or was sent with this as its end.
    probe_due: bool,
    probe_end: Option<(u64, bool)>,
    /// A round trip ends when that is acknowledged.
    round_end: u64,
    /// The congestion window stopped what would have been sent before that.
    limited_to: Option<u64>,
    /// Buffer that stops the sender.
    limited: Limited,
    last_sent: Time,
    pace_next: Time,
    wants_room: bool,

    // What is received.
    receive: Reassembly,
    receive_scale: u8,
    /// Both sides shift windows, if only by nothing.
    scaled: bool,
    /// The right edge of the window as the peer was told.
    advertised: u64,
    /// Where the peer's data ends, when that is known, and whether all of it is there.
    fin_at: Option<u64>,
    fin_received: bool,
    /// Nobody reads any more.
    detached: bool,
    told_readable: bool,
    tuning: ReceiveTuning,
    /// The longest segment received: what a full one is.
    full_segment: u64,
    last_ack_sent: u64,
    quick_left: u32,
    /// Acknowledgments without data to be sent: at once, each by itself.
    acks_due: u32,
    /// One to be sent with whatever is sent first, or at once.
    ack_now: bool,
    duplicate: Option<(u64, u64)>,
    last_challenge: Option<Time>,
    last_heard: Time,
    keep_alive_sent: u32,

    // What both sides agreed on.
    stamps: Option<Stamps>,
    stamp_offset: u32,
    sack: bool,
    /// What it does of SCPS-TP.
    pub(crate) space: Space,
    ecn: bool,
    /// Congestion was experienced, and the peer has not said that it heard so.
    echo: bool,
    /// The next new data says that the window is reduced.
    reduced: bool,

    syn_due: bool,
    syns: Syns,
    timers: Timers,
}

impl Connection {
    pub(crate) fn state(&self) -> State {
        self.state
    }

    /// The octet expected next, a FIN included.
    pub(crate) fn receive_next(&self) -> u64 {
        self.receive.next() + u64::from(self.fin_received)
    }

    /// What is sent next.
    pub(crate) fn send_next(&self) -> u64 {
        self.nxt
    }

    /// The last time stamp of the peer, and what is added to the clock here.
    pub(crate) fn stamps(&self) -> Option<(u32, u32)> {
        self.stamps.map(|stamps| (stamps.recent, stamps.offset))
    }

    /// Where its FIN lies, or would lie.
    fn fin(&self) -> u64 {
        self.send.end()
    }

    fn fin_sent(&self) -> bool {
        self.finished && self.nxt > self.fin()
    }

    fn is_synchronized(&self) -> bool {
        !matches!(self.state, State::SynSent | State::SynReceived | State::Closed)
    }

    /// Whether data may still be sent, or sent again.
    fn may_send(&self) -> bool {
        match self.state {
            State::Established
            | State::CloseWait
            | State::FinWait1
            | State::Closing
            | State::LastAck => true,
            State::SynSent
            | State::SynReceived
            | State::FinWait2
            | State::TimeWait
            | State::Closed => false,
        }
    }

    /// Octets of a full segment's data: without the options that every segment has.
    pub(crate) fn mss(&self) -> u64 {
        let fit = self.packet_max().saturating_sub(self.flow.ip_len() + wire::tcp::HEADER_LEN);
        let own = self.options.mss.map_or(fit, usize::from);
        self.data_of(fit.min(own).min(usize::from(self.peer_mss)))
    }

    /// Octets of data in a segment whose size without options is this. A compressed header of data has
    /// 8 octets, or 16 with time stamps, in place of 20, or 32.
    fn data_of(&self, size: usize) -> u64 {
        let data = match (self.peer_number().is_some(), self.stamps.is_some()) {
            (false, false) => size,
            (false, true) => size.saturating_sub(12),
            (true, false) => size + 12,
            (true, true) => size + 4,
        };
        data.max(1) as u64
    }

    /// The interface takes other packets than before.
    pub(crate) fn set_mtu(&mut self, mtu: usize) {
        if self.mtu != mtu {
            self.mtu = mtu;
            self.control.on_mss(self.mss());
        }
    }

    /// Takes what the user writes, as far as there is room.
    pub(crate) fn write(&mut self, octets: &[u8]) -> usize {
        self.note_app_limit();
        let taken = self.send.write(octets);
        self.wants_room = taken < octets.len();
        taken
    }

    pub(crate) fn room(&self) -> u64 {
        self.send.room()
    }

    pub(crate) fn is_finished(&self) -> bool {
        self.finished
    }

    /// What can be read.
    pub(crate) fn peek(&self) -> (&[u8], &[u8]) {
        self.receive.peek()
    }

    /// The user has read so much.
    pub(crate) fn consume(&mut self, now: Time, octets: u64) {
        let octets = octets.min(self.receive.readable());
        self.receive.consume(octets);
        self.space.ends.release(self.receive.start());
        self.arm_skip(now);
        if self.receive.readable() == 0 {
            self.told_readable = false;
        }
        let rtt = self.rtt.smoothed();
        let beyond = self.receive.highest() - self.receive.next();
        let counts = (octets, self.receive.readable(), beyond);
        if let Some(capacity) = self.tuning.read(now, counts, rtt) {
            self.receive.grow(capacity);
        }
        // A window that has opened much is told of (RFC 9293 §3.8.6.2.2).
        let told = self.told_window(self.receive_scale);
        // Without a shift the field holds no more, however large the buffer.
        let most = 65_535 << self.receive_scale;
        let open = self.receive.edge().saturating_sub(self.receive_next()).min(most);
        let worth = self.full_segment.min(self.receive.capacity() / 2).max(1);
        if self.is_synchronized()
            && self.fin_at.is_none()
            && open >= 2 * told
            && open - told >= worth
        {
            self.ack_now = true;
        }
    }

    /// Whether there is nothing left for its user: it is over, and all is read.
    pub(crate) fn is_done(&self) -> bool {
        self.state == State::Closed && (self.receive.readable() == 0 || self.detached)
    }

    /// Octets of memory it holds on account of its peer and its user.
    pub(crate) fn memory(&self) -> usize {
        let own = size_of::<Self>() + self.space.marks.memory() + self.space.ends.memory();
        let buffers = self.send.memory() + self.receive.memory();
        own + buffers + self.board.memory() + self.space.best_effort.memory()
    }

    pub(crate) fn info(&self) -> Info {
        Info {
            state: self.state,
            local: self.flow.tuple.local,
            remote: self.flow.tuple.remote,
            mss: self.mss(),
            timestamps: self.stamps.is_some(),
            sack: self.sack,
            scps: self.space.agreed,
            suspended: self.is_suspended(),
            ecn: self.ecn,
            window_scale: (self.send_scale, self.receive_scale),
            cwnd: self.control.cwnd(),
            ssthresh: self.control.ssthresh(),
            pacing_rate_bps: self.pacing_rate_bps(),
            peer_window: self.window,
            in_flight: self.board.pipe(),
            srtt: self.rtt.smoothed(),
            rttvar: self.rtt.variation(),
            min_rtt: self.rtt.least(),
            rto: self.rtt.timeout(),
            unacknowledged: self.send.len(),
            readable: self.receive.readable(),
            buffers: (self.send.capacity(), self.receive.capacity()),
            counts: self.counts,
        }
    }

    /// The clock of its time stamps, in milliseconds.
    fn stamp(&self, now: Time) -> u32 {
        self.stamp_offset.wrapping_add((now.as_nanos() / 1_000_000) as u32)
    }

    fn expand(&self, near: u64, wire: u32) -> u64 {
        seq::expand(near, wire)
    }

    /// The congestion control for the segments agreed on.
    fn new_control(&self) -> Box<dyn Control> {
        let mss = self.mss();
        let initial = self.options.initial_window.octets(mss);
        cc::new(self.options.congestion, mss, initial, u64::MAX, self.seed)
    }
}
