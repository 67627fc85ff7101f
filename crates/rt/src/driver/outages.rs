//! Outages: planned ones, paths without a route, and datagrams that the system refuses to send.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use engine::{Engine, Input, PathEvent, PathId, Time};
use rustix::io::Errno;

use super::{Driver, Event};
use crate::lite::Lite;
use crate::refusals::{LossLog, Meaning};
use crate::{Refusal, Schedule, route_mtu};

/// Interval of looks for a route.
const INTERVAL: Duration = Duration::from_secs(1);

/// Shortest MTU that is tried when the system does not know one, in bytes: what every IPv4 host
/// takes (RFC 791 §3.1), without headers.
const MTU_LEAST: usize = 548;

/// Headers of IP and UDP, in bytes.
const fn headers(to: SocketAddr) -> usize {
    if to.is_ipv4() { 20 + 8 } else { 40 + 8 }
}

/// Paths without a route, and the log of lost datagrams.
#[derive(Debug, Default)]
pub(super) struct Outages {
    /// Time of the next look for a route.
    paths: BTreeMap<PathId, Time>,
    pub(super) log: LossLog,
}

impl Outages {
    /// Whether a path has no route.
    pub(super) fn is_out(&self, path: PathId) -> bool {
        self.paths.contains_key(&path)
    }

    /// Ends the outage of a path from which a datagram arrived, if the next look is due. A forged
    /// address would otherwise let the path go up and down with each datagram.
    pub(super) fn end_if_due(&mut self, now: Time, path: PathId) -> bool {
        let is_due = self.paths.get(&path).is_some_and(|at| *at <= now);
        is_due && self.end(path)
    }

    /// Removes a path; returns whether it was out.
    pub(super) fn end(&mut self, path: PathId) -> bool {
        self.paths.remove(&path).is_some()
    }
}

impl<E: Engine> Driver<E> {
    /// Handles a part of a batch that the system refused. Returns whether the rest of the batch may
    /// be sent.
    pub(super) fn on_refused(&mut self, path: PathId, segment: usize, refusal: Refusal) -> bool {
        let Some(peer) = self.peers.get(path) else { return false };
        let (to, error) = (peer.address, refusal.error);
        let datagrams = refusal.lost.div_ceil(segment.max(1)).max(1) as u64;
        self.statistics.datagrams_unsent += datagrams;
        if Meaning::from_errno(error) == Meaning::TooLong {
            self.shorten(path, to, segment);
            self.unsent(path);
            return false;
        }
        // The kernel has no route: a router's report, which can be forged, does not count.
        if self.peers.is_static(path) && !self.groups.knows(path) && route_mtu(to).is_err() {
            let what =
                format_args!("no route to {to}, its path is down until there is one: {error}");
            self.outages.log.add(datagrams, what);
            self.unsent(path);
            self.outages.paths.insert(path, self.pump.now() + INTERVAL);
            self.path_down(path);
            return false;
        }
        // The address may be none of this machine any more.
        self.peers.forget_ours(path);
        self.outages.log.add(datagrams, format_args!("the system does not send to {to}: {error}"));
        self.unsent(path);
        true
    }

    /// Reports that the last batch of a path, or a part of it, is lost.
    fn unsent(&mut self, path: PathId) {
        let event = Input::Path(path, PathEvent::Unsent);
        self.pump.pass(event);
    }

    pub(super) fn path_down(&mut self, path: PathId) {
        self.paused.remove(&path);
        self.pump.pass(Input::Path(path, PathEvent::Down));
    }

    /// Brings up paths that have a route again.
    pub(super) fn look_for_routes(&mut self, now: Time) {
        let due = self.outages.paths.iter().filter(|(_, at)| **at <= now).map(|(path, _)| *path);
        for path in due.collect::<Vec<_>>() {
            let Some(peer) = self.peers.get(path) else {
                self.outages.end(path);
                continue;
            };
            if route_mtu(peer.address).is_err() {
                self.outages.paths.insert(path, now + INTERVAL);
            } else if self.outages.end(path) {
                tracing::info!(to = %peer.address, "there is a route again");
                self.bring_up(path);
            }
        }
    }

    /// Lowers the MTU of a path that does not take datagrams of `len` bytes. If the engine was
    /// informed before and cannot send shorter ones, IP fragments them.
    fn shorten(&mut self, path: PathId, to: SocketAddr, len: usize) {
        let known = self.peers.get(path).and_then(|peer| peer.mtu);
        if known.is_some_and(|mtu| mtu < len) {
            let lite = self.lite.as_ref().map(Lite::socket);
            let mut sockets = [Some(&self.socket), lite].into_iter().flatten();
            if !self.socket.allows_fragments() && sockets.all(|it| it.allow_fragments().is_ok()) {
                tracing::warn!(%to, "IP fragments datagrams of {len} bytes: the path takes less");
            } else {
                let what = format_args!("datagrams of {len} bytes to {to} are too long");
                self.outages.log.add(1, what);
            }
            return;
        }
        let route = route_mtu(to).ok().map(|mtu| mtu.saturating_sub(headers(to)));
        let shorter = (len - len / 8).max(MTU_LEAST.min(len));
        let mtu = route.filter(|mtu| *mtu < len).unwrap_or(shorter);
        tracing::warn!(
            %to,
            "datagrams of {len} bytes are too long for the network interface; those of {mtu} \
             bytes follow"
        );
        self.peers.set_mtu(path, mtu);
        self.bring_up(path);
    }

    /// Logs what a router reported about an earlier datagram.
    pub(super) fn on_report(&mut self, error: Errno) {
        let Some((to, _)) = self.connected else { return };
        let what = format_args!("a router reports that {to} cannot be reached: {error}");
        self.outages.log.add(1, what);
    }

    /// Makes all paths, which are added later, follow a schedule: the engine is notified when a
    /// direction goes down or up, and the observer when a contact begins or ends.
    pub fn follow(&mut self, mut schedule: Schedule) {
        schedule.begin(self.pump.now(), self.pump.clock);
        self.schedule = Some(schedule);
    }

    /// Reports the changes of the schedule that are due.
    pub(super) fn keep_to_schedule(
        &mut self,
        now: Time,
        on: &mut impl FnMut(Time, &mut E, Event<E::Indication>),
    ) {
        let Some(schedule) = &mut self.schedule else { return };
        let change = schedule.look(now, self.pump.clock, now >= self.next_tick);
        let contact = schedule.contact();
        if let Some(change) = change {
            let is_open =
                |path: &PathId| !self.outages.is_out(*path) && !self.groups.is_left(*path);
            for path in self.peers.paths().filter(is_open).collect::<Vec<_>>() {
                let info = self.info(path);
                let changed = |it: &Schedule| it.changed(now, change, info);
                for event in self.schedule.as_ref().map(changed).unwrap_or_default() {
                    if event == PathEvent::Down {
                        self.paused.remove(&path);
                    }
                    self.pump.engine.handle_input(now, Input::Path(path, event));
                }
            }
        }
        if std::mem::replace(&mut self.contact, contact) != contact {
            on(now, &mut self.pump.engine, Event::Contact(contact));
        }
    }
}
