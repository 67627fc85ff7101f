//! Inventory of an agent's bundles, and their cancellation by users.

use engine::{FileName, Time};
use wire::bp7::{BundleId, Eid, Reason};

use super::head::Key;
use super::{Agent, RequestError};

/// Summary of a bundle in the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Summary {
    /// Identity.
    pub id: BundleId,
    /// Destination.
    pub destination: Eid,
    /// Bytes in the store.
    pub bytes: u64,
    /// Time of arrival.
    pub received: Time,
    /// Time of expiry.
    pub expires: Time,
    /// State.
    pub state: State,
}

/// Event a bundle waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum State {
    /// Record in the store.
    Storing,
    /// Confirmation by its user.
    Delivering,
    /// Acknowledgment by a neighbour.
    Sending,
    /// Contact with a neighbour.
    Queued,
    /// A route, or a user.
    Waiting,
}

impl State {
    /// Name in lower case.
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
    /// Bundles in the store, in order of arrival.
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

    /// Deletes a bundle on a user's request.
    ///
    /// # Errors
    ///
    /// There is no such bundle, or it is just being stored.
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

    /// Name of a new file in the store to which a user writes a payload before sending it. Files
    /// that are never sent are removed at the next start.
    pub fn working_file(&mut self) -> FileName {
        let number = self.number();
        self.store.file_name(number)
    }
}
