//! Files over bundles: a user of a bundle node that sends files, in one bundle or several, and
//! joins received parts ([`crate::codec::file_part`]).
//!
//! A file is complete when all its parts have arrived. The agent keeps the bundles until the file
//! has its name, so a restarted node joins them again. Parts not yet handed to the sender's agent
//! when its node ends are not sent.

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
use session::settings;
use session::settings::Wrong;
use thiserror::Error;

use self::joining::{File, Joining, Part, PartId};
use self::sending::Sending;
use super::agent::{Agent, Indication as AgentIndication, RequestError, Version};
use super::layer::Content;
use super::node::Node;
use crate::codec::bp7::{BundleId, Eid};

/// Bytes of a file in one bundle by default.
pub const PART: u64 = 64 << 20;

settings! {
    /// Settings of a [`Files`].
    #[derive(Clone, Debug)]
    pub struct Config [check: Self::check_custody] {
        /// The endpoint that receives files.
        pub endpoint: Eid = Eid::None,
        /// Most bytes of a file in one bundle; `off` sends a file in one bundle.
        pub part("bundle_size"): Option<u64> as Off<Size> [Least(1)] = Some(PART),
        /// Lifetime of the bundles.
        pub lifetime: Duration as Span [Interval] = Duration::from_secs(86_400),
        /// Whether delivery reports are requested.
        pub reports: bool as Flag = true,
        /// Version of the bundles.
        pub version: Version as Numbered = Version::Seven,
        /// Whether custody is requested, in version 6.
        pub custody: bool as Flag = false,
        /// Bounds on memory and work.
        pub limits: Limits = Limits::default(),
    }
}

impl Config {
    fn check_custody(&mut self) -> Result<(), Wrong> {
        if self.custody && self.version != Version::Six {
            return Err("custody requires bundles of version 6: version = 6".into());
        }
        Ok(())
    }
}

/// Bounds on memory and work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Files being sent.
    pub files: usize,
    /// Parts of a file. The receiver's agent must allow as many unconfirmed deliveries
    /// ([`Limits::delivering`](super::agent::Limits::delivering)).
    pub parts: u64,
    /// Parts of a file queued at this node.
    pub ahead: usize,
    /// Bytes read at one time.
    pub read: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { files: 1024, parts: 1024, ahead: 64, read: 256 << 10 }
    }
}

/// Identifier of a file being sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FileId(pub u64);

/// Error of a request to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum SendError {
    /// Too many files are being sent.
    #[error("too many files are being sent; wait until one has finished")]
    Full,
    /// The name is too long.
    #[error("the name is longer than 1,024 bytes")]
    Name,
}

/// Reason for a failed file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failure {
    /// The store failed.
    Store(EffectError),
    /// The agent refused a bundle.
    Refused(RequestError),
    /// It has too many parts.
    TooManyParts,
    /// A bundle was deleted before delivery.
    Deleted,
    /// No delivery report came within the lifetime.
    Unreported,
    /// The parts contradict each other, or the name is not acceptable here.
    Contradiction,
    /// The checksum does not match.
    Damaged,
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Store(error) => write!(f, "the store failed: {error}"),
            Self::Refused(error) => error.fmt(f),
            Self::TooManyParts => f.write_str("the file has too many parts; make them longer"),
            Self::Deleted => f.write_str("a bundle was deleted in transit"),
            Self::Unreported => f.write_str("the receiver did not report delivery"),
            Self::Contradiction => f.write_str("the received parts contradict each other"),
            Self::Damaged => f.write_str("a part is damaged"),
        }
    }
}

/// Indication to users.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Indication {
    /// Sending of a file ended.
    Sent {
        /// The file.
        file: FileId,
        /// Its name at the receiver.
        name: String,
        /// Success: delivery was reported or, without reports, the first neighbour accepted it.
        result: Result<(), Failure>,
        /// Whether the receiver reported delivery.
        is_reported: bool,
    },
    /// A file was received, or failed.
    Received {
        /// The sending node.
        from: Eid,
        /// Its name.
        name: String,
        /// The result.
        result: Result<(), Failure>,
    },
    /// Another indication of the agent.
    Bundles(AgentIndication),
}

/// Purpose of an effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Use {
    Send(FileId),
    /// Reads the header of a part.
    Look(PartId),
    Join(File),
    Forget,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Alarm {
    /// The lifetime ended without a delivery report.
    Unreported(FileId),
}

/// First ticket of this user; tickets of the node count from 0.
const TICKETS: u64 = 1 << 63;

/// A bundle node with a user that sends and receives files.
pub struct Files {
    node: Node,
    config: Config,
    rng: Rng,
    sending: BTreeMap<FileId, Sending>,
    /// Bundles in transit, and their files.
    bundles: BTreeMap<BundleId, FileId>,
    /// Files waiting for room in the agent's store.
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

    /// The node, for requests.
    pub fn node_mut(&mut self) -> &mut Node {
        &mut self.node
    }

    /// Number of files being sent or received.
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

    fn done(&mut self, now: Time, ticket: Ticket, result: Result<Completion, EffectError>) {
        match self.uses.remove(&ticket) {
            Some(Use::Send(file)) => self.sending_effect_done(now, file, result),
            Some(Use::Look(part)) => self.looked(now, part, result),
            Some(Use::Join(file)) => self.joining_effect_done(now, &file, result),
            Some(Use::Forget) | None => {
                if let Ok(Completion::Opened { file, .. }) = result {
                    self.close(file);
                }
            }
        }
    }

    /// Handles the agent's indications.
    fn listen(&mut self, now: Time) {
        while let Some(indication) = self.node.poll_indication() {
            match &indication {
                AgentIndication::Delivered { delivery, endpoint, id, payload, .. }
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
                | AgentIndication::SignalIgnored { .. }
                | AgentIndication::Discarded { .. }
                | AgentIndication::LimitReached(_)
                | AgentIndication::Notice { .. }
                | AgentIndication::StoreFailed(_) => {}
            }
            self.indications.push_back(Indication::Bundles(indication));
        }
    }

    /// File name, offset and length of a part in the store.
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
            Input::Done(ticket, result) if ticket.0 >= TICKETS => self.done(now, ticket, result),
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
