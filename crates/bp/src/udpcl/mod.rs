//! UDPCL (RFC 7122): convergence layer over datagrams.
//!
//! One bundle is one datagram. There are no acknowledgments or retransmissions, and only the
//! path's rate and the settings limit the sending rate: a sent bundle ends with [`Outcome::Left`],
//! or with [`Outcome::Failed`] if the system refuses it.
//! Longer bundles are fragmented by the layer if both sides are set to
//! ([`Fragmentation::OfLayer`]).
//!
//! A neighbour can be reached while its path is up and the agent has opened it. Unconfigured peers
//! are reported when their path comes up, and can be sent to.

mod config;
mod receiving;
mod sending;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use engine::{
    Deadline, Effect, Engine, Input, PathEvent, PathId, PathKind, Time, Timers, Transmit, TxBuf,
};
use session::path::{Pacing, Path};
use session::recent::Recent;

pub use self::config::{Config, Fragmentation, Limits};

use self::receiving::Coming;
use self::sending::Sending;
use super::effects::Effects;
use super::layer::{
    Command, Configured, Event, Layer, LinkId, Neighbour, Outcome, Tag, TransferId,
};
use crate::codec::udpcl::{DATAGRAM_MAX, FRAGMENT_HEADER_LEN};

/// Shortest keepalive interval (RFC 7122 §3.5.1).
const KEEPALIVE_LEAST: Duration = Duration::from_secs(15);

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Alarm {
    /// A keepalive is due.
    Keepalive(LinkId),
    /// The last batch leaves.
    Leaves,
    /// Timeout of a reassembly.
    Incoming(PathId, u32),
}

/// A neighbour.
#[derive(Debug)]
struct Link {
    path: PathId,
    /// Whether the agent has opened it.
    is_wanted: bool,
    /// Whether it was reported to the agent as up.
    is_up: bool,
    sending: VecDeque<Sending>,
    /// Whether the agent has paused it.
    is_held: bool,
    /// Whether the driver was requested to hold back its datagrams.
    is_paused: bool,
    last_sent: Time,
}

impl Link {
    const fn new(path: PathId) -> Self {
        Self {
            path,
            is_wanted: false,
            is_up: false,
            sending: VecDeque::new(),
            is_held: false,
            is_paused: false,
            last_sent: Time::ZERO,
        }
    }
}

/// A batch of datagrams.
#[derive(Debug)]
struct Batch {
    /// Bundles whose last datagram is in it.
    bundles: Vec<(LinkId, Tag)>,
    /// Whether they were reported as sent.
    is_reported: bool,
}

/// Counters since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Bundles sent.
    pub sent: u64,
    /// Bundles received whole.
    pub received: u64,
    /// Bundles given up with missing fragments.
    pub broken: u64,
    /// Fragments that were duplicates, or had no room.
    pub fragments_dropped: u64,
    /// Invalid datagrams.
    pub faults: u64,
}

/// The convergence layer over datagrams.
#[derive(Debug)]
pub struct Udpcl {
    config: Config,
    paths: BTreeMap<PathId, Path>,
    links: BTreeMap<LinkId, Link>,
    by_path: BTreeMap<PathId, LinkId>,
    /// Paths that may have data to send.
    ready: BTreeSet<PathId>,
    /// Path served last.
    turn: PathId,
    /// The batch pulled last.
    batch: Option<Batch>,
    /// Neighbours with a keepalive due.
    signs: BTreeSet<LinkId>,
    coming: BTreeMap<(PathId, u32), Coming>,
    /// Reassembled bundles, to ignore late duplicates of their fragments.
    over: Recent<(PathId, u32), ()>,
    /// Bytes of fragments ahead of a gap.
    early: usize,
    /// Received bundles on which the agent has not decided.
    unanswered: BTreeMap<TransferId, LinkId>,
    events: VecDeque<Event>,
    effects: Effects<(LinkId, Tag)>,
    timers: Timers<Alarm>,
    next_transfer: u64,
    next_came: u32,
    next_bundle: u32,
    statistics: Statistics,
}

impl Udpcl {
    /// A layer with these settings.
    #[must_use]
    pub fn new(config: Config) -> Self {
        let links = config.peers.iter().map(|(id, path)| (*id, Link::new(*path))).collect();
        let by_path = config.peers.iter().map(|(id, path)| (*path, *id)).collect();
        Self {
            config,
            paths: BTreeMap::new(),
            links,
            by_path,
            ready: BTreeSet::new(),
            turn: PathId(0),
            batch: None,
            signs: BTreeSet::new(),
            coming: BTreeMap::new(),
            over: Recent::new(),
            early: 0,
            unanswered: BTreeMap::new(),
            events: VecDeque::new(),
            effects: Effects::default(),
            timers: Timers::new(),
            next_transfer: 0,
            next_came: LinkId::CAME.0,
            next_bundle: 0,
            statistics: Statistics::default(),
        }
    }

    /// Counters.
    #[must_use]
    pub fn statistics(&self) -> Statistics {
        self.statistics
    }

    fn path_event(&mut self, now: Time, path: PathId, event: PathEvent) {
        if let PathEvent::Up(info) = &event
            && info.kind == PathKind::Stream
        {
            return;
        }
        let pacing = Pacing {
            rate_bps: self.config.rate_bps,
            interval: self.config.interval,
            pace_as: None,
            catch_up: self.config.catch_up,
        };
        match event {
            // The layer needs no replies.
            PathEvent::ReturnDown | PathEvent::ReturnUp => return,
            PathEvent::Unsent => return self.unsent(path),
            PathEvent::Up(_)
            | PathEvent::Down
            | PathEvent::Blocked
            | PathEvent::Writable
            | PathEvent::ReadClosed
            | PathEvent::Missing { .. }
            | PathEvent::Secured(_) => {}
        }
        let came_up = matches!(event, PathEvent::Up(_));
        if came_up && !self.know(path) {
            return;
        }
        let Some(link) = self.by_path.get(&path).copied() else { return };
        let known = self.paths.entry(path).or_insert_with(|| Path::new(pacing.catch_up));
        known.event(event, pacing);
        let is_up = known.is_up();
        self.ready.insert(path);
        if came_up {
            self.link_up(now, link);
        } else if !is_up {
            self.path_down(link, path);
        }
    }

    /// Adds the peer of a path as a neighbour if there is room; returns whether it is one.
    fn know(&mut self, path: PathId) -> bool {
        if self.by_path.contains_key(&path) {
            return true;
        }
        let strangers = self.links.range(LinkId::CAME..).count();
        if strangers >= self.config.limits.strangers {
            return false;
        }
        self.next_came = self.next_came.wrapping_add(1).max(LinkId::CAME.0);
        let link = LinkId(self.next_came);
        self.links.insert(link, Link { is_wanted: true, ..Link::new(path) });
        self.by_path.insert(path, link);
        true
    }

    /// Reports that a neighbour can be reached, if so.
    fn link_up(&mut self, now: Time, link: LinkId) {
        let bundle_max = self.bundle_max(link);
        let window = self.config.limits.window.max(1);
        let Some(neighbour) = self.links.get_mut(&link) else { return };
        let path_is_up = self.paths.get(&neighbour.path).is_some_and(Path::is_up);
        if !neighbour.is_wanted || !path_is_up {
            return;
        }
        neighbour.is_up = true;
        neighbour.last_sent = now;
        // The MTU of the path may have shrunk.
        let too_long = neighbour.sending.iter().filter(|sending| sending.len > bundle_max);
        for tag in too_long.map(|sending| sending.tag).collect::<Vec<_>>() {
            self.cancel(link, tag);
        }
        let neighbour =
            Neighbour { node: None, is_authenticated: false, bundle_max, window, window_bytes: 0 };
        self.events.push_back(Event::Up { link, neighbour });
        if let Some(interval) = self.config.keepalive
            && link < LinkId::CAME
        {
            let at = now + interval.max(KEEPALIVE_LEAST);
            self.timers.set(Alarm::Keepalive(link), at, "a keepalive");
        }
    }

    /// Longest datagram to a neighbour, in bytes.
    fn datagram_max(&self, path: PathId) -> usize {
        let mtu = self.paths.get(&path).map_or(0, Path::mtu).min(DATAGRAM_MAX);
        self.config.datagram_max.map_or(mtu, |most| most.min(mtu))
    }

    fn bundle_max(&self, link: LinkId) -> u64 {
        let Some(neighbour) = self.links.get(&link) else { return 0 };
        let datagram = self.datagram_max(neighbour.path);
        match self.config.fragmentation {
            Fragmentation::OfLayer if datagram > FRAGMENT_HEADER_LEN => {
                u64::from(self.config.limits.bundle)
            }
            Fragmentation::Never | Fragmentation::OfLayer => datagram as u64,
        }
    }

    /// Handles a path that went down.
    fn path_down(&mut self, link: LinkId, path: PathId) {
        let why = "the path is down";
        if link >= LinkId::CAME {
            self.remove(link, path, why);
            return;
        }
        // What is in transit may arrive after the contact; incomplete bundles have a timer.
        self.link_down(link, why);
        self.paths.remove(&path);
        self.ready.remove(&path);
    }

    /// Removes a neighbour and its path, and reports it as down.
    fn remove(&mut self, link: LinkId, path: PathId, why: &'static str) {
        self.link_down(link, why);
        let coming = self.coming.range((path, 0)..=(path, u32::MAX));
        let bundles: Vec<u32> = coming.map(|((_, bundle), _)| *bundle).collect();
        for bundle in bundles {
            self.give_up(path, bundle);
        }
        self.paths.remove(&path);
        self.ready.remove(&path);
        self.links.remove(&link);
        self.by_path.remove(&path);
        self.unanswered.retain(|_, of| *of != link);
    }

    /// Reports that a neighbour can no longer be reached.
    fn link_down(&mut self, link: LinkId, why: &'static str) {
        self.timers.cancel(Alarm::Keepalive(link));
        self.signs.remove(&link);
        let Some(neighbour) = self.links.get_mut(&link) else { return };
        let was_up = std::mem::take(&mut neighbour.is_up);
        for sending in std::mem::take(&mut neighbour.sending) {
            sending.source.close(&mut self.effects);
            self.report_sent(link, sending.tag, Outcome::Failed { acknowledged: 0 });
        }
        if was_up {
            self.events.push_back(Event::Down { link, why });
        }
    }

    fn report_sent(&mut self, link: LinkId, tag: Tag, outcome: Outcome) {
        self.events.push_back(Event::Sent { link, tag, outcome });
    }

    /// Schedules a keepalive for an idle neighbour.
    fn keepalive(&mut self, now: Time, link: LinkId) {
        let Some(interval) = self.config.keepalive else { return };
        let Some(neighbour) = self.links.get(&link).filter(|link| link.is_up) else { return };
        let mut at = neighbour.last_sent + interval.max(KEEPALIVE_LEAST);
        if at <= now {
            self.signs.insert(link);
            self.ready.insert(neighbour.path);
            at = now + interval.max(KEEPALIVE_LEAST);
        }
        self.timers.set(Alarm::Keepalive(link), at, "a keepalive");
    }

    /// Handles the agent's decision on a bundle.
    fn decided(&mut self, transfer: TransferId) {
        self.unanswered.remove(&transfer);
        let few = self.unanswered.len() <= self.config.limits.unanswered / 2;
        if few {
            self.hold_back();
        }
    }

    /// Requests the driver to hold back datagrams that cannot be accepted now, and to release those
    /// that can.
    fn hold_back(&mut self) {
        let is_full = self.unanswered.len() >= self.config.limits.unanswered;
        for neighbour in self.links.values_mut() {
            let pauses = is_full || neighbour.is_held;
            if pauses != neighbour.is_paused && self.paths.contains_key(&neighbour.path) {
                neighbour.is_paused = pauses;
                self.effects.pause(neighbour.path, pauses);
            }
        }
    }
}

impl Layer for Udpcl {
    fn command(&mut self, now: Time, command: Command) {
        match command {
            Command::Open { link } => {
                if let Some(neighbour) = self.links.get_mut(&link) {
                    let was_wanted = std::mem::replace(&mut neighbour.is_wanted, true);
                    if !was_wanted || !neighbour.is_up {
                        self.link_up(now, link);
                    }
                }
            }
            Command::Close { link } => {
                if let Some(neighbour) = self.links.get_mut(&link) {
                    neighbour.is_wanted = false;
                    self.link_down(link, "the contact ended");
                }
            }
            Command::Send { link, tag, bundle } => self.send(link, tag, bundle),
            Command::Cancel { link, tag } => self.cancel(link, tag),
            Command::Accept { transfer, .. } => self.decided(transfer),
            Command::Refuse { transfer, .. } => self.refused(transfer),
            Command::Pause { link } | Command::Resume { link } => {
                let is_held = matches!(command, Command::Pause { .. });
                if let Some(neighbour) = self.links.get_mut(&link) {
                    neighbour.is_held = is_held;
                    self.hold_back();
                }
            }
        }
    }

    fn configure(&mut self, _now: Time, configured: Configured) {
        let links = configured.links;
        let known = self.links.range(..LinkId::CAME);
        let over = known.filter(|&(link, _)| !links.contains_key(link));
        for (link, path) in over.map(|(link, of)| (*link, of.path)).collect::<Vec<_>>() {
            self.remove(link, path, "it is no neighbour any more");
        }
        for link in links.into_keys() {
            let path = PathId(link.0);
            // A stranger whose path has the number gets another one.
            let other = self.by_path.get(&path).copied().filter(|other| *other >= LinkId::CAME);
            if let Some(stranger) = other {
                self.remove(stranger, path, "its path is that of a neighbour now");
            }
            self.links.entry(link).or_insert_with(|| Link::new(path));
            self.by_path.insert(path, link);
        }
        self.hold_back();
    }
}

impl Engine for Udpcl {
    type Indication = Event;

    fn handle_input(&mut self, now: Time, input: Input<'_>) {
        match input {
            Input::Receive(receive) => {
                let Some(link) = self.by_path.get(&receive.from).copied() else { return };
                for datagram in receive.datagrams() {
                    self.receive(now, link, receive.from, datagram);
                }
                if self.unanswered.len() >= self.config.limits.unanswered {
                    self.hold_back();
                }
            }
            Input::Path(path, event) => self.path_event(now, path, event),
            Input::Done(ticket, result) => self.done(ticket, result),
        }
    }

    fn handle_timeout(&mut self, now: Time) {
        while let Some(alarm) = self.timers.pop_due(now) {
            match alarm {
                Alarm::Keepalive(link) => self.keepalive(now, link),
                Alarm::Leaves => self.batch_leaves(),
                Alarm::Incoming(path, bundle) => self.give_up(path, bundle),
            }
        }
    }

    fn poll_transmit(&mut self, now: Time, tx: &mut TxBuf) -> Option<Transmit> {
        self.next_transmit(now, tx)
    }

    fn poll_effect(&mut self) -> Option<Effect> {
        self.effects.poll()
    }

    fn poll_indication(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    fn poll_timeout(&self) -> Option<Deadline> {
        self.timers.next()
    }
}
