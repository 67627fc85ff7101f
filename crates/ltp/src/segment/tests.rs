//! Vectors computed by hand from RFC 5326 and RFC 5327, the sizes of a capture of 2011, and round
//! trips.

use proptest::prelude::*;

use super::*;

const SESSION: SessionId = SessionId { originator: 101, number: 300 };

fn bytes(text: &str) -> Vec<u8> {
    text.split(' ').map(|pair| u8::from_str_radix(pair, 16).expect("two digits")).collect()
}

fn hello() -> Body<'static> {
    Body::Data(Data {
        kind: DataKind::EndOfRedBlock,
        service: 1,
        offset: 0,
        checkpoint: Some(Checkpoint { serial: 17, report: 0 }),
        data: b"hello",
    })
}

#[test]
fn numbers() {
    // Taken from RFC 5326 §2.1 and RFC 6256, except the last three.
    for (value, text) in [
        (0, "00"),
        (127, "7f"),
        (128, "81 00"),
        (0xabc, "95 3c"),
        (0x1234, "a4 34"),
        (0x4234, "81 84 34"),
        (10_000, "ce 10"),
        (u64::from(u32::MAX), "8f ff ff ff 7f"),
        (u64::MAX, "81 ff ff ff ff ff ff ff ff 7f"),
    ] {
        let expected = bytes(text);
        assert_eq!(sdnv::len(value), expected.len());
        let mut out = vec![0; expected.len()];
        sdnv::write(&mut Writer::new(&mut out), value).unwrap();
        assert_eq!(out, expected);
        assert_eq!(sdnv::read(&mut Reader::new(&expected)), Ok(value));
    }
    assert_eq!(sdnv::read(&mut Reader::new(&bytes("80 80 05"))), Ok(5), "leading zeros");
    for bad in ["82 80 80 80 80 80 80 80 80 00", "80 80 80 80 80 80 80 80 80 80 01", "ff"] {
        assert!(sdnv::read(&mut Reader::new(&bytes(bad))).is_err(), "{bad}");
    }
}

#[test]
fn segments() {
    let claims = [Claim { offset: 0, length: 5 }];
    let report =
        Report { serial: 42, checkpoint: 17, upper: 5, lower: 0, claims: Claims::new(&claims) };
    let cases = [
        (hello(), "03 65 82 2c 00 01 00 05 11 00 68 65 6c 6c 6f"),
        (Body::Report(report), "08 65 82 2c 00 2a 11 05 00 01 00 05"),
        (Body::ReportAck { serial: 42 }, "09 65 82 2c 00 2a"),
        (
            Body::Cancel { by: End::Sender, reason: CancelReason::RetransmissionLimit },
            "0c 65 82 2c 00 02",
        ),
        (Body::CancelAck { by: End::Sender }, "0d 65 82 2c 00"),
        (Body::Cancel { by: End::Receiver, reason: CancelReason::Miscolored }, "0e 65 82 2c 00 03"),
        (Body::CancelAck { by: End::Receiver }, "0f 65 82 2c 00"),
    ];
    for (body, text) in cases {
        let segment = Segment::new(SESSION, body);
        assert_eq!(segment.to_vec().unwrap(), bytes(text), "{segment}");
        assert_eq!(Segment::decode(&bytes(text)), Ok(segment));
    }
}

#[test]
fn extensions_have_their_specified_position() {
    // The NULL cipher suite of RFC 5327 §2.1.3.
    let text = "03 65 82 2c 11 00 01 ff 01 00 05 11 00 68 65 6c 6c 6f 00 0a \
                32 2b e3 29 71 50 05 25 aa 7f";
    let value = bytes("32 2b e3 29 71 50 05 25 aa 7f");
    let trailer = [Extension { tag: 0, value: &value }];
    let segment = Segment {
        session: SESSION,
        header: Extensions::new(&[Extension { tag: 0, value: &[0xff] }]),
        body: hello(),
        trailer: Extensions::new(&trailer),
    };
    assert_eq!(segment.to_vec().unwrap(), bytes(text));
    assert_eq!(Segment::decode(&bytes(text)), Ok(segment));
    let many = [Extension { tag: 9, value: &[] }; 16];
    let segment = Segment { header: Extensions::new(&many), ..segment };
    assert!(segment.to_vec().is_err());
}

#[test]
fn sizes_of_a_capture_of_2011() {
    // Engine and session numbers of 11 bytes in total, 992 bytes of the block per segment, a file
    // of 10,000 bytes.
    let session = SessionId { originator: 1 << 62, number: 100 };
    assert_eq!(sdnv::len(session.originator) + sdnv::len(session.number), 10);
    let session = SessionId { originator: 1 << 62, number: 300 };
    let data = [0; 992];
    let size = |kind, offset, len, checkpoint| {
        let data = &data[..len];
        let body = Body::Data(Data { kind, service: 1, offset, checkpoint, data });
        Segment::new(session, body).encoded_len()
    };
    assert_eq!(size(DataKind::Red, 0, 992, None), 1009);
    assert_eq!(size(DataKind::Red, 992, 992, None), 1010);
    let checkpoint = Some(Checkpoint { serial: 300, report: 0 });
    assert_eq!(size(DataKind::EndOfRedBlock, 9920, 80, checkpoint), 100);
    let claims = [Claim { offset: 0, length: 10_000 }];
    let (serial, upper) = (300, 10_000);
    let report = Report { serial, checkpoint: 300, upper, lower: 0, claims: Claims::new(&claims) };
    assert_eq!(Segment::new(session, Body::Report(report)).encoded_len(), 24);
    assert_eq!(Segment::new(session, Body::ReportAck { serial }).encoded_len(), 15);
}

#[test]
fn errors_are_reported_with_their_offset() {
    for (text, offset) in [
        ("13 65 82 2c 00 01 00 05 11 00 68 65 6c 6c 6f", 0),
        ("05 65 82 2c 00", 0),
        ("03 65 82 2c 00 01 00 05 00 00 68 65 6c 6c 6f", 8),
        ("03 65 82 2c 00 01 00 06 11 00 68 65 6c 6c 6f", 10),
        ("03 65 82 2c 00 01 00 04 11 00 68 65 6c 6c 6f", 14),
        ("08 65 82 2c 00 00 11 05 00 01 00 05", 5),
        ("08 65 82 2c 00 2a 11 05 06 01 00 05", 7),
        ("08 65 82 2c 00 2a 11 05 00 02 00 05", 9),
        ("08 65 82 2c 00 2a 11 05 00 01 00 06", 10),
        ("08 65 82 2c 00 2a 11 05 00 01 00 00", 10),
        ("08 65 82 2c 00 2a 11 09 00 02 02 02 03 01", 12),
    ] {
        let error = Segment::decode(&bytes(text)).unwrap_err();
        assert_eq!(error.offset, offset, "{text}: {error}");
    }
}

#[test]
fn segments_print_on_one_line() {
    let claims: Vec<_> = (0..10).map(|i| Claim { offset: i * 10, length: 5 }).collect();
    let claims = Claims::new(&claims);
    let report = Report { serial: 2, checkpoint: 1, upper: 200, lower: 100, claims };
    let line = |body| Segment::new(SESSION, body).to_string();
    assert_eq!(line(hello()), "101_300 red data CP EORP EOB 0..5 service 1 checkpoint 17");
    assert_eq!(
        line(Body::Report(report)),
        "101_300 report 2 on checkpoint 1 of 100..200: received 100..105 110..115 120..125 \
         130..135 140..145 150..155 160..165 170..175 and 2 more"
    );
    let body = Body::Cancel { by: End::Sender, reason: CancelReason::Other(77) };
    assert_eq!(line(body), "101_300 cancelled by the sender: reason 77");
}

prop_compose! {
    fn claims()(lens in prop::collection::vec((0_u64..1000, 1_u64..1000), 0..20)) -> Vec<Claim> {
        let mut at = 0;
        lens.into_iter().map(|(gap, length)| {
            let claim = Claim { offset: at + gap, length };
            at = claim.offset + length;
            claim
        }).collect()
    }
}

proptest! {
    #[test]
    fn data_round_trips(
        originator: u64, number: u64, service: u64, offset in 0..u64::MAX - 5000,
        serial in 1..u64::MAX, report: u64, kind in 0..6_usize,
        data in prop::collection::vec(any::<u8>(), 0..200),
        extensions in prop::collection::vec((any::<u8>(), prop::collection::vec(any::<u8>(), 0..20)), 0..15),
    ) {
        let kinds = [
            DataKind::Red, DataKind::Checkpoint, DataKind::EndOfRedPart, DataKind::EndOfRedBlock,
            DataKind::Green, DataKind::EndOfGreenBlock,
        ];
        let kind = kinds[kind];
        let checkpoint = kind.is_checkpoint().then_some(Checkpoint { serial, report });
        let session = SessionId { originator, number };
        let body = Body::Data(Data { kind, service, offset, checkpoint, data: &data });
        let list: Vec<_> =
            extensions.iter().map(|(tag, value)| Extension { tag: *tag, value }).collect();
        let (header, trailer) = (Extensions::new(&list), Extensions::new(&list[..list.len() / 2]));
        let segment = Segment { session, header, body, trailer };
        let bytes = segment.to_vec().unwrap();
        prop_assert_eq!(Segment::decode(&bytes), Ok(segment));
        let overhead = Data::overhead(session, service, offset, data.len() as u64, checkpoint);
        prop_assert_eq!(
            overhead + data.len(),
            Segment::new(session, body).encoded_len()
        );
        for end in 0..bytes.len() {
            prop_assert!(Segment::decode(&bytes[..end]).is_err());
        }
    }

    #[test]
    fn reports_round_trip(
        serial in 1..u64::MAX, checkpoint: u64, lower in 0..u64::MAX / 2, more in 0..1000_u64,
        claims in claims(),
    ) {
        let last = claims.last().map_or(0, |claim| claim.offset + claim.length);
        let upper = lower + last + more;
        let report = Report { serial, checkpoint, upper, lower, claims: Claims::new(&claims) };
        let segment = Segment::new(SESSION, Body::Report(report));
        let bytes = segment.to_vec().unwrap();
        prop_assert_eq!(Segment::decode(&bytes), Ok(segment));
        let ranges: Vec<_> = report.received().collect();
        prop_assert!(ranges.iter().all(|(start, end)| lower <= *start && start < end && *end <= upper));
    }

    #[test]
    fn arbitrary_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..100)) {
        if let Ok(len) = Segment::len_of_first(&bytes) {
            prop_assert!((4..=bytes.len()).contains(&len));
            prop_assert!(Segment::decode(&bytes[..len]).is_ok());
        }
        if let Ok(segment) = Segment::decode(&bytes) {
            let again = segment.to_vec().unwrap();
            prop_assert_eq!(Segment::decode(&again), Ok(segment));
            prop_assert!(!segment.to_string().is_empty());
        }
    }
}
