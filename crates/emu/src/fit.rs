//! Check whether this machine can run a world, before it is made.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use link::{Config, Delay, Rate};

use crate::pump::OVERHEAD;
use crate::store::Store;
use crate::world::Plan;

/// Capacity of the emulator on this machine, over one link without a rate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Capacity {
    /// Packets per second, each read and written separately.
    pub packets: f64,
    /// Bytes of packets per second, in pieces of up to 64 KB.
    pub bytes: f64,
}

/// A requirement of a world that this machine does not meet.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Misfit {
    /// The links, all busy in their faster direction, carry more packets per second than the
    /// emulator can.
    Packets {
        /// Required packets per second.
        needed: f64,
        /// Capacity in packets per second.
        carried: f64,
    },
    /// The links carry more bytes per second than the emulator can.
    Bytes {
        /// Required bytes per second.
        needed: f64,
        /// Capacity in bytes per second.
        carried: f64,
    },
    /// Packets in flight over full links exceed the configured memory.
    Memory {
        /// Bytes in flight over all links, each full in one direction.
        needed: u64,
        /// Configured bound in bytes.
        bound: u64,
        /// Link with the largest share, whose rate and delay follow.
        link: usize,
        /// Rate in bit/s.
        bps: f64,
        /// Longest delay.
        delay: Duration,
    },
    /// The machine has less free memory than packets may and would take.
    Machine {
        /// Bytes in flight over all links.
        needed: u64,
        /// Free memory in bytes.
        available: u64,
    },
}

impl fmt::Display for Misfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let gigabytes = |bytes: u64| bytes as f64 / 1e9;
        match *self {
            Self::Packets { needed, carried } => write!(
                f,
                "full links ask for {needed:.0} packets a second, and this machine carries \
                 {carried:.0}"
            ),
            Self::Bytes { needed, carried } => write!(
                f,
                "full links ask for {:.0} Mbit/s, and this machine carries {:.0}",
                needed * 8.0 / 1e6,
                carried * 8.0 / 1e6
            ),
            Self::Memory { needed, bound, bps, delay, .. } => write!(
                f,
                "{:.1} Mbit/s for {delay:?} are on the way at once: with all links {:.2} GB, and \
                 packets may take {:.2} GB; packets beyond that are dropped (see --memory)",
                bps / 1e6,
                gigabytes(needed),
                gigabytes(bound)
            ),
            Self::Machine { needed, available } => write!(
                f,
                "full links hold {:.2} GB, and the machine has {:.2} GB to spare",
                gigabytes(needed),
                gigabytes(available)
            ),
        }
    }
}

/// A full link.
#[derive(Clone, Copy, Debug)]
struct Full {
    link: usize,
    bps: f64,
    packets: f64,
    delay: Duration,
    in_flight: u64,
}

impl Plan {
    /// Returns the world's requirements that this machine does not meet: of the emulator's
    /// capacity, if measured, and of free memory, if known.
    #[must_use]
    pub fn misfits(&self, capacity: Option<&Capacity>, available: Option<u64>) -> Vec<Misfit> {
        let full = self.full();
        let mut misfits = Vec::new();
        // A rate spaces packets out, so each is written separately.
        let (packets, bytes) = full.iter().fold((0.0, 0.0), |(packets, bytes), full| {
            (packets + full.packets, bytes + full.bps / 8.0)
        });
        if let Some(capacity) = capacity {
            if packets > capacity.packets {
                misfits.push(Misfit::Packets { needed: packets, carried: capacity.packets });
            }
            if bytes > capacity.bytes {
                misfits.push(Misfit::Bytes { needed: bytes, carried: capacity.bytes });
            }
        }
        let needed = full.iter().fold(0_u64, |sum, full| sum.saturating_add(full.in_flight));
        let most = full.iter().max_by_key(|full| full.in_flight);
        if let Some(&Full { link, bps, delay, .. }) = most.filter(|_| needed > self.memory) {
            let bound = self.memory;
            misfits.push(Misfit::Memory { needed, bound, link, bps, delay });
        }
        let taken = needed.min(self.memory);
        if let Some(available) = available.filter(|available| taken > *available) {
            misfits.push(Misfit::Machine { needed: taken, available });
        }
        misfits
    }

    /// Returns the bytes of packets in flight when every link is full in one direction.
    #[must_use]
    pub fn in_flight(&self) -> u64 {
        self.full().iter().fold(0, |sum, full| sum.saturating_add(full.in_flight))
    }

    /// Returns, for each pair of linked hosts, the direction that holds more. A link without a rate
    /// requires nothing.
    fn full(&self) -> Vec<Full> {
        let mut pairs: BTreeMap<(usize, usize), Full> = BTreeMap::new();
        for (link, plan) in self.links.iter().enumerate() {
            let Some(bps) = rate(&plan.config) else { continue };
            let delay = delay(&plan.config.delay);
            let bytes = bps / 8.0 * delay.as_secs_f64();
            let framed = plan.config.framing.framed_len(plan.mtu as usize);
            let packets = bps / 8.0 / framed as f64;
            let overhead = packets * delay.as_secs_f64() * OVERHEAD as f64;
            let in_flight = bytes as u64 + bytes as u64 / Store::LEFT_OVER + overhead as u64;
            let full = Full { link, bps, packets, delay, in_flight };
            let ends = (plan.from.min(plan.to), plan.from.max(plan.to));
            let most = pairs.entry(ends).or_insert(full);
            if (full.in_flight, full.bps as u64) > (most.in_flight, most.bps as u64) {
                *most = full;
            }
        }
        pairs.into_values().collect()
    }
}

/// Highest rate of a link in bit/s; `None` if unlimited.
fn rate(config: &Config) -> Option<f64> {
    let line = match &config.rate {
        Rate::Infinite => None,
        Rate::Constant(bps) => Some(*bps),
        Rate::Steps(steps) => steps.iter().map(|step| step.bps).max(),
    };
    let shaped = config.shaper.as_ref().map(|shaper| shaper.rate);
    line.into_iter().chain(shaped).min().map(|bps| bps as f64)
}

/// Longest delay of a link.
fn delay(delay: &Delay) -> Duration {
    match delay {
        Delay::Constant(delay) => *delay,
        Delay::Table { points, .. } => {
            points.iter().map(|(_, delay)| *delay).max().unwrap_or_default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::pair;

    const CAPACITY: Capacity = Capacity { packets: 200_000.0, bytes: 1e9 };

    fn config(bps: Option<u64>, delay: u64) -> Config {
        Config {
            rate: bps.into(),
            delay: Delay::Constant(Duration::from_secs(delay)),
            ..Config::default()
        }
    }

    #[test]
    fn fitting_worlds_have_no_misfit() {
        let plan = pair(config(Some(1_000_000_000), 1), config(None, 0), 1, 1 << 30);
        assert_eq!(plan.misfits(Some(&CAPACITY), Some(8 << 30)), []);
        assert_eq!(plan.misfits(None, None), []);
    }

    #[test]
    fn long_delays_take_memory() {
        // 100 Mbit/s for 20 min are 15 GB; the overhead of packets of 1,500 bytes adds 2 or 3 GB.
        let there = config(Some(100_000_000), 1200);
        let plan = pair(there.clone(), there, 1, 1 << 30);
        let [Misfit::Memory { needed, link: 0, .. }] = plan.misfits(None, Some(8 << 30))[..] else {
            panic!("one misfit")
        };
        assert!((16_500_000_000..19_500_000_000).contains(&needed), "{needed}");
        let text = plan.misfits(None, None)[0].to_string();
        assert!(text.contains("100.0 Mbit/s for 1200s") && text.contains("1.07 GB"), "{text}");
        let roomy = Plan { memory: 20 << 30, ..plan };
        assert_eq!(roomy.misfits(None, Some(24 << 30)), []);
        assert!(matches!(roomy.misfits(None, Some(8 << 30))[..], [Misfit::Machine { .. }]));
    }

    #[test]
    fn rates_are_compared_with_the_measured_baseline() {
        let fast = pair(config(Some(10_000_000_000), 0), config(Some(1_000), 0), 1, 1 << 30);
        let misfits = fast.misfits(Some(&CAPACITY), None);
        // 10 Gbit/s in packets of 1,500 bytes are 833,333 a second.
        assert!(matches!(misfits[..], [Misfit::Packets { .. }, Misfit::Bytes { .. }]));
        assert!(misfits[0].to_string().contains("833333 packets"), "{}", misfits[0]);
        assert_eq!(fast.misfits(None, None), []);
        // A link without a rate requires nothing.
        let far = pair(config(None, 2), config(None, 2), 1, 1 << 30);
        assert_eq!(far.misfits(Some(&CAPACITY), None), []);
    }
}
