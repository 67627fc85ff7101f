//! Conversations over LTP.

use std::time::Duration;

use ::cfdp::pdu::{
    Body, ConditionCode, DeliveryCode, Direction, EntityId, Eof, Header, Pdu, Version, Width,
};
use engine::{Engine as _, Input, PathEvent, PathId, Receive, Rng, Time};

use super::super::{Below as _, Color, Indication, Note, OverLtp};
use super::world::{
    CLASS_1, CLASS_2, Case, PATH, World, assert_arrived, assert_cancelled, content, describe, end,
    is_good, lose_numbers, name, path_info, put, restart_receiver, wait_out,
};

/// Settings of LTP with this inactivity timeout.
fn silent_for(seconds: u64) -> ltp::Config {
    let inactivity = ltp::Timer::Fixed(Duration::from_secs(seconds));
    let default_remote = ltp::Remote { inactivity, ..ltp::Remote::default() };
    ltp::Config { default_remote, ..ltp::Config::default() }
}

fn assert_idle(world: &World<OverLtp>, side: usize) {
    let engine = &world.hosts[side].engine;
    assert_eq!(engine.under_way(), 0);
    assert_eq!(engine.ltp().sessions().count(), 0);
    assert!(engine.entity().transactions().next().is_none());
    assert_eq!(engine.poll_timeout(), None);
}

#[test]
fn a_short_file_is_three_blocks() {
    let mut world = Case::default().world();
    put(&mut world, 900);
    world.run();
    assert_arrived(&world, 900);
    let lines = world.lines(describe);
    let pdus: Vec<_> = lines.iter().filter(|line| line.starts_with("> 3 ")).collect();
    assert_eq!(pdus.len(), 3, "{lines:#?}");
    let back = lines.iter().filter(|line| line.starts_with('<'));
    assert!(back.clone().all(|line| line == "< report"), "{lines:#?}");
    assert_eq!(back.count(), 3, "a report a block");
}

#[test]
fn files_of_any_length_cross_in_both_classes() {
    // PDUs of 5,000 bytes carry about 4,982 bytes of the file.
    for mode in [CLASS_1, CLASS_2] {
        for size in [0, 1, 4_981, 4_982, 4_983, 9_964, 50_001, 300_000] {
            let mut world = Case { mode, ..Case::default() }.world();
            put(&mut world, size);
            world.run();
            assert_arrived(&world, size);
        }
    }
}

#[test]
fn pdus_of_64_kib_are_blocks() {
    let mut world = Case { pdu_max: 65_535, ..Case::default() }.world();
    world.batch = 64;
    put(&mut world, 3_000_000);
    world.run();
    assert_arrived(&world, 3_000_000);
    // 3,000,000 bytes in PDUs of 65,000: 47, and two more.
    assert_eq!(world.hosts[0].engine.statistics().carried, 49);
    assert_eq!(world.hosts[0].engine.ltp().stats().sent.total() / 49, 3_000_000 / 1_024 / 47);
}

#[test]
fn ltp_repairs_losses_of_class_1() {
    // Metadata; in the middle of data; the last segment of a block, a checkpoint; the end.
    for numbers in [&[0][..], &[1], &[3], &[5], &[0, 1, 2, 3, 4, 5, 6], &[20, 21]] {
        let numbers: &'static [usize] = Box::leak(numbers.to_vec().into_boxed_slice());
        let mut world = Case::default().world();
        world.lose(lose_numbers(numbers));
        put(&mut world, 17_000);
        world.run();
        assert_arrived(&world, 17_000);
        assert_eq!(world.hosts[0].engine.statistics().repeated, 0, "LTP repeats, CFDP does not");
    }
}

#[test]
fn a_put_of_class_1_ends_when_ltp_has_delivered() {
    let mut world = Case::default().world();
    put(&mut world, 9_000);
    let light = Duration::from_millis(25);
    world.run_until(world.now + light);
    assert!(end(&world, 0).is_none(), "everything was sent, but not confirmed");
    world.run();
    let finished = end(&world, 0).expect("it is over");
    assert!(is_good(finished));
    assert!(world.now.since(Time::ZERO) >= light * 2);
}

#[test]
fn closure_and_class_2_confirm_the_file() {
    for case in
        [Case { closure: true, ..Case::default() }, Case { mode: CLASS_2, ..Case::default() }]
    {
        let mut world = case.world();
        put(&mut world, 20_000);
        world.run();
        assert_arrived(&world, 20_000);
        let status = end(&world, 0).expect("it is over").file_status;
        assert_eq!(status, ::cfdp::pdu::FileStatus::Retained);
    }
}

#[test]
fn the_window_bounds_pdus() {
    let case = Case { window: 3, ..Case::default() };
    let mut world = case.world();
    put(&mut world, 200_000);
    let mut most = 0;
    while world.step() {
        most = most.max(world.hosts[0].engine.under_way());
    }
    assert_arrived(&world, 200_000);
    assert_eq!(most, 3);
}

#[test]
fn lost_green_data_are_requested_by_class_2() {
    let case = Case { mode: CLASS_2, color: Color::GreenData, ..Case::default() };
    let mut world = case.world();
    // The third and the fifth segment of the file: each is a separate PDU.
    world.lose(lose_numbers(&[3, 5]));
    put(&mut world, 10_000);
    world.run();
    assert_arrived(&world, 10_000);
    let naks = world.lines(describe).iter().filter(|line| line.contains("NAK")).count();
    assert_eq!(naks, 1, "{:#?}", world.lines(describe));
}

#[test]
fn lost_green_data_are_missing_in_class_1() {
    let case = Case { color: Color::GreenData, ..Case::default() };
    let mut world = case.world();
    world.lose(lose_numbers(&[3]));
    put(&mut world, 10_000);
    world.run();
    assert_eq!(world.hosts[1].store.get(&name("copy")), None);
    let finished = end(&world, 1).expect("it is over");
    assert_eq!(finished.condition, ConditionCode::CheckLimitReached);
    assert!(is_good(end(&world, 0).expect("it is over")), "all has left");
}

#[test]
fn an_outage_only_delays() {
    for mode in [CLASS_1, CLASS_2] {
        let outage = Duration::from_secs(100_000);
        wait_out(Case { mode, ..Case::default() }.world(), outage);
    }
}

#[test]
fn a_restarted_receiver_misses_nothing() {
    for mode in [CLASS_1, CLASS_2] {
        let case = Case { mode, ..Case::default() };
        restart_receiver(|| case.world(), || case.over_ltp(2, 3), 10);
    }
}

#[test]
fn either_side_may_cancel() {
    for mode in [CLASS_1, CLASS_2] {
        for side in 0..2 {
            let mut world = Case { mode, ..Case::default() }.world();
            let id = put(&mut world, 500_000);
            world.run_until(world.now + Duration::from_millis(80));
            let now = world.now;
            world.hosts[side].engine.cancel(now, id).expect("it is under way");
            world.drain(side);
            world.run();
            assert_cancelled(&world);
            assert!(world.hosts.iter().all(|side| side.engine.under_way() == 0));
        }
    }
}

#[test]
fn a_put_that_ltp_gives_up_is_reported() {
    let case = Case::default();
    let mut world = case.world();
    world.lose(|side, number, _| side == 0 && number > 4);
    put(&mut world, 40_000);
    world.run();
    let lost = world.hosts[0].indications.iter();
    assert!(lost.clone().any(|indication| matches!(indication, Indication::Lost { .. })));
    let finished = end(&world, 0).expect("it is over");
    assert_eq!(finished.delivery, DeliveryCode::Incomplete);
    assert_eq!(finished.condition, ConditionCode::CancelRequestReceived);
    assert!(end(&world, 1).is_none_or(|finished| !is_good(finished)));
}

#[test]
fn several_pdus_of_a_block_are_accepted() {
    let mut world = Case::default().world();
    put(&mut world, 0);
    world.run();
    let pdus: Vec<Vec<u8>> = world
        .log
        .iter()
        .filter_map(|sent| {
            let segment = ::ltp::segment::Segment::decode(&sent.bytes).ok()?;
            let ::ltp::segment::Body::Data(data) = segment.body else { return None };
            Some(data.data.to_vec())
        })
        .collect();
    assert_eq!(pdus.len(), 2, "Metadata and EOF");
    let mut other = Case::default().world();
    let mut sender = ltp::Node::of_blocks(
        ltp::Config { engine: 1, ..Default::default() },
        Rng::new(5, "blocks"),
    );
    let now = other.now;
    engine::Engine::handle_input(&mut sender, now, Input::Path(PATH, PathEvent::Up(path_info())));
    sender
        .send_bytes(now, 2, super::super::CFDP_SERVICE, pdus.concat().into(), ltp::Red::All)
        .expect("it takes the block");
    let mut tx = engine::TxBuf::new(1);
    engine::Engine::poll_transmit(&mut sender, now, &mut tx).expect("a segment");
    let segment = tx.bytes().to_vec();
    other.hear(1, &segment);
    other.run_until(now + Duration::from_secs(1));
    let finished = end(&other, 1).expect("it is whole");
    assert!(is_good(finished));
    assert!(matches!(
        other.hosts[1].indications.first(),
        Some(Indication::Cfdp(cfdp::Indication::MetadataReceived(_)))
    ));
}

/// Sessions being cancelled take all places of LTP. They close without an indication.
#[test]
fn a_put_to_a_dead_peer_ends_with_few_sessions() {
    for mode in [CLASS_1, CLASS_2] {
        for dies_after in [0, 5] {
            let limits = ltp::Limits { sessions: 4, ..ltp::Limits::default() };
            let ltp = ltp::Config { limits, ..silent_for(5) };
            let mut world = Case { mode, ltp, ..Case::default() }.world();
            world.lose(move |_, number, _| number >= dies_after);
            put(&mut world, 100_000);
            world.run();
            let finished = end(&world, 0).expect("it is over");
            assert_eq!(finished.delivery, DeliveryCode::Incomplete, "{mode:?}");
            assert_idle(&world, 0);
            assert_idle(&world, 1);
        }
    }
}

/// End of a file in class 1 without a beginning.
fn lonely_end(sequence: u64) -> bytes::Bytes {
    let header = Header {
        version: Version::V1,
        direction: Direction::TowardReceiver,
        mode: CLASS_1,
        crc: false,
        large_file: false,
        segmentation_control: false,
        entity_width: Width::ONE,
        sequence_width: Width::FOUR,
        source: EntityId(1),
        sequence,
        destination: EntityId(2),
    };
    let condition = ConditionCode::NoError;
    let eof = Eof { condition, checksum: 0, file_size: 10, fault_location: None };
    Pdu { header, body: Body::Eof(eof) }.to_vec().expect("a sound PDU").into()
}

fn send_ends(world: &mut World<OverLtp>, count: u64) {
    let now = world.now;
    for sequence in 1..=count {
        let pdu = lonely_end(sequence);
        let carried = world.hosts[0].engine.with_below(now, |below| below.carry(now, 2, pdu));
        carried.expect("there is room for a block");
    }
    world.drain(0);
}

#[test]
fn ends_without_beginnings_are_bounded() {
    let mut world = Case::default().world();
    send_ends(&mut world, 200);
    world.run_until(world.now + Duration::from_secs(30));
    let receiver = &world.hosts[1].engine;
    assert_eq!((receiver.under_way(), receiver.statistics().ends_refused), (64, 136));
    assert_eq!(receiver.ltp().sessions().count(), 64);
    // Another file arrives meanwhile.
    put(&mut world, 20_000);
    world.run_until(world.now + Duration::from_secs(30));
    assert!(world.hosts[1].store.get(&name("copy")) == Some(&content(20_000)[..]));
    world.run();
    for side in 0..2 {
        assert_idle(&world, side);
    }
    assert!(world.now < Time::from_secs(2 * 3600), "{}", world.now);
}

#[test]
fn an_end_without_a_beginning_is_dropped_on_cancellation() {
    let [hasty, patient] = [silent_for(5), ltp::Config::default()];
    let hasty = Case { ltp: hasty, ..Case::default() }.over_ltp(1, 1);
    let patient = Case { ltp: patient, ..Case::default() }.over_ltp(2, 2);
    let mut world = World::between([hasty, patient], path_info());
    send_ends(&mut world, 1);
    world.run_until(world.now + Duration::from_secs(4));
    assert_eq!(world.hosts[1].engine.under_way(), 1);
    world.run_until(world.now + Duration::from_secs(4));
    for side in 0..2 {
        assert_idle(&world, side);
    }
}

/// With a light time of 22 min and losses of three segments in ten, LTP's repairs take hours,
/// which class 1 does not count as missing checks.
#[test]
fn class_1_completes_over_long_links_with_losses() {
    for mode in [CLASS_1, CLASS_2] {
        for seed in 0..6 {
            let mut world = Case { mode, pdu_max: 65_000, ..Case::default() }.world();
            world.hops[0].info.owlt = Some(Duration::from_secs(1320));
            world.hops[0].info.rate_bps = Some(1_000_000);
            world.up(0);
            world.up(1);
            let mut rng = Rng::new(seed, "losses");
            world.lose(move |_, _, _| rng.below(10) < 3);
            put(&mut world, 200_000);
            world.run();
            assert_arrived(&world, 200_000);
        }
    }
}

#[test]
fn unannounced_outages_shorter_than_inactivity_are_survived() {
    let seconds = |seconds: f64| Time::ZERO + Duration::from_secs_f64(seconds);
    for mode in [CLASS_1, CLASS_2] {
        for sides in [[true, true], [true, false], [false, true]] {
            for lasts in [1400.0, 18_000.0] {
                let ends = Case { mode, ltp: silent_for(86_400), ..Case::default() };
                let mut world = ends.world();
                put(&mut world, 500_000);
                world.run_until(seconds(0.1));
                world.lose(move |side, _, _| sides[side]);
                world.run_until(seconds(lasts));
                world.lose(|_, _, _| false);
                world.run();
                assert_arrived(&world, 500_000);
                let finished = world.now.since(seconds(lasts)).as_secs_f64();
                println!("{mode:?} {sides:?} {lasts} s: at rest after {finished:.3} s");
                assert!(finished < 2.0, "{mode:?} {sides:?} {lasts}: {finished}");
            }
        }
    }
}

#[test]
fn an_engine_at_another_address_is_reported_once() {
    let remote = ltp::Remote { path: Some(PATH), ..ltp::Remote::default() };
    let remotes = [(1, remote.clone()), (2, remote)].into();
    let ltp = ltp::Config { remotes, ..ltp::Config::default() };
    let mut world = Case { ltp, ..Case::default() }.world();
    let other = PathId(9);
    let up = PathEvent::Up(world.hops[0].info.clone());
    world.input(1, Input::Path(other, up));
    for number in 70..80 {
        let id = ::ltp::segment::SessionId { originator: 1, number };
        let kind = ::ltp::segment::DataKind::Red;
        let data =
            ::ltp::segment::Data { kind, service: 3, offset: 0, checkpoint: None, data: b"x" };
        let segment = ::ltp::segment::Segment::new(id, ::ltp::segment::Body::Data(data));
        let segment = segment.to_vec().expect("a segment");
        world.input(1, Input::Receive(Receive::datagram(other, &segment)));
    }
    let note = Note::Elsewhere { entity: 1, address: None, is_taken: false };
    let indications = world.hosts[1].indications.iter();
    let notes = indications.filter(|indication| matches!(indication, Indication::Noted(_)));
    assert_eq!(notes.collect::<Vec<_>>(), [&Indication::Noted(note.clone())]);
    assert!(note.to_string().contains("another address"));
}
