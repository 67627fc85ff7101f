//! LTPCL (CCSDS 734.2-B-1, RFC 7116): convergence layer over LTP.
//!
//! A bundle is a block of client service 1. Short ones may share a block: one after another, as
//! ION makes them, or as units of client service 2. Blocks of several bundles are accepted in both
//! forms. The layer owns an [LTP engine](ltp::Node) and presents bundles as files: head, payload
//! in its place, tail. A received block is in memory or, if long, in the engine's working file.
//! The report that claims all of it is sent once the agent has replied for all its bundles.
//!
//! A session is suspended while its path is down and resumed afterwards (RFC 5326 §6.5). A
//! neighbour therefore stays up through an outage, and a contact that ends lets sessions complete,
//! both for at most [`Config::patience`].

mod config;
mod cutting;
mod receiving;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, VecDeque};

use ::ltp::segment::{AGGREGATION_SERVICE, CancelReason, End, SessionId, Unit};
use ::ltp::{self, Again, Finished, Indication, Red, SendRequest};
use bytes::{Bytes, BytesMut};
use engine::{
    Deadline, Effect, Engine, Input, PathEvent, PathId, Rng, Ticket, Time, Timers, Transmit, TxBuf,
};
use session::timer::TICK;

pub use self::config::{
    Aggregation, BUNDLE_SERVICE, Color, ColorForm, Config, Limits, Peer, Sharing,
};
pub use super::neighbours::Statistics;

use self::cutting::CutEffect;
use self::receiving::Incoming;
use super::arrivals::HandoverNames;
use super::blocks::Blocks;
use super::layer::{
    Command, Configured, Content, Event, Identity, Layer, LinkId, Outcome, Outgoing, Refusal,
    Remote, Tag, TransferId,
};
use super::neighbours::{Bounds, Neighbours, is_up};
use super::scope::Scope;

/// Short bundles collected for a common block.
#[derive(Debug, Default)]
struct Gathered {
    block: Vec<u8>,
    tags: Vec<Tag>,
}

/// The convergence layer over LTP.
#[derive(Debug)]
pub struct Ltpcl {
    config: Config,
    ltp: ltp::Node,
    blocks: Blocks,
    /// Neighbours, by the numbers of their engines.
    neighbours: Neighbours<SessionId, u64>,
    gathered: BTreeMap<LinkId, Gathered>,
    /// Sessions with blocks on which the agent has not decided.
    incoming: BTreeMap<SessionId, Incoming>,
    transfers: BTreeMap<TransferId, SessionId>,
    /// Effects of the store for working files that are cut.
    cuts: BTreeMap<Ticket, CutEffect>,
    /// Names of working files that are passed to the agent.
    names: HandoverNames,
    /// Blocks received while the agent had paused the neighbour.
    held: VecDeque<(LinkId, ltp::Block)>,
    /// End of the wait of bundles collected for a neighbour.
    timers: Timers<LinkId>,
    next_transfer: u64,
}

impl Ltpcl {
    /// A layer with these settings.
    #[must_use]
    pub fn new(mut config: Config, rng: Rng) -> Self {
        config.ltp.service = BUNDLE_SERVICE;
        let Limits { window, strangers, .. } = config.limits;
        let (patience, bundle_max) = (config.patience, config.ltp.limits.block);
        let bounds = Bounds { patience, window, bundle_max, strangers };
        let configured = config.peers.iter().map(|(id, peer)| (*id, peer.engine));
        let neighbours = Neighbours::new(bounds, configured);
        let mut settings = config.ltp.clone();
        for peer in config.peers.values() {
            let path = Some(peer.path);
            let remote = ltp::Remote { path, ..config.ltp.remote(peer.engine).clone() };
            settings.remotes.insert(peer.engine, remote);
        }
        // The engine's random numbers stay the same.
        let mut own = Rng::new(rng.clone().next_u64(), "names of files");
        let names = HandoverNames::new(config.directory.clone(), &mut own);
        Self {
            ltp: ltp::Node::of_blocks(settings, rng),
            config,
            names,
            blocks: Blocks::default(),
            neighbours,
            gathered: BTreeMap::new(),
            incoming: BTreeMap::new(),
            transfers: BTreeMap::new(),
            cuts: BTreeMap::new(),
            held: VecDeque::new(),
            timers: Timers::new(),
            next_transfer: 0,
        }
    }

    /// The layer with this name, one of several that share a store.
    #[must_use]
    pub fn named(mut self, name: &str) -> Self {
        self.blocks.scope = Scope::of_layer(name);
        self
    }

    /// Counters.
    #[must_use]
    pub fn statistics(&self) -> Statistics {
        self.neighbours.statistics
    }

    /// The LTP engine.
    #[must_use]
    pub fn ltp(&self) -> &ltp::Node {
        &self.ltp
    }

    /// Processes indications and effects of the engine until there are none left.
    fn pump(&mut self, now: Time) {
        loop {
            let mut some = false;
            while let Some(effect) = self.ltp.poll_effect() {
                some = true;
                let result = self.blocks.pass(effect);
                if let Some((ticket, result)) = result {
                    self.ltp.handle_input(now, Input::Done(ticket, result));
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
                us if us == self.config.ltp.engine => {
                    self.neighbours.ended(finished.id, outcome(finished));
                }
                _ => {
                    if let Err(failure) = finished.result {
                        self.report_refused(finished.id, failure);
                        self.on_session_over(now, finished.id);
                    }
                }
            },
            Indication::PeerError { id, .. } => {
                let link = self.neighbours.link_at(id.originator);
                self.neighbours.report_fault(link, "its LTP engine violated the protocol");
            }
            Indication::Elsewhere { engine, is_taken: false, .. } => {
                let link = self.neighbours.link_at(*engine);
                self.neighbours.report_fault(link, "its LTP engine sends from another host");
            }
            Indication::Started(_)
            | Indication::Elsewhere { .. }
            | Indication::Receiving { .. }
            | Indication::Data { .. }
            | Indication::Displaced(_)
            | Indication::Interrupted { .. }
            | Indication::Transport(_)
            | Indication::LimitReached(_) => {}
        }
    }

    /// Engine of a neighbour to which bundles may be sent.
    fn engine(&self, link: LinkId) -> Option<u64> {
        self.config.peers.get(&link).map(|peer| peer.engine)
    }

    fn send(&mut self, now: Time, link: LinkId, tag: Tag, bundle: Outgoing) {
        let engine = self.engine(link);
        let Some(engine) = engine.filter(|_| self.neighbours.is_open(link)) else {
            self.neighbours.fail(link, vec![tag]);
            return;
        };
        let red = match self.config.color {
            Color::AsAsked if bundle.reliable => Red::All,
            Color::AsAsked | Color::Green => Red::None,
            Color::Red => Red::All,
            Color::Mixed(bytes) => Red::Prefix(bytes),
        };
        let short = bundle.len() <= self.config.limits.inline as u64;
        let bytes = match &bundle.payload {
            Content::Bytes(payload) if short => Some(whole(&bundle, payload)),
            Content::Bytes(_) | Content::File { .. } => None,
        };
        if let (Some(bytes), Some(sharing), Red::All) = (&bytes, self.sharing(), red)
            && bytes.len() < sharing.bytes
        {
            self.gather(now, link, tag, bytes, &sharing);
            return;
        }
        let started = match bytes {
            Some(bytes) => self.ltp.send_bytes(now, engine, BUNDLE_SERVICE, bytes, red),
            None => {
                let identity = bundle.identity;
                let source = self.blocks.add(bundle);
                let name = "bundle".to_owned();
                let request = SendRequest { destination: engine, source, name, red };
                let source = request.source.clone();
                let started = match identity.filter(|_| red == Red::All) {
                    Some(Identity { number, resumes }) => {
                        self.ltp.send_again(now, request, Again { number, resumes })
                    }
                    None => self.ltp.send(now, request),
                };
                if started.is_err() {
                    self.blocks.forget(&source);
                }
                started
            }
        };
        match started {
            Ok(id) => self.neighbours.started(link, id, vec![tag]),
            Err(_) => self.neighbours.fail(link, vec![tag]),
        }
    }

    /// Aggregation of short bundles. A peer with the same bounds accepts no longer blocks of
    /// units.
    fn sharing(&self) -> Option<Aggregation> {
        let sharing = self.config.aggregation.clone()?;
        Some(match sharing.form {
            Sharing::Bundles => sharing,
            Sharing::Units => {
                let bytes = sharing.bytes.min(self.config.ltp.limits.units);
                Aggregation { bytes, ..sharing }
            }
        })
    }

    /// Adds a short bundle to a shared block. The block is sent when it is full or old, or when
    /// the agent sends no more before a reply.
    fn gather(&mut self, now: Time, link: LinkId, tag: Tag, bundle: &[u8], sharing: &Aggregation) {
        let unit = Unit { service: BUNDLE_SERVICE, data: bundle };
        let len = match sharing.form {
            Sharing::Bundles => bundle.len(),
            Sharing::Units => unit.encoded_len(),
        };
        let most = sharing.bytes;
        if self.gathered.get(&link).is_some_and(|gathered| gathered.block.len() + len > most) {
            self.send_gathered(now, link);
        }
        let in_transit = self.neighbours.in_transit(link);
        let gathered = self.gathered.entry(link).or_default();
        let at = gathered.block.len();
        match sharing.form {
            Sharing::Bundles => gathered.block.extend_from_slice(bundle),
            Sharing::Units => {
                gathered.block.resize(at + len, 0);
                unit.encode(&mut gathered.block[at..]).expect("the unit has its announced length");
            }
        }
        gathered.tags.push(tag);
        if at + len >= most || in_transit + gathered.tags.len() >= self.config.limits.window {
            self.send_gathered(now, link);
        } else if at == 0 {
            let due = now + sharing.delay.max(TICK);
            self.timers.set(link, due, "bundles that share a block");
        }
    }

    fn send_gathered(&mut self, now: Time, link: LinkId) {
        self.timers.cancel(link);
        let engine = self.engine(link);
        let Some((engine, Gathered { block, tags })) = engine.zip(self.gathered.remove(&link))
        else {
            return;
        };
        let service = match self.config.aggregation.as_ref().map(|sharing| sharing.form) {
            Some(Sharing::Units) => AGGREGATION_SERVICE,
            Some(Sharing::Bundles) | None => BUNDLE_SERVICE,
        };
        match self.ltp.send_bytes(now, engine, service, block.into(), Red::All) {
            Ok(id) => self.neighbours.started(link, id, tags),
            Err(_) => self.neighbours.fail(link, tags),
        }
    }

    fn cancel_session(&mut self, now: Time, id: SessionId) {
        self.neighbours.cancelled(id);
        // A session that ended at this moment is reported.
        if self.ltp.cancel(now, id).is_ok() {
            self.pump(now);
        }
    }

    fn path_event(&mut self, now: Time, path: PathId, event: PathEvent) {
        let change = is_up(&event);
        self.ltp.handle_input(now, Input::Path(path, event));
        for (link, _) in self.config.peers.iter().filter(|(_, peer)| peer.path == path) {
            self.neighbours.path(now, *link, change);
        }
    }

    /// Gives up the bundles in transit to a neighbour.
    fn give_up(&mut self, now: Time, link: LinkId) {
        self.timers.cancel(link);
        if let Some(gathered) = self.gathered.remove(&link) {
            self.neighbours.fail(link, gathered.tags);
        }
        for session in self.neighbours.sessions_to(link) {
            self.cancel_session(now, session);
        }
    }

    fn replace_peers(&mut self, now: Time, links: &BTreeMap<LinkId, Remote>) {
        let known = self.config.peers.keys().copied();
        let over: Vec<LinkId> = known.filter(|link| !links.contains_key(link)).collect();
        let mut successors = BTreeMap::new();
        for link in over {
            self.give_up(now, link);
            if let Some(Peer { engine, .. }) = self.config.peers.remove(&link) {
                let next = links.iter().find(|(_, remote)| remote.engine == engine);
                successors.insert(link, next.map(|(link, _)| *link));
                if next.is_none() {
                    self.ltp.set_remote(now, engine, self.config.ltp.remote(engine).clone());
                }
            }
        }
        let engines = links.iter().map(|(link, remote)| (*link, remote.engine));
        self.neighbours.configure(&engines.collect());
        for (link, Remote { engine, .. }) in links {
            let (engine, path) = (*engine, PathId(link.0));
            if self.config.peers.insert(*link, Peer { engine, path }).is_none() {
                let known = self.config.ltp.remote(engine).clone();
                self.ltp.set_remote(now, engine, ltp::Remote { path: Some(path), ..known });
            }
        }
        self.follow_links(now, &successors);
    }
}

/// Result of a session for its bundles.
fn outcome(finished: &Finished) -> Outcome {
    match finished.result {
        Ok(()) if finished.is_confirmed => Outcome::Acknowledged,
        Ok(()) => Outcome::Left,
        Err(failure) if failure.by == End::Sender => Outcome::Failed { acknowledged: 0 },
        Err(failure) => match failure.reason {
            CancelReason::Unreachable => Outcome::Refused(Refusal::NotAcceptable),
            // Its agent has no room, or it lost its state.
            CancelReason::User | CancelReason::System => Outcome::Refused(Refusal::NoResources),
            CancelReason::RetransmissionLimit
            | CancelReason::Miscolored
            | CancelReason::CycleLimit
            | CancelReason::Other(_) => Outcome::Failed { acknowledged: 0 },
        },
    }
}

/// A bundle in one piece.
fn whole(bundle: &Outgoing, payload: &Bytes) -> Bytes {
    let mut bytes = BytesMut::with_capacity(bundle.len() as usize);
    for part in [&bundle.head, payload, &bundle.tail] {
        bytes.extend_from_slice(part);
    }
    bytes.freeze()
}

impl Layer for Ltpcl {
    fn command(&mut self, now: Time, command: Command) {
        match command {
            Command::Open { link } => self.neighbours.want(now, link, true),
            Command::Close { link } => {
                self.send_gathered(now, link);
                self.neighbours.want(now, link, false);
            }
            Command::Send { link, tag, bundle } => self.send(now, link, tag, bundle),
            Command::Cancel { link, tag } => {
                // A shared block is not cancelled.
                if let Some(session) = self.neighbours.session_of(link, tag) {
                    self.cancel_session(now, session);
                }
            }
            Command::Accept { transfer, .. } => self.decided(now, transfer, None),
            Command::Refuse { transfer, why, .. } => self.decided(now, transfer, Some(why)),
            Command::Pause { link } => self.neighbours.hold(link, true),
            Command::Resume { link } => self.resume(now, link),
        }
        self.pump(now);
    }

    fn configure(&mut self, now: Time, configured: Configured) {
        self.replace_peers(now, &configured.links);
        self.pump(now);
    }
}

impl Engine for Ltpcl {
    type Indication = Event;

    fn handle_input(&mut self, now: Time, input: Input<'_>) {
        match input {
            Input::Receive(_) => self.ltp.handle_input(now, input),
            Input::Path(path, event) => self.path_event(now, path, event),
            Input::Done(ticket, result) if self.cut_done(now, ticket, &result) => {}
            Input::Done(ticket, result) => {
                let result = self.blocks.completed(ticket, result);
                if let Some((ticket, result)) = result {
                    self.ltp.handle_input(now, Input::Done(ticket, result));
                }
            }
        }
        self.pump(now);
    }

    fn handle_timeout(&mut self, now: Time) {
        self.ltp.handle_timeout(now);
        while let Some(link) = self.timers.pop_due(now) {
            self.send_gathered(now, link);
        }
        while let Some(link) = self.neighbours.pop_due(now) {
            self.give_up(now, link);
            self.neighbours.down(link, "the outage of the neighbour lasted too long");
        }
        self.pump(now);
    }

    fn poll_transmit(&mut self, now: Time, tx: &mut TxBuf) -> Option<Transmit> {
        let transmit = self.ltp.poll_transmit(now, tx);
        self.pump(now);
        transmit
    }

    fn poll_effect(&mut self) -> Option<Effect> {
        self.blocks.poll_effect()
    }

    fn poll_indication(&mut self) -> Option<Event> {
        self.neighbours.events.pop_front()
    }

    fn poll_timeout(&self) -> Option<Deadline> {
        let own = self.timers.next().into_iter().chain(self.neighbours.poll_timeout());
        own.chain(self.ltp.poll_timeout()).min_by_key(|deadline| deadline.at)
    }
}
