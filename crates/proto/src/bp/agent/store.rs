//! The agent's files and records: which effects are under way, and for what.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use bytes::Bytes;
use engine::{
    Completion, Effect, EffectError, FileId, FileName, FilestoreRequest, IndexRequest, OpenMode,
    StoreEffect, Ticket,
};

use super::super::arrivals::OF_LAYERS;
use super::super::layer::Tag;
use super::forwarder::{REST, REST_MAX};

/// What an effect was for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Job {
    /// The records of an earlier run.
    Load,
    /// The working files of an earlier run.
    List,
    /// The file of a bundle that comes is opened.
    Open { intake: u64 },
    /// A piece of it is written.
    Write { intake: u64, bytes: usize },
    /// All of it is synced.
    Sync { intake: u64 },
    /// It is read, to see whether it is sound.
    Read { intake: u64 },
    /// The file of a fragment that is joined is opened, or read.
    Part { intake: u64 },
    /// The file of a part that goes out is opened, or read.
    Sum { tag: Tag },
    /// The record of a bundle is kept.
    Put { number: u64 },
    /// The record of a bundle that is gone is kept or removed: then its file may go, too, and not
    /// before, for whoever finds the record of a bundle after a crash needs its file.
    Gone { number: u64 },
    /// The file of a bundle that is gone is emptied: there is no room to record that it is.
    Empty { number: u64 },
    /// Nobody waits for the answer.
    Forget,
}

/// A bundle that is gone, as long as the store has not recorded that it is.
#[derive(Debug)]
struct Going {
    /// Its last record; none if it has expired, too, and needs none.
    record: Option<Bytes>,
    /// The file that goes with it.
    file: Option<FileName>,
    /// The store was asked to empty the file.
    is_emptied: bool,
}

/// Effects that are to be carried out, and those under way.
#[derive(Debug)]
pub(super) struct Store {
    /// Of the working files, and before the keys of records.
    directory: FileName,
    next: u64,
    under_way: BTreeMap<Ticket, Job>,
    effects: VecDeque<Effect>,
    going: BTreeMap<u64, Going>,
    /// Bundles among them whose records the store has refused, and is asked for again later.
    refused: BTreeSet<u64>,
    /// Time that the store rests after the next refusal.
    rest: Duration,
}

impl Store {
    pub(super) const fn new(directory: FileName) -> Self {
        Self {
            directory,
            next: 0,
            under_way: BTreeMap::new(),
            effects: VecDeque::new(),
            going: BTreeMap::new(),
            refused: BTreeSet::new(),
            rest: REST,
        }
    }

    pub(super) fn poll(&mut self) -> Option<Effect> {
        self.effects.pop_front()
    }

    /// What an answer is to.
    pub(super) fn answered(&mut self, ticket: Ticket) -> Option<Job> {
        self.under_way.remove(&ticket)
    }

    fn ask(&mut self, job: Job, effect: impl FnOnce(Ticket) -> StoreEffect) {
        let ticket = Ticket(self.next);
        self.next += 1;
        self.under_way.insert(ticket, job);
        self.effects.push_back(effect(ticket).into());
    }

    /// The working file of a bundle that comes.
    pub(super) fn file_name(&self, number: u64) -> FileName {
        self.file(&format!("{number:016x}"))
    }

    /// A file in the directory, of a name that it has or may have there.
    pub(super) fn file(&self, name: &str) -> FileName {
        let name = format!("{}/{name}", self.directory.path());
        FileName::spool(&name)
            .expect("a directory's name with that of an entry behind it is a name")
    }

    /// Whether a file is in this agent's directory.
    pub(super) fn is_its_own(&self, name: &FileName) -> bool {
        name.parent().is_some_and(|directory| directory == self.directory)
    }

    /// Whether a file in the directory is of this agent, or was to be handed to it by a layer.
    pub(super) fn is_working_file(name: &str) -> bool {
        Self::number_of_file(name).is_some() || name.starts_with(OF_LAYERS)
    }

    /// Whether a working file is of this agent, and of which number.
    pub(super) fn number_of_file(name: &str) -> Option<u64> {
        (name.len() == 16).then(|| u64::from_str_radix(name, 16).ok()).flatten()
    }

    fn key(&self, number: u64) -> String {
        format!("{}-{number:016x}", self.directory.path())
    }

    /// The number in the key of a record of this agent.
    pub(super) fn number(&self, key: &str) -> Option<u64> {
        Self::number_of_file(key.strip_prefix(self.directory.path())?.strip_prefix('-')?)
    }

    pub(super) fn load(&mut self) {
        self.ask(Job::Load, |ticket| StoreEffect::Index { ticket, request: IndexRequest::Load });
    }

    /// Makes the directory of the working files, and lists what an earlier run left in it.
    pub(super) fn list(&mut self) {
        let request = FilestoreRequest::CreateDirectory(self.directory.clone());
        self.ask(Job::Forget, |ticket| StoreEffect::Filestore { ticket, request });
        let request = FilestoreRequest::List(self.directory.clone());
        self.ask(Job::List, |ticket| StoreEffect::Filestore { ticket, request });
    }

    pub(super) fn open(&mut self, job: Job, name: FileName, mode: OpenMode) {
        self.ask(job, |ticket| StoreEffect::Open { ticket, name, mode });
    }

    pub(super) fn read(&mut self, job: Job, file: FileId, offset: u64, len: usize) {
        self.ask(job, |ticket| StoreEffect::Read { ticket, file, offset, len });
    }

    pub(super) fn write(&mut self, intake: u64, file: FileId, offset: u64, bytes: Bytes) {
        let job = Job::Write { intake, bytes: bytes.len() };
        self.ask(job, |ticket| StoreEffect::Write { ticket, file, offset, bytes });
    }

    pub(super) fn sync(&mut self, intake: u64, file: FileId) {
        self.ask(Job::Sync { intake }, |ticket| StoreEffect::Sync { ticket, file });
    }

    pub(super) fn close(&mut self, file: FileId) {
        self.effects.push_back(StoreEffect::Close { file }.into());
    }

    pub(super) fn delete(&mut self, name: FileName) {
        let request = FilestoreRequest::DeleteFile(name);
        self.ask(Job::Forget, |ticket| StoreEffect::Filestore { ticket, request });
    }

    /// Keeps a record; the bundle is safe when that is answered.
    pub(super) fn put(&mut self, number: u64, value: Bytes) {
        let request = IndexRequest::Put { key: self.key(number), value };
        self.ask(Job::Put { number }, |ticket| StoreEffect::Index { ticket, request });
    }

    /// Keeps that a bundle is gone, and removes its file after that.
    pub(super) fn put_gone(&mut self, number: u64, value: Bytes, file: Option<FileName>) {
        self.going.insert(number, Going { record: Some(value), file, is_emptied: false });
        self.record_gone(number);
    }

    /// Forgets a bundle that is gone.
    pub(super) fn remove(&mut self, number: u64) {
        match self.going.get_mut(&number) {
            Some(going) => {
                going.record = None;
                self.record_gone(number);
            }
            None => self.ask_to_remove(Job::Forget, number),
        }
    }

    fn ask_to_remove(&mut self, job: Job, number: u64) {
        let request = IndexRequest::Remove { key: self.key(number) };
        self.ask(job, |ticket| StoreEffect::Index { ticket, request });
    }

    fn record_gone(&mut self, number: u64) {
        let Some(going) = self.going.get(&number) else { return };
        let Some(value) = going.record.clone() else {
            return self.ask_to_remove(Job::Gone { number }, number);
        };
        let request = IndexRequest::Put { key: self.key(number), value };
        self.ask(Job::Gone { number }, |ticket| StoreEffect::Index { ticket, request });
    }

    /// The store has recorded that a bundle is gone, or has not: what is to be asked again later.
    ///
    /// A disk may be too full for the record that would free the bundle's file. The file is then
    /// emptied first, and tells a restart that the bundle was gone.
    pub(super) fn gone_answered(
        &mut self,
        number: u64,
        answer: Result<Completion, EffectError>,
    ) -> Result<(), EffectError> {
        let Some(going) = self.going.get_mut(&number) else { return Ok(()) };
        match (answer, going.file.clone()) {
            (Ok(_), file) => {
                self.going.remove(&number);
                self.refused.remove(&number);
                self.rest = REST;
                if let Some(name) = file {
                    self.delete(name);
                }
                Ok(())
            }
            (Err(EffectError::NoSpace), Some(name)) if !going.is_emptied => {
                going.is_emptied = true;
                self.open(Job::Empty { number }, name, OpenMode::Truncate);
                Ok(())
            }
            (Err(error), _) => {
                self.refused.insert(number);
                Err(error)
            }
        }
    }

    /// The file of a bundle that is gone was emptied, or could not be.
    pub(super) fn emptied(&mut self, number: u64, answer: &Result<Completion, EffectError>) {
        if let Ok(Completion::Opened { file, .. }) = answer {
            self.close(*file);
        }
        self.record_gone(number);
    }

    /// Number of bundles that are gone whose records the store has refused.
    pub(super) fn refused(&self) -> usize {
        self.refused.len()
    }

    /// Time that the store rests after it has refused a record: twice the last one.
    pub(super) fn rest(&mut self) -> Duration {
        let rest = self.rest;
        self.rest = (2 * rest).min(REST_MAX);
        rest
    }

    /// Asks once more for the records that the store has refused.
    pub(super) fn record_refused(&mut self) {
        for number in std::mem::take(&mut self.refused) {
            self.record_gone(number);
        }
    }
}
