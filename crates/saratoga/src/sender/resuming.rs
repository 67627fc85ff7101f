//! Sessions that continue an earlier one of the same file, which another process sent.
//!
//! The receiver may have a part of the file, or all of it. The sender requests a STATUS with an
//! empty DATA packet, and sends data once it knows the missing parts.

use session::path::{Burst, Class, Turn};

use super::Sender;
use crate::core::{Alarm, Core};

/// Requests for a STATUS after which data is sent without a reply.
const REQUESTS_MAX: u32 = 3;

/// Number of them where the round trip is unknown: they take 6.5 s, and the Moon replies after
/// 2.6 s.
const BLIND_REQUESTS_MAX: u32 = 12;

/// State of a session that waits for the first STATUS.
#[derive(Debug, Default)]
pub(super) struct Resuming {
    /// Number of requests sent.
    requests: u32,
    /// Whether the last one is overdue, or lacked the METADATA.
    is_due: bool,
}

impl Resuming {
    /// State before the first request.
    pub(super) fn new() -> Self {
        Self { requests: 0, is_due: true }
    }
}

impl Sender {
    /// Sends METADATA and a request for a STATUS.
    pub(super) fn emit_resuming(&mut self, core: &mut Core, burst: &mut Burst<'_>) -> Turn {
        if self.emit_metadata(core, burst) == Turn::More {
            return Turn::More;
        }
        if self.resuming.as_ref().is_none_or(|resuming| !resuming.is_due) {
            return Turn::Over;
        }
        if !self.push_data(core, burst, 0, &[], true, false) {
            return Turn::More;
        }
        if let Some(resuming) = self.resuming.as_mut() {
            resuming.requests += 1;
            resuming.is_due = false;
        }
        let auto = core.answer_time(&self.base, &self.remote);
        let wait = self.remote.answer_timer.probe(auto, self.requests.misses);
        self.base.alarm(&mut core.shared, Alarm::Poll, burst.departure(), wait);
        Turn::Over
    }

    /// Repeats METADATA and the request for a STATUS, or sends data without a reply.
    pub(super) fn request_parts_again(&mut self, core: &mut Core) {
        let round_trip = self.base.seat.round_trip(&core.shared.paths);
        let is_known = !round_trip.least().is_zero();
        let most = if is_known { REQUESTS_MAX } else { BLIND_REQUESTS_MAX };
        let Some(resuming) = self.resuming.as_mut() else { return };
        self.metadata_due = true;
        if resuming.requests < most {
            resuming.is_due = true;
            self.base.want(&mut core.shared, Class::Bulk);
        } else {
            self.resuming = None;
            self.begin_data(core);
        }
    }
}
