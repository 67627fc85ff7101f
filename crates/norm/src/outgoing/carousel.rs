//! Rounds in which an object is sent again for a stated time, to receivers that cannot reply and
//! may start late.
//!
//! Each round sends as many further segments of each block as a receiver needs that hears nothing
//! else: parity never sent before, and then all segments again in turn.

use std::time::Duration;

use engine::Time;

use super::Outgoing;
use crate::digest::DIGESTS_MAX;
use crate::endgame::Terms;

/// Copies of NORM_INFO in a round, at least. A receiver needs one before anything else.
const COPIES: u32 = 24;

/// Copies of each digest in a round.
const DIGEST_COPIES: u32 = 3;

/// Minimum number of segments between copies.
const APART: u64 = 16;

/// Rounds of an object.
#[derive(Debug, Default)]
pub(super) struct Rounds {
    /// End of the time.
    until: Option<Time>,
    /// Rounds started after the first transmission.
    pub(super) count: u64,
}

impl Outgoing {
    /// Starts the time of the object's rounds when its transmission starts.
    pub(crate) fn time_rounds(&mut self, now: Time, time: Duration) {
        if self.has_begun() {
            self.coded.rounds.until.get_or_insert(now + time);
        }
    }

    /// Begins another round, if its time has not passed. Returns whether one began.
    pub(crate) fn next_round(&mut self, now: Time, terms: &Terms) -> bool {
        if !self.has_begun() || self.coded.rounds.until.is_none_or(|until| now >= until) {
            return false;
        }
        let Some(shape) = self.shape.take() else { return false };
        self.coded.rounds.count = self.coded.rounds.count.saturating_add(1);
        let blocks = shape.partition.blocks();
        let mut segments = 0_u64;
        for block in 0..blocks {
            let goal = self.goal(block, terms, &shape);
            self.coded.change(block, |state| {
                state.goal = goal;
                segments = segments.saturating_add(goal.saturating_sub(state.sent));
            });
        }
        let digests = (blocks * DIGEST_COPIES).div_ceil(DIGESTS_MAX as u32);
        let needed = self.coded.info_copies.max(1);
        let copies = digests.max(COPIES).max(needed);
        let gap = (segments / u64::from(copies)).max(APART).min(segments / u64::from(needed));
        self.coded.info_in_round(copies, gap.max(1));
        self.info_turn.is_due = true;
        self.shape = Some(shape);
        true
    }

    /// Ends the round whose time has passed.
    pub(super) fn check_round(&mut self, now: Time) {
        let rounds = &mut self.coded.rounds;
        if rounds.count > 0 && rounds.until.is_some_and(|until| now >= until) {
            rounds.count = 0;
            self.coded.stop_all();
        }
    }
}
