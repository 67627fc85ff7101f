//! Resumption by later sessions.

use std::time::Duration;

use engine::{Input, PathEvent, PathId, Receive, Time};

use super::world::{PATH, World, config, content, data, metadata, name, quiet};
use crate::packet::{Content, FileChecksum, Packet, StatusCode};
use crate::{ChecksumKind, Config, Permissions, Put, packet, profile};

const SIZE: usize = 1_000_000;

fn at_millis(millis: u64) -> Time {
    Time::from_nanos(millis * 1_000_000)
}

/// Another file of the same length.
fn changed() -> Vec<u8> {
    content(SIZE).into_iter().map(|byte| !byte).collect()
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
fn without_a_checksum_a_later_session_restarts() {
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
fn without_a_checksum_a_restarted_sender_restarts() {
    for (checksum, stream) in [(ChecksumKind::None, false), (ChecksumKind::Crc32, true)] {
        let mut world = World::with(&settings(checksum, false));
        world.put_with(&content(SIZE), |request| request.stream = stream);
        world.run_until(at_millis(500));
        world.restart(0);
        world.put_with(&changed(), |request| request.stream = stream);
        world.run_until(at_millis(5_000));
        assert!(world.copy() == Some(&changed()[..]), "{checksum:?}, stream {stream}");
        assert_eq!(world.finished(0).expect("it ended").result, Ok(()));
        // The first one's data is given up in the end.
        world.run();
        assert!(world.copy() == Some(&changed()[..]), "{checksum:?}, stream {stream}");
        assert_eq!(world.failure(1), Some(StatusCode::SenderTimeout));
    }
}

/// A get resumes only with data of the same sender.
#[test]
fn gets_without_checksum_do_not_resume_from_another_sender() {
    let permissions = Permissions { put: true, get: true, delete: true };
    let profile = profile("grc-perl-2011").expect("it is a profile");
    let version_0 = Config { permissions, known: [PATH].into(), ..profile };
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

/// The checksum distinguishes them, so data of the first is useless.
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

/// Owner of a session with data, after another path describes the same file `silence` later.
fn owner_after(silence: Duration) -> PathId {
    let other = PathId(9);
    let mut world = World::alone(quiet());
    world.input(0, Input::Path(other, PathEvent::Up(world.info.clone())));
    let described = metadata(1000, FileChecksum::Crc32(1));
    world.say(0, Packet::Metadata(described));
    world.say(0, Packet::Data(data(0, &[1; 100])));
    world.run_until(world.now + silence);
    let again = Packet::Metadata(packet::Metadata { session: 78, ..described });
    let again = again.to_vec().expect("a packet");
    world.input(0, Input::Receive(Receive::datagram(other, &again)));
    let mut reports = world.sides[0].engine.sessions();
    reports.find(|report| report.progress == 100).expect("it has data").id.peer
}

#[test]
fn other_paths_take_over_only_silent_sessions() {
    assert_eq!(owner_after(Duration::from_millis(10)), PATH);
    assert_eq!(owner_after(Duration::from_secs(20)), PathId(9));
}

/// A sender that restarts at once, on another path, resumes once its former session is silent.
#[test]
fn a_sender_restarted_within_a_reply_time_resumes() {
    let other = PathId(9);
    let mut world = World::alone(quiet());
    world.input(0, Input::Path(other, PathEvent::Up(world.info.clone())));
    let described = metadata(1000, FileChecksum::Crc32(1));
    let hear = |world: &mut World, packet: Packet<'_>| {
        let packet = packet.to_vec().expect("a packet");
        world.input(0, Input::Receive(Receive::datagram(other, &packet)));
    };
    world.say(0, Packet::Metadata(described));
    world.say(0, Packet::Data(data(0, &[1; 100])));
    hear(&mut world, Packet::Metadata(packet::Metadata { session: 78, ..described }));
    let later = |offset| packet::Data { session: 78, ..data(offset, &[1; 10]) };
    let progress = |world: &World| {
        let mut all: Vec<_> =
            world.sides[0].engine.sessions().map(|it| (it.id.peer, it.progress)).collect();
        all.sort();
        all
    };
    hear(&mut world, Packet::Data(later(0)));
    assert_eq!(progress(&world), [(PATH, 100), (other, 10)], "the first may be alive");
    world.run_until(world.now + Duration::from_secs(20));
    hear(&mut world, Packet::Data(later(100)));
    assert_eq!(progress(&world), [(other, 110)]);
    // The first is not taken back.
    world.say(0, Packet::Data(data(200, &[1; 100])));
    assert_eq!(progress(&world), [(other, 110)]);
    assert_eq!(world.sides[0].store.records().count(), 1, "only that of the first is left");
}

/// The packets of the first session arrive again at a receiver that was restarted. Meanwhile,
/// another file has the name.
#[test]
fn a_replayed_transfer_replaces_nothing_after_a_restart() {
    for data_first in [false, true] {
        let mut world = World::with(&quiet());
        world.put(&content(5000), Put::Push);
        world.run();
        let sent = world.log.iter().filter(|(_, side, ..)| *side == 0);
        let mut recorded: Vec<_> = sent.map(|(_, _, packet, _)| packet.clone()).collect();
        if data_first {
            recorded.rotate_left(1);
        }
        world.put(&changed(), Put::Push);
        world.run();
        world.restart(1);
        let before = world.statuses(1).len();
        for packet in &recorded {
            world.hear(1, packet);
        }
        world.run();
        assert!(world.copy() == Some(&changed()[..]), "{:#?}", world.transcript());
        assert_eq!(world.sides[1].engine.sessions().count(), 0);
        let statuses = world.statuses(1);
        let last = statuses[before..].last().expect("the sender may be waiting for it");
        assert_eq!((last.code, last.progress), (StatusCode::Ok, 5000));
    }
}

/// The settings limit the records of received files.
#[test]
fn few_files_are_on_record() {
    let mut config = quiet();
    config.limits.closed = 3;
    let mut world = World::with(&config);
    for size in 1..=5 {
        world.put(&content(size), Put::Push);
        world.run();
    }
    assert_eq!(world.sides[1].store.records().count(), 3);
    // A sender keeps none.
    assert_eq!(world.sides[0].store.records().count(), 0);
}
