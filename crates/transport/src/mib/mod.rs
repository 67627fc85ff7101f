//! A CFDP entity's management information base as TOML.
//!
//! ```toml
//! entity = 1
//! [default]                 # what holds for every remote entity
//! nak_mode = "deferred"
//! [remotes.2]               # and what differs for entity 2
//! ack_timer = "50 s"
//! ```

mod names;
mod remote;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use proto::cfdp;
use serde::{Deserialize, Serialize};
use wire::cfdp::{FaultHandler, Width};

pub use self::names::{Access, BookVersion, Checksum, Class, Condition, Handler, NakMode, Timer};
pub use self::remote::{HostDelays, Permissions, Remote};
use crate::quantity::{Size, Span};
use crate::text::SpecError;

/// What a user says about an entity; what is left out stays as it is.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Mib {
    /// The entity's own number.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub entity: Option<u64>,
    /// Octets of the sequence numbers it gives, 1 to 8.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sequence_octets: Option<u8>,
    /// The first sequence number it gives.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first_sequence: Option<u64>,
    /// Whether an incomplete file is delivered when its transaction ends early.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub keep_incomplete: Option<bool>,
    /// Whether entities that `remotes` does not name may send files here.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub accept_unknown: Option<bool>,
    /// When the progress of a reception is saved.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub journal: Option<Journal>,
    /// Bounds on what the entity holds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limits: Option<Limits>,
    /// What to do about each fault, by its condition.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub faults: BTreeMap<Condition, Handler>,
    /// Which optional indications it gives.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub indications: Option<Indications>,
    /// What it does for others.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user_operations: Option<UserOperations>,
    /// What holds for every remote entity.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub default: Option<Remote>,
    /// What differs for some, by their numbers.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub remotes: BTreeMap<String, Remote>,
}

/// When the progress of a reception is saved.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Journal {
    /// Whether anything is saved at all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub enabled: Option<bool>,
    /// After this many new bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes: Option<Size>,
    /// After this time, if there are new bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub interval: Option<Span>,
}

/// Bounds on what an entity holds (see [`cfdp::Limits`]).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Limits {
    /// Transactions under way.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub transactions: Option<usize>,
    /// Finished transactions remembered.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub finished: Option<usize>,
    /// Gaps tracked in a reception.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gaps: Option<usize>,
    /// Gaps tracked in all receptions together.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gaps_total: Option<usize>,
    /// Received data that waits to be written.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub write_buffer: Option<Size>,
    /// Data collected into one write.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub write_piece: Option<Size>,
    /// Data read ahead of what is sent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub read_ahead: Option<Size>,
    /// The same for all transactions together.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub read_ahead_total: Option<Size>,
    /// Data asked for in one read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub read_piece: Option<Size>,
    /// Data of a file whose size was not announced.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file_size: Option<Size>,
    /// Options of one Metadata PDU.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub options: Option<usize>,
    /// Answers that wait to be sent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replies: Option<usize>,
}

/// Which optional indications an entity gives (see [`cfdp::Indications`]).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Indications {
    /// EOF-Sent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub eof_sent: Option<bool>,
    /// EOF-Recv.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub eof_received: Option<bool>,
    /// File-Segment-Recv, for each data PDU.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file_segment_received: Option<bool>,
    /// Transaction-Finished at the receiving entity.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub transaction_finished: Option<bool>,
    /// Suspended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub suspended: Option<bool>,
    /// Resumed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resumed: Option<bool>,
}

/// What an entity does for others, and how much of it (see [`cfdp::UserOperations`]).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct UserOperations {
    /// The next entity on the way to one that is not reached directly: `routes = { 3 = 2 }` sends
    /// by entity 2 what is meant for entity 3.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub routes: BTreeMap<String, u64>,
    /// Waypoints a file may pass.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub waypoints_max: Option<u8>,
    /// Files stored to be handed on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stored_files: Option<usize>,
    /// Bytes of those files.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stored_bytes: Option<Size>,
    /// Requests of others that are served at a time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pending: Option<usize>,
    /// Bytes of a directory listing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub listing_bytes: Option<Size>,
    /// Transactions of class 3 whose PDUs are handed on at a time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub flows: Option<usize>,
}

fn width(octets: u8, key: &str) -> Result<Width, SpecError> {
    Width::new(octets)
        .ok_or_else(|| SpecError::invalid(format!("{key} is {octets}; it must be from 1 to 8")))
}

/// The number of a remote entity, which is a key of the table `table`.
pub(crate) fn entity(key: &str, table: &str) -> Result<u64, SpecError> {
    let wrong = |why: &str| SpecError::invalid(format!("{table}.{key}: {why}"));
    let number: u64 = key.parse().map_err(|_| wrong("a remote entity has a number"))?;
    // Else one entity could be named twice.
    let shortest = number.to_string();
    if shortest == key { Ok(number) } else { Err(wrong(&format!("write it as {shortest}"))) }
}

fn len(size: Size) -> usize {
    usize::try_from(size.bytes()).unwrap_or(usize::MAX)
}

/// Sets a field to a value that was given.
fn set<T, U: Into<T>>(field: &mut T, value: Option<U>) {
    if let Some(value) = value {
        *field = value.into();
    }
}

impl Mib {
    /// Changes `config` to what the file at `path` says.
    ///
    /// # Errors
    ///
    /// What is wrong with the file.
    pub fn apply_file(path: &std::path::Path, config: &mut cfdp::Config) -> Result<(), SpecError> {
        let mib: Self = crate::text::read(path)?;
        mib.apply(config).map_err(|error| error.within(path))
    }

    /// Changes `config` to what is said here.
    ///
    /// # Errors
    ///
    /// When a value is out of its range.
    pub fn apply(&self, config: &mut cfdp::Config) -> Result<(), SpecError> {
        set(&mut config.entity, self.entity);
        if let Some(octets) = self.sequence_octets {
            config.sequence_width = width(octets, "sequence_octets")?;
        }
        if self.first_sequence.is_some() {
            config.first_sequence = self.first_sequence;
        }
        set(&mut config.keep_incomplete, self.keep_incomplete);
        set(&mut config.accept_unknown, self.accept_unknown);
        if let Some(journal) = self.journal {
            journal.apply(&mut config.journal);
        }
        if let Some(limits) = self.limits {
            limits.apply(&mut config.limits);
        }
        for (condition, handler) in &self.faults {
            config.faults.set((*condition).into(), (*handler).into());
        }
        if let Some(indications) = self.indications {
            indications.apply(&mut config.indications);
        }
        if let Some(operations) = &self.user_operations {
            operations.apply(&mut config.user_operations)?;
        }
        if let Some(default) = self.default {
            default.apply("default", &mut config.default_remote)?;
            for remote in config.remotes.values_mut() {
                default.apply("default", remote)?;
            }
        }
        for (number, remote) in &self.remotes {
            let id = entity(number, "remotes")?;
            let known = config.remotes.get(&id).unwrap_or(&config.default_remote).clone();
            let table = format!("remotes.{number}");
            remote.apply(&table, config.remotes.entry(id).or_insert(known))?;
        }
        Ok(())
    }
}

impl Mib {
    /// The transmission class towards an entity, as far as it is said.
    #[must_use]
    pub fn class(&self, remote: Option<u64>) -> Option<Class> {
        let own = self.remotes.iter().find(|(id, _)| id.parse().ok() == remote);
        let own = own.filter(|_| remote.is_some()).and_then(|(_, remote)| remote.class);
        own.or_else(|| self.default.and_then(|default| default.class))
    }

    /// Everything that `config` says of the entity and of remote entities in general. What is not
    /// set there, like a limit that does not exist, is left out.
    #[must_use]
    pub fn of(config: &cfdp::Config) -> Self {
        let handler = |condition: &Condition| {
            let handler = config.faults.get((*condition).into());
            Handler::ALL.iter().copied().find(|known| FaultHandler::from(*known) == handler)
        };
        let faults = Condition::ALL.iter().filter_map(|c| Some((*c, handler(c)?)));
        Self {
            entity: Some(config.entity),
            sequence_octets: Some(octets(config.sequence_width)),
            first_sequence: config.first_sequence,
            keep_incomplete: Some(config.keep_incomplete),
            accept_unknown: Some(config.accept_unknown),
            journal: Some(Journal::of(config.journal)),
            limits: Some(Limits::of(&config.limits)),
            faults: faults.collect(),
            indications: Some(Indications::of(config.indications)),
            user_operations: Some(UserOperations::of(&config.user_operations)),
            default: Some(Remote::of(&config.default_remote)),
            remotes: config
                .remotes
                .iter()
                .map(|(id, remote)| (id.to_string(), Remote::of(remote)))
                .collect(),
        }
    }
}

fn octets(width: Width) -> u8 {
    u8::try_from(width.octets()).unwrap_or(u8::MAX)
}

fn bytes(len: usize) -> Option<Size> {
    Some(Size(len as u64))
}

impl Journal {
    pub(crate) fn of(policy: cfdp::JournalPolicy) -> Self {
        Self {
            enabled: Some(policy.enabled),
            bytes: Some(Size(policy.bytes)),
            interval: Some(Span(policy.interval)),
        }
    }

    pub(crate) fn apply(self, policy: &mut cfdp::JournalPolicy) {
        set(&mut policy.enabled, self.enabled);
        set(&mut policy.bytes, self.bytes.map(Size::bytes));
        set(&mut policy.interval, self.interval.map(Span::duration));
    }
}

impl Limits {
    fn of(limits: &cfdp::Limits) -> Self {
        Self {
            transactions: Some(limits.transactions),
            finished: Some(limits.finished),
            gaps: Some(limits.gaps),
            gaps_total: Some(limits.gaps_total),
            write_buffer: bytes(limits.buffers.write_buffer),
            write_piece: bytes(limits.buffers.write_piece),
            read_ahead: bytes(limits.buffers.read_ahead),
            read_ahead_total: bytes(limits.buffers.read_ahead_total),
            read_piece: bytes(limits.buffers.read_piece),
            file_size: Some(Size(limits.file_size)),
            options: Some(limits.options),
            replies: Some(limits.buffers.replies),
        }
    }

    fn apply(self, limits: &mut cfdp::Limits) {
        set(&mut limits.transactions, self.transactions);
        set(&mut limits.finished, self.finished);
        set(&mut limits.gaps, self.gaps);
        set(&mut limits.gaps_total, self.gaps_total);
        set(&mut limits.buffers.write_buffer, self.write_buffer.map(len));
        set(&mut limits.buffers.write_piece, self.write_piece.map(len));
        set(&mut limits.buffers.read_ahead, self.read_ahead.map(len));
        set(&mut limits.buffers.read_ahead_total, self.read_ahead_total.map(len));
        set(&mut limits.buffers.read_piece, self.read_piece.map(len));
        set(&mut limits.file_size, self.file_size.map(Size::bytes));
        set(&mut limits.options, self.options);
        set(&mut limits.buffers.replies, self.replies);
    }
}

impl Indications {
    fn of(indications: cfdp::Indications) -> Self {
        Self {
            eof_sent: Some(indications.eof_sent),
            eof_received: Some(indications.eof_received),
            file_segment_received: Some(indications.file_segment_received),
            transaction_finished: Some(indications.transaction_finished),
            suspended: Some(indications.suspended),
            resumed: Some(indications.resumed),
        }
    }

    fn apply(self, indications: &mut cfdp::Indications) {
        set(&mut indications.eof_sent, self.eof_sent);
        set(&mut indications.eof_received, self.eof_received);
        set(&mut indications.file_segment_received, self.file_segment_received);
        set(&mut indications.transaction_finished, self.transaction_finished);
        set(&mut indications.suspended, self.suspended);
        set(&mut indications.resumed, self.resumed);
    }
}

impl UserOperations {
    fn of(operations: &cfdp::UserOperations) -> Self {
        let routes = operations.routes.iter().map(|(to, next)| (to.to_string(), *next));
        Self {
            routes: routes.collect(),
            waypoints_max: Some(operations.waypoints_max),
            stored_files: Some(operations.stored_files),
            stored_bytes: Some(Size(operations.stored_bytes)),
            pending: Some(operations.pending),
            listing_bytes: bytes(operations.listing_bytes),
            flows: Some(operations.flows),
        }
    }

    fn apply(&self, operations: &mut cfdp::UserOperations) -> Result<(), SpecError> {
        for (to, next) in &self.routes {
            operations.routes.insert(entity(to, "user_operations.routes")?, *next);
        }
        set(&mut operations.waypoints_max, self.waypoints_max);
        set(&mut operations.stored_files, self.stored_files);
        set(&mut operations.stored_bytes, self.stored_bytes.map(Size::bytes));
        set(&mut operations.pending, self.pending);
        set(&mut operations.listing_bytes, self.listing_bytes.map(len));
        set(&mut operations.flows, self.flows);
        Ok(())
    }
}
