//! Resumption by later sessions.

use std::net::SocketAddr;
use std::time::Duration;

use engine::{Input, PathEvent, PathId, PathInfo, Receive, Time};

use super::world::{PATH, World, config, content, data, metadata, name, quiet};
use crate::packet::{Content, FileChecksum, Packet, StatusCode};
use crate::{ChecksumKind, Config, Permissions, Put, packet, profile};

const SIZE: usize = 1_000_000;
const HOST: [u8; 4] = [192, 0, 2, 2];

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
    let report = world.hosts[0].engine.sessions().next().expect("it is under way");
    world.hosts[0].engine.cancel(now, report.id).expect("it is under way");
    world.drain(0);
    world.run();
}

#[test]
fn without_a_checksum_a_later_session_restarts() {
    for (checksum, udp_lite) in [(ChecksumKind::None, false), (ChecksumKind::Crc32, true)] {
        let mut world = World::with(&settings(checksum, udp_lite));
        world.put(&content(SIZE), Put::Push);
        world.run_until(at_millis(500));
        assert_eq!(world.hosts[1].store.records().count(), 0);
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
        world.hosts[0].store.insert(name("source"), content(SIZE));
        world.get(false);
        world.run_until(at_millis(500));
        assert_eq!(world.hosts[1].store.records().count(), 0);
        world.restart(0);
        world.hosts[0].store.insert(name("source"), changed());
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

/// Path to a port of a host.
fn path_from(world: &World, host: [u8; 4], port: u16) -> PathEvent {
    let local = SocketAddr::from(([192, 0, 2, 1], 7542));
    let ends = Some((local, SocketAddr::from((host, port))));
    PathEvent::Up(PathInfo { ends, ..world.hops[0].info.clone() })
}

/// Owner of a session with data, after another path describes the same file `silence` later in a
/// session of this number.
fn owner_after(silence: Duration, number: u32, host: [u8; 4]) -> PathId {
    let other = PathId(9);
    let mut world = World::alone(quiet());
    let (first, second) = (path_from(&world, HOST, 1), path_from(&world, host, 2));
    world.input(0, Input::Path(PATH, first));
    world.input(0, Input::Path(other, second));
    let described = metadata(1000, FileChecksum::Crc32(1));
    world.say(0, Packet::Metadata(described));
    world.say(0, Packet::Data(data(0, &[1; 100])));
    world.run_until(world.now + silence);
    let again = Packet::Metadata(packet::Metadata { session: number, ..described });
    let again = again.to_vec().expect("a packet");
    world.input(0, Input::Receive(Receive::datagram(other, &again)));
    let mut reports = world.hosts[0].engine.sessions();
    reports.find(|report| report.progress == 100).expect("it has data").id.peer
}

#[test]
fn other_paths_take_over_only_silent_or_restarted_sessions() {
    let (moment, long) = (Duration::from_millis(10), Duration::from_secs(20));
    assert_eq!(owner_after(moment, 78, HOST), PATH);
    assert_eq!(owner_after(long, 78, HOST), PathId(9));
    // A host that is not on the path does not know the number.
    assert_eq!(owner_after(moment, 77, HOST), PathId(9));
    assert_eq!(owner_after(moment, 77, [192, 0, 2, 3]), PATH);
    assert_eq!(owner_after(long, 77, [192, 0, 2, 3]), PathId(9));
}

/// A sender that restarts at once, on another path, resumes once its former session is silent.
#[test]
fn a_sender_restarted_within_a_reply_time_resumes() {
    let other = PathId(9);
    let mut world = World::alone(quiet());
    world.input(0, Input::Path(other, PathEvent::Up(world.hops[0].info.clone())));
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
            world.hosts[0].engine.sessions().map(|it| (it.id.peer, it.progress)).collect();
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
    assert_eq!(world.hosts[0].store.records().count(), 1, "only that of the first is left");
}

/// The packets of the first session arrive again at a receiver that was restarted. Meanwhile,
/// another file has the name.
#[test]
fn a_replayed_transfer_replaces_nothing_after_a_restart() {
    for data_first in [false, true] {
        let mut world = World::with(&quiet());
        world.put(&content(5000), Put::Push);
        world.run();
        let sent = world.log.iter().filter(|sent| sent.from == 0);
        let mut recorded: Vec<_> = sent.map(|sent| sent.bytes.clone()).collect();
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
        assert_eq!(world.hosts[1].engine.sessions().count(), 0);
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
    assert_eq!(world.hosts[1].store.records().count(), 3);
    // A sender keeps none.
    assert_eq!(world.hosts[0].store.records().count(), 0);
}

/// Puts the file, of which an earlier process may have sent a part in a session of this number.
fn put_again(world: &mut World, session: Option<u32>, resumes: bool) {
    world.put_with(&content(SIZE), |request| {
        (request.session, request.resumes) = (session, resumes);
    });
}

/// Bytes of the file that the sender has sent.
fn sent(world: &World) -> usize {
    let len = |packet| if let Packet::Data(data) = packet { data.data.len() } else { 0 };
    world.packets(0).map(len).sum()
}

#[test]
fn a_restarted_sender_sends_nothing_twice() {
    for (loses, session) in [(false, None), (false, Some(5)), (true, None), (true, Some(5))] {
        let mut world = World::with(&settings(ChecksumKind::Crc32, false));
        world.lose(move |side, number, _| loses && side == 0 && number % 50 == 9);
        put_again(&mut world, session, false);
        let mut now = 0;
        for _ in 0..4 {
            now += 150;
            world.run_until(at_millis(now));
            world.restart(0);
            put_again(&mut world, session, true);
        }
        world.run();
        world.assert_delivered(&content(SIZE));
        // At most a packet that was about to be sent when the process died.
        let most = if loses { SIZE * 104 / 100 } else { SIZE + 4 * 1024 };
        assert!(sent(&world) <= most, "{} bytes", sent(&world));
    }
}

/// Every STATUS that confirms the file is lost until the sender is restarted.
#[test]
fn a_restarted_sender_does_not_send_what_is_there() {
    let mut world = World::with(&settings(ChecksumKind::Crc32, false));
    world.lose(|side, _, bytes| {
        let packet = Packet::decode(bytes);
        side == 1 && matches!(packet, Ok(Packet::Status(status)) if status.progress == SIZE as u64)
    });
    put_again(&mut world, Some(5), false);
    world.run_until(at_millis(3_000));
    assert!(world.copy().is_some());
    let before = sent(&world);
    world.restart(0);
    world.lose(|_, _, _| false);
    put_again(&mut world, Some(5), true);
    world.run();
    world.assert_delivered(&content(SIZE));
    assert_eq!(sent(&world), before);
}

/// Both ends are restarted, so only the record of the receiver has what is missing.
#[test]
fn the_first_status_lists_what_an_earlier_process_lacked() {
    let mut world = World::with(&settings(ChecksumKind::Crc32, false));
    world.lose(|side, number, _| side == 0 && number % 50 == 9);
    put_again(&mut world, None, false);
    world.run_until(at_millis(700));
    world.restart(0);
    world.run_until(at_millis(750));
    world.restart(1);
    let before = sent(&world);
    world.lose(|_, _, _| false);
    put_again(&mut world, None, true);
    world.run();
    world.assert_delivered(&content(SIZE));
    let resumed = world.finished(1).expect("it ended").resumed;
    assert!(resumed > 500_000, "{resumed} bytes were recorded");
    assert_eq!(sent(&world) - before, SIZE - resumed as usize);
}

/// A store that is fast saves the progress more often than every 2 s.
#[test]
fn a_fast_store_saves_often() {
    let mut world = World::with(&config());
    world.put(&content(SIZE), Put::Push);
    world.run_until(at_millis(700));
    world.restart(1);
    world.run();
    world.assert_delivered(&content(SIZE));
    assert!(world.finished(1).expect("it ended").resumed > 300_000);
}

#[test]
fn a_receiver_that_does_not_reply_gets_the_file() {
    let mut world = World::alone(settings(ChecksumKind::Crc32, false));
    put_again(&mut world, None, true);
    world.run_until(at_millis(100));
    assert_eq!(sent(&world), 0, "it may have the file");
    world.run_until(at_millis(20_000));
    assert!(sent(&world) >= SIZE, "{:#?}", world.transcript());
}

/// With two files under way, copies of repairs would take the place of the other's data.
#[test]
fn repairs_have_no_copies_while_another_file_needs_the_path() {
    let mut repaired = Vec::new();
    for others in [0, 1] {
        let mut world = World::with(&config());
        world.hops[0].info.owlt = Some(Duration::from_secs(1));
        (0..2).for_each(|side| world.up(side));
        // A tenth of the first file is lost.
        world.lose(|side, number, _| side == 0 && number < 500 && number % 10 == 9);
        put_again(&mut world, Some(1), false);
        world.run_until(at_millis(1_000));
        if others > 0 {
            world.hosts[0].store.insert(name("long"), content(5 * SIZE));
            world.put_with(&content(SIZE), |request| {
                (request.source, request.name) = (name("long"), "other".to_owned());
            });
        }
        world.run_until(at_millis(4_500));
        repaired.push(world.hosts[0].engine.stats().repair_bytes);
    }
    let [alone, shared] = repaired[..] else { panic!("two") };
    assert!(shared > 0 && 3 * shared < 2 * alone, "{repaired:?}");
}

/// The sender does not know of the restart, and would send its METADATA only on request.
#[test]
fn a_restarted_receiver_recognises_a_session_by_its_number() {
    let mut world = World::with(&config());
    world.put(&content(SIZE), Put::Push);
    world.run_until(at_millis(600));
    world.restart(1);
    let before = world.log.len();
    world.run();
    world.assert_delivered(&content(SIZE));
    assert!(world.finished(1).expect("it ended").resumed > 300_000);
    let later = world.log.iter().skip(before);
    let described = later.filter(|sent| {
        sent.from == 0 && matches!(Packet::decode(&sent.bytes), Ok(Packet::Metadata(_)))
    });
    assert_eq!(described.count(), 0, "{:#?}", world.transcript());
}
