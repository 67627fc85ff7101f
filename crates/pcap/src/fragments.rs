//! Reassembly of fragments of IP packets (RFC 791 §3.2, RFC 8200 §4.5), of bounded size.

use std::collections::{BTreeMap, VecDeque};
use std::net::IpAddr;
use std::time::Duration;

use engine::Time;

/// Maximum payload of a packet, in bytes.
const PACKET_MAX: usize = 65_535;
/// Time between the first and the last fragment of a packet after which identifications are used
/// again (RFC 8200 §4.5).
const LIFETIME: Duration = Duration::from_secs(60);
/// Bytes that a fragment takes in addition to its payload.
const OVERHEAD: usize = 128;
/// Number of packets below which those that are complete are not removed from the order.
const ENTRIES_MIN: usize = 64;

/// Fragments of one packet have this in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Key {
    pub(crate) interface: u32,
    pub(crate) addresses: (IpAddr, IpAddr),
    pub(crate) protocol: u8,
    pub(crate) id: u32,
}

/// Place of a fragment in its packet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fragment {
    pub(crate) id: u32,
    /// Offset of the payload, in bytes.
    pub(crate) offset: usize,
    pub(crate) is_last: bool,
}

/// A packet that was put together.
pub(crate) struct Whole {
    pub(crate) protocol: u8,
    pub(crate) payload: Vec<u8>,
    /// Number of its fragments.
    pub(crate) fragments: usize,
}

/// Incomplete packets.
#[derive(Debug, Default)]
pub(crate) struct Fragments {
    packets: BTreeMap<Key, Parts>,
    /// Packets in the order of their first fragments; some are complete.
    order: VecDeque<(Time, Key)>,
    held: usize,
}

#[derive(Debug)]
struct Parts {
    since: Time,
    parts: BTreeMap<usize, Vec<u8>>,
    /// Length, known from the last fragment.
    len: Option<usize>,
    /// Bytes in all parts.
    filled: usize,
    /// Protocol of the payload, which the fragment at offset 0 has.
    protocol: u8,
}

impl Fragments {
    /// Maximum of [`Self::held`]: beyond it, the oldest incomplete packets are dropped.
    pub(crate) const HELD_MAX: usize = 4 << 20;

    /// Bytes held for incomplete packets.
    pub(crate) const fn held(&self) -> usize {
        self.held
    }

    /// Adds a fragment with its protocol and payload. Returns the packet if it is complete.
    pub(crate) fn add(
        &mut self,
        now: Time,
        key: Key,
        fragment: Fragment,
        protocol: u8,
        payload: &[u8],
    ) -> Option<Whole> {
        self.drop_old(now);
        if !is_sound(fragment, payload) {
            return None;
        }
        let order = &mut self.order;
        let packet = self.packets.entry(key).or_insert_with(|| {
            order.push_back((now, key));
            Parts { since: now, parts: BTreeMap::new(), len: None, filled: 0, protocol }
        });
        match packet.add(fragment, protocol, payload) {
            Added::Kept => self.held += OVERHEAD + payload.len(),
            Added::Known => {}
            Added::Contradicts => {
                self.remove(&key);
                return None;
            }
        }
        if let Some(packet) = self.packets.get(&key).filter(|packet| packet.is_complete()) {
            let (protocol, fragments) = (packet.protocol, packet.parts.len());
            let parts = self.remove(&key)?.parts;
            return Some(Whole {
                protocol,
                payload: parts.into_values().flatten().collect(),
                fragments,
            });
        }
        while self.held > Self::HELD_MAX {
            let (_, oldest) = self.order.pop_front()?;
            self.remove(&oldest);
        }
        None
    }

    /// Drops packets that have been incomplete for too long.
    fn drop_old(&mut self, now: Time) {
        // Complete packets leave their entries.
        if self.order.len() > 2 * self.packets.len() + ENTRIES_MIN {
            let packets = &self.packets;
            self.order.retain(|(_, key)| packets.contains_key(key));
        }
        while let Some((since, key)) = self.order.front().copied() {
            let is_open = self.packets.get(&key).is_some_and(|packet| packet.since == since);
            if is_open && now.since(since) < LIFETIME {
                break;
            }
            self.order.pop_front();
            if is_open {
                self.remove(&key);
            }
        }
    }

    fn remove(&mut self, key: &Key) -> Option<Parts> {
        let packet = self.packets.remove(key)?;
        self.held -= packet.filled + OVERHEAD * packet.parts.len();
        Some(packet)
    }
}

/// Outcome of adding a fragment.
enum Added {
    Kept,
    /// A copy of a known one.
    Known,
    /// It overlaps another, or there are two ends.
    Contradicts,
}

impl Parts {
    fn add(&mut self, fragment: Fragment, protocol: u8, payload: &[u8]) -> Added {
        let (start, end) = (fragment.offset, fragment.offset + payload.len());
        if self.parts.get(&start).is_some_and(|known| known == payload) {
            return Added::Known;
        }
        let before = self.parts.range(..end).next_back();
        let overlaps = before.is_some_and(|(at, known)| at + known.len() > start);
        let is_beyond = self.len.is_some_and(|len| end > len || fragment.is_last);
        let is_short = fragment.is_last && self.parts.keys().next_back() > Some(&start);
        if overlaps || is_beyond || is_short {
            return Added::Contradicts;
        }
        if fragment.is_last {
            self.len = Some(end);
        }
        if start == 0 {
            self.protocol = protocol;
        }
        self.filled += payload.len();
        self.parts.insert(start, payload.to_vec());
        Added::Kept
    }

    fn is_complete(&self) -> bool {
        self.len == Some(self.filled)
    }
}

/// Whether a fragment can be part of a packet: all but the last are multiples of eight bytes.
fn is_sound(fragment: Fragment, payload: &[u8]) -> bool {
    let is_whole = fragment.is_last || payload.len().is_multiple_of(8);
    is_whole && !payload.is_empty() && fragment.offset + payload.len() <= PACKET_MAX
}
