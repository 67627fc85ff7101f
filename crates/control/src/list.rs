//! What was asked for over the interface, of which only so much is remembered.

pub(crate) mod command;
pub(crate) mod transfer;

use std::collections::BTreeMap;

use axum::http::StatusCode;
use service::http::Refusal;

/// How many are remembered.
const KEPT: usize = 256;

/// One that was asked for.
pub(crate) trait Entry {
    /// What it is called.
    const KIND: &str;
    /// How it is told.
    type Shown;

    /// Whether it has ended.
    fn is_over(&self) -> bool;

    /// What is told of it, which has this number.
    fn shown(&self, id: u64) -> Self::Shown;
}

/// Those that were asked for, oldest first.
#[derive(Debug)]
pub(crate) struct List<T> {
    entries: BTreeMap<u64, T>,
    /// The number of the last.
    last: u64,
}

impl<T> Default for List<T> {
    fn default() -> Self {
        Self { entries: BTreeMap::new(), last: 0 }
    }
}

impl<T: Entry> List<T> {
    /// The number that one more would have.
    pub(crate) fn next(&self) -> u64 {
        self.last + 1
    }

    /// One more, for which the oldest is forgotten that has ended; its number.
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

    /// Those that have not ended.
    pub(crate) fn running(&self) -> impl Iterator<Item = &T> {
        self.entries.values().filter(|entry| !entry.is_over())
    }

    /// What is told of all.
    pub(crate) fn all(&self) -> Vec<T::Shown> {
        self.entries.iter().map(|(id, entry)| entry.shown(*id)).collect()
    }

    /// What is told of one.
    pub(crate) fn one(&self, id: u64) -> Result<T::Shown, Refusal> {
        Ok(self.get(id)?.shown(id))
    }

    /// One of them.
    pub(crate) fn get(&self, id: u64) -> Result<&T, Refusal> {
        let kind = T::KIND;
        let none = || Refusal::new(StatusCode::NOT_FOUND, format!("there is no {kind} {id}"));
        self.entries.get(&id).ok_or_else(none)
    }

    /// One of them, if it is remembered.
    pub(crate) fn get_mut(&mut self, id: u64) -> Option<&mut T> {
        self.entries.get_mut(&id)
    }

    /// All of them.
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
    fn so_many_are_remembered_and_what_runs_is_not_forgotten() {
        let mut list = List::default();
        let running = list.add(false);
        for number in 0..KEPT as u64 + 10 {
            assert_eq!(list.next(), number + 2);
            list.add(true);
        }
        assert_eq!((list.all().len(), list.running().count()), (KEPT, 1));
        assert_eq!(list.one(running).ok(), Some(false));
        assert_eq!(list.one(running + 1).unwrap_err().error, "there is no thing 2");
    }
}
