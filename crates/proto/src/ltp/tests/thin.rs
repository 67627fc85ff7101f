//! Return links that carry a few segments a second.

use std::time::Duration;

use engine::Time;
use wire::ltp::{Body, Segment};

use super::world::{World, content, lose_one_in};
use crate::ltp::{Config, Red, Remote, Timer};

/// 10 Mbit/s there and so much back.
fn world(return_bps: u64, config: &Config) -> World {
    let mut world = World::with(config);
    let info = world.info.clone();
    world.info.rate_bps = Some(return_bps);
    world.up(1);
    world.info = info;
    world
}

/// Bytes of the block in all data segments, and the number of these segments.
fn sent(world: &World) -> (usize, usize) {
    let data = world.log.iter().filter_map(|(_, _, datagram, _)| {
        match Segment::decode(datagram).expect("what an engine sends can be read").body {
            Body::Data(data) => Some(data.data.len()),
            _ => None,
        }
    });
    data.fold((0, 0), |(bytes, segments), len| (bytes + len, segments + 1))
}

/// When the file is there, and the bytes of all data segments.
fn delivery(return_bps: u64, file: &[u8]) -> (Duration, usize) {
    let mut world = world(return_bps, &Config::default());
    world.lose = Box::new(|side, number, _| side == 0 && number % 10 == 7);
    world.send(file, Red::All);
    while world.finished(1).is_none() {
        assert!(world.step(), "{:#?}", world.transcript());
    }
    (world.now.since(Time::ZERO), sent(&world).0)
}

#[test]
fn what_no_report_claims_goes_again_while_a_thin_return_link_delays_reports() {
    let file = content(1_000_000);
    // One pass takes 0.85 s, a repair and a round trip more each.
    let (wide, sent) = delivery(10_000_000, &file);
    assert!(wide < Duration::from_millis(1200) && sent < 1_200_000, "{wide:?}, {sent}");
    // A report takes 0.3 s at 2 kbit/s.
    let (thin, sent) = delivery(2_000, &file);
    assert!(thin < Duration::from_millis(2600) && sent > 2_000_000, "{thin:?}, {sent}");
}

/// On a symmetric link every byte that goes again was requested, or ends at a checkpoint that
/// nobody answered.
#[test]
fn nothing_goes_again_unrequested_on_a_symmetric_link() {
    let file = content(1_000_000);
    for light_ms in [1, 25, 250, 600_000] {
        for seed in 0..8 {
            let default_remote = Remote { repair_copies: 2, ..Remote::default() };
            let mut world = World::with(&Config { default_remote, ..Config::default() });
            world.info.owlt = Some(Duration::from_millis(light_ms));
            (0..2).for_each(|side| world.up(side));
            let mut lost = 0;
            world.lose = lose_one_in(10, seed);
            world.send(&file, Red::All);
            world.run();
            world.assert_delivered(&file);
            for (_, side, datagram, is_lost) in &world.log {
                let segment = Segment::decode(datagram).expect("a segment");
                if let (0, true, Body::Data(data)) = (*side, *is_lost, segment.body) {
                    lost += data.data.len();
                }
            }
            let more = sent(&world).0 - file.len();
            assert!(more <= 2 * lost + 20_000, "{light_ms} ms, {seed}: {more}, {lost} lost");
        }
    }
}

#[test]
fn repeats_to_a_dead_peer_end() {
    let remote = Remote { inactivity: Timer::Fixed(Duration::from_secs(600)), ..Remote::default() };
    let file = content(1_000_000);
    for dead_from in [0, 3] {
        let mut world =
            world(2_000, &Config { default_remote: remote.clone(), ..Config::default() });
        world.lose = Box::new(move |side, number, _| {
            side == 1 && number >= dead_from || side == 0 && number % 10 == 7
        });
        world.send(&file, Red::All);
        world.run();
        assert!(world.finished(0).expect("it ended").result.is_err());
        let (bytes, _) = sent(&world);
        assert!(bytes < 6 * file.len(), "{dead_from}: {bytes}");
    }
}

/// A repair of one segment is one segment, although offsets grow with the block.
#[test]
fn repairs_keep_the_segments() {
    let file = content(3_000_000);
    let default_remote = Remote { repair_copies: 1, ..Remote::default() };
    let mut world = World::with(&Config { default_remote, ..Config::default() });
    // Below 2^14, 2^21 and beyond.
    world.lose =
        Box::new(|side, number, _| side == 0 && [9, 11, 900, 902, 2500, 2502].contains(&number));
    world.send(&file, Red::All);
    world.run();
    world.assert_delivered(&file);
    let mut whole = World::with(&Config::default());
    whole.send(&file, Red::All);
    whole.run();
    // Only the last is cut, for the serial numbers of its checkpoint.
    assert_eq!(sent(&world).1 - sent(&whole).1, 7);
}
