//! Connection: the state machine of RFC 9293 §3.10.
//!
//! Driven by its stack, which passes segments and time, and pulls packets. Notifications for its
//! user are collected in [`Events`], which the stack takes after each call.

mod ack;
mod acks;
mod close;
mod control;
mod inbound;
mod limits;
mod losses;
mod open;
mod output;
mod path_mtu;
mod scps;
mod segment;
mod sequence;
mod stamps;
mod timers;

use std::time::Duration;

use engine::{PathId, Time};

use self::acks::Acks;
use self::control::SendControl;
use self::inbound::Inbound;
use self::limits::Limited;
use self::losses::Losses;
use self::open::Handshake;
pub(crate) use self::open::{Negotiated, Offer};
pub(crate) use self::path_mtu::LIFETIME;
use self::path_mtu::PathMtu;
pub(crate) use self::scps::{RateKey, Space};
pub(crate) use self::segment::Stray;
use self::sequence::SendSequence;
use self::stamps::Stamps;
use self::timers::{Liveness, Purpose, Timers};
use super::config::{Config, Options};
use super::indication::{CloseReason, Counts, Info, ListenerId, State};
use super::packet::Flow;
use super::reassembly::Reassembly;
use super::rtt::Rtt;
use super::scoreboard::Scoreboard;
use super::send_buffer::SendBuffer;

/// Notifications for the user.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Events {
    pub(crate) established: bool,
    pub(crate) readable: bool,
    pub(crate) writable: bool,
    pub(crate) peer_closed: bool,
    pub(crate) closed: Option<CloseReason>,
    /// The end of a record can be read.
    pub(crate) record: bool,
    /// Data was skipped.
    pub(crate) holes: bool,
    /// SCPS-TP was requested, but the peer does not support it.
    pub(crate) plain_tcp: bool,
    /// Discovered path MTU.
    pub(crate) path_mtu: Option<usize>,
}

/// Settings of the stack that a connection needs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rules {
    pub(crate) robust: bool,
    challenge_interval: Duration,
    fin_wait: Duration,
    pub(crate) gaps: usize,
}

impl Rules {
    pub(crate) fn from_config(config: &Config) -> Self {
        Self {
            robust: config.robust,
            challenge_interval: config.challenge_interval,
            fin_wait: config.fin_wait,
            gaps: config.limits.gaps,
        }
    }
}

/// Echo of congestion marks (RFC 3168 §6.1.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum EcnEcho {
    /// The peer does not use ECN.
    Off,
    Agreed,
    /// Congestion was experienced, and the peer has not confirmed a reduced window.
    Due,
}

impl EcnEcho {
    fn is_agreed(self) -> bool {
        self != Self::Off
    }

    fn echoes(self) -> bool {
        self == Self::Due
    }
}

/// Connection.
#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) flow: Flow,
    pub(crate) path: PathId,
    path_mtu: PathMtu,
    options: Options,
    rules: Rules,
    state: State,
    pub(crate) events: Events,
    counts: Counts,
    handshake: Handshake,

    // Sending.
    snd: SendSequence,
    send: SendBuffer,
    board: Scoreboard,
    losses: Losses,
    control: SendControl,
    rtt: Rtt,
    /// Buffer that limits the sender.
    limited: Limited,

    // Receiving.
    receive: Reassembly,
    inbound: Inbound,
    acks: Acks,

    stamps: Stamps,
    ecn: EcnEcho,
    /// SCPS-TP.
    pub(crate) space: Space,
    liveness: Liveness,
    timers: Timers,
}

impl Connection {
    pub(crate) fn state(&self) -> State {
        self.state
    }

    /// Next expected byte, including a FIN.
    pub(crate) fn receive_next(&self) -> u64 {
        self.inbound.next(&self.receive)
    }

    /// Listener it arrived at.
    pub(crate) fn listener(&self) -> Option<ListenerId> {
        self.handshake.listener
    }

    /// Next byte to send.
    pub(crate) fn send_next(&self) -> u64 {
        self.snd.nxt()
    }

    /// Last timestamp of the peer, and the offset of the local clock.
    pub(crate) fn stamps(&self) -> Option<(u32, u32)> {
        self.stamps.recent()
    }

    /// Position of its FIN.
    fn fin(&self) -> u64 {
        self.send.end()
    }

    fn fin_sent(&self) -> bool {
        self.send.is_finished() && self.snd.nxt() > self.fin()
    }

    fn is_synchronized(&self) -> bool {
        !matches!(self.state, State::SynSent | State::SynReceived | State::Closed)
    }

    /// Whether data may still be sent or retransmitted.
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

    /// Data bytes of a full segment: without the options that every segment has.
    pub(crate) fn mss(&self) -> u64 {
        let fit = self.packet_max().saturating_sub(self.flow.ip_len() + crate::segment::HEADER_LEN);
        let own = self.options.mss.map_or(fit, usize::from);
        self.data_of(fit.min(own).min(usize::from(self.path_mtu.peer_mss)))
    }

    /// Data bytes of a segment of this size without options. A compressed data header has 8 bytes,
    /// or 16 with timestamps, instead of 20 or 32.
    fn data_of(&self, size: usize) -> u64 {
        let data = match (self.peer_number().is_some(), self.stamps.are_agreed()) {
            (false, false) => size,
            (false, true) => size.saturating_sub(12),
            (true, false) => size + 12,
            (true, true) => size + 4,
        };
        data.max(1) as u64
    }

    /// Notes a changed MTU of the interface.
    pub(crate) fn set_mtu(&mut self, mtu: usize) {
        if self.path_mtu.interface != mtu {
            self.path_mtu.interface = mtu;
            self.control.set_mss(self.mss());
        }
    }

    /// Accepts data written by the user, as far as there is room.
    pub(crate) fn write(&mut self, bytes: &[u8]) -> usize {
        self.note_app_limit();
        self.send.write(bytes)
    }

    pub(crate) fn room(&self) -> u64 {
        self.send.room()
    }

    pub(crate) fn is_finished(&self) -> bool {
        self.send.is_finished()
    }

    /// Readable data.
    pub(crate) fn peek(&self) -> (&[u8], &[u8]) {
        self.receive.peek()
    }

    /// Notes that the user has read `bytes`.
    pub(crate) fn consume(&mut self, now: Time, bytes: u64) {
        let bytes = bytes.min(self.receive.readable());
        self.receive.consume(bytes);
        self.space.ends.release(self.receive.start());
        self.arm_skip(now);
        let rtt = self.rtt.smoothed();
        let opened = self.inbound.consumed(now, bytes, rtt, &mut self.receive);
        if opened && self.is_synchronized() {
            self.acks.hasten();
        }
    }

    /// Whether its user is done: it is closed, and everything was read.
    pub(crate) fn is_done(&self) -> bool {
        self.state == State::Closed && (self.receive.readable() == 0 || self.inbound.is_detached())
    }

    /// Bytes of memory used for its peer and its user.
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
            timestamps: self.stamps.are_agreed(),
            sack: self.losses.sack(),
            scps: self.space.agreed,
            suspended: self.is_suspended(),
            ecn: self.ecn.is_agreed(),
            window_scale: (self.snd.shift(), self.inbound.shift()),
            cwnd: self.control.cwnd(),
            ssthresh: self.control.ssthresh(),
            pacing_rate_bps: self.pacing_rate_bps(),
            peer_window: self.snd.window(),
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
}
