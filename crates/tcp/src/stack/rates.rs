//! Rates of routes: their connections, and those that wait.

use std::collections::{BTreeMap, VecDeque};

use engine::{PathId, Time};

use super::{Stack, Timer};
use crate::connection::{Connection, RateKey};
use crate::scps::{Bucket, Wire};

/// Rate, and the connections that wait for it, each once.
#[derive(Debug)]
struct Shared {
    bucket: Bucket,
    waiting: VecDeque<u32>,
}

/// Rates of routes, at most one per interface and configured route.
#[derive(Debug, Default)]
pub(super) struct Rates {
    routes: BTreeMap<RateKey, Shared>,
}

impl Rates {
    /// Lends a connection the available credit.
    pub(super) fn lend(&mut self, now: Time, key: RateKey, connection: &mut Connection) {
        let Some(shared) = self.routes.get_mut(&key) else { return };
        connection.space.credit = shared.bucket.credit(now);
        connection.space.overhead = shared.bucket.overhead();
    }

    /// Forgets a connection that no longer exists.
    pub(super) fn forget(&mut self, index: u32) {
        for shared in self.routes.values_mut() {
            shared.waiting.retain(|other| *other != index);
        }
    }
}

impl Stack {
    /// Has a connection share its route's rate, with the settings of the latest one.
    pub(super) fn share_rate(&mut self, now: Time, index: u32) {
        let Some(connection) = self.slots[index as usize].connection.as_deref() else { return };
        let Some(control) = connection.rate_control() else { return };
        let path = connection.path;
        let remote = connection.flow.tuple.remote.ip();
        let route = self.route_number(remote);
        let own = route.filter(|number| self.config.routes[*number as usize].path == path);
        let key = (path, own);
        let wire = self.wire(path);
        match self.rates.routes.get_mut(&key) {
            Some(shared) => shared.bucket.set(now, control, wire),
            None => {
                let shared =
                    Shared { bucket: Bucket::new(now, control, wire), waiting: VecDeque::new() };
                self.rates.routes.insert(key, shared);
            }
        }
        if let Some(connection) = self.slots[index as usize].connection.as_deref_mut() {
            connection.space.rate_key = Some(key);
        }
        self.rate_allows(key);
    }

    fn wire(&self, path: PathId) -> Wire {
        let interface = self.interfaces.get(&path);
        interface.map_or(Wire { mtu: 576, rate_bps: None, overhead: 0 }, |interface| Wire {
            mtu: interface.mtu,
            rate_bps: interface.rate_bps,
            overhead: interface.overhead,
        })
    }

    /// Takes back unused credit after a connection has sent what it could. It waits if there was
    /// too little credit to send anything. If it has sent something, waiting connections come
    /// first, and it tries again after them: returns whether that is so.
    pub(super) fn return_credit(&mut self, now: Time, index: u32, has_sent: bool) -> bool {
        let slot = &mut self.slots[index as usize];
        let Some(connection) = slot.connection.as_deref_mut() else { return false };
        let (left, starved) = (connection.space.credit.take(), connection.space.starved.take());
        let Some(key) = connection.space.rate_key else { return false };
        let Some(shared) = self.rates.routes.get_mut(&key) else { return false };
        let Some((before, left)) = shared.bucket.credit(now).zip(left) else { return false };
        shared.bucket.spend(before.saturating_sub(left));
        let Some(cost) = starved else { return false };
        if !has_sent {
            slot.waits = true;
            shared.waiting.push_back(index);
            let at = shared.bucket.ready_at(now, cost);
            let sooner = self.timers.get(Timer::Rate(key)).is_some_and(|timer| timer.at <= at);
            if !sooner {
                self.timers.set(Timer::Rate(key), at, "rate of a route");
            }
        }
        has_sent
    }

    /// Lets all waiting connections try in turn when there is credit again.
    pub(super) fn rate_allows(&mut self, key: RateKey) {
        let Some(shared) = self.rates.routes.get_mut(&key) else { return };
        for index in std::mem::take(&mut shared.waiting) {
            self.slots[index as usize].waits = false;
            self.enqueue(index);
        }
        self.timers.cancel(Timer::Rate(key));
    }

    /// Applies a change of an interface.
    pub(super) fn rates_changed(&mut self, now: Time, path: PathId) {
        let wire = self.wire(path);
        let keys: Vec<_> = self.rates.routes.keys().filter(|key| key.0 == path).copied().collect();
        for key in keys {
            if let Some(shared) = self.rates.routes.get_mut(&key) {
                let control = shared.bucket.control();
                shared.bucket.set(now, control, wire);
            }
            self.rate_allows(key);
        }
    }
}
