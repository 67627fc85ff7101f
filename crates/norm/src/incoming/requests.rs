//! Requests for missing parts of an object (RFC 5740 §5.3).
//!
//! A request takes transmission time on the return link, and every byte requested in excess takes
//! time on the forward link. Where a few bytes on the return link take as long as many segments on
//! the forward link, blocks are requested as one range. The request adds the largest number of
//! segments that any of the blocks lacks ([`EXT_LACKS`]). The sender then sends that many parity
//! segments for each.

use std::ops::Range;

use engine::Time;
use session::ranges::Ranges;

use super::blocks::Blocks;
use super::price::ItemPrice;
use super::{Block, Incoming, Kind, Shape, State};
use crate::bits::{Bits, len_of};
use crate::coding::{first_id, is_long};
use crate::digest::DIGESTS_MAX;
use crate::message::{Flags, Position, Request, RequestFlags, RequestWriter, Scheme};

/// Maximum number of segments of incomplete blocks that are looked through for one message: a peer
/// can start many long blocks by one segment each.
const WORK_MAX: u32 = 1 << 20;

/// Type of a private header extension: the largest number of segments that a receiver lacks of any
/// block requested in the message. Other implementations skip it and send whole blocks.
pub(crate) const EXT_LACKS: u8 = 195;

/// Maximum number of blocks that one message may request in this way.
pub(crate) const JOINED_MAX: u64 = 1024;

/// Requests up to `since` are repeated in the round that begins `now`. Where items have a price,
/// blocks are requested by count instead of lists.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RequestRound {
    pub(crate) now: Time,
    pub(crate) since: Time,
    pub(crate) price: ItemPrice,
}

/// Missing part of an object.
#[derive(Clone, Copy, Debug)]
pub(super) enum Missing {
    /// Blocks without any received segment: first and end.
    Run(u32, u32),
    /// Incomplete block.
    Part(u32),
}

impl Missing {
    pub(super) fn start(self) -> u32 {
        match self {
            Self::Run(first, _) => first,
            Self::Part(number) => number,
        }
    }

    pub(super) fn end(self) -> u32 {
        match self {
            Self::Run(_, end) => end,
            Self::Part(number) => number + 1,
        }
    }
}

impl Shape {
    pub(super) fn position(&self, object: u16, block: u32, symbol: u16) -> Position {
        let block_len = self.partition.block_len(block);
        let id = self.coding.payload_id(block_len, block, symbol);
        Position { fec: self.scheme, object, id }
    }

    /// End of the blocks before `block`, or of all.
    pub(super) fn end(&self, block: Option<u64>) -> u32 {
        let blocks = self.partition.blocks();
        block.map_or(blocks, |block| block.min(blocks.into()) as u32)
    }
}

impl Incoming {
    /// Bytes of a full segment, if known.
    pub(crate) fn segment_len(&self) -> Option<u16> {
        self.shape().map(|shape| shape.fti.segment_size)
    }

    /// Bytes after the blocks before `block`, 0 if unknown or if it is a stream.
    pub(crate) fn left(&self, block: u64) -> u64 {
        self.blocks().map_or(0, |Blocks { shape, .. }| {
            let before = shape.partition.block_offset(shape.end(Some(block)));
            shape.fti.object_size.saturating_sub(before)
        })
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
        let is_info_due = self.requested.is_due(since);
        // With proactive parity, NORM_INFO is repeated with the first block.
        let lacks_info = self.lacks_info() && block.is_none_or(|block| block > 0);
        match &self.kind {
            Kind::Unknown(_) => is_info_due,
            Kind::Blocks(_) | Kind::Stream(_) if is_info_due && lacks_info => true,
            Kind::Blocks(_) | Kind::Stream(_) if self.is_info_only => false,
            Kind::Blocks(_) if self.awaits_session() => false,
            Kind::Blocks(blocks) => {
                is_info_due && blocks.missing_digests(block).next().is_some()
                    || blocks.lacks(block, since)
            }
            Kind::Stream(stream) => stream.lacks(since),
        }
    }

    /// Requests everything missing before `block`, as the reference library does: enough parity, or
    /// segments themselves where parity does not suffice. Skips segments requested in this round,
    /// here or by others. Returns `false` if the message was too short.
    pub(crate) fn request(
        &mut self,
        writer: &mut RequestWriter<'_>,
        scheme: Scheme,
        block: Option<u64>,
        round: RequestRound,
    ) -> bool {
        if self.state != State::Receiving {
            return true;
        }
        let (object, now) = (self.number(), round.now);
        if let Kind::Blocks(blocks) = &mut self.kind {
            blocks.requested.forget_before(round.since);
        }
        if self.requested.all_by_others {
            self.note_all_requested(now);
            return true;
        }
        let is_info_due = self.requested.is_due(round.since);
        let Some(first) = self.shape().map(|shape| shape.position(object, 0, 0)) else {
            return !is_info_due || self.request_all(writer, scheme, now);
        };
        if self.lacks_info() && is_info_due && !self.request_info(writer, first, now) {
            return false;
        }
        if self.is_info_only {
            return true;
        }
        if let Kind::Blocks(blocks) = &self.kind
            && is_info_due
        {
            let position = |block| blocks.shape.position(object, block, 0);
            let missing = blocks.missing_digests(block).take(DIGESTS_MAX);
            let items: Vec<_> = missing.map(position).collect();
            if !items.into_iter().all(|item| self.request_info(writer, item, now)) {
                return false;
            }
        }
        let awaits_session = self.awaits_session();
        match &mut self.kind {
            Kind::Unknown(_) => true,
            Kind::Blocks(_) if awaits_session => true,
            Kind::Blocks(blocks) => blocks.request(writer, object, block, round),
            Kind::Stream(stream) => stream.request(writer, object, round),
        }
    }

    /// Requests NORM_INFO, with the digest of a block. Returns `false` if there was no room.
    fn request_info(&mut self, writer: &mut RequestWriter<'_>, item: Position, now: Time) -> bool {
        let is_requested = self.requested.by_others;
        if !is_requested && writer.item(RequestFlags::INFO, item).is_err() {
            return false;
        }
        self.requested.at = Some(now);
        true
    }

    /// Requests an object of which nothing is known.
    fn request_all(&mut self, writer: &mut RequestWriter<'_>, scheme: Scheme, now: Time) -> bool {
        let item = Position { fec: scheme, object: self.number(), id: first_id(scheme) };
        // Coded objects always have NORM_INFO.
        let is_info_first = self.info_first > 0;
        let flags = if self.is_info_only || is_info_first {
            RequestFlags::INFO
        } else {
            RequestFlags::OBJECT | RequestFlags::INFO
        };
        let went = writer.item(flags, item).is_ok();
        if went {
            self.requested.at = Some(now);
            self.info_first -= u8::from(is_info_first && !is_long(scheme));
        }
        went
    }

    /// Notes that another receiver requested the whole object.
    fn note_all_requested(&mut self, now: Time) {
        self.requested.at = Some(now);
        if let Kind::Blocks(blocks) = &mut self.kind {
            blocks.requested.note_blocks(0..u64::MAX, now);
            blocks.parts.values_mut().for_each(|block| block.requested_at = Some(now));
        }
    }

    /// Notes that a part of a block arrived. Returns the time of the block's request if this is
    /// the first part since then.
    pub(crate) fn answered(&mut self, block: u32) -> Option<Time> {
        let Kind::Blocks(blocks) = &mut self.kind else { return None };
        let block = blocks.parts.get_mut(&block)?;
        let was_answered = std::mem::replace(&mut block.is_answered, true);
        block.requested_at.filter(|_| !was_answered)
    }

    /// Notes a request of another receiver for the range from `first` to `last`.
    pub(crate) fn suppress(&mut self, request: &Request<'_>, first: Position, last: Position) {
        let is_all = request.flags.contains(RequestFlags::OBJECT);
        self.requested.note_others(request.flags.contains(RequestFlags::INFO), is_all);
        match &mut self.kind {
            Kind::Blocks(blocks) if !is_all => blocks.on_others(request, first, last),
            Kind::Stream(stream) if !is_all => stream.on_others(request, first, last),
            Kind::Unknown(_) | Kind::Blocks(_) | Kind::Stream(_) => {}
        }
    }

    /// Forgets the requests of others when a new round begins.
    pub(crate) fn forget_others(&mut self) {
        self.requested.forget_others();
        match &mut self.kind {
            Kind::Unknown(_) => {}
            Kind::Blocks(blocks) => {
                blocks.requested.forget_others();
                blocks.parts.values_mut().for_each(|block| block.by_others = Bits::new());
            }
            Kind::Stream(stream) => stream.forget_others(),
        }
    }

    /// Requests incomplete blocks as ranges, if that is faster than listing them. Returns the
    /// largest number of segments that one lacks, which the message has to carry.
    pub(crate) fn request_joined(
        &mut self,
        writer: &mut RequestWriter<'_>,
        block: Option<u64>,
        round: RequestRound,
    ) -> Option<u16> {
        let object = self.number();
        let is_possible = self.state == State::Receiving && !self.awaits_session();
        if !is_possible || self.is_info_only || !round.price.counts() {
            return None;
        }
        let Kind::Blocks(blocks) = &mut self.kind else { return None };
        blocks.request_joined(writer, object, block, round)
    }
}

impl Blocks {
    /// Complete blocks whose digests should have arrived before `block`. The digest of a block
    /// arrives with the block behind it.
    fn missing_digests(&self, block: Option<u64>) -> impl Iterator<Item = u32> + '_ {
        let end = self.shape.end(block);
        let is_last = end == self.shape.partition.blocks();
        self.digests.missing(if is_last { end } else { end.saturating_sub(1) })
    }

    /// Next missing part from `at` on, before `end`.
    pub(super) fn next_missing(&self, at: u32, end: u32) -> Option<Missing> {
        let (from, to) = self.whole.gaps(at.into(), end.into()).next()?;
        let (from, to) = (from as u32, to as u32);
        Some(match self.parts.range(from..to).next() {
            Some((number, _)) if *number == from => Missing::Part(from),
            part => Missing::Run(from, part.map_or(to, |(number, _)| *number)),
        })
    }

    fn lacks(&self, block: Option<u64>, since: Time) -> bool {
        let end = self.shape.end(block);
        let mut gaps = self.whole.gaps(0, u64::from(end)).peekable();
        if gaps.peek().is_none() {
            return false;
        }
        let mut known = self.requested.blocks(since);
        gaps.any(|(from, to)| {
            for (number, block) in self.parts.range(from as u32..to as u32) {
                if block.is_due(since) {
                    return true;
                }
                known.insert(u64::from(*number), u64::from(*number) + 1);
            }
            known.gaps(from, to).next().is_some()
        })
    }

    /// Requests blocks. Returns `false` if there was no room for all.
    fn request(
        &mut self,
        writer: &mut RequestWriter<'_>,
        object: u16,
        block: Option<u64>,
        round: RequestRound,
    ) -> bool {
        let covered = self.requested.covered(round.since);
        let end = self.shape.end(block);
        let (mut at, mut left) = (0, WORK_MAX);
        while let Some(missing) = self.next_missing(at, end) {
            let went = match missing {
                Missing::Run(first, end) => {
                    self.request_blocks(writer, object, first..end, &covered, round.now)
                }
                Missing::Part(number) => {
                    self.spend_budget(number, round.since, &mut left)
                        && self.request_part(writer, object, number, round)
                }
            };
            if !went {
                return false;
            }
            at = missing.end();
        }
        true
    }

    /// Whether the work of a message suffices for a block: `left` segments.
    fn spend_budget(&self, number: u32, since: Time, left: &mut u32) -> bool {
        let is_due = self.parts.get(&number).is_some_and(|block| block.is_due(since));
        let cost = if is_due { self.block_len(number).into() } else { 0 };
        let is_enough = cost <= *left;
        *left = left.saturating_sub(cost);
        is_enough
    }

    /// Requests blocks without any received segment, unless `covered`.
    fn request_blocks(
        &mut self,
        writer: &mut RequestWriter<'_>,
        object: u16,
        blocks: Range<u32>,
        covered: &Ranges,
        now: Time,
    ) -> bool {
        let all = u64::from(blocks.start)..u64::from(blocks.end);
        for (first, end) in covered.gaps(all.start, all.end) {
            if !request_run(writer, first..end, |block| {
                self.shape.position(object, block as u32, 0)
            }) {
                return false;
            }
            self.requested.note_blocks(first..end, now);
        }
        self.requested.count_others(all, now);
        true
    }

    /// Requests the missing part of an incomplete block.
    fn request_part(
        &mut self,
        writer: &mut RequestWriter<'_>,
        object: u16,
        number: u32,
        round: RequestRound,
    ) -> bool {
        let RequestRound { now, since, price } = round;
        let shape = &self.shape;
        let position = |symbol| shape.position(object, number, symbol);
        let is_requested = self.requested.is_block_requested(number.into());
        let Some(block) = self.parts.get_mut(&number).filter(|block| block.is_due(since)) else {
            return true;
        };
        let block_len = shape.partition.block_len(number);
        let wanted = block.wanted(block_len, &shape.coding, shape.room.usable);
        if !is_requested && !block.is_requested(&wanted, block_len) {
            let is_parity = wanted.first().is_some_and(|(first, _)| *first >= block_len);
            let count = u16::try_from(len_of(&wanted)).unwrap_or(u16::MAX);
            let is_first = writer.is_empty();
            let mut went = if is_parity && count > 1 && price.counts() {
                writer.erasures(RequestFlags::SEGMENT, position(count)).is_ok()
            } else {
                request_symbols(writer, &wanted, position)
            };
            // A message without room for a range has room for an item: the count, or the first of
            // the list. The rest is requested in the next round.
            if !went && is_first {
                went = !writer.is_empty()
                    || if is_parity {
                        writer.erasures(RequestFlags::SEGMENT, position(count)).is_ok()
                    } else {
                        writer.item(RequestFlags::SEGMENT, position(wanted[0].0)).is_ok()
                    };
            }
            if !went {
                return false;
            }
        }
        (block.requested_at, block.is_answered) = (Some(now), false);
        true
    }

    /// Notes a request of another receiver.
    fn on_others(&mut self, request: &Request<'_>, first: Position, last: Position) {
        let (block, end) = (first.id.block, last.id.block.max(first.id.block));
        if request.flags.contains(RequestFlags::BLOCK) {
            self.requested.note_blocks_by_others(block.into()..u64::from(end) + 1);
        } else if request.flags.contains(RequestFlags::SEGMENT)
            && let Some(part) = self.parts.get_mut(&block)
        {
            let (block_len, parity) =
                (self.shape.partition.block_len(block), self.shape.coding.parity);
            part.note_others(request.form, first.id.symbol, last.id.symbol, block_len, parity);
        }
    }

    fn request_joined(
        &mut self,
        writer: &mut RequestWriter<'_>,
        object: u16,
        block: Option<u64>,
        RequestRound { now, since, price }: RequestRound,
    ) -> Option<u16> {
        let parts = self.parts.range(..self.shape.end(block));
        let parts = parts.filter(|(_, block)| !block.was_requested(since));
        let first = *parts.clone().next()?.0;
        let parts = parts.take_while(|(number, _)| u64::from(**number - first) < JOINED_MAX);
        let lacks = |(number, block): (&u32, &Block)| {
            // A block without memory for parity is listed.
            let block_len = u32::from(self.block_len(*number));
            (!block.is_direct).then(|| (*number, block_len.saturating_sub(block.have.len())))
        };
        let needs: Vec<_> = parts.map(lacks).collect::<Option<_>>()?;
        let most = needs.iter().map(|(_, lacks)| *lacks).max()?;
        let runs = price.join(needs.iter().map(|(number, _)| *number), most);
        let sent: u64 = runs.iter().map(|(first, end)| (end - first) * u64::from(most)).sum();
        let lacked: u64 = needs.iter().map(|(_, lacks)| u64::from(*lacks)).sum();
        if !price.favours(&runs, sent - lacked, needs.len()) {
            return None;
        }
        let position = |block| self.shape.position(object, block, 0);
        let mut through = None;
        for (first, end) in runs {
            let (first, last) = (first as u32, (end - 1) as u32);
            if writer.range(RequestFlags::BLOCK, position(first), position(last)).is_err() {
                break;
            }
            through = Some(last);
        }
        for (_, block) in self.parts.range_mut(..=through?) {
            if !block.was_requested(since) {
                (block.requested_at, block.is_answered) = (Some(now), false);
            }
        }
        u16::try_from(most).ok()
    }
}

/// Requests the blocks from `first` to before `end`. Returns `false` if there was no room.
pub(super) fn request_run(
    writer: &mut RequestWriter<'_>,
    Range { start: first, end }: Range<u64>,
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
