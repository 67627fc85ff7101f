//! The agent's thread.

use std::collections::BTreeSet;
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender};
use engine::{Effect, EffectError, Engine as _, Input, Time};
use proto::bp::agent::{Agent, Indication, LinkRef};
use proto::bp::layer::Command;

use super::Order;
use super::wired::Events;
use crate::{Clock, FileStore, Waker};

/// Orders that are taken in one turn, before what came of them is handed on.
const TURN: usize = 64;
/// Batches of events that are: few, so that layers go on while the agent is at the next.
const BATCHES: usize = 2;
/// The longest wait; what the agent itself waits for is told by its deadline.
const TICK: Duration = Duration::from_millis(500);

/// Whereto the commands for a layer go.
pub(super) struct Port {
    pub(super) commands: Sender<Vec<Command>>,
    pub(super) waker: Waker,
}

/// The agent, and all that it is joined to.
pub(super) struct Turns<F> {
    pub(super) agent: Agent,
    pub(super) clock: Clock,
    pub(super) store: FileStore,
    pub(super) waker: Waker,
    pub(super) orders: Receiver<Order>,
    pub(super) events: Receiver<Events>,
    pub(super) ports: Vec<Port>,
    pub(super) on: F,
    /// No link is opened any more; who waits for the last to end.
    pub(super) closing: Option<Sender<()>>,
}

impl<F: FnMut(Time, &mut Agent, Indication)> Turns<F> {
    /// Runs until it is told to stop, or nobody is left who could.
    pub(super) fn run(mut self) {
        let mut commands: Vec<Vec<Command>> = self.ports.iter().map(|_| Vec::new()).collect();
        loop {
            let now = self.clock.now();
            if self.agent.poll_timeout().is_some_and(|deadline| deadline.at <= now) {
                self.agent.handle_timeout(now);
            }
            let mut is_busy = self.hear(now);
            match self.obey(now) {
                Some(some) => is_busy |= some,
                None => return,
            }
            while let Some((ticket, answer)) = self.store.poll() {
                is_busy = true;
                self.agent.handle_input(now, Input::Done(ticket, answer));
            }
            while let Some(indication) = self.agent.poll_indication() {
                is_busy = true;
                (self.on)(now, &mut self.agent, indication);
            }
            self.keep(now);
            while let Some((layer, command)) = self.agent.poll_command() {
                if let Some(commands) = commands.get_mut(layer) {
                    commands.push(command);
                }
            }
            for (port, commands) in self.ports.iter().zip(&mut commands) {
                if !commands.is_empty() {
                    is_busy = true;
                    // A layer that has ended does nothing any more.
                    let _ = port.commands.send(std::mem::take(commands));
                    port.waker.wake();
                }
            }
            if !is_busy {
                self.wait();
            }
        }
    }

    /// Takes what layers say.
    fn hear(&mut self, now: Time) -> bool {
        let mut some = false;
        for (layer, events) in self.events.try_iter().take(BATCHES) {
            some = true;
            for event in events {
                self.agent.handle_event(now, layer, event);
            }
        }
        if self.closing.is_some() && self.agent.links_up().next().is_none() {
            // Who asked may wait no longer.
            let _ = self.closing.take().map(|closed| closed.send(()));
        }
        some
    }

    /// Does what was asked for; whether there was something, or nothing if this is the end.
    fn obey(&mut self, now: Time) -> Option<bool> {
        let mut some = false;
        for _ in 0..TURN {
            let order = match self.orders.try_recv() {
                Ok(order) => order,
                Err(crossbeam_channel::TryRecvError::Empty) => break,
                Err(crossbeam_channel::TryRecvError::Disconnected) => return None,
            };
            some = true;
            match order {
                Order::Ask(request) => request(now, &mut self.agent),
                Order::Close(links, closed) => {
                    let all: BTreeSet<LinkRef> = self.agent.links_up().chain(links).collect();
                    for LinkRef { layer, link } in all {
                        self.tell(layer, Command::Close { link });
                    }
                    self.closing = Some(closed);
                }
                Order::Stop => return None,
            }
        }
        Some(some)
    }

    fn tell(&self, layer: usize, command: Command) {
        if let Some(port) = self.ports.get(layer) {
            let _ = port.commands.send(vec![command]);
            port.waker.wake();
        }
    }

    /// Has the store do what the agent wants.
    fn keep(&mut self, now: Time) {
        while !self.store.is_full()
            && let Some(effect) = self.agent.poll_effect()
        {
            if let Effect::Store(effect) = effect {
                self.store.submit(effect);
            } else if let Some(ticket) = effect.ticket() {
                let why = EffectError::Failed("an agent has no paths".to_owned());
                self.agent.handle_input(now, Input::Done(ticket, Err(why)));
            }
        }
    }

    fn wait(&self) {
        let now = self.clock.now();
        let next = self.agent.poll_timeout().map_or(TICK, |deadline| deadline.at.since(now));
        let timeout = next.min(TICK);
        if timeout > Duration::ZERO
            && let Err(error) = self.waker.wait_alone(Some(timeout))
        {
            // It cannot be, and must not become a busy loop if it is.
            tracing::error!(%error, "waiting failed");
            std::thread::sleep(timeout.min(Duration::from_millis(10)));
        }
    }
}
