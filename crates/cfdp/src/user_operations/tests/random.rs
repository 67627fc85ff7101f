//! Random sequences of requests between entities, over bad links, with restarts.

use std::time::Duration;

use engine::{Area, Rng};

use super::world::{World, content, name, permit};
use crate::pdu::{EntityId, TraceControl, TransactionId, TransmissionMode};
use crate::{Access, ProxyPutRequest, PutRequest, SfoPutRequest};

const LINE: [(u64, u64); 2] = [(1, 2), (2, 3)];

#[derive(Clone, Copy, Debug)]
enum Op {
    Wait(Duration),
    Restart(u64),
    Put { from: u64, to: u64 },
    ProxyPut { from: u64, proxy: u64, to: u64 },
    ProxyCancel { from: u64, proxy: u64, sequence: u64 },
    List { from: u64, at: u64 },
    Report { from: u64, at: u64, about: u64, sequence: u64 },
    Suspend { from: u64, at: u64, about: u64, sequence: u64 },
    Resume { from: u64, at: u64, about: u64, sequence: u64 },
    Sfo { from: u64, to: u64, acknowledged: bool },
}

/// A neighbour of an entity on the line.
fn neighbour(rng: &mut Rng, of: u64) -> u64 {
    if of == 2 { 1 + 2 * rng.below(2) } else { 2 }
}

fn draw(rng: &mut Rng) -> Op {
    let from = 1 + rng.below(3);
    let at = neighbour(rng, from);
    let (about, sequence) = (1 + rng.below(3), 1 + rng.below(6));
    match rng.below(12) {
        0 | 1 => Op::Wait(Duration::from_millis(rng.below(500))),
        2 => Op::Restart(from),
        3 => Op::Put { from, to: at },
        4 | 5 => Op::ProxyPut { from, proxy: at, to: neighbour(rng, at) },
        6 => Op::ProxyCancel { from, proxy: at, sequence },
        7 => Op::List { from, at },
        8 => Op::Report { from, at, about, sequence },
        9 => Op::Suspend { from, at, about, sequence },
        10 => Op::Resume { from, at, about, sequence },
        _ => Op::Sfo { from, to: 4 - from, acknowledged: rng.below(4) > 0 },
    }
}

/// Carries out an operation, which may be refused.
fn play(world: &mut World, op: Op) {
    let id = |source, sequence| TransactionId { source: EntityId(source), sequence };
    match op {
        Op::Wait(time) => world.run_for(time),
        Op::Restart(number) => world.restart(number),
        Op::Put { from, to } => {
            let request = PutRequest {
                destination: to,
                source: Some(name("source")),
                destination_name: "copy".into(),
                ..PutRequest::default()
            };
            world.put(from, request);
        }
        Op::ProxyPut { from, proxy, to } => {
            let request = ProxyPutRequest {
                destination: to,
                source_name: "source".into(),
                destination_name: "copy".into(),
                ..ProxyPutRequest::default()
            };
            let requested = world.ask(from, |entity, now| entity.proxy_put(now, proxy, &request));
            assert_eq!(requested.is_ok(), proxy != to);
        }
        Op::ProxyCancel { from, proxy, sequence } => {
            let id = id(from, sequence);
            world.ask(from, |entity, now| entity.proxy_cancel(now, proxy, id)).expect("sound");
        }
        Op::List { from, at } => {
            world
                .ask(from, |entity, now| entity.list_directory(now, at, "", "list"))
                .expect("sound");
        }
        Op::Report { from, at, about, sequence } => {
            let id = id(about, sequence);
            world
                .ask(from, |entity, now| entity.remote_status_report(now, at, id, "report"))
                .expect("sound");
        }
        Op::Suspend { from, at, about, sequence } => {
            let id = id(about, sequence);
            world.ask(from, |entity, now| entity.remote_suspend(now, at, id)).expect("sound");
        }
        Op::Resume { from, at, about, sequence } => {
            let id = id(about, sequence);
            world.ask(from, |entity, now| entity.remote_resume(now, at, id)).expect("sound");
        }
        Op::Sfo { from, to, acknowledged } => {
            let mode = if acknowledged {
                TransmissionMode::Acknowledged
            } else {
                TransmissionMode::Unacknowledged
            };
            let request = SfoPutRequest {
                destination: to,
                source: Some(name("source")),
                destination_name: "copy".into(),
                trace: TraceControl::Both,
                mode,
                ..SfoPutRequest::default()
            };
            let requested = world.ask(from, |entity, now| entity.sfo_put(now, &request));
            assert_eq!(requested.is_ok(), from != to);
        }
    }
}

fn run(seed: u64) {
    let mut rng = Rng::new(seed, "operations");
    let mut world = World::new(&LINE, |number, config| {
        permit(config, |permissions| {
            permissions.proxy_put = true;
            permissions.suspend = Access::All;
            permissions.store_and_forward = true;
        });
        config.first_sequence = Some(1);
        if number != 2 {
            config.user_operations.routes.insert(4 - number, 2);
        }
        config.user_operations.pending = 4;
        config.user_operations.stored_files = 2;
    });
    world.lose_share(rng.below(30) as f64 / 100.0);
    let files = [1, 2, 3].map(|number| content(1000 * number));
    for number in 1..=3u64 {
        world.insert(number, "source", &files[number as usize - 1]);
    }
    let ops: Vec<Op> = (0..20).map(|_| draw(&mut rng)).collect();
    for &op in &ops {
        play(&mut world, op);
    }
    world.run();
    // Suspended transactions stay so until their own users resume them.
    world.lose_share(0.0);
    for number in 1..=3 {
        let suspended: Vec<_> =
            world.host(number).engine.transactions().map(|report| report.id).collect();
        for id in suspended {
            world.ask(number, |entity, now| entity.resume(now, id)).expect("it is there");
        }
    }
    world.run();
    for number in 1..=3 {
        let host = &world.host(number);
        let left: Vec<_> = host.engine.transactions().collect();
        assert!(left.is_empty(), "seed {seed}, entity {number}: {left:?}\n{ops:#?}");
        let copy = world.file(number, "copy");
        let right = copy.is_none_or(|copy| files.iter().any(|file| file == copy));
        assert!(right, "seed {seed}, entity {number}\n{ops:#?}");
        let received =
            host.store.names(Area::Spool).filter(|name| name.path().starts_with("rx-")).count();
        assert_eq!(received, 0, "seed {seed}, entity {number}\n{ops:#?}");
    }
}

#[test]
fn random_user_operations_end() {
    for seed in 0..200 {
        run(seed);
    }
}
