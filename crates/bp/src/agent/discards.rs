//! Bundles of neighbours that end here, indicated to users at a bounded rate.

use std::collections::BTreeMap;
use std::time::Duration;

use engine::Time;

use super::{Agent, Held, Indication};
use crate::codec::bp7::Reason;

/// Time between two indications of a kind.
const PERIOD: Duration = Duration::from_secs(60);

/// Security rule and reason of an end.
type Kind = (Option<u32>, Reason);

/// Bundles that ended, by kind.
#[derive(Debug, Default)]
pub(super) struct Discards {
    /// Time of the last indication, and bundles since.
    by_kind: BTreeMap<Kind, (Time, u64)>,
}

impl Discards {
    /// Counts a bundle; returns the number to indicate, if one is due.
    pub(super) fn count(&mut self, now: Time, kind: Kind) -> Option<u64> {
        let Some((last, count)) = self.by_kind.get_mut(&kind) else {
            self.by_kind.insert(kind, (now, 0));
            return Some(1);
        };
        *count += 1;
        (now.since(*last) >= PERIOD).then(|| {
            *last = now;
            std::mem::take(count)
        })
    }
}

impl Agent {
    /// Indicates that a bundle ended, at most once a minute for each rule and reason.
    pub(super) fn note_discard(&mut self, now: Time, held: &Held, (rule, reason): Kind) {
        if let Some(count) = self.discards.count(now, (rule, reason)) {
            let (id, by) = (held.id(), held.arrival.by.clone());
            self.user.indicate(Indication::Discarded { id, by, rule, reason, count });
        }
    }
}
