//! Transparent proxy over TCP: an intermediate host that terminates connections and reopens them
//! on the other side with the same addresses.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use ::pep::{self, Pep};
use ::tcp::{self, Backlog, Options};
use engine::{Receive, Rng};

use super::over_tcp::{Acceptance, Config, Limits, OverTcp};

/// Proxy whose streams are connections of slowlight's TCP.
///
/// Its paths are IP interfaces on which it also receives packets for other hosts, and sends
/// packets with their addresses. Gateways in a chain are independent: each terminates the
/// connection it sees, and opens the next to the following gateway or the server.
pub type Gateway = OverTcp<Pep>;

/// Settings of a gateway.
#[derive(Clone, Debug)]
pub struct GatewayConfig {
    /// Settings of the proxy.
    pub pep: pep::Config,
    /// Settings of the stack: above all routes, and options of connections by interface
    /// ([`tcp::Config::interfaces`]). All addresses count as its own.
    pub tcp: tcp::Config,
    /// Options of connections over interfaces without their own.
    pub options: Options,
    /// The gateway's own addresses, to which nothing is proxied.
    pub addresses: Vec<IpAddr>,
    /// Whether clients are accepted before their server responds. That saves a round trip, but a
    /// refusal by the server then appears as a reset.
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
    /// Builds the gateway.
    #[must_use]
    pub fn build(&self, rng: Rng) -> Gateway {
        let own = self.addresses.iter().map(|address| SocketAddr::new(*address, 0));
        let mut pep = self.pep.clone();
        pep.own.extend(own);
        let any = [IpAddr::V4(Ipv4Addr::UNSPECIFIED), IpAddr::V6(Ipv6Addr::UNSPECIFIED)];
        let streams = 2 * pep.connections;
        let acceptance = if self.early_accept {
            Acceptance::AtOnce
        } else {
            Acceptance::WhenConnected { most: streams }
        };
        let config = Config {
            tcp: tcp::Config { addresses: Vec::new(), ..self.tcp.clone() },
            options: self.options.clone(),
            addresses: self.addresses.clone(),
            listen: any.map(|address| SocketAddr::new(address, 0)).to_vec(),
            backlog: Backlog { half_open: pep.connections.max(1), ..Backlog::default() },
            acceptance,
            // Streams that were left wait for their last acknowledgments, in addition to the
            // current streams.
            limits: Limits { streams: 2 * streams + 2, ..Limits::default() },
            ..Config::default()
        };
        OverTcp::new(config, Pep::new(pep), rng)
    }

    /// Maximum bytes of memory held because of peers: by the proxy, and in the buffers of all
    /// connections.
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
