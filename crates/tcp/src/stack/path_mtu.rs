//! Packet-too-big reports of routers, and the path MTUs of hosts.

use std::collections::BTreeMap;
use std::net::IpAddr;

use engine::{PathId, Time};

use super::Stack;
use crate::connection::{Connection, LIFETIME};
use crate::packet::{Ends, Refused};

/// Number of remembered path MTUs of hosts; the one that expires first is forgotten.
const HOSTS_MAX: usize = 4096;

/// Path MTUs below the interface's, by interface and host (RFC 1191 §6.3, RFC 8201 §5.2).
#[derive(Debug, Default)]
pub(super) struct PathMtus {
    known: BTreeMap<(PathId, IpAddr), (usize, Time)>,
}

impl PathMtus {
    /// Bytes of memory used.
    pub(super) fn memory(&self) -> usize {
        self.known.len() * (size_of::<(PathId, IpAddr)>() + size_of::<(usize, Time)>())
    }

    /// Path MTU to a host, if known and recent.
    pub(super) fn get(&self, now: Time, path: PathId, host: IpAddr) -> Option<usize> {
        let (mtu, until) = self.known.get(&(path, host))?;
        (now < *until).then_some(*mtu)
    }

    fn learn(&mut self, now: Time, path: PathId, host: IpAddr, mtu: usize) {
        if self.known.len() >= HOSTS_MAX && !self.known.contains_key(&(path, host)) {
            let oldest = self.known.iter().min_by_key(|(_, (_, until))| *until);
            if let Some(oldest) = oldest.map(|(key, _)| *key) {
                self.known.remove(&oldest);
            }
        }
        self.known.insert((path, host), (mtu, now + LIFETIME));
    }

    fn forget(&mut self, path: PathId, host: IpAddr) {
        self.known.remove(&(path, host));
    }
}

impl Stack {
    /// Processes a router's report of a dropped packet that was too long for its next link.
    pub(super) fn refused(&mut self, now: Time, report: &Refused) {
        let judged = self.connection_of(&report.ends).and_then(|connection| {
            let mtu = connection.judge_report(report)?;
            Some((mtu, connection.path))
        });
        let Some((mtu, path)) = judged else {
            // The report may be forged (RFC 5927 §4.1), or arrive long after the connection's end.
            self.statistics.reports_ignored += 1;
            return;
        };
        self.statistics.reports_taken += 1;
        let host = report.ends.remote();
        if self.path_mtus.get(now, path, host).is_none_or(|known| mtu <= known) {
            self.path_mtus.learn(now, path, host, mtu);
        }
        self.limit_packets(now, path, host, mtu);
    }

    fn connection_of(&self, ends: &Ends) -> Option<&Connection> {
        let mut all = self.slots.iter().filter_map(|slot| slot.connection.as_deref());
        match *ends {
            Ends::Ports(tuple) => {
                let slot = self.slots.get(*self.by_tuple.get(&tuple)? as usize)?;
                slot.connection.as_deref()
            }
            Ends::Number { local, remote, number } => all.find(|connection| {
                let tuple = connection.flow.tuple;
                let is_between = tuple.local.ip() == local && tuple.remote.ip() == remote;
                is_between && connection.compresses_as(number)
            }),
        }
    }

    /// Limits the packet size of all connections to a host.
    fn limit_packets(&mut self, now: Time, path: PathId, host: IpAddr, mtu: usize) {
        for index in 0..self.slots.len() as u32 {
            let slot = &mut self.slots[index as usize];
            let Some(connection) = slot.connection.as_deref_mut() else { continue };
            if connection.path == path && connection.flow.tuple.remote.ip() == host {
                connection.limit_packets(now, mtu);
                self.settle(now, index);
            }
        }
    }

    /// Records the path MTU discovered by a connection; `whole`: the interface's.
    pub(super) fn learn_path_mtu(&mut self, now: Time, index: u32) {
        let slot = &mut self.slots[index as usize];
        let Some(connection) = slot.connection.as_deref_mut() else { return };
        let Some(mtu) = connection.events.path_mtu.take() else { return };
        let (path, host) = (connection.path, connection.flow.tuple.remote.ip());
        let whole = self.interfaces.get(&path).is_none_or(|interface| mtu >= interface.mtu);
        if whole {
            self.path_mtus.forget(path, host);
        } else {
            self.path_mtus.learn(now, path, host, mtu);
        }
    }
}
