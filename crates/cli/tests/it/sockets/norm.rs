//! NORM over real sockets on loopback, by the program itself.

use std::net::UdpSocket;
use std::time::{Duration, Instant};

use norm::message::{Body, Command, Message};
use serde_json::{Value, json};

use super::process::{Place, Running, await_that, check, make, silent};

/// Number of matching messages on a socket until a second of silence.
fn received(socket: &UdpSocket, what: impl Fn(&Body<'_>) -> bool) -> usize {
    socket.set_read_timeout(Some(Duration::from_secs(1))).unwrap();
    let mut datagram = [0; 65536];
    let mut count = 0;
    while let Ok(len) = socket.recv(&mut datagram) {
        count += usize::from(what(&Message::decode(&datagram[..len]).unwrap().body));
    }
    count
}

fn is_end(body: &Body<'_>) -> bool {
    matches!(body, Body::Command(Command::Eot { .. }))
}

#[test]
fn commands_and_the_session_end_are_reported() {
    let place = Place::new();
    make(&place.here("file"), 300_000);
    let (receiver, address) = place.recv("norm", "127.0.0.1:0", &[]);
    let reported =
        ["--rate", "50 Mbit/s", "--entity", "7", "--command", "two\nlines", "--command", "b"];
    let sender = place.send("norm", "file", &address, &reported).end();
    assert_eq!(sender.complete()["delivery"], "complete");
    await_that("the file", || place.root("file").exists());
    receiver.interrupt();
    let receiver = receiver.end();
    check(&place.root("file"), 300_000);
    let lines: Vec<Value> =
        receiver.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let commands = lines.iter().filter(|line| line.get("command").is_some());
    let commands: Vec<_> = commands.cloned().collect();
    let expected =
        [json!({ "sender": 7, "command": "two\nlines" }), json!({ "sender": 7, "command": "b" })];
    assert_eq!(commands, expected, "each is repeated, and told once");
    assert_eq!(lines.len(), 3, "and the file: {}", receiver.out);
    assert!(
        receiver.message.contains(r#"command of sender 00000007: "two\nlines""#),
        "{}",
        receiver.message
    );
    assert!(receiver.message.contains("sender 00000007 ended its session"), "{}", receiver.message);
}

#[test]
fn stopped_and_failed_senders_report_it() {
    for timeout in [None, Some("300 ms")] {
        let place = Place::new();
        make(&place.here("file"), 1_000_000);
        let (socket, address) = silent();
        let more = ["--rate", "1 Mbit/s", "--timeout", timeout.unwrap_or("1 min")];
        let sender = place.send("norm", "file", &address, &more);
        // The transfer has started.
        socket.recv(&mut [0; 65536]).unwrap();
        if timeout.is_none() {
            sender.interrupt();
        }
        let began = Instant::now();
        let why = if timeout.is_none() { "stopped" } else { "timeout" };
        sender.end().failed(&format!("not finished: {why}"));
        assert!(began.elapsed() < Duration::from_secs(10));
        assert!(received(&socket, is_end) > 0);
    }
}

#[test]
fn streams_arrive_incrementally_and_end_both_programs() {
    let place = Place::new();
    make(&place.here("file"), 3_000_000);
    let out = place.here("out");
    let listen = ["recv", "--protocol", "norm", "--listen", "127.0.0.1:0"];
    let mut receiver =
        Running::start(&[&listen[..], &["--stream", out.to_str().unwrap()]].concat());
    let address = receiver.word_between("receiving a stream on ", " ");
    let more = ["--rate", "50 Mbit/s", "--stream"];
    let sender = place.send("norm", "file", &address, &more).end();
    assert_eq!(sender.complete()["delivery"], "complete");
    let receiver = receiver.end();
    assert_eq!(receiver.code, Some(0), "{}", receiver.message);
    check(&out, 3_000_000);
}

#[test]
fn streams_end_their_session() {
    let place = Place::new();
    make(&place.here("file"), 100_000);
    let (socket, address) = silent();
    let settings = place.here("settings.toml");
    std::fs::write(&settings, "[sender]\nend = \"flush\"\nrobust_factor = 2\n").unwrap();
    let settings = settings.to_str().unwrap();
    let more = ["--rate", "50 Mbit/s", "--stream", "--mib", settings];
    let sender = place.send("norm", "file", &address, &more).end();
    assert_eq!(sender.complete()["delivery"], "unreported");
    assert!(received(&socket, is_end) > 0);
}

#[test]
fn senders_to_receivers_without_return_link_expect_no_report() {
    let place = Place::new();
    make(&place.here("file"), 1000);
    let more = ["--confidence", "0.999", "--rate", "1 Mbit/s"];
    let (_socket, address) = silent();
    let sent = place.send("norm/coded", "file", &address, &more).end().complete();
    assert_eq!(sent["delivery"], "unreported");
}

#[test]
fn nobody_is_expected_to_reply_to_a_carousel() {
    let place = Place::new();
    make(&place.here("file"), 1000);
    let (_socket, address) = silent();
    // Longer than a sender waits until it warns.
    let more = ["--carousel", "7 s", "--rate", "1 Mbit/s"];
    let ended = place.send("norm/coded", "file", &address, &more).end();
    assert_eq!(ended.code, Some(0), "{}", ended.message);
    assert!(!ended.message.contains("no answer"), "{}", ended.message);
}
