//! Floods of sessions, and blocks that cannot be sent.

use std::net::SocketAddr;
use std::time::Duration;

use engine::{Area, Input, PathEvent, PathId, PathInfo, Receive, Time};

use super::world::{World, content, name};
use crate::segment::{Body, Checkpoint, Data, DataKind, Segment, SessionId};
use crate::{Cause, Config, FILE_SERVICE, Format, Red, SendRequest};

/// Sessions that nobody continues.
const FLOOD: u64 = 100_000;

/// Segments that start sessions: one in 20 from a different engine, some with a full datagram of
/// data.
fn half_open(n: u64) -> Vec<u8> {
    let session =
        SessionId { originator: if n.is_multiple_of(20) { 1000 + n } else { 7 }, number: n + 1 };
    let (offset, len) = if n.is_multiple_of(7) { (n * 1000, 900) } else { (64, 4) };
    let data = vec![1; len];
    let kind = if n.is_multiple_of(3) { DataKind::Green } else { DataKind::Red };
    let data = Data { kind, service: FILE_SERVICE, offset, checkpoint: None, data: &data };
    Segment::new(session, Body::Data(data)).to_vec().expect("a segment")
}

#[test]
fn transfers_complete_during_a_flood_of_sessions() {
    let file = content(10_000_000);
    let mut world = World::with(&Config::default());
    world.logging = false;
    world.send(&file, Red::All);
    let (mut memory, mut sessions, mut files) = (0, 0, 0);
    let mut sent = 0;
    while world.step() {
        for n in sent..(sent + 10).min(FLOOD) {
            world.hear(1, &half_open(n));
        }
        sent = (sent + 10).min(FLOOD);
        if sent.is_multiple_of(1000) {
            let side = &world.hosts[1];
            memory = memory.max(side.engine.memory());
            sessions = sessions.max(side.engine.sessions().count());
            files = files.max(side.store.names(Area::Spool).count());
        }
    }
    assert_eq!(sent, FLOOD);
    println!("{FLOOD} sessions left: {memory} bytes, {sessions} sessions, {files} files at most");
    assert!(world.hosts[1].store.get(&name("copy")) == Some(&file[..]));
    assert_eq!(world.finished(0).expect("it ended").result, Ok(()));
    assert!(memory < 12_000_000 && sessions <= 251 && files <= 1, "{memory} {sessions} {files}");
    assert!(world.hosts[1].engine.stats().half_open_dropped > FLOOD - 1000);
    // The remaining ones end silently.
    assert_eq!(world.hosts[1].engine.sessions().count(), 0);
    assert!(world.now < Time::from_secs(120), "{}", world.now);
}

/// Segment that requests a report, of a session that nobody continues.
fn checkpoint(n: u64) -> Vec<u8> {
    let session = SessionId { originator: 7, number: n + 1 };
    let checkpoint = Some(Checkpoint { serial: 1 + n, report: 0 });
    let kind = DataKind::Checkpoint;
    let data = Data { kind, service: FILE_SERVICE, offset: 64, checkpoint, data: b"asks" };
    Segment::new(session, Body::Data(data)).to_vec().expect("a segment")
}

#[test]
fn sessions_of_few_segments_are_evicted() {
    for segments in [1, 2] {
        let file = content(1_000_000);
        let mut world = World::with(&Config::default());
        world.logging = false;
        let mut sent = 0;
        let mut flood = |world: &mut World| {
            world.hear(1, &checkpoint(sent));
            if segments == 2 {
                let mut second = checkpoint(sent);
                second.pop();
                world.hear(1, &[&second[..], b"?"].concat());
            }
            sent += 1;
        };
        // All slots are taken.
        for _ in 0..2000 {
            flood(&mut world);
            world.run_until(world.now + Duration::from_millis(1));
        }
        world.send(&file, Red::All);
        let (mut memory, mut sessions) = (0, 0);
        while world.finished(0).is_none() && world.step() {
            flood(&mut world);
            memory = memory.max(world.hosts[1].engine.memory());
            sessions = sessions.max(world.hosts[1].engine.sessions().count());
        }
        let files = world.hosts[1].files_most;
        println!("{sent} sessions of {segments}: {memory} B, {sessions} sessions, {files} files");
        assert_eq!(world.finished(0).expect("it ended").result, Ok(()));
        assert!(world.hosts[1].store.get(&name("copy")) == Some(&file[..]));
        assert!(memory < 12_000_000 && sessions <= 875, "{memory} {sessions}");
        assert!(files <= if segments == 1 { 1 } else { 875 }, "{files}");
        let dropped = world.hosts[1].engine.stats().half_open_dropped;
        assert!(dropped > 1000, "{dropped} of {sent}");
        world.run();
        assert_eq!(world.hosts[1].engine.sessions().count(), 0);
    }
}

/// Opens a path for each port of each host.
fn open(world: &mut World, hosts: u64, ports: u64) {
    for n in 0..hosts * ports {
        let peer = SocketAddr::from(([10, 9, 0, (n / ports) as u8], 1024 + (n % ports) as u16));
        let here = SocketAddr::from(([10, 0, 0, 1], 1113));
        let info = PathInfo { ends: Some((here, peer)), ..PathInfo::datagram(1472) };
        world.input(1, Input::Path(PathId(1000 + n as u32), PathEvent::Up(info)));
    }
}

/// Segments of a session that nobody continues: three without a checkpoint, three with one, one
/// for an unknown service, or a whole block.
fn session(world: &mut World, n: u64, paths: u64, kind: u64) {
    let data = |offset, is_end, service| {
        let checkpoint = is_end && kind > 0;
        let kind = match (checkpoint, kind) {
            (false, _) => DataKind::Red,
            (true, 1) => DataKind::Checkpoint,
            (true, _) => DataKind::EndOfRedBlock,
        };
        let checkpoint = checkpoint.then_some(Checkpoint { serial: 1 + n, report: 0 });
        Body::Data(Data { kind, service, offset, checkpoint, data: b"x" })
    };
    let bodies = match kind {
        0 | 1 => vec![
            data(0, false, FILE_SERVICE),
            data(5, false, FILE_SERVICE),
            data(9, true, FILE_SERVICE),
        ],
        2 => vec![data(0, true, 99)],
        _ => vec![data(0, true, FILE_SERVICE)],
    };
    let id = SessionId { originator: 1, number: n + 1 };
    for body in bodies {
        let segment = Segment::new(id, body).to_vec().expect("a segment");
        let path = PathId(1000 + (n % paths) as u32);
        world.input(1, Input::Receive(Receive::datagram(path, &segment)));
    }
}

#[test]
fn transfers_succeed_at_once_after_and_during_a_flood() {
    let raw = Format::Raw { name: "copy".to_owned() };
    for (hosts, ports) in [(1, 2), (50, 1), (250, 1)] {
        for (kind, format) in [
            (0, Format::Described),
            (1, Format::Described),
            (2, Format::Described),
            (3, raw.clone()),
        ] {
            for goes_on in [false, true] {
                let file = content(200_000);
                let config = Config { format: format.clone(), ..Config::default() };
                let mut world = World::with(&config);
                world.logging = false;
                world.lose(|side, _, datagram| {
                    let segment = Segment::decode(datagram).expect("a segment");
                    side == 1 && segment.session.number < 1 << 20
                });
                open(&mut world, hosts, ports);
                let paths = hosts * ports;
                (0..1100).for_each(|n| session(&mut world, n, paths, kind));
                world.send(&file, Red::All);
                let (began, mut n) = (world.now, 1100);
                while world.finished(0).is_none() && n < 10_000 {
                    // 5,000 a second, of which nobody acknowledges a report.
                    (n..n + 5).for_each(|n| {
                        if goes_on {
                            session(&mut world, n, paths, kind);
                        }
                    });
                    n += 5;
                    world.run_until(world.now + Duration::from_millis(1));
                    assert!(world.hosts[1].engine.sessions().count() <= 876);
                    assert!(world.hosts[1].engine.memory() < 12_000_000);
                }
                let case = format!("{hosts} hosts, kind {kind}, {goes_on}");
                assert_eq!(world.finished(0).expect("it ended").result, Ok(()), "{case}");
                // 200 kB at 10 Mbit/s.
                let took = world.now.since(began);
                assert!(took < Duration::from_millis(500), "{case}: {took:?}");
            }
        }
    }
}

/// The receiver's slots are taken, and it sends.
#[test]
fn slots_are_reserved_for_own_transfers() {
    let mut world = World::with(&Config::default());
    world.lose(|_, _, _| true);
    for n in 0..2000 {
        let session = SessionId { originator: 7, number: n + 1 };
        for offset in 0..2 {
            let kind = DataKind::Red;
            let data = Data { kind, service: FILE_SERVICE, offset, checkpoint: None, data: b"x" };
            let segment = Segment::new(session, Body::Data(data));
            world.hear(1, &segment.to_vec().expect("a segment"));
        }
    }
    assert!(world.hosts[1].engine.sessions().count() <= 875);
    let (source, copy) = (name("source"), "copy".to_owned());
    let request = SendRequest { destination: 1, source, name: copy, red: Red::All };
    assert!(world.hosts[1].engine.send(world.now, request).is_ok());
}

#[test]
fn an_empty_raw_block_is_refused() {
    for red in [Red::All, Red::None] {
        let format = Format::Raw { name: "copy".to_owned() };
        let mut world = World::with(&Config { format, ..Config::default() });
        world.send(&[], red);
        world.run();
        let failure = world.finished(0).expect("it ended").result.expect_err("it failed");
        assert_eq!(failure.cause, Some(Cause::Empty));
        assert!(world.log.is_empty());
    }
    let mut world = World::with(&Config::default());
    world.send(&[], Red::All);
    world.run();
    world.assert_delivered(&[]);
}

#[test]
fn a_path_that_is_too_narrow_is_refused_before_anything_is_sent() {
    for (mtu, is_sent) in [(1, false), (40, false), (96, true)] {
        let mut world = World::with(&Config::default());
        world.hops[0].info =
            PathInfo { kind: engine::PathKind::Datagram { mtu }, ..world.hops[0].info };
        world.up(0);
        world.up(1);
        world.send(&content(2000), Red::All);
        world.run();
        let result = world.finished(0).expect("it ended").result;
        if is_sent {
            assert_eq!(result, Ok(()), "{mtu}");
            continue;
        }
        assert!(world.log.is_empty(), "{mtu}");
        let Some(Cause::TooNarrow { least, mtu: of }) = result.expect_err("it failed").cause else {
            panic!("{mtu}: {result:?}");
        };
        assert_eq!(of, mtu as u64);
        // As many are enough.
        let mut world = World::with(&Config::default());
        let mtu = least as usize;
        world.hops[0].info =
            PathInfo { kind: engine::PathKind::Datagram { mtu }, ..world.hops[0].info };
        world.up(0);
        world.up(1);
        world.send(&content(2000), Red::All);
        world.run();
        assert_eq!(world.finished(0).expect("it ended").result, Ok(()), "{mtu}");
    }
}
