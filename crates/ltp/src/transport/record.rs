//! Records of blocks stored for other engines.
//!
//! | bytes | field |
//! |---|---|
//! | 1 | version: 2 |
//! | 8 | client service |
//! | 8 | bytes of the block; all ones if its end is unknown |
//! | 8 | bytes of its red part |
//! | 8 | offset of its last segment |
//! | 4, … | length and bytes of the last segment |
//! | 4 | number of received parts |
//! | each: 8, 8 | start and end offset |
//! | 1 | number of extensions |
//! | each: 1, 1, … | tag, length of the value, value |
//! | 4 | CRC-32C of everything before |

use bytes::Bytes;
use engine::FileName;
use session::ranges::Ranges;
use wire::checksum::crc32c;

use super::flow::{Last, Shape, Stored};
use crate::segment::ltpt::Transport;
use crate::segment::{Extension, Extensions, SessionId};

const VERSION: u8 = 2;

/// Value for an unknown end of a block.
const ENDLESS: u64 = u64::MAX;

/// Prefix of the keys of records and of the names of working files.
pub const SPOOL_PREFIX: &str = "ltpt-";

/// Record of a block that is forwarded with these extensions.
pub(crate) fn encode(onward: &Transport, service: u64, shape: &Shape) -> Bytes {
    let mut out = vec![VERSION];
    let (offset, bytes) = match &shape.last {
        Some(last) => (last.offset, &last.bytes[..]),
        None => (0, &[][..]),
    };
    for number in [service, shape.end.unwrap_or(ENDLESS), shape.red, offset] {
        out.extend_from_slice(&number.to_be_bytes());
    }
    let len = u32::try_from(bytes.len()).expect("a segment is shorter than a datagram");
    out.extend_from_slice(&len.to_be_bytes());
    out.extend_from_slice(bytes);
    let count = u32::try_from(shape.parts.len()).expect("gaps are bounded");
    out.extend_from_slice(&count.to_be_bytes());
    for (start, end) in shape.parts.iter() {
        out.extend_from_slice(&start.to_be_bytes());
        out.extend_from_slice(&end.to_be_bytes());
    }
    let values = onward.values();
    out.push(u8::try_from(values.len()).expect("there are seven extensions at most"));
    for (tag, value) in values {
        out.push(tag);
        out.push(u8::try_from(value.len()).expect("an address is the longest of them"));
        out.extend_from_slice(&value);
    }
    out.extend_from_slice(&crc32c(&out).to_be_bytes());
    out.into()
}

/// Decodes a record, given its key; `None` if it is invalid or damaged.
pub(crate) fn decode(key: &str, record: &[u8]) -> Option<(SessionId, Transport, Stored)> {
    let (originator, number) = key.strip_prefix(SPOOL_PREFIX)?.split_once('-')?;
    let session = SessionId { originator: originator.parse().ok()?, number: number.parse().ok()? };
    let (content, check) = record.split_last_chunk::<4>()?;
    if crc32c(content) != u32::from_be_bytes(*check) {
        return None;
    }
    let rest = content.strip_prefix(&[VERSION])?;
    let (service, rest) = uint(rest)?;
    let (end, rest) = uint(rest)?;
    let (red, rest) = uint(rest)?;
    let (offset, rest) = uint(rest)?;
    let (last, rest) = rest.split_first_chunk::<4>()?;
    let (bytes, rest) = rest.split_at_checked(u32::from_be_bytes(*last) as usize)?;
    let last = Last { offset, bytes: Bytes::copy_from_slice(bytes) };
    let (parts, rest) = parts(rest)?;
    // The red part is complete, or nothing was promised.
    if parts.prefix() < red {
        return None;
    }
    let (count, mut rest) = rest.split_first()?;
    let mut list = Vec::new();
    for _ in 0..*count {
        let ([tag, len], behind) = rest.split_first_chunk::<2>()?;
        let (value, behind) = behind.split_at_checked(usize::from(*len))?;
        list.push(Extension { tag: *tag, value });
        rest = behind;
    }
    let transport = Transport::from_extensions(Extensions::new(&list)).ok()?;
    let stored = Stored {
        file: file(session),
        service,
        shape: Shape {
            parts,
            end: (end != ENDLESS).then_some(end),
            red,
            last: (!bytes.is_empty()).then_some(last),
        },
    };
    Some((session, transport, stored))
}

fn uint(rest: &[u8]) -> Option<(u64, &[u8])> {
    let (number, rest) = rest.split_first_chunk()?;
    Some((u64::from_be_bytes(*number), rest))
}

/// Received parts: in order, with gaps between them.
fn parts(rest: &[u8]) -> Option<(Ranges, &[u8])> {
    let (count, mut rest) = rest.split_first_chunk()?;
    let mut parts = Ranges::new();
    for _ in 0..u32::from_be_bytes(*count) {
        let (start, behind) = uint(rest)?;
        let (end, behind) = uint(behind)?;
        if start >= end || !parts.is_empty() && start <= parts.end() {
            return None;
        }
        parts.insert(start, end);
        rest = behind;
    }
    Some((parts, rest))
}

/// Key of the record of a session's block.
pub(crate) fn key(session: SessionId) -> String {
    format!("{SPOOL_PREFIX}{}-{}", session.originator, session.number)
}

/// Working file of a session's block. It is named like its record, so that a file without a record
/// is known to be useless.
pub(crate) fn file(session: SessionId) -> FileName {
    FileName::spool(&key(session)).expect("letters, digits and dashes are a name")
}

#[cfg(test)]
mod tests {
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
        let record = encode(&onward, 64, &shape).to_vec();
        for shape in [shape.clone(), Shape { end: None, last: None, ..shape.clone() }] {
            let record = encode(&onward, 64, &shape);
            let (found, transport, stored) = decode(&key(session), &record).expect("a record");
            assert_eq!((found, transport), (session, onward));
            assert_eq!((stored.service, stored.shape), (64, shape));
        }
        let promised = Shape { red: (1 << 39) + 1, ..shape };
        assert!(decode(&key(session), &encode(&onward, 64, &promised)).is_none(), "red is missing");
        for i in 0..record.len() {
            let mut damaged = record.clone();
            damaged[i] ^= 4;
            assert!(decode(&key(session), &damaged).is_none(), "byte {i}");
            assert!(decode(&key(session), &record[..i]).is_none());
        }
        assert!(decode("ltp-7-1", &record).is_none());
    }
}
