//! Transactions that are over, and answers for transactions that are not under way.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use engine::{PathId, Time};
use wire::cfdp::{
    Body, Checksum, ChecksumType, ConditionCode, Pdu, TransactionId, TransmissionMode,
};

use super::stats::Stats;
use crate::path::Burst;

/// Bytes of Finished PDUs that are remembered, at most.
const BYTES_MAX: usize = 16 << 20;

/// Time after which a Metadata PDU of an unacknowledged transaction is no duplicate any more.
const DUPLICATE_MAX: Duration = Duration::from_secs(10);

/// What a transaction was about. A peer that counts its transactions from 1 each time it starts
/// uses their numbers again; then this tells an old file from a new one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Subject {
    /// The CRC-32C of the Metadata PDU, if it came.
    pub(crate) metadata: Option<u32>,
    /// The file's size and checksum, if the EOF came.
    pub(crate) end: Option<(u64, u32)>,
}

impl Subject {
    /// The digest of a Metadata PDU; `None` of nothing.
    pub(crate) fn digest(pdu: &[u8]) -> Option<u32> {
        Checksum::of(ChecksumType::Crc32c, pdu).filter(|_| !pdu.is_empty())
    }
}

/// A reception that is over.
#[derive(Clone, Debug)]
pub(crate) struct Over {
    /// The Finished PDU that said so; empty if nobody ever waited for one.
    pub(crate) pdu: Vec<u8>,
    pub(crate) subject: Subject,
    pub(crate) since: Time,
}

impl Over {
    /// Whether a PDU with this body, which came as `datagram`, is about another file.
    pub(crate) fn is_about_another(&self, now: Time, pdu: &Pdu<'_>, datagram: &[u8]) -> bool {
        match pdu.body {
            Body::Metadata(_) => {
                let differs = self.subject.metadata.is_some_and(|known| {
                    Subject::digest(datagram).is_some_and(|digest| digest != known)
                });
                // Without acknowledgements the same file may be sent again on purpose.
                let again = pdu.header.mode == TransmissionMode::Unacknowledged
                    && now.since(self.since) > DUPLICATE_MAX;
                differs || again
            }
            Body::Eof(eof) if eof.condition == ConditionCode::NoError => {
                let end = (eof.file_size, eof.checksum);
                self.subject.end.is_some_and(|known| known != end)
            }
            Body::Eof(_)
            | Body::FileData(_)
            | Body::Finished(_)
            | Body::Ack(_)
            | Body::Nak(_)
            | Body::Prompt(_)
            | Body::KeepAlive(_)
            | Body::Unknown { .. } => false,
        }
    }
}

/// Receptions that are over, up to a number of them.
#[derive(Debug)]
pub(crate) struct Closed {
    over: BTreeMap<TransactionId, Over>,
    order: VecDeque<TransactionId>,
    bytes: usize,
    max: usize,
}

impl Closed {
    pub(crate) fn new(max: usize) -> Self {
        Self { over: BTreeMap::new(), order: VecDeque::new(), bytes: 0, max }
    }

    /// Remembers one; returns those that are forgotten for it.
    pub(crate) fn insert(&mut self, id: TransactionId, over: Over) -> Vec<TransactionId> {
        self.bytes += over.pdu.len();
        match self.over.insert(id, over) {
            Some(before) => self.bytes -= before.pdu.len(),
            None => self.order.push_back(id),
        }
        let mut forgotten = Vec::new();
        while self.order.len() > self.max || self.bytes > BYTES_MAX {
            let Some(oldest) = self.order.pop_front() else { break };
            if let Some(over) = self.over.remove(&oldest) {
                self.bytes -= over.pdu.len();
            }
            forgotten.push(oldest);
        }
        forgotten
    }

    /// Forgets one, because its number is used for something else.
    pub(crate) fn forget(&mut self, id: TransactionId) {
        if let Some(over) = self.over.remove(&id) {
            self.bytes -= over.pdu.len();
            self.order.retain(|other| *other != id);
        }
    }

    /// Bytes held.
    pub(crate) fn memory(&self) -> usize {
        self.bytes + self.over.len() * (size_of::<Over>() + 2 * size_of::<TransactionId>())
    }

    pub(crate) fn get(&self, id: TransactionId) -> Option<&Over> {
        self.over.get(&id)
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
            if let Ok(pdu) = Pdu::decode(pdu) {
                stats.sent.count(&pdu.body);
            }
            self.waiting.remove(i);
        }
    }
}
