//! LTPCL (CCSDS 734.2-B-1, RFC 7116): the convergence layer over LTP.
//!
//! A bundle is a block of client service 1; short ones may share a block of client service 2. The layer owns an
//! [LTP engine](ltp::Node) and shows it bundles as files: heads, payloads where they lie, and tails. What comes is in memory or, if it
//! is long, in the engine's working file, and the report that claims all of it waits for the agent's word.
//!
//! A session stands still while its path is down, and goes on afterwards (RFC 5326 §6.5). So a neighbour stays up through an
//! outage, and a contact that ends lets what is under way end first, both as long as [`Config::patience`] says.

mod blocks;
mod config;
mod receiving;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use engine::{
    Deadline, Effect, Engine, Input, PathEvent, PathId, Rng, Time, Timers, Transmit, TxBuf,
};
use wire::ltp::{AGGREGATION_SERVICE, CancelReason, End, SessionId, Unit};

pub use self::config::{BUNDLE_SERVICE, Color, Config, Limits, Peer};

use self::blocks::Blocks;
use self::receiving::Incoming;
use super::layer::{
    Command, Content, Event, Layer, LinkId, Neighbour, Outcome, Outgoing, Refusal, Tag, TransferId,
};
use crate::ltp::{self, Finished, Indication, Red, SendRequest};
use crate::timer::TICK;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Alarm {
    /// The bundles gathered for a neighbour have waited long enough.
    Gathered(LinkId),
    /// A neighbour was away for too long.
    Patience(LinkId),
}

/// A neighbour.
#[derive(Debug)]
struct Link {
    engine: u64,
    path: PathId,
    /// The agent wants it to be reached.
    is_wanted: bool,
    /// The agent knows that it can be.
    is_up: bool,
    path_is_up: bool,
    /// The agent wants nothing of it for now.
    is_held: bool,
    /// Sessions to it.
    sessions: BTreeSet<SessionId>,
    /// Short bundles that wait for others.
    gathered: Vec<u8>,
    gathered_tags: Vec<Tag>,
}

impl Link {
    const fn new(engine: u64, path: PathId) -> Self {
        Self {
            engine,
            path,
            is_wanted: false,
            is_up: false,
            path_is_up: false,
            is_held: false,
            sessions: BTreeSet::new(),
            gathered: Vec::new(),
            gathered_tags: Vec::new(),
        }
    }
}

/// A session that sends.
#[derive(Debug)]
struct Sending {
    link: LinkId,
    tags: Vec<Tag>,
    /// The agent wants it no longer.
    is_cancelled: bool,
}

/// What was counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Bundles that neighbours have.
    pub sent: u64,
    /// Bundles that have left green.
    pub left: u64,
    /// Bundles that were not sent to their end.
    pub failed: u64,
    /// Bundles that came whole.
    pub received: u64,
    /// Blocks that were none of bundles, and sessions that broke the protocol.
    pub faults: u64,
}

/// The convergence layer over LTP.
#[derive(Debug)]
pub struct Ltpcl {
    config: Config,
    ltp: ltp::Node,
    blocks: Blocks,
    links: BTreeMap<LinkId, Link>,
    by_engine: BTreeMap<u64, LinkId>,
    sending: BTreeMap<SessionId, Sending>,
    /// Sessions whose blocks the agent has not answered for.
    incoming: BTreeMap<SessionId, Incoming>,
    transfers: BTreeMap<TransferId, SessionId>,
    /// Blocks that came while the agent wanted nothing.
    held: VecDeque<ltp::Block>,
    events: VecDeque<Event>,
    effects: VecDeque<Effect>,
    timers: Timers<Alarm>,
    next_transfer: u64,
    next_came: u32,
    statistics: Statistics,
}

impl Ltpcl {
    /// A layer with these settings.
    #[must_use]
    pub fn new(mut config: Config, rng: Rng) -> Self {
        config.ltp.service = BUNDLE_SERVICE;
        let (mut links, mut by_engine) = (BTreeMap::new(), BTreeMap::new());
        for (id, peer) in &config.peers {
            let known = config.ltp.remotes.get(&peer.engine);
            let mut remote = known.unwrap_or(&config.ltp.default_remote).clone();
            remote.path = Some(peer.path);
            config.ltp.remotes.insert(peer.engine, remote);
            links.insert(*id, Link::new(peer.engine, peer.path));
            by_engine.insert(peer.engine, *id);
        }
        Self {
            ltp: ltp::Node::of_blocks(config.ltp.clone(), rng),
            config,
            blocks: Blocks::default(),
            links,
            by_engine,
            sending: BTreeMap::new(),
            incoming: BTreeMap::new(),
            transfers: BTreeMap::new(),
            held: VecDeque::new(),
            events: VecDeque::new(),
            effects: VecDeque::new(),
            timers: Timers::new(),
            next_transfer: 0,
            next_came: LinkId::CAME.0,
            statistics: Statistics::default(),
        }
    }

    /// What was counted.
    #[must_use]
    pub fn statistics(&self) -> Statistics {
        self.statistics
    }

    /// The LTP engine, to look at.
    #[must_use]
    pub fn ltp(&self) -> &ltp::Node {
        &self.ltp
    }

    /// Carries what the engine says, wants and has, until there is nothing more.
    fn pump(&mut self, now: Time) {
        loop {
            let mut some = false;
            while let Some(effect) = self.ltp.poll_effect() {
                some = true;
                let Self { blocks, effects, .. } = self;
                let answer = blocks.pass(effect, &mut |effect| effects.push_back(effect));
                if let Some((ticket, answer)) = answer {
                    self.ltp.handle_input(now, Input::Done(ticket, answer));
                }
            }
            while let Some(block) = self.ltp.poll_block() {
                some = true;
                self.block(now, block);
            }
            while let Some(indication) = self.ltp.poll_indication() {
                some = true;
                self.indicated(now, &indication);
            }
            if !some {
                return;
            }
        }
    }

    fn indicated(&mut self, now: Time, indication: &Indication) {
        match indication {
            Indication::Finished(finished) => match finished.id.originator {
                us if us == self.config.ltp.engine => self.sent(now, finished),
                _ if finished.result.is_err() => self.not_received(finished.id),
                _ => {}
            },
            Indication::PeerError { id, .. } => {
                self.statistics.faults += 1;
                if let Some(link) = self.by_engine.get(&id.originator).copied() {
                    let what = "its LTP engine broke the protocol";
                    self.events.push_back(Event::PeerFault { link, what });
                }
            }
            Indication::Started(_)
            | Indication::Receiving { .. }
            | Indication::Data { .. }
            | Indication::Interrupted { .. }
            | Indication::Transport(_)
            | Indication::LimitReached(_) => {}
        }
    }

    /// A session that sends is over.
    fn sent(&mut self, now: Time, finished: &Finished) {
        let Some(Sending { link, tags, is_cancelled }) = self.sending.remove(&finished.id) else {
            return;
        };
        let outcome = match finished.result {
            Ok(()) if finished.is_confirmed => Outcome::Acknowledged,
            Ok(()) => Outcome::Left,
            Err(_) if is_cancelled => Outcome::Failed { acknowledged: 0 },
            Err(failure) if failure.by == End::Sender => Outcome::Failed { acknowledged: 0 },
            Err(failure) => match failure.reason {
                CancelReason::Unreachable => Outcome::Refused(Refusal::NotAcceptable),
                // Its agent has no room for it, or it lost what it had.
                CancelReason::User | CancelReason::System => Outcome::Refused(Refusal::NoResources),
                CancelReason::RetransmissionLimit
                | CancelReason::Miscolored
                | CancelReason::CycleLimit
                | CancelReason::Other(_) => Outcome::Failed { acknowledged: 0 },
            },
        };
        let count = tags.len() as u64;
        match outcome {
            Outcome::Acknowledged => self.statistics.sent += count,
            Outcome::Left => self.statistics.left += count,
            Outcome::Refused(_) | Outcome::Failed { .. } => self.statistics.failed += count,
        }
        for tag in tags {
            self.tell_sent(link, tag, outcome);
        }
        if let Some(neighbour) = self.links.get_mut(&link) {
            neighbour.sessions.remove(&finished.id);
        }
        self.down_if_over(now, link);
    }

    fn tell_sent(&mut self, link: LinkId, tag: Tag, outcome: Outcome) {
        self.events.push_back(Event::Sent { link, tag, outcome });
    }

    fn fail(&mut self, link: LinkId, tags: Vec<Tag>) {
        self.statistics.failed += tags.len() as u64;
        for tag in tags {
            self.tell_sent(link, tag, Outcome::Failed { acknowledged: 0 });
        }
    }

    fn send(&mut self, now: Time, link: LinkId, tag: Tag, bundle: Outgoing) {
        let takes = |link: &&mut Link| link.is_up && link.is_wanted;
        let Some(neighbour) = self.links.get_mut(&link).filter(takes) else {
            self.fail(link, vec![tag]);
            return;
        };
        let engine = neighbour.engine;
        let red = match self.config.color {
            Color::AsAsked if bundle.reliable => Red::All,
            Color::AsAsked | Color::Green => Red::None,
            Color::Red => Red::All,
            Color::Mixed(octets) => Red::Prefix(octets),
        };
        let short = bundle.len() <= self.config.limits.inline as u64;
        let octets = match &bundle.payload {
            Content::Octets(payload) if short => Some(whole(&bundle, payload)),
            Content::Octets(_) | Content::File { .. } => None,
        };
        if let (Some(octets), Some((size, age)), Red::All) = (&octets, self.sharing(), red)
            && octets.len() < size
        {
            self.gather(now, link, tag, octets, (size, age));
            return;
        }
        let begun = match octets {
            Some(octets) => self.ltp.send_octets(now, engine, BUNDLE_SERVICE, octets, red),
            None => {
                let source = self.blocks.add(bundle);
                let name = "bundle".to_owned();
                let request = SendRequest { destination: engine, source, name, red };
                let source = request.source.clone();
                let begun = self.ltp.send(now, request);
                if begun.is_err() {
                    self.blocks.forget(&source);
                }
                begun
            }
        };
        match begun {
            Ok(id) => self.begun(link, id, vec![tag]),
            Err(_) => self.fail(link, vec![tag]),
        }
    }

    fn begun(&mut self, link: LinkId, id: SessionId, tags: Vec<Tag>) {
        self.sending.insert(id, Sending { link, tags, is_cancelled: false });
        if let Some(neighbour) = self.links.get_mut(&link) {
            neighbour.sessions.insert(id);
        }
    }

    /// Octets up to which bundles share a block, and how long the first waits. No peer with the same bounds takes longer ones.
    fn sharing(&self) -> Option<(usize, Duration)> {
        let ltp::Aggregation { size, age } = self.config.aggregation.as_ref()?;
        Some(((*size).min(self.config.ltp.limits.units), *age))
    }

    /// Puts a short bundle beside others.
    fn gather(
        &mut self,
        now: Time,
        link: LinkId,
        tag: Tag,
        octets: &[u8],
        (size, age): (usize, Duration),
    ) {
        let unit = Unit { service: BUNDLE_SERVICE, data: octets };
        let len = unit.encoded_len();
        let is_full = |link: &Link| !link.gathered.is_empty() && link.gathered.len() + len > size;
        if self.links.get(&link).is_some_and(is_full) {
            self.send_gathered(now, link);
        }
        let Some(neighbour) = self.links.get_mut(&link) else { return };
        let at = neighbour.gathered.len();
        neighbour.gathered.resize(at + len, 0);
        unit.encode(&mut neighbour.gathered[at..]).expect("the unit has the length it said");
        neighbour.gathered_tags.push(tag);
        if at + len >= size {
            self.send_gathered(now, link);
        } else if at == 0 {
            let due = now + age.max(TICK);
            self.timers.set(Alarm::Gathered(link), due, "bundles that share a block");
        }
    }

    fn send_gathered(&mut self, now: Time, link: LinkId) {
        self.timers.cancel(Alarm::Gathered(link));
        let Some(neighbour) = self.links.get_mut(&link) else { return };
        let block = std::mem::take(&mut neighbour.gathered);
        let tags = std::mem::take(&mut neighbour.gathered_tags);
        if tags.is_empty() {
            return;
        }
        let engine = neighbour.engine;
        let block = block.into();
        match self.ltp.send_octets(now, engine, AGGREGATION_SERVICE, block, Red::All) {
            Ok(id) => self.begun(link, id, tags),
            Err(_) => self.fail(link, tags),
        }
    }

    fn cancel(&mut self, now: Time, link: LinkId, tag: Tag) {
        let found = self.sending.iter().find(|(_, sending)| {
            sending.link == link && sending.tags == [tag] && !sending.is_cancelled
        });
        // What shares a block with others goes its way.
        if let Some(id) = found.map(|(id, _)| *id) {
            self.cancel_session(now, id);
        }
    }

    fn cancel_session(&mut self, now: Time, id: SessionId) {
        if let Some(sending) = self.sending.get_mut(&id) {
            sending.is_cancelled = true;
        }
        if self.ltp.cancel(now, id).is_err() {
            // It ended in this moment, and is told of.
            return;
        }
        self.pump(now);
    }

    fn path_event(&mut self, now: Time, path: PathId, event: PathEvent) {
        let change = match &event {
            PathEvent::Up(_) => Some(true),
            PathEvent::Down => Some(false),
            PathEvent::Blocked
            | PathEvent::Writable
            | PathEvent::ReadClosed
            | PathEvent::Missing { .. }
            | PathEvent::Secured(_) => None,
        };
        self.ltp.handle_input(now, Input::Path(path, event));
        let of_path = self.links.iter_mut().filter(|(_, link)| link.path == path);
        let mut changed = Vec::new();
        if let Some(is_up) = change {
            for (id, link) in of_path {
                link.path_is_up = is_up;
                changed.push(*id);
            }
        }
        for id in changed {
            self.look_at(now, id);
        }
    }

    /// Looks whether a neighbour can be reached now, or was away for long enough.
    fn look_at(&mut self, now: Time, id: LinkId) {
        let bundle_max = self.config.ltp.limits.block;
        let Some(link) = self.links.get_mut(&id) else { return };
        if link.is_wanted && link.path_is_up {
            self.timers.cancel(Alarm::Patience(id));
            if !std::mem::replace(&mut link.is_up, true) {
                let window = self.config.limits.window.max(1);
                let neighbour =
                    Neighbour { node: None, is_authenticated: false, bundle_max, window };
                self.events.push_back(Event::Up { link: id, neighbour });
            }
        } else if link.is_up {
            if self.timers.get(Alarm::Patience(id)).is_none() {
                let at = now + self.config.patience.max(TICK);
                self.timers.set(Alarm::Patience(id), at, "a neighbour that is away");
            }
            self.down_if_over(now, id);
        }
    }

    /// The contact with a neighbour is over once nothing is under way.
    fn down_if_over(&mut self, now: Time, id: LinkId) {
        let Some(link) = self.links.get(&id) else { return };
        if link.is_up && !link.is_wanted {
            if !link.gathered_tags.is_empty() {
                self.send_gathered(now, id);
            } else if link.sessions.is_empty() {
                self.down(id, "the contact ended");
            }
        }
    }

    fn down(&mut self, id: LinkId, why: &'static str) {
        self.timers.cancel(Alarm::Patience(id));
        if let Some(link) = self.links.get_mut(&id)
            && std::mem::take(&mut link.is_up)
        {
            self.events.push_back(Event::Down { link: id, why });
        }
    }

    /// A neighbour was away for so long that what is under way goes another way.
    fn give_up(&mut self, now: Time, id: LinkId) {
        let Some(link) = self.links.get_mut(&id) else { return };
        let sessions: Vec<SessionId> = link.sessions.iter().copied().collect();
        link.gathered.clear();
        let tags = std::mem::take(&mut link.gathered_tags);
        self.timers.cancel(Alarm::Gathered(id));
        self.fail(id, tags);
        for session in sessions {
            self.cancel_session(now, session);
        }
        self.down(id, "the neighbour was away for too long");
    }
}

/// A bundle in one piece.
fn whole(bundle: &Outgoing, payload: &Bytes) -> Bytes {
    let mut octets = BytesMut::with_capacity(bundle.len() as usize);
    for part in [&bundle.head, payload, &bundle.tail] {
        octets.extend_from_slice(part);
    }
    octets.freeze()
}

impl Layer for Ltpcl {
    fn command(&mut self, now: Time, command: Command) {
        match command {
            Command::Open { link } | Command::Close { link } => {
                let is_wanted = matches!(command, Command::Open { .. });
                if let Some(neighbour) = self.links.get_mut(&link) {
                    neighbour.is_wanted = is_wanted;
                    self.look_at(now, link);
                }
            }
            Command::Send { link, tag, bundle } => self.send(now, link, tag, bundle),
            Command::Cancel { link, tag } => self.cancel(now, link, tag),
            Command::Accept { transfer, .. } => self.decided(now, transfer, None),
            Command::Refuse { transfer, why, .. } => self.decided(now, transfer, Some(why)),
            Command::Pause { link } => {
                if let Some(neighbour) = self.links.get_mut(&link) {
                    neighbour.is_held = true;
                }
            }
            Command::Resume { link } => self.resume(now, link),
        }
        self.pump(now);
    }
}

impl Engine for Ltpcl {
    type Indication = Event;

    fn handle_input(&mut self, now: Time, input: Input<'_>) {
        match input {
            Input::Receive(_) => self.ltp.handle_input(now, input),
            Input::Path(path, event) => self.path_event(now, path, event),
            Input::Done(ticket, answer) => {
                let Self { blocks, effects, .. } = self;
                let answer = blocks.answered(ticket, answer, &mut |e| effects.push_back(e));
                if let Some((ticket, answer)) = answer {
                    self.ltp.handle_input(now, Input::Done(ticket, answer));
                }
            }
        }
        self.pump(now);
    }

    fn handle_timeout(&mut self, now: Time) {
        self.ltp.handle_timeout(now);
        while let Some(alarm) = self.timers.pop_due(now) {
            match alarm {
                Alarm::Gathered(link) => self.send_gathered(now, link),
                Alarm::Patience(link) => self.give_up(now, link),
            }
        }
        self.pump(now);
    }

    fn poll_transmit(&mut self, now: Time, tx: &mut TxBuf) -> Option<Transmit> {
        let transmit = self.ltp.poll_transmit(now, tx);
        self.pump(now);
        transmit
    }

    fn poll_effect(&mut self) -> Option<Effect> {
        self.effects.pop_front()
    }

    fn poll_indication(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    fn poll_timeout(&self) -> Option<Deadline> {
        self.timers.next().into_iter().chain(self.ltp.poll_timeout()).min_by_key(|d| d.at)
    }
}
