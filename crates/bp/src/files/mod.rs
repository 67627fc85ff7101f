//! Files over bundles: an application of a bundle node that sends files, in one bundle or several,
//! and joins received parts ([`crate::codec::file_part`]).
//!
//! *Sending.* The parts of a file are handed to the node one after the other, each once the one
//! before is in the node's store. After a restart, sending continues behind the last of these.
//!
//! *Receiving.* The bytes of a part are written at their place in a working file. The part is
//! recorded, and its bundle confirmed; once all parts are there, the file gets its name. A payload
//! that is no part becomes a file with a name made from the bundle's identifier. No file is ever
//! replaced.

mod joining;
mod names;
mod part;
mod receiving;
mod record;
mod sending;
mod taking;
#[cfg(test)]
mod tests;
mod whole;

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use engine::{
    Completion, Deadline, Effect, EffectError, EffectResult, Engine, FileName, IndexRequest, Input,
    Rng, Ticket, Time, Timers, Transmit, TxBuf,
};
use session::settings;
use session::settings::Wrong;
use thiserror::Error;

use self::receiving::Receiving;
use self::sending::Sending;
use crate::agent::Version;
use crate::app::{Application, ArrivalId, Event, NodeFacts, Order, OutgoingId};
use crate::codec::bp7::{BundleFlags, Eid};
use crate::codec::file_part::NAME_MAX;
use crate::effects::Effects;
use crate::routes::Priority;

pub use self::joining::Joined;
#[doc(hidden)]
pub use self::record::reencoded;

/// Bytes of a file in one bundle by default.
pub const PART: u64 = 64 << 20;

/// Prefixes of working files, and those of the keys of their records: a working file without a
/// record is left over.
pub const SPOOLS: [(&str, &str); 2] = [(JOINED_PREFIX, record::JOINED), (PAYLOAD_PREFIX, "none-")];
const JOINED_PREFIX: &str = "file-";
const PAYLOAD_PREFIX: &str = "payload-";

settings! {
    /// Settings of a [`Files`].
    #[derive(Clone, Debug)]
    pub struct Config [check: Self::check_custody] {
        /// The endpoint that receives files, and sends them; without one, the node's own sends.
        pub endpoint: Option<Eid> = None,
        /// Whether bundles to the endpoint are received.
        pub receives: bool = true,
        /// Payloads to receive: none is accepted after them.
        pub most: Option<u64> = None,
        /// Most bytes of a file in one bundle; `off` sends a file in one bundle.
        pub part("bundle_size"): Option<u64> as Off<Size> [Least(1)] = Some(PART),
        /// Lifetime of the bundles.
        pub lifetime: Duration as Span [Interval] = Duration::from_secs(86_400),
        /// Whether delivery reports are requested.
        pub reports("request_reports"): bool as Flag = true,
        /// Version of the bundles.
        pub version: Version as Numbered = Version::Seven,
        /// Whether custody is requested, in version 6.
        pub custody("request_custody"): bool as Flag = false,
        /// Other requested reports, and whether fragmentation is forbidden.
        pub flags: BundleFlags = BundleFlags::default(),
        /// Priority of the bundles.
        pub priority: Priority = Priority::Normal,
        /// Endpoint that gets the reports; `None` is the node's own.
        pub report_to: Option<Eid> = None,
        /// Hop limit, in version 7; `None` is the node's.
        pub hop_limit: Option<u8> = None,
        /// Milliseconds since the beginning of 2000 at [`Time::ZERO`]. With a clock, a file whose
        /// first parts have expired begins again after a restart.
        pub clock_ms: Option<u64> = None,
        /// Bounds on memory and work.
        pub limits: Limits = Limits::default(),
    }
}

impl Config {
    fn check_custody(&mut self) -> Result<(), Wrong> {
        if self.custody && self.version != Version::Six {
            return Err("request_custody requires bundles of version 6: version = 6".into());
        }
        Ok(())
    }
}

settings! {
    /// Bounds on memory and work.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Limits {
        /// Files being sent.
        pub sending: usize = 1024,
        /// Parts of a file that the node has not forwarded, if it tells.
        pub ahead: usize = 64,
        /// Incomplete files, and complete ones that are remembered because a part may arrive again.
        pub joining: usize = 16_384,
        /// Bytes of a joined file: the payload of a bundle that announces more is no part.
        pub file: u64 = 8 << 40,
        /// Separate ranges of an incomplete file.
        pub ranges: usize = 65_536,
        /// Deliveries that wait here.
        pub arrivals: usize = 64,
    }
}

/// Identifier of a file being sent: the number of its transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FileId(pub u64);

/// Error of a request to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum SendError {
    /// Too many files are being sent.
    #[error("too many files are being sent; wait until one has finished")]
    Full,
    /// The name is too long.
    #[error("the name is longer than {NAME_MAX} bytes")]
    Name,
}

/// Reason for a failed file.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Failure {
    /// The store failed.
    #[error("the store failed: {0}")]
    Store(EffectError),
    /// The node refused a bundle.
    #[error("{0}")]
    Refused(String),
    /// A bundle was deleted before delivery.
    #[error("a bundle was deleted in transit")]
    Deleted,
    /// No delivery report came within the lifetime.
    #[error("the receiver did not report delivery")]
    Unreported,
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
        /// Number of its bundles.
        bundles: u64,
        /// Success: delivery was reported; without reports, the first neighbour accepted it; where
        /// the node tells neither, it is in the node's store.
        result: Result<(), Failure>,
        /// Whether the receiver reported delivery.
        is_reported: bool,
    },
    /// The node has no room for a part, which waits.
    Waiting {
        /// The file.
        file: FileId,
        /// Reason as text.
        why: String,
    },
    /// A file was received.
    Received {
        /// Source endpoint of its bundles.
        from: Eid,
        /// Its name as sent; empty if it is the payload of a bundle that is no part.
        name: String,
        /// Its name here.
        place: FileName,
        /// Its size in bytes.
        bytes: u64,
    },
    /// A payload with the header of a part has another checksum. It is kept as a file of its own.
    Damaged {
        /// Identifier of the bundle.
        bundle: String,
        /// Its header.
        part: String,
    },
    /// A payload could not be stored: its bundle stays in the node.
    SetAside {
        /// Identifier of the bundle.
        bundle: String,
        /// Reason.
        error: EffectError,
    },
}

/// Purpose of an effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Use {
    Load,
    Send(FileId),
    Receive(ArrivalId),
    Nobody,
}

/// The lifetime of the last part ended without what was waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Expiry(FileId);

/// An application that sends and receives files.
#[derive(Debug)]
pub struct Files {
    config: Config,
    rng: Rng,
    /// Whether the records of an earlier run were read.
    is_ready: bool,
    is_stopped: bool,
    node: Option<NodeFacts>,
    sending: BTreeMap<FileId, Sending>,
    /// Bundles being sent.
    outgoing: BTreeMap<OutgoingId, FileId>,
    receiving: Receiving,
    next_outgoing: u64,
    orders: VecDeque<Order>,
    effects: Effects<Use>,
    indications: VecDeque<Indication>,
    timers: Timers<Expiry>,
}

impl Files {
    /// An application with these settings.
    #[must_use]
    pub fn new(config: Config, rng: Rng) -> Self {
        let mut files = Self {
            receiving: Receiving::new(config.limits),
            config,
            rng,
            is_ready: false,
            is_stopped: false,
            node: None,
            sending: BTreeMap::new(),
            outgoing: BTreeMap::new(),
            next_outgoing: 0,
            orders: VecDeque::new(),
            effects: Effects::default(),
            indications: VecDeque::new(),
            timers: Timers::new(),
        };
        files.effects.index(Use::Load, IndexRequest::Load { prefix: record::PREFIX.to_owned() });
        files
    }

    /// Number of files being sent, and of payloads being received.
    #[must_use]
    pub fn under_way(&self) -> usize {
        self.sending.len() + self.receiving.under_way()
    }

    /// Whether it accepts requests: not while it reads the records of an earlier run.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.is_ready
    }

    fn done(&mut self, now: Time, ticket: Ticket, result: EffectResult) {
        match self.effects.take(ticket) {
            Some(Use::Load) => self.loaded(now, result),
            Some(Use::Send(file)) => self.sending_done(now, file, result),
            Some(Use::Receive(arrival)) => self.receiving_done(arrival, result),
            Some(Use::Nobody) | None => self.effects.close_orphan(&result),
        }
    }

    /// Continues with the records of an earlier run.
    fn loaded(&mut self, now: Time, result: EffectResult) {
        self.is_ready = true;
        let Ok(Completion::Records(records)) = result else { return };
        for (key, value) in records {
            if let Some(sent) = record::Sent::decode(&key, &value) {
                self.resume(now, sent);
            } else if let Some(joined) = Joined::decode(&key, &value) {
                self.receiving.files.restore(joined);
            }
        }
    }

    fn now_ms(&self, now: Time) -> Option<u64> {
        let since = u64::try_from(now.since(Time::ZERO).as_millis()).unwrap_or(u64::MAX);
        Some(self.config.clock_ms?.saturating_add(since))
    }
}

impl Application for Files {
    fn endpoint(&self) -> Option<Eid> {
        self.config.endpoint.clone().filter(|_| self.config.receives)
    }

    fn poll_order(&mut self) -> Option<Order> {
        self.orders.pop_front()
    }

    fn handle_event(&mut self, now: Time, event: Event) {
        match event {
            Event::Up(facts) => self.node_up(now, facts),
            Event::Down => {
                self.node = None;
                self.forget_arrivals();
            }
            Event::Came(delivery) => self.came(delivery),
            Event::Read { arrival, piece } => self.on_read(arrival, piece),
            Event::Expired(arrival) => self.on_expired(arrival),
            Event::Waiting { id, why } => self.on_waiting(now, id, why),
            Event::Passed { id, bytes } => self.on_passed(id, bytes),
            Event::Stored(id) => self.on_stored(id),
            Event::Refused { id, why } => self.on_lost(id, Failure::Refused(why)),
            Event::Forwarded(id) => self.on_forwarded(now, id),
            Event::Delivered(id) => self.on_delivered(now, id),
            Event::Deleted(id) => self.on_lost(id, Failure::Deleted),
        }
    }

    fn takes_more(&self) -> bool {
        self.is_ready
            && !self.is_stopped
            && self.config.most != Some(0)
            && self.receiving.takes_more()
    }

    fn stop(&mut self) {
        self.is_stopped = true;
        self.leave_arrivals();
    }
}

impl Engine for Files {
    type Indication = Indication;

    fn handle_input(&mut self, now: Time, input: Input<'_>) {
        if let Input::Done(ticket, result) = input {
            self.done(now, ticket, result);
        }
    }

    fn handle_timeout(&mut self, now: Time) {
        while let Some(Expiry(file)) = self.timers.pop_due(now) {
            self.expire(file);
        }
    }

    fn poll_transmit(&mut self, _now: Time, _tx: &mut TxBuf) -> Option<Transmit> {
        None
    }

    fn poll_effect(&mut self) -> Option<Effect> {
        self.effects.poll()
    }

    fn poll_indication(&mut self) -> Option<Indication> {
        self.indications.pop_front()
    }

    fn poll_timeout(&self) -> Option<Deadline> {
        self.timers.next()
    }
}
