//! Suite of the engine contract, over all colours.

use std::time::Duration;

use bytes::Bytes;
use engine::conformance::{self, Options, Role, Subject, Verdict};
use engine::{Rng, Time};
use testing::memory::Counted;
use testing::world::small_buffers;

use crate::cookies::Cookies;
use crate::sealed::Sealed;
use crate::segment::{AGGREGATION_SERVICE, Body, Data, DataKind, End, SessionId};
use crate::{
    Aggregation, Authentication, Ciphersuite, Config, Indication, Key, Limits, Node, Red, Remote,
    SendRequest,
};

#[derive(Default)]
struct Ltp {
    red: Red,
    remote: Remote,
    cookies: bool,
}

impl Subject for Ltp {
    type Engine = Counted<Node>;

    fn engine(&self, role: Role, seed: u64) -> Counted<Node> {
        let config = Config {
            engine: if role == Role::Sender { 1 } else { 2 },
            default_remote: Remote { datagram_max: Some(200), ..self.remote.clone() },
            cookies: self.cookies,
            aggregation: Some(Aggregation::default()),
            limits: Limits {
                sessions: 16,
                sessions_per_path: 12,
                closed: 64,
                gaps: 64,
                units: 4 << 10,
                units_total: 32 << 10,
                buffers: small_buffers(),
                block: 1 << 20,
                ..Limits::default()
            },
            ..Config::default()
        };
        Counted::new(|| Node::new(config, Rng::new(seed, "ltp")))
    }

    fn start(&self, engine: &mut Counted<Node>, now: Time) -> bool {
        let request = SendRequest {
            destination: 2,
            source: conformance::source(),
            name: "copy".into(),
            red: self.red,
        };
        engine.charge(|node| node.send(now, request)).expect("the request is sound");
        true
    }

    fn verdict(&self, _role: Role, indication: &Indication) -> Option<Verdict> {
        match indication {
            Indication::Finished(finished) => Some(match (finished.result, finished.role) {
                (Err(_), _) => Verdict::Failed,
                (Ok(()), End::Sender) if !finished.is_confirmed => Verdict::Unconfirmed,
                (Ok(()), _) => Verdict::Delivered,
            }),
            Indication::Started(_)
            | Indication::Displaced(_)
            | Indication::Receiving { .. }
            | Indication::Interrupted { .. }
            | Indication::Data { .. }
            | Indication::Transport(_)
            | Indication::Elsewhere { .. }
            | Indication::LimitReached(_)
            | Indication::PeerError { .. } => None,
        }
    }

    fn is_busy(&self, engine: &Counted<Node>) -> bool {
        engine.sessions().next().is_some()
    }

    fn memory(&self, engine: &Counted<Node>) -> usize {
        engine.memory()
    }

    fn memory_max(&self) -> usize {
        16 * (16 << 10) + (32 << 10) + 2 * (64 << 10) + (64 + 256) * 512
    }

    fn is_reliable(&self) -> bool {
        self.red == Red::All
    }

    fn detects_damage(&self) -> bool {
        // The numbers in a segment have no checksum of their own.
        self.remote.authentication.is_some()
    }

    fn opening(&self, number: u64) -> Vec<Bytes> {
        let session = SessionId { originator: 1, number: number + 1000 };
        // A file, or a block of units that claims much memory.
        let (service, offset) =
            if number.is_multiple_of(2) { (64, 0) } else { (AGGREGATION_SERVICE, 4_000) };
        let (kind, checkpoint) = (DataKind::Red, None);
        let body = Body::Data(Data { kind, service, offset, checkpoint, data: b"x" });
        let authentication = self.remote.authentication.as_ref();
        let sealed =
            Sealed { session, body, authentication, cookies: &Cookies::default(), transport: &[] };
        vec![sealed.to_vec().expect("a segment").into()]
    }
}

#[test]
fn red_keeps_the_contract() {
    conformance::check_all(&Ltp::default(), &Options::default());
}

#[test]
fn red_with_checkpoints_between_keeps_the_contract() {
    let remote = Remote { checkpoint_every: Some(600), ..Remote::default() };
    let subject = Ltp { remote, ..Ltp::default() };
    conformance::check_all(&subject, &Options { runs: 8, ..Options::default() });
}

#[test]
fn red_with_checkpoints_by_time_keeps_the_contract() {
    let checkpoint_interval = Some(Duration::from_millis(5));
    let remote = Remote { checkpoint_interval, ..Remote::default() };
    let subject = Ltp { remote, ..Ltp::default() };
    conformance::check_all(&subject, &Options { runs: 8, ..Options::default() });
}

#[test]
fn red_with_asynchronous_reports_keeps_the_contract() {
    for checkpoint_every in [None, Some(600)] {
        let remote = Remote { report_gaps: true, checkpoint_every, ..Remote::default() };
        let subject = Ltp { remote, ..Ltp::default() };
        conformance::check_all(&subject, &Options { runs: 8, ..Options::default() });
    }
}

#[test]
fn green_keeps_the_contract() {
    let subject = Ltp { red: Red::None, ..Ltp::default() };
    conformance::check_all(&subject, &Options::default());
}

#[test]
fn mixed_colours_keep_the_contract() {
    let subject = Ltp { red: Red::Prefix(1000), ..Ltp::default() };
    conformance::check_all(&subject, &Options::default());
}

#[test]
fn a_red_part_that_ends_in_the_description_keeps_the_contract() {
    let red = Red::Prefix(Ltp::default().size() as u64 + 10);
    let subject = Ltp { red, ..Ltp::default() };
    conformance::check_all(&subject, &Options::default());
}

#[test]
fn authenticated_segments_keep_the_contract() {
    for (suite, red) in [
        (Ciphersuite::HmacSha1, Red::All),
        (Ciphersuite::HmacSha256, Red::Prefix(1000)),
        (Ciphersuite::Null, Red::All),
    ] {
        let keys = Authentication::new(Key::new(suite, b"7", b"secret"));
        let remote = Remote { authentication: Some(keys), ..Remote::default() };
        let subject = Ltp { red, remote, ..Ltp::default() };
        conformance::check_all(&subject, &Options { runs: 8, ..Options::default() });
    }
}

#[test]
fn cookies_keep_the_contract() {
    let keys = Authentication::new(Key::new(Ciphersuite::HmacSha1, b"7", b"secret"));
    for authentication in [None, Some(keys)] {
        let remote = Remote { authentication, checkpoint_every: Some(600), ..Remote::default() };
        let subject = Ltp { remote, cookies: true, ..Ltp::default() };
        conformance::check_all(&subject, &Options { runs: 8, ..Options::default() });
    }
}
