//! Random sequences of all operations.

use std::collections::BTreeMap;
use std::time::Duration;

use engine::{Area, Input, PathEvent, Rng};

use super::world::{PATH, World, config, content, name, put_request};
use crate::pdu::{
    ChecksumType, ConditionCode, DeliveryCode, FileStatus, PromptResponse, TransactionId,
    TransmissionMode,
};
use crate::{Config, Indication, NakMode, PutRequest, Role};

#[derive(Clone, Copy, Debug)]
enum Op {
    Put { file: u64, acknowledged: bool, unbounded: bool },
    Run { micros: u64 },
    Cancel { side: usize, which: u64 },
    Suspend { side: usize, which: u64 },
    Resume { side: usize, which: u64 },
    Prompt { which: u64, keep_alive: bool },
    Report { side: usize, which: u64 },
    Down { side: usize },
    Up { side: usize },
    Restart { side: usize },
    Loss { percent: u64 },
}

fn draw(rng: &mut Rng) -> Op {
    let side = rng.below(2) as usize;
    let which = rng.below(8);
    match rng.below(24) {
        0..5 => Op::Put {
            file: rng.below(5),
            acknowledged: rng.chance(0.8),
            unbounded: rng.chance(0.2),
        },
        5..14 => Op::Run { micros: rng.below(90_000) },
        14 => Op::Cancel { side, which },
        15 => Op::Suspend { side, which },
        16 => Op::Resume { side, which },
        17 => Op::Prompt { which, keep_alive: rng.chance(0.5) },
        18 => Op::Report { side, which },
        19 => Op::Down { side },
        20 => Op::Up { side },
        21 => Op::Restart { side },
        _ => Op::Loss { percent: rng.below(40) },
    }
}

/// Sizes of the files that can be sent.
const SIZES: [usize; 5] = [0, 1, 1012, 5_000, 40_000];

fn settings(rng: &mut Rng) -> Config {
    let nak_mode = match rng.below(4) {
        0 => NakMode::Immediate,
        1 => NakMode::Prompted,
        2 => NakMode::Asynchronous(Duration::from_millis(30)),
        _ => NakMode::Deferred,
    };
    let mut config = config(|remote| {
        remote.naks.mode = nak_mode;
        remote.crc = rng.chance(0.5);
        remote.closure = rng.chance(0.5);
        remote.keep_alive = rng.chance(0.3).then_some(Duration::from_millis(40));
        remote.prompt = rng.chance(0.3).then_some(Duration::from_millis(40));
        remote.checksum = match rng.below(3) {
            0 => ChecksumType::Modular,
            1 => ChecksumType::Crc32,
            _ => ChecksumType::Crc32c,
        };
    });
    config.journal.bytes = 4_000;
    config.limits.buffers.write_piece = 2_000;
    config.limits.gaps = 16;
    config
}

struct Play {
    world: World,
    puts: BTreeMap<TransactionId, u64>,
    ids: Vec<TransactionId>,
    losses: Rng,
    count: u64,
}

impl Play {
    fn new(rng: &mut Rng, seed: u64) -> Self {
        let mut world = World::new(&settings(rng));
        world.logging = false;
        world.batch = 1 + rng.below(8) as usize;
        for (file, size) in SIZES.iter().enumerate() {
            world.hosts[0].store.insert(name(&format!("file-{file}")), content(*size));
        }
        let losses = Rng::new(seed, "losses");
        Self { world, puts: BTreeMap::new(), ids: Vec::new(), losses, count: 0 }
    }

    fn id(&self, which: u64) -> Option<TransactionId> {
        let recent = self.ids.len().checked_sub(1 + which as usize)?;
        self.ids.get(recent).copied()
    }

    fn request(&mut self, side: usize, which: u64, act: fn(&mut World, usize, TransactionId)) {
        if let Some(id) = self.id(which) {
            act(&mut self.world, side, id);
            self.world.drain(side);
        }
    }

    fn lose(&mut self, percent: u64) {
        let mut rng = self.losses.clone();
        self.losses.next_u64();
        self.world.lose(move |_, _, _| rng.below(100) < percent);
    }

    /// Carries out one operation. It may be refused, but must not break anything.
    fn act(&mut self, op: Op) {
        let world = &mut self.world;
        match op {
            Op::Put { file, acknowledged, unbounded } => {
                self.count += 1;
                let mode = if acknowledged {
                    TransmissionMode::Acknowledged
                } else {
                    TransmissionMode::Unacknowledged
                };
                let id = world.put(PutRequest {
                    source: Some(name(&format!("file-{file}"))),
                    destination_name: format!("copy-{}", self.count),
                    mode: Some(mode),
                    unbounded,
                    ..put_request()
                });
                self.puts.insert(id, file);
                self.ids.push(id);
            }
            Op::Run { micros } => world.run_until(world.now + Duration::from_micros(micros)),
            Op::Cancel { side, which } => self.request(side, which, |world, side, id| {
                let _ = world.hosts[side].engine.cancel(world.now, id);
            }),
            Op::Suspend { side, which } => self.request(side, which, |world, side, id| {
                let _ = world.hosts[side].engine.suspend(world.now, id);
            }),
            Op::Resume { side, which } => self.request(side, which, |world, side, id| {
                let _ = world.hosts[side].engine.resume(world.now, id);
            }),
            Op::Report { side, which } => self.request(side, which, |world, side, id| {
                let _ = world.hosts[side].engine.report(world.now, id);
            }),
            Op::Prompt { which, keep_alive: false } => self.request(0, which, |world, _, id| {
                let _ = world.hosts[0].engine.prompt(world.now, id, PromptResponse::Nak);
            }),
            Op::Prompt { which, keep_alive: true } => self.request(0, which, |world, _, id| {
                let _ = world.hosts[0].engine.prompt(world.now, id, PromptResponse::KeepAlive);
            }),
            Op::Down { side } => world.input(side, Input::Path(PATH, PathEvent::Down)),
            Op::Up { side } => world.up(side),
            Op::Restart { side } => world.restart(side),
            Op::Loss { percent } => self.lose(percent),
        }
    }

    /// Removes all faults, and lets everything end.
    fn end(&mut self) {
        self.lose(0);
        for side in 0..2 {
            self.world.up(side);
            let under_way: Vec<_> =
                self.world.hosts[side].engine.transactions().map(|report| report.id).collect();
            for id in under_way {
                self.world.hosts[side].engine.resume(self.world.now, id).expect("it is there");
            }
            self.world.drain(side);
        }
        self.world.run();
    }

    /// Checks the invariants. Returns the number of delivered files.
    fn check(&self) -> usize {
        let mut delivered = 0;
        for side in &self.world.hosts {
            let left: Vec<_> = side.engine.transactions().collect();
            assert!(left.is_empty(), "stuck: {left:?}");
            assert_eq!(side.store.names(Area::Spool).count(), 0, "a working file is left");
            for indication in &side.indications {
                if let Indication::TransactionFinished(finished) = indication
                    && finished.condition == ConditionCode::NoError
                    && finished.delivery == DeliveryCode::Complete
                    && (finished.file_status == FileStatus::Retained
                        || finished.role == Role::Receiver)
                {
                    delivered += usize::from(finished.role == Role::Receiver);
                    let file = self.puts[&finished.id] as usize;
                    let copy = self.world.hosts[1].store.get(&name(&finished.destination_name));
                    assert!(copy == Some(&content(SIZES[file])[..]), "wrong: {finished:?}");
                }
            }
        }
        // Every file with a name is complete.
        for copy in self.world.hosts[1].store.names(Area::Files) {
            let len = self.world.hosts[1].store.get(copy).map_or(0, <[u8]>::len);
            assert!(SIZES.contains(&len), "{copy} has {len} bytes");
        }
        delivered
    }
}

#[test]
fn random_operations_end_with_correct_files() {
    let (mut puts, mut delivered) = (0, 0);
    for seed in 0..250 {
        let mut rng = Rng::new(seed, "operations");
        let ops: Vec<Op> = (0..5 + rng.below(40)).map(|_| draw(&mut rng)).collect();
        let mut play = Play::new(&mut rng, seed);
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            ops.iter().for_each(|op| play.act(*op));
            play.end();
            play.check()
        }));
        let Ok(arrived) = result else { panic!("seed {seed}: {ops:?}") };
        puts += play.puts.len();
        delivered += arrived;
    }
    // Cancellations, losses without a retry and early restarts account for the other files.
    assert!(delivered * 2 > puts, "only {delivered} of {puts} arrived");
}
