//! Files whose directory is listed.

use crate::packet::{Content, Packet, RequestKind, StatusCode};

use super::world::{World, name, quiet, request};
use crate::{Config, Indication};

/// Delivers a request for a listing to a peer with a file `a`.
fn requested(config: Config, directory: &str) -> World {
    let mut world = World::alone(config);
    world.hosts[0].store.insert(name("a"), b"content".to_vec());
    world.say(0, request(RequestKind::GetDir, directory));
    world.run_until(engine::Time::from_nanos(1_000_000_000));
    world
}

fn refusal(world: &World) -> Option<StatusCode> {
    world.statuses(0).first().map(|status| status.code)
}

/// Only directories are listed; the draft would have a listing of the single file.
#[test]
fn files_requested_as_directories_stay() {
    let world = requested(quiet(), "a");
    assert_eq!(refusal(&world), Some(StatusCode::NotFound));
    assert!(world.hosts[0].store.get(&name("a")).is_some());
}

#[test]
fn a_listing_is_sent() {
    let world = requested(quiet(), "");
    let is_data = |packet: Packet<'_>| {
        matches!(packet, Packet::Data(data)
            if data.content == Content::Directory && !data.data.is_empty())
    };
    assert!(world.packets(0).any(is_data), "{:?}", world.transcript());
    assert_eq!(refusal(&world), None);
}

#[test]
fn a_dot_is_the_root() {
    let lists = |directory| {
        let world = requested(quiet(), directory);
        let statuses = world.statuses(0);
        let denied = statuses.iter().any(|status| status.code == StatusCode::AccessDenied);
        let listed = world
            .packets(0)
            .any(|packet| matches!(packet, Packet::Data(data) if data.data.ends_with(b"a\0")));
        assert_ne!(denied, listed, "{directory}: {:?}", world.transcript());
        listed
    };
    assert!(["", ".", "./", "././", ".//."].iter().all(|directory| lists(directory)));
    assert!(!["/", "/.", "..", "./..", "../"].iter().any(|directory| lists(directory)));
}

#[test]
fn a_listing_that_is_too_long_is_refused() {
    let mut config = quiet();
    config.limits.directory = 3;
    assert_eq!(refusal(&requested(config, "")), Some(StatusCode::TooLong));
}

#[test]
fn a_directory_is_read() {
    let mut world = World::with(&quiet());
    world.hosts[0].store.insert(name("a"), b"content".to_vec());
    let now = world.now;
    world.hosts[1].engine.list(now, super::world::PATH, String::new()).expect("it may");
    world.drain(1);
    world.run();
    let entries = world.hosts[1].indications.iter().find_map(|indication| match indication {
        Indication::Listing { entries, .. } => Some(entries),
        _ => None,
    });
    let entries = entries.expect("it came");
    assert_eq!((entries.len(), entries[0].name.as_str(), entries[0].size), (1, "a", 7));
    assert_eq!(world.finished(1).expect("it ended").result, Ok(()));
}
