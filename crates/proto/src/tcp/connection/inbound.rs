//! Window for what the peer sends, and the end of it.

use std::time::Duration;

use engine::Time;

use crate::tcp::autotune::ReceiveTuning;
use crate::tcp::config::Buffer;
use crate::tcp::reassembly::Reassembly;

/// Segment size until the peer's is known (RFC 9293 §3.7.1).
const MSS_DEFAULT: u64 = 536;

/// End of the peer's stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Unknown,
    /// A FIN lies here, behind data that may be missing.
    At(u64),
    /// Everything arrived, and the FIN.
    Received,
}

/// User of what is received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reader {
    /// Waits for an event.
    Waits,
    /// Got its event, and has not read everything.
    Notified,
    /// Reads no more.
    Gone,
}

/// Receive window.
#[derive(Debug)]
pub(super) struct Inbound {
    /// Right edge of the window as announced.
    advertised: u64,
    /// Rcv.Wind.Shift (RFC 7323 §2.3).
    shift: u8,
    /// Both sides shift windows, if only by nothing.
    shifts: bool,
    tuning: ReceiveTuning,
    /// Longest segment received: the size of a full one.
    full_segment: u64,
    end: End,
    reader: Reader,
}

impl Inbound {
    pub(super) fn new(now: Time, buffer: Buffer) -> Self {
        Self {
            advertised: 0,
            shift: 0,
            shifts: false,
            tuning: ReceiveTuning::new(now, buffer, MSS_DEFAULT),
            full_segment: MSS_DEFAULT,
            end: End::Unknown,
            reader: Reader::Waits,
        }
    }

    /// Offers this shift in a SYN.
    pub(super) fn offer(&mut self, shift: u8) {
        self.shift = shift;
    }

    /// Begins where the peer's SYN says, with a shift if both sides shift.
    pub(super) fn begin(&mut self, next: u64, shift: Option<u8>) {
        self.advertised = next;
        self.shifts = shift.is_some();
        self.shift = shift.unwrap_or(0);
    }

    /// Begins to adapt to what the user reads.
    pub(super) fn tune(&mut self, now: Time, buffer: Buffer, mss: u64) {
        self.tuning = ReceiveTuning::new(now, buffer, mss);
    }

    pub(super) fn shift(&self) -> u8 {
        self.shift
    }

    pub(super) fn shifts(&self) -> bool {
        self.shifts
    }

    pub(super) fn advertised(&self) -> u64 {
        self.advertised
    }

    pub(super) fn full_segment(&self) -> u64 {
        self.full_segment
    }

    /// Sequence number expected next, the FIN included.
    pub(super) fn next(&self, buffer: &Reassembly) -> u64 {
        buffer.next() + u64::from(self.end == End::Received)
    }

    /// Bytes that the window still takes from `next` on.
    pub(super) fn open(&self, next: u64) -> u64 {
        self.advertised.saturating_sub(next)
    }

    /// Window as the peer knows it, in whole units of the shift.
    fn announced(&self, next: u64, shift: u8) -> u64 {
        self.open(next) >> shift << shift
    }

    /// Window as it was last announced, for the field.
    pub(super) fn field(&self, next: u64) -> u16 {
        (self.open(next) >> self.shift).min(65_535) as u16
    }

    /// Announces the window; its right edge never goes back, and goes on by steps that are worth it
    /// (RFC 9293 §3.8.6.2.2).
    pub(super) fn announce(&mut self, buffer: &Reassembly, shift: u8) -> u16 {
        let next = self.next(buffer);
        let announced = self.announced(next, shift);
        let open = buffer.edge().saturating_sub(next);
        let worth = self.full_segment.min(buffer.capacity() / 2);
        let edge = if open >= announced + worth { next + open } else { self.advertised };
        let window = (edge.saturating_sub(next) >> shift).min(65_535);
        self.advertised = self.advertised.max(next + (window << shift));
        window as u16
    }

    /// A SYN cookie that came back announced this much.
    pub(super) fn announced_by_cookie(&mut self, buffer: &Reassembly) {
        self.advertised = buffer.next() + buffer.capacity().min(65_535);
    }

    /// The user has read: the buffer grows, and `true` is returned if the window opened so much that
    /// the peer needs to know (RFC 9293 §3.8.6.2.2).
    pub(super) fn consumed(
        &mut self,
        now: Time,
        bytes: u64,
        rtt: Option<Duration>,
        buffer: &mut Reassembly,
    ) -> bool {
        if buffer.readable() == 0 && self.reader == Reader::Notified {
            self.reader = Reader::Waits;
        }
        let beyond = buffer.highest() - buffer.next();
        let counts = (bytes, buffer.readable(), beyond);
        if let Some(capacity) = self.tuning.read(now, counts, rtt) {
            buffer.grow(capacity);
        }
        let next = self.next(buffer);
        let announced = self.announced(next, self.shift);
        // Without a shift the field holds no more, however large the buffer.
        let most = 65_535 << self.shift;
        let open = buffer.edge().saturating_sub(next).min(most);
        let worth = self.full_segment.min(buffer.capacity() / 2).max(1);
        self.end == End::Unknown && open >= 2 * announced && open - announced >= worth
    }

    /// A round trip by the peer's clock, from a full segment.
    pub(super) fn round_trip(&mut self, took: Duration) {
        self.tuning.round_trip(took);
    }

    /// Something arrived beyond a gap: the buffer has room for as much.
    pub(super) fn beyond_gap(&mut self, buffer: &mut Reassembly) {
        let beyond = buffer.highest().saturating_sub(buffer.next());
        self.tuning.reordered(beyond).into_iter().for_each(|size| buffer.grow(size));
    }

    /// A segment of this length arrived in order.
    pub(super) fn note_segment(&mut self, len: u64) {
        self.full_segment = self.full_segment.max(len);
    }

    /// Where what is accepted ends.
    pub(super) fn limit(&self) -> u64 {
        self.fin_at().map_or(self.advertised, |fin| fin.min(self.advertised))
    }

    /// Where the FIN lies, while something before it is missing.
    pub(super) fn fin_at(&self) -> Option<u64> {
        match self.end {
            End::At(fin) => Some(fin),
            End::Unknown | End::Received => None,
        }
    }

    /// Notes a FIN within the window. Returns whether that is news.
    pub(super) fn note_fin(&mut self, at: u64) -> bool {
        let is_news = at <= self.advertised && self.end == End::Unknown;
        if is_news {
            self.end = End::At(at);
        }
        is_news
    }

    /// Everything arrived, and the FIN.
    pub(super) fn finish(&mut self) {
        self.end = End::Received;
    }

    /// Whether the user reads no more.
    pub(super) fn is_detached(&self) -> bool {
        self.reader == Reader::Gone
    }

    pub(super) fn detach(&mut self) {
        self.reader = Reader::Gone;
    }

    /// Something can be read. Returns whether the user waits for that event.
    pub(super) fn notify(&mut self) -> bool {
        let waits = self.reader == Reader::Waits;
        if waits {
            self.reader = Reader::Notified;
        }
        waits
    }
}
