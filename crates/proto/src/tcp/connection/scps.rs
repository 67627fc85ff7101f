//! What a connection does of SCPS-TP (CCSDS 714.0-B-2).

use std::time::Duration;

use engine::{PathId, Time};

use super::Connection;
use super::ack::News;
use super::segment::Said;
use crate::tcp::recovery::Phase;
use crate::tcp::scoreboard::Delivery;
use crate::tcp::scps::{Agreed, LossCause, RateControl, SnackForm, SnackSaid, Snacking, holes};

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
    /// The recovery under way is from corruption: the congestion control does not know of it.
    pub(super) spared: bool,
    /// Octets that the route's rate lets go now, what each packet costs beyond its own, and what a
    /// packet would have cost that had to wait.
    pub(crate) credit: Option<u64>,
    pub(crate) overhead: usize,
    pub(crate) starved: Option<u64>,
    /// Whose rate that is.
    pub(crate) rate_key: Option<RateKey>,
}

impl Connection {
    /// The form of SNACK that both sides use.
    pub(super) fn snack(&self) -> Option<SnackForm> {
        self.space.agreed.and_then(|agreed| agreed.snack)
    }

    /// The rate that this connection asks for its route.
    pub(crate) fn rate_control(&self) -> Option<RateControl> {
        self.options.scps.and_then(|scps| scps.rate)
    }

    /// Whether losses are put down to corruption now.
    pub(super) fn blames_corruption(&self) -> bool {
        self.options.scps.is_some_and(|scps| scps.assume == LossCause::Corruption)
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
    pub(super) fn snack_to_say(&mut self, now: Time) -> Option<SnackSaid> {
        let form = self.snack()?;
        let settings = self.options.scps?.snack?;
        let how = (form, self.space.unit, self.rtt.smoothed());
        self.space.snacking.next(now, &settings, how, &self.receive)
    }

    /// Data has arrived beyond a hole.
    pub(super) fn hole_seen(&mut self, now: Time) {
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
            self.owe_ack();
        }
        self.arm_snack();
    }

    /// Takes in what the peer says it lacks. Returns octets newly held for lost.
    pub(super) fn take_snack(
        &mut self,
        now: Time,
        ack: u64,
        said: &Said<'_>,
        delivery: &mut Delivery,
    ) -> u64 {
        let (Some(form), Some(snack)) = (self.snack(), said.snack) else { return 0 };
        self.counts.snacks.1 += 1;
        let (offset, size, bits) = snack;
        let bits = if form == SnackForm::Bits { bits } else { &[] };
        // What is sent again takes a round trip to be heard of, and a little more if that varies.
        let embargo = self.rtt.smoothed().unwrap_or_default() + self.rtt.variation();
        let mut lost = 0;
        for (start, end, missing) in holes(ack, self.space.unit, (offset, size, bits)) {
            let (start, end) = (start.max(self.una), end.min(self.nxt));
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
            match &self.phase {
                Phase::Open | Phase::Reduced { .. } => self.board.clear_phantom(),
                Phase::Recovery(recovery) if self.una < recovery.point => {
                    self.board.take_phantom(news.delivery.acked.saturating_sub(self.mss()));
                }
                Phase::Recovery(_) | Phase::Restarted { .. } => {}
            }
        }
        news.holes
    }

    /// Whether a loss is sent again at once, whatever the congestion window: the peer has told of it,
    /// and the rate holds it back if anything does.
    pub(super) fn repairs_at_once(&self) -> bool {
        self.snack().is_some() && !matches!(self.phase, Phase::Restarted { .. })
    }
}
