//! A host of an emulated world: its engine and store, and its planned events.

use std::collections::VecDeque;
use std::sync::Arc;

use emu::Timings;
use engine::{
    Deadline, Effect, Engine, Input, PathEvent, PathId, PathInfo, Receive, Time, Transmit, TxBuf,
};
use sim::{HEADERS_LEN, Host, HostStats, Store};
use transport::{Configuration, Ended, Event, SendRequest, Transport};

use super::paths::{KnownPath, Paths};

/// Planned event of a host.
#[derive(Clone, Debug)]
pub(crate) enum Planned {
    /// The transfer of this number is requested.
    Request(usize, Box<SendRequest>),
    /// Its process ends; its store stays.
    Crash,
    /// Its process is restarted.
    Restart,
}

/// Record of a host's run.
#[derive(Clone, Debug, Default)]
pub(crate) struct Record {
    /// Datagrams sent and received.
    pub(crate) stats: HostStats,
    /// Ends of transfers that its engine reported.
    pub(crate) ends: Vec<(Time, Ended)>,
    /// Results of requests, by the numbers of their transfers.
    pub(crate) answers: Vec<(usize, Result<(), String>)>,
    /// Received datagrams and expired deadlines.
    pub(crate) events: u64,
}

/// The simulator's host in an emulated world: the driver below carries only its datagrams. The
/// simulator's storage, so that only the links take time.
#[derive(Debug)]
pub(crate) struct EmulatedHost {
    host: Host<Box<dyn Transport>>,
    paths: Paths,
    /// Planned events, in order.
    plan: VecDeque<(Time, Planned)>,
    /// Requests that wait until the engine has taken up its records.
    requests: VecDeque<(usize, Box<SendRequest>)>,
    began: bool,
    now: Time,
    /// Effects for the driver.
    effects: VecDeque<Effect>,
    record: Record,
    /// Counts how late it is.
    timings: Option<Arc<Timings>>,
}

impl EmulatedHost {
    /// A host of this name, before the world begins.
    pub(crate) fn new(
        name: &str,
        seed: u64,
        config: Box<dyn Configuration>,
        store: Store,
        known: Vec<KnownPath>,
        stranger: PathInfo,
    ) -> Self {
        let mut host = Host::new(name, seed, store);
        host.install(move |_, rng| config.build(rng));
        Self {
            host,
            paths: Paths::new(known, stranger),
            plan: VecDeque::new(),
            requests: VecDeque::new(),
            began: false,
            now: Time::ZERO,
            effects: VecDeque::new(),
            record: Record::default(),
            timings: None,
        }
    }

    /// Makes `timings` record the lateness of its timers.
    pub(crate) fn timed(mut self, timings: &Arc<Timings>) -> Self {
        self.timings = Some(Arc::clone(timings));
        self
    }

    /// Adds a planned event.
    pub(crate) fn plan(&mut self, at: Time, planned: Planned) {
        let behind = self.plan.partition_point(|(before, _)| *before <= at);
        self.plan.insert(behind, (at, planned));
    }

    /// Returns the engine, while its process runs.
    pub(crate) fn engine(&self) -> Option<&dyn Transport> {
        self.host.engine().map(|engine| &**engine)
    }

    /// Returns the store.
    pub(crate) fn store(&self) -> &Store {
        self.host.store()
    }

    /// Returns the record so far.
    pub(crate) fn record(&self) -> &Record {
        &self.record
    }

    /// Whether it does nothing more without an arrival.
    pub(crate) fn is_at_rest(&self) -> bool {
        let quiet = |engine: &dyn Transport| engine.poll_timeout().is_none();
        let done = self.began && self.plan.is_empty() && self.requests.is_empty();
        let quiet = done && self.store().next().is_none() && self.engine().is_none_or(quiet);
        // A transfer may wait for a path that is down to come up.
        let under_way = self.engine().is_some_and(|engine| engine.under_way() > 0);
        quiet && !(under_way && self.paths.will_come_up(self.now))
    }

    fn announce(&mut self, now: Time, events: Vec<(PathId, PathEvent)>) {
        for (path, event) in events {
            self.host.hand_in(now, Input::Path(path, event));
        }
    }

    /// Does everything that is due. Returns whether there was anything.
    fn settle(&mut self, now: Time) -> bool {
        let mut any = false;
        if !self.began {
            (self.began, any) = (true, true);
            self.paths.begin(now);
            self.host.start();
            self.announce(now, self.paths.all(now));
        }
        while self.step(now) {
            any = true;
        }
        any
    }

    fn step(&mut self, now: Time) -> bool {
        let mut any = self.host.complete(now);
        while let Some(effect) = self.host.engine_mut().and_then(Engine::poll_effect) {
            match effect {
                Effect::Store(effect) => self.host.submit(now, effect),
                Effect::Path(_) | Effect::Stream(_) => self.effects.push_back(effect),
            }
            any = true;
        }
        if let Some(events) = self.paths.changed(now) {
            self.announce(now, events);
            any = true;
        }
        if self.plan.front().is_some_and(|(at, _)| *at <= now)
            && let Some((_, planned)) = self.plan.pop_front()
        {
            self.perform(now, planned);
            any = true;
        }
        any | self.request(now)
    }

    fn perform(&mut self, now: Time, planned: Planned) {
        match planned {
            Planned::Request(transfer, request) => self.requests.push_back((transfer, request)),
            Planned::Crash => {
                if self.host.crash(now) {
                    self.effects.clear();
                }
            }
            Planned::Restart => {
                if self.engine().is_none() {
                    self.host.restart();
                    self.announce(now, self.paths.all(now));
                }
            }
        }
    }

    /// Makes the next request, if the engine is ready for it. Returns whether there was one.
    fn request(&mut self, now: Time) -> bool {
        if self.engine().is_some_and(|engine| !engine.is_ready()) {
            return false;
        }
        let Some((transfer, request)) = self.requests.pop_front() else { return false };
        let answer = match self.host.engine_mut() {
            Some(engine) => engine.send(now, &request).map(drop).map_err(|error| error.to_string()),
            None => Err(format!("{} was down", self.host.name())),
        };
        self.record.answers.push((transfer, answer));
        true
    }

    fn receive(&mut self, now: Time, received: Receive<'_>) {
        self.record.events += 1;
        if self.engine().is_none() {
            self.record.stats.while_down += received.datagrams().count() as u64;
            return;
        }
        for datagram in received.datagrams() {
            let len = datagram.len();
            self.record.stats.received.count(now, len + HEADERS_LEN, len);
        }
        self.host.hand_in(now, Input::Receive(received));
    }
}

impl Engine for EmulatedHost {
    type Indication = Event;

    fn handle_input(&mut self, now: Time, input: Input<'_>) {
        if !self.began {
            // The driver needs no event; paths are announced when the world starts.
            return;
        }
        self.now = now;
        match input {
            Input::Receive(received) => self.receive(now, received),
            Input::Path(path, event) => {
                let events = self.paths.reported(now, path, event);
                self.announce(now, events);
            }
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
        // Events due at the start come after it.
        self.settle(now);
        if let Some(engine) = self.host.engine_mut()
            && engine.poll_timeout().is_some_and(|deadline| deadline.at <= now)
        {
            self.record.events += 1;
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
            let engine = self.host.engine_mut();
            if let Some(transmit) = engine.and_then(|engine| engine.poll_transmit(now, tx)) {
                let sent = now.max(transmit.not_before);
                for datagram in tx.datagrams() {
                    let len = datagram.len();
                    self.record.stats.sent.count(sent, len + HEADERS_LEN, len);
                }
                return Some(transmit);
            }
            // It may wait for the change of a path.
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
        let indication = self.host.engine_mut()?.poll_indication()?;
        self.record.ends.extend(indication.end().map(|end| (self.now, end)));
        Some(indication)
    }

    fn poll_timeout(&self) -> Option<Deadline> {
        if !self.began {
            return Some(Deadline { at: Time::ZERO, why: "the world begins" });
        }
        let of = |at: Option<Time>, why| at.map(|at| Deadline { at, why });
        let own = [
            of(self.store().next(), "the store is done"),
            of(self.plan.front().map(|(at, _)| *at), "the plan of the world"),
            of(self.paths.change(), "a link changes"),
        ];
        let engine = self.host.engine().and_then(Engine::poll_timeout);
        own.into_iter().chain([engine]).flatten().min_by_key(|deadline| deadline.at)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use bytes::Bytes;
    use engine::{FileName, Rng};
    use link::{Back, Outages, PathOutages, Window};

    use super::*;
    use transport::protocol::Protocol;

    fn at(millis: u64) -> Time {
        Time::ZERO + Duration::from_millis(millis)
    }

    /// A sender of a kilobyte whose path is down from 10 ms to 50 ms, with a request at 20 ms.
    fn sender() -> EmulatedHost {
        let protocol: Protocol = "cfdp".parse().unwrap();
        let mut config = transport::configure(&protocol, 1, None).unwrap();
        config.set_path(2, PathId(7));
        let name = FileName::file("file").unwrap();
        let mut store = Store::new(Rng::new(1, "store"));
        store.insert(name.clone(), Bytes::from(vec![1; 1000]));
        let outages = Outages::List(vec![Window { start: at(10), end: at(50) }]);
        let info = PathInfo { rate_bps: Some(8_000_000), ..PathInfo::datagram(1024) };
        let outages = PathOutages { first: vec![outages], back: None };
        let way = KnownPath { path: PathId(7), info: info.clone(), outages };
        let mut host = EmulatedHost::new("a", 1, config, store, vec![way], info);
        let request = SendRequest::new(name, "file", 2, protocol.kind);
        host.plan(at(20), Planned::Request(0, Box::new(request)));
        host
    }

    /// Advances the time, and counts the datagrams sent then.
    fn turn(host: &mut EmulatedHost, now: Time) -> usize {
        host.handle_timeout(now);
        let mut tx = TxBuf::new(1);
        let mut count = 0;
        while let Some(transmit) = host.poll_transmit(now, &mut tx) {
            assert_eq!(transmit.path, PathId(7));
            (count, tx) = (count + 1, TxBuf::new(1));
        }
        count
    }

    #[test]
    fn lateness_of_nodes_is_measured() {
        let timings = Arc::new(Timings::new());
        let mut host = sender().timed(&timings);
        turn(&mut host, at(1));
        assert_eq!(timings.so_far().packets(), 0, "the beginning is not late");
        // The path goes down at 10 ms, and the transfer is requested at 20 ms.
        turn(&mut host, at(13));
        assert_eq!(timings.so_far().most(), Duration::from_millis(3));
        turn(&mut host, at(15));
        assert_eq!(timings.so_far().packets(), 1, "nothing was due");
        turn(&mut host, at(20));
        let lateness = timings.so_far();
        assert_eq!((lateness.packets(), lateness.quantile(0.5)), (2, Duration::from_nanos(511)));
    }

    #[test]
    fn planned_events_happen_on_time() {
        let mut host = sender();
        assert_eq!(host.poll_timeout().unwrap().at, Time::ZERO, "the beginning");
        assert_eq!(turn(&mut host, at(1)), 0, "nothing was asked for");
        assert!(!host.is_at_rest());
        assert_eq!(host.poll_timeout().unwrap().at, at(10), "the way goes down");
        assert_eq!(turn(&mut host, at(10)), 0);
        assert_eq!(host.poll_timeout().unwrap().at, at(20));
        assert_eq!(turn(&mut host, at(20)), 0, "the way is down");
        assert_eq!(host.record().answers, [(0, Ok(()))]);
        assert_eq!(host.poll_timeout().unwrap().at, at(50));
        let sent = turn(&mut host, at(50));
        assert!(sent >= 3, "metadata, data and the end: {sent}");
        assert_eq!(host.record().stats.sent.packets, sent as u64);
        assert!(host.record().stats.sent.ip_bytes > 1000 + 3 * HEADERS_LEN as u64);
    }

    #[test]
    fn a_host_is_at_rest_only_if_its_path_never_comes_up() {
        let mut host = sender();
        for millis in [0, 10] {
            turn(&mut host, at(millis));
        }
        turn(&mut host, at(20));
        assert!(!host.is_at_rest(), "the way comes up at 50 ms");
        let mut host = sender();
        host.paths.known[0].outages.first =
            vec![Outages::Contacts(vec![Window { start: at(1), end: at(5) }])];
        for millis in [0, 1, 5, 20, 30] {
            turn(&mut host, at(millis));
        }
        assert_eq!(host.record().answers, [(0, Ok(()))]);
        assert!(host.is_at_rest(), "there is no contact any more");
        // With nothing under way, outages are ignored.
        let mut host = sender();
        host.plan.clear();
        let (period, down) = (Duration::from_millis(100), Duration::from_millis(50));
        host.paths.known[0].outages.first =
            vec![Outages::Periodic { period, down, offset: at(10) }];
        for millis in [0, 10, 60, 110] {
            turn(&mut host, at(millis));
            assert!(host.is_at_rest(), "{millis} ms");
        }
    }

    #[test]
    fn a_node_knows_when_nothing_can_arrive() {
        let mut host = sender();
        // Down at the peer from 60 ms to 200 ms, at this node 100 ms later.
        let outages = Outages::List(vec![Window { start: at(60), end: at(200) }]);
        host.paths.known[0].outages.back =
            Some(Back { outages, delay: Duration::from_millis(100) });
        for millis in [0, 10, 20] {
            turn(&mut host, at(millis));
        }
        assert!(turn(&mut host, at(50)) >= 3, "metadata, data and the end");
        let ack = |host: &EmulatedHost| {
            host.engine().and_then(Engine::poll_timeout).is_some_and(|next| next.why == "ack")
        };
        assert!(ack(&host), "it waits for the ACK of the EOF");
        turn(&mut host, at(160));
        assert!(!ack(&host) && !host.is_at_rest(), "no timer runs while nothing can arrive");
        assert_eq!(host.poll_timeout().unwrap().at, at(300));
        assert!(turn(&mut host, at(300)) >= 1, "the EOF again, at once");
        assert!(ack(&host));
    }

    #[test]
    fn crashed_hosts_receive_and_send_nothing() {
        let mut host = sender();
        host.plan(at(15), Planned::Crash);
        host.plan(at(60), Planned::Restart);
        for millis in [0, 15, 20] {
            assert_eq!(turn(&mut host, at(millis)), 0);
        }
        assert_eq!(host.record().answers, [(0, Err("a was down".to_owned()))]);
        let datagram = Receive::datagram(PathId(7), b"too late");
        host.handle_input(at(30), Input::Receive(datagram));
        assert_eq!(host.record().stats.while_down, 1);
        assert!(host.engine().is_none());
        turn(&mut host, at(60));
        assert!(host.engine().is_some() && host.is_at_rest());
    }
}
