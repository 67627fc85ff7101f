//! Faults of a run: of datagrams, hosts and paths.

use std::time::Duration;

use super::Role;
use crate::Rng;

/// Fault of one datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    Drop,
    /// Arrives normally, and again this much later.
    Duplicate(Duration),
    /// Arrives this much later.
    Late(Duration),
    /// Only this many thousandths of the datagram arrive.
    Truncate(u16),
    /// Some bits are flipped, drawn from this seed.
    Corrupt(u64),
}

impl Fault {
    /// Faults with different effects; after two hours both engines have forgotten the transfer.
    pub(super) const EACH: [Self; 10] = [
        Self::Drop,
        Self::Duplicate(Duration::ZERO),
        Self::Duplicate(Duration::from_millis(500)),
        Self::Duplicate(Duration::from_secs(7_200)),
        Self::Late(Duration::from_nanos(1)),
        Self::Late(Duration::from_secs(3)),
        Self::Late(Duration::from_secs(7_200)),
        Self::Truncate(0),
        Self::Truncate(900),
        Self::Corrupt(1),
    ];

    pub(super) fn random(rng: &mut Rng) -> Self {
        match rng.below(5) {
            0 => Self::Drop,
            1 => Self::Duplicate(Duration::from_nanos(rng.below(5_000_000_000))),
            2 => Self::Late(Duration::from_nanos(rng.below(5_000_000_000))),
            3 => Self::Truncate(rng.below(1000) as u16),
            _ => Self::Corrupt(rng.next_u64()),
        }
    }
}

/// Faults of the datagrams of a run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Faults {
    None,
    /// Strikes the datagram `index`, from 0, that `from` sends.
    One {
        from: Role,
        index: u64,
        fault: Fault,
    },
    /// Strikes each datagram with this probability.
    Random(f64),
}

/// Interruption of a host or its path, before an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Interruption {
    /// The path is down in both directions for this long.
    Outage(Duration),
    /// Nothing arrives at one role for this time, and its engine is notified.
    ReturnOutage(Role, Duration),
    /// The path of one role is full for this long.
    Block(Role, Duration),
    /// The engine is lost and recreated.
    Restart(Role),
}

/// Faults of a run: differences from a world in which everything works.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Plan {
    pub(super) seed: u64,
    pub(super) faults: Faults,
    pub(super) interruption: Option<(u64, Interruption)>,
    /// Storage effect, from 0, that fails at one role.
    pub(super) effect_fails: Option<(Role, u64)>,
    /// Maximum datagrams in one transmit, and in one receive.
    pub(super) batch_tx: usize,
    pub(super) batch_rx: usize,
    pub(super) store_latency: Duration,
    /// Calls timeouts that are not due.
    pub(super) spurious: bool,
    /// Maximum lateness of calls for timeouts that are due.
    pub(super) late: Duration,
    /// Bytes may come from an attacker, so the delivered file may be the attacker's and is not
    /// judged.
    pub(super) hostile: bool,
}

impl Plan {
    pub(super) fn clean(seed: u64) -> Self {
        Self {
            seed,
            faults: Faults::None,
            interruption: None,
            effect_fails: None,
            batch_tx: 8,
            batch_rx: 1,
            store_latency: Duration::ZERO,
            spurious: false,
            late: Duration::ZERO,
            hostile: false,
        }
    }
}

/// Flips one bit or a few.
pub(super) fn corrupt(bytes: &mut [u8], rng: &mut Rng) {
    if bytes.is_empty() {
        return;
    }
    let bits = bytes.len() as u64 * 8;
    let first = rng.below(bits);
    bytes[(first / 8) as usize] ^= 1 << (first % 8);
    for _ in 0..rng.below(4) {
        let bit = rng.below(bits);
        // The first stays flipped, so the datagram is certainly damaged.
        if bit != first {
            bytes[(bit / 8) as usize] ^= 1 << (bit % 8);
        }
    }
}
