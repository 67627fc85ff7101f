//! Bundle nodes of a simulated world, which send files as bundles over any convergence layer.
//!
//! Nodes have their numbers of the scenario: node 3 is `ipn:3.0` and receives files at its
//! [`SERVICE`]. Links to neighbours open when bundles wait for them.

mod settings;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use bp::agent::{self, Entry, Pattern, Routing, Version};
use bp::codec::bp7::Eid;
use bp::codec::mtcp::Framing;
/// Port that listens for neighbours (RFC 9174 §3.1).
pub(crate) use bp::codec::udpcl::PORT;
use bp::contacts::ContactPlan;
use bp::files;
use bp::layer::{Layer, LinkId};
use bp::ltpcl::{self, Ltpcl};
use bp::normcl::{self, NormCl};
use bp::routes::Router;
use bp::saratogacl::{self, SaratogaCl};
use bp::tcpcl::{self, Peer, Tcpcl};
use bp::udpcl::{self, Udpcl};
use engine::{PathId, Rng};
use ltp::Red;
use stack::{self, OverTcp};

pub use self::settings::check_saratoga;
use crate::adapter::EPOCH;
use crate::adapter::over_tcp::config::OverTcpConfig;
use crate::adapter::saratoga::Remotes;
use crate::contract::{Convergence, Protocol};
use crate::settings::Changes;
use crate::text::SpecError;

/// Service of a node that receives files.
pub const SERVICE: u64 = 10;

/// When worlds begin.
#[must_use]
pub fn epoch() -> SystemTime {
    // 2000 began 10,957 days after 1970.
    SystemTime::UNIX_EPOCH + Duration::from_secs((10_957 + 9_497) * 86_400)
}

/// The only layer of a node.
pub(crate) const LAYER: usize = 0;

/// Convergence layer of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Carrier {
    /// TCPCL and slowlight's TCP.
    Tcp,
    /// UDP.
    Udp,
    /// LTP.
    Ltp,
    /// Saratoga.
    Saratoga,
    /// NORM.
    Norm,
}

/// Settings of a bundle node.
#[derive(Clone, Debug)]
pub struct BundlesConfig {
    /// Number of the node.
    pub entity: u64,
    /// Settings of the file service.
    pub files: files::Config,
    /// CFDP entity that transfers files in place of the file service. `files` still sets lifetime
    /// and version of bundles.
    pub cfdp: Option<CfdpUser>,
    /// The agent, without its routes.
    pub agent: agent::Config,
    /// Transport below its layer.
    pub carrier: Carrier,
    /// The layer over streams.
    pub tcpcl: tcpcl::Config,
    /// The layer over datagrams.
    pub udpcl: udpcl::Config,
    /// The layer over LTP.
    pub ltpcl: ltpcl::Config,
    /// The layer over Saratoga.
    pub saratogacl: saratogacl::Config,
    /// The layer over NORM.
    pub normcl: normcl::Config,
    /// Settings of Saratoga for others, by their numbers.
    pub remotes: Remotes,
    /// Layer below streams: TCP, with the addresses of this host and of its peers.
    pub streams: stack::Config,
    /// Next hops of other nodes, by the nodes' numbers.
    pub routes: BTreeMap<u64, u64>,
    /// Contact plan of the routes: its file and its contents.
    pub plan: Option<(PathBuf, ContactPlan)>,
    /// Choice of routes through it.
    pub routing: routing::settings::Settings,
    /// Idle time after which links are closed; `None`: they stay open.
    pub idle: Option<Duration>,
    /// The paths to neighbours, by their numbers.
    pub paths: BTreeMap<u64, PathId>,
    /// The interfaces of the host.
    pub interfaces: BTreeSet<PathId>,
}

/// A CFDP entity on a bundle node.
#[derive(Clone, Debug)]
pub struct CfdpUser {
    /// The entity, without its number.
    pub cfdp: cfdp::Config,
    /// Settings for the PDUs of the entity.
    pub ut: ut::Config,
    /// Service of each node that receives them.
    pub service: u64,
}

/// Changes of a CFDP entity that is an application of a bundle node.
pub type CfdpUserSettings = Changes<CfdpUser>;

impl Default for CfdpUser {
    fn default() -> Self {
        let cfdp = crate::adapter::cfdp::carried_cfdp();
        Self { cfdp, ut: ut::Config::default(), service: ut::CFDP_ENDPOINT }
    }
}

impl Default for BundlesConfig {
    fn default() -> Self {
        let agent = agent::Config { clock: Some(EPOCH), ..agent::Config::default() };
        // A world comes to rest when no work is left; keepalives would keep it running, so they are
        // off.
        let tcpcl = tcpcl::Config { keepalive_s: 0, ..tcpcl::Config::default() };
        let streams = OverTcpConfig::of_host(None).unwrap_or_default().streams;
        Self {
            entity: 0,
            files: files::Config::default(),
            cfdp: None,
            agent,
            carrier: Carrier::Tcp,
            tcpcl,
            udpcl: udpcl::Config::default(),
            ltpcl: ltpcl::Config::default(),
            saratogacl: saratogacl::Config::default(),
            normcl: normcl::Config::default(),
            remotes: Remotes::new(),
            streams,
            routes: BTreeMap::new(),
            plan: None,
            routing: routing::settings::Settings::default(),
            idle: None,
            paths: BTreeMap::new(),
            interfaces: BTreeSet::new(),
        }
    }
}

impl Convergence {
    fn carrier(self) -> Carrier {
        match self {
            Self::Tcpcl4 | Self::Tcpcl3 | Self::Mtcp | Self::Stcp => Carrier::Tcp,
            Self::Udp => Carrier::Udp,
            Self::Ltp => Carrier::Ltp,
            Self::Saratoga => Carrier::Saratoga,
            Self::Norm => Carrier::Norm,
        }
    }

    /// Protocol over streams, if it differs from the default.
    fn over_streams(self) -> Option<tcpcl::Protocol> {
        match self {
            Self::Tcpcl3 => Some(tcpcl::Protocol::Tcpcl3(tcpcl::Version3::default())),
            Self::Mtcp => Some(tcpcl::Protocol::Framed(Framing::Mtcp)),
            Self::Stcp => Some(tcpcl::Protocol::Framed(Framing::Stcp)),
            Self::Tcpcl4 | Self::Udp | Self::Ltp | Self::Saratoga | Self::Norm => None,
        }
    }
}

/// Profile of TCPCL 3 as in DTN2 2.5, and of UDPCL as in its predecessor.
pub(crate) const DTN2: &str = "dtn2-2.5";
pub(crate) const DTN2_UDP: &str = "dtn2-2007";

/// Configuration of a protocol: its profile belongs to the layer below bundles, or to TCP below
/// that.
///
/// # Errors
///
/// There is no such profile.
pub fn config(protocol: &Protocol) -> Result<BundlesConfig, SpecError> {
    let convergence = protocol.kind.convergence().unwrap_or(Convergence::Tcpcl4);
    let carrier = convergence.carrier();
    let mut config = BundlesConfig { carrier, ..BundlesConfig::default() };
    // A return link is optional.
    config.files.reports = carrier != Carrier::Udp && config.files.reports;
    if let Some(protocol) = convergence.over_streams() {
        config.tcpcl.protocol = protocol;
    }
    config.ltpcl.color = match protocol.kind.red() {
        Red::None if carrier == Carrier::Ltp => ltpcl::Color::Green,
        Red::Prefix(bytes) if carrier == Carrier::Ltp => ltpcl::Color::Mixed(bytes),
        Red::All | Red::None | Red::Prefix(_) => config.ltpcl.color,
    };
    config.use_profile(protocol)?;
    if protocol.kind.is_entity_in_bundles() {
        let cfdp = crate::adapter::cfdp::profiled_cfdp(protocol);
        config.cfdp = Some(CfdpUser { cfdp, ..CfdpUser::default() });
    }
    Ok(config)
}

/// A node of the `ipn` scheme.
pub(crate) fn node(number: u64) -> Eid {
    Eid::Ipn { node: number, service: 0 }
}

impl BundlesConfig {
    /// Applies the profiles of a protocol.
    fn use_profile(&mut self, protocol: &Protocol) -> Result<(), SpecError> {
        let kind = protocol.kind;
        let is_dtn2 =
            |name: &String| kind.convergence() == Some(Convergence::Tcpcl3) && name == DTN2;
        if protocol.profile.iter().chain(protocol.layers.values()).any(is_dtn2) {
            self.be_dtn2();
        }
        let given = protocol.profile.as_ref().filter(|name| *name != "default" && !is_dtn2(name));
        let Some(name) = given else { return Ok(()) };
        let unknown = |known: &[&str]| crate::adapter::no_profile(kind.name(), name, known);
        match self.carrier {
            Carrier::Tcp => {
                let streams = OverTcpConfig::of_host(Some(name)).map(|tcp| tcp.streams);
                self.streams = streams.ok_or_else(|| {
                    let own = (kind.convergence() == Some(Convergence::Tcpcl3)).then_some(DTN2);
                    let known: Vec<_> = own.into_iter().chain(OverTcpConfig::profiles()).collect();
                    unknown(&known)
                })?;
            }
            Carrier::Udp if name == DTN2_UDP => {
                self.udpcl = udpcl::Config::dtn2_2007();
                self.files.version = Version::Six;
            }
            Carrier::Udp => return Err(unknown(&["default", DTN2_UDP])),
            Carrier::Ltp => self.ltpcl.ltp = crate::adapter::ltp::ltp_config(protocol)?,
            Carrier::Norm => self.normcl.engine = crate::adapter::norm::norm_config(protocol)?,
            Carrier::Saratoga => {
                self.saratogacl.engine = crate::adapter::saratoga::saratoga_config(protocol)?;
            }
        }
        Ok(())
    }

    /// DTN2 2.5 on Linux 2.4, by its sources: segments of 4,096 bytes, keepalives each 10 s,
    /// on-demand links closed after 30 s idle, reconnects after 5 s with the wait doubled up to
    /// 10 min. Acknowledged segments survive a broken connection. Its draft of TCPCL has neither
    /// lengths nor refusals.
    fn be_dtn2(&mut self) {
        let options = tcp::Profile::from_name("linux-2.4.18").map(tcp::Profile::options);
        self.streams.options = options.unwrap_or_default();
        self.files.version = Version::Six;
        self.tcpcl.protocol = tcpcl::Protocol::Tcpcl3(tcpcl::Version3 {
            reactive_fragmentation: true,
            refusals: false,
            lengths: false,
            ..tcpcl::Version3::default()
        });
        self.tcpcl.segment = 4096;
        self.tcpcl.keepalive_s = 10;
        self.tcpcl.patience = Duration::from_secs(30);
        self.tcpcl.reconnect = Duration::from_secs(5);
        self.tcpcl.reconnect_max = Duration::from_secs(600);
        self.idle = Some(Duration::from_secs(30));
    }

    pub(crate) fn link(number: u64) -> LinkId {
        LinkId(u32::try_from(number).unwrap_or(u32::MAX) & (LinkId::CAME.0 - 1))
    }

    pub(crate) fn routing(&self) -> Routing {
        let neighbours = self.paths.keys().map(|number| (*number, *number));
        let routes = self.routes.iter().map(|(to, via)| (*to, *via));
        let entry = |(to, via)| Entry { to: Pattern::Node(node(to)), via: vec![node(via)] };
        let entries: Vec<_> = routes.chain(neighbours).map(entry).collect();
        match &self.plan {
            Some((_, plan)) => {
                let router = Router::new(self.entity, plan.clone(), self.routing.clone());
                Routing::ContactGraph(Box::new(router), entries)
            }
            None => Routing::Static(entries),
        }
    }

    fn stream_layer(&self, me: Eid) -> Tcpcl {
        let mut layer = tcpcl::Config { node: me, ..self.tcpcl.clone() };
        for (number, path) in &self.paths {
            let peer = Peer { path: *path, server_name: String::new(), node: None };
            layer.peers.insert(Self::link(*number), peer);
        }
        Tcpcl::new(layer)
    }

    /// Links to neighbours, with their numbers and paths.
    fn links(&self) -> impl Iterator<Item = (LinkId, u64, PathId)> {
        self.paths.iter().map(|(number, path)| (Self::link(*number), *number, *path))
    }

    pub(crate) fn layer(&self, me: Eid, mut of: impl FnMut(&str) -> Rng) -> Box<dyn Layer> {
        match self.carrier {
            Carrier::Tcp => {
                Box::new(OverTcp::new(self.streams.clone(), self.stream_layer(me), of("tcp")))
            }
            Carrier::Udp => {
                let peers = self.links().map(|(link, _, path)| (link, path)).collect();
                Box::new(Udpcl::new(udpcl::Config { peers, ..self.udpcl.clone() }))
            }
            Carrier::Ltp => {
                let peer = |(link, engine, path)| (link, ltpcl::Peer { engine, path });
                let mut layer = self.ltpcl.clone();
                layer.ltp.engine = self.entity;
                layer.peers = self.links().map(peer).collect();
                Box::new(Ltpcl::new(layer, of("ltp")))
            }
            Carrier::Norm => {
                let mut layer = self.normcl.clone();
                layer.engine.node = crate::adapter::norm::norm_node(self.entity);
                layer.peers = self.links().map(|(link, _, path)| (link, path)).collect();
                Box::new(NormCl::new(layer, of("norm")))
            }
            Carrier::Saratoga => {
                let mut layer = self.saratogacl.clone();
                for (link, number, path) in self.links() {
                    layer.peers.insert(link, path);
                    if let Some(remote) = self.remotes.get(&number.to_string()) {
                        layer.engine.remotes.insert(path, remote.clone());
                    }
                }
                Box::new(SaratogaCl::new(layer, of("saratoga")))
            }
        }
    }
}
