//! Objects acknowledged while others are being sent (RFC 5740 §5.5.3).

use std::time::Duration;

use session::timer::Timer;

use super::group::Group;
use super::world::{World, content};
use crate::message::{Body, Command, Message};
use crate::{Config, Content, EndGame, Failure, Finished, Indication};

fn finished(world: &World, side: usize) -> Vec<&Finished> {
    let ends = world.hosts[side].indications.iter().filter_map(|indication| match indication {
        Indication::Finished(finished) => Some(finished),
        _ => None,
    });
    ends.collect()
}

/// Time of a sender's last message of a kind, in seconds.
fn last(group: &Group, holds: impl Fn(&Body<'_>) -> bool) -> f64 {
    let sent = group.log.iter().rev().find(|(_, from, bytes)| {
        *from == 0 && holds(&Message::decode(bytes).expect("a message").body)
    });
    sent.expect("there is one").0.as_secs_f64()
}

#[test]
fn each_of_several_objects_ends_by_itself() {
    for receivers in [1, 3] {
        let mut group = Group::of(receivers, &Config::default());
        let files = ["a", "b", "c", "d"].map(|name| (name, content(300_000)));
        for (name, file) in &files {
            group.send(0, file, name);
        }
        let mut ended = Vec::new();
        // 300,000 bytes take 0.25 s.
        for _ in 0..40 {
            group.run_for(Duration::from_millis(25));
            ended.push(group.finished(0).len());
        }
        assert!((1..3).contains(&ended[20]) && (2..4).contains(&ended[30]), "{ended:?}");
        group.run();
        for (name, file) in &files {
            (1..=receivers).for_each(|host| group.assert_has(host, name, file));
        }
        let ends = group.finished(0);
        let names: Vec<_> = ends.iter().map(|end| end.info.clone()).collect();
        assert_eq!(names, ["a", "b", "c", "d"]);
        assert!(ends.iter().all(|end| end.is_confirmed && end.acknowledged == receivers as u32));
    }
}

#[test]
fn losses_hold_back_only_their_own_objects() {
    let mut world = World::with(&Config::default());
    // Part of the second object is lost each time it is sent within the first second.
    let mut second = None;
    world.lose(move |from, number, bytes| {
        let Ok(Message { body: Body::Data(data), .. }) = Message::decode(bytes) else {
            return false;
        };
        let first = *second.get_or_insert(data.object);
        from == 0 && number < 900 && data.object == first.wrapping_add(1) && data.id.block == 1
    });
    for _ in 0..4 {
        world.request(Content::Data(content(300_000).into()), "");
    }
    world.run_until(engine::Time::from_nanos(700_000_000));
    assert_eq!(finished(&world, 0).len(), 1, "{:#?}", world.transcript());
    assert_eq!(finished(&world, 1).len(), 1, "{:#?}", world.transcript());
    world.run();
    let ends = finished(&world, 0);
    assert_eq!(ends.len(), 4);
    assert!(ends.iter().all(|end| end.is_confirmed));
    let numbers: Vec<_> = ends.iter().map(|end| end.id.number).collect();
    assert!(numbers.is_sorted(), "{numbers:?}");
}

#[test]
fn many_small_objects_share_a_question() {
    for receivers in [1, 5] {
        let mut config = Config::default();
        config.limits.objects = 4000;
        let mut group = Group::of(receivers, &config);
        for number in 0..2000_u32 {
            group.request(0, Content::Data(number.to_be_bytes().repeat(256).into()), "");
        }
        group.run();
        let ends = group.finished(0);
        assert_eq!(ends.iter().filter(|end| end.is_confirmed).count(), 2000);
        for host in 1..=receivers {
            assert_eq!(group.finished(host).iter().filter(|end| end.result.is_ok()).count(), 2000);
        }
        // 1.7 s of data, and a round trip of 0.1 s: twice that between requests.
        let flushes = group.flushes();
        assert!((5..30).contains(&flushes), "{flushes}");
        let acks = (1..=receivers).map(|host| {
            let flush = |body: &Body<'_>| matches!(body, Body::Ack(ack) if ack.kind == 2);
            group.count(host, flush)
        });
        assert!(acks.max().is_some_and(|most| most <= flushes), "{flushes}");
    }
}

#[test]
fn dead_receivers_do_not_hold_back_acknowledged_objects() {
    let mut config = Config::default();
    config.sender.patience = Timer::Fixed(Duration::from_secs(10));
    let mut group = Group::of(3, &config);
    let file = content(600_000);
    for name in ["a", "b", "c"] {
        group.send(0, &file, name);
    }
    // In the middle of the second object.
    group.run_for(Duration::from_millis(800));
    group.hosts[2].is_on = false;
    group.run();
    let ends: Vec<_> = group.finished(0).iter().map(|end| end.result.clone()).collect();
    let missing = Err(Failure::Unacknowledged { missing: 1, known: 3 });
    assert_eq!(ends, [Ok(()), missing.clone(), missing]);
    for host in [1, 3] {
        ["a", "b", "c"].into_iter().for_each(|name| group.assert_has(host, name, &file));
    }
    // It is polled for ten seconds, however much it lacks.
    let is_flush = |body: &Body<'_>| matches!(body, Body::Command(Command::Flush { .. }));
    let until = last(&group, is_flush);
    assert!((5.0..12.0).contains(&until), "{until}");
    let is_probe = |body: &Body<'_>| matches!(body, Body::Command(Command::Cc { .. }));
    assert!(last(&group, is_probe) < 20.0, "{}", group.now);
    // Later objects are not meant for it.
    group.send(0, &file, "d");
    group.run();
    assert!(group.finished(0)[3].is_confirmed);
}

#[test]
fn later_watermarks_do_not_extend_earlier_acknowledgments() {
    // In a group the reply to the first request is delayed; the second one requests data that has
    // not arrived.
    let mut config = Config::default();
    config.sender.backoff = Some(4);
    let mut group = Group::of(2, &config);
    group.lose = Box::new(|_, to, number, message| {
        to == 2 && number < 2000 && matches!(&message.body, Body::Data(data) if data.id.block == 2)
    });
    for name in ["a", "b", "c", "d", "e", "f"] {
        // Two blocks, or three of which one is delayed for long.
        let len = if name == "d" { 190_000 } else { 100_000 };
        group.send(0, &content(len), name);
    }
    group.run();
    // Nothing is confirmed before it has arrived.
    for end in group.finished(0) {
        assert!(end.is_confirmed);
    }
    for host in 1..=2 {
        assert_eq!(group.finished(host).iter().filter(|end| end.result.is_ok()).count(), 6);
    }
}

#[test]
fn without_acknowledgements_all_ends_at_once() {
    let mut config = Config::default();
    config.sender.end = EndGame::Flush;
    let mut group = Group::of(2, &config);
    for name in ["a", "b"] {
        group.send(0, &content(300_000), name);
    }
    group.run();
    assert_eq!(group.flushes(), 20, "{:#?}", group.transcript());
    let ends = group.finished(0);
    assert!(ends.iter().all(|end| end.result.is_ok() && !end.is_confirmed));
}
