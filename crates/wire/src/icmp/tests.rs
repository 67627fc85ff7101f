use proptest::prelude::*;
use testing::hex::vector;

use super::*;
use crate::ip::Ipv4;
use crate::ipv6::Ipv6;

/// Returns the text form that a vector expects.
fn expected(text: &str) -> &str {
    text.lines().find_map(|line| line.strip_prefix("# reads: ")).expect("it says so")
}

#[test]
fn linux_reports_over_ipv4() {
    let text = include_str!("../../testdata/icmp/too_big.hex");
    let bytes = vector(text);
    let (ip, message) = Ipv4::decode(&bytes).unwrap();
    assert_eq!(ip.protocol, PROTOCOL);
    let report = TooBig::decode(message).unwrap().expect("a report");
    assert_eq!((report.mtu, report.to_string().as_str()), (1280, expected(text)));
    let quoted = Quoted::decode(report.quoted).unwrap();
    assert_eq!(quoted.payload[..4], [0xa6, 0x2e, 0x13, 0x88], "its ports");
    let mut again = vec![0xa5; message.len()];
    again[HEADER_LEN..].copy_from_slice(report.quoted);
    encode(report.mtu, &mut again);
    assert_eq!(again, message);
}

#[test]
fn linux_reports_over_ipv6() {
    let text = include_str!("../../testdata/icmp/too_big_v6.hex");
    let bytes = vector(text);
    let (ip, message) = Ipv6::decode(&bytes).unwrap();
    assert_eq!(ip.next_header, PROTOCOL_V6);
    let report = TooBig::decode_v6(message, ip.source, ip.destination).unwrap();
    let report = report.expect("a report");
    assert_eq!((report.mtu, report.to_string().as_str()), (1280, expected(text)));
    let mut again = vec![0xa5; message.len()];
    again[HEADER_LEN..].copy_from_slice(report.quoted);
    encode_v6(report.mtu, ip.source, ip.destination, &mut again);
    assert_eq!(again, message);
}

#[test]
fn other_messages_decode_to_none_with_any_checksum() {
    for head in [[3, 3], [0, 0], [8, 0], [11, 0], [2, 0]] {
        let message = [&head[..], &[0; 26]].concat();
        assert_eq!(TooBig::decode(&message), Ok(None), "{head:?}");
    }
    let (one, other) = (Ipv6Addr::LOCALHOST, Ipv6Addr::UNSPECIFIED);
    assert_eq!(TooBig::decode_v6(&[1, 4, 0, 0, 0, 0, 0, 0], one, other), Ok(None));
}

#[test]
fn errors_name_the_place() {
    let mut message = vec![0; 28];
    encode(1280, &mut message);
    assert_eq!(TooBig::decode(&message[..7]).unwrap_err().offset, 0);
    message[20] ^= 1;
    let error = TooBig::decode(&message).unwrap_err();
    assert!(matches!((error.offset, error.kind), (2, DecodeErrorKind::Checksum { .. })));
    let kind = |bytes: &[u8]| Quoted::decode(bytes).unwrap_err().kind;
    assert_eq!(kind(&[]), DecodeErrorKind::Truncated { needed: 1, found: 0 });
    assert_eq!(kind(&[0x50; 40]), DecodeErrorKind::Version(5));
    assert_eq!(kind(&[0x45; 19]), DecodeErrorKind::Truncated { needed: 20, found: 19 });
    assert_eq!(kind(&[0x60; 39]), DecodeErrorKind::Truncated { needed: 40, found: 39 });
    assert!(matches!(kind(&[0x44; 20]), DecodeErrorKind::Invalid(_)));
    let mut fragment = [0; 28];
    (fragment[0], fragment[7]) = (0x45, 1);
    assert!(matches!(kind(&fragment), DecodeErrorKind::Invalid(_)));
}

proptest! {
    #[test]
    fn written_values_are_read_back(
        mtu in 0_u32..=65_535,
        quoted in prop::collection::vec(any::<u8>(), 0..100),
        ends: (u128, u128),
    ) {
        let (source, destination) = (Ipv6Addr::from(ends.0), Ipv6Addr::from(ends.1));
        let mut message = vec![0xa5; HEADER_LEN + quoted.len()];
        message[HEADER_LEN..].copy_from_slice(&quoted);
        encode(mtu, &mut message);
        let report = TooBig { mtu, quoted: &quoted };
        prop_assert_eq!(TooBig::decode(&message), Ok(Some(report)));
        encode_v6(mtu, source, destination, &mut message);
        prop_assert_eq!(TooBig::decode_v6(&message, source, destination), Ok(Some(report)));
    }

    #[test]
    fn arbitrary_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..80)) {
        let _ = TooBig::decode(&bytes);
        let _ = TooBig::decode_v6(&bytes, Ipv6Addr::LOCALHOST, Ipv6Addr::LOCALHOST);
        if let Ok(quoted) = Quoted::decode(&bytes) {
            prop_assert!(quoted.payload.len() < bytes.len());
        }
    }
}
