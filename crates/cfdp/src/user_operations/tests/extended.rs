//! Classes 3 and 4: PDUs of one transaction via waypoints.

use std::time::Duration;

use engine::{PathId, Rng};

use super::world::{World, content, name, permit};
use crate::pdu::{Body, ConditionCode, Direction, FileStatus, Pdu, TransmissionMode};
use crate::{Config, Indication, OperationIndication, PutRequest, Remote};

/// 1 - 2 - 3 - 4.
const LINE: [(u64, u64); 3] = [(1, 2), (2, 3), (3, 4)];

fn relays(number: u64, config: &mut Config) {
    let profile = crate::profile("extended-b3").expect("the profile is there");
    config.default_remote = profile.default_remote;
    for remote in config.remotes.values_mut() {
        *remote = Remote { path: remote.path, ..config.default_remote.clone() };
    }
    for other in 1..=4 {
        if other == number {
            continue;
        }
        let next = if other > number { number + 1 } else { number - 1 };
        config.user_operations.routes.insert(other, next);
        let path = PathId(u32::try_from(next).expect("small numbers"));
        let remote = Remote { path: Some(path), ..config.default_remote.clone() };
        config.remotes.entry(other).or_insert(remote);
    }
}

fn request(mode: TransmissionMode) -> PutRequest {
    PutRequest {
        destination: 4,
        source: Some(name("source")),
        destination_name: "copy".into(),
        mode: Some(mode),
        closure: Some(true),
        ..PutRequest::default()
    }
}

#[test]
fn class_3_forwards_received_pdus() {
    let mut world = World::new(&LINE, relays);
    let file = content(5000);
    world.insert(1, "source", &file);
    let id = world.put(1, request(TransmissionMode::Unacknowledged));
    world.run();
    assert_eq!(world.file(4, "copy"), Some(&file[..]));
    let finished = world.finished(1, id).expect("the closure came back");
    assert_eq!(finished.file_status, FileStatus::Retained);
    for between in [2, 3] {
        assert!(world.host(between).indications.is_empty());
    }
    world.assert_clean();
}

#[test]
fn class_3_in_a_routing_loop_ends() {
    let links = [(1, 2), (2, 3), (3, 4), (4, 2)];
    let mut world = World::new(&links, |number, config| {
        permit(config, |permissions| permissions.relay = true);
        let next = match number {
            1 | 4 => 2,
            2 => 3,
            _ => 4,
        };
        config.user_operations.routes.insert(9, next);
        let path = PathId(u32::try_from(next).expect("small numbers"));
        config.remotes.insert(9, Remote { path: Some(path), ..Remote::default() });
    });
    world.insert(1, "source", &content(5000));
    let put =
        PutRequest { destination: 9, closure: None, ..request(TransmissionMode::Unacknowledged) };
    world.put(1, put);
    world.run();
    // Metadata, data and EOF go from 1 to 2, 3, 4 and back to 2, which drops them.
    let sent = &world.host(1).engine.stats().sent;
    let pdus = sent.metadata + sent.file_data + sent.eof;
    assert_eq!(world.sent().count() as u64, pdus * 4);
}

#[test]
fn class_4_takes_custody_at_every_hop() {
    for loss in [0.0, 0.15] {
        let mut world = World::new(&LINE, relays);
        world.lose_share(loss);
        let file = content(30_000);
        world.insert(1, "source", &file);
        let id = world.put(1, request(TransmissionMode::Acknowledged));
        world.run();
        assert_eq!(world.file(4, "copy"), Some(&file[..]), "loss {loss}");
        let finished = world.finished(1, id).expect("the end system's word came back");
        assert_eq!(finished.condition, ConditionCode::NoError);
        assert_eq!(finished.file_status, FileStatus::Retained);
        // Finished PDUs from 2 to 1, and ACKs to receivers.
        let pdus = world.sent().filter_map(|(ends, sent)| {
            let pdu = Pdu::decode(&sent.bytes).expect("entities send what can be read");
            match pdu.body {
                Body::Finished(finished) if ends == (2, 1) => Some((finished.end_system, 0)),
                Body::Ack(ack) if pdu.header.direction == Direction::TowardReceiver => {
                    Some((false, ack.subtype + 10))
                }
                _ => None,
            }
        });
        let pdus: Vec<_> = pdus.collect();
        assert!(pdus.contains(&(false, 0)), "the waypoint took custody: {pdus:?}");
        assert!(pdus.contains(&(true, 0)), "the end system's Finished came: {pdus:?}");
        assert!(pdus.contains(&(false, 10)), "the waypoint's was acknowledged: {pdus:?}");
        for between in [2, 3] {
            let relayed = OperationIndication::Relayed { id, condition: ConditionCode::NoError };
            assert_eq!(world.reported(between), [&relayed], "loss {loss}");
        }
        world.assert_clean();
    }
}

#[test]
fn class_4_survives_restarts_of_a_waypoint() {
    for waypoint in [2, 3] {
        for moment in 0..40 {
            let mut world = World::new(&LINE, relays);
            let file = content(30_000);
            world.insert(1, "source", &file);
            let id = world.put(1, request(TransmissionMode::Acknowledged));
            world.run_for(Duration::from_millis(10 * moment));
            world.restart(waypoint);
            world.run();
            let there = world.file(4, "copy");
            assert_eq!(there, Some(&file[..]), "waypoint {waypoint}, moment {moment}");
            let finished = world.finished(1, id).expect("it ended");
            assert_eq!(finished.condition, ConditionCode::NoError, "moment {moment}");
            world.assert_clean();
        }
    }
}

#[test]
fn class_4_reports_a_rejection_to_the_source() {
    let mut world = World::new(&LINE, relays);
    world.insert(1, "source", &content(5000));
    let put = PutRequest {
        destination_name: "missing/copy".into(),
        ..request(TransmissionMode::Acknowledged)
    };
    let id = world.put(1, put);
    world.run();
    let finished = world.finished(1, id).expect("it ended");
    assert_eq!(finished.condition, ConditionCode::FilestoreRejection);
    world.assert_clean();
}

#[test]
fn class_4_can_be_cancelled_in_transit() {
    let mut world = World::new(&LINE, relays);
    world.insert(1, "source", &content(5000));
    world.lose(|ends, datagram| ends == (3, 4) && datagram[0] & 0x10 != 0);
    let id = world.put(1, request(TransmissionMode::Acknowledged));
    world.run_for(Duration::from_secs(2));
    world.ask(1, |entity, now| entity.cancel(now, id)).unwrap();
    world.run();
    assert_eq!(world.file(4, "copy"), None);
    world.assert_clean();
}

#[test]
fn relaying_needs_permission() {
    for mode in [TransmissionMode::Unacknowledged, TransmissionMode::Acknowledged] {
        let mut world = World::new(&LINE, |number, config| {
            relays(number, config);
            config.default_remote.permissions.relay = false;
            permit(config, |permissions| permissions.relay = false);
        });
        world.insert(1, "source", &content(5000));
        let id = world.put(1, request(mode));
        world.run();
        assert_eq!(world.file(4, "copy"), None);
        assert_eq!(world.host(2).store.names(engine::Area::Spool).count(), 0);
        assert_ne!(
            world.finished(1, id).map(|finished| finished.file_status),
            Some(FileStatus::Retained)
        );
        let sent = &world.host(2).engine.stats().sent;
        assert_eq!((sent.metadata, sent.file_data, sent.eof), (0, 0, 0));
    }
}

#[test]
fn class_4_arrives_through_losses_and_restarts_everywhere() {
    for seed in 0..150 {
        let mut rng = Rng::new(seed, "class 4");
        let mut world = World::new(&LINE, relays);
        world.lose_share(rng.below(25) as f64 / 100.0);
        let file = content(1 + rng.below(20_000) as usize);
        for (from, to) in [(1, 4), (4, 1)] {
            world.insert(from, "source", &file);
            let put = PutRequest { destination: to, ..request(TransmissionMode::Acknowledged) };
            world.put(from, put);
        }
        for _ in 0..rng.below(6) {
            world.run_for(Duration::from_millis(rng.below(400)));
            world.restart(1 + rng.below(4));
        }
        world.run();
        for end in [1, 4] {
            assert_eq!(world.file(end, "copy"), Some(&file[..]), "seed {seed}, entity {end}");
        }
        for number in world.numbers() {
            let host = world.host(number);
            let left: Vec<_> = host.engine.transactions().collect();
            assert!(left.is_empty(), "seed {seed}, entity {number}: {left:?}");
            let failed = host.indications.iter().find(|indication| {
                matches!(indication, Indication::TransactionFinished(finished)
                    if finished.condition != ConditionCode::NoError)
            });
            assert_eq!(failed, None, "seed {seed}, entity {number}");
        }
    }
}
