//! Authentication of segments (RFC 5327 §2.1).
//!
//! A header extension names the ciphersuite and the key, the last trailer extension carries the
//! value over all bytes before it. RFC 5327 lets a sender leave both out of all but the first
//! segment; here every segment carries them, and a segment without them is dropped.

use session::authentication::Authentication;
use wire::sdnv;

use crate::segment::Segment;

/// Extension tag of authentication.
pub(crate) const TAG: u8 = 0;

/// Longest authentication value, in bytes.
pub(crate) const VALUE_MAX: usize = 16;

/// Whether a segment carries a valid value of one of the keys.
pub(crate) fn admits(keys: &Authentication, datagram: &[u8], segment: &Segment<'_>) -> bool {
    let last = segment.trailer.iter().last().filter(|last| last.tag == TAG);
    let Some(value) = last.map(|last| last.value) else { return false };
    let covered = &datagram[..datagram.len() - value.len()];
    // During a key change a peer may name two keys; one valid value is enough.
    let mut labels = segment.header.iter().filter(|one| one.tag == TAG);
    labels.any(|label| {
        let mut known = std::iter::once(&keys.key).chain(&keys.accepted);
        known.any(|key| key.label == label.value && key.verify(covered, value))
    })
}

/// Bytes that authentication adds to a segment.
pub(crate) fn len(keys: &Authentication) -> usize {
    let (label, value) = (keys.key.label.len(), keys.key.suite().value_len());
    1 + sdnv::len(label as u64) + label + 1 + sdnv::len(value as u64) + value
}
