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

/// A pass over what is not confirmed.
#[derive(Debug, Default)]
pub(super) struct Fill {
    /// Rest of it.
    rest: Option<(u64, u64)>,
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

    /// Begins a pass once the end was sent, if that takes no longer than the reply may still take.
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
        let Some(light) = path.light() else { return };
        // A first STATUS may still be on its way; later silence is that of a peer out of reach.
        let is_first = self.is_waiting && self.misses == 0 && self.fill.passes == 0;
        let silence = if is_first { at.since(self.base.last_heard) } else { Duration::ZERO };
        let reply = path.rtt.measured().unwrap_or_default().max(silence);
        let delay = reply.saturating_sub(light);
        let sent = source.sent();
        let missing: u64 = self.confirmed.gaps(0, sent).map(|(start, end)| end - start).sum();
        if delay < DELAY_LEAST
            || missing == 0
            || pass_time(path, self.segment(path), missing) > 2 * delay
        {
            return;
        }
        self.fill.passes += 1;
        self.fill.rest = Some((0, sent));
        self.base.want(&mut core.kernel, Class::Repair);
    }

    fn segment(&self, path: &Path) -> usize {
        self.room(path.mtu().max(64), false).unwrap_or(1)
    }

    /// Queues the next part of a pass, without what was confirmed meanwhile.
    pub(super) fn go_on_filling(&mut self, core: &mut Core, source: &mut Source) {
        let Some((at, end)) = self.fill.rest.take() else { return };
        let Some((start, stop)) = self.confirmed.gaps(at, end).next() else { return };
        let piece = core.kernel.room().read_piece as u64;
        let stop = stop.min(start + piece);
        self.fill.rest = Some((stop, end));
        source.choose_copies(1, 1, None);
        source.repeat(start, stop, core.config.limits.gaps);
        source.read_repairs(&mut core.kernel, self.base.seat.handle);
    }
}

/// Time in which `missing` bytes leave in packets of `segment` bytes.
fn pass_time(path: &Path, segment: usize, missing: u64) -> Duration {
    let packets = missing.div_ceil(segment as u64);
    path.time_of(segment).saturating_mul(u32::try_from(packets).unwrap_or(u32::MAX))
}
