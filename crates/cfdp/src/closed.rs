//! Finished receptions.

use std::time::Duration;

use engine::Time;
use session::recent::Recent;
use wire::checksum::crc32c;

use crate::pdu::{Body, ConditionCode, Pdu, TransactionId, TransmissionMode};

/// Maximum bytes of remembered Finished PDUs.
const BYTES_MAX: usize = 16 << 20;

/// Time after which a repeated Metadata PDU of an unacknowledged transaction counts as a new file.
const DUPLICATE_MAX: Duration = Duration::from_secs(10);

/// Content of a transaction. A peer that counts its transactions from 1 after each start reuses
/// their numbers; this distinguishes an old file from a new one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Subject {
    /// CRC-32C of the Metadata PDU, if it arrived.
    pub(crate) metadata: Option<u32>,
    /// Size and checksum of the file, if the EOF arrived.
    pub(crate) end: Option<(u64, u32)>,
}

impl Subject {
    /// Digest of a Metadata PDU; `None` if it is empty.
    pub(crate) fn digest(pdu: &[u8]) -> Option<u32> {
        (!pdu.is_empty()).then(|| crc32c(pdu))
    }
}

/// Finished reception.
#[derive(Clone, Debug)]
pub(crate) struct Over {
    /// Finished PDU of the reception; empty if no sender waited for one.
    pub(crate) pdu: Vec<u8>,
    pub(crate) subject: Subject,
    pub(crate) since: Time,
}

impl Over {
    /// Whether a PDU with this body, received as `datagram`, belongs to another file.
    pub(crate) fn is_about_another(&self, now: Time, pdu: &Pdu<'_>, datagram: &[u8]) -> bool {
        match pdu.body {
            Body::Metadata(_) => {
                let differs = self.subject.metadata.is_some_and(|known| {
                    Subject::digest(datagram).is_some_and(|digest| digest != known)
                });
                // An unacknowledged file may be sent again on purpose.
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

/// Finished receptions, up to a maximum number.
#[derive(Debug)]
pub(crate) struct Closed {
    over: Recent<TransactionId, Over>,
    bytes: usize,
    max: usize,
}

impl Closed {
    pub(crate) fn new(max: usize) -> Self {
        Self { over: Recent::new(), bytes: 0, max }
    }

    /// Remembers a reception. Returns the receptions forgotten for it.
    pub(crate) fn insert(&mut self, id: TransactionId, over: Over) -> Vec<TransactionId> {
        self.bytes += over.pdu.len();
        if let Some(before) = self.over.insert(id, over) {
            self.bytes -= before.pdu.len();
        }
        let mut forgotten = Vec::new();
        while self.over.len() > self.max || self.bytes > BYTES_MAX {
            let Some((oldest, over)) = self.over.forget_oldest() else { break };
            self.bytes -= over.pdu.len();
            forgotten.push(oldest);
        }
        forgotten
    }

    /// Forgets a reception whose number is reused.
    pub(crate) fn forget(&mut self, id: TransactionId) {
        if let Some(over) = self.over.forget(&id) {
            self.bytes -= over.pdu.len();
        }
    }

    pub(crate) fn get(&self, id: TransactionId) -> Option<&Over> {
        self.over.get(&id)
    }
}
