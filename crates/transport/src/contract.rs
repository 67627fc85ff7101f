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
//! the [`Process`] (it refuses models of the simulator), `apply_file`,
//! [`Configuration::set_entity`] if a number was given, [`Configuration::finish`], which returns
//! the rate of the path, then paths, groups and routes. [`Transport::is_ready`] is `false` until
//! the records of an earlier process were read.
//!
//! [`Kind`] is a stack of [`Layer`]s, which have the properties of the protocol as data:
//! [`Kind::has`] a [`Feature`], and the fields of [`Kind::top`]. No user matches on a protocol.
//!
//! **Capabilities.** [`Transport`] and [`Configuration`] have the methods that most protocols
//! need. Operations of some protocols are separate traits, which a transport returns if it
//! supports them:
//!
//! | Capability | [`Transport`] | [`Configuration`] |
//! |---|---|---|
//! | Entity of CFDP | [`CfdpUser`] | [`cfdp::Config`] |
//! | Files of peers: fetch, list, delete | [`Directories`] | |
//! | Groups of receivers | [`Groups`] | [`Membership`] |
//! | Streams | [`Streams`] | [`Membership::receive_stream`] |
//! | Code over whole files | | [`FileCode`] |
//! | Blocks for other engines | | [`ltpt::Routing`] |
//! | Peers with settings of their own | | [`NamedPeers`] |
//! | Beacons | | [`Beacons`] |
//! | IP interfaces as paths | | [`Interfaces`] |

mod adapter;
mod capabilities;
mod kind;
mod layer;
mod metrics;
mod protocol;

use std::fmt;
use std::path::Path;
use std::time::Duration;

use bytes::Bytes;
use engine::{Engine, FileName, PathId, Rng, Time};
use ltp::ltpt;
use thiserror::Error;

pub use self::adapter::{Adapter, Spool};
pub use self::capabilities::{
    Beacons, CfdpUser, Directories, FileCode, Groups, Interfaces, Membership, NamedPeers, Streams,
};
pub use self::kind::Kind;
pub(crate) use self::kind::Stack;
pub use self::layer::{Convergence, Feature, Layer, Service};
pub use self::metrics::{BufferLimits, BundleMetrics, Counters};
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
    /// Session number of all processes that send this file, where the protocol is Saratoga.
    pub session: Option<u32>,
    /// Whether an earlier one of them may have sent a part of it.
    pub resumes: bool,
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
            session: None,
            resumes: false,
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
    /// Bytes that the receiver has confirmed, where a sender learns that before the end.
    pub confirmed: Option<u64>,
    /// Size of the file, if it is known.
    pub size: Option<u64>,
    /// Name of the file, if it is known.
    pub name: String,
    /// Reason for a wait, if any.
    pub wait: Option<&'static str>,
}

/// Transport of files.
pub trait Transport: Engine<Indication = Event> + fmt::Debug {
    /// Begins a transfer.
    ///
    /// # Errors
    ///
    /// The transport refuses.
    fn send(&mut self, now: Time, request: &SendRequest) -> Result<TransferId, RequestError>;

    /// Ends a transfer early. A completed transfer is unaffected.
    fn cancel(&mut self, _now: Time, _id: &TransferId) {}

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

    /// Counters, as far as it counts.
    fn counters(&self) -> Counters {
        Counters::default()
    }

    /// Silence of the peers after which none needs another reply to a finished transfer; zero if
    /// all have confirmed the last one, `None` if peers never confirm it.
    fn silence(&self) -> Option<Duration> {
        None
    }

    /// Its CFDP entity.
    fn cfdp(&self) -> Option<&dyn CfdpUser> {
        None
    }

    /// Its CFDP entity, for requests.
    fn cfdp_mut(&mut self) -> Option<&mut dyn CfdpUser> {
        None
    }

    /// Directories of its peers.
    fn directories(&mut self) -> Option<&mut dyn Directories> {
        None
    }

    /// Groups to which it sends.
    fn groups(&mut self) -> Option<&mut dyn Groups> {
        None
    }

    /// Streams.
    fn streams(&mut self) -> Option<&mut dyn Streams> {
        None
    }
}

impl dyn Transport + '_ {
    /// Converts an indication of its CFDP entity to the event that other protocols report.
    #[must_use]
    pub fn reported(&self, event: Event) -> Event {
        let Event::Entity(indication) = event else { return event };
        self.cfdp().map_or(Event::Update, |user| user.report(*indication))
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
    /// Interval at which a sender requests a reply while it sends.
    pub reply_interval: Duration,
    /// Whether the path leads to a group.
    pub is_group: bool,
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

    /// Sets the silence after which a transfer is given up, for any peer.
    fn set_inactivity(&mut self, silence: Duration);

    /// Stores received files without a name as `name`, or under a number if none is given.
    fn store_unnamed(&mut self, _name: Option<&str>) {}

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

    /// Configuration of its CFDP entity.
    fn cfdp(&mut self) -> Option<&mut cfdp::Config> {
        None
    }

    /// Routes of blocks for other engines.
    fn relaying(&mut self) -> Option<&mut ltpt::Routing> {
        None
    }

    /// IP interfaces, if these are its paths.
    fn interfaces(&mut self) -> Option<&mut dyn Interfaces> {
        None
    }

    /// Membership of groups.
    fn membership(&mut self) -> Option<&mut dyn Membership> {
        None
    }

    /// Whether a file resumes if it is sent again from the same store after its process was
    /// killed.
    fn resumes(&self) -> bool {
        false
    }

    /// Code over whole files, if its settings have one.
    fn file_code(&mut self) -> Option<&mut dyn FileCode> {
        None
    }

    /// Peers that its settings name.
    fn named_peers(&mut self) -> Option<&mut dyn NamedPeers> {
        None
    }

    /// Beacons.
    fn beacons(&mut self) -> Option<&mut dyn Beacons> {
        None
    }
}

impl dyn Configuration + '_ {
    /// Applies the file at `path`.
    ///
    /// # Errors
    ///
    /// Names the place in the file, and the remedy.
    pub fn apply_file(&mut self, path: &Path) -> Result<(), SpecError> {
        let text = text::read_text(path)?;
        let origin = path.display().to_string();
        let mut settings = Settings::parse(&text, &origin, &[], self.adapter())?;
        settings.place(path.parent().unwrap_or(Path::new("")));
        self.apply(&settings).map_err(|error| error.within(path))
    }
}
