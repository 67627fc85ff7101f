//! `slowlight peers`: peers discovered by Saratoga beacons.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::Write as _;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, ensure};
use engine::{PathId, PathInfo, Time};
use saratoga::{self, About, Indication, Node, packet::Ability};
use serde_json::json;
use transport::quantity::Span;

use crate::sockets::transfer::{self, PORT, bind_error};
use crate::stop::stop_flag;

/// Multicast groups of Saratoga (draft-wood-tsvwg-saratoga-22 §10).
const GROUP_V4: Ipv4Addr = Ipv4Addr::new(224, 0, 0, 108);
const GROUP_V6: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 0x6c);

/// Default port of NORM, from the examples of its reference implementation.
pub(crate) const NORM_PORT: u16 = 6003;

/// Saratoga version of the beacons it reads.
const VERSION: u8 = 1;

/// Peers remembered at the same time.
const PEERS_MAX: usize = 1024;

/// Multicast group of beacons.
#[derive(Clone, Debug, Default, PartialEq, Eq, clap::Args)]
pub(crate) struct GroupOptions {
    /// Multicast group of beacons, or of the NORM sender
    ///
    /// [default: 224.0.0.108:7542, or `[ff02::6c]:7542` if this end listens on IPv6; NORM: port
    /// 6003]
    #[arg(long, value_name = "ADDR")]
    group: Option<String>,

    /// Network interface of the group, e.g. eth0; required for IPv6 [default: by the routing table]
    #[arg(long, value_name = "NAME")]
    interface: Option<String>,

    /// Multicast TTL (hop limit) [default: 1]
    #[arg(long, value_name = "N")]
    ttl: Option<u32>,
}

impl GroupOptions {
    /// Options given one by one.
    pub(crate) fn new(group: Option<String>, interface: Option<String>, ttl: Option<u32>) -> Self {
        Self { group, interface, ttl }
    }

    /// Group for an end that listens on `listen`.
    pub(crate) fn group(&self, listen: IpAddr) -> Result<rt::Group> {
        let usual = match listen {
            IpAddr::V4(_) => SocketAddr::from((GROUP_V4, PORT)),
            IpAddr::V6(_) => SocketAddr::from((GROUP_V6, PORT)),
        };
        let given = self.given(PORT)?;
        self.reached(given.unwrap_or(usual))
    }

    /// Group of a NORM sender.
    pub(crate) fn of_norm(&self) -> Result<rt::Group> {
        let given = self.given(NORM_PORT)?;
        self.reached(given.context("--interface and --ttl are for a group; give --group")?)
    }

    /// Group of the option, with this default port.
    fn given(&self, port: u16) -> Result<Option<SocketAddr>> {
        self.group.as_deref().map(|text| group(text, port)).transpose()
    }

    /// Group at an address, with the interface and TTL of the options.
    pub(crate) fn reached(&self, address: SocketAddr) -> Result<rt::Group> {
        let mut group = rt::Group::new(address);
        if let Some(ttl) = self.ttl {
            ensure!((1..=255).contains(&ttl), "--ttl {ttl}: it is from 1 to 255");
            group.ttl = ttl;
        }
        if let Some(name) = &self.interface {
            group.interface = rt::interface(name)
                .map_err(|error| anyhow!("no network interface {name:?}: {error}"))?;
        }
        Ok(group)
    }

    /// Whether the options demand IPv6.
    fn is_ipv6(&self) -> bool {
        self.given(PORT).ok().flatten().is_some_and(|group| group.is_ipv6())
    }
}

/// A group's address, with a port or without.
pub(crate) fn group(text: &str, port: u16) -> Result<SocketAddr> {
    let address = match text.parse::<SocketAddr>() {
        Ok(address) => address,
        Err(_) => {
            let ip: IpAddr = text.parse().map_err(|_| {
                anyhow!(
                    "invalid address {text:?}: expected one like {GROUP_V4} or [{GROUP_V6}]:{port}"
                )
            })?;
            (ip, port).into()
        }
    };
    ensure!(
        address.ip().is_multicast() && address.port() != 0,
        "--group: invalid multicast group {address}: expected a multicast address and a port"
    );
    Ok(address)
}

/// A year: it can be added to any time.
const LISTENING_MAX: Duration = Duration::from_secs(31_557_600);

/// Interval of beacons, or time to listen for them.
pub(crate) fn listening(text: &str) -> Result<Span, String> {
    let span: Span = text.parse().map_err(|error| format!("{error}"))?;
    match span.duration() {
        time if (Duration::from_millis(10)..=LISTENING_MAX).contains(&time) => Ok(span),
        _ => Err(format!("{span} is not between 10 ms and 1 year")),
    }
}

/// Makes a driver send to a group and receive from it.
pub(crate) fn join<E: engine::Engine>(
    driver: &mut rt::Driver<E>,
    group: rt::Group,
) -> Result<PathId> {
    let address = group.address;
    driver.join_group(group).with_context(|| {
        let remedy = if group.interface == 0 { "; name an --interface" } else { "" };
        format!("cannot join the group {address}{remedy}")
    })
}

/// The name of this machine.
pub(crate) fn machine() -> Option<String> {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").ok()?;
    Some(name.trim().to_owned()).filter(|name| !name.is_empty())
}

/// List Saratoga peers discovered by beacon
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Time to listen; peers send beacons every 5 to 30 s
    #[arg(long, value_name = "DURATION", default_value = "10 s", value_parser = listening)]
    time: Span,

    #[command(flatten)]
    group: GroupOptions,

    /// Print results as JSON, one object per line
    #[arg(long)]
    json: bool,
}

/// Contents of a peer's last beacon.
struct Found {
    about: About,
    beacons: u64,
}

/// Listens for the given time or until a signal, and lists the peers.
pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    let (mut driver, _state) = prepare(args).map_err(transfer::usage)?;
    let stop = stop_flag()?;
    let end: Time = driver.now() + args.time.duration();
    let mut found: BTreeMap<PathId, Found> = BTreeMap::new();
    driver.run(&stop, |now, _, event| {
        if let rt::Event::Indication(Indication::Beacon { from, about }) = event {
            let beacons = found.get(&from).map_or(0, |known| known.beacons) + 1;
            found.insert(from, Found { about, beacons });
        }
        if now >= end { rt::Control::Stop } else { rt::Control::Continue }
    })?;
    let mut peers: Vec<(SocketAddr, Found)> =
        found.into_iter().filter_map(|(path, found)| Some((driver.peer(path)?, found))).collect();
    peers.sort_by_key(|(address, _)| *address);
    crate::exit_code(print(&peers, args.json), true)
}

fn prepare(args: &Args) -> Result<(rt::Driver<Node>, tempfile::TempDir)> {
    let any: IpAddr = if args.group.is_ipv6() {
        Ipv6Addr::UNSPECIFIED.into()
    } else {
        Ipv4Addr::UNSPECIFIED.into()
    };
    let group = args.group.group(any)?;
    let state = tempfile::tempdir().context("cannot make a directory for working files")?;
    let waker = rt::Waker::new().context("cannot start")?;
    let store = rt::FileStore::open(rt::StoreConfig::new(state.path()), &waker)?;
    // Serves no requests.
    let mut config = saratoga::Config {
        permissions: saratoga::Permissions { put: false, get: false, delete: false },
        ..saratoga::Config::default()
    };
    config.journal.enabled = false;
    let node = Node::new(config, rt::entropy().context("no entropy")?);
    let listen = SocketAddr::from((any, 0));
    let settings = rt::Config {
        peers_max: PEERS_MAX,
        tick: Duration::from_millis(20),
        buffers: rt::Buffers { receive: 1 << 17, send: 1 << 16 },
        ..rt::Config::new(listen, PathInfo::datagram(1472))
    };
    let mut driver =
        rt::Driver::new(settings, node, store, waker).map_err(|error| bind_error(listen, error))?;
    join(&mut driver, group)?;
    Ok((driver, state))
}

/// Paths to peers with numbers.
#[derive(Debug, Default)]
pub(crate) struct Paths {
    /// Addresses; drivers number the paths of static peers from zero, one per address.
    pub(crate) addresses: Vec<SocketAddr>,
    /// The path to each.
    pub(crate) to: Vec<(u64, PathId)>,
}

/// Paths to peers with these numbers and addresses.
pub(crate) fn paths(peers: &[(u64, SocketAddr)]) -> Result<Paths> {
    let mut paths = Paths::default();
    for (id, address) in peers {
        let known = paths.addresses.iter().position(|known| known == address);
        let index = known.unwrap_or_else(|| {
            paths.addresses.push(*address);
            paths.addresses.len() - 1
        });
        paths.to.push((*id, PathId(u32::try_from(index)?)));
    }
    Ok(paths)
}

/// Prints a line for each peer: nothing if there is none.
fn print(peers: &[(SocketAddr, Found)], json: bool) -> Result<()> {
    let mut text = String::new();
    if !json && !peers.is_empty() {
        let heads = ["SENDS", "RECEIVES", "STREAMS", "UDP-LITE", "BITS", "FREE", "VERSION", "EID"];
        writeln!(text, "{}", line("ADDRESS", &heads))?;
    }
    for (address, found) in peers {
        let About { eid, descriptor, streams, udp_lite, sends, receives, free_kib } = &found.about;
        let bits = descriptor.bytes() * 8;
        if json {
            let object = json!({
                "address": address.to_string(),
                "eid": eid,
                "version": VERSION,
                "sends": word(*sends),
                "receives": word(*receives),
                "streams": streams,
                "udp_lite": udp_lite,
                "descriptor_bits": bits,
                "free_kib": free_kib,
                "beacons": found.beacons,
            });
            writeln!(text, "{object}")?;
            continue;
        }
        let free = free_kib.map(|kib| crate::show::bytes(kib as f64 * 1024.0));
        let yes = |is: bool| if is { "yes" } else { "no" };
        let cells = [
            word(*sends),
            word(*receives),
            yes(*streams),
            yes(*udp_lite),
            &bits.to_string(),
            free.as_deref().unwrap_or("-"),
            &VERSION.to_string(),
            &eid.escape_debug().to_string(),
        ];
        writeln!(text, "{}", line(&address.to_string(), &cells))?;
    }
    Ok(std::io::stdout().lock().write_all(text.as_bytes())?)
}

fn line(address: &str, cells: &[&str; 8]) -> String {
    let [sends, receives, streams, lite, bits, free, version, eid] = cells;
    format!(
        "{address:<22} {sends:<7} {receives:<8} {streams:<7} {lite:<8} {bits:<4} {free:<9} \
         {version:<7} {eid}"
    )
}

fn word(ability: Ability) -> &'static str {
    match ability {
        Ability::No => "no",
        Ability::NotNow => "not now",
        Ability::Yes => "yes",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_have_a_port() {
        assert_eq!(group("224.0.0.108", PORT).unwrap(), "224.0.0.108:7542".parse().unwrap());
        assert_eq!(group("239.1.2.3:99", PORT).unwrap().port(), 99);
        assert_eq!(group("ff02::6c", PORT).unwrap(), "[ff02::6c]:7542".parse().unwrap());
        assert!(
            group("127.0.0.1", PORT).unwrap_err().to_string().contains("invalid multicast group")
        );
        assert!(group("224.0.0.108:0", PORT).is_err());
        assert!(group("all", PORT).unwrap_err().to_string().contains("expected one like"));
    }

    #[test]
    fn times_to_listen_have_limits() {
        assert_eq!(listening("1.5 s"), Ok(Span(Duration::from_millis(1500))));
        for text in ["0", "1", "-1 s", "366 d", "NaN", "soon"] {
            assert!(listening(text).is_err(), "{text}");
        }
    }
}
