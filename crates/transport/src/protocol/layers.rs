//! The table of layers: a row each.

use std::sync::OnceLock;

use ::ltp::Red;
use models::programs::{Tool, Version};

use crate::adapter::bundles::config as nodes;
use crate::adapter::over_tcp::config::OverTcpConfig;
use crate::adapter::{bundles, cfdp, ltp, norm, over_tcp, saratoga};
use crate::contract::{Convergence, Feature, Layer, Service};
use crate::dissect;
use crate::records::ContentKind;
use crate::text::SpecError;

const fn cfdp_layer(
    name: &'static str,
    needs: &'static [Service],
    features: &'static [Feature],
) -> Layer {
    Layer {
        family: "CFDP",
        features,
        dissector: Some(&dissect::cfdp::DISSECTOR),
        adapter: Some(&cfdp::Cfdp::OverDatagrams),
        profiles: || cfdp::CFDP_PROFILES.to_vec(),
        ..Layer::new(name, needs, &[Service::Files])
    }
}

const fn ltp_layer(name: &'static str, offers: &'static [Service], red: Red) -> Layer {
    Layer {
        family: "LTP",
        features: &[Feature::PeerNumbers],
        red,
        dissector: Some(&dissect::ltp::DISSECTOR),
        convergence: Some(Convergence::Ltp),
        node_layer: Some("ltpcl"),
        node_spools: ltp::LTP_NODE_SPOOLS,
        adapter: Some(&ltp::Ltp),
        adapter_above: Some(&cfdp::Cfdp::OverLtp),
        profiles: || ltp::LTP_PROFILES.to_vec(),
        ..Layer::new(name, &[Service::Datagrams], offers)
    }
}

const fn saratoga_layer(name: &'static str, offers: &'static [Service]) -> Layer {
    Layer {
        family: "Saratoga",
        features: &[Feature::Directories],
        dissector: Some(&dissect::saratoga::DISSECTOR),
        convergence: Some(Convergence::Saratoga),
        node_layer: Some("saratoga"),
        node_spools: saratoga::SARATOGA_SPOOLS,
        adapter: Some(&saratoga::Saratoga),
        profiles: || saratoga::SARATOGA_PROFILES.to_vec(),
        controlled_profiles: &["tfrc"],
        ..Layer::new(name, &[Service::Datagrams], offers)
    }
}

const fn norm_layer(name: &'static str, features: &'static [Feature]) -> Layer {
    Layer {
        family: "NORM",
        features,
        dissector: Some(&dissect::norm::DISSECTOR),
        convergence: Some(Convergence::Norm),
        node_layer: Some("norm"),
        node_spools: norm::NORM_SPOOLS,
        adapter: Some(&norm::Norm),
        profiles: || norm::NORM_PROFILES.to_vec(),
        controlled_profiles: &["cc", "coded-cc"],
        coded_profiles: &["coded", "coded-cc", "coded-eager"],
        ..Layer::new(name, &[Service::Datagrams], &[Service::Files, Service::Convergence])
    }
}

/// File protocol over TCP, which has the profile.
const fn over_streams(name: &'static str, features: &'static [Feature], port: u16) -> Layer {
    Layer {
        family: "FTP over TCP",
        features,
        port: Some(port),
        adapter: Some(&over_tcp::OverTcp),
        ..Layer::new(name, &[Service::Streams], &[Service::Files])
    }
}

/// SCPS-FP, at the port of the reference implementation, which has no server of FTP.
const fn scps_fp(name: &'static str) -> Layer {
    Layer {
        family: "SCPS-FP over TCP",
        ..over_streams(name, &[Feature::Scps, Feature::InOrder], 2121)
    }
}

const fn program(name: &'static str, tool: Tool, port: u16) -> Layer {
    Layer {
        family: "programs over TCP",
        program: Some(tool),
        ..over_streams(name, &[Feature::InOrder], port)
    }
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
        ..Layer::new(name, below, &[Service::Convergence])
    }
}

/// Layers of programs that use this crate.
static REGISTERED: OnceLock<&[Layer]> = OnceLock::new();

/// Every layer, and those that are registered, which are final from now on.
pub(super) fn all() -> impl Iterator<Item = &'static Layer> + Clone {
    LAYERS.iter().chain(*REGISTERED.get_or_init(|| &[]))
}

/// Adds layers of protocols that this crate does not have. A layer that moves files and needs only
/// a host is a protocol by its name. Call it once, before any protocol is used.
///
/// # Errors
///
/// A protocol was used before, layers were registered before, or a name is taken.
pub fn register(layers: &'static [Layer]) -> Result<(), SpecError> {
    let is_taken = |layer: &&Layer| LAYERS.iter().any(|known| known.name == layer.name);
    if let Some(layer) = layers.iter().find(is_taken) {
        return Err(SpecError::invalid(format!("there is another layer {}", layer.name)));
    }
    let too_late = |_| SpecError::invalid("layers are registered before any protocol is used");
    REGISTERED.set(layers).map_err(too_late)
}

/// Every layer of this crate.
pub const LAYERS: &[Layer] = &[
    cfdp_layer(
        "cfdp",
        &[Service::Datagrams, Service::Blocks, Service::Bundles],
        &[
            Feature::Entity,
            Feature::ClassOfMib,
            Feature::PeerNumbers,
            Feature::Forwards,
            Feature::Recognised,
        ],
    ),
    Layer {
        red: Red::None,
        ..cfdp_layer(
            "cfdp-1",
            &[Service::Datagrams],
            &[Feature::Entity, Feature::PeerNumbers, Feature::Forwards],
        )
    },
    Layer {
        features: &[Feature::PeerNumbers, Feature::Recognised],
        ..ltp_layer("ltp", &[Service::Files, Service::Blocks, Service::Convergence], Red::All)
    },
    ltp_layer("ltp-green", &[Service::Files, Service::Blocks, Service::Convergence], Red::None),
    ltp_layer("ltp-1k-red", &[Service::Files, Service::Convergence], Red::Prefix(1000)),
    Layer {
        features: &[Feature::PeerNumbers, Feature::Relays, Feature::Forwards],
        ..ltp_layer("ltp-t", &[Service::Files], Red::All)
    },
    Layer {
        features: &[Feature::Directories, Feature::Recognised],
        tried: (&[None], &["tfrc"]),
        ..saratoga_layer("saratoga", &[Service::Files, Service::Convergence])
    },
    Layer { is_fetched: true, ..saratoga_layer("saratoga-get", &[Service::Files]) },
    Layer {
        red: Red::None,
        features: &[Feature::Directories, Feature::Multicast],
        ..saratoga_layer("saratoga-blind", &[Service::Files])
    },
    Layer {
        tried: (&[None, Some("coded"), Some("coded-eager")], &["cc", "coded-cc"]),
        ..norm_layer(
            "norm",
            &[Feature::Multicast, Feature::Groups, Feature::InOrder, Feature::Recognised],
        )
    },
    norm_layer(
        "norm-fec",
        &[Feature::Multicast, Feature::Groups, Feature::InOrder, Feature::Coded],
    ),
    Layer {
        familiar: Some("FTP"),
        tried: (&[Some("cubic"), Some("bbr")], &[]),
        ..over_streams("ftp", &[Feature::InOrder], 21)
    },
    Layer { is_fetched: true, ..over_streams("ftp-get", &[Feature::InOrder], 21) },
    scps_fp("scps-fp"),
    Layer { is_fetched: true, ..scps_fp("scps-fp-get") },
    Layer { is_fetched: true, carries: ContentKind::Records, ..scps_fp("scps-fp-read") },
    Layer { carries: ContentKind::Changes, ..scps_fp("scps-fp-update") },
    Layer { carries: ContentKind::Copy, ..scps_fp("scps-fp-copy") },
    over_ssh("scp", Tool::Scp, "scp FILE RECEIVER:"),
    over_ssh("sftp", Tool::Sftp, "sftp RECEIVER: <<< \"put FILE\""),
    over_ssh("rsync", Tool::Rsync, "rsync FILE RECEIVER:"),
    Layer {
        command: Some("rsync FILE rsync://RECEIVER/MODULE/"),
        ..program("rsync-daemon", Tool::RsyncDaemon, 873)
    },
    Layer { features: &[Feature::InOrder, Feature::Typed], ..program("telnet", Tool::Telnet, 23) },
    Layer { family: "files", ..Layer::new("file", &[Service::Bundles], &[Service::Files]) },
    Layer {
        features: &[Feature::Routes, Feature::Nodes],
        port: Some(nodes::PORT),
        adapter_above: Some(&bundles::Bundles),
        ..Layer::new("bp", &[Service::Convergence], &[Service::Bundles])
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
        features: &[Feature::Tcp, Feature::Controlled],
        dissector: Some(&dissect::tcp::DISSECTOR),
        profiles: OverTcpConfig::profiles,
        ..Layer::new("tcp", &[Service::Packets], &[Service::Streams])
    },
];

/// Short names of common stacks, in the order of lists, and their layers. Every layer that moves
/// files and needs only a host has its own name, too.
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
