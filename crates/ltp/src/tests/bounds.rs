//! Peers that violate the protocol: nothing hangs and nothing grows.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use engine::{Input, PathEvent, Time};

use super::world::{PATH, World, content};
use crate::segment::{Body, CancelReason, Checkpoint, Data, DataKind, End, Segment, SessionId};
use crate::{Config, FILE_SERVICE, Indication, Limit, Limits, PeerError, Red, Remote, Timer};

const STRANGE: SessionId = SessionId { originator: 1, number: 4711 };

/// A second for each try, and three tries.
fn config() -> Config {
    let second = Timer::Fixed(Duration::from_secs(1));
    let default_remote = Remote {
        segment_max: Some(1000),
        repair_copies: 1,
        checkpoint_timer: second,
        report_timer: second,
        cancel_timer: second,
        retransmission_limit: Some(2),
        cycle_limit: 2,
        ..Remote::default()
    };
    Config { default_remote, ..Config::default() }
}

/// Engine that receives what the test sends, and whose segments are lost.
fn alone(config: &Config) -> World {
    let mut world = World::with(config);
    world.lose(|_, _, _| true);
    world
}

fn soon(world: &mut World) {
    world.run_until(world.now + Duration::from_millis(100));
}

fn reason(world: &World, side: usize) -> Option<(End, CancelReason)> {
    let failure = world.finished(side)?.result.err()?;
    Some((failure.by, failure.reason))
}

/// A report on the last checkpoint does not cover its scope.
#[test]
fn incomplete_reports_are_requested_again() {
    let mut world = alone(&config());
    let id = world.send(&content(1976), Red::All);
    world.run_until(Time::ZERO + Duration::from_millis(100));
    world.answer(id, 1, &[(0, 1000)], 1000);
    // Twice the checkpoint's timeout.
    world.run_until(world.now + Duration::from_millis(2_100));
    let lines = world.transcript();
    assert!(lines.last().is_some_and(|line| line.contains("EOB 1976-2000 CP 2/0")), "{lines:#?}");
    world.answer(id, 2, &[(0, 2000)], 2000);
    assert_eq!(world.finished(0).expect("it ended").result, Ok(()));
}

/// A report repeated for ever ends the session.
#[test]
fn peers_that_only_repeat_a_report_are_given_up() {
    let mut world = alone(&config());
    let id = world.send(&content(1976), Red::All);
    for serial in 1..5 {
        soon(&mut world);
        world.answer(id, serial, &[(0, 1000)], 1000);
    }
    assert_eq!(reason(&world, 0), Some((End::Sender, CancelReason::CycleLimit)));
    world.run();
}

#[test]
fn reports_beyond_the_red_part_match_no_checkpoint() {
    let mut world = alone(&config());
    let id = world.send(&content(1976), Red::All);
    soon(&mut world);
    world.answer(id, 1, &[(0, 2001)], 2001);
    assert_eq!(world.peer_errors(0), [PeerError::ReportBeyondEnd]);
    world.run();
    assert_eq!(reason(&world, 0), Some((End::Sender, CancelReason::RetransmissionLimit)));
}

/// Without a rate, sending waits for reports; one with few claims opens no window.
#[test]
fn closed_windows_are_probed() {
    let remote = Remote { unpaced_window: Some(10_000), ..config().default_remote };
    let mut world = alone(&Config { default_remote: remote, ..config() });
    world.hops[0].info.rate_bps = None;
    world.up(0);
    let id = world.send(&content(100_000), Red::All);
    for serial in 1..10 {
        soon(&mut world);
        if world.finished(0).is_none() {
            world.answer(id, serial, &[(0, 1)], 1);
        }
    }
    world.run();
    assert!(reason(&world, 0).is_some(), "{:#?}", world.transcript());
}

/// Reports that repeat while nothing can be sent.
#[test]
fn pending_acknowledgements_are_bounded() {
    let mut world = alone(&config());
    let id = world.send(&content(1976), Red::All);
    soon(&mut world);
    world.input(0, Input::Path(PATH, PathEvent::Down));
    for _ in 0..2 {
        world.answer(id, 1, &[(0, 10)], 2000);
    }
    let before = world.hosts[0].engine.memory();
    for _ in 0..100 {
        world.answer(id, 1, &[(0, 10)], 2000);
    }
    assert_eq!(world.hosts[0].engine.memory(), before);
    for serial in 2..100_000 {
        world.answer(id, serial, &[(0, 10)], 2000);
    }
    assert!(world.hosts[0].engine.memory() < before + 20_000);
}

#[test]
fn claims_that_leave_too_many_gaps_are_not_remembered() {
    let limits = Limits { gaps: 10, ..Limits::default() };
    let mut world = alone(&Config { limits, ..config() });
    let id = world.send(&content(1976), Red::All);
    soon(&mut world);
    let before = world.hosts[0].engine.memory();
    let claims: Vec<_> = (0..400).map(|i| (5 * i, 5 * i + 1)).collect();
    world.answer(id, 1, &claims, 2000);
    assert!(world.hosts[0].engine.memory() < before + 4000);
    let is_limit = |it: &Indication| matches!(it, Indication::LimitReached(Limit::Gaps));
    assert_eq!(world.hosts[0].indications.iter().filter(|it| is_limit(it)).count(), 1);
    soon(&mut world);
    world.answer(id, 2, &[(0, 2000)], 2000);
    assert_eq!(world.finished(0).expect("it ended").result, Ok(()));
}

fn data(kind: DataKind, offset: u64, data: &[u8]) -> Body<'_> {
    let serial = 1000 + offset;
    let checkpoint = kind.is_checkpoint().then_some(Checkpoint { serial, report: 0 });
    Body::Data(Data { kind, service: FILE_SERVICE, offset, checkpoint, data })
}

fn say(world: &mut World, body: Body<'_>) {
    world.hear(1, &Segment::new(STRANGE, body).to_vec().expect("a segment"));
}

/// A file that is longer than described would be installed.
#[test]
fn ends_below_received_data_are_refused() {
    for [first, second, end] in [
        [DataKind::Red, DataKind::Red, DataKind::EndOfRedBlock],
        [DataKind::Red, DataKind::Red, DataKind::EndOfRedPart],
        [DataKind::Red, DataKind::Green, DataKind::EndOfRedBlock],
        [DataKind::Green, DataKind::Green, DataKind::EndOfGreenBlock],
    ] {
        let mut world = alone(&config());
        say(&mut world, data(first, 0, &[1; 100]));
        say(&mut world, data(second, 500, &[1; 100]));
        say(&mut world, data(end, 100, &[1; 24]));
        assert_eq!(world.peer_errors(1), [PeerError::ConflictingEnd], "{end:?}");
        assert!(world.finished(1).is_none());
    }
}

#[test]
fn data_after_an_end_is_refused() {
    let mut world = alone(&config());
    say(&mut world, data(DataKind::EndOfRedBlock, 100, &[1; 24]));
    say(&mut world, data(DataKind::Red, 500, &[1; 100]));
    assert_eq!(reason(&world, 1), Some((End::Receiver, CancelReason::Miscolored)));

    let mut world = alone(&config());
    say(&mut world, data(DataKind::EndOfGreenBlock, 100, &[1; 24]));
    say(&mut world, data(DataKind::Green, 500, &[1; 100]));
    assert_eq!(world.hosts[1].engine.stats().data_dropped, 1);
    assert!(world.finished(1).is_none());
}

/// Many gaps, and many checkpoints over all of them.
#[test]
fn kept_claims_are_bounded() {
    let limits = Limits { gaps: 2000, ..Limits::default() };
    let mut world = alone(&Config { limits, ..config() });
    for i in 0..3000 {
        say(&mut world, data(DataKind::Red, 5 * i, b"x"));
    }
    let ask = |serial, report| {
        let (kind, checkpoint) = (DataKind::Checkpoint, Some(Checkpoint { serial, report }));
        Body::Data(Data { kind, service: FILE_SERVICE, offset: 9995, checkpoint, data: b"x" })
    };
    say(&mut world, ask(1, 0));
    soon(&mut world);
    let report = world.log.iter().find_map(|sent| {
        match Segment::decode(&sent.bytes).expect("a segment").body {
            Body::Report(report) => Some(report.serial),
            _ => None,
        }
    });
    let report = report.expect("it answered");
    let (before, mut most) = (world.hosts[1].engine.memory(), 0);
    for serial in 2..2000 {
        say(&mut world, ask(serial, report));
        most = most.max(world.hosts[1].engine.memory());
        if serial % 20 == 0 {
            soon(&mut world);
        }
    }
    // As many claims as ranges, and those of one more report, take as much as 2000 ranges again.
    assert!(most < 2 * before, "{most} of {before} before");
}

/// More claims than 64 reports take.
#[test]
fn omitted_claims_are_reported_later() {
    let remote = Remote { datagram_max: Some(200), repair_copies: 1, ..Remote::default() };
    let world = World::crossed_with(
        &Config { default_remote: remote, ..Config::default() },
        1_000_000,
        Red::All,
        Box::new(|side, number, _| side == 0 && number < 6000 && number % 2 == 1),
    );
    let mut reports = BTreeMap::<u64, BTreeSet<u64>>::new();
    for sent in &world.log {
        if let Body::Report(report) = Segment::decode(&sent.bytes).expect("a segment").body {
            reports.entry(report.checkpoint).or_default().insert(report.serial);
        }
    }
    assert_eq!(reports.values().map(BTreeSet::len).max(), Some(64));
}

#[test]
fn gaps_of_all_receptions_are_bounded() {
    let limits = Limits { gaps_total: 100, ..Limits::default() };
    let mut world = alone(&Config { limits, ..config() });
    for number in 0..3 {
        let session = SessionId { number: 100 + number, ..STRANGE };
        for i in 0..80 {
            let segment = Segment::new(session, data(DataKind::Red, 5 * i, b"x"));
            world.hear(1, &segment.to_vec().expect("a segment"));
        }
    }
    // 101 ranges, and one of the last session, which may always have one.
    assert_eq!(world.hosts[1].engine.stats().data_dropped, 240 - 102);
    for number in 0..2 {
        let session = SessionId { number: 100 + number, ..STRANGE };
        let cancel = Body::Cancel { by: End::Sender, reason: CancelReason::User };
        world.hear(1, &Segment::new(session, cancel).to_vec().expect("a segment"));
    }
    soon(&mut world);
    // Finished sessions make room.
    let before = world.hosts[1].engine.stats().data_dropped;
    for i in 0..80 {
        say(&mut world, data(DataKind::Red, 5 * i, b"x"));
    }
    assert_eq!(world.hosts[1].engine.stats().data_dropped, before);
}
