//! Opening: SYNs sent and received, and what they agree on (RFC 9293 §3.10.1, §3.10.7.3, §3.10.7.4).

use engine::{PathId, Time};
use wire::tcp::{Capabilities, Flags, Segment, TcpOption};

use super::limits::Limited;
use super::path_mtu::PathMtu;
use super::{Connection, Events, Rules, Space, Stamps, Syns, Timers};
use crate::tcp::autotune::ReceiveTuning;
use crate::tcp::cc;
use crate::tcp::config::{Buffer, Options};
use crate::tcp::indication::{CloseReason, Counts, ListenerId, State};
use crate::tcp::packet::{self, Flow, Tuple};
use crate::tcp::reassembly::Reassembly;
use crate::tcp::recovery::Phase;
use crate::tcp::rtt::Rtt;
use crate::tcp::scoreboard::Scoreboard;
use crate::tcp::send_buffer::SendBuffer;
use crate::tcp::seq;

/// What a peer's SYN offers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Offer {
    pub(crate) mss: Option<u16>,
    pub(crate) scale: Option<u8>,
    pub(crate) stamp: Option<u32>,
    pub(crate) sack: bool,
    /// ECN is asked for, or agreed to.
    pub(crate) ecn: bool,
    pub(crate) scps: Option<Capabilities>,
}

impl Offer {
    pub(crate) fn of(segment: &Segment<'_>) -> Self {
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
        // A SYN has both bits, its answer one (RFC 3168 §6.1.1).
        offer.ecn = if flags.contains(Flags::ACK) {
            flags.contains(Flags::ECE) && !flags.contains(Flags::CWR)
        } else {
            flags.contains(Flags::ECE | Flags::CWR)
        };
        offer
    }
}

/// What a connection begins with.
#[derive(Debug)]
pub(crate) struct Negotiated {
    pub(crate) tuple: Tuple,
    pub(crate) path: PathId,
    pub(crate) mtu: usize,
    /// The longest packet on the path to the peer, where that is known to be shorter.
    pub(crate) path_mtu: Option<usize>,
    pub(crate) initial: u32,
    pub(crate) stamp_offset: u32,
    pub(crate) seed: u64,
    /// The protocol number of its packets, and its number in compressed headers, or 0.
    pub(crate) carrier: u8,
    pub(crate) own_number: u8,
}

impl Negotiated {
    fn flow(&self, options: &Options) -> Flow {
        Flow::new(self.tuple, options.hop_limit, options.dscp, self.seed as u16)
            .carried_by(self.carrier)
    }
}

impl Connection {
    #[expect(clippy::too_many_lines, reason = "one line for each field of a connection")]
    fn new(now: Time, at: &Negotiated, options: Options, rules: Rules, state: State) -> Self {
        let iss = seq::begin(at.initial);
        let mut flow = at.flow(&options);
        let (path_mtu, fragments) = PathMtu::known(now, at.tuple.remote.ip(), at.path_mtu);
        flow.may_fragment = fragments;
        Self {
            flow,
            path: at.path,
            listener: None,
            mtu: at.mtu,
            path_mtu,
            rules,
            state,
            events: Events::default(),
            counts: Counts::default(),
            iss,
            una: iss,
            nxt: iss,
            window: 0,
            window_max: 0,
            window_told: (0, 0),
            send_scale: 0,
            peer_mss: packet::mss_default(at.tuple.remote.ip()),
            send: SendBuffer::new(iss + 1, options.send_buffer.initial()),
            finished: false,
            board: Scoreboard::new(iss + 1),
            control: cc::new(options.congestion, 536, 536, u64::MAX, at.seed),
            seed: at.seed,
            phase: Phase::Open,
            rtt: Rtt::new(options.timeouts),
            undo: None,
            short_end: 0,
            duplicates: 0,
            recover: iss,
            timeouts: 0,
            urgent: false,
            override_window: false,
            window_probe: false,
            probe_due: false,
            probe_end: None,
            round_end: iss + 1,
            limited_to: None,
            limited: Limited::default(),
            last_sent: now,
            pace_next: Time::ZERO,
            wants_room: false,
            receive: Reassembly::new(0, options.receive_capacity(), rules.gaps),
            receive_scale: 0,
            scaled: false,
            advertised: 0,
            fin_at: None,
            fin_received: false,
            detached: false,
            told_readable: false,
            tuning: ReceiveTuning::new(now, options.receive_buffer, 536),
            full_segment: 536,
            last_ack_sent: 0,
            quick_left: options.acks.quick,
            acks_due: 0,
            ack_now: false,
            duplicate: None,
            last_challenge: None,
            last_heard: now,
            keep_alive_sent: 0,
            stamps: None,
            stamp_offset: at.stamp_offset,
            sack: false,
            space: Space::new(at.own_number),
            ecn: false,
            echo: false,
            reduced: false,
            syn_due: true,
            syns: Syns::default(),
            timers: Timers::default(),
            options,
        }
    }

    /// The user asks for a connection.
    pub(crate) fn active(now: Time, at: &Negotiated, options: Options, rules: Rules) -> Self {
        let mut connection = Self::new(now, at, options, rules, State::SynSent);
        connection.receive_scale = connection.options.receive_scale();
        connection
    }

    /// A SYN has come to a listener.
    pub(crate) fn passive(
        now: Time,
        at: &Negotiated,
        options: Options,
        rules: Rules,
        (listener, segment): (ListenerId, &Segment<'_>),
    ) -> Self {
        let mut connection = Self::new(now, at, options, rules, State::SynReceived);
        connection.listener = Some(listener);
        connection.peer_syn(now, segment.header.sequence, Offer::of(segment));
        connection.window = u64::from(segment.header.window);
        connection.heard_syn(segment.header.window);
        connection
    }

    /// A cookie has come back: the connection is as its SYN and the answer had made it.
    pub(crate) fn from_cookie(
        now: Time,
        at: &Negotiated,
        options: Options,
        rules: Rules,
        (listener, irs, offer): (ListenerId, u32, Offer),
    ) -> Self {
        let mut connection = Self::new(now, at, options, rules, State::SynReceived);
        connection.listener = Some(listener);
        connection.peer_syn(now, irs, offer);
        connection.syn_due = false;
        connection.nxt = connection.iss + 1;
        // The answer that made it has announced this much.
        connection.advertised =
            connection.receive.next() + connection.receive.capacity().min(65_535);
        connection.last_ack_sent = connection.receive.next();
        connection
    }

    /// Takes the peer's SYN in.
    fn peer_syn(&mut self, now: Time, sequence: u32, offer: Offer) {
        let next = seq::begin(sequence) + 1;
        let capacity = self.options.receive_capacity();
        self.receive = Reassembly::new(next, capacity, self.rules.gaps);
        if matches!(self.options.receive_buffer, Buffer::Auto { .. }) {
            self.receive.charge_beyond();
        }
        self.advertised = next;
        self.last_ack_sent = next;
        self.window_told = (next - 1, self.una);
        if let Some(mss) = offer.mss {
            self.peer_mss = mss.max(64);
        }
        let scale = offer.scale.filter(|_| self.options.window_scale);
        self.scaled = scale.is_some();
        self.send_scale = scale.unwrap_or(0);
        self.receive_scale = if self.scaled { self.options.receive_scale() } else { 0 };
        self.space.receive_origin = next;
        let both = self.options.scps.zip(offer.scps);
        self.space.agreed = both.map(|(ours, theirs)| ours.agree(self.space.own_number, theirs));
        // A hole is told of in one way.
        self.sack = offer.sack && self.options.sack && self.snack().is_none();
        self.ecn = offer.ecn && self.options.ecn;
        if let Some(agreed) = self.space.agreed.as_mut().filter(|_| self.ecn) {
            // A compressed header has no room for it.
            agreed.compression = None;
        }
        self.stamps = offer.stamp.filter(|_| self.options.timestamps).map(|recent| Stamps {
            offset: self.stamp_offset,
            recent,
            recent_at: now,
        });
        // Holes are counted in what both sides know: the sizes that both SYNs announce.
        self.space.unit = self.data_of(usize::from(self.mss_offered().min(self.peer_mss)));
    }

    /// The segment size that a SYN announces.
    fn mss_offered(&self) -> u16 {
        let fit = self.mtu.saturating_sub(self.flow.ip_len() + wire::tcp::HEADER_LEN);
        self.options.mss.map_or(fit, |mss| fit.min(usize::from(mss))).min(65_535) as u16
    }

    /// The options and flags of a SYN.
    pub(super) fn syn_parts(&self, now: Time) -> (Flags, Vec<TcpOption<'static>>) {
        let answers = self.state == State::SynReceived;
        let mut options = vec![TcpOption::MaximumSegmentSize(self.mss_offered())];
        let agreed = |wanted: bool, agreed: bool| if answers { agreed } else { wanted };
        let sack = agreed(self.options.sack, self.sack);
        let stamps = agreed(self.options.timestamps, self.stamps.is_some());
        if sack {
            options.push(TcpOption::SackPermitted);
        }
        if stamps {
            if !sack {
                options.extend([TcpOption::NoOperation; 2]);
            }
            let echo = self.stamps.map_or(0, |stamps| stamps.recent);
            options.push(TcpOption::Timestamps { value: self.stamp(now), echo });
        }
        // A shift of zero is offered, too: it says that shifts are understood.
        if self.options.window_scale && (!answers || self.scaled) {
            let padding = if sack && !stamps { 3 } else { 1 };
            options.extend(std::iter::repeat_n(TcpOption::NoOperation, padding));
            options.push(TcpOption::WindowScale(self.receive_scale));
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
            flags |= if self.ecn { Flags::ECE } else { Flags::NONE };
        } else if self.options.ecn && self.syns.tries == 0 {
            // A SYN that is sent again asks no more, in case that was why it was lost.
            flags |= Flags::ECE | Flags::CWR;
        }
        (flags, options)
    }

    /// A segment while a SYN is sent and none has come (RFC 9293 §3.10.7.3). Says whether it is to be
    /// answered with a reset.
    pub(super) fn in_syn_sent(&mut self, now: Time, segment: &Segment<'_>) -> bool {
        let header = &segment.header;
        let acknowledges = header.flags.contains(Flags::ACK);
        let ack = self.expand(self.una, header.acknowledgment);
        if acknowledges && (ack <= self.iss || ack > self.nxt) {
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
        let offer = Offer::of(segment);
        self.peer_syn(now, header.sequence, offer);
        self.window = u64::from(header.window);
        self.window_max = self.window;
        self.heard_syn(header.window);
        if acknowledges {
            self.handshake_took(now, segment);
            self.una = ack;
            self.acks_due = 1;
            self.establish(now);
        } else {
            // Both ask at the same time.
            self.state = State::SynReceived;
            (self.syn_due, self.nxt) = (true, self.iss);
        }
        false
    }

    /// Takes the first sample of the round trip: from a SYN that was sent once, or else from the time
    /// stamps.
    fn handshake_took(&mut self, now: Time, segment: &Segment<'_>) {
        let echo = segment.options.map_while(Result::ok).find_map(|option| {
            if let TcpOption::Timestamps { echo, .. } = option { Some(echo) } else { None }
        });
        let took = match self.syns.tries {
            0 => None,
            1 => Some(now.since(self.last_sent)),
            2.. => self.stamps.and(echo).and_then(|echo| self.since_stamp(now, echo)),
        };
        took.into_iter().for_each(|took| self.rtt.sample(took, (self.una, self.nxt)));
    }

    /// An acknowledgment of the SYN has come in SYN-RECEIVED.
    pub(super) fn syn_acknowledged(&mut self, now: Time, segment: &Segment<'_>) {
        self.handshake_took(now, segment);
        self.una = self.iss + 1;
        self.window = u64::from(segment.header.window) << self.send_scale;
        self.window_max = self.window;
        self.window_told = (self.receive_next(), self.una);
        self.establish(now);
    }

    fn establish(&mut self, now: Time) {
        if self.syns.tries > 1 {
            self.rtt.syn_timed_out();
        }
        self.rtt.end_backoff();
        self.state = State::Established;
        self.events.established = true;
        self.events.plain_tcp = self.options.scps.is_some() && self.space.agreed.is_none();
        if self.space.agreed.is_none() {
            self.space.marks.clear();
        }
        (self.timers.syn_at, self.syn_due) = (None, false);
        self.control = self.new_control();
        self.control.on_established(now, self.rtt.least());
        self.tuning = ReceiveTuning::new(now, self.options.receive_buffer, self.mss());
        self.last_heard = now;
        self.last_sent = now;
        self.rearm_keep_alive(now);
        self.make_room();
        if self.finished {
            self.state = State::FinWait1;
        }
    }
}
