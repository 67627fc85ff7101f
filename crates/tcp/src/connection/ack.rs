//! Processing of acknowledgments: the scoreboard and the window (RFC 5681, RFC 6298, RFC 6582,
//! RFC 6675, RFC 3168).

use std::time::Duration;

use engine::Time;

use super::segment::ReceivedOptions;
use super::{Connection, Purpose};
use crate::autotune::{Queued, send_capacity};
use crate::cc::{Ack, Cause};
use crate::config::Buffer;
use crate::recovery::Progress;
use crate::scoreboard::Delivery;
use crate::segment::{Flags, SackBlock, Segment};
use crate::seq;

/// Result of an acknowledgment.
#[derive(Clone, Copy, Debug)]
pub(super) struct News {
    pub(super) delivery: Delivery,
    /// Whether the cumulative acknowledgment advanced.
    pub(super) advanced: bool,
    /// Whether SACK blocks were new.
    pub(super) sacked: bool,
    /// Whether it is a duplicate (RFC 5681 §2).
    pub(super) duplicate: bool,
    /// Bytes that the peer reports missing, and that were not known to be lost.
    pub(super) holes: u64,
    /// Range reported as received twice.
    pub(super) twice: Option<(u64, u64)>,
    /// Echoed timestamp.
    pub(super) echo: Option<u32>,
    /// Time since the latest acknowledged segment was sent, for the congestion control.
    rtt: Option<Duration>,
    /// Whether it selectively acknowledges data sent before the last transmission of the first
    /// segment in flight, which is then not late yet.
    before_head: bool,
    /// Bytes in flight before it.
    prior_in_flight: u64,
}

impl Connection {
    /// Processes an acknowledgment of `ack`, in a segment at `at`, that is not beyond sent data.
    pub(super) fn acknowledged(
        &mut self,
        now: Time,
        segment: &Segment<'_>,
        at: u64,
        ack: u64,
        received: ReceivedOptions<'_>,
    ) {
        let window_before = self.snd.window();
        self.snd.update_window(segment.header.window, at, ack);
        let mut news = self.take_in(now, ack, received);
        let plain = segment.payload.is_empty() && !segment.header.flags.contains(Flags::FIN);
        let unchanged = plain && self.snd.window() == window_before;
        news.duplicate = !news.advanced
            && ack == self.snd.una()
            && !self.board.is_empty()
            && (news.sacked || (unchanged && news.twice.is_none() && !self.losses.sack()));
        self.round_trip(now, &mut news);
        if news.advanced {
            self.timers.timeouts = 0;
        }
        let held = self.losses.holds_window();
        let limited = self.control.is_limited(self.snd.una() - news.delivery.acked);
        self.undo_if_spurious(now, &news);
        let lost = self.judge(now, &news);
        self.leave_phase(now, news.advanced);
        // A control with its own window sees a single recovery if the next one follows at once.
        let own = self.control.governs_recovery() && news.advanced;
        if own && self.losses.is_open() && self.board.lost() > 0 {
            self.begin_recovery(now);
        }
        let echo = self.ecn.is_agreed() && segment.header.flags.contains(Flags::ECE);
        if echo {
            self.reduce_for_mark(now, limited);
        }
        self.tell_control(now, &news, lost, held, limited, echo);
        self.after_ack(now, &news);
    }

    /// Updates the scoreboard.
    fn take_in(&mut self, now: Time, ack: u64, received: ReceivedOptions<'_>) -> News {
        let prior_in_flight = self.board.pipe();
        self.board.least_rtt(self.rtt.least());
        let mut delivery = Delivery::default();
        let advanced = ack > self.snd.una();
        let (mut twice, mut sacked) = (None, false);
        let blocks = received.sack.filter(|_| self.losses.sack()).unwrap_or_default();
        let blocks = blocks.as_slice();
        if let Some(first) = blocks.first() {
            let within = blocks.get(1).map(|block| self.edges(*block));
            let (left, right) = self.edges(*first);
            let covered = within.is_some_and(|(from, to)| from <= left && right <= to);
            if right <= ack || covered {
                twice = (left < right).then_some((left, right));
            }
        }
        let known = usize::from(twice.is_some());
        for block in blocks.iter().skip(known) {
            let (left, right) = self.edges(*block);
            if left < right && left >= self.snd.una() && right > ack && right <= self.snd.nxt() {
                sacked |= self.board.sack(now, left, right, &mut delivery);
            }
        }
        if advanced {
            self.board.acknowledge(now, ack, &mut delivery);
            self.snd.acknowledge(ack);
            self.space.goes_on = false;
            self.send.release(ack);
            self.space.marks.release(ack);
            self.counts.bytes_acknowledged += delivery.acked;
            self.note_proven(delivery.longest);
        }
        let before = delivery.sacked;
        let holes = self.take_snack(now, ack, &received, &mut delivery);
        sacked |= delivery.sacked > before;
        let echo = received.stamps.map(|(_, echo)| echo);
        let twice = twice.filter(|_| self.options.duplicate_sack);
        let duplicate = false;
        News {
            delivery,
            advanced,
            sacked,
            duplicate,
            holes,
            twice,
            echo,
            rtt: None,
            before_head: false,
            prior_in_flight,
        }
    }

    fn edges(&self, block: SackBlock) -> (u64, u64) {
        let left = self.snd.expand(block.left);
        (left, seq::expand(left, block.right))
    }

    /// Takes a round trip sample: from data sent once, otherwise from timestamps (Karn's rule,
    /// RFC 7323 §4.1).
    fn round_trip(&mut self, now: Time, news: &mut News) {
        let delivery = &news.delivery;
        let acked = delivery.acked_rtt.filter(|_| !delivery.resent_acked);
        let sacked = delivery.sacked_rtt;
        let by_clock = acked.or(sacked).map(|elapsed| elapsed.oldest);
        let by_stamp = || {
            let old =
                |echo: u32| self.space.stamps_from.is_some_and(|from| seq::is_older(echo, from));
            let echo = news.echo.filter(|echo| news.advanced && !old(*echo))?;
            self.stamps.since(now, echo)
        };
        let Some(took) = by_clock.or_else(by_stamp) else { return };
        self.rtt.sample(took, self.snd.una(), self.snd.nxt());
        // A later segment than the oldest is closer to the path's round trip.
        let latest = sacked.or(acked).map_or(took, |elapsed| elapsed.latest);
        self.rtt.note_least(latest);
        news.rtt = Some(latest);
        news.before_head =
            sacked.zip(self.board.head_age(now)).is_some_and(|(sacked, age)| sacked.oldest > age);
    }

    /// Ends a recovery, a reduction or a restart that is complete.
    fn leave_phase(&mut self, now: Time, advanced: bool) {
        let by_first = self.control.recovers_with_first();
        if !self.losses.is_over(self.snd.una(), by_first, advanced) {
            return;
        }
        if self.losses.end(&mut self.board) {
            self.control.recovered(now);
        }
    }

    /// Reduces the window for an echoed congestion mark (RFC 3168 §6.1.2).
    fn reduce_for_mark(&mut self, now: Time, cwnd_limited: bool) {
        if !self.losses.is_open() {
            return;
        }
        let flight_size = self.board.out();
        self.control.congested(now, Cause::Ecn, flight_size, cwnd_limited);
        self.counts.ecn_reductions += 1;
        self.losses.reduce(self.snd.nxt());
    }

    fn tell_control(
        &mut self,
        now: Time,
        news: &News,
        lost: u64,
        held: bool,
        limited: bool,
        echo: bool,
    ) {
        let delivery = &news.delivery;
        if delivery.newly_delivered == 0 && lost == 0 {
            return;
        }
        let round = news.advanced && self.control.ends_round(self.snd.una(), self.snd.nxt());
        let in_flight = self.board.pipe();
        let ack = Ack {
            acked: delivery.acked,
            sacked: delivery.sacked,
            newly_delivered: delivery.newly_delivered,
            delivered: self.board.delivered(),
            lost,
            rtt: news.rtt,
            srtt: self.rtt.smoothed(),
            min_rtt: self.rtt.least(),
            prior_in_flight: news.prior_in_flight,
            in_flight,
            round,
            rate: self.board.rate(delivery),
            // Corruption does not keep the window from growing.
            in_recovery: !self.losses.is_spared() && (held || self.losses.holds_window()),
            cwnd_limited: limited,
            ecn_echo: echo,
        };
        self.control.acknowledged(now, &ack);
        let (target, mss) = (self.control.cwnd(), self.mss());
        if let Some(recovery) = self.losses.recovery() {
            let delivered = delivery.newly_delivered;
            recovery.acknowledged(Progress { delivered, pipe: in_flight, target, mss });
        }
    }

    fn after_ack(&mut self, now: Time, news: &News) {
        if self.send.is_finished() && self.snd.una() > self.fin() {
            self.fin_acknowledged(now);
        }
        let probing = matches!(self.timers.main, Some((_, Purpose::TailLossProbe)));
        if news.advanced || (news.sacked && probing) || news.before_head {
            self.arm_retransmission(now);
        }
        if self.snd.usable() > 0 {
            self.end_persist();
        }
        if news.advanced && self.may_send() {
            self.make_room();
        }
    }

    /// Grows the send buffer as the window requires.
    pub(super) fn make_room(&mut self) {
        let windows = self.control.windows_buffered();
        let (cwnd, mss) = (self.control.cwnd(), self.mss());
        let capacity = send_capacity(self.options.send_buffer, cwnd, mss, windows);
        self.send.grow(capacity);
        if matches!(self.options.send_buffer, Buffer::Auto { .. }) {
            self.charge_packets();
        }
        let room = self.send.room();
        let enough =
            if self.options.any_room { room > 0 } else { room * 3 >= self.send.capacity() };
        if enough && self.send.take_wanted() {
            self.events.writable = !self.send.is_finished();
        }
    }

    /// Charges the send buffer with the memory of its packets.
    fn charge_packets(&mut self) {
        let Some(pacing_rate_bps) = self.pacing_rate_bps() else { return };
        let (sacked, mss) = (self.board.sacked(), self.mss());
        let in_flight = self.board.out().saturating_sub(sacked);
        let unsent = self.send.end().saturating_sub(self.snd.nxt());
        let queued = Queued { unsent, in_flight, sacked, pacing_rate_bps, mss };
        self.send.set_overhead(queued.overhead());
    }
}
