//! A node of an emulated world: its engine, its store, and what happens to it when.

use std::collections::{BTreeSet, VecDeque};
use std::mem;
use std::sync::Arc;
use std::time::Duration;

use emu::Timings;
use engine::{
    Deadline, Effect, Engine, Input, PathEvent, PathId, PathInfo, Receive, Rng, Time, Transmit,
    TxBuf,
};
use link::Outages;
use sim::{HEADERS_LEN, HostStats, Store};
use transport::{Configuration, Ended, Event, SendRequest, Transport};

/// What happens to a node at a moment of the plan.
#[derive(Clone, Debug)]
pub(crate) enum Act {
    /// It is asked for the transfer of this number.
    Ask(usize, Box<SendRequest>),
    /// Its process ends; its store stays.
    Crash,
    /// Its process begins again.
    Restart,
}

/// A way that the engine is told of when it begins.
#[derive(Clone, Debug)]
pub(crate) struct Known {
    /// What the engine calls it.
    pub(crate) path: PathId,
    /// What it is told.
    pub(crate) info: PathInfo,
    /// When the first links are down: as long as one of them is up, the way is.
    pub(crate) outages: Vec<Outages>,
    /// The last link from the peer, where there is one peer and its route is known.
    pub(crate) back: Option<Back>,
}

/// The last link from a peer.
#[derive(Clone, Debug)]
pub(crate) struct Back {
    /// When it is down at its near end.
    pub(crate) outages: Outages,
    /// One-way light time: an outage begins and ends that much later at the far end.
    pub(crate) delay: Duration,
}

impl Back {
    /// When what arrives at `now` left.
    fn left(&self, now: Time) -> Time {
        Time::ZERO + now.since(Time::ZERO + self.delay)
    }

    /// Whether anything can arrive.
    fn is_up(&self, now: Time) -> bool {
        self.outages.is_up(self.left(now))
    }

    /// When that changes next, after `now`.
    fn next_change(&self, now: Time) -> Option<Time> {
        self.outages.next_change(self.left(now)).map(|at| at + self.delay)
    }
}

/// What was seen of a node.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sight {
    /// What it sent and received.
    pub(crate) stats: HostStats,
    /// What it told of the ends of transfers.
    pub(crate) ends: Vec<(Time, Ended)>,
    /// What it said to requests, by the numbers of their transfers.
    pub(crate) answers: Vec<(usize, Result<(), String>)>,
    /// Datagrams and deadlines that it was handed.
    pub(crate) events: u64,
}

/// An engine with all that the simulator has around one: the driver below has only to carry its
/// datagrams. Storage is that of the simulator, so that times are those of the links alone.
#[derive(Debug)]
pub(crate) struct Actor {
    name: String,
    seed: u64,
    config: Box<dyn Configuration>,
    engine: Option<Box<dyn Transport>>,
    restarts: u32,
    store: Store,
    ways: Vec<Known>,
    /// What the engine is told of ways to others, and those there are.
    stranger: PathInfo,
    strangers: BTreeSet<PathId>,
    /// What will happen, in order.
    plan: VecDeque<(Time, Act)>,
    /// What is asked for as soon as the engine has taken up its records.
    asked: VecDeque<(usize, Box<SendRequest>)>,
    began: bool,
    now: Time,
    /// What the driver has to do.
    effects: VecDeque<Effect>,
    /// When ways go down or come up next, and when that was looked at.
    change: Option<Time>,
    looked: Time,
    sight: Sight,
    /// Where it is counted how late it is.
    timings: Option<Arc<Timings>>,
}

impl Actor {
    /// A node of this name, before the world begins.
    pub(crate) fn new(
        name: &str,
        seed: u64,
        config: Box<dyn Configuration>,
        store: Store,
        ways: Vec<Known>,
        stranger: PathInfo,
    ) -> Self {
        Self {
            name: name.to_owned(),
            seed,
            config,
            engine: None,
            restarts: 0,
            store,
            ways,
            stranger,
            strangers: BTreeSet::new(),
            plan: VecDeque::new(),
            asked: VecDeque::new(),
            began: false,
            now: Time::ZERO,
            effects: VecDeque::new(),
            change: None,
            looked: Time::ZERO,
            sight: Sight::default(),
            timings: None,
        }
    }

    /// Has it counted how late it does what it has to do at a certain time.
    pub(crate) fn timed(mut self, timings: &Arc<Timings>) -> Self {
        self.timings = Some(Arc::clone(timings));
        self
    }

    /// Adds to what will happen to it.
    pub(crate) fn plan(&mut self, at: Time, act: Act) {
        let behind = self.plan.partition_point(|(before, _)| *before <= at);
        self.plan.insert(behind, (at, act));
    }

    /// The engine, while there is one.
    pub(crate) fn engine(&self) -> Option<&dyn Transport> {
        self.engine.as_deref()
    }

    /// The store.
    pub(crate) fn store(&self) -> &Store {
        &self.store
    }

    /// What was seen of it.
    pub(crate) fn sight(&self) -> &Sight {
        &self.sight
    }

    /// Whether it does nothing more unless something arrives.
    pub(crate) fn is_at_rest(&self) -> bool {
        let quiet = |engine: &Box<dyn Transport>| engine.poll_timeout().is_none();
        let done = self.began && self.plan.is_empty() && self.asked.is_empty();
        let quiet = done && self.store.next().is_none() && self.engine.as_ref().is_none_or(quiet);
        quiet && !self.waits_for_a_way()
    }

    /// Whether a transfer may be waiting for a way that is down to come up. Outages come and go for
    /// ever, so those of ways that are up keep nobody awake, as in the simulator.
    fn waits_for_a_way(&self) -> bool {
        let comes_up = |way: &Known| {
            let down = !way.outages.is_empty() && way.outages.iter().all(|it| !it.is_up(self.now));
            down && way.outages.iter().any(|it| it.next_change(self.now).is_some())
        };
        let returns = |way: &Known| {
            let back = way.back.as_ref().filter(|back| !back.is_up(self.now));
            back.is_some_and(|back| back.next_change(self.now).is_some())
        };
        let under_way = self.engine.as_ref().is_some_and(|engine| engine.under_way() > 0);
        under_way && self.ways.iter().any(|way| comes_up(way) || returns(way))
    }

    /// Makes the engine and tells it its ways.
    fn start(&mut self, now: Time) {
        let name = sim::engine_stream(&self.name, self.restarts);
        self.engine = Some(self.config.build(Rng::new(self.seed, &name)));
        for index in 0..self.ways.len() {
            self.announce(now, index);
        }
        for path in self.strangers.clone() {
            self.hand_in(now, Input::Path(path, PathEvent::Up(self.stranger.clone())));
        }
    }

    fn hand_in(&mut self, now: Time, input: Input<'_>) {
        if let Some(engine) = &mut self.engine {
            engine.handle_input(now, input);
        }
    }

    /// Tells the engine the state of a way.
    fn announce(&mut self, now: Time, index: usize) {
        let Known { path, info, outages, back } = &self.ways[index];
        let is_cut = back.as_ref().is_some_and(|back| !back.is_up(now));
        let (path, mut info) = (*path, info.clone());
        let up = || outages.iter().filter(|outages| outages.is_up(now));
        let event = if outages.is_empty() || up().next().is_some() {
            info.until = info.until.or(up().filter_map(|outages| outages.next_change(now)).min());
            PathEvent::Up(info)
        } else {
            PathEvent::Down
        };
        self.hand_in(now, Input::Path(path, event));
        if is_cut {
            self.hand_in(now, Input::Path(path, PathEvent::ReturnDown));
        }
    }

    /// Reports to the engine whether anything can arrive from the peer of a way.
    fn announce_return(&mut self, now: Time, index: usize) {
        let Known { path, back, .. } = &self.ways[index];
        let is_up = back.as_ref().is_none_or(|back| back.is_up(now));
        let event = if is_up { PathEvent::ReturnUp } else { PathEvent::ReturnDown };
        let path = *path;
        self.hand_in(now, Input::Path(path, event));
    }

    /// When either direction of a way goes down or comes up next, after `now`.
    fn next_change(&self, now: Time) -> Option<Time> {
        let outages = self.ways.iter().flat_map(|way| &way.outages);
        let there = outages.filter_map(|outages| outages.next_change(now));
        let back = self.ways.iter().filter_map(|way| way.back.as_ref()?.next_change(now));
        there.chain(back).min()
    }

    /// Does all that can be done by now; whether that was anything.
    fn settle(&mut self, now: Time) -> bool {
        let mut any = false;
        if !self.began {
            (self.began, any, self.looked) = (true, true, now);
            self.change = self.next_change(now);
            self.start(now);
        }
        while self.step(now) {
            any = true;
        }
        any
    }

    fn step(&mut self, now: Time) -> bool {
        let mut any = false;
        while let Some((ticket, answer)) = self.store.pop(now) {
            self.hand_in(now, Input::Done(ticket, answer));
            any = true;
        }
        while let Some(effect) = self.engine.as_mut().and_then(Engine::poll_effect) {
            self.carry_out(now, effect);
            any = true;
        }
        if self.change.is_some_and(|at| at <= now) {
            let before = mem::replace(&mut self.looked, now);
            for index in 0..self.ways.len() {
                let Known { outages, back, .. } = &self.ways[index];
                let is_due = |change: Option<Time>| change.is_some_and(|next| next <= now);
                let returns = back.as_ref().is_some_and(|back| is_due(back.next_change(before)));
                if outages.iter().any(|it| is_due(it.next_change(before))) {
                    self.announce(now, index);
                }
                if returns {
                    self.announce_return(now, index);
                }
            }
            self.change = self.next_change(now);
            any = true;
        }
        if self.plan.front().is_some_and(|(at, _)| *at <= now)
            && let Some((_, act)) = self.plan.pop_front()
        {
            self.perform(now, act);
            any = true;
        }
        any | self.ask(now)
    }

    fn perform(&mut self, now: Time, act: Act) {
        match act {
            Act::Ask(transfer, request) => self.asked.push_back((transfer, request)),
            Act::Crash => {
                if self.engine.take().is_some() {
                    self.effects.clear();
                    self.store.crash(now);
                }
            }
            Act::Restart => {
                if self.engine.is_none() {
                    self.restarts += 1;
                    self.start(now);
                }
            }
        }
    }

    /// Makes the next request, if the engine is ready for it.
    fn ask(&mut self, now: Time) -> bool {
        if self.engine.as_ref().is_some_and(|engine| !engine.is_ready()) {
            return false;
        }
        let Some((transfer, request)) = self.asked.pop_front() else { return false };
        let answer = match &mut self.engine {
            Some(engine) => engine.send(now, &request).map(drop).map_err(|error| error.to_string()),
            None => Err(format!("{} was down", self.name)),
        };
        self.sight.answers.push((transfer, answer));
        true
    }

    fn carry_out(&mut self, now: Time, effect: Effect) {
        match effect {
            Effect::Store(effect) => {
                if let Some((ticket, answer)) = self.store.submit(now, effect) {
                    self.hand_in(now, Input::Done(ticket, answer));
                }
            }
            Effect::Path(_) | Effect::Stream(_) => self.effects.push_back(effect),
        }
    }

    fn receive(&mut self, now: Time, received: Receive<'_>) {
        self.sight.events += 1;
        if self.engine.is_none() {
            self.sight.stats.while_down += received.datagrams().count() as u64;
            return;
        }
        for datagram in received.datagrams() {
            let len = datagram.len();
            self.sight.stats.received.count(now, len + HEADERS_LEN, len);
        }
        self.hand_in(now, Input::Receive(received));
    }

    /// A path that the driver says something of. What is known of beforehand is known better here.
    fn path(&mut self, now: Time, path: PathId, event: PathEvent) {
        match (self.ways.iter().position(|way| way.path == path), &event) {
            (Some(index), PathEvent::Up(_)) => self.announce(now, index),
            (None, PathEvent::Up(_)) => {
                self.strangers.insert(path);
                self.hand_in(now, Input::Path(path, PathEvent::Up(self.stranger.clone())));
            }
            _ => {
                self.strangers.remove(&path);
                self.hand_in(now, Input::Path(path, event));
            }
        }
    }
}

impl Engine for Actor {
    type Indication = Event;

    fn handle_input(&mut self, now: Time, input: Input<'_>) {
        if !self.began {
            // The driver makes itself ready; the engine is told of its ways when it begins.
            return;
        }
        self.now = now;
        match input {
            Input::Receive(received) => self.receive(now, received),
            Input::Path(path, event) => self.path(now, path, event),
            // Its effects are carried out here.
            Input::Done(..) => {}
        }
        self.settle(now);
    }

    fn handle_timeout(&mut self, now: Time) {
        self.now = now;
        if let Some(timings) = self.timings.as_ref().filter(|_| self.began)
            && let Some(deadline) = self.poll_timeout().filter(|deadline| deadline.at <= now)
        {
            timings.record(now.since(deadline.at), 1);
        }
        // All that is due at the beginning comes after the beginning.
        self.settle(now);
        if let Some(engine) = &mut self.engine
            && engine.poll_timeout().is_some_and(|deadline| deadline.at <= now)
        {
            self.sight.events += 1;
            engine.handle_timeout(now);
        }
        self.settle(now);
    }

    fn poll_transmit(&mut self, now: Time, tx: &mut TxBuf) -> Option<Transmit> {
        if !self.began {
            return None;
        }
        self.now = now;
        loop {
            let transmit = self.engine.as_mut().and_then(|engine| engine.poll_transmit(now, tx));
            if let Some(transmit) = transmit {
                let sent = now.max(transmit.not_before);
                for datagram in tx.datagrams() {
                    let len = datagram.len();
                    self.sight.stats.sent.count(sent, len + HEADERS_LEN, len);
                }
                return Some(transmit);
            }
            // What it reads may be what it waits for.
            if !self.settle(now) {
                return None;
            }
            tx.clear();
        }
    }

    fn poll_effect(&mut self) -> Option<Effect> {
        if self.began {
            self.settle(self.now);
        }
        self.effects.pop_front()
    }

    fn poll_indication(&mut self) -> Option<Event> {
        let told = self.engine.as_mut()?.poll_indication()?;
        self.sight.ends.extend(told.end().map(|end| (self.now, end)));
        Some(told)
    }

    fn poll_timeout(&self) -> Option<Deadline> {
        if !self.began {
            return Some(Deadline { at: Time::ZERO, why: "the world begins" });
        }
        let of = |at: Option<Time>, why| at.map(|at| Deadline { at, why });
        let own = [
            of(self.store.next(), "the store is done"),
            of(self.plan.front().map(|(at, _)| *at), "the plan of the world"),
            of(self.change, "a link changes"),
        ];
        let engine = self.engine.as_ref().and_then(Engine::poll_timeout);
        own.into_iter().chain([engine]).flatten().min_by_key(|deadline| deadline.at)
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use engine::FileName;
    use link::Window;

    use super::*;
    use transport::protocol::Protocol;

    fn at(millis: u64) -> Time {
        Time::ZERO + Duration::from_millis(millis)
    }

    /// A sender of a kilobyte whose way is down from 10 ms to 50 ms, asked for it at 20 ms.
    fn sender() -> Actor {
        let protocol: Protocol = "cfdp".parse().unwrap();
        let mut config = transport::configure(&protocol, 1, None).unwrap();
        config.set_path(2, PathId(7));
        let name = FileName::file("file").unwrap();
        let mut store = Store::new(Rng::new(1, "store"));
        store.insert(name.clone(), Bytes::from(vec![1; 1000]));
        let outages = Outages::List(vec![Window { start: at(10), end: at(50) }]);
        let info = PathInfo { rate_bps: Some(8_000_000), ..PathInfo::datagram(1024) };
        let outages = vec![outages];
        let way = Known { path: PathId(7), info: info.clone(), outages, back: None };
        let mut actor = Actor::new("a", 1, config, store, vec![way], info);
        let request = SendRequest::new(name, "file", 2, protocol.kind);
        actor.plan(at(20), Act::Ask(0, Box::new(request)));
        actor
    }

    /// Tells the time, and counts the datagrams that leave then.
    fn turn(actor: &mut Actor, now: Time) -> usize {
        actor.handle_timeout(now);
        let mut tx = TxBuf::new(1);
        let mut count = 0;
        while let Some(transmit) = actor.poll_transmit(now, &mut tx) {
            assert_eq!(transmit.path, PathId(7));
            (count, tx) = (count + 1, TxBuf::new(1));
        }
        count
    }

    #[test]
    fn it_is_counted_how_late_a_node_is() {
        let timings = Arc::new(Timings::new());
        let mut actor = sender().timed(&timings);
        turn(&mut actor, at(1));
        assert_eq!(timings.so_far().packets(), 0, "the beginning is not late");
        // The way goes down at 10 ms, and the transfer is asked for at 20 ms.
        turn(&mut actor, at(13));
        assert_eq!(timings.so_far().most(), Duration::from_millis(3));
        turn(&mut actor, at(15));
        assert_eq!(timings.so_far().packets(), 1, "nothing was due");
        turn(&mut actor, at(20));
        let lateness = timings.so_far();
        assert_eq!((lateness.packets(), lateness.quantile(0.5)), (2, Duration::from_nanos(511)));
    }

    #[test]
    fn a_node_does_what_is_planned_when_it_is() {
        let mut actor = sender();
        assert_eq!(actor.poll_timeout().unwrap().at, Time::ZERO, "the beginning");
        assert_eq!(turn(&mut actor, at(1)), 0, "nothing was asked for");
        assert!(!actor.is_at_rest());
        assert_eq!(actor.poll_timeout().unwrap().at, at(10), "the way goes down");
        assert_eq!(turn(&mut actor, at(10)), 0);
        assert_eq!(actor.poll_timeout().unwrap().at, at(20));
        assert_eq!(turn(&mut actor, at(20)), 0, "the way is down");
        assert_eq!(actor.sight().answers, [(0, Ok(()))]);
        assert_eq!(actor.poll_timeout().unwrap().at, at(50));
        let sent = turn(&mut actor, at(50));
        assert!(sent >= 3, "metadata, data and the end: {sent}");
        assert_eq!(actor.sight().stats.sent.packets, sent as u64);
        assert!(actor.sight().stats.sent.ip_bytes > 1000 + 3 * HEADERS_LEN as u64);
    }

    #[test]
    fn who_waits_for_its_way_is_not_at_rest_and_whose_way_never_comes_is() {
        let mut actor = sender();
        for millis in [0, 10] {
            turn(&mut actor, at(millis));
        }
        turn(&mut actor, at(20));
        assert!(!actor.is_at_rest(), "the way comes up at 50 ms");
        let mut actor = sender();
        actor.ways[0].outages = vec![Outages::Contacts(vec![Window { start: at(1), end: at(5) }])];
        for millis in [0, 1, 5, 20, 30] {
            turn(&mut actor, at(millis));
        }
        assert_eq!(actor.sight().answers, [(0, Ok(()))]);
        assert!(actor.is_at_rest(), "there is no contact any more");
        // With nothing under way, outages come and go unheeded.
        let mut actor = sender();
        actor.plan.clear();
        let (period, down) = (Duration::from_millis(100), Duration::from_millis(50));
        actor.ways[0].outages = vec![Outages::Periodic { period, down, offset: at(10) }];
        for millis in [0, 10, 60, 110] {
            turn(&mut actor, at(millis));
            assert!(actor.is_at_rest(), "{millis} ms");
        }
    }

    #[test]
    fn a_node_knows_when_nothing_can_arrive() {
        let mut actor = sender();
        // Down at the peer from 60 ms to 200 ms, at this node 100 ms later.
        let outages = Outages::List(vec![Window { start: at(60), end: at(200) }]);
        actor.ways[0].back = Some(Back { outages, delay: Duration::from_millis(100) });
        for millis in [0, 10, 20] {
            turn(&mut actor, at(millis));
        }
        assert!(turn(&mut actor, at(50)) >= 3, "metadata, data and the end");
        let ack = |actor: &Actor| {
            actor.engine().and_then(Engine::poll_timeout).is_some_and(|next| next.why == "ack")
        };
        assert!(ack(&actor), "it waits for the ACK of the EOF");
        turn(&mut actor, at(160));
        assert!(!ack(&actor) && !actor.is_at_rest(), "no timer runs while nothing can arrive");
        assert_eq!(actor.poll_timeout().unwrap().at, at(300));
        assert!(turn(&mut actor, at(300)) >= 1, "the EOF again, at once");
        assert!(ack(&actor));
    }

    #[test]
    fn who_crashed_hears_and_answers_nothing() {
        let mut actor = sender();
        actor.plan(at(15), Act::Crash);
        actor.plan(at(60), Act::Restart);
        for millis in [0, 15, 20] {
            assert_eq!(turn(&mut actor, at(millis)), 0);
        }
        assert_eq!(actor.sight().answers, [(0, Err("a was down".to_owned()))]);
        let datagram = Receive::datagram(PathId(7), b"too late");
        actor.handle_input(at(30), Input::Receive(datagram));
        assert_eq!(actor.sight().stats.while_down, 1);
        assert!(actor.engine().is_none());
        turn(&mut actor, at(60));
        assert!(actor.engine().is_some() && actor.is_at_rest());
    }
}
