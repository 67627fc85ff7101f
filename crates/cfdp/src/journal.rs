//! Records of transactions, by which an entity resumes after a restart.
//!
//! A record is: version (1 byte), kind (1), fields, CRC-32C of everything before (4, big endian).
//! Numbers are big endian; byte strings follow a length of four bytes. Descriptions of a
//! transaction are stored as the PDUs that carried them.

use bytes::Bytes;
use engine::{Area, FileName};
use session::ranges::Ranges;
use wire::checksum::crc32c;

use super::closed::Subject;
use crate::pdu::{ConditionCode, EntityId, TransactionId};

/// Prefix of the keys of records; the name of a working file follows, if there is one.
pub const RECORD_PREFIX: &str = "cfdp-";

const VERSION: u8 = 2;
const CHECK_LEN: usize = 4;

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

fn begin(kind: u8) -> Vec<u8> {
    vec![VERSION, kind]
}

fn finish(mut out: Vec<u8>) -> Bytes {
    out.extend_from_slice(&crc32c(&out).to_be_bytes());
    out.into()
}

fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    let len = u32::try_from(bytes.len()).expect("PDUs and names are far below 4 GiB");
    out.extend_from_slice(&len.to_be_bytes());
    out.extend_from_slice(bytes);
}

pub(crate) fn encode_sequence(next: u64) -> Bytes {
    let mut out = begin(0);
    out.extend_from_slice(&next.to_be_bytes());
    finish(out)
}

pub(crate) fn encode_sender(source: Option<&FileName>, unbounded: bool, metadata: &[u8]) -> Bytes {
    let mut out = begin(1);
    out.push(match source.map(FileName::area) {
        Some(Area::Files) => 0,
        Some(Area::Spool) => 1,
        None => 2,
    });
    out.push(u8::from(unbounded));
    put_bytes(&mut out, source.map_or("", FileName::path).as_bytes());
    put_bytes(&mut out, metadata);
    finish(out)
}

pub(crate) fn encode_receiver(record: &ReceiverRecord) -> Bytes {
    let mut out = begin(2);
    let location = record.decided.and_then(|decided| decided.fault_location);
    out.push(match (record.decided, location) {
        (None, _) => 0,
        (Some(_), None) => 1,
        (Some(_), Some(_)) => 2,
    });
    out.push(record.decided.map_or(0, |decided| decided.condition.code()));
    out.extend_from_slice(&location.map_or(0, |id| id.0).to_be_bytes());
    put_bytes(&mut out, &record.metadata);
    put_bytes(&mut out, &record.eof);
    for (start, end) in record.ranges.iter() {
        out.extend_from_slice(&start.to_be_bytes());
        out.extend_from_slice(&end.to_be_bytes());
    }
    finish(out)
}

fn put_subject(out: &mut Vec<u8>, subject: &Subject) {
    out.push(u8::from(subject.metadata.is_some()) | u8::from(subject.end.is_some()) << 1);
    let (size, checksum) = subject.end.unwrap_or_default();
    out.extend_from_slice(&subject.metadata.unwrap_or_default().to_be_bytes());
    out.extend_from_slice(&size.to_be_bytes());
    out.extend_from_slice(&checksum.to_be_bytes());
}

pub(crate) fn encode_finished(order: u64, pdu: &[u8], subject: &Subject) -> Bytes {
    let mut out = begin(3);
    out.extend_from_slice(&order.to_be_bytes());
    put_bytes(&mut out, pdu);
    put_subject(&mut out, subject);
    finish(out)
}

pub(crate) fn encode_owed(order: u64, pdu: &[u8], subject: &Subject, metadata: &[u8]) -> Bytes {
    let mut out = begin(4);
    out.extend_from_slice(&order.to_be_bytes());
    put_bytes(&mut out, pdu);
    put_subject(&mut out, subject);
    put_bytes(&mut out, metadata);
    finish(out)
}

/// Decodes a record; `None` if it is damaged or of another version.
pub(crate) fn decode(record: &[u8]) -> Option<Record> {
    let (content, check) = record.split_last_chunk::<CHECK_LEN>()?;
    if crc32c(content) != u32::from_be_bytes(*check) {
        return None;
    }
    let mut fields = Fields(content);
    if fields.u8()? != VERSION {
        return None;
    }
    let record = match fields.u8()? {
        0 => Record::Sequence(fields.u64()?),
        1 => {
            let place = fields.u8()?;
            let unbounded = fields.u8()? != 0;
            let path = String::from_utf8(fields.bytes()?).ok()?;
            let source = match place {
                0 => Some(FileName::file(&path).ok()?),
                1 => Some(FileName::spool(&path).ok()?),
                2 => None,
                _ => return None,
            };
            Record::Sender { source, unbounded, metadata: fields.bytes()? }
        }
        2 => {
            let (stage, condition, location) = (fields.u8()?, fields.u8()?, fields.u64()?);
            let condition = ConditionCode::from_code(condition);
            let decided = match stage {
                0 => None,
                1 => Some(Decided { condition, fault_location: None }),
                2 => Some(Decided { condition, fault_location: Some(EntityId(location)) }),
                _ => return None,
            };
            let (metadata, eof) = (fields.bytes()?, fields.bytes()?);
            let mut ranges = Ranges::new();
            while !fields.0.is_empty() {
                let (start, end) = (fields.u64()?, fields.u64()?);
                // Ranges are written in order, with gaps between them.
                if start >= end || (start <= ranges.end() && ranges.end() > 0) {
                    return None;
                }
                ranges.insert(start, end);
            }
            Record::Receiver(ReceiverRecord { decided, metadata, eof, ranges })
        }
        3 => Record::Finished {
            order: fields.u64()?,
            pdu: fields.bytes()?,
            subject: fields.subject()?,
        },
        4 => Record::Owed {
            order: fields.u64()?,
            pdu: fields.bytes()?,
            subject: fields.subject()?,
            metadata: fields.bytes()?,
        },
        _ => return None,
    };
    fields.0.is_empty().then_some(record)
}

struct Fields<'a>(&'a [u8]);

impl Fields<'_> {
    fn u8(&mut self) -> Option<u8> {
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*first)
    }

    fn u64(&mut self) -> Option<u64> {
        let (number, rest) = self.0.split_first_chunk::<8>()?;
        self.0 = rest;
        Some(u64::from_be_bytes(*number))
    }

    fn u32(&mut self) -> Option<u32> {
        let (number, rest) = self.0.split_first_chunk::<4>()?;
        self.0 = rest;
        Some(u32::from_be_bytes(*number))
    }

    fn subject(&mut self) -> Option<Subject> {
        let known = self.u8()?;
        let metadata = self.u32()?;
        let end = (self.u64()?, self.u32()?);
        Some(Subject {
            metadata: (known & 1 != 0).then_some(metadata),
            end: (known & 2 != 0).then_some(end),
        })
    }

    fn bytes(&mut self) -> Option<Vec<u8>> {
        let (len, rest) = self.0.split_first_chunk::<4>()?;
        let (bytes, rest) = rest.split_at_checked(u32::from_be_bytes(*len) as usize)?;
        self.0 = rest;
        Some(bytes.to_vec())
    }
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
                assert_eq!(decode(&damaged), None, "byte {i}");
                assert_eq!(decode(&bytes[..i]), None);
            }
        }
        let id = TransactionId { source: EntityId(1), sequence: 2 };
        assert_ne!(receiver_key(id), sender_key(id));
    }
}
