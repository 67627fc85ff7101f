//! A session's place on its path, and its timers, which stop while a direction of it is down.

use std::time::Duration;

use engine::{PathId, Time};

use super::{Alarm, Clock, Kernel, Paths};
use crate::path::{Class, Handle, RoundTrip};
use crate::timer::TICK;

/// A session's place on its path.
#[derive(Debug)]
pub(crate) struct Seat {
    pub(crate) handle: Handle,
    pub(crate) path: Option<PathId>,
    /// Classes in whose queue the session is.
    queued: u8,
}

impl Seat {
    pub(crate) const fn new(handle: Handle, path: Option<PathId>) -> Self {
        Self { handle, path, queued: 0 }
    }

    /// Asks for a chance to send something of this class.
    pub(crate) fn want(&mut self, paths: &mut Paths, class: Class) {
        if self.queued & class.bit() != 0 {
            return;
        }
        let Some(path) = self.path.filter(|id| paths.contains_key(id)) else { return };
        self.queued |= class.bit();
        paths.enqueue(path, class, self.handle);
    }

    /// Takes note that the session left a queue.
    pub(super) fn left_queue(&mut self, class: Class) {
        self.queued &= !class.bit();
    }

    /// Takes note that the session is back in a queue; `false` if it was in the queue already.
    pub(super) fn back_in_queue(&mut self, class: Class) -> bool {
        let was = self.queued & class.bit() != 0;
        self.queued |= class.bit();
        !was
    }

    /// Moves the session to another path; what it wants to send must be asked for again.
    pub(crate) fn set_path(&mut self, paths: &mut Paths, path: PathId) {
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
    }

    /// Returns the estimate of the path's round trip.
    pub(crate) fn round_trip(&self, paths: &Paths) -> RoundTrip {
        let path = self.path.and_then(|id| paths.get(&id));
        path.map_or_else(RoundTrip::default, |path| path.rtt)
    }

    /// Learns from an answer to something that was sent once.
    pub(crate) fn sample(&self, paths: &mut Paths, took: Duration) {
        if let Some(path) = self.path.and_then(|id| paths.get_mut(&id)) {
            path.rtt.sample(took);
        }
    }
}

/// State that each session has, at either end.
#[derive(Debug)]
pub(crate) struct Base<A> {
    pub(crate) seat: Seat,
    pub(crate) last_heard: Time,
    /// Timers that are armed.
    armed: Vec<A>,
    /// Timers that stand still because a direction of the path is down.
    stopped: Option<Stopped<A>>,
}

/// Timers that stand still.
#[derive(Debug)]
struct Stopped<A> {
    /// Which timers still run.
    clock: Clock,
    since: Time,
    /// The others, with the time that was left of each.
    left: Vec<(A, Duration)>,
}

impl<A: Alarm> Base<A> {
    pub(crate) fn new(paths: &Paths, handle: Handle, path: Option<PathId>, now: Time) -> Self {
        let seat = Seat::new(handle, path);
        // What was under way when the path went down still arrives, and may begin a session.
        let clock = paths.clock(path);
        let stopped =
            (clock != Clock::Running).then_some(Stopped { clock, since: now, left: Vec::new() });
        Self { seat, last_heard: now, armed: Vec::new(), stopped }
    }

    /// Asks for a chance to send something of this class.
    pub(crate) fn want<J>(&mut self, kernel: &mut Kernel<A, J>, class: Class) {
        self.seat.want(&mut kernel.paths, class);
    }

    /// Arms a timer. One that stands still now runs as long from when the clock goes on.
    pub(crate) fn alarm<J>(
        &mut self,
        kernel: &mut Kernel<A, J>,
        alarm: A,
        now: Time,
        wait: Duration,
    ) {
        let wait = wait.max(TICK);
        let held = |stopped: &&mut Stopped<A>| !stopped.clock.runs(alarm.awaits_peer());
        if let Some(Stopped { left, .. }) = self.stopped.as_mut().filter(held) {
            left.retain(|(other, _)| *other != alarm);
            left.push((alarm, wait));
            return;
        }
        if !self.armed.contains(&alarm) {
            self.armed.push(alarm);
        }
        kernel.timers.set((self.seat.handle, alarm), now + wait, alarm.why());
    }

    /// Whether a timer is armed.
    pub(crate) fn is_armed(&self, alarm: A) -> bool {
        let left = self.stopped.iter().flat_map(|stopped| stopped.left.iter().map(|(it, _)| it));
        self.armed.iter().chain(left).any(|other| *other == alarm)
    }

    pub(crate) fn disarm<J>(&mut self, kernel: &mut Kernel<A, J>, alarm: A) {
        self.armed.retain(|other| *other != alarm);
        if let Some(stopped) = self.stopped.as_mut() {
            stopped.left.retain(|(other, _)| *other != alarm);
        }
        kernel.timers.cancel((self.seat.handle, alarm));
    }

    pub(crate) fn disarm_all<J>(&mut self, kernel: &mut Kernel<A, J>) {
        for alarm in std::mem::take(&mut self.armed) {
            kernel.timers.cancel((self.seat.handle, alarm));
        }
        if let Some(stopped) = self.stopped.as_mut() {
            stopped.left.clear();
        }
    }

    /// Moves the session to another path, which may be up where the one before was down.
    pub(crate) fn move_to<J>(&mut self, kernel: &mut Kernel<A, J>, now: Time, path: PathId) {
        self.seat.set_path(&mut kernel.paths, path);
        self.follow(kernel, now);
    }

    /// Lets the timers run or stand still as the path's clock does. Silence does not count while
    /// nothing can be sent or nothing can arrive.
    pub(crate) fn follow<J>(&mut self, kernel: &mut Kernel<A, J>, now: Time) {
        let clock = kernel.paths.clock(self.seat.path);
        if clock == self.stopped.as_ref().map_or(Clock::Running, |stopped| stopped.clock) {
            return;
        }
        let mut waiting = Vec::new();
        if let Some(stopped) = self.stopped.take() {
            self.last_heard = (self.last_heard + now.since(stopped.since)).min(now);
            waiting = stopped.left;
        }
        if clock != Clock::Running {
            self.armed.retain(|alarm| {
                let runs = clock.runs(alarm.awaits_peer());
                if !runs && let Some(at) = kernel.timers.cancel((self.seat.handle, *alarm)) {
                    waiting.push((*alarm, at.at.since(now)));
                }
                runs
            });
            self.stopped = Some(Stopped { clock, since: now, left: Vec::new() });
        }
        for (alarm, left) in waiting {
            self.alarm(kernel, alarm, now, left);
        }
    }
}
