//! Examples of RFC 9173 appendix A, in both directions, and policies applied to bundles.

use engine::Rng;

use super::super::agent::{Pattern, Reports, RequestError, SendRequest};
use super::super::security::{
    Added, Fault, Key, OnFault, Opened, Operation, Policy, Role, Rule, Vectors,
};
use super::agent::{payload, send, taken};
use super::world::{World, chains, endpoint, node};
use crate::codec::bp7::{
    BUNDLE_AGE, BlockFlags, Bounds, Bundle, BundleFlags, Eid, PAYLOAD, PAYLOAD_NUMBER, Reason,
};
use crate::codec::bpsec::{
    self, AesGcm, AesVariant, CONFIDENTIALITY, HmacSha2, INTEGRITY, Scope, SecurityBlock,
    ShaVariant,
};

/// Bytes of an example.
macro_rules! vector {
    ($name:literal) => {
        from_hex(include_str!(concat!("../../testdata/bpsec/", $name, ".hex")))
    };
}

fn from_hex(text: &str) -> Vec<u8> {
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    let digits: String = lines.collect::<String>().split_whitespace().collect();
    let pair = |at: usize| u8::from_str_radix(&digits[at..at + 2], 16).unwrap();
    (0..digits.len()).step_by(2).map(pair).collect()
}

fn opened(bytes: &[u8]) -> Opened {
    let bundle = Bundle::decode(bytes, &Bounds::default()).unwrap();
    Opened { head: bundle.head, payload: bundle.payload.to_vec() }
}

fn bytes(opened: &Opened) -> Vec<u8> {
    let bundle = Bundle { head: opened.head.clone(), payload: &opened.payload };
    bundle.to_vec().unwrap()
}

fn content(opened: &Opened, kind: u64) -> (u64, SecurityBlock) {
    let block = opened.head.block_of(kind).unwrap();
    let content = SecurityBlock::decode(block.data(), &bpsec::Bounds::default()).unwrap();
    (block.number(), content)
}

fn added<'a>(number: u64, flags: BlockFlags, targets: &'a [u64], source: &'a Eid) -> Added<'a> {
    Added { number, flags, targets, source }
}

/// Whether a node on the path changes a bundle.
fn receive(policy: &Policy, opened: &mut Opened) -> Result<bool, Fault> {
    let before = opened.clone();
    policy.check(opened, false).map_err(|violation| violation.fault)?;
    Ok(*opened != before)
}

/// Whether a node adds operations to a bundle.
fn protect(
    policy: &Policy,
    opened: &mut Opened,
    node: &Eid,
    vectors: &mut Vectors,
) -> Result<bool, Fault> {
    let before = opened.clone();
    policy.protect(opened, node, vectors)?;
    Ok(*opened != before)
}

/// Requirements: C08, D09.
#[test]
fn example_1_a_payload_is_signed() {
    let expected = vector!("a1_bundle");
    let mut made = opened(&vector!("a1_original"));
    let parameters =
        HmacSha2 { variant: ShaVariant::Sha512, wrapped_key: None, scope: Scope::NONE };
    let (source, key) = (Eid::ipn(2, 1), vector!("key_hmac"));
    made.add_integrity(&added(2, BlockFlags(0), &[1], &source), &parameters, &key).unwrap();
    assert_eq!(bytes(&made), expected);
    let (number, content) = content(&made, INTEGRITY);
    assert_eq!(made.check_integrity(number, &content, 1, &Key::new(&key)), Ok(()));
    assert_eq!(
        made.check_integrity(number, &content, 1, &Key::new(b"another")),
        Err(Fault::Failed)
    );
}

/// Requirements: D02.
#[test]
fn reserved_scope_flags_are_hashed_as_they_were_sent() {
    for flags in [8, 0xffff, 7] {
        let mut made = opened(&vector!("a1_original"));
        let scope = Scope::from_flags(flags);
        let parameters = HmacSha2 { variant: ShaVariant::Sha512, wrapped_key: None, scope };
        let (source, key) = (Eid::ipn(2, 1), vector!("key_hmac"));
        made.add_integrity(&added(2, BlockFlags(0), &[1], &source), &parameters, &key).unwrap();
        let made = opened(&bytes(&made));
        let (number, content) = content(&made, INTEGRITY);
        assert_eq!(HmacSha2::from_block(&content).unwrap().scope.flags(), flags);
        assert_eq!(made.check_integrity(number, &content, 1, &Key::new(&key)), Ok(()));
    }
}

/// Requirements: C05, C08, D03b, D06, D08, D09.
#[test]
fn example_2_a_payload_is_encrypted_with_a_wrapped_key() {
    let expected = vector!("a2_bundle");
    let mut read = opened(&expected);
    let (number, block) = content(&read, CONFIDENTIALITY);
    let wrapping = Key::wrapping(&vector!("key_wrapping"));
    read.decrypt(number, &block, PAYLOAD_NUMBER, &wrapping).unwrap();
    assert_eq!(read.payload, b"Ready to generate a 32-byte payload");
    let mut made = opened(&vector!("a1_original"));
    let parameters = AesGcm::from_block(&block).unwrap();
    let source = Eid::ipn(2, 1);
    let added = added(2, BlockFlags::REPLICATE, &[1], &source);
    made.add_confidentiality(&added, &parameters, &vector!("key_a128gcm")).unwrap();
    assert_eq!(bytes(&made), expected);
    // The block carries the wrapped key of the example.
    let other = Key::wrapping(&[7; 16]);
    let mut read = opened(&expected);
    let failed = read.decrypt(number, &block, PAYLOAD_NUMBER, &other);
    assert_eq!((failed, bytes(&read)), (Err(Fault::Unknown), expected));
}

/// Requirements: C01, D09.
#[test]
fn example_3_two_nodes_protect_a_bundle() {
    let expected = vector!("a3_bundle");
    let mut made = opened(&vector!("a3_original"));
    let age = made.numbers_of(BUNDLE_AGE)[0];
    let parameters =
        HmacSha2 { variant: ShaVariant::Sha256, wrapped_key: None, scope: Scope::NONE };
    let (by, key) = (Eid::ipn(3, 0), vector!("key_hmac"));
    made.add_integrity(&added(3, BlockFlags(0), &[0, age], &by), &parameters, &key).unwrap();
    let (_, block) = content(&opened(&expected), CONFIDENTIALITY);
    let gcm = AesGcm::from_block(&block).unwrap();
    let source = block.source.clone();
    let key_gcm = vector!("key_a128gcm");
    made.add_confidentiality(&added(4, BlockFlags::REPLICATE, &[1], &source), &gcm, &key_gcm)
        .unwrap();
    // The order of blocks is the example's; the rest is equal byte for byte.
    let order: Vec<u64> = opened(&expected).head.blocks().iter().map(|b| b.number()).collect();
    let mut blocks = Vec::new();
    for number in order {
        let of = made.head.blocks().iter().find(|block| block.number() == number);
        blocks.push(of.unwrap().clone());
    }
    made.head.set_blocks(blocks).unwrap();
    assert_eq!(bytes(&made), expected);
    let (number, signed) = content(&made, INTEGRITY);
    for target in [0, age] {
        assert_eq!(made.check_integrity(number, &signed, target, &Key::new(&key)), Ok(()));
    }
    made.decrypt(4, &block, PAYLOAD_NUMBER, &Key::new(&key_gcm)).unwrap();
    assert_eq!(made.payload, opened(&vector!("a3_original")).payload);
}

/// Requirements: C04, C06, C09, D01, D05, D09.
#[test]
fn example_4_a_signature_is_encrypted_with_what_it_signs() {
    let expected = vector!("a4_bundle");
    let mut read = opened(&expected);
    let (number, block) = content(&read, CONFIDENTIALITY);
    let (key, key_hmac) = (vector!("key_a256gcm"), vector!("key_hmac"));
    for target in [3, 1] {
        read.decrypt(number, &block, target, &Key::new(&key)).unwrap();
    }
    assert_eq!(read.payload, b"Ready to generate a 32-byte payload");
    let (signature, signed) = content(&read, INTEGRITY);
    assert_eq!(read.check_integrity(signature, &signed, 1, &Key::new(&key_hmac)), Ok(()));
    // The reverse direction.
    let mut made = opened(&vector!("a1_original"));
    let source = signed.source.clone();
    made.add_integrity(&added(3, BlockFlags(0), &[1], &source), &HmacSha2::default(), &key_hmac)
        .unwrap();
    let parameters = AesGcm::from_block(&block).unwrap();
    let targets: Vec<u64> = block.targets.iter().map(|of| of.target).collect();
    let flags = BlockFlags::REPLICATE;
    made.add_confidentiality(&added(2, flags, &targets, &source), &parameters, &key).unwrap();
    let order: Vec<u64> = opened(&expected).head.blocks().iter().map(|b| b.number()).collect();
    let mut blocks = made.head.blocks().to_vec();
    blocks.sort_by_key(|block| order.iter().position(|number| *number == block.number()));
    made.head.set_blocks(blocks).unwrap();
    assert_eq!(bytes(&made), expected);
}

pub(super) fn rule(role: Role, operation: Operation, targets: &[u64]) -> Rule {
    let key = match operation {
        Operation::Integrity(_) => "sign",
        Operation::Confidentiality(_) => "hide",
    };
    Rule {
        role,
        operation,
        source: Pattern::Any,
        destination: Pattern::Any,
        targets: targets.to_vec(),
        key: key.to_owned(),
        scope: Scope::ALL,
        on_fault: OnFault::Delete,
    }
}

const SIGN: Operation = Operation::Integrity(ShaVariant::Sha384);
const HIDE: Operation = Operation::Confidentiality(AesVariant::Aes256);

fn policy(rules: Vec<Rule>, wraps: bool) -> Policy {
    let key = |bytes: &[u8]| if wraps { Key::wrapping(bytes) } else { Key::new(bytes) };
    let keys = [("sign", key(&[1; 32])), ("hide", key(&[2; 32]))];
    let keys = keys.map(|(name, key)| (name.to_owned(), key)).into();
    Policy { rules, keys, ..Policy::default() }
}

fn both(role: Role) -> Vec<Rule> {
    vec![rule(role, SIGN, &[0, PAYLOAD]), rule(role, HIDE, &[PAYLOAD])]
}

#[test]
fn signatures_hold_in_any_order_of_rules_and_targets() {
    let text = include_str!("../../testdata/bp7/checks.hex");
    let original = opened(&from_hex(text));
    let one = |targets: &[u64]| vec![rule(Role::Source, SIGN, targets)];
    let orders = [one(&[0, PAYLOAD]), one(&[PAYLOAD, 0]), [one(&[PAYLOAD]), one(&[0])].concat()];
    for rules in orders {
        let mut made = original.clone();
        let mut vectors = Vectors::new(&mut Rng::new(1, "vectors"));
        let accept = policy(vec![rule(Role::Acceptor, SIGN, &[0, PAYLOAD])], false);
        assert_eq!(
            protect(&policy(rules, false), &mut made, &Eid::ipn(1, 0), &mut vectors),
            Ok(true)
        );
        assert_eq!(receive(&accept, &mut opened(&bytes(&made))), Ok(true));
    }
}

/// From node 1 over node 2 to node 3, with these policies.
fn world(policies: [Policy; 3], bundle_max: u64) -> World {
    let mut configs = chains(3, true);
    for (config, policy) in configs.iter_mut().zip(policies) {
        config.security = policy;
        config.reports = Reports { deletion: true, ..Reports::default() };
    }
    let mut world = World::new(configs, 1);
    world.bundle_max = bundle_max;
    world.connect(0, 1);
    world.connect(1, 2);
    world.settle();
    world
}

/// Requirements: C07, C09, C10, C11.
#[test]
fn signed_and_encrypted_bundles_are_accepted() {
    for wraps in [false, true] {
        for bundle_max in [u64::MAX, 1500] {
            for len in [0, 100, 9000] {
                let policies = [
                    policy(both(Role::Source), wraps),
                    // The verifier has no key for the encrypted signature, and checks the rest.
                    policy(vec![rule(Role::Verifier, SIGN, &[0])], wraps),
                    policy(both(Role::Acceptor), wraps),
                ];
                let mut world = world(policies, bundle_max);
                send(&mut world, 0, SendRequest::new(endpoint(2), payload(len)));
                world.settle();
                assert_eq!(taken(&world, 2), [payload(len)], "{wraps} {bundle_max} {len}");
                let clear = payload(len);
                let shows = |bytes: &[u8]| len > 50 && bytes.windows(50).any(|w| w == &clear[..50]);
                assert!(!world.crossed.iter().any(|(.., bytes)| shows(bytes)));
                for node in &world.nodes {
                    assert_eq!(node.agent.statistics().bundles, 0);
                    assert_eq!(node.disk.files(), 0);
                }
            }
        }
    }
}

/// Requirements: D05, D07a.
#[test]
fn initialization_vectors_are_unique() {
    let policies = [policy(both(Role::Source), false), Policy::default(), Policy::default()];
    let mut world = world(policies, u64::MAX);
    for _ in 0..20 {
        send(&mut world, 0, SendRequest::new(endpoint(2), payload(10)));
    }
    world.settle();
    let mut vectors = std::collections::BTreeSet::new();
    let mut count = 0;
    for (_, _, bytes) in world.crossed.iter().filter(|(from, ..)| *from == 0) {
        let opened = opened(bytes);
        let of = opened.head.blocks().iter().filter(|block| block.kind() == CONFIDENTIALITY);
        for block in of {
            let content = SecurityBlock::decode(block.data(), &bpsec::Bounds::default()).unwrap();
            vectors.insert(AesGcm::from_block(&content).unwrap().iv);
            count += 1;
        }
    }
    // The payload and its signature have a vector each.
    assert_eq!((vectors.len(), count), (40, 40));
}

/// Bundles of node 1 under this policy, as sent on its link.
fn protected(policy: Policy) -> Vec<u8> {
    let mut configs = chains(3, true);
    configs[0].security = policy;
    let mut world = World::connected(configs, &[(0, 1)]);
    let flags = BundleFlags::REPORT_DELETION;
    let request = SendRequest { flags, ..SendRequest::new(endpoint(2), payload(100)) };
    send(&mut world, 0, request);
    world.settle();
    world.crossed[0].2.to_vec()
}

/// Requirements: C12, C14b, C17, D04a.
#[test]
fn tampered_bundles_are_deleted_and_reported() {
    for (rules, is_signed) in [
        (vec![rule(Role::Source, SIGN, &[PAYLOAD])], true),
        (vec![rule(Role::Source, HIDE, &[PAYLOAD])], false),
    ] {
        let bytes = protected(policy(rules, false));
        let before = opened(&bytes);
        let operation = if is_signed { SIGN } else { HIDE };
        let accept = policy(vec![rule(Role::Acceptor, operation, &[PAYLOAD])], false);
        for changes in [false, true] {
            let mut sent = before.clone();
            if changes {
                sent.payload[50] ^= 1;
            }
            let policies = [Policy::default(), accept.clone(), Policy::default()];
            let mut world = world(policies, u64::MAX);
            let bytes = super::security::bytes(&sent);
            world.hand_in(1, 0, &bytes);
            world.settle();
            assert_eq!(taken(&world, 2).len(), usize::from(!changes), "{is_signed}");
            let reports = world.nodes[0].reports();
            let reasons: Vec<_> =
                reports.map(|(from, report)| (from.clone(), report.reason)).collect();
            let expected = if changes { vec![(node(1), Reason::FailedSecurity)] } else { vec![] };
            assert_eq!(reasons, expected, "{is_signed}");
        }
    }
}

/// Requirements: C13a, C14a, D04a.
#[test]
fn missing_and_unknown_operations_follow_the_rule() {
    let plain = opened(&protected(Policy::default()));
    let accept = |on_fault| {
        let rules = vec![Rule { on_fault, ..rule(Role::Acceptor, SIGN, &[PAYLOAD]) }];
        policy(rules, false)
    };
    let received = |policy: &Policy, opened: &Opened| receive(policy, &mut opened.clone());
    assert_eq!(received(&accept(OnFault::Delete), &plain), Err(Fault::Missing));
    assert_eq!(received(&accept(OnFault::Strip), &plain), Err(Fault::Missing));
    assert_eq!(received(&accept(OnFault::Pass), &plain), Ok(false));
    let signed = protected(policy(vec![rule(Role::Source, SIGN, &[PAYLOAD])], false));
    let signed = opened(&signed);
    let mut without_key = accept(OnFault::Delete);
    without_key.keys.clear();
    assert_eq!(received(&without_key, &signed), Err(Fault::Unknown));
    assert_eq!(received(&accept(OnFault::Delete), &signed), Ok(true));
    // A verifier leaves the operation on.
    let mut checked = signed.clone();
    let verify = policy(vec![rule(Role::Verifier, SIGN, &[PAYLOAD])], false);
    assert_eq!(receive(&verify, &mut checked), Ok(false));
    assert_eq!(checked, signed);
}

/// Requirements: C12, C13c.
#[test]
fn a_block_that_was_changed_is_stripped() {
    const KIND: u64 = 200;
    let mut made = opened(&protected(Policy::default()));
    let number = made.head.free_number();
    let block = |data: &[u8]| {
        crate::codec::bp7::Block::new(
            KIND,
            number,
            BlockFlags(0),
            crate::codec::bp7::CrcType::None,
            data,
        )
        .unwrap()
    };
    made.head.put_block(block(b"before"));
    let source = policy(vec![rule(Role::Source, SIGN, &[KIND])], false);
    let mut vectors = Vectors::new(&mut Rng::new(1, "vectors"));
    assert_eq!(protect(&source, &mut made, &node(0), &mut vectors), Ok(true));
    let rules = vec![Rule { on_fault: OnFault::Strip, ..rule(Role::Verifier, SIGN, &[KIND]) }];
    let verify = policy(rules, false);
    assert_eq!(receive(&verify, &mut made.clone()), Ok(false));
    made.head.put_block(block(b"after!"));
    assert_eq!(receive(&verify, &mut made), Ok(true));
    assert!(made.head.block_of(KIND).is_none());
    assert!(made.head.block_of(INTEGRITY).is_none());
}

#[test]
fn a_payload_beyond_the_bound_is_refused_and_keys_are_not_printed() {
    let bounded = Policy { payload_max: 5000, ..policy(both(Role::Source), false) };
    let mut world = world([bounded, Policy::default(), Policy::default()], u64::MAX);
    let (now, longer) = (world.now, SendRequest::new(endpoint(2), payload(5001)));
    let refused = world.nodes[0].agent.send(now, longer);
    assert_eq!(refused, Err(RequestError::TooLong { most: 5000 }));
    send(&mut world, 0, SendRequest::new(endpoint(2), payload(5000)));
    world.settle();
    assert_eq!(taken(&world, 2).len(), 1);
    assert_eq!(format!("{:?}", Key::new(b"secret")), "Key { wraps: false, .. }");
}

/// Parameters of an encryption with an initialization vector that ends in `last`.
fn gcm(last: u8) -> AesGcm {
    let iv = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, last];
    AesGcm { iv: iv.into(), variant: AesVariant::Aes256, wrapped_key: None, scope: Scope::ALL }
}

/// Requirements: C01, C03, C04.
#[test]
fn operations_that_contradict_are_refused() {
    let (source, flags) = (Eid::ipn(2, 1), BlockFlags(0));
    let mut made = opened(&vector!("a1_original"));
    let sign = |made: &Opened, number: u64, targets: &[u64]| {
        let (mut made, added) = (made.clone(), added(number, flags, targets, &source));
        made.add_integrity(&added, &HmacSha2::default(), &[1; 32]).map(|()| made)
    };
    let hide = |made: &Opened, number: u64, targets: &[u64]| {
        let (mut made, added) = (made.clone(), added(number, flags, targets, &source));
        made.add_confidentiality(&added, &gcm(number as u8), &[2; 32]).map(|()| made)
    };
    made = sign(&made, 2, &[PAYLOAD_NUMBER]).unwrap();
    // The same operation again, a BIB, an absent block, a target twice, and a number in use.
    for (number, targets) in [(3, &[1][..]), (3, &[2]), (3, &[9]), (3, &[0, 0]), (2, &[0])] {
        assert_eq!(sign(&made, number, targets).err(), Some(Fault::Conflicting), "{targets:?}");
    }
    // The primary block, an absent block, a target twice.
    for targets in [&[0][..], &[9], &[1, 1]] {
        assert_eq!(hide(&made, 3, targets).err(), Some(Fault::Conflicting), "{targets:?}");
    }
    made = hide(&made, 3, &[PAYLOAD_NUMBER, 2]).unwrap();
    // A BCB, and what is encrypted.
    for targets in [&[3][..], &[1], &[2]] {
        assert_eq!(hide(&made, 4, targets).err(), Some(Fault::Conflicting), "{targets:?}");
    }
    for targets in [&[3][..], &[2]] {
        assert_eq!(sign(&made, 4, targets).err(), Some(Fault::Conflicting), "{targets:?}");
    }
}

/// Requirements: C05, C06, C07, C10, C13b.
#[test]
fn policies_keep_the_rules_of_security_blocks() {
    let mut vectors = Vectors::new(&mut Rng::new(1, "vectors"));
    let clear = opened(&vector!("a1_original"));
    let mut made = clear.clone();
    let policy_of = |rules| policy(rules, false);
    assert_eq!(
        protect(&policy_of(both(Role::Source)), &mut made, &node(0), &mut vectors),
        Ok(true)
    );
    // Each fragment has the block of its encrypted payload, which no node removes.
    let hidden = made.head.blocks().iter().filter(|block| block.kind() == CONFIDENTIALITY);
    for block in hidden.clone() {
        assert!(!block.flags().contains(BlockFlags::DISCARD));
        let content = SecurityBlock::decode(block.data(), &bpsec::Bounds::default()).unwrap();
        let of_payload = content.results(PAYLOAD_NUMBER).is_some();
        assert_eq!(block.flags().contains(BlockFlags::REPLICATE), of_payload);
    }
    // The payload and its signature are encrypted.
    assert_eq!(hidden.count(), 2);
    // What is encrypted is not signed.
    let signs = policy_of(vec![rule(Role::Source, SIGN, &[PAYLOAD])]);
    assert_eq!(protect(&signs, &mut made, &node(1), &mut vectors), Ok(false));
    // An acceptor removes all its operations, and the blocks with the last of them.
    assert_eq!(receive(&policy_of(both(Role::Acceptor)), &mut made), Ok(true));
    assert!(made.head.blocks().is_empty());
    assert_eq!(made.payload, clear.payload);
    // Plaintext where a rule requires encryption is a missing operation.
    let hides = |role| policy_of(vec![rule(role, HIDE, &[PAYLOAD])]);
    assert_eq!(receive(&hides(Role::Acceptor), &mut clear.clone()), Err(Fault::Missing));
    // A signature of several blocks, of which some are to be encrypted, is not split.
    let (source, targets) = (node(0), [0, PAYLOAD_NUMBER]);
    let mut made = clear;
    let added = added(2, BlockFlags(0), &targets, &source);
    made.add_integrity(&added, &HmacSha2::default(), &[1; 32]).unwrap();
    let hidden = protect(&hides(Role::Source), &mut made, &node(0), &mut vectors);
    assert_eq!(hidden, Err(Fault::Conflicting));
}

/// Requirements: D06.
#[test]
fn a_tag_may_follow_the_ciphertext() {
    let mut read = opened(&vector!("a2_bundle"));
    let (number, mut block) = content(&read, CONFIDENTIALITY);
    let tag = *AesGcm::tag(&block, PAYLOAD_NUMBER).unwrap().unwrap();
    block.targets[0].results.clear();
    let wrapping = Key::wrapping(&vector!("key_wrapping"));
    let before = read.clone();
    assert_eq!(read.decrypt(number, &block, PAYLOAD_NUMBER, &wrapping), Err(Fault::Failed));
    assert_eq!(read, before);
    read.payload.extend_from_slice(&tag);
    read.decrypt(number, &block, PAYLOAD_NUMBER, &wrapping).unwrap();
    assert_eq!(read.payload, b"Ready to generate a 32-byte payload");
}

/// Requirements: C16.
#[test]
fn fragments_are_not_protected() {
    let primary = crate::codec::bp7::Primary {
        fragment: Some(crate::codec::bp7::Fragment { offset: 0, total: 9 }),
        ..super::attacks::seven(Eid::ipn(66, 6), endpoint(2))
    };
    let bytes = super::attacks::bytes_of_seven(primary, b"part");
    let policies = [Policy::default(), policy(both(Role::Source), false), Policy::default()];
    let mut world = world(policies, u64::MAX);
    world.hand_in(1, 0, &bytes);
    world.settle();
    let sent = opened(&world.crossed[0].2);
    assert_eq!(sent.payload, b"part");
    let security = [INTEGRITY, CONFIDENTIALITY];
    assert!(!sent.head.blocks().iter().any(|block| security.contains(&block.kind())));
}

/// Requirements: D03a, D04b.
#[test]
fn crcs_return_when_a_signature_is_removed() {
    let rules = |role| policy(vec![rule(role, SIGN, &[0, PAYLOAD])], false);
    let policies = [rules(Role::Source), rules(Role::Acceptor), Policy::default()];
    let mut world = world(policies, u64::MAX);
    send(&mut world, 0, SendRequest::new(endpoint(2), payload(10)));
    world.settle();
    assert_eq!(taken(&world, 2), [payload(10)]);
    let crcs = |n: usize| {
        let head = opened(&world.crossed[n].2).head;
        [head.primary().crc, head.payload().crc].map(|crc| crc != crate::codec::bp7::CrcType::None)
    };
    assert_eq!([crcs(0), crcs(1)], [[false; 2], [true; 2]]);
}
