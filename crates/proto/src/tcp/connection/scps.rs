//! What a connection does of SCPS-TP (CCSDS 714.0-B-2).

use std::time::Duration;

use engine::{PathId, Time};

use super::ack::News;
use super::segment::ReceivedOptions;
use super::{Connection, Purpose};
use crate::tcp::indication::RequestError;
use crate::tcp::recovery::Phase;
use crate::tcp::scoreboard::Delivery;
use crate::tcp::scps::{
    Agreed, BestEffort, Bets, Ends, Holes, LossCause, Marks, RateControl, SnackForm, SnackOption,
    Snacking, holes,
};

/// The first pause between two questions whether a link is back.
const PROBE_FIRST: Duration = Duration::from_secs(1);
/// The longest.
const PROBE_MOST: Duration = Duration::from_secs(60);

/// The link is away.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Suspension {
    since: Time,
    /// The next question, and the pause before it.
    probe: Option<(Time, Duration)>,
    /// It was asked: what comes now may be the answer, and not what was on its way before.
    probed: bool,
}

/// A route whose connections share a rate: by its interface, and by its number in the configuration
/// if it has one.
pub(crate) type RateKey = (PathId, Option<u32>);

/// What a connection does of SCPS-TP, and what comes of it.
#[derive(Debug, Default)]
pub(crate) struct Space {
    /// When the connection is given up, where time-outs do not count.
    pub(super) give_up_at: Option<Time>,
    /// What both sides do.
    pub(super) agreed: Option<Agreed>,
    /// What holes are counted in.
    pub(super) unit: u64,
    pub(super) snacking: Snacking,
    /// The number by which this side calls the connection in compressed headers; 0: none.
    pub(crate) own_number: u8,
    /// What came last of what compressed headers may leave out: window and acknowledgment, time
    /// stamps.
    pub(crate) last_header: ((u16, u32), (u32, u32)),
    /// Until when the peer's word holds that data is lost to corruption, and when that last happened
    /// here.
    pub(super) corrupted_until: Option<Time>,
    pub(crate) corrupted_at: Option<Time>,
    pub(super) suspended: Option<Suspension>,
    /// Echoes of older time stamps are not believed.
    pub(super) stamps_from: Option<u32>,
    pub(super) marks: Marks,
    pub(super) ends: Ends,
    pub(super) best_effort: BestEffort,
    /// The sender is ahead of the peer's acknowledgment, for it has given something up.
    pub(super) goes_on: bool,
    /// The first byte of the peer's stream.
    pub(super) receive_origin: u64,
    /// Bytes that the route's rate lets go now, what each packet costs beyond its own, and what a
    /// packet would have cost that had to wait.
    pub(crate) credit: Option<u64>,
    pub(crate) overhead: usize,
    pub(crate) starved: Option<u64>,
    /// Whose rate that is.
    pub(crate) rate_key: Option<RateKey>,
}

impl Space {
    pub(super) fn new(own_number: u8) -> Self {
        Self { own_number, ..Self::default() }
    }
}

impl Connection {
    /// The form of SNACK that both sides use.
    pub(super) fn snack(&self) -> Option<SnackForm> {
        self.space.agreed.and_then(|agreed| agreed.snack)
    }

    /// The number by which the peer calls this connection in compressed headers.
    pub(crate) fn peer_number(&self) -> Option<u8> {
        self.space.agreed.and_then(|agreed| agreed.compression)
    }

    /// Whether headers are compressed now. When the FIN is sent the peer may have closed, and no
    /// longer know the number: a whole header is answered then.
    pub(super) fn compresses(&self) -> bool {
        self.peer_number().is_some() && !self.fin_sent()
    }

    /// Bytes of data in a segment with a whole header.
    pub(super) fn whole_mss(&self) -> u64 {
        // 20 bytes in place of 8, or 32 in place of 16.
        let longer = match (self.peer_number().is_some(), self.stamps.are_agreed()) {
            (false, _) => 0,
            (true, false) => 12,
            (true, true) => 16,
        };
        self.mss().saturating_sub(longer).max(1)
    }

    /// The rate that this connection asks for its route.
    pub(crate) fn rate_control(&self) -> Option<RateControl> {
        self.options.scps.and_then(|scps| scps.rate)
    }

    /// Whether losses are put down to corruption now.
    pub(super) fn blames_corruption(&self, now: Time) -> bool {
        let is_reported = self.space.corrupted_until.is_some_and(|until| now < until);
        is_reported || self.options.scps.is_some_and(|scps| scps.assume == LossCause::Corruption)
    }

    /// The peer sees data lost to corruption.
    pub(super) fn corruption_reported(&mut self, now: Time) {
        if self.space.agreed.is_some()
            && let Some(scps) = self.options.scps
        {
            self.space.corrupted_until = Some(now + scps.dwell);
        }
    }

    /// Whether the peer is to hear that data is lost to corruption here.
    pub(super) fn tells_corruption(&self, now: Time) -> bool {
        let dwell = self.options.scps.map_or(Duration::ZERO, |scps| scps.dwell);
        self.space.agreed.is_some() && self.space.corrupted_at.is_some_and(|at| now < at + dwell)
    }

    /// How long it takes until a connection is given up whose time-out doubles each time: one whose
    /// time-out stays has as long, or a short pause would end it.
    pub(super) fn patience(&self) -> Duration {
        let (base, most) = (self.rtt.base(), self.options.timeouts.max);
        // 2^31 times the least time-out is beyond any bound.
        let doubled =
            (0..self.options.retries.min(31)).map(|n| base.saturating_mul(1 << n).min(most));
        let rest = most.saturating_mul(self.options.retries.saturating_sub(31));
        doubled.fold(rest, Duration::saturating_add)
    }

    /// Whether the route's rate lets a packet of this length go.
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

    /// The hole that an acknowledgment tells of, if it is time for one.
    pub(super) fn snack_to_say(&mut self, now: Time) -> Option<SnackOption> {
        let form = self.snack()?;
        let settings = self.options.scps?.snack?;
        let how = (form, self.space.unit, self.rtt.smoothed());
        self.space.snacking.next(now, &settings, how, &self.receive)
    }

    /// Data has arrived beyond a hole.
    pub(super) fn note_hole(&mut self, now: Time) {
        self.arm_skip(now);
        let Some(snack) = self.options.scps.and_then(|scps| scps.snack) else { return };
        self.space.snacking.arrived(now, &snack, self.receive.highest());
        self.arm_snack();
    }

    /// Sees to it that a hole is told of when its delay is over.
    fn arm_snack(&mut self) {
        let snack = self.options.scps.and_then(|scps| scps.snack);
        self.timers.snack_at = snack
            .filter(|_| self.snack().is_some() && self.receive.has_gaps())
            .and_then(|snack| self.space.snacking.due_at(&snack));
    }

    /// The delay of a hole is over.
    pub(super) fn snack_due(&mut self, now: Time) {
        if let Some(snack) = self.options.scps.and_then(|scps| scps.snack) {
            self.space.snacking.ripen(now, &snack);
        }
        if self.receive.has_gaps() {
            self.acks.owe();
        }
        self.arm_snack();
    }

    /// Takes in what the peer says it lacks. Returns bytes newly held for lost.
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
        // What is sent again takes a round trip to be heard of, and a little more if that varies.
        let embargo = self.rtt.smoothed().unwrap_or_default() + self.rtt.variation();
        let mut lost = 0;
        for (start, end, missing) in holes(ack, self.space.unit, (offset, size, bits)) {
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

    /// Losses are told by the peer; duplicates only say how much has left, where no bits say it.
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

    /// Whether a loss is sent again at once, whatever the congestion window: the peer has told of it,
    /// and the rate holds it back if anything does.
    pub(super) fn repairs_at_once(&self) -> bool {
        self.snack().is_some() && !matches!(self.losses.phase(), Phase::Restarted { .. })
    }

    pub(crate) fn suspends(&self) -> bool {
        self.options.scps.is_some_and(|scps| scps.suspends) && self.is_synchronized()
    }

    pub(crate) fn is_suspended(&self) -> bool {
        self.space.suspended.is_some()
    }

    /// The link is away: no timer runs, and nothing is sent but a question now and then whether it is
    /// back, if it is not this host's own link that would carry it.
    pub(crate) fn suspend(&mut self, now: Time, asks: bool) {
        if self.space.suspended.is_some() {
            return;
        }
        let probe = asks.then_some((now + PROBE_FIRST, PROBE_FIRST));
        self.space.suspended = Some(Suspension { since: now, probe, probed: false });
    }

    /// This host's own link is away.
    pub(crate) fn suspend_own(&mut self, now: Time) {
        if self.suspends() {
            self.suspend(now, false);
        }
    }

    /// When to ask whether the link is back.
    pub(super) fn probe_at(&self) -> Option<Time> {
        self.space.suspended.and_then(|suspension| suspension.probe).map(|(at, _)| at)
    }

    /// Asks whether the link is back.
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

    /// A compressed header that leaves out window and acknowledgment means those of the SYN at first. A
    /// window of a SYN is not shifted, and others are.
    pub(super) fn note_syn_header(&mut self, window: u16) {
        let acknowledgment = crate::tcp::seq::wire(self.snd.iss() + 1);
        self.space.last_header.0 = (window >> self.snd.shift(), acknowledgment);
    }

    /// Something of the peer has come.
    pub(super) fn peer_is_back(&mut self, now: Time) {
        if self.space.suspended.is_some_and(|suspension| suspension.probed) {
            self.resume(now);
        }
    }

    /// The link is back: everything goes on as if the time had not passed. What was in flight is
    /// probably lost; its first segment and its last are sent to find out.
    pub(crate) fn resume(&mut self, now: Time) {
        let Some(suspension) = self.space.suspended.take() else { return };
        let away = now.since(suspension.since);
        self.timers.put_off(away);
        self.control.put_off(away);
        self.liveness.put_off(away);
        // What left before says nothing of the round trip.
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

    /// A record ends with what was written last.
    ///
    /// # Errors
    /// When the peer does not take ends of records, there are too many, or the byte has left.
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

    /// Bytes from what is read next to the end of its record, if that is there.
    pub(crate) fn record(&self) -> Option<u64> {
        let end = self.space.ends.first().filter(|end| *end <= self.receive.next())?;
        Some(end - self.receive.start())
    }

    /// A record ends before `at`, says the peer.
    pub(super) fn record_ends(&mut self, at: u64) {
        let most = self.options.scps.map_or(0, |scps| scps.records);
        let known = self.receive.start() < at && at <= self.inbound.advertised();
        if self.space.agreed.is_some() && known && !self.space.ends.add(at, most) {
            self.counts.records_dropped += 1;
        }
    }

    /// Tells the user of records that can be read whole.
    pub(super) fn tell_records(&mut self) {
        self.events.record |= self.space.ends.tell(self.receive.next());
    }

    fn bets(&self) -> Option<Bets> {
        self.options
            .scps
            .and_then(|scps| scps.bets)
            .filter(|_| self.space.agreed.is_some_and(|s| s.bets))
    }

    /// Waits for the hole at which the user has arrived.
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

    /// The hole has been waited for long enough.
    pub(super) fn skip_hole(&mut self, now: Time) {
        let Some(bets) = self.bets() else { return };
        let next = self.receive.next();
        let there = self.receive.holes_from(next).next().map(|(_, end)| end);
        let Some(end) = there.or(self.inbound.fin_at()).filter(|end| *end > next) else { return };
        if !self.space.best_effort.may_skip(&bets) {
            // The user has to ask for what there is first.
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

    /// Gives up the first segment in flight if it was sent often enough. A FIN is never given up.
    pub(super) fn give_up(&mut self, now: Time) {
        let Some(bets) = self.bets() else { return };
        let before = self.snd.una();
        loop {
            // Once something is given up the peer's acknowledgment stands still: what it says it has
            // behind that is done with.
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

    /// Is done with what lies before `end`, which the peer has not acknowledged.
    fn pass(&mut self, now: Time, end: u64) {
        self.end_failed_probe(now, self.snd.una());
        self.board.acknowledge(now, end, &mut Delivery::default());
        self.snd.pass(end);
        self.send.release(end);
        self.space.marks.release(end);
    }

    /// What was left out since the user asked last.
    pub(crate) fn take_holes(&mut self) -> Holes {
        self.space.best_effort.take()
    }
}
