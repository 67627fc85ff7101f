//! Nodes that are killed at any moment while bundles pass: nothing acknowledged is lost, and only
//! a killed application gets a bundle twice, with the same identity.
//!
//! `SLOWLIGHT_ROW_KILLS` is the number of kills (40), `SLOWLIGHT_SEED` the first seed (1).

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use engine::Rng;

use crate::chain::{Chain, NODES, Numbers, serve};
use crate::number;

/// Kills of one row; its stores are checked and removed after them.
const KILLS: u64 = 200;
/// Rows at one time.
const ROWS: u8 = 4;

/// A row whose nodes are killed `kills` times.
fn story(row: u8, seed: u64, kills: u64) -> Numbers {
    let mut rng = Rng::new(seed, "kills");
    let mut chain = Chain::new(row);
    for _ in 0..kills {
        let victim = rng.below(NODES as u64) as usize;
        // Some are killed while they start.
        if rng.below(5) > 0 {
            chain.wait_until_ready(victim);
        }
        let most_us = if rng.below(2) == 0 { 40_000 } else { 300_000 };
        chain.pass(Duration::from_micros(rng.below(most_us)));
        chain.kill(victim);
    }
    chain.finish()
}

/// Does nothing unless this process is a node of a row.
#[test]
fn a_node_of_a_row() {
    serve();
}

#[test]
fn acknowledged_bundles_survive_kills_of_processes() {
    let (first, kills) = (number("SLOWLIGHT_SEED", 1), number("SLOWLIGHT_ROW_KILLS", 40));
    let rows = kills.div_ceil(KILLS);
    let (next, begin) = (AtomicU64::new(0), Instant::now());
    let work = |row: u8| {
        let mut all = Numbers::default();
        loop {
            let n = next.fetch_add(1, Ordering::Relaxed);
            if n >= rows {
                return all;
            }
            let of_row = story(row, first + n, KILLS.min(kills - n * KILLS));
            eprintln!("seed {}: {of_row:?} after {:.0?}", first + n, begin.elapsed());
            all = all + of_row;
        }
    };
    let all = std::thread::scope(|scope| {
        let work = &work;
        let threads = (0..ROWS).map(|row| scope.spawn(move || work(row)));
        let threads: Vec<_> = threads.collect();
        let numbers = threads.into_iter().map(|thread| thread.join().unwrap());
        numbers.fold(Numbers::default(), |all, numbers| all + numbers)
    });
    eprintln!("{all:?} in {:.0?}", begin.elapsed());
    assert!(all.kills == kills && all.delivered >= all.acknowledged && all.acknowledged > 0);
}
