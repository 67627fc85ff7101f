//! Conversations with exact losses (draft-wood-tsvwg-saratoga-22 §6).

use engine::{Rng, Time};

use super::world::{World, config, content, name, quiet};
use crate::packet::{Packet, StatusCode};
use crate::test_world::lose_numbers;
use crate::{ChecksumKind, Config, Put};

const SIZE: usize = 2500;

fn world_with_source(config: &Config, file: &[u8]) -> World {
    let mut world = World::with(config);
    world.hosts[0].store.insert(name("source"), file.to_vec());
    world
}

#[test]
fn push_without_loss() {
    let file = content(SIZE);
    let mut world = World::with(&quiet());
    world.put(&file, Put::Push);
    world.run();
    world.assert_delivered(&file);
    assert_eq!(
        world.transcript(),
        [
            "> METADATA file \"copy\" of 2500 B",
            "> DATA 0..1014",
            "> DATA 1014..2028",
            "> DATA 2028..2500 EOD STATUS requested",
            "< STATUS well 2500 of 2500 voluntary",
        ]
    );
}

#[test]
fn put_requests_first_and_waits() {
    let file = content(SIZE);
    let mut world = World::with(&quiet());
    world.put(&file, Put::Ask);
    world.run();
    world.assert_delivered(&file);
    assert_eq!(
        world.transcript(),
        [
            "> REQUEST put \"copy\"",
            "< STATUS well 0 of 0 voluntary without METADATA",
            "> METADATA file \"copy\" of 2500 B",
            "> DATA 0..1014",
            "> DATA 1014..2028",
            "> DATA 2028..2500 EOD STATUS requested",
            "< STATUS well 2500 of 2500 voluntary",
        ]
    );
}

#[test]
fn get_without_loss() {
    let file = content(SIZE);
    let mut world = world_with_source(&quiet(), &file);
    world.get(false);
    world.run();
    world.assert_delivered(&file);
    assert!(world.hosts[0].store.get(&name("source")).is_some());
    assert_eq!(
        world.transcript(),
        [
            "< REQUEST get \"source\"",
            "> METADATA file \"source\" of 2500 B",
            "> DATA 0..1014",
            "> DATA 1014..2028",
            "> DATA 2028..2500 EOD STATUS requested",
            "< STATUS well 2500 of 2500 voluntary",
        ]
    );
}

#[test]
fn take_deletes_the_remote_file_after_verification() {
    let file = content(SIZE);
    let mut world = world_with_source(&quiet(), &file);
    world.get(true);
    while world.copy().is_none() {
        assert!(world.hosts[0].store.get(&name("source")).is_some());
        assert!(world.step());
    }
    // The copy has its name; its sender is informed later.
    assert!(world.hosts[0].store.get(&name("source")).is_some());
    world.run();
    world.assert_delivered(&file);
    assert!(world.hosts[0].store.get(&name("source")).is_none());
    assert_eq!(world.transcript()[0], "< REQUEST take \"source\"");
}

#[test]
fn give_deletes_the_local_file_after_verification() {
    for put in [Put::Ask, Put::Push] {
        let file = content(SIZE);
        let mut world = World::with(&quiet());
        world.put_with(&file, |request| (request.put, request.delete) = (put, true));
        world.run();
        world.assert_delivered(&file);
        assert!(world.hosts[0].store.get(&name("source")).is_none());
        let requested = world.transcript()[0] == "> REQUEST give \"copy\"";
        assert_eq!(requested, put == Put::Ask);
    }
}

/// Bytes that do not match the checksum are discarded, and the original stays.
#[test]
fn a_copy_with_a_wrong_checksum_is_discarded() {
    for checksum in [ChecksumKind::Crc32, ChecksumKind::Md5, ChecksumKind::Sha1] {
        let file = content(SIZE);
        let mut world = World::with(&Config { checksum, ..quiet() });
        world.lose(|side, _, datagram| {
            if side == 0 && matches!(Packet::decode(datagram), Ok(Packet::Data(_))) {
                *datagram.last_mut().expect("it has bytes") ^= 1;
            }
            false
        });
        world.put_with(&file, |request| request.delete = true);
        world.run();
        assert_eq!(world.failure(0), Some(StatusCode::Unspecified), "{checksum:?}");
        assert_eq!(world.failure(1), Some(StatusCode::Unspecified));
        assert!(world.copy().is_none());
        assert!(world.hosts[0].store.get(&name("source")).is_some());
        assert_eq!(world.hosts[1].store.names(engine::Area::Spool).count(), 0);
        assert_eq!(world.hosts[1].store.records().count(), 0);
    }
}

#[test]
fn every_checksum_verifies() {
    use ChecksumKind::{Crc32, Md5, None, Sha1};
    for checksum in [None, Crc32, Md5, Sha1] {
        for lost in [&[][..], &[0], &[1, 3, 40]] {
            World::crossed_with(
                &Config { checksum, ..config() },
                70_001,
                Put::Push,
                lose_numbers(lost),
            );
        }
    }
}

/// Transfer of a file of three packets.
#[derive(Clone, Copy, Debug)]
enum Way {
    Put(Put),
    Get,
    Take,
    Stream,
}

fn begin(world: &mut World, way: Way, file: &[u8]) {
    world.hosts[0].store.insert(name("source"), file.to_vec());
    match way {
        Way::Put(put) => {
            world.put(file, put);
        }
        Way::Get | Way::Take => {
            world.get(matches!(way, Way::Take));
        }
        Way::Stream => {
            world.put_with(file, |request| request.stream = true);
        }
    }
}

/// Each packet of the conversation without loss is lost once, and then each pair of them.
#[test]
fn every_single_loss_is_repaired() {
    let file = content(SIZE);
    for way in [Way::Put(Put::Push), Way::Put(Put::Ask), Way::Get, Way::Take, Way::Stream] {
        for settings in [quiet(), config()] {
            let mut world = World::with(&settings);
            begin(&mut world, way, &file);
            world.run();
            world.assert_delivered(&file);
            let sent = [0, 1].map(|from| world.packets(from).count());
            let all: Vec<_> =
                (0..2).flat_map(|side| (0..sent[side]).map(move |number| (side, number))).collect();
            for (i, first) in all.iter().enumerate() {
                for second in &all[i..] {
                    let lost = [*first, *second];
                    let mut world = World::with(&settings);
                    world.lose(move |side, number, _| lost.contains(&(side, number)));
                    begin(&mut world, way, &file);
                    world.run();
                    // The receiver's last packet may be lost for good.
                    assert!(world.copy() == Some(&file[..]), "{way:?} {lost:?}");
                    let finished = world.finished(0).expect("it ended");
                    assert_eq!(
                        finished.result,
                        Ok(()),
                        "{way:?} {lost:?} {:#?}",
                        world.transcript()
                    );
                    let packets = world.log.len();
                    assert!(packets <= 2 * all.len() + 12, "{way:?} {lost:?}: {packets} packets");
                    assert!(world.now < Time::from_nanos(20_000_000_000), "{way:?} {lost:?}");
                }
            }
        }
    }
}

#[test]
fn lost_data_is_retransmitted_before_new_data() {
    let world = World::crossed_with(&config(), 500_000, Put::Push, lose_numbers(&[3]));
    let lines = world.transcript();
    let hole = lines.iter().position(|line| line.starts_with("< STATUS") && line.contains("..="));
    let hole = hole.expect("it is reported");
    let repair = lines.iter().position(|line| line.starts_with("> DATA 2008.."));
    let repair = repair.unwrap_or_else(|| panic!("{lines:#?}"));
    let end = lines.iter().position(|line| line.contains("EOD")).expect("it is reported");
    assert!(hole < repair && repair < end, "{hole} {repair} {end}");
}

#[test]
fn streams_end_at_their_last_packet() {
    for size in [0, SIZE] {
        let file = content(size);
        let mut world = World::with(&quiet());
        world.put_with(&file, |request| request.stream = true);
        world.run();
        world.assert_delivered(&file);
        let Some(Packet::Metadata(metadata)) = world.packets(0).next() else {
            panic!("no METADATA")
        };
        assert_eq!(metadata.checksum, crate::packet::FileChecksum::None);
        assert_eq!((metadata.entry.size, metadata.content), (0, crate::packet::Content::Stream));
        assert!(world.transcript().iter().any(|line| line.contains("EOD STATUS requested")));
    }
}

#[test]
fn a_stream_that_is_cancelled_is_marked_as_over() {
    let file = content(500_000);
    let mut world = World::with(&quiet());
    let id = world.put_with(&file, |request| request.stream = true);
    world.run_until(Time::from_nanos(100_000_000));
    let now = world.now;
    world.hosts[0].engine.cancel(now, id).expect("it is under way");
    world.drain(0);
    world.run();
    assert_eq!(
        world.transcript().last().map(|line| &line[..]),
        Some("> METADATA stream \"copy\" of 0 B, no checksum, over")
    );
    assert!(world.failure(1).is_some() && world.copy().is_none());
}

/// Data beyond the end, or an end before received data: in any order, one of them is wrong.
#[test]
fn streams_with_conflicting_ends_are_refused() {
    use super::world::{data, metadata};
    use crate::packet::{Content, Data, FileChecksum, Metadata};

    let content = Content::Stream;
    let described = Metadata { content, ..metadata(0, FileChecksum::None) };
    let described = Packet::Metadata(described);
    let part = |offset, is_end| {
        let data = data(offset, &[1; 100]);
        Packet::Data(Data { content, is_end, wants_status: is_end, ..data })
    };
    let (beyond, end) = (part(500, false), part(100, true));
    let (start, whole) = (part(0, false), part(0, true));
    for packets in [
        [&described, &beyond, &whole],
        [&described, &end, &beyond],
        [&described, &part(500, true), &whole],
        [&beyond, &whole, &described],
        [&end, &beyond, &described],
        [&part(500, true), &end, &described],
    ] {
        let mut world = World::alone(quiet());
        packets.into_iter().chain([&start]).for_each(|packet| world.say(0, *packet));
        world.run();
        assert_eq!(world.failure(0), Some(StatusCode::Unspecified), "{packets:?}");
        assert!(world.hosts[0].store.get(&name("copy")).is_none());
        let last = world.statuses(0).last().map(|status| status.code);
        assert_eq!(last, Some(StatusCode::Unspecified));
    }
}

#[test]
fn blind_puts_request_no_status() {
    let file = content(SIZE);
    let mut world = World::with(&quiet());
    world.put(&file, Put::Blind);
    world.run();
    assert_eq!(
        world.transcript(),
        [
            "> METADATA file \"copy\" of 2500 B",
            "> DATA 0..1014",
            "> DATA 1014..2028",
            "> DATA 2028..2500 EOD",
        ]
    );
    assert!(world.copy() == Some(&file[..]));
    assert!(!world.finished(0).expect("it ended").is_confirmed);
}

/// The receiver cannot detect that no STATUS is expected, if the packet with the end is lost or
/// the transfer takes long.
#[test]
fn blind_puts_get_few_statuses_with_any_losses() {
    let file = content(1_000_000);
    let mut counts = Vec::new();
    for seed in 0..20 {
        let mut world = World::with(&config());
        let mut losses = Rng::new(seed, "losses");
        // The last of 987 DATA packets has the end. One seed in two loses it.
        world.lose(move |side, number, _| {
            side == 0 && (losses.chance(0.05) && number > 0 || number == 987 && seed % 2 == 0)
        });
        world.put(&file, Put::Blind);
        world.run();
        assert!(world.copy().is_none(), "losses are not repaired");
        counts.push(world.statuses(1).len());
    }
    println!("STATUS packets: {counts:?}");
    // The fourth ends the reception.
    assert!(counts.iter().all(|count| (1..=4).contains(count)), "{counts:?}");
}

#[test]
fn transfers_resume_after_a_restart_of_either_side() {
    let file = content(2_000_000);
    for side in 0..2 {
        let mut settings = config();
        settings.journal.bytes = 100_000;
        let mut world = World::with(&settings);
        world.put(&file, Put::Push);
        world.run_until(Time::from_nanos(1_000_000_000));
        world.restart(side);
        if side == 0 {
            world.put(&file, Put::Push);
        }
        world.run();
        assert!(world.copy() == Some(&file[..]), "{side}: {:#?}", world.transcript());
        assert_eq!(world.finished(0).expect("it ended").result, Ok(()));
        let first = world.log.iter().map(|sent| match Packet::decode(&sent.bytes) {
            Ok(Packet::Data(data)) if sent.from == 0 => data.data.len(),
            Ok(_) | Err(_) => 0,
        });
        let sent: usize = first.sum();
        assert!(sent < file.len() + 400_000, "{side}: {sent} bytes");
    }
}

#[test]
fn a_file_crosses_with_losses_both_ways() {
    for seed in 0..8 {
        let file = content(300_000);
        let mut world = World::with(&config());
        let mut rng = Rng::new(seed, "losses");
        world.lose(move |_, _, _| rng.below(5) == 0);
        world.put(&file, Put::Push);
        world.run();
        assert!(world.copy() == Some(&file[..]), "{seed}");
    }
}

/// Busy hosts process several events at once.
#[test]
fn a_file_crosses_between_peers_that_are_late() {
    for seed in 0..100 {
        let file = content(30_000);
        let mut world = World::with(&config());
        world.stalls = Some(Rng::new(seed, "stalls"));
        let mut rng = Rng::new(seed, "losses");
        world.lose(move |_, _, _| rng.below(5) == 0);
        world.put(&file, Put::Push);
        world.run();
        assert!(world.copy() == Some(&file[..]), "{seed}");
    }
}
