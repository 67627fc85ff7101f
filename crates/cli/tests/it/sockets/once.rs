//! Receivers of one file leave only when its sender has received the last reply.

use std::sync::atomic::Ordering;
use std::time::Duration;

use super::process::{Place, check, make};
use super::relay::{Passing, Relay};

const PROTOCOLS: [&str; 7] = ["cfdp", "cfdp-ltp", "ltp", "ltp-t", "norm", "norm/coded", "saratoga"];

/// The file arrives long before its sender receives a reply.
fn is_early_reply(passing: &Passing) -> bool {
    passing.is_reply && passing.since < Duration::from_millis(1200)
}

#[test]
fn receivers_of_one_file_stay_until_its_sender_has_the_last_reply() {
    let transfers = PROTOCOLS.map(|protocol| {
        let place = Place::new();
        make(&place.here("file"), 1000);
        let (receiver, address) = place.recv(protocol, "127.0.0.1:0", &["--once"]);
        let relay = Relay::new(&address, is_early_reply);
        let state = place.here("state");
        let mut more = vec!["--rate", "10 Mbit/s", "--timeout", "1 min"];
        if protocol.starts_with("cfdp") {
            more.extend(["--state", state.to_str().unwrap()]);
        }
        let sender = place.send(protocol, "file", &relay.address, &more);
        (protocol, place, receiver, relay, sender)
    });
    for (protocol, place, receiver, relay, sender) in transfers {
        let sent = sender.end();
        assert_eq!(sent.code, Some(0), "{protocol}: {}", sent.message);
        receiver.end().complete();
        check(&place.root("file"), 1000);
        assert!(relay.lost.load(Ordering::Relaxed) > 0, "{protocol}: no reply was lost");
    }
}
