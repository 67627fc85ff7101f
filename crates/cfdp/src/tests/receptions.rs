//! Behaviour of a reception at faults, crashes and odd segments.

use std::time::Duration;

use engine::{Area, StoreEffect, Time};

use super::hostile::{data, eof, header, metadata, say};
use super::world::{PATH, World, config, content, name, put_request};
use crate::pdu::{Body, FileStatus};
use crate::pdu::{
    ChecksumType, ConditionCode, DeliveryCode, Eof, FaultHandler, FilestoreAction, Prompt,
    PromptResponse, TransmissionMode,
};
use crate::{Config, FilestoreRequest, Indication, JournalPolicy, PutRequest};

const DAY: u64 = 86_400;

fn world_with(config: &Config, file: &[u8]) -> World {
    let mut world = World::new(config);
    world.hosts[0].store.insert(name("source"), file.to_vec());
    world
}

fn condition(world: &World, side: usize) -> Option<ConditionCode> {
    world.finished(side).map(|finished| finished.condition)
}

/// Damages one data PDU, so that the file's checksum is wrong.
fn damage(world: &mut World) {
    world.lose(|side, number, datagram| {
        if side == 0 && number == 2 {
            *datagram.last_mut().expect("data") ^= 1;
        }
        false
    });
}

#[test]
fn a_write_that_failed_is_never_made_good_by_waiting() {
    for handler in [FaultHandler::Suspend, FaultHandler::Ignore, FaultHandler::Cancel] {
        let mut settings = config(|_| {});
        settings.limits.buffers.write_piece = 4096;
        settings.faults.set(ConditionCode::FilestoreRejection, handler);
        let mut world = world_with(&settings, &content(60_000));
        world.hosts[1].store.set_capacity(Some(20_000));
        world.put(put_request());
        world.run_until(Time::from_nanos(90_000_000));
        world.hosts[1].store.set_capacity(None);
        world.run();
        assert!(world.hosts[1].store.get(&name("copy")).is_none());
        for side in 0..2 {
            assert_eq!(condition(&world, side), Some(ConditionCode::FilestoreRejection));
            assert_eq!(world.hosts[side].engine.transactions().count(), 0);
        }
    }
}

#[test]
fn a_crash_does_not_make_an_incomplete_file_complete() {
    let file = content(60_000);
    let mut kept = 0;
    for effects in 0..12 {
        let mut settings = config(|_| {});
        settings.keep_incomplete = true;
        settings.limits.buffers.write_piece = 4096;
        settings.journal = JournalPolicy { bytes: 8000, ..JournalPolicy::default() };
        let mut world = world_with(&settings, &file);
        let id = world.put(put_request());
        world.run_until(Time::from_nanos(50_000_000));
        world.hosts[1].dies_after = Some(effects);
        world.hosts[1].engine.cancel(world.now, id).expect("it is under way");
        world.drain(1);
        world.hosts[1].dies_after = None;
        world.restart(1);
        world.run_until(Time::from_secs(DAY));
        let right = world.hosts[1].store.get(&name("copy")) == Some(&file[..]);
        kept += usize::from(!right && world.hosts[1].store.get(&name("copy")).is_some());
        for side in 0..2 {
            let finished = world.finished(side).expect("it ended");
            assert_eq!(
                finished.delivery == DeliveryCode::Complete,
                right,
                "{effects}: {finished:?}"
            );
            assert_eq!(world.hosts[side].engine.transactions().count(), 0, "{effects}");
        }
        assert_eq!(world.hosts[1].store.names(Area::Spool).count(), 0, "{effects}");
    }
    assert!(kept > 0, "no crash came between the decision and the end");
}

#[test]
fn fault_handlers_apply_to_wrong_checksums() {
    let (wrong, cancel) = (ConditionCode::FileChecksumFailure, FaultHandler::Cancel);
    for handler in [cancel, FaultHandler::Suspend, FaultHandler::Ignore, FaultHandler::Abandon] {
        let mut world = world_with(&config(|_| {}), &content(5000));
        damage(&mut world);
        world.put(PutRequest { fault_handlers: vec![(wrong, handler)], ..put_request() });
        world.run_until(Time::from_secs(DAY));
        let there = world.hosts[1].store.get(&name("copy")).is_some();
        assert_eq!(there, handler == FaultHandler::Ignore, "{handler:?}");
        match world.finished(1) {
            Some(finished) => {
                assert_eq!(finished.condition, wrong);
                assert_eq!(finished.delivery, DeliveryCode::Incomplete);
                let status = if there { FileStatus::Retained } else { FileStatus::Discarded };
                assert_eq!(finished.file_status, status);
            }
            None => assert_eq!(handler, FaultHandler::Abandon),
        }
        assert_ne!(condition(&world, 0), Some(ConditionCode::NoError), "{handler:?}");
        for side in &world.hosts {
            assert_eq!(side.engine.transactions().count(), 0, "{handler:?}");
        }
    }
}

#[test]
fn fault_handlers_apply_to_wrong_sizes() {
    for handler in [FaultHandler::Cancel, FaultHandler::Suspend, FaultHandler::Ignore] {
        for metadata_first in [true, false] {
            let mut settings = config(|_| {});
            settings.faults.set(ConditionCode::FileSizeError, handler);
            let mut world = World::new(&settings);
            let end = Body::Eof(Eof {
                condition: ConditionCode::NoError,
                checksum: 0,
                file_size: 100,
                fault_location: None,
            });
            let first = if metadata_first { metadata(1000) } else { end };
            let second = if metadata_first { end } else { metadata(1000) };
            say(&mut world, 1, header(1), first);
            say(&mut world, 1, header(1), data(0, &[1; 100]));
            say(&mut world, 1, header(1), second);
            assert_eq!(condition(&world, 1), Some(ConditionCode::FileSizeError), "{handler:?}");
            assert!(world.hosts[1].store.get(&name("copy")).is_none());
        }
    }
}

#[test]
fn filestore_requests_are_for_the_whole_file_only() {
    let mut settings = config(|_| {});
    settings.faults.set(ConditionCode::FileChecksumFailure, FaultHandler::Ignore);
    let mut world = world_with(&settings, &content(5000));
    world.hosts[1].store.insert(name("old"), content(10));
    damage(&mut world);
    let delete = FilestoreRequest {
        action: FilestoreAction::DeleteFile,
        first: "old".into(),
        second: String::new(),
    };
    world.put(PutRequest { filestore_requests: vec![delete], ..put_request() });
    world.run();
    assert!(world.hosts[1].store.get(&name("old")).is_some());
    let responses = &world.finished(0).expect("it ended").filestore_responses;
    let not_performed = crate::pdu::FilestoreStatus::NOT_PERFORMED;
    assert_eq!(responses.iter().map(|r| r.status).collect::<Vec<_>>(), [not_performed]);
}

#[test]
fn pieces_before_a_metadata_without_a_file_are_given_back() {
    let mut world = World::new(&config(|_| {}));
    world.logging = false;
    let nothing = Body::Eof(Eof {
        condition: ConditionCode::NoError,
        checksum: 0,
        file_size: 1400,
        fault_location: None,
    });
    for sequence in 0..100 {
        say(&mut world, 1, header(sequence), data(0, &[7; 1400]));
        say(&mut world, 1, header(sequence), nothing);
        let no_file = Body::Metadata(crate::pdu::Metadata {
            closure_requested: false,
            checksum_type: ChecksumType::Null,
            file_size: 0,
            source_name: crate::pdu::Lv(b""),
            destination_name: crate::pdu::Lv(b""),
            tlvs: crate::pdu::Tlvs::NONE,
        });
        say(&mut world, 1, header(sequence), no_file);
    }
    let before = world.hosts[1].engine.memory();
    world.run_until(Time::from_secs(DAY));
    assert_eq!(world.hosts[1].engine.transactions().count(), 0);
    let left = world.hosts[1].engine.memory();
    assert!(left + 100 * 1000 < before, "{before} bytes, then {left}");
}

#[test]
fn scattered_bytes_use_the_accounted_memory() {
    let mut settings = config(|_| {});
    settings.limits.buffers.write_buffer = 1 << 20;
    let mut world = World::new(&settings);
    world.logging = false;
    for i in 0..50_000_u64 {
        say(&mut world, 1, header(1), data(i * 2, b"x"));
    }
    // Half of the bound is for data before its Metadata, and a byte costs more than a byte.
    let taken = world.hosts[1].engine.stats().received.file_data
        - world.hosts[1].engine.stats().data_dropped;
    assert!((4_000..=8_200).contains(&taken), "{taken} pieces");
}

#[test]
fn a_file_is_synced_once_where_nothing_is_missing() {
    for class in [TransmissionMode::Acknowledged, TransmissionMode::Unacknowledged] {
        let mut world = world_with(&config(|_| {}), &content(5000));
        world.hosts[1].slow = Some(Vec::new());
        world.put(PutRequest { mode: Some(class), ..put_request() });
        let mut syncs = 0;
        for _ in 0..400 {
            world.step();
            let waiting = world.hosts[1].slow.iter().flatten();
            syncs += waiting.filter(|effect| matches!(effect, StoreEffect::Sync { .. })).count();
            world.work_off(1);
        }
        assert!(world.hosts[1].store.get(&name("copy")).is_some());
        assert_eq!(syncs, 1, "{class:?}");
    }
}

#[test]
fn a_suspended_reception_acknowledges_the_end() {
    let mut world = world_with(&config(|_| {}), &content(5000));
    let id = world.put(put_request());
    while world.hosts[1].engine.transactions().count() == 0 {
        world.step();
    }
    world.hosts[1].engine.suspend(world.now, id).expect("it is under way");
    world.drain(1);
    world.run_until(world.now + Duration::from_secs(20));
    let lines = world.transcript();
    assert!(lines.iter().any(|line| line.starts_with("< ACK EOF")), "{lines:?}");
    assert!(world.hosts[1].store.get(&name("copy")).is_none());
    world.hosts[1].engine.resume(world.now, id).expect("it is under way");
    world.drain(1);
    world.run();
    assert_eq!(condition(&world, 0), Some(ConditionCode::NoError));
}

#[test]
fn prompts_receive_replies_without_gaps() {
    let mut world = World::new(&config(|_| {}));
    say(&mut world, 1, header(1), metadata(1000));
    say(&mut world, 1, header(1), data(0, &[1; 500]));
    say(&mut world, 1, header(1), Body::Prompt(Prompt { response: PromptResponse::Nak }));
    assert_eq!(world.transcript(), ["< NAK 0-500: "]);
}

#[test]
fn restarts_do_not_deliver_bytes_beyond_the_end() {
    let mut settings = config(|_| {});
    settings.journal = JournalPolicy { bytes: 100, ..JournalPolicy::default() };
    settings.limits.buffers.write_piece = 100;
    let mut world = World::new(&settings);
    say(&mut world, 1, header(1), metadata(0));
    say(&mut world, 1, header(1), data(0, &[1; 200]));
    // The store fails before the record is updated, but the data is in the file.
    world.hosts[1].dies_after = Some(1);
    say(&mut world, 1, header(1), data(200, &[2; 500]));
    world.hosts[1].dies_after = None;
    world.restart(1);
    say(&mut world, 1, header(1), eof(&[1; 200]));
    let delivered = world.hosts[1].store.get(&name("copy")).map(<[u8]>::len);
    assert!(matches!(delivered, None | Some(200)), "{delivered:?}");
    assert_ne!(condition(&world, 1), None);
}

#[test]
fn transfers_over_contacts_too_short_for_data_end() {
    let mut world = world_with(&config(|remote| remote.naks.limit = Some(5)), &content(20_000));
    world.put(put_request());
    // All data is lost, and the path goes down before the replies to a NAK are overdue.
    world.lose(|_, _, datagram| datagram.len() > 500);
    for _ in 0..20_000 {
        world.run_until(world.now + Duration::from_millis(90));
        for side in 0..2 {
            world.input(side, engine::Input::Path(PATH, engine::PathEvent::Down));
        }
        world.now += Duration::from_millis(10);
        world.up(0);
        world.up(1);
        if world.finished(0).is_some() {
            break;
        }
    }
    assert_eq!(condition(&world, 0), Some(ConditionCode::NakLimitReached));
    let reported = world.hosts[1].indications.iter();
    let finished =
        reported.filter(|reported| matches!(reported, Indication::TransactionFinished(_))).count();
    assert_eq!(finished, 1);
    assert!(world.now < Time::from_secs(60), "only at {}", world.now);
}
