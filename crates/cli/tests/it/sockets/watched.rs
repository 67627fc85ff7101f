//! A watched folder over real sockets: its files arrive once, the most urgent first, and move to
//! `sent` when they are there.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::process::{Place, Running, await_that, make, program};

/// Address of receivers, with any free port.
const LISTEN: &str = "127.0.0.1:0";

/// Files below a folder, without those of slowlight itself, by relative path.
fn files(root: &Path) -> Vec<PathBuf> {
    let mut all = Vec::new();
    let mut folders = vec![root.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            let (path, kind) = (entry.path(), entry.file_type().unwrap());
            match path.file_name().unwrap().to_str() {
                Some(".slowlight" | ".lock") => {}
                _ if kind.is_dir() => folders.push(path),
                _ => all.push(path.strip_prefix(root).unwrap().to_owned()),
            }
        }
    }
    all.sort();
    all
}

/// Sender that watches the folder `outbox`.
fn watch(place: &Place, address: &str, more: &[&str]) -> Running {
    let mut command = program(&["send", "--watch"]);
    command.arg(place.here("outbox")).arg(address).arg("--state").arg(place.here("state"));
    command.args(["--settle", "100 ms"]).args(more);
    Running::of(command)
}

/// State of the sender, as it reports it.
fn status(place: &Place) -> Option<Value> {
    let mut command = program(&["status", "--json", "--state"]);
    let output = command.arg(place.here("state")).output().unwrap();
    let all: Value = serde_json::from_slice(&output.stdout).unwrap();
    all.as_array().unwrap().iter().find(|process| process["role"] == "sender").cloned()
}

/// Files of three classes, sent through outages while both programs are killed again and again.
fn through_kills_and_outages(protocol: &str) {
    let place = Place::new();
    let (outbox, inbox) = (place.here("outbox"), place.root(""));
    for class in ["urgent", "routine", "bulk/deep"] {
        fs::create_dir_all(outbox.join(class)).unwrap();
    }
    let outages = ["--outage-every", "700 ms+200 ms", "--rate", "20 Mbit/s"];
    let first = ["--first", "urgent", "--first", "routine", "--protocol", protocol];
    let sender = |address: &str| watch(&place, address, &[&first[..], &outages].concat());
    let (mut receiver, address) = place.recv(protocol, LISTEN, &outages);
    let mut running = sender(&address);
    let mut random = engine::Rng::new(1, protocol);
    let mut written = Vec::new();
    let is_whole = |name: &PathBuf| {
        let [ours, theirs] = [outbox.join("sent").join(name), inbox.join(name)].map(fs::read);
        ours.unwrap() == theirs.unwrap_or_default()
    };
    for round in 0..6 {
        for number in 0..10 {
            for class in ["urgent", "routine", "bulk/deep"] {
                let name = PathBuf::from(format!("{class}/{round}-{number}"));
                make(&outbox.join(&name), random.below(60_000) as usize);
                written.push(name);
            }
        }
        let count = written.len() * (round + 1) / 8;
        await_that("some files are delivered", || files(&outbox.join("sent")).len() >= count);
        assert!(files(&outbox.join("sent")).iter().all(is_whole), "{protocol}: not all confirmed");
        if round % 2 == 0 {
            running.kill();
            running = sender(&address);
        } else {
            receiver.kill();
            (receiver, _) = place.recv(protocol, &address, &outages);
        }
    }
    written.sort();
    await_that("all files are delivered", || files(&outbox.join("sent")) == written);
    // Each is there once: none was moved aside for a copy of it.
    assert_eq!(files(&inbox), written, "{protocol}");
    assert!(written.iter().all(is_whole), "{protocol}");
    for process in [running, receiver] {
        process.interrupt();
        assert_eq!(process.end().code, Some(0), "{protocol}");
    }
}

#[test]
fn files_arrive_once_through_kills_and_outages() {
    for protocol in ["cfdp", "norm/coded", "ltp", "saratoga"] {
        through_kills_and_outages(protocol);
    }
}

#[test]
fn urgent_files_overtake_what_waits() {
    let place = Place::new();
    let (outbox, inbox) = (place.here("outbox"), place.root(""));
    fs::create_dir_all(outbox.join("urgent")).unwrap();
    let (receiver, address) = place.recv("cfdp", LISTEN, &[]);
    for number in 0..20 {
        make(&outbox.join(format!("bulk-{number}")), 1_000_000);
    }
    let options = ["--protocol", "cfdp", "--rate", "40 Mbit/s", "--first", "urgent"];
    let sender = watch(&place, &address, &options);
    await_that("the first file arrives", || !files(&inbox).is_empty());
    make(&outbox.join("urgent/command"), 1000);
    await_that("the urgent file is delivered", || outbox.join("sent/urgent/command").exists());
    let before = files(&outbox.join("sent")).len();
    assert!(before < 20, "it came after all {before} others");
    let state = status(&place).unwrap();
    assert_eq!((&state["running"], &state["protocol"]), (&true.into(), &"cfdp".into()), "{state}");
    await_that("the rest is delivered", || files(&outbox.join("sent")).len() == 21);
    sender.interrupt();
    assert_eq!(sender.end().code, Some(0));
    assert!(status(&place).is_none(), "it has ended");
    drop(receiver);
}

#[test]
fn refused_files_are_tried_again_and_hold_up_no_others() {
    let place = Place::new();
    let (outbox, inbox) = (place.here("outbox"), place.root(""));
    fs::create_dir_all(&outbox).unwrap();
    make(&inbox.join("a"), 10);
    // A folder has the name of a file that comes.
    fs::create_dir(inbox.join("taken")).unwrap();
    let (receiver, address) = place.recv("ltp", LISTEN, &[]);
    make(&outbox.join("taken"), 1000);
    let sender = watch(&place, &address, &["--protocol", "ltp"]);
    await_that("the first sender watches", || status(&place).is_some());
    let outbox_again = outbox.display().to_string();
    let second = program(&["send", "--watch", &outbox_again, "127.0.0.1:9"]).output().unwrap();
    let message = String::from_utf8_lossy(&second.stderr);
    assert_eq!(second.status.code(), Some(2), "{message}");
    assert!(message.contains("another sender watches"), "{message}");
    let failed = || status(&place).is_some_and(|state| state["last_error"].is_object());
    await_that("the file is refused", failed);
    make(&outbox.join("a"), 2000);
    await_that("another file is delivered", || outbox.join("sent/a").exists());
    assert!(outbox.join("taken").exists());
    assert_eq!(fs::metadata(inbox.join("a")).unwrap().len(), 2000);
    assert_eq!(fs::metadata(inbox.join("a.~1~")).unwrap().len(), 10);
    fs::remove_dir(inbox.join("taken")).unwrap();
    await_that("the file is delivered", || outbox.join("sent/taken").exists());
    sender.interrupt();
    let ended = sender.end();
    assert!(ended.message.contains("taken failed: "), "{}", ended.message);
    assert!(ended.message.contains("no file is left"), "{}", ended.message);
    drop(receiver);
}
