//! Efficiency of transfers compared with the link's bound.

use engine::{Rng, Time};

use super::world::{World, config, content, name, put_request};
use crate::pdu::ConditionCode;
use crate::{Config, profile};

const SIZE: usize = 10_000_000;

/// Runs over 10 Mbit/s, 25 ms one way. Returns the delivery time in seconds, and the number of
/// datagrams on the return link.
fn run(config: &Config, per: f64, seed: u64, file: &[u8]) -> (f64, usize) {
    let mut world = World::new(config);
    world.logging = false;
    world.hosts[0].store.insert(name("source"), file.to_vec());
    let mut rng = Rng::new(seed, "losses");
    let back = std::rc::Rc::new(std::cell::Cell::new(0));
    let count = back.clone();
    world.lose(move |side, _, _| {
        if side == 1 {
            count.set(count.get() + 1);
        }
        rng.chance(per)
    });
    world.put(put_request());
    let mut delivered = Time::ZERO;
    while world.step() {
        if delivered == Time::ZERO && world.hosts[1].store.get(&name("copy")).is_some() {
            delivered = world.now;
        }
    }
    assert!(world.hosts[1].store.get(&name("copy")) == Some(file), "seed {seed} at {per}");
    let finished = world.finished(0).expect("the sender knows");
    assert_eq!(finished.condition, ConditionCode::NoError, "seed {seed} at {per}");
    (delivered.as_secs_f64(), back.get())
}

/// Theoretical bound: 1,024 file bytes and 42 bytes of lower layers per packet, and each loss
/// known at once.
fn bound(per: f64) -> f64 {
    let packets = (SIZE as f64 / 1024.0).ceil();
    0.025 + packets * (1024.0 + 42.0) * 8.0 / 1e7 / (1.0 - per)
}

#[test]
fn ten_megabytes_approach_the_bound() {
    let file = content(SIZE);
    for (per, least) in [(0.0, 0.97), (1e-3, 0.97), (1e-2, 0.96), (1e-1, 0.94)] {
        let times: Vec<_> = (0..3).map(|seed| run(&config(|_| {}), per, seed, &file).0).collect();
        let mean = times.iter().sum::<f64>() / times.len() as f64;
        let efficiency = bound(per) / mean;
        println!("{per}: {efficiency:.4} {times:.3?} bound {:.3}", bound(per));
        assert!(efficiency >= least, "{efficiency} at {per}: {times:?}");
    }
}

#[test]
fn copies_of_repairs_save_round_trips() {
    let file = content(1_000_000);
    let mean = |copies| {
        let config = config(|remote| remote.repair_copies = copies);
        let times = (0..12).map(|seed| {
            let mut world = World::new(&config);
            world.logging = false;
            world.hops[0].info.owlt = Some(std::time::Duration::from_secs(600));
            world.up(0);
            world.up(1);
            world.hosts[0].store.insert(name("source"), file.clone());
            let mut rng = Rng::new(seed, "losses");
            world.lose(move |_, _, _| rng.chance(0.02));
            world.put(put_request());
            while world.hosts[1].store.get(&name("copy")).is_none() {
                assert!(world.step());
            }
            world.now.as_secs_f64()
        });
        times.sum::<f64>() / 12.0
    };
    let (once, copied) = (mean(1), mean(4));
    // Without copies 1.3 round trips after the first pass, with them little more than one.
    assert!(copied < once - 300.0 && copied < 600.0 + 1.4 * 1200.0, "{once} and {copied}");
}

#[test]
fn the_old_engine_answers_in_single_digits() {
    let file = content(SIZE);
    let config = profile("gsfc-2007").expect("there is such a profile");
    let config = Config { first_sequence: Some(1), ..config };
    // 100 losses in separate gaps make five or six NAKs, the losses among the repairs one or two
    // more; with ACK and Finished that is eight to ten.
    let counts: Vec<_> = (0..6).map(|seed| run(&config, 1e-2, seed, &file).1).collect();
    let mean = counts.iter().sum::<usize>() as f64 / counts.len() as f64;
    assert!(mean < 10.0 && counts.iter().all(|count| (4..12).contains(count)), "{counts:?}");
}
