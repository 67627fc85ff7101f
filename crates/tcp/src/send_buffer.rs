//! Data written by the user and not acknowledged by the peer.

use super::ring::Ring;

/// Bytes of the stream from the first unacknowledged one.
#[derive(Clone, Debug)]
pub(crate) struct SendBuffer {
    ring: Ring,
    start: u64,
    end: u64,
    capacity: u64,
    /// Memory of packets beyond their data, which uses the room, too.
    overhead: u64,
    /// Whether the user has closed: a FIN follows the last byte.
    finished: bool,
    /// Whether the user waits for room.
    wanted: bool,
    /// Whether the user could not write everything, and has written nothing since.
    blocks: bool,
}

impl SendBuffer {
    /// Empty buffer whose first byte will be `start`.
    pub(crate) fn new(start: u64, capacity: u64) -> Self {
        Self {
            ring: Ring::default(),
            start,
            end: start,
            capacity,
            overhead: 0,
            finished: false,
            wanted: false,
            blocks: false,
        }
    }

    /// End of the last byte written.
    pub(crate) fn end(&self) -> u64 {
        self.end
    }

    pub(crate) fn len(&self) -> u64 {
        self.end - self.start
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.start == self.end
    }

    pub(crate) fn room(&self) -> u64 {
        self.capacity.saturating_sub(self.len() + self.overhead)
    }

    pub(crate) fn capacity(&self) -> u64 {
        self.capacity
    }

    /// Enlarges the buffer; it never shrinks.
    pub(crate) fn grow(&mut self, capacity: u64) {
        self.capacity = self.capacity.max(capacity);
    }

    /// Sets the memory of packets beyond their data.
    pub(crate) fn set_overhead(&mut self, overhead: u64) {
        self.overhead = overhead;
    }

    /// Appends the bytes that there is room for. Returns their number.
    pub(crate) fn write(&mut self, bytes: &[u8]) -> usize {
        let taken = bytes.len().min(usize::try_from(self.room()).unwrap_or(usize::MAX));
        self.ring.reserve(self.start, self.end, self.end + taken as u64);
        self.ring.write(self.end, &bytes[..taken]);
        self.end += taken as u64;
        self.blocks = taken < bytes.len();
        self.wanted = self.blocks;
        taken
    }

    /// Whether the user waits for room.
    pub(crate) fn is_wanted(&self) -> bool {
        self.wanted
    }

    /// Whether the user has more data, for which there was no room.
    pub(crate) fn blocks(&self) -> bool {
        self.blocks
    }

    /// Whether the user waited for room that exists now.
    pub(crate) fn take_wanted(&mut self) -> bool {
        std::mem::take(&mut self.wanted)
    }

    /// Marks the end of the user's data.
    pub(crate) fn finish(&mut self) {
        self.finished = true;
    }

    pub(crate) fn is_finished(&self) -> bool {
        self.finished
    }

    /// Copies bytes that are still held.
    pub(crate) fn read(&self, at: u64, out: &mut [u8]) {
        debug_assert!(at >= self.start && at + out.len() as u64 <= self.end);
        self.ring.read(at, out);
    }

    /// Removes bytes before `at`.
    pub(crate) fn release(&mut self, at: u64) {
        self.start = self.start.max(at.min(self.end));
    }

    /// Removes everything, and frees the memory.
    pub(crate) fn clear(&mut self) {
        self.start = self.end;
        self.ring.clear();
    }

    pub(crate) fn memory(&self) -> usize {
        self.ring.memory()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn write_accepts_only_what_fits() {
        let mut buffer = SendBuffer::new(1000, 5000);
        assert_eq!(buffer.write(&[1; 3000]), 3000);
        assert_eq!(buffer.write(&[2; 3000]), 2000);
        assert_eq!((buffer.room(), buffer.end()), (0, 6000));
        buffer.release(4500);
        assert_eq!((buffer.room(), buffer.len()), (3500, 1500));
        assert_eq!(buffer.write(&[3; 10]), 10);
        let mut out = [0; 1510];
        buffer.read(4500, &mut out);
        assert!(out[..1500].iter().all(|byte| *byte == 2) && out[1500..] == [3; 10]);
        buffer.release(9999);
        assert!(buffer.is_empty() && buffer.end() == 6010);
        buffer.grow(10_000);
        buffer.set_overhead(1000);
        assert_eq!((buffer.room(), buffer.write(&[4; 8000])), (9000, 8000));
        buffer.set_overhead(3000);
        assert_eq!((buffer.room(), buffer.write(&[4; 1])), (0, 0));
        buffer.set_overhead(0);
        assert_eq!(buffer.write(&[4; 20_000]), 2000);
        buffer.clear();
        assert_eq!((buffer.memory(), buffer.len()), (0, 0));
    }
}
