//! Files that take long to open, such as lists that are made when they are requested.

use std::time::Duration;

use engine::{StoreEffect, Time};

use super::world::{World, config, content, name, request};
use crate::packet::{Packet, RequestKind, StatusCode};
use crate::{Config, Permissions};

const HOUR: Duration = Duration::from_hours(1);
const SIZE: usize = 100_000;

/// Settings of a server to which every requester is unknown.
fn for_strangers() -> Config {
    let permissions = Permissions { get: true, ..Permissions::default() };
    Config { permissions, ..Config::default() }
}

/// Server with a store that is slow from now on.
fn server(mut world: World) -> World {
    world.hosts[0].store.insert(name("source"), content(SIZE));
    world.hosts[0].slow = Some(Vec::new());
    world
}

#[test]
fn a_requester_waits_for_hours_while_the_server_opens_the_file() {
    for settings in [config(), for_strangers()] {
        let mut world = server(World::with(&settings));
        world.get(false);
        world.run_until(Time::ZERO + 5 * HOUR);
        assert!(world.finished(1).is_none(), "the server lives");
        let bytes = |side| {
            let sent = world.log.iter().filter(move |sent| sent.from == side);
            sent.map(|sent| sent.bytes.len()).sum::<usize>()
        };
        assert!(bytes(0) < 5_000_000 && bytes(0) <= 3 * bytes(1), "{} bytes", bytes(0));
        let at = world.now;
        while world.now < at + HOUR && world.finished(1).is_none() {
            world.work_off(0);
            world.run_until(world.now + Duration::from_millis(10));
        }
        world.hosts[0].slow = None;
        world.run();
        assert!(world.copy() == Some(&content(SIZE)[..]), "{:#?}", world.finished(1));
    }
}

/// A server that died is still given up.
#[test]
fn a_requester_does_not_wait_for_a_dead_server() {
    let mut world = server(World::with(&config()));
    world.get(false);
    world.run_until(Time::ZERO + HOUR / 2);
    world.lose(|side, _, _| side == 0);
    world.run_until(Time::ZERO + 3 * HOUR);
    assert_eq!(world.failure(1), Some(StatusCode::SenderTimeout));
}

#[test]
fn a_server_forgets_requesters_that_leave_while_it_opens_their_files() {
    for settings in [config(), for_strangers()] {
        let mut world = server(World::alone(settings));
        world.say(0, request(RequestKind::Get, "source"));
        world.run_until(Time::ZERO + HOUR / 2);
        assert_eq!(world.hosts[0].engine.sessions().count(), 1);
        world.run_until(Time::ZERO + 2 * HOUR);
        assert_eq!(world.hosts[0].engine.sessions().count(), 0);
        // The file that is open at last is closed.
        world.work_off(0);
        let waiting = world.hosts[0].slow.iter().flatten();
        assert_eq!(waiting.filter(|it| matches!(it, StoreEffect::Close { .. })).count(), 1);
    }
}

/// Requesters that have left give way to others when the places are taken.
#[test]
fn requesters_that_left_take_no_places() {
    let mut settings = config();
    settings.limits.sessions = 16;
    let mut world = server(World::alone(settings));
    for number in 1..=40 {
        let Packet::Request(packet) = request(RequestKind::Get, "source") else { continue };
        world.say(0, Packet::Request(crate::packet::Request { session: number, ..packet }));
        world.run_until(world.now + Duration::from_secs(1));
    }
    let numbers: Vec<u32> = world.hosts[0].engine.sessions().map(|it| it.id.number).collect();
    assert!(numbers.contains(&40), "{numbers:?}");
}
