//! Stores that fail and hosts that crash.

use std::time::Duration;

use super::toy::*;
use bytes::Bytes;
use engine::{
    Effect, EffectError, FileId, FilestoreRequest, PathEffect, StoreEffect, Ticket, Time,
};
use slowlight_sim::{Action, HostConfig, HostId, Limit, Outcome, StoreFaults, World};

fn copy(faults: StoreFaults, piece: usize) -> (World<Toy>, HostId, Vec<(Time, Note)>) {
    let Pair { mut world, earth, .. } = pair(|host| host, &line(Duration::ZERO));
    world.store(earth).insert(file("in"), content(10_000));
    world.store(earth).set_faults(faults);
    world.call(earth, |toy, _| toy.copy(piece, true));
    assert_eq!(world.run(Limit::default()), Outcome::Idle);
    let notes = world.drain_indications().into_iter();
    let copied = notes.filter(|(_, _, note)| matches!(note, Note::Copied(_)));
    let copied = copied.map(|(at, _, note)| (at, note)).collect();
    (world, earth, copied)
}

#[test]
fn a_store_without_faults_completes_at_once() {
    let (mut world, earth, copied) = copy(StoreFaults::default(), 1000);
    assert_eq!(copied, [(Time::ZERO, Note::Copied(Ok(10_000)))]);
    assert_eq!(world.store(earth).get(&file("out")), Some(&content(10_000)[..]));
}

#[test]
fn a_slow_store_delays_its_effects() {
    let latency = Duration::from_millis(5);
    let faults = StoreFaults { latency, bytes_per_second: Some(1_000_000), ..Default::default() };
    let (mut world, earth, copied) = copy(faults, 1000);
    // 2 opens, 11 reads, 10 writes, 1 sync: 24 * 5 ms; a read requests 1,000 bytes even at the end
    // of the file: 11 ms, and the writes 10 ms.
    assert_eq!(copied, [(Time::from_nanos(141_000_000), Note::Copied(Ok(10_000)))]);
    assert_eq!(world.store(earth).get(&file("out")), Some(&content(10_000)[..]));
}

#[test]
fn scheduled_writes_fail() {
    let failed = Note::Copied(Err(EffectError::Failed("the disk failed".into())));
    let faults = StoreFaults { fail_writes: writes(&[4]), ..Default::default() };
    let (mut world, earth, copied) = copy(faults, 1000);
    assert_eq!(copied, [(Time::ZERO, failed.clone())]);
    assert_eq!(world.store(earth).get(&file("out")).unwrap().len(), 3000);
    assert_eq!(world.store(earth).failed_writes(), 1);
    let faults = StoreFaults { fail_write_probability: 0.5, ..Default::default() };
    let (mut world, earth, copied) = copy(faults, 100);
    assert_eq!(copied, [(Time::ZERO, failed)]);
    assert!(world.store(earth).get(&file("out")).unwrap().len() < 3000);
}

#[test]
fn a_store_fills_up() {
    let faults = StoreFaults { capacity: Some(15_000), ..Default::default() };
    let (mut world, earth, copied) = copy(faults, 1000);
    assert_eq!(copied, [(Time::ZERO, Note::Copied(Err(EffectError::NoSpace)))]);
    assert_eq!(world.store(earth).get(&file("out")).unwrap().len(), 5000);
}

/// Writes 100 pieces of ten bytes at one a millisecond, crashes after 50.5 ms, restarts.
fn crash(lose_unsynced: f64, sync: bool) -> Bytes {
    let Pair { mut world, earth, .. } = pair(|host| host, &line(Duration::ZERO));
    world.store(earth).insert(file("in"), Bytes::from(vec![7; 1000]));
    // Two opens, then a read and a write for each piece: piece n is written at 1 + n ms.
    let latency = Duration::from_micros(500);
    world.store(earth).set_faults(StoreFaults { latency, lose_unsynced, ..Default::default() });
    world.call(earth, |toy, _| toy.copy(10, false));
    if sync {
        let sync = |toy: &mut Toy, _| {
            let ticket = Ticket(99);
            toy.copier = None;
            toy.effect(StoreEffect::Sync { ticket, file: FileId(2) });
        };
        world.schedule(Time::from_nanos(48_200_000), Action::Call(earth, Box::new(sync)));
    }
    world.schedule(Time::from_nanos(50_200_000), Action::Crash(earth));
    world.schedule(Time::from_secs(1), Action::Restart(earth));
    assert_eq!(world.run(Limit::default()), Outcome::Idle);
    assert_eq!(world.engine(earth).unwrap().restarts, 1);
    Bytes::copy_from_slice(world.store(earth).get(&file("out")).unwrap())
}

#[test]
fn crashes_lose_unsynced_data() {
    let whole = crash(0.0, false);
    assert_eq!(whole, vec![7; 490]);
    assert_eq!(crash(1.0, false), Bytes::new());
    let torn = crash(0.5, false);
    let kept = torn.iter().filter(|byte| **byte == 7).count();
    assert!(torn.len() <= 490 && (100..400).contains(&kept), "{} {kept}", torn.len());
    assert_eq!(crash(1.0, true), vec![7; 470], "synced data stays");
}

#[test]
fn a_file_that_was_installed_without_sync_keeps_its_name_alone() {
    let install = |sync, to: &'static str| {
        let Pair { mut world, earth, .. } = pair(|host| host, &line(Duration::ZERO));
        world.store(earth).insert(file("in"), content(1000));
        world.store(earth).set_faults(StoreFaults { lose_unsynced: 1.0, ..Default::default() });
        world.call(earth, |toy, _| toy.copy(100, sync));
        world.call(earth, |toy, _| {
            let request = FilestoreRequest::Install { from: file("out"), to: file(to) };
            toy.effect(StoreEffect::Filestore { ticket: Ticket(9), request });
        });
        world.schedule(Time::from_secs(1), Action::Crash(earth));
        assert_eq!(world.run(Limit::default()), Outcome::Idle);
        let store = world.store(earth);
        ["out", to].map(|name| store.get(&file(name)).map(<[u8]>::len))
    };
    assert_eq!(install(true, "final"), [None, Some(1000)]);
    assert_eq!(install(false, "final"), [None, Some(0)]);
    assert_eq!(install(false, "no/such/directory"), [Some(0), None]);
}

#[test]
fn packets_for_a_crashed_host_are_lost_and_it_restarts() {
    let Pair { mut world, earth, moon, .. } = pair(|host| host, &line(Duration::from_millis(10)));
    world.call(earth, |toy, _| toy.send(1000, 1024));
    world.schedule(Time::from_nanos(200_000_000), Action::Crash(moon));
    world.schedule(Time::from_nanos(300_000_000), Action::Restart(moon));
    world.schedule(Time::from_nanos(400_000_000), Action::Restart(moon));
    assert_eq!(world.run(Limit::default()), Outcome::Idle);
    let notes = world.drain_indications();
    let got = received(&notes, moon).len() as u64;
    let stats = world.host_stats(moon);
    // 100 ms of 852.8 us each are 117 packets, plus or minus one at either end.
    assert!((116..=118).contains(&stats.while_down), "{}", stats.while_down);
    assert_eq!(got + stats.while_down, 1000);
    let ups = notes.iter().filter(|(_, host, t)| *host == moon && matches!(t, Note::Up(..)));
    assert_eq!(ups.count(), 3);
    assert_eq!(world.engine(moon).unwrap().restarts, 2);
}

#[test]
fn a_sender_that_crashes_drops_the_batch_it_held() {
    let Pair { mut world, earth, moon, .. } = pair(|host| host, &line(Duration::ZERO));
    world.call(earth, |toy, _| toy.send(10, 1024));
    world.schedule(Time::from_nanos(100), Action::Crash(earth));
    assert_eq!(world.run(Limit::default()), Outcome::Idle);
    assert_eq!(received(&world.drain_indications(), moon).len(), 1);
    assert!(world.engine(earth).is_none());
}

#[test]
fn paused_reading_keeps_what_fits_the_buffer() {
    let small = |host| HostConfig { receive_buffer: 5 * 1052, ..host };
    let Pair { mut world, earth, moon, .. } = pair(small, &line(Duration::ZERO));
    world.call(moon, |toy, _| toy.effect(Effect::Path(PathEffect::PauseRead { path: PATH })));
    world.call(earth, |toy, _| toy.send(8, 1024));
    let resume = |toy: &mut Toy, _| toy.effect(Effect::Path(PathEffect::ResumeRead { path: PATH }));
    world.schedule(Time::from_secs(1), Action::Call(moon, Box::new(resume)));
    assert_eq!(world.run(Limit::default()), Outcome::Idle);
    let got = received(&world.drain_indications(), moon);
    assert_eq!(got, (0..5).map(|n| (Time::from_secs(1), n)).collect::<Vec<_>>());
    assert_eq!(world.host_stats(moon).buffer_full, 3);
}
