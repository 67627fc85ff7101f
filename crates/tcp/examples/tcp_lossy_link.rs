//! Two hosts with their own TCP, and a link in memory that loses one packet in a hundred.
//!
//! `cargo run --package slowlight-tcp --example tcp_lossy_link`

#![expect(clippy::print_stdout, reason = "it shows what happens")]

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use slowlight_tcp::engine::{
    Engine as _, Input, PathEvent, PathId, PathInfo, Receive, Rng, Time, TxBuf,
};
use slowlight_tcp::{Backlog, Config, ConnectionId, Indication, Options, RequestError, Stack};

/// The interface of both hosts, with an MTU of 1,500 bytes, and the link: 270 ms of light.
const INTERFACE: PathId = PathId(1);
const LIGHT: Duration = Duration::from_millis(270);
const LEN: usize = 1_000_000;

/// Writes what there is room for, and closes after the last byte.
fn write(
    client: &mut Stack,
    now: Time,
    id: ConnectionId,
    left: &mut usize,
) -> Result<(), RequestError> {
    let taken = client.send(now, id, &vec![7; *left])?;
    *left -= taken;
    if *left == 0 { client.shut_down(now, id) } else { Ok(()) }
}

fn main() -> Result<(), RequestError> {
    let mut hosts = [1, 2].map(|seed| Stack::new(Config::default(), Rng::new(seed, "example")));
    let mut now = Time::ZERO;
    for host in &mut hosts {
        host.handle_input(now, Input::Path(INTERFACE, PathEvent::Up(PathInfo::datagram(1_500))));
    }
    let [client, server] = [1, 2].map(|host| SocketAddr::from(([10, 0, 0, host], 5_000)));
    hosts[1].listen(server, Options::default(), Backlog::default())?;
    let id = hosts[0].connect(now, client, server, Options::default())?;

    let (mut left, mut arrived, mut buffer) = (LEN, 0, vec![0; 1 << 16]);
    // Packets in transit, by arrival and number: the receiver, and the bytes.
    let (mut link, mut number, mut losses) = (BTreeMap::new(), 0, Rng::new(1, "losses"));
    loop {
        for from in 0..2 {
            while let Some(indication) = hosts[from].poll_indication() {
                match indication {
                    Indication::Connected { .. } | Indication::Writable { .. } => {
                        write(&mut hosts[0], now, id, &mut left)?;
                    }
                    Indication::Readable { connection } => loop {
                        let read = hosts[from].receive(now, connection, &mut buffer)?;
                        arrived += read;
                        if read == 0 {
                            break;
                        }
                    },
                    Indication::PeerClosed { connection } if from == 1 => {
                        hosts[1].close(now, connection)?;
                    }
                    other => println!("{now}: {other:?}"),
                }
            }
            let mut tx = TxBuf::new(1);
            while hosts[from].poll_transmit(now, &mut tx).is_some() {
                for packet in tx.datagrams() {
                    number += 1;
                    if losses.below(100) > 0 {
                        link.insert((now + LIGHT, number), (1 - from, packet.to_vec()));
                    }
                }
                tx.clear();
            }
        }
        let timers =
            hosts.iter().filter_map(|host| host.poll_timeout()).map(|deadline| deadline.at);
        let arrivals = link.keys().map(|(at, _)| *at);
        let Some(next) = timers.chain(arrivals).min() else { break };
        now = next;
        if let Some(((_, _), (to, packet))) =
            link.first_entry().filter(|it| it.key().0 == now).map(|it| it.remove_entry())
        {
            hosts[to].handle_input(now, Input::Receive(Receive::datagram(INTERFACE, &packet)));
        }
        hosts.iter_mut().for_each(|host| host.handle_timeout(now));
    }
    assert_eq!(arrived, LEN);
    println!("{now}: {arrived} bytes arrived, {number} packets were sent");
    Ok(())
}
