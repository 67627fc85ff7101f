//! Two NORM nodes send a file over UDP sockets of this machine.
//!
//! `cargo run --package slowlight-norm --example norm_udp`

#![expect(clippy::print_stdout, reason = "it shows what happens")]
#![expect(clippy::disallowed_types, reason = "a driver has clocks and sockets, an engine none")]
#![expect(clippy::disallowed_methods, reason = "a driver has clocks and sockets, an engine none")]

use std::io;
use std::net::UdpSocket;
use std::time::{Duration, Instant};

use bytes::Bytes;
use slowlight_norm::engine::{
    Engine as _, FileName, Input, MemoryStore, PathEvent, PathId, PathInfo, Receive, Rng, Time,
    drain,
};
use slowlight_norm::{Config, Content, Indication, Node, SendRequest};

/// The only peer, as the engine knows it.
const LINK: PathId = PathId(1);

/// An engine, its files and its socket.
struct Host {
    engine: Node,
    files: MemoryStore,
    socket: UdpSocket,
    is_over: bool,
}

impl Host {
    fn new(number: u64, socket: UdpSocket) -> Self {
        let config = Config { node: number as u32, ..Config::default() };
        let mut engine = Node::new(config, Rng::new(number, "example"));
        let info = PathInfo::datagram(1_024);
        engine.handle_input(Time::ZERO, Input::Path(LINK, PathEvent::Up(info)));
        Self { engine, files: MemoryStore::new(), socket, is_over: false }
    }

    /// Passes received datagrams to the engine, executes its effects, and sends its datagrams.
    fn drive(&mut self, now: Time) {
        let mut buffer = [0; 2_048];
        while let Ok(len) = self.socket.recv(&mut buffer) {
            let receive = Receive::datagram(LINK, &buffer[..len]);
            self.engine.handle_input(now, Input::Receive(receive));
        }
        self.engine.handle_timeout(now);
        let drained = drain(now, &mut self.engine, &mut self.files);
        for indication in drained.indications {
            println!("{now}: {indication:?}");
            self.is_over |= matches!(indication, Indication::Finished(_));
        }
        for datagram in drained.datagrams {
            // A datagram that cannot be sent is lost, and retransmitted.
            let _ = self.socket.send(&datagram.bytes);
        }
    }
}

fn main() -> io::Result<()> {
    let sockets = [UdpSocket::bind("127.0.0.1:0")?, UdpSocket::bind("127.0.0.1:0")?];
    sockets[0].connect(sockets[1].local_addr()?)?;
    sockets[1].connect(sockets[0].local_addr()?)?;
    for socket in &sockets {
        socket.set_nonblocking(true)?;
    }
    let mut number = 0;
    let mut hosts = sockets.map(|socket| {
        number += 1;
        Host::new(number, socket)
    });
    let name = |path| FileName::file(path).expect("a plain name");
    let picture: Vec<_> = (0..100_000_u32).map(|i| (i / 7) as u8).collect();
    hosts[0].files.insert(name("picture.raw"), picture.clone());
    let content = Content::File(name("picture.raw"));
    let request = SendRequest { peer: LINK, content, info: Bytes::from_static(b"copy.raw") };
    hosts[0].engine.send(Time::ZERO, request).expect("a sound request");

    let start = Instant::now();
    while !hosts.iter().all(|host| host.is_over) {
        let now = Time::ZERO + start.elapsed();
        for host in &mut hosts {
            host.drive(now);
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    let copy = hosts[1].files.get(&name("copy.raw")).expect("it arrived");
    assert!(copy == picture, "it differs");
    println!("{} bytes arrived", copy.len());
    Ok(())
}
