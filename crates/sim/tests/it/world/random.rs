//! Random worlds: every packet is accounted for, every run ends, and runs are reproducible.

use std::time::Duration;

use engine::{Effect, PathEffect, Time};
use link::{ErrorKind, ErrorModel, Outages, Queue, WhileDown};
use proptest::prelude::*;
use slowlight_sim::{Action, HostConfig, Limit, Outcome, StoreFaults};

use super::toy::*;

#[derive(Clone, Debug)]
enum Op {
    Send { earth: bool, count: u32, len: usize },
    Crash { earth: bool },
    Restart { earth: bool },
    Copy,
    Pause,
    Resume,
    Loss(f64),
    Damage(f64),
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        4 => (any::<bool>(), 1..200_u32, 4..1025_usize)
            .prop_map(|(earth, count, len)| Op::Send { earth, count, len }),
        1 => any::<bool>().prop_map(|earth| Op::Crash { earth }),
        2 => any::<bool>().prop_map(|earth| Op::Restart { earth }),
        1 => Just(Op::Copy),
        1 => Just(Op::Pause),
        1 => Just(Op::Resume),
        1 => (0.0..0.5).prop_map(Op::Loss),
        1 => (0.0..0.5).prop_map(Op::Damage),
    ]
}

#[derive(Clone, Debug)]
struct Plan {
    ops: Vec<(u64, Op)>,
    delay_ms: u64,
    queue: Option<usize>,
    outages: Option<(u64, u64, bool)>,
    cues: bool,
    polite: bool,
    batch: usize,
}

fn plan() -> impl Strategy<Value = Plan> {
    (
        prop::collection::vec((0..2_000_u64, op()), 1..25),
        0..2_000_u64,
        prop::option::of(0..20_usize),
        prop::option::of((2..300_u64, 1..99_u64, any::<bool>())),
        any::<bool>(),
        any::<bool>(),
        1..20_usize,
    )
        .prop_map(|(ops, delay_ms, queue, outages, cues, polite, batch)| Plan {
            ops,
            delay_ms,
            queue,
            outages,
            cues,
            polite,
            batch,
        })
}

fn line_of(plan: &Plan) -> link::Config {
    let mut config = line(Duration::from_millis(plan.delay_ms));
    config.queue = Queue { packets: plan.queue, bytes: None };
    if let Some((period, percent, drop)) = plan.outages {
        config.outages = Outages::Periodic {
            period: Duration::from_millis(period),
            down: Duration::from_millis(period) * percent as u32 / 100,
            offset: Time::ZERO,
        };
        config.while_down = if drop { WhileDown::Drop } else { WhileDown::Hold };
    }
    config
}

fn action(op: &Op, pair: &Pair, polite: bool) -> Action<Toy> {
    let host = |earth: bool| if earth { pair.earth } else { pair.moon };
    let errors = |kind| {
        let change = move |link: &mut link::Link<slowlight_sim::Packet>, now| {
            link.set_errors(now, vec![kind]).unwrap();
        };
        Action::SetLink(pair.forward, Box::new(change))
    };
    match *op {
        Op::Send { earth, count, len } => Action::Call(
            host(earth),
            Box::new(move |toy, _| {
                toy.polite = polite;
                toy.send(count, len);
            }),
        ),
        Op::Crash { earth } => Action::Crash(host(earth)),
        Op::Restart { earth } => Action::Restart(host(earth)),
        Op::Copy => Action::Call(
            pair.moon,
            Box::new(|toy, _| {
                if toy.copier.is_none() {
                    toy.copy(100, true);
                }
            }),
        ),
        Op::Pause => Action::Call(
            pair.moon,
            Box::new(|toy, _| toy.effect(Effect::Path(PathEffect::PauseRead { path: PATH }))),
        ),
        Op::Resume => Action::Call(
            pair.moon,
            Box::new(|toy, _| toy.effect(Effect::Path(PathEffect::ResumeRead { path: PATH }))),
        ),
        Op::Loss(p) => errors(ErrorModel::dropping(ErrorKind::PerPacket(p))),
        Op::Damage(p) => errors(ErrorModel::damaging(ErrorKind::PerPacket(p))),
    }
}

/// Runs a plan and returns the engines' indications and the captured bytes.
fn run(plan: &Plan) -> (Vec<(Time, String)>, Vec<u8>) {
    let config = |host| HostConfig { batch: plan.batch, cues: plan.cues, ..host };
    let mut pair = pair(config, &line_of(plan));
    for (at, op) in &plan.ops {
        let action = action(op, &pair, plan.polite);
        pair.world.schedule(Time::from_nanos(at * 1_000_000), action);
    }
    let Pair { mut world, earth, moon, forward, back } = pair;
    let capture = Shared::default();
    world.capture_host_link(earth, moon, capture.clone()).unwrap();
    world.store(moon).insert(file("in"), content(5_000));
    let latency = Duration::from_millis(1);
    let faults = StoreFaults { latency, lose_unsynced: 0.3, ..Default::default() };
    world.store(moon).set_faults(faults);
    let limit = Limit { until: Time::from_secs(100_000), events: 1_000_000 };
    assert_eq!(world.run(limit), Outcome::Idle);
    world.check_conservation().unwrap();
    for (link, from, to) in [(forward, earth, moon), (back, moon, earth)] {
        let (link, from, to) =
            (world.link_stats(link), world.host_stats(from), world.host_stats(to));
        assert_eq!(link.queued.packets, 0, "an idle world has nothing under way");
        assert_eq!(link.pushed.packets, from.sent.packets + from.rejected);
        let known = to.received.packets + to.bad_ip + to.bad_udp + to.while_down + to.no_port;
        // Packets may be waiting for an engine that never reads again, or may have been dropped
        // together with the engine.
        let waiting = link.delivered.packets - known - to.buffer_full - to.no_route - to.forwarded;
        let pauses = plan.ops.iter().any(|(_, op)| matches!(op, Op::Pause));
        assert!(waiting == 0 || pauses, "{waiting} packets vanished");
    }
    for engine in [world.engine(earth), world.engine(moon)].into_iter().flatten() {
        assert!(engine.left == 0 && !engine.blocked, "{} wait for ever", engine.left);
    }
    world.finish_captures().unwrap();
    let notes = world.drain_indications();
    (notes.into_iter().map(|(at, _, note)| (at, format!("{note:?}"))).collect(), capture.bytes())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, ..ProptestConfig::default() })]

    #[test]
    fn every_packet_is_accounted_for(plan in plan()) {
        let first = run(&plan);
        prop_assert_eq!(&first, &run(&plan));
    }
}
