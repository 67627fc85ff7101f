//! The part of a driver that does not depend on paths: an engine with its clock and its files.

use engine::{
    Completion, Effect, EffectError, Engine, Input, PathEffect, StoreEffect, StreamEffect, Ticket,
    Time,
};

use crate::{Clock, FileStore};

/// An engine, its clock and its store. A driver adds paths, and waits.
#[derive(Debug)]
pub struct Pump<E> {
    /// Engine.
    pub engine: E,
    /// Clock of the engine.
    pub clock: Clock,
    store: Option<FileStore>,
}

/// An effect, as far as it concerns the driver.
#[derive(Debug)]
pub enum Step {
    /// It is in the store's hands.
    Stored,
    /// It is for the driver.
    Path(PathEffect),
    /// It is for the driver.
    Stream(StreamEffect),
}

impl<E: Engine> Pump<E> {
    /// Starts the clock of an engine. Without a store, effects on files fail.
    #[must_use]
    pub fn new(engine: E, store: Option<FileStore>) -> Self {
        Self { engine, clock: Clock::start(), store }
    }

    /// Sets the store, which must have been opened with the driver's waker.
    pub fn set_store(&mut self, store: FileStore) {
        self.store = Some(store);
    }

    /// Returns the time of the engine's clock.
    #[must_use]
    pub fn now(&self) -> Time {
        self.clock.now()
    }

    /// Passes something to the engine that happens now.
    pub fn pass(&mut self, input: Input<'_>) {
        self.engine.handle_input(self.clock.now(), input);
    }

    /// Passes the result of an effect to the engine.
    pub fn answer(&mut self, ticket: Ticket, answer: Result<Completion, EffectError>) {
        self.pass(Input::Done(ticket, answer));
    }

    /// Calls the engine if its timer is due. Returns the time for which that was set.
    pub fn expire(&mut self, now: Time) -> Option<Time> {
        let due = self.next_timeout().filter(|at| *at <= now)?;
        self.engine.handle_timeout(now);
        Some(due)
    }

    /// Time of the engine's next timer.
    #[must_use]
    pub fn next_timeout(&self) -> Option<Time> {
        self.engine.poll_timeout().map(|deadline| deadline.at)
    }

    /// Passes the results of the store to the engine. Returns whether there were any.
    pub fn pass_results(&mut self) -> bool {
        let mut any = false;
        while let Some((ticket, answer)) = self.store.as_mut().and_then(FileStore::poll) {
            self.answer(ticket, answer);
            any = true;
        }
        any
    }

    /// Takes the engine's next effect; one on a file is started here. Effects for a full store wait,
    /// and so do all behind them.
    pub fn next_step(&mut self) -> Option<Step> {
        if self.store_is_full() {
            return None;
        }
        Some(match self.engine.poll_effect()? {
            Effect::Store(effect) => {
                self.submit(effect);
                Step::Stored
            }
            Effect::Path(effect) => Step::Path(effect),
            Effect::Stream(effect) => Step::Stream(effect),
        })
    }

    fn submit(&mut self, effect: StoreEffect) {
        if let Some(store) = &mut self.store {
            store.submit(effect);
        } else if let Some(ticket) = effect.ticket() {
            self.answer(ticket, Err(EffectError::NotAllowed));
        }
    }

    /// Refuses an effect on a stream, in a driver without streams.
    pub fn refuse(&mut self, effect: &StreamEffect) {
        match effect.ticket() {
            Some(ticket) => {
                let why = "this driver has no streams".to_owned();
                self.answer(ticket, Err(EffectError::Failed(why)));
            }
            None => tracing::warn!(?effect, "this driver has no streams"),
        }
    }

    /// Whether the store accepts no more for now.
    #[must_use]
    pub fn store_is_full(&self) -> bool {
        self.store.as_ref().is_some_and(FileStore::is_full)
    }

    /// Whether the store has carried out everything.
    #[must_use]
    pub fn store_is_idle(&self) -> bool {
        self.store.as_ref().is_none_or(|store| store.pending() == 0)
    }
}
