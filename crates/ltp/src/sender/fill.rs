//! Retransmission of data while a thin return link delays the reports (see
//! [`thin_return::fill`](session::thin_return::fill)).

use std::time::Duration;

use session::path::{Class, Path};
use session::storage::Storage as _;
use session::thin_return::fill::{Fill, Replies};

use super::{Phase, Sender};
use crate::core::Core;
use crate::supply::Supply;

/// Ratio of the light time to the return link's transmission time above which a reply's delay is
/// mostly light time.
const LIGHT_MOST: u32 = 8;

/// Passes over unclaimed data.
#[derive(Debug, Default)]
pub(super) struct Filling {
    passes: Fill,
    /// Whether a pass is under way.
    is_under_way: bool,
}

impl Filling {
    /// Notes a report with new claims.
    pub(super) fn news(&mut self) {
        self.passes.news();
    }
}

impl Sender {
    /// Whether unrequested parts may be retransmitted: for a file on a path used by this session
    /// alone. After a restart a report has to show what is there.
    fn may_fill(&self, core: &Core) -> bool {
        let is_alone = core.sessions == 1 && self.flow.is_none() && self.window.is_none();
        let is_known = !self.is_resumed || self.reports.any();
        is_alone
            && is_known
            && self.phase == Phase::Sending
            && matches!(self.source, Some(Supply::Source(_)))
    }

    /// Whether the return link is known to be thin. Where a reply's delay is mostly light time,
    /// copies of requested data are worth more.
    fn has_thin_return(&self, path: &Path) -> bool {
        let Some(back) = path.thin_return() else { return false };
        let light = path.light().unwrap_or_default();
        !back.is_zero() && back >= light / LIGHT_MOST
    }

    fn path<'a>(&self, core: &'a Core) -> Option<&'a Path> {
        self.base.seat.path.and_then(|id| core.shared.paths.get(&id))
    }

    fn replies<'a>(&self, path: &'a Path) -> Replies<'a> {
        Replies {
            path,
            segment: self.room(path.mtu().max(64), self.layout.content, None).unwrap_or(1),
            is_known: self.reports.any(),
            // Checkpoints are retransmitted, and an outage is silent, too.
            silence: Duration::ZERO,
        }
    }

    /// Starts a pass over unclaimed data, if reports are delayed and nothing else is to be sent.
    pub(super) fn begin_fill(&mut self, core: &mut Core) {
        let Some(source) = self.source.as_ref().filter(|source| source.at_end()) else { return };
        let is_busy =
            source.has_repairs() || self.layout.description_due || self.filling.is_under_way;
        if is_busy || !self.layout.is_description_sent() || !self.may_fill(core) {
            return;
        }
        let Some(path) = self.path(core).filter(|path| self.has_thin_return(path)) else { return };
        let (replies, sent) = (self.replies(path), source.sent());
        let most = self.peer.remote.repair_copies.saturating_sub(1);
        if self.filling.passes.begin(
            &replies,
            self.reports.claimed(),
            sent.min(self.layout.red),
            most,
        ) {
            self.filling.is_under_way = true;
            self.base.want(&mut core.shared, Class::Repair);
        }
    }

    /// Queues the next part of a pass. After the last one, a checkpoint at the end requests a
    /// report on everything.
    pub(super) fn go_on_filling(&mut self, core: &mut Core, source: &mut Supply) {
        if !self.filling.is_under_way {
            return;
        }
        let most = core.shared.room().read_piece as u64;
        let Some(path) = self.path(core) else { return };
        let (replies, sent) = (self.replies(path), source.sent().min(self.layout.red));
        let part = self.filling.passes.next_part(&replies, self.reports.claimed(), sent, most);
        source.choose_copies(1, 1, None);
        if let Some((start, end)) = part {
            source.repeat(start, end, core.config.limits.gaps);
        } else {
            self.filling.is_under_way = false;
            self.ask_at(core, source, self.layout.red);
        }
        source.read_repairs(core, self.base.seat.handle);
    }

    /// Whether missing data is retransmitted without a repair: in the pass after the first
    /// transmission, or in the current one.
    pub(super) fn fills(&mut self, core: &mut Core) -> bool {
        let path = self.path(core).filter(|path| self.has_thin_return(path));
        let (Some(path), Some(source)) = (path, self.source.as_ref()) else { return false };
        if self.peer.remote.repair_copies <= 1 || !self.may_fill(core) {
            return false;
        }
        if !source.at_end() {
            return true;
        }
        let (replies, sent) = (self.replies(path), source.sent().min(self.layout.red));
        // A current pass continues, and ends with a checkpoint.
        if !self.filling.is_under_way && self.filling.passes.take_over(&replies, sent) {
            self.filling.is_under_way = true;
            self.base.want(&mut core.shared, Class::Repair);
        }
        self.filling.is_under_way
    }
}
