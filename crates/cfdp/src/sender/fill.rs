//! Retransmission of data while a thin return link delays the NAKs (see
//! [`thin_return::fill`](session::thin_return::fill)).

use std::time::Duration;

use engine::Time;
use session::path::Path;
use session::ranges::Ranges;
use session::storage::Storage as _;
use session::thin_return::fill::{Fill, Replies};

use super::{Phase, Sender};
use crate::core::{Alarm, Core};
use crate::pdu::{Nak, SegmentRequest};

/// Unrequested retransmissions.
#[derive(Debug, Default)]
pub(super) struct Repeats {
    fill: Fill,
    /// Parts inside the scopes of NAKs that the NAKs did not request.
    confirmed: Ranges,
    /// Whether a NAK has arrived.
    is_known: bool,
}

impl Sender {
    /// Records the data that a NAK confirms: its scope except its requests.
    pub(super) fn confirm(&mut self, core: &Core, nak: &Nak<'_>) {
        let Some(source) = self.source.as_ref() else { return };
        let repeats = &mut self.repeats;
        repeats.is_known = true;
        repeats.fill.news();
        let (mut at, end) = (nak.scope_start, nak.scope_end.min(source.sent()));
        for request in nak.requests.iter().filter(|it| *it != SegmentRequest::METADATA) {
            repeats.confirm(at, request.start.min(end), core.config.limits.gaps);
            at = at.max(request.end);
        }
        repeats.confirm(at, end, core.config.limits.gaps);
        // Requests need not be in order.
        for request in nak.requests {
            repeats.confirmed.remove(request.start, request.end);
        }
    }

    fn replies<'a>(&self, path: &'a Path) -> Replies<'a> {
        Replies {
            path,
            segment: self.segment(path.mtu().max(64)).unwrap_or(1),
            is_known: self.repeats.is_known,
            silence: Duration::ZERO,
        }
    }

    /// Makes a pass retransmit the requests of a NAK, if everything was sent and replies are
    /// delayed. Returns whether it does.
    pub(super) fn fills(&mut self, core: &mut Core, now: Time) -> bool {
        let path = self.base.seat.path.and_then(|id| core.shared.paths.get(&id));
        let source = self.source.as_ref().filter(|it| it.at_end() && self.eof.ever_sent);
        let (Some(path), Some(source)) = (path, source) else { return false };
        let is_private = self.base.acknowledged() && self.window.is_none();
        let most = self.base.remote.repair_copies;
        let (replies, sent) = (self.replies(path), source.sent());
        if most < 2 || !is_private || !self.repeats.fill.take_over(&replies, sent) {
            return false;
        }
        if !self.eof.acknowledged {
            // The NAK shows that the EOF arrived; the ACK of another one would delay the next NAK.
            self.base.alarm(core, Alarm::Ack, now + self.base.answer_time(core));
        }
        self.fill(core);
        true
    }

    /// Queues a part of a pass if nothing else is to be sent and replies are delayed.
    pub(super) fn fill(&mut self, core: &mut Core) {
        let piece = core.shared.room().read_piece as u64;
        let is_waiting = self.phase == Phase::Sending && self.eof.ever_sent && !self.eof.due;
        let is_private = self.base.acknowledged() && self.window.is_none();
        let path = self.base.seat.path.and_then(|id| core.shared.paths.get(&id));
        let path = path.filter(|_| is_waiting && is_private && !self.base.is_suspended());
        let Some(replies) = path.map(|path| self.replies(path)) else { return };
        let most = self.base.remote.repair_copies.saturating_sub(1);
        let source = self.source.as_mut().filter(|it| it.at_end() && !it.has_repairs());
        let Some(source) = source else { return };
        let Repeats { fill, confirmed, .. } = &mut self.repeats;
        let sent = source.sent();
        let mut part = fill.next_part(&replies, confirmed, sent, piece);
        if part.is_none() && fill.begin(&replies, confirmed, sent, most) {
            part = fill.next_part(&replies, confirmed, sent, piece);
        }
        let Some((start, end)) = part else { return };
        source.choose_copies(1, 1, None);
        source.repeat(start, end, core.config.limits.gaps);
        source.read_repairs(&mut core.shared, self.base.seat.handle);
    }
}

impl Repeats {
    fn confirm(&mut self, start: u64, end: u64, most: usize) {
        if start < end && self.confirmed.len() < most {
            self.confirmed.insert(start, end);
        }
    }
}
