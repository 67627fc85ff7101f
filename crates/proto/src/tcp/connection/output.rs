//! What is sent next, decided when the driver asks (RFC 9293 §3.8.6, RFC 6675 §4, RFC 5681).

use std::time::Duration;

use engine::{Ecn, Time, TxBuf};
use wire::scps::Head;
use wire::tcp::{
    Flags, HEADER_LEN, Header, OPTIONS_MAX, SackBlock, SackBlocks, TcpOption, options_len,
};

use super::Connection;
use crate::tcp::cc::{Idle, Sent};
use crate::tcp::indication::State;
use crate::tcp::recovery::Phase;
use crate::tcp::scps::SnackSaid;
use crate::tcp::seq;

/// How far a paced connection may run ahead, so that several segments go at once when it is fast.
const BURST: Duration = Duration::from_millis(1);

/// Full segments at the beginning of a connection that go without a pace
/// (`tcp_update_skb_after_send`, as `sch_fq` once did).
const UNPACED: u64 = 10;

/// What is sent next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    /// New data, and perhaps the FIN.
    New { len: u64, fin: bool },
    /// A segment again.
    Again { index: usize },
}

/// The options of a segment, without memory from the heap.
struct List<'a> {
    options: [TcpOption<'a>; 16],
    len: usize,
}

impl<'a> List<'a> {
    fn push(&mut self, option: TcpOption<'a>) {
        self.options[self.len] = option;
        self.len += 1;
    }

    fn as_slice(&self) -> &[TcpOption<'a>] {
        &self.options[..self.len]
    }
}

impl Connection {
    /// Writes what can be sent now into `tx`. Says whether there is more than it takes.
    pub(crate) fn fill(&mut self, now: Time, tx: &mut TxBuf) -> bool {
        if self.syn_due {
            return !self.send_syn(now, tx);
        }
        if self.space.suspended.is_some() {
            if self.window_probe && !self.send_bare(now, tx, self.una - 1) {
                return true;
            }
            self.window_probe = false;
            return false;
        }
        self.give_up(now);
        while self.acks_due > 0 {
            if !self.send_bare(now, tx, self.nxt) {
                return true;
            }
            self.acks_due -= 1;
        }
        if self.may_send() {
            while let Some(next) = self.next(now) {
                let sent = match next {
                    Next::New { len, fin } => self.send_new(now, tx, len, fin),
                    Next::Again { index } => self.send_again(now, tx, index),
                };
                if !sent {
                    return true;
                }
            }
        }
        self.count_limit(now);
        if self.window_probe {
            // An octet that the peer has, so that it must answer (RFC 9293 §3.8.4).
            if !self.send_bare(now, tx, self.una - 1) {
                return true;
            }
            self.window_probe = false;
        }
        self.ack_now && self.is_synchronized() && !self.send_bare(now, tx, self.nxt)
    }

    /// Asks the peer for an answer.
    pub(super) fn probe_window(&mut self) {
        self.window_probe = true;
    }

    /// Octets that the peer's window takes.
    pub(super) fn usable(&self) -> u64 {
        (self.una + self.window).saturating_sub(self.nxt)
    }

    /// Octets that may be in flight.
    pub(super) fn congestion_window(&self) -> u64 {
        match &self.phase {
            Phase::Recovery(recovery) if !self.control.governs_recovery() => recovery.window,
            Phase::Open | Phase::Reduced { .. } | Phase::Recovery(_) | Phase::Restarted { .. } => {
                self.control.cwnd()
            }
        }
    }

    pub(super) fn in_flight(&self) -> u64 {
        // Without limited transmit, what duplicates say counts from the third on only.
        let blind =
            self.phase.is_open() && !self.options.limited_transmit && self.snack().is_none();
        if blind { self.board.out() } else { self.board.pipe() }
    }

    fn next(&mut self, now: Time) -> Option<Next> {
        let room = self.data_room();
        let full = self.flow.ip_len() + HEADER_LEN + OPTIONS_MAX + self.mss() as usize;
        // What is due only once waits for its credit here.
        if (self.probe_due || self.urgent) && !self.affords(full) {
            return None;
        }
        if std::mem::take(&mut self.probe_due)
            && let Some(next) = self.next_probe(room)
        {
            return Some(next);
        }
        if std::mem::take(&mut self.urgent)
            && let Some(index) = self.board.next_lost()
        {
            return Some(Next::Again { index });
        }
        if self.is_paced_out(now) {
            return None;
        }
        let (window, pipe) = (self.congestion_window(), self.in_flight());
        let fits = |len: u64| pipe == 0 || pipe + len <= window;
        if let Some(index) = self.board.next_lost() {
            let (start, end) = self.board.segment(index, room)?;
            let goes = fits(end - start) || self.repairs_at_once();
            return goes.then_some(Next::Again { index });
        }
        if let Some((len, fin)) = self.next_new(now, room) {
            if fits(len.max(1)) {
                return Some(Next::New { len, fin });
            }
            self.limited_to = Some(self.nxt);
            return None;
        }
        if let Some(next) = self.next_guess(fits(room)) {
            return Some(next);
        }
        self.note_app_limit();
        None
    }

    /// What is sent from here on is as much as the user gave, not as much as the path takes: less than
    /// a segment waits, nothing is to be repaired, and the window is not used up. Asked before a user's
    /// write, too, for a connection that waits for its pace with nothing to send is not polled.
    pub(super) fn note_app_limit(&mut self) {
        let waits = self.send.end().saturating_sub(self.nxt);
        let is_whole = self.board.next_lost().is_none();
        if waits < self.mss() && is_whole && self.in_flight() < self.congestion_window() {
            self.board.app_limited();
        }
    }

    /// New data that the peer's window and the rules against silly windows let through.
    fn next_new(&mut self, now: Time, room: u64) -> Option<(u64, bool)> {
        if self.fin_sent() {
            return None;
        }
        let (there, usable) = (self.send.end() - self.nxt, self.usable());
        if there == 0 && !self.finished {
            return None;
        }
        if let Some(len) = self.probe_len(now, there) {
            return Some((len, false));
        }
        let (len, is_full) = self.cut(there.min(usable), room);
        let is_last = len == there;
        // A compressed header of data has no room for it.
        let alone = len == 0 || self.peer_number().is_none();
        let fin = self.finished && is_last && usable > len && alone;
        let flushed = !self.options.nagle || self.finished || !self.waits_for_short();
        let wait = if len == 0 {
            !fin
        } else if is_full || (is_last && flushed) || self.override_window {
            false
        } else {
            // Half of the largest window is worth a segment (RFC 9293 §3.8.6.2.1).
            is_last || 2 * len < self.window_max
        };
        if !wait {
            return Some((len, fin));
        }
        if self.board.is_empty() && usable <= len {
            self.arm_persist(now);
        }
        None
    }

    /// What may be lost, or shows what is, when nothing better is left to send (rules 3 and 4 of
    /// NextSeg).
    fn next_guess(&mut self, fits: bool) -> Option<Next> {
        let Phase::Recovery(recovery) = &mut self.phase else { return None };
        if !fits || !recovery.guesses() || !self.sack {
            return None;
        }
        if let Some(index) = self.board.next_unsure() {
            return Some(Next::Again { index });
        }
        if recovery.rescued {
            return None;
        }
        recovery.rescued = true;
        let index = self.board.last_unsacked()?;
        Some(Next::Again { index })
    }

    /// A tail loss probe: new data if there is any, else the last segment (RFC 8985 §7.3).
    fn next_probe(&mut self, room: u64) -> Option<Next> {
        self.counts.tail_loss_probes += 1;
        let there = self.send.end().saturating_sub(self.nxt);
        let (len, _) = self.cut(there.min(self.usable()), room);
        if len > 0 {
            self.probe_end = Some((self.nxt + len, false));
            return Some(Next::New { len, fin: false });
        }
        let index = self.board.last_unsacked()?;
        let (_, end) = self.board.segment(index, u64::MAX)?;
        self.probe_end = Some((end, true));
        Some(Next::Again { index })
    }

    /// Bits a second to send at, if there is such a rate.
    pub(super) fn pacing_rate_bps(&self) -> Option<u64> {
        let own = || {
            let smoothed = self.rtt.smoothed().filter(|_| self.options.pacing)?;
            let nanos = smoothed.as_nanos().max(1);
            let cwnd = self.control.cwnd();
            let factor = if cwnd < self.control.ssthresh() / 2 { 200 } else { 120 };
            let bits = u128::from(cwnd) * 8 * 1_000_000_000 * factor / 100;
            u64::try_from(bits / nanos).ok()
        };
        self.control.pacing_rate_bps().or_else(own).filter(|rate| *rate > 0)
    }

    /// Whether it has to wait for its pace.
    fn is_paced_out(&mut self, now: Time) -> bool {
        if self.pace_next <= now + BURST || self.pacing_rate_bps().is_none() {
            return false;
        }
        // Nobody is woken for nothing.
        let work = self.board.lost() > 0 || self.send.end() > self.nxt || self.finished;
        if work && !self.fin_sent() || self.board.lost() > 0 {
            self.timers.pace_at = Some(self.pace_next);
        }
        true
    }

    fn pace(&mut self, now: Time, octets: u64) {
        if self.counts.octets_sent < UNPACED * self.mss() {
            return;
        }
        if let Some(rate) = self.pacing_rate_bps() {
            let nanos = u128::from(octets) * 8 * 1_000_000_000 / u128::from(rate);
            let took = Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX));
            self.pace_next = self.pace_next.max(now) + took;
        }
    }

    /// How much of `most` new octets a segment takes that has room for so many, and whether it is full
    /// then. The end of a record ends its segment, too.
    fn cut(&self, most: u64, room: u64) -> (u64, bool) {
        let Some(end) = self.space.marks.after(self.nxt) else {
            return (most.min(room), most >= room);
        };
        let full = (end - self.nxt).min(self.room_to(self.nxt, end, room));
        (most.min(full), most >= full)
    }

    /// Octets of data that fit if a record ends at `end` or lies before it.
    fn room_to(&self, start: u64, end: u64, room: u64) -> u64 {
        let says_end = end <= start + room && self.space.marks.has(end) && !self.compresses();
        // The option takes two octets, and two of padding.
        if says_end { room.saturating_sub(4).max(1) } else { room }
    }

    /// Octets of data that a segment takes beside the options it has now.
    fn data_room(&self) -> u64 {
        if self.compresses() {
            return self.mss();
        }
        let blocks = self.block_count();
        let sack = if blocks == 0 { 0 } else { 4 + 8 * blocks as u64 };
        self.whole_mss().saturating_sub(sack).max(1)
    }

    fn block_count(&self) -> usize {
        if !self.sack {
            return 0;
        }
        let most = if self.stamps.is_some() { 3 } else { 4 };
        let twice = usize::from(self.duplicate.is_some() && self.options.duplicate_sack);
        twice + self.receive.blocks(most - twice).count()
    }

    fn options<'a>(
        &self,
        now: Time,
        snack: Option<&'a SnackSaid>,
        (ends_record, bare): (bool, bool),
    ) -> List<'a> {
        let mut list = List { options: [TcpOption::NoOperation; 16], len: 0 };
        if let Some(stamps) = self.stamps {
            list.len = 2;
            list.push(TcpOption::Timestamps { value: self.stamp(now), echo: stamps.recent });
        }
        self.push_blocks(&mut list, 2);
        if ends_record {
            list.len += 2;
            list.push(TcpOption::RecordBoundary);
        }
        if let Some(said) = snack {
            list.len += 2;
            let SnackSaid { offset, size, .. } = *said;
            list.push(TcpOption::Snack { offset, size, bits: said.bits() });
        }
        if bare && self.tells_corruption(now) && options_len(list.as_slice()) + 4 <= OPTIONS_MAX {
            list.push(TcpOption::CorruptionExperienced);
        }
        list
    }

    /// What arrived beyond gaps, and twice, behind so many octets of padding.
    fn push_blocks(&self, list: &mut List<'_>, padding: usize) {
        let count = self.block_count();
        if count == 0 {
            return;
        }
        let twice = self.duplicate.filter(|_| self.options.duplicate_sack);
        let twice =
            twice.map(|(start, end)| SackBlock { left: seq::wire(start), right: seq::wire(end) });
        let rest = self.receive.blocks(count - usize::from(twice.is_some()));
        let blocks: SackBlocks = twice.into_iter().chain(rest).collect();
        list.len += padding;
        list.push(TcpOption::Sack(blocks));
    }

    /// What the peer takes the window for, which is told in units.
    pub(super) fn told_window(&self, shift: u8) -> u64 {
        self.advertised.saturating_sub(self.receive_next()) >> shift << shift
    }

    /// The window as it was announced last, for the field.
    pub(crate) fn window_field(&self) -> u16 {
        let window = self.advertised.saturating_sub(self.receive_next()) >> self.receive_scale;
        window.min(65_535) as u16
    }

    /// The window to announce; its right edge never goes back, and goes on by steps that are worth it
    /// (RFC 9293 §3.8.6.2.2).
    fn announce(&mut self, shift: u8) -> u16 {
        let next = self.receive_next();
        let told = self.told_window(shift);
        let open = self.receive.edge().saturating_sub(next);
        let worth = self.full_segment.min(self.receive.capacity() / 2);
        let edge = if open >= told + worth { next + open } else { self.advertised };
        let window = (edge.saturating_sub(next) >> shift).min(65_535);
        self.advertised = self.advertised.max(next + (window << shift));
        window as u16
    }

    /// Writes a packet; `false` if the batch does not take it.
    fn emit(
        &mut self,
        now: Time,
        tx: &mut TxBuf,
        (flags, at, len): (Flags, u64, usize),
        ecn: Ecn,
    ) -> bool {
        // It rides on acknowledgments alone, which leaves the segments of data their length.
        let bare = len == 0 && !flags.contains(Flags::FIN);
        let snack = if bare && self.has_hole_to_tell() {
            let most = self.flow.ip_len() + HEADER_LEN + OPTIONS_MAX;
            if !self.affords(most) || !tx.fits(most) {
                return false;
            }
            self.snack_to_say(now)
        } else {
            None
        };
        let ends_record = len > 0 && self.space.marks.has(at + len as u64);
        if self.compresses() {
            return self.emit_compressed(now, tx, (flags, at, len), (snack, ends_record));
        }
        let list = self.options(now, snack.as_ref(), (ends_record, bare));
        let head = self.flow.ip_len() + HEADER_LEN + options_len(list.as_slice());
        if !self.affords(head + len) {
            return false;
        }
        let Some(packet) = tx.push(head + len) else { return false };
        self.spend(head + len);
        if len > 0 {
            self.send.read(at, &mut packet[head..]);
        }
        let mut flags = flags | Flags::ACK;
        if self.echo {
            flags |= Flags::ECE;
        }
        let header = Header {
            sequence: seq::wire(at),
            acknowledgment: seq::wire(self.receive_next()),
            flags,
            window: self.announce(self.receive_scale),
            ..Header::default()
        };
        self.flow.write(packet, header, list.as_slice(), ecn);
        self.counts.segments_sent += 1;
        self.counts.snacks.0 += u64::from(snack.is_some());
        self.acknowledgment_left();
        true
    }

    fn send_bare(&mut self, now: Time, tx: &mut TxBuf, at: u64) -> bool {
        self.emit(now, tx, (Flags::NONE, at, 0), Ecn::NotEct)
    }

    fn send_syn(&mut self, now: Time, tx: &mut TxBuf) -> bool {
        let (flags, options) = self.syn_parts(now);
        let head = self.flow.ip_len() + HEADER_LEN + options_len(&options);
        if !self.affords(head) {
            return false;
        }
        let Some(packet) = tx.push(head) else { return false };
        self.spend(head);
        let answers = self.state == State::SynReceived;
        let acknowledgment = if answers { seq::wire(self.receive_next()) } else { 0 };
        let window =
            if answers { self.announce(0) } else { self.receive.capacity().min(65_535) as u16 };
        let sequence = seq::wire(self.iss);
        let header = Header { sequence, acknowledgment, flags, window, ..Header::default() };
        self.flow.write(packet, header, &options, Ecn::NotEct);
        self.counts.segments_sent += 1;
        self.nxt = self.iss + 1;
        self.syns.tries += 1;
        self.syn_due = false;
        self.last_sent = now;
        // A peer that asks again does not put off the end of waiting for it.
        self.timers.syn_at.get_or_insert(now + self.rtt.timeout());
        true
    }

    fn send_new(&mut self, now: Time, tx: &mut TxBuf, len: u64, fin: bool) -> bool {
        let rto = self.rtt.timeout();
        let lasted = now.since(self.last_sent);
        if let Some(rule) = self.options.idle
            && self.board.is_empty()
            && lasted > rto
        {
            self.control.on_idle(now, &Idle { lasted, rto, rule });
            self.last_sent = now;
        }
        let (start, end) = (self.nxt, self.nxt + len + u64::from(fin));
        let mut flags = if fin { Flags::FIN } else { Flags::NONE };
        if len > 0 && start + len == self.send.end() {
            flags |= Flags::PSH;
        }
        let marks = self.ecn && len > 0;
        if marks && self.reduced {
            flags |= Flags::CWR;
        }
        let ecn = if marks { Ecn::Ect0 } else { Ecn::NotEct };
        if !self.emit(now, tx, (flags, start, len as usize), ecn) {
            return false;
        }
        self.reduced &= !marks;
        self.override_window = false;
        self.tell_sent(now, end - start, false);
        self.board.send(now, start, end);
        if len < self.data_room() {
            self.short_end = end;
        } else if len > self.mss() {
            self.note_probe(start, end);
        }
        self.nxt = end;
        // The probe's time counts from the last segment, the time-out from the first.
        if self.waits_for_retransmission() {
            self.arm_earlier_probe(now);
        } else {
            self.arm_retransmission(now);
        }
        true
    }

    /// Whether something is in flight that a short segment has to wait for (RFC 9293 §3.7.4).
    fn waits_for_short(&self) -> bool {
        !self.board.is_empty() && (!self.options.minshall || self.short_end > self.una)
    }

    fn waits_for_retransmission(&self) -> bool {
        matches!(self.timers.main, Some((_, super::Purpose::Retransmit)))
    }

    fn send_again(&mut self, now: Time, tx: &mut TxBuf, index: usize) -> bool {
        let room = self.data_room();
        let Some((start, end)) = self.board.segment(index, room) else { return true };
        let room = self.room_to(start, end, room);
        let Some((start, end)) = self.board.segment(index, room) else { return true };
        let stop = end.min(self.fin());
        let mut flags = if end > stop { Flags::FIN } else { Flags::NONE };
        if stop > start && stop == self.send.end() {
            flags |= Flags::PSH;
        }
        let len = (stop - start) as usize;
        // What is sent again carries no mark (RFC 3168 §6.1.5).
        if !self.emit(now, tx, (flags, start, len), Ecn::NotEct) {
            self.urgent |= index == 0;
            return false;
        }
        self.counts.retransmissions += 1;
        self.end_failed_probe(now, start);
        self.note_resent(end - start);
        self.tell_sent(now, end - start, true);
        self.board.resend(now, index);
        if index == 0 || self.timers.main.is_none() {
            self.arm_retransmission(now);
        }
        true
    }

    fn tell_sent(&mut self, now: Time, octets: u64, retransmission: bool) {
        let sent = Sent {
            octets,
            in_flight: self.board.pipe(),
            app_limited: self.board.is_app_limited(),
            retransmission,
        };
        self.control.on_sent(now, &sent);
        if let Phase::Recovery(recovery) = &mut self.phase {
            recovery.sent(octets);
        }
        self.counts.octets_sent += octets;
        self.pace(now, octets);
        self.last_sent = now;
    }
}

impl Connection {
    /// The same with a compressed header. Data goes without acknowledgment, as in the reference
    /// implementation: its header is as short as can be, and of one length.
    fn emit_compressed(
        &mut self,
        now: Time,
        tx: &mut TxBuf,
        (flags, at, len): (Flags, u64, usize),
        (snack, ends_record): (Option<SnackSaid>, bool),
    ) -> bool {
        let bare = len == 0;
        let stamps = self.stamps.map(|stamps| (self.stamp(now), stamps.recent));
        let mut head = Head {
            connection: self.space.own_number,
            flags: flags | Flags::ACK,
            sequence: Some(seq::wire(at)),
            stamp: stamps.map(|(stamp, _)| stamp),
            echo: stamps.map(|(_, echo)| echo),
            acknowledgment: bare.then_some((0, 0)),
            ends_record,
            ..Head::default()
        };
        let mut list = List { options: [TcpOption::NoOperation; 16], len: 0 };
        if bare {
            self.push_blocks(&mut list, 0);
        }
        if let Some(said) = &snack {
            let SnackSaid { offset, size, .. } = *said;
            list.push(TcpOption::Snack { offset, size, bits: said.bits() });
        }
        let room = options_len(list.as_slice()) + 16 <= OPTIONS_MAX;
        if bare && self.tells_corruption(now) && room {
            list.push(TcpOption::CorruptionExperienced);
        }
        let start = self.flow.ip_len() + head.encoded_len(list.as_slice());
        if !self.affords(start + len) {
            return false;
        }
        let Some(packet) = tx.push(start + len) else { return false };
        self.spend(start + len);
        if len > 0 {
            self.send.read(at, &mut packet[start..]);
        } else {
            let window = self.announce(self.receive_scale);
            head.acknowledgment = Some((window, seq::wire(self.receive_next())));
            self.acknowledgment_left();
        }
        self.flow.write_compressed(packet, &head, list.as_slice());
        self.counts.segments_sent += 1;
        self.counts.snacks.0 += u64::from(snack.is_some());
        true
    }

    /// An acknowledgment of all that came is on its way.
    fn acknowledgment_left(&mut self) {
        self.last_ack_sent = self.receive_next();
        self.ack_now = false;
        self.timers.ack_at = None;
        self.duplicate = None;
    }
}
