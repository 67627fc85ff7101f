//! Readable part of a received stream: its bytes in order, and its gaps.

use std::collections::VecDeque;

use bytes::BytesMut;
use session::storage::Storage as _;

use super::PIECE_COST;
use crate::core::Core;
use crate::indication::Piece;
use crate::message::StreamHeader;

/// Maximum size of a piece into which unread bytes are joined.
const PIECE: usize = 64 << 10;

/// Last readable bytes, to which more may be joined.
#[derive(Debug)]
struct Last {
    offset: u64,
    bytes: BytesMut,
    messages: Vec<usize>,
}

/// Error when segments of a stream contradict each other.
pub(super) struct Contradiction;

/// Pieces of a stream waiting for the user.
#[derive(Debug, Default)]
pub(super) struct Pieces {
    /// Stream offset of the next byte to append.
    offset: Option<u64>,
    ready: VecDeque<Piece>,
    last: Option<Last>,
    /// Whether the user was notified of readable data.
    is_announced: bool,
    pub(super) has_ended: bool,
    pub(super) has_gap: bool,
    /// Number of bytes appended so far.
    pub(super) appended: u64,
}

impl Pieces {
    /// Whether there is nothing to read.
    pub(super) fn is_empty(&self) -> bool {
        self.ready.is_empty() && self.last.is_none()
    }

    /// Whether to notify the user of readable data; `true` once.
    pub(super) fn announce(&mut self) -> bool {
        !self.is_empty() && !std::mem::replace(&mut self.is_announced, true)
    }

    /// Appends a segment.
    pub(super) fn append(
        &mut self,
        core: &mut Core,
        header: StreamHeader,
        bytes: &[u8],
    ) -> Result<(), Contradiction> {
        let expected = self.offset.unwrap_or(u64::from(header.offset));
        let ahead = header.offset.wrapping_sub(expected as u32);
        if ahead > u32::MAX / 2 {
            return Err(Contradiction);
        }
        let offset = expected + u64::from(ahead);
        if ahead > 0 {
            self.has_gap = true;
            self.end_piece();
            core.shared.room.unwritten += PIECE_COST;
            self.ready.push_back(Piece::Gap { from: expected, to: offset });
        }
        self.offset = Some(offset + bytes.len() as u64);
        self.has_ended = header.is_end();
        if bytes.is_empty() {
            return Ok(());
        }
        if self.last.as_ref().is_some_and(|last| last.bytes.len() + bytes.len() > PIECE) {
            self.end_piece();
        }
        self.appended += bytes.len() as u64;
        core.shared.room.unwritten += bytes.len();
        let last = self.last.get_or_insert_with(|| {
            core.shared.room.unwritten += PIECE_COST;
            Last { offset, bytes: BytesMut::new(), messages: Vec::new() }
        });
        let at = last.bytes.len();
        last.messages
            .extend(header.message_start.checked_sub(1).map(|at_in| at + usize::from(at_in)));
        last.bytes.extend_from_slice(bytes);
        Ok(())
    }

    fn end_piece(&mut self) {
        if let Some(Last { offset, bytes, messages }) = self.last.take() {
            self.ready.push_back(Piece::Bytes { offset, bytes: bytes.freeze(), messages });
        }
    }

    /// Takes the next piece.
    pub(super) fn read(&mut self, core: &mut Core) -> Option<Piece> {
        if self.ready.is_empty() {
            self.end_piece();
        }
        let piece = self.ready.pop_front();
        self.is_announced &= !self.is_empty();
        piece.iter().for_each(|piece| core.shared.written(cost(piece)));
        piece
    }

    /// Drops everything unread.
    pub(super) fn clear(&mut self, core: &mut Core) {
        self.end_piece();
        for piece in std::mem::take(&mut self.ready) {
            core.shared.written(cost(&piece));
        }
    }
}

fn cost(piece: &Piece) -> usize {
    PIECE_COST
        + match piece {
            Piece::Bytes { bytes, .. } => bytes.len(),
            Piece::Gap { .. } => 0,
        }
}
