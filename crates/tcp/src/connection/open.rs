//! Opening: SYNs and their negotiation (RFC 9293 §3.10.1, §3.10.7.3, §3.10.7.4).

use engine::{PathId, Time};

use super::limits::Limited;
use super::path_mtu::PathMtu;
use super::{
    Acks, Connection, EcnEcho, Events, Inbound, Liveness, Losses, Rules, SendControl, SendSequence,
    Space, Stamps, Timers,
};
use crate::config::{Buffer, Options};
use crate::indication::{CloseReason, Counts, ListenerId, State};
use crate::packet::{Flow, Tuple};
use crate::reassembly::Reassembly;
use crate::rtt::Rtt;
use crate::scoreboard::Scoreboard;
use crate::segment::{Capabilities, Flags, Segment, TcpOption};
use crate::send_buffer::SendBuffer;
use crate::seq;

/// Options offered in a peer's SYN.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Offer {
    pub(crate) mss: Option<u16>,
    pub(crate) scale: Option<u8>,
    pub(crate) stamp: Option<u32>,
    pub(crate) sack: bool,
    /// ECN is requested or accepted.
    pub(crate) ecn: bool,
    pub(crate) scps: Option<Capabilities>,
}

impl Offer {
    pub(crate) fn from_segment(segment: &Segment<'_>) -> Self {
        let mut offer = Self::default();
        for option in segment.options.map_while(Result::ok) {
            match option {
                TcpOption::MaximumSegmentSize(size) => offer.mss = Some(size),
                TcpOption::WindowScale(shift) => offer.scale = Some(shift.min(14)),
                TcpOption::SackPermitted => offer.sack = true,
                TcpOption::Timestamps { value, .. } => offer.stamp = Some(value),
                TcpOption::ScpsCapabilities(theirs) => offer.scps = Some(theirs),
                TcpOption::NoOperation
                | TcpOption::Sack(_)
                | TcpOption::ScpsExtended(_)
                | TcpOption::Snack { .. }
                | TcpOption::RecordBoundary
                | TcpOption::CorruptionExperienced
                | TcpOption::Unknown { .. } => {}
            }
        }
        let flags = segment.header.flags;
        // A SYN has both bits, its reply one (RFC 3168 §6.1.1).
        offer.ecn = if flags.contains(Flags::ACK) {
            flags.contains(Flags::ECE) && !flags.contains(Flags::CWR)
        } else {
            flags.contains(Flags::ECE | Flags::CWR)
        };
        offer
    }
}

/// Initial state of a connection.
#[derive(Debug)]
pub(crate) struct Negotiated {
    pub(crate) tuple: Tuple,
    pub(crate) path: PathId,
    pub(crate) mtu: usize,
    /// Path MTU to the peer, if known to be smaller.
    pub(crate) path_mtu: Option<usize>,
    pub(crate) initial: u32,
    pub(crate) stamp_offset: u32,
    pub(crate) seed: u64,
    /// IP protocol number of its packets, and its number in compressed headers, or 0.
    pub(crate) carrier: u8,
    pub(crate) own_number: u8,
}

impl Negotiated {
    fn flow(&self, options: &Options) -> Flow {
        Flow::new(self.tuple, options.hop_limit, options.dscp, self.seed as u16)
            .with_carrier(self.carrier)
    }
}

/// SYNs of a connection.
#[derive(Clone, Copy, Debug)]
pub(super) struct Handshake {
    /// Listener it arrived at.
    pub(super) listener: Option<ListenerId>,
    is_due: bool,
    /// Number of SYNs sent, including replies to repeated ones.
    tries: u32,
    /// Number of SYNs that timed out.
    timeouts: u32,
}

impl Default for Handshake {
    fn default() -> Self {
        Self { listener: None, is_due: true, tries: 0, timeouts: 0 }
    }
}

impl Handshake {
    pub(super) fn is_syn_due(&self) -> bool {
        self.is_due
    }

    pub(super) fn tries(&self) -> u32 {
        self.tries
    }

    /// Makes a SYN due.
    pub(super) fn call_syn(&mut self) {
        self.is_due = true;
    }

    /// Clears the due SYN.
    pub(super) fn syn_sent(&mut self) {
        self.is_due = false;
    }

    /// Counts a sent SYN.
    pub(super) fn tried(&mut self) {
        self.tries += 1;
        self.is_due = false;
    }

    /// Counts a timeout. Returns the number of timeouts.
    pub(super) fn timed_out(&mut self) -> u32 {
        self.timeouts += 1;
        self.timeouts
    }
}

impl Connection {
    fn new(now: Time, at: &Negotiated, options: Options, rules: Rules, state: State) -> Self {
        let iss = seq::begin(at.initial);
        let mut flow = at.flow(&options);
        let (path_mtu, fragments) = PathMtu::known(now, at);
        flow.may_fragment = fragments;
        Self {
            flow,
            path: at.path,
            path_mtu,
            rules,
            state,
            events: Events::default(),
            counts: Counts::default(),
            handshake: Handshake::default(),
            snd: SendSequence::new(iss),
            send: SendBuffer::new(iss + 1, options.send_buffer.initial()),
            board: Scoreboard::new(iss + 1),
            losses: Losses::new(iss),
            control: SendControl::new(now, &options, at.seed, iss + 1),
            rtt: Rtt::new(options.timeouts),
            limited: Limited::default(),
            receive: Reassembly::new(0, options.receive_capacity(), rules.gaps),
            inbound: Inbound::new(now, options.receive_buffer),
            acks: Acks::new(options.acks.quick),
            stamps: Stamps::new(at.stamp_offset),
            ecn: EcnEcho::Off,
            space: Space::new(at.own_number),
            liveness: Liveness::new(now),
            timers: Timers::default(),
            options,
        }
    }

    /// Opens a connection for the user.
    pub(crate) fn active(now: Time, at: &Negotiated, options: Options, rules: Rules) -> Self {
        let mut connection = Self::new(now, at, options, rules, State::SynSent);
        connection.inbound.offer(connection.options.receive_scale());
        connection
    }

    /// Opens a connection for a SYN at a listener.
    pub(crate) fn passive(
        now: Time,
        at: &Negotiated,
        options: Options,
        rules: Rules,
        listener: ListenerId,
        segment: &Segment<'_>,
    ) -> Self {
        let mut connection = Self::new(now, at, options, rules, State::SynReceived);
        connection.handshake.listener = Some(listener);
        connection.peer_syn(now, segment.header.sequence, Offer::from_segment(segment));
        connection.snd.set_syn_window(segment.header.window);
        connection.note_syn_header(segment.header.window);
        connection
    }

    /// Opens a connection from a returned cookie, as its SYN and the reply had negotiated it.
    pub(crate) fn from_cookie(
        now: Time,
        at: &Negotiated,
        options: Options,
        rules: Rules,
        listener: ListenerId,
        irs: u32,
        offer: Offer,
    ) -> Self {
        let mut connection = Self::new(now, at, options, rules, State::SynReceived);
        connection.handshake.listener = Some(listener);
        connection.peer_syn(now, irs, offer);
        connection.handshake.syn_sent();
        connection.snd.syn_sent();
        connection.inbound.announced_by_cookie(&connection.receive);
        connection
    }

    /// Processes the peer's SYN.
    fn peer_syn(&mut self, now: Time, sequence: u32, offer: Offer) {
        let next = seq::begin(sequence) + 1;
        let capacity = self.options.receive_capacity();
        self.receive = Reassembly::new(next, capacity, self.rules.gaps);
        if matches!(self.options.receive_buffer, Buffer::Auto { .. }) {
            self.receive.charge_beyond();
        }
        self.acks.begin(next);
        if let Some(mss) = offer.mss {
            self.path_mtu.peer_mss = mss.max(64);
        }
        let scale = offer.scale.filter(|_| self.options.window_scale);
        self.snd.synchronize(next, scale.unwrap_or(0));
        self.inbound.begin(next, scale.map(|_| self.options.receive_scale()));
        self.space.receive_origin = next;
        let both = self.options.scps.zip(offer.scps);
        self.space.agreed = both.map(|(ours, theirs)| ours.agree(self.space.own_number, theirs));
        // Holes are reported either by SACK or by SNACK.
        let sack = offer.sack && self.options.sack && self.snack().is_none();
        self.losses.agree_sack(sack);
        if offer.ecn && self.options.ecn {
            self.ecn = EcnEcho::Agreed;
            // A compressed header has no room for ECN.
            self.space.agreed.iter_mut().for_each(|agreed| agreed.compression = None);
        }
        self.stamps.agree(now, offer.stamp.filter(|_| self.options.timestamps));
        // Holes are counted in units known to both sides: the sizes in both SYNs.
        self.space.unit = self.data_of(usize::from(self.mss_offered().min(self.path_mtu.peer_mss)));
    }

    /// Segment size announced in a SYN.
    fn mss_offered(&self) -> u16 {
        let fit =
            self.path_mtu.interface.saturating_sub(self.flow.ip_len() + crate::segment::HEADER_LEN);
        self.options.mss.map_or(fit, |mss| fit.min(usize::from(mss))).min(65_535) as u16
    }

    /// Options and flags of a SYN.
    pub(super) fn syn_parts(&self, now: Time) -> (Flags, Vec<TcpOption<'static>>) {
        let answers = self.state == State::SynReceived;
        let mut options = vec![TcpOption::MaximumSegmentSize(self.mss_offered())];
        let agreed = |wanted: bool, agreed: bool| if answers { agreed } else { wanted };
        let sack = agreed(self.options.sack, self.losses.sack());
        let stamps = agreed(self.options.timestamps, self.stamps.are_agreed());
        if sack {
            options.push(TcpOption::SackPermitted);
        }
        if stamps {
            if !sack {
                options.extend([TcpOption::NoOperation; 2]);
            }
            let echo = self.stamps.recent().map_or(0, |(recent, _)| recent);
            options.push(TcpOption::Timestamps { value: self.stamps.clock(now), echo });
        }
        // A shift of zero is offered, too: it shows that window scaling is supported.
        if self.options.window_scale && (!answers || self.inbound.shifts()) {
            let padding = if sack && !stamps { 3 } else { 1 };
            options.extend(std::iter::repeat_n(TcpOption::NoOperation, padding));
            options.push(TcpOption::WindowScale(self.inbound.shift()));
        } else if sack && !stamps {
            options.extend([TcpOption::NoOperation; 2]);
        }
        let scps = if answers {
            self.space.agreed.map(|agreed| agreed.capabilities(self.space.own_number))
        } else {
            self.options.scps.map(|scps| scps.capabilities(self.space.own_number))
        };
        options.extend(scps.map(TcpOption::ScpsCapabilities));
        let mut flags = Flags::SYN;
        if answers {
            flags |= Flags::ACK;
            flags |= if self.ecn.is_agreed() { Flags::ECE } else { Flags::NONE };
        } else if self.options.ecn && self.handshake.tries() == 0 {
            // A retransmitted SYN does not request ECN, because ECN may be the reason why the
            // first was lost.
            flags |= Flags::ECE | Flags::CWR;
        }
        (flags, options)
    }

    /// Processes a segment in SYN-SENT (RFC 9293 §3.10.7.3). Returns whether to reply with a reset.
    pub(super) fn in_syn_sent(&mut self, now: Time, segment: &Segment<'_>) -> bool {
        let header = &segment.header;
        let acknowledges = header.flags.contains(Flags::ACK);
        let ack = self.snd.expand(header.acknowledgment);
        if acknowledges && (ack <= self.snd.iss() || ack > self.snd.nxt()) {
            return !header.flags.contains(Flags::RST);
        }
        if header.flags.contains(Flags::RST) {
            if acknowledges {
                self.end(CloseReason::Refused);
            }
            return false;
        }
        if !header.flags.contains(Flags::SYN) {
            return false;
        }
        let offer = Offer::from_segment(segment);
        self.peer_syn(now, header.sequence, offer);
        self.snd.set_syn_window(header.window);
        self.note_syn_header(header.window);
        if acknowledges {
            self.handshake_took(now, segment);
            self.snd.acknowledge(ack);
            self.acks.owe_one();
            self.establish(now);
        } else {
            // Simultaneous open.
            self.state = State::SynReceived;
            self.handshake.call_syn();
            self.snd.rewind_to_syn();
        }
        false
    }

    /// Takes the first round trip sample: from a SYN sent once, otherwise from timestamps.
    fn handshake_took(&mut self, now: Time, segment: &Segment<'_>) {
        let echo = segment.options.map_while(Result::ok).find_map(|option| {
            if let TcpOption::Timestamps { echo, .. } = option { Some(echo) } else { None }
        });
        let took = match self.handshake.tries() {
            0 => None,
            1 => Some(now.since(self.control.last_sent())),
            2.. => {
                let echo = echo.filter(|_| self.stamps.are_agreed());
                echo.and_then(|echo| self.stamps.since(now, echo))
            }
        };
        took.into_iter().for_each(|took| self.rtt.sample(took, self.snd.una(), self.snd.nxt()));
    }

    /// Processes the acknowledgment of the SYN in SYN-RECEIVED.
    pub(super) fn syn_acknowledged(&mut self, now: Time, segment: &Segment<'_>) {
        self.handshake_took(now, segment);
        self.snd.syn_acknowledged(segment.header.window, self.receive_next());
        self.establish(now);
    }

    fn establish(&mut self, now: Time) {
        if self.handshake.tries() > 1 {
            self.rtt.syn_timed_out();
        }
        self.rtt.end_backoff();
        self.state = State::Established;
        self.events.established = true;
        self.events.plain_tcp = self.options.scps.is_some() && self.space.agreed.is_none();
        if self.space.agreed.is_none() {
            self.space.marks.clear();
        }
        self.timers.syn_at = None;
        self.handshake.syn_sent();
        let mss = self.mss();
        self.control.establish(now, &self.options, mss, self.rtt.least());
        self.inbound.tune(now, self.options.receive_buffer, mss);
        self.liveness.received(now);
        self.rearm_keep_alive(now);
        self.make_room();
        if self.send.is_finished() {
            self.state = State::FinWait1;
        }
    }
}
