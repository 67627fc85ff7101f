//! Bounded lists of the interface's commands and transfers.

pub(crate) mod command;
pub(crate) mod transfer;

use std::collections::BTreeMap;

use axum::http::StatusCode;
use service::http::Refusal;

/// Maximum number of remembered entries.
const KEPT: usize = 256;

/// An entry of a list.
pub(crate) trait Entry {
    /// Name of its type.
    const KIND: &str;
    /// Its representation in responses.
    type Shown;

    /// Whether it has ended.
    fn is_over(&self) -> bool;

    /// Returns its representation, with its number.
    fn shown(&self, id: u64) -> Self::Shown;
}

/// Entries, oldest first.
#[derive(Debug)]
pub(crate) struct List<T> {
    entries: BTreeMap<u64, T>,
    /// Number of the last entry.
    last: u64,
}

impl<T> Default for List<T> {
    fn default() -> Self {
        Self { entries: BTreeMap::new(), last: 0 }
    }
}

impl<T: Entry> List<T> {
    /// Returns the number of the next entry.
    pub(crate) fn next(&self) -> u64 {
        self.last + 1
    }

    /// Adds an entry, dropping the oldest ended one if full, and returns its number.
    pub(crate) fn add(&mut self, entry: T) -> u64 {
        self.last = self.next();
        self.entries.insert(self.last, entry);
        while self.entries.len() > KEPT {
            let over = self.entries.iter().find(|(_, entry)| entry.is_over());
            let Some(oldest) = over.map(|(id, _)| *id) else { break };
            self.entries.remove(&oldest);
        }
        self.last
    }

    /// Returns the entries that have not ended.
    pub(crate) fn running(&self) -> impl Iterator<Item = &T> {
        self.entries.values().filter(|entry| !entry.is_over())
    }

    /// Returns the representations of all entries.
    pub(crate) fn all(&self) -> Vec<T::Shown> {
        self.entries.iter().map(|(id, entry)| entry.shown(*id)).collect()
    }

    /// Returns the representation of one entry.
    pub(crate) fn shown(&self, id: u64) -> Result<T::Shown, Refusal> {
        Ok(self.get(id)?.shown(id))
    }

    /// Returns one entry.
    pub(crate) fn get(&self, id: u64) -> Result<&T, Refusal> {
        let kind = T::KIND;
        let none = || Refusal::new(StatusCode::NOT_FOUND, format!("there is no {kind} {id}"));
        self.entries.get(&id).ok_or_else(none)
    }

    /// Returns one entry, if it is remembered.
    pub(crate) fn get_mut(&mut self, id: u64) -> Option<&mut T> {
        self.entries.get_mut(&id)
    }

    /// Returns all entries.
    pub(crate) fn values_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.entries.values_mut()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Entry for bool {
        const KIND: &str = "thing";
        type Shown = Self;

        fn is_over(&self) -> bool {
            *self
        }

        fn shown(&self, _: u64) -> Self {
            *self
        }
    }

    #[test]
    fn entries_are_bounded_and_running_ones_are_kept() {
        let mut list = List::default();
        let running = list.add(false);
        for number in 0..KEPT as u64 + 10 {
            assert_eq!(list.next(), number + 2);
            list.add(true);
        }
        assert_eq!((list.all().len(), list.running().count()), (KEPT, 1));
        assert_eq!(list.shown(running).ok(), Some(false));
        assert_eq!(list.shown(running + 1).unwrap_err().error, "there is no thing 2");
    }
}
