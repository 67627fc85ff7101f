//! Parts common to the engines: paths that take turns, effects and their completions, timers that
//! stop while a path is down or a session suspended, and slots for sessions.
//!
//! Only the crates of slowlight use it, and it changes with them: it is no stable interface.

#![forbid(unsafe_code)]

mod admission;
pub mod allowance;
pub mod authentication;
mod base;
pub mod buffers;
pub mod credit;
pub mod delivery;
pub mod done;
pub mod journal;
pub mod losses;
pub mod path;
mod places;
pub mod ranges;
pub mod recent;
pub mod record;
pub mod refusals;
pub mod repairs;
pub mod replies;
pub mod settings;
pub mod source;
pub mod spool;
pub mod storage;
mod store_refusal;
pub mod sum;
#[cfg(test)]
mod tests;
pub mod thin_return;
pub mod timer;
pub mod window;

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::convert::Infallible;
use std::ops::{Bound, Deref, DerefMut};

use bytes::Bytes;
use engine::{
    Completion, Effect, EffectError, FileId, FileName, FilestoreRequest, IndexRequest, OpenMode,
    PathEffect, PathEvent, PathId, StoreEffect, Ticket, Time, Timers, Transmit, TxBuf,
};

pub use self::admission::{Admission, Place};
pub use self::base::{Base, Reason, Seat};
pub use self::credit::{Credit, FACTOR};
pub use self::places::{Guest, Host, Places, Vacancy};
pub use self::store_refusal::StoreRefusal;
pub use crate::buffers::Buffers;
use crate::path::{Burst, Class, Clock, Handle, Pacing, Path, Turn};
use crate::replies::Replies;
use crate::storage::{Room, Storage};

/// Timer of a session, as an engine defines it.
pub trait Alarm: Copy + Ord {
    /// Name of the timer in reports of deadlines.
    fn why(self) -> &'static str;

    /// Whether the timer waits for the peer, and so stops while nothing can arrive.
    fn awaits_peer(self) -> bool;

    /// Whether the timer concerns this host alone, and so never stops.
    fn is_local(self) -> bool {
        false
    }

    /// Whether the timer runs in this state of the path's clock.
    fn runs(self, clock: Clock) -> bool {
        match clock {
            Clock::Stopped => self.is_local(),
            Clock::Sending => !self.awaits_peer(),
            Clock::Running => true,
        }
    }
}

/// Purpose of an effect; engines add their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Job<J> {
    /// Opens the source or the working file.
    Open,
    /// Reads the source to send it, or the working file to check it.
    Read {
        /// Offset of the data.
        offset: u64,
        /// Bytes requested.
        len: usize,
    },
    /// Reads a part of the source to retransmit.
    Repair {
        /// Offset of the part.
        offset: u64,
    },
    /// Writes received data.
    Write {
        /// Bytes that the write occupies in the buffers.
        cost: usize,
    },
    /// Syncs the working file.
    Sync,
    /// Gives a complete file its name.
    Install,
    /// No continuation.
    Forget,
    /// A job of the engine's own.
    Own(J),
}

/// A file is shorter than it was, or longer than it may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the file has another length than before")]
pub struct UnexpectedLength;

/// Change of a path's [`Clock`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// The path or its return came up: more timers run, and data may be sent at once.
    Resumed,
    /// The path or its return went down: fewer timers run.
    Stopped,
}

/// Indications for the user in order. Each limit is reported once, and again only after it was no
/// longer reached.
#[derive(Debug)]
pub struct User<I, L> {
    indications: VecDeque<I>,
    /// Limits that were reported and are still reached.
    limits: Vec<L>,
}

impl<I: From<L>, L: Copy + PartialEq> Default for User<I, L> {
    fn default() -> Self {
        Self::new()
    }
}

impl<I: From<L>, L: Copy + PartialEq> User<I, L> {
    /// No indications.
    pub const fn new() -> Self {
        Self { indications: VecDeque::new(), limits: Vec::new() }
    }

    /// Adds an indication.
    pub fn indicate(&mut self, indication: I) {
        self.indications.push_back(indication);
    }

    /// Reports a limit once, and again only after it was no longer reached.
    pub fn limit_reached(&mut self, limit: L) {
        if !self.limits.contains(&limit) {
            self.limits.push(limit);
            self.indicate(limit.into());
        }
    }

    /// A limit is no longer reached.
    pub fn limit_left(&mut self, limit: L) {
        self.limits.retain(|other| *other != limit);
    }

    /// Whether a limit was reached and not left since.
    pub fn is_at(&self, limit: L) -> bool {
        self.limits.contains(&limit)
    }

    /// Removes indications that are no longer true.
    pub fn withdraw(&mut self, is_over: impl Fn(&I) -> bool) {
        self.indications.retain(|indication| !is_over(indication));
    }

    /// Next indication.
    pub fn pop(&mut self) -> Option<I> {
        self.indications.pop_front()
    }
}

/// Paths of an engine, and the paths that have data to send: in a large group there are many
/// paths, and one is polled after every datagram.
#[derive(Debug, Default)]
pub struct Paths {
    all: BTreeMap<PathId, Path>,
    /// Paths that the driver was requested to pause.
    paused: BTreeSet<PathId>,
    /// Paths with data to send; some of them may have none any more.
    ready: BTreeSet<PathId>,
    /// Path of each session.
    seats: BTreeMap<Handle, PathId>,
    /// Number of sessions on each path with any.
    sessions: BTreeMap<PathId, usize>,
    /// Paths whose first session began, or whose last one ended.
    changes: VecDeque<PathEffect>,
}

impl Deref for Paths {
    type Target = BTreeMap<PathId, Path>;

    fn deref(&self) -> &Self::Target {
        &self.all
    }
}

impl DerefMut for Paths {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.all
    }
}

impl Paths {
    /// Queues a session for a class on a path; it must not be queued.
    fn enqueue(&mut self, id: PathId, class: Class, handle: Handle) {
        if let Some(path) = self.all.get_mut(&id) {
            path.enqueue(class, handle);
            self.ready.insert(id);
        }
    }

    /// Returns a session to the front of its queue.
    fn requeue_front(&mut self, id: PathId, class: Class, handle: Handle) {
        if let Some(path) = self.all.get_mut(&id) {
            path.requeue_front(class, handle);
            self.ready.insert(id);
        }
    }

    /// Records that a session is on a path from here on. The driver keeps peers with sessions.
    pub fn take_seat(&mut self, handle: Handle, path: Option<PathId>) {
        if self.seats.get(&handle).copied() == path {
            return;
        }
        self.leave_seat(handle);
        let Some(path) = path else { return };
        self.seats.insert(handle, path);
        let sessions = self.sessions.entry(path).or_default();
        *sessions += 1;
        if *sessions == 1 {
            self.changes.push_back(PathEffect::Retain { path });
        }
    }

    /// Whether a path has a session.
    pub fn has_sessions(&self, path: PathId) -> bool {
        self.sessions.contains_key(&path)
    }

    /// Records that a session is on no path any more.
    pub fn leave_seat(&mut self, handle: Handle) {
        let Some(path) = self.seats.remove(&handle) else { return };
        let Some(sessions) = self.sessions.get_mut(&path) else { return };
        *sessions -= 1;
        if *sessions == 0 {
            self.sessions.remove(&path);
            self.changes.push_back(PathEffect::Release { path });
        }
    }

    /// Clock of the sessions on a path; without a path it runs.
    pub fn clock(&self, path: Option<PathId>) -> Clock {
        path.and_then(|id| self.all.get(&id)).map_or(Clock::Running, Path::clock)
    }

    /// Host of the peer on a path.
    pub fn host(&self, id: PathId) -> Host {
        Host::new(id, self.all.get(&id).and_then(Path::host))
    }

    /// Removes a path.
    pub fn remove(&mut self, id: PathId) {
        self.all.remove(&id);
        self.paused.remove(&id);
        self.ready.remove(&id);
    }

    /// Updates the readiness of a path after polling it.
    fn looked_at(&mut self, id: PathId) {
        if !self.all.get(&id).is_some_and(Path::has_work) {
            self.ready.remove(&id);
        }
    }
}

/// Paths, effects and timers of an engine with its own alarms `A` and jobs `J`.
#[derive(Debug)]
pub struct Shared<A, J = Infallible> {
    /// Paths of the engine.
    pub paths: Paths,
    /// Replies that belong to no session.
    pub replies: Replies,
    /// Effects for the driver.
    pub effects: VecDeque<Effect>,
    /// Timers of sessions.
    pub timers: Timers<(Handle, A)>,
    /// Room in the buffers.
    pub room: Room,
    /// Places of sessions that peers began.
    pub places: Places,
    /// Active sending sessions.
    pub senders: usize,
    /// Too many bytes wait for the store: collected data is to be written now.
    pub flush_wanted: bool,
    /// Whether data was dropped for lack of room, and there still is no room.
    is_full: bool,
    buffers: Buffers,
    tickets: BTreeMap<Ticket, (Handle, Job<J>)>,
    ticket: u64,
    /// Path of the last turn.
    turn: PathId,
}

impl<A: Alarm, J> Shared<A, J> {
    /// State of a new engine.
    pub fn new(buffers: Buffers) -> Self {
        Self {
            paths: Paths::default(),
            replies: Replies::new(buffers.replies),
            effects: VecDeque::new(),
            timers: Timers::new(),
            room: Room::new(buffers.write_buffer, buffers.write_piece, buffers.read_piece),
            places: Places::default(),
            senders: 0,
            flush_wanted: false,
            is_full: false,
            buffers,
            tickets: BTreeMap::new(),
            ticket: 0,
            turn: PathId(0),
        }
    }

    /// Ticket for an effect.
    pub fn ticket(&mut self, handle: Handle, job: Job<J>) -> Ticket {
        self.ticket += 1;
        let ticket = Ticket(self.ticket);
        self.tickets.insert(ticket, (handle, job));
        ticket
    }

    /// Session of a pending effect.
    pub fn asker(&self, ticket: Ticket) -> Option<Handle> {
        self.tickets.get(&ticket).map(|(handle, _)| *handle)
    }

    /// Session and purpose of a completed effect.
    pub fn completed(&mut self, ticket: Ticket) -> Option<(Handle, Job<J>)> {
        self.tickets.remove(&ticket)
    }

    /// Requests a filestore operation.
    pub fn filestore(&mut self, handle: Handle, job: Job<J>, request: FilestoreRequest) {
        let ticket = self.ticket(handle, job);
        self.effects.push_back(StoreEffect::Filestore { ticket, request }.into());
    }

    /// Gives a complete and synced file its name.
    pub fn install(&mut self, handle: Handle, from: FileName, to: FileName) {
        self.filestore(handle, Job::Install, FilestoreRequest::Install { from, to });
    }

    /// Requests an operation on records.
    pub fn index(&mut self, handle: Handle, job: Job<J>, request: IndexRequest) {
        let ticket = self.ticket(handle, job);
        self.effects.push_back(StoreEffect::Index { ticket, request }.into());
    }

    /// Handles the completion of an effect whose session no longer exists.
    pub fn orphaned(&mut self, job: &Job<J>, result: &Result<Completion, EffectError>) {
        if let Job::Write { cost } = job {
            self.written(*cost);
        }
        if let Ok(Completion::Opened { file, .. }) = result {
            self.close(*file);
        }
    }

    /// Updates a path, paced by `pacing`. Returns the change of its sessions' clock, which each
    /// session then follows ([`Base::follow`]).
    pub fn path_event(&mut self, id: PathId, event: PathEvent, pacing: Pacing) -> Option<Change> {
        let path = self.paths.entry(id).or_insert_with(|| Path::new(pacing.catch_up));
        let (was_up, before) = (path.is_up(), path.clock());
        path.event(event, pacing);
        let (is_up, after) = (path.is_up(), path.clock());
        if was_up && !is_up {
            self.replies.drop_path(id);
            // The addresses of a flood would otherwise be kept for ever.
            let is_of_socket = self.paths.get(&id).is_some_and(|path| path.peer().is_some());
            if is_of_socket && !self.paths.has_sessions(id) {
                self.paths.remove(id);
            }
        }
        match after.cmp(&before) {
            Ordering::Less => Some(Change::Stopped),
            Ordering::Equal => None,
            Ordering::Greater => Some(Change::Resumed),
        }
    }

    /// Next effect for the driver.
    pub fn next_effect(&mut self) -> Option<Effect> {
        self.paths.changes.pop_front().map(Effect::Path).or_else(|| self.effects.pop_front())
    }

    /// Requests the driver to pause a path until its data is written.
    pub fn pause(&mut self, path: PathId) {
        if self.paths.contains_key(&path) && self.paths.paused.insert(path) {
            self.effects.push_back(PathEffect::PauseRead { path }.into());
        }
    }

    /// Records that data is dropped for lack of room; `true` for the first since there was room.
    pub fn became_full(&mut self) -> bool {
        self.flush_wanted = true;
        !std::mem::replace(&mut self.is_full, true)
    }

    /// The only path, if there is exactly one: the default for peers without a configured path.
    pub fn only_path(&self) -> Option<PathId> {
        let mut paths = self.paths.keys();
        paths.next().copied().filter(|_| paths.next().is_none())
    }

    /// First path between two bounds that may have data to send.
    fn next_ready(&self, from: Bound<PathId>, end: Bound<PathId>) -> Option<PathId> {
        let ready = self.paths.ready.range((from, end)).next().copied();
        let completed = self.replies.next_path(from, end);
        ready.into_iter().chain(completed).min()
    }
}

impl<A: Alarm, J> Storage for Shared<A, J> {
    fn room(&mut self) -> &mut Room {
        &mut self.room
    }

    fn read_ahead(&self) -> usize {
        let share = self.buffers.read_ahead_total / self.senders.max(1);
        self.buffers.read_ahead.min(share).max(1)
    }

    fn open(&mut self, handle: Handle, name: FileName, mode: OpenMode) {
        let ticket = self.ticket(handle, Job::Open);
        self.effects.push_back(StoreEffect::Open { ticket, name, mode }.into());
    }

    fn read(&mut self, handle: Handle, file: FileId, offset: u64, len: usize) {
        let ticket = self.ticket(handle, Job::Read { offset, len });
        self.effects.push_back(StoreEffect::Read { ticket, file, offset, len }.into());
    }

    fn read_again(&mut self, handle: Handle, file: FileId, offset: u64, len: usize) {
        let ticket = self.ticket(handle, Job::Repair { offset });
        self.effects.push_back(StoreEffect::Read { ticket, file, offset, len }.into());
    }

    fn write(&mut self, handle: Handle, file: FileId, offset: u64, bytes: Bytes, cost: usize) {
        let ticket = self.ticket(handle, Job::Write { cost });
        self.effects.push_back(StoreEffect::Write { ticket, file, offset, bytes }.into());
    }

    fn sync(&mut self, handle: Handle, file: FileId) {
        let ticket = self.ticket(handle, Job::Sync);
        self.effects.push_back(StoreEffect::Sync { ticket, file }.into());
    }

    fn close(&mut self, file: FileId) {
        self.effects.push_back(StoreEffect::Close { file }.into());
    }

    fn written(&mut self, cost: usize) {
        self.room.unwritten = self.room.unwritten.saturating_sub(cost);
        if self.room.unwritten > self.buffers.write_buffer / 2 {
            // While paths are paused, nothing is added to collected data that waits.
            self.flush_wanted |= !self.paths.paused.is_empty();
            return;
        }
        self.is_full = false;
        for path in std::mem::take(&mut self.paths.paused) {
            if self.paths.contains_key(&path) {
                self.effects.push_back(PathEffect::ResumeRead { path }.into());
            }
        }
    }
}

/// Slots for sessions.
#[derive(Debug)]
pub struct Slots<S> {
    slots: Vec<Slot<S>>,
    free: Vec<u32>,
}

#[derive(Debug)]
struct Slot<S> {
    generation: u32,
    session: Option<S>,
}

impl<S> Default for Slots<S> {
    fn default() -> Self {
        Self::new()
    }
}

impl<S> Slots<S> {
    /// No sessions.
    pub const fn new() -> Self {
        Self { slots: Vec::new(), free: Vec::new() }
    }

    /// Reserves a slot for a new session.
    pub fn reserve(&mut self) -> Handle {
        let index = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot { generation: 0, session: None });
            u32::try_from(self.slots.len() - 1).expect("a bound on sessions keeps them few")
        });
        Handle { index, generation: self.slots[index as usize].generation }
    }

    /// Puts a session into its reserved slot.
    pub fn fill(&mut self, handle: Handle, session: S) {
        self.slots[handle.index as usize].session = Some(session);
    }

    /// Session of a handle, if it still exists.
    pub fn get(&self, handle: Handle) -> Option<&S> {
        let slot = self.slots.get(handle.index as usize)?;
        slot.session.as_ref().filter(|_| slot.generation == handle.generation)
    }

    /// Session of a handle, mutably.
    pub fn get_mut(&mut self, handle: Handle) -> Option<&mut S> {
        let slot = self.slots.get_mut(handle.index as usize)?;
        slot.session.as_mut().filter(|_| slot.generation == handle.generation)
    }

    /// Removes a session; its handle becomes invalid.
    pub fn take(&mut self, handle: Handle) -> Option<S> {
        let slot = self.slots.get_mut(handle.index as usize)?;
        if slot.generation != handle.generation {
            return None;
        }
        let session = slot.session.take()?;
        slot.generation = slot.generation.wrapping_add(1);
        self.free.push(handle.index);
        Some(session)
    }

    /// All sessions.
    pub fn iter(&self) -> impl Iterator<Item = &S> {
        self.slots.iter().filter_map(|slot| slot.session.as_ref())
    }

    /// All sessions, to change them.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut S> {
        self.slots.iter_mut().filter_map(|slot| slot.session.as_mut())
    }
}

/// An engine whose sessions take turns to send.
pub trait Turns {
    /// Alarms of the engine's timers.
    type Alarm: Alarm;
    /// Jobs of the engine's effects.
    type Job;

    /// State common to its sessions.
    fn shared(&mut self) -> &mut Shared<Self::Alarm, Self::Job>;

    /// Seat of a session.
    fn seat(&mut self, handle: Handle) -> Option<&mut Seat>;

    /// Sends replies that belong to no session.
    fn emit_replies(&mut self, id: PathId, burst: &mut Burst<'_>);

    /// Lets a session send data of one class.
    fn emit(&mut self, handle: Handle, class: Class, burst: &mut Burst<'_>) -> Turn;

    /// Updates a session after an event; removes it if it has ended.
    fn settle(&mut self, handle: Handle);

    /// Handles the result of a path's turn.
    fn after_turn(&mut self, _now: Time) {}

    /// Gives each ready path a turn, beginning behind the last one, until one sends.
    fn take_turns(&mut self, now: Time, tx: &mut TxBuf) -> Option<Transmit> {
        let last = self.shared().turn;
        let mut any = false;
        for end in [Bound::Unbounded, Bound::Included(last)] {
            let mut from = match end {
                Bound::Unbounded => Bound::Excluded(last),
                Bound::Included(_) | Bound::Excluded(_) => Bound::Unbounded,
            };
            while let Some(at) = self.shared().next_ready(from, end) {
                any = true;
                let transmit = self.transmit_on(now, at, tx);
                self.shared().paths.looked_at(at);
                self.after_turn(now);
                if transmit.is_some() {
                    self.shared().turn = at;
                    return transmit;
                }
                if end == Bound::Included(at) {
                    break;
                }
                from = Bound::Excluded(at);
            }
        }
        if !any {
            self.after_turn(now);
        }
        None
    }

    /// Fills a batch for one path, the most urgent data first.
    fn transmit_on(&mut self, now: Time, id: PathId, tx: &mut TxBuf) -> Option<Transmit> {
        let shared = self.shared();
        let path = shared.paths.get(&id).filter(|path| path.can_send())?;
        if !path.has_work() && !shared.replies.waits(id) {
            return None;
        }
        let mut burst = path.burst(now, tx);
        burst.path = id;
        self.emit_replies(id, &mut burst);
        self.emit_sessions(id, &mut burst);
        if burst.is_empty() {
            return None;
        }
        self.shared().paths.get_mut(&id)?.finish(id, &burst)
    }

    /// Lets the sessions of a path send, class by class, until the batch is full.
    fn emit_sessions(&mut self, id: PathId, burst: &mut Burst<'_>) {
        for class in Class::ALL {
            loop {
                let path = self.shared().paths.get_mut(&id);
                let Some(handle) = path.and_then(|path| path.dequeue(class)) else { break };
                let Some(seat) = self.seat(handle).filter(|seat| seat.path == Some(id)) else {
                    continue;
                };
                seat.left_queue(class);
                let before = burst.len();
                let turn = self.emit(handle, class, burst);
                let again = turn == Turn::More
                    && self.seat(handle).is_some_and(|seat| seat.back_in_queue(class));
                if again {
                    // A session goes behind the others if it has just sent.
                    let paths = &mut self.shared().paths;
                    if burst.len() > before {
                        paths.enqueue(id, class, handle);
                    } else {
                        paths.requeue_front(id, class, handle);
                    }
                }
                self.settle(handle);
                if turn == Turn::More {
                    return;
                }
            }
        }
    }
}
