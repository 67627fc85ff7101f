//! Files of which some parts have arrived.

use std::collections::BTreeMap;

use engine::{FileName, IndexRequest};
use session::ranges::Ranges;

use super::{JOINED_PREFIX, Limits, names};
use crate::codec::file_part::FilePart;

/// Complete files that are remembered, because a part may arrive again.
const COMPLETE_KEPT: usize = 1024;

/// A file of which some or all parts have arrived.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Joined {
    /// Number of the transfer.
    pub transfer: u64,
    /// Source endpoint of the bundles.
    pub source: String,
    /// Name as sent.
    pub name: String,
    /// Size in bytes.
    pub total: u64,
    /// Ranges in the working file.
    pub there: Ranges,
    /// Name here, once it is chosen.
    pub(super) named: Option<String>,
    /// Number of the file in order of completion.
    pub(super) order: u64,
}

/// Transfer and source of a file.
pub(super) type Key = (u64, String);

/// Relation of a part to its file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fit {
    /// Nothing of it has arrived.
    New,
    /// It has arrived before.
    Known,
    /// The file may be complete: this has to be looked up.
    Complete,
    /// It contradicts other parts, or there is no room for it.
    Contradiction,
}

impl Joined {
    fn new(part: &FilePart<'_>, source: &str) -> Self {
        Self {
            transfer: part.transfer,
            source: source.to_owned(),
            name: part.name.to_owned(),
            total: part.total,
            there: Ranges::new(),
            named: None,
            order: 0,
        }
    }

    /// Name of the working file, the same for all parts of the file.
    pub(super) fn stem(&self) -> String {
        // Two files of one name contradict each other.
        let source = names::short_hash(&self.source);
        format!("{JOINED_PREFIX}{:016x}-{source}", self.transfer)
    }

    pub(super) fn working_file(&self) -> FileName {
        FileName::spool(&self.stem()).expect("letters, digits and hyphens are a name")
    }

    pub(super) fn names(&self) -> [String; 3] {
        names::of_file(&self.name, &self.source, self.transfer)
    }

    /// Whether all parts are there.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.there.covered() == self.total
    }

    /// Whether all of a range is there. An empty file has one part of no bytes.
    pub(super) fn has(&self, start: u64, end: u64) -> bool {
        start < end && self.there.containing(start).is_some_and(|(_, stop)| end <= stop)
    }

    fn fit(&self, part: &FilePart<'_>, len: u64, limits: Limits) -> Fit {
        let (start, end) = (part.offset, part.offset.saturating_add(len));
        if self.name != part.name || self.total != part.total {
            Fit::Contradiction
        } else if self.named.is_some() {
            Fit::Complete
        } else if self.has(start, end) {
            Fit::Known
        } else if self.there.iter().all(|(from, to)| end <= from || to <= start)
            && self.there.len() < limits.ranges
        {
            Fit::New
        } else {
            Fit::Contradiction
        }
    }
}

/// All files of which some parts have arrived.
#[derive(Debug, Default)]
pub(super) struct Files {
    files: BTreeMap<Key, Joined>,
    /// Complete files in order of completion.
    complete: BTreeMap<u64, Key>,
}

impl Files {
    pub(super) fn incomplete(&self) -> impl Iterator<Item = &Joined> {
        self.files.values().filter(|file| file.named.is_none())
    }

    pub(super) fn get(&self, key: &Key) -> Option<&Joined> {
        self.files.get(key)
    }

    pub(super) fn get_mut(&mut self, key: &Key) -> Option<&mut Joined> {
        self.files.get_mut(key)
    }

    pub(super) fn restore(&mut self, file: Joined) {
        let key = (file.transfer, file.source.clone());
        // Otherwise it was about to get its name.
        if file.named.is_some() && file.there.is_empty() {
            self.complete.insert(file.order, key.clone());
        }
        self.files.insert(key, file);
    }

    /// Relation of a part with this many bytes to its file, which is made for the first part.
    pub(super) fn fit(
        &mut self,
        part: &FilePart<'_>,
        source: &str,
        len: u64,
        limits: Limits,
    ) -> (Key, Fit) {
        let key = (part.transfer, source.to_owned());
        let is_within = part.offset.checked_add(len).is_some_and(|end| end <= part.total);
        if !is_within || part.total > limits.file {
            return (key, Fit::Contradiction);
        }
        if !self.files.contains_key(&key) {
            if self.files.len() >= limits.joining {
                return (key, Fit::Contradiction);
            }
            self.files.insert(key.clone(), Joined::new(part, source));
        }
        let fit =
            self.files.get(&key).map_or(Fit::Contradiction, |file| file.fit(part, len, limits));
        (key, fit)
    }

    /// Removes a file of which nothing has arrived, and returns it.
    pub(super) fn remove_if_empty(&mut self, key: &Key) -> Option<Joined> {
        let is_empty = self.files.get(key)?.there.is_empty();
        if is_empty { self.files.remove(key) } else { None }
    }

    /// Notes that a file has its name. Returns the record to keep, and that of an earlier file to
    /// remove.
    pub(super) fn completed(&mut self, key: &Key) -> (Option<IndexRequest>, Option<IndexRequest>) {
        let order = self.complete.last_key_value().map_or(1, |(order, _)| order + 1);
        let kept = self.files.get_mut(key).map(|file| {
            file.there = Ranges::new();
            file.order = order;
            file.put()
        });
        self.complete.insert(order, key.clone());
        let surplus = self.complete.len() > COMPLETE_KEPT;
        let oldest = if surplus { self.complete.pop_first() } else { None };
        let removed = oldest.and_then(|(_, key)| self.files.remove(&key));
        (kept, removed.map(|file| file.removal()))
    }
}
