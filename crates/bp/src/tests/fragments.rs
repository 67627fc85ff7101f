//! Fragmentation, and reassembly at the destination.

use proptest::prelude::*;

use super::super::agent::{Indication, Limit, Limits, SendRequest, Version};
use super::agent::{payload, secs, send, taken};
use super::world::{World, chains, endpoint};
use crate::codec::bp6;
use crate::codec::bp7::{
    Block, BlockFlags, Bounds, Bundle, BundleFlags, CrcType, CreationTimestamp, Eid, Fragment,
    Head, Payload, Primary,
};

fn request(version: Version, to: usize, len: usize) -> SendRequest {
    SendRequest { version, ..SendRequest::new(endpoint(to), payload(len)) }
}

/// Begin and end of the fragments that a node sent.
fn crossed(world: &World, from: usize) -> Vec<(u64, u64, u64)> {
    let of = world.crossed.iter().filter(|(n, ..)| *n == from);
    let fragment = |bytes: &[u8]| match bytes[0] {
        bp6::VERSION => {
            let bundle = bp6::Bundle::decode(bytes, &Bounds::default()).unwrap();
            let fragment = bundle.head.primary().fragment.unwrap();
            (fragment.offset, bundle.payload.len() as u64, fragment.total)
        }
        _ => {
            let bundle = Bundle::decode(bytes, &Bounds::default()).unwrap();
            let fragment = bundle.head.primary().fragment.unwrap();
            (fragment.offset, bundle.payload.len() as u64, fragment.total)
        }
    };
    of.map(|(_, _, bytes)| fragment(bytes)).map(|(at, len, total)| (at, at + len, total)).collect()
}

fn assert_empty(world: &World) {
    for (n, node) in world.nodes.iter().enumerate() {
        let statistics = node.agent.statistics();
        assert_eq!((statistics.bundles, statistics.bytes), (0, 0), "{n}");
        assert_eq!(node.disk.files(), 0, "{n}");
    }
}

/// Encoded fragment of a version 7 bundle from node 9.
fn fragment(offset: u64, total: u64, bytes: &[u8], blocks: Vec<Block>) -> Vec<u8> {
    let primary = Primary {
        crc: CrcType::Crc32c,
        destination: endpoint(1),
        source: Eid::ipn(9, 9),
        creation: CreationTimestamp { time_ms: 800_000_000_000, sequence: 1 },
        lifetime_ms: 1_000_000,
        fragment: Some(Fragment { offset, total }),
        ..Primary::default()
    };
    let plain = Payload { len: bytes.len() as u64, crc: CrcType::Crc16, ..Payload::default() };
    let head = Head::new(primary, blocks, plain).unwrap();
    Bundle { head, payload: bytes }.to_vec().unwrap()
}

/// Requirements: B62, B63, U01b.
#[test]
fn bundles_too_long_for_a_neighbour_are_fragmented() {
    for version in [Version::Seven, Version::Six] {
        for persistent in [false, true] {
            for len in [2000, 10_000, 70_000] {
                let mut world = World::new(chains(3, persistent), 1);
                world.bundle_max = 1500;
                world.connect(0, 1);
                world.connect(1, 2);
                world.settle();
                send(&mut world, 0, request(version, 2, len));
                world.settle();
                assert_eq!(taken(&world, 2), [payload(len)], "{version:?} {persistent} {len}");
                assert_empty(&world);
                for from in 0..2 {
                    let mut parts = crossed(&world, from);
                    parts.sort_unstable();
                    let mut at = 0;
                    for (start, end, total) in parts {
                        assert_eq!((start, total), (at, len as u64));
                        at = end;
                    }
                    assert_eq!(at, len as u64, "{version:?} {persistent} {len} from {from}");
                }
            }
        }
    }
}

#[test]
fn fragments_are_fragmented_for_the_next_neighbour() {
    let mut world = World::new(chains(3, true), 1);
    world.bundle_max = 4000;
    world.connect(0, 1);
    world.bundle_max = 600;
    world.connect(1, 2);
    world.bundle_max = 4000;
    world.settle();
    send(&mut world, 0, request(Version::Seven, 2, 20_000));
    world.settle();
    assert_eq!(taken(&world, 2), [payload(20_000)]);
    assert_empty(&world);
    let longest = world.crossed.iter().filter(|(from, ..)| *from == 1).map(|(.., o)| o.len()).max();
    assert!(longest.is_some_and(|longest| longest <= 600), "{longest:?}");
}

/// Requirements: B62.
#[test]
fn unfragmentable_bundles_wait_for_a_neighbour() {
    let mut world = World::new(chains(2, true), 1);
    world.bundle_max = 1000;
    world.connect(0, 1);
    world.settle();
    let flags = BundleFlags::MUST_NOT_FRAGMENT;
    send(&mut world, 0, SendRequest { flags, ..request(Version::Seven, 1, 5000) });
    send(&mut world, 0, SendRequest { flags, ..request(Version::Seven, 1, 500) });
    world.settle();
    // A bundle that fits overtakes it.
    assert_eq!(taken(&world, 1), [payload(500)]);
    world.disconnect(0, 1);
    world.bundle_max = 10_000;
    world.connect(0, 1);
    world.settle();
    assert_eq!(taken(&world, 1), [payload(500), payload(5000)]);
    assert!(world.crossed.iter().all(|(_, _, bytes)| bytes.len() > 500));
}

/// Requirements: B64.
#[test]
fn blocks_go_into_every_fragment_or_the_first() {
    let mut world = World::new(chains(3, true), 1);
    world.bundle_max = 300;
    world.connect(1, 2);
    world.settle();
    let block = |number, flags| Block::new(200, number, flags, CrcType::None, b"?").unwrap();
    let blocks = vec![block(2, BlockFlags::REPLICATE), block(3, BlockFlags::default())];
    let primary = Primary {
        crc: CrcType::Crc32c,
        destination: endpoint(2),
        source: Eid::ipn(9, 9),
        lifetime_ms: 1_000_000_000_000,
        ..Primary::default()
    };
    let plain = Payload { len: 500, crc: CrcType::Crc32c, ..Payload::default() };
    let head = Head::new(primary, blocks, plain).unwrap();
    let bytes = Bundle { head, payload: &payload(500) }.to_vec().unwrap();
    world.hand_in(1, 0, &bytes);
    world.settle();
    assert_eq!(taken(&world, 2), [payload(500)]);
    let numbers = |bytes: &[u8]| {
        let head = Bundle::decode(bytes, &Bounds::default()).unwrap().head;
        let of = head.blocks().iter().filter(|block| block.kind() == 200);
        of.map(Block::number).collect::<Vec<_>>()
    };
    let numbers: Vec<_> = world.crossed.iter().map(|(.., bytes)| numbers(bytes)).collect();
    assert_eq!(numbers, [vec![2, 3], vec![2], vec![2]]);
}

/// Requirements: B59, B65.
#[test]
fn overlapping_and_contradictory_fragments_are_handled() {
    let mut world = World::chain(2, true, 1);
    world.settle();
    let all = payload(100);
    let part = |start: usize, end: usize| fragment(start as u64, 100, &all[start..end], Vec::new());
    world.hand_in(1, 0, &part(50, 80));
    // With another total length, and complete: it belongs to another bundle, and is ignored once
    // one is complete.
    world.hand_in(1, 0, &fragment(0, 60, &[1; 40], Vec::new()));
    world.settle();
    world.hand_in(1, 0, &part(40, 60));
    world.hand_in(1, 0, &part(50, 80));
    world.settle();
    world.hand_in(1, 0, &part(55, 75));
    world.hand_in(1, 0, &part(0, 45));
    world.settle();
    assert_eq!(world.nodes[1].agent.statistics().duplicates, 2);
    assert_eq!(world.nodes[1].agent.statistics().bundles, 4);
    assert_eq!(taken(&world, 1).len(), 0);
    world.hand_in(1, 0, &part(70, 100));
    world.settle();
    assert_eq!(taken(&world, 1), std::slice::from_ref(&all));
    // A late fragment is not kept, and has no effect.
    world.hand_in(1, 0, &part(10, 20));
    world.hand_in(1, 0, &fragment(40, 60, &[1; 20], Vec::new()));
    world.settle();
    assert_eq!(taken(&world, 1), [all]);
    assert_empty(&world);
}

#[test]
fn invalid_fragments_are_refused() {
    let mut world = World::chain(2, true, 1);
    world.settle();
    world.hand_in(1, 0, &fragment(90, 100, &[1; 20], Vec::new()));
    world.settle();
    let statistics = world.nodes[1].agent.statistics();
    assert_eq!((statistics.malformed, statistics.refused, statistics.bundles), (1, 1, 0));
}

/// A long bundle in one-byte fragments: the number kept is bounded.
#[test]
fn very_many_fragments_are_bounded() {
    let mut configs = chains(2, true);
    configs[1].limits = Limits { fragments: 100, ..Limits::default() };
    let mut world = World::new(configs, 1);
    world.settle();
    for n in 0..150 {
        world.hand_in(1, 0, &fragment(2 * n, 1_000_000_000, &[1], Vec::new()));
        world.settle();
    }
    let statistics = world.nodes[1].agent.statistics();
    assert_eq!((statistics.bundles, statistics.refused), (100, 50));
    let limit = Indication::LimitReached(Limit::Fragments);
    assert!(world.nodes[1].indications.contains(&limit));
    // They are deleted when they expire.
    world.pass(secs(2000));
    assert_empty(&world);
    assert_eq!(world.nodes[1].agent.statistics().expired, 100);
}

/// Requirements: B59.
#[test]
fn fragments_are_found_again_after_a_crash() {
    for persistent in [20usize, 5000] {
        let mut world = World::chain(2, true, 1);
        world.settle();
        let all = payload(persistent * 3);
        let part = |n: usize| {
            let start = n * persistent;
            fragment(start as u64, all.len() as u64, &all[start..start + persistent], Vec::new())
        };
        for n in [0, 2] {
            world.hand_in(1, 0, &part(n));
            world.settle();
            world.crash(1);
            world.settle();
        }
        assert_eq!(world.nodes[1].agent.statistics().bundles, 2);
        world.hand_in(1, 0, &part(1));
        world.settle();
        assert_eq!(taken(&world, 1), [all]);
        world.crash(1);
        world.settle();
        assert_eq!(taken(&world, 1).len(), 1);
        assert_empty(&world);
    }
}

#[test]
fn reassembly_waits_for_room() {
    let mut world = World::chain(2, true, 1);
    world.settle();
    let all = payload(10_000);
    world.nodes[1].disk.capacity = Some(14_000);
    for start in [0, 5000] {
        let bytes = fragment(start, 10_000, &all[start as usize..][..5000], Vec::new());
        world.hand_in(1, 0, &bytes);
        world.settle();
    }
    assert_eq!(taken(&world, 1).len(), 0);
    assert_eq!(world.nodes[1].agent.statistics().bundles, 2);
    world.nodes[1].disk.capacity = None;
    world.pass(secs(61));
    assert_eq!(taken(&world, 1), [all]);
    assert_empty(&world);
}

/// RFC 5050 §5.8: the part received before the link broke is a fragment, and only the rest is
/// sent.
#[test]
fn bytes_received_before_a_break_are_not_retransmitted() {
    for len in [1000, 9000] {
        let mut world = World::chain(2, true, 1);
        world.reactive = true;
        world.settle();
        send(&mut world, 0, request(Version::Six, 1, len));
        // One piece a turn, until half of it has arrived.
        let half = len / 2 / world.piece;
        while world.crossed.is_empty() {
            world.act(0, 0);
        }
        for _ in 0..=half {
            world.carry(0);
        }
        world.disconnect(0, 1);
        world.settle();
        assert_eq!(world.nodes[1].agent.statistics().bundles, 1);
        world.connect(0, 1);
        world.settle();
        assert_eq!(taken(&world, 1), [payload(len)]);
        assert_empty(&world);
        let again = world.crossed.last().map(|(.., bytes)| bytes.len()).unwrap();
        assert!(again < len / 2 + 200, "{again} of {len}");
    }
    // Version 7 has no reactive fragmentation.
    let mut world = World::chain(2, true, 1);
    world.reactive = true;
    world.settle();
    send(&mut world, 0, request(Version::Seven, 1, 3000));
    for _ in 0..20 {
        world.act(0, 0);
        world.carry(0);
    }
    world.disconnect(0, 1);
    world.settle();
    assert_eq!(world.nodes[1].agent.statistics().bundles, 0);
    world.connect(0, 1);
    world.settle();
    assert_eq!(taken(&world, 1), [payload(3000)]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// Fragments in any order: the whole bundle is delivered once, as soon as nothing is missing.
    ///
    /// Requirements: B59, B65.
    #[test]
    fn fragments_in_any_order(
        parts in prop::collection::vec((0usize..600, 1usize..300), 1..40),
        restart in any::<u64>(),
    ) {
        let mut world = World::chain(2, true, 1);
        world.settle();
        let all = payload(600);
        let mut have = vec![false; 600];
        for (n, (start, len)) in parts.into_iter().enumerate() {
            let end = (start + len).min(600);
            world.hand_in(1, 0, &fragment(start as u64, 600, &all[start..end], Vec::new()));
            world.settle();
            have[start..end].fill(true);
            if restart >> (n % 64) & 1 == 1 {
                world.crash(1);
                world.settle();
            }
            let expected = if have.iter().all(|have| *have) { vec![all.clone()] } else { vec![] };
            prop_assert_eq!(taken(&world, 1), expected);
        }
    }
}
