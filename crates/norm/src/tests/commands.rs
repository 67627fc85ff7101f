//! Application commands, questions, and ends of sessions (RFC 5740 §4.2.3.2, §4.2.3.6, §4.2.3.7,
//! §5.5.3).

use std::time::Duration;

use bytes::Bytes;
use engine::Engine;

use super::group::{GROUP, Group, path_to};
use super::world::content;
use crate::message::{Ack, Body, Command, Extensions, Message, NodeId, NodeList, Sender as Header};
use crate::{Config, Failure, Indication, RequestError};

fn is_command(body: &Body<'_>) -> bool {
    matches!(body, Body::Command(Command::Application { .. }))
}

fn is_question(body: &Body<'_>) -> bool {
    matches!(body, Body::Command(Command::AckReq { .. }))
}

fn is_end(body: &Body<'_>) -> bool {
    matches!(body, Body::Command(Command::Eot { .. }))
}

/// Commands indicated to a host's application.
fn received(group: &Group, host: usize) -> Vec<&[u8]> {
    let commands = group.hosts[host].indications.iter().filter_map(|indication| match indication {
        Indication::Command { bytes, .. } => Some(&bytes[..]),
        _ => None,
    });
    commands.collect()
}

fn say(group: &mut Group, host: usize, text: &'static str, times: Option<u32>) -> u64 {
    let bytes = Bytes::from_static(text.as_bytes());
    let now = group.now;
    let number = group.hosts[host].node.command(now, GROUP, bytes, times).expect("it is short");
    group.drain(host);
    number
}

#[test]
fn commands_are_repeated_and_indicated_once() {
    let mut group = Group::of(3, &Config::default());
    // Most copies are lost, different ones at each receiver.
    group.lose = Box::new(|_, to, number, message| {
        is_command(&message.body) && !(number + to).is_multiple_of(5)
    });
    let number = say(&mut group, 0, "listen", None);
    group.run();
    assert_eq!(group.count(0, is_command), 20, "{:#?}", group.transcript());
    (1..=3).for_each(|host| assert_eq!(received(&group, host), [b"listen"]));
    let sent = Indication::CommandSent { peer: GROUP, number };
    assert_eq!(group.hosts[0].indications.iter().filter(|other| **other == sent).count(), 1);
    // Twice the greatest round trip is between them.
    let times = group.log.iter().filter_map(|(at, _, bytes)| {
        let message = Message::decode(bytes).expect("a message");
        is_command(&message.body).then(|| (*at, message.body.sender().expect("it is").grtt))
    });
    let times: Vec<_> = times.collect();
    for pair in times.windows(2) {
        let least = crate::message::rtt(pair[0].1) * 2;
        assert!((least..least * 11 / 10).contains(&pair[1].0.since(pair[0].0)), "{times:?}");
    }
}

#[test]
fn commands_are_sent_before_data() {
    let mut group = Group::of(2, &Config::default());
    let file = content(500_000);
    group.send(0, &file, "copy");
    group.run_for(Duration::from_millis(100));
    say(&mut group, 0, "one", Some(1));
    say(&mut group, 0, "two", Some(3));
    group.run_for(Duration::from_millis(40));
    assert_eq!(received(&group, 1), [&b"one"[..], b"two"]);
    group.run();
    assert_eq!(group.count(0, is_command), 4);
    (1..=2).for_each(|host| {
        group.assert_has(host, "copy", &file);
        assert_eq!(received(&group, host), [&b"one"[..], b"two"]);
    });
    assert!(group.finished(0)[0].is_confirmed);
}

#[test]
fn commands_are_bounded_and_can_be_stopped() {
    let mut group = Group::of(1, &Config::default());
    let now = group.now;
    let node = &mut group.hosts[0].node;
    let long = Bytes::from(vec![0; 993]);
    let error = node.command(now, GROUP, long, None);
    assert_eq!(error, Err(RequestError::CommandTooLong { len: 993, max: 992 }));
    let numbers: Vec<_> =
        (0..16).map(|_| node.command(now, GROUP, Bytes::new(), None).expect("room")).collect();
    let error = node.command(now, GROUP, Bytes::new(), None);
    assert_eq!(error, Err(RequestError::TooManyCommands));
    for number in &numbers[1..] {
        node.stop_command(GROUP, *number).expect("it is being repeated");
    }
    assert_eq!(node.stop_command(GROUP, numbers[1]), Err(RequestError::NoQuestion));
    group.drain(0);
    group.run();
    assert_eq!(group.count(0, is_command), 20);
    assert_eq!(received(&group, 1), [b""]);
    assert_eq!(group.hosts[0].node.poll_timeout(), None, "nothing runs on");
}

/// Command as the reference library sends it, without a private number.
fn foreign(sequence: u16, bytes: &[u8]) -> Message<'_> {
    let sender = Header { instance: 5, grtt: 0x94, backoff: 4, group_size: 2 };
    let others = Extensions::NONE;
    let body = Body::Command(Command::Application { sender, others, payload: bytes });
    Message { sequence, source: NodeId(99), body }
}

#[test]
fn repetitions_of_others_are_indicated_and_copies_are_not() {
    let mut group = Group::of(1, &Config::default());
    for sequence in [7, 7, 8, 9, 8] {
        group.deliver(1, GROUP, path_to(9), &foreign(sequence, b"again"));
    }
    assert_eq!(received(&group, 1), [b"again"; 3]);
}

/// Answers indicated to a host: receiver and content.
fn answers(group: &Group, host: usize) -> Vec<(u32, Vec<u8>)> {
    let all = group.hosts[host].indications.iter().filter_map(|indication| match indication {
        Indication::Answered { node, bytes, .. } => Some((*node, bytes.to_vec())),
        _ => None,
    });
    let mut all: Vec<_> = all.collect();
    all.sort();
    all
}

/// Answers all questions at these hosts with the host's number.
fn answer_all(group: &mut Group, hosts: impl Iterator<Item = usize>) {
    for host in hosts {
        for indication in group.hosts[host].indications.clone() {
            let Indication::Question { peer, node, kind, id } = indication else { continue };
            let text = Bytes::from(format!("{host} to {kind}"));
            let now = group.now;
            let answered = group.hosts[host].node.answer(now, peer, node, kind, id, text.clone());
            answered.expect("it was requested");
            group.drain(host);
        }
        group.hosts[host].indications.retain(|other| !matches!(other, Indication::Question { .. }));
    }
}

#[test]
fn applications_reply_to_requests() {
    let mut config = Config::default();
    config.sender.backoff = Some(4);
    let mut group = Group::of(5, &config);
    // Loses every other question and every other reply.
    group.lose = Box::new(|_, to, number, message| match &message.body {
        Body::Ack(ack) if ack.kind >= Ack::APPLICATION => number % 2 == 0,
        body => is_question(body) && (number + to) % 2 == 0,
    });
    let now = group.now;
    let id = group.hosts[0].node.question(now, GROUP, 20, &[2, 3, 4, 9]).expect("it is sound");
    group.drain(0);
    for _ in 0..100 {
        group.run_for(Duration::from_millis(20));
        answer_all(&mut group, 1..6);
    }
    group.run();
    let expected = [(2, b"1 to 20".to_vec()), (3, b"2 to 20".to_vec()), (4, b"3 to 20".to_vec())];
    assert_eq!(answers(&group, 0), expected, "{:#?}", group.transcript());
    let over = Indication::QuestionOver { peer: GROUP, kind: 20, id, silent: 1 };
    assert!(group.hosts[0].indications.contains(&over), "{:?}", group.hosts[0].indications);
    // Receivers with replies are named no more, and none is polled too often.
    assert_eq!(group.count(0, is_question), 20);
    let last = group.log.iter().rev().find_map(|(_, from, bytes)| {
        let message = Message::decode(bytes).expect("a message");
        let Body::Command(Command::AckReq { ackers, .. }) = message.body else { return None };
        (*from == 0).then(|| ackers.iter().collect::<Vec<_>>())
    });
    assert_eq!(last, Some(vec![NodeId(9)]));
    assert_eq!(group.count(4, |body| matches!(body, Body::Ack(ack) if ack.kind == 20)), 0);
}

#[test]
fn all_known_receivers_get_one_question_after_the_other() {
    let mut group = Group::of(3, &Config::default());
    let now = group.now;
    let error = group.hosts[0].node.question(now, GROUP, 16, &[]);
    assert_eq!(error, Err(RequestError::NobodyToAsk));
    assert_eq!(group.hosts[0].node.question(now, GROUP, 2, &[1]), Err(RequestError::NoKind(2)));
    group.send(0, &content(20_000), "copy");
    group.run();
    let now = group.now;
    for kind in [16, 255] {
        group.hosts[0].node.question(now, GROUP, kind, &[]).expect("three are known");
    }
    group.drain(0);
    for _ in 0..40 {
        group.run_for(Duration::from_millis(10));
        answer_all(&mut group, 1..4);
    }
    group.run();
    assert_eq!(answers(&group, 0).len(), 6, "{:#?}", group.transcript());
    assert_eq!(group.count(0, is_question), 2, "{:#?}", group.transcript());
    let nobody = group.hosts[1].node.answer(group.now, GROUP, 1, 16, 77, Bytes::new());
    assert_eq!(nobody, Err(RequestError::NoQuestion));
}

#[test]
fn reserved_request_types_are_ignored() {
    let mut group = Group::of(1, &Config::default());
    for kind in [0, 1, 2, 15] {
        let nodes = [NodeId(2)];
        let sender = Header { instance: 5, grtt: 0x94, backoff: 4, group_size: 2 };
        let (others, ackers) = (Extensions::NONE, NodeList::new(&nodes));
        let body = Body::Command(Command::AckReq { sender, kind, id: 1, others, ackers });
        group.deliver(1, GROUP, path_to(9), &Message { sequence: 0, source: NodeId(99), body });
    }
    group.run();
    assert_eq!(group.count(1, |_| true), 0);
    assert_eq!(group.hosts[1].node.stats().stray, 4);
    let requested = |other: &Indication| matches!(other, Indication::Question { .. });
    assert!(!group.hosts[1].indications.iter().any(requested));
}

#[test]
fn an_end_spares_receivers_their_questions() {
    for (announced, heeded) in [(true, true), (true, false), (false, false)] {
        let mut group = Group::of(2, &Config::default());
        let is_squelch = |body: &Body<'_>| matches!(body, Body::Command(Command::Squelch { .. }));
        group.lose = Box::new(move |_, _, _, message| !heeded && is_squelch(&message.body));
        group.send(0, &content(500_000), "copy");
        group.run_for(Duration::from_millis(200));
        if announced {
            let now = group.now;
            assert!(group.hosts[0].node.end(now, GROUP));
            assert_eq!(
                group.hosts[0].node.command(now, GROUP, Bytes::new(), None),
                Err(RequestError::Ending)
            );
            group.drain(0);
        } else {
            group.hosts[0].is_on = false;
        }
        group.run_for(Duration::from_millis(100));
        let ended = group.finished(1).len() + group.finished(2).len();
        assert_eq!(ended, if announced { 2 } else { 0 });
        group.run();
        for host in 1..=2 {
            let end = &group.finished(host)[0].result;
            let failure = match (announced, heeded) {
                (true, true) => Failure::Abandoned,
                (true, false) => Failure::Ended,
                (false, _) => Failure::Silence,
            };
            assert_eq!(end, &Err(failure), "{:#?}", group.transcript());
            let ended = Indication::SenderEnded { peer: GROUP, node: 1 };
            let count = group.hosts[host].indications.iter().filter(|other| **other == ended);
            assert_eq!(count.count(), usize::from(announced));
        }
        assert_eq!(group.count(0, is_end), if announced { 20 } else { 0 });
        if announced {
            let over = Indication::SessionEnded { peer: GROUP };
            assert!(group.hosts[0].indications.contains(&over));
            assert_eq!(group.count(0, is_squelch), 1, "libnorm heeds nothing else");
            assert!(!group.hosts[0].node.end(group.now, GROUP), "it is over");
            // Another session on the same path.
            let file = content(50_000);
            group.send(0, &file, "later");
            group.run();
            (1..=2).for_each(|host| group.assert_has(host, "later", &file));
        }
    }
}

#[test]
fn received_objects_survive_the_end_of_the_session() {
    let mut group = Group::of(1, &Config::default());
    let file = content(50_000);
    group.send(0, &file, "copy");
    // Everything is sent, and not acknowledged yet.
    group.run_for(Duration::from_millis(75));
    let now = group.now;
    group.hosts[0].node.end(now, GROUP);
    group.drain(0);
    group.run();
    group.assert_has(1, "copy", &file);
    assert_eq!(group.finished(1)[0].result, Ok(()));
    // An end of session starts no session.
    let sender = Header { instance: 5, grtt: 0x94, backoff: 4, group_size: 2 };
    let body = Body::Command(Command::Eot { sender, others: Extensions::NONE });
    group.deliver(1, GROUP, path_to(9), &Message { sequence: 0, source: NodeId(99), body });
    let met = Indication::SenderDiscovered { peer: GROUP, node: 99 };
    assert!(!group.hosts[1].indications.contains(&met));
}
