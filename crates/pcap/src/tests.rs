use engine::Time;

use super::*;

fn records(bytes: &[u8]) -> (Vec<Record>, Option<ReadError>) {
    let mut records = Vec::new();
    for record in Reader::new(bytes).unwrap() {
        match record {
            Ok(record) => records.push(record),
            Err(error) => return (records, Some(error)),
        }
    }
    (records, None)
}

/// Header of a frame with IPv4.
const ETHERNET: [u8; 14] = [2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0];

fn sample() -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut writer = Writer::new(&mut bytes).unwrap();
    let raw = writer.interface("earth-moon", LinkType::Raw).unwrap();
    let ethernet = writer.interface("moon-earth", LinkType::Ethernet).unwrap();
    let at = Time::from_nanos(5_000_000_001);
    writer.packet(at, raw, Direction::Out, &[], b"abcde", Some("lost: noise")).unwrap();
    writer.packet(Time::MAX, ethernet, Direction::In, &ETHERNET, b"xyz", None).unwrap();
    bytes
}

#[test]
fn written_values_are_read_back() {
    let (records, error) = records(&sample());
    assert!(error.is_none());
    assert_eq!(records[0].at, Time::from_nanos(5_000_000_001));
    assert_eq!(records[0].bytes, b"abcde");
    assert_eq!(records[0].comment.as_deref(), Some("lost: noise"));
    assert_eq!(records[1].interface_name.as_deref(), Some("moon-earth"));
    assert_eq!((records[1].at, records[1].interface), (Time::MAX, 1));
    assert_eq!(records[1].ip(), Some(&b"xyz"[..]));
    assert_eq!(records.len(), 2);
}

#[test]
fn a_truncated_file_yields_complete_records_and_the_offset() {
    let whole = sample();
    let (all, _) = records(&whole);
    let first = whole.len() - 14 - 3 - 60;
    for len in 12..whole.len() {
        let Ok(reader) = Reader::new(&whole[..len]) else { continue };
        let mut count = 0;
        for record in reader {
            match record {
                Ok(record) => {
                    assert_eq!(record, all[count]);
                    count += 1;
                }
                Err(ReadError::Truncated { offset }) => assert!(offset < len as u64),
                Err(other) => panic!("{other}"),
            }
        }
        assert!(count <= usize::from(len > first), "{len}");
    }
}

#[test]
fn classic_captures_of_either_byte_order_and_resolution() {
    for (magic, nanos) in [(0xa1b2_c3d4_u32, 7_000), (0xa1b2_3c4d, 7)] {
        for big_endian in [false, true] {
            let word = |n: u32| if big_endian { n.to_be_bytes() } else { n.to_le_bytes() };
            let words = [magic, 0x0002_0004, 0, 0, 65535, 101, 3, 7, 4, 60];
            let mut bytes: Vec<u8> = words.into_iter().flat_map(word).collect();
            bytes.extend_from_slice(b"data");
            let (records, error) = records(&bytes);
            assert!(error.is_none());
            assert_eq!(records[0].at, Time::from_nanos(3_000_000_000 + nanos));
            assert_eq!((&records[0].bytes[..], records[0].original_len), (&b"data"[..], 60));
            assert_eq!(records[0].link_type, LinkType::Raw);
        }
    }
}

#[test]
fn other_files_are_refused() {
    let refused = Reader::new(&b"PK\x03\x04 and so on"[..]).err().unwrap();
    assert_eq!(refused.to_string(), "not a capture: it starts with [50, 4b, 03, 04]");
    let empty = Reader::new(&b""[..]).err().unwrap();
    assert!(matches!(empty, ReadError::Truncated { offset: 0 }));
    let mut huge = sample();
    let at = huge.len() - 14 - 3 - 60;
    huge.truncate(at);
    huge.extend_from_slice(&[6, 0, 0, 0, 0xff, 0xff, 0xff, 0xff]);
    let (_, error) = records(&huge);
    assert!(error.is_some());
}

#[test]
fn damage_anywhere_never_panics() {
    let whole = sample();
    for index in 0..whole.len() {
        for value in [0, 1, 0x7f, 0xff] {
            let mut bytes = whole.clone();
            bytes[index] = value;
            if let Ok(reader) = Reader::new(&bytes[..]) {
                let records = reader.map_while(Result::ok);
                assert!(records.filter(|record| record.udp().is_none()).count() <= 3);
            }
        }
    }
}

/// Returns "hello" from port 40000 to 2500 of 127.0.0.1, as captured on the loopback interface
/// with this checksum.
fn loopback(checksum: u16) -> Record {
    let mut bytes = vec![
        0x45, 0, 0, 33, 0, 0, 0x40, 0, 64, 17, 0x3c, 0xca, 127, 0, 0, 1, 127, 0, 0, 1, //
        0x9c, 0x40, 0x09, 0xc4, 0, 13, 0, 0,
    ];
    bytes[26..28].copy_from_slice(&checksum.to_be_bytes());
    bytes.extend_from_slice(b"hello");
    Record {
        at: Time::ZERO,
        interface: 0,
        interface_name: None,
        link_type: LinkType::Raw,
        original_len: bytes.len() as u32,
        bytes,
        comment: None,
    }
}

#[test]
fn an_unfinished_checksum_differs_from_a_wrong_one() {
    // 0x7f00 + 1 + 0x7f00 + 1 + 17 + 13 = 0xfe20.
    for (field, checksum) in
        [(0, Checksum::Right), (0xfe20, Checksum::Unfinished), (0xfe21, Checksum::Wrong)]
    {
        let record = loopback(field);
        let datagram = record.udp().unwrap();
        assert_eq!((datagram.checksum, datagram.data), (checksum, &b"hello"[..]), "{field:x}");
    }
}
