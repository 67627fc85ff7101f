//! Requests for missing parts of an object (RFC 5740 §5.3).

use engine::Time;
use session::ranges::Ranges;

use super::price::ItemPrice;
use super::{Incoming, Shape, State};
use crate::bits::{Bits, len_of};
use crate::coding::{first_id, is_long};
use crate::digest::DIGESTS_MAX;
use crate::message::{Flags, Position, Request, RequestFlags, RequestWriter, Scheme};

/// Maximum number of segments of incomplete blocks that are looked through for one message: a peer
/// can start many long blocks by one segment each.
const WORK_MAX: u32 = 1 << 20;

impl Incoming {
    /// Bytes of a full segment, if known.
    pub(crate) fn segment_len(&self) -> Option<u16> {
        self.shape.as_ref().map(|shape| shape.fti.segment_size)
    }

    /// Bytes after the blocks before `block`, 0 if unknown or if it is a stream.
    pub(crate) fn left(&self, block: u64) -> u64 {
        let Some(shape) = self.shape.as_ref().filter(|_| self.stream.is_none()) else { return 0 };
        let blocks = shape.partition.blocks();
        let block = block.min(blocks.into()) as u32;
        if block >= blocks {
            return 0;
        }
        shape.fti.object_size.saturating_sub(shape.partition.block_offset(block))
    }

    pub(super) fn lacks_info(&self) -> bool {
        self.info.is_none() && self.flags.contains(Flags::INFO)
    }

    /// Whether anything before `block`, or anything at all if `block` is `None`, is missing and
    /// was not requested after `since`.
    pub(crate) fn lacks(&self, block: Option<u64>, since: Time) -> bool {
        if self.state != State::Receiving {
            return false;
        }
        let is_info_due = !self.requested.has_info(since);
        let Some(shape) = &self.shape else { return is_info_due };
        // With proactive parity, NORM_INFO is repeated with the first block.
        if is_info_due && self.lacks_info() && block.is_none_or(|block| block > 0) {
            return true;
        }
        if self.is_info_only {
            return false;
        }
        let end = last_digest(block, shape.partition.blocks());
        if is_info_due && self.digests.missing(end).next().is_some() {
            return true;
        }
        if let Some(stream) = &self.stream {
            return stream.lacks(since);
        }
        let blocks = shape.partition.blocks();
        let end = block.map_or(blocks, |block| block.min(blocks.into()) as u32);
        let mut gaps = self.whole.gaps(0, u64::from(end)).peekable();
        if gaps.peek().is_none() {
            return false;
        }
        let mut known = self.requested.blocks(since);
        gaps.any(|(from, to)| {
            for (number, block) in self.blocks.range(from as u32..to as u32) {
                if block.is_due(since) {
                    return true;
                }
                known.insert(u64::from(*number), u64::from(*number) + 1);
            }
            known.gaps(from, to).next().is_some()
        })
    }

    /// Requests everything missing before `block`, as the reference library does: enough parity, or
    /// segments themselves where parity does not suffice. Skips segments requested after `since`,
    /// here or by others. Where items have a price, blocks are requested by count instead of lists.
    /// Returns `false` if the message was too short.
    pub(crate) fn request(
        &mut self,
        writer: &mut RequestWriter<'_>,
        scheme: Scheme,
        block: Option<u64>,
        (now, since, price): (Time, Time, ItemPrice),
    ) -> bool {
        if self.state != State::Receiving {
            return true;
        }
        self.requested.forget_before(since);
        if self.requested.all_by_others {
            self.all_requested(now);
            return true;
        }
        let object = self.number();
        let is_info_due = !self.requested.has_info(since);
        let Some(shape) = self.shape.clone() else {
            return !is_info_due || self.request_all(writer, scheme, now);
        };
        if self.lacks_info() && is_info_due {
            let item = Position { fec: shape.scheme, object, id: shape_id(&shape, 0, 0) };
            let is_requested = self.requested.info_by_others;
            if !is_requested && writer.item(RequestFlags::INFO, item).is_err() {
                return false;
            }
            self.requested.info_at = Some(now);
        }
        if self.is_info_only {
            return true;
        }
        let end = last_digest(block, shape.partition.blocks());
        if is_info_due && !self.request_digests(writer, &shape, end, now) {
            return false;
        }
        if let Some(stream) = self.stream.as_mut() {
            let (fec, block_len) = (shape.scheme, shape.fti.block_len);
            let id = |block, symbol| shape.coding.payload_id(block_len, block, symbol);
            let position = |block, symbol| Position { fec, object, id: id(block, symbol) };
            return stream.request(writer, position, (now, since));
        }
        let blocks = shape.partition.blocks();
        let end = block.map_or(blocks, |block| block.min(blocks.into()) as u32);
        let covered = self.requested.covered(since);
        let gaps: Vec<_> = self.whole.gaps(0, u64::from(end)).collect();
        let mut left = WORK_MAX;
        for (from, to) in gaps {
            let (mut at, to) = (from as u32, to as u32);
            while at < to {
                let part = self.blocks.range(at..to).next().map(|(number, _)| *number);
                if !part.is_none_or(|part| self.can_examine(&shape, part, since, &mut left)) {
                    return false;
                }
                let empty = (at, part.unwrap_or(to));
                if !self.request_blocks(writer, &shape, empty, &covered, now)
                    || !part.is_none_or(|part| {
                        self.request_part(writer, &shape, part, (now, since, price))
                    })
                {
                    return false;
                }
                at = part.map_or(to, |part| part + 1);
            }
        }
        true
    }

    /// Whether the work of a message suffices for a block: `left` segments.
    fn can_examine(&self, shape: &Shape, number: u32, since: Time, left: &mut u32) -> bool {
        let cost = match self.blocks.get(&number).is_some_and(|block| block.is_due(since)) {
            true => u32::from(shape.partition.block_len(number)),
            false => 0,
        };
        let is_enough = cost <= *left;
        *left = left.saturating_sub(cost);
        is_enough
    }

    /// Requests an object of which nothing is known.
    fn request_all(&mut self, writer: &mut RequestWriter<'_>, scheme: Scheme, now: Time) -> bool {
        let item = Position { fec: scheme, object: self.number(), id: first_id(scheme) };
        // Coded objects always have NORM_INFO.
        let may_resume = self.journal.may_resume && is_long(scheme);
        let flags = match self.is_info_only || may_resume {
            true => RequestFlags::INFO,
            false => RequestFlags::OBJECT | RequestFlags::INFO,
        };
        let went = writer.item(flags, item).is_ok();
        if went {
            self.requested.info_at = Some(now);
        }
        went
    }

    /// Requests NORM_INFO with the digests of complete blocks before `end`. Returns `false` if there
    /// was no room.
    fn request_digests(
        &mut self,
        writer: &mut RequestWriter<'_>,
        shape: &Shape,
        end: u32,
        now: Time,
    ) -> bool {
        let (fec, object) = (shape.scheme, self.number());
        let is_requested = self.requested.info_by_others;
        for block in self.digests.missing(end).take(DIGESTS_MAX) {
            let item = Position { fec, object, id: shape_id(shape, block, 0) };
            if !is_requested && writer.item(RequestFlags::INFO, item).is_err() {
                return false;
            }
            self.requested.info_at = Some(now);
        }
        true
    }

    /// Requests blocks without any received segment, unless `covered`.
    fn request_blocks(
        &mut self,
        writer: &mut RequestWriter<'_>,
        shape: &Shape,
        (first, end): (u32, u32),
        covered: &Ranges,
        now: Time,
    ) -> bool {
        let (fec, object) = (shape.scheme, self.number());
        let position = |block| Position { fec, object, id: shape_id(shape, block, 0) };
        let all = (u64::from(first), u64::from(end));
        for run in covered.gaps(all.0, all.1) {
            if !request_run(writer, run, |block| position(block as u32)) {
                return false;
            }
            self.requested.note_blocks(run, now);
        }
        self.requested.count_others(all, now);
        true
    }

    /// Notes that another receiver requested the whole object.
    fn all_requested(&mut self, now: Time) {
        self.requested.info_at = Some(now);
        self.requested.note_blocks((0, u64::MAX), now);
        for block in self.blocks.values_mut() {
            block.requested_at = Some(now);
        }
    }

    /// Notes that a part of a block arrived. Returns the time of the block's request if this is
    /// the first part since then.
    pub(crate) fn answered(&mut self, block: u32) -> Option<Time> {
        let block = self.blocks.get_mut(&block)?;
        let was_answered = std::mem::replace(&mut block.is_answered, true);
        block.requested_at.filter(|_| !was_answered)
    }

    /// Requests the missing part of an incomplete block.
    fn request_part(
        &mut self,
        writer: &mut RequestWriter<'_>,
        shape: &Shape,
        number: u32,
        (now, since, price): (Time, Time, ItemPrice),
    ) -> bool {
        let (fec, object) = (shape.scheme, self.number());
        let position = |symbol| Position { fec, object, id: shape_id(shape, number, symbol) };
        let is_requested = self.requested.is_block_requested(number.into());
        let Some(block) = self.blocks.get_mut(&number).filter(|block| block.is_due(since)) else {
            return true;
        };
        let block_len = shape.partition.block_len(number);
        let wanted = block.wanted(
            block_len,
            (shape.coding.parity, shape.coding.is_long()),
            shape.room.usable,
        );
        if !is_requested && !block.is_requested(&wanted, block_len) {
            let is_parity = wanted.first().is_some_and(|(first, _)| *first >= block_len);
            let count = u16::try_from(len_of(&wanted)).unwrap_or(u16::MAX);
            let is_first = writer.is_empty();
            let mut went = match is_parity && count > 1 && price.counts() {
                true => writer.erasures(RequestFlags::SEGMENT, position(count)).is_ok(),
                false => request_symbols(writer, &wanted, position),
            };
            // A message without room for a range has room for an item: the count, or the first of
            // the list. The rest is requested in the next round.
            if !went && is_first {
                went = writer.is_empty()
                    && match is_parity {
                        true => writer.erasures(RequestFlags::SEGMENT, position(count)).is_ok(),
                        false => writer.item(RequestFlags::SEGMENT, position(wanted[0].0)).is_ok(),
                    }
                    || !writer.is_empty();
            }
            if !went {
                return false;
            }
        }
        (block.requested_at, block.is_answered) = (Some(now), false);
        true
    }

    /// Notes a request of another receiver for the range from `first` to `last`.
    pub(crate) fn suppress(&mut self, request: &Request<'_>, first: Position, last: Position) {
        let flags = request.flags;
        if flags.contains(RequestFlags::OBJECT) {
            self.requested.note_all_by_others();
            return;
        }
        if flags.contains(RequestFlags::INFO) {
            self.requested.info_by_others = true;
        }
        if let Some(stream) = self.stream.as_mut() {
            stream.on_others(request, first, last);
            return;
        }
        let (block, end) = (first.id.block, last.id.block.max(first.id.block));
        if flags.contains(RequestFlags::BLOCK) {
            self.requested.note_blocks_by_others((block.into(), u64::from(end) + 1));
            return;
        }
        if let (Some(shape), Some(part)) = (&self.shape, self.blocks.get_mut(&block))
            && flags.contains(RequestFlags::SEGMENT)
        {
            let lens = (shape.partition.block_len(block), shape.coding.parity);
            part.note_others(request.form, (first.id.symbol, last.id.symbol), lens);
        }
    }

    /// Forgets the requests of others when a new round begins.
    pub(crate) fn forget_others(&mut self) {
        self.requested.forget_others();
        if let Some(stream) = self.stream.as_mut() {
            stream.forget_others();
        }
        for block in self.blocks.values_mut() {
            block.by_others = Bits::new();
        }
    }
}

/// End of the blocks whose digests should have arrived before `block`. The digest of a block
/// arrives with the block behind it.
fn last_digest(block: Option<u64>, blocks: u32) -> u32 {
    match block {
        Some(block) if block < u64::from(blocks) => (block as u32).saturating_sub(1),
        Some(_) | None => blocks,
    }
}

/// Requests the blocks from `first` to before `end`. Returns `false` if there was no room.
pub(super) fn request_run(
    writer: &mut RequestWriter<'_>,
    (first, end): (u64, u64),
    position: impl Fn(u64) -> Position,
) -> bool {
    if end - first > 2 {
        return writer.range(RequestFlags::BLOCK, position(first), position(end - 1)).is_ok();
    }
    (first..end).all(|block| writer.item(RequestFlags::BLOCK, position(block)).is_ok())
}

/// Requests runs of segments. Returns `false` if there was no room for all.
pub(super) fn request_symbols(
    writer: &mut RequestWriter<'_>,
    runs: &[(u16, u16)],
    position: impl Fn(u16) -> Position,
) -> bool {
    runs.iter().all(|&(first, last)| {
        if last - first > 1 {
            return writer.range(RequestFlags::SEGMENT, position(first), position(last)).is_ok();
        }
        (first..=last).all(|symbol| writer.item(RequestFlags::SEGMENT, position(symbol)).is_ok())
    })
}

pub(super) fn shape_id(shape: &Shape, block: u32, symbol: u16) -> crate::message::PayloadId {
    shape.coding.payload_id(shape.partition.block_len(block), block, symbol)
}
