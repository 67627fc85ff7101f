//! What hosts counted.

use engine::Time;

/// Datagrams that went one way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// How many.
    pub packets: u64,
    /// Their bytes from the IP header on.
    pub ip_bytes: u64,
    /// Their bytes behind the UDP header.
    pub payload_bytes: u64,
    /// When the first one passed.
    pub first: Option<Time>,
    /// When the last one passed.
    pub last: Option<Time>,
}

impl Traffic {
    /// Counts one that passed now, by its lengths from the IP header on and behind the UDP header.
    pub fn count(&mut self, now: Time, ip_len: usize, payload_len: usize) {
        self.packets += 1;
        self.ip_bytes += ip_len as u64;
        self.payload_bytes += payload_len as u64;
        self.first.get_or_insert(now);
        self.last = Some(now);
    }
}

/// What crossed one local port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PortStats {
    /// The local port.
    pub port: u16,
    /// Datagrams the first link took.
    pub sent: Traffic,
    /// Datagrams handed to the engine.
    pub received: Traffic,
}

/// What one host counted since the world began; crashes do not reset it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HostStats {
    /// Datagrams the first link took.
    pub sent: Traffic,
    /// Datagrams handed to the engine.
    pub received: Traffic,
    /// The same by local port, in order of first use.
    pub ports: Vec<PortStats>,
    /// Packets for others that were passed on.
    pub forwarded: u64,
    /// Packets whose IP header was damaged or made no sense.
    pub bad_ip: u64,
    /// Datagrams whose UDP header or checksum was wrong.
    pub bad_udp: u64,
    /// Datagrams for a port nobody listens on, or from an unknown peer where there is no room
    /// for one more path.
    pub no_port: u64,
    /// Packets, own or forwarded, without a route.
    pub no_route: u64,
    /// Datagrams the engine sent on a path that is not open, or beyond the path's MTU.
    pub unsendable: u64,
    /// Packets, own or forwarded, that the link's full queue did not take.
    pub rejected: u64,
    /// Packets whose time to live ran out here.
    pub ttl_expired: u64,
    /// Datagrams that came while the host was down.
    pub while_down: u64,
    /// Datagrams that found the receive buffer full while the engine had reading paused.
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
