//! Senders of coded objects: parity unasked, reports, and requests by count.

use std::time::Duration;

use engine::Time;

use super::world::{PATH, World, content, lose_numbers, lose_one_in, name};
use crate::{Config, EndGame, ObjectId, Waste, profile};

fn coded(waste: Waste) -> Config {
    let mut config = profile("coded").expect("there is such a profile");
    config.sender.waste = waste;
    config
}

#[test]
fn unasked_parity_covers_losses() {
    let world = World::crossed_with(&coded(Waste::Share(0.01)), 200_000, lose_numbers(&[20, 90]));
    let lines = || world.transcript();
    assert_eq!(world.hosts[1].engine.stats().sent.nacks, 0, "{:#?}", lines());
    let stats = world.hosts[0].engine.stats();
    assert!((2..20).contains(&stats.auto_parity), "{}", stats.auto_parity);
    assert_eq!(world.hosts[1].engine.stats().recovered, 2, "{:#?}", lines());
}

#[test]
fn reports_are_requested_early_if_a_file_opens_late() {
    let mut world = World::with(&coded(Waste::Share(0.01)));
    world.hosts[0].slow = Some(Vec::new());
    world.send(&content(1_000_000));
    // The first probe precedes the file.
    world.run_until(Time::from_nanos(5_000_000));
    assert_eq!(probes(&world), 1);
    for millis in 5..300 {
        world.run_until(Time::from_nanos(1_000_000 * millis));
        world.work_off(0);
    }
    assert!(probes(&world) > 10, "{:#?}", world.transcript());
}

/// Number of probes that were sent.
fn probes(world: &World) -> usize {
    world
        .transcript()
        .iter()
        .filter(|line| line.contains(" CC ") && line.contains(" sent "))
        .count()
}

#[test]
fn without_waste_lost_segments_are_requested_by_count() {
    let world =
        World::crossed_with(&coded(Waste::Nothing), 200_000, lose_numbers(&[20, 21, 22, 40, 90]));
    let lines = || world.transcript();
    let stats = world.hosts[0].engine.stats();
    let sent = stats.auto_parity + stats.parity_repairs;
    assert!((5..12).contains(&sent), "{sent}: {:#?}", lines());
    assert_eq!(stats.explicit_repairs, 0, "{:#?}", lines());
    assert!(world.hosts[1].engine.stats().sent.nacks <= 1, "{:#?}", lines());
}

#[test]
fn after_all_parity_source_segments_are_sent_again() {
    let mut config = coded(Waste::Nothing);
    config.sender.parity = 2;
    let world = World::crossed_with(&config, 100_000, lose_numbers(&[10, 11, 12, 13, 30, 31, 32]));
    assert!(world.hosts[0].engine.stats().explicit_repairs > 0, "{:#?}", world.transcript());
}

#[test]
fn segments_sent_again_are_counted_as_mostly_there() {
    for waste in [Waste::Nothing, Waste::Share(0.01)] {
        let mut config = coded(waste);
        config.sender.parity = 256;
        // 997 segments and 256 of parity, of which 626 arrive.
        let world = World::crossed_with(&config, 1_000_000, lose_one_in(2, 5));
        let stats = world.hosts[0].engine.stats();
        let again = stats.explicit_repairs + stats.parity_repairs + stats.auto_parity;
        // In turn, of 1,253 segments 627 are new to the receiver, at the end 256, and half of these
        // arrive: the 371 that it lacks take 2,250.
        assert!((1_500..3_500).contains(&again), "{again}");
        assert!(world.now < Time::from_secs(6), "{:?}", world.now);
    }
}

#[test]
fn several_blocks_cross_many_losses() {
    for waste in [Waste::Nothing, Waste::Share(0.01), Waste::RoundTrip] {
        let mut config = coded(waste);
        config.sender.block_len = 100;
        for seed in 0..10 {
            World::crossed_with(&config, 300_000 + seed as usize, lose_one_in(5, seed));
        }
    }
}

#[test]
fn short_objects_cross_many_losses() {
    for len in [1, 2, 999, 1_500, 10_000] {
        for seed in 0..20 {
            World::crossed_with(&coded(Waste::Share(0.01)), len, lose_one_in(4, seed));
        }
    }
}

#[test]
fn one_way_parity_reaches_the_confidence() {
    let mut config = coded(Waste::Share(0.01));
    config.sender.confidence = Some(0.999);
    config.sender.loss = Some(0.2);
    let mut delivered = 0;
    for seed in 0..50 {
        let mut world = World::with(&config);
        let file = content(100_000);
        let mut lose = lose_one_in(5, seed);
        // Nothing returns.
        world.lose(move |side, number, bytes| side == 1 || lose(side, number, bytes));
        world.send(&file);
        world.run_until(Time::from_secs(60));
        delivered += u32::from(world.hosts[1].store.get(&name("copy")).is_some());
        assert_eq!(world.hosts[0].engine.config().sender.end, EndGame::Flush);
    }
    assert!(delivered >= 49, "{delivered}");
}

/// Files delivered to silent receivers, of as many as there are seeds.
fn delivered_one_way(len: usize, lost_of: (u64, u64), seeds: u64) -> u64 {
    let mut config = coded(Waste::Share(0.01));
    config.sender.confidence = Some(0.999);
    config.sender.loss = Some(lost_of.0 as f64 / lost_of.1 as f64);
    config.receiver.silent = true;
    let file = content(len);
    let is_delivered = |seed: &u64| {
        let mut world = World::with(&config);
        let mut rng = engine::Rng::new(*seed, "loss");
        world.lose(move |side, _, _| side == 1 || rng.below(lost_of.1) < lost_of.0);
        world.send(&file);
        world.run_until(Time::from_secs(60));
        world.hosts[1].store.get(&name("copy")).is_some()
    };
    (0..seeds).filter(is_delivered).count() as u64
}

/// Objects of one segment, of fewer than receivers keep without NORM_INFO, of more, and of those
/// whose digest is known only at their end. With only the usual copies of NORM_INFO, one in seven
/// of the first fails.
#[test]
fn one_way_delivery_does_not_depend_on_the_first_info() {
    for (len, lost_of, seeds, failures_max) in [
        // Two to three standard deviations more than one in a thousand.
        (1_000, (1, 2), 1_000, 3),
        (20_000, (7, 10), 1_000, 3),
        (270_000, (1, 100), 100, 1),
        (270_000, (1, 2), 60, 1),
        (500_000, (1, 2), 60, 1),
    ] {
        let failures = seeds - delivered_one_way(len, lost_of, seeds);
        assert!(failures <= failures_max, "{len}, {lost_of:?}: {failures} of {seeds}");
    }
}

#[test]
fn a_carousel_reaches_receivers_that_start_late() {
    let mut config = coded(Waste::Share(0.01));
    config.sender.carousel = Some(Duration::from_secs(6));
    config.sender.loss = Some(0.2);
    config.sender.block_len = 50;
    config.receiver.silent = true;
    // 2,500 datagrams take about 3 s: after 8 rounds of all parity, and while it is sent again.
    for (seed, late) in [(0, 0), (1, 700), (2, 1_300), (3, 2_500)] {
        let mut world = World::with(&config);
        let file = content(300_000);
        let mut lose = lose_one_in(5, seed);
        world.lose(move |side, number, bytes| {
            side == 1 || number < late || lose(side, number, bytes)
        });
        world.send(&file);
        world.run_until(Time::from_nanos(5_900_000_000));
        assert_eq!(world.hosts[1].store.get(&name("copy")), Some(&file[..]), "{seed}");
        assert_eq!(world.finished(0), None, "{seed}");
        world.run_until(Time::from_secs(8));
        let end = world.finished(0).map(|finished| finished.result.clone());
        assert_eq!(end, Some(Ok(())), "{seed}");
    }
}

#[test]
fn objects_without_bytes_and_of_many_blocks_go_round() {
    for (len, block_len) in [(0, 100), (1, 100), (100_000, 2)] {
        let mut config = coded(Waste::Share(0.01));
        config.sender.carousel = Some(Duration::from_secs(3));
        config.sender.block_len = block_len;
        config.receiver.silent = true;
        let mut world = World::with(&config);
        let file = content(len);
        world.lose(move |side, number, _| side == 1 || number < 300);
        world.send(&file);
        world.run_until(Time::from_secs(5));
        assert_eq!(world.hosts[1].store.get(&name("copy")), Some(&file[..]), "{len}");
        assert!(world.finished(0).is_some(), "{len}");
    }
}

#[test]
fn a_one_way_sender_ends_soon_after_its_last_segment() {
    let mut config = coded(Waste::Share(0.01));
    config.sender.confidence = Some(0.999);
    config.sender.grtt_initial = Duration::from_secs(1_000);
    let mut world = World::with(&config);
    world.lose(|side, _, _| side == 1);
    world.send(&content(100_000));
    world.run_until(Time::from_secs(5));
    assert!(world.finished(0).is_some());
}

/// Transfer of a file of blocks of two segments of 100 bytes to a receiver whose messages are lost
/// until all source segments were sent.
fn many_blocks(blocks: usize, seed: u64) -> (World, ObjectId, Vec<u8>) {
    let mut config = coded(Waste::Share(0.01));
    (config.sender.block_len, config.sender.segment_size) = (2, Some(100));
    let mut world = World::with(&config);
    let file = content(200 * blocks);
    let (mut lose, mut sent) = (lose_one_in(5, seed), 0);
    world.lose(move |side, number, bytes| {
        sent = if side == 0 { number } else { sent };
        side == 1 && sent < 2 * blocks || lose(side, number, bytes)
    });
    let id = world.send(&file);
    (world, id, file)
}

#[test]
fn the_first_of_many_blocks_are_repaired() {
    let (mut world, _, file) = many_blocks(4_500, 1);
    world.run();
    world.assert_delivered(&file);
}

#[test]
fn blocks_whose_states_were_dropped_are_repaired() {
    for seed in 0..5 {
        let (mut world, id, file) = many_blocks(1_000, seed);
        let engine = &mut world.hosts[0].engine;
        let Some(sender) = engine.senders.get_mut(&PATH) else {
            panic!("it has no sender");
        };
        sender.object(id.number).expect("it has the object").limit_states(30 << 10);
        world.run();
        world.assert_delivered(&file);
        // Of 2,000 segments, 400 are lost, and as many of those that make up for them.
        let stats = world.hosts[0].engine.stats();
        let more = stats.auto_parity + stats.parity_repairs + stats.explicit_repairs;
        assert!(more < 2_000, "{more}");
    }
}
