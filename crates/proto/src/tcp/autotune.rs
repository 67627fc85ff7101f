//! Buffers that grow with what the connection carries.

use std::time::Duration;

use engine::Time;

use super::config::Buffer;

/// How large the receive buffer should be: twice what the user reads in a round trip, so that the
/// peer can double what it sends (dynamic right-sizing, as modern kernels do it).
#[derive(Clone, Debug)]
pub(crate) struct ReceiveTuning {
    max: Option<u64>,
    rtt: Option<Duration>,
    since: Time,
    read: u64,
    /// The most that was read in a round trip.
    most: u64,
}

impl ReceiveTuning {
    pub(crate) fn new(now: Time, buffer: Buffer) -> Self {
        let max = match buffer {
            Buffer::Fixed(_) => None,
            Buffer::Auto { max, .. } => Some(max),
        };
        Self { max, rtt: None, since: now, read: 0, most: 0 }
    }

    /// Learns how long an acknowledgment takes to bring new data.
    pub(crate) fn round_trip(&mut self, took: Duration) {
        self.rtt = Some(self.rtt.map_or(took, |rtt| (rtt * 7 + took) / 8));
    }

    /// The user read so many octets. Returns the size the buffer should have, if it should change.
    pub(crate) fn read(
        &mut self,
        now: Time,
        octets: u64,
        rtt: Option<Duration>,
        mss: u64,
    ) -> Option<u64> {
        let max = self.max?;
        self.read += octets;
        let rtt = self.rtt.or(rtt)?;
        if now.since(self.since) < rtt {
            return None;
        }
        let read = std::mem::take(&mut self.read);
        self.since = now;
        if read <= self.most {
            return None;
        }
        // As much again as it grew, for the peer is in slow start.
        let grew = if self.most > 0 { read - self.most } else { 0 };
        self.most = read;
        Some((2 * read + 2 * grew + 16 * mss).min(max))
    }
}

/// How large the send buffer should be for this congestion window: twice of it, so that there is
/// something to send when it doubles.
pub(crate) fn send_capacity(buffer: Buffer, cwnd: u64) -> u64 {
    match buffer {
        Buffer::Fixed(size) => size,
        Buffer::Auto { max, .. } => cwnd.saturating_mul(2).min(max),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_receive_buffer_follows_what_is_read_in_a_round_trip() {
        let buffer = Buffer::Auto { initial: 65_536, max: 1_000_000 };
        let mut tuning = ReceiveTuning::new(Time::ZERO, buffer);
        let rtt = Some(Duration::from_millis(100));
        let at = |millis: u64| Time::from_nanos(millis * 1_000_000);
        assert_eq!(tuning.read(at(50), 40_000, rtt, 1000), None, "half a round trip");
        assert_eq!(tuning.read(at(100), 10_000, rtt, 1000), Some(116_000));
        assert_eq!(tuning.read(at(200), 50_000, rtt, 1000), None, "no more than before");
        // 2 * 100,000 + 2 * 50,000 + 16,000.
        assert_eq!(tuning.read(at(300), 100_000, rtt, 1000), Some(316_000));
        assert_eq!(tuning.read(at(400), 800_000, rtt, 1000), Some(1_000_000));
        let mut fixed = ReceiveTuning::new(Time::ZERO, Buffer::Fixed(9));
        assert_eq!(fixed.read(at(400), 800_000, rtt, 1000), None);
    }

    #[test]
    fn the_send_buffer_is_twice_the_window() {
        let auto = Buffer::Auto { initial: 10, max: 5000 };
        assert_eq!((send_capacity(auto, 1000), send_capacity(auto, 9000)), (2000, 5000));
        assert_eq!(send_capacity(Buffer::Fixed(7), 1000), 7);
    }
}
