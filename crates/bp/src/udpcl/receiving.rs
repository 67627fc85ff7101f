//! Reception from peers.

use std::collections::BTreeMap;

use bytes::Bytes;
use engine::{PathId, Time};

use super::super::layer::{Event, LinkId, TransferId};
use super::{Alarm, Udpcl};
use crate::codec::udpcl::{Datagram, Fragment};

/// Reassembled bundles that are remembered for late fragments.
const OVER: usize = 1024;

/// Overhead of a fragment kept ahead of a gap, in bytes.
const KEPT: usize = 96;

/// A bundle being reassembled.
#[derive(Debug)]
pub(super) struct Coming {
    link: LinkId,
    id: TransferId,
    length: u32,
    /// Bytes handed to the agent.
    next: u32,
    /// Fragments ahead of a gap.
    early: BTreeMap<u32, Bytes>,
    /// Bytes of these.
    held: usize,
    /// Whether the agent refused it.
    is_unwanted: bool,
    last: Time,
}

impl Udpcl {
    pub(super) fn receive(&mut self, now: Time, link: LinkId, path: PathId, datagram: &[u8]) {
        match Datagram::decode(datagram) {
            Ok(Datagram::Keepalive) => {}
            Ok(Datagram::Bundle(bytes)) => {
                let transfer = self.transfer();
                let length = Some(bytes.len() as u64);
                self.events.push_back(Event::Begins { link, transfer, bytes: length });
                let bytes = Bytes::copy_from_slice(bytes);
                self.events.push_back(Event::Piece { link, transfer, bytes });
                self.whole(link, transfer);
            }
            Ok(Datagram::Fragment(fragment)) => self.fragment(now, link, path, &fragment),
            Err(_) => {
                self.statistics.faults += 1;
                self.events
                    .push_back(Event::PeerFault { link, what: "a datagram without a bundle" });
            }
        }
    }

    fn transfer(&mut self) -> TransferId {
        let transfer = TransferId(self.next_transfer);
        self.next_transfer += 1;
        transfer
    }

    fn whole(&mut self, link: LinkId, transfer: TransferId) {
        self.statistics.received += 1;
        self.unanswered.insert(transfer, link);
        self.events.push_back(Event::Whole { link, transfer, file: None });
    }

    fn fragment(&mut self, now: Time, link: LinkId, path: PathId, fragment: &Fragment<'_>) {
        let key = (path, fragment.bundle);
        if self.coming.get(&key).is_some_and(|coming| coming.length != fragment.length) {
            // The peer has restarted its numbering.
            self.give_up(path, fragment.bundle);
            self.over.forget(&key);
        }
        if !self.coming.contains_key(&key) && !self.begin(now, link, path, fragment) {
            self.statistics.fragments_dropped += 1;
            return;
        }
        let patience = self.config.limits.patience;
        let room = self.config.limits.early.saturating_sub(self.early);
        let Some(coming) = self.coming.get_mut(&key) else { return };
        coming.last = now;
        let alarm = Alarm::Incoming(key.0, key.1);
        self.timers.set(alarm, now + patience, "a reassembly timeout");
        let before = coming.held;
        let Some(data) = coming.take(fragment, room) else {
            self.statistics.fragments_dropped += 1;
            return;
        };
        self.early = self.early + coming.held - before;
        let (transfer, is_unwanted) = (coming.id, coming.is_unwanted);
        let is_whole = coming.next == coming.length;
        for bytes in data {
            if !is_unwanted {
                self.events.push_back(Event::Piece { link, transfer, bytes });
            }
        }
        if is_whole {
            self.coming.remove(&key);
            self.timers.cancel(alarm);
            self.over.insert_within(OVER, key, ());
            if !is_unwanted {
                self.whole(link, transfer);
            }
        }
    }

    /// Begins a bundle; returns whether it is new.
    fn begin(&mut self, now: Time, link: LinkId, path: PathId, part: &Fragment<'_>) -> bool {
        let key = (path, part.bundle);
        let limits = self.config.limits;
        if self.over.contains(&key) || part.length > limits.bundle || limits.incoming == 0 {
            return false;
        }
        if self.coming.len() >= limits.incoming {
            let oldest = self.coming.iter().min_by_key(|(_, coming)| coming.last);
            if let Some((path, bundle)) = oldest.map(|(key, _)| *key) {
                self.give_up(path, bundle);
            }
        }
        let id = self.transfer();
        let (length, early) = (part.length, BTreeMap::new());
        let coming =
            Coming { link, id, length, next: 0, early, held: 0, is_unwanted: false, last: now };
        self.coming.insert(key, coming);
        let bytes = Some(u64::from(length));
        self.events.push_back(Event::Begins { link, transfer: id, bytes });
        true
    }

    /// Gives up an incomplete bundle.
    pub(super) fn give_up(&mut self, path: PathId, bundle: u32) {
        let key = (path, bundle);
        let Some(coming) = self.coming.remove(&key) else { return };
        self.timers.cancel(Alarm::Incoming(path, bundle));
        self.early -= coming.held;
        self.over.insert_within(OVER, key, ());
        if !coming.is_unwanted {
            self.statistics.broken += 1;
            let (link, transfer) = (coming.link, coming.id);
            self.events.push_back(Event::Broken { link, transfer, keep: false });
        }
    }

    /// Discards a refused bundle. The protocol cannot report that to the peer.
    pub(super) fn refused(&mut self, transfer: TransferId) {
        if let Some(coming) = self.coming.values_mut().find(|coming| coming.id == transfer) {
            self.early -= std::mem::take(&mut coming.held);
            coming.early.clear();
            coming.is_unwanted = true;
        }
        self.decided(transfer);
    }
}

impl Coming {
    /// Accepts a fragment and returns the data that are now in order; `None` if it brings nothing
    /// new or has no room.
    fn take(&mut self, fragment: &Fragment<'_>, room: usize) -> Option<Vec<Bytes>> {
        let end = fragment.offset + fragment.data.len() as u32;
        if end <= self.next {
            return None;
        }
        if fragment.offset > self.next {
            let is_known = self.early.contains_key(&fragment.offset);
            let takes = fragment.data.len() + KEPT;
            if is_known || self.is_unwanted || takes > room {
                return None;
            }
            self.held += takes;
            self.early.insert(fragment.offset, Bytes::copy_from_slice(fragment.data));
            return Some(Vec::new());
        }
        // Data handed over before is skipped.
        let known = (self.next - fragment.offset) as usize;
        let mut data = vec![Bytes::copy_from_slice(&fragment.data[known..])];
        self.next = end;
        while let Some(entry) = self.early.first_entry().filter(|entry| *entry.key() <= self.next) {
            let (offset, mut bytes) = entry.remove_entry();
            self.held -= bytes.len() + KEPT;
            let end = offset + bytes.len() as u32;
            if end > self.next {
                data.push(bytes.split_off((self.next - offset) as usize));
                self.next = end;
            }
        }
        Some(data)
    }
}
