//! FTP and modelled programs over TCP, as a node of a simulated world: a host whose paths are IP
//! interfaces.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use engine::PathId;
use models::ftp;
use models::programs::{self, Tool, Version};
use session::settings::form::Refusal;
use session::settings::{Field, Optional, Settings, Visited, Visitor};
use session::visit;
use stack::{self, Host};
use tcp::scps::Bets;

use crate::contract::{Feature, Protocol};
use crate::settings::Changes;
use crate::settings::tcp::{Congestion, TcpBuffers};
use crate::text::SpecError;

/// Configuration of a node over TCP.
#[derive(Clone, Debug, Default)]
pub struct OverTcpConfig {
    /// Settings of client and server.
    pub ftp: ftp::Config,
    /// Program that replaces FTP.
    pub program: Option<programs::Config>,
    /// Layer below: TCP, with the addresses of this host and of its peers.
    pub streams: stack::Config,
    /// The paths to others, by their numbers in the scenario.
    pub paths: BTreeMap<u64, PathId>,
}

/// Changes of a node over TCP: FTP, SCPS-FP, or the model of a program.
pub type OverTcpSettings = Changes<OverTcpConfig>;

impl OverTcpConfig {
    /// Configuration of a profile: a historic kernel, or the current one with a congestion control
    /// of that name. Slowlight's own is that of a current kernel.
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

    /// Configuration of a host or gateway: the profile's, with unlimited buffers, as in the
    /// emulator. Profiles of former kernels keep their buffers.
    #[must_use]
    pub fn of_host(profile: Option<&str>) -> Option<Self> {
        let mut config = Self::of_profile(profile)?;
        let (options, today) = (&mut config.streams.options, tcp::Options::default());
        if options.receive_buffer == today.receive_buffer {
            TcpBuffers::default().apply(options);
        }
        Some(config)
    }

    /// The configuration of a protocol: Its profile is a release of FTP or of a program, a profile
    /// of TCP, or both: `openssh-4.2+linux-2.6.18`.
    fn of_protocol(protocol: &Protocol) -> Option<Self> {
        let name = protocol.profile.as_deref();
        let Some(tool) = protocol.kind.top().program else {
            let mut config = Self::of_host(name)?;
            if protocol.kind.has(Feature::Scps) {
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

    /// Available profiles.
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

impl Settings for OverTcpConfig {
    fn visit(&mut self, visitor: &mut dyn Visitor) -> Visited {
        let Self { ftp, program, streams, .. } = self;
        let mut none = programs::Config::new(Tool::Scp, Version::default());
        match program {
            None => {
                ftp.visit(visitor)?;
                let client = &mut ftp.client;
                visit! { visitor;
                    /// Maximum idle time of a client.
                    "timeout": client.timeout as Span [Interval],
                }
                match &mut client.scps {
                    Some(scps) => visit_scps(scps, &mut streams.best_effort, visitor)?,
                    None => refuse_scps(&mut Refusal::new(visitor, " is for scps-fp"))?,
                }
                let why = " is for scp, sftp, rsync and telnet";
                visitor.absent(PROGRAM, &mut none, why)?;
            }
            Some(program) => {
                ftp.visit(&mut Refusal::new(visitor, " is for ftp"))?;
                refuse_scps(&mut Refusal::new(visitor, " is for scps-fp"))?;
                visit! { visitor;
                    /// Maximum idle time of either end.
                    "timeout": program.timeout as Span [Interval],
                }
                visitor.table(PROGRAM, program)?;
            }
        }
        let mut host = Host(&mut *streams);
        visit! { visitor;
            /// Settings of TCP that belong to the host, not to a connection.
            "host": host as Table,
        }
        visit! { visitor;
            /// TCP.
            "tcp": streams.options as Table,
        }
        Ok(())
    }
}

const PROGRAM: &Field =
    &Field { key: "program", doc: &[" Program that is modelled in place of FTP."], bound: None };

fn visit_scps(scps: &mut ftp::ScpsClient, bets: &mut Bets, visitor: &mut dyn Visitor) -> Visited {
    scps.visit(visitor)?;
    let doc =
        &[" Best-effort data connections: both sides continue without what is lost, or `off`."];
    let field = Field { key: "bets", doc, bound: None };
    visitor.optional(&field, &mut BestEffort { is_on: &mut scps.best_effort, bets })
}

fn refuse_scps(refusal: &mut Refusal<'_>) -> Visited {
    visit_scps(&mut ftp::ScpsClient::default(), &mut Bets::default(), refusal)
}

/// Best-effort data connections of SCPS-FP.
struct BestEffort<'a> {
    is_on: &'a mut bool,
    bets: &'a mut Bets,
}

impl Optional for BestEffort<'_> {
    fn on(&mut self) -> &mut dyn Settings {
        *self.is_on = true;
        self.bets
    }

    fn off(&mut self) {
        *self.is_on = false;
    }

    fn is_on(&self) -> bool {
        *self.is_on
    }
}

/// Sets the address and the listening port of a host.
pub fn take_place(streams: &mut stack::Config, address: Ipv4Addr, port: u16) {
    let address = IpAddr::V4(address);
    streams.addresses = vec![address];
    streams.tcp.addresses = vec![address];
    streams.listen = vec![SocketAddr::new(address, port)];
}

/// Sets the address of the peer of a path, and the interface to it.
pub fn meet(streams: &mut stack::Config, path: PathId, address: Ipv4Addr, port: u16, by: PathId) {
    let prefix = IpAddr::V4(address);
    streams.peers.insert(path, SocketAddr::new(prefix, port));
    streams.tcp.routes.push(tcp::Route { prefix, bits: 32, path: by });
}

/// Idle time after which a client of SCPS-FP retries.
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
        let releases = releases.filter(|_| protocol.kind.top().program.is_some());
        let known: Vec<_> = releases.chain(OverTcpConfig::profiles()).collect();
        crate::adapter::no_profile(protocol.kind.name(), name, &known)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_reach_the_stack_and_are_written_again() {
        let text = "[tcp]\nkeep_alive = { idle = \"10 s\", probes = 3 }\n[host]\nrobust = false\n\
                    half_open = 7\ncookies = \"always\"\ntime_wait = \"5 s\"\n";
        let settings: OverTcpSettings = toml::from_str(text).unwrap();
        let mut config = OverTcpConfig::of_profile(None).unwrap();
        settings.apply(&mut config).unwrap();
        let streams = &config.streams;
        let backlog = tcp::Backlog { half_open: 7, cookies: tcp::Cookies::Always };
        assert_eq!(streams.backlog, backlog);
        assert!(!streams.tcp.robust);
        assert_eq!(streams.tcp.time_wait.as_secs(), 5);
        let keep_alive = streams.options.keep_alive.unwrap();
        assert_eq!((keep_alive.idle.as_secs(), keep_alive.interval.as_secs()), (10, 75));
        assert_eq!(keep_alive.probes, 3);
        let mut again = OverTcpConfig::of_profile(None).unwrap();
        OverTcpSettings::from_config(&config).apply(&mut again).unwrap();
        assert_eq!(again.streams.options, streams.options);
        assert_eq!(again.streams.backlog, streams.backlog);
        let off: OverTcpSettings = toml::from_str("[tcp]\nkeep_alive = \"off\"\n").unwrap();
        off.apply(&mut again).unwrap();
        assert_eq!(again.streams.options.keep_alive, None);
    }
}
