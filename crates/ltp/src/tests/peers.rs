//! Behaviour of real engines: they send from other ports than they listen on, and retransmit after
//! refusals.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use engine::{Engine as _, Input, PathEvent, PathId, PathInfo, Receive, Rng, Time, TxBuf};

use crate::segment::{Body, CancelReason, Checkpoint, Data, DataKind, End, Segment, SessionId};
use crate::{Config, Indication, Limit, Node, Pin, Remote};

/// The address of engine 1.
const KNOWN: PathId = PathId(1);
/// Another port of its host.
const PORT: PathId = PathId(2);
/// Another host.
const HOST: PathId = PathId(3);

const SERVICE: u64 = 7;

/// Engine 2, which holds blocks in memory.
struct Place {
    node: Node,
    now: Time,
}

impl Place {
    fn new(remotes: BTreeMap<u64, Remote>) -> Self {
        let default = Config::default();
        let config = Config { engine: 2, service: SERVICE, remotes, journal: false, ..default };
        let mut node = Node::of_blocks(config, Rng::new(1, "peers"));
        for (path, address) in
            [(KNOWN, "10.0.0.1:1113"), (PORT, "10.0.0.1:50001"), (HOST, "10.0.0.2:1113")]
        {
            let peer: SocketAddr = address.parse().expect("an address");
            let ours = "10.0.0.9:1113".parse().expect("an address");
            let info = PathInfo { ends: Some((ours, peer)), ..PathInfo::datagram(1472) };
            node.handle_input(Time::ZERO, Input::Path(path, PathEvent::Up(info)));
        }
        Self { node, now: Time::ZERO }
    }

    /// With the address of engine 1 in the settings.
    fn knowing(pin: Pin) -> Self {
        let remote = Remote { path: Some(KNOWN), pin, ..Remote::default() };
        Self::new([(1, remote)].into())
    }

    /// Delivers a segment. Returns the segments sent in reply, and their path.
    fn receive(&mut self, from: PathId, number: u64, body: Body<'_>) -> Vec<(PathId, Vec<u8>)> {
        let session = SessionId { originator: 1, number };
        let bytes = Segment::new(session, body).to_vec().expect("a segment");
        self.node.handle_input(self.now, Input::Receive(Receive::datagram(from, &bytes)));
        while let Some(block) = self.node.poll_block() {
            self.node.accept_block(self.now, block.id).expect("it is under way");
        }
        self.sent()
    }

    fn sent(&mut self) -> Vec<(PathId, Vec<u8>)> {
        let mut sent = Vec::new();
        let mut tx = TxBuf::new(8);
        while let Some(transmit) = self.node.poll_transmit(self.now, &mut tx) {
            sent.extend(tx.datagrams().map(|datagram| (transmit.path, datagram.to_vec())));
            tx.clear();
        }
        sent
    }

    fn wait(&mut self, time: Duration) {
        self.now += time;
        self.node.handle_timeout(self.now);
    }

    fn elsewhere(&mut self) -> Vec<bool> {
        let all = std::iter::from_fn(|| self.node.poll_indication());
        let taken = |indication| match indication {
            Indication::Elsewhere { engine: 1, is_taken, .. } => Some(is_taken),
            _ => None,
        };
        all.filter_map(taken).collect()
    }
}

/// Block of one segment, which requests a report.
fn whole(service: u64) -> Body<'static> {
    let checkpoint = Some(Checkpoint { serial: 9, report: 0 });
    let kind = DataKind::EndOfRedBlock;
    Body::Data(Data { kind, service, offset: 0, checkpoint, data: b"block" })
}

fn is_report(datagram: &[u8]) -> bool {
    matches!(Segment::decode(datagram).expect("a segment").body, Body::Report(_))
}

fn is_cancel(datagram: &[u8]) -> bool {
    let body = Segment::decode(datagram).expect("a segment").body;
    matches!(body, Body::Cancel { by: End::Receiver, .. })
}

#[test]
fn an_engine_that_sends_from_another_port_is_replied_to_at_its_address() {
    for (pin, from, is_taken) in [
        (Pin::Address, KNOWN, true),
        (Pin::Address, PORT, false),
        (Pin::Host, PORT, true),
        (Pin::Host, HOST, false),
        (Pin::Off, HOST, true),
    ] {
        let mut place = Place::knowing(pin);
        let mut sent = Vec::new();
        for number in 100..110 {
            sent.extend(place.receive(from, number, whole(SERVICE)));
        }
        let reports = sent.iter().filter(|(path, bytes)| *path == KNOWN && is_report(bytes));
        assert_eq!(reports.count(), if is_taken { 10 } else { 0 }, "{pin:?} {from:?}: {sent:?}");
        assert!(sent.iter().all(|(path, _)| *path == KNOWN), "{pin:?} {from:?}: {sent:?}");
        // The user is informed once.
        let expected = if from == KNOWN { vec![] } else { vec![is_taken] };
        assert_eq!(place.elsewhere(), expected, "{pin:?} {from:?}");
        assert_eq!(place.node.stats().stray > 0, !is_taken);
    }
}

/// A cancellation is accepted from another port, once the session is under way.
#[test]
fn sessions_are_identified_by_their_number() {
    for (pin, is_taken) in [(Pin::Host, true), (Pin::Address, false)] {
        let mut place = Place::knowing(pin);
        let data = Data {
            kind: DataKind::Red,
            service: SERVICE,
            offset: 0,
            checkpoint: None,
            data: b"first",
        };
        place.receive(KNOWN, 100, Body::Data(data));
        place.receive(PORT, 100, Body::Cancel { by: End::Sender, reason: CancelReason::User });
        assert_eq!(place.node.sessions().count(), usize::from(!is_taken), "{pin:?}");
    }
}

/// Without a configured address, a session stays on the path that its peer uses.
#[test]
fn a_session_moves_only_after_a_silence() {
    let mut place = Place::new(BTreeMap::new());
    let data =
        Data { kind: DataKind::Red, service: SERVICE, offset: 0, checkpoint: None, data: b"first" };
    place.receive(PORT, 100, Body::Data(data));
    let cancel = Body::Cancel { by: End::Sender, reason: CancelReason::User };
    assert!(place.receive(HOST, 100, cancel).is_empty());
    assert_eq!(place.node.sessions().count(), 1);
    place.wait(Duration::from_secs(2));
    assert_eq!(place.receive(HOST, 100, cancel).first().map(|(path, _)| *path), Some(HOST));
    assert_eq!(place.node.sessions().count(), 0);
}

/// A peer starts a new session with each segment, or repeats one, a thousand times per second.
#[test]
fn refusals_are_ten_a_second_at_most() {
    for repeats_one in [false, true] {
        let mut place = Place::knowing(Pin::Host);
        let mut cancels = vec![0; 10];
        for n in 0..10_000_u64 {
            let number = if repeats_one { 100 } else { 100 + n };
            let sent = place.receive(KNOWN, number, whole(99));
            let count = sent.iter().filter(|(_, bytes)| is_cancel(bytes)).count();
            cancels[n as usize / 1000] += count;
            place.wait(Duration::from_millis(1));
            let repeated = place.sent();
            cancels[n as usize / 1000] += repeated.iter().filter(|(_, it)| is_cancel(it)).count();
        }
        println!("cancellations in each second: {cancels:?}");
        assert!(cancels.iter().all(|count| *count <= 10), "{cancels:?}");
        if !repeats_one {
            assert!(cancels.iter().all(|count| *count > 0), "{cancels:?}");
            let stats = *place.node.stats();
            assert!(stats.refusals_left_out > 9000, "{stats:?}");
            let limits = std::iter::from_fn(|| place.node.poll_indication())
                .filter(|it| *it == Indication::LimitReached(Limit::Refusals));
            assert_eq!(limits.count(), 1);
        }
        // A valid block gets through meanwhile.
        let sent = place.receive(KNOWN, 77, whole(SERVICE));
        assert!(sent.iter().any(|(_, bytes)| is_report(bytes)), "{sent:?}");
    }
}
