//! Messages laid out by hand from RFC 9174, and round trips.

use proptest::prelude::*;
use testing::hex;

use super::*;

const BOUNDS: Bounds = Bounds { node_id_max: 1023, extensions_max: 4096 };

fn init() -> SessionInit<'static> {
    SessionInit {
        keepalive_s: 30,
        segment_mru: 65_535,
        transfer_mru: 1_000_000_000,
        node_id: "dtn://a/",
        extensions: Extensions::NONE,
    }
}

/// Requirements: V01a.
#[test]
fn contact_headers() {
    let header = ContactHeader { can_tls: true };
    assert_eq!(header.encode(), *b"dtn!\x04\x01");
    assert_eq!(ContactHeader::decode(b"dtn!\x04\x01"), Ok(Some(header)));
    assert_eq!(ContactHeader::decode(b"dtn!\x04\xfe"), Ok(Some(ContactHeader::default())));
    assert_eq!(ContactHeader::decode(b"dtn!\x04"), Ok(None));
    let error = ContactHeader::decode(b"dtn!\x03").unwrap_err();
    assert_eq!(error, DecodeError { offset: 4, kind: DecodeErrorKind::Version(3) });
    assert!(ContactHeader::decode(b"dtx").is_err());
}

/// Requirements: V16.
#[test]
fn messages() {
    let length = 5_u64.to_be_bytes();
    let items = [Extension::transfer_length(&length)];
    let both = SegmentFlags { start: true, end: true };
    let first =
        Segment { flags: both, transfer: 0, extensions: Extensions::new(&items), length: 5 };
    let last = Segment {
        flags: SegmentFlags { start: false, end: true },
        transfer: 1,
        extensions: Extensions::NONE,
        length: 1 << 40,
    };
    let idle = TermReason::IdleTimeout;
    for (message, text) in [
        (
            Message::Init(init()),
            "07 001e 000000000000ffff 000000003b9aca00 0008 64746e3a2f2f612f 00000000",
        ),
        (
            Message::Segment(first),
            "01 03 0000000000000000 0000000d 01 0001 0008 0000000000000005 0000000000000005",
        ),
        (Message::Segment(last), "01 01 0000000000000001 0000010000000000"),
        (
            Message::Ack { flags: both, transfer: 0, length: 5 },
            "02 03 0000000000000000 0000000000000005",
        ),
        (
            Message::Refuse { reason: RefuseReason::NoResources, transfer: 258 },
            "03 02 0000000000000102",
        ),
        (Message::Keepalive, "04"),
        (Message::Terminate { is_reply: false, reason: idle }, "05 00 01"),
        (Message::Terminate { is_reply: true, reason: idle }, "05 01 01"),
        (Message::Reject { reason: RejectReason::TypeUnknown, header: 0x2a }, "06 01 2a"),
        (Message::Unknown { kind: 0x2a }, "2a"),
    ] {
        let bytes = hex::vector(text);
        assert_eq!(message.to_vec().as_deref(), Ok(&bytes[..]), "{message}");
        // Data, or the next message, follow.
        let more = [&bytes[..], b"hello"].concat();
        assert_eq!(Message::decode(&more, &BOUNDS), Ok(Some((message, bytes.len()))));
        for end in 0..bytes.len() {
            assert_eq!(Message::decode(&bytes[..end], &BOUNDS), Ok(None), "{message}");
        }
    }
    assert_eq!(Message::Segment(first).to_string(), "XFER_SEGMENT 0 START END 5 B of 5");
    assert_eq!(
        Message::Init(init()).to_string(),
        "SESS_INIT \"dtn://a/\" keepalive 30 s, segments up to 65535 B, transfers up to 1000000000 B"
    );
}

/// Requirements: V08, V16.
#[test]
fn errors_are_reported_with_their_offset() {
    for (text, offset) in [
        // A node ID beyond the bound, before it has arrived.
        ("07 001e 000000000000ffff 000000003b9aca00 ffff", 19),
        ("07 001e 000000000000ffff 000000003b9aca00 0001 ff 00000000", 21),
        // Items beyond the bound, and one that is longer than the list.
        ("07 001e 000000000000ffff 000000003b9aca00 0000 ffffffff", 21),
        ("01 03 0000000000000000 00001001", 10),
        ("01 02 0000000000000000 00000005 01 0001 0001", 14),
    ] {
        let error = Message::decode(&hex::vector(text), &BOUNDS).unwrap_err();
        assert_eq!(error.offset, offset, "{text}: {error}");
    }
    let items = [Extension { is_critical: false, kind: 9, value: b"" }];
    let extensions = Extensions::new(&items);
    let flags = SegmentFlags::default();
    let segment = Segment { flags, transfer: 0, extensions, length: 0 };
    assert!(Message::Segment(segment).to_vec().is_err());
    let long = "a".repeat(65_536);
    assert!(Message::Init(SessionInit { node_id: &long, ..init() }).to_vec().is_err());
}

proptest! {
    #[test]
    fn messages_round_trip(
        kind in 0..8_u8, byte: u8, (a, b) in any::<(u64, u64)>(), keepalive_s: u16,
        (start, end) in any::<(bool, bool)>(),
        node_id in "[ -~]{0,40}",
        items in prop::collection::vec((any::<bool>(), any::<u16>(), prop::collection::vec(any::<u8>(), 0..20)), 0..5),
    ) {
        let items: Vec<_> = items
            .iter()
            .map(|(is_critical, kind, value)| Extension { is_critical: *is_critical, kind: *kind, value })
            .collect();
        let extensions = Extensions::new(&items);
        let flags = SegmentFlags { start, end };
        let message = match kind {
            0 => {
                let extensions = if start { extensions } else { Extensions::NONE };
                Message::Segment(Segment { flags, transfer: a, extensions, length: b })
            }
            1 => Message::Ack { flags, transfer: a, length: b },
            2 => Message::Refuse { reason: RefuseReason::from_code(byte), transfer: a },
            3 => Message::Keepalive,
            4 => Message::Terminate { is_reply: start, reason: TermReason::from_code(byte) },
            5 => Message::Reject { reason: RejectReason::from_code(byte), header: byte },
            6 => Message::Unknown { kind: byte | 8 },
            _ => Message::Init(SessionInit {
                keepalive_s, segment_mru: a, transfer_mru: b, node_id: &node_id, extensions,
            }),
        };
        let bytes = message.to_vec().unwrap();
        prop_assert_eq!(Message::decode(&bytes, &BOUNDS), Ok(Some((message, bytes.len()))));
        for end in 0..bytes.len() {
            prop_assert_eq!(Message::decode(&bytes[..end], &BOUNDS), Ok(None));
        }
    }

    #[test]
    fn arbitrary_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..100)) {
        let _ = ContactHeader::decode(&bytes);
        if let Ok(Some((message, len))) = Message::decode(&bytes, &BOUNDS) {
            prop_assert!(len <= bytes.len() && !message.to_string().is_empty());
            let again = message.to_vec().unwrap();
            prop_assert_eq!(Message::decode(&again, &BOUNDS), Ok(Some((message, again.len()))));
        }
    }
}
