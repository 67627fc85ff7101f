//! Links whose rate, delay and outages change while they run, with real packets at real times.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::Path;
use std::thread;
use std::time::{Duration, SystemTime};

use engine::Time;
use link::{Config, Delay, Interpolation, Outages, Queue, Rate, RateStep, WhileDown, Window};
use slowlight_emu::World;
use slowlight_emu::measure::{self, Pace};

use crate::calm::{assert_in_time, calmly};

/// Lateness bound of a packet when other programs use the processors, too.
const LATE: Duration = Duration::from_millis(8);

/// Times of a datagram by the links' clock: sent, between the first and the second, and received
/// by the kernel.
#[derive(Clone, Copy, Debug)]
struct Crossing {
    sent: (Time, Time),
    came: Option<Time>,
}

fn start(config: Config) -> Option<World> {
    match World::start(&measure::pair(config, Config::default(), 1, 64 << 20)) {
        Ok(world) => Some(world),
        Err(error)
            if rustix::process::geteuid().is_root() && Path::new("/dev/net/tun").exists() =>
        {
            panic!("{error}")
        }
        Err(error) => {
            testing::skipped!("worlds need root and /dev/net/tun: {error}");
            None
        }
    }
}

/// Sends datagrams of `len` bytes, headers included, every `gap` from `from` until `until`.
fn send(world: &World, len: usize, gap: Duration, from: Time, until: Time) -> Vec<Crossing> {
    let [near, far] = world.hosts() else { panic!("two hosts") };
    let links = world.links();
    thread::sleep(from.since(links.now()));
    let today = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
    let offset = today - links.now().since(Time::ZERO);
    let count = (until.since(from).as_nanos() / gap.as_nanos()) as u32;
    let pace = Pace { len, gap, count, at_once: 1, patience: Duration::from_millis(700) };
    let (crossings, reordered) = measure::cross(near, far, &pace).unwrap();
    assert_eq!(reordered, 0);
    let time = |of_day: Duration| Time::ZERO + (of_day - offset);
    let crossing = |c: &measure::Crossing| Crossing {
        sent: (time(c.sent), time(c.sent_by)),
        came: c.came.map(time),
    };
    crossings.iter().map(crossing).collect()
}

fn millis(millis: u64) -> Time {
    Time::ZERO + Duration::from_millis(millis)
}

/// Asserts that it arrived at the time that `way` returns for its send time.
#[track_caller]
fn assert_at(crossing: &Crossing, way: impl Fn(Time) -> Time) {
    // A packet that was read late may have been lost because of that.
    assert_in_time(crossing.came.is_some(), crossing);
    let came = crossing.came.unwrap();
    let (earliest, latest) = (way(crossing.sent.0), way(crossing.sent.1) + LATE);
    // The two clocks are read one after the other.
    let slack = Duration::from_micros(50);
    assert!(came + slack >= earliest, "{crossing:?}: {earliest:?} to {latest:?}");
    assert_in_time(came <= latest, &(crossing, earliest, latest));
}

#[test]
fn an_outage_begins_and_ends_to_the_millisecond() {
    calmly(|| {
        let outages = Outages::List(vec![Window { start: millis(700), end: millis(1000) }]);
        let delay = Duration::from_millis(20);
        let config = Config {
            delay: Delay::Constant(delay),
            outages,
            while_down: WhileDown::Drop,
            ..Config::default()
        };
        let Some(world) = start(config) else { return };
        let sent = send(&world, 100, Duration::from_micros(250), millis(600), millis(1100));
        // A packet may be read up to `edge` later than it is sent, and is judged by the later time.
        let edge = if world.is_real_time() { Duration::from_millis(1) } else { LATE };
        let mut lost = 0;
        for crossing in &sent {
            lost += u64::from(crossing.came.is_none());
            if crossing.sent.1 + edge < millis(700) || crossing.sent.0 >= millis(1000) {
                assert_at(crossing, |sent| sent + delay);
            } else if crossing.sent.0 >= millis(700) && crossing.sent.1 + edge < millis(1000) {
                assert_in_time(crossing.came.is_none(), crossing);
            }
        }
        // At most 1,200.
        assert_in_time(lost > 500, &lost);
        let report = world.stop().unwrap();
        assert_eq!(report.links[0].stats.lost(link::LossCause::Outage).packets, lost);
    });
}

#[test]
fn schedules_start_with_the_world() {
    calmly(|| {
        let outages = Outages::List(vec![Window { start: millis(0), end: millis(300) }]);
        let config = Config { outages, ..Config::default() };
        let Some(world) = start(config) else { return };
        thread::sleep(Duration::from_millis(400));
        assert!(world.links().now() >= millis(400));
        world.begin().unwrap();
        assert_in_time(world.links().now() < millis(250), &world.links().now());
        for crossing in send(&world, 100, Duration::from_millis(10), millis(0), millis(50)) {
            assert_at(&crossing, |sent| sent.max(millis(300)));
        }
    });
}

#[test]
fn packets_held_in_an_outage_leave_at_its_end() {
    calmly(|| {
        let outages = Outages::List(vec![Window { start: millis(500), end: millis(900) }]);
        let config = Config { outages, ..Config::default() };
        let Some(world) = start(config) else { return };
        for crossing in send(&world, 100, Duration::from_millis(10), millis(600), millis(700)) {
            assert_at(&crossing, |sent| sent.max(millis(900)));
        }
    });
}

#[test]
fn a_rate_steps_at_its_time() {
    calmly(|| {
        // 1,000 bytes every 4 ms: 1 ms each at 8 Mbit/s, 10 ms each at 0.8 Mbit/s.
        let step = |from, bps| RateStep { from: millis(from), bps };
        let config = Config {
            rate: Rate::Steps(vec![step(0, 8_000_000), step(700, 800_000), step(900, 8_000_000)]),
            queue: Queue { packets: None, bytes: None },
            ..Config::default()
        };
        let Some(world) = start(config) else { return };
        let sent = send(&world, 1000, Duration::from_millis(4), millis(600), millis(1000));
        let (mut line, mut line_by) = (Time::ZERO, Time::ZERO);
        for crossing in &sent {
            line = served(line.max(crossing.sent.0));
            line_by = served(line_by.max(crossing.sent.1));
            let (earliest, latest) = (line, line_by);
            assert_at(crossing, |sent| if sent == crossing.sent.0 { earliest } else { latest });
        }
        let slow = |c: &&Crossing| c.came.is_some_and(|at| at > millis(715) && at < millis(899));
        let slow = sent.iter().filter(slow).count();
        // Number of packets of 10 ms each within 184 ms.
        assert_in_time((16..=20).contains(&slow), &slow);
    });
}

/// End of the transmission of 1,000 bytes that starts at `from`: at 8 Mbit/s, but 0.8 Mbit/s from
/// 700 to 900 ms.
fn served(from: Time) -> Time {
    let (mut at, mut left) = (from, 8000.0);
    for (bps, end) in [(8e6, millis(700)), (0.8e6, millis(900)), (8e6, millis(100_000))] {
        let most = end.since(at).as_secs_f64() * bps;
        if left <= most {
            return at + Duration::from_secs_f64(left / bps);
        }
        left -= most;
        at = at.max(end);
    }
    at
}

#[test]
fn a_delay_follows_its_points() {
    calmly(|| {
        let points = [(600, 20), (1000, 120)];
        let config = Config {
            delay: Delay::Table {
                points: points.map(|(at, delay)| (millis(at), Duration::from_millis(delay))).into(),
                interpolation: Interpolation::Linear,
            },
            ..Config::default()
        };
        let Some(world) = start(config) else { return };
        for crossing in send(&world, 100, Duration::from_millis(5), millis(500), millis(1100)) {
            assert_at(&crossing, |sent| {
                let ms = sent.as_secs_f64() * 1e3;
                let delay = 20.0 + (ms - 600.0).clamp(0.0, 400.0) / 4.0;
                sent + Duration::from_secs_f64(delay / 1e3)
            });
        }
    });
}
