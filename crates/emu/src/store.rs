//! Memory for packets while they cross a link.

use rt::frame::Shape;
use rt::tun::PACKET_MAX;

/// Bytes of one slab: a few packets of the largest size, or a thousand of the usual.
const SLAB: usize = 1 << 20;
/// Alignment of packets: a cache line.
const ALIGN: usize = 64;

/// A held packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PacketId(u32);

/// Packets in slabs of memory that are reused, the last one freed first: a link with little in
/// flight touches little memory.
#[derive(Debug)]
pub(crate) struct Store {
    slabs: Vec<Slab>,
    /// Slabs without packets, and slabs that have given back their memory.
    free: Vec<u32>,
    unmade: Vec<u32>,
    current: Option<u32>,
    bytes_max: u64,
    /// Bytes held elsewhere for these packets.
    elsewhere: u64,
    packets: Vec<Held>,
    vacant: Vec<u32>,
}

#[derive(Debug)]
struct Slab {
    bytes: Box<[u8]>,
    used: usize,
    /// Held packets in it.
    live: u32,
}

#[derive(Clone, Copy, Debug)]
struct Held {
    slab: u32,
    offset: u32,
    len: u32,
    shape: Shape,
    /// Segments not yet released.
    live: u32,
}

/// Number of records up to which the records' capacity doubles; larger capacities grow by an
/// eighth.
const DOUBLED_MAX: usize = 8192;

/// Growth of the records for this capacity.
fn growth(room: usize) -> usize {
    if room < DOUBLED_MAX { room.max(64) } else { room / 8 }
}

impl Store {
    /// Overhead of a packet: its record, and half a cache line at its end.
    pub(crate) const OVERHEAD: usize = size_of::<Held>() + size_of::<u32>() + ALIGN / 2;
    /// Inverse of the share of bytes left at the ends of slabs, where a packet of the largest size
    /// would not fit.
    pub(crate) const LEFT_OVER: u64 = (SLAB / PACKET_MAX) as u64;

    /// Creates a store of at most this many bytes, at least 4 MiB, including its own records and
    /// those counted by others.
    pub(crate) fn new(bytes_max: u64) -> Self {
        Self {
            slabs: Vec::new(),
            free: Vec::new(),
            unmade: Vec::new(),
            current: None,
            bytes_max: bytes_max.max(4 * SLAB as u64),
            elsewhere: 0,
            packets: Vec::new(),
            vacant: Vec::new(),
        }
    }

    /// Sets the number of bytes held elsewhere for its packets.
    pub(crate) fn count_elsewhere(&mut self, bytes: u64) {
        self.elsewhere = bytes;
    }

    /// Total bytes used, including one further packet in an existing slab.
    fn taken(&self) -> u64 {
        let made = self.slabs.len() - self.unmade.len();
        let records = self.packets.capacity();
        let of_record = size_of::<Held>() + size_of::<u32>();
        (made * SLAB + (records + growth(records)) * of_record) as u64 + self.elsewhere
    }

    /// Returns a buffer for the next packet, long enough for any size; `None` if the store is full.
    pub(crate) fn room(&mut self) -> Option<&mut [u8]> {
        while self.taken() > self.bytes_max {
            // The memory of former slabs is now in queues or records.
            let index = self.free.pop()?;
            self.slabs[index as usize].bytes = Box::default();
            self.unmade.push(index);
        }
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
            None if self.taken() + SLAB as u64 <= self.bytes_max => self.make_slab(),
            // The current slab is full, but its packets may all be released.
            None => return None,
        };
        if let Some(before) = self.current.replace(index) {
            self.reuse(before);
        }
        Some(index)
    }

    fn make_slab(&mut self) -> u32 {
        let bytes = vec![0; SLAB].into_boxed_slice();
        match self.unmade.pop() {
            Some(index) => {
                self.slabs[index as usize].bytes = bytes;
                index
            }
            None => {
                self.slabs.push(Slab { bytes, used: 0, live: 0 });
                (self.slabs.len() - 1) as u32
            }
        }
    }

    /// Frees the records of packets, if no packet is held.
    pub(crate) fn shrink(&mut self) {
        if self.vacant.len() == self.packets.len() {
            self.vacant = Vec::new();
            self.packets = Vec::new();
        }
    }

    /// Keeps the packet of `len` bytes that was written into the buffer from [`Store::room`]. The
    /// packet is kept until it is released `references` times.
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
                if self.packets.len() == self.packets.capacity() {
                    let room = self.packets.capacity();
                    self.packets.reserve_exact(growth(room));
                    // No slot is free now, and all may be free later.
                    self.vacant.reserve_exact(room + growth(room));
                }
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

    /// Returns a packet's bytes and shape.
    pub(crate) fn packet(&self, id: PacketId) -> (&[u8], &Shape) {
        (self.bytes(id), self.shape(id))
    }

    /// Adds `count` references to a held packet.
    pub(crate) fn retain(&mut self, id: PacketId, count: u32) {
        self.packets[id.0 as usize].live += count;
    }

    /// Releases `count` of a packet's references.
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

    /// Makes a slab without packets ready for reuse.
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
    use rt::frame::Vnet;

    /// Keeps an IPv4 packet of `len` bytes whose last is `mark`.
    fn keep(store: &mut Store, len: usize, mark: u8) -> Option<PacketId> {
        let room = store.room()?;
        room[0] = 0x45;
        room[len - 1] = mark;
        let shape = Shape::from_packet(&Vnet::default(), &room[..len]).unwrap();
        store.keep(len, shape, 2)
    }

    #[test]
    fn packets_stay_until_their_last_reference() {
        let mut store = Store::new(5 << 20);
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
        assert_eq!(store.slabs.len(), 4, "there are records, too");
        assert!(most > 60, "{most} packets fit four slabs");
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

    /// Bytes that are really allocated.
    fn allocated(store: &Store) -> usize {
        let slabs: usize = store.slabs.iter().map(|slab| slab.bytes.len()).sum();
        let records = store.packets.capacity() * size_of::<Held>();
        slabs + records + store.vacant.capacity() * size_of::<u32>()
    }

    #[test]
    fn memory_limit_includes_records_and_held_packets() {
        let max = 16 << 20;
        let mut store = Store::new(max as u64);
        let per_packet = 160;
        let mut held = Vec::new();
        // Smallest packets, so that records take as much memory as they do.
        while let Some(id) = keep(&mut store, 28, 1) {
            held.push(id);
            store.count_elsewhere(held.len() as u64 * per_packet);
            assert!(allocated(&store) + held.len() * per_packet as usize <= max);
        }
        let each = max / held.len();
        assert!((64 + 160..400).contains(&each), "{each} bytes a packet");
        // Memory of packets becomes records, and the reverse.
        for id in held.drain(..) {
            store.release(id, 2);
        }
        store.count_elsewhere(8 << 20);
        assert!(store.room().is_some());
        assert!(allocated(&store) <= 8 << 20);
        store.shrink();
        store.count_elsewhere(0);
        while let Some(id) = keep(&mut store, 60_000, 1) {
            held.push(id);
            assert!(allocated(&store) <= max);
        }
        assert!(held.len() * 60_000 > max * 8 / 10, "{} large packets", held.len());
    }
}
