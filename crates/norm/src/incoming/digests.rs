//! Digests of the blocks of a coded object, which confirm that recovered blocks are the sender's.

use std::collections::BTreeMap;

use session::ranges::Ranges;

use crate::digest::Digest;

/// Wrong digests after which the object is given up.
const FAILURES_MAX: u32 = 3;

/// Digests announced by the sender, and those of complete blocks.
#[derive(Debug, Default)]
pub(super) struct Digests {
    announced: BTreeMap<u32, Digest>,
    computed: BTreeMap<u32, Digest>,
    /// Blocks whose digests are the same.
    confirmed: Ranges,
    /// Blocks with bytes of an earlier session, which may be of another file.
    resumed: Ranges,
    failures: u32,
}

/// Result of a comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// One of the digests is missing.
    Waits,
    Confirmed,
    /// The block must be received again.
    Differs,
    /// As before, and for the last time.
    Fails,
}

impl Digests {
    /// Notes that a block has bytes of an earlier session.
    pub(super) fn resume(&mut self, block: u32) {
        self.resumed.insert(u64::from(block), u64::from(block) + 1);
    }

    /// Notes that the bytes of an earlier session are dropped from a block. Returns whether it had
    /// any.
    pub(super) fn drop_resumed(&mut self, block: u32) -> bool {
        let is_resumed = self.resumed.contains(block.into());
        self.resumed.remove(block.into(), u64::from(block) + 1);
        is_resumed
    }

    /// Notes the digest announced for a block.
    pub(super) fn announce(&mut self, block: u32, digest: Digest) -> Verdict {
        if self.is_confirmed(block) {
            return Verdict::Confirmed;
        }
        self.announced.insert(block, digest);
        self.compare(block)
    }

    /// Notes the digest of a complete block.
    pub(super) fn complete(&mut self, block: u32, digest: Digest) -> Verdict {
        self.computed.insert(block, digest);
        self.compare(block)
    }

    fn compare(&mut self, block: u32) -> Verdict {
        let (Some(announced), Some(computed)) =
            (self.announced.get(&block), self.computed.get(&block))
        else {
            return Verdict::Waits;
        };
        let is_same = announced == computed;
        // If they differ, either can be wrong.
        self.announced.remove(&block);
        self.computed.remove(&block);
        if is_same {
            self.confirmed.insert(u64::from(block), u64::from(block) + 1);
            return Verdict::Confirmed;
        }
        if self.drop_resumed(block) {
            return Verdict::Differs;
        }
        self.failures += 1;
        if self.failures < FAILURES_MAX { Verdict::Differs } else { Verdict::Fails }
    }

    fn is_confirmed(&self, block: u32) -> bool {
        self.confirmed.contains(block.into())
    }

    /// Whether all of `blocks` blocks are confirmed.
    pub(super) fn are_confirmed(&self, blocks: u32) -> bool {
        self.confirmed.covered() >= u64::from(blocks)
    }

    /// Complete blocks below `end` whose digests are missing.
    pub(super) fn missing(&self, end: u32) -> impl Iterator<Item = u32> + '_ {
        self.computed.range(..end).map(|(block, _)| *block)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digests_confirm_in_any_order() {
        let mut digests = Digests::default();
        assert_eq!(digests.complete(0, [1; 16]), Verdict::Waits);
        assert!(!digests.are_confirmed(1) && digests.missing(1).eq([0]));
        assert_eq!(digests.announce(1, [2; 16]), Verdict::Waits);
        assert!(!digests.are_confirmed(2) && digests.missing(2).eq([0]));
        assert_eq!(digests.announce(0, [1; 16]), Verdict::Confirmed);
        assert_eq!(digests.complete(1, [2; 16]), Verdict::Confirmed);
        assert!(digests.are_confirmed(2) && digests.missing(2).next().is_none());
        assert_eq!(digests.announce(1, [3; 16]), Verdict::Confirmed);
    }

    #[test]
    fn blocks_of_an_earlier_session_may_differ() {
        let mut digests = Digests::default();
        for block in 0..5 {
            digests.resume(block);
            assert_eq!(digests.announce(block, [1; 16]), Verdict::Waits);
            assert_eq!(digests.complete(block, [2; 16]), Verdict::Differs);
        }
        assert_eq!(digests.announce(4, [1; 16]), Verdict::Waits);
        assert_eq!(digests.complete(4, [1; 16]), Verdict::Confirmed);
    }

    #[test]
    fn wrong_digests_end_the_object() {
        let mut digests = Digests::default();
        let mut differ = || {
            assert_eq!(digests.announce(0, [1; 16]), Verdict::Waits);
            digests.complete(0, [2; 16])
        };
        assert_eq!(
            [differ(), differ(), differ()],
            [Verdict::Differs, Verdict::Differs, Verdict::Fails]
        );
    }
}
