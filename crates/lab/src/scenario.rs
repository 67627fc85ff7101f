//! One world as a user writes it: nodes, links, transfers.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use transport::files;
use transport::mib::Class;
use transport::overlay::Overlay;
use transport::protocol::{ContentKind, Protocol};
use transport::quantity::{Probability, Rate, Size, Span};
use transport::records::{Files, Record};
use transport::settings::{PepSettings, Settings};
use transport::text::SpecError;

use crate::adapter;
use crate::groups::{Group, Receivers};
use crate::link_spec::LinkSpec;

/// One world.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scenario {
    /// Where all randomness comes from.
    pub seed: u64,
    /// What the scenario is about.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub about: String,
    /// How far the run may go.
    #[serde(default)]
    pub limits: Limits,
    /// What is recorded.
    #[serde(default)]
    pub capture: Capture,
    /// The nodes, by name.
    #[serde(default)]
    pub nodes: BTreeMap<String, Node>,
    /// Nodes that go by one name, which stands for each of them in `links` and `nodes` and for all
    /// of them in `transfers`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub groups: BTreeMap<String, Group>,
    /// The links, one table a direction; from or to a group, one for each member.
    pub links: Vec<LinkSpec>,
    /// The transfers.
    pub transfers: Vec<Transfer>,
}

/// How far a run may go.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Limits {
    /// Virtual time after which a run ends; 10 years unless said otherwise.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub time: Option<Span>,
    /// Events after which a run ends; a hundred million and ten a byte of the files unless said
    /// otherwise, many times what any transfer needs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub events: Option<u64>,
    /// In the emulator, how late 99 of 100 packets of each link may be before its results are marked
    /// as not to be trusted; 1 ms unless said otherwise.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub late: Option<Span>,
    /// In the emulator, how late every packet may be before that; 10 ms unless said otherwise.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub late_most: Option<Span>,
}

/// What is recorded.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Capture {
    /// Whether a pcapng is written.
    #[serde(default)]
    pub pcap: bool,
    /// The node that it is taken at, with one interface a neighbour; the first transfer's receiver
    /// if left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at: Option<String>,
    /// Whether every packet of every link is listed.
    #[serde(default)]
    pub trace: bool,
}

/// A host or relay.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Node {
    /// Its address; 10.0.0.1 and on, in order of the names, if left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub address: Option<Ipv4Addr>,
    /// Its UDP port, 2501 and on if left out; of FTP, its server's TCP port, 21 if left out; of a bundle node 4556.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub port: Option<u16>,
    /// Its CFDP entity number; 1 and on if left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub entity: Option<u64>,
    /// The protocol it speaks; that of its transfers if left out. A node without any is a relay.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub protocol: Option<Protocol>,
    /// What differs from the protocol's profile, in the keys of the protocol.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mib: Option<Settings>,
    /// Silence after which it gives a transfer up, in place of what its protocol or `mib` says.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub inactivity: Option<Span>,
    /// It splits the TCP connections that cross it, and is what is said here; only in the simulator.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pep: Option<PepSettings>,
    /// How its store misbehaves.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub store: Option<StoreFaults>,
    /// When it crashes and comes back.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub crashes: Vec<Crash>,
}

/// How a store misbehaves.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct StoreFaults {
    /// Time each effect takes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub latency: Option<Span>,
    /// How fast it reads and writes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate: Option<Rate>,
    /// Which writes fail, the first being 1.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub fail_writes: Vec<u64>,
    /// The probability of each write to fail.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fail_write_probability: Option<Probability>,
    /// What all files together may hold.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub capacity: Option<Size>,
    /// The probability of a write that was not synced to be lost in a crash.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lose_unsynced: Option<Probability>,
}

/// The end of a process, and perhaps its next life.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Crash {
    /// When it crashes.
    pub at: Span,
    /// When it is started again; never if left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub restart: Option<Span>,
}

/// A file that shall cross.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Transfer {
    /// The node that sends.
    pub from: String,
    /// The node that receives, the group, or a list of nodes. A protocol that knows groups sends
    /// once to all of them; by any other the file goes to each by itself, all at once, and each gets
    /// an equal share of the sender's rate.
    pub to: Receivers,
    /// The group that its receivers are; made up, where there are several of them, if left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
    /// The waypoints that store the file and hand it on, in order. A waypoint forwards no IP
    /// packets.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub via: Vec<String>,
    /// How waypoints hand the file on; by the store-and-forward overlay if left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub overlay: Option<Overlay>,
    /// The protocol; `cfdp` if left out, whose class is that of the sender's `mib`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub protocol: Option<Protocol>,
    /// A program of others that carries the file in place of a protocol, in the emulator: the name of
    /// an [adapter], or the path of one, which ends in `.toml`, relative to the
    /// scenario.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool: Option<String>,
    /// The file to send, relative to the scenario.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file: Option<PathBuf>,
    /// Its size, where the content is made up; 10 MB if left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub size: Option<Size>,
    /// What a made-up file holds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub content: Option<Content>,
    /// Which bytes of the file are read (`scps-fp-read`), or differ from what the receiver has at first
    /// (`scps-fp-update`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub records: Option<Vec<Record>>,
    /// The name at the receiver.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// When it is asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub start: Option<Span>,
}

impl Transfer {
    /// Whether what is sent once is for all of its receivers.
    #[must_use]
    pub fn is_multicast(&self) -> bool {
        let knows_groups = |protocol: &Protocol| protocol.kind.is_multicast();
        self.group.is_some() && self.protocol.as_ref().is_some_and(knows_groups)
    }

    /// What crosses.
    pub(crate) fn carries(&self) -> ContentKind {
        self.protocol.as_ref().map_or(ContentKind::File, |protocol| protocol.kind.carries())
    }

    /// What there is of its file before and after.
    pub(crate) fn files(&self, content: &Bytes) -> Files {
        let name = self.name.as_deref().unwrap_or_default();
        Files::of(self.carries(), name, content, self.records.as_deref().unwrap_or_default())
    }

    /// What carries it: a protocol with its profile, or a tool.
    #[must_use]
    pub fn carrier(&self) -> String {
        let protocol = || self.protocol.as_ref().map(ToString::to_string);
        self.tool.clone().or_else(protocol).unwrap_or_default()
    }

    /// The file's size; 0 for a file that cannot be looked at.
    pub(crate) fn bytes(&self) -> u64 {
        match &self.file {
            Some(path) => files::length(path),
            None => self.size.unwrap_or(SIZE).bytes(),
        }
    }
}

/// What a made-up file holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Content {
    /// Pseudo-random bytes, from the seed.
    #[default]
    Random,
    /// Zeros.
    Zeros,
}

/// A made-up file's size, unless said otherwise.
pub const SIZE: Size = Size(10_000_000);

impl Scenario {
    /// The scenario with the files that it names taken as files of `folder`.
    #[must_use]
    pub fn placed(mut self, folder: &Path) -> Self {
        self.place(folder);
        self
    }

    pub(crate) fn place(&mut self, folder: &Path) {
        for settings in self.nodes.values_mut().filter_map(|node| node.mib.as_mut()) {
            settings.place(folder);
        }
        for file in self.transfers.iter_mut().filter_map(|t| t.file.as_mut()) {
            *file = folder.join(&file);
        }
        for tool in self.transfers.iter_mut().filter_map(|t| t.tool.as_mut()) {
            if adapter::is_path(tool) {
                *tool = folder.join(&*tool).to_string_lossy().into_owned();
            }
        }
    }

    /// The transmission class of a transfer to one of its receivers, in CFDP's words: that of its
    /// protocol, which for plain `cfdp` is what the sender's MIB says of the receiver.
    #[must_use]
    pub fn class(&self, transfer: &Transfer, receiver: &str) -> Class {
        let kind = transfer.protocol.as_ref().unwrap_or(&Protocol::default()).kind;
        if !kind.leaves_class_to_mib() {
            return kind.class();
        }
        let mib = self.nodes.get(&transfer.from).and_then(|node| node.mib.as_ref());
        let receiver = self.nodes.get(receiver).and_then(|node| node.entity);
        let class = mib.and_then(|mib| kind.adapter().class(mib, receiver));
        class.unwrap_or_else(|| kind.class())
    }

    /// Whether a transfer repeats what is lost, whoever lost it, and its sender hears of its end.
    #[must_use]
    pub fn is_reliable(&self, transfer: &Transfer) -> bool {
        let by_tool = transfer.tool.is_some();
        by_tool
            || transfer.to.names().all(|receiver| match self.class(transfer, receiver) {
                Class::Acknowledged => true,
                Class::Unacknowledged => false,
            })
    }

    /// The scenario as TOML.
    ///
    /// # Errors
    ///
    /// Never for a scenario that was read.
    pub fn to_toml(&self) -> Result<String, SpecError> {
        toml::to_string(self).map_err(|error| SpecError::invalid(error.to_string()))
    }
}
