//! TCP engine: interfaces, listeners, connections, and segments of no connection.

mod arrival;
mod numbers;
mod path_mtu;
mod rates;
mod requests;

use std::collections::{BTreeMap, VecDeque};
use std::net::{IpAddr, SocketAddr};

use engine::{
    Deadline, Effect, Engine, Input, PathEvent, PathId, PathInfo, PathKind, Rng, Time, Timers,
    Transmit, TxBuf,
};

use self::numbers::Numbers;
use self::path_mtu::PathMtus;
use self::rates::Rates;
use super::config::{Backlog, Config, Options};
use super::connection::{Connection, RateKey, Rules};
use super::indication::{
    ConnectionId, Counts, Indication, ListenerId, RequestError, State, Statistics,
};
use super::isn::Secret;
use super::packet::{Flow, Tuple};
use super::time_wait::{Remembered, TimeWait};
use crate::segment::{HEADER_LEN, Header, TcpOption, options_len};

/// Minimum MTU of an interface: headers with all options, and some data.
const MTU_MIN: usize = 128;

/// IP interface.
#[derive(Debug, Default)]
struct Interface {
    mtu: usize,
    rate_bps: Option<u64>,
    /// Bytes that it adds to a packet.
    overhead: usize,
    /// Time at which the layer below last lost a packet to corruption.
    corrupted_at: Option<Time>,
    up: bool,
    blocked: bool,
    /// Connections that may have something to send, each once.
    ready: VecDeque<u32>,
}

impl Interface {
    fn is_open(&self) -> bool {
        self.up && !self.blocked
    }
}

/// Slot of a connection.
#[derive(Debug, Default)]
struct Slot {
    generation: u32,
    connection: Option<Box<Connection>>,
    /// Whether its user was informed of it.
    known: bool,
    /// Whether it counts as half open at its listener.
    half_open: bool,
    /// Whether it is in its interface's queue.
    queued: bool,
    /// Whether it waits for its route's rate.
    waits: bool,
    /// Whether its peer's number for it is known.
    numbered: bool,
    armed: Option<Deadline>,
}

/// Listener.
#[derive(Debug)]
struct Listener {
    local: SocketAddr,
    options: Options,
    backlog: Backlog,
    half_open: usize,
    reported_full: bool,
}

/// Segment of no connection.
#[derive(Debug)]
struct Reply {
    path: PathId,
    flow: Flow,
    header: Header,
    options: Vec<TcpOption<'static>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Timer {
    Connection(u32),
    TimeWait(Tuple),
    Rate(RateKey),
}

/// TCP over IP interfaces.
///
/// Each path is an interface: IP packets are received and sent on it. The methods are the service,
/// and [`Indication`]s report events. See the [module](crate).
#[derive(Debug)]
pub struct Stack {
    config: Config,
    rules: Rules,
    rng: Rng,
    secret: Secret,
    interfaces: BTreeMap<PathId, Interface>,
    listeners: BTreeMap<ListenerId, Listener>,
    /// Listeners by address and port. An unspecified address means any address, and port 0 any
    /// port.
    listening: BTreeMap<SocketAddr, ListenerId>,
    next_listener: u32,
    slots: Vec<Slot>,
    free: Vec<u32>,
    by_tuple: BTreeMap<Tuple, u32>,
    time_wait: TimeWait,
    replies: VecDeque<Reply>,
    timers: Timers<Timer>,
    rates: Rates,
    numbers: Numbers,
    path_mtus: PathMtus,
    indications: VecDeque<Indication>,
    statistics: Statistics,
    /// Counters of former connections, by their interfaces.
    totals: BTreeMap<PathId, Counts>,
}

impl Stack {
    /// Creates a stack without interfaces and connections.
    #[must_use]
    pub fn new(config: Config, mut rng: Rng) -> Self {
        let secret = Secret::new(&mut rng);
        Self {
            rules: Rules::from_config(&config),
            time_wait: TimeWait::new(config.limits.time_wait),
            config,
            rng,
            secret,
            interfaces: BTreeMap::new(),
            listeners: BTreeMap::new(),
            listening: BTreeMap::new(),
            next_listener: 0,
            slots: Vec::new(),
            free: Vec::new(),
            by_tuple: BTreeMap::new(),
            replies: VecDeque::new(),
            timers: Timers::new(),
            rates: Rates::default(),
            numbers: Numbers::default(),
            path_mtus: PathMtus::default(),
            indications: VecDeque::new(),
            statistics: Statistics::default(),
            totals: BTreeMap::new(),
        }
    }

    /// Counters of packets without a result.
    #[must_use]
    pub fn statistics(&self) -> Statistics {
        self.statistics
    }

    /// Sum of the counters of all current and former connections.
    #[must_use]
    pub fn totals(&self) -> Counts {
        let connections = self.slots.iter().filter_map(|slot| slot.connection.as_ref());
        let gone = self.totals.values().fold(Counts::default(), |sum, counts| sum + *counts);
        connections.fold(gone, |sum, connection| sum + connection.info().counts)
    }

    /// Number of connections, including those left by their users whose last bytes are in flight,
    /// but not those remembered in TIME-WAIT.
    #[must_use]
    pub fn open(&self) -> usize {
        self.by_tuple.len()
    }

    /// Bytes of memory used for peers and users.
    #[must_use]
    pub fn memory(&self) -> usize {
        let connections = self.slots.iter().filter_map(|slot| slot.connection.as_ref());
        let connections: usize = connections.map(|connection| connection.memory()).sum();
        connections
            + self.slots.len() * size_of::<Slot>()
            + self.time_wait.len() * 2 * size_of::<Remembered>()
            + self.replies.len() * (size_of::<Reply>() + 128)
            + self.indications.len() * size_of::<Indication>()
            + self.path_mtus.memory()
    }

    fn connection(&mut self, id: ConnectionId) -> Option<&mut Connection> {
        let slot = self.slots.get_mut(id.index as usize)?;
        let known = slot.generation == id.generation && slot.known;
        slot.connection.as_deref_mut().filter(|_| known)
    }

    fn look_at(&self, id: ConnectionId) -> Result<&Connection, RequestError> {
        let slot = self.slots.get(id.index as usize);
        let slot = slot.filter(|slot| slot.generation == id.generation && slot.known);
        slot.and_then(|slot| slot.connection.as_deref()).ok_or(RequestError::UnknownConnection)
    }

    fn id(&self, index: u32) -> ConnectionId {
        ConnectionId { index, generation: self.slots[index as usize].generation }
    }

    /// Puts a connection into a free slot.
    fn place(&mut self, now: Time, connection: Connection, known: bool) -> u32 {
        let index = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot::default());
            self.slots.len() as u32 - 1
        });
        self.by_tuple.insert(connection.flow.tuple, index);
        let slot = &mut self.slots[index as usize];
        slot.half_open = connection.listener().is_some();
        slot.known = known;
        slot.connection = Some(Box::new(connection));
        self.share_rate(now, index);
        index
    }

    fn is_full(&self) -> bool {
        self.slots.len() - self.free.len() >= self.config.limits.connections
    }

    /// Notifies a connection's user, arms its timer, and puts it into the queue of its interface,
    /// after any change.
    fn settle(&mut self, now: Time, index: u32) {
        self.remember(now, index);
        self.learn_path_mtu(now, index);
        self.indicate(index);
        let slot = &mut self.slots[index as usize];
        let Some(connection) = slot.connection.as_deref() else { return };
        let over = connection.state() == State::Closed;
        if over && self.by_tuple.get(&connection.flow.tuple) == Some(&index) {
            self.by_tuple.remove(&connection.flow.tuple);
        }
        let (numbered, known) = (slot.numbered, connection.peer_number().is_some());
        let deadline = connection.deadline();
        if deadline != slot.armed {
            slot.armed = deadline;
            match deadline {
                Some(Deadline { at, why }) => self.timers.set(Timer::Connection(index), at, why),
                None => _ = self.timers.cancel(Timer::Connection(index)),
            }
        }
        if connection.is_done() || (over && !slot.known) {
            return self.remove(index);
        }
        if known && !numbered {
            let slot = &mut self.slots[index as usize];
            slot.numbered = true;
            if let Some(connection) = slot.connection.as_deref() {
                self.numbers.know(index, connection);
            }
        }
        if !over {
            self.enqueue(index);
        }
    }

    /// Records the path MTU discovered by a connection; `whole`: the interface's.
    fn learn_path_mtu(&mut self, now: Time, index: u32) {
        let slot = &mut self.slots[index as usize];
        let Some(connection) = slot.connection.as_deref_mut() else { return };
        let Some(mtu) = connection.events.path_mtu.take() else { return };
        let (path, host) = (connection.path, connection.flow.tuple.remote.ip());
        let whole = self.interfaces.get(&path).is_none_or(|interface| mtu >= interface.mtu);
        if whole {
            self.path_mtus.forget(path, host);
        } else {
            self.path_mtus.learn(now, path, host, mtu);
        }
    }

    fn enqueue(&mut self, index: u32) {
        let slot = &mut self.slots[index as usize];
        let Some(connection) = slot.connection.as_deref() else { return };
        if !slot.waits
            && !std::mem::replace(&mut slot.queued, true)
            && let Some(interface) = self.interfaces.get_mut(&connection.path)
        {
            interface.ready.push_back(index);
        }
    }

    fn remove(&mut self, index: u32) {
        let slot = &mut self.slots[index as usize];
        let Some(connection) = slot.connection.take() else { return };
        let totals = self.totals.entry(connection.path).or_default();
        *totals = *totals + connection.info().counts;
        let (own, peer) = (connection.space.own_number, connection.peer_number());
        self.numbers.free(index, connection.flow.tuple, own, peer);
        if slot.queued
            && let Some(interface) = self.interfaces.get_mut(&connection.path)
        {
            interface.ready.retain(|other| *other != index);
        }
        if slot.waits {
            self.rates.forget(index);
        }
        let generation = slot.generation.wrapping_add(1);
        *slot = Slot { generation, ..Slot::default() };
        self.timers.cancel(Timer::Connection(index));
        self.free.push(index);
    }

    /// Moves a connection in TIME-WAIT to less memory after its last acknowledgment.
    fn remember(&mut self, now: Time, index: u32) {
        let Some(connection) = self.slots[index as usize].connection.as_deref_mut() else { return };
        if !connection.is_waiting() {
            return;
        }
        let tuple = connection.flow.tuple;
        let entry = Remembered::new(
            connection.flow.clone(),
            connection.path,
            connection.receive_next(),
            connection.send_next(),
            connection.window_field(),
            connection.stamps(),
        );
        connection.waits_elsewhere();
        self.by_tuple.remove(&tuple);
        if let Some(oldest) = self.time_wait.insert(tuple, entry) {
            self.timers.cancel(Timer::TimeWait(oldest));
        }
        let until = now + self.config.time_wait;
        self.timers.set(Timer::TimeWait(tuple), until, "TIME-WAIT");
        self.answer_from_time_wait(now, tuple);
    }

    /// Turns a connection's events into indications.
    fn indicate(&mut self, index: u32) {
        let id = self.id(index);
        let slot = &mut self.slots[index as usize];
        let Some(connection) = slot.connection.as_deref_mut() else { return };
        let events = std::mem::take(&mut connection.events);
        let listener = connection.listener();
        if slot.half_open && connection.state() != State::SynReceived {
            slot.half_open = false;
            if let Some(listener) = listener.and_then(|id| self.listeners.get_mut(&id)) {
                listener.half_open = listener.half_open.saturating_sub(1);
                listener.reported_full &= listener.half_open > 0;
            }
        }
        if events.established {
            slot.known = true;
            let Tuple { local, remote } = connection.flow.tuple;
            self.indications.push_back(match listener {
                Some(listener) => Indication::Incoming { listener, connection: id, local, remote },
                None => Indication::Connected { connection: id },
            });
        }
        if !slot.known {
            return;
        }
        let connection = id;
        if events.record {
            self.indications.push_back(Indication::Record { connection: id });
        }
        if events.holes {
            self.indications.push_back(Indication::Holes { connection: id });
        }
        if events.plain_tcp {
            self.statistics.plain_tcp += 1;
            self.indications.push_back(Indication::PlainTcp { connection: id });
        }
        if events.readable {
            self.indications.push_back(Indication::Readable { connection });
        }
        if events.writable {
            self.indications.push_back(Indication::Writable { connection });
        }
        if events.peer_closed {
            self.indications.push_back(Indication::PeerClosed { connection });
        }
        if let Some(reason) = events.closed {
            self.indications.push_back(Indication::Closed { connection, reason });
        }
    }

    /// Settings of a connection over an interface, instead of the requested ones.
    fn options_over(&self, path: PathId, defaults: &Options) -> Options {
        self.config.interfaces.get(&path).unwrap_or(defaults).clone()
    }

    /// Sum of the counters of all current and former connections over an interface.
    #[must_use]
    pub fn totals_over(&self, path: PathId) -> Counts {
        let gone = self.totals.get(&path).copied().unwrap_or_default();
        let connections = self.slots.iter().filter_map(|slot| slot.connection.as_ref());
        let over = connections.filter(|connection| connection.path == path);
        over.fold(gone, |sum, connection| sum + connection.info().counts)
    }

    /// Interface to an address.
    fn route(&self, address: IpAddr) -> Option<PathId> {
        let any = || self.interfaces.iter().find(|(_, interface)| interface.up).map(|(id, _)| *id);
        let routed = self.route_number(address);
        routed.map(|number| self.config.routes[number as usize].path).or_else(any)
    }

    /// Number of the configured route to an address.
    fn route_number(&self, address: IpAddr) -> Option<u32> {
        let matches = |route: &super::Route| match (route.prefix, address) {
            (IpAddr::V4(prefix), IpAddr::V4(address)) => {
                let bits = u32::from(route.bits.min(32));
                (prefix.to_bits() ^ address.to_bits()).checked_shr(32 - bits).unwrap_or(0) == 0
            }
            (IpAddr::V6(prefix), IpAddr::V6(address)) => {
                let bits = u32::from(route.bits.min(128));
                (prefix.to_bits() ^ address.to_bits()).checked_shr(128 - bits).unwrap_or(0) == 0
            }
            (IpAddr::V4(_), IpAddr::V6(_)) | (IpAddr::V6(_), IpAddr::V4(_)) => false,
        };
        let routes = self.config.routes.iter().enumerate();
        let routed = routes.filter(|(_, route)| matches(route)).max_by_key(|(_, route)| route.bits);
        routed.map(|(number, _)| number as u32)
    }

    fn path_event(&mut self, now: Time, path: PathId, event: &PathEvent) {
        let interface = self.interfaces.entry(path).or_default();
        match event {
            PathEvent::Up(info @ PathInfo { kind: PathKind::Datagram { mtu }, .. })
                if *mtu >= MTU_MIN =>
            {
                let mtu = *mtu;
                (interface.mtu, interface.up, interface.blocked) = (mtu, true, false);
                (interface.rate_bps, interface.overhead) = (info.rate_bps, info.overhead);
                self.link_changed(now, path, |connection, now| {
                    connection.set_mtu(mtu);
                    connection.resume(now);
                });
                self.rates_changed(now, path);
            }
            // Packets need a path that preserves their boundaries.
            PathEvent::Up(_) | PathEvent::Down => {
                interface.up = false;
                self.link_changed(now, path, Connection::suspend_own);
            }
            PathEvent::Blocked => interface.blocked = true,
            PathEvent::Writable => interface.blocked = false,
            PathEvent::Unsent
            | PathEvent::ReadClosed
            | PathEvent::Missing { .. }
            | PathEvent::Secured(_)
            | PathEvent::ReturnDown
            | PathEvent::ReturnUp => {}
        }
    }

    /// Applies a change to all connections of an interface.
    fn link_changed(
        &mut self,
        now: Time,
        path: PathId,
        mut change: impl FnMut(&mut Connection, Time),
    ) {
        for index in 0..self.slots.len() as u32 {
            let slot = &mut self.slots[index as usize];
            let Some(connection) = slot.connection.as_deref_mut() else { continue };
            if connection.path == path {
                change(connection, now);
                self.settle(now, index);
            }
        }
    }

    fn send_reply(&mut self, now: Time, tx: &mut TxBuf) -> Option<Transmit> {
        let interfaces = &self.interfaces;
        // Replies for an interface that no longer exists are useless later.
        self.replies.retain(|reply| interfaces.get(&reply.path).is_some_and(|i| i.up));
        let open = |reply: &Reply| interfaces.get(&reply.path).is_some_and(Interface::is_open);
        let at = self.replies.iter().position(open)?;
        let reply = self.replies.get_mut(at)?;
        let len = reply.flow.ip_len() + HEADER_LEN + options_len(&reply.options);
        reply.flow.write(tx.push(len)?, reply.header, &reply.options, engine::Ecn::NotEct);
        let path = reply.path;
        self.replies.remove(at);
        tx.transmit(path, now)
    }
}

impl Engine for Stack {
    type Indication = Indication;

    fn handle_input(&mut self, now: Time, input: Input<'_>) {
        match input {
            Input::Receive(receive) => {
                for packet in receive.datagrams() {
                    self.packet(now, receive.path, packet);
                }
            }
            Input::Path(path, event) => self.path_event(now, path, &event),
            Input::Done(..) => {}
        }
    }

    fn handle_timeout(&mut self, now: Time) {
        while let Some(timer) = self.timers.pop_due(now) {
            match timer {
                Timer::TimeWait(tuple) => _ = self.time_wait.remove(tuple),
                Timer::Rate(key) => self.rate_allows(key),
                Timer::Connection(index) => {
                    let slot = &mut self.slots[index as usize];
                    slot.armed = None;
                    if let Some(connection) = slot.connection.as_deref_mut() {
                        connection.handle_timeout(now);
                        self.settle(now, index);
                    }
                }
            }
        }
    }

    fn poll_transmit(&mut self, now: Time, tx: &mut TxBuf) -> Option<Transmit> {
        if !self.replies.is_empty()
            && let Some(transmit) = self.send_reply(now, tx)
        {
            return Some(transmit);
        }
        loop {
            let open = |(_, interface): &(&PathId, &mut Interface)| {
                interface.is_open() && !interface.ready.is_empty()
            };
            let (path, interface) = self.interfaces.iter_mut().find(open)?;
            let (path, index) = (*path, interface.ready.pop_front()?);
            let slot = &mut self.slots[index as usize];
            let Some(connection) = slot.connection.as_deref_mut() else { continue };
            slot.queued = true;
            connection.space.corrupted_at = interface.corrupted_at;
            if let Some(key) = connection.space.rate_key {
                self.rates.lend(now, key, connection);
            }
            let more = connection.fill(now, tx);
            let starved = self.return_credit(now, index, !tx.is_empty());
            self.settle(now, index);
            let slot = &mut self.slots[index as usize];
            slot.queued = false;
            if tx.is_empty() {
                continue;
            }
            if more || starved {
                self.enqueue(index);
            }
            return tx.transmit(path, now);
        }
    }

    fn poll_effect(&mut self) -> Option<Effect> {
        None
    }

    fn poll_indication(&mut self) -> Option<Indication> {
        self.indications.pop_front()
    }

    fn poll_timeout(&self) -> Option<Deadline> {
        self.timers.next()
    }
}
