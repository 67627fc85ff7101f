//! Bundles of version 6: classes of service, custody, and other features that version 7 lacks.

use crate::codec::bp6::{self, Block, BlockFlags, Bundle, Payload, Primary, Trailer};
use crate::codec::bp7::{BundleFlags, Eid, Status};

use super::super::agent::{
    Custody, Indication, Reports, RequestError, Routing, SendRequest, Version,
};
use super::super::routes::Priority;
use super::agent::{payload, secs, send, taken};
use super::world::{World, chains, endpoint, node};

fn request(to: usize, len: usize) -> SendRequest {
    SendRequest {
        version: Version::Six,
        custody: true,
        ..SendRequest::new(endpoint(to), payload(len))
    }
}

fn held(world: &World) -> Vec<usize> {
    world.nodes.iter().map(|node| node.agent.statistics().bundles).collect()
}

fn custodians(world: &World, n: usize) -> Vec<Eid> {
    let indications = world.nodes[n].indications.iter();
    let custody = indications.filter_map(|indication| match indication {
        Indication::CustodyTaken { by, .. } => Some(by.clone()),
        _ => None,
    });
    custody.collect()
}

fn decode(bytes: &[u8]) -> Bundle<'_> {
    Bundle::decode(bytes, &bp6::Bounds::default()).unwrap()
}

/// Requirements: F01a.
#[test]
fn versions_coexist_without_translation() {
    let mut world = World::chain(3, true, 1);
    world.settle();
    for version in [Version::Six, Version::Seven] {
        let request = SendRequest { version, custody: false, ..request(2, 5000) };
        send(&mut world, 0, request);
        world.settle();
    }
    assert_eq!(taken(&world, 2), [payload(5000), payload(5000)]);
    let firsts: Vec<u8> = world.crossed.iter().map(|(.., bytes)| bytes[0]).collect();
    assert_eq!(firsts, [6, 6, 0x9f, 0x9f]);
    assert_eq!(held(&world), [0; 3]);
    // Previous hop (RFC 6259).
    let hop = |n: usize| {
        let bundle = decode(&world.crossed[n].2);
        let block = bundle.head.block_of(bp6::PREVIOUS_HOP).unwrap().clone();
        block.to_previous_hop(bundle.head.primary()).unwrap()
    };
    assert_eq!([hop(0), hop(1)], [node(0), node(1)]);
}

/// Requirements: E06a, E07.
#[test]
fn custody_goes_from_node_to_node() {
    let mut world = World::chain(4, true, 1);
    world.disconnect(2, 3);
    world.settle();
    send(&mut world, 0, request(3, 9000));
    world.settle();
    // A node that forwarded it does not keep it.
    assert_eq!(custodians(&world, 0), [node(1)]);
    assert_eq!(custodians(&world, 1), [node(2)]);
    assert_eq!(held(&world), [0, 0, 1, 0]);
    let (.., bytes) = &world.crossed[0];
    assert_eq!(decode(bytes).head.primary().custodian, node(0));
    world.crash(2);
    world.settle();
    world.connect(2, 3);
    world.settle();
    assert_eq!(taken(&world, 3), [payload(9000)]);
    assert_eq!(custodians(&world, 2), [node(3)]);
    assert_eq!(held(&world), [0; 4]);
}

/// Requirements: E06c, E08.
#[test]
fn bundles_without_a_custodian_are_retransmitted() {
    let mut configs = chains(3, true);
    // The node in between forwards bundles without keeping them.
    configs[1].custody.accept = false;
    let mut world = World::connected(configs, &[(0, 1), (1, 2)]);
    world.disconnect(1, 2);
    send(&mut world, 0, request(2, 100));
    world.settle();
    assert_eq!(held(&world), [1, 1, 0]);
    // It is lost there by a crash, as the store keeps nothing.
    world.nodes[1].config.persistent = false;
    world.crash(1);
    world.settle();
    world.connect(1, 2);
    world.settle();
    assert_eq!(taken(&world, 2).len(), 0);
    world.pass(secs(61));
    assert_eq!(taken(&world, 2), [payload(100)]);
    assert_eq!(world.nodes[0].agent.statistics().resent, 1);
    assert_eq!(custodians(&world, 0), [node(2)]);
    assert_eq!(held(&world), [0; 3]);
}

/// The destination has it first, and neither it nor the other neighbour signals custody.
#[test]
fn a_bundle_in_transit_is_not_retransmitted() {
    let mut configs = chains(3, true);
    configs[0].routing = Routing::Epidemic;
    for config in &mut configs[1..] {
        config.custody.accept = false;
    }
    let mut world = World::new(configs, 1);
    world.slow.insert((0, 1));
    world.connect(0, 1);
    world.connect(0, 2);
    world.settle();
    send(&mut world, 0, request(2, 100));
    world.settle();
    assert_eq!((world.in_transit(0, 1), world.in_transit(0, 2)), (1, 0));
    let resent = |world: &World| world.nodes[0].agent.statistics().resent;
    world.pass(secs(70));
    assert_eq!((resent(&world), world.crossed.len()), (0, 2));
    // The timeout begins when the transmission ends.
    world.release();
    world.pass(secs(59));
    assert_eq!(resent(&world), 0);
    world.pass(secs(2));
    assert_eq!(resent(&world), 1);
}

/// Requirements: E05.
#[test]
fn a_lost_signal_is_replaced_by_the_next() {
    let mut configs = chains(3, false);
    configs[1].custody.accept = false;
    let mut world = World::connected(configs, &[(0, 1), (1, 2)]);
    send(&mut world, 0, request(2, 100));
    while world.crossed.len() < 2 {
        world.carry(0);
        (0..3).for_each(|n| {
            world.act(n, 0);
        });
    }
    // Node 1 has accepted custody and signals that; the signal is lost on its way back.
    for _ in 0..10 {
        world.act(1, 1);
    }
    world.disconnect(0, 1);
    world.settle();
    world.crash(1);
    world.connect(0, 1);
    world.settle();
    assert_eq!(taken(&world, 2), [payload(100)]);
    assert_eq!(held(&world), [1, 0, 0]);
    world.pass(secs(61));
    // It is redundant there, which counts as success.
    assert_eq!(custodians(&world, 0), [node(2)]);
    assert_eq!(world.nodes[2].agent.statistics().duplicates, 1);
    assert_eq!(taken(&world, 2).len(), 1);
    assert_eq!(held(&world), [0; 3]);
}

#[test]
fn custody_of_all_fragments_releases_the_bundle() {
    let mut world = World::new(chains(3, true), 1);
    world.bundle_max = 1200;
    world.connect(0, 1);
    world.connect(1, 2);
    world.settle();
    send(&mut world, 0, request(2, 9000));
    world.settle();
    assert_eq!(taken(&world, 2), [payload(9000)]);
    assert_eq!(custodians(&world, 0), [node(1)]);
    assert_eq!(held(&world), [0; 3]);
}

/// Requirements: G02, G03.
#[test]
fn signals_are_aggregated() {
    let mut configs = chains(2, true);
    for config in &mut configs {
        config.custody = Custody { aggregate_after: Some(secs(5)), ..Custody::default() };
    }
    let mut world = World::connected(configs, &[(0, 1)]);
    for _ in 0..20 {
        send(&mut world, 0, request(1, 10));
    }
    world.settle();
    assert_eq!(held(&world), [20, 0]);
    world.pass(secs(6));
    assert_eq!(held(&world), [0, 0]);
    assert_eq!(custodians(&world, 0).len(), 20);
    let back: Vec<_> = world.crossed.iter().filter(|(from, ..)| *from == 1).collect();
    assert_eq!(back.len(), 1);
    let record = decode(&back[0].2);
    let record = bp6::AdministrativeRecord::decode(record.payload, &bp6::Bounds::default());
    let Ok(bp6::AdministrativeRecord::AggregateCustodySignal(signal)) = record else {
        panic!("{record:?}");
    };
    assert!(signal.succeeded);
    assert_eq!(signal.fills.iter().map(|fill| fill.length).sum::<u64>(), 20);
}

#[test]
fn urgent_bundles_go_first() {
    let mut world = World::new(chains(2, true), 1);
    world.settle();
    let priorities = [Priority::Bulk, Priority::Normal, Priority::Expedited];
    for (n, priority) in priorities.into_iter().enumerate() {
        for _ in 0..2 {
            send(&mut world, 0, SendRequest { priority, custody: false, ..request(1, 10 + n) });
        }
    }
    world.settle();
    world.connect(0, 1);
    world.settle();
    let classes: Vec<_> = world
        .crossed
        .iter()
        .map(|(.., bytes)| decode(bytes).head.primary().flags.priority())
        .collect();
    let [bulk, normal, expedited] =
        [bp6::Priority::Bulk, bp6::Priority::Normal, bp6::Priority::Expedited];
    assert_eq!(classes, [expedited, expedited, normal, normal, bulk, bulk]);
}

/// Requirements: B49a.
#[test]
fn reports_of_version_6_return_to_the_source() {
    let mut configs = chains(3, true);
    for config in &mut configs {
        config.reports = Reports {
            reception: true,
            forwarding: true,
            delivery: true,
            deletion: true,
            custody: true,
        };
    }
    let mut world = World::connected(configs, &[(0, 1), (1, 2)]);
    let flags = BundleFlags::REPORT_RECEPTION
        .with(BundleFlags::REPORT_FORWARDING)
        .with(BundleFlags::REPORT_DELIVERY);
    send(&mut world, 0, SendRequest { flags, ..request(2, 10) });
    world.settle();
    let mut reports = Vec::new();
    for (from, report) in world.nodes[0].reports() {
        let at = [report.received, report.forwarded, report.delivered];
        reports.push((from.clone(), at.map(|status| status != Status::NotAsserted)));
        assert!(at.contains(&Status::At(800_000_010_000)), "{report:?}");
    }
    reports.sort_unstable();
    let expected = [
        (node(0), [false, true, false]),
        (node(1), [false, true, false]),
        (node(1), [true, false, false]),
        (node(2), [false, false, true]),
        (node(2), [true, false, false]),
    ];
    assert_eq!(reports, expected);
}

/// Requirements: E03, E04.
#[test]
fn blocks_on_both_sides_of_the_payload_do_what_their_flags_say() {
    let cases = [
        (BlockFlags::default(), Some(2)),
        (BlockFlags::DISCARD, Some(0)),
        (BlockFlags::DELETE_BUNDLE, None),
    ];
    for (flags, kept) in cases {
        for has_dictionary in [false, true] {
            let mut world = World::chain(3, false, 1);
            world.settle();
            let primary = Primary {
                flags: BundleFlags::SINGLETON,
                destination: endpoint(2),
                source: Eid::ipn(9, 9),
                creation: bp6::CreationTimestamp { time_s: 800_000_000, sequence: 1 },
                lifetime_s: 1000,
                dictionary: has_dictionary.then(Box::default),
                ..Primary::default()
            };
            let block = || Block::new(200, flags, Vec::new(), b"what").unwrap();
            let plain = Payload { len: 2, ..Payload::default() };
            let head = bp6::Head::new(primary, vec![block()], plain).unwrap();
            let trailer = Trailer::new(vec![block()]);
            let bytes = Bundle { head, payload: b"hi", trailer }.to_vec().unwrap();
            world.hand_in(1, 0, &bytes);
            world.settle();
            assert_eq!(taken(&world, 2).len(), usize::from(kept.is_some()), "{flags:?}");
            let Some(kept) = kept else { continue };
            let bundle = decode(&world.crossed[0].2);
            let blocks = bundle.head.blocks().iter().chain(bundle.trailer.blocks());
            let of: Vec<_> = blocks.filter(|block| block.kind() == 200).collect();
            assert_eq!(of.len(), kept, "{flags:?}");
            // Nodes that could not process them set the flag.
            assert!(of.iter().all(|block| block.flags().contains(BlockFlags::FORWARDED)));
        }
    }
}

#[test]
fn version_6_bundles_require_a_clock() {
    let mut configs = chains(2, true);
    configs[0].clock = None;
    let mut world = World::new(configs, 1);
    world.settle();
    let now = world.now;
    let refused = world.nodes[0].agent.send(now, request(1, 1));
    assert!(matches!(refused, Err(RequestError::Conflict(_))), "{refused:?}");
}

/// Requirements: E04.
#[test]
fn unknown_blocks_of_version_6_are_reported_as_unintelligible() {
    let mut configs = chains(3, true);
    configs[1].reports = Reports { reception: true, deletion: true, ..Reports::default() };
    let mut world = World::connected(configs, &[(0, 1)]);
    let flags = BlockFlags::REPORT.with(BlockFlags::DELETE_BUNDLE);
    let block = Block::new(200, flags, Vec::new(), b"what").unwrap();
    let mut primary = super::attacks::six(Eid::ipn(66, 6), endpoint(2));
    primary.report_to = node(0);
    primary.flags = primary.flags.with(BundleFlags::REPORT_DELETION);
    let plain = Payload { len: 2, flags: BlockFlags::LAST, ..Payload::default() };
    let head = bp6::Head::new(primary, vec![block], plain).unwrap();
    let trailer = Trailer::new(Vec::new());
    world.hand_in(1, 0, &Bundle { head, payload: b"hi", trailer }.to_vec().unwrap());
    world.settle();
    let reasons: Vec<_> = world
        .crossed
        .iter()
        .map(|(.., bytes)| {
            let record = decode(bytes).payload.to_vec();
            match bp6::AdministrativeRecord::decode(&record, &bp6::Bounds::default()) {
                Ok(bp6::AdministrativeRecord::StatusReport(report)) => report.reason,
                other => panic!("{other:?}"),
            }
        })
        .collect();
    assert_eq!(reasons, [bp6::Reason::BlockUnintelligible; 2]);
}

/// Requirements: I10a.
#[test]
fn version_6_has_no_allocators() {
    let mut world = World::chain(2, true, 1);
    world.settle();
    let destination: Eid = "ipn:977000.100.1".parse().unwrap();
    let now = world.now;
    let request = SendRequest { destination, custody: false, ..request(1, 1) };
    let refused = world.nodes[0].agent.send(now, request.clone());
    assert!(matches!(refused, Err(RequestError::Conflict(_))), "{refused:?}");
    let request = SendRequest { version: Version::Seven, ..request };
    assert!(world.nodes[0].agent.send(now, request).is_ok());
}

/// Requirements: G02.
#[test]
fn fills_count_from_the_last_number_of_the_fill_before() {
    let mut configs = chains(2, true);
    configs[0].custody.aggregate_after = Some(secs(5));
    configs[1].custody.accept = false;
    let mut world = World::connected(configs, &[(0, 1)]);
    for len in 10..16 {
        send(&mut world, 0, request(1, len));
        world.settle();
    }
    let first = decode(&world.crossed[0].2).head.block_of(bp6::CUSTODY_ENHANCEMENT).cloned();
    let first = bp6::CustodyEnhancement::from_block(&first.unwrap()).unwrap().id;
    let ids = |world: &World| world.nodes[0].agent.bundles().map(|of| of.id).collect::<Vec<_>>();
    let before = ids(&world);
    let mut sequence = 0;
    let mut signal = |world: &mut World, fills: &[(u64, u64)]| {
        let fills = fills.iter().map(|&(start, length)| bp6::Fill { start, length }).collect();
        let (succeeded, reason) = (true, bp6::CustodyReason::NoInformation);
        let signal = bp6::AggregateCustodySignal { succeeded, reason, fills };
        let record = bp6::AdministrativeRecord::AggregateCustodySignal(signal).to_vec().unwrap();
        let mut primary = super::attacks::six(node(1), node(0));
        primary.flags = primary.flags.with(BundleFlags::ADMINISTRATIVE);
        sequence += 1;
        primary.creation.sequence = sequence;
        world.hand_in(0, 1, &super::attacks::bytes_of_six(primary, &record));
        world.settle();
    };
    // A number that was not given voids the whole record, wherever it is.
    for fills in [&[(0, 1 << 63)][..], &[(first, 2), (3, 3)], &[(first - 1, 3)], &[(first, 7)]] {
        signal(&mut world, fills);
        assert_eq!(ids(&world), before, "{fills:?}");
    }
    assert_eq!(world.nodes[0].agent.statistics().signals_ignored, 4);
    // The first two and the last but one: 3 numbers behind the second.
    signal(&mut world, &[(first, 2), (3, 1)]);
    assert_eq!(ids(&world), [2, 3, 5].map(|n| before[n].clone()));
}

/// Requirements: E11, G01.
#[test]
fn a_number_of_another_custodian_is_void() {
    for (named, is_single) in [(node(0), false), (Eid::ipn(77, 0), true)] {
        let mut configs = chains(2, true);
        configs[1].custody.aggregate_after = Some(secs(5));
        let mut world = World::connected(configs, &[(0, 1)]);
        let mut primary = super::attacks::six(Eid::ipn(66, 6), endpoint(1));
        primary.custodian = node(0);
        primary.flags = primary.flags.with(BundleFlags::CUSTODY);
        let enhancement = bp6::CustodyEnhancement { id: 7, custodian: named };
        let block = enhancement.to_block(BlockFlags::DISCARD).unwrap();
        let plain = Payload { len: 2, flags: BlockFlags::LAST, ..Payload::default() };
        let head = bp6::Head::new(primary, vec![block], plain).unwrap();
        let trailer = Trailer::new(Vec::new());
        world.hand_in(1, 0, &Bundle { head, payload: b"hi", trailer }.to_vec().unwrap());
        world.pass(secs(6));
        let record = decode(&world.crossed[0].2).payload.to_vec();
        match bp6::AdministrativeRecord::decode(&record, &bp6::Bounds::default()).unwrap() {
            bp6::AdministrativeRecord::CustodySignal(signal) => {
                assert!(is_single && signal.succeeded);
                assert_eq!(signal.subject.source, Eid::ipn(66, 6));
            }
            bp6::AdministrativeRecord::AggregateCustodySignal(signal) => {
                assert!(!is_single && signal.succeeded);
                assert_eq!(signal.fills, [bp6::Fill { start: 7, length: 1 }]);
            }
            other => panic!("{other:?}"),
        }
    }
}

/// Requirements: E10.
#[test]
fn a_custodian_reports_a_deletion_without_request() {
    let mut configs = chains(3, true);
    configs[1].reports = Reports { deletion: true, ..Reports::default() };
    let mut world = World::connected(configs, &[(0, 1)]);
    send(&mut world, 0, SendRequest { lifetime: secs(60), ..request(2, 10) });
    world.settle();
    assert_eq!(held(&world), [0, 1, 0]);
    world.pass(secs(61));
    assert_eq!(held(&world), [0; 3]);
    let reports: Vec<_> = world.nodes[0].reports().collect();
    let [(from, report)] = reports[..] else { panic!("{reports:?}") };
    let expected = (&node(1), crate::codec::bp7::Reason::LifetimeExpired);
    assert_eq!((from, report.reason), expected);
}
