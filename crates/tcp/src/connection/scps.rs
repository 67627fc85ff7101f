//! SCPS-TP procedures of a connection (CCSDS 714.0-B-2).

use std::time::Duration;

use engine::{PathId, Time};

use super::ack::News;
use super::segment::ReceivedOptions;
use super::{Connection, Purpose};
use crate::indication::RequestError;
use crate::recovery::Phase;
use crate::scoreboard::Delivery;
use crate::scps::{
    Agreed, BestEffort, Bets, Ends, Holes, LossCause, Marks, RateControl, SnackForm, SnackOption,
    Snacking, holes,
};

/// Initial pause between two probes for the end of an outage.
const PROBE_FIRST: Duration = Duration::from_secs(1);
/// Maximum pause.
const PROBE_MOST: Duration = Duration::from_secs(60);

/// Suspension during an outage of the link.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Suspension {
    since: Time,
    /// Time of the next probe, and the pause before it.
    probe: Option<(Time, Duration)>,
    /// Whether a probe was sent: data arriving now may be its reply, rather than data from before
    /// the outage.
    probed: bool,
}

/// Route whose connections share a rate: its interface, and its configured number, if any.
pub(crate) type RateKey = (PathId, Option<u32>);

/// SCPS-TP state of a connection.
#[derive(Debug, Default)]
pub(crate) struct Space {
    /// Time at which the connection is given up if timeouts do not count.
    pub(super) give_up_at: Option<Time>,
    /// Negotiated features.
    pub(super) agreed: Option<Agreed>,
    /// Unit of holes.
    pub(super) unit: u64,
    pub(super) snacking: Snacking,
    /// Local number of the connection in compressed headers; 0: none.
    pub(crate) own_number: u8,
    /// Last values of the fields that compressed headers may omit: window and acknowledgment,
    /// timestamps.
    pub(crate) last_header: ((u16, u32), (u32, u32)),
    /// End of the peer's report of corruption, and the time of the last corruption here.
    pub(super) corrupted_until: Option<Time>,
    pub(crate) corrupted_at: Option<Time>,
    pub(super) suspended: Option<Suspension>,
    /// Timestamp before which echoes are ignored.
    pub(super) stamps_from: Option<u32>,
    pub(super) marks: Marks,
    pub(super) ends: Ends,
    pub(super) best_effort: BestEffort,
    /// Whether the sender is ahead of the peer's acknowledgment, because it gave up data.
    pub(super) goes_on: bool,
    /// First byte of the peer's stream.
    pub(super) receive_origin: u64,
    /// Bytes allowed by the route's rate, the overhead of each packet, and the size of a packet
    /// that had to wait.
    pub(crate) credit: Option<u64>,
    pub(crate) overhead: usize,
    pub(crate) starved: Option<u64>,
    /// Route of that rate.
    pub(crate) rate_key: Option<RateKey>,
}

impl Space {
    pub(super) fn new(own_number: u8) -> Self {
        Self { own_number, ..Self::default() }
    }
}

impl Connection {
    /// Negotiated form of SNACK.
    pub(super) fn snack(&self) -> Option<SnackForm> {
        self.space.agreed.and_then(|agreed| agreed.snack)
    }

    /// Peer's number of this connection in compressed headers.
    pub(crate) fn peer_number(&self) -> Option<u8> {
        self.space.agreed.and_then(|agreed| agreed.compression)
    }

    /// Whether headers are compressed now. After the FIN the peer may have closed and forgotten the
    /// number: a full header gets a reply then.
    pub(super) fn compresses(&self) -> bool {
        self.peer_number().is_some() && !self.fin_sent()
    }

    /// Data bytes of a segment with a whole header.
    pub(super) fn whole_mss(&self) -> u64 {
        // 20 bytes instead of 8, or 32 instead of 16.
        let longer = match (self.peer_number().is_some(), self.stamps.are_agreed()) {
            (false, _) => 0,
            (true, false) => 12,
            (true, true) => 16,
        };
        self.mss().saturating_sub(longer).max(1)
    }

    /// Rate that this connection requests for its route.
    pub(crate) fn rate_control(&self) -> Option<RateControl> {
        self.options.scps.and_then(|scps| scps.rate)
    }

    /// Whether losses are attributed to corruption now.
    pub(super) fn blames_corruption(&self, now: Time) -> bool {
        let is_reported = self.space.corrupted_until.is_some_and(|until| now < until);
        is_reported || self.options.scps.is_some_and(|scps| scps.assume == LossCause::Corruption)
    }

    /// Notes the peer's report of corruption.
    pub(super) fn corruption_reported(&mut self, now: Time) {
        if self.space.agreed.is_some()
            && let Some(scps) = self.options.scps
        {
            self.space.corrupted_until = Some(now + scps.dwell);
        }
    }

    /// Whether to report corruption to the peer.
    pub(super) fn tells_corruption(&self, now: Time) -> bool {
        let dwell = self.options.scps.map_or(Duration::ZERO, |scps| scps.dwell);
        self.space.agreed.is_some() && self.space.corrupted_at.is_some_and(|at| now < at + dwell)
    }

    /// Time until a connection with doubling timeouts would be given up: one with constant timeouts
    /// gets as long, or a short outage would end it.
    pub(super) fn patience(&self) -> Duration {
        let (base, most) = (self.rtt.base(), self.options.timeouts.max);
        // 2^31 times the minimum timeout exceeds any limit.
        let doubled =
            (0..self.options.retries.min(31)).map(|n| base.saturating_mul(1 << n).min(most));
        let rest = most.saturating_mul(self.options.retries.saturating_sub(31));
        doubled.fold(rest, Duration::saturating_add)
    }

    /// Whether the route's rate allows a packet of this length.
    pub(super) fn affords(&mut self, len: usize) -> bool {
        let cost = (len + self.space.overhead) as u64;
        match self.space.credit {
            Some(credit) if credit < cost => {
                self.space.starved = Some(cost);
                false
            }
            Some(_) | None => true,
        }
    }

    pub(super) fn spend(&mut self, len: usize) {
        let cost = (len + self.space.overhead) as u64;
        self.space.credit = self.space.credit.map(|credit| credit.saturating_sub(cost));
    }

    pub(super) fn has_hole_to_tell(&self) -> bool {
        self.snack().is_some() && self.receive.has_gaps()
    }

    /// Hole to report in an acknowledgment, if due.
    pub(super) fn snack_to_say(&mut self, now: Time) -> Option<SnackOption> {
        let form = self.snack()?;
        let settings = self.options.scps?.snack?;
        self.space.snacking.next(
            now,
            &settings,
            form,
            self.space.unit,
            self.rtt.smoothed(),
            &self.receive,
        )
    }

    /// Notes data beyond a hole.
    pub(super) fn note_hole(&mut self, now: Time) {
        self.arm_skip(now);
        let Some(snack) = self.options.scps.and_then(|scps| scps.snack) else { return };
        self.space.snacking.arrived(now, &snack, self.receive.highest());
        self.arm_snack();
    }

    /// Arms the timer for the report of a hole whose delay is running.
    fn arm_snack(&mut self) {
        let snack = self.options.scps.and_then(|scps| scps.snack);
        self.timers.snack_at = snack
            .filter(|_| self.snack().is_some() && self.receive.has_gaps())
            .and_then(|snack| self.space.snacking.due_at(&snack));
    }

    /// Reports a hole whose delay has expired.
    pub(super) fn snack_due(&mut self, now: Time) {
        if let Some(snack) = self.options.scps.and_then(|scps| scps.snack) {
            self.space.snacking.ripen(now, &snack);
        }
        if self.receive.has_gaps() {
            self.acks.owe();
        }
        self.arm_snack();
    }

    /// Processes the peer's report of missing data. Returns the bytes newly considered lost.
    pub(super) fn take_snack(
        &mut self,
        now: Time,
        ack: u64,
        received: &ReceivedOptions<'_>,
        delivery: &mut Delivery,
    ) -> u64 {
        let (Some(form), Some(snack)) = (self.snack(), received.snack) else { return 0 };
        self.counts.snacks.1 += 1;
        let (offset, size, bits) = snack;
        let bits = if form == SnackForm::Bits { bits } else { &[] };
        // A retransmission is reported after a round trip, plus its variation.
        let embargo = self.rtt.smoothed().unwrap_or_default() + self.rtt.variation();
        let mut lost = 0;
        for (start, end, missing) in holes(ack, self.space.unit, offset, size, bits) {
            let (start, end) = (start.max(self.snd.una()), end.min(self.snd.nxt()));
            if start >= end {
                continue;
            }
            if missing {
                lost += self.board.lose_hole(now, start, end, embargo);
            } else {
                self.board.sack(now, start, end, delivery);
            }
        }
        lost
    }

    /// Detects losses by SNACK; without a bit vector, duplicates only count delivered segments.
    pub(super) fn lost_by_snack(&mut self, news: &News) -> u64 {
        if self.snack() == Some(SnackForm::Bits) {
            return news.holes;
        }
        if news.duplicate {
            self.board.add_phantom(self.mss());
        } else if news.advanced {
            match self.losses.phase() {
                Phase::Open | Phase::Reduced { .. } => self.board.clear_phantom(),
                Phase::Recovery(recovery) if self.snd.una() < recovery.point => {
                    self.board.take_phantom(news.delivery.acked.saturating_sub(self.mss()));
                }
                Phase::Recovery(_) | Phase::Restarted { .. } => {}
            }
        }
        news.holes
    }

    /// Whether its compressed headers have this number.
    pub(crate) fn compresses_as(&self, number: u8) -> bool {
        self.peer_number().is_some() && self.space.own_number == number
    }

    /// Whether lost data is retransmitted at once, regardless of the congestion window: the peer
    /// reported the loss, and only the rate holds it back.
    pub(super) fn repairs_at_once(&self) -> bool {
        self.snack().is_some() && !matches!(self.losses.phase(), Phase::Restarted { .. })
    }

    pub(crate) fn suspends(&self) -> bool {
        self.options.scps.is_some_and(|scps| scps.suspends) && self.is_synchronized()
    }

    pub(crate) fn is_suspended(&self) -> bool {
        self.space.suspended.is_some()
    }

    /// Suspends the connection for an outage: timers stop, and only occasional probes are sent,
    /// unless this host's own link is down.
    pub(crate) fn suspend(&mut self, now: Time, asks: bool) {
        if self.space.suspended.is_some() {
            return;
        }
        let probe = asks.then_some((now + PROBE_FIRST, PROBE_FIRST));
        self.space.suspended = Some(Suspension { since: now, probe, probed: false });
    }

    /// Suspends the connection because this host's own link is down.
    pub(crate) fn suspend_own(&mut self, now: Time) {
        if self.suspends() {
            self.suspend(now, false);
        }
    }

    /// Time of the next probe for the end of the outage.
    pub(super) fn probe_at(&self) -> Option<Time> {
        self.space.suspended.and_then(|suspension| suspension.probe).map(|(at, _)| at)
    }

    /// Sends a probe for the end of the outage.
    pub(super) fn probe_link(&mut self, now: Time) {
        let Some(Suspension { probe: Some((at, pause)), probed, .. }) = &mut self.space.suspended
        else {
            return;
        };
        *probed = true;
        *pause = (*pause * 2).min(PROBE_MOST);
        *at = now + *pause;
        self.counts.window_probes += 1;
        self.liveness.call_probe();
    }

    /// Notes the window and acknowledgment of the SYN, which compressed headers refer to at first.
    /// Windows of SYNs are not scaled, others are.
    pub(super) fn note_syn_header(&mut self, window: u16) {
        let acknowledgment = crate::seq::wire(self.snd.iss() + 1);
        self.space.last_header.0 = (window >> self.snd.shift(), acknowledgment);
    }

    /// Notes a segment of the peer.
    pub(super) fn peer_is_back(&mut self, now: Time) {
        if self.space.suspended.is_some_and(|suspension| suspension.probed) {
            self.resume(now);
        }
    }

    /// Resumes after an outage as if no time had passed. Data in flight is probably lost; its first
    /// and last segments are retransmitted to find out.
    pub(crate) fn resume(&mut self, now: Time) {
        let Some(suspension) = self.space.suspended.take() else { return };
        let away = now.since(suspension.since);
        self.timers.put_off(away);
        self.control.put_off(away);
        self.liveness.put_off(away);
        // Earlier transmissions do not measure the round trip.
        self.space.stamps_from = self.stamps.are_agreed().then(|| self.stamps.clock(now));
        self.board.forget_times();
        self.acks.hasten();
        if !self.board.is_empty() {
            if self.snack().is_some() {
                self.board.lose_ends();
            } else {
                self.board.lose_first();
            }
            self.losses.hurry();
        }
        if !matches!(self.timers.main, Some((_, Purpose::Persist))) {
            self.arm_retransmission(now);
        }
    }

    /// Marks the end of a record after the last byte written.
    ///
    /// # Errors
    /// The peer does not support records, there are too many, or the byte was already sent.
    pub(crate) fn end_record(&mut self) -> Result<(), RequestError> {
        let most = self.options.scps.map_or(0, |scps| scps.records);
        let agreed = self.space.agreed.is_some() || !self.is_synchronized();
        let end = self.send.end();
        if !agreed || most == 0 {
            return Err(RequestError::NoRecords);
        }
        if end <= self.snd.nxt() && !self.space.marks.has(end) {
            return Err(RequestError::RecordSent);
        }
        if self.space.marks.add(end, most) { Ok(()) } else { Err(RequestError::TooManyRecords) }
    }

    /// Number of bytes from the next one to read to the end of its record, if that end has
    /// arrived.
    pub(crate) fn record(&self) -> Option<u64> {
        let end = self.space.ends.first().filter(|end| *end <= self.receive.next())?;
        Some(end - self.receive.start())
    }

    /// Notes the end of a peer's record before `at`.
    pub(super) fn record_ends(&mut self, at: u64) {
        let most = self.options.scps.map_or(0, |scps| scps.records);
        let known = self.receive.start() < at && at <= self.inbound.advertised();
        if self.space.agreed.is_some() && known && !self.space.ends.add(at, most) {
            self.counts.records_dropped += 1;
        }
    }

    /// Notifies the user of records that can be read completely.
    pub(super) fn tell_records(&mut self) {
        self.events.record |= self.space.ends.take_end_before(self.receive.next());
    }

    fn bets(&self) -> Option<Bets> {
        self.options
            .scps
            .and_then(|scps| scps.bets)
            .filter(|_| self.space.agreed.is_some_and(|s| s.bets))
    }

    /// Arms the timer for the hole that the user has reached.
    pub(super) fn arm_skip(&mut self, now: Time) {
        let Some(bets) = self.bets() else { return };
        let hole = self.receive.has_gaps()
            || self.inbound.fin_at().is_some_and(|at| at > self.receive.next());
        if !hole || self.receive.readable() > 0 {
            self.timers.skip_at = None;
        } else if self.timers.skip_at.is_none() {
            self.timers.skip_at = Some(now + bets.receive_timeout);
        }
    }

    /// Skips a hole after its timeout.
    pub(super) fn skip_hole(&mut self, now: Time) {
        let Some(bets) = self.bets() else { return };
        let next = self.receive.next();
        let there = self.receive.holes_from(next).next().map(|(_, end)| end);
        let Some(end) = there.or(self.inbound.fin_at()).filter(|end| *end > next) else { return };
        if !self.space.best_effort.may_skip(&bets) {
            // The user must first fetch the known holes.
            return self.arm_skip(now);
        }
        self.receive.skip(end);
        self.space.best_effort.skipped(next - self.space.receive_origin, end - next);
        self.events.holes = true;
        self.events.readable = true;
        self.inbound.notify();
        self.acks.hasten();
        self.tell_records();
        if self.inbound.fin_at() == Some(self.receive.next()) {
            self.peer_finished();
        }
    }

    /// Gives up the first segment in flight after its maximum transmissions. A FIN is never given
    /// up.
    pub(super) fn give_up(&mut self, now: Time) {
        let Some(bets) = self.bets() else { return };
        let before = self.snd.una();
        loop {
            // After data was given up, the peer's acknowledgment does not advance: the data it
            // reports beyond it counts as delivered.
            let held = self.board.held_from(self.snd.una()).min(self.fin());
            if self.space.goes_on && held > self.snd.una() {
                self.pass(now, held);
            }
            let Some(end) = self.board.worn(bets.transmissions, self.fin()) else { break };
            // Something is in flight, so the SYN is acknowledged.
            let offset = self.snd.una() - self.snd.iss() - 1;
            if !self.space.best_effort.may_give_up(&bets, offset) {
                break;
            }
            self.space.best_effort.gave_up(offset, end - self.snd.una());
            self.space.goes_on = true;
            self.events.holes = true;
            self.pass(now, end);
        }
        if self.snd.una() > before {
            self.arm_retransmission(now);
            self.make_room();
        }
    }

    /// Passes over unacknowledged data before `end`.
    fn pass(&mut self, now: Time, end: u64) {
        self.end_failed_probe(now, self.snd.una());
        self.board.acknowledge(now, end, &mut Delivery::default());
        self.snd.pass(end);
        self.send.release(end);
        self.space.marks.release(end);
    }

    /// Takes the data skipped since the last call.
    pub(crate) fn take_holes(&mut self) -> Holes {
        self.space.best_effort.take()
    }
}
