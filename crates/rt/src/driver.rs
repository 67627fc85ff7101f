//! One engine on one UDP socket and one store.

mod config;
mod destinations;
mod intake;
mod names;
mod outages;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crossbeam_channel::Receiver;
use engine::{
    Engine, Input, PathEffect, PathEvent, PathId, PathInfo, PathKind, Time, Transmit, TxBuf,
};

pub use self::config::{Config, Control, Event, RunError, Statistics};
use self::intake::{First, Inlet, Intake};
use self::names::Names;
use self::outages::Outages;
use crate::group::{Groups, Joined};
use crate::lateness::Observed;
use crate::lite::Lite;
use crate::lookup::Destination;
use crate::outbox::{Held, Outbox};
use crate::pump::{Pump, Step};
use crate::refusals::forgivable;
use crate::socket::SEGMENTS_MAX;
use crate::wait::wake_exactly;
use crate::{
    Clock, Contact, FileStore, Group, Peers, Ready, ReceiveBuffers, Refusal, Schedule, Sent,
    Socket, Waker,
};

/// Runs an engine in the calling thread; see the [crate documentation](crate).
#[derive(Debug)]
pub struct Driver<E: Engine> {
    pump: Pump<E>,
    socket: Socket,
    waker: Waker,
    peers: Peers,
    /// Configured peers with fixed paths.
    configured: BTreeMap<PathId, Destination>,
    names: Names,
    updates: Option<Receiver<BTreeMap<PathId, Destination>>>,
    groups: Groups,
    lite: Option<Lite>,
    config: Config,
    outbox: Outbox,
    received: ReceiveBuffers,
    /// Paths whose datagrams the engine does not want now.
    paused: BTreeSet<PathId>,
    outages: Outages,
    /// First datagrams of new peers that the observer has not seen.
    first: First,
    /// Known outages of all paths, and the contact as the observer knows it.
    schedule: Option<Schedule>,
    contact: Contact,
    next_tick: Time,
    /// Address of the only peer, if the driver is connected, and the number of refusals reported
    /// so far.
    connected: Option<(SocketAddr, u64)>,
    statistics: Statistics,
    observed: Observed,
}

/// Next step after a round of work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    /// Runs another round at once.
    More,
    /// Waits until something happens.
    Wait,
}

/// Batches sent before the socket is read again, and receive calls before the next send. 16 * 64
/// KiB is about a millisecond of work.
const SEND_ROUNDS: usize = 16;
const RECEIVE_ROUNDS: usize = 4;

/// Pause before sending again to a device whose queue is full.
const CONGESTED: Duration = Duration::from_micros(500);

/// Approximate duration of one batch at a given rate. Queues on the path stay short, and a thread
/// that wakes late by less than this loses none of the rate.
const BURST: Duration = Duration::from_millis(1);

/// Time limit for the disk after [`Control::Stop`].
const SETTLE: Duration = Duration::from_secs(10);

/// Time limit for the last batch after [`Control::Stop`]: at a low rate it is not due for hours.
const FLUSH: Duration = Duration::from_millis(250);

impl<E: Engine> Driver<E> {
    /// Binds the socket. `store` must have been opened with the same `waker`.
    ///
    /// # Errors
    /// The port is in use, or the address is not this machine's; `Unsupported` if UDP-Lite is
    /// wanted and the kernel does not have it.
    pub fn new(config: Config, engine: E, store: FileStore, waker: Waker) -> io::Result<Self> {
        Self::build(config, engine, Some(store), waker)
    }

    /// Creates a driver for an engine without a store, or with its own: storage effects fail.
    ///
    /// # Errors
    ///
    /// See [`Driver::new`].
    pub fn without_store(config: Config, engine: E, waker: Waker) -> io::Result<Self> {
        Self::build(config, engine, None, waker)
    }

    fn build(
        config: Config,
        engine: E,
        store: Option<FileStore>,
        waker: Waker,
    ) -> io::Result<Self> {
        let socket = Socket::bind(config.listen, config.buffers)?;
        let segments = segments_a_batch(&config.path);
        let mut groups = Groups::default();
        let lite = match config.udp_lite {
            None => None,
            Some(rules) => Some(Lite::open(rules, &socket, config.buffers)?),
        };
        if let Some(lite) = &lite {
            groups.watch(lite.socket())?;
        }
        Ok(Self {
            pump: Pump::new(engine, store),
            socket,
            names: Names::new(waker.clone()),
            waker,
            peers: Peers::new(config.peers_max, config.silence),
            configured: BTreeMap::new(),
            updates: None,
            groups,
            lite,
            outbox: Outbox::new(TxBuf::new(segments)),
            received: ReceiveBuffers::new(),
            paused: BTreeSet::new(),
            outages: Outages::default(),
            first: First::new(),
            schedule: None,
            contact: Contact::Open,
            next_tick: Time::ZERO + config.tick,
            connected: None,
            statistics: Statistics::default(),
            observed: Observed::default(),
            config,
        })
    }

    /// Adds a known peer and brings its path up.
    pub fn add_peer(&mut self, address: SocketAddr) -> PathId {
        let path = self.peers.add(address);
        self.bring_up(path);
        path
    }

    /// Adds a known peer whose path has this number. No other path may have it.
    pub fn add_peer_at(&mut self, path: PathId, address: SocketAddr) {
        self.peers.add_at(path, address);
        self.bring_up(path);
    }

    fn bring_up(&mut self, path: PathId) {
        let (now, info) = (self.pump.now(), self.info(path));
        let events = match &self.schedule {
            Some(schedule) => schedule.state(now, info),
            None => vec![PathEvent::Up(info)],
        };
        for event in events {
            self.pump.engine.handle_input(now, Input::Path(path, event));
        }
    }

    /// Returns the properties of a path.
    fn info(&self, path: PathId) -> PathInfo {
        let address = self.peers.get(path).map(|peer| peer.address);
        let ends = address.map(|address| (self.socket.local(), address));
        let kind = self.peers.kind(path, self.config.path.kind);
        PathInfo { kind, ends, ..self.config.path.clone() }
    }

    /// Adds the only peer of this driver. In return the observer is notified when no socket listens
    /// at its address.
    ///
    /// # Errors
    ///
    /// There is no route to that address.
    pub fn connect_peer(&mut self, address: SocketAddr) -> io::Result<PathId> {
        self.socket.connect(address)?;
        self.connected = Some((address, 0));
        Ok(self.add_peer(address))
    }

    /// Joins a multicast group. Datagrams sent to its path reach all receivers of the group, and
    /// datagrams of others to the group arrive on it. The path is up from here on; an engine may
    /// leave and rejoin it.
    ///
    /// # Errors
    ///
    /// The address is not a multicast group or not of the socket's family, or the interface does
    /// not support multicast.
    pub fn join_group(&mut self, group: Group) -> io::Result<PathId> {
        let path = self.peers.add(group.address);
        self.join(path, group)?;
        Ok(path)
    }

    /// Joins a multicast group whose path has this number. No other path may have it.
    ///
    /// # Errors
    ///
    /// See [`Driver::join_group`].
    pub fn join_group_at(&mut self, path: PathId, group: Group) -> io::Result<()> {
        self.peers.add_at(path, group.address);
        self.join(path, group)
    }

    fn join(&mut self, path: PathId, group: Group) -> io::Result<()> {
        if let Err(error) = self.groups.join(path, group, &self.socket) {
            self.peers.remove(path);
            return Err(error);
        }
        self.bring_up(path);
        Ok(())
    }

    /// Replaces the clock before the engine has seen any time, for example by an emulated world's.
    pub fn set_clock(&mut self, clock: Clock) {
        self.pump.clock = clock;
        self.next_tick = clock.now() + self.config.tick;
    }

    /// Ends the driver without notifying peers and returns the engine.
    #[must_use]
    pub fn into_engine(self) -> E {
        self.pump.engine
    }

    /// Returns the address of a path, if it is known.
    #[must_use]
    pub fn peer(&self, path: PathId) -> Option<SocketAddr> {
        self.peers.get(path).map(|peer| peer.address)
    }

    /// Returns the address the socket is bound to.
    #[must_use]
    pub fn local(&self) -> SocketAddr {
        self.socket.local()
    }

    /// Returns the time of the engine's clock.
    #[must_use]
    pub fn now(&self) -> Time {
        self.pump.now()
    }

    /// Returns the engine.
    #[must_use]
    pub fn engine(&self) -> &E {
        &self.pump.engine
    }

    /// Returns the engine, for requests before or between runs.
    pub fn engine_mut(&mut self) -> &mut E {
        &mut self.pump.engine
    }

    /// Returns statistics of everything sent and received so far.
    #[must_use]
    pub fn statistics(&self) -> Statistics {
        self.statistics
    }

    /// Runs until `stop` is set or `on` returns [`Control::Stop`]. `on` is called with every
    /// indication and every tick and may make requests of the engine.
    ///
    /// # Errors
    /// See [`RunError`]; the engine's state stays usable.
    pub fn run(
        &mut self,
        stop: &AtomicBool,
        mut on: impl FnMut(Time, &mut E, Event<E::Indication>) -> Control,
    ) -> Result<(), RunError> {
        wake_exactly();
        self.carry_out_first_effects(stop)?;
        loop {
            let mut stopping = stop.load(Ordering::Relaxed);
            let next = self.round(&mut |now, engine, event| {
                stopping |= on(now, engine, event) == Control::Stop;
            })?;
            if stopping {
                return self.settle(&mut |now, engine, event| {
                    on(now, engine, event);
                });
            }
            match next {
                Next::More => {}
                Next::Wait => self.wait_for_datagrams(self.next_tick)?,
            }
        }
    }

    /// Carries out what the engine wants of its files first: it reads its records, and takes nothing
    /// new before. Datagrams wait in the kernel's buffer meanwhile; a protocol without
    /// acknowledgements would not repeat them.
    fn carry_out_first_effects(&mut self, stop: &AtomicBool) -> io::Result<()> {
        self.effects();
        while !self.pump.store_is_idle() && !stop.load(Ordering::Relaxed) {
            self.wait(self.pump.now() + self.config.tick, false)?;
            self.pump.pass_results();
        }
        Ok(())
    }

    /// Runs one round: time, storage results, incoming datagrams, then all output of the engine.
    fn round(
        &mut self,
        on: &mut impl FnMut(Time, &mut E, Event<E::Indication>),
    ) -> Result<Next, RunError> {
        let now = self.pump.now();
        self.keep_to_schedule(now, on);
        self.pump.expire(now);
        self.look_for_peers();
        let mut next = Next::Wait;
        if self.pump.pass_results() || self.receive()? == Next::More {
            next = Next::More;
        }
        if self.show_new_peers(on) {
            next = Next::More;
        }
        self.effects();
        if self.transmit()? == Next::More {
            next = Next::More;
        }
        // Sending may make the engine want more of the file.
        if self.effects() == Next::More {
            next = Next::More;
        }
        while let Some(indication) = self.pump.engine.poll_indication() {
            on(self.pump.now(), &mut self.pump.engine, Event::Indication(indication));
            next = Next::More;
        }
        let now = self.pump.now();
        if now >= self.next_tick {
            self.next_tick = now + self.config.tick;
            on(now, &mut self.pump.engine, Event::Tick);
            self.look_for_routes(now);
            if let Some(error) = self.socket.take_report() {
                self.on_report(error);
            }
            let refusals = self.socket.refusals();
            if let Some((address, reported)) =
                self.connected.as_mut().filter(|(_, n)| *n < refusals)
            {
                *reported = refusals;
                on(self.pump.now(), &mut self.pump.engine, Event::Refused(*address));
            }
            next = Next::More;
        }
        Ok(next)
    }

    /// Finishes disk operations in progress and sends the pulled batch if it is due soon. Pulls
    /// nothing more: a stopped transfer should stop.
    fn settle(
        &mut self,
        on: &mut impl FnMut(Time, &mut E, Event<E::Indication>),
    ) -> Result<(), RunError> {
        let begin = self.pump.now();
        let end = begin + SETTLE;
        loop {
            self.pump.pass_results();
            let more = self.effects() == Next::More;
            while let Some(indication) = self.pump.engine.poll_indication() {
                on(self.pump.now(), &mut self.pump.engine, Event::Indication(indication));
            }
            let now = self.pump.now();
            if let Some(held) = self.outbox.take_held().filter(|_| now <= begin + FLUSH) {
                let left = if held.until > now { Some(held) } else { self.send(held)? };
                self.outbox.keep(left);
            }
            if !more && self.outbox.held().is_none() && self.pump.store_is_idle() {
                return Ok(());
            }
            if now >= end {
                tracing::warn!("stopped while the disk was still busy");
                return Ok(());
            }
            if !more {
                let latest = if self.outbox.held().is_some() { begin + FLUSH } else { end };
                self.wait(latest.max(now + FLUSH / 250), false)?;
            }
        }
    }

    /// Whether datagrams may be read. False while the engine or the store is overloaded, so that
    /// the kernel's buffer absorbs a burst.
    fn listening(&self) -> bool {
        self.paused.is_empty() && !self.pump.store_is_full()
    }

    fn receive(&mut self) -> Result<Next, RunError> {
        for _ in 0..RECEIVE_ROUNDS {
            if !self.listening() {
                return Ok(Next::Wait);
            }
            let now = self.pump.now();
            let any = self.socket.local().ip().is_unspecified();
            let local = self.socket.local();
            let Self { pump, peers, config, statistics, outages, paused, lite, first, .. } = self;
            let engine = &mut pump.engine;
            let schedule = self.schedule.as_ref();
            let mut intake =
                Intake { engine, peers, config, statistics, outages, schedule, paused, first };
            let inlet = Inlet { group: None, echo: None, any, local };
            let mut count = self.socket.receive(&mut self.received, |arrival| {
                intake.arrive(now, &arrival, inlet);
                if let Some(lite) = lite {
                    lite.record_offers(intake.peers, &arrival);
                }
            })?;
            if let Some(lite) = lite {
                count += lite.socket().receive(&mut self.received, |arrival| {
                    if lite.admits(arrival.bytes) {
                        intake.arrive(now, &arrival, inlet);
                    }
                })?;
            }
            for Joined { path, socket, echo } in self.groups.joined() {
                let inlet = Inlet { group: Some(path), echo, any, local };
                count += socket.receive(&mut self.received, |arrival| {
                    intake.arrive(now, &arrival, inlet);
                    if let Some(lite) = lite {
                        lite.record_offers(intake.peers, &arrival);
                    }
                })?;
            }
            if count == 0 {
                return Ok(Next::Wait);
            }
            self.effects();
        }
        Ok(Next::More)
    }

    /// Starts the engine's effects as far as the store accepts them.
    fn effects(&mut self) -> Next {
        let mut next = Next::Wait;
        while let Some(step) = self.pump.next_step() {
            next = Next::More;
            match step {
                Step::Path(PathEffect::Open { path }) => {
                    if self.reach(path) {
                        self.bring_up(path);
                    } else {
                        self.path_down(path);
                    }
                }
                Step::Path(PathEffect::Close { path }) => {
                    self.paused.remove(&path);
                    if self.groups.knows(path) {
                        self.groups.close(path);
                    } else {
                        self.peers.remove(path);
                    }
                }
                Step::Path(PathEffect::PauseRead { path }) => {
                    self.paused.insert(path);
                }
                Step::Path(PathEffect::ResumeRead { path }) => {
                    self.paused.remove(&path);
                }
                Step::Path(PathEffect::Retain { path }) => self.peers.set_retained(path, true),
                Step::Path(PathEffect::Release { path }) => self.peers.set_retained(path, false),
                Step::Stream(effect) => self.pump.refuse(&effect),
                Step::Stored => {}
            }
        }
        next
    }

    /// Whether a path has a peer or group to send to; rejoins a group that was left.
    fn reach(&mut self, path: PathId) -> bool {
        if let Err(error) = self.groups.open(path) {
            tracing::warn!(?path, %error, "the group cannot be joined");
            return false;
        }
        self.peers.get(path).is_some()
    }

    /// Sends due batches, up to [`SEND_ROUNDS`].
    fn transmit(&mut self) -> Result<Next, RunError> {
        for _ in 0..SEND_ROUNDS {
            let now = self.pump.now();
            let due = self.outbox.due(&mut self.pump.engine, now, &mut self.observed);
            let Some(held) = due else { return Ok(Next::Wait) };
            let left = self.send(held)?;
            self.outbox.keep(left);
            if left.is_some() {
                return Ok(Next::Wait);
            }
        }
        // A sender that never pauses takes the processor from a receiver on the same machine, which
        // then drops datagrams.
        std::thread::yield_now();
        Ok(Next::More)
    }

    /// Sends a batch that is due; returns the unsent rest.
    fn send(&mut self, mut held: Held) -> Result<Option<Held>, RunError> {
        let Transmit { path, len, segment, ecn, .. } = held.transmit;
        let Some(mut peer) = self.peers.get(path) else {
            // The path went down while the batch waited.
            return Ok(None);
        };
        if self.groups.knows(path) {
            match self.groups.aim(path, &self.socket) {
                Ok(Some(address)) => peer.address = address,
                Ok(None) => return Ok(None),
                Err(error) => {
                    let (error, _) = forgivable(error)?;
                    let refusal = Refusal { sent: 0, lost: len - held.sent, error };
                    self.on_refused(path, segment, refusal);
                    return Ok(None);
                }
            }
        }
        let bytes = &self.outbox.bytes()[held.sent..len];
        let lite = self.lite.as_ref().filter(|lite| lite.reaches(&self.peers, path));
        let (to, ours) = (peer.address, peer.ours);
        let sent = match lite.filter(|_| !self.groups.knows(path)) {
            Some(lite) => lite.send(&self.socket, to, ours, ecn, bytes, segment)?,
            None => self.socket.send(to, ours, ecn, bytes, segment)?,
        };
        let done = match sent {
            Sent::All => bytes.len(),
            Sent::Blocked(done) | Sent::Congested(done) => done,
            Sent::Refused(refusal) => refusal.sent,
        };
        self.statistics.datagrams_sent += done.div_ceil(segment.max(1)) as u64;
        self.statistics.bytes_sent += done as u64;
        held.sent += done;
        match sent {
            Sent::All => return Ok(None),
            Sent::Blocked(_) => held.is_blocked = true,
            Sent::Congested(_) => held.until = self.pump.now() + CONGESTED,
            Sent::Refused(refusal) => {
                held.sent += refusal.lost;
                let continues = self.on_refused(path, segment, refusal);
                return Ok(Some(held).filter(|held| continues && held.sent < len));
            }
        }
        Ok(Some(held))
    }

    /// Waits for a datagram or another event, at most until `latest`.
    fn wait_for_datagrams(&mut self, latest: Time) -> io::Result<()> {
        let deadline = self.pump.next_timeout();
        let change = self.schedule.as_ref().and_then(Schedule::change);
        let until = deadline.into_iter().chain(change).fold(latest, Time::min);
        self.wait(until, self.listening())
    }

    /// Waits for the store, the held batch and, if `readable`, a datagram, at most until `until`.
    fn wait(&mut self, mut until: Time, readable: bool) -> io::Result<()> {
        let mut interest = Ready { readable, writable: false };
        if let Some(held) = self.outbox.held() {
            if held.is_blocked {
                interest.writable = true;
            } else {
                until = until.min(held.until);
            }
        }
        let now = self.pump.now();
        if until <= now {
            return Ok(());
        }
        let timeout = Some(until.since(now));
        self.waker.wait_also(&self.socket, self.groups.any(), interest, timeout)?;
        // Another send attempt shows whether there is room.
        self.outbox.unblock();
        Ok(())
    }
}

/// Datagrams per batch: as many as leave in [`BURST`] at the path's rate.
fn segments_a_batch(path: &PathInfo) -> usize {
    let mtu = match path.kind {
        PathKind::Datagram { mtu } => mtu,
        PathKind::Message { max } => max,
        PathKind::Stream => 1472,
    };
    let one = path.transmission_time(mtu).as_nanos();
    // 1,472 + 42 bytes at 100 Mbit/s take 121 us: 8 datagrams are 969 us.
    let segments = BURST.as_nanos().checked_div(one).unwrap_or(u128::MAX);
    segments.clamp(1, SEGMENTS_MAX as u128) as usize
}

#[cfg(test)]
mod tests;
