//! Records of completed receptions, so that none is repeated after a restart.
//!
//! Whoever recorded a transfer can replay it to a restarted receiver, which would replace a newer
//! file by an older one. A record has a number that counts up, and the length of the file; its key
//! names the session.

use bytes::Bytes;

use crate::recent::Recent;
use crate::record::{Reader, Writer};

const VERSION: u8 = 1;

/// Maximum sessions on record.
const MAX: usize = 1024;

/// Sessions on record, and the lengths of their files.
#[derive(Debug)]
pub struct Done<K> {
    sessions: Recent<K, u64>,
    next: u64,
}

impl<K: Copy + Ord> Default for Done<K> {
    fn default() -> Self {
        Self::new()
    }
}

impl<K: Copy + Ord> Done<K> {
    /// No sessions.
    pub const fn new() -> Self {
        Self { sessions: Recent::new(), next: 0 }
    }

    /// Length of a session's file.
    pub fn get(&self, key: &K) -> Option<u64> {
        self.sessions.get(key).copied()
    }

    /// Adds a session. Returns its record, and the session whose record is to be removed if there
    /// are more than `max`.
    pub fn add(&mut self, key: K, len: u64, max: usize) -> (Bytes, Option<K>) {
        let mut out = Writer::new(VERSION);
        out.u64(self.next);
        out.u64(len);
        self.next += 1;
        (out.finish(), self.remember(key, len, max))
    }

    fn remember(&mut self, key: K, len: u64, max: usize) -> Option<K> {
        self.sessions.insert(key, len);
        if self.sessions.len() <= max.min(MAX) {
            return None;
        }
        self.sessions.forget_oldest().map(|(oldest, _)| oldest)
    }

    /// Restores the records of an earlier run. Returns its sessions, the oldest first, and those
    /// whose records are to be removed because there are more than `max`.
    pub fn restore<'a>(
        &mut self,
        records: impl Iterator<Item = (K, &'a Bytes)>,
        max: usize,
    ) -> (Vec<(K, u64)>, Vec<K>) {
        let mut done: Vec<_> = records
            .filter_map(|(key, value)| decode(value).map(|(number, len)| (number, key, len)))
            .collect();
        done.sort_unstable_by_key(|(number, key, _)| (*number, *key));
        self.next = done.last().map_or(0, |(number, ..)| number.saturating_add(1));
        let mut surplus = Vec::new();
        for (_, key, len) in &done {
            surplus.extend(self.remember(*key, *len, max));
        }
        (done.into_iter().map(|(_, key, len)| (key, len)).collect(), surplus)
    }
}

/// Decodes the number of a record and the length of its file; `None` if it is damaged.
fn decode(value: &Bytes) -> Option<(u64, u64)> {
    let mut fields = Reader::new(VERSION, value)?;
    Some((fields.u64()?, fields.u64()?)).filter(|_| fields.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_sessions_are_restored() {
        let mut done = Done::new();
        let mut records = Vec::new();
        for key in 0..5_u32 {
            let (record, oldest) = done.add(key, u64::from(key) * 100, 3);
            records.retain(|(key, _)| Some(*key) != oldest);
            records.push((key, record));
        }
        assert_eq!(records.len(), 3);
        assert_eq!((done.get(&1), done.get(&4)), (None, Some(400)));
        // A damaged record is ignored.
        records.push((9, Bytes::from_static(b"no record of any length")));
        let mut restored = Done::new();
        let kept = records.iter().rev().map(|(key, value)| (*key, value));
        let (sessions, surplus) = restored.restore(kept, 2);
        assert_eq!(sessions, [(2, 200), (3, 300), (4, 400)]);
        assert_eq!(surplus, [2]);
        assert_eq!((restored.get(&2), restored.get(&4)), (None, Some(400)));
        assert_eq!(restored.add(7, 0, 2).1, Some(3));
    }
}
