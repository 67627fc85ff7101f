//! Volume of a contact that is booked for bundles.

/// Class of service of version 6 bundles; all version 7 bundles are normal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Priority {
    /// Lowest.
    Bulk,
    /// Above bulk.
    #[default]
    Normal,
    /// Highest.
    Expedited,
}

impl Priority {
    pub(super) const COUNT: usize = 3;

    /// Name in lower case.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Bulk => "bulk",
            Self::Normal => "normal",
            Self::Expedited => "expedited",
        }
    }

    pub(super) const fn index(self) -> usize {
        match self {
            Self::Bulk => 0,
            Self::Normal => 1,
            Self::Expedited => 2,
        }
    }
}

/// Busy interval: its begin and end in nanoseconds.
type Busy = (u64, u64);

/// Bookings of a contact, as each priority has to respect them: a bundle waits for those of its
/// own priority and of higher ones (CCSDS 734.3-B-1 §3.2.6.2).
#[derive(Clone, Debug, Default)]
pub(super) struct Bookings {
    /// Bytes.
    bytes: [u64; Priority::COUNT],
    /// Disjoint intervals, in order.
    busy: [Vec<Busy>; Priority::COUNT],
}

impl Bookings {
    pub(super) fn bytes(&self, level: usize) -> u64 {
        self.bytes.get(level).copied().unwrap_or_default()
    }

    fn busy(&self, level: usize) -> &[Busy] {
        self.busy.get(level).map_or(&[], Vec::as_slice)
    }

    /// First moment from `at` on with `length` free.
    pub(super) fn gap(&self, level: usize, at: u64, length: u64) -> u64 {
        let busy = self.busy(level);
        let next = busy.partition_point(|&(_, end)| end <= at);
        let mut start = at;
        for &(from, until) in busy.get(next..).unwrap_or_default() {
            if from >= start.saturating_add(length) {
                break;
            }
            start = until;
        }
        start
    }

    /// Last moment with `length` free before `limit`.
    pub(super) fn last_gap(&self, level: usize, limit: u64, length: u64) -> Option<u64> {
        let busy = self.busy(level);
        let until = busy.partition_point(|&(from, _)| from < limit);
        let mut start = limit.checked_sub(length)?;
        for &(from, until) in busy.get(..until).unwrap_or_default().iter().rev() {
            if until <= start {
                break;
            }
            start = from.checked_sub(length)?;
        }
        Some(start)
    }

    /// Nanoseconds free from `from` until `until`.
    pub(super) fn free(&self, level: usize, from: u64, until: u64) -> u64 {
        let taken = self
            .busy(level)
            .iter()
            .map(|&(start, end)| end.min(until).saturating_sub(start.max(from)));
        until.saturating_sub(from).saturating_sub(taken.sum())
    }

    /// Books `bytes` from `at` on. What lower priorities had there moves back.
    pub(super) fn book(&mut self, priority: Priority, bytes: u64, at: u64, length: u64) {
        for level in 0..=priority.index() {
            if let (Some(total), Some(busy)) = (self.bytes.get_mut(level), self.busy.get_mut(level))
            {
                *total = total.saturating_add(bytes);
                occupy(busy, at, length);
            }
        }
    }

    /// Cancels a booking from `at` on.
    pub(super) fn cancel(&mut self, priority: Priority, bytes: u64, at: u64, length: u64) {
        for level in 0..=priority.index() {
            if let (Some(total), Some(busy)) = (self.bytes.get_mut(level), self.busy.get_mut(level))
            {
                *total = total.saturating_sub(bytes);
                vacate(busy, at, length);
            }
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.bytes.iter().all(|bytes| *bytes == 0)
    }

    /// Forgets what lies outside a contact.
    pub(super) fn clip(&mut self, start: u64, end: u64) {
        for busy in &mut self.busy {
            busy.retain_mut(|(from, until)| {
                (*from, *until) = ((*from).max(start), (*until).min(end));
                from < until
            });
        }
    }
}

/// Adds work to a schedule. It is conserved: what was there is done later.
fn occupy(busy: &mut Vec<Busy>, at: u64, length: u64) {
    if length == 0 {
        return;
    }
    let first = busy.partition_point(|&(_, end)| end < at);
    let (mut start, mut end) = (at, at.saturating_add(length));
    let mut last = first;
    while let Some(&(from, until)) = busy.get(last)
        && from <= end
    {
        end = from.min(start).saturating_add(end - start).saturating_add(until - from);
        start = from.min(start);
        last += 1;
    }
    busy.splice(first..last, [(start, end)]);
}

/// Removes work from a schedule: first from the end of the interval around `at`, then from later
/// ones, then from earlier ones.
fn vacate(busy: &mut Vec<Busy>, at: u64, length: u64) {
    let mut left = length;
    let first = busy.partition_point(|&(_, end)| end <= at);
    let order = (first..busy.len()).chain((0..first).rev());
    for index in order.collect::<Vec<_>>() {
        if let Some((start, end)) = busy.get_mut(index) {
            let taken = left.min(*end - *start);
            *end -= taken;
            left -= taken;
        }
        if left == 0 {
            break;
        }
    }
    busy.retain(|(start, end)| start < end);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_is_conserved() {
        let mut busy = Vec::new();
        occupy(&mut busy, 10, 5);
        occupy(&mut busy, 20, 5);
        assert_eq!(busy, [(10, 15), (20, 25)]);
        // From 12 on, 4: the rest of what was there is done until 19.
        occupy(&mut busy, 12, 4);
        assert_eq!(busy, [(10, 19), (20, 25)]);
        occupy(&mut busy, 18, 3);
        assert_eq!(busy, [(10, 27)]);
        vacate(&mut busy, 18, 3);
        assert_eq!(busy, [(10, 24)]);
        vacate(&mut busy, 30, 14);
        assert_eq!(busy, []);
    }

    #[test]
    fn gaps_are_found_from_both_ends() {
        let mut bookings = Bookings::default();
        bookings.book(Priority::Normal, 1, 10, 5);
        bookings.book(Priority::Normal, 1, 20, 5);
        let level = Priority::Bulk.index();
        assert_eq!([0, 7, 12, 15].map(|at| bookings.gap(level, at, 5)), [0, 15, 15, 15]);
        assert_eq!([0, 6, 15].map(|at| bookings.gap(level, at, 6)), [0, 25, 25]);
        assert_eq!(bookings.last_gap(level, 30, 5), Some(25));
        assert_eq!(bookings.last_gap(level, 29, 5), Some(15));
        assert_eq!(bookings.last_gap(level, 29, 6), Some(4));
        assert_eq!(bookings.last_gap(level, 29, 11), None);
        assert_eq!(bookings.free(level, 12, 22), 5);
        assert_eq!(bookings.gap(Priority::Expedited.index(), 12, 5), 12);
    }
}
