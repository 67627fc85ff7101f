//! Receivers with more peers than they remember.

use std::net::UdpSocket;

use super::process::{Place, check, make};

const PROTOCOLS: [&str; 7] = ["cfdp", "cfdp-ltp", "ltp", "ltp-t", "norm", "norm/coded", "saratoga"];
const LEN: usize = 1000;

/// Arguments of a sender with state of its own.
fn arguments<'a>(protocol: &str, state: &'a str) -> Vec<&'a str> {
    let mut more = vec!["--rate", "10 Mbit/s", "--timeout", "20 s"];
    if protocol.starts_with("cfdp") {
        more.extend(["--state", state, "--linger", "0 s"]);
    }
    more
}

#[test]
fn more_senders_than_peers_are_served_one_after_the_other() {
    let receivers = PROTOCOLS.map(|protocol| {
        let place = Place::new();
        let (receiver, address) = place.recv(protocol, "127.0.0.1:0", &["--peers-max", "5"]);
        (protocol, place, receiver, address)
    });
    for number in 0..8 {
        let name = format!("file-{number}");
        let senders = receivers.each_ref().map(|(protocol, place, _, address)| {
            make(&place.here(&name), LEN);
            let state = place.here(&format!("state-{number}"));
            let more = arguments(protocol, state.to_str().unwrap());
            place.send(protocol, &name, address, &more)
        });
        for ((protocol, place, ..), sender) in receivers.iter().zip(senders) {
            let sent = sender.end();
            assert_eq!(sent.code, Some(0), "{protocol}, {number}: {}", sent.message);
            check(&place.root(&name), LEN);
        }
    }
}

#[test]
fn datagrams_that_open_nothing_shut_nobody_out() {
    for protocol in PROTOCOLS {
        let place = Place::new();
        make(&place.here("file"), LEN);
        let (_receiver, address) = place.recv(protocol, "127.0.0.1:0", &[]);
        for _ in 0..1500 {
            // Each from another port.
            let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
            socket.send_to(&[0xff], &address).unwrap();
        }
        let state = place.here("state");
        let more = arguments(protocol, state.to_str().unwrap());
        let sent = place.send(protocol, "file", &address, &more).end();
        assert_eq!(sent.code, Some(0), "{protocol}: {}", sent.message);
        check(&place.root("file"), LEN);
    }
}
