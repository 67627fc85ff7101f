//! Data that goes again while a thin return link delays the STATUS packets (see
//! [`thin_return::fill`](crate::thin_return::fill)).

use std::time::Duration;

use engine::Time;
use wire::saratoga::Status;

use super::Sender;
use crate::path::{Class, Path};
use crate::saratoga::config::Version;
use crate::saratoga::core::Core;
use crate::saratoga::indication::Put;
use crate::source::Source;
use crate::storage::Storage as _;
use crate::thin_return::fill::Replies;

impl Sender {
    /// Notes what a STATUS confirms: all below the offset it responds to, but its holes. One of
    /// several packets describes what lies between its own holes.
    pub(super) fn confirm(&mut self, core: &Core, status: &Status<'_>) {
        let Some(source) = self.source.as_ref() else { return };
        let end = if status.is_partial { 0 } else { status.in_response_to.min(source.sent()) };
        let mut at = if status.is_partial { u64::MAX } else { 0 };
        for hole in status.holes.iter() {
            self.confirm_range(core, at, hole.start);
            at = hole.last.saturating_add(1);
        }
        self.confirm_range(core, at, end);
    }

    fn confirm_range(&mut self, core: &Core, start: u64, end: u64) {
        if start < end && self.confirmed.len() < core.config.limits.gaps {
            self.confirmed.insert(start, end);
        }
    }

    fn replies<'a>(&self, path: &'a Path, at: Time) -> Replies<'a> {
        let waits = self.is_waiting && self.misses == 0;
        Replies {
            path,
            segment: self.room(path.mtu().max(64), false).unwrap_or(1),
            is_known: self.is_known,
            silence: if waits { at.since(self.base.last_heard) } else { Duration::ZERO },
        }
    }

    /// Begins a pass once the end was sent, if replies are delayed.
    pub(super) fn begin_fill(&mut self, core: &mut Core, at: Time) {
        if !std::mem::take(&mut self.fill_due) {
            return;
        }
        let is_informed = self.order.put != Put::Blind && self.version == Version::V1;
        let is_private = self.control.is_none() && self.window.is_none();
        let path = core.shared.paths.get(&self.id.peer).filter(|_| is_informed && is_private);
        let Some(path) = path else { return };
        let Some(mut source) = self.source.take() else { return };
        let (replies, sent) = (self.replies(path, at), source.sent());
        let most = self.remote.repair_copies.saturating_sub(1);
        if self.fill.begin(&replies, &self.confirmed, sent, most) {
            // The read leaves with the packet that was just sent.
            self.go_on_filling(core, &mut source, at);
        }
        self.source = Some(source);
    }

    /// Has a pass send the holes of a STATUS, where all was sent and replies are delayed; whether it
    /// does.
    pub(super) fn fills(&mut self, core: &mut Core, now: Time) -> bool {
        let is_informed = self.order.put != Put::Blind && self.version == Version::V1;
        let is_private = self.control.is_none() && self.window.is_none();
        let path = core.shared.paths.get(&self.id.peer).filter(|_| is_informed && is_private);
        let source = self.source.as_ref().filter(|_| self.end_sent);
        let (Some(path), Some(source)) = (path, source) else { return false };
        let (replies, sent) = (self.replies(path, now), source.sent());
        let fills = self.remote.repair_copies > 1 && self.fill.take_over(&replies, sent);
        if fills {
            self.in_flight.clear();
            self.base.want(&mut core.shared, Class::Repair);
        }
        fills
    }

    /// Queues the next part of a pass.
    pub(super) fn go_on_filling(&mut self, core: &mut Core, source: &mut Source, at: Time) {
        let most = core.shared.room().read_piece as u64;
        let Some(path) = core.shared.paths.get(&self.id.peer) else { return };
        let (replies, sent) = (self.replies(path, at), source.sent());
        let part = self.fill.next_part(&replies, &self.confirmed, sent, most);
        let Some((start, end)) = part else { return };
        source.choose_copies(1, 1, None);
        source.repeat(start, end, core.config.limits.gaps);
        source.read_repairs(&mut core.shared, self.base.seat.handle);
    }
}
