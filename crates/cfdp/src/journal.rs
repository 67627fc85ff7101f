//! Records of transactions, by which an entity resumes after a restart.
//!
//! The first field of a record is its kind, in one byte. Descriptions of a transaction are stored
//! as the PDUs that carried them.

use bytes::Bytes;
use engine::FileName;
use session::ranges::Ranges;
use session::record::{Reader, Writer};

use super::closed::Subject;
use crate::pdu::{ConditionCode, EntityId, TransactionId};

/// Prefix of the keys of records; the name of a working file follows, if there is one.
pub const RECORD_PREFIX: &str = "cfdp-";

const VERSION: u8 = 1;

/// Kinds of records.
const SEQUENCE: u8 = 0;
const SENDER: u8 = 1;
const RECEIVER: u8 = 2;
const FINISHED: u8 = 3;
const OWED: u8 = 4;

/// Key of the next sequence number.
pub(crate) const SEQUENCE_KEY: &str = "cfdp-sequence";

/// Key of a transaction received here.
pub(crate) fn receiver_key(id: TransactionId) -> String {
    format!("cfdp-rx-{}-{}", id.source, id.sequence)
}

/// Source entity in a key of [`receiver_key`].
pub(crate) fn source_of(key: &str) -> Option<u64> {
    key.strip_prefix("cfdp-rx-")?.split_once('-')?.0.parse().ok()
}

/// Key of a transaction sent from here.
pub(crate) fn sender_key(id: TransactionId) -> String {
    format!("cfdp-tx-{}-{}", id.source, id.sequence)
}

/// Decoded record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Record {
    /// First sequence number that was never assigned.
    Sequence(u64),
    /// Put under way.
    Sender { source: Option<FileName>, unbounded: bool, metadata: Vec<u8> },
    /// Reception under way.
    Receiver(ReceiverRecord),
    /// Finished reception, with its Finished PDU.
    Finished { order: u64, pdu: Vec<u8>, subject: Subject },
    /// Finished reception whose Metadata PDU has a request that was not served yet.
    Owed { order: u64, pdu: Vec<u8>, subject: Subject, metadata: Vec<u8> },
}

/// Reception under way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ReceiverRecord {
    /// Outcome, if decided while the file is being renamed.
    pub(crate) decided: Option<Decided>,
    /// Metadata PDU; empty if it did not arrive.
    pub(crate) metadata: Vec<u8>,
    /// EOF PDU; empty if it did not arrive.
    pub(crate) eof: Vec<u8>,
    /// Ranges written and synced.
    pub(crate) ranges: Ranges,
}

/// Outcome of a reception whose file is about to be renamed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Decided {
    pub(crate) condition: ConditionCode,
    pub(crate) fault_location: Option<EntityId>,
}

fn begin(kind: u8) -> Writer {
    let mut out = Writer::new(VERSION);
    out.u8(kind);
    out
}

pub(crate) fn encode_sequence(next: u64) -> Bytes {
    let mut out = begin(SEQUENCE);
    out.u64(next);
    out.finish()
}

pub(crate) fn encode_sender(source: Option<&FileName>, unbounded: bool, metadata: &[u8]) -> Bytes {
    let mut out = begin(SENDER);
    out.name(source);
    out.flag(unbounded);
    out.bytes(metadata);
    out.finish()
}

pub(crate) fn encode_receiver(record: &ReceiverRecord) -> Bytes {
    let mut out = begin(RECEIVER);
    out.flag(record.decided.is_some());
    if let Some(Decided { condition, fault_location }) = record.decided {
        out.u8(condition.code());
        out.option(fault_location.map(|id| id.0));
    }
    out.bytes(&record.metadata);
    out.bytes(&record.eof);
    out.ranges(&record.ranges);
    out.finish()
}

pub(crate) fn encode_finished(order: u64, pdu: &[u8], subject: &Subject) -> Bytes {
    encode_over(FINISHED, order, pdu, subject).finish()
}

pub(crate) fn encode_owed(order: u64, pdu: &[u8], subject: &Subject, metadata: &[u8]) -> Bytes {
    let mut out = encode_over(OWED, order, pdu, subject);
    out.bytes(metadata);
    out.finish()
}

fn encode_over(kind: u8, order: u64, pdu: &[u8], subject: &Subject) -> Writer {
    let mut out = begin(kind);
    out.u64(order);
    out.bytes(pdu);
    out.option(subject.metadata);
    out.option(subject.end.map(|(size, _)| size));
    out.option(subject.end.map(|(_, checksum)| checksum));
    out
}

/// Decodes a record; `None` if it is damaged or of another version.
pub(crate) fn decode(record: &Bytes) -> Option<Record> {
    let mut fields = Reader::new(VERSION, record)?;
    let record = match fields.u8()? {
        SEQUENCE => Record::Sequence(fields.u64()?),
        SENDER => Record::Sender {
            source: fields.name()?,
            unbounded: fields.flag()?,
            metadata: fields.bytes()?.into(),
        },
        RECEIVER => {
            let mut decided = None;
            if fields.flag()? {
                let condition = ConditionCode::from_code(fields.u8()?);
                let fault_location = fields.option()?.map(EntityId);
                decided = Some(Decided { condition, fault_location });
            }
            Record::Receiver(ReceiverRecord {
                decided,
                metadata: fields.bytes()?.into(),
                eof: fields.bytes()?.into(),
                ranges: fields.ranges()?,
            })
        }
        kind @ (FINISHED | OWED) => {
            let (order, pdu) = (fields.u64()?, fields.bytes()?.into());
            let metadata = fields.option()?;
            let subject = Subject { metadata, end: fields.option()?.zip(fields.option()?) };
            if kind == FINISHED {
                Record::Finished { order, pdu, subject }
            } else {
                Record::Owed { order, pdu, subject, metadata: fields.bytes()?.into() }
            }
        }
        _ => return None,
    };
    fields.is_empty().then_some(record)
}

#[cfg(test)]
mod tests {
    use crate::pdu::EntityId;

    use super::*;

    #[test]
    fn records_round_trip_and_damage_is_detected() {
        let mut ranges = Ranges::new();
        ranges.insert(0, 10);
        ranges.insert(20, 1 << 40);
        let decided = Some(Decided {
            condition: ConditionCode::CancelRequestReceived,
            fault_location: Some(EntityId(7)),
        });
        let record = ReceiverRecord { decided, metadata: vec![], eof: vec![3], ranges };
        let source = FileName::file("a/b").unwrap();
        let subject = Subject { metadata: Some(7), end: Some((1 << 33, 9)) };
        let encoded = [
            (encode_sequence(7), Record::Sequence(7)),
            (
                encode_sender(Some(&source), true, b"pdu"),
                Record::Sender { source: Some(source), unbounded: true, metadata: b"pdu".to_vec() },
            ),
            (
                encode_sender(None, false, b"pdu"),
                Record::Sender { source: None, unbounded: false, metadata: b"pdu".to_vec() },
            ),
            (
                encode_owed(3, b"f", &subject, b"m"),
                Record::Owed { order: 3, pdu: b"f".to_vec(), subject, metadata: b"m".to_vec() },
            ),
            (encode_receiver(&record), Record::Receiver(record)),
            (
                encode_finished(3, b"f", &Subject::default()),
                Record::Finished { order: 3, pdu: b"f".to_vec(), subject: Subject::default() },
            ),
        ];
        for (bytes, record) in encoded {
            assert_eq!(decode(&bytes), Some(record));
            for i in 0..bytes.len() {
                let mut damaged = bytes.to_vec();
                damaged[i] ^= 0x40;
                assert_eq!(decode(&damaged.into()), None, "byte {i}");
                assert_eq!(decode(&bytes.slice(..i)), None);
            }
        }
        let id = TransactionId { source: EntityId(1), sequence: 2 };
        assert_ne!(receiver_key(id), sender_key(id));
    }
}
