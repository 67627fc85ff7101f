//! Requirements of RFC 9171 and RFC 9758 on received bundles, by their bytes.

use crate::codec::bp7::{
    BUNDLE_AGE, Block, BlockFlags, Bounds, Bundle, BundleFlags, CrcType, CreationTimestamp, Eid,
    Extension, Fragment, HOP_COUNT, Head, PREVIOUS_NODE, Payload, Primary, Reason, Status,
};

use super::super::agent::{Config, Indication, Reports, RequestError, SendRequest};
use super::super::security::{OnFault, Role};
use super::agent::{payload, secs, send, taken};
use super::attacks::{bytes_of_seven, bytes_of_six, seven, signed, six};
use super::world::{World, chains, endpoint, node};

/// Three nodes in a chain that send all reports, the middle one with these settings.
fn reporting(change: impl Fn(&mut Config)) -> World {
    let mut configs = chains(3, true);
    for config in &mut configs {
        config.reports = Reports { deletion: true, reception: true, ..Reports::default() };
    }
    change(&mut configs[1]);
    World::connected(configs, &[(0, 1), (1, 2)])
}

fn block(kind: u64, number: u64, flags: BlockFlags, data: &[u8]) -> Block {
    Block::new(kind, number, flags, CrcType::Crc16, data).unwrap()
}

/// A bundle from node 0 to node 2 with these blocks.
fn with_blocks(flags: BundleFlags, blocks: Vec<Block>) -> Vec<u8> {
    let report_to = node(0);
    let primary = Primary { flags, report_to, ..seven(Eid::ipn(66, 6), endpoint(2)) };
    encoded(primary, blocks)
}

fn encoded(primary: Primary, blocks: Vec<Block>) -> Vec<u8> {
    let plain = Payload { len: 2, crc: CrcType::Crc32c, ..Payload::default() };
    let head = Head::new(primary, blocks, plain).unwrap();
    Bundle { head, payload: b"hi" }.to_vec().unwrap()
}

/// Reasons that reports named to node 0: of deletions, of receptions.
pub(super) fn reasons(world: &World) -> (Vec<Reason>, Vec<Reason>) {
    let (mut deleted, mut received) = (Vec::new(), Vec::new());
    for (_, report) in world.nodes[0].reports() {
        let of = if report.deleted == Status::NotAsserted { &mut received } else { &mut deleted };
        of.push(report.reason);
    }
    (deleted, received)
}

/// Requirements: B25, B27a, B28, B29a, B56b.
#[test]
fn known_blocks_that_cannot_be_read_delete_the_bundle() {
    const PLAIN: BlockFlags = BlockFlags(0);
    let cases: [&[(u64, &[u8])]; 8] = [
        &[(PREVIOUS_NODE, &[0xff])],
        &[(BUNDLE_AGE, &[0xff])],
        &[(HOP_COUNT, &[0xff, 0xff])],
        // Hop limits 0 and 256.
        &[(HOP_COUNT, &[0x82, 0, 0])],
        &[(HOP_COUNT, &[0x82, 0x19, 1, 0, 0])],
        // Two of a kind.
        &[(BUNDLE_AGE, &[1]), (BUNDLE_AGE, &[1])],
        &[(HOP_COUNT, &[0x82, 9, 0]), (HOP_COUNT, &[0x82, 9, 0])],
        &[(PREVIOUS_NODE, &[0x82, 2, 0x82, 9, 0]), (PREVIOUS_NODE, &[0x82, 2, 0x82, 9, 0])],
    ];
    for case in cases {
        let blocks =
            case.iter().zip(2..).map(|((kind, data), number)| block(*kind, number, PLAIN, data));
        let bytes = with_blocks(BundleFlags::REPORT_DELETION, blocks.collect());
        let mut world = reporting(|_| {});
        world.hand_in(1, 0, &bytes);
        world.settle();
        assert_eq!(taken(&world, 2).len(), 0, "{case:?}");
        assert_eq!(reasons(&world), (vec![Reason::BlockUnintelligible], vec![]), "{case:?}");
        assert_eq!(world.nodes[1].agent.statistics().deleted, 1, "{case:?}");
    }
}

/// Requirements: B30.
#[test]
fn an_exceeded_hop_limit_deletes_a_bundle_at_its_destination_too() {
    for (data, arrives) in [([0x82u8, 3, 4], false), ([0x82, 3, 3], true)] {
        let mut world = reporting(|_| {});
        let hops = block(HOP_COUNT, 2, BlockFlags(0), &data);
        let bytes = with_blocks(BundleFlags::REPORT_DELETION, vec![hops]);
        world.hand_in(2, 1, &bytes);
        world.settle();
        assert_eq!(taken(&world, 2).len(), usize::from(arrives));
        let expected = if arrives { vec![] } else { vec![Reason::HopLimitExceeded] };
        assert_eq!(reasons(&world).0, expected);
    }
}

/// Requirements: B14, B28, B53.
#[test]
fn a_bundle_without_creation_time_gets_an_age() {
    for bundle_max in [u64::MAX, 300] {
        let mut world = World::new(chains(3, true), 1);
        world.settle();
        let creation = CreationTimestamp { time_ms: 0, sequence: 5 };
        let primary = Primary { creation, ..seven(Eid::ipn(66, 6), endpoint(2)) };
        world.hand_in(1, 0, &bytes_of_seven(primary, &payload(600)));
        world.settle();
        world.pass(secs(100));
        world.bundle_max = bundle_max;
        world.connect(1, 2);
        world.settle();
        assert_eq!(taken(&world, 2), [payload(600)]);
        for (.., bytes) in &world.crossed {
            let head = Bundle::decode(bytes, &Bounds::default()).unwrap().head;
            let ages: Vec<_> = head.blocks().iter().filter(|b| b.kind() == BUNDLE_AGE).collect();
            assert_eq!(ages.len(), 1);
            let Ok(Extension::BundleAge { age_ms }) = ages[0].extension(&Bounds::default()) else {
                panic!("{ages:?}");
            };
            assert!((100_000..101_000).contains(&age_ms), "{age_ms}");
        }
    }
}

/// Requirements: B57, B58a.
#[test]
fn a_block_alone_requests_a_report() {
    const UNKNOWN: u64 = 200;
    let (report, delete) = (BlockFlags::REPORT, BlockFlags::DELETE_BUNDLE);
    let received = vec![Reason::BlockUnsupported];
    for (flags, of_bundle, deleted, arrives) in [
        (report, BundleFlags::default(), vec![], true),
        (report.with(delete), BundleFlags::default(), vec![], false),
        (report.with(delete), BundleFlags::REPORT_DELETION, received.clone(), false),
    ] {
        for is_enabled in [true, false] {
            let mut world = reporting(|config| {
                if !is_enabled {
                    config.reports = Reports::default();
                }
            });
            let bytes = with_blocks(of_bundle, vec![block(UNKNOWN, 2, flags, b"?")]);
            world.hand_in(1, 0, &bytes);
            world.disconnect(1, 2);
            world.settle();
            let sent =
                if is_enabled { (deleted.clone(), received.clone()) } else { (vec![], vec![]) };
            assert_eq!(reasons(&world), sent, "{flags:?} {of_bundle:?}");
            world.connect(1, 2);
            world.settle();
            assert_eq!(taken(&world, 2).len(), usize::from(arrives));
        }
    }
}

/// Requirements: I05.
#[test]
fn endpoints_of_any_node_and_of_none_are_not_accepted() {
    let local = |service| Eid::Ipn { node: u64::from(u32::MAX), service };
    assert!(local(1).is_local());
    let mut world = reporting(|_| {});
    let from = Eid::ipn(66, 6);
    let anonymous = BundleFlags::MUST_NOT_FRAGMENT;
    for primary in [
        seven(local(5), endpoint(1)),
        seven(local(5), endpoint(2)),
        seven(from.clone(), local(5)),
        seven(from.clone(), local(0)),
        Primary { report_to: local(7), ..seven(from.clone(), endpoint(1)) },
        seven(from.clone(), Eid::None),
        Primary { flags: anonymous, ..seven(Eid::None, Eid::None) },
    ] {
        world.hand_in(1, 0, &bytes_of_seven(primary.clone(), b"x"));
        world.settle();
        let statistics = world.nodes[1].agent.statistics();
        assert_eq!((statistics.bundles, statistics.delivered), (0, 0), "{primary:?}");
    }
    world.hand_in(1, 0, &bytes_of_six(six(local(5), endpoint(1)), b"x"));
    world.settle();
    assert_eq!(world.nodes[1].agent.statistics().deleted, 8);
    assert_eq!((taken(&world, 1).len(), taken(&world, 2).len()), (0, 0));
    // Without a source it is fine.
    let primary = Primary { flags: anonymous, ..seven(Eid::None, endpoint(1)) };
    world.hand_in(1, 0, &bytes_of_seven(primary, b"x"));
    world.settle();
    assert_eq!(taken(&world, 1).len(), 1);
    // None leaves this node.
    let now = world.now;
    for request in [
        SendRequest { source: Some(local(5)), ..SendRequest::new(endpoint(2), payload(1)) },
        SendRequest { report_to: Some(local(5)), ..SendRequest::new(endpoint(2), payload(1)) },
    ] {
        let refused = world.nodes[1].agent.send(now, request);
        assert!(matches!(refused, Err(RequestError::Conflict(_))), "{refused:?}");
    }
}

/// Requirements: B20, D03a.
#[test]
fn a_primary_block_is_protected() {
    let unchecked = |fragment| {
        let flags = BundleFlags::REPORT_DELETION;
        let (crc, report_to) = (CrcType::None, node(0));
        Primary { flags, crc, report_to, fragment, ..seven(Eid::ipn(66, 6), endpoint(2)) }
    };
    for (is_lenient, arrives) in [(false, 0), (true, 1)] {
        let mut world = reporting(|config| config.limits.unchecked = is_lenient);
        world.nodes[2].config.limits.unchecked = true;
        world.crash(2);
        world.settle();
        world.pass(secs(5));
        world.hand_in(1, 0, &encoded(unchecked(None), Vec::new()));
        world.settle();
        assert_eq!(taken(&world, 2).len(), arrives);
        let reason = vec![Reason::BlockUnintelligible; 1 - arrives];
        assert_eq!(reasons(&world).0, reason);
    }
    // A signature does, too.
    let mut configs = chains(3, true);
    configs[0].security = signed(Role::Source, OnFault::Delete);
    configs[0].security.rules[0].targets = vec![0, 1];
    let mut world = World::connected(configs, &[(0, 1), (1, 2)]);
    send(&mut world, 0, SendRequest::new(endpoint(2), payload(10)));
    world.settle();
    let head = Bundle::decode(&world.crossed[0].2, &Bounds::default()).unwrap().head;
    assert_eq!(head.primary().crc, CrcType::None);
    assert_eq!(taken(&world, 2), [payload(10)]);
}

/// Requirements: B23b, B54, B67a.
#[test]
fn the_bound_of_a_node_is_not_the_end_of_a_lifetime() {
    for (lifetime_ms, reason) in
        [(3_600_000, Reason::TrafficPared), (5_000, Reason::LifetimeExpired)]
    {
        let mut world = reporting(|config| config.limits.lifetime = secs(10));
        world.disconnect(1, 2);
        let (flags, report_to) = (BundleFlags::REPORT_DELETION, node(0));
        let primary = seven(Eid::ipn(66, 6), endpoint(2));
        let primary = Primary { flags, report_to, lifetime_ms, ..primary };
        world.hand_in(1, 0, &bytes_of_seven(primary, b"x"));
        world.settle();
        world.pass(secs(20));
        assert_eq!(reasons(&world).0, [reason]);
        assert_eq!(world.nodes[1].agent.statistics().expired, 1);
    }
}

/// Requirements: B40, B49a, B49b, B55b, B61, B70, B71.
#[test]
fn reports_assert_what_was_requested() {
    const NO: Status = Status::NotAsserted;
    let all = Reports { reception: true, forwarding: true, deletion: true, ..Reports::default() };
    for (is_enabled, with_time) in [(true, false), (true, true), (false, false)] {
        let yes = if with_time { Status::At(800_000_010_000) } else { Status::Asserted };
        let cases = [
            (BundleFlags::REPORT_RECEPTION, vec![(1, [yes, NO, NO]), (2, [yes, NO, NO])]),
            (BundleFlags::REPORT_FORWARDING, vec![(1, [NO, yes, NO])]),
            (BundleFlags::REPORT_DELIVERY, vec![(2, [NO, NO, yes])]),
        ];
        for (flag, expected) in cases {
            let mut configs = chains(3, true);
            for config in &mut configs {
                config.reports = if is_enabled {
                    all
                } else {
                    Reports { delivery: false, ..Reports::default() }
                };
            }
            let mut world = World::connected(configs, &[(0, 1), (1, 2)]);
            let flags = if with_time { flag.with(BundleFlags::STATUS_TIME) } else { flag };
            world.hand_in(1, 0, &with_blocks(flags, Vec::new()));
            world.settle();
            let mut sent = Vec::new();
            for (from, report) in world.nodes[0].reports() {
                assert_eq!(report.source, Eid::ipn(66, 6));
                assert_eq!(report.creation, seven(Eid::None, Eid::None).creation);
                assert_eq!((report.fragment, report.reason), (None, Reason::NoInformation));
                let of = (1..3).find(|n| node(*n) == *from).unwrap();
                sent.push((of, [report.received, report.forwarded, report.delivered]));
            }
            sent.sort_by_key(|(of, _)| *of);
            assert_eq!(sent, if is_enabled { expected } else { vec![] }, "{flag:?}");
        }
    }
    // A report on a fragment names it.
    let mut world = reporting(|_| {});
    let (flags, report_to) = (BundleFlags::REPORT_RECEPTION, node(0));
    let fragment = Some(Fragment { offset: 3, total: 9 });
    let primary = seven(Eid::ipn(66, 6), endpoint(1));
    world.hand_in(1, 0, &encoded(Primary { flags, report_to, fragment, ..primary }, Vec::new()));
    world.settle();
    let Some(Indication::Report { report, .. }) = world.nodes[0].indications.last() else {
        panic!("{:?}", world.nodes[0].indications);
    };
    assert_eq!(report.fragment, Some((3, 2)));
}

/// Requirements: B07a, B07b, B08a, B08b.
#[test]
fn records_and_anonymous_bundles_request_no_reports() {
    let mut world = reporting(|_| {});
    let flags = BundleFlags::MUST_NOT_FRAGMENT;
    let request = SendRequest { flags, ..SendRequest::new(endpoint(2), payload(10)) };
    send(&mut world, 0, SendRequest { source: Some(Eid::None), ..request });
    let flags = BundleFlags::REPORT_DELIVERY;
    send(&mut world, 0, SendRequest { flags, ..SendRequest::new(endpoint(2), payload(10)) });
    world.settle();
    let mut records = 0;
    for (.., bytes) in &world.crossed {
        let head = Bundle::decode(bytes, &Bounds::default()).unwrap().head;
        let Primary { flags, source, .. } = head.primary();
        let is_record = flags.contains(BundleFlags::ADMINISTRATIVE);
        records += usize::from(is_record);
        if is_record || source.is_none() {
            assert!(!flags.intersects(BundleFlags::REPORTS), "{flags:?}");
            assert!(is_record || flags.contains(BundleFlags::MUST_NOT_FRAGMENT));
            let report = BlockFlags::REPORT;
            assert!(!head.blocks().iter().any(|block| block.flags().contains(report)));
        }
    }
    assert_eq!((records, taken(&world, 2).len()), (2, 2));
    // Nor does a report follow on a record whose block requests one.
    let block = block(200, 2, BlockFlags::REPORT.with(BlockFlags::DELETE_BUNDLE), b"?");
    world.nodes[0].indications.clear();
    world.hand_in(1, 0, &with_blocks(BundleFlags::ADMINISTRATIVE, vec![block]));
    world.settle();
    assert_eq!(world.nodes[1].agent.statistics().deleted, 1);
    assert_eq!(reasons(&world), (vec![], vec![]));
}

/// Requirements: B09, B18, B58c.
#[test]
fn unknown_flags_and_the_primary_block_are_left_as_they_are() {
    let mut world = reporting(|_| {});
    let flags = BundleFlags(1 << 3 | 1 << 20 | 1 << 60);
    let unknown = block(200, 2, BlockFlags(1 << 7 | 1 << 40), b"what");
    let bytes = with_blocks(flags, vec![unknown.clone()]);
    world.hand_in(1, 0, &bytes);
    world.settle();
    assert_eq!(taken(&world, 2), [b"hi".to_vec()]);
    let before = Bundle::decode(&bytes, &Bounds::default()).unwrap().head;
    let after = Bundle::decode(&world.crossed[0].2, &Bounds::default()).unwrap().head;
    assert_eq!(after.primary().flags, flags);
    assert_eq!(after.primary_bytes(), before.primary_bytes());
    assert_eq!(after.block_of(200), Some(&unknown));
}

/// Requirements: B04, B22, B56a.
#[test]
fn a_damaged_bundle_is_refused() {
    let mut world = reporting(|_| {});
    let age = block(BUNDLE_AGE, 2, BlockFlags(0), &[1]);
    let unknown = block(200, 3, BlockFlags(0), b"what");
    let bytes = with_blocks(BundleFlags::default(), vec![age, unknown]);
    for place in 0..bytes.len() {
        for bit in [1, 0x80] {
            let mut damaged = bytes.clone();
            damaged[place] ^= bit;
            world.hand_in(1, 0, &damaged);
            world.settle();
            assert_eq!(world.nodes[1].agent.statistics().received, 0, "byte {place}");
        }
    }
    assert_eq!(world.nodes[1].agent.statistics().refused, 2 * bytes.len() as u64);
    world.hand_in(1, 0, &bytes);
    world.settle();
    assert_eq!(taken(&world, 2), [b"hi".to_vec()]);
}

/// Requirements: B42, B67a, B67b, B68.
#[test]
fn bundles_of_the_own_node_stay_and_cancelled_ones_are_reported() {
    let mut world = reporting(|_| {});
    send(&mut world, 0, SendRequest::new(endpoint(0), payload(10)));
    world.settle();
    assert_eq!((taken(&world, 0), world.crossed.len()), (vec![payload(10)], 0));
    world.disconnect(1, 2);
    world.hand_in(1, 0, &with_blocks(BundleFlags::REPORT_DELETION, Vec::new()));
    world.settle();
    let id = world.nodes[1].agent.bundles().next().unwrap().id;
    world.nodes[1].agent.cancel(world.now, &id).unwrap();
    world.drain(1);
    world.settle();
    assert_eq!(reasons(&world).0, [Reason::TransmissionCanceled]);
    assert_eq!(world.nodes[1].agent.statistics().bundles, 0);
}

/// Requirements: B60, E12.
#[test]
fn waiting_bundles_are_delivered_in_the_order_of_arrival() {
    let mut world = reporting(|_| {});
    let late = Eid::ipn(3, 9);
    for len in [30, 10, 20] {
        send(&mut world, 1, SendRequest::new(late.clone(), payload(len)));
        world.settle();
    }
    assert_eq!(taken(&world, 2).len(), 0);
    world.nodes[2].agent.register(&late).unwrap();
    world.drain(2);
    world.settle();
    assert_eq!(taken(&world, 2), [30, 10, 20].map(payload));
}

/// Requirements: P19.
#[test]
fn a_long_bundle_crosses() {
    let mut world = World::chain(3, true, 1);
    world.piece = 1 << 16;
    world.settle();
    let long = payload(10 << 20);
    send(&mut world, 0, SendRequest::new(endpoint(2), long.clone()));
    world.settle();
    assert!(taken(&world, 2) == [long]);
}

#[test]
fn a_bundle_that_arrives_too_late_is_reported() {
    let mut world = reporting(|_| {});
    world.pass(secs(20));
    let flags = BundleFlags::REPORT_DELETION;
    let primary = seven(Eid::ipn(66, 6), endpoint(2));
    let primary = Primary { flags, report_to: node(0), lifetime_ms: 5000, ..primary };
    world.hand_in(1, 0, &bytes_of_seven(primary, b"x"));
    world.settle();
    assert_eq!(reasons(&world).0, [Reason::LifetimeExpired]);
    let is_deleted = |indication: &Indication| {
        matches!(indication, Indication::Deleted { reason: Reason::LifetimeExpired, .. })
    };
    assert!(world.nodes[1].indications.iter().any(is_deleted));
    let statistics = world.nodes[1].agent.statistics();
    assert_eq!((statistics.expired, statistics.bundles), (1, 0));
}
