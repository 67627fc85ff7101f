//! A segment arrives (RFC 9293 §3.10.7.4, RFC 5961, RFC 7323 §5).

use std::time::Duration;

use engine::{Ecn, Time};
use wire::tcp::{Flags, SackBlocks, Segment, TcpOption};

use super::Connection;
use crate::tcp::indication::{CloseReason, State};
use crate::tcp::reassembly::Arrival;
use crate::tcp::seq;

/// What the stack is to do about a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stray {
    /// Nothing.
    None,
    /// It does not belong to this connection: answer it with a reset.
    Reset,
}

/// A time stamp of the peer that is older than this is believed again (RFC 7323 §5.5).
const STAMPS_LAST: Duration = Duration::from_secs(24 * 86_400);

/// Acknowledgments owed at most; more of the same tell nothing new.
const ACKS_MAX: u32 = 64;

/// What a segment's options say.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Said<'a> {
    pub(super) stamps: Option<(u32, u32)>,
    pub(super) sack: Option<SackBlocks>,
    /// Offset, size and bits.
    pub(super) snack: Option<(u16, u16, &'a [u8])>,
    ends_record: bool,
    corruption: bool,
}

impl<'a> Said<'a> {
    fn by(segment: &Segment<'a>) -> Self {
        let mut said = Self::default();
        for option in segment.options.map_while(Result::ok) {
            match option {
                TcpOption::Timestamps { value, echo } => said.stamps = Some((value, echo)),
                TcpOption::Sack(blocks) => said.sack = Some(blocks),
                TcpOption::Snack { offset, size, bits } => said.snack = Some((offset, size, bits)),
                TcpOption::RecordBoundary => said.ends_record = true,
                TcpOption::CorruptionExperienced => said.corruption = true,
                TcpOption::NoOperation
                | TcpOption::MaximumSegmentSize(_)
                | TcpOption::WindowScale(_)
                | TcpOption::SackPermitted
                | TcpOption::ScpsCapabilities(_)
                | TcpOption::ScpsExtended(_)
                | TcpOption::Unknown { .. } => {}
            }
        }
        said
    }
}

impl Connection {
    /// Takes a segment.
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
        let at = self.expand(self.receive_next(), segment.header.sequence);
        let mut said = Said::by(segment);
        if self.stamps.is_none() {
            said.stamps = None;
        }
        // Even if it is of no use: the peer is there.
        self.last_heard = now;
        self.keep_alive_sent = 0;
        // A closed window may last as long as the peer answers, whether data is probed for or was in
        // flight when the peer took the window back (RFC 9293 §3.8.6.1).
        if self.board.is_empty() || self.window == 0 {
            self.timeouts = 0;
        }
        if self.state == State::SynReceived && self.is_other_syn(now, segment, at) {
            return Stray::None;
        }
        if !self.is_timely(now, segment, said) || !self.is_in_window(now, segment, at) {
            return Stray::None;
        }
        if flags.contains(Flags::RST) {
            self.reset(now, at);
            return Stray::None;
        }
        if flags.contains(Flags::SYN) {
            // RFC 5961 §4; without it, RFC 793 has the connection reset.
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
        let ack = self.expand(self.una, segment.header.acknowledgment);
        if self.state == State::SynReceived {
            if ack <= self.una || ack > self.nxt {
                return Stray::Reset;
            }
            self.syn_acknowledged(now, segment);
        }
        let too_old = self.rules.robust && ack + self.window_max.max(65_535) < self.una;
        if ack > self.nxt || too_old {
            self.challenge(now);
            return Stray::None;
        }
        self.heard_of_peer(now);
        if said.corruption {
            self.corruption_told(now);
        }
        self.space.heard.0 = (segment.header.window, segment.header.acknowledgment);
        self.space.heard.1 = said.stamps.unwrap_or(self.space.heard.1);
        let full = segment.payload.len() as u64 >= self.full_segment;
        self.note_stamp(now, at, said, full);
        self.acknowledged(now, segment, (at, ack), said);
        self.congestion_marks(ecn, segment);
        if said.ends_record {
            self.record_ends(at + segment.payload.len() as u64);
        }
        self.data(now, segment, at)
    }

    /// A SYN again, in SYN-RECEIVED: the peer's, whose answer was lost, or the peer's answer to ours
    /// where both ask at the same time.
    fn is_other_syn(&mut self, now: Time, segment: &Segment<'_>, at: u64) -> bool {
        let flags = segment.header.flags;
        if !flags.contains(Flags::SYN)
            || flags.contains(Flags::RST)
            || at + 1 != self.receive_next()
        {
            return false;
        }
        if !flags.contains(Flags::ACK) {
            self.syn_due = true;
            return true;
        }
        let ack = self.expand(self.una, segment.header.acknowledgment);
        if ack == self.iss + 1 && self.nxt == ack {
            self.syn_acknowledged(now, segment);
            // Windows of a SYN are not shifted.
            self.window = u64::from(segment.header.window);
            self.window_max = self.window;
            self.ack_now = true;
        }
        true
    }

    /// Protection against wrapped sequence numbers (RFC 7323 §5.3).
    fn is_timely(&mut self, now: Time, segment: &Segment<'_>, said: Said<'_>) -> bool {
        let Some(stamps) = self.stamps else { return true };
        if segment.header.flags.contains(Flags::RST) {
            return true;
        }
        // RFC 7323 §3.2: without time stamps it is dropped.
        let Some((value, _)) = said.stamps else { return false };
        let stale = now.since(stamps.recent_at) > STAMPS_LAST;
        if seq::is_older(value, stamps.recent) && !stale {
            if segment.payload.is_empty() {
                self.challenge(now);
            } else {
                self.owe_ack();
            }
            return false;
        }
        true
    }

    /// The four cases of RFC 9293 §3.10.7.4; what is not in the window is answered. An acknowledgment
    /// without data may have the number right behind the window, as in Linux: the peer has used up the
    /// window, and what it acknowledges counts.
    fn is_in_window(&mut self, now: Time, segment: &Segment<'_>, at: u64) -> bool {
        let next = self.receive_next();
        let window = self.advertised.saturating_sub(next);
        let resets = segment.header.flags.contains(Flags::RST);
        // A reset counts by its number alone, with data and in a closed window, too (§3.5.3, §3.10.7.4).
        let len = if resets { 0 } else { u64::from(segment.occupies()) };
        let inside = |at: u64| at >= next && at < next + window;
        let is_bare = !resets && !segment.header.flags.contains(Flags::SYN);
        let fits = match (len, window) {
            (0, 0) => at == next,
            (0, _) => inside(at) || (is_bare && at == next + window),
            // A closed window still takes acknowledgments and resets.
            (_, 0) => false,
            (_, _) => inside(at) || inside(at + len - 1) || (at < next && at + len > next),
        };
        // What a closed window does not take may acknowledge something.
        let useful = len > 0 && window == 0 && at == next;
        if fits {
            return true;
        }
        if resets {
            return false;
        }
        let end = at + segment.payload.len() as u64;
        if !segment.payload.is_empty() && end <= self.receive.next() {
            self.duplicate = Some((at, end));
        }
        if len > 0 && !segment.header.flags.contains(Flags::SYN) {
            self.ack_out_of_order(now);
        } else {
            self.challenge(now);
        }
        useful && segment.header.flags.contains(Flags::ACK)
    }

    /// A reset that is in the window (RFC 5961 §3).
    fn reset(&mut self, now: Time, at: u64) {
        if self.rules.robust && at != self.receive_next() {
            return self.challenge(now);
        }
        let refused = self.state == State::SynReceived && self.listener.is_none();
        self.end(if refused { CloseReason::Refused } else { CloseReason::Reset });
    }

    /// An acknowledgment for what should not have come, at most one in a while.
    fn challenge(&mut self, now: Time) {
        let interval = self.rules.challenge_interval;
        if self.last_challenge.is_none_or(|last| now.since(last) >= interval) {
            self.last_challenge = Some(now);
            self.owe_ack();
        }
    }

    /// An acknowledgment at once, by itself.
    pub(super) fn owe_ack(&mut self) {
        self.acks_due = (self.acks_due + 1).min(ACKS_MAX);
    }

    /// Takes the peer's time stamp (RFC 7323 §4.3).
    fn note_stamp(&mut self, now: Time, at: u64, said: Said<'_>, full: bool) {
        let (Some(stamps), Some((value, echo))) = (&mut self.stamps, said.stamps) else { return };
        if at <= self.last_ack_sent && !seq::is_older(value, stamps.recent) {
            (stamps.recent, stamps.recent_at) = (value, now);
        }
        if full && at == self.receive.next() {
            let took = self.since_stamp(now, echo);
            took.into_iter().for_each(|took| self.tuning.round_trip(took));
        }
    }

    fn congestion_marks(&mut self, ecn: Ecn, segment: &Segment<'_>) {
        if !self.ecn {
            return;
        }
        if segment.header.flags.contains(Flags::CWR) {
            self.echo = false;
        }
        if ecn == Ecn::Ce {
            self.echo = true;
            self.ack_now = true;
        }
    }

    /// The data, and the FIN.
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
        if self.detached && end > self.receive.next() && !segment.payload.is_empty() {
            // RFC 9293 §3.6.1: nobody reads it, and the peer is to know.
            self.end(CloseReason::Aborted);
            return Stray::Reset;
        }
        if segment.header.flags.contains(Flags::FIN)
            && end <= self.advertised
            && self.fin_at.is_none()
        {
            self.fin_at = Some(end);
            self.arm_skip(now);
        }
        if !segment.payload.is_empty() {
            self.text(now, at, segment.payload);
        }
        if self.fin_at == Some(self.receive.next()) && !self.fin_received {
            self.peer_finished();
        } else if segment.header.flags.contains(Flags::FIN) {
            self.ack_now = true;
        }
        Stray::None
    }

    fn text(&mut self, now: Time, at: u64, octets: &[u8]) {
        let limit = self.fin_at.map_or(self.advertised, |fin| fin.min(self.advertised));
        if limit <= at && at == self.receive.next() {
            // A probe of a closed window, which is answered already.
            return;
        }
        match self.receive.insert(at, octets, limit) {
            Arrival::InOrder { octets: new, filled_gap } => {
                self.counts.octets_received += new;
                self.full_segment = self.full_segment.max(octets.len() as u64);
                if !self.told_readable {
                    self.told_readable = true;
                    self.events.readable = true;
                }
                self.tell_records();
                self.timers.skip_at = None;
                self.arm_skip(now);
                self.schedule_ack(now, filled_gap);
            }
            Arrival::Duplicate { start, end } => {
                if start < end {
                    self.duplicate = Some((start, end));
                }
                self.ack_out_of_order(now);
            }
            Arrival::Beyond => {
                let beyond = self.receive.highest().saturating_sub(self.receive.next());
                let size = self.tuning.reordered(beyond);
                size.into_iter().for_each(|size| self.receive.grow(size));
                self.hole_seen(now);
                self.ack_out_of_order(now);
            }
            Arrival::Refused => self.ack_out_of_order(now),
        }
    }

    /// Something came beyond a gap, or twice.
    fn ack_out_of_order(&mut self, now: Time) {
        if self.options.acks.every > 0 {
            return self.owe_ack();
        }
        self.timers.ack_at.get_or_insert(now + self.options.acks.max_delay);
    }

    /// Data came in order: when is it acknowledged? (RFC 9293 §3.8.6.3, RFC 5681 §4.2)
    fn schedule_ack(&mut self, now: Time, filled_gap: bool) {
        let policy = self.options.acks;
        let waiting = self.receive.next().saturating_sub(self.last_ack_sent);
        let quick = self.quick_left > 0;
        self.quick_left = self.quick_left.saturating_sub(1);
        let enough = waiting >= u64::from(policy.every) * self.full_segment;
        let gaps = filled_gap || self.receive.has_gaps();
        if quick || (policy.every > 0 && (gaps || enough || policy.every == 1)) {
            if gaps && self.snack().is_some() {
                // The next hole is told of by an acknowledgment without data.
                self.owe_ack();
            }
            self.ack_now = true;
        } else if self.timers.ack_at.is_none() {
            self.timers.ack_at = Some(now + policy.max_delay);
        }
    }
}
