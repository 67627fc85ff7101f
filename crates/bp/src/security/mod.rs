//! Security of version 7 bundles (RFC 9172) with the contexts of RFC 9173: operations that a node
//! adds, checks and removes.
//!
//! [`Opened`] is a bundle in memory, with each operation by itself; a [`Policy`] decides which of
//! them a node applies to which bundles. Hashes and ciphers come from the RustCrypto crates.
//!
//! A payload is protected and checked in memory: unauthenticated plaintext is never passed on. A
//! policy therefore bounds the payloads to which it applies. Fragments are neither protected nor
//! checked (RFC 9172 §5.2): the reassembled bundle is.
//!
//! An initialization vector is 96 random bits, drawn when the node begins, plus a counter of
//! vectors since. Uniqueness for a key relies on the driver's random numbers; in the simulator the
//! same seed gives the same vectors.

mod blocks;
mod cipher;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use engine::Rng;

pub use self::blocks::{Added, Opened};
use super::pattern::Pattern;
use crate::codec::bp7::{BlockFlags, Eid, PAYLOAD, PAYLOAD_NUMBER, PRIMARY_NUMBER, Reason};
use crate::codec::bpsec::{
    AesGcm, AesVariant, CONFIDENTIALITY, HmacSha2, INTEGRITY, Scope, SecurityBlock, ShaVariant,
};

/// Security policy of a node.
#[derive(Clone, Debug)]
pub struct Policy {
    /// Rules; for each operation the first matching one counts.
    pub rules: Vec<Rule>,
    /// Keys, by their names in rules.
    pub keys: BTreeMap<String, Key>,
    /// Longest payload of bundles to which rules apply, in bytes; longer ones are refused. The
    /// default has room for a part of a file of 64 MiB.
    pub payload_max: u64,
}

impl Default for Policy {
    fn default() -> Self {
        Self { rules: Vec::new(), keys: BTreeMap::new(), payload_max: 80 << 20 }
    }
}

/// Rule for some blocks of some bundles.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// Role of this node.
    pub role: Role,
    /// The operation.
    pub operation: Operation,
    /// Sources of the bundles.
    pub source: Pattern,
    /// Destinations of the bundles.
    pub destination: Pattern,
    /// Block types of the targets; 0 is the primary block, 1 the payload.
    pub targets: Vec<u64>,
    /// Name of the key.
    pub key: String,
    /// Data protected in addition to the target; at verifiers and acceptors, the least that must
    /// be.
    pub scope: Scope,
    /// Action on a bundle that fails the rule.
    pub on_fault: OnFault,
}

/// Role of a node for an operation (RFC 9172 §2.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Adds it, to bundles that lack it.
    Source,
    /// Checks it.
    Verifier,
    /// Checks and removes it.
    Acceptor,
}

/// A security operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// BIB-HMAC-SHA2. Verifiers take the hash from the block.
    Integrity(ShaVariant),
    /// BCB-AES-GCM. Decryption takes the key length from the block.
    Confidentiality(AesVariant),
}

impl Operation {
    const fn kind(self) -> u64 {
        match self {
            Self::Integrity(_) => INTEGRITY,
            Self::Confidentiality(_) => CONFIDENTIALITY,
        }
    }
}

/// Action on a bundle with a fault.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnFault {
    /// Deletes the bundle, with a status report if requested.
    #[default]
    Delete,
    /// Removes the target block; if that is the primary block or the payload, deletes the bundle.
    Strip,
    /// Forwards it unchanged.
    Pass,
}

/// Security fault of a bundle (RFC 9172 §7.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// A required operation is missing.
    Missing,
    /// A context, a parameter or a key is unknown.
    Unknown,
    /// The target was changed after it was protected.
    Failed,
    /// Operations contradict each other.
    Conflicting,
}

impl Fault {
    /// Reason code for status reports.
    #[must_use]
    pub const fn reason(self) -> Reason {
        match self {
            Self::Missing => Reason::MissingSecurity,
            Self::Unknown => Reason::UnknownSecurity,
            Self::Failed => Reason::FailedSecurity,
            Self::Conflicting => Reason::ConflictingSecurity,
        }
    }
}

/// Security fault of a bundle, and the violated rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Number of the rule, from 1 on; none if this node could not add an operation.
    pub rule: Option<u32>,
    /// The fault.
    pub fault: Fault,
}

impl From<Fault> for Violation {
    fn from(fault: Fault) -> Self {
        Self { rule: None, fault }
    }
}

/// A key; its `Debug` output hides it.
#[derive(Clone, PartialEq, Eq)]
pub struct Key {
    bytes: Box<[u8]>,
    wraps: bool,
}

impl Key {
    /// A key that protects blocks.
    #[must_use]
    pub fn new(bytes: &[u8]) -> Self {
        Self { bytes: bytes.into(), wraps: false }
    }

    /// A key of 16 or 32 bytes that wraps others (RFC 3394): each block carries its own wrapped
    /// key.
    #[must_use]
    pub fn wrapping(bytes: &[u8]) -> Self {
        Self { bytes: bytes.into(), wraps: true }
    }

    /// The key of a block that carries this wrapped one.
    fn open(&self, wrapped: Option<&[u8]>) -> Option<Vec<u8>> {
        match wrapped {
            Some(wrapped) => cipher::unwrap(&self.bytes, wrapped),
            None if self.wraps => None,
            None => Some(self.bytes.to_vec()),
        }
    }

    /// Key for one block of this number.
    fn for_block(&self, number: &[u8], len: usize) -> Option<BlockKey> {
        if !self.wraps {
            return Some(BlockKey { bytes: self.bytes.to_vec(), wrapped: None });
        }
        // The wrapping key supplies the randomness: the number alone does not reveal the key.
        let pieces = [b"slowlight: the key of a block", number];
        let bytes = cipher::authenticate(ShaVariant::Sha512, &self.bytes, pieces)[..len].to_vec();
        let wrapped = cipher::wrap(&self.bytes, &bytes)?;
        Some(BlockKey { bytes, wrapped: Some(wrapped.into()) })
    }
}

/// Key of one block, and its wrapped form.
struct BlockKey {
    bytes: Vec<u8>,
    wrapped: Option<Box<[u8]>>,
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Key").field("wraps", &self.wraps).finish_non_exhaustive()
    }
}

/// Unique initialization vectors.
#[derive(Clone, Debug)]
pub struct Vectors {
    next: u128,
}

impl Vectors {
    /// Vectors that begin at a random one.
    #[must_use]
    pub fn new(rng: &mut Rng) -> Self {
        Self { next: u128::from(rng.next_u64()) << 64 | u128::from(rng.next_u64()) }
    }

    fn draw(&mut self) -> [u8; cipher::IV_LEN] {
        self.next = self.next.wrapping_add(1);
        let bytes = self.next.to_be_bytes();
        // The lower 96 bits.
        std::array::from_fn(|n| bytes[n + 16 - cipher::IV_LEN])
    }
}

impl Policy {
    /// Whether a rule applies to a bundle between these endpoints: only then it is needed in
    /// memory.
    #[must_use]
    pub fn concerns(&self, source: &Eid, destination: &Eid) -> bool {
        self.rules.iter().any(|rule| rule.is_about(source, destination))
    }

    /// Adds the operations of this node (RFC 9172 §5), integrity before confidentiality.
    ///
    /// # Errors
    ///
    /// A key is missing or does not fit, or a block of another node conflicts.
    pub fn protect(
        &self,
        opened: &mut Opened,
        node: &Eid,
        vectors: &mut Vectors,
    ) -> Result<(), Fault> {
        // The primary block loses its CRC when it is signed, so before other signatures cover it.
        let steps = [(INTEGRITY, true), (INTEGRITY, false), (CONFIDENTIALITY, false)];
        for (kind, is_first) in steps {
            let of_kind = |rule: &&Rule| rule.role == Role::Source && rule.operation.kind() == kind;
            for rule in self.rules.iter().filter(of_kind) {
                if !rule.concerns(opened) {
                    continue;
                }
                let key = self.keys.get(&rule.key).ok_or(Fault::Unknown)?;
                for target in rule.targets_in(opened) {
                    if kind == INTEGRITY && is_first != (target == PRIMARY_NUMBER) {
                        continue;
                    }
                    // The node that encrypted it took care of its integrity, too.
                    let is_encrypted = opened.protects(CONFIDENTIALITY, target);
                    if is_encrypted || opened.protects(kind, target) {
                        continue;
                    }
                    add(opened, rule, key, target, node, vectors)?;
                }
            }
        }
        Ok(())
    }

    /// Decrypts, checks and removes operations (RFC 9172 §5.1). `is_destination` if the bundle is
    /// delivered here: then verifiers are acceptors, because no other node follows. Returns the
    /// numbers, from 1 on, of the rules of which all operations succeeded here.
    ///
    /// An operation that a rule demands is missing unless it succeeded here. There is one
    /// exception: a verifier on the path cannot check the signature of a block if both are
    /// encrypted.
    ///
    /// # Errors
    ///
    /// The rule that requires the deletion of the bundle, and the fault.
    pub fn check(
        &self,
        opened: &mut Opened,
        is_destination: bool,
    ) -> Result<BTreeSet<u32>, Violation> {
        let mut passed = BTreeSet::new();
        let (mut settled, mut faulty) = (BTreeSet::new(), BTreeSet::new());
        for kind in [CONFIDENTIALITY, INTEGRITY] {
            for (number, content) in opened.security(kind) {
                for target in content.targets.iter().map(|of| of.target) {
                    let Some((at, rule)) = self.rule_for(opened, kind, &content, target) else {
                        continue;
                    };
                    settled.insert((kind, target));
                    let takes_off = is_destination || rule.role == Role::Acceptor;
                    let done = self.check_one(opened, rule, takes_off, number, &content, target);
                    match done {
                        Ok(()) => passed.insert(at),
                        Err(_) => faulty.insert(at),
                    };
                    settle(opened, at, rule, target, done)?;
                }
            }
        }
        for (at, rule) in (1..).zip(&self.rules) {
            if rule.role == Role::Source || !rule.concerns(opened) {
                continue;
            }
            let kind = rule.operation.kind();
            for target in rule.targets_in(opened) {
                if settled.contains(&(kind, target)) {
                    continue;
                }
                faulty.insert(at);
                let may_pass = kind == INTEGRITY && rule.role == Role::Verifier && !is_destination;
                if !(may_pass && opened.hides_signature(target)) {
                    settle(opened, at, rule, target, Err(Fault::Missing))?;
                }
            }
        }
        Ok(&passed - &faulty)
    }

    /// Fault of a bundle that cannot carry operations of RFC 9172, as one of version 6: an
    /// operation that a rule requires is missing. `has` returns whether the bundle has a block of a
    /// type.
    ///
    /// # Errors
    ///
    /// A rule for one of these roles requires an operation, and does not pass faults.
    pub fn check_unprotected(
        &self,
        roles: &[Role],
        source: &Eid,
        destination: &Eid,
        has: impl Fn(u64) -> bool,
    ) -> Result<(), Violation> {
        let requires = |(_, rule): &(u32, &Rule)| match rule.on_fault {
            OnFault::Pass => false,
            OnFault::Delete | OnFault::Strip => {
                roles.contains(&rule.role)
                    && rule.is_about(source, destination)
                    && rule.targets.iter().any(|kind| matches!(*kind, 0 | PAYLOAD) || has(*kind))
            }
        };
        match (1..).zip(&self.rules).find(requires) {
            Some((at, _)) => Err(Violation { rule: Some(at), fault: Fault::Missing }),
            None => Ok(()),
        }
    }

    /// Rule by which this node checks an operation, and its number. An encrypted BIB is handled
    /// with its target.
    fn rule_for(
        &self,
        opened: &Opened,
        kind: u64,
        content: &SecurityBlock,
        target: u64,
    ) -> Option<(u32, &Rule)> {
        let is_integrity = |number: u64| {
            opened
                .head
                .blocks()
                .iter()
                .any(|block| block.number() == number && block.kind() == INTEGRITY)
        };
        let mut checks = (1..).zip(&self.rules).filter(|(_, rule)| {
            rule.role != Role::Source && rule.operation.kind() == kind && rule.concerns(opened)
        });
        checks.find(|(_, rule)| {
            let here = rule.targets_in(opened);
            if kind == CONFIDENTIALITY && is_integrity(target) {
                content.targets.len() == 1
                    || content.targets.iter().any(|of| here.contains(&of.target))
            } else {
                here.contains(&target)
            }
        })
    }

    /// Checks an operation, and removes it if `takes_off`.
    fn check_one(
        &self,
        opened: &mut Opened,
        rule: &Rule,
        takes_off: bool,
        number: u64,
        content: &SecurityBlock,
        target: u64,
    ) -> Result<(), Fault> {
        let key = self.keys.get(&rule.key).ok_or(Fault::Unknown)?;
        rule.check_covered(content, target)?;
        match rule.operation {
            Operation::Integrity(_) => opened.check_integrity(number, content, target, key)?,
            Operation::Confidentiality(_) if takes_off => {
                opened.decrypt(number, content, target, key)?;
            }
            Operation::Confidentiality(_) => {
                opened.decrypted(number, content, target, key)?;
            }
        }
        if takes_off {
            opened.take_off(number, target)?;
        }
        Ok(())
    }
}

/// Applies the action for the result of an operation.
fn settle(
    opened: &mut Opened,
    at: u32,
    rule: &Rule,
    target: u64,
    done: Result<(), Fault>,
) -> Result<(), Violation> {
    let violation = |fault| Violation { rule: Some(at), fault };
    match (done, rule.on_fault) {
        (Ok(()), _) | (Err(_), OnFault::Pass) => Ok(()),
        (Err(fault), OnFault::Strip) if !matches!(target, PRIMARY_NUMBER | PAYLOAD_NUMBER) => {
            for kind in [INTEGRITY, CONFIDENTIALITY] {
                for (number, content) in opened.security(kind) {
                    if content.results(target).is_some() {
                        opened.take_off(number, target).map_err(violation)?;
                    }
                }
            }
            opened.head.remove_block(target).then_some(()).ok_or_else(|| violation(fault))
        }
        (Err(fault), OnFault::Delete | OnFault::Strip) => Err(violation(fault)),
    }
}

/// Adds one operation.
fn add(
    opened: &mut Opened,
    rule: &Rule,
    key: &Key,
    target: u64,
    node: &Eid,
    vectors: &mut Vectors,
) -> Result<(), Fault> {
    let iv = vectors.draw();
    let number = opened.head.free_number();
    // Every fragment needs to show that its payload is encrypted (RFC 9172 §3.8), and why its
    // primary block has no CRC (RFC 9171 §4.3.1).
    let flags = match (rule.operation, target) {
        (Operation::Confidentiality(_), PAYLOAD_NUMBER)
        | (Operation::Integrity(_), PRIMARY_NUMBER) => BlockFlags::REPLICATE,
        (Operation::Confidentiality(_) | Operation::Integrity(_), _) => BlockFlags::default(),
    };
    let targets = [target];
    let added = Added { number, flags, targets: &targets, source: node };
    match rule.operation {
        Operation::Integrity(variant) => {
            let key = key.for_block(&iv, variant.mac_len()).ok_or(Fault::Unknown)?;
            let wrapped_key = key.wrapped;
            let parameters = HmacSha2 { variant, wrapped_key, scope: rule.scope };
            opened.add_integrity(&added, &parameters, &key.bytes)
        }
        Operation::Confidentiality(variant) => {
            // A signature of encrypted data must not reveal the plaintext (RFC 9172 §3.9).
            let signed = opened.security(INTEGRITY).into_iter();
            let signed: Vec<_> =
                signed.filter(|(_, content)| content.results(target).is_some()).collect();
            if signed.iter().any(|(_, content)| content.targets.len() > 1) {
                return Err(Fault::Conflicting);
            }
            let content_key = key.for_block(&iv, variant.key_len()).ok_or(Fault::Unknown)?;
            let (iv, wrapped_key) = (iv.into(), content_key.wrapped);
            let parameters = AesGcm { iv, variant, wrapped_key, scope: rule.scope };
            opened.add_confidentiality(&added, &parameters, &content_key.bytes)?;
            for (number, _) in signed {
                if !opened.protects(CONFIDENTIALITY, number) {
                    add(opened, rule, key, number, node, vectors)?;
                }
            }
            Ok(())
        }
    }
}

impl Rule {
    /// Whether the rule applies to a bundle's source and destination.
    fn concerns(&self, opened: &Opened) -> bool {
        let primary = opened.head.primary();
        self.is_about(&primary.source, &primary.destination)
    }

    fn is_about(&self, source: &Eid, destination: &Eid) -> bool {
        self.source.matches(source) && self.destination.matches(destination)
    }

    /// Numbers of the targets in a bundle.
    fn targets_in(&self, opened: &Opened) -> Vec<u64> {
        let numbers = |kind: &u64| match *kind {
            0 => vec![PRIMARY_NUMBER],
            kind => opened.numbers_of(kind),
        };
        self.targets.iter().flat_map(numbers).collect()
    }

    /// Checks that an operation protects as much as the rule requires. The primary block, which has
    /// no header, is protected as a target.
    fn check_covered(&self, content: &SecurityBlock, target: u64) -> Result<(), Fault> {
        let scope = match self.operation {
            Operation::Integrity(_) => HmacSha2::from_block(content).map(|it| it.scope),
            Operation::Confidentiality(_) => AesGcm::from_block(content).map(|it| it.scope),
        };
        let scope = scope.map_err(|_| Fault::Unknown)?;
        let least = match target {
            PRIMARY_NUMBER => Scope { primary: false, target_header: false, ..self.scope },
            _ => self.scope,
        };
        scope.contains(least).then_some(()).ok_or(Fault::Missing)
    }
}
