//! FTP over TCP as a node of a simulated world: a host whose paths are IP interfaces.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use engine::{Deadline, Effect, Engine, Input, PathId, Rng, Time, Transmit, TxBuf};
use proto::stack::{self, OverTcp};
use proto::{ftp, tcp};

use crate::engines::{End, Send, no_path};
use crate::protocol::Protocol;
use crate::settings::ftp::Congestion;
use crate::text::SpecError;

/// The port at which a server of a scenario listens unless it is told otherwise.
pub const PORT: u16 = 21;

/// What an FTP node is told.
#[derive(Clone, Debug, Default)]
pub struct FtpConfig {
    /// What it does as client and server.
    pub ftp: ftp::Config,
    /// What is below: TCP, and the addresses of this host and of others.
    pub streams: stack::Config,
    /// The paths to others, by their numbers in the scenario.
    pub paths: BTreeMap<u64, PathId>,
}

impl FtpConfig {
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

    /// The profiles there are.
    #[must_use]
    pub fn profiles() -> Vec<&'static str> {
        let kernels = tcp::Profile::ALL.into_iter().map(tcp::Profile::name);
        let controls = Congestion::ALL.iter().map(|congestion| congestion.name());
        ["default"].into_iter().chain(kernels).chain(controls).collect()
    }

    /// Says where this host is, and where others find its server.
    pub(crate) fn set_own(&mut self, address: Ipv4Addr, port: u16) {
        let address = IpAddr::V4(address);
        self.streams.addresses = vec![address];
        self.streams.tcp.addresses = vec![address];
        self.streams.listen = vec![SocketAddr::new(address, port)];
    }

    /// Says where the peer of a path is, and over which interface it is reached.
    pub(crate) fn set_peer(&mut self, path: PathId, (address, port): (Ipv4Addr, u16), by: PathId) {
        let prefix = IpAddr::V4(address);
        self.streams.peers.insert(path, SocketAddr::new(prefix, port));
        self.streams.tcp.routes.push(tcp::Route { prefix, bits: 32, path: by });
    }

    /// Says after which silence a transfer is given up.
    pub(crate) fn set_inactivity(&mut self, silence: Duration) {
        self.ftp.client.timeout = silence;
        self.ftp.server.idle = silence;
        self.ftp.server.data_timeout = silence;
    }

    /// An engine so configured.
    #[must_use]
    pub fn build(&self, rng: Rng) -> FtpEngine {
        let node = ftp::Node::new(self.ftp.clone());
        FtpEngine {
            node: OverTcp::new(self.streams.clone(), node, rng),
            paths: self.paths.clone(),
            names: BTreeMap::new(),
        }
    }
}

/// The configuration that a protocol's profile names.
///
/// # Errors
///
/// When there is no such profile.
pub fn config(protocol: &Protocol) -> Result<FtpConfig, SpecError> {
    let name = protocol.profile.as_deref();
    FtpConfig::of_profile(name).ok_or_else(|| {
        let name = name.unwrap_or_default();
        crate::engines::no_profile(protocol, name, &FtpConfig::profiles())
    })
}

/// FTP over TCP.
#[derive(Debug)]
pub struct FtpEngine {
    node: OverTcp<ftp::Node>,
    paths: BTreeMap<u64, PathId>,
    /// What files that it was asked for are called.
    names: BTreeMap<ftp::RequestId, String>,
}

/// What an FTP node tells its user, with the name of the file where it is told of one.
#[derive(Clone, Debug, PartialEq)]
pub struct FtpIndication {
    /// What it told.
    pub told: ftp::Indication,
    /// The file's name at the server.
    pub name: String,
}

impl FtpEngine {
    /// FTP with what is below.
    #[must_use]
    pub fn node(&self) -> &OverTcp<ftp::Node> {
        &self.node
    }

    pub(crate) fn under_way(&self) -> usize {
        self.node.above().under_way()
    }

    /// Segments that were sent again.
    pub(crate) fn retransmissions(&self) -> u64 {
        self.node.below().totals().retransmissions
    }

    pub(crate) fn send(&mut self, now: Time, send: &Send) -> Result<(), String> {
        let known = self.paths.get(&send.destination).copied();
        let peer = known.ok_or_else(|| no_path(send.destination))?;
        let put = |node: &mut ftp::Node| node.put(peer, send.source.clone(), &send.name);
        // The request has its name before its first indication is asked for.
        let id = self.node.call(now, put).map_err(|error| error.to_string())?;
        self.names.insert(id, send.name.clone());
        Ok(())
    }

    fn indication(&mut self, told: ftp::Indication) -> FtpIndication {
        let name = match &told {
            ftp::Indication::Begun { request } => self.names.get(request).cloned(),
            ftp::Indication::Finished { request, .. } | ftp::Indication::Failed { request, .. } => {
                self.names.remove(request)
            }
            ftp::Indication::Received { name, .. }
            | ftp::Indication::Sent { name, .. }
            | ftp::Indication::Aborted { name, .. } => {
                Some(name.trim_start_matches('/').to_owned())
            }
            ftp::Indication::LoggedIn { .. } | ftp::Indication::Refused { .. } => None,
        };
        FtpIndication { told, name: name.unwrap_or_default() }
    }
}

impl FtpIndication {
    /// The end of a transfer, if it tells of one.
    #[must_use]
    pub fn end(&self) -> Option<End> {
        let (at_sender, result) = match &self.told {
            ftp::Indication::Finished { .. } => (true, Ok(())),
            ftp::Indication::Failed { why, .. } => (true, Err(why.to_string())),
            ftp::Indication::Received { .. } => (false, Ok(())),
            ftp::Indication::Aborted { .. } => (false, Err("the transfer broke off".to_owned())),
            ftp::Indication::Refused { .. } => (false, Err("there was no room".to_owned())),
            ftp::Indication::LoggedIn { .. }
            | ftp::Indication::Begun { .. }
            | ftp::Indication::Sent { .. } => return None,
        };
        Some(End {
            at_sender,
            name: self.name.clone(),
            success: result.is_ok(),
            is_confirmed: true,
            is_report: false,
            why: result.err().unwrap_or_else(|| "no error".to_owned()),
        })
    }

    /// The name of the file, if it tells that it may cross now.
    #[must_use]
    pub fn begins(&self) -> Option<&str> {
        matches!(self.told, ftp::Indication::Begun { .. }).then_some(self.name.as_str())
    }
}

impl Engine for FtpEngine {
    type Indication = FtpIndication;

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

    fn poll_indication(&mut self) -> Option<FtpIndication> {
        let told = self.node.poll_indication()?;
        Some(self.indication(told))
    }

    fn poll_timeout(&self) -> Option<Deadline> {
        self.node.poll_timeout()
    }
}

/// What an IP packet is, where it is one of TCP: what of SYN, FIN and RST it carries, or that it is
/// data or an acknowledgment alone, and its sequence number.
pub(crate) fn describe(packet: &[u8]) -> (String, Option<u64>) {
    use wire::ip::Ipv4;
    use wire::tcp::Segment;

    let segment = match Ipv4::decode(packet) {
        Ok((header, payload)) => match header.protocol {
            wire::tcp::PROTOCOL | wire::scps::PROTOCOL => Segment::decode_unchecked(payload),
            wire::scps::COMPRESSED_PROTOCOL => return describe_compressed(payload),
            _ => return ("not TCP".to_owned(), None),
        },
        Err(error) => return (format!("not TCP: {error}"), None),
    };
    let segment = match segment {
        Ok(segment) => segment,
        Err(error) => return (format!("not TCP: {error}"), None),
    };
    let parts = name(segment.header.flags, !segment.payload.is_empty());
    (parts, Some(u64::from(segment.header.sequence)))
}

/// The same of a packet with a compressed header, whose sequence number may be left out.
fn describe_compressed(packet: &[u8]) -> (String, Option<u64>) {
    match wire::scps::Compressed::decode_unchecked(packet) {
        Ok((packet, _)) => {
            let parts = name(packet.head.flags, !packet.payload.is_empty());
            (parts, packet.head.sequence.map(u64::from))
        }
        Err(error) => (format!("not SCPS-TP: {error}"), None),
    }
}

fn name(flags: wire::tcp::Flags, has_data: bool) -> String {
    use wire::tcp::Flags;

    let mut parts: Vec<&str> = [(Flags::SYN, "SYN"), (Flags::FIN, "FIN"), (Flags::RST, "RST")]
        .into_iter()
        .filter(|(flag, _)| flags.contains(*flag))
        .map(|(_, name)| name)
        .collect();
    if has_data {
        parts.push("data");
    }
    if parts.is_empty() || (flags.contains(Flags::SYN | Flags::ACK)) {
        parts.push("ACK");
    }
    parts.join(" ")
}
