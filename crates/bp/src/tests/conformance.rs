//! Conformance suite of engines, over layers of datagrams: each layer has an agent with one bundle
//! to send or to receive.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use bytes::Bytes;
use engine::conformance::{self, Options, PATH, Role, Subject, Verdict};
use engine::{
    Completion, Deadline, Effect, EffectResult, Engine, FileId, FileName, FilestoreRequest, Input,
    MemoryStore, OpenMode, Rng, StoreEffect, Ticket, Time, Transmit, TxBuf,
};
use testing::memory::Counted;
use testing::world::small_buffers;

use super::super::agent;
use super::super::filecl;
use super::super::layer::{
    Command, Content, Event, Layer, LinkId, Outcome, Outgoing, Refusal, Tag, TransferId,
};
use super::super::ltpcl::{self, Ltpcl};
use super::super::normcl::{self, NormCl};
use super::super::saratogacl::{self, SaratogaCl};
use super::super::udpcl::{self, Fragmentation, Udpcl};

const LINK: LinkId = LinkId(1);
/// First ticket of the agent.
const OURS: u64 = 1 << 62;
/// Twelve datagrams of 200 bytes, the last one short.
const SIZE: usize = 2_200;

fn bundle() -> Vec<u8> {
    [b"\x9fhead", &conformance::content(SIZE)[..], b"tail"].concat()
}

/// Step of the agent's store.
#[derive(Debug)]
enum Step {
    /// Reads a working file, to check that it is the bundle.
    Opened(TransferId, FileName, u64),
    Read(TransferId, FileName, FileId),
    /// Keeps the bundle.
    Kept(TransferId),
    Written(TransferId, FileId),
    Synced(TransferId, FileId),
}

/// A layer and its agent.
struct Carrier<L> {
    layer: L,
    is_up: bool,
    is_sending: bool,
    coming: BTreeMap<TransferId, Vec<u8>>,
    steps: BTreeMap<Ticket, Step>,
    next: u64,
    effects: VecDeque<Effect>,
    verdicts: VecDeque<Verdict>,
}

impl<L: Layer> Carrier<L> {
    fn new(mut layer: L) -> Self {
        layer.command(Time::ZERO, Command::Open { link: LINK });
        Self {
            layer,
            is_up: false,
            is_sending: false,
            coming: BTreeMap::new(),
            steps: BTreeMap::new(),
            next: OURS,
            effects: VecDeque::new(),
            verdicts: VecDeque::new(),
        }
    }

    fn send(&mut self, now: Time) -> bool {
        if !self.is_up {
            return false;
        }
        let (head, tail) = (Bytes::from_static(b"\x9fhead"), Bytes::from_static(b"tail"));
        let payload = Content::File { name: conformance::source(), offset: 0, len: SIZE as u64 };
        let bundle = Outgoing { head, payload, tail, reliable: true, identity: None };
        self.is_sending = true;
        self.layer.command(now, Command::Send { link: LINK, tag: Tag(1), bundle });
        self.handle_events(now);
        true
    }

    fn step(&mut self, step: Step, effect: impl FnOnce(Ticket) -> StoreEffect) {
        let ticket = Ticket(self.next);
        self.next += 1;
        self.steps.insert(ticket, step);
        self.effects.push_back(effect(ticket).into());
    }

    fn handle_events(&mut self, now: Time) {
        while let Some(event) = self.layer.poll_indication() {
            match event {
                Event::Up { .. } => self.is_up = true,
                Event::Down { .. } => self.is_up = false,
                Event::Begins { transfer, .. } => {
                    self.coming.insert(transfer, Vec::new());
                }
                Event::Piece { transfer, bytes, .. } => {
                    self.coming.entry(transfer).or_default().extend_from_slice(&bytes);
                }
                Event::Whole { transfer, file: Some((file, len)), .. } => {
                    let (mode, name) = (OpenMode::Read, file.clone());
                    let open = |ticket| StoreEffect::Open { ticket, name, mode };
                    self.step(Step::Opened(transfer, file, len), open);
                }
                Event::Whole { transfer, file: None, .. } => {
                    if self.coming.get(&transfer).is_some_and(|came| *came == bundle()) {
                        let (mode, name) = (OpenMode::Truncate, conformance::copy());
                        let open = |ticket| StoreEffect::Open { ticket, name, mode };
                        self.step(Step::Kept(transfer), open);
                    } else {
                        self.refuse(now, transfer, Refusal::NotAcceptable);
                    }
                }
                Event::Broken { transfer, .. } => {
                    self.coming.remove(&transfer);
                    self.verdicts.push_back(Verdict::Failed);
                }
                Event::Sent { outcome, .. } => {
                    self.is_sending = false;
                    self.verdicts.push_back(match outcome {
                        Outcome::Acknowledged => Verdict::Delivered,
                        Outcome::Left => Verdict::Unconfirmed,
                        Outcome::Refused(_) | Outcome::Failed { .. } => Verdict::Failed,
                    });
                }
                Event::Refused { .. } | Event::Notice { .. } | Event::PeerFault { .. } => {}
            }
        }
    }

    fn refuse(&mut self, now: Time, transfer: TransferId, why: Refusal) {
        self.coming.remove(&transfer);
        self.verdicts.push_back(Verdict::Failed);
        self.layer.command(now, Command::Refuse { link: LINK, transfer, why });
    }

    fn accept(&mut self, now: Time, transfer: TransferId) {
        self.coming.remove(&transfer);
        self.verdicts.push_back(Verdict::Delivered);
        self.layer.command(now, Command::Accept { link: LINK, transfer });
    }

    fn stepped(&mut self, now: Time, step: Step, result: EffectResult) {
        match (step, result) {
            (Step::Opened(id, from, len), Ok(Completion::Opened { file, .. })) => {
                let (offset, len) = (0, len as usize);
                let read = |ticket| StoreEffect::Read { ticket, file, offset, len };
                self.step(Step::Read(id, from, file), read);
            }
            (Step::Read(id, from, file), Ok(Completion::Read(bytes))) => {
                self.effects.push_back(StoreEffect::Close { file }.into());
                if bytes != bundle() {
                    return self.refuse(now, id, Refusal::NotAcceptable);
                }
                let request = FilestoreRequest::Install { from, to: conformance::copy() };
                let install = |ticket| StoreEffect::Filestore { ticket, request };
                self.step(Step::Kept(id), install);
            }
            (Step::Kept(id), Ok(Completion::Done)) => self.accept(now, id),
            (Step::Kept(id), Ok(Completion::Opened { file, .. })) => {
                let (offset, bytes) = (0, bundle().into());
                let write = |ticket| StoreEffect::Write { ticket, file, offset, bytes };
                self.step(Step::Written(id, file), write);
            }
            (Step::Written(id, file), Ok(_)) => {
                self.step(Step::Synced(id, file), |ticket| StoreEffect::Sync { ticket, file });
            }
            (Step::Synced(id, file), Ok(_)) => {
                self.effects.push_back(StoreEffect::Close { file }.into());
                self.accept(now, id);
            }
            (
                Step::Read(id, _, file) | Step::Written(id, file) | Step::Synced(id, file),
                Ok(_) | Err(_),
            ) => {
                self.effects.push_back(StoreEffect::Close { file }.into());
                self.refuse(now, id, Refusal::NoResources);
            }
            (Step::Opened(id, ..) | Step::Kept(id), Ok(_) | Err(_)) => {
                self.refuse(now, id, Refusal::NoResources);
            }
        }
        self.handle_events(now);
    }
}

impl<L: Layer> Engine for Carrier<L> {
    type Indication = Verdict;

    fn handle_input(&mut self, now: Time, input: Input<'_>) {
        match input {
            Input::Done(ticket, result) if ticket.0 & OURS != 0 && ticket.0 < 1 << 63 => {
                if let Some(step) = self.steps.remove(&ticket) {
                    self.stepped(now, step, result);
                }
            }
            input => self.layer.handle_input(now, input),
        }
        self.handle_events(now);
    }

    fn handle_timeout(&mut self, now: Time) {
        self.layer.handle_timeout(now);
        self.handle_events(now);
    }

    fn poll_transmit(&mut self, now: Time, tx: &mut TxBuf) -> Option<Transmit> {
        let transmit = self.layer.poll_transmit(now, tx);
        self.handle_events(now);
        transmit
    }

    fn poll_effect(&mut self) -> Option<Effect> {
        self.layer.poll_effect().or_else(|| self.effects.pop_front())
    }

    fn poll_indication(&mut self) -> Option<Verdict> {
        self.verdicts.pop_front()
    }

    fn poll_timeout(&self) -> Option<Deadline> {
        self.layer.poll_timeout()
    }
}

/// Layer under test.
struct Of<L> {
    layer: fn(Role, u64) -> L,
    memory_max: usize,
    is_reliable: bool,
}

impl<L: Layer> Subject for Of<L> {
    type Engine = Counted<Carrier<L>>;

    fn engine(&self, role: Role, seed: u64) -> Counted<Carrier<L>> {
        Counted::new(|| Carrier::new((self.layer)(role, seed)))
    }

    fn prepare(&self, role: Role, store: &mut MemoryStore) {
        let request = FilestoreRequest::CreateDirectory(agent::Config::default().directory);
        store.execute(StoreEffect::Filestore { ticket: Ticket(0), request });
        if role == Role::Sender {
            store.insert(conformance::source(), conformance::content(SIZE));
        }
    }

    fn start(&self, engine: &mut Counted<Carrier<L>>, now: Time) -> bool {
        engine.charge(|carrier| carrier.send(now))
    }

    fn verdict(&self, _role: Role, verdict: &Verdict) -> Option<Verdict> {
        Some(*verdict)
    }

    fn check(&self, store: &MemoryStore) -> Result<(), String> {
        conformance::compare(store.get(&conformance::copy()), &bundle())
    }

    fn is_busy(&self, engine: &Counted<Carrier<L>>) -> bool {
        engine.is_sending || !engine.coming.is_empty()
    }

    fn memory(&self, engine: &Counted<Carrier<L>>) -> usize {
        engine.memory()
    }

    fn memory_max(&self) -> usize {
        self.memory_max
    }

    fn is_reliable(&self) -> bool {
        self.is_reliable
    }

    fn detects_damage(&self) -> bool {
        false
    }
}

fn udpcl(_role: Role, _seed: u64) -> Udpcl {
    Udpcl::new(udpcl::Config {
        peers: [(LINK, PATH)].into(),
        fragmentation: Fragmentation::OfLayer,
        datagram_max: Some(200),
        limits: udpcl::Limits {
            incoming: 8,
            early: 32 << 10,
            unanswered: 64,
            ..udpcl::Limits::default()
        },
        ..udpcl::Config::default()
    })
}

/// LTPCL with blocks up to `units` bytes in memory.
fn ltpcl(role: Role, seed: u64, units: usize) -> Ltpcl {
    let (own, other) = if role == Role::Sender { (1, 2) } else { (2, 1) };
    let peers = [(LINK, ltpcl::Peer { engine: other, path: PATH })].into();
    let remote = ltp::Remote { datagram_max: Some(200), ..ltp::Remote::default() };
    let ltp = ltp::Config {
        engine: own,
        default_remote: remote,
        limits: ltp::Limits {
            sessions: 16,
            sessions_per_path: 12,
            closed: 64,
            gaps: 64,
            units,
            units_total: 32 << 10,
            buffers: small_buffers(),
            block: 1 << 20,
            ..ltp::Limits::default()
        },
        ..ltp::Config::default()
    };
    let config = ltpcl::Config { ltp, peers, ..ltpcl::Config::default() };
    Ltpcl::new(config, Rng::new(seed, "ltp"))
}

/// Layers over sessions: one with bundles in memory, and one with bundles in files.
fn sessions_keep_the_contract<L: Layer>(layers: [fn(Role, u64) -> L; 2], memory_max: usize) {
    for layer in layers {
        let of = Of { layer, memory_max, is_reliable: true };
        conformance::check_all(&of, &Options { runs: 8, ..Options::default() });
    }
}

/// SaratogaCl with bundles up to `inline` bytes in memory.
fn over_saratoga(seed: u64, inline: u64) -> SaratogaCl {
    let remote = saratoga::Remote { datagram_max: Some(200), ..saratoga::Remote::default() };
    let engine = saratoga::Config {
        default_remote: remote,
        limits: saratoga::Limits {
            sessions: 16,
            sessions_per_path: 12,
            closed: 64,
            gaps: 64,
            buffers: small_buffers(),
            file: 1 << 20,
            ..saratoga::Limits::default()
        },
        ..saratoga::Config::default()
    };
    let limits = filecl::Limits { inline, ..filecl::Limits::default() };
    let peers = [(LINK, PATH)].into();
    let config = saratogacl::Config { engine, peers, limits, ..saratogacl::Config::default() };
    SaratogaCl::new(config, Rng::new(seed, "saratoga"))
}

#[test]
fn saratogacl_keeps_the_contract() {
    let memory_max = 16 * (16 << 10) + 2 * (64 << 10) + (64 + 256) * 512;
    // Read from its file, and left there.
    let layers: [fn(Role, u64) -> SaratogaCl; 2] =
        [|_, seed| over_saratoga(seed, 4 << 10), |_, seed| over_saratoga(seed, 500)];
    sessions_keep_the_contract(layers, memory_max);
}

/// NormCl with bundles up to `inline` bytes in memory.
fn over_norm(role: Role, seed: u64, inline: u64) -> NormCl {
    let node = if role == Role::Sender { 1 } else { 2 };
    let engine = norm::Config {
        node,
        sender: norm::SenderConfig { segment_size: Some(150), ..norm::SenderConfig::default() },
        limits: norm::Limits {
            senders: 8,
            objects: 16,
            object: 1 << 20,
            assembly: 256 << 10,
            buffers: session::Buffers {
                write_buffer: 64 << 10,
                read_ahead: 4 << 10,
                ..session::Buffers::default()
            },
            ..norm::Limits::default()
        },
        ..norm::Config::default()
    };
    let limits = filecl::Limits { inline, ..filecl::Limits::default() };
    let config =
        normcl::Config { engine, peers: [(LINK, PATH)].into(), limits, ..Default::default() };
    NormCl::new(config, Rng::new(seed, "norm"))
}

#[test]
fn normcl_keeps_the_contract() {
    let memory_max = 1 << 20;
    let layers: [fn(Role, u64) -> NormCl; 2] =
        [|role, seed| over_norm(role, seed, 4 << 10), |role, seed| over_norm(role, seed, 500)];
    sessions_keep_the_contract(layers, memory_max);
}

#[test]
fn udpcl_keeps_the_contract() {
    // Two buffers of datagrams, the bundles in transit, and early arrivals.
    let memory_max = 240 << 10;
    let of = Of { layer: udpcl, memory_max, is_reliable: false };
    let latency = [Duration::from_millis(50), Duration::from_millis(70)];
    conformance::check_all(&of, &Options { runs: 8, latency, ..Options::default() });
}

#[test]
fn ltpcl_keeps_the_contract() {
    let memory_max = 16 * (16 << 10) + (32 << 10) + 2 * (64 << 10) + (64 + 256) * 512;
    // In memory, and in a working file.
    let layers: [fn(Role, u64) -> Ltpcl; 2] =
        [|role, seed| ltpcl(role, seed, 4 << 10), |role, seed| ltpcl(role, seed, 500)];
    sessions_keep_the_contract(layers, memory_max);
}
