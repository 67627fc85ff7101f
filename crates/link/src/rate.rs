//! Line rates and token buckets, free of accumulating rounding errors.

use engine::Time;

use crate::ConfigError;
use crate::config::ascending;

/// The line rate.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Rate {
    /// Packets take no time.
    #[default]
    Infinite,
    /// bit/s, not 0.
    Constant(u64),
    /// Changes over time, ascending, at least one; the first step's rate also holds before it. A
    /// packet in transmission when the rate steps sends its remaining bits at the new rate.
    Steps(Vec<RateStep>),
}

/// A rate and the moment from which it holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RateStep {
    /// First moment.
    pub from: Time,
    /// bit/s, not 0.
    pub bps: u64,
}

impl From<Option<u64>> for Rate {
    /// `None` is infinite.
    fn from(bps: Option<u64>) -> Self {
        bps.map_or(Self::Infinite, Self::Constant)
    }
}

impl Rate {
    /// Returns bit/s at `at`; `None` if infinite.
    #[must_use]
    pub fn bps_at(&self, at: Time) -> Option<u64> {
        match self {
            Self::Infinite => None,
            Self::Constant(bps) => Some(*bps),
            Self::Steps(steps) => steps.get(step_at(steps, at)).map(|step| step.bps),
        }
    }

    pub(crate) fn validate(&self) -> Result<(), ConfigError> {
        let zero = Err(ConfigError::ZeroRate { what: "rate" });
        match self {
            Self::Infinite => Ok(()),
            Self::Constant(bps) => {
                if *bps == 0 {
                    zero
                } else {
                    Ok(())
                }
            }
            Self::Steps(steps) if steps.iter().any(|step| step.bps == 0) => zero,
            Self::Steps(steps) => ascending("rate", steps.iter().map(|step| step.from.as_nanos())),
        }
    }

    /// Returns the end of a transmission of `bytes` that starts at `from`.
    pub(crate) fn serve(&self, from: Moment, bytes: usize) -> Moment {
        // At r bit/s a nanosecond does r units of work of 1e-9 bit each, so work is an integer.
        let work = bytes as u128 * 8 * 1_000_000_000;
        match self {
            Self::Infinite => from,
            Self::Constant(bps) => from.work(work, *bps),
            Self::Steps(steps) => {
                let (mut at, mut work) = (from, work);
                let mut index = step_at(steps, Time::from_nanos(at.nanos));
                while let Some(step) = steps.get(index) {
                    let Some(next) = steps.get(index + 1) else {
                        return at.work(work, step.bps);
                    };
                    at = at.in_units_of(step.bps);
                    let span = next.from.as_nanos() - at.nanos;
                    let capacity = u128::from(step.bps) * u128::from(span) - u128::from(at.part);
                    if work < capacity {
                        return at.work(work, step.bps);
                    }
                    work -= capacity;
                    at = Moment::whole(next.from);
                    index += 1;
                }
                at
            }
        }
    }
}

fn step_at(steps: &[RateStep], at: Time) -> usize {
    steps.partition_point(|step| step.from <= at).saturating_sub(1)
}

/// A moment with its fraction of a nanosecond: `nanos + part / of`, `part < of`.
///
/// If `of` is the rate in bit/s, sums of serialisation times are exact. A million packets of 1,053
/// bytes at 1.024 Mbit/s end where one transmission of all their bits would.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Moment {
    nanos: u64,
    part: u64,
    of: u64,
}

impl Moment {
    pub(crate) fn whole(at: Time) -> Self {
        Self { nanos: at.as_nanos(), part: 0, of: 1 }
    }

    /// Returns the first nanosecond not before this moment.
    pub(crate) fn ceil(self) -> Time {
        Time::from_nanos(self.nanos.saturating_add(u64::from(self.part > 0)))
    }

    pub(crate) fn plus_nanos(self, nanos: u64) -> Self {
        Self { nanos: self.nanos.saturating_add(nanos), ..self }
    }

    /// Converts the fraction to another rate's units. Truncates less than one unit, and only when
    /// the rate changes.
    fn in_units_of(self, bps: u64) -> Self {
        if self.of == bps {
            return self;
        }
        let part = u128::from(self.part) * u128::from(bps) / u128::from(self.of);
        Self { part: part as u64, of: bps, ..self }
    }

    /// Returns this moment plus the time of `work` units at `bps`.
    fn work(self, work: u128, bps: u64) -> Self {
        let at = self.in_units_of(bps);
        let total = work + u128::from(at.part);
        // 64-bit division is several times faster than 128-bit, and 2 GB fit into it.
        let (nanos, part) = match u64::try_from(total) {
            Ok(total) => (total / bps, total % bps),
            Err(_) => {
                let bps = u128::from(bps);
                (u64::try_from(total / bps).unwrap_or(u64::MAX), (total % bps) as u64)
            }
        };
        Self { nanos: at.nanos.saturating_add(nanos), part, of: bps }
    }
}

/// Two token buckets in the shape of Linux's HTB for one class without a parent to borrow from.
///
/// A bucket of `burst` bytes fills at `rate`, another of `cburst` bytes at `ceil`; both start
/// full. A packet may start when *both* hold its framed length, and takes it from both. A packet
/// longer than a bucket waits until that bucket is full and overdraws it; the debt is filled
/// first.
///
/// So after a pause packets leave at the line rate for `cburst` bytes, then at `ceil` until
/// `burst` is used up, then at `rate`. With packets no longer than the buckets, the bytes that
/// start within any time t are at most `burst + rate·t` and at most `cburst + ceil·t`.
///
/// The kernel lets a class whose bucket is not empty overdraw it by one packet; here it waits,
/// which makes the bound exact. `rate = ceil`, `burst = cburst` models a class that may always
/// borrow up to its ceiling.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TokenBucket {
    /// Sustained rate, bit/s.
    pub rate: u64,
    /// Peak rate, bit/s, not below `rate`.
    pub ceil: u64,
    /// Bytes that may be sent above `rate`.
    pub burst: u64,
    /// Bytes that may be sent above `ceil`.
    pub cburst: u64,
}

impl TokenBucket {
    pub(crate) fn validate(&self) -> Result<(), ConfigError> {
        if self.rate == 0 {
            return Err(ConfigError::ZeroRate { what: "token bucket" });
        }
        if self.ceil < self.rate {
            return Err(ConfigError::CeilBelowRate { rate: self.rate, ceil: self.ceil });
        }
        Ok(())
    }
}

/// Tokens of both buckets.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tokens {
    sustained: Bucket,
    peak: Bucket,
}

impl Tokens {
    pub(crate) fn full(shaper: &TokenBucket, at: Time) -> Self {
        Self { sustained: Bucket::full(shaper.burst, at), peak: Bucket::full(shaper.cburst, at) }
    }

    /// Returns the first moment from `at` on at which a frame of `bytes` may start.
    pub(crate) fn ready(&self, shaper: &TokenBucket, at: Time, bytes: usize) -> Time {
        let sustained = self.sustained.ready(shaper.rate, shaper.burst, at, bytes);
        let peak = self.peak.ready(shaper.ceil, shaper.cburst, at, bytes);
        sustained.max(peak)
    }

    /// Takes a frame's tokens when the frame starts.
    pub(crate) fn take(&mut self, shaper: &TokenBucket, at: Time, bytes: usize) {
        self.sustained.take(shaper.rate, shaper.burst, at, bytes);
        self.peak.take(shaper.ceil, shaper.cburst, at, bytes);
    }
}

/// Tokens in units of 1e-9 bit, so that filling for a nanosecond adds the rate.
#[derive(Clone, Copy, Debug)]
struct Bucket {
    level: i128,
    filled: Time,
}

fn units(bytes: u64) -> i128 {
    i128::from(bytes) * 8 * 1_000_000_000
}

impl Bucket {
    fn full(size: u64, at: Time) -> Self {
        Self { level: units(size), filled: at }
    }

    fn level(&self, rate: u64, size: u64, at: Time) -> i128 {
        let passed = at.as_nanos().saturating_sub(self.filled.as_nanos());
        (self.level + i128::from(rate) * i128::from(passed)).min(units(size))
    }

    fn ready(&self, rate: u64, size: u64, at: Time, bytes: usize) -> Time {
        let missing = units(size.min(bytes as u64)) - self.level(rate, size, at);
        if missing <= 0 {
            return at;
        }
        let rate = i128::from(rate);
        let nanos = u64::try_from((missing + rate - 1) / rate).unwrap_or(u64::MAX);
        Time::from_nanos(at.as_nanos().saturating_add(nanos))
    }

    fn take(&mut self, rate: u64, size: u64, at: Time, bytes: usize) {
        self.level = self.level(rate, size, at) - units(bytes as u64);
        self.filled = at;
    }
}
