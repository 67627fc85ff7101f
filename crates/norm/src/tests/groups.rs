//! One or several senders, and many receivers.

use std::time::Duration;

use engine::{PathInfo, Rng};

use super::group::{GROUP, Group, path_to};
use super::world::content;
use crate::message::{
    Body, Command, Extensions, FIELD_BITS_ASSUMED, Message, Nack, NodeId, PayloadId, Position,
    RequestFlags, RequestWriter, Scheme, SendTime,
};
use crate::{Config, Content, EndGame, Failure, Indication};

const SECOND: Duration = Duration::from_secs(1);

fn data_of(block: u32, symbol: u16) -> impl Fn(&Message<'_>) -> bool {
    move |message| match &message.body {
        Body::Data(data) => data.id.block == block && data.id.symbol == symbol,
        _ => false,
    }
}

fn is_data(message: &Message<'_>) -> bool {
    matches!(message.body, Body::Data(_) | Body::Info(_))
}

fn is_repair(body: &Body<'_>) -> bool {
    matches!(body, Body::Data(data) if data.flags.contains(crate::message::Flags::REPAIR))
}

#[test]
fn one_parity_segment_repairs_different_losses() {
    let mut config = Config::default();
    config.sender.tail_parity = false;
    let mut group = Group::of(5, &config);
    let file = content(64_000);
    group.lose = Box::new(|_, to, _, message| data_of(0, to as u16 * 7)(message));
    group.send(0, &file, "copy");
    group.run();
    (1..=5).for_each(|host| group.assert_has(host, "copy", &file));
    assert_eq!(group.count(0, is_repair), 1, "{:#?}", group.transcript());
    assert!(group.finished(0)[0].is_confirmed, "{:#?}", group.transcript());
    assert_eq!(group.finished(0)[0].acknowledged, 5);
}

#[test]
fn overheard_requests_suppress_requests() {
    let mut config = Config::default();
    // The RFC's values for large groups: with less, more receivers send before they receive others'
    // messages.
    (config.sender.group_size, config.sender.backoff) = (Some(100), Some(4));
    config.sender.collect = true;
    let file = content(64_000);
    // A segment, two of a block, a whole block, NORM_INFO: lost for all receivers.
    let cases: [fn(&Message<'_>) -> bool; 4] = [
        |message| data_of(0, 3)(message),
        |message| data_of(0, 3)(message) || data_of(0, 9)(message),
        |message| matches!(&message.body, Body::Data(data) if data.id.block == 0),
        |message| matches!(message.body, Body::Info(_)),
    ];
    for lost in cases {
        for unicast_nack in [false, true] {
            config.receiver.unicast_nack = unicast_nack;
            let mut group = Group::of(40, &config);
            group.lose = Box::new(move |_, _, number, message| number < 80 && lost(message));
            group.send(0, &file, "copy");
            group.run();
            (1..=40).for_each(|host| group.assert_has(host, "copy", &file));
            let nacks = group.nacks();
            let adv =
                group.count(0, |body| matches!(body, Body::Command(Command::RepairAdv { .. })));
            assert!((1..=12).contains(&nacks), "{nacks} NACKs: {:#?}", group.transcript());
            assert_eq!(adv > 0, unicast_nack, "{:#?}", group.transcript());
        }
    }
}

#[test]
fn independent_losses_cost_little() {
    let mut config = Config::default();
    config.sender.group_size = Some(50);
    let mut group = Group::of(30, &config);
    let mut rng = Rng::new(5, "losses");
    group.lose = Box::new(move |_, _, _, message| is_data(message) && rng.chance(0.02));
    let file = content(500_000);
    group.send(0, &file, "copy");
    group.run();
    (1..=30).for_each(|host| group.assert_has(host, "copy", &file));
    assert!(group.finished(0)[0].is_confirmed);
    // 507 segments in 8 blocks: 30 receivers lose 300 in all, the worst of them some 4 of a block.
    let repairs = group.count(0, is_repair);
    assert!(repairs < 60, "{repairs} repairs");
}

#[test]
fn losses_of_any_message_are_repaired() {
    for seed in 0..12 {
        let mut config = Config::default();
        config.receiver.unicast_nack = seed % 2 == 1;
        config.sender.auto_parity = (seed % 3) as u16 * 4;
        config.sender.fec = if seed % 4 == 3 { Scheme::NoCode } else { Scheme::ReedSolomon8 };
        // The sender would not wait for a receiver without any message.
        config.sender.receivers = 8;
        let mut group = Group::of(8, &config);
        let mut rng = Rng::new(seed, "losses");
        group.lose = Box::new(move |_, _, _, _| rng.chance(0.15));
        let file = content(150_000);
        group.send(0, &file, "copy");
        group.run();
        (1..=8).for_each(|host| group.assert_has(host, "copy", &file));
    }
}

#[test]
fn several_send_at_once() {
    let mut group = Group::of(3, &Config::default());
    let mut rng = Rng::new(1, "losses");
    group.lose = Box::new(move |_, _, _, message| is_data(message) && rng.chance(0.1));
    let files = [content(100_000), content(50_000), content(70_001)];
    for (host, file) in files.iter().enumerate() {
        group.send(host, file, &format!("of-{host}"));
    }
    group.run();
    for (from, file) in files.iter().enumerate() {
        (0..4).for_each(|host| group.assert_has(host, &format!("of-{from}"), file));
        let own = group.finished(from).into_iter().find(|finished| finished.is_sender);
        assert_eq!(own.expect("it ended").acknowledged, 3);
    }
}

#[test]
fn a_late_receiver_gets_everything() {
    // Within the first block, later, and when only flushes are left.
    for (late, before) in [(20, 25), (300, 305), (480, 600)] {
        let mut config = Config::default();
        config.sender.end = EndGame::Flush;
        let mut group = Group::of(2, &config);
        group.hosts[2].is_on = false;
        let file = content(500_000);
        group.send(0, &file, "copy");
        group.run_for(Duration::from_millis(late));
        group.hosts[2].is_on = true;
        group.run_for(Duration::from_millis(before - late));
        group.run();
        (1..=2).for_each(|host| group.assert_has(host, "copy", &file));
    }
}

#[test]
fn dead_receivers_are_given_up() {
    let mut group = Group::of(3, &Config::default());
    let file = content(500_000);
    group.send(0, &file, "copy");
    group.run_for(SECOND / 5);
    group.hosts[2].is_on = false;
    group.run();
    [1, 3].into_iter().for_each(|host| group.assert_has(host, "copy", &file));
    let end = &group.finished(0)[0];
    assert_eq!(end.result, Err(Failure::Unacknowledged { missing: 1, known: 3 }));
    assert_eq!((end.acknowledged, end.is_confirmed), (2, false));
    assert_eq!(group.hosts[2].node.objects().count(), 0, "it, too, comes to an end");
}

#[test]
fn silent_receivers_send_nothing() {
    let mut config = Config::default();
    config.sender.auto_parity = 8;
    config.sender.end = EndGame::Flush;
    config.receiver.silent = true;
    let mut group = Group::of(4, &config);
    group.lose = Box::new(|_, to, number, message| is_data(message) && number % 17 == to);
    let file = content(200_000);
    group.send(0, &file, "copy");
    group.run();
    for host in 1..=4 {
        group.assert_has(host, "copy", &file);
        assert_eq!(group.hosts[host].node.stats().sent.total(), 0);
    }
}

#[test]
fn cancelled_objects_end_at_all_receivers() {
    let mut group = Group::of(3, &Config::default());
    let kept = content(120_000);
    let first = group.send(0, &content(300_000), "dropped");
    group.send(0, &kept, "kept");
    group.run_for(SECOND / 5);
    group.cancel(0, first);
    group.run();
    for host in 1..=3 {
        group.assert_has(host, "kept", &kept);
        let results: Vec<_> = group.finished(host).iter().map(|end| end.result.clone()).collect();
        assert_eq!(results, [Err(Failure::Abandoned), Ok(())], "{:#?}", group.transcript());
    }
    let confirmed: Vec<_> = group.finished(0).iter().map(|end| end.is_confirmed).collect();
    assert_eq!(confirmed, [false, true]);
}

#[test]
fn given_up_objects_end_everywhere() {
    let mut group = Group::of(3, &Config::default());
    let ids = ["a", "b", "c"].map(|name| group.send(0, &content(150_000), name));
    group.run_for(SECOND / 10);
    for id in ids {
        group.cancel(0, id);
    }
    group.run();
    for host in 0..=3 {
        assert!(group.finished(host).iter().all(|end| end.result.is_err()));
        assert_eq!(group.hosts[host].node.objects().count(), 0);
        assert!(group.now.as_secs_f64() < 60.0, "{}", group.now);
    }
}

#[test]
fn a_restarted_sender_is_a_new_sender() {
    let mut group = Group::of(2, &Config::default());
    let file = content(300_000);
    group.send(0, &file, "copy");
    group.run_for(SECOND / 5);
    group.restart(0);
    group.send(0, &file, "copy");
    group.run();
    for host in 1..=2 {
        group.assert_has(host, "copy", &file);
        let results: Vec<_> = group.finished(host).iter().map(|end| end.result.clone()).collect();
        assert_eq!(results, [Err(Failure::Abandoned), Ok(())]);
    }
    assert!(group.finished(0)[0].is_confirmed);
}

#[test]
fn a_restarted_receiver_gets_everything() {
    let mut group = Group::of(2, &Config::default());
    let file = content(300_000);
    group.send(0, &file, "copy");
    group.run_for(SECOND / 5);
    group.restart(1);
    group.run();
    (1..=2).for_each(|host| group.assert_has(host, "copy", &file));
    assert!(group.finished(0)[0].is_confirmed);
}

#[test]
fn nodes_with_the_same_number_end() {
    let config = Config { node: 77, ..Config::default() };
    let mut group = Group::of(1, &config);
    group.send(0, &content(50_000), "copy");
    group.run();
    assert_eq!(group.finished(0)[0].result, Err(Failure::NoReceiver));
    assert_eq!(group.hosts[1].indications, []);
}

#[test]
fn two_senders_with_the_same_number_end() {
    let same = Config { node: 77, ..Config::default() };
    let mut group = Group::new(vec![same.clone(), same, Config::default()]);
    group.send(0, &content(50_000), "a");
    group.send(1, &content(50_000), "b");
    group.run();
    for host in 0..3 {
        assert_eq!(group.hosts[host].node.objects().count(), 0);
    }
}

#[test]
fn requests_to_an_earlier_instance_are_ignored() {
    let mut group = Group::of(1, &Config::default());
    group.send(0, &content(300_000), "copy");
    group.run_for(SECOND / 5);
    let mut out = [0; 64];
    let mut writer = RequestWriter::new(&mut out, FIELD_BITS_ASSUMED);
    let id = PayloadId { block: 0, symbol: 0, block_len: None };
    let first = Message::decode(&group.log[1].2).expect("a message");
    let Body::Info(info) = first.body else { panic!("{first}") };
    let item = Position { fec: Scheme::ReedSolomon8, object: info.object, id };
    writer.item(RequestFlags::BLOCK, item).expect("room");
    let nack = Nack {
        server: NodeId(1),
        instance: info.sender.instance.wrapping_add(1),
        grtt_response: SendTime::NONE,
        cc: None,
        others: Extensions::NONE,
        requests: writer.finish(),
    };
    let message = Message { sequence: 0, source: NodeId(9), body: Body::Nack(nack) };
    group.deliver(0, GROUP, path_to(1), &message);
    assert_eq!(group.hosts[0].node.stats().stray, 1);
    group.run();
    assert_eq!(group.finished(0)[0].acknowledged, 1);
    assert_eq!(group.count(0, is_repair), 0);
}

#[test]
fn all_receivers_acknowledge() {
    // 128 bytes name 24 receivers at a time.
    for dead in [0, 30] {
        let mut config = Config::default();
        config.sender.block_len = 8;
        config.sender.parity = 4;
        let info = PathInfo { rate_bps: Some(1_000_000), ..PathInfo::datagram(128) };
        let mut group = Group::on(vec![config; 71], info);
        let file = content(30_000);
        group.send(0, &file, "copy");
        // Time until all are known.
        group.run_for(SECOND / 5);
        for host in 1..=70 {
            // Each sends a request, so that the sender registers it.
            let mut out = [0; 32];
            let mut writer = RequestWriter::new(&mut out, FIELD_BITS_ASSUMED);
            let first = Message::decode(&group.log[1].2).expect("a message");
            let sender = first.body.sender().expect("it is the sender's");
            let id = PayloadId { block: 0, symbol: 0, block_len: None };
            let object = match first.body {
                Body::Info(info) => info.object,
                _ => panic!("{first}"),
            };
            let item = Position { fec: Scheme::ReedSolomon8, object, id };
            writer.item(RequestFlags::SEGMENT, item).expect("room");
            let nack = Nack {
                server: NodeId(1),
                instance: sender.instance,
                grtt_response: SendTime::NONE,
                cc: None,
                others: Extensions::NONE,
                requests: writer.finish(),
            };
            let source = NodeId(host as u32 + 1);
            let message = Message { sequence: 0, source, body: Body::Nack(nack) };
            let bytes = message.to_vec().expect("a message");
            let message = Message::decode(&bytes).expect("a message");
            group.deliver(0, GROUP, path_to(host), &message);
        }
        (1..=dead).for_each(|host| group.hosts[host].is_on = false);
        group.run();
        (dead + 1..=70).for_each(|host| group.assert_has(host, "copy", &file));
        let end = &group.finished(0)[0];
        assert_eq!(end.acknowledged as usize, 70 - dead, "{:?}", end.result);
        assert_eq!(end.is_confirmed, dead == 0);
    }
}

#[test]
fn sender_waits_for_the_configured_receivers() {
    let mut config = Config::default();
    config.sender.receivers = 3;
    let mut group = Group::of(3, &config);
    let file = content(100_000);
    group.send(0, &file, "copy");
    group.run();
    let end = &group.finished(0)[0];
    assert_eq!((end.acknowledged, end.is_confirmed), (3, true), "{:#?}", group.transcript());
    assert!(group.flushes() < 6, "{:#?}", group.transcript());
    let mut group = Group::of(2, &config);
    group.send(0, &file, "copy");
    group.run();
    let end = &group.finished(0)[0];
    assert_eq!(end.result, Err(Failure::Unacknowledged { missing: 1, known: 3 }));
    assert!(!end.is_confirmed);
}

#[test]
fn end_is_announced_as_configured_by_the_end_game() {
    let mut config = Config::default();
    let file = content(100_000);
    let mut group = Group::of(3, &config);
    group.send(0, &file, "copy");
    group.run();
    assert!((2..5).contains(&group.flushes()), "{:#?}", group.transcript());
    assert!(group.finished(0)[0].is_confirmed);
    config.sender.end = EndGame::Flush;
    config.sender.robust_factor = 7;
    let mut group = Group::of(3, &config);
    group.send(0, &file, "copy");
    group.run();
    assert_eq!(group.flushes(), 7, "{:#?}", group.transcript());
    let end = &group.finished(0)[0];
    assert_eq!((&end.result, end.is_confirmed), (&Ok(()), false));
}

#[test]
fn a_refusal_is_never_acknowledged() {
    let mut group = Group::of(2, &Config::default());
    group.hosts[1].store.set_capacity(Some(60_000));
    group.send(0, &content(100_000), "large");
    let small = content(20_000);
    group.send(0, &small, "small");
    group.run();
    group.assert_has(1, "small", &small);
    group.assert_has(2, "small", &small);
    group.send(0, &small, "later");
    group.run();
    let ends = group.finished(0);
    let confirmed: Vec<_> = ends.iter().map(|end| (end.is_confirmed, end.acknowledged)).collect();
    assert_eq!(confirmed, [(false, 1), (true, 2), (true, 2)]);
    assert_eq!(ends[0].result, Err(Failure::Unacknowledged { missing: 1, known: 2 }));
}

#[test]
fn bytes_cross_to_a_group() {
    let mut group = Group::of(3, &Config::default());
    let bytes = content(40_000);
    group.lose = Box::new(|_, to, number, message| is_data(message) && number % 11 == to);
    for _ in 0..4 {
        group.request(0, Content::Data(bytes.clone().into()), "");
    }
    group.run();
    for host in 1..=3 {
        let ends = group.finished(host);
        assert_eq!(ends.len(), 4);
        assert!(ends.iter().all(|end| end.data.as_deref() == Some(&bytes[..])));
    }
    let limits = |indication: &Indication| matches!(indication, Indication::LimitReached(_));
    assert!(!group.hosts[1].indications.iter().any(limits));
}
