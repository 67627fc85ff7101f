//! Recovery of the bundles of an earlier run.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use engine::{Completion, EffectResult, EntryKind, FileName, Time};
use sha2::{Digest as _, Sha256};

use super::clock::Life;
use super::head::Head;
use super::held::Arrival;
use super::record::{HeldRecord, Payload, Record, RequestRecord};
use super::store::{Job, Store};
use super::{Agent, Config, Content, Held, Indication, Priority};
use crate::codec::bp7::{Eid, Reason};
use crate::layer::Outgoing;

/// State of the recovery. Bundles are accepted only when it is complete.
#[derive(Debug)]
pub(super) struct Restart {
    /// Whether the recovery is complete.
    pub(super) is_ready: bool,
    has_files: bool,
    has_records: bool,
    /// Files of the earlier run, and their lengths.
    files: BTreeMap<String, u64>,
    /// Clock of records, which goes on from run to run.
    pub(super) life: Life,
    secret: Secret,
}

/// Secret from which the numbers of transmissions are derived. Whoever knows the number of a
/// session can disturb it (RFC 5326 §9.1).
#[derive(Clone, Copy, Debug)]
pub(super) struct Secret {
    value: u64,
    is_recorded: bool,
}

impl Secret {
    /// Number of the transmission of these bytes, of the stored bundle with this number, to a node.
    ///
    /// The payload need not be read: a stored bundle has one. Another bundle may have the same
    /// head, if it has no source, or came back here.
    pub(super) fn number_of(self, bundle: &Outgoing, stored: u64, to: &Eid) -> u64 {
        let mut sum = Sha256::new();
        for number in [self.value, stored, bundle.payload.len(), bundle.head.len() as u64] {
            sum.update(number.to_be_bytes());
        }
        for part in [&bundle.head, &bundle.tail] {
            sum.update(part);
        }
        sum.update(to.to_string());
        let sum: [u8; 32] = sum.finalize().into();
        let (number, _) = sum.split_first_chunk().expect("a hash has more than 8 bytes");
        u64::from_be_bytes(*number)
    }
}

impl Restart {
    pub(super) fn new(config: &Config, secret: u64) -> Self {
        let (is_ready, has_files, has_records) = (false, false, !config.persistent);
        let life = Life::new(config.clock);
        let secret = Secret { value: secret, is_recorded: false };
        Self { is_ready, has_files, has_records, files: BTreeMap::new(), life, secret }
    }
}

impl Agent {
    /// Recovers the bundles of an earlier run, and removes files of incomplete bundles.
    ///
    /// The list of files is requested and completed first, or when the records are known: files
    /// without a record are useless either way.
    pub(super) fn found(&mut self, now: Time, job: &Job, result: EffectResult) {
        match (job, result) {
            (Job::List, Ok(Completion::Listing(entries))) => {
                let files = entries.into_iter().filter_map(|entry| match entry.kind {
                    EntryKind::File(len) => Some((entry.name, len)),
                    EntryKind::Directory => None,
                });
                self.restart.files.extend(files.filter(|(name, _)| Store::is_working_file(name)));
            }
            (_, Ok(Completion::Records(records))) => {
                self.resume_clocks(now, &records);
                self.resume_secret(&records);
                let (mut requests, mut gone) = (Vec::new(), BTreeSet::new());
                let mut payloads = self.payloads(&records);
                for (key, value) in records {
                    let Some(number) = self.store.number(&key) else { continue };
                    self.numbers.reserve(number);
                    match Record::decode(&value) {
                        Some(Record::Held(record)) => {
                            let payload = payloads.remove(&number);
                            self.take_back(now, number, record, payload);
                        }
                        Some(Record::Gone { key, expires_ms, left }) => {
                            let expires = self.clock().moment(now, expires_ms);
                            let max = self.config.limits.gone;
                            gone.insert(number);
                            // The limit may be lower than in the run that wrote the record.
                            if let Some(oldest) = self.gone.insert(max, key, number, &left, expires)
                            {
                                gone.remove(&oldest);
                                self.store.remove(oldest);
                            }
                        }
                        Some(Record::Used(used)) => self.numbers.resume(used),
                        Some(Record::Request(request)) => requests.push((number, request)),
                        // An unreadable record is useless, and harmless.
                        Some(Record::Clocks(_) | Record::Secret(_)) | None => {
                            self.store.remove(number);
                        }
                    }
                }
                // Their bundles were discarded, or never acknowledged.
                payloads.into_keys().for_each(|number| self.store.remove_payload(number));
                self.take_back_requests(requests, &gone);
            }
            (Job::Load, Err(error)) => self.user.indicate(Indication::StoreFailed(error)),
            (_, Ok(_) | Err(_)) => {}
        }
        match job {
            Job::List => self.restart.has_files = true,
            _ => self.restart.has_records = true,
        }
        if self.restart.has_files && self.restart.has_records {
            self.begin_again(now);
        }
    }

    /// Payloads that have records of their own.
    fn payloads(&mut self, records: &[(String, Bytes)]) -> BTreeMap<u64, Bytes> {
        let numbered =
            |(key, value): &(String, Bytes)| Some((self.store.payload_number(key)?, value.clone()));
        let payloads: BTreeMap<u64, Bytes> = records.iter().filter_map(numbered).collect();
        if let Some((last, _)) = payloads.last_key_value() {
            self.numbers.reserve(*last);
        }
        payloads
    }

    /// Sets the clock of records, to which the times in all others refer.
    fn resume_clocks(&mut self, now: Time, records: &[(String, Bytes)]) {
        if let Some(Record::Clocks(before)) = found_in(records, &self.store.clocks_key()) {
            let numbers = records.iter().filter_map(|(key, _)| self.store.number(key));
            let first = numbers.max().map_or(0, |number| number.saturating_add(1));
            self.restart.life.resume(now, &self.config, before, first);
        }
    }

    fn resume_secret(&mut self, records: &[(String, Bytes)]) {
        if let Some(Record::Secret(value)) = found_in(records, &self.store.secret_key()) {
            self.restart.secret = Secret { value, is_recorded: true };
        }
    }

    /// The secret, which is recorded when it is first used.
    pub(super) fn secret(&mut self) -> Secret {
        let Secret { value, is_recorded } = self.restart.secret;
        if !is_recorded {
            self.restart.secret.is_recorded = true;
            self.store.put_secret(Record::Secret(value).encode());
        }
        self.restart.secret
    }

    /// Recovers requests of bundles that are held or remembered.
    fn take_back_requests(&mut self, requests: Vec<(u64, RequestRecord)>, gone: &BTreeSet<u64>) {
        for (number, request) in requests {
            if self.bundles.contains_key(&request.bundle) || gone.contains(&request.bundle) {
                self.requests.insert(number, request);
            } else {
                self.store.remove(number);
            }
        }
    }

    fn take_back(&mut self, now: Time, number: u64, record: HeldRecord, stored: Option<Bytes>) {
        let bounds = self.config.limits.head;
        let payload = match record.payload {
            Payload::Here(payload) => Some(payload),
            Payload::Apart(len) => {
                stored.filter(|bytes| bytes.len() as u64 == len).map(Content::Bytes)
            }
        };
        let head = Head::decode(&record.head, &bounds).ok().flatten();
        let (Some(payload), Some(head)) = (payload, head) else {
            self.store.remove(number);
            return;
        };
        let priority = match record.priority {
            0 => Priority::Bulk,
            1 => Priority::Normal,
            _ => Priority::Expedited,
        };
        let from = head.previous_node(&bounds);
        let received_ms = record.received_ms;
        let here = self.clock().kept_ms(now).saturating_sub(received_ms);
        let is_for_us = self.is_ours(head.destination());
        let has_custody = head.requests_custody() && self.is_ours(head.custodian()) && !is_for_us;
        let content = Held::new(head, record.tail, payload, record.owns_file);
        let held = Held {
            received: now,
            age_ms: record.age_ms.saturating_add(here),
            expires: self.clock().moment(now, record.expires_ms),
            priority,
            from: match record.returns {
                0 => from,
                _ => record.by.clone().or(from),
            },
            sent: record.sent.into_iter().collect(),
            arrival: Arrival {
                by: record.by,
                returns: record.returns,
                verified: record.verified,
                ..Arrival::default()
            },
            custody: has_custody.then(|| self.new_custody(number)),
            is_restored: true,
            ..content
        };
        self.insert(number, Box::new(held));
    }

    /// Drops a bundle whose file was removed by another program.
    fn store_lost(&mut self, number: u64) {
        if let Some(held) = self.forget(number) {
            self.forget_request(number);
            self.store.remove(number);
            let (id, reason) = (held.id(), Reason::DepletedStorage);
            self.statistics.deleted += 1;
            self.user.indicate(Indication::Deleted { id, reason });
        }
    }

    fn begin_again(&mut self, now: Time) {
        self.restart.is_ready = true;
        let mut files: BTreeMap<FileName, u64> = BTreeMap::new();
        for (name, len) in std::mem::take(&mut self.restart.files) {
            if let Some(number) = Store::number_of_file(&name) {
                self.numbers.reserve(number);
            }
            files.insert(self.store.file(&name), len);
        }
        let (mut lost, mut gone) = (Vec::new(), Vec::new());
        for (number, held) in &self.bundles {
            let Some(name) = held.own_file() else { continue };
            match files.remove(name) {
                Some(0) if !held.payload.is_empty() => gone.push(*number),
                Some(_) => {}
                None if self.store.is_its_own(name) => lost.push(*number),
                None => {}
            }
        }
        for number in lost {
            self.store_lost(number);
        }
        // The disk was too full to record their end, but their files were emptied.
        for number in gone {
            self.let_go(number);
        }
        for name in files.into_keys() {
            self.store.delete(name);
        }
        // Before bundles wait, which would be routed once more.
        self.contacts(now);
        let numbers: Vec<u64> = self.bundles.keys().copied().collect();
        for number in numbers {
            self.dispatch(now, number);
        }
        self.arm_expiry();
        if self.config.boot.is_some() {
            self.note_clocks(now);
        }
    }
}

/// Record with this key, if there is a sound one.
fn found_in(records: &[(String, Bytes)], own: &str) -> Option<Record> {
    let record = records.iter().find(|(key, _)| key == own);
    record.and_then(|(_, value)| Record::decode(value))
}
