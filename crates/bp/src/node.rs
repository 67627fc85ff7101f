//! Bundle node in one piece: an agent and its layers as one engine, for a driver with all paths. A
//! driver with a thread for each layer carries the commands and events itself.

use std::collections::BTreeMap;
use std::fmt;

use engine::{
    Deadline, Effect, Engine, Input, PathEvent, PathId, PathKind, Tickets, Time, Transmit, TxBuf,
};

use super::agent::{Agent, Indication};
use super::layer::{Command, Layer};

/// Assignment of paths to layers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Paths {
    /// Layers of paths that the layers open.
    pub known: BTreeMap<PathId, usize>,
    /// Layer of incoming streams.
    pub streams: Option<usize>,
    /// Layer of peers that first appear by a datagram.
    pub datagrams: Option<usize>,
}

/// Owner of an effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Owner {
    Agent,
    Layer(usize),
}

/// An agent and its layers, numbered in their order.
pub struct Node {
    agent: Agent,
    layers: Vec<Box<dyn Layer>>,
    paths: Paths,
    /// Layers of paths that are up.
    up: BTreeMap<PathId, usize>,
    tickets: Tickets<Owner>,
    /// Layer that is polled first for a datagram to send.
    turn: usize,
}

impl fmt::Debug for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Node").field("paths", &self.paths).finish_non_exhaustive()
    }
}

impl Node {
    /// A node of these parts.
    #[must_use]
    pub fn new(agent: Agent, layers: Vec<Box<dyn Layer>>, paths: Paths) -> Self {
        let (up, tickets) = (BTreeMap::new(), Tickets::new());
        Self { agent, layers, paths, up, tickets, turn: 0 }
    }

    /// The agent.
    #[must_use]
    pub fn agent(&self) -> &Agent {
        &self.agent
    }

    /// Calls the agent with a request.
    pub fn with_agent<T>(&mut self, now: Time, request: impl FnOnce(&mut Agent) -> T) -> T {
        let result = request(&mut self.agent);
        self.exchange(now);
        result
    }

    /// Passes a command to a layer as the agent would, for example to reach a neighbour that no
    /// plan names.
    pub fn command(&mut self, now: Time, layer: usize, command: Command) {
        if let Some(layer) = self.layers.get_mut(layer) {
            layer.command(now, command);
        }
        self.exchange(now);
    }

    /// Exchanges commands and events between agent and layers until there are none left.
    fn exchange(&mut self, now: Time) {
        loop {
            let mut some = false;
            while let Some((layer, command)) = self.agent.poll_command() {
                some = true;
                if let Some(layer) = self.layers.get_mut(layer) {
                    layer.command(now, command);
                }
            }
            for (number, layer) in self.layers.iter_mut().enumerate() {
                while let Some(event) = layer.poll_indication() {
                    some = true;
                    self.agent.handle_event(now, number, event);
                }
            }
            if !some {
                return;
            }
        }
    }

    fn layer_of(&mut self, path: PathId, event: Option<&PathEvent>) -> Option<usize> {
        if let Some(layer) = self.up.get(&path) {
            return Some(*layer);
        }
        let known = self.paths.known.get(&path).copied();
        let layer = known.or(match event {
            Some(PathEvent::Up(info)) => match info.kind {
                PathKind::Stream => self.paths.streams,
                PathKind::Datagram { .. } | PathKind::Message { .. } => self.paths.datagrams,
            },
            Some(_) | None => None,
        })?;
        self.up.insert(path, layer);
        Some(layer)
    }
}

impl Engine for Node {
    type Indication = Indication;

    fn handle_input(&mut self, now: Time, input: Input<'_>) {
        match input {
            Input::Done(ticket, result) => match self.tickets.take(ticket) {
                Some((Owner::Agent, theirs)) => {
                    self.agent.handle_input(now, Input::Done(theirs, result));
                }
                Some((Owner::Layer(layer), theirs)) => {
                    if let Some(layer) = self.layers.get_mut(layer) {
                        layer.handle_input(now, Input::Done(theirs, result));
                    }
                }
                None => {}
            },
            Input::Path(path, event) => {
                let layer = self.layer_of(path, Some(&event));
                if event == PathEvent::Down {
                    self.up.remove(&path);
                }
                if let Some(layer) = layer.and_then(|layer| self.layers.get_mut(layer)) {
                    layer.handle_input(now, Input::Path(path, event));
                }
            }
            Input::Receive(receive) => {
                let layer = self.layer_of(receive.path, None);
                if let Some(layer) = layer.and_then(|layer| self.layers.get_mut(layer)) {
                    layer.handle_input(now, Input::Receive(receive));
                }
            }
        }
        self.exchange(now);
    }

    fn handle_timeout(&mut self, now: Time) {
        // One of them may set a timer of another, which is then already due.
        let due = |deadline: Option<Deadline>| deadline.is_some_and(|deadline| deadline.at <= now);
        if due(self.agent.poll_timeout()) {
            self.agent.handle_timeout(now);
        }
        for layer in self.layers.iter_mut().filter(|layer| due(layer.poll_timeout())) {
            layer.handle_timeout(now);
        }
        self.exchange(now);
    }

    fn poll_transmit(&mut self, now: Time, tx: &mut TxBuf) -> Option<Transmit> {
        let count = self.layers.len();
        for step in 0..count {
            let number = (self.turn + step) % count;
            let transmit = self.layers.get_mut(number)?.poll_transmit(now, tx);
            if transmit.is_some() {
                self.turn = (number + 1) % count;
                self.exchange(now);
                return transmit;
            }
        }
        self.exchange(now);
        None
    }

    fn poll_effect(&mut self) -> Option<Effect> {
        if let Some(effect) = self.agent.poll_effect() {
            return Some(self.tickets.renumbered(Owner::Agent, effect));
        }
        let found = self.layers.iter_mut().enumerate();
        let (number, effect) =
            found.filter_map(|(number, layer)| Some((number, layer.poll_effect()?))).next()?;
        Some(self.tickets.renumbered(Owner::Layer(number), effect))
    }

    fn poll_indication(&mut self) -> Option<Indication> {
        self.agent.poll_indication()
    }

    fn poll_timeout(&self) -> Option<Deadline> {
        let layers = self.layers.iter().filter_map(|layer| layer.poll_timeout());
        layers.chain(self.agent.poll_timeout()).min_by_key(|deadline| deadline.at)
    }
}
