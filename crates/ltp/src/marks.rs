//! Records of sessions: a mark when the sender has the report of a received part, and a record of
//! each complete file.
//!
//! A session's state does not survive its engine. A sender does not retransmit data that a report
//! claimed; if a restarted engine then claimed the rest, the sender would take the block for
//! delivered. A mark is therefore recorded before the first report that claims a part, and a
//! restarted engine cancels marked sessions.

use std::collections::BTreeSet;

use bytes::Bytes;
use engine::{FileName, FilestoreRequest, IndexRequest};
use session::path::Handle;
use session::recent::Recent;

use super::core::{Core, Job, Task};
use crate::segment::SessionId;

/// Prefix of the names of records and working files.
pub const SPOOL_PREFIX: &str = "ltp-";

/// Common prefix of the keys of all records: of sessions in part, of completed ones, and of blocks
/// for other engines.
pub const RECORD_PREFIX: &str = "ltp";

/// Prefix of the keys of records of complete files.
const DONE_PREFIX: &str = "ltpd-";

/// Records that the file of a session is complete.
pub(crate) fn record_done(core: &mut Core, id: SessionId, red: u64) {
    if !core.config.journal || core.blocks.is_some() {
        return;
    }
    let (value, oldest) = core.done.add(id, red, core.config.limits.closed);
    let request = IndexRequest::Put { key: done_key(id), value };
    core.shared.index(Handle::NOBODY, Job::Forget, request);
    remove_done(core, oldest);
}

fn remove_done(core: &mut Core, sessions: impl IntoIterator<Item = SessionId>) {
    for id in sessions {
        let request = IndexRequest::Remove { key: done_key(id) };
        core.shared.index(Handle::NOBODY, Job::Forget, request);
    }
}

/// Sessions whose files earlier runs received, oldest first, with the lengths of their red parts.
pub(crate) fn restore_done(core: &mut Core, records: &[(String, Bytes)]) -> Vec<(SessionId, u64)> {
    let of_sessions = records
        .iter()
        .filter_map(|(key, value)| Some((session(key.strip_prefix(DONE_PREFIX)?)?, value)));
    let (done, surplus) = core.done.restore(of_sessions, core.config.limits.closed);
    remove_done(core, surplus);
    done
}

/// Sessions of an earlier run that must not continue, oldest first.
#[derive(Debug)]
pub(crate) struct Lost {
    sessions: Recent<SessionId, ()>,
    /// Before the marks are read, nothing is known of any session.
    pub(crate) is_known: bool,
}

impl Lost {
    pub(crate) const fn new(is_known: bool) -> Self {
        Self { sessions: Recent::new(), is_known }
    }

    pub(crate) fn len(&self) -> usize {
        self.sessions.len()
    }

    pub(crate) fn contains(&self, id: &SessionId) -> bool {
        self.sessions.contains(id)
    }

    /// Restores the marks of an earlier run.
    pub(crate) fn restore(&mut self, core: &mut Core, records: &[(String, Bytes)]) {
        self.is_known = true;
        let ids: BTreeSet<_> = records.iter().filter_map(|(key, _)| id(key)).collect();
        for id in ids {
            self.sessions.insert(id, ());
            // The data of the earlier run is useless.
            let request = FilestoreRequest::DenyFile(spool_name(id));
            core.shared.filestore(Handle::NOBODY, Job::Forget, request);
            if self.sessions.len() > core.config.limits.closed
                && let Some((oldest, ())) = self.sessions.forget_oldest()
            {
                remove(core, oldest);
            }
        }
    }

    /// Forgets a session that has ended, or is lost for its sender.
    pub(crate) fn settled(&mut self, core: &mut Core, id: SessionId) {
        if self.sessions.forget(&id).is_some() {
            remove(core, id);
        }
    }
}

/// Mark of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mark {
    /// Nothing was reported yet, or everything, which needs no mark.
    None,
    /// Being recorded.
    Requested,
    Kept,
}

impl Mark {
    /// Whether a part may be claimed now. Records the mark if that is missing.
    pub(crate) fn allows(&mut self, core: &mut Core, handle: Handle, id: SessionId) -> bool {
        if *self == Self::None && core.config.journal {
            *self = Self::Requested;
            let request = IndexRequest::Put { key: key(id), value: Bytes::new() };
            core.shared.index(handle, Job::Own(Task::Mark), request);
        }
        *self != Self::Requested
    }

    /// Removes the mark: nothing depends on the session any more.
    pub(crate) fn clear(&mut self, core: &mut Core, id: SessionId) {
        if std::mem::replace(self, Self::None) != Self::None {
            remove(core, id);
        }
    }
}

fn remove(core: &mut Core, id: SessionId) {
    let request = IndexRequest::Remove { key: key(id) };
    core.shared.index(Handle::NOBODY, Job::Forget, request);
}

/// Working file of a session.
pub(crate) fn spool_name(id: SessionId) -> FileName {
    FileName::spool(&key(id)).expect("letters, digits and dashes are a name")
}

fn key(id: SessionId) -> String {
    format!("{SPOOL_PREFIX}{}-{}", id.originator, id.number)
}

fn done_key(id: SessionId) -> String {
    format!("{DONE_PREFIX}{}-{}", id.originator, id.number)
}

fn id(key: &str) -> Option<SessionId> {
    session(key.strip_prefix(SPOOL_PREFIX)?)
}

fn session(text: &str) -> Option<SessionId> {
    let (originator, number) = text.split_once('-')?;
    Some(SessionId { originator: originator.parse().ok()?, number: number.parse().ok()? })
}
