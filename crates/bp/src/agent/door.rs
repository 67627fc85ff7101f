//! Bundles of neighbours that are not accepted whatever their payload, by their heads.

use crate::codec::bp7::{Eid, Reason};

use super::super::layer::Refusal;
use super::head::{Head, Key};
use super::{Agent, Held, Reply};

impl Agent {
    /// Reason to refuse a bundle as soon as its head has come.
    pub(super) fn refuses(&self, head: &Head) -> Option<Refusal> {
        let is_unused = !self.config.versions.contains(&head.version());
        (is_unused || self.is_not_ours(head)).then_some(Refusal::NotAcceptable)
    }

    /// Reason to delete a bundle that has come.
    pub(super) fn rejects(&self, head: &Head, is_secured: bool) -> Option<Reason> {
        // LocalNode is of each node, and crosses no link (RFC 9758 §5.4).
        let named = [head.source(), head.destination(), head.report_to()];
        if named.into_iter().any(Eid::is_local) || head.destination().is_none() {
            return Some(Reason::DestinationUnavailable);
        }
        // An acceptor has removed the signature.
        head.fault(&self.config.limits.head, is_secured || self.config.limits.unchecked)
    }

    /// Number of times that a forwarded bundle came back before, and the neighbour from which it
    /// comes now.
    pub(super) fn returns_of(&self, held: &Held) -> Option<(u8, Eid)> {
        let by = held.arrival.by.as_ref().or(held.from.as_ref())?;
        let hops = held.hops(&self.config.limits.head);
        let returns = self.gone.returns(&held.key(), by, hops)?;
        Some((returns, by.clone()))
    }

    /// Accepts a bundle that comes back (RFC 9171 §5.4.2), but not to send it there again. After
    /// too many returns its giver keeps it.
    pub(super) fn take_returned(
        &mut self,
        held: &mut Held,
        (returns, by): (u8, Eid),
    ) -> Result<(), Option<Reply>> {
        self.statistics.returned += 1;
        if returns >= self.config.limits.returns {
            return Err(Some(Reply::Refused(Refusal::NotAcceptable)));
        }
        held.arrival.returns = returns + 1;
        held.from = Some(by);
        Ok(())
    }

    /// Whether a bundle is here, or was here and is remembered. One without a source has no identity.
    pub(super) fn knows(&self, key: &Key) -> bool {
        !key.source.is_none() && self.by_key.contains_key(key) || self.gone.contains(key)
    }

    /// Whether a bundle has an endpoint of this node as its source, and was not created here. One
    /// that was, and comes back, is here or remembered.
    fn is_not_ours(&self, head: &Head) -> bool {
        let source = head.source();
        if source.is_none() || source.is_local() || !self.is_ours(source) {
            return false;
        }
        let key = head.key();
        !self.knows(&key) && !self.knows(&key.whole())
    }

    /// Refuses a bundle that is being received if its head shows that it is not accepted; returns
    /// whether it does.
    pub(super) fn turn_away(&mut self, number: u64) -> bool {
        let Some(intake) = self.intakes.get(number) else { return true };
        let by = self.begun_by(intake);
        // A duplicate takes no room: it is answered as such once it is whole.
        let is_new = |head: &Head| !self.knows(&head.key());
        let fault = |head: &Head| {
            let rule = || is_new(head).then(|| self.breaks_rule(head, by.as_ref())).flatten();
            self.refuses(head).or_else(rule)
        };
        let Some(why) = intake.head().and_then(fault) else { return false };
        self.refuse_intake(number, why);
        true
    }
}
