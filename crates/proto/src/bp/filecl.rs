//! Layers over engines that send files: each bundle is a file.
//!
//! Such a layer owns its engine and shows it bundles as files: heads, payloads where they lie, and tails. What comes is in a working
//! file; when the engine would give that its name, the agent is asked, and what the engine tells the sender waits for its word.
//!
//! A session stands still while its path is down, and goes on afterwards, as far as the engine does that.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::time::Duration;

use engine::{
    Deadline, Effect, EffectError, Engine, FileName, Input, PathId, Rng, Ticket, Time, Transmit,
    TxBuf,
};

pub use super::arrivals::Arriving;
pub use super::neighbours::Statistics;

use super::agent;
use super::arrivals::{Answer, Arrivals, Passed};
use super::layer::{Command, Event, Layer, LinkId, Outcome, Outgoing, Tag};
use super::neighbours::{Bounds, Neighbours, is_up};
use crate::settings::{Settings, Visited, Visitor};
use crate::{settings, visit};

/// An engine that sends files.
pub trait FileEngine: Engine + Sized {
    /// Its settings.
    type Config: Clone + Debug;
    /// What it calls a file that it sends or receives.
    type Session: Copy + Ord + Debug + Send;

    /// An engine whose files are bundles.
    fn of_bundles(config: Self::Config, rng: Rng) -> Self;

    /// Bytes of the longest file.
    fn file_max(config: &Self::Config) -> u64;

    /// Sends a bundle, under a name that is used once; `None` if it does not.
    fn send_bundle(&mut self, now: Time, bundle: Bundle) -> Option<Self::Session>;

    /// Sends it no longer; whether that will be told.
    fn cancel_bundle(&mut self, now: Time, session: Self::Session) -> bool;

    /// What came that would get its name now, as an effect of this ticket asks; `None` if that is over.
    fn arriving(&self, install: Ticket) -> Option<Arriving<Self::Session>>;

    /// Bytes of memory that it holds on account of peers.
    fn memory(&self) -> usize;

    /// Meaning of an indication for the layer.
    fn meaning(indication: Self::Indication) -> Meaning<Self::Session>;
}

/// A bundle that an engine is to send.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bundle {
    /// Whereto.
    pub to: PathId,
    /// The file that it reads.
    pub source: FileName,
    /// A name.
    pub name: String,
    /// Whether it is to see to it that it arrives.
    pub is_reliable: bool,
}

/// Meaning of an engine's indication for its layer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Meaning<K> {
    /// Sending a bundle ended.
    Sent(K, Outcome),
    /// Receiving a file ended.
    Over(K),
    /// Something came that is no bundle.
    NoBundle,
    /// Nothing that matters.
    Nothing,
}

/// Settings of a [`FileCl`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config<C> {
    /// The engine.
    pub engine: C,
    /// Neighbours, and the paths to them.
    pub peers: BTreeMap<LinkId, PathId>,
    /// How long a path may be down, or a contact be over, before what is under way is given up. Until then its sessions stand still.
    pub patience: Duration,
    /// The directory of the agent in the store, where files are handed to it: [`agent::Config::directory`].
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
            /// Time that a path may be down, or a contact be over, before what is under way is given
            /// up.
            "patience": self.patience as Span [Interval],
        }
        self.limits.visit(visitor)
    }
}

settings! {
    /// Bounds on what the layer holds.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Limits {
        /// Bundles under way to a neighbour at one time.
        pub window: usize as Number [Least(1)] = 16,
        /// Bytes of a bundle up to which it is passed in memory; a longer one stays in its file.
        pub inline: u64 = 64 << 10,
        /// Neighbours that came by themselves.
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

    /// What was counted.
    #[must_use]
    pub fn statistics(&self) -> Statistics {
        self.neighbours.statistics
    }

    /// The engine, to look at.
    #[must_use]
    pub fn engine(&self) -> &E {
        &self.engine
    }

    /// Bytes of memory held on account of peers, here and in the engine.
    #[must_use]
    pub fn memory(&self) -> usize {
        self.engine.memory() + self.arrivals.memory() + self.neighbours.memory()
    }

    /// Carries what the engine says and wants, until there is nothing more.
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
            Passed::Answered(answer) => self.tell(now, Some(answer)),
            Passed::Whole { install, file } => {
                let (arriving, arrivals) = (self.engine.arriving(install), &self.arrivals);
                let known = arriving.and_then(|arriving| {
                    let is_owed = |link| arrivals.has_from(link);
                    Some((self.neighbours.met(arriving.from, is_owed)?, arriving))
                });
                match known {
                    Some((link, arriving)) => self.arrivals.came(link, arriving, (install, file)),
                    None => self.tell(now, Some((install, Err(EffectError::NoSpace)))),
                }
            }
        }
    }

    /// Tells the engine what became of an effect.
    fn tell(&mut self, now: Time, answer: Option<Answer>) {
        if let Some((ticket, answer)) = answer {
            self.engine.handle_input(now, Input::Done(ticket, answer));
        }
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
        let is_reliable = bundle.reliable;
        let (source, name) = (self.arrivals.blocks.add(bundle), self.arrivals.name());
        let bundle = Bundle { to, source: source.clone(), name, is_reliable };
        if let Some(session) = self.engine.send_bundle(now, bundle) {
            self.neighbours.begun(link, session, vec![tag]);
        } else {
            self.arrivals.blocks.forget(&source);
            self.neighbours.fail(link, vec![tag]);
        }
    }

    fn cancel_session(&mut self, now: Time, session: E::Session) {
        self.neighbours.cancelled(session);
        // One that ended in this moment is told of.
        if self.engine.cancel_bundle(now, session) {
            self.pump(now);
        }
    }

    /// A neighbour was away for so long that what is under way goes another way.
    fn give_up(&mut self, now: Time, link: LinkId) {
        for session in self.neighbours.sessions_to(link) {
            self.cancel_session(now, session);
        }
        self.neighbours.down(link, "the neighbour was away for too long");
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
            Command::Accept { transfer, .. } => {
                let answer = self.arrivals.decided(transfer, None);
                self.tell(now, answer);
            }
            Command::Refuse { transfer, why, .. } => {
                let answer = self.arrivals.decided(transfer, Some(why));
                self.tell(now, answer);
            }
            Command::Pause { link } => self.neighbours.hold(link, true),
            Command::Resume { link } => self.arrivals.resume(link, &mut self.neighbours),
        }
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
            Input::Done(ticket, answer) => {
                let answer = self.arrivals.answered((ticket, answer), &mut self.neighbours);
                self.tell(now, answer);
            }
        }
        self.pump(now);
    }

    fn handle_timeout(&mut self, now: Time) {
        self.engine.handle_timeout(now);
        while let Some(link) = self.neighbours.pop_due(now) {
            self.give_up(now, link);
        }
        self.pump(now);
    }

    fn poll_transmit(&mut self, now: Time, tx: &mut TxBuf) -> Option<Transmit> {
        let transmit = self.engine.poll_transmit(now, tx);
        self.pump(now);
        transmit
    }

    fn poll_effect(&mut self) -> Option<Effect> {
        self.arrivals.effects.pop_front()
    }

    fn poll_indication(&mut self) -> Option<Event> {
        self.neighbours.events.pop_front()
    }

    fn poll_timeout(&self) -> Option<Deadline> {
        let own = self.neighbours.poll_timeout();
        own.into_iter().chain(self.engine.poll_timeout()).min_by_key(|deadline| deadline.at)
    }
}
