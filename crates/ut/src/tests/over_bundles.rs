//! Conversations over bundles, whose convergence layer is LTP.

use std::time::Duration;

use cfdp::pdu::ConditionCode;
use engine::{Area, FilestoreRequest, Input, PathEvent, StoreEffect, Ticket};

use super::world::{
    CLASS_1, CLASS_2, Case, PATH, assert_arrived, assert_cancelled, content, end, is_good,
    lose_numbers, name, put, restart_receiver, wait_out,
};

#[test]
fn files_of_any_length_cross_in_both_classes() {
    for mode in [CLASS_1, CLASS_2] {
        for size in [0, 1, 4_981, 4_982, 4_983, 50_001, 300_000] {
            let mut world = Case { mode, ..Case::default() }.bundle_world();
            put(&mut world, size);
            world.run();
            assert_arrived(&world, size);
            let held = world.hosts[1].engine.node().agent().statistics().bundles;
            assert_eq!(held, 0, "what is safe is not kept twice");
            let store = &world.hosts[1].store;
            let left = store.names(Area::Spool).filter(|name| store.get(name).is_some());
            assert_eq!(left.count(), 0);
        }
    }
}

#[test]
fn pdus_of_64_kib_are_bundles() {
    let mut world = Case { pdu_max: 65_535, ..Case::default() }.bundle_world();
    world.batch = 64;
    put(&mut world, 3_000_000);
    world.run();
    assert_arrived(&world, 3_000_000);
    // 3,000,000 bytes in PDUs of 65,000: 47, and two more.
    assert_eq!(world.hosts[0].engine.node().agent().statistics().sourced, 49);
    assert_eq!(world.hosts[1].engine.node().agent().statistics().delivered, 49);
}

#[test]
fn the_layer_repairs_losses_of_class_1() {
    for numbers in [&[0][..], &[1], &[3], &[0, 1, 2, 3, 4, 5, 6, 7, 8, 9], &[20, 21]] {
        let numbers: &'static [usize] = Box::leak(numbers.to_vec().into_boxed_slice());
        let mut world = Case::default().bundle_world();
        world.lose(lose_numbers(numbers));
        put(&mut world, 17_000);
        world.run();
        assert_arrived(&world, 17_000);
    }
}

#[test]
fn the_window_bounds_bundles() {
    let mut world = Case { window: 3, ..Case::default() }.bundle_world();
    put(&mut world, 200_000);
    while world.step() {
        assert!(world.hosts[0].engine.node().agent().statistics().bundles <= 3);
    }
    assert_arrived(&world, 200_000);
}

#[test]
fn an_outage_of_hours_is_waited_out() {
    for mode in [CLASS_1, CLASS_2] {
        // Longer than the layer keeps its sessions: then the agent retransmits the bundles.
        let outage = Duration::from_secs(10 * 3600);
        wait_out(Case { mode, ..Case::default() }.bundle_world(), outage);
    }
}

#[test]
fn bundles_that_expire_break_a_put_of_class_1() {
    let mut world = Case::default().bundle_world();
    put(&mut world, 300_000);
    for side in 0..2 {
        world.input(side, Input::Path(PATH, PathEvent::Down));
    }
    world.run_until(world.now + Duration::from_secs(2 * 86_400));
    let finished = end(&world, 0).expect("it is over");
    assert_eq!(finished.condition, ConditionCode::CancelRequestReceived);
    assert!(!is_good(finished));
}

#[test]
fn a_restarted_receiver_misses_nothing() {
    for mode in [CLASS_1, CLASS_2] {
        let case = Case { mode, ..Case::default() };
        restart_receiver(|| case.bundle_world(), || case.over_bundles(2, 3), 30);
    }
}

#[test]
fn bundles_of_a_node_arrive_after_the_senders_restart() {
    let case = Case { window: 64, ..Case::default() };
    let mut world = case.bundle_world();
    put(&mut world, 60_000);
    // The node has all bundles; none was sent.
    assert_eq!(world.hosts[0].engine.node().agent().statistics().sourced, 15);
    world.replace(0, case.over_bundles(1, 3));
    let request = FilestoreRequest::DenyFile(name("source"));
    world.hosts[0].store.execute(StoreEffect::Filestore { ticket: Ticket(0), request });
    world.drain(0);
    world.run();
    assert!(world.hosts[1].store.get(&name("copy")) == Some(&content(60_000)[..]));
    assert!(is_good(end(&world, 1).expect("it is over")));
}

#[test]
fn either_side_may_cancel() {
    for mode in [CLASS_1, CLASS_2] {
        for side in 0..2 {
            let mut world = Case { mode, ..Case::default() }.bundle_world();
            let id = put(&mut world, 500_000);
            world.run_until(world.now + Duration::from_millis(80));
            let now = world.now;
            let cancel = |entity: &mut super::super::OverService| entity.cancel(now, id);
            let cancelled = world.hosts[side].engine.with_application(now, cancel);
            cancelled.expect("it is under way");
            world.drain(side);
            world.run();
            assert_cancelled(&world);
        }
    }
}
