//! Two layers over a stream that is cut at random places, and a scripted peer.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use bytes::Bytes;
use engine::{
    Effect, Engine as _, FileName, Input, PathEffect, PathEvent, PathId, PathInfo, Receive, Rng,
    StreamEffect, Time, TxBuf,
};
use proptest::prelude::*;

use super::{Config, Limits, Peer, Proof, Tcpcl, Tls};
use crate::codec::bp7::Eid;
use crate::layer::{
    Command, Content, Event, Layer as _, LinkId, Outcome, Outgoing, Refusal, Tag, TransferId,
};
use crate::tests::pair::{Host, bytes};

mod admission;
mod discovered;
mod framed;
mod messages;
mod version3;

const LINK: LinkId = LinkId(1);
const ACTIVE: PathId = PathId(1);
const PASSIVE: PathId = PathId(7);
/// Paths of the two.
const PATHS: [PathId; 2] = [ACTIVE, PASSIVE];

/// Stream to one of the two.
#[derive(Default)]
struct Wire {
    /// Bytes in transit to it.
    coming: VecDeque<u8>,
    is_up: bool,
    is_paused: bool,
    secures: bool,
    opened: usize,
}

struct World {
    now: Time,
    ends: [Host<Tcpcl>; 2],
    wires: [Wire; 2],
    rng: Rng,
    /// Bytes sent by each end.
    sent: [Vec<u8>; 2],
    /// Whether complete bundles are accepted.
    accepts: bool,
}

fn config(node: u32) -> Config {
    Config { node: Eid::ipn(node, 0), ..Config::default() }
}

fn active(node: u32) -> Config {
    let peer = Peer { path: ACTIVE, server_name: "b.example".into(), node: None };
    Config { peers: [(LINK, peer)].into(), ..config(node) }
}

impl World {
    fn new(configs: [Config; 2], seed: u64) -> Self {
        let mut world = Self {
            now: Time::from_secs(1),
            ends: configs.map(|config| Host::new(Box::new(Tcpcl::new(config)))),
            wires: [Wire::default(), Wire::default()],
            rng: Rng::new(seed, "streams"),
            sent: [Vec::new(), Vec::new()],
            accepts: true,
        };
        world.command(0, Command::Open { link: LINK });
        world
    }

    fn established(configs: [Config; 2], seed: u64) -> Self {
        let mut world = Self::new(configs, seed);
        world.connect();
        world.settle();
        world
    }

    fn connect(&mut self) {
        for wire in &mut self.wires {
            (wire.is_up, wire.is_paused) = (true, false);
            wire.coming.clear();
        }
        (0..2).for_each(|n| self.event(n, PathEvent::Up(PathInfo::stream())));
    }

    fn down(&mut self) {
        for n in 0..2 {
            if std::mem::take(&mut self.wires[n].is_up) {
                self.event(n, PathEvent::Down);
            }
            self.drain(n);
        }
    }

    fn command(&mut self, n: usize, command: Command) {
        self.ends[n].layer.command(self.now, command);
        self.drain(n);
    }

    fn event(&mut self, n: usize, event: PathEvent) {
        self.ends[n].layer.handle_input(self.now, Input::Path(PATHS[n], event));
        self.drain(n);
    }

    fn receive(&mut self, n: usize, bytes: &[u8]) {
        let receive = Receive::datagram(PATHS[n], bytes);
        self.ends[n].layer.handle_input(self.now, Input::Receive(receive));
        self.drain(n);
    }

    /// Delivers the next bytes to one of the two.
    fn carry(&mut self, n: usize, len: usize) {
        let bytes: Vec<u8> = self.wires[n].coming.drain(..len).collect();
        self.receive(n, &bytes);
    }

    fn drain(&mut self, n: usize) {
        loop {
            let mut tx = TxBuf::new(1);
            let transmit = self.ends[n].layer.poll_transmit(self.now, &mut tx);
            if let Some(transmit) = &transmit {
                assert_eq!(transmit.path, PATHS[n]);
                self.sent[n].extend(tx.bytes());
                self.wires[1 - n].coming.extend(tx.bytes());
            }
            let effects = self.ends[n].turn(self.now, self.accepts);
            if transmit.is_none() && effects.is_none() {
                return;
            }
            let wire = &mut self.wires[n];
            for effect in effects.into_iter().flatten() {
                match effect {
                    Effect::Path(PathEffect::Open { .. }) => wire.opened += 1,
                    Effect::Path(PathEffect::PauseRead { .. }) => wire.is_paused = true,
                    Effect::Path(PathEffect::ResumeRead { .. }) => wire.is_paused = false,
                    Effect::Stream(StreamEffect::StartTls { early, .. }) => {
                        assert!(early.is_empty());
                        wire.secures = true;
                    }
                    Effect::Path(PathEffect::Close { .. })
                    | Effect::Stream(StreamEffect::Reset { .. }) => wire.is_up = false,
                    other => panic!("{other:?}"),
                }
            }
        }
    }

    fn settle(&mut self) {
        loop {
            let mut some = false;
            for n in 0..2 {
                let wire = &self.wires[n];
                if wire.coming.is_empty() || !wire.is_up || wire.is_paused {
                    continue;
                }
                some = true;
                let most = wire.coming.len().min(65_536) as u64;
                let piece = 1 + self.rng.below(most) as usize;
                self.carry(n, piece);
            }
            if self.wires.iter().all(|wire| wire.secures) {
                for n in 0..2 {
                    self.wires[n].secures = false;
                    let names = vec![["ipn:2.0", "ipn:1.0"][n].to_owned()];
                    self.event(n, PathEvent::Secured(names));
                }
                some = true;
            }
            // A stream reset by one end is closed for the other.
            if self.wires[0].is_up != self.wires[1].is_up && !some {
                let n = usize::from(self.wires[1].is_up);
                self.wires[n].is_up = false;
                self.event(n, PathEvent::ReadClosed);
                some = true;
            }
            if !some {
                return;
            }
        }
    }

    fn pass(&mut self, time: Duration) {
        let until = self.now + time;
        loop {
            self.settle();
            let next =
                self.ends.iter().filter_map(|end| end.layer.poll_timeout()).map(|d| d.at).min();
            let Some(next) = next.filter(|next| *next <= until) else { break };
            self.now = self.now.max(next);
            for n in 0..2 {
                self.ends[n].layer.handle_timeout(self.now);
                self.drain(n);
                let after = self.ends[n].layer.poll_timeout();
                assert!(after.is_none_or(|deadline| deadline.at > self.now), "{after:?}");
            }
        }
        self.now = until;
    }

    fn send(&mut self, tag: u64, payload: Content) {
        let (head, tail) = (Bytes::from_static(b"head"), Bytes::from_static(b"!"));
        let bundle = Outgoing { head, payload, tail, reliable: true, identity: None };
        let link = self.link(0);
        self.command(0, Command::Send { link, tag: Tag(tag), bundle });
    }

    fn link(&self, n: usize) -> LinkId {
        let up = |event: &Event| match event {
            Event::Up { link, .. } => Some(*link),
            _ => None,
        };
        self.ends[n].events.iter().rev().find_map(up).unwrap_or(LINK)
    }

    /// Received bundles.
    fn came(&self, n: usize) -> Vec<Vec<u8>> {
        let mut bundles: Vec<(TransferId, Vec<u8>)> = Vec::new();
        for event in &self.ends[n].events {
            match event {
                Event::Begins { transfer, .. } => bundles.push((*transfer, Vec::new())),
                Event::Piece { transfer, bytes, .. } => {
                    let (of, bundle) = bundles.last_mut().expect("it began");
                    assert_eq!(of, transfer);
                    bundle.extend_from_slice(bytes);
                }
                _ => {}
            }
        }
        bundles.into_iter().map(|(_, bundle)| bundle).collect()
    }

    fn outcomes(&self) -> Vec<(u64, Outcome)> {
        self.ends[0].outcomes()
    }

    fn is_down(&self, n: usize) -> bool {
        matches!(self.ends[n].events.last(), Some(Event::Down { .. }))
    }
}

fn whole(len: usize) -> Vec<u8> {
    [b"head", &bytes(len)[..], b"!"].concat()
}

/// Requirements: V01a, V02, V12b, V15, V16, V17a, V20b.
#[test]
fn the_first_exchange_matches_the_specification() {
    let mut world = World::established([active(1), config(2)], 1);
    world.send(9, Content::Bytes(Bytes::from_static(b"hi")));
    world.settle();
    // Contact header, SESS_INIT (30 s, MRUs, "ipn:1.0"), one segment with both flags and 7 bytes.
    let mut expected = b"dtn!\x04\x00".to_vec();
    expected.extend([7, 0, 30]);
    expected.extend((16u64 << 20).to_be_bytes());
    expected.extend((16u64 << 30).to_be_bytes());
    expected.extend([0, 7]);
    expected.extend(b"ipn:1.0\0\0\0\0");
    expected.extend([1, 3, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 7]);
    expected.extend(b"headhi!");
    assert_eq!(world.sent[0], expected);
    // The acknowledgment echoes the flags of the segment and its length.
    let ack = [2, 3, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 7];
    assert_eq!(&world.sent[1][world.sent[1].len() - 18..], ack);
    assert_eq!(world.outcomes(), [(9, Outcome::Acknowledged)]);
    let Event::Up { neighbour, .. } = &world.ends[1].events[0] else { panic!("no session") };
    assert_eq!(neighbour.node, Some(Eid::ipn(1, 0)));
    assert!(!neighbour.is_authenticated);
}

/// Requirements: V14, V17b.
#[test]
fn bundles_of_all_lengths_arrive_in_order() {
    for seed in 0..20 {
        let mut world = World::established([active(1), config(2)], seed);
        let lengths = [0, 1, 100, 65_531, 65_532, 200_000, 10];
        for (tag, len) in lengths.into_iter().enumerate() {
            world.send(tag as u64, Content::Bytes(bytes(len).into()));
        }
        world.settle();
        assert_eq!(world.came(1), lengths.map(whole));
        let acknowledged: Vec<_> = (0..7).map(|tag| (tag, Outcome::Acknowledged)).collect();
        assert_eq!(world.outcomes(), acknowledged);
    }
}

#[test]
fn a_bundle_in_a_file_is_read_as_it_is_sent() {
    let mut world = World::established([active(1), config(2)], 3);
    let name = FileName::spool("bp/1").unwrap();
    world.ends[0].store.insert(name.clone(), bytes(1_000_000));
    world.send(1, Content::File { name: name.clone(), offset: 1000, len: 900_000 });
    world.send(2, Content::Bytes(bytes(5).into()));
    world.settle();
    let expected = [b"head", &bytes(1_000_000)[1000..901_000], b"!"].concat();
    assert!(world.came(1) == [expected, whole(5)]);
    // A bundle with a missing file is returned, and the others are sent.
    world.send(3, Content::File { name: FileName::spool("bp/2").unwrap(), offset: 0, len: 10 });
    world.send(4, Content::Bytes(bytes(6).into()));
    world.settle();
    let outcomes = &world.outcomes()[2..];
    assert!(outcomes.contains(&(3, Outcome::Failed { acknowledged: 0 })), "{outcomes:?}");
    assert!(outcomes.contains(&(4, Outcome::Acknowledged)), "{outcomes:?}");
}

/// Requirements: V18.
#[test]
fn the_last_acknowledgment_waits_for_the_agent() {
    let mut world = World::established([active(1), config(2)], 1);
    world.accepts = false;
    world.send(1, Content::Bytes(bytes(100).into()));
    world.send(2, Content::Bytes(bytes(200).into()));
    world.settle();
    assert_eq!(world.outcomes(), []);
    let wholes: Vec<TransferId> = world.ends[1]
        .events
        .iter()
        .filter_map(|event| match event {
            Event::Whole { transfer, .. } => Some(*transfer),
            _ => None,
        })
        .collect();
    let link = world.link(1);
    // The second is decided first, and acknowledged after the first.
    let refuse = Command::Refuse { link, transfer: wholes[1], why: Refusal::NoResources };
    world.command(1, refuse);
    world.settle();
    assert_eq!(world.outcomes(), []);
    let accept = Command::Accept { link, transfer: wholes[0] };
    world.command(1, accept);
    world.settle();
    let refused = Outcome::Refused(Refusal::NoResources);
    assert_eq!(world.outcomes(), [(1, Outcome::Acknowledged), (2, refused)]);
}

#[test]
fn acknowledgments_without_flags_count_bytes() {
    let mut world = World::established([active(1), config(2)], 1);
    for bytes in [b"hi", b"ho"] {
        world.send(u64::from(bytes[1]), Content::Bytes(Bytes::from_static(bytes)));
    }
    // All 7 bytes of each are sent. The scripted peer acknowledges them in parts.
    let ack = |transfer: u8, bytes: u8| {
        let mut ack = [0; 18];
        (ack[0], ack[9], ack[17]) = (2, transfer, bytes);
        ack
    };
    let mut counts = Vec::new();
    for (transfer, bytes) in [(1, 6), (0, 3), (0, 7), (1, 7), (1, 7), (9, 7)] {
        let ack = ack(transfer, bytes);
        let ack = Input::Receive(Receive::datagram(ACTIVE, &ack));
        world.ends[0].layer.handle_input(world.now, ack);
        world.drain(0);
        counts.push(world.outcomes().len());
    }
    assert_eq!(counts, [0, 0, 1, 2, 2, 2]);
    assert_eq!(world.outcomes(), [b'i', b'o'].map(|tag| (tag.into(), Outcome::Acknowledged)));
}

/// Requirements: V18.
#[test]
fn a_refusal_stops_a_transfer() {
    let mut world = World::established([active(1), config(2)], 1);
    world.send(1, Content::Bytes(bytes(5_000_000).into()));
    // Its first segments are in transit.
    world.carry(1, 1000);
    let Some(Event::Begins { link, transfer, bytes: announced }) =
        world.ends[1].events.iter().find(|e| matches!(e, Event::Begins { .. })).cloned()
    else {
        panic!("it did not begin");
    };
    assert_eq!(announced, Some(5_000_005));
    let refuse = Command::Refuse { link, transfer, why: Refusal::Completed };
    world.command(1, refuse);
    world.settle();
    world.send(2, Content::Bytes(bytes(7).into()));
    world.settle();
    let completed = Outcome::Refused(Refusal::Completed);
    assert_eq!(world.outcomes(), [(1, completed), (2, Outcome::Acknowledged)]);
}

/// Requirements: V10, V12a, V12b.
#[test]
fn keepalives_go_both_ways_and_silence_ends_a_session() {
    let slow = Config { keepalive_s: 10, ..config(2) };
    let mut world = World::established([active(1), slow], 1);
    let before = world.sent[0].len();
    world.pass(Duration::from_secs(100));
    assert_eq!(&world.sent[0][before..], [4; 10]);
    assert!(!world.is_down(0));
    // Nothing gets through any more: 20 s of silence, and the time allowed for ending.
    for wire in &mut world.wires {
        wire.is_up = false;
    }
    world.pass(Duration::from_secs(90));
    assert!(world.is_down(0) && world.is_down(1));
}

/// Requirements: V10.
#[test]
fn a_session_without_keepalives_has_no_deadline() {
    let quiet = Config { keepalive_s: 0, ..config(2) };
    let world = World::established([active(1), quiet], 1);
    assert!(world.ends.iter().all(|end| end.layer.poll_timeout().is_none()));
}

/// Requirements: V21, V22a.
#[test]
fn started_transfers_complete_after_the_contact() {
    let mut world = World::established([active(1), config(2)], 1);
    world.event(0, PathEvent::Blocked);
    world.send(1, Content::Bytes(bytes(500_000).into()));
    world.send(2, Content::Bytes(bytes(10).into()));
    world.ends[0].layer.command(world.now, Command::Close { link: LINK });
    world.event(0, PathEvent::Writable);
    world.settle();
    let failed = Outcome::Failed { acknowledged: 0 };
    assert_eq!(world.outcomes(), [(2, failed), (1, Outcome::Acknowledged)]);
    assert!(world.is_down(0) && world.is_down(1));
    // SESS_TERM, and its reply.
    assert!(world.sent[0].windows(3).any(|bytes| bytes == [5, 0, 0]));
    assert!(world.sent[1].windows(3).any(|bytes| bytes == [5, 1, 0]));
    assert!(world.ends.iter().all(|end| end.layer.poll_timeout().is_none()));
}

/// Requirements: V22b, V23b, W01b.
#[test]
fn reconnections_back_off() {
    let mut world = World::established([active(1), config(2)], 1);
    world.accepts = false;
    world.send(1, Content::Bytes(bytes(10).into()));
    world.settle();
    world.down();
    assert_eq!(world.outcomes(), [(1, Outcome::Failed { acknowledged: 0 })]);
    assert!(world.is_down(0));
    assert_eq!(world.wires[0].opened, 1);
    // 1, 2, 4 ... s: the fifth attempt is made within 31 s.
    let mut opened = 1;
    for _ in 0..31 {
        world.pass(Duration::from_secs(1));
        if world.wires[0].opened > opened {
            opened = world.wires[0].opened;
            world.event(0, PathEvent::Down);
        }
    }
    assert_eq!(world.wires[0].opened, 6);
    world.connect();
    world.settle();
    assert!(matches!(world.ends[0].events.last(), Some(Event::Up { .. })));
}

/// Requirements: V04a, V04b.
#[test]
fn tls_is_negotiated_or_required() {
    let with = |tls, config: Config| Config { tls, ..config };
    let both = [with(Tls::IfBothCan, active(1)), with(Tls::Always, config(2))];
    let world = World::established(both, 1);
    let Some(Event::Up { neighbour, .. }) = world.ends[0].events.first() else { panic!("none") };
    assert!(neighbour.is_authenticated);
    let one = [with(Tls::Never, active(1)), with(Tls::Always, config(2))];
    let world = World::established(one, 1);
    assert!(matches!(world.ends[1].events[..], [Event::PeerFault { .. }]));
    assert!(!world.wires[1].is_up);
}

/// Requirements: V06.
#[test]
fn a_peer_with_another_certificate_gets_nothing() {
    let secured = |proof, config: Config| Config { tls: Tls::Always, proof, ..config };
    let any = || Proof::Node(BTreeMap::new());
    let is_up = |events: &[Event]| events.iter().any(|event| matches!(event, Event::Up { .. }));
    let of = |node: u32| Proof::Node([(LINK, Eid::ipn(node, 0))].into());
    let world = World::established([secured(of(2), active(1)), secured(any(), config(2))], 1);
    assert!(is_up(&world.ends[0].events) && is_up(&world.ends[1].events));
    // The certificate and the peer both name 2; the link is to 3.
    let world = World::established([secured(of(3), active(1)), secured(any(), config(2))], 1);
    assert!(world.ends[0].events.iter().any(|event| matches!(event, Event::PeerFault { .. })));
    assert!(!is_up(&world.ends[0].events));
    // The peer announces 3, but its certificate names 2.
    let world = World::established([secured(any(), active(1)), secured(any(), config(3))], 1);
    assert!(!is_up(&world.ends[0].events));
    // Without required proof the announced node ID counts.
    let world =
        World::established([secured(Proof::Authority, active(1)), secured(any(), config(3))], 1);
    assert!(is_up(&world.ends[0].events));
}

#[test]
fn protocol_violations_end_the_session() {
    let hostile: [&[u8]; 7] = [
        b"SSH-2.0-OpenSSH",
        b"dtn!\x03\x00",
        b"dtn!\x04\x00\x99",
        b"dtn!\x04\x00\x01\x03\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x05hello",
        // A node ID that is longer than accepted.
        b"dtn!\x04\x00\x07\x00\x1e\0\0\0\0\0\0\xff\xff\0\0\0\0\0\0\xff\xff\xff\xff",
        // An unknown critical extension.
        b"dtn!\x04\x00\x07\x00\x1e\0\0\0\0\0\0\xff\xff\0\0\0\0\0\0\xff\xff\0\0\0\0\0\x05\x01\x12\x34\0\0",
        // A segment of 2^63 bytes.
        b"dtn!\x04\x00\x07\x00\x1e\0\0\0\0\0\0\xff\xff\0\0\0\0\0\0\xff\xff\0\0\0\0\0\0\x01\x03\0\0\0\0\0\0\0\0\0\0\0\0\x80\0\0\0\0\0\0\0",
    ];
    for bytes in hostile {
        let mut world = World::new([active(1), config(2)], 1);
        world.wires[1].is_up = true;
        world.event(1, PathEvent::Up(PathInfo::stream()));
        world.receive(1, bytes);
        let faults = world.ends[1].events.iter().filter(|e| matches!(e, Event::PeerFault { .. }));
        assert_eq!(faults.count(), 1, "{bytes:?}");
        assert!(!world.wires[1].is_up, "{bytes:?}");
    }
}

/// Requirements: V12a.
#[test]
fn silent_peers_time_out_and_sessions_are_bounded() {
    let few = Config { limits: Limits { sessions: 2, ..Limits::default() }, ..config(2) };
    let mut layer = Tcpcl::new(few);
    let now = Time::from_secs(1);
    for path in 1..=3 {
        let up = PathEvent::Up(PathInfo::stream());
        layer.handle_input(now, Input::Path(PathId(path), up));
    }
    assert_eq!(layer.poll_effect(), Some(Effect::Stream(StreamEffect::Reset { path: PathId(3) })));
    let later = now + Duration::from_secs(60);
    layer.handle_timeout(later);
    assert_eq!(layer.poll_effect(), Some(Effect::Stream(StreamEffect::Reset { path: PathId(1) })));
    assert_eq!(layer.poll_effect(), Some(Effect::Stream(StreamEffect::Reset { path: PathId(2) })));
    assert_eq!(layer.poll_timeout(), None);
}

proptest! {
    /// Random bytes after the beginning of a session cause no panic and no unbounded memory.
    #[test]
    fn random_bytes_after_the_start_cause_no_panic(bytes in prop::collection::vec(any::<u8>(), 0..300), cut in 1usize..40) {
        let mut world = World::established([active(1), config(2)], 1);
        let end = &mut world.ends[1];
        for piece in bytes.chunks(cut) {
            end.layer.handle_input(world.now, Input::Receive(Receive::datagram(PASSIVE, piece)));
        }
        world.drain(1);
    }
}
