//! The driver: listeners, streams, and the loop.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::mem::MaybeUninit;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use engine::{
    Completion, Effect, EffectError, Engine, Input, PathEffect, PathEvent, PathId, PathInfo,
    Receive, StreamEffect, Ticket, Time, Timers, Transmit, TxBuf,
};
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::io::Errno;
use rustix::net::{SocketFlags, accept_with};

use super::carried::{Carried, Got, Phase};
use super::options::{StreamOptions, reset_at_close};
use super::tls::Tls;
use crate::lateness::{Observed, Timings};
use crate::port::{Port, Read, SEGMENTS_MAX};
use crate::tun::Tun;
use crate::wait::wake_exactly;
use crate::{Clock, Control, FileStore, Ready, TunStatistics, Waker};

/// Pieces that are handed in before something is sent, and transmits that are sent before something
/// is read.
const READS: usize = 16;
const WRITES: usize = 64;
/// Streams of one listener that are taken in one turn.
const ACCEPTS: usize = 64;
/// News of streams that are fetched at once.
const NEWS: usize = 256;
/// How long a listener rests when the process, or the system, has no descriptor left.
const REST: Duration = Duration::from_millis(100);
/// What tells a listener's news from those of a path, whose numbers have 32 bits.
const LISTENER: u64 = 1 << 32;
const INTERFACE: u64 = 2 << 32;
const INTERFACE_NEWS: u64 = 3 << 32;
/// Numbers of paths from here on are not given to streams: an engine that has others beside numbers
/// those itself.
const STREAMS: u32 = 1 << 31;
/// Streams that the kernel establishes before they are taken.
const BACKLOG: i32 = 4096;

/// Where streams of others are awaited.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listening {
    /// The address and port.
    pub address: SocketAddr,
    /// How its streams are set.
    pub options: StreamOptions,
    /// How the streams are set that the engine connects from the peer's address
    /// ([`StreamEffect::Connect`]) on behalf of one that came here; `None`: as
    /// [`StreamConfig::options`] says.
    pub onward: Option<StreamOptions>,
}

/// What a driver of streams is told.
#[derive(Clone, Debug)]
pub struct StreamConfig {
    /// Where streams of others are awaited.
    pub listen: Vec<Listening>,
    /// Whereto the paths lead that the engine may open.
    pub peers: BTreeMap<PathId, SocketAddr>,
    /// How streams are set that the engine opens, connects or waits for.
    pub options: StreamOptions,
    /// How long a stream that was left, and on which something is still to arrive, throws away what
    /// its peer sends. After that the peer is reset if it goes on.
    pub linger: Duration,
    /// Streams at one time, those included that were left and are not over. Others are reset, or not
    /// made.
    pub streams_max: usize,
    /// What streams are secured with that the engine turns into TLS; without it they end.
    pub tls: Option<Tls>,
    /// Streams that the engine waits for at one time ([`StreamEffect::Listen`]).
    pub listeners_max: usize,
}

impl Default for StreamConfig {
    fn default() -> Self {
        Self {
            listen: Vec::new(),
            peers: BTreeMap::new(),
            options: StreamOptions::default(),
            linger: Duration::from_secs(60),
            streams_max: 1024,
            tls: None,
            listeners_max: 256,
        }
    }
}

/// What the observer of a [`StreamDriver::run`] is told.
#[derive(Debug)]
pub enum StreamEvent<I> {
    /// The engine has something to say.
    Indication(I),
    /// Once in each turn of the loop, which a [`Waker`] and every [`StreamDriver::TICK`] brings about
    /// at the latest: time to hand over what other threads have brought.
    Turn,
}

/// What a driver did so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StreamStatistics {
    /// Streams there are, those included that were left and are not over.
    pub streams: usize,
    /// The most there were.
    pub streams_peak: usize,
    /// Streams of others that were taken.
    pub accepted: u64,
    /// Streams of others that were reset because there are too many.
    pub turned_away: u64,
    /// Streams that were connected.
    pub connected: u64,
    /// Streams that could not be connected.
    pub failed: u64,
    /// How often a listener rested because no descriptor was left.
    pub rests: u64,
    /// Octets received.
    pub octets_received: u64,
    /// Octets sent.
    pub octets_sent: u64,
    /// Octets that the engine has sent and wait for room in the kernel.
    pub kept: usize,
}

/// A listener.
#[derive(Debug)]
struct Listener {
    socket: socket2::Socket,
    /// The effect that asked for one stream; without one, any number is taken.
    asked: Option<Ticket>,
    /// The place in [`StreamConfig::listen`].
    place: Option<usize>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Timer {
    /// A stream that was left is left altogether.
    Left(PathId),
    /// A listener has rested.
    Rested(u32),
}

/// Runs an engine whose paths are streams of the kernel's TCP.
///
/// A stream that was reset, or whose peer does not answer, goes down at once; one that both sides have
/// ended goes down as soon as the kernel has all that is to be sent, whose delivery is its affair.
#[derive(Debug)]
pub struct StreamDriver<E: Engine> {
    engine: E,
    clock: Clock,
    config: StreamConfig,
    waker: Waker,
    epoll: OwnedFd,
    listeners: BTreeMap<u32, Listener>,
    next_listener: u32,
    streams: BTreeMap<PathId, Carried>,
    next_path: u32,
    /// Streams that may have something to be handed in, each once.
    readable: VecDeque<PathId>,
    timers: Timers<Timer>,
    tx: TxBuf,
    held: Option<Transmit>,
    piece: Vec<u8>,
    /// The IP interface that is a path, too, if there is one.
    port: Option<Port>,
    /// The place of the listener by which a peer came to an address, while the stream is there.
    came_by: BTreeMap<(SocketAddr, SocketAddr), usize>,
    /// Carries out what the engine wants stored, if it stores anything.
    store: Option<FileStore>,
    statistics: StreamStatistics,
    observed: Observed,
}

impl<E: Engine> StreamDriver<E> {
    /// How long the observer is left alone at most.
    pub const TICK: Duration = Duration::from_millis(100);
    /// The path of the interface.
    pub const INTERFACE: PathId = PathId(u32::MAX);

    /// Listens where the configuration says, in the calling thread's network namespace.
    ///
    /// # Errors
    /// An address cannot be listened on, or the system lacks descriptors.
    pub fn new(config: StreamConfig, engine: E, waker: Waker) -> io::Result<Self> {
        let last = config.peers.keys().next_back();
        let mut this = Self {
            engine,
            clock: Clock::start(),
            waker,
            epoll: epoll::create(CreateFlags::CLOEXEC)?,
            listeners: BTreeMap::new(),
            next_listener: 0,
            streams: BTreeMap::new(),
            next_path: last.map_or(0, |path| path.0.saturating_add(1)),
            readable: VecDeque::new(),
            timers: Timers::new(),
            tx: TxBuf::with_limits(1, Receive::PIECE_MAX),
            held: None,
            piece: vec![0; Receive::PIECE_MAX],
            port: None,
            came_by: BTreeMap::new(),
            store: None,
            statistics: StreamStatistics::default(),
            observed: Observed::default(),
            config,
        };
        for place in 0..this.config.listen.len() {
            let Listening { address, options, .. } = &this.config.listen[place];
            let socket = options.listen(*address, BACKLOG)?;
            this.add_listener(Listener { socket, asked: None, place: Some(place) })?;
        }
        Ok(this)
    }

    /// Takes over a TUN device, which has this name in the calling thread's network namespace, as the
    /// path [`StreamDriver::INTERFACE`]: an engine with a TCP of its own has it beside the kernel's.
    /// The path is up as soon as the interface is, and [`StreamDriver::run`] runs.
    ///
    /// # Errors
    /// The system lacks descriptors, or does not tell of interfaces.
    pub fn add_interface(&mut self, tun: Tun, name: &str) -> io::Result<()> {
        let port = Port::open(tun, name, Self::INTERFACE)?;
        epoll::add(&self.epoll, &port, EventData::new_u64(INTERFACE), EventFlags::IN)?;
        let data = EventData::new_u64(INTERFACE_NEWS);
        epoll::add(&self.epoll, port.monitor(), data, EventFlags::IN)?;
        self.tx = TxBuf::with_limits(SEGMENTS_MAX, Receive::PIECE_MAX);
        self.port = Some(port);
        Ok(())
    }

    /// Has a store carry out the engine's effects on files; it must have been opened, or shared, with
    /// the driver's waker. Without one they fail.
    pub fn set_store(&mut self, store: FileStore) {
        self.store = Some(store);
    }

    /// Records from now on how late it does what is due, and how late it wakes up.
    pub fn set_timings(&mut self, timings: Arc<Timings>) {
        self.observed.set(timings);
    }

    /// What the interface has sent and received so far.
    #[must_use]
    pub fn interface(&self) -> Option<TunStatistics> {
        self.port.as_ref().map(|port| port.statistics)
    }

    /// The time as the engine knows it.
    #[must_use]
    pub fn now(&self) -> Time {
        self.clock.now()
    }

    /// The engine, to make requests of it before or between runs.
    pub fn engine_mut(&mut self) -> &mut E {
        &mut self.engine
    }

    /// What was done so far.
    #[must_use]
    pub fn statistics(&self) -> StreamStatistics {
        let kept = self.streams.values().map(Carried::kept).sum();
        StreamStatistics { streams: self.streams.len(), kept, ..self.statistics }
    }

    /// Where it listens by configuration, in that order: ports that the system chose are told.
    ///
    /// # Errors
    /// Whatever the system says.
    pub fn listening(&self) -> io::Result<Vec<SocketAddr>> {
        let configured = self.listeners.values().filter(|listener| listener.place.is_some());
        configured
            .map(|listener| {
                let address = listener.socket.local_addr()?;
                address.as_socket().ok_or_else(|| io::Error::other("no address of IP"))
            })
            .collect()
    }

    /// Takes no further streams of others by configured listeners; those that are there go on.
    pub fn stop_accepting(&mut self) {
        self.listeners.retain(|_, listener| listener.place.is_none());
    }

    /// Runs until `on` says so, which may make requests of the engine. What the engine has to send
    /// then, and is due, is still given to the kernel as far as that has room.
    ///
    /// # Errors
    /// Waiting failed.
    pub fn run(
        &mut self,
        mut on: impl FnMut(Time, &mut E, StreamEvent<E::Indication>) -> Control,
    ) -> io::Result<()> {
        wake_exactly();
        self.observed.begin();
        loop {
            let now = self.clock.now();
            if let Some(deadline) = self.engine.poll_timeout().filter(|it| it.at <= now) {
                self.observed.done(now, deadline.at);
                self.engine.handle_timeout(now);
            }
            self.expire(now);
            self.stored();
            self.effects();
            let mut busy = self.receive();
            busy |= self.transmit()?;
            self.effects();
            let mut stop = false;
            while let Some(indication) = self.engine.poll_indication() {
                busy = true;
                let event = StreamEvent::Indication(indication);
                stop |= on(self.clock.now(), &mut self.engine, event) == Control::Stop;
            }
            stop |= on(self.clock.now(), &mut self.engine, StreamEvent::Turn) == Control::Stop;
            if stop {
                while self.transmit()? {}
                self.effects();
                return Ok(());
            }
            // What the observer asked for may have given something to do.
            self.effects();
            self.wait(busy)?;
        }
    }

    fn hand_in(&mut self, input: Input<'_>) {
        self.engine.handle_input(self.clock.now(), input);
        self.effects();
    }

    fn tell(&mut self, path: PathId, event: PathEvent) {
        self.hand_in(Input::Path(path, event));
    }

    fn answer(&mut self, ticket: Ticket, answer: Result<Completion, EffectError>) {
        self.engine.handle_input(self.clock.now(), Input::Done(ticket, answer));
    }

    /// Hands in what the store has done.
    fn stored(&mut self) {
        while let Some((ticket, answer)) = self.store.as_mut().and_then(FileStore::poll) {
            self.answer(ticket, answer);
        }
    }

    /// Carries out what the engine wants. What a full store is to do waits, and all behind it, too.
    fn effects(&mut self) {
        while !self.store.as_ref().is_some_and(FileStore::is_full)
            && let Some(effect) = self.engine.poll_effect()
        {
            self.carry_out(effect);
        }
    }

    fn carry_out(&mut self, effect: Effect) {
        match effect {
            Effect::Store(effect) => match (&mut self.store, effect.ticket()) {
                (Some(store), _) => store.submit(effect),
                (None, Some(ticket)) => {
                    self.answer(ticket, Err(EffectError::Failed(NO_STORE.to_owned())));
                }
                (None, None) => {}
            },
            Effect::Path(effect) => self.path_effect(effect),
            Effect::Stream(effect) => self.stream_effect(effect),
        }
    }

    fn path_effect(&mut self, effect: PathEffect) {
        match effect {
            PathEffect::Open { path } => self.open(path),
            PathEffect::Close { path } => self.leave(path),
            PathEffect::PauseRead { path: Self::INTERFACE } => self.pause_interface(true),
            PathEffect::ResumeRead { path: Self::INTERFACE } => self.pause_interface(false),
            PathEffect::PauseRead { path } => {
                if let Some(stream) = self.streams.get_mut(&path) {
                    stream.paused = true;
                }
            }
            PathEffect::ResumeRead { path } => {
                if let Some(stream) = self.streams.get_mut(&path) {
                    stream.paused = false;
                    self.enqueue(path);
                }
            }
        }
    }

    fn stream_effect(&mut self, effect: StreamEffect) {
        match effect {
            // The kernel's TCP leaves nothing out.
            StreamEffect::Connect { ticket, from, to, best_effort: _ } => {
                let path = self.new_path();
                self.connect(path, (from, to), Some(ticket));
            }
            StreamEffect::StopConnecting { ticket } => {
                let asked = Phase::Opening(Some(ticket));
                let found = self.streams.iter().find(|(_, stream)| stream.phase == asked);
                if let Some(path) = found.map(|(path, _)| *path) {
                    self.forget(path);
                }
            }
            StreamEffect::Listen { ticket, near, best_effort: _ } => {
                let answer = self.listen(ticket, near).map(Completion::Listening);
                self.answer(ticket, answer);
            }
            StreamEffect::StopListening { ticket } => {
                self.listeners.retain(|_, listener| listener.asked != Some(ticket));
            }
            StreamEffect::Reset { path } => {
                if let Some(stream) = self.forget(path) {
                    stream.reset();
                }
            }
            StreamEffect::ShutdownWrite { path } => {
                let holds = self.held.is_some_and(|held| held.path == path);
                if let Some(stream) = self.streams.get_mut(&path) {
                    stream.shut_down(holds);
                    self.end_if_over(path);
                }
            }
            StreamEffect::StartTls { path, server_name, early } => {
                self.secure(path, server_name.as_deref(), &early);
            }
            // Its sockets send at once anyway.
            StreamEffect::NoDelay { .. } => {}
        }
    }

    /// Turns a stream into TLS. Better none than one that is not secret.
    fn secure(&mut self, path: PathId, server: Option<&str>, early: &[u8]) {
        let held = self.held.take_if(|held| held.path == path);
        let Some(stream) = self.streams.get_mut(&path).filter(|stream| stream.is_up()) else {
            return;
        };
        if held.is_some() {
            // It was pulled before.
            stream.write(self.tx.bytes());
        }
        let none = || rustls::Error::General("no certificate is set here".to_owned());
        let tls = self.config.tls.as_ref().ok_or_else(none);
        match tls.and_then(|tls| stream.secure(tls, server, early)) {
            Ok(()) => {
                // What came early may have been all of it.
                stream.readable = true;
                self.enqueue(path);
            }
            Err(error) => {
                tracing::warn!(%error, "a stream is not secured");
                if let Some(stream) = self.forget(path) {
                    stream.reset();
                    self.engine.handle_input(self.now(), Input::Path(path, PathEvent::Down));
                }
            }
        }
    }

    /// Opens a configured path. One that is there stays as it is.
    fn open(&mut self, path: PathId) {
        if self.streams.contains_key(&path) {
            return;
        }
        match (self.config.peers.get(&path).copied(), &self.port) {
            (Some(to), _) => self.connect(path, (None, to), None),
            (None, Some(port)) if path == Self::INTERFACE => {
                let event = port.event();
                self.engine.handle_input(self.now(), Input::Path(path, event));
            }
            (None, _) => self.engine.handle_input(self.now(), Input::Path(path, PathEvent::Down)),
        }
    }

    fn connect(
        &mut self,
        path: PathId,
        (from, to): (Option<SocketAddr>, SocketAddr),
        asked: Option<Ticket>,
    ) {
        let place = from.and_then(|from| self.came_by.get(&(to, from)));
        let onward = place.and_then(|place| self.config.listen[*place].onward.as_ref());
        let options = onward.unwrap_or(&self.config.options);
        let begun = if self.streams.len() < self.config.streams_max {
            options.connect(from, to).map_err(|error| why_not(&error))
        } else {
            Err(EffectError::NotAllowed)
        };
        let begun = begun.and_then(|socket| {
            let stream = Carried::new(socket, Phase::Opening(asked));
            self.insert(path, stream).map_err(|error| why_not(&error))
        });
        if let Err(why) = begun {
            self.not_made(path, asked, why);
        }
    }

    /// A stream that was asked for does not come up.
    fn not_made(&mut self, path: PathId, asked: Option<Ticket>, why: EffectError) {
        self.statistics.failed += 1;
        match asked {
            Some(ticket) => self.answer(ticket, Err(why)),
            None => self.engine.handle_input(self.now(), Input::Path(path, PathEvent::Down)),
        }
    }

    /// Waits for one stream at the address that the peer of `near` reaches.
    fn listen(&mut self, ticket: Ticket, near: PathId) -> Result<SocketAddr, EffectError> {
        let stream = self.streams.get(&near).ok_or(EffectError::NotFound)?;
        let (local, _) = stream.ends.ok_or(EffectError::NotFound)?;
        if self.listeners.len() >= self.config.listeners_max + self.config.listen.len() {
            return Err(EffectError::NotAllowed);
        }
        let opened = || {
            let socket = self.config.options.listen(SocketAddr::new(local.ip(), 0), 1)?;
            let address = socket.local_addr()?.as_socket();
            Ok((socket, address.ok_or_else(|| io::Error::other("no address of IP"))?))
        };
        let (socket, address) = opened().map_err(|error: io::Error| why_not(&error))?;
        self.add_listener(Listener { socket, asked: Some(ticket), place: None })
            .map_err(|error| why_not(&error))?;
        Ok(address)
    }

    fn add_listener(&mut self, listener: Listener) -> io::Result<()> {
        let number = self.next_listener;
        self.next_listener = number.wrapping_add(1);
        let data = EventData::new_u64(LISTENER | u64::from(number));
        epoll::add(&self.epoll, &listener.socket, data, EventFlags::IN)?;
        self.listeners.insert(number, listener);
        Ok(())
    }

    /// A number that no path has and, as long as there are others, none had.
    fn new_path(&mut self) -> PathId {
        loop {
            let path = PathId(self.next_path);
            self.next_path = self.next_path.wrapping_add(1) % STREAMS;
            if !self.streams.contains_key(&path) && !self.config.peers.contains_key(&path) {
                return path;
            }
        }
    }

    fn insert(&mut self, path: PathId, stream: Carried) -> io::Result<()> {
        let flags = EventFlags::IN | EventFlags::OUT | EventFlags::RDHUP | EventFlags::ET;
        let data = EventData::new_u64(u64::from(path.0));
        epoll::add(&self.epoll, stream.socket(), data, flags)?;
        self.streams.insert(path, stream);
        self.statistics.streams_peak = self.statistics.streams_peak.max(self.streams.len());
        Ok(())
    }

    /// Forgets a stream; its socket is closed with what is returned.
    fn forget(&mut self, path: PathId) -> Option<Carried> {
        let stream = self.streams.remove(&path)?;
        self.timers.cancel(Timer::Left(path));
        if let Some(ends) = stream.ends {
            self.came_by.remove(&ends);
        }
        if self.held.is_some_and(|held| held.path == path) {
            self.held = None;
        }
        Some(stream)
    }

    /// The engine leaves a stream: what it sent is still to arrive. Who closed now, with something
    /// unread or still to come, would reset the peer, which takes away what is under way.
    fn leave(&mut self, path: PathId) {
        let held = self.held.take_if(|held| held.path == path);
        let Some(stream) = self.streams.get_mut(&path) else { return };
        if !stream.is_up() {
            self.forget(path);
            return;
        }
        stream.phase = Phase::Left;
        if held.is_some() {
            stream.write(self.tx.bytes());
        }
        stream.shut_down(false);
        if stream.is_over() {
            self.forget(path);
            return;
        }
        stream.paused = false;
        self.enqueue(path);
        let until = self.now() + self.config.linger;
        self.timers.set(Timer::Left(path), until, LEFT);
    }

    fn expire(&mut self, now: Time) {
        while let Some(timer) = self.timers.pop_due(now) {
            match timer {
                Timer::Left(path) => _ = self.forget(path),
                Timer::Rested(number) => {
                    if let Some(listener) = self.listeners.get(&number) {
                        let data = EventData::new_u64(LISTENER | u64::from(number));
                        let flags = EventFlags::IN;
                        let again = epoll::modify(&self.epoll, &listener.socket, data, flags);
                        debug_assert!(again.is_ok(), "it is in the set: {again:?}");
                    }
                }
            }
        }
    }

    fn enqueue(&mut self, path: PathId) {
        if let Some(stream) = self.streams.get_mut(&path)
            && stream.readable
            && !stream.paused
            && !std::mem::replace(&mut stream.queued, true)
        {
            self.readable.push_back(path);
        }
    }

    /// Hands in pieces, one of each stream in turn; whether there may be more.
    fn receive(&mut self) -> bool {
        for _ in 0..READS {
            let Some(path) = self.readable.pop_front() else { return false };
            self.read(path);
        }
        !self.readable.is_empty()
    }

    /// Reads a piece of a stream, and hands it in.
    fn read(&mut self, path: PathId) {
        let Some(stream) = self.streams.get_mut(&path) else { return };
        stream.queued = false;
        let opening = matches!(stream.phase, Phase::Opening(_));
        if stream.paused || opening {
            // It is looked at again when it is resumed, or up.
            return;
        }
        let is_left = stream.phase == Phase::Left;
        match stream.read(&mut self.piece) {
            Got::Octets(len) => {
                self.enqueue(path);
                if !is_left {
                    self.statistics.octets_received += len as u64;
                    let receive = Receive::datagram(path, &self.piece[..len]);
                    self.engine.handle_input(self.clock.now(), Input::Receive(receive));
                    self.effects();
                }
            }
            Got::Secured(names) => {
                self.enqueue(path);
                if !is_left {
                    self.tell(path, PathEvent::Secured(names));
                }
            }
            Got::Nothing => stream.readable = false,
            Got::End => {
                stream.readable = false;
                stream.ended = true;
                if !is_left {
                    self.tell(path, PathEvent::ReadClosed);
                }
                self.end_if_over(path);
            }
            Got::Lost => self.lose(path),
        }
    }

    /// Writing has failed. What came before may still be read, by who reads.
    fn broken(&mut self, path: PathId) {
        match self.streams.get_mut(&path) {
            Some(stream) if stream.paused || stream.ended => self.lose(path),
            Some(stream) => {
                stream.readable = true;
                self.enqueue(path);
            }
            None => {}
        }
    }

    /// A connection is over before its end.
    fn lose(&mut self, path: PathId) {
        let Some(stream) = self.forget(path) else { return };
        if stream.is_up() {
            self.tell(path, PathEvent::Down);
        }
    }

    /// Gives up a stream that both sides have ended.
    fn end_if_over(&mut self, path: PathId) {
        if !self.streams.get(&path).is_some_and(Carried::is_over) {
            return;
        }
        if let Some(stream) = self.forget(path)
            && stream.is_up()
        {
            self.engine.handle_input(self.now(), Input::Path(path, PathEvent::Down));
        }
    }

    /// Sends what is due; whether there may be more.
    fn transmit(&mut self) -> io::Result<bool> {
        for _ in 0..WRITES {
            let now = self.clock.now();
            let transmit = match self.held.take() {
                Some(held) if held.not_before <= now => {
                    self.observed.done(now, held.not_before);
                    held
                }
                Some(held) => held,
                None => {
                    self.tx.clear();
                    let Some(transmit) = self.engine.poll_transmit(now, &mut self.tx) else {
                        return Ok(false);
                    };
                    transmit
                }
            };
            if transmit.not_before > now {
                self.held = Some(transmit);
                return Ok(false);
            }
            match &mut self.port {
                Some(port) if transmit.path == Self::INTERFACE => port.send(&self.tx)?,
                Some(_) | None => self.send(transmit.path),
            }
            self.effects();
        }
        Ok(true)
    }

    /// Gives what was pulled to a stream, which keeps what the kernel does not take.
    fn send(&mut self, path: PathId) {
        let bytes = self.tx.bytes();
        let Some(stream) = self.streams.get_mut(&path).filter(|stream| stream.is_up()) else {
            return;
        };
        self.statistics.octets_sent += bytes.len() as u64;
        stream.write(bytes);
        if stream.is_broken() {
            return self.broken(path);
        }
        if stream.kept() > 0 && !std::mem::replace(&mut stream.blocked, true) {
            self.tell(path, PathEvent::Blocked);
        }
        self.end_if_over(path);
    }

    /// Waits for news, another thread, or whatever is due, and takes the news.
    fn wait(&mut self, busy: bool) -> io::Result<()> {
        // What was sent may have made room for what waits to be handed in.
        if !busy && self.readable.is_empty() {
            let now = self.clock.now();
            let own = self.timers.next().map(|deadline| deadline.at);
            let engine = self.engine.poll_timeout().map(|deadline| deadline.at);
            let held = self.held.map(|held| held.not_before);
            let first = [own, engine, held].into_iter().flatten().min();
            let until = first.map_or(now + Self::TICK, |at| at.min(now + Self::TICK));
            if until > now {
                let interest = Ready { readable: true, writable: false };
                self.waker.wait(&self.epoll, interest, Some(until.since(now)))?;
                self.observed.woken();
            }
        }
        let mut space = [const { MaybeUninit::uninit() }; NEWS];
        let at_once = rustix::time::Timespec { tv_sec: 0, tv_nsec: 0 };
        let news = match epoll::wait(&self.epoll, &mut space[..], Some(&at_once)) {
            Ok((news, _)) => news,
            Err(Errno::INTR) => return Ok(()),
            Err(error) => return Err(error.into()),
        };
        for &mut epoll::Event { flags, data, .. } in news {
            let data = data.u64();
            match (u32::try_from(data), data) {
                (Ok(path), _) => self.heard(PathId(path), flags),
                (Err(_), INTERFACE) => self.packets()?,
                (Err(_), INTERFACE_NEWS) => self.interface_news()?,
                (Err(_), _) => self.accept((data & !LISTENER) as u32),
            }
        }
        Ok(())
    }

    /// Reads packets of the interface.
    fn packets(&mut self) -> io::Result<()> {
        for _ in 0..READS {
            let Some(port) = self.port.as_mut().filter(|port| !port.paused) else { break };
            if port.read(&self.clock, &mut self.engine)? == Read::Nothing {
                break;
            }
            self.effects();
        }
        Ok(())
    }

    /// Tells what became of the interface.
    fn interface_news(&mut self) -> io::Result<()> {
        let Some(port) = &mut self.port else { return Ok(()) };
        if let Some((_, event)) = port.news()? {
            self.tell(Self::INTERFACE, event);
        }
        Ok(())
    }

    /// Hands in packets, or none until further notice.
    fn pause_interface(&mut self, paused: bool) {
        let Some(port) = &mut self.port else { return };
        port.paused = paused;
        let flags = if paused { EventFlags::empty() } else { EventFlags::IN };
        let changed = epoll::modify(&self.epoll, &*port, EventData::new_u64(INTERFACE), flags);
        debug_assert!(changed.is_ok(), "it is in the set: {changed:?}");
    }

    /// What the kernel says of a stream.
    fn heard(&mut self, path: PathId, flags: EventFlags) {
        let Some(stream) = self.streams.get_mut(&path) else { return };
        if let Phase::Opening(asked) = stream.phase {
            let over = EventFlags::OUT | EventFlags::ERR | EventFlags::HUP;
            if flags.intersects(over) {
                stream.readable = flags.intersects(EventFlags::IN | EventFlags::RDHUP);
                self.opened(path, asked);
            }
            return;
        }
        let gone = EventFlags::ERR | EventFlags::HUP;
        // A connection of which one half is open ends by a fault only.
        let failed = flags.contains(EventFlags::ERR)
            || flags.contains(EventFlags::HUP) && !stream.is_written();
        if failed && (stream.paused || stream.ended) {
            // Nothing is read that would tell.
            self.lose(path);
            return;
        }
        if flags.intersects(EventFlags::IN | EventFlags::RDHUP | gone) && !stream.ended {
            stream.readable = true;
            self.enqueue(path);
        }
        if flags.intersects(EventFlags::OUT | gone) {
            self.write_on(path);
        }
    }

    /// There may be room in a stream.
    fn write_on(&mut self, path: PathId) {
        let Some(stream) = self.streams.get_mut(&path) else { return };
        if stream.is_written() || stream.kept() == 0 && !stream.blocked || !stream.write_on() {
            return;
        }
        if stream.is_broken() {
            return self.broken(path);
        }
        let was_blocked = std::mem::take(&mut stream.blocked);
        if stream.is_up() && was_blocked {
            self.tell(path, PathEvent::Writable);
        }
        self.end_if_over(path);
    }

    /// An attempt to connect is over.
    fn opened(&mut self, path: PathId, asked: Option<Ticket>) {
        let Some(stream) = self.streams.get_mut(&path) else { return };
        match stream.connected() {
            Ok(()) => {
                self.statistics.connected += 1;
                stream.phase = Phase::Up;
                let ends = stream.ends;
                let info = PathInfo { ends, asked, ..PathInfo::stream() };
                self.tell(path, PathEvent::Up(info));
                self.enqueue(path);
            }
            Err(error) => {
                self.forget(path);
                self.not_made(path, asked, why_not(&error));
                self.effects();
            }
        }
    }

    /// Takes streams that wait at a listener.
    fn accept(&mut self, number: u32) {
        for _ in 0..ACCEPTS {
            let Some(Listener { socket, asked, place }) = self.listeners.get(&number) else {
                return;
            };
            let (asked, place) = (*asked, *place);
            let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
            let socket = match accept_with(socket, flags) {
                Ok(socket) => socket2::Socket::from(socket),
                Err(Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM) => {
                    return self.rest(number);
                }
                Err(Errno::AGAIN) => return,
                // It was over before it was taken, or its network was.
                Err(_) => continue,
            };
            // One that is over by now has no ends.
            let Some((local, peer)) = ends(&socket) else { continue };
            if self.streams.len() >= self.config.streams_max {
                self.statistics.turned_away += 1;
                reset_at_close(&socket.into());
                continue;
            }
            let mut stream = Carried::new(socket, Phase::Up);
            stream.ends = Some((local, peer));
            let path = self.new_path();
            if self.insert(path, stream).is_err() {
                return self.rest(number);
            }
            self.statistics.accepted += 1;
            if asked.is_some() {
                self.listeners.remove(&number);
            }
            if let Some(place) = place {
                self.came_by.insert((local, peer), place);
            }
            let info = PathInfo { ends: Some((local, peer)), asked, ..PathInfo::stream() };
            self.tell(path, PathEvent::Up(info));
        }
    }

    /// No descriptor is left: the streams that wait at the listener go on waiting.
    fn rest(&mut self, number: u32) {
        let Some(listener) = self.listeners.get(&number) else { return };
        self.statistics.rests += 1;
        let data = EventData::new_u64(LISTENER | u64::from(number));
        let rests = epoll::modify(&self.epoll, &listener.socket, data, EventFlags::empty());
        debug_assert!(rests.is_ok(), "it is in the set: {rests:?}");
        self.timers.set(Timer::Rested(number), self.now() + REST, RESTS);
    }
}

/// Why there are timers.
const LEFT: &str = "a stream that was left";
const RESTS: &str = "no descriptor was left";
const NO_STORE: &str = "this driver has no store";

/// Ours and the peer's.
fn ends(socket: &socket2::Socket) -> Option<(SocketAddr, SocketAddr)> {
    let (local, peer) = (socket.local_addr().ok()?, socket.peer_addr().ok()?);
    local.as_socket().zip(peer.as_socket())
}

/// Why a stream is not made, in words.
fn why_not(error: &io::Error) -> EffectError {
    match Errno::from_io_error(error) {
        Some(Errno::CONNREFUSED) => EffectError::Failed("nobody listens there".to_owned()),
        Some(Errno::TIMEDOUT) => EffectError::Failed("the peer does not answer".to_owned()),
        Some(Errno::PERM | Errno::ACCESS) => EffectError::NotAllowed,
        _ => EffectError::Failed(error.to_string()),
    }
}
