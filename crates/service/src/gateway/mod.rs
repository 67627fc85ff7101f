//! A gateway between real networks, as TOML describes it: which streams a proxy takes, and how each
//! side carries them.

mod ports;
#[cfg(test)]
mod tests;

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::Path;
use std::time::Duration;

use proto::settings::form::{self, Off};
use proto::settings::{Bound, Value};
use proto::tcp;
use serde::{Deserialize, Serialize};
use transport::adapter::over_tcp::config::OverTcpConfig;
use transport::quantity::{Rate, Size, Span};
use transport::settings::tcp::TcpSettings;
use transport::settings::{self, read_as, write_as};
use transport::text::{self, SpecError};

pub use self::ports::Ports;

/// What a gateway is told.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Gateway {
    /// Its name, which its rules in the kernel carry. Gateways of one network namespace have
    /// different ones.
    #[serde(default = "name")]
    pub name: String,
    /// The side of clients and servers.
    pub lan: Lan,
    /// The side of the long link.
    pub wan: Wan,
    /// Which streams are taken; the others are forwarded as they are.
    #[serde(default)]
    pub intercept: Intercept,
    /// Bounds, and how long things may take.
    #[serde(default)]
    pub limits: Limits,
    /// What the rules in the kernel use.
    #[serde(default)]
    pub rules: Rules,
}

/// The side of clients and servers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Lan {
    /// The network interfaces.
    pub interfaces: Vec<String>,
    /// How the kernel's TCP is set.
    #[serde(default)]
    pub kernel: KernelTcp,
}

/// The side of the long link.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Wan {
    /// The network interfaces.
    pub interfaces: Vec<String>,
    /// Settings of the kernel's TCP, if that is this side's and they are given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kernel: Option<KernelTcp>,
    /// That this side's TCP is slowlight's own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub own: Option<OwnTcp>,
}

/// Slowlight's own TCP on a side, in place of the kernel's.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct OwnTcp {
    /// With whose settings it begins: a profile of TCP, or a congestion control's name for TCP of
    /// today with that.
    pub profile: String,
    /// What all connections together send, where the profile's TCP is SCPS-TP, which has rates.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate: Option<Rate>,
    /// What is different from these.
    pub tcp: TcpSettings,
    /// The name of the TUN device between it and the kernel, which forwards its packets.
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

/// How a gateway asks idle peers whether they are there. One that only receives does not hear otherwise
/// that its peer has died and that the reset which said so was lost.
pub const KEEP_ALIVE: tcp::KeepAlive =
    tcp::KeepAlive { idle: Duration::from_secs(60), interval: Duration::from_secs(15), probes: 4 };

/// How the kernel's TCP is set; what is left out stays as the network namespace has it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct KernelTcp {
    /// Congestion control, as the kernel names it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub congestion: Option<String>,
    /// The send buffer, which does not grow then.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub send_buffer: Option<Size>,
    /// The receive buffer, which does not grow then.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub receive_buffer: Option<Size>,
    /// Bytes that may wait in the kernel before they are sent the first time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unsent: Option<Size>,
    /// The most that one connection sends.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate: Option<Rate>,
    /// The longest segment, in bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mss: Option<u16>,
    /// Asking an idle peer after so long whether it is there, or `off`; as [`KEEP_ALIVE`] if left out.
    #[serde(
        deserialize_with = "read_as::<Off<form::Span>, _, _>",
        serialize_with = "write_as::<Off<form::Span>, _, _>"
    )]
    pub keep_alive: Option<Duration>,
    /// Giving up a peer that acknowledges nothing for so long.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout: Option<Span>,
}

/// Which streams are taken.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Intercept {
    /// The servers' ports.
    pub ports: Ports,
    /// Those of them that are left alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub except: Option<Ports>,
    /// Whether connections over IPv6 are taken; by default if this host forwards IPv6.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ipv6: Option<bool>,
}

/// Bounds, and how long things may take.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Limits {
    /// Connections at one time; the client of a further one is reset.
    pub connections: usize,
    /// Bytes that are held for each direction of a connection, beside the kernel's buffers.
    pub buffer: Size,
    /// Bytes that are held for all together.
    pub buffer_total: Size,
    /// How long a server may take to accept.
    pub connect_timeout: Span,
    /// After so long without a byte both ends are reset.
    pub idle: Span,
    /// How long connections may go on that are there when the end is asked for.
    pub drain: Span,
    /// How long after the last connection the kernel is still told which packets are the gateway's:
    /// what it has to send for connections that are over needs that.
    pub linger: Span,
}

impl Default for Limits {
    fn default() -> Self {
        let pep = proto::pep::Config::default();
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

/// What the rules in the kernel use. A gateway takes two ports of the loopback address, marks of
/// packets and routing tables for itself: one of each, and the next one too where the TCP of a side is
/// slowlight's own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Rules {
    /// The first of its ports.
    pub port: u16,
    /// The first mark of packets that are for it.
    pub mark: u32,
    /// The number of its first routing table.
    pub table: u32,
    /// The place of its rule among the routing rules.
    pub priority: u32,
}

impl Default for Rules {
    fn default() -> Self {
        // 0x5e9 is "sep"; none of them is in common use.
        Self { port: 7430, mark: 0x5e9, table: 1513, priority: 1513 }
    }
}

fn name() -> String {
    "pep".to_owned()
}

/// The longest name of a network interface (`IFNAMSIZ` without its zero).
const INTERFACE_MAX: usize = 15;

/// The least that may be held of a direction: the longest piece that is read at once.
const BUFFER_MIN: u64 = engine::Receive::PIECE_MAX as u64;

/// The most connections: each takes two descriptors.
const CONNECTIONS_MAX: usize = 500_000;

/// Numbers of routing tables below this are the system's own (`main`, `local` and others).
const TABLES: std::ops::RangeInclusive<u32> = 1..=0x7fff_fffe;
const OWN_TABLES: std::ops::RangeInclusive<u32> = 252..=255;

impl Gateway {
    /// Reads the file at `path`.
    ///
    /// # Errors
    /// What is wrong with it, and where.
    pub fn read(path: &Path) -> Result<Self, SpecError> {
        let gateway: Self = text::read(path)?;
        gateway.check().map_err(|error| error.within(path))?;
        Ok(gateway)
    }

    /// Reads a text that came from `origin`.
    ///
    /// # Errors
    /// What is wrong with it, and where.
    pub fn parse(text: &str, origin: &str) -> Result<Self, SpecError> {
        let gateway: Self = text::parse(text, origin)?;
        gateway.check().map_err(|error| error.within(Path::new(origin)))?;
        Ok(gateway)
    }

    /// Where streams are diverted to.
    pub fn listening(&self) -> impl Iterator<Item = SocketAddr> + use<> {
        self.rules.ports().into_iter().flat_map(|port| {
            [(Ipv4Addr::LOCALHOST, port).into(), (Ipv6Addr::LOCALHOST, port).into()]
        })
    }

    /// The settings of each connection of slowlight's own TCP, if that is this side's.
    ///
    /// # Errors
    /// When a value is out of its range.
    pub fn own_options(&self) -> Result<Option<tcp::Options>, SpecError> {
        let Some(own) = &self.wan.own else { return Ok(None) };
        let profile = OverTcpConfig::of_host(Some(&own.profile)).ok_or_else(|| {
            let names = OverTcpConfig::profiles();
            let near = text::did_you_mean(&own.profile, names.iter().copied());
            SpecError::invalid(format!(
                "wan.own.profile: there is no profile {:?}{near}; there are {}",
                own.profile,
                names.join(", ")
            ))
        })?;
        let mut options = profile.streams.options;
        options.keep_alive = Some(KEEP_ALIVE);
        // Where routers drop what is too long without a word, nobody else would notice.
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
        // A TUN device has no rate to go by.
        let has_rate = |scps: tcp::scps::Scps| scps.rate.is_some_and(|rate| rate.bps.is_some());
        if options.congestion == (tcp::cc::Algorithm::None { window: None })
            && options.scps.is_some_and(|scps| !has_rate(scps))
        {
            return Err(SpecError::invalid(format!(
                "wan.own: {} sends at a rate that has to be said; set wan.own.rate to the share of \
                 the link that it may fill, as rate = \"7.6 Mbit/s\" of 8 Mbit/s",
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
            is_interface("wan.own.device", &own.device)?;
            self.own_options()?;
        }
        if self.intercept.taken().is_empty() {
            return invalid("intercept: no port is left that is not excepted".to_owned());
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
                is_interface(key, interface)?;
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

    /// The settings of the proxy.
    #[must_use]
    pub fn proxy(&self) -> proto::pep::Config {
        let limits = &self.limits;
        let bytes = |size: Size| usize::try_from(size.bytes()).unwrap_or(usize::MAX);
        proto::pep::Config {
            connections: limits.connections,
            buffer: bytes(limits.buffer),
            buffer_total: bytes(limits.buffer_total),
            connect_timeout: limits.connect_timeout.duration(),
            idle: Some(limits.idle.duration()),
            transparent: true,
            // Who connects to where streams are diverted to would be connected to itself.
            own: self.listening().collect(),
        }
    }
}

/// What may be in a name goes into rules as it is.
fn is_interface(key: &str, name: &str) -> Result<(), SpecError> {
    let sound = |c: char| c.is_ascii_alphanumeric() || "._-@:".contains(c);
    if (1..=INTERFACE_MAX).contains(&name.len()) && name.chars().all(sound) {
        return Ok(());
    }
    Err(SpecError::invalid(format!("{key}: {name:?} is no name of an interface")))
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
            return invalid(format!("{table}.congestion is no name of a congestion control"));
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
    /// The ports that are taken.
    #[must_use]
    pub fn taken(&self) -> Ports {
        match &self.except {
            Some(except) => self.ports.without(except),
            None => self.ports.clone(),
        }
    }

    /// Whether connections over IPv6 are taken.
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
            return invalid("rules.mark is 0, the mark of packets without one, or the last of all");
        }
        if !TABLES.contains(&self.table) || OWN_TABLES.contains(&self.table) {
            return invalid("rules.table is 0, or 252 to 255: 253 to 255 are the system's");
        }
        if !(1..32_766).contains(&self.priority) {
            return invalid("rules.priority is not between 1 and 32765, before the main table's");
        }
        Ok(())
    }

    /// The port at which streams of the LAN side arrive, and that of the WAN side.
    #[must_use]
    pub fn ports(self) -> [u16; 2] {
        [self.port, self.port + 1]
    }
}
