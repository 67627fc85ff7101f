//! The world the suite runs in: two hosts, a path each way, a virtual clock.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use bytes::Bytes;

use super::plan::{Fault, Faults, Interruption, Plan, corrupt};
use super::progress::Progress;
use super::{Broken, Options, PATH, Role, Rule, Subject, Verdict, broken};
use crate::{
    Completion, Effect, EffectError, Engine, Input, MemoryStore, PathEffect, PathEvent, PathInfo,
    PathKind, Receive, Rng, StoreEffect, Ticket, Time, Transmit, TxBuf,
};

/// Maximum outputs of one drain.
const DRAIN_MAX: u32 = 100_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PathState {
    Up,
    Blocked,
    Down,
}

enum Event {
    Arrive(Bytes),
    Answer(Ticket, Result<Completion, EffectError>),
    Release,
    PathUp,
    ReturnUp,
    Writable,
}

/// Request made of an engine as soon as it can take it.
#[derive(Clone, Copy, Debug)]
enum Request {
    /// Start the transfer.
    Start,
    /// Resume transfers that were in progress when the engine was lost.
    Restart,
}

struct Host<E> {
    engine: E,
    /// Number of restarts.
    life: u64,
    /// Request the engine could not take yet.
    request: Option<Request>,
    store: MemoryStore,
    tx: TxBuf,
    path: PathState,
    /// The return link is down, so nothing arrives.
    is_deaf: bool,
    /// Batch that must not be sent yet; nothing is pulled meanwhile.
    held: Option<(Time, Vec<Bytes>)>,
    /// Datagrams that arrived while the engine had paused reading.
    paused: Option<VecDeque<Bytes>>,
    verdicts: Vec<(Time, Verdict)>,
    effects: u64,
    /// Latest deadline, and the time of the call for it.
    call: Option<(Time, Time)>,
}

/// A datagram as it was sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Sent {
    pub(super) at: Time,
    pub(super) from: Role,
    pub(super) bytes: Bytes,
}

/// Outcome of a run.
#[derive(Debug)]
pub(super) struct Outcome {
    pub(super) sent: Vec<Sent>,
    pub(super) verdicts: [Vec<(Time, Verdict)>; 2],
    pub(super) effects: [u64; 2],
    pub(super) events: u64,
    pub(super) right: Result<(), String>,
}

impl Outcome {
    pub(super) fn count(&self, from: Role) -> u64 {
        self.sent.iter().filter(|sent| sent.from == from).count() as u64
    }

    pub(super) fn has(&self, role: Role, verdict: Verdict) -> bool {
        self.verdicts[role as usize].iter().any(|(_, given)| *given == verdict)
    }
}

pub(super) struct World<'a, S: Subject> {
    subject: &'a S,
    options: &'a Options,
    progress: &'a Progress,
    plan: Plan,
    hosts: [Host<S::Engine>; 2],
    now: Time,
    queue: BTreeMap<(Time, u64), (Role, Event)>,
    queued: u64,
    events: u64,
    sent: Vec<Sent>,
    sent_by: [u64; 2],
    rng: Rng,
}

impl<'a, S: Subject> World<'a, S> {
    /// Creates two hosts with their paths up and no request made.
    pub(super) fn new(
        subject: &'a S,
        options: &'a Options,
        progress: &'a Progress,
        plan: Plan,
    ) -> Result<Self, Broken> {
        progress.seed.set(plan.seed);
        progress.events.set(0);
        progress.now.set(Time::ZERO);
        *progress.what.borrow_mut() = format!("{plan:?}");
        let hosts = Role::BOTH.map(|role| {
            let mut store = MemoryStore::new();
            subject.prepare(role, &mut store);
            Host {
                engine: subject.engine(role, plan.seed.wrapping_mul(2) + role as u64),
                life: 0,
                request: None,
                store,
                tx: TxBuf::new(plan.batch_tx),
                path: PathState::Down,
                is_deaf: false,
                held: None,
                paused: None,
                verdicts: Vec::new(),
                effects: 0,
                call: None,
            }
        });
        let mut world = Self {
            subject,
            options,
            progress,
            hosts,
            // The clock does not start at 0, to find engines that confuse the epoch with "never".
            now: Time::from_secs(1),
            queue: BTreeMap::new(),
            queued: 0,
            events: 0,
            sent: Vec::new(),
            sent_by: [0; 2],
            rng: Rng::new(plan.seed, "conformance"),
            plan,
        };
        for role in Role::BOTH {
            world.drain(role)?;
            world.idle(role, "new")?;
            world.path_up(role)?;
        }
        Ok(world)
    }

    /// Starts the transfer at the sender.
    pub(super) fn start(&mut self) -> Result<(), Broken> {
        self.hosts[0].request = Some(Request::Start);
        self.make_request(Role::Sender)
    }

    /// Processes the next event. `false` if there will never be another.
    pub(super) fn step(&mut self) -> Result<bool, Broken> {
        self.interrupt()?;
        let timer = self.next_call();
        let event = self.queue.first_key_value().map(|((at, _), _)| *at);
        let at = match (event, timer) {
            (None, None) => return Ok(false),
            (Some(at), None) | (None, Some((at, _))) => at,
            (Some(event), Some((timer, _))) => event.min(timer),
        };
        if at.since(Time::ZERO) > self.options.horizon || self.events >= self.options.events_max {
            return self.endless();
        }
        self.spurious(at)?;
        self.advance(at);
        self.events += 1;
        self.progress.events.set(self.events);
        match timer {
            Some((due, role)) if event.is_none_or(|event| due < event) => self.timeout(role)?,
            Some(_) | None => self.event()?,
        }
        for role in Role::BOTH {
            self.make_request(role)?;
        }
        Ok(true)
    }

    /// Processes all events and returns the outcome.
    pub(super) fn finish(mut self) -> Result<Outcome, Broken> {
        while self.step()? {}
        let right = self.subject.check(&self.hosts[1].store);
        for role in Role::BOTH {
            let host = &self.hosts[role as usize];
            if self.subject.is_busy(&host.engine) {
                return broken(Rule::TransferEnds, format!("{role:?} is stuck: busy, no deadline"));
            }
            self.idle(role, "done")?;
        }
        let [sender, receiver] = self.hosts;
        let delivered = |host: &Host<_>| host.verdicts.iter().any(|v| v.1 == Verdict::Delivered);
        if let Err(wrong) = &right
            && !self.plan.hostile
            && (delivered(&sender) || delivered(&receiver))
        {
            return broken(Rule::WrongSuccess, format!("the file changed afterwards: {wrong}"));
        }
        Ok(Outcome {
            sent: self.sent,
            verdicts: [sender.verdicts, receiver.verdicts],
            effects: [sender.effects, receiver.effects],
            events: self.events,
            right,
        })
    }

    /// Delivers bytes to an engine as if they had just arrived, in datagrams of `stride` bytes. An
    /// engine that paused its path loses them, as in a driver whose own buffer is full.
    pub(super) fn inject(&mut self, role: Role, stride: usize, bytes: &[u8]) -> Result<(), Broken> {
        if self.hosts[role as usize].paused.is_some() {
            return Ok(());
        }
        self.deliver(role, stride, bytes)
    }

    /// Fills the path of one role for this long.
    pub(super) fn block(&mut self, role: Role, time: Duration) -> Result<(), Broken> {
        let host = &mut self.hosts[role as usize];
        host.path = PathState::Blocked;
        host.engine.handle_input(self.now, Input::Path(PATH, PathEvent::Blocked));
        self.schedule(self.now + time, role, Event::Writable);
        self.drain(role)
    }

    /// Advances time; only timeouts and arrivals happen.
    pub(super) fn pass(&mut self, time: Duration) -> Result<(), Broken> {
        let until = self.now + time;
        loop {
            let event = self.queue.first_key_value().map(|((at, _), _)| *at);
            let next = self.next_call().map(|(at, _)| at).into_iter().chain(event).min();
            if next.is_none_or(|at| at > until) {
                break;
            }
            self.step()?;
        }
        self.advance(until);
        Ok(())
    }

    pub(super) fn sent(&self) -> &[Sent] {
        &self.sent
    }

    fn advance(&mut self, at: Time) {
        self.now = self.now.max(at);
        self.progress.now.set(self.now);
    }

    /// Returns the next call for a timeout, which may be later than the engine's deadline.
    fn next_call(&mut self) -> Option<(Time, Role)> {
        let mut next: Option<(Time, Role)> = None;
        for role in Role::BOTH {
            let host = &mut self.hosts[role as usize];
            let Some(deadline) = host.engine.poll_timeout() else {
                host.call = None;
                continue;
            };
            let call = match host.call {
                Some((deadline_at, call)) if deadline_at == deadline.at => call,
                Some(_) | None => {
                    let late = self.rng.below(self.plan.late.as_nanos() as u64 + 1);
                    deadline.at + Duration::from_nanos(late)
                }
            };
            host.call = Some((deadline.at, call));
            next = Some(next.map_or((call, role), |next| next.min((call, role))));
        }
        next.map(|(at, role)| (at.max(self.now), role))
    }

    fn timeout(&mut self, role: Role) -> Result<(), Broken> {
        self.hosts[role as usize].engine.handle_timeout(self.now);
        self.drain(role)?;
        match self.hosts[role as usize].engine.poll_timeout() {
            Some(deadline) if deadline.at <= self.now => {
                let (at, why) = (deadline.at, deadline.why);
                broken(
                    Rule::DeadlineAfterDrain,
                    format!("{role:?} sets a deadline at {at} s, {why}"),
                )
            }
            Some(_) | None => Ok(()),
        }
    }

    /// Calls timeouts that are not due, at a moment before `at` and at the present moment.
    fn spurious(&mut self, at: Time) -> Result<(), Broken> {
        if !self.plan.spurious {
            return Ok(());
        }
        let between = self.now + at.since(self.now) / 2;
        for moment in [self.now, between] {
            self.advance(moment);
            for role in Role::BOTH {
                let deadline = self.hosts[role as usize].engine.poll_timeout();
                if deadline.is_none_or(|deadline| deadline.at > moment) {
                    self.timeout(role)?;
                }
            }
        }
        Ok(())
    }

    fn event(&mut self) -> Result<(), Broken> {
        let Some((_, (role, event))) = self.queue.pop_first() else { return Ok(()) };
        match event {
            Event::Arrive(bytes) => self.arrive(role, &bytes),
            Event::Answer(ticket, answer) => {
                let host = &mut self.hosts[role as usize];
                host.engine.handle_input(self.now, Input::Done(ticket, answer));
                self.drain(role)
            }
            Event::Release => {
                self.release(role);
                self.drain(role)
            }
            Event::PathUp => self.path_up(role),
            Event::ReturnUp => {
                let host = &mut self.hosts[role as usize];
                host.is_deaf = false;
                host.engine.handle_input(self.now, Input::Path(PATH, PathEvent::ReturnUp));
                self.drain(role)
            }
            Event::Writable => {
                let host = &mut self.hosts[role as usize];
                if host.path == PathState::Blocked {
                    host.path = PathState::Up;
                    host.engine.handle_input(self.now, Input::Path(PATH, PathEvent::Writable));
                }
                self.drain(role)
            }
        }
    }

    /// Delivers a datagram together with the following ones that fit into the same batch.
    fn arrive(&mut self, role: Role, first: &Bytes) -> Result<(), Broken> {
        let stride = first.len();
        let (mut batch, mut count, mut last) = (first.to_vec(), 1, stride);
        while count < self.plan.batch_rx && last == stride && stride > 0 {
            let Some(entry) = self.queue.first_entry() else { break };
            let joins = match entry.get() {
                (to, Event::Arrive(next)) => {
                    *to == role && entry.key().0 <= self.now && (1..=stride).contains(&next.len())
                }
                (
                    _,
                    Event::Answer(..)
                    | Event::Release
                    | Event::PathUp
                    | Event::ReturnUp
                    | Event::Writable,
                ) => false,
            };
            if !joins {
                break;
            }
            if let (_, Event::Arrive(next)) = entry.remove() {
                last = next.len();
                batch.extend_from_slice(&next);
                count += 1;
            }
        }
        let host = &mut self.hosts[role as usize];
        if host.path == PathState::Down || host.is_deaf {
            return Ok(());
        }
        if let Some(waiting) = &mut host.paused {
            waiting.extend(batch.chunks(stride.max(1)).map(Bytes::copy_from_slice));
            return Ok(());
        }
        self.deliver(role, stride, &batch)
    }

    fn deliver(&mut self, role: Role, stride: usize, bytes: &[u8]) -> Result<(), Broken> {
        let receive = Receive { stride, ..Receive::datagram(PATH, bytes) };
        self.hosts[role as usize].engine.handle_input(self.now, Input::Receive(receive));
        self.drain(role)
    }

    fn path_up(&mut self, role: Role) -> Result<(), Broken> {
        let owlt = Some(self.options.latency[role as usize]);
        let info = PathInfo { owlt, ..self.subject.path() };
        let host = &mut self.hosts[role as usize];
        host.path = PathState::Up;
        host.engine.handle_input(self.now, Input::Path(PATH, PathEvent::Up(info)));
        if host.is_deaf {
            host.engine.handle_input(self.now, Input::Path(PATH, PathEvent::ReturnDown));
        }
        self.drain(role)
    }

    fn interrupt(&mut self) -> Result<(), Broken> {
        let Some((_, what)) = self.plan.interruption.take_if(|(at, _)| *at <= self.events) else {
            return Ok(());
        };
        match what {
            Interruption::Outage(time) => {
                for role in Role::BOTH {
                    let host = &mut self.hosts[role as usize];
                    host.path = PathState::Down;
                    host.held = None;
                    host.engine.handle_input(self.now, Input::Path(PATH, PathEvent::Down));
                    self.drain(role)?;
                    self.schedule(self.now + time, role, Event::PathUp);
                }
                Ok(())
            }
            Interruption::ReturnOutage(role, time) => {
                let host = &mut self.hosts[role as usize];
                host.is_deaf = true;
                host.engine.handle_input(self.now, Input::Path(PATH, PathEvent::ReturnDown));
                self.drain(role)?;
                self.schedule(self.now + time, role, Event::ReturnUp);
                Ok(())
            }
            Interruption::Block(role, time) => self.block(role, time),
            Interruption::Restart(role) => self.restart(role),
        }
    }

    fn restart(&mut self, role: Role) -> Result<(), Broken> {
        // The store's effects are carried out, but their completions reach no engine.
        self.queue.retain(|_, (to, event)| {
            *to != role || !matches!(event, Event::Answer(..) | Event::Release)
        });
        let host = &mut self.hosts[role as usize];
        host.life += 1;
        let seed = self.plan.seed.wrapping_mul(2) + role as u64 + (host.life << 32);
        host.engine = self.subject.engine(role, seed);
        host.store.close_all();
        host.held = None;
        host.paused = None;
        host.call = None;
        host.request = Some(Request::Restart);
        self.path_up(role)?;
        self.make_request(role)
    }

    /// Makes an engine start or resume as soon as it can.
    fn make_request(&mut self, role: Role) -> Result<(), Broken> {
        let host = &mut self.hosts[role as usize];
        let Some(request) = host.request else { return Ok(()) };
        let done = match request {
            Request::Start => self.subject.start(&mut host.engine, self.now),
            Request::Restart => self.subject.restart(role, &mut host.engine, self.now),
        };
        if done {
            host.request = None;
        }
        self.drain(role)
    }

    fn drain(&mut self, role: Role) -> Result<(), Broken> {
        for _ in 0..DRAIN_MAX {
            let mut more = false;
            if let Some(effect) = self.hosts[role as usize].engine.poll_effect() {
                more = true;
                self.effect(role, effect)?;
            }
            let host = &mut self.hosts[role as usize];
            if host.held.is_none() {
                host.tx.clear();
                if let Some(transmit) = host.engine.poll_transmit(self.now, &mut host.tx) {
                    more = true;
                    self.transmit(role, transmit)?;
                }
            }
            if let Some(indication) = self.hosts[role as usize].engine.poll_indication() {
                more = true;
                if let Some(verdict) = self.subject.verdict(role, &indication) {
                    self.verdict(role, verdict)?;
                }
            }
            if !more {
                return self.within_memory(role);
            }
        }
        broken(Rule::DrainEnds, format!("{role:?} gave {DRAIN_MAX} outputs and had more"))
    }

    fn within_memory(&self, role: Role) -> Result<(), Broken> {
        let held = self.subject.memory(&self.hosts[role as usize].engine);
        let most = self.subject.memory_max();
        if held > most {
            return broken(Rule::BoundedMemory, format!("{role:?} holds {held} of {most} bytes"));
        }
        Ok(())
    }

    fn verdict(&mut self, role: Role, verdict: Verdict) -> Result<(), Broken> {
        self.hosts[role as usize].verdicts.push((self.now, verdict));
        if verdict == Verdict::Delivered
            && !self.plan.hostile
            && let Err(wrong) = self.subject.check(&self.hosts[1].store)
        {
            return broken(Rule::WrongSuccess, format!("{role:?} reports delivered, but {wrong}"));
        }
        Ok(())
    }

    fn effect(&mut self, role: Role, effect: Effect) -> Result<(), Broken> {
        let host = &mut self.hosts[role as usize];
        match effect {
            Effect::Path(PathEffect::PauseRead { .. }) => {
                host.paused.get_or_insert_default();
            }
            Effect::Path(PathEffect::ResumeRead { .. }) => {
                for bytes in host.paused.take().into_iter().flatten() {
                    self.schedule(self.now, role, Event::Arrive(bytes));
                }
            }
            Effect::Path(PathEffect::Open { .. }) if host.path == PathState::Down => {
                self.schedule(self.now, role, Event::PathUp);
            }
            // The only peer of this world is not forgotten.
            Effect::Path(
                PathEffect::Open { .. } | PathEffect::Retain { .. } | PathEffect::Release { .. },
            ) => {}
            Effect::Path(PathEffect::Close { .. }) => host.path = PathState::Down,
            // The subjects of this world use datagrams.
            Effect::Stream(effect) => {
                if let Some(ticket) = effect.ticket() {
                    let answer = Err(EffectError::NotAllowed);
                    host.engine.handle_input(self.now, Input::Done(ticket, answer));
                }
            }
            Effect::Store(effect) => self.store(role, effect),
        }
        Ok(())
    }

    fn store(&mut self, role: Role, effect: StoreEffect) {
        let host = &mut self.hosts[role as usize];
        let Some(ticket) = effect.ticket() else {
            host.store.execute(effect);
            return;
        };
        let fails = self.plan.effect_fails == Some((role, host.effects));
        host.effects += 1;
        let answer = if fails {
            Err(EffectError::Failed("the disk is broken".into()))
        } else {
            match host.store.execute(effect) {
                Some((_, answer)) => answer,
                None => return,
            }
        };
        if self.plan.store_latency.is_zero() {
            host.engine.handle_input(self.now, Input::Done(ticket, answer));
        } else {
            let at = self.now + self.plan.store_latency;
            self.schedule(at, role, Event::Answer(ticket, answer));
        }
    }

    fn transmit(&mut self, role: Role, transmit: Transmit) -> Result<(), Broken> {
        let host = &mut self.hosts[role as usize];
        let most = match self.subject.path().kind {
            PathKind::Datagram { mtu } => mtu,
            PathKind::Message { max } => max,
            PathKind::Stream => usize::MAX,
        };
        let (len, segment) = (transmit.len, transmit.segment);
        let equal = len == host.tx.bytes().len()
            && !host.tx.is_empty()
            && host.tx.datagrams().next().map(<[u8]>::len) == Some(segment);
        if !equal || segment > most || transmit.path != PATH {
            let (pushed, datagrams) = (host.tx.bytes().len(), host.tx.segments());
            let detail = format!(
                "{role:?}: {transmit:?} for {datagrams} datagrams of {pushed} bytes, {most} fit"
            );
            return broken(Rule::Batch, detail);
        }
        if host.path != PathState::Up {
            let state = host.path;
            return broken(
                Rule::ClosedPath,
                format!("{role:?} sends {len} bytes; it is {state:?}"),
            );
        }
        let datagrams = host.tx.datagrams().map(Bytes::copy_from_slice).collect();
        host.held = Some((transmit.not_before, datagrams));
        if transmit.not_before > self.now {
            self.schedule(transmit.not_before, role, Event::Release);
        } else {
            self.release(role);
        }
        Ok(())
    }

    /// Sends the held batch.
    fn release(&mut self, role: Role) {
        let Some((at, datagrams)) = self.hosts[role as usize].held.take() else { return };
        if at > self.now {
            // This release belongs to a batch that was lost in an outage; the batch held now has
            // its own.
            self.hosts[role as usize].held = Some((at, datagrams));
            return;
        }
        for bytes in datagrams {
            let index = self.sent_by[role as usize];
            self.sent_by[role as usize] += 1;
            self.sent.push(Sent { at: self.now, from: role, bytes: bytes.clone() });
            self.carry(role, index, bytes);
        }
    }

    fn carry(&mut self, from: Role, index: u64, bytes: Bytes) {
        let fault = match self.plan.faults {
            Faults::None => None,
            Faults::One { from: role, index: at, fault } => {
                (role == from && at == index).then_some(fault)
            }
            Faults::Random(p) => self.rng.chance(p).then(|| Fault::random(&mut self.rng)),
        };
        let to = match from {
            Role::Sender => Role::Receiver,
            Role::Receiver => Role::Sender,
        };
        let at = self.now + self.options.latency[from as usize];
        match fault {
            None => self.schedule(at, to, Event::Arrive(bytes)),
            Some(Fault::Drop) => {}
            Some(Fault::Duplicate(later)) => {
                for at in [at, at + later, at + later] {
                    self.schedule(at, to, Event::Arrive(bytes.clone()));
                }
            }
            Some(Fault::Late(by)) => self.schedule(at + by, to, Event::Arrive(bytes)),
            Some(Fault::Truncate(_) | Fault::Corrupt(_)) if !self.subject.detects_damage() => {}
            Some(Fault::Truncate(permille)) => {
                let len = bytes.len() * usize::from(permille) / 1000;
                self.schedule(at, to, Event::Arrive(bytes.slice(..len)));
            }
            Some(Fault::Corrupt(seed)) => {
                let mut rng = Rng::new(seed ^ index, "corrupt");
                let mut damaged = bytes.to_vec();
                corrupt(&mut damaged, &mut rng);
                self.schedule(at, to, Event::Arrive(damaged.into()));
            }
        }
    }

    fn schedule(&mut self, at: Time, to: Role, event: Event) {
        self.queued += 1;
        self.queue.insert((at, self.queued), (to, event));
    }

    fn idle(&self, role: Role, when: &str) -> Result<(), Broken> {
        let host = &self.hosts[role as usize];
        match host.engine.poll_timeout() {
            Some(deadline) => {
                let why = deadline.why;
                broken(Rule::IdleNoDeadline, format!("{role:?}, {when}, has the deadline {why}"))
            }
            None => Ok(()),
        }
    }

    /// Fault of a run that does not end: a transfer is still in progress, or an idle engine keeps a
    /// deadline.
    fn endless(&self) -> Result<bool, Broken> {
        for role in Role::BOTH {
            if self.subject.is_busy(&self.hosts[role as usize].engine) {
                let detail = format!("{role:?} is still busy after {} events", self.events);
                return broken(Rule::TransferEnds, detail);
            }
        }
        for role in Role::BOTH {
            self.idle(role, "idle")?;
        }
        broken(Rule::TransferEnds, "datagrams go round for ever between idle engines")
    }
}
