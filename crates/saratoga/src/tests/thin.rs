//! Return links that carry a few packets per second, and outages.

use std::time::Duration;

use engine::{Input, PathEvent, PathInfo, Time};

use super::world::{PATH, World, config, content};
use crate::Put;
use crate::packet::Packet;

/// 10 Mbit/s forward with 10 % loss, and `return_bps` on the return link, configured at the
/// sender.
fn lossy(return_bps: u64) -> World {
    let mut world = World::with(&config());
    world.hops[0].info.return_bps = Some(return_bps);
    world.up(0);
    let info = PathInfo { rate_bps: Some(return_bps), ..world.hops[0].info.clone() };
    world.input(1, Input::Path(PATH, PathEvent::Up(info)));
    world.lose(|side, number, _| side == 0 && number % 10 == 7);
    world
}

/// Delivery time, and the longest list of holes.
fn delivery(world: &mut World, file: &[u8]) -> (f64, usize) {
    world.put(file, Put::Push);
    while world.finished(1).is_none() {
        assert!(world.step());
    }
    let holes = world.statuses(1).iter().map(|status| status.holes.iter().count()).max();
    (world.now.as_nanos() as f64 / 1e9, holes.unwrap_or_default())
}

#[test]
fn holes_are_joined_where_the_return_link_is_thin() {
    let file = content(1_000_000);
    let (wide_s, wide_holes) = delivery(&mut lossy(10_000_000), &file);
    assert!(wide_s < 1.2 && wide_holes > 5, "{wide_s} s, {wide_holes} holes");
    // Forty times lower: all holes of a STATUS fit in half of the remaining time.
    let (thin_s, thin_holes) = delivery(&mut lossy(2_000), &file);
    assert!(thin_s < 2.5 && thin_holes < 20, "{thin_s} s, {thin_holes} holes");
}

/// First hole of each STATUS that is one of several.
fn partial_lists(return_bps: u64) -> Vec<u64> {
    let mut world = lossy(return_bps);
    delivery(&mut world, &content(3_000_000));
    let statuses = world.statuses(1);
    let partial = statuses.iter().filter(|status| status.is_partial);
    partial.filter_map(|status| status.holes.iter().next()).map(|hole| hole.start).collect()
}

#[test]
fn a_status_before_the_end_lists_only_new_holes() {
    let starts = partial_lists(2_000);
    assert!(starts.len() > 1 && starts.is_sorted_by(|one, next| one < next), "{starts:?}");
    // Where holes cost little, each STATUS lists all.
    assert_eq!(partial_lists(1_000_000), []);
}

/// Bytes of a file in all packets of its sender.
fn data_bytes(world: &mut World, file: &[u8]) -> usize {
    world.put(file, Put::Push);
    world.run();
    world.assert_delivered(file);
    let data = |packet| if let Packet::Data(it) = packet { it.data.len() } else { 0 };
    world.packets(0).map(data).sum()
}

#[test]
fn unconfirmed_data_is_repeated_while_the_status_is_delayed() {
    // 400 packets at 10 Mbit/s take 0.34 s, and a STATUS is sent every 0.37 s at 2 kbit/s.
    let file = content(400_000);
    let mut thin = lossy(2_000);
    thin.lose(|_, _, _| false);
    let sent = data_bytes(&mut thin, &file);
    assert!((file.len() + 50_000..2 * file.len()).contains(&sent), "{sent} of {}", file.len());
    // A late reply over a return link of unknown rate may come from a peer that was out of reach.
    let mut unknown = lossy(2_000);
    unknown.hops[0].info.return_bps = None;
    unknown.up(0);
    unknown.lose(|_, _, _| false);
    assert_eq!(data_bytes(&mut unknown, &file), file.len());
    // The same delay by light time leaves nothing to gain.
    let mut far = World::with(&config());
    far.hops[0].info.owlt = Some(Duration::from_millis(170));
    (0..2).for_each(|side| far.up(side));
    assert_eq!(data_bytes(&mut far, &file), file.len());
}

#[test]
fn on_a_slow_symmetric_link_nothing_is_repeated() {
    let file = content(20_000);
    for return_bps in [None, Some(9_600)] {
        let mut world = World::with(&config());
        (world.hops[0].info.rate_bps, world.hops[0].info.return_bps) = (Some(9_600), return_bps);
        (0..2).for_each(|side| world.up(side));
        assert_eq!(data_bytes(&mut world, &file), file.len());
    }
}

#[test]
fn repeats_to_a_vanished_peer_stop() {
    let mut world = World::with(&config());
    world.hops[0].info.return_bps = Some(2_000);
    (0..2).for_each(|side| world.up(side));
    world.lose(|_, _, _| true);
    let file = content(400_000);
    world.put(&file, Put::Push);
    world.run_until(Time::from_secs(60));
    let sent = |world: &World| {
        let data = |packet| if let Packet::Data(it) = packet { it.data.len() } else { 0 };
        world.packets(0).map(data).sum::<usize>()
    };
    let before = sent(&world);
    assert!((2 * file.len()..=8 * file.len()).contains(&before), "{before}");
    world.run_until(Time::from_secs(600));
    assert_eq!(sent(&world), before);
}

/// World in which all of the file was sent, and no reply arrives.
fn unanswered() -> World {
    let mut world = World::with(&config());
    world.lose(|side, _, _| side == 1);
    world.put(&content(2500), Put::Push);
    world.run_until(Time::from_secs(1));
    world
}

/// Sending times of the sender's packets from `since` on.
fn departures(world: &World, since: Time) -> Vec<Time> {
    world.log.iter().filter(|sent| sent.from == 0 && sent.at >= since).map(|sent| sent.at).collect()
}

#[test]
fn restored_paths_are_used_at_once() {
    for (down, up) in [(PathEvent::Down, None), (PathEvent::ReturnDown, Some(PathEvent::ReturnUp))]
    {
        let mut world = unanswered();
        world.input(0, Input::Path(PATH, down));
        world.run_until(Time::from_secs(900));
        assert_eq!(departures(&world, Time::from_secs(2)), [], "no timer runs");
        world.lose(|_, _, _| false);
        let up = up.unwrap_or(PathEvent::Up(world.hops[0].info.clone()));
        world.input(0, Input::Path(PATH, up));
        world.run();
        assert_eq!(departures(&world, Time::from_secs(2))[0], Time::from_secs(900));
        assert!(world.now < Time::from_secs(901), "{}", world.now);
    }
}

/// An unannounced outage ends within the silence that a session allows: a probe is sent every
/// 250 ms.
#[test]
fn unannounced_outages_are_survived() {
    let mut world = unanswered();
    world.run_until(Time::from_secs(3000));
    world.lose(|_, _, _| false);
    world.run();
    world.assert_delivered(&content(2500));
    assert!(world.now < Time::from_secs(3001), "{}", world.now);
    // Each with the METADATA, which is unconfirmed as well.
    let probes = departures(&world, Time::from_secs(10)).len() / 2;
    assert!((10_000..14_000).contains(&probes), "{probes}");
}
