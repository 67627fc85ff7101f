//! Strangers, claimed names, idle crowds, and headers and lengths that do not fit: what peers send
//! is written as bytes.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};

use super::*;
use crate::admission::{Admission, Strangers};
use crate::layer::{Configured, Remote};
use crate::tcpcl::{Protocol, Version3};

pub(super) const NEAR: &str = "192.0.2.2";
pub(super) const FAR: &str = "203.0.113.9";
/// Contact header of version 4 without TLS.
pub(super) const HEADER: &[u8] = b"dtn!\x04\x00";

/// SESS_INIT without keepalives.
pub(super) fn init(named: &str) -> Vec<u8> {
    let mut bytes = vec![7, 0, 0];
    bytes.extend(0xffff_u64.to_be_bytes());
    bytes.extend(0xffff_u64.to_be_bytes());
    bytes.extend((named.len() as u16).to_be_bytes());
    bytes.extend(named.as_bytes());
    bytes.extend([0; 4]);
    bytes
}

/// XFER_SEGMENT with the start flag, an announced length, and data.
pub(super) fn segment(flags: u8, total: u64, data: &[u8]) -> Vec<u8> {
    let mut bytes = vec![1, flags];
    bytes.extend([0; 8]);
    if flags & 2 != 0 {
        bytes.extend([0, 0, 0, 13, 1, 0, 1, 0, 8]);
        bytes.extend(total.to_be_bytes());
    }
    bytes.extend((data.len() as u64).to_be_bytes());
    bytes.extend(data);
    bytes
}

pub(super) struct Host {
    pub(super) layer: Tcpcl,
    pub(super) now: Time,
    pub(super) sent: BTreeMap<PathId, Vec<u8>>,
    pub(super) closed: BTreeSet<PathId>,
    pub(super) opened: usize,
    pub(super) events: Vec<Event>,
}

/// A node 1 with the neighbour 2 at [`NEAR`], to which it connects.
pub(super) fn guarded(strangers: Strangers) -> Config {
    let admission = Admission {
        neighbours: [(Eid::ipn(2, 0), vec![NEAR.parse().unwrap()])].into(),
        aliases: ["dtn://one/".parse().unwrap()].into(),
        strangers,
    };
    let peer = Peer { path: ACTIVE, server_name: String::new(), node: Some(Eid::ipn(2, 0)) };
    Config {
        peers: [(LINK, peer)].into(),
        greeting: Duration::from_secs(10),
        idle: Some(Duration::from_secs(600)),
        stall: Some(Duration::from_secs(300)),
        admission,
        ..config(1)
    }
}

impl Host {
    pub(super) fn new(config: Config) -> Self {
        Self {
            layer: Tcpcl::new(config),
            now: Time::from_secs(1),
            sent: BTreeMap::new(),
            closed: BTreeSet::new(),
            opened: 0,
            events: Vec::new(),
        }
    }

    pub(super) fn drain(&mut self) {
        let mut tx = TxBuf::new(1);
        loop {
            let transmit = self.layer.poll_transmit(self.now, &mut tx);
            if let Some(transmit) = &transmit {
                self.sent.entry(transmit.path).or_default().extend(tx.bytes());
                tx = TxBuf::new(1);
            }
            let mut some = transmit.is_some();
            while let Some(effect) = self.layer.poll_effect() {
                some = true;
                match effect {
                    Effect::Path(PathEffect::Close { path })
                    | Effect::Stream(StreamEffect::Reset { path }) => {
                        self.closed.insert(path);
                    }
                    Effect::Path(PathEffect::Open { .. }) => self.opened += 1,
                    _ => {}
                }
            }
            while let Some(event) = self.layer.poll_indication() {
                some = true;
                self.events.push(event);
            }
            if !some {
                return;
            }
        }
    }

    /// A stream from an address; returns whether it has a place.
    pub(super) fn connect(&mut self, path: u32, from: &str) -> bool {
        let far = SocketAddr::new(from.parse::<IpAddr>().unwrap(), 40_000);
        let info =
            PathInfo { ends: Some(("192.0.2.1:4556".parse().unwrap(), far)), ..PathInfo::stream() };
        self.layer.handle_input(self.now, Input::Path(PathId(path), PathEvent::Up(info)));
        self.drain();
        !self.closed.contains(&PathId(path))
    }

    pub(super) fn receive(&mut self, path: u32, bytes: &[u8]) {
        let receive = Receive::datagram(PathId(path), bytes);
        self.layer.handle_input(self.now, Input::Receive(receive));
        self.drain();
    }

    /// A session of a peer that connects and announces a name.
    pub(super) fn session(&mut self, path: u32, from: &str, named: &str) {
        assert!(self.connect(path, from));
        self.receive(path, &[HEADER, &init(named)].concat());
    }

    pub(super) fn pass(&mut self, time: Duration) {
        let until = self.now + time;
        while let Some(next) = self.layer.poll_timeout().filter(|next| next.at <= until) {
            self.now = self.now.max(next.at);
            self.layer.handle_timeout(self.now);
            self.drain();
        }
        self.now = until;
    }

    pub(super) fn faults(&self) -> Vec<&'static str> {
        let faults = self.events.iter().filter_map(|event| match event {
            Event::PeerFault { what, .. } | Event::Notice { what, .. } => Some(*what),
            _ => None,
        });
        faults.collect()
    }

    pub(super) fn ups(&self) -> Vec<(LinkId, Option<Eid>, usize)> {
        let ups = self.events.iter().filter_map(|event| match event {
            Event::Up { link, neighbour } => {
                Some((*link, neighbour.node.clone(), neighbour.window))
            }
            _ => None,
        });
        ups.collect()
    }

    pub(super) fn is_closed(&self, path: u32) -> bool {
        self.closed.contains(&PathId(path))
    }

    /// Last bytes sent to a peer.
    pub(super) fn last(&self, path: u32, count: usize) -> &[u8] {
        let sent = &self.sent[&PathId(path)];
        &sent[sent.len() - count..]
    }
}

/// Requirements: V09a.
#[test]
fn a_stranger_with_a_neighbours_name_gets_nothing() {
    for strangers in [Strangers::Receive, Strangers::Both] {
        let mut host = Host::new(guarded(strangers));
        host.session(10, FAR, "ipn:2.0");
        let [(link, None, 0)] = host.ups()[..] else { panic!("{:?}", host.ups()) };
        // It may hand in bundles.
        host.receive(10, &segment(3, 5, b"hello"));
        assert!(matches!(host.events.last(), Some(Event::Whole { .. })));
        host.layer.command(host.now, Command::Close { link });
        // The neighbour itself.
        host.session(11, NEAR, "ipn:2.0");
        assert_eq!(
            host.ups().pop().map(|(_, node, window)| (node, window)),
            Some((Some(Eid::ipn(2, 0)), 64))
        );
        // A name that nobody has counts where strangers have every right.
        host.session(12, FAR, "ipn:9.0");
        let node = (strangers == Strangers::Both).then(|| Eid::ipn(9, 0));
        assert_eq!(host.ups().pop().map(|(_, node, _)| node), Some(node));
    }
}

/// Requirements: I05, V08, W08b.
#[test]
fn names_that_no_peer_may_have_end_the_session() {
    for named in ["ipn:1.0", "dtn://one/", "ipn:!.0", "ipn:4294967295.0", "dtn:none", "http://x"] {
        for from in [NEAR, FAR] {
            let mut host = Host::new(guarded(Strangers::Both));
            host.session(10, from, named);
            assert_eq!((host.ups().len(), host.faults().len()), (0, 1), "{named}");
            // SESS_TERM, Contact Failure.
            assert_eq!(host.last(10, 3), [5, 0, 4], "{named}");
            assert!(host.is_closed(10));
        }
    }
    // Version 3 has no such reason; its SHUTDOWN comes last.
    let protocol = Protocol::Tcpcl3(Version3::default());
    let mut host = Host::new(Config { protocol, ..guarded(Strangers::Both) });
    assert!(host.connect(10, NEAR));
    host.receive(10, b"dtn!\x03\x00\x00\x00\x07ipn:1.0");
    assert_eq!((host.ups().len(), host.last(10, 1)[0] >> 4), (0, 5));
    assert!(host.is_closed(10));
}

/// Requirements: V06.
#[test]
fn strangers_are_refused_if_so_configured() {
    let mut host = Host::new(guarded(Strangers::Refuse));
    assert!(!host.connect(10, FAR));
    host.session(11, NEAR, "ipn:9.0");
    assert_eq!((host.last(11, 3), host.is_closed(11)), (&[5, 0, 4][..], true));
    host.session(12, NEAR, "ipn:2.0");
    assert_eq!(host.ups().len(), 1);
    // With TLS the certificate decides, wherever the peer is.
    let mut host = Host::new(Config { tls: Tls::Always, ..guarded(Strangers::Refuse) });
    for (path, named, is_up) in [(10, "ipn:2.0", true), (11, "ipn:3.0", false)] {
        assert!(host.connect(path, FAR));
        host.receive(path, b"dtn!\x04\x01");
        let secured = PathEvent::Secured(vec!["ipn:2.0".to_owned()]);
        host.layer.handle_input(host.now, Input::Path(PathId(path), secured));
        host.receive(path, &init(named));
        assert_eq!(host.is_closed(path), !is_up);
    }
    assert_eq!(host.ups().len(), 1);
}

#[test]
fn a_second_session_of_a_node_is_reported() {
    let mut host = Host::new(guarded(Strangers::Receive));
    host.session(10, NEAR, "ipn:2.0");
    assert!(host.faults().is_empty());
    host.session(11, NEAR, "ipn:2.0");
    assert_eq!(host.faults(), ["a second session of the same node"]);
}

/// Requirements: V12a, V23a.
#[test]
fn an_idle_crowd_does_not_shut_the_layer() {
    let limits = Limits { sessions: 40, per_address: 8, ..Limits::default() };
    let mut host = Host::new(Config { limits, ..guarded(Strangers::Receive) });
    // One host gets 8 sessions, whatever it sends.
    for path in 100..200 {
        if host.connect(path, FAR) {
            host.receive(path, &[HEADER, &init("ipn:66.0")].concat());
        }
    }
    assert_eq!(host.ups().len(), 8);
    // Many hosts get all places but two: one for the link, one for the neighbour.
    let admitted = (0..100).filter(|n| host.connect(1000 + n, &format!("198.51.100.{n}")));
    assert_eq!(admitted.count(), 30);
    // The neighbour and the node's own connection have theirs.
    host.session(10, NEAR, "ipn:2.0");
    assert!(host.connect(ACTIVE.0, NEAR));
    assert!(!host.is_closed(100));
    // Further ones of the neighbour take the place of the oldest strangers.
    host.session(11, NEAR, "ipn:2.0");
    assert!(host.is_closed(100) && !host.is_closed(101));
    assert!(matches!(
        host.events[..],
        [.., Event::Down { .. }, Event::Up { .. }, Event::Notice { .. }]
    ));
    // Those without a contact header go after 10 s.
    host.pass(Duration::from_secs(10));
    assert!((0..100).all(|n| host.is_closed(1000 + n)));
    // The silent ones go after 10 min; the neighbour stays.
    host.pass(Duration::from_secs(590));
    assert_eq!(host.last(101, 3), [5, 0, 1]);
    host.pass(Duration::from_secs(70));
    assert!((100..200).all(|path| host.is_closed(path)));
    assert!(!host.is_closed(10) && !host.is_closed(11));
}

/// Requirements: V22b.
#[test]
fn a_transfer_that_stalls_ends_its_session() {
    let mut host = Host::new(guarded(Strangers::Receive));
    assert!(host.connect(10, NEAR));
    // Keepalives each 30 s, so that the session itself is not silent.
    let mut greeting = [HEADER, &init("ipn:2.0")].concat();
    greeting[8] = 30;
    host.receive(10, &greeting);
    host.receive(10, &segment(2, 100, b"hello"));
    for _ in 0..9 {
        host.pass(Duration::from_secs(30));
        host.receive(10, &[4]);
    }
    assert!(!host.is_closed(10));
    host.pass(Duration::from_secs(30));
    assert!(host.is_closed(10));
    assert!(matches!(host.events[..], [.., Event::Broken { keep: false, .. }, Event::Down { .. }]));
}

/// Requirements: V01b, V02, V03a, V22a.
#[test]
fn another_version_is_answered_with_the_own_header() {
    for version in [3, 5] {
        let mut host = Host::new(guarded(Strangers::Receive));
        assert!(host.connect(10, NEAR));
        host.receive(10, &[b'd', b't', b'n', b'!', version, 0]);
        // Contact header of version 4, SESS_TERM with Version Mismatch.
        assert_eq!(host.sent[&PathId(10)], b"dtn!\x04\x00\x05\x00\x02");
        assert!(host.is_closed(10));
    }
    // A side that connected has sent its header, and closes.
    let mut host = Host::new(guarded(Strangers::Receive));
    assert!(host.connect(ACTIVE.0, NEAR));
    host.receive(ACTIVE.0, b"dtn!\x03\x00");
    assert_eq!((&host.sent[&ACTIVE][..], host.is_closed(ACTIVE.0)), (HEADER, true));
    // Anything else gets nothing.
    let mut host = Host::new(guarded(Strangers::Receive));
    assert!(host.connect(10, NEAR));
    host.receive(10, b"SSH-2.0");
    assert!(!host.sent.contains_key(&PathId(10)) && host.is_closed(10));
}

/// Requirements: V04a, V04b, V22a.
#[test]
fn missing_tls_is_a_contact_failure() {
    for (path, sent) in [(10, &b"dtn!\x04\x01\x05\x00\x04"[..]), (1, b"dtn!\x04\x01\x05\x00\x04")] {
        let mut host = Host::new(Config { tls: Tls::Always, ..guarded(Strangers::Receive) });
        assert!(host.connect(path, NEAR));
        host.receive(path, HEADER);
        assert_eq!(host.sent[&PathId(path)], sent);
        assert!(host.is_closed(path) && host.ups().is_empty());
    }
}

/// Requirements: V20a.
#[test]
fn a_bundle_of_another_length_than_announced_is_refused() {
    // XFER_REFUSE, Not Acceptable, of the transfer 0.
    let refusal = [3, 4, 0, 0, 0, 0, 0, 0, 0, 0];
    let long = [segment(2, 5, b"hel"), segment(0, 5, b"lo!"), segment(1, 5, b"?")];
    let short = [segment(2, 50, b"hel"), segment(1, 50, b"lo")];
    let single = [segment(3, 5, &[7; 48])];
    // A second item with the length.
    let mut twice = segment(2, 5, b"hel");
    twice[13] = 26;
    twice.splice(14..14, [1, 0, 1, 0, 8, 0, 0, 0, 0, 0, 0, 0, 5]);
    for segments in [&long[..], &short, &single, &[twice]] {
        let mut host = Host::new(guarded(Strangers::Receive));
        host.session(10, NEAR, "ipn:2.0");
        for segment in segments {
            host.receive(10, segment);
        }
        let sent = &host.sent[&PathId(10)];
        let count = sent.windows(10).filter(|bytes| *bytes == refusal).count();
        assert_eq!((count, host.last(10, 10)), (1, &refusal[..]), "{segments:?}");
        assert!(!host.events.iter().any(|event| matches!(event, Event::Whole { .. })));
        let ends = host.events.iter().filter(|event| matches!(event, Event::Broken { .. })).count();
        let begins = host.events.iter().filter(|event| matches!(event, Event::Begins { .. }));
        assert_eq!(ends, begins.count());
        // The session continues.
        assert!(!host.is_closed(10));
        host.receive(10, &segment(3, 5, b"hello"));
        assert!(matches!(host.events.last(), Some(Event::Whole { .. })));
    }
}

#[test]
fn a_bundle_of_another_length_is_not_acknowledged_without_refusals() {
    let settings = Version3 { refusals: false, ..Version3::default() };
    // LENGTH 5, then DATA_SEGMENT: one of 3 bytes that ends, and two that are longer together.
    let short: &[&[u8]] = &[b"\x60\x05", b"\x13\x03hel"];
    let long: &[&[u8]] = &[b"\x60\x05", b"\x12\x03hel", b"\x11\x03lo!"];
    for messages in [short, long] {
        let protocol = Protocol::Tcpcl3(settings);
        let mut host = Host::new(Config { protocol, ..guarded(Strangers::Receive) });
        assert!(host.connect(10, NEAR));
        // Acknowledgments and lengths, no keepalives.
        host.receive(10, b"dtn!\x03\x09\x00\x00\x07ipn:2.0");
        assert_eq!(host.ups().len(), 1);
        for message in messages {
            host.receive(10, message);
        }
        assert!(host.is_closed(10), "{messages:?}");
        // ACK_SEGMENT of the whole bundle.
        let sent = &host.sent[&PathId(10)];
        let total = messages.iter().skip(1).map(|message| message[1]).sum();
        assert!(!sent.windows(2).any(|bytes| bytes == [0x20, total]), "{sent:02x?}");
        assert!(!host.events.iter().any(|event| matches!(event, Event::Whole { .. })));
    }
}

#[test]
fn a_contact_and_a_sign_of_the_peer_end_a_long_pause() {
    let mut host = Host::new(guarded(Strangers::Receive));
    let fail = |host: &mut Host| {
        host.layer.handle_input(host.now, Input::Path(ACTIVE, PathEvent::Down));
        host.drain();
    };
    host.layer.command(host.now, Command::Open { link: LINK });
    host.drain();
    for _ in 0..8 {
        fail(&mut host);
        host.pass(Duration::from_secs(600));
    }
    assert_eq!(host.opened, 9);
    // The next pause is 256 s, unless a contact begins.
    fail(&mut host);
    host.layer.command(host.now, Command::Open { link: LINK });
    host.drain();
    assert_eq!(host.opened, 10);
    fail(&mut host);
    host.pass(Duration::from_secs(1));
    assert_eq!(host.opened, 11);
    for _ in 0..8 {
        fail(&mut host);
        host.pass(Duration::from_secs(600));
    }
    fail(&mut host);
    let opened = host.opened;
    host.pass(Duration::from_secs(2));
    assert_eq!(host.opened, opened);
    // A stream from its address shows that it can be reached.
    assert!(host.connect(10, NEAR));
    host.pass(Duration::from_secs(1));
    assert_eq!(host.opened, opened + 1);
}

#[test]
fn neighbours_change_while_the_layer_runs() {
    let mut host = Host::new(guarded(Strangers::Receive));
    let remote = |node| Remote { node: Eid::ipn(node, 0), server_name: String::new(), engine: 0 };
    let admit = |nodes: &[(u32, &str)]| Admission {
        neighbours: nodes
            .iter()
            .map(|(node, network)| (Eid::ipn(*node, 0), vec![network.parse().unwrap()]))
            .collect(),
        strangers: Strangers::Receive,
        ..Admission::default()
    };
    host.layer.command(host.now, Command::Open { link: LINK });
    host.drain();
    assert_eq!(host.opened, 1);
    // A neighbour, a named peer that is none, and another stranger.
    host.session(10, NEAR, "ipn:2.0");
    host.session(11, FAR, "ipn:3.0");
    host.session(12, "203.0.113.77", "ipn:4.0");
    // The link that is being opened has gone, and node 3 is a neighbour now.
    let new = LinkId(5);
    let both = admit(&[(2, NEAR), (3, FAR)]);
    let links: BTreeMap<_, _> = [(new, remote(3))].into();
    let configured =
        Configured { links: links.clone(), admission: both.clone(), ..Configured::default() };
    host.layer.configure(host.now, configured.clone());
    host.drain();
    assert!(host.is_closed(ACTIVE.0), "the attempt is given up");
    // SESS_TERM: its standing is judged again in its next session.
    assert_eq!(host.last(11, 3), [5, 0, 0]);
    host.receive(11, &[5, 1, 0]);
    assert!(host.is_closed(11) && !host.is_closed(10) && !host.is_closed(12));
    host.session(13, FAR, "ipn:3.0");
    assert_eq!(host.ups().pop().map(|(_, node, _)| node), Some(Some(Eid::ipn(3, 0))));
    host.layer.command(host.now, Command::Open { link: LINK });
    host.layer.command(host.now, Command::Open { link: new });
    host.drain();
    assert_eq!(host.opened, 2, "only the new one");
    // The same settings once more change nothing.
    let sent = host.sent.clone();
    host.layer.configure(host.now, configured);
    host.drain();
    assert_eq!(host.sent, sent);
    // A session of this node, and those of peers that are no neighbours any more.
    assert!(host.connect(new.0, FAR));
    host.receive(new.0, &[HEADER, &init("ipn:3.0")].concat());
    assert_eq!(host.ups().pop().map(|(link, ..)| link), Some(new));
    let none = Configured { admission: admit(&[]), ..Configured::default() };
    host.layer.configure(host.now, none);
    host.drain();
    for path in [new.0, 10, 13] {
        assert_eq!(host.last(path, 3), [5, 0, 0], "{path}");
        host.receive(path, &[5, 1, 0]);
        assert!(host.is_closed(path), "{path}");
    }
    assert!(!host.is_closed(12), "a stranger as before");
    host.pass(Duration::from_secs(1000));
    assert_eq!(host.opened, 2, "no link is opened again");
}
