//! FTP, and programs that are modelled, over TCP as a node of a simulated world: a host whose paths are
//! IP interfaces.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use engine::PathId;
use proto::programs::{self, Tool, Version};
use proto::stack;
use proto::{ftp, tcp};
use serde::{Deserialize, Serialize};

use crate::protocol::Protocol;
use crate::settings::tcp::{Congestion, TcpBuffers};
use crate::text::SpecError;

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

    /// Sets the silence after which a transfer is given up.
    pub(crate) fn set_silence(&mut self, silence: Duration) {
        self.ftp.client.timeout = silence;
        self.ftp.server.idle = silence;
        self.ftp.server.data_timeout = silence;
        if let Some(program) = &mut self.program {
            program.timeout = silence;
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
        crate::adapter::no_profile(protocol.kind.name(), name, &known)
    })
}
