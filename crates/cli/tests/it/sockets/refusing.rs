//! Processes whose system calls fail with every error number, and hosts that cannot be reached.

use std::path::PathBuf;
use std::process::Command;

use super::process::{Place, Running, check, make, program};

const PROTOCOLS: [&str; 7] = ["cfdp", "cfdp-ltp", "ltp", "ltp-t", "norm", "norm/coded", "saratoga"];
const LEN: usize = 300_000;

/// A library that lets calls of a process fail; see its source.
fn library(folder: &std::path::Path) -> PathBuf {
    let (source, library) = (folder.join("refusing.c"), folder.join("refusing.so"));
    std::fs::write(&source, include_str!("refusing.c")).unwrap();
    let mut command = Command::new("cc");
    command.args(["-shared", "-fPIC", "-O1", "-o"]).arg(&library).arg(&source).arg("-ldl");
    assert!(command.status().unwrap().success());
    library
}

#[test]
fn no_error_of_a_send_or_receive_call_ends_a_transfer() {
    let folder = tempfile::tempdir().unwrap();
    let library = library(folder.path());
    for (host, calls) in
        [("127.0.0.1", "send"), ("127.0.0.1", "receive"), ("[::1]", "send receive")]
    {
        let transfers = PROTOCOLS.map(|protocol| {
            let place = Place::new();
            make(&place.here("file"), LEN);
            let (counts, state) = (place.here("refused"), place.here("state"));
            let faulty = |mut command: Command, side: &str| {
                command.env("LD_PRELOAD", &library).env("REFUSE", calls);
                Running::of({
                    command.env("REFUSED", counts.with_extension(side));
                    command
                })
            };
            let listen = format!("{host}:0");
            let root = place.root("");
            let arguments = ["recv", "--protocol", protocol, "--once", "--listen", &listen];
            let arguments = [&arguments[..], &["--root", root.to_str().unwrap()]].concat();
            let mut receiver = faulty(program(&arguments), "receiver");
            let address = receiver.address();
            let file = place.here("file");
            let mut arguments = vec!["send", "--protocol", protocol, file.to_str().unwrap()];
            arguments.extend([&*address, "--rate", "10 Mbit/s", "--timeout", "50 s"]);
            if protocol.starts_with("cfdp") {
                arguments.extend(["--state", state.to_str().unwrap()]);
            }
            let sender = faulty(program(&arguments), "sender");
            (protocol, place, receiver, sender)
        });
        for (protocol, place, receiver, sender) in transfers {
            let sent = sender.end();
            assert_eq!(sent.code, Some(0), "{protocol}, {host}, {calls}: {}", sent.message);
            let received = receiver.end();
            assert_eq!(received.code, Some(0), "{protocol}, {host}: {}", received.message);
            check(&place.root("file"), LEN);
            let refused: u32 = ["sender", "receiver"]
                .map(|side| {
                    let count = place.here("refused").with_extension(side);
                    std::fs::read_to_string(count).unwrap().trim().parse::<u32>().unwrap()
                })
                .iter()
                .sum();
            assert!(refused > 50, "{protocol}, {host}, {calls}: {refused} calls failed");
        }
    }
}

#[test]
fn senders_without_a_route_say_so() {
    // In a network namespace without any route.
    let namespace = ["--map-root-user", "--net", "--"];
    if !Command::new("unshare").args(namespace).arg("true").status().is_ok_and(|it| it.success()) {
        testing::skipped!("no network namespaces here");
        return;
    }
    for protocol in PROTOCOLS {
        let place = Place::new();
        make(&place.here("file"), 10);
        let (file, state) = (place.here("file"), place.here("state"));
        let mut command = Command::new("unshare");
        command.args(namespace).arg(env!("CARGO_BIN_EXE_slowlight"));
        command.args(["send", "--protocol", protocol, "--timeout", "20 s"]);
        command.arg(file).arg("198.51.100.1:2500");
        if protocol.starts_with("cfdp") {
            command.arg("--state").arg(state);
        }
        let sent = Running::of(command).end();
        assert_ne!(sent.code, Some(0), "{protocol}");
        let why = "there is no way to 198.51.100.1:2500: Network is unreachable";
        assert!(sent.message.contains(why), "{protocol}: {}", sent.message);
    }
}
