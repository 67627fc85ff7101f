//! Counters of hosts.

use engine::Time;

/// Datagrams in one direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Number of datagrams.
    pub packets: u64,
    /// Bytes from the IP header on.
    pub ip_bytes: u64,
    /// Bytes behind the UDP header.
    pub payload_bytes: u64,
    /// Time of the first datagram.
    pub first: Option<Time>,
    /// Time of the last datagram.
    pub last: Option<Time>,
}

impl Traffic {
    /// Counts a datagram at `now`, by its lengths from the IP header on and behind the UDP header.
    pub fn count(&mut self, now: Time, ip_len: usize, payload_len: usize) {
        self.packets += 1;
        self.ip_bytes += ip_len as u64;
        self.payload_bytes += payload_len as u64;
        self.first.get_or_insert(now);
        self.last = Some(now);
    }
}

/// Traffic of one local port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PortStats {
    /// Local port.
    pub port: u16,
    /// Datagrams the first link accepted.
    pub sent: Traffic,
    /// Datagrams delivered to the engine.
    pub received: Traffic,
}

/// Counters of one host since the start of the world; crashes do not reset them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HostStats {
    /// Datagrams the first link accepted.
    pub sent: Traffic,
    /// Datagrams delivered to the engine.
    pub received: Traffic,
    /// Datagrams sent and received by local port, in order of first use.
    pub ports: Vec<PortStats>,
    /// Packets forwarded for others.
    pub forwarded: u64,
    /// Packets with a damaged or invalid IP header.
    pub bad_ip: u64,
    /// Datagrams whose UDP header or checksum was wrong.
    pub bad_udp: u64,
    /// Datagrams for a closed port, or from an unknown peer without room for another path.
    pub no_port: u64,
    /// Packets, own or forwarded, without a route.
    pub no_route: u64,
    /// Datagrams the engine sent on a path that is not open, or beyond the path's MTU.
    pub unsendable: u64,
    /// Packets, own or forwarded, that the link's full queue rejected.
    pub rejected: u64,
    /// Packets whose TTL expired here.
    pub ttl_expired: u64,
    /// Datagrams that arrived while the host was down.
    pub while_down: u64,
    /// Datagrams dropped because the receive buffer was full while the engine had reading paused.
    pub buffer_full: u64,
}

impl HostStats {
    pub(crate) fn port(&mut self, port: u16) -> &mut PortStats {
        let index = self.ports.iter().position(|stats| stats.port == port);
        let index = index.unwrap_or_else(|| {
            self.ports.push(PortStats { port, ..PortStats::default() });
            self.ports.len() - 1
        });
        &mut self.ports[index]
    }
}
