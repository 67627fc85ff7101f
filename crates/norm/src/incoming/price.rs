//! Price of requests over a thin return link.

use session::thin_return;

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
    pub(crate) fn join(self, blocks: impl IntoIterator<Item = u32>, each: u32) -> Vec<(u64, u64)> {
        let between =
            self.item.saturating_mul(2) / (u64::from(self.segment) * u64::from(each)).max(1);
        let blocks = blocks.into_iter().map(|block| (u64::from(block), u64::from(block) + 1));
        thin_return::join(blocks, between).collect()
    }

    /// Whether ranges and unneeded segments take no longer than a list of `listed` items; an
    /// extension takes half an item.
    pub(crate) fn favours(self, ranges: &[(u64, u64)], unneeded: u64, listed: usize) -> bool {
        let joined = (4 * ranges.len() as u128 + 1) * u128::from(self.item);
        let again = 2 * u128::from(unneeded) * u128::from(self.segment);
        joined + again < 2 * listed as u128 * u128::from(self.item)
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
