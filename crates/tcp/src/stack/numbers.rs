//! Numbers of connections in compressed headers (CCSDS 714.0-B-2).

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use engine::Rng;

use crate::config::Options;
use crate::connection::Connection;
use crate::packet::Tuple;

/// Identity of a connection in compressed headers: local address, remote address, number.
type Number = (IpAddr, IpAddr, u8);

/// Numbers of connections, 255 between two addresses in either direction.
#[derive(Debug, Default)]
pub(super) struct Numbers {
    own: BTreeSet<Number>,
    peers: BTreeMap<Number, u32>,
}

impl Numbers {
    /// Takes a number for a new connection; 0 if numbers are disabled for it, or all are in use.
    pub(super) fn take(&mut self, rng: &mut Rng, tuple: Tuple, options: &Options) -> u8 {
        if !options.scps.is_some_and(|scps| scps.header_compression) {
            return 0;
        }
        // Late packets of a former connection must not meet a new one with its number.
        let start = rng.below(255);
        let mut numbers = (0..255).map(|n| ((start + n) % 255) as u8 + 1);
        let ends = (tuple.local.ip(), tuple.remote.ip());
        let free = |number: &u8| !self.own.contains(&(ends.0, ends.1, *number));
        let Some(number) = numbers.find(free) else { return 0 };
        self.own.insert((ends.0, ends.1, number));
        number
    }

    /// Records the peer's number of a connection, which identifies its packets.
    pub(super) fn know(&mut self, index: u32, connection: &Connection) {
        let Some(peer) = connection.peer_number() else { return };
        let tuple = connection.flow.tuple;
        self.peers.insert((tuple.local.ip(), tuple.remote.ip(), peer), index);
    }

    /// Connection with this number of the peer.
    pub(super) fn find(&self, local: IpAddr, remote: IpAddr, number: u8) -> Option<u32> {
        self.peers.get(&(local, remote, number)).copied()
    }

    /// Frees the local and the peer's number of a closed connection.
    pub(super) fn free(&mut self, index: u32, tuple: Tuple, own: u8, peer: Option<u8>) {
        let ends = (tuple.local.ip(), tuple.remote.ip());
        self.own.remove(&(ends.0, ends.1, own));
        if let Some(number) = peer.map(|peer| (ends.0, ends.1, peer))
            && self.peers.get(&number) == Some(&index)
        {
            self.peers.remove(&number);
        }
    }
}
