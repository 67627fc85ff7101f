//! Clocks that are set, machines that are suspended, and restarts.

use engine::Engine as _;

use super::super::agent::{Boot, SendRequest};
use super::agent::{payload, secs, send, taken};
use super::world::{World, chains, endpoint};
use crate::codec::bp7::{BUNDLE_AGE, Bounds, Bundle, Extension};

const YEAR_S: u64 = 365 * 86_400;
/// The right time at the start of the driver's clock, in milliseconds of DTN.
const RIGHT: u64 = 800_000_000_000;

fn request(to: usize, lifetime_s: u64) -> SendRequest {
    SendRequest { lifetime: secs(lifetime_s), ..SendRequest::new(endpoint(to), payload(10)) }
}

fn held(world: &World, n: usize) -> usize {
    world.nodes[n].agent.bundles().count()
}

/// Sets the clock of a node, which a restart then has, too.
fn set_clock(world: &mut World, n: usize, clock: Option<u64>) {
    let now = world.now;
    let node = &mut world.nodes[n];
    node.config.clock = clock;
    node.agent.set_clock(now, clock);
    world.drain(n);
    world.settle();
}

/// Nodes in a row of which one has another clock.
fn world(count: usize, other: usize, clock: Option<u64>) -> World {
    let mut configs = chains(count, true);
    configs[other].clock = clock;
    let mut world = World::new(configs, 1);
    world.settle();
    world
}

/// Checks that a node holds a bundle for another 99 seconds of 100, and no longer.
fn assert_lives(world: &mut World, n: usize, seconds: u64, what: &str) {
    world.pass(secs(seconds - 1));
    assert_eq!(held(world, n), 1, "{what}: too short");
    world.pass(secs(2));
    assert_eq!(held(world, n), 0, "{what}: too long");
}

const STEPS: [i64; 4] = [-(YEAR_S as i64), -1, 1, YEAR_S as i64];

fn stepped(seconds: i64) -> u64 {
    RIGHT.saturating_add_signed(1000 * seconds)
}

#[test]
fn lifetimes_go_on_when_the_clock_is_set() {
    for step_s in STEPS {
        // Of a bundle created here, and of one that is forwarded.
        for n in [0, 1] {
            let mut world = world(3, 0, Some(RIGHT));
            send(&mut world, 0, request(2, 100));
            world.settle();
            world.pass(secs(10));
            if n == 1 {
                world.connect(0, 1);
                world.settle();
            }
            world.pass(secs(30));
            set_clock(&mut world, n, Some(stepped(step_s)));
            world.pass(secs(10));
            set_clock(&mut world, n, Some(RIGHT));
            set_clock(&mut world, n, Some(stepped(step_s)));
            assert_lives(&mut world, n, 50, &format!("node {n}, {step_s} s"));
        }
    }
}

#[test]
fn lifetimes_go_on_when_a_node_restarts_after_its_clock_was_set() {
    for step_s in STEPS {
        for is_set_before in [false, true] {
            let mut world = world(2, 0, Some(RIGHT));
            world.nodes[0].config.boot = Some(Boot { id: 7, ms: 5000 });
            world.crash(0);
            world.settle();
            send(&mut world, 0, request(1, 100));
            world.settle();
            world.pass(secs(30));
            // Either it runs when the clock is set, or it does not.
            if is_set_before {
                set_clock(&mut world, 0, Some(stepped(step_s)));
            }
            world.nodes[0].config.clock = Some(stepped(step_s));
            world.pass(secs(10));
            world.crash(0);
            world.settle();
            world.pass(secs(10));
            assert_lives(&mut world, 0, 50, &format!("{step_s} s, {is_set_before}"));
        }
    }
}

/// Requirements: B53.
#[test]
fn bundles_that_came_while_the_clock_was_behind_expire_when_it_is_set() {
    for clock in [None, Some(stepped(-(YEAR_S as i64)))] {
        // 60 s before, the remaining 40 s after; or all of them before.
        for (wait_s, is_over) in [(60, false), (150, true)] {
            let mut world = world(3, 1, clock);
            world.nodes[0].agent.set_clock(world.now, Some(RIGHT));
            send(&mut world, 0, request(2, 100));
            world.connect(0, 1);
            world.settle();
            world.disconnect(0, 1);
            // As if it had been under way for long: the node's time is not the sender's.
            let later = RIGHT + 1000 * wait_s;
            set_clock(&mut world, 1, Some(later));
            assert_eq!(held(&world, 1), usize::from(!is_over));
            if !is_over {
                assert_lives(&mut world, 1, 100 - wait_s, "a clock that was behind");
            }
        }
    }
}

#[test]
fn a_wrong_step_deletes_nothing() {
    let mut world = world(3, 1, Some(RIGHT));
    send(&mut world, 0, request(2, 1000));
    world.connect(0, 1);
    world.settle();
    set_clock(&mut world, 1, Some(stepped(YEAR_S as i64)));
    world.pass(secs(100));
    set_clock(&mut world, 1, Some(RIGHT));
    assert_eq!(held(&world, 1), 1);
    world.connect(1, 2);
    world.settle();
    assert_eq!(taken(&world, 2).len(), 1);
}

/// Requirements: B15.
#[test]
fn no_creation_time_is_in_the_future() {
    for step_s in STEPS {
        let mut world = world(2, 0, Some(RIGHT));
        send(&mut world, 0, request(1, 100));
        set_clock(&mut world, 0, Some(stepped(step_s)));
        for _ in 0..3 {
            send(&mut world, 0, request(1, 100));
            world.pass(secs(1));
        }
        let now_ms = stepped(step_s) + world.now.as_nanos() / 1_000_000;
        let ids: Vec<_> = world.nodes[0].agent.bundles().map(|bundle| bundle.id).collect();
        let newest = ids[1..].iter().map(|id| id.creation.time_ms).collect::<Vec<_>>();
        assert!(newest.iter().all(|ms| *ms <= now_ms), "{step_s}: {newest:?} at {now_ms}");
        // The clock is followed at once, not when it is where it was before.
        assert_eq!(*newest.last().unwrap(), now_ms - 1000, "{step_s}");
        let mut different = ids.clone();
        different.sort();
        different.dedup();
        assert_eq!(different.len(), ids.len());
    }
}

/// Requirements: B47, B53.
#[test]
fn a_suspended_machine_ages_its_bundles() {
    let mut world = world(2, 0, None);
    send(&mut world, 0, request(1, 7200));
    send(&mut world, 0, request(1, 1800));
    world.settle();
    // Nothing runs for an hour, and the driver's clock goes on.
    world.now += secs(3600);
    world.nodes[0].agent.handle_timeout(world.now);
    world.drain(0);
    world.settle();
    assert_eq!(held(&world, 0), 1);
    world.connect(0, 1);
    world.settle();
    assert_eq!(taken(&world, 1).len(), 1);
    assert_eq!(age_ms(&world, 0), 3_600_000);
}

/// Age in the last bundle that a node sent.
fn age_ms(world: &World, n: usize) -> u64 {
    let sent = world.crossed.iter().rfind(|(from, ..)| *from == n).expect("it crossed");
    let head = Bundle::decode(&sent.2, &Bounds::default()).unwrap().head;
    match head.block_of(BUNDLE_AGE).expect("the block").extension(&Bounds::default()).unwrap() {
        Extension::BundleAge { age_ms } => age_ms,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_node_without_a_clock_gives_back_no_time_when_it_is_killed() {
    let mut world = world(2, 0, None);
    world.nodes[0].config.boot = Some(Boot { id: 7, ms: 5000 });
    world.crash(0);
    world.settle();
    send(&mut world, 0, request(1, 20));
    send(&mut world, 0, request(1, 1000));
    world.settle();
    for _ in 0..2 {
        world.pass(secs(4));
        world.crash(0);
        world.settle();
    }
    world.pass(secs(11));
    assert_eq!(held(&world, 0), 2);
    world.pass(secs(2));
    assert_eq!(held(&world, 0), 1);
    world.connect(0, 1);
    world.settle();
    assert_eq!(age_ms(&world, 0), 21_000);
}

#[test]
fn time_between_two_boots_counts_once_the_clock_is_right() {
    let mut world = world(2, 0, Some(RIGHT));
    world.nodes[0].config.boot = Some(Boot { id: 7, ms: 0 });
    world.crash(0);
    world.settle();
    send(&mut world, 0, request(1, 1000));
    world.settle();
    // The clock is unknown after the boot, until it is synchronised.
    world.nodes[0].config.clock = None;
    world.nodes[0].config.boot = Some(Boot { id: 8, ms: 0 });
    world.crash(0);
    world.settle();
    send(&mut world, 0, request(1, 1000));
    world.settle();
    world.pass(secs(100));
    // 300 s passed while the machine was off.
    set_clock(&mut world, 0, Some(RIGHT + 300_000));
    assert_eq!(held(&world, 0), 2);
    // Both survive another restart as they are.
    world.crash(0);
    world.settle();
    world.pass(secs(598));
    assert_eq!(held(&world, 0), 2);
    world.pass(secs(4));
    assert_eq!(held(&world, 0), 1, "the first expires after 400 and 600 s");
    world.pass(secs(296));
    assert_eq!(held(&world, 0), 1);
    world.pass(secs(4));
    assert_eq!(held(&world, 0), 0, "the second expires after 100 and 900 s");
}
