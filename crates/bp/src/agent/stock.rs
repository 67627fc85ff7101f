//! Bundles of an agent, and the settings and outputs that its decisions share.
//!
//! Keys of users' requests are kept as long as their bundles are held or remembered, so these
//! bounds are also those of keys. In a persistent store a key has a record, written before that of
//! the bundle.

use std::collections::{BTreeMap, BTreeSet, VecDeque, btree_map};
use std::ops::RangeBounds;

use engine::{EffectError, Time, Timers};
use session::User;
use session::timer::TICK;

use super::clock::{Clock, Clocks, Life, NOTE, since_boot};
use super::gone::{Gone, Left};
use super::head::{Head, Key};
use super::held::{Apart, Held};
use super::indication::Discards;
use super::numbers::Numbers;
use super::shares::{Account, Shares, part};
use super::store::{Job, Record, RequestRecord, Store};
use super::users::Users;
use super::{Alarm, Config, Indication, Limit, Limits, Statistics};
use crate::codec::bp7::{BundleId, Eid, Reason};
use crate::layer::{Command, Content};

/// Bundles in the store, and those that were there.
#[derive(Debug)]
pub(super) struct Stock {
    pub(super) bundles: BTreeMap<u64, Box<Held>>,
    pub(super) by_key: BTreeMap<Key, u64>,
    by_expiry: BTreeSet<(Time, u64)>,
    pub(super) gone: Gone,
    pub(super) requests: Requests,
    pub(super) shares: Shares,
    /// Bytes in the store.
    pub(super) bytes: u64,
    /// Bytes in memory.
    pub(super) memory: usize,
    pub(super) assigned: Numbers,
    pub(super) store: Store,
    /// Clock of records, which goes on from run to run.
    pub(super) life: Life,
    /// Whether the records of an earlier run are read.
    pub(super) is_ready: bool,
}

impl Stock {
    pub(super) fn get(&self, number: u64) -> Option<&Held> {
        self.bundles.get(&number).map(Box::as_ref)
    }

    pub(super) fn get_mut(&mut self, number: u64) -> Option<&mut Held> {
        self.bundles.get_mut(&number).map(Box::as_mut)
    }

    /// Numbers of bundles in a range.
    pub(super) fn numbers(&self, range: impl RangeBounds<u64>) -> Vec<u64> {
        self.bundles.range(range).map(|(number, _)| *number).collect()
    }

    /// Whether a bundle is here, or was here and is remembered. One without a source has no
    /// identity.
    pub(super) fn knows(&self, key: &Key) -> bool {
        !key.source.is_none() && self.by_key.contains_key(key) || self.gone.contains(key)
    }

    /// Bundles that take room in the store, including those whose end is not recorded yet.
    pub(super) fn kept(&self) -> usize {
        self.bundles.len() + self.store.refused.len()
    }

    /// Bytes in the store, and of arriving bundles.
    pub(super) fn taken(&self) -> u64 {
        self.bytes.saturating_add(self.shares.reserved())
    }

    /// Whether a bundle has room in the share of an account.
    fn fits(&self, limits: &Limits, account: &Account, bytes: u64) -> bool {
        let Some(share) = account.share(limits) else { return true };
        let load = self.shares.load(account);
        let open = 100 - limits.reserve.min(100);
        let of_all = |percent| part(limits.bundles as u64, percent).max(1);
        let taken = self.taken().saturating_add(bytes);
        let of_account = load.bytes.saturating_add(load.arriving).saturating_add(bytes);
        taken <= part(limits.bytes, open)
            && (self.kept() as u64) < of_all(open)
            && of_account <= part(limits.bytes, share)
            && (load.bundles as u64) < of_all(share)
    }

    /// Bundle that has expired.
    pub(super) fn next_expired(&self, now: Time) -> Option<u64> {
        self.by_expiry.first().filter(|(at, _)| *at <= now).map(|(_, number)| *number)
    }

    /// Changes the expiry of a bundle.
    pub(super) fn expire_at(&mut self, number: u64, expires: Time) {
        let Some(held) = self.bundles.get_mut(&number) else { return };
        self.by_expiry.remove(&(held.expires, number));
        held.expires = expires;
        self.by_expiry.insert((expires, number));
    }
}

/// Settings, bundles and outputs of an agent.
#[derive(Debug)]
pub(super) struct Core {
    pub(super) config: Config,
    pub(super) stock: Stock,
    pub(super) users: Users,
    pub(super) discards: Discards,
    pub(super) commands: VecDeque<(usize, Command)>,
    pub(super) user: User<Indication, Limit>,
    pub(super) timers: Timers<Alarm>,
    pub(super) statistics: Statistics,
}

impl Core {
    /// Empty store; without a clock, sequence numbers begin at `first`.
    pub(super) fn new(config: Config, store: Store, first: u64) -> Self {
        Self {
            stock: Stock {
                bundles: BTreeMap::new(),
                by_key: BTreeMap::new(),
                by_expiry: BTreeSet::new(),
                gone: Gone::default(),
                requests: Requests::default(),
                shares: Shares::default(),
                bytes: 0,
                memory: 0,
                assigned: Numbers::new(first),
                store,
                life: Life::new(config.clock),
                is_ready: false,
            },
            config,
            users: Users::default(),
            discards: Discards::default(),
            commands: VecDeque::new(),
            user: User::new(),
            timers: Timers::new(),
            statistics: Statistics::default(),
        }
    }

    /// Whether an endpoint belongs to this node.
    pub(super) fn is_ours(&self, eid: &Eid) -> bool {
        let node = eid.node();
        node == self.config.node || self.config.aliases.contains(&node) || eid.is_local()
    }

    /// Whether bundles for an endpoint are delivered here.
    pub(super) fn is_for_us(&self, eid: &Eid) -> bool {
        self.is_ours(eid) || self.users.is_registered(eid)
    }

    pub(super) fn command(&mut self, layer: usize, command: Command) {
        self.commands.push_back((layer, command));
    }

    /// Next number for a bundle, its file and its record.
    pub(super) fn allocate_number(&mut self) -> u64 {
        self.stock.assigned.next()
    }

    pub(super) const fn clock(&self) -> Clock {
        Clock { dtn: self.config.clock, kept: self.stock.life.kept }
    }

    /// Whether there is room for `bytes` more bytes.
    pub(super) fn check_room(&mut self, bytes: u64) -> bool {
        let limits = self.config.limits;
        if self.stock.kept() >= limits.bundles {
            self.user.limit_reached(Limit::Bundles);
            return false;
        }
        if self.stock.taken().saturating_add(bytes) > limits.bytes {
            self.user.limit_reached(Limit::Bytes);
            return false;
        }
        true
    }

    /// Whether there is room for a bundle in the share of an account.
    pub(super) fn check_share(&mut self, account: &Account, bytes: u64) -> bool {
        if !self.check_room(bytes) {
            return false;
        }
        let fits = self.stock.fits(&self.config.limits, account, bytes);
        if !fits {
            self.user.limit_reached(Limit::Share);
        }
        fits
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
    pub(super) fn rule(&self, head: &Head, by: Option<&Eid>) -> Option<usize> {
        self.config
            .accept
            .iter()
            .position(|rule| rule.matches(head.source(), head.destination(), by))
    }

    /// Stores the record of a bundle, and its payload if that is apart.
    pub(super) fn put(&mut self, held: &Held) {
        let number = held.number;
        let record = held.encode(self.clock());
        if let (Content::Bytes(payload), Some(Apart::Record)) = (&held.payload, held.apart()) {
            self.stock.store.put_payload(number, payload.clone());
        }
        self.stock.store.put(Job::Put { number }, number, record);
    }

    /// Replaces the record of a bundle whose times have changed.
    pub(super) fn record_again(&mut self, number: u64) {
        let Some(held) = self.stock.get(number).filter(|_| self.config.persistent) else { return };
        let record = held.encode(self.clock());
        self.stock.store.put(Job::Forget, number, record);
    }

    /// Adds a bundle to the lists.
    pub(super) fn insert(&mut self, held: Box<Held>) {
        let number = held.number;
        let (account, rule) = self.share_of(&held);
        let stock = &mut self.stock;
        stock.bytes = stock.bytes.saturating_add(held.bytes());
        if let Content::Bytes(bytes) = &held.payload {
            stock.memory += bytes.len();
        }
        stock.shares.hold(account, rule, held.bytes());
        stock.by_key.entry(held.key()).or_insert(number);
        stock.by_expiry.insert((held.expires, number));
        stock.bundles.insert(number, held);
    }

    /// Removes a bundle from the lists.
    pub(super) fn remove(&mut self, number: u64) -> Option<Box<Held>> {
        let held = self.stock.bundles.remove(&number)?;
        let (account, rule) = self.share_of(&held);
        let stock = &mut self.stock;
        if let btree_map::Entry::Occupied(known) = stock.by_key.entry(held.key())
            && *known.get() == number
        {
            known.remove();
        }
        stock.by_expiry.remove(&(held.expires, number));
        stock.bytes = stock.bytes.saturating_sub(held.bytes());
        stock.shares.release(&account, rule, held.bytes());
        if let Content::Bytes(bytes) = &held.payload {
            stock.memory = stock.memory.saturating_sub(bytes.len());
        }
        self.users.forget(held.destination(), number);
        Some(held)
    }

    /// Remembers a removed bundle until it expires, and deletes its payload.
    pub(super) fn remember(&mut self, held: &Held, left: &Left) {
        let number = held.number;
        // A bundle without a source is not recognized: it only keeps its request.
        let key = if held.head.is_anonymous() {
            Key::of_number(held.head.version(), number)
        } else {
            held.key()
        };
        if self.config.persistent {
            if let Some(before) = self.stock.gone.number(&key) {
                self.stock.store.remove(before);
            }
            let expires_ms = self.clock().kept_ms(held.expires);
            let record = Record::Gone { key: key.clone(), expires_ms, left: left.clone() };
            self.stock.store.put_gone(number, record.encode(), held.apart());
        } else {
            self.delete_own_file(held);
        }
        let max = self.config.limits.gone;
        if let Some(oldest) = self.stock.gone.insert(max, key, number, left, held.expires) {
            self.forget_remembered(oldest);
        }
        self.arm_expiry();
    }

    /// Forgets remembered bundles that have expired.
    pub(super) fn forget_gone(&mut self, now: Time) {
        while let Some(number) = self.stock.gone.pop_expired(now) {
            self.forget_remembered(number);
        }
        self.arm_expiry();
    }

    fn forget_remembered(&mut self, number: u64) {
        self.forget_request(number);
        if self.config.persistent {
            self.stock.store.remove(number);
        }
    }

    /// Deletes the file of a bundle that is not kept.
    pub(super) fn delete_own_file(&mut self, held: &Held) {
        if let Some(name) = held.own_file() {
            self.stock.store.delete(name.clone());
        }
    }

    /// Records the request of a bundle that is about to be stored.
    pub(super) fn note_request(&mut self, bundle: u64, key: u128, id: BundleId) {
        let request = RequestRecord { key, bundle, id };
        let mut record = 0;
        if self.config.persistent {
            record = self.allocate_number();
            let value = Record::Request(request.clone()).encode();
            self.stock.store.put(Job::Forget, record, value);
        }
        self.stock.requests.insert(record, request);
    }

    /// Forgets the request of a bundle that is no longer held or remembered.
    pub(super) fn forget_request(&mut self, bundle: u64) {
        if let Some(record) = self.stock.requests.forget(bundle)
            && self.config.persistent
        {
            self.stock.store.remove(record);
        }
    }

    pub(super) fn arm_expiry(&mut self) {
        let expiry = self.stock.by_expiry.first().map(|(at, _)| *at);
        self.timers.set_or_cancel(Alarm::Expiry, expiry, "a bundle's expiry");
        let gone = self.stock.gone.next();
        self.timers.set_or_cancel(Alarm::Gone, gone, "the expiry of a remembered bundle");
    }

    /// Reason of an expiry: a bundle's own lifetime is over, or only the bound of this node (RFC
    /// 9171 §5.5).
    pub(super) fn end_of_life(&self, now: Time, held: &Held) -> Reason {
        let made_ms = held.head.creation().time_ms;
        let by_clock = self.clock().dtn_time(now).filter(|_| made_ms > 0);
        let age_ms = by_clock.map_or_else(|| held.age_ms(now), |ms| ms.saturating_sub(made_ms));
        if age_ms >= held.head.lifetime_ms() {
            Reason::LifetimeExpired
        } else {
            Reason::TrafficPared
        }
    }

    /// Cancels the transmissions of a bundle.
    pub(super) fn cancel_sending(&mut self, number: u64) {
        let Some(held) = self.stock.get(number) else { return };
        for (at, tag) in held.sending.keys() {
            self.commands.push_back((at.layer, Command::Cancel { link: at.link, tag: *tag }));
        }
    }

    /// Reports that the store did not take a bundle.
    pub(super) fn on_store_failure(&mut self, error: EffectError) {
        if error == EffectError::NoSpace {
            self.user.limit_reached(Limit::Bytes);
        } else {
            self.user.indicate(Indication::StoreFailed(error));
        }
    }

    /// Starts the back-off after the store did not record a discarded bundle.
    pub(super) fn on_unrecorded(&mut self, now: Time, error: EffectError) {
        if self.stock.store.refused.len() == 1 {
            self.user.indicate(Indication::StoreFailed(error));
            let at = now + self.stock.store.next_back_off();
            self.timers.set(Alarm::Record, at, "a retry of unstored records");
        }
    }

    /// Records all clocks, and does so again in a minute while there are bundles.
    pub(super) fn note_clocks(&mut self, now: Time) {
        if !self.config.persistent || !self.stock.is_ready {
            return;
        }
        let clock = self.clock();
        let boot = self.config.boot.map(|boot| since_boot(boot, now));
        let clocks = Clocks { kept_ms: clock.kept_ms(now), boot, dtn_ms: clock.dtn_time(now) };
        self.stock.store.put_clocks(Record::Clocks(clocks).encode());
        self.stock.life.noted = Some(now);
        self.arm_clock_record(now);
    }

    /// Sets the timer of the next record of the clocks. Where runs have no boot, the wall clock
    /// suffices.
    pub(super) fn arm_clock_record(&mut self, now: Time) {
        if !self.config.persistent || self.config.boot.is_none() || self.stock.bundles.is_empty() {
            return;
        }
        let noted = self.stock.life.noted.map_or(now, |noted| noted + NOTE);
        if self.timers.get(Alarm::Clocks).is_none() {
            self.timers.set(Alarm::Clocks, noted.max(now + TICK), "the next record of the clocks");
        }
    }
}

/// A request that sent a bundle.
#[derive(Clone, Debug)]
struct Done {
    id: BundleId,
    /// Number of the bundle.
    bundle: u64,
}

/// Keys of requests whose bundles are in the store, or were.
#[derive(Debug, Default)]
pub(super) struct Requests {
    by_key: BTreeMap<u128, Done>,
    /// Key and number of its record, by the number of the bundle.
    by_bundle: BTreeMap<u64, (u128, u64)>,
}

impl Requests {
    /// Records the bundle of a request.
    pub(super) fn insert(&mut self, record: u64, request: RequestRecord) {
        let RequestRecord { key, bundle, id } = request;
        self.by_key.insert(key, Done { id, bundle });
        self.by_bundle.insert(bundle, (key, record));
    }

    /// Forgets the request of a bundle. Returns the number of its record.
    pub(super) fn forget(&mut self, bundle: u64) -> Option<u64> {
        let (key, record) = self.by_bundle.remove(&bundle)?;
        if self.by_key.get(&key).is_some_and(|done| done.bundle == bundle) {
            self.by_key.remove(&key);
        }
        Some(record)
    }

    /// Bundle of the request with this key.
    pub(super) fn sent_for(&self, key: u128) -> Option<&BundleId> {
        self.by_key.get(&key).map(|done| &done.id)
    }
}
