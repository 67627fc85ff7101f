//! Objects of a sender by their numbers: started, complete, failed.

use std::ops::Range;

use session::ranges::Ranges;

use crate::config::SyncPolicy;

/// Number of objects received before the current one with [`SyncPolicy::All`]: as many as the
/// reference library requests.
const SYNC_BACK: u64 = 255;

/// Numbers of a sender's objects, unwrapped.
#[derive(Debug, Default)]
pub(super) struct Numbers {
    /// First and highest object received; `None` before the first.
    first: u64,
    newest: Option<u64>,
    /// Objects that are complete or given up.
    done: Ranges,
    failed: Ranges,
    /// Last object that failed for a local reason: acknowledgements cover only later ones.
    refused: Option<u64>,
}

impl Numbers {
    /// Whether an object was started.
    pub(super) fn has_begun(&self) -> bool {
        self.newest.is_some()
    }

    /// First object received.
    pub(super) fn first(&self) -> u16 {
        self.first as u16
    }

    /// Number of complete objects.
    pub(super) fn completed(&self) -> u64 {
        self.done.covered()
    }

    pub(super) fn is_done(&self, number: u64) -> bool {
        self.done.contains(number)
    }

    /// Whether this or a later object failed for a local reason.
    pub(super) fn is_refused(&self, number: u64) -> bool {
        self.refused.is_some_and(|refused| refused >= number)
    }

    /// Unwraps an object identifier.
    pub(super) fn unwrap(&self, number: u16) -> u64 {
        let Some(newest) = self.newest else { return 1 << 16 | u64::from(number) };
        let ahead = number.wrapping_sub(newest as u16);
        if ahead < 0x8000 {
            newest + u64::from(ahead)
        } else {
            newest.saturating_sub(u64::from(ahead.wrapping_neg()))
        }
    }

    /// Objects that start when a message names this one: it and earlier unseen ones. If that
    /// exceeds `most`, the maximum under way, only the last `most` start: no wait would make room
    /// for all. The first one starts with the `back` objects before it.
    pub(super) fn to_begin(
        &self,
        number: u16,
        room: u64,
        most: u64,
        sync: SyncPolicy,
        back: u64,
    ) -> Range<u64> {
        let number = self.unwrap(number);
        let first = match (self.newest, sync) {
            (Some(newest), _) => newest + 1,
            (None, SyncPolicy::Current | SyncPolicy::Object) => {
                number - back.min(room.saturating_sub(1))
            }
            (None, SyncPolicy::All) => number - SYNC_BACK.min(room.saturating_sub(1)),
        };
        if first > number {
            return 0..0;
        }
        let unseen = number + 1 - first;
        if unseen > most {
            return number + 1 - room..number + 1;
        }
        if unseen > room { 0..0 } else { first..number + 1 }
    }

    /// Starts objects from `first` to `newest`. Returns whether some before them were skipped:
    /// those must not seem delivered.
    pub(super) fn begin(&mut self, first: u64, newest: u64) -> bool {
        let before = self.newest.replace(newest);
        let Some(unseen) = before.map(|before| before + 1) else {
            self.first = first;
            return false;
        };
        let is_skipped = unseen < first;
        if is_skipped {
            self.failed.insert(unseen, first);
            self.refused = self.refused.max(Some(first - 1));
        }
        is_skipped
    }

    /// Whether an object is later than all that were started.
    pub(super) fn is_beyond(&self, number: u64) -> bool {
        self.newest.is_none_or(|newest| number > newest)
    }

    /// Notes that an object is complete.
    pub(super) fn completes(&mut self, number: u64) {
        self.done.insert(number, number + 1);
    }

    /// Notes that an object failed, and whether for a local reason.
    pub(super) fn fails(&mut self, number: u64, is_refused: bool) {
        self.failed.insert(number, number + 1);
        if is_refused {
            self.refused = self.refused.max(Some(number));
        }
    }

    /// Forgets objects that messages can no longer name.
    pub(super) fn trim(&mut self) {
        let past = self.newest.unwrap_or_default().saturating_sub(0x8000);
        self.done.remove(0, past);
        self.failed.remove(0, past);
    }

    /// First object that this receiver vouches for.
    pub(super) fn vouched(&self) -> u16 {
        // A sender has few objects at once and need not track older ones.
        let past = self.newest.unwrap_or_default().saturating_sub(0x4000);
        let refused = self.refused.map_or(0, |refused| refused + 1);
        self.first.max(refused).max(past) as u16
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_without_room_do_not_seem_delivered() {
        let mut numbers = Numbers::default();
        let range = numbers.to_begin(7, 4, 4, SyncPolicy::Current, 0);
        assert_eq!(range, 65_543..65_544);
        assert!(!numbers.begin(range.start, 65_543));
        numbers.completes(65_543);
        // Nine unseen objects, four of which have a slot.
        let range = numbers.to_begin(16, 4, 4, SyncPolicy::Current, 0);
        assert_eq!(range, 65_549..65_553);
        assert!(numbers.begin(range.start, 65_552));
        assert!(numbers.is_refused(65_548) && !numbers.is_refused(65_549));
        assert_eq!((numbers.vouched(), numbers.completed()), (13, 1));
    }
}
