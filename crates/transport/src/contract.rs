//! The contract between a transport and its users: simulator, emulator and command line.
//!
//! A user makes a [`Configuration`] of a protocol's name and an entity number, changes it, and
//! builds the [`Transport`] that a driver runs:
//!
//! ```
//! # use transport::{Configuration, SendRequest, Transport};
//! # use engine::{FileName, PathId, Rng, Time};
//! let protocol: transport::protocol::Protocol = "ltp/checkpoints".parse()?;
//! let mut configuration = transport::configure(&protocol, 1, None)?;
//! configuration.set_path(2, PathId(0));
//! let mut transport = configuration.build(Rng::new(1, "sender"));
//! let request = SendRequest::new(FileName::file("f")?, "f", 2, protocol.kind);
//! let id = transport.send(Time::ZERO, &request)?; // begins when the path comes up
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! `Box<dyn Transport>` is an [`Engine`], so `rt::Driver<Box<dyn Transport>>` and
//! `sim::World<Box<dyn Transport>>` run one.
//!
//! **Over sockets** the order is: [`configure`](crate::configure),
//! [`Configuration::prepare`] with the [`Process`] (it refuses what runs in the simulator only),
//! [`Configuration::apply_file`], [`Configuration::set_entity`] if a number was given,
//! [`Configuration::finish`], whose answer is the rate of the path, then paths, groups and routes.
//! [`Transport::is_ready`] is `false` until the records of an earlier process were read.
//!
//! [`Kind`] says what a protocol has, for checks of options: `is_entity`,
//! `has_groups`, `has_directories`, `has_relays`, `has_sockets`, `spools` and others. No
//! user matches on a protocol.
//!
//! **Operations that only some protocols have** return [`RequestError::unsupported`] by default.
//! Groups of operations are traits of their own, which a transport returns if it has
//! them: [`Transport::cfdp`], the entity with its user operations, and [`Transport::streams`].

mod adapter;
mod kind;
mod layer;
mod metrics;
mod protocol;

use std::collections::BTreeMap;
use std::fmt;
use std::net::Ipv4Addr;
use std::path::Path;
use std::time::Duration;

use bytes::Bytes;
use engine::{Engine, FileName, PathId, Rng, Time};
use proto::norm::Piece;
use proto::{cfdp, ltpt};
use thiserror::Error;

pub use self::adapter::{Adapter, Spool};
pub use self::kind::Kind;
pub(crate) use self::kind::Stack;
pub use self::layer::{Convergence, Feature, Layer, Service};
pub use self::metrics::{BufferLimits, BundleMetrics};
pub use self::protocol::Protocol;
pub(crate) use self::protocol::{SEPARATOR, compose};
use crate::event::{Event, TransferId};
use crate::mib::Class;
use crate::overlay::Overlay;
use crate::records::Record;
use crate::settings::Settings;
use crate::text::{self, SpecError};

/// Reason why a transport refuses a request.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{0}")]
pub struct RequestError(String);

impl RequestError {
    /// A refusal with this reason.
    #[must_use]
    pub fn new(reason: impl fmt::Display) -> Self {
        Self(reason.to_string())
    }

    /// A request that the protocol does not have.
    #[must_use]
    pub fn unsupported(request: &str) -> Self {
        Self(format!("{request} is not supported by this protocol"))
    }

    /// An entity that no path leads to.
    #[must_use]
    pub fn no_path(entity: u64) -> Self {
        Self(format!("there is no path to {entity}"))
    }
}

/// Request to send a file, or to fetch one if the protocol's name says so.
#[derive(Clone, Debug)]
pub struct SendRequest {
    /// The file in the store of this end.
    pub source: FileName,
    /// Its name at the peer.
    pub name: String,
    /// Entity number of the receiver; of the sender when the file is fetched.
    pub destination: u64,
    /// Path of the group that it is sent to, in place of `destination`.
    pub group: Option<PathId>,
    /// The protocol.
    pub kind: Kind,
    /// Bytes of the file that are read, where not all of it is.
    pub records: Vec<Record>,
    /// Transmission class, where the protocol is CFDP.
    pub class: Class,
    /// Procedure of waypoints, if there are any.
    pub overlay: Option<Overlay>,
    /// Whether the receiver is asked before any data is sent.
    pub asks_first: bool,
    /// Whether a file that is fetched is deleted at its sender.
    pub takes: bool,
    /// Messages to the applications of receivers, ahead of the file.
    pub messages: Vec<Bytes>,
}

impl SendRequest {
    /// A request without options.
    #[must_use]
    pub fn new(source: FileName, name: &str, destination: u64, kind: Kind) -> Self {
        Self {
            source,
            name: name.to_owned(),
            destination,
            group: None,
            kind,
            records: Vec::new(),
            class: kind.class(),
            overlay: None,
            asks_first: false,
            takes: false,
            messages: Vec::new(),
        }
    }
}

/// State of a transfer under way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Progress {
    /// The transfer.
    pub id: TransferId,
    /// Bytes of it that were sent or received.
    pub bytes: u64,
    /// Its size, if it is known.
    pub size: Option<u64>,
    /// Name of the file, if it is known.
    pub name: String,
    /// Reason why nothing of it moves, if it waits.
    pub wait: Option<&'static str>,
}

/// Operations of a CFDP entity's user.
pub trait CfdpUser {
    /// The entity.
    fn entity(&self) -> &cfdp::Entity;

    /// Sends a file or messages.
    ///
    /// # Errors
    ///
    /// The entity refuses.
    fn put(
        &mut self,
        now: Time,
        request: cfdp::PutRequest,
    ) -> Result<wire::cfdp::TransactionId, cfdp::RequestError>;

    /// Event that other protocols report in place of an indication of the entity.
    fn report(&self, indication: cfdp::Indication) -> Event;

    /// Requests something else of the entity.
    fn operate(&mut self, now: Time, operation: &mut dyn FnMut(&mut cfdp::Entity));
}

/// Streams of bytes without a length.
pub trait Streams {
    /// Begins a stream of this name on a path. With `push`, new data overwrites what receivers may
    /// lack; without it, the writer waits for them.
    ///
    /// # Errors
    ///
    /// The transport refuses.
    fn open(
        &mut self,
        now: Time,
        path: PathId,
        name: &str,
        push: bool,
    ) -> Result<TransferId, RequestError>;

    /// Writes as many bytes as there is room for, and returns their number.
    ///
    /// # Errors
    ///
    /// The stream is over.
    fn write(&mut self, now: Time, id: &TransferId, bytes: &[u8]) -> Result<usize, RequestError>;

    /// Sends what was written, however little it is.
    ///
    /// # Errors
    ///
    /// The stream is over.
    fn flush(&mut self, now: Time, id: &TransferId) -> Result<(), RequestError>;

    /// Ends a stream once all of it is sent.
    ///
    /// # Errors
    ///
    /// The stream is over.
    fn close(&mut self, now: Time, id: &TransferId) -> Result<(), RequestError>;

    /// Next bytes of a stream, or a gap in it; `None` if nothing more is there yet.
    fn read(&mut self, now: Time, id: &TransferId) -> Option<Piece>;
}

/// A transport of files.
pub trait Transport: Engine<Indication = Event> + fmt::Debug {
    /// Begins a transfer.
    ///
    /// # Errors
    ///
    /// The transport refuses.
    fn send(&mut self, now: Time, request: &SendRequest) -> Result<TransferId, RequestError>;

    /// Fetches a file of a peer.
    ///
    /// # Errors
    ///
    /// The transport refuses, or has no such request.
    fn fetch(&mut self, _now: Time, _request: &SendRequest) -> Result<TransferId, RequestError> {
        Err(RequestError::unsupported("fetching a file"))
    }

    /// Ends a transfer early. One that is over stays over.
    fn cancel(&mut self, _now: Time, _id: &TransferId) {}

    /// Requests the contents of a peer's directory.
    ///
    /// # Errors
    ///
    /// The transport refuses, or has no such request.
    fn list(
        &mut self,
        _now: Time,
        _peer: PathId,
        _directory: &str,
    ) -> Result<TransferId, RequestError> {
        Err(RequestError::unsupported("listing a directory"))
    }

    /// Requests that a peer delete a file.
    ///
    /// # Errors
    ///
    /// The transport refuses, or has no such request.
    fn delete(
        &mut self,
        _now: Time,
        _peer: PathId,
        _name: &str,
    ) -> Result<TransferId, RequestError> {
        Err(RequestError::unsupported("deleting a file"))
    }

    /// Transfers under way, with their progress.
    fn transfers(&self) -> Vec<Progress> {
        Vec::new()
    }

    /// Number of transfers that it will advance by itself: not those that are suspended.
    fn under_way(&self) -> usize;

    /// Whether it takes requests: not while it reads the records of an earlier run.
    fn is_ready(&self) -> bool {
        true
    }

    /// Segments that it sent again or as parity because receivers lacked something, and its
    /// requests for such; `None` if it does not count them.
    fn repairs(&self) -> Option<(u64, u64)> {
        None
    }

    /// Times for which the peers' receive windows and its send buffers stopped its connections;
    /// `None` if it does not count them.
    fn buffer_limits(&self) -> Option<BufferLimits> {
        None
    }

    /// Counters of its bundle node, if it has one.
    fn bundle_metrics(&self) -> Option<BundleMetrics> {
        None
    }

    /// Datagrams with content that were sent and received; `None` if it does not count them.
    fn datagrams(&self) -> Option<(u64, u64)> {
        None
    }

    /// Begins what the peer must know before this process ends; `true` if [`Event::Left`] follows.
    fn leave(&mut self, _now: Time, _peer: PathId) -> bool {
        false
    }

    /// Whether the layer below replies to its peer after a transfer, and needs time to.
    fn replies_below(&self) -> bool {
        false
    }

    /// Sets the room for files that it announces, in KiB.
    fn set_free_space(&mut self, _kib: Option<u64>) {}

    /// Its CFDP entity, if it has one.
    fn cfdp(&self) -> Option<&dyn CfdpUser> {
        None
    }

    /// CFDP's user operations, to use them.
    fn cfdp_mut(&mut self) -> Option<&mut dyn CfdpUser> {
        None
    }

    /// Turns an indication of its CFDP entity into the event that other protocols report.
    fn reported(&self, event: Event) -> Event {
        let Event::Entity(indication) = event else { return event };
        self.cfdp().map_or(Event::Update, |user| user.report(*indication))
    }

    /// Its streams, if it has such.
    fn streams(&mut self) -> Option<&mut dyn Streams> {
        None
    }
}

/// Part of a process that runs a transport over sockets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// One transfer, which may be a fetch.
    Client {
        /// Whether it keeps what it received in part.
        keeps: bool,
    },
    /// Whatever peers request.
    Server {
        /// Whether peers may fetch files and list directories.
        gets: bool,
        /// Whether peers may delete files.
        deletes: bool,
    },
}

impl Role {
    /// Whether it serves peers.
    #[must_use]
    pub fn is_server(self) -> bool {
        matches!(self, Self::Server { .. })
    }
}

/// Process that runs a transport over sockets.
#[derive(Clone, Copy, Debug)]
pub struct Process {
    /// Its part.
    pub role: Role,
    /// Part of its rate that a transport may make up for when its driver is late.
    pub catch_up: Duration,
    /// Bytes under way on a path without a rate.
    pub unpaced_window: u64,
    /// Milliseconds since the beginning of 2000.
    pub clock_ms: u64,
    /// Rate that was given for the path, in bits per second: it comes before that of a peer's
    /// settings.
    pub rate_bps: Option<u64>,
    /// Entity that the path leads to, if it is one.
    pub remote: Option<u64>,
    /// Whether UDP-Lite carries the datagrams.
    pub udp_lite: bool,
}

/// Configuration of a transport.
pub trait Configuration: fmt::Debug + Send + Sync {
    /// Builds the transport.
    fn build(&self, rng: Rng) -> Box<dyn Transport>;

    /// Adapter of its protocol.
    fn adapter(&self) -> &'static dyn Adapter;

    /// Changes it to what settings say.
    ///
    /// # Errors
    ///
    /// A key does not exist, or a value is out of range.
    fn apply(&mut self, settings: &Settings) -> Result<(), SpecError>;

    /// All settings; secrets are left out.
    fn settings(&self) -> Settings;

    /// Changes it to what the file at `path` says.
    ///
    /// # Errors
    ///
    /// Names the place in the file, and the remedy.
    fn apply_file(&mut self, path: &Path) -> Result<(), SpecError> {
        let text = text::read_text(path)?;
        let origin = path.display().to_string();
        let mut settings = Settings::parse(&text, &origin, &[], self.adapter())?;
        settings.place(path.parent().unwrap_or(Path::new("")));
        self.apply(&settings).map_err(|error| error.within(path))
    }

    /// Checks that a world of a scenario can have such an engine.
    ///
    /// # Errors
    ///
    /// Names the key that it cannot have.
    fn check_simulated(&self) -> Result<(), SpecError> {
        Ok(())
    }

    /// Checks that it can speak `protocol`.
    ///
    /// # Errors
    ///
    /// Its settings contradict that.
    fn check(&self, _protocol: &Protocol) -> Result<(), SpecError> {
        Ok(())
    }

    /// Number of its entity, where it has one.
    fn number(&self) -> Option<u64> {
        None
    }

    /// Sets the number of its entity, where it has one.
    fn set_entity(&mut self, _entity: u64) {}

    /// Sets the path that leads to `entity`.
    fn set_path(&mut self, entity: u64, path: PathId);

    /// Sets routes by the last engine, and what holds for all others.
    fn set_routes(&mut self, _to: BTreeMap<u64, u64>, _otherwise: ltpt::Otherwise) {}

    /// Makes it a member of the group that a path stands for.
    fn add_group(&mut self, _path: PathId) {}

    /// Sets the number of receivers of its group, unless `settings` do: whom to wait for, and how
    /// large a group they act as.
    fn set_receivers(&mut self, _count: u32, _settings: Option<&Settings>) {}

    /// Sets the silence after which a transfer is given up, whoever the peer is.
    fn set_inactivity(&mut self, silence: Duration);

    /// Sets the name of a file that arrives without one.
    fn set_file_name(&mut self, _name: &str) {}

    /// Lets it make up for at least so much of its rate when its driver is late.
    fn allow_catch_up(&mut self, _least: Duration) {}

    /// Bytes of the least datagram over which it sends a file of this name and size to an entity,
    /// where that is known.
    ///
    /// # Errors
    ///
    /// Its settings contradict each other.
    fn least_datagram(
        &self,
        _destination: u64,
        _name: &str,
        _size: u64,
    ) -> Result<Option<u64>, SpecError> {
        Ok(None)
    }

    /// Whether its paths are IP interfaces.
    fn has_interfaces(&self) -> bool {
        false
    }

    /// Sets its own address and port, and the interfaces over which it reaches others.
    fn set_own(&mut self, _place: (Ipv4Addr, u16), _interfaces: &[PathId]) {}

    /// Sets the address of the peer of a path, and the interface over which it is reached.
    fn set_peer(&mut self, _path: PathId, _remote: (Ipv4Addr, u16), _by: PathId) {}

    /// Prepares it for a process with sockets, before settings are applied.
    ///
    /// # Errors
    ///
    /// It runs in the simulator only.
    fn prepare(&mut self, _process: &Process) -> Result<(), SpecError> {
        Err(SpecError::invalid("runs in the simulator only: slowlight sim and slowlight compare"))
    }

    /// Completes it after settings were applied; returns the rate of the process's path, if
    /// settings say one.
    ///
    /// # Errors
    ///
    /// Settings and process contradict each other.
    fn finish(&mut self, _process: &Process) -> Result<Option<u64>, SpecError> {
        Ok(None)
    }

    /// Ports from which a peer may send, besides the one that it listens on.
    fn peer_ports(&self) -> usize {
        0
    }

    /// Makes it store what arrives without a name under a number.
    fn receive_unnamed(&mut self) {}

    /// Makes it receive a stream, and no files; `false` if it has none.
    fn receive_stream(&mut self) -> bool {
        false
    }

    /// Names under which its settings know peers, where these are addresses.
    fn named_peers(&self) -> Vec<String> {
        Vec::new()
    }

    /// Applies the settings of a named peer to its path; returns the rate that they say.
    fn use_named(&mut self, _name: &str, _path: PathId) -> Option<u64> {
        None
    }

    /// Whether it sends beacons.
    fn has_beacons(&self) -> bool {
        false
    }

    /// Sends beacons on one more path: in this interval if one is given, else if it has beacons.
    fn add_beacon(&mut self, _path: PathId, _interval: Option<Duration>) {}

    /// Identifier that its beacons announce.
    fn identifier(&self) -> Option<&str> {
        None
    }

    /// Sets the identifier that its beacons announce.
    fn set_identifier(&mut self, _identifier: &str) {}

    /// Configuration of its CFDP entity, if it has one.
    fn cfdp(&self) -> Option<&cfdp::Config> {
        None
    }

    /// CFDP's configuration, to change it.
    fn cfdp_mut(&mut self) -> Option<&mut cfdp::Config> {
        None
    }
}
