//! Rates of routes: who shares one, and who waits for it.

use std::collections::{BTreeMap, VecDeque};

use engine::{PathId, Time};

use super::{Stack, Timer};
use crate::tcp::connection::{Connection, RateKey};
use crate::tcp::scps::{Bucket, Wire};

/// A rate, and the connections that wait for it, each once.
#[derive(Debug)]
struct Shared {
    bucket: Bucket,
    waiting: VecDeque<u32>,
}

/// The rates of all routes that have one: of each interface and each configured route one at most.
#[derive(Debug, Default)]
pub(super) struct Rates {
    routes: BTreeMap<RateKey, Shared>,
}

impl Rates {
    /// Lets a connection spend what there is.
    pub(super) fn lend(&mut self, now: Time, key: RateKey, connection: &mut Connection) {
        let Some(shared) = self.routes.get_mut(&key) else { return };
        connection.space.credit = shared.bucket.credit(now);
        connection.space.overhead = shared.bucket.overhead();
    }

    /// A connection is gone.
    pub(super) fn forget(&mut self, index: u32) {
        for shared in self.routes.values_mut() {
            shared.waiting.retain(|other| *other != index);
        }
    }
}

impl Stack {
    /// A connection that asks for a rate shares that of its route, which is as the latest says.
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

    /// A connection has sent what it could: what it spent is gone. It waits if that was too little to
    /// send anything. If it has sent something, those who wait for their turn come first, and it is to
    /// try again behind them: this says so.
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

    /// There is credit again: all who wait may try, in their turn.
    pub(super) fn rate_allows(&mut self, key: RateKey) {
        let Some(shared) = self.rates.routes.get_mut(&key) else { return };
        for index in std::mem::take(&mut shared.waiting) {
            self.slots[index as usize].waits = false;
            self.enqueue(index);
        }
        self.timers.cancel(Timer::Rate(key));
    }

    /// An interface is another than before.
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
