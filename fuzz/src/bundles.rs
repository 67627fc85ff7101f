//! Bundles, their security blocks, and the TCP convergence layer.

use bp::codec::bp6;
use bp::codec::bp7;
use bp::codec::bpsec;
use bp::codec::bpsec::{AesGcm, HmacSha2, SecurityBlock};
use bp::codec::eid::Eid;
use bp::codec::mtcp::Framing;
use bp::codec::tcpcl3;
use bp::codec::tcpcl4;
use bp::codec::udpcl::{Datagram, Fragment};
use engine::IndexRequest;
use wire::checksum::crc32c;

/// Decodes a bundle of version 7, also from prefixes, and an administrative record in it; or an
/// endpoint as text.
///
/// # Panics
/// If a decoded bundle does not survive encoding, or a prefix decodes to another head.
pub fn bp7_bundle(data: &[u8]) {
    if let Some(eid) = str::from_utf8(data).ok().and_then(|text| text.parse::<Eid>().ok()) {
        assert_eq!(eid.node().node(), eid.node());
        assert_eq!(eid.to_string().parse(), Ok(eid));
        return;
    }
    let bounds = bp7::Bounds { head_max: 2048, blocks_max: 16, ..bp7::Bounds::default() };
    bp7_record(data, &bounds);
    let Ok(Some(head)) = bp7::Head::decode(data, &bounds) else { return };
    assert!(!head.to_string().is_empty());
    assert!(head.payload_offset() <= data.len().min(bounds.head_max));
    let prefix = &data[..head.payload_offset()];
    assert_eq!(bp7::Head::decode(prefix, &bounds).as_ref(), Ok(&Some(head.clone())));
    assert_eq!(bp7::Head::decode(&prefix[..prefix.len() - 1], &bounds), Ok(None));
    for block in head.blocks() {
        assert!(block.data().len() < block.bytes().len());
        let Ok(extension) = block.extension(&bounds) else { continue };
        if let Ok(made) = extension.to_block(block.number(), block.flags(), block.crc()) {
            assert_eq!(made.extension(&bounds), Ok(extension));
        }
    }
    if let Ok(primary) = head.primary().to_vec() {
        // With the flag that follows from the fragment field.
        let made = bp7::Head::new(head.primary().clone(), Vec::new(), head.payload());
        assert_eq!(made.expect("the primary block has a form").primary_bytes(), primary);
    }
    let Ok((bundle, len)) = bp7::Bundle::decode_first(data, &bounds) else { return };
    assert!(len <= data.len());
    bp7_record(bundle.payload, &bounds);
    let written = bundle.to_vec().expect("the payload has its length");
    let again = bp7::Bundle::decode(&written, &bp7::Bounds::default()).expect("written bytes");
    assert_eq!(again.payload, bundle.payload);
    assert_eq!(again.head.blocks(), bundle.head.blocks());
    assert_eq!(again.head.primary_bytes(), bundle.head.primary_bytes());
    assert_eq!(again.to_vec().as_ref(), Ok(&written));
}

fn bp7_record(data: &[u8], bounds: &bp7::Bounds) {
    let Ok(record) = bp7::AdministrativeRecord::decode(data, bounds) else { return };
    assert!(!record.to_string().is_empty());
    let bytes = record.to_vec().expect("decoded values can be encoded");
    assert_eq!(bp7::AdministrativeRecord::decode(&bytes, bounds), Ok(record));
}

/// Decodes a bundle of version 6, also from prefixes, and an administrative record in it.
///
/// # Panics
/// If a decoded bundle does not survive encoding, or a prefix decodes to another head.
pub fn bp6_bundle(data: &[u8]) {
    let bounds = bp6::Bounds { head_max: 2048, blocks_max: 16, ..bp6::Bounds::default() };
    bp6_record(data, &bounds);
    let Ok(Some(head)) = bp6::Head::decode(data, &bounds) else { return };
    assert!(!head.to_string().is_empty());
    let prefix = &data[..head.encoded_len()];
    assert_eq!(head.encode(), prefix);
    assert_eq!(bp6::Head::decode(prefix, &bounds).as_ref(), Ok(&Some(head.clone())));
    assert_eq!(bp6::Head::decode(&prefix[..prefix.len() - 1], &bounds), Ok(None));
    for block in head.blocks() {
        drop(block.to_previous_hop(head.primary()));
        if let Ok(custody) = bp6::CustodyEnhancement::from_block(block) {
            let made = custody.to_block(block.flags()).expect("it has a form");
            assert_eq!(bp6::CustodyEnhancement::from_block(&made), Ok(custody));
        }
    }
    // With another custodian, the endpoints that blocks refer to stay the same.
    let custodian = Eid::ipn(77, 0);
    let mut changed = head.clone();
    let primary = bp6::Primary { custodian: custodian.clone(), ..head.primary().clone() };
    if changed.set_primary(primary).is_ok() {
        let read = bp6::Head::decode(&changed.encode(), &bp6::Bounds::default());
        let read = read.expect("written bytes").expect("all of it");
        assert_eq!(read.primary().custodian, custodian);
        assert_eq!(read.primary().source, head.primary().source);
        for reference in head.blocks().iter().flat_map(bp6::Block::references) {
            if let Ok(eid) = head.primary().resolve(*reference) {
                assert_eq!(read.primary().resolve(*reference), Ok(eid));
            }
        }
    }
    let Ok((bundle, len)) = bp6::Bundle::decode_first(data, &bounds) else { return };
    bp6_record(bundle.payload, &bounds);
    assert_eq!(bundle.to_vec().as_deref(), Ok(&data[..len]));
}

fn bp6_record(data: &[u8], bounds: &bp6::Bounds) {
    let Ok(record) = bp6::AdministrativeRecord::decode(data, bounds) else { return };
    assert!(!record.to_string().is_empty());
    let bytes = record.to_vec().expect("decoded values can be encoded");
    assert_eq!(bp6::AdministrativeRecord::decode(&bytes, bounds), Ok(record));
}

/// Decodes the data of a security block, and its parameters.
///
/// # Panics
/// If decoded data does not survive encoding.
pub fn bpsec_block(data: &[u8]) {
    let bounds = bpsec::Bounds::default();
    let Ok(block) = SecurityBlock::decode(data, &bounds) else { return };
    let bytes = block.to_vec().expect("decoded values can be encoded");
    assert_eq!(SecurityBlock::decode(&bytes, &bounds).as_ref(), Ok(&block));
    if let Ok(parameters) = HmacSha2::from_block(&block) {
        let made = SecurityBlock { parameters: parameters.items(), ..block.clone() };
        assert_eq!(HmacSha2::from_block(&made).as_ref(), Ok(&parameters));
        for target in &block.targets {
            let _ = parameters.mac(&block, target.target);
        }
    }
    if let Ok(parameters) = AesGcm::from_block(&block) {
        let items = parameters.items().expect("its vector has a length that is allowed");
        let made = SecurityBlock { parameters: items, ..block.clone() };
        assert_eq!(AesGcm::from_block(&made), Ok(parameters));
        for target in &block.targets {
            let _ = AesGcm::tag(&block, target.target);
        }
    }
}

/// Decodes the lengths before bundles of MTCP, or of STCP if the first byte is odd.
///
/// # Panics
/// If a length does not survive encoding, or a prefix decodes to another length.
pub fn mtcp(data: &[u8]) {
    let Some((first, mut rest)) = data.split_first() else { return };
    let framing = if first % 2 == 0 { Framing::Mtcp } else { Framing::Stcp };
    while let Ok(Some((length, len))) = framing.decode(rest) {
        assert_eq!(framing.decode(&rest[..len - 1]), Ok(None));
        let bytes = framing.to_vec(length).expect("parsed values can be written");
        assert!(bytes.len() <= len, "lengths are written in their shortest form");
        assert_eq!(framing.decode(&bytes), Ok(Some((length, bytes.len()))));
        let Some(next) = behind(rest, len, length) else { return };
        rest = next;
    }
}

/// Decodes a datagram of UDPCL.
///
/// # Panics
/// If a fragment exceeds its bundle, or does not survive encoding.
pub fn udpcl(data: &[u8]) {
    let Ok(datagram) = Datagram::decode(data) else { return };
    assert!(!datagram.to_string().is_empty());
    match datagram {
        Datagram::Keepalive => assert_eq!(data, [0; 4]),
        Datagram::Bundle(bytes) => assert_eq!(bytes, data),
        Datagram::Fragment(fragment) => {
            let Fragment { length, offset, data: part, .. } = fragment;
            assert!(u64::from(offset) + part.len() as u64 <= u64::from(length));
            assert_eq!([&fragment.header()[..], part].concat(), data);
        }
    }
}

/// Decodes the stream of one side of a connection, in the version of its contact header.
///
/// # Panics
/// If a decoded message does not survive encoding, or a prefix decodes to another message.
pub fn tcpcl(data: &[u8]) {
    match bp::codec::tcpcl::version(data) {
        Ok(Some(tcpcl4::VERSION)) => tcpcl_4(data),
        Ok(Some(_)) => tcpcl_3(data),
        Ok(None) | Err(_) => {}
    }
}

fn tcpcl_4(data: &[u8]) {
    let Ok(Some(header)) = tcpcl4::ContactHeader::decode(data) else { return };
    assert_eq!(tcpcl4::ContactHeader::decode(&header.encode()), Ok(Some(header)));
    let mut rest = &data[tcpcl4::CONTACT_LEN..];
    let bounds = tcpcl4::Bounds { node_id_max: 200, extensions_max: 300 };
    while let Ok(Some((message, len))) = tcpcl4::Message::decode(rest, &bounds) {
        assert!(!message.to_string().is_empty());
        assert_eq!(tcpcl4::Message::decode(&rest[..len - 1], &bounds), Ok(None));
        let bytes = message.to_vec().expect("decoded values can be encoded");
        assert_eq!(bytes.len(), len);
        assert_eq!(tcpcl4::Message::decode(&bytes, &bounds), Ok(Some((message, len))));
        let data = match message {
            tcpcl4::Message::Segment(segment) => segment.length,
            tcpcl4::Message::Ack { .. }
            | tcpcl4::Message::Refuse { .. }
            | tcpcl4::Message::Keepalive
            | tcpcl4::Message::Terminate { .. }
            | tcpcl4::Message::Reject { .. }
            | tcpcl4::Message::Init(_)
            | tcpcl4::Message::Unknown { .. } => 0,
        };
        let Some(next) = behind(rest, len, data) else { return };
        rest = next;
    }
}

fn tcpcl_3(data: &[u8]) {
    const EID_MAX: usize = 200;
    let Ok(Some((header, len))) = tcpcl3::ContactHeader::decode(data, EID_MAX) else { return };
    assert_eq!(tcpcl3::ContactHeader::decode(&data[..len - 1], EID_MAX), Ok(None));
    let bytes = header.to_vec();
    let again = tcpcl3::ContactHeader::decode(&bytes, EID_MAX);
    assert_eq!(again, Ok(Some((header, bytes.len()))));
    let mut rest = &data[len..];
    while let Ok(Some((message, len))) = tcpcl3::Message::decode(rest) {
        assert!(!message.to_string().is_empty());
        assert_eq!(tcpcl3::Message::decode(&rest[..len - 1]), Ok(None));
        let bytes = message.to_vec().expect("decoded values can be encoded");
        assert!(bytes.len() <= len, "numbers are written in their shortest form");
        assert_eq!(tcpcl3::Message::decode(&bytes), Ok(Some((message, bytes.len()))));
        let data = match message {
            tcpcl3::Message::Segment { length, .. } => length,
            tcpcl3::Message::Ack { .. }
            | tcpcl3::Message::Refuse { .. }
            | tcpcl3::Message::Keepalive
            | tcpcl3::Message::Shutdown { .. }
            | tcpcl3::Message::Length { .. }
            | tcpcl3::Message::Unknown { .. } => 0,
        };
        let Some(next) = behind(rest, len, data) else { return };
        rest = next;
    }
}

/// Returns the bytes behind a message and its data.
fn behind(rest: &[u8], len: usize, data: u64) -> Option<&[u8]> {
    rest[len..].get(usize::try_from(data).ok()?..)
}

/// Decodes the header of a file part in a bundle.
///
/// # Panics
/// If a decoded header does not survive encoding.
pub fn file_part(data: &[u8]) {
    let Ok((part, crc)) = bp::codec::file_part::FilePart::decode(data) else { return };
    assert!(!part.to_string().is_empty());
    let encoded = part.encode(crc).expect("decoded values fit their fields");
    assert_eq!(encoded.len(), part.header_len());
    assert_eq!(encoded, data[..encoded.len()]);
    assert!(part.crc().is_ok());
}

/// Decodes a record of a file in parts, whose key comes first, and encodes it again.
///
/// # Panics
/// If a decoded record does not survive encoding.
pub fn file_record(data: &[u8]) {
    let Some(at) = data.iter().position(|byte| *byte == b'\n') else { return };
    let (key, value) = (&data[..at], &data[at + 1..]);
    let Ok(key) = std::str::from_utf8(key) else { return };
    let value = [value, &crc32c(value).to_be_bytes()].concat().into();
    let Some(IndexRequest::Put { key: other, value: again }) = bp::files::reencoded(key, &value)
    else {
        return;
    };
    assert_eq!(key, other);
    let reencoded = bp::files::reencoded(key, &again);
    assert_eq!(reencoded, Some(IndexRequest::Put { key: other, value: again }));
}

/// Decodes a beacon of a node and encodes it again.
///
/// # Panics
/// If a decoded beacon does not survive encoding.
pub fn ipnd_beacon(data: &[u8]) {
    let Ok(beacon) = bp::codec::ipnd::Beacon::decode(data) else { return };
    assert!(!beacon.to_string().is_empty());
    let encoded = beacon.encode().expect("decoded values are within their bounds");
    assert_eq!(bp::codec::ipnd::Beacon::decode(&encoded), Ok(beacon));
}
