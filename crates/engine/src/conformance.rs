//! The suite every engine passes.
//!
//! It runs a sender and a receiver of the engine under test in a small world: virtual clock, one
//! path each way, files in memory. It damages that world in every way the contract allows, and
//! checks the contract's [rules](crate#the-rules) throughout. All randomness comes from the seed,
//! so running the same check again reproduces a failure.
//!
//! A protocol's author implements [`Subject`] and calls [`check_all`] in a test:
//!
//! ```text
//! #[test]
//! fn keeps_the_contract() {
//!     engine::conformance::check_all(&Cfdp { class: 2 }, &Options::default());
//! }
//! ```
//!
//! Choose a file of 10 to 20 datagrams whose last one is short. The suite damages each datagram in
//! turn, so its duration grows with the square of their number.
//!
//! A failure panics with the broken rule, the check, the seed, the faults that were injected and
//! the event at which it showed. [`check`] repeats that check alone.
//!
//! [`Subject`] is a trait of callbacks, which the contract itself avoids: engines name their
//! requests and indications differently, and the trait maps them.

mod checks;
mod plan;
mod progress;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod toy;
mod world;

use std::any::Any;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use bytes::Bytes;

use crate::{Engine, FileName, MemoryStore, PathInfo, Rng, Time};
use progress::Progress;

/// Side of the transfer that an engine takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Role {
    /// Has the file.
    Sender,
    /// Receives the file.
    Receiver,
}

impl Role {
    /// Both ends.
    pub const BOTH: [Self; 2] = [Self::Sender, Self::Receiver];
}

/// Outcome of a transfer as reported to the engine's user.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verdict {
    /// The file is complete, correct and stored at the receiver. [`Subject::check`] must agree from
    /// this moment on.
    Delivered,
    /// Everything is sent; the outcome is unknown (a class without acknowledgement).
    Unconfirmed,
    /// The transfer failed, and the user was notified.
    Failed,
}

/// Description of the engine under test.
pub trait Subject {
    /// The engine.
    type Engine: Engine;

    /// Returns a new engine, configured for this role and seeded. No path is up yet.
    fn engine(&self, role: Role, seed: u64) -> Self::Engine;

    /// Length of the file, in bytes: by default, twelve datagrams of 200 bytes, the last one short.
    fn size(&self) -> usize {
        2_200
    }

    /// Stores the files this role has before the transfer: the sender's file [`source`].
    fn prepare(&self, role: Role, store: &mut MemoryStore) {
        if role == Role::Sender {
            store.insert(source(), content(self.size()));
        }
    }

    /// Requests the sender to send the file to the peer of [`PATH`]; that path is up. Returns
    /// whether the request was accepted. If not, it is called again after each event until it is:
    /// an engine may have to load its records first.
    fn start(&self, engine: &mut Self::Engine, now: Time) -> bool;

    /// Returns the verdict an indication means, if it ends a transfer. An engine that took damage
    /// for the start of another transfer may give several; `Delivered` outweighs the others.
    fn verdict(
        &self,
        role: Role,
        indication: &<Self::Engine as Engine>::Indication,
    ) -> Option<Verdict>;

    /// Checks that the receiver's store holds the right file, as [`copy`].
    ///
    /// # Errors
    /// The difference, for the panic message.
    fn check(&self, receiver: &MemoryStore) -> Result<(), String> {
        compare(receiver.get(&copy()), &content(self.size()))
    }

    /// Whether a transfer is in progress: a busy engine must reach a verdict by itself.
    fn is_busy(&self, engine: &Self::Engine) -> bool;

    /// Bytes of memory the engine holds for its peers: queues, tables, buffers. The engines of this
    /// workspace are counted by an allocator, `slowlight_testing::memory`.
    fn memory(&self, engine: &Self::Engine) -> usize;

    /// Upper bound of [`Subject::memory`] with this configuration, in bytes.
    fn memory_max(&self) -> usize;

    /// Path between the two, as each engine sees it. The suite fills in the light time.
    fn path(&self) -> PathInfo {
        PathInfo { rate_bps: Some(1_000_000), overhead: 42, ..PathInfo::datagram(1024) }
    }

    /// Whether the file must arrive even if any single datagram is lost, damaged or late.
    fn is_reliable(&self) -> bool {
        true
    }

    /// Whether the protocol detects damaged bytes. If it does not, because it trusts the layer
    /// below, damaged datagrams are dropped before they reach it.
    fn detects_damage(&self) -> bool {
        true
    }

    /// Returns datagrams with which a peer opens transfer `n` at the receiver; each `n` is a
    /// different transfer. The flood consists of them, or of damaged copies of real datagrams if
    /// there are none.
    fn opening(&self, _n: u64) -> Vec<Bytes> {
        Vec::new()
    }

    /// Whether a transfer survives the loss of this role's engine if its store remains. If so, the
    /// file must arrive even if either engine is lost at any point and recreated.
    fn survives_restart(&self, _role: Role) -> bool {
        false
    }

    /// Resumes transfers in progress. Called on an engine recreated after a restart, once its path
    /// is up. Returns whether the resumption is done; if not, it is called again, like
    /// [`Subject::start`].
    fn restart(&self, _role: Role, _engine: &mut Self::Engine, _now: Time) -> bool {
        true
    }
}

/// Path to the peer, in both engines.
pub const PATH: crate::PathId = crate::PathId(1);

/// Name of the sender's file.
#[must_use]
pub fn source() -> FileName {
    FileName::file("source").expect("a plain name")
}

/// Name of the file at the receiver.
#[must_use]
pub fn copy() -> FileName {
    FileName::file("copy").expect("a plain name")
}

/// Content of a file of this length.
#[must_use]
pub fn content(len: usize) -> Vec<u8> {
    let mut content = vec![0; len];
    Rng::new(7, "content").fill(&mut content);
    content
}

/// Compares a stored file with the expected content.
///
/// # Errors
/// The difference, for the panic message.
pub fn compare(found: Option<&[u8]>, expected: &[u8]) -> Result<(), String> {
    match found {
        Some(found) if found == expected => Ok(()),
        Some(found) => Err(format!("{} other bytes", found.len())),
        None => Err("there is no file".to_owned()),
    }
}

/// Extent of the checks.
#[derive(Clone, Debug)]
pub struct Options {
    /// Seed of all randomness.
    pub seed: u64,
    /// Runs of each randomised check.
    pub runs: u64,
    /// Arbitrary datagrams for each role, per run that sends any.
    pub fuzz: u64,
    /// Datagrams of a flood.
    pub flood: u64,
    /// Positions tried by a check that acts "at each point": all positions if there are no more
    /// than this, otherwise the first, the last and an even selection of the others.
    pub positions: u64,
    /// One-way delay from the sender and to the sender.
    pub latency: [Duration; 2],
    /// Virtual time by which every transfer must have ended and both engines must be idle.
    pub horizon: Duration,
    /// Maximum events of one run.
    pub events_max: u64,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            seed: 1,
            runs: 32,
            fuzz: 2_000,
            flood: 5_000,
            positions: 48,
            latency: [Duration::from_millis(50), Duration::from_millis(70)],
            horizon: Duration::from_secs(90 * 86_400),
            events_max: 200_000,
        }
    }
}

/// One check of the suite.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Check {
    /// Without faults, the file arrives; before and after, the engines are idle.
    Clean,
    /// Runs with the same seed give the same bytes.
    SameSeed,
    /// A timeout call before the deadline changes nothing.
    SpuriousTimeout,
    /// A late timeout call does no harm.
    LateTimeout,
    /// Sending and receiving datagrams one by one or up to 64 at once gives the same outcome.
    Batches,
    /// A slow store does no harm.
    SlowStore,
    /// Each datagram in turn is lost, duplicated, delayed, truncated or damaged.
    EachDatagram,
    /// Many datagrams are lost, duplicated, delayed, truncated or damaged.
    ManyDatagrams,
    /// The path goes down or fills up temporarily, at any point.
    Interruptions,
    /// Each storage effect in turn fails.
    EachEffect,
    /// Either engine is lost at any point and recreated.
    Restarts,
    /// Any of these faults combined, drawn at random.
    Mixtures,
    /// Arbitrary bytes and modified real datagrams arrive before, during and after a transfer.
    ArbitraryBytes,
    /// Random datagrams, and many new transfers, arrive.
    Flood,
}

impl Check {
    /// All checks, in the order in which [`check_all`] runs them.
    pub const ALL: [Self; 14] = [
        Self::Clean,
        Self::SameSeed,
        Self::SpuriousTimeout,
        Self::LateTimeout,
        Self::Batches,
        Self::SlowStore,
        Self::EachDatagram,
        Self::ManyDatagrams,
        Self::Interruptions,
        Self::EachEffect,
        Self::Restarts,
        Self::Mixtures,
        Self::ArbitraryBytes,
        Self::Flood,
    ];
}

/// A rule of the contract, as far as a test can see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rule {
    NoPanic,
    SpuriousTimeout,
    DeadlineAfterDrain,
    DrainEnds,
    BoundedMemory,
    BatchOutcome,
    WrongSuccess,
    TransferEnds,
    Arrives,
    SameSeed,
    IdleNoDeadline,
    Batch,
    ClosedPath,
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoPanic => "input never panics",
            Self::SpuriousTimeout => "a spurious timeout changes nothing",
            Self::DeadlineAfterDrain => "no deadline at or before now after a drain",
            Self::DrainEnds => "a drain ends",
            Self::BoundedMemory => "memory is bounded",
            Self::BatchOutcome => "the batch size does not change the outcome",
            Self::WrongSuccess => "never a wrong success",
            Self::TransferEnds => "every transfer ends with an indication",
            Self::Arrives => "the file arrives",
            Self::SameSeed => "same seed, same bytes",
            Self::IdleNoDeadline => "an idle engine has no deadline",
            Self::Batch => "a batch consists of equal datagrams that fit the path",
            Self::ClosedPath => "nothing is sent on a path that is down or blocked",
        })
    }
}

/// A broken rule.
#[derive(Debug)]
struct Broken {
    rule: Rule,
    detail: String,
}

fn broken<T>(rule: Rule, detail: impl Into<String>) -> Result<T, Broken> {
    Err(Broken { rule, detail: detail.into() })
}

/// Runs every check.
///
/// # Panics
/// When the engine breaks a rule; see the [module](self).
pub fn check_all<S: Subject>(subject: &S, options: &Options) {
    for one in Check::ALL {
        check(subject, options, one);
    }
}

/// Runs one check.
///
/// # Panics
/// When the engine breaks a rule; see the [module](self).
pub fn check<S: Subject>(subject: &S, options: &Options, check: Check) {
    let progress = Progress::new();
    // The engine is dropped with the closure, so no half-changed state is visible afterwards.
    let result = catch_unwind(AssertUnwindSafe(|| checks::run(subject, options, check, &progress)));
    let broken = match result {
        Ok(Ok(())) => return,
        Ok(Err(broken)) => broken,
        Err(panic) => Broken { rule: Rule::NoPanic, detail: panic_text(panic.as_ref()) },
    };
    panic!("{}: {} [check {check:?}, {progress}]", broken.rule, broken.detail);
}

fn panic_text(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "a panic without a message".to_owned())
}
