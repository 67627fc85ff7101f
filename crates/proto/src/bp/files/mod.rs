//! Files over bundles: a user of a bundle node that sends files, in one bundle or in several, and puts those that come
//! together again ([`wire::file_part`]).
//!
//! A file is there when all its parts are: until it has its name, the agent keeps the bundles, so a node that ends in between
//! begins anew with what it has. What a sender has not handed to its agent when its node ends is not sent.

mod joining;
mod sending;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use engine::{
    Completion, Deadline, Effect, EffectError, Engine, FileName, Input, OpenMode, Rng, StoreEffect,
    Ticket, Time, Timers, Transmit, TxBuf,
};
use thiserror::Error;
use wire::bp7::{BundleId, Eid};

use self::joining::{File, Joining, Part, PartId};
use self::sending::Sending;
use super::agent::{Agent, Indication as AgentIndication, RequestError, Version};
use super::layer::Content;
use super::node::Node;
use crate::settings;
use crate::settings::Wrong;

settings! {
    /// Settings of a [`Files`].
    #[derive(Clone, Debug)]
    pub struct Config [check: Self::check_custody] {
        /// The endpoint that receives files.
        pub endpoint: Eid = Eid::None,
        /// Most bytes of a file in one bundle; `off` sends a file in one bundle.
        pub part("bundle_size"): Option<u64> as Off<Size> [Least(1)] = None,
        /// Time after which a bundle is of no use.
        pub lifetime: Duration as Span [Interval] = Duration::from_secs(86_400),
        /// Whether receivers are requested to report deliveries.
        pub reports: bool as Flag = true,
        /// Version of the bundles.
        pub version: Version as Numbered = Version::Seven,
        /// Whether custody is requested, which version 6 has.
        pub custody: bool as Flag = false,
        /// Bounds on what is held.
        pub limits: Limits = Limits::default(),
    }
}

impl Config {
    fn check_custody(&mut self) -> Result<(), Wrong> {
        if self.custody && self.version != Version::Six {
            return Err("custody is of bundles of version 6: version = 6".into());
        }
        Ok(())
    }
}

/// Bounds on what is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Files that are being sent.
    pub files: usize,
    /// Parts of a file. The receiver's agent must hand out as many
    /// ([`Limits::delivering`](super::agent::Limits::delivering)).
    pub parts: u64,
    /// Parts of a file that wait at this node for a neighbour.
    pub ahead: usize,
    /// Bytes that are read at one time.
    pub read: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { files: 1024, parts: 1024, ahead: 64, read: 256 << 10 }
    }
}

/// A file that is being sent, as its sender calls it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FileId(pub u64);

/// Why a file is not sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum SendError {
    /// Too many are.
    #[error("too many files are being sent; wait until one of them is over")]
    Full,
    /// Its name has too many bytes.
    #[error("the name is longer than 1,024 bytes")]
    Name,
}

/// Why a file did not cross.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failure {
    /// The store could not do something.
    Store(EffectError),
    /// The agent did not take a bundle.
    Refused(RequestError),
    /// It has more parts than it may have.
    TooManyParts,
    /// A bundle was deleted before it went where it should.
    Deleted,
    /// Nobody told that it is there as long as it was of use.
    Unreported,
    /// Its parts do not fit together, or have no name that this node takes.
    Contradiction,
    /// What came is not what was sent.
    Damaged,
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Store(error) => write!(f, "the store failed: {error}"),
            Self::Refused(error) => error.fmt(f),
            Self::TooManyParts => f.write_str("the file has too many parts; make them longer"),
            Self::Deleted => f.write_str("a bundle was deleted on its way"),
            Self::Unreported => f.write_str("the receiver did not report it"),
            Self::Contradiction => f.write_str("the parts that came make no file"),
            Self::Damaged => f.write_str("a part is damaged"),
        }
    }
}

/// What users hear.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Indication {
    /// Sending a file is over.
    Sent {
        /// Which.
        file: FileId,
        /// Its name at the receiver.
        name: String,
        /// How it ended: reported to be there, or handed to the first neighbour if no reports were asked for.
        result: Result<(), Failure>,
        /// Whether the receiver said so.
        is_reported: bool,
    },
    /// A file came whole, or cannot.
    Received {
        /// From which node.
        from: Eid,
        /// Its name.
        name: String,
        /// How it ended.
        result: Result<(), Failure>,
    },
    /// The agent tells of something else.
    Bundles(AgentIndication),
}

/// What an effect was for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Use {
    Send(FileId),
    /// The header of a part is looked at.
    Look(PartId),
    Join(File),
    Forget,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Alarm {
    /// Nobody has told that a file is there.
    Unreported(FileId),
}

/// Tickets of a node count from 0; those of its user from here.
const TICKETS: u64 = 1 << 63;

/// A bundle node with a user that sends and receives files.
pub struct Files {
    node: Node,
    config: Config,
    rng: Rng,
    sending: BTreeMap<FileId, Sending>,
    /// Bundles that are under way, and of which file they are a part.
    bundles: BTreeMap<BundleId, FileId>,
    /// Files that wait for room in the agent's store.
    stalled: BTreeSet<FileId>,
    parts: BTreeMap<PartId, Part>,
    joining: BTreeMap<File, Joining>,
    uses: BTreeMap<Ticket, Use>,
    next: u64,
    effects: VecDeque<Effect>,
    indications: VecDeque<Indication>,
    timers: Timers<Alarm>,
}

impl std::fmt::Debug for Files {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Files").field("config", &self.config).finish_non_exhaustive()
    }
}

impl Files {
    /// A user of `node`, which must be new.
    #[must_use]
    pub fn new(mut node: Node, config: Config, rng: Rng) -> Self {
        // A node without such an endpoint only forwards.
        let register = |agent: &mut Agent| agent.register(&config.endpoint);
        let _ = node.with_agent(Time::ZERO, register);
        Self {
            node,
            config,
            rng,
            sending: BTreeMap::new(),
            bundles: BTreeMap::new(),
            stalled: BTreeSet::new(),
            parts: BTreeMap::new(),
            joining: BTreeMap::new(),
            uses: BTreeMap::new(),
            next: 0,
            effects: VecDeque::new(),
            indications: VecDeque::new(),
            timers: Timers::new(),
        }
    }

    /// The node.
    #[must_use]
    pub fn node(&self) -> &Node {
        &self.node
    }

    /// The node, to ask it for something.
    pub fn node_mut(&mut self) -> &mut Node {
        &mut self.node
    }

    /// Files that are being sent, and files of which parts have come.
    #[must_use]
    pub fn under_way(&self) -> usize {
        self.sending.len() + self.joining.len()
    }

    fn ask(&mut self, of: Use, effect: impl FnOnce(Ticket) -> StoreEffect) {
        let ticket = Ticket(TICKETS + self.next);
        self.next += 1;
        self.uses.insert(ticket, of);
        self.effects.push_back(effect(ticket).into());
    }

    fn open(&mut self, of: Use, name: FileName, mode: OpenMode) {
        self.ask(of, |ticket| StoreEffect::Open { ticket, name, mode });
    }

    fn read(&mut self, of: Use, file: engine::FileId, offset: u64, len: usize) {
        self.ask(of, |ticket| StoreEffect::Read { ticket, file, offset, len });
    }

    fn write(&mut self, of: Use, file: engine::FileId, offset: u64, bytes: bytes::Bytes) {
        self.ask(of, |ticket| StoreEffect::Write { ticket, file, offset, bytes });
    }

    fn sync(&mut self, of: Use, file: engine::FileId) {
        self.ask(of, |ticket| StoreEffect::Sync { ticket, file });
    }

    fn close(&mut self, file: engine::FileId) {
        self.effects.push_back(StoreEffect::Close { file }.into());
    }

    fn done(&mut self, now: Time, ticket: Ticket, answer: Result<Completion, EffectError>) {
        match self.uses.remove(&ticket) {
            Some(Use::Send(file)) => self.sending_answered(now, file, answer),
            Some(Use::Look(part)) => self.looked(now, part, answer),
            Some(Use::Join(file)) => self.joining_answered(now, &file, answer),
            Some(Use::Forget) | None => {
                if let Ok(Completion::Opened { file, .. }) = answer {
                    self.close(file);
                }
            }
        }
    }

    /// Takes what the agent has to say.
    fn listen(&mut self, now: Time) {
        while let Some(indication) = self.node.poll_indication() {
            match &indication {
                AgentIndication::Delivered { delivery, endpoint, id, payload }
                    if *endpoint == self.config.endpoint =>
                {
                    let (delivery, from) = (*delivery, id.source.node());
                    self.delivered(now, delivery, id.clone(), from, payload.clone());
                    continue;
                }
                AgentIndication::Forwarded { id, .. } => self.forwarded(now, id),
                AgentIndication::Deleted { id, .. } => {
                    self.deleted(now, id);
                    self.lost(id);
                }
                AgentIndication::Report { report, .. } => self.reported(report),
                AgentIndication::Delivered { .. }
                | AgentIndication::Stored { .. }
                | AgentIndication::Up { .. }
                | AgentIndication::Down { .. }
                | AgentIndication::CustodyTaken { .. }
                | AgentIndication::LimitReached(_)
                | AgentIndication::StoreFailed(_) => {}
            }
            self.indications.push_back(Indication::Bundles(indication));
        }
    }

    /// Where in a file of the store a part lies.
    fn place(content: &Content) -> Option<(FileName, u64, u64)> {
        match content {
            Content::Bytes(_) => None,
            Content::File { name, offset, len } => Some((name.clone(), *offset, *len)),
        }
    }
}

impl Engine for Files {
    type Indication = Indication;

    fn handle_input(&mut self, now: Time, input: Input<'_>) {
        match input {
            Input::Done(ticket, answer) if ticket.0 >= TICKETS => self.done(now, ticket, answer),
            Input::Done(..) | Input::Path(..) | Input::Receive(_) => {
                self.node.handle_input(now, input);
            }
        }
        self.listen(now);
    }

    fn handle_timeout(&mut self, now: Time) {
        self.node.handle_timeout(now);
        self.listen(now);
        while let Some(Alarm::Unreported(file)) = self.timers.pop_due(now) {
            self.end(file, Err(Failure::Unreported));
        }
    }

    fn poll_transmit(&mut self, now: Time, tx: &mut TxBuf) -> Option<Transmit> {
        let transmit = self.node.poll_transmit(now, tx);
        self.listen(now);
        transmit
    }

    fn poll_effect(&mut self) -> Option<Effect> {
        self.effects.pop_front().or_else(|| self.node.poll_effect())
    }

    fn poll_indication(&mut self) -> Option<Indication> {
        self.indications.pop_front()
    }

    fn poll_timeout(&self) -> Option<Deadline> {
        let own = self.timers.next();
        [self.node.poll_timeout(), own].into_iter().flatten().min_by_key(|deadline| deadline.at)
    }
}
