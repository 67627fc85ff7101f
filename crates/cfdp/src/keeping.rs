//! Durability of received parts, for a layer that guarantees the data it delivers.

use engine::Time;

use crate::pdu::TransactionId;

use super::{Entity, Transaction};

/// Part of a transaction carried by a PDU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// Description of the file.
    Metadata,
    /// File data.
    Data {
        /// Offset in the file.
        offset: u64,
        /// Bytes of data.
        len: u64,
    },
    /// End of the file.
    End,
}

/// Durability of a received part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keeping {
    /// No such reception is under way or remembered.
    Unknown,
    /// Dropped for lack of room.
    Dropped,
    /// Received, and lost after a restart.
    Taken,
    /// Preserved across a restart. Also returned if no records are kept, so that nothing would be
    /// preserved.
    Safe,
    /// The reception has ended.
    Over,
}

impl Entity {
    /// Durability of a part of a received file.
    pub fn keeping(&self, id: TransactionId, part: Part) -> Keeping {
        let under_way = self.by_id.get(&id).and_then(|handle| self.slots.get(*handle));
        match under_way {
            Some(Transaction::Receiver(receiver)) => receiver.keeping(&self.core, part),
            Some(Transaction::Sender(_)) => Keeping::Over,
            None if self.closed.get(id).is_some() => Keeping::Over,
            None => Keeping::Unknown,
        }
    }

    /// Saves the progress of a reception without waiting for the [journal](super::JournalPolicy)'s
    /// next time.
    pub fn keep(&mut self, now: Time, id: TransactionId) {
        let handle = self.by_id.get(&id);
        if let Some(Transaction::Receiver(receiver)) =
            handle.and_then(|handle| self.slots.get_mut(*handle))
        {
            receiver.keep(&mut self.core, now);
        }
    }
}
