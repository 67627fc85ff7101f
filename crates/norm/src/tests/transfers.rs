//! Whole transfers, with chosen or random losses.

use std::time::Duration;

use super::world::{World, content, lose_numbers, lose_one_in};
use crate::{Config, Content, Scheme, profile};

fn with_parity(auto: u16) -> Config {
    let mut config = Config::default();
    config.sender.auto_parity = auto;
    config
}

#[test]
fn a_file_crosses() {
    let world = World::crossed(&Config::default(), 100_000);
    // Data ends after 88 ms; the receiver acknowledges the first flush.
    assert!(world.now.as_secs_f64() < 0.3, "{}: {:#?}", world.now, world.transcript());
    assert_eq!(world.hosts[0].engine.stats().parity_repairs, 0);
}

#[test]
fn lost_segments_are_repaired_by_parity() {
    let mut config = Config::default();
    config.sender.tail_parity = false;
    let world = World::crossed_with(&config, 200_000, lose_numbers(&[5, 6, 7, 30, 99]));
    let stats = world.hosts[0].engine.stats();
    assert_eq!((stats.parity_repairs, stats.explicit_repairs), (5, 0), "{:#?}", world.transcript());
    assert_eq!(world.hosts[1].engine.stats().recovered, 5);
}

#[test]
fn without_a_code_segments_are_sent_again() {
    let mut config = Config::default();
    config.sender.fec = Scheme::NoCode;
    let world = World::crossed_with(&config, 200_000, lose_numbers(&[5, 6, 7, 30, 99]));
    let stats = world.hosts[0].engine.stats();
    assert_eq!((stats.parity_repairs, stats.explicit_repairs), (0, 5), "{:#?}", world.transcript());
}

#[test]
fn proactive_parity_saves_the_round_trip() {
    let world = World::crossed_with(&with_parity(4), 200_000, lose_numbers(&[5, 6, 30, 99]));
    assert_eq!(world.hosts[1].engine.stats().sent.nacks, 0, "{:#?}", world.transcript());
}

#[test]
fn named_segments_are_retransmitted_themselves() {
    let mut config = Config::default();
    (config.sender.block_len, config.sender.parity) = (8, 2);
    // One block. Four segments are lost, and then one of the two requested by name: the receiver
    // has all parity by then, and more of it would not help.
    let world = World::crossed_with(&config, 7900, lose_numbers(&[2, 3, 4, 5, 15]));
    let stats = world.hosts[0].engine.stats();
    assert_eq!((stats.parity_repairs, stats.explicit_repairs), (2, 3), "{:#?}", world.transcript());
    assert_eq!(world.hosts[1].engine.stats().sent.nacks, 2, "{:#?}", world.transcript());
}

#[test]
fn all_requests_of_a_nack_count_together() {
    let mut config = with_parity(4);
    config.sender.tail_parity = false;
    // One block of 64 and the first of its four parity segments are lost: the requests name that
    // one, and a range after the three that arrived.
    let world = World::crossed_with(&config, 63_000, lose_numbers(&[2, 3, 4, 5, 6, 7, 8, 66]));
    let lines = || world.transcript();
    assert_eq!(world.hosts[0].engine.stats().parity_repairs, 4, "{:#?}", lines());
    assert_eq!(world.hosts[1].engine.stats().sent.nacks, 1, "{:#?}", lines());
}

#[test]
fn every_scheme_crosses_many_losses() {
    let schemes = [
        (Scheme::ReedSolomon8, 64, 32),
        (Scheme::SmallBlockSystematic, 20, 4),
        (Scheme::ReedSolomonM, 400, 100),
        (Scheme::NoCode, 64, 0),
    ];
    for (fec, block_len, parity) in schemes {
        for auto_parity in [0, parity / 2] {
            let mut config = with_parity(auto_parity);
            (config.sender.fec, config.sender.block_len) = (fec, block_len);
            config.sender.parity = parity;
            for seed in 0..10 {
                World::crossed_with(&config, 300_000 + seed as usize, lose_one_in(5, seed));
            }
        }
    }
}

#[test]
fn any_message_but_a_flush_may_be_lost() {
    World::crossed_with(
        &Config::default(),
        10_000,
        Box::new(|side, number, _| side == 0 && number < 12),
    );
}

#[test]
fn short_and_empty_files_cross() {
    for len in [0, 1, 991, 992, 993] {
        World::crossed(&Config::default(), len);
    }
}

#[test]
fn bytes_in_memory_cross() {
    let mut world = World::with(&with_parity(2));
    let bytes = content(150_000);
    world.lose(lose_one_in(4, 3));
    world.request(Content::Data(bytes.clone().into()), "");
    world.run();
    let finished = world.finished(1).expect("it ended");
    assert!(finished.data.as_deref() == Some(&bytes[..]), "{:#?}", world.transcript());
    assert_eq!(world.finished(0).expect("it ended").result, Ok(()));
}

#[test]
fn the_profile_of_2011_flushes_twenty_times() {
    let mut world = World::with(&profile("nrl-2011").expect("it exists"));
    world.hops[0].info.owlt = Some(Duration::from_millis(1250));
    world.up(0);
    let file = content(10_000);
    world.send(&file);
    world.run();
    assert!(world.hosts[1].store.get(&super::world::name("copy")) == Some(&file[..]));
    let flushes = world.log.iter().filter(|sent| sent.from == 0 && sent.bytes.len() == 20);
    let times: Vec<_> = flushes.map(|sent| sent.at.as_secs_f64()).collect();
    assert_eq!(times.len(), 20, "{:#?}", world.transcript());
    let tail = times[19] - times[0];
    assert!((60.0..95.0).contains(&tail), "{times:?}");
}
