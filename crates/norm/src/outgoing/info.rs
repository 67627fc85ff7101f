//! NORM_INFO of an object: its schedule, and the digests of coded blocks that it carries.

use engine::Time;
use session::path::Turn;

use super::{INFO_HEADER, Outgoing, Output, Shape};
use crate::digest::{
    BlockDigest, EXT_DIGEST, EXT_FORMER, EXT_VERSION, FORMER_LEN, VERSION_LEN, version_content,
};
use crate::incoming::parked_max;
use crate::message::{Body, Extension, Extensions, Info};

/// Schedule of NORM_INFO.
#[derive(Clone, Copy, Debug)]
pub(super) struct InfoTurn {
    pub(super) is_due: bool,
    /// End of the time in which requests are ignored, because the retransmission cannot have been
    /// received yet.
    pub(super) until: Option<Time>,
}

impl Default for InfoTurn {
    fn default() -> Self {
        Self { is_due: true, until: None }
    }
}

/// Segments between copies of NORM_INFO of coded objects, and the maximum number of copies to
/// receivers that can report.
const EVERY: u64 = 16;
const COPIES_MAX: u32 = 24;

/// Schedule of the copies of a coded object's NORM_INFO, by segments sent.
#[derive(Clone, Copy, Debug)]
pub(super) struct InfoSchedule {
    /// Segments sent at the next copy.
    next: u64,
    gap: u64,
    /// Copies until the gap doubles after each.
    even: u32,
    copies: u32,
    most: u32,
}

impl Default for InfoSchedule {
    fn default() -> Self {
        Self { next: EVERY, gap: 2 * EVERY, even: 0, copies: 1, most: COPIES_MAX }
    }
}

impl InfoSchedule {
    /// Copies at the start of an object whose receivers cannot report: one must arrive while they
    /// keep the segments that precede it.
    pub(super) fn at_first(copies: u32, segment: u16) -> Self {
        let kept = parked_max(segment.into()) as u64;
        let gap = (kept / u64::from(copies.max(1))).clamp(1, EVERY);
        Self { next: gap, gap, even: copies, copies: 1, most: copies.max(COPIES_MAX) }
    }

    /// Copies behind the source segments of a block.
    pub(super) fn behind(sent: u64, is_last: bool) -> Self {
        let even = if is_last { COPIES_MAX } else { 0 };
        Self { next: sent + EVERY, gap: EVERY, even, copies: 0, most: COPIES_MAX }
    }

    /// Copies at equal distances.
    pub(super) fn evenly(sent: u64, gap: u64, copies: u32) -> Self {
        Self { next: sent.saturating_add(gap), gap, even: copies, copies: 0, most: copies }
    }

    /// Spreads the copies that receivers without reports need over the parity of a block.
    pub(super) fn spread(&mut self, sent: u64, parity: u64, copies: u32, is_last: bool) {
        let gap = (parity / u64::from(copies.max(1))).clamp(1, EVERY);
        let most = copies.max(COPIES_MAX);
        let even = if is_last { most } else { copies };
        *self = Self { next: sent + gap, gap, even, copies: 0, most };
    }

    /// Whether a copy is due after this number of segments, which is then counted.
    pub(super) fn take_due(&mut self, sent: u64) -> bool {
        if sent < self.next || self.copies >= self.most {
            return false;
        }
        self.copies += 1;
        self.next = self.next.saturating_add(self.gap);
        if self.copies >= self.even {
            self.gap = self.gap.saturating_mul(2);
        }
        true
    }
}

impl Outgoing {
    /// Sends NORM_INFO if due.
    pub(crate) fn emit_info(&mut self, out: &mut Output<'_, '_>) -> Turn {
        let Some(shape) = self.shape.take() else { return Turn::Over };
        let turn = self.emit_info_of(out, &shape);
        self.shape = Some(shape);
        turn
    }

    pub(super) fn emit_info_of(&mut self, out: &mut Output<'_, '_>, shape: &Shape) -> Turn {
        if !self.info_turn.is_due {
            return Turn::Over;
        }
        if !self.has_info() {
            self.info_turn.is_due = false;
            return Turn::Over;
        }
        if !self.digest_first(shape) {
            return Turn::Over;
        }
        let room = out.burst.mtu().saturating_sub(INFO_HEADER + self.info.len());
        let resumes = shape.coding.is_long() || self.resume.is_possible();
        let version = version_content(self.resume.version).filter(|_| resumes);
        let version = version.filter(|_| room >= VERSION_LEN);
        let room = room.saturating_sub(version.map_or(0, |_| VERSION_LEN));
        let former = self.resume.former.map(u16::to_be_bytes).filter(|_| room >= FORMER_LEN);
        let former = former.map(|[high, low]| [0, high, low]);
        let room = room.saturating_sub(former.map_or(0, |_| FORMER_LEN));
        let digests = self.coded.digests(room);
        let digests: Vec<_> = digests.iter().map(BlockDigest::encode).collect();
        let extension = |value| Extension { kind: EXT_DIGEST, value };
        let version = version.as_ref().map(|value| Extension { kind: EXT_VERSION, value });
        let former = former.as_ref().map(|value| Extension { kind: EXT_FORMER, value });
        let others = digests.iter().map(|value| extension(value)).chain(version);
        let others: Vec<_> = others.chain(former).collect();
        let body = Body::Info(Info {
            sender: out.transmission.header(),
            flags: shape.flags,
            fec: shape.coding.scheme,
            object: shape.object,
            fti: Some(shape.fti),
            others: Extensions::new(&others),
            payload: &self.info,
        });
        if !out.push(body) {
            return Turn::More;
        }
        self.coded.on_digests_sent(digests.len());
        self.info_turn.is_due = false;
        let is_first = !std::mem::replace(&mut self.has_begun, true);
        out.transmission.has_queried |= self.on_info_sent(out.departure());
        if !is_first {
            self.info_turn.until = Some(out.departure() + out.transmission.round_trip());
        }
        Turn::Over
    }
}
