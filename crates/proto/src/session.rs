//! What the engines have in common: paths that take turns, effects and their answers, timers that
//! stand still while a path is down or a session is suspended, and the places where sessions live.

mod admission;
mod base;
#[cfg(test)]
mod tests;

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::convert::Infallible;
use std::ops::{Bound, Deref, DerefMut};

use bytes::Bytes;
use engine::{
    Completion, Effect, EffectError, FileId, FileName, FilestoreRequest, IndexRequest, OpenMode,
    PathEffect, PathEvent, PathId, StoreEffect, Ticket, Time, Timers, Transmit, TxBuf,
};

pub(crate) use self::admission::{Admission, Place};
pub(crate) use self::base::{Base, Reason, Seat};
use crate::buffers::Buffers;
use crate::path::{Burst, Class, Clock, Handle, Pacing, Path, Turn};
use crate::replies::Replies;
use crate::storage::{Room, Storage};

/// A session's timer, as an engine names it.
pub(crate) trait Alarm: Copy + Ord {
    /// What it is called where deadlines are told.
    fn why(self) -> &'static str;

    /// Whether it waits for something from the peer, and so stands still while nothing can arrive.
    fn awaits_peer(self) -> bool;

    /// Whether it concerns this host alone, and so never stands still.
    fn is_local(self) -> bool {
        false
    }

    /// Whether it runs while the path's clock is in this state.
    fn runs(self, clock: Clock) -> bool {
        match clock {
            Clock::Stopped => self.is_local(),
            Clock::Sending => !self.awaits_peer(),
            Clock::Running => true,
        }
    }
}

/// What an effect was for; an engine has its own kinds, too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Job<J> {
    /// Open the source or the working file.
    Open,
    /// Read the source to send it, or the working file to check it.
    Read {
        offset: u64,
        len: usize,
    },
    /// Read a part of the source that is sent again.
    Repair {
        offset: u64,
    },
    Write {
        cost: usize,
    },
    Sync,
    Install,
    /// Nobody waits for the answer.
    Forget,
    Own(J),
}

/// Change of a path's [`Clock`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    /// The path or its return came up: more timers run, and it is worth sending at once.
    Resumed,
    /// The path or its return went down: fewer timers run.
    Stopped,
}

/// The user of an engine, who hears indications in order, and of a limit once until it is left.
#[derive(Debug)]
pub(crate) struct User<I, L> {
    indications: VecDeque<I>,
    /// Limits that were reported and not left since.
    limits: Vec<L>,
}

impl<I: From<L>, L: Copy + PartialEq> User<I, L> {
    pub(crate) const fn new() -> Self {
        Self { indications: VecDeque::new(), limits: Vec::new() }
    }

    pub(crate) fn indicate(&mut self, indication: I) {
        self.indications.push_back(indication);
    }

    /// Reports a limit, once until it is left.
    pub(crate) fn limit_reached(&mut self, limit: L) {
        if !self.limits.contains(&limit) {
            self.limits.push(limit);
            self.indicate(limit.into());
        }
    }

    pub(crate) fn limit_left(&mut self, limit: L) {
        self.limits.retain(|other| *other != limit);
    }

    /// What is to be heard next.
    pub(crate) fn pop(&mut self) -> Option<I> {
        self.indications.pop_front()
    }
}

/// The paths of an engine, and which of them somebody wants to send on: a node in a large group has
/// many, and is asked for something to send after every datagram.
#[derive(Debug, Default)]
pub(crate) struct Paths {
    all: BTreeMap<PathId, Path>,
    /// Those whose driver was asked to hold back what arrives.
    paused: BTreeSet<PathId>,
    /// Those with work, and some that have none any more.
    ready: BTreeSet<PathId>,
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
    /// Puts a session into the queue of a class on a path; it must not be in it.
    fn enqueue(&mut self, id: PathId, class: Class, handle: Handle) {
        if let Some(path) = self.all.get_mut(&id) {
            path.enqueue(class, handle);
            self.ready.insert(id);
        }
    }

    /// Puts a session back to the front of its queue.
    fn requeue_front(&mut self, id: PathId, class: Class, handle: Handle) {
        if let Some(path) = self.all.get_mut(&id) {
            path.requeue_front(class, handle);
            self.ready.insert(id);
        }
    }

    /// The clock of the sessions on a path; it runs for those that have none.
    pub(crate) fn clock(&self, path: Option<PathId>) -> Clock {
        path.and_then(|id| self.all.get(&id)).map_or(Clock::Running, Path::clock)
    }

    /// Forgets a path.
    pub(crate) fn remove(&mut self, id: PathId) {
        self.all.remove(&id);
        self.paused.remove(&id);
        self.ready.remove(&id);
    }

    /// Takes note that a path was looked at.
    fn looked_at(&mut self, id: PathId) {
        if !self.all.get(&id).is_some_and(Path::has_work) {
            self.ready.remove(&id);
        }
    }
}

/// Paths, effects and timers of an engine with alarms `A` and jobs `J` of its own.
#[derive(Debug)]
pub(crate) struct Shared<A, J = Infallible> {
    pub(crate) paths: Paths,
    pub(crate) replies: Replies,
    pub(crate) effects: VecDeque<Effect>,
    pub(crate) timers: Timers<(Handle, A)>,
    pub(crate) room: Room,
    /// Sessions under way that send.
    pub(crate) senders: usize,
    /// Too much waits to be written: all collected data shall go to the store now.
    pub(crate) flush_wanted: bool,
    /// Whether data was dropped for lack of room, and there still is none.
    is_full: bool,
    buffers: Buffers,
    tickets: BTreeMap<Ticket, (Handle, Job<J>)>,
    ticket: u64,
    /// The path that had the last turn.
    turn: PathId,
}

impl<A: Alarm, J> Shared<A, J> {
    pub(crate) fn new(buffers: Buffers) -> Self {
        Self {
            paths: Paths::default(),
            replies: Replies::new(buffers.replies),
            effects: VecDeque::new(),
            timers: Timers::new(),
            room: Room::new(buffers.write_buffer, buffers.write_piece, buffers.read_piece),
            senders: 0,
            flush_wanted: false,
            is_full: false,
            buffers,
            tickets: BTreeMap::new(),
            ticket: 0,
            turn: PathId(0),
        }
    }

    /// The ticket of an effect.
    pub(crate) fn ticket(&mut self, handle: Handle, job: Job<J>) -> Ticket {
        self.ticket += 1;
        let ticket = Ticket(self.ticket);
        self.tickets.insert(ticket, (handle, job));
        ticket
    }

    /// The session that asked for an effect which is not answered.
    pub(crate) fn asker(&self, ticket: Ticket) -> Option<Handle> {
        self.tickets.get(&ticket).map(|(handle, _)| *handle)
    }

    /// What an answered effect was for.
    pub(crate) fn answered(&mut self, ticket: Ticket) -> Option<(Handle, Job<J>)> {
        self.tickets.remove(&ticket)
    }

    pub(crate) fn filestore(&mut self, handle: Handle, job: Job<J>, request: FilestoreRequest) {
        let ticket = self.ticket(handle, job);
        self.effects.push_back(StoreEffect::Filestore { ticket, request }.into());
    }

    pub(crate) fn index(&mut self, handle: Handle, job: Job<J>, request: IndexRequest) {
        let ticket = self.ticket(handle, job);
        self.effects.push_back(StoreEffect::Index { ticket, request }.into());
    }

    /// An effect was carried out whose session is over.
    pub(crate) fn orphaned(&mut self, job: &Job<J>, answer: &Result<Completion, EffectError>) {
        if let Job::Write { cost } = job {
            self.written(*cost);
        }
        if let Ok(Completion::Opened { file, .. }) = answer {
            self.close(*file);
        }
    }

    /// Updates a path, which is sent on as `pacing` says. Returns how the clock of its sessions
    /// changed; each then follows it ([`Base::follow`]).
    pub(crate) fn path_event(
        &mut self,
        id: PathId,
        event: PathEvent,
        pacing: Pacing,
    ) -> Option<Change> {
        let path = self.paths.entry(id).or_insert_with(|| Path::new(pacing.catch_up));
        let (was_up, before) = (path.is_up(), path.clock());
        path.event(event, pacing);
        let (is_up, after) = (path.is_up(), path.clock());
        if was_up && !is_up {
            self.replies.drop_path(id);
        }
        match after.cmp(&before) {
            Ordering::Less => Some(Change::Stopped),
            Ordering::Equal => None,
            Ordering::Greater => Some(Change::Resumed),
        }
    }

    /// Asks the driver to hold back a path until its data is written.
    pub(crate) fn pause(&mut self, path: PathId) {
        if self.paths.contains_key(&path) && self.paths.paused.insert(path) {
            self.effects.push_back(PathEffect::PauseRead { path }.into());
        }
    }

    /// Data is dropped for lack of room; `true` for the first since there last was some.
    pub(crate) fn became_full(&mut self) -> bool {
        self.flush_wanted = true;
        !std::mem::replace(&mut self.is_full, true)
    }

    /// The only path, if there is one: the way to a peer of which nothing is said.
    pub(crate) fn only_path(&self) -> Option<PathId> {
        let mut paths = self.paths.keys();
        paths.next().copied().filter(|_| paths.next().is_none())
    }

    /// The first path between two bounds on which something may wait to be sent.
    fn next_ready(&self, between: (Bound<PathId>, Bound<PathId>)) -> Option<PathId> {
        let ready = self.paths.ready.range(between).next().copied();
        let answered = self.replies.next_path(between);
        ready.into_iter().chain(answered).min()
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
            // What still waits may be collected data that no more will join while paths pause.
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

/// Where sessions live.
#[derive(Debug)]
pub(crate) struct Slots<S> {
    slots: Vec<Slot<S>>,
    free: Vec<u32>,
}

#[derive(Debug)]
struct Slot<S> {
    generation: u32,
    session: Option<S>,
}

impl<S> Slots<S> {
    pub(crate) const fn new() -> Self {
        Self { slots: Vec::new(), free: Vec::new() }
    }

    /// A place for a session that is about to be made.
    pub(crate) fn reserve(&mut self) -> Handle {
        let index = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot { generation: 0, session: None });
            u32::try_from(self.slots.len() - 1).expect("a bound on sessions keeps them few")
        });
        Handle { index, generation: self.slots[index as usize].generation }
    }

    /// Puts a session into the place reserved for it.
    pub(crate) fn fill(&mut self, handle: Handle, session: S) {
        self.slots[handle.index as usize].session = Some(session);
    }

    /// The session of a handle, if it still has that place.
    pub(crate) fn get(&self, handle: Handle) -> Option<&S> {
        let slot = self.slots.get(handle.index as usize)?;
        slot.session.as_ref().filter(|_| slot.generation == handle.generation)
    }

    /// The same, to do something with it.
    pub(crate) fn get_mut(&mut self, handle: Handle) -> Option<&mut S> {
        let slot = self.slots.get_mut(handle.index as usize)?;
        slot.session.as_mut().filter(|_| slot.generation == handle.generation)
    }

    /// Takes a session out; its handle means nothing any more.
    pub(crate) fn take(&mut self, handle: Handle) -> Option<S> {
        let slot = self.slots.get_mut(handle.index as usize)?;
        if slot.generation != handle.generation {
            return None;
        }
        let session = slot.session.take()?;
        slot.generation = slot.generation.wrapping_add(1);
        self.free.push(handle.index);
        Some(session)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &S> {
        self.slots.iter().filter_map(|slot| slot.session.as_ref())
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut S> {
        self.slots.iter_mut().filter_map(|slot| slot.session.as_mut())
    }
}

/// An engine whose sessions take turns to send.
pub(crate) trait Turns {
    type Alarm: Alarm;
    type Job;

    fn shared(&mut self) -> &mut Shared<Self::Alarm, Self::Job>;

    /// Where a session sits.
    fn seat(&mut self, handle: Handle) -> Option<&mut Seat>;

    /// Sends what waits for a path and belongs to no session.
    fn emit_replies(&mut self, id: PathId, burst: &mut Burst<'_>);

    /// Lets a session send what it has of one class.
    fn emit(&mut self, handle: Handle, class: Class, burst: &mut Burst<'_>) -> Turn;

    /// Looks after a session once something happened to it: one that is over is forgotten.
    fn settle(&mut self, handle: Handle);

    /// Looks after what came of a path's turn.
    fn after_turn(&mut self, _now: Time) {}

    /// Gives each path on which something waits one turn, beginning behind the one that had the
    /// last, until one sends.
    fn take_turns(&mut self, now: Time, tx: &mut TxBuf) -> Option<Transmit> {
        let last = self.shared().turn;
        let mut any = false;
        for end in [Bound::Unbounded, Bound::Included(last)] {
            let mut from = match end {
                Bound::Unbounded => Bound::Excluded(last),
                Bound::Included(_) | Bound::Excluded(_) => Bound::Unbounded,
            };
            while let Some(at) = self.shared().next_ready((from, end)) {
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

    /// Fills a batch for one path with what is most worth sending.
    fn transmit_on(&mut self, now: Time, id: PathId, tx: &mut TxBuf) -> Option<Transmit> {
        let shared = self.shared();
        let path = shared.paths.get(&id).filter(|path| path.can_send())?;
        if !path.has_work() && !shared.replies.waits(id) {
            return None;
        }
        let mut burst = path.burst(now, tx);
        self.emit_replies(id, &mut burst);
        self.emit_sessions(id, &mut burst);
        if burst.is_empty() {
            return None;
        }
        self.shared().paths.get_mut(&id)?.finish(id, &burst)
    }

    /// Lets the sessions of a path send, by the class of what they have, until the batch is full.
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
                    // Behind the others if it just sent something.
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
