//! Delay and size of a sender's replies to requests.

use std::time::Duration;

use engine::{Rng, Time};

use super::group::Group;
use super::world::content;
use crate::Config;
use crate::message::{Body, Flags, Message};

fn is_source(message: &Message<'_>, block: u32, symbols: std::ops::Range<u16>) -> bool {
    matches!(&message.body, Body::Data(data)
        if data.id.block == block && symbols.contains(&data.id.symbol)
            && !data.flags.contains(Flags::REPAIR))
}

fn config() -> Config {
    let mut config = Config::default();
    config.sender.tail_parity = false;
    config
}

/// Sending times of a host's messages for which `holds`.
fn times(group: &Group, host: usize, holds: impl Fn(&Body<'_>) -> bool) -> Vec<Time> {
    let log = group.log.iter().filter(|(_, from, _)| *from == host);
    let those = log
        .filter(|(_, _, bytes)| holds(&Message::decode(bytes).expect("nodes send messages").body));
    those.map(|(at, _, _)| *at).collect()
}

fn is_repair(body: &Body<'_>) -> bool {
    matches!(body, Body::Data(data) if data.flags.contains(Flags::REPAIR))
}

#[test]
fn requests_get_one_immediate_reply() {
    // Receiver n lacks n segments of the first block.
    for unicast_nack in [false, true] {
        let mut config = config();
        config.receiver.unicast_nack = unicast_nack;
        let mut group = Group::of(4, &config);
        group.lose = Box::new(|_, to, _, message| is_source(message, 0, 3..3 + to as u16));
        let file = content(200_000);
        group.send(0, &file, "copy");
        group.run();
        (1..=4).for_each(|host| group.assert_has(host, "copy", &file));
        let lines = || group.transcript();
        let requested: Vec<_> = (1..=4)
            .flat_map(|host| times(&group, host, |body| matches!(body, Body::Nack(_))))
            .collect();
        let repairs = times(&group, 0, is_repair);
        // As many as requested by the receiver that lacks most, in any order of requests.
        assert_eq!(repairs.len(), 4, "{:#?}", lines());
        let first = requested.iter().min().expect("somebody asks");
        let wait = repairs[0].since(*first);
        // One-way delay, plus the message being transmitted.
        assert!(wait < Duration::from_millis(25 + 3), "{wait:?} {:#?}", lines());
    }
}

#[test]
fn requests_may_be_collected() {
    let mut config = config();
    config.sender.collect = true;
    let mut group = Group::of(4, &config);
    group.lose = Box::new(|_, to, _, message| is_source(message, 0, 3..3 + to as u16));
    let file = content(200_000);
    group.send(0, &file, "copy");
    group.run();
    let repairs = times(&group, 0, is_repair);
    assert_eq!(repairs.len(), 4, "{:#?}", group.transcript());
    let requested =
        (1..=4).flat_map(|host| times(&group, host, |body| matches!(body, Body::Nack(_))));
    // K + 1 = 2 greatest round trips of 61.8 ms, after a one-way delay of 25 ms.
    let wait = repairs[0].since(requested.min().expect("somebody asks"));
    assert!((148..=152).contains(&wait.as_millis()), "{wait:?} {:#?}", group.transcript());
}

#[test]
fn tail_parity_repairs_losses_of_several_receivers() {
    // Each block loses two segments at one of two receivers; ten blocks take 0.5 s.
    let run = |tail_parity| {
        let mut config = Config::default();
        config.sender.tail_parity = tail_parity;
        let mut group = Group::of(2, &config);
        group.lose = Box::new(|_, to, _, message| {
            is_source(message, 0, 5..7) && to == 1
                || matches!(&message.body, Body::Data(data)
                    if (data.id.symbol == 20 || data.id.symbol == 21)
                        && data.id.block as usize % 2 == to - 1)
        });
        let file = content(640_000);
        group.send(0, &file, "copy");
        group.run();
        (1..=2).for_each(|host| group.assert_has(host, "copy", &file));
        let proactive = group.hosts[0].node.stats().auto_parity;
        let last = times(&group, 0, |body| matches!(body, Body::Data(_)));
        (proactive, last.last().copied().expect("data"), group.nacks())
    };
    let (proactive, end, nacks) = run(true);
    let (none, later, more) = run(false);
    // 2 × 61.8 ms at 10 Mbit/s are 150 segments: two blocks of 64, and the last ones.
    assert_eq!(none, 0);
    assert!((2 * 3..=4 * 5).contains(&proactive), "{proactive}");
    assert!(nacks < more, "{nacks} {more}");
    // One round trip, and the rest of a repair round.
    assert!(later.since(end) > Duration::from_millis(50), "{:?}", later.since(end));
}

#[test]
fn without_losses_no_proactive_parity_is_sent() {
    let mut group = Group::of(3, &Config::default());
    let file = content(640_000);
    group.send(0, &file, "copy");
    group.run();
    (1..=3).for_each(|host| group.assert_has(host, "copy", &file));
    assert_eq!(group.hosts[0].node.stats().auto_parity, 0);
}

#[test]
fn a_lost_repair_at_the_end_costs_no_other_round() {
    let rounds = |tail_parity| {
        let mut config = Config::default();
        config.sender.tail_parity = tail_parity;
        let mut group = Group::of(1, &config);
        let mut repairs = 0;
        group.lose = Box::new(move |_, _, _, message| {
            repairs += u32::from(is_repair(&message.body));
            is_source(message, 0, 5..8) || is_repair(&message.body) && repairs == 1
        });
        let file = content(64_000);
        group.send(0, &file, "copy");
        group.run();
        group.assert_has(1, "copy", &file);
        group.nacks()
    };
    assert_eq!((rounds(true), rounds(false)), (1, 2));
}

#[test]
fn a_flush_after_repairs_begins_the_next_round() {
    let mut config = config();
    config.sender.backoff = Some(3);
    let mut group = Group::of(1, &config);
    let mut repairs = 0;
    group.lose = Box::new(move |_, _, _, message| {
        repairs += u32::from(is_repair(&message.body));
        is_source(message, 0, 5..7) || is_repair(&message.body) && repairs == 1
    });
    let file = content(64_000);
    group.send(0, &file, "copy");
    group.run();
    group.assert_has(1, "copy", &file);
    let requested = times(&group, 1, |body| matches!(body, Body::Nack(_)));
    let repaired = times(&group, 0, is_repair);
    assert_eq!((requested.len(), repaired.len()), (2, 3), "{:#?}", group.transcript());
    // One-way delay, and a random wait of at most 3 × 61.8 ms.
    let wait = requested[1].since(repaired[1]);
    assert!(wait < Duration::from_millis(25 + 3 * 62 + 5), "{wait:?}");
}

#[test]
fn immediate_replies_cost_no_more_than_collected_ones() {
    let repairs = |collect| {
        let mut config = config();
        config.sender.collect = collect;
        let mut group = Group::of(30, &config);
        let mut rng = Rng::new(7, "losses");
        group.lose = Box::new(move |_, _, _, message| {
            matches!(message.body, Body::Data(_)) && rng.chance(0.02)
        });
        let file = content(1_000_000);
        group.send(0, &file, "copy");
        group.run();
        (1..=30).for_each(|host| group.assert_has(host, "copy", &file));
        group.count(0, is_repair)
    };
    let (at_once, collected) = (repairs(false), repairs(true));
    assert!(at_once as f64 <= 1.1 * collected as f64, "{at_once} {collected}");
}
