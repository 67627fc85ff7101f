//! Numbers of connections in compressed headers (CCSDS 714.0-B-2).

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use engine::Time;

use super::Stack;
use crate::config::Options;
use crate::packet::{ArrivedCompressed, Tuple};
use crate::segment::scps::Inherited;
use crate::segment::{OPTIONS_MAX, Segment};
use crate::seq;

/// Identity of a connection in compressed headers: local address, remote address, number.
type Number = (IpAddr, IpAddr, u8);

/// Numbers of connections, 255 between two addresses in either direction.
#[derive(Debug, Default)]
pub(super) struct Numbers {
    own: BTreeSet<Number>,
    peers: BTreeMap<Number, u32>,
}

impl Numbers {
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

impl Stack {
    /// Number for a new connection; 0 if numbers are disabled for it, or all are in use.
    pub(super) fn number_for(&mut self, tuple: Tuple, options: &Options) -> u8 {
        if !options.scps.is_some_and(|scps| scps.header_compression) {
            return 0;
        }
        // Late packets of a former connection must not meet a new one with its number.
        let start = self.rng.below(255);
        let numbers = (0..255).map(|n| ((start + n) % 255) as u8 + 1);
        let ends = (tuple.local.ip(), tuple.remote.ip());
        let free = |number: &u8| !self.numbers.own.contains(&(ends.0, ends.1, *number));
        let Some(number) = numbers.into_iter().find(free) else { return 0 };
        self.numbers.own.insert((ends.0, ends.1, number));
        number
    }

    /// Records the peer's number of a connection, which identifies its packets.
    pub(super) fn know_number(&mut self, index: u32) {
        let Some(connection) = self.slots[index as usize].connection.as_deref() else { return };
        let Some(peer) = connection.peer_number() else { return };
        let tuple = connection.flow.tuple;
        self.numbers.peers.insert((tuple.local.ip(), tuple.remote.ip(), peer), index);
    }

    /// Processes a packet with a compressed header.
    pub(super) fn compressed(&mut self, now: Time, arrived: &ArrivedCompressed<'_>) {
        let packet = &arrived.packet;
        let number = (arrived.local, arrived.remote, packet.head.connection);
        let known = self.numbers.peers.get(&number).copied();
        let slot = known.and_then(|index| Some((index, self.slots.get_mut(index as usize)?)));
        let Some((index, connection)) =
            slot.and_then(|(index, slot)| Some((index, slot.connection.as_deref_mut()?)))
        else {
            // The port for a reset is unknown.
            self.statistics.strangers += 1;
            return;
        };
        let (acknowledgment, stamps) = connection.space.last_header;
        let inherited = Inherited {
            source: connection.flow.tuple.remote.port(),
            destination: connection.flow.tuple.local.port(),
            sequence: seq::wire(connection.receive_next()),
            acknowledgment,
            stamps,
        };
        let mut place = [0; OPTIONS_MAX];
        let numbered = packet.head.sequence.is_some() || packet.payload.is_empty();
        let Some((header, options)) =
            packet.expand(&inherited, &mut place).ok().filter(|_| numbered)
        else {
            self.statistics.malformed += 1;
            return;
        };
        let segment = Segment { header, options, payload: packet.payload };
        connection.segment(now, arrived.ecn, &segment);
        self.settle(now, index);
    }
}
