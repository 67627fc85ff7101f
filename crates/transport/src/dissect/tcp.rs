//! Packets of TCP, and of SCPS-TP.

use tcp::segment::{Flags, Segment};
use wire::ip::Ipv4;

use super::{Described, Dissector, single};

/// Reader of TCP and SCPS-TP packets.
pub const DISSECTOR: Dissector = Dissector {
    title: "TCP",
    line: None,
    split: single,
    plausible: |_| Ok(()),
    begins: |_| false,
    describe,
};

/// Description of an IP packet with TCP: its flags SYN, FIN and RST, or else whether it carries
/// data or only an acknowledgment, and its sequence number.
fn describe(packet: &[u8]) -> Described {
    let segment = match Ipv4::decode(packet) {
        Ok((header, payload)) => match header.protocol {
            tcp::segment::PROTOCOL | tcp::segment::scps::PROTOCOL => {
                Segment::decode_unchecked(payload)
            }
            tcp::segment::scps::COMPRESSED_PROTOCOL => return describe_compressed(payload),
            _ => return ("not TCP".to_owned(), None),
        },
        Err(error) => return (format!("not TCP: {error}"), None),
    };
    let segment = match segment {
        Ok(segment) => segment,
        Err(error) => return (format!("not TCP: {error}"), None),
    };
    let parts = name(segment.header.flags, !segment.payload.is_empty());
    (parts, Some(u64::from(segment.header.sequence)))
}

/// Description of a packet with a compressed header, which may omit the sequence number.
fn describe_compressed(packet: &[u8]) -> Described {
    match tcp::segment::scps::Compressed::decode_unchecked(packet) {
        Ok((packet, _)) => {
            let parts = name(packet.head.flags, !packet.payload.is_empty());
            (parts, packet.head.sequence.map(u64::from))
        }
        Err(error) => (format!("not SCPS-TP: {error}"), None),
    }
}

fn name(flags: Flags, has_data: bool) -> String {
    let mut parts: Vec<&str> = [(Flags::SYN, "SYN"), (Flags::FIN, "FIN"), (Flags::RST, "RST")]
        .into_iter()
        .filter(|(flag, _)| flags.contains(*flag))
        .map(|(_, name)| name)
        .collect();
    if has_data {
        parts.push("data");
    }
    if parts.is_empty() || (flags.contains(Flags::SYN | Flags::ACK)) {
        parts.push("ACK");
    }
    parts.join(" ")
}
