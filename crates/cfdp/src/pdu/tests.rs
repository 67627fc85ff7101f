//! Tests of the CFDP codec: golden vectors, chosen cases and the one-line display.

mod properties;

use wire::DecodeErrorKind;

use super::*;

/// Header of the golden vectors.
pub(super) const HEADER: Header = Header {
    version: Version::V1,
    direction: Direction::TowardReceiver,
    mode: TransmissionMode::Acknowledged,
    crc: false,
    large_file: false,
    segmentation_control: false,
    entity_width: Width::TWO,
    sequence_width: Width::TWO,
    source: EntityId(101),
    sequence: 1,
    destination: EntityId(102),
};
const BACK: Header = Header { direction: Direction::TowardSender, ..HEADER };

const EOF: Eof =
    Eof { condition: ConditionCode::NoError, checksum: 0, file_size: 10_000, fault_location: None };

const METADATA: Metadata<'_> = Metadata {
    closure_requested: false,
    checksum_type: ChecksumType::Modular,
    file_size: 10_000,
    source_name: Lv(b"testfile.10k"),
    destination_name: Lv(b"testfile.10k"),
    tlvs: Tlvs::NONE,
};

const FINISHED: Finished<'_> = Finished {
    condition: ConditionCode::NoError,
    end_system: true,
    delivery: DeliveryCode::Complete,
    file_status: FileStatus::Retained,
    tlvs: Tlvs::NONE,
};

const GAP: SegmentRequest = SegmentRequest { start: 997, end: 1994 };
const NAK: Nak<'_> =
    Nak { scope_start: 0, scope_end: 10_000, requests: SegmentRequests::new(&[GAP]) };

/// Returns the bytes of a vector file: hexadecimal, with comments after `#`.
fn bytes(vector: &str) -> Vec<u8> {
    let digits: String = vector
        .lines()
        .filter(|line| !line.starts_with('#'))
        .flat_map(|line| line.chars().filter(|c| !c.is_whitespace()))
        .collect();
    assert!(digits.len().is_multiple_of(2), "whole bytes");
    (0..digits.len() / 2)
        .map(|i| u8::from_str_radix(&digits[2 * i..2 * i + 2], 16).unwrap())
        .collect()
}

/// Encodes into a buffer full of 0xa5, with spare room that must stay untouched.
pub(super) fn encoded(pdu: &Pdu<'_>) -> Vec<u8> {
    let mut out = vec![0xa5; pdu.encoded_len() + 4];
    let len = pdu.encode(&mut out).unwrap();
    assert_eq!(len, pdu.encoded_len());
    assert_eq!(out[len..], [0xa5; 4]);
    out.truncate(len);
    out
}

macro_rules! vector {
    ($name:ident, $header:expr, $body:expr) => {
        #[test]
        fn $name() {
            let bytes = bytes(include_str!(concat!("../../testdata/", stringify!($name), ".hex")));
            let pdu = Pdu { header: $header, body: $body };
            assert_eq!(Pdu::decode(&bytes), Ok(pdu));
            assert_eq!(encoded(&pdu), bytes);
        }
    };
}

vector!(metadata, HEADER, Body::Metadata(METADATA));
vector!(eof, HEADER, Body::Eof(EOF));
vector!(eof_crc, Header { crc: true, ..HEADER }, Body::Eof(EOF));
vector!(ack_eof, BACK, Body::Ack(ack(Acknowledged::Eof, 0, TransactionStatus::Active)));
vector!(finished, BACK, Body::Finished(FINISHED));
vector!(
    ack_finished,
    HEADER,
    Body::Ack(ack(Acknowledged::Finished, 1, TransactionStatus::Terminated))
);
vector!(nak, BACK, Body::Nak(NAK));
vector!(metadata_v0, Header { version: Version::V0, ..HEADER }, Body::Metadata(METADATA));
vector!(finished_v0, Header { version: Version::V0, ..BACK }, Body::Finished(FINISHED));
vector!(
    file_data_large,
    Header {
        large_file: true,
        segmentation_control: true,
        entity_width: Width::ONE,
        sequence_width: Width::ONE,
        source: EntityId(5),
        sequence: 7,
        destination: EntityId(6),
        ..HEADER
    },
    Body::FileData(FileData { segment_metadata: None, offset: 1 << 32, data: b"hello worl" })
);

fn ack(directive: Acknowledged, subtype: u8, status: TransactionStatus) -> Ack {
    Ack { directive, subtype, condition: ConditionCode::NoError, status }
}

#[test]
fn sizes_of_the_2007_capture() {
    let data = FileDataHeader { header: HEADER, segment_metadata: None, offset: 0 };
    assert_eq!(data.encoded_len(997), 1011);
    let gaps = [GAP; 3];
    let requests = SegmentRequests::new(&gaps);
    let nak = Pdu { header: BACK, body: Body::Nak(Nak { requests, ..NAK }) };
    assert_eq!(nak.encoded_len(), 43);
}

#[test]
fn file_data_in_place_is_the_same_pdu() {
    let metadata =
        SegmentMetadata { continuation: RecordContinuation::StartAndEnd, metadata: b"note" };
    for (crc, segment_metadata) in
        [(false, None), (true, None), (false, Some(metadata)), (true, Some(metadata))]
    {
        let header = Header { crc, large_file: true, ..HEADER };
        let head = FileDataHeader { header, segment_metadata, offset: 1 << 40 };
        let mut out = vec![0xa5; head.encoded_len(5)];
        let place = head.encode(5, &mut out).unwrap();
        out[place].copy_from_slice(b"hello");
        head.finish(&mut out);
        let data = FileData { segment_metadata, offset: 1 << 40, data: b"hello" };
        let pdu = Pdu { header, body: Body::FileData(data) };
        assert_eq!(out, encoded(&pdu));
        assert_eq!(Pdu::decode(&out), Ok(pdu));
    }
}

#[test]
fn consecutive_pdus_are_separated() {
    // An EOF and its ACK: each header gives the length of its PDU.
    let eof = bytes("20000a11 0065 0001 0066 0400 00000000 00002710");
    let ack = bytes("28000311 0065 0001 0066 064001");
    let both = [eof.clone(), ack.clone()].concat();
    assert_eq!(Pdu::len_of_first(&both), Ok(eof.len()));
    assert_eq!(Pdu::len_of_first(&both[eof.len()..]), Ok(ack.len()));
    for cut in 0..eof.len() {
        assert!(Pdu::len_of_first(&eof[..cut]).is_err(), "{cut}");
    }
}

#[test]
fn bytes_behind_any_pdu_are_left_to_the_caller() {
    let ack = ack(Acknowledged::Eof, 0, TransactionStatus::Active);
    let data = FileData { segment_metadata: None, offset: 5, data: b"abc" };
    let bodies = [
        Body::FileData(data),
        Body::Metadata(METADATA),
        Body::Eof(EOF),
        Body::Finished(FINISHED),
        Body::Ack(ack),
        Body::Nak(NAK),
        Body::Prompt(Prompt { response: PromptResponse::Nak }),
        Body::KeepAlive(KeepAlive { progress: 9 }),
        Body::Unknown { code: 0x42, data: b"xy" },
    ];
    for (body, crc) in bodies.iter().flat_map(|body| [(*body, false), (*body, true)]) {
        let pdu = Pdu { header: Header { crc, ..HEADER }, body };
        let alone = encoded(&pdu);
        for tail in [&[0; 9][..], &alone] {
            let padded = [&alone[..], tail].concat();
            let (first, len) = Pdu::decode_first(&padded).unwrap();
            assert_eq!((first, len), (Pdu::decode(&alone).unwrap(), alone.len()), "{pdu}");
            let kind = DecodeErrorKind::Trailing { count: tail.len() };
            assert_eq!(Pdu::decode(&padded), Err(DecodeError { offset: alone.len(), kind }));
        }
    }
}

#[test]
fn record_continuation_states_match_the_book() {
    let states = [
        (RecordContinuation::Middle, 0x02),
        (RecordContinuation::Start, 0x42),
        (RecordContinuation::End, 0x82),
        (RecordContinuation::StartAndEnd, 0xc2),
    ];
    for (continuation, byte) in states {
        let segment_metadata = Some(SegmentMetadata { continuation, metadata: b"me" });
        let data = FileData { segment_metadata, offset: 1, data: b"d" };
        let pdu = Pdu { header: HEADER, body: Body::FileData(data) };
        let bytes = encoded(&pdu);
        assert_eq!(bytes[3], 0x19);
        assert_eq!(bytes[10..], [byte, b'm', b'e', 0, 0, 0, 1, b'd']);
        assert_eq!(Pdu::decode(&bytes), Ok(pdu));
    }
}

#[test]
fn version_0_carries_segmentation_control_in_the_metadata() {
    let header = Header { version: Version::V0, segmentation_control: true, ..HEADER };
    let bytes = encoded(&Pdu { header, body: Body::Metadata(METADATA) });
    assert_eq!((bytes[0], bytes[3], bytes[11]), (0x00, 0x11, 0x00));
    assert!(Pdu::decode(&bytes).unwrap().header.segmentation_control);

    let header = Header { version: Version::V1, ..header };
    let bytes = encoded(&Pdu { header, body: Body::Metadata(METADATA) });
    assert_eq!((bytes[0], bytes[3], bytes[11]), (0x20, 0x91, 0x00));
    assert!(Pdu::decode(&bytes).unwrap().header.segmentation_control);
}

#[test]
fn version_0_distinguishes_a_waypoint_from_the_end_system() {
    let header = Header { version: Version::V0, ..BACK };
    let waypoint = Finished { end_system: false, ..FINISHED };
    let bytes = encoded(&Pdu { header, body: Body::Finished(waypoint) });
    assert_eq!(bytes[11], 0x02);
    assert_eq!(Pdu::decode(&bytes).unwrap().body, Body::Finished(waypoint));
}

#[test]
fn version_0_ignores_bits_that_it_reserves() {
    let mut bytes = encoded(&Pdu {
        header: Header { version: Version::V0, ..HEADER },
        body: Body::FileData(FileData { segment_metadata: None, offset: 9, data: b"x" }),
    });
    bytes[0] |= 0x01;
    bytes[3] |= 0x88;
    let pdu = Pdu::decode(&bytes).unwrap();
    assert!(!pdu.header.large_file && !pdu.header.segmentation_control);
    assert_eq!(
        pdu.body,
        Body::FileData(FileData { segment_metadata: None, offset: 9, data: b"x" })
    );
}

#[test]
fn faults_have_a_place_and_a_kind() {
    let eof = encoded(&Pdu { header: HEADER, body: Body::Eof(EOF) });
    let error = |bytes: &[u8]| {
        let error = Pdu::decode(bytes).unwrap_err();
        (error.offset, error.kind)
    };
    let truncated = |needed, found| DecodeErrorKind::Truncated { needed, found };
    assert_eq!(error(&[]), (0, truncated(1, 0)));
    assert_eq!(error(&eof[..19]), (10, truncated(10, 9)));
    let longer = [&eof[..], &[0]].concat();
    assert_eq!(error(&longer), (20, DecodeErrorKind::Trailing { count: 1 }));
    let mut version = eof.clone();
    version[0] = 0x40;
    assert_eq!(error(&version), (0, DecodeErrorKind::Version(2)));
    let mut damaged =
        encoded(&Pdu { header: Header { crc: true, ..HEADER }, body: Body::Eof(EOF) });
    damaged[11] ^= 0x10;
    assert!(matches!(error(&damaged), (20, DecodeErrorKind::Checksum { found: 0xbc4d, .. })));
}

/// The datagram and the length field agree; the fields inside do not.
#[test]
fn bytes_after_the_last_field_are_refused() {
    let bodies = [
        (
            Body::Eof(Eof { fault_location: Some(IdField { value: 1, width: Width::ONE }), ..EOF }),
            1,
        ),
        (Body::Ack(ack(Acknowledged::Eof, 0, TransactionStatus::Active)), 1),
        (Body::Nak(NAK), 1),
        (Body::Nak(NAK), 7),
        (Body::Prompt(Prompt { response: PromptResponse::Nak }), 1),
        (Body::KeepAlive(KeepAlive { progress: 1 }), 1),
    ];
    for (body, extra) in bodies {
        let mut bytes = encoded(&Pdu { header: HEADER, body });
        let end = bytes.len();
        bytes.extend(vec![0; extra]);
        bytes[2] += extra as u8;
        let kind = DecodeErrorKind::Trailing { count: extra };
        assert_eq!(Pdu::decode(&bytes), Err(DecodeError { offset: end, kind }), "{body}");
    }
    // A fault handler override (type 4) has one byte of value; here it has two.
    let two_bytes = [Tlv::Other { code: 99, value: Lv(&[0x71, 0x00]) }];
    let metadata = Metadata { tlvs: Tlvs::new(&two_bytes), ..METADATA };
    let mut bytes = encoded(&Pdu { header: HEADER, body: Body::Metadata(metadata) });
    assert_eq!(bytes[42..], [99, 2, 0x71, 0x00]);
    bytes[42] = 4;
    let kind = DecodeErrorKind::Trailing { count: 1 };
    assert_eq!(Pdu::decode(&bytes), Err(DecodeError { offset: 45, kind }));
}

#[test]
fn a_fault_location_must_be_an_entity_id() {
    let location = IdField { value: 102, width: Width::TWO };
    let eof = Eof {
        condition: ConditionCode::CancelRequestReceived,
        fault_location: Some(location),
        ..EOF
    };
    let mut bytes = encoded(&Pdu { header: HEADER, body: Body::Eof(eof) });
    assert_eq!(bytes[20..], [0x06, 0x02, 0x00, 0x66]);
    assert_eq!(Pdu::decode(&bytes).unwrap().body, Body::Eof(eof));
    bytes[20] = 5;
    let error = Pdu::decode(&bytes).unwrap_err();
    assert!(matches!(error, DecodeError { offset: 20, kind: DecodeErrorKind::Invalid(_) }));
}

#[test]
fn oversized_values_are_refused() {
    let refused = |header: Header, body: Body<'_>| {
        let pdu = Pdu { header, body };
        pdu.to_vec().unwrap_err()
    };
    let too_large = |field| EncodeError::TooLarge { field };
    let eof = Eof { file_size: 1 << 32, ..EOF };
    assert_eq!(refused(HEADER, Body::Eof(eof)), too_large("file size"));
    let narrow = Header { destination: EntityId(65_536), ..HEADER };
    assert_eq!(refused(narrow, Body::Eof(EOF)), too_large("destination entity id"));
    let name = [b'n'; 256];
    let metadata = Metadata { source_name: Lv(&name), ..METADATA };
    assert_eq!(refused(HEADER, Body::Metadata(metadata)), too_large("source file name"));
    let data = vec![0; 65_532];
    let data = FileData { segment_metadata: None, offset: 0, data: &data };
    assert_eq!(refused(HEADER, Body::FileData(data)), too_large("PDU data field length"));
    let old = Header { version: Version::V0, large_file: true, ..HEADER };
    assert!(matches!(refused(old, Body::Eof(EOF)), EncodeError::Conflict(_)));
    let mut short = [0; 19];
    let pdu = Pdu { header: HEADER, body: Body::Eof(EOF) };
    assert_eq!(pdu.encode(&mut short), Err(EncodeError::NoRoom { needed: 20, room: 19 }));
}

#[test]
fn widths() {
    for (value, bytes) in [(0, 1), (255, 1), (256, 2), (65_535, 2), (65_536, 3), (u64::MAX, 8)] {
        assert_eq!(Width::fitting(value).bytes(), bytes, "{value}");
    }
    assert_eq!((Width::new(0), Width::new(9)), (None, None));
    assert_eq!((Width::ONE.max_value(), Width::EIGHT.max_value()), (255, u64::MAX));
}

#[test]
fn the_crc_of_a_pdu_of_a_known_string() {
    assert_eq!(PDU_CRC.checksum(b"123456789"), 0x29b1);
}

#[test]
fn user_operations_match_the_bytes_of_the_book() {
    let id = |value, width| IdField { value, width };
    let name = |text: &'static str| Lv(text.as_bytes());
    let transaction = TransactionField { source: id(5, Width::TWO), sequence: id(9, Width::ONE) };
    let cases: [(UserOperation<'_>, &[u8]); 6] = [
        (
            UserOperation::Request(UserRequest::ProxyPut(ProxyPut {
                destination: id(6, Width::ONE),
                source_name: name("a"),
                destination_name: name("bc"),
            })),
            b"cfdp\x00\x01\x06\x01a\x02bc",
        ),
        (UserOperation::Request(UserRequest::ProxyPutCancel), b"cfdp\x09"),
        (UserOperation::OriginatingTransactionId(transaction), b"cfdp\x0a\x10\x00\x05\x09"),
        (
            UserOperation::DirectoryListingResponse {
                success: false,
                directory: name("d"),
                file: name("f"),
            },
            b"cfdp\x11\x80\x01d\x01f",
        ),
        (
            UserOperation::RemoteSuspendResponse(Suspension {
                suspended: true,
                status: TransactionStatus::Active,
                transaction,
            }),
            b"cfdp\x31\xa0\x10\x00\x05\x09",
        ),
        (
            UserOperation::ProxyPutResponse {
                condition: ConditionCode::FilestoreRejection,
                delivery: DeliveryCode::Incomplete,
                file_status: FileStatus::FilestoreRejection,
            },
            b"cfdp\x07\x45",
        ),
    ];
    for (operation, bytes) in cases {
        assert_eq!(operation.to_vec().unwrap(), bytes);
        assert_eq!(UserOperation::decode(bytes), Ok(Some(operation)));
    }
    assert_eq!(UserOperation::decode(b"hello"), Ok(None));
    assert_eq!(UserOperation::decode(b"cfd"), Ok(None));
    assert!(UserOperation::decode(b"cfdp").is_err());
}

/// Pins the profile of `sfo.rs`, so that changing a bit requires a change of this test.
#[test]
fn sfo_messages_match_the_bytes_of_the_profile() {
    let id = |value| IdField { value, width: Width::ONE };
    let request = SfoRequest {
        trace: TraceControl::Destination,
        mode: TransmissionMode::Unacknowledged,
        segmentation_control: false,
        closure_requested: true,
        prior_waypoints: 3,
        label: Lv(b"l"),
        source: id(1),
        destination: id(2),
        source_name: Lv(b"s"),
        destination_name: Lv(b"d"),
    };
    let bytes = b"cfdp\x40\xa8\x03\x01l\x01\x01\x01\x02\x01s\x01d";
    let operation = UserOperation::Request(UserRequest::Sfo(request));
    assert_eq!(operation.to_vec().unwrap(), bytes);
    assert_eq!(UserOperation::decode(bytes), Ok(Some(operation)));

    let report = SfoReport {
        label: Lv(b"l"),
        source: id(1),
        destination: id(2),
        reporter: id(9),
        prior_waypoints: 3,
        report_code: 1,
        condition: ConditionCode::InactivityDetected,
        direction: Direction::TowardSender,
        delivery: DeliveryCode::Incomplete,
        file_status: FileStatus::Unreported,
    };
    let bytes = b"cfdp\x45\x01l\x01\x01\x01\x02\x01\x09\x03\x01\x8f";
    let operation = UserOperation::SfoReport(report);
    assert_eq!(operation.to_vec().unwrap(), bytes);
    assert_eq!(UserOperation::decode(bytes), Ok(Some(operation)));
}

#[test]
fn pdus_print_on_one_line() {
    let line = |header, body| Pdu { header, body }.to_string();
    assert_eq!(
        line(HEADER, Body::Metadata(Metadata { closure_requested: true, ..METADATA })),
        r#"101_1 → 102 Metadata 10000 B "testfile.10k" → "testfile.10k" modular closure"#
    );
    let data = FileData { segment_metadata: None, offset: 997, data: &[0; 997] };
    assert_eq!(line(HEADER, Body::FileData(data)), "101_1 → 102 File Data 997..1994");
    let requests = [SegmentRequest::METADATA, GAP, SegmentRequest { start: 2991, end: 3988 }];
    let nak = Nak { requests: SegmentRequests::new(&requests), ..NAK };
    assert_eq!(
        line(BACK, Body::Nak(nak)),
        "101_1 ← 102 NAK 0..10000 want metadata 997..1994 2991..3988"
    );
    assert_eq!(
        line(BACK, Body::Finished(FINISHED)),
        "101_1 ← 102 Finished no error complete retained"
    );
    let request = FilestoreRequest {
        action: FilestoreAction::RenameFile,
        first: Lv(b"a\x1b"),
        second: Lv(b"\xff"),
    };
    let tlvs = [Tlv::FilestoreRequest(request), Tlv::MessageToUser(Lv(b"cfdp\x09"))];
    let metadata = Metadata { file_size: 0, tlvs: Tlvs::new(&tlvs), ..METADATA };
    let header = Header { version: Version::V0, mode: TransmissionMode::Unacknowledged, ..HEADER };
    assert_eq!(
        line(header, Body::Metadata(metadata)),
        "101_1 → 102 v0 unacknowledged Metadata \"testfile.10k\" → \"testfile.10k\" modular\
         ; rename file \"a\\u{1b}\" \"\\xff\"; proxy put cancel"
    );
}
