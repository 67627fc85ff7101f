//! Two layers over paths of datagrams with chosen losses.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bytes::Bytes;
use engine::{
    Area, Effect, FileName, FilestoreRequest, Input, MemoryStore, PathEffect, PathEvent, PathId,
    PathInfo, Receive, Rng, StoreEffect, Ticket, Time, TxBuf,
};

use super::super::agent;
use super::super::layer::{
    Command, Content, Event, Identity, Layer, LinkId, Outcome, Outgoing, Refusal, Tag, TransferId,
};

/// Link of both.
pub(crate) const LINK: LinkId = LinkId(1);
/// Path of both.
pub(crate) const PATH: PathId = PathId(1);

/// A layer with its store.
pub(crate) struct Host<L: ?Sized> {
    pub(crate) layer: Box<L>,
    pub(crate) store: MemoryStore,
    pub(crate) events: Vec<Event>,
}

impl<L: Layer + ?Sized> Host<L> {
    pub(crate) fn new(layer: Box<L>) -> Self {
        Self { layer, store: store(), events: Vec::new() }
    }

    /// Executes pending effects and records events; complete bundles are accepted if `accepts`.
    /// Returns the effects on paths, or `None` if nothing was pending.
    pub(crate) fn turn(&mut self, now: Time, accepts: bool) -> Option<Vec<Effect>> {
        let mut effects = engine::execute_effects(now, &mut *self.layer, &mut self.store);
        while let Some(event) = self.layer.poll_indication() {
            effects.get_or_insert_default();
            if let Event::Whole { link, transfer, .. } = event
                && accepts
            {
                self.layer.command(now, Command::Accept { link, transfer });
            }
            self.events.push(event);
        }
        effects
    }

    /// Results of the bundles that were sent, with their tags.
    pub(crate) fn outcomes(&self) -> Vec<(u64, Outcome)> {
        let sent = self.events.iter().filter_map(|event| match event {
            Event::Sent { tag, outcome, .. } => Some((tag.0, *outcome)),
            _ => None,
        });
        sent.collect()
    }
}

/// Datagrams of one of the two.
#[derive(Default)]
pub(crate) struct Wire {
    /// Datagrams sent.
    pub(crate) sent: Vec<Vec<u8>>,
    /// Times at which they were sent.
    pub(crate) times: Vec<Time>,
    /// Indices of lost datagrams.
    pub(crate) lost: BTreeSet<usize>,
    pub(crate) is_paused: bool,
    waiting: Vec<Vec<u8>>,
    /// Departure of the last datagram.
    departed: Option<Time>,
}

/// Probabilities, in thousandths.
#[derive(Clone, Copy, Default)]
pub(crate) struct Chance {
    pub(crate) loss: u64,
    pub(crate) doubled: u64,
    pub(crate) late: u64,
}

/// Two layers.
pub(crate) struct Pair {
    pub(crate) now: Time,
    pub(crate) ends: [Host<dyn Layer>; 2],
    pub(crate) wires: [Wire; 2],
    pub(crate) delay: Duration,
    pub(crate) chance: Chance,
    pub(crate) rng: Rng,
    /// Whether complete bundles are accepted.
    pub(crate) accepts: bool,
    pub(crate) is_up: bool,
    /// Paths to the other, at each of the two.
    pub(crate) paths: [PathId; 2],
    /// Datagrams polled at one time.
    pub(crate) batch: usize,
    /// Whether other events happen between the departures of two datagrams, as on a link.
    pub(crate) is_paced: bool,
    flying: BTreeMap<(Time, u64), (usize, Vec<u8>)>,
    number: u64,
    info: PathInfo,
}

impl Pair {
    pub(crate) fn new(layers: [Box<dyn Layer>; 2], info: PathInfo, seed: u64) -> Self {
        let mut pair = Self {
            now: Time::from_secs(1),
            ends: layers.map(Host::new),
            wires: [Wire::default(), Wire::default()],
            delay: Duration::from_millis(10),
            chance: Chance::default(),
            rng: Rng::new(seed, "pair"),
            accepts: true,
            is_up: false,
            paths: [PATH; 2],
            batch: 8,
            is_paced: false,
            flying: BTreeMap::new(),
            number: 0,
            info,
        };
        for n in 0..2 {
            pair.command(n, Command::Open { link: LINK });
        }
        pair.up();
        pair
    }

    pub(crate) fn up(&mut self) {
        if !std::mem::replace(&mut self.is_up, true) {
            self.path_event(&PathEvent::Up(self.info.clone()));
        }
    }

    pub(crate) fn down(&mut self) {
        if std::mem::take(&mut self.is_up) {
            self.flying.clear();
            self.path_event(&PathEvent::Down);
        }
    }

    fn path_event(&mut self, event: &PathEvent) {
        for n in 0..2 {
            let path = Input::Path(self.paths[n], event.clone());
            self.ends[n].layer.handle_input(self.now, path);
            self.drain(n);
        }
    }

    pub(crate) fn command(&mut self, n: usize, command: Command) {
        self.ends[n].layer.command(self.now, command);
        self.drain(n);
    }

    /// Sends a bundle from the first to the second.
    pub(crate) fn send(&mut self, tag: u64, payload: Content) {
        self.send_from(0, tag, payload, true);
    }

    pub(crate) fn send_from(&mut self, n: usize, tag: u64, payload: Content, reliable: bool) {
        self.send_as(n, tag, payload, reliable, None);
    }

    pub(crate) fn send_as(
        &mut self,
        n: usize,
        tag: u64,
        payload: Content,
        reliable: bool,
        identity: Option<Identity>,
    ) {
        // Begins like a bundle of version 7.
        let (head, tail) = (Bytes::from_static(b"\x9fhead"), Bytes::from_static(b"!"));
        let bundle = Outgoing { head, payload, tail, reliable, identity };
        self.command(n, Command::Send { link: LINK, tag: Tag(tag), bundle });
    }

    /// Replaces a layer by one of the next run, with the same store.
    pub(crate) fn restart(&mut self, n: usize, layer: Box<dyn Layer>) {
        self.flying.retain(|_, (to, _)| *to != n);
        let end = &mut self.ends[n];
        end.layer = layer;
        end.store.close_all();
        end.events.retain(|event| matches!(event, Event::Sent { .. }));
        let wire = &mut self.wires[n];
        (wire.is_paused, wire.waiting) = (false, Vec::new());
        self.command(n, Command::Open { link: LINK });
        let up = Input::Path(self.paths[n], PathEvent::Up(self.info.clone()));
        self.ends[n].layer.handle_input(self.now, up);
        self.drain(n);
    }

    /// Bytes sent.
    fn bytes_sent(&self, n: usize) -> usize {
        self.wires[n].sent.iter().map(Vec::len).sum()
    }

    fn fly(&mut self, from: usize, datagram: &[u8]) {
        let wire = &mut self.wires[from];
        let place = wire.sent.len();
        wire.sent.push(datagram.to_vec());
        wire.times.push(self.now);
        let is_lost = wire.lost.contains(&place) || self.rng.below(1000) < self.chance.loss;
        if is_lost || !self.is_up {
            return;
        }
        let copies = 1 + u64::from(self.rng.below(1000) < self.chance.doubled);
        for _ in 0..copies {
            let is_late = self.rng.below(1000) < self.chance.late;
            let late = if is_late { self.delay.mul_f64(3.0) } else { Duration::ZERO };
            self.number += 1;
            let at = self.now + self.delay + late;
            self.flying.insert((at, self.number), (1 - from, datagram.to_vec()));
        }
    }

    pub(crate) fn drain(&mut self, n: usize) {
        loop {
            let mut some = false;
            let mut tx = TxBuf::new(self.batch);
            let has_left = self.wires[n].departed.is_none_or(|at| at <= self.now);
            if self.is_up
                && (!self.is_paced || has_left)
                && let Some(transmit) = self.ends[n].layer.poll_transmit(self.now, &mut tx)
            {
                some = true;
                assert_eq!(transmit.path, self.paths[n]);
                // The driver keeps the pace.
                let before = self.now;
                self.now = self.now.max(transmit.not_before);
                let datagrams: Vec<Vec<u8>> = tx.datagrams().map(<[u8]>::to_vec).collect();
                for datagram in datagrams {
                    self.fly(n, &datagram);
                }
                self.wires[n].departed = Some(self.now);
                if self.is_paced {
                    self.now = before;
                } else if self.now > before {
                    return self.drain(n);
                }
            }
            let effects = self.ends[n].turn(self.now, self.accepts);
            if !some && effects.is_none() {
                return;
            }
            for effect in effects.into_iter().flatten() {
                match effect {
                    Effect::Path(PathEffect::PauseRead { .. }) => self.wires[n].is_paused = true,
                    Effect::Path(PathEffect::ResumeRead { .. }) => self.wires[n].is_paused = false,
                    Effect::Path(PathEffect::Retain { .. } | PathEffect::Release { .. }) => {}
                    other => panic!("{other:?}"),
                }
            }
        }
    }

    /// Advances time, and executes all events until then.
    pub(crate) fn pass(&mut self, time: Duration) {
        let until = self.now + time;
        loop {
            for n in 0..2 {
                if !self.wires[n].is_paused {
                    for datagram in std::mem::take(&mut self.wires[n].waiting) {
                        self.arrive(n, datagram);
                    }
                }
            }
            let flying = self.flying.first_key_value().map(|((at, _), _)| *at);
            let due = self.ends.iter().filter_map(|end| end.layer.poll_timeout()).map(|d| d.at);
            let departures = self.wires.iter().filter_map(|wire| wire.departed);
            let departures = departures.filter(|at| self.is_paced && *at > self.now);
            let next = flying.into_iter().chain(due).chain(departures).min();
            let Some(next) = next.filter(|next| *next <= until.max(self.now)) else { break };
            self.now = self.now.max(next);
            while let Some(entry) = self.flying.first_entry().filter(|e| e.key().0 <= self.now) {
                let (to, datagram) = entry.remove();
                self.arrive(to, datagram);
            }
            for n in 0..2 {
                self.ends[n].layer.handle_timeout(self.now);
                self.drain(n);
                let after = self.ends[n].layer.poll_timeout();
                assert!(after.is_none_or(|deadline| deadline.at > self.now), "{after:?}");
            }
        }
        self.now = self.now.max(until);
    }

    fn arrive(&mut self, to: usize, datagram: Vec<u8>) {
        if self.wires[to].is_paused {
            self.wires[to].waiting.push(datagram);
            return;
        }
        let receive = Receive::datagram(self.paths[to], &datagram);
        self.ends[to].layer.handle_input(self.now, Input::Receive(receive));
        self.drain(to);
    }

    /// Bundles received whole, in order.
    pub(crate) fn came(&self, n: usize) -> Vec<Vec<u8>> {
        let came = came(&self.ends[n].events, &self.ends[n].store);
        came.into_iter().map(|(_, bundle)| bundle).collect()
    }

    pub(crate) fn outcomes(&self, n: usize) -> Vec<(u64, Outcome)> {
        self.ends[n].outcomes()
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.ends.iter().all(|end| end.layer.poll_timeout().is_none())
    }
}

/// Bundles received whole, and their links.
pub(crate) fn came(events: &[Event], store: &MemoryStore) -> Vec<(LinkId, Vec<u8>)> {
    let mut parts: BTreeMap<TransferId, Vec<u8>> = BTreeMap::new();
    let mut whole = Vec::new();
    for event in events {
        match event {
            Event::Begins { transfer, .. } => {
                assert!(parts.insert(*transfer, Vec::new()).is_none(), "it began twice");
            }
            Event::Piece { transfer, bytes, .. } => {
                parts.get_mut(transfer).expect("it began").extend_from_slice(bytes);
            }
            Event::Whole { link, transfer, file } => {
                let bytes = parts.remove(transfer).expect("it began");
                let bytes = file.as_ref().map_or(bytes, |(name, len)| {
                    let bytes = store.get(name).expect("it is there");
                    assert_eq!(bytes.len() as u64, *len);
                    bytes.to_vec()
                });
                whole.push((*link, bytes));
            }
            Event::Broken { transfer, .. } => {
                parts.remove(transfer).expect("it began");
            }
            _ => {}
        }
    }
    whole
}

/// Store with the directory of an agent.
pub(crate) fn store() -> MemoryStore {
    let mut store = MemoryStore::new();
    let request = FilestoreRequest::CreateDirectory(agent::Config::default().directory);
    store.execute(StoreEffect::Filestore { ticket: Ticket(0), request });
    store
}

/// Number of files.
pub(crate) fn files(store: &MemoryStore) -> usize {
    let names = store.names(Area::Spool).chain(store.names(Area::Files));
    names.filter(|name| store.get(name).is_some()).count()
}

/// Payload of `len` bytes.
pub(crate) fn bytes(len: usize) -> Vec<u8> {
    (0..len).map(|n| (n * 11 + n / 256) as u8).collect()
}

/// Bundle with that payload.
pub(crate) fn whole(len: usize) -> Vec<u8> {
    [b"\x9fhead", &bytes(len)[..], b"!"].concat()
}

/// Payload in memory.
pub(crate) fn content(len: usize) -> Content {
    Content::Bytes(bytes(len).into())
}

/// Checks that bundles of these lengths, from memory and from files, arrive over lossy paths.
pub(crate) fn assert_arrive(seed: u64, mut pair: Pair, lengths: &[usize]) {
    pair.chance = Chance { loss: 20 * seed, doubled: 20, late: 100 };
    for (tag, len) in lengths.iter().enumerate() {
        let file = in_file(&mut pair, *len);
        pair.send(tag as u64, file);
        pair.send(tag as u64 + 100, content(*len));
    }
    pair.pass(Duration::from_secs(1000));
    let mut came = pair.came(1);
    came.sort_by_key(Vec::len);
    let expected: Vec<_> = lengths.iter().flat_map(|len| [whole(*len), whole(*len)]).collect();
    let found: Vec<_> = came.iter().map(Vec::len).collect();
    assert!(came == expected, "seed {seed}: {found:?}");
    let outcomes = pair.outcomes(0);
    assert_eq!(outcomes.len(), expected.len());
    assert!(outcomes.iter().all(|(_, outcome)| *outcome == Outcome::Acknowledged));
}

/// Checks that bundles of these lengths are not confirmed before the agent accepts them, `wait`
/// after they were sent.
pub(crate) fn assert_waits(pair: impl Fn() -> Pair, wait: Duration, lengths: &[usize]) {
    for len in lengths {
        let mut pair = pair();
        pair.accepts = false;
        pair.send(1, content(*len));
        pair.pass(wait);
        assert_eq!(pair.came(1), [whole(*len)]);
        assert_eq!(pair.outcomes(0), []);
        pair.command(1, Command::Accept { link: LINK, transfer: TransferId(0) });
        pair.pass(Duration::from_secs(50));
        assert_eq!(pair.outcomes(0), [(1, Outcome::Acknowledged)]);
        assert!(pair.is_idle());
    }
}

/// Checks the outcomes of bundles of these lengths that the agent refuses for these reasons, and
/// that their working files are deleted.
pub(crate) fn assert_refused(
    pair: impl Fn() -> Pair,
    lengths: &[usize],
    cases: &[(Refusal, Outcome)],
) {
    for (why, outcome) in cases.iter().copied() {
        for len in lengths {
            let mut pair = pair();
            pair.accepts = false;
            pair.send(1, content(*len));
            pair.pass(Duration::from_millis(500));
            pair.command(1, Command::Refuse { link: LINK, transfer: TransferId(0), why });
            pair.pass(Duration::from_secs(10_000));
            assert_eq!(pair.outcomes(0), [(1, outcome)], "{why:?} {len}");
            assert_eq!(files(&pair.ends[1].store), 0, "{why:?} {len}");
            assert!(pair.is_idle(), "{why:?} {len}");
        }
    }
}

/// Checks that a bundle waits while the agent pauses.
pub(crate) fn assert_pauses(mut pair: Pair) {
    pair.command(1, Command::Pause { link: LINK });
    pair.send(1, content(100));
    pair.pass(Duration::from_millis(500));
    assert_eq!(pair.came(1).len(), 0);
    assert_eq!(pair.outcomes(0), []);
    pair.command(1, Command::Resume { link: LINK });
    pair.pass(Duration::from_secs(50));
    assert_eq!(pair.came(1), [whole(100)]);
    assert_eq!(pair.outcomes(0), [(1, Outcome::Acknowledged)]);
}

/// Checks that a contact that ends lets the bundle in transit complete, and takes no other.
pub(crate) fn assert_completes(mut pair: Pair) {
    let failed = Outcome::Failed { acknowledged: 0 };
    pair.send(1, content(50_000));
    pair.command(0, Command::Close { link: LINK });
    pair.send(2, content(10));
    assert_eq!(pair.outcomes(0), [(2, failed)]);
    pair.pass(Duration::from_secs(10));
    assert_eq!(pair.outcomes(0), [(2, failed), (1, Outcome::Acknowledged)]);
    assert!(matches!(pair.ends[0].events.last(), Some(Event::Down { .. })));
    assert!(pair.is_idle());
}

/// Checks that a long bundle continues after restarts of the first or the second, which `layer`
/// makes again for a seed.
pub(crate) fn assert_continues(layer: impl Fn(usize, u64) -> Box<dyn Layer>) {
    const LEN: usize = 4_000_000;
    let identity = |resumes| Some(Identity { number: 0x0123_4567_89ab_cdef, resumes });
    let near = [(0, 2, 0), (0, 4, 20), (1, 2, 0), (1, 4, 20)].map(|case| (case, 10));
    // The run after a restart knows nothing of the round trip. Data in flight is lost.
    let moon = [((0, 2, 0), 1280), ((1, 2, 0), 1280)];
    for ((n, runs, loss), delay) in near.into_iter().chain(moon) {
        let info = PathInfo { rate_bps: Some(10_000_000), ..PathInfo::datagram(1472) };
        let mut pair = Pair::new([layer(0, 7), layer(1, 7)], info, 7);
        (pair.is_paced, pair.delay) = (true, Duration::from_millis(delay));
        pair.chance = Chance { loss, ..Chance::default() };
        let content = in_file(&mut pair, LEN);
        pair.send_as(0, 1, content.clone(), true, identity(false));
        let piece = LEN / runs;
        for run in 1..runs {
            while pair.bytes_sent(0) < run * piece {
                pair.pass(Duration::from_millis(1));
            }
            pair.restart(n, layer(n, run as u64 + 7));
            if n == 0 {
                pair.send_as(0, 1, content.clone(), true, identity(true));
            }
        }
        pair.pass(Duration::from_secs(2000));
        let case = format!("restarts of {n}, {runs} runs, loss {loss}, {delay} ms");
        assert!(pair.came(1) == [whole(LEN)], "{case}");
        assert_eq!(pair.outcomes(0), [(1, Outcome::Acknowledged)], "{case}");
        // A restart costs what came after the last save, and a layer that starts over sends at
        // least a quarter of it again.
        let in_flight = 1_250_000 * delay as usize / 1000 * n;
        let most = LEN * (1030 + loss as usize) / 1000 + (runs - 1) * (350_000 + in_flight);
        let sent = pair.bytes_sent(0);
        assert!(sent < most, "{case}: {sent} bytes of at most {most}");
        assert_eq!(files(&pair.ends[1].store), 1, "{case}");
    }
}

/// Checks that a bundle that the agent has stays as it is when both are restarted and its session
/// is repeated, because the sender has not seen the reply. It arrives before anything is saved.
pub(crate) fn assert_repeats(layer: impl Fn(usize, u64) -> Box<dyn Layer>) {
    let len = 100_000;
    let identity = |resumes| Some(Identity { number: 0x0123_4567_89ab_cdef, resumes });
    let info = PathInfo { rate_bps: Some(10_000_000), ..PathInfo::datagram(1472) };
    let mut pair = Pair::new([layer(0, 7), layer(1, 7)], info, 7);
    let content = in_file(&mut pair, len);
    pair.send_as(0, 1, content.clone(), true, identity(false));
    pair.pass(Duration::from_secs(100));
    let held = pair.ends[1].events.iter().find_map(|event| match event {
        Event::Whole { file, .. } => file.clone(),
        _ => None,
    });
    let (held, _) = held.expect("it came in a file");
    for n in [1, 0] {
        pair.restart(n, layer(n, 8));
    }
    pair.send_as(0, 2, content, true, identity(true));
    for until in 0..20 {
        pair.pass(Duration::from_millis(10));
        let bytes = pair.ends[1].store.get(&held);
        assert!(bytes == Some(&whole(len)[..]), "after {until}0 ms: {:?}", bytes.map(<[u8]>::len));
    }
    pair.pass(Duration::from_secs(1000));
    assert_eq!(pair.outcomes(0), [(1, Outcome::Acknowledged), (2, Outcome::Acknowledged)]);
    assert!(pair.ends[1].store.get(&held) == Some(&whole(len)[..]));
}

/// Payload in a file, in the store of the first.
pub(crate) fn in_file(pair: &mut Pair, len: usize) -> Content {
    let name = FileName::spool(&format!("bp/{len}")).expect("it is a name");
    pair.ends[0].store.insert(name.clone(), bytes(len));
    Content::File { name, offset: 0, len: len as u64 }
}
