//! FTP, and programs that are modelled, over TCP as a node of a simulated world: a host whose paths are
//! IP interfaces.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use engine::{Deadline, Effect, Engine, Input, PathId, Rng, Time, Transmit, TxBuf};
use proto::programs::{self, Latency, Tool, Version};
use proto::stack::{self, OverTcp};
use proto::{ftp, tcp};
use serde::{Deserialize, Serialize};
use wire::ftp::ReadControl;

use crate::bundles;
use crate::engines::{End, Send, no_path};
use crate::protocol::{Carried, Family, Kind, Protocol};
use crate::records;
use crate::settings::tcp::{Congestion, TcpBuffers};
use crate::text::SpecError;

/// The port at which a server of a scenario listens unless it is told otherwise; nothing of
/// protocols that do not run over TCP.
pub fn port(kind: Kind) -> Option<u16> {
    match kind.program() {
        Some(Tool::Scp | Tool::Sftp | Tool::Rsync) => Some(22),
        Some(Tool::RsyncDaemon) => Some(873),
        Some(Tool::Telnet) => Some(23),
        // That of the reference implementation, beside a server of FTP.
        None if kind.is_scps_fp() => Some(2121),
        None if kind.family() == Family::Bundles => Some(bundles::PORT),
        None if kind.family() == Family::OverTcp => Some(21),
        None => None,
    }
}

/// Times in seconds for which buffers, and not the congestion window, stopped a sender of TCP,
/// summed over its connections.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct BufferLimits {
    /// The peer's receive window was full.
    pub peer_window_limited_s: f64,
    /// All data in the send buffer was sent, and it had no room for more.
    pub send_buffer_limited_s: f64,
}

impl BufferLimits {
    pub(crate) fn of(counts: &tcp::Counts) -> Self {
        Self {
            peer_window_limited_s: counts.peer_window_limited.as_secs_f64(),
            send_buffer_limited_s: counts.send_buffer_limited.as_secs_f64(),
        }
    }

    /// Seconds of both together.
    #[must_use]
    pub fn seconds(&self) -> f64 {
        self.peer_window_limited_s + self.send_buffer_limited_s
    }
}

/// What a node over TCP is told.
#[derive(Clone, Debug, Default)]
pub struct OverTcpConfig {
    /// What it does as client and server.
    pub ftp: ftp::Config,
    /// The program that it is in place of FTP.
    pub program: Option<programs::Config>,
    /// What is below: TCP, and the addresses of this host and of others.
    pub streams: stack::Config,
    /// The paths to others, by their numbers in the scenario.
    pub paths: BTreeMap<u64, PathId>,
}

impl OverTcpConfig {
    /// The configuration of a profile: of a kernel of its time, or of this one with a congestion
    /// control of that name. Slowlight's own is that of a kernel of today.
    #[must_use]
    pub fn of_profile(name: Option<&str>) -> Option<Self> {
        let mut config = Self::default();
        let modern = tcp::Profile::Modern.options();
        config.streams.options = match name {
            None | Some("default") => modern,
            Some(name) => match (tcp::Profile::from_name(name), Congestion::from_name(name)) {
                (Some(profile), _) => profile.options(),
                (None, Some(control)) => tcp::Options { congestion: control.algorithm(), ..modern },
                (None, None) => return None,
            },
        };
        Some(config)
    }

    /// Configuration of a host or gateway: the profile's, with buffers that limit nothing, as in the
    /// emulator. Profiles of former kernels keep theirs.
    #[must_use]
    pub fn of_host(profile: Option<&str>) -> Option<Self> {
        let mut config = Self::of_profile(profile)?;
        let (options, today) = (&mut config.streams.options, tcp::Options::default());
        if options.receive_buffer == today.receive_buffer {
            TcpBuffers::default().apply(options);
        }
        Some(config)
    }

    /// The configuration of a protocol: FTP's, or a program's, whose profile is a release, or TCP's
    /// profile, or both: `openssh-4.2+linux-2.6.18`.
    fn of_protocol(protocol: &Protocol) -> Option<Self> {
        let name = protocol.profile.as_deref();
        let Some(tool) = protocol.kind.program() else {
            let mut config = Self::of_host(name)?;
            if protocol.kind.is_scps_fp() {
                config.ftp.server.scps = true;
                config.ftp.client.scps = Some(ftp::ScpsClient::default());
                config.ftp.client.data = ftp::DataConnection::Port;
                config.ftp.client.timeout = SCPS_TIMEOUT;
            }
            return Some(config);
        };
        let (first, second) = match name.and_then(|name| name.split_once('+')) {
            Some((first, second)) => (Some(first), Some(second)),
            None => (name, None),
        };
        let speaks_ssh = matches!(tool, Tool::Scp | Tool::Sftp | Tool::Rsync);
        let release = Version::ALL.into_iter().find(|version| first == Some(version.name()));
        let (version, tcp) = match (release.filter(|_| speaks_ssh), second) {
            (Some(version), tcp) => (version, tcp),
            (None, None) => (Version::default(), first),
            (None, Some(_)) => return None,
        };
        let program = programs::Config::new(tool, version);
        Some(Self { program: Some(program), ..Self::of_host(tcp)? })
    }

    /// The profiles there are.
    #[must_use]
    pub fn profiles() -> Vec<&'static str> {
        let kernels = tcp::Profile::ALL.into_iter().map(tcp::Profile::name);
        let controls = Congestion::ALL.iter().map(|congestion| congestion.name());
        ["default"].into_iter().chain(kernels).chain(controls).collect()
    }

    /// Says where this host is, and where others find its server.
    pub fn set_own(&mut self, address: Ipv4Addr, port: u16) {
        take_place(&mut self.streams, address, port);
    }

    /// Says where the peer of a path is, and over which interface it is reached.
    pub fn set_peer(&mut self, path: PathId, remote: (Ipv4Addr, u16), by: PathId) {
        meet(&mut self.streams, path, remote, by);
    }

    /// Says after which silence a transfer is given up.
    pub(crate) fn set_inactivity(&mut self, silence: Duration) {
        self.ftp.client.timeout = silence;
        self.ftp.server.idle = silence;
        self.ftp.server.data_timeout = silence;
        if let Some(program) = &mut self.program {
            program.timeout = silence;
        }
    }

    /// An engine so configured.
    #[must_use]
    pub fn build(&self, mut rng: Rng) -> OverTcpEngine {
        let node = match &self.program {
            Some(program) => {
                let rng = Rng::new(rng.next_u64(), "program");
                Above::Program(Box::new(programs::Node::new(program.clone(), rng)))
            }
            None => Above::Ftp(Box::new(ftp::Node::new(self.ftp.clone()))),
        };
        OverTcpEngine {
            node: OverTcp::new(self.streams.clone(), node, rng),
            paths: self.paths.clone(),
            requests: BTreeMap::new(),
        }
    }
}

/// Gives a host its address, and others the port to find it at.
pub fn take_place(streams: &mut stack::Config, address: Ipv4Addr, port: u16) {
    let address = IpAddr::V4(address);
    streams.addresses = vec![address];
    streams.tcp.addresses = vec![address];
    streams.listen = vec![SocketAddr::new(address, port)];
}

/// Says where the peer of a path is, and over which interface it is reached.
pub fn meet(
    streams: &mut stack::Config,
    path: PathId,
    (address, port): (Ipv4Addr, u16),
    by: PathId,
) {
    let prefix = IpAddr::V4(address);
    streams.peers.insert(path, SocketAddr::new(prefix, port));
    streams.tcp.routes.push(tcp::Route { prefix, bits: 32, path: by });
}

/// After so long without anything, a client of SCPS-FP tries again.
const SCPS_TIMEOUT: Duration = Duration::from_secs(60);

/// The configuration that a protocol's profile names.
///
/// # Errors
///
/// When there is no such profile.
pub fn config(protocol: &Protocol) -> Result<OverTcpConfig, SpecError> {
    OverTcpConfig::of_protocol(protocol).ok_or_else(|| {
        let name = protocol.profile.as_deref().unwrap_or_default();
        let releases = Version::ALL.iter().map(|version| version.name());
        let releases = releases.filter(|_| protocol.kind.program().is_some());
        let known: Vec<_> = releases.chain(OverTcpConfig::profiles()).collect();
        crate::engines::no_profile(protocol, name, &known)
    })
}

/// What runs over TCP.
#[derive(Debug)]
pub enum Above {
    /// FTP.
    Ftp(Box<ftp::Node>),
    /// A program, modelled.
    Program(Box<programs::Node>),
}

/// What it tells.
#[derive(Clone, Debug, PartialEq)]
pub enum Told {
    /// An FTP node.
    Ftp(ftp::Indication),
    /// A program.
    Program(programs::Indication),
}

impl Above {
    fn under_way(&self) -> usize {
        match self {
            Self::Ftp(node) => node.under_way(),
            Self::Program(node) => node.under_way(),
        }
    }

    /// Asks for a transfer; the answer is the request's number.
    fn request(&mut self, peer: PathId, send: &Send) -> Result<u64, String> {
        let (source, name) = (send.source.clone(), send.name.as_str());
        match self {
            Self::Ftp(node) => {
                let id = match send.kind.carries() {
                    Carried::Records => {
                        let ranges = records::ranges(&send.records);
                        let path = name.to_owned();
                        node.read_records(
                            peer,
                            &ReadControl { path, forced: false, ranges },
                            source,
                        )
                    }
                    Carried::Changes => node.update_by(peer, source),
                    Carried::Copy => node.copy(peer, &records::original_of(name), name),
                    Carried::File if send.kind.is_fetched() => node.get(peer, name, source),
                    Carried::File => node.put(peer, source, name),
                };
                id.map(|id| id.0).map_err(|error| error.to_string())
            }
            Self::Program(node) => {
                node.put(peer, source, name).map(|id| id.0).map_err(|error| error.to_string())
            }
        }
    }
}

impl Engine for Above {
    type Indication = Told;

    fn handle_input(&mut self, now: Time, input: Input<'_>) {
        match self {
            Self::Ftp(node) => node.handle_input(now, input),
            Self::Program(node) => node.handle_input(now, input),
        }
    }

    fn handle_timeout(&mut self, now: Time) {
        match self {
            Self::Ftp(node) => node.handle_timeout(now),
            Self::Program(node) => node.handle_timeout(now),
        }
    }

    fn poll_transmit(&mut self, now: Time, tx: &mut TxBuf) -> Option<Transmit> {
        match self {
            Self::Ftp(node) => node.poll_transmit(now, tx),
            Self::Program(node) => node.poll_transmit(now, tx),
        }
    }

    fn poll_effect(&mut self) -> Option<Effect> {
        match self {
            Self::Ftp(node) => node.poll_effect(),
            Self::Program(node) => node.poll_effect(),
        }
    }

    fn poll_indication(&mut self) -> Option<Told> {
        match self {
            Self::Ftp(node) => node.poll_indication().map(Told::Ftp),
            Self::Program(node) => node.poll_indication().map(Told::Program),
        }
    }

    fn poll_timeout(&self) -> Option<Deadline> {
        match self {
            Self::Ftp(node) => node.poll_timeout(),
            Self::Program(node) => node.poll_timeout(),
        }
    }
}

/// FTP, or a program, over TCP.
#[derive(Debug)]
pub struct OverTcpEngine {
    node: OverTcp<Above>,
    paths: BTreeMap<u64, PathId>,
    /// What it was asked for.
    requests: BTreeMap<u64, Asked>,
}

/// A request of this node's user.
#[derive(Clone, Debug)]
struct Asked {
    /// The file's name at the server.
    name: String,
    /// Whether the server sends it.
    is_fetched: bool,
}

/// What a node over TCP tells its user, with the name of the file where it is told of one.
#[derive(Clone, Debug, PartialEq)]
pub struct OverTcpIndication {
    /// What it told.
    pub told: Told,
    /// The file's name at the server.
    pub name: String,
    /// Whether the file leaves this node.
    pub outgoing: bool,
}

impl OverTcpEngine {
    /// The program with what is below.
    #[must_use]
    pub fn node(&self) -> &OverTcp<Above> {
        &self.node
    }

    pub(crate) fn under_way(&self) -> usize {
        self.node.above().under_way()
    }

    /// Counts of all its connections, summed.
    pub(crate) fn counts(&self) -> tcp::Counts {
        self.node.below().totals()
    }

    pub(crate) fn send(&mut self, now: Time, send: &Send) -> Result<(), String> {
        let known = self.paths.get(&send.destination).copied();
        let peer = known.ok_or_else(|| no_path(send.destination))?;
        let is_fetched = send.kind.is_fetched();
        // The request is known before its first indication is asked for.
        let id = self.node.call(now, |node| node.request(peer, send))?;
        self.requests.insert(id, Asked { name: send.name.clone(), is_fetched });
        Ok(())
    }

    fn indication(&mut self, told: Told) -> OverTcpIndication {
        let ours = |asked: Asked| (asked.name, !asked.is_fetched);
        let theirs = |name: &str, outgoing| Some((name.trim_start_matches('/').into(), outgoing));
        let file = match &told {
            Told::Ftp(told) => match told {
                ftp::Indication::Begun { request } => {
                    self.requests.get(&request.0).cloned().map(ours)
                }
                ftp::Indication::Finished { request, .. }
                | ftp::Indication::Failed { request, .. } => {
                    self.requests.remove(&request.0).map(ours)
                }
                ftp::Indication::Received { name, .. } | ftp::Indication::Changed { name, .. } => {
                    theirs(name, false)
                }
                ftp::Indication::Sent { name, .. } => theirs(name, true),
                ftp::Indication::Aborted { name, incoming, .. } => theirs(name, !incoming),
                ftp::Indication::LoggedIn { .. }
                | ftp::Indication::Answered { .. }
                | ftp::Indication::Missing { .. }
                | ftp::Indication::Refused { .. } => None,
            },
            Told::Program(told) => match told {
                programs::Indication::Begun { request }
                | programs::Indication::Echoed { request, .. } => {
                    self.requests.get(&request.0).cloned().map(ours)
                }
                programs::Indication::Finished { request, .. }
                | programs::Indication::Failed { request, .. } => {
                    self.requests.remove(&request.0).map(ours)
                }
                programs::Indication::Received { name, .. }
                | programs::Indication::Aborted { name, .. } => theirs(name, false),
                programs::Indication::Refused { .. } => None,
            },
        };
        let (name, outgoing) = file.unwrap_or_default();
        OverTcpIndication { told, name, outgoing }
    }
}

impl OverTcpIndication {
    /// How a transfer ended, if it tells of that.
    fn result(&self) -> Option<Result<(), String>> {
        match &self.told {
            Told::Ftp(told) => match told {
                ftp::Indication::Finished { missing, .. }
                | ftp::Indication::Received { missing, .. } => Some(match missing {
                    0 => Ok(()),
                    _ => Err(format!("{missing} octets did not come: zeros stand in their place")),
                }),
                ftp::Indication::Sent { .. } | ftp::Indication::Changed { .. } => Some(Ok(())),
                ftp::Indication::Failed { why, .. } => Some(Err(why.to_string())),
                ftp::Indication::Aborted { .. } => Some(Err(BROKE_OFF.to_owned())),
                ftp::Indication::Refused { .. } => Some(Err(NO_ROOM.to_owned())),
                ftp::Indication::LoggedIn { .. }
                | ftp::Indication::Begun { .. }
                | ftp::Indication::Missing { .. }
                | ftp::Indication::Answered { .. } => None,
            },
            Told::Program(told) => match told {
                programs::Indication::Finished { .. } | programs::Indication::Received { .. } => {
                    Some(Ok(()))
                }
                programs::Indication::Failed { why, .. } => Some(Err(why.to_string())),
                programs::Indication::Aborted { .. } => Some(Err(BROKE_OFF.to_owned())),
                programs::Indication::Refused { .. } => Some(Err(NO_ROOM.to_owned())),
                programs::Indication::Begun { .. } | programs::Indication::Echoed { .. } => None,
            },
        }
    }

    /// The end of a transfer, if it tells of one.
    #[must_use]
    pub fn end(&self) -> Option<End> {
        let result = self.result()?;
        let is_own = matches!(
            self.told,
            Told::Ftp(ftp::Indication::Finished { .. } | ftp::Indication::Failed { .. })
        );
        if is_own && self.name.is_empty() {
            // Of a control file: what it is for tells of itself.
            return None;
        }
        Some(End {
            at_sender: self.outgoing,
            name: self.name.clone(),
            success: result.is_ok(),
            // A server hears nothing of a file that was fetched.
            is_confirmed: !matches!(self.told, Told::Ftp(ftp::Indication::Sent { .. })),
            is_report: false,
            why: result.err().unwrap_or_else(|| "no error".to_owned()),
        })
    }

    /// The name of the file, if it tells that it may cross now.
    #[must_use]
    pub fn begins(&self) -> Option<&str> {
        let begins = matches!(
            self.told,
            Told::Ftp(ftp::Indication::Begun { .. })
                | Told::Program(programs::Indication::Begun { .. })
        );
        begins.then_some(self.name.as_str())
    }

    /// How long keys took to come back, if it tells of that, and the name of what they are of.
    #[must_use]
    pub fn latency(&self) -> Option<(&str, Latency)> {
        match &self.told {
            Told::Program(programs::Indication::Echoed { latency, .. }) => {
                Some((self.name.as_str(), *latency))
            }
            Told::Program(_) | Told::Ftp(_) => None,
        }
    }
}

const BROKE_OFF: &str = "the transfer broke off";
const NO_ROOM: &str = "there was no room, or nobody logged in in time";

impl Engine for OverTcpEngine {
    type Indication = OverTcpIndication;

    fn handle_input(&mut self, now: Time, input: Input<'_>) {
        self.node.handle_input(now, input);
    }

    fn handle_timeout(&mut self, now: Time) {
        self.node.handle_timeout(now);
    }

    fn poll_transmit(&mut self, now: Time, tx: &mut TxBuf) -> Option<Transmit> {
        self.node.poll_transmit(now, tx)
    }

    fn poll_effect(&mut self) -> Option<Effect> {
        self.node.poll_effect()
    }

    fn poll_indication(&mut self) -> Option<OverTcpIndication> {
        let told = self.node.poll_indication()?;
        Some(self.indication(told))
    }

    fn poll_timeout(&self) -> Option<Deadline> {
        self.node.poll_timeout()
    }
}
