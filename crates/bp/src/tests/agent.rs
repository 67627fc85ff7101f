//! Procedures of an agent, one at a time.

use std::iter;
use std::time::Duration;

use bytes::Bytes;
use engine::{
    Completion, Effect, EffectError, Engine as _, FileName, FilestoreRequest, Input, MemoryStore,
    StoreEffect, Time,
};
use routing::settings::Settings as RouteSettings;

use super::super::agent::{
    Agent, COPIES, Config, Indication, Limit, Limits, Reports, RequestError, Routing, SendRequest,
    State, Summary, Version,
};
use super::super::contacts::{Contact, ContactPlan};
use super::super::layer::{Command, Content, Event, LinkId, Refusal, TransferId};
use super::super::routes::{Priority, Router};
use super::attacks::{bytes_of_seven, seven};
use super::world::{World, chain, chains, endpoint, node};
use crate::codec::bp7::{
    BUNDLE_AGE, Block, BlockFlags, Bounds, Bundle, BundleFlags, CrcType, Eid, Extension, HOP_COUNT,
    Head, HopCount, PREVIOUS_NODE, Payload, Primary, Reason, Status,
};

pub(super) fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

pub(super) fn payload(len: usize) -> Vec<u8> {
    (0..len).map(|n| (n * 7 + n / 256) as u8).collect()
}

pub(super) fn taken(world: &World, n: usize) -> Vec<Vec<u8>> {
    world.nodes[n].taken.iter().map(|(_, content)| content.clone()).collect()
}

pub(super) fn send(world: &mut World, n: usize, request: SendRequest) {
    let now = world.now;
    world.nodes[n].agent.send(now, request).unwrap();
    world.drain(n);
}

/// Requirements: B43, B67c.
#[test]
fn bundles_cross_a_relay_and_leave_nothing_behind() {
    for persistent in [false, true] {
        for len in [0, 10, 4096, 4097, 100_000] {
            let mut world = World::chain(3, persistent, 1);
            world.settle();
            send(&mut world, 0, SendRequest::new(endpoint(2), payload(len)));
            world.settle();
            assert_eq!(taken(&world, 2), [payload(len)], "{persistent} {len}");
            for n in 0..3 {
                let statistics = world.nodes[n].agent.statistics();
                assert_eq!((statistics.bundles, statistics.bytes), (0, 0), "{n}");
                assert_eq!(world.nodes[n].disk.files(), 0, "{n}");
            }
            let relay = world.nodes[1].agent.statistics();
            assert_eq!((relay.received, relay.forwarded), (1, 1));
        }
    }
}

#[test]
fn a_cancelled_bundle_makes_room() {
    let mut world = World::chain(2, false, 1);
    world.settle();
    for len in [1, 2, 3] {
        send(&mut world, 0, SendRequest::new(endpoint(1), payload(len)));
    }
    while world.act(0, 1) {}
    assert_eq!(world.crossed.len(), 2, "the window is full");
    let under_way = world.nodes[0].agent.bundles().next().expect("three are held").id;
    world.nodes[0].agent.cancel(world.now, &under_way).unwrap();
    world.drain(0);
    while world.act(0, 1) {}
    assert_eq!(world.crossed.len(), 3);
    world.settle();
    assert_eq!(taken(&world, 1), [payload(2), payload(3)]);
}

#[test]
fn short_bundles_may_exceed_the_window() {
    for (len, under_way) in [(100, 6), (450, 2), (2000, 2)] {
        let mut world = World::chain(2, false, 1);
        world.settle();
        world.disconnect(0, 1);
        world.window_bytes = 1000;
        world.connect(0, 1);
        let payloads: Vec<_> = (0..20).map(|n| payload(len + n)).collect();
        for payload in &payloads {
            send(&mut world, 0, SendRequest::new(endpoint(1), payload.clone()));
        }
        let is_sent = |of: &Summary| of.state == State::Sending;
        // Five bundles of 100 bytes with a head of some 70 are less than 1,000 bytes, so a sixth is
        // sent.
        assert_eq!(world.nodes[0].agent.bundles().filter(is_sent).count(), under_way, "{len}");
        world.settle();
        // Bundles in transit together arrive in any order.
        let mut taken = taken(&world, 1);
        taken.sort_by_key(Vec::len);
        assert_eq!(taken, payloads);
    }
}

/// Requirements: B16b, B25, B27a, B27b, B29b, B46, B47.
#[test]
fn previous_node_hop_count_and_age_are_those_of_the_last_node() {
    let mut configs = chains(3, false);
    configs[0].clock = None;
    configs[0].hop_limit = Some(2);
    let mut world = World::connected(configs, &[(0, 1)]);
    send(&mut world, 0, SendRequest::new(endpoint(2), payload(10)));
    world.settle();
    world.pass(secs(100));
    assert_eq!(taken(&world, 2).len(), 0);
    world.connect(1, 2);
    world.settle();
    assert_eq!(taken(&world, 2).len(), 1);
    let crossed = |from| {
        let found = world.crossed.iter().find(|(n, ..)| *n == from).expect("it crossed");
        Bundle::decode(&found.2, &Bounds::default()).unwrap().head
    };
    let extension = |head: &Head, kind| {
        head.block_of(kind).expect("the block").extension(&Bounds::default()).unwrap()
    };
    for (from, count, age_ms) in [(0, 1, 0), (1, 2, 100_000)] {
        let head = crossed(from);
        assert_eq!(head.primary().creation.time_ms, 0);
        assert_eq!(extension(&head, PREVIOUS_NODE), Extension::PreviousNode(node(from)));
        let hops = HopCount { limit: 2, count };
        assert_eq!(extension(&head, HOP_COUNT), Extension::HopCount(hops));
        assert_eq!(extension(&head, BUNDLE_AGE), Extension::BundleAge { age_ms });
    }
}

/// Requirements: B13, B30, B52.
#[test]
fn a_bundle_that_was_forwarded_too_often_is_deleted() {
    let mut configs = chains(4, false);
    configs[0].hop_limit = Some(1);
    configs[1].reports = Reports { deletion: true, ..Reports::default() };
    let mut world = World::new(configs, 1);
    for n in 1..4 {
        world.connect(n - 1, n);
    }
    world.settle();
    let flags = BundleFlags::REPORT_DELETION;
    send(&mut world, 0, SendRequest { flags, ..SendRequest::new(endpoint(3), payload(10)) });
    world.settle();
    assert_eq!(world.nodes[1].agent.statistics().deleted, 1);
    assert_eq!(world.nodes[2].agent.statistics().received, 0);
    let reports: Vec<_> = world.nodes[0].reports().collect();
    assert_eq!(reports.len(), 1);
    assert_eq!(*reports[0].0, node(1));
    assert_eq!(reports[0].1.deleted, Status::Asserted);
    assert_eq!(reports[0].1.reason, Reason::HopLimitExceeded);
}

/// Requirements: B23a, B54, B67b, B67c.
#[test]
fn expired_bundles_are_deleted_and_reported() {
    let mut world = World::chain(3, true, 1);
    world.disconnect(1, 2);
    world.settle();
    let lifetime = secs(60);
    send(&mut world, 0, SendRequest { lifetime, ..SendRequest::new(endpoint(2), payload(5000)) });
    world.settle();
    assert_eq!(world.nodes[1].agent.statistics().bundles, 1);
    assert_eq!(world.nodes[1].disk.files(), 1);
    world.pass(secs(59));
    assert_eq!(world.nodes[1].agent.statistics().bundles, 1);
    world.pass(secs(2));
    let statistics = world.nodes[1].agent.statistics();
    assert_eq!((statistics.bundles, statistics.expired), (0, 1));
    assert_eq!(world.nodes[1].disk.files(), 0);
    world.connect(1, 2);
    world.settle();
    assert_eq!(taken(&world, 2).len(), 0);
    // Nothing is remembered for ever.
    world.pass(secs(3600));
    assert!(world.nodes.iter().all(|node| engine::Engine::poll_timeout(&node.agent).is_none()));
    assert_eq!(world.nodes[1].disk.records(), 0);
}

/// Requirements: B61.
#[test]
fn delivery_reports_return_with_the_time() {
    let mut world = World::chain(3, true, 1);
    world.settle();
    let flags = BundleFlags::REPORT_DELIVERY.with(BundleFlags::STATUS_TIME);
    send(&mut world, 0, SendRequest { flags, ..SendRequest::new(endpoint(2), payload(10)) });
    world.settle();
    let reports = world.nodes[0].reports();
    let times: Vec<Status> = reports.map(|(_, report)| report.delivered).collect();
    assert_eq!(times, [Status::At(800_000_010_000)]);
}

/// Requirements: B43, B55a.
#[test]
fn crashes_lose_no_stored_bundle_and_accept_none_twice() {
    let mut world = World::chain(3, true, 1);
    world.disconnect(1, 2);
    world.settle();
    for len in [10, 20_000] {
        send(&mut world, 0, SendRequest::new(endpoint(2), payload(len)));
    }
    world.settle();
    world.crash(1);
    world.settle();
    assert_eq!(world.nodes[1].agent.statistics().bundles, 2);
    world.connect(1, 2);
    world.settle();
    assert_eq!(taken(&world, 2), [payload(10), payload(20_000)]);
    // It also remembers bundles over a crash.
    world.crash(2);
    world.crash(1);
    world.settle();
    assert_eq!(taken(&world, 2).len(), 2);
    assert_eq!(world.nodes[1].disk.files() + world.nodes[2].disk.files(), 0);
}

#[test]
fn files_of_layers_are_removed_after_a_crash() {
    let mut world = World::chain(2, true, 1);
    world.settle();
    for name in ["bundle-0123456789abcdef-7", "0000000000000011", "of-somebody-else"] {
        let name = FileName::spool(&format!("bp/{name}")).unwrap();
        world.nodes[1].disk.insert(name, vec![7; 1000]);
    }
    world.crash(1);
    world.settle();
    assert_eq!(world.nodes[1].disk.files(), 1);
}

/// Requirements: B60, P16, P17.
#[test]
fn bundles_wait_for_a_user() {
    let mut world = World::chain(2, true, 1);
    world.nodes[1].endpoints.push(Eid::ipn(2, 9));
    world.settle();
    send(&mut world, 0, SendRequest::new(Eid::ipn(2, 9), payload(10)));
    world.settle();
    assert_eq!(world.nodes[1].taken.len(), 0);
    world.crash(1);
    world.settle();
    assert_eq!(taken(&world, 1), [payload(10)]);
    let again = world.nodes[1].agent.register(&Eid::ipn(2, 9));
    assert_eq!(again, Err(RequestError::Taken));
    assert_eq!(world.nodes[1].agent.register(&Eid::ipn(1, 9)), Err(RequestError::NotOurs));
}

#[test]
fn a_full_store_refuses_until_there_is_room() {
    let mut configs = chains(3, true);
    configs[1].limits = Limits { bytes: 25_000, ..Limits::default() };
    let mut world = World::connected(configs, &[(0, 1)]);
    for _ in 0..2 {
        send(&mut world, 0, SendRequest::new(endpoint(2), payload(20_000)));
    }
    for _ in 0..3000 {
        world.carry(0);
        for n in 0..3 {
            world.act(n, 0);
        }
    }
    assert_eq!(world.nodes[1].agent.statistics().bundles, 1);
    let limit = Indication::LimitReached(Limit::Bytes);
    assert!(world.nodes[1].indications.contains(&limit));
    let now = world.now;
    let agent = &mut world.nodes[1].agent;
    let mut refused =
        |len| agent.send(now, SendRequest::new(endpoint(2), payload(len))).unwrap_err();
    assert_eq!(refused(20_000), RequestError::Full);
    // Its head has to be held, too.
    let RequestError::TooLong { most } = refused(25_000) else { panic!("it is too long") };
    assert!((24_900..25_000).contains(&most), "{most}");
    assert_eq!(refused(most as usize), RequestError::Full);
    assert_eq!(refused(most as usize + 1), RequestError::TooLong { most });
}

/// No held bundle is dropped for a new one, however urgent.
#[test]
fn a_full_store_keeps_its_bundles() {
    let mut configs = chains(2, true);
    configs[0].limits = Limits { bundles: 3, ..Limits::default() };
    let mut world = World::new(configs, 1);
    world.settle();
    for (len, priority) in [(1, Priority::Bulk), (2, Priority::Normal), (3, Priority::Bulk)] {
        let request = SendRequest::new(endpoint(1), payload(len));
        send(&mut world, 0, SendRequest { priority, ..request });
    }
    let now = world.now;
    let request = SendRequest::new(endpoint(1), payload(4));
    let urgent = SendRequest { priority: Priority::Expedited, ..request };
    assert_eq!(world.nodes[0].agent.send(now, urgent.clone()), Err(RequestError::Full));
    world.settle();
    world.connect(0, 1);
    world.settle();
    assert_eq!(taken(&world, 1), [payload(2), payload(1), payload(3)]);
    send(&mut world, 0, urgent);
    world.settle();
    assert_eq!(taken(&world, 1).last(), Some(&payload(4)));
}

#[test]
fn full_disks_refuse_bundles_without_losses() {
    let mut world = World::chain(3, true, 1);
    world.disconnect(1, 2);
    world.settle();
    send(&mut world, 0, SendRequest::new(endpoint(2), payload(20_000)));
    world.settle();
    world.nodes[1].disk.capacity = Some(30_000);
    world.disconnect(0, 1);
    send(&mut world, 0, SendRequest::new(endpoint(2), payload(15_000)));
    world.settle();
    world.connect(0, 1);
    for _ in 0..1000 {
        world.carry(0);
        for n in 0..3 {
            world.act(n, 0);
        }
    }
    let limit = Indication::LimitReached(Limit::Bytes);
    assert!(world.nodes[1].indications.contains(&limit), "{:?}", world.nodes[1].indications);
    world.nodes[1].disk.capacity = None;
    world.connect(1, 2);
    world.pass(secs(60));
    let mut lengths: Vec<usize> = taken(&world, 2).iter().map(Vec::len).collect();
    lengths.sort_unstable();
    assert_eq!(lengths, [15_000, 20_000]);
}

#[test]
fn payloads_in_records_are_stored_with_their_bundles() {
    let limits = Limits { inline: 1 << 20, ..Limits::default() };
    let configs = (0..3).map(|at| Config { limits, ..chain(3, at, true) });
    let mut world = World::connected(configs.collect(), &[(0, 1)]);
    for len in [4096, 4097, 20_000] {
        send(&mut world, 0, SendRequest::new(endpoint(2), payload(len)));
    }
    world.settle();
    assert_eq!((world.nodes[1].disk.files(), world.nodes[1].disk.payloads()), (0, 2));
    world.crash(1);
    world.settle();
    assert_eq!(world.nodes[1].agent.statistics().bundles, 3);
    // There is room for the record, and none for the payload.
    world.nodes[1].disk.leave_room(10_000);
    send(&mut world, 0, SendRequest::new(endpoint(2), payload(15_000)));
    world.settle();
    let limit = Indication::LimitReached(Limit::Bytes);
    assert!(world.nodes[1].indications.contains(&limit), "{:?}", world.nodes[1].indications);
    world.crash(1);
    world.settle();
    assert_eq!(world.nodes[1].agent.statistics().bundles, 3);
    assert_eq!(world.nodes[1].disk.payloads(), 2);
    world.nodes[1].disk.capacity = None;
    world.connect(1, 2);
    world.pass(secs(60));
    let mut lengths: Vec<usize> = taken(&world, 2).iter().map(Vec::len).collect();
    lengths.sort_unstable();
    assert_eq!(lengths, [4096, 4097, 15_000, 20_000]);
    assert_eq!(world.nodes[1].disk.payloads() + world.nodes[2].disk.payloads(), 0);
}

/// A disk has no room for the record that would free the file of a discarded bundle.
#[test]
fn discarded_bundles_free_space_on_a_full_disk() {
    let mut world = World::chain(3, true, 1);
    world.disconnect(1, 2);
    world.settle();
    send(&mut world, 0, SendRequest::new(endpoint(2), payload(20_000)));
    world.settle();
    world.nodes[1].disk.leave_room(0);
    send(&mut world, 0, SendRequest::new(endpoint(2), payload(15_000)));
    world.connect(1, 2);
    world.pass(secs(10));
    let lengths: Vec<usize> = taken(&world, 2).iter().map(Vec::len).collect();
    assert_eq!(lengths, [20_000, 15_000]);
    assert_eq!(world.nodes[1].disk.files(), 0);
}

#[test]
fn failed_records_are_retried_and_survive_a_crash() {
    for crashes in [false, true] {
        let mut world = World::chain(3, true, 1);
        world.disconnect(1, 2);
        world.settle();
        for len in [10, 20_000] {
            send(&mut world, 0, SendRequest::new(endpoint(2), payload(len)));
        }
        world.settle();
        world.nodes[1].disk.capacity = Some(0);
        world.connect(1, 2);
        world.pass(secs(3));
        assert_eq!(taken(&world, 2), [payload(10), payload(20_000)]);
        let failed = Indication::StoreFailed(EffectError::NoSpace);
        let reports = world.nodes[1].indications.iter().filter(|it| **it == failed).count();
        assert!((1..=3).contains(&reports), "{reports}");
        if crashes {
            // The end of the short bundle, which has no file, is not recorded.
            world.crash(1);
            world.settle();
            assert_eq!(world.nodes[1].agent.statistics().bundles, 0);
        }
        world.nodes[1].disk.capacity = None;
        world.pass(secs(10));
        assert_eq!(world.nodes[1].disk.files(), 0);
        let forwarded = world.crossed.len();
        world.crash(1);
        world.pass(secs(2));
        assert_eq!(world.crossed.len(), forwarded, "it is known to be gone");
        assert_eq!(taken(&world, 2).len(), 2);
    }
}

#[test]
fn a_file_is_sent_with_its_crc() {
    let mut world = World::chain(2, true, 1);
    let name = FileName::file("image").unwrap();
    world.nodes[0].disk.insert(name.clone(), payload(70_000));
    world.settle();
    let content = Content::File { name, offset: 1000, len: 60_000 };
    let request = SendRequest { payload: content, ..SendRequest::new(endpoint(1), Vec::new()) };
    send(&mut world, 0, request);
    world.settle();
    assert_eq!(taken(&world, 1), [payload(70_000)[1000..61_000].to_vec()]);
}

/// Requirements: B58a, B58b, B58c.
#[test]
fn unknown_blocks_follow_their_flags() {
    let cases = [
        (BlockFlags::default(), 1, 1),
        (BlockFlags::DISCARD, 1, 0),
        (BlockFlags::DELETE_BUNDLE, 0, 0),
    ];
    for (flags, arrives, kept) in cases {
        let mut world = World::chain(3, false, 1);
        world.settle();
        let primary = Primary {
            crc: CrcType::Crc32c,
            destination: endpoint(2),
            source: Eid::ipn(9, 9),
            lifetime_ms: 1_000_000_000_000,
            ..Primary::default()
        };
        let block = Block::new(200, 2, flags, CrcType::None, b"what").unwrap();
        let plain = Payload { len: 2, ..Payload::default() };
        let head = Head::new(primary, vec![block], plain).unwrap();
        let bytes = [&head.encode()[..], b"hi", &[0xff]].concat();
        world.hand_in(1, 0, &bytes);
        world.settle();
        assert_eq!(world.nodes[2].taken.len(), arrives, "{flags:?}");
        let crossed: Vec<_> = world.crossed.iter().filter(|(from, ..)| *from == 1).collect();
        assert_eq!(crossed.len(), arrives, "{flags:?}");
        for (_, _, bytes) in crossed {
            let head = Bundle::decode(bytes, &Bounds::default()).unwrap().head;
            let there = head.block_of(200).map(|block| block.data().to_vec());
            assert_eq!(there, (kept == 1).then(|| b"what".to_vec()), "{flags:?}");
        }
    }
}

/// Requirements: B04.
#[test]
fn invalid_data_are_refused_and_counted() {
    let mut world = World::chain(2, true, 1);
    world.settle();
    for bytes in [&b"hello, this is no bundle at all"[..], &[0x9f, 0x88, 7], &[]] {
        world.hand_in(1, 0, bytes);
        world.settle();
    }
    let statistics = world.nodes[1].agent.statistics();
    assert_eq!((statistics.malformed, statistics.received, statistics.refused), (3, 0, 3));
    assert_eq!(world.nodes[1].disk.files(), 0);
}

/// An incomplete head of a longer bundle is decoded once more when all bytes have arrived.
#[test]
fn a_head_malformed_at_its_end_is_refused_at_once() {
    let mut world = World::chain(2, true, 1);
    world.settle();
    // Its first bytes may still be a head; the last one shows that they are not.
    let bytes = [&[0x9f, 0x88, 7, 0, 0, 0x82, 1, 0, 0x82, 1, 0][..], &[0xff; 3]].concat();
    let (link, transfer) = (LinkId(0), TransferId(1 << 50));
    let now = world.now;
    for event in [
        Event::Begins { link, transfer, bytes: None },
        Event::Piece { link, transfer, bytes: Bytes::copy_from_slice(&bytes[..11]) },
        Event::Piece { link, transfer, bytes: Bytes::copy_from_slice(&bytes[11..]) },
        Event::Whole { link, transfer, file: None },
    ] {
        world.nodes[1].agent.handle_event(now, 0, event);
    }
    let command = world.nodes[1].agent.poll_command();
    let why = Refusal::NotAcceptable;
    assert_eq!(command, Some((0, Command::Refuse { link, transfer, why })));
    assert_eq!(world.nodes[1].agent.poll_command(), None);
    assert_eq!(world.nodes[1].agent.statistics().malformed, 1);
}

#[test]
fn a_plan_routes_around_failed_contacts() {
    // From node 1 to node 4 over 2, whose link breaks, or over 3 later.
    let at = Time::from_secs;
    let contact = |from, to, start, end| Contact {
        from,
        to,
        start: at(start),
        end: at(end),
        rate_bps: 8_000_000,
        confidence: 1.0,
    };
    let plan = vec![
        contact(1, 2, 20, 100),
        contact(2, 4, 30, 200),
        contact(1, 3, 150, 200),
        contact(3, 4, 160, 300),
    ];
    let plan = ContactPlan::new(plan, &[]).unwrap();
    let mut configs = chains(4, true);
    for (n, config) in configs.iter_mut().enumerate() {
        let router = Router::new(n as u64 + 1, plan.clone(), RouteSettings::default());
        config.routing = Routing::ContactGraph(Box::new(router), Vec::new());
    }
    let mut world = World::new(configs, 1);
    world.settle();
    send(&mut world, 0, SendRequest::new(endpoint(3), payload(10_000)));
    world.settle();
    world.pass(secs(30));
    // The contact with 2 is current, but the link is not up.
    assert_eq!(world.nodes[0].agent.statistics().bundles, 1);
    world.connect(0, 1);
    world.disconnect(0, 1);
    world.pass(secs(130));
    world.connect(0, 2);
    world.connect(2, 3);
    world.settle();
    assert_eq!(taken(&world, 3), [payload(10_000)]);
}

#[test]
fn copies_are_sent_to_all_nodes_without_one() {
    let mut configs = chains(4, true);
    for config in &mut configs {
        config.routing = Routing::Epidemic;
    }
    let mut world = World::new(configs, 1);
    world.settle();
    let lifetime = secs(1000);
    send(&mut world, 0, SendRequest { lifetime, ..SendRequest::new(endpoint(3), payload(100)) });
    world.settle();
    for (a, b) in [(0, 1), (0, 2), (1, 2), (1, 3), (2, 3)] {
        world.connect(a, b);
        world.settle();
        world.disconnect(a, b);
        world.settle();
    }
    assert_eq!(taken(&world, 3), [payload(100)]);
    // Neighbours do not exchange lists of bundles: one copy was superfluous.
    let statistics = world.nodes[2].agent.statistics();
    assert_eq!((statistics.received, statistics.duplicates), (2, 1));
    world.pass(secs(1001));
    assert!(world.nodes.iter().all(|node| node.agent.statistics().bundles == 0));
}

/// A neighbour gets four of eight copies, the next two, the third one; a node with one copy keeps
/// it for the destination.
#[test]
fn copies_are_halved_and_the_last_waits() {
    for version in [Version::Seven, Version::Six] {
        let mut configs = chains(6, true);
        for config in &mut configs {
            config.routing = Routing::Spray { copies: 8 };
        }
        let mut world = World::new(configs, 1);
        world.settle();
        let request = SendRequest { version, ..SendRequest::new(endpoint(5), payload(100)) };
        send(&mut world, 0, SendRequest { lifetime: secs(1000), ..request });
        world.settle();
        for (a, b) in [(0, 1), (0, 2), (0, 3), (0, 4), (1, 3), (3, 4)] {
            world.connect(a, b);
            world.settle();
            world.disconnect(a, b);
            world.settle();
        }
        let given: Vec<_> =
            world.crossed.iter().map(|(from, to, bytes)| (*from, *to, copies(bytes))).collect();
        let expected = match version {
            // 0 has 8, 4, 2, 1 and then none to spare; 1 has 4, and 3 already has its own.
            Version::Seven => vec![(0, 1, 4), (0, 2, 2), (0, 3, 1), (1, 3, 2)],
            // One each, kept for the destination.
            Version::Six => vec![(0, 1, 0), (0, 2, 0), (0, 3, 0), (0, 4, 0)],
        };
        assert_eq!(given, expected, "{version:?}");
        world.connect(2, 5);
        world.settle();
        assert_eq!(taken(&world, 5), [payload(100)]);
        assert_eq!(world.nodes[2].agent.statistics().bundles, 0);
        world.pass(secs(1001));
        assert!(world.nodes.iter().all(|node| node.agent.statistics().bundles == 0));
    }
}

/// Number of copies in a bundle; 0 without the block.
fn copies(bytes: &[u8]) -> u8 {
    let bundle = Bundle::decode(bytes, &Bounds::default());
    let copies = bundle.ok().and_then(|b| Some(b.head.block_of(COPIES)?.data()[0]));
    copies.unwrap_or(0)
}

#[test]
fn copies_that_did_not_cross_are_given_to_others() {
    let mut configs = chains(3, true);
    for config in &mut configs {
        config.routing = Routing::Spray { copies: 2 };
    }
    let mut world = World::new(configs, 1);
    world.settle();
    send(&mut world, 0, SendRequest::new(Eid::ipn(9, 1), payload(100)));
    world.settle();
    world.connect(0, 1);
    world.act(0, 1);
    assert_eq!(world.crossed.len(), 1);
    world.disconnect(0, 1);
    world.connect(0, 2);
    world.settle();
    assert_eq!(world.nodes[1].agent.statistics().bundles, 0);
    assert_eq!(world.nodes[2].agent.statistics().bundles, 1);
}

/// Requirements: B41.
#[test]
fn invalid_requests_are_refused() {
    let mut world = World::chain(2, true, 1);
    world.settle();
    let now = world.now;
    let agent = &mut world.nodes[0].agent;
    let mut refused = |request| agent.send(now, request).unwrap_err();
    assert_eq!(refused(SendRequest::new(Eid::None, payload(1))), RequestError::NoDestination);
    let foreign =
        SendRequest { source: Some(endpoint(1)), ..SendRequest::new(endpoint(1), payload(1)) };
    assert_eq!(refused(foreign), RequestError::NotOurs);
    let nobody =
        SendRequest { source: Some(Eid::None), ..SendRequest::new(endpoint(1), payload(1)) };
    assert!(matches!(refused(nobody), RequestError::Conflict(_)));
    let custody = SendRequest { custody: true, ..SendRequest::new(endpoint(1), payload(1)) };
    assert!(matches!(refused(custody), RequestError::Conflict(_)));
    assert_eq!(world.nodes[0].agent.statistics().bundles, 0);
}

/// A copy of a bundle that is not safe yet is not safe either.
#[test]
fn copies_of_a_bundle_are_answered_when_it_is_stored() {
    for is_full in [false, true] {
        let mut world = World::chain(3, true, 1);
        world.disconnect(1, 2);
        world.settle();
        let bytes = bytes_of_seven(seven(Eid::ipn(66, 6), endpoint(2)), b"payload");
        let (now, agent, link) = (world.now, &mut world.nodes[1].agent, LinkId(0));
        for transfer in [1, 2].map(TransferId) {
            let bytes = Bytes::copy_from_slice(&bytes);
            agent.handle_event(now, 0, Event::Begins { link, transfer, bytes: None });
            agent.handle_event(now, 0, Event::Piece { link, transfer, bytes });
            agent.handle_event(now, 0, Event::Whole { link, transfer, file: None });
        }
        let replies = |agent: &mut Agent| {
            let commands = iter::from_fn(|| agent.poll_command());
            let replies = commands.filter_map(|(_, command)| match command {
                Command::Accept { transfer, .. } => Some((transfer.0, None)),
                Command::Refuse { transfer, why, .. } => Some((transfer.0, Some(why))),
                _ => None,
            });
            replies.collect::<Vec<_>>()
        };
        assert_eq!(replies(agent), []);
        let mut disk = MemoryStore::new();
        while let Some(effect) = agent.poll_effect() {
            let Effect::Store(effect) = effect else { panic!("{effect:?}") };
            let Some((ticket, mut result)) = disk.execute(effect) else { continue };
            if is_full {
                result = Err(EffectError::NoSpace);
            }
            agent.handle_input(now, Input::Done(ticket, result));
        }
        let reply = is_full.then_some(Refusal::NoResources);
        assert_eq!(replies(agent), [(1, reply), (2, reply)]);
    }
}

#[test]
fn bundles_that_left_take_no_memory() {
    let mut configs = chains(2, true);
    configs[0].limits = Limits { inline_total: 150, ..Limits::default() };
    let mut world = World::new(configs, 1);
    world.settle();
    for _ in 0..3 {
        for files in [0, 1] {
            send(&mut world, 0, SendRequest::new(endpoint(1), payload(100)));
            world.settle();
            assert_eq!(world.nodes[0].disk.files(), files);
        }
        world.connect(0, 1);
        world.settle();
        assert_eq!(world.nodes[0].agent.statistics().bundles, 0);
        world.disconnect(0, 1);
    }
}

/// Its giver waits for a reply.
#[test]
fn a_bundle_that_expires_while_it_is_stored_is_answered() {
    let mut world = World::chain(3, true, 1);
    world.disconnect(1, 2);
    world.settle();
    let primary = Primary { lifetime_ms: 60_000, ..seven(Eid::ipn(66, 6), endpoint(2)) };
    world.hand_in(1, 0, &bytes_of_seven(primary, b"payload"));
    assert_eq!(world.nodes[1].agent.statistics().bundles, 1);
    world.pass_a_little(secs(61));
    let states = world.nodes[1].agent.bundles().map(|bundle| bundle.state);
    assert_eq!(states.collect::<Vec<_>>(), [State::Storing]);
    world.pass(secs(2));
    let statistics = world.nodes[1].agent.statistics();
    assert_eq!((statistics.bundles, statistics.expired), (0, 1));
}

/// A crash between the two must not leave a record without its payload.
#[test]
fn payloads_are_deleted_when_the_end_of_their_bundles_is_recorded() {
    let mut world = World::chain(2, true, 1);
    world.disconnect(0, 1);
    world.settle();
    send(&mut world, 0, SendRequest::new(endpoint(1), payload(20_000)));
    world.settle();
    let (now, agent) = (world.now, &mut world.nodes[0].agent);
    let id = agent.bundles().next().expect("it is held").id;
    agent.cancel(now, &id).unwrap();
    let effects: Vec<_> = iter::from_fn(|| agent.poll_effect()).collect();
    let [Effect::Store(StoreEffect::Index { ticket, .. })] = &effects[..] else {
        panic!("{effects:?}");
    };
    agent.handle_input(now, Input::Done(*ticket, Ok(Completion::Done)));
    let deleted = iter::from_fn(|| agent.poll_effect());
    let is_deletion = |effect: &Effect| {
        let Effect::Store(StoreEffect::Filestore { request, .. }) = effect else { return false };
        matches!(request, FilestoreRequest::DeleteFile(_))
    };
    assert_eq!(deleted.filter(is_deletion).count(), 1);
}
