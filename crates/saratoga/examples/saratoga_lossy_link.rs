//! Two Saratoga peers send a file over a link in memory that loses one datagram in ten.
//!
//! `cargo run --package slowlight-saratoga --example saratoga_lossy_link`

#![expect(clippy::print_stdout, reason = "it shows what happens")]

use std::time::Duration;

use slowlight_saratoga::engine::{
    Engine as _, FileName, Input, MemoryLink, MemoryStore, PathEvent, PathId, PathInfo, Receive,
    Rng, Time, drain,
};
use slowlight_saratoga::{Config, Node, Permissions, PutRequest};

/// The link, with 1.3 s of light and datagrams of at most 1,024 bytes.
const LINK: PathId = PathId(1);
const LIGHT: Duration = Duration::from_millis(1_300);

fn main() {
    let mut now = Time::ZERO;
    let mut hosts = [1, 2].map(|number| {
        let permissions = Permissions { put: true, get: false, delete: false };
        let config = Config { permissions, ..Config::default() };
        let mut engine = Node::new(config, Rng::new(number, "example"));
        let info = PathInfo { owlt: Some(LIGHT), ..PathInfo::datagram(1_024) };
        engine.handle_input(now, Input::Path(LINK, PathEvent::Up(info)));
        (engine, MemoryStore::new())
    });
    let name = |path| FileName::file(path).expect("a plain name");
    let picture: Vec<_> = (0..100_000_u32).map(|i| (i / 7) as u8).collect();
    hosts[0].1.insert(name("picture.raw"), picture.clone());
    let request = PutRequest::new(LINK, name("picture.raw"), "copy.raw");
    hosts[0].0.put(Time::ZERO, request).expect("a sound request");

    let mut link = MemoryLink::new(LIGHT, 0.1, Rng::new(1, "losses"));
    loop {
        for (from, (engine, files)) in hosts.iter_mut().enumerate() {
            let drained = drain(now, engine, files);
            drained.indications.iter().for_each(|it| println!("{now}: {it:?}"));
            link.send(now, 1 - from, drained.datagrams);
        }
        let timers = hosts.iter().filter_map(|(engine, _)| engine.poll_timeout()).map(|it| it.at);
        let Some(next) = timers.chain(link.next()).min() else { break };
        now = next;
        if let Some((to, datagram)) = link.receive(now) {
            hosts[to].0.handle_input(now, Input::Receive(Receive::datagram(LINK, &datagram)));
        }
        hosts.iter_mut().for_each(|(engine, _)| engine.handle_timeout(now));
    }
    let copy = hosts[1].1.get(&name("copy.raw")).expect("it arrived");
    assert!(copy == picture, "it differs");
    println!("{now}: {} bytes arrived, {} datagrams were sent", copy.len(), link.sent());
}
