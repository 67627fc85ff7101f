//! Engines with stores, and hops between them whose losses and outages are chosen.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use engine::{
    Completion, Effect, EffectError, Engine, FileName, FilestoreRequest, Input, MemoryStore,
    OpenMode, PathEffect, PathEvent, PathId, PathInfo, PathKind, Receive, Rng, StoreEffect, Ticket,
    Time, TxBuf,
};
use session::Buffers;
use testing::memory::Counted;

/// Path of both hosts of a pair.
pub const PATH: PathId = PathId(7);

/// End of a hop: a host, and its path to the other end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct End {
    /// Index of the host.
    pub host: usize,
    /// Its path.
    pub path: PathId,
}

/// Link between two hosts.
#[derive(Clone, Debug)]
pub struct Hop {
    /// Both ends.
    pub ends: [End; 2],
    /// Properties of the paths: those of the hop, unless it is a line.
    pub info: PathInfo,
    /// Properties that the engines do not know.
    pub line: Option<Line>,
    /// Datagrams sent by each end.
    sent: [usize; 2],
    outage: Option<Outage>,
}

/// Line with a queue, which sends packets one after the other.
#[derive(Clone, Debug)]
pub struct Line {
    /// Time from one end to the other.
    pub delay: Duration,
    /// Rate of each direction, in bit/s.
    pub rate_bps: Option<u64>,
    /// Maximum bytes that wait in each direction; the excess is lost.
    pub queue: u64,
    free_at: [Time; 2],
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outage {
    /// The ends were notified.
    Known,
    /// The ends were not notified.
    Unknown,
}

/// Datagram that an end of a hop sends.
pub struct Departure<'a> {
    /// Index of the hop.
    pub hop: usize,
    /// Sending end, which is the host in a pair.
    pub from: usize,
    /// Number of the datagram at this end, from 0.
    pub number: usize,
    /// Its bytes, which may be changed.
    pub bytes: &'a mut Vec<u8>,
}

/// Additional delays of a datagram, one for each copy that arrives.
pub type Fate = Box<dyn FnMut(Departure<'_>) -> Vec<Duration>>;

/// Whether a datagram is lost, given its sending end, its number there, and its bytes.
pub type Losses = Box<dyn FnMut(usize, usize, &mut Vec<u8>) -> bool>;

/// Creates the engine of a host's next run, with what is left in its store.
pub type NextRun<E> = Box<dyn FnMut(usize, &mut Host<E>) -> E>;

/// Reaction of an engine's user to an indication.
pub type React<E> = fn(&mut E, Time, &<E as Engine>::Indication);

/// Datagram that was sent.
#[derive(Clone, Debug)]
pub struct Sent {
    /// Time of sending.
    pub at: Time,
    /// Index of the hop.
    pub hop: usize,
    /// Sending end, which is the host in a pair.
    pub from: usize,
    /// Its bytes.
    pub bytes: Vec<u8>,
    /// Whether no copy arrives.
    pub lost: bool,
}

impl Sent {
    /// Line of a transcript: `>` from the first end, `<` from the second, `x` if lost.
    pub fn line(&self, text: &str) -> String {
        let from = if self.from == 0 { '>' } else { '<' };
        format!("{from}{} {text}", if self.lost { "x" } else { "" })
    }
}

/// Transmission that was pulled before its time.
struct Held {
    path: PathId,
    datagrams: Vec<Vec<u8>>,
    until: Time,
}

/// One host.
pub struct Host<E: Engine> {
    /// The engine.
    pub engine: Counted<E>,
    /// Its store.
    pub store: MemoryStore,
    /// Its indications so far.
    pub indications: Vec<E::Indication>,
    held: Option<Held>,
    paused: BTreeSet<PathId>,
    /// Paths on which nothing can be sent.
    blocked: BTreeSet<PathId>,
    /// Whether it has not been polled since its last input.
    is_unpolled: bool,
    /// Pending effects, if the store is slow.
    pub slow: Option<Vec<StoreEffect>>,
    /// Number of open files.
    files: usize,
    /// Maximum number of open files so far.
    pub files_most: usize,
    /// Effects until the process dies.
    pub dies_after: Option<usize>,
    /// Content of files before their unsynced writes, if a crash may lose these.
    pub unsynced: Option<BTreeMap<FileName, Vec<u8>>>,
    /// Number of restarts.
    pub restarts: u64,
    /// Number of effects on paths and streams that were ignored.
    pub ignored: usize,
    /// Number of expired deadlines.
    pub wakes: usize,
    /// Whether it is switched off: it receives nothing, and has no deadline.
    pub is_off: bool,
}

impl<E: Engine> Host<E> {
    fn new(engine: E) -> Self {
        Self {
            engine: engine.into(),
            store: MemoryStore::new(),
            indications: Vec::new(),
            held: None,
            paused: BTreeSet::new(),
            blocked: BTreeSet::new(),
            is_unpolled: false,
            slow: None,
            files: 0,
            files_most: 0,
            dies_after: None,
            unsynced: None,
            restarts: 0,
            ignored: 0,
            wakes: 0,
            is_off: false,
        }
    }

    /// Loses pages of files that were written since the last sync: those for which `is_lost`.
    pub fn lose_unsynced(&mut self, mut is_lost: impl FnMut() -> bool) {
        const PAGE: usize = 4096;
        for (name, old) in self.unsynced.iter_mut().flat_map(std::mem::take) {
            let Some(bytes) = self.store.get(&name) else { continue };
            let mut bytes = bytes.to_vec();
            if is_lost() {
                bytes.truncate(old.len());
            }
            for (page, from) in bytes.chunks_mut(PAGE).zip((0..).step_by(PAGE)) {
                if is_lost() {
                    page.fill(0);
                    let old = old.get(from..).unwrap_or_default();
                    let len = old.len().min(page.len());
                    page[..len].copy_from_slice(&old[..len]);
                }
            }
            self.store.insert(name, bytes);
        }
    }

    /// Remembers the content of a file before its first write since a sync.
    fn remember(&mut self, effect: &StoreEffect) {
        let Some(unsynced) = &mut self.unsynced else { return };
        match effect {
            // A new file has no content before.
            StoreEffect::Open { name, mode: OpenMode::Truncate, .. } => {
                unsynced.insert(name.clone(), Vec::new());
            }
            StoreEffect::Open { name, .. } if self.store.get(name).is_none() => {
                unsynced.remove(name);
            }
            StoreEffect::Write { file, .. } => {
                if let Some(name) = self.store.name_of(*file)
                    && !unsynced.contains_key(name)
                {
                    let bytes = self.store.get(name).unwrap_or_default().to_vec();
                    unsynced.insert(name.clone(), bytes);
                }
            }
            StoreEffect::Sync { file, .. } => {
                self.store.name_of(*file).map(|name| unsynced.remove(name));
            }
            StoreEffect::Filestore { request, .. } => {
                use FilestoreRequest::{Install, RenameFile};
                if let Install { from, to } | RenameFile { from, to } = request {
                    match unsynced.remove(from) {
                        Some(bytes) => _ = unsynced.insert(to.clone(), bytes),
                        None => _ = unsynced.remove(to),
                    }
                }
            }
            StoreEffect::Open { .. }
            | StoreEffect::Read { .. }
            | StoreEffect::Work { .. }
            | StoreEffect::Close { .. }
            | StoreEffect::Index { .. } => {}
        }
    }

    /// Kills the process: only the store survives.
    fn kill(&mut self) {
        self.store.close_all();
        self.files = 0;
        self.held = None;
        self.paused.clear();
        self.blocked.clear();
        if let Some(slow) = self.slow.as_mut() {
            slow.clear();
        }
    }

    /// Notes whether the engine may send on a path.
    fn on_path_event(&mut self, path: PathId, event: &PathEvent) {
        match event {
            PathEvent::Blocked | PathEvent::Down => _ = self.blocked.insert(path),
            PathEvent::Up(_) | PathEvent::Writable => _ = self.blocked.remove(&path),
            PathEvent::Unsent
            | PathEvent::ReadClosed
            | PathEvent::Missing { .. }
            | PathEvent::Secured(_)
            | PathEvent::ReturnDown
            | PathEvent::ReturnUp => {}
        }
    }

    fn held_until(&self) -> Option<Time> {
        self.held.as_ref().map(|held| held.until)
    }

    fn timer(&self) -> Option<Time> {
        self.engine.poll_timeout().filter(|_| !self.is_off).map(|deadline| deadline.at)
    }
}

impl Hop {
    /// Hop with these properties.
    pub fn new(ends: [End; 2], info: PathInfo) -> Self {
        Self { ends, info, line: None, sent: [0; 2], outage: None }
    }

    fn may_carry(&self, len: usize) -> bool {
        match self.info.kind {
            PathKind::Datagram { mtu } => len <= mtu,
            PathKind::Message { max } => len <= max,
            PathKind::Stream => true,
        }
    }

    /// Sends a datagram from one end: when it has left, if there was room for it.
    fn send(&mut self, from: usize, at: Time, len: usize) -> Option<Time> {
        match &mut self.line {
            Some(line) => line.send(from, at, len),
            None => Some(at + self.info.transmission_time(len)),
        }
    }

    fn delay(&self) -> Duration {
        self.line.as_ref().map_or(self.info.owlt.unwrap_or_default(), |line| line.delay)
    }
}

impl Line {
    /// Line with this delay and rate, and any number of waiting packets.
    pub fn new(delay: Duration, rate_bps: Option<u64>) -> Self {
        Self { delay, rate_bps, queue: u64::MAX, free_at: [Time::ZERO; 2] }
    }

    fn send(&mut self, from: usize, at: Time, len: usize) -> Option<Time> {
        let Some(rate) = self.rate_bps else { return Some(at) };
        let starts = self.free_at[from].max(at);
        let waits = starts.since(at).as_nanos() * u128::from(rate) / 8_000_000_000;
        if waits + len as u128 > u128::from(self.queue) {
            return None;
        }
        let took = Duration::from_nanos(len as u64 * 8_000_000_000 / rate);
        self.free_at[from] = starts + took;
        Some(starts + took)
    }
}

enum Event {
    Arrival { to: End, bytes: Vec<u8> },
    Completion { host: usize, ticket: Ticket, result: Result<Completion, EffectError> },
    Down { hop: usize, outage: Outage },
    Up { hop: usize },
    Crash { host: usize },
}

/// Hosts, and the hops between them.
pub struct World<E: Engine> {
    /// The time.
    pub now: Time,
    /// The hosts.
    pub hosts: Vec<Host<E>>,
    /// The hops.
    pub hops: Vec<Hop>,
    /// Maximum datagrams of a batch.
    pub batch: usize,
    /// Time that effects on stores take.
    pub store_delay: Option<Duration>,
    /// Restarts hosts whose processes die.
    pub next_run: Option<NextRun<E>>,
    /// Reaction of the engines' users to each indication, before it is recorded.
    pub react: Option<React<E>>,
    /// Fate of each datagram.
    pub fate: Fate,
    /// All datagrams so far.
    pub log: Vec<Sent>,
    /// Whether datagrams are recorded.
    pub logging: bool,
    /// Source of stalls: a busy engine gets the next input before it is polled after the last one.
    pub stalls: Option<Rng>,
    /// Number of events so far.
    pub steps: u64,
    events: BTreeMap<(Time, u64), Event>,
    event: u64,
}

/// 25 ms at 10 Mbit/s.
pub fn path_info() -> PathInfo {
    PathInfo {
        rate_bps: Some(10_000_000),
        overhead: 42,
        owlt: Some(Duration::from_millis(25)),
        ..PathInfo::datagram(1024)
    }
}

impl<E: Engine> World<E> {
    /// Two engines with a path between them.
    pub fn between(engines: [E; 2], info: PathInfo) -> Self {
        let ends = [0, 1].map(|host| End { host, path: PATH });
        let mut world = Self::network(Time::ZERO, engines, vec![Hop::new(ends, info)]);
        world.start();
        world
    }

    /// Engines that were not yet notified of their paths.
    pub fn network(now: Time, engines: impl IntoIterator<Item = E>, hops: Vec<Hop>) -> Self {
        Self {
            now,
            hosts: engines.into_iter().map(Host::new).collect(),
            hops,
            batch: 1,
            store_delay: None,
            next_run: None,
            react: None,
            fate: Box::new(|_| once_unless(false)),
            log: Vec::new(),
            logging: true,
            stalls: None,
            steps: 0,
            events: BTreeMap::new(),
            event: 0,
        }
    }

    /// Line of a pair.
    pub fn line(&mut self) -> &mut Line {
        self.hops[0].line.as_mut().expect("its hop is a line")
    }

    /// Switches a host off; only its store survives.
    pub fn switch_off(&mut self, host: usize) {
        self.hosts[host].kill();
        self.hosts[host].is_off = true;
    }

    /// Brings the paths of all hosts up.
    pub fn start(&mut self) {
        (0..self.hosts.len()).for_each(|host| self.up(host));
    }

    /// Loses datagrams from now on, and no others.
    pub fn lose(&mut self, mut lose: impl FnMut(usize, usize, &mut Vec<u8>) -> bool + 'static) {
        self.fate = Box::new(move |it| once_unless(lose(it.from, it.number, it.bytes)));
    }

    /// Brings the paths of a host up.
    pub fn up(&mut self, host: usize) {
        for hop in 0..self.hops.len() {
            for end in self.hops[hop].ends {
                if end.host == host {
                    self.end_up(hop, end);
                }
            }
        }
    }

    fn end_up(&mut self, hop: usize, end: End) {
        let event = PathEvent::Up(self.hops[hop].info.clone());
        self.input(end.host, Input::Path(end.path, event));
        if self.hops[hop].outage == Some(Outage::Known) {
            self.input(end.host, Input::Path(end.path, PathEvent::Down));
        }
    }

    /// Passes an input to a host.
    pub fn input(&mut self, host: usize, input: Input<'_>) {
        let this = &mut self.hosts[host];
        if this.is_off {
            return;
        }
        if let Input::Path(path, event) = &input {
            this.on_path_event(*path, event);
        }
        this.engine.handle_input(self.now, input);
        self.turn(host);
    }

    /// Polls a host, now or after the next input.
    fn turn(&mut self, host: usize) {
        let stalls = self.stalls.as_mut().is_some_and(|rng| rng.chance(0.3));
        if stalls && !self.hosts[host].is_unpolled {
            self.hosts[host].is_unpolled = true;
        } else {
            self.drain(host);
        }
    }

    /// Delivers a datagram that the other host of a pair did not send.
    pub fn hear(&mut self, host: usize, datagram: &[u8]) {
        self.receive(End { host, path: PATH }, datagram);
    }

    /// Delivers a datagram.
    pub fn receive(&mut self, to: End, datagram: &[u8]) {
        self.input(to.host, Input::Receive(Receive::datagram(to.path, datagram)));
    }

    /// Takes a hop down from a moment on, for a time; `is_known` announces it to its ends.
    pub fn outage(&mut self, hop: usize, from: Time, lasts: Duration, is_known: bool) {
        let outage = if is_known { Outage::Known } else { Outage::Unknown };
        self.schedule(from, Event::Down { hop, outage });
        self.schedule(from + lasts, Event::Up { hop });
    }

    /// Kills a process at a moment, and restarts it at once.
    pub fn crash_at(&mut self, host: usize, at: Time) {
        self.schedule(at, Event::Crash { host });
    }

    fn schedule(&mut self, at: Time, event: Event) {
        self.event += 1;
        self.events.insert((at, self.event), event);
    }

    /// Kills a process and replaces it: only the store survives.
    pub fn replace(&mut self, host: usize, engine: E) {
        self.events
            .retain(|_, event| !matches!(event, Event::Completion { host: of, .. } if *of == host));
        let this = &mut self.hosts[host];
        this.kill();
        this.engine = engine.into();
        this.is_off = false;
        this.restarts += 1;
        self.up(host);
    }

    /// Kills a process with its unsynced writes, and restarts it.
    fn crash(&mut self, host: usize) {
        let next_run = self.next_run.as_mut().expect("hosts can be restarted");
        let this = &mut self.hosts[host];
        this.lose_unsynced(|| true);
        this.dies_after = None;
        let engine = next_run(host, this);
        self.replace(host, engine);
    }

    /// Polls a host as a driver does before it waits.
    pub fn drain(&mut self, host: usize) {
        self.hosts[host].is_unpolled = false;
        let mut tx = TxBuf::new(self.batch);
        for _ in 0..1_000_000 {
            let mut busy = false;
            while let Some(effect) = self.hosts[host].engine.poll_effect() {
                busy = true;
                if !self.effect(host, effect) && self.next_run.is_some() {
                    return self.crash(host);
                }
            }
            let this = &mut self.hosts[host];
            while let Some(indication) = this.engine.poll_indication() {
                busy = true;
                if let Some(react) = self.react {
                    this.engine.charge(|engine| react(engine, self.now, &indication));
                }
                this.indications.push(indication);
            }
            tx.clear();
            if this.held.is_none()
                && let Some(transmit) = this.engine.poll_transmit(self.now, &mut tx)
            {
                busy = true;
                let path = transmit.path;
                assert!(!this.blocked.contains(&path), "nothing is sent on a blocked path");
                let datagrams: Vec<_> = tx.datagrams().map(<[u8]>::to_vec).collect();
                let hop = &self.hops[self.hop_of(End { host, path }).0];
                assert!(datagrams.iter().all(|datagram| hop.may_carry(datagram.len())), "{hop:?}");
                let held = Held { path, datagrams, until: transmit.not_before };
                if held.until > self.now {
                    self.hosts[host].held = Some(held);
                } else {
                    self.launch(host, held);
                }
            }
            if !busy {
                return;
            }
        }
        panic!("a drain does not end");
    }

    /// Carries out an effect; `false` if the process dies before.
    fn effect(&mut self, host: usize, effect: Effect) -> bool {
        let this = &mut self.hosts[host];
        match effect {
            Effect::Path(PathEffect::PauseRead { path }) => _ = this.paused.insert(path),
            Effect::Path(PathEffect::ResumeRead { path }) => _ = this.paused.remove(&path),
            Effect::Path(
                PathEffect::Open { .. }
                | PathEffect::Close { .. }
                | PathEffect::Retain { .. }
                | PathEffect::Release { .. },
            )
            | Effect::Stream(_) => this.ignored += 1,
            Effect::Store(effect) => {
                match this.dies_after.as_mut() {
                    Some(0) => return false,
                    Some(left) => *left -= 1,
                    None => {}
                }
                if let Some(slow) = this.slow.as_mut() {
                    slow.push(effect);
                } else {
                    self.execute(host, effect);
                }
            }
        }
        true
    }

    fn execute(&mut self, host: usize, effect: StoreEffect) {
        let this = &mut self.hosts[host];
        this.remember(&effect);
        this.files -= usize::from(matches!(effect, StoreEffect::Close { .. }));
        let Some((ticket, result)) = this.store.execute(effect) else { return };
        this.files += usize::from(matches!(result, Ok(Completion::Opened { .. })));
        this.files_most = this.files_most.max(this.files);
        match self.store_delay {
            Some(delay) => {
                self.schedule(self.now + delay, Event::Completion { host, ticket, result });
            }
            None => this.engine.handle_input(self.now, Input::Done(ticket, result)),
        }
    }

    /// Executes the pending effects of a slow store.
    pub fn work_off(&mut self, host: usize) {
        let Some(waiting) = self.hosts[host].slow.as_mut().map(std::mem::take) else { return };
        for effect in waiting {
            self.execute(host, effect);
        }
        self.drain(host);
    }

    /// Makes a store slow, or carries out all its effects and makes it fast.
    pub fn toggle_slow(&mut self, host: usize) {
        match self.hosts[host].slow {
            Some(_) => self.make_fast(host),
            None => self.hosts[host].slow = Some(Vec::new()),
        }
    }

    /// Carries out all effects of a store that may be slow, and makes it fast.
    pub fn make_fast(&mut self, host: usize) {
        while self.hosts[host].slow.as_ref().is_some_and(|slow| !slow.is_empty()) {
            self.work_off(host);
        }
        self.hosts[host].slow = None;
    }

    fn launch(&mut self, host: usize, Held { path, datagrams, .. }: Held) {
        let (index, from) = self.hop_of(End { host, path });
        let mut at = self.now;
        for mut bytes in datagrams {
            let hop = &mut self.hops[index];
            let number = hop.sent[from];
            hop.sent[from] += 1;
            let before = self.logging.then(|| bytes.clone());
            let left = hop.send(from, at, bytes.len());
            let departure = Departure { hop: index, from, number, bytes: &mut bytes };
            let mut copies = (self.fate)(departure);
            if left.is_none() || hop.outage.is_some() {
                copies.clear();
            }
            let lost = copies.is_empty();
            self.log.extend(before.map(|bytes| Sent { at, hop: index, from, bytes, lost }));
            let (to, is_line) = (hop.ends[1 - from], hop.line.is_some());
            let left = left.unwrap_or(at);
            let arrives = left + hop.delay();
            for later in copies {
                self.schedule(arrives + later, Event::Arrival { to, bytes: bytes.clone() });
            }
            // A line has room for a batch at once, and the rate of a path paces it.
            at = if is_line { at } else { left };
        }
    }

    /// Hop of an end, and its index there. A stranger's path leads to the other host of a pair.
    fn hop_of(&self, end: End) -> (usize, usize) {
        let ends = self.hops.iter().map(|hop| hop.ends.iter().position(|other| *other == end));
        let mut hops = ends.enumerate().filter_map(|(hop, from)| Some((hop, from?)));
        hops.next().unwrap_or_else(|| {
            assert!(self.hops[0].line.is_none(), "no line has the path {:?}", end.path);
            (0, end.host)
        })
    }

    /// Time of the next event.
    pub fn next_time(&self) -> Option<Time> {
        let event = self.events.keys().next().map(|(at, _)| *at);
        let hosts = self.hosts.iter().flat_map(|host| [host.held_until(), host.timer()]);
        hosts.chain([event]).flatten().min()
    }

    /// Whether an event is due by this time.
    pub fn next_is_by(&self, until: Time) -> bool {
        self.next_time().is_some_and(|at| at <= until)
    }

    /// Executes the next event; `false` if there is none.
    pub fn step(&mut self) -> bool {
        let next = self.next_time();
        let unpolled: Vec<_> =
            (0..self.hosts.len()).filter(|host| self.hosts[*host].is_unpolled).collect();
        let Some(rng) = self.stalls.as_mut().filter(|_| !unpolled.is_empty()) else {
            next.inspect(|next| self.execute_next(*next));
            return next.is_some();
        };
        self.now += Duration::from_millis(rng.below(200));
        if let Some(next) = next.filter(|next| *next <= self.now) {
            self.execute_next(next);
        }
        unpolled.into_iter().for_each(|host| self.drain(host));
        true
    }

    /// Executes the event due next.
    fn execute_next(&mut self, next: Time) {
        self.steps += 1;
        self.now = self.now.max(next);
        if self.events.keys().next().is_some_and(|(at, _)| *at == next) {
            let (_, event) = self.events.pop_first().expect("there is an event");
            self.on_event(event);
            return;
        }
        for host in 0..self.hosts.len() {
            if self.hosts[host].held_until().is_some_and(|at| at <= self.now) {
                let held = self.hosts[host].held.take().expect("something is held");
                self.launch(host, held);
                self.drain(host);
                return;
            }
            if self.hosts[host].timer().is_some_and(|at| at <= self.now) {
                self.hosts[host].wakes += 1;
                self.hosts[host].engine.handle_timeout(self.now);
                self.turn(host);
                let after = self.hosts[host].timer().filter(|_| !self.hosts[host].is_unpolled);
                assert!(after.is_none_or(|at| at > self.now), "a deadline in the past: {after:?}");
                return;
            }
        }
    }

    fn on_event(&mut self, event: Event) {
        match event {
            Event::Arrival { to, bytes } => {
                if !self.hosts[to.host].paused.contains(&to.path) {
                    self.receive(to, &bytes);
                }
            }
            Event::Completion { host, ticket, result } => {
                self.input(host, Input::Done(ticket, result));
            }
            Event::Down { hop, outage } => self.on_down(hop, outage),
            Event::Up { hop } => {
                if self.hops[hop].outage.take() == Some(Outage::Known) {
                    self.hops[hop].ends.into_iter().for_each(|end| self.end_up(hop, end));
                }
            }
            Event::Crash { host } => self.crash(host),
        }
    }

    fn on_down(&mut self, hop: usize, outage: Outage) {
        let before = self.hops[hop].outage;
        if before == Some(Outage::Known) {
            return;
        }
        self.hops[hop].outage = Some(outage);
        if outage == Outage::Known {
            for end in self.hops[hop].ends {
                self.input(end.host, Input::Path(end.path, PathEvent::Down));
            }
        }
    }

    /// Runs until no event is left.
    pub fn run(&mut self) {
        for _ in 0..5_000_000 {
            if !self.step() {
                return;
            }
        }
        let deadlines: Vec<_> = self.hosts.iter().map(|host| host.engine.poll_timeout()).collect();
        panic!("no end at {}: {deadlines:?}", self.now);
    }

    /// Runs until a moment.
    pub fn run_until(&mut self, until: Time) {
        while self.next_is_by(until) {
            self.step();
        }
        self.now = self.now.max(until);
    }

    /// Runs for a time.
    pub fn run_for(&mut self, time: Duration) {
        self.run_until(self.now + time);
    }

    /// Transcript without times.
    pub fn lines(&self, mut describe: impl FnMut(&[u8]) -> String) -> Vec<String> {
        self.log.iter().map(|sent| sent.line(&describe(&sent.bytes))).collect()
    }
}

/// A file whose bytes all differ from their neighbours.
pub fn content(len: usize) -> Vec<u8> {
    (0..len as u64).map(|i| (i.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8).collect()
}

/// A file of this name.
pub fn name(path: &str) -> FileName {
    FileName::file(path).expect("a plain name")
}

/// Fate of a datagram that arrives once, without an additional delay, unless it is lost.
pub fn once_unless(is_lost: bool) -> Vec<Duration> {
    if is_lost { Vec::new() } else { vec![Duration::ZERO] }
}

/// Loses the datagrams of the first side with these numbers, counted from 0.
pub fn lose_numbers(numbers: &'static [usize]) -> Losses {
    Box::new(move |side, number, _| side == 0 && numbers.contains(&number))
}

/// Loses one datagram in `n` of the first side, at random.
pub fn lose_one_in(n: u64, seed: u64) -> Losses {
    let mut rng = Rng::new(seed, "losses");
    Box::new(move |side, _, _| side == 0 && rng.below(n) == 0)
}

/// Buffers so small that tests soon reach their bounds.
pub fn small_buffers() -> Buffers {
    Buffers {
        write_buffer: 64 << 10,
        write_piece: 1 << 10,
        read_ahead: 4 << 10,
        read_piece: 1 << 10,
        ..Buffers::default()
    }
}
