//! Places of sessions: which peers may connect, under which names, and whose session ends for
//! another.

use std::net::IpAddr;

use engine::{PathEffect, PathId, StreamEffect, Time};

use super::super::admission::{Admission, Standing, Strangers};
use super::super::layer::{Configured, Event, LinkId, Remote as Neighbour};
use super::session::{Phase, Session};
use super::{Alarm, Peer, Proof, Tcpcl, Tls};
use crate::codec::bp7::Eid;
use crate::codec::tcpcl4::TermReason;

impl Tcpcl {
    /// Finds a place for a new stream; `None` if there is none. Streams to configured neighbours
    /// always have one, those to nodes that announced themselves have one like strangers.
    pub(super) fn place(
        &mut self,
        now: Time,
        link: LinkId,
        is_active: bool,
        address: Option<IpAddr>,
    ) -> Option<Standing> {
        let most = self.config.limits.sessions;
        let is_stranger = |session: &Session| session.peer.standing == Standing::Stranger;
        if self.discovered.contains(&link) {
            return self.has_place_for_stranger().then_some(Standing::Stranger);
        }
        if is_active {
            if self.sessions.len() >= most {
                self.push_out(now, is_stranger);
            }
            return Some(Standing::Neighbour);
        }
        let admission = &self.config.admission;
        let is_near = admission.is_of_neighbour(address);
        // With TLS a stranger may prove another standing.
        let may_prove = self.config.tls != Tls::Never;
        if !is_near && !may_prove && admission.strangers == Strangers::Refuse {
            return None;
        }
        let from_it = |session: &Session| !session.is_active && session.peer.address == address;
        let count = self.sessions.values().filter(|session| from_it(session)).count();
        if address.is_some() && count >= self.config.limits.per_address {
            let is_nameless = |session: &Session| from_it(session) && session.peer.node.is_none();
            if !is_near || !self.push_out(now, is_nameless) {
                return None;
            }
        }
        if is_near {
            let has_place = self.sessions.len() < most || self.push_out(now, is_stranger);
            return has_place.then_some(Standing::Neighbour);
        }
        self.has_place_for_stranger().then_some(Standing::Stranger)
    }

    /// Whether there is a place beside those that are kept for neighbours.
    fn has_place_for_stranger(&self) -> bool {
        let most = self.config.limits.sessions;
        let configured = self.config.peers.len().saturating_sub(self.discovered.len());
        let kept = (configured + self.config.admission.neighbours.len()).min(most / 2);
        let standings = self.sessions.values().map(|session| session.peer.standing);
        let strangers = standings.filter(|standing| *standing == Standing::Stranger).count();
        strangers + kept < most && self.sessions.len() < most
    }

    /// Ends the oldest of these sessions; returns whether there was one.
    fn push_out(&mut self, now: Time, of: impl Fn(&Session) -> bool) -> bool {
        let candidates = self.sessions.iter().filter(|(_, session)| of(session));
        let oldest = candidates.min_by_key(|(path, session)| (session.peer.since, **path));
        let Some(path) = oldest.map(|(path, _)| *path) else { return false };
        self.effects.push(StreamEffect::Reset { path });
        self.stream_down(now, path, "its place is taken by a neighbour");
        true
    }

    /// Judges the name of a peer, and ends the session if no session is possible with it. Returns
    /// whether the session may be established.
    pub(super) fn admit_peer(&mut self, now: Time, path: PathId, named: &str) -> bool {
        let Some(session) = self.sessions.get_mut(&path) else { return false };
        if session.agreement.is_framed() {
            // These protocols have no names: the address alone counts.
            return true;
        }
        let is_proved = !named.is_empty() && session.tls.names_itself(named);
        let (own, address) = (&self.config.node, session.peer.address);
        let what = match self.config.admission.judge(own, named, is_proved, address) {
            Ok((node, standing)) => {
                let peer = self.config.peers.get(&session.link).filter(|_| session.is_active);
                let expected = peer.and_then(|peer| peer.node.clone());
                let is_discovered = self.discovered.contains(&session.link);
                let is_it = !is_discovered
                    || named.parse::<Eid>().is_ok_and(|eid| Some(eid.node()) == expected);
                // An announced name counts only if it would count from a peer that connects.
                session.peer.node = expected.filter(|_| !is_discovered).or(node);
                // Whom the configuration names is no stranger.
                if !session.is_active || is_discovered {
                    session.peer.standing = standing;
                }
                let is_stranger = session.peer.standing == Standing::Stranger;
                if !is_it {
                    "another node than announced there"
                } else if is_stranger && self.config.admission.strangers == Strangers::Refuse {
                    "a stranger, which is refused here"
                } else {
                    return true;
                }
            }
            Err(why) => why,
        };
        self.end(now, path, TermReason::ContactFailure);
        self.fault(path, what);
        false
    }

    /// Reports a peer that opens a second session under the name of another.
    pub(super) fn report_second(&mut self, path: PathId) {
        let Some(session) = self.sessions.get(&path).filter(|session| !session.is_active) else {
            return;
        };
        let is_same = |(other, of): (&PathId, &Session)| {
            *other != path
                && !of.is_active
                && of.phase == Phase::Established
                && of.peer.node == session.peer.node
        };
        if session.peer.node.is_some() && self.sessions.iter().any(is_same) {
            let (link, what) = (session.link, "a second session of the same node");
            self.events.push_back(Event::Notice { link, what });
        }
    }

    /// Time at which a silent session ends, if ever.
    pub(super) fn silent_at(&self, session: &Session) -> Option<Time> {
        let last = session.silence.last_received;
        match session.silence.interval().filter(|_| !session.agreement.is_framed()) {
            Some(interval) => Some(last + 2 * interval),
            // Without keepalives silence means nothing, except from strangers (RFC 9174 §6.2).
            None => {
                let idle = self.config.idle?;
                (session.peer.standing == Standing::Stranger).then(|| last + idle)
            }
        }
    }

    /// Sets the timer of a transfer that a peer begins.
    pub(super) fn watch_transfer(&mut self, now: Time, path: PathId) {
        if let (Some(stall), Some(session)) = (self.config.stall, self.sessions.get_mut(&path)) {
            session.incoming.last_data = now;
            self.timers.set(Alarm::Stall(path), now + stall, "a stalled transfer");
        }
    }

    /// Ends the session of a peer whose transfer has stalled: only its end frees what the transfer
    /// holds.
    pub(super) fn stalled(&mut self, now: Time, path: PathId) {
        let Some(stall) = self.config.stall else { return };
        let Some(session) = self.sessions.get(&path) else { return };
        if session.incoming.coming.is_none_or(|coming| coming.is_unwanted) {
            return;
        }
        let due = session.incoming.last_data + stall;
        if due > now || session.is_paused {
            let at = if due > now { due } else { now + stall };
            self.timers.set(Alarm::Stall(path), at, "a stalled transfer");
            return;
        }
        self.effects.push(StreamEffect::Reset { path });
        self.stream_down(now, path, "a transfer stalled");
    }

    /// Replaces the configured neighbours. Sessions end whose peers have another standing by the
    /// new admission: it is judged when they are established.
    pub(super) fn replace_peers(&mut self, now: Time, configured: Configured) {
        let Configured { links, discovered, admission } = configured;
        let known = self.config.peers.keys().copied();
        for link in known.filter(|link| !links.contains_key(link)).collect::<Vec<_>>() {
            self.remove_peer(now, link);
        }
        if let Proof::Node(nodes) = &mut self.config.proof {
            *nodes = links.iter().map(|(link, remote)| (*link, remote.node.clone())).collect();
        }
        for (link, Neighbour { node, server_name, engine: _ }) in links {
            let peer = Peer { path: PathId(link.0), server_name, node: Some(node) };
            self.config.peers.entry(link).or_insert(peer);
        }
        self.discovered = discovered;
        let before = std::mem::replace(&mut self.config.admission, admission);
        let has_come = |(_, session): &(&PathId, &Session)| {
            !session.is_active && self.is_judged_otherwise(&before, session)
        };
        let others = self.sessions.iter().filter(has_come).map(|(path, _)| *path);
        for path in others.collect::<Vec<_>>() {
            self.end(now, path, TermReason::Unknown);
        }
    }

    /// Whether the peer of a session may be another one now, or has another standing.
    fn is_judged_otherwise(&self, before: &Admission, session: &Session) -> bool {
        let admission = &self.config.admission;
        let Some(address) = session.peer.address else { return false };
        if let Some(node) = &session.peer.node {
            let named = node.to_string();
            let is_proved = session.tls.names_itself(&named);
            let judged = admission.judge(&self.config.node, &named, is_proved, Some(address));
            return judged != Ok((Some(node.clone()), Standing::Neighbour));
        }
        if session.peer.standing == Standing::Neighbour {
            return !admission.is_of_neighbour(Some(address));
        }
        // Its name may be one of those that count there now.
        admission.nodes_at(address).any(|node| !before.nodes_at(address).any(|other| other == node))
    }

    fn remove_peer(&mut self, now: Time, link: LinkId) {
        let Some(Peer { path, .. }) = self.config.peers.remove(&link) else { return };
        if self.close(now, link) {
            self.effects.push(PathEffect::Close { path });
        }
    }

    /// Connects soon to neighbours that have shown that they can be reached.
    pub(super) fn connect_soon(&mut self, now: Time, is_one: impl Fn(&Eid) -> bool) {
        let pause = self.config.reconnect;
        let peers = self.config.peers.iter();
        let shown = peers.filter(|(_, peer)| peer.node.as_ref().is_some_and(&is_one));
        for (&link, _) in shown {
            let Some(wanted) = self.wanted.get_mut(&link).filter(|it| !it.is_opening) else {
                continue;
            };
            let alarm = Alarm::Reconnect(link);
            if self.timers.get(alarm).is_some_and(|due| due.at > now + pause) {
                wanted.pause = pause;
                self.timers.set(alarm, now + pause, "a reconnection");
            }
        }
    }
}
