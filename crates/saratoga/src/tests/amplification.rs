//! Bytes sent to an address from which little came, which may be forged.

use std::time::Duration;

use engine::Time;

use super::world::{PATH, World, content, data, metadata, name, request, status};
use crate::packet::{Data, FileChecksum, Packet, RequestKind, StatusCode, v0};
use crate::test_world::lose_numbers;
use crate::{Config, GetRequest, Permissions, profile};

const SIZE: usize = 2_000_000;

/// Settings that permit everything to unknown peers.
fn config() -> Config {
    let permissions = Permissions { put: true, get: true, delete: true };
    Config { permissions, ..Config::default() }
}

/// Server with a file and a directory of 300 files; nothing that it sends arrives.
fn server(config: &Config) -> World {
    let mut world = World::alone(config.clone());
    let store = &mut world.hosts[0].store;
    store.insert(name("source"), content(SIZE));
    store.insert(name(&"n".repeat(200)), content(SIZE));
    for number in 0..300 {
        store.insert(name(&format!("file with a long name {number}")), Vec::new());
    }
    world
}

/// Delivers packets half a second apart, and asserts that at most three times their bytes are sent
/// within an hour.
fn assert_no_amplifier(config: &Config, label: &str, packets: &[Vec<u8>]) {
    let mut world = server(config);
    for packet in packets {
        world.hear(0, packet);
        world.run_until(world.now + Duration::from_millis(500));
    }
    world.run_until(Time::ZERO + Duration::from_secs(3700));
    let received: usize = packets.iter().map(Vec::len).sum();
    let sent: usize = world.log.iter().map(|sent| sent.bytes.len()).sum();
    assert!(sent <= 3 * received, "{label}: {sent} B for {received} B {:#?}", world.transcript());
    assert!(world.log.len() <= 3 * packets.len(), "{label}: {} packets", world.log.len());
}

fn bytes(packet: Packet<'_>) -> Vec<u8> {
    packet.to_vec().expect("a packet")
}

#[test]
fn requests_are_not_amplified_before_proof() {
    use RequestKind::{Delete, Get, GetDir, Give, Put, Take};
    let long = "n".repeat(200);
    for (kind, name) in [
        (Get, "source"),
        (Get, &long),
        (Get, "missing"),
        (Take, "source"),
        (GetDir, ""),
        (GetDir, "source"),
        (Delete, "source"),
        (Put, "x"),
        (Give, "x"),
    ] {
        let request = bytes(request(kind, name));
        for times in [1, 20] {
            let label = format!("{kind} {}", name.len());
            assert_no_amplifier(&config(), &label, &vec![request.clone(); times]);
        }
    }
}

/// Neither does a STATUS that returns no timestamp of the session start the transfer.
#[test]
fn a_forged_status_starts_no_transfer() {
    for kind in [RequestKind::Get, RequestKind::GetDir] {
        let name = if kind == RequestKind::Get { "source" } else { "" };
        let mut guessed = [0; 16];
        guessed[14] = 1;
        let mut packets = vec![bytes(request(kind, name))];
        for timestamp in [None, Some(guessed), Some([0; 16])] {
            for (progress, lacks_metadata) in [(0, true), (0, false), (1_000, false)] {
                let status = status(77, (progress, progress), &[]);
                let is_voluntary = timestamp.is_none();
                packets.push(bytes(Packet::Status(crate::packet::Status {
                    timestamp,
                    lacks_metadata,
                    is_voluntary,
                    ..status
                })));
            }
        }
        assert_no_amplifier(&config(), "forged STATUS", &packets);
    }
}

#[test]
fn forged_puts_are_not_amplified() {
    let described = bytes(Packet::Metadata(metadata(5_000_000, FileChecksum::None)));
    let asks = |offset| Data { wants_status: true, ..data(offset, b"x") };
    let end = Data { is_end: true, ..asks(4_000_000) };
    let once = |data: Data<'_>| bytes(Packet::Data(data));
    assert_no_amplifier(&config(), "METADATA", std::slice::from_ref(&described));
    assert_no_amplifier(&config(), "DATA", &[once(data(0, b"x"))]);
    assert_no_amplifier(&config(), "DATA that requests a STATUS", &[once(asks(0))]);
    assert_no_amplifier(&config(), "the end", &[described.clone(), once(end)]);
    // A list of holes grows with each packet.
    let holes = (0..300).map(|number| once(asks(number * 10_000)));
    let packets: Vec<_> = [described].into_iter().chain(holes).collect();
    assert_no_amplifier(&config(), "METADATA and 300 holes", &packets);
    let mut packets = packets;
    packets.extend(vec![bytes(request(RequestKind::Put, "copy")); 50]);
    assert_no_amplifier(&config(), "300 holes, then 50 requests", &packets);
}

#[test]
fn version_0_serves_only_known_peers() {
    let permissions = Permissions { get: true, ..Permissions::default() };
    let config = Config { permissions, ..profile("grc-perl-2011").expect("it is a profile") };
    let request = v0::Packet::Request(v0::Request { session: 77, path: b"source" });
    let request = request.to_vec().expect("a packet");
    for times in [1, 20] {
        assert_no_amplifier(&config, "version 0 get", &vec![request.clone(); times]);
    }
    let mut status = vec![4, 0, 0, 0, 0, 77, 0];
    assert_no_amplifier(&config, "version 0 STATUS", &[request, status.clone()]);
    status[1] = 1;
    assert_no_amplifier(&config, "version 0 STATUS alone", &[status]);
}

/// The first packet that the requester gets asks for the proof.
#[test]
fn unknown_requesters_get_files_after_a_proof() {
    for lost in [&[][..], &[0], &[1], &[0, 1], &[2, 3]] {
        let file = content(20_000);
        let mut world = World::with(&config());
        world.lose(lose_numbers(lost));
        world.hosts[0].store.insert(name("source"), file.clone());
        world.get(false);
        world.run();
        world.assert_delivered(&file);
        if lost.is_empty() {
            let lines = world.transcript();
            assert_eq!(lines[1], "> DATA 0..0 STATUS requested", "{lines:#?}");
            assert!(lines[2].starts_with("< STATUS"), "{lines:#?}");
        }
        assert!(world.now < Time::ZERO + Duration::from_secs(30), "{lost:?}: {}", world.now);
    }
}

#[test]
fn proofs_are_lost_without_harm() {
    let file = content(20_000);
    let mut world = World::with(&config());
    world.lose(|side, number, _| side == 1 && (1..4).contains(&number));
    world.hosts[0].store.insert(name("source"), file.clone());
    world.get(false);
    world.run();
    world.assert_delivered(&file);
}

#[test]
fn unknown_requesters_get_files_at_22_light_minutes() {
    for knows_delay in [false, true] {
        let file = content(200_000);
        let mut world = World::with(&config());
        world.hops[0].info.owlt = Some(Duration::from_secs(1320));
        if knows_delay {
            (0..2).for_each(|side| world.up(side));
        }
        world.hosts[0].store.insert(name("source"), file.clone());
        let request = GetRequest {
            peer: PATH,
            name: "source".to_owned(),
            destination: name("copy"),
            delete: false,
        };
        world.hosts[1].engine.get(world.now, request).expect("the request is sound");
        world.drain(1);
        while world.finished(1).is_none() && world.step() {}
        // Request, request for a proof, proof, file: two round trips.
        assert!(world.now < Time::ZERO + Duration::from_secs(4 * 1320 + 60), "{}", world.now);
        world.run();
        world.assert_delivered(&file);
    }
}

#[test]
fn listings_reach_unknown_requesters_after_a_proof() {
    let mut world = World::with(&config());
    for number in 0..300 {
        world.hosts[0].store.insert(name(&format!("file {number}")), Vec::new());
    }
    world.hosts[1].engine.list(Time::ZERO, PATH, String::new()).expect("the request is sound");
    world.drain(1);
    world.run();
    assert!(world.finished(1).is_some_and(|finished| finished.result.is_ok()));
    assert_ne!(world.failure(0), Some(StatusCode::RequestTimeout));
}
