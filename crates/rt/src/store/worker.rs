//! A thread that carries out storage effects.

use std::collections::{BTreeMap, VecDeque};
use std::fs::File;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::{Bytes, BytesMut};
use crossbeam_channel::{Receiver, Sender};
use engine::{
    Completion, EffectError, FileBytes, FileId, FileName, FilestoreRequest, IndexRequest, OpenMode,
    StoreEffect, Ticket, Work,
};
use tree::Pack;

use super::disk::{Answer, Disk, Found, read_at, write_at};
use super::packs::read_error;
use super::system::reason;
use crate::Waker;

/// An effect to carry out.
pub(super) struct Job {
    pub(super) effect: StoreEffect,
    /// Number of the file that the effect opens.
    pub(super) opens: Option<FileId>,
    /// Receiver of the result.
    pub(super) answers: Arc<Answers>,
}

/// An open file.
struct Opened {
    content: Content,
    name: FileName,
}

/// Open files of one thread, to which the thread that makes lists adds others.
#[derive(Default)]
struct Files(Mutex<BTreeMap<FileId, Arc<Opened>>>);

impl Files {
    fn get(&self, file: FileId) -> Option<Arc<Opened>> {
        self.lock().get(&file).cloned()
    }

    fn insert(&self, file: FileId, opened: Opened) {
        self.lock().insert(file, Arc::new(opened));
    }

    fn remove(&self, file: FileId) {
        self.lock().remove(&file);
    }

    /// Each change is one operation, so a panic elsewhere leaves the map whole.
    fn lock(&self) -> MutexGuard<'_, BTreeMap<FileId, Arc<Opened>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Content of an open file.
#[derive(Debug)]
pub(super) enum Content {
    /// A file of the file system, and its properties when it was opened.
    File(File, Found),
    /// A pack, which is only read.
    Pack(Arc<Pack>),
}

impl Content {
    /// Opens a file, or the pack that the store has in its place.
    pub(super) fn open(disk: &Disk, name: &FileName, mode: OpenMode) -> Result<Self, EffectError> {
        match disk.pack(name, mode)? {
            Some(pack) => Ok(Self::Pack(pack)),
            None => disk.open(name, mode).map(|(file, found)| Self::File(file, found)),
        }
    }

    pub(super) fn read_at(&self, offset: u64, to: &mut [u8]) -> Result<usize, EffectError> {
        match self {
            Self::File(file, _) => read_at(file, to, offset),
            Self::Pack(pack) => pack.read_at(offset, to).map_err(|error| read_error(&error)),
        }
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> Answer {
        match self {
            Self::File(file, _) => write_at(file, bytes, offset),
            Self::Pack(_) => Err(EffectError::NotAllowed),
        }
    }

    /// Verifies that a source still has the content with which it was opened. A pack does so as it
    /// is read.
    fn verify(&self) -> Result<(), EffectError> {
        match self {
            Self::File(file, found) => found.verify(file),
            Self::Pack(_) => Ok(()),
        }
    }

    fn sync(&self) -> io::Result<()> {
        match self {
            Self::File(file, _) => file.sync_data(),
            Self::Pack(_) => Ok(()),
        }
    }
}

/// A file whose writes so far must survive a crash.
pub(super) struct Sync {
    ticket: Ticket,
    file: Arc<Opened>,
    answers: Arc<Answers>,
}

/// A computation over an open file.
pub(super) struct Computation {
    ticket: Ticket,
    work: Work,
    file: Arc<Opened>,
    answers: Arc<Answers>,
}

/// A received pack that is to be unpacked.
pub(super) struct Unpacking {
    ticket: Ticket,
    from: FileName,
    to: FileName,
    /// Whether the engine would try another name if this one cannot be given.
    is_named_anew: bool,
    answers: Arc<Answers>,
}

/// A list of what is below a name, which is opened as a file.
pub(super) struct Listing {
    ticket: Ticket,
    file: FileId,
    name: FileName,
    files: Arc<Files>,
    answers: Arc<Answers>,
}

/// Queues of the threads that take what takes long.
pub(super) struct Others {
    pub(super) syncs: Sender<Sync>,
    pub(super) computations: Sender<Computation>,
    pub(super) packs: Sender<Unpacking>,
    pub(super) lists: Sender<Listing>,
}

/// A completed effect.
#[derive(Debug)]
pub(super) struct Done {
    pub(super) ticket: Ticket,
    pub(super) answer: Answer,
    /// Memory that the effect used while in progress.
    pub(super) size: usize,
    pub(super) failed_to_open: Option<FileId>,
}

/// Record changes that share one sync, and their bytes.
const CHANGES_MAX: usize = 4096;
const CHANGED_MAX: usize = 8 << 20;

/// Maximum read buffers kept for reuse.
const BUFFERS_KEPT: usize = 16;

/// Channel for results, and its waker.
#[derive(Debug)]
pub(super) struct Answers {
    pub(super) done: Sender<Done>,
    pub(super) waker: Waker,
}

impl Answers {
    pub(super) fn give(&self, done: Done) {
        // A store that is being closed takes no results.
        let _ = self.done.send(done);
        self.waker.wake();
    }
}

/// Carries out effects in order until the queue is closed. Other threads sync files and compute,
/// because that can take as long as many writes.
pub(super) fn run(disk: &Disk, queue: &Receiver<Job>, others: &Others) {
    let mut worker = Worker { disk, files: Arc::default(), buffers: VecDeque::new() };
    let mut reported = None;
    let mut next = None;
    loop {
        let Some(job) = next.take().or_else(|| queue.recv().ok()) else { return };
        if changes(&job).is_some() {
            next = change(disk, job, queue);
            continue;
        }
        let size = job.effect.bytes();
        let wanted = worker.wanted(&job.effect);
        if let StoreEffect::Sync { ticket, file } = job.effect
            && let Ok(file) = worker.file(file)
        {
            let _ = others.syncs.send(Sync { ticket, file, answers: job.answers });
            continue;
        }
        if let StoreEffect::Work { ticket, file, work } = &job.effect
            && let Ok(file) = worker.file(*file)
        {
            let (ticket, work) = (*ticket, work.clone());
            let computation = Computation { ticket, work, file, answers: job.answers };
            let _ = others.computations.send(computation);
            continue;
        }
        if let StoreEffect::Filestore { ticket, request } = &job.effect
            && let Some((from, to)) = disk.to_unpack(request)
        {
            let unpacking = Unpacking {
                ticket: *ticket,
                from: from.clone(),
                to: to.clone(),
                is_named_anew: matches!(request, FilestoreRequest::RenameFile { .. }),
                answers: job.answers,
            };
            let _ = others.packs.send(unpacking);
            continue;
        }
        if let StoreEffect::Open { ticket, name, mode } = &job.effect
            && let Some(file) = job.opens.filter(|_| disk.is_listed(name, *mode))
        {
            let (ticket, name, files) = (*ticket, name.clone(), Arc::clone(&worker.files));
            let listing = Listing { ticket, file, name, files, answers: job.answers };
            if let Err(error) = others.lists.try_send(listing) {
                let Listing { ticket, answers, .. } = error.into_inner();
                let answer = Err(EffectError::Failed("other lists are being made".into()));
                answers.give(Done { ticket, answer, size: 0, failed_to_open: Some(file) });
            }
            continue;
        }
        let Some((ticket, answer)) = worker.execute(job.effect, job.opens) else { continue };
        if let (Err(error), Some(wanted)) = (&answer, wanted) {
            // A peer is only informed of the refusal; the operator needs the reason. A full disk
            // fails each write, so repetitions are not logged.
            let why = (wanted, error.clone());
            if reported.as_ref() != Some(&why) {
                tracing::warn!("cannot {}: {error}", why.0);
                reported = Some(why);
            }
        }
        let failed_to_open = job.opens.filter(|_| answer.is_err());
        job.answers.give(Done { ticket, answer, size, failed_to_open });
    }
}

/// Record change of a job, if it is one.
fn changes(job: &Job) -> Option<(Ticket, &IndexRequest)> {
    match &job.effect {
        StoreEffect::Index { request: IndexRequest::Load { .. }, .. } => None,
        StoreEffect::Index { ticket, request } => Some((*ticket, request)),
        StoreEffect::Open { .. }
        | StoreEffect::Read { .. }
        | StoreEffect::Write { .. }
        | StoreEffect::Sync { .. }
        | StoreEffect::Work { .. }
        | StoreEffect::Close { .. }
        | StoreEffect::Filestore { .. } => None,
    }
}

/// Applies a record change and all changes queued behind it with one sync. Returns the first job
/// of another kind, for the next turn.
fn change(disk: &Disk, first: Job, queue: &Receiver<Job>) -> Option<Job> {
    let mut bytes = 0;
    let mut jobs = Vec::new();
    let mut next = Some(first);
    while let Some(job) = next.take() {
        let Some((_, request)) = changes(&job) else {
            next = Some(job);
            break;
        };
        if let IndexRequest::Put { value, .. } = request {
            bytes += value.len();
        }
        jobs.push(job);
        if jobs.len() < CHANGES_MAX && bytes < CHANGED_MAX {
            next = queue.try_recv().ok();
        }
    }
    let (tickets, requests): (Vec<_>, Vec<_>) = jobs.iter().filter_map(changes).unzip();
    let answers = disk.records.change(&requests);
    for ((job, ticket), answer) in jobs.iter().zip(tickets).zip(answers) {
        let answer = answer.map(|()| Completion::Done);
        job.answers.give(Done { ticket, answer, size: 0, failed_to_open: None });
    }
    disk.records.tidy();
    next
}

/// Syncs files until the queue is closed. Writes done before a file was queued are durable when
/// its sync completes; later ones may or may not be.
pub(super) fn sync(queue: &Receiver<Sync>) {
    for Sync { ticket, file, answers } in queue {
        let answer = file.content.sync().map(|()| Completion::Done).map_err(|error| {
            tracing::warn!("cannot sync a file: {error}");
            reason(&error)
        });
        answers.give(Done { ticket, answer, size: 0, failed_to_open: None });
    }
}

/// Carries out computations until the queue is closed.
pub(super) fn compute(queue: &Receiver<Computation>) {
    for Computation { ticket, work, file, answers } in queue {
        let answer = work.run(&mut OpenFile(&file.content)).map(Completion::Read);
        let answer = answer.and_then(|read| file.content.verify().map(|()| read));
        if let Err(error) = &answer {
            tracing::warn!("cannot compute over {:?}: {error}", file.name.path());
        }
        answers.give(Done { ticket, answer, size: 0, failed_to_open: None });
    }
}

/// Unpacks received packs until the queue is closed.
pub(super) fn unpack(disk: &Disk, queue: &Receiver<Unpacking>) {
    for Unpacking { ticket, from, to, is_named_anew, answers } in queue {
        let mut answer = disk.unpack(&from).map(|()| Completion::Done);
        if let Err(error) = &mut answer {
            tracing::warn!("cannot unpack {:?}: {error}", to.path());
            if is_named_anew {
                *error = EffectError::Failed(format!("it cannot be unpacked: {error}"));
            }
        }
        answers.give(Done { ticket, answer, size: 0, failed_to_open: None });
    }
}

/// Makes lists until the queue is closed.
pub(super) fn list(disk: &Disk, queue: &Receiver<Listing>) {
    for Listing { ticket, file, name, files, answers } in queue {
        let listed = disk.list_below(&name);
        if let Err(error) = &listed {
            tracing::warn!("cannot list what is there for {:?}: {error}", name.path());
        }
        let answer = listed.map(|(content, found)| {
            files.insert(file, Opened { content: Content::File(content, found), name });
            Completion::Opened { file, len: found.len, modified: found.modified }
        });
        let failed_to_open = answer.is_err().then_some(file);
        answers.give(Done { ticket, answer, size: 0, failed_to_open });
    }
}

/// The bytes of an open file.
struct OpenFile<'a>(&'a Content);

impl FileBytes for OpenFile<'_> {
    fn read_at(&mut self, offset: u64, to: &mut [u8]) -> Result<usize, EffectError> {
        self.0.read_at(offset, to)
    }

    fn write_at(&mut self, offset: u64, bytes: &[u8]) -> Result<(), EffectError> {
        self.0.write_at(offset, bytes).map(drop)
    }
}

struct Worker<'a> {
    disk: &'a Disk,
    files: Arc<Files>,
    /// Recent read buffers. An unused one is reused, because touching new memory costs more than
    /// the reading.
    buffers: VecDeque<Bytes>,
}

impl Worker<'_> {
    fn execute(&mut self, effect: StoreEffect, opens: Option<FileId>) -> Option<(Ticket, Answer)> {
        let ticket = effect.ticket();
        let answer = match effect {
            StoreEffect::Open { name, mode, .. } => {
                let number = opens.expect("the store numbers every file it has opened");
                self.open(number, name, mode)
            }
            StoreEffect::Read { file, offset, len, .. } => self.read(file, offset, len),
            StoreEffect::Write { file, offset, bytes, .. } => {
                self.file(file).and_then(|file| file.content.write_at(offset, &bytes))
            }
            // Only a file that is not open gets here.
            StoreEffect::Sync { file, .. } | StoreEffect::Work { file, .. } => {
                self.file(file).map(|_| Completion::Done)
            }
            StoreEffect::Close { file } => {
                self.files.remove(file);
                return None;
            }
            StoreEffect::Filestore { request, .. } => self.disk.filestore(&request),
            StoreEffect::Index { request: IndexRequest::Load { prefix }, .. } => {
                self.disk.load(&prefix)
            }
            // Record changes were handled before.
            StoreEffect::Index { .. } => return None,
        };
        ticket.map(|ticket| (ticket, answer))
    }

    /// Describes an effect that fails only when something is wrong with the store or a source.
    /// `None` for effects on files named by a peer, which often do not exist.
    fn wanted(&self, effect: &StoreEffect) -> Option<String> {
        match effect {
            StoreEffect::Open { name, mode: OpenMode::Write | OpenMode::Truncate, .. } => {
                Some(format!("open the working file {:?}", name.path()))
            }
            StoreEffect::Filestore { request: FilestoreRequest::Install { to, .. }, .. } => {
                Some(format!("move a received file to {:?}", to.path()))
            }
            StoreEffect::Write { .. } => Some("write received data".to_owned()),
            StoreEffect::Read { file, .. } => {
                let file = self.files.get(*file);
                let name = file.as_ref().map_or("", |opened| opened.name.path());
                Some(format!("read {name:?}"))
            }
            StoreEffect::Open { .. }
            | StoreEffect::Sync { .. }
            | StoreEffect::Work { .. }
            | StoreEffect::Close { .. }
            | StoreEffect::Filestore { .. }
            | StoreEffect::Index { .. } => None,
        }
    }

    fn open(&mut self, file: FileId, name: FileName, mode: OpenMode) -> Answer {
        let content = Content::open(self.disk, &name, mode)?;
        let (len, modified) = match &content {
            Content::File(_, found) => (found.len, found.modified),
            Content::Pack(pack) => (pack.len(), None),
        };
        self.files.insert(file, Opened { content, name });
        Ok(Completion::Opened { file, len, modified })
    }

    fn file(&self, file: FileId) -> Result<Arc<Opened>, EffectError> {
        let not_open = || EffectError::Failed("the file is not open".into());
        self.files.get(file).ok_or_else(not_open)
    }

    fn read(&mut self, file: FileId, offset: u64, len: usize) -> Answer {
        let mut buffer = self.buffer(len);
        let opened = self.file(file)?;
        let count = opened.content.read_at(offset, &mut buffer)?;
        opened.content.verify()?;
        buffer.truncate(count);
        let bytes = buffer.freeze();
        if self.buffers.len() >= BUFFERS_KEPT {
            self.buffers.pop_front();
        }
        self.buffers.push_back(bytes.clone());
        Ok(Completion::Read(bytes))
    }

    /// Returns a buffer of `len` bytes with arbitrary content.
    fn buffer(&mut self, len: usize) -> BytesMut {
        let free = self.buffers.iter().position(Bytes::is_unique);
        let kept = free.and_then(|free| self.buffers.remove(free)?.try_into_mut().ok());
        let mut buffer = kept.unwrap_or_default();
        buffer.resize(len, 0);
        buffer
    }
}
