//! Packets of Saratoga, of either version.

use wire::DecodeError;
use wire::saratoga::{Packet, v0};

use super::{Described, Dissector};

/// Reader of Saratoga packets, of either version.
pub const DISSECTOR: Dissector =
    Dissector { title: "Saratoga", line: Some(line), plausible, describe };

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
    match name.is_some_and(|name| !is_text(name)) {
        true => Err(DecodeError::invalid(0, "a beacon whose name is no text")),
        false => Ok(()),
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
