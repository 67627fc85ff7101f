//! Senders of another protocol than the receiver's.

use std::net::UdpSocket;
use std::time::Duration;

use super::process::{Place, make};

const PROTOCOLS: [(&str, &str); 4] =
    [("cfdp", "CFDP"), ("ltp", "LTP"), ("saratoga", "Saratoga"), ("norm", "NORM")];

#[test]
fn receivers_name_the_protocol_of_a_sender() {
    let place = Place::new();
    make(&place.here("file"), 10_000);
    let receivers = PROTOCOLS.map(|(own, _)| {
        let place = Place::new();
        let (receiver, address) = place.recv(own, "127.0.0.1:0", &[]);
        (receiver, address, place)
    });
    // One byte, and noise, are of no protocol.
    let noise = UdpSocket::bind("127.0.0.1:0").unwrap();
    let mut senders = Vec::new();
    for ((own, _), (_, address, _)) in PROTOCOLS.iter().zip(&receivers) {
        noise.send_to(&[0x20], address).unwrap();
        for (other, _) in PROTOCOLS.iter().filter(|(other, _)| other != own) {
            let more = ["--timeout", "3 s", "--rate", "1 Mbit/s"];
            senders.push(place.send(other, "file", address, &more));
        }
    }
    for sender in senders {
        assert_eq!(sender.end().code, Some(1));
    }
    std::thread::sleep(Duration::from_millis(200));
    for ((own, title), (receiver, _, _)) in PROTOCOLS.into_iter().zip(receivers) {
        receiver.interrupt();
        let message = receiver.end().message;
        for (_, other) in PROTOCOLS.into_iter().filter(|(other, _)| *other != own) {
            let line =
                format!(" speaks {other}, not {title}; give both ends the same --protocol\n");
            assert_eq!(message.matches(&line).count(), 1, "{line}: {message}");
        }
        assert_eq!(message.matches("the program at ").count(), 3, "{message}");
    }
}

#[test]
fn receivers_name_cfdp_over_ltp() {
    for (own, title) in [("cfdp", "CFDP"), ("saratoga", "Saratoga"), ("norm", "NORM")] {
        let place = Place::new();
        make(&place.here("file"), 10_000);
        let (mut receiver, address) = place.recv(own, "127.0.0.1:0", &[]);
        let state = place.here("state");
        let more = ["--timeout", "20 s", "--state", state.to_str().unwrap()];
        let sender = place.send("cfdp-ltp", "file", &address, &more);
        let rest = format!(" speaks CFDP over LTP, not {title}; give both ends");
        receiver.word_between("the program at ", &rest);
        sender.interrupt();
        sender.end();
    }
}
