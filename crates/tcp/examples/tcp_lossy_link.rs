//! Two hosts with their own TCP, and a link in memory that loses one packet in a hundred.
//!
//! `cargo run --package slowlight-tcp --example tcp_lossy_link`

#![expect(clippy::print_stdout, reason = "it shows what happens")]

use std::net::SocketAddr;
use std::time::Duration;

use slowlight_tcp::engine::{
    Engine as _, Input, MemoryLink, MemoryStore, PathEvent, PathId, PathInfo, Receive, Rng, Time,
    drain,
};
use slowlight_tcp::{Backlog, Config, Indication, Options, RequestError, Stack};

/// The interface of both hosts, with an MTU of 1,500 bytes, and the link: 270 ms of light.
const INTERFACE: PathId = PathId(1);
const LIGHT: Duration = Duration::from_millis(270);
const LEN: usize = 1_000_000;

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
    let mut link = MemoryLink::new(LIGHT, 0.01, Rng::new(1, "losses"));
    loop {
        let mut is_idle = true;
        for from in 0..2 {
            // A stack of TCP has no files.
            let drained = drain(now, &mut hosts[from], &mut MemoryStore::new());
            link.send(now, 1 - from, drained.datagrams);
            for indication in drained.indications {
                is_idle = false;
                match indication {
                    Indication::Connected { .. } | Indication::Writable { .. } if from == 0 => {
                        left -= hosts[0].send(now, id, &vec![7; left])?;
                        if left == 0 {
                            hosts[0].shut_down(now, id)?;
                        }
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
        }
        // What was written or read may have caused packets.
        if !is_idle {
            continue;
        }
        let timers = hosts.iter().filter_map(|host| host.poll_timeout()).map(|it| it.at);
        let Some(next) = timers.chain(link.next()).min() else { break };
        now = next;
        if let Some((to, packet)) = link.receive(now) {
            hosts[to].handle_input(now, Input::Receive(Receive::datagram(INTERFACE, &packet)));
        }
        hosts.iter_mut().for_each(|host| host.handle_timeout(now));
    }
    assert_eq!(arrived, LEN);
    println!("{now}: {arrived} bytes arrived, {} packets were sent", link.sent());
    Ok(())
}
