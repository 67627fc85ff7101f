//! Files that were stored last. A sender that restarted may offer them again, and one that did not
//! receive the acknowledgement of a receiver that restarted requests it again.

use std::collections::VecDeque;

use bytes::Bytes;
use session::record::{Reader, Writer};

use super::identity::{Identity, Origin, VERSION};

/// Maximum number of files.
const FILES_MAX: usize = 256;

/// Maximum number of sessions.
const SESSIONS_MAX: usize = 32;

/// Files that were stored last.
#[derive(Debug, Default)]
pub(super) struct Stored {
    /// Files by their keys, with the objects that they were.
    files: VecDeque<(u64, Origin)>,
    /// First objects of sessions.
    sessions: VecDeque<Origin>,
}

impl Stored {
    /// Adds the first object of a session, so that a receiver that restarts knows where it began.
    pub(super) fn add_session(&mut self, first: Origin) {
        self.sessions.retain(|other| other.ahead(first).is_none());
        self.sessions.push_back(first);
        if self.sessions.len() > SESSIONS_MAX {
            self.sessions.pop_front();
        }
    }

    /// Adds a file.
    pub(super) fn add(&mut self, identity: &Identity, origin: Origin) {
        let file = (identity.key(), origin);
        // Senders name any of the objects that it was.
        self.files.retain(|other| *other != file);
        self.files.push_back(file);
        if self.files.len() > FILES_MAX {
            self.files.pop_front();
        }
    }

    /// Whether a file was stored: as the same object, or as one of the `former` instance of its
    /// sender, whose node may have had another number.
    pub(super) fn has(&self, identity: &Identity, origin: Origin, former: Option<u16>) -> bool {
        let key = identity.key();
        self.files.iter().any(|(other, from)| {
            *other == key && (former == Some(from.instance) || *from == origin)
        })
    }

    /// Objects of these files, and the first ones of sessions.
    pub(super) fn origins(&self) -> impl Iterator<Item = Origin> + '_ {
        self.files.iter().map(|(_, origin)| *origin).chain(self.sessions.iter().copied())
    }

    pub(super) fn is_empty(&self) -> bool {
        self.files.is_empty() && self.sessions.is_empty()
    }

    pub(super) fn memory(&self) -> usize {
        let files = self.files.len() * size_of::<(u64, Origin)>();
        files + self.sessions.len() * size_of::<Origin>()
    }

    pub(super) fn encode(&self) -> Bytes {
        let mut out = Writer::new(VERSION);
        out.count(self.files.len());
        for (key, origin) in &self.files {
            out.u64(*key);
            origin.encode(&mut out);
        }
        self.sessions.iter().for_each(|first| first.encode(&mut out));
        out.finish()
    }

    /// Decodes a record; `None` if it is invalid or damaged.
    pub(super) fn decode(record: &Bytes) -> Option<Self> {
        let mut fields = Reader::new(VERSION, record)?;
        let (mut files, mut sessions) = (VecDeque::new(), VecDeque::new());
        for _ in 0..fields.u32()? {
            files.push_back((fields.u64()?, Origin::read(&mut fields)?));
        }
        while !fields.is_empty() {
            sessions.push_back(Origin::read(&mut fields)?);
        }
        let is_bounded = files.len() <= FILES_MAX && sessions.len() <= SESSIONS_MAX;
        is_bounded.then_some(Self { files, sessions })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::NodeId;

    #[test]
    fn the_last_files_are_known_again() {
        let origin = |number| Origin { node: NodeId(7), instance: 3, number };
        let identity = |version| Identity {
            name: Bytes::from_static(b"name"),
            size: 1 << 33,
            segment_size: 1400,
            block_len: 64,
            version,
        };
        let mut stored = Stored::default();
        (0..300).for_each(|n| stored.add(&identity(n), origin(n as u16)));
        let session = |instance| Origin { node: NodeId(8), instance, number: 0 };
        (0..100).for_each(|n| stored.add_session(session(n / 2)));
        let stored = Stored::decode(&stored.encode()).expect("it is sound");
        let now = Origin { node: NodeId(9), instance: 4, number: 0 };
        assert!(stored.has(&identity(299), origin(299), None));
        assert!(!stored.has(&identity(299), origin(298), None), "another object");
        assert!(stored.has(&identity(299), now, Some(3)));
        assert!(!stored.has(&identity(299), now, Some(2)), "of another session");
        assert!(!stored.has(&identity(43), origin(43), Some(3)), "forgotten");
        assert_eq!(stored.origins().count(), FILES_MAX + SESSIONS_MAX);
    }
}
