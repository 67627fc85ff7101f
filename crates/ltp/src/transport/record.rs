//! Records of blocks stored for other engines.

use bytes::Bytes;
use engine::FileName;
use session::record::{Reader, Writer};

use super::flow::{Last, Shape, Stored};
use crate::key;
use crate::segment::ltpt::Transport;
use crate::segment::{Extension, Extensions, SessionId};

const VERSION: u8 = 1;

/// Prefix of the keys of records and of the names of working files.
pub const SPOOL_PREFIX: &str = "ltpt-";

/// Record of a block that is forwarded with these extensions.
pub(crate) fn encode(onward: &Transport, service: u64, shape: &Shape) -> Bytes {
    let mut out = Writer::new(VERSION);
    out.u64(service);
    out.option(shape.end);
    out.u64(shape.red);
    out.ranges(&shape.parts);
    out.u64(shape.last.as_ref().map_or(0, |last| last.offset));
    out.bytes(shape.last.as_ref().map_or(&[], |last| &last.bytes));
    let values = onward.values();
    out.count(values.len());
    for (tag, value) in values {
        out.u8(tag);
        out.bytes(&value);
    }
    out.finish()
}

/// Decodes a record, given its key; `None` if it is invalid or damaged.
pub(crate) fn decode(key: &str, record: &Bytes) -> Option<(SessionId, Transport, Stored)> {
    let session = key::session(SPOOL_PREFIX, key)?;
    let mut fields = Reader::new(VERSION, record)?;
    let service = fields.u64()?;
    let (end, red, parts) = (fields.option()?, fields.u64()?, fields.ranges()?);
    // The red part is complete, or nothing was promised.
    if parts.prefix() < red {
        return None;
    }
    let (offset, bytes) = (fields.u64()?, fields.bytes()?);
    let last = Last { offset, bytes: Bytes::copy_from_slice(&bytes) };
    let mut values = Vec::new();
    for _ in 0..fields.u32()? {
        values.push((fields.u8()?, fields.bytes()?));
    }
    let list: Vec<_> = values.iter().map(|(tag, value)| Extension { tag: *tag, value }).collect();
    let transport = Transport::from_extensions(Extensions::new(&list)).ok()?;
    let shape = Shape { parts, end, red, last: Some(last).filter(|last| !last.bytes.is_empty()) };
    let stored = Stored { file: file(session), service, shape };
    fields.is_empty().then_some((session, transport, stored))
}

/// Key of the record of a session's block.
pub(crate) fn key(session: SessionId) -> String {
    key::of(SPOOL_PREFIX, session)
}

/// Working file of a session's block.
pub(crate) fn file(session: SessionId) -> FileName {
    key::working_file(&key(session))
}

#[cfg(test)]
mod tests {
    use session::ranges::Ranges;

    use crate::segment::ltpt::{Address, End, Lifetime};

    use super::*;

    #[test]
    fn records_round_trip_and_damage_is_detected() {
        let end = |number| End { address: Address::Engine(number), port: 0, service: 64 };
        let onward = Transport {
            source: Some(end(1)),
            destination: Some(end(300)),
            size: Some(1 << 40),
            lifetime: Some(Lifetime { hops: 3, expiry_s: 900_000_000 }),
            flow: Some(u64::MAX),
            ..Transport::default()
        };
        let session = SessionId { originator: 7, number: 1 << 27 };
        let last = Last { offset: (1 << 40) - 4, bytes: Bytes::from_static(b"last") };
        let mut parts = Ranges::new();
        parts.insert(0, 1 << 39);
        parts.insert((1 << 40) - 4, 1 << 40);
        let shape = Shape { parts, end: Some(1 << 40), red: 1 << 39, last: Some(last) };
        let record = encode(&onward, 64, &shape);
        for shape in [shape.clone(), Shape { end: None, last: None, ..shape.clone() }] {
            let record = encode(&onward, 64, &shape);
            let (found, transport, stored) = decode(&key(session), &record).expect("a record");
            assert_eq!((found, transport), (session, onward));
            assert_eq!((stored.service, stored.shape), (64, shape));
        }
        let promised = Shape { red: (1 << 39) + 1, ..shape };
        assert!(decode(&key(session), &encode(&onward, 64, &promised)).is_none(), "red is missing");
        for i in 0..record.len() {
            let mut damaged = record.to_vec();
            damaged[i] ^= 4;
            assert!(decode(&key(session), &damaged.into()).is_none(), "byte {i}");
            assert!(decode(&key(session), &record.slice(..i)).is_none());
        }
        assert!(decode("ltp-7-1", &record).is_none());
    }
}
