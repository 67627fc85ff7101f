//! A gateway under the conformance suite: each end of a transfer is a host with its own gateway,
//! and the path between the two gateways is damaged.

use std::net::IpAddr;

use engine::{
    Deadline, Effect, Engine, Input, PathEvent, PathId, PathInfo, Receive, Rng, Time, Transmit,
    TxBuf, conformance,
};
use models::ftp::{self, DataConnection, Indication, Node};
use tcp::Route;
use testing::memory::Counted;

use super::super::{Gateway, GatewayConfig, OverTcp};
use super::transfer;
use super::world::{SERVICE, address};

/// A gateway's interface towards its host, and a host's towards its gateway.
const LAN: PathId = PathId(0);
const HOST: PathId = PathId(9);

const SIZE: usize = 12_000;

/// A host behind a gateway: one engine, whose only path is the gateway's other interface.
struct Behind {
    host: OverTcp<Node>,
    gateway: Gateway,
    tx: TxBuf,
}

impl Behind {
    fn new(role: conformance::Role, early_accept: bool, seed: u64) -> Self {
        let own = address(role as usize).ip();
        let mut node = ftp::Config::default();
        node.client.data = DataConnection::Pasv;
        let at_host = transfer::host(role);
        let options = at_host.options.clone();
        let host = OverTcp::new(at_host, Node::new(node), Rng::new(seed, "host"));
        let any = IpAddr::from([0, 0, 0, 0]);
        let mut config = GatewayConfig { options, early_accept, ..GatewayConfig::default() };
        config.tcp.routes = vec![
            Route { prefix: own, bits: 32, path: LAN },
            Route { prefix: any, bits: 0, path: conformance::PATH },
        ];
        config.tcp.limits.connections = 64;
        config.tcp.limits.time_wait = 256;
        config.pep.connections = 16;
        config.pep.buffer_total = 0;
        let gateway = config.build(Rng::new(seed, "gateway"));
        let mut this = Self { host, gateway, tx: TxBuf::new(16) };
        let up = || PathEvent::Up(PathInfo::datagram(1500));
        this.host.handle_input(Time::ZERO, Input::Path(HOST, up()));
        this.gateway.handle_input(Time::ZERO, Input::Path(LAN, up()));
        this
    }

    /// Passes the host's packets to its gateway at once.
    fn cross(&mut self, now: Time) {
        loop {
            self.tx.clear();
            let Some(transmit) = self.host.poll_transmit(now, &mut self.tx) else { return };
            assert_eq!(transmit.path, HOST);
            let stride = transmit.segment;
            let packets = Receive { stride, ..Receive::datagram(LAN, self.tx.bytes()) };
            self.gateway.handle_input(now, Input::Receive(packets));
        }
    }
}

impl Engine for Behind {
    type Indication = Indication;

    fn handle_input(&mut self, now: Time, input: Input<'_>) {
        match input {
            Input::Receive(_) | Input::Path(..) => self.gateway.handle_input(now, input),
            Input::Done(..) => self.host.handle_input(now, input),
        }
    }

    fn handle_timeout(&mut self, now: Time) {
        self.host.handle_timeout(now);
        self.gateway.handle_timeout(now);
    }

    fn poll_transmit(&mut self, now: Time, tx: &mut TxBuf) -> Option<Transmit> {
        loop {
            self.cross(now);
            let transmit = self.gateway.poll_transmit(now, tx)?;
            if transmit.path != LAN {
                return Some(transmit);
            }
            let stride = transmit.segment;
            let packets = Receive { stride, ..Receive::datagram(HOST, tx.bytes()) };
            self.host.handle_input(now, Input::Receive(packets));
            tx.clear();
        }
    }

    fn poll_effect(&mut self) -> Option<Effect> {
        assert_eq!(self.gateway.poll_effect(), None, "a gateway has no use for a store");
        self.host.poll_effect()
    }

    fn poll_indication(&mut self) -> Option<Indication> {
        while self.gateway.poll_indication().is_some() {}
        self.host.poll_indication()
    }

    fn poll_timeout(&self) -> Option<Deadline> {
        [self.host.poll_timeout(), self.gateway.poll_timeout()].into_iter().flatten().min()
    }
}

/// A file by FTP through two gateways.
struct Transfer {
    early_accept: bool,
}

impl conformance::Subject for Transfer {
    type Engine = Counted<Behind>;

    fn engine(&self, role: conformance::Role, seed: u64) -> Counted<Behind> {
        Counted::new(|| Behind::new(role, self.early_accept, seed))
    }

    fn size(&self) -> usize {
        SIZE
    }

    fn start(&self, engine: &mut Counted<Behind>, now: Time) -> bool {
        engine.charge(|behind| {
            let host = &mut behind.host;
            host.call(now, |node| node.put(SERVICE, conformance::source(), "copy").unwrap());
        });
        true
    }

    fn verdict(
        &self,
        _role: conformance::Role,
        indication: &Indication,
    ) -> Option<conformance::Verdict> {
        transfer::verdict(indication)
    }

    fn is_busy(&self, engine: &Counted<Behind>) -> bool {
        engine.host.above().under_way() > 0
    }

    fn memory(&self, engine: &Counted<Behind>) -> usize {
        engine.memory()
    }

    fn memory_max(&self) -> usize {
        // 32 streams at the host and 66 at the gateway with two buffers of 16 KiB and 64 KiB kept,
        // and 16 times two pieces between them.
        14 << 20
    }

    fn path(&self) -> PathInfo {
        PathInfo::datagram(1500)
    }

    fn detects_damage(&self) -> bool {
        // The Internet checksum misses two exchanged bits in one of some thirty pairs.
        false
    }
}

#[test]
fn keeps_the_contract() {
    for early_accept in [true, false] {
        let options =
            conformance::Options { runs: 6, positions: 16, ..conformance::Options::default() };
        conformance::check_all(&Transfer { early_accept }, &options);
    }
}
