//! Data that goes again while a thin return link delays the replies.
//!
//! A STATUS of 74 bytes takes 0.3 s at 2 kbit/s, in which 5 MB cross a link of 150 Mbit/s again.
//! So a sender that has nothing else to send repeats what is not confirmed, in order, until the
//! reply arrives. A delay that is the light time gives no reason for that.

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

/// Shorter delays of a reply, beside the light time, are those of hosts and queues.
const DELAY_LEAST: Duration = Duration::from_millis(100);

/// Longest pass that is repeated before the first STATUS arrives: that of a receiver out of reach
/// never does.
const UNKNOWN_MOST: Duration = Duration::from_secs(1);

/// Time of the data that a pass queues at once: a repair that is requested meanwhile waits for it.
const PIECE: Duration = Duration::from_millis(50);

/// Passes over what is not confirmed. Each begins where the one before stopped, so that all parts
/// go equally often.
#[derive(Debug, Default)]
pub(super) struct Fill {
    /// Offset of the next part.
    next: u64,
    /// Bytes of the file that the pass has not looked at.
    left: u64,
    /// Whether the end was just sent.
    pub(super) is_due: bool,
    /// Passes since a STATUS brought news.
    pub(super) passes: u32,
}

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

    /// Time by which a reply takes longer than light, where that is a reason to fill it.
    fn delay(&self, path: &Path, at: Time) -> Option<Duration> {
        let light = path.light()?;
        // A first STATUS may still be on its way; later silence is that of a peer out of reach.
        let is_first = self.fill.passes == 0 && self.misses == 0 || !self.is_known;
        let silence = if is_first && self.is_waiting {
            at.since(self.base.last_heard)
        } else {
            Duration::ZERO
        };
        let reply = path.rtt.measured().unwrap_or_default().max(silence);
        Some(reply.saturating_sub(light)).filter(|delay| *delay >= DELAY_LEAST)
    }

    /// Begins a pass once the end was sent, if replies are delayed.
    pub(super) fn begin_fill(&mut self, core: &mut Core, at: Time) {
        if !std::mem::take(&mut self.fill.is_due) {
            return;
        }
        let is_informed = self.order.put != Put::Blind && self.version == Version::V1;
        let is_private = self.control.is_none() && self.window.is_none();
        let may_pass = self.fill.passes + 1 < self.remote.repair_copies;
        let Some(source) = self.source.as_ref().filter(|_| is_informed && is_private && may_pass)
        else {
            return;
        };
        let Some(path) = core.kernel.paths.get(&self.id.peer).filter(|path| path.is_paced()) else {
            return;
        };
        let sent = source.sent();
        let missing: u64 = self.confirmed.gaps(0, sent).map(|(start, end)| end - start).sum();
        let is_short = self.is_known
            || self.fill.passes == 0
            || pass_time(path, self.segment(path), missing) <= UNKNOWN_MOST;
        if self.delay(path, at).is_none() || missing == 0 || !is_short {
            return;
        }
        self.fill.passes += 1;
        self.fill.left = sent;
        self.base.want(&mut core.kernel, Class::Repair);
    }

    /// Whether a pass under way sends the holes of a STATUS again before another could arrive.
    /// Otherwise it ends, because it would delay them.
    pub(super) fn fills(&mut self, core: &Core, now: Time, status: &Status<'_>) -> bool {
        if self.fill.left == 0 {
            return false;
        }
        let holes = status.holes.iter().map(|hole| (hole.last - hole.start).saturating_add(1));
        let missing = holes.fold(0, u64::saturating_add);
        let path = core.kernel.paths.get(&self.id.peer);
        let fills = path.is_some_and(|path| {
            let delay = self.delay(path, now).unwrap_or_default();
            pass_time(path, self.segment(path), missing) <= 2 * delay
        });
        if !fills {
            self.fill.left = 0;
        }
        fills
    }

    fn segment(&self, path: &Path) -> usize {
        self.room(path.mtu().max(64), false).unwrap_or(1)
    }

    /// Queues the next part of a pass, without what was confirmed meanwhile.
    pub(super) fn go_on_filling(&mut self, core: &mut Core, source: &mut Source) {
        let path = core.kernel.paths.get(&self.id.peer);
        let rate = path.and_then(Path::rate_bps).unwrap_or_default();
        let segment = path.map_or(1, |path| self.segment(path)) as u64;
        // 62 kB at 10 Mbit/s.
        let piece = (rate / 8).saturating_mul(PIECE.as_millis() as u64) / 1000;
        let piece = piece.clamp(segment, (core.kernel.room().read_piece as u64).max(segment));
        let sent = source.sent();
        while self.fill.left > 0 {
            let from = if self.fill.next < sent { self.fill.next } else { 0 };
            let until = sent.min(from.saturating_add(self.fill.left));
            let gap = self.confirmed.gaps(from, until).next();
            let (start, end) = gap.unwrap_or((until, until));
            let end = end.min(start + piece);
            self.fill.next = end;
            self.fill.left -= (end - from).clamp(1, self.fill.left);
            if start < end {
                source.choose_copies(1, 1, None);
                source.repeat(start, end, core.config.limits.gaps);
                source.read_repairs(&mut core.kernel, self.base.seat.handle);
                return;
            }
        }
    }
}

/// Time in which `missing` bytes leave in packets of `segment` bytes.
fn pass_time(path: &Path, segment: usize, missing: u64) -> Duration {
    let packets = missing.div_ceil(segment as u64);
    path.time_of(segment).saturating_mul(u32::try_from(packets).unwrap_or(u32::MAX))
}
