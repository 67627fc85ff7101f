//! Faults of a run: of datagrams, hosts and paths.

use std::time::Duration;

use super::Role;
use crate::Rng;

/// Fault of one datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    Drop,
    /// It arrives, and twice more this much later.
    Duplicate(Duration),
    /// It arrives this much later than it would.
    Late(Duration),
    /// Only so many thousandths of it arrive.
    Truncate(u16),
    /// Some bits of it are turned, drawn from this seed.
    Corrupt(u64),
}

impl Fault {
    /// Kinds that differ in what they bring about; two hours later both ends have forgotten.
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
    /// To the datagram `index`, from 0, that `from` sends.
    One {
        from: Role,
        index: u64,
        fault: Fault,
    },
    /// To each with this probability.
    Random(f64),
}

/// Interruption of a host or its path, before an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Interruption {
    /// The path is down, at both ends, for so long.
    Outage(Duration),
    /// Nothing arrives at one end for this time, and its engine learns so.
    ReturnOutage(Role, Duration),
    /// The path of one end is full for so long.
    Block(Role, Duration),
    /// The engine is lost and made again.
    Restart(Role),
}

/// Differences of the world from one where all goes well.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Plan {
    pub(super) seed: u64,
    pub(super) faults: Faults,
    pub(super) interruption: Option<(u64, Interruption)>,
    /// The storage effect, from 0, that fails at one end.
    pub(super) effect_fails: Option<(Role, u64)>,
    /// Datagrams at most in one transmit, and in one receive.
    pub(super) batch_tx: usize,
    pub(super) batch_rx: usize,
    pub(super) store_latency: Duration,
    /// Call for timeouts that are not due.
    pub(super) spurious: bool,
    /// Call up to this late for those that are.
    pub(super) late: Duration,
    /// Bytes come from others than the peer, so what is delivered may be theirs: it is not judged.
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

/// Turns one bit or a few.
pub(super) fn corrupt(bytes: &mut [u8], rng: &mut Rng) {
    if bytes.is_empty() {
        return;
    }
    let bits = bytes.len() as u64 * 8;
    let first = rng.below(bits);
    bytes[(first / 8) as usize] ^= 1 << (first % 8);
    for _ in 0..rng.below(4) {
        let bit = rng.below(bits);
        // The first stays turned, so the datagram is damaged for sure.
        if bit != first {
            bytes[(bit / 8) as usize] ^= 1 << (bit % 8);
        }
    }
}
