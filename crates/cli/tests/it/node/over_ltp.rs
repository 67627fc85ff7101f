//! Nodes whose neighbours' LTP engines send from another port than they listen on.

use std::fs;
use std::net::SocketAddr;

use super::row::{Row, bytes, text, wait_for};
use crate::other_ports::OtherPorts;

/// Bytes of the files: one segment, several, and one that is collected in a file.
const SIZES: [usize; 3] = [1, 30_003, 10_000_003];

#[test]
fn bundles_cross_between_engines_that_send_from_other_ports() {
    for lose_one_in in [0, 20] {
        let mut ports = OtherPorts::new();
        let listens = ports.listens;
        let row = Row::of(2, |n, own| {
            let (port, there) = (own[n - 1], listens[2 - n]);
            let other = 3 - n;
            format!(
                "[[layer]]\nkind = \"ltpcl\"\nlisten = \"127.0.0.1:{port}\"\nrate = \"100 Mbit/s\"\n\
                 [[neighbour]]\nnode = \"ipn:{other}.0\"\naddress = \"{there}\"\n"
            )
        });
        let host = |n: usize| Some(SocketAddr::from(([127, 0, 0, 1], row.port(n))));
        ports.start([host(1), host(2)], lose_one_in);
        for (from, to) in [(1, 2), (2, 1)] {
            for len in SIZES {
                let name = format!("{from}-{len}");
                let (file, content) = (row.folder.path().join(&name), bytes(len, 3));
                fs::write(&file, &content).unwrap();
                let endpoint = format!("ipn:{to}.1");
                let sent = row.bp(from, &["send", &endpoint, file.to_str().unwrap()]);
                assert!(sent.status.success(), "{}", text(&sent));
                let inbox = row.folder.path().join(format!("inbox-{name}"));
                fs::create_dir(&inbox).unwrap();
                let command = ["recv", "1", inbox.to_str().unwrap(), "--count", "1"];
                let received = row.bp(to, &command);
                assert!(received.status.success(), "{}", text(&received));
                let file = fs::read_dir(&inbox).unwrap().find_map(|entry| {
                    let path = entry.unwrap().path();
                    path.is_file().then_some(path)
                });
                assert!(fs::read(file.expect("it was received")).unwrap() == content, "{name}");
            }
        }
        wait_for("each node knows that its bundles have arrived", || {
            (1..=2).all(|n| row.query(n).is_some_and(|node| node["counts"]["bundles"] == 0))
        });
    }
}
