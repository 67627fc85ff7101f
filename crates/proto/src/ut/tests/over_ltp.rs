//! Conversations over LTP.

use std::time::Duration;

use engine::{Input, PathEvent};
use wire::cfdp::{ConditionCode, DeliveryCode};

use super::super::{Color, Indication};
use super::world::{
    CLASS_1, CLASS_2, PATH, Told, assert_arrived, content, describe, end, is_good, lose_numbers,
    name, put,
};
use crate::cfdp;

#[test]
fn a_short_file_is_three_blocks() {
    let mut world = Told::default().world();
    put(&mut world, 900);
    world.run();
    assert_arrived(&world, 900);
    let said = world.lines(describe);
    let pdus: Vec<_> = said.iter().filter(|line| line.starts_with("> 3 ")).collect();
    assert_eq!(pdus.len(), 3, "{said:#?}");
    let back = said.iter().filter(|line| line.starts_with('<'));
    assert!(back.clone().all(|line| line == "< report"), "{said:#?}");
    assert_eq!(back.count(), 3, "a report a block");
}

#[test]
fn files_of_any_length_cross_in_both_classes() {
    // PDUs of 5,000 octets carry 4,982 of the file, or so.
    for mode in [CLASS_1, CLASS_2] {
        for size in [0, 1, 4_981, 4_982, 4_983, 9_964, 50_001, 300_000] {
            let mut world = Told { mode, ..Told::default() }.world();
            put(&mut world, size);
            world.run();
            assert_arrived(&world, size);
        }
    }
}

#[test]
fn pdus_of_64_kib_are_blocks() {
    let mut world = Told { pdu_max: 65_535, ..Told::default() }.world();
    world.batch = 64;
    put(&mut world, 3_000_000);
    world.run();
    assert_arrived(&world, 3_000_000);
    // 3,000,000 octets in PDUs of 65,000: 47, and two beside them.
    assert_eq!(world.sides[0].engine.statistics().carried, 49);
    assert_eq!(world.sides[0].engine.ltp().stats().sent.total() / 49, 3_000_000 / 1_024 / 47);
}

#[test]
fn what_ltp_repeats_class_1_does_not_miss() {
    // Metadata; in the middle of data; the last segment of a block, which asks; the end.
    for numbers in [&[0][..], &[1], &[3], &[5], &[0, 1, 2, 3, 4, 5, 6], &[20, 21]] {
        let numbers: &'static [usize] = Box::leak(numbers.to_vec().into_boxed_slice());
        let mut world = Told::default().world();
        world.lose = lose_numbers(numbers);
        put(&mut world, 17_000);
        world.run();
        assert_arrived(&world, 17_000);
        assert_eq!(world.sides[0].engine.statistics().repeated, 0, "LTP repeats, CFDP does not");
    }
}

#[test]
fn a_put_of_class_1_is_over_when_ltp_says_that_all_is_there() {
    let mut world = Told::default().world();
    put(&mut world, 9_000);
    let light = Duration::from_millis(25);
    world.run_until(world.now + light);
    assert!(end(&world, 0).is_none(), "all has left, and nobody said that it is there");
    world.run();
    let finished = end(&world, 0).expect("it is over");
    assert!(is_good(finished));
    assert!(world.now.since(engine::Time::ZERO) >= light * 2);
}

#[test]
fn closure_and_class_2_say_that_the_file_has_its_name() {
    for told in
        [Told { closure: true, ..Told::default() }, Told { mode: CLASS_2, ..Told::default() }]
    {
        let mut world = told.world();
        put(&mut world, 20_000);
        world.run();
        assert_arrived(&world, 20_000);
        let status = end(&world, 0).expect("it is over").file_status;
        assert_eq!(status, wire::cfdp::FileStatus::Retained);
    }
}

#[test]
fn no_more_pdus_are_made_than_the_window_has() {
    let told = Told { window: 3, ..Told::default() };
    let mut world = told.world();
    put(&mut world, 200_000);
    let mut most = 0;
    while world.step() {
        most = most.max(world.sides[0].engine.under_way());
    }
    assert_arrived(&world, 200_000);
    assert_eq!(most, 3);
}

#[test]
fn green_data_that_is_lost_is_asked_for_by_class_2() {
    let told = Told { mode: CLASS_2, color: Color::GreenData, ..Told::default() };
    let mut world = told.world();
    // The third and the fifth segment of the file: each is a PDU of its own.
    world.lose = lose_numbers(&[3, 5]);
    put(&mut world, 10_000);
    world.run();
    assert_arrived(&world, 10_000);
    let naks = world.lines(describe).iter().filter(|line| line.contains("NAK")).count();
    assert_eq!(naks, 1, "{:#?}", world.lines(describe));
}

#[test]
fn green_data_that_is_lost_is_missing_in_class_1() {
    let told = Told { color: Color::GreenData, ..Told::default() };
    let mut world = told.world();
    world.lose = lose_numbers(&[3]);
    put(&mut world, 10_000);
    world.run();
    assert_eq!(world.sides[1].store.get(&name("copy")), None);
    let finished = end(&world, 1).expect("it is over");
    assert_eq!(finished.condition, ConditionCode::CheckLimitReached);
    assert!(is_good(end(&world, 0).expect("it is over")), "all has left");
}

#[test]
fn an_outage_holds_everything_up_and_no_more() {
    for mode in [CLASS_1, CLASS_2] {
        let mut world = Told { mode, ..Told::default() }.world();
        put(&mut world, 300_000);
        world.run_until(world.now + Duration::from_millis(60));
        for side in 0..2 {
            world.input(side, Input::Path(PATH, PathEvent::Down));
        }
        world.run_until(world.now + Duration::from_secs(100_000));
        assert!(end(&world, 0).is_none() && end(&world, 1).is_none());
        for side in 0..2 {
            world.up(side);
        }
        world.run();
        assert_arrived(&world, 300_000);
    }
}

/// Begins a receiver anew after each so many effects.
fn receiver_restarts(told: &Told, dies_after: usize) -> bool {
    let mut world = told.world();
    world.sides[1].dies_after = Some(dies_after);
    put(&mut world, 60_000);
    while world.sides[1].dies_after != Some(0) && world.step() {}
    let died = world.sides[1].dies_after == Some(0);
    world.sides[1].dies_after = None;
    if died {
        world.replace(1, told.over_ltp(2, 3));
    }
    world.run();
    assert!(
        world.sides[1].store.get(&name("copy")) == Some(&content(60_000)[..]),
        "after {dies_after} effects, {:?}",
        end(&world, 1)
    );
    died
}

#[test]
fn a_receiver_that_begins_anew_misses_nothing() {
    for mode in [CLASS_1, CLASS_2] {
        let told = Told { mode, ..Told::default() };
        let mut dies_after = 1;
        while receiver_restarts(&told, dies_after) {
            dies_after += 1;
        }
        assert!(dies_after > 10, "{dies_after}");
    }
}

#[test]
fn either_side_may_cancel() {
    for mode in [CLASS_1, CLASS_2] {
        for side in 0..2 {
            let mut world = Told { mode, ..Told::default() }.world();
            let id = put(&mut world, 500_000);
            world.run_until(world.now + Duration::from_millis(80));
            let now = world.now;
            world.sides[side].engine.cancel(now, id).expect("it is under way");
            world.drain(side);
            world.run();
            assert_eq!(world.sides[1].store.get(&name("copy")), None);
            let condition = end(&world, 1).expect("it is over").condition;
            assert_eq!(condition, ConditionCode::CancelRequestReceived, "{mode:?}, {side}");
            assert!(world.sides.iter().all(|side| side.engine.under_way() == 0));
        }
    }
}

#[test]
fn a_put_that_ltp_gives_up_is_told_as_broken() {
    let told = Told::default();
    let mut world = told.world();
    world.lose = Box::new(|side, number, _| side == 0 && number > 4);
    put(&mut world, 40_000);
    world.run();
    let lost = world.sides[0].indications.iter();
    assert!(lost.clone().any(|told| matches!(told, Indication::Lost { .. })));
    let finished = end(&world, 0).expect("it is over");
    assert_eq!(finished.delivery, DeliveryCode::Incomplete);
    assert_eq!(finished.condition, ConditionCode::CancelRequestReceived);
    assert!(end(&world, 1).is_none_or(|finished| !is_good(finished)));
}

#[test]
fn several_pdus_of_a_block_are_heard() {
    let mut world = Told::default().world();
    put(&mut world, 0);
    world.run();
    let pdus: Vec<Vec<u8>> = world
        .log
        .iter()
        .filter_map(|(_, _, datagram, _)| {
            let segment = wire::ltp::Segment::decode(datagram).ok()?;
            let wire::ltp::Body::Data(data) = segment.body else { return None };
            Some(data.data.to_vec())
        })
        .collect();
    assert_eq!(pdus.len(), 2, "Metadata and EOF");
    let mut other = Told::default().world();
    let mut sender = crate::ltp::Node::of_blocks(
        crate::ltp::Config { engine: 1, ..Default::default() },
        engine::Rng::new(5, "blocks"),
    );
    let now = other.now;
    engine::Engine::handle_input(
        &mut sender,
        now,
        Input::Path(PATH, PathEvent::Up(super::world::path_info())),
    );
    sender
        .send_octets(now, 2, super::super::CFDP_SERVICE, pdus.concat().into(), crate::ltp::Red::All)
        .expect("it takes the block");
    let mut tx = engine::TxBuf::new(1);
    engine::Engine::poll_transmit(&mut sender, now, &mut tx).expect("a segment");
    let segment = tx.bytes().to_vec();
    other.hear(1, &segment);
    other.run_until(now + Duration::from_secs(1));
    let finished = end(&other, 1).expect("it is whole");
    assert!(is_good(finished));
    assert!(matches!(
        other.sides[1].indications.first(),
        Some(Indication::Cfdp(cfdp::Indication::MetadataReceived(_)))
    ));
}
