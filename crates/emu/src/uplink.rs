//! Connection of one host of a world to the network of the process that started the emulator: the
//! machine's network, or the network of a host of another world.
//!
//! With privileges in that network it is a pair of devices (veth) with address translation (nft)
//! at both ends. Without them an unprivileged program, `slirp4netns`, opens the connections. In
//! both cases the outer network sees no address of the world.

mod keeper;
mod user;

use std::env;
use std::fs;
use std::io::{self, Write as _};
use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;
use std::process::{Command, Stdio};

use crate::names::{self, Name};
use crate::namespace;
use crate::world::Host;

pub use self::keeper::{Keeper, restore_forwarding};

/// Name of the device on the world's host.
const DEVICE: &str = "uplink";
/// Name by which programs in a world reach the machine.
const OUTSIDE: &str = "outside";
/// Environment variable that passes the outer process's choice to the world's process.
const CHOICE: &str = "SLOWLIGHT_EMU_UPLINK";
const NFT: &str = "nft";
const RESOLV: &str = "/etc/resolv.conf";
/// Name servers behind systemd's resolver, where `/etc/resolv.conf` names only the resolver.
const RESOLV_OF_SYSTEMD: &str = "/run/systemd/resolve/resolv.conf";

/// Reason why a world has no uplink.
#[derive(Debug, thiserror::Error)]
pub enum UplinkError {
    /// A program or a privilege is missing.
    #[error("--uplink: {0}")]
    Missing(String),
    /// The system refused something.
    #[error("--uplink: {what}: {error}")]
    System {
        /// Operation that failed.
        what: String,
        /// Error of the system.
        error: io::Error,
    },
}

fn system(what: &str) -> impl FnOnce(io::Error) -> UplinkError + '_ {
    move |error| UplinkError::System { what: what.to_owned(), error }
}

/// Means by which packets leave the world.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// Pair of devices, and address translation.
    Devices,
    /// Unprivileged program.
    User,
}

/// Uplink of a world, and a range of addresses unused outside.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Uplink {
    kind: Kind,
    range: Range,
    /// Name of the device and of the table of rules outside.
    name: String,
}

/// Addresses of a world: `10.N.0.0/16`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range(u8);

impl Range {
    /// Returns the first range that no route of this network namespace covers.
    #[must_use]
    pub fn unused() -> Self {
        Self::among(&Taken::here()).next().unwrap_or(Self(0))
    }

    /// Unused ranges, then those covered only by a broader route, such as one for 10.0.0.0/8.
    fn among(taken: &Taken) -> impl Iterator<Item = Self> + use<> {
        let free = |broad: bool| {
            let taken = taken.clone();
            (0..=255).map(Self).filter(move |range| !taken.overlaps(*range, broad))
        };
        free(true).chain(free(false))
    }

    fn contains(self, address: Ipv4Addr) -> bool {
        u32::from(address) >> 16 == u32::from_be_bytes([0, 0, 10, self.0])
    }

    /// Maps an address of the scenarios' default range, `10.0.0.0/16`, into this range; others
    /// stay.
    #[must_use]
    pub fn shifted(self, address: Ipv4Addr) -> Ipv4Addr {
        let bits = u32::from(address);
        let is_default = bits >> 16 == 0x0a00;
        if is_default { Ipv4Addr::from(bits | u32::from(self.0) << 16) } else { address }
    }

    /// Addresses of both ends of the pair of devices: outside, and on the host.
    fn ends(self) -> [Ipv4Addr; 2] {
        [1, 2].map(|last| Ipv4Addr::new(10, self.0, 255, last))
    }
}

/// Routes and name servers of a network namespace.
#[derive(Clone, Debug, Default)]
struct Taken {
    /// Networks with the lengths of their prefixes.
    routes: Vec<(Ipv4Addr, u32)>,
    servers: Vec<IpAddr>,
}

impl Taken {
    fn here() -> Self {
        let routes = fs::read_to_string("/proc/net/route").unwrap_or_default();
        let servers = servers(&fs::read_to_string(RESOLV).unwrap_or_default());
        Self { routes: routes.lines().filter_map(route).collect(), servers }
    }

    /// Whether a name server or a route has addresses of the range. Routes that are broader than the
    /// range count only if `broad`.
    fn overlaps(&self, range: Range, broad: bool) -> bool {
        let is_server = self.servers.iter().any(|server| match server {
            IpAddr::V4(server) => range.contains(*server),
            IpAddr::V6(_) => false,
        });
        let own = u32::from(Ipv4Addr::new(10, range.0, 0, 0));
        is_server
            || self.routes.iter().any(|&(network, length)| {
                let shift = 32 - length.min(16);
                length > 0
                    && (broad || length >= 16)
                    && own.checked_shr(shift) == u32::from(network).checked_shr(shift)
            })
    }
}

/// Network and prefix length of a line of `/proc/net/route`.
fn route(line: &str) -> Option<(Ipv4Addr, u32)> {
    let mut words = line.split_whitespace().skip(1);
    let mut number = |nth| u32::from_str_radix(words.nth(nth)?, 16).ok();
    let (network, mask) = (number(0)?, number(5)?);
    // In network order, as this machine reads it.
    Some((Ipv4Addr::from(network.to_ne_bytes()), mask.count_ones()))
}

/// Name servers of a `resolv.conf`.
fn servers(text: &str) -> Vec<IpAddr> {
    let lines = text.lines().filter_map(|line| line.trim().strip_prefix("nameserver"));
    lines.filter_map(|address| address.trim().parse().ok()).collect()
}

impl Uplink {
    /// Chooses and prepares an uplink for a world that is about to be made in this network
    /// namespace. Must be called before [`crate::isolate_with`], which passes the choice to the
    /// world. The keeper, if any, must be dropped when the world has ended: it removes the remains
    /// outside. `is_nested` is set if this is a host of another world, whose own devices end with
    /// it.
    ///
    /// # Errors
    ///
    /// [`UplinkError`] names the missing part, and the remedy.
    pub fn choose(is_nested: bool) -> Result<(Self, Option<Keeper>), UplinkError> {
        let ranges = Range::among(&Taken::here());
        if may_set_rules()? {
            let (keeper, range) = Keeper::start(ranges, is_nested)?;
            let name = keeper::name(range);
            return Ok((Self { kind: Kind::Devices, range, name }, Some(keeper)));
        }
        user::check()?;
        let range = { ranges }.next().unwrap_or(Range(0));
        Ok((Self { kind: Kind::User, range, name: DEVICE.to_owned() }, None))
    }

    /// Passes the choice to a process, or removes another world's choice.
    pub(crate) fn export(uplink: Option<&Self>, command: &mut Command) {
        match uplink {
            None => command.env_remove(CHOICE),
            Some(Self { kind: Kind::Devices, range, .. }) => {
                command.env(CHOICE, format!("devices {}", range.0))
            }
            Some(Self { kind: Kind::User, range, .. }) => {
                command.env(CHOICE, format!("user {}", range.0))
            }
        };
    }

    /// Choice that the outer process has passed to this one.
    #[must_use]
    pub fn from_environment() -> Option<Self> {
        let text = env::var(CHOICE).ok()?;
        let (kind, range) = text.split_once(' ')?;
        let range = Range(range.parse().ok()?);
        Some(match kind {
            "devices" => Self { kind: Kind::Devices, range, name: keeper::name(range) },
            "user" => Self { kind: Kind::User, range, name: DEVICE.to_owned() },
            _ => return None,
        })
    }

    /// Range for the addresses of the world's hosts.
    #[must_use]
    pub fn range(&self) -> Range {
        self.range
    }

    /// Address by which the world reaches the machine.
    fn gateway(&self) -> Ipv4Addr {
        match self.kind {
            Kind::Devices => self.range.ends()[0],
            Kind::User => user::Addresses::from_range(self.range).gateway,
        }
    }

    /// Names outside: `outside` and the machine's own name, and those in its `/etc/hosts`.
    #[must_use]
    pub fn names(&self) -> Vec<Name> {
        let gateway = IpAddr::V4(self.gateway());
        let mut names = vec![(gateway, OUTSIDE.to_owned())];
        let own = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        let own = own.trim();
        names.extend((!own.is_empty()).then(|| (gateway, own.to_owned())));
        let others = names::names_of_machine().into_iter();
        let others: Vec<_> = others.filter(|(_, name)| name != own && name != OUTSIDE).collect();
        names.extend(others);
        names
    }

    /// Opens the uplink on a host of a running world, and gives programs name servers that they can
    /// reach.
    ///
    /// # Errors
    ///
    /// The system refused something.
    pub fn open(&self, host: &Host) -> Result<(), UplinkError> {
        self.resolve()?;
        let rules = format!(
            "table ip slowlight {{\n chain out {{\n type nat hook postrouting priority 100\n \
             oifname \"{DEVICE}\" masquerade\n }}\n}}\n"
        );
        let mut nft = nft();
        feed(host.command(&mut nft), &rules).map_err(system("nft on the world's host"))?;
        match self.kind {
            Kind::User => user::start(self.range, host),
            Kind::Devices => self.join(host),
        }
    }

    /// Makes a pair of devices between the host and the network outside.
    fn join(&self, host: &Host) -> Result<(), UplinkError> {
        let Self { name, .. } = self;
        let [outer, inner] = self.range.ends();
        let namespace = format!("/proc/{}/fd/{}", std::process::id(), host.descriptor());
        let outside = [
            format!("link add {name} type veth peer name {DEVICE} netns {namespace}"),
            format!("addr add {outer}/30 dev {name}"),
            format!("link set {name} up"),
        ];
        let failed = system("a device outside");
        namespace::ip(&mut Command::new("ip"), &outside).map_err(failed)?;
        let inside = [
            format!("addr add {inner}/30 dev {DEVICE}"),
            format!("link set {DEVICE} up"),
            format!("route add default via {outer}"),
        ];
        host.configure(&inside).map_err(system("a device on the world's host"))?;
        // A leftover table of a killed world has the same name.
        let rules = format!(
            "add table ip {name}\ndelete table ip {name}\ntable ip {name} {{\n chain out {{\n \
             type nat hook postrouting priority 100\n \
             ip saddr {inner} oifname != \"{name}\" masquerade\n }}\n}}\n"
        );
        feed(&mut nft(), &rules).map_err(system("nft outside"))
    }

    /// Covers `/etc/resolv.conf` where it names servers that a world cannot reach.
    fn resolve(&self) -> Result<(), UplinkError> {
        let own = fs::read_to_string(RESOLV).unwrap_or_default();
        let text = match self.kind {
            Kind::User => {
                Some(with_servers(&own, &[user::Addresses::from_range(self.range).resolver.into()]))
            }
            Kind::Devices => reachable(&own, || fs::read_to_string(RESOLV_OF_SYSTEMD).ok()),
        };
        let Some(text) = text else { return Ok(()) };
        names::cover(Path::new(RESOLV), &text).map_err(system("name servers"))
    }
}

/// Text of a `resolv.conf` with the non-loopback IPv4 name servers of `own`, or else of `other`;
/// `None` if all of `own` are reachable.
fn reachable(own: &str, other: impl FnOnce() -> Option<String>) -> Option<String> {
    let is_reachable = |server: &IpAddr| server.is_ipv4() && !server.is_loopback();
    let all = servers(own);
    if all.iter().all(is_reachable) {
        return None;
    }
    let some = |of: &[IpAddr]| of.iter().copied().filter(is_reachable).collect::<Vec<_>>();
    let mut reachable = some(&all);
    if reachable.is_empty() {
        reachable = some(&servers(&other().unwrap_or_default()));
    }
    if reachable.is_empty() {
        tracing::warn!("{RESOLV}: all name servers are on this machine, out of the world's reach");
    }
    Some(with_servers(own, &reachable))
}

/// Text of a `resolv.conf` with other name servers.
fn with_servers(text: &str, servers: &[IpAddr]) -> String {
    let others = text.lines().filter(|line| !line.trim_start().starts_with("nameserver"));
    let servers = servers.iter().map(|server| format!("nameserver {server}"));
    servers.chain(others.map(str::to_owned)).map(|line| line + "\n").collect()
}

/// Whether this process may set rules and create devices in its network namespace.
fn may_set_rules() -> Result<bool, UplinkError> {
    let listed = nft().args(["list", "tables"]).stdin(Stdio::null()).output();
    match listed {
        Ok(output) => Ok(output.status.success()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let remedy = "there is no program nft; it is in the package nftables";
            Err(UplinkError::Missing(remedy.to_owned()))
        }
        Err(error) => Err(system("nft")(error)),
    }
}

fn nft() -> Command {
    // Users' paths often lack the system administration folders.
    let folders = ["/usr/sbin", "/sbin"].map(|folder| Path::new(folder).join(NFT));
    let in_path = env::split_paths(&env::var_os("PATH").unwrap_or_default())
        .any(|folder| folder.join(NFT).is_file());
    let found = folders.into_iter().find(|program| !in_path && program.is_file());
    found.map_or_else(|| Command::new(NFT), Command::new)
}

/// Passes rules to `nft`.
fn feed(nft: &mut Command, rules: &str) -> io::Result<()> {
    nft.args(["-f", "-"]).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = nft.spawn()?;
    if let Some(mut stdin) = child.stdin.take() {
        stdin.write_all(rules.as_bytes())?;
    }
    let output = child.wait_with_output()?;
    let message = String::from_utf8_lossy(&output.stderr);
    let failed = || Err(io::Error::other(message.trim().replace('\n', "; ")));
    if output.status.success() { Ok(()) } else { failed() }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Routes of a machine in 10.0.0.0/24 with a host route and a default route.
    const ROUTES: &str = "Iface Destination Gateway Flags RefCnt Use Metric Mask MTU Window IRTT\n\
        eth0 00000000 0100000A 0003 0 0 0 00000000 0 0 0\n\
        eth0 0000000A 00000000 0001 0 0 0 00FFFFFF 0 0 0\n\
        tun0 0100010A 00000000 0001 0 0 0 FFFFFFFF 0 0 0\n";

    fn taken(routes: &str, resolv: &str) -> Taken {
        Taken { routes: routes.lines().filter_map(route).collect(), servers: servers(resolv) }
    }

    #[cfg(target_endian = "little")]
    #[test]
    fn addresses_in_use_outside_are_left_out() {
        let of = |text: &str| route(text.lines().last().expect("a line"));
        assert_eq!(of(ROUTES), Some((Ipv4Addr::new(10, 1, 0, 1), 32)));
        let first = |taken: &Taken| Range::among(taken).next();
        assert_eq!(first(&Taken::default()), Some(Range(0)));
        let taken = taken(ROUTES, "nameserver 10.2.255.53\nnameserver ::1\n");
        assert_eq!(first(&taken), Some(Range(3)));
        // A route covers all of 10.0.0.0/8.
        let broad = Taken { routes: vec![(Ipv4Addr::new(10, 0, 0, 0), 8)], ..Taken::default() };
        assert_eq!(first(&broad), Some(Range(0)));
    }

    #[test]
    fn name_servers_that_a_world_cannot_reach_are_replaced() {
        let none = || None;
        assert_eq!(reachable("nameserver 192.0.2.1\nsearch lan\n", none), None);
        let mixed = "search lan\nnameserver 127.0.0.1\nnameserver 192.0.2.1\nnameserver ::1\n";
        let expected = "nameserver 192.0.2.1\nsearch lan\n";
        assert_eq!(reachable(mixed, none).as_deref(), Some(expected));
        let stub = || Some("nameserver 192.0.2.7\n".to_owned());
        let local = reachable("nameserver 127.0.0.53\noptions edns0\n", stub);
        assert_eq!(local.as_deref(), Some("nameserver 192.0.2.7\noptions edns0\n"));
    }

    #[test]
    fn addresses_of_scenarios_move_into_the_range() {
        let shifted = |text: &str| {
            let address: Ipv4Addr = text.parse().expect("an address");
            Range(7).shifted(address).to_string()
        };
        assert_eq!(shifted("10.0.1.2"), "10.7.1.2");
        assert_eq!(shifted("10.1.1.2"), "10.1.1.2");
        assert_eq!(shifted("192.0.2.1"), "192.0.2.1");
    }
}
