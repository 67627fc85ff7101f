//! Rate, framing, queue and delay against their formulas, to the nanosecond.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::time::Duration;

use engine::{Rng, Time};
use link::{
    Config, Delay, Departure, ErrorKind, ErrorModel, Fate, Framing, Interpolation, Link, LossCause,
    Queue, Rate, RateStep, Release, TokenBucket,
};
use proptest::prelude::*;

const NO_LIMIT: Queue = Queue { packets: None, bytes: None };

fn make<T>(config: Config) -> Link<T> {
    Link::new(config, Rng::new(1, "link")).unwrap()
}

/// Returns everything that leaves the link, with a driver that is always on time.
fn drain<T>(link: &mut Link<T>) -> Vec<Departure<T>> {
    let mut all = Vec::new();
    while let Some(at) = link.next() {
        while let Some(departure) = link.pop(at) {
            assert_eq!(departure.at, at, "popped when it is due");
            all.push(departure);
        }
    }
    all
}

/// Returns when the last bit of `bytes` sent back to back from 0 leaves.
fn exact(bytes: u128, bps: u64) -> u64 {
    u64::try_from((bytes * 8 * 1_000_000_000).div_ceil(u128::from(bps))).unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Rounding errors do not accumulate. After any number of packets the line is where one
    /// transmission of all their bits would be, and every packet has exactly its delay.
    #[test]
    fn a_busy_line_delivers_its_rate_exactly(
        bps in prop_oneof![Just(3), 1_u64..2_000, 1_000_u64..2_000_000, 1_000_000_u64..100_000_000_000],
        lens in prop::collection::vec(1_usize..2_000, 1..300),
        delay in 0_u64..20_000_000_000_000,
        shaped: bool,
    ) {
        let delay = Duration::from_nanos(delay);
        // A bucket that never runs out has no effect.
        let bucket = TokenBucket { rate: 1, ceil: 1, burst: 1 << 40, cburst: 1 << 40 };
        let config = Config {
            shaper: shaped.then_some(bucket),
            rate: Rate::Constant(bps),
            delay: Delay::Constant(delay),
            queue: NO_LIMIT,
            ..Config::default()
        };
        let mut link = make(config);
        for (index, len) in lens.iter().enumerate() {
            link.push(Time::ZERO, *len, index).unwrap();
        }
        let mut sent = 0;
        for (index, departure) in drain(&mut link).into_iter().enumerate() {
            prop_assert_eq!(departure.item, index);
            prop_assert_eq!(departure.start, Time::from_nanos(exact(sent, bps)));
            sent += lens[index] as u128;
            prop_assert_eq!(departure.at, Time::from_nanos(exact(sent, bps)) + delay);
        }
        prop_assert_eq!(sent, lens.iter().map(|len| *len as u128).sum());
    }

    /// For any arrivals, a packet starts when it has arrived and its predecessor has left.
    #[test]
    fn an_idle_line_serves_at_once(gaps in prop::collection::vec(0_u64..3_000_000, 1..200)) {
        let mut link = make(Config { rate: Rate::Constant(8_000_000), ..Config::default() });
        let (mut now, mut free) = (0, 0);
        for gap in gaps {
            now += gap;
            link.push(Time::from_nanos(now), 1_000, free.max(now)).unwrap();
            free = free.max(now) + 1_000_000;
        }
        let mut count = 0;
        while let Some(departure) = link.pop(Time::MAX) {
            prop_assert_eq!(departure.start.as_nanos(), departure.item);
            prop_assert_eq!(departure.at.as_nanos(), departure.item + 1_000_000);
            count += 1;
        }
        prop_assert_eq!(link.stats().delivered.packets, count);
    }

    /// The bits sent up to any departure are the integral of the rate table.
    #[test]
    fn a_rate_table_is_integrated(
        rates in prop::collection::vec(1_000_u64..50_000_000, 1..20),
        lens in prop::collection::vec(1_usize..3_000, 1..200),
    ) {
        let step = 7_000_003;
        let steps: Vec<_> = rates.iter().enumerate()
            .map(|(i, bps)| RateStep { from: Time::from_nanos(i as u64 * step), bps: *bps })
            .collect();
        let mut link = make(Config { rate: Rate::Steps(steps), queue: NO_LIMIT, ..Config::default() });
        for len in &lens {
            link.push(Time::ZERO, *len, ()).unwrap();
        }
        let work_by = |at: u64| -> u128 {
            let last = rates.len() - 1;
            rates.iter().enumerate().map(|(i, bps)| {
                let begin = i as u64 * step;
                let end = if i == last { u64::MAX } else { begin + step };
                u128::from(at.clamp(begin, end) - begin) * u128::from(*bps)
            }).sum()
        };
        let mut work = 0_u128;
        for departure in drain(&mut link) {
            work += departure.len as u128 * 8_000_000_000;
            let at = departure.at.as_nanos();
            // Each step truncates less than one unit of 1e-9 bit.
            let slack = rates.len() as u128;
            prop_assert!(work_by(at) + slack >= work, "not before its bits are sent");
            prop_assert!(work_by(at - 1) < work + slack, "nor a nanosecond late");
        }
    }

    /// Bytes that start within any time t are at most burst + rate * t.
    #[test]
    fn a_token_bucket_conforms(
        rate in 10_000_u64..10_000_000,
        more in 0_u64..10_000_000,
        burst in 1_500_u64..200_000,
        cburst in 1_500_u64..50_000,
        arrivals in prop::collection::vec((0_u64..5_000_000, 1_usize..1_500), 1..120),
    ) {
        let shaper = TokenBucket { rate, ceil: rate + more, burst, cburst };
        let config = Config {
            rate: Rate::Constant(100_000_000), shaper: Some(shaper), queue: NO_LIMIT, ..Config::default()
        };
        let mut link = make(config);
        let mut now = 0;
        for (gap, len) in arrivals {
            now += gap;
            link.push(Time::from_nanos(now), len, ()).unwrap();
        }
        let all: Vec<_> = std::iter::from_fn(|| link.pop(Time::MAX)).collect();
        for first in 0..all.len() {
            let mut bytes = 0_u128;
            for departure in &all[first..] {
                bytes += departure.len as u128;
                let passed = departure.start.since(all[first].start).as_nanos();
                for (rate, burst) in [(shaper.rate, burst), (shaper.ceil, cburst)] {
                    let limit = u128::from(burst) * 8_000_000_000 + u128::from(rate) * passed;
                    prop_assert!(bytes * 8_000_000_000 <= limit, "{bytes} bytes in {passed} ns");
                }
            }
        }
    }

    /// A later packet never arrives before an earlier one, and none before its delay.
    #[test]
    fn no_packet_overtakes(
        points in prop::collection::vec((1_u64..2_000_000, 0_u64..50_000_000), 1..20),
        linear: bool,
        gaps in prop::collection::vec(0_u64..400_000, 1..200),
    ) {
        let mut when = 0;
        let points = points.into_iter().map(|(gap, delay)| {
            when += gap;
            (Time::from_nanos(when), Duration::from_nanos(delay))
        }).collect();
        let interpolation = if linear { Interpolation::Linear } else { Interpolation::Step };
        let delay = Delay::Table { points, interpolation };
        let mut link = make(Config { delay: delay.clone(), ..Config::default() });
        let mut now = Time::ZERO;
        for gap in gaps {
            now += Duration::from_nanos(gap);
            link.push(now, 100, now).unwrap();
        }
        let mut latest = Time::ZERO;
        for departure in drain(&mut link) {
            let own = departure.item + delay.propagation_at(departure.item);
            prop_assert_eq!(departure.at, own.max(latest));
            latest = departure.at;
        }
    }
}

#[test]
fn rounding_errors_do_not_accumulate_over_a_million_packets() {
    let mut link = make(Config { rate: Rate::Constant(1_024_007), ..Config::default() });
    let mut last = Time::ZERO;
    for packet in 0..1_000_000_u64 {
        while !link.free_for(last, 1_053) {
            last = link.next().unwrap();
            link.pop(last).unwrap();
        }
        link.push(last, 1_053, packet).unwrap();
    }
    let end = drain(&mut link).last().unwrap().at;
    assert_eq!(end.as_nanos(), exact(1_053_000_000, 1_024_007));
}

/// Receiver-side captures of NASA GRC's 2011 comparison of CFDP and others (§5.6): the gap between
/// a CFDP packet's arrival and the next one's, for UDP payloads of 1,011, 44 and 104 bytes. The
/// emulator's line runs at 1,024 or 10,240 kbit/s of Ethernet frames without FCS; it sends a frame
/// and then waits.
#[test]
fn gaps_of_the_nasa_channel_emulator() {
    let gap = |bps, payload: usize| {
        let mut link = make(Config {
            rate: Rate::Constant(bps),
            framing: Framing::Ethernet { fcs: false, preamble: false, ifg: false },
            per_packet: Duration::from_micros(58),
            release: Release::FirstBit,
            delay: Delay::Constant(Duration::from_millis(25)),
            ..Config::default()
        });
        for len in [payload, 1_011] {
            link.push(Time::ZERO, len + 28, ()).unwrap();
        }
        let all = drain(&mut link);
        assert_eq!(all[0].at, Time::from_nanos(25_000_000), "let go at its first bit");
        all[1].at.since(all[0].at).as_secs_f64() * 1e3
    };
    for (bps, payload, captured_ms) in [
        (1_024_000, 1_011, 8.284),
        (1_024_000, 44, 0.732),
        (10_240_000, 1_011, 0.884),
        (10_240_000, 104, 0.172),
    ] {
        let ours = gap(bps, payload);
        assert!((ours / captured_ms - 1.0).abs() < 0.005, "{bps} {payload}: {ours} ms");
    }
}

#[test]
fn service_time_counts_before_the_last_bit_is_released() {
    let mut link = make(Config {
        rate: Rate::Constant(8_000_000),
        per_packet: Duration::from_micros(60),
        ..Config::default()
    });
    link.push(Time::ZERO, 1_000, ()).unwrap();
    link.push(Time::ZERO, 1_000, ()).unwrap();
    let at: Vec<_> = drain(&mut link).iter().map(|d| d.at.as_nanos()).collect();
    assert_eq!(at, [1_060_000, 2_120_000]);
}

#[test]
fn a_token_bucket_sends_at_line_then_ceil_then_rate() {
    // Line 100 Mbit/s, HTB rate 8 Mbit/s, ceil 10 Mbit/s, burst 30 kB, cburst 6 kB.
    let mut link = make(Config {
        rate: Rate::Constant(100_000_000),
        shaper: Some(TokenBucket {
            rate: 8_000_000,
            ceil: 10_000_000,
            burst: 30_000,
            cburst: 6_000,
        }),
        queue: NO_LIMIT,
        ..Config::default()
    });
    for _ in 0..400 {
        link.push(Time::ZERO, 1_500, ()).unwrap();
    }
    let starts: Vec<_> = drain(&mut link).iter().map(|d| d.start.as_nanos()).collect();
    let gap = |i: usize| starts[i + 1] - starts[i];
    assert_eq!((gap(0), gap(1), gap(2)), (120_000, 120_000, 120_000), "100 Mbit/s");
    // cburst runs out at about 6 kB, burst (30 kB - 6 kB at a surplus of 2 Mbit/s) at 96 ms.
    assert_eq!(gap(10), 1_200_000, "10 Mbit/s");
    assert_eq!(gap(70), 1_200_000, "10 Mbit/s");
    assert_eq!(gap(90), 1_500_000, "8 Mbit/s");
    assert_eq!(gap(398), 1_500_000, "8 Mbit/s");
    assert_eq!(link.rate_at(Time::ZERO), Some(8_000_000));
}

#[test]
fn a_new_token_bucket_is_full_and_an_old_one_keeps_its_tokens() {
    let shaper = TokenBucket { rate: 8_000_000, ceil: 8_000_000, burst: 2_000, cburst: 2_000 };
    let mut link = make(Config::default());
    let now = Time::from_nanos(7_000_000);
    let config = Config { shaper: Some(shaper), ..Config::default() };
    link.set_config(now, config.clone()).unwrap();
    link.push(now, 1_000, ()).unwrap();
    // A different queue makes a different configuration, but the bucket keeps its state.
    link.set_config(now, Config { queue: NO_LIMIT, ..config }).unwrap();
    link.push(now, 1_000, ()).unwrap();
    link.push(now, 1_000, ()).unwrap();
    let starts: Vec<_> = drain(&mut link).iter().map(|d| d.start.as_nanos()).collect();
    assert_eq!(starts, [7_000_000, 7_000_000, 8_000_000]);
}

#[test]
fn a_frame_longer_than_the_bucket_waits_until_it_is_full() {
    let shaper = TokenBucket { rate: 8_000_000, ceil: 8_000_000, burst: 0, cburst: 0 };
    let mut link = make(Config { shaper: Some(shaper), ..Config::default() });
    for _ in 0..3 {
        link.push(Time::ZERO, 1_000, ()).unwrap();
    }
    let starts: Vec<_> = drain(&mut link).iter().map(|d| d.start.as_nanos()).collect();
    assert_eq!(starts, [0, 1_000_000, 2_000_000]);
}

#[test]
fn a_new_rate_applies_to_packets_not_started() {
    let mut link = make(Config { rate: Rate::Constant(8_000_000), ..Config::default() });
    for _ in 0..3 {
        link.push(Time::ZERO, 1_000, ()).unwrap();
    }
    link.set_rate(Time::from_nanos(1_500_000), Rate::Constant(80_000_000)).unwrap();
    let at: Vec<_> = drain(&mut link).iter().map(|d| d.at.as_nanos()).collect();
    assert_eq!(at, [1_000_000, 2_000_000, 2_100_000]);
    assert!(link.set_rate(Time::ZERO, Rate::Constant(0)).is_err());
    assert_eq!(link.rate_at(Time::ZERO), Some(80_000_000), "a refused change changes nothing");
}

#[test]
fn a_new_rate_keeps_the_fraction_of_a_nanosecond() {
    let mut link = make(Config { rate: Rate::Constant(3), ..Config::default() });
    for _ in 0..3 {
        link.push(Time::ZERO, 1, ()).unwrap();
    }
    link.set_rate(Time::ZERO, Rate::Constant(6)).unwrap();
    // 8/3 s, then 16/6 s: 5 1/3 s.
    assert_eq!(drain(&mut link)[2].at, Time::from_nanos(5_333_333_334));
}

#[test]
fn a_new_delay_applies_to_packets_not_started() {
    let delay = |ms| Delay::Constant(Duration::from_millis(ms));
    let mut link =
        make(Config { rate: Rate::Constant(8_000_000), delay: delay(100), ..Config::default() });
    for _ in 0..3 {
        link.push(Time::ZERO, 1_000, ()).unwrap();
    }
    link.set_delay(Time::from_nanos(1_500_000), delay(200)).unwrap();
    let at: Vec<_> = drain(&mut link).iter().map(|d| d.at.as_nanos() / 1_000_000).collect();
    assert_eq!(at, [101, 102, 203]);
}

#[test]
fn a_new_delay_applies_to_packets_not_released_and_never_reorders() {
    let delay = |ms| Delay::Constant(Duration::from_millis(ms));
    let mut link = make(Config { delay: delay(100), ..Config::default() });
    link.push(Time::ZERO, 1, ()).unwrap();
    let later = Time::from_nanos(1_000_000);
    link.set_delay(later, delay(1)).unwrap();
    link.push(later, 1, ()).unwrap();
    link.set_delay(later, delay(200)).unwrap();
    link.push(later, 1, ()).unwrap();
    let at: Vec<_> = drain(&mut link).iter().map(|d| d.at.as_nanos() / 1_000_000).collect();
    assert_eq!(at, [100, 100, 201]);
    assert_eq!(link.delay_at(later), Duration::from_millis(200));
}

#[test]
fn long_delays_hold_all_packets_in_flight() {
    let hours = Duration::from_secs(6 * 3_600);
    let mut link = make(Config { delay: Delay::Constant(hours), ..Config::default() });
    for second in 0..10_000 {
        link.push(Time::from_secs(second), 1_000, second).unwrap();
    }
    assert_eq!(link.stats().queued.packets, 10_000);
    for (second, departure) in drain(&mut link).into_iter().enumerate() {
        assert_eq!(departure.at, Time::from_secs(second as u64) + hours);
        assert_eq!(departure.item, second as u64);
    }
}

#[test]
fn linear_delay_is_a_straight_line() {
    let at = Time::from_secs;
    let ms = Duration::from_millis;
    let points = vec![(at(10), ms(100)), (at(20), ms(300)), (at(30), ms(200))];
    let linear = Delay::Table { points: points.clone(), interpolation: Interpolation::Linear };
    let step = Delay::Table { points, interpolation: Interpolation::Step };
    let values = |delay: &Delay| {
        [0, 10, 15, 20, 25, 30, 99].map(|s| delay.propagation_at(at(s)).as_millis())
    };
    assert_eq!(values(&linear), [100, 100, 200, 300, 250, 200, 200]);
    assert_eq!(values(&step), [100, 100, 100, 300, 300, 200, 200]);
}

#[test]
fn the_queue_counts_only_waiting_packets() {
    let queue = |packets, bytes| {
        make(Config {
            rate: Rate::Constant(8_000_000),
            queue: Queue { packets, bytes },
            ..Config::default()
        })
    };
    let ms = |ms: u64| Time::from_nanos(ms * 1_000_000);
    // Two packets may wait behind the one in transmission.
    let mut link = queue(Some(2), None);
    assert!((0..3).all(|item| link.push(Time::ZERO, 1_000, item).is_ok()));
    let rejected = link.push(Time::ZERO, 1_000, 3).unwrap_err();
    assert_eq!((rejected.cause, rejected.item), (LossCause::QueueFull, 3));
    assert!(!link.free_for(Time::ZERO, 1_000));
    assert_eq!(link.free_at(Time::ZERO, 1_000), Some(ms(1)));
    assert!(link.free_for(ms(1), 1_000));
    link.push(ms(1), 1_000, 4).unwrap();
    // The bound is in bytes.
    let mut link = queue(None, Some(2_500));
    assert!((0..3).all(|item| link.push(Time::ZERO, 1_000, item).is_ok()));
    assert!(link.push(Time::ZERO, 501, 3).is_err());
    link.push(Time::ZERO, 500, 4).unwrap();
    assert_eq!(link.free_at(Time::ZERO, 1_600), Some(ms(2)));
    assert_eq!(link.free_at(Time::ZERO, 3_000), Some(Time::from_nanos(3_500_000)), "only if idle");
    // No queue at all: only an idle line takes a packet.
    let mut link = queue(Some(0), None);
    link.push(Time::ZERO, 1_000, 0).unwrap();
    assert_eq!(link.free_at(Time::ZERO, 1_000), Some(ms(1)));
    assert!(link.push(ms(1) - Duration::from_nanos(1), 1_000, 1).is_err());
    link.push(ms(1), 1_000, 2).unwrap();
    assert_eq!(link.stats().lost(LossCause::QueueFull).packets, 1);
}

#[test]
fn default_links_are_perfect() {
    let mut link = make(Config::default());
    let now = Time::from_secs(3);
    link.push(now, 1_500, 7).unwrap();
    let departure = link.pop(now).unwrap();
    assert_eq!((departure.at, departure.start, departure.pushed), (now, now, now));
    assert_eq!((departure.item, departure.fate), (7, Fate::Delivered));
    assert_eq!((link.rate_at(now), link.delay_at(now), link.overhead()), (None, Duration::ZERO, 0));
    assert_eq!((link.next(), link.pop(Time::MAX)), (None, None));
}

#[test]
fn fates_are_reported_when_the_transmission_starts() {
    let mut link = Link::new(
        Config {
            rate: Rate::Constant(8_000),
            delay: Delay::Constant(Duration::from_hours(1)),
            errors: vec![ErrorModel::dropping(ErrorKind::DropList(vec![1]))],
            ..Config::default()
        },
        Rng::new(1, "test"),
    )
    .unwrap();
    // Each packet takes one second.
    for item in 0..4_u64 {
        link.push(Time::ZERO, 1_000, item).unwrap();
    }
    let mut reported = Vec::new();
    for second in 0..4 {
        let now = Time::from_secs(second);
        while let Some(departure) = link.next_decided(now) {
            reported.push((second, departure.item, departure.fate.clone()));
        }
    }
    let lost = Fate::Lost(LossCause::DropList);
    let expected =
        [(0, 0, Fate::Delivered), (1, 1, lost), (2, 2, Fate::Delivered), (3, 3, Fate::Delivered)];
    assert_eq!(reported, expected);
    // A packet popped before is not reported later.
    link.push(Time::from_secs(4), 1_000, 4).unwrap();
    let end = Time::from_secs(3 * 3600);
    assert_eq!(std::iter::from_fn(|| link.pop(end)).count(), 5);
    assert_eq!(link.next_decided(end), None);
    link.push(end, 1_000, 5).unwrap();
    assert_eq!(link.next_decided(end).map(|departure| departure.item), Some(5));
}
