//! Parts of a file to retransmit: in order of the requests, each queued once until sent, and read
//! ahead within the bounds on memory.

use std::collections::VecDeque;
use std::time::Duration;

use bytes::Bytes;
use engine::FileId;

use crate::UnexpectedLength;
use crate::path::Handle;
use crate::ranges::Ranges;
use crate::storage::Storage;

/// Next piece of a file to put into a PDU.
pub struct Segment<'a> {
    /// Offset in the file.
    pub offset: u64,
    /// Bytes of the file.
    pub data: &'a [u8],
}

/// Maximum parts being read at one time.
const AHEAD: usize = 64;

/// Parts to retransmit.
#[derive(Debug)]
pub struct Repairs {
    /// Parts that are not being read yet.
    waiting: VecDeque<(u64, u64)>,
    /// Parts being read, or read and not sent.
    reading: VecDeque<Part>,
    held: usize,
    /// Bytes requested again since the start.
    lost: u64,
    /// Copies to send of each part, and copies sent of the current one.
    copies: u32,
    copied: u32,
    /// Parts in `waiting` and `reading`, so that nothing is queued twice.
    requested: Ranges,
}

#[derive(Debug)]
struct Part {
    start: u64,
    end: u64,
    bytes: Option<Bytes>,
}

impl Default for Repairs {
    fn default() -> Self {
        Self::new()
    }
}

impl Repairs {
    /// No parts.
    pub fn new() -> Self {
        Self {
            waiting: VecDeque::new(),
            reading: VecDeque::new(),
            held: 0,
            lost: 0,
            copies: 1,
            copied: 0,
            requested: Ranges::new(),
        }
    }

    /// Queues the bytes of `start..end` that are not queued yet; returns whether the queue had
    /// room. At most `max` parts wait.
    pub fn request(&mut self, start: u64, end: u64, max: usize) -> bool {
        let gaps: Vec<_> = self.requested.gaps(start, end).collect();
        for (from, to) in gaps {
            if self.waiting.len() >= max {
                return false;
            }
            self.waiting.push_back((from, to));
            self.requested.insert(from, to);
            self.lost += to - from;
        }
        true
    }

    /// Queues the bytes of `start..end` that are not queued yet, without counting them as lost.
    pub fn repeat(&mut self, start: u64, end: u64, max: usize) {
        let lost = self.lost;
        self.request(start, end, max);
        self.lost = lost;
    }

    /// Chooses the number of copies of each part that minimizes the expected completion time, for a
    /// file with `sent` bytes sent, the transmission time of a packet of `segment` bytes and the
    /// round-trip time.
    ///
    /// With n packets to repair of which each is lost with probability p, c copies take c·n packet
    /// times, and another round trip is needed with probability 1 − (1 − p^c)^n, at most n·p^c. Ten
    /// packets of 0.85 ms, 50 ms and p = 0.1: 8.5 + 50 ms for one copy, 17 + 5 ms for two.
    pub fn choose_copies(
        &mut self,
        max: u32,
        segment: usize,
        times: Option<(Duration, Duration)>,
        sent: u64,
    ) {
        self.copies = 1;
        let Some((packet, round_trip)) = times else { return };
        let lost = self.lost as f64 / (sent + self.lost).max(1) as f64;
        let packets = (self.requested.covered() as f64 / segment as f64).ceil();
        let expected = |copies: u32| {
            let chance = packets * (0..copies).fold(1.0, |chance, _| chance * lost);
            let sending = packet.as_secs_f64() * packets * f64::from(copies);
            sending + round_trip.as_secs_f64() * f64::min(chance, 1.0)
        };
        for copies in 2..=max {
            if expected(copies) < expected(self.copies) {
                self.copies = copies;
            }
        }
    }

    /// Drops all repairs. Pending reads are dropped on completion.
    pub fn forget(&mut self) {
        self.waiting.clear();
        self.reading.clear();
        self.held = 0;
        self.requested = Ranges::new();
    }

    /// Whether no repairs are left.
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty() && self.reading.is_empty()
    }

    /// Number of parts that are not being read yet.
    pub fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// Whether a part that is not being read yet has bytes of `start..end`.
    pub fn wants_any_of(&self, start: u64, end: u64) -> bool {
        self.waiting.iter().any(|(from, to)| *from < end && *to > start)
    }

    /// Reads parts, within the bounds on memory.
    pub fn read(&mut self, storage: &mut impl Storage, handle: Handle, file: FileId) {
        while let Some((start, end)) = self.begin_next(storage) {
            self.reading.push_back(Part { start, end, bytes: None });
            storage.read_again(handle, file, start, (end - start) as usize);
        }
    }

    /// Reads parts from bytes in memory.
    pub fn take_from(&mut self, storage: &mut impl Storage, whole: &Bytes) {
        while let Some((start, end)) = self.begin_next(storage) {
            let bytes = Some(whole.slice(start as usize..end as usize));
            self.reading.push_back(Part { start, end, bytes });
        }
    }

    /// Next part to read, if there is room for one.
    fn begin_next(&mut self, storage: &mut impl Storage) -> Option<(u64, u64)> {
        let ahead = storage.read_ahead();
        let piece = storage.room().read_piece.clamp(1, ahead) as u64;
        let has_room = self.reading.len() < AHEAD && (self.held == 0 || self.held < ahead);
        let (start, end) = self.waiting.front_mut().filter(|_| has_room)?;
        let part = (*start, (*start + piece).min(*end));
        *start = part.1;
        if *start == *end {
            self.waiting.pop_front();
        }
        self.held += (part.1 - part.0) as usize;
        Some(part)
    }

    /// Accepts a part that was read. An error if the file is shorter than it was.
    pub fn read_done(&mut self, offset: u64, bytes: Bytes) -> Result<(), UnexpectedLength> {
        let waiting = self.reading.iter_mut();
        let Some(part) = waiting.into_iter().find(|r| r.start == offset && r.bytes.is_none())
        else {
            return Ok(());
        };
        if bytes.len() as u64 != part.end - part.start {
            return Err(UnexpectedLength);
        }
        part.bytes = Some(bytes);
        Ok(())
    }

    /// Next data to retransmit, at most `len` bytes.
    pub fn next(&self, len: usize) -> Option<Segment<'_>> {
        let part = self.reading.front()?;
        let bytes = part.bytes.as_ref()?;
        Some(Segment { offset: part.start, data: &bytes[..len.min(bytes.len())] })
    }

    /// Records that the first `len` bytes returned by [`Repairs::next`] were sent.
    pub fn sent(&mut self, len: usize) {
        self.copied += 1;
        if self.copied < self.copies {
            return;
        }
        self.copied = 0;
        let Some(part) = self.reading.front_mut() else { return };
        let (start, end) = (part.start, part.start + len as u64);
        if let Some(bytes) = part.bytes.as_mut() {
            *bytes = bytes.split_off(len);
        }
        part.start = end;
        self.held -= len;
        self.requested.remove(start, end);
        if part.start >= part.end {
            self.reading.pop_front();
        }
    }
}
