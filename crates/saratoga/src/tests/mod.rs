//! Suite of the engine contract, over all ways to transfer a file.

use bytes::Bytes;
use engine::conformance::{self, Options, PATH, Role as End, Subject, Verdict};
use engine::{FileName, PathInfo, Rng, Time};
use testing::memory::Counted;
use testing::world::small_buffers;

use super::{
    ChecksumKind, Config, Congestion, Indication, Limits, Node, Permissions, Put, PutRequest,
    Remote, Timer,
};
use crate::packet::{Content, Data, Packet, Width};

mod amplification;
mod floods;
mod listings;
mod preparing;
mod requests;
mod resumption;
mod silence;
mod statuses;
mod thin;
mod transcripts;
mod version0;
mod world;

/// Kind of transfer.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    Put(Put),
    Stream,
}

struct Saratoga {
    way: Way,
    checksum: ChecksumKind,
    status_interval: Option<Timer>,
    congestion: Congestion,
}

impl Saratoga {
    fn new(way: Way) -> Self {
        let checksum = ChecksumKind::Crc32;
        let congestion = Congestion::Off;
        Self { way, checksum, status_interval: Some(Timer::Auto), congestion }
    }

    fn put(&self, engine: &mut Node, now: Time, resumes: bool) {
        let (put, stream) = match self.way {
            Way::Put(put) => (put, false),
            Way::Stream => (Put::Push, true),
        };
        let session = Some(7);
        let request = PutRequest::new(PATH, conformance::source(), "copy");
        let request = PutRequest { put, stream, session, resumes, ..request };
        engine.put(now, request).expect("the request is sound");
    }
}

fn name(path: &str) -> FileName {
    FileName::file(path).expect("a plain name")
}

fn config() -> Config {
    Config {
        default_remote: Remote { datagram_max: Some(200), ..Remote::default() },
        permissions: Permissions { put: true, get: true, delete: true },
        limits: Limits {
            sessions: 16,
            sessions_per_path: 12,
            closed: 64,
            partials: 16,
            gaps: 64,
            buffers: small_buffers(),
            file: 1 << 20,
            ..Limits::default()
        },
        ..Config::default()
    }
}

impl Subject for Saratoga {
    type Engine = Counted<Node>;

    fn engine(&self, _role: End, seed: u64) -> Counted<Node> {
        let mut config = config();
        config.checksum = self.checksum;
        config.default_remote.status_interval = self.status_interval;
        config.default_remote.congestion = self.congestion;
        Counted::new(|| Node::new(config, Rng::new(seed, "saratoga")))
    }

    fn start(&self, engine: &mut Counted<Node>, now: Time) -> bool {
        engine.charge(|node| self.put(node, now, false));
        true
    }

    fn verdict(&self, _role: End, indication: &Indication) -> Option<Verdict> {
        match indication {
            Indication::Finished(finished) => Some(match finished.result {
                Err(_) => Verdict::Failed,
                Ok(()) if !finished.is_confirmed => Verdict::Unconfirmed,
                Ok(()) => Verdict::Delivered,
            }),
            Indication::Restored { .. }
            | Indication::Started { .. }
            | Indication::Receiving { .. }
            | Indication::Listing { .. }
            | Indication::Beacon { .. }
            | Indication::LimitReached(_) => None,
        }
    }

    fn is_busy(&self, engine: &Counted<Node>) -> bool {
        engine.sessions().next().is_some()
    }

    fn memory(&self, engine: &Counted<Node>) -> usize {
        engine.memory()
    }

    fn memory_max(&self) -> usize {
        16 * (16 << 10) + 2 * (64 << 10) + (64 + 256) * 512
    }

    fn is_reliable(&self) -> bool {
        self.way != Way::Put(Put::Blind)
    }

    fn detects_damage(&self) -> bool {
        // The fields of a packet have no checksum of their own.
        false
    }

    fn survives_restart(&self, _role: End) -> bool {
        // Incomplete streams are not kept: nothing shows whether the next one is the same.
        self.is_reliable() && self.way != Way::Stream
    }

    fn restart(&self, role: End, engine: &mut Counted<Node>, now: Time) -> bool {
        // Put again, the file resumes.
        if role == End::Sender {
            engine.charge(|node| self.put(node, now, true));
        }
        true
    }

    fn opening(&self, number: u64) -> Vec<Bytes> {
        let data = Packet::Data(Data {
            descriptor: Width::W16,
            content: Content::File,
            timestamp: None,
            wants_status: false,
            is_end: false,
            session: number as u32 + 1000,
            offset: 0,
            data: b"x",
        });
        vec![data.to_vec().expect("a packet").into()]
    }
}

#[test]
fn push_keeps_the_contract() {
    conformance::check_all(&Saratoga::new(Way::Put(Put::Push)), &Options::default());
}

#[test]
fn push_with_sha1_and_one_question_keeps_the_contract() {
    let subject = Saratoga {
        checksum: ChecksumKind::Sha1,
        status_interval: None,
        ..Saratoga::new(Way::Put(Put::Push))
    };
    conformance::check_all(&subject, &Options { runs: 8, ..Options::default() });
}

#[test]
fn put_with_request_keeps_the_contract() {
    let subject = Saratoga { checksum: ChecksumKind::Md5, ..Saratoga::new(Way::Put(Put::Ask)) };
    conformance::check_all(&subject, &Options { runs: 8, ..Options::default() });
}

#[test]
fn blind_keeps_the_contract() {
    conformance::check_all(&Saratoga::new(Way::Put(Put::Blind)), &Options::default());
}

#[test]
fn streams_keep_the_contract() {
    let subject = Saratoga::new(Way::Stream);
    conformance::check_all(&subject, &Options { runs: 8, ..Options::default() });
}

#[test]
fn heeding_congestion_keeps_the_contract() {
    for (way, status_interval) in [
        (Way::Put(Put::Push), Some(Timer::Auto)),
        (Way::Put(Put::Ask), None),
        (Way::Put(Put::Blind), Some(Timer::Auto)),
        (Way::Stream, None),
    ] {
        let congestion = Congestion::Tfrc;
        let subject = Saratoga { status_interval, congestion, ..Saratoga::new(way) };
        conformance::check_all(&subject, &Options::default());
    }
}

#[test]
fn beacons_announce_the_capabilities() {
    use super::{About, Beacons};
    use crate::packet::Ability;
    use engine::{Engine as _, Input, PathEvent, PathId, Receive, TxBuf};

    let group = PathId(9);
    let interval = std::time::Duration::from_secs(5);
    let beacons = Some(Beacons { paths: vec![group], interval });
    let config = Config { eid: "one".into(), beacons, udp_lite: true, ..config() };
    let mut one = Node::new(config, Rng::new(1, "one"));
    let mut two = Node::new(Config::default(), Rng::new(1, "two"));
    one.set_free_space(Some(70_000));
    one.handle_input(Time::ZERO, Input::Path(group, PathEvent::Up(PathInfo::datagram(500))));
    let mut received = Vec::new();
    for round in 0..3 {
        let now = Time::ZERO + round * interval;
        let due = one.poll_timeout().expect("a beacon is due").at;
        assert_eq!(due, now);
        one.handle_timeout(now);
        let mut tx = TxBuf::new(4);
        let transmit = one.poll_transmit(now, &mut tx).expect("a beacon is sent");
        assert_eq!(transmit.path, group);
        let from = PathId(3);
        let receive = Receive { from, ..Receive::datagram(group, tx.bytes()) };
        two.handle_input(now, Input::Path(from, PathEvent::Up(PathInfo::datagram(500))));
        two.handle_input(now, Input::Receive(receive));
        while let Some(indication) = two.poll_indication() {
            received.extend(match indication {
                Indication::Beacon { from, about } => Some((from, about)),
                _ => None,
            });
        }
    }
    let about = About {
        eid: "one".into(),
        descriptor: Width::W64,
        streams: true,
        udp_lite: true,
        sends: Ability::Yes,
        receives: Ability::Yes,
        free_kib: Some(70_000),
    };
    assert_eq!(received, vec![(PathId(3), about); 3]);
}

#[test]
fn packets_indicate_udp_lite() {
    use super::GetRequest;
    use engine::{Engine as _, Input, PathEvent, TxBuf};

    for udp_lite in [false, true] {
        let mut config = Config { udp_lite, ..config() };
        config.journal.enabled = false;
        let mut node = Node::new(config, Rng::new(1, "lite"));
        node.handle_input(Time::ZERO, Input::Path(PATH, PathEvent::Up(PathInfo::datagram(500))));
        let request = GetRequest {
            peer: PATH,
            name: "there".into(),
            destination: name("here"),
            delete: false,
        };
        node.get(Time::ZERO, request).expect("the request is sound");
        let mut tx = TxBuf::new(4);
        node.poll_transmit(Time::ZERO, &mut tx).expect("a request is sent");
        let Ok(Packet::Request(request)) = Packet::decode(tx.bytes()) else {
            panic!("no request: {:02x?}", tx.bytes());
        };
        assert_eq!(request.udp_lite, udp_lite);
    }
}
