//! Tickets of the parts of an engine.

use std::collections::BTreeMap;

use crate::{Effect, Ticket};

/// Renumbers the tickets of an engine's parts, each of which numbers its own effects.
#[derive(Debug)]
pub struct Tickets<O> {
    owners: BTreeMap<Ticket, (O, Ticket)>,
    next: u64,
}

impl<O> Default for Tickets<O> {
    fn default() -> Self {
        Self { owners: BTreeMap::new(), next: 0 }
    }
}

impl<O> Tickets<O> {
    /// No tickets.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Gives an effect of `owner` a ticket that is unique among all of them.
    #[must_use]
    pub fn renumbered(&mut self, owner: O, mut effect: Effect) -> Effect {
        if let Some(theirs) = effect.ticket() {
            let ours = Ticket(self.next);
            self.next += 1;
            self.owners.insert(ours, (owner, theirs));
            effect.set_ticket(ours);
        }
        effect
    }

    /// Returns the owner of a completed effect, and its own ticket; `None` if there is no such
    /// effect.
    pub fn take(&mut self, ticket: Ticket) -> Option<(O, Ticket)> {
        self.owners.remove(&ticket)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{FileId, StoreEffect};

    #[test]
    fn parts_with_equal_tickets_are_told_apart() {
        let mut tickets = Tickets::new();
        let sync = |ticket| Effect::Store(StoreEffect::Sync { ticket, file: FileId(1) });
        let ours = ["a", "b"].map(|owner| tickets.renumbered(owner, sync(Ticket(7))).ticket());
        assert_ne!(ours[0], ours[1]);
        let close = Effect::Store(StoreEffect::Close { file: FileId(1) });
        assert_eq!(tickets.renumbered("a", close.clone()), close);
        assert_eq!(tickets.take(ours[1].unwrap()), Some(("b", Ticket(7))));
        assert_eq!(tickets.take(ours[1].unwrap()), None);
        assert_eq!(tickets.take(ours[0].unwrap()), Some(("a", Ticket(7))));
    }
}
