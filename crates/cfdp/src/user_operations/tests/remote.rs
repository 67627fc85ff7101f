//! Listings, reports, suspension and resumption.

use std::time::Duration;

use crate::pdu::{EntityId, TransactionId, TransactionStatus, UserRequest};

use super::world::{World, content, permit};
use crate::user_operations::message;
use crate::{Access, OperationIndication, PutRequest, Refusal, RequestError, State};

const MESH: [(u64, u64); 3] = [(1, 2), (2, 3), (1, 3)];

fn listings(world: &World) -> Vec<bool> {
    let reported = world.reported(1).into_iter();
    reported
        .filter_map(|reported| match reported {
            OperationIndication::DirectoryListing { success, .. } => Some(*success),
            _ => None,
        })
        .collect()
}

#[test]
fn a_directory_is_listed_with_names_from_the_root() {
    for loss in [0.0, 0.2] {
        let mut world = World::new(&MESH, |_, _| {});
        world.lose_share(loss);
        world.insert(2, "b", &content(10));
        let make = engine::FilestoreRequest::CreateDirectory(super::world::name("a"));
        let effect = engine::StoreEffect::Filestore { ticket: engine::Ticket(0), request: make };
        world.host_mut(2).store.execute(effect);
        world.insert(2, "a/c", &content(10));
        world.ask(1, |entity, now| entity.list_directory(now, 2, "", "root")).unwrap();
        world.ask(1, |entity, now| entity.list_directory(now, 2, "a", "sub")).unwrap();
        world.run();
        assert_eq!(world.file(1, "root"), Some(&b"a/\nb\n"[..]));
        assert_eq!(world.file(1, "sub"), Some(&b"a/c\n"[..]));
        assert_eq!(listings(&world), [true, true]);
        world.assert_clean();
    }
}

#[test]
fn directories_outside_and_missing_ones_are_refused() {
    for directory in ["..", "a/../..", "/", ".slowlight", "missing"] {
        let mut world = World::new(&MESH, |_, _| {});
        let id = world.ask(1, |entity, now| entity.list_directory(now, 2, directory, "out"));
        let id = id.expect("the request itself is sound");
        world.run();
        assert_eq!(listings(&world), [false], "{directory}");
        let reason = if directory == "missing" { Refusal::Impossible } else { Refusal::Name };
        let refused = OperationIndication::Refused { from: EntityId(1), id, reason };
        assert_eq!(world.reported(2), [&refused]);
        assert_eq!(world.file(1, "out"), None);
        world.assert_clean();
    }
}

#[test]
fn listings_can_be_forbidden_and_are_bounded() {
    let mut world = World::new(&MESH, |_, config| {
        permit(config, |permissions| permissions.directory_listing = false);
    });
    world.ask(1, |entity, now| entity.list_directory(now, 2, "", "out")).unwrap();
    world.run();
    assert_eq!(listings(&world), [false]);
    let mut world = World::new(&MESH, |_, config| config.user_operations.listing_bytes = 3);
    world.insert(2, "long-name", &content(1));
    world.ask(1, |entity, now| entity.list_directory(now, 2, "", "out")).unwrap();
    world.run();
    assert_eq!(listings(&world), [false]);
    world.assert_clean();
    let refused = world.ask(1, |entity, now| entity.list_directory(now, 2, "", "../out"));
    assert!(matches!(refused, Err(RequestError::Name { .. })));
}

/// Put from 1 to 2 whose data is held back.
fn stuck(world: &mut World) -> TransactionId {
    world.insert(1, "source", &content(3000));
    world.lose(|ends, datagram| ends == (1, 2) && datagram[0] & 0x10 != 0);
    let id = world.put(
        1,
        PutRequest {
            destination: 2,
            source: Some(super::world::name("source")),
            destination_name: "copy".into(),
            ..PutRequest::default()
        },
    );
    world.run_for(Duration::from_millis(200));
    id
}

#[test]
fn a_status_report_has_the_known_fields() {
    let mut world = World::new(&MESH, |_, _| {});
    let id = stuck(&mut world);
    let unknown = TransactionId { sequence: 999, ..id };
    world.ask(3, |entity, now| entity.remote_status_report(now, 2, id, "r")).unwrap();
    world.ask(3, |entity, now| entity.remote_status_report(now, 2, unknown, "u")).unwrap();
    world.run_for(Duration::from_secs(1));
    let report = world.file(3, "r").expect("the report arrived");
    let report = std::str::from_utf8(report).expect("a text");
    assert!(report.contains("role: receiver\n") && report.contains("size_bytes: 3000\n"));
    world.lose_share(0.0);
    world.run();
    world.ask(3, |entity, now| entity.remote_status_report(now, 2, id, "late")).unwrap();
    world.run();
    let reported: Vec<_> = world
        .reported(3)
        .into_iter()
        .map(|reported| match reported {
            OperationIndication::RemoteStatusReport { transaction, status, success, .. } => {
                (*transaction, *status, *success)
            }
            other => panic!("{other:?}"),
        })
        .collect();
    assert!(reported.contains(&(id, TransactionStatus::Active, true)));
    assert!(reported.contains(&(unknown, TransactionStatus::Unrecognized, false)));
    assert!(reported.contains(&(id, TransactionStatus::Terminated, false)));
    assert_eq!(reported.len(), 3);
    world.assert_clean();
}

#[test]
fn own_transactions_are_suspended_and_resumed() {
    let mut world = World::new(&MESH, |_, _| {});
    let id = stuck(&mut world);
    world.ask(1, |entity, now| entity.remote_suspend(now, 2, id)).unwrap();
    world.run_for(Duration::from_millis(200));
    let state = |world: &World| world.host(2).engine.transactions().next().map(|r| r.state);
    assert_eq!(state(&world), Some(State::Suspended));
    world.lose_share(0.0);
    world.run_for(Duration::from_secs(1));
    assert_eq!(state(&world), Some(State::Suspended));
    world.ask(1, |entity, now| entity.remote_resume(now, 2, id)).unwrap();
    world.run();
    assert_eq!(world.file(2, "copy"), Some(&content(3000)[..]));
    let status = TransactionStatus::Active;
    let (from, transaction) = (EntityId(2), id);
    assert_eq!(
        world.reported(1),
        [
            &OperationIndication::RemoteSuspend { from, transaction, suspended: true, status },
            &OperationIndication::RemoteResume { from, transaction, suspended: false, status },
        ]
    );
    world.assert_clean();
}

#[test]
fn others_transactions_are_not_touched_unless_that_is_allowed() {
    for access in [Access::Nothing, Access::Own, Access::All] {
        let mut world = World::new(&MESH, |_, config| {
            permit(config, |permissions| permissions.suspend = access);
        });
        let id = stuck(&mut world);
        world.ask(3, |entity, now| entity.remote_suspend(now, 2, id)).unwrap();
        world.run_for(Duration::from_millis(500));
        let allowed = access == Access::All;
        let state = world.host(2).engine.transactions().next().map(|report| report.state);
        assert_eq!(state == Some(State::Suspended), allowed, "{access:?}");
        let status = if allowed { TransactionStatus::Active } else { TransactionStatus::Undefined };
        let expected = OperationIndication::RemoteSuspend {
            from: EntityId(2),
            transaction: id,
            suspended: allowed,
            status,
        };
        assert_eq!(world.reported(3), [&expected]);
    }
}

#[test]
fn unrequested_replies_are_harmless() {
    let mut world = World::new(&MESH, |_, _| {});
    let junk: [&[u8]; 5] =
        [b"cfdp", b"cfdp\x00", b"cfdp\x40\xff", b"cfdp\x10\xff", b"cfdp\xff\x01"];
    let mut messages: Vec<_> = junk.iter().map(|junk| bytes::Bytes::from_static(junk)).collect();
    message::push(&mut messages, &UserRequest::ProxyPutCancel.into());
    world.put(1, PutRequest { destination: 2, messages, ..PutRequest::default() });
    world.run();
    assert!(world.reported(2).is_empty());
    world.assert_clean();
}
