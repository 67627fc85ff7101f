//! The engine: pairs of streams, and the data buffered between them.

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;

use engine::{
    Deadline, Effect, Engine, Input, PathEffect, PathEvent, PathId, PathInfo, Receive,
    StreamEffect, Ticket, Time, Timers, Transmit, TxBuf,
};

use super::config::Config;
use super::indication::{End, Indication, PairId, Refusal, Report, Statistics};
use super::queue::{Queue, Spare};

/// Sides of a connection, and the direction that begins there.
const CLIENT: usize = 0;
const SERVER: usize = 1;

/// Reasons for the deadline of a connection.
const ACCEPTING: &str = "a connection to a server";
const SILENT: &str = "an idle connection";

/// A stream of a pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stream {
    /// The connection of the stream was requested.
    Opening,
    Up {
        path: PathId,
        /// Whether the stream has no room.
        blocked: bool,
    },
    /// Ended in both directions.
    Gone,
}

impl Stream {
    fn path(self) -> Option<PathId> {
        match self {
            Self::Up { path, .. } => Some(path),
            Self::Opening | Self::Gone => None,
        }
    }
}

/// One direction: data from one side for the other.
#[derive(Debug, Default)]
struct Flow {
    queue: Queue,
    /// Whether reading from its source is paused.
    paused: bool,
    /// Whether its source has ended.
    ended: bool,
    /// Whether the end was forwarded to its destination.
    shut: bool,
    /// Whether it is queued to send to its destination.
    ready: bool,
    /// Bytes of the shared buffer reserved for it.
    reserved: usize,
    bytes: u64,
    peak: usize,
}

#[derive(Debug)]
struct Pair {
    /// Client and server.
    ends: [SocketAddr; 2],
    streams: [Stream; 2],
    /// Data from the client, and data from the server.
    flows: [Flow; 2],
    opened: Time,
    connected: Option<Time>,
    /// Time of the last byte received or sent.
    active: Time,
}

impl Pair {
    fn report(&self, id: PairId, closed: Option<Time>) -> Report {
        let [client, server] = self.ends;
        let [there, back] = &self.flows;
        Report {
            id,
            client,
            server,
            opened: self.opened,
            connected: self.connected,
            closed,
            bytes: [there.bytes, back.bytes],
            buffered: [there.queue.len(), back.queue.len()],
            buffer_peak: [there.peak, back.peak],
        }
    }
}

/// Proxy that pairs streams. See the [module](crate).
#[derive(Debug)]
pub struct Pep {
    config: Config,
    pairs: BTreeMap<PairId, Pair>,
    paths: BTreeMap<PathId, (PairId, usize)>,
    next: u64,
    /// Directions that may have data for their destination, each once.
    ready: VecDeque<(PairId, usize)>,
    spare: Spare,
    /// Reserved bytes of the shared buffer.
    reserved: usize,
    timers: Timers<PairId>,
    effects: VecDeque<Effect>,
    indications: VecDeque<Indication>,
    statistics: Statistics,
    stopping: bool,
}

impl Pep {
    /// A proxy without connections.
    #[must_use]
    pub fn new(config: Config) -> Self {
        Self {
            config,
            pairs: BTreeMap::new(),
            paths: BTreeMap::new(),
            next: 0,
            ready: VecDeque::new(),
            spare: Spare::default(),
            reserved: 0,
            timers: Timers::new(),
            effects: VecDeque::new(),
            indications: VecDeque::new(),
            statistics: Statistics::default(),
            stopping: false,
        }
    }

    /// Counters.
    #[must_use]
    pub fn statistics(&self) -> Statistics {
        self.statistics
    }

    /// Open connections.
    pub fn connections(&self) -> impl Iterator<Item = Report> + '_ {
        self.pairs.iter().map(|(id, pair)| pair.report(*id, None))
    }

    /// Rejects new streams by a reset; open connections continue to their end.
    pub fn stop_accepting(&mut self) {
        self.stopping = true;
    }

    /// Resets both ends of all connections.
    pub fn reset_all(&mut self, now: Time) {
        let all: Vec<_> = self.pairs.keys().copied().collect();
        all.into_iter().for_each(|id| self.give_up(now, id, End::Aborted));
    }

    /// Bytes of memory held because of peers.
    #[must_use]
    pub fn memory(&self) -> usize {
        let flows = self.pairs.values().flat_map(|pair| &pair.flows);
        flows.map(|flow| flow.queue.memory()).sum::<usize>()
            + self.spare.memory()
            + self.pairs.len() * (size_of::<Pair>() + 3 * 64)
            + self.ready.len() * size_of::<(PairId, usize)>()
            + self.effects.len() * size_of::<Effect>()
            + self.indications.len() * size_of::<Indication>()
    }

    /// Handles a stream that came up.
    fn up(&mut self, now: Time, path: PathId, info: &PathInfo) {
        if let Some((id, side)) = self.paths.get(&path).copied() {
            // The properties of the stream changed, and there is room again.
            return self.set_blocked(id, side, false);
        }
        match info.ticket {
            Some(ticket) => self.connected(now, path, ticket),
            None => self.accept(now, path, info.ends),
        }
    }

    /// Accepts a client's stream, whose near end is the destination.
    fn accept(&mut self, now: Time, path: PathId, ends: Option<(SocketAddr, SocketAddr)>) {
        let why = match ends {
            None => Some(Refusal::NoDestination),
            Some((server, _)) if self.config.is_own(server) => Some(Refusal::Loop),
            Some(_) if self.stopping => Some(Refusal::Stopping),
            Some(_) if self.pairs.len() >= self.config.connections => Some(Refusal::Full),
            Some(_) => None,
        };
        let (Some((server, client)), None) = (ends, why) else {
            self.effects.push_back(StreamEffect::Reset { path }.into());
            self.statistics.turned_away += 1;
            let why = why.unwrap_or(Refusal::NoDestination);
            let ends = ends.map(|(server, client)| (client, server));
            self.indications.push_back(Indication::TurnedAway { ends, why });
            return;
        };
        let id = PairId(self.next);
        self.next += 1;
        let pair = Pair {
            ends: [client, server],
            streams: [Stream::Up { path, blocked: false }, Stream::Opening],
            flows: [Flow::default(), Flow::default()],
            opened: now,
            connected: None,
            active: now,
        };
        self.pairs.insert(id, pair);
        self.paths.insert(path, (id, CLIENT));
        self.timers.set(id, now + self.config.connect_timeout, ACCEPTING);
        let from = self.config.transparent.then_some(client);
        self.effects.push_back(
            StreamEffect::Connect { ticket: Ticket(id.0), from, to: server, best_effort: false }
                .into(),
        );
        self.indications.push_back(Indication::Opened { id, client, server });
        let statistics = &mut self.statistics;
        statistics.accepted += 1;
        statistics.open = self.pairs.len();
        statistics.open_peak = statistics.open_peak.max(statistics.open);
    }

    /// Handles the connection to the server.
    fn connected(&mut self, now: Time, path: PathId, ticket: Ticket) {
        let id = PairId(ticket.0);
        let pair = self.pairs.get_mut(&id);
        let Some(pair) = pair.filter(|pair| pair.streams[SERVER] == Stream::Opening) else {
            // The client left during the handshake.
            self.effects.push_back(StreamEffect::Reset { path }.into());
            return;
        };
        pair.streams[SERVER] = Stream::Up { path, blocked: false };
        (pair.connected, pair.active) = (Some(now), now);
        let took = now.since(pair.opened);
        self.paths.insert(path, (id, SERVER));
        self.statistics.connected += 1;
        self.indications.push_back(Indication::Connected { id, took });
        match self.config.idle {
            Some(idle) => self.timers.set(id, now + idle, SILENT),
            None => _ = self.timers.cancel(id),
        }
        self.make_ready(id, CLIENT);
        self.pass_on_the_end(now, id, CLIENT);
    }

    fn set_blocked(&mut self, id: PairId, side: usize, full: bool) {
        let Some(pair) = self.pairs.get_mut(&id) else { return };
        if let Stream::Up { blocked, .. } = &mut pair.streams[side] {
            *blocked = full;
        }
        if !full {
            self.make_ready(id, 1 - side);
        }
    }

    /// Queues a direction that may have data for its destination.
    fn make_ready(&mut self, id: PairId, side: usize) {
        let Some(pair) = self.pairs.get_mut(&id) else { return };
        let flow = &mut pair.flows[side];
        let open = matches!(pair.streams[1 - side], Stream::Up { blocked: false, .. });
        if open && !flow.queue.is_empty() && !std::mem::replace(&mut flow.ready, true) {
            self.ready.push_back((id, side));
        }
    }

    fn receive(&mut self, now: Time, path: PathId, bytes: &[u8]) {
        let Some((id, side)) = self.paths.get(&path).copied() else { return };
        let Some(pair) = self.pairs.get_mut(&id) else { return };
        let flow = &mut pair.flows[side];
        pair.active = now;
        flow.queue.push(bytes, &mut self.spare);
        flow.peak = flow.peak.max(flow.queue.len());
        self.statistics.buffered += bytes.len();
        let peak = &mut self.statistics.buffered_peak;
        *peak = (*peak).max(self.statistics.buffered);
        if !self.reserve(id, side) {
            self.effects.push_back(PathEffect::PauseRead { path }.into());
        }
        self.make_ready(id, side);
    }

    /// Reserves room for the next piece from one side. Without it, the side must not be read.
    ///
    /// Each direction owns room for one piece. While its source is read, this room is for the next
    /// piece, and all held data counts against the shared buffer. While it is paused, only held
    /// data beyond one piece counts.
    fn reserve(&mut self, id: PairId, side: usize) -> bool {
        let (most, pool) = (self.config.direction_max(), self.config.pool());
        let Some(pair) = self.pairs.get_mut(&id) else { return false };
        let flow = &mut pair.flows[side];
        let held = flow.queue.len();
        let others = self.reserved - flow.reserved;
        let room = held + Receive::PIECE_MAX <= most && others + held <= pool;
        flow.paused = held > 0 && !room;
        flow.reserved = if flow.paused { held.saturating_sub(Receive::PIECE_MAX) } else { held };
        self.reserved = others + flow.reserved;
        !flow.paused
    }

    /// Resumes reading from a side if its buffer has drained enough.
    fn release(&mut self, id: PairId, side: usize) {
        let most = self.config.direction_max();
        let Some(pair) = self.pairs.get(&id) else { return };
        let (was_paused, held) = (pair.flows[side].paused, pair.flows[side].queue.len());
        let path = pair.streams[side].path();
        // A paused side is read again when half of the buffer is free.
        let may_read = !(was_paused && held > most / 2) && self.reserve(id, side);
        if may_read && was_paused {
            self.effects.extend(path.map(|path| Effect::Path(PathEffect::ResumeRead { path })));
        }
    }

    /// Forwards the source's end behind its last byte.
    fn pass_on_the_end(&mut self, now: Time, id: PairId, side: usize) {
        let Some(pair) = self.pairs.get_mut(&id) else { return };
        let goal = pair.streams[1 - side];
        let flow = &mut pair.flows[side];
        if flow.ended && flow.queue.is_empty() && !flow.shut && goal != Stream::Opening {
            flow.shut = true;
            self.effects.extend(
                goal.path().map(|path| Effect::Stream(StreamEffect::ShutdownWrite { path })),
            );
        }
        if pair.flows.iter().all(|flow| flow.shut) {
            let paths = pair.streams.into_iter().filter_map(Stream::path);
            self.effects.extend(paths.map(|path| Effect::Path(PathEffect::Close { path })));
            self.remove(now, id, End::Complete);
        }
    }

    /// Handles the end of a stream.
    fn down(&mut self, now: Time, path: PathId) {
        let Some((id, side)) = self.paths.remove(&path) else { return };
        let Some(pair) = self.pairs.get_mut(&id) else { return };
        pair.streams[side] = Stream::Gone;
        // If both of its halves have ended, its remaining bytes are still forwarded.
        if pair.flows[side].ended && pair.flows[1 - side].shut {
            return self.pass_on_the_end(now, id, side);
        }
        let end = if side == CLIENT { End::ClientReset } else { End::ServerReset };
        self.give_up(now, id, end);
    }

    /// Resets both sides of a connection.
    fn give_up(&mut self, now: Time, id: PairId, end: End) {
        let Some(pair) = self.pairs.get(&id) else { return };
        for stream in pair.streams {
            self.effects.extend(match stream {
                Stream::Opening => {
                    Some(Effect::Stream(StreamEffect::StopConnecting { ticket: Ticket(id.0) }))
                }
                Stream::Up { path, .. } => Some(Effect::Stream(StreamEffect::Reset { path })),
                Stream::Gone => None,
            });
        }
        self.remove(now, id, end);
    }

    /// Handles a failed connection to the server.
    fn not_connected(&mut self, now: Time, id: PairId) {
        let Some(pair) = self.pairs.get_mut(&id) else { return };
        if pair.streams[SERVER] == Stream::Opening {
            pair.streams[SERVER] = Stream::Gone;
            self.give_up(now, id, End::NotConnected);
        }
    }

    /// Removes a connection.
    fn remove(&mut self, now: Time, id: PairId, end: End) {
        let Some(mut pair) = self.pairs.remove(&id) else { return };
        let report = pair.report(id, Some(now));
        for path in pair.streams.into_iter().filter_map(Stream::path) {
            self.paths.remove(&path);
        }
        for flow in &mut pair.flows {
            self.reserved -= flow.reserved;
            self.statistics.buffered -= flow.queue.len();
            flow.queue.clear(&mut self.spare);
        }
        if pair.flows.iter().any(|flow| flow.ready) {
            self.ready.retain(|(other, _)| *other != id);
        }
        if self.pairs.is_empty() {
            self.spare.clear();
        }
        self.timers.cancel(id);
        self.statistics.open = self.pairs.len();
        self.statistics.count(end);
        self.indications.push_back(Indication::Closed { report, end });
    }
}

impl Engine for Pep {
    type Indication = Indication;

    fn handle_input(&mut self, now: Time, input: Input<'_>) {
        match input {
            Input::Receive(receive) => self.receive(now, receive.path, receive.bytes),
            Input::Path(path, event) => match event {
                PathEvent::Up(info) => self.up(now, path, &info),
                PathEvent::Down => self.down(now, path),
                PathEvent::Blocked | PathEvent::Writable => {
                    if let Some((id, side)) = self.paths.get(&path).copied() {
                        self.set_blocked(id, side, event == PathEvent::Blocked);
                    }
                }
                PathEvent::ReadClosed => {
                    let Some((id, side)) = self.paths.get(&path).copied() else { return };
                    if let Some(pair) = self.pairs.get_mut(&id) {
                        pair.flows[side].ended = true;
                        self.pass_on_the_end(now, id, side);
                    }
                }
                PathEvent::Missing { .. }
                | PathEvent::Unsent
                | PathEvent::Secured(_)
                | PathEvent::ReturnDown
                | PathEvent::ReturnUp => {}
            },
            Input::Done(ticket, Err(_)) => self.not_connected(now, PairId(ticket.0)),
            Input::Done(_, Ok(_)) => {}
        }
    }

    fn handle_timeout(&mut self, now: Time) {
        while let Some(id) = self.timers.pop_due(now) {
            let Some(pair) = self.pairs.get(&id) else { continue };
            match (pair.connected, self.config.idle) {
                (None, _) => self.give_up(now, id, End::ConnectTimeout),
                (Some(_), Some(idle)) if pair.active + idle > now => {
                    self.timers.set(id, pair.active + idle, SILENT);
                }
                (Some(_), _) => self.give_up(now, id, End::Idle),
            }
        }
    }

    fn poll_transmit(&mut self, now: Time, tx: &mut TxBuf) -> Option<Transmit> {
        while let Some((id, side)) = self.ready.pop_front() {
            let Some(pair) = self.pairs.get_mut(&id) else { continue };
            let flow = &mut pair.flows[side];
            flow.ready = false;
            let Stream::Up { path, blocked: false } = pair.streams[1 - side] else { continue };
            let len = flow.queue.len().min(tx.longest()).min(Receive::PIECE_MAX);
            let Some(place) = tx.push(len) else {
                self.make_ready(id, side);
                return None;
            };
            flow.queue.pop(place, &mut self.spare);
            flow.bytes += len as u64;
            pair.active = now;
            self.statistics.bytes[side] += len as u64;
            self.statistics.buffered -= len;
            self.release(id, side);
            self.make_ready(id, side);
            self.pass_on_the_end(now, id, side);
            return tx.transmit(path, now);
        }
        None
    }

    fn poll_effect(&mut self) -> Option<Effect> {
        self.effects.pop_front()
    }

    fn poll_indication(&mut self) -> Option<Indication> {
        self.indications.pop_front()
    }

    fn poll_timeout(&self) -> Option<Deadline> {
        self.timers.next()
    }
}
