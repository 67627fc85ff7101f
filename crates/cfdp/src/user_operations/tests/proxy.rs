//! Puts on behalf of others.

use std::time::Duration;

use bytes::Bytes;

use super::world::{World, content, permit};
use crate::pdu::{
    ConditionCode, DeliveryCode, EntityId, FileStatus, FilestoreAction, ProxyPut, UserOperation,
    UserRequest,
};
use crate::user_operations::message;
use crate::{
    Config, FilestoreRequest, OperationIndication, ProxyPutRequest, PutRequest, Refusal,
    RequestError,
};

const MESH: [(u64, u64); 3] = [(1, 2), (2, 3), (1, 3)];

fn permitted(_: u64, config: &mut Config) {
    permit(config, |permissions| permissions.proxy_put = true);
}

fn get() -> ProxyPutRequest {
    ProxyPutRequest {
        destination: 1,
        source_name: "there".into(),
        destination_name: "here".into(),
        ..ProxyPutRequest::default()
    }
}

fn response(world: &World) -> (&OperationIndication, usize) {
    let reported = world.reported(1);
    let responses: Vec<_> = reported
        .into_iter()
        .filter(|reported| matches!(reported, OperationIndication::ProxyPutResponse { .. }))
        .collect();
    (responses.first().expect("a response came"), responses.len())
}

#[test]
fn a_file_is_fetched_even_over_a_bad_link() {
    for loss in [0.0, 0.2] {
        let mut world = World::new(&MESH, permitted);
        world.lose_share(loss);
        let file = content(20_000);
        world.insert(2, "there", &file);
        let id = world.ask(1, |entity, now| entity.proxy_put(now, 2, &get())).unwrap();
        world.run();
        assert_eq!(world.file(1, "here"), Some(&file[..]), "loss {loss}");
        let expected = OperationIndication::ProxyPutResponse {
            from: EntityId(2),
            id,
            condition: ConditionCode::NoError,
            delivery: DeliveryCode::Complete,
            file_status: FileStatus::Retained,
            filestore_responses: Vec::new(),
        };
        assert_eq!(response(&world), (&expected, 1), "loss {loss}");
        world.assert_clean();
    }
}

#[test]
fn third_entities_receive_all_requested_files() {
    let mut world = World::new(&MESH, permitted);
    let file = content(3000);
    world.insert(2, "there", &file);
    let request = ProxyPutRequest {
        destination: 3,
        messages: vec![Bytes::from_static(b"hello")],
        filestore_requests: vec![FilestoreRequest {
            action: FilestoreAction::CreateDirectory,
            first: "made".into(),
            second: String::new(),
        }],
        flow_label: Some(Bytes::from_static(b"flow")),
        closure: Some(true),
        segmentation_control: Some(true),
        mode: Some(crate::pdu::TransmissionMode::Unacknowledged),
        fault_handlers: vec![(ConditionCode::InactivityDetected, crate::pdu::FaultHandler::Ignore)],
        ..get()
    };
    world.ask(1, |entity, now| entity.proxy_put(now, 2, &request)).unwrap();
    world.run();
    assert_eq!(world.file(3, "here"), Some(&file[..]));
    let received = world.host(3).indications.iter().find_map(|indication| match indication {
        crate::Indication::MetadataReceived(metadata) => Some(metadata),
        _ => None,
    });
    assert!(received.expect("it arrived").messages.contains(&Bytes::from_static(b"hello")));
    let OperationIndication::ProxyPutResponse { filestore_responses, condition, .. } =
        response(&world).0
    else {
        panic!("a response was looked for");
    };
    assert_eq!(*condition, ConditionCode::NoError);
    assert_eq!(filestore_responses.len(), 1);
    assert_eq!(filestore_responses[0].first, "made");
    world.assert_clean();
}

#[test]
fn refused_proxy_puts_receive_a_response() {
    let name = |destination, source: &'static str| {
        let put = UserRequest::ProxyPut(ProxyPut {
            destination: message::entity(destination),
            source_name: source.into(),
            destination_name: "here".into(),
        });
        message::encode(&put.into()).expect("short names")
    };
    type Change = fn(u64, &mut Config);
    let cases: [(Change, u64, &str, Refusal); 4] = [
        (|_, _| {}, 1, "there", Refusal::NotPermitted),
        (permitted, 2, "there", Refusal::Loop),
        (permitted, 1, "../there", Refusal::Name),
        (permitted, 1, "/etc/passwd", Refusal::Name),
    ];
    for (change, destination, source, reason) in cases {
        let mut world = World::new(&MESH, change);
        world.insert(2, "there", &content(100));
        let messages = vec![name(destination, source)];
        let id = world.put(1, PutRequest { destination: 2, messages, ..PutRequest::default() });
        world.run();
        let refused = OperationIndication::Refused { from: EntityId(1), id, reason };
        assert_eq!(world.reported(2), [&refused]);
        let (answer, count) = response(&world);
        assert_eq!(count, 1);
        assert!(matches!(
            answer,
            OperationIndication::ProxyPutResponse {
                condition: ConditionCode::FilestoreRejection,
                delivery: DeliveryCode::Incomplete,
                ..
            }
        ));
        assert_eq!(world.file(1, "here"), None);
        world.assert_clean();
    }
    let mut world = World::new(&MESH, permitted);
    let itself = ProxyPutRequest { destination: 2, ..get() };
    let refused = world.ask(1, |entity, now| entity.proxy_put(now, 2, &itself));
    assert!(matches!(refused, Err(RequestError::Conflict(_))));
}

#[test]
fn a_missing_file_ends_with_a_response() {
    let mut world = World::new(&MESH, permitted);
    world.ask(1, |entity, now| entity.proxy_put(now, 2, &get())).unwrap();
    world.run();
    assert!(matches!(
        response(&world).0,
        OperationIndication::ProxyPutResponse { condition: ConditionCode::FilestoreRejection, .. }
    ));
    world.assert_clean();
}

#[test]
fn requests_beyond_the_bound_are_refused() {
    let mut world = World::new(&MESH, |number, config| {
        permitted(number, config);
        config.user_operations.pending = 1;
    });
    world.insert(2, "there", &content(3000));
    for file in ["a", "b", "c"] {
        let request = ProxyPutRequest { destination_name: file.into(), ..get() };
        world.ask(1, |entity, now| entity.proxy_put(now, 2, &request)).unwrap();
    }
    world.run();
    let full = |reported: &&OperationIndication| {
        matches!(reported, OperationIndication::Refused { reason: Refusal::Full, .. })
    };
    assert_eq!(world.reported(2).into_iter().filter(full).count(), 2);
    assert!(world.file(1, "a").is_some());
    world.assert_clean();
}

#[test]
fn only_the_requester_cancels() {
    let mut world = World::new(&MESH, permitted);
    world.insert(2, "there", &content(3000));
    // The data never arrives, so that the put is under way until it is cancelled.
    world.lose(|(from, _), datagram| from == 2 && datagram[0] & 0x10 != 0);
    let id = world.ask(1, |entity, now| entity.proxy_put(now, 2, &get())).unwrap();
    world.run_for(Duration::from_millis(300));
    world.ask(3, |entity, now| entity.proxy_cancel(now, 2, id)).unwrap();
    world.run_for(Duration::from_millis(300));
    let under_way = world.host(2).engine.transactions().count();
    assert_eq!(under_way, 1);
    world.ask(1, |entity, now| entity.proxy_cancel(now, 2, id)).unwrap();
    world.run();
    let (answer, count) = response(&world);
    assert_eq!(count, 1);
    assert!(matches!(
        answer,
        OperationIndication::ProxyPutResponse {
            condition: ConditionCode::CancelRequestReceived,
            ..
        }
    ));
    world.assert_clean();
}

#[test]
fn the_proxy_restarts_at_any_moment() {
    for moment in 0..30 {
        let mut world = World::new(&MESH, permitted);
        let file = content(20_000);
        world.insert(2, "there", &file);
        world.ask(1, |entity, now| entity.proxy_put(now, 2, &get())).unwrap();
        world.run_for(Duration::from_millis(10 * moment));
        world.restart(2);
        world.run();
        assert_eq!(world.file(1, "here"), Some(&file[..]), "moment {moment}");
        assert!(matches!(
            response(&world).0,
            OperationIndication::ProxyPutResponse { condition: ConditionCode::NoError, .. }
        ));
        world.assert_clean();
    }
}

#[test]
fn puts_wait_while_too_many_transactions_are_under_way() {
    let mut world = World::new(&MESH, |number, config| {
        permitted(number, config);
        if number == 2 {
            config.limits.transactions = 1;
        }
    });
    let file = content(3000);
    world.insert(2, "there", &file);
    world.ask(1, |entity, now| entity.proxy_put(now, 2, &get())).unwrap();
    world.run();
    assert_eq!(world.file(1, "here"), Some(&file[..]));
    assert_eq!(response(&world).1, 1);
    world.assert_clean();
}

/// One message of each kind of request.
fn requests() -> Vec<Vec<u8>> {
    use crate::pdu::{Lv, SfoRequest, TraceControl, TransactionField, Width};

    let id = crate::pdu::TransactionId { source: EntityId(1), sequence: 1 };
    let transaction = TransactionField::new(id, Width::ONE, Width::ONE);
    let sfo = SfoRequest {
        trace: TraceControl::Both,
        mode: crate::pdu::TransmissionMode::Acknowledged,
        segmentation_control: false,
        closure_requested: true,
        prior_waypoints: 0,
        label: Lv(b"label"),
        source: message::entity(3),
        destination: message::entity(1),
        source_name: "s".into(),
        destination_name: "d".into(),
    };
    let operations = [
        UserRequest::ProxyPut(ProxyPut {
            destination: message::entity(1),
            source_name: "there".into(),
            destination_name: "here".into(),
        })
        .into(),
        UserRequest::DirectoryListing { directory: "".into(), file: "list".into() }.into(),
        UserRequest::RemoteStatusReport { transaction, file: "report".into() }.into(),
        UserRequest::RemoteSuspend(transaction).into(),
        UserRequest::RemoteResume(transaction).into(),
        UserRequest::Sfo(sfo).into(),
        UserRequest::ProxyPutCancel.into(),
        UserOperation::OriginatingTransactionId(transaction),
    ];
    operations.iter().map(|operation| operation.to_vec().expect("short")).collect()
}

#[test]
fn damaged_requests_are_survived() {
    use engine::Rng;

    let whole = requests();
    let mut world = World::new(&MESH, |_, config| {
        permit(config, |permissions| {
            permissions.proxy_put = true;
            permissions.store_and_forward = true;
            permissions.suspend = crate::Access::All;
        });
    });
    world.insert(2, "there", &content(100));
    world.insert(1, "source", &content(100));
    let mut rng = Rng::new(5, "damage");
    for round in 0..500 {
        let count = 1 + rng.below(3);
        let messages: Vec<Bytes> = (0..count)
            .map(|_| {
                let mut message = whole[rng.below(whole.len() as u64) as usize].clone();
                for _ in 0..rng.below(4) {
                    let place = 4 + rng.below(message.len() as u64 - 4) as usize;
                    message[place] ^= 1 << rng.below(8);
                }
                Bytes::from(message)
            })
            .collect();
        let with_file = rng.below(2) == 0;
        world.put(
            1,
            PutRequest {
                destination: 2,
                messages,
                source: with_file.then(|| super::world::name("source")),
                destination_name: if with_file { "copy".into() } else { String::new() },
                ..PutRequest::default()
            },
        );
        // Entities that do not exist are given up on after a while.
        world.run();
        for number in [1, 2, 3] {
            let left = world.host(number).engine.transactions().count();
            assert_eq!(left, 0, "round {round}, entity {number}");
        }
    }
    let served =
        |reported: &&OperationIndication| !matches!(reported, OperationIndication::Refused { .. });
    assert!(world.reported(1).into_iter().filter(served).count() > 100);
}

#[test]
fn an_entity_out_of_reach_is_refused() {
    let mut world = World::new(&MESH, permitted);
    world.insert(2, "there", &content(100));
    let request = ProxyPutRequest { destination: 9, ..get() };
    let id = world.ask(1, |entity, now| entity.proxy_put(now, 2, &request)).unwrap();
    world.run();
    let reason = Refusal::NoRoute;
    assert_eq!(
        world.reported(2),
        [&OperationIndication::Refused { from: EntityId(1), id, reason }]
    );
    assert_eq!(response(&world).1, 1);
    world.assert_clean();
}

#[test]
fn unknown_entities_get_replies_at_their_address() {
    let mut world = World::new(&MESH, |number, config| {
        if number == 2 {
            config.remotes.clear();
            config.default_remote.permissions.proxy_put = true;
        }
    });
    world.insert(2, "there", &content(100));
    world.ask(1, |entity, now| entity.proxy_put(now, 2, &get())).unwrap();
    world.run();
    assert_eq!(world.file(1, "here"), Some(&content(100)[..]));
    assert_eq!(response(&world).1, 1);
    world.assert_clean();
}
