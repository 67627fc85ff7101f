//! A receiver of several protocols at one port, and senders that choose theirs.

use std::collections::BTreeSet;

use serde_json::Value;

use super::process::{Place, Running, await_that, check, content, make, program};
use crate::ports::Port;

/// Protocols of senders, and those under which the receiver reports them.
const SENDERS: [(&str, &str); 8] = [
    ("cfdp", "cfdp"),
    ("cfdp-1", "cfdp"),
    ("ltp", "ltp"),
    ("norm", "norm"),
    ("norm/coded", "norm"),
    ("norm/coded-cc", "norm"),
    ("norm-fec", "norm"),
    ("saratoga", "saratoga"),
];

/// A sender with a state folder of its own.
fn sender(place: &Place, file: &str, address: &str, more: &[&str]) -> Running {
    let path = place.here(file);
    let mut command = program(&["send", path.to_str().unwrap(), address, "--json"]);
    command.args(more).env("XDG_STATE_HOME", place.here("state"));
    Running::of(command)
}

#[test]
fn senders_of_all_protocols_share_a_port() {
    const LEN: usize = 3_000_000;
    let place = Place::new();
    let (receiver, address) = place.recv_any("127.0.0.1:0", &[]);
    let senders: Vec<Running> = SENDERS
        .iter()
        .zip(0..)
        .map(|((protocol, _), number)| {
            let file = format!("file-{number}");
            make(&place.here(&file), LEN + number);
            sender(&place, &file, &address, &["--protocol", protocol, "--rate", "40 Mbit/s"])
        })
        .collect();
    for sender in senders {
        sender.end().complete();
    }
    // Nobody confirms a file of class 1.
    await_that("all files", || {
        (0..SENDERS.len()).all(|n| place.root(&format!("file-{n}")).exists())
    });
    for number in 0..SENDERS.len() {
        check(&place.root(&format!("file-{number}")), LEN + number);
    }
    receiver.interrupt();
    let ended = receiver.end();
    let mut reported = BTreeSet::new();
    for line in ended.out.lines() {
        let outcome: Value = serde_json::from_str(line).unwrap();
        assert_eq!(outcome["completed"], true, "{outcome}");
        reported.insert(outcome["protocol"].as_str().unwrap().to_owned());
    }
    let expected: BTreeSet<_> = SENDERS.iter().map(|(_, name)| (*name).to_owned()).collect();
    assert_eq!(reported, expected, "{}", ended.message);
}

#[test]
fn a_killed_receiver_resumes_every_protocol() {
    const LEN: usize = 12_000_000;
    const RESUMING: [&str; 3] = ["cfdp", "norm/coded", "saratoga"];
    let place = Place::new();
    let port = Port::reserve();
    let address = format!("127.0.0.1:{}", port.number);
    let (receiver, _) = place.recv_any(&address, &[]);
    for (protocol, number) in RESUMING.into_iter().zip(0..) {
        make(&place.here(protocol.split('/').next().unwrap()), LEN + number);
    }
    let start = |protocol: &str| {
        let file = protocol.split('/').next().unwrap();
        let more = ["--protocol", protocol, "--rate", "16 Mbit/s", "--delay", "1 ms"];
        sender(&place, file, &address, &more)
    };
    let senders = RESUMING.map(start);
    // All are in mid-transfer: their working files grow.
    let prefixes = ["rx-", "norm-", "sar-"];
    await_that("working files", || {
        let files = super::process::working_files(&place.root(""), "spool");
        prefixes.iter().all(|prefix| {
            files.iter().any(|(name, len)| name.starts_with(prefix) && *len > 500_000)
        })
    });
    receiver.kill();
    let (receiver, _) = place.recv_any(&address, &[]);
    for sender in senders {
        sender.end().complete();
    }
    for (protocol, number) in RESUMING.into_iter().zip(0..) {
        check(&place.root(protocol.split('/').next().unwrap()), LEN + number);
    }
    assert!(super::process::working_files(&place.root(""), "spool").is_empty());
    receiver.interrupt();
    receiver.end();
}

#[test]
fn senders_choose_a_protocol_and_keep_a_proven_one() {
    let place = Place::new();
    make(&place.here("file"), 100_000);
    let (receiver, address) = place.recv_any("127.0.0.1:0", &[]);
    let sent = |more: &[&str]| {
        let ended = sender(&place, "file", &address, more).end();
        let outcome = ended.complete();
        (outcome["protocol"].as_str().unwrap().to_owned(), ended.message)
    };
    let (protocol, message) = sent(&[]);
    assert_eq!(protocol, "norm/coded");
    let why = "by norm/coded: it adapts to other traffic, as there is no --rate; --protocol takes";
    assert!(message.contains(why), "{message}");
    assert_eq!(sent(&["--protocol", "saratoga"]).0, "saratoga");
    let (protocol, message) = sent(&["--rate", "80 Mbit/s"]);
    assert_eq!(protocol, "saratoga");
    assert!(message.contains("it delivered the last file to this address"), "{message}");
    assert_eq!(sent(&["--remote-entity", "2"]).0, "cfdp");
    assert_eq!(std::fs::read(place.root("file")).unwrap(), content(100_000));
    receiver.interrupt();
    receiver.end();
}

#[test]
fn a_sender_of_another_protocol_is_pointed_to_the_option() {
    let place = Place::new();
    make(&place.here("file"), 10_000);
    let (receiver, address) = place.recv("ltp", "127.0.0.1:0", &[]);
    let ended = sender(&place, "file", &address, &["--timeout", "7 s"]).end();
    assert_eq!(ended.code, Some(1));
    let hint = "Is `slowlight recv --protocol norm/coded` (or `recv` without --protocol) running";
    assert!(ended.message.contains(hint), "{}", ended.message);
    receiver.interrupt();
    let message = receiver.end().message;
    assert!(message.contains(" speaks NORM, not LTP; give both ends"), "{message}");
}
