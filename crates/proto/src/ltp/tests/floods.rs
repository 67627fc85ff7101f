//! Floods of sessions, and blocks that cannot be sent.

use std::time::Duration;

use engine::{Area, Time};
use wire::ltp::{Body, Checkpoint, Data, DataKind, Segment, SessionId};

use super::world::{World, content, name};
use crate::ltp::{Cause, Config, FILE_SERVICE, Format, Red, SendRequest};

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
            let side = &world.sides[1];
            memory = memory.max(side.engine.memory());
            sessions = sessions.max(side.engine.sessions().count());
            files = files.max(side.store.names(Area::Spool).count());
        }
    }
    assert_eq!(sent, FLOOD);
    println!("{FLOOD} sessions left: {memory} bytes, {sessions} sessions, {files} files at most");
    assert!(world.sides[1].store.get(&name("copy")) == Some(&file[..]));
    assert_eq!(world.finished(0).expect("it ended").result, Ok(()));
    assert!(memory < 12_000_000 && sessions <= 251 && files <= 1, "{memory} {sessions} {files}");
    assert!(world.sides[1].engine.stats().half_open_dropped > FLOOD - 1000);
    // The remaining ones end silently.
    assert_eq!(world.sides[1].engine.sessions().count(), 0);
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
            memory = memory.max(world.sides[1].engine.memory());
            sessions = sessions.max(world.sides[1].engine.sessions().count());
        }
        let files = world.sides[1].files_most;
        println!("{sent} sessions of {segments}: {memory} B, {sessions} sessions, {files} files");
        assert_eq!(world.finished(0).expect("it ended").result, Ok(()));
        assert!(world.sides[1].store.get(&name("copy")) == Some(&file[..]));
        assert!(memory < 12_000_000 && sessions <= 875, "{memory} {sessions}");
        assert!(files <= if segments == 1 { 1 } else { 875 }, "{files}");
        let dropped = world.sides[1].engine.stats().half_open_dropped;
        assert!(dropped > 1000, "{dropped} of {sent}");
        world.run();
        assert_eq!(world.sides[1].engine.sessions().count(), 0);
    }
}

/// The receiver's slots are taken, and it sends.
#[test]
fn slots_are_reserved_for_own_transfers() {
    let mut world = World::with(&Config::default());
    world.lose = Box::new(|_, _, _| true);
    for n in 0..2000 {
        let session = SessionId { originator: 7, number: n + 1 };
        for offset in 0..2 {
            let kind = DataKind::Red;
            let data = Data { kind, service: FILE_SERVICE, offset, checkpoint: None, data: b"x" };
            let segment = Segment::new(session, Body::Data(data));
            world.hear(1, &segment.to_vec().expect("a segment"));
        }
    }
    assert!(world.sides[1].engine.sessions().count() <= 875);
    let (source, copy) = (name("source"), "copy".to_owned());
    let request = SendRequest { destination: 1, source, name: copy, red: Red::All };
    assert!(world.sides[1].engine.send(world.now, request).is_ok());
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
        world.info = engine::PathInfo { kind: engine::PathKind::Datagram { mtu }, ..world.info };
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
        world.info = engine::PathInfo { kind: engine::PathKind::Datagram { mtu }, ..world.info };
        world.up(0);
        world.up(1);
        world.send(&content(2000), Red::All);
        world.run();
        assert_eq!(world.finished(0).expect("it ended").result, Ok(()), "{mtu}");
    }
}
