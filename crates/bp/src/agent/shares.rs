//! Shares of the store, which neighbours and rules have. Arriving bundles reserve room.

use std::collections::BTreeMap;

use super::config::Limits;
use super::intake::Giver;
use crate::codec::bp7::Eid;

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

impl Account {
    /// Whose share a bundle of this giver takes, given the neighbour that began it, if known.
    pub(super) fn new(giver: Giver, by: Option<Eid>) -> Self {
        match giver {
            Giver::Layer { .. } => by.map_or(Self::Strangers, Self::Neighbour),
            Giver::User { .. } | Giver::Agent | Giver::Remains | Giver::Fragments => Self::Here,
        }
    }

    /// Percent of the store that the account may take; none if there is no bound.
    pub(super) const fn share(&self, limits: &Limits) -> Option<u8> {
        match self {
            Self::Here => None,
            Self::Neighbour(_) => Some(limits.share),
            Self::Strangers => Some(limits.strangers_share),
        }
    }

    /// Whether a bundle of this length is too long for all that the account may take.
    pub(super) fn never_fits(&self, limits: &Limits, bytes: u64) -> bool {
        let open = 100 - limits.reserve.min(100);
        bytes > part(limits.bytes, self.share(limits).map_or(100, |share| share.min(open)))
    }
}

/// Part of the store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Load {
    pub(super) bundles: usize,
    pub(super) bytes: u64,
    /// Bytes reserved for arriving bundles.
    pub(super) arriving: u64,
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
    pub(super) fn missing(&self, number: u64, bytes: u64) -> Option<(Account, u64)> {
        let arriving = self.arriving.get(&number)?;
        let more = bytes.checked_sub(arriving.reserved).filter(|more| *more > 0)?;
        Some((arriving.account.clone(), more))
    }

    pub(super) fn grow(&mut self, number: u64, more: u64) {
        let Some(arriving) = self.arriving.get_mut(&number) else { return };
        arriving.reserved += more;
        self.reserved += more;
        self.accounts.entry(arriving.account.clone()).or_default().arriving += more;
    }

    /// Arriving bundles of others than users of this node, the youngest first.
    pub(super) fn youngest(&self) -> impl Iterator<Item = u64> {
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

    /// Bundles and bytes of an account.
    pub(super) fn load(&self, account: &Account) -> Load {
        self.accounts.get(account).copied().unwrap_or_default()
    }

    /// Bundles and bytes under a rule.
    pub(super) fn under(&self, rule: usize) -> Load {
        self.rules.get(&rule).copied().unwrap_or_default()
    }
}

/// A part of a whole, in percent.
pub(super) const fn part(whole: u64, percent: u8) -> u64 {
    let percent = if percent > 100 { 100 } else { percent as u64 };
    whole / 100 * percent + whole % 100 * percent / 100
}
