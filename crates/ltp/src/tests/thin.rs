//! Return links that carry a few segments per second.

use std::time::Duration;

use engine::{PathInfo, Time};

use super::world::{World, content, lose_one_in};
use crate::segment::{Body, Segment};
use crate::{Config, Red, Remote, Timer};

/// 10 Mbit/s forward and `return_bps` on the return link, configured at the sender.
fn world(return_bps: u64, config: &Config) -> World {
    let mut world = World::with(config);
    let info = world.hops[0].info.clone();
    world.hops[0].info.rate_bps = Some(return_bps);
    world.up(1);
    world.hops[0].info = PathInfo { return_bps: Some(return_bps), ..info };
    world.up(0);
    world
}

/// Bytes of the block in all data segments, and the number of these segments.
fn sent(world: &World) -> (usize, usize) {
    let data = world.log.iter().filter_map(|sent| {
        match Segment::decode(&sent.bytes).expect("what an engine sends can be read").body {
            Body::Data(data) => Some(data.data.len()),
            _ => None,
        }
    });
    data.fold((0, 0), |(bytes, segments), len| (bytes + len, segments + 1))
}

/// Mean time of a file of 1 MB over eight patterns of losses, and the bytes of all data segments.
fn delivery(return_bps: u64, is_known: bool) -> (Duration, usize) {
    let file = content(1_000_000);
    let one = |seed| {
        let mut world = world(return_bps, &Config::default());
        if !is_known {
            world.hops[0].info.return_bps = None;
            world.up(0);
        }
        world.lose(lose_one_in(10, seed));
        world.send(&file, Red::All);
        while world.finished(1).is_none() {
            assert!(world.step(), "{:#?}", world.transcript());
        }
        (world.now.since(Time::ZERO), sent(&world).0)
    };
    let (time, bytes) =
        (0..8).map(one).fold((Duration::ZERO, 0), |(t, b), (time, bytes)| (t + time, b + bytes));
    (time / 8, bytes / 8)
}

#[test]
fn unclaimed_data_is_repeated_while_reports_are_delayed() {
    // One pass takes 0.85 s, a repair and a round trip more each.
    let (wide, sent) = delivery(10_000_000, true);
    assert!(wide < Duration::from_millis(1200) && sent < 1_200_000, "{wide:?}, {sent}");
    // A report takes 0.3 s at 2 kbit/s.
    let (thin, sent) = delivery(2_000, true);
    assert!(thin < Duration::from_millis(2400) && sent > 2_000_000, "{thin:?}, {sent}");
    // Over a return link of unknown rate, reports may be late because a peer was out of reach.
    let (unknown, sent) = delivery(2_000, false);
    assert!(unknown > thin && sent < 2_100_000, "{unknown:?}, {sent}");
}

/// On a symmetric link every retransmitted byte was requested, or ends at a checkpoint without a
/// reply.
#[test]
fn symmetric_links_cause_no_unrequested_repeats() {
    let file = content(1_000_000);
    for light_ms in [1, 25, 250, 600_000] {
        for seed in 0..8 {
            let default_remote = Remote { repair_copies: 2, ..Remote::default() };
            let mut world = World::with(&Config { default_remote, ..Config::default() });
            world.hops[0].info.owlt = Some(Duration::from_millis(light_ms));
            world.hops[0].info.return_bps = Some(10_000_000).filter(|_| seed % 2 == 0);
            (0..2).for_each(|side| world.up(side));
            let mut lost = 0;
            world.lose(lose_one_in(10, seed));
            world.send(&file, Red::All);
            world.run();
            world.assert_delivered(&file);
            for sent in &world.log {
                let segment = Segment::decode(&sent.bytes).expect("a segment");
                if let (0, true, Body::Data(data)) = (sent.from, sent.lost, segment.body) {
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
        world.lose(move |side, number, _| {
            side == 1 && number >= dead_from || side == 0 && number % 10 == 7
        });
        world.send(&file, Red::All);
        world.run();
        assert!(world.finished(0).expect("it ended").result.is_err());
        let (bytes, _) = sent(&world);
        assert!(bytes < 8 * file.len(), "{dead_from}: {bytes}");
    }
}
