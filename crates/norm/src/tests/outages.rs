//! Times at which a receiver requests again, for which either side waits for a silent peer, and
//! until a transfer resumes after an unannounced outage.

use std::time::Duration;

use engine::Time;
use session::timer::Timer;

use super::world::{World, content};
use crate::message::{Body, Command, Flags, Message};
use crate::{Config, Failure};

const DAY: Duration = Duration::from_secs(86_400);

/// World with another delay and rate.
fn far(config: &Config, delay: Duration, rate_bps: u64) -> World {
    let mut world = World::with(config);
    (world.hops[0].info.owlt, world.hops[0].info.rate_bps) = (Some(delay), Some(rate_bps));
    (0..2).for_each(|side| world.up(side));
    world
}

/// Runs until one side's transfer ended.
fn run_to_end_of(world: &mut World, side: usize) -> Time {
    while world.finished(side).is_none() {
        assert!(world.step(), "no end: {:#?}", world.transcript());
    }
    world.now
}

/// Sending times of the messages for which `is`.
fn times(world: &World, is: impl Fn(&Body<'_>) -> bool) -> Vec<f64> {
    let sent = world
        .log
        .iter()
        .filter(|sent| is(&Message::decode(&sent.bytes).expect("nodes send messages").body));
    sent.map(|sent| sent.at.as_secs_f64()).collect()
}

fn is_nack(body: &Body<'_>) -> bool {
    matches!(body, Body::Nack(_))
}

fn is_flush(body: &Body<'_>) -> bool {
    matches!(body, Body::Command(Command::Flush { .. }))
}

/// Loses a segment, and the first `repairs` repairs.
fn lose_repairs(world: &mut World, mut repairs: usize) {
    let mut is_first = true;
    world.lose(move |side, _, datagram| {
        let Ok(Message { body: Body::Data(data), .. }) = Message::decode(datagram) else {
            return false;
        };
        if data.flags.contains(Flags::REPAIR) {
            let lost = repairs > 0;
            repairs = repairs.saturating_sub(1);
            return lost;
        }
        side == 0 && data.id.symbol == 9 && std::mem::take(&mut is_first)
    });
}

#[test]
fn a_lost_repair_is_requested_again_after_the_hold_off() {
    for (delay, latest) in [(5_000, 28.9), (250, 2.2), (480_000, 2_700.0)] {
        let mut world = far(&Config::default(), Duration::from_millis(delay), 1_000_000);
        let file = content(50_000);
        // One segment, and both repairs of the first round: a requested and a spare one.
        lose_repairs(&mut world, 2);
        world.send(&file);
        let delivered = run_to_end_of(&mut world, 1).as_secs_f64();
        let nacks = times(&world, is_nack);
        assert_eq!(nacks.len(), 2, "{delay} ms: {:#?}", world.transcript());
        let gap = nacks[1] - nacks[0];
        let round_trip = 2.0 * delay as f64 / 1e3;
        // A GRTT and a quarter, rounded up by its quantisation.
        assert!((1.0..1.5).contains(&(gap / round_trip)), "{delay} ms: {nacks:?}");
        assert!(delivered < latest, "{delay} ms: {delivered}");
        world.run();
        world.assert_delivered(&file);
    }
}

#[test]
fn requests_repeat_after_the_hold_off_with_exact_clocks() {
    let mut world = far(&Config::default(), Duration::from_secs(5), 1_000_000);
    let file = content(50_000);
    let (mut is_first, mut repairs, mut flushes) = (true, 2, 0);
    world.lose(move |side, _, datagram| {
        match Message::decode(datagram).expect("nodes send messages").body {
            Body::Data(data) if data.flags.contains(Flags::REPAIR) => {
                repairs -= 1;
                repairs >= 0
            }
            Body::Data(data) => data.id.symbol == 9 && std::mem::take(&mut is_first),
            // The flush after the repairs is lost, too; a probe still shows that the sender is
            // alive.
            Body::Command(Command::Flush { .. }) if side == 0 => {
                flushes += 1;
                flushes > 1
            }
            _ => false,
        }
    });
    let config_grtt = 12.5;
    world.send(&file);
    world.run_until(Time::from_secs(30));
    let nacks = times(&world, is_nack);
    // GRTT and a quarter after the first one.
    assert_eq!(nacks.len(), 2, "{nacks:?} {:#?}", world.transcript());
    assert!((nacks[1] - nacks[0] - config_grtt).abs() < 2.0, "{nacks:?}");
}

#[test]
fn nothing_repeats_within_unencodable_round_trips() {
    let delay = Duration::from_secs(22 * 60);
    let mut world = far(&Config::default(), delay, 1_000_000);
    let file = content(50_000);
    lose_repairs(&mut world, 0);
    world.send(&file);
    let confirmed = run_to_end_of(&mut world, 0);
    world.run();
    world.assert_delivered(&file);
    assert_eq!(times(&world, is_nack).len(), 1, "{:#?}", world.transcript());
    let repairs =
        |body: &Body<'_>| matches!(body, Body::Data(data) if data.flags.contains(Flags::REPAIR));
    assert!(times(&world, repairs).len() <= 2, "{:#?}", world.transcript());
    // One after the data, one after the repairs.
    assert!(times(&world, is_flush).len() <= 4, "{:?}", times(&world, is_flush));
    assert!(confirmed.as_secs_f64() < 4.2 * 1320.0, "{confirmed}");
}

/// Sends through an outage in which the messages of some sides are lost. Returns the seconds from
/// its end until the sender knew of the delivery, and until the delivery.
fn through(config: &Config, file: &[u8], outage: Duration, sides: &'static [usize]) -> [f64; 2] {
    let mut world = far(config, Duration::from_millis(250), 10_000_000);
    world.logging = false;
    // Without an outage something would still be missing, so that the return link matters.
    let lose_tenth = |side: usize, number: usize| side == 0 && number % 100 == 50;
    world.lose(move |side, number, _| lose_tenth(side, number));
    world.send(file);
    let begin = Time::ZERO + Duration::from_millis(800);
    world.run_until(begin);
    world.lose(move |side, _, _| sides.contains(&side));
    world.run_until(begin + outage);
    world.lose(|_, _, _| false);
    let mut ended = [begin + outage; 2];
    for side in [1, 0] {
        ended[side] = run_to_end_of(&mut world, side);
    }
    world.run();
    world.assert_delivered(file);
    ended.map(|at| at.since(begin + outage).as_secs_f64())
}

#[test]
fn unannounced_outages_are_survived_within_inactivity() {
    let mut config = Config::default();
    config.sender.patience = Timer::Fixed(DAY);
    config.receiver.inactivity = Timer::Fixed(DAY);
    let file = content(2_000_000);
    // Transmission time, at 10 Mbit/s, of the data unsent when the outage began.
    let left = (2_000_000.0 - 0.8 * 10e6 / 8.0) * 8.0 / 10e6 * 1.1;
    for seconds in [650, 1_400, 3_000, 18_000] {
        for sides in [&[0, 1][..], &[0], &[1]] {
            let outage = Duration::from_secs(seconds);
            let [confirmed, delivered] = through(&config, &file, outage, sides);
            println!("{seconds} s, lost of {sides:?}: {delivered:.2} s, {confirmed:.2} s");
            assert!(delivered <= 2.0 * 0.5 + left, "{seconds} s {sides:?}: {delivered}");
            assert!(confirmed <= 3.5 * 0.5 + left, "{seconds} s {sides:?}: {confirmed}");
        }
    }
    // The defaults survive an hour.
    let outage = Duration::from_secs(3_500);
    for sides in [&[0, 1][..], &[0], &[1]] {
        let [_, delivered] = through(&Config::default(), &file, outage, sides);
        assert!(delivered <= 2.0 * 0.5 + left, "{sides:?}: {delivered}");
    }
}

#[test]
fn silence_ends_a_transfer_after_inactivity() {
    let limit = Duration::from_secs(1_000);
    let mut config = Config::default();
    config.sender.patience = Timer::Fixed(limit);
    config.receiver.inactivity = Timer::Fixed(limit);
    let mut world = far(&config, Duration::from_millis(250), 1_000_000);
    let file = content(500_000);
    world.send(&file);
    world.run_until(Time::from_secs(2));
    world.lose(|_, _, _| true);
    let receiver = run_to_end_of(&mut world, 1).as_secs_f64();
    assert!((1_000.0..1_004.0).contains(&receiver), "{receiver}");
    let sender = run_to_end_of(&mut world, 0).as_secs_f64();
    assert!((1_000.0..1_010.0).contains(&sender), "{sender}");
    assert_eq!(world.finished(1).expect("it ended").result, Err(Failure::Silence));
    let missing = Failure::Unacknowledged { missing: 1, known: 1 };
    assert_eq!(world.finished(0).expect("it ended").result, Err(missing));
}
