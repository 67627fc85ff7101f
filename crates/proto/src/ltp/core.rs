//! What all sessions of an engine share, and what each session has in common.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use bytes::Bytes;
use engine::{
    Effect, FileId, FileName, FilestoreRequest, OpenMode, PathId, Rng, Ticket, Time, Timers,
};
use wire::ltp::{Body, SessionId};

use super::auth::{Authentication, Sealed};
use super::config::{Config, Remote};
use super::cookies::Cookies;
use super::indication::{Indication, Limit, Stats};
use crate::path::{Burst, Class, Handle, Path, RoundTrip};
use crate::storage::{Room, Storage};
use crate::timer::TICK;

/// A session's timers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Alarm {
    /// The report on the checkpoint with this serial number is overdue.
    Checkpoint(u64),
    /// The acknowledgement of the report with this serial number is overdue.
    Report(u64),
    /// The acknowledgement of a cancellation is overdue.
    Cancel,
    /// Nothing came for too long.
    Inactivity,
    /// Gaps may be reported again.
    Gaps,
    /// The units gathered for this engine have waited long enough.
    Units(u64),
}

/// Stands for no session: its timers are those of gathered units.
pub(crate) const GATHERING: Handle = Handle { index: u32::MAX, generation: 0 };

impl Alarm {
    pub(crate) const fn why(self) -> &'static str {
        match self {
            Self::Checkpoint(_) => "checkpoint",
            Self::Report(_) => "report",
            Self::Cancel => "cancel",
            Self::Inactivity => "inactivity",
            Self::Gaps => "gaps",
            Self::Units(_) => "units",
        }
    }
}

/// What an effect was for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Job {
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
}

/// What all sessions of an engine share.
#[derive(Debug)]
pub(crate) struct Core {
    pub(crate) config: Config,
    pub(crate) paths: BTreeMap<PathId, Path>,
    pub(crate) effects: VecDeque<Effect>,
    pub(crate) indications: VecDeque<Indication>,
    pub(crate) timers: Timers<(Handle, Alarm)>,
    pub(crate) stats: Stats,
    pub(crate) rng: Rng,
    pub(crate) room: Room,
    /// Sessions under way that send.
    pub(crate) senders: usize,
    /// Octets of units that are gathered, sent or received.
    pub(crate) units: usize,
    /// Too much waits to be written: all collected data shall go to the store now.
    pub(crate) flush_wanted: bool,
    tickets: BTreeMap<Ticket, (Handle, Job)>,
    ticket: u64,
    limits_reported: Vec<Limit>,
}

impl Core {
    pub(crate) fn new(config: Config, rng: Rng) -> Self {
        let limits = &config.limits;
        let room = Room::new(limits.write_buffer, limits.write_piece, limits.read_piece);
        Self {
            config,
            paths: BTreeMap::new(),
            effects: VecDeque::new(),
            indications: VecDeque::new(),
            timers: Timers::new(),
            stats: Stats::default(),
            rng,
            room,
            senders: 0,
            units: 0,
            flush_wanted: false,
            tickets: BTreeMap::new(),
            ticket: 0,
            limits_reported: Vec::new(),
        }
    }

    /// A serial number to begin with: random and not 0 (RFC 5326 §9.1).
    pub(crate) fn first_serial(&mut self) -> u64 {
        // 14 bits are two octets on the wire, and leave room to count on.
        1 + self.rng.below((1 << 14) - 256)
    }

    pub(crate) fn indicate(&mut self, indication: Indication) {
        self.indications.push_back(indication);
    }

    /// Reports a limit, once until it is left.
    pub(crate) fn limit_reached(&mut self, limit: Limit) {
        if !self.limits_reported.contains(&limit) {
            self.limits_reported.push(limit);
            self.indicate(Indication::LimitReached(limit));
        }
    }

    pub(crate) fn limit_left(&mut self, limit: Limit) {
        self.limits_reported.retain(|other| *other != limit);
    }

    fn ticket(&mut self, handle: Handle, job: Job) -> Ticket {
        self.ticket += 1;
        let ticket = Ticket(self.ticket);
        self.tickets.insert(ticket, (handle, job));
        ticket
    }

    /// What an answered effect was for.
    pub(crate) fn answered(&mut self, ticket: Ticket) -> Option<(Handle, Job)> {
        self.tickets.remove(&ticket)
    }

    pub(crate) fn filestore(&mut self, handle: Handle, job: Job, request: FilestoreRequest) {
        let ticket = self.ticket(handle, job);
        self.effects.push_back(Effect::Filestore { ticket, request });
    }

    /// Asks the driver to hold back a path until its data is written.
    pub(crate) fn pause(&mut self, path: PathId) {
        if let Some(state) = self.paths.get_mut(&path)
            && !state.paused
        {
            state.paused = true;
            self.effects.push_back(Effect::PauseRead { path });
        }
    }
}

impl Storage for Core {
    fn room(&mut self) -> &mut Room {
        &mut self.room
    }

    fn read_ahead(&self) -> usize {
        let limits = &self.config.limits;
        let share = limits.read_ahead_total / self.senders.max(1);
        limits.read_ahead.min(share).max(1)
    }

    fn open(&mut self, handle: Handle, name: FileName, mode: OpenMode) {
        let ticket = self.ticket(handle, Job::Open);
        self.effects.push_back(Effect::Open { ticket, name, mode });
    }

    fn read(&mut self, handle: Handle, file: FileId, offset: u64, len: usize) {
        let ticket = self.ticket(handle, Job::Read { offset, len });
        self.effects.push_back(Effect::Read { ticket, file, offset, len });
    }

    fn read_again(&mut self, handle: Handle, file: FileId, offset: u64, len: usize) {
        let ticket = self.ticket(handle, Job::Repair { offset });
        self.effects.push_back(Effect::Read { ticket, file, offset, len });
    }

    fn write(&mut self, handle: Handle, file: FileId, offset: u64, bytes: Bytes, cost: usize) {
        let ticket = self.ticket(handle, Job::Write { cost });
        self.effects.push_back(Effect::Write { ticket, file, offset, bytes });
    }

    fn sync(&mut self, handle: Handle, file: FileId) {
        let ticket = self.ticket(handle, Job::Sync);
        self.effects.push_back(Effect::Sync { ticket, file });
    }

    fn close(&mut self, file: FileId) {
        self.effects.push_back(Effect::Close { file });
    }

    fn written(&mut self, cost: usize) {
        self.room.unwritten = self.room.unwritten.saturating_sub(cost);
        if self.room.unwritten > self.config.limits.write_buffer / 2 {
            self.flush_wanted |= self.paths.values().any(|path| path.paused);
            return;
        }
        self.limit_left(Limit::WriteBuffer);
        for (&path, state) in &mut self.paths {
            if state.paused {
                state.paused = false;
                self.effects.push_back(Effect::ResumeRead { path });
            }
        }
    }
}

/// What each session has, whichever side it is on.
#[derive(Debug)]
pub(crate) struct Base {
    pub(crate) handle: Handle,
    pub(crate) id: SessionId,
    pub(crate) path: Option<PathId>,
    pub(crate) remote: Remote,
    pub(crate) last_heard: Time,
    pub(crate) cookies: Cookies,
    /// Classes in whose queue the session is.
    queued: u8,
    /// Timers that are armed.
    armed: Vec<Alarm>,
    /// While the path is down: since when, and what was left of the timers.
    stopped: Option<(Time, Vec<(Alarm, Duration)>)>,
}

impl Base {
    pub(crate) fn new(handle: Handle, id: SessionId, remote: Remote) -> Self {
        Self {
            handle,
            id,
            path: remote.path,
            remote,
            last_heard: Time::ZERO,
            cookies: Cookies::default(),
            queued: 0,
            armed: Vec::new(),
            stopped: None,
        }
    }

    /// Asks for a chance to send something of this class.
    pub(crate) fn want(&mut self, core: &mut Core, class: Class) {
        if self.queued & class.bit() != 0 {
            return;
        }
        let Some(path) = self.path.and_then(|id| core.paths.get_mut(&id)) else { return };
        self.queued |= class.bit();
        path.enqueue(class, self.handle);
    }

    /// Takes note that the session left a queue.
    pub(crate) fn left_queue(&mut self, class: Class) {
        self.queued &= !class.bit();
    }

    /// The same the other way round; `false` if it was in the queue already.
    pub(crate) fn back_in_queue(&mut self, class: Class) -> bool {
        let was = self.queued & class.bit() != 0;
        self.queued |= class.bit();
        !was
    }

    /// Moves the session to another path; what it wants to send must be asked for again.
    pub(crate) fn set_path(&mut self, paths: &mut BTreeMap<PathId, Path>, path: PathId) -> bool {
        if self.path == Some(path) {
            return false;
        }
        if self.queued != 0
            && let Some(old) = self.path.and_then(|old| paths.get_mut(&old))
        {
            old.forget(self.handle);
        }
        self.path = Some(path);
        self.queued = 0;
        true
    }

    /// Arms a timer. While the path is down it will run as long from when that is up (§6.5, §6.6).
    pub(crate) fn alarm(&mut self, core: &mut Core, alarm: Alarm, now: Time, wait: Duration) {
        let wait = wait.max(TICK);
        if let Some((_, left)) = self.stopped.as_mut() {
            left.retain(|(other, _)| *other != alarm);
            left.push((alarm, wait));
            return;
        }
        if !self.armed.contains(&alarm) {
            self.armed.push(alarm);
        }
        core.timers.set((self.handle, alarm), now + wait, alarm.why());
    }

    pub(crate) fn disarm(&mut self, core: &mut Core, alarm: Alarm) {
        self.armed.retain(|other| *other != alarm);
        if let Some((_, left)) = self.stopped.as_mut() {
            left.retain(|(other, _)| *other != alarm);
        }
        core.timers.cancel((self.handle, alarm));
    }

    pub(crate) fn disarm_all(&mut self, core: &mut Core) {
        for alarm in std::mem::take(&mut self.armed) {
            core.timers.cancel((self.handle, alarm));
        }
        if let Some((_, left)) = self.stopped.as_mut() {
            left.clear();
        }
    }

    /// The path went down: time stands still for the timers.
    pub(crate) fn stop(&mut self, core: &mut Core, now: Time) {
        if self.stopped.is_some() {
            return;
        }
        let mut left = Vec::new();
        for alarm in std::mem::take(&mut self.armed) {
            if let Some(deadline) = core.timers.cancel((self.handle, alarm)) {
                left.push((alarm, deadline.at.since(now)));
            }
        }
        self.stopped = Some((now, left));
    }

    /// The path is up again: the timers go on.
    pub(crate) fn go_on(&mut self, core: &mut Core, now: Time) {
        let Some((since, left)) = self.stopped.take() else { return };
        self.last_heard += now.since(since);
        for (alarm, left) in left {
            self.alarm(core, alarm, now, left);
        }
    }

    pub(crate) fn round_trip(&self, core: &Core) -> RoundTrip {
        let path = self.path.and_then(|id| core.paths.get(&id));
        path.map_or_else(RoundTrip::default, |path| path.rtt)
    }

    /// Time within which the peer should have answered.
    pub(crate) fn answer_time(&self, core: &Core) -> Duration {
        self.round_trip(core).timeout(self.remote.initial_rtt)
    }

    /// Learns from an answer to something that was sent once.
    pub(crate) fn sample(&self, core: &mut Core, took: Duration) {
        if let Some(path) = self.path.and_then(|id| core.paths.get_mut(&id)) {
            path.rtt.sample(took);
        }
    }

    /// The largest segment this session may send, without the extensions it gets.
    pub(crate) fn segment_max(&self, mtu: usize) -> usize {
        let max = self.remote.datagram_max.map_or(mtu, |max| max.min(mtu));
        let authentication = self.remote.authentication.as_ref().map_or(0, Authentication::len);
        max.saturating_sub(authentication + self.cookies.len())
    }

    /// Writes one segment into the batch; `false` if it must wait for the next one. A segment that is
    /// larger than the path takes cannot be sent at all, and is left out.
    pub(crate) fn push(&self, core: &mut Core, burst: &mut Burst<'_>, body: Body<'_>) -> bool {
        let authentication = self.remote.authentication.as_ref();
        let segment = Sealed { session: self.id, body, authentication, cookies: &self.cookies };
        let len = segment.encoded_len();
        if len > burst.mtu() {
            core.stats.oversize += 1;
            return true;
        }
        let Some(place) = burst.push(len) else { return false };
        if segment.encode(place).is_err() {
            debug_assert!(false, "a segment of our own cannot be encoded");
            place.fill(0xff);
        }
        core.stats.sent.count(&body);
        true
    }
}
