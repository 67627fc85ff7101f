//! Version 0, as captured in 2011: only get.

use std::time::Duration;

use engine::{Engine as _, Time};

use super::world::{PATH, World, content, name};
use crate::packet::StatusCode;
use crate::test_world::lose_numbers;
use crate::{Config, GetRequest, Permissions, PutRequest, RequestError, profile};

const SIZE: usize = 2500;

fn config() -> Config {
    let permissions = Permissions { put: true, get: true, delete: true };
    Config {
        permissions,
        known: [PATH].into(),
        ..profile("grc-perl-2011").expect("it is a profile")
    }
}

fn world(file: &[u8]) -> World {
    let mut world = World::with(&config());
    world.hops[0].info =
        engine::PathInfo { kind: engine::PathInfo::datagram(1472).kind, ..world.hops[0].info };
    for side in 0..2 {
        world.up(side);
    }
    world.hosts[0].store.insert(name("source"), file.to_vec());
    world
}

#[test]
fn get_without_loss() {
    let file = content(SIZE);
    let mut world = world(&file);
    world.get(false);
    world.run();
    world.assert_delivered(&file);
    assert_eq!(
        world.transcript(),
        [
            "< REQUEST get \"source\"",
            "> accepted",
            "> METADATA \"source\" of 2500 B",
            "> DATA 0..1024",
            "> DATA 1024..2048",
            "> DATA 2048..2500 STATUS requested",
            "< STATUS well, complete",
        ]
    );
}

#[test]
fn every_loss_of_the_sender_is_repaired() {
    let file = content(SIZE);
    for lost in [&[1][..], &[2], &[3], &[4], &[2, 3], &[2, 3, 4], &[1, 4]] {
        let mut world = world(&file);
        world.lose(lose_numbers(lost));
        world.get(false);
        world.run();
        assert!(world.copy() == Some(&file[..]), "{lost:?}: {:#?}", world.transcript());
        assert!(world.log.len() < 24, "{lost:?}: {:#?}", world.transcript());
    }
}

/// Without a reply, it polls every second, and gives up after 16 s.
#[test]
fn the_sender_polls_each_second() {
    let file = content(SIZE);
    let mut world = world(&file);
    world.lose(|side, number, _| side == 1 && number > 0);
    world.get(false);
    world.run();
    let sent = world.log.iter().filter(|sent| sent.from == 0);
    let polls: Vec<_> = sent.filter(|sent| sent.bytes.len() == 18).collect();
    assert!((15..=17).contains(&polls.len()), "{} polls", polls.len());
    for two in polls.windows(2) {
        let apart = two[1].at.since(two[0].at);
        assert!(apart.abs_diff(Duration::from_secs(1)) < Duration::from_millis(10), "{apart:?}");
    }
    assert_eq!(world.failure(0), Some(StatusCode::RequestTimeout));
    assert!(world.copy() == Some(&file[..]), "it arrived all the same");
}

#[test]
fn packet_lengths_match_the_capture() {
    let mut world = world(&content(SIZE));
    world.get(false);
    world.run();
    let lens: Vec<_> = world.log.iter().map(|sent| (sent.from, sent.bytes.len())).collect();
    assert_eq!(lens, [(1, 32), (0, 10), (0, 266), (0, 1034), (0, 1034), (0, 462), (1, 7)]);
}

#[test]
fn missing_files_are_not_found() {
    let mut world = world(&content(SIZE));
    let (peer, destination, delete) = (PATH, name("copy"), false);
    let request = GetRequest { peer, name: "nothing".into(), destination, delete };
    world.hosts[1].engine.get(Time::ZERO, request).expect("it may ask");
    world.drain(1);
    world.run();
    assert_eq!(world.failure(1), Some(StatusCode::NotFound));
}

#[test]
fn version_0_supports_only_get() {
    let mut world = world(&content(SIZE));
    let (now, node) = (world.now, &mut world.hosts[0].engine);
    assert_eq!(node.delete(now, PATH, "x".into()), Err(RequestError::OnlyGet));
    assert_eq!(node.list(now, PATH, String::new()), Err(RequestError::OnlyGet));
    let (source, destination) = (name("source"), name("copy"));
    let take = GetRequest { peer: PATH, name: "x".into(), destination, delete: true };
    assert_eq!(node.get(now, take), Err(RequestError::OnlyGet));
    let put = PutRequest::new(PATH, source, "x");
    assert_eq!(node.put(now, put), Err(RequestError::OnlyGet));
    // Unrequested packets start nothing.
    world.hear(0, &[3, 0, 0, 0, 0, 77, 0, 0, 0, 0, 1]);
    assert_eq!(world.hosts[0].engine.stats().stray, 1);
    assert_eq!(world.hosts[0].engine.poll_timeout(), None);
}

#[test]
fn packets_of_version_1_are_ignored() {
    let mut world = world(&content(SIZE));
    let request = super::world::request(crate::packet::RequestKind::Get, "source");
    world.say(0, request);
    world.run();
    assert_eq!(world.hosts[0].engine.stats().decode_errors, 1);
    assert!(world.log.is_empty());
}
