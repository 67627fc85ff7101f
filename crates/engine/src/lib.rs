//! The contract between a protocol engine and its driver.
//!
//! An [`Engine`] is a state machine without I/O. A driver passes in bytes, time, path changes and
//! storage results, and pulls out datagrams, storage requests and indications. The same engine
//! runs under a virtual clock in a simulator, behind an emulated link and over real sockets,
//! because it cannot tell the difference.
//!
//! # The rules
//!
//! 1. `now` never goes back.
//! 2. A driver drains effects, transmissions and indications until all are `None` before it waits;
//!    then it reads [`Engine::poll_timeout`].
//! 3. After `handle_timeout(t)` and a drain, the next deadline is `None` or later than `t`.
//! 4. An output that is not pulled costs nothing and may still change. The engine chooses the data
//!    at the moment of the pull, because on these links chances to send are scarce.
//! 5. Every queue is bounded by a configuration field; reaching the bound is an indication.
//! 6. An idle engine has no deadline, so a simulation ends by itself.
//! 7. The same configuration, seed and inputs give the same outputs, byte for byte.
//!
//! [`conformance`] holds a suite that checks these rules for any engine.

#![forbid(unsafe_code)]

pub mod conformance;
mod drain;
mod effect;
mod memory;
mod memory_link;
mod name;
mod path;
mod rng;
mod tickets;
mod time;
mod timers;
mod transmit;
mod work;

pub use drain::{Datagram, Drained, drain, execute_effects};
pub use effect::{
    Completion, DirEntry, Effect, EffectError, EffectResult, EntryKind, FileId, FilestoreRequest,
    IndexRequest, OpenMode, PathEffect, StoreEffect, StreamEffect, Ticket,
};
pub use memory::MemoryStore;
pub use memory_link::MemoryLink;
pub use name::{Area, FileName, NameError};
pub use path::{Ecn, PathEvent, PathId, PathInfo, PathKind, Receive};
pub use rng::Rng;
pub use tickets::Tickets;
pub use time::{Deadline, Time};
pub use timers::Timers;
pub use transmit::{DATAGRAM_MAX, Transmit, TxBuf};
pub use work::{FileBytes, FileJob, Work};

/// The README, whose code compiles.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;

/// Input that a driver passes to an engine.
#[derive(Debug)]
pub enum Input<'a> {
    /// Bytes arrived on a path: one datagram, several of equal size, or a piece of a stream.
    Receive(Receive<'a>),
    /// A path came up, went down, filled up or drained.
    Path(PathId, PathEvent),
    /// An effect completed or failed.
    Done(Ticket, EffectResult),
}

/// A protocol engine: pure state, driven from outside.
///
/// See the [crate documentation](crate) for the rules both sides keep.
pub trait Engine: Send {
    /// Report to the engine's user: a transfer started, ended, was suspended, ...
    type Indication;

    /// Processes one input. Never fails: garbage from a peer is a counter and an indication.
    fn handle_input(&mut self, now: Time, input: Input<'_>);

    /// Advances time. A late call only delays actions; a call before the deadline changes nothing.
    fn handle_timeout(&mut self, now: Time);

    /// Writes the next datagram, or a batch of equal ones, into `tx` and returns its path.
    ///
    /// `tx` is empty when the call is made. `None` means nothing to send now.
    fn poll_transmit(&mut self, now: Time, tx: &mut TxBuf) -> Option<Transmit>;

    /// Returns the next storage or path operation to carry out; completed by [`Input::Done`] if it
    /// carries a [`Ticket`].
    fn poll_effect(&mut self) -> Option<Effect>;

    /// Returns the next indication for the engine's user.
    fn poll_indication(&mut self) -> Option<Self::Indication>;

    /// Returns when to call [`Engine::handle_timeout`] next, and why.
    fn poll_timeout(&self) -> Option<Deadline>;
}

impl<E: Engine + ?Sized> Engine for Box<E> {
    type Indication = E::Indication;

    fn handle_input(&mut self, now: Time, input: Input<'_>) {
        (**self).handle_input(now, input);
    }

    fn handle_timeout(&mut self, now: Time) {
        (**self).handle_timeout(now);
    }

    fn poll_transmit(&mut self, now: Time, tx: &mut TxBuf) -> Option<Transmit> {
        (**self).poll_transmit(now, tx)
    }

    fn poll_effect(&mut self) -> Option<Effect> {
        (**self).poll_effect()
    }

    fn poll_indication(&mut self) -> Option<Self::Indication> {
        (**self).poll_indication()
    }

    fn poll_timeout(&self) -> Option<Deadline> {
        (**self).poll_timeout()
    }
}
