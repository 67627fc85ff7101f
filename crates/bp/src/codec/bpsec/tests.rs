//! The four examples of RFC 9173 appendix A (`crates/bp/testdata/bpsec`), and round trips.

use proptest::prelude::*;
use testing::hex;

use super::*;
use crate::codec::bp7::{self, Bundle};

const BOUNDS: Bounds = Bounds { targets_max: 64, items_max: 16, eid_max: 1023 };

macro_rules! example {
    ($name:literal) => {
        hex::vector(include_str!(concat!("../../../testdata/bpsec/", $name, ".hex")))
    };
}

/// Returns the security block of a type in an example's bundle, with its decoded data.
fn security(bundle: &Bundle<'_>, kind: u64) -> (BlockHeader, Vec<u8>) {
    let block = bundle.head.block_of(kind).expect("the example has one");
    (block.into(), block.data().to_vec())
}

fn both_ways(bytes: &[u8]) -> SecurityBlock {
    let block = SecurityBlock::decode(bytes, &BOUNDS).unwrap();
    assert_eq!(block.to_vec().as_deref(), Ok(bytes));
    block
}

/// Requirements: C08, D02, D09.
#[test]
fn example_1_integrity() {
    let bytes = example!("a1_bundle");
    let bundle = Bundle::decode(&bytes, &bp7::Bounds::default()).unwrap();
    let (header, data) = security(&bundle, INTEGRITY);
    assert_eq!(data, example!("a1_asb"));
    let block = both_ways(&data);
    assert_eq!(block.source, Eid::ipn(2, 1));
    let parameters = HmacSha2::from_block(&block).unwrap();
    let expected = HmacSha2 { variant: ShaVariant::Sha512, wrapped_key: None, scope: Scope::NONE };
    assert_eq!(parameters, expected);
    assert_eq!(parameters.items(), block.parameters);
    let mac = parameters.mac(&block, 1).unwrap();
    assert_eq!(mac[..4], [0x3b, 0xdc, 0x69, 0xb3]);
    assert_eq!(block.results(1), Some(&[HmacSha2::result(mac)][..]));
    let payload = BlockHeader::of_payload(&bundle.head.payload());
    let target = Target::Block { header: payload, len: bundle.payload.len() as u64 };
    let mut input = integrity_input(parameters.scope, bundle.head.primary_bytes(), target, header);
    input.extend_from_slice(bundle.payload);
    assert_eq!(input, example!("a1_ippt"));
}

/// Requirements: C08, D05, D09.
#[test]
fn example_2_confidentiality() {
    let bytes = example!("a2_bundle");
    let bundle = Bundle::decode(&bytes, &bp7::Bounds::default()).unwrap();
    let (header, data) = security(&bundle, CONFIDENTIALITY);
    assert_eq!(data, example!("a2_asb"));
    let block = both_ways(&data);
    let parameters = AesGcm::from_block(&block).unwrap();
    assert_eq!(*parameters.iv, *b"Twelve121212");
    assert_eq!((parameters.variant, parameters.scope), (AesVariant::Aes128, Scope::NONE));
    assert_eq!(parameters.wrapped_key.as_deref().map(<[u8]>::len), Some(24));
    assert_eq!(parameters.items().as_ref(), Ok(&block.parameters));
    let tag = AesGcm::tag(&block, 1).unwrap().unwrap();
    assert_eq!(tag[..4], [0xef, 0xa4, 0xb5, 0xac]);
    assert_eq!(block.results(1), Some(&[AesGcm::result(tag)][..]));
    let payload = BlockHeader::of_payload(&bundle.head.payload());
    let primary = bundle.head.primary_bytes();
    assert_eq!(additional_data(parameters.scope, primary, payload, header), example!("a2_aad"));
}

/// Requirements: C01, D02, D09.
#[test]
fn example_3_two_sources() {
    let bytes = example!("a3_bundle");
    let bundle = Bundle::decode(&bytes, &bp7::Bounds::default()).unwrap();
    let (header, data) = security(&bundle, INTEGRITY);
    assert_eq!(data, example!("a3_bib_asb"));
    let block = both_ways(&data);
    assert_eq!(block.source, Eid::ipn(3, 0));
    let parameters = HmacSha2::from_block(&block).unwrap();
    assert_eq!(parameters.variant, ShaVariant::Sha256);
    assert_eq!(parameters.mac(&block, 0).unwrap()[..2], [0xca, 0xc6]);
    assert_eq!(parameters.mac(&block, 2).unwrap()[..2], [0x3e, 0xd6]);
    assert!(parameters.mac(&block, 1).is_err());
    let primary = bundle.head.primary_bytes();
    let input = integrity_input(parameters.scope, primary, Target::Primary, header);
    assert_eq!(input, example!("a3_ippt_primary"));
    let age = bundle.head.block_of(bp7::BUNDLE_AGE).unwrap();
    let target = Target::Block { header: age.into(), len: age.data().len() as u64 };
    let mut input = integrity_input(parameters.scope, primary, target, header);
    input.extend_from_slice(age.data());
    assert_eq!(input, example!("a3_ippt_age"));
    let (_, data) = security(&bundle, CONFIDENTIALITY);
    assert_eq!(data, example!("a3_bcb_asb"));
    assert_eq!(AesGcm::from_block(&both_ways(&data)).unwrap().wrapped_key, None);
    // Without its security blocks it is the previous bundle, except for the encrypted payload.
    let before = example!("a3_original");
    let before = Bundle::decode(&before, &bp7::Bounds::default()).unwrap();
    let mut head = bundle.head.clone();
    assert!(head.remove_block(3) && head.remove_block(4));
    assert_eq!(Bundle { head, payload: before.payload }.to_vec(), before.to_vec());
}

/// Requirements: D01, D02, D05, D09.
#[test]
fn example_4_full_scope() {
    let bytes = example!("a4_bundle");
    let bundle = Bundle::decode(&bytes, &bp7::Bounds::default()).unwrap();
    let primary = bundle.head.primary_bytes();
    let (integrity, encrypted) = security(&bundle, INTEGRITY);
    assert!(SecurityBlock::decode(&encrypted, &BOUNDS).is_err(), "it is encrypted");
    let block = both_ways(&example!("a4_bib_asb"));
    let parameters = HmacSha2::from_block(&block).unwrap();
    assert_eq!(parameters, HmacSha2::default());
    let payload = BlockHeader::of_payload(&bundle.head.payload());
    let target = Target::Block { header: payload, len: 35 };
    let mut input = integrity_input(parameters.scope, primary, target, integrity);
    input.extend_from_slice(b"Ready to generate a 32-byte payload");
    assert_eq!(input, example!("a4_ippt"));
    let (header, data) = security(&bundle, CONFIDENTIALITY);
    assert_eq!(data, example!("a4_bcb_asb"));
    let block = both_ways(&data);
    let parameters = AesGcm::from_block(&block).unwrap();
    assert_eq!((parameters.variant, parameters.scope), (AesVariant::Aes256, Scope::ALL));
    let additional = |target| additional_data(parameters.scope, primary, target, header);
    assert_eq!(additional(payload), example!("a4_aad_payload"));
    assert_eq!(additional(integrity), example!("a4_aad_bib"));
    assert_eq!(AesGcm::tag(&block, 3).unwrap().unwrap()[..2], [0x22, 0x0f]);
}

#[test]
fn keys_have_the_lengths_of_their_variants() {
    assert_eq!(example!("key_a128gcm").len(), AesVariant::Aes128.key_len());
    assert_eq!(example!("key_a256gcm").len(), AesVariant::Aes256.key_len());
    assert_eq!((example!("key_wrapping").len(), example!("key_hmac").len()), (16, 16));
}

/// Requirements: D02.
#[test]
fn scopes_omit_absent_headers_of_the_primary_block() {
    let security = BlockHeader { kind: 11, number: 3, flags: bp7::BlockFlags(0) };
    let input = integrity_input(Scope::ALL, &[0xaa, 0xbb], Target::Primary, security);
    assert_eq!(input, [7, 11, 3, 0, 0x42, 0xaa, 0xbb]);
    for flags in 0..8 {
        assert_eq!(Scope::from_flags(flags).flags(), flags);
        // Reserved ones are hashed as they were sent (RFC 9173 §3.7).
        let reserved = Scope::from_flags(flags | 0xfff8);
        assert_eq!(reserved.flags(), flags | 0xfff8);
        let input = integrity_input(reserved, &[0xaa], Target::Primary, security);
        assert_eq!(input[..3], [0x19, 0xff, 0xf8 | flags as u8]);
    }
}

/// Requirements: C01, C02, D01.
#[test]
fn errors_are_reported_with_their_offset() {
    for (text, offset) in [
        ("80 01 00 8202820201 80", 0),
        ("82 01 01 01 00 8202820201 828080", 2),
        ("81 01 01 00 8202820201 80", 9),
        ("81 01 01 00 8202820201 828080", 9),
        ("81 01 01 00 8202820201 8180 00", 11),
        ("81 01 01 01 8202820201 81 8101 8180", 10),
    ] {
        let error = SecurityBlock::decode(&hex::vector(text), &BOUNDS).unwrap_err();
        assert_eq!(error.offset, offset, "{text}: {error}");
    }
    let many = hex::vector("83 01 02 03 01 00 8202820201 83808080");
    assert!(SecurityBlock::decode(&many, &BOUNDS).is_ok());
    assert!(SecurityBlock::decode(&many, &Bounds { targets_max: 2, ..BOUNDS }).is_err());
    let many = hex::vector("81 01 01 01 8202820201 83820100820200820300 8180");
    assert!(SecurityBlock::decode(&many, &BOUNDS).is_ok());
    assert!(SecurityBlock::decode(&many, &Bounds { items_max: 2, ..BOUNDS }).is_err());
    let none = SecurityBlock {
        targets: Vec::new(),
        context: 1,
        source: Eid::None,
        parameters: Vec::new(),
    };
    assert!(none.to_vec().is_err());
    // Reserved flags of the context are ignored, and written as 0 (RFC 9172 §3.6).
    let reserved =
        SecurityBlock::decode(&hex::vector("81 01 01 18fe 8202820201 8180"), &BOUNDS).unwrap();
    assert_eq!(reserved.parameters, []);
    assert_eq!(reserved.to_vec().unwrap(), hex::vector("81 01 01 00 8202820201 8180"));
    // A private context, without parameters.
    let private = both_ways(&hex::vector("81 01 38 63 00 8202820201 8180"));
    assert_eq!(private.context, -100);
    assert!(HmacSha2::from_block(&private).is_err() && AesGcm::from_block(&private).is_err());
    for parameters in ["81820108", "82820105820106", "81820900", "8182024100", "8182010a"] {
        let text = format!("81 01 01 01 8202820201 {parameters} 8180");
        let block = SecurityBlock::decode(&hex::vector(&text), &BOUNDS).unwrap();
        let read = HmacSha2::from_block(&block);
        assert_eq!(read.is_err(), parameters != "8182024100", "{parameters}");
    }
    for parameters in
        ["8182014700000000000000", "81820201", "8282014c000000000000000000000000820202"]
    {
        let text = format!("81 01 02 01 8202820201 {parameters} 8180");
        let block = SecurityBlock::decode(&hex::vector(&text), &BOUNDS).unwrap();
        assert!(AesGcm::from_block(&block).is_err(), "{parameters}");
    }
}

fn items() -> impl Strategy<Value = Vec<Item>> {
    let item =
        (any::<u64>(), any::<u64>(), prop::collection::vec(any::<u8>(), 0..20), any::<bool>());
    let item = item.prop_map(
        |(id, value, bytes, number)| {
            if number { Item::uint(id, value) } else { Item::bytes(id, &bytes) }
        },
    );
    prop::collection::vec(item, 0..4)
}

proptest! {
    #[test]
    fn blocks_round_trip(
        targets in prop::collection::btree_map(any::<u64>(), items(), 1..6), context: i64, parameters in items(),
        node in 1..u64::MAX,
    ) {
        let targets = targets.into_iter().map(|(target, results)| TargetResults { target, results });
        let source = Eid::Ipn { node, service: 0 };
        let block = SecurityBlock { targets: targets.collect(), context, source, parameters };
        let bytes = block.to_vec().unwrap();
        prop_assert_eq!(SecurityBlock::decode(&bytes, &BOUNDS), Ok(block));
        for end in 0..bytes.len() {
            prop_assert!(SecurityBlock::decode(&bytes[..end], &BOUNDS).is_err());
        }
    }

    #[test]
    fn arbitrary_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..100)) {
        if let Ok(block) = SecurityBlock::decode(&bytes, &BOUNDS) {
            prop_assert_eq!(SecurityBlock::decode(&block.to_vec().unwrap(), &BOUNDS), Ok(block));
        }
    }
}
