//! Coded files whose sender or receiver is killed and restarted.

use std::collections::BTreeMap;
use std::time::Duration;

use engine::{
    Area, FilestoreRequest, IndexRequest, Input, PathEvent, PathInfo, Rng, StoreEffect, Ticket,
};
use proptest::prelude::*;
use proptest::test_runner::RngSeed;

use super::world::{PATH, World, content, lose_one_in, name};
use crate::message::{Body, Message};
use crate::test_world::{Losses, path_info};
use crate::{Config, Content, Indication, Limit, Node, Timer, profile};

pub(super) const SENDER: usize = 0;
pub(super) const RECEIVER: usize = 1;

/// Record of stored files and sessions, which stays.
const STORED: &str = "norm-stored";

/// Bytes of a file.
const SIZE: usize = 2_000_000;

pub(super) fn coded() -> Config {
    profile("coded").expect("there is such a profile")
}

/// A transfer that is interrupted.
pub(super) struct Interrupted {
    pub(super) world: World,
    config: Config,
    pub(super) file: Vec<u8>,
    lives: u32,
}

impl Interrupted {
    pub(super) fn new(config: Config, size: usize, lose: Losses) -> Self {
        Self::on(path_info(), config, size, lose)
    }

    fn on(info: PathInfo, config: Config, size: usize, lose: Losses) -> Self {
        let nodes = [8471, 8472].map(|node| {
            Node::new(Config { node, ..config.clone() }, Rng::new(node.into(), "norm"))
        });
        let mut world = World::between(nodes, info);
        world.lose(lose);
        let file = content(size);
        world.send(&file);
        Self { world, config, file, lives: 2 }
    }

    /// Bytes of datagrams that a side sent.
    fn sent(&self, side: usize) -> usize {
        let of_side = self.world.log.iter().filter(|sent| sent.from == side);
        of_side.map(|sent| sent.bytes.len()).sum()
    }

    /// Runs until the sender has sent a share of the file.
    pub(super) fn run_to(&mut self, share: f64) {
        while (self.sent(SENDER) as f64) < share * self.file.len() as f64 {
            assert!(self.world.step(), "it ended");
        }
    }

    /// Cancels the object once a share of it was sent.
    fn cancel_at(&mut self, share: f64) {
        self.run_to(share);
        let id = self.world.hosts[SENDER].engine.objects().next().expect("it is under way").id;
        self.world.hosts[SENDER].engine.cancel(self.world.now, id).expect("it is under way");
        self.world.drain(SENDER);
        self.world.run();
    }

    /// Kills a side, which comes back as another node.
    pub(super) fn restart(&mut self, side: usize) {
        self.lives += 1;
        self.restart_as(side, 8470 + self.lives);
    }

    pub(super) fn restart_as(&mut self, side: usize, node: u32) {
        self.lives += 1;
        let config = Config { node, ..self.config.clone() };
        let node = Node::new(config, Rng::new(self.lives.into(), "norm"));
        self.world.hosts[side].indications.clear();
        self.world.log.clear();
        self.world.replace(side, node);
        if side == SENDER {
            self.world.request(Content::File(name("source")), "copy");
        }
    }

    /// Runs to the end. Returns the share of the file that was sent since the last restart.
    pub(super) fn finish(&mut self) -> f64 {
        self.world.run();
        let found = self.world.hosts[RECEIVER].store.get(&name("copy"));
        assert!(found == Some(&self.file[..]), "{:#?}", self.world.transcript());
        let finished = self.world.finished(SENDER).expect("it ended");
        assert!(finished.is_confirmed, "{finished:?}");
        for side in [SENDER, RECEIVER] {
            assert_eq!(self.records(side), 0);
            assert_eq!(self.world.hosts[side].store.names(Area::Spool).count(), 0);
        }
        self.sent(SENDER) as f64 / self.file.len() as f64
    }

    /// Transcript without NORM_DATA.
    pub(super) fn control(&self) -> Vec<String> {
        let lines = self.world.transcript();
        lines.into_iter().filter(|line| !line.contains("DATA")).collect()
    }

    /// Number of records of files under way at a side.
    fn records(&self, side: usize) -> usize {
        let records = self.world.hosts[side].store.records();
        records.filter(|(key, _)| *key != STORED).count()
    }

    /// Bytes from which the receiver resumed.
    pub(super) fn resumed(&self) -> u64 {
        let resumed = |it: &Indication| match it {
            Indication::Receiving { resumed, .. } => Some(*resumed),
            _ => None,
        };
        self.world.hosts[RECEIVER].indications.iter().rev().find_map(resumed).unwrap_or(0)
    }

    /// Asserts that little more was sent than the receiver lacked.
    pub(super) fn assert_economy(&self, sent: f64, share: f64, seed: u64) {
        let resumed = self.resumed() as f64 / self.file.len() as f64;
        // A loss of 5 % to the receiver, what was under way, and a record's distance.
        assert!(resumed > 0.9 * share - 0.08, "{share} {seed}: {resumed}");
        // Losses, headers of 2 %, and what was under way when a receiver restarted.
        let most = (1.0 - resumed) * 1.02 / 0.95 + 0.06;
        assert!(sent < most, "{share} {seed}: {sent} of {most}: {:#?}", self.control());
    }

    /// Replaces the only record of a side.
    fn change_record(&mut self, side: usize, change: impl Fn(&mut Vec<u8>)) {
        let store = &mut self.world.hosts[side].store;
        let records: Vec<_> =
            store.records().map(|(key, value)| (key.to_owned(), value.to_vec())).collect();
        let records: Vec<_> = records.into_iter().filter(|(key, _)| key != STORED).collect();
        assert_eq!(records.len(), 1);
        for (key, mut value) in records {
            change(&mut value);
            let request = IndexRequest::Put { key, value: value.into() };
            store.execute(StoreEffect::Index { ticket: Ticket(0), request });
        }
    }
}

#[test]
fn restarted_senders_with_another_code_resume() {
    for (is_receiver_killed, seed) in [(false, 1), (false, 2), (true, 3)] {
        let mut it = Interrupted::new(coded(), SIZE, lose_one_in(20, seed));
        // Parity was received, too.
        it.run_to(1.04);
        // The loss of another transfer.
        it.config.sender.loss_before = Some((0.5, 1_000.0));
        if is_receiver_killed {
            it.restart(RECEIVER);
        }
        it.restart(SENDER);
        let sent = it.finish();
        assert!(sent < 0.35, "{seed}: {sent}");
    }
}

#[test]
fn restarted_receivers_keep_what_was_recorded() {
    for share in [0.3, 0.6, 0.95] {
        for seed in 0..4 {
            let mut it = Interrupted::new(coded(), SIZE, lose_one_in(20, seed));
            it.run_to(share);
            it.restart(RECEIVER);
            let sent = it.finish();
            it.assert_economy(sent, share, seed);
        }
    }
}

#[test]
fn restarted_senders_send_what_is_missing() {
    for share in [0.3, 0.6, 0.95] {
        for seed in 0..4 {
            let mut it = Interrupted::new(coded(), SIZE, lose_one_in(20, seed));
            it.run_to(share);
            it.restart(SENDER);
            let sent = it.finish();
            it.assert_economy(sent, share, seed);
        }
    }
}

#[test]
fn objects_of_many_blocks_resume() {
    let mut config = coded();
    config.sender.block_len = 150;
    for share in [0.3, 0.6, 0.95] {
        for side in [SENDER, RECEIVER] {
            for seed in 0..3 {
                let mut it = Interrupted::new(config.clone(), SIZE, lose_one_in(100, seed));
                it.run_to(share);
                it.restart(side);
                let sent = it.finish();
                // Each block has spare parity.
                it.assert_economy(sent - 0.12, share, seed);
            }
        }
    }
}

#[test]
fn complete_blocks_need_little_memory_to_resume() {
    let mut config = coded();
    config.sender.block_len = 50;
    // Half of the 41 blocks with their parity, or nearly all without.
    config.limits.assembly = 22_000;
    let mut it = Interrupted::new(config, SIZE, lose_one_in(100, 5));
    it.run_to(0.9);
    it.restart(RECEIVER);
    it.finish();
    assert!(it.resumed() > SIZE as u64 * 3 / 4, "{}", it.resumed());
}

#[test]
fn receivers_that_were_away_change_no_estimate() {
    for block_len in [150, 700, 24_576] {
        let mut config = coded();
        config.sender.block_len = block_len;
        for seed in 0..3 {
            let mut it = Interrupted::new(config.clone(), SIZE, lose_one_in(100, seed));
            it.run_to(0.6);
            it.world.lose(|_, _, _| true);
            it.world.run_until(it.world.now + Duration::from_secs(2));
            it.world.lose(lose_one_in(100, seed + 10));
            it.restart(RECEIVER);
            let sent = it.finish();
            it.assert_economy(sent, 0.6, seed);
        }
    }
}

#[test]
fn long_runs_are_sent_again_in_whole_segments() {
    let mut config = coded();
    config.limits.buffers.read_piece = 65_536;
    let mut it = Interrupted::new(config, SIZE, Box::new(|_, _, _| false));
    it.run_to(0.3);
    // The receiver is away for a while.
    it.world.lose(|side, _, _| side == SENDER);
    it.run_to(0.7);
    it.world.lose(|_, _, _| false);
    it.restart(RECEIVER);
    let sent = it.finish();
    it.assert_economy(sent, 0.3, 0);
    assert!(it.world.hosts[SENDER].engine.stats().explicit_repairs > 300);
}

#[test]
fn both_sides_may_restart_often() {
    for seed in 0..6 {
        let mut it = Interrupted::new(coded(), SIZE, lose_one_in(10, seed));
        let mut rng = Rng::new(seed, "kills");
        let mut sent = 0.0;
        for _ in 0..8 {
            let side = rng.below(2) as usize;
            let share = 0.02 + 0.1 * rng.unit();
            it.run_to(share);
            sent += share;
            it.restart(side);
        }
        sent += it.finish();
        assert!(sent < 2.0, "{seed}: {sent}");
    }
}

#[test]
fn the_same_node_may_restart() {
    for (side, node) in [(SENDER, 8471), (RECEIVER, 8472)] {
        let mut it = Interrupted::new(coded(), SIZE, lose_one_in(20, 1));
        it.run_to(0.6);
        it.restart_as(side, node);
        it.world.run();
        assert!(it.world.hosts[RECEIVER].store.get(&name("copy")) == Some(&it.file[..]));
        let sent = it.sent(SENDER) as f64 / SIZE as f64;
        assert!(sent < 0.58, "{side}: {sent}");
    }
}

#[test]
fn receivers_that_are_gone_are_not_waited_for() {
    let mut it = Interrupted::new(coded(), SIZE, Box::new(|_, _, _| false));
    it.run_to(0.6);
    // The receiver has another disk.
    it.world.hosts[RECEIVER].store = engine::MemoryStore::new();
    it.restart(RECEIVER);
    it.restart(SENDER);
    let began = it.world.now;
    let sent = it.finish();
    assert!((1.0..1.1).contains(&sent), "{sent}");
    assert!(it.world.now - Duration::from_secs(3) < began + Duration::from_secs(3600));
    // No reply to the query arrives at first.
    let mut it = Interrupted::new(coded(), SIZE, Box::new(|_, _, _| false));
    it.run_to(0.6);
    it.world.lose(|side, number, _| side == RECEIVER && number < 2_000);
    it.restart(SENDER);
    it.world.run_until(it.world.now + Duration::from_secs(2));
    assert!(it.sent(SENDER) > SIZE / 3, "{}", it.sent(SENDER));
}

#[test]
fn changed_files_restart() {
    for len in [SIZE, SIZE + 1, SIZE - 70_000] {
        let mut it = Interrupted::new(coded(), SIZE, lose_one_in(20, 3));
        it.run_to(0.6);
        it.file = content(len);
        it.file[1000] ^= 1;
        it.world.hosts[SENDER].store.insert(name("source"), it.file.clone());
        it.restart(SENDER);
        it.world.run();
        let found = it.world.hosts[RECEIVER].store.get(&name("copy"));
        assert!(found == Some(&it.file[..]), "{len}");
    }
}

#[test]
fn changed_files_replace_incomplete_ones() {
    let mut it = Interrupted::new(coded(), SIZE, lose_one_in(20, 3));
    it.run_to(0.6);
    it.restart(RECEIVER);
    it.file = content(SIZE + 1);
    it.world.hosts[SENDER].store.insert(name("source"), it.file.clone());
    it.restart(SENDER);
    it.world.run();
    let store = &it.world.hosts[RECEIVER].store;
    assert!(store.get(&name("copy")) == Some(&it.file[..]));
    assert_eq!((store.names(Area::Spool).count(), it.records(RECEIVER)), (0, 0));
}

#[test]
fn damaged_records_and_files_cost_only_time() {
    // A damaged record.
    let mut it = Interrupted::new(coded(), SIZE, lose_one_in(20, 4));
    it.run_to(0.6);
    it.change_record(RECEIVER, |value| value[40] ^= 1);
    it.restart(RECEIVER);
    it.finish();
    assert_eq!(it.resumed(), 0);
    // A working file without its second half, and one with other bytes.
    for is_cut in [true, false] {
        let mut it = Interrupted::new(coded(), SIZE, lose_one_in(20, 4));
        it.run_to(0.6);
        let store = &mut it.world.hosts[RECEIVER].store;
        let spool = store.names(Area::Spool).next().expect("there is a working file").clone();
        let mut bytes = store.get(&spool).expect("it exists").to_vec();
        if is_cut {
            bytes.truncate(bytes.len() / 2);
        } else {
            bytes[5_000] ^= 1;
        }
        store.insert(spool, bytes);
        it.restart(RECEIVER);
        it.finish();
    }
    // No working file at all.
    let mut it = Interrupted::new(coded(), SIZE, lose_one_in(20, 4));
    it.run_to(0.6);
    let store = &mut it.world.hosts[RECEIVER].store;
    let spool = store.names(Area::Spool).next().expect("there is a working file").clone();
    let request = FilestoreRequest::DeleteFile(spool);
    store.execute(StoreEffect::Filestore { ticket: Ticket(0), request });
    it.restart(RECEIVER);
    it.finish();
}

#[test]
fn records_of_other_files_are_not_used() {
    let mut it = Interrupted::new(coded(), SIZE, lose_one_in(20, 5));
    it.run_to(0.6);
    it.restart(RECEIVER);
    it.restart(SENDER);
    it.finish();
    let mut it = Interrupted::new(coded(), SIZE, lose_one_in(20, 5));
    it.run_to(0.6);
    it.lives += 1;
    for side in [RECEIVER, SENDER] {
        let config = Config { node: 9000 + side as u32, ..it.config.clone() };
        it.world.replace(side, Node::new(config, Rng::new(9, "norm")));
    }
    let other = content(SIZE);
    it.world.hosts[SENDER].store.insert(name("other"), other.clone());
    it.world.request(Content::File(name("other")), "elsewhere");
    it.world.run();
    assert!(it.world.hosts[RECEIVER].store.get(&name("elsewhere")) == Some(&other[..]));
    // The interrupted file waits for its sender.
    assert_eq!(it.world.hosts[RECEIVER].store.names(Area::Spool).count(), 1);
    it.world.log.clear();
    it.world.request(Content::File(name("source")), "copy");
    let sent = it.finish();
    assert!(sent < 0.63, "{sent}");
}

#[test]
fn full_stores_fail_without_a_wrong_file() {
    let mut it = Interrupted::new(coded(), SIZE, lose_one_in(20, 6));
    it.run_to(0.6);
    it.world.hosts[RECEIVER].store.set_capacity(Some(SIZE as u64 * 7 / 10));
    it.restart(RECEIVER);
    it.world.run_until(it.world.now + Duration::from_secs(30));
    let side = &it.world.hosts[RECEIVER];
    assert!(side.store.get(&name("copy")).is_none());
    assert_eq!((side.store.names(Area::Spool).count(), it.records(RECEIVER)), (0, 0));
    let finished = it.world.finished(RECEIVER).expect("it ended");
    assert!(finished.result.is_err());
}

/// The part that arrived is in memory, too little to be written.
#[test]
fn a_file_that_was_not_opened_is_not_opened_to_be_given_up() {
    let mut transfer = Interrupted::new(coded(), SIZE, Box::new(|_, _, _| false));
    transfer.run_to(0.01);
    assert_eq!(transfer.world.hosts[RECEIVER].files_most, 0);
    transfer.cancel_at(0.01);
    let receiver = &transfer.world.hosts[RECEIVER];
    assert!(receiver.indications.iter().any(|it| matches!(it, Indication::Finished(_))));
    assert_eq!(receiver.files_most, 0);
}

#[test]
fn few_incomplete_files_are_kept() {
    let mut config = coded();
    config.limits.partials = 2;
    let mut it = Interrupted::new(config, 600_000, Box::new(|_, _, _| false));
    for n in 0..5 {
        it.cancel_at(0.7);
        let spooled = it.world.hosts[RECEIVER].store.names(Area::Spool).count();
        assert_eq!(spooled, 2.min(n + 1));
        it.world.log.clear();
        it.world.request(Content::File(name("source")), &format!("copy-{n}"));
    }
    it.world.run();
    assert_eq!(it.world.hosts[RECEIVER].store.names(Area::Spool).count(), 2);
    assert!(it.world.hosts[RECEIVER].engine.memory() < 100_000);
}

#[test]
fn incomplete_files_are_bounded_in_bytes_and_age() {
    // About 420,000 bytes of each file arrive.
    for (bytes, age, kept) in [(600_000, 3600, 1), (1_000_000, 3600, 2), (1 << 30, 0, 1)] {
        let mut config = coded();
        config.limits.partial_bytes = bytes;
        config.limits.partial_age = Duration::from_secs(age);
        let mut it = Interrupted::new(config, 600_000, Box::new(|_, _, _| false));
        for n in 0..4 {
            it.cancel_at(0.7);
            it.world.log.clear();
            it.world.request(Content::File(name("source")), &format!("copy-{n}"));
        }
        it.world.run();
        let side = &it.world.hosts[RECEIVER];
        assert_eq!(side.store.names(Area::Spool).count(), kept, "{bytes} B, {age} s");
        let is_reported = side
            .indications
            .iter()
            .any(|it| matches!(it, Indication::LimitReached(Limit::Partials)));
        assert!(is_reported, "{bytes} B, {age} s");
    }
}

#[test]
fn incomplete_files_have_limited_memory() {
    let mut config = coded();
    // The only block of a file fits, and a few more as they are kept.
    config.limits.assembly = 12_000;
    let mut it = Interrupted::new(config, 600_000, Box::new(|_, _, _| false));
    for n in 0..40 {
        it.cancel_at(0.7);
        it.world.log.clear();
        it.world.request(Content::File(name("source")), &format!("copy-{n}"));
    }
    it.world.run();
    let side = &it.world.hosts[RECEIVER];
    let spooled = side.store.names(Area::Spool).count();
    assert!((2..39).contains(&spooled), "{spooled} of 40 files");
}

#[test]
fn slow_transfers_are_recorded_in_time() {
    // Segments of half a minute are fewer than one write.
    let info = PathInfo { rate_bps: Some(32_000), ..path_info() };
    let mut it = Interrupted::on(info, coded(), 200_000, Box::new(|_, _, _| false));
    it.run_to(0.5);
    it.restart(RECEIVER);
    let sent = it.finish();
    assert!(it.resumed() > 80_000, "{}", it.resumed());
    assert!(sent < 0.65, "{sent}");
}

#[test]
fn fresh_transfers_have_no_query() {
    let mut it = Interrupted::new(coded(), 300_000, Box::new(|_, _, _| false));
    it.finish();
    let first = it.world.log.iter().filter(|sent| sent.from == SENDER).nth(2);
    let first = Message::decode(&first.expect("it was sent").bytes).expect("it is sound").body;
    assert!(matches!(first, Body::Data(_)));
}

#[derive(Clone, Debug)]
pub(super) enum Op {
    /// Kills a side; a crash of its host loses unsynced writes.
    Kill(usize, bool),
    /// Kills a side after some of its effects.
    Dies(usize, u8),
    /// Loses one datagram in `n` of both sides.
    Lose(u64),
    Outage(u16),
    /// Toggles delayed effects at a side.
    Slow(usize),
    Wait(u16),
}

pub(super) fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        4 => (0..2_usize, any::<bool>()).prop_map(|(side, is_crash)| Op::Kill(side, is_crash)),
        1 => (0..2_usize, 0..60_u8).prop_map(|(side, effects)| Op::Dies(side, effects)),
        2 => (2..50_u64).prop_map(Op::Lose),
        1 => (1..2_000_u16).prop_map(Op::Outage),
        1 => (0..2_usize).prop_map(Op::Slow),
        5 => (1..400_u16).prop_map(Op::Wait),
    ]
}

impl Interrupted {
    fn apply(&mut self, op: &Op, rng: &mut Rng) {
        let millis = |n: u16| Duration::from_millis(n.into());
        match *op {
            Op::Kill(side, is_crash) => self.kill(side, is_crash, rng),
            Op::Dies(side, effects) => {
                self.world.hosts[side].dies_after = Some(effects.into());
                self.world.run_until(self.world.now + millis(300));
                self.world.hosts[side].dies_after = None;
                self.kill(side, true, rng);
            }
            Op::Lose(n) => {
                let mut rng = Rng::new(rng.next_u64(), "losses");
                self.world.lose(move |_, _, _| rng.below(n) == 0);
            }
            Op::Outage(wait) => {
                let event = || Input::Path(PATH, PathEvent::Down);
                (0..2).for_each(|side| self.world.input(side, event()));
                self.world.run_until(self.world.now + millis(wait));
                (0..2).for_each(|side| self.world.up(side));
            }
            Op::Slow(side) => self.world.toggle_slow(side),
            Op::Wait(wait) => self.world.run_until(self.world.now + millis(wait)),
        }
    }

    fn kill(&mut self, side: usize, is_crash: bool, rng: &mut Rng) {
        if is_crash {
            self.world.hosts[side].lose_unsynced(|| rng.chance(0.5));
        }
        self.world.hosts[side].slow = None;
        self.restart(side);
    }

    /// Runs without further faults. The file must arrive.
    fn settle(mut self) {
        (0..2).for_each(|side| self.world.make_fast(side));
        self.world.lose(|_, _, _| false);
        let right = |it: &Self| {
            let found = it.world.hosts[RECEIVER].store.get(&name("copy"));
            found.is_some_and(|found| {
                assert!(found == &it.file[..], "a wrong file");
                true
            })
        };
        self.world.run();
        if !right(&self) {
            // The sender gave up a receiver of the time before.
            self.restart(SENDER);
            self.world.run();
        }
        assert!(right(&self), "it did not arrive: {:?}", self.world.finished(RECEIVER));
        assert_eq!(self.world.hosts[SENDER].store.records().count(), 0);
        for side in &self.world.hosts {
            assert_eq!(side.engine.objects().count(), 0);
            assert!(side.engine.memory() < 4 << 20);
        }
    }
}

/// Kills sides of a transfer at random, and asserts that the right file arrives.
pub(super) fn survive(mut config: Config, ops: &[Op], size: usize, (block_len, seed): (u16, u64)) {
    config.sender.block_len = block_len;
    // Peers that are gone are not waited for.
    config.sender.patience = Timer::Fixed(Duration::from_secs(60));
    config.receiver.inactivity = Timer::Fixed(Duration::from_secs(120));
    let mut it = Interrupted::new(config, size, lose_one_in(20, seed));
    it.world.logging = false;
    it.world.hosts[RECEIVER].unsynced = Some(BTreeMap::new());
    let mut rng = Rng::new(seed, "crashes");
    for op in ops {
        it.apply(op, &mut rng);
    }
    it.settle();
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 150,
        failure_persistence: None,
        rng_seed: RngSeed::Fixed(24),
        ..ProptestConfig::default()
    })]

    #[test]
    fn random_kills_end_with_the_right_file(
        ops in prop::collection::vec(op(), 1..12),
        size in prop_oneof![1..20_000_usize, 200_000..900_000_usize],
        block_len in prop_oneof![Just(24_576_u16), 20..400_u16],
        seed in any::<u64>(),
    ) {
        survive(coded(), &ops, size, (block_len, seed));
    }
}

#[cfg(feature = "raptorq")]
proptest! {
    #![proptest_config(ProptestConfig {
        cases: 60,
        failure_persistence: None,
        rng_seed: RngSeed::Fixed(25),
        ..ProptestConfig::default()
    })]

    #[test]
    fn random_kills_with_raptorq_end_with_the_right_file(
        ops in prop::collection::vec(op(), 1..12),
        size in prop_oneof![1..20_000_usize, 100_000..400_000_usize],
        block_len in prop_oneof![Just(24_576_u16), 20..400_u16],
        seed in any::<u64>(),
    ) {
        let mut config = coded();
        config.sender.fec = crate::Scheme::RaptorQ;
        survive(config, &ops, size, (block_len, seed));
    }
}
