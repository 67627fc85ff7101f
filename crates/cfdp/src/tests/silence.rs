//! Silence: outages without notice, lost replies over long delays, vanished peers.

use std::time::Duration;

use engine::{Input, PathEvent, PathInfo, Rng, Time};

use super::hostile::{data, eof, header, metadata, say};
use super::world::{PATH, World, config, content, lose_these, name, put_request};
use crate::pdu::{ConditionCode, DeliveryCode, FaultHandler, TransmissionMode};
use crate::test_world::path_info;
use crate::{Config, Indication, PutRequest, Remote, Timer};

const DAY: Timer = Timer::Fixed(Duration::from_secs(86_400));

/// World with a put of `file` over a path of this one-way light time and rate.
fn world_with(config: &Config, file: &[u8], owlt: Duration, rate_bps: u64) -> World {
    let info = PathInfo { owlt: Some(owlt), rate_bps: Some(rate_bps), ..path_info() };
    let mut world = World::with_path(config, info);
    world.logging = false;
    world.hosts[0].store.insert(name("source"), file.to_vec());
    world.put(put_request());
    world
}

fn condition(world: &World, side: usize) -> Option<ConditionCode> {
    world.finished(side).map(|finished| finished.condition)
}

/// Loses everything that these sides send.
fn lose_from(world: &mut World, sides: &'static [usize]) {
    world.lose(move |side, _, _| sides.contains(&side));
}

/// Unannounced outage from 0.8 s into a file of 4 s. Returns the time from its end until delivery,
/// and until the confirmation at the sender.
fn after_outage(secs: u64, sides: &'static [usize]) -> (Duration, Duration) {
    let file = content(5_000_000);
    let owlt = Duration::from_millis(250);
    let config = config(|remote| remote.inactivity = DAY);
    let mut world = world_with(&config, &file, owlt, 10_000_000);
    world.run_until(Time::from_nanos(800_000_000));
    lose_from(&mut world, sides);
    let end = world.now + Duration::from_secs(secs);
    world.run_until(end);
    world.lose(|_, _, _| false);
    let mut delivered = end;
    while world.finished(0).is_none() {
        assert!(world.step(), "{sides:?} for {secs} s");
        if delivered == end && world.finished(1).is_some() {
            delivered = world.now;
        }
    }
    assert_eq!(condition(&world, 0), Some(ConditionCode::NoError), "{sides:?} for {secs} s");
    assert!(world.hosts[1].store.get(&name("copy")) == Some(&file[..]));
    (delivered.since(end), world.now.since(end))
}

#[test]
fn unannounced_outages_are_bounded_by_inactivity() {
    // Data sent into the outage of the forward link: 4.4 s of the file with its headers.
    let left = Duration::from_millis(3_600);
    let two_round_trips = Duration::from_secs(1);
    for secs in [650, 1400, 3000, 18_000] {
        for sides in [&[0, 1][..], &[0], &[1]] {
            let (delivered, known) = after_outage(secs, sides);
            let left = if sides.contains(&0) { left } else { Duration::ZERO };
            assert!(delivered <= two_round_trips + left, "{sides:?} {secs} s: {delivered:?}");
            assert!(known <= two_round_trips + left + Duration::from_millis(500), "{known:?}");
        }
    }
}

#[test]
fn a_dead_peer_costs_the_inactivity_limit() {
    for lost in 0..2 {
        let mut world = World::new(&config(|_| {}));
        world.hosts[0].store.insert(name("source"), content(5000));
        world.logging = false;
        world.lose(move |side, _, _| side == lost);
        world.put(put_request());
        while world.finished(0).is_none() {
            assert!(world.step());
        }
        // 3,600 s and eight replies of 58 ms after the last sign of life.
        assert_eq!(condition(&world, 0), Some(ConditionCode::InactivityDetected));
        let secs = world.now.as_secs_f64();
        assert!((3600.0..3602.0).contains(&secs), "{lost}: {secs}");
        world.run();
        // 30 EOFs that cancel take 20 min at most; a receiver that is done waits an hour from then.
        assert!(world.now < Time::from_secs(3 * 3600), "{}", world.now);
        for side in &world.hosts {
            assert_eq!(side.engine.transactions().count(), 0);
        }
    }
}

#[test]
fn receivers_of_vanished_senders_end_by_inactivity() {
    let limit = Timer::Fixed(Duration::from_secs(60));
    let mut world = World::new(&config(|remote| remote.inactivity = limit));
    say(&mut world, 1, header(1), metadata(10));
    say(&mut world, 1, header(1), data(0, b"01234"));
    world.run();
    assert_eq!(condition(&world, 1), Some(ConditionCode::InactivityDetected));
    // 60 s, and 30 Finished PDUs with waits that double to 60 s.
    assert!(world.now < Time::from_secs(60 + 30 * 60), "{}", world.now);
    assert_eq!(world.hosts[1].engine.transactions().count(), 0);
}

#[test]
fn finished_is_repeated_until_the_sender_was_silent_for_long() {
    let limit = Timer::Fixed(Duration::from_secs(60));
    let mut world = World::new(&config(|remote| remote.inactivity = limit));
    let file = b"0123456789";
    say(&mut world, 1, header(1), metadata(10));
    say(&mut world, 1, header(1), data(0, file));
    say(&mut world, 1, header(1), eof(file));
    world.lose(|_, _, _| true);
    world.run();
    assert_eq!(condition(&world, 1), Some(ConditionCode::NoError));
    let finished = world.transcript().iter().filter(|line| line.contains("Finished")).count();
    // The sender has not shown that it receives any: waits grow from the third on, to a minute.
    assert!((8..=18).contains(&finished), "{finished}");
    let faults = world.hosts[1].indications.iter().filter(|indication| {
        matches!(indication, Indication::Fault { condition: ConditionCode::InactivityDetected, .. })
    });
    assert_eq!(faults.count(), 1);
    assert!((60.0..120.0).contains(&world.now.as_secs_f64()), "{}", world.now);
}

#[test]
fn a_cancelled_sender_does_not_wait_for_the_inactivity_limit() {
    let mut world = World::new(&config(|remote| remote.inactivity = DAY));
    world.hosts[0].store.insert(name("source"), content(5000));
    world.lose(|side, _, _| side == 0);
    let id = world.put(put_request());
    world.run_until(Time::from_nanos(20_000_000));
    world.hosts[0].engine.cancel(world.now, id).expect("it is under way");
    world.drain(0);
    world.run_until(Time::from_secs(3600));
    assert_eq!(world.hosts[0].engine.transactions().count(), 0);
    let lines = world.transcript();
    let eofs = lines.iter().filter(|line| line.contains("EOF") && line.contains("cancel")).count();
    assert_eq!(eofs, 30);
}

#[test]
fn silence_counts_from_the_first_sent_eof() {
    let mut world = world_with(
        &config(|remote| remote.inactivity = Timer::Fixed(Duration::from_secs(2))),
        &content(100_000),
        Duration::from_millis(25),
        // 100 kB take 8 s, four times the limit.
        100_000,
    );
    world.logging = true;
    while !world.datagrams().iter().any(|line| line.text.starts_with("EOF")) {
        assert!(world.step());
    }
    world.input(0, Input::Path(PATH, PathEvent::Down));
    world.run_until(world.now + Duration::from_millis(10));
    world.up(0);
    world.run();
    assert_eq!(condition(&world, 0), Some(ConditionCode::NoError));
}

#[test]
fn late_data_restarts_the_checks_of_class_1() {
    let mut world = World::new(&config(|_| {}));
    let header = crate::pdu::Header { mode: TransmissionMode::Unacknowledged, ..header(1) };
    let file = b"0123456789";
    say(&mut world, 1, header, metadata(10));
    say(&mut world, 1, header, eof(file));
    // Each arrives before the fourth check, and all of them far later.
    for at in 0..10 {
        world.run_until(world.now + Duration::from_millis(1400));
        say(&mut world, 1, header, data(at, &file[at as usize..][..1]));
    }
    world.run();
    assert_eq!(world.finished(1).map(|f| f.delivery), Some(DeliveryCode::Complete));

    // Without data, the limit holds.
    say(&mut world, 1, crate::pdu::Header { sequence: 2, ..header }, metadata(10));
    say(&mut world, 1, crate::pdu::Header { sequence: 2, ..header }, eof(file));
    world.run();
    assert_eq!(condition(&world, 1), Some(ConditionCode::CheckLimitReached));
}

#[test]
fn silent_rounds_send_one_nak() {
    let mut world = World::new(&config(|remote| {
        remote.inactivity = Timer::Fixed(Duration::from_secs(20));
    }));
    world.hosts[0].store.insert(name("source"), content(1_000_000));
    world.put(put_request());
    // Every second data PDU is lost, and all that follows the EOF.
    let mut ended = false;
    world.lose(move |side, number, datagram| {
        ended |= side == 0 && datagram.len() < 40 && number > 1;
        side == 0 && (number % 2 == 0 && number > 0 || ended && datagram.len() > 40)
    });
    world.run_until(Time::from_secs(10));
    let naks = world.transcript().iter().filter(|line| line.starts_with("< NAK")).count();
    // 490 gaps are four PDUs. Three rounds of them, and one each 250 ms for 9 s.
    assert!((12..=60).contains(&naks), "{naks}");
    world.lose(|_, _, _| false);
    world.run();
    assert_eq!(condition(&world, 0), Some(ConditionCode::NoError));
}

#[test]
fn transfers_to_mars_survive_one_third_losses() {
    let file = content(1_000_000);
    for seed in 0..6 {
        let owlt = Duration::from_secs(1320);
        let mut world = world_with(&config(|_| {}), &file, owlt, 1_000_000);
        let mut rng = Rng::new(seed, "losses");
        world.lose(move |_, _, _| rng.chance(0.3));
        world.run();
        for side in 0..2 {
            assert_eq!(condition(&world, side), Some(ConditionCode::NoError), "seed {seed}");
        }
        assert!(world.hosts[1].store.get(&name("copy")) == Some(&file[..]));
    }
}

#[test]
fn configured_limits_hold() {
    let limited = |change: fn(&mut Remote), lost: &[(usize, &str)]| {
        let mut world = World::new(&config(change));
        world.hosts[0].store.insert(name("source"), content(5000));
        let mode = Some(TransmissionMode::Acknowledged);
        world.put(PutRequest { mode, ..put_request() });
        world.lose(lose_these(&lost.repeat(50)));
        world.run();
        (condition(&world, 0), condition(&world, 1))
    };
    let (sender, _) = limited(|remote| remote.ack_limit = Some(4), &[(1, "ACK"), (1, "Finished")]);
    assert_eq!(sender, Some(ConditionCode::PositiveAckLimitReached));
    let (_, receiver) = limited(|remote| remote.naks.limit = Some(4), &[(0, "data 0")]);
    assert_eq!(receiver, Some(ConditionCode::NakLimitReached));
}

/// The path accepts nothing any more, so that neither a cancelling EOF nor a Finished PDU is sent.
#[test]
fn a_cancellation_that_cannot_leave_ends_with_the_silence() {
    for side in 0..2 {
        let inactivity = Timer::Fixed(Duration::from_secs(60));
        let mut world = World::new(&config(|remote| remote.inactivity = inactivity));
        world.hosts[0].store.insert(name("source"), content(500_000));
        let id = world.put(put_request());
        world.run_until(Time::from_nanos(80_000_000));
        world.input(side, Input::Path(PATH, PathEvent::Blocked));
        let now = world.now;
        world.hosts[side].engine.cancel(now, id).expect("it is under way");
        world.drain(side);
        world.run();
        for side in &world.hosts {
            assert_eq!(side.engine.transactions().count(), 0);
        }
        assert!(world.now < Time::from_secs(600), "{}", world.now);
    }
}

const HOUR: Timer = Timer::Fixed(Duration::from_secs(3600));

/// Whether a side was suspended because its peer is silent.
fn is_suspended(world: &World, side: usize) -> bool {
    world.hosts[side].indications.iter().any(|indication| {
        let silence = ConditionCode::InactivityDetected;
        matches!(indication, Indication::Suspended { condition, .. } if *condition == silence)
    })
}

/// World in which both directions go down for hours when half of the file is sent.
fn silent(config: &Config, file: &[u8]) -> World {
    let mut world = world_with(config, file, Duration::from_millis(250), 10_000_000);
    world.run_until(Time::from_secs(2));
    lose_from(&mut world, &[0, 1]);
    world.run_until(Time::from_secs(20_000));
    world
}

#[test]
fn a_transfer_that_silence_suspended_resumes() {
    let file = content(5_000_000);
    let mut config = config(|remote| remote.inactivity = HOUR);
    config.faults.set(ConditionCode::InactivityDetected, FaultHandler::Suspend);
    let mut world = silent(&config, &file);
    assert!((0..2).all(|side| is_suspended(&world, side) && world.finished(side).is_none()));
    // The sender's process ends, and the same command runs again.
    world.lose(|_, _, _| false);
    world.restart(0);
    world.put(PutRequest { resume: true, ..put_request() });
    world.run();
    assert_eq!(condition(&world, 0), Some(ConditionCode::NoError));
    assert!(world.hosts[1].store.get(&name("copy")) == Some(&file[..]));
    let again = world.hosts[0].engine.stats().repair_bytes;
    assert!((1_000_000..3_500_000).contains(&again), "{again} bytes are sent again");
}

#[test]
fn silent_receptions_of_class_2_are_kept_if_wanted() {
    let file = content(5_000_000);
    let kept = Config { keep_silent: true, ..config(|remote| remote.inactivity = HOUR) };
    let world = silent(&kept, &file);
    assert!(is_suspended(&world, 1) && world.finished(1).is_none());
    let mut class_1 = kept;
    class_1.default_remote.mode = TransmissionMode::Unacknowledged;
    let world = silent(&class_1, &file);
    assert_eq!(condition(&world, 1), Some(ConditionCode::InactivityDetected));
    assert_eq!(world.hosts[1].engine.transactions().count(), 0);
}

#[test]
fn a_lost_last_ack_changes_nothing_for_the_receiver() {
    let file = content(50_000);
    let config = config(|remote| remote.inactivity = HOUR);
    let mut world = world_with(&config, &file, Duration::from_secs(8), 10_000_000);
    world.lose(lose_these(&[(0, "ACK Finished"); 100_000]));
    world.run_until(Time::from_secs(20));
    assert_eq!(condition(&world, 0), Some(ConditionCode::NoError));
    // The sender leaves.
    lose_from(&mut world, &[0]);
    world.run();
    assert_eq!(condition(&world, 1), Some(ConditionCode::NoError));
    assert!(world.hosts[1].store.get(&name("copy")) == Some(&file[..]));
    assert_eq!(world.hosts[1].engine.transactions().count(), 0, "it ends by itself");
}
