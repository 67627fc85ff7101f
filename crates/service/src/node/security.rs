//! Security of bundles, configured by a node's file.

use std::collections::BTreeMap;
use std::path::PathBuf;

use bp::codec::bpsec::{AesVariant, Scope, ShaVariant};
use bp::security::{self, Key, OnFault, Operation, Policy};
use serde::{Deserialize, Serialize};
use transport::settings::keys::bytes_of;
use transport::text::{SpecError, did_you_mean};

use super::pattern;

/// A key that protects blocks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KeySpec {
    /// File with the key in hexadecimal digits.
    pub file: PathBuf,
    /// Whether it wraps a fresh key for each block.
    #[serde(default)]
    pub wraps: bool,
}

/// A security rule for blocks of bundles (RFC 9172).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rule {
    /// Role of this node.
    pub role: Role,
    /// Security operation.
    pub operation: What,
    /// Size of the hash (256, 384, 512) or the key (128, 256), in bits.
    pub bits: Option<u16>,
    /// Sources of the bundles: a node, an endpoint, or `*`.
    #[serde(default = "all")]
    pub from: String,
    /// Destinations of the bundles.
    #[serde(default = "all")]
    pub to: String,
    /// Types of the protected blocks: 0 is the primary block, 1 the payload.
    #[serde(default = "payload")]
    pub targets: Vec<u64>,
    /// Name of the key.
    pub key: String,
    /// Scope flags (RFC 9173 §3.3.3), protected in addition to the target: 1 the primary block, 2
    /// the target's header, 4 the security block's. Verifiers and acceptors demand at least these.
    #[serde(default = "scope")]
    pub scope: u8,
    /// Action on a bundle that fails the check.
    #[serde(default)]
    pub fault: Fault,
}

/// Role of a node in an operation (RFC 9172 §2.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Role {
    /// Adds the security block.
    Source,
    /// Checks it.
    Verifier,
    /// Checks it and removes it.
    Acceptor,
}

/// A security operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum What {
    /// BIB-HMAC-SHA2.
    Integrity,
    /// BCB-AES-GCM.
    Confidentiality,
}

/// Action on a bundle that fails the check.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Fault {
    /// Deletes the bundle.
    #[default]
    Delete,
    /// Removes the block.
    Strip,
    /// Forwards the bundle.
    Pass,
}

fn all() -> String {
    "*".to_owned()
}

fn payload() -> Vec<u64> {
    vec![1]
}

const fn scope() -> u8 {
    7
}

impl Rule {
    pub(super) fn check(&self, keys: &BTreeMap<String, KeySpec>) -> Result<(), SpecError> {
        if !keys.contains_key(&self.key) {
            let near = did_you_mean(&self.key, keys.keys().map(String::as_str));
            return Err(SpecError::invalid(format!(
                "security: there is no key {:?}{near} (a key is a table, [keys.{}] with its `file`)",
                self.key, self.key
            )));
        }
        if self.targets.is_empty() {
            return Err(SpecError::invalid("security.targets is empty; a rule needs a block"));
        }
        if self.scope > 7 {
            return Err(SpecError::invalid("security.scope: it is the sum of some of 1, 2 and 4"));
        }
        let encrypts_primary = self.operation == What::Confidentiality && self.targets.contains(&0);
        if encrypts_primary {
            return Err(SpecError::invalid(
                "security.targets: nodes could not read the destination in an encrypted primary \
                 block; leave out 0",
            ));
        }
        self.rule().map(|_| ())
    }

    fn rule(&self) -> Result<security::Rule, SpecError> {
        let bits = |which: &str| {
            SpecError::invalid(format!(
                "security.bits: {} has {which} bits",
                match self.operation {
                    What::Integrity => "a hash",
                    What::Confidentiality => "a key",
                }
            ))
        };
        let operation = match (self.operation, self.bits) {
            (What::Integrity, Some(256)) => Operation::Integrity(ShaVariant::Sha256),
            (What::Integrity, None | Some(384)) => Operation::Integrity(ShaVariant::Sha384),
            (What::Integrity, Some(512)) => Operation::Integrity(ShaVariant::Sha512),
            (What::Confidentiality, Some(128)) => Operation::Confidentiality(AesVariant::Aes128),
            (What::Confidentiality, None | Some(256)) => {
                Operation::Confidentiality(AesVariant::Aes256)
            }
            (What::Integrity, Some(_)) => return Err(bits("256, 384 or 512")),
            (What::Confidentiality, Some(_)) => return Err(bits("128 or 256")),
        };
        Ok(security::Rule {
            role: match self.role {
                Role::Source => security::Role::Source,
                Role::Verifier => security::Role::Verifier,
                Role::Acceptor => security::Role::Acceptor,
            },
            operation,
            source: pattern("security.from", &self.from)?,
            destination: pattern("security.to", &self.to)?,
            targets: self.targets.clone(),
            key: self.key.clone(),
            scope: Scope::from_flags(u64::from(self.scope)),
            on_fault: match self.fault {
                Fault::Delete => OnFault::Delete,
                Fault::Strip => OnFault::Strip,
                Fault::Pass => OnFault::Pass,
            },
        })
    }

    /// Length of the key in bytes, if the operation defines it; a hash takes any.
    fn key_len(&self) -> Option<usize> {
        match (self.operation, self.bits) {
            (What::Integrity, _) => None,
            (What::Confidentiality, bits) => Some(usize::from(bits.unwrap_or(256)) / 8),
        }
    }
}

/// Returns the agent's rules, and the keys read from their files.
pub(super) fn policy(
    rules: &[Rule],
    specs: &BTreeMap<String, KeySpec>,
    bytes_max: u64,
) -> Result<Policy, SpecError> {
    let mut keys = BTreeMap::new();
    for (name, KeySpec { file, wraps }) in specs {
        let wrong = |why: String| SpecError::invalid(format!("keys.{name}: {why}"));
        let bytes = bytes_of(file).map_err(wrong)?;
        rt::warn_of_readers(file);
        let wanted = rules.iter().filter(|rule| rule.key == *name && !wraps);
        for len in wanted.filter_map(Rule::key_len) {
            if bytes.len() != len {
                let have = bytes.len();
                return Err(wrong(format!(
                    "it has {have} bytes, and is used where {len} are needed"
                )));
            }
        }
        if *wraps && !matches!(bytes.len(), 16 | 32) {
            return Err(wrong("a key that wraps others has 16 or 32 bytes".to_owned()));
        }
        if bytes.is_empty() {
            return Err(wrong("it is empty".to_owned()));
        }
        let key = if *wraps { Key::wrapping(&bytes) } else { Key::new(&bytes) };
        keys.insert(name.clone(), key);
    }
    let rules = rules.iter().map(Rule::rule).collect::<Result<_, _>>()?;
    let payload_max = Policy::default().payload_max.min(bytes_max);
    Ok(Policy { rules, keys, payload_max })
}
