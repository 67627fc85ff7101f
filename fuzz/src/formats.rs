//! Binary formats: decoded values can be encoded, and decode to the same again.

use std::net::Ipv6Addr;

use cfdp::pdu::{Body, Pdu, UserOperation};
use ltp::segment::ltpt::Transport;
use ltp::segment::{Extension, Extensions, Segment};
use norm::message;
use pcap::{Datagrams, Reader};
use saratoga::packet::{Packet, v0};
use transport::dissect;
use wire::EncodeError;
use wire::icmp::{self, Quoted, TooBig};
use wire::ip::{self, Ipv4};
use wire::udp::{self, Udp};

/// Decodes a CFDP PDU with everything in it.
///
/// # Panics
/// If a decoded PDU does not survive encoding.
pub fn cfdp_pdu(data: &[u8]) {
    // The first of several consecutive PDUs is no longer than all of them.
    let first = Pdu::len_of_first(data);
    assert!(first.as_ref().is_ok_and(|len| (1..=data.len()).contains(len)) || first.is_err());
    if let Ok((pdu, len)) = Pdu::decode_first(data) {
        assert_eq!((first, Pdu::decode(&data[..len])), (Ok(len), Ok(pdu)));
    }
    let Ok(pdu) = Pdu::decode(data) else { return };
    assert_eq!(first, Ok(data.len()));
    assert!(!pdu.to_string().is_empty());
    if let Body::Metadata(metadata) = &pdu.body {
        assert!(metadata.tlvs.iter().count() <= data.len());
    }
    let encoded = pdu.to_vec().expect("decoded values fit their fields");
    assert_eq!(encoded.len(), pdu.encoded_len());
    assert_eq!(Pdu::decode(&encoded).as_ref(), Ok(&pdu));
}

/// Decodes an LTP segment.
///
/// # Panics
/// If a decoded segment does not survive encoding.
pub fn ltp_segment(data: &[u8]) {
    // Also decodes the units of an aggregated block.
    drop(ltp::segment::Unit::decode_all(data));
    let first = Segment::len_of_first(data);
    assert!(first.as_ref().is_ok_and(|len| (1..=data.len()).contains(len)) || first.is_err());
    let Ok(segment) = Segment::decode(data) else { return };
    assert_eq!(first, Ok(data.len()));
    assert!(!segment.to_string().is_empty());
    ltpt_extensions(segment.header);
    let encoded = segment.to_vec().expect("decoded values fit their fields");
    assert!(encoded.len() <= data.len());
    assert_eq!(Segment::decode(&encoded), Ok(segment));
}

/// Encodes and decodes the LTP-T extensions among these.
fn ltpt_extensions(extensions: Extensions<'_>) {
    let Ok(transport) = Transport::from_extensions(extensions) else { return };
    let values = transport.values();
    let written: Vec<_> =
        values.iter().map(|(tag, value)| Extension { tag: *tag, value }).collect();
    assert_eq!(Transport::from_extensions(Extensions::new(&written)), Ok(transport));
}

/// Decodes a NORM message, with m of scheme 2 in the first byte.
///
/// # Panics
/// If a decoded message, or its content, does not survive encoding.
pub fn norm_message(data: &[u8]) {
    let Some((&field_bits, data)) = data.split_first() else { return };
    // Header of a stream's symbol.
    if let Ok((header, bytes)) = message::StreamHeader::decode(data) {
        assert_eq!(usize::from(header.len), bytes.len());
        assert_eq!(header.encode(), data[..message::STREAM_HEADER_LEN]);
    }
    let Ok(message) = message::Message::decode_with(data, field_bits) else { return };
    assert!(!message.to_string().is_empty());
    let mut encoded = vec![0xa5; message.encoded_len()];
    let written = message.encode_with(&mut encoded, field_bits);
    assert_eq!(written, Ok(encoded.len()), "decoded values fit their fields");
    assert!(encoded.len() <= data.len());
    assert_eq!(message::Message::decode_with(&encoded, field_bits), Ok(message));
    match message.body {
        message::Body::Nack(message::Nack { requests, .. })
        | message::Body::Command(message::Command::RepairAdv { requests, .. }) => {
            norm_requests(requests, field_bits);
        }
        message::Body::Ack(ack) => {
            let Ok(position) = message::Position::decode(ack.payload, field_bits) else { return };
            let mut out = [0xa5; 12];
            let len = position.encode(&mut out, field_bits).expect("it was decoded");
            assert_eq!(message::Position::decode(&out[..len], field_bits), Ok(position));
        }
        message::Body::Info(_)
        | message::Body::Data(_)
        | message::Body::Command(_)
        | message::Body::Report(_) => {}
    }
}

/// Re-encoded requests for repair request the same.
fn norm_requests(requests: message::Requests<'_>, field_bits: u8) {
    let mut out = vec![0xa5; requests.bytes().len()];
    let mut writer = message::RequestWriter::new(&mut out, field_bits);
    for request in requests.iter() {
        for (first, last) in request.ranges() {
            let flags = request.flags;
            let written = match request.form {
                message::Form::Items => writer.item(flags, first),
                message::Form::Ranges => writer.range(flags, first, last),
                message::Form::Erasures => writer.erasures(flags, first),
                message::Form::Other(_) => unreachable!("unknown forms have no positions"),
            };
            // Consecutive requests that share a head may exceed the head's length field.
            if written == Err(EncodeError::TooLarge { field: "the length of a repair request" }) {
                return;
            }
            written.expect("it needs no more room than before");
        }
    }
    let items = |requests: message::Requests<'_>| -> Vec<_> {
        let pairs = requests.iter().flat_map(|request| {
            request.ranges().map(move |pair| (request.form, request.flags, pair))
        });
        pairs.collect()
    };
    let written = writer.finish();
    let read = message::Requests::decode(written.bytes(), field_bits).expect("written bytes");
    assert_eq!(items(read), items(requests));
}

/// Decodes a Saratoga packet of version 1.
///
/// # Panics
/// If a decoded packet does not survive encoding.
pub fn saratoga_v1(data: &[u8]) {
    let Ok(packet) = Packet::decode(data) else { return };
    assert!(!packet.to_string().is_empty());
    let encoded = packet.to_vec().expect("decoded values fit their fields");
    assert!(encoded.len() <= data.len());
    assert_eq!(Packet::decode(&encoded), Ok(packet));
}

/// Decodes a Saratoga packet of version 0.
///
/// # Panics
/// If a decoded packet does not survive encoding.
pub fn saratoga_v0(data: &[u8]) {
    let Ok(packet) = v0::Packet::decode(data) else { return };
    assert!(!packet.to_string().is_empty());
    let encoded = packet.to_vec().expect("decoded values fit their fields");
    // A path is padded to the length of its field, whatever its original length.
    assert!(encoded.len() <= data.len() + v0::METADATA_PATH_LEN);
    assert_eq!(v0::Packet::decode(&encoded), Ok(packet));
}

/// Decodes the content of a message to user.
///
/// # Panics
/// If a decoded operation does not survive encoding.
pub fn cfdp_user_operation(data: &[u8]) {
    let Ok(Some(operation)) = UserOperation::decode(data) else { return };
    assert!(!operation.to_string().is_empty());
    let encoded = operation.to_vec().expect("decoded values fit their fields");
    assert_eq!(UserOperation::decode(&encoded), Ok(Some(operation)));
}

/// Decodes an IPv4 packet, perhaps with a UDP datagram in it.
///
/// # Panics
/// If a decoded header does not survive encoding.
pub fn ip_udp(data: &[u8]) {
    let Ok((ip, payload)) = Ipv4::decode(data) else { return };
    assert!(payload.len() <= data.len() && !ip.to_string().is_empty());
    let Ok((udp, contents)) = Udp::decode(payload, ip.source, ip.destination) else { return };
    let mut datagram = vec![0xa5; udp::HEADER_LEN];
    datagram.extend(contents);
    udp::encode(udp, ip.source, ip.destination, udp::Checksum::Full, &mut datagram);
    let mut header = [0xa5; ip::HEADER_LEN];
    let total_len = ip::HEADER_LEN + datagram.len();
    // Options are dropped, so the encoded packet is at most as long as the original.
    let ip = Ipv4 { total_len: u16::try_from(total_len).expect("no longer than it was"), ..ip };
    ip.encode(&mut header);
    let packet = [&header[..], &datagram].concat();
    let (ip_again, payload) = Ipv4::decode(&packet).expect("an encoded header is right");
    assert_eq!(ip_again, ip);
    let again = Udp::decode(payload, ip.source, ip.destination);
    assert_eq!(again, Ok((udp, contents)));
}

/// Decodes a router's report that a packet is too long: ICMPv6 if the first byte is odd, else
/// ICMP.
///
/// # Panics
/// If a decoded report does not survive encoding.
pub fn icmp_too_big(data: &[u8]) {
    let Some((version, message)) = data.split_first() else { return };
    let (router, host) = (Ipv6Addr::LOCALHOST, Ipv6Addr::UNSPECIFIED);
    let is_v6 = version & 1 == 1;
    let decode = |bytes: &[u8]| {
        let read =
            if is_v6 { TooBig::decode_v6(bytes, router, host) } else { TooBig::decode(bytes) };
        read.ok().flatten().map(|report| (report.mtu, report.quoted.to_vec(), report.to_string()))
    };
    let encode = |mtu: u32, bytes: &mut [u8]| {
        if is_v6 { icmp::encode_v6(mtu, router, host, bytes) } else { icmp::encode(mtu, bytes) }
    };
    let _ = Quoted::decode(message);
    // Checksums are hard to guess, so this tries again with a corrected one.
    let Some(field) = message.get(4..8) else { return };
    let mtu = u32::from_be_bytes([field[0], field[1], field[2], field[3]]);
    let mtu = if is_v6 { mtu } else { mtu & 0xffff };
    let mut bytes = message.to_vec();
    bytes[..icmp::HEADER_LEN].fill(0xa5);
    encode(mtu, &mut bytes);
    let (decoded, quoted, text) = decode(&bytes).expect("our own report");
    assert_eq!((decoded, &quoted[..]), (mtu, &bytes[icmp::HEADER_LEN..]));
    assert!(!text.is_empty());
    if let Some((decoded, quoted, _)) = decode(message) {
        assert_eq!((decoded, &quoted[..]), (mtu, &message[icmp::HEADER_LEN..]));
    }
}

/// Reads a pcapng or pcap file.
///
/// # Panics
/// If the reader yields more bytes than the file has, if fragments take more memory than their
/// bound, or if the parts of a packet are not the packet.
pub fn capture(data: &[u8]) {
    let Ok(reader) = Reader::new(data) else { return };
    let mut total = 0;
    let mut datagrams = Datagrams::default();
    for record in reader {
        let Ok(record) = record else { break };
        total += record.bytes.len();
        if let Some(datagram) = record.udp() {
            assert!(datagram.data.len() <= record.bytes.len());
        }
        if let Ok(datagram) = datagrams.next(&record) {
            for dissector in dissect::ALL {
                let parts = (dissector.split)(datagram.data);
                assert!(parts.iter().all(|part| !part.is_empty()), "{dissector}");
                assert_eq!(parts.concat(), datagram.data, "{dissector}");
            }
        }
        assert!(datagrams.held() <= Datagrams::HELD_MAX);
    }
    assert!(total <= data.len(), "{total} bytes of packets in a file of {}", data.len());
}
