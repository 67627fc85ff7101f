//! Rate of a route: a token bucket shared by its connections.

use std::time::Duration;

use engine::Time;

use session::settings;

settings! {
    /// Rate of packets on a route. The latest connection of a route sets it for all of them, like a
    /// socket option in the reference implementation.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct RateControl {
        /// Rate of IP packets in bit/s; `None` uses the interface's rate, including its overhead
        /// per packet, if known.
        pub bps: Option<u64> = None,
        /// Time between two increments of the rate's credit; `"0 s"` adds it continuously.
        pub tick("rate_tick"): Duration as Span = Duration::from_millis(10),
    }
}

/// Packet costs of an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Wire {
    pub(crate) mtu: usize,
    pub(crate) rate_bps: Option<u64>,
    pub(crate) overhead: usize,
}

/// Ticks, and packets of the MTU, that may be saved up.
const SAVED: u128 = 5;

/// Bits times nanoseconds: the cost of one byte at 1 bit/s.
const BYTE: u128 = 8_000_000_000;

/// Token bucket. Credit is counted in bits times nanoseconds, so that nothing is rounded.
#[derive(Clone, Debug)]
pub(crate) struct Bucket {
    control: RateControl,
    wire: Wire,
    credit: u128,
    /// Time up to which credit was added.
    at: Time,
}

impl Bucket {
    /// Bucket with credit for five packets.
    pub(crate) fn new(now: Time, control: RateControl, wire: Wire) -> Self {
        Self { control, wire, credit: SAVED * wire.mtu as u128 * BYTE, at: now }
    }

    /// Changes settings or interface. Saved credit is kept, up to the new limit.
    pub(crate) fn set(&mut self, now: Time, control: RateControl, wire: Wire) {
        self.refill(now);
        (self.control, self.wire) = (control, wire);
        self.credit = self.credit.min(self.most());
    }

    pub(crate) fn control(&self) -> RateControl {
        self.control
    }

    fn bps(&self) -> Option<u64> {
        self.control.bps.or(self.wire.rate_bps).map(|bps| bps.max(1))
    }

    /// Overhead of a packet, in bytes.
    pub(crate) fn overhead(&self) -> usize {
        if self.control.bps.is_some() { 0 } else { self.wire.overhead }
    }

    fn most(&self) -> u128 {
        let bps = u128::from(self.bps().unwrap_or(0));
        // 10 Mbit/s for five ticks of 10 ms: 62,500 bytes; 10 kbit/s: five packets.
        let ticks = SAVED * bps * self.control.tick.as_nanos();
        ticks.max(SAVED * (self.wire.mtu + self.overhead()) as u128 * BYTE)
    }

    fn refill(&mut self, now: Time) {
        let passed = now.since(self.at).as_nanos();
        let tick = self.control.tick.as_nanos().max(1);
        let given = passed - passed % tick;
        self.at += Duration::from_nanos(u64::try_from(given).unwrap_or(u64::MAX));
        let bps = u128::from(self.bps().unwrap_or(0));
        self.credit = self.credit.saturating_add(bps * given).min(self.most());
    }

    /// Bytes that may be sent now; `None`: unlimited.
    pub(crate) fn credit(&mut self, now: Time) -> Option<u64> {
        self.bps()?;
        self.refill(now);
        Some((self.credit / BYTE) as u64)
    }

    /// Takes credit for sent bytes.
    pub(crate) fn spend(&mut self, bytes: u64) {
        self.credit = self.credit.saturating_sub(u128::from(bytes) * BYTE);
    }

    /// Time after `now` at which there is credit for `bytes`, or for the maximum.
    pub(crate) fn ready_at(&self, now: Time, bytes: u64) -> Time {
        let Some(bps) = self.bps() else { return now };
        let needed = (u128::from(bytes) * BYTE).min(self.most());
        let lacking = needed.saturating_sub(self.credit);
        let tick = self.control.tick.as_nanos().max(1);
        let nanos = lacking.div_ceil(u128::from(bps)).next_multiple_of(tick).max(tick);
        let at = self.at + Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX));
        at.max(now + Duration::from_nanos(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WIRE: Wire = Wire { mtu: 1500, rate_bps: None, overhead: 0 };

    fn millis(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    #[test]
    fn five_packets_leave_at_once_and_then_as_the_rate_allows() {
        let control = RateControl { bps: Some(1_200_000), tick: millis(10) };
        let start = Time::from_secs(5);
        let mut bucket = Bucket::new(start, control, WIRE);
        assert_eq!(bucket.credit(start), Some(7500));
        bucket.spend(7500);
        assert_eq!(bucket.credit(start + millis(9)), Some(0), "no tick has passed");
        // 1.2 Mbit/s are 1,500 bytes per tick.
        assert_eq!(bucket.ready_at(start + millis(9), 1500), start + millis(10));
        assert_eq!(bucket.credit(start + millis(10)), Some(1500));
        assert_eq!(bucket.ready_at(start + millis(10), 3001), start + millis(30));
        assert_eq!(bucket.credit(start + millis(10_000)), Some(7500), "five ticks are saved");
    }

    #[test]
    fn fractions_of_a_slow_rate_are_kept() {
        let control = RateControl { bps: Some(2400), tick: millis(10) };
        let start = Time::from_secs(5);
        let mut bucket = Bucket::new(start, control, WIRE);
        bucket.spend(7500);
        for tick in 1..=1000 {
            bucket.credit(start + millis(10 * tick));
        }
        // 10 s at 300 bytes per second.
        assert_eq!(bucket.credit(start + millis(10_000)), Some(3000));
        bucket.spend(3000);
        // 1,500 bytes take 5 s.
        assert_eq!(bucket.ready_at(start + millis(10_000), 1500), start + millis(15_000));
    }

    #[test]
    fn rate_defaults_to_the_interface_rate() {
        let start = Time::from_secs(5);
        let mut none = Bucket::new(start, RateControl::default(), WIRE);
        assert_eq!(none.credit(start), None, "nobody knows a rate");
        let wire = Wire { mtu: 1500, rate_bps: Some(8_000_000), overhead: 8 };
        none.set(start, RateControl::default(), wire);
        none.spend(7540);
        // 8 Mbit/s are 10,000 bytes per tick.
        assert_eq!((none.credit(start + millis(10)), none.overhead()), (Some(10_000), 8));
        let control = RateControl { bps: Some(80_000), tick: Duration::ZERO };
        none.set(start + millis(10), control, wire);
        assert_eq!(none.overhead(), 0);
        assert_eq!(none.credit(start + millis(10)), Some(7500), "the bound is lower now");
        none.spend(7500);
        assert_eq!(none.credit(start + millis(11)), Some(10));
    }
}
