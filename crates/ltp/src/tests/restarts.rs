//! Restarts of a receiver.

use std::time::Duration;

use engine::{Rng, Time};

use super::world::{World, content, lose_numbers, name};
use crate::segment::{CancelReason, End};
use crate::{Config, Indication, Limits, Node, Red, Remote};

const SIZE: usize = 2500;

fn config() -> Config {
    let default_remote = Remote { segment_max: Some(1000), repair_copies: 1, ..Remote::default() };
    Config { default_remote, ..Config::default() }
}

/// Stops the receiver at this time, and restarts it with its store.
fn restart(world: &mut World, config: &Config, at: Duration) {
    world.run_until(Time::ZERO + at);
    let config = Config { engine: 2, ..config.clone() };
    world.replace(1, Node::new(config, Rng::new(99, "ltp")));
}

/// Data claimed by the first run is not retransmitted, and is lost. If the second run accepted the
/// rest, the sender would take the block for delivered.
#[test]
fn a_session_with_a_reported_part_is_cancelled() {
    let file = content(SIZE);
    let remote = Remote { checkpoint_every: Some(2000), ..config().default_remote };
    let config = Config { default_remote: remote, ..config() };
    let mut world = World::with(&config);
    // The first segment is lost, and the report on the first checkpoint. Later data is claimed;
    // then the receiver is restarted, and the first checkpoint is retransmitted.
    world.lose = Box::new(|_, number, _| number == 0);
    world.send(&file, Red::All);
    restart(&mut world, &config, Duration::from_millis(35));
    world.run();
    let sender = world.finished(0).expect("it ended");
    let failure = sender.result.expect_err("nobody has the file");
    assert_eq!((failure.by, failure.reason), (End::Receiver, CancelReason::System));
    assert!(world.sides[1].store.get(&name("copy")).is_none());
    let reported = |world: &World| {
        let reported = |i: &&Indication| matches!(i, Indication::Interrupted { sessions: 1 });
        world.sides[1].indications.iter().filter(reported).count()
    };
    assert_eq!(reported(&world), 1);
    // Its sender is informed, so nothing of it is kept.
    restart(&mut world, &config, Duration::from_secs(60));
    world.run();
    assert_eq!(reported(&world), 1);
}

#[test]
fn a_session_without_a_report_restarts() {
    let file = content(SIZE);
    let mut world = World::with(&config());
    world.send(&file, Red::All);
    // The last segment, a checkpoint, is under way.
    restart(&mut world, &config(), Duration::from_millis(27));
    world.run();
    assert_eq!(world.finished(0).map(|finished| finished.result), Some(Ok(())));
    assert!(
        world.sides[1].store.get(&name("copy")) == Some(&file[..]),
        "{:#?}",
        world.transcript()
    );
}

#[test]
fn closed_sessions_leave_no_record() {
    let mut world = World::crossed_with(&config(), SIZE, Red::All, lose_numbers(&[0]));
    restart(&mut world, &config(), Duration::from_secs(60));
    world.run();
    let reported = |i: &Indication| matches!(i, Indication::Interrupted { .. });
    assert!(!world.sides[1].indications.iter().any(reported));
}

/// The datagrams of a transfer are recorded, and replayed to a receiver that was restarted
/// meanwhile.
#[test]
fn a_replayed_transfer_replaces_nothing_after_a_restart() {
    let file = content(SIZE);
    for red in [Red::All, Red::None] {
        let mut world = World::with(&config());
        world.send(&file, red);
        world.run();
        world.assert_delivered(&file);
        let sent: Vec<_> = world.log.iter().filter(|(_, side, ..)| *side == 0).cloned().collect();
        world.sides[1].store.insert(name("copy"), b"newer".to_vec());
        restart(&mut world, &config(), Duration::from_secs(60));
        let before = world.log.len();
        for (_, _, datagram, _) in &sent {
            world.hear(1, datagram);
        }
        world.run();
        assert!(world.sides[1].store.get(&name("copy")) == Some(&b"newer"[..]));
        // A sender without the report of complete delivery is notified.
        let is_report = |line: &String| line.starts_with("< RS");
        let reports = world.transcript()[before..].iter().filter(|line| is_report(line)).count();
        assert_eq!(reports, usize::from(red == Red::All));
    }
}

#[test]
fn few_files_are_remembered_over_restarts() {
    let limits = Limits { closed: 3, ..Limits::default() };
    let config = Config { limits, ..config() };
    let mut world = World::with(&config);
    for _ in 0..10 {
        world.send(&content(10), Red::All);
        world.run();
    }
    assert_eq!(world.sides[1].store.records().count(), 3);
}
