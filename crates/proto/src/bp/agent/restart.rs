//! What an earlier run left in the store.

use std::collections::BTreeMap;

use engine::{Completion, EffectError, EntryKind, FileName, Time};

use super::held::previous_node;
use super::record::{HeldRecord, Record};
use super::store::{Job, Store};
use super::{Agent, Content, Held, Indication, Priority};
use wire::bp7::{BundleId, Head, Reason};

impl Agent {
    /// Takes back what an earlier run held, and removes files of bundles that it did not have whole.
    ///
    /// The list of files is asked for first and answered first, or when the records are known: files that
    /// belong to no record are of no use either way.
    pub(super) fn found(&mut self, now: Time, job: &Job, answer: Result<Completion, EffectError>) {
        match (job, answer) {
            (Job::List, Ok(Completion::Listing(entries))) => {
                let files = entries.into_iter().filter(|e| matches!(e.kind, EntryKind::File(_)));
                let numbers = files.filter_map(|entry| Store::number_of_file(&entry.name));
                self.left_behind.extend(numbers);
                self.has_files = true;
            }
            (Job::List, _) => self.has_files = true,
            (_, Ok(Completion::Records(records))) => {
                for (key, value) in records {
                    let Some(number) = self.store.number(&key) else { continue };
                    self.next_number = self.next_number.max(number.saturating_add(1));
                    match Record::decode(&value) {
                        Some(Record::Held(record)) => self.take_back(now, number, record),
                        Some(Record::Gone { id, expires_ms }) => {
                            self.note_made(&id);
                            let expires = self.moment(now, expires_ms);
                            self.gone.insert(self.config.limits.gone, id, number, expires);
                        }
                        // What cannot be read is of no use, and of no harm.
                        None => self.store.remove(number),
                    }
                }
                self.has_records = true;
            }
            (_, Err(error)) => {
                self.user.indicate(Indication::StoreFailed(error));
                self.has_records = true;
            }
            (_, Ok(_)) => self.has_records = true,
        }
        if self.has_files && self.has_records {
            self.begin_again(now);
        }
    }

    fn take_back(&mut self, now: Time, number: u64, record: HeldRecord) {
        let bounds = self.config.limits.head;
        let Ok(Some(head)) = Head::decode(&record.head, &bounds) else {
            self.store.remove(number);
            return;
        };
        let priority = match record.priority {
            0 => Priority::Bulk,
            1 => Priority::Normal,
            _ => Priority::Expedited,
        };
        let from = previous_node(&head, &bounds);
        let received_ms = record.received_ms;
        let here = self.kept_ms(now).saturating_sub(received_ms);
        let content = Held::new(head, record.tail, (record.payload, record.owns_file));
        let held = Held {
            received: now,
            age_ms: record.age_ms.saturating_add(here),
            expires: self.moment(now, record.expires_ms),
            priority,
            from,
            sent: record.sent.into_iter().collect(),
            ..content
        };
        self.octets = self.octets.saturating_add(held.octets());
        if let Content::Octets(octets) = &held.payload {
            self.memory += octets.len();
        }
        self.note_made(&held.id());
        self.by_id.insert(held.id(), number);
        self.by_expiry.insert((held.expires, number));
        self.bundles.insert(number, held);
    }

    /// What is made from now on has another time or number than what an earlier run made, even if the clock was set
    /// back.
    fn note_made(&mut self, id: &BundleId) {
        if self.is_ours(&id.source) {
            self.made = self.made.max((id.creation.time_ms, id.creation.sequence));
        }
    }

    /// The file of a bundle is gone, by somebody else's doing: so is the bundle.
    fn store_lost(&mut self, number: u64) {
        if let Some(held) = self.forget(number) {
            self.store.remove(number);
            let (id, reason) = (held.id(), Reason::DepletedStorage);
            self.statistics.deleted += 1;
            self.user.indicate(Indication::Deleted { id, reason });
        }
    }

    fn begin_again(&mut self, now: Time) {
        self.is_ready = true;
        let mut files: BTreeMap<FileName, u64> = BTreeMap::new();
        for number in std::mem::take(&mut self.left_behind) {
            self.next_number = self.next_number.max(number.saturating_add(1));
            files.insert(self.store.file_name(number), number);
        }
        let mut lost = Vec::new();
        for (number, held) in &self.bundles {
            let Some(name) = held.own_file() else { continue };
            if files.remove(name).is_none() && self.store.is_its_own(name) {
                lost.push(*number);
            }
        }
        for number in lost {
            self.store_lost(number);
        }
        for name in files.into_keys() {
            self.store.delete(name);
        }
        let numbers: Vec<u64> = self.bundles.keys().copied().collect();
        for number in numbers {
            self.dispatch(now, number);
        }
        self.arm_expiry();
        self.contacts(now);
    }
}
