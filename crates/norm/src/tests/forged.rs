//! Forged and excessive messages: none may cost the rest of a group much.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use engine::{PathId, PathInfo, Time};

use super::group::{GROUP, Group, path_to};
use super::world::content;
use crate::message::{
    Ack, Body, Command, Extensions, FIELD_BITS_ASSUMED, Flags, Message, Nack, NodeId, NodeList,
    PayloadId, Position, RequestFlags, RequestWriter, Scheme, SendTime,
};
use crate::{Config, Content, EndGame, Indication, Limit};

const SECOND: Duration = Duration::from_secs(1);

/// Instance of the first host's sender, and its first object.
fn life(group: &Group) -> (u16, u16) {
    let infos = group.log.iter().filter_map(|(_, from, bytes)| {
        let message = Message::decode(bytes).expect("nodes send messages");
        match message.body {
            Body::Info(info) if *from == 0 => Some((info.sender.instance, info.object)),
            _ => None,
        }
    });
    infos.min_by_key(|(_, object)| *object).expect("it speaks of an object")
}

/// Delivers a request for blocks or segments, from one to another, to the first host.
fn ask(
    group: &mut Group,
    node: u32,
    flags: RequestFlags,
    ranges: impl Iterator<Item = [(u32, u16); 2]>,
) {
    ask_on(group, GROUP, node, flags, ranges);
}

/// Delivers a request on a path: the group's, or the other host's.
fn ask_on(
    group: &mut Group,
    path: PathId,
    node: u32,
    flags: RequestFlags,
    ranges: impl Iterator<Item = [(u32, u16); 2]>,
) {
    let (instance, object) = life(group);
    let mut out = [0; 1400];
    let mut writer = RequestWriter::new(&mut out, FIELD_BITS_ASSUMED);
    for range in ranges {
        let [first, last] = range.map(|(block, symbol)| Position {
            fec: Scheme::ReedSolomon8,
            object,
            id: PayloadId { block, symbol, block_len: None },
        });
        writer.range(flags, first, last).expect("there is room");
    }
    let nack = Nack {
        server: NodeId(1),
        instance,
        grtt_response: SendTime::NONE,
        cc: None,
        others: Extensions::NONE,
        requests: writer.finish(),
    };
    let message = Message { sequence: 0, source: NodeId(node), body: Body::Nack(nack) };
    group.deliver(0, path, path_to(1), &message);
}

#[test]
fn one_odd_reply_to_a_probe_does_not_stall_the_group() {
    for requested in [1, 1_050_000] {
        let mut group = Group::of(2, &Config::default());
        group.lose = Box::new(|_, to, number, message| {
            matches!(message.body, Body::Data(_)) && (number + to).is_multiple_of(20)
        });
        let file = content(2_000_000);
        group.send(0, &file, "copy");
        group.run_for(SECOND);
        let ack = Ack {
            server: NodeId(1),
            instance: life(&group).0,
            kind: Ack::CC,
            id: 0,
            // Before the first probe, and just after it.
            grtt_response: SendTime::from_micros(requested),
            cc: None,
            others: Extensions::NONE,
            payload: &[],
        };
        let message = Message { sequence: 0, source: NodeId(2), body: Body::Ack(ack) };
        group.deliver(0, GROUP, path_to(1), &message);
        group.run();
        (1..=2).for_each(|host| group.assert_has(host, "copy", &file));
        let reported = group.log.iter().filter_map(|(_, _, bytes)| {
            Message::decode(bytes).expect("a message").body.sender().map(|header| header.grtt)
        });
        let most = crate::message::rtt(reported.max().expect("it is reported"));
        // The round trip is 50 ms.
        let believed = if requested == 1 { SECOND / 10 } else { SECOND * 7 / 10 };
        assert!(most < believed, "{most:?}");
    }
}

#[test]
fn stalled_senders_do_not_exclude_others() {
    let mut config = Config::default();
    config.limits.senders = 4;
    let mut group = Group::of(3, &config);
    // The third host has sent a part, and is silent for some time.
    let file = content(300_000);
    group.send(2, &file, "paused");
    group.run_for(SECOND / 5);
    (group.hosts[2].is_on, group.hosts[3].is_on) = (false, false);
    let data = group.log.iter().rev().find(|(_, from, bytes)| {
        *from == 2 && matches!(Message::decode(bytes), Ok(Message { body: Body::Data(_), .. }))
    });
    let bytes = data.expect("it sends data").2.clone();
    for node in 0..3 {
        let mut message = Message::decode(&bytes).expect("a message");
        message.source = NodeId(100 + node);
        if let Body::Data(data) = &mut message.body {
            data.sender.grtt = 255;
        }
        group.deliver(1, GROUP, path_to(0), &message);
    }
    group.run_for(20 * SECOND);
    let other = content(50_000);
    group.send(0, &other, "other");
    group.run_for(5 * SECOND);
    let copy = group.hosts[1].store.get(&super::world::name("other"));
    assert!(copy == Some(&other[..]), "{:#?}", group.transcript());
    group.hosts[2].is_on = true;
    group.run();
    group.assert_has(1, "paused", &file);
    let received = Indication::SenderDiscovered { peer: GROUP, node: 3 };
    let all = &group.hosts[1].indications;
    assert_eq!(all.iter().filter(|other| **other == received).count(), 1, "it was kept");
    // Whatever round trips they report, the sender does not wait that long for them.
    assert!(group.now < Time::from_secs(24 * 3600), "{}", group.now);
}

#[test]
fn senders_that_wait_for_a_report_are_not_forgotten() {
    let mut config = Config::default();
    config.limits.senders = 4;
    let mut group = Group::of(1, &config);
    let file = content(300_000);
    // No report arrives at first.
    group.lose = Box::new(|from, _, number, _| from == 1 && number < 3);
    group.send(0, &file, "copy");
    while group.finished(1).is_empty() {
        group.run_for(SECOND / 100);
    }
    let first = group.log.iter().find(|(_, from, _)| *from == 0).expect("it has sent").2.clone();
    for node in 0..20 {
        let mut message = Message::decode(&first).expect("a message");
        message.source = NodeId(100 + node);
        group.deliver(1, GROUP, path_to(0), &message);
    }
    let sent = group.log.len();
    group.run();
    let after = group.log[sent..].iter().filter(|(_, _, bytes)| {
        matches!(Message::decode(bytes), Ok(Message { body: Body::Data(_), .. }))
    });
    assert_eq!(after.count(), 0, "nothing is sent again");
    assert_eq!((group.finished(0).len(), group.finished(1).len()), (1, 1));
    assert!(group.finished(0)[0].is_confirmed);
    group.assert_has(1, "copy", &file);
}

#[test]
fn forged_requesters_do_not_exclude_receivers() {
    let mut config = Config::default();
    config.limits.receivers = 4;
    let mut group = Group::of(2, &config);
    let file = content(4_000_000);
    group.send(0, &file, "copy");
    group.run_for(SECOND / 50);
    for node in 50..54 {
        ask(&mut group, node, RequestFlags::SEGMENT, [[(0, 0), (0, 0)]].into_iter());
    }
    group.run();
    (1..=2).for_each(|host| group.assert_has(host, "copy", &file));
    let end = &group.finished(0)[0];
    // Two forged receivers are left, for which it waits until it gives up.
    assert_eq!((end.acknowledged, end.is_confirmed), (2, false), "{:?}", end.result);
}

#[test]
fn more_receivers_than_are_remembered_confirm_nothing() {
    for (limit, is_confirmed) in [(2, false), (4, true)] {
        let mut config = Config::default();
        config.limits.receivers = limit;
        let mut group = Group::of(4, &config);
        let file = content(50_000);
        group.send(0, &file, "copy");
        group.run();
        (1..=4).for_each(|host| group.assert_has(host, "copy", &file));
        let end = &group.finished(0)[0];
        assert_eq!((&end.result, end.is_confirmed), (&Ok(()), is_confirmed));
        let reached = Indication::LimitReached(Limit::Receivers);
        assert_eq!(group.hosts[0].indications.contains(&reached), !is_confirmed);
    }
}

#[test]
fn requests_for_data_that_never_existed_are_given_up() {
    let mut config = Config::default();
    config.receiver.unicast_nack = true;
    config.sender.congestion_control = true;
    let mut group = Group::of(2, &config);
    let file = content(20_000);
    group.send(0, &file, "copy");
    group.run();
    let (instance, object) = life(&group);
    let sender = crate::message::Sender { instance, grtt: 0x94, backoff: 1, group_size: 0 };
    let (fec, id) = (Scheme::ReedSolomon8, PayloadId::default());
    let (ackers, others) = (NodeList::NONE, Extensions::NONE);
    let body = Command::Flush { sender, fec, object: object + 9, id, ackers, others };
    let message = Message { sequence: 9000, source: NodeId(1), body: Body::Command(body) };
    group.deliver(1, GROUP, path_to(0), &message);
    let replies = group.log.len();
    group.run();
    let replies: Vec<_> = group.log[replies..].iter().map(|(_, from, _)| *from).collect();
    // No reply arrives to requests repeated as often as configured.
    assert!(replies.iter().all(|from| *from == 1), "{:#?}", group.transcript());
    assert!((2..=21).contains(&replies.len()), "{}", replies.len());
    assert_eq!(group.hosts[1].node.objects().count(), 0);
}

/// Sender of 200 blocks with two source and two parity segments each, all sent.
fn of_many_blocks(config: &mut Config) -> Group {
    config.sender.block_len = 2;
    config.sender.parity = 2;
    config.sender.tail_parity = false;
    config.sender.segment_size = Some(100);
    let mut group = Group::of(1, config);
    group.request(0, Content::Data(Bytes::from(content(200 * 200))), "copy");
    group.run_for(SECOND / 2);
    group.hosts[1].is_on = false;
    group
}

/// Number of repairs of each segment of the first host.
fn repairs(group: &Group) -> BTreeMap<(u32, u16), usize> {
    let mut repairs = BTreeMap::new();
    for (_, from, bytes) in &group.log {
        match Message::decode(bytes).expect("a message").body {
            Body::Data(data) if *from == 0 && data.flags.contains(Flags::REPAIR) => {
                *repairs.entry((data.id.block, data.id.symbol)).or_default() += 1;
            }
            _ => {}
        }
    }
    repairs
}

#[test]
fn parity_that_waits_is_bounded_and_not_planned_twice() {
    let mut config = Config::default();
    config.limits.repairs = 4;
    config.sender.end = EndGame::Flush;
    let mut group = of_many_blocks(&mut config);
    for _ in 0..3 {
        for block in (0..100).step_by(4) {
            let blocks = (block..block + 4).map(|block| [(block, 2), (block, 2)]);
            ask(&mut group, 2, RequestFlags::SEGMENT, blocks);
        }
    }
    group.run_for(SECOND / 2);
    let repairs = repairs(&group);
    assert!(repairs.values().all(|count| *count == 1), "{repairs:?}");
    // Some were sent or computed at once, and four blocks may wait.
    assert!((4..60).contains(&repairs.len()), "{repairs:?}");
    assert!(group.hosts[0].indications.contains(&Indication::LimitReached(Limit::Repairs)));
}

#[test]
fn data_requested_in_many_ranges_is_sent_once() {
    // However few may wait.
    for limit in [65_536, 4] {
        let mut config = Config::default();
        config.limits.repairs = limit;
        config.sender.end = EndGame::Flush;
        let mut group = of_many_blocks(&mut config);
        // All 200 blocks, starting at each of the first ones.
        let ranges = (0..60).map(|first| [(first, 0), (u32::from(u16::MAX), 0)]);
        ask(&mut group, 2, RequestFlags::BLOCK, ranges);
        group.run_for(SECOND / 100);
        if limit > 200 {
            // Another requests the same before it can have received all of it.
            ask(&mut group, 3, RequestFlags::BLOCK, [[(0, 0), (199, 0)]].into_iter());
        }
        group.run_for(2 * SECOND);
        let repairs = repairs(&group);
        assert_eq!(repairs.len(), 400);
        assert!(repairs.values().all(|count| *count == 1), "{repairs:?}");
        assert!(!group.hosts[0].indications.contains(&Indication::LimitReached(Limit::Repairs)));
    }
}

#[test]
fn private_requests_are_advertised_to_all() {
    let mut config = Config::default();
    (config.sender.end, config.sender.collect) = (EndGame::Flush, true);
    let mut group = of_many_blocks(&mut config);
    let ranges = [[(3, 0), (150, 0)], [(160, 0), (160, 0)]];
    ask_on(&mut group, path_to(1), 2, RequestFlags::BLOCK, ranges.into_iter());
    let reported = group.log.iter().find_map(|(_, _, bytes)| {
        match Message::decode(bytes).expect("a message").body {
            Body::Command(Command::RepairAdv { requests, .. }) => {
                let requests = requests.iter();
                let ranges = requests.flat_map(|request| request.ranges().collect::<Vec<_>>());
                let name = |at: Position| (at.id.block, at.id.symbol);
                Some(ranges.map(|(first, last)| (name(first), name(last))).collect::<Vec<_>>())
            }
            _ => None,
        }
    });
    let blocks = [((3, 0), (150, 0)), ((160, 0), (160, 0))];
    assert_eq!(reported.expect("it is reported"), blocks);
}

#[test]
fn flushes_are_not_over_before_a_busy_receiver_wakes() {
    let mut config = Config::default();
    config.sender.end = EndGame::Flush;
    // A round trip of 50 µs, as the path reports.
    let owlt = Some(Duration::from_micros(25));
    let info = PathInfo { rate_bps: Some(1_000_000_000), owlt, ..PathInfo::datagram(1024) };
    let mut group = Group::on(vec![config.clone(), config], info);
    group.hosts[1].is_on = false;
    let file = content(20_000);
    group.send(0, &file, "copy");
    group.run_for(SECOND / 2);
    group.hosts[1].is_on = true;
    group.run();
    group.assert_has(1, "copy", &file);
}
