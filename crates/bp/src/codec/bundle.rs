//! Parts that bundles of both versions have: flags with the same places, fragments, and decoding
//! from the start of a stream.

use std::fmt;

use wire::flags;
use wire::{DecodeError, DecodeErrorKind};

use crate::codec::eid;

/// Limits of the decoders.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Maximum bytes before the payload, and in version 6 behind it.
    pub head_max: usize,
    /// Maximum extension blocks; in version 6 before the payload, and behind it.
    pub blocks_max: usize,
    /// Maximum bytes of an endpoint's text.
    pub eid_max: usize,
    /// Maximum endpoints a block refers to, in version 6.
    pub references_max: usize,
    /// Maximum fills of an aggregate custody signal, in version 6.
    pub fills_max: usize,
}

impl Default for Bounds {
    fn default() -> Self {
        Self {
            head_max: 64 << 10,
            blocks_max: 64,
            eid_max: eid::LEN_MAX,
            references_max: 16,
            fills_max: 4096,
        }
    }
}

/// Bundle processing control flags (RFC 5050 §4.2, RFC 9171 §4.2.3). Unknown flags are kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BundleFlags(pub u64);

flags!(BundleFlags);

impl BundleFlags {
    /// The bundle is a fragment. Set and cleared to match the fragment of the primary block.
    pub const FRAGMENT: Self = Self(0x1);
    /// The payload is an administrative record.
    pub const ADMINISTRATIVE: Self = Self(0x2);
    /// The bundle must not be fragmented.
    pub const MUST_NOT_FRAGMENT: Self = Self(0x4);
    /// Custody is requested; in version 6.
    pub const CUSTODY: Self = Self(0x8);
    /// The destination is a singleton endpoint; in version 6.
    pub const SINGLETON: Self = Self(0x10);
    /// The application is requested to acknowledge.
    pub const ACKNOWLEDGE: Self = Self(0x20);
    /// Status reports shall include times; in version 7.
    pub const STATUS_TIME: Self = Self(0x40);
    /// A report of reception is requested.
    pub const REPORT_RECEPTION: Self = Self(0x4000);
    /// A report of custody acceptance is requested; in version 6.
    pub const REPORT_CUSTODY: Self = Self(0x8000);
    /// A report of forwarding is requested.
    pub const REPORT_FORWARDING: Self = Self(0x1_0000);
    /// A report of delivery is requested.
    pub const REPORT_DELIVERY: Self = Self(0x2_0000);
    /// A report of deletion is requested.
    pub const REPORT_DELETION: Self = Self(0x4_0000);
    /// All reports of version 7.
    pub const REPORTS: Self = Self(0x7_4000);
    /// All reports of version 6, and custody.
    pub const REPORTS_AND_CUSTODY: Self = Self(0x7_c008);
}

/// Block processing control flags (RFC 5050 §4.3, RFC 9171 §4.2.4). Unknown flags are kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BlockFlags(pub u64);

flags!(BlockFlags);

impl BlockFlags {
    /// The block must be replicated in every fragment.
    pub const REPLICATE: Self = Self(0x01);
    /// A node that cannot process the block reports that.
    pub const REPORT: Self = Self(0x02);
    /// A node that cannot process the block deletes the bundle.
    pub const DELETE_BUNDLE: Self = Self(0x04);
    /// The block is the last one. Set and cleared by the block's position; in version 6.
    pub const LAST: Self = Self(0x08);
    /// A node that cannot process the block removes it.
    pub const DISCARD: Self = Self(0x10);
    /// A node that could not process the block forwarded it; in version 6.
    pub const FORWARDED: Self = Self(0x20);
    /// The block refers to endpoints. Set and cleared to match its references; in version 6.
    pub const REFERENCES: Self = Self(0x40);
}

/// Part of the whole payload that a fragment holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Fragment {
    /// Offset in the whole, in bytes.
    pub offset: u64,
    /// Length of the whole, in bytes.
    pub total: u64,
}

impl Fragment {
    /// Returns the flags of a bundle with or without a fragment.
    pub(super) const fn flags(part: Option<Self>, flags: BundleFlags) -> BundleFlags {
        match part {
            Some(_) => flags.with(BundleFlags::FRAGMENT),
            None => flags.without(BundleFlags::FRAGMENT),
        }
    }
}

/// Returns the rule for fragments that a primary block breaks, if any.
pub(super) const fn conflict(
    flags: BundleFlags,
    fragment: Option<Fragment>,
    is_anonymous: bool,
) -> Option<&'static str> {
    if is_anonymous && !flags.contains(BundleFlags::MUST_NOT_FRAGMENT) {
        return Some("a bundle without source must not be fragmented");
    }
    match fragment {
        Some(Fragment { offset, total }) if offset > total => {
            Some("a fragment starts beyond the end of its bundle")
        }
        Some(_) | None => None,
    }
}

/// Turns a truncation error into `None`, unless more than `max` bytes are needed.
pub(super) fn or_more<T>(
    read: Result<T, DecodeError>,
    max: usize,
    too_long: &'static str,
) -> Result<Option<T>, DecodeError> {
    match read {
        Ok(value) => Ok(Some(value)),
        Err(DecodeError { offset, kind: DecodeErrorKind::Truncated { needed, .. } }) => {
            if offset.saturating_add(needed) > max {
                return Err(DecodeError::invalid(offset, too_long));
            }
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

/// Checks that a bundle of `len` bytes is all of the input.
pub(super) fn check_end(len: usize, bytes: &[u8]) -> Result<(), DecodeError> {
    match bytes.len() - len {
        0 => Ok(()),
        count => Err(DecodeError { offset: len, kind: DecodeErrorKind::Trailing { count } }),
    }
}

/// Types of extension blocks, as a part of a line. Of many, only the first are shown.
pub(super) fn fmt_blocks(
    f: &mut fmt::Formatter<'_>,
    kinds: impl ExactSizeIterator<Item = u64>,
    name: impl Fn(u64) -> Option<&'static str>,
) -> fmt::Result {
    const SHOWN: usize = 8;
    let more = kinds.len().saturating_sub(SHOWN);
    for kind in kinds.take(SHOWN) {
        match name(kind) {
            Some(name) => write!(f, ", {name}")?,
            None => write!(f, ", block of type {kind}")?,
        }
    }
    if more > 0 { write!(f, ", {more} blocks more") } else { Ok(()) }
}
