//! Conformance suite of engines: an end of a transfer, and an intermediate engine.

use std::cell::Cell;
use std::collections::BTreeMap;

use bytes::Bytes;
use engine::conformance::{self, Options, Role, Subject, Verdict};
use engine::{Area, MemoryStore, Rng, Time};
use testing::memory::Counted;
use testing::world::small_buffers;

use crate::cookies::Cookies;
use crate::ltpt::{self, Otherwise, Routing};
use crate::sealed::Sealed;
use crate::segment::ltpt::{Address, Lifetime, Transport};
use crate::segment::{Body, Data, DataKind, End, SessionId};
use crate::{Config, Indication, Limits, Node, Red, Remote, SendRequest};

struct Subjects {
    /// Whether the receiver is the destination; otherwise it relays to an engine out of reach.
    is_last: bool,
    red: Red,
    /// Whether the kept block was dropped because its time had expired.
    expired: Cell<bool>,
}

impl Subjects {
    fn destination(&self) -> u64 {
        if self.is_last { 2 } else { 3 }
    }
}

impl Subject for Subjects {
    type Engine = Counted<Node>;

    fn engine(&self, role: Role, seed: u64) -> Counted<Node> {
        let engine = if role == Role::Sender { 1 } else { 2 };
        let to = BTreeMap::from([(3, 2)]);
        let otherwise = Otherwise::Itself;
        let routing = Routing::Static {
            to: if role == Role::Sender { to } else { BTreeMap::new() },
            otherwise,
        };
        let limits = ltpt::Limits { transfers: 16, storage: 1 << 20, finished: 64 };
        // Engine 3 is behind a path that never comes up.
        let beyond = Remote { path: Some(engine::PathId(999)), ..Remote::default() };
        let config = Config {
            engine,
            remotes: BTreeMap::from([(3, beyond)]),
            default_remote: Remote { datagram_max: Some(200), ..Remote::default() },
            transport: Some(ltpt::Config { routing, limits, ..ltpt::Config::default() }),
            limits: Limits {
                sessions: 16,
                sessions_per_path: 12,
                closed: 64,
                gaps: 64,
                buffers: small_buffers(),
                block: 1 << 20,
                ..Limits::default()
            },
            ..Config::default()
        };
        Counted::new(|| Node::new(config, Rng::new(seed, "ltpt")))
    }

    fn prepare(&self, role: Role, store: &mut MemoryStore) {
        self.expired.set(false);
        if role == Role::Sender {
            store.insert(conformance::source(), conformance::content(self.size()));
        }
    }

    fn start(&self, engine: &mut Counted<Node>, now: Time) -> bool {
        let (destination, source) = (self.destination(), conformance::source());
        let request = SendRequest { destination, source, name: "copy".into(), red: self.red };
        engine.charge(|node| node.send(now, request)).expect("the request is sound");
        true
    }

    fn verdict(&self, role: Role, indication: &Indication) -> Option<Verdict> {
        match indication {
            Indication::Finished(finished) => Some(match (finished.result, finished.role) {
                (Err(_), _) => Verdict::Failed,
                (Ok(()), End::Sender) if !finished.is_confirmed => Verdict::Unconfirmed,
                (Ok(()), _) => Verdict::Delivered,
            }),
            Indication::Transport(ltpt::Indication::Kept(_)) if role == Role::Receiver => {
                Some(Verdict::Delivered)
            }
            Indication::Transport(ltpt::Indication::Undeliverable { reason, .. }) => {
                self.expired.set(*reason == ltpt::Undeliverable::Expired);
                None
            }
            Indication::Started(_)
            | Indication::Displaced(_)
            | Indication::Receiving { .. }
            | Indication::Interrupted { .. }
            | Indication::Elsewhere { .. }
            | Indication::Data { .. }
            | Indication::Transport(_)
            | Indication::LimitReached(_)
            | Indication::PeerError { .. } => None,
        }
    }

    fn check(&self, store: &MemoryStore) -> Result<(), String> {
        let found = if self.is_last {
            store.get(&conformance::copy())
        } else {
            // The kept block is the file with its description.
            let kept = store.names(Area::Spool).next().and_then(|name| store.get(name));
            kept.map(|kept| &kept[..kept.len().min(self.size())])
        };
        if found.is_none() && self.expired.get() {
            return Ok(());
        }
        conformance::compare(found, &conformance::content(self.size()))
    }

    fn is_busy(&self, engine: &Counted<Node>) -> bool {
        engine.sessions().next().is_some() || engine.transfers() > 0
    }

    fn memory(&self, engine: &Counted<Node>) -> usize {
        engine.memory()
    }

    fn memory_max(&self) -> usize {
        16 * (24 << 10) + 2 * (64 << 10) + (64 + 256) * 1024
    }

    fn is_reliable(&self) -> bool {
        self.red == Red::All
    }

    fn detects_damage(&self) -> bool {
        false
    }

    fn opening(&self, number: u64) -> Vec<Bytes> {
        let session = SessionId { originator: 1, number: number + 1000 };
        let end = |engine| crate::segment::ltpt::End {
            address: Address::Engine(engine),
            port: 0,
            service: 64,
        };
        let transport = Transport {
            source: Some(end(1)),
            destination: Some(end(self.destination())),
            size: Some(100),
            lifetime: Some(Lifetime { hops: 3, expiry_s: 1_000_000 }),
            flow: Some(number + 1000),
            ..Transport::default()
        };
        let (kind, checkpoint, service) = (DataKind::Red, None, 64);
        let body = Body::Data(Data { kind, service, offset: 0, checkpoint, data: b"x" });
        let (authentication, cookies) = (None, &Cookies::default());
        let transport = &transport.values();
        let sealed = Sealed { session, body, authentication, cookies, transport };
        vec![sealed.to_vec().expect("a segment").into()]
    }
}

#[test]
fn the_last_hop_keeps_the_contract() {
    for red in [Red::All, Red::Prefix(1000), Red::None] {
        conformance::check_all(
            &Subjects { is_last: true, red, expired: Cell::new(false) },
            &Options::default(),
        );
    }
}

#[test]
fn a_relay_keeps_the_contract() {
    let subject = Subjects { is_last: false, red: Red::All, expired: Cell::new(false) };
    conformance::check_all(&subject, &Options::default());
}
