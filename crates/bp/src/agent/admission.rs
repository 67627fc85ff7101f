//! Admission of bundles: by their heads, and by shares of the store, which neighbours and rules
//! have. Arriving bundles reserve room.

use std::collections::BTreeMap;

use engine::Time;

use super::super::layer::Refusal;
use super::config::{Acceptance, By, Limits, Routing};
use super::head::{Head, Key};
use super::intake::Giver;
use super::{Agent, Held, Limit, LinkRef, Reply};
use crate::codec::bp7::{Eid, Reason};

/// Owner of a share of the store.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Account {
    /// Users of this node, and the node itself.
    Here,
    /// A neighbour.
    Neighbour(Eid),
    /// All unknown peers together.
    Strangers,
}

/// Part of the store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Load {
    bundles: usize,
    bytes: u64,
    /// Bytes reserved for arriving bundles.
    arriving: u64,
}

/// A bundle that is arriving.
#[derive(Debug)]
struct Arriving {
    account: Account,
    received: u64,
    reserved: u64,
}

/// Shares of the store.
#[derive(Debug, Default)]
pub(super) struct Shares {
    accounts: BTreeMap<Account, Load>,
    /// Loads by the numbers of the rules.
    rules: BTreeMap<usize, Load>,
    /// Arriving bundles by their numbers.
    arriving: BTreeMap<u64, Arriving>,
    /// Bytes reserved for all of these.
    reserved: u64,
}

impl Shares {
    /// Bytes reserved for arriving bundles.
    pub(super) const fn reserved(&self) -> u64 {
        self.reserved
    }

    /// Reserves room for a bundle that begins to arrive.
    pub(super) fn begin(&mut self, number: u64, account: Account, bytes: u64) {
        self.accounts.entry(account.clone()).or_default().arriving += bytes;
        self.reserved = self.reserved.saturating_add(bytes);
        self.arriving.insert(number, Arriving { account, received: 0, reserved: bytes });
    }

    /// Releases the reservation of a bundle that has arrived or does not arrive any more.
    pub(super) fn end(&mut self, number: u64) {
        let Some(Arriving { account, reserved, .. }) = self.arriving.remove(&number) else {
            return;
        };
        self.reserved = self.reserved.saturating_sub(reserved);
        self.change(&account, |load| load.arriving = load.arriving.saturating_sub(reserved));
    }

    /// Counts received bytes; returns the bytes of the bundle so far.
    pub(super) fn receive(&mut self, number: u64, bytes: u64) -> u64 {
        let Some(arriving) = self.arriving.get_mut(&number) else { return 0 };
        arriving.received = arriving.received.saturating_add(bytes);
        arriving.received
    }

    /// Bytes that a bundle of this length needs beyond its reservation, and whose it is.
    fn missing(&self, number: u64, bytes: u64) -> Option<(Account, u64)> {
        let arriving = self.arriving.get(&number)?;
        let more = bytes.checked_sub(arriving.reserved).filter(|more| *more > 0)?;
        Some((arriving.account.clone(), more))
    }

    fn grow(&mut self, number: u64, more: u64) {
        let Some(arriving) = self.arriving.get_mut(&number) else { return };
        arriving.reserved += more;
        self.reserved += more;
        self.accounts.entry(arriving.account.clone()).or_default().arriving += more;
    }

    /// Arriving bundles of others than users of this node, the youngest first.
    fn youngest(&self) -> impl Iterator<Item = u64> {
        let of_others = self.arriving.iter().filter(|(_, it)| it.account != Account::Here);
        of_others.map(|(number, _)| *number).rev()
    }

    /// Adds a bundle in the store.
    pub(super) fn hold(&mut self, account: Account, rule: Option<usize>, bytes: u64) {
        let account = self.accounts.entry(account).or_default();
        let rule = rule.map(|rule| self.rules.entry(rule).or_default());
        for load in rule.into_iter().chain([account]) {
            load.bundles += 1;
            load.bytes = load.bytes.saturating_add(bytes);
        }
    }

    /// Removes a bundle from the store.
    pub(super) fn release(&mut self, account: &Account, rule: Option<usize>, bytes: u64) {
        let less = |load: &mut Load| {
            load.bundles = load.bundles.saturating_sub(1);
            load.bytes = load.bytes.saturating_sub(bytes);
        };
        if let Some(load) = rule.and_then(|rule| self.rules.get_mut(&rule)) {
            less(load);
        }
        self.change(account, less);
    }

    /// Changes a load, and forgets it once it is empty: names of neighbours must not pile up.
    fn change(&mut self, account: &Account, change: impl FnOnce(&mut Load)) {
        let Some(load) = self.accounts.get_mut(account) else { return };
        change(load);
        if *load == Load::default() {
            self.accounts.remove(account);
        }
    }

    fn load(&self, account: &Account) -> Load {
        self.accounts.get(account).copied().unwrap_or_default()
    }
}

/// A part of a whole, in percent.
const fn part(whole: u64, percent: u8) -> u64 {
    let percent = if percent > 100 { 100 } else { percent as u64 };
    whole / 100 * percent + whole % 100 * percent / 100
}

impl Acceptance {
    fn matches(&self, head: &Head, by: Option<&Eid>) -> bool {
        let is_of_it = match &self.by {
            By::Any => true,
            By::Neighbour(node) => by == Some(node),
            By::Strangers => by.is_none(),
        };
        is_of_it && self.from.matches(head.source()) && self.to.matches(head.destination())
    }
}

impl Agent {
    /// Whose share a bundle of this giver takes, given the neighbour that began it, if known.
    pub(super) fn account(giver: Giver, by: Option<Eid>) -> Account {
        match giver {
            Giver::Layer { .. } => by.map_or(Account::Strangers, Account::Neighbour),
            Giver::User { .. } | Giver::Agent | Giver::Remains | Giver::Fragments => Account::Here,
        }
    }

    /// Whose share a bundle in the store takes, and the number of the rule under which it is there.
    pub(super) fn share_of(&self, held: &Held) -> (Account, Option<usize>) {
        if self.is_ours(held.head.source()) {
            return (Account::Here, None);
        }
        let by = held.arrival.by.as_ref();
        let account = by.cloned().map_or(Account::Strangers, Account::Neighbour);
        (account, self.rule(&held.head, by))
    }

    /// Number of the first rule that matches a bundle of a neighbour.
    fn rule(&self, head: &Head, by: Option<&Eid>) -> Option<usize> {
        self.config.accept.iter().position(|rule| rule.matches(head, by))
    }

    /// Longest lifetime of a bundle here, in milliseconds.
    pub(super) fn lifetime_max(&self, head: &Head, giver: Giver, by: Option<&Eid>) -> u64 {
        let max = self.config.limits.lifetime_ms();
        if giver.is_here() {
            return max;
        }
        let rule = self.rule(head, by);
        rule.map_or(max, |rule| max.min(self.config.accept[rule].lifetime_ms))
    }

    /// Reason to refuse a bundle by the rules.
    pub(super) fn breaks_rule(&self, head: &Head, by: Option<&Eid>) -> Option<Refusal> {
        if !self.config.limits.unrouted && !self.has_use(head.destination()) {
            return Some(Refusal::NotAcceptable);
        }
        let number = self.rule(head, by)?;
        let rule = &self.config.accept[number];
        let bytes = head.payload_len().saturating_add(head.encoded_len() as u64);
        if rule.refuse || bytes > rule.bundle {
            return Some(Refusal::NotAcceptable);
        }
        let load = self.shares.rules.get(&number).copied().unwrap_or_default();
        let is_full = load.bundles >= rule.bundles || load.bytes.saturating_add(bytes) > rule.bytes;
        is_full.then_some(Refusal::NoResources)
    }

    /// Whether bundles for an endpoint can be delivered or forwarded now or later.
    fn has_use(&self, to: &Eid) -> bool {
        if self.is_ours(to) {
            return self.users.is_registered(to) || *to == to.node();
        }
        let is_routed = match &self.config.routing {
            Routing::Epidemic | Routing::Spray { .. } => true,
            Routing::Static(entries) => entries.iter().any(|entry| entry.to.matches(to)),
            Routing::ContactGraph(_, entries) => {
                to.ipn_node().is_some_and(|node| self.planned.leads_to(node))
                    || entries.iter().any(|entry| entry.to.matches(to))
            }
        };
        is_routed || self.forwarder.reaches_discovered(&to.node()) || self.users.is_registered(to)
    }

    /// Percent of the store that an account may take.
    fn percent(&self, account: &Account) -> u8 {
        let Limits { share, strangers_share, reserve, .. } = self.config.limits;
        let open = 100 - reserve.min(100);
        match account {
            Account::Here => 100,
            Account::Neighbour(_) => share.min(open),
            Account::Strangers => strangers_share.min(open),
        }
    }

    /// Whether a bundle of this length is too long for all that an account may take.
    pub(super) fn never_fits(&self, account: &Account, bytes: u64) -> bool {
        bytes > part(self.config.limits.bytes, self.percent(account))
    }

    /// Whether there is room for a bundle in the share of an account.
    pub(super) fn check_share(&mut self, account: &Account, bytes: u64) -> bool {
        if !self.check_room(bytes) {
            return false;
        }
        let Limits { bundles, bytes: most, share, strangers_share, reserve, .. } =
            self.config.limits;
        let share = match account {
            Account::Here => return true,
            Account::Neighbour(_) => share,
            Account::Strangers => strangers_share,
        };
        let Load { bundles: count, bytes: held, arriving } = self.shares.load(account);
        let open = 100 - reserve.min(100);
        let of_all = |percent| part(bundles as u64, percent).max(1);
        let taken = self.bytes.saturating_add(self.shares.reserved());
        let fits = taken.saturating_add(bytes) <= part(most, open)
            && (self.kept() as u64) < of_all(open)
            && held.saturating_add(arriving).saturating_add(bytes) <= part(most, share)
            && (count as u64) < of_all(share);
        if !fits {
            self.user.limit_reached(Limit::Share);
        }
        fits
    }

    /// Reserves room for an arriving bundle, of which this length is known now. Where the store is
    /// full the youngest arriving bundles are refused. Returns whether this one goes on.
    pub(super) fn reserve(&mut self, now: Time, number: u64, bytes: u64) -> bool {
        loop {
            let Some((account, more)) = self.shares.missing(number, bytes) else { return true };
            if self.never_fits(&account, bytes) {
                self.turn_down(now, number, Refusal::NotAcceptable);
                return false;
            }
            if self.check_share(&account, more) {
                self.shares.grow(number, more);
                return true;
            }
            // Others are refused only if that makes room: never for a share that is used up.
            let is_full = !self.check_room(more);
            let is_partial =
                |number: &u64| self.intakes.get(*number).is_some_and(|intake| !intake.is_whole);
            let youngest = self.shares.youngest().find(is_partial).filter(|_| is_full);
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
            None => self.shares.end(number),
            Some(Giver::Layer { layer, link, .. }) if why == Refusal::NotAcceptable => {
                self.note_too_long(now, LinkRef { layer, link });
            }
            Some(_) => {}
        }
    }

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
        returns: u8,
        by: Eid,
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
