//! A receiver of several protocols at one port.
//!
//! A [`Door`] runs one transport per protocol. Each path belongs to the transport whose protocol
//! its datagrams have ([`begun_with`] decides). It can change to another one only while no
//! transfer is under way on it. A datagram that no protocol begins with reaches no transport,
//! unless its path already belongs to one.
//!
//! ```
//! # use transport::door::{self, Door};
//! # use engine::Rng;
//! let mut members = Vec::new();
//! for protocol in door::protocols() {
//!     members.push((transport::configure(&protocol, 2, None)?, protocol));
//! }
//! let door = Door::new(&members, &mut Rng::new(1, "receiver"));
//! # Ok::<(), transport::SpecError>(())
//! ```
//!
//! **Bounds.** A door keeps the properties of each path until the driver reports it down, so its
//! table has as many entries as the driver has peers, and those with suspended transfers.
//!
//! **Records.** All transports share a store. Each one loads only records whose keys have its
//! [prefixes](crate::contract::Adapter::record_prefixes), so none can remove another's.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use engine::{
    Completion, Deadline, Effect, EffectResult, Engine, Input, PathEffect, PathEvent, PathId,
    PathInfo, Receive, Rng, Ticket, Tickets, Time, Transmit, TxBuf,
};

use crate::contract::{
    Configuration, Counters, Feature, Kind, Progress, Protocol, RequestError, SendRequest,
    Transport,
};
use crate::dissect::{Dissector, begun_with};
use crate::event::{Event, TransferId};

#[cfg(test)]
mod tests;

/// Whether a port can receive a protocol beside others.
#[must_use]
pub fn takes(kind: Kind) -> bool {
    kind.layers().len() == 1 && kind.has(Feature::Recognised)
}

/// Protocols that one port can receive.
pub fn protocols() -> impl Iterator<Item = Protocol> {
    Kind::all().filter(|kind| takes(*kind)).map(Protocol::plain)
}

/// Maximum number of effects that wait for the driver so that paths can change their transport.
const EARLY_MAX: usize = 1024;

/// One transport behind a door.
#[derive(Debug)]
struct Member {
    /// Name of its protocol.
    name: &'static str,
    dissector: Option<&'static Dissector>,
    /// Prefixes of the keys of its records.
    prefixes: &'static [&'static str],
    transport: Box<dyn Transport>,
}

impl Member {
    /// Whether a peer begins with this datagram.
    fn begins(&self, datagram: &[u8]) -> bool {
        self.dissector.is_some_and(|reader| (reader.begins)(datagram))
    }

    fn owns(&self, key: &str) -> bool {
        self.prefixes.iter().any(|prefix| key.starts_with(prefix))
    }
}

/// State of a path.
#[derive(Debug, Default)]
struct Path {
    /// Its properties while it is up.
    info: Option<PathInfo>,
    is_return_down: bool,
    is_blocked: bool,
    /// Index of its transport.
    member: Option<usize>,
    /// Whether its transport has a transfer on it.
    is_retained: bool,
    /// Whether its transport accepts no more from it now.
    is_paused: bool,
}

impl Path {
    /// Whether its transport may change.
    fn is_idle(&self) -> bool {
        !self.is_retained && !self.is_paused
    }

    /// Events that describe it to a transport that does not know it.
    fn events(&self) -> Vec<PathEvent> {
        let Some(info) = self.info.clone() else { return Vec::new() };
        let mut events = vec![PathEvent::Up(info)];
        events.extend(self.is_return_down.then_some(PathEvent::ReturnDown));
        events.extend(self.is_blocked.then_some(PathEvent::Blocked));
        events
    }
}

/// Transports of several protocols at one port; see the [module documentation](self).
#[derive(Debug)]
pub struct Door {
    members: Vec<Member>,
    paths: BTreeMap<PathId, Path>,
    tickets: Tickets<usize>,
    /// Effects that were pulled before the driver did.
    early: VecDeque<(usize, Effect)>,
    /// Member whose effects are pulled first, and whose datagrams are.
    turn: usize,
    /// Datagrams of no protocol.
    unknown: u64,
}

impl Door {
    /// A door with one transport per configuration; the random numbers of each are its own.
    pub fn new(members: &[(Box<dyn Configuration>, Protocol)], rng: &mut Rng) -> Self {
        let member = |(configuration, protocol): &(Box<dyn Configuration>, Protocol)| {
            let mut key = [0; 32];
            rng.fill(&mut key);
            Member {
                name: protocol.kind.name(),
                dissector: protocol.kind.dissector(),
                prefixes: configuration.adapter().record_prefixes(),
                transport: configuration.build(Rng::from_entropy(key)),
            }
        };
        Self {
            members: members.iter().map(member).collect(),
            paths: BTreeMap::new(),
            tickets: Tickets::new(),
            early: VecDeque::new(),
            turn: 0,
            unknown: 0,
        }
    }

    /// Name of the protocol to which a path belongs, if it belongs to one.
    #[must_use]
    pub fn protocol_of(&self, path: PathId) -> Option<&'static str> {
        let member = self.paths.get(&path)?.member?;
        self.members.get(member).map(|member| member.name)
    }

    /// Number of datagrams that were dropped because they are of no protocol here.
    #[must_use]
    pub fn unknown(&self) -> u64 {
        self.unknown
    }

    /// Number of paths that it knows.
    #[must_use]
    pub fn paths(&self) -> usize {
        self.paths.len()
    }

    fn input(&mut self, now: Time, member: usize, input: Input<'_>) {
        if let Some(member) = self.members.get_mut(member) {
            member.transport.handle_input(now, input);
        }
    }

    fn on_receive(&mut self, now: Time, received: Receive<'_>) {
        let path = self.paths.get(&received.from);
        // A transfer is under way: its engine reads the datagrams.
        if let Some(member) = path.filter(|path| !path.is_idle()).and_then(|path| path.member) {
            return self.input(now, member, Input::Receive(received));
        }
        for datagram in received.datagrams() {
            match self.member_for(now, received.from, datagram) {
                Some(member) => {
                    let single = Receive { stride: datagram.len(), bytes: datagram, ..received };
                    self.input(now, member, Input::Receive(single));
                }
                None => self.unknown += 1,
            }
        }
    }

    /// Transport for a datagram, to which its path belongs from here on; `None` if the datagram is
    /// of no protocol.
    fn member_for(&mut self, now: Time, from: PathId, datagram: &[u8]) -> Option<usize> {
        let known = self.paths.get(&from)?.member;
        let is_usual = |member: &usize| self.members[*member].begins(datagram);
        if known.as_ref().is_some_and(is_usual) {
            return known;
        }
        let reader = begun_with(datagram);
        let is_reader = |member: &Member| reader.is_some() && member.dissector == reader;
        match (known, self.members.iter().position(is_reader)) {
            // Its engine counts what it cannot read. It also knows messages that nobody begins with.
            (known, None) => known,
            (Some(known), Some(other)) => self.change(now, from, known, other),
            (None, Some(other)) => Some(self.assign(now, from, other)),
        }
    }

    /// Moves a path from one transport to another, if nothing is under way on it.
    fn change(&mut self, now: Time, path: PathId, from: usize, to: usize) -> Option<usize> {
        self.pull_early(from);
        if self.early.len() > EARLY_MAX || !self.paths.get(&path)?.is_idle() {
            return None;
        }
        self.input(now, from, Input::Path(path, PathEvent::Down));
        Some(self.assign(now, path, to))
    }

    /// Gives a path to a transport.
    fn assign(&mut self, now: Time, id: PathId, member: usize) -> usize {
        let mut events = Vec::new();
        if let Some(path) = self.paths.get_mut(&id) {
            path.member = Some(member);
            events = path.events();
        }
        for event in events {
            self.input(now, member, Input::Path(id, event));
        }
        member
    }

    /// Pulls the pending effects of a transport: they show whether it has transfers on a path.
    fn pull_early(&mut self, member: usize) {
        while self.early.len() <= EARLY_MAX
            && let Some(effect) = self.members[member].transport.poll_effect()
        {
            if self.follow(member, &effect) {
                self.early.push_back((member, effect));
            }
        }
    }

    /// Follows the use of paths by their transports. Returns whether the effect is for the driver:
    /// not if its path belongs to another transport meanwhile.
    fn follow(&mut self, member: usize, effect: &Effect) -> bool {
        let Effect::Path(effect) = effect else { return true };
        let (PathEffect::Open { path: id }
        | PathEffect::Close { path: id }
        | PathEffect::PauseRead { path: id }
        | PathEffect::ResumeRead { path: id }
        | PathEffect::Retain { path: id }
        | PathEffect::Release { path: id }) = effect;
        let Some(path) = self.paths.get_mut(id) else { return true };
        if path.member != Some(member) {
            return false;
        }
        match effect {
            PathEffect::Open { .. } => {}
            PathEffect::Close { .. } => *path = Path::default(),
            PathEffect::PauseRead { .. } => path.is_paused = true,
            PathEffect::ResumeRead { .. } => path.is_paused = false,
            PathEffect::Retain { .. } => path.is_retained = true,
            PathEffect::Release { .. } => path.is_retained = false,
        }
        if path.info.is_none() && path.is_idle() {
            self.paths.remove(id);
        }
        true
    }

    fn on_path(&mut self, now: Time, id: PathId, event: PathEvent) {
        if matches!(event, PathEvent::Up(_)) {
            self.paths.entry(id).or_default();
        }
        let Some(path) = self.paths.get_mut(&id) else { return };
        match &event {
            PathEvent::Up(info) => path.info = Some(info.clone()),
            PathEvent::Down => (path.info, path.is_blocked) = (None, false),
            PathEvent::ReturnDown => path.is_return_down = true,
            PathEvent::ReturnUp => path.is_return_down = false,
            PathEvent::Blocked => path.is_blocked = true,
            PathEvent::Writable => path.is_blocked = false,
            PathEvent::Unsent
            | PathEvent::ReadClosed
            | PathEvent::Missing { .. }
            | PathEvent::Secured(_) => {}
        }
        let (member, is_over) = (path.member, path.info.is_none() && path.is_idle());
        if is_over {
            self.paths.remove(&id);
        }
        if let Some(member) = member {
            self.input(now, member, Input::Path(id, event));
        }
    }

    fn on_done(&mut self, now: Time, ticket: Ticket, result: EffectResult) {
        let Some((member, ticket)) = self.tickets.take(ticket) else { return };
        let result = result.map(|completion| match completion {
            Completion::Records(mut records) => {
                let owner = &self.members[member];
                records.retain(|(key, _)| owner.owns(key));
                Completion::Records(records)
            }
            other => other,
        });
        self.input(now, member, Input::Done(ticket, result));
    }

    /// Indices of the members, from the one whose turn it is.
    fn turns(&self) -> impl Iterator<Item = usize> + use<> {
        let (count, turn) = (self.members.len(), self.turn);
        (0..count).map(move |step| (turn + step) % count)
    }
}

impl Engine for Door {
    type Indication = Event;

    fn handle_input(&mut self, now: Time, input: Input<'_>) {
        match input {
            Input::Receive(received) => self.on_receive(now, received),
            Input::Path(path, event) => self.on_path(now, path, event),
            Input::Done(ticket, result) => self.on_done(now, ticket, result),
        }
    }

    fn handle_timeout(&mut self, now: Time) {
        for member in &mut self.members {
            if member.transport.poll_timeout().is_some_and(|deadline| deadline.at <= now) {
                member.transport.handle_timeout(now);
            }
        }
    }

    fn poll_transmit(&mut self, now: Time, tx: &mut TxBuf) -> Option<Transmit> {
        for member in self.turns() {
            tx.clear();
            if let Some(transmit) = self.members[member].transport.poll_transmit(now, tx) {
                self.turn = member + 1;
                return Some(transmit);
            }
        }
        None
    }

    fn poll_effect(&mut self) -> Option<Effect> {
        if let Some((member, effect)) = self.early.pop_front() {
            return Some(self.tickets.renumbered(member, effect));
        }
        for member in self.turns() {
            while let Some(effect) = self.members[member].transport.poll_effect() {
                if self.follow(member, &effect) {
                    self.turn = member + 1;
                    return Some(self.tickets.renumbered(member, effect));
                }
            }
        }
        None
    }

    fn poll_indication(&mut self) -> Option<Event> {
        self.members.iter_mut().find_map(|member| {
            let event = member.transport.poll_indication()?;
            Some(member.transport.reported(event).within(member.name))
        })
    }

    fn poll_timeout(&self) -> Option<Deadline> {
        let deadlines = self.members.iter().filter_map(|member| member.transport.poll_timeout());
        deadlines.min_by_key(|deadline| deadline.at)
    }
}

impl Transport for Door {
    fn send(&mut self, _now: Time, _request: &SendRequest) -> Result<TransferId, RequestError> {
        Err(RequestError::new("a receiver of several protocols sends no files; choose a protocol"))
    }

    fn cancel(&mut self, now: Time, id: &TransferId) {
        let owner = self.members.iter_mut().find(|member| Some(member.name) == id.protocol());
        if let Some(member) = owner {
            member.transport.cancel(now, id);
        }
    }

    fn transfers(&self) -> Vec<Progress> {
        let of_member = |member: &Member| {
            let name = member.name;
            let transfers = member.transport.transfers().into_iter();
            transfers.map(move |it| Progress { id: it.id.within(name), ..it })
        };
        self.members.iter().flat_map(of_member).collect()
    }

    fn under_way(&self) -> usize {
        self.members.iter().map(|member| member.transport.under_way()).sum()
    }

    fn is_ready(&self) -> bool {
        self.members.iter().all(|member| member.transport.is_ready())
    }

    fn counters(&self) -> Counters {
        let all = self.members.iter().map(|member| member.transport.counters());
        all.fold(Counters::default(), |sum, counters| Counters {
            datagrams: total(sum.datagrams, counters.datagrams),
            repairs: total(sum.repairs, counters.repairs),
            ..sum
        })
    }

    fn silence(&self) -> Option<Duration> {
        // Transports without a peer wait for nobody.
        let used = self.members.iter().filter(|member| {
            let datagrams = member.transport.counters().datagrams;
            datagrams.is_none_or(|(_, received)| received > 0)
        });
        used.map(|member| member.transport.silence())
            .try_fold(Duration::ZERO, |longest, silence| Some(longest.max(silence?)))
    }
}

/// Sums of two pairs of counts, of which one may be missing.
fn total(sum: Option<(u64, u64)>, more: Option<(u64, u64)>) -> Option<(u64, u64)> {
    match (sum, more) {
        (Some((first, second)), Some((third, fourth))) => Some((first + third, second + fourth)),
        (counts, None) | (None, counts) => counts,
    }
}
