//! The hosts and the links between them.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use engine::{Deadline, Effect, Engine, Input, PathId, PathInfo, Rng, Time, Transmit, TxBuf};
use link::{Delay, Framing, Rate};
use slowlight_sim::{HostConfig, HostId, Limit, LinkId, Outcome, World};
use stack::{self, Gateway, GatewayConfig, OverTcp};
use tcp::Profile;
use tcp::{self, Buffer, Options, Route};

use super::mangler::Mangler;
use super::talker::{Manner, Stream, Talker};

/// An end host, a gateway, or a host between these.
#[derive(Debug)]
pub(crate) enum Node {
    Host(Box<OverTcp<Talker>>),
    Gateway(Box<Gateway>),
    Mangler(Box<Mangler>),
}

impl Engine for Node {
    type Indication = Option<pep::Indication>;

    fn handle_input(&mut self, now: Time, input: Input<'_>) {
        match self {
            Self::Host(host) => host.handle_input(now, input),
            Self::Gateway(gateway) => gateway.handle_input(now, input),
            Self::Mangler(mangler) => mangler.take(now, &input),
        }
    }

    fn handle_timeout(&mut self, now: Time) {
        match self {
            Self::Host(host) => host.handle_timeout(now),
            Self::Gateway(gateway) => gateway.handle_timeout(now),
            Self::Mangler(mangler) => mangler.release(now),
        }
    }

    fn poll_transmit(&mut self, now: Time, tx: &mut TxBuf) -> Option<Transmit> {
        match self {
            Self::Host(host) => host.poll_transmit(now, tx),
            Self::Gateway(gateway) => gateway.poll_transmit(now, tx),
            Self::Mangler(mangler) => mangler.give(now, tx),
        }
    }

    fn poll_effect(&mut self) -> Option<Effect> {
        match self {
            Self::Host(host) => host.poll_effect(),
            Self::Gateway(gateway) => gateway.poll_effect(),
            Self::Mangler(_) => None,
        }
    }

    fn poll_indication(&mut self) -> Option<Self::Indication> {
        match self {
            Self::Host(host) => host.poll_indication().map(|()| None),
            Self::Gateway(gateway) => gateway.poll_indication().map(Some),
            Self::Mangler(_) => None,
        }
    }

    fn poll_timeout(&self) -> Option<Deadline> {
        match self {
            Self::Host(host) => host.poll_timeout(),
            Self::Gateway(gateway) => gateway.poll_timeout(),
            Self::Mangler(mangler) => mangler.next(),
        }
    }
}

/// Hosts in a row.
pub(crate) const CLIENT: usize = 0;
pub(crate) const GATES: [usize; 2] = [1, 3];
const SKY: usize = 2;
pub(crate) const SERVER: usize = 4;

const NAMES: [&str; 5] = ["client", "near", "sky", "far", "server"];
pub(crate) const PORT: u16 = 80;

pub(crate) fn address(host: usize) -> Ipv4Addr {
    Ipv4Addr::new(10, 0, 0, 1 + host as u8)
}

pub(crate) fn service(port: u16) -> SocketAddr {
    SocketAddr::new(IpAddr::V4(address(SERVER)), port)
}

/// Returns the interface of a host towards another.
fn interface(to: usize) -> PathId {
    PathId(to as u32)
}

/// Configuration of the world.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) seed: u64,
    /// Gateways present; without one, its host forwards.
    pub(crate) gates: [bool; 2],
    pub(crate) client: Manner,
    pub(crate) server: Manner,
    /// Link between the gateways, forward and return.
    pub(crate) wan: [link::Config; 2],
    pub(crate) pep: pep::Config,
    pub(crate) early_accept: bool,
    /// Whether packets between the gateways are duplicated, delayed and reordered.
    pub(crate) mangles: bool,
    /// Options of connections between the gateways.
    pub(crate) wan_options: Options,
    pub(crate) lan_options: Options,
    pub(crate) host_options: Options,
}

/// 8 Mbit/s and 300 ms one way.
pub(crate) fn satellite() -> link::Config {
    link::Config {
        rate: Rate::Constant(8_000_000),
        framing: Framing::Raw,
        delay: Delay::Constant(Duration::from_millis(300)),
        ..link::Config::default()
    }
}

/// Returns the link onwards from the middle: without delay.
fn sky() -> link::Config {
    link::Config { framing: Framing::Raw, ..link::Config::default() }
}

fn lan() -> link::Config {
    link::Config {
        rate: Rate::Constant(100_000_000),
        framing: Framing::Raw,
        delay: Delay::Constant(Duration::from_micros(100)),
        ..link::Config::default()
    }
}

impl Plan {
    pub(crate) fn new(client: Manner, server: Manner) -> Self {
        let modern = Profile::Modern.options();
        let wan_options = Options {
            // Twice the bandwidth-delay product: 600 ms at 8 Mbit/s are 600,000 bytes.
            send_buffer: Buffer::Fixed(1_200_000),
            receive_buffer: Buffer::Fixed(1_200_000),
            ..modern.clone()
        };
        Self {
            seed: 1,
            gates: [true; 2],
            client,
            server,
            wan: [satellite(), satellite()],
            pep: pep::Config::default(),
            early_accept: true,
            mangles: false,
            wan_options,
            lan_options: modern.clone(),
            host_options: modern,
        }
    }

    fn host(&self, host: usize, rng: Rng) -> Node {
        let own = IpAddr::V4(address(host));
        let manner = if host == CLIENT { &self.client } else { &self.server };
        let listen = if host == SERVER { vec![service(PORT)] } else { Vec::new() };
        let config = stack::Config {
            tcp: tcp::Config { addresses: vec![own], ..tcp::Config::default() },
            options: self.host_options.clone(),
            addresses: vec![own],
            listen,
            backlog: tcp::Backlog { half_open: 1000, ..tcp::Backlog::default() },
            ..stack::Config::default()
        };
        Node::Host(Box::new(OverTcp::new(config, Talker::new(manner.clone()), rng)))
    }

    fn gateway(&self, host: usize, rng: Rng) -> Node {
        let wan = interface(SKY);
        let (near, client) = (host == GATES[0], IpAddr::V4(address(CLIENT)));
        let towards_client = interface(host - 1);
        let any = IpAddr::V4(Ipv4Addr::UNSPECIFIED);
        let towards_server = interface(host + 1);
        let routes = vec![
            Route { prefix: client, bits: 32, path: towards_client },
            Route { prefix: any, bits: 0, path: towards_server },
        ];
        let lan = if near { towards_client } else { towards_server };
        let interfaces =
            BTreeMap::from([(wan, self.wan_options.clone()), (lan, self.lan_options.clone())]);
        let config = GatewayConfig {
            pep: self.pep.clone(),
            tcp: tcp::Config { routes, interfaces, ..tcp::Config::default() },
            addresses: vec![IpAddr::V4(address(host))],
            early_accept: self.early_accept,
            ..GatewayConfig::default()
        };
        Node::Gateway(Box::new(config.build(rng)))
    }

    pub(crate) fn build(&self) -> Play {
        let mut world = World::new(self.seed);
        let is_gate =
            |host: usize| GATES.into_iter().zip(self.gates).any(|gate| gate == (host, true));
        let takes = |host: usize| is_gate(host) || (host == SKY && self.mangles);
        let hosts = [0, 1, 2, 3, 4].map(|host| {
            let intercepts = if takes(host) { vec![tcp::segment::PROTOCOL] } else { Vec::new() };
            let config = HostConfig::new(NAMES[host], address(host));
            world.add_host(HostConfig { intercepts, batch: 16, ..config })
        });
        let mut wan = Vec::new();
        for (from, to) in [(0, 1), (1, 2), (2, 3), (3, 4), (4, 3), (3, 2), (2, 1), (1, 0)] {
            let config = match (from, to) {
                (1, 2) => self.wan[0].clone(),
                (3, 2) => self.wan[1].clone(),
                (2, _) => sky(),
                _ => lan(),
            };
            let link = world.add_link(hosts[from], hosts[to], config).unwrap();
            let there = |host: usize| if to > from { host >= to } else { host <= to };
            for far in (0..5).filter(|host| there(*host)) {
                world.add_route(hosts[from], address(far), link);
            }
            if to == SKY {
                wan.push(link);
            }
            if takes(from) || [CLIENT, SERVER].contains(&from) {
                world.add_interface(hosts[from], interface(to), link, PathInfo::datagram(1500));
            }
        }
        for host in [0, 1, 2, 3, 4] {
            let plan = self.clone();
            if is_gate(host) {
                world.install(hosts[host], move |_, rng| plan.gateway(host, rng));
            } else if [CLIENT, SERVER].contains(&host) {
                world.install(hosts[host], move |_, rng| plan.host(host, rng));
            } else if takes(host) {
                world.install(hosts[host], |_, rng| Node::Mangler(Box::new(Mangler::new(rng))));
            }
        }
        Play { world, hosts, wan: [wan[0], wan[1]] }
    }
}

/// A running world.
pub(crate) struct Play {
    pub(crate) world: World<Node>,
    pub(crate) hosts: [HostId; 5],
    pub(crate) wan: [LinkId; 2],
}

impl Play {
    /// Opens this many streams at the client.
    pub(crate) fn connect(&mut self, count: usize, port: u16) {
        self.world.call(self.hosts[CLIENT], |node, now| {
            let Node::Host(host) = node else { panic!("the client is a host") };
            for _ in 0..count {
                host.call(now, |talker| talker.connect(service(port)));
            }
        });
    }

    /// Runs until no event is left.
    pub(crate) fn run(&mut self) {
        let limit = Limit { events: 20_000_000, ..Limit::default() };
        assert_eq!(self.world.run(limit), Outcome::Idle, "at {}", self.world.now());
        self.world.check_conservation().unwrap();
        for gate in GATES {
            let Some(gateway) = self.gateway(gate) else { continue };
            let statistics = gateway.above().statistics();
            assert_eq!((statistics.open, statistics.buffered), (0, 0), "{}", NAMES[gate]);
            assert_eq!(gateway.above().memory(), 0, "no memory is left");
            assert_eq!(gateway.below().connections().count(), 0);
        }
        for host in [CLIENT, SERVER] {
            let Some(Node::Host(host)) = self.world.engine(self.hosts[host]) else { continue };
            assert_eq!(host.below().connections().count(), 0);
        }
    }

    pub(crate) fn run_for(&mut self, time: Duration) {
        let until = self.world.now() + time;
        let _ = self.world.run_until(until);
    }

    pub(crate) fn talker(&self, host: usize) -> &Talker {
        match self.world.engine(self.hosts[host]) {
            Some(Node::Host(host)) => host.above(),
            _ => panic!("{} is no host that runs", NAMES[host]),
        }
    }

    pub(crate) fn streams(&self, host: usize) -> Vec<&Stream> {
        self.talker(host).streams.values().collect()
    }

    pub(crate) fn gateway(&self, host: usize) -> Option<&Gateway> {
        match self.world.engine(self.hosts[host]) {
            Some(Node::Gateway(gateway)) => Some(gateway),
            Some(Node::Host(_) | Node::Mangler(_)) | None => None,
        }
    }

    pub(crate) fn statistics(&self, host: usize) -> pep::Statistics {
        self.gateway(host).expect("a gateway that runs").above().statistics()
    }

    /// Returns the segments a gateway retransmitted on its side towards a host.
    pub(crate) fn repairs(&self, gate: usize, towards: usize) -> u64 {
        let gateway = self.gateway(gate).expect("a gateway that runs");
        gateway.below().totals_over(interface(towards)).retransmissions
    }
}
