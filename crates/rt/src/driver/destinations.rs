//! Configured peers of a driver, which may have host names and change while it runs.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use crossbeam_channel::Receiver;
use engine::{Engine, PathId};

use super::Driver;
use crate::lookup::Destination;

impl<E: Engine> Driver<E> {
    /// Replaces the configured peers, whose paths have these numbers. A name is resolved at once
    /// and then every minute; its path comes up with the first address of the socket's family.
    pub fn set_peers(&mut self, peers: BTreeMap<PathId, Destination>) {
        let former = std::mem::take(&mut self.configured);
        let over = former.iter().filter(|&(path, to)| peers.get(path) != Some(to));
        for (path, _) in over {
            self.names.remove(*path);
            self.drop_peer(*path);
        }
        for (path, to) in peers.iter().filter(|&(path, to)| former.get(path) != Some(to)) {
            match to {
                Destination::Address(address) => self.aim(*path, *address),
                Destination::Host(host) => self.names.insert(*path, host.clone()),
            }
        }
        self.configured = peers;
    }

    /// Replaces the configured peers by what comes through a channel. The sender wakes the driver.
    pub fn follow_peers(&mut self, updates: Receiver<BTreeMap<PathId, Destination>>) {
        self.updates = Some(updates);
    }

    /// Handles new peers, and new addresses of names.
    pub(super) fn look_for_peers(&mut self) {
        while let Some(peers) = self.updates.as_ref().and_then(|updates| updates.try_recv().ok()) {
            self.set_peers(peers);
        }
        let now = self.pump.now();
        while let Some((path, addresses)) = self.names.poll(now) {
            let family = self.socket.local().is_ipv4();
            let usable = |address: &&SocketAddr| {
                address.is_ipv4() == family && !self.peers.has_other(path, **address)
            };
            let present = self.peers.get(path).map(|peer| peer.address);
            let stays = present.filter(|present| addresses.contains(present));
            match stays.or_else(|| addresses.iter().find(usable).copied()) {
                Some(address) => {
                    self.names.succeeded(path);
                    if present != Some(address) {
                        self.aim(path, address);
                    }
                }
                None => {
                    let error = "it has no address of the socket's family, or that of another peer";
                    self.names.failed(now, path, error);
                }
            }
        }
    }

    /// Gives a configured peer an address, and brings its path up if it had none.
    fn aim(&mut self, path: PathId, address: SocketAddr) {
        let is_up = self.peers.is_static(path);
        for stranger in self.peers.set_static(path, address) {
            self.path_down(stranger);
        }
        if !is_up {
            self.bring_up(path);
        }
    }

    fn drop_peer(&mut self, path: PathId) {
        if self.peers.is_static(path) {
            self.peers.remove(path);
            self.outages.end(path);
            self.path_down(path);
        }
    }
}
