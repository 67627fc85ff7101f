//! The table of layers: a row each.

use proto::ltp::Red;
use proto::programs::{Tool, Version};

use crate::adapter::bundles::config::{self as nodes, Convergence};
use crate::adapter::over_tcp::config::OverTcpConfig;
use crate::adapter::{Adapter, Spool, bundles, cfdp, cfdp_over_ltp, ltp, norm, over_tcp, saratoga};
use crate::dissect::{self, Dissector};
use crate::records::ContentKind;

/// Service that a layer offers to the one above it, or needs of the one below.
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

    /// Whether every host has it, so that nothing need be below.
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
    /// The MIB, and not the name, sets the transmission class.
    ClassOfMib,
    /// Peers are known by numbers.
    PeerNumbers,
    /// Sends once to a group what is for all its members.
    Multicast,
    /// Groups, streams, and messages to applications.
    Groups,
    /// Peers fetch, list and delete files, and announce themselves.
    Directories,
    /// Blocks pass over other engines, by routes.
    Relays,
    /// At the bottom of a stack: hosts on the way store and forward what it sends.
    Forwards,
    /// Anywhere in a stack: hosts on the way store and forward what it sends.
    Routes,
    /// In the simulator only, as a model.
    Simulated,
    /// On bundle nodes, which are no command's.
    Nodes,
    /// The receiver can use the bytes of a file in their order while they arrive.
    InOrder,
    /// Parity that no receiver requested.
    Coded,
    /// SCPS-FP, whichever of its commands.
    Scps,
    /// Keys, and no file.
    Typed,
    /// Congestion control, whatever the profile.
    Controlled,
}

/// Facts about one layer.
pub struct Layer {
    /// Name in the names of stacks.
    pub name: &'static str,
    /// Services of which it needs one.
    pub needs: &'static [Service],
    /// Services that it offers.
    pub offers: &'static [Service],
    /// Its properties.
    pub features: &'static [Feature],
    /// Part of what it sends that is retransmitted until it arrives.
    pub red: Red,
    /// Content of a transfer, with this layer on top.
    pub carries: ContentKind,
    /// Whether the receiver requests the file, with this layer on top.
    pub is_fetched: bool,
    /// Program that it is a model of.
    pub program: Option<Tool>,
    /// Command of that program, for people.
    pub command: Option<&'static str>,
    /// Name in texts that compare others with it, because most people have it.
    pub familiar: Option<&'static str>,
    /// Port of its servers in a scenario.
    pub port: Option<u16>,
    /// Reader of its packets.
    pub dissector: Option<&'static Dissector>,
    /// Layer below bundles that it is.
    pub convergence: Option<Convergence>,
    /// Name of that layer in the configuration of a node.
    pub node_layer: Option<&'static str>,
    /// Working files that it leaves in a node's store after a crash.
    pub node_spools: &'static [Spool],
    /// Transport of a stack with this layer on top.
    pub adapter: Option<&'static dyn Adapter>,
    /// Transport of a stack with another layer above this one.
    pub adapter_above: Option<&'static dyn Adapter>,
    /// Its profiles.
    pub profiles: fn() -> Vec<&'static str>,
    /// Profile with congestion control.
    pub controlled_profile: Option<&'static str>,
    /// Profiles that advice tries in place of the default, and on shared paths besides it.
    pub tried: (&'static [&'static str], &'static [&'static str]),
}

impl std::fmt::Debug for Layer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name)
    }
}

impl Layer {
    /// Whether it has a property.
    #[must_use]
    pub fn has(&self, feature: Feature) -> bool {
        self.features.contains(&feature)
    }

    /// Whether it can stand above another.
    #[must_use]
    pub fn fits(&self, below: &Self) -> bool {
        self.needs.iter().any(|service| below.offers.contains(service))
    }
}

fn none() -> Vec<&'static str> {
    Vec::new()
}

const fn layer(name: &'static str, needs: &'static [Service], offers: &'static [Service]) -> Layer {
    Layer {
        name,
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
        profiles: none,
        controlled_profile: None,
        tried: (&[], &[]),
    }
}

const fn cfdp_layer(
    name: &'static str,
    needs: &'static [Service],
    features: &'static [Feature],
) -> Layer {
    Layer {
        features,
        dissector: Some(&dissect::cfdp::DISSECTOR),
        adapter: Some(&cfdp::Cfdp),
        profiles: || cfdp::CFDP_PROFILES.to_vec(),
        ..layer(name, needs, &[Service::Files])
    }
}

const fn ltp_layer(name: &'static str, offers: &'static [Service], red: Red) -> Layer {
    Layer {
        features: &[Feature::PeerNumbers],
        red,
        dissector: Some(&dissect::ltp::DISSECTOR),
        convergence: Some(Convergence::Ltp),
        node_layer: Some("ltpcl"),
        // Blocks become payloads under the names that they have, so none is left.
        adapter: Some(&ltp::Ltp),
        adapter_above: Some(&cfdp_over_ltp::CfdpOverLtp),
        profiles: || ltp::LTP_PROFILES.to_vec(),
        ..layer(name, &[Service::Datagrams], offers)
    }
}

const fn saratoga_layer(name: &'static str, offers: &'static [Service]) -> Layer {
    Layer {
        features: &[Feature::Directories],
        dissector: Some(&dissect::saratoga::DISSECTOR),
        convergence: Some(Convergence::Saratoga),
        node_layer: Some("saratoga"),
        node_spools: saratoga::SARATOGA_SPOOLS,
        adapter: Some(&saratoga::Saratoga),
        profiles: || saratoga::SARATOGA_PROFILES.to_vec(),
        controlled_profile: Some("tfrc"),
        ..layer(name, &[Service::Datagrams], offers)
    }
}

const fn norm_layer(name: &'static str, features: &'static [Feature]) -> Layer {
    Layer {
        features,
        dissector: Some(&dissect::norm::DISSECTOR),
        convergence: Some(Convergence::Norm),
        node_layer: Some("norm"),
        node_spools: norm::NORM_SPOOLS,
        adapter: Some(&norm::Norm),
        profiles: || norm::NORM_PROFILES.to_vec(),
        controlled_profile: Some("cc"),
        ..layer(name, &[Service::Datagrams], &[Service::Files, Service::Convergence])
    }
}

/// A protocol of files over TCP, which has the profile.
const fn over_streams(name: &'static str, features: &'static [Feature], port: u16) -> Layer {
    Layer {
        features,
        port: Some(port),
        adapter: Some(&over_tcp::OverTcp),
        ..layer(name, &[Service::Streams], &[Service::Files])
    }
}

const SCPS: &[Feature] = &[Feature::Scps, Feature::InOrder];

/// Program of the reference implementation, beside a server of FTP.
const SCPS_PORT: u16 = 2121;

const fn program(name: &'static str, tool: Tool, port: u16) -> Layer {
    Layer { program: Some(tool), ..over_streams(name, &[Feature::InOrder], port) }
}

/// A program over OpenSSH, whose releases are profiles.
const fn over_ssh(name: &'static str, tool: Tool, command: &'static str) -> Layer {
    let profiles = || Version::ALL.into_iter().map(Version::name).collect();
    Layer { profiles, command: Some(command), ..program(name, tool, 22) }
}

const fn convergence(
    name: &'static str,
    below: &'static [Service],
    convergence: Convergence,
    node_layer: &'static str,
) -> Layer {
    Layer {
        convergence: Some(convergence),
        node_layer: Some(node_layer),
        ..layer(name, below, &[Service::Convergence])
    }
}

/// Every layer.
pub const LAYERS: &[Layer] = &[
    cfdp_layer(
        "cfdp",
        &[Service::Datagrams, Service::Blocks, Service::Bundles],
        &[Feature::Entity, Feature::ClassOfMib, Feature::PeerNumbers, Feature::Forwards],
    ),
    Layer {
        red: Red::None,
        ..cfdp_layer(
            "cfdp-1",
            &[Service::Datagrams],
            &[Feature::Entity, Feature::PeerNumbers, Feature::Forwards],
        )
    },
    ltp_layer("ltp", &[Service::Files, Service::Blocks, Service::Convergence], Red::All),
    ltp_layer("ltp-green", &[Service::Files, Service::Blocks, Service::Convergence], Red::None),
    ltp_layer("ltp-1k-red", &[Service::Files, Service::Convergence], Red::Prefix(1000)),
    Layer {
        features: &[Feature::PeerNumbers, Feature::Relays, Feature::Forwards],
        ..ltp_layer("ltp-t", &[Service::Files], Red::All)
    },
    Layer {
        tried: (&[], &["tfrc"]),
        ..saratoga_layer("saratoga", &[Service::Files, Service::Convergence])
    },
    Layer { is_fetched: true, ..saratoga_layer("saratoga-get", &[Service::Files]) },
    Layer {
        red: Red::None,
        features: &[Feature::Directories, Feature::Multicast],
        ..saratoga_layer("saratoga-blind", &[Service::Files])
    },
    Layer {
        tried: (&[], &["cc"]),
        ..norm_layer("norm", &[Feature::Multicast, Feature::Groups, Feature::InOrder])
    },
    norm_layer(
        "norm-fec",
        &[Feature::Multicast, Feature::Groups, Feature::InOrder, Feature::Coded],
    ),
    Layer {
        familiar: Some("FTP"),
        tried: (&["cubic", "bbr"], &[]),
        ..over_streams("ftp", &[Feature::InOrder], 21)
    },
    Layer { is_fetched: true, ..over_streams("ftp-get", &[Feature::InOrder], 21) },
    over_streams("scps-fp", SCPS, SCPS_PORT),
    Layer { is_fetched: true, ..over_streams("scps-fp-get", SCPS, SCPS_PORT) },
    Layer {
        is_fetched: true,
        carries: ContentKind::Records,
        ..over_streams("scps-fp-read", SCPS, SCPS_PORT)
    },
    Layer { carries: ContentKind::Changes, ..over_streams("scps-fp-update", SCPS, SCPS_PORT) },
    Layer { carries: ContentKind::Copy, ..over_streams("scps-fp-copy", SCPS, SCPS_PORT) },
    over_ssh("scp", Tool::Scp, "scp FILE RECEIVER:"),
    over_ssh("sftp", Tool::Sftp, "sftp RECEIVER: <<< \"put FILE\""),
    over_ssh("rsync", Tool::Rsync, "rsync FILE RECEIVER:"),
    Layer {
        command: Some("rsync FILE rsync://RECEIVER/MODULE/"),
        ..program("rsync-daemon", Tool::RsyncDaemon, 873)
    },
    Layer { features: &[Feature::InOrder, Feature::Typed], ..program("telnet", Tool::Telnet, 23) },
    layer("file", &[Service::Bundles], &[Service::Files]),
    Layer {
        features: &[Feature::Routes, Feature::Nodes],
        port: Some(nodes::PORT),
        adapter_above: Some(&bundles::Bundles),
        ..layer("bp", &[Service::Convergence], &[Service::Bundles])
    },
    convergence("tcpcl", &[Service::Streams], Convergence::Tcpcl4, "tcpcl4"),
    Layer {
        profiles: || vec![nodes::DTN2],
        ..convergence("tcpcl3", &[Service::Streams], Convergence::Tcpcl3, "tcpcl3")
    },
    convergence("mtcp", &[Service::Streams], Convergence::Mtcp, "mtcp"),
    convergence("stcp", &[Service::Streams], Convergence::Stcp, "stcp"),
    Layer {
        red: Red::None,
        dissector: Some(&dissect::udpcl::DISSECTOR),
        profiles: || vec!["default", nodes::DTN2_UDP],
        ..convergence("udpcl", &[Service::Datagrams], Convergence::Udp, "udpcl")
    },
    Layer {
        features: &[Feature::Simulated, Feature::Controlled],
        dissector: Some(&dissect::tcp::DISSECTOR),
        profiles: OverTcpConfig::profiles,
        ..layer("tcp", &[Service::Packets], &[Service::Streams])
    },
];

/// Short names of common stacks, in the order in which they are listed, and their layers. Every
/// layer that moves files and needs nothing but a host has its own name, too.
pub const SHORT: &[(&str, &str)] = &[
    ("cfdp", "cfdp"),
    ("cfdp-1", "cfdp-1"),
    ("ltp", "ltp"),
    ("ltp-green", "ltp-green"),
    ("ltp-1k-red", "ltp-1k-red"),
    ("ltp-t", "ltp-t"),
    ("saratoga", "saratoga"),
    ("saratoga-get", "saratoga-get"),
    ("saratoga-blind", "saratoga-blind"),
    ("norm", "norm"),
    ("norm-fec", "norm-fec"),
    ("ftp", "ftp+tcp"),
    ("ftp-get", "ftp-get+tcp"),
    ("scps-fp", "scps-fp+tcp"),
    ("scps-fp-get", "scps-fp-get+tcp"),
    ("scps-fp-read", "scps-fp-read+tcp"),
    ("scps-fp-update", "scps-fp-update+tcp"),
    ("scps-fp-copy", "scps-fp-copy+tcp"),
    ("scp", "scp+tcp"),
    ("sftp", "sftp+tcp"),
    ("rsync", "rsync+tcp"),
    ("rsync-daemon", "rsync-daemon+tcp"),
    ("telnet", "telnet+tcp"),
    ("bp-tcpcl", "file+bp+tcpcl+tcp"),
    ("bp-tcpcl3", "file+bp+tcpcl3+tcp"),
    ("bp-mtcp", "file+bp+mtcp+tcp"),
    ("bp-stcp", "file+bp+stcp+tcp"),
    ("bp-udp", "file+bp+udpcl"),
    ("bp-ltp", "file+bp+ltp"),
    ("bp-saratoga", "file+bp+saratoga"),
    ("bp-norm", "file+bp+norm"),
    ("cfdp-ltp", "cfdp+ltp"),
    ("cfdp-bp-tcpcl", "cfdp+bp+tcpcl+tcp"),
    ("cfdp-bp-tcpcl3", "cfdp+bp+tcpcl3+tcp"),
    ("cfdp-bp-mtcp", "cfdp+bp+mtcp+tcp"),
    ("cfdp-bp-stcp", "cfdp+bp+stcp+tcp"),
    ("cfdp-bp-udp", "cfdp+bp+udpcl"),
    ("cfdp-bp-ltp", "cfdp+bp+ltp"),
    ("cfdp-bp-saratoga", "cfdp+bp+saratoga"),
    ("cfdp-bp-norm", "cfdp+bp+norm"),
];
