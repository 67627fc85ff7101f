//! Listening sockets of hosts.

use std::collections::BTreeSet;
use std::fs;
use std::io;

use crate::world::Host;

/// Kernel tables of sockets and the states that count as listening: TCP sockets that listen, and
/// UDP and raw ones without a peer.
const TABLES: [(&str, &str); 6] =
    [("tcp", "0A"), ("tcp6", "0A"), ("udp", "07"), ("udp6", "07"), ("raw", "07"), ("raw6", "07")];

/// A listening socket of a host.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Listening {
    table: &'static str,
    /// Address and port as the kernel writes them.
    local: String,
}

impl Listening {
    /// Returns the port if it is a TCP socket.
    #[must_use]
    pub fn tcp_port(&self) -> Option<u16> {
        self.port_of("tcp")
    }

    /// Returns the port if it is a UDP socket.
    #[must_use]
    pub fn udp_port(&self) -> Option<u16> {
        self.port_of("udp")
    }

    fn port_of(&self, protocol: &str) -> Option<u16> {
        let (_, port) = self.local.rsplit_once(':')?;
        u16::from_str_radix(port, 16).ok().filter(|_| self.table.starts_with(protocol))
    }
}

/// Returns the listening sockets of a host.
///
/// # Errors
///
/// The system refused access to its tables.
pub fn listening(host: &Host) -> io::Result<BTreeSet<Listening>> {
    let read = |table| {
        // A kernel without IPv6 lacks some of them.
        fs::read_to_string(format!("/proc/thread-self/net/{table}")).unwrap_or_default()
    };
    let texts = host.within(|| TABLES.map(|(table, state)| (table, state, read(table))))?;
    Ok(texts.iter().flat_map(|(table, state, text)| of_table(table, state, text)).collect())
}

/// Entries of a kernel table in this state.
fn of_table<'a>(
    table: &'static str,
    state: &'a str,
    text: &'a str,
) -> impl Iterator<Item = Listening> + 'a {
    // Number, local address, remote address, state.
    let fields = move |line: &'a str| {
        let mut fields = line.split_whitespace().skip(1);
        let local = fields.next()?;
        fields.nth(1).filter(|of| *of == state)?;
        Some(Listening { table, local: local.to_owned() })
    };
    text.lines().skip(1).filter_map(fields)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn listening_sockets_differ_from_connected_ones() {
        let text = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt
   0: 0100000A:0FA0 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 1 1
   1: 0100000A:A2C4 0200000A:0016 01 00000000:00000000 00:00000000 00000000     0        0 2 1\n";
        let found: Vec<_> = of_table("tcp", "0A", text).collect();
        assert_eq!(found.len(), 1);
        assert_eq!((found[0].tcp_port(), found[0].udp_port()), (Some(4000), None));
        let raw = Listening { table: "raw", local: "00000000:0001".to_owned() };
        assert_eq!((raw.tcp_port(), raw.udp_port()), (None, None), "a protocol");
    }
}
