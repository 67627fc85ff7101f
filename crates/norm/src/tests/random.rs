//! Random sequences of operations on two nodes.

use std::collections::BTreeMap;
use std::time::Duration;

use engine::{Input, PathEvent, Rng, StoreEffect};
use proptest::prelude::*;
use proptest::test_runner::RngSeed;

use super::world::{PATH, World, content, name};
use crate::{Config, Content, Failure, Indication, Limits, Node, ObjectId, Scheme, SendRequest};

#[derive(Clone, Debug)]
enum Op {
    /// Sends a file or bytes of this length.
    Send(u16, bool),
    /// Sends many small objects at once.
    Queue(u8),
    /// Repeats an application's command, or polls its receivers.
    Say(usize, u8),
    Ask(usize),
    /// Answers the questions at a side.
    Answer(usize),
    /// Ends the session of a side.
    End(usize),
    /// Cancels one of the objects under way at a side.
    Cancel(usize, usize),
    /// Loses the next messages of a side whose bit is set.
    Lose(usize, u16),
    Outage(u16),
    Restart(usize),
    /// Toggles delayed effects at a side.
    Slow(usize),
    /// Fails the next pending effect of a side.
    Fail(usize),
    Wait(u16),
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        4 => (0..40_000_u16, any::<bool>()).prop_map(|(len, is_file)| Op::Send(len, is_file)),
        1 => (1..7_u8).prop_map(Op::Queue),
        1 => (0..2_usize, 0..8_u8).prop_map(|(side, times)| Op::Say(side, times)),
        1 => (0..2_usize).prop_map(Op::Ask),
        1 => (0..2_usize).prop_map(Op::Answer),
        1 => (0..16_usize).prop_map(|n| if n < 2 { Op::End(n) } else { Op::Ask(n % 2) }),
        1 => (0..2_usize, 0..4_usize).prop_map(|(side, nth)| Op::Cancel(side, nth)),
        4 => (0..2_usize, any::<u16>()).prop_map(|(side, bits)| Op::Lose(side, bits)),
        1 => (1..3_000_u16).prop_map(Op::Outage),
        1 => (0..2_usize).prop_map(Op::Restart),
        2 => (0..2_usize).prop_map(Op::Slow),
        1 => (0..2_usize).prop_map(Op::Fail),
        4 => (1..200_u16).prop_map(Op::Wait),
    ]
}

fn config(scheme: Scheme, auto_parity: u16, group: bool) -> Config {
    let mut config = Config {
        limits: Limits {
            objects: 6,
            assembly: 60_000,
            buffers: session::Buffers {
                write_buffer: 20_000,
                read_ahead: 8_000,
                read_ahead_total: 16_000,
                read_piece: 4_000,
                ..session::Buffers::default()
            },
            repairs: 64,
            ..Limits::default()
        },
        ..Config::default()
    };
    if group {
        config.groups = vec![PATH];
    }
    let sender = &mut config.sender;
    sender.fec = scheme;
    (sender.block_len, sender.parity) = (8, 4);
    sender.auto_parity = auto_parity;
    sender.segment_size = Some(500);
    sender.robust_factor = 5;
    config.receiver.robust_factor = 5;
    config
}

struct Play {
    world: World,
    config: Config,
    /// Files by their names at the receiver: length, and the receiver's life in which they were
    /// sent.
    files: BTreeMap<String, (usize, u64)>,
    sent: usize,
    /// Number of restarts of the receiver.
    restarts: u64,
    lives: u64,
}

impl Play {
    fn new(config: Config) -> Self {
        let mut world = World::with(&config);
        world.logging = false;
        Self { world, config, files: BTreeMap::new(), sent: 0, restarts: 0, lives: 2 }
    }

    fn apply(&mut self, op: &Op) {
        let world = &mut self.world;
        match *op {
            Op::Send(len, is_file) => self.send(usize::from(len), is_file),
            Op::Queue(count) => {
                for _ in 0..count {
                    self.send(700, false);
                }
            }
            Op::Say(..) | Op::Ask(_) | Op::Answer(_) | Op::End(_) => self.talk(op),
            Op::Cancel(side, nth) => {
                let id = world.hosts[side].engine.objects().nth(nth).map(|report| report.id);
                if let Some(id) = id {
                    world.hosts[side].engine.cancel(world.now, id).expect("it is under way");
                    world.drain(side);
                }
            }
            Op::Lose(side, bits) => {
                let mut left = bits;
                world.lose(move |from, _, _| {
                    let is_lost = from == side && left & 1 == 1;
                    left >>= u16::from(from == side);
                    is_lost
                });
            }
            Op::Outage(millis) => {
                (0..2).for_each(|side| world.input(side, Input::Path(PATH, PathEvent::Down)));
                world.run_until(world.now + Duration::from_millis(u64::from(millis)));
                (0..2).for_each(|side| world.up(side));
            }
            Op::Restart(side) => {
                self.lives += 1;
                self.restarts += side as u64;
                let config = Config { node: 8471 + side as u32, ..self.config.clone() };
                // A process that died reports nothing.
                self.world.hosts[side].indications.clear();
                self.world.replace(side, Node::new(config, Rng::new(self.lives, "norm")));
            }
            Op::Slow(side) => world.toggle_slow(side),
            Op::Fail(side) => {
                let slow = world.hosts[side].slow.as_mut();
                let effect = slow.filter(|slow| !slow.is_empty()).map(|slow| slow.remove(0));
                if let Some(ticket) = effect.as_ref().and_then(StoreEffect::ticket) {
                    let error = Err(engine::EffectError::Failed("broken".to_owned()));
                    world.input(side, Input::Done(ticket, error));
                }
            }
            Op::Wait(millis) => {
                world.run_until(world.now + Duration::from_millis(u64::from(millis)));
            }
        }
    }

    /// Sends a file or data in memory; too many at once are refused.
    fn send(&mut self, len: usize, is_file: bool) {
        self.sent += 1;
        let world = &mut self.world;
        let copy = format!("copy-{}", self.sent);
        let bytes = content(len);
        let content = if is_file {
            world.hosts[0].store.insert(name(&copy), bytes);
            self.files.insert(copy.clone(), (len, self.restarts));
            Content::File(name(&copy))
        } else {
            Content::Data(bytes.into())
        };
        let request = SendRequest { peer: PATH, content, info: copy.into_bytes().into() };
        let now = world.now;
        let _ = world.hosts[0].engine.charge(|node| node.send(now, request));
        world.drain(0);
    }

    /// Runs an operation between applications.
    fn talk(&mut self, op: &Op) {
        let world = &mut self.world;
        match *op {
            Op::Say(side, times) => {
                let times = Some(u32::from(times)).filter(|times| *times > 0);
                let engine = &mut world.hosts[side].engine;
                // Too many at once are refused.
                let _ =
                    engine.command(world.now, PATH, vec![times.is_some() as u8; 40].into(), times);
                world.drain(side);
            }
            Op::Ask(side) => {
                let other = 8472 - side as u32;
                let _ = world.hosts[side].engine.question(world.now, PATH, 77, &[other]);
                world.drain(side);
            }
            Op::Answer(side) => {
                let requested =
                    world.hosts[side].indications.iter().rev().find_map(
                        |reported| match reported {
                            Indication::Question { peer, node, kind, id } => {
                                Some((*peer, *node, *kind, *id))
                            }
                            _ => None,
                        },
                    );
                if let Some((peer, node, kind, id)) = requested {
                    let engine = &mut world.hosts[side].engine;
                    // A restarted receiver has no such question.
                    let _ = engine.answer(world.now, peer, node, kind, id, b"here"[..].into());
                    world.drain(side);
                }
            }
            Op::End(side) => {
                world.hosts[side].engine.end(world.now, PATH);
                world.drain(side);
            }
            Op::Send(..)
            | Op::Queue(_)
            | Op::Cancel(..)
            | Op::Lose(..)
            | Op::Outage(_)
            | Op::Restart(_)
            | Op::Slow(_)
            | Op::Fail(_)
            | Op::Wait(_) => unreachable!("it is not about that"),
        }
    }

    /// Runs without further faults: everything must end, and no success may be reported wrongly.
    fn finish(mut self) {
        (0..2).for_each(|side| self.world.make_fast(side));
        self.world.lose(|_, _, _| false);
        self.world.run();
        // Whatever happened before, a new file arrives.
        self.apply(&Op::Send(9_000, true));
        self.world.run();
        let last = format!("copy-{}", self.sent);
        assert!(self.world.hosts[1].store.get(&name(&last)).is_some(), "{last} did not arrive");
        for side in &self.world.hosts {
            assert_eq!(side.engine.objects().count(), 0);
            let held = side.engine.memory();
            assert!(held < 200_000, "{held} bytes held by an idle node");
            let mut ends: BTreeMap<ObjectId, usize> = BTreeMap::new();
            for indication in &side.indications {
                match indication {
                    // A restarted sender may reuse a number.
                    Indication::Started { id, .. } => {
                        assert!(ends.insert(*id, 0).is_none_or(|ends| ends == 1));
                    }
                    Indication::Finished(end) => *ends.entry(end.id).or_insert(0) += 1,
                    _ => {}
                }
            }
            assert!(ends.values().all(|ends| *ends == 1), "{ends:?}");
        }
        for (copy, (len, _)) in &self.files {
            if let Some(found) = self.world.hosts[1].store.get(&name(copy)) {
                assert!(found == content(*len), "{copy} is wrong");
            }
        }
        let confirmed = self.world.hosts[0].indications.iter().filter_map(|end| match end {
            Indication::Finished(end) if end.is_confirmed => Some(end.info.clone()),
            _ => None,
        });
        for info in confirmed {
            let copy = String::from_utf8(info.to_vec()).expect("a name of ours");
            // A restarted receiver has no record of objects sent before the first it receives.
            if self.files.get(&copy).is_some_and(|(_, life)| *life == self.restarts) {
                let found = self.world.hosts[1].store.get(&name(&copy));
                assert!(found.is_some(), "{copy} is confirmed and not there");
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 200,
        failure_persistence: None,
        rng_seed: RngSeed::Fixed(20),
        ..ProptestConfig::default()
    })]

    #[test]
    fn random_operations_end_with_correct_objects(
        ops in prop::collection::vec(op(), 1..40),
        scheme in prop_oneof![Just(Scheme::ReedSolomon8), Just(Scheme::NoCode)],
        auto_parity in 0..3_u16,
        group in any::<bool>(),
        congestion_control in any::<bool>(),
    ) {
        let mut config = config(scheme, auto_parity, group);
        config.sender.congestion_control = congestion_control;
        let mut play = Play::new(config);
        for op in &ops {
            play.apply(op);
        }
        play.finish();
    }
}

#[cfg(feature = "raptorq")]
proptest! {
    #![proptest_config(ProptestConfig {
        cases: 100,
        failure_persistence: None,
        rng_seed: RngSeed::Fixed(21),
        ..ProptestConfig::default()
    })]

    #[test]
    fn random_operations_with_raptorq_end_with_correct_objects(
        ops in prop::collection::vec(op(), 1..40),
        group in any::<bool>(),
        fti_in_data in any::<bool>(),
    ) {
        let mut config = config(Scheme::RaptorQ, 0, group);
        config.sender.fti_in_data = fti_in_data;
        // No object is refused: its sender would probe for an hour.
        config.limits.assembly = 160_000;
        let mut play = Play::new(config);
        for op in &ops {
            play.apply(op);
        }
        play.finish();
    }
}

#[test]
fn identifiers_wrap() {
    let mut config = config(Scheme::NoCode, 0, false);
    config.sender.grtt_initial = Duration::from_millis(60);
    config.limits.objects = 256;
    let mut world = World::with(&config);
    world.logging = false;
    let mut sent = 0;
    while sent < 66_000 {
        for _ in 0..250 {
            world.request(Content::Data(vec![sent as u8; 1].into()), "");
            sent += 1;
        }
        world.run();
        for side in 0..2 {
            let ends = std::mem::take(&mut world.hosts[side].indications);
            let ends = ends.iter().filter_map(|indication| match indication {
                Indication::Finished(end) => Some(end),
                _ => None,
            });
            let right = ends.filter(|end| end.result == Ok::<(), Failure>(()) && end.is_confirmed);
            assert_eq!(right.count(), 250, "{sent} {side}");
        }
    }
    assert!(world.hosts[1].engine.memory() < 20_000, "{}", world.hosts[1].engine.memory());
}
