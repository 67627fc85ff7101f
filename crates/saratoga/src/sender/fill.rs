//! Retransmission of data while a thin return link delays the STATUS packets (see
//! [`thin_return::fill`](session::thin_return::fill)).

use std::time::Duration;

use engine::Time;
use session::path::{Class, Path};
use session::ranges::Ranges;
use session::source::Source;
use session::storage::Storage as _;
use session::thin_return::fill::{Fill, Replies};

use super::Sender;
use crate::core::Core;
use crate::packet::Status;

/// Passes over unconfirmed data.
#[derive(Debug, Default)]
pub(super) struct Filling {
    /// Ranges confirmed by the receiver.
    confirmed: Ranges,
    passes: Fill,
    /// Whether the end was just sent, so that a pass may start.
    is_due: bool,
}

impl Filling {
    /// Bytes confirmed by the receiver.
    pub(super) fn confirmed(&self) -> u64 {
        self.confirmed.covered()
    }

    /// Notes the ranges confirmed by a STATUS: everything below the offset it responds to, except
    /// holes. One of several packets covers the range of its own holes. At most `max` ranges are
    /// kept.
    pub(super) fn confirm(&mut self, status: &Status<'_>, sent: u64, max: usize) {
        let end = if status.is_partial { 0 } else { status.in_response_to.min(sent) };
        let mut at = if status.is_partial { u64::MAX } else { 0 };
        for hole in status.holes.iter() {
            self.confirm_range(at, hole.start, max);
            at = hole.last.saturating_add(1);
        }
        self.confirm_range(at, end, max);
    }

    fn confirm_range(&mut self, start: u64, end: u64, max: usize) {
        if start < end && self.confirmed.len() < max {
            self.confirmed.insert(start, end);
        }
    }

    /// Notes a STATUS with news.
    pub(super) fn news(&mut self) {
        self.passes.news();
    }

    /// Notes that the end was sent.
    pub(super) fn end_left(&mut self) {
        self.is_due = true;
    }

    fn begin(&mut self, replies: &Replies<'_>, sent: u64, most: u32) -> bool {
        self.passes.begin(replies, &self.confirmed, sent, most)
    }

    fn next_part(&mut self, replies: &Replies<'_>, sent: u64, most: u64) -> Option<(u64, u64)> {
        self.passes.next_part(replies, &self.confirmed, sent, most)
    }
}

impl Sender {
    fn replies<'a>(&self, path: &'a Path, at: Time) -> Replies<'a> {
        let waits = self.requests.is_waiting() && self.requests.misses == 0;
        Replies {
            path,
            segment: self.room(path.mtu().max(64), false).unwrap_or(1),
            is_known: self.requests.has_reply(),
            silence: if waits { at.since(self.base.last_received) } else { Duration::ZERO },
        }
    }

    /// Path that passes may fill: each STATUS lists missing data, and no other session uses the
    /// path.
    fn private_path<'a>(&self, core: &'a Core) -> Option<&'a Path> {
        let is_private = self.control.is_none() && self.window.is_none();
        let fills = self.offer.is_reported() && is_private;
        core.shared.paths.get(&self.id.peer).filter(|_| fills)
    }

    /// Starts a pass once the end was sent, if replies are delayed.
    pub(super) fn begin_fill(&mut self, core: &mut Core, at: Time) {
        if !std::mem::take(&mut self.filling.is_due) {
            return;
        }
        let Some(path) = self.private_path(core) else { return };
        let Some(mut source) = self.source.take() else { return };
        let replies = self.replies(path, at);
        let most = self.remote.repair_copies.saturating_sub(1);
        if self.filling.begin(&replies, source.sent(), most) {
            // The read is submitted with the packet just sent.
            self.go_on_filling(core, &mut source, at);
        }
        self.source = Some(source);
    }

    /// Has a pass retransmit the holes of a STATUS, if everything was sent and replies are delayed.
    /// Returns whether it does.
    pub(super) fn fills(&mut self, core: &mut Core, now: Time) -> bool {
        let source = self.source.as_ref().filter(|_| self.requests.end_sent());
        let (Some(path), Some(source)) = (self.private_path(core), source) else { return false };
        let (replies, sent) = (self.replies(path, now), source.sent());
        let fills = self.remote.repair_copies > 1 && self.filling.passes.take_over(&replies, sent);
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
        let replies = self.replies(path, at);
        let Some((start, end)) = self.filling.next_part(&replies, source.sent(), most) else {
            return;
        };
        source.choose_copies(1, 1, None);
        source.repeat(start, end, core.config.limits.gaps);
        source.read_repairs(&mut core.shared, self.base.seat.handle);
    }
}
