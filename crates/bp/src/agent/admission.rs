//! Admission of bundles: by their heads, and by shares of the store, which neighbours and rules
//! have. Arriving bundles reserve room.

use engine::Time;

use super::super::layer::Refusal;
use super::head::Head;
use super::intake::Giver;
use super::{Agent, Held, LinkRef, Reply};
use crate::codec::bp7::{Eid, Reason};

impl Agent {
    /// Longest lifetime of a bundle here, in milliseconds.
    pub(super) fn lifetime_max(&self, head: &Head, giver: Giver, by: Option<&Eid>) -> u64 {
        let max = self.core.config.limits.lifetime_ms();
        if giver.is_here() {
            return max;
        }
        let rule = self.core.rule(head, by);
        rule.map_or(max, |rule| max.min(self.core.config.accept[rule].lifetime_ms))
    }

    /// Reason to refuse a bundle by the rules.
    pub(super) fn breaks_rule(&self, head: &Head, by: Option<&Eid>) -> Option<Refusal> {
        if !self.core.config.limits.unrouted && !self.has_use(head.destination()) {
            return Some(Refusal::NotAcceptable);
        }
        let number = self.core.rule(head, by)?;
        let rule = &self.core.config.accept[number];
        let bytes = head.payload_len().saturating_add(head.encoded_len() as u64);
        if rule.refuse || bytes > rule.bundle {
            return Some(Refusal::NotAcceptable);
        }
        let (bundles, held) = self.core.stock.shares.under(number);
        let is_full = bundles >= rule.bundles || held.saturating_add(bytes) > rule.bytes;
        is_full.then_some(Refusal::NoResources)
    }

    /// Whether bundles for an endpoint can be delivered or forwarded now or later.
    fn has_use(&self, to: &Eid) -> bool {
        if self.core.is_ours(to) {
            return self.core.users.is_registered(to) || *to == to.node();
        }
        self.forwarder.leads_to(&self.core.config, to) || self.core.users.is_registered(to)
    }

    /// Reserves room for an arriving bundle, of which this length is known now. Where the store is
    /// full the youngest arriving bundles are refused. Returns whether this one goes on.
    pub(super) fn reserve(&mut self, now: Time, number: u64, bytes: u64) -> bool {
        loop {
            let Some((account, more)) = self.core.stock.shares.missing(number, bytes) else {
                return true;
            };
            if account.never_fits(&self.core.config.limits, bytes) {
                self.turn_down(now, number, Refusal::NotAcceptable);
                return false;
            }
            if self.core.check_share(&account, more) {
                self.core.stock.shares.grow(number, more);
                return true;
            }
            // Others are refused only if that makes room: never for a share that is used up.
            let is_full = !self.core.check_room(more);
            let is_partial =
                |number: &u64| self.intakes.get(*number).is_some_and(|intake| !intake.is_whole);
            let youngest = self.core.stock.shares.youngest().find(is_partial).filter(|_| is_full);
            let refused = youngest.filter(|youngest| *youngest > number).unwrap_or(number);
            self.turn_down(now, refused, Refusal::NoResources);
            if refused == number {
                return false;
            }
        }
    }

    /// Refuses a bundle that is being received, for want of room now or ever.
    fn turn_down(&mut self, now: Time, number: u64, why: Refusal) {
        match self.refuse_intake(number, why) {
            None => self.core.stock.shares.end(number),
            Some(Giver::Layer { layer, link, .. }) if why == Refusal::NotAcceptable => {
                self.note_too_long(now, LinkRef { layer, link });
            }
            Some(_) => {}
        }
    }

    /// Reason to refuse a bundle as soon as its head has come.
    pub(super) fn refuses(&self, head: &Head) -> Option<Refusal> {
        let is_unused = !self.core.config.versions.contains(&head.version());
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
        head.fault(&self.core.config.limits.head, is_secured || self.core.config.limits.unchecked)
    }

    /// Number of times that a forwarded bundle came back before, and the neighbour from which it
    /// comes now.
    pub(super) fn returns_of(&self, held: &Held) -> Option<(u8, Eid)> {
        let by = held.arrival.by.as_ref().or(held.from.as_ref())?;
        let hops = held.hops(&self.core.config.limits.head);
        let returns = self.core.stock.gone.returns(&held.key(), by, hops)?;
        Some((returns, by.clone()))
    }

    /// Accepts a bundle that comes back (RFC 9171 §5.4.2), but not to send it there again. After
    /// too many returns its giver keeps it.
    pub(super) fn take_returned(
        &mut self,
        held: &mut Held,
        returns: u8,
        by: Eid,
    ) -> Result<(), Option<Reply>> {
        self.core.statistics.returned += 1;
        if returns >= self.core.config.limits.returns {
            return Err(Some(Reply::Refused(Refusal::NotAcceptable)));
        }
        held.arrival.returns = returns + 1;
        held.from = Some(by);
        Ok(())
    }

    /// Whether a bundle has an endpoint of this node as its source, and was not created here. One
    /// that was, and comes back, is here or remembered.
    fn is_not_ours(&self, head: &Head) -> bool {
        let source = head.source();
        if source.is_none() || source.is_local() || !self.core.is_ours(source) {
            return false;
        }
        let key = head.key();
        !self.core.stock.knows(&key) && !self.core.stock.knows(&key.whole())
    }

    /// Refuses a bundle that is being received if its head shows that it is not accepted; returns
    /// whether it does.
    pub(super) fn turn_away(&mut self, number: u64) -> bool {
        let Some(intake) = self.intakes.get(number) else { return true };
        let by = self.begun_by(intake);
        // A duplicate takes no room: it is answered as such once it is whole.
        let is_new = |head: &Head| !self.core.stock.knows(&head.key());
        let fault = |head: &Head| {
            let rule = || is_new(head).then(|| self.breaks_rule(head, by.as_ref())).flatten();
            self.refuses(head).or_else(rule)
        };
        let Some(why) = intake.head().and_then(fault) else { return false };
        self.refuse_intake(number, why);
        true
    }
}
