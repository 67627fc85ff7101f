//! Blocks of LTP-T over several processes.

use super::process::{Place, Running, await_that, check, make, silent, working_files};

const LTP_T: &str = "ltp-t";

/// A relay engine with the addresses of its neighbours.
fn relay(
    place: &Place,
    number: u64,
    listen: &str,
    peers: &[(u64, &str)],
    more: &[&str],
) -> (Running, String) {
    let number = number.to_string();
    let peers: Vec<String> = peers.iter().map(|(id, address)| format!("{id}={address}")).collect();
    let mut arguments = vec!["--entity", &number];
    for peer in &peers {
        arguments.extend(["--peer", peer]);
    }
    place.recv(LTP_T, listen, &[&arguments, more].concat())
}

/// Sends a file of the sender's directory to an engine, by engine 2 at `address`.
fn send(place: &Place, name: &str, to: u64, address: &str, more: &[&str]) -> Running {
    let to = to.to_string();
    place.send(LTP_T, name, address, &[&["--via", "2", "--remote-entity", &to], more].concat())
}

/// Waits until a relay engine has no blocks.
fn await_clean(place: &Place) {
    let is_clean = || {
        let kinds = ["spool", "index"].map(|kind| working_files(&place.root(""), kind));
        kinds.iter().flatten().all(|(name, _)| !name.starts_with("ltpt-"))
    };
    await_that("nothing is kept", is_clean);
}

#[test]
fn files_cross_an_intermediate_engine() {
    for len in [0, 1, 1_000_003] {
        let (way, end) = (Place::new(), Place::new());
        let (receiver, last) = end.recv(LTP_T, "127.0.0.3:0", &["--entity", "3", "--once"]);
        let (between, next) = relay(&way, 2, "127.0.0.2:0", &[(3, &last)], &["--once"]);
        make(&way.here("file"), len);
        let sent = send(&way, "file", 3, &next, &[]).end().complete();
        let received = receiver.end().complete();
        check(&end.root("file"), len);
        let passed = between.end().complete();
        assert_eq!((&sent["file_bytes"], &received["file_bytes"]), (&len.into(), &len.into()));
        // The first relay confirms the block; the source is not informed of its delivery.
        assert_eq!(sent["delivery"], "unreported");
        assert_eq!(received["delivery"], "complete");
        assert_eq!((&passed["role"], &passed["destination_entity"]), (&"relay".into(), &3.into()));
        assert_eq!(passed["transaction"], sent["transaction"]);
        assert!(!way.root("file").exists());
        await_clean(&way);
    }
}

#[test]
fn neighbouring_destinations_confirm() {
    let place = Place::new();
    let (receiver, address) = place.recv(LTP_T, "127.0.0.1:0", &["--entity", "3", "--once"]);
    make(&place.here("file"), 300_000);
    let sent = place.send(LTP_T, "file", &address, &["--remote-entity", "3"]).end().complete();
    receiver.end().complete();
    check(&place.root("file"), 300_000);
    assert_eq!(sent["delivery"], "complete");
}

#[test]
fn routes_cross_several_engines() {
    let places = [Place::new(), Place::new(), Place::new()];
    let (_last, last) = places[2].recv(LTP_T, "127.0.0.1:0", &["--entity", "9"]);
    let (_third, third) = relay(&places[1], 3, "127.0.0.1:0", &[(9, &last)], &[]);
    for route in ["9=3", "any=3"] {
        let (second, next) =
            relay(&places[0], 2, "127.0.0.1:0", &[(3, &third)], &["--route", route, "--once"]);
        let name = route.replace('=', "-");
        make(&places[0].here(&name), 200_000);
        send(&places[0], &name, 9, &next, &[]).end().complete();
        second.end().complete();
        await_that("the file arrives", || places[2].root(&name).exists());
        check(&places[2].root(&name), 200_000);
    }
}

#[test]
fn a_block_waits_for_the_next_engine() {
    let (way, end) = (Place::new(), Place::new());
    let (absent, last) = silent();
    let (between, next) = relay(&way, 2, "127.0.0.1:0", &[(3, &last)], &["--once"]);
    make(&way.here("file"), 500_000);
    send(&way, "file", 3, &next, &[]).end().complete();
    // The relay sends without replies.
    absent.recv(&mut [0; 2048]).unwrap();
    drop(absent);
    let (receiver, _) = end.recv(LTP_T, &last, &["--entity", "3", "--once"]);
    receiver.end().complete();
    check(&end.root("file"), 500_000);
    between.end().complete();
    await_clean(&way);
}

#[test]
fn stored_blocks_survive_kill_9() {
    let (way, end) = (Place::new(), Place::new());
    let (absent, last) = silent();
    let (between, next) = relay(&way, 2, "127.0.0.1:0", &[(3, &last)], &[]);
    for (name, len) in [("one", 700_000), ("two", 90_000)] {
        make(&way.here(name), len);
        send(&way, name, 3, &next, &[]).end().complete();
    }
    between.kill();
    drop(absent);
    let (receiver, _) = end.recv(LTP_T, &last, &["--entity", "3"]);
    let (mut between, _) = relay(&way, 2, &next, &[(3, &last)], &[]);
    assert_eq!(between.word_between("", " stored blocks of an earlier process"), "2");
    await_that("both arrive", || ["one", "two"].iter().all(|name| end.root(name).exists()));
    check(&end.root("one"), 700_000);
    check(&end.root("two"), 90_000);
    await_clean(&way);
    drop((receiver, between));
}

#[test]
fn partly_received_blocks_are_sent_again_after_kill_9() {
    let (way, end) = (Place::new(), Place::new());
    let (receiver, last) = end.recv(LTP_T, "127.0.0.1:0", &["--entity", "3"]);
    let (between, next) = relay(&way, 2, "127.0.0.1:0", &[(3, &last)], &[]);
    make(&way.here("file"), 4_000_000);
    let sender = send(&way, "file", 3, &next, &["--rate", "20 Mbit/s"]);
    let has_some = || {
        let files = working_files(&way.root(""), "spool");
        files.iter().any(|(_, bytes)| *bytes >= 500_000)
    };
    await_that("some of it is here", has_some);
    between.kill();
    let (between, _) = relay(&way, 2, &next, &[(3, &last)], &[]);
    sender.end().complete();
    await_that("the file arrives", || end.root("file").exists());
    check(&end.root("file"), 4_000_000);
    await_clean(&way);
    drop((receiver, between));
}

#[test]
fn blocks_without_a_route_are_refused() {
    let place = Place::new();
    let (_receiver, address) = place.recv(LTP_T, "127.0.0.1:0", &["--entity", "2"]);
    make(&place.here("file"), 5000);
    send(&place, "file", 9, &address, &[]).end().failed("cannot be reached");
}
