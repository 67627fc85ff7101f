//! The agent's thread.

use std::collections::BTreeSet;
use std::time::Duration;

use bp::agent::{Agent, Indication, LinkRef};
use bp::layer::Command;
use crossbeam_channel::{Receiver, Sender};
use engine::{Engine as _, Time};

use super::wired::{Events, ForLayer};
use super::{LayerUpdate, OnStep, Order};
use crate::Waker;
use crate::pump::{Pump, Step};
use crate::wall::{Wall, dtn_ms};

/// Maximum orders per turn.
const TURN: usize = 64;
/// Maximum batches of events per turn: few, so that layers work while the agent handles the next.
const BATCHES: usize = 2;
/// Longest wait; the agent's own deadline may be earlier.
const TICK: Duration = Duration::from_millis(500);

/// Destination of the commands for a layer.
pub(super) struct Port {
    pub(super) commands: Sender<ForLayer>,
    pub(super) waker: Waker,
}

impl Port {
    pub(super) fn send(&self, next: ForLayer) {
        // A layer that has ended ignores it.
        let _ = self.commands.send(next);
        self.waker.wake();
    }
}

/// The agent and everything connected to it.
pub(super) struct Turns<F> {
    pub(super) pump: Pump<Agent>,
    pub(super) wall: Wall,
    pub(super) on_step: Option<OnStep>,
    pub(super) waker: Waker,
    pub(super) orders: Receiver<Order>,
    pub(super) events: Receiver<Events>,
    pub(super) ports: Vec<Port>,
    pub(super) on: F,
    /// Set when closing: no link is opened any more. Receives a message when the last link has
    /// ended.
    pub(super) closing: Option<Sender<()>>,
}

impl<F: FnMut(Time, &mut Agent, Indication)> Turns<F> {
    /// Runs until it is stopped or all handles are dropped.
    pub(super) fn run(mut self) {
        let mut commands: Vec<Vec<Command>> = self.ports.iter().map(|_| Vec::new()).collect();
        loop {
            let now = self.pump.now();
            self.follow(now);
            self.pump.expire(now);
            let mut is_busy = self.receive(now);
            match self.process_commands(now) {
                Some(some) => is_busy |= some,
                None => return,
            }
            is_busy |= self.pump.pass_results();
            let now = self.pump.now();
            while let Some(indication) = self.pump.engine.poll_indication() {
                is_busy = true;
                (self.on)(now, &mut self.pump.engine, indication);
            }
            while let Some(step) = self.pump.next_step() {
                // An agent has no paths.
                if let Step::Stream(effect) = step {
                    self.pump.refuse(&effect);
                }
            }
            while let Some((layer, command)) = self.pump.engine.poll_command() {
                if let Some(commands) = commands.get_mut(layer) {
                    commands.push(command);
                }
            }
            for (port, commands) in self.ports.iter().zip(&mut commands) {
                if !commands.is_empty() {
                    is_busy = true;
                    port.send(ForLayer::Commands(std::mem::take(commands)));
                }
            }
            if !is_busy {
                self.wait();
            }
        }
    }

    /// Follows the wall clock, before anything else happens in this turn.
    fn follow(&mut self, now: Time) {
        let clock = &self.pump.clock;
        let set = self.wall.follow(now, || clock.zero(), crate::clock::is_synchronised);
        let Some((zero, change)) = set else { return };
        change.log();
        self.pump.engine.set_clock(now, Some(dtn_ms(zero)));
        if let Some(on_step) = &mut self.on_step {
            on_step(now, &mut self.pump.engine, zero);
        }
    }

    /// Takes the layers' events.
    fn receive(&mut self, now: Time) -> bool {
        let mut some = false;
        for (layer, events) in self.events.try_iter().take(BATCHES) {
            some = true;
            for event in events {
                self.pump.engine.handle_event(now, layer, event);
            }
        }
        if self.closing.is_some() && self.pump.engine.links_up().next().is_none() {
            // The requester may have given up waiting.
            let _ = self.closing.take().map(|closed| closed.send(()));
        }
        some
    }

    /// Carries out orders. Returns whether there were any, or `None` at the end.
    fn process_commands(&mut self, now: Time) -> Option<bool> {
        let mut some = false;
        for _ in 0..TURN {
            let order = match self.orders.try_recv() {
                Ok(order) => order,
                Err(crossbeam_channel::TryRecvError::Empty) => break,
                Err(crossbeam_channel::TryRecvError::Disconnected) => return None,
            };
            some = true;
            match order {
                Order::Ask(request) => request(now, &mut self.pump.engine),
                Order::Close(links, closed) => {
                    let all: BTreeSet<LinkRef> = self.pump.engine.links_up().chain(links).collect();
                    for LinkRef { layer, link } in all {
                        if let Some(port) = self.ports.get(layer) {
                            port.send(ForLayer::Ending(link));
                        }
                    }
                    self.closing = Some(closed);
                }
                Order::Configure(updates) => {
                    for LayerUpdate { layer, configured, destinations } in updates {
                        let update = ForLayer::Configured(Box::new(configured), destinations);
                        if let Some(port) = self.ports.get(layer) {
                            port.send(update);
                        }
                    }
                }
                Order::Stop => return None,
            }
        }
        Some(some)
    }

    fn wait(&self) {
        let now = self.pump.now();
        let next = self.pump.next_timeout().map_or(TICK, |at| at.since(now));
        let timeout = next.min(TICK);
        if timeout > Duration::ZERO
            && let Err(error) = self.waker.wait_alone(Some(timeout))
        {
            // Cannot happen; if it does, it must not become a busy loop.
            tracing::error!(%error, "waiting failed");
            std::thread::sleep(timeout.min(Duration::from_millis(10)));
        }
    }
}
