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

    /// Takes the engine's next effect; one on a file is started here. Effects for a full store
    /// wait, and so do all behind them.
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

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::time::{Duration, Instant};

    use bytes::Bytes;
    use engine::{Deadline, FileName, OpenMode, PathId, Transmit, TxBuf};

    use super::*;
    use crate::{StoreConfig, Waker};

    /// Engine with these effects, which keeps the results.
    #[derive(Default)]
    struct Toy {
        effects: VecDeque<Effect>,
        done: Vec<(Ticket, Result<Completion, EffectError>)>,
    }

    impl Engine for Toy {
        type Indication = ();

        fn handle_input(&mut self, _now: Time, input: Input<'_>) {
            let Input::Done(ticket, result) = input else { panic!("{input:?}") };
            self.done.push((ticket, result));
        }

        fn handle_timeout(&mut self, _now: Time) {}

        fn poll_transmit(&mut self, _now: Time, _tx: &mut TxBuf) -> Option<Transmit> {
            None
        }

        fn poll_effect(&mut self) -> Option<Effect> {
            self.effects.pop_front()
        }

        fn poll_indication(&mut self) -> Option<()> {
            None
        }

        fn poll_timeout(&self) -> Option<Deadline> {
            None
        }
    }

    #[test]
    fn effects_wait_while_the_store_is_full() {
        let place = tempfile::tempdir().unwrap();
        let config = StoreConfig { bytes_max: 4, ..StoreConfig::new(place.path()) };
        let store = FileStore::open(config, &Waker::new().unwrap()).unwrap();
        let mut pump = Pump::new(Toy::default(), Some(store));
        let start = Instant::now();
        let wait = |pump: &mut Pump<Toy>| {
            while !pump.store_is_idle() {
                assert!(start.elapsed() < Duration::from_secs(10), "no answer");
                pump.pass_results();
            }
        };
        let (ticket, name) = (Ticket(1), FileName::file("a").unwrap());
        let open = StoreEffect::Open { ticket, name, mode: OpenMode::Truncate };
        pump.engine.effects.push_back(Effect::Store(open));
        assert!(matches!(pump.next_step(), Some(Step::Stored)));
        wait(&mut pump);
        let Some((_, Ok(Completion::Opened { file, .. }))) = pump.engine.done.pop() else {
            panic!("it is not open");
        };
        let write = |ticket, offset| {
            let bytes = Bytes::from_static(b"abcd");
            Effect::Store(StoreEffect::Write { ticket: Ticket(ticket), file, offset, bytes })
        };
        let path = Effect::Path(PathEffect::Open { path: PathId(1) });
        pump.engine.effects.extend([write(2, 0), write(3, 4), path]);
        for ticket in [2, 3] {
            assert!(matches!(pump.next_step(), Some(Step::Stored)));
            // Neither another effect on a file nor one behind it is taken.
            assert!(pump.store_is_full() && pump.next_step().is_none(), "{ticket}");
            wait(&mut pump);
            assert_eq!(pump.engine.done.pop(), Some((Ticket(ticket), Ok(Completion::Done))));
        }
        assert!(matches!(pump.next_step(), Some(Step::Path(PathEffect::Open { .. }))));
        assert!(pump.next_step().is_none());
    }
}
