//! The suite every engine passes.
//!
//! It runs a sender and a receiver of the engine under test in a small world of its own (virtual
//! clock, one path each way, files in memory), damages that world in every way the contract
//! allows, and checks the contract's [rules](crate#the-rules) all the way. Nothing here draws on
//! anything but the seed, so a failure is repeated by running the same check again.
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
//! Choose a file of some ten to twenty datagrams with a short last one: the suite damages each
//! datagram in turn, so the time it takes grows with the square of their number.
//!
//! A failure panics with the rule that was broken, the check that broke it, the seed, what was
//! done to the world and the event at which it showed. The failing check alone is repeated by
//! [`check`].
//!
//! [`Subject`] is a trait of callbacks, which the contract itself avoids; the suite is generic
//! over engines that name their requests and indications differently, and a trait is what says
//! "name yours".

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

use crate::{Engine, MemoryStore, PathInfo, Time};
use progress::Progress;

/// Which end of the transfer an engine is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Role {
    /// It has the file.
    Sender,
    /// It is to get the file.
    Receiver,
}

impl Role {
    /// Both ends.
    pub const BOTH: [Self; 2] = [Self::Sender, Self::Receiver];
}

/// How an engine's user is told that a transfer ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verdict {
    /// The file is complete, right and stored at the receiver. [`Subject::check`] must agree from
    /// this moment on.
    Delivered,
    /// All is sent; what became of it is not known (a class without acknowledgement).
    Unconfirmed,
    /// The transfer was given up, and the user knows.
    Failed,
}

/// What the suite must know of the engine under test.
pub trait Subject {
    /// The engine.
    type Engine: Engine;

    /// A new engine, configured for this end and seeded. No path is up yet.
    fn engine(&self, role: Role, seed: u64) -> Self::Engine;

    /// Puts into the store what this end has before the transfer: the sender's file.
    fn prepare(&self, role: Role, store: &mut MemoryStore);

    /// Asks the sender to send the file to the peer of [`PATH`]; that path is up. Says whether that
    /// is done; if not, it is called again after each event, until it is: an engine may have to
    /// load its records first.
    fn start(&self, engine: &mut Self::Engine, now: Time) -> bool;

    /// The verdict an indication means, if it ends a transfer. An engine that took damage for the
    /// beginning of another transfer may give several; a `Delivered` outweighs the others.
    fn verdict(
        &self,
        role: Role,
        indication: &<Self::Engine as Engine>::Indication,
    ) -> Option<Verdict>;

    /// Whether the right file is in the receiver's store, and if not, what is wrong.
    ///
    /// # Errors
    /// The difference, for the panic message.
    fn check(&self, receiver: &MemoryStore) -> Result<(), String>;

    /// Whether a transfer is under way: an engine that is busy must come to a verdict by itself.
    fn is_busy(&self, engine: &Self::Engine) -> bool;

    /// Bytes of memory the engine holds on account of its peers: queues, tables, buffers.
    fn memory(&self, engine: &Self::Engine) -> usize;

    /// What [`Subject::memory`] may never exceed with this configuration, in bytes.
    fn memory_max(&self) -> usize;

    /// The path between the two, as either end is told. The suite fills in the light time.
    fn path(&self) -> PathInfo {
        PathInfo::datagram(1024)
    }

    /// Whether the file must arrive although any one datagram was lost, damaged or late.
    fn is_reliable(&self) -> bool {
        true
    }

    /// Whether the protocol notices damaged bytes. Where it does not, because it trusts the layer
    /// below, damaged datagrams are dropped before they reach it.
    fn detects_damage(&self) -> bool {
        true
    }

    /// Datagrams with which a peer would open transfer `n` at the receiver, a different transfer
    /// for each `n`. The flood is made of them; without any, of damaged copies of real datagrams.
    fn opening(&self, _n: u64) -> Vec<Bytes> {
        Vec::new()
    }

    /// Whether a transfer survives that this end's engine is lost and made again while the store
    /// stays. Where it does, the file must arrive although either end is lost at any point.
    fn survives_restart(&self, _role: Role) -> bool {
        false
    }

    /// Called on an engine made anew after a restart, when its path is up again: take up what was
    /// under way. Says whether that is done, as [`Subject::start`] does.
    fn restart(&self, _role: Role, _engine: &mut Self::Engine, _now: Time) -> bool {
        true
    }
}

/// The path to the other end, in both engines.
pub const PATH: crate::PathId = crate::PathId(1);

/// How hard to try.
#[derive(Clone, Debug)]
pub struct Options {
    /// The seed everything is drawn from.
    pub seed: u64,
    /// Runs of each check that draws at random.
    pub runs: u64,
    /// Arbitrary datagrams for each end, in each of the runs that send such.
    pub fuzz: u64,
    /// Datagrams of a flood.
    pub flood: u64,
    /// Positions at which a check that does something "at each point" does it: all of them where
    /// there are not more, else the first and last and an even choice of the others.
    pub positions: u64,
    /// One-way delay from the sender and to it.
    pub latency: [Duration; 2],
    /// Virtual time by which every transfer must have ended and both engines be idle.
    pub horizon: Duration,
    /// Events of one run by which it must have ended.
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
    /// Nothing goes wrong, so the file arrives; before and after, the engines are idle.
    Clean,
    /// The same seed gives the same bytes.
    SameSeed,
    /// A timeout that is not due changes nothing.
    SpuriousTimeout,
    /// A timeout that comes late does no harm.
    LateTimeout,
    /// Datagrams sent and received one by one or up to 64 at once: the outcome is the same.
    Batches,
    /// A store that answers late does no harm.
    SlowStore,
    /// Each datagram in turn is lost, doubled, late, cut or damaged.
    EachDatagram,
    /// Many datagrams are lost, doubled, late, cut or damaged.
    ManyDatagrams,
    /// The path goes down or fills up at any point, for a while.
    Interruptions,
    /// Each storage effect in turn fails.
    EachEffect,
    /// Either engine is lost at any point, and made again.
    Restarts,
    /// Any of these at once, drawn at random.
    Mixtures,
    /// Arbitrary bytes, and real datagrams with changes, arrive before, within and after a
    /// transfer.
    ArbitraryBytes,
    /// Random datagrams, and many new transfers, arrive.
    Flood,
}

impl Check {
    /// All checks, in the order in which [`check_all`] makes them.
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
            Self::Batch => "a batch is of equal datagrams that fit the path",
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

/// Makes every check.
///
/// # Panics
/// When the engine breaks a rule; see the [module](self).
pub fn check_all<S: Subject>(subject: &S, options: &Options) {
    for one in Check::ALL {
        check(subject, options, one);
    }
}

/// Makes one check.
///
/// # Panics
/// When the engine breaks a rule; see the [module](self).
pub fn check<S: Subject>(subject: &S, options: &Options, check: Check) {
    let progress = Progress::new();
    // The engine is dropped with the closure, so nothing half changed is seen afterwards.
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
