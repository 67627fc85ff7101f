//! Two hosts with stores, connected by IP packets.

use std::net::SocketAddr;
use std::time::Duration;

use engine::{Engine, Input, PathEvent, PathId, PathInfo, Rng, Time};

use super::super::{Config, OverTcp};
use crate::test_world::{self, End, Hop, Line};

pub(super) type World<A> = test_world::World<OverTcp<A>>;

/// Interface of both hosts.
pub(super) const INTERFACE: PathId = PathId(0);
/// Path of the first host to the second one's service.
pub(super) const SERVICE: PathId = PathId(1);
/// Port of the service.
pub(super) const PORT: u16 = 21;

pub(super) fn address(host: usize) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, 1 + host as u8], PORT))
}

/// Settings of the first host, which has the address of the second, or of the second, which
/// listens.
pub(super) fn config(host: usize) -> Config {
    let mut config = Config { addresses: vec![address(host).ip()], ..Config::default() };
    match host {
        0 => _ = config.peers.insert(SERVICE, address(1)),
        _ => config.listen.push(address(1)),
    }
    config
}

impl<A: Engine> World<A> {
    /// Two hosts, 50 ms apart, at 10 Mbit/s.
    pub(super) fn new(configs: [Config; 2], mut above: impl FnMut(usize) -> A, seed: u64) -> Self {
        let engines = (0..).zip(configs).map(|(host, config)| {
            let rng = Rng::new(seed, ["first", "second"][host]);
            OverTcp::new(config, above(host), rng)
        });
        let ends = [0, 1].map(|host| End { host, path: INTERFACE });
        let mut hop = Hop::new(ends, PathInfo::datagram(1500));
        hop.line = Some(Line::new(Duration::from_millis(50), Some(10_000_000)));
        let mut world = Self::network(Time::from_secs(100), engines, vec![hop]);
        world.batch = 16;
        world.store_delay = Some(Duration::from_millis(1));
        world.start();
        world
    }

    pub(super) fn path(&mut self, host: usize, event: PathEvent) {
        self.input(host, Input::Path(INTERFACE, event));
    }

    /// Switches a host on again.
    pub(super) fn boot(&mut self, host: usize, config: Config, above: A) {
        let rng = Rng::new(self.steps, "again");
        self.replace(host, OverTcp::new(config, above, rng));
    }

    pub(super) fn on<R>(&mut self, host: usize, call: impl FnOnce(&mut A) -> R) -> R {
        let result = self.hosts[host].engine.call(self.now, call);
        self.drain(host);
        result
    }

    pub(super) fn above(&self, host: usize) -> &A {
        self.hosts[host].engine.above()
    }

    /// Runs until no event is left. No connection is left, either.
    pub(super) fn finish(&mut self) {
        self.run();
        for host in self.hosts.iter().filter(|host| !host.is_off) {
            assert_eq!(host.engine.below().connections().count(), 0, "a connection is left");
            assert_eq!(host.ignored, 0, "effects on paths");
        }
    }
}
