//! A layer in its driver's thread, connected to the agent's by channels.

use std::collections::BTreeMap;
use std::convert::Infallible;

use bp::layer::{Command, Configured, Event, Layer};
use crossbeam_channel::{Receiver, Sender, TrySendError};
use engine::{Deadline, Effect, Engine, Input, PathId, Time, Transmit, TxBuf};

use crate::{Destination, Waker};

/// Events of a layer, with its number.
pub(super) type Events = (usize, Vec<Event>);

/// Number of events, and of bytes of bundles, at which a batch is passed to the agent while the
/// layer continues.
const BATCH: usize = 64;
const BATCH_BYTES: usize = 128 << 10;

/// Message of the agent's thread to a layer.
pub(super) enum ForLayer {
    Commands(Vec<Command>),
    /// Neighbours in place of the former, and the destinations of their paths.
    Configured(Box<Configured>, BTreeMap<PathId, Destination>),
}

/// A layer as an engine of its driver: commands and events pass through channels.
pub(super) struct Wired {
    pub(super) layer: Box<dyn Layer>,
    pub(super) number: usize,
    pub(super) commands: Receiver<ForLayer>,
    /// Destinations for the driver.
    pub(super) peers: Sender<BTreeMap<PathId, Destination>>,
    pub(super) events: Sender<Events>,
    /// Events not yet sent to the agent, and their bytes.
    pub(super) pending_events: Vec<Event>,
    pub(super) pending_bytes: usize,
    /// Wakes the agent.
    pub(super) agent: Waker,
    pub(super) now: Time,
}

impl Wired {
    fn process_commands(&mut self, now: Time) {
        self.now = now;
        while let Ok(next) = self.commands.try_recv() {
            match next {
                ForLayer::Commands(commands) => {
                    for command in commands {
                        self.layer.command(now, command);
                    }
                }
                ForLayer::Configured(configured, destinations) => {
                    // The driver is in this thread, and takes them before it opens a path.
                    self.layer.configure(now, *configured);
                    let _ = self.peers.send(destinations);
                }
            }
        }
    }

    /// Collects the layer's events and sends a full batch to the agent.
    fn gather(&mut self) {
        while let Some(event) = self.layer.poll_indication() {
            if let Event::Piece { bytes, .. } = &event {
                self.pending_bytes += bytes.len();
            }
            self.pending_events.push(event);
            if self.pending_events.len() >= BATCH || self.pending_bytes >= BATCH_BYTES {
                self.flush_events();
            }
        }
    }

    /// Sends the events to the agent. Blocks if it is behind; meanwhile data of the peers waits in
    /// the kernel.
    fn flush_events(&mut self) {
        if self.pending_events.is_empty() {
            return;
        }
        self.pending_bytes = 0;
        let events = std::mem::replace(&mut self.pending_events, Vec::with_capacity(BATCH));
        match self.events.try_send((self.number, events)) {
            Ok(()) => self.agent.wake(),
            Err(TrySendError::Full(events)) => {
                self.agent.wake();
                // An agent that has ended receives nothing.
                let _ = self.events.send(events);
                self.agent.wake();
            }
            Err(TrySendError::Disconnected(_)) => {}
        }
    }
}

impl Engine for Wired {
    type Indication = Infallible;

    fn handle_input(&mut self, now: Time, input: Input<'_>) {
        self.now = now;
        self.layer.handle_input(now, input);
        self.gather();
    }

    fn handle_timeout(&mut self, now: Time) {
        self.now = now;
        self.layer.handle_timeout(now);
    }

    fn poll_transmit(&mut self, now: Time, tx: &mut TxBuf) -> Option<Transmit> {
        self.process_commands(now);
        self.layer.poll_transmit(now, tx)
    }

    fn poll_effect(&mut self) -> Option<Effect> {
        self.layer.poll_effect()
    }

    /// Sends all events to the agent; the driver gets no indication.
    fn poll_indication(&mut self) -> Option<Infallible> {
        // A driver that holds a batch which is not due does not pull another.
        self.process_commands(self.now);
        self.gather();
        self.flush_events();
        None
    }

    fn poll_timeout(&self) -> Option<Deadline> {
        self.layer.poll_timeout()
    }
}
