//! Attacks, as the bytes that a stranger sends to an agent.

use wire::bp6;
use wire::bp7::{
    Bundle, BundleFlags, CrcType, CreationTimestamp, Eid, Head, Payload, Primary, Reason,
};
use wire::bpsec::ShaVariant;

use super::super::agent::{Indication, Reports, RequestError, SendRequest, Version};
use super::super::security::{Key, OnFault, Operation, Policy, Role, Rule};
use super::agent::{payload, send, taken};
use super::world::{World, chain, endpoint, node};

/// Creation time of bundles made here, within the world's present.
pub(super) const NOW_MS: u64 = 800_000_009_000;
/// An hour.
const LIFETIME_MS: u64 = 3_600_000;

/// Primary block of version 6 from `source` to `destination`, by numbers.
fn six(source: Eid, destination: Eid) -> bp6::Primary {
    bp6::Primary {
        flags: bp6::BundleFlags::SINGLETON,
        destination,
        source,
        creation: bp6::CreationTimestamp { time_s: NOW_MS / 1000, sequence: 5 },
        lifetime_s: LIFETIME_MS / 1000,
        ..bp6::Primary::default()
    }
}

pub(super) fn bytes_of_six(primary: bp6::Primary, payload: &[u8]) -> Vec<u8> {
    let len = payload.len() as u64;
    let block = bp6::Payload { flags: bp6::BlockFlags::LAST, len, ..bp6::Payload::default() };
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
        source: super::super::agent::Pattern::Any,
        destination: super::super::agent::Pattern::Any,
        targets: vec![1],
        key: "sign".to_owned(),
        scope: wire::bpsec::Scope::ALL,
        on_fault,
    };
    let keys = [("sign".to_owned(), Key::new(&[1; 32]))].into();
    Policy { rules: vec![rule], keys, ..Policy::default() }
}

fn reasons(world: &World, n: usize) -> Vec<Reason> {
    let reports = world.nodes[n].indications.iter().filter_map(|indication| match indication {
        Indication::Report { report, .. } => Some(report.reason),
        _ => None,
    });
    reports.collect()
}

/// Node 1 behind node 0, both with these settings.
fn guarded(change: impl Fn(&mut super::super::agent::Config)) -> World {
    let mut configs: Vec<_> = (0..2).map(|at| chain(2, at, true)).collect();
    change(&mut configs[1]);
    let mut world = World::new(configs, 1);
    world.connect(0, 1);
    world.settle();
    world
}

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
            primary.flags = primary.flags.with(bp6::BundleFlags(BundleFlags::REPORT_DELETION.0));
            world.hand_in(1, 0, &bytes_of_six(primary, b"forged"));
            world.settle();
            assert_eq!(taken(&world, 1).len(), delivered, "{role:?} {on_fault:?}");
            let statistics = world.nodes[1].agent.statistics();
            assert_eq!(statistics.deleted, 1 - delivered as u64, "{role:?} {on_fault:?}");
            assert_eq!(reasons(&world, 0).len(), 1 - delivered, "{role:?} {on_fault:?}");
        }
    }
}

#[test]
fn version_6_is_not_sent_where_a_rule_protects() {
    let mut configs: Vec<_> = (0..2).map(|at| chain(2, at, true)).collect();
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
    let mut configs: Vec<_> = (0..2).map(|at| chain(2, at, true)).collect();
    configs[0].security = signed(Role::Source, OnFault::Delete);
    configs[1].security = signed(Role::Acceptor, OnFault::Pass);
    let mut world = World::new(configs, 1);
    world.connect(0, 1);
    world.settle();
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
    send(&mut world, 0, SendRequest::new(endpoint(1), payload(11)));
    world.settle();
    world.nodes[1].endpoints.push(endpoint(1));
    world.nodes[1].indications.clear();
    world.crash(1);
    world.settle();
    let passed: Vec<_> = world.nodes[1].indications.iter().filter_map(of).collect();
    assert_eq!(passed, [(Version::Seven, vec![1])]);
}
