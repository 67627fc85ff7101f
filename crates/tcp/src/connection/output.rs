//! Choice of the next segment at the driver's request (RFC 9293 §3.8.6, RFC 6675 §4, RFC 5681).

use engine::{Ecn, Time, TxBuf};

use super::Connection;
use crate::cc::Sent;
use crate::indication::State;
use crate::scps::SnackOption;
use crate::segment::scps::Head;
use crate::segment::{
    Flags, HEADER_LEN, Header, OPTIONS_MAX, SackBlock, SackBlocks, TcpOption, options_len,
};
use crate::seq;

/// Initial full segments of a connection that are not paced (`tcp_update_skb_after_send`, formerly
/// `sch_fq`).
const UNPACED: u64 = 10;

/// Next segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    /// New data, and perhaps the FIN.
    New { len: u64, fin: bool },
    /// Retransmission of a segment.
    Again { index: usize },
}

/// Options of a segment, without heap memory.
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
    /// Writes segments that can be sent now into `tx`. Returns whether there are more than it
    /// holds.
    pub(crate) fn fill(&mut self, now: Time, tx: &mut TxBuf) -> bool {
        if self.handshake.is_syn_due() {
            return !self.send_syn(now, tx);
        }
        if self.space.suspended.is_some() {
            if self.liveness.is_probe_due() && !self.send_bare(now, tx, self.snd.una() - 1) {
                return true;
            }
            self.liveness.probe_sent();
            return false;
        }
        self.give_up(now);
        while self.acks.is_owed() {
            if !self.send_bare(now, tx, self.snd.nxt()) {
                return true;
            }
            self.acks.pay();
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
        if self.liveness.is_probe_due() {
            // A byte that the peer already has, so that it must reply (RFC 9293 §3.8.4).
            if !self.send_bare(now, tx, self.snd.una() - 1) {
                return true;
            }
            self.liveness.probe_sent();
        }
        self.acks.is_due() && self.is_synchronized() && !self.send_bare(now, tx, self.snd.nxt())
    }

    /// Bytes that may be in flight.
    pub(super) fn congestion_window(&self) -> u64 {
        self.control.window(self.losses.phase())
    }

    pub(super) fn in_flight(&self) -> u64 {
        // Without limited transmit, duplicates count only from the third on.
        let blind =
            self.losses.is_open() && !self.options.limited_transmit && self.snack().is_none();
        if blind { self.board.out() } else { self.board.pipe() }
    }

    fn next(&mut self, now: Time) -> Option<Next> {
        let room = self.data_room();
        let full = self.flow.ip_len() + HEADER_LEN + OPTIONS_MAX + self.mss() as usize;
        // Probes and urgent retransmissions are taken only once, so they wait for their credit
        // here.
        if (self.losses.is_probe_due() || self.losses.is_urgent()) && !self.affords(full) {
            return None;
        }
        if self.losses.take_due_probe()
            && let Some(next) = self.next_probe(room)
        {
            return Some(next);
        }
        if self.losses.take_urgent()
            && let Some(index) = self.board.next_lost()
        {
            return Some(Next::Again { index });
        }
        if self.wait_for_pace(now) {
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
            self.control.limit(self.snd.nxt());
            return None;
        }
        if let Some(next) = self.next_guess(fits(room)) {
            return Some(next);
        }
        self.note_app_limit();
        None
    }

    /// Notes that sending is limited by the user: less than a segment is queued, nothing must be
    /// repaired, and the window has room. Also called before a user's write, because a paced
    /// connection without data is not polled. A full send buffer is no limit of the user's, as in
    /// Linux, where a write that waits for room is one call: otherwise BBR would never find the pipe
    /// full, and send at three times its rate for ever.
    pub(super) fn note_app_limit(&mut self) {
        if self.send.blocks() {
            return;
        }
        let waits = self.send.end().saturating_sub(self.snd.nxt());
        let is_whole = self.board.next_lost().is_none();
        if waits < self.mss() && is_whole && self.in_flight() < self.congestion_window() {
            self.board.app_limited();
        }
    }

    /// New data allowed by the peer's window and silly window avoidance.
    fn next_new(&mut self, now: Time, room: u64) -> Option<(u64, bool)> {
        if self.fin_sent() {
            return None;
        }
        let (there, usable) = (self.send.end() - self.snd.nxt(), self.snd.usable());
        if there == 0 && !self.send.is_finished() {
            return None;
        }
        if let Some(len) = self.probe_len(now, there) {
            return Some((len, false));
        }
        let (len, is_full) = self.cut(there.min(usable), room);
        let is_last = len == there;
        // A compressed data header has no room for it.
        let alone = len == 0 || self.peer_number().is_none();
        let fin = self.send.is_finished() && is_last && usable > len && alone;
        let flushed = !self.options.nagle || self.send.is_finished() || !self.waits_for_short();
        let wait = if len == 0 {
            !fin
        } else if is_full || (is_last && flushed) || self.snd.overrides_window() {
            false
        } else {
            // Half of the largest window justifies a segment (RFC 9293 §3.8.6.2.1).
            is_last || 2 * len < self.snd.window_max()
        };
        if !wait {
            return Some((len, fin));
        }
        if self.board.is_empty() && usable <= len {
            self.arm_persist(now);
        }
        None
    }

    /// Data that may be lost, when nothing better is left to send (rules 3 and 4 of NextSeg).
    fn next_guess(&mut self, fits: bool) -> Option<Next> {
        let sack = self.losses.sack();
        let recovery = self.losses.recovery()?;
        if !fits || !recovery.guesses() || !sack {
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

    /// Tail loss probe: new data if available, otherwise the last segment (RFC 8985 §7.3).
    fn next_probe(&mut self, room: u64) -> Option<Next> {
        self.counts.tail_loss_probes += 1;
        let there = self.send.end().saturating_sub(self.snd.nxt());
        let (len, _) = self.cut(there.min(self.snd.usable()), room);
        if len > 0 {
            self.losses.probe_sent(self.snd.nxt() + len, false);
            return Some(Next::New { len, fin: false });
        }
        let index = self.board.last_unsacked()?;
        let (_, end) = self.board.segment(index, u64::MAX)?;
        self.losses.probe_sent(end, true);
        Some(Next::Again { index })
    }

    /// Pacing rate in bit/s, if any.
    pub(super) fn pacing_rate_bps(&self) -> Option<u64> {
        self.control.pacing_rate_bps(&self.options, &self.rtt)
    }

    /// Returns whether pacing holds it back; if so, and if there is something to send, arms a
    /// timer.
    fn wait_for_pace(&mut self, now: Time) -> bool {
        let Some(until) = self.control.held_until(now) else { return false };
        if self.pacing_rate_bps().is_none() {
            return false;
        }
        // Arm no timer without work.
        let work =
            self.board.lost() > 0 || self.send.end() > self.snd.nxt() || self.send.is_finished();
        if work && !self.fin_sent() || self.board.lost() > 0 {
            self.timers.pace_at = Some(until);
        }
        true
    }

    fn pace(&mut self, now: Time, bytes: u64) {
        if self.counts.bytes_sent < UNPACED * self.mss() {
            return;
        }
        if let Some(rate) = self.pacing_rate_bps() {
            self.control.pace(now, bytes, rate);
        }
    }

    /// Number of `most` new bytes in a segment with `room`, and whether it is full then. The end of
    /// a record also ends its segment.
    fn cut(&self, most: u64, room: u64) -> (u64, bool) {
        let Some(end) = self.space.marks.after(self.snd.nxt()) else {
            return (most.min(room), most >= room);
        };
        let full = (end - self.snd.nxt()).min(self.room_to(self.snd.nxt(), end, room));
        (most.min(full), most >= full)
    }

    /// Data bytes that fit if a record ends at `end` or before.
    fn room_to(&self, start: u64, end: u64, room: u64) -> u64 {
        let says_end = end <= start + room && self.space.marks.has(end) && !self.compresses();
        // The option takes two bytes, and two of padding.
        if says_end { room.saturating_sub(4).max(1) } else { room }
    }

    /// Data bytes that fit in a segment with the current options.
    fn data_room(&self) -> u64 {
        if self.compresses() {
            return self.mss();
        }
        let blocks = self.block_count();
        let sack = if blocks == 0 { 0 } else { 4 + 8 * blocks as u64 };
        self.whole_mss().saturating_sub(sack).max(1)
    }

    fn block_count(&self) -> usize {
        if !self.losses.sack() {
            return 0;
        }
        let most = if self.stamps.are_agreed() { 3 } else { 4 };
        let twice = usize::from(self.acks.duplicate().is_some() && self.options.duplicate_sack);
        twice + self.receive.blocks(most - twice).count()
    }

    fn options<'a>(
        &self,
        now: Time,
        snack: Option<&'a SnackOption>,
        ends_record: bool,
        bare: bool,
    ) -> List<'a> {
        let mut list = List { options: [TcpOption::NoOperation; 16], len: 0 };
        if let Some((value, echo)) = self.stamps.of_segment(now) {
            list.len = 2;
            list.push(TcpOption::Timestamps { value, echo });
        }
        self.push_blocks(&mut list, 2);
        if ends_record {
            list.len += 2;
            list.push(TcpOption::RecordBoundary);
        }
        if let Some(snack) = snack {
            list.len += 2;
            let SnackOption { offset, size, .. } = *snack;
            list.push(TcpOption::Snack { offset, size, bits: snack.bits() });
        }
        if bare && self.tells_corruption(now) && options_len(list.as_slice()) + 4 <= OPTIONS_MAX {
            list.push(TcpOption::CorruptionExperienced);
        }
        list
    }

    /// Adds blocks beyond gaps and duplicates, after `padding` bytes.
    fn push_blocks(&self, list: &mut List<'_>, padding: usize) {
        let count = self.block_count();
        if count == 0 {
            return;
        }
        let twice = self.acks.duplicate().filter(|_| self.options.duplicate_sack);
        let twice =
            twice.map(|(start, end)| SackBlock { left: seq::wire(start), right: seq::wire(end) });
        let rest = self.receive.blocks(count - usize::from(twice.is_some()));
        let blocks: SackBlocks = twice.into_iter().chain(rest).collect();
        list.len += padding;
        list.push(TcpOption::Sack(blocks));
    }

    /// Last announced window, for the field.
    pub(crate) fn window_field(&self) -> u16 {
        self.inbound.field(self.receive_next())
    }

    /// Writes a packet; `false` if the batch has no room.
    fn emit(
        &mut self,
        now: Time,
        tx: &mut TxBuf,
        flags: Flags,
        at: u64,
        len: usize,
        ecn: Ecn,
    ) -> bool {
        // Only acknowledgments carry it, which keeps the length of data segments.
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
            return self.emit_compressed(now, tx, flags, at, len, snack, ends_record);
        }
        let list = self.options(now, snack.as_ref(), ends_record, bare);
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
        if self.ecn.echoes() {
            flags |= Flags::ECE;
        }
        let header = Header {
            sequence: seq::wire(at),
            acknowledgment: seq::wire(self.receive_next()),
            flags,
            window: self.inbound.announce(&self.receive, self.inbound.shift()),
            ..Header::default()
        };
        self.flow.write(packet, header, list.as_slice(), ecn);
        self.counts.segments_sent += 1;
        self.counts.snacks.0 += u64::from(snack.is_some());
        self.acknowledgment_left();
        true
    }

    fn send_bare(&mut self, now: Time, tx: &mut TxBuf, at: u64) -> bool {
        self.emit(now, tx, Flags::NONE, at, 0, Ecn::NotEct)
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
        let window = if answers {
            self.inbound.announce(&self.receive, 0)
        } else {
            self.receive.capacity().min(65_535) as u16
        };
        let sequence = seq::wire(self.snd.iss());
        let header = Header { sequence, acknowledgment, flags, window, ..Header::default() };
        self.flow.write(packet, header, &options, Ecn::NotEct);
        self.counts.segments_sent += 1;
        self.snd.syn_sent();
        self.handshake.tried();
        self.control.note_sent(now);
        // A repeated SYN of the peer does not extend the wait for its reply.
        self.timers.syn_at.get_or_insert(now + self.rtt.timeout());
        true
    }

    fn send_new(&mut self, now: Time, tx: &mut TxBuf, len: u64, fin: bool) -> bool {
        if self.board.is_empty() {
            self.control.end_idle(now, self.rtt.timeout(), &self.options);
        }
        let (start, end) = (self.snd.nxt(), self.snd.nxt() + len + u64::from(fin));
        let mut flags = if fin { Flags::FIN } else { Flags::NONE };
        if len > 0 && start + len == self.send.end() {
            flags |= Flags::PSH;
        }
        let marks = self.ecn.is_agreed() && len > 0;
        if marks && self.control.reports_reduction() {
            flags |= Flags::CWR;
        }
        let ecn = if marks { Ecn::Ect0 } else { Ecn::NotEct };
        if !self.emit(now, tx, flags, start, len as usize, ecn) {
            return false;
        }
        if marks {
            self.control.reduction_reported();
        }
        self.tell_sent(now, end - start, false);
        self.board.send(now, start, end);
        self.snd.sent(end);
        if len < self.data_room() {
            self.snd.sent_short();
        } else if len > self.mss() {
            self.note_probe(start, end);
        }
        // The probe's time counts from the last segment, the timeout from the first.
        if self.waits_for_retransmission() {
            self.arm_earlier_probe(now);
        } else {
            self.arm_retransmission(now);
        }
        true
    }

    /// Whether a short segment has to wait for data in flight (RFC 9293 §3.7.4).
    fn waits_for_short(&self) -> bool {
        !self.board.is_empty() && (!self.options.minshall || self.snd.has_short())
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
        // Retransmissions are not ECN-capable (RFC 3168 §6.1.5).
        if !self.emit(now, tx, flags, start, len, Ecn::NotEct) {
            if index == 0 {
                self.losses.hurry();
            }
            return false;
        }
        self.counts.retransmissions += 1;
        self.end_failed_probe(now, start);
        self.losses.note_resent(end - start);
        self.tell_sent(now, end - start, true);
        self.board.resend(now, index);
        if index == 0 || self.timers.main.is_none() {
            self.arm_retransmission(now);
        }
        true
    }

    fn tell_sent(&mut self, now: Time, bytes: u64, retransmission: bool) {
        let sent = Sent {
            bytes,
            in_flight: self.board.pipe(),
            app_limited: self.board.is_app_limited(),
            retransmission,
        };
        self.control.sent(now, &sent);
        if let Some(recovery) = self.losses.recovery() {
            recovery.sent(bytes);
        }
        self.counts.bytes_sent += bytes;
        self.pace(now, bytes);
    }
}

impl Connection {
    /// Writes a packet with a compressed header. Data carries no acknowledgment, as in the
    /// reference implementation: its header is as short as possible, and of constant length.
    fn emit_compressed(
        &mut self,
        now: Time,
        tx: &mut TxBuf,
        flags: Flags,
        at: u64,
        len: usize,
        snack: Option<SnackOption>,
        ends_record: bool,
    ) -> bool {
        let bare = len == 0;
        let stamps = self.stamps.of_segment(now);
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
        if let Some(snack) = &snack {
            let SnackOption { offset, size, .. } = *snack;
            list.push(TcpOption::Snack { offset, size, bits: snack.bits() });
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
            let window = self.inbound.announce(&self.receive, self.inbound.shift());
            head.acknowledgment = Some((window, seq::wire(self.receive_next())));
            self.acknowledgment_left();
        }
        self.flow.write_compressed(packet, &head, list.as_slice());
        self.counts.segments_sent += 1;
        self.counts.snacks.0 += u64::from(snack.is_some());
        true
    }

    /// Notes that an acknowledgment of all received data was sent.
    fn acknowledgment_left(&mut self) {
        self.acks.left(self.receive_next());
        self.timers.ack_at = None;
    }
}
