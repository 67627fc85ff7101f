//! Datagrams that arrive: from which peer, and whether it becomes a path.

use std::collections::{BTreeSet, VecDeque};
use std::net::{IpAddr, SocketAddr};

use engine::{Engine, Input, PathEvent, PathId, PathInfo, Receive, Time};

use super::outages::Outages;
use super::{Config, Driver, Event, Statistics};
use crate::peers::Origin;
use crate::socket::Arrival;
use crate::{Peers, Schedule};

/// Maximum number of first datagrams that wait for the observer.
const FIRST_MAX: usize = 16;

/// First datagrams of peers that are not configured, with their senders.
pub(super) type First = VecDeque<(SocketAddr, Vec<u8>)>;

/// Context of incoming datagrams.
#[derive(Clone, Copy, Debug)]
pub(super) struct Inlet {
    /// Group to which the datagrams were sent.
    pub(super) group: Option<PathId>,
    /// Source address of this driver's own datagrams to the group.
    pub(super) echo: Option<SocketAddr>,
    /// Whether the driver's socket is bound to more than one address.
    pub(super) any: bool,
    /// The address of the driver's socket.
    pub(super) local: SocketAddr,
}

/// Parts of a driver that receive datagrams.
pub(super) struct Intake<'a, E> {
    pub(super) engine: &'a mut E,
    pub(super) peers: &'a mut Peers,
    pub(super) config: &'a Config,
    pub(super) statistics: &'a mut Statistics,
    pub(super) outages: &'a mut Outages,
    pub(super) schedule: Option<&'a Schedule>,
    pub(super) paused: &'a mut BTreeSet<PathId>,
    pub(super) first: &'a mut First,
}

impl<E: Engine> Driver<E> {
    /// Shows the observer the first datagrams of new peers; returns whether there were any.
    pub(super) fn show_new_peers(
        &mut self,
        on: &mut impl FnMut(Time, &mut E, Event<E::Indication>),
    ) -> bool {
        let is_any = !self.first.is_empty();
        while let Some((from, datagram)) = self.first.pop_front() {
            on(self.pump.now(), &mut self.pump.engine, Event::NewPeer { from, datagram });
        }
        is_any
    }
}

impl<E: Engine> Intake<'_, E> {
    /// Passes a batch of datagrams to the engine, after the event of a new path.
    pub(super) fn arrive(&mut self, now: Time, arrival: &Arrival<'_>, inlet: Inlet) {
        if inlet.echo == Some(arrival.from) {
            // Sent by this driver.
            return;
        }
        let datagrams = arrival.bytes.len().div_ceil(arrival.stride.max(1)).max(1) as u64;
        // Replies leave from the address to which the peer wrote; with a single address, the kernel
        // chooses it.
        let ours = arrival.to.filter(|to| inlet.any && !to.is_multicast());
        let Some(from) = self.path_of(now, arrival, ours, inlet.local) else {
            self.statistics.datagrams_refused += datagrams;
            return;
        };
        self.statistics.datagrams_received += datagrams;
        self.statistics.bytes_received += arrival.bytes.len() as u64;
        let received = Receive {
            path: inlet.group.unwrap_or(from),
            from,
            ecn: arrival.ecn,
            stride: arrival.stride,
            bytes: arrival.bytes,
        };
        self.engine.handle_input(now, Input::Receive(received));
    }

    /// Path of a datagram, which is up from here on; `None` if the datagram is refused.
    fn path_of(
        &mut self,
        now: Time,
        arrival: &Arrival<'_>,
        ours: Option<IpAddr>,
        local: SocketAddr,
    ) -> Option<PathId> {
        let from = arrival.from;
        let path = match self.peers.origin(now, from, ours) {
            Origin::Known(path) if !self.outages.is_out(path) => return Some(path),
            Origin::Known(path) if self.outages.end_if_due(now, path) => path,
            Origin::Known(_) => return None,
            Origin::New(path, forgotten) => {
                if let Some(forgotten) = forgotten {
                    self.paused.remove(&forgotten);
                    self.outages.end(forgotten);
                    self.engine.handle_input(now, Input::Path(forgotten, PathEvent::Down));
                }
                if self.first.len() < FIRST_MAX {
                    let len = arrival.bytes.len().min(arrival.stride.max(1));
                    self.first.push_back((from, arrival.bytes[..len].to_vec()));
                }
                path
            }
            Origin::Invalid => {
                self.outages.log.add(1, format_args!("no peer has the source address {from}"));
                return None;
            }
            Origin::Refused => {
                let most = self.config.peers_max;
                if most > 0 {
                    let what = format_args!(
                        "{from} and others are refused: all {most} peers have transfers \
                         (--peers-max, strangers)"
                    );
                    self.outages.log.add(1, what);
                }
                return None;
            }
        };
        let kind = self.peers.kind(path, self.config.path.kind);
        let info = PathInfo { kind, ends: Some((local, from)), ..self.config.path.clone() };
        let state = self.schedule.map(|schedule| schedule.state(now, info.clone()));
        // The datagram that arrived proves a contact, whatever the schedule has.
        if !matches!(state.as_deref(), Some([PathEvent::Up(_), ..])) {
            self.engine.handle_input(now, Input::Path(path, PathEvent::Up(info)));
        }
        for event in state.into_iter().flatten() {
            self.engine.handle_input(now, Input::Path(path, event));
        }
        Some(path)
    }
}
