//! The procedures of RFC 5326 §6, one after the other, in conversations with exact losses.

use std::time::Duration;

use ::session::StoreRefusal;
use engine::{Engine as _, Input, PathEvent, Rng, Time};

use super::world::{PATH, World, content, lose_numbers, lose_one_in, name};
use crate::segment::{
    Body, CancelReason, Checkpoint, Claim, Claims, Data, DataKind, End, Report, Segment, SessionId,
};
use crate::{
    Config, FILE_SERVICE, Format, Indication, Limits, PeerError, Red, Remote, SendRequest, Timer,
};

/// Three segments and the description of the file, which is 24 bytes long.
const SIZE: usize = 2500;
const SECOND: Duration = Duration::from_secs(1);
const STRANGE: SessionId = SessionId { originator: 1, number: 4711 };

const REASONS: [CancelReason; 6] = [
    CancelReason::User,
    CancelReason::Unreachable,
    CancelReason::RetransmissionLimit,
    CancelReason::Miscolored,
    CancelReason::System,
    CancelReason::CycleLimit,
];

/// One copy of each repair.
fn config() -> Config {
    let default_remote = Remote { segment_max: Some(1000), repair_copies: 1, ..Remote::default() };
    Config { default_remote, ..Config::default() }
}

/// Settings with a low limit.
fn impatient() -> Config {
    let second = Timer::Fixed(SECOND);
    let default_remote = Remote {
        checkpoint_timer: second,
        report_timer: second,
        cancel_timer: second,
        retransmission_limit: Some(2),
        cycle_limit: 2,
        ..config().default_remote
    };
    Config { default_remote, ..config() }
}

/// Delivers a segment that the other side did not send.
fn say(world: &mut World, to: usize, session: SessionId, body: Body<'_>) {
    world.hear(to, &Segment::new(session, body).to_vec().expect("a segment"));
}

fn red(kind: DataKind, offset: u64, data: &[u8]) -> Body<'_> {
    let is_asking =
        matches!(kind, DataKind::Checkpoint | DataKind::EndOfRedPart | DataKind::EndOfRedBlock);
    let checkpoint = is_asking.then_some(Checkpoint { serial: 1000 + offset, report: 0 });
    Body::Data(Data { kind, service: FILE_SERVICE, offset, checkpoint, data })
}

/// Engine that receives what the test sends, and whose segments are lost.
fn alone(config: &Config) -> World {
    let mut world = World::with(config);
    world.lose(|_, _, _| true);
    world
}

/// Transcript of one side.
fn lines(world: &World, side: usize) -> Vec<String> {
    let begins = if side == 0 { '>' } else { '<' };
    let lines = world.transcript().into_iter().filter(|line| line.starts_with(begins));
    lines.map(|line| line[1..].trim_start_matches('x').trim_start().to_owned()).collect()
}

fn reason(world: &World, side: usize) -> Option<(End, CancelReason)> {
    let failure = world.finished(side)?.result.err()?;
    Some((failure.by, failure.reason))
}

#[test]
fn a_red_block_without_loss() {
    let world = World::crossed(&config(), SIZE, Red::All);
    assert_eq!(
        world.transcript(),
        [
            "> red 0-1000",
            "> red 1000-2000",
            "> red 2000-2500",
            "> red EOB 2500-2524 CP 1/0",
            "< RS 1/1 0-2524: 0-2524",
            "> RA 1",
        ]
    );
}

#[test]
fn a_green_block_without_loss() {
    let world = World::crossed(&config(), SIZE, Red::None);
    let expected =
        ["> green 0-1000", "> green 1000-2000", "> green 2000-2500", "> green EOB 2500-2524"];
    assert_eq!(world.transcript(), expected);
    assert!(!world.finished(0).expect("it ended").is_confirmed);
}

#[test]
fn a_mixed_block_without_loss() {
    let world = World::crossed(&config(), SIZE, Red::Prefix(1500));
    let (mut first, last): (Vec<_>, Vec<_>) =
        world.transcript().into_iter().partition(|line| line.starts_with("> red"));
    assert_eq!(first.split_off(0), ["> red 0-1000", "> red EORP 1000-1500 CP 1/0"]);
    assert_eq!(
        last,
        ["> green 1500-2500", "> green EOB 2500-2524", "< RS 1/1 0-1500: 0-1500", "> RA 1"]
    );
}

/// Lost green data is not requested; the red part is, and no file is stored.
#[test]
fn lost_green_data_is_not_retransmitted() {
    for (red, lost) in [(Red::None, &[1][..]), (Red::Prefix(1500), &[0, 2])] {
        let file = content(SIZE);
        let mut world = World::with(&config());
        world.lose(lose_numbers(lost));
        world.send(&file, red);
        world.run();
        assert!(world.hosts[1].store.get(&name("copy")).is_none());
        assert_eq!(reason(&world, 1), Some((End::Receiver, CancelReason::System)));
        let lines = world.transcript();
        let greens = lines.iter().filter(|line| line.contains("green")).count();
        assert_eq!(greens, if red == Red::None { 4 } else { 2 }, "{lines:#?}");
        assert_eq!(lines.iter().any(|line| line.contains("RS")), red != Red::None);
    }
}

/// §6.13: the reply to a report is a checkpoint that names it, and the report on that has its
/// scope.
#[test]
fn reports_trigger_data_and_a_checkpoint() {
    let world = World::crossed_with(&impatient(), SIZE, Red::All, lose_numbers(&[0, 2]));
    assert_eq!(
        world.transcript(),
        [
            ">x red 0-1000",
            "> red 1000-2000",
            ">x red 2000-2500",
            "> red EOB 2500-2524 CP 1/0",
            "< RS 1/1 0-2524: 1000-2000 2500-2524",
            "> RA 1",
            "> red 0-1000",
            "> red 2000-2500 CP 2/1",
            "< RS 2/2 0-2524: 0-2524",
            "> RA 2",
        ]
    );
}

#[test]
fn every_single_and_double_loss_is_repaired() {
    let file = content(SIZE);
    for color in [Red::All, Red::Prefix(1500)] {
        let mut world = World::with(&config());
        world.send(&file, color);
        world.run();
        let sent = [0, 1].map(|from| world.log.iter().filter(|sent| sent.from == from).count());
        let all: Vec<_> =
            (0..2).flat_map(|side| (0..sent[side]).map(move |number| (side, number))).collect();
        for (i, first) in all.iter().enumerate() {
            for second in &all[i..] {
                let lost = [*first, *second];
                let mut world = World::with(&config());
                let is_green = |datagram: &[u8]| {
                    let body = Segment::decode(datagram).expect("a segment").body;
                    matches!(body, Body::Data(data) if !data.kind.is_red())
                };
                world.lose(move |side, number, datagram| {
                    lost.contains(&(side, number)) && !is_green(datagram)
                });
                world.send(&file, color);
                world.run();
                let copy = world.hosts[1].store.get(&name("copy"));
                assert!(copy == Some(&file[..]), "{lost:?}: {:#?}", world.transcript());
                assert_eq!(world.finished(0).expect("it ended").result, Ok(()), "{lost:?}");
                assert!(world.log.len() <= 20, "{lost:?}: {:#?}", world.transcript());
                assert!(world.now < Time::ZERO + 20 * SECOND, "{lost:?}: {}", world.now);
            }
        }
    }
}

/// Busy hosts process several events at once.
#[test]
fn late_nodes_repair_losses() {
    for seed in 0..300 {
        let file = content(10 * SIZE);
        let mut world = World::with(&config());
        world.stalls = Some(Rng::new(seed, "stalls"));
        world.lose(lose_one_in(5, seed));
        world.send(&file, Red::All);
        world.run();
        let copy = world.hosts[1].store.get(&name("copy"));
        assert!(copy == Some(&file[..]), "{seed}: {:#?}", world.transcript());
        assert_eq!(world.finished(0).expect("it ended").result, Ok(()), "{seed}");
    }
}

/// §6.7, then §6.16: the limit applies to checkpoints, and to the cancellation that follows.
#[test]
fn unanswered_checkpoints_end_the_session() {
    let mut world = alone(&impatient());
    world.send(&content(500), Red::All);
    world.run();
    assert_eq!(
        lines(&world, 0),
        [
            "red 0-500",
            "red EOB 500-524 CP 1/0",
            "red EOB 500-524 CP 1/0",
            "red EOB 500-524 CP 1/0",
            "CS RLEXC",
            "CS RLEXC",
            "CS RLEXC",
        ]
    );
    assert_eq!(reason(&world, 0), Some((End::Sender, CancelReason::RetransmissionLimit)));
    let times: Vec<_> = world.log[1..].iter().map(|sent| sent.at.as_secs_f64().round()).collect();
    assert_eq!(times, [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]);
    assert_eq!(world.hosts[0].engine.sessions().count(), 0);
}

/// §6.8: the same for reports, which keep their serial numbers.
#[test]
fn a_report_that_is_never_acknowledged_ends_the_session() {
    let mut world = alone(&impatient());
    say(&mut world, 1, STRANGE, red(DataKind::Checkpoint, 100, &[1; 100]));
    world.run();
    assert_eq!(
        lines(&world, 1),
        ["RS 1/1 0-200: 100-200"; 3].into_iter().chain(["CR RLEXC"; 3]).collect::<Vec<_>>()
    );
    assert_eq!(reason(&world, 1), Some((End::Receiver, CancelReason::RetransmissionLimit)));
}

/// The block is complete, and its last report is lost: a request of the sender would get a reply.
#[test]
fn unacknowledged_last_reports_discard_nothing() {
    let file = content(SIZE);
    let mut world = World::with(&impatient());
    world.lose(|side, _, _| side == 1);
    world.send(&file, Red::All);
    world.run();
    assert_eq!(world.finished(1).expect("it ended").result, Ok(()));
    assert!(world.hosts[1].store.get(&name("copy")) == Some(&file[..]));
    assert!(
        !lines(&world, 1).iter().any(|line| line.starts_with("CR")),
        "{:#?}",
        world.transcript()
    );
    // The sender has no information.
    assert_eq!(reason(&world, 0), Some((End::Sender, CancelReason::RetransmissionLimit)));
}

/// Reports without news get replies, up to the limit.
#[test]
fn cycles_that_bring_nothing_end_the_session() {
    let mut world = alone(&impatient());
    let id = world.send(&content(SIZE), Red::All);
    world.run_until(Time::ZERO + Duration::from_millis(100));
    for serial in 1..=4 {
        let claims = [Claim { offset: 0, length: 10 }];
        let claims = Claims::new(&claims);
        let report = Report { serial, checkpoint: 0, lower: 0, upper: 2524, claims };
        say(&mut world, 0, id, Body::Report(report));
        assert_eq!(world.finished(0).is_some(), serial == 4);
    }
    assert_eq!(reason(&world, 0), Some((End::Sender, CancelReason::CycleLimit)));
    world.run();
    assert!(lines(&world, 0).ends_with(&["CS RXMTCYCEXC".to_owned()]), "{:#?}", world.transcript());
}

/// §6.21, at either border of the colours.
#[test]
fn miscolored_data_ends_the_session() {
    let green = |kind, offset, data| {
        Body::Data(Data { kind, service: FILE_SERVICE, offset, checkpoint: None, data })
    };
    for (first, second) in [
        // Green in the red part, and red behind where green began.
        (red(DataKind::EndOfRedPart, 0, &[1; 100]), green(DataKind::Green, 50, &[1; 10])),
        (green(DataKind::Green, 100, &[1; 100]), red(DataKind::Red, 150, &[1; 10])),
        // The same if the end of the red part has not arrived.
        (red(DataKind::Red, 100, &[1; 100]), green(DataKind::Green, 50, &[1; 10])),
        // Red behind the end of the red part.
        (red(DataKind::EndOfRedPart, 0, &[1; 100]), red(DataKind::Red, 100, &[1; 10])),
    ] {
        let mut world = alone(&impatient());
        say(&mut world, 1, STRANGE, first);
        say(&mut world, 1, STRANGE, second);
        assert_eq!(reason(&world, 1), Some((End::Receiver, CancelReason::Miscolored)));
        world.run();
        assert_eq!(lines(&world, 1).last().map(String::as_str), Some("CR MISCOLORED"));
        assert_eq!(world.hosts[1].store.names(engine::Area::Spool).count(), 0);
    }
}

#[test]
fn data_for_an_unknown_client_service_is_refused() {
    for kind in [DataKind::EndOfRedBlock, DataKind::EndOfGreenBlock] {
        let checkpoint = kind.is_red().then_some(Checkpoint { serial: 9, report: 0 });
        let data = Data { kind, service: 99, offset: 0, checkpoint, data: b"x" };
        let mut world = alone(&impatient());
        say(&mut world, 1, STRANGE, Body::Data(data));
        assert_eq!(reason(&world, 1), Some((End::Receiver, CancelReason::Unreachable)));
        world.run();
        assert_eq!(lines(&world, 1), ["CR UNREACH"; 3]);
    }
}

/// The client service number is damaged in one segment of a session under way.
#[test]
fn a_damaged_service_number_does_not_end_a_session() {
    let file = content(20_000);
    let mut world = World::with(&config());
    world.lose(|side, number, datagram| {
        if side == 0 && number == 5 {
            let segment = Segment::decode(datagram).expect("a segment");
            let Body::Data(data) = segment.body else { panic!("it is data") };
            let damaged = Body::Data(Data { service: 99, ..data });
            *datagram = Segment::new(segment.session, damaged).to_vec().expect("a segment");
        }
        false
    });
    world.send(&file, Red::All);
    world.run();
    world.assert_delivered(&file);
    assert_eq!(world.hosts[1].engine.stats().data_dropped, 1);
}

/// §6.22, at either side.
#[test]
fn an_error_of_the_system_ends_the_session() {
    let mut world = World::with(&config());
    world.hosts[1].store.set_capacity(Some(0));
    world.send(&content(SIZE), Red::All);
    world.run();
    for side in 0..2 {
        assert_eq!(reason(&world, side), Some((End::Receiver, CancelReason::System)));
    }
    let lines = world.transcript();
    assert!(lines.contains(&"< CR SYS_CNCLD".to_owned()), "{lines:#?}");
    assert!(lines.contains(&"> CAR".to_owned()), "{lines:#?}");
}

#[test]
fn a_cancellation_has_the_reason_why_a_file_cannot_be_stored() {
    for (path, room, refusal) in [
        ("copy", 0, StoreRefusal::NoSpace),
        ("../copy", SIZE, StoreRefusal::NameRefused),
        (".slowlight/copy", SIZE, StoreRefusal::NameRefused),
    ] {
        let mut world = World::with(&config());
        world.hosts[0].store.insert(name("source"), content(SIZE));
        world.hosts[1].store.set_capacity(Some(room as u64));
        let (destination, source, red) = (2, name("source"), Red::All);
        let request = SendRequest { destination, source, name: path.to_owned(), red };
        world.hosts[0].engine.send(world.now, request).expect("it is sent");
        world.drain(0);
        // The first cancellation is lost, and its copy has the reason as well.
        let mut is_first = true;
        world.lose(move |side, _, _| side == 1 && std::mem::take(&mut is_first));
        world.run();
        for side in 0..2 {
            let failure = world.finished(side).expect("it ends").result.expect_err("refused");
            assert_eq!(failure.store_refusal(), Some(refusal), "{path}");
        }
    }
}

/// §6.15 to §6.20: the peer acknowledges, gets the reason, and both sessions end.
#[test]
fn either_side_may_cancel() {
    for side in 0..2 {
        let mut world = World::with(&config());
        let id = world.send(&content(200_000), Red::All);
        world.run_until(Time::ZERO + Duration::from_millis(100));
        let now = world.now;
        world.hosts[side].engine.cancel(now, id).expect("it is under way");
        world.drain(side);
        world.run();
        let by = [End::Sender, End::Receiver][side];
        for side in 0..2 {
            assert_eq!(reason(&world, side), Some((by, CancelReason::User)));
            assert_eq!(world.hosts[side].engine.sessions().count(), 0);
        }
        let [cancel, answer] =
            [["> CS USR_CNCLD", "< CAS"], ["< CR USR_CNCLD", "> CAR"]][side].map(str::to_owned);
        let lines = world.transcript();
        assert!(lines.contains(&cancel) && lines.contains(&answer), "{lines:#?}");
        assert_eq!(lines.iter().filter(|line| **line == cancel).count(), 1);
        assert_eq!(world.hosts[1].store.names(engine::Area::Spool).count(), 0);
    }
}

/// The acknowledgment is lost twice, and repeated for each cancellation.
#[test]
fn a_cancellation_is_repeated_until_it_is_acknowledged() {
    let mut world = World::with(&impatient());
    let id = world.send(&content(20_000), Red::All);
    world.lose(|side, _, _| side == 1);
    world.run_until(Time::ZERO + Duration::from_millis(1));
    let now = world.now;
    world.hosts[0].engine.cancel(now, id).expect("it is under way");
    world.drain(0);
    world.run_until(Time::ZERO + Duration::from_millis(1500));
    world.lose(|_, _, _| false);
    world.run();
    let lines = world.transcript();
    let cancels = lines.iter().filter(|line| line.contains("CS")).count();
    assert_eq!(cancels, 3, "{lines:#?}");
    assert_eq!(lines.last().map(String::as_str), Some("< CAS"));
    assert_eq!(world.hosts[0].engine.sessions().count(), 0);
}

#[test]
fn every_reason_is_reported_to_the_user() {
    for code in REASONS {
        let mut world = alone(&config());
        let id = world.send(&content(SIZE), Red::All);
        world.run_until(Time::ZERO + Duration::from_millis(100));
        say(&mut world, 0, id, Body::Cancel { by: End::Receiver, reason: code });
        assert_eq!(reason(&world, 0), Some((End::Receiver, code)));

        let mut world = alone(&config());
        say(&mut world, 1, STRANGE, red(DataKind::Red, 0, b"x"));
        say(&mut world, 1, STRANGE, red(DataKind::Red, 1, b"x"));
        say(&mut world, 1, STRANGE, Body::Cancel { by: End::Sender, reason: code });
        assert_eq!(reason(&world, 1), Some((End::Sender, code)));
        world.run();
        assert_eq!(lines(&world, 1), ["CAS"]);
    }
}

/// §6.14, §6.17: their senders would retransmit for ever.
#[test]
fn segments_of_unknown_sessions_get_a_reply() {
    let mut world = alone(&config());
    let reason = CancelReason::User;
    let claims = [Claim { offset: 0, length: 10 }];
    let claims = Claims::new(&claims);
    let report = Report { serial: 5, checkpoint: 6, lower: 0, upper: 20, claims };
    say(&mut world, 0, STRANGE, Body::Report(report));
    say(&mut world, 0, STRANGE, Body::Cancel { by: End::Receiver, reason });
    say(&mut world, 1, STRANGE, Body::Cancel { by: End::Sender, reason });
    // These require no reply.
    say(&mut world, 0, STRANGE, Body::CancelAck { by: End::Sender });
    say(&mut world, 1, STRANGE, Body::CancelAck { by: End::Receiver });
    say(&mut world, 1, STRANGE, Body::ReportAck { serial: 5 });
    // These are not for the side that receives them.
    say(&mut world, 1, STRANGE, Body::Report(report));
    say(&mut world, 0, STRANGE, red(DataKind::Red, 0, b"x"));
    world.run();
    assert_eq!(lines(&world, 0), ["RA 1", "CAR"]);
    assert_eq!(lines(&world, 1), ["CAS"]);
    assert_eq!(world.hosts.iter().map(|side| side.engine.sessions().count()).sum::<usize>(), 0);
}

#[test]
fn repeated_reports_are_acknowledged_again() {
    let file = content(SIZE);
    let mut world = World::with(&impatient());
    world.lose(|side, number, _| side == 0 && [1, 4, 5].contains(&number));
    world.send(&file, Red::All);
    world.run();
    let copy = world.hosts[1].store.get(&name("copy"));
    assert!(copy == Some(&file[..]));
    let lines = world.transcript();
    let again = "< RS 1/1 0-2524: 0-1000 2000-2524";
    assert_eq!(lines.iter().filter(|line| *line == again).count(), 2, "{lines:#?}");
    assert_eq!(lines.iter().filter(|line| line.ends_with("RA 1")).count(), 2, "{lines:#?}");
    // The second one brings no second repair.
    assert!(lines.iter().filter(|line| line.contains("red 1000-2000")).count() <= 3);
}

/// §6.11: the same checkpoint, the same report.
#[test]
fn repeated_checkpoints_get_the_same_report() {
    let mut world = alone(&config());
    for _ in 0..3 {
        say(&mut world, 1, STRANGE, red(DataKind::Checkpoint, 100, &[1; 100]));
        // The round trip is 50 ms, and the report's timeout 58 ms.
        world.run_until(world.now + Duration::from_millis(55));
    }
    assert_eq!(lines(&world, 1), ["RS 1/1 0-200: 100-200"; 3]);
}

/// A checkpoint sent before the report on it arrived triggers no other report.
#[test]
fn reports_in_flight_are_not_sent_again() {
    let mut world = alone(&config());
    for _ in 0..3 {
        say(&mut world, 1, STRANGE, red(DataKind::Checkpoint, 100, &[1; 100]));
        world.run_until(world.now + Duration::from_millis(10));
    }
    assert_eq!(lines(&world, 1), ["RS 1/1 0-200: 100-200"]);
}

/// §6.11: as many reports as needed, with adjacent scopes.
#[test]
fn claims_that_do_not_fit_are_split_into_several_reports() {
    let default_remote = Remote { datagram_max: Some(200), ..config().default_remote };
    let world = World::crossed_with(
        &Config { default_remote, ..config() },
        60_000,
        Red::All,
        Box::new(|side, number, _| side == 0 && number < 300 && number % 2 == 1),
    );
    let mut end = 0;
    let mut reports = 0;
    for sent in world.log.iter().filter(|sent| sent.from == 1) {
        let Body::Report(report) = Segment::decode(&sent.bytes).expect("a segment").body else {
            continue;
        };
        assert!(sent.bytes.len() <= 200);
        if reports > 0 && report.lower == 0 {
            break;
        }
        assert_eq!(report.lower, end);
        assert!(report.received().all(|(from, to)| from >= report.lower && to <= report.upper));
        end = report.upper;
        reports += 1;
    }
    assert_eq!((reports >= 5, end), (true, 60_024), "{reports} reports");
}

#[test]
fn a_report_beyond_the_red_part_is_acknowledged_and_ignored() {
    let mut world = alone(&config());
    let id = world.send(&content(SIZE), Red::All);
    world.run_until(Time::ZERO + Duration::from_millis(100));
    let claims = [Claim { offset: 0, length: 9999 }];
    let claims = Claims::new(&claims);
    let report = Report { serial: 5, checkpoint: 0, lower: 0, upper: 9999, claims };
    say(&mut world, 0, id, Body::Report(report));
    world.run_until(world.now + Duration::from_millis(10));
    assert_eq!(world.peer_errors(0), [PeerError::ReportBeyondEnd]);
    assert_eq!(lines(&world, 0).last().map(String::as_str), Some("RA 1"));
    assert!(world.finished(0).is_none());
}

/// An empty segment gives the end of the red part or of the block, and no byte before it.
#[test]
fn a_red_part_is_complete_with_its_last_byte() {
    let file = content(1000);
    let cases = [
        (DataKind::EndOfRedBlock, true),
        (DataKind::EndOfRedPart, true),
        (DataKind::EndOfRedPart, false),
    ];
    for (kind, journal) in cases {
        let format = Format::Raw { name: "copy".to_owned() };
        let mut world = alone(&Config { format, journal, ..impatient() });
        let soon = |world: &mut World| world.run_until(world.now + SECOND / 10);
        say(&mut world, 1, STRANGE, red(DataKind::Red, 0, &file[..999]));
        say(&mut world, 1, STRANGE, red(kind, 1000, &[]));
        soon(&mut world);
        assert_eq!(lines(&world, 1), ["RS 1/1 0-1000: 0-999"], "{kind:?}");
        assert!(world.hosts[1].store.get(&name("copy")).is_none(), "{kind:?}");
        world.hosts[1].slow = Some(Vec::new());
        let checkpoint = Some(Checkpoint { serial: 2001, report: 0 });
        let (kind, data) = (DataKind::Checkpoint, &file[999..]);
        let last = Data { kind, service: FILE_SERVICE, offset: 999, checkpoint, data };
        say(&mut world, 1, STRANGE, Body::Data(last));
        soon(&mut world);
        assert_eq!(lines(&world, 1).len(), 1, "it is claimed before it is stored");
        // A record or a name follows each sync.
        (0..5).for_each(|_| world.work_off(1));
        soon(&mut world);
        assert_eq!(lines(&world, 1)[1..], ["RS 2/2 0-1000: 0-1000"], "{kind:?}");
    }
}

#[test]
fn data_after_the_end_is_dropped() {
    let mut world = alone(&config());
    let end = |kind, offset, data| {
        Body::Data(Data { kind, service: FILE_SERVICE, offset, checkpoint: None, data })
    };
    say(&mut world, 1, STRANGE, end(DataKind::EndOfGreenBlock, 100, &[1; 100]));
    say(&mut world, 1, STRANGE, end(DataKind::Green, 190, &[1; 20]));
    assert_eq!(world.hosts[1].engine.stats().data_dropped, 1);
    // The end stays where it was first announced.
    say(&mut world, 1, STRANGE, end(DataKind::EndOfGreenBlock, 120, &[1; 20]));
    assert_eq!(world.peer_errors(1), [PeerError::ConflictingEnd]);
    assert!(world.finished(1).is_none());
}

#[test]
fn sessions_beyond_the_bound_replace_others() {
    let limits = Limits { sessions: 1, ..Limits::default() };
    let mut world = alone(&Config { limits, ..config() });
    for offset in 0..2 {
        say(&mut world, 1, STRANGE, red(DataKind::Red, offset, b"x"));
    }
    let other = SessionId { number: 4712, ..STRANGE };
    say(&mut world, 1, other, red(DataKind::Checkpoint, 0, b"x"));
    world.run_until(world.now + Duration::from_millis(10));
    let under_way: Vec<_> = world.hosts[1].engine.sessions().map(|report| report.id).collect();
    assert_eq!(under_way, [other]);
    let limits = world.hosts[1].indications.iter();
    assert_eq!(limits.filter(|it| matches!(it, Indication::LimitReached(_))).count(), 1);
}

#[test]
fn late_segments_of_closed_sessions_start_nothing() {
    let mut world = World::crossed(&config(), SIZE, Red::All);
    let before = world.log.len();
    let late: Vec<_> = world.log.iter().filter(|sent| sent.from == 0).cloned().collect();
    for sent in &late {
        world.hear(1, &sent.bytes);
    }
    world.run();
    assert_eq!(world.hosts[1].engine.sessions().count(), 0);
    // Only the checkpoint gets a reply, because its sender may lack the report.
    let lines = world.transcript();
    assert_eq!(lines[before..].len(), 2, "{lines:#?}");
    assert!(lines[before].ends_with("0-2524: 0-2524") && lines[before + 1].starts_with("> RA"));
    assert_eq!(world.hosts[1].indications.len(), 2, "{:?}", world.hosts[1].indications);
}

/// §6.5, §6.6: an announced outage of an hour does not count.
#[test]
fn timers_are_suspended_while_the_link_is_down() {
    let file = content(SIZE);
    let mut world = World::with(&impatient());
    // Segments under way when the link goes down are lost.
    world.lose(|_, number, _| number >= 3);
    world.send(&file, Red::All);
    world.run_until(Time::ZERO + Duration::from_millis(500));
    let before = world.log.len();
    for side in 0..2 {
        world.input(side, Input::Path(PATH, PathEvent::Down));
    }
    world.run_until(Time::ZERO + Duration::from_secs(3600));
    assert_eq!(world.log.len(), before);
    world.lose(|_, _, _| false);
    for side in 0..2 {
        world.up(side);
    }
    world.run();
    world.assert_delivered(&file);
    assert!(world.now < Time::ZERO + Duration::from_secs(3602), "{}", world.now);
    let lines = world.transcript();
    assert_eq!(lines[before], "> red EOB 2500-2524 CP 1/0");
}

#[test]
fn invalid_segments_are_counted() {
    let mut world = alone(&config());
    // Version 1, undefined types, a number without an end, and nothing.
    let garbage: [&[u8]; 5] =
        [&[0x13, 1, 5, 0], &[0x05, 1, 5, 0], &[0x0b, 1, 5, 0], &[3, 0x80], &[]];
    for datagram in garbage {
        world.hear(1, datagram);
    }
    // It keeps a NAT mapping alive and has no content.
    world.hear(1, &[0; 4]);
    assert_eq!(world.hosts[1].engine.stats().decode_errors, 5);
    assert_eq!(world.hosts[1].engine.poll_timeout(), None);
}

/// RFC 5326 §9.1, and 3.2: they are random, and not 0.
#[test]
fn numbers_of_sessions_and_serials_are_random() {
    let mut found = std::collections::BTreeSet::new();
    let mut in_order = Vec::new();
    let mut world = World::with(&config());
    for _ in 0..20 {
        let id = world.send(&content(10), Red::All);
        assert!(id.number > 0 && found.insert(id.number));
        in_order.push(id.number);
    }
    world.run();
    let mut serials = std::collections::BTreeSet::new();
    for sent in &world.log {
        match Segment::decode(&sent.bytes).expect("a segment").body {
            Body::Data(Data { checkpoint: Some(checkpoint), .. }) => {
                assert!(checkpoint.serial > 0);
                serials.insert(checkpoint.serial);
            }
            Body::Report(report) => {
                assert!(report.serial > 0);
                serials.insert(report.serial);
            }
            _ => {}
        }
    }
    assert!(serials.len() >= 39, "{} numbers", serials.len());
    // Numbers that count up, or that share their upper bits, can be guessed.
    for numbers in [&found, &serials] {
        let (least, most) = (numbers.first().expect("some"), numbers.last().expect("some"));
        let spread = most - least;
        assert!(spread > most / 2, "{numbers:?}");
        let near = numbers.iter().zip(numbers.iter().skip(1)).filter(|(a, b)| *b - *a < 4);
        assert!(near.count() < 8, "{numbers:?}");
    }
    assert!(!is_sorted(&in_order), "{in_order:?}");
}

fn is_sorted(numbers: &[u64]) -> bool {
    numbers.windows(2).all(|pair| pair[0] < pair[1])
}
