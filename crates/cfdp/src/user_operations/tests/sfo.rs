//! Files stored and forwarded by waypoints.

use std::time::Duration;

use bytes::Bytes;

use super::world::{World, content, name, permit};
use crate::pdu::{ConditionCode, EntityId, FileStatus, FilestoreAction};
use crate::user_operations::message;
use crate::{
    Config, FilestoreRequest, OperationIndication, PutRequest, Refusal, SfoPutRequest, SfoReported,
    TraceControl,
};

/// 1 - 2 - 3 - 4.
const LINE: [(u64, u64); 3] = [(1, 2), (2, 3), (3, 4)];

fn waypoints(number: u64, config: &mut Config) {
    permit(config, |permissions| permissions.store_and_forward = true);
    for other in 1..=4 {
        let next = if other > number { number + 1 } else { number - 1 };
        if other != number {
            config.user_operations.routes.insert(other, next);
        }
    }
}

fn request(trace: TraceControl) -> SfoPutRequest {
    SfoPutRequest {
        destination: 4,
        source: Some(name("source")),
        destination_name: "copy".into(),
        label: Bytes::from_static(b"request 1"),
        trace,
        messages: vec![Bytes::from_static(b"hello")],
        filestore_requests: vec![FilestoreRequest {
            action: FilestoreAction::RenameFile,
            first: "copy".into(),
            second: "renamed".into(),
        }],
        ..SfoPutRequest::default()
    }
}

fn reports(world: &World, number: u64) -> Vec<(u64, u8, u8, ConditionCode)> {
    let reported = world.reported(number).into_iter();
    let reports = reported.filter_map(|reported| match reported {
        OperationIndication::SfoReport(report) => {
            assert_eq!(report.label, "request 1");
            Some((report.reporter.0, report.code, report.prior_waypoints, report.condition))
        }
        _ => None,
    });
    let mut reports: Vec<_> = reports.collect();
    reports.sort_unstable();
    reports
}

#[test]
fn files_pass_two_waypoints_and_reports_return() {
    for loss in [0.0, 0.15] {
        let mut world = World::new(&LINE, waypoints);
        world.lose_share(loss);
        let file = content(30_000);
        world.insert(1, "source", &file);
        world.ask(1, |entity, now| entity.sfo_put(now, &request(TraceControl::Both))).unwrap();
        world.run();
        assert_eq!(world.file(4, "renamed"), Some(&file[..]), "loss {loss}");
        for between in [2, 3] {
            assert_eq!(world.host(between).store.names(engine::Area::Files).count(), 0);
        }
        let received = world.reported(4).into_iter().find_map(|reported| match reported {
            OperationIndication::SfoReceived { source, prior_waypoints, messages, .. } => {
                Some((*source, *prior_waypoints, messages.clone()))
            }
            _ => None,
        });
        assert_eq!(received, Some((EntityId(1), 2, vec![Bytes::from_static(b"hello")])));
        let ok = ConditionCode::NoError;
        let forwarded = [(2, SfoReported::FORWARDED, 0, ok), (3, SfoReported::FORWARDED, 1, ok)];
        let all = [forwarded[0], forwarded[1], (4, SfoReported::DELIVERED, 2, ok)];
        assert_eq!(reports(&world, 1), all, "loss {loss}");
        assert_eq!(reports(&world, 4), forwarded, "loss {loss}");
        let delivered = world.reported(1).into_iter().find_map(|reported| match reported {
            OperationIndication::SfoReport(report) if report.code == SfoReported::DELIVERED => {
                Some(report.filestore_responses.clone())
            }
            _ => None,
        });
        assert_eq!(delivered.expect("it was delivered")[0].second, "renamed");
        world.assert_clean();
    }
}

#[test]
fn each_waypoint_restarts_at_any_moment() {
    for waypoint in [2, 3] {
        for moment in 0..40 {
            let mut world = World::new(&LINE, waypoints);
            let file = content(30_000);
            world.insert(1, "source", &file);
            let request = request(TraceControl::Source);
            world.ask(1, |entity, now| entity.sfo_put(now, &request)).unwrap();
            world.run_for(Duration::from_millis(10 * moment));
            world.restart(waypoint);
            world.run();
            let there = world.file(4, "renamed");
            assert_eq!(there, Some(&file[..]), "waypoint {waypoint}, moment {moment}");
            let delivered = reports(&world, 1);
            assert!(delivered.iter().any(|report| report.1 == SfoReported::DELIVERED));
            world.assert_clean();
        }
    }
}

#[test]
fn messages_alone_pass_waypoints() {
    let mut world = World::new(&LINE, waypoints);
    let request = SfoPutRequest {
        source: None,
        destination_name: String::new(),
        filestore_requests: vec![FilestoreRequest {
            action: FilestoreAction::CreateFile,
            first: "made".into(),
            second: String::new(),
        }],
        ..request(TraceControl::None)
    };
    world.ask(1, |entity, now| entity.sfo_put(now, &request)).unwrap();
    world.run();
    assert_eq!(world.file(4, "made"), Some(&b""[..]));
    assert!(reports(&world, 1).is_empty());
    world.assert_clean();
}

#[test]
fn unacknowledged_hops_deliver_too() {
    let mut world = World::new(&LINE, waypoints);
    let file = content(5000);
    world.insert(1, "source", &file);
    let request = SfoPutRequest {
        mode: crate::pdu::TransmissionMode::Unacknowledged,
        closure: true,
        ..request(TraceControl::Source)
    };
    world.ask(1, |entity, now| entity.sfo_put(now, &request)).unwrap();
    world.run();
    assert_eq!(world.file(4, "renamed"), Some(&file[..]));
    assert_eq!(reports(&world, 1).len(), 3);
    world.assert_clean();
}

#[test]
fn waypoints_refuse_files_beyond_permissions_and_limits() {
    type Change = fn(&mut Config);
    let cases: [(&str, Change); 4] = [
        ("not permitted", |config| permit(config, |p| p.store_and_forward = false)),
        ("too many bytes", |config| config.user_operations.stored_bytes = 4999),
        ("too many files", |config| config.user_operations.stored_files = 0),
        ("too many waypoints", |config| config.user_operations.waypoints_max = 0),
    ];
    for (what, change) in cases {
        let mut world = World::new(&LINE, |number, config| {
            waypoints(number, config);
            if number == 2 {
                change(config);
            }
        });
        world.insert(1, "source", &content(5000));
        let request = request(TraceControl::Source);
        let id = world.ask(1, |entity, now| entity.sfo_put(now, &request)).unwrap();
        world.run();
        let finished = world.finished(1, id).expect("it ended");
        assert_eq!(finished.condition, ConditionCode::FilestoreRejection, "{what}");
        assert_eq!(finished.file_status, FileStatus::FilestoreRejection, "{what}");
        assert_eq!(world.file(4, "renamed"), None);
        world.assert_clean();
    }
}

#[test]
fn a_file_of_unknown_size_keeps_to_the_bounds_too() {
    for (bytes, fits) in [(4999, false), (5000, true)] {
        let mut world = World::new(&LINE, |number, config| {
            waypoints(number, config);
            config.user_operations.stored_bytes = bytes;
        });
        let file = content(5000);
        world.insert(1, "source", &file);
        let sfo = crate::pdu::SfoRequest {
            trace: TraceControl::None,
            mode: crate::pdu::TransmissionMode::Acknowledged,
            segmentation_control: false,
            closure_requested: false,
            prior_waypoints: 0,
            label: crate::pdu::Lv::default(),
            source: message::entity(1),
            destination: message::entity(4),
            source_name: "source".into(),
            destination_name: "copy".into(),
        };
        let sfo = message::encode(&crate::pdu::UserRequest::Sfo(sfo).into());
        let id = world.put(
            1,
            PutRequest {
                destination: 2,
                source: Some(name("source")),
                destination_name: "copy".into(),
                messages: vec![sfo.expect("short names")],
                unbounded: true,
                ..PutRequest::default()
            },
        );
        world.run();
        let expected =
            if fits { ConditionCode::NoError } else { ConditionCode::FilestoreRejection };
        assert_eq!(world.finished(1, id).expect("it ended").condition, expected);
        assert_eq!(world.file(4, "copy"), fits.then_some(&file[..]));
        world.assert_clean();
    }
}

#[test]
fn refusals_of_later_waypoints_are_reported_to_the_source() {
    let mut world = World::new(&LINE, |number, config| {
        waypoints(number, config);
        if number == 3 {
            permit(config, |permissions| permissions.store_and_forward = false);
        }
    });
    world.insert(1, "source", &content(5000));
    let request = request(TraceControl::Source);
    world.ask(1, |entity, now| entity.sfo_put(now, &request)).unwrap();
    world.run();
    let rejected = ConditionCode::FilestoreRejection;
    assert_eq!(reports(&world, 1), [(2, SfoReported::FAILED, 0, rejected)]);
    world.assert_clean();
}

#[test]
fn routing_loops_end() {
    // 2, 3 and 4 forward files for 9 in a loop.
    let links = [(1, 2), (2, 3), (3, 4), (4, 2)];
    let mut world = World::new(&links, |number, config| {
        permit(config, |permissions| permissions.store_and_forward = true);
        config.user_operations.waypoints_max = 5;
        let next = match number {
            1 | 4 => 2,
            2 => 3,
            _ => 4,
        };
        config.user_operations.routes.insert(9, next);
    });
    world.insert(1, "source", &content(2000));
    let request = SfoPutRequest { destination: 9, ..request(TraceControl::None) };
    world.ask(1, |entity, now| entity.sfo_put(now, &request)).unwrap();
    world.run();
    assert!(world.sent().count() < 100, "{} datagrams", world.sent().count());
    let forwarded = [2, 3, 4].map(|number| world.reported(number).len());
    assert_eq!(forwarded.iter().sum::<usize>(), 5);
    world.assert_clean();

    // Direct return to the previous entity is refused at once.
    let mut world = World::new(&[(1, 2)], |_, config| {
        permit(config, |permissions| permissions.store_and_forward = true);
        let next = if config.entity == 1 { 2 } else { 1 };
        config.user_operations.routes.insert(9, next);
    });
    let request = SfoPutRequest {
        destination: 9,
        source: None,
        destination_name: String::new(),
        ..SfoPutRequest::default()
    };
    let id = world.ask(1, |entity, now| entity.sfo_put(now, &request)).unwrap();
    world.run();
    let finished = world.finished(1, id).expect("it ended");
    assert_eq!(finished.condition, ConditionCode::FilestoreRejection);
}

#[test]
fn names_outside_the_destination_root_are_refused_there() {
    let mut world = World::new(&LINE, waypoints);
    world.insert(1, "source", &content(2000));
    let request =
        SfoPutRequest { destination_name: "../copy".into(), ..request(TraceControl::Source) };
    world.ask(1, |entity, now| entity.sfo_put(now, &request)).unwrap();
    world.run();
    let rejected = ConditionCode::FilestoreRejection;
    let reports = reports(&world, 1);
    assert_eq!(reports[1], (3, SfoReported::FAILED, 1, rejected));
    assert_eq!(world.host(4).store.names(engine::Area::Files).count(), 0);
    assert!(!world.reported(4).iter().any(|reported| matches!(
        reported,
        OperationIndication::Refused { reason: Refusal::Full, .. }
    )));
    world.assert_clean();
}
