//! Bundle nodes of a simulated world: files that cross as bundles, over any of the convergence layers.
//!
//! A node is numbered as in the scenario: node 3 is `ipn:3.0`, and files come to [`SERVICE`] of it. Links to neighbours are
//! opened when bundles wait for them.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use engine::{Deadline, Effect, Engine, Input, PathId, Rng, Time, Transmit, TxBuf};
use proto::bp::agent::{self, Agent, Entry, LinkRef, Pattern, Routing, Version};
use proto::bp::contacts::ContactPlan;
use proto::bp::files::{self, Files};
use proto::bp::layer::{Command, Layer, LinkId};
use proto::bp::ltpcl::{self, Ltpcl};
use proto::bp::node::{Node, Paths};
use proto::bp::normcl::{self, NormCl};
use proto::bp::routes::{self, Router};
use proto::bp::saratogacl::{self, SaratogaCl};
use proto::bp::tcpcl::{self, Peer, Tcpcl};
use proto::bp::udpcl::{self, Udpcl};
use proto::stack::{self, OverTcp};
use proto::ut::{self, OverBundles};
use proto::{cfdp, tcp};
use serde::{Deserialize, Serialize};
use wire::bp7::Eid;
use wire::mtcp::Framing;
/// The port at which neighbours are awaited (RFC 9174 §3.1).
pub(crate) use wire::udpcl::PORT;

use crate::engines::Remotes;
use crate::engines::{End, Send, no_path};
use crate::over_tcp::{OverTcpConfig, meet, take_place};
use crate::protocol::{Kind, Protocol};
use crate::text::SpecError;

/// The service of a node to which files come.
pub const SERVICE: u64 = 10;

/// Milliseconds from the beginning of 2000 to that of 2026, where a world begins: 9,497 days.
pub(crate) const EPOCH: u64 = 9_497 * 86_400_000;

/// When worlds begin.
#[must_use]
pub fn epoch() -> SystemTime {
    // 2000 began 10,957 days after 1970.
    SystemTime::UNIX_EPOCH + Duration::from_secs((10_957 + 9_497) * 86_400)
}

/// The only layer of a node.
const LAYER: usize = 0;

/// What carries the bundles of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Carrier {
    /// TCPCL and this crate's TCP.
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

/// What a bundle node is told.
#[derive(Clone, Debug)]
pub struct BundlesConfig {
    /// Its number.
    pub entity: u64,
    /// How files cross.
    pub files: files::Config,
    /// The entity that sends and receives files in place of that, if it is CFDP. How long bundles live and of which version they are is
    /// said with `files`.
    pub cfdp: Option<CfdpUser>,
    /// The agent, but for its routes.
    pub agent: agent::Config,
    /// What its layer is over.
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
    /// What is below streams: TCP, and the addresses of this host and of others.
    pub streams: stack::Config,
    /// By way of whom others are reached, by their numbers.
    pub routes: BTreeMap<u64, u64>,
    /// By when they are reached: the file that says it, and what it says.
    pub plan: Option<(PathBuf, ContactPlan)>,
    /// Links over which nothing was to be sent for so long are closed; `None`: they stay.
    pub idle: Option<Duration>,
    /// The paths to neighbours, by their numbers.
    pub paths: BTreeMap<u64, PathId>,
    /// The interfaces of the host.
    pub interfaces: BTreeSet<PathId>,
}

/// A CFDP entity on a bundle node.
#[derive(Clone, Debug)]
pub struct CfdpUser {
    /// The entity, but for its number.
    pub cfdp: cfdp::Config,
    /// Its PDUs.
    pub ut: ut::Config,
    /// The service of each node to which they come.
    pub service: u64,
}

impl Default for CfdpUser {
    fn default() -> Self {
        let cfdp = crate::carried::carried_cfdp();
        Self { cfdp, ut: ut::Config::default(), service: ut::CFDP_ENDPOINT }
    }
}

impl Default for BundlesConfig {
    fn default() -> Self {
        // A receiver keeps the bundles of all files of which some are missing.
        let limits = agent::Limits { delivering: usize::MAX, ..agent::Limits::default() };
        let agent = agent::Config { clock: Some(EPOCH), limits, ..agent::Config::default() };
        // A world comes to rest when nothing is left to be done: signs of life would keep it going.
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
            idle: None,
            paths: BTreeMap::new(),
            interfaces: BTreeSet::new(),
        }
    }
}

/// The configuration that a protocol's profile names: one of a bundle node, or of TCP below it.
///
/// # Errors
/// There is no such profile.
pub fn config(protocol: &Protocol) -> Result<BundlesConfig, SpecError> {
    if let Some(below) = protocol.kind.carried() {
        let below = Protocol { kind: below, profile: protocol.profile.clone() };
        let mut config = config(&below)?;
        // What an entity has is safe in its own store soon.
        config.agent.limits.delivering = agent::Limits::default().delivering;
        return Ok(BundlesConfig { cfdp: Some(CfdpUser::default()), ..config });
    }
    let mut config = BundlesConfig { carrier: carrier(protocol.kind), ..BundlesConfig::default() };
    if config.carrier == Carrier::Udp {
        // There need be no way back.
        config.files.reports = false;
    }
    let framed = [(Kind::BpMtcp, Framing::Mtcp), (Kind::BpStcp, Framing::Stcp)];
    if protocol.kind == Kind::BpTcpcl3 {
        config.tcpcl.protocol = tcpcl::Protocol::Tcpcl3(tcpcl::Version3::default());
    } else if let Some((_, framing)) = framed.iter().find(|(kind, _)| *kind == protocol.kind) {
        config.tcpcl.protocol = tcpcl::Protocol::Framed(*framing);
    }
    let Some(name) = protocol.profile.as_deref().filter(|name| *name != "default") else {
        return Ok(config);
    };
    let unknown = |known: &[&str]| crate::engines::no_profile(protocol, name, known);
    match config.carrier {
        Carrier::Tcp if name == "dtn2-2.5" && protocol.kind == Kind::BpTcpcl3 => config.be_dtn2(),
        Carrier::Tcp => {
            let streams = OverTcpConfig::of_host(Some(name)).map(|tcp| tcp.streams);
            config.streams = streams.ok_or_else(|| {
                let own = (protocol.kind == Kind::BpTcpcl3).then_some("dtn2-2.5");
                let known: Vec<_> = own.into_iter().chain(OverTcpConfig::profiles()).collect();
                unknown(&known)
            })?;
        }
        Carrier::Udp if name == "dtn2-2007" => {
            config.udpcl = udpcl::Config::dtn2_2007();
            config.files.version = Version::Six;
        }
        Carrier::Udp => return Err(unknown(&["default", "dtn2-2007"])),
        Carrier::Ltp => config.ltpcl.ltp = crate::engines::ltp_config(protocol)?,
        Carrier::Norm => config.normcl.engine = crate::engines::norm_config(protocol)?,
        Carrier::Saratoga => {
            config.saratogacl.engine = crate::engines::saratoga_config(protocol)?;
        }
    }
    Ok(config)
}

/// What carries the bundles that cross by a protocol; streams, if it has none.
fn carrier(kind: Kind) -> Carrier {
    if kind == Kind::BpUdp {
        Carrier::Udp
    } else if kind == Kind::BpLtp {
        Carrier::Ltp
    } else if kind == Kind::BpSaratoga {
        Carrier::Saratoga
    } else if kind == Kind::BpNorm {
        Carrier::Norm
    } else {
        Carrier::Tcp
    }
}

/// A node of the `ipn` scheme.
fn node(number: u64) -> Eid {
    Eid::Ipn { node: number, service: 0 }
}

impl BundlesConfig {
    /// DTN2 2.5 on Linux 2.4, as its sources have it: segments of 4,096 octets, signs of life each 10 s, links on demand closed after
    /// 30 s without use, connections tried again after 5 s, and then after twice as long each time up to 10 min; what was acknowledged
    /// when a connection breaks is kept. Its drafts of TCPCL knew neither lengths nor refusals.
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
        self.tcpcl.reconnect = (Duration::from_secs(5), Duration::from_secs(600));
        self.idle = Some(Duration::from_secs(30));
    }

    /// Says where this host is, and where neighbours find it.
    pub(crate) fn set_own(&mut self, address: Ipv4Addr, port: u16) {
        take_place(&mut self.streams, address, port);
    }

    /// Says where the neighbour of a path is, and over which interface it is reached.
    pub(crate) fn set_peer(&mut self, path: PathId, remote: (Ipv4Addr, u16), by: PathId) {
        meet(&mut self.streams, path, remote, by);
    }

    /// Says how long what is sent is of use.
    pub(crate) fn set_lifetime(&mut self, lifetime: Duration) {
        self.files.lifetime = lifetime;
    }

    fn link(number: u64) -> LinkId {
        LinkId(u32::try_from(number).unwrap_or(u32::MAX) & (LinkId::CAME.0 - 1))
    }

    fn routing(&self) -> Routing {
        let neighbours = self.paths.keys().map(|number| (*number, *number));
        let routes = self.routes.iter().map(|(to, via)| (*to, *via));
        let entry = |(to, via)| Entry { to: Pattern::Node(node(to)), via: node(via) };
        let entries: Vec<_> = routes.chain(neighbours).map(entry).collect();
        match &self.plan {
            Some((_, plan)) => {
                let limits = routes::Limits::default();
                let router = Router::new(self.entity, plan.clone(), limits);
                Routing::ContactGraph(Box::new(router), entries)
            }
            None => Routing::Static(entries),
        }
    }

    fn stream_layer(&self, me: Eid) -> Tcpcl {
        let mut layer = tcpcl::Config { node: me, ..self.tcpcl.clone() };
        for (number, path) in &self.paths {
            let peer = Peer { path: *path, server_name: String::new() };
            layer.peers.insert(Self::link(*number), peer);
        }
        Tcpcl::new(layer)
    }

    /// Links to neighbours, with their numbers and paths.
    fn links(&self) -> impl Iterator<Item = (LinkId, u64, PathId)> {
        self.paths.iter().map(|(number, path)| (Self::link(*number), *number, *path))
    }

    fn layer(&self, me: Eid, mut of: impl FnMut(&str) -> Rng) -> Box<dyn Layer> {
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
                layer.engine.node = crate::engines::norm_node(self.entity);
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

    /// An engine so configured.
    #[must_use]
    pub fn build(&self, mut rng: Rng) -> BundlesEngine {
        let mut of = |name: &str| Rng::new(rng.next_u64(), name);
        let me = node(self.entity);
        let mut agent = self.agent.clone();
        agent.node = me.clone();
        agent.routing = self.routing();
        for number in self.paths.keys() {
            let link = Self::link(*number);
            agent.links.insert(LinkRef { layer: LAYER, link }, node(*number));
        }
        let agent = Agent::new(agent, of("agent"));
        let is_streams = self.carrier == Carrier::Tcp;
        let own = if is_streams {
            self.interfaces.clone()
        } else {
            self.paths.values().copied().collect()
        };
        let known = own.into_iter().map(|path| (path, LAYER)).collect();
        let datagrams = (!is_streams).then_some(LAYER);
        let paths = Paths { known, datagrams, ..Paths::default() };
        let layer = self.layer(me, &mut of);
        let node = Node::new(agent, vec![layer], paths);
        BundlesEngine {
            user: self.user(node, of("files")),
            is_planned: self.plan.is_some(),
            idle: self.idle,
            links: self.paths.keys().map(|number| (*number, Link::Closed)).collect(),
            neighbours: self.paths.keys().copied().collect(),
            routes: self.routes.keys().copied().collect(),
        }
    }
}

impl BundlesConfig {
    /// Who sends and receives files on a node.
    fn user(&self, node: Node, rng: Rng) -> User {
        let Some(CfdpUser { cfdp, ut, service }) = &self.cfdp else {
            let endpoint = Eid::Ipn { node: self.entity, service: SERVICE };
            let files = files::Config { endpoint, ..self.files.clone() };
            return User::Files(Box::new(Files::new(node, files, rng)));
        };
        let cfdp = cfdp::Config { entity: self.entity, ..cfdp.clone() };
        let peers = self.paths.keys().chain(self.routes.keys()).copied().collect();
        let ut = ut::Config { peers, ..ut.clone() };
        let files::Config { lifetime, version, custody, .. } = self.files;
        let below = ut::BundlesConfig { service: *service, lifetime, version, custody };
        User::Cfdp(Box::new(OverBundles::over_bundles(cfdp, ut, &below, node, rng)))
    }
}

/// What a bundle node's user tells.
#[derive(Clone, Debug, PartialEq)]
pub enum Told {
    /// Who puts files into bundles.
    Files(files::Indication),
    /// The CFDP entity.
    Cfdp(cfdp::Indication),
}

/// Who sends and receives files on a node.
#[derive(Debug)]
enum User {
    Files(Box<Files>),
    Cfdp(Box<OverBundles>),
}

impl User {
    fn node(&self) -> &Node {
        match self {
            Self::Files(files) => files.node(),
            Self::Cfdp(entity) => entity.node(),
        }
    }

    fn command(&mut self, now: Time, command: Command) {
        match self {
            Self::Files(files) => files.node_mut().command(now, LAYER, command),
            Self::Cfdp(entity) => entity.with_node(now, |node| node.command(now, LAYER, command)),
        }
    }

    fn under_way(&self) -> usize {
        match self {
            Self::Files(files) => files.under_way(),
            Self::Cfdp(entity) => crate::carried::carried_under_way(entity),
        }
    }
}

impl Engine for User {
    type Indication = Told;

    fn handle_input(&mut self, now: Time, input: Input<'_>) {
        match self {
            Self::Files(files) => files.handle_input(now, input),
            Self::Cfdp(entity) => entity.handle_input(now, input),
        }
    }

    fn handle_timeout(&mut self, now: Time) {
        match self {
            Self::Files(files) => files.handle_timeout(now),
            Self::Cfdp(entity) => entity.handle_timeout(now),
        }
    }

    fn poll_transmit(&mut self, now: Time, tx: &mut TxBuf) -> Option<Transmit> {
        match self {
            Self::Files(files) => files.poll_transmit(now, tx),
            Self::Cfdp(entity) => entity.poll_transmit(now, tx),
        }
    }

    fn poll_effect(&mut self) -> Option<Effect> {
        match self {
            Self::Files(files) => files.poll_effect(),
            Self::Cfdp(entity) => entity.poll_effect(),
        }
    }

    fn poll_indication(&mut self) -> Option<Told> {
        match self {
            Self::Files(files) => files.poll_indication().map(Told::Files),
            Self::Cfdp(entity) => crate::carried::carried_told(entity).map(Told::Cfdp),
        }
    }

    fn poll_timeout(&self) -> Option<Deadline> {
        match self {
            Self::Files(files) => files.poll_timeout(),
            Self::Cfdp(entity) => entity.poll_timeout(),
        }
    }
}

/// A link to a neighbour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Link {
    Closed,
    Open,
    /// Nothing was to be sent over it since.
    Idle(Time),
}

/// A bundle node.
#[derive(Debug)]
pub struct BundlesEngine {
    user: User,
    /// The agent opens and closes links itself, by its contact plan.
    is_planned: bool,
    idle: Option<Duration>,
    links: BTreeMap<u64, Link>,
    neighbours: BTreeSet<u64>,
    routes: BTreeSet<u64>,
}

impl BundlesEngine {
    /// The agent.
    #[must_use]
    pub fn agent(&self) -> &Agent {
        self.user.node().agent()
    }

    /// Whether it can be asked to send.
    pub(crate) fn is_ready(&self) -> bool {
        let user = match &self.user {
            User::Files(_) => true,
            User::Cfdp(entity) => entity.entity().is_restored(),
        };
        user && self.agent().is_ready()
    }

    /// What it did.
    #[must_use]
    pub fn metrics(&self) -> BundleMetrics {
        BundleMetrics::new(&self.agent().statistics())
    }

    /// Files, or of a node that only forwards bundles, with which it has something to do.
    pub(crate) fn under_way(&self) -> usize {
        self.user.under_way().max(self.agent().statistics().bundles)
    }

    pub(crate) fn send(&mut self, now: Time, send: &Send) -> Result<(), String> {
        let number = send.destination;
        let knows = self.neighbours.contains(&number) || self.routes.contains(&number);
        if !knows && !self.is_planned {
            return Err(no_path(number));
        }
        let sent = match &mut self.user {
            User::Files(files) => {
                let to = Eid::Ipn { node: number, service: SERVICE };
                let sent = files.send(now, send.source.clone(), &send.name, &to);
                sent.map(drop).map_err(|error| error.to_string())
            }
            User::Cfdp(entity) => {
                let put = entity.put(now, crate::carried::put_request(send));
                put.map(drop).map_err(|error| error.to_string())
            }
        };
        self.keep_links(now);
        sent
    }

    /// Opens links over which something is to be sent, and closes those over which nothing is.
    fn keep_links(&mut self, now: Time) {
        if self.is_planned {
            return;
        }
        let wanted = self.agent().wanted();
        for number in self.neighbours.clone() {
            let (neighbour, link) = (node(number), BundlesConfig::link(number));
            let is_up = self.agent().reaches(&neighbour);
            let state = self.links.get(&number).copied().unwrap_or(Link::Closed);
            let over = |since: Time| self.idle.is_some_and(|idle| since + idle <= now);
            let (state, command) = match (state, wanted.contains(&neighbour)) {
                // A link that the neighbour opened serves as well.
                (Link::Closed, true) if !is_up => (Link::Open, Some(Command::Open { link })),
                (Link::Closed, _) => (Link::Closed, None),
                (Link::Open | Link::Idle(_), true) => (Link::Open, None),
                // It is not tried again for nothing.
                (Link::Open | Link::Idle(_), false) if !is_up => {
                    (Link::Closed, Some(Command::Close { link }))
                }
                (Link::Open, false) => (Link::Idle(now), None),
                (Link::Idle(since), false) if over(since) => {
                    (Link::Closed, Some(Command::Close { link }))
                }
                (Link::Idle(since), false) => (Link::Idle(since), None),
            };
            self.links.insert(number, state);
            if let Some(command) = command {
                self.user.command(now, command);
            }
        }
    }
}

impl Engine for BundlesEngine {
    type Indication = Told;

    fn handle_input(&mut self, now: Time, input: Input<'_>) {
        self.user.handle_input(now, input);
        self.keep_links(now);
    }

    fn handle_timeout(&mut self, now: Time) {
        self.user.handle_timeout(now);
        self.keep_links(now);
    }

    fn poll_transmit(&mut self, now: Time, tx: &mut TxBuf) -> Option<Transmit> {
        self.user.poll_transmit(now, tx)
    }

    fn poll_effect(&mut self) -> Option<Effect> {
        self.user.poll_effect()
    }

    fn poll_indication(&mut self) -> Option<Told> {
        self.user.poll_indication()
    }

    fn poll_timeout(&self) -> Option<Deadline> {
        let idle = self.links.values().filter_map(|link| match link {
            Link::Idle(since) => Some(*since + self.idle?),
            Link::Closed | Link::Open => None,
        });
        let idle = idle.map(|at| Deadline { at, why: "a link that is not used" });
        idle.chain(self.user.poll_timeout()).min_by_key(|deadline| deadline.at)
    }
}

/// What a bundle node did.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BundleMetrics {
    /// Bundles that it made.
    pub sourced: u64,
    /// Bundles that came, those included that had been here.
    pub received: u64,
    /// Of these, those that had been here.
    pub duplicates: u64,
    /// Bundles that it refused.
    pub refused: u64,
    /// Bundles that a neighbour took.
    pub forwarded: u64,
    /// Bundles whose user took them.
    pub delivered: u64,
    /// Bundles that expired.
    pub expired: u64,
    /// Bundles that were deleted for another reason.
    pub deleted: u64,
    /// Attempts to forward that failed.
    pub failed: u64,
    /// Bundles that it holds at the end.
    pub held: u64,
    /// The most bundles that it held.
    pub held_peak: u64,
    /// The most octets that it held.
    pub octets_peak: u64,
}

impl BundleMetrics {
    fn new(statistics: &agent::Statistics) -> Self {
        Self {
            sourced: statistics.sourced,
            received: statistics.received,
            duplicates: statistics.duplicates,
            refused: statistics.refused,
            forwarded: statistics.forwarded,
            delivered: statistics.delivered,
            expired: statistics.expired,
            deleted: statistics.deleted,
            failed: statistics.failed,
            held: statistics.bundles as u64,
            held_peak: statistics.bundles_peak as u64,
            octets_peak: statistics.octets_peak,
        }
    }
}

/// The end of a transfer, if it tells of one.
#[must_use]
pub fn end(told: &files::Indication) -> Option<End> {
    let (at_sender, name, result, is_confirmed) = match told {
        files::Indication::Sent { name, result, is_reported, .. } => {
            (true, name, result, *is_reported)
        }
        files::Indication::Received { name, result, .. } => (false, name, result, true),
        files::Indication::Bundles(_) => return None,
    };
    Some(End {
        at_sender,
        name: name.clone(),
        success: result.is_ok(),
        is_confirmed,
        is_report: false,
        why: match result {
            Ok(()) => "no error".to_owned(),
            Err(failure) => failure.to_string(),
        },
    })
}
