//! The agent's files and records: pending effects and their purposes, and the encoding of records,
//! from which the agent recovers after a restart. The first field of a record is its kind, in one
//! byte.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bytes::Bytes;
use engine::{
    EffectError, EffectResult, FileId, FileName, FilestoreRequest, IndexRequest, OpenMode, Time,
};
use session::record::{Reader, Writer};
use sha2::{Digest as _, Sha256};

use super::super::arrivals::OF_LAYERS;
use super::super::layer::{Content, Outgoing, Tag};
use super::Version;
use super::clock::{Clock, Clocks};
use super::gone::Left;
use super::head::{Head, Key};
use super::held::{Apart, Held, is_apart};
use super::links::{BACK_OFF, BACK_OFF_MAX};
use super::numbers::Used;
use crate::codec::bp7::{Bounds, BundleId, CreationTimestamp, Eid};
use crate::effects::Effects;
use crate::routes::Priority;

/// Purpose of an effect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Job {
    /// Reads the records of an earlier run.
    Load,
    /// Lists the working files of an earlier run.
    List,
    /// Stores an arriving bundle.
    Intake { number: u64, step: Storing },
    /// Opens or reads the file of an outgoing part.
    Crc { tag: Tag },
    /// Stores the payload of a bundle.
    Payload { number: u64 },
    /// Stores the record of a bundle.
    Put { number: u64 },
    /// Stores or removes the record of a discarded bundle. Its file is deleted only after that,
    /// because a record found after a crash needs its file.
    Gone { number: u64 },
    /// Empties the file of a discarded bundle, when there is no room to record its end.
    Empty { number: u64 },
    /// Stores the creation times that were used.
    Used,
    /// No continuation.
    Forget,
}

/// Step of the storage of an arriving bundle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Storing {
    /// Opens its file.
    Open,
    /// Writes a piece of it.
    Write { bytes: usize },
    /// Syncs it.
    Sync,
    /// Opens or reads a file of which it consists.
    Part,
}

/// A discarded bundle, until the store has recorded that.
#[derive(Debug)]
struct Going {
    /// Its last record; none if it has expired, too.
    record: Option<Bytes>,
    /// Its payload, deleted after that.
    payload: Option<Apart>,
    /// Whether emptying the file was requested.
    is_emptied: bool,
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

/// Queued and pending effects.
#[derive(Debug)]
pub(super) struct Store {
    /// Directory of the working files, and prefix of record keys.
    directory: FileName,
    pub(super) effects: Effects<Job>,
    going: BTreeMap<u64, Going>,
    /// Bundles among them whose records the store refused, to be retried later.
    pub(super) refused: BTreeSet<u64>,
    /// Bundles whose payloads the store refused, until the result of their records is known.
    pub(super) unstored: BTreeMap<u64, EffectError>,
    /// Back-off after the next refusal.
    back_off: Duration,
    secret: Secret,
}

impl Store {
    pub(super) fn new(directory: FileName, secret: u64) -> Self {
        Self {
            directory,
            effects: Effects::default(),
            going: BTreeMap::new(),
            refused: BTreeSet::new(),
            unstored: BTreeMap::new(),
            back_off: BACK_OFF,
            secret: Secret { value: secret, is_recorded: false },
        }
    }

    /// Working file of an arriving bundle.
    pub(super) fn file_name(&self, number: u64) -> FileName {
        self.file(&format!("{number:016x}"))
    }

    /// File of this name in the directory.
    pub(super) fn file(&self, name: &str) -> FileName {
        let name = format!("{}/{name}", self.directory.path());
        FileName::spool(&name)
            .expect("a directory's name with that of an entry behind it is a name")
    }

    /// Whether a file is in this agent's directory.
    pub(super) fn is_its_own(&self, name: &FileName) -> bool {
        name.parent().is_some_and(|directory| directory == self.directory)
    }

    /// Whether a file in the directory belongs to this agent, or to a layer that was to hand it
    /// over.
    pub(super) fn is_working_file(name: &str) -> bool {
        Self::number_of_file(name).is_some() || name.starts_with(OF_LAYERS)
    }

    /// Number of a working file of this agent.
    pub(super) fn number_of_file(name: &str) -> Option<u64> {
        (name.len() == 16).then(|| u64::from_str_radix(name, 16).ok()).flatten()
    }

    fn key(&self, number: u64) -> String {
        self.numbered("-", number)
    }

    /// The directory, `behind` and 16 digits.
    fn numbered(&self, behind: &str, number: u64) -> String {
        let directory = self.directory.path();
        let mut key = String::with_capacity(directory.len() + behind.len() + 16);
        key.push_str(directory);
        key.push_str(behind);
        // In a profile of two nodes on disk, `format!` took 3 % of the time.
        let digits = (0..16).rev().map(|at| (number >> (4 * at)) as u32 & 0xf);
        key.extend(digits.filter_map(|digit| char::from_digit(digit, 16)));
        key
    }

    fn payload_key(&self, number: u64) -> String {
        self.numbered("-payload-", number)
    }

    /// Number in the key of the record of a payload of this agent.
    pub(super) fn payload_number(&self, key: &str) -> Option<u64> {
        let rest = key.strip_prefix(self.directory.path())?;
        Self::number_of_file(rest.strip_prefix("-payload-")?)
    }

    /// Number in the key of a record of this agent.
    pub(super) fn number(&self, key: &str) -> Option<u64> {
        Self::number_of_file(key.strip_prefix(self.directory.path())?.strip_prefix('-')?)
    }

    /// Creates the directory of the working files, and lists the files of an earlier run.
    pub(super) fn list(&mut self) {
        self.effects
            .filestore(Job::Forget, FilestoreRequest::CreateDirectory(self.directory.clone()));
        self.effects.filestore(Job::List, FilestoreRequest::List(self.directory.clone()));
    }

    pub(super) fn write(&mut self, number: u64, file: FileId, offset: u64, bytes: Bytes) {
        let job = Job::Intake { number, step: Storing::Write { bytes: bytes.len() } };
        self.effects.write(job, file, offset, bytes);
    }

    /// Deletes the payload of a bundle.
    pub(super) fn delete_payload(&mut self, number: u64, payload: Option<Apart>) {
        match payload {
            Some(Apart::File(name)) => self.delete(name),
            Some(Apart::Record) => self.remove_payload(number),
            None => {}
        }
    }

    pub(super) fn delete(&mut self, name: FileName) {
        self.effects.filestore(Job::Forget, FilestoreRequest::DeleteFile(name));
    }

    /// Stores a payload in a record of its own, before the record of its bundle.
    pub(super) fn put_payload(&mut self, number: u64, value: Bytes) {
        let key = self.payload_key(number);
        self.effects.index(Job::Payload { number }, IndexRequest::Put { key, value });
    }

    /// Removes a payload that has a record of its own.
    pub(super) fn remove_payload(&mut self, number: u64) {
        self.effects.index(Job::Forget, IndexRequest::Remove { key: self.payload_key(number) });
    }

    /// Result of the record of a bundle, with that of its payload. Without the payload, the record
    /// is removed again.
    pub(super) fn on_put_done(
        &mut self,
        number: u64,
        result: EffectResult,
    ) -> Result<(), EffectError> {
        match (result, self.unstored.remove(&number)) {
            (Ok(_), None) => Ok(()),
            (Ok(_), Some(why)) | (Err(why), _) => {
                // One that was written since then must not bring the bundle back.
                self.remove(number);
                Err(why)
            }
        }
    }

    /// Stores a record. With [`Job::Put`] its completion makes the bundle safe; with
    /// [`Job::Forget`] it may be lost. Effects are executed in order: a bundle is not safe before
    /// earlier records.
    pub(super) fn put(&mut self, job: Job, number: u64, value: Bytes) {
        self.effects.index(job, IndexRequest::Put { key: self.key(number), value });
    }

    /// The secret, which is recorded when it is first used.
    pub(super) fn secret(&mut self) -> Secret {
        if !self.secret.is_recorded {
            self.secret.is_recorded = true;
            let value = Record::Secret(self.secret.value).encode();
            let key = self.secret_key();
            self.effects.index(Job::Forget, IndexRequest::Put { key, value });
        }
        self.secret
    }

    /// Continues with the secret of an earlier run.
    pub(super) const fn resume_secret(&mut self, value: u64) {
        self.secret = Secret { value, is_recorded: true };
    }

    /// Key of the record of the secret.
    pub(super) fn secret_key(&self) -> String {
        format!("{}-secret", self.directory.path())
    }

    /// Stores the record of the clocks.
    pub(super) fn put_clocks(&mut self, value: Bytes) {
        self.effects.index(Job::Forget, IndexRequest::Put { key: self.clocks_key(), value });
    }

    /// Key of the record of the clocks.
    pub(super) fn clocks_key(&self) -> String {
        format!("{}-clocks", self.directory.path())
    }

    /// Records that a bundle is discarded, then deletes its payload.
    pub(super) fn put_gone(&mut self, number: u64, value: Bytes, payload: Option<Apart>) {
        self.going.insert(number, Going { record: Some(value), payload, is_emptied: false });
        self.record_gone(number);
    }

    /// Removes the record of a bundle, then deletes its payload.
    pub(super) fn drop(&mut self, number: u64, payload: Option<Apart>) {
        self.going.insert(number, Going { record: None, payload, is_emptied: false });
        self.record_gone(number);
    }

    /// Removes the record of a discarded bundle.
    pub(super) fn remove(&mut self, number: u64) {
        match self.going.get_mut(&number) {
            Some(going) => {
                going.record = None;
                self.record_gone(number);
            }
            None => self.remove_record(Job::Forget, number),
        }
    }

    fn record_gone(&mut self, number: u64) {
        let Some(going) = self.going.get(&number) else { return };
        match going.record.clone() {
            Some(value) => self.put(Job::Gone { number }, number, value),
            None => self.remove_record(Job::Gone { number }, number),
        }
    }

    fn remove_record(&mut self, job: Job, number: u64) {
        self.effects.index(job, IndexRequest::Remove { key: self.key(number) });
    }

    /// Handles the result of recording a discarded bundle; returns an error to retry later.
    ///
    /// A disk may be too full for the record that would free the bundle's file. The file is then
    /// emptied first, which shows a restart that the bundle was discarded.
    pub(super) fn on_gone_effect_done(
        &mut self,
        number: u64,
        result: EffectResult,
    ) -> Result<(), EffectError> {
        let Some(going) = self.going.get_mut(&number) else { return Ok(()) };
        match (result, going.payload.clone()) {
            (Ok(_), payload) => {
                self.going.remove(&number);
                self.refused.remove(&number);
                self.back_off = BACK_OFF;
                self.delete_payload(number, payload);
                Ok(())
            }
            (Err(EffectError::NoSpace), Some(Apart::File(name))) if !going.is_emptied => {
                going.is_emptied = true;
                self.effects.open(Job::Empty { number }, name, OpenMode::Truncate);
                Ok(())
            }
            (Err(error), _) => {
                self.refused.insert(number);
                Err(error)
            }
        }
    }

    /// Handles the result of emptying the file of a discarded bundle.
    pub(super) fn on_emptied(&mut self, number: u64, result: &EffectResult) {
        self.effects.close_orphan(result);
        self.record_gone(number);
    }

    /// Back-off after a refused record: twice the previous one.
    pub(super) fn next_back_off(&mut self) -> Duration {
        let back_off = self.back_off;
        self.back_off = (2 * back_off).min(BACK_OFF_MAX);
        back_off
    }

    /// Retries the records that the store refused.
    pub(super) fn record_refused(&mut self) {
        for number in std::mem::take(&mut self.refused) {
            self.record_gone(number);
        }
    }
}

const VERSION: u8 = 1;
const HELD: u8 = 1;
const GONE: u8 = 2;
const USED: u8 = 3;
const CLOCKS: u8 = 4;
const REQUEST: u8 = 5;
const SECRET: u8 = 6;

/// Places of a payload.
const IN_RECORD: u8 = 0;
const IN_FILE: u8 = 1;
const APART: u8 = 2;

/// Record of a bundle.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Record {
    /// A bundle in the store, which [`Held::encode`] writes and [`Held::decode`] reads.
    Held,
    /// Delivered, forwarded or deleted.
    Gone { key: Key, expires_ms: u64, left: Left },
    /// Creation times of bundles created here.
    Used(Used),
    /// All clocks at one moment.
    Clocks(Clocks),
    /// Request by which a user sent a bundle.
    Request(RequestRecord),
    /// Secret behind the numbers of transmissions.
    Secret(u64),
}

/// A user's request, and the bundle that it sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct RequestRecord {
    pub(super) key: u128,
    /// Number of the bundle.
    pub(super) bundle: u64,
    pub(super) id: BundleId,
}

impl Record {
    pub(super) fn encode(&self) -> Bytes {
        let mut out = Writer::with_capacity(VERSION, 0);
        match self {
            // It is written with its bundle.
            Self::Held => out.u8(HELD),
            Self::Gone { key, expires_ms, left } => {
                out.u8(GONE);
                out.flag(match key.version {
                    Version::Six => false,
                    Version::Seven => true,
                });
                put_eid(&mut out, Some(&key.source));
                put_creation(&mut out, key.creation);
                out.option(key.fragment.map(|(offset, _)| offset));
                out.option(key.fragment.map(|(_, len)| len));
                out.u64(*expires_ms);
                out.flag(*left != Left::Here);
                if let Left::Forwarded { giver, hops, returns } = left {
                    put_eid(&mut out, giver.as_ref());
                    out.option(*hops);
                    out.u8(*returns);
                }
            }
            Self::Used(Used { until_ms, run }) => {
                out.u8(USED);
                out.u64(*until_ms);
                out.u64(*run);
            }
            Self::Clocks(Clocks { kept_ms, boot, dtn_ms }) => {
                out.u8(CLOCKS);
                out.u64(*kept_ms);
                out.option(boot.map(|(id, _)| id));
                out.option(boot.map(|(_, ms)| ms));
                out.option(*dtn_ms);
            }
            Self::Request(request) => request.encode(&mut out),
            Self::Secret(secret) => {
                out.u8(SECRET);
                out.u64(*secret);
            }
        }
        out.finish()
    }

    /// Decodes a record; `None` if it is damaged, or of another version.
    pub(super) fn decode(record: &Bytes) -> Option<Self> {
        let mut fields = Reader::new(VERSION, record)?;
        let record = match fields.u8()? {
            HELD => return Some(Self::Held),
            GONE => {
                let version = if fields.flag()? { Version::Seven } else { Version::Six };
                let (source, creation) = (eid(&mut fields)??, creation(&mut fields)?);
                let fragment = fields.option()?.zip(fields.option()?);
                let key = Key { version, source, creation, fragment };
                let (expires_ms, mut left) = (fields.u64()?, Left::Here);
                if fields.flag()? {
                    let (giver, hops) = (eid(&mut fields)?, fields.option()?);
                    left = Left::Forwarded { giver, hops, returns: fields.u8()? };
                }
                Self::Gone { key, expires_ms, left }
            }
            USED => Self::Used(Used { until_ms: fields.u64()?, run: fields.u64()? }),
            CLOCKS => Self::Clocks(Clocks {
                kept_ms: fields.u64()?,
                boot: fields.option()?.zip(fields.option()?),
                dtn_ms: fields.option()?,
            }),
            REQUEST => Self::Request(RequestRecord::decode(&mut fields)?),
            SECRET => Self::Secret(fields.u64()?),
            _ => return None,
        };
        fields.is_empty().then_some(record)
    }
}

impl RequestRecord {
    fn encode(&self, out: &mut Writer) {
        out.u8(REQUEST);
        out.u128(self.key);
        out.u64(self.bundle);
        put_eid(out, Some(&self.id.source));
        put_creation(out, self.id.creation);
    }

    fn decode(fields: &mut Reader) -> Option<Self> {
        let (key, bundle) = (fields.u128()?, fields.u64()?);
        let (source, creation) = (eid(fields)??, creation(fields)?);
        Some(Self { key, bundle, id: BundleId { source, creation, offset: None } })
    }
}

impl Held {
    /// Record of the bundle.
    pub(super) fn encode(&self, clock: Clock) -> Bytes {
        let head = self.head.encode();
        let inline = match &self.payload {
            Content::Bytes(bytes) if !is_apart(bytes.len()) => bytes.len(),
            Content::Bytes(_) | Content::File { .. } => 0,
        };
        let mut out = Writer::with_capacity(VERSION, head.len() + self.tail.len() + inline);
        out.u8(HELD);
        out.bytes(&head);
        out.bytes(&self.tail);
        match &self.payload {
            Content::Bytes(bytes) if is_apart(bytes.len()) => {
                out.u8(APART);
                out.u64(bytes.len() as u64);
            }
            Content::Bytes(bytes) => {
                out.u8(IN_RECORD);
                out.bytes(bytes);
            }
            Content::File { name, offset, len } => {
                out.u8(IN_FILE);
                out.name(Some(name));
                out.u64(*offset);
                out.u64(*len);
            }
        }
        out.flag(self.owns_file);
        for ms in [clock.kept_ms(self.received), clock.kept_ms(self.expires), self.age_ms] {
            out.u64(ms);
        }
        out.u8(self.priority as u8);
        out.count(self.sent.len());
        self.sent.iter().for_each(|node| put_eid(&mut out, Some(node)));
        put_eid(&mut out, self.arrival.by.as_ref());
        out.u8(self.arrival.returns);
        out.count(self.arrival.verified.len());
        self.arrival.verified.iter().for_each(|rule| out.u32(*rule));
        out.finish()
    }

    /// Bundle in the record of an earlier run, with its payload if that has a record; `None` if it
    /// cannot be read.
    pub(super) fn decode(
        number: u64,
        record: &Bytes,
        stored: Option<&Bytes>,
        now: Time,
        clock: Clock,
        bounds: &Bounds,
    ) -> Option<Self> {
        let mut fields = Reader::new(VERSION, record)?;
        if fields.u8()? != HELD {
            return None;
        }
        let (head, tail) = (fields.bytes()?, fields.bytes()?);
        let payload = match fields.u8()? {
            IN_RECORD => Content::Bytes(fields.bytes()?),
            IN_FILE => {
                let (name, offset) = (fields.name()??, fields.u64()?);
                Content::File { name, offset, len: fields.u64()? }
            }
            APART => {
                let len = fields.u64()?;
                Content::Bytes(stored.filter(|bytes| bytes.len() as u64 == len)?.clone())
            }
            _ => return None,
        };
        let (head, owns_file) = (Head::decode(&head, bounds).ok()??, fields.flag()?);
        let mut held = Self::new(number, head, tail, payload, owns_file);
        let here = clock.kept_ms(now).saturating_sub(fields.u64()?);
        (held.received, held.is_restored) = (now, true);
        held.expires = clock.moment(now, fields.u64()?);
        held.age_ms = fields.u64()?.saturating_add(here);
        held.priority = match fields.u8()? {
            0 => Priority::Bulk,
            1 => Priority::Normal,
            _ => Priority::Expedited,
        };
        held.sent = (0..fields.u32()?).map(|_| eid(&mut fields)?).collect::<Option<_>>()?;
        (held.arrival.by, held.arrival.returns) = (eid(&mut fields)?, fields.u8()?);
        let verified = (0..fields.u32()?).map(|_| fields.u32());
        held.arrival.verified = verified.collect::<Option<_>>()?;
        let returned_by = held.arrival.by.clone().filter(|_| held.arrival.returns > 0);
        held.from = returned_by.or_else(|| held.head.previous_node(bounds));
        fields.is_empty().then_some(held)
    }
}

fn put_creation(out: &mut Writer, CreationTimestamp { time_ms, sequence }: CreationTimestamp) {
    out.u64(time_ms);
    out.u64(sequence);
}

fn creation(fields: &mut Reader) -> Option<CreationTimestamp> {
    Some(CreationTimestamp { time_ms: fields.u64()?, sequence: fields.u64()? })
}

/// An endpoint or a node; an empty text if there is none.
fn put_eid(out: &mut Writer, eid: Option<&Eid>) {
    out.bytes(eid.map(Eid::to_string).unwrap_or_default().as_bytes());
}

fn eid(fields: &mut Reader) -> Option<Option<Eid>> {
    let text = fields.text()?;
    if text.is_empty() { Some(None) } else { text.parse().ok().map(Some) }
}
