//! Facts about the layers of protocols.

use ltp::Red;
use models::programs::Tool;

use super::{Adapter, Spool};
use crate::dissect::Dissector;
use crate::records::ContentKind;

/// Service that a layer offers to the layer above it, or needs from the layer below.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Service {
    /// Datagrams of UDP.
    Datagrams,
    /// Packets of IP.
    Packets,
    /// Streams of bytes.
    Streams,
    /// Blocks, retransmitted until they arrive or not at all.
    Blocks,
    /// Bundles from one node to its neighbour.
    Convergence,
    /// Bundles from any node to any other.
    Bundles,
    /// Files.
    Files,
}

impl Service {
    /// Name in texts.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Datagrams => "datagrams",
            Self::Packets => "packets",
            Self::Streams => "streams",
            Self::Blocks => "blocks",
            Self::Convergence => "a convergence layer",
            Self::Bundles => "bundles",
            Self::Files => "files",
        }
    }

    /// Whether every host has it, so that no layer below is needed.
    #[must_use]
    pub fn is_of_hosts(self) -> bool {
        matches!(self, Self::Datagrams | Self::Packets)
    }
}

/// Property of a layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Feature {
    /// An entity of CFDP, with its user operations.
    Entity,
    /// The MIB, instead of the name, sets the transmission class.
    ClassOfMib,
    /// Peers are identified by numbers.
    PeerNumbers,
    /// One transmission to a group reaches all its members.
    Multicast,
    /// Groups, streams, and messages to applications.
    Groups,
    /// Peers fetch, list and delete files, and send beacons.
    Directories,
    /// Other engines relay its blocks, by routes.
    Relays,
    /// At the bottom of a stack: hosts on the path store and forward its data.
    Forwards,
    /// Anywhere in a stack: hosts on the path store and forward its data.
    Routes,
    /// TCP, which only the simulator has.
    Tcp,
    /// On bundle nodes, which no command runs.
    Nodes,
    /// The receiver can use the bytes of a file in order while they arrive.
    InOrder,
    /// Parity that no receiver requested.
    Coded,
    /// SCPS-FP, with any of its commands.
    Scps,
    /// Keystrokes, and no file.
    Typed,
    /// Congestion control, with any profile.
    Controlled,
    /// Receivers recognise it by the first datagrams of a sender.
    Recognised,
}

impl Feature {
    /// Whether only users of the layer itself have it, so that a layer above hides it.
    #[must_use]
    pub fn is_of_top(self) -> bool {
        matches!(self, Self::Multicast | Self::Groups | Self::Directories | Self::InOrder)
    }
}

/// Layer below bundles.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Convergence {
    /// TCPCL, version 4.
    Tcpcl4,
    /// TCPCL, version 3.
    Tcpcl3,
    /// MTCP.
    Mtcp,
    /// STCP.
    Stcp,
    /// UDPCL.
    Udp,
    /// LTP.
    Ltp,
    /// Saratoga.
    Saratoga,
    /// NORM.
    Norm,
}

/// Facts about one layer.
pub struct Layer {
    /// Name within the names of stacks.
    pub name: &'static str,
    /// Name of the group in which lists have the protocols with this layer on top.
    pub family: &'static str,
    /// Services of which it needs one.
    pub needs: &'static [Service],
    /// Services that it offers.
    pub offers: &'static [Service],
    /// Properties of the layer.
    pub features: &'static [Feature],
    /// Part of its data that is retransmitted until it arrives.
    pub red: Red,
    /// Content of a transfer, with this layer on top.
    pub carries: ContentKind,
    /// Whether the receiver requests the file, with this layer on top.
    pub is_fetched: bool,
    /// Modelled program.
    pub program: Option<Tool>,
    /// Command of that program, for people.
    pub command: Option<&'static str>,
    /// Name in comparisons with others, for programs that most people have.
    pub familiar: Option<&'static str>,
    /// Port of its servers in a scenario.
    pub port: Option<u16>,
    /// Reader of its packets.
    pub dissector: Option<&'static Dissector>,
    /// Layer below bundles that this one is.
    pub convergence: Option<Convergence>,
    /// Name of that layer in the configuration of a node.
    pub node_layer: Option<&'static str>,
    /// Working files that it leaves in a node's store after a crash.
    pub node_spools: &'static [Spool],
    /// Transport of a stack with this layer on top.
    pub adapter: Option<&'static dyn Adapter>,
    /// Transport of a stack with another layer above this one.
    pub adapter_above: Option<&'static dyn Adapter>,
    /// Profiles of the layer.
    pub profiles: fn() -> Vec<&'static str>,
    /// Profiles with congestion control.
    pub controlled_profiles: &'static [&'static str],
    /// Profiles with a code over whole files.
    pub coded_profiles: &'static [&'static str],
    /// Profiles that advice tries, `None` for the default, and on shared paths in addition.
    pub tried: (&'static [Option<&'static str>], &'static [&'static str]),
}

impl std::fmt::Debug for Layer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name)
    }
}

impl Layer {
    /// A layer that retransmits lost data, without other properties.
    #[must_use]
    pub const fn new(
        name: &'static str,
        needs: &'static [Service],
        offers: &'static [Service],
    ) -> Self {
        Self {
            name,
            family: name,
            needs,
            offers,
            features: &[],
            red: Red::All,
            carries: ContentKind::File,
            is_fetched: false,
            program: None,
            command: None,
            familiar: None,
            port: None,
            dissector: None,
            convergence: None,
            node_layer: None,
            node_spools: &[],
            adapter: None,
            adapter_above: None,
            profiles: Vec::new,
            controlled_profiles: &[],
            coded_profiles: &[],
            tried: (&[None], &[]),
        }
    }

    /// Whether it has a property.
    #[must_use]
    pub fn has(&self, feature: Feature) -> bool {
        self.features.contains(&feature)
    }

    /// Whether it fits above another.
    #[must_use]
    pub fn fits(&self, below: &Self) -> bool {
        self.needs.iter().any(|service| below.offers.contains(service))
    }
}
