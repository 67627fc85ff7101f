//! Content of STATUS packets, and their effect (draft-wood-tsvwg-saratoga-22 §4.5, §6.6).

use std::time::Duration;

use engine::Time;

use super::world::{World, config, content, data, metadata, name, quiet, status};
use crate::packet::{FileChecksum, Hole, Holes, Packet, Status, StatusCode, Width};
use crate::test_world::lose_numbers;
use crate::{Config, Put, Remote, packet};

const SIZE: usize = 2500;
const A_WHILE: Duration = Duration::from_millis(20);

/// Receiver with the METADATA of a file of 1,000 bytes.
fn receiver() -> World {
    let mut world = World::alone(quiet());
    world.say(0, Packet::Metadata(metadata(1000, FileChecksum::None)));
    world.run_until(world.now + A_WHILE);
    world.log.clear();
    world
}

fn asks<'a>(offset: u64, bytes: &'a [u8]) -> Packet<'a> {
    Packet::Data(packet::Data { wants_status: true, ..data(offset, bytes) })
}

/// STATUS packets sent in reply.
fn answers<'a>(world: &'a mut World, packet: Packet<'_>) -> Vec<Status<'a>> {
    world.log.clear();
    world.say(0, packet);
    world.run_until(world.now + A_WHILE);
    world.statuses(0)
}

#[test]
fn status_carries_progress_and_in_response_to() {
    let mut world = receiver();
    let edges = |status: &Status<'_>| (status.progress, status.in_response_to);
    // Everything up to there has arrived: both edges are the same, and nothing is missing.
    let [status] = answers(&mut world, asks(0, &[1; 100]))[..] else { panic!("one answer") };
    assert_eq!(
        (edges(&status), status.is_voluntary, status.is_partial),
        ((100, 100), false, false)
    );
    assert!(status.holes.is_empty() && !status.lacks_metadata);
    // A hole with inclusive bounds.
    let [status] = answers(&mut world, asks(200, &[1; 100]))[..] else { panic!("one answer") };
    assert_eq!(edges(&status), (100, 300));
    assert_eq!(status.holes.iter().collect::<Vec<_>>(), [Hole { start: 100, last: 199 }]);
    // In ascending order; the requesting packet may precede received data.
    answers(&mut world, Packet::Data(data(400, &[1; 10])));
    let [status] = answers(&mut world, asks(150, &[1; 50]))[..] else { panic!("one answer") };
    assert_eq!(edges(&status), (100, 200));
    let holes = [Hole { start: 100, last: 149 }, Hole { start: 300, last: 399 }];
    assert_eq!(status.holes.iter().collect::<Vec<_>>(), holes);
    assert_eq!(status.descriptor, Width::W32);
}

#[test]
fn timestamps_are_echoed_as_they_came() {
    let mut world = receiver();
    for stamp in [[0xff; 16], [0; 16], *b"whatever it says"] {
        let asking = packet::Data { timestamp: Some(stamp), wants_status: true, ..data(0, b"x") };
        let [status] = answers(&mut world, Packet::Data(asking))[..] else { panic!("one answer") };
        assert_eq!(status.timestamp, Some(stamp));
    }
    let [status] = answers(&mut world, asks(1, b"x"))[..] else { panic!("one answer") };
    assert_eq!(status.timestamp, None);
}

/// An unrequested one has the timestamp of the highest offset, and the edge after it.
#[test]
fn a_voluntary_status_reports_the_highest_data() {
    let mut world = receiver();
    for (offset, stamp) in [(0, [1; 16]), (500, [2; 16]), (100, [3; 16])] {
        let part = packet::Data { timestamp: Some(stamp), ..data(offset, &[1; 100]) };
        world.say(0, Packet::Data(part));
    }
    world.run_until(world.now + Duration::from_secs(10));
    let statuses = world.statuses(0);
    let status = statuses.last().expect("it says what it lacks after a silence");
    assert!(status.is_voluntary);
    assert_eq!((status.progress, status.in_response_to), (200, 600));
    assert_eq!(status.timestamp, Some([2; 16]));
    assert_eq!(status.holes.iter().collect::<Vec<_>>(), [Hole { start: 200, last: 499 }]);
}

#[test]
fn voluntary_statuses_come_at_their_interval() {
    let every = Duration::from_millis(100);
    let mut settings = quiet();
    settings.default_remote.voluntary_interval = Some(every);
    let file = content(1_000_000);
    let mut world = World::new([quiet(), settings]);
    world.put(&file, Put::Push);
    world.run();
    world.assert_delivered(&file);
    // 1 MB at 10 Mbit/s takes 0.84 s.
    let statuses = world.statuses(1);
    assert!((8..=11).contains(&statuses.len()), "{:#?}", world.transcript());
    assert!(statuses.iter().all(|status| status.is_voluntary));
}

#[test]
fn last_status_reports_completion() {
    for put in [Put::Push, Put::Ask] {
        let world = World::crossed(&config(), SIZE, put);
        let statuses = world.statuses(1);
        let last = statuses.last().expect("it answered");
        assert!(last.is_voluntary && !last.is_partial && last.holes.is_empty());
        assert_eq!((last.progress, last.in_response_to), (2500, 2500));
    }
}

/// The session has ended, and the sender requests a STATUS because the reply was lost.
#[test]
fn requests_after_the_end_get_a_reply() {
    let mut world = receiver();
    world.say(0, Packet::Data(data(0, &[1; 1000])));
    world.run_until(world.now + A_WHILE);
    assert_eq!(world.hosts[0].engine.sessions().count(), 0);
    for _ in 0..3 {
        let asking = packet::Data { is_end: true, timestamp: Some([7; 16]), ..data(1000, b"") };
        let asking = packet::Data { wants_status: true, ..asking };
        let [status] = answers(&mut world, Packet::Data(asking))[..] else { panic!("one answer") };
        assert_eq!((status.progress, status.in_response_to), (1000, 1000));
        assert!(status.is_voluntary && !status.is_partial && status.holes.is_empty());
        assert_eq!(status.timestamp, Some([7; 16]));
    }
    // A packet without a request gets no reply: the return link may be thin.
    assert_eq!(answers(&mut world, Packet::Data(data(0, b"x"))).len(), 0);
    assert_eq!(world.hosts[0].engine.sessions().count(), 0);
}

#[test]
fn holes_that_do_not_fit_take_several_packets() {
    // Every second of 900 packets; 1,024 bytes hold 124 holes.
    let world = World::crossed_with(
        &quiet(),
        1_000_000,
        Put::Push,
        Box::new(|side, number, _| side == 0 && number < 900 && number % 2 == 1),
    );
    let statuses = world.statuses(1);
    let parts: Vec<_> = statuses.iter().filter(|status| status.is_partial).collect();
    assert!(parts.len() >= 4, "{} packets", parts.len());
    assert!(parts.iter().all(|part| part.in_response_to == parts[0].in_response_to));
    assert!(parts.iter().all(|part| part.progress == parts[0].progress));
    let holes: Vec<_> = parts.iter().flat_map(|part| part.holes.iter()).collect();
    assert!(holes.windows(2).all(|two| two[0].last < two[1].start));
    // The first, unrequested STATUS has the holes of the first 58 ms.
    assert!(holes.len() > 3 * 124, "{} holes", holes.len());
}

#[test]
fn lost_metadata_is_reported_and_retransmitted() {
    let file = content(SIZE);
    let mut world = World::with(&quiet());
    world.lose(lose_numbers(&[0]));
    world.put(&file, Put::Push);
    world.run();
    world.assert_delivered(&file);
    // The first STATUS triggers it.
    let lines = world.transcript();
    assert_eq!(
        lines[..6],
        [
            ">x METADATA file \"copy\" of 2500 B",
            "> DATA 0..1014",
            "> DATA 1014..2028",
            "> DATA 2028..2500 EOD STATUS requested",
            "< STATUS well 0 of 0 without METADATA",
            "> METADATA file \"copy\" of 2500 B",
        ]
    );
    let complete = "< STATUS well 2500 of 2500 voluntary";
    assert_eq!(lines.last().map(String::as_str), Some(complete));
}

/// Sender whose receiver is simulated by the test.
fn sender(file: &[u8]) -> (World, u32) {
    let mut world = World::alone(quiet());
    let id = world.put(file, Put::Push);
    world.run_until(world.now + A_WHILE);
    world.log.clear();
    (world, id.number)
}

/// Parts of the file sent in reply to a STATUS.
fn repairs(world: &mut World, status: Status<'_>) -> Vec<(u64, u64)> {
    world.log.clear();
    world.say(0, Packet::Status(status));
    world.run_until(world.now + A_WHILE);
    let parts = world.packets(0).filter_map(|packet| match packet {
        Packet::Data(data) if !data.data.is_empty() => {
            Some((data.offset, data.offset + data.data.len() as u64))
        }
        _ => None,
    });
    parts.collect()
}

#[test]
fn holes_are_filled_up_to_their_last_byte() {
    let (mut world, number) = sender(&content(SIZE));
    let holes = [Hole { start: 100, last: 199 }, Hole { start: 300, last: 300 }];
    let parts = repairs(&mut world, status(number, (100, 2500), &holes));
    assert!(parts.contains(&(100, 200)) && parts.contains(&(300, 301)), "{parts:?}");
    assert!(parts.iter().all(|part| holes.iter().any(|hole| (hole.start, hole.last + 1) == *part)));
}

/// Some programs report the byte after a hole: one byte more is sent, and none beyond the file.
#[test]
fn holes_with_an_exclusive_end_are_filled_too() {
    let (mut world, number) = sender(&content(SIZE));
    let holes = [Hole { start: 0, last: 1014 }, Hole { start: 2028, last: 2500 }];
    let parts = repairs(&mut world, status(number, (0, 2500), &holes));
    let last = parts.iter().map(|(_, end)| *end).max();
    assert_eq!(last, Some(2500), "{parts:?}");
    for byte in (0..1014).chain(2028..2500) {
        assert!(parts.iter().any(|(start, end)| (*start..*end).contains(&byte)));
    }
}

/// Some programs report the last byte, and not the one after it, in the last STATUS.
#[test]
fn the_end_may_be_in_response_to_the_last_byte() {
    for in_response_to in [2499, 2500] {
        let (mut world, number) = sender(&content(SIZE));
        let done = Status { is_voluntary: true, ..status(number, (2500, in_response_to), &[]) };
        assert!(repairs(&mut world, done).is_empty());
        assert_eq!(world.finished(0).expect("it ended").result, Ok(()));
    }
}

#[test]
fn partial_statuses_supplement_each_other_and_end_nothing() {
    let (mut world, number) = sender(&content(SIZE));
    let holes = [[Hole { start: 0, last: 9 }], [Hole { start: 20, last: 29 }]];
    for (hole, part) in holes.iter().zip([(0, 10), (20, 30)]) {
        let reported = Status { is_partial: true, ..status(number, (0, 2500), hole) };
        assert_eq!(repairs(&mut world, reported)[0], part);
    }
    let empty = Status { is_partial: true, ..status(number, (2500, 2500), &[]) };
    world.say(0, Packet::Status(empty));
    assert_eq!(world.hosts[0].engine.sessions().count(), 1);
}

#[test]
fn invalid_statuses_cause_no_repairs_beyond_the_file() {
    let most = u64::from(u32::MAX);
    let (mut world, number) = sender(&content(SIZE));
    let holes =
        [Hole { start: 0, last: most }, Hole { start: 5, last: 6 }, Hole { start: 0, last: 0 }];
    let parts = repairs(&mut world, status(number, (most, most), &holes));
    assert!(parts.iter().all(|(_, end)| *end <= 2500));
    let done = status(number, (2500, 2500), &[]);
    world.say(0, Packet::Status(done));
    assert_eq!(world.finished(0).expect("it ended").result, Ok(()));
}

/// Once all is sent, packets without data request a STATUS until one arrives.
#[test]
fn status_at_the_end_is_requested_until_received() {
    let settings = Config {
        default_remote: Remote {
            answer_timer: crate::Timer::Fixed(Duration::from_secs(1)),
            ..quiet().default_remote
        },
        ..quiet()
    };
    let mut world = World::alone(settings);
    world.put(&content(SIZE), Put::Push);
    world.run_until(Time::ZERO + Duration::from_millis(3500));
    let ends = world.transcript().into_iter().filter(|line| line.contains("EOD"));
    let ends: Vec<_> = ends.collect();
    assert_eq!(ends[0], ">x DATA 2028..2500 EOD STATUS requested");
    assert_eq!(ends[1..], [">x DATA 2500..2500 EOD STATUS requested"; 3].map(str::to_owned));
}

/// Data of an earlier session is not sent again: the first STATUS reports it.
#[test]
fn later_sessions_send_only_missing_data() {
    let file = content(1_000_000);
    let mut settings = config();
    settings.journal.bytes = 50_000;
    let mut world = World::with(&settings);
    let id = world.put(&file, Put::Push);
    world.run_until(Time::ZERO + Duration::from_millis(500));
    let now = world.now;
    world.hosts[0].engine.cancel(now, id).expect("it is under way");
    world.drain(0);
    world.run();
    assert!(world.copy().is_none());
    assert_eq!(world.hosts[1].store.records().count(), 1);
    world.hosts[1].indications.clear();
    world.put(&file, Put::Push);
    world.run();
    assert!(world.copy() == Some(&file[..]));
    assert!(world.finished(1).expect("it ended").resumed > 300_000);
    // The complete file is recorded, and no part of it.
    let records: Vec<_> = world.hosts[1].store.records().map(|(key, _)| key).collect();
    assert!(records.len() == 1 && records[0].starts_with("sard-"), "{records:?}");
}

#[test]
fn statuses_without_metadata_trigger_only_metadata() {
    let (mut world, number) = sender(&content(SIZE));
    let lacking = Status { lacks_metadata: true, ..status(number, (0, 0), &[]) };
    assert!(repairs(&mut world, lacking).is_empty());
    assert!(world.packets(0).any(|packet| matches!(packet, Packet::Metadata(_))));
}

/// 64 packets of a file with 64-bit descriptors, as configured.
#[test]
fn every_width_of_descriptors_is_sent_and_received() {
    for width in [Width::W16, Width::W32, Width::W64] {
        let mut settings = config();
        settings.default_remote.descriptor_min = width;
        let world = World::crossed_with(&settings, 60_000, Put::Push, lose_numbers(&[2, 5]));
        for packet in world.packets(0).chain(world.packets(1)) {
            let found = match packet {
                Packet::Metadata(metadata) => metadata.descriptor,
                Packet::Data(data) => data.descriptor,
                // Before the METADATA has arrived, the receiver has no width.
                Packet::Status(status) if status.progress > 0 => status.descriptor,
                _ => continue,
            };
            assert_eq!(found, width);
        }
    }
}

#[test]
fn the_widest_descriptor_is_understood() {
    let mut world = World::alone(Config { descriptor: Width::W128, ..quiet() });
    let wide = packet::Metadata { descriptor: Width::W128, ..metadata(10, FileChecksum::None) };
    world.say(0, Packet::Metadata(wide));
    let part = packet::Data { descriptor: Width::W128, ..data(0, b"0123456789") };
    world.say(0, Packet::Data(part));
    world.run_until(world.now + A_WHILE);
    assert_eq!(world.hosts[0].store.get(&name("copy")), Some(&b"0123456789"[..]));
    let statuses = world.statuses(0);
    let last = statuses.last().expect("it answered");
    assert_eq!((last.descriptor, last.holes), (Width::W128, Holes::NONE));
}

#[test]
fn a_descriptor_wider_than_the_settings_allow_is_refused() {
    for (descriptor, is_refused) in
        [(Width::W16, false), (Width::W32, false), (Width::W64, true), (Width::W128, true)]
    {
        let mut world = World::alone(Config { descriptor: Width::W32, ..quiet() });
        let described = packet::Metadata { descriptor, ..metadata(10, FileChecksum::None) };
        world.say(0, Packet::Metadata(described));
        world.run_until(world.now + A_WHILE);
        let refused = world.failure(0) == Some(StatusCode::DescriptorMismatch);
        assert_eq!(refused, is_refused, "{descriptor:?}");
        let reported = world.statuses(0).last().map(|status| status.code);
        assert_eq!(reported == Some(StatusCode::DescriptorMismatch), is_refused);
    }
}
