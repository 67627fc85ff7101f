//! The world: hosts, links and a clock that jumps to the next event.

use std::collections::BTreeMap;
use std::fmt;
use std::io::{self, Write};
use std::net::{Ipv4Addr, SocketAddrV4};
use std::sync::atomic::{AtomicBool, Ordering};

use engine::{Engine, PathEvent, PathId, PathInfo, Rng, Time};
use link::{ConfigError, Link};

use crate::agenda::Agenda;
use crate::driver::{Driver, Violation};
use crate::host::HostId;
use crate::net::{Chore, Network, Node};
use crate::packet::Packet;
use crate::stack::HostConfig;
use crate::stats::HostStats;
use crate::store::Store;
use crate::trace::{Description, Trace, TraceRow};

/// One direction of a link within its world.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LinkId(pub(crate) usize);

/// End of a link to capture at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkEnd {
    /// Sending end.
    Near,
    /// Receiving end.
    Far,
}

/// Scheduled action, independent of the engines.
pub enum Action<E> {
    /// Drops a host's engine, with its open files and perhaps unsynced writes.
    Crash(HostId),
    /// Recreates a host's engine; crashes it first if it runs.
    Restart(HostId),
    /// Changes a link.
    SetLink(LinkId, LinkChange),
    /// Calls a host's engine, if it runs.
    Call(HostId, EngineCall<E>),
}

/// Call of an engine.
pub type EngineCall<E> = Box<dyn FnOnce(&mut E, Time) + Send>;

/// Change of a link.
pub type LinkChange = Box<dyn FnOnce(&mut Link<Packet>, Time) + Send>;

/// Limit of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limit {
    /// Latest time of an event.
    pub until: Time,
    /// Maximum number of events.
    pub events: u64,
}

impl Default for Limit {
    /// No time limit, 10^9 events: minutes of computing, so that a run ends even if two engines
    /// reply to each other forever over a link without delay.
    fn default() -> Self {
        Self { until: Time::MAX, events: 1_000_000_000 }
    }
}

/// Reason why a run ended.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub enum Outcome {
    /// No event is left.
    Idle,
    /// All remaining events are after the time limit.
    TimeLimit,
    /// The event limit was reached.
    EventLimit,
    /// The caller cancelled the run.
    Cancelled,
    /// An engine broke the contract; the world is stopped from now on.
    Stuck {
        /// Host of the engine.
        host: HostId,
        /// Description of the breach.
        why: String,
    },
}

/// Hosts and links under a virtual clock.
///
/// Events at one moment happen in this order: actions as they were added, links that go down or
/// up, packets and room in the queues by link, then hosts; links and hosts in the order they were
/// added. The world ends by itself when no packet, timer, effect or action is left.
pub struct World<E: Engine> {
    seed: u64,
    now: Time,
    events: u64,
    hosts: Vec<Driver<E>>,
    /// Time of each host's next action.
    due: Agenda,
    net: Network,
    actions: BTreeMap<(Time, u64), Action<E>>,
    actions_added: u64,
    indications: Vec<(Time, HostId, E::Indication)>,
    /// Hosts whose engine has not been created yet.
    unstarted: Vec<usize>,
    stuck: Option<(HostId, String)>,
    /// Changes of links since the last other event.
    idle_changes: u32,
}

/// Maximum successive changes of links without any other event; after that many, no engine can be
/// waiting for a change. The two directions of a path with endless outages may never be up at the
/// same time.
const IDLE_CHANGES_MAX: u32 = 1000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Source {
    Action,
    LinkChange(usize),
    ExitChange(usize),
    LinkRoom(usize),
    Link(usize),
    Host(usize),
}

impl<E: Engine> World<E> {
    /// Creates an empty world at the epoch. All its randomness comes from `seed` and the names in
    /// it.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self {
            seed,
            now: Time::ZERO,
            events: 0,
            hosts: Vec::new(),
            due: Agenda::default(),
            net: Network::default(),
            actions: BTreeMap::new(),
            actions_added: 0,
            indications: Vec::new(),
            unstarted: Vec::new(),
            stuck: None,
            idle_changes: 0,
        }
    }

    /// Returns the virtual time.
    #[must_use]
    pub fn now(&self) -> Time {
        self.now
    }

    /// Number of events so far.
    #[must_use]
    pub fn events(&self) -> u64 {
        self.events
    }

    /// Adds a host. Without an engine it forwards packets for other hosts.
    pub fn add_host(&mut self, config: HostConfig) -> HostId {
        self.net.nodes.push(Node {
            name: config.name.clone(),
            address: config.address,
            routes: BTreeMap::new(),
        });
        self.hosts.push(Driver::new(self.hosts.len(), config, self.seed));
        HostId(self.hosts.len() - 1)
    }

    /// Installs a host's engine, created when the world next moves and after each restart. The
    /// factory receives the number of restarts.
    pub fn install(&mut self, host: HostId, factory: impl FnMut(u32, Rng) -> E + Send + 'static) {
        self.hosts[host.0].host.install(factory);
        if !self.unstarted.contains(&host.0) {
            self.unstarted.push(host.0);
        }
    }

    /// Adds a path to a peer or a group at a host. The engine sees it as a path that comes up.
    ///
    /// A multicast address makes it a group, of which the host becomes a member. Packets from
    /// others to the group arrive on this path, or on paths created for unknown senders. The host's
    /// own packets do not come back to it. Groups need [`World::add_group_route`].
    ///
    /// # Panics
    /// If the host has a path of this number.
    pub fn add_path(
        &mut self,
        host: HostId,
        path: PathId,
        local_port: u16,
        remote: SocketAddrV4,
        info: PathInfo,
    ) {
        let Self { hosts, net, now, .. } = self;
        let host = &mut hosts[host.0];
        host.stack.add_path(path, local_port, remote, info, net);
        host.stack.resolve(net);
        if host.host.engine().is_some() {
            host.stack.announce_last(*now, net);
            let index = host.stack.index;
            self.settle(index);
        }
    }

    /// Adds an IP interface to a host's engine, over a link and over the return links of its far
    /// end: a path for whole IP packets. The engine receives, unverified, packets from that
    /// neighbour for the host and intercepted ones. Packets it sends are not checked.
    ///
    /// # Panics
    /// If the host has a path of this number, or the link does not start at the host.
    pub fn add_interface(&mut self, host: HostId, path: PathId, link: LinkId, info: PathInfo) {
        let Self { hosts, net, now, .. } = self;
        assert_eq!(net.pipes[link.0].from, host.0, "the link starts at another host");
        let host = &mut hosts[host.0];
        host.stack.add_interface(path, link.0, info, net);
        host.stack.resolve(net);
        if host.host.engine().is_some() {
            host.stack.announce_last(*now, net);
            let index = host.stack.index;
            self.settle(index);
        }
    }

    /// Makes a host accept datagrams from unknown peers on a port; its engine sees each peer as a
    /// path with these properties.
    pub fn listen(&mut self, host: HostId, port: u16, info: PathInfo) {
        self.hosts[host.0].stack.listen(port, info);
    }

    /// Adds one direction of a link, with a route to the neighbour at its end.
    ///
    /// # Errors
    /// When the configuration is invalid.
    pub fn add_link(
        &mut self,
        from: HostId,
        to: HostId,
        config: link::Config,
    ) -> Result<LinkId, ConfigError> {
        let link = self.net.add_link(from.0, to.0, config, self.seed, self.now)?;
        self.hosts[from.0].stack.add_neighbour(link, &mut self.net);
        Ok(LinkId(link))
    }

    /// Routes a host's packets for `destination` over a link.
    ///
    /// # Panics
    /// If the link does not start at the host.
    pub fn add_route(&mut self, host: HostId, destination: Ipv4Addr, link: LinkId) {
        assert_eq!(self.net.pipes[link.0].from, host.0, "the link starts at another host");
        self.hosts[host.0].stack.add_route(destination, link.0, &mut self.net);
    }

    /// Also routes a host's packets from `source` to `group` over a link: one copy over each link
    /// added this way. `source` is the host itself or another one, whose packets it forwards.
    ///
    /// # Panics
    /// If the link does not start at the host.
    pub fn add_group_route(
        &mut self,
        host: HostId,
        source: Ipv4Addr,
        group: Ipv4Addr,
        link: LinkId,
    ) {
        assert_eq!(self.net.pipes[link.0].from, host.0, "the link starts at another host");
        self.hosts[host.0].stack.add_group_route(source, group, link.0, &mut self.net);
    }

    /// Returns a host's store.
    pub fn store(&mut self, host: HostId) -> &mut Store {
        self.hosts[host.0].host.store_mut()
    }

    /// Returns a host's engine, if it runs.
    #[must_use]
    pub fn engine(&self, host: HostId) -> Option<&E> {
        self.hosts[host.0].host.engine()
    }

    /// Returns a link's model and its counters.
    #[must_use]
    pub fn link(&self, link: LinkId) -> &Link<Packet> {
        &self.net.pipes[link.0].link
    }

    /// Calls a host's engine now, for a service request, and drains it.
    ///
    /// # Panics
    /// If the host has no engine or it has crashed.
    pub fn call<R>(&mut self, host: HostId, request: impl FnOnce(&mut E, Time) -> R) -> R {
        self.start_engines();
        let engine = self.hosts[host.0].host.engine_mut().expect("the host has a running engine");
        let answer = request(engine, self.now);
        self.settle(host.0);
        answer
    }

    /// Schedules an action at a moment, or at once if that has passed.
    pub fn schedule(&mut self, at: Time, action: Action<E>) {
        self.actions_added += 1;
        self.actions.insert((at.max(self.now), self.actions_added), action);
    }

    /// Processes the next event and returns its time; `None` if there is none.
    pub fn step(&mut self) -> Option<Time> {
        self.start_engines();
        if self.stuck.is_some() {
            return None;
        }
        let (at, source) = self.next_event()?;
        self.happen(at, source);
        Some(self.now)
    }

    /// Processes all events up to and including a moment, which becomes the current time.
    pub fn run_until(&mut self, until: Time) -> Outcome {
        let outcome = self.run(Limit { until, ..Limit::default() });
        if matches!(outcome, Outcome::Idle | Outcome::TimeLimit) {
            self.now = self.now.max(until);
        }
        outcome
    }

    /// Processes events until none is left or a limit is reached.
    pub fn run(&mut self, limit: Limit) -> Outcome {
        self.run_unless(&AtomicBool::new(false), limit)
    }

    /// Processes events until none is left, a limit is reached or another thread sets `cancelled`.
    pub fn run_unless(&mut self, cancelled: &AtomicBool, limit: Limit) -> Outcome {
        self.start_engines();
        let events_max = self.events.saturating_add(limit.events);
        let outcome = loop {
            if let Some((host, why)) = self.stuck.clone() {
                break Outcome::Stuck { host, why };
            }
            let Some((at, source)) = self.next_event() else { break Outcome::Idle };
            if at > limit.until {
                break Outcome::TimeLimit;
            }
            if self.events >= events_max {
                break Outcome::EventLimit;
            }
            if cancelled.load(Ordering::Relaxed) {
                break Outcome::Cancelled;
            }
            self.happen(at, source);
        };
        debug_assert_eq!(self.check_conservation(), Ok(()));
        outcome
    }

    /// Returns the engines' indications since the last call, in order.
    pub fn drain_indications(&mut self) -> Vec<(Time, HostId, E::Indication)> {
        std::mem::take(&mut self.indications)
    }

    /// Returns a link's counters.
    #[must_use]
    pub fn link_stats(&self, link: LinkId) -> &link::Stats {
        self.net.pipes[link.0].link.stats()
    }

    /// Returns the PPP counters of a link; `None` if the link does not compress headers or inspect
    /// packets' bytes. The link counts packets that could not be restored as delivered.
    #[must_use]
    pub fn line_stats(&self, link: LinkId) -> Option<&link::LineStats> {
        self.net.pipes[link.0].line_stats()
    }

    /// Returns a host's counters.
    #[must_use]
    pub fn host_stats(&self, host: HostId) -> &HostStats {
        &self.hosts[host.0].stack.stats
    }

    /// Returns a host's name.
    #[must_use]
    pub fn host_name(&self, host: HostId) -> &str {
        &self.net.nodes[host.0].name
    }

    /// Checks that on every link pushed = delivered + lost + queued, in packets and bytes.
    ///
    /// # Errors
    /// Description of the first link that violates this.
    pub fn check_conservation(&self) -> Result<(), String> {
        self.net.check_conservation()
    }

    /// Captures at one end of a link: all packets that the interface there sends and receives, over
    /// this link and its return link. See [`World::capture_host_link`].
    ///
    /// # Errors
    /// Errors of the sink.
    pub fn capture(
        &mut self,
        link: LinkId,
        end: LinkEnd,
        sink: impl Write + Send + 'static,
    ) -> io::Result<()> {
        let pipe = &self.net.pipes[link.0];
        let ends = match end {
            LinkEnd::Near => (pipe.from, pipe.to),
            LinkEnd::Far => (pipe.to, pipe.from),
        };
        self.net.add_capture(ends.0, &[ends.1], Box::new(sink))
    }

    /// Captures all packets that the interface of `host` towards `peer` sends and receives, as
    /// pcapng.
    ///
    /// A packet counts as sent when it is pushed onto the link, before it waits in its queue; a
    /// comment marks packets that are lost or damaged. Only packets that arrive count as received.
    /// Links under Ethernet framing give Ethernet headers with made-up addresses, all others bare
    /// IP packets.
    ///
    /// # Errors
    /// Errors of the sink.
    pub fn capture_host_link(
        &mut self,
        host: HostId,
        peer: HostId,
        sink: impl Write + Send + 'static,
    ) -> io::Result<()> {
        self.net.add_capture(host.0, &[peer.0], Box::new(sink))
    }

    /// Captures all packets that `host` sends and receives, as one pcapng with an interface for
    /// each neighbour that it has a link to or from. See [`World::capture_host_link`].
    ///
    /// # Errors
    /// Errors of the sink.
    pub fn capture_host(
        &mut self,
        host: HostId,
        sink: impl Write + Send + 'static,
    ) -> io::Result<()> {
        let peers = self.net.neighbours(host.0);
        self.net.add_capture(host.0, &peers, Box::new(sink))
    }

    /// Writes the records that captures still hold. Call it after the run.
    ///
    /// # Errors
    /// The first error of any capture's sink.
    pub fn finish_captures(&mut self) -> io::Result<()> {
        self.net.finish_captures()
    }

    /// Reports every packet of every link. `describe` receives a datagram's data, or the whole
    /// packet if it is not a datagram, and returns its description.
    pub fn trace<D: Into<Description>>(
        &mut self,
        mut describe: impl FnMut(&[u8]) -> D + Send + 'static,
        sink: impl FnMut(&TraceRow<'_>) + Send + 'static,
    ) {
        let describe = Box::new(move |data: &[u8]| describe(data).into());
        self.net.trace = Some(Trace { describe, sink: Box::new(sink) });
    }

    /// Returns the earliest of all possible events.
    fn next_event(&self) -> Option<(Time, Source)> {
        let mut next: Option<(Time, Source)> = None;
        let mut consider = |at: Option<Time>, source| {
            if let Some(at) = at
                && next.is_none_or(|(earliest, _)| at < earliest)
            {
                next = Some((at, source));
            }
        };
        consider(self.actions.keys().next().map(|at| at.0), Source::Action);
        if let Some((at, pipe, chore)) = self.net.next() {
            let source = match chore {
                Chore::Packet => Source::Link(pipe),
                Chore::Room => Source::LinkRoom(pipe),
            };
            consider(Some(at), source);
        }
        if let Some((at, host)) = self.due.first() {
            consider(Some(at), Source::Host(host));
        }
        // Outages alternate forever. They count only while something else is pending or an engine
        // may be waiting for its link.
        let waits = || {
            let mut cued = self.net.cued();
            cued.any(|(_, pipe)| !pipe.up) || self.net.exits_cued().any(|(_, pipe)| !pipe.exit.up)
        };
        if next.is_none() && (self.idle_changes >= IDLE_CHANGES_MAX || !waits()) {
            return None;
        }
        let near = self.net.cued().map(|(index, pipe)| (pipe.change, Source::LinkChange(index)));
        let far = self.net.exits_cued();
        let far = far.map(|(index, pipe)| (pipe.exit.change, Source::ExitChange(index)));
        for (change, source) in near.chain(far) {
            let first = |at: &Time| match next {
                Some((earliest, Source::Action)) => *at < earliest,
                Some((earliest, _)) => *at <= earliest,
                None => true,
            };
            if let Some(at) = change.filter(first) {
                next = Some((at, source));
            }
        }
        next
    }

    fn happen(&mut self, at: Time, source: Source) {
        self.now = self.now.max(at);
        self.events += 1;
        self.idle_changes = match source {
            Source::LinkChange(_) | Source::ExitChange(_) => self.idle_changes + 1,
            Source::Action | Source::LinkRoom(_) | Source::Link(_) | Source::Host(_) => 0,
        };
        match source {
            Source::Action => {
                if let Some((_, action)) = self.actions.pop_first() {
                    self.act(action);
                }
            }
            Source::LinkChange(link) => {
                self.net.look(self.now, link);
                let from = self.net.pipes[link].from;
                self.hosts[from].stack.link_changed(self.now, link, &mut self.net);
                self.settle(from);
            }
            Source::ExitChange(link) => {
                self.net.look_at_exit(self.now, link);
                let to = self.net.pipes[link].to;
                self.hosts[to].stack.return_changed(link, &mut self.net);
                self.settle(to);
            }
            Source::LinkRoom(link) => self.make_room(link),
            Source::Link(link) => {
                if let Some(packet) = self.net.pop(self.now, link) {
                    let (from, to) = (self.net.pipes[link].from, self.net.pipes[link].to);
                    self.hosts[to].arrive(self.now, packet, from, &mut self.net);
                    self.settle(to);
                }
            }
            Source::Host(index) => {
                let done = self.hosts[index].act(self.now, &mut self.net, &mut self.indications);
                self.note(index, done);
            }
        }
    }

    fn act(&mut self, action: Action<E>) {
        let Self { hosts, net, now, .. } = self;
        match action {
            Action::Crash(host) => {
                hosts[host.0].crash(*now, net);
                self.settle(host.0);
            }
            Action::Restart(host) => {
                let index = host.0;
                hosts[index].restart(*now, net);
                self.settle(index);
            }
            Action::SetLink(link, change) => {
                let (was_up, exit_was_up) = (net.pipes[link.0].up, net.pipes[link.0].exit.up);
                change(&mut net.pipes[link.0].link, *now);
                net.look(*now, link.0);
                net.look_at_exit(*now, link.0);
                let pipe = &net.pipes[link.0];
                let (from, to, is_up, exit_up) = (pipe.from, pipe.to, pipe.up, pipe.exit.up);
                if was_up != is_up {
                    hosts[from].stack.link_changed(*now, link.0, net);
                    self.settle(from);
                }
                let Self { hosts, net, .. } = self;
                if exit_was_up != exit_up {
                    hosts[to].stack.return_changed(link.0, net);
                    self.settle(to);
                }
            }
            Action::Call(host, request) => {
                if let Some(engine) = hosts[host.0].host.engine_mut() {
                    request(engine, *now);
                    self.settle(host.0);
                }
            }
        }
    }

    /// Handles a full queue that has room again, unless it was filled in the meantime.
    fn make_room(&mut self, link: usize) {
        self.net.look(self.now, link);
        let later = |at: &Time| *at > self.now;
        let blocked = self.net.pipes[link].blocked;
        if blocked.is_some_and(|blocked| blocked.until.as_ref().is_none_or(later)) {
            return;
        }
        self.net.unblock(link);
        let from = self.net.pipes[link].from;
        self.hosts[from].stack.queue_changed(link, &PathEvent::Writable, &self.net);
        self.settle(from);
    }

    fn start_engines(&mut self) {
        for index in std::mem::take(&mut self.unstarted) {
            self.hosts[index].start(self.now, &mut self.net);
            self.settle(index);
        }
    }

    fn settle(&mut self, index: usize) {
        let done = self.hosts[index].drain(self.now, &mut self.net, &mut self.indications);
        self.note(index, done);
    }

    fn note(&mut self, index: usize, done: Result<(), Violation>) {
        self.due.set(index, self.hosts[index].due().filter(|at| *at < Time::MAX));
        if let Err(Violation(why)) = done {
            self.stuck.get_or_insert((HostId(index), why));
        }
    }
}

impl<E: Engine> fmt::Debug for World<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("World")
            .field("now", &self.now)
            .field("events", &self.events)
            .field("hosts", &self.hosts)
            .finish_non_exhaustive()
    }
}

impl<E> fmt::Debug for Action<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Crash(host) => f.debug_tuple("Crash").field(host).finish(),
            Self::Restart(host) => f.debug_tuple("Restart").field(host).finish(),
            Self::SetLink(link, _) => f.debug_tuple("SetLink").field(link).finish(),
            Self::Call(host, _) => f.debug_tuple("Call").field(host).finish(),
        }
    }
}
