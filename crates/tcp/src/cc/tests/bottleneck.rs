//! Connection over one bottleneck, packet by packet, in virtual time: enough of TCP to compare
//! controls with their specifications.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use engine::{Rng, Time};

use super::super::{Ack, Cause, Congestion, Control, RateSample, Recovery, Sent, Timeout};
use super::MSS;

/// Losses besides queue overflow.
#[derive(Clone, Copy, Debug)]
pub(super) enum Losses {
    None,
    /// The packet of the first number, and each n-th after it.
    Every(u64, u64),
    /// Each packet with this probability.
    Random(f64),
    /// The packets of these numbers.
    Numbers(&'static [u64]),
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Path {
    /// Rate in bytes per second.
    pub(super) rate: f64,
    /// Round trip without a queue.
    pub(super) rtt: Duration,
    /// Growth of the round trip, in seconds per second.
    pub(super) rtt_growth: f64,
    /// Packets that the queue has room for.
    pub(super) queue: f64,
    /// Queue length, in packets, above which it marks packets.
    pub(super) marks_above: Option<f64>,
    pub(super) losses: Losses,
}

impl Path {
    /// Path without a bottleneck and without losses.
    pub(super) fn wide(rtt_ms: u64) -> Self {
        Self {
            rate: 1e12,
            rtt: Duration::from_millis(rtt_ms),
            rtt_growth: 0.0,
            queue: f64::INFINITY,
            marks_above: None,
            losses: Losses::None,
        }
    }

    /// Bandwidth-delay product in packets.
    pub(super) fn bdp(&self) -> f64 {
        self.rate * self.rtt.as_secs_f64() / MSS as f64
    }
}

/// Observation at an ACK.
#[derive(Clone, Copy, Debug)]
pub(super) struct Moment {
    pub(super) at: Time,
    /// In packets.
    pub(super) cwnd: f64,
    pub(super) queued: f64,
    pub(super) slow_start: bool,
    pub(super) in_recovery: bool,
    pub(super) pacing_bps: u64,
}

#[derive(Clone, Copy, Debug)]
struct Packet {
    sent: Time,
    prior_delivered: u64,
    prior_delivered_at: Time,
    first_sent: Time,
    is_marked: bool,
}

/// Recovery: losses of packets before `point` belong to it; it ends with the ACK of `end`, which
/// replaces the last of them.
#[derive(Clone, Copy, Debug)]
struct Episode {
    point: u64,
    end: u64,
    /// Whether a later packet was lost, too: another recovery follows.
    is_followed: bool,
}

#[derive(Debug)]
pub(super) struct Connection {
    path: Path,
    rng: Rng,
    pub(super) control: Box<dyn Control>,
    pub(super) now: Time,
    next: u64,
    unresolved: BTreeMap<u64, Packet>,
    acks: VecDeque<(Time, u64)>,
    line_free: Time,
    paced_until: Time,
    delivered: u64,
    delivered_at: Time,
    first_sent: Time,
    round_ends: u64,
    recovery: Option<Episode>,
    is_fast_recovery: bool,
    min_rtt: Duration,
    pub(super) trace: Vec<Moment>,
    /// Packets dropped by the queue, packets lost, congestion events and timeouts.
    pub(super) dropped: u64,
    pub(super) lost: u64,
    pub(super) congestions: u64,
    pub(super) timeouts: u64,
}

impl Connection {
    pub(super) fn new(path: Path, mut control: Box<dyn Control>) -> Self {
        control.on_established(Time::ZERO, Some(path.rtt));
        Self {
            path,
            rng: Rng::new(7, "bottleneck"),
            control,
            now: Time::ZERO,
            next: 0,
            unresolved: BTreeMap::new(),
            acks: VecDeque::new(),
            line_free: Time::ZERO,
            paced_until: Time::ZERO,
            delivered: 0,
            delivered_at: Time::ZERO,
            first_sent: Time::ZERO,
            round_ends: 0,
            recovery: None,
            is_fast_recovery: false,
            min_rtt: path.rtt,
            trace: Vec::new(),
            dropped: 0,
            lost: 0,
            congestions: 0,
            timeouts: 0,
        }
    }

    /// Sends as much as allowed for this time.
    pub(super) fn run(&mut self, seconds: f64) {
        let end = self.now + Duration::from_secs_f64(seconds);
        loop {
            let send = self.next_send();
            let ack = self.acks.front().map(|(at, _)| *at);
            let next = send.into_iter().chain(ack).min();
            if next.is_some_and(|next| next > end) || (next.is_none() && self.now > end) {
                self.now = end;
                return;
            }
            match next {
                Some(at) if ack == Some(at) => {
                    self.now = at;
                    self.take_ack();
                }
                Some(at) => {
                    self.now = at;
                    self.send();
                }
                None => self.time_out(),
            }
        }
    }

    /// Sends nothing for this time; packets in flight are acknowledged.
    pub(super) fn pause(&mut self, seconds: f64) {
        let end = self.now + Duration::from_secs_f64(seconds);
        while let Some((at, _)) = self.acks.front().filter(|(at, _)| *at <= end) {
            self.now = *at;
            self.take_ack();
        }
        self.now = end;
    }

    fn in_flight(&self) -> u64 {
        self.unresolved.len() as u64 * MSS
    }

    fn next_send(&self) -> Option<Time> {
        let fits = self.in_flight() + MSS <= self.control.cwnd();
        fits.then(|| self.paced_until.max(self.now))
    }

    fn decide_loss(&mut self, number: u64) -> bool {
        match self.path.losses {
            Losses::None => false,
            Losses::Every(first, n) => number >= first && (number - first).is_multiple_of(n),
            Losses::Random(p) => self.rng.chance(p),
            Losses::Numbers(numbers) => numbers.contains(&number),
        }
    }

    fn queued(&self) -> f64 {
        self.line_free.since(self.now).as_secs_f64() * self.path.rate / MSS as f64
    }

    fn send(&mut self) {
        let in_flight = self.in_flight();
        let sent = Sent { bytes: MSS, in_flight, app_limited: false, retransmission: false };
        self.control.on_sent(self.now, &sent);
        if in_flight == 0 {
            (self.first_sent, self.delivered_at) = (self.now, self.now);
        }
        let number = self.next;
        self.next += 1;
        let is_marked = self.path.marks_above.is_some_and(|above| self.queued() > above);
        let packet = Packet {
            sent: self.now,
            prior_delivered: self.delivered,
            prior_delivered_at: self.delivered_at,
            first_sent: self.first_sent,
            is_marked,
        };
        self.unresolved.insert(number, packet);
        if let Some(bps) = self.control.pacing_rate_bps() {
            let gap = Duration::from_secs_f64(MSS as f64 * 8.0 / bps as f64);
            self.paced_until = self.paced_until.max(self.now) + gap;
        }
        if self.queued() + 1.0 > self.path.queue {
            self.dropped += 1;
        } else if !self.decide_loss(number) {
            let took = Duration::from_secs_f64(MSS as f64 / self.path.rate);
            self.line_free = self.line_free.max(self.now) + took;
            let grown = self.path.rtt_growth * self.line_free.as_secs_f64();
            let rtt = self.path.rtt + Duration::from_secs_f64(grown);
            self.acks.push_back((self.line_free + rtt, number));
        }
    }

    /// Marks packets sent at least three packets before this one as lost.
    fn find_lost(&mut self, acked: u64) -> u64 {
        let lost: Vec<u64> =
            self.unresolved.range(..acked.saturating_sub(2)).map(|(number, _)| *number).collect();
        for number in &lost {
            self.unresolved.remove(number);
            if let Some(episode) = &mut self.recovery {
                if *number < episode.point {
                    episode.end = self.next;
                } else {
                    episode.is_followed = true;
                }
            }
        }
        self.lost += lost.len() as u64;
        lost.len() as u64
    }

    fn rate_sample(&mut self, packet: &Packet) -> Option<RateSample> {
        let send = packet.sent.since(packet.first_sent);
        let interval = send.max(self.now.since(packet.prior_delivered_at));
        self.first_sent = packet.sent;
        let delivered = self.delivered - packet.prior_delivered;
        let prior_delivered = packet.prior_delivered;
        (!interval.is_zero()).then_some(RateSample {
            delivered,
            interval,
            prior_delivered,
            app_limited: false,
        })
    }

    fn take_ack(&mut self) {
        let Some((_, number)) = self.acks.pop_front() else { return };
        // Given up by a timeout.
        let prior_in_flight = self.in_flight();
        let Some(packet) = self.unresolved.remove(&number) else { return };
        self.delivered += MSS;
        self.delivered_at = self.now;
        let rate = self.rate_sample(&packet);
        let lost = self.find_lost(number);
        let rtt = self.now.since(packet.sent);
        self.min_rtt = self.min_rtt.min(rtt);
        self.judge(number, lost, packet.is_marked, prior_in_flight);
        let round = number >= self.round_ends;
        if round {
            self.round_ends = self.next;
        }
        let ack = Ack {
            acked: MSS,
            sacked: 0,
            newly_delivered: MSS,
            delivered: self.delivered,
            lost: lost * MSS,
            rtt: Some(rtt),
            srtt: Some(rtt),
            min_rtt: Some(self.min_rtt),
            prior_in_flight,
            in_flight: self.in_flight(),
            round,
            rate,
            in_recovery: self.is_fast_recovery,
            cwnd_limited: true,
            ecn_echo: packet.is_marked,
        };
        self.control.on_ack(self.now, &ack);
        self.note();
    }

    /// Reports the end of a recovery, and congestion once per window.
    fn judge(&mut self, number: u64, lost: u64, is_marked: bool, flight_size: u64) {
        let mut is_lossy = lost > 0;
        if let Some(episode) = self.recovery.filter(|episode| number >= episode.end) {
            self.recovery = None;
            self.is_fast_recovery = false;
            self.control.on_recovered(self.now);
            is_lossy |= episode.is_followed;
        }
        let cause = match (is_lossy, is_marked) {
            (true, _) => Cause::Loss,
            (false, true) => Cause::Ecn,
            (false, false) => return,
        };
        if self.recovery.is_none() {
            self.congestions += 1;
            let congestion = Congestion { cause, flight_size, cwnd_limited: true };
            self.control.on_congestion(self.now, &congestion);
            self.begin_episode();
            self.is_fast_recovery = self.control.recovery() != Recovery::Restart;
            if self.control.recovery() == Recovery::Restart {
                // Everything is retransmitted, including parts that arrived.
                self.unresolved.clear();
            }
        }
    }

    fn time_out(&mut self) {
        self.now += Duration::from_secs(1);
        self.timeouts += 1;
        let timeout = Timeout { flight_size: self.in_flight(), is_first: true };
        self.lost += self.unresolved.len() as u64;
        self.unresolved.clear();
        self.control.on_timeout(self.now, &timeout);
        self.begin_episode();
        self.is_fast_recovery = false;
    }

    fn begin_episode(&mut self) {
        self.recovery = Some(Episode { point: self.next, end: self.next, is_followed: false });
    }

    fn note(&mut self) {
        let packets = |bytes: u64| bytes as f64 / MSS as f64;
        self.trace.push(Moment {
            at: self.now,
            cwnd: packets(self.control.cwnd()),
            queued: self.queued(),
            slow_start: self.control.cwnd() < self.control.ssthresh(),
            in_recovery: self.recovery.is_some(),
            pacing_bps: self.control.pacing_rate_bps().unwrap_or(0),
        });
    }

    /// Observations from `from` to `to`, in seconds.
    pub(super) fn between(&self, from: f64, to: f64) -> impl Iterator<Item = &Moment> {
        let inside = move |moment: &&Moment| (from..to).contains(&moment.at.as_secs_f64());
        self.trace.iter().filter(inside)
    }

    /// Packets delivered per second from `from` to `to`, in seconds.
    pub(super) fn goodput(&self, from: f64, to: f64) -> f64 {
        self.between(from, to).count() as f64 / (to - from)
    }
}
