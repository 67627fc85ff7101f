//! Restarts of either process at any moment, with nothing but its store.

use std::time::Duration;

use engine::{Area, Rng, StoreEffect, Time};

use super::world::{World, config, content, lose_these, name, put_request};
use crate::pdu::{ConditionCode, DeliveryCode};
use crate::{Config, Indication, JournalPolicy, PutRequest};

const SIZE: usize = 60_000;

fn saving_often() -> Config {
    let mut config = config(|remote| {
        remote.crc = true;
        // A restarted entity without its own paths waits for a PDU of the other.
        remote.initial_rtt = Duration::from_millis(200);
    });
    config.journal = JournalPolicy { bytes: 8_000, ..JournalPolicy::default() };
    config.limits.buffers.write_piece = 4096;
    config.limits.buffers.read_piece = 4096;
    config
}

fn check(world: &World, file: &[u8], what: &str) {
    assert!(
        world.hosts[1].store.get(&name("copy")) == Some(file),
        "{what}: {:#?}",
        world.datagrams()
    );
    let good = world.hosts[0].indications.iter().any(|indication| match indication {
        Indication::TransactionFinished(finished) => {
            finished.condition == ConditionCode::NoError
                && finished.delivery == DeliveryCode::Complete
        }
        _ => false,
    });
    assert!(good, "{what}: the sender was never notified");
    for side in &world.hosts {
        assert_eq!(side.engine.transactions().count(), 0, "{what}");
        assert_eq!(side.store.names(Area::Spool).count(), 0, "{what}: a working file is left");
    }
}

/// Restarts a side at a time; the sender puts its file again, to be resumed.
fn run(side: usize, at: Time, losses: u64) -> World {
    let mut world = World::new(&saving_often());
    world.hosts[0].store.insert(name("source"), content(SIZE));
    if losses > 0 {
        let mut rng = Rng::new(losses, "losses");
        world.lose(move |_, _, _| rng.chance(0.05));
    }
    world.put(put_request());
    world.run_until(at);
    let over = world.finished(0).is_some();
    world.restart(side);
    if side == 0 && !over {
        world.put(PutRequest { resume: true, ..put_request() });
    }
    world.run();
    world
}

#[test]
fn the_receiver_restarts_at_any_moment() {
    let file = content(SIZE);
    // The file takes 51 ms to send, and everything has ended after 130 ms.
    for millis in 0..160 {
        let at = Time::from_nanos(millis * 1_000_000);
        let world = run(1, at, millis % 3);
        check(&world, &file, &format!("receiver lost at {at}, losses {}", millis % 3));
    }
}

#[test]
fn the_sender_restarts_at_any_moment() {
    let file = content(SIZE);
    for millis in 0..160 {
        let at = Time::from_nanos(millis * 1_000_000);
        let world = run(0, at, millis % 3);
        check(&world, &file, &format!("sender lost at {at}, losses {}", millis % 3));
    }
}

#[test]
fn either_process_dies_between_any_two_storage_effects() {
    let file = content(SIZE);
    for side in 0..2 {
        for effects in 0.. {
            let mut world = World::new(&saving_often());
            world.hosts[0].store.insert(name("source"), file.clone());
            world.hosts[side].dies_after = Some(effects);
            world.put(put_request());
            while world.hosts[side].dies_after != Some(0) && world.step() {}
            if world.hosts[side].dies_after != Some(0) {
                // Everything ends after fewer effects than that.
                assert!(effects > 10, "side {side} has only {effects} effects");
                break;
            }
            let over = world.finished(0).is_some();
            world.hosts[side].dies_after = None;
            world.restart(side);
            if side == 0 && !over {
                world.put(PutRequest { resume: true, ..put_request() });
            }
            world.run();
            check(&world, &file, &format!("side {side} lost after {effects} effects"));
        }
    }
}

#[test]
fn saved_progress_is_not_sent_again() {
    let mut world = World::new(&saving_often());
    world.hosts[0].store.insert(name("source"), content(SIZE));
    world.put(put_request());
    world.run_until(Time::from_nanos(70_000_000));
    world.restart(1);
    world.log.clear();
    world.run();
    check(&world, &content(SIZE), "receiver lost at 70 ms");
    let data = world.datagrams().into_iter().filter(|line| line.text.starts_with("data")).count();
    // Some 50 of 60 PDUs were received, and all but the last 8,000 bytes were saved.
    assert!(data < 25, "{data} data PDUs after the restart: {:#?}", world.datagrams());
}

#[test]
fn a_receiver_that_forgot_everything_gets_the_file_again() {
    let mut config = saving_often();
    config.journal.enabled = false;
    let mut world = World::new(&config);
    world.hosts[0].store.insert(name("source"), content(SIZE));
    world.put(put_request());
    world.run_until(Time::from_nanos(70_000_000));
    world.restart(1);
    world.run();
    assert!(world.hosts[1].store.get(&name("copy")) == Some(&content(SIZE)[..]));
    assert_eq!(world.finished(0).map(|finished| finished.condition), Some(ConditionCode::NoError));
}

#[test]
fn a_repeated_eof_after_a_restart_makes_no_second_file() {
    let mut world = World::new(&saving_often());
    world.hosts[0].store.insert(name("source"), content(SIZE));
    world.put(put_request());
    world.lose(lose_these(&[(1, "Finished"), (1, "Finished"), (1, "ACK")]));
    while world.hosts[1].store.get(&name("copy")).is_none() {
        world.step();
    }
    world.restart(1);
    let moment = world.now;
    world.log.clear();
    world.run();
    check(&world, &content(SIZE), "receiver lost after its report");
    assert!(world.now > moment);
    let reported = world.hosts[1].indications.iter();
    assert!(
        reported.clone().any(|reported| matches!(reported, Indication::FinishedRepeated { .. }))
    );
    assert!(
        world.datagrams().iter().all(|line| !line.text.starts_with("data")),
        "{:#?}",
        world.datagrams()
    );
}

/// A receiver with a slow store that has just given the file its name.
fn world_at_the_rename() -> World {
    let mut world = World::new(&saving_often());
    world.hosts[0].store.insert(name("source"), content(SIZE));
    world.hosts[1].slow = Some(Vec::new());
    world.work_off(1);
    world.put(put_request());
    while world.hosts[1].store.get(&name("copy")).is_none() {
        world.step();
        world.work_off(1);
    }
    world
}

/// Otherwise a receiver that dies in between forgets what it reported.
#[test]
fn an_outcome_is_recorded_before_it_is_reported() {
    let mut world = world_at_the_rename();
    let is_pending = |world: &World| {
        let mut waiting = world.hosts[1].slow.iter().flatten();
        waiting.any(|effect| matches!(effect, StoreEffect::Index { .. }))
    };
    assert!(is_pending(&world));
    world.run_until(world.now + Duration::from_secs(1));
    assert!(is_pending(&world));
    assert!(world.finished(1).is_none(), "the user has no report");
    let sent = world.datagrams();
    assert!(sent.iter().all(|line| !line.text.starts_with("Finished")), "{sent:#?}");
    world.work_off(1);
    world.hosts[1].slow = None;
    world.run();
    check(&world, &content(SIZE), "a slow store");
}

/// The record that the file is complete is older than its name.
#[test]
fn a_receiver_that_dies_after_the_rename_requests_nothing() {
    let mut world = world_at_the_rename();
    world.hosts[1].slow = None;
    world.restart(1);
    world.log.clear();
    world.run();
    check(&world, &content(SIZE), "receiver lost after the rename");
    let sent = world.datagrams();
    assert!(sent.iter().all(|line| !line.text.starts_with("data")), "{sent:#?}");
}

#[test]
fn both_restart_again_and_again() {
    let file = content(SIZE);
    for seed in 0..60 {
        let mut rng = Rng::new(seed, "restarts");
        let mut world = World::new(&saving_often());
        world.hosts[0].store.insert(name("source"), file.clone());
        let mut losses = Rng::new(seed, "losses");
        world.lose(move |_, _, _| losses.chance(0.05));
        world.put(put_request());
        for _ in 0..6 {
            let pause = Duration::from_micros(rng.below(60_000));
            world.run_until(world.now + pause);
            if world.finished(0).is_some() {
                break;
            }
            let side = rng.below(2) as usize;
            world.restart(side);
            if side == 0 {
                world.put(PutRequest { resume: true, ..put_request() });
            }
        }
        world.run();
        check(&world, &file, &format!("seed {seed}"));
    }
}
