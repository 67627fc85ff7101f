//! Recovery of the bundles of an earlier run.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use engine::{Completion, EffectResult, EntryKind, FileName, Time};

use super::stock::Stock;
use super::store::{Job, Record, RequestRecord, Store};
use super::{Agent, Config, Held, Indication};
use crate::codec::bp7::Reason;

/// State of the recovery. Bundles are accepted only when it is complete.
#[derive(Debug)]
pub(super) struct Restart {
    has_files: bool,
    has_records: bool,
    /// Files of the earlier run, and their lengths.
    files: BTreeMap<String, u64>,
}

impl Restart {
    pub(super) const fn new(config: &Config) -> Self {
        Self { has_files: false, has_records: !config.persistent, files: BTreeMap::new() }
    }
}

impl Agent {
    /// Recovers the bundles of an earlier run, and removes files of incomplete bundles.
    ///
    /// The list of files is requested and completed first, or when the records are known: files
    /// without a record are useless either way.
    pub(super) fn on_loaded(&mut self, now: Time, job: &Job, result: EffectResult) {
        match (job, result) {
            (Job::List, Ok(Completion::Listing(entries))) => {
                let files = entries.into_iter().filter_map(|entry| match entry.kind {
                    EntryKind::File(len) => Some((entry.name, len)),
                    EntryKind::Directory => None,
                });
                self.restart.files.extend(files.filter(|(name, _)| Store::is_working_file(name)));
            }
            (_, Ok(Completion::Records(records))) => {
                self.restore_clock(now, &records);
                let (mut requests, mut gone) = (Vec::new(), BTreeSet::new());
                let mut payloads = self.payloads(&records);
                for (key, value) in records {
                    let Some(number) = self.core.stock.store.number(&key) else { continue };
                    self.core.stock.assigned.reserve(number);
                    match Record::decode(&value) {
                        Some(Record::Held) => {
                            if self.take_back(now, number, &value, payloads.get(&number)) {
                                payloads.remove(&number);
                            }
                        }
                        Some(Record::Gone { key, expires_ms, left }) => {
                            let expires = self.core.clock().moment(now, expires_ms);
                            let max = self.core.config.limits.gone;
                            gone.insert(number);
                            // The limit may be lower than in the run that wrote the record.
                            if let Some(oldest) =
                                self.core.stock.gone.insert(max, key, number, &left, expires)
                            {
                                gone.remove(&oldest);
                                self.core.stock.store.remove(oldest);
                            }
                        }
                        Some(Record::Used(used)) => self.core.stock.assigned.resume(used),
                        Some(Record::Request(request)) => requests.push((number, request)),
                        // An unreadable record is useless, and harmless.
                        Some(Record::Clocks(_) | Record::Secret(_)) | None => {
                            self.core.stock.store.remove(number);
                        }
                    }
                }
                // Their bundles were discarded, or never acknowledged.
                for number in payloads.into_keys() {
                    self.core.stock.store.remove_payload(number);
                }
                self.take_back_requests(requests, &gone);
            }
            (Job::Load, Err(error)) => self.core.user.indicate(Indication::StoreFailed(error)),
            (_, Ok(_) | Err(_)) => {}
        }
        match job {
            Job::List => self.restart.has_files = true,
            _ => self.restart.has_records = true,
        }
        if self.restart.has_files && self.restart.has_records {
            self.finish_recovery(now);
        }
    }

    /// Payloads that have records of their own.
    fn payloads(&mut self, records: &[(String, Bytes)]) -> BTreeMap<u64, Bytes> {
        let numbered = |(key, value): &(String, Bytes)| {
            Some((self.core.stock.store.payload_number(key)?, value.clone()))
        };
        let payloads: BTreeMap<u64, Bytes> = records.iter().filter_map(numbered).collect();
        if let Some((last, _)) = payloads.last_key_value() {
            self.core.stock.assigned.reserve(*last);
        }
        payloads
    }

    /// Sets the clock of records, to which the times in all others refer, and the secret.
    fn restore_clock(&mut self, now: Time, records: &[(String, Bytes)]) {
        let Stock { store, life, .. } = &mut self.core.stock;
        if let Some(Record::Clocks(before)) = found_in(records, &store.clocks_key()) {
            let numbers = records.iter().filter_map(|(key, _)| store.number(key));
            let first = numbers.max().map_or(0, |number| number.saturating_add(1));
            life.resume(now, &self.core.config, before, first);
        }
        if let Some(Record::Secret(value)) = found_in(records, &store.secret_key()) {
            store.resume_secret(value);
        }
    }

    /// Recovers requests of bundles that are held or remembered.
    fn take_back_requests(&mut self, requests: Vec<(u64, RequestRecord)>, gone: &BTreeSet<u64>) {
        for (number, request) in requests {
            if self.core.stock.bundles.contains_key(&request.bundle)
                || gone.contains(&request.bundle)
            {
                self.core.stock.requests.insert(number, request);
            } else {
                self.core.stock.store.remove(number);
            }
        }
    }

    /// Recovers a bundle. Returns whether its record can be read.
    fn take_back(&mut self, now: Time, number: u64, record: &Bytes, apart: Option<&Bytes>) -> bool {
        let core = &mut self.core;
        let bounds = &core.config.limits.head;
        let held = Held::decode(number, record, apart, now, core.clock(), bounds);
        let Some(mut held) = held else {
            core.stock.store.remove(number);
            return false;
        };
        let (head, is_for_us) = (&held.head, core.is_ours(held.destination()));
        if head.requests_custody() && core.is_ours(head.custodian()) && !is_for_us {
            held.custody = Some(self.custodian.new_custody(core, number));
        }
        core.insert(Box::new(held));
        true
    }

    /// Drops a bundle whose file was removed by another program.
    fn on_store_lost(&mut self, number: u64) {
        if let Some(held) = self.forget(number) {
            self.core.forget_request(number);
            self.core.stock.store.remove(number);
            let (id, reason) = (held.id(), Reason::DepletedStorage);
            self.core.statistics.deleted += 1;
            self.core.user.indicate(Indication::Deleted { id, reason });
        }
    }

    fn finish_recovery(&mut self, now: Time) {
        self.core.stock.is_ready = true;
        let mut files: BTreeMap<FileName, u64> = BTreeMap::new();
        for (name, len) in std::mem::take(&mut self.restart.files) {
            if let Some(number) = Store::number_of_file(&name) {
                self.core.stock.assigned.reserve(number);
            }
            files.insert(self.core.stock.store.file(&name), len);
        }
        let (mut lost, mut gone) = (Vec::new(), Vec::new());
        for (number, held) in &self.core.stock.bundles {
            let Some(name) = held.own_file() else { continue };
            match files.remove(name) {
                Some(0) if !held.payload.is_empty() => gone.push(*number),
                Some(_) => {}
                None if self.core.stock.store.is_its_own(name) => lost.push(*number),
                None => {}
            }
        }
        lost.into_iter().for_each(|number| self.on_store_lost(number));
        // The disk was too full to record their end, but their files were emptied.
        gone.into_iter().for_each(|number| self.discard(number));
        files.into_keys().for_each(|name| self.core.stock.store.delete(name));
        // Before bundles wait, which would be routed once more.
        self.forwarder.update_contacts(&mut self.core, now);
        for number in self.core.stock.numbers(..) {
            self.dispatch(now, number);
        }
        self.core.arm_expiry();
        if self.core.config.boot.is_some() {
            self.core.note_clocks(now);
        }
    }
}

/// Record with this key, if there is a sound one.
fn found_in(records: &[(String, Bytes)], own: &str) -> Option<Record> {
    let record = records.iter().find(|(key, _)| key == own);
    record.and_then(|(_, value)| Record::decode(value))
}
