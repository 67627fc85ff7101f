//! Suite of the engine contract, over FEC codes, end games and kinds of replies.

use bytes::Bytes;
use engine::conformance::{self, Options, PATH, Role, Subject, Verdict};
use engine::{Rng, Time};
use testing::memory::Counted;
use testing::world::small_buffers;

use crate::message::{Body, Data, Extensions, Flags, Fti, Message, NodeId, PayloadId, Sender};
use crate::{Config, Content, EndGame, Indication, Limits, Node, Scheme, SendRequest};

struct Norm {
    scheme: Scheme,
    parity: u16,
    auto_parity: u16,
    end: EndGame,
    is_group: bool,
    congestion_control: bool,
}

impl Norm {
    fn new(scheme: Scheme, parity: u16, auto_parity: u16) -> Self {
        Self {
            scheme,
            parity,
            auto_parity,
            end: EndGame::Acknowledged,
            is_group: false,
            congestion_control: false,
        }
    }
}

fn limits() -> Limits {
    Limits {
        senders: 8,
        objects: 8,
        receivers: 16,
        object: 1 << 20,
        assembly: 64 << 10,
        buffers: session::Buffers { read_ahead_total: 16 << 10, ..small_buffers() },
        repairs: 256,
        ..Limits::default()
    }
}

impl Subject for Norm {
    type Engine = Counted<Node>;

    fn engine(&self, role: Role, seed: u64) -> Counted<Node> {
        let mut config = Config { node: 1 + role as u32, limits: limits(), ..Config::default() };
        if self.is_group {
            config.groups = vec![PATH];
        }
        let sender = &mut config.sender;
        sender.segment_size = Some(200);
        sender.fec = self.scheme;
        sender.block_len = 4;
        sender.parity = self.parity;
        sender.auto_parity = self.auto_parity;
        sender.end = self.end;
        sender.congestion_control = self.congestion_control;
        Counted::new(|| Node::new(config, Rng::new(seed, "norm")))
    }

    fn start(&self, engine: &mut Counted<Node>, now: Time) -> bool {
        let content = Content::File(conformance::source());
        let info = Bytes::from_static(b"copy");
        let request = SendRequest { peer: PATH, content, info };
        engine.charge(|node| node.send(now, request)).expect("the request is sound");
        true
    }

    fn verdict(&self, _role: Role, indication: &Indication) -> Option<Verdict> {
        match indication {
            Indication::Finished(finished) => Some(match finished.result {
                Err(_) => Verdict::Failed,
                Ok(()) if !finished.is_confirmed => Verdict::Unconfirmed,
                Ok(()) => Verdict::Delivered,
            }),
            Indication::Started { .. }
            | Indication::Receiving { .. }
            | Indication::Info { .. }
            | Indication::SenderDiscovered { .. }
            | Indication::Stream { .. }
            | Indication::Readable { .. }
            | Indication::Writable { .. }
            | Indication::Flushed { .. }
            | Indication::Command { .. }
            | Indication::CommandSent { .. }
            | Indication::Question { .. }
            | Indication::Answered { .. }
            | Indication::QuestionOver { .. }
            | Indication::SenderEnded { .. }
            | Indication::SessionEnded { .. }
            | Indication::LimitReached(_) => None,
        }
    }

    fn is_busy(&self, engine: &Counted<Node>) -> bool {
        engine.objects().next().is_some()
    }

    fn memory(&self, engine: &Counted<Node>) -> usize {
        engine.memory()
    }

    fn memory_max(&self) -> usize {
        let limits = limits();
        let states = limits.senders * (1024 + limits.objects * 1024);
        limits.assembly + 2 * limits.buffers.write_buffer + limits.buffers.read_ahead_total + states
    }

    fn detects_damage(&self) -> bool {
        // Messages have no checksum of their own.
        false
    }

    fn survives_restart(&self, _role: Role) -> bool {
        self.end == EndGame::Acknowledged
    }

    fn restart(&self, role: Role, engine: &mut Counted<Node>, now: Time) -> bool {
        role == Role::Receiver || self.start(engine, now)
    }

    fn opening(&self, number: u64) -> Vec<Bytes> {
        // Another object or another sender.
        let (source, object) = match number % 2 {
            0 => (NodeId(1), number as u16),
            _ => (NodeId(1000 + number as u32), 0),
        };
        let fti = Fti {
            object_size: 100_000,
            segment_size: 200,
            block_len: 4,
            parity: 2,
            field_bits: 8,
            ..Fti::default()
        };
        let data = Data {
            sender: Sender { instance: 1, grtt: 0x80, backoff: 4, group_size: 1 },
            flags: Flags::FILE,
            fec: Scheme::ReedSolomon8,
            object,
            id: PayloadId { block: number as u32 % 128, symbol: 0, block_len: None },
            fti: Some(fti),
            others: Extensions::NONE,
            payload: &[7; 200],
        };
        let message = Message { sequence: 0, source, body: Body::Data(data) };
        vec![message.to_vec().expect("a message").into()]
    }
}

#[test]
fn parity_on_request_keeps_the_contract() {
    conformance::check_all(&Norm::new(Scheme::ReedSolomon8, 2, 0), &Options::default());
}

#[test]
fn proactive_parity_keeps_the_contract() {
    let options = Options { runs: 8, ..Options::default() };
    conformance::check_all(&Norm::new(Scheme::ReedSolomon8, 3, 1), &options);
}

#[test]
fn small_blocks_keep_the_contract() {
    let options = Options { runs: 8, ..Options::default() };
    conformance::check_all(&Norm::new(Scheme::SmallBlockSystematic, 4, 0), &options);
}

#[test]
fn a_large_field_keeps_the_contract() {
    let options = Options { runs: 8, ..Options::default() };
    conformance::check_all(&Norm::new(Scheme::ReedSolomonM, 2, 1), &options);
}

#[test]
fn long_blocks_keep_the_contract() {
    let options = Options { runs: 8, ..Options::default() };
    conformance::check_all(&Norm::new(Scheme::Compact, 0, 0), &options);
}

#[cfg(feature = "raptorq")]
#[test]
fn raptorq_keeps_the_contract() {
    let options = Options { runs: 8, ..Options::default() };
    conformance::check_all(&Norm::new(Scheme::RaptorQ, 0, 0), &options);
}

#[test]
fn no_code_keeps_the_contract() {
    let options = Options { runs: 8, ..Options::default() };
    conformance::check_all(&Norm::new(Scheme::NoCode, 0, 0), &options);
}

#[test]
fn a_group_keeps_the_contract() {
    let subject = Norm { is_group: true, ..Norm::new(Scheme::ReedSolomon8, 2, 0) };
    conformance::check_all(&subject, &Options { runs: 8, ..Options::default() });
}

#[test]
fn congestion_control_keeps_the_contract() {
    for is_group in [false, true] {
        let plain = Norm::new(Scheme::ReedSolomon8, 2, 0);
        let subject = Norm { is_group, congestion_control: true, ..plain };
        conformance::check_all(&subject, &Options { runs: 8, ..Options::default() });
    }
}

#[test]
fn flushes_alone_keep_the_contract() {
    for is_group in [false, true] {
        let end = EndGame::Flush;
        let subject = Norm { end, is_group, ..Norm::new(Scheme::ReedSolomon8, 2, 0) };
        conformance::check_all(&subject, &Options { runs: 4, ..Options::default() });
    }
}
