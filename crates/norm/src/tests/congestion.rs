//! Senders with congestion control, and their receivers' feedback.

use std::time::Duration;

use engine::Rng;

use super::group::Group;
use super::world::{World, content};
use crate::Config;
use crate::message::{self, Ack, Body, CcFlags, Command, Message};

const SECOND: Duration = Duration::from_secs(1);

fn config() -> Config {
    let mut config = Config::default();
    config.sender.congestion_control = true;
    config
}

fn is_data(message: &Message<'_>) -> bool {
    matches!(message.body, Body::Data(_))
}

/// Rates advertised in the first host's probes, in bytes per second, by sending time.
fn rates(group: &Group) -> Vec<(f64, f64)> {
    let sent = group.log.iter().filter(|(_, from, _)| *from == 0);
    let rate = |bytes| match Message::decode(bytes).ok()?.body {
        Body::Command(Command::Cc { rate, .. }) => rate.map(message::rate),
        _ => None,
    };
    sent.filter_map(|(at, _, bytes)| Some((at.as_secs_f64(), rate(bytes)?))).collect()
}

fn last_rate(group: &Group) -> f64 {
    rates(group).last().expect("there are probes").1
}

fn is_answer(body: &Body<'_>) -> bool {
    matches!(body, Body::Ack(ack) if ack.kind == Ack::CC)
}

fn is_probe(body: &Body<'_>) -> bool {
    matches!(body, Body::Command(Command::Cc { .. }))
}

#[test]
fn rate_recovers_when_the_limiting_receiver_leaves() {
    let mut group = Group::of(2, &config());
    let mut rng = Rng::new(3, "losses");
    group.lose = Box::new(move |_, to, _, message| to == 2 && is_data(message) && rng.chance(0.1));
    group.send(0, &content(8_000_000), "copy");
    group.run_for(15 * SECOND);
    let lossy = last_rate(&group);
    // RFC 5348 §3.1: 1,024 / (0.0504 * 0.5653) = 36,000; measuring the losses takes time.
    assert!((15_000.0..90_000.0).contains(&lossy), "{lossy}");
    let entry = |group: &Group| -> Option<message::CcNode> {
        let (_, _, bytes) = group.log.iter().rev().find(|(_, _, bytes)| {
            Message::decode(bytes).is_ok_and(|message| is_probe(&message.body))
        })?;
        match Message::decode(bytes).ok()?.body {
            Body::Command(Command::Cc { nodes, .. }) => nodes.iter().next(),
            _ => None,
        }
    };
    let first = entry(&group).expect("one limits");
    assert_eq!(first.node.0, 3);
    assert!(first.flags.contains(CcFlags::CLR | CcFlags::RTT), "{:?}", first.flags);
    group.hosts[2].is_on = false;
    group.run_for(15 * SECOND);
    let first = entry(&group).expect("one limits");
    assert_eq!(first.node.0, 2);
    assert!(last_rate(&group) > 4.0 * lossy, "{lossy} {}", last_rate(&group));
}

#[test]
fn rate_falls_without_feedback_but_not_to_zero() {
    let mut group = Group::of(1, &config());
    let file = content(8_000_000);
    group.send(0, &file, "copy");
    // In a group the first reply may take four round trips, initially of one second.
    group.run_for(6 * SECOND);
    let before = last_rate(&group);
    assert!(before > 100_000.0, "{before}");
    group.lose = Box::new(|from, _, _, _| from == 1);
    group.run_for(SECOND);
    let after = last_rate(&group);
    assert!(after < before / 8.0, "{before} {after}");
    group.run_for(20 * SECOND);
    let least = rates(&group).iter().skip(5).map(|(_, rate)| *rate).fold(f64::MAX, f64::min);
    assert!((900.0..1100.0).contains(&least), "{least}");
    let data = group.count(0, |body| matches!(body, Body::Data(_)));
    group.run_for(10 * SECOND);
    let more = group.count(0, |body| matches!(body, Body::Data(_))) - data;
    assert!((8..=12).contains(&more), "a segment a second: {more}");
    group.lose = Box::new(|_, _, _, _| false);
    group.run();
    group.assert_has(1, "copy", &file);
    assert!(group.finished(0)[0].is_confirmed);
}

#[test]
fn the_limiting_receiver_replies_to_each_probe() {
    for unicast_nack in [false, true] {
        let mut config = config();
        config.receiver.unicast_nack = unicast_nack;
        config.sender.group_size = Some(100);
        let mut group = Group::of(30, &config);
        let mut rng = Rng::new(3, "losses");
        group.lose =
            Box::new(move |_, to, _, message| to == 7 && is_data(message) && rng.chance(0.05));
        group.send(0, &content(4_000_000), "copy");
        group.run_for(10 * SECOND);
        let count = |group: &Group| {
            let answers: Vec<_> = (1..=30).map(|host| group.count(host, is_answer)).collect();
            (group.count(0, is_probe), answers)
        };
        let (probes, before) = count(&group);
        group.run_for(10 * SECOND);
        let (more, after) = count(&group);
        let (probes, of_limiting) = (more - probes, after[6] - before[6]);
        let of_all: usize = after.iter().sum::<usize>() - before.iter().sum::<usize>();
        let others = of_all - of_limiting;
        // Its NACKs carry the same feedback, which makes replies needless.
        let nacks = group.nacks();
        assert!(of_limiting + nacks >= probes * 9 / 10, "{of_limiting} of {probes}, {nacks} NACKs");
        // One of at most four others named in a probe, and a few in each quiet time.
        assert!((1..4 * probes).contains(&others), "{others} others, {probes} probes");
        let reported = group
            .count(0, |body| matches!(body, Body::Command(Command::RepairAdv { cc: Some(_), .. })));
        assert_eq!(reported > 0, unicast_nack, "{reported}");
    }
}

#[test]
fn feedback_of_a_slower_receiver_is_enough() {
    // All start to wait at the first probe; after the first replies the others have nothing to add.
    let mut config = config();
    config.sender.group_size = Some(100);
    let mut group = Group::of(40, &config);
    group.send(0, &content(50_000), "copy");
    group.run_for(3 * SECOND);
    let before_list = |message: &Message<'_>| match &message.body {
        Body::Ack(ack) if ack.kind == Ack::CC => {
            ack.cc.is_some_and(|cc| !cc.flags.contains(CcFlags::RTT))
        }
        _ => false,
    };
    let messages = group.log.iter().filter_map(|(_, _, bytes)| Message::decode(bytes).ok());
    let answers = messages.filter(before_list).count();
    assert!((1..20).contains(&answers), "{answers} of 40: {:#?}", group.transcript());
}

#[test]
fn one_receiver_gets_it_at_the_rate_of_the_path() {
    let world = World::crossed(&config(), 5_000_000);
    // 5,016 messages of 1,066 bytes at 10 Mbit/s are 4.2 s; slow start takes 1 s.
    let took = world.now.as_secs_f64();
    assert!((4.2..6.5).contains(&took), "{took}");
}

#[test]
fn fixed_rates_need_no_feedback() {
    let mut group = Group::of(1, &Config::default());
    group.send(0, &content(3_000_000), "copy");
    group.lose = Box::new(|from, _, _, _| from == 1);
    group.run_for(5 * SECOND);
    let rates = rates(&group);
    assert!(rates.len() < 5, "{rates:?}");
    assert!(rates.iter().all(|(_, rate)| (rate / 1.25e6 - 1.0).abs() < 0.01), "{rates:?}");
}
