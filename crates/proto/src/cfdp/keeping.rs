//! For a layer that answers for what it delivers: what of a reception would survive a restart.

use wire::cfdp::TransactionId;

use super::{Entity, Transaction};

/// A part of a transaction that a PDU brings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// What describes the file.
    Metadata,
    /// So many bytes of the file, from here on.
    Data { offset: u64, len: u64 },
    /// The end of the file.
    End,
}

/// What became of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Keeping {
    /// There is no such reception, and was none that is remembered.
    Unknown,
    /// There was no room for it.
    Dropped,
    /// It is here, and would be gone after a restart.
    Taken,
    /// It would be here after a restart, too; or nothing here would, because no records are kept.
    Safe,
    /// The reception is over.
    Over,
}

impl Entity {
    /// What became of a part of a file that is received.
    pub(crate) fn keeping(&self, id: TransactionId, part: Part) -> Keeping {
        let under_way = self.by_id.get(&id).and_then(|handle| self.slots.get(*handle));
        match under_way {
            Some(Transaction::Receiver(receiver)) => receiver.keeping(&self.core, part),
            Some(Transaction::Sender(_)) => Keeping::Over,
            None if self.closed.get(id).is_some() => Keeping::Over,
            None => Keeping::Unknown,
        }
    }

    /// Has what came of a file saved without waiting for the next time that the [journal](super::JournalPolicy) names.
    pub(crate) fn keep(&mut self, id: TransactionId) {
        let handle = self.by_id.get(&id);
        if let Some(Transaction::Receiver(receiver)) =
            handle.and_then(|handle| self.slots.get_mut(*handle))
        {
            receiver.keep(&mut self.core);
        }
    }
}
