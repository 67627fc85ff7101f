//! Packets that are delayed and overtaken.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::time::Duration;

use engine::{Rng, Time};
use link::{Config, ConfigError, Delay, Departure, HeaderCompression, Link, Queue, Rate, Reorder};
use proptest::prelude::*;

/// Returns a line of one packet per millisecond and 10 ms of delay.
fn line(reorder: Reorder) -> Config {
    Config {
        rate: Rate::Constant(8_000_000),
        queue: Queue { packets: None, bytes: None },
        delay: Delay::Constant(Duration::from_millis(10)),
        reorder: Some(reorder),
        ..Config::default()
    }
}

/// Pushes `count` packets of 1,000 bytes at once; returns all arrivals, and all packets reported
/// as decided.
fn run(config: Config, seed: u64, count: usize) -> (Vec<Departure<usize>>, Vec<usize>) {
    let mut link = Link::new(config, Rng::new(seed, "link")).unwrap();
    for item in 0..count {
        link.push(Time::ZERO, 1_000, item).unwrap();
    }
    let (mut all, mut reported) = (Vec::new(), Vec::new());
    while let Some(at) = link.next() {
        while let Some(departure) = link.next_decided(at) {
            reported.push(departure.item);
        }
        while let Some(departure) = link.pop(at) {
            assert_eq!(departure.at, at, "popped when it is due");
            all.push(departure);
        }
    }
    assert_eq!(link.stats().delivered.packets, count as u64);
    let late = all.iter().filter(|one| one.at > on_time(one.item)).count();
    assert_eq!(link.stats().held.packets, late as u64);
    (all, reported)
}

/// Returns the arrival time of a packet that is not delayed.
fn on_time(item: usize) -> Time {
    Time::from_nanos(1_000_000 * (item as u64 + 1)) + Duration::from_millis(10)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Every packet arrives once, either on time or exactly the extra delay later, in the order of
    /// these times. Packets reported at the near end keep the order of transmission.
    #[test]
    fn packets_arrive_on_time_or_delayed_in_order(seed: u64, per_mille in 0_u32..=1_000, by_us in 1_u64..50_000) {
        let by = Duration::from_micros(by_us);
        let reorder = Reorder { probability: f64::from(per_mille) / 1e3, by };
        let (all, reported) = run(line(reorder), seed, 300);
        for one in &all {
            let late = one.at.since(on_time(one.item));
            prop_assert!(late.is_zero() || late == by, "{one:?}");
        }
        prop_assert!(all.is_sorted_by_key(|one| one.at));
        let mut items: Vec<_> = all.iter().map(|one| one.item).collect();
        items.sort_unstable();
        let everything: Vec<_> = (0..300).collect();
        prop_assert_eq!(&items, &everything);
        prop_assert_eq!(reported, everything);
    }
}

#[test]
fn delayed_packets_match_the_probability() {
    let reorder = Reorder { probability: 0.1, by: Duration::from_millis(3) };
    let (all, _) = run(line(reorder), 7, 100_000);
    let held = all.iter().filter(|one| one.at > on_time(one.item)).count() as f64;
    // The standard deviation is 95 packets; the bound is four standard deviations.
    assert!((held - 10_000.0).abs() < 380.0, "{held}");
    // A packet that is delayed by 3 ms is overtaken by two packets; a third arrives at the same
    // time.
    let ahead: Vec<_> = all.windows(2).filter(|pair| pair[0].item > pair[1].item).collect();
    assert!(!ahead.is_empty());
    assert!(all.iter().enumerate().all(|(place, one)| one.item.abs_diff(place) <= 3));
}

#[test]
fn without_reordering_the_same_seed_gives_the_same_errors() {
    let none = Config { reorder: None, ..line(Reorder { probability: 0.0, by: Duration::ZERO }) };
    let zero = line(Reorder { probability: 0.0, by: Duration::from_millis(1) });
    assert_eq!(run(none, 3, 200), run(zero, 3, 200));
}

#[test]
fn a_shorter_extra_delay_keeps_delayed_packets_in_order() {
    let long = line(Reorder { probability: 1.0, by: Duration::from_millis(100) });
    let mut link = Link::new(long.clone(), Rng::new(1, "link")).unwrap();
    link.push(Time::ZERO, 1_000, 0).unwrap();
    let short = Reorder { probability: 1.0, by: Duration::from_millis(1) };
    let now = Time::from_nanos(2_000_000);
    link.set_config(now, Config { reorder: Some(short), ..long.clone() }).unwrap();
    link.push(now, 1_000, 1).unwrap();
    link.set_config(now, Config { reorder: None, ..long }).unwrap();
    link.push(now, 1_000, 2).unwrap();
    let order: Vec<_> =
        std::iter::from_fn(|| link.pop(Time::from_secs(1)).map(|one| one.item)).collect();
    assert_eq!(order, [2, 0, 1]);
}

#[test]
fn invalid_values_are_refused() {
    let by = Duration::from_millis(1);
    let wrong = line(Reorder { probability: 1.5, by });
    let refused = wrong.validate().unwrap_err();
    assert_eq!(refused, ConfigError::NotAProbability { what: "reorder", value: 1.5 });
    let compressed = Config {
        framing: link::Framing::Ppp {
            fcs: link::Fcs::Bits16,
            compressed: false,
            stuffing: link::Stuffing::Exact,
            serial: true,
        },
        header_compression: Some(HeaderCompression { max: 15, may_omit: true }),
        ..line(Reorder { probability: 0.5, by })
    };
    assert_eq!(compressed.validate(), Err(ConfigError::Order));
}
