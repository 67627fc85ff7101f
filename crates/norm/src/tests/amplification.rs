//! Bytes that a receiver sends to an address from which little came, which may be forged.

use std::time::Duration;

use engine::Time;

use super::world::{World, content};
use crate::message::{Body, Command, Message};
use crate::{Config, profile};

/// Kind of a sender's message.
fn kind(datagram: &[u8]) -> &'static str {
    match Message::decode(datagram).expect("nodes send messages").body {
        Body::Info(_) => "NORM_INFO",
        Body::Data(_) => "NORM_DATA",
        Body::Command(Command::Flush { .. }) => "NORM_CMD(FLUSH)",
        Body::Command(Command::Cc { .. }) => "NORM_CMD(CC)",
        Body::Command(_) => "another command",
        Body::Nack(_) | Body::Ack(_) | Body::Report(_) => "feedback",
    }
}

/// First message of each kind from a sender whose receiver is silent.
fn messages(config: &Config) -> Vec<Vec<u8>> {
    let mut world = World::with(config);
    world.lose(|_, _, _| true);
    world.send(&content(20_000));
    world.run_until(Time::ZERO + Duration::from_secs(20));
    let mut found: Vec<Vec<u8>> = Vec::new();
    for sent in &world.log {
        if found.iter().all(|other| kind(other) != kind(&sent.bytes)) {
            found.push(sent.bytes.clone());
        }
    }
    found
}

/// Bytes and datagrams that a receiver sends within an hour after these messages, `times` each.
fn replies(config: &Config, messages: &[Vec<u8>], times: usize) -> (usize, usize) {
    let mut world = World::with(config);
    world.lose(|_, _, _| true);
    for message in messages {
        for _ in 0..times {
            world.hear(1, message);
            world.run_until(world.now + Duration::from_millis(200));
        }
    }
    world.run_until(Time::ZERO + Duration::from_secs(3700));
    assert!(world.log.iter().all(|sent| sent.from == 1));
    (world.log.iter().map(|sent| sent.bytes.len()).sum(), world.log.len())
}

#[test]
fn receivers_do_not_amplify_forged_messages() {
    let coded = profile("coded").expect("it exists");
    let cc = profile("cc").expect("it exists");
    for (label, config) in [("norm", Config::default()), ("norm/coded", coded), ("norm/cc", cc)] {
        let messages = messages(&config);
        for wanted in ["NORM_INFO", "NORM_DATA", "NORM_CMD(FLUSH)"] {
            assert!(messages.iter().any(|message| kind(message) == wanted), "{label}: {wanted}");
        }
        let singles = messages.iter().map(std::slice::from_ref);
        for some in singles.chain([&messages[..]]) {
            for times in [1, 10] {
                let bytes = times * some.iter().map(Vec::len).sum::<usize>();
                let (out, count) = replies(&config, some, times);
                let kinds: Vec<_> = some.iter().map(|message| kind(message)).collect();
                assert!(out <= 3 * bytes, "{label} {kinds:?}: {out} B for {bytes} B");
                assert!(count <= 3 * times * some.len(), "{label} {kinds:?}: {count} datagrams");
            }
        }
    }
}
