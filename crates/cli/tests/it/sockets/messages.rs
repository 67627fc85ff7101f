//! Messages of a sender about a peer that does not reply, replies again, or refuses a file.

use std::process::Command;

use super::process::{Place, Running, check, make, program, silent};
use super::relay::Relay;

/// Protocols that confirm delivery.
const RELIABLE: [&str; 7] = ["cfdp", "cfdp-ltp", "ltp", "ltp-t", "norm", "norm/coded", "saratoga"];

/// A rate at which the file takes longer than the silence that is reported.
const SLOW: [&str; 2] = ["--rate", "200 kbit/s"];
const LONG: usize = 400_000;

/// Place with a long file, and a receiver of one file with its address.
fn receiving(protocol: &str) -> (Place, Running, String) {
    let place = Place::new();
    make(&place.here("file"), LONG);
    let (receiver, address) = place.recv(protocol, "127.0.0.1:0", &["--once"]);
    (place, receiver, address)
}

#[test]
fn a_peer_that_never_replies_is_reported_while_the_file_is_sent() {
    let place = Place::new();
    make(&place.here("file"), LONG);
    std::fs::create_dir(place.here("folder")).unwrap();
    make(&place.here("folder/file"), LONG);
    let (_socket, nobody) = silent();
    let senders = RELIABLE.map(|protocol| {
        let one = |name| place.send(protocol, name, &nobody, &SLOW);
        (protocol, [one("file"), one("folder")])
    });
    for (protocol, senders) in senders {
        for mut sender in senders {
            assert_eq!(sender.word_between("no answer from ", " for 5 s; still trying."), nobody);
            let remedy = format!("Is `slowlight recv --protocol {protocol}`");
            let port = nobody.rsplit(':').next().unwrap();
            for part in [&*remedy, "no receiver of another protocol", &format!("UDP port {port}")] {
                assert!(sender.message.contains(part), "{protocol}: {}", sender.message);
            }
            sender.interrupt();
            let ended = sender.end();
            assert_eq!(ended.message.matches("no answer").count(), 1, "{}", ended.message);
        }
    }
}

#[test]
fn a_peer_that_stops_replying_is_reported_and_when_it_replies_again() {
    let transfers = RELIABLE.map(|protocol| {
        let (place, receiver, address) = receiving(protocol);
        // Nothing passes for 9 s after the first two.
        let relay = Relay::new(&address, |it| (2..11).contains(&it.since.as_secs()));
        let sender = place.send(protocol, "file", &relay.address, &SLOW);
        (protocol, place, receiver, relay, sender)
    });
    for (protocol, place, receiver, relay, sender) in transfers {
        let ended = sender.end();
        ended.complete();
        let address = &relay.address;
        for line in
            [format!("no answer from {address} for 5 s"), format!("{address} answers now\n")]
        {
            assert_eq!(ended.message.matches(&line).count(), 1, "{protocol}: {}", ended.message);
        }
        assert_eq!(receiver.end().code, Some(0));
        check(&place.root("file"), LONG);
    }
}

#[test]
fn a_peer_that_replies_in_time_is_not_reported() {
    let transfers = RELIABLE.map(|protocol| {
        let (place, receiver, address) = receiving(protocol);
        let sender = place.send(protocol, "file", &address, &SLOW);
        (protocol, place, receiver, sender)
    });
    for (protocol, _place, receiver, sender) in transfers {
        let ended = sender.end();
        ended.complete();
        assert!(!ended.message.contains("answer"), "{protocol}: {}", ended.message);
        assert_eq!(receiver.end().code, Some(0));
    }
}

#[test]
fn a_port_where_nobody_listens_is_reported_with_the_remedy() {
    let place = Place::new();
    make(&place.here("file"), 10_000);
    let (socket, nobody) = silent();
    drop(socket);
    for protocol in ["cfdp", "saratoga"] {
        let mut sender = place.send(protocol, "file", &nobody, &["--timeout", "20 s"]);
        assert_eq!(sender.word_between("no program listens on ", "; still trying."), nobody);
        let remedy = format!("Is `slowlight recv --protocol {protocol}` (or `recv` without");
        assert!(sender.message.contains(&remedy), "{}", sender.message);
        sender.interrupt();
        sender.end();
    }
}

/// A cause for which a receiver refuses a file.
struct Cause {
    /// Name of the file at the receiver.
    remote: String,
    /// Options of the receiver.
    options: &'static [&'static str],
    /// The cause in the receiver's words.
    words: &'static str,
    /// The cause as Saratoga's status codes have it.
    saratoga: &'static str,
}

fn causes() -> [Cause; 5] {
    const DENIED: &str = "not allowed, or the name is refused or taken";
    let cause = |remote: &str, options, words, saratoga| Cause {
        remote: remote.to_owned(),
        options,
        words,
        saratoga,
    };
    [
        cause("copy", &[], "no space left", "no space left, or its limits are reached"),
        cause("../copy", &[], "the name is refused", DENIED),
        cause("folder", &[], "the name is taken", DENIED),
        cause("there/copy", &[], "the name is taken", DENIED),
        cause("there", &["--existing", "fail"], "the name is taken", DENIED),
    ]
}

/// Starts a receiver that may not write more than a few kilobytes to a file.
fn receiver_without_space(place: &Place, protocol: &str) -> (Running, String) {
    let script = "trap '' XFSZ; ulimit -f 16; exec \"$@\"";
    let root = place.root("");
    let arguments = ["recv", "--protocol", protocol, "--json", "--listen", "127.0.0.1:0"];
    let arguments = [&arguments[..], &["--root", root.to_str().unwrap()]].concat();
    let inner = program(&arguments);
    let mut command = Command::new("sh");
    command.args(["-c", script, "sh"]).arg(inner.get_program()).args(inner.get_args());
    command.envs(inner.get_envs().filter_map(|(key, value)| Some((key, value?))));
    let mut running = Running::of(command);
    let address = running.address();
    (running, address)
}

#[test]
fn senders_and_receivers_have_the_same_words_for_a_refusal() {
    for cause in causes() {
        let transfers =
            ["cfdp", "ltp", "ltp-t", "norm", "norm/coded", "saratoga"].map(|protocol| {
                let place = Place::new();
                make(&place.here("file"), 100_000);
                std::fs::create_dir(place.root("folder")).unwrap();
                std::fs::write(place.root("there"), "old").unwrap();
                let (receiver, address) = match cause.words {
                    "no space left" => receiver_without_space(&place, protocol),
                    _ => place.recv(protocol, "127.0.0.1:0", cause.options),
                };
                let sender = place.send(protocol, "file", &address, &["--remote", &cause.remote]);
                (protocol, place, receiver, sender)
            });
        for (protocol, _place, receiver, sender) in transfers {
            let ended = sender.end();
            let words = if protocol == "saratoga" { cause.saratoga } else { cause.words };
            let reason = format!("the receiver cannot store the file: {words}");
            ended.failed(&format!(": {reason}; the same command"));
            assert_eq!(ended.json()["condition"], reason, "{protocol}");
            receiver.interrupt();
            let message = receiver.end().message;
            let here = format!("failed: cannot store the file: {}\n", cause.words);
            assert!(message.contains(&here), "{protocol}: {here}{message}");
        }
    }
}

#[test]
fn names_that_are_too_long_are_refused_by_those_that_can_send_them() {
    let remote = "n".repeat(300);
    for protocol in ["norm", "norm/coded", "saratoga"] {
        let place = Place::new();
        make(&place.here("file"), 10_000);
        let (receiver, address) = place.recv(protocol, "127.0.0.1:0", &[]);
        let ended = place.send(protocol, "file", &address, &["--remote", &remote]).end();
        let there = if protocol == "saratoga" { "not allowed, or" } else { "the name is too long" };
        ended.failed(&format!("the receiver cannot store the file: {there}"));
        receiver.interrupt();
        let message = receiver.end().message;
        assert!(message.contains("cannot store the file: the name is too long"), "{message}");
    }
}

#[test]
fn another_protocol_over_ltp_is_named() {
    for (sends, receives, words) in [
        ("ltp", "cfdp-ltp", "the program there speaks LTP, but receives no files by it"),
        ("cfdp-ltp", "ltp", "the program there speaks LTP, but receives no CFDP over it"),
    ] {
        let place = Place::new();
        make(&place.here("file"), 10_000);
        let (_receiver, address) = place.recv(receives, "127.0.0.1:0", &[]);
        place.send(sends, "file", &address, &["--timeout", "20 s"]).end().failed(words);
    }
}
