//! Faults at either side end the transaction correctly on both.

use std::time::Duration;

use engine::{PathInfo, Time};

use super::hostile::{header, say};
use super::world::{World, config, content, lose_these, name, put_request};
use crate::pdu::{
    Body, ConditionCode, FaultHandler, FilestoreAction, Finished, TransmissionMode, Width,
};
use crate::test_world;
use crate::{FilestoreRequest, Indication, PeerError, PutRequest, RequestError, State, Timer};

const DAY: u64 = 86_400;

fn world_with(file: &[u8]) -> World {
    let mut world = World::new(&config(|_| {}));
    world.hosts[0].store.insert(name("source"), file.to_vec());
    world
}

fn condition(world: &World, side: usize) -> Option<ConditionCode> {
    world.finished(side).map(|finished| finished.condition)
}

#[track_caller]
fn nothing_is_left(world: &World) {
    for side in &world.hosts {
        assert_eq!(side.engine.transactions().count(), 0, "{:#?}", world.datagrams());
    }
}

#[test]
fn senders_give_up_on_receivers_without_the_transaction() {
    let mut world = world_with(&content(5000));
    let abandon = vec![(ConditionCode::FileChecksumFailure, FaultHandler::Abandon)];
    world.put(PutRequest { fault_handlers: abandon, ..put_request() });
    world.lose(|side, number, datagram| {
        if side == 0 && number == 2 {
            *datagram.last_mut().expect("data") ^= 1;
        }
        false
    });
    world.run_until(Time::from_secs(DAY));
    assert_eq!(condition(&world, 0), Some(ConditionCode::InactivityDetected));
    nothing_is_left(&world);
}

#[test]
fn finished_ends_a_suspended_sender() {
    let mut world = world_with(&content(5000));
    let id = world.put(put_request());
    world.run_until(Time::from_nanos(40_000_000));
    world.hosts[0].engine.suspend(world.now, id).expect("it is under way");
    world.drain(0);
    world.run();
    assert_eq!(condition(&world, 0), Some(ConditionCode::NoError));
    nothing_is_left(&world);
}

#[test]
fn finished_before_the_eof_is_about_another_file() {
    let mut world = world_with(&content(200_000));
    world.put(put_request());
    world.run_until(Time::from_nanos(10_000_000));
    let body = Body::Finished(Finished {
        condition: ConditionCode::NoError,
        end_system: true,
        delivery: crate::pdu::DeliveryCode::Complete,
        file_status: crate::pdu::FileStatus::Retained,
        tlvs: crate::pdu::Tlvs::NONE,
    });
    let direction = crate::pdu::Direction::TowardSender;
    say(&mut world, 0, crate::pdu::Header { direction, ..header(1) }, body);
    assert_eq!(condition(&world, 0), None);
    let reported = world.hosts[0].indications.iter().any(|indication| {
        matches!(indication, Indication::PeerError { error: PeerError::FinishedBeforeEof, .. })
    });
    assert!(reported);
    world.run();
    assert_eq!(condition(&world, 0), Some(ConditionCode::NoError));
    assert!(world.hosts[1].store.get(&name("copy")) == Some(&content(200_000)[..]));
}

#[test]
fn a_late_ack_of_the_eof_does_not_end_a_cancelled_sender() {
    let mut world = world_with(&content(20_000));
    let id = world.put(put_request());
    world.lose(lose_these(&[(0, "data 2"), (0, "data 5"), (0, "EOF 20000 cancel")]));
    while !world.datagrams().iter().any(|line| line.text.starts_with("EOF 20000 no")) {
        world.step();
    }
    world.hosts[0].engine.cancel(world.now, id).expect("it is under way");
    world.drain(0);
    world.run_until(Time::from_secs(60));
    assert_eq!(condition(&world, 1), Some(ConditionCode::CancelRequestReceived));
    nothing_is_left(&world);
}

#[test]
fn shrinking_files_cancel_with_any_handler() {
    for handler in [FaultHandler::Ignore, FaultHandler::Suspend, FaultHandler::Cancel] {
        let mut world = world_with(&content(3_000_000));
        let fault_handlers = vec![(ConditionCode::FileSizeError, handler)];
        world.put(PutRequest { fault_handlers, ..put_request() });
        world.run_until(Time::from_nanos(30_000_000));
        world.hosts[0].store.insert(name("source"), content(1_500_000));
        world.run_until(Time::from_secs(100));
        assert_eq!(condition(&world, 0), Some(ConditionCode::FileSizeError), "{handler:?}");
        assert_eq!(condition(&world, 1), Some(ConditionCode::FileSizeError), "{handler:?}");
        nothing_is_left(&world);
    }
}

#[test]
fn cancellation_stops_repairs() {
    let mut world = world_with(&content(2_000_000));
    let id = world.put(put_request());
    world.lose(|side, number, _| side == 0 && (1..1900).contains(&number) && number % 2 == 0);
    while !world.datagrams().iter().any(|line| line.from == 1 && line.text.starts_with("NAK")) {
        world.step();
    }
    for _ in 0..40 {
        world.step();
    }
    world.hosts[0].engine.cancel(world.now, id).expect("it is under way");
    world.drain(0);
    let from = world.log.len();
    world.run_until(world.now + Duration::from_secs(20));
    let after = &world.datagrams()[from..];
    let data = after.iter().filter(|line| line.text.starts_with("data")).count();
    // One batch may have been on its way to the socket.
    assert!(data <= 1, "{data} data PDUs after the cancellation");
    nothing_is_left(&world);
}

#[test]
fn finished_pdus_carry_as_many_responses_as_fit() {
    let mut world = World::new(&config(|_| {}));
    let mtu = world.hops[0].info.clone();
    let engine::PathKind::Datagram { mtu } = mtu.kind else { panic!("a path of datagrams") };
    let request = |i: u32| FilestoreRequest {
        action: FilestoreAction::DenyFile,
        first: format!("n{i:018}"),
        second: String::new(),
    };
    let filestore_requests = (0..43).map(request).collect();
    world.put(PutRequest { destination: 2, filestore_requests, ..PutRequest::default() });
    world.lose(move |_, _, datagram| {
        assert!(datagram.len() <= mtu, "{} bytes", datagram.len());
        false
    });
    world.run();
    let finished = world.finished(0).expect("the sender is notified");
    assert_eq!(finished.condition, ConditionCode::NoError);
    assert!((20..43).contains(&finished.filestore_responses.len()));
    assert_eq!(world.finished(1).expect("it ended").filestore_responses.len(), 43);
    nothing_is_left(&world);
}

#[test]
fn sequence_numbers_run_out() {
    let mut settings = config(|_| {});
    settings.sequence_width = Width::ONE;
    let mut world = World::new(&settings);
    world.hosts[0].store.insert(name("source"), content(10));
    world.lose(|_, _, _| true);
    for _ in 0..256 {
        world.put(put_request());
    }
    let refused = world.hosts[0].engine.put(world.now, put_request());
    assert_eq!(refused, Err(RequestError::NoSequenceNumber));
}

#[test]
fn puts_need_loaded_records_and_a_remote_destination() {
    let settings = config(|_| {});
    let rng = engine::Rng::new(1, "cfdp");
    let mut entity = crate::Entity::new(settings.clone(), rng);
    assert_eq!(entity.put(Time::ZERO, put_request()), Err(RequestError::NotReady));
    let mut world = World::new(&settings);
    let own = PutRequest { destination: 1, ..put_request() };
    let refused = world.hosts[0].engine.put(world.now, own);
    assert!(matches!(refused, Err(RequestError::Conflict(_))), "{refused:?}");
}

#[test]
fn nothing_is_sent_before_its_number_is_stored() {
    let mut world = world_with(&content(500));
    world.hosts[0].slow = Some(Vec::new());
    world.put(PutRequest { mode: Some(TransmissionMode::Unacknowledged), ..put_request() });
    world.run_until(Time::from_secs(10));
    assert!(world.log.is_empty(), "{:?}", world.transcript());
    for _ in 0..4 {
        world.work_off(0);
    }
    world.run();
    assert!(world.hosts[1].store.get(&name("copy")).is_some());
}

#[test]
fn no_timer_of_a_sender_runs_while_it_is_suspended() {
    let mut world = World::new(&config(|remote| remote.closure = true));
    world.hosts[0].store.insert(name("source"), content(500));
    // No PDU of the receiver arrives.
    world.lose(|side, _, _| side == 1);
    let suspend = vec![(ConditionCode::CheckLimitReached, FaultHandler::Suspend)];
    let mode = Some(TransmissionMode::Unacknowledged);
    let id = world.put(PutRequest { mode, fault_handlers: suspend, ..put_request() });
    world.run_until(Time::from_secs(DAY));
    let entity = &world.hosts[0].engine;
    let mut states = entity.transactions().map(|report| (report.id, report.state));
    assert_eq!(states.next(), Some((id, State::Suspended)));
    assert_eq!(engine::Engine::poll_timeout(entity), None);
}

#[test]
fn a_receiver_is_silent_while_it_gets_repairs() {
    let mut config = config(|remote| {
        remote.inactivity = Timer::Fixed(Duration::from_secs(2));
        remote.repair_copies = 1;
    });
    config.limits.buffers.read_piece = 4096;
    // A kilobyte takes 85 ms, and half of 100 kB longer than the inactivity limit.
    let info = PathInfo { rate_bps: Some(100_000), ..test_world::path_info() };
    let file = content(100_000);
    let mut world = World::with_path(&config, info);
    world.hosts[0].store.insert(name("source"), file.clone());
    world.lose(|side, number, _| side == 0 && number > 0 && number < 90 && number % 2 == 0);
    world.put(put_request());
    world.run();
    for side in 0..2 {
        assert_eq!(
            condition(&world, side),
            Some(ConditionCode::NoError),
            "{:#?}",
            world.datagrams()
        );
    }
    assert!(world.hosts[1].store.get(&name("copy")) == Some(&file[..]));
    let naks = world.transcript().iter().filter(|line| line.starts_with("< NAK")).count();
    assert_eq!(naks, 1, "{:#?}", world.datagrams());
}
