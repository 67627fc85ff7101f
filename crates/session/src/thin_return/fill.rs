//! Retransmission of unconfirmed data while a thin return link delays the replies.
//!
//! A STATUS of 74 bytes takes 0.3 s at 2 kbit/s, in which 5 MB cross a link of 150 Mbit/s again.
//! So a sender with nothing else to send repeats unconfirmed data, in order, until the reply
//! arrives. Neither a delay by light time alone is a reason, nor a delay over a return link of
//! unknown rate: the peer may have been out of reach, or busy.
//!
//! A sender begins a pass when the end, or a request for a reply, was sent ([`Fill::begin`]). It
//! sends the parts that [`Fill::next_part`] returns whenever no repair waits. Each reply with news
//! restores the budget of passes ([`Fill::news`]). Once everything was sent, a pass also sends the
//! parts that a reply requests ([`Fill::take_over`]). It continues at its position, so that the
//! parts too recent for the reply are last.
//!
//! These conditions are for private paths: a sender whose rate follows losses, or without a rate,
//! does not begin a pass.

use std::time::Duration;

use crate::path::{Path, THIN_LEAST};
use crate::ranges::Ranges;

/// Minimum number of packets sent while a reply is delayed beyond the light time: on a slow path
/// each packet takes as long as a reply.
const PACKETS_LEAST: u32 = 16;

/// Longest pass repeated before the first reply arrives; a receiver out of reach never replies.
const UNKNOWN_MOST: Duration = Duration::from_secs(1);

/// Data that a pass queues at once, as transmission time: a repair requested meanwhile waits for
/// it.
const PIECE: Duration = Duration::from_millis(50);

/// Replies, as known to a sender when it decides on a pass.
#[derive(Clone, Copy, Debug)]
pub struct Replies<'a> {
    /// Path to the receiver.
    pub path: &'a Path,
    /// Bytes of data in a packet.
    pub segment: usize,
    /// Whether a reply has arrived in this transfer.
    pub is_known: bool,
    /// Time since the first request without a reply; zero if there is none, or if earlier requests
    /// went unanswered.
    pub silence: Duration,
}

impl Replies<'_> {
    /// Delay of a reply beyond the light time, if the return link is thin rather than the whole
    /// path.
    fn delay(&self, passes: u32) -> Option<Duration> {
        let light = self.path.light()?;
        let least = THIN_LEAST.max(self.path.time_of(self.segment) * PACKETS_LEAST);
        let back = self.path.thin_return()?;
        if back < least {
            return None;
        }
        // A first reply may still be in flight; later silence means a peer out of reach.
        let silence = if passes == 0 || !self.is_known { self.silence } else { Duration::ZERO };
        let reply = self.path.rtt.measured().unwrap_or_default().max(silence);
        Some(reply.saturating_sub(light).max(back))
    }

    /// Transmission time of `missing` bytes.
    fn pass_time(&self, missing: u64) -> Duration {
        let packets = missing.div_ceil(self.segment.max(1) as u64);
        let packet = self.path.time_of(self.segment);
        packet.saturating_mul(u32::try_from(packets).unwrap_or(u32::MAX))
    }
}

/// Passes over unconfirmed data. Each begins where the previous one stopped, so that all parts are
/// sent equally often.
#[derive(Debug, Default)]
pub struct Fill {
    /// Offset of the next part.
    next: u64,
    /// Bytes the current pass has not examined.
    left: u64,
    /// Passes since the last reply with news.
    passes: u32,
}

impl Fill {
    /// Records a reply with news.
    pub fn news(&mut self) {
        self.passes = 0;
    }

    /// Begins a pass over the parts of `0..sent` missing in `confirmed`, if replies are delayed and
    /// fewer than `most` passes brought no news; returns whether it did.
    pub fn begin(
        &mut self,
        replies: &Replies<'_>,
        confirmed: &Ranges,
        sent: u64,
        most: u32,
    ) -> bool {
        let missing: u64 = confirmed.gaps(0, sent).map(|(start, end)| end - start).sum();
        let Some(delay) = replies.delay(self.passes) else { return false };
        let time = replies.pass_time(missing);
        let is_short = replies.is_known || self.passes == 0 || time <= UNKNOWN_MOST;
        // Replies may be lost. If many passes fit into the time of one reply, more passes are
        // worthwhile.
        let most = if time <= 2 * delay { 2 * most } else { most };
        if !replies.path.is_paced() || missing == 0 || self.passes >= most || !is_short {
            return false;
        }
        if self.passes == 0 && self.next == 0 {
            // Data behind this offset may not have arrived yet.
            self.next = confirmed.end();
        }
        self.passes += 1;
        self.left = sent;
        true
    }

    /// Lets a pass send the parts that a reply requests, if replies are delayed: the most recently
    /// sent parts, unknown to the reply, go last. Returns whether it does.
    pub fn take_over(&mut self, replies: &Replies<'_>, sent: u64) -> bool {
        if !replies.path.is_paced() || replies.delay(self.passes).is_none() {
            return false;
        }
        (self.passes, self.left) = (self.passes.max(1), sent);
        true
    }

    /// Next part of the current pass, without parts of `confirmed`: of 50 ms, and at most
    /// `piece_max` bytes.
    pub fn next_part(
        &mut self,
        replies: &Replies<'_>,
        confirmed: &Ranges,
        sent: u64,
        piece_max: u64,
    ) -> Option<(u64, u64)> {
        let (rate, segment) = (replies.path.rate_bps().unwrap_or_default(), replies.segment as u64);
        // 62 kB at 10 Mbit/s.
        let piece = (rate / 8).saturating_mul(PIECE.as_millis() as u64) / 1000;
        let piece = piece.clamp(segment.max(1), piece_max.max(segment).max(1));
        while self.left > 0 {
            let from = if self.next < sent { self.next } else { 0 };
            let until = sent.min(from.saturating_add(self.left));
            let gap = confirmed.gaps(from, until).next();
            let (start, end) = gap.unwrap_or((until, until));
            let end = end.min(start + piece);
            self.next = end;
            self.left -= (end - from).clamp(1, self.left);
            if start < end {
                return Some((start, end));
            }
        }
        None
    }
}
