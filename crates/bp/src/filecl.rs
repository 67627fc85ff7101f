//! Layers over engines that send files: each bundle is a file.
//!
//! Such a layer owns its engine and presents bundles as files: head, payload in its place, tail.
//! Received bundles are in working files. When the engine is about to install one, the agent
//! decides, and only then does the engine confirm it to the sender.
//!
//! A session is suspended while its path is down and resumed afterwards, as far as the engine
//! supports that.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::time::Duration;

use engine::{
    Deadline, Effect, EffectError, Engine, FileName, Input, PathId, Rng, Ticket, Time, Transmit,
    TxBuf,
};
use session::settings;
use session::settings::{Settings, Visited, Visitor};
use session::visit;

pub use super::arrivals::Arriving;
pub use super::neighbours::Statistics;

use super::agent;
use super::arrivals::{Arrivals, Passed};
use super::blocks::EffectDone;
use super::layer::{
    Command, Configured, Event, Identity, Layer, LinkId, Outcome, Outgoing, Refusal, Tag,
    TransferId,
};
use super::neighbours::{Bounds, Neighbours, is_up};
use super::scope::Scope;

/// An engine that sends files.
pub trait FileEngine: Engine + Sized {
    /// Its settings.
    type Config: Clone + Debug;
    /// Identifier of a file sent or received.
    type Session: Copy + Ord + Debug + Send;

    /// An engine whose files are bundles.
    fn of_bundles(config: Self::Config, rng: Rng) -> Self;

    /// Longest file, in bytes.
    fn file_max(config: &Self::Config) -> u64;

    /// Sends a bundle under a unique name; `None` if it refuses.
    fn send_bundle(&mut self, now: Time, bundle: Bundle) -> Option<Self::Session>;

    /// Cancels a bundle; returns whether an indication will follow.
    fn cancel_bundle(&mut self, now: Time, session: Self::Session) -> bool;

    /// The file whose installation the effect of this ticket requests; `None` if its session has
    /// ended.
    fn arriving(&self, install: Ticket) -> Option<Arriving<Self::Session>>;

    /// Meaning of an indication for the layer.
    fn meaning(indication: Self::Indication) -> Meaning<Self::Session>;
}

/// A bundle for an engine to send.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bundle {
    /// Path to the receiver.
    pub to: PathId,
    /// File to read.
    pub source: FileName,
    /// A unique name, but for another transmission of the same bundle.
    pub name: String,
    /// Whether delivery must be reliable.
    pub is_reliable: bool,
    /// Its identity over restarts of the node.
    pub identity: Option<Identity>,
}

/// Meaning of an engine's indication for its layer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Meaning<K> {
    /// Sending of a bundle ended.
    Sent(K, Outcome),
    /// Reception of a file ended.
    Over(K),
    /// A file came that is no bundle.
    NoBundle,
    /// Irrelevant to the layer.
    Nothing,
}

/// Settings of a [`FileCl`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config<C> {
    /// Settings of the engine.
    pub engine: C,
    /// Neighbours, and the paths to them.
    pub peers: BTreeMap<LinkId, PathId>,
    /// Longest outage of a path or a contact before the bundles in transit are given up. Until then
    /// its sessions are suspended.
    pub patience: Duration,
    /// Directory of the agent in the store, where files are handed over:
    /// [`agent::Config::directory`].
    pub directory: FileName,
    /// Bounds.
    pub limits: Limits,
}

impl<C: Default> Default for Config<C> {
    fn default() -> Self {
        Self {
            engine: C::default(),
            peers: BTreeMap::new(),
            patience: Duration::from_secs(3600),
            directory: agent::Config::default().directory,
            limits: Limits::default(),
        }
    }
}

impl<C> Settings for Config<C> {
    fn visit(&mut self, visitor: &mut dyn Visitor) -> Visited {
        visit! { visitor;
            /// Longest outage of a path or a contact before the bundles in transit are given up.
            "patience": self.patience as Span [Interval],
        }
        self.limits.visit(visitor)
    }
}

settings! {
    /// Bounds on the layer's memory.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Limits {
        /// Bundles in transit to a neighbour at one time.
        pub window: usize as Number [Least(1)] = 16,
        /// Longest bundle passed in memory, in bytes; a longer one stays in its file.
        pub inline: u64 = 64 << 10,
        /// Unconfigured neighbours that are remembered.
        pub strangers: usize = 256,
    }
}

/// A layer over an engine that sends files.
#[derive(Debug)]
pub struct FileCl<E: FileEngine> {
    engine: E,
    arrivals: Arrivals<E::Session>,
    peers: BTreeMap<LinkId, PathId>,
    neighbours: Neighbours<E::Session, PathId>,
}

impl<E: FileEngine> FileCl<E> {
    /// A layer with these settings.
    #[must_use]
    pub fn new(config: Config<E::Config>, mut rng: Rng) -> Self {
        let Config { engine, peers, patience, directory, limits } = config;
        let Limits { window, inline, strangers } = limits;
        let bounds = Bounds { patience, window, bundle_max: E::file_max(&engine), strangers };
        let neighbours = Neighbours::new(bounds, peers.iter().map(|(id, path)| (*id, *path)));
        let arrivals = Arrivals::new(inline, directory, &mut rng);
        Self { engine: E::of_bundles(engine, rng), arrivals, peers, neighbours }
    }

    /// The layer with this name, one of several that share a store.
    #[must_use]
    pub fn named(mut self, name: &str) -> Self {
        self.arrivals.blocks.scope = Scope::of_layer(name);
        self
    }

    /// Counters.
    #[must_use]
    pub fn statistics(&self) -> Statistics {
        self.neighbours.statistics
    }

    /// The engine.
    #[must_use]
    pub fn engine(&self) -> &E {
        &self.engine
    }

    /// Number of undecided bundles.
    #[cfg(test)]
    pub(super) fn waiting(&self) -> usize {
        self.arrivals.waiting()
    }

    /// Processes indications and effects of the engine until there are none left.
    fn pump(&mut self, now: Time) {
        loop {
            let mut some = false;
            while let Some(indication) = self.engine.poll_indication() {
                some = true;
                self.indicated(indication);
            }
            while let Some(effect) = self.engine.poll_effect() {
                some = true;
                self.pass(now, effect);
            }
            if !some {
                return;
            }
        }
    }

    fn pass(&mut self, now: Time, effect: Effect) {
        match self.arrivals.pass(effect) {
            Passed::On => {}
            Passed::Completed(result) => self.complete(now, Some(result)),
            Passed::Whole { install, file } => {
                let (arriving, arrivals) = (self.engine.arriving(install), &self.arrivals);
                let known = arriving.and_then(|arriving| {
                    let is_owed = |link| arrivals.has_from(link);
                    Some((self.neighbours.met(arriving.from, is_owed)?, arriving))
                });
                match known {
                    Some((link, arriving)) => self.arrivals.came(link, arriving, install, file),
                    None => self.complete(now, Some((install, Err(EffectError::NoSpace)))),
                }
            }
        }
    }

    /// Passes a completion to the engine.
    fn complete(&mut self, now: Time, result: Option<EffectDone>) {
        if let Some((ticket, result)) = result {
            self.engine.handle_input(now, Input::Done(ticket, result));
        }
    }

    fn decided(&mut self, now: Time, transfer: TransferId, why: Option<Refusal>) {
        let result = self.arrivals.decided(transfer, why);
        self.complete(now, result);
    }

    fn indicated(&mut self, indication: E::Indication) {
        match E::meaning(indication) {
            Meaning::Sent(session, outcome) => self.neighbours.ended(session, outcome),
            Meaning::Over(session) => self.arrivals.over(session),
            Meaning::NoBundle => self.neighbours.statistics.faults += 1,
            Meaning::Nothing => {}
        }
    }

    fn send(&mut self, now: Time, link: LinkId, tag: Tag, bundle: Outgoing) {
        let to = self.peers.get(&link).copied();
        let Some(to) = to.filter(|_| self.neighbours.is_open(link)) else {
            self.neighbours.fail(link, vec![tag]);
            return;
        };
        let (is_reliable, identity) = (bundle.reliable, bundle.identity);
        let name = self.arrivals.name_of(identity);
        let source = self.arrivals.blocks.add(bundle);
        let bundle = Bundle { to, source: source.clone(), name, is_reliable, identity };
        if let Some(session) = self.engine.send_bundle(now, bundle) {
            self.neighbours.started(link, session, vec![tag]);
        } else {
            self.arrivals.blocks.forget(&source);
            self.neighbours.fail(link, vec![tag]);
        }
    }

    fn cancel_session(&mut self, now: Time, session: E::Session) {
        self.neighbours.cancelled(session);
        // A session that ended at this moment is reported.
        if self.engine.cancel_bundle(now, session) {
            self.pump(now);
        }
    }

    /// Gives up the bundles in transit to a neighbour.
    fn give_up(&mut self, now: Time, link: LinkId) {
        for session in self.neighbours.sessions_to(link) {
            self.cancel_session(now, session);
        }
    }
}

impl<E: FileEngine> Layer for FileCl<E> {
    fn command(&mut self, now: Time, command: Command) {
        match command {
            Command::Open { link } => self.neighbours.want(now, link, true),
            Command::Close { link } => self.neighbours.want(now, link, false),
            Command::Send { link, tag, bundle } => self.send(now, link, tag, bundle),
            Command::Cancel { link, tag } => {
                if let Some(session) = self.neighbours.session_of(link, tag) {
                    self.cancel_session(now, session);
                }
            }
            Command::Accept { transfer, .. } => self.decided(now, transfer, None),
            Command::Refuse { transfer, why, .. } => self.decided(now, transfer, Some(why)),
            Command::Pause { link } => self.neighbours.hold(link, true),
            Command::Resume { link } => self.arrivals.resume(link, &mut self.neighbours),
        }
        self.pump(now);
    }

    fn configure(&mut self, now: Time, configured: Configured) {
        let paths = configured.links.into_keys().map(|link| (link, PathId(link.0)));
        let former = std::mem::replace(&mut self.peers, paths.collect());
        for link in former.into_keys() {
            if !self.peers.contains_key(&link) {
                self.give_up(now, link);
            }
        }
        self.neighbours.configure(&self.peers);
        self.pump(now);
    }
}

impl<E: FileEngine> Engine for FileCl<E> {
    type Indication = Event;

    fn handle_input(&mut self, now: Time, input: Input<'_>) {
        match input {
            Input::Receive(_) => self.engine.handle_input(now, input),
            Input::Path(path, event) => {
                let change = is_up(&event);
                self.engine.handle_input(now, Input::Path(path, event));
                for (link, _) in self.peers.iter().filter(|(_, to)| **to == path) {
                    self.neighbours.path(now, *link, change);
                }
            }
            Input::Done(ticket, result) => {
                let result = self.arrivals.completed((ticket, result), &mut self.neighbours);
                self.complete(now, result);
            }
        }
        self.pump(now);
    }

    fn handle_timeout(&mut self, now: Time) {
        self.engine.handle_timeout(now);
        while let Some(link) = self.neighbours.pop_due(now) {
            self.give_up(now, link);
            self.neighbours.down(link, "the outage of the neighbour lasted too long");
        }
        self.pump(now);
    }

    fn poll_transmit(&mut self, now: Time, tx: &mut TxBuf) -> Option<Transmit> {
        let transmit = self.engine.poll_transmit(now, tx);
        self.pump(now);
        transmit
    }

    fn poll_effect(&mut self) -> Option<Effect> {
        self.arrivals.blocks.poll_effect()
    }

    fn poll_indication(&mut self) -> Option<Event> {
        self.neighbours.events.pop_front()
    }

    fn poll_timeout(&self) -> Option<Deadline> {
        let own = self.neighbours.poll_timeout();
        own.into_iter().chain(self.engine.poll_timeout()).min_by_key(|deadline| deadline.at)
    }
}
