//! Records of received files, so that a session replayed after a restart does not replace a newer
//! file.
//!
//! A session is identified by its number and the METADATA of its file: paths change with a
//! restart, and a replay may come from anywhere.

use bytes::Bytes;
use engine::IndexRequest;
use session::path::Handle;
use wire::checksum::crc32c;

use super::core::{Core, Job, ReceivedKey};

/// Prefix of the keys of records.
const PREFIX: &str = "sard-";

/// ReceivedKey of a session.
pub(crate) fn key(number: u32, identity: &[u8]) -> ReceivedKey {
    ReceivedKey { number, identity: crc32c(identity) }
}

/// Records that the file of a session was received.
pub(crate) fn record(core: &mut Core, key: ReceivedKey, len: u64) {
    if !core.config.journal.enabled {
        return;
    }
    let (value, oldest) = core.received.add(key, len, core.config.limits.closed);
    let request = IndexRequest::Put { key: name(key), value };
    core.shared.index(Handle::NOBODY, Job::Forget, request);
    remove(core, oldest);
}

/// Restores the records of an earlier run.
pub(crate) fn restore(core: &mut Core, records: &[(String, Bytes)]) {
    let known = records.iter().filter_map(|(name, value)| Some((parsed(name)?, value)));
    let (_, surplus) = core.received.restore(known, core.config.limits.closed);
    remove(core, surplus);
}

fn remove(core: &mut Core, keys: impl IntoIterator<Item = ReceivedKey>) {
    for key in keys {
        let request = IndexRequest::Remove { key: name(key) };
        core.shared.index(Handle::NOBODY, Job::Forget, request);
    }
}

fn name(key: ReceivedKey) -> String {
    let ReceivedKey { number, identity } = key;
    format!("{PREFIX}{number:08x}-{identity:08x}")
}

fn parsed(name: &str) -> Option<ReceivedKey> {
    let (number, identity) = name.strip_prefix(PREFIX)?.split_once('-')?;
    let hex = |text| u32::from_str_radix(text, 16).ok();
    Some(ReceivedKey { number: hex(number)?, identity: hex(identity)? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_records_can_be_read() {
        let key = key(0xa0b, b"metadata");
        assert_eq!(parsed(&name(key)), Some(key));
        assert_eq!((parsed("sar-00000a0b"), parsed("sard-00000a0b")), (None, None));
    }
}
