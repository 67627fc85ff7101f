//! What an agent has, for those who ask, and what becomes of it by their word.

use engine::{FileName, Time};
use wire::bp7::{BundleId, Eid, Reason};

use super::head::Key;
use super::{Agent, RequestError};

/// A bundle that is held.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Summary {
    /// Which.
    pub id: BundleId,
    /// For whom.
    pub destination: Eid,
    /// Bytes that it takes.
    pub bytes: u64,
    /// When it came.
    pub received: Time,
    /// When it expires.
    pub expires: Time,
    /// What it waits for.
    pub state: State,
}

/// What a bundle waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum State {
    /// That the store has it.
    Storing,
    /// That its user confirms it.
    Delivering,
    /// That a neighbour acknowledges it.
    Sending,
    /// That a neighbour can be reached.
    Queued,
    /// For a route, or a user.
    Waiting,
}

impl State {
    /// In a word.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Storing => "storing",
            Self::Delivering => "delivering",
            Self::Sending => "sending",
            Self::Queued => "queued",
            Self::Waiting => "waiting",
        }
    }
}

impl Agent {
    /// The bundles that are held, in the order in which they came.
    pub fn bundles(&self) -> impl Iterator<Item = Summary> + '_ {
        self.bundles.values().map(|held| Summary {
            id: held.id(),
            destination: held.destination().clone(),
            bytes: held.bytes(),
            received: held.received,
            expires: held.expires,
            state: if held.storing {
                State::Storing
            } else if held.delivering {
                State::Delivering
            } else if !held.sending.is_empty() {
                State::Sending
            } else if held.queued.is_empty() {
                State::Waiting
            } else {
                State::Queued
            },
        })
    }

    /// Deletes a bundle that a user wants no longer.
    ///
    /// # Errors
    /// There is no such bundle, or it is only just being stored.
    pub fn cancel(&mut self, now: Time, id: &BundleId) -> Result<(), RequestError> {
        let number = self.number_of(id).ok_or(RequestError::NoBundle)?;
        if self.bundles.get(&number).is_some_and(|held| held.storing) {
            return Err(RequestError::NotReady);
        }
        self.delete(now, number, Reason::TransmissionCanceled);
        self.pump_freed(now);
        Ok(())
    }

    fn number_of(&self, id: &BundleId) -> Option<u64> {
        let is_it = |(key, _): &(&Key, &u64)| {
            key.source == id.source
                && key.creation == id.creation
                && key.fragment.map(|(offset, _)| offset) == id.offset
        };
        self.by_key.iter().find(is_it).map(|(_, number)| *number)
    }

    /// A name in the store for a payload that a user writes there before it is sent from it. What is never
    /// sent is removed when the agent begins the next time.
    pub fn working_file(&mut self) -> FileName {
        let number = self.number();
        self.store.file_name(number)
    }
}
