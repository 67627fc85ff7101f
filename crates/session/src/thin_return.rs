//! Requests for repair over a thin return link. Gaps are joined where separate requests would cost
//! more than receiving the bytes between them again.
//!
//! A request names the gaps of a block. Each further gap adds some bytes to it, which take time on
//! the return link. Leaving two gaps apart saves the bytes between them, which take time on the
//! forward link. If the return link is thinner than the forward one by some orders of magnitude,
//! it is faster to request both gaps as one range. The bytes between them are then received a
//! second time.
//!
//! A receiver knows the rate of its own path ([`Path::rate_bps`](crate::path::Path::rate_bps)) and
//! measures the forward rate from arriving data ([`ArrivalRate`]). [`bridge`] derives the maximum
//! distance from both, and [`join`] applies it:
//!
//! ```ignore
//! let most = thin_return::bridge(8, self.arrivals.bps(), path.rate_bps());
//! let requests = thin_return::join(ranges.gaps(0, end), most);
//! ```
//!
//! Where either rate is unknown, nothing is joined.

pub mod fill;

use std::time::Duration;

use engine::Time;

/// Datagrams of one measurement.
const DATAGRAMS: u32 = 16;

/// Ranges that a request lists at most while new data still arrives: its headers are a quarter of
/// it then, and it takes 1 s at 2 kbit/s. With 16 or 32 the 5 MB of the tests take 5 % longer.
pub const EARLY_ITEMS: usize = 24;

/// Minimum duration of one measurement: a driver delivers batches of datagrams at one time.
const SPAN: Duration = Duration::from_millis(1);

/// Rate of arriving data, measured continuously.
///
/// The estimate is the mean over at least 16 datagrams and 1 ms. It rises at once and sinks by an
/// eighth of the difference with each measurement, so that pauses of the sender do not count as a
/// slow link.
#[derive(Clone, Copy, Debug, Default)]
pub struct ArrivalRate {
    /// Start of the measurement; its first datagram does not count.
    since: Option<Time>,
    datagrams: u32,
    bytes: u64,
    bps: Option<u64>,
}

impl ArrivalRate {
    /// No arrivals.
    pub const fn new() -> Self {
        Self { since: None, datagrams: 0, bytes: 0, bps: None }
    }

    /// Records the arrival of a datagram of `len` bytes.
    pub fn arrived(&mut self, now: Time, len: usize) {
        let Some(since) = self.since else {
            self.since = Some(now);
            return;
        };
        self.datagrams += 1;
        self.bytes += len as u64;
        let took = now.since(since);
        if self.datagrams < DATAGRAMS || took < SPAN {
            return;
        }
        // 16 datagrams of 1,472 bytes in 1.256 ms: 150 Mbit/s.
        let bits = u128::from(self.bytes) * 8 * 1_000_000_000 / took.as_nanos();
        let measured = u64::try_from(bits).unwrap_or(u64::MAX);
        let before = self.bps.unwrap_or_default();
        self.bps = Some(measured.max(before - before / 8 + measured / 8));
        (self.since, self.datagrams, self.bytes) = (Some(now), 0, 0);
    }

    /// Estimate in bit/s, once there is one.
    pub const fn bps(&self) -> Option<u64> {
        self.bps
    }
}

/// Maximum bytes between two gaps that take less time on the forward link than `request` bytes on
/// the return link; 0 where a rate is unknown.
///
/// 8 bytes at 2 kbit/s are 32 ms, in which 600 kB cross a link of 150 Mbit/s.
pub fn bridge(request: usize, forward_bps: Option<u64>, return_bps: Option<u64>) -> u64 {
    let (Some(there), Some(back)) = (forward_bps, return_bps.filter(|rate| *rate > 0)) else {
        return 0;
    };
    let bytes = request as u128 * u128::from(there) / u128::from(back);
    u64::try_from(bytes).unwrap_or(u64::MAX)
}

/// Minimum distance at which [`join`] leaves at most `count` ranges of `gaps`; at most `longest`,
/// because more distant gaps are faster to request separately.
pub fn bridge_for(gaps: &[(u64, u64)], longest: u64, count: usize) -> u64 {
    if longest == 0 || gaps.len() <= count {
        return 0;
    }
    let mut distances: Vec<u64> = gaps.windows(2).map(|two| two[1].0 - two[0].1).collect();
    // All but the `count - 1` longest distances are bridged.
    let Some(last) = distances.len().checked_sub(count.max(1)) else { return 0 };
    let (_, longest_bridged, _) = distances.select_nth_unstable(last);
    longest.min(*longest_bridged)
}

/// Joins gaps with at most `bridge` bytes between them. The given gaps and the returned ones are
/// in order and do not overlap.
pub fn join(
    gaps: impl IntoIterator<Item = (u64, u64)>,
    bridge: u64,
) -> impl Iterator<Item = (u64, u64)> {
    let mut rest = gaps.into_iter().peekable();
    std::iter::from_fn(move || {
        let (start, mut end) = rest.next()?;
        while let Some((_, next)) = rest.next_if(|(start, _)| start.saturating_sub(end) <= bridge) {
            end = end.max(next);
        }
        Some((start, end))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const GAPS: [(u64, u64); 4] = [(0, 10), (20, 30), (45, 50), (50, 60)];

    fn joined(bridge: u64) -> Vec<(u64, u64)> {
        join(GAPS, bridge).collect()
    }

    #[test]
    fn near_gaps_become_one() {
        assert_eq!(joined(0), [(0, 10), (20, 30), (45, 60)]);
        assert_eq!(joined(9), [(0, 10), (20, 30), (45, 60)]);
        assert_eq!(joined(10), [(0, 30), (45, 60)]);
        assert_eq!(joined(15), [(0, 60)]);
        assert_eq!(join([], u64::MAX).count(), 0);
        assert_eq!(join([(0, 1), (u64::MAX - 1, u64::MAX)], u64::MAX).count(), 1);
    }

    #[test]
    fn ranges_are_bounded() {
        let left = |longest, count| join(GAPS, bridge_for(&GAPS, longest, count)).count();
        assert_eq!([1, 2, 3, 4, 5].map(|count| left(u64::MAX, count)), [1, 2, 3, 3, 3]);
        assert_eq!(left(u64::MAX, 0), 1);
        // Ranges that are faster to request separately are not joined.
        assert_eq!(left(10, 1), 2);
        assert_eq!(bridge_for(&[], u64::MAX, 0), 0);
        assert_eq!(bridge_for(&GAPS[..1], u64::MAX, 0), 0);
    }

    /// 340 gaps in 5 MB at 150 Mbit/s forward and 2 kbit/s return become one; on a symmetric link
    /// they stay apart.
    #[test]
    fn the_bridge_is_the_forward_data_of_a_request() {
        let bridge_of = |there, back| bridge(8, Some(there), Some(back));
        assert_eq!(bridge_of(150_000_000, 2_000), 600_000);
        assert_eq!(bridge_of(1_000_000, 1_000_000), 8);
        assert_eq!(bridge_of(1_000, 1_000_000), 0);
        assert_eq!(bridge_of(u64::MAX, 1), u64::MAX);
        let gaps = || (0..340).map(|n| (n * 14_720, n * 14_720 + 1_472));
        assert_eq!(join(gaps(), bridge_of(150_000_000, 2_000)).count(), 1);
        assert_eq!(join(gaps(), bridge_of(10_000_000, 100_000)).count(), 340);
        for (there, back) in [(None, Some(1)), (Some(1), None), (Some(1), Some(0)), (None, None)] {
            assert_eq!(bridge(8, there, back), 0);
        }
    }

    #[test]
    fn the_arrival_rate_survives_pauses() {
        let mut rate = ArrivalRate::new();
        let mut now = Time::ZERO;
        // 1,250 bytes each millisecond are 10 Mbit/s; some of them are lost.
        for n in 0..100 {
            now += Duration::from_millis(1);
            if n % 10 != 3 {
                rate.arrived(now, 1250);
            }
        }
        let measured = rate.bps().expect("a hundred are enough");
        assert!((8_500_000..=10_000_000).contains(&measured), "{measured}");
        now += Duration::from_secs(60);
        for _ in 0..16 {
            rate.arrived(now, 1250);
        }
        let after = rate.bps().expect("it was measured");
        assert!(after * 8 >= measured * 7, "{after} after {measured}");
    }

    #[test]
    fn simultaneous_arrivals_are_not_measured() {
        let mut rate = ArrivalRate::new();
        for _ in 0..64 {
            rate.arrived(Time::ZERO, 1000);
        }
        assert_eq!(rate.bps(), None);
        rate.arrived(Time::ZERO + Duration::from_millis(8), 1000);
        assert_eq!(rate.bps(), Some(64_000_000));
    }
}
