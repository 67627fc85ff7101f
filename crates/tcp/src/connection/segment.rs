//! Processing of received segments (RFC 9293 §3.10.7.4, RFC 5961, RFC 7323 §5).

use engine::{Ecn, Time};

use super::{Connection, EcnEcho};
use crate::indication::{CloseReason, State};
use crate::reassembly::Arrival;
use crate::segment::{Flags, SackBlocks, Segment, TcpOption};
use crate::seq;

/// Action of the stack for a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stray {
    /// Nothing.
    None,
    /// Reply with a reset: it does not belong to this connection.
    Reset,
}

/// Options of a received segment.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ReceivedOptions<'a> {
    pub(super) stamps: Option<(u32, u32)>,
    pub(super) sack: Option<SackBlocks>,
    /// Offset, size and bits.
    pub(super) snack: Option<(u16, u16, &'a [u8])>,
    ends_record: bool,
    corruption: bool,
}

impl<'a> ReceivedOptions<'a> {
    fn by(segment: &Segment<'a>) -> Self {
        let mut received = Self::default();
        for option in segment.options.map_while(Result::ok) {
            match option {
                TcpOption::Timestamps { value, echo } => received.stamps = Some((value, echo)),
                TcpOption::Sack(blocks) => received.sack = Some(blocks),
                TcpOption::Snack { offset, size, bits } => {
                    received.snack = Some((offset, size, bits));
                }
                TcpOption::RecordBoundary => received.ends_record = true,
                TcpOption::CorruptionExperienced => received.corruption = true,
                TcpOption::NoOperation
                | TcpOption::MaximumSegmentSize(_)
                | TcpOption::WindowScale(_)
                | TcpOption::SackPermitted
                | TcpOption::ScpsCapabilities(_)
                | TcpOption::ScpsExtended(_)
                | TcpOption::Unknown { .. } => {}
            }
        }
        received
    }
}

impl Connection {
    /// Processes a segment.
    pub(crate) fn segment(&mut self, now: Time, ecn: Ecn, segment: &Segment<'_>) -> Stray {
        self.counts.segments_received += 1;
        match self.state {
            State::Closed | State::TimeWait => Stray::None,
            State::SynSent => {
                if self.in_syn_sent(now, segment) {
                    Stray::Reset
                } else {
                    Stray::None
                }
            }
            State::SynReceived
            | State::Established
            | State::FinWait1
            | State::FinWait2
            | State::CloseWait
            | State::Closing
            | State::LastAck => self.with_peer(now, ecn, segment),
        }
    }

    fn with_peer(&mut self, now: Time, ecn: Ecn, segment: &Segment<'_>) -> Stray {
        let flags = segment.header.flags;
        let at = seq::expand(self.receive_next(), segment.header.sequence);
        let mut received = ReceivedOptions::by(segment);
        if !self.stamps.are_agreed() {
            received.stamps = None;
        }
        // Even a useless segment shows that the peer is alive.
        self.liveness.received(now);
        // A closed window may last while the peer replies, whether data is probed for or was in
        // flight when the peer closed the window (RFC 9293 §3.8.6.1).
        if self.board.is_empty() || self.snd.window() == 0 {
            self.timers.timeouts = 0;
        }
        if self.state == State::SynReceived && self.on_syn_again(now, segment, at) {
            return Stray::None;
        }
        if !self.check_timestamp(now, segment, received) || !self.check_window(now, segment, at) {
            return Stray::None;
        }
        if flags.contains(Flags::RST) {
            self.reset(now, at);
            return Stray::None;
        }
        if flags.contains(Flags::SYN) {
            // RFC 5961 §4; without it, RFC 793 resets the connection.
            if self.rules.robust {
                self.challenge(now);
                return Stray::None;
            }
            self.end(CloseReason::Reset);
            return Stray::Reset;
        }
        if !flags.contains(Flags::ACK) {
            return Stray::None;
        }
        let ack = self.snd.expand(segment.header.acknowledgment);
        if self.state == State::SynReceived {
            if !self.snd.is_acceptable(ack) {
                return Stray::Reset;
            }
            self.syn_acknowledged(now, segment);
        }
        let too_old = self.rules.robust && ack + self.snd.window_max().max(65_535) < self.snd.una();
        if ack > self.snd.nxt() || too_old {
            self.challenge(now);
            return Stray::None;
        }
        self.peer_is_back(now);
        if received.corruption {
            self.corruption_reported(now);
        }
        self.space.last_header.0 = (segment.header.window, segment.header.acknowledgment);
        self.space.last_header.1 = received.stamps.unwrap_or(self.space.last_header.1);
        let full = segment.payload.len() as u64 >= self.inbound.full_segment();
        self.note_stamp(now, at, received, full);
        self.acknowledged(now, segment, at, ack, received);
        self.congestion_marks(ecn, segment);
        if received.ends_record {
            self.record_ends(at + segment.payload.len() as u64);
        }
        self.data(now, segment, at)
    }

    /// Handles a SYN in SYN-RECEIVED: a retransmission of the peer's, or the SYN-ACK of a
    /// simultaneous open.
    fn on_syn_again(&mut self, now: Time, segment: &Segment<'_>, at: u64) -> bool {
        let flags = segment.header.flags;
        if !flags.contains(Flags::SYN)
            || flags.contains(Flags::RST)
            || at + 1 != self.receive_next()
        {
            return false;
        }
        if !flags.contains(Flags::ACK) {
            self.handshake.call_syn();
            return true;
        }
        let ack = self.snd.expand(segment.header.acknowledgment);
        if ack == self.snd.iss() + 1 && self.snd.nxt() == ack {
            self.syn_acknowledged(now, segment);
            self.snd.set_syn_window(segment.header.window);
            self.acks.hasten();
        }
        true
    }

    /// Protects against wrapped sequence numbers (RFC 7323 §5.3).
    fn check_timestamp(
        &mut self,
        now: Time,
        segment: &Segment<'_>,
        received: ReceivedOptions<'_>,
    ) -> bool {
        if !self.stamps.are_agreed() || segment.header.flags.contains(Flags::RST) {
            return true;
        }
        // RFC 7323 §3.2: segments without timestamps are dropped.
        let Some((value, _)) = received.stamps else { return false };
        if self.stamps.is_old(now, value) {
            if segment.payload.is_empty() {
                self.challenge(now);
            } else {
                self.acks.owe();
            }
            return false;
        }
        true
    }

    /// Applies the four cases of RFC 9293 §3.10.7.4; segments outside the window get a reply. An
    /// acknowledgment without data may be right after the window, as in Linux: the peer has used up
    /// the window, and its acknowledgment counts.
    fn check_window(&mut self, now: Time, segment: &Segment<'_>, at: u64) -> bool {
        let next = self.receive_next();
        let window = self.inbound.open(next);
        let resets = segment.header.flags.contains(Flags::RST);
        // A reset counts by its number alone, also with data and in a closed window (§3.5.3,
        // §3.10.7.4).
        let len = if resets { 0 } else { u64::from(segment.occupies()) };
        let inside = |at: u64| at >= next && at < next + window;
        let is_bare = !resets && !segment.header.flags.contains(Flags::SYN);
        let fits = match (len, window) {
            (0, 0) => at == next,
            (0, _) => inside(at) || (is_bare && at == next + window),
            // A closed window still accepts acknowledgments and resets.
            (_, 0) => false,
            (_, _) => inside(at) || inside(at + len - 1) || (at < next && at + len > next),
        };
        // Data outside a closed window may still carry an acknowledgment.
        let useful = len > 0 && window == 0 && at == next;
        if fits {
            return true;
        }
        if resets {
            return false;
        }
        let end = at + segment.payload.len() as u64;
        if !segment.payload.is_empty() && end <= self.receive.next() {
            self.acks.note_duplicate(at, end);
        }
        if len > 0 && !segment.header.flags.contains(Flags::SYN) {
            self.ack_out_of_order(now);
        } else {
            self.challenge(now);
        }
        useful && segment.header.flags.contains(Flags::ACK)
    }

    /// Processes a reset within the window (RFC 5961 §3).
    fn reset(&mut self, now: Time, at: u64) {
        if self.rules.robust && at != self.receive_next() {
            return self.challenge(now);
        }
        let refused = self.state == State::SynReceived && self.handshake.listener.is_none();
        self.end(if refused { CloseReason::Refused } else { CloseReason::Reset });
    }

    /// Sends a challenge ACK, rate-limited.
    fn challenge(&mut self, now: Time) {
        self.acks.challenge(now, self.rules.challenge_interval);
    }

    /// Records the peer's timestamp (RFC 7323 §4.3).
    fn note_stamp(&mut self, now: Time, at: u64, received: ReceivedOptions<'_>, full: bool) {
        let Some((value, echo)) = received.stamps.filter(|_| self.stamps.are_agreed()) else {
            return;
        };
        if at <= self.acks.last() {
            self.stamps.update(now, value);
        }
        if full && at == self.receive.next() {
            let took = self.stamps.since(now, echo);
            took.into_iter().for_each(|took| self.inbound.round_trip(took));
        }
    }

    fn congestion_marks(&mut self, ecn: Ecn, segment: &Segment<'_>) {
        if !self.ecn.is_agreed() {
            return;
        }
        if segment.header.flags.contains(Flags::CWR) {
            self.ecn = EcnEcho::Agreed;
        }
        if ecn == Ecn::Ce {
            self.ecn = EcnEcho::Due;
            self.acks.hasten();
        }
    }

    /// Processes data and FIN.
    fn data(&mut self, now: Time, segment: &Segment<'_>, at: u64) -> Stray {
        let receives = match self.state {
            State::Established | State::FinWait1 | State::FinWait2 => true,
            State::SynSent
            | State::SynReceived
            | State::CloseWait
            | State::Closing
            | State::LastAck
            | State::TimeWait
            | State::Closed => false,
        };
        if !receives {
            return Stray::None;
        }
        let end = at + segment.payload.len() as u64;
        if self.inbound.is_detached() && end > self.receive.next() && !segment.payload.is_empty() {
            // RFC 9293 §3.6.1: nobody reads the data, and the peer must be informed.
            self.end(CloseReason::Aborted);
            return Stray::Reset;
        }
        if segment.header.flags.contains(Flags::FIN) && self.inbound.note_fin(end) {
            self.arm_skip(now);
        }
        if !segment.payload.is_empty() {
            self.text(now, at, segment.payload);
        }
        if self.inbound.fin_at() == Some(self.receive.next()) {
            self.peer_finished();
        } else if segment.header.flags.contains(Flags::FIN) {
            self.acks.hasten();
        }
        Stray::None
    }

    fn text(&mut self, now: Time, at: u64, bytes: &[u8]) {
        let limit = self.inbound.limit();
        if limit <= at && at == self.receive.next() {
            // Probe of a closed window, which already got a reply.
            return;
        }
        let duplicate = self.receive.duplicate(at, limit.min(at + bytes.len() as u64));
        if let Some((start, end)) = duplicate {
            self.acks.note_duplicate(start, end);
        }
        match self.receive.insert(at, bytes, limit) {
            Arrival::InOrder { bytes: new, filled_gap } => {
                self.counts.bytes_received += new;
                self.inbound.on_segment(bytes.len() as u64, filled_gap, &self.receive);
                self.events.readable |= self.inbound.notify();
                self.tell_records();
                self.timers.skip_at = None;
                self.arm_skip(now);
                self.schedule_ack(now, filled_gap);
            }
            Arrival::Beyond => {
                self.inbound.beyond_gap(&mut self.receive);
                self.note_hole(now);
                self.ack_out_of_order(now);
            }
            Arrival::Duplicate | Arrival::Refused => self.ack_out_of_order(now),
        }
    }

    /// Acknowledges data beyond a gap, or duplicate data.
    fn ack_out_of_order(&mut self, now: Time) {
        if self.options.acks.every > 0 {
            return self.acks.owe();
        }
        self.timers.ack_at.get_or_insert(now + self.options.acks.max_delay);
    }

    /// Schedules the acknowledgment of data in order (RFC 9293 §3.8.6.3, RFC 5681 §4.2).
    fn schedule_ack(&mut self, now: Time, filled_gap: bool) {
        let policy = self.options.acks;
        let waiting = self.receive.next().saturating_sub(self.acks.last());
        let quick = self.acks.take_quick();
        let enough = waiting >= u64::from(policy.every) * self.inbound.full_segment();
        let gaps = filled_gap || self.receive.has_gaps();
        if quick || (policy.every > 0 && (gaps || enough || policy.every == 1)) {
            if gaps && self.snack().is_some() {
                // The next hole is reported in an acknowledgment without data.
                self.acks.owe();
            }
            self.acks.hasten();
        } else if self.timers.ack_at.is_none() {
            self.timers.ack_at = Some(now + policy.max_delay);
        }
    }
}
