//! What a later session goes on with, and what it must not.

use engine::Time;
use wire::saratoga::{Content, Packet, StatusCode};

use super::world::{World, config, content, name};
use crate::saratoga::{ChecksumKind, Config, Permissions, Put, profile};

const SIZE: usize = 1_000_000;

fn at_millis(millis: u64) -> Time {
    Time::from_nanos(millis * 1_000_000)
}

/// Another file of the same length.
fn changed() -> Vec<u8> {
    content(SIZE).into_iter().map(|octet| !octet).collect()
}

fn settings(checksum: ChecksumKind, udp_lite: bool) -> Config {
    let mut settings = Config { checksum, udp_lite, ..config() };
    settings.journal.bytes = 50_000;
    settings
}

fn cancel(world: &mut World) {
    let now = world.now;
    let report = world.sides[0].engine.sessions().next().expect("it is under way");
    world.sides[0].engine.cancel(now, report.id).expect("it is under way");
    world.drain(0);
    world.run();
}

#[test]
fn without_a_checksum_a_later_session_begins_anew() {
    for (checksum, udp_lite) in [(ChecksumKind::None, false), (ChecksumKind::Crc32, true)] {
        let mut world = World::with(&settings(checksum, udp_lite));
        world.put(&content(SIZE), Put::Push);
        world.run_until(at_millis(500));
        assert_eq!(world.sides[1].store.records().count(), 0);
        cancel(&mut world);
        world.put(&changed(), Put::Push);
        world.run();
        assert!(world.copy() == Some(&changed()[..]), "{checksum:?}, UDP-Lite {udp_lite}");
        assert_eq!(world.finished(1).expect("it ended").resumed, 0);
    }
}

#[test]
fn without_a_checksum_a_sender_that_was_started_again_begins_anew() {
    for (checksum, stream) in [(ChecksumKind::None, false), (ChecksumKind::Crc32, true)] {
        let mut world = World::with(&settings(checksum, false));
        world.put_with(&content(SIZE), |request| request.stream = stream);
        world.run_until(at_millis(500));
        world.restart(0);
        world.put_with(&changed(), |request| request.stream = stream);
        world.run_until(at_millis(5_000));
        assert!(world.copy() == Some(&changed()[..]), "{checksum:?}, stream {stream}");
        assert_eq!(world.finished(0).expect("it ended").result, Ok(()));
        // What the first one brought is given up in the end.
        world.run();
        assert!(world.copy() == Some(&changed()[..]), "{checksum:?}, stream {stream}");
        assert_eq!(world.failure(1), Some(StatusCode::SenderTimeout));
    }
}

/// Who asked for a file goes on with what the same sender sends, and with nothing else.
#[test]
fn without_a_checksum_a_get_does_not_go_on_with_another_sender() {
    let permissions = Permissions { put: true, get: true, delete: true };
    let version_0 = Config { permissions, ..profile("grc-perl-2011").expect("it is a profile") };
    for settings in [settings(ChecksumKind::None, false), version_0] {
        let mut world = World::with(&settings);
        world.sides[0].store.insert(name("source"), content(SIZE));
        world.get(false);
        world.run_until(at_millis(500));
        assert_eq!(world.sides[1].store.records().count(), 0);
        world.restart(0);
        world.sides[0].store.insert(name("source"), changed());
        world.run();
        assert_eq!(world.failure(1), Some(StatusCode::SenderTimeout));
        assert!(world.copy().is_none());
        world.get(false);
        world.run();
        assert!(world.copy() == Some(&changed()[..]));
    }
}

/// The checksum tells them apart, so that what came of the first is of no use.
#[test]
fn with_a_checksum_another_file_of_the_same_length_is_another_one() {
    let mut world = World::with(&settings(ChecksumKind::Crc32, false));
    world.put(&content(SIZE), Put::Push);
    world.run_until(at_millis(500));
    cancel(&mut world);
    world.put(&changed(), Put::Push);
    world.run();
    assert!(world.copy() == Some(&changed()[..]));
    let is_file = |packet| matches!(packet, Packet::Metadata(it) if it.content == Content::File);
    assert!(world.packets(0).any(is_file));
}
