//! The contract between a transport and its users: simulator, emulator and command line.
//!
//! A user creates a [`Configuration`] for the name of a protocol and an entity number, changes it,
//! and builds the [`Transport`] that a driver runs:
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
//! **Over sockets** the order is: [`configure`](crate::configure), [`Configuration::prepare`] with
//! the [`Process`] (it refuses models of the simulator), [`Configuration::apply_file`],
//! [`Configuration::set_entity`] if a number was given, [`Configuration::finish`], which returns
//! the rate of the path, then paths, groups and routes. [`Transport::is_ready`] is `false` until
//! the records of an earlier process were read.
//!
//! [`Kind`] describes the properties of a protocol, for checks of options: `is_entity`,
//! `has_groups`, `has_directories`, `has_relays`, `has_sockets`, `spools` and others. No user
//! matches on a protocol.
//!
//! **Operations that only some protocols have** return [`RequestError::unsupported`] by default.
//! Groups of operations are separate traits, which a transport returns if it supports them:
//! [`Transport::cfdp`], the entity with its user operations, and [`Transport::streams`].

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
use ltp::ltpt;
use norm::Piece;
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
    /// Refusal with this reason.
    #[must_use]
    pub fn new(reason: impl fmt::Display) -> Self {
        Self(reason.to_string())
    }

    /// Request that the protocol does not support.
    #[must_use]
    pub fn unsupported(request: &str) -> Self {
        Self(format!("{request} is not supported by this protocol"))
    }

    /// Entity without a path.
    #[must_use]
    pub fn no_path(entity: u64) -> Self {
        Self(format!("there is no path to {entity}"))
    }
}

/// Request to send a file, or to fetch one if the protocol fetches.
#[derive(Clone, Debug)]
pub struct SendRequest {
    /// File in the store of this end.
    pub source: FileName,
    /// Name of the file at the peer.
    pub name: String,
    /// Entity number of the receiver; of the sender when the file is fetched.
    pub destination: u64,
    /// Path of the receiving group, in place of `destination`.
    pub group: Option<PathId>,
    /// The protocol.
    pub kind: Kind,
    /// Range of bytes to read, if not the whole file.
    pub records: Vec<Record>,
    /// Transmission class, where the protocol is CFDP.
    pub class: Class,
    /// Procedure of waypoints, if there are any.
    pub overlay: Option<Overlay>,
    /// Whether a request to the receiver precedes the data.
    pub asks_first: bool,
    /// Whether a fetched file is deleted at its sender.
    pub takes: bool,
    /// Messages to the applications of receivers, ahead of the file.
    pub messages: Vec<Bytes>,
}

impl SendRequest {
    /// Request without options.
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
    /// Bytes sent or received.
    pub bytes: u64,
    /// Size of the file, if it is known.
    pub size: Option<u64>,
    /// Name of the file, if it is known.
    pub name: String,
    /// Reason for a wait, if any.
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
    ) -> Result<cfdp::pdu::TransactionId, cfdp::RequestError>;

    /// Event that other protocols report in place of an indication of the entity.
    fn report(&self, indication: cfdp::Indication) -> Event;

    /// Carries out another request of the entity.
    fn operate(&mut self, now: Time, operation: &mut dyn FnMut(&mut cfdp::Entity));
}

/// Streams of bytes without a length.
pub trait Streams {
    /// Begins a stream of this name on a path. With `push`, new data overwrites data that receivers
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

    /// Writes as many bytes as fit, and returns their number.
    ///
    /// # Errors
    ///
    /// The stream has ended.
    fn write(&mut self, now: Time, id: &TransferId, bytes: &[u8]) -> Result<usize, RequestError>;

    /// Sends all written data, however little.
    ///
    /// # Errors
    ///
    /// The stream has ended.
    fn flush(&mut self, now: Time, id: &TransferId) -> Result<(), RequestError>;

    /// Ends a stream after its last data is sent.
    ///
    /// # Errors
    ///
    /// The stream has ended.
    fn close(&mut self, now: Time, id: &TransferId) -> Result<(), RequestError>;

    /// Next bytes of a stream, or a gap in it; `None` if no more have arrived yet.
    fn read(&mut self, now: Time, id: &TransferId) -> Option<Piece>;
}

/// Transport of files.
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
    /// The transport refuses or does not support the request.
    fn fetch(&mut self, _now: Time, _request: &SendRequest) -> Result<TransferId, RequestError> {
        Err(RequestError::unsupported("fetching a file"))
    }

    /// Ends a transfer early. A completed transfer is unaffected.
    fn cancel(&mut self, _now: Time, _id: &TransferId) {}

    /// Requests the contents of a peer's directory.
    ///
    /// # Errors
    ///
    /// The transport refuses or does not support the request.
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
    /// The transport refuses or does not support the request.
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

    /// Number of transfers that advance by themselves, without suspended ones.
    fn under_way(&self) -> usize;

    /// Whether it accepts requests: not while it reads the records of an earlier run.
    fn is_ready(&self) -> bool {
        true
    }

    /// Segments retransmitted or sent as parity to repair losses, and its requests for repairs;
    /// `None` if it does not count them.
    fn repairs(&self) -> Option<(u64, u64)> {
        None
    }

    /// Times for which the peers' receive windows and its send buffers blocked its connections;
    /// `None` if it does not count them.
    fn buffer_limits(&self) -> Option<BufferLimits> {
        None
    }

    /// Counters of its bundle node, if it has one.
    fn bundle_metrics(&self) -> Option<BundleMetrics> {
        None
    }

    /// Datagrams with content, sent and received; `None` if it does not count them.
    fn datagrams(&self) -> Option<(u64, u64)> {
        None
    }

    /// Silence of the peers after which none needs another reply to a finished transfer; zero if all
    /// have confirmed the last one, `None` if peers never confirm it.
    fn silence(&self) -> Option<Duration> {
        None
    }

    /// Loss of segments to the receiver that lost most, and the number of segments that it was
    /// measured with.
    fn loss(&self) -> Option<(f64, f64)> {
        None
    }

    /// Starts to notify the peer of the end of this process; `true` if [`Event::Left`] follows.
    fn leave(&mut self, _now: Time, _peer: PathId) -> bool {
        false
    }

    /// Whether the layer below needs time to reply to its peer after a transfer.
    fn replies_below(&self) -> bool {
        false
    }

    /// Sets the announced free space for files, in KiB.
    fn set_free_space(&mut self, _kib: Option<u64>) {}

    /// Its CFDP entity, if it has one.
    fn cfdp(&self) -> Option<&dyn CfdpUser> {
        None
    }

    /// Mutable user operations of CFDP.
    fn cfdp_mut(&mut self) -> Option<&mut dyn CfdpUser> {
        None
    }

    /// Converts an indication of its CFDP entity to the event that other protocols report.
    fn reported(&self, event: Event) -> Event {
        let Event::Entity(indication) = event else { return event };
        self.cfdp().map_or(Event::Update, |user| user.report(*indication))
    }

    /// Its streams, if it supports them.
    fn streams(&mut self) -> Option<&mut dyn Streams> {
        None
    }
}

/// Role of a process that runs a transport over sockets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// One transfer, including a fetch.
    Client {
        /// Whether it keeps partial receptions.
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
    /// Role of the process.
    pub role: Role,
    /// Part of its rate that a transport may catch up when its driver is late.
    pub catch_up: Duration,
    /// Bytes in flight on a path without a rate.
    pub unpaced_window: u64,
    /// Milliseconds since the beginning of 2000.
    pub clock_ms: u64,
    /// Given rate of the path, in bits per second; it overrides the rate in a peer's settings.
    pub rate_bps: Option<u64>,
    /// Entity at the far end of the path, if any.
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

    /// Applies settings.
    ///
    /// # Errors
    ///
    /// A key does not exist, or a value is out of range.
    fn apply(&mut self, settings: &Settings) -> Result<(), SpecError>;

    /// All settings; secrets are left out.
    fn settings(&self) -> Settings;

    /// Applies the file at `path`.
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

    /// Checks that an engine with these settings can exist in a world of a scenario.
    ///
    /// # Errors
    ///
    /// Names the unsupported key.
    fn check_simulated(&self) -> Result<(), SpecError> {
        Ok(())
    }

    /// Checks that it can speak `protocol`.
    ///
    /// # Errors
    ///
    /// The settings contradict the protocol.
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

    /// Sets the last engine of each route, and the default next hop.
    fn set_routes(&mut self, _to: BTreeMap<u64, u64>, _otherwise: ltpt::Otherwise) {}

    /// Joins the group of a path.
    fn add_group(&mut self, _path: PathId) {}

    /// Sets the number of receivers of its group, unless `settings` do: the receivers to wait for,
    /// and the assumed size of the group.
    fn set_receivers(&mut self, _count: u32, _settings: Option<&Settings>) {}

    /// Sets the silence after which a transfer is given up, for any peer.
    fn set_inactivity(&mut self, silence: Duration);

    /// Sets the name of a received file without one.
    fn set_file_name(&mut self, _name: &str) {}

    /// Allows it to catch up at least this part of its rate when its driver is late.
    fn allow_catch_up(&mut self, _least: Duration) {}

    /// Bytes of the smallest datagram that carries a file of this name and size to an entity, if
    /// known.
    ///
    /// # Errors
    ///
    /// The settings contradict each other.
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

    /// Sets its own address and port, and its interfaces.
    fn set_own(&mut self, _place: (Ipv4Addr, u16), _interfaces: &[PathId]) {}

    /// Sets the address of the peer of a path, and the interface to it.
    fn set_peer(&mut self, _path: PathId, _remote: (Ipv4Addr, u16), _by: PathId) {}

    /// Prepares it for a process with sockets, before settings are applied.
    ///
    /// # Errors
    ///
    /// The protocol runs in the simulator only.
    fn prepare(&mut self, _process: &Process) -> Result<(), SpecError> {
        Err(SpecError::invalid("runs in the simulator only: slowlight sim and slowlight compare"))
    }

    /// Completes it after settings were applied; returns the rate of the process's path, if the
    /// settings contain one.
    ///
    /// # Errors
    ///
    /// Settings and process contradict each other.
    fn finish(&mut self, _process: &Process) -> Result<Option<u64>, SpecError> {
        Ok(None)
    }

    /// Ports from which a peer may send, besides its listening port.
    fn peer_ports(&self) -> usize {
        0
    }

    /// Stores received files without a name under a number.
    fn receive_unnamed(&mut self) {}

    /// Sends files without acknowledgements, so that each is delivered with this probability;
    /// `false` if it cannot.
    fn set_confidence(&mut self, _probability: f64) -> bool {
        false
    }

    /// Sends files again and again for this time, without acknowledgements; `false` if it cannot.
    fn set_carousel(&mut self, _time: Duration) -> bool {
        false
    }

    /// Whether files are sent without acknowledgements, by these or by the settings.
    fn is_one_way(&self) -> bool {
        false
    }

    /// Whether a file resumes if it is sent again from the same store after the process was killed,
    /// besides the protocols of which all files do ([`Adapter::resumes`]).
    fn resumes(&self) -> bool {
        false
    }

    /// Uses the loss of an earlier transfer to the same peer, measured with this number of segments.
    fn remember_loss(&mut self, _loss: (f64, f64)) {}

    /// Receives a stream instead of files; `false` if it does not support streams.
    fn receive_stream(&mut self) -> bool {
        false
    }

    /// Names of peers in its settings, if these are addresses.
    fn named_peers(&self) -> Vec<String> {
        Vec::new()
    }

    /// Applies the settings of a named peer to its path; returns its rate, if they contain one.
    fn use_named(&mut self, _name: &str, _path: PathId) -> Option<u64> {
        None
    }

    /// Whether it sends beacons.
    fn has_beacons(&self) -> bool {
        false
    }

    /// Sends beacons on one more path, at this interval if one is given, otherwise if it has
    /// beacons.
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

    /// Mutable configuration of CFDP.
    fn cfdp_mut(&mut self) -> Option<&mut cfdp::Config> {
        None
    }
}
