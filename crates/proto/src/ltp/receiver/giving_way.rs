//! Receptions that came no further than a segment or two, and give way to others.

use std::time::Duration;

use engine::{OpenMode, Time};
use wire::checksum::ChecksumType;
use wire::ltp::{CancelReason, End};

use super::super::core::Core;
use super::super::indication::{Failure, Indication};
use super::sink::Sink;
use super::{Phase, Receiver};
use crate::ranges::Ranges;

/// Segments of a session that may give way to others.
const WEAK_SEGMENTS: u32 = 2;

/// Greatest silence after which such a session gives way: over long links, a few datagrams would
/// otherwise keep others out for as long as light takes.
const PATIENCE_MAX: Duration = Duration::from_secs(10);

impl Receiver {
    /// Whether one segment of it came that nobody need reply to. Anybody can send such a one: its
    /// session has no file, and gives way to others.
    pub(crate) fn is_half_open(&self) -> bool {
        self.is_half_open
    }

    /// The session is more than a segment that nobody need reply to.
    pub(crate) fn establish(&mut self, core: &mut Core) {
        self.is_half_open = false;
        let (id, service) = (self.peer.session, self.service);
        core.user.indicate(Indication::Receiving { id, service });
        self.watch_silence(core, core.now);
    }

    /// Opens the file with the second segment, or with a first one that is all of the red part: a
    /// checkpoint by itself costs nothing but memory.
    pub(super) fn open_file(&mut self, core: &mut Core) {
        let is_worth = self.segments > 1 || self.red_is_here();
        if self.phase != Phase::Receiving || self.is_half_open || !is_worth {
            return;
        }
        let Sink::File(filing) = &mut self.sink else { return };
        if filing.spool.is_begun() {
            return;
        }
        let (handle, mode) = (self.base.seat.handle, OpenMode::Truncate);
        let nothing = Ranges::new();
        filing.spool.open(&mut core.shared, handle, ChecksumType::Crc32c, mode, &nothing);
    }

    /// Silence of a session that came no further than two segments, and to whose reports nobody
    /// replied; `None` for others.
    pub(crate) fn weak_for(&self, now: Time) -> Option<Duration> {
        let is_weak = self.phase == Phase::Receiving
            && !self.is_half_open
            && self.segments <= WEAK_SEGMENTS
            && !self.reporting.is_answered
            && self.sink.relay().is_none();
        is_weak.then(|| now.since(self.base.last_received))
    }

    /// Silence after which a session that came no further than two segments gives way to others:
    /// two reply times, as its sender repeats what is not replied to.
    pub(crate) fn patience(&self, core: &Core) -> Duration {
        (core.answer_time(&self.base, &self.peer.remote) * 2).min(PATIENCE_MAX)
    }

    /// Ends a session to make room for another. What it reported is lost with it, so that more of
    /// its segments are refused.
    pub(crate) fn evict(&mut self, core: &mut Core) {
        let reason = CancelReason::System;
        self.finished(core, Err(Failure::new(End::Receiver, reason)));
        self.discard(core);
        self.refused = Some(reason);
        self.close(core);
    }

    /// Forgets a session that is half open, without a word: what its peer sends next begins it
    /// again.
    pub(crate) fn give_way(&mut self, core: &mut Core) {
        self.base.disarm_all(&mut core.shared);
        self.abandon_spool(core);
        self.phase = Phase::Done;
    }
}
