//! Attacks, as the bytes that a stranger sends to an agent.

use crate::codec::bp6;
use crate::codec::bp7::{
    BlockFlags, Bundle, BundleFlags, CrcType, CreationTimestamp, Eid, Extension, Head, HopCount,
    Payload, Primary,
};
use crate::codec::bpsec::ShaVariant;

use super::super::agent::{
    Entry, Indication, Pattern, Reports, RequestError, Routing, SendRequest, Version,
};
use super::super::security::{Key, OnFault, Operation, Policy, Role, Rule};
use super::agent::{payload, send, taken};
use super::world::{World, chains, endpoint, node};

/// Creation time of bundles made here, within the world's present.
const NOW_MS: u64 = 800_000_009_000;
/// An hour.
const LIFETIME_MS: u64 = 3_600_000;

/// Primary block of version 6 from `source` to `destination`, by numbers.
pub(super) fn six(source: Eid, destination: Eid) -> bp6::Primary {
    bp6::Primary {
        flags: BundleFlags::SINGLETON,
        destination,
        source,
        creation: bp6::CreationTimestamp { time_s: NOW_MS / 1000, sequence: 5 },
        lifetime_s: LIFETIME_MS / 1000,
        ..bp6::Primary::default()
    }
}

pub(super) fn bytes_of_six(primary: bp6::Primary, payload: &[u8]) -> Vec<u8> {
    let len = payload.len() as u64;
    let block = bp6::Payload { flags: BlockFlags::LAST, len, ..bp6::Payload::default() };
    let head = bp6::Head::new(primary, Vec::new(), block).unwrap();
    bp6::Bundle { head, payload, trailer: bp6::Trailer::new(Vec::new()) }.to_vec().unwrap()
}

/// Primary block of version 7.
pub(super) fn seven(source: Eid, destination: Eid) -> Primary {
    Primary {
        crc: CrcType::Crc32c,
        destination,
        source,
        creation: CreationTimestamp { time_ms: NOW_MS, sequence: 5 },
        lifetime_ms: LIFETIME_MS,
        ..Primary::default()
    }
}

pub(super) fn bytes_of_seven(primary: Primary, payload: &[u8]) -> Vec<u8> {
    let len = payload.len() as u64;
    let block = Payload { crc: CrcType::Crc32c, len, ..Payload::default() };
    let head = Head::new(primary, Vec::new(), block).unwrap();
    Bundle { head, payload }.to_vec().unwrap()
}

/// A policy with one rule about signed payloads of all bundles.
pub(super) fn signed(role: Role, on_fault: OnFault) -> Policy {
    let rule = Rule {
        role,
        operation: Operation::Integrity(ShaVariant::Sha512),
        source: Pattern::Any,
        destination: Pattern::Any,
        targets: vec![1],
        key: "sign".to_owned(),
        scope: crate::codec::bpsec::Scope::ALL,
        on_fault,
    };
    let keys = [("sign".to_owned(), Key::new(&[1; 32]))].into();
    Policy { rules: vec![rule], keys, ..Policy::default() }
}

/// Node 1 behind node 0, both with these settings.
fn guarded(change: impl Fn(&mut super::super::agent::Config)) -> World {
    let mut configs = chains(2, true);
    change(&mut configs[1]);
    World::connected(configs, &[(0, 1)])
}

/// Requirements: C13a, C17.
#[test]
fn version_6_does_not_evade_a_security_rule() {
    for role in [Role::Acceptor, Role::Verifier] {
        for (on_fault, delivered) in [(OnFault::Delete, 0), (OnFault::Strip, 0), (OnFault::Pass, 1)]
        {
            let mut world = guarded(|config| {
                config.security = signed(role, on_fault);
                config.reports = Reports { deletion: true, ..Reports::default() };
            });
            let mut primary = six(node(0), endpoint(1));
            primary.report_to = node(0);
            primary.flags = primary.flags.with(BundleFlags::REPORT_DELETION);
            world.hand_in(1, 0, &bytes_of_six(primary, b"forged"));
            world.settle();
            assert_eq!(taken(&world, 1).len(), delivered, "{role:?} {on_fault:?}");
            let statistics = world.nodes[1].agent.statistics();
            assert_eq!(statistics.deleted, 1 - delivered as u64, "{role:?} {on_fault:?}");
            assert_eq!(world.nodes[0].reports().count(), 1 - delivered, "{role:?} {on_fault:?}");
        }
    }
}

#[test]
fn version_6_is_not_sent_where_a_rule_protects() {
    let mut configs = chains(2, true);
    configs[0].security = signed(Role::Source, OnFault::Delete);
    let mut world = World::new(configs, 1);
    world.settle();
    let now = world.now;
    let request =
        SendRequest { version: Version::Six, ..SendRequest::new(endpoint(1), payload(10)) };
    let refused = world.nodes[0].agent.send(now, request);
    assert!(matches!(refused, Err(RequestError::Conflict(_))), "{refused:?}");
}

#[test]
fn a_version_that_is_not_used_is_refused() {
    let mut world = guarded(|config| config.versions = [Version::Seven].into());
    // Byte by byte, at once, and with a payload for a file.
    for (len, piece) in [(3, 1), (3, 1000), (9000, 100)] {
        let before = world.nodes[1].agent.statistics().refused;
        let bytes = bytes_of_six(six(Eid::ipn(66, 6), endpoint(1)), &payload(len));
        world.hand_in_pieces(1, 0, &bytes, piece);
        world.settle();
        let statistics = world.nodes[1].agent.statistics();
        assert_eq!((statistics.refused - before, statistics.bundles), (1, 0), "{len} {piece}");
        assert_eq!(world.nodes[1].disk.files(), 0);
    }
    assert_eq!(taken(&world, 1).len(), 0);
    let now = world.now;
    let request =
        SendRequest { version: Version::Six, ..SendRequest::new(endpoint(0), payload(10)) };
    let refused = world.nodes[1].agent.send(now, request);
    assert!(matches!(refused, Err(RequestError::Conflict(_))), "{refused:?}");
    // The other version is unaffected.
    world.hand_in(1, 0, &bytes_of_seven(seven(Eid::ipn(66, 6), endpoint(1)), b"hi"));
    world.settle();
    assert_eq!(taken(&world, 1), [b"hi".to_vec()]);
}

#[test]
fn a_delivery_names_its_version_and_the_rules_it_passed() {
    let mut configs = chains(2, true);
    configs[0].security = signed(Role::Source, OnFault::Delete);
    configs[1].security = signed(Role::Acceptor, OnFault::Pass);
    let mut world = World::connected(configs, &[(0, 1)]);
    send(&mut world, 0, SendRequest::new(endpoint(1), payload(10)));
    world.settle();
    let plain = seven(Eid::ipn(66, 6), endpoint(1));
    world.hand_in(1, 0, &bytes_of_seven(plain, b"unsigned"));
    world.hand_in(1, 0, &bytes_of_six(six(Eid::ipn(66, 6), endpoint(1)), b"old"));
    world.settle();
    let of = |indication: &Indication| match indication {
        Indication::Delivered { version, verified, .. } => Some((*version, verified.clone())),
        _ => None,
    };
    let passed: Vec<_> = world.nodes[1].indications.iter().filter_map(of).collect();
    let expected = [(Version::Seven, vec![1]), (Version::Seven, vec![]), (Version::Six, vec![])];
    assert_eq!(passed, expected);
    // Also after a restart, before the application confirms.
    world.nodes[1].endpoints.clear();
    world.crash(1);
    world.settle();
    send(&mut world, 0, SendRequest::new(endpoint(1), payload(11)));
    world.settle();
    world.nodes[1].endpoints.push(endpoint(1));
    world.nodes[1].indications.clear();
    world.crash(1);
    world.settle();
    let passed: Vec<_> = world.nodes[1].indications.iter().filter_map(of).collect();
    assert_eq!(passed, [(Version::Seven, vec![1])]);
}

/// An administrative record of version 6.
fn record_of_six(source: Eid, to: Eid, record: &bp6::AdministrativeRecord) -> Vec<u8> {
    let mut primary = six(source, to);
    primary.flags = primary.flags.with(BundleFlags::ADMINISTRATIVE);
    bytes_of_six(primary, &record.to_vec().unwrap())
}

fn aggregate(start: u64, length: u64) -> bp6::AdministrativeRecord {
    let fills = vec![bp6::Fill { start, length }];
    let (succeeded, reason) = (true, bp6::CustodyReason::NoInformation);
    let signal = bp6::AggregateCustodySignal { succeeded, reason, fills };
    bp6::AdministrativeRecord::AggregateCustodySignal(signal)
}

/// A signal that custody of a bundle was accepted.
fn single(of: &crate::codec::bp7::BundleId) -> bp6::AdministrativeRecord {
    let creation = bp6::CreationTimestamp {
        time_s: of.creation.time_ms / 1000,
        sequence: of.creation.sequence,
    };
    bp6::AdministrativeRecord::CustodySignal(bp6::CustodySignal {
        subject: bp6::Subject { source: of.source.clone(), creation, fragment: None },
        succeeded: true,
        reason: bp6::CustodyReason::NoInformation,
        time: bp6::DtnTime { seconds: 1, nanoseconds: 0 },
    })
}

fn in_custody(to: usize, len: usize) -> SendRequest {
    let (version, custody) = (Version::Six, true);
    SendRequest { version, custody, ..SendRequest::new(endpoint(to), payload(len)) }
}

/// Signals that end custody of everything, as from strangers.
fn forged(of: &[crate::codec::bp7::BundleId]) -> Vec<Vec<u8>> {
    let mut forged = Vec::new();
    for source in [Eid::ipn(66, 6), node(1), node(2)] {
        let record = |record: &_| record_of_six(source.clone(), node(0), record);
        forged.push(record(&aggregate(0, 1 << 40)));
        forged.push(record(&aggregate(0, u64::MAX)));
        forged.extend(of.iter().map(|id| record(&single(id))));
    }
    // Each is a bundle of its own.
    for (n, bytes) in forged.iter_mut().enumerate() {
        let bundle = bp6::Bundle::decode(bytes, &bp6::Bounds::default()).unwrap();
        let mut primary = bundle.head.primary().clone();
        primary.creation.sequence = n as u64;
        *bytes = bytes_of_six(primary, bundle.payload);
    }
    forged
}

/// Requirements: E07.
#[test]
fn strangers_do_not_end_custody() {
    for aggregate_after in [None, Some(std::time::Duration::from_secs(5))] {
        let mut configs = chains(3, true);
        configs[0].custody.aggregate_after = aggregate_after;
        let mut world = World::new(configs, 1);
        world.settle();
        for _ in 0..20 {
            send(&mut world, 0, in_custody(2, 10));
        }
        world.settle();
        let ids: Vec<_> = world.nodes[0].agent.bundles().map(|held| held.id).collect();
        assert_eq!(ids.len(), 20);
        // Nothing was sent yet: nobody can have it. Link 9 is of an unknown node.
        let signals = forged(&ids);
        for bytes in &signals {
            world.hand_in(0, 9, bytes);
        }
        world.settle();
        assert_eq!(world.nodes[0].agent.statistics().bundles, 20, "{aggregate_after:?}");
        let statistics = world.nodes[0].agent.statistics();
        assert!(statistics.signals_ignored >= 60, "{statistics:?}");
        let ignored = |of: &&Indication| matches!(of, Indication::SignalIgnored { .. });
        let indicated = world.nodes[0].indications.iter().filter(ignored).count();
        assert!((1..=10).contains(&indicated), "{indicated}");
    }
}

/// Requirements: E07, E11.
#[test]
fn custody_ends_by_the_signal_of_whom_it_was_sent_to() {
    let mut configs = chains(3, true);
    for config in &mut configs[1..] {
        config.custody.accept = false;
    }
    let mut world = World::connected(configs, &[(0, 1)]);
    send(&mut world, 0, in_custody(2, 10));
    world.settle();
    let id = world.nodes[0].agent.bundles().next().unwrap().id;
    let kept = |world: &World| world.nodes[0].agent.statistics().bundles;
    let mut sequence = 0;
    let mut signal = |source: Eid| {
        let bytes = record_of_six(source, node(0), &single(&id));
        let bundle = bp6::Bundle::decode(&bytes, &bp6::Bounds::default()).unwrap();
        let mut primary = bundle.head.primary().clone();
        sequence += 1;
        primary.creation.sequence = sequence;
        bytes_of_six(primary, bundle.payload)
    };
    // A stranger that names the neighbour, and one that names the destination.
    for source in [node(1), node(2), Eid::ipn(66, 6)] {
        world.hand_in(0, 9, &signal(source));
        world.settle();
        assert_eq!(kept(&world), 1);
    }
    // Over the neighbour's link, from the destination.
    world.hand_in(0, 1, &signal(node(2)));
    world.settle();
    assert_eq!(kept(&world), 0);
}

/// Requirements: G01, G02.
#[test]
fn numbers_of_custody_are_not_those_of_the_store() {
    let mut configs = chains(2, true);
    configs[0].custody.aggregate_after = Some(std::time::Duration::from_secs(5));
    configs[1].custody.accept = false;
    let mut world = World::connected(configs, &[(0, 1)]);
    for _ in 0..20 {
        send(&mut world, 0, in_custody(1, 10));
    }
    world.settle();
    let numbers: Vec<u64> = world
        .crossed
        .iter()
        .map(|(.., bytes)| {
            let bundle = bp6::Bundle::decode(bytes, &bp6::Bounds::default()).unwrap();
            let block = bundle.head.block_of(bp6::CUSTODY_ENHANCEMENT).unwrap().clone();
            bp6::CustodyEnhancement::from_block(&block).unwrap().id
        })
        .collect();
    assert_eq!(numbers.len(), 20);
    assert!(numbers.windows(2).all(|pair| pair[0] + 1 == pair[1]), "{numbers:?}");
    assert!(numbers[0] > 1000, "{numbers:?}");
    // A neighbour that was sent all is believed about its own numbers, not beyond them.
    let signal = record_of_six(node(1), node(0), &aggregate(numbers[0], 5));
    world.hand_in(0, 1, &signal);
    world.settle();
    assert_eq!(world.nodes[0].agent.statistics().bundles, 15);
    assert_eq!(world.nodes[0].agent.statistics().signals_ignored, 0);
    let mut primary = six(node(1), node(0));
    primary.flags = primary.flags.with(BundleFlags::ADMINISTRATIVE);
    primary.creation.sequence = 77;
    let beyond = aggregate(numbers[19] + 1, 1 << 40).to_vec().unwrap();
    world.hand_in(0, 1, &bytes_of_six(primary, &beyond));
    world.settle();
    assert_eq!(world.nodes[0].agent.statistics().bundles, 15);
    assert_eq!(world.nodes[0].agent.statistics().signals_ignored, 1);
}

#[test]
fn the_number_of_a_whole_bundle_is_not_that_of_its_parts() {
    let mut configs = chains(2, true);
    for config in &mut configs {
        config.custody.aggregate_after = Some(std::time::Duration::from_secs(5));
    }
    let mut world = World::new(configs, 1);
    world.bundle_max = 1200;
    world.connect(0, 1);
    world.settle();
    send(&mut world, 0, in_custody(1, 9000));
    // One part crosses, and the link breaks before the others.
    while world.nodes[1].agent.statistics().bundles == 0 {
        world.carry(0);
        (0..2).for_each(|n| {
            world.act(n, 0);
        });
    }
    world.disconnect(0, 1);
    world.settle();
    world.connect(0, 1);
    world.pass(std::time::Duration::from_secs(10));
    assert_eq!(taken(&world, 1), [payload(9000)]);
    assert_eq!(world.nodes[0].agent.statistics().bundles, 0);
}

/// Requirements: B15, B41.
#[test]
fn a_forged_source_does_not_poison_creation_timestamps() {
    for (time_ms, sequence) in [(u64::MAX, 5), (NOW_MS + 31_536_000_000, 0)] {
        let mut world = World::chain(2, true, 1);
        world.settle();
        let creation = CreationTimestamp { time_ms, sequence };
        for source in [endpoint(0), Eid::ipn(1, 0), Eid::ipn(1, 77)] {
            for destination in [endpoint(0), endpoint(1), Eid::ipn(77, 1)] {
                let lifetime_ms = 1_000_000_000;
                let primary = seven(source.clone(), destination);
                let primary = Primary { creation, lifetime_ms, ..primary };
                world.hand_in(0, 1, &bytes_of_seven(primary, b"forged"));
                let mut old = six(source.clone(), endpoint(1));
                old.creation = bp6::CreationTimestamp { time_s: time_ms / 1000, sequence };
                world.hand_in(0, 1, &bytes_of_six(old, b"forged"));
                world.settle();
            }
        }
        let statistics = world.nodes[0].agent.statistics();
        assert_eq!((statistics.refused, statistics.bundles), (18, 0));
        world.crash(0);
        world.settle();
        for version in [Version::Seven, Version::Six] {
            let request = SendRequest { version, ..SendRequest::new(endpoint(1), payload(10)) };
            send(&mut world, 0, request);
        }
        world.settle();
        let stamps: Vec<_> = world.nodes[1].taken.iter().map(|(id, _)| id.creation).collect();
        let expected = [
            CreationTimestamp { time_ms: 800_000_010_000, sequence: 0 },
            CreationTimestamp { time_ms: 800_000_010_000, sequence: 1 },
        ];
        assert_eq!(stamps, expected);
    }
}

/// Requirements: B15.
#[test]
fn a_clock_that_was_set_back_makes_new_timestamps_without_a_future() {
    let mut world = World::chain(2, true, 1);
    world.settle();
    let mut all = Vec::new();
    for back_ms in [0, 0, 500, 31_536_000_000, 31_536_000_000] {
        let clock = 800_000_000_000 - back_ms;
        world.nodes[0].config.clock = Some(clock);
        world.crash(0);
        world.settle();
        for _ in 0..2 {
            send(&mut world, 0, SendRequest::new(Eid::ipn(77, 1), payload(1)));
        }
        world.settle();
        let ids = world.nodes[0].agent.bundles().map(|held| held.id.creation);
        let new: Vec<_> = ids.filter(|made| !all.contains(made)).collect();
        assert_eq!(new.len(), 2, "{back_ms}");
        assert!(new.iter().all(|made| made.time_ms == clock + 10_000), "{new:?}");
        all.extend(new);
    }
}

/// Two fragments of a signed bundle, and its payload.
pub(super) fn signed_fragments(len: usize) -> ([Vec<u8>; 2], Vec<u8>) {
    let mut configs = chains(2, true);
    configs[0].security = signed(Role::Source, OnFault::Delete);
    let mut world = World::new(configs, 1);
    world.bundle_max = len as u64 * 2 / 3 + 300;
    world.connect(0, 1);
    world.settle();
    send(&mut world, 0, SendRequest::new(endpoint(1), payload(len)));
    world.settle();
    let parts: Vec<_> = world.crossed.iter().map(|(.., bytes)| bytes.to_vec()).collect();
    (parts.try_into().unwrap(), payload(len))
}

/// A fragment like another, with this payload, offset and total length.
pub(super) fn like(fragment: &[u8], offset: u64, total: u64, payload: &[u8]) -> Vec<u8> {
    let bundle = Bundle::decode(fragment, &crate::codec::bp7::Bounds::default()).unwrap();
    let fragment = Some(crate::codec::bp7::Fragment { offset, total });
    let primary = Primary { fragment, ..bundle.head.primary().clone() };
    let block = Payload { len: payload.len() as u64, ..bundle.head.payload() };
    let head = Head::new(primary, bundle.head.blocks().to_vec(), block).unwrap();
    Bundle { head, payload }.to_vec().unwrap()
}

/// Requirements: B65.
#[test]
fn a_forged_fragment_does_not_destroy_a_signed_bundle() {
    for len in [1000, 9000] {
        let ([first, second], whole) = signed_fragments(len);
        let total = len as u64;
        // Of another length: complete at once. Of the same one: its byte comes before the true one.
        for forged in [like(&first, 0, 1, b"!"), like(&first, 0, total, b"!")] {
            let is_other = forged == like(&first, 0, 1, b"!");
            let mut world = guarded(|config| {
                config.security = signed(Role::Acceptor, OnFault::Delete);
            });
            let hand_in = |world: &mut World, bytes: &[u8]| {
                world.hand_in(1, 0, bytes);
                world.settle();
            };
            if is_other {
                hand_in(&mut world, &first);
            }
            hand_in(&mut world, &forged);
            hand_in(&mut world, &first);
            hand_in(&mut world, &second);
            let deleted = world.nodes[1].agent.statistics().deleted;
            assert_eq!(deleted, 1, "{len}");
            assert_eq!(taken(&world, 1), std::slice::from_ref(&whole), "{len} {is_other}");
            world.crash(1);
            world.settle();
            // Now they are duplicates.
            hand_in(&mut world, &first);
            hand_in(&mut world, &second);
            assert_eq!(taken(&world, 1).len(), 1);
            assert_eq!(world.nodes[1].agent.statistics().bundles, 0);
            assert_eq!(world.nodes[1].disk.files(), 0);
        }
    }
}

#[test]
fn a_signed_bundle_is_joined_again_after_the_store_was_full() {
    let ([first, second], whole) = signed_fragments(9000);
    let mut world = guarded(|config| config.security = signed(Role::Acceptor, OnFault::Delete));
    for bytes in [&first, &second] {
        world.hand_in(1, 0, bytes);
        if bytes == &second {
            world.nodes[1].disk.leave_room(9200);
        }
        for _ in 0..20 {
            world.act(1, 0);
        }
    }
    world.settle();
    world.nodes[1].disk.capacity = None;
    world.pass(std::time::Duration::from_secs(120));
    assert_eq!(taken(&world, 1), [whole]);
    assert_eq!(world.nodes[1].agent.statistics().bundles, 0);
    assert_eq!(world.nodes[1].disk.files(), 0);
}

/// Nodes 0 to 2, connected to each other; routes to `ipn:9.0` by the given neighbours.
fn ring(routes: [&[usize]; 3], returns: u8) -> World {
    let mut configs = chains(3, true);
    for (config, vias) in configs.iter_mut().zip(routes) {
        let entry =
            |via: &usize| Entry { to: Pattern::Node(Eid::ipn(9, 0)), via: vec![node(*via)] };
        config.routing = Routing::Static(vias.iter().map(entry).collect());
        config.limits.returns = returns;
    }
    let mut world = World::new(configs, 1);
    for (a, b) in [(0, 1), (1, 2), (0, 2)] {
        world.connect(a, b);
    }
    world.settle();
    world
}

fn held(world: &World) -> [usize; 3] {
    [0, 1, 2].map(|n| world.nodes[n].agent.statistics().bundles)
}

#[test]
fn a_bundle_that_comes_back_is_not_lost() {
    for version in [Version::Seven, Version::Six] {
        let request = SendRequest { version, ..SendRequest::new(Eid::ipn(9, 1), payload(10)) };
        // Each of two nodes leads to the other.
        let mut world = ring([&[1], &[0], &[]], 8);
        send(&mut world, 0, request.clone());
        world.settle();
        assert_eq!(held(&world), [1, 0, 0]);
        let statistics = world.nodes[0].agent.statistics();
        assert_eq!((statistics.returned, statistics.duplicates), (1, 0));
        // Also after a restart it does not go there again.
        world.crash(0);
        world.settle();
        assert_eq!((held(&world), world.crossed.len()), ([1, 0, 0], 2));
        // With another way it leaves by that.
        let mut world = ring([&[1, 2], &[0], &[]], 8);
        send(&mut world, 0, request.clone());
        world.settle();
        assert_eq!(held(&world), [0, 0, 1]);
        // Without returns its giver keeps it.
        let mut world = ring([&[1], &[0], &[]], 0);
        send(&mut world, 0, request);
        world.settle();
        assert_eq!(held(&world), [0, 1, 0]);
        assert_eq!(world.nodes[0].agent.statistics().refused, 1);
    }
}

#[test]
fn returns_in_a_ring_are_bounded() {
    // Two nodes lead to each other by two ways.
    let mut world = ring([&[1, 2], &[0, 2], &[0, 1]], 3);
    send(&mut world, 0, SendRequest::new(Eid::ipn(9, 1), payload(10)));
    world.settle();
    assert!(world.crossed.len() < 20, "{}", world.crossed.len());
    assert_eq!(held(&world).iter().sum::<usize>(), 1);
    let deleted: u64 = (0..3).map(|n| world.nodes[n].agent.statistics().deleted).sum();
    assert_eq!(deleted, 0);
}

#[test]
fn a_repeated_bundle_is_not_a_return() {
    let mut world = World::chain(3, true, 1);
    world.settle();
    let block = Payload { len: 4, ..Payload::default() };
    let hops = Extension::HopCount(HopCount { limit: 9, count: 2 });
    let hops = hops.to_block(2, BlockFlags::default(), CrcType::Crc16).unwrap();
    let head = Head::new(seven(Eid::ipn(66, 6), endpoint(2)), vec![hops], block).unwrap();
    let bytes = Bundle { head, payload: b"once" }.to_vec().unwrap();
    for restart in [false, true] {
        if restart {
            world.crash(1);
            world.settle();
        }
        world.hand_in(1, 0, &bytes);
        world.settle();
    }
    assert_eq!(taken(&world, 2), [b"once".to_vec()]);
    assert_eq!(world.nodes[1].agent.statistics().returned, 0);
    assert_eq!(world.nodes[1].agent.statistics().duplicates, 1);
}
