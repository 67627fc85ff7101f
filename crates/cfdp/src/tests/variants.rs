//! Options of a put, and requests of the user during it.

use std::time::Duration;

use bytes::Bytes;
use engine::{Area, PathEvent, Time};
use session::StoreRefusal;

use super::world::{PATH, World, config, content, lose_these, name, put_request};
use crate::pdu::{
    ChecksumType, ConditionCode, DeliveryCode, FaultHandler, FileStatus, FilestoreAction,
    FilestoreStatus, PromptResponse, RecordContinuation, TransmissionMode, Version, Width,
};
use crate::{
    Config, FilestoreRequest, Indication, NakMode, PutRequest, RequestError, SegmentMetadata,
    Timer, profile,
};

fn world_with(config: &Config, file: &[u8]) -> World {
    let mut world = World::new(config);
    world.hosts[0].store.insert(name("source"), file.to_vec());
    world
}

fn arrived(world: &World, file: &[u8]) {
    assert!(world.hosts[1].store.get(&name("copy")) == Some(file), "{:#?}", world.transcript());
}

fn unacknowledged(closure: bool) -> PutRequest {
    let mode = Some(TransmissionMode::Unacknowledged);
    PutRequest { mode, closure: Some(closure), ..put_request() }
}

#[test]
fn class_1_sends_once_and_forgets() {
    let file = content(2500);
    let mut world = world_with(&config(|_| {}), &file);
    world.put(unacknowledged(false));
    world.run();
    arrived(&world, &file);
    assert_eq!(world.datagrams().into_iter().filter(|line| line.from == 1).count(), 0);
    let sent = world.finished(0).expect("the sender is done");
    assert_eq!(sent.file_status, FileStatus::Unreported);
    assert_eq!(world.finished(1).map(|f| f.delivery), Some(DeliveryCode::Complete));
}

#[test]
fn class_1_with_closure_reports_the_result() {
    let file = content(2500);
    let mut world = world_with(&config(|_| {}), &file);
    world.put(unacknowledged(true));
    world.run();
    arrived(&world, &file);
    assert_eq!(world.finished(0).map(|f| f.file_status), Some(FileStatus::Retained));
    assert_eq!(
        world.transcript().last().map(String::as_str),
        Some("< Finished no error Complete retained")
    );
}

#[test]
fn class_1_gives_up_on_lost_data() {
    for closure in [false, true] {
        let mut world = world_with(&config(|_| {}), &content(2500));
        world.put(unacknowledged(closure));
        world.lose(lose_these(&[(0, "data 1012")]));
        world.run();
        assert_eq!(world.hosts[1].store.get(&name("copy")), None);
        let end = world.finished(1).expect("it ends");
        assert_eq!(end.condition, ConditionCode::CheckLimitReached);
        assert_eq!(end.file_status, FileStatus::Discarded);
        assert_eq!(world.hosts[1].store.names(Area::Spool).count(), 0);
        let reported = world.finished(0).map(|f| f.condition);
        let expected =
            if closure { ConditionCode::CheckLimitReached } else { ConditionCode::NoError };
        assert_eq!(reported, Some(expected));
    }
}

#[test]
fn an_incomplete_file_can_be_kept() {
    let mut settings = config(|_| {});
    settings.keep_incomplete = true;
    let mut world = world_with(&settings, &content(2500));
    world.put(unacknowledged(false));
    world.lose(lose_these(&[(0, "data 1012")]));
    world.run();
    let end = world.finished(1).expect("it ends");
    assert_eq!(end.delivery, DeliveryCode::Incomplete);
    assert_eq!(end.file_status, FileStatus::Retained);
    let mut holed = content(2500);
    holed[1012..2024].fill(0);
    arrived(&world, &holed);
}

#[test]
fn options_arrive_and_requests_are_carried_out() {
    let file = content(100);
    let mut world = world_with(&config(|_| {}), &file);
    world.hosts[1].store.insert(name("old"), &b"old"[..]);
    let request = |action, first: &str, second: &str| FilestoreRequest {
        action,
        first: first.to_owned(),
        second: second.to_owned(),
    };
    world.put(PutRequest {
        messages: vec![Bytes::from_static(b"hello"), Bytes::from_static(b"")],
        filestore_requests: vec![
            request(FilestoreAction::CreateDirectory, "dir", ""),
            request(FilestoreAction::RenameFile, "old", "dir/new"),
            request(FilestoreAction::AppendFile, "copy", "dir/new"),
            request(FilestoreAction::DeleteFile, "../secret", ""),
            request(FilestoreAction::DeleteFile, "copy", ""),
        ],
        flow_label: Some(Bytes::from_static(b"label")),
        segment_metadata: Some(SegmentMetadata {
            continuation: RecordContinuation::StartAndEnd,
            metadata: Bytes::from_static(b"record"),
        }),
        ..put_request()
    });
    world.run();
    let mut appended = file.clone();
    appended.extend_from_slice(b"old");
    arrived(&world, &appended);
    let end = world.finished(0).expect("it ends");
    let statuses: Vec<_> = end.filestore_responses.iter().map(|r| r.status).collect();
    let done = FilestoreStatus::SUCCESSFUL;
    let refused = FilestoreStatus::DELETE_FILE_NOT_ALLOWED;
    assert_eq!(statuses, [done, done, done, refused, FilestoreStatus::NOT_PERFORMED]);
    assert_eq!(end.filestore_responses, world.finished(1).expect("done").filestore_responses);
    assert_eq!(world.finished(1).expect("done").messages.len(), 2);
    assert_eq!(world.hosts[1].engine.stats().names_refused, 1);
}

#[test]
fn metadata_alone_can_be_sent() {
    for mode in [TransmissionMode::Acknowledged, TransmissionMode::Unacknowledged] {
        let mut world = World::new(&config(|_| {}));
        world.put(PutRequest {
            source: None,
            destination_name: String::new(),
            messages: vec![Bytes::from_static(b"message")],
            mode: Some(mode),
            ..put_request()
        });
        world.run();
        let end = world.finished(1).expect("it arrived");
        assert_eq!((end.condition, end.delivery), (ConditionCode::NoError, DeliveryCode::Complete));
        assert_eq!(end.messages, [Bytes::from_static(b"message")]);
        assert_eq!(world.finished(0).map(|f| f.condition), Some(ConditionCode::NoError));
    }
}

#[test]
fn empty_and_unbounded_files_arrive() {
    for size in [0, 1, 1012, 300_000] {
        for unbounded in [false, true] {
            let file = content(size);
            let mut world = world_with(&config(|_| {}), &file);
            world.put(PutRequest { unbounded, ..put_request() });
            world.lose(lose_these(&[(0, "data 0"), (0, "EOF")]));
            world.run();
            arrived(&world, &file);
            assert_eq!(world.finished(0).map(|f| f.size), Some(size as u64));
        }
    }
}

#[test]
fn every_width_and_version_is_understood() {
    for bytes in 1..=8 {
        let width = Width::new(bytes).expect("1 to 8 bytes");
        for version in [Version::V0, Version::V1] {
            let mut settings = config(|remote| {
                remote.entity_width = Some(width);
                remote.version = version;
                remote.crc = bytes % 2 == 0;
            });
            settings.sequence_width = width;
            settings.first_sequence = Some(width.max_value());
            let file = content(5000);
            let mut world = world_with(&settings, &file);
            world.put(put_request());
            world.lose(lose_these(&[(0, "data"), (1, "NAK")]));
            world.run();
            arrived(&world, &file);
        }
    }
}

#[test]
fn every_nak_mode_recovers() {
    let modes = [
        NakMode::Immediate,
        NakMode::Deferred,
        NakMode::Prompted,
        NakMode::Asynchronous(Duration::from_millis(70)),
    ];
    for nak_mode in modes {
        let file = content(200_000);
        let mut world = world_with(&config(|remote| remote.naks.mode = nak_mode), &file);
        let id = world.put(put_request());
        world.lose(|side, number, _| side == 0 && number % 10 == 5);
        world.run_until(Time::from_nanos(100_000_000));
        if nak_mode == NakMode::Prompted {
            world.hosts[0].engine.prompt(world.now, id, PromptResponse::Nak).expect("it can");
            world.hosts[0].engine.prompt(world.now, id, PromptResponse::KeepAlive).expect("it can");
            world.drain(0);
        }
        world.run();
        arrived(&world, &file);
        let eof = world.datagrams().into_iter().position(|line| line.text.starts_with("EOF"));
        let nak = world.datagrams().into_iter().position(|line| line.text.starts_with("NAK"));
        assert_eq!(nak < eof, nak_mode != NakMode::Deferred, "{nak_mode:?}");
    }
}

#[test]
fn long_naks_are_split_into_contiguous_scopes() {
    let file = content(400_000);
    let mut world = world_with(&config(|remote| remote.naks.gaps_max = Some(20)), &file);
    world.put(put_request());
    world.lose(|side, number, _| side == 0 && number < 390 && number % 2 == 1);
    world.run();
    arrived(&world, &file);
    let scopes: Vec<(u64, u64)> = world
        .datagrams()
        .iter()
        .filter_map(|line| {
            let (scope, requests) = line.text.strip_prefix("NAK ")?.split_once(": ")?;
            assert!(requests.split(' ').count() <= 20);
            let (start, end) = scope.split_once('-')?;
            Some((start.parse().ok()?, end.parse().ok()?))
        })
        .collect();
    assert!(scopes.len() >= 10, "{scopes:?}");
    assert!(scopes.windows(2).all(|pair| pair[0].1 == pair[1].0 || pair[1].0 == 0), "{scopes:?}");
    assert_eq!(scopes[0].0, 0);
}

#[test]
fn either_side_cancels() {
    for side in 0..2 {
        for millis in [0, 1, 26, 40, 80, 105, 150] {
            let mut world = world_with(&config(|_| {}), &content(60_000));
            let id = world.put(put_request());
            world.run_until(Time::from_nanos(millis * 1_000_000));
            let known = world.hosts[side].engine.transactions().count() > 0;
            let result = world.hosts[side].engine.cancel(world.now, id);
            world.drain(side);
            let settled = world.hosts[side].indications.iter().any(|indication| {
                matches!(indication, Indication::TransactionFinished(f)
                    if f.condition == ConditionCode::NoError)
            });
            assert_eq!(result.is_ok(), known && !settled);
            world.run();
            if result.is_err() {
                continue;
            }
            let condition = world.finished(side).map(|f| f.condition);
            assert_eq!(condition, Some(ConditionCode::CancelRequestReceived), "{side} {millis}");
            // A sender that cancels late finds that the file was already delivered.
            let other = world.finished(1 - side).map(|f| f.condition);
            let too_late = side == 0 && other == Some(ConditionCode::NoError);
            assert_eq!(world.hosts[1].store.get(&name("copy")).is_some(), too_late);
            if !too_late && other.is_some() {
                assert_eq!(other, Some(ConditionCode::CancelRequestReceived));
            }
            for host in &world.hosts {
                assert_eq!(host.engine.transactions().count(), 0);
                assert_eq!(host.store.names(Area::Spool).count(), 0);
            }
        }
    }
}

#[test]
fn suspended_transfers_continue_when_resumed() {
    for side in 0..2 {
        let file = content(60_000);
        let mut world = world_with(&config(|_| {}), &file);
        let id = world.put(put_request());
        world.run_until(Time::from_nanos(35_000_000));
        world.hosts[side].engine.suspend(world.now, id).expect("it is under way");
        world.drain(side);
        world.run_until(Time::from_secs(100));
        assert_eq!(world.hosts[1].store.get(&name("copy")), None);
        world.hosts[side].engine.resume(world.now, id).expect("it is under way");
        world.drain(side);
        world.run();
        arrived(&world, &file);
    }
}

/// Ends an outage of both directions after days; then the file arrives.
fn long_outage(mut world: World, file: &[u8]) {
    world.lose(|_, _, _| true);
    world.run_until(Time::from_secs(1_000_000));
    world.lose(|_, _, _| false);
    world.up(0);
    world.up(1);
    world.run();
    arrived(&world, file);
}

#[test]
fn no_time_counts_while_the_path_is_down() {
    let file = content(60_000);
    let mut world = world_with(&config(|_| {}), &file);
    world.put(put_request());
    world.run_until(Time::from_nanos(35_000_000));
    for side in 0..2 {
        world.input(side, engine::Input::Path(PATH, PathEvent::Down));
    }
    long_outage(world, &file);
}

#[test]
fn a_reception_that_begins_while_the_path_is_down_waits_as_well() {
    let file = content(60_000);
    let mut world = world_with(&config(|remote| remote.path = Some(PATH)), &file);
    world.put(put_request());
    world.run_until(Time::from_nanos(1));
    world.input(1, engine::Input::Path(PATH, PathEvent::Down));
    world.run_until(Time::from_nanos(35_000_000));
    assert_eq!(world.hosts[1].engine.transactions().count(), 1, "what was under way arrives");
    world.input(0, engine::Input::Path(PATH, PathEvent::Down));
    long_outage(world, &file);
}

#[test]
fn a_dead_link_ends_with_an_indication() {
    for lost in 0..2 {
        let mut world = world_with(&config(|_| {}), &content(5000));
        world.put(put_request());
        world.lose(move |side, _, _| side == lost);
        world.run();
        let condition = world.finished(0).map(|f| f.condition);
        let expected = [ConditionCode::PositiveAckLimitReached, ConditionCode::InactivityDetected];
        assert!(condition.is_some_and(|c| expected.contains(&c)), "{condition:?}");
        assert_eq!(world.hosts[1].engine.transactions().count(), 0);
    }
}

#[test]
fn fault_handlers_are_obeyed() {
    let handlers =
        [FaultHandler::Suspend, FaultHandler::Ignore, FaultHandler::Abandon, FaultHandler::Cancel];
    for handler in handlers {
        let mut world = world_with(
            &config(|remote| {
                remote.ack_timer = Timer::Fixed(Duration::from_millis(100));
                remote.ack_limit = Some(2);
            }),
            &content(5000),
        );
        let id = world.put(PutRequest {
            fault_handlers: vec![(ConditionCode::PositiveAckLimitReached, handler)],
            ..put_request()
        });
        world.lose(|side, _, _| side == 1);
        world.run_until(Time::from_secs(1));
        let sent = &world.hosts[0].indications;
        let has = |test: fn(&Indication) -> bool| sent.iter().any(test);
        assert_eq!(
            has(|i| matches!(i, Indication::Suspended { .. })),
            handler == FaultHandler::Suspend
        );
        assert_eq!(has(|i| matches!(i, Indication::Fault { .. })), handler == FaultHandler::Ignore);
        assert_eq!(
            has(|i| matches!(i, Indication::Abandoned { .. })),
            handler == FaultHandler::Abandon
        );
        assert_eq!(world.finished(0).is_some(), handler == FaultHandler::Cancel);
        if handler == FaultHandler::Suspend {
            world.lose(|_, _, _| false);
            world.hosts[0].engine.resume(world.now, id).expect("it is suspended");
            world.drain(0);
            world.run();
            arrived(&world, &content(5000));
        }
    }
}

#[test]
fn names_outside_the_root_are_refused() {
    for bad in ["../up", "/etc/passwd", "a/../../b", ".slowlight/rx-1-1", "a\0b"] {
        let mut world = world_with(&config(|_| {}), &content(3000));
        world.put(PutRequest { destination_name: bad.to_owned(), ..put_request() });
        world.run();
        let end = world.finished(0).expect("it ends");
        assert_eq!(end.condition, ConditionCode::FilestoreRejection);
        assert_eq!(end.file_status, FileStatus::FilestoreRejection);
        assert_eq!(end.store_refusal(), Some(StoreRefusal::NameRefused), "{bad}");
        assert_eq!(world.hosts[1].engine.stats().names_refused, 1);
        assert_eq!(world.hosts[1].store.used(), 0);
    }
}

#[test]
fn a_full_store_is_a_rejection() {
    let mut world = world_with(&config(|_| {}), &content(300_000));
    world.hosts[1].store.set_capacity(Some(100_000));
    world.put(put_request());
    world.run();
    for side in 0..2 {
        let end = world.finished(side).expect("it ends");
        assert_eq!(end.condition, ConditionCode::FilestoreRejection);
        assert_eq!(end.store_refusal(), Some(StoreRefusal::NoSpace));
    }
    assert_eq!(world.hosts[1].store.used(), 0);
}

#[test]
fn a_missing_source_ends_at_once() {
    let mut world = World::new(&config(|_| {}));
    world.put(put_request());
    world.run();
    let condition = world.finished(0).map(|f| f.condition);
    assert_eq!(condition, Some(ConditionCode::FilestoreRejection));
    assert!(world.log.is_empty());
}

#[test]
fn the_profile_of_2007_has_the_sizes_of_the_capture() {
    let settings = profile("gsfc-2007").expect("there is such a profile");
    let mut world = World::new(&settings);
    world.hosts[0].store.insert(name("testfile.10k"), content(10_000));
    let sizes = std::rc::Rc::new(std::cell::RefCell::new(Vec::new()));
    let sent = sizes.clone();
    world.lose(move |side, number, datagram| {
        sent.borrow_mut().push((side, datagram.len()));
        side == 0 && [2, 4, 6].contains(&number)
    });
    world.put(PutRequest {
        source: Some(name("testfile.10k")),
        destination_name: "testfile.10k".to_owned(),
        ..put_request()
    });
    world.run();
    let mut expected = vec![(0, 42)];
    expected.extend([(0, 1011); 10]);
    expected.extend([(0, 44), (0, 20), (1, 13), (1, 43), (0, 1011), (0, 1011), (0, 1011)]);
    expected.extend([(1, 12), (0, 13)]);
    assert_eq!(*sizes.borrow(), expected);
    let at = |text: &str| {
        let found = world.datagrams().into_iter().find(|line| line.text.starts_with(text));
        found.map(|line| line.at.as_nanos()).expect("it was sent")
    };
    // Time that the hosts add to the link's own time.
    let metadata_leaves = world.hops[0].info.transmission_time(42).as_nanos() as u64;
    assert_eq!(at("data 0+") - at("Metadata") - metadata_leaves, 33_000);
    let ack_leaves = world.hops[0].info.transmission_time(13).as_nanos() as u64;
    assert_eq!(at("NAK") - at("ACK EOF"), 234_000.max(ack_leaves));
}

#[test]
fn invalid_requests_are_refused() {
    let mut world = World::new(&config(|remote| remote.entity_width = Some(Width::ONE)));
    let entity = &mut world.hosts[0].engine;
    let mut refused = |request: PutRequest| entity.put(Time::ZERO, request).expect_err("refused");
    let long = "x".repeat(256);
    let error = refused(PutRequest { destination_name: long, ..put_request() });
    assert_eq!(error, RequestError::TooLong("the destination name"));
    let error = refused(PutRequest { destination: 256, ..put_request() });
    assert_eq!(error, RequestError::Width("an entity number"));
    let error = refused(PutRequest { destination_name: String::new(), ..put_request() });
    assert!(matches!(error, RequestError::Conflict(_)));
    let checksum = Some(ChecksumType::Other(9));
    let error = refused(PutRequest { checksum, ..put_request() });
    assert!(matches!(error, RequestError::Conflict(_)));
}
