//! Unannounced outages, and their ends.

use std::time::Duration;

use engine::{Input, PathEvent, PathId, Receive, Rng, Time};

use super::world::{PATH, World, content};
use crate::segment::{Body, CancelReason, Segment};
use crate::{Cause, Config, Pin, Red, Remote, Timer};

const SECOND: Duration = Duration::from_secs(1);

fn after(seconds: f64) -> Time {
    Time::ZERO + Duration::from_secs_f64(seconds)
}

/// Whether segments of the sides 0 and 1 are lost.
fn cut(world: &mut World, sides: [bool; 2]) {
    world.lose(move |side, _, _| sides[side]);
}

const DIRECTIONS: [[bool; 2]; 3] = [[true, true], [true, false], [false, true]];

#[test]
fn unannounced_outages_are_survived_within_inactivity() {
    let file = content(500_000);
    for sides in DIRECTIONS {
        for lasts in [60.0, 1400.0, 3000.0, 18_000.0] {
            let inactivity =
                if lasts > 3600.0 { Timer::Fixed(86_400 * SECOND) } else { Timer::Auto };
            let default_remote = Remote { inactivity, ..Remote::default() };
            let mut world = World::with(&Config { default_remote, ..Config::default() });
            world.send(&file, Red::All);
            world.run_until(after(0.1));
            cut(&mut world, sides);
            world.run_until(after(lasts));
            let during = world.log.len();
            world.lose(|_, _, _| false);
            world.run();
            world.assert_delivered(&file);
            // 0.4 s of data, and probes each 500 ms from either side.
            assert!(during < 600 + 8 * lasts as usize, "{sides:?}: {during} datagrams");
            let took = world.now.since(after(lasts)).as_secs_f64();
            assert!(took < 0.5 + 0.075 + 0.45 + 0.1, "{sides:?}, {lasts} s: {took} s");
        }
    }
}

#[test]
fn silence_for_longer_ends_the_session_at_both_sides() {
    let mut world = World::with(&Config::default());
    world.send(&content(500_000), Red::All);
    world.run_until(after(0.1));
    cut(&mut world, [true, true]);
    world.run();
    let [sender, receiver] = [0, 1].map(|side| {
        let failure = world.finished(side).expect("it ended").result.expect_err("it failed");
        assert_eq!(failure.cause, Some(Cause::Silence), "{failure}");
        failure.reason
    });
    assert_eq!(sender, CancelReason::RetransmissionLimit);
    assert_eq!(receiver, CancelReason::System);
    // An hour, eight replies, and four cancellations.
    assert!(world.now > after(3600.0) && world.now < after(3610.0), "{}", world.now);
    for cancel in [">x CS RLEXC", "<x CR SYS_CNCLD"] {
        let sent = world.transcript().into_iter().filter(|line| line == cancel);
        assert_eq!(sent.count(), 4, "{cancel}");
    }
}

#[test]
fn the_time_of_silence_can_be_set() {
    let default_remote = Remote { inactivity: Timer::Fixed(20 * SECOND), ..Remote::default() };
    let mut world = World::with(&Config { default_remote, ..Config::default() });
    cut(&mut world, [true, true]);
    world.send(&content(1000), Red::All);
    world.run_until(after(19.9));
    assert!(world.finished(0).is_none());
    world.run_until(after(20.5));
    assert!(world.finished(0).is_some());
}

/// Ten reports in a row are lost, or ten checkpoints.
#[test]
fn a_tail_of_losses_does_not_back_off_to_minutes() {
    for side in [0, 1] {
        let file = content(2500);
        let mut world = World::with(&Config::default());
        let mut left = 10;
        world.lose(move |from, _, datagram| {
            let body = Segment::decode(datagram).expect("a segment").body;
            let asks = matches!(body, Body::Data(data) if data.checkpoint.is_some());
            let is_it = from == side && (asks || matches!(body, Body::Report(_)));
            left -= i32::from(is_it && left > 0);
            is_it && left > 0
        });
        world.send(&file, Red::All);
        world.run();
        world.assert_delivered(&file);
        assert!(world.now < after(2.5), "{side}: {}", world.now);
    }
}

#[test]
fn restored_paths_are_used_at_once() {
    let file = content(2500);
    for is_return in [false, true] {
        let mut world = World::with(&Config::default());
        world.lose(|_, number, _| number >= 2);
        world.send(&file, Red::All);
        // The checkpoint was just repeated when the link goes down.
        world.run_until(after(0.07));
        let down = if is_return { PathEvent::ReturnDown } else { PathEvent::Down };
        for side in 0..2 {
            world.input(side, Input::Path(PATH, down.clone()));
        }
        world.run_until(after(100.0));
        let before = world.log.len();
        world.lose(|_, _, _| false);
        for side in 0..2 {
            if is_return {
                world.input(side, Input::Path(PATH, PathEvent::ReturnUp));
            } else {
                world.up(side);
            }
        }
        world.run();
        world.assert_delivered(&file);
        assert_eq!(world.log[before].at, after(100.0), "{is_return}");
        assert!(world.now < after(100.3), "{is_return}: {}", world.now);
    }
}

/// The light time is 22 min, and 30 % of segments are lost.
#[test]
fn losses_over_long_links_do_not_count_as_silence() {
    let file = content(200_000);
    for seed in 0..20 {
        let mut world = World::with(&Config::default());
        world.hops[0].info.owlt = Some(Duration::from_secs(1320));
        world.hops[0].info.rate_bps = Some(1_000_000);
        world.up(0);
        world.up(1);
        let mut rng = Rng::new(seed, "losses");
        world.lose(move |_, _, _| rng.below(10) < 3);
        world.send(&file, Red::All);
        world.run();
        world.assert_delivered(&file);
    }
}

/// A segment that is not from the peer does not end its silence.
#[test]
fn forged_segments_do_not_count_as_activity() {
    let other = PathId(9);
    for (pin, cookies) in [(Pin::Address, false), (Pin::Off, true)] {
        let (path, checkpoint_every) = (Some(PATH), Some(50_000));
        let default_remote = Remote { path, pin, checkpoint_every, ..Remote::default() };
        let config = Config { cookies, default_remote, ..Config::default() };
        let mut world = World::with(&config);
        let up = PathEvent::Up(world.hops[0].info.clone());
        world.input(1, Input::Path(other, up));
        let id = world.send(&content(500_000), Red::All);
        world.run_until(after(0.3));
        let before = world.hosts[1].engine.core.received_at.get(&PATH).copied();
        assert!(before.is_some());
        world.lose(|_, _, _| true);
        world.run_until(after(100.0));
        let forged = Segment::new(id, Body::ReportAck { serial: 5 }).to_vec().expect("a segment");
        world.input(1, Input::Receive(Receive::datagram(other, &forged)));
        let stats = world.hosts[1].engine.stats();
        assert_eq!(stats.stray + stats.wrong_cookies, 1, "{pin:?}");
        let since = world.hosts[1].engine.core.received_at.get(&PATH).copied();
        assert!(since < Some(after(1.0)), "{pin:?}: {since:?}");
    }
}
