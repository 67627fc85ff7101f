//! Partition of an object into source blocks (RFC 5052 §9.1).

use thiserror::Error;

/// The largest object: its size is a 48-bit field (RFC 5510 §4.2.4 and §5.2.4).
const OBJECT_SIZE_MAX: u64 = (1 << 48) - 1;

/// Source blocks of one object: all have `A_large` or `A_small` segments, which differ by at most
/// one; the `I` large ones come first. All segments but the object's last one are full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Partition {
    object_size: u64,
    segment_size: u64,
    blocks: u32,
    large: u64,
    small: u64,
    /// Number of blocks with `large` segments, `I` in the RFC.
    large_blocks: u64,
}

/// Location of a byte of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Location {
    /// Source block number.
    pub sbn: u32,
    /// Segment in the block.
    pub esi: u16,
    /// Offset within the segment.
    pub within: u16,
}

/// Error of an impossible partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum PartitionError {
    /// A segment size of 0.
    #[error("segments of no length")]
    NoSegment,
    /// A maximum block length of 0.
    #[error("blocks of no length")]
    NoBlock,
    /// An object size that does not fit its 48-bit field.
    #[error("an object of {0} bytes does not fit 48 bits")]
    TooLarge(u64),
    /// More blocks than any FEC payload id can number (32 bits, RFC 5445 §5.1.2).
    #[error("{0} blocks are more than can be numbered")]
    TooManyBlocks(u64),
}

impl Partition {
    /// Partitions `object_size` bytes into segments of `segment_size` bytes, and those into blocks
    /// of at most `max_block` segments. An empty object has no blocks.
    ///
    /// # Errors
    ///
    /// See [`PartitionError`].
    pub fn new(
        object_size: u64,
        segment_size: u16,
        max_block: u16,
    ) -> Result<Self, PartitionError> {
        if segment_size == 0 {
            return Err(PartitionError::NoSegment);
        }
        if max_block == 0 {
            return Err(PartitionError::NoBlock);
        }
        if object_size > OBJECT_SIZE_MAX {
            return Err(PartitionError::TooLarge(object_size));
        }
        let segment_size = u64::from(segment_size);
        let segments = object_size.div_ceil(segment_size);
        let count = segments.div_ceil(u64::from(max_block));
        let blocks = u32::try_from(count).map_err(|_| PartitionError::TooManyBlocks(count))?;
        // An empty object has no block to divide by.
        let divisor = count.max(1);
        let (large, small) = (segments.div_ceil(divisor), segments / divisor);
        let large_blocks = segments - small * count;
        Ok(Self { object_size, segment_size, blocks, large, small, large_blocks })
    }

    /// Bytes of the object.
    #[must_use]
    pub fn object_size(&self) -> u64 {
        self.object_size
    }

    /// Bytes of every segment but the last.
    #[must_use]
    pub fn segment_size(&self) -> u16 {
        self.segment_size as u16
    }

    /// Number of source blocks, `N`.
    #[must_use]
    pub fn blocks(&self) -> u32 {
        self.blocks
    }

    /// Number of segments of the whole object, `T`.
    #[must_use]
    pub fn segments(&self) -> u64 {
        self.object_size.div_ceil(self.segment_size)
    }

    /// Segments of the block `sbn`; 0 if the object has no such block.
    #[must_use]
    pub fn block_len(&self, sbn: u32) -> u16 {
        if sbn >= self.blocks {
            return 0;
        }
        (if u64::from(sbn) < self.large_blocks { self.large } else { self.small }) as u16
    }

    /// Segments of the object before the block `sbn`; all of them if there is no such block.
    #[must_use]
    pub fn first_segment(&self, sbn: u32) -> u64 {
        let before = u64::from(sbn.min(self.blocks));
        let large = before.min(self.large_blocks);
        large * self.large + (before - large) * self.small
    }

    /// Bytes of the object before the block `sbn`; its size if there is no such block.
    #[must_use]
    pub fn block_offset(&self, sbn: u32) -> u64 {
        (self.first_segment(sbn) * self.segment_size).min(self.object_size)
    }

    /// Bytes of the object before the segment `esi` of the block `sbn`; the start of the next block
    /// if the block has no such segment.
    #[must_use]
    pub fn segment_offset(&self, sbn: u32, esi: u16) -> u64 {
        let segment = self.first_segment(sbn) + u64::from(esi.min(self.block_len(sbn)));
        (segment * self.segment_size).min(self.object_size)
    }

    /// Bytes of the segment `esi` of the block `sbn`; 0 if there is no such segment.
    #[must_use]
    pub fn segment_len(&self, sbn: u32, esi: u16) -> u16 {
        if esi >= self.block_len(sbn) {
            return 0;
        }
        let offset = (self.first_segment(sbn) + u64::from(esi)) * self.segment_size;
        (self.object_size - offset).min(self.segment_size) as u16
    }

    /// Location of the byte at `offset`; `None` from the end of the object on.
    #[must_use]
    pub fn locate(&self, offset: u64) -> Option<Location> {
        if offset >= self.object_size {
            return None;
        }
        let segment = offset / self.segment_size;
        let within = (offset % self.segment_size) as u16;
        let in_large = self.large_blocks * self.large;
        let (block, esi) = if segment < in_large {
            (segment / self.large, segment % self.large)
        } else {
            let rest = segment - in_large;
            (self.large_blocks + rest / self.small, rest % self.small)
        };
        Some(Location { sbn: block as u32, esi: esi as u16, within })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn partition_matches_the_example_of_the_paper() {
        // 10 kB in segments of 1,024 bytes: 10 segments; blocks of 4 are 4 + 3 + 3.
        let partition = Partition::new(10_000, 1_024, 4).unwrap();
        assert_eq!(partition.blocks(), 3);
        assert_eq!([0, 1, 2, 3].map(|sbn| partition.block_len(sbn)), [4, 3, 3, 0]);
        assert_eq!([0, 1, 2, 3].map(|sbn| partition.block_offset(sbn)), [0, 4_096, 7_168, 10_000]);
        assert_eq!(partition.segment_len(2, 2), 10_000 - 9 * 1_024);
        assert_eq!(partition.segment_len(2, 3), 0);
        assert_eq!(partition.segment_offset(2, 3), 10_000);
        assert_eq!(partition.locate(7_169), Some(Location { sbn: 2, esi: 0, within: 1 }));
        assert_eq!(partition.locate(10_000), None);
    }

    #[test]
    fn empty_objects_have_no_blocks() {
        let partition = Partition::new(0, 1_024, 64).unwrap();
        assert_eq!((partition.blocks(), partition.segments()), (0, 0));
        assert_eq!((partition.block_len(0), partition.segment_len(0, 0)), (0, 0));
        assert_eq!((partition.block_offset(0), partition.locate(0)), (0, None));
    }

    #[test]
    fn refuses_invalid_partitions() {
        assert_eq!(Partition::new(1, 0, 1), Err(PartitionError::NoSegment));
        assert_eq!(Partition::new(1, 1, 0), Err(PartitionError::NoBlock));
        assert_eq!(Partition::new(1 << 48, 1, 1), Err(PartitionError::TooLarge(1 << 48)));
        assert_eq!(Partition::new(1 << 32, 1, 1), Err(PartitionError::TooManyBlocks(1 << 32)));
        assert!(Partition::new((1 << 48) - 1, 65_535, 65_535).is_ok());
    }

    proptest! {
        /// Block after block and segment after segment, the object is covered without a gap.
        #[test]
        fn partition_covers_the_object(size in 1_u64..200_000, segment in 1_u16..600, max in 1_u16..300) {
            let partition = Partition::new(size, segment, max).unwrap();
            let mut offset = 0;
            for sbn in 0..partition.blocks() {
                prop_assert_eq!(partition.block_offset(sbn), offset);
                let length = partition.block_len(sbn);
                prop_assert!(length >= 1 && length <= max && length <= partition.block_len(0));
                prop_assert!(partition.block_len(0) - length <= 1);
                for esi in 0..length {
                    prop_assert_eq!(partition.segment_offset(sbn, esi), offset);
                    offset += u64::from(partition.segment_len(sbn, esi));
                    let last = partition.locate(offset - 1).unwrap();
                    prop_assert_eq!((last.sbn, last.esi), (sbn, esi));
                    prop_assert_eq!(last.within + 1, partition.segment_len(sbn, esi));
                }
            }
            prop_assert_eq!(offset, size);
        }

        /// Compares with the numbers of RFC 5052 §9.1, at any size.
        #[test]
        fn partition_matches_rfc_5052(size in 1_u64..1 << 48, segment in 64_u16.., max in 1_024_u16..) {
            let partition = Partition::new(size, segment, max).unwrap();
            let segments = size.div_ceil(u64::from(segment));
            let blocks = segments.div_ceil(u64::from(max));
            prop_assert_eq!(u64::from(partition.blocks()), blocks);
            prop_assert_eq!(u64::from(partition.block_len(0)), segments.div_ceil(blocks));
            let last = partition.blocks() - 1;
            prop_assert_eq!(u64::from(partition.block_len(last)), segments / blocks);
            let end = partition.segment_offset(last, partition.block_len(last) - 1);
            prop_assert!(end < size && size - end <= u64::from(segment));
            let middle = partition.locate(size / 2).unwrap();
            let start = partition.segment_offset(middle.sbn, middle.esi);
            prop_assert_eq!(start + u64::from(middle.within), size / 2);
        }
    }
}
