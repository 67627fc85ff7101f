//! How near a transfer comes to what the link allows.

use engine::{Rng, Time};
use wire::cfdp::ConditionCode;

use super::world::{World, config, content, name, put_request};
use crate::cfdp::{Config, profile};

const SIZE: usize = 10_000_000;

/// One run over 10 Mbit/s, 25 ms one way: when the file was there, in seconds, and how many
/// datagrams came back.
fn run(config: &Config, per: f64, seed: u64, file: &[u8]) -> (f64, usize) {
    let mut world = World::new(config);
    world.logging = false;
    world.sides[0].store.insert(name("source"), file.to_vec());
    let mut rng = Rng::new(seed, "losses");
    let back = std::rc::Rc::new(std::cell::Cell::new(0));
    let count = back.clone();
    world.lose = Box::new(move |side, _, _| {
        if side == 1 {
            count.set(count.get() + 1);
        }
        rng.chance(per)
    });
    world.put(put_request());
    let mut delivered = Time::ZERO;
    while world.step() {
        if delivered == Time::ZERO && world.sides[1].store.get(&name("copy")).is_some() {
            delivered = world.now;
        }
    }
    assert!(world.sides[1].store.get(&name("copy")) == Some(file), "seed {seed} at {per}");
    let finished = world.finished(0).expect("the sender knows");
    assert_eq!(finished.condition, ConditionCode::NoError, "seed {seed} at {per}");
    (delivered.as_secs_f64(), back.get())
}

/// The genie of the theory: 1,024 file bytes and 42 bytes of lower layers a packet, and each loss
/// known at once.
fn bound(per: f64) -> f64 {
    let packets = (SIZE as f64 / 1024.0).ceil();
    0.025 + packets * (1024.0 + 42.0) * 8.0 / 1e7 / (1.0 - per)
}

#[test]
fn ten_megabytes_come_near_the_bound() {
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
fn the_old_engine_answers_in_single_digits() {
    let file = content(SIZE);
    let config = profile("gsfc-2007").expect("there is such a profile");
    let config = Config { first_sequence: Some(1), ..config };
    // 100 losses in gaps of their own make five or six NAKs, the losses among the repairs one or
    // two more; with ACK and Finished that is eight to ten.
    let counts: Vec<_> = (0..6).map(|seed| run(&config, 1e-2, seed, &file).1).collect();
    let mean = counts.iter().sum::<usize>() as f64 / counts.len() as f64;
    assert!(mean < 10.0 && counts.iter().all(|count| (4..12).contains(count)), "{counts:?}");
}
