//! CFDP in blocks of LTP, over UDP.

use std::sync::atomic::Ordering;

use super::process::{Place, Running, await_that, check, make, silent, working_files};
use super::relay::Relay;

const CFDP_LTP: &str = "cfdp-ltp";

/// Sends a file of the sender's directory, with the test's own state.
fn send(place: &Place, name: &str, address: &str, more: &[&str]) -> Running {
    let state = place.here("state");
    let own = ["--state", state.to_str().unwrap()];
    place.send(CFDP_LTP, name, address, &[&own[..], more].concat())
}

/// Waits until a receiver has this many bytes of a file.
fn await_some(place: &Place, len: u64) {
    let root = place.root("");
    let has_some = || {
        let files = working_files(&root, "spool");
        files.iter().any(|(name, bytes)| name.starts_with("rx-") && *bytes >= len)
    };
    await_that("some of it is here", has_some);
}

/// Waits until a receiver keeps only its records of completed transfers.
fn await_clean(place: &Place) {
    let root = place.root("");
    await_that("nothing is kept", || working_files(&root, "spool").is_empty());
}

#[test]
fn files_of_all_sizes_arrive_in_both_classes() {
    for (len, class) in [(0, "1"), (1, "2"), (1_000_003, "1"), (1_000_003, "2")] {
        let place = Place::new();
        make(&place.here("file"), len);
        let (receiver, address) = place.recv(CFDP_LTP, "127.0.0.1:0", &["--once"]);
        let sent = send(&place, "file", &address, &["--class", class]).end().complete();
        let received = receiver.end().complete();
        check(&place.root("file"), len);
        assert_eq!((&sent["file_bytes"], &received["file_bytes"]), (&len.into(), &len.into()));
        assert_eq!(sent["transaction"], received["transaction"]);
        assert_eq!(sent["protocol"], CFDP_LTP);
        // LTP confirms reception; only class 2 confirms that the file has its name.
        assert_eq!(sent["delivery"], if class == "1" { "unreported" } else { "complete" });
        assert_eq!(received["delivery"], "complete");
        await_clean(&place);
        // No state is left.
        assert_eq!(std::fs::read_dir(place.here("state")).unwrap().count(), 0);
    }
}

#[test]
fn class_1_is_the_default_unless_the_mib_differs() {
    let place = Place::new();
    make(&place.here("file"), 20_000);
    let (_receiver, address) = place.recv(CFDP_LTP, "127.0.0.1:0", &[]);
    let sent = send(&place, "file", &address, &[]).end().complete();
    assert_eq!(sent["delivery"], "unreported");
    let mib = place.here("mib.toml");
    std::fs::write(&mib, "cfdp.default.class = 2\nut.pdu = \"1 kB\"\n").unwrap();
    let mib = ["--mib", mib.to_str().unwrap()];
    let sent = send(&place, "file", &address, &mib).end().complete();
    assert_eq!(sent["delivery"], "complete");
    // 20 PDUs and two more, each at least one segment.
    assert!(sent["datagrams_sent"].as_u64() >= Some(22), "{sent}");
}

#[test]
fn lost_data_is_retransmitted() {
    for class in ["1", "2"] {
        let place = Place::new();
        make(&place.here("file"), 700_000);
        let (receiver, address) = place.recv(CFDP_LTP, "127.0.0.1:0", &["--once"]);
        let relay = Relay::new(&address, |passing| passing.number % 10 == 3);
        let more = ["--class", class, "--delay", "1 ms", "--rate", "50 Mbit/s"];
        send(&place, "file", &relay.address, &more).end().complete();
        receiver.end().complete();
        check(&place.root("file"), 700_000);
        assert!(relay.lost.load(Ordering::Relaxed) > 50, "it has a tenth of 500 to lose");
    }
}

#[test]
fn every_sender_receives_its_own_replies() {
    let place = Place::new();
    let (_receiver, address) = place.recv(CFDP_LTP, "127.0.0.1:0", &[]);
    let senders = ["11", "12", "13"].map(|number| {
        make(&place.here(number), 1_000_000);
        let more = ["--entity", number, "--class", "2", "--rate", "50 Mbit/s"];
        (number, send(&place, number, &address, &more))
    });
    for (number, sender) in senders {
        let sent = sender.end().complete();
        assert_eq!(sent["delivery"], "complete");
        check(&place.root(number), 1_000_000);
    }
    // A peer that returns on another port is found there.
    make(&place.here("more"), 5_000);
    let more = ["--entity", "11", "--class", "2"];
    send(&place, "more", &address, &more).end().complete();
}

#[test]
fn killed_receivers_resume_in_both_classes() {
    for class in ["1", "2"] {
        let place = Place::new();
        make(&place.here("file"), 6_000_000);
        let (receiver, address) = place.recv(CFDP_LTP, "127.0.0.1:0", &[]);
        let more = ["--class", class, "--rate", "40 Mbit/s", "--delay", "1 ms"];
        let sender = send(&place, "file", &address, &more);
        await_some(&place, 1_500_000);
        receiver.kill();
        let (receiver, _) = place.recv(CFDP_LTP, &address, &["--once"]);
        sender.end().complete();
        let received = receiver.end().complete();
        assert_eq!(received["resumed"], true, "{received}");
        check(&place.root("file"), 6_000_000);
        await_clean(&place);
    }
}

#[test]
fn killed_class_2_senders_resume_the_same_transaction() {
    let place = Place::new();
    make(&place.here("file"), 6_000_000);
    let (receiver, address) = place.recv(CFDP_LTP, "127.0.0.1:0", &["--once"]);
    let more = ["--class", "2", "--rate", "40 Mbit/s", "--delay", "1 ms"];
    let sender = send(&place, "file", &address, &more);
    await_some(&place, 1_500_000);
    sender.kill();
    let sent = send(&place, "file", &address, &more).end().complete();
    assert_eq!(sent["resumed"], true, "{sent}");
    let received = receiver.end().complete();
    assert_eq!(sent["transaction"], received["transaction"]);
    check(&place.root("file"), 6_000_000);
}

#[test]
fn interrupted_senders_report_it_and_resume() {
    let place = Place::new();
    make(&place.here("file"), 6_000_000);
    let (receiver, address) = place.recv(CFDP_LTP, "127.0.0.1:0", &["--once"]);
    let more = ["--class", "2", "--rate", "40 Mbit/s", "--delay", "1 ms"];
    let sender = send(&place, "file", &address, &more);
    await_some(&place, 1_000_000);
    sender.interrupt();
    let ended = sender.end();
    ended.failed("the same command resumes");
    assert_eq!(ended.json()["completed"], false);
    assert!(!place.root("file").exists());
    send(&place, "file", &address, &more).end().complete();
    receiver.end().complete();
    check(&place.root("file"), 6_000_000);
}

#[test]
fn missing_replies_are_reported() {
    let place = Place::new();
    make(&place.here("file"), 5_000);
    let (_socket, address) = silent();
    let ended = send(&place, "file", &address, &["--timeout", "6 s"]).end();
    ended.failed("no answer from");
    assert!(ended.message.contains("timeout"), "{}", ended.message);
}

#[test]
fn receivers_of_another_entity_are_reported() {
    let place = Place::new();
    make(&place.here("file"), 5_000);
    let (mut receiver, address) = place.recv(CFDP_LTP, "127.0.0.1:0", &["--entity", "7"]);
    let more = ["--class", "2", "--timeout", "2 s"];
    send(&place, "file", &address, &more).end().failed("timeout");
    assert_eq!(receiver.word_between("PDUs for entity ", " come here"), "2");
    assert!(!place.root("file").exists());
}

#[test]
fn an_engine_without_cfdp_refuses() {
    let place = Place::new();
    make(&place.here("file"), 50_000);
    let (_receiver, address) = place.recv("ltp", "127.0.0.1:0", &[]);
    let more = ["--class", "1", "--timeout", "20 s"];
    send(&place, "file", &address, &more).end().failed("receives no CFDP over it");
}
