//! A transparent proxy over TCP: a host between others that ends their connections and opens them anew
//! on the other side, in their names.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use engine::{Receive, Rng};

use super::over_tcp::{Acceptance, Config, Limits, OverTcp};
use crate::pep::{self, Pep};
use crate::tcp::{self, Backlog, Options};

/// A proxy whose streams are connections of this crate's TCP.
///
/// Its paths are IP interfaces on which it is given packets for other hosts, too, and on which it
/// sends packets that come from them. Nothing tells one such gateway from another: a connection
/// is ended by each that it would cross, and by its server if there is no further one.
pub type Gateway = OverTcp<Pep>;

/// The settings of a gateway.
#[derive(Clone, Debug)]
pub struct GatewayConfig {
    /// The settings of the proxy.
    pub pep: pep::Config,
    /// The settings of the stack: above all the routes, and what connections are like on each
    /// interface ([`tcp::Config::interfaces`]). All addresses are its own.
    pub tcp: tcp::Config,
    /// The settings of connections over interfaces of which nothing is said.
    pub options: Options,
    /// The gateway's own addresses, to which nothing is proxied.
    pub addresses: Vec<IpAddr>,
    /// Whether clients are answered before their servers have answered: that saves them a round
    /// trip, and tells them of a server that refuses only by a reset.
    pub early_accept: bool,
}

impl Default for GatewayConfig {
    fn default() -> Self {
        Self {
            pep: pep::Config::default(),
            tcp: tcp::Config::default(),
            options: Options::default(),
            addresses: Vec::new(),
            early_accept: true,
        }
    }
}

impl GatewayConfig {
    /// A gateway so configured.
    #[must_use]
    pub fn build(&self, rng: Rng) -> Gateway {
        let own = self.addresses.iter().map(|address| SocketAddr::new(*address, 0));
        let mut pep = self.pep.clone();
        pep.own.extend(own);
        let any = [IpAddr::V4(Ipv4Addr::UNSPECIFIED), IpAddr::V6(Ipv6Addr::UNSPECIFIED)];
        let streams = 2 * pep.connections;
        let acceptance = match self.early_accept {
            true => Acceptance::AtOnce,
            false => Acceptance::WhenConnected { most: streams },
        };
        let config = Config {
            tcp: tcp::Config { addresses: Vec::new(), ..self.tcp.clone() },
            options: self.options.clone(),
            addresses: self.addresses.clone(),
            listen: any.map(|address| SocketAddr::new(address, 0)).to_vec(),
            backlog: Backlog { half_open: pep.connections.max(1), ..Backlog::default() },
            acceptance,
            // Those that are left wait for their last acknowledgments beside those there are.
            limits: Limits { streams: 2 * streams + 2, ..Limits::default() },
            ..Config::default()
        };
        OverTcp::new(config, Pep::new(pep), rng)
    }

    /// The most memory that is held on account of peers, in bytes: that of the proxy, and the
    /// buffers of all connections.
    #[must_use]
    pub fn memory_max(&self) -> usize {
        let options = self.tcp.interfaces.values().chain([&self.options]);
        let buffers = options.map(|options| {
            let sum = options.send_buffer.max().saturating_add(options.receive_buffer.max());
            usize::try_from(sum).unwrap_or(usize::MAX)
        });
        let widest = buffers.max().unwrap_or(0).saturating_add(2 * Receive::PIECE_MAX);
        let streams = 4 * self.pep.connections + 2;
        self.pep.bytes_max().saturating_add(streams.saturating_mul(widest))
    }
}
