//! Keys of the records of sessions.

use bytes::Bytes;
use engine::FileName;

use crate::segment::SessionId;

/// Key of a session's record of the kind that has this prefix.
pub(crate) fn of(prefix: &str, id: SessionId) -> String {
    format!("{prefix}{}-{}", id.originator, id.number)
}

/// Session of a key with this prefix.
pub(crate) fn session(prefix: &str, key: &str) -> Option<SessionId> {
    let (originator, number) = key.strip_prefix(prefix)?.split_once('-')?;
    Some(SessionId { originator: originator.parse().ok()?, number: number.parse().ok()? })
}

/// Records whose keys have this prefix, and their sessions.
pub(crate) fn with_sessions<'a>(
    records: &'a [(String, Bytes)],
    prefix: &'static str,
) -> impl Iterator<Item = (SessionId, &'a Bytes)> {
    records.iter().filter_map(move |(key, value)| Some((session(prefix, key)?, value)))
}

/// Working file that is named like its record, so that a file without a record is known to be
/// useless.
pub(crate) fn working_file(key: &str) -> FileName {
    FileName::spool(key).expect("letters, digits and dashes are a name")
}
