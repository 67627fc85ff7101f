//! Blocks with lost green bytes, through an engine that stores them before relaying.

use std::time::Duration;

use engine::Time;

use super::world::{World, content, small};
use crate::Red;
use crate::ltpt::{Config, Indication};

/// Data sent on the second hop, in order.
fn onward(world: &World) -> Vec<String> {
    let mut lines = world.hop_lines();
    lines
        .retain(|line| line.starts_with("1 >") && (line.contains("red") || line.contains("green")));
    lines
}

/// A chain that loses these segments of the first hop, and stores blocks before relaying them.
fn storing(lost: &'static [usize]) -> World {
    let config = Config { cut_through: false, ..Config::default() };
    let mut world = World::chain(3, &config, &small());
    world.lose_on(move |hop, end, number| hop == 0 && end == 0 && lost.contains(&number));
    world
}

#[test]
fn missing_green_bytes_are_not_sent() {
    let mut world = storing(&[2, 4]);
    world.send_to(3, &content(6000), Red::Prefix(1500));
    world.run();
    let expected = [
        "1 > red 0-1000",
        "1 > red EORP 1000-1500",
        // 1500 to 2500 and 3500 to 4500 were lost.
        "1 > green 2500-3500",
        "1 > green 4500-5500",
        "1 > green 5500-6000",
        "1 > green EOB 6000-6024",
    ];
    assert_eq!(onward(&world), expected, "{:#?}", world.hop_lines());
    world.assert_nothing_is_invented();
    world.assert_clean();
}

#[test]
fn a_stored_green_block_keeps_its_gaps() {
    let mut world = storing(&[1, 3]);
    world.send_to(3, &content(5000), Red::None);
    world.run();
    let expected = [
        "1 > green 0-1000",
        "1 > green 2000-3000",
        "1 > green 4000-5000",
        "1 > green EOB 5000-5024",
    ];
    assert_eq!(onward(&world), expected, "{:#?}", world.hop_lines());
    world.assert_nothing_is_invented();
    world.assert_clean();
}

#[test]
fn a_missing_end_is_not_invented() {
    for (red, expected) in [
        (Red::None, ["1 > green 0-1000", "1 > green 1000-2000"]),
        (Red::Prefix(1000), ["1 > red EORP 0-1000", "1 > green 1000-2000"]),
    ] {
        // The third segment has the last byte of the file, and the fourth the end.
        let mut world = storing(&[2, 3]);
        world.send_to(3, &content(2500), red);
        world.run();
        assert_eq!(onward(&world), expected, "{:#?}", world.hop_lines());
        world.assert_nothing_is_invented();
        assert!(world.copy(2).is_none());
        world.assert_clean();
    }
}

#[test]
fn gaps_outlive_the_process() {
    const MINUTE: Duration = Duration::from_secs(60);
    // After an hour of silence missing bytes count as lost.
    for (minutes, expected) in [
        // The red part was safe; later bytes need not survive.
        (20, &["1 > red EORP 0-1000"][..]),
        (80, &["1 > red EORP 0-1000", "1 > green 2000-3000", "1 > green EOB 3000-3024"]),
    ] {
        let mut world = storing(&[1]);
        world.outage(1, Time::ZERO, 100 * MINUTE, true);
        world.crash_at(1, Time::ZERO + minutes * MINUTE);
        world.send_to(3, &content(3000), Red::Prefix(1000));
        world.run();
        assert!(
            world.transport_indications(1).contains(&Indication::Restored { blocks: 1 }),
            "{minutes}"
        );
        assert_eq!(onward(&world), expected, "{:#?}", world.hop_lines());
        world.assert_nothing_is_invented();
        world.assert_clean();
    }
}
