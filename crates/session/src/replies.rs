//! Replies for sessions that are not active.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;

use engine::PathId;

use crate::path::Burst;
use crate::refusals::Refusals;

/// Short PDUs of no active session, in order.
#[derive(Debug)]
pub struct Replies {
    waiting: VecDeque<(PathId, Vec<u8>)>,
    /// Number of replies by path.
    of_path: BTreeMap<PathId, usize>,
    max: usize,
    /// Rate limits of refusals, by replies and by cancellations of sessions.
    pub refusals: Refusals,
}

impl Replies {
    /// No replies; at most `max` will wait.
    pub fn new(max: usize) -> Self {
        let refusals = Refusals::default();
        Self { waiting: VecDeque::new(), of_path: BTreeMap::new(), max, refusals }
    }

    /// Whether replies wait for this path.
    pub fn waits(&self, path: PathId) -> bool {
        self.of_path.contains_key(&path)
    }

    /// First path between two bounds with waiting replies.
    pub fn next_path(&self, from: Bound<PathId>, end: Bound<PathId>) -> Option<PathId> {
        self.of_path.range((from, end)).next().map(|(path, _)| *path)
    }

    /// Queues a PDU; `false` if there is no room. One path gets at most a quarter of all room.
    pub fn push(&mut self, path: PathId, pdu: Vec<u8>) -> bool {
        let of_path = self.of_path.get(&path).copied().unwrap_or(0);
        if self.waiting.len() >= self.max || of_path >= self.max.div_ceil(4) {
            return false;
        }
        self.waiting.push_back((path, pdu));
        self.of_path.insert(path, of_path + 1);
        true
    }

    /// Drops the replies for a path that went down: the peer will request them again.
    pub(crate) fn drop_path(&mut self, path: PathId) {
        self.refusals.forget(path);
        if self.of_path.remove(&path).is_some() {
            self.waiting.retain(|(to, _)| *to != path);
        }
    }

    /// Sends the replies for this path that fit in the batch, and passes each sent PDU to `sent`.
    /// Returns the number of PDUs that exceed the MTU and were dropped.
    pub fn emit(
        &mut self,
        path: PathId,
        burst: &mut Burst<'_>,
        mut sent: impl FnMut(&[u8]),
    ) -> u64 {
        let (mut i, mut oversize) = (0, 0);
        let Some(mut left) = self.of_path.remove(&path) else { return 0 };
        while let Some((to, pdu)) = self.waiting.get(i) {
            if *to != path {
                i += 1;
                continue;
            }
            // The MTU may be smaller than the MTU of the path by which the PDU arrived.
            if pdu.len() > burst.mtu() {
                oversize += 1;
            } else {
                let Some(place) = burst.push(pdu.len()) else { break };
                place.copy_from_slice(pdu);
                sent(pdu);
            }
            self.waiting.remove(i);
            left -= 1;
        }
        if left > 0 {
            self.of_path.insert(path, left);
        }
        oversize
    }
}
