//! An engine with its store and randomness, in simulated and emulated worlds.

use std::fmt;

use engine::{Engine, Input, Rng, StoreEffect, Time};

use crate::store::Store;

/// Number of a host within its world.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HostId(pub(crate) usize);

/// Creates a host's engine from its number of restarts and its randomness.
type Factory<E> = Box<dyn FnMut(u32, Rng) -> E + Send>;

/// An engine that may crash and be restarted, and the store that outlives it. The world delivers
/// its packets.
pub struct Host<E> {
    name: String,
    seed: u64,
    factory: Option<Factory<E>>,
    engine: Option<E>,
    restarts: u32,
    store: Store,
}

/// Returns the name of the random stream that a host's engine draws from after this many restarts.
fn engine_stream(host: &str, restarts: u32) -> String {
    match restarts {
        0 => format!("engine {host}"),
        restarts => format!("engine {host} restart {restarts}"),
    }
}

impl<E: Engine> Host<E> {
    /// Creates a host of this name in a world with this seed, without an engine.
    #[must_use]
    pub fn new(name: impl Into<String>, seed: u64, store: Store) -> Self {
        let (factory, engine, restarts) = (None, None, 0);
        Self { name: name.into(), seed, factory, engine, restarts, store }
    }

    /// Sets the factory of its engine, which starts with [`Host::start`].
    pub fn install(&mut self, factory: impl FnMut(u32, Rng) -> E + Send + 'static) {
        self.factory = Some(Box::new(factory));
    }

    /// Returns the host's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the engine, if it runs.
    #[must_use]
    pub fn engine(&self) -> Option<&E> {
        self.engine.as_ref()
    }

    /// Returns the engine, if it runs.
    pub fn engine_mut(&mut self) -> Option<&mut E> {
        self.engine.as_mut()
    }

    /// Returns the store.
    #[must_use]
    pub fn store(&self) -> &Store {
        &self.store
    }

    /// Returns the store.
    pub fn store_mut(&mut self) -> &mut Store {
        &mut self.store
    }

    /// Creates the engine. Returns `false` if none is installed.
    pub fn start(&mut self) -> bool {
        let Some(factory) = &mut self.factory else { return false };
        let stream = engine_stream(&self.name, self.restarts);
        self.engine = Some(factory(self.restarts, Rng::new(self.seed, &stream)));
        true
    }

    /// Creates the next engine after a crash. Returns `false` if none is installed.
    pub fn restart(&mut self) -> bool {
        self.restarts += 1;
        self.start()
    }

    /// Drops the engine with its state; files and records stay. Returns `false` if none ran.
    pub fn crash(&mut self, now: Time) -> bool {
        let ran = self.engine.take().is_some();
        if ran {
            self.store.crash(now);
        }
        ran
    }

    /// Passes an input to the engine, if it runs.
    pub fn hand_in(&mut self, now: Time, input: Input<'_>) {
        if let Some(engine) = &mut self.engine {
            engine.handle_input(now, input);
        }
    }

    /// Submits an effect to the store.
    pub fn submit(&mut self, now: Time, effect: StoreEffect) {
        if let Some((ticket, answer)) = self.store.submit(now, effect) {
            self.hand_in(now, Input::Done(ticket, answer));
        }
    }

    /// Passes effects completed by now to the engine. Returns whether there were any.
    pub fn complete(&mut self, now: Time) -> bool {
        let mut any = false;
        while let Some((ticket, answer)) = self.store.pop(now) {
            self.hand_in(now, Input::Done(ticket, answer));
            any = true;
        }
        any
    }
}

impl<E> fmt::Debug for Host<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Host").field("name", &self.name).finish_non_exhaustive()
    }
}
