//! Messages laid out by hand from RFC 7242, and round trips.

use proptest::prelude::*;
use testing::hex;

use super::*;

const EID_MAX: usize = 1023;

fn header() -> ContactHeader<'static> {
    let flags = Flags { acks: true, reactive_fragmentation: true, refusals: false, lengths: true };
    ContactHeader { version: VERSION, flags, keepalive_s: 30, eid: "dtn://a" }
}

/// Requirements: W02a.
#[test]
fn contact_headers() {
    let bytes = hex::vector("64746e21 03 0b 001e 07 64746e3a2f2f61");
    assert_eq!(header().to_vec(), bytes);
    let more = [&bytes[..], &[0x40]].concat();
    assert_eq!(ContactHeader::decode(&more, EID_MAX), Ok(Some((header(), bytes.len()))));
    for end in 0..bytes.len() {
        assert_eq!(ContactHeader::decode(&bytes[..end], EID_MAX), Ok(None));
    }
    // Reserved flags are ignored.
    let reserved = [&bytes[..5], &[0xfb], &bytes[6..]].concat();
    assert_eq!(ContactHeader::decode(&reserved, EID_MAX), Ok(Some((header(), bytes.len()))));
    let later = [b"dtn!\x05", &bytes[5..]].concat();
    let read = ContactHeader::decode(&later, EID_MAX).unwrap().unwrap().0;
    assert_eq!(read, ContactHeader { version: 5, ..header() });
    for (text, offset) in [
        ("64746e20", 0),
        ("64746e21 02", 4),
        ("64746e21 03 0b 001e 9000", 8),
        ("64746e21 03 0b 001e 01 ff", 9),
    ] {
        let error = ContactHeader::decode(&hex::vector(text), EID_MAX).unwrap_err();
        assert_eq!(error.offset, offset, "{text}: {error}");
    }
}

/// Requirements: W04, W08b.
#[test]
fn messages() {
    let idle = Some(ShutdownReason::IdleTimeout);
    for (message, text, line) in [
        (
            Message::Segment { start: true, end: true, length: 300 },
            "13 82 2c",
            "DATA_SEGMENT start end 300 B",
        ),
        (Message::Segment { start: false, end: false, length: 0 }, "10 00", "DATA_SEGMENT 0 B"),
        (Message::Ack { length: 300 }, "20 82 2c", "ACK_SEGMENT 300 B"),
        (
            Message::Refuse { reason: RefuseReason::NoResources },
            "32",
            "REFUSE_BUNDLE: the receiver has no resources",
        ),
        (Message::Keepalive, "40", "KEEPALIVE"),
        (Message::Shutdown { reason: None, reconnect_s: None }, "50", "SHUTDOWN"),
        (Message::Shutdown { reason: idle, reconnect_s: None }, "52 00", "SHUTDOWN: idle"),
        (
            Message::Shutdown { reason: idle, reconnect_s: Some(300) },
            "53 00 82 2c",
            "SHUTDOWN: idle, to connect again after 300 s",
        ),
        (
            Message::Shutdown { reason: None, reconnect_s: Some(0) },
            "51 00",
            "SHUTDOWN, not to connect again",
        ),
        (Message::Length { length: 300 }, "60 82 2c", "LENGTH 300 B"),
        (Message::Unknown { first: 0x7f }, "7f", "message 0x7f"),
    ] {
        let bytes = hex::vector(text);
        assert_eq!(message.to_vec().as_deref(), Ok(&bytes[..]), "{message}");
        let more = [&bytes[..], b"hello"].concat();
        assert_eq!(Message::decode(&more), Ok(Some((message, bytes.len()))));
        for end in 0..bytes.len() {
            assert_eq!(Message::decode(&bytes[..end]), Ok(None), "{message}");
        }
        assert_eq!(message.to_string(), line);
    }
    let reason = RefuseReason::Other(16);
    assert!(Message::Refuse { reason }.to_vec().is_err());
    let endless = hex::vector("13 ff ff ff ff ff ff ff ff ff ff");
    assert_eq!(Message::decode(&endless).map_err(|error| error.offset), Err(1));
}

proptest! {
    #[test]
    fn messages_round_trip(
        kind in 0..7_u8, byte: u8, length: u64, (start, end) in any::<(bool, bool)>(), delay: Option<u64>,
    ) {
        let message = match kind {
            0 => Message::Segment { start, end, length },
            1 => Message::Ack { length },
            2 => Message::Refuse { reason: RefuseReason::from_code(byte & 0x0f) },
            3 => Message::Keepalive,
            4 => {
                let reason = start.then_some(ShutdownReason::from_code(byte));
                Message::Shutdown { reason, reconnect_s: delay }
            }
            5 => Message::Length { length },
            _ => Message::Unknown { first: byte | 0x80 },
        };
        let bytes = message.to_vec().unwrap();
        prop_assert_eq!(Message::decode(&bytes), Ok(Some((message, bytes.len()))));
    }

    #[test]
    fn arbitrary_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..60)) {
        if let Ok(Some((message, len))) = Message::decode(&bytes) {
            prop_assert!(len <= 12 && !message.to_string().is_empty());
            let again = message.to_vec().unwrap();
            prop_assert_eq!(Message::decode(&again), Ok(Some((message, again.len()))));
        }
        let bytes = [b"dtn!\x03", &bytes[..]].concat();
        if let Ok(Some((header, len))) = ContactHeader::decode(&bytes, EID_MAX) {
            prop_assert!(len <= bytes.len());
            let again = header.to_vec();
            prop_assert_eq!(ContactHeader::decode(&again, EID_MAX), Ok(Some((header, again.len()))));
        }
    }
}
