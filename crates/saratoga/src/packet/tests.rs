//! Vectors computed by hand from draft-wood-tsvwg-saratoga-22, and round trips.

use proptest::prelude::*;

use super::*;

const SESSION: u32 = 0x1122_3344;

fn bytes(text: &str) -> Vec<u8> {
    let digits: String = text.chars().filter(|c| !c.is_whitespace()).collect();
    let pair = |i: usize| u8::from_str_radix(&digits[2 * i..2 * i + 2], 16).expect("two digits");
    (0..digits.len() / 2).map(pair).collect()
}

fn status(progress: u64, in_response_to: u64, is_voluntary: bool, holes: Holes<'_>) -> Packet<'_> {
    Packet::Status(Status {
        descriptor: Width::W32,
        timestamp: None,
        lacks_metadata: false,
        is_partial: false,
        is_voluntary,
        code: StatusCode::Ok,
        session: SESSION,
        progress,
        in_response_to,
        holes,
    })
}

fn metadata() -> Metadata<'static> {
    let md5 = bytes("5d41402abc4b2a76b9719d911017c592").try_into().expect("16 bytes");
    Metadata {
        descriptor: Width::W32,
        content: Content::File,
        is_over: false,
        udp_lite: false,
        session: SESSION,
        checksum: FileChecksum::Md5(md5),
        entry: Entry {
            kind: EntryKind::File,
            udp_lite: false,
            width: Width::W32,
            size: 5,
            modified: 0x10,
            created: 0x11,
            path: b"a.txt",
        },
    }
}

#[test]
fn packets() {
    let request = Packet::Request(Request {
        kind: RequestKind::Get,
        descriptor: Width::W32,
        bundles: false,
        streams: false,
        udp_lite: false,
        session: SESSION,
        path: b"testfile.10k",
        authentication: b"",
    });
    let data = Packet::Data(Data {
        descriptor: Width::W32,
        content: Content::File,
        timestamp: None,
        wants_status: true,
        is_end: true,
        session: SESSION,
        offset: 0,
        data: b"hello",
    });
    let holes = [Hole { start: 1024, last: 2047 }];
    let beacon = Packet::Beacon(Beacon {
        descriptor: Width::W64,
        bundles: true,
        streams: false,
        sends: Ability::Yes,
        receives: Ability::NotNow,
        udp_lite: false,
        free_space: Some((Width::W32, 1024)),
        eid: b"node",
    });
    let cases = [
        (request, "21400001 11223344 7465737466696c652e31306b 00"),
        (
            Packet::Metadata(metadata()),
            "22400042 11223344 5d41402abc4b2a76b9719d911017c592 8040 00000005 00000010 00000011 \
             612e747874 00",
        ),
        (data, "23418000 11223344 00000000 68656c6c6f"),
        (status(5, 5, true, Holes::NONE), "24410000 11223344 00000005 00000005"),
        (
            status(1024, 10_000, false, Holes::new(&holes)),
            "24400000 11223344 00000400 00002710 00000400 000007ff",
        ),
        (beacon, "20ae5000 00000400 6e6f6465"),
    ];
    for (packet, text) in cases {
        assert_eq!(packet.to_vec().unwrap(), bytes(text), "{packet}");
        assert_eq!(Packet::decode(&bytes(text)), Ok(packet));
    }
}

#[test]
fn headers_of_data_have_these_lengths() {
    let widths = [Width::W16, Width::W32, Width::W64, Width::W128];
    assert_eq!(widths.map(|width| Data::overhead(width, false)), [10, 12, 16, 24]);
    assert_eq!(Data::overhead(Width::W16, true), 26);
    assert_eq!(Width::fitting(65_535), Width::W16);
    assert_eq!(Width::fitting(65_536), Width::W32);
    assert_eq!(Width::fitting(1 << 32), Width::W64);
}

#[test]
fn more_nuls_may_follow_a_path_and_nothing_else() {
    let packet = Packet::Metadata(metadata());
    let mut padded = packet.to_vec().unwrap();
    padded.extend([0; 7]);
    assert_eq!(Packet::decode(&padded), Ok(packet));
    padded.push(1);
    assert_eq!(Packet::decode(&padded).unwrap_err().offset, padded.len() - 8);
}

#[test]
fn errors_are_reported_with_their_offset() {
    for (text, offset) in [
        ("01400001 11223344 7400", 0),
        ("25400001 11223344 7400", 0),
        ("2140", 0),
        ("21400001 1122", 4),
        ("21400001 11223344 74", 8),
        ("20050000", 1),
        ("22400042 11223344 5d41", 8),
        ("22400000 11223344 0040 00000005 00000010 00000011 6100", 8),
        ("24400000 11223344 00000400 00002710 00000400 00000300", 16),
        ("24400000 11223344 00000400 00002710 00000400 0000", 20),
        ("24c00000 11223344 00000000000000010000000000000000 00000000000000000000000000000000", 8),
    ] {
        let error = Packet::decode(&bytes(text)).unwrap_err();
        assert_eq!(error.offset, offset, "{text}: {error}");
    }
}

#[test]
fn packets_print_on_one_line() {
    let line = Packet::Metadata(metadata()).to_string();
    assert_eq!(line, "11223344 METADATA file \"a.txt\" of 5 B, MD5");
    let holes: Vec<_> = (0..10).map(|i| Hole { start: i * 10, last: i * 10 + 4 }).collect();
    let line = status(0, 100, false, Holes::new(&holes)).to_string();
    assert!(line.starts_with("11223344 STATUS well 0 of 100 0..=4 10..=14"), "{line}");
    assert!(line.ends_with("70..=74 and 2 more"), "{line}");
}

fn width() -> impl Strategy<Value = Width> {
    prop::sample::select(vec![Width::W16, Width::W32, Width::W64, Width::W128])
}

proptest! {
    #[test]
    fn statuses_round_trip(
        descriptor in width(), code: u8, session: u32, flags: [bool; 3], timestamp: Option<[u8; 16]>,
        offsets in prop::collection::vec(0_u64..60_000, 2..40),
    ) {
        let holes: Vec<_> = offsets[2..]
            .chunks_exact(2)
            .map(|pair| Hole { start: pair[0].min(pair[1]), last: pair[0].max(pair[1]) })
            .collect();
        let packet = Packet::Status(Status {
            descriptor,
            timestamp,
            lacks_metadata: flags[0],
            is_partial: flags[1],
            is_voluntary: flags[2],
            code: StatusCode::from_code(code),
            session,
            progress: offsets[0],
            in_response_to: offsets[1],
            holes: Holes::new(&holes),
        });
        let bytes = packet.to_vec().unwrap();
        prop_assert_eq!(bytes.len(), packet.encoded_len());
        prop_assert_eq!(Packet::decode(&bytes), Ok(packet));
        prop_assert_eq!(StatusCode::from_code(code).code(), code);
    }

    #[test]
    fn data_round_trips(
        descriptor in width(), session: u32, flags: [bool; 2], timestamp: Option<[u8; 16]>,
        offset in 0_u64..60_000, content in 0_u32..4,
        data in prop::collection::vec(any::<u8>(), 0..100),
    ) {
        let packet = Packet::Data(Data {
            descriptor,
            content: Content::from_code(content),
            timestamp,
            wants_status: flags[0],
            is_end: flags[1],
            session,
            offset,
            data: &data,
        });
        let bytes = packet.to_vec().unwrap();
        prop_assert_eq!(bytes.len(), packet.encoded_len());
        prop_assert_eq!(Packet::decode(&bytes), Ok(packet));
    }

    #[test]
    fn arbitrary_bytes_never_panic(
        first in prop::sample::select(vec![0x20_u8, 0x21, 0x22, 0x23, 0x24]),
        bytes in prop::collection::vec(any::<u8>(), 0..100),
    ) {
        let bytes: Vec<u8> = std::iter::once(first).chain(bytes).collect();
        if let Ok(packet) = Packet::decode(&bytes) {
            prop_assert!(!packet.to_string().is_empty());
            let again = packet.to_vec().unwrap();
            prop_assert!(again.len() <= bytes.len());
            prop_assert_eq!(Packet::decode(&again), Ok(packet));
        }
    }
}
