//! Least size of segments.

use super::{Checkpoint, Data, SessionId};

/// Largest serial number of three bytes; few sessions count beyond it.
const SERIAL_MAX: u64 = (1 << 21) - 1;

/// Bytes of the largest segment that a block of `content` bytes and a description needs: the
/// description is one segment, and of other data at least one byte must fit.
pub(crate) fn least_segment(
    session: SessionId,
    service: u64,
    content: u64,
    description: u64,
) -> u64 {
    let len = description.max(1);
    let checkpoint = Checkpoint { serial: SERIAL_MAX, report: SERIAL_MAX };
    Data::overhead(session, service, content, len, Some(checkpoint)) as u64 + len
}
