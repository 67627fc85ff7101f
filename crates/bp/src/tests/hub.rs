//! A layer in the middle with engines around it, each on its own path.

use std::collections::BTreeMap;
use std::time::Duration;

use engine::{
    Datagram, Engine, FileName, Input, MemoryStore, PathEvent, PathId, PathInfo, Receive, Time,
    drain,
};

use super::super::layer::{Command, Event, Layer, LinkId};
use super::pair::{PATH, came, store};

/// Path of the layer to an engine.
pub(crate) fn path(peer: usize) -> PathId {
    PathId(100 + peer as u32)
}

pub(crate) struct Hub<L, P: Engine> {
    pub(crate) now: Time,
    pub(crate) layer: L,
    pub(crate) store: MemoryStore,
    pub(crate) events: Vec<Event>,
    /// Whether complete bundles are accepted.
    pub(crate) accepts: bool,
    pub(crate) peers: Vec<P>,
    pub(crate) stores: Vec<MemoryStore>,
    /// Indications of the engines, with their index.
    pub(crate) indications: Vec<(usize, P::Indication)>,
    info: PathInfo,
    /// Datagrams in transit: from or to an engine.
    flying: BTreeMap<(Time, u64), (usize, bool, Vec<u8>)>,
    number: u64,
}

impl<L: Layer, P: Engine> Hub<L, P> {
    pub(crate) fn new(layer: L, peers: Vec<P>) -> Self {
        let owlt = Some(Duration::from_millis(10));
        let info = PathInfo { owlt, rate_bps: Some(100_000_000), ..PathInfo::datagram(1472) };
        let mut hub = Self {
            now: Time::from_secs(1),
            layer,
            store: store(),
            events: Vec::new(),
            accepts: true,
            stores: peers.iter().map(|_| MemoryStore::new()).collect(),
            peers,
            indications: Vec::new(),
            info,
            flying: BTreeMap::new(),
            number: 0,
        };
        for n in 0..hub.peers.len() {
            let up = PathEvent::Up(hub.info.clone());
            hub.layer.handle_input(hub.now, Input::Path(path(n), up));
            hub.begin(n);
        }
        hub
    }

    fn begin(&mut self, n: usize) {
        let up = PathEvent::Up(self.info.clone());
        self.peers[n].handle_input(self.now, Input::Path(PATH, up));
    }

    /// Replaces an engine.
    pub(crate) fn replace(&mut self, n: usize, peer: P) {
        self.peers[n] = peer;
        self.begin(n);
    }

    /// Creates a file in the store of an engine.
    pub(crate) fn file(&mut self, n: usize, content: &[u8]) -> FileName {
        let name = FileName::file(&format!("file-{}", content.len())).expect("it is a name");
        self.stores[n].insert(name.clone(), content.to_vec());
        name
    }

    pub(crate) fn command(&mut self, command: Command) {
        self.layer.command(self.now, command);
        self.drain();
    }

    fn fly(&mut self, peer: usize, to_peer: bool, datagram: Datagram) {
        self.number += 1;
        let at = self.now.max(datagram.not_before) + Duration::from_millis(10);
        self.flying.insert((at, self.number), (peer, to_peer, datagram.bytes));
    }

    fn drain(&mut self) {
        while self.drain_layer() | (0..self.peers.len()).any(|n| self.drain_peer(n)) {}
    }

    fn drain_peer(&mut self, n: usize) -> bool {
        let drained = drain(self.now, &mut self.peers[n], &mut self.stores[n]);
        self.indications.extend(drained.indications.into_iter().map(|it| (n, it)));
        let is_busy = !drained.datagrams.is_empty();
        drained.datagrams.into_iter().for_each(|datagram| self.fly(n, false, datagram));
        is_busy
    }

    fn drain_layer(&mut self) -> bool {
        let drained = drain(self.now, &mut self.layer, &mut self.store);
        let is_busy = !drained.datagrams.is_empty() || !drained.indications.is_empty();
        for datagram in drained.datagrams {
            self.fly((datagram.path.0 - path(0).0) as usize, true, datagram);
        }
        for event in drained.indications {
            if let Event::Whole { link, transfer, .. } = event
                && self.accepts
            {
                self.layer.command(self.now, Command::Accept { link, transfer });
            }
            self.events.push(event);
        }
        is_busy
    }

    /// Advances time, and executes all events until then.
    pub(crate) fn pass(&mut self, time: Duration) {
        let until = self.now + time;
        loop {
            self.drain();
            let first = self.flying.first_key_value().map(|((at, _), _)| *at);
            let due = self.peers.iter().filter_map(Engine::poll_timeout);
            let due = due.chain(self.layer.poll_timeout()).map(|deadline| deadline.at);
            let next = first.into_iter().chain(due).min();
            let Some(next) = next.filter(|next| *next <= until) else { break };
            self.now = self.now.max(next);
            while let Some(entry) = self.flying.first_entry().filter(|e| e.key().0 <= self.now) {
                let (peer, to_peer, datagram) = entry.remove();
                if to_peer {
                    let receive = Receive::datagram(PATH, &datagram);
                    self.peers[peer].handle_input(self.now, Input::Receive(receive));
                } else {
                    let receive = Receive::datagram(path(peer), &datagram);
                    self.layer.handle_input(self.now, Input::Receive(receive));
                }
            }
            self.peers.iter_mut().for_each(|peer| peer.handle_timeout(self.now));
            self.layer.handle_timeout(self.now);
        }
        self.now = until;
    }

    /// Bundles received whole, in order.
    pub(crate) fn came(&self) -> Vec<(LinkId, Vec<u8>)> {
        came(&self.events, &self.store)
    }
}
