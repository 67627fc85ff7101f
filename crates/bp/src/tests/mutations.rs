//! Secured bundles with every mutation of their blocks, against rules that demand their security.
//!
//! The oracle knows no rule of the specification: what is delivered under a rule has the payload
//! and the primary block of a bundle that the holder of the key made, with the scope that the rule
//! demands.

use engine::Rng;

use super::super::agent::{Config, Limits, Statistics};
use super::super::security::{Key, Opened, Operation, Policy, Role, Rule, Vectors};
use super::attacks::{bytes_of_six, seven, six};
use super::security::rule;
use super::world::{World, chain, endpoint};
use crate::codec::bp7::{
    Block, BlockFlags, Bounds, Bundle, BundleFlags, CrcType, CreationTimestamp, Eid, Extension,
    Fragment, HopCount, PAYLOAD, PAYLOAD_NUMBER, Primary,
};
use crate::codec::bpsec::{
    self, AesVariant, CONFIDENTIALITY, HMAC_SHA2, HmacSha2, INTEGRITY, Item, Scope, SecurityBlock,
    ShaVariant, TargetResults,
};

const CASES: u64 = 100_000;
const KIND: u64 = 200;
const SIGN: Operation = Operation::Integrity(ShaVariant::Sha256);
const HIDE: Operation = Operation::Confidentiality(AesVariant::Aes256);

/// A block as it is sent, well-formed or not.
#[derive(Clone, Debug)]
struct Raw {
    kind: u64,
    number: u64,
    flags: u64,
    crc: CrcType,
    /// Items that its array announces beyond those that it has.
    more: u8,
    data: Vec<u8>,
}

impl Raw {
    fn of(block: &Block) -> Self {
        let (kind, number, flags) = (block.kind(), block.number(), block.flags().0);
        Self { kind, number, flags, crc: block.crc(), more: 0, data: block.data().to_vec() }
    }

    fn write(&self, out: &mut Vec<u8>) {
        let flags = BlockFlags(self.flags);
        let whole = Block::new(self.kind, self.number, flags, self.crc, &self.data);
        match whole {
            Ok(block) if self.more == 0 => out.extend_from_slice(block.bytes()),
            Ok(_) | Err(_) => {
                out.push(0x85 + self.more);
                for value in [self.kind, self.number, self.flags, 0] {
                    out.extend_from_slice(&Item::uint(0, value).value);
                }
                out.extend_from_slice(&Item::bytes(0, &self.data).value);
            }
        }
    }

    fn content(&self) -> Option<SecurityBlock> {
        SecurityBlock::decode(&self.data, &bpsec::Bounds::default()).ok()
    }

    fn set(&mut self, content: &SecurityBlock) {
        if let Ok(data) = content.to_vec() {
            self.data = data;
        }
    }
}

/// A bundle before it is encoded.
#[derive(Clone, Debug)]
struct Draft {
    primary: Primary,
    /// Bytes of the primary block.
    first: Vec<u8>,
    /// The payload block is the last.
    blocks: Vec<Raw>,
}

impl Draft {
    fn of(opened: &Opened) -> Self {
        let mut blocks: Vec<Raw> = opened.head.blocks().iter().map(Raw::of).collect();
        blocks.push(Raw {
            kind: PAYLOAD,
            number: PAYLOAD_NUMBER,
            flags: opened.head.payload().flags.0,
            crc: CrcType::None,
            more: 0,
            data: opened.payload.clone(),
        });
        let primary = opened.head.primary().clone();
        Self { primary, first: opened.head.primary_bytes().to_vec(), blocks }
    }

    fn write(&self) -> Vec<u8> {
        let mut out = vec![0x9f];
        out.extend_from_slice(&self.first);
        self.blocks.iter().for_each(|block| block.write(&mut out));
        out.push(0xff);
        out
    }

    fn set_primary(&mut self, primary: Primary) {
        if let Ok(first) = primary.to_vec() {
            (self.primary, self.first) = (primary, first);
        }
    }

    fn block(&mut self, rng: &mut Rng) -> &mut Raw {
        let at = rng.below(self.blocks.len() as u64) as usize;
        &mut self.blocks[at]
    }

    /// A security block, if there is one.
    fn security(&mut self, rng: &mut Rng) -> Option<&mut Raw> {
        let is_it = |raw: &&mut Raw| matches!(raw.kind, INTEGRITY | CONFIDENTIALITY);
        let mut all: Vec<_> = self.blocks.iter_mut().filter(is_it).collect();
        (!all.is_empty()).then(|| all.swap_remove(rng.below(all.len() as u64) as usize))
    }

    fn free(&self) -> u64 {
        self.blocks.iter().map(|block| block.number).max().unwrap_or(1) + 1
    }

    /// Puts a block somewhere before the payload.
    fn put(&mut self, rng: &mut Rng, block: Raw) {
        let at = rng.below(self.blocks.len() as u64) as usize;
        self.blocks.insert(at, block);
    }

    fn has(&self, kind: u64) -> bool {
        self.blocks.iter().any(|block| block.kind == kind)
    }
}

fn any<T: Clone>(rng: &mut Rng, all: &[T]) -> T {
    all[rng.below(all.len() as u64) as usize].clone()
}

/// Some numbers of blocks of a bundle, and numbers that it lacks.
fn targets(rng: &mut Rng, draft: &Draft) -> Vec<u64> {
    let numbers = draft.blocks.iter().map(|block| block.number).chain([0, 1, 77]);
    let mut some: Vec<u64> = numbers.filter(|_| rng.chance(0.4)).collect();
    some.dedup();
    if some.is_empty() { vec![PAYLOAD_NUMBER] } else { some }
}

fn results(rng: &mut Rng) -> Vec<Item> {
    let len = any(rng, &[0usize, 16, 32, 48]);
    match rng.below(3) {
        0 => Vec::new(),
        1 => vec![Item::bytes(1, &vec![0; len])],
        _ => vec![Item::bytes(1, &vec![7; len]), Item::bytes(1, &[])],
    }
}

/// A security block that was not made with the keys.
fn claimed(rng: &mut Rng, draft: &Draft, kind: u64) -> Raw {
    let of = targets(rng, draft).into_iter();
    let targets = of.map(|target| TargetResults { target, results: results(rng) }).collect();
    let context = any(rng, &[1, 2, 1, 2, 77, -1, 0]);
    let parameters = match (rng.below(3), kind) {
        (0, _) => Vec::new(),
        (_, CONFIDENTIALITY) => vec![Item::bytes(1, &[0; 12]), Item::uint(2, 3)],
        _ => vec![Item::uint(1, 5), Item::uint(3, rng.below(9))],
    };
    let source = any(rng, &[Eid::ipn(66, 0), Eid::None]);
    let content = SecurityBlock { targets, context, source, parameters };
    let data = content.to_vec().unwrap_or_else(|_| vec![0x80]);
    let flags = rng.below(3);
    Raw { kind, number: draft.free(), flags, crc: CrcType::None, more: 0, data }
}

/// Signs the bundle with a key that strangers have.
fn sign_with_another_key(rng: &mut Rng, draft: &mut Draft) {
    let bytes = draft.write();
    let Ok(bundle) = Bundle::decode(&bytes, &Bounds::default()) else { return };
    let mut opened = Opened { head: bundle.head, payload: bundle.payload.to_vec() };
    let bytes = any(rng, &[vec![], vec![0; 32], b"stranger".to_vec()]);
    let keys = [("sign".to_owned(), Key::new(&bytes))].into();
    let scope = Scope::from_flags(rng.below(8));
    let rules = vec![Rule { scope, ..rule(Role::Source, SIGN, &[any(rng, &[0, PAYLOAD])]) }];
    let forger = Policy { rules, keys, ..Policy::default() };
    let mut vectors = Vectors::new(rng);
    if forger.protect(&mut opened, &Eid::ipn(66, 0), &mut vectors).is_ok() {
        *draft = Draft::of(&opened);
    }
}

/// Changes a field of the primary block.
fn change_primary(rng: &mut Rng, draft: &mut Draft) {
    let mut primary = draft.primary.clone();
    match rng.below(8) {
        0 => primary.source = any(rng, &[Eid::ipn(67, 6), Eid::ipn(66, 7), Eid::None]),
        1 => primary.report_to = Eid::ipn(9, 9),
        2 => primary.creation = CreationTimestamp { sequence: 99, ..primary.creation },
        3 => primary.lifetime_ms += 1,
        4 => primary.flags = BundleFlags(primary.flags.0 ^ (1 << rng.below(20))),
        5 => primary.crc = any(rng, &[CrcType::None, CrcType::Crc16, CrcType::Crc32c]),
        6 => primary.destination = any(rng, &[endpoint(1), endpoint(2), Eid::ipn(2, 0)]),
        _ => primary.creation.time_ms += 1000,
    }
    draft.set_primary(primary);
}

/// Changes a security block.
fn change_security(rng: &mut Rng, draft: &mut Draft) {
    let other = targets(rng, draft);
    let Some(raw) = draft.security(rng) else { return };
    let Some(mut content) = raw.content() else { return };
    let at = rng.below(content.targets.len() as u64) as usize;
    match rng.below(9) {
        0 => content.targets[at].target = other[0],
        1 => content.context = any(rng, &[1, 2, 0, 77, -1]),
        2 => content.parameters.clear(),
        3 => content.parameters.push(Item::uint(any(rng, &[3, 4]), rng.below(9))),
        4 => {
            for item in &mut content.parameters {
                if matches!(item.id, 3 | 4) {
                    *item = Item::uint(item.id, rng.below(8));
                }
            }
        }
        5 => content.targets[at].results = results(rng),
        6 => content.source = any(rng, &[Eid::ipn(66, 9), Eid::None]),
        7 => {
            let results = results(rng);
            content.targets.push(TargetResults { target: other[0], results });
        }
        _ => {
            content.targets.remove(at);
        }
    }
    raw.set(&content);
}

/// Changes the header of a block.
fn change_header(rng: &mut Rng, draft: &mut Draft) {
    let block = draft.block(rng);
    match rng.below(5) {
        0 => block.flags ^= 1 << rng.below(5),
        1 => block.number = rng.below(8),
        2 => block.kind = any(rng, &[1, 6, 7, 10, 11, 12, KIND, 201]),
        3 => block.crc = any(rng, &[CrcType::None, CrcType::Crc16, CrcType::Crc32c]),
        _ => block.more = 1,
    }
}

fn mutate(rng: &mut Rng, draft: &mut Draft, others: &[Draft]) {
    match rng.below(14) {
        0 => {
            let at = rng.below(draft.blocks.len() as u64) as usize;
            draft.blocks.remove(at);
            if draft.blocks.is_empty() {
                draft.blocks = others[0].blocks.clone();
            }
        }
        1 => {
            let (number, is_other) = (draft.free(), rng.chance(0.5));
            let mut copy = draft.block(rng).clone();
            copy.number = if is_other { number } else { copy.number };
            draft.put(rng, copy);
        }
        2 => {
            let len = draft.blocks.len() as u64;
            let (one, other) = (rng.below(len) as usize, rng.below(len) as usize);
            draft.blocks.swap(one, other);
            if rng.chance(0.5) {
                let (mut a, mut b) = (draft.blocks[one].clone(), draft.blocks[other].clone());
                std::mem::swap(&mut a.data, &mut b.data);
                (draft.blocks[one], draft.blocks[other]) = (a, b);
            }
        }
        3 | 4 => change_security(rng, draft),
        5 => change_header(rng, draft),
        6 => change_primary(rng, draft),
        7 | 8 => {
            let raw = claimed(rng, draft, CONFIDENTIALITY);
            draft.put(rng, raw);
        }
        9 => {
            let raw = claimed(rng, draft, INTEGRITY);
            draft.put(rng, raw);
        }
        10 => sign_with_another_key(rng, draft),
        11 => {
            // The payload, or any block of another secured bundle.
            let other = any(rng, others);
            let block = any(rng, &other.blocks);
            match draft.blocks.iter_mut().find(|own| own.kind == block.kind) {
                Some(own) => *own = block,
                None => draft.put(rng, block),
            }
        }
        12 => {
            let data = &mut draft.block(rng).data;
            match (rng.below(3), data.len()) {
                (0, 1..) => data[0] ^= 1,
                (1, _) => data.push(b'!'),
                _ => *data = b"EVIL".to_vec(),
            }
        }
        _ => {
            let block = draft.blocks.last_mut().expect("one is left");
            block.data = b"EVIL".to_vec();
        }
    }
}

fn policy(rules: Vec<Rule>) -> Policy {
    let keys = [("sign", &[1; 32]), ("hide", &[2; 32])];
    let keys = keys.map(|(name, key)| (name.to_owned(), Key::new(key))).into();
    Policy { rules, keys, ..Policy::default() }
}

/// Rules, and bundles that a source protected.
struct Demand {
    rules: Vec<Rule>,
    /// Whether this node is the destination.
    is_here: bool,
    genuine: Vec<Genuine>,
}

/// A secured bundle.
struct Genuine {
    draft: Draft,
    payload: Vec<u8>,
    /// Whether its source protected as much as the rules demand.
    is_wide: bool,
}

fn genuine(rules: &[Rule], sequence: u64, scope: Scope, to: usize) -> Genuine {
    let payload = format!("true payload {sequence}").into_bytes();
    let creation = CreationTimestamp { sequence, ..seven(Eid::None, Eid::None).creation };
    let primary = Primary { creation, ..seven(Eid::ipn(66, 6), endpoint(to)) };
    let len = payload.len() as u64;
    let hops = Extension::HopCount(HopCount { limit: 9, count: 0 });
    let blocks = vec![
        hops.to_block(2, BlockFlags(0), CrcType::Crc16).unwrap(),
        Block::new(KIND, 3, BlockFlags(0), CrcType::None, b"extension").unwrap(),
    ];
    let part = crate::codec::bp7::Payload {
        crc: CrcType::Crc32c,
        len,
        ..crate::codec::bp7::Payload::default()
    };
    let head = crate::codec::bp7::Head::new(primary, blocks, part).unwrap();
    let mut opened = Opened { head, payload: payload.clone() };
    let is_source = |rule: &Rule| Rule { role: Role::Source, scope, ..rule.clone() };
    let source = policy(rules.iter().map(is_source).collect());
    let mut vectors = Vectors::new(&mut Rng::new(sequence, "vectors"));
    source.protect(&mut opened, &Eid::ipn(66, 0), &mut vectors).unwrap();
    Genuine { draft: Draft::of(&opened), payload, is_wide: scope == Scope::ALL }
}

fn demands() -> Vec<Demand> {
    let (acceptor, verifier) = (Role::Acceptor, Role::Verifier);
    let places: [(Vec<Rule>, bool); 6] = [
        (vec![rule(acceptor, SIGN, &[PAYLOAD])], true),
        (vec![rule(acceptor, SIGN, &[0, PAYLOAD, KIND])], true),
        (vec![rule(verifier, SIGN, &[PAYLOAD])], true),
        (vec![rule(acceptor, HIDE, &[PAYLOAD])], true),
        (vec![rule(acceptor, SIGN, &[0, PAYLOAD]), rule(acceptor, HIDE, &[PAYLOAD])], true),
        (vec![rule(verifier, SIGN, &[0, PAYLOAD])], false),
    ];
    let demand = |(rules, is_here): (Vec<Rule>, bool)| {
        let to = if is_here { 1 } else { 2 };
        let scopes = [Scope::ALL, Scope::ALL, Scope::NONE, Scope::from_flags(6)];
        let genuine = (1..).zip(scopes).map(|(n, scope)| genuine(&rules, n, scope, to)).collect();
        Demand { rules, is_here, genuine }
    };
    places.into_iter().map(demand).collect()
}

/// Node 2 of 3, between the others.
struct Door(World);

impl Door {
    fn new(rules: Vec<Rule>) -> Self {
        let limits = Limits { inline: usize::MAX, inline_total: usize::MAX, ..Limits::default() };
        let config = Config { security: policy(rules), limits, ..chain(3, 1, false) };
        let mut world = World::alone(config);
        world.nodes[0].agent.register(&Eid::ipn(2, 0)).unwrap();
        Self(world)
    }

    /// Hands in a bundle; returns the source and the payload of what is delivered.
    fn receive(&mut self, bytes: &[u8]) -> Option<(Eid, Vec<u8>)> {
        self.0.hand_in(0, 0, bytes);
        self.0.settle();
        self.0.nodes[0].taken.pop().map(|(id, payload)| (id.source, payload))
    }

    fn statistics(&self) -> Statistics {
        self.0.nodes[0].agent.statistics()
    }

    /// Number of bundles to be forwarded.
    fn forwards(&self) -> usize {
        self.statistics().bundles
    }
}

/// Whether bytes begin with the primary block that a source made.
fn is_made(bytes: &[u8], genuine: &Genuine) -> bool {
    bytes[1..].starts_with(&genuine.draft.first)
}

/// A mutated bundle, or its fragments, or its payload in version 6.
fn case(rng: &mut Rng, demand: &Demand) -> (Draft, Vec<Vec<u8>>) {
    let mut draft = any(rng, &[0, 1, 2, 3].map(|at| &demand.genuine[at].draft)).clone();
    let others: Vec<Draft> = demand.genuine.iter().map(|of| of.draft.clone()).collect();
    for _ in 0..rng.below(4) {
        mutate(rng, &mut draft, &others);
    }
    let payload = draft.blocks.last().expect("one is left").data.clone();
    match rng.below(20) {
        0 => {
            let to = draft.primary.destination.clone();
            (draft, vec![bytes_of_six(six(Eid::ipn(66, 6), to), &payload)])
        }
        1 => {
            let total = payload.len() as u64;
            let cut = rng.below(total + 1);
            let parts = [(0, cut), (cut, total)].into_iter().filter(|(from, to)| from < to);
            let part = |(from, to): (u64, u64)| {
                let mut part = draft.clone();
                let fragment = Some(Fragment { offset: from, total });
                part.set_primary(Primary { fragment, ..part.primary.clone() });
                let last = part.blocks.last_mut().expect("one is left");
                last.data = payload[from as usize..to as usize].to_vec();
                part.write()
            };
            let parts = parts.map(part).collect();
            (draft, parts)
        }
        2 => {
            let mut bytes = draft.write();
            let at = rng.below(bytes.len() as u64) as usize;
            bytes[at] ^= 1 << rng.below(8);
            (draft, vec![bytes])
        }
        _ => {
            let bytes = draft.write();
            (draft, vec![bytes])
        }
    }
}

/// Requirements: C04b, C13d, C13e, C13f, C13g, C13h.
#[test]
fn what_is_delivered_under_a_rule_is_what_the_holder_of_the_key_made() {
    let demands = demands();
    let mut rng = Rng::new(1, "mutations");
    let mut passed = vec![0u32; demands.len()];
    for number in 0..CASES {
        let at = (number % demands.len() as u64) as usize;
        let demand = &demands[at];
        let (draft, parts) = case(&mut rng, demand);
        let mut door = Door::new(demand.rules.clone());
        let delivered: Vec<_> = parts.iter().filter_map(|bytes| door.receive(bytes)).collect();
        for (source, payload) in &delivered {
            let is_it = |of: &&Genuine| {
                let is_whole = parts.len() > 1 || is_made(&parts[0], of);
                of.is_wide && of.payload == *payload && (is_whole || is_fragment(&parts[0]))
            };
            let made = demand.genuine.iter().find(is_it);
            assert!(made.is_some(), "case {number}: {draft:?}");
            assert_eq!(*source, Eid::ipn(66, 6), "case {number}");
        }
        passed[at] += delivered.len() as u32;
        // A verifier on the path, whose rule is about the primary block, too. Fragments are checked
        // where they are joined.
        if !demand.is_here && door.forwards() > 0 && !is_fragment(&parts[0]) {
            let bytes = &parts[0];
            let is_it = |of: &&Genuine| of.is_wide && is_made(bytes, of);
            let made = demand.genuine.iter().find(is_it);
            let made = made.unwrap_or_else(|| panic!("case {number}: {draft:?}"));
            passed[at] += 1;
            let payload = &draft.blocks.last().expect("one is left").data;
            if *payload != made.payload {
                assert!(draft.has(CONFIDENTIALITY) && draft.has(INTEGRITY), "case {number}");
            }
        }
    }
    assert!(passed.iter().all(|count| *count > 1000), "{passed:?}");
}

fn is_fragment(bytes: &[u8]) -> bool {
    let head = crate::codec::bp7::Head::decode(bytes, &Bounds::default());
    matches!(head, Ok(Some(head)) if head.primary().fragment.is_some())
}

/// The block that the case of a stranger has: encryption with nothing behind it.
fn stranger(context: i64, targets: &[u64], parameters: Vec<Item>, results: &[Item]) -> Raw {
    let of = |target: &u64| TargetResults { target: *target, results: results.to_vec() };
    let targets = targets.iter().map(of).collect();
    let content = SecurityBlock { targets, context, source: Eid::ipn(99, 0), parameters };
    let data = content.to_vec().unwrap();
    let (kind, number) = (CONFIDENTIALITY, 8);
    Raw { kind, number, flags: 0, crc: CrcType::None, more: 0, data }
}

/// A bundle without security, to node 1 or 2, and blocks before its payload.
fn plain(to: usize, blocks: Vec<Raw>) -> Vec<u8> {
    let mut draft = genuine(&[], 1, Scope::ALL, to).draft;
    for block in blocks {
        draft.blocks.insert(0, block);
    }
    draft.write()
}

/// Requirements: C04b, C13d, C13e.
#[test]
fn a_block_that_claims_to_be_encryption_replaces_no_signature() {
    let vector = || vec![Item::bytes(1, &[0; 12])];
    let junk = Raw { kind: INTEGRITY, number: 9, ..stranger(77, &[1], vec![], &[]) };
    let junk = Raw { data: vec![7; 20], ..junk };
    let elsewhere = HmacSha2::default().items();
    let elsewhere = stranger(HMAC_SHA2, &[3], elsewhere, &[Item::bytes(1, &[0; 48])]);
    let elsewhere = Raw { kind: INTEGRITY, number: 9, ..elsewhere };
    let tag = || vec![Item::bytes(1, &[0; 16])];
    // Blocks, and whether a verifier on the path must pass them.
    let cases = [
        (vec![stranger(77, &[1], vec![], &[])], false),
        (vec![stranger(-1, &[1], vec![], &[])], false),
        (vec![stranger(2, &[1], vector(), &tag())], false),
        (vec![junk.clone(), stranger(77, &[1, 9], vec![], &[])], false),
        (vec![junk.clone(), stranger(2, &[1], vector(), &tag())], false),
        (vec![junk.clone(), stranger(2, &[9], vector(), &tag())], false),
        (vec![elsewhere, stranger(2, &[1, 9], vector(), &tag())], false),
        (vec![junk, stranger(2, &[1, 9], vector(), &tag())], true),
    ];
    for (blocks, passes) in cases {
        for role in [Role::Acceptor, Role::Verifier] {
            for to in [1, 2] {
                let mut door = Door::new(vec![rule(role, SIGN, &[PAYLOAD])]);
                let delivered = door.receive(&plain(to, blocks.clone()));
                assert_eq!(delivered, None, "{blocks:?}");
                let is_passed = role == Role::Verifier && to == 2 && passes;
                assert_eq!(door.forwards(), usize::from(is_passed), "{role:?} {blocks:?}");
                assert_eq!(door.statistics().insecure, u64::from(!is_passed));
            }
        }
    }
    // The primary block is never encrypted, with or without a rule.
    let primary = vec![stranger(2, &[0], vector(), &tag())];
    for rules in [vec![], vec![rule(Role::Verifier, SIGN, &[0])]] {
        for to in [1, 2] {
            let mut door = Door::new(rules.clone());
            assert_eq!(door.receive(&plain(to, primary.clone())), None);
            assert_eq!(door.forwards(), 0);
        }
    }
}

/// Requirements: C13g.
#[test]
fn a_scope_below_that_of_the_rule_is_a_missing_operation() {
    for operation in [SIGN, HIDE] {
        for least in 0..8 {
            for scope in 0..8 {
                let scope_of = Scope::from_flags;
                let demanded = rule(Role::Acceptor, operation, &[PAYLOAD]);
                let demanded = Rule { scope: scope_of(least), ..demanded };
                let sent = genuine(std::slice::from_ref(&demanded), 1, scope_of(scope), 1);
                let mut door = Door::new(vec![demanded]);
                let delivered = door.receive(&sent.draft.write());
                assert_eq!(delivered.is_some(), scope & least == least, "{least} {scope}");
            }
        }
    }
}
