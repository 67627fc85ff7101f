//! Contents of packets.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Whether a packet is a kernel's message of neighbour discovery, router discovery or multicast
/// membership. All three are static here, so that a link carries only programs' packets. Otherwise
/// the link's errors would strike other packets than in the simulator.
pub(super) fn is_of_the_kernel(packet: &[u8]) -> bool {
    const HOP_BY_HOP: u8 = 0;
    const IGMP: u8 = 2;
    const ICMPV6: u8 = 58;
    let at = |index: usize| packet.get(index).copied().unwrap_or_default();
    let message = match (at(0) >> 4, at(6)) {
        (4, _) => return at(9) == IGMP,
        (6, ICMPV6) => at(40),
        // Listener reports have a router alert in front (RFC 3810 §5).
        (6, HOP_BY_HOP) if at(40) == ICMPV6 => at(40 + (usize::from(at(41)) + 1) * 8),
        _ => return false,
    };
    // RFC 4861: 133 to 137; RFC 2710 and 3810: 130 to 132 and 143.
    matches!(message, 130..=137 | 143)
}

/// Source and destination address of a packet.
pub(super) fn ends(packet: &[u8]) -> Option<(IpAddr, IpAddr)> {
    match packet.first()? >> 4 {
        4 => {
            let at = |start: usize| packet.get(start..)?.first_chunk::<4>().copied();
            Some((Ipv4Addr::from(at(12)?).into(), Ipv4Addr::from(at(16)?).into()))
        }
        6 => {
            let at = |start: usize| packet.get(start..)?.first_chunk::<16>().copied();
            Some((Ipv6Addr::from(at(8)?).into(), Ipv6Addr::from(at(24)?).into()))
        }
        _ => None,
    }
}
