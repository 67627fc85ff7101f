//! Vectors, errors and round trips.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use proptest::prelude::*;

use super::*;

const A: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 168, 0, 31));
const B: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 168, 0, 30));

fn pseudo() -> PseudoHeader {
    PseudoHeader::new(A, B, PROTOCOL)
}

fn built(header: &Header, options: &[TcpOption<'_>], payload: &[u8]) -> Vec<u8> {
    let len = HEADER_LEN + options_len(options);
    let mut bytes = vec![0xa5; len + payload.len()];
    bytes[len..].copy_from_slice(payload);
    encode(header, options, pseudo(), &mut bytes).unwrap();
    bytes
}

fn header() -> Header {
    Header {
        source: 20,
        destination: 10,
        sequence: 10,
        acknowledgment: 0x0102_0304,
        flags: Flags::ACK | Flags::PSH,
        window: 8192,
        urgent: 0,
    }
}

#[test]
fn a_vector_computed_by_hand() {
    // Pseudo header: addresses, protocol 6, length 22; then the header's words and "Hi".
    let words: [u32; 16] = [
        0xc0a8, 0x001f, 0xc0a8, 0x001e, 6, 22, 20, 10, 0, 10, 0x0102, 0x0304, 0x5018, 0x2000, 0,
        0x4869,
    ];
    let total: u32 = words.iter().sum();
    let expected = !((total & 0xffff) as u16 + (total >> 16) as u16);
    let bytes = built(&header(), &[], b"Hi");
    assert_eq!(bytes[..4], [0, 20, 0, 10]);
    assert_eq!(bytes[12..16], [0x50, 0x18, 0x20, 0x00]);
    assert_eq!(u16::from_be_bytes([bytes[16], bytes[17]]), expected);
    let segment = Segment::decode(&bytes, pseudo()).unwrap();
    assert_eq!((segment.header, segment.payload), (header(), &b"Hi"[..]));
    assert_eq!(segment.to_string(), "TCP 20 > 10 [PSH,ACK] seq 10 ack 16909060 win 8192 len 2");
}

#[test]
fn the_pseudo_header_of_ipv6_covers_whole_addresses() {
    let address = |last| IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, last));
    let pseudo = PseudoHeader::new(address(1), address(2), PROTOCOL);
    let mut bytes = [0xa5; 20];
    encode(&header(), &[], pseudo, &mut bytes).unwrap();
    assert!(Segment::decode(&bytes, pseudo).is_ok());
    let other = PseudoHeader::new(address(1), address(3), PROTOCOL);
    assert_eq!(Segment::decode(&bytes, other).unwrap_err().offset, 16);
    // 2 * (2001 + 0db8) + 1 + 2 + 6 + 20 and the header's words, by hand.
    let words = [0x5b72_u32, 3, 6, 20, 20, 10, 0, 10, 0x0102, 0x0304, 0x5018, 0x2000];
    assert_eq!(u32::from(!u16::from_be_bytes([bytes[16], bytes[17]])), words.iter().sum::<u32>());
}

/// Packets of a kernel decode to the expected fields and encode to the same bytes.
mod vectors {
    use super::*;
    use wire::ip::{self, Ipv4};
    use wire::ipv6::{self, Ipv6};

    fn reads(text: &str) {
        let expected = text.lines().find_map(|line| line.strip_prefix("# reads: "));
        let digits = text.lines().filter(|line| !line.starts_with('#'));
        let packet: Vec<u8> = digits
            .flat_map(|line| line.split(' '))
            .map(|pair| u8::from_str_radix(pair, 16).expect("two digits"))
            .collect();
        let mut again = vec![0xa5; packet.len()];
        let (bytes, pseudo, head) = if packet[0] >> 4 == 6 {
            let (ip, bytes) = Ipv6::decode(&packet).expect("a packet");
            ip.encode(again.first_chunk_mut().expect("a header"));
            let pseudo = PseudoHeader::new(ip.source.into(), ip.destination.into(), PROTOCOL);
            (bytes, pseudo, ipv6::HEADER_LEN)
        } else {
            let (ip, bytes) = Ipv4::decode(&packet).expect("a packet");
            ip.encode(again.first_chunk_mut().expect("a header"));
            let pseudo = PseudoHeader::new(ip.source.into(), ip.destination.into(), PROTOCOL);
            (bytes, pseudo, ip::HEADER_LEN)
        };
        let segment = Segment::decode(bytes, pseudo).expect("a segment");
        assert_eq!(Some(&*segment.to_string()), expected);
        let options: Vec<_> = segment.options.map(|option| option.expect("sound")).collect();
        let start = head + HEADER_LEN + options_len(&options);
        again[start..].copy_from_slice(segment.payload);
        encode(&segment.header, &options, pseudo, &mut again[head..]).expect("it was decoded");
        assert_eq!(again, packet);
    }

    macro_rules! vectors {
        ($($name:ident)*) => {
            $(#[test]
            fn $name() {
                reads(include_str!(concat!(
                    "../../testdata/",
                    stringify!($name),
                    ".hex"
                )));
            })*
        };
    }

    vectors! {
        ack ack_dsack ack_sack_1 ack_sack_2 data fin reset syn_ack_plain syn_ecn syn_v6
    }
}

#[test]
fn options_have_the_bytes_of_their_documents() {
    let blocks: SackBlocks = [SackBlock { left: 5500, right: 6000 }].into_iter().collect();
    for (option, expected) in [
        (TcpOption::MaximumSegmentSize(1460), &[2, 4, 0x05, 0xb4][..]),
        (TcpOption::WindowScale(7), &[3, 3, 7]),
        (TcpOption::SackPermitted, &[4, 2]),
        (TcpOption::Sack(blocks), &[5, 10, 0, 0, 0x15, 0x7c, 0, 0, 0x17, 0x70]),
        (TcpOption::Timestamps { value: 1, echo: 0x0203_0405 }, &[8, 10, 0, 0, 0, 1, 2, 3, 4, 5]),
        (
            TcpOption::ScpsCapabilities(Capabilities { bits: 0x50, connection: 5 }),
            &[20, 4, 0x50, 5],
        ),
        (TcpOption::Snack { offset: 3, size: 2, bits: &[] }, &[21, 6, 0, 3, 0, 2]),
        (TcpOption::Snack { offset: 3, size: 2, bits: &[0x80] }, &[21, 7, 0, 3, 0, 2, 0x80]),
        (TcpOption::RecordBoundary, &[22, 2]),
        (TcpOption::CorruptionExperienced, &[23, 2]),
        (TcpOption::Unknown { kind: 254, data: &[1, 2] }, &[254, 4, 1, 2]),
        // A length that does not match the kind: kept without decoding.
        (TcpOption::Unknown { kind: 2, data: &[1] }, &[2, 3, 1]),
    ] {
        let bytes = built(&header(), &[option], b"");
        assert_eq!(&bytes[20..20 + expected.len()], expected, "{option}");
        assert!(bytes[20 + expected.len()..].iter().all(|byte| *byte == 0));
        let segment = Segment::decode(&bytes, pseudo()).unwrap();
        assert_eq!(segment.options.collect::<Vec<_>>(), [Ok(option)]);
    }
}

#[test]
fn unencodable_values_are_refused() {
    let try_encode = |options: &[TcpOption<'_>], room| {
        encode(&header(), options, pseudo(), &mut vec![0; room]).map_err(|error| error.to_string())
    };
    for option in [
        TcpOption::Unknown { kind: 1, data: &[] },
        TcpOption::Unknown { kind: 4, data: &[] },
        TcpOption::ScpsExtended(&[1, 2]),
        TcpOption::Sack(SackBlocks::default()),
    ] {
        let error = "an option of this kind has not this length";
        assert_eq!(try_encode(&[option], 60), Err(error.to_owned()), "{option:?}");
    }
    let long = TcpOption::Unknown { kind: 254, data: &[0; 39] };
    assert_eq!(try_encode(&[long], 100), Err("options does not fit its field".to_owned()));
    let error = "the output has room for 23 bytes and 24 are needed";
    assert_eq!(try_encode(&[TcpOption::WindowScale(1)], 23), Err(error.to_owned()));
}

#[test]
fn errors_name_the_place() {
    let bytes = built(&header(), &[TcpOption::WindowScale(3)], b"data");
    let error = |bytes: &[u8]| Segment::decode(bytes, pseudo()).unwrap_err().to_string();
    assert_eq!(error(&bytes[..19]), "byte 0: 20 bytes are needed and 19 are left");
    assert_eq!(error(&bytes[..22]), "byte 0: 24 bytes are needed and 22 are left");
    let mut short = bytes.clone();
    short[12] = 0x40;
    assert_eq!(error(&short), "byte 12: the data offset is below 5");
    let options = |bytes: &[u8]| Options::new(bytes).last().unwrap().unwrap_err().to_string();
    assert_eq!(options(&[1, 8]), "byte 21: 2 bytes are needed and 1 are left");
    assert_eq!(options(&[8, 10, 0]), "byte 20: 10 bytes are needed and 3 are left");
    assert_eq!(options(&[1, 1, 3, 1]), "byte 23: the option's length is below 2");
    assert_eq!(Options::new(&[1, 0, 3, 1]).count(), 1, "nothing is read behind the end");
}

#[test]
fn flags_print_their_names() {
    assert_eq!((Flags::SYN | Flags::ECE | Flags::CWR).to_string(), "SYN,ECE,CWR");
    assert_eq!(Flags::from_bits(0xff02).to_string(), "SYN,0xf");
    assert_eq!(Flags::NONE.to_string(), "");
}

fn option() -> impl Strategy<Value = TcpOption<'static>> {
    let data = prop::sample::select(vec![&[][..], &[1], &[2, 3], &[4, 5, 6], &[7; 9]]);
    let block = (any::<u32>(), any::<u32>()).prop_map(|(left, right)| SackBlock { left, right });
    prop_oneof![
        Just(TcpOption::NoOperation),
        any::<u16>().prop_map(TcpOption::MaximumSegmentSize),
        any::<u8>().prop_map(TcpOption::WindowScale),
        Just(TcpOption::SackPermitted),
        prop::collection::vec(block, 1..=4)
            .prop_map(|blocks| TcpOption::Sack(blocks.into_iter().collect())),
        any::<(u32, u32)>().prop_map(|(value, echo)| TcpOption::Timestamps { value, echo }),
        any::<(u8, u8)>().prop_map(|(bits, connection)| TcpOption::ScpsCapabilities(
            Capabilities { bits, connection }
        )),
        (any::<u16>(), any::<u16>(), data.clone())
            .prop_map(|(offset, size, bits)| TcpOption::Snack { offset, size, bits }),
        Just(TcpOption::RecordBoundary),
        Just(TcpOption::CorruptionExperienced),
        (24..=255_u8, data).prop_map(|(kind, data)| TcpOption::Unknown { kind, data }),
    ]
}

proptest! {
    #[test]
    fn any_segment_round_trips(
        ports: (u16, u16), numbers: (u32, u32), bits in 0..4096_u16, rest: (u16, u16),
        options in prop::collection::vec(option(), 0..6),
        payload in prop::collection::vec(any::<u8>(), 0..50),
        flip: u16,
    ) {
        prop_assume!(options_len(&options) <= OPTIONS_MAX);
        let header = Header {
            source: ports.0, destination: ports.1, sequence: numbers.0, acknowledgment: numbers.1,
            flags: Flags::from_bits(bits), window: rest.0, urgent: rest.1,
        };
        let mut bytes = built(&header, &options, &payload);
        let segment = Segment::decode(&bytes, pseudo()).unwrap();
        prop_assert_eq!((segment.header, segment.payload), (header, &payload[..]));
        let back: Result<Vec<_>, _> = segment.options.collect();
        prop_assert_eq!(back.unwrap(), options);
        // A single flipped bit is always detected.
        let bit = usize::from(flip) % (bytes.len() * 8);
        bytes[bit / 8] ^= 1 << (bit % 8);
        prop_assert!(Segment::decode(&bytes, pseudo()).is_err());
    }

    #[test]
    fn arbitrary_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..80)) {
        if let Ok(segment) = Segment::decode_unchecked(&bytes) {
            let _ = segment.to_string();
            // Decoded options encode to the same bytes, except padding.
            let options: Vec<_> = segment.options.map_while(Result::ok).collect();
            let again = built(&segment.header, &options, segment.payload);
            let again = Segment::decode(&again, pseudo()).unwrap();
            prop_assert_eq!(again.options.map_while(Result::ok).collect::<Vec<_>>(), options);
        }
    }
}
