//! Random worlds.

use std::time::Duration;

use engine::{Rng, Time};

use super::world::{World, chain_settings, content, hop};
use crate::ltpt::{Config, Indication, Limits};
use crate::{Red, Remote};

fn millis(rng: &mut Rng, max: u64) -> Duration {
    Duration::from_millis(rng.below(max + 1))
}

/// Files cross hops that lose, fail and recover, via engines that die and have little room. Each
/// arrives once and whole, or its failure is reported, and nothing is left behind.
fn run(seed: u64) {
    let mut rng = Rng::new(seed, "ltpt worlds");
    let count = 2 + rng.below(3) as usize;
    let transport = Config {
        lifetime: Duration::from_secs(3600 * (1 + rng.below(24))),
        cut_through: rng.chance(0.8),
        limits: Limits {
            storage: if rng.chance(0.4) { 30_000 + rng.below(100_000) } else { 1 << 30 },
            ..Limits::default()
        },
        ..Config::default()
    };
    let remote = Remote {
        segment_max: Some(200 + rng.below(1000) as usize),
        checkpoint_every: rng.chance(0.4).then(|| 500 + rng.below(10_000)),
        report_gaps: rng.chance(0.3),
        ..Remote::default()
    };
    let settings = (0..count).map(|i| {
        let mut settings = chain_settings(i, count, &transport, &remote);
        settings.limits.buffers.read_ahead = 2048 << rng.below(10);
        settings.limits.buffers.read_piece = 1024 << rng.below(8);
        settings.limits.buffers.write_piece = 1024 << rng.below(8);
        if rng.chance(0.2) {
            for remote in settings.remotes.values_mut() {
                remote.datagram_max = Some(200 + rng.below(1000) as usize);
            }
        }
        settings
    });
    let settings: Vec<_> = settings.collect();
    let hops = (0..count - 1).map(|i| {
        let most = if rng.chance(0.5) { 100 } else { 10_000 };
        hop(i, millis(&mut rng, most), 10_000 << rng.below(11))
    });
    let hops: Vec<_> = hops.collect();
    let mut world = World::relays(settings, hops);
    let loss = if rng.chance(0.7) { 0.2 * rng.unit() } else { 0.0 };
    let mut losses = Rng::new(seed, "losses");
    world.lose_on(move |_, _, _| losses.chance(loss));
    for hop in 0..count - 1 {
        for _ in 0..rng.below(3) {
            let (from, lasts) = (millis(&mut rng, 30_000), millis(&mut rng, 600_000));
            world.outage(hop, Time::ZERO + from, lasts, rng.chance(0.6));
        }
    }
    let crashes = if rng.chance(0.5) { rng.below(3) } else { 0 };
    for _ in 0..crashes {
        let host = 1 + rng.below(count as u64 - 1) as usize;
        world.crash_at(host, Time::ZERO + millis(&mut rng, 60_000));
    }
    let file = content(rng.below(60_000) as usize);
    let red = match rng.below(6) {
        0 => Red::None,
        1 => Red::Prefix(rng.below(60_000)),
        _ => Red::All,
    };
    world.send_to(count as u64, &file, red);
    world.run();
    check(&world, &file, red, crashes);
}

fn check(world: &World, file: &[u8], red: Red, crashes: u64) {
    let last = world.hosts.len() - 1;
    let sender: Vec<_> = world.results(0).iter().map(|finished| finished.result).collect();
    assert_eq!(sender.len(), 1, "the source gets one result");
    let received = world.results(last).iter().filter(|f| f.result.is_ok()).count();
    // A destination that dies just after a file has its name may receive it again: it is the same
    // file.
    assert!(received <= 1 + crashes as usize, "{received} times");
    let given_up = (0..last).any(|host| {
        let given_up =
            |indication: &Indication| matches!(indication, Indication::Undeliverable { .. });
        world.transport_indications(host).iter().any(given_up)
    });
    if let Some(copy) = world.copy(last) {
        assert!(copy == file, "other bytes arrived");
    } else {
        let is_safe = red == Red::All;
        assert!(!is_safe || sender[0].is_err() || given_up, "it is lost without a report");
    }
    world.assert_nothing_is_invented();
    world.assert_clean();
}

fn run_all(seeds: std::ops::Range<u64>) {
    for seed in seeds {
        let result = std::panic::catch_unwind(|| run(seed));
        assert!(result.is_ok(), "the world of seed {seed} ends badly");
    }
}

#[test]
fn random_worlds_complete() {
    run_all(0..300);
}

#[test]
#[ignore = "takes minutes: run at night"]
fn very_many_random_worlds_complete() {
    run_all(300..10_300);
}
