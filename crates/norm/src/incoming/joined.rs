//! Requests over a thin return link.
//!
//! A request takes transmission time on the return link, and every byte requested in excess takes
//! time on the forward link. Where a few bytes on the return link take as long as many segments on
//! the forward link, blocks are requested as one range. The request adds the largest number of
//! segments that any of the blocks lacks ([`EXT_LACKS`]). The sender then sends that many parity
//! segments for each.

use engine::Time;
use session::thin_return;

use super::requests::shape_id;
use super::{Block, Incoming, State};
use crate::message::{Position, RequestFlags, RequestWriter};

/// Type of a private header extension: the largest number of segments that a receiver lacks of any
/// block requested in the message. Other implementations skip it and send whole blocks.
pub(crate) const EXT_LACKS: u8 = 195;

/// Maximum number of blocks that one message may request in this way.
pub(crate) const JOINED_MAX: u64 = 1024;

/// Price of one item in a list of requests.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct ItemPrice {
    /// Bytes that cross the forward link in the time an item takes on the return link.
    item: u64,
    /// Bytes of a segment.
    segment: u16,
}

impl ItemPrice {
    /// Bytes of an item.
    pub(crate) const ITEM: usize = 8;

    /// Builds the price from the bytes that cross the forward link per item on the return link.
    pub(crate) const fn new(item: u64, segment: u16) -> Self {
        Self { item, segment }
    }

    /// Whether one item with a count costs less than a list of segments.
    pub(crate) fn counts(self) -> bool {
        self.item >= u64::from(self.segment)
    }

    /// Joins blocks into ranges of two items each, where retransmitting the blocks in between takes
    /// less time. Each block is sent `each` segments.
    fn join(self, blocks: impl IntoIterator<Item = u32>, each: u32) -> Vec<(u64, u64)> {
        let between =
            self.item.saturating_mul(2) / (u64::from(self.segment) * u64::from(each)).max(1);
        let blocks = blocks.into_iter().map(|block| (u64::from(block), u64::from(block) + 1));
        thin_return::join(blocks, between).collect()
    }

    /// Whether ranges and unneeded segments take no longer than a list of `listed` items; an
    /// extension takes half an item.
    fn favours(self, ranges: &[(u64, u64)], unneeded: u64, listed: usize) -> bool {
        let joined = (4 * ranges.len() as u128 + 1) * u128::from(self.item);
        let again = 2 * u128::from(unneeded) * u128::from(self.segment);
        joined + again < 2 * listed as u128 * u128::from(self.item)
    }
}

impl Incoming {
    /// Requests incomplete blocks as ranges, if that is faster than listing them. Returns the
    /// largest number of segments that one lacks, which the message has to carry. Requests up to
    /// `since` are repeated.
    pub(crate) fn request_joined(
        &mut self,
        writer: &mut RequestWriter<'_>,
        block: Option<u64>,
        (now, since): (Time, Time),
        price: ItemPrice,
    ) -> Option<u16> {
        let is_plain = self.stream.is_none() && !self.is_info_only;
        if self.state != State::Receiving || !is_plain || !price.counts() {
            return None;
        }
        let shape = self.shape.clone()?;
        let blocks = shape.partition.blocks();
        let end = block.map_or(blocks, |block| block.min(blocks.into()) as u32);
        let parts = self.blocks.range(..end).filter(|(_, block)| !block.was_requested(since));
        let first = *parts.clone().next()?.0;
        let parts = parts.take_while(|(number, _)| u64::from(**number - first) < JOINED_MAX);
        let lacks = |(number, block): (&u32, &Block)| {
            // A block without memory for parity is listed.
            let block_len = u32::from(shape.partition.block_len(*number));
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
        let (fec, object) = (shape.scheme, self.number());
        let position = |block| Position { fec, object, id: shape_id(&shape, block, 0) };
        let mut through = None;
        for (first, end) in runs {
            let (first, last) = (first as u32, (end - 1) as u32);
            if writer.range(RequestFlags::BLOCK, position(first), position(last)).is_err() {
                break;
            }
            through = Some(last);
        }
        for (_, block) in self.blocks.range_mut(..=through?) {
            if !block.was_requested(since) {
                (block.requested_at, block.is_answered) = (Some(now), false);
            }
        }
        u16::try_from(most).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Price of an item that takes as long as `segments` segments.
    fn price(segments: u64) -> ItemPrice {
        ItemPrice::new(segments * 1_000, 1_000)
    }

    #[test]
    fn blocks_are_joined_over_gaps_that_cost_less() {
        let blocks = [1, 2, 4, 9, 10];
        // A range costs two items; a block in between costs ten segments.
        assert_eq!(price(4).join(blocks, 10), [(1, 3), (4, 5), (9, 11)]);
        assert_eq!(price(5).join(blocks, 10), [(1, 5), (9, 11)]);
        assert_eq!(price(20).join(blocks, 10), [(1, 11)]);
        assert_eq!(price(20).join([], 10), []);
        assert_eq!(ItemPrice::new(u64::MAX, u16::MAX).join(blocks, u32::MAX), [(1, 11)]);
    }

    #[test]
    fn lists_are_kept_where_shorter() {
        assert!(!price(0).counts() && price(1).counts());
        // Two and a half items against two, or against three plus the unneeded segments.
        assert!(!price(100).favours(&[(0, 9)], 0, 2));
        assert!(price(100).favours(&[(0, 9)], 49, 3) && !price(100).favours(&[(0, 9)], 50, 3));
        assert!(!ItemPrice::new(u64::MAX, 1).favours(&[(0, 9)], u64::MAX, 2));
    }
}
