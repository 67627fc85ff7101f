//! Restarts of either side.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use engine::{Area, IndexRequest, Rng, StoreEffect, Ticket, Time};
use proptest::prelude::*;
use proptest::test_runner::RngSeed;

use super::world::{World, content, lose_numbers, lose_one_in, name};
use crate::segment::{Body, CancelReason, Checkpoint, Data, DataKind, End, Segment, SessionId};
use crate::{Config, Indication, Limits, Node, Red, Remote, Timer};

const SIZE: usize = 2500;

const SENDER: usize = 0;
const RECEIVER: usize = 1;

fn config() -> Config {
    let default_remote = Remote { segment_max: Some(1000), repair_copies: 1, ..Remote::default() };
    Config { default_remote, ..Config::default() }
}

/// Restarts a side with its store.
fn restart_side(world: &mut World, config: &Config, side: usize, seed: u64) {
    let config = Config { engine: side as u64 + 1, ..config.clone() };
    world.replace(side, Node::new(config, Rng::new(seed, "ltp")));
}

/// Stops the receiver at this time, and restarts it with its store.
fn restart(world: &mut World, config: &Config, at: Duration) {
    world.run_until(Time::ZERO + at);
    restart_side(world, config, RECEIVER, 99);
}

/// Bytes of the data segments that were sent.
fn data_sent(world: &World) -> usize {
    let data = |datagram: &Vec<u8>| match Segment::decode(datagram).expect("a segment").body {
        Body::Data(data) => Some(data.data.len()),
        _ => None,
    };
    world.log.iter().filter_map(|sent| data(&sent.bytes)).sum()
}

/// The world of a file of which the first part is claimed: the first segment is lost, and the
/// report on the first checkpoint.
fn claimed_in_part(file: &[u8]) -> (World, Config) {
    let remote = Remote { checkpoint_every: Some(2000), ..config().default_remote };
    let config = Config { default_remote: remote, ..config() };
    let mut world = World::with(&config);
    world.lose(|_, number, _| number == 0);
    world.send(file, Red::All);
    (world, config)
}

#[test]
fn a_session_with_a_reported_part_goes_on() {
    let file = content(SIZE);
    let (mut world, config) = claimed_in_part(&file);
    restart(&mut world, &config, Duration::from_millis(35));
    world.run();
    world.assert_delivered(&file);
    let unresumed = |i: &Indication| matches!(i, Indication::Interrupted { .. });
    assert!(!world.hosts[RECEIVER].indications.iter().any(unresumed));
    // The lost segment goes again, and the checkpoint whose report was lost.
    let bytes = data_sent(&world);
    assert_eq!(bytes, SIZE + 24 + 2 * 1000, "{:#?}", world.transcript());
    assert_eq!(world.hosts[RECEIVER].store.records().count(), 1, "that of the complete file");
}

/// Data that an earlier run claimed is not retransmitted. If the second run accepted the rest, the
/// sender would take the block for delivered.
#[test]
fn a_session_whose_data_is_lost_is_cancelled() {
    let file = content(SIZE);
    let (mut world, config) = claimed_in_part(&file);
    world.run_until(Time::ZERO + Duration::from_millis(35));
    let store = &mut world.hosts[RECEIVER].store;
    let working = store.names(Area::Spool).next().expect("there is one").clone();
    store.insert(working, Vec::new());
    restart(&mut world, &config, Duration::from_millis(35));
    world.run();
    let sender = world.finished(SENDER).expect("it ended");
    let failure = sender.result.expect_err("nobody has the file");
    assert_eq!((failure.by, failure.reason), (End::Receiver, CancelReason::System));
    assert!(world.hosts[RECEIVER].store.get(&name("copy")).is_none());
    assert_eq!(world.hosts[RECEIVER].store.records().count(), 0);
}

/// The record that the file is complete is older than its name.
#[test]
fn a_session_that_dies_after_the_rename_is_not_cancelled() {
    let file = content(SIZE);
    let (mut world, config) = claimed_in_part(&file);
    world.hosts[RECEIVER].slow = Some(Vec::new());
    world.work_off(RECEIVER);
    while world.hosts[RECEIVER].store.get(&name("copy")).is_none() {
        world.step();
        world.work_off(RECEIVER);
    }
    world.hosts[RECEIVER].slow = None;
    restart_side(&mut world, &config, RECEIVER, 99);
    world.run();
    world.assert_delivered(&file);
    let has_failed = |it: &Indication| matches!(it, Indication::Finished(it) if it.result.is_err());
    assert!(!world.hosts[RECEIVER].indications.iter().any(has_failed), "it is reported once");
}

/// A flood takes the place of a session that a restarted receiver continued: what its former run
/// claimed is lost, so the sender must not take the block for delivered.
#[test]
fn a_displaced_session_of_an_earlier_run_is_refused() {
    let file = content(SIZE);
    let (mut world, config) = claimed_in_part(&file);
    let limits = Limits { sessions: 8, ..Limits::default() };
    restart(&mut world, &Config { limits, ..config }, Duration::from_millis(35));
    for number in 0..2_000 {
        let id = SessionId { originator: 1, number: 5_000 + number };
        for offset in [0, 100, 200] {
            let checkpoint = Some(Checkpoint { serial: 7, report: 0 });
            let kind = DataKind::Checkpoint;
            let data = Data { kind, service: 1, offset, checkpoint, data: &[0; 100] };
            let segment = Segment::new(id, Body::Data(data));
            world.hear(RECEIVER, &segment.to_vec().expect("a segment"));
        }
    }
    world.run();
    let copy = world.hosts[RECEIVER].store.get(&name("copy"));
    let sender = world.finished(SENDER).expect("it ended");
    assert!(sender.result.is_err() || copy == Some(&file[..]), "{:?}", sender.result);
}

/// The record of a session is damaged: nothing tells what was claimed.
#[test]
fn a_session_without_its_record_is_cancelled() {
    let file = content(SIZE);
    let (mut world, config) = claimed_in_part(&file);
    world.run_until(Time::ZERO + Duration::from_millis(35));
    let store = &mut world.hosts[RECEIVER].store;
    let key = store.records().next().expect("there is one").0.to_owned();
    let request = IndexRequest::Put { key, value: Bytes::from_static(b"damaged") };
    store.execute(StoreEffect::Index { ticket: Ticket(0), request });
    restart(&mut world, &config, Duration::from_millis(35));
    world.run();
    let sender = world.finished(SENDER).expect("it ended");
    let failure = sender.result.expect_err("nobody has the file");
    assert_eq!((failure.by, failure.reason), (End::Receiver, CancelReason::System));
    let reported = |world: &World| {
        let reported = |i: &&Indication| matches!(i, Indication::Interrupted { sessions: 1 });
        world.hosts[RECEIVER].indications.iter().filter(reported).count()
    };
    assert_eq!(reported(&world), 1);
    // Its sender is informed, so nothing of it is kept.
    restart(&mut world, &config, Duration::from_secs(60));
    world.run();
    assert_eq!(reported(&world), 1);
}

#[test]
fn a_restarted_sender_sends_only_what_is_missing() {
    const LONG: usize = 200_000;
    let file = content(LONG);
    let whole = {
        let mut world = World::with(&config());
        world.send(&file, Red::All);
        world.run();
        data_sent(&world)
    };
    for millis in [1, 30, 80, 120, 160, 180, 200, 230] {
        let mut world = World::with(&config());
        world.send(&file, Red::All);
        world.run_until(Time::ZERO + Duration::from_millis(millis));
        restart_side(&mut world, &config(), SENDER, 7);
        world.run();
        assert!(world.hosts[RECEIVER].store.get(&name("copy")) == Some(&file[..]), "{millis}");
        let finished = world.hosts[SENDER].indications.iter().filter(|indication| {
            matches!(indication, Indication::Finished(finished) if finished.is_confirmed)
        });
        assert_eq!(finished.count(), 1, "{millis}: {:#?}", world.transcript());
        // What was under way arrives; the description goes again, and one segment may.
        let bytes = data_sent(&world);
        assert!(bytes < whole + 2100, "{millis}: {bytes} of {whole}");
        assert_eq!(world.hosts[SENDER].store.records().count(), 0);
    }
}

#[test]
fn a_changed_file_is_not_sent_on() {
    const LONG: usize = 200_000;
    let file = content(LONG);
    let mut world = World::with(&config());
    world.send(&file, Red::All);
    world.run_until(Time::ZERO + Duration::from_millis(50));
    world.hosts[SENDER].store.insert(name("source"), content(LONG + 1));
    restart_side(&mut world, &config(), SENDER, 7);
    world.run();
    let sender = world.finished(SENDER).expect("it ended");
    let failure = sender.result.expect_err("it is another file");
    assert_eq!((failure.by, failure.reason), (End::Sender, CancelReason::System));
    assert_eq!(world.hosts[SENDER].store.records().count(), 0);
    let receiver = world.finished(RECEIVER).expect("it was notified");
    assert_eq!(receiver.result.map_err(|failure| failure.by), Err(End::Sender));
    assert_eq!(world.hosts[RECEIVER].store.names(Area::Spool).count(), 0);
}

#[test]
fn little_is_sent_twice_over_a_long_and_lossy_link() {
    const LONG: usize = 3_000_000;
    let file = content(LONG);
    let config = Config::default();
    for millis in [1_000, 2_000, 3_000, 4_500, 6_000] {
        let mut world = World::with(&config);
        world.hops[0].info.owlt = Some(Duration::from_millis(1280));
        (0..2).for_each(|side| world.up(side));
        world.lose(lose_one_in(100, 3));
        world.send(&file, Red::All);
        world.run_until(Time::ZERO + Duration::from_millis(millis));
        restart_side(&mut world, &config, SENDER, 7);
        world.run();
        assert!(world.hosts[RECEIVER].store.get(&name("copy")) == Some(&file[..]), "{millis}");
        // Repairs and their copies are 2 to 5 %.
        let bytes = data_sent(&world);
        assert!(bytes < LONG * 107 / 100, "{millis}: {bytes}");
    }
}

#[derive(Clone, Debug)]
enum Op {
    /// Kills a side; a crash of its host loses unsynced writes.
    Kill(usize, bool),
    /// Kills a side after some of its effects.
    Dies(usize, u8),
    /// Loses one datagram in `n` of both sides.
    Lose(u64),
    /// Toggles delayed effects at a side.
    Slow(usize),
    Wait(u16),
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        4 => (0..2_usize, any::<bool>()).prop_map(|(side, is_crash)| Op::Kill(side, is_crash)),
        2 => (0..2_usize, 0..40_u8).prop_map(|(side, effects)| Op::Dies(side, effects)),
        2 => (2..50_u64).prop_map(Op::Lose),
        2 => (0..2_usize).prop_map(Op::Slow),
        5 => (1..200_u16).prop_map(Op::Wait),
    ]
}

/// A transfer whose sides are killed.
struct Killed {
    world: World,
    config: Config,
    rng: Rng,
}

impl Killed {
    fn apply(&mut self, op: &Op) {
        let Self { world, rng, .. } = self;
        match *op {
            Op::Kill(side, is_crash) => self.kill(side, is_crash),
            Op::Dies(side, effects) => {
                world.hosts[side].dies_after = Some(effects.into());
                world.run_until(world.now + Duration::from_millis(150));
                world.hosts[side].dies_after = None;
                self.kill(side, true);
            }
            Op::Lose(n) => world.lose(lose_one_in(n, rng.next_u64())),
            Op::Slow(side) => world.toggle_slow(side),
            Op::Wait(wait) => {
                for _ in 0..wait.div_ceil(20) {
                    world.run_until(world.now + Duration::from_millis(20));
                    (0..2).for_each(|side| world.work_off(side));
                }
            }
        }
    }

    fn kill(&mut self, side: usize, is_crash: bool) {
        let Self { world, rng, config } = self;
        if is_crash {
            world.hosts[side].lose_unsynced(|| rng.chance(0.5));
        }
        world.hosts[side].slow = None;
        restart_side(world, config, side, rng.next_u64());
    }

    /// Runs without further faults. The file arrives, unless its receiver had nothing but a
    /// checkpoint when it was killed, which costs no file.
    fn settle(mut self, file: &[u8]) {
        (0..2).for_each(|side| self.world.make_fast(side));
        self.world.lose(|_, _, _| false);
        self.world.run();
        let copy = self.world.hosts[RECEIVER].store.get(&name("copy"));
        assert!(copy.is_none_or(|copy| copy == file), "a wrong file");
        let is_there = copy.is_some();
        for indication in &self.world.hosts[SENDER].indications {
            if let Indication::Finished(finished) = indication {
                let may_fail = self.config.default_remote.checkpoint_every.is_some();
                let is_sound = finished.result.is_ok() || may_fail;
                assert!(is_sound, "{:?}", finished.result);
                assert!(finished.result.is_err() || is_there, "it did not arrive");
            }
        }
        assert_eq!(self.world.hosts[SENDER].store.records().count(), 0);
        let done = |key: &str| key.starts_with("ltpd-");
        assert!(self.world.hosts[RECEIVER].store.records().all(|(key, _)| done(key)));
        for side in &self.world.hosts {
            assert_eq!(side.engine.sessions().count(), 0);
        }
        assert_eq!(self.world.hosts[RECEIVER].store.names(Area::Spool).count(), 0);
    }
}

/// A session whose peer is gone is not waited for long.
fn impatient(remote: &mut Remote) {
    remote.inactivity = Timer::Fixed(Duration::from_secs(60));
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 300,
        failure_persistence: None,
        rng_seed: RngSeed::Fixed(43),
        ..ProptestConfig::default()
    })]

    #[test]
    fn random_kills_lose_nothing_that_was_confirmed(
        ops in prop::collection::vec(op(), 1..20),
        size in 1..300_000_usize,
        checkpoints in any::<bool>(),
        seed in any::<u64>(),
    ) {
        let mut config = config();
        impatient(&mut config.default_remote);
        if checkpoints {
            config.default_remote.checkpoint_every = Some(20_000);
        }
        let file = content(size);
        let mut world = World::with(&config);
        world.logging = false;
        world.hosts[RECEIVER].unsynced = Some(BTreeMap::new());
        world.lose(lose_one_in(20, seed));
        world.send(&file, Red::All);
        let mut it = Killed { world, config, rng: Rng::new(seed, "crashes") };
        for op in &ops {
            it.apply(op);
        }
        it.settle(&file);
    }
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
        world.hosts[1].store.get(&name("copy")) == Some(&file[..]),
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
    assert!(!world.hosts[1].indications.iter().any(reported));
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
        let sent: Vec<_> = world.log.iter().filter(|sent| sent.from == 0).cloned().collect();
        world.hosts[1].store.insert(name("copy"), b"newer".to_vec());
        restart(&mut world, &config(), Duration::from_secs(60));
        let before = world.log.len();
        for sent in &sent {
            world.hear(1, &sent.bytes);
        }
        world.run();
        assert!(world.hosts[1].store.get(&name("copy")) == Some(&b"newer"[..]));
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
    assert_eq!(world.hosts[1].store.records().count(), 3);
}
