//! Data that goes again while a thin return link delays the reports (see
//! [`thin_return::fill`](crate::thin_return::fill)).
//!
//! The first sign of a thin return link is a report that comes late although nothing was lost.
//! One that was lost comes late, too, by a reply timeout for each copy that was lost. So the sign
//! is a delay of reports in a row that only three losses would explain ([`Lateness`]).

use std::time::Duration;

use engine::Time;
use wire::ltp::Report;

use super::{Phase, Sender};
use crate::ltp::core::Core;
use crate::ltp::supply::Supply;
use crate::path::{Class, Path};
use crate::storage::Storage as _;
use crate::thin_return::fill::Replies;

/// Shorter delays of a report, beside the light time, are those of hosts and queues.
const LATE_LEAST: Duration = Duration::from_millis(100);

/// Longer delays are those of outages.
const LATE_MOST: Duration = Duration::from_secs(2);

/// Packets that may wait for a slow forward link, and delay nothing else.
const QUEUED: u64 = 8;

/// Losses in a row that are less likely than a thin return link.
const LOSSES: u32 = 3;

/// Late reports in a row, none of them requested.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Lateness {
    /// Losses that would explain them.
    losses: u32,
    least: Duration,
    /// Whether they were more than losses explain.
    is_sure: bool,
}

impl Lateness {
    /// Takes note of a report that came so late, where a reply that was lost is retransmitted
    /// after `timeout`; returns the delay of replies as soon as losses do not explain it.
    fn add(&mut self, late: Duration, timeout: Duration) -> Option<Duration> {
        if self.is_sure {
            return None;
        }
        if !(LATE_LEAST..LATE_MOST).contains(&late) {
            *self = Self::default();
            return None;
        }
        let losses = late.as_nanos() / timeout.as_nanos().max(1);
        let losses = u32::try_from(losses.max(1)).unwrap_or(u32::MAX);
        let losses = self.losses.saturating_add(losses);
        let least = if self.losses == 0 { late } else { self.least.min(late) };
        *self = Self { losses, least, is_sure: losses >= LOSSES };
        self.is_sure.then_some(least)
    }
}

impl Sender {
    /// Whether parts may go again unrequested: of a file, by a path that the session has for
    /// itself.
    fn may_fill(&self, core: &Core) -> bool {
        let is_alone = core.sessions == 1 && self.flow.is_none() && self.window.is_none();
        is_alone && self.phase == Phase::Sending && matches!(self.source, Some(Supply::Source(_)))
    }

    fn path<'a>(&self, core: &'a Core) -> Option<&'a Path> {
        self.base.seat.path.and_then(|id| core.kernel.paths.get(&id))
    }

    fn replies<'a>(&self, path: &'a Path) -> Replies<'a> {
        Replies {
            path,
            segment: self.room(path.mtu().max(64), self.content, None).unwrap_or(1),
            is_known: self.reports_seen.covered() > 0,
            // Checkpoints are retransmitted, and an outage is silent, too.
            silence: Duration::ZERO,
        }
    }

    /// Begins a pass over what no report claimed, if reports are delayed and nothing else is to
    /// be sent.
    pub(super) fn begin_fill(&mut self, core: &mut Core) {
        let Some(source) = self.source.as_ref().filter(|source| source.at_end()) else { return };
        let is_busy = source.has_repairs() || self.description_due || self.is_filling;
        let is_described = !self.described || !self.description.is_empty();
        if is_busy || !is_described || !self.lateness.is_sure || !self.may_fill(core) {
            return;
        }
        let Some(path) = self.path(core) else { return };
        let (replies, sent) = (self.replies(path), source.sent());
        let most = self.peer.remote.repair_copies.saturating_sub(1);
        if self.fill.begin(&replies, &self.acked, sent.min(self.red), most) {
            self.is_filling = true;
            self.base.want(&mut core.kernel, Class::Repair);
        }
    }

    /// Queues the next part of a pass. Behind the last one, the end asks for a report on all.
    pub(super) fn go_on_filling(&mut self, core: &mut Core, source: &mut Supply) {
        if !self.is_filling {
            return;
        }
        let most = core.kernel.room().read_piece as u64;
        let Some(path) = self.path(core) else { return };
        let (replies, sent) = (self.replies(path), source.sent().min(self.red));
        let part = self.fill.next_part(&replies, &self.acked, sent, most);
        source.choose_copies(1, 1, None);
        if let Some((start, end)) = part {
            source.repeat(start, end, core.config.limits.gaps);
        } else {
            self.is_filling = false;
            self.ask_at(core, source, self.red);
        }
        source.read_repairs(core, self.base.seat.handle);
    }

    /// Whether what a report lacks goes again without a repair: in a pass under way, or in the one
    /// that follows the first transmission.
    pub(super) fn fills(&mut self, core: &Core) -> bool {
        if !self.lateness.is_sure || !self.may_fill(core) {
            return false;
        }
        let (Some(path), Some(source)) = (self.path(core), self.source.as_ref()) else {
            return false;
        };
        if !source.at_end() {
            return true;
        }
        let (replies, sent) = (self.replies(path), source.sent().min(self.red));
        self.is_filling = self.is_filling && self.fill.take_over(&replies, sent);
        self.is_filling
    }

    /// Takes note of how late a report is that no checkpoint requested: what it covers left so
    /// long ago.
    pub(super) fn note_lateness(&mut self, core: &mut Core, now: Time, report: &Report<'_>) {
        if report.checkpoint != 0 || !self.may_fill(core) {
            return;
        }
        let (Some(path), Some(source)) = (self.path(core), self.source.as_ref()) else { return };
        let Some(light) = path.light().filter(|_| path.is_paced()) else { return };
        let segment = self.segment(core);
        let packets = source.sent().saturating_sub(report.upper) / segment as u64;
        let packets = u32::try_from(packets.saturating_sub(QUEUED)).unwrap_or(u32::MAX);
        let since_end = self.ended_at.map_or(Duration::ZERO, |at| now.since(at));
        let ago = path.time_of(segment).saturating_mul(packets) + since_end;
        let timeout = light + path.rtt.margin();
        if let Some(late) = self.lateness.add(ago.saturating_sub(light), timeout) {
            self.base.seat.sample(&mut core.kernel.paths, light + late);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_that_losses_explain_are_not_late() {
        let add = |lateness: &mut Lateness, late, timeout| {
            let [late, timeout] = [late, timeout].map(Duration::from_millis);
            lateness.add(late, timeout).map(|late| late.as_millis())
        };
        let mut lateness = Lateness::default();
        // 250 ms of light: one report that was lost comes 536 ms late.
        let far = [540, 0, 540, 5000, 300, 540, 350].map(|late| add(&mut lateness, late, 536));
        assert_eq!(far, [None, None, None, None, None, None, Some(300)]);
        let mut lateness = Lateness::default();
        let near = [80, 60, 200].map(|late| add(&mut lateness, late, 26));
        assert_eq!(near, [None, None, Some(200)]);
    }
}
