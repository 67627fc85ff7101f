//! Finds the earliest of many moments.

use engine::Time;

/// One moment per slot; finds the earliest without a scan.
///
/// A binary tree in an array, the root at 1: each node holds the earliest moment below it.
#[derive(Debug, Default)]
pub(crate) struct Agenda {
    tree: Vec<Due>,
    /// Index of the first slot in the tree: the number of slots rounded up to a power of two.
    leaves: usize,
}

/// A moment, or never, which sorts after all moments.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Due {
    never: bool,
    at: Time,
}

const NEVER: Due = Due { never: true, at: Time::MAX };

impl Agenda {
    /// Sets when a slot is due; slots that were never set are never due.
    pub(crate) fn set(&mut self, slot: usize, at: Option<Time>) {
        if slot >= self.leaves {
            self.grow(slot + 1);
        }
        let due = at.map_or(NEVER, |at| Due { never: false, at });
        let mut node = self.leaves + slot;
        if self.tree[node] == due {
            return;
        }
        self.tree[node] = due;
        while node > 1 {
            node /= 2;
            let earliest = self.tree[2 * node].min(self.tree[2 * node + 1]);
            if self.tree[node] == earliest {
                return;
            }
            self.tree[node] = earliest;
        }
    }

    /// Returns the earliest moment and its slot, the lowest of several due then.
    pub(crate) fn first(&self) -> Option<(Time, usize)> {
        let earliest = *self.tree.get(1).filter(|due| !due.never)?;
        let mut node = 1;
        while node < self.leaves {
            node *= 2;
            if self.tree[node] != earliest {
                node += 1;
            }
        }
        Some((earliest.at, node - self.leaves))
    }

    fn grow(&mut self, slots: usize) {
        let known = self.tree.split_off(self.leaves);
        self.leaves = slots.next_power_of_two();
        self.tree = vec![NEVER; 2 * self.leaves];
        self.tree[self.leaves..self.leaves + known.len()].copy_from_slice(&known);
        for node in (1..self.leaves).rev() {
            self.tree[node] = self.tree[2 * node].min(self.tree[2 * node + 1]);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_timer_at_the_end_of_time_fires() {
        let mut agenda = Agenda::default();
        assert_eq!(agenda.first(), None);
        agenda.set(0, Some(Time::MAX));
        assert_eq!(agenda.first(), Some((Time::MAX, 0)));
        agenda.set(0, None);
        assert_eq!(agenda.first(), None);
    }

    proptest! {
        #[test]
        fn agenda_matches_a_linear_search(
            ops in prop::collection::vec((0..40_usize, prop::option::of(0..9_u64)), 0..200),
        ) {
            let mut agenda = Agenda::default();
            let mut all = [None; 40];
            for (slot, at) in ops {
                all[slot] = at.map(Time::from_nanos);
                agenda.set(slot, all[slot]);
                let due = all.iter().enumerate().filter_map(|(slot, at)| Some(((*at)?, slot)));
                prop_assert_eq!(agenda.first(), due.min());
            }
        }
    }
}
