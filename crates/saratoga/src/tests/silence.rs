//! Sessions whose peer has forgotten them, or makes no progress.

use std::time::Duration;

use engine::{
    Effect, Engine as _, FileName, Input, MemoryStore, PathEvent, PathId, PathInfo, Receive, Rng,
    Time, TxBuf,
};

use super::world::{self, World, content};
use crate::packet::{Holes, Metadata, Packet, Status, StatusCode, Width};
use crate::{
    Config, Congestion, GetRequest, Indication, Node, Permissions, Put, PutRequest, Timer,
};

const PATH: PathId = PathId(3);
const CONTENT: &[u8] = &[7; 5000];

/// Peer with its files, and its packets about finished sessions.
struct Peer {
    node: Node,
    store: MemoryStore,
    results: Vec<Result<(), String>>,
}

impl Peer {
    fn new(seed: u64, store: MemoryStore) -> Self {
        let permissions = Permissions { put: true, get: true, delete: false };
        let node = Node::new(Config { permissions, ..Config::default() }, Rng::new(seed, "peer"));
        let mut peer = Self { node, store, results: Vec::new() };
        peer.drain(Time::ZERO);
        let up = PathEvent::Up(PathInfo::datagram(1024));
        peer.node.handle_input(Time::ZERO, Input::Path(PATH, up));
        peer
    }

    /// Carries out the peer's effects. Returns its datagrams.
    fn drain(&mut self, now: Time) -> Vec<Vec<u8>> {
        let mut datagrams = Vec::new();
        let mut tx = TxBuf::new(16);
        loop {
            let mut is_idle = true;
            while let Some(effect) = self.node.poll_effect() {
                is_idle = false;
                let Effect::Store(effect) = effect else { continue };
                if let Some((ticket, answer)) = self.store.execute(effect) {
                    self.node.handle_input(now, Input::Done(ticket, answer));
                }
            }
            while let Some(indication) = self.node.poll_indication() {
                if let Indication::Finished(finished) = indication {
                    self.results.push(finished.result.map_err(|why| format!("{why:?}")));
                }
            }
            tx.clear();
            if self.node.poll_transmit(now, &mut tx).is_some() {
                is_idle = false;
                datagrams.extend(tx.datagrams().map(<[u8]>::to_vec));
            }
            if is_idle {
                return datagrams;
            }
        }
    }

    fn receive(&mut self, now: Time, datagram: &[u8]) {
        self.node.handle_input(now, Input::Receive(Receive::datagram(PATH, datagram)));
    }

    fn deadline(&self) -> Option<Time> {
        self.node.poll_timeout().map(|deadline| deadline.at)
    }

    /// Calls `each` at each deadline until the session has ended: it fails within two hours.
    fn run_until_given_up(&mut self, mut each: impl FnMut(&mut Self, Time)) {
        let mut now = Time::ZERO;
        while self.results.is_empty() {
            each(self, now);
            self.drain(now);
            let Some(at) = self.deadline() else { break };
            now = at;
            assert!(now < Time::ZERO + Duration::from_secs(7300), "it goes on and on");
            self.node.handle_timeout(now);
        }
        self.drain(now);
        assert!(matches!(&self.results[..], [Err(_)]), "{:?}", self.results);
    }
}

fn with_source() -> MemoryStore {
    let mut store = MemoryStore::new();
    store.insert(FileName::file("source").expect("a plain name"), CONTENT.to_vec());
    store
}

fn put(sender: &mut Peer, now: Time, stream: bool) {
    let source = FileName::file("source").expect("a plain name");
    let request = PutRequest { stream, ..PutRequest::new(PATH, source, "copy") };
    sender.node.put(now, request).expect("the request is sound");
}

#[test]
fn receivers_that_only_repeat_a_status_are_given_up() {
    let mut sender = Peer::new(1, with_source());
    put(&mut sender, Time::ZERO, true);
    sender.run_until_given_up(|sender, now| {
        for datagram in sender.drain(now) {
            let Ok(Packet::Data(data)) = Packet::decode(&datagram) else { continue };
            // An empty file is complete, as if the METADATA had described one.
            let answer = Packet::Status(Status {
                descriptor: Width::W32,
                timestamp: data.timestamp,
                lacks_metadata: false,
                is_partial: false,
                is_voluntary: false,
                code: StatusCode::Ok,
                session: data.session,
                progress: 0,
                in_response_to: 0,
                holes: Holes::NONE,
            });
            sender.receive(now, &answer.to_vec().expect("a packet"));
        }
    });
}

#[test]
fn senders_of_closed_sessions_are_given_up() {
    let mut sender = Peer::new(1, with_source());
    let mut receiver = Peer::new(2, MemoryStore::new());
    let now = Time::ZERO;
    put(&mut sender, now, true);
    let mut over = None;
    // All but its first data arrives.
    let mut is_first = true;
    for datagram in sender.drain(now) {
        match Packet::decode(&datagram) {
            Ok(Packet::Metadata(metadata)) => {
                let metadata = Packet::Metadata(Metadata { is_over: true, ..metadata });
                over = Some(metadata.to_vec().expect("a packet"));
            }
            Ok(Packet::Data(_)) if std::mem::take(&mut is_first) => continue,
            Ok(_) | Err(_) => {}
        }
        receiver.receive(now, &datagram);
    }
    let over = over.expect("the file was described");
    receiver.run_until_given_up(|receiver, now| {
        if !receiver.drain(now).is_empty() {
            receiver.receive(now, &over);
        }
    });
}

#[test]
fn data_of_another_file_does_not_keep_a_session() {
    let mut sender = Peer::new(1, with_source());
    let mut receiver = Peer::new(2, MemoryStore::new());
    let now = Time::ZERO;
    put(&mut sender, now, false);
    let datagrams = sender.drain(now);
    for datagram in &datagrams {
        match Packet::decode(datagram) {
            Ok(Packet::Metadata(mut metadata)) => {
                metadata.entry.size += 100;
                let longer = Packet::Metadata(metadata).to_vec().expect("a packet");
                receiver.receive(now, &longer);
            }
            Ok(_) | Err(_) => receiver.receive(now, datagram),
        }
    }
    let end = datagrams.iter().rfind(
        |datagram| matches!(Packet::decode(datagram), Ok(Packet::Data(data)) if data.is_end),
    );
    let end = end.expect("all of it was sent");
    receiver.run_until_given_up(|receiver, now| {
        receiver.drain(now);
        receiver.receive(now, end);
    });
}

#[test]
fn later_of_two_puts_of_a_file_takes_over() {
    let mut sender = Peer::new(1, with_source());
    let mut receiver = Peer::new(2, MemoryStore::new());
    let now = Time::ZERO;
    put(&mut sender, now, false);
    let first = sender.drain(now);
    put(&mut sender, now, false);
    let second = sender.drain(now);
    // The first one gets no further than its METADATA before the second one starts.
    receiver.receive(now, &first[0]);
    receiver.drain(now);
    second.iter().chain(&first[1..]).for_each(|datagram| receiver.receive(now, datagram));
    for _ in 0..100 {
        let back = receiver.drain(now);
        back.iter().for_each(|datagram| sender.receive(now, datagram));
        let there = sender.drain(now);
        there.iter().for_each(|datagram| receiver.receive(now, datagram));
        if back.is_empty() && there.is_empty() {
            break;
        }
    }
    sender.results.sort();
    assert!(matches!(&sender.results[..], [Ok(()), Err(_)]), "{:?}", sender.results);
    assert_eq!(receiver.results, [Ok(())]);
    let copy = FileName::file("copy").expect("a plain name");
    assert!(receiver.store.get(&copy).is_some_and(|found| found == CONTENT));
}

#[test]
fn forgotten_requests_are_retransmitted() {
    let mut sender = Peer::new(1, with_source());
    let mut receiver = Peer::new(2, MemoryStore::new());
    let mut now = Time::ZERO;
    let (name, peer, delete) = ("source".to_owned(), PATH, false);
    let destination = FileName::file("copy").expect("a plain name");
    receiver
        .node
        .get(now, GetRequest { peer, name, destination: destination.clone(), delete })
        .expect("the request is sound");
    for request in receiver.drain(now) {
        sender.receive(now, &request);
    }
    // METADATA and the first data; then it is killed.
    for datagram in sender.drain(now).iter().take(2) {
        receiver.receive(now, datagram);
    }
    sender = Peer::new(3, with_source());
    while receiver.results.is_empty() {
        loop {
            let there = receiver.drain(now);
            there.iter().for_each(|datagram| sender.receive(now, datagram));
            let back = sender.drain(now);
            back.iter().for_each(|datagram| receiver.receive(now, datagram));
            if there.is_empty() && back.is_empty() {
                break;
            }
        }
        let Some(at) = receiver.deadline().into_iter().chain(sender.deadline()).min() else {
            break;
        };
        now = at;
        receiver.node.handle_timeout(now);
        sender.node.handle_timeout(now);
    }
    assert_eq!(receiver.results, [Ok(())]);
    assert!(now < Time::ZERO + Duration::from_secs(60), "asked again at {now}");
    assert!(receiver.store.get(&destination).is_some_and(|found| found == CONTENT));
}

/// Time and result of a put of 2 MB to a receiver whose packets are all lost.
fn end_at_a_silent_receiver(change: impl FnOnce(&mut Config), put: Put) -> (Duration, bool) {
    let mut config = world::config();
    config.default_remote.inactivity = Timer::Fixed(Duration::from_secs(60));
    change(&mut config);
    let mut world = World::alone(config);
    world.put(&content(2_000_000), put);
    while world.finished(0).is_none() {
        assert!(world.step() && world.now < Time::ZERO + Duration::from_secs(100_000));
    }
    (world.now.since(Time::ZERO), world.failure(0) == Some(StatusCode::RequestTimeout))
}

#[test]
fn a_silent_receiver_is_given_up_while_data_still_goes_out() {
    let limits = Duration::from_secs(60)..Duration::from_secs(66);
    let tfrc = |config: &mut Config| config.default_remote.congestion = Congestion::Tfrc;
    // 2 MB would take 16,000 s.
    let slow = |config: &mut Config| config.default_remote.rate_bps = Some(1_000);
    let (after, is_timeout) = end_at_a_silent_receiver(tfrc, Put::Push);
    assert!(limits.contains(&after) && is_timeout, "heeding congestion: {after:?}");
    let (after, is_timeout) = end_at_a_silent_receiver(slow, Put::Push);
    assert!(limits.contains(&after) && is_timeout, "slow: {after:?}");
}

/// Without requests, silence has no meaning until the end.
#[test]
fn receivers_without_open_requests_are_not_given_up() {
    // 2 MB take more than 160 s.
    let slow = |status_interval: Option<Timer>| {
        move |config: &mut Config| {
            config.default_remote.rate_bps = Some(100_000);
            config.default_remote.status_interval = status_interval;
        }
    };
    let (after, is_timeout) = end_at_a_silent_receiver(slow(None), Put::Push);
    assert!(after > Duration::from_secs(220) && is_timeout, "{after:?}");
    let (after, is_timeout) = end_at_a_silent_receiver(slow(Some(Timer::Auto)), Put::Blind);
    assert!(after > Duration::from_secs(160) && !is_timeout, "{after:?}");
}
