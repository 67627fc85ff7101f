//! Effect of an outage on packets that wait, are in transmission, and propagate.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::time::Duration;

use engine::{Rng, Time};
use link::{
    Config, Delay, Departure, ErrorKind, ErrorModel, Fate, Link, LossCause, Outages, Queue, Rate,
    Release, WhileDown, Window,
};

const HOUR: u64 = 3_600;

fn ms(ms: u64) -> Time {
    Time::from_nanos(ms * 1_000_000)
}

fn window(start: Time, end: Time) -> Window {
    Window { start, end }
}

/// 1,000 bytes take 1 ms; 100 ms of propagation.
fn config(outages: Outages, while_down: WhileDown) -> Config {
    Config {
        rate: Rate::Constant(8_000_000),
        delay: Delay::Constant(Duration::from_millis(100)),
        outages,
        while_down,
        ..Config::default()
    }
}

fn make(config: Config) -> Link<u64> {
    Link::new(config, Rng::new(1, "link")).unwrap()
}

fn drain(link: &mut Link<u64>) -> Vec<Departure<u64>> {
    let mut all = Vec::new();
    while let Some(at) = link.next() {
        all.extend(std::iter::from_fn(|| link.pop(at)));
    }
    all
}

fn summary(all: &[Departure<u64>]) -> Vec<(u64, f64, bool)> {
    all.iter().map(|d| (d.item, d.at.as_secs_f64() * 1e3, d.fate == Fate::Delivered)).collect()
}

/// Pushes five packets at once into a link that goes down at 2.5 ms, during the third
/// transmission.
fn five(while_down: WhileDown, release: Release) -> Vec<(u64, f64, bool)> {
    let down = window(Time::from_nanos(2_500_000), Time::from_secs(5 * HOUR));
    let mut link = make(Config { release, ..config(Outages::List(vec![down]), while_down) });
    for item in 0..5 {
        link.push(Time::ZERO, 1_000, item).unwrap();
    }
    summary(&drain(&mut link))
}

#[test]
fn held_packets_leave_after_the_outage_and_cut_ones_are_lost() {
    let up = 5.0 * 3_600_000.0;
    assert_eq!(
        five(WhileDown::Hold, Release::LastBit),
        [
            (0, 101.0, true),
            (1, 102.0, true),
            (2, 102.5, false),
            (3, up + 101.0, true),
            (4, up + 102.0, true),
        ]
    );
}

#[test]
fn dropped_packets_are_lost_when_the_outage_begins() {
    let all = five(WhileDown::Drop, Release::LastBit);
    let fates: Vec<bool> = all.iter().map(|(_, _, delivered)| *delivered).collect();
    assert_eq!(fates, [true, true, false, false, false]);
    assert!(all[4].1 < 103.0, "known at once, not when the link returns");
}

#[test]
fn packets_released_at_their_first_bit_are_not_cut() {
    let all = five(WhileDown::Drop, Release::FirstBit);
    assert_eq!(all[2], (2, 102.0, true));
    assert!(!all[3].2);
}

#[test]
fn a_transmission_that_ends_as_the_outage_begins_is_whole() {
    let outages = Outages::List(vec![window(ms(1), ms(2))]);
    let mut link = make(config(outages, WhileDown::Hold));
    link.push(Time::ZERO, 1_000, 0).unwrap();
    link.push(Time::ZERO, 1_000, 1).unwrap();
    assert_eq!(summary(&drain(&mut link)), [(0, 101.0, true), (1, 103.0, true)]);
}

#[test]
fn packets_ready_as_the_outage_starts_are_dropped() {
    let outages = Outages::List(vec![window(ms(1), ms(9))]);
    let release = Release::FirstBit;
    let mut link = make(Config { release, ..config(outages, WhileDown::Drop) });
    link.push(Time::ZERO, 1_000, 0).unwrap();
    link.push(Time::ZERO, 1_000, 1).unwrap();
    assert_eq!(summary(&drain(&mut link)), [(0, 100.0, true), (1, 100.0, false)]);
}

#[test]
fn a_cut_frees_the_line_and_uses_up_its_index() {
    // The outage is shorter than what remains of the packet it cuts.
    let outages = Outages::List(vec![window(Time::from_nanos(500_000), Time::from_nanos(600_000))]);
    let errors = vec![ErrorModel::dropping(ErrorKind::DropList(vec![1]))];
    let mut link = make(Config { errors, ..config(outages, WhileDown::Hold) });
    for item in 0..3 {
        link.push(Time::ZERO, 1_000, item).unwrap();
    }
    let all = drain(&mut link);
    assert_eq!(summary(&all), [(0, 100.5, false), (1, 101.6, false), (2, 102.6, true)]);
    assert_eq!(all[0].fate, Fate::Lost(LossCause::Outage));
    assert_eq!(all[1].fate, Fate::Lost(LossCause::DropList));
}

#[test]
fn a_changed_plan_does_not_affect_the_past() {
    let down = || Outages::List(vec![window(ms(0), ms(900))]);
    let mut link = make(config(down(), WhileDown::Hold));
    link.push(ms(1), 1_000, 0).unwrap();
    link.set_outages(ms(500), Outages::Never).unwrap();
    assert_eq!(summary(&drain(&mut link)), [(0, 601.0, true)]);
    // A changed policy also applies to waiting packets: packets held until now are dropped now.
    let mut link = make(config(down(), WhileDown::Hold));
    link.push(ms(1), 1_000, 0).unwrap();
    link.set_config(ms(500), config(down(), WhileDown::Drop)).unwrap();
    assert_eq!(summary(&drain(&mut link)), [(0, 500.0, false)]);
}

#[test]
fn next_crosses_an_outage_of_hours_in_one_step() {
    let outages = Outages::List(vec![window(ms(0), Time::from_secs(9 * HOUR))]);
    let mut link = make(config(outages, WhileDown::Hold));
    link.push(ms(7), 1_000, 0).unwrap();
    assert!(!link.is_up(ms(7)));
    assert_eq!(link.next_change(ms(7)), Some(Time::from_secs(9 * HOUR)));
    let up = link.next().unwrap();
    assert_eq!(up, Time::from_secs(9 * HOUR), "the transmission begins");
    assert_eq!(link.pop(up), None);
    let arrives = link.next().unwrap();
    assert_eq!(arrives, up + Duration::from_millis(101));
    assert_eq!(link.pop(arrives).map(|d| (d.start, d.fate)), Some((up, Fate::Delivered)));
    assert_eq!(link.next(), None);
}

#[test]
fn a_link_that_drops_rejects_while_it_is_down() {
    let outages = Outages::Periodic {
        period: Duration::from_millis(10),
        down: Duration::from_millis(4),
        offset: ms(10),
    };
    let mut link = make(config(outages, WhileDown::Drop));
    link.push(ms(5), 1_000, 0).unwrap();
    assert!(!link.free_for(ms(12), 1_000));
    assert_eq!(link.free_at(ms(12), 1_000), Some(ms(14)));
    assert_eq!(link.push(ms(12), 1_000, 1).unwrap_err().cause, LossCause::Outage);
    link.push(ms(14), 1_000, 2).unwrap();
    assert_eq!(summary(&drain(&mut link)), [(0, 106.0, true), (2, 115.0, true)]);
    assert_eq!(link.stats().lost(LossCause::Outage).packets, 1);
}

#[test]
fn after_the_last_contact_nothing_leaves_and_next_is_none() {
    let mut link = make(config(Outages::Contacts(vec![window(ms(1), ms(3))]), WhileDown::Hold));
    for item in 0..4 {
        link.push(Time::ZERO, 1_000, item).unwrap();
    }
    assert_eq!(summary(&drain(&mut link)), [(0, 102.0, true), (1, 103.0, true)]);
    assert_eq!((link.next(), link.waiting(), link.stats().queued.packets), (None, 2, 2));
    // Waiting packets leave in a later contact once it is configured.
    link.set_outages(ms(500), Outages::Contacts(vec![window(ms(600), ms(700))])).unwrap();
    assert_eq!(summary(&drain(&mut link)), [(2, 701.0, true), (3, 702.0, true)]);
}

#[test]
fn a_full_queue_stays_full_through_an_outage() {
    let outages = Outages::List(vec![window(ms(0), ms(50))]);
    let queue = Queue { packets: Some(2), bytes: None };
    let mut link = make(Config { queue, ..config(outages, WhileDown::Hold) });
    link.push(ms(1), 1_000, 0).unwrap();
    link.push(ms(1), 1_000, 1).unwrap();
    assert!(link.push(ms(49), 1_000, 2).is_err());
    assert_eq!(link.free_at(ms(2), 1_000), Some(ms(50)));
    link.push(ms(50), 1_000, 3).unwrap();
}
