//! Drives the engine of one host by the rules of the contract.

use std::fmt;

use engine::{Effect, EffectError, Engine, Input, PathEffect, Time, Transmit, TxBuf};

use crate::host::{Host, HostId};
use crate::net::Network;
use crate::packet::Packet;
use crate::stack::{Arrival, HostConfig, Stack, datagram};
use crate::store::Store;

/// Maximum inputs, effects and batches of one engine at one moment; beyond it the engine counts as
/// stuck.
const WORK_MAX: u64 = 20_000_000;

/// A host with its network stack.
pub(crate) struct Driver<E> {
    pub(crate) host: Host<E>,
    pub(crate) stack: Stack,
    tx: TxBuf,
    /// Batch in `tx` that must not be sent yet.
    held: Option<Transmit>,
    deadline: Option<engine::Deadline>,
}

/// Breach of the contract by an engine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Violation(pub(crate) String);

type Indications<E> = Vec<(Time, HostId, <E as Engine>::Indication)>;

impl<E: Engine> Driver<E> {
    pub(crate) fn new(index: usize, config: HostConfig, seed: u64) -> Self {
        let host = Host::new(&*config.name, seed, Store::of_host(seed, &config.name));
        let tx = TxBuf::new(config.batch);
        Self { host, stack: Stack::new(index, config), tx, held: None, deadline: None }
    }

    /// Returns when this host acts next.
    pub(crate) fn due(&self) -> Option<Time> {
        let held = self.held.map(|transmit| transmit.not_before);
        let deadline = self.deadline.map(|deadline| deadline.at);
        [held, deadline, self.host.store().next()].into_iter().flatten().min()
    }

    /// Creates the engine, if one is installed, and announces its paths.
    pub(crate) fn start(&mut self, now: Time, net: &mut Network) {
        if self.host.start() {
            self.stack.start(now, net);
        }
    }

    /// Restarts the engine, after a crash if it runs.
    pub(crate) fn restart(&mut self, now: Time, net: &mut Network) {
        self.crash(now, net);
        if self.host.restart() {
            self.stack.start(now, net);
        }
    }

    /// Drops the engine with its state; files and records stay.
    pub(crate) fn crash(&mut self, now: Time, net: &mut Network) {
        if self.host.crash(now) {
            self.held = None;
            self.deadline = None;
            self.stack.stop(net);
        }
    }

    /// Takes a packet that a link from a neighbour delivered: forwards it, delivers it, or both if
    /// it is for a group.
    pub(crate) fn arrive(
        &mut self,
        now: Time,
        packet: Packet,
        neighbour: usize,
        net: &mut Network,
    ) {
        let Some(packet) = self.stack.pass_on(now, packet, net) else { return };
        let running = self.host.engine().is_some();
        let arrival = match self.stack.interface_to(neighbour, net) {
            Some(path) => self.stack.receive_packet(now, path, packet, running),
            None => self.stack.receive(now, packet, running, net),
        };
        self.deliver(now, arrival, net);
    }

    /// Delivers a packet for this host.
    fn deliver(&mut self, now: Time, arrival: Arrival, net: &mut Network) {
        match arrival {
            Arrival::Dropped(packet) => net.pool.recycle(packet),
            Arrival::Kept => {}
            Arrival::Received { arrived, ecn, data, packet } => {
                if let Some(engine) = self.host.engine_mut() {
                    // A new peer is announced before its first datagram.
                    while let Some((path, event)) = self.stack.events.pop_front() {
                        engine.handle_input(now, Input::Path(path, event));
                    }
                    let received = datagram(arrived, ecn, &packet.bytes()[data]);
                    engine.handle_input(now, Input::Receive(received));
                }
                net.pool.recycle(packet);
            }
        }
    }

    /// Performs due actions: completes effects, sends the held batch, calls the timeout.
    pub(crate) fn act(
        &mut self,
        now: Time,
        net: &mut Network,
        indications: &mut Indications<E>,
    ) -> Result<(), Violation> {
        self.host.complete(now);
        if let Some(transmit) = self.held.filter(|transmit| transmit.not_before <= now) {
            self.held = None;
            self.stack.send(now, &transmit, self.tx.bytes(), net);
        }
        let Some(engine) = self.host.engine_mut() else { return Ok(()) };
        if self.deadline.is_none_or(|deadline| deadline.at > now) {
            return self.drain(now, net, indications);
        }
        engine.handle_timeout(now);
        self.drain(now, net, indications)?;
        match self.deadline {
            Some(deadline) if deadline.at <= now => Err(Violation(format!(
                "its timer \"{}\" is still due at {} after handle_timeout",
                deadline.why, deadline.at
            ))),
            Some(_) | None => Ok(()),
        }
    }

    /// Pulls effects, batches and indications until there are none, then reads the deadline.
    pub(crate) fn drain(
        &mut self,
        now: Time,
        net: &mut Network,
        indications: &mut Indications<E>,
    ) -> Result<(), Violation> {
        let mut work = 0;
        loop {
            let before = work;
            self.hand_in(now, net, &mut work);
            work += self.carry_out_effects(now, net);
            work += self.pull(now, net);
            let Some(engine) = self.host.engine_mut() else { return Ok(()) };
            while let Some(indication) = engine.poll_indication() {
                indications.push((now, HostId(self.stack.index), indication));
                work += 1;
            }
            if work == before {
                self.deadline = engine.poll_timeout();
                return Ok(());
            }
            if work > WORK_MAX {
                return Err(Violation(format!("it found no end of work at {now}")));
            }
        }
    }

    /// Delivers path events and the packets that waited for reading to resume.
    fn hand_in(&mut self, now: Time, net: &mut Network, work: &mut u64) {
        loop {
            if let Some((path, event)) = self.stack.events.pop_front() {
                self.host.hand_in(now, Input::Path(path, event));
            } else if let Some((path, packet)) = self.stack.resumed.pop_front() {
                let arrival = self.stack.receive_again(now, path, packet, net);
                self.deliver(now, arrival, net);
            } else {
                return;
            }
            *work += 1;
        }
    }

    fn carry_out_effects(&mut self, now: Time, net: &mut Network) -> u64 {
        let mut work = 0;
        while work < WORK_MAX
            && let Some(effect) = self.host.engine_mut().and_then(E::poll_effect)
        {
            work += 1;
            match effect {
                Effect::Store(effect) => self.host.submit(now, effect),
                // Hosts carry only datagrams.
                Effect::Stream(effect) => {
                    if let Some(ticket) = effect.ticket() {
                        let answer = Err(EffectError::NotAllowed);
                        self.host.hand_in(now, Input::Done(ticket, answer));
                    }
                }
                Effect::Path(PathEffect::Open { path }) => self.stack.open(now, path, net),
                Effect::Path(PathEffect::Close { path }) => self.stack.close(path),
                Effect::Path(PathEffect::PauseRead { path }) => self.stack.pause(path, true),
                Effect::Path(PathEffect::ResumeRead { path }) => self.stack.pause(path, false),
                // All peers of a world are known beforehand.
                Effect::Path(PathEffect::Retain { .. } | PathEffect::Release { .. }) => {}
            }
        }
        work
    }

    /// Pulls batches until there is none, or one that must not be sent yet.
    fn pull(&mut self, now: Time, net: &mut Network) -> u64 {
        let mut work = 0;
        let Some(engine) = self.host.engine_mut() else { return 0 };
        while self.held.is_none() && self.stack.events.is_empty() && work < WORK_MAX {
            self.tx.clear();
            let Some(transmit) = engine.poll_transmit(now, &mut self.tx) else { break };
            work += 1;
            if transmit.not_before > now {
                self.held = Some(transmit);
            } else {
                self.stack.send(now, &transmit, self.tx.bytes(), net);
            }
        }
        work
    }
}

impl<E> fmt::Debug for Driver<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.host.fmt(f)
    }
}
