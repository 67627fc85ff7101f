//! The driver: listeners, streams, and the loop.

mod connecting;

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use crossbeam_channel::Receiver;
use engine::{
    Completion, EffectError, Engine, Input, PathEffect, PathEvent, PathId, PathInfo, Receive,
    StreamEffect, Ticket, Time, Timers, TxBuf,
};
use rustix::event::epoll::EventFlags;

use super::Got;
use super::attempts::Attempts;
use super::config::{StreamConfig, StreamEvent, StreamStatistics};
use super::kernel_stream::{KernelStream, Phase};
use super::listeners::{Accepted, Listeners};
use super::options::{reset_at_close, why_not};
use super::poll::{News, Poll, Space};
use super::table::Table;
use super::timer::Timer;
use crate::lateness::{Observed, Timings};
use crate::lookup::Destination;
use crate::outbox::{Held, Outbox};
use crate::port::{Port, Read, SEGMENTS_MAX};
use crate::pump::{Pump, Step};
use crate::tun::Tun;
use crate::wait::wake_exactly;
use crate::{Control, FileStore, Ready, TunStatistics, Waker};

/// Pieces received before the next send, and transmits sent before the next read.
const READS: usize = 16;
const WRITES: usize = 64;
/// Streams of one listener accepted in one turn.
const ACCEPTS: usize = 64;
/// Pause of a listener when the process, or the system, has no descriptor left.
const REST: Duration = Duration::from_millis(100);

/// Runs an engine whose paths are streams of the kernel's TCP.
///
/// A stream that was reset, or whose peer does not reply, goes down at once. One that both sides
/// have ended goes down as soon as the kernel has all data; delivery is the kernel's task.
#[derive(Debug)]
pub struct StreamDriver<E: Engine> {
    pump: Pump<E>,
    config: StreamConfig,
    waker: Waker,
    poll: Poll,
    listeners: Listeners,
    streams: Table,
    timers: Timers<Timer>,
    attempts: Attempts,
    updates: Option<Receiver<BTreeMap<PathId, Destination>>>,
    outbox: Outbox,
    piece: Vec<u8>,
    /// IP interface that is a path, too, if any.
    port: Option<Port>,
    statistics: StreamStatistics,
    observed: Observed,
}

impl<E: Engine> StreamDriver<E> {
    /// Longest time between calls of the observer.
    pub const TICK: Duration = Duration::from_millis(100);
    /// Path of the interface.
    pub const INTERFACE: PathId = PathId(u32::MAX);

    /// Opens the configured listeners in the calling thread's network namespace.
    ///
    /// # Errors
    ///
    /// An address cannot be listened on, or the system lacks descriptors.
    pub fn new(config: StreamConfig, engine: E, waker: Waker) -> io::Result<Self> {
        let last = config.peers.keys().next_back();
        let poll = Poll::new()?;
        Ok(Self {
            pump: Pump::new(engine, None),
            attempts: Attempts::new(waker.clone()),
            updates: None,
            waker,
            listeners: Listeners::open(&poll, &config.listen)?,
            poll,
            streams: Table::new(last.map_or(0, |path| path.0.saturating_add(1))),
            timers: Timers::new(),
            outbox: Outbox::new(TxBuf::with_limits(1, Receive::PIECE_MAX)),
            piece: vec![0; Receive::PIECE_MAX],
            port: None,
            statistics: StreamStatistics::default(),
            observed: Observed::default(),
            config,
        })
    }

    /// Adds the TUN device of this name in the calling thread's network namespace as the path
    /// [`StreamDriver::INTERFACE`]. It is up when the interface is up and the driver runs.
    ///
    /// # Errors
    ///
    /// The system lacks descriptors, or does not report interfaces.
    pub fn add_interface(&mut self, tun: Tun, name: &str) -> io::Result<()> {
        let port = Port::open(tun, name, Self::INTERFACE)?;
        self.poll.add_interface(&port)?;
        self.outbox = Outbox::new(TxBuf::with_limits(SEGMENTS_MAX, Receive::PIECE_MAX));
        self.port = Some(port);
        Ok(())
    }

    /// Sets the store for effects on files, opened with the driver's waker. Without one they fail.
    pub fn set_store(&mut self, store: FileStore) {
        self.pump.set_store(store);
    }

    /// Sets the histogram for the lateness of timers and wake-ups.
    pub fn set_timings(&mut self, timings: Arc<Timings>) {
        self.observed.set(timings);
    }

    /// Returns statistics of the interface.
    #[must_use]
    pub fn interface(&self) -> Option<TunStatistics> {
        self.port.as_ref().map(|port| port.statistics)
    }

    /// Returns the time of the engine's clock.
    #[must_use]
    pub fn now(&self) -> Time {
        self.pump.now()
    }

    /// Returns the engine, for requests before or between runs.
    pub fn engine_mut(&mut self) -> &mut E {
        &mut self.pump.engine
    }

    /// Returns the engine.
    pub fn engine(&self) -> &E {
        &self.pump.engine
    }

    /// Returns statistics so far.
    #[must_use]
    pub fn statistics(&self) -> StreamStatistics {
        let streams = &self.streams;
        let (streams_peak, kept) = (streams.peak(), streams.kept());
        StreamStatistics { streams: streams.len(), streams_peak, kept, ..self.statistics }
    }

    /// Returns the addresses of the configured listeners, in order.
    ///
    /// # Errors
    ///
    /// Errors of the system.
    pub fn listening(&self) -> io::Result<Vec<SocketAddr>> {
        self.listeners.configured()
    }

    /// Closes the configured listeners; existing streams continue.
    pub fn stop_accepting(&mut self) {
        self.listeners.stop_configured();
    }

    /// Runs until `on` returns [`Control::Stop`]; `on` may make requests of the engine. Output of
    /// the engine that is due then is still passed to the kernel as far as it has room.
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
            let now = self.pump.now();
            if let Some(due) = self.pump.expire(now) {
                self.observed.done(now, due);
            }
            self.expire(now);
            self.pump.pass_results();
            self.resolved();
            self.effects();
            let mut busy = self.receive();
            busy |= self.transmit()?;
            self.effects();
            let mut stop = false;
            while let Some(indication) = self.pump.engine.poll_indication() {
                busy = true;
                let event = StreamEvent::Indication(indication);
                stop |= on(self.pump.now(), &mut self.pump.engine, event) == Control::Stop;
            }
            stop |= on(self.pump.now(), &mut self.pump.engine, StreamEvent::Turn) == Control::Stop;
            if stop {
                while self.transmit()? {}
                self.effects();
                return Ok(());
            }
            // Requests of the observer may have caused effects.
            self.effects();
            self.wait(busy)?;
        }
    }

    fn hand_in(&mut self, input: Input<'_>) {
        self.pump.pass(input);
        self.effects();
    }

    fn notify(&mut self, path: PathId, event: PathEvent) {
        self.hand_in(Input::Path(path, event));
    }

    /// Carries out the engine's effects.
    fn effects(&mut self) {
        while let Some(step) = self.pump.next_step() {
            match step {
                Step::Stored => {}
                Step::Path(effect) => self.path_effect(effect),
                Step::Stream(effect) => self.stream_effect(effect),
            }
        }
    }

    fn path_effect(&mut self, effect: PathEffect) {
        match effect {
            PathEffect::Open { path } => self.open(path),
            PathEffect::Close { path } => self.leave(path),
            PathEffect::PauseRead { path: Self::INTERFACE } => self.pause_interface(true),
            PathEffect::ResumeRead { path: Self::INTERFACE } => self.pause_interface(false),
            PathEffect::PauseRead { path } => self.streams.pause(path, true),
            PathEffect::ResumeRead { path } => self.streams.pause(path, false),
            // A connection lasts until it is closed.
            PathEffect::Retain { .. } | PathEffect::Release { .. } => {}
        }
    }

    fn stream_effect(&mut self, effect: StreamEffect) {
        match effect {
            // The kernel's TCP supports no best-effort streams.
            StreamEffect::Connect { ticket, from, to, best_effort: _ } => {
                let path = self.streams.new_path(|path| self.config.peers.contains_key(&path));
                self.connect(path, from, to, Some(ticket));
            }
            StreamEffect::StopConnecting { ticket } => {
                if let Some(path) = self.streams.opening(ticket) {
                    self.forget(path);
                }
            }
            StreamEffect::Listen { ticket, near, best_effort: _ } => {
                let answer = self.listen(ticket, near).map(Completion::Listening);
                self.pump.answer(ticket, answer);
            }
            StreamEffect::StopListening { ticket } => {
                self.listeners.stop_waiting(ticket);
            }
            StreamEffect::Reset { path } => {
                self.end_attempt(path);
                if let Some(stream) = self.forget(path) {
                    stream.reset();
                }
            }
            StreamEffect::ShutdownWrite { path } => {
                let holds = self.outbox.holds(path);
                if let Some(stream) = self.streams.get_mut(path) {
                    stream.shut_down(holds);
                    self.end_if_over(path);
                }
            }
            StreamEffect::StartTls { path, server_name, early } => {
                self.secure(path, server_name.as_deref(), &early);
            }
            // Sockets have TCP_NODELAY set already.
            StreamEffect::NoDelay { .. } => {}
        }
    }

    /// Starts TLS on a stream, or resets the stream if that is impossible.
    fn secure(&mut self, path: PathId, server: Option<&str>, early: &[u8]) {
        let held = self.outbox.take(path);
        let Some(stream) = self.streams.get_mut(path).filter(|stream| stream.is_up()) else {
            return;
        };
        if held.is_some() {
            stream.write(self.outbox.bytes());
        }
        let none = || rustls::Error::General("no certificate is set here".to_owned());
        let tls = self.config.tls.as_ref().ok_or_else(none);
        match tls.and_then(|tls| stream.secure(tls, server, early)) {
            Ok(()) => {
                // The early bytes may have been all input.
                stream.readable = true;
                self.streams.enqueue(path);
            }
            Err(error) => {
                tracing::warn!(%error, "a stream is not secured");
                if let Some(stream) = self.forget(path) {
                    stream.reset();
                    self.pump.pass(Input::Path(path, PathEvent::Down));
                }
            }
        }
    }

    /// Waits for one stream at the address that the peer of `near` connects to.
    fn listen(&mut self, ticket: Ticket, near: PathId) -> Result<SocketAddr, EffectError> {
        let stream = self.streams.get(near).ok_or(EffectError::NotFound)?;
        let (local, _) = stream.ends.ok_or(EffectError::NotFound)?;
        if self.listeners.len() >= self.config.listeners_max + self.config.listen.len() {
            return Err(EffectError::NotAllowed);
        }
        let options = &self.config.options;
        let opened = self.listeners.wait_for_one(&self.poll, options, local.ip(), ticket);
        opened.map_err(|error| why_not(&error))
    }

    /// Makes a place for one more stream by forgetting one that has ended. Returns whether there is
    /// one.
    fn make_place(&mut self) -> bool {
        if self.streams.len() >= self.config.streams_max && self.config.forgets_left {
            self.streams.oldest_left().and_then(|path| self.forget(path));
        }
        self.streams.len() < self.config.streams_max
    }

    /// Removes a stream; dropping the result closes its socket.
    fn forget(&mut self, path: PathId) -> Option<KernelStream> {
        let stream = self.streams.remove(path)?;
        self.timers.cancel(Timer::Left(path));
        self.outbox.take(path);
        Some(stream)
    }

    /// Leaves a stream. Closing it with unread data would reset it and discard data in flight.
    fn leave(&mut self, path: PathId) {
        self.end_attempt(path);
        let held = self.outbox.take(path);
        let Some(stream) = self.streams.get_mut(path) else { return };
        if !stream.is_up() {
            self.forget(path);
            return;
        }
        stream.phase = Phase::Left;
        if held.is_some() {
            stream.write(self.outbox.bytes());
        }
        stream.shut_down(false);
        if stream.is_over() {
            self.forget(path);
            return;
        }
        self.streams.pause(path, false);
        let until = self.now() + self.config.linger;
        self.timers.set(Timer::Left(path), until, Timer::LEFT);
    }

    fn expire(&mut self, now: Time) {
        while let Some(timer) = self.timers.pop_due(now) {
            match timer {
                Timer::Left(path) => _ = self.forget(path),
                Timer::Rested(number) => {
                    self.listeners.watch(&self.poll, number, true);
                }
                Timer::Lookup(path) => {
                    if self.attempts.expire(path) {
                        self.fail_open(path, None, EffectError::NotFound);
                    }
                }
            }
        }
    }

    /// Receives pieces, one of each stream in turn. Returns whether there may be more.
    fn receive(&mut self) -> bool {
        for _ in 0..READS {
            let Some(path) = self.streams.next_readable() else { return false };
            self.read(path);
        }
        self.streams.has_readable()
    }

    /// Receives a piece of a stream.
    fn read(&mut self, path: PathId) {
        let Some(stream) = self.streams.get_mut(path) else { return };
        stream.queued = false;
        let opening = matches!(stream.phase, Phase::Opening(_));
        if stream.paused || opening {
            // The stream is queued again when it is resumed or comes up.
            return;
        }
        let is_left = stream.phase == Phase::Left;
        match stream.read(&mut self.piece) {
            Got::Bytes(len) => {
                self.streams.enqueue(path);
                if !is_left {
                    self.statistics.bytes_received += len as u64;
                    let receive = Receive::datagram(path, &self.piece[..len]);
                    self.pump.pass(Input::Receive(receive));
                    self.effects();
                }
            }
            Got::Secured(names) => {
                self.streams.enqueue(path);
                if !is_left {
                    self.notify(path, PathEvent::Secured(names));
                }
            }
            Got::Nothing => stream.readable = false,
            Got::End => {
                stream.readable = false;
                stream.ended = true;
                if !is_left {
                    self.notify(path, PathEvent::ReadClosed);
                }
                self.end_if_over(path);
            }
            Got::Lost => self.lose(path),
        }
    }

    /// Handles a failed write. Data received before may still be read.
    fn broken(&mut self, path: PathId) {
        match self.streams.get_mut(path) {
            Some(stream) if stream.paused || stream.ended => self.lose(path),
            Some(stream) => {
                stream.readable = true;
                self.streams.enqueue(path);
            }
            None => {}
        }
    }

    /// Removes a failed connection.
    fn lose(&mut self, path: PathId) {
        let Some(stream) = self.forget(path) else { return };
        if stream.is_up() {
            self.notify(path, PathEvent::Down);
        }
    }

    /// Removes a stream that both sides have ended.
    fn end_if_over(&mut self, path: PathId) {
        if !self.streams.get(path).is_some_and(KernelStream::is_over) {
            return;
        }
        if let Some(stream) = self.forget(path)
            && stream.is_up()
        {
            self.pump.pass(Input::Path(path, PathEvent::Down));
        }
    }

    /// Sends due packets. Returns whether there may be more.
    fn transmit(&mut self) -> io::Result<bool> {
        for _ in 0..WRITES {
            let now = self.pump.now();
            let due = self.outbox.due(&mut self.pump.engine, now, &mut self.observed);
            let Some(Held { transmit, .. }) = due else { return Ok(false) };
            match &mut self.port {
                Some(port) if transmit.path == Self::INTERFACE => port.send(self.outbox.tx())?,
                Some(_) | None => self.send(transmit.path),
            }
            self.effects();
        }
        Ok(true)
    }

    /// Writes the pulled batch to a stream, which keeps bytes that the kernel does not accept.
    fn send(&mut self, path: PathId) {
        let bytes = self.outbox.bytes();
        let Some(stream) = self.streams.get_mut(path).filter(|stream| stream.is_up()) else {
            return;
        };
        self.statistics.bytes_sent += bytes.len() as u64;
        stream.write(bytes);
        if stream.is_broken() {
            return self.broken(path);
        }
        if stream.kept() > 0 && !std::mem::replace(&mut stream.blocked, true) {
            self.notify(path, PathEvent::Blocked);
        }
        self.end_if_over(path);
    }

    /// Waits for events, another thread or a timer, and handles the events.
    fn wait(&mut self, busy: bool) -> io::Result<()> {
        // Sending may have made room for data that waits to be received.
        if !busy && !self.streams.has_readable() {
            let now = self.pump.now();
            let own = self.timers.next().map(|deadline| deadline.at);
            let engine = self.pump.next_timeout();
            let held = self.outbox.held().map(|held| held.until);
            let first = [own, engine, held].into_iter().flatten().min();
            let until = first.map_or(now + Self::TICK, |at| at.min(now + Self::TICK));
            if until > now {
                let interest = Ready { readable: true, writable: false };
                self.waker.wait(&self.poll, interest, Some(until.since(now)))?;
                self.observed.woken();
            }
        }
        let mut space = Space::new();
        for news in self.poll.news(&mut space)? {
            match news {
                News::Stream(path, flags) => self.on_news(path, flags),
                News::Listener(number) => self.accept(number),
                News::Packets => self.packets()?,
                News::Interface => self.interface_news()?,
            }
        }
        Ok(())
    }

    /// Reads packets of the interface.
    fn packets(&mut self) -> io::Result<()> {
        for _ in 0..READS {
            let Some(port) = self.port.as_mut().filter(|port| !port.paused) else { break };
            if port.read(&mut self.pump)? == Read::Nothing {
                break;
            }
            self.effects();
        }
        Ok(())
    }

    /// Reports a change of the interface.
    fn interface_news(&mut self) -> io::Result<()> {
        let Some(port) = &mut self.port else { return Ok(()) };
        if let Some((_, event)) = port.news()? {
            self.notify(Self::INTERFACE, event);
        }
        Ok(())
    }

    /// Pauses or resumes the interface.
    fn pause_interface(&mut self, paused: bool) {
        let Some(port) = &mut self.port else { return };
        port.paused = paused;
        self.poll.watch_packets(port, !paused);
    }

    /// Handles the kernel's events of a stream.
    fn on_news(&mut self, path: PathId, flags: EventFlags) {
        let Some(stream) = self.streams.get_mut(path) else { return };
        if let Phase::Opening(ticket) = stream.phase {
            let over = EventFlags::OUT | EventFlags::ERR | EventFlags::HUP;
            if flags.intersects(over) {
                stream.readable = flags.intersects(EventFlags::IN | EventFlags::RDHUP);
                self.opened(path, ticket);
            }
            return;
        }
        let gone = EventFlags::ERR | EventFlags::HUP;
        // A half-open connection can only end by a fault.
        let failed = flags.contains(EventFlags::ERR)
            || flags.contains(EventFlags::HUP) && !stream.is_written();
        if failed && (stream.paused || stream.ended) {
            // No read will report this end.
            self.lose(path);
            return;
        }
        if flags.intersects(EventFlags::IN | EventFlags::RDHUP | gone) && !stream.ended {
            stream.readable = true;
            self.streams.enqueue(path);
        }
        if flags.intersects(EventFlags::OUT | gone) {
            self.write_on(path);
        }
    }

    /// Writes more of a stream's kept data.
    fn write_on(&mut self, path: PathId) {
        let Some(stream) = self.streams.get_mut(path) else { return };
        if stream.is_written() || stream.kept() == 0 && !stream.blocked || !stream.write_on() {
            return;
        }
        if stream.is_broken() {
            return self.broken(path);
        }
        let was_blocked = std::mem::take(&mut stream.blocked);
        if stream.is_up() && was_blocked {
            self.notify(path, PathEvent::Writable);
        }
        self.end_if_over(path);
    }

    /// Accepts streams that wait at a listener.
    fn accept(&mut self, number: u32) {
        for _ in 0..ACCEPTS {
            let (socket, ends, ticket, place) = match self.listeners.accept(number) {
                Accepted::Stream { socket, ends, ticket, place } => (socket, ends, ticket, place),
                Accepted::Lost => continue,
                Accepted::None => return,
                Accepted::NoDescriptor => return self.rest(number),
            };
            if !self.make_place() {
                self.statistics.turned_away += 1;
                reset_at_close(&socket.into());
                continue;
            }
            let mut stream = KernelStream::new(socket, Phase::Up);
            stream.ends = Some(ends);
            let path = self.streams.new_path(|path| self.config.peers.contains_key(&path));
            if self.streams.insert(&self.poll, path, stream).is_err() {
                return self.rest(number);
            }
            self.statistics.accepted += 1;
            if ticket.is_some() {
                self.listeners.remove(number);
            }
            if let Some(place) = place {
                let (local, remote) = ends;
                self.streams.set_place(local, remote, place);
            }
            let info = PathInfo { ends: Some(ends), ticket, ..PathInfo::stream() };
            self.notify(path, PathEvent::Up(info));
        }
    }

    /// Pauses a listener when no descriptor is left; its streams stay in the backlog.
    fn rest(&mut self, number: u32) {
        self.statistics.rests += 1;
        self.listeners.watch(&self.poll, number, false);
        self.timers.set(Timer::Rested(number), self.now() + REST, Timer::RESTS);
    }
}
