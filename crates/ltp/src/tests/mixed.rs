//! Blocks of which only a part must arrive.

use std::time::Duration;

use engine::Time;

use super::world::{World, content, lose_numbers};
use crate::{Config, Red, Remote, Timer};

fn config() -> Config {
    let default_remote = Remote { segment_max: Some(1000), repair_copies: 1, ..Remote::default() };
    Config { default_remote, ..Config::default() }
}

/// A second for each try, and three tries.
fn impatient() -> Config {
    let second = Timer::Fixed(Duration::from_secs(1));
    let default_remote = Remote {
        checkpoint_timer: second,
        report_timer: second,
        retransmission_limit: Some(2),
        ..config().default_remote
    };
    Config { default_remote, ..config() }
}

/// 100 kB at 40 kbit/s take 20 s, many times a checkpoint's timeout.
#[test]
fn the_red_part_is_reported_while_green_data_is_sent() {
    let file = content(100_000);
    let mut world = World::with(&impatient());
    world.hops[0].info.rate_bps = Some(40_000);
    world.up(0);
    world.up(1);
    world.send(&file, Red::Prefix(1000));
    world.run();
    world.assert_delivered(&file);
    let lines = world.transcript();
    let report = lines.iter().position(|line| line == "< RS 1/1 0-1000: 0-1000");
    assert!(report.is_some_and(|at| at < 5), "{lines:#?}");
    assert_eq!(lines.iter().filter(|line| line.contains(" CP ")).count(), 1, "{lines:#?}");
}

#[test]
fn the_red_part_is_reported_when_the_end_of_the_block_is_lost() {
    let mut world = World::with(&impatient());
    world.lose(lose_numbers(&[3]));
    world.send(&content(2500), Red::Prefix(1500));
    world.run();
    let finished = world.finished(0).expect("it ended");
    assert_eq!((finished.result, finished.is_confirmed), (Ok(()), false));
    let lines = world.transcript();
    assert!(lines.contains(&">x green EOB 2500-2524".to_owned()), "{lines:#?}");
    assert!(lines.contains(&"< RS 1/1 0-1500: 0-1500".to_owned()), "{lines:#?}");
}

/// A receiver that delays nothing may reply before the last green segment was sent.
#[test]
fn the_sender_ends_when_the_green_part_has_left() {
    let mut world = World::with(&impatient());
    world.lose(|_, _, _| true);
    let id = world.send(&content(100_000), Red::Prefix(1000));
    world.run_until(Time::ZERO + Duration::from_millis(10));
    world.answer(id, 1, &[(0, 1000)], 1000);
    assert!(world.finished(0).is_none());
    world.run();
    let finished = world.finished(0).expect("it ended");
    assert_eq!((finished.result, finished.is_confirmed), (Ok(()), false));
    let lines = world.transcript();
    assert!(lines.last().is_some_and(|line| line == ">x green EOB 100000-100024"), "{lines:#?}");
}
