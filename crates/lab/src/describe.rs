//! What packets are, for traces.

use transport::protocol::Family;

/// What a datagram is, for traces of a world where these are spoken.
#[must_use]
pub fn describe(families: &[Family], datagram: &[u8]) -> (String, Option<u64>) {
    let one = |family: &Family| match family {
        Family::Cfdp => describe_cfdp(datagram),
        Family::Ltp | Family::CfdpLtp => describe_ltp(datagram),
        Family::Saratoga => describe_saratoga(datagram),
        Family::Norm => describe_norm(datagram),
        Family::OverTcp => describe_tcp(datagram),
        Family::Bundles => describe_bundles(datagram),
    };
    let mut known = families.iter().map(one);
    let first = known.next().unwrap_or_else(|| ("unknown".to_owned(), None));
    if first.0.starts_with(UNKNOWN) {
        // Several protocols in one world: whichever can read it.
        return known.find(|(kind, _)| !kind.starts_with(UNKNOWN)).unwrap_or(first);
    }
    first
}

/// How the description of something unreadable begins.
const UNKNOWN: &str = "not ";

/// Bundles go over TCP or in datagrams.
fn describe_bundles(datagram: &[u8]) -> (String, Option<u64>) {
    use wire::udpcl::Datagram;

    let over_tcp = describe_tcp(datagram);
    match Datagram::decode(datagram) {
        Ok(udp) if over_tcp.0.starts_with(UNKNOWN) => match udp {
            Datagram::Keepalive => ("keep-alive".to_owned(), None),
            Datagram::Bundle(_) => ("bundle".to_owned(), None),
            Datagram::Fragment(fragment) => {
                (format!("part of bundle {}", fragment.bundle), Some(fragment.offset.into()))
            }
        },
        Ok(_) | Err(_) => over_tcp,
    }
}

/// Description of an IP packet with TCP in it: its flags of SYN, FIN and RST, or that it is data or
/// an acknowledgment alone, and its sequence number.
fn describe_tcp(packet: &[u8]) -> (String, Option<u64>) {
    use wire::ip::Ipv4;
    use wire::tcp::Segment;

    let segment = match Ipv4::decode(packet) {
        Ok((header, payload)) => match header.protocol {
            wire::tcp::PROTOCOL | wire::scps::PROTOCOL => Segment::decode_unchecked(payload),
            wire::scps::COMPRESSED_PROTOCOL => return describe_compressed(payload),
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

/// Description of a packet with a compressed header, whose sequence number may be left out.
fn describe_compressed(packet: &[u8]) -> (String, Option<u64>) {
    match wire::scps::Compressed::decode_unchecked(packet) {
        Ok((packet, _)) => {
            let parts = name(packet.head.flags, !packet.payload.is_empty());
            (parts, packet.head.sequence.map(u64::from))
        }
        Err(error) => (format!("not SCPS-TP: {error}"), None),
    }
}

fn name(flags: wire::tcp::Flags, has_data: bool) -> String {
    use wire::tcp::Flags;

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

fn describe_ltp(datagram: &[u8]) -> (String, Option<u64>) {
    use wire::ltp::{Body, Segment};

    match Segment::decode(datagram).map(|segment| segment.body) {
        Ok(Body::Data(data)) => (data.kind.to_string(), Some(data.offset)),
        Ok(Body::Report(report)) => ("report".to_owned(), Some(report.serial)),
        Ok(Body::ReportAck { serial }) => ("report acknowledgement".to_owned(), Some(serial)),
        Ok(Body::Cancel { by, .. }) => (format!("cancel by the {by}"), None),
        Ok(Body::CancelAck { by }) => (format!("cancel by the {by} acknowledged"), None),
        Err(error) => (format!("not LTP: {error}"), None),
    }
}

fn describe_saratoga(datagram: &[u8]) -> (String, Option<u64>) {
    use wire::saratoga::{Packet, v0};

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

fn describe_norm(datagram: &[u8]) -> (String, Option<u64>) {
    use wire::norm::{Ack, Body, Command, Message};

    let (kind, number) = match Message::decode(datagram).map(|message| message.body) {
        Ok(Body::Info(_)) => ("NORM_INFO", None),
        Ok(Body::Data(data)) => {
            // Block and symbol in one number, which grows as both do.
            let at = u64::from(data.id.block) << 16 | u64::from(data.id.symbol);
            ("NORM_DATA", Some(at))
        }
        Ok(Body::Command(command)) => match command {
            Command::Flush { .. } => ("NORM_CMD(FLUSH)", None),
            Command::Eot { .. } => ("NORM_CMD(EOT)", None),
            Command::Squelch { .. } => ("NORM_CMD(SQUELCH)", None),
            Command::Cc { sequence, .. } => ("NORM_CMD(CC)", Some(u64::from(sequence))),
            Command::RepairAdv { .. } => ("NORM_CMD(REPAIR_ADV)", None),
            Command::AckReq { .. } => ("NORM_CMD(ACK_REQ)", None),
            Command::Application { .. } => ("NORM_CMD(APPLICATION)", None),
            Command::Other { .. } => ("NORM_CMD", None),
        },
        Ok(Body::Nack(_)) => ("NORM_NACK", None),
        Ok(Body::Ack(ack)) if ack.kind == Ack::CC => ("NORM_ACK(CC)", None),
        Ok(Body::Ack(ack)) if ack.kind == Ack::FLUSH => ("NORM_ACK(FLUSH)", None),
        Ok(Body::Ack(_)) => ("NORM_ACK", None),
        Ok(Body::Report(_)) => ("NORM_REPORT", None),
        Err(error) => return (format!("not NORM: {error}"), None),
    };
    (kind.to_owned(), number)
}

fn describe_cfdp(datagram: &[u8]) -> (String, Option<u64>) {
    use wire::cfdp::{Body, Pdu};

    match Pdu::decode(datagram) {
        Ok(pdu) => match &pdu.body {
            Body::FileData(data) => ("File Data".to_owned(), Some(data.offset)),
            Body::Metadata(_) => ("Metadata".to_owned(), None),
            Body::Eof(_) => ("EOF".to_owned(), None),
            Body::Finished(_) => ("Finished".to_owned(), None),
            Body::Ack(ack) => (format!("ACK({})", ack.directive), None),
            Body::Nak(_) => ("NAK".to_owned(), None),
            Body::Prompt(_) => ("Prompt".to_owned(), None),
            Body::KeepAlive(_) => ("Keep Alive".to_owned(), None),
            Body::Unknown { .. } => ("unknown directive".to_owned(), None),
        },
        Err(error) => (format!("not CFDP: {error}"), None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bundles_are_known_in_datagrams_and_over_tcp() {
        let fragment = wire::udpcl::Fragment { bundle: 3, length: 40, offset: 7, data: b"x" };
        let fragment = [&fragment.header()[..], b"x"].concat();
        for (datagram, what) in [
            (&[0x9f, 0x88][..], ("bundle", None)),
            (&[0x06, 0][..], ("bundle", None)),
            (&[0; 4][..], ("keep-alive", None)),
            (&fragment[..], ("part of bundle 3", Some(7))),
        ] {
            let (kind, number) = describe(&[Family::Bundles], datagram);
            assert_eq!((kind.as_str(), number), what);
        }
        assert!(describe(&[Family::Bundles], &[0x45, 0]).0.starts_with(UNKNOWN));
    }
}
