//! A bundle agent whose neighbours, store and users follow a script of bytes.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use bp::agent::{
    Agent, Config, Custody, DeliveryId, Entry, Indication, Limits, Pattern, Reports, Routing,
    SendRequest, Version,
};
use bp::codec::bp6;
use bp::codec::bp7::{
    Block, BlockFlags, Bundle, BundleFlags, CrcType, CreationTimestamp, Eid, Fragment, Head,
    Payload, Primary,
};
use bp::layer::{Command, Content, Event, LinkId, Neighbour, Outcome, Refusal, Tag, TransferId};
use bytes::Bytes;
use engine::{Area, Effect, EffectError, Engine as _, Input, MemoryStore, Rng, StoreEffect, Time};

use crate::script::Script;

const BUNDLES: usize = 40;
const BYTES: u64 = 20_000;
/// Maximum length of a scripted bundle.
const LEN_MAX: u64 = 3000;
/// Bound on an agent's work without input, with these limits.
const WORK_MAX: usize = 100_000;
const CLOCK: u64 = 800_000_000_000;

/// Runs a script for an agent with two neighbours.
///
/// # Panics
/// If the agent breaks the contract, exceeds a bound, or keeps something forever.
pub fn bp_agent(data: &[u8]) {
    let mut script = Script(data);
    let options = script.or_zero();
    let mut world = World::new(options);
    while let Some(op) = script.byte() {
        world.act(op, &mut script);
        world.check();
    }
    world.end();
}

struct World {
    config: Config,
    agent: Agent,
    store: MemoryStore,
    now: Time,
    effects: VecDeque<StoreEffect>,
    /// Bundles that the agent sends.
    sending: VecDeque<(LinkId, Tag, u64)>,
    /// Started transfers, and whether they are complete.
    coming: BTreeMap<TransferId, (LinkId, bool)>,
    /// Aborted transfers: earlier reports about them may still arrive.
    broken: BTreeSet<TransferId>,
    offered: VecDeque<DeliveryId>,
    next: u64,
    restarts: u64,
    /// Whether the store completed all requests.
    is_healthy: bool,
}

fn node(number: u64) -> Eid {
    Eid::Ipn { node: number, service: 0 }
}

fn config(options: u8) -> Config {
    let has = |bit: u8| options & 1 << bit != 0;
    let entries = [2, 3].map(|n| Entry { to: Pattern::Node(node(n)), via: vec![node(n)] });
    let routing = match options >> 6 {
        0 | 1 => Routing::Static(entries.to_vec()),
        2 => Routing::Epidemic,
        _ => Routing::Spray { copies: 4 },
    };
    Config {
        node: node(1),
        clock: has(0).then_some(CLOCK),
        persistent: has(1),
        routing,
        custody: Custody {
            accept: !has(2),
            aggregate_after: has(3).then_some(Duration::from_secs(2)),
            ..Custody::default()
        },
        reports: Reports {
            reception: has(4),
            forwarding: has(4),
            delivery: true,
            deletion: has(4),
            custody: has(4),
        },
        limits: Limits {
            bundles: BUNDLES,
            bytes: BYTES,
            inline: if has(5) { 100 } else { 4096 },
            inline_total: 5000,
            incoming: 4,
            write_ahead: 500,
            gone: 50,
            delivering: 3,
            fragments: 10,
            fragment_min: 8,
            lifetime: Duration::from_secs(86_400),
            ..Limits::default()
        },
        ..Config::default()
    }
}

impl World {
    fn new(options: u8) -> Self {
        let config = config(options);
        let agent = Agent::new(config.clone(), Rng::new(0, "agent"));
        let mut world = Self {
            config,
            agent,
            store: MemoryStore::new(),
            now: Time::from_secs(1),
            effects: VecDeque::new(),
            sending: VecDeque::new(),
            coming: BTreeMap::new(),
            broken: BTreeSet::new(),
            offered: VecDeque::new(),
            next: 0,
            restarts: 0,
            is_healthy: true,
        };
        world.begin();
        world
    }

    fn begin(&mut self) {
        self.agent.register(&Eid::ipn(1, 5)).expect("the endpoint is free");
        self.drain();
    }

    fn act(&mut self, op: u8, script: &mut Script<'_>) {
        let link = LinkId(u32::from(op >> 7));
        match op % 16 {
            0..=3 => {
                let bytes = made(script);
                self.hand_in(link, &bytes, script);
            }
            4 => {
                let len = usize::from(script.or_zero());
                let bytes = script.bytes(len).to_vec();
                self.hand_in(link, &bytes, script);
            }
            5 | 6 => {
                for _ in 0..=script.or_zero() % 16 {
                    self.carry_out(false);
                }
            }
            7 => self.carry_out(true),
            8 => self.up(link, script),
            9 => {
                self.sending.retain(|(of, ..)| *of != link);
                self.event(Event::Down { link, why: "the script" });
            }
            10 | 11 => self.answer(script),
            12 => {
                self.now += Duration::from_millis(u64::from(script.or_zero()) * 500);
                self.agent.handle_timeout(self.now);
                self.drain();
                let next = self.agent.poll_timeout();
                assert!(next.is_none_or(|next| next.at > self.now), "{next:?}");
            }
            13 => self.request(script),
            14 => {
                if let Some(delivery) = self.offered.pop_front() {
                    let _ = self.agent.confirm(self.now, delivery);
                }
                self.drain();
            }
            _ => self.restart(),
        }
    }

    /// Restarts the process; loses whatever did not reach the store.
    fn restart(&mut self) {
        self.effects.clear();
        self.sending.clear();
        self.coming.clear();
        self.broken.clear();
        self.offered.clear();
        self.restarts += 1;
        self.agent = Agent::new(self.config.clone(), Rng::new(self.restarts, "agent"));
        self.begin();
    }

    fn up(&mut self, link: LinkId, script: &mut Script<'_>) {
        let neighbour = Neighbour {
            node: Some(node(u64::from(link.0) + 2)),
            is_authenticated: false,
            bundle_max: match script.or_zero() {
                255 => u64::MAX,
                most => u64::from(most) * 8,
            },
            window: 2,
            window_bytes: u64::from(script.or_zero()),
        };
        self.event(Event::Up { link, neighbour });
    }

    fn answer(&mut self, script: &mut Script<'_>) {
        let Some((link, tag, len)) = self.sending.pop_front() else { return };
        let acknowledged = len * u64::from(script.or_zero()) / 255;
        let outcome = match script.or_zero() % 8 {
            0..=2 => Outcome::Acknowledged,
            3 => Outcome::Left,
            4 => Outcome::Refused(Refusal::NoResources),
            5 => Outcome::Refused(Refusal::NotAcceptable),
            6 => Outcome::Refused(Refusal::Retransmit),
            _ => Outcome::Failed { acknowledged },
        };
        self.event(Event::Sent { link, tag, outcome });
    }

    fn request(&mut self, script: &mut Script<'_>) {
        let destination = Eid::ipn(u32::from(script.or_zero() % 4), 5);
        let len = usize::from(script.or_zero()) * 8;
        let flags = BundleFlags(u64::from(script.or_zero()) << 12 | u64::from(script.or_zero()));
        let op = script.or_zero();
        let request = SendRequest {
            flags: flags.without(BundleFlags::FRAGMENT),
            lifetime: Duration::from_secs(u64::from(script.or_zero())),
            version: if op & 1 == 0 { Version::Seven } else { Version::Six },
            custody: op & 2 != 0,
            ..SendRequest::new(destination, vec![op; len])
        };
        let _ = self.agent.send(self.now, request);
        self.drain();
    }

    fn hand_in(&mut self, link: LinkId, bytes: &[u8], script: &mut Script<'_>) {
        let transfer = TransferId(self.next);
        self.next += 1;
        self.coming.insert(transfer, (link, false));
        self.event(Event::Begins { link, transfer, bytes: None });
        let piece = usize::from(script.or_zero()).max(1) * 4;
        let ends = script.or_zero();
        for bytes in bytes.chunks(piece) {
            self.event(Event::Piece { link, transfer, bytes: Bytes::copy_from_slice(bytes) });
        }
        if ends < 64 {
            self.coming.remove(&transfer);
            self.broken.insert(transfer);
            self.event(Event::Broken { link, transfer, keep: ends.is_multiple_of(2) });
        } else if let Some(coming) = self.coming.get_mut(&transfer) {
            *coming = (link, true);
            self.event(Event::Whole { link, transfer, file: None });
        }
    }

    fn event(&mut self, event: Event) {
        self.agent.handle_event(self.now, 0, event);
        self.drain();
    }

    fn carry_out(&mut self, fails: bool) {
        let Some(effect) = self.effects.pop_front() else { return };
        let answer = match effect.ticket().filter(|_| fails) {
            Some(ticket) => {
                self.is_healthy = false;
                Some((ticket, Err(EffectError::NoSpace)))
            }
            None => self.store.execute(effect),
        };
        if let Some((ticket, answer)) = answer {
            self.agent.handle_input(self.now, Input::Done(ticket, answer));
        }
        self.drain();
    }

    fn drain(&mut self) {
        for _ in 0..WORK_MAX {
            let mut some = false;
            while let Some(effect) = self.agent.poll_effect() {
                some = true;
                let Effect::Store(effect) = effect else { panic!("{effect:?}") };
                self.effects.push_back(effect);
            }
            while let Some((_, command)) = self.agent.poll_command() {
                some = true;
                self.obey(command);
            }
            while let Some(indication) = self.agent.poll_indication() {
                some = true;
                if let Indication::Delivered { delivery, payload, .. } = indication {
                    assert!(payload.len() <= BYTES, "{payload:?}");
                    self.offered.push_back(delivery);
                }
            }
            if !some {
                return;
            }
        }
        panic!("it does not end");
    }

    fn obey(&mut self, command: Command) {
        match command {
            Command::Send { link, tag, bundle } => {
                if let Content::Bytes(_) = bundle.payload {
                    let first = bundle.head.first();
                    assert!(matches!(first, Some(6 | 0x9f)), "{first:?}");
                }
                self.sending.push_back((link, tag, bundle.len()));
            }
            Command::Cancel { link, tag } => {
                if let Some(at) = self.sending.iter().position(|of| (of.0, of.1) == (link, tag)) {
                    self.sending.remove(at);
                }
            }
            Command::Accept { transfer, .. } if self.broken.contains(&transfer) => {}
            Command::Accept { transfer, .. } => {
                let whole = self.coming.remove(&transfer);
                assert!(matches!(whole, Some((_, true))), "{transfer:?} was {whole:?}");
            }
            Command::Refuse { transfer, .. } => {
                let was =
                    self.coming.remove(&transfer).is_some() || self.broken.contains(&transfer);
                assert!(was, "{transfer:?} is answered twice");
            }
            Command::Open { .. }
            | Command::Close { .. }
            | Command::Pause { .. }
            | Command::Resume { .. } => {}
        }
    }

    /// Checks the bounds, which always hold.
    fn check(&self) {
        let statistics = self.agent.statistics();
        // Bundles being joined, and those given by several neighbours at one time, come on top.
        assert!(statistics.bundles <= BUNDLES + 6, "{statistics:?}");
        assert!(statistics.bytes <= BYTES + 6 * LEN_MAX, "{statistics:?}");
    }

    /// Removes the neighbours and lets everything expire.
    fn end(&mut self) {
        for link in [LinkId(0), LinkId(1)] {
            self.sending.clear();
            self.event(Event::Down { link, why: "the end" });
        }
        for transfer in std::mem::take(&mut self.coming).into_keys() {
            self.broken.insert(transfer);
            self.event(Event::Broken { link: LinkId(0), transfer, keep: false });
        }
        for step in 0.. {
            assert!(step < WORK_MAX, "it does not end");
            while !self.effects.is_empty() {
                self.carry_out(false);
            }
            let Some(next) = self.agent.poll_timeout() else { break };
            self.now = self.now.max(next.at);
            self.agent.handle_timeout(self.now);
            self.drain();
        }
        let statistics = self.agent.statistics();
        assert_eq!((statistics.bundles, statistics.bytes), (0, 0), "{statistics:?}");
        let files = self.store.names(Area::Spool).filter(|name| self.store.get(name).is_some());
        // Leftovers are removed when the agent starts next time.
        assert!(files.count() == 0 || !self.is_healthy);
    }
}

/// Creates a bundle of a hostile neighbour: valid in form, otherwise following the script.
fn made(script: &mut Script<'_>) -> Vec<u8> {
    let shape = script.or_zero();
    let destination = Eid::ipn(1 + u32::from(shape % 3), u64::from(script.or_zero() % 2) * 5);
    let len = usize::from(script.or_zero()) * 8;
    let sequence = u64::from(script.or_zero() % 4);
    let (offset, total) = (u64::from(script.or_zero()) * 8, u64::from(script.or_zero()) * 8);
    let total = if total == 8 { u64::MAX } else { total };
    let is_fragment = shape & 0x80 != 0;
    let flags = u64::from(script.or_zero()) << 12 | u64::from(script.or_zero());
    let lifetime = u64::from(script.or_zero());
    let payload = vec![shape; len];
    let block = script.or_zero();
    if shape & 0x40 == 0 {
        let primary = Primary {
            flags: BundleFlags(flags).without(BundleFlags::FRAGMENT),
            crc: CrcType::Crc16,
            destination,
            source: Eid::ipn(2, 7),
            report_to: Eid::ipn(3, 0),
            creation: CreationTimestamp { time_ms: CLOCK, sequence },
            lifetime_ms: lifetime * 1000,
            fragment: is_fragment.then_some(Fragment { offset, total }),
        };
        let flags = BlockFlags(u64::from(block >> 3));
        let data = [block % 24];
        let kind = [6, 7, 10, 11, 12, 222, 200, 192][usize::from(block % 8)];
        let blocks = Block::new(kind, 2, flags, CrcType::None, &data).into_iter().collect();
        let plain = Payload { len: len as u64, crc: CrcType::Crc32c, ..Payload::default() };
        let Ok(head) = Head::new(primary, blocks, plain) else { return Vec::new() };
        return Bundle { head, payload: &payload }.to_vec().unwrap_or_default();
    }
    let primary = bp6::Primary {
        flags: bp6::BundleFlags(flags).without(bp6::BundleFlags::FRAGMENT),
        destination,
        source: Eid::ipn(2, 7),
        report_to: Eid::ipn(3, 0),
        custodian: Eid::ipn(u32::from(block % 4), 0),
        creation: bp6::CreationTimestamp { time_s: CLOCK / 1000, sequence },
        lifetime_s: lifetime,
        dictionary: (shape & 0x20 != 0).then(Box::default),
        fragment: is_fragment.then_some(bp6::Fragment { offset, total }),
    };
    let flags = bp6::BlockFlags(u64::from(block >> 3)).without(bp6::BlockFlags::LAST);
    let kind = [5, 10, 2, 200][usize::from(block % 4)];
    let blocks: Vec<_> = bp6::Block::new(kind, flags, Vec::new(), &[block]).into_iter().collect();
    let trailer = bp6::Trailer::new(if shape & 0x10 == 0 { Vec::new() } else { blocks.clone() });
    let last = if shape & 0x10 == 0 { bp6::BlockFlags::LAST } else { bp6::BlockFlags::default() };
    // Sometimes a record: a signal about a bundle that may be here.
    let payload = if shape & 8 == 0 { payload } else { signal(script, sequence) };
    let plain = bp6::Payload { flags: last, len: payload.len() as u64, ..Default::default() };
    let Ok(head) = bp6::Head::new(primary, blocks, plain) else { return Vec::new() };
    bp6::Bundle { head, payload: &payload, trailer }.to_vec().unwrap_or_default()
}

fn signal(script: &mut Script<'_>, sequence: u64) -> Vec<u8> {
    let kind = script.or_zero();
    let record = if kind & 1 == 0 {
        let (offset, len) = (u64::from(script.or_zero()) * 8, u64::from(script.or_zero()) * 8);
        bp6::AdministrativeRecord::CustodySignal(bp6::CustodySignal {
            subject: bp6::Subject {
                source: Eid::ipn(u32::from(kind >> 6), 7),
                creation: bp6::CreationTimestamp { time_s: CLOCK / 1000, sequence },
                fragment: (kind & 2 != 0).then_some((offset, len)),
            },
            succeeded: kind & 4 != 0,
            reason: bp6::CustodyReason::from_code(kind >> 4),
            time: bp6::DtnTime::default(),
        })
    } else {
        let fill = |script: &mut Script<'_>| bp6::Fill {
            start: u64::from(script.or_zero()),
            length: u64::from(script.or_zero()),
        };
        bp6::AdministrativeRecord::AggregateCustodySignal(bp6::AggregateCustodySignal {
            succeeded: kind & 4 != 0,
            reason: bp6::CustodyReason::NoInformation,
            fills: vec![fill(script), fill(script)],
        })
    };
    record.to_vec().unwrap_or_default()
}
