//! Golden bundles of `crates/bp/testdata/bp7`, and round trips.

use proptest::prelude::*;
use testing::hex;
use wire::DecodeErrorKind;

use super::*;

const BOUNDS: Bounds = Bounds {
    head_max: 64 << 10,
    blocks_max: 64,
    eid_max: 1023,
    references_max: 16,
    fills_max: 4096,
};

fn primary() -> Primary {
    Primary {
        flags: BundleFlags::MUST_NOT_FRAGMENT,
        crc: CrcType::Crc16,
        destination: Eid::ipn(2, 1),
        source: Eid::ipn(1, 1),
        report_to: Eid::ipn(1, 0),
        creation: CreationTimestamp { time_ms: 700_000_000_000, sequence: 3 },
        lifetime_ms: 3_600_000,
        fragment: None,
    }
}

/// Requirements: B01, B02, B05, B06, B10, B17, B19, B22, B24.
#[test]
fn a_bundle_with_checks() {
    // Computed by hand from RFC 9171; tshark 4.0.17 finds all three CRCs correct.
    let bytes = hex::vector(include_str!("../../../testdata/bp7/checks.hex"));
    let bundle = Bundle::decode(&bytes, &BOUNDS).unwrap();
    assert_eq!(bundle.payload, b"hello");
    assert_eq!(bundle.to_vec().as_deref(), Ok(&bytes[..]));
    let head = &bundle.head;
    assert_eq!(*head.primary(), Primary { report_to: Eid::None, ..primary() });
    assert_eq!(
        head.to_string(),
        "ipn:1.1 to ipn:2.1 700000000000.3 for 3600000 ms, 5 B, age, hop count"
    );
    // A bundle created from the fields is identical.
    let flags = BlockFlags::default();
    let age = Extension::BundleAge { age_ms: 0 };
    let hops = Extension::HopCount(HopCount { limit: 32, count: 0 });
    let made = [(age, 2, CrcType::None), (hops, 3, CrcType::Crc16)];
    for (block, (extension, number, crc)) in head.blocks().iter().zip(made) {
        assert_eq!(block.extension(&BOUNDS).as_ref(), Ok(&extension));
        assert_eq!(extension.to_block(number, flags, crc).as_ref(), Ok(block));
    }
    let made = Head::new(head.primary().clone(), head.blocks().to_vec(), head.payload()).unwrap();
    assert_eq!(Bundle { head: made, payload: b"hello" }.to_vec().as_deref(), Ok(&bytes[..]));
}

/// Requirements: B05, B06, B17.
#[test]
fn a_primary_block_with_the_longer_check() {
    let bytes = hex::vector(include_str!("../../../testdata/bp7/primary_crc32c.hex"));
    let mut reader = wire::cursor::Reader::new(&bytes);
    let read = Primary::read(&mut reader, &BOUNDS).unwrap();
    assert_eq!(read.crc, CrcType::Crc32c);
    assert_eq!(read.to_vec().as_deref(), Ok(&bytes[..]));
}

/// Requirements: B02, B05, B06.
#[test]
fn a_bundle_without_checks() {
    // RFC 9173 appendix A.1.1.
    let bytes = hex::vector(include_str!("../../../testdata/bpsec/a1_original.hex"));
    let bundle = Bundle::decode(&bytes, &BOUNDS).unwrap();
    assert_eq!(bundle.payload, b"Ready to generate a 32-byte payload");
    assert_eq!(bundle.head.primary().destination, Eid::ipn(1, 2));
    let primary = bundle.head.primary().clone();
    let made = Head::new(primary, Vec::new(), bundle.head.payload()).unwrap();
    assert_eq!(made, bundle.head);
    assert_eq!(bundle.to_vec().as_deref(), Ok(&bytes[..]));
}

/// Requirements: B22.
#[test]
fn a_changed_byte_is_found() {
    let bytes = hex::vector(include_str!("../../../testdata/bp7/checks.hex"));
    // The age block carries no CRC: with a changed type, flag or age it is still valid.
    let age = 37..46;
    assert_eq!(bytes[age.clone()], [0x85, 0x07, 0x02, 0x00, 0x00, 0x41, 0x00, 0x86, 0x0a]);
    let unchecked = 38..44;
    for place in 0..bytes.len() {
        let mut damaged = bytes.clone();
        damaged[place] ^= 1;
        let read = Bundle::decode(&damaged, &BOUNDS);
        assert!(read.is_err() || unchecked.contains(&place), "byte {place}");
    }
}

/// Requirements: B01.
#[test]
fn forms_written_by_other_implementations() {
    // Arrays ended by a break, in blocks and in the payload block, and numbers longer than needed.
    let bytes = hex::vector(
        "9f 9f 1807 00 00 9f02 9f0102ff ff 8202820201 8202820201 9f0018 28ff 1a000f4240 ff \
         9f 07 1900 02 00 00 4300 0000 ff 9f 01 01 00 00 42 6869 ff ff",
    );
    // The age's bytes are not a CBOR number, but nothing decodes them.
    let bundle = Bundle::decode(&bytes, &BOUNDS).unwrap();
    assert_eq!(bundle.payload, b"hi");
    assert!(bundle.head.blocks()[0].extension(&BOUNDS).is_err());
    assert_eq!(bundle.to_vec().as_deref(), Ok(&bytes[..]), "the same bytes again");
    // The outer array has a count; it is encoded with a break.
    let bytes = hex::vector(
        "82 88070000820282010282028202018202820201820018281a000f4240 850101000042 6869",
    );
    let bundle = Bundle::decode(&bytes, &BOUNDS).unwrap();
    let written = bundle.to_vec().unwrap();
    assert_eq!(written.len(), bytes.len() + 1);
    assert_eq!(written[1..bytes.len()], bytes[1..]);
}

/// Requirements: B22.
#[test]
fn crcs_cover_indefinite_lengths() {
    for crc in [CrcType::Crc16, CrcType::Crc32c] {
        let payload = Payload { crc, len: 2, ..Payload::default() };
        let head = Head::new(primary(), Vec::new(), payload).unwrap();
        let bytes = Bundle { head, payload: b"hi" }.to_vec().unwrap();
        // The payload block's array of 6 becomes one ended by a break; its CRC is computed again.
        let at = bytes.windows(3).position(|w| w == [0x86, 0x01, 0x01]).unwrap();
        let mut open = bytes.clone();
        open[at] = 0x9f;
        open.insert(bytes.len() - 1, 0xff);
        assert!(matches!(
            Bundle::decode(&open, &BOUNDS).unwrap_err().kind,
            DecodeErrorKind::Checksum { .. }
        ));
        let head = Head::decode(&open, &BOUNDS).unwrap().unwrap();
        let fixed = Bundle { head, payload: b"hi" }.to_vec().unwrap();
        assert_eq!(fixed.len(), open.len());
        assert_eq!(Bundle::decode(&fixed, &BOUNDS).unwrap().to_vec().unwrap(), fixed);
    }
}

/// Requirements: B03, B18.
#[test]
fn forwarders_change_only_required_fields() {
    let bytes = hex::vector(include_str!("../../../testdata/bp7/checks.hex"));
    let mut head = Head::decode(&bytes, &BOUNDS).unwrap().unwrap();
    let unknown = Block::new(200, 9, BlockFlags::REPLICATE, CrcType::Crc32c, b"what?").unwrap();
    head.put_block(unknown.clone());
    let hops = Extension::HopCount(HopCount { limit: 32, count: 1 });
    head.put_block(hops.to_block(2, BlockFlags::default(), CrcType::Crc16).unwrap());
    assert!(head.remove_block(3) && !head.remove_block(3));
    assert_eq!(head.free_number(), 3);
    assert_eq!(head.payload_offset(), head.encode().len());
    let written = Bundle { head, payload: b"hello" }.to_vec().unwrap();
    let read = Bundle::decode(&written, &BOUNDS).unwrap().head;
    assert_eq!(read.blocks().iter().map(Block::number).collect::<Vec<_>>(), [2, 9]);
    assert_eq!(read.blocks()[1], unknown);
    let before = Head::decode(&bytes, &BOUNDS).unwrap().unwrap();
    assert_eq!(read.primary_bytes(), before.primary_bytes());
    let mut shorter = read.clone();
    shorter.set_payload(Payload { len: 2, ..Payload::default() });
    let shorter = Bundle { head: shorter, payload: b"hi" }.to_vec().unwrap();
    let shorter = Bundle::decode(&shorter, &BOUNDS).unwrap();
    assert_eq!((shorter.payload, shorter.head.payload().crc), (&b"hi"[..], CrcType::None));
    assert_eq!(shorter.head.primary_bytes(), before.primary_bytes());
    assert_eq!(shorter.head.blocks(), read.blocks());
    let mut twice = read.blocks().to_vec();
    twice.push(unknown);
    assert!(read.clone().set_blocks(twice).is_err());
}

/// Requirements: B02, B03, B04, B05, B17, B19, B21, B24.
#[test]
fn errors_are_reported_with_their_offset() {
    let head = "9f 88 07 00 00 8202820102 8202820201 8202820201 82001828 1a000f4240";
    for (text, offset) in [
        ("06 81 10", 0),
        ("9f 88 06", 2),
        ("9f 88 07 00 03", 4),
        ("9f 87 07 00 00 8202820102 8202820201 8202820201 82001828 1a000f4240", 1),
        ("9f 89 07 00 00 8202820102 8202820201 8202820201 82001828 1a000f4240 00", 1),
        ("9f ff", 0),
        (&format!("{head} ff"), 0),
        (&format!("{head} 85 01 02 00 00 40"), 31),
        (&format!("{head} 85 07 00 00 00 40"), 31),
        (&format!("{head} 85 07 02 00 00 4100 85 07 02 00 00 4100"), 36),
        (&format!("{head} 85 01 01 00 00 5f"), 34),
        (&format!("{head} 85 01 01 00 00 42 6869 00"), 37),
        (&format!("{head} 85 01 01 00 00 42 6869 ff 00"), 38),
        (&format!("{head} 85 01 01 00 00 42 68"), 35),
    ] {
        let bytes = hex::vector(text);
        let error = Bundle::decode(&bytes, &BOUNDS).unwrap_err();
        assert_eq!(error.offset, offset, "{text}: {error}");
    }
}

#[test]
fn bundles_beyond_the_bounds_are_refused() {
    let payload = Payload { len: 2, ..Payload::default() };
    let block =
        |number| Block::new(200, number, BlockFlags::default(), CrcType::None, &[7; 90]).unwrap();
    let blocks: Vec<Block> = (2..12).map(block).collect();
    let head = Head::new(primary(), blocks, payload).unwrap();
    let bytes = Bundle { head, payload: b"hi" }.to_vec().unwrap();
    assert!(Bundle::decode(&bytes, &Bounds { blocks_max: 10, ..BOUNDS }).is_ok());
    assert!(Bundle::decode(&bytes, &Bounds { blocks_max: 9, ..BOUNDS }).is_err());
    assert!(Bundle::decode(&bytes, &Bounds { head_max: 1100, ..BOUNDS }).is_ok());
    assert!(Bundle::decode(&bytes, &Bounds { head_max: 1000, ..BOUNDS }).is_err());
    // A block of 2^63 bytes is refused as soon as its length is read.
    let bomb = hex::vector(
        "9f 88 07 00 00 8202820102 8202820201 8202820201 82001828 1a000f4240 85 07 02 00 00 5b 8000000000000000",
    );
    assert!(Head::decode(&bomb, &BOUNDS).is_err());
    // A payload of that length is accepted: it is not in the head.
    let huge = hex::vector(
        "9f 88 07 00 00 8202820102 8202820201 8202820201 82001828 1a000f4240 85 01 01 00 00 5b 8000000000000000",
    );
    assert_eq!(Head::decode(&huge, &BOUNDS).unwrap().unwrap().payload().len, 1 << 63);
    // Nested arrays, and a count without items.
    assert!(Head::decode(&[0x9f; 100_000], &BOUNDS).is_err());
    assert!(
        Head::decode(&hex::vector("9b ffffffffffffffff 9b ffffffffffffffff"), &BOUNDS)
            .unwrap()
            .is_none()
    );
}

/// Requirements: B24, B24b.
#[test]
fn the_payload_block_has_five_elements_or_six() {
    let head = "9f89070001820282030182028209018201008200021a000493e042f3dd8507020100421834";
    for (payload, is_right) in [
        ("85010100004454455354ff", true),
        ("9f010100004454455354ffff", true),
        ("84010100004454455354ff", false),
        ("86010100004454455354ff", false),
        ("87010100004454455354ff", false),
        // With a CRC over it.
        ("85010100014454455354428333ff", false),
    ] {
        let bytes = hex::vector(&format!("{head}{payload}"));
        let read = Bundle::decode(&bytes, &BOUNDS);
        assert_eq!(read.is_ok(), is_right, "{payload}: {read:?}");
        let read = Head::decode(&bytes, &BOUNDS);
        assert_eq!(read.is_ok(), is_right, "{payload}: {read:?}");
    }
}

/// Requirements: B03, B07a, B08a, B29a.
#[test]
fn contradictory_flags_are_refused() {
    let asks = BundleFlags::REPORT_DELIVERY.with(BundleFlags::MUST_NOT_FRAGMENT);
    for wrong in [
        Primary { flags: asks.with(BundleFlags::ADMINISTRATIVE), ..primary() },
        Primary { flags: asks, source: Eid::None, ..primary() },
        Primary { flags: BundleFlags::default(), source: Eid::None, ..primary() },
        Primary { fragment: Some(Fragment { offset: 6, total: 5 }), ..primary() },
    ] {
        assert!(wrong.conflict().is_some() && wrong.to_vec().is_err());
    }
    assert!(Primary { destination: Eid::Uri("a:b".into()), ..primary() }.to_vec().is_err());
    assert!(Block::new(PAYLOAD, 2, BlockFlags::default(), CrcType::None, b"").is_err());
    assert!(Block::new(7, 1, BlockFlags::default(), CrcType::None, b"").is_err());
    let none = HopCount { limit: 0, count: 0 };
    assert!(Extension::HopCount(none).to_block(2, BlockFlags::default(), CrcType::None).is_err());
    assert!(
        HopCount { limit: 1, count: 2 }.is_exceeded()
            && !HopCount { limit: 1, count: 1 }.is_exceeded()
    );
}

/// Requirements: B69, B70, B71.
#[test]
fn status_reports() {
    // Laid out by hand from RFC 9171 §6.1.1.
    let bytes = hex::vector(include_str!("../../../testdata/bp7/status_report.hex"));
    let report = StatusReport {
        received: Status::At(700_000_001_000),
        deleted: Status::Asserted,
        reason: Reason::HopLimitExceeded,
        source: Eid::ipn(1, 1),
        creation: CreationTimestamp { time_ms: 700_000_000_000, sequence: 3 },
        fragment: Some((100, 50)),
        ..StatusReport::default()
    };
    let record = AdministrativeRecord::StatusReport(report);
    assert_eq!(record.to_vec().as_deref(), Ok(&bytes[..]));
    assert_eq!(AdministrativeRecord::decode(&bytes, &BOUNDS), Ok(record.clone()));
    assert_eq!(
        record.to_string(),
        "ipn:1.1 700000000000.3 50 B from 100 received at 700000001000 deleted: hop limit exceeded"
    );
    let other = AdministrativeRecord::Other { kind: 4, content: [0x82, 1, 2].into() };
    assert_eq!(other.to_vec().as_deref(), Ok(&[0x82, 4, 0x82, 1, 2][..]));
    assert_eq!(AdministrativeRecord::decode(&[0x82, 4, 0x82, 1, 2], &BOUNDS), Ok(other));
    for code in 0..20 {
        assert_eq!(Reason::from_code(code).code(), code);
    }
}

fn eid() -> impl Strategy<Value = Eid> {
    prop_oneof![
        Just(Eid::None),
        (1..u64::MAX, any::<u64>()).prop_map(|(node, service)| Eid::Ipn { node, service }),
        "//[a-z]{1,9}/[a-z~]{0,9}".prop_map(|part: String| Eid::Dtn(part.into())),
    ]
}

fn crc_type() -> impl Strategy<Value = CrcType> {
    prop_oneof![Just(CrcType::None), Just(CrcType::Crc16), Just(CrcType::Crc32c)]
}

prop_compose! {
    fn any_primary()(
        flags: u64, crc in crc_type(), destination in eid(), source in eid(), report_to in eid(),
        (time_ms, sequence, lifetime_ms) in any::<(u64, u64, u64)>(), fragment in any::<Option<(u64, u64)>>(),
    ) -> Primary {
        let mut flags = BundleFlags(flags).without(BundleFlags::FRAGMENT);
        if source.is_none() || flags.contains(BundleFlags::ADMINISTRATIVE) {
            flags = flags.without(BundleFlags::REPORTS).with(BundleFlags::MUST_NOT_FRAGMENT);
        }
        let fragment = fragment.map(|(a, b)| Fragment { offset: a.min(b), total: a.max(b) });
        if fragment.is_some() {
            flags = flags.with(BundleFlags::FRAGMENT);
        }
        let creation = CreationTimestamp { time_ms, sequence };
        Primary { flags, crc, destination, source, report_to, creation, lifetime_ms, fragment }
    }
}

prop_compose! {
    fn any_blocks()(
        blocks in prop::collection::vec(
            (2..u64::MAX, any::<u64>(), crc_type(), prop::collection::vec(any::<u8>(), 0..60)), 0..6,
        ),
    ) -> Vec<Block> {
        let numbered = blocks.into_iter().enumerate();
        numbered.map(|(i, (kind, flags, crc, data))| {
            Block::new(kind, 2 + i as u64 * 20, BlockFlags(flags), crc, &data).unwrap()
        }).collect()
    }
}

proptest! {
    /// Requirements: B09, B21.
    #[test]
    fn bundles_round_trip(
        primary in any_primary(), blocks in any_blocks(), flags: u64, crc in crc_type(),
        payload in prop::collection::vec(any::<u8>(), 0..400), cut in any::<prop::sample::Index>(),
    ) {
        let len = payload.len() as u64;
        let carried = Payload { flags: BlockFlags(flags), crc, len };
        let head = Head::new(primary, blocks, carried).unwrap();
        let bundle = Bundle { head: head.clone(), payload: &payload };
        let bytes = bundle.to_vec().unwrap();
        prop_assert_eq!(Bundle::decode(&bytes, &BOUNDS), Ok(bundle.clone()));
        // A second bundle behind it is ignored.
        let two = [&bytes[..], &bytes[..]].concat();
        prop_assert_eq!(Bundle::decode_first(&two, &BOUNDS), Ok((bundle, bytes.len())));
        prop_assert_eq!(head.encode(), &bytes[..head.payload_offset()]);
        for end in 0..bytes.len() {
            let read = Head::decode(&bytes[..end], &BOUNDS).unwrap();
            prop_assert_eq!(read.is_some(), end >= head.payload_offset());
            prop_assert!(Bundle::decode(&bytes[..end], &BOUNDS).is_err());
        }
        // The CRC is computed piece by piece, for any division into pieces.
        let mut check = PayloadCrc::new(&head);
        let cut = cut.index(payload.len() + 1);
        check.update(&payload[..cut]);
        check.update(&payload[cut..]);
        let tail = &bytes[head.payload_offset() + payload.len()..];
        for end in 0..tail.len() {
            prop_assert_eq!(check.verify(&tail[..end]), Ok(None));
        }
        prop_assert_eq!(check.verify(tail), Ok(Some(tail.len())));
        prop_assert_eq!(check.tail(), tail);
    }

    #[test]
    fn arbitrary_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        if let Ok(bundle) = Bundle::decode(&bytes, &BOUNDS) {
            prop_assert!(bundle.to_vec().is_ok());
        }
        if let Ok(record) = AdministrativeRecord::decode(&bytes, &BOUNDS) {
            prop_assert_eq!(AdministrativeRecord::decode(&record.to_vec().unwrap(), &BOUNDS), Ok(record));
        }
    }

    #[test]
    fn damaged_bundles_never_panic(
        primary in any_primary(), blocks in any_blocks(), place in any::<prop::sample::Index>(), byte: u8,
    ) {
        let head = Head::new(primary, blocks, Payload { len: 2, ..Payload::default() }).unwrap();
        let mut bytes = Bundle { head, payload: b"hi" }.to_vec().unwrap();
        let place = place.index(bytes.len());
        bytes[place] = byte;
        if let Ok((bundle, len)) = Bundle::decode_first(&bytes, &BOUNDS) {
            prop_assert!(len <= bytes.len());
            prop_assert!(!bundle.head.to_string().is_empty());
            let again = bundle.to_vec().unwrap();
            prop_assert_eq!(Bundle::decode(&again, &BOUNDS).unwrap().to_vec().unwrap(), again);
        }
    }
}
