//! Scenario of one world: nodes, links, transfers.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use transport::contract::Feature;
use transport::files;
use transport::mib::Class;
use transport::overlay::Overlay;
use transport::pep::PepSettings;
use transport::protocol::{ContentKind, Protocol};
use transport::quantity::{Probability, Rate, Size, Span};
use transport::records::{Files, Record};
use transport::settings::Settings;
use transport::text::SpecError;

use crate::adapter;
use crate::groups::{Group, Receivers};
use crate::link_spec::LinkSpec;

/// A world.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scenario {
    /// Seed of all randomness.
    pub seed: u64,
    /// Description.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub about: String,
    /// Limits of the run.
    #[serde(default)]
    pub limits: Limits,
    /// Recordings.
    #[serde(default)]
    pub capture: Capture,
    /// Nodes, by name.
    #[serde(default)]
    pub nodes: BTreeMap<String, Node>,
    /// Groups of nodes. A group's name denotes each member in `links` and `nodes`, and all of them
    /// in `transfers`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub groups: BTreeMap<String, Group>,
    /// Links, one table for each direction; from or to a group, one for each member.
    pub links: Vec<LinkSpec>,
    /// Transfers.
    #[serde(default)]
    pub transfers: Vec<Transfer>,
}

/// Limits of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Limits {
    /// Virtual time after which a run ends; default: 10 years.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub time: Option<Span>,
    /// Events after which a run ends; default: a hundred million plus ten per byte of the files,
    /// many times what any transfer needs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub events: Option<u64>,
    /// In the emulator, lateness that 99 % of each link's packets must not exceed for valid
    /// results; default: 1 ms.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub late: Option<Span>,
    /// In the emulator, lateness that no packet must exceed for valid results; default: 10 ms.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub late_most: Option<Span>,
}

/// Recordings of a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Capture {
    /// Whether a pcapng is written.
    #[serde(default)]
    pub pcap: bool,
    /// Node to capture at, with one interface per neighbour; default: the first transfer's
    /// receiver.
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
    /// IPv4 address; default: 10.0.0.1 and on, in order of the names.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub address: Option<Ipv4Addr>,
    /// UDP port; default: 2501 and on. For FTP the server's TCP port, default 21; for a bundle node
    /// default 4556.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub port: Option<u16>,
    /// CFDP entity number; default: 1 and on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub entity: Option<u64>,
    /// Protocol; default: the protocol of its transfers. A node without one is a relay.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub protocol: Option<Protocol>,
    /// Settings that differ from the protocol's profile, in the keys of the protocol.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mib: Option<Settings>,
    /// Inactivity timeout, in place of the one in its protocol or `mib`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub inactivity: Option<Span>,
    /// Settings of a gateway that splits TCP connections; only in the simulator.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pep: Option<PepSettings>,
    /// Faults of its store.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub store: Option<StoreFaults>,
    /// Crashes and restarts.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub crashes: Vec<Crash>,
}

/// Faults of a store.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct StoreFaults {
    /// Latency of each effect.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub latency: Option<Span>,
    /// Rate of reading and writing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate: Option<Rate>,
    /// Numbers of the writes that fail, from 1.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub fail_writes: Vec<u64>,
    /// Probability of each write to fail.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fail_write_probability: Option<Probability>,
    /// Capacity for all files together.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub capacity: Option<Size>,
    /// Probability of an unsynced write to be lost in a crash.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lose_unsynced: Option<Probability>,
}

/// A crash of a process, and its restart.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Crash {
    /// Time of the crash.
    pub at: Span,
    /// Time of the restart; default: never.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub restart: Option<Span>,
}

/// A file transfer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Transfer {
    /// Sending node.
    pub from: String,
    /// Receiving node, group, or list of nodes. A multicast protocol sends once to all of them. Any
    /// other sends the file to each separately, all at once, each with an equal share of the
    /// sender's rate.
    pub to: Receivers,
    /// Group of its receivers; default: generated if there are several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
    /// Waypoints that store and forward the file, in order. A waypoint forwards no IP packets.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub via: Vec<String>,
    /// Forwarding method of waypoints; default: the store-and-forward overlay.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub overlay: Option<Overlay>,
    /// Protocol; default: `cfdp`, whose class is set by the sender's `mib`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub protocol: Option<Protocol>,
    /// External program that transfers the file in place of a protocol, in the emulator: the name
    /// of an [adapter], or its path, which ends in `.toml`, relative to the scenario.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool: Option<String>,
    /// The file to send, relative to the scenario.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file: Option<PathBuf>,
    /// Size of generated content; default: 10 MB.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub size: Option<Size>,
    /// Type of generated content.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub content: Option<Content>,
    /// Byte ranges of the file that are read (`scps-fp-read`), or differ from the receiver's
    /// initial copy (`scps-fp-update`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub records: Option<Vec<Record>>,
    /// Name at the receiver.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Time of the request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub start: Option<Span>,
}

impl Transfer {
    /// Whether one transmission is for all of its receivers.
    #[must_use]
    pub fn is_multicast(&self) -> bool {
        let knows_groups = |protocol: &Protocol| protocol.kind.has(Feature::Multicast);
        self.group.is_some() && self.protocol.as_ref().is_some_and(knows_groups)
    }

    /// Type of the transferred content.
    pub(crate) fn carries(&self) -> ContentKind {
        self.protocol.as_ref().map_or(ContentKind::File, |protocol| protocol.kind.top().carries)
    }

    /// States of its file before and after.
    pub(crate) fn files(&self, content: &Bytes) -> Files {
        let name = self.name.as_deref().unwrap_or_default();
        Files::for_content(
            self.carries(),
            name,
            content,
            self.records.as_deref().unwrap_or_default(),
        )
    }

    /// Protocol with its profile, or tool.
    #[must_use]
    pub fn carrier(&self) -> String {
        let protocol = || self.protocol.as_ref().map(ToString::to_string);
        self.tool.clone().or_else(protocol).unwrap_or_default()
    }

    /// Size of the file; 0 if it cannot be read.
    pub(crate) fn bytes(&self) -> u64 {
        match &self.file {
            Some(path) => files::length(path),
            None => self.size.unwrap_or(SIZE).bytes(),
        }
    }
}

/// Type of generated content.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Content {
    /// Pseudo-random bytes, from the seed.
    #[default]
    Random,
    /// Zeros.
    Zeros,
}

/// Default size of a generated file.
pub const SIZE: Size = Size(10_000_000);

impl Scenario {
    /// Returns the scenario with file paths relative to `folder`.
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

    /// Returns the CFDP transmission class of a transfer to one receiver: the class of its
    /// protocol; for plain `cfdp`, the class in the sender's MIB for the receiver.
    #[must_use]
    pub fn class(&self, transfer: &Transfer, receiver: &str) -> Class {
        let kind = transfer.protocol.as_ref().unwrap_or(&Protocol::default()).kind;
        if !kind.has(Feature::ClassOfMib) {
            return kind.class();
        }
        let mib = self.nodes.get(&transfer.from).and_then(|node| node.mib.as_ref());
        let receiver = self.nodes.get(receiver).and_then(|node| node.entity);
        let class = mib.and_then(|mib| kind.adapter().class(mib, receiver));
        class.unwrap_or_else(|| kind.class())
    }

    /// Whether a transfer repairs all losses, and informs its sender of the end.
    #[must_use]
    pub fn is_reliable(&self, transfer: &Transfer) -> bool {
        let by_tool = transfer.tool.is_some();
        by_tool
            || transfer.to.names().all(|receiver| match self.class(transfer, receiver) {
                Class::Acknowledged => true,
                Class::Unacknowledged => false,
            })
    }

    /// Returns the scenario as TOML.
    ///
    /// # Errors
    ///
    /// Never for a scenario that was read.
    pub fn to_toml(&self) -> Result<String, SpecError> {
        toml::to_string(self).map_err(|error| SpecError::invalid(error.to_string()))
    }
}
