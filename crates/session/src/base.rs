//! Seat of a session on its path, and its timers, which stop while a direction of the path is
//! down.

use std::time::Duration;

use engine::{PathId, Time};

use super::{Alarm, Paths, Shared};
use crate::path::{Class, Clock, Handle, RoundTrip};
use crate::timer::TICK;

/// Seat of a session on its path.
#[derive(Debug)]
pub struct Seat {
    /// Handle of the session.
    pub handle: Handle,
    /// Path of the session, if it is known.
    pub path: Option<PathId>,
    /// Classes in whose queues the session is.
    queued: u8,
}

impl Seat {
    /// Seat of a session that waits for no turn.
    pub const fn new(handle: Handle, path: Option<PathId>) -> Self {
        Self { handle, path, queued: 0 }
    }

    /// Requests a turn to send data of this class.
    pub fn want(&mut self, paths: &mut Paths, class: Class) {
        if self.queued & class.bit() != 0 {
            return;
        }
        let Some(path) = self.path.filter(|id| paths.contains_key(id)) else { return };
        self.queued |= class.bit();
        paths.enqueue(path, class, self.handle);
    }

    /// Records that the session left a queue.
    pub(super) fn left_queue(&mut self, class: Class) {
        self.queued &= !class.bit();
    }

    /// Records that the session is back in a queue; `false` if it was queued already.
    pub(super) fn back_in_queue(&mut self, class: Class) -> bool {
        let was = self.queued & class.bit() != 0;
        self.queued |= class.bit();
        !was
    }

    /// Moves the session to another path; turns must be requested again.
    pub fn set_path(&mut self, paths: &mut Paths, path: PathId) {
        if self.path == Some(path) {
            return;
        }
        if self.queued != 0
            && let Some(old) = self.path.and_then(|old| paths.get_mut(&old))
        {
            old.forget(self.handle);
        }
        self.path = Some(path);
        self.queued = 0;
        paths.take_seat(self.handle, Some(path));
    }

    /// Estimate of the path's round-trip time.
    pub fn round_trip(&self, paths: &Paths) -> RoundTrip {
        let path = self.path.and_then(|id| paths.get(&id));
        path.map_or_else(RoundTrip::default, |path| path.rtt)
    }

    /// Adds a round-trip sample from the reply to data sent once.
    pub fn sample(&self, paths: &mut Paths, took: Duration) {
        if let Some(path) = self.path.and_then(|id| paths.get_mut(&id)) {
            path.rtt.sample(took);
        }
    }
}

/// Reason for stopped timers of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// A direction of its path is down, and silence does not count.
    Path,
    /// The user suspended it.
    User,
}

/// State common to sessions of both sides.
#[derive(Debug)]
pub struct Base<A> {
    /// Its seat.
    pub seat: Seat,
    /// Time of the last data from the peer.
    pub last_received: Time,
    /// Armed timers.
    armed: Vec<A>,
    /// Timers stopped because a direction of the path is down.
    frozen: Option<Frozen<A>>,
    is_suspended: bool,
}

/// Stopped timers.
#[derive(Debug)]
struct Frozen<A> {
    /// Timers that still run.
    clock: Clock,
    since: Time,
    /// The stopped timers, with their remaining time.
    left: Vec<(A, Duration)>,
}

impl<A: Alarm> Base<A> {
    /// State of a session that begins now.
    pub fn new(paths: &mut Paths, handle: Handle, path: Option<PathId>, now: Time) -> Self {
        paths.take_seat(handle, path);
        // Data in flight when the path went down still arrive, and may begin a session.
        let clock = paths.clock(path);
        let frozen =
            (clock != Clock::Running).then_some(Frozen { clock, since: now, left: Vec::new() });
        Self { frozen, ..Self::unfrozen(Seat::new(handle, path), now) }
    }

    /// State of a session whose timers run until frozen, in any state of its path.
    pub const fn unfrozen(seat: Seat, now: Time) -> Self {
        Self { seat, last_received: now, armed: Vec::new(), frozen: None, is_suspended: false }
    }

    /// Requests a turn to send data of this class.
    pub fn want<J>(&mut self, shared: &mut Shared<A, J>, class: Class) {
        self.seat.want(&mut shared.paths, class);
    }

    /// Arms a timer. A stopped one gets this duration as its remaining time.
    pub fn alarm<J>(&mut self, shared: &mut Shared<A, J>, alarm: A, now: Time, wait: Duration) {
        let wait = wait.max(TICK);
        if let Some(Frozen { left, .. }) = self.frozen.as_mut().filter(|it| !alarm.runs(it.clock)) {
            left.retain(|(other, _)| *other != alarm);
            left.push((alarm, wait));
            return;
        }
        self.arm(shared, alarm, now + wait);
    }

    /// Arms a timer, which runs even if others of its kind are stopped.
    pub fn arm<J>(&mut self, shared: &mut Shared<A, J>, alarm: A, at: Time) {
        if !self.armed.contains(&alarm) {
            self.armed.push(alarm);
        }
        shared.timers.set((self.seat.handle, alarm), at, alarm.why());
    }

    /// Whether a timer is armed.
    pub fn is_armed(&self, alarm: A) -> bool {
        let left = self.frozen.iter().flat_map(|frozen| frozen.left.iter().map(|(it, _)| it));
        self.armed.iter().chain(left).any(|other| *other == alarm)
    }

    /// Stops a timer.
    pub fn disarm<J>(&mut self, shared: &mut Shared<A, J>, alarm: A) {
        if let Some(frozen) = self.frozen.as_mut() {
            frozen.left.retain(|(other, _)| *other != alarm);
        }
        self.disarm_running(shared, alarm);
    }

    /// Disarms a running timer; a stopped timer keeps its remaining time.
    pub fn disarm_running<J>(&mut self, shared: &mut Shared<A, J>, alarm: A) {
        self.armed.retain(|other| *other != alarm);
        shared.timers.cancel((self.seat.handle, alarm));
    }

    /// Disarms all running timers except local ones; stopped timers keep their remaining time.
    pub fn disarm_protocol<J>(&mut self, shared: &mut Shared<A, J>) {
        let handle = self.seat.handle;
        for alarm in self.armed.extract_if(.., |alarm| !alarm.is_local()) {
            shared.timers.cancel((handle, alarm));
        }
    }

    /// Disarms all timers of a session that ends.
    pub fn disarm_all<J>(&mut self, shared: &mut Shared<A, J>) {
        shared.paths.leave_seat(self.seat.handle);
        for alarm in std::mem::take(&mut self.armed) {
            shared.timers.cancel((self.seat.handle, alarm));
        }
        if let Some(frozen) = self.frozen.as_mut() {
            frozen.left.clear();
        }
    }

    /// Moves the session to another path, whose state may differ.
    pub fn move_to<J>(&mut self, shared: &mut Shared<A, J>, now: Time, path: PathId) {
        self.seat.set_path(&mut shared.paths, path);
        self.follow(shared, now);
    }

    /// Stops or restarts timers to follow the path's clock. Silence does not count while nothing
    /// can be sent or nothing can arrive.
    pub fn follow<J>(&mut self, shared: &mut Shared<A, J>, now: Time) {
        let clock = shared.paths.clock(self.seat.path);
        if clock == self.clock() {
            return;
        }
        let waiting = self.thaw(now, Reason::Path);
        if clock != Clock::Running {
            self.freeze(shared, now, Reason::Path);
        }
        for (alarm, left) in waiting {
            self.alarm(shared, alarm, now, left);
        }
    }

    /// Stops timers. Timers stopped by the path's clock keep their remaining time, and others it
    /// had stopped restart. A suspended session loses all but local timers.
    pub fn freeze<J>(&mut self, shared: &mut Shared<A, J>, now: Time, reason: Reason) {
        let (handle, clock) = (self.seat.handle, shared.paths.clock(self.seat.path));
        if reason == Reason::User {
            self.is_suspended = true;
            self.disarm_protocol(shared);
            return;
        }
        let frozen = || Frozen { clock, since: now, left: Vec::new() };
        let Frozen { clock: before, left, .. } = self.frozen.get_or_insert_with(frozen);
        *before = clock;
        for alarm in self.armed.extract_if(.., |alarm| !alarm.runs(clock)) {
            if let Some(at) = shared.timers.cancel((handle, alarm)) {
                left.retain(|(other, _)| *other != alarm);
                left.push((alarm, at.at.since(now)));
            }
        }
        let running: Vec<_> = left.extract_if(.., |(alarm, _)| alarm.runs(clock)).collect();
        for (alarm, left) in running {
            self.arm(shared, alarm, now + left.max(TICK));
        }
    }

    /// Ends a standstill. A path's clock discounts the silence meanwhile, and returns the remaining
    /// time of each timer.
    pub fn thaw(&mut self, now: Time, reason: Reason) -> Vec<(A, Duration)> {
        if reason == Reason::User {
            self.is_suspended = false;
            return Vec::new();
        }
        let Some(Frozen { since, left, .. }) = self.frozen.take() else { return Vec::new() };
        // A suspended session may have received data after the path came up again.
        self.last_received = (self.last_received + now.since(since)).min(now);
        left
    }

    /// Whether the user suspended the session.
    pub fn is_suspended(&self) -> bool {
        self.is_suspended
    }

    /// Whether timers are stopped because a direction of the path is down.
    pub fn is_frozen(&self) -> bool {
        self.frozen.is_some()
    }

    /// State of the clock: which timers run.
    pub fn clock(&self) -> Clock {
        self.frozen.as_ref().map_or(Clock::Running, |frozen| frozen.clock)
    }
}
