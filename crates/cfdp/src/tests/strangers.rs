//! Peers that reuse numbers, move to other addresses, or only fill the entity.

use std::time::Duration;

use engine::{Engine, Input, PathEvent, PathId, PathInfo, Receive, Time};

use super::hostile::{data, eof, header, metadata, say};
use super::world::{PATH, World, config, content, name, put_request};
use crate::pdu::{
    Body, ChecksumType, ConditionCode, EntityId, FaultHandler, FilestoreAction, Header, Lv,
    Metadata, Pdu, Tlv, Tlvs, TransmissionMode,
};
use crate::{FilestoreRequest, Limit, PutRequest};

const OTHER: PathId = PathId(77);

fn say_from(world: &mut World, from: PathId, header: Header, body: Body<'_>) {
    let pdu = Pdu { header, body }.to_vec().expect("a sound PDU");
    world.input(1, Input::Receive(Receive::datagram(from, &pdu)));
}

fn open_other(world: &mut World) {
    world.input(1, Input::Path(OTHER, PathEvent::Up(PathInfo::datagram(1472))));
}

fn condition(world: &World, side: usize) -> Option<ConditionCode> {
    world.finished(side).map(|finished| finished.condition)
}

#[test]
fn a_number_used_again_brings_the_new_file() {
    for restarts_receiver in [false, true] {
        for class in [TransmissionMode::Acknowledged, TransmissionMode::Unacknowledged] {
            let mut world = World::new(&config(|_| {}));
            let put = || PutRequest { mode: Some(class), ..put_request() };
            world.hosts[0].store.insert(name("source"), content(5000));
            world.put(put());
            world.run();
            // A program that counts its transactions from 1 each time it starts.
            world.hosts[0].store = engine::MemoryStore::new();
            world.restart(0);
            if restarts_receiver {
                world.restart(1);
            }
            world.hosts[0].store.insert(name("source"), vec![9; 7777]);
            world.put(put());
            world.run();
            assert_eq!(condition(&world, 0), Some(ConditionCode::NoError));
            assert!(world.hosts[1].store.get(&name("copy")) == Some(&[9; 7777][..]), "{class:?}");
        }
    }
}

#[test]
fn a_number_used_again_for_the_same_size_brings_the_new_file() {
    let mut world = World::new(&config(|_| {}));
    world.hosts[0].store.insert(name("source"), content(5000));
    world.put(put_request());
    world.run();
    world.hosts[0].store = engine::MemoryStore::new();
    world.restart(0);
    // The Metadata is identical: only the checksum of the EOF differs.
    world.hosts[0].store.insert(name("source"), vec![9; 5000]);
    world.put(put_request());
    world.run();
    assert_eq!(condition(&world, 0), Some(ConditionCode::NoError));
    assert!(world.hosts[1].store.get(&name("copy")) == Some(&[9; 5000][..]));
}

#[test]
fn peers_cannot_bypass_the_limits() {
    let mut world = World::new(&config(|_| {}));
    world.logging = false;
    world.lose(|_, _, _| true);
    let limits = [
        ConditionCode::InactivityDetected,
        ConditionCode::NakLimitReached,
        ConditionCode::CheckLimitReached,
        ConditionCode::PositiveAckLimitReached,
    ];
    let handler = FaultHandler::Suspend;
    let tlvs = limits.map(|condition| Tlv::FaultHandlerOverride { condition, handler });
    for sequence in 0..2000 {
        let body = Body::Metadata(Metadata {
            closure_requested: false,
            checksum_type: ChecksumType::Null,
            file_size: 5,
            source_name: Lv(b"a"),
            destination_name: Lv(b"b"),
            tlvs: Tlvs::new(&tlvs),
        });
        say(&mut world, 1, header(sequence), body);
        say(&mut world, 1, header(sequence), data(0, b"x"));
    }
    // Slots are reserved for this entity's own puts, and all others become free in time.
    world.hosts[1].store.insert(name("source"), content(10));
    let put = PutRequest { destination: 1, ..put_request() };
    let now = world.now;
    world.hosts[1].engine.put(now, put).expect("a place is kept");
    world.run_until(Time::from_secs(86_400));
    assert_eq!(world.hosts[1].engine.transactions().count(), 0);
}

#[test]
fn paths_share_slots_and_empty_transactions_are_evicted() {
    let mut settings = config(|_| {});
    settings.limits.transactions = 16;
    let mut world = World::new(&settings);
    world.logging = false;
    open_other(&mut world);
    for sequence in 0..100 {
        say_from(&mut world, OTHER, header(sequence), metadata(100));
    }
    let count = world.hosts[1].engine.transactions().count();
    assert_eq!(count, 12);
    say(&mut world, 1, header(1000), metadata(10));
    say(&mut world, 1, header(1000), data(0, b"0123456789"));
    say(&mut world, 1, header(1000), eof(b"0123456789"));
    assert_eq!(condition(&world, 1), Some(ConditionCode::NoError));
    // The flood has been silent since; another PDU from there takes a separate slot.
    world.run_until(world.now + Duration::from_secs(10));
    say_from(&mut world, OTHER, header(500), metadata(100));
    let ids: Vec<_> =
        world.hosts[1].engine.transactions().map(|report| report.id.sequence).collect();
    assert!(ids.contains(&500), "{ids:?}");
    assert!(ids.len() <= 13, "{ids:?}");
}

#[test]
fn packets_from_elsewhere_are_dropped_while_the_peer_is_active() {
    let mut world = World::new(&config(|_| {}));
    open_other(&mut world);
    say(&mut world, 1, header(1), metadata(10));
    let cancel = Body::Eof(crate::pdu::Eof {
        condition: ConditionCode::CancelRequestReceived,
        checksum: 0,
        file_size: 0,
        fault_location: None,
    });
    say_from(&mut world, OTHER, header(1), cancel);
    assert_eq!(condition(&world, 1), None);
    assert_eq!(world.hosts[1].engine.stats().stray, 1);
    // A restarted sender has another address, and the old one is silent.
    world.run_until(world.now + Duration::from_secs(3));
    say_from(&mut world, OTHER, header(1), data(0, b"0123456789"));
    say_from(&mut world, OTHER, header(1), eof(b"0123456789"));
    assert_eq!(condition(&world, 1), Some(ConditionCode::NoError));
}

#[test]
fn a_path_in_the_settings_is_the_only_one() {
    let mut settings = config(|remote| remote.path = Some(PATH));
    settings.remotes.insert(1, settings.default_remote.clone());
    let mut world = World::new(&settings);
    open_other(&mut world);
    say_from(&mut world, OTHER, header(1), metadata(10));
    assert_eq!(world.hosts[1].engine.transactions().count(), 0);
    say(&mut world, 1, header(1), metadata(10));
    world.run_until(world.now + Duration::from_secs(60));
    say_from(&mut world, OTHER, header(1), data(0, b"0123456789"));
    let report = world.hosts[1].engine.transactions().next().expect("one is under way");
    assert_eq!(report.progress, 0);
}

#[test]
fn unknown_entities_can_be_refused() {
    let mut settings = config(|_| {});
    settings.accept_unknown = false;
    settings.remotes.insert(1, settings.default_remote.clone());
    let mut world = World::new(&settings);
    say(&mut world, 1, Header { source: EntityId(9), ..header(1) }, metadata(10));
    assert_eq!(world.hosts[1].engine.transactions().count(), 0);
    say(&mut world, 1, header(1), metadata(10));
    assert_eq!(world.hosts[1].engine.transactions().count(), 1);
    say(&mut world, 1, Header { source: EntityId(2), ..header(7) }, metadata(10));
    assert_eq!(world.hosts[1].engine.transactions().count(), 1, "from itself");
}

#[test]
fn required_crcs_are_enforced() {
    let mut world = World::new(&config(|remote| remote.crc = true));
    say(&mut world, 1, header(1), data(0, &[1; 100]));
    assert_eq!(world.hosts[1].engine.transactions().count(), 0);
    assert_eq!(world.hosts[1].engine.stats().decode_errors, 1);
    say(&mut world, 1, Header { crc: true, ..header(1) }, data(0, &[1; 100]));
    assert_eq!(world.hosts[1].engine.transactions().count(), 1);
}

#[test]
fn filestore_requests_need_permission() {
    let mut world = World::new(&config(|remote| remote.permissions.filestore = false));
    world.hosts[1].store.insert(name("old"), content(10));
    let delete = FilestoreRequest {
        action: FilestoreAction::DeleteFile,
        first: "old".into(),
        second: String::new(),
    };
    let put = PutRequest { destination: 2, filestore_requests: vec![delete], ..Default::default() };
    world.put(put);
    world.run();
    assert!(world.hosts[1].store.get(&name("old")).is_some());
    let responses = &world.finished(0).expect("it ended").filestore_responses;
    assert_eq!(responses[0].status, crate::pdu::FilestoreStatus::DELETE_FILE_NOT_ALLOWED);
}

#[test]
fn gaps_of_all_receptions_together_are_bounded() {
    let mut settings = config(|_| {});
    settings.limits.gaps_total = 100;
    let mut world = World::new(&settings);
    world.logging = false;
    for sequence in 0..10 {
        say(&mut world, 1, header(sequence), metadata(100_000));
        for i in 0..50 {
            say(&mut world, 1, header(sequence), data(i * 20, b"0123456789"));
        }
    }
    let dropped = world.hosts[1].engine.stats().data_dropped;
    assert!((390..=400).contains(&dropped), "{dropped}");
    let reported = |limit| {
        let is = |reported: &&crate::Indication| matches!(reported, crate::Indication::LimitReached(other) if *other == limit);
        world.hosts[1].indications.iter().filter(is).count()
    };
    assert_eq!(reported(Limit::Gaps), 1);
}

#[test]
fn closed_paths_are_forgotten() {
    let mut world = World::new(&config(|_| {}));
    for number in 100..200 {
        let path = PathId(number);
        world.input(1, Input::Path(path, PathEvent::Up(PathInfo::datagram(1472))));
        world.input(1, Input::Path(path, PathEvent::Down));
    }
    // With one path left the destination is unambiguous.
    world.hosts[1].store.insert(name("source"), content(10));
    let put = PutRequest { destination: 1, ..put_request() };
    let now = world.now;
    world.hosts[1].engine.put(now, put).expect("there is one path");
    assert!(world.hosts[1].engine.poll_timeout().is_none());
}

#[test]
fn a_reception_that_moved_from_a_path_that_is_down_still_ends() {
    let mut world = World::new(&config(|_| {}));
    open_other(&mut world);
    say(&mut world, 1, header(1), metadata(10_000));
    say(&mut world, 1, header(1), data(0, &[1; 500]));
    world.input(1, Input::Path(PATH, PathEvent::Down));
    world.now += Duration::from_secs(5);
    // The sender continues from elsewhere, and then falls silent: that is detected there as well.
    say_from(&mut world, OTHER, header(1), data(500, &[1; 500]));
    world.run_until(Time::from_secs(86_400));
    assert_eq!(world.hosts[1].engine.transactions().count(), 0);
}

#[test]
fn time_suspended_does_not_make_a_later_silence_longer() {
    let mut world = World::new(&config(|_| {}));
    say(&mut world, 1, header(1), metadata(10_000));
    let id = header(1).transaction();
    world.hosts[1].engine.suspend(world.now, id).expect("it is under way");
    world.input(1, Input::Path(PATH, PathEvent::Down));
    world.up(1);
    world.now += Duration::from_secs(86_400);
    say(&mut world, 1, header(1), data(0, &[1; 500]));
    world.hosts[1].engine.resume(world.now, id).expect("it is under way");
    world.drain(1);
    world.run_until(world.now + Duration::from_secs(7200));
    assert_eq!(world.hosts[1].engine.transactions().count(), 0);
}
