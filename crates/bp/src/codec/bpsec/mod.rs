//! Bundle Protocol Security (RFC 9172): the data of integrity and confidentiality blocks, and the
//! two contexts of RFC 9173. Layouts only: nothing is hashed or encrypted here.
//!
//! The data of such a block are consecutive CBOR items, without an array around them:
//!
//! | item | field |
//! |---|---|
//! | array | security targets: numbers of blocks |
//! | number | security context |
//! | number | flags: 1 if parameters follow |
//! | endpoint | security source |
//! | array | parameters, if flagged: arrays of a number and a value |
//! | array | results: for each target an array of arrays of a number and a value |

mod context;
mod input;
#[cfg(test)]
mod tests;

use wire::cursor::Reader;
use wire::{DecodeError, EncodeError};

pub use self::context::{
    AES_GCM, AesGcm, AesVariant, HMAC_SHA2, HmacSha2, Scope, ShaVariant, TAG_LEN,
};
pub use self::input::{BlockHeader, Target, additional_data, integrity_input};

use crate::codec::cbor::{self, Array};
use crate::codec::eid::{self, Eid};

/// Block type: integrity (BIB).
pub const INTEGRITY: u64 = 11;
/// Block type: confidentiality (BCB).
pub const CONFIDENTIALITY: u64 = 12;

const HAS_PARAMETERS: u64 = 1;

/// Limits of the decoder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Maximum security targets.
    pub targets_max: usize,
    /// Maximum parameters, and results of a target.
    pub items_max: usize,
    /// Maximum bytes of the security source's text.
    pub eid_max: usize,
}

impl Default for Bounds {
    fn default() -> Self {
        Self { targets_max: 64, items_max: 16, eid_max: eid::LEN_MAX }
    }
}

/// Parameter or result; its meaning depends on the security context.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Item {
    /// Identifier.
    pub id: u64,
    /// Value, one item of CBOR.
    pub value: Box<[u8]>,
}

/// The abstract security block (§3.6): the data of a BIB or BCB.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SecurityBlock {
    /// Target blocks, at least one and without duplicates, with the results of each.
    pub targets: Vec<TargetResults>,
    /// Security context; negative numbers are for private use.
    pub context: i64,
    /// Node that added the block.
    pub source: Eid,
    /// Parameters of the context.
    pub parameters: Vec<Item>,
}

/// Security target and its results.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TargetResults {
    /// Block number of the target; 0 is the primary block.
    pub target: u64,
    /// Results.
    pub results: Vec<Item>,
}

impl SecurityBlock {
    /// Decodes the data of a block.
    ///
    /// # Errors
    /// The bytes are malformed, or exceed a bound.
    pub fn decode(data: &[u8], bounds: &Bounds) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(data);
        let targets = read_targets(&mut reader, bounds)?;
        let context = cbor::int(&mut reader)?;
        let flags = cbor::uint(&mut reader)?;
        let source = Eid::read(&mut reader, bounds.eid_max)?;
        let parameters = match flags & HAS_PARAMETERS {
            0 => Vec::new(),
            _ => read_items(&mut reader, bounds)?,
        };
        let at = reader.offset();
        let mut array = Array::begin(&mut reader)?;
        let mut with_results = Vec::with_capacity(targets.len());
        for target in targets {
            if !array.more(&mut reader)? {
                return Err(DecodeError::invalid(at, "a security target has no results"));
            }
            with_results.push(TargetResults { target, results: read_items(&mut reader, bounds)? });
        }
        array.end(&mut reader)?;
        reader.finish()?;
        Ok(Self { targets: with_results, context, source, parameters })
    }

    /// Encodes the data of a block.
    ///
    /// # Errors
    /// There is no target, one is duplicate, or the source cannot be encoded in bundles of version
    /// 7.
    pub fn to_vec(&self) -> Result<Vec<u8>, EncodeError> {
        let numbers = || self.targets.iter().map(|target| target.target);
        let twice =
            numbers().enumerate().any(|(i, number)| numbers().skip(i + 1).any(|n| n == number));
        if self.targets.is_empty() || twice {
            return Err(EncodeError::Conflict("a security block has targets, each of them once"));
        }
        let mut out = Vec::new();
        cbor::put_array(&mut out, self.targets.len());
        numbers().for_each(|number| cbor::put_uint(&mut out, number));
        cbor::put_int(&mut out, self.context);
        cbor::put_uint(&mut out, if self.parameters.is_empty() { 0 } else { HAS_PARAMETERS });
        self.source.write(&mut out)?;
        if !self.parameters.is_empty() {
            write_items(&mut out, &self.parameters);
        }
        cbor::put_array(&mut out, self.targets.len());
        for target in &self.targets {
            write_items(&mut out, &target.results);
        }
        Ok(out)
    }

    /// Returns the results of a target.
    #[must_use]
    pub fn results(&self, target: u64) -> Option<&[Item]> {
        let found = self.targets.iter().find(|results| results.target == target)?;
        Some(&found.results)
    }
}

fn read_targets(reader: &mut Reader<'_>, bounds: &Bounds) -> Result<Vec<u64>, DecodeError> {
    let mut targets = Vec::new();
    let start = reader.offset();
    let mut array = Array::begin(reader)?;
    while array.more(reader)? {
        let at = reader.offset();
        let number = cbor::uint(reader)?;
        if targets.len() >= bounds.targets_max {
            return Err(DecodeError::invalid(at, "there are more security targets than the bound"));
        }
        if targets.contains(&number) {
            return Err(DecodeError::invalid(at, "duplicate security target"));
        }
        targets.push(number);
    }
    if targets.is_empty() {
        return Err(DecodeError::invalid(start, "no security target"));
    }
    Ok(targets)
}

fn read_items(reader: &mut Reader<'_>, bounds: &Bounds) -> Result<Vec<Item>, DecodeError> {
    let mut items = Vec::new();
    let mut array = Array::begin(reader)?;
    while array.more(reader)? {
        let at = reader.offset();
        if items.len() >= bounds.items_max {
            let what = "there are more parameters or results than the bound";
            return Err(DecodeError::invalid(at, what));
        }
        let mut pair = Array::begin(reader)?;
        let id = pair.uint(reader)?;
        let value = pair.read(reader, cbor::item)?.into();
        pair.end(reader)?;
        items.push(Item { id, value });
    }
    Ok(items)
}

fn write_items(out: &mut Vec<u8>, items: &[Item]) {
    cbor::put_array(out, items.len());
    for item in items {
        cbor::put_array(out, 2);
        cbor::put_uint(out, item.id);
        out.extend_from_slice(&item.value);
    }
}

impl Item {
    /// Creates an item from a number.
    #[must_use]
    pub fn uint(id: u64, value: u64) -> Self {
        let mut out = Vec::new();
        cbor::put_uint(&mut out, value);
        Self { id, value: out.into() }
    }

    /// Creates an item from a byte string.
    #[must_use]
    pub fn bytes(id: u64, bytes: &[u8]) -> Self {
        let mut out = Vec::new();
        cbor::put_bytes(&mut out, bytes);
        Self { id, value: out.into() }
    }

    /// Decodes the value as a number.
    ///
    /// # Errors
    /// The item is of another type; offsets count from the start of the value.
    pub fn to_uint(&self) -> Result<u64, DecodeError> {
        let mut reader = Reader::new(&self.value);
        let value = cbor::uint(&mut reader)?;
        reader.finish()?;
        Ok(value)
    }

    /// Decodes the value as a byte string.
    ///
    /// # Errors
    /// The item is of another type; offsets count from the start of the value.
    pub fn to_bytes(&self) -> Result<&[u8], DecodeError> {
        let mut reader = Reader::new(&self.value);
        let bytes = cbor::bytes(&mut reader)?;
        reader.finish()?;
        Ok(bytes)
    }
}
