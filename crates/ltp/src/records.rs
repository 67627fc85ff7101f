//! Records of sessions: of receptions in part, of files being sent, and of complete files.
//!
//! A sender does not retransmit data that a report claimed. So a report that claims a part leaves
//! when that part is on record. A restarted engine goes on with a working file, and cancels
//! sessions whose data is in memory: their records hold nothing.

use bytes::Bytes;
use engine::{FileName, FilestoreRequest, IndexRequest};
use session::journal::Slot;
use session::path::Handle;
use session::ranges::Ranges;
use session::recent::Recent;
use session::record::{Reader, Writer};

use super::core::{Core, Job, Task};
use super::key;
use super::request::{Red, SendRequest};
use crate::segment::SessionId;

/// Version of the records of files being sent.
const VERSION: u8 = 1;

/// Prefix of the names of records and working files.
pub const SPOOL_PREFIX: &str = "ltp-";

/// Common prefix of the keys of all records: of sessions in part, of completed ones, and of blocks
/// for other engines.
pub const RECORD_PREFIX: &str = "ltp";

/// Prefix of the keys of records of complete files.
const DONE_PREFIX: &str = "ltpd-";

/// Prefix of the keys of records of files being sent.
pub(crate) const SENT_PREFIX: &str = "ltps-";

/// Records that the file of a session is complete.
pub(crate) fn record_done(core: &mut Core, id: SessionId, red: u64) {
    if !core.config.journal {
        return;
    }
    let (value, oldest) = core.done.add(id, red, core.config.limits.closed);
    let request = IndexRequest::Put { key: key::of(DONE_PREFIX, id), value };
    core.shared.index(Handle::NOBODY, Job::Forget, request);
    remove_done(core, oldest);
}

fn remove_done(core: &mut Core, sessions: impl IntoIterator<Item = SessionId>) {
    for id in sessions {
        remove(core, key::of(DONE_PREFIX, id));
    }
}

/// Sessions whose files earlier runs received, oldest first, with the lengths of their red parts.
pub(crate) fn restore_done(core: &mut Core, records: &[(String, Bytes)]) -> Vec<(SessionId, u64)> {
    let of_files = key::with_sessions(records, DONE_PREFIX);
    let (done, surplus) = core.done.restore(of_files, core.config.limits.closed);
    remove_done(core, surplus);
    done
}

/// Sessions of an earlier run that must not continue, oldest first.
#[derive(Debug)]
pub(crate) struct Lost {
    sessions: Recent<SessionId, ()>,
    /// Before the records are read, nothing is known of any session.
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

    /// Adds a session, whose data is useless.
    pub(crate) fn add(&mut self, core: &mut Core, id: SessionId) {
        self.sessions.insert(id, ());
        let request = FilestoreRequest::DenyFile(spool_name(id));
        core.shared.filestore(Handle::NOBODY, Job::Forget, request);
        if self.sessions.len() > core.config.limits.closed
            && let Some((oldest, ())) = self.sessions.forget_oldest()
        {
            remove(core, reception_key(oldest));
        }
    }

    /// Forgets a session that has ended, or is lost for its sender.
    pub(crate) fn settled(&mut self, core: &mut Core, id: SessionId) {
        if self.sessions.forget(&id).is_some() {
            remove(core, reception_key(id));
        }
    }
}

/// Parts of a reception on record.
#[derive(Debug, Default)]
pub(crate) struct Record {
    slot: Slot,
    parts: Ranges,
    /// Parts of the record that is being written.
    next: Ranges,
}

impl Record {
    /// Record of an earlier run.
    pub(crate) fn restored(parts: Ranges) -> Self {
        let mut slot = Slot::default();
        slot.mark_used();
        Self { slot, next: parts.clone(), parts }
    }

    /// Parts on record.
    pub(crate) fn parts(&self) -> &Ranges {
        &self.parts
    }

    /// Whether a record is being written.
    pub(crate) fn is_busy(&self) -> bool {
        self.slot.is_busy()
    }

    /// Whether there is a record, or was.
    pub(crate) fn is_used(&self) -> bool {
        self.slot.is_used()
    }

    /// Records these parts of a session.
    pub(crate) fn put(
        &mut self,
        core: &mut Core,
        handle: Handle,
        id: SessionId,
        parts: Ranges,
        value: Bytes,
    ) {
        self.next = parts;
        let request = IndexRequest::Put { key: reception_key(id), value };
        self.slot.submit(&mut core.shared, handle, Job::Own(Task::Record), request);
    }

    /// Notes that a write has ended. Returns whether none is left.
    pub(crate) fn written(&mut self, core: &mut Core, handle: Handle) -> bool {
        let is_last = self.slot.done(&mut core.shared, handle, Job::Own(Task::Record));
        if is_last {
            self.parts = std::mem::take(&mut self.next);
        }
        is_last
    }

    /// Removes the record: nothing depends on the session any more.
    pub(crate) fn remove(&mut self, core: &mut Core, handle: Handle, id: SessionId) {
        if self.is_busy() {
            // A write that ends later would bring the record back.
            let request = IndexRequest::Remove { key: reception_key(id) };
            self.slot.submit(&mut core.shared, handle, Job::Own(Task::Record), request);
        } else if self.is_used() {
            forget_reception(core, id);
        }
    }
}

/// File being sent.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Sending {
    pub(crate) request: SendRequest,
    /// Bytes of the file.
    pub(crate) len: u64,
    /// Modification time of the file, in seconds since 1970, if known.
    pub(crate) modified: Option<u64>,
}

impl Sending {
    fn encode(&self) -> Bytes {
        let mut out = Writer::new(VERSION);
        out.u64(self.request.destination);
        out.name(Some(&self.request.source));
        out.bytes(self.request.name.as_bytes());
        out.u64(self.len);
        out.option(self.modified);
        out.finish()
    }

    /// Decodes a record; `None` if it is damaged.
    pub(crate) fn decode(record: &Bytes) -> Option<Self> {
        let mut fields = Reader::new(VERSION, record)?;
        let (destination, source) = (fields.u64()?, fields.name()??);
        let request = SendRequest { destination, source, name: fields.text()?, red: Red::All };
        let (len, modified) = (fields.u64()?, fields.option()?);
        fields.is_empty().then_some(Self { request, len, modified })
    }

    /// Records that a session sends this file.
    pub(crate) fn record(&self, core: &mut Core, id: SessionId) {
        let request = IndexRequest::Put { key: key::of(SENT_PREFIX, id), value: self.encode() };
        core.shared.index(Handle::NOBODY, Job::Forget, request);
    }
}

/// Forgets a reception.
pub(crate) fn forget_reception(core: &mut Core, id: SessionId) {
    remove(core, reception_key(id));
}

/// Forgets that a session sends a file.
pub(crate) fn forget_sending(core: &mut Core, id: SessionId) {
    remove(core, key::of(SENT_PREFIX, id));
}

fn remove(core: &mut Core, key: String) {
    core.shared.index(Handle::NOBODY, Job::Forget, IndexRequest::Remove { key });
}

/// Working file of a session.
pub(crate) fn spool_name(id: SessionId) -> FileName {
    key::working_file(&reception_key(id))
}

fn reception_key(id: SessionId) -> String {
    key::of(SPOOL_PREFIX, id)
}
