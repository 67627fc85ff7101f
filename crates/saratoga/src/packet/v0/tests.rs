//! Lengths captured in 2011, vectors computed by hand, and round trips.

use proptest::prelude::*;

use super::*;
use crate::packet::{Hole, PATH_MAX};

const SESSION: u32 = 0x1122_3344;

const REQUEST: Packet<'_> = Packet::Request(Request { session: SESSION, path: b"testfile.10k" });

const COMPLETE: Status<'_> = Status {
    lacks_metadata: false,
    is_partial: false,
    session: SESSION,
    code: StatusCode::Ok,
    holes: Holes::NONE,
};

fn bytes(text: &str) -> Vec<u8> {
    let digits: String = text.chars().filter(|c| !c.is_whitespace()).collect();
    let pair = |i: usize| u8::from_str_radix(&digits[2 * i..2 * i + 2], 16).expect("two digits");
    (0..digits.len() / 2).map(pair).collect()
}

fn metadata(path: &[u8]) -> Packet<'_> {
    Packet::Metadata(Metadata { session: SESSION, length: 10_000, path })
}

fn data(offset: u32, data: &[u8]) -> Packet<'_> {
    Packet::Data(Data { wants_status: false, session: SESSION, offset, data })
}

/// Encodes over bytes that are not zero, and decodes the result.
fn encoded(packet: Packet<'_>) -> Vec<u8> {
    let mut out = vec![0xa5; packet.encoded_len()];
    packet.encode(&mut out).expect("a good packet");
    assert_eq!(Packet::decode(&out), Ok(packet));
    out
}

#[test]
fn packets_have_the_lengths_of_the_capture() {
    let payload = [0x55; DATA_LEN];
    let holes = [Hole { start: 0, last: 1023 }, Hole { start: 4096, last: 9999 }];
    // A file of 10 000 bytes is nine times 1024 and 784; one of 10 000 000 ends with 640.
    for (packet, len) in [
        (REQUEST, 32),
        (Packet::Accept(Accept { session: SESSION }), 10),
        (metadata(b"testfile.10k"), 266),
        (data(0, &payload), 1034),
        (data(9216, &payload[..784]), 794),
        (data(9_999_360, &payload[..640]), 650),
        (Packet::Poll(Poll { session: SESSION, offset: 10_000 }), 18),
        (Packet::Status(COMPLETE), 7),
        (Packet::Status(Status { holes: Holes::new(&holes), ..COMPLETE }), 23),
    ] {
        assert_eq!(packet.encoded_len(), len, "{packet}");
        assert_eq!(encoded(packet).len(), len, "{packet}");
    }
}

#[test]
fn packets() {
    let holes = [Hole { start: 1024, last: 2047 }];
    let partial = Status { is_partial: true, holes: Holes::new(&holes), ..COMPLETE };
    let failed = Status { lacks_metadata: true, code: StatusCode::NotFound, ..COMPLETE };
    let last = Data { wants_status: true, session: SESSION, offset: 9216, data: b"hello" };
    let nuls = "00".repeat(256 - 12);
    for (packet, text) in [
        (Packet::Beacon(Beacon { eid: b"node" }), "0000 6e6f6465".to_owned()),
        (REQUEST, "0100 11223344 7465737466696c652e31306b 0000000000000000000000000000".to_owned()),
        (Packet::Accept(Accept { session: SESSION }), "0300 11223344 00000000".to_owned()),
        (
            metadata(b"testfile.10k"),
            format!("0200 11223344 00002710 7465737466696c652e31306b {nuls}"),
        ),
        (Packet::Data(last), "0301 11223344 00002400 68656c6c6f".to_owned()),
        (
            Packet::Poll(Poll { session: SESSION, offset: 10_000 }),
            "0303 11223344 00002710 0000000000000000".to_owned(),
        ),
        (Packet::Status(COMPLETE), "0402 11223344 00".to_owned()),
        (Packet::Status(partial), "0403 11223344 00 00000400 000007ff".to_owned()),
        (Packet::Status(failed), "0400 11223344 04".to_owned()),
    ] {
        assert_eq!(encoded(packet), bytes(&text), "{packet}");
    }
}

#[test]
fn packets_of_other_implementations_are_accepted() {
    let partial = Status { holes: Holes::new(&[Hole { start: 1, last: 2 }]), ..COMPLETE };
    for (text, packet) in [
        // A path with its NUL, an address behind it, bits in the flags.
        ("0100 11223344 7465737466696c652e31306b 00", REQUEST),
        ("0100 11223344 7465737466696c652e31306b 00 3139322e3136382e3130302e32", REQUEST),
        ("01fc 11223344 7465737466696c652e31306b 00", REQUEST),
        ("0200 11223344 00002710 61 00", metadata(b"a")),
        // A poll with other bytes, and without the bit that a poll implies.
        (
            "0302 11223344 00000007 0102030405060708 09",
            Packet::Poll(Poll { session: SESSION, offset: 7 }),
        ),
        // The sender's first reply, if it is a STATUS and four bytes.
        ("0402 11223344 00 000000", Packet::Status(COMPLETE)),
        ("0402 11223344 00 00000001 00000002 00000000 000000", Packet::Status(partial)),
    ] {
        assert_eq!(Packet::decode(&bytes(text)), Ok(packet), "{text}");
    }
}

#[test]
fn only_the_poll_bit_makes_a_poll() {
    let eight = encoded(data(10_000, &[0; 8]));
    assert_eq!(eight.len(), POLL_LEN);
    let empty = Data { wants_status: true, session: SESSION, offset: 0, data: b"" };
    encoded(Packet::Data(empty));
    encoded(data(1, b""));
    assert!(matches!(data(0, b"").to_vec(), Err(EncodeError::Conflict(_))));
}

#[test]
fn files_are_shorter_than_4_gib() {
    encoded(data(u32::MAX - 5, b"hello"));
    encoded(data(u32::MAX, b""));
    let beyond = data(u32::MAX - 4, b"hello");
    assert_eq!(beyond.to_vec(), Err(EncodeError::TooLarge { field: "the offset" }));
    let holes = [Hole { start: 0, last: 1 << 32 }];
    let status = Packet::Status(Status { holes: Holes::new(&holes), ..COMPLETE });
    assert!(matches!(status.to_vec(), Err(EncodeError::TooLarge { .. })));
}

#[test]
fn longer_paths_need_more_bytes() {
    for (len, request, metadata_len) in
        [(25, 32, 266), (26, 33, 266), (255, 262, 266), (256, 263, 267), (1023, 1030, 1034)]
    {
        let path = vec![b'a'; len];
        assert_eq!(encoded(Packet::Request(Request { session: 1, path: &path })).len(), request);
        assert_eq!(encoded(metadata(&path)).len(), metadata_len);
    }
    for path in [&[b'a'; 1024][..], b"a\0b"] {
        assert!(metadata(path).to_vec().is_err());
    }
}

#[test]
fn errors_are_reported_with_their_offset() {
    for (text, offset) in [
        ("", 0),
        ("01", 1),
        ("0500 11223344", 0),
        ("2100 11223344 00", 0),
        ("4100 11223344 00", 0),
        ("0100 1122", 2),
        ("0100 11223344", 6),
        ("0100 11223344 74", 6),
        ("0200 11223344 0000", 6),
        ("0200 11223344 00000000 74", 10),
        ("0300 11223344 000000", 6),
        ("0300 11223344 fffffffe 0102", 6),
        ("0303 11223344 00000000 00000000000000", 10),
        ("0402 11223344", 6),
        ("0402 11223344 00 00000001 00000001 00000005 00000004", 15),
    ] {
        let error = Packet::decode(&bytes(text)).expect_err(text);
        assert_eq!(error.offset, offset, "{text}: {error}");
    }
    for (first, version) in [(0x21, 1), (0x41, 1), (0x80, 2), (0xff, 3)] {
        let error = Packet::decode(&[first; 40]).expect_err("another version");
        assert_eq!(error.kind, DecodeErrorKind::Version(version), "{first:#x}");
    }
}

#[test]
fn packets_print_on_one_line() {
    let holes: Vec<_> = (0..10).map(|i| Hole { start: i * 10, last: i * 10 + 4 }).collect();
    let partial = Status { is_partial: true, holes: Holes::new(&holes), ..COMPLETE };
    let failed = Status { code: StatusCode::NotFound, ..COMPLETE };
    for (packet, line) in [
        (REQUEST, "11223344 REQUEST get \"testfile.10k\""),
        (Packet::Accept(Accept { session: 7 }), "00000007 accepted"),
        (metadata(b"a"), "11223344 METADATA \"a\" of 10000 B"),
        (data(5, b"hello"), "11223344 DATA 5..10"),
        (Packet::Poll(Poll { session: 7, offset: 10 }), "00000007 poll at 10"),
        (Packet::Status(COMPLETE), "11223344 STATUS well, complete"),
        (Packet::Status(failed), "11223344 STATUS no such file"),
        (
            Packet::Status(partial),
            "11223344 STATUS well 0..=4 10..=14 20..=24 30..=34 40..=44 50..=54 60..=64 70..=74 \
             and 2 more and others",
        ),
    ] {
        assert_eq!(packet.to_string(), line);
    }
}

proptest! {
    #[test]
    fn statuses_round_trip(
        code: u8, session: u32, flags: [bool; 2],
        pairs in prop::collection::vec(any::<[u32; 2]>(), 0..40),
    ) {
        let holes: Vec<_> = pairs
            .iter()
            .map(|[a, b]| Hole { start: u64::from(*a.min(b)), last: u64::from(*a.max(b)) })
            .collect();
        let packet = Packet::Status(Status {
            lacks_metadata: flags[0],
            is_partial: flags[1],
            session,
            code: StatusCode::from_code(code),
            holes: Holes::new(&holes),
        });
        prop_assert_eq!(encoded(packet).len(), 7 + 8 * holes.len());
    }

    #[test]
    fn data_round_trips(
        session: u32, wants_status: bool, offset in 1..u32::MAX - 100,
        data in prop::collection::vec(any::<u8>(), 0..100),
    ) {
        encoded(Packet::Data(Data { wants_status, session, offset, data: &data }));
        encoded(Packet::Poll(Poll { session, offset }));
        encoded(Packet::Accept(Accept { session }));
    }

    #[test]
    fn names_round_trip(
        session: u32, length: u32, path in prop::collection::vec(1_u8.., 0..PATH_MAX),
    ) {
        encoded(Packet::Request(Request { session, path: &path }));
        encoded(Packet::Metadata(Metadata { session, length, path: &path }));
        encoded(Packet::Beacon(Beacon { eid: &path }));
    }

    #[test]
    fn arbitrary_bytes_never_panic(
        first in 0_u8..6, bytes in prop::collection::vec(any::<u8>(), 0..100),
    ) {
        let bytes: Vec<u8> = std::iter::once(first).chain(bytes).collect();
        match Packet::decode(&bytes) {
            Ok(packet) => {
                prop_assert!(!packet.to_string().is_empty());
                encoded(packet);
            }
            Err(error) => prop_assert!(error.offset <= bytes.len()),
        }
    }
}
