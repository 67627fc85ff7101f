//! Receptions of one or two segments, which are dropped to make room for others.

use std::time::Duration;

use engine::Time;

use super::super::core::Core;
use super::super::indication::{Failure, Indication};
use super::{Phase, Receiver};
use crate::segment::{CancelReason, End};

/// Maximum segments of a session that may be dropped for others.
const WEAK_SEGMENTS: u32 = 2;

/// Maximum silence after which such a session may be dropped: over long links, a few datagrams
/// would otherwise keep others out for a light time.
const PATIENCE_MAX: Duration = Duration::from_secs(10);

impl Receiver {
    /// Whether a single segment arrived that requires no reply. Anyone can send such a segment:
    /// such a session has no file, and is dropped for others.
    pub(crate) fn is_half_open(&self) -> bool {
        self.is_half_open
    }

    /// Marks the session as more than half-open.
    pub(crate) fn establish(&mut self, core: &mut Core) {
        self.is_half_open = false;
        let (id, service) = (self.peer.session, self.service);
        core.user.indicate(Indication::Receiving { id, service });
        self.watch_silence(core, core.now);
    }

    /// Opens the file with the second segment, or with a first one that is all of the red part: a
    /// lone checkpoint costs only memory.
    pub(super) fn open_file(&mut self, core: &mut Core) {
        let is_worth = self.segments > 1 || self.red_is_here();
        if self.phase != Phase::Receiving || self.is_half_open || !is_worth {
            return;
        }
        self.start_file(core);
    }

    /// Silence of a session of at most two segments whose reports were not acknowledged; `None` for
    /// others.
    pub(crate) fn weak_for(&self, now: Time) -> Option<Duration> {
        let is_weak = self.phase == Phase::Receiving
            && !self.is_half_open
            && self.segments <= WEAK_SEGMENTS
            && !self.reporting.is_answered
            && !self.is_resumed
            && self.sink.relay().is_none();
        is_weak.then(|| now.since(self.base.last_received))
    }

    /// Silence after which a session of at most two segments may be dropped: two reply times, as
    /// its sender retransmits.
    pub(crate) fn patience(&self, core: &Core) -> Duration {
        (core.answer_time(&self.base, &self.peer.remote) * 2).min(PATIENCE_MAX)
    }

    /// Whether it was removed to make room for another, and may begin again.
    pub(crate) fn is_displaced(&self) -> bool {
        self.is_displaced
    }

    /// Whether no report was made, by an earlier run either, so that the sender still has all data.
    fn is_unclaimed(&self) -> bool {
        self.reporting.is_silent() && !self.is_resumed
    }

    /// Makes room for another session. Returns `false` if this one ends by itself.
    pub(crate) fn make_way(&mut self, core: &mut Core) -> bool {
        match self.phase {
            Phase::Receiving if self.is_half_open => self.give_way(core),
            Phase::Receiving if self.is_unclaimed() && self.flow.is_none() => {
                core.user.indicate(Indication::Displaced(self.peer.session));
                self.is_displaced = true;
                self.discard(core);
                self.close(core);
            }
            Phase::Receiving => self.evict(core),
            // The user has not accepted the block.
            Phase::Offered => self.evict(core),
            // A sender that still waits gets the reply from memory.
            Phase::Telling | Phase::Cancelling { .. } => self.close(core),
            Phase::Storing | Phase::Closing | Phase::Done => return false,
        }
        true
    }

    /// Ends a session to make room for another. Its reported data is lost, so its further segments
    /// are refused.
    fn evict(&mut self, core: &mut Core) {
        let reason = CancelReason::System;
        self.finished(core, Err(Failure::new(End::Receiver, reason)));
        self.discard(core);
        self.refused = Some(reason);
        self.close(core);
    }

    /// Forgets a half-open session silently: the peer's next segment starts it again.
    pub(crate) fn give_way(&mut self, core: &mut Core) {
        self.base.disarm_all(&mut core.shared);
        self.leave(core);
        self.phase = Phase::Done;
    }
}
