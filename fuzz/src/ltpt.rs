//! An engine that forwards blocks of LTP-T between neighbours that follow a script of bytes.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use engine::{
    Area, Completion, Effect, EffectError, Engine as _, FilestoreRequest, IndexRequest, Input,
    MemoryStore, PathEvent, PathId, PathInfo, Receive, Rng, StoreEffect, Ticket, Time, TxBuf,
};
use ltp::ltpt::{self, Otherwise, Routing};
use ltp::segment::ltpt::{Address, Congestion, CongestionReason, End, Lifetime, Transport};
use ltp::segment::{
    Body, CancelReason, Checkpoint, Claim, Claims, Data, DataKind, End as By, Extension,
    Extensions, Report, Segment, SessionId,
};
use ltp::{Config, Limits, Node, Remote};
use testing::memory::Counted;

use crate::script::Script;

/// The engine is number 2, between 1 on the first path and 3 on the second.
const ENGINE: u64 = 2;
const NEIGHBOURS: [u64; 2] = [1, 3];
const MTU: usize = 300;
const TRANSFERS: usize = 6;
const STORAGE: u64 = 5000;
/// Bound on memory with these limits, with some margin.
const MEMORY_MAX: usize = 1 << 20;
/// Bound on an engine's work without input, with these limits.
const WORK_MAX: usize = 50_000;
/// Maximum datagrams of the engine that neighbours can still reply to.
const SENT_MAX: usize = 32;

/// Runs a script for an engine of LTP-T between two others.
///
/// # Panics
/// If the engine breaks the contract, exceeds a bound, forwards other bytes than it received, or
/// keeps a block forever.
pub fn ltpt_relay(data: &[u8]) {
    let mut script = Script(data);
    let mut world = World::new(script.or_zero());
    while let Some(op) = script.byte() {
        world.act(op, &mut script);
    }
    world.end();
}

struct World {
    options: u8,
    node: Counted<Node>,
    store: MemoryStore,
    now: Time,
    tx: TxBuf,
    up: [bool; 2],
    /// Datagrams the engine sent, with their path.
    sent: VecDeque<(usize, Vec<u8>)>,
    last: Option<(usize, Vec<u8>)>,
    /// Block ends announced by neighbours, by the blocks' numbers.
    ends: BTreeSet<(u64, u64)>,
    answers: VecDeque<(Ticket, Result<Completion, EffectError>)>,
    is_slow: bool,
    fail_next: Option<EffectError>,
    restarts: u64,
    /// Whether all input could come from a valid neighbour.
    is_sound: bool,
    /// Whether the store completed all requests.
    is_healthy: bool,
}

fn new_node(options: u8, restarts: u64) -> Node {
    let has = |bit: u8| options & 1 << bit != 0;
    let remote = |path| Remote {
        path: Some(PathId(path)),
        checkpoint_every: has(0).then_some(300),
        report_gaps: has(1),
        segment_max: has(2).then_some(90),
        ..Remote::default()
    };
    let otherwise = if has(3) { Otherwise::By(3) } else { Otherwise::Itself };
    let transport = ltpt::Config {
        routing: Routing::Static { to: BTreeMap::new(), otherwise },
        cut_through: !has(4),
        limits: ltpt::Limits { transfers: TRANSFERS, storage: STORAGE, finished: 8 },
        ..ltpt::Config::default()
    };
    let config = Config {
        engine: ENGINE,
        remotes: [(1, remote(0)), (3, remote(1))].into(),
        transport: Some(transport),
        limits: Limits {
            sessions: 10,
            sessions_per_path: 8,
            closed: 8,
            gaps: 16,
            gaps_total: 64,
            block: 1 << 13,
            buffers: session::Buffers {
                write_buffer: 2048,
                write_piece: 256,
                read_ahead: if has(5) { 256 } else { 2048 },
                read_ahead_total: 4096,
                read_piece: 128,
                replies: 8,
            },
            ..Limits::default()
        },
        ..Config::default()
    };
    Node::new(config, Rng::new(restarts, "ltpt"))
}

/// Returns the byte of a block at an offset: the same for every sender.
fn byte(number: u64, offset: u64) -> u8 {
    (number * 31 + offset * offset / 8) as u8
}

impl World {
    fn new(options: u8) -> Self {
        let mut world = Self {
            options,
            node: Counted::new(|| new_node(options, 0)),
            store: MemoryStore::new(),
            now: Time::from_secs(1),
            tx: TxBuf::new(4),
            up: [false; 2],
            sent: VecDeque::new(),
            last: None,
            ends: BTreeSet::new(),
            answers: VecDeque::new(),
            is_slow: false,
            fail_next: None,
            restarts: 0,
            is_sound: true,
            is_healthy: true,
        };
        world.store.set_capacity(Some(1 << 16));
        world.bring_up();
        world
    }

    fn act(&mut self, op: u8, script: &mut Script<'_>) {
        let path = usize::from(op >> 7);
        match op % 32 {
            0..=9 => self.data(path, script),
            10..=15 => self.answer(script),
            16 => {
                let len = usize::from(script.or_zero());
                self.is_sound = false;
                let bytes = script.bytes(len).to_vec();
                self.receive(path, bytes);
            }
            17 => {
                if let Some((path, bytes)) = self.last.clone() {
                    self.receive(path, bytes);
                }
            }
            18..=20 => {
                self.timeout();
            }
            21 | 22 => {
                self.now += Duration::from_millis(100) * u32::from(script.or_zero());
                self.node.handle_timeout(self.now);
                self.drain();
            }
            23 => self.path(path, script.or_zero()),
            24 => self.restart(),
            25 => self.is_slow = true,
            26 => {
                if let Some((ticket, result)) = self.answers.pop_front() {
                    self.node.handle_input(self.now, Input::Done(ticket, result));
                }
                self.drain();
            }
            27 => {
                self.is_slow = false;
                self.drain();
            }
            28 => self.fail_next = Some(EffectError::NoSpace),
            29 => self.fail_next = Some(EffectError::Failed("the disk is broken".to_owned())),
            _ => {
                let nth = usize::from(script.or_zero());
                let id = self.node.sessions().nth(nth % 12).map(|report| report.id);
                let _ = id.map(|id| self.node.cancel(self.now, id));
                self.drain();
            }
        }
    }

    /// Sends a part of a block from a neighbour.
    fn data(&mut self, path: usize, script: &mut Script<'_>) {
        let (names, shape) = (script.or_zero(), script.or_zero());
        // A session has one block, and a block may have several sessions.
        let session = SessionId { originator: NEIGHBOURS[path], number: u64::from(names % 16) + 1 };
        let number = u64::from(names >> 2) % 4;
        let end = |engine| End { address: Address::Engine(engine), port: 0, service: 1 };
        let size = u64::from(script.or_zero()) * 32;
        let lifetime = script.or_zero();
        let expiry_s = self.now.as_nanos() / 1_000_000_000 + u64::from(lifetime) * 16;
        let transport = Transport {
            source: Some(end(NEIGHBOURS[path] + u64::from(shape & 3 == 3) * 7)),
            destination: Some(end([3, 1, 9, 3][usize::from(names >> 4) % 4])),
            size: (shape & 4 == 0).then_some(size),
            lifetime: (shape & 8 == 0).then_some(Lifetime { hops: lifetime % 8, expiry_s }),
            flow: Some(number),
            ..Transport::default()
        };
        let offset = u64::from(script.or_zero()) * 16;
        let len = u64::from(script.or_zero()).min(200);
        let kind = match shape >> 4 {
            0..=5 => DataKind::Red,
            6 | 7 => DataKind::Checkpoint,
            8 => DataKind::EndOfRedPart,
            9..=12 => DataKind::EndOfRedBlock,
            13 | 14 => DataKind::Green,
            _ => DataKind::EndOfGreenBlock,
        };
        let serial = u64::from(script.or_zero()) + 1;
        let checkpoint = kind.is_checkpoint().then_some(Checkpoint { serial, report: 0 });
        if matches!(kind, DataKind::EndOfRedBlock | DataKind::EndOfGreenBlock) {
            self.ends.insert((number, offset + len));
        }
        let bytes: Vec<u8> = (offset..offset + len).map(|at| byte(number, at)).collect();
        let data = Data { kind, service: 1, offset, checkpoint, data: &bytes };
        self.send(path, session, &transport, Body::Data(data));
    }

    /// Replies as a neighbour to a datagram of the engine.
    fn answer(&mut self, script: &mut Script<'_>) {
        let (which, how) = (usize::from(script.or_zero()), script.or_zero());
        let nth = which % self.sent.len().max(1);
        let Some((path, bytes)) = self.sent.get(nth).cloned() else { return };
        let segment = Segment::decode(&bytes).expect("an engine's segments decode");
        let reason = CancelReason::from_code(how >> 5);
        let congestion = Congestion {
            reason: CongestionReason::Storage,
            retry_after_s: u64::from(script.or_zero()),
        };
        let transport =
            Transport { congestion: (how & 16 != 0).then_some(congestion), ..Transport::default() };
        let upper = |data: Data<'_>| data.offset + data.data.len() as u64;
        let claims;
        let body = match segment.body {
            Body::Data(_) if how % 8 == 0 => Body::Cancel { by: By::Receiver, reason },
            Body::Data(data) => {
                // All of it, or only the last part, or none of it.
                let (offset, length) = match how % 8 {
                    1..=5 => (0, upper(data)),
                    6 => (data.offset, data.data.len() as u64),
                    _ => (0, data.offset),
                };
                claims = [Claim { offset, length: length.max(1) }];
                Body::Report(Report {
                    serial: u64::from(how) + 1,
                    checkpoint: data.checkpoint.map_or(0, |checkpoint| checkpoint.serial),
                    upper: upper(data).max(offset + length.max(1)),
                    lower: 0,
                    claims: Claims::new(&claims),
                })
            }
            Body::Report(_) if how % 8 == 0 => Body::Cancel { by: By::Sender, reason },
            Body::Report(report) => Body::ReportAck { serial: report.serial },
            Body::Cancel { by, .. } => Body::CancelAck { by },
            Body::ReportAck { .. } | Body::CancelAck { .. } => return,
        };
        self.send(path, segment.session, &transport, body);
    }

    fn send(&mut self, path: usize, session: SessionId, transport: &Transport, body: Body<'_>) {
        let values = transport.values();
        let header: Vec<_> =
            values.iter().map(|(tag, value)| Extension { tag: *tag, value }).collect();
        let header = Extensions::new(&header);
        let bytes = Segment { header, ..Segment::new(session, body) }.to_vec();
        self.receive(path, bytes.expect("it has a form"));
    }

    fn receive(&mut self, path: usize, bytes: Vec<u8>) {
        if self.up[path] {
            let receive = Receive::datagram(PathId(path as u32), &bytes);
            self.node.handle_input(self.now, Input::Receive(receive));
            self.drain();
        }
        self.last = Some((path, bytes));
    }

    fn timeout(&mut self) -> bool {
        let Some(deadline) = self.node.poll_timeout() else { return false };
        self.now = self.now.max(deadline.at);
        self.node.handle_timeout(self.now);
        self.drain();
        let next = self.node.poll_timeout();
        assert!(next.is_none_or(|next| next.at > self.now), "{next:?} at {}", self.now);
        true
    }

    fn event(&mut self, path: usize, event: PathEvent) {
        self.node.handle_input(self.now, Input::Path(PathId(path as u32), event));
        self.drain();
    }

    fn bring_up(&mut self) {
        for path in 0..2 {
            self.up[path] = true;
            self.event(path, PathEvent::Up(PathInfo::datagram(MTU)));
        }
    }

    fn path(&mut self, path: usize, kind: u8) {
        match kind % 4 {
            0 => {
                self.up[path] = true;
                let mtu = 60 + usize::from(kind);
                self.event(path, PathEvent::Up(PathInfo::datagram(mtu)));
            }
            1 if self.up[path] => self.event(path, PathEvent::Blocked),
            2 if self.up[path] => self.event(path, PathEvent::Writable),
            _ => {
                self.up[path] = false;
                self.event(path, PathEvent::Down);
            }
        }
    }

    /// Restarts the process with the content of the store.
    fn restart(&mut self) {
        self.restarts += 1;
        self.store.close_all();
        self.answers.clear();
        self.sent.clear();
        (self.is_slow, self.fail_next) = (false, None);
        // As drivers do at the start: removes working files without a record.
        let kept: BTreeSet<String> = self.records().into_iter().collect();
        let spool: Vec<_> = self.store.names(Area::Spool).cloned().collect();
        for name in spool.into_iter().filter(|name| !kept.contains(name.path())) {
            let request = FilestoreRequest::DenyFile(name);
            self.store.execute(StoreEffect::Filestore { ticket: Ticket(u64::MAX), request });
        }
        self.node = Counted::new(|| new_node(self.options, self.restarts));
        self.bring_up();
    }

    fn records(&mut self) -> Vec<String> {
        let load = StoreEffect::Index {
            ticket: Ticket(u64::MAX),
            request: IndexRequest::Load { prefix: String::new() },
        };
        match self.store.execute(load) {
            Some((_, Ok(Completion::Records(records)))) => {
                records.into_iter().map(|(key, _)| key).collect()
            }
            other => panic!("records can be read: {other:?}"),
        }
    }

    /// Drains the engine, and carries effects out.
    fn drain(&mut self) {
        for _ in 0..WORK_MAX {
            let mut idle = true;
            // First, because an engine with nothing to send may still have work to do.
            self.tx.clear();
            if let Some(transmit) = self.node.poll_transmit(self.now, &mut self.tx) {
                idle = false;
                let path = transmit.path.0 as usize;
                for bytes in self.tx.datagrams() {
                    self.check_sent(bytes);
                    self.sent.push_back((path, bytes.to_vec()));
                }
                while self.sent.len() > SENT_MAX {
                    self.sent.pop_front();
                }
            }
            while let Some(effect) = self.node.poll_effect() {
                idle = false;
                let Effect::Store(effect) = effect else { continue };
                let answer = match effect.ticket().zip(self.fail_next.take()) {
                    Some((ticket, error)) => {
                        self.is_healthy = false;
                        Some((ticket, Err(error)))
                    }
                    None => self.store.execute(effect),
                };
                self.is_healthy &= !matches!(answer, Some((_, Err(_))));
                self.answers.extend(answer);
            }
            while !self.is_slow
                && let Some((ticket, result)) = self.answers.pop_front()
            {
                idle = false;
                self.node.handle_input(self.now, Input::Done(ticket, result));
            }
            while self.node.poll_indication().is_some() {
                idle = false;
            }
            if idle {
                self.check();
                return;
            }
        }
        panic!("the engine does not come to rest");
    }

    /// Checks that forwarded bytes equal the received ones.
    fn check_sent(&self, bytes: &[u8]) {
        let segment = Segment::decode(bytes).expect("an engine's segments decode");
        let Body::Data(data) = segment.body else { return };
        let transport = Transport::from_extensions(segment.header).expect("and its extensions");
        let number = transport.flow.expect("the engine sends nothing of its own");
        let mut expected = (data.offset..).map(|at| byte(number, at));
        let is_same = data.data.iter().all(|byte| expected.next() == Some(*byte));
        assert!(is_same || !self.is_sound, "flow {number} has other bytes at {}", data.offset);
        let end = data.offset + data.data.len() as u64;
        let ends = matches!(data.kind, DataKind::EndOfRedBlock | DataKind::EndOfGreenBlock);
        let is_known = !ends || self.ends.contains(&(number, end));
        assert!(is_known || !self.is_sound, "flow {number} does not end at {end}");
    }

    /// Checks the bounds, which always hold.
    fn check(&self) {
        let held = self.node.memory();
        assert!(held <= MEMORY_MAX, "{held} bytes held");
        assert!(self.node.transfers() <= TRANSFERS, "{} transfers", self.node.transfers());
        assert!(self.node.stored() <= STORAGE, "{} bytes stored", self.node.stored());
    }

    /// Ends all input from neighbours: forwarded blocks are dropped when their lifetime ends.
    fn end(&mut self) {
        self.is_slow = false;
        self.fail_next = None;
        self.drain();
        self.bring_up();
        for _ in 0..WORK_MAX {
            // Late, as drivers may be.
            self.now += Duration::from_secs(5);
            if !self.timeout() {
                break;
            }
            // An invented block may live for thousands of years.
            if !self.is_sound && self.now > Time::from_secs(10 * 86_400) {
                return;
            }
        }
        let waits = self.node.poll_timeout();
        assert!(waits.is_none(), "the engine does not come to rest at {}: {waits:?}", self.now);
        if !self.is_sound || !self.is_healthy {
            return;
        }
        assert_eq!((self.node.transfers(), self.node.stored()), (0, 0));
        let spool: Vec<_> = self.store.names(Area::Spool).cloned().collect();
        assert!(spool.is_empty(), "it keeps {spool:?}");
        let records = self.records();
        // A mark of an earlier run stays until its sender is received.
        let kept = records.iter().find(|key| self.restarts == 0 || !key.starts_with("ltp-"));
        assert!(kept.is_none(), "it keeps {kept:?}");
    }
}
