//! Transactions that are over, and answers for transactions that are not under way.

use std::collections::{BTreeMap, VecDeque};

use engine::PathId;
use wire::cfdp::TransactionId;

use super::path::Burst;
use super::stats::Stats;

/// Receptions that are over, with the Finished PDUs that said so, up to a number of them.
#[derive(Debug)]
pub(crate) struct Closed {
    pdus: BTreeMap<TransactionId, Vec<u8>>,
    order: VecDeque<TransactionId>,
    max: usize,
}

impl Closed {
    pub(crate) fn new(max: usize) -> Self {
        Self { pdus: BTreeMap::new(), order: VecDeque::new(), max }
    }

    /// Remembers one; returns those that are forgotten for it.
    pub(crate) fn insert(&mut self, id: TransactionId, pdu: Vec<u8>) -> Vec<TransactionId> {
        if self.pdus.insert(id, pdu).is_none() {
            self.order.push_back(id);
        }
        let mut forgotten = Vec::new();
        while self.order.len() > self.max {
            let Some(oldest) = self.order.pop_front() else { break };
            self.pdus.remove(&oldest);
            forgotten.push(oldest);
        }
        forgotten
    }

    /// Bytes held.
    pub(crate) fn memory(&self) -> usize {
        let pdus = self.pdus.values().map(|pdu| pdu.len() + 2 * size_of::<TransactionId>());
        pdus.sum()
    }

    /// The Finished PDU of a reception that is over; empty if nobody ever waited for one.
    pub(crate) fn get(&self, id: TransactionId) -> Option<&[u8]> {
        self.pdus.get(&id).map(Vec::as_slice)
    }
}

/// Short PDUs that belong to no transaction under way, in their order.
#[derive(Debug)]
pub(crate) struct Replies {
    waiting: VecDeque<(PathId, Vec<u8>)>,
    max: usize,
}

impl Replies {
    pub(crate) fn new(max: usize) -> Self {
        Self { waiting: VecDeque::new(), max }
    }

    /// Bytes held.
    pub(crate) fn memory(&self) -> usize {
        self.waiting.iter().map(|(_, pdu)| pdu.len()).sum()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Queues a PDU; `false` if there is no room.
    pub(crate) fn push(&mut self, path: PathId, pdu: Vec<u8>) -> bool {
        if self.waiting.len() >= self.max {
            return false;
        }
        self.waiting.push_back((path, pdu));
        true
    }

    /// Sends what waits for this path and fits the batch.
    pub(crate) fn emit(&mut self, path: PathId, burst: &mut Burst<'_>, stats: &mut Stats) {
        let mut i = 0;
        while let Some((to, pdu)) = self.waiting.get(i) {
            if *to != path {
                i += 1;
                continue;
            }
            // A path that is narrower than the one it came by may not take a relayed PDU.
            if pdu.len() > burst.mtu() {
                stats.oversize += 1;
                self.waiting.remove(i);
                continue;
            }
            let Some(place) = burst.push(pdu.len()) else { return };
            place.copy_from_slice(pdu);
            if let Ok(pdu) = wire::cfdp::Pdu::decode(pdu) {
                stats.sent.count(&pdu.body);
            }
            self.waiting.remove(i);
        }
    }
}
