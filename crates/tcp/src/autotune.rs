//! Auto-tuned buffers, which grow with the connection's throughput as in Linux 6.

use std::time::Duration;

use engine::Time;

use super::config::Buffer;

/// Segments expected in the first round trip (`TCP_INIT_CWND`).
const FIRST_ROUND: u64 = 10;

/// Bytes that 64-bit Linux reserves for a segment's headers (`MAX_TCP_HEADER` and
/// `skb_shared_info`) and for its descriptor (`sk_buff`).
const SEGMENT_HEADERS: u64 = 640;
const SEGMENT_RECORD: u64 = 256;

/// Memory of a packet in the send buffer beyond its data, most data of one, and fewest segments of
/// one that was sent (`sysctl_tcp_min_tso_segs`).
const PACKET_OVERHEAD: u64 = 832;
const PACKET_DATA: u64 = 65_160;
const PACKET_SEGMENTS: u64 = 2;

/// Size of the receive buffer: dynamic right-sizing (`tcp_rcv_space_adjust`). Twice the bytes that
/// the user read in the last round trip, more while that grows, plus the data beyond a gap.
#[derive(Clone, Debug)]
pub(crate) struct ReceiveTuning {
    max: Option<u64>,
    rtt: Option<Duration>,
    since: Time,
    read: u64,
    /// Maximum bytes read in a round trip.
    space: u64,
}

impl ReceiveTuning {
    /// Tuning for segments of at most `mss` bytes.
    pub(crate) fn new(now: Time, buffer: Buffer, mss: u64) -> Self {
        let max = match buffer {
            Buffer::Fixed(_) => None,
            Buffer::Auto { max, .. } => Some(max),
        };
        let space = buffer.initial().min(FIRST_ROUND * mss).max(1);
        Self { max, rtt: None, since: now, read: 0, space }
    }

    /// Takes a round trip sample, from an acknowledgment to new data. A lower one replaces the
    /// estimate, as queues lengthen the others; one above twice the estimate is ignored.
    pub(crate) fn round_trip(&mut self, took: Duration) {
        self.rtt = Some(match self.rtt {
            Some(rtt) if took > rtt * 2 => rtt,
            Some(rtt) if took > rtt => (rtt * 7 + took) / 8,
            Some(_) | None => took,
        });
    }

    /// Counts bytes read by the user; `waiting` more are readable, and data beyond a gap extends to
    /// `beyond` bytes after the first missing one. Returns the new size of the buffer, if it should
    /// change.
    pub(crate) fn read(
        &mut self,
        now: Time,
        bytes: u64,
        waiting: u64,
        beyond: u64,
        rtt: Option<Duration>,
    ) -> Option<u64> {
        self.max?;
        self.read += bytes;
        let rtt = self.rtt.or(rtt)?;
        if now.since(self.since) < rtt {
            return None;
        }
        // A user that lags needs no larger buffer.
        let read = std::mem::take(&mut self.read).saturating_sub(waiting);
        self.since = now;
        (read > self.space).then(|| self.grow(read, beyond))?
    }

    /// Notes data after a gap, up to `beyond` bytes from the first missing one. Returns the new
    /// size of the buffer: without it, the sender would stop until the gap is filled.
    pub(crate) fn reordered(&mut self, beyond: u64) -> Option<u64> {
        self.grow(self.space, beyond)
    }

    /// Whether a buffer of this size grows no more.
    pub(crate) fn is_at_limit(&self, capacity: u64) -> bool {
        self.max.is_some_and(|max| capacity >= max)
    }

    fn grow(&mut self, space: u64, beyond: u64) -> Option<u64> {
        let before = std::mem::replace(&mut self.space, space);
        let twice = u128::from(space) * 2;
        // In slow start the sender doubles: if 20,000 bytes follow 10,000, it is 6 * 20,000.
        let grew = twice * u128::from(space - before) / u128::from(before);
        let size = u64::try_from(twice + 2 * grew + u128::from(beyond)).unwrap_or(u64::MAX);
        self.max.map(|max| size.min(max))
    }
}

/// Size of the send buffer for a window of `cwnd` bytes in segments of `mss`
/// (`tcp_sndbuf_expand`): `windows` windows, in the memory that Linux uses per segment. At an MTU
/// of 1,500 that is about three times its payload, which leaves room for data held back by a gap.
pub(crate) fn send_capacity(buffer: Buffer, cwnd: u64, mss: u64, windows: u64) -> u64 {
    match buffer {
        Buffer::Fixed(size) => size,
        Buffer::Auto { max, .. } => {
            let segment = (mss + SEGMENT_HEADERS).next_power_of_two() + SEGMENT_RECORD;
            let size = u128::from(cwnd) * u128::from(windows * segment) / u128::from(mss.max(1));
            u64::try_from(size).unwrap_or(u64::MAX).min(max)
        }
    }
}

/// Bytes in the send buffer of a paced connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Queued {
    pub(crate) unsent: u64,
    /// Sent and not acknowledged.
    pub(crate) in_flight: u64,
    /// Acknowledged selectively.
    pub(crate) sacked: u64,
    pub(crate) pacing_rate_bps: u64,
    pub(crate) mss: u64,
}

impl Queued {
    /// Memory of its packets beyond their data, which Linux charges (`sk_wmem_queued`). Data is
    /// sent in packets of about 1 ms (`tcp_tso_autosize`): at 26 Mbit/s of two segments, whose
    /// memory is 29 % larger than their data. Packets that were acknowledged selectively are merged
    /// (`tcp_shift_skb_data`).
    pub(crate) fn overhead(self) -> u64 {
        let segments = self.pacing_rate_bps / 8 / 1024 / self.mss;
        let sent = (segments.max(PACKET_SEGMENTS) * self.mss).min(PACKET_DATA);
        let packets =
            self.in_flight.div_ceil(sent) + (self.unsent + self.sacked).div_ceil(PACKET_DATA);
        packets * PACKET_OVERHEAD
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::BufferLimit;

    const AUTO: Buffer = Buffer::Auto { initial: 65_536, max: 1_000_000 };

    fn at(millis: u64) -> Time {
        Time::from_nanos(millis * 1_000_000)
    }

    #[test]
    fn receive_buffer_follows_bytes_read_per_round_trip() {
        let mut tuning = ReceiveTuning::new(Time::ZERO, AUTO, 1000);
        let rtt = Some(Duration::from_millis(100));
        let mut read = |millis, bytes, waiting| tuning.read(at(millis), bytes, waiting, 0, rtt);
        assert_eq!(read(50, 9_000, 0), None, "half a round trip");
        assert_eq!(read(100, 1_000, 0), None, "ten segments were expected");
        assert_eq!(read(200, 20_000, 0), Some(120_000), "six times what was read: it doubled");
        assert_eq!(read(300, 20_000, 0), None, "no more than before");
        assert_eq!(read(400, 50_000, 30_000), None, "what waits to be read");
        assert_eq!(read(500, 25_000, 0), Some(75_000), "2 * 25,000, and 2 * 50,000 * 5 / 20");
        assert_eq!(read(600, 800_000, 0), Some(1_000_000));
        let mut fixed = ReceiveTuning::new(Time::ZERO, Buffer::Fixed(9), 1000);
        assert_eq!(fixed.read(at(400), 800_000, 0, 0, rtt), None);
        assert_eq!(fixed.reordered(5000), None);
    }

    #[test]
    fn receive_buffer_includes_data_beyond_a_gap() {
        let mut tuning = ReceiveTuning::new(Time::ZERO, AUTO, 1000);
        assert_eq!(tuning.reordered(70_000), Some(90_000), "2 * 10,000 and 70,000");
    }

    #[test]
    fn receive_rtt_follows_decreases_and_ignores_doubled_samples() {
        let mut tuning = ReceiveTuning::new(Time::ZERO, AUTO, 1000);
        let mut after = |millis| {
            tuning.round_trip(Duration::from_millis(millis));
            tuning.rtt
        };
        let millis = |millis| Some(Duration::from_millis(millis));
        assert_eq!(after(800), millis(800));
        assert_eq!(after(600), millis(600));
        assert_eq!(after(1400), millis(600));
        assert_eq!(after(1000), millis(650));
    }

    #[test]
    fn the_send_buffer_is_some_windows_in_the_memory_of_linux() {
        let auto = Buffer::Auto { initial: 10, max: 100_000 };
        // 1,460 + 640 bytes take 4,096, plus 256 for their descriptor.
        assert_eq!(send_capacity(auto, 14_600, 1460, 2), 87_040);
        assert_eq!(send_capacity(auto, 14_600, 1460, 3), 100_000);
        assert_eq!(send_capacity(Buffer::Fixed(7), 14_600, 1460, 2), 7);
    }

    #[test]
    fn five_eighths_of_linuxs_receive_buffer_are_announced() {
        let (linux, unlimited) = (BufferLimit::Linux, BufferLimit::Unlimited);
        assert_eq!(linux.window(), 3_932_160);
        assert_eq!(BufferLimit::memory_of_window(linux.window()), 6 << 20);
        assert_eq!(BufferLimit::memory_of_window(unlimited.window()), 256 << 20);
    }

    #[test]
    fn packets_take_memory_beyond_their_data() {
        let mss = 1448;
        let at = |pacing_rate_bps| Queued {
            unsent: 65_160,
            in_flight: 24 * mss,
            sacked: 100 * mss,
            pacing_rate_bps,
            mss,
        };
        // 145 kB are acknowledged selectively, in three packets; one is not sent.
        assert_eq!(at(26_400_000).overhead(), 832 * (12 + 4), "two segments each");
        assert_eq!(at(51_400_000).overhead(), 832 * (6 + 4), "four");
        assert_eq!(at(10_000_000_000).overhead(), 832 * (1 + 4));
    }
}
