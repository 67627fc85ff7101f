//! Answers for sessions that are not under way.

use std::collections::VecDeque;

use engine::PathId;

use crate::path::Burst;

/// Short PDUs that belong to no session under way, in their order.
#[derive(Debug)]
pub(crate) struct Replies {
    waiting: VecDeque<(PathId, Vec<u8>)>,
    max: usize,
}

impl Replies {
    pub(crate) const fn new(max: usize) -> Self {
        Self { waiting: VecDeque::new(), max }
    }

    /// Bytes held.
    pub(crate) fn memory(&self) -> usize {
        self.waiting.iter().map(|(_, pdu)| pdu.len()).sum()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Queues a PDU; `false` if there is no room. One path gets at most a quarter of all room.
    pub(crate) fn push(&mut self, path: PathId, pdu: Vec<u8>) -> bool {
        let of_path = self.waiting.iter().filter(|(to, _)| *to == path).count();
        if self.waiting.len() >= self.max || of_path >= self.max.div_ceil(4) {
            return false;
        }
        self.waiting.push_back((path, pdu));
        true
    }

    /// Drops what waits for a path that went down: whoever asked will ask again.
    pub(crate) fn drop_path(&mut self, path: PathId) {
        self.waiting.retain(|(to, _)| *to != path);
    }

    /// Sends what waits for this path and fits the batch, and shows each PDU that goes to `sent`.
    /// The number of PDUs that are larger than the path takes, and dropped.
    pub(crate) fn emit(
        &mut self,
        path: PathId,
        burst: &mut Burst<'_>,
        mut sent: impl FnMut(&[u8]),
    ) -> u64 {
        let (mut i, mut oversize) = (0, 0);
        while let Some((to, pdu)) = self.waiting.get(i) {
            if *to != path {
                i += 1;
                continue;
            }
            // A path may be narrower than the one that what is answered or relayed came by.
            if pdu.len() > burst.mtu() {
                oversize += 1;
            } else {
                let Some(place) = burst.push(pdu.len()) else { break };
                place.copy_from_slice(pdu);
                sent(pdu);
            }
            self.waiting.remove(i);
        }
        oversize
    }
}
