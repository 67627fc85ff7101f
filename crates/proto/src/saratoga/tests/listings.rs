//! What becomes of the files whose directory is listed.

use engine::{
    Engine as _, FileName, Input, MemoryStore, PathEvent, PathId, PathInfo, Receive, Rng, Time,
    TxBuf,
};
use wire::saratoga::{Content, Packet, Request, RequestKind, StatusCode, Width};

use crate::saratoga::{Config, Node};

const PATH: PathId = PathId(3);

/// What a peer with these files answers to a request for a listing.
fn answers(mut config: Config, store: &mut MemoryStore, directory: &str) -> Vec<Vec<u8>> {
    config.permissions.get = true;
    let mut node = Node::new(config, Rng::new(1, "listing"));
    let now = Time::ZERO;
    let drain = |node: &mut Node, store: &mut MemoryStore| {
        while let Some(effect) = node.poll_effect() {
            if let Some((ticket, answer)) = store.execute(effect) {
                node.handle_input(now, Input::Done(ticket, answer));
            }
        }
    };
    drain(&mut node, store);
    node.handle_input(now, Input::Path(PATH, PathEvent::Up(PathInfo::datagram(1024))));
    let request = Packet::Request(Request {
        kind: RequestKind::GetDir,
        descriptor: Width::W32,
        bundles: false,
        streams: false,
        udp_lite: false,
        session: 77,
        path: directory.as_bytes(),
        authentication: &[],
    });
    let datagram = request.to_vec().expect("a packet");
    node.handle_input(now, Input::Receive(Receive::datagram(PATH, &datagram)));
    drain(&mut node, store);
    let mut datagrams = Vec::new();
    let mut tx = TxBuf::new(16);
    while node.poll_transmit(now, &mut tx).is_some() {
        datagrams.extend(tx.datagrams().map(<[u8]>::to_vec));
        tx.clear();
    }
    datagrams
}

fn store() -> MemoryStore {
    let mut store = MemoryStore::new();
    store.insert(FileName::file("a").expect("a plain name"), b"content".to_vec());
    store
}

fn refusal(datagrams: &[Vec<u8>]) -> Option<StatusCode> {
    datagrams.iter().find_map(|datagram| match Packet::decode(datagram) {
        Ok(Packet::Status(status)) => Some(status.code),
        Ok(_) | Err(_) => None,
    })
}

#[test]
fn a_file_that_is_asked_for_as_a_directory_stays() {
    let mut store = store();
    let datagrams = answers(Config::default(), &mut store, "a");
    assert_eq!(refusal(&datagrams), Some(StatusCode::NotFound));
    assert!(store.get(&FileName::file("a").expect("a plain name")).is_some());
}

#[test]
fn a_listing_is_sent() {
    let mut store = store();
    let datagrams = answers(Config::default(), &mut store, "");
    let is_data = |datagram: &Vec<u8>| {
        matches!(Packet::decode(datagram), Ok(Packet::Data(data))
            if data.content == Content::Directory && !data.data.is_empty())
    };
    assert!(datagrams.iter().any(is_data), "{datagrams:?}");
    assert_eq!(refusal(&datagrams), None);
}

#[test]
fn a_listing_that_is_too_long_is_refused() {
    let mut config = Config::default();
    config.limits.directory = 3;
    let datagrams = answers(config, &mut store(), "");
    assert_eq!(refusal(&datagrams), Some(StatusCode::TooLong));
}
