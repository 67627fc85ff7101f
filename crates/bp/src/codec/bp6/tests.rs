//! Golden bundles of `crates/bp/testdata/bp6`, and round trips.

use proptest::prelude::*;
use testing::hex;

use super::*;

const BOUNDS: Bounds = Bounds {
    head_max: 64 << 10,
    blocks_max: 64,
    references_max: 16,
    eid_max: 1023,
    fills_max: 100,
};

fn primary() -> Primary {
    Primary {
        flags: BundleFlags::SINGLETON.with_priority(Priority::Normal),
        destination: Eid::ipn(2, 1),
        source: Eid::ipn(1, 1),
        creation: CreationTimestamp { time_s: 400_000_000, sequence: 1 },
        lifetime_s: 3600,
        ..Primary::default()
    }
}

fn payload(len: u64) -> Payload {
    Payload { flags: BlockFlags::LAST, len, ..Payload::default() }
}

/// Requirements: E01a, F01b.
#[test]
fn a_bundle_of_numbers() {
    let bytes = hex::vector(include_str!("../../../testdata/bp6/cbhe.hex"));
    let bundle = Bundle::decode(&bytes, &BOUNDS).unwrap();
    assert_eq!(*bundle.head.primary(), primary());
    assert_eq!(bundle.payload, b"hello");
    let head = Head::new(primary(), Vec::new(), payload(5)).unwrap();
    assert_eq!(bundle.head, head);
    assert_eq!(bundle.to_vec().as_deref(), Ok(&bytes[..]));
    assert_eq!(head.to_string(), "ipn:1.1 to ipn:2.1 400000000.1 for 3600 s, 5 B");
}

/// Requirements: E02.
#[test]
fn a_bundle_with_a_dictionary() {
    let bytes = hex::vector(include_str!("../../../testdata/bp6/dictionary.hex"));
    let bundle = Bundle::decode(&bytes, &BOUNDS).unwrap();
    let written = Primary {
        source: "dtn://a/x".parse().unwrap(),
        destination: "dtn://b/y".parse().unwrap(),
        dictionary: Some(b"dtn\0//a/x\0//b/y\0none\0".as_slice().into()),
        ..primary()
    };
    assert_eq!(*bundle.head.primary(), written);
    assert_eq!(bundle.to_vec().as_deref(), Ok(&bytes[..]));
    let head = Head::new(written, Vec::new(), payload(5)).unwrap();
    assert_eq!(head.encode(), bundle.head.encode(), "the same places are found again");
    // A new dictionary, in the order in which endpoints occur.
    let fresh = Primary { dictionary: Some(Box::default()), ..bundle.head.primary().clone() };
    let head = Head::new(fresh, Vec::new(), payload(5)).unwrap();
    let dictionary = head.primary().dictionary.as_deref();
    assert_eq!(dictionary, Some(&b"dtn\0//b/y\0//a/x\0none\0"[..]));
    assert_eq!(Head::decode(&head.encode(), &BOUNDS), Ok(Some(head)));
}

#[test]
fn custody_transfers_between_nodes() {
    let bytes = hex::vector(include_str!("../../../testdata/bp6/dictionary.hex"));
    let mut head = Head::decode(&bytes, &BOUNDS).unwrap().unwrap();
    let before = head.primary().dictionary.clone().unwrap();
    let block =
        Block::new(200, BlockFlags::REPLICATE, vec![Reference { scheme: 0, part: 4 }], b"?");
    head.set_blocks(vec![block.unwrap()]);
    let custodian: Eid = "dtn://c/".parse().unwrap();
    let primary = Primary { custodian: custodian.clone(), ..head.primary().clone() };
    head.set_primary(primary).unwrap();
    let read = Head::decode(&head.encode(), &BOUNDS).unwrap().unwrap();
    assert_eq!(read, head);
    assert_eq!(read.primary().custodian, custodian);
    assert!(read.primary().dictionary.as_deref().unwrap().starts_with(&before));
    // Old references stay valid.
    let source = read.primary().resolve(read.blocks()[0].references()[0]);
    assert_eq!(source, Ok(head.primary().source.clone()));
    let other = Primary { dictionary: None, ..read.primary().clone() };
    assert!(head.set_primary(other).is_err());
}

/// Requirements: E02, G01.
#[test]
fn blocks_on_both_sides_of_the_payload() {
    let node: Eid = "ipn:7.0".parse().unwrap();
    let hop = Block::previous_hop(&node).unwrap();
    assert_eq!(hop.bytes(), b"\x05\x10\x08ipn\x007.0\x00");
    assert_eq!(hop.to_previous_hop(&primary()), Ok(node.clone()));
    let number = Reference { scheme: 7, part: 0 };
    let by_number = Block::new(PREVIOUS_HOP, BlockFlags::default(), vec![number], b"").unwrap();
    assert_eq!(by_number.to_previous_hop(&primary()), Ok(node.clone()));
    let custody = CustodyEnhancement { id: 300, custodian: node };
    let block = custody.to_block(BlockFlags::DISCARD).unwrap();
    assert_eq!(block.data(), b"\x82\x2cipn:7.0");
    assert_eq!(CustodyEnhancement::from_block(&block), Ok(custody));
    let head = Head::new(primary(), vec![hop], Payload { len: 2, ..Payload::default() }).unwrap();
    let trailer = Trailer::new(vec![by_number.clone(), block]);
    let bundle = Bundle { head, payload: b"hi", trailer };
    let bytes = bundle.to_vec().unwrap();
    let read = Bundle::decode(&bytes, &BOUNDS).unwrap();
    assert_eq!(read, bundle);
    let last = |block: &Block| block.flags().contains(BlockFlags::LAST);
    assert_eq!(read.trailer.blocks().iter().map(last).collect::<Vec<_>>(), [false, true]);
    // The last-block flag is cleared where a block follows, and set otherwise.
    let mut blocks = read.trailer.blocks().to_vec();
    blocks.reverse();
    let turned = Trailer::new(blocks);
    assert_eq!(turned.blocks().iter().map(last).collect::<Vec<_>>(), [false, true]);
    assert!(by_number.forwarded().flags().contains(BlockFlags::FORWARDED));
    // The head's payload is the last block, but a trailer follows.
    let head = Head::new(primary(), Vec::new(), payload(2)).unwrap();
    assert!(Bundle { head, payload: b"hi", trailer: turned }.to_vec().is_err());
}

/// Requirements: E01a, E02.
#[test]
fn errors_are_reported_with_their_offset() {
    let head = "06 8110 11 02010101 00000000 81bede8800 01 9c10 00";
    for (text, offset) in [
        ("07", 0),
        // The block's length is too short, then too long.
        ("06 8110 10 02010101 00000000 81bede8800 01 9c10 00", 20),
        ("06 8110 12 02010101 00000000 81bede8800 01 9c10 00 01", 21),
        // An endpoint that is not in the dictionary.
        ("06 8110 15 09010101 00000000 81bede8800 01 9c10 04 64746e00", 4),
        (&format!("{head} 05 08 00"), 21),
        (&format!("{head} 05 40 11"), 23),
        (&format!("{head} 01 08 05 68656c6c6f 00"), 29),
        (&format!("{head} 01 00 05 68656c6c6f 01 08 00"), 29),
        (&format!("{head} 01 08 05 68656c6c"), 24),
    ] {
        let error = Bundle::decode(&hex::vector(text), &BOUNDS).unwrap_err();
        assert_eq!(error.offset, offset, "{text}: {error}");
    }
    // A block of 2^60 bytes is refused as soon as its length is read; a payload of that length is
    // not.
    let bomb = format!("{head} 05 00 9080808080808080 00");
    assert!(Head::decode(&hex::vector(&bomb), &BOUNDS).is_err());
    let huge = format!("{head} 01 08 9080808080808080 00");
    assert!(Head::decode(&hex::vector(&huge), &BOUNDS).unwrap().is_some());
    assert!(Head::decode(&hex::vector("06 8110 9080808080808080 00"), &BOUNDS).is_err());
    let many = format!("{head} {} 01 08 00", "05 00 00".repeat(10));
    assert!(Head::decode(&hex::vector(&many), &Bounds { blocks_max: 10, ..BOUNDS }).is_ok());
    assert!(Head::decode(&hex::vector(&many), &Bounds { blocks_max: 9, ..BOUNDS }).is_err());
    assert!(Head::decode(&hex::vector(&many), &Bounds { head_max: 53, ..BOUNDS }).is_err());
}

/// Requirements: E01b.
#[test]
fn contradictory_flags_are_refused() {
    let anonymous = Primary { source: Eid::None, ..primary() };
    let requests = primary().flags.with(BundleFlags::CUSTODY);
    for wrong in [
        anonymous.clone(),
        Primary { flags: requests.with(BundleFlags::MUST_NOT_FRAGMENT), ..anonymous },
        Primary { flags: requests.with(BundleFlags::ADMINISTRATIVE), ..primary() },
        Primary { fragment: Some(Fragment { offset: 6, total: 5 }), ..primary() },
    ] {
        assert!(wrong.conflict().is_some() && wrong.to_vec().is_err());
    }
    let dtn = Primary { report_to: "dtn://a/".parse().unwrap(), ..primary() };
    assert!(dtn.to_vec().is_err(), "no number");
    for priority in [Priority::Bulk, Priority::Normal, Priority::Expedited, Priority::Reserved] {
        assert_eq!(BundleFlags(!0).with_priority(priority).priority(), priority);
    }
}

/// Requirements: E11, G02.
#[test]
fn records() {
    // Laid out by hand from RFC 5050 §6.1.
    let creation = CreationTimestamp { time_s: 400_000_000, sequence: 1 };
    let subject = Subject { source: Eid::ipn(1, 1), creation, fragment: None };
    let time = DtnTime { seconds: 400_000_001, nanoseconds: 500 };
    let report = AdministrativeRecord::StatusReport(StatusReport {
        subject: Subject { fragment: Some((100, 50)), ..subject.clone() },
        received: Some(time),
        custody: None,
        forwarded: None,
        delivered: None,
        deleted: Some(time),
        reason: Reason::NoRoute,
    });
    let signal = AdministrativeRecord::CustodySignal(CustodySignal {
        subject,
        succeeded: true,
        reason: CustodyReason::NoInformation,
        time,
    });
    let fills = vec![Fill { start: 300, length: 2 }, Fill { start: 5, length: 1 }];
    let aggregate = AdministrativeRecord::AggregateCustodySignal(AggregateCustodySignal {
        succeeded: false,
        reason: CustodyReason::RedundantReception,
        fills,
    });
    let other = AdministrativeRecord::Other { first: 0x70, content: b"abc".as_slice().into() };
    for (record, text, line) in [
        (
            report,
            "11 11 06 64 32 81bede8801 8374 81bede8801 8374 81bede8800 01 07 69706e3a312e31",
            "ipn:1.1 400000000.1 50 B from 100 received at 400000001.000000500 deleted at \
             400000001.000000500: no known route to the destination",
        ),
        (
            signal,
            "20 80 81bede8801 8374 81bede8800 01 07 69706e3a312e31",
            "ipn:1.1 400000000.1 custody taken at 400000001.000000500: no additional information",
        ),
        (
            aggregate,
            "40 03 822c 02 05 01",
            "custody not taken of bundles in 2 runs: redundant reception",
        ),
        (other, "70 616263", "record of type 7, 3 B"),
    ] {
        let bytes = hex::vector(text);
        assert_eq!(record.to_vec().as_deref(), Ok(&bytes[..]), "{record}");
        assert_eq!(AdministrativeRecord::decode(&bytes, &BOUNDS), Ok(record.clone()));
        assert_eq!(record.to_string(), line);
    }
    let many = [&[0x40, 0x80][..], &[1, 1].repeat(101)].concat();
    assert!(AdministrativeRecord::decode(&many, &BOUNDS).is_err());
    assert!(AdministrativeRecord::decode(&many[..202], &BOUNDS).is_ok());
    assert!(AdministrativeRecord::decode(&many[..201], &BOUNDS).is_err());
}

fn eid(numbers: bool) -> BoxedStrategy<Eid> {
    let number = (1..u64::MAX, any::<u64>()).prop_map(|(node, service)| Eid::Ipn { node, service });
    if numbers {
        return prop_oneof![Just(Eid::None), number].boxed();
    }
    let text = "(dtn://[a-z]{1,4}/[a-z]{0,4}|x[a-z]{1,3}:[a-z]{1,4})";
    prop_oneof![Just(Eid::None), number, text.prop_map(|text| text.parse().unwrap())].boxed()
}

fn any_primary() -> impl Strategy<Value = Primary> {
    any::<bool>().prop_flat_map(|numbers| {
        let eids = (eid(numbers), eid(numbers), eid(numbers), eid(numbers));
        let fragment = any::<Option<(u64, u64)>>();
        (any::<u64>(), eids, any::<(u64, u64, u64)>(), fragment).prop_map(
            move |(flags, eids, (time_s, sequence, lifetime_s), fragment)| {
                let (destination, source, report_to, custodian) = eids;
                let mut flags = BundleFlags(flags).without(BundleFlags::FRAGMENT);
                if source.is_none() || flags.contains(BundleFlags::ADMINISTRATIVE) {
                    let requests = BundleFlags::REPORTS_AND_CUSTODY;
                    flags = flags.without(requests).with(BundleFlags::MUST_NOT_FRAGMENT);
                }
                let fragment =
                    fragment.map(|(a, b)| Fragment { offset: a.min(b), total: a.max(b) });
                if fragment.is_some() {
                    flags = flags.with(BundleFlags::FRAGMENT);
                }
                let dictionary = (!numbers).then(Box::default);
                let creation = CreationTimestamp { time_s, sequence };
                Primary {
                    flags,
                    destination,
                    source,
                    report_to,
                    custodian,
                    creation,
                    lifetime_s,
                    dictionary,
                    fragment,
                }
            },
        )
    })
}

fn any_blocks() -> impl Strategy<Value = Vec<Block>> {
    let references = prop::collection::vec(any::<(u64, u64)>(), 0..3);
    let data = prop::collection::vec(any::<u8>(), 0..40);
    let block = (2..=u8::MAX, any::<u64>(), references, data).prop_map(
        |(kind, flags, references, data)| {
            let references =
                references.into_iter().map(|(scheme, part)| Reference { scheme, part }).collect();
            Block::new(kind, BlockFlags(flags), references, &data).unwrap()
        },
    );
    prop::collection::vec(block, 0..4)
}

proptest! {
    #[test]
    fn bundles_round_trip(
        primary in any_primary(), before in any_blocks(), behind in any_blocks(), flags: u64,
        payload in prop::collection::vec(any::<u8>(), 0..200),
    ) {
        let flags = BlockFlags(flags).without(BlockFlags::LAST);
        let flags = if behind.is_empty() { flags.with(BlockFlags::LAST) } else { flags };
        let carried = Payload { flags, references: Vec::new(), len: payload.len() as u64 };
        let head = Head::new(primary, before, carried).unwrap();
        let bundle = Bundle { head, payload: &payload, trailer: Trailer::new(behind) };
        let bytes = bundle.to_vec().unwrap();
        prop_assert_eq!(Bundle::decode(&bytes, &BOUNDS), Ok(bundle.clone()));
        let two = [&bytes[..], &bytes[..]].concat();
        prop_assert_eq!(Bundle::decode_first(&two, &BOUNDS), Ok((bundle.clone(), bytes.len())));
        for end in 0..bytes.len() {
            let read = Head::decode(&bytes[..end], &BOUNDS).unwrap();
            prop_assert_eq!(read.is_some(), end >= bundle.head.encoded_len());
            prop_assert!(Bundle::decode(&bytes[..end], &BOUNDS).is_err());
        }
    }

    #[test]
    fn damaged_bundles_never_panic(
        primary in any_primary(), blocks in any_blocks(), place in any::<prop::sample::Index>(), byte: u8,
    ) {
        let head = Head::new(primary, blocks, payload(2)).unwrap();
        let mut bytes = head.encode();
        bytes.extend(b"hi");
        let place = place.index(bytes.len());
        bytes[place] = byte;
        if let Ok((bundle, len)) = Bundle::decode_first(&bytes, &BOUNDS) {
            prop_assert!(!bundle.head.to_string().is_empty());
            prop_assert_eq!(bundle.to_vec().unwrap(), &bytes[..len]);
            for block in bundle.head.blocks() {
                let _ = (block.to_previous_hop(bundle.head.primary()), CustodyEnhancement::from_block(block));
            }
        }
    }

    #[test]
    fn arbitrary_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..100)) {
        let _ = Bundle::decode(&[&[6], &bytes[..]].concat(), &BOUNDS);
        if let Ok(record) = AdministrativeRecord::decode(&bytes, &BOUNDS) {
            prop_assert!(!record.to_string().is_empty());
            prop_assert_eq!(AdministrativeRecord::decode(&record.to_vec().unwrap(), &BOUNDS), Ok(record));
        }
    }
}
