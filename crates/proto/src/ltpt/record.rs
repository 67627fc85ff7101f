//! Records of blocks that are kept for other engines.
//!
//! | octets | field |
//! |---|---|
//! | 1 | version: 1 |
//! | 8 | client service |
//! | 8 | octets of the block |
//! | 8 | octets of its red part |
//! | 8 | where its last segment begins |
//! | 4, … | its octets, and how many they are |
//! | 1 | number of extensions |
//! | each: 1, 1, … | tag, octets of the value, value |
//! | 4 | CRC-32C of all that |

use bytes::Bytes;
use engine::{FileName, IndexRequest};
use wire::cfdp::{Checksum, ChecksumType};
use wire::ltp::{Extension, Extensions, SessionId};
use wire::ltpt::Transport;

use super::flow::{Last, Shape, Stored};
use crate::ltp::core::{Core, Job};
use crate::path::Handle;

const VERSION: u8 = 1;

/// How the keys of the records begin.
const PREFIX: &str = "ltpt-";

/// The record of a block that goes on with these extensions.
pub(crate) fn encode(onward: &Transport, service: u64, shape: &Shape) -> Bytes {
    let mut out = vec![VERSION];
    let (offset, octets) = match &shape.last {
        Some(last) => (last.offset, &last.octets[..]),
        None => (shape.len, &[][..]),
    };
    for number in [service, shape.len, shape.red, offset] {
        out.extend_from_slice(&number.to_be_bytes());
    }
    let len = u32::try_from(octets.len()).expect("a segment is shorter than a datagram");
    out.extend_from_slice(&len.to_be_bytes());
    out.extend_from_slice(octets);
    let values = onward.values();
    out.push(u8::try_from(values.len()).expect("there are seven extensions at most"));
    for (tag, value) in values {
        out.push(tag);
        out.push(u8::try_from(value.len()).expect("an address is the longest of them"));
        out.extend_from_slice(&value);
    }
    out.extend_from_slice(&crc(&out).to_be_bytes());
    out.into()
}

/// What a record says, by the key it has; `None` if it is none, or damaged.
pub(crate) fn decode(key: &str, record: &[u8]) -> Option<(SessionId, Transport, Stored)> {
    let (originator, number) = key.strip_prefix(PREFIX)?.split_once('-')?;
    let session = SessionId { originator: originator.parse().ok()?, number: number.parse().ok()? };
    let (content, check) = record.split_last_chunk::<4>()?;
    if crc(content) != u32::from_be_bytes(*check) {
        return None;
    }
    let rest = content.strip_prefix(&[VERSION])?;
    let (service, rest) = rest.split_first_chunk::<8>()?;
    let (len, rest) = rest.split_first_chunk::<8>()?;
    let (red, rest) = rest.split_first_chunk::<8>()?;
    let (offset, rest) = rest.split_first_chunk::<8>()?;
    let (last, rest) = rest.split_first_chunk::<4>()?;
    let (octets, rest) = rest.split_at_checked(u32::from_be_bytes(*last) as usize)?;
    let last = Last { offset: u64::from_be_bytes(*offset), octets: Bytes::copy_from_slice(octets) };
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
        service: u64::from_be_bytes(*service),
        shape: Shape {
            len: u64::from_be_bytes(*len),
            red: u64::from_be_bytes(*red),
            last: (!octets.is_empty()).then_some(last),
        },
    };
    Some((session, transport, stored))
}

fn crc(octets: &[u8]) -> u32 {
    Checksum::of(ChecksumType::Crc32c, octets).expect("CRC-32C is a known type")
}

/// The key of the record of what a session brought.
pub(crate) fn key(session: SessionId) -> String {
    format!("{PREFIX}{}-{}", session.originator, session.number)
}

/// The working file of what a session brings; it has the name of its record, so that one without a record
/// is known to be of no use.
pub(crate) fn file(session: SessionId) -> FileName {
    FileName::spool(&key(session)).expect("letters, digits and dashes are a name")
}

/// Forgets the record of what a session brought.
pub(crate) fn remove(core: &mut Core, session: SessionId) {
    let request = IndexRequest::Remove { key: key(session) };
    core.kernel.index(Handle::NOBODY, Job::Forget, request);
}

#[cfg(test)]
mod tests {
    use wire::ltpt::{Address, End, Lifetime};

    use super::*;

    #[test]
    fn records_come_back_and_damage_is_seen() {
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
        let last = Last { offset: (1 << 40) - 4, octets: Bytes::from_static(b"last") };
        let shape = Shape { len: 1 << 40, red: 1 << 39, last: Some(last) };
        let record = encode(&onward, 64, &shape).to_vec();
        let (found, transport, stored) = decode(&key(session), &record).expect("a record");
        assert_eq!((found, transport), (session, onward));
        assert_eq!((stored.service, stored.shape), (64, shape));
        for i in 0..record.len() {
            let mut damaged = record.clone();
            damaged[i] ^= 4;
            assert!(decode(&key(session), &damaged).is_none(), "octet {i}");
            assert!(decode(&key(session), &record[..i]).is_none());
        }
        assert!(decode("ltp-7-1", &record).is_none());
    }
}
