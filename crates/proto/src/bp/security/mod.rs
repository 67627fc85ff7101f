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
use wire::bp7::{BlockFlags, Eid, PAYLOAD, PAYLOAD_NUMBER, PRIMARY_NUMBER, Reason};
use wire::bpsec::{
    AesGcm, AesVariant, CONFIDENTIALITY, HmacSha2, INTEGRITY, Scope, SecurityBlock, ShaVariant,
};

pub use self::blocks::{Added, Opened};
use super::agent::Pattern;

/// Security policy of a node.
#[derive(Clone, Debug)]
pub struct Policy {
    /// Rules; for each operation the first matching one counts.
    pub rules: Vec<Rule>,
    /// Keys, by their names in rules.
    pub keys: BTreeMap<String, Key>,
    /// Longest payload of bundles to which rules apply, in bytes; longer ones are refused.
    pub payload_max: u64,
}

impl Default for Policy {
    fn default() -> Self {
        Self { rules: Vec::new(), keys: BTreeMap::new(), payload_max: 64 << 20 }
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
    /// Data protected in addition to the target, if this node is the source.
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

    /// Adds the operations of this node (RFC 9172 §5), integrity before confidentiality; returns
    /// whether there were any.
    ///
    /// # Errors
    ///
    /// A key is missing or does not fit, or a block of another node conflicts.
    pub fn protect(
        &self,
        opened: &mut Opened,
        node: &Eid,
        vectors: &mut Vectors,
    ) -> Result<bool, Fault> {
        let mut has_changed = false;
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
                    has_changed = true;
                }
            }
        }
        Ok(has_changed)
    }

    /// Decrypts, checks and removes operations (RFC 9172 §5.1); returns whether the bundle was
    /// changed.
    ///
    /// # Errors
    ///
    /// The fault for which the bundle is to be deleted.
    pub fn receive(&self, opened: &mut Opened) -> Result<bool, Fault> {
        self.receive_noting(opened, &mut BTreeSet::new())
    }

    /// As [`Policy::receive`]. Adds the numbers, from 1 on, of the rules whose operations the
    /// bundle passed.
    ///
    /// # Errors
    ///
    /// The fault for which the bundle is to be deleted.
    pub fn receive_noting(
        &self,
        opened: &mut Opened,
        passed: &mut BTreeSet<u32>,
    ) -> Result<bool, Fault> {
        let mut has_changed = false;
        let mut checked = Vec::new();
        for kind in [CONFIDENTIALITY, INTEGRITY] {
            for (number, content) in opened.security(kind) {
                for target in content.targets.iter().map(|of| of.target) {
                    let Some((at, rule)) = self.rule_for(opened, kind, &content, target) else {
                        continue;
                    };
                    checked.push((kind, target));
                    let done = self.receive_one(opened, rule, number, &content, target);
                    if done.is_ok() {
                        passed.insert(at);
                    }
                    has_changed |= settle(opened, rule, target, done)?;
                }
            }
        }
        for rule in self.rules.iter().filter(|rule| rule.role != Role::Source) {
            if !rule.concerns(opened) {
                continue;
            }
            let kind = rule.operation.kind();
            for target in rule.targets_in(opened) {
                // A node that cannot decrypt cannot see encrypted signatures.
                let is_hidden = kind == INTEGRITY && opened.protects(CONFIDENTIALITY, target);
                if !is_hidden && !checked.contains(&(kind, target)) {
                    has_changed |= settle(opened, rule, target, Err(Fault::Missing))?;
                }
            }
        }
        Ok(has_changed)
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
        (source, destination): (&Eid, &Eid),
        has: impl Fn(u64) -> bool,
    ) -> Result<(), Fault> {
        let requires = |rule: &&Rule| match rule.on_fault {
            OnFault::Pass => false,
            OnFault::Delete | OnFault::Strip => {
                roles.contains(&rule.role)
                    && rule.is_about(source, destination)
                    && rule.targets.iter().any(|kind| matches!(*kind, 0 | PAYLOAD) || has(*kind))
            }
        };
        match self.rules.iter().find(requires) {
            Some(_) => Err(Fault::Missing),
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
            match kind == CONFIDENTIALITY && is_integrity(target) {
                true => {
                    content.targets.len() == 1
                        || content.targets.iter().any(|of| here.contains(&of.target))
                }
                false => here.contains(&target),
            }
        })
    }

    fn receive_one(
        &self,
        opened: &mut Opened,
        rule: &Rule,
        number: u64,
        content: &SecurityBlock,
        target: u64,
    ) -> Result<bool, Fault> {
        let key = self.keys.get(&rule.key).ok_or(Fault::Unknown)?;
        let takes_off = match rule.role {
            Role::Source | Role::Verifier => false,
            Role::Acceptor => true,
        };
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
        Ok(takes_off)
    }
}

/// Applies the action for the result of an operation; returns whether the bundle was changed.
fn settle(
    opened: &mut Opened,
    rule: &Rule,
    target: u64,
    done: Result<bool, Fault>,
) -> Result<bool, Fault> {
    match (done, rule.on_fault) {
        (Ok(has_changed), _) => Ok(has_changed),
        (Err(_), OnFault::Pass) => Ok(false),
        (Err(fault), OnFault::Strip) if !matches!(target, PRIMARY_NUMBER | PAYLOAD_NUMBER) => {
            for kind in [INTEGRITY, CONFIDENTIALITY] {
                for (number, content) in opened.security(kind) {
                    if content.results(target).is_some() {
                        opened.take_off(number, target)?;
                    }
                }
            }
            opened.head.remove_block(target).then_some(true).ok_or(fault)
        }
        (Err(fault), OnFault::Delete | OnFault::Strip) => Err(fault),
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
        let number = |kind: &u64| match *kind {
            0 => Some(PRIMARY_NUMBER),
            kind => opened.number_of(kind),
        };
        self.targets.iter().filter_map(number).collect()
    }
}
