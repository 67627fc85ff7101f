//! Where packets are while they cross a link.

use crate::frame::Shape;
use crate::tun::PACKET_MAX;

/// Octets of one slab: some packets of the largest size, or a thousand of the usual.
const SLAB: usize = 1 << 20;
/// Packets begin where the processor's cache lines do.
const ALIGN: usize = 64;

/// A packet that is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PacketId(u32);

/// Packets in slabs of memory that are used again, the last one freed first: a link with little in
/// flight touches little memory.
#[derive(Debug)]
pub(crate) struct Store {
    slabs: Vec<Slab>,
    free: Vec<u32>,
    current: Option<u32>,
    slabs_max: usize,
    packets: Vec<Held>,
    vacant: Vec<u32>,
}

#[derive(Debug)]
struct Slab {
    bytes: Box<[u8]>,
    used: usize,
    /// Packets of it that are held.
    live: u32,
}

#[derive(Clone, Copy, Debug)]
struct Held {
    slab: u32,
    offset: u32,
    len: u32,
    shape: Shape,
    /// Segments that were not released.
    live: u32,
}

impl Store {
    /// A store of at most this many octets, 1 MiB at the least.
    pub(crate) fn new(bytes_max: u64) -> Self {
        let slabs_max = usize::try_from(bytes_max / SLAB as u64).unwrap_or(usize::MAX).max(1);
        Self {
            slabs: Vec::new(),
            free: Vec::new(),
            current: None,
            slabs_max,
            packets: Vec::new(),
            vacant: Vec::new(),
        }
    }

    /// Room for the next packet, whatever its size; `None` if the store is full.
    pub(crate) fn room(&mut self) -> Option<&mut [u8]> {
        let fits = |slab: &Slab| slab.bytes.len() - slab.used >= PACKET_MAX;
        let current = match self.current.filter(|&index| fits(&self.slabs[index as usize])) {
            Some(index) => index,
            None => self.next_slab()?,
        };
        let slab = &mut self.slabs[current as usize];
        Some(&mut slab.bytes[slab.used..])
    }

    fn next_slab(&mut self) -> Option<u32> {
        let index = match self.free.pop() {
            Some(index) => index,
            None if self.slabs.len() < self.slabs_max => {
                let bytes = vec![0; SLAB].into_boxed_slice();
                self.slabs.push(Slab { bytes, used: 0, live: 0 });
                (self.slabs.len() - 1) as u32
            }
            // What is current is full, but may be empty of packets all the same.
            None => return None,
        };
        if let Some(before) = self.current.replace(index) {
            self.reuse(before);
        }
        Some(index)
    }

    /// Keeps the packet of `len` octets that was put into the room, until it was released
    /// `references` times.
    pub(crate) fn keep(&mut self, len: usize, shape: Shape, references: u32) -> Option<PacketId> {
        let index = self.current?;
        let slab = &mut self.slabs[index as usize];
        let offset = slab.used as u32;
        slab.used = (slab.used + len).next_multiple_of(ALIGN).min(slab.bytes.len());
        slab.live += 1;
        let held = Held { slab: index, offset, len: len as u32, shape, live: references };
        let id = match self.vacant.pop() {
            Some(id) => {
                self.packets[id as usize] = held;
                id
            }
            None => {
                self.packets.push(held);
                (self.packets.len() - 1) as u32
            }
        };
        Some(PacketId(id))
    }

    pub(crate) fn bytes(&self, id: PacketId) -> &[u8] {
        let held = &self.packets[id.0 as usize];
        let start = held.offset as usize;
        &self.slabs[held.slab as usize].bytes[start..start + held.len as usize]
    }

    pub(crate) fn shape(&self, id: PacketId) -> &Shape {
        &self.packets[id.0 as usize].shape
    }

    /// Takes `count` references more of a packet that is held.
    pub(crate) fn retain(&mut self, id: PacketId, count: u32) {
        self.packets[id.0 as usize].live += count;
    }

    /// Gives back `count` of a packet's references.
    pub(crate) fn release(&mut self, id: PacketId, count: u32) {
        let held = &mut self.packets[id.0 as usize];
        held.live = held.live.saturating_sub(count);
        if held.live > 0 {
            return;
        }
        let slab = held.slab;
        self.vacant.push(id.0);
        self.slabs[slab as usize].live -= 1;
        self.reuse(slab);
    }

    /// Makes a slab without packets ready to be filled again.
    fn reuse(&mut self, index: u32) {
        let slab = &mut self.slabs[index as usize];
        if slab.live > 0 {
            return;
        }
        slab.used = 0;
        if self.current != Some(index) {
            self.free.push(index);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::vnet::Vnet;

    /// Keeps an IPv4 packet of `len` octets whose last is `mark`.
    fn keep(store: &mut Store, len: usize, mark: u8) -> Option<PacketId> {
        let room = store.room()?;
        room[0] = 0x45;
        room[len - 1] = mark;
        let shape = Shape::of(&Vnet::default(), &room[..len]).unwrap();
        store.keep(len, shape, 2)
    }

    #[test]
    fn packets_stay_until_their_last_reference_and_memory_is_used_again() {
        let mut store = Store::new(3 << 20);
        let mut held = std::collections::VecDeque::new();
        let mut most = 0;
        for round in 0..20_000_u32 {
            let len = 20 + (round as usize * 7919) % 60_000;
            while store.room().is_none() {
                let (id, len, mark): (PacketId, usize, u8) = held.pop_front().unwrap();
                assert_eq!(store.bytes(id).len(), len);
                assert_eq!(store.bytes(id)[len - 1], mark);
                store.release(id, 1);
                assert_eq!(store.bytes(id)[len - 1], mark);
                store.release(id, 1);
            }
            let mark = (round % 251) as u8;
            held.push_back((keep(&mut store, len, mark).unwrap(), len, mark));
            most = most.max(held.len());
        }
        assert_eq!(store.slabs.len(), 3);
        assert!(most > 40, "{most} packets fit three slabs");
        for (id, ..) in held.drain(..) {
            store.release(id, 2);
        }
        assert!(store.slabs.iter().all(|slab| slab.live == 0 && slab.used == 0));
    }

    #[test]
    fn a_short_queue_stays_within_one_slab() {
        let mut store = Store::new(64 << 20);
        for round in 0..100_000_u32 {
            let id = keep(&mut store, 1_500, round as u8).unwrap();
            store.release(id, 2);
        }
        assert_eq!(store.slabs.len(), 1);
    }
}
