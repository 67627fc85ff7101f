//! A gateway between real networks, configured by TOML: which streams its proxy intercepts, and
//! the TCP of each side.

mod ports;
#[cfg(test)]
mod tests;

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::Path;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use session::settings::form::{self, Off};
use session::settings::{Bound, Value};
use transport::adapter::over_tcp::config::OverTcpConfig;
use transport::quantity::{Rate, Size, Span};
use transport::settings::tcp::TcpSettings;
use transport::settings::{self, read_as, write_as};
use transport::text::{self, SpecError};

pub use self::ports::Ports;

/// Configuration of a gateway.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Gateway {
    /// Name, used in its kernel rules. Gateways of one network namespace have different ones.
    #[serde(default = "name")]
    pub name: String,
    /// The side of clients and servers.
    pub lan: Lan,
    /// The side of the long link.
    pub wan: Wan,
    /// Streams to intercept; the others are forwarded.
    #[serde(default)]
    pub intercept: Intercept,
    /// Limits and timeouts.
    #[serde(default)]
    pub limits: Limits,
    /// Numbers used in kernel rules.
    #[serde(default)]
    pub rules: Rules,
}

/// The side of clients and servers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Lan {
    /// Network interfaces.
    pub interfaces: Vec<String>,
    /// Options of the kernel's TCP.
    #[serde(default)]
    pub kernel: KernelTcp,
}

/// The side of the long link.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Wan {
    /// Network interfaces.
    pub interfaces: Vec<String>,
    /// Options of the kernel's TCP, if this side uses it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kernel: Option<KernelTcp>,
    /// Slowlight's own TCP on this side, if used.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub own: Option<OwnTcp>,
}

/// Slowlight's own TCP on a side, in place of the kernel's.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct OwnTcp {
    /// Base settings: a profile of TCP, or the name of a congestion control for a modern TCP with
    /// it.
    pub profile: String,
    /// Total rate of all connections, where the profile is SCPS-TP, which has rates.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate: Option<Rate>,
    /// Settings that differ from the profile.
    pub tcp: TcpSettings,
    /// Name of the TUN device between it and the kernel, which forwards its packets.
    pub device: String,
}

impl Default for OwnTcp {
    fn default() -> Self {
        Self {
            profile: tcp::Profile::Modern.name().to_owned(),
            rate: None,
            tcp: TcpSettings::default(),
            device: "pep-wan".to_owned(),
        }
    }
}

/// Default keep-alive of a gateway. A side that only receives would otherwise not detect that its
/// peer has died and that the reset was lost.
pub const KEEP_ALIVE: tcp::KeepAlive =
    tcp::KeepAlive { idle: Duration::from_secs(60), interval: Duration::from_secs(15), probes: 4 };

/// Options of the kernel's TCP; the default is the network namespace's.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct KernelTcp {
    /// Congestion control by its kernel name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub congestion: Option<String>,
    /// Fixed size of the send buffer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub send_buffer: Option<Size>,
    /// Fixed size of the receive buffer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub receive_buffer: Option<Size>,
    /// Maximum unsent bytes in the kernel.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unsent: Option<Size>,
    /// Maximum rate of one connection.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate: Option<Rate>,
    /// Maximum segment size in bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mss: Option<u16>,
    /// Idle time before keep-alive probes, or `off`; default: [`KEEP_ALIVE`].
    #[serde(
        deserialize_with = "read_as::<Off<form::Span>, _, _>",
        serialize_with = "write_as::<Off<form::Span>, _, _>"
    )]
    pub keep_alive: Option<Duration>,
    /// Time without acknowledgment after which a peer is given up.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout: Option<Span>,
}

/// Streams to intercept.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Intercept {
    /// Ports of the servers.
    pub ports: Ports,
    /// Ports excluded from them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub except: Option<Ports>,
    /// Whether IPv6 connections are intercepted; default: if this host forwards IPv6.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ipv6: Option<bool>,
}

/// Limits and timeouts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Limits {
    /// Maximum concurrent connections; the client of a further one is reset.
    pub connections: usize,
    /// Buffer for each direction of a connection, in addition to the kernel's buffers.
    pub buffer: Size,
    /// Buffer of all connections together.
    pub buffer_total: Size,
    /// Time limit for a server to accept.
    pub connect_timeout: Span,
    /// Idle time after which both ends are reset.
    pub idle: Span,
    /// Time for existing connections to end when the gateway is stopped.
    pub drain: Span,
    /// Time for which kernel rules stay after the last connection: the kernel needs them for its
    /// last packets of ended connections.
    pub linger: Span,
}

impl Default for Limits {
    fn default() -> Self {
        let pep = pep::Config::default();
        Self {
            connections: pep.connections,
            buffer: Size(pep.buffer as u64),
            buffer_total: Size(pep.buffer_total as u64),
            connect_timeout: Span(pep.connect_timeout),
            idle: Span(pep.idle.unwrap_or(Duration::from_secs(7200))),
            drain: Span(Duration::from_secs(30)),
            linger: Span(Duration::from_secs(60)),
        }
    }
}

/// Numbers used in kernel rules. A gateway uses two loopback ports, packet marks and routing
/// tables: one of each, and the next one too if a side has slowlight's own TCP.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Rules {
    /// First of its ports.
    pub port: u16,
    /// First of its packet marks.
    pub mark: u32,
    /// First of its routing tables.
    pub table: u32,
    /// Priority of its routing rule.
    pub priority: u32,
}

impl Default for Rules {
    fn default() -> Self {
        // 0x5e9 is "sep"; none of these numbers is in common use.
        Self { port: 7430, mark: 0x5e9, table: 1513, priority: 1513 }
    }
}

fn name() -> String {
    "pep".to_owned()
}

/// Maximum length of a network interface's name (`IFNAMSIZ` without its zero).
const INTERFACE_MAX: usize = 15;

/// Minimum buffer of a direction: the longest piece read at once.
const BUFFER_MIN: u64 = engine::Receive::PIECE_MAX as u64;

/// Maximum connections: each takes two descriptors.
const CONNECTIONS_MAX: usize = 500_000;

/// Valid routing tables; lower numbers than 1 and higher ones are the system's own.
const TABLES: std::ops::RangeInclusive<u32> = 1..=0x7fff_fffe;
const OWN_TABLES: std::ops::RangeInclusive<u32> = 252..=255;

impl Gateway {
    /// Reads the file at `path`.
    ///
    /// # Errors
    ///
    /// The fault and its location.
    pub fn read(path: &Path) -> Result<Self, SpecError> {
        let gateway: Self = text::read(path)?;
        gateway.check().map_err(|error| error.within(path))?;
        Ok(gateway)
    }

    /// Parses a text that came from `origin`.
    ///
    /// # Errors
    ///
    /// The fault and its location.
    pub fn parse(text: &str, origin: &str) -> Result<Self, SpecError> {
        let gateway: Self = text::parse(text, origin)?;
        gateway.check().map_err(|error| error.within(Path::new(origin)))?;
        Ok(gateway)
    }

    /// Returns the addresses that streams are diverted to.
    pub fn listening(&self) -> impl Iterator<Item = SocketAddr> + use<> {
        self.rules.ports().into_iter().flat_map(|port| {
            [(Ipv4Addr::LOCALHOST, port).into(), (Ipv6Addr::LOCALHOST, port).into()]
        })
    }

    /// Returns the options of each connection of slowlight's own TCP, if this side uses it.
    ///
    /// # Errors
    ///
    /// A value is out of its range.
    pub fn own_options(&self) -> Result<Option<tcp::Options>, SpecError> {
        let Some(own) = &self.wan.own else { return Ok(None) };
        let profile = OverTcpConfig::of_host(Some(&own.profile)).ok_or_else(|| {
            let names = OverTcpConfig::profiles();
            let near = text::did_you_mean(&own.profile, names.iter().copied());
            SpecError::invalid(format!(
                "wan.own.profile: there is no profile {:?}{near} (profiles: {})",
                own.profile,
                names.join(", ")
            ))
        })?;
        let mut options = profile.streams.options;
        options.keep_alive = Some(KEEP_ALIVE);
        // Routers may drop long packets silently, and only the connection can detect it.
        options.mtu_probing = true;
        own.tcp.apply(&mut options).map_err(|error| error.below("tcp"))?;
        if let Some(rate) = own.rate {
            let Some(scps) = &mut options.scps else {
                return Err(SpecError::invalid(format!(
                    "wan.own.rate: {} has no rate; SCPS-TP has, as the profile scps-rate",
                    own.profile
                )));
            };
            let before = scps.rate.unwrap_or_default();
            scps.rate = Some(tcp::scps::RateControl { bps: Some(rate.bps()), ..before });
        }
        // A TUN device has no rate.
        let has_rate = |scps: tcp::scps::Scps| scps.rate.is_some_and(|rate| rate.bps.is_some());
        if options.congestion == (tcp::cc::Algorithm::None { window: None })
            && options.scps.is_some_and(|scps| !has_rate(scps))
        {
            return Err(SpecError::invalid(format!(
                "wan.own: {} sends at a fixed rate; set wan.own.rate to the share of the link that \
                 it may use, as rate = \"7.6 Mbit/s\" of 8 Mbit/s",
                own.profile
            )));
        }
        Ok(Some(options))
    }

    fn check(&self) -> Result<(), SpecError> {
        let invalid = |message: String| Err(SpecError::invalid(message));
        let letters = |c: char| c.is_ascii_alphanumeric() || c == '_';
        if self.name.is_empty() || self.name.len() > 32 || !self.name.chars().all(letters) {
            return invalid(format!(
                "name {:?} is not of 1 to 32 letters, digits and _",
                self.name
            ));
        }
        self.check_interfaces()?;
        self.lan.kernel.check("lan.kernel")?;
        if let Some(kernel) = &self.wan.kernel {
            kernel.check("wan.kernel")?;
        }
        if let Some(own) = &self.wan.own {
            if self.wan.kernel.is_some() {
                return invalid(
                    "wan.kernel has no effect beside wan.own, whose settings are in wan.own.tcp; \
                     remove one of the two tables"
                        .to_owned(),
                );
            }
            check_interface("wan.own.device", &own.device)?;
            self.own_options()?;
        }
        if self.intercept.taken().is_empty() {
            return invalid(
                "intercept: no port is left; add to `ports`, or remove from `except`".to_owned(),
            );
        }
        self.limits.check()?;
        self.rules.check()
    }

    fn check_interfaces(&self) -> Result<(), SpecError> {
        let invalid = |message: String| Err(SpecError::invalid(message));
        for (key, interfaces) in
            [("lan.interfaces", &self.lan.interfaces), ("wan.interfaces", &self.wan.interfaces)]
        {
            if interfaces.is_empty() {
                return invalid(format!("{key} names no interface"));
            }
            for interface in interfaces {
                check_interface(key, interface)?;
            }
        }
        let both = self.lan.interfaces.iter().find(|name| self.wan.interfaces.contains(name));
        match both {
            Some(name) => invalid(format!(
                "{name} is of both sides; a gateway stands between two networks, each with an \
                 interface of its own"
            )),
            None => Ok(()),
        }
    }

    /// Returns the configuration of the proxy.
    #[must_use]
    pub fn proxy(&self) -> pep::Config {
        let limits = &self.limits;
        let bytes = |size: Size| usize::try_from(size.bytes()).unwrap_or(usize::MAX);
        pep::Config {
            connections: limits.connections,
            buffer: bytes(limits.buffer),
            buffer_total: bytes(limits.buffer_total),
            connect_timeout: limits.connect_timeout.duration(),
            idle: Some(limits.idle.duration()),
            transparent: true,
            // A connection to the divert address would be connected to itself.
            own: self.listening().collect(),
        }
    }
}

/// Checks an interface name, which is inserted into rules verbatim.
fn check_interface(key: &str, name: &str) -> Result<(), SpecError> {
    let sound = |c: char| c.is_ascii_alphanumeric() || "._-@:".contains(c);
    if (1..=INTERFACE_MAX).contains(&name.len()) && name.chars().all(sound) {
        return Ok(());
    }
    Err(SpecError::invalid(format!("{key}: invalid interface name {name:?}")))
}

impl Default for KernelTcp {
    fn default() -> Self {
        Self {
            congestion: None,
            send_buffer: None,
            receive_buffer: None,
            unsent: None,
            rate: None,
            mss: None,
            keep_alive: Some(KEEP_ALIVE.idle),
            timeout: None,
        }
    }
}

impl KernelTcp {
    fn check(&self, table: &str) -> Result<(), SpecError> {
        let invalid = |message: String| Err(SpecError::invalid(message));
        let sizes = [
            ("send_buffer", self.send_buffer),
            ("receive_buffer", self.receive_buffer),
            ("unsent", self.unsent),
        ];
        for (key, size) in sizes {
            let size = size.map(Size::bytes);
            if size.is_some_and(|size| !(1024..=1 << 30).contains(&size)) {
                return invalid(format!("{table}.{key} is not between 1 KiB and 1 GiB"));
            }
        }
        if self.rate.is_some_and(|rate| rate.bps() < 1000) {
            return invalid(format!("{table}.rate is less than 1 kbit/s"));
        }
        if self.mss.is_some_and(|mss| !(88..=32_767).contains(&mss)) {
            return invalid(format!(
                "{table}.mss is not between 88 and 32767, as the kernel has it"
            ));
        }
        if self.congestion.as_ref().is_some_and(|name| !(1..=15).contains(&name.len())) {
            return invalid(format!("{table}.congestion: invalid name of a congestion control"));
        }
        let timeout = self.timeout.map(Span::duration);
        let times = [("keep_alive", self.keep_alive), ("timeout", timeout)];
        for (key, time) in times {
            let second = Duration::from_secs(1);
            let (least, most) = (second, 32_767 * second);
            if time.is_some_and(|time| !(least..=most).contains(&time)) {
                return invalid(format!("{table}.{key} is not between 1 s and 32767 s"));
            }
        }
        Ok(())
    }
}

impl Intercept {
    /// Returns the intercepted ports.
    #[must_use]
    pub fn taken(&self) -> Ports {
        match &self.except {
            Some(except) => self.ports.without(except),
            None => self.ports.clone(),
        }
    }

    /// Whether IPv6 connections are intercepted.
    #[must_use]
    pub fn takes_ipv6(&self) -> bool {
        self.ipv6.unwrap_or(true)
    }
}

impl Limits {
    fn check(&self) -> Result<(), SpecError> {
        let invalid = |message: String| Err(SpecError::invalid(message));
        if !(1..=CONNECTIONS_MAX).contains(&self.connections) {
            return invalid(format!(
                "limits.connections is {}; it must be from 1 to {CONNECTIONS_MAX}",
                self.connections
            ));
        }
        let buffer = Value::Size(self.buffer.bytes());
        settings::check("limits.buffer", Bound::Least(BUFFER_MIN), &buffer)?;
        for (key, time) in [("connect_timeout", self.connect_timeout), ("idle", self.idle)] {
            if time.duration() < Duration::from_millis(100) {
                return invalid(format!("limits.{key} is {time}; it must be at least 100 ms"));
            }
        }
        Ok(())
    }
}

impl Rules {
    fn check(self) -> Result<(), SpecError> {
        let invalid = |message: &str| Err(SpecError::invalid(message));
        if self.port == 0 || self.port == u16::MAX {
            return invalid("rules.port is not between 1 and 65534");
        }
        if self.mark == 0 || self.mark == u32::MAX {
            return invalid(
                "rules.mark is 0, which unmarked packets have, or the highest number; choose another",
            );
        }
        if !TABLES.contains(&self.table) || OWN_TABLES.contains(&self.table) {
            return invalid(
                "rules.table is 0 or from 252 to 255, tables of the system; choose another",
            );
        }
        if !(1..32_766).contains(&self.priority) {
            return invalid("rules.priority is not between 1 and 32765, before the main table's");
        }
        Ok(())
    }

    /// Returns the ports at which streams of the LAN side and of the WAN side arrive.
    #[must_use]
    pub fn ports(self) -> [u16; 2] {
        [self.port, self.port + 1]
    }
}
