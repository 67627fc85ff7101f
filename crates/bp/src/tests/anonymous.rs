//! Bundles without a source, which have no identity (RFC 9171 §4.2.3, RFC 5050 §4.2), and reports
//! of the reception of bundles that are not kept.

use crate::codec::bp6;
use crate::codec::bp7::{
    Block, BlockFlags, Bounds, Bundle, BundleFlags, CrcType, CreationTimestamp, Eid, HOP_COUNT,
    Primary, Reason,
};

use super::super::agent::{Config, Entry, Pattern, Reports, Routing};
use super::agent::taken;
use super::attacks::{bytes_of_seven, bytes_of_six, seven, six};
use super::requirements::reasons;
use super::world::{World, chain, endpoint, node};

const UNCUT: BundleFlags = BundleFlags::MUST_NOT_FRAGMENT;

/// A source that is replaced after encoding, which refuses what the specification forbids.
const PLACE: Eid = Eid::Ipn { node: 66, service: 6 };

fn replaced(mut bytes: Vec<u8>, from: &[u8], to: &[u8]) -> Vec<u8> {
    let at = bytes.windows(from.len()).position(|part| part == from).unwrap();
    bytes.splice(at..at + from.len(), to.iter().copied());
    bytes
}

/// A bundle of version 7 without a source, in both forms of the null endpoint.
pub(super) fn anonymous_seven(
    flags: BundleFlags,
    to: Eid,
    payload: &[u8],
    is_ipn: bool,
) -> Vec<u8> {
    let primary = Primary { flags, crc: CrcType::None, report_to: node(0), ..seven(PLACE, to) };
    let source: &[u8] = if is_ipn { &[0x82, 2, 0x82, 0, 0] } else { &[0x82, 1, 0] };
    replaced(bytes_of_seven(primary, payload), &[0x82, 2, 0x82, 0x18, 66, 6], source)
}

fn anonymous_six(flags: BundleFlags, to: Eid, payload: &[u8]) -> Vec<u8> {
    let flags = flags.with(BundleFlags::SINGLETON);
    let primary = bp6::Primary { flags, report_to: node(0), ..six(PLACE, to) };
    replaced(bytes_of_six(primary, payload), &[66, 6], &[0, 0])
}

/// Bundles of both versions with these flags.
fn anonymous(flags: BundleFlags, to: &Eid, payload: &[u8]) -> [Vec<u8>; 3] {
    [
        anonymous_seven(flags, to.clone(), payload, false),
        anonymous_seven(flags, to.clone(), payload, true),
        anonymous_six(flags, to.clone(), payload),
    ]
}

/// Three nodes in a chain that send all reports.
fn reporting() -> World {
    let config = |at| Config {
        reports: Reports {
            reception: true,
            forwarding: true,
            delivery: true,
            deletion: true,
            custody: true,
        },
        limits: super::super::agent::Limits { unchecked: true, ..Default::default() },
        ..chain(3, at, true)
    };
    World::connected((0..3).map(config).collect(), &[(0, 1), (1, 2)])
}

/// Requirements: B08d, E01c.
#[test]
fn bundles_without_a_source_are_no_duplicates() {
    // To this node, and to be forwarded: different ones, and copies, more than `returns`.
    for to in [1, 2] {
        for kind in 0..3 {
            let mut world = reporting();
            let mut sent = Vec::new();
            for n in 0..12 {
                let payload = format!("payload {}", n / 2).into_bytes();
                let bytes = &anonymous(UNCUT, &endpoint(to), &payload)[kind];
                world.hand_in(1, 0, bytes);
                world.settle();
                sent.push(payload);
            }
            assert_eq!(taken(&world, to), sent, "{to} {kind}");
            let statistics = world.nodes[1].agent.statistics();
            assert_eq!((statistics.duplicates, statistics.returned, statistics.bundles), (0, 0, 0));
        }
    }
}

#[test]
fn bundles_without_a_source_survive_a_restart_next_to_each_other() {
    let mut world = reporting();
    world.disconnect(1, 2);
    for payload in [b"one", b"two"] {
        world.hand_in(1, 0, &anonymous(UNCUT, &endpoint(2), payload)[0]);
        world.settle();
    }
    world.crash(1);
    world.settle();
    world.connect(1, 2);
    world.settle();
    let mut taken = taken(&world, 2);
    taken.sort();
    assert_eq!(taken, [b"one".to_vec(), b"two".to_vec()]);
    assert_eq!(world.nodes[1].agent.statistics().bundles, 0);
}

/// Requirements: B08b, B08d, E01b, E01c.
#[test]
fn bundles_without_a_source_cause_no_reports() {
    let status = BundleFlags::STATUS_TIME;
    let custody = BundleFlags::CUSTODY;
    let flags = [BundleFlags::REPORTS, BundleFlags::ADMINISTRATIVE, status, custody];
    // Records that request reports or custody cannot be encoded.
    for choice in (0..16).filter(|choice| choice & 2 == 0 || choice & 9 == 0) {
        let chosen = (0..4).filter(|bit| choice >> bit & 1 == 1).map(|bit| flags[bit]);
        let flags = chosen.fold(UNCUT, BundleFlags::with);
        for to in [endpoint(1), endpoint(2), Eid::None] {
            let mut world = reporting();
            for bytes in anonymous(flags, &to, b"payload") {
                world.hand_in(1, 0, &bytes);
                world.settle();
            }
            assert_eq!(reasons(&world), (vec![], vec![]), "{flags:?} {to}");
            assert_eq!(world.nodes[0].agent.statistics().received, 0, "{flags:?} {to}");
        }
    }
    // Nor does a request of a block.
    for flags in [BlockFlags::REPORT, BlockFlags::REPORT.with(BlockFlags::DELETE_BUNDLE)] {
        let mut world = reporting();
        let bytes = anonymous(UNCUT, &endpoint(2), b"payload")[0].clone();
        let block = Block::new(200, 2, flags, CrcType::None, b"?").unwrap();
        let bundle = Bundle::decode(&bytes, &Bounds::default()).unwrap();
        let (mut head, payload) = (bundle.head, bundle.payload);
        head.put_block(block);
        world.hand_in(1, 0, &Bundle { head, payload }.to_vec().unwrap());
        world.settle();
        assert_eq!(reasons(&world), (vec![], vec![]));
    }
}

/// Requirements: B08c.
#[test]
fn bundles_without_a_source_that_may_be_fragmented_are_malformed() {
    let mut world = reporting();
    for bytes in anonymous(BundleFlags::default(), &endpoint(1), b"payload") {
        world.hand_in(1, 0, &bytes);
        world.settle();
    }
    assert_eq!((taken(&world, 1).len(), world.nodes[1].agent.statistics().deleted), (0, 3));
}

/// Nodes in a ring, each of which sends everything to the next.
fn ring(count: usize) -> World {
    let config = |at: usize| {
        let via = vec![node((at + 1) % count)];
        let entries = vec![Entry { to: Pattern::Any, via }];
        let routing = Routing::Static(entries);
        let limits = super::super::agent::Limits { unchecked: true, ..Default::default() };
        Config { routing, limits, ..chain(count, at, true) }
    };
    let mut world = World::new((0..count).map(config).collect(), 1);
    for at in 0..count {
        if count > 2 || at == 0 {
            world.connect(at, (at + 1) % count);
        }
    }
    world.settle();
    world
}

/// Requirements: B08d.
#[test]
fn a_loop_of_bundles_without_a_source_ends() {
    let nowhere = Eid::ipn(99, 1);
    // Three nodes: by the hop count that the first of them adds.
    for bytes in &anonymous(UNCUT, &nowhere, b"payload")[..2] {
        let mut world = ring(3);
        world.hand_in(0, 7, bytes);
        world.settle();
        assert_eq!(world.crossed.len(), 30);
        let head = Bundle::decode(&world.crossed[0].2, &Bounds::default()).unwrap().head;
        assert!(head.block_of(HOP_COUNT).is_some());
        let bundles: usize = world.nodes.iter().map(|node| node.agent.statistics().bundles).sum();
        assert_eq!(bundles, 0);
    }
    // Two nodes: it does not go back, also in version 6.
    for bytes in anonymous(UNCUT, &nowhere, b"payload") {
        let mut world = ring(2);
        world.hand_in(0, 7, &bytes);
        world.settle();
        assert_eq!(world.crossed.len(), 1);
        assert_eq!(world.nodes[1].agent.statistics().bundles, 1);
    }
}

#[test]
fn epidemic_routing_gives_bundles_without_a_source_to_their_destination_only() {
    let config = |at: usize| {
        let limits = super::super::agent::Limits { unchecked: true, ..Default::default() };
        Config { routing: Routing::Epidemic, limits, ..chain(4, at, true) }
    };
    let mut world = World::new((0..4).map(config).collect(), 1);
    for (one, other) in [(0, 1), (0, 2), (1, 2), (2, 3), (1, 3)] {
        world.connect(one, other);
    }
    world.settle();
    world.hand_in(1, 0, &anonymous(UNCUT, &endpoint(3), b"payload")[0]);
    world.settle();
    assert_eq!(taken(&world, 3), [b"payload".to_vec()]);
    assert_eq!(world.crossed.len(), 1);
}

/// A bundle with requests for reports of reception and deletion.
fn requesting(to: Eid, blocks: Vec<Block>, change: impl Fn(&mut Primary)) -> Vec<u8> {
    let flags = BundleFlags::REPORT_RECEPTION.with(BundleFlags::REPORT_DELETION);
    let mut primary = Primary { flags, report_to: node(0), ..seven(Eid::ipn(66, 6), to) };
    change(&mut primary);
    let bytes = bytes_of_seven(primary, b"payload");
    let Bundle { mut head, payload } = Bundle::decode(&bytes, &Bounds::default()).unwrap();
    head.set_blocks(blocks).unwrap();
    Bundle { head, payload }.to_vec().unwrap()
}

/// Requirements: B55b, B57.
#[test]
fn reception_is_reported_before_all_that_ends_a_bundle() {
    let block =
        |kind, flags, data: &[u8]| vec![Block::new(kind, 2, flags, CrcType::Crc16, data).unwrap()];
    let (plain, nothing) = (BlockFlags(0), Reason::NoInformation);
    let unknown = |flags| block(200, flags, b"?");
    let report = BlockFlags::REPORT.with(BlockFlags::DELETE_BUNDLE);
    let to = || endpoint(2);
    let late = |primary: &mut Primary| {
        (primary.creation, primary.lifetime_ms) =
            (CreationTimestamp { time_ms: 1, sequence: 1 }, 5);
    };
    let same = |_: &mut Primary| {};
    for (bytes, received, deleted) in [
        (
            requesting(to(), block(HOP_COUNT, plain, &[0x82, 3, 4]), same),
            vec![nothing],
            Reason::HopLimitExceeded,
        ),
        (requesting(to(), vec![], late), vec![nothing], Reason::LifetimeExpired),
        (
            requesting(to(), block(HOP_COUNT, plain, &[0xff]), same),
            vec![nothing],
            Reason::BlockUnintelligible,
        ),
        (requesting(Eid::None, vec![], same), vec![nothing], Reason::DestinationUnavailable),
        (
            requesting(to(), unknown(BlockFlags::DELETE_BUNDLE), same),
            vec![nothing],
            Reason::BlockUnsupported,
        ),
        (
            requesting(to(), unknown(report), same),
            vec![nothing, Reason::BlockUnsupported],
            Reason::BlockUnsupported,
        ),
    ] {
        let mut world = reporting();
        world.hand_in(1, 0, &bytes);
        world.settle();
        assert_eq!(reasons(&world), (vec![deleted], received));
    }
    // Copies, of a held and of a forgotten bundle.
    for is_held in [true, false] {
        let mut world = reporting();
        if is_held {
            world.disconnect(1, 2);
        }
        for count in 1..4 {
            world.hand_in(1, 0, &requesting(endpoint(2 - usize::from(!is_held)), vec![], same));
            world.settle();
            assert_eq!(reasons(&world), (vec![], vec![nothing; count]), "{is_held}");
        }
    }
    // Version 6: a copy, and a block that deletes the bundle.
    let flags = BundleFlags::REPORT_RECEPTION.with(BundleFlags::SINGLETON);
    let primary = bp6::Primary { flags, report_to: node(0), ..six(Eid::ipn(66, 6), endpoint(1)) };
    let mut world = reporting();
    for count in 1..3 {
        world.hand_in(1, 0, &bytes_of_six(primary.clone(), b"payload"));
        world.settle();
        assert_eq!(reasons(&world).1.len(), count);
    }
}
