//! Packets of Saratoga, of either version.

use saratoga::packet::{Packet, v0};
use wire::DecodeError;

use super::{Described, Dissector, ETHERNET_MAX, by_likeness, single};

/// Reader of Saratoga packets, of either version.
pub const DISSECTOR: Dissector =
    Dissector { title: "Saratoga", line: Some(line), split, plausible, begins, describe };

/// Version 0 has no put.
fn begins(datagram: &[u8]) -> bool {
    Packet::decode(datagram).is_ok_and(|packet| {
        let is_first = match &packet {
            Packet::Beacon(beacon) => !beacon.eid.is_empty() && is_text(beacon.eid),
            Packet::Request(_) | Packet::Metadata(_) | Packet::Data(_) => true,
            Packet::Status(_) => false,
        };
        is_first && packet.to_vec().is_ok_and(|bytes| bytes == datagram)
    })
}

/// DATA packets of one session. Those of a packet that fits Ethernet must also follow each other
/// in the file: its data could look like a header.
fn split(packet: &[u8]) -> Vec<&[u8]> {
    let Some(first) = data(packet) else { return single(packet) };
    let header = (packet.len() - first.len) as u64;
    by_likeness(packet, |part| {
        // Version and type, before the whole packet.
        let is_alike = part.bytes.first() == packet.first();
        let Some(next) = is_alike.then(|| data(part.bytes)).flatten() else { return false };
        let sent = (part.start as u64).checked_sub(part.number as u64 * header);
        let offset = sent.and_then(|sent| first.offset.checked_add(sent));
        let follows = Some(next.offset) == offset || packet.len() > ETHERNET_MAX;
        next.session == first.session && follows
    })
}

/// Head of a DATA packet.
struct Head {
    session: u32,
    offset: u64,
    /// Bytes of data.
    len: usize,
}

fn data(packet: &[u8]) -> Option<Head> {
    match (Packet::decode(packet), v0::Packet::decode(packet)) {
        (Ok(Packet::Data(data)), _) => {
            Some(Head { session: data.session, offset: data.offset, len: data.data.len() })
        }
        (Err(_), Ok(v0::Packet::Data(data))) => {
            Some(Head { session: data.session, offset: data.offset.into(), len: data.data.len() })
        }
        (Ok(_) | Err(_), _) => None,
    }
}

fn line(datagram: &[u8]) -> Result<String, DecodeError> {
    match Packet::decode(datagram) {
        // The first bits have the version of a packet.
        Err(error) => v0::Packet::decode(datagram)
            .map(|packet| format!("version 0 {packet}"))
            .map_err(|_| error),
        Ok(packet) => Ok(packet.to_string()),
    }
}

fn plausible(datagram: &[u8]) -> Result<(), DecodeError> {
    // A PDU of CFDP may start like a beacon, whose name takes all remaining bytes.
    let name = match Packet::decode(datagram) {
        Ok(Packet::Beacon(beacon)) => Some(beacon.eid),
        Ok(_) => None,
        Err(_) => match v0::Packet::decode(datagram) {
            Ok(v0::Packet::Beacon(beacon)) => Some(beacon.eid),
            Ok(_) | Err(_) => None,
        },
    };
    if name.is_some_and(|name| !is_text(name)) {
        Err(DecodeError::invalid(0, "a beacon whose name is not text"))
    } else {
        Ok(())
    }
}

fn is_text(bytes: &[u8]) -> bool {
    std::str::from_utf8(bytes).is_ok_and(|text| !text.chars().any(char::is_control))
}

fn describe(datagram: &[u8]) -> Described {
    match (Packet::decode(datagram), v0::Packet::decode(datagram)) {
        (Ok(Packet::Beacon(_)), _) | (Err(_), Ok(v0::Packet::Beacon(_))) => {
            ("BEACON".to_owned(), None)
        }
        (Ok(Packet::Request(request)), _) => (format!("REQUEST({})", request.kind), None),
        (Ok(Packet::Metadata(_)), _) | (Err(_), Ok(v0::Packet::Metadata(_))) => {
            ("METADATA".to_owned(), None)
        }
        (Ok(Packet::Data(data)), _) => {
            let asks = if data.wants_status { "DATA, STATUS requested" } else { "DATA" };
            (asks.to_owned(), Some(data.offset))
        }
        (Ok(Packet::Status(status)), _) => ("STATUS".to_owned(), Some(status.progress)),
        (Err(_), Ok(v0::Packet::Request(_))) => ("REQUEST(get)".to_owned(), None),
        (Err(_), Ok(v0::Packet::Accept(_))) => ("acceptance".to_owned(), None),
        (Err(_), Ok(v0::Packet::Data(data))) => ("DATA".to_owned(), Some(data.offset.into())),
        (Err(_), Ok(v0::Packet::Poll(poll))) => ("poll".to_owned(), Some(poll.offset.into())),
        (Err(_), Ok(v0::Packet::Status(_))) => ("STATUS".to_owned(), None),
        (Err(error), Err(_)) => (format!("not Saratoga: {error}"), None),
    }
}
