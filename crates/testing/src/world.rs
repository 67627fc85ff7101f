//! Two engines, their stores, and a link between them with chosen losses.

use std::collections::BTreeMap;
use std::time::Duration;

use engine::{
    Area, Completion, Effect, Engine, FileName, Input, MemoryStore, PathEffect, PathEvent, PathId,
    PathInfo, Receive, Rng, StoreEffect, Time, TxBuf,
};
use session::Buffers;
use testing::memory::Counted;

/// Path of both sides.
pub const PATH: PathId = PathId(7);

/// Fate of a datagram, given the sending side, its number there, and its bytes. `true` loses it.
pub type Fate = Box<dyn FnMut(usize, usize, &mut Vec<u8>) -> bool>;

/// Datagram: time, sending side, bytes, and whether it was lost.
pub type Sent = (Time, usize, Vec<u8>, bool);

/// One host.
pub struct Side<E: Engine> {
    /// The engine.
    pub engine: Counted<E>,
    /// Its store.
    pub store: MemoryStore,
    /// Its indications so far.
    pub indications: Vec<E::Indication>,
    held: Option<(Vec<Vec<u8>>, Time)>,
    paused: bool,
    /// Pending effects, if the store is slow.
    pub slow: Option<Vec<StoreEffect>>,
    /// Number of open files, and its maximum.
    files: usize,
    /// Maximum number of open files so far.
    pub files_most: usize,
    /// Effects until the process dies.
    pub dies_after: Option<usize>,
    /// Content of files when they were last synced, if a crash may lose later writes.
    pub synced: Option<BTreeMap<FileName, Vec<u8>>>,
}

/// Two hosts and the link between them.
pub struct World<E: Engine> {
    /// The time.
    pub now: Time,
    /// The hosts.
    pub sides: [Side<E>; 2],
    /// Properties of the link.
    pub info: PathInfo,
    /// Maximum datagrams of a batch.
    pub batch: usize,
    events: BTreeMap<(Time, u64), (usize, Vec<u8>)>,
    event: u64,
    sent: [usize; 2],
    /// Fate of each datagram.
    pub lose: Fate,
    /// All datagrams so far.
    pub log: Vec<Sent>,
    /// Whether datagrams are recorded.
    pub logging: bool,
    /// Source of stalls: a busy engine gets the next input before it is polled after the last one.
    pub stalls: Option<Rng>,
    /// Sides that have not been polled.
    unpolled: [bool; 2],
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
        let sides = engines.map(|engine| Side {
            engine: engine.into(),
            store: MemoryStore::new(),
            indications: Vec::new(),
            held: None,
            paused: false,
            slow: None,
            files: 0,
            files_most: 0,
            dies_after: None,
            synced: None,
        });
        let mut world = Self {
            now: Time::ZERO,
            sides,
            info,
            batch: 1,
            events: BTreeMap::new(),
            event: 0,
            sent: [0; 2],
            lose: Box::new(|_, _, _| false),
            log: Vec::new(),
            logging: true,
            stalls: None,
            unpolled: [false; 2],
        };
        for side in 0..2 {
            world.up(side);
        }
        world
    }

    /// Brings the path of a side up.
    pub fn up(&mut self, side: usize) {
        let event = PathEvent::Up(self.info.clone());
        self.input(side, Input::Path(PATH, event));
    }

    /// Passes an input to a side.
    pub fn input(&mut self, side: usize, input: Input<'_>) {
        self.sides[side].engine.handle_input(self.now, input);
        self.turn(side);
    }

    /// Polls a side, now or after the next input.
    fn turn(&mut self, side: usize) {
        let stalls = self.stalls.as_mut().is_some_and(|rng| rng.chance(0.3));
        if stalls && !self.unpolled[side] {
            self.unpolled[side] = true;
        } else {
            self.drain(side);
        }
    }

    /// Delivers a datagram that the other side did not send.
    pub fn hear(&mut self, side: usize, datagram: &[u8]) {
        self.input(side, Input::Receive(Receive::datagram(PATH, datagram)));
    }

    /// Kills a process and replaces it: only the store survives.
    pub fn replace(&mut self, side: usize, engine: E) {
        let host = &mut self.sides[side];
        host.store.close_all();
        host.files = 0;
        host.held = None;
        host.paused = false;
        if let Some(slow) = host.slow.as_mut() {
            slow.clear();
        }
        host.engine = engine.into();
        self.up(side);
    }

    /// Loses some of the pages of a side's working files that were written since the last sync.
    pub fn lose_unsynced(&mut self, side: usize, rng: &mut Rng) {
        const PAGE: usize = 4096;
        let host = &mut self.sides[side];
        let Some(synced) = &host.synced else { return };
        let names: Vec<_> = host.store.names(Area::Spool).cloned().collect();
        for name in names {
            let old = synced.get(&name).map(Vec::as_slice).unwrap_or_default();
            let mut bytes = host.store.get(&name).unwrap_or_default().to_vec();
            if rng.chance(0.5) {
                bytes.truncate(old.len());
            }
            for (page, from) in bytes.chunks_mut(PAGE).zip((0..).step_by(PAGE)) {
                if rng.chance(0.5) {
                    page.fill(0);
                    let old = old.get(from..).unwrap_or_default();
                    let len = old.len().min(page.len());
                    page[..len].copy_from_slice(&old[..len]);
                }
            }
            host.store.insert(name, bytes);
        }
    }

    /// Polls a side as a driver does before it waits.
    pub fn drain(&mut self, side: usize) {
        self.unpolled[side] = false;
        loop {
            let mut busy = false;
            while let Some(effect) = self.sides[side].engine.poll_effect() {
                busy = true;
                self.effect(side, effect);
            }
            while let Some(indication) = self.sides[side].engine.poll_indication() {
                busy = true;
                self.sides[side].indications.push(indication);
            }
            if self.sides[side].held.is_none() {
                let mut tx = TxBuf::new(self.batch);
                if let Some(transmit) = self.sides[side].engine.poll_transmit(self.now, &mut tx) {
                    busy = true;
                    let datagrams: Vec<_> = tx.datagrams().map(<[u8]>::to_vec).collect();
                    assert!(datagrams.iter().all(|datagram| datagram.len() <= 1472));
                    if transmit.not_before > self.now {
                        self.sides[side].held = Some((datagrams, transmit.not_before));
                    } else {
                        self.launch(side, datagrams);
                    }
                }
            }
            if !busy {
                return;
            }
        }
    }

    fn effect(&mut self, side: usize, effect: Effect) {
        let host = &mut self.sides[side];
        match effect {
            Effect::Path(PathEffect::PauseRead { .. }) => host.paused = true,
            Effect::Path(PathEffect::ResumeRead { .. }) => host.paused = false,
            Effect::Path(
                PathEffect::Open { .. }
                | PathEffect::Close { .. }
                | PathEffect::Retain { .. }
                | PathEffect::Release { .. },
            )
            | Effect::Stream(_) => {}
            Effect::Store(effect) => {
                match host.dies_after.as_mut() {
                    Some(0) => return,
                    Some(left) => *left -= 1,
                    None => {}
                }
                if let Some(slow) = host.slow.as_mut() {
                    slow.push(effect);
                } else {
                    self.execute(side, effect);
                }
            }
        }
    }

    fn execute(&mut self, side: usize, effect: StoreEffect) {
        let host = &mut self.sides[side];
        if let (Some(synced), StoreEffect::Sync { file, .. }) = (&mut host.synced, &effect)
            && let Some(name) = host.store.name_of(*file).cloned()
        {
            let bytes = host.store.get(&name).unwrap_or_default().to_vec();
            synced.insert(name, bytes);
        }
        host.files -= usize::from(matches!(effect, StoreEffect::Close { .. }));
        if let Some((ticket, result)) = host.store.execute(effect) {
            host.files += usize::from(matches!(result, Ok(Completion::Opened { .. })));
            host.files_most = host.files_most.max(host.files);
            host.engine.handle_input(self.now, Input::Done(ticket, result));
        }
    }

    /// Executes the pending effects of a slow store.
    pub fn work_off(&mut self, side: usize) {
        let Some(waiting) = self.sides[side].slow.as_mut().map(std::mem::take) else { return };
        for effect in waiting {
            self.execute(side, effect);
        }
        self.drain(side);
    }

    fn launch(&mut self, side: usize, datagrams: Vec<Vec<u8>>) {
        let mut at = self.now;
        for mut datagram in datagrams {
            let number = self.sent[side];
            self.sent[side] += 1;
            let before = self.logging.then(|| datagram.clone());
            let lost = (self.lose)(side, number, &mut datagram);
            self.log.extend(before.map(|before| (at, side, before, lost)));
            at += self.info.transmission_time(datagram.len());
            if !lost {
                let delay = self.info.owlt.unwrap_or_default();
                self.event += 1;
                self.events.insert((at + delay, self.event), (1 - side, datagram));
            }
        }
    }

    fn held_until(&self, side: usize) -> Option<Time> {
        self.sides[side].held.as_ref().map(|(_, at)| *at)
    }

    fn timer(&self, side: usize) -> Option<Time> {
        self.sides[side].engine.poll_timeout().map(|deadline| deadline.at)
    }

    fn next_time(&self) -> Option<Time> {
        let event = self.events.keys().next().map(|(at, _)| *at);
        let sides = (0..2).flat_map(|side| [self.held_until(side), self.timer(side)]);
        sides.chain([event]).flatten().min()
    }

    /// Whether an event is due by this time.
    pub fn next_is_by(&self, until: Time) -> bool {
        self.next_time().is_some_and(|at| at <= until)
    }

    /// Executes the next event; `false` if there is none.
    pub fn step(&mut self) -> bool {
        let next = self.next_time();
        let unpolled = self.unpolled;
        let Some(rng) = self.stalls.as_mut().filter(|_| unpolled.contains(&true)) else {
            return next.is_some_and(|next| self.happens(next));
        };
        self.now += Duration::from_millis(rng.below(200));
        if let Some(next) = next.filter(|next| *next <= self.now) {
            self.happens(next);
        }
        for side in (0..2).filter(|side| unpolled[*side]) {
            self.drain(side);
        }
        true
    }

    /// Executes the event due next.
    fn happens(&mut self, next: Time) -> bool {
        let event = self.events.keys().next().map(|(at, _)| *at);
        self.now = self.now.max(next);
        if event == Some(next) {
            let (_, (to, datagram)) = self.events.pop_first().expect("there is an event");
            if !self.sides[to].paused {
                self.hear(to, &datagram);
            }
            return true;
        }
        for side in 0..2 {
            if self.held_until(side).is_some_and(|at| at <= self.now) {
                let (datagrams, _) = self.sides[side].held.take().expect("something is held");
                self.launch(side, datagrams);
                self.drain(side);
                return true;
            }
            if self.timer(side).is_some_and(|at| at <= self.now) {
                self.sides[side].engine.handle_timeout(self.now);
                self.turn(side);
                let after = self.timer(side).filter(|_| !self.unpolled[side]);
                assert!(after.is_none_or(|at| at > self.now), "a deadline in the past: {after:?}");
                return true;
            }
        }
        true
    }

    /// Runs until no event is left.
    pub fn run(&mut self) {
        for _ in 0..5_000_000 {
            if !self.step() {
                return;
            }
        }
        panic!("no end at {}: {:?}", self.now, self.sides[0].engine.poll_timeout());
    }

    /// Runs until a moment.
    pub fn run_until(&mut self, until: Time) {
        while self.next_time().is_some_and(|at| at <= until) {
            self.step();
        }
        self.now = self.now.max(until);
    }

    /// Transcript without times: `>` from the first side, `<` from the second, `x` if lost.
    pub fn lines(&self, mut describe: impl FnMut(&[u8]) -> String) -> Vec<String> {
        let line = |(_, side, datagram, lost): &Sent| {
            let (from, lost) = (if *side == 0 { '>' } else { '<' }, if *lost { "x" } else { "" });
            format!("{from}{lost} {}", describe(datagram))
        };
        self.log.iter().map(line).collect()
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

/// Loses the datagrams of the first side with these numbers, counted from 0.
pub fn lose_numbers(numbers: &'static [usize]) -> Fate {
    Box::new(move |side, number, _| side == 0 && numbers.contains(&number))
}

/// Loses one datagram in `n` of the first side, at random.
pub fn lose_one_in(n: u64, seed: u64) -> Fate {
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
