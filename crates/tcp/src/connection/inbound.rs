//! Receive window, and the end of the peer's stream.

use std::time::Duration;

use engine::Time;

use crate::autotune::ReceiveTuning;
use crate::config::Buffer;
use crate::reassembly::Reassembly;

/// Segment size before the peer's is known (RFC 9293 §3.7.1).
const MSS_DEFAULT: u64 = 536;

/// End of the peer's stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Unknown,
    /// FIN at this number, after data that may be missing.
    At(u64),
    /// All data and the FIN have arrived.
    Received,
}

/// User of received data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reader {
    /// Waits for an event.
    Waits,
    /// Was notified, and has not read everything.
    Notified,
    /// Reads no more.
    Gone,
}

/// Receive window.
#[derive(Debug)]
pub(super) struct Inbound {
    /// Right edge of the announced window.
    advertised: u64,
    /// Rcv.Wind.Shift (RFC 7323 §2.3).
    shift: u8,
    /// Whether both sides scale windows, even by zero.
    shifts: bool,
    tuning: ReceiveTuning,
    /// Readable bytes at the time at which a gap was filled, until that is acknowledged.
    filled: Option<u64>,
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
            filled: None,
            full_segment: MSS_DEFAULT,
            end: End::Unknown,
            reader: Reader::Waits,
        }
    }

    /// Offers this shift in a SYN.
    pub(super) fn offer(&mut self, shift: u8) {
        self.shift = shift;
    }

    /// Starts at the peer's SYN, with a shift if both sides scale.
    pub(super) fn begin(&mut self, next: u64, shift: Option<u8>) {
        self.advertised = next;
        self.shifts = shift.is_some();
        self.shift = shift.unwrap_or(0);
    }

    /// Starts auto-tuning to the user's reads.
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

    /// Next expected sequence number, including the FIN.
    pub(super) fn next(&self, buffer: &Reassembly) -> u64 {
        buffer.next() + u64::from(self.end == End::Received)
    }

    /// Bytes that the window allows from `next` on.
    pub(super) fn open(&self, next: u64) -> u64 {
        self.advertised.saturating_sub(next)
    }

    /// Window known to the peer, in whole units of the shift.
    fn announced(&self, next: u64, shift: u8) -> u64 {
        self.open(next) >> shift << shift
    }

    /// Last announced window, for the field.
    pub(super) fn field(&self, next: u64) -> u16 {
        (self.open(next) >> self.shift).min(65_535) as u16
    }

    /// Announces the window. Its right edge never recedes, and advances by sufficiently large steps
    /// (RFC 9293 §3.8.6.2.2).
    pub(super) fn announce(&mut self, buffer: &Reassembly, shift: u8) -> u16 {
        let next = self.next(buffer);
        let announced = self.announced(next, shift);
        let open = buffer.edge().saturating_sub(next);
        let open = self.pending(open, buffer).unwrap_or(open);
        self.filled = None;
        let worth = self.full_segment.min(buffer.capacity() / 2);
        let edge = if open >= announced + worth { next + open } else { self.advertised };
        let window = (edge.saturating_sub(next) >> shift).min(65_535);
        self.advertised = self.advertised.max(next + (window << shift));
        window as u16
    }

    /// Sets the window announced by a returned SYN cookie.
    pub(super) fn announced_by_cookie(&mut self, buffer: &Reassembly) {
        self.advertised = buffer.next() + buffer.capacity().min(65_535);
    }

    /// Processes a read of the user: the buffer grows. Returns `true` if the window opened enough
    /// to notify the peer (RFC 9293 §3.8.6.2.2).
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
        if let Some(capacity) = self.tuning.read(now, bytes, buffer.readable(), beyond, rtt) {
            buffer.grow(capacity);
        }
        let next = self.next(buffer);
        // Without a shift the field is limited, however large the buffer.
        let most = 65_535 << self.shift;
        let open = buffer.edge().saturating_sub(next).min(most);
        let pending = self.pending(open, buffer).unwrap_or(0);
        let announced = self.announced(next, self.shift).max(pending);
        let worth = self.full_segment.min(buffer.capacity() / 2).max(1);
        let opens = self.end == End::Unknown && open >= 2 * announced && open - announced >= worth;
        if opens {
            self.filled = None;
        }
        opens
    }

    /// Window of the due acknowledgment of a filled gap. Linux sends it before the user reads the
    /// data, which still uses the buffer (`tcp_data_queue`).
    fn pending(&self, open: u64, buffer: &Reassembly) -> Option<u64> {
        let read = self.filled?.saturating_sub(buffer.readable());
        Some(open.saturating_sub(read))
    }

    /// Takes a round trip sample by the peer's timestamps, from a full segment.
    pub(super) fn round_trip(&mut self, took: Duration) {
        self.tuning.round_trip(took);
    }

    /// Grows the buffer for data beyond a gap.
    pub(super) fn beyond_gap(&mut self, buffer: &mut Reassembly) {
        let beyond = buffer.highest().saturating_sub(buffer.next());
        self.tuning.reordered(beyond).into_iter().for_each(|size| buffer.grow(size));
    }

    /// Notes a segment that arrived in order.
    pub(super) fn on_segment(&mut self, len: u64, filled_gap: bool, buffer: &Reassembly) {
        self.full_segment = self.full_segment.max(len);
        // Below its limit the buffer grows with this read, which matters more.
        if filled_gap && self.tuning.is_at_limit(buffer.capacity()) {
            self.filled = Some(buffer.readable());
        }
    }

    /// End of the acceptable range.
    pub(super) fn limit(&self) -> u64 {
        self.fin_at().map_or(self.advertised, |fin| fin.min(self.advertised))
    }

    /// Position of the FIN, while data before it is missing.
    pub(super) fn fin_at(&self) -> Option<u64> {
        match self.end {
            End::At(fin) => Some(fin),
            End::Unknown | End::Received => None,
        }
    }

    /// Notes a FIN within the window. Returns whether that is new.
    pub(super) fn note_fin(&mut self, at: u64) -> bool {
        let is_news = at <= self.advertised && self.end == End::Unknown;
        if is_news {
            self.end = End::At(at);
        }
        is_news
    }

    /// Notes that all data and the FIN have arrived.
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

    /// Returns whether the user waits for an event of readable data.
    pub(super) fn notify(&mut self) -> bool {
        let waits = self.reader == Reader::Waits;
        if waits {
            self.reader = Reader::Notified;
        }
        waits
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZE: u64 = 20_000;

    /// Fills a gap before data up to `end` and reads everything. Returns whether the window opened
    /// enough for an acknowledgment, and the next two windows.
    fn windows_after_gap(end: u64, buffer: Buffer) -> (bool, u16, u16) {
        let mut received = Reassembly::new(0, SIZE, 16);
        received.charge_beyond();
        let mut inbound = Inbound::new(Time::ZERO, buffer);
        inbound.begin(0, Some(0));
        inbound.on_segment(1000, false, &received);
        assert_eq!(inbound.announce(&received, 0), 20_000);
        received.insert(1000, &vec![0; end as usize - 1000], SIZE);
        assert_eq!(inbound.announce(&received, 0), 20_000, "it does not recede");
        received.insert(0, &[0; 1000], SIZE);
        inbound.on_segment(1000, true, &received);
        received.consume(end);
        let opens = inbound.consumed(Time::ZERO, end, None, &mut received);
        (opens, inbound.announce(&received, 0), inbound.announce(&received, 0))
    }

    #[test]
    fn gap_is_acknowledged_before_its_data_is_read() {
        let limit = Buffer::Auto { initial: SIZE, max: SIZE };
        assert_eq!(windows_after_gap(5000, limit), (false, 15_000, 20_000));
        assert_eq!(
            windows_after_gap(12_000, limit),
            (true, 20_000, 20_000),
            "a second one follows"
        );
        let growing = Buffer::Auto { initial: SIZE, max: 2 * SIZE };
        assert_eq!(windows_after_gap(5000, growing), (false, 20_000, 20_000));
        assert_eq!(windows_after_gap(5000, Buffer::Fixed(SIZE)), (false, 20_000, 20_000));
    }
}
