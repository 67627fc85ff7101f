//! Files that were stored last. A sender that restarted may offer them again, and one that did not
//! receive the acknowledgement of a receiver that restarted requests it again.

use std::collections::VecDeque;

use bytes::Bytes;
use session::record::{Reader, Writer};

use super::identity::{Identity, Origin, VERSION};

/// Maximum number of files.
const FILES_MAX: usize = 256;

/// In place of the key of a file: the session began with this object.
const SESSION: u64 = 0;

/// Files that were stored last, by their keys, with the sessions that sent them.
#[derive(Debug, Default)]
pub(super) struct Stored(VecDeque<(u64, Origin)>);

impl Stored {
    /// Adds the first object of a session, so that a receiver that restarts knows where it began.
    pub(super) fn add_session(&mut self, first: Origin) {
        self.push(SESSION, first);
    }

    /// Adds a file.
    pub(super) fn add(&mut self, identity: &Identity, origin: Origin) {
        let key = identity.key();
        self.0.retain(|(other, _)| *other != key);
        self.push(key, origin);
    }

    fn push(&mut self, key: u64, origin: Origin) {
        self.0.push_back((key, origin));
        if self.0.len() > FILES_MAX {
            self.0.pop_front();
        }
    }

    /// Whether a file was stored: as the same object, or as one of another session if that
    /// `resumes`.
    pub(super) fn has(&self, identity: &Identity, origin: Origin, resumes: bool) -> bool {
        let key = identity.key();
        self.0.iter().any(|(other, from)| *other == key && (resumes || *from == origin))
    }

    /// Objects of these files, and the first ones of sessions.
    pub(super) fn origins(&self) -> impl Iterator<Item = Origin> + '_ {
        self.0.iter().map(|(_, origin)| *origin)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn memory(&self) -> usize {
        self.0.len() * size_of::<(u64, Origin)>()
    }

    pub(super) fn encode(&self) -> Bytes {
        let mut out = Writer::new(VERSION);
        for (key, origin) in &self.0 {
            out.u64(*key);
            origin.encode(&mut out);
        }
        out.finish()
    }

    /// Decodes a record; `None` if it is invalid or damaged.
    pub(super) fn decode(record: &Bytes) -> Option<Self> {
        let mut fields = Reader::new(VERSION, record)?;
        let mut files = VecDeque::new();
        while !fields.is_empty() {
            files.push_back((fields.u64()?, Origin::read(&mut fields)?));
        }
        (files.len() <= FILES_MAX).then_some(Self(files))
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
        let stored = Stored::decode(&stored.encode()).expect("it is sound");
        assert!(stored.has(&identity(299), origin(299), false));
        assert!(!stored.has(&identity(299), origin(298), false), "another object");
        assert!(stored.has(&identity(299), origin(1), true));
        assert!(!stored.has(&identity(43), origin(43), true), "forgotten");
        assert_eq!(stored.origins().count(), FILES_MAX);
    }
}
