//! Head of a bundle of either version: the blocks before the payload, as far as an agent processes
//! them.

use bytes::Bytes;
use wire::{DecodeError, EncodeError};

use super::super::routes::Priority;
use super::config::{COPIES, Version};
use crate::codec::bp6::{self, Trailer};
use crate::codec::bp7::{
    self, BUNDLE_AGE, BlockFlags, Bounds, BundleFlags, BundleId, CrcType, CreationTimestamp, Eid,
    Extension, Fragment, HOP_COUNT, HopCount, PREVIOUS_NODE, PRIMARY_NUMBER, PayloadCrc, Reason,
};
use crate::codec::bpsec::{self, CONFIDENTIALITY, INTEGRITY, Item, SecurityBlock};

/// Types of processed version 7 blocks: the blocks of RFC 9171, and the security blocks of RFC
/// 9172, which are kept unchanged.
const KNOWN: [u64; 6] = [PREVIOUS_NODE, BUNDLE_AGE, HOP_COUNT, INTEGRITY, CONFIDENTIALITY, COPIES];
/// Types of version 6 blocks that are processed: security (RFC 6257), previous hop, custody
/// number.
const KNOWN_SIX: [u8; 6] = [2, 3, 4, 9, bp6::PREVIOUS_HOP, bp6::CUSTODY_ENHANCEMENT];

/// Hop limit of forwarded bundles without a source and a hop count.
const HOP_LIMIT: u64 = 30;

/// Longest tail of a version 7 payload, in bytes: the CRC and the ends of block and bundle take
/// seven, a few more in their longest encoding.
const TAIL_MAX: usize = 32;

/// Identity of a bundle; distinguishes fragments of different lengths and bundles of different
/// versions, too.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Key {
    pub(super) version: Version,
    pub(super) source: Eid,
    pub(super) creation: CreationTimestamp,
    /// Offset and length of a fragment.
    pub(super) fragment: Option<(u64, u64)>,
}

impl Key {
    /// The identity reported to users.
    pub(super) fn id(&self) -> BundleId {
        BundleId {
            source: self.source.clone(),
            creation: self.creation,
            offset: self.fragment.map(|(offset, _)| offset),
        }
    }

    /// Key of a bundle without a source, which no bundle has: its creation time is the last there
    /// is.
    pub(super) const fn of_number(version: Version, number: u64) -> Self {
        let creation = CreationTimestamp { time_ms: u64::MAX, sequence: number };
        Self { version, source: Eid::None, creation, fragment: None }
    }

    /// Key of the original bundle: itself, unless it is a fragment.
    pub(super) fn whole(&self) -> Self {
        Self { fragment: None, ..self.clone() }
    }
}

/// Blocks before the payload.
#[derive(Clone, Debug)]
pub(super) enum Head {
    Six(Box<bp6::Head>),
    Seven(Box<bp7::Head>),
}

/// Actions that the flags of unknown blocks require.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Unknown {
    /// Whether a block asks for a report.
    pub(super) reports: bool,
    /// Whether a block asks for the deletion of the bundle.
    pub(super) deletes: bool,
}

/// Values a node writes into a bundle that it forwards.
#[derive(Clone, Copy, Debug)]
pub(super) struct Departure<'a> {
    pub(super) node: &'a Eid,
    pub(super) age_ms: u64,
    /// Number of the bundle, if this node has custody and wants signals by number.
    pub(super) custody: Option<u64>,
    /// Hops added to the hop count.
    pub(super) hops: u8,
    /// Copies that the neighbour may give away, where copies are counted.
    pub(super) copies: Option<u32>,
    pub(super) bounds: &'a Bounds,
}

impl From<bp7::Head> for Head {
    fn from(head: bp7::Head) -> Self {
        Self::Seven(Box::new(head))
    }
}

impl From<bp6::Head> for Head {
    fn from(head: bp6::Head) -> Self {
        Self::Six(Box::new(head))
    }
}

/// Evaluates an expression on the head of either version.
macro_rules! either {
    ($self:expr, $head:ident => $value:expr) => {
        match $self {
            Self::Six($head) => $value,
            Self::Seven($head) => $value,
        }
    };
}

impl Head {
    /// Decodes a head from the beginning of a bundle; `None` if more bytes are needed.
    pub(super) fn decode(prefix: &[u8], bounds: &Bounds) -> Result<Option<Self>, DecodeError> {
        match prefix.first() {
            None => Ok(None),
            Some(&bp6::VERSION) => {
                let head = bp6::Head::decode(prefix, bounds)?;
                Ok(head.map(Into::into))
            }
            Some(_) => Ok(bp7::Head::decode(prefix, bounds)?.map(Into::into)),
        }
    }

    pub(super) fn encode(&self) -> Vec<u8> {
        either!(self, head => head.encode())
    }

    pub(super) fn encoded_len(&self) -> usize {
        either!(self, head => head.encoded_len())
    }

    /// Offset of the payload in the bytes from which the head was decoded.
    pub(super) fn payload_offset(&self) -> usize {
        match self {
            Self::Six(head) => head.encoded_len(),
            Self::Seven(head) => head.payload_offset(),
        }
    }

    pub(super) fn payload_len(&self) -> u64 {
        either!(self, head => head.payload().len)
    }

    pub(super) const fn version(&self) -> Version {
        match self {
            Self::Six(_) => Version::Six,
            Self::Seven(_) => Version::Seven,
        }
    }

    pub(super) fn key(&self) -> Key {
        let fragment = self.fragment().map(|fragment| (fragment.offset, self.payload_len()));
        let (version, source) = (self.version(), self.source().clone());
        Key { version, source, creation: self.creation(), fragment }
    }

    pub(super) const fn source(&self) -> &Eid {
        either!(self, head => &head.primary().source)
    }

    pub(super) const fn destination(&self) -> &Eid {
        either!(self, head => &head.primary().destination)
    }

    pub(super) const fn report_to(&self) -> &Eid {
        either!(self, head => &head.primary().report_to)
    }

    pub(super) const fn flags(&self) -> BundleFlags {
        either!(self, head => head.primary().flags)
    }

    /// Creation timestamp; time 0 if its node had no clock.
    pub(super) fn creation(&self) -> CreationTimestamp {
        match self {
            Self::Six(head) => head.primary().creation.into(),
            Self::Seven(head) => head.primary().creation,
        }
    }

    pub(super) const fn lifetime_ms(&self) -> u64 {
        match self {
            Self::Six(head) => head.primary().lifetime_s.saturating_mul(1000),
            Self::Seven(head) => head.primary().lifetime_ms,
        }
    }

    pub(super) const fn fragment(&self) -> Option<Fragment> {
        either!(self, head => head.primary().fragment)
    }

    /// Class of service, in version 6.
    pub(super) const fn priority(&self) -> Option<Priority> {
        match self {
            Self::Six(head) => Some(match head.primary().flags.priority() {
                bp6::Priority::Bulk => Priority::Bulk,
                bp6::Priority::Normal => Priority::Normal,
                bp6::Priority::Expedited | bp6::Priority::Reserved => Priority::Expedited,
            }),
            Self::Seven(_) => None,
        }
    }

    /// Whether the bundle has no source: it has no identity either, and is nobody's duplicate (RFC
    /// 9171 §4.2.3, RFC 5050 §4.2).
    pub(super) const fn is_anonymous(&self) -> bool {
        self.source().is_none()
    }

    /// Whether custody is requested; signals could not name a bundle without a source.
    pub(super) const fn requests_custody(&self) -> bool {
        let is_six = matches!(self, Self::Six(_));
        is_six && self.flags().contains(BundleFlags::CUSTODY) && !self.is_anonymous()
    }

    /// Current custodian.
    pub(super) const fn custodian(&self) -> &Eid {
        const NOBODY: &Eid = &Eid::None;
        match self {
            Self::Six(head) => &head.primary().custodian,
            Self::Seven(_) => NOBODY,
        }
    }

    /// Sets the custodian (RFC 5050 §5.10.1).
    pub(super) fn set_custodian(&mut self, custodian: &Eid) -> Result<(), EncodeError> {
        match self {
            Self::Six(head) => {
                let custodian = custodian.clone();
                head.set_primary(bp6::Primary { custodian, ..head.primary().clone() })
            }
            Self::Seven(_) => Err(EncodeError::Conflict("version 7 has no custody")),
        }
    }

    /// Custody number, if the bundle carries one from its current custodian.
    pub(super) fn custody_number(&self) -> Option<u64> {
        match self {
            Self::Six(head) => {
                let block = head.block_of(bp6::CUSTODY_ENHANCEMENT)?;
                let custody = bp6::CustodyEnhancement::from_block(block).ok()?;
                (custody.custodian == head.primary().custodian).then_some(custody.id)
            }
            Self::Seven(_) => None,
        }
    }

    /// Previous node, if the bundle names it.
    pub(super) fn previous_node(&self, bounds: &Bounds) -> Option<Eid> {
        match self {
            Self::Six(head) => {
                let block = head.block_of(bp6::PREVIOUS_HOP)?;
                block.to_previous_hop(head.primary()).ok()
            }
            Self::Seven(head) => match head.block_of(PREVIOUS_NODE)?.extension(bounds) {
                Ok(Extension::PreviousNode(node)) => Some(node),
                Ok(_) | Err(_) => None,
            },
        }
    }

    /// Age when it was last forwarded, if the bundle carries it.
    pub(super) fn age_ms(&self, bounds: &Bounds) -> Option<u64> {
        let Self::Seven(head) = self else { return None };
        match head.block_of(BUNDLE_AGE)?.extension(bounds) {
            Ok(Extension::BundleAge { age_ms }) => Some(age_ms),
            Ok(_) | Err(_) => None,
        }
    }

    pub(super) fn hop_count(&self, bounds: &Bounds) -> Option<HopCount> {
        let Self::Seven(head) = self else { return None };
        match head.block_of(HOP_COUNT)?.extension(bounds) {
            Ok(Extension::HopCount(hops)) => Some(hops),
            Ok(_) | Err(_) => None,
        }
    }

    /// Copies that this node may give away, as the previous node wrote.
    pub(super) fn copies(&self) -> Option<u32> {
        let Self::Seven(head) = self else { return None };
        let copies = Item { id: COPIES, value: head.block_of(COPIES)?.data().into() };
        copies.to_uint().ok().and_then(|copies| u32::try_from(copies).ok())
    }

    /// Head of the bundle as this node forwards it (RFC 9171 §5.4), with updated previous node, hop
    /// count and age.
    pub(super) fn departing(&self, departure: &Departure<'_>) -> Self {
        let mut head = self.clone();
        match &mut head {
            Self::Six(head) => depart_six(head, departure),
            Self::Seven(head) => {
                let sealed = sealed(head);
                let previous = Extension::PreviousNode(departure.node.clone());
                replace(head, PREVIOUS_NODE, &previous, true, &sealed);
                let age = Extension::BundleAge { age_ms: departure.age_ms };
                // A bundle without a creation time has an age (RFC 9171 §4.4.2).
                replace(head, BUNDLE_AGE, &age, head.primary().creation.time_ms == 0, &sealed);
                // Of a bundle without an identity only the hop count ends a loop.
                let hops = self.hop_count(departure.bounds).or_else(|| {
                    self.is_anonymous().then_some(HopCount { limit: HOP_LIMIT, count: 0 })
                });
                if let Some(HopCount { limit, count }) = hops {
                    let count = count.saturating_add(departure.hops.into()).saturating_add(1);
                    let hops = HopCount { limit, count };
                    let hops = Extension::HopCount(hops);
                    replace(head, HOP_COUNT, &hops, self.is_anonymous(), &sealed);
                }
                set_copies(head, departure.copies);
            }
        }
        head
    }

    /// Whether it may be fragmented.
    pub(super) const fn may_be_cut(&self) -> bool {
        !self.flags().contains(BundleFlags::MUST_NOT_FRAGMENT)
    }

    /// Head of a fragment with a part of the payload (RFC 9171 §5.8, RFC 5050 §5.8). Blocks to
    /// replicate go into every fragment, the others into the first.
    pub(super) fn cut_fragment(&self, start: u64, end: u64) -> Result<Self, EncodeError> {
        let (base, total) = match self.fragment() {
            Some(Fragment { offset, total }) => (offset, total),
            None => (0, self.payload_len()),
        };
        let (fragment, len) =
            (Some(Fragment { offset: base.saturating_add(start), total }), end - start);
        let is_replicated = |flags: BlockFlags| start == 0 || flags.contains(BlockFlags::REPLICATE);
        match self {
            Self::Six(head) => {
                let primary = bp6::Primary { fragment, ..head.primary().clone() };
                let goes = |block: &&bp6::Block| is_replicated(block.flags());
                let blocks = head.blocks().iter().filter(goes).cloned().collect();
                let mut payload = bp6::Payload { len, ..head.payload().clone() };
                if end < self.payload_len() {
                    payload.flags = payload.flags.with(BlockFlags::LAST);
                }
                bp6::Head::new(primary, blocks, payload).map(Into::into)
            }
            Self::Seven(head) => {
                let primary = bp7::Primary { fragment, ..head.primary().clone() };
                let goes = |block: &&bp7::Block| is_replicated(block.flags());
                let blocks = head.blocks().iter().filter(goes).cloned().collect();
                let payload = bp7::Payload { len, ..head.payload() };
                bp7::Head::new(primary, blocks, payload).map(Into::into)
            }
        }
    }

    /// Head of the reassembled bundle, of which this is the first fragment (RFC 9171 §5.9).
    pub(super) fn reassembled(&self, has_tail: bool) -> Result<Self, EncodeError> {
        let len = self.fragment().map_or(self.payload_len(), |fragment| fragment.total);
        match self {
            Self::Six(head) => {
                let primary = bp6::Primary { fragment: None, ..head.primary().clone() };
                let mut payload = bp6::Payload { len, ..head.payload().clone() };
                payload.flags = if has_tail {
                    payload.flags.without(BlockFlags::LAST)
                } else {
                    payload.flags.with(BlockFlags::LAST)
                };
                bp6::Head::new(primary, head.blocks().to_vec(), payload).map(Into::into)
            }
            Self::Seven(head) => {
                let primary = bp7::Primary { fragment: None, ..head.primary().clone() };
                let payload = bp7::Payload { len, ..head.payload() };
                bp7::Head::new(primary, head.blocks().to_vec(), payload).map(Into::into)
            }
        }
    }

    /// Reason to delete an arrived bundle, by its blocks (RFC 9171 §5.6 step 3). `is_lenient`
    /// accepts primary blocks that nothing protects.
    pub(super) fn fault(&self, bounds: &Bounds, is_lenient: bool) -> Option<Reason> {
        // Fragments of bundles without an identity cannot be joined (§4.2.3).
        if self.is_anonymous() && (self.may_be_cut() || self.fragment().is_some()) {
            return Some(Reason::BlockUnintelligible);
        }
        if let Self::Seven(head) = self {
            if is_unintelligible(head, bounds) || !(is_lenient || is_checked(head)) {
                return Some(Reason::BlockUnintelligible);
            }
            if has_forbidden_target(head) {
                return Some(Reason::ConflictingSecurity);
            }
        }
        let has_exceeded = self.hop_count(bounds).is_some_and(HopCount::is_exceeded);
        has_exceeded.then_some(Reason::HopLimitExceeded)
    }

    /// Processes unknown blocks as their flags require (RFC 9171 §5.6 step 4, RFC 5050 §5.6 step
    /// 3). Blocks of version 6 may follow the payload, too.
    pub(super) fn process_unknown(&mut self, tail: &mut Bytes, bounds: &Bounds) -> Unknown {
        match self {
            Self::Six(head) => process_six(head, tail, bounds),
            Self::Seven(head) => process_seven(head),
        }
    }
}

fn process_seven(head: &mut bp7::Head) -> Unknown {
    let mut found = Unknown::default();
    let mut discarded = Vec::new();
    for block in head.blocks().iter().filter(|block| !KNOWN.contains(&block.kind())) {
        let flags = block.flags();
        found.deletes |= flags.contains(BlockFlags::DELETE_BUNDLE);
        found.reports |= flags.contains(BlockFlags::REPORT);
        if flags.contains(BlockFlags::DISCARD) {
            discarded.push(block.number());
        }
    }
    if !found.deletes {
        for number in discarded {
            head.remove_block(number);
        }
    }
    found
}

fn process_six(head: &mut bp6::Head, tail: &mut Bytes, bounds: &Bounds) -> Unknown {
    let mut found = Unknown::default();
    let behind = if head.payload().is_last() {
        Vec::new()
    } else {
        match Trailer::decode(tail, bounds) {
            Ok(Some((trailer, _))) => trailer.blocks().to_vec(),
            // It was decoded when it arrived.
            Ok(None) | Err(_) => return found,
        }
    };
    if head.blocks().is_empty() && behind.is_empty() {
        return found;
    }
    let mut keep = |blocks: &[bp6::Block]| -> Vec<bp6::Block> {
        let mut kept = Vec::new();
        for block in blocks {
            let flags = block.flags();
            if KNOWN_SIX.contains(&block.kind()) {
                kept.push(block.clone());
                continue;
            }
            found.deletes |= flags.contains(BlockFlags::DELETE_BUNDLE);
            found.reports |= flags.contains(BlockFlags::REPORT);
            if !flags.contains(BlockFlags::DISCARD) {
                kept.push(block.forwarded());
            }
        }
        kept
    };
    let (before, behind) = (keep(head.blocks()), keep(&behind));
    if found.deletes {
        return found;
    }
    let mut payload = head.payload().clone();
    if behind.is_empty() {
        payload.flags = payload.flags.with(BlockFlags::LAST);
    }
    if let Ok(new) = bp6::Head::new(head.primary().clone(), before, payload) {
        *head = new;
        *tail = Trailer::new(behind).encode().into();
    }
    found
}

/// Whether a security block has a target that it must not have: the primary block or a BCB of a
/// BCB, a security block of a BIB (RFC 9172 §3.7, §3.8). Encrypted ones cannot be judged.
fn has_forbidden_target(head: &bp7::Head) -> bool {
    let sealed = sealed(head);
    let is_kind = |number: u64, kinds: &[u64]| {
        let mut of = head.blocks().iter().filter(|block| block.number() == number);
        of.any(|block| kinds.contains(&block.kind()))
    };
    let is_wrong = |of: u64, target: u64| match of {
        CONFIDENTIALITY => target == PRIMARY_NUMBER || is_kind(target, &[CONFIDENTIALITY]),
        _ => is_kind(target, &[INTEGRITY, CONFIDENTIALITY]),
    };
    let judged = head.blocks().iter().filter(|block| {
        block.kind() == CONFIDENTIALITY
            || block.kind() == INTEGRITY && !sealed.contains(&block.number())
    });
    judged
        .filter_map(|block| Some((block.kind(), content(block)?)))
        .any(|(kind, content)| content.targets.iter().any(|target| is_wrong(kind, target.target)))
}

/// Content of a security block, if it can be read.
fn content(block: &bp7::Block) -> Option<SecurityBlock> {
    SecurityBlock::decode(block.data(), &bpsec::Bounds::default()).ok()
}

/// Whether a BCB, or a block of RFC 9171, cannot be read, or the latter is there twice (§4.4).
/// Encrypted ones cannot be judged. A hop count must be readable where only it ends a loop.
fn is_unintelligible(head: &bp7::Head, bounds: &Bounds) -> bool {
    let mut hidings = head.blocks().iter().filter(|block| block.kind() == CONFIDENTIALITY);
    if hidings.any(|block| content(block).is_none()) {
        return true;
    }
    let hops = head.block_of(HOP_COUNT).filter(|_| head.primary().source.is_none());
    if hops.is_some_and(|hops| sealed(head).contains(&hops.number())) {
        return true;
    }
    let is_wrong = |kind: &u64| {
        let mut of = head.blocks().iter().filter(|block| block.kind() == *kind);
        let Some(first) = of.next() else { return false };
        let is_unreadable = first.extension(bounds).is_err();
        of.next().is_some() || (is_unreadable && !sealed(head).contains(&first.number()))
    };
    [PREVIOUS_NODE, BUNDLE_AGE, HOP_COUNT].iter().any(is_wrong)
}

/// Whether the primary block has a CRC, or a block of integrity that targets it (RFC 9171 §4.3.1).
/// Such a block is never encrypted, because the primary block is not (RFC 9172 §3.9). Fragments
/// behind the first may lack it.
fn is_checked(head: &bp7::Head) -> bool {
    let is_behind = head.primary().fragment.is_some_and(|fragment| fragment.offset > 0);
    let hidden = sealed(head);
    let signs = |block: &bp7::Block| {
        !hidden.contains(&block.number())
            && content(block).is_some_and(|content| content.results(PRIMARY_NUMBER).is_some())
    };
    let mut signatures = head.blocks().iter().filter(|block| block.kind() == INTEGRITY);
    head.primary().crc != CrcType::None || is_behind || signatures.any(signs)
}

fn depart_six(head: &mut bp6::Head, departure: &Departure<'_>) {
    let is_replaced = |block: &&bp6::Block| match block.kind() {
        bp6::PREVIOUS_HOP => true,
        // A number of an earlier custodian is void.
        bp6::CUSTODY_ENHANCEMENT => departure.custody.is_some(),
        _ => false,
    };
    let mut blocks: Vec<_> =
        head.blocks().iter().filter(|block| !is_replaced(block)).cloned().collect();
    blocks.extend(bp6::Block::previous_hop(departure.node));
    if let Some(id) = departure.custody {
        let custody = bp6::CustodyEnhancement { id, custodian: departure.node.clone() };
        let flags = BlockFlags::DISCARD.with(BlockFlags::REPLICATE);
        blocks.extend(custody.to_block(flags));
    }
    head.set_blocks(blocks);
}

/// Numbers of encrypted blocks.
fn sealed(head: &bp7::Head) -> Vec<u64> {
    let of = head.blocks().iter().filter(|block| block.kind() == CONFIDENTIALITY);
    of.filter_map(content)
        .flat_map(|content| content.targets.into_iter().map(|target| target.target))
        .collect()
}

/// Replaces the extension block of a type. If there is none, adds one only if `always`. Encrypted
/// blocks stay unchanged.
fn replace(head: &mut bp7::Head, kind: u64, extension: &Extension, always: bool, sealed: &[u64]) {
    let old = head.block_of(kind).map(|block| (block.number(), block.flags(), block.crc()));
    let is_sealed = old.is_some_and(|(number, ..)| sealed.contains(&number));
    if is_sealed || (old.is_none() && !always) {
        return;
    }
    let new_flags = match kind {
        BUNDLE_AGE | HOP_COUNT => BlockFlags::REPLICATE,
        _ => BlockFlags::default(),
    };
    let new = (head.free_number(), new_flags, CrcType::Crc16);
    let (number, flags, crc) = old.unwrap_or(new);
    if let Ok(block) = extension.to_block(number, flags, crc) {
        head.put_block(block);
    }
}

/// Writes the number of copies for the neighbour, or removes the block if copies are not counted.
fn set_copies(head: &mut bp7::Head, copies: Option<u32>) {
    let number = head.block_of(COPIES).map(bp7::Block::number);
    if let Some(number) = number {
        head.remove_block(number);
    }
    let Some(copies) = copies else { return };
    let number = number.unwrap_or_else(|| head.free_number());
    let data = Item::uint(COPIES, u64::from(copies)).value;
    let flags = BlockFlags::DISCARD.with(BlockFlags::REPLICATE);
    if let Ok(block) = bp7::Block::new(COPIES, number, flags, CrcType::Crc16, &data) {
        head.put_block(block);
    }
}

/// Checker of the bytes behind a payload.
#[derive(Clone, Debug)]
pub(super) enum Check {
    /// Blocks of version 6, unless the payload block is the last.
    Six { is_last: bool },
    /// CRC of the payload.
    Seven(PayloadCrc),
}

impl Check {
    pub(super) fn new(head: &Head) -> Self {
        match head {
            Head::Six(head) => Self::Six { is_last: head.payload().is_last() },
            Head::Seven(head) => Self::Seven(PayloadCrc::new(head)),
        }
    }

    pub(super) fn update(&mut self, bytes: &[u8]) {
        match self {
            Self::Six { .. } => {}
            Self::Seven(crc) => crc.update(bytes),
        }
    }

    /// Most bytes that can follow.
    pub(super) const fn tail_max(&self, bounds: &Bounds) -> usize {
        match self {
            Self::Six { is_last: true } => 0,
            Self::Six { is_last: false } => bounds.head_max,
            Self::Seven(_) => TAIL_MAX,
        }
    }

    /// Tail of a bundle created here, with these blocks in version 6.
    pub(super) fn tail(self, blocks: Vec<u8>) -> Bytes {
        match self {
            Self::Six { .. } => blocks.into(),
            Self::Seven(crc) => crc.tail().into(),
        }
    }

    /// Whether the tail is valid. Bytes behind the bundle are ignored.
    pub(super) fn is_sound(&self, tail: &[u8], bounds: &Bounds) -> bool {
        match self {
            Self::Six { is_last: true } => tail.is_empty(),
            Self::Six { is_last: false } => {
                let read = Trailer::decode(tail, bounds);
                matches!(read, Ok(Some((_, len))) if len == tail.len())
            }
            Self::Seven(crc) => matches!(crc.verify(tail), Ok(Some(len)) if len == tail.len()),
        }
    }
}
