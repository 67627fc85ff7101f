//! Path MTUs of hosts, as connections discover them and routers report them.

use std::collections::BTreeMap;
use std::net::IpAddr;

use engine::{PathId, Time};

use crate::connection::LIFETIME;

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

    pub(super) fn learn(&mut self, now: Time, path: PathId, host: IpAddr, mtu: usize) {
        if self.known.len() >= HOSTS_MAX && !self.known.contains_key(&(path, host)) {
            let oldest = self.known.iter().min_by_key(|(_, (_, until))| *until);
            if let Some(oldest) = oldest.map(|(key, _)| *key) {
                self.known.remove(&oldest);
            }
        }
        self.known.insert((path, host), (mtu, now + LIFETIME));
    }

    pub(super) fn forget(&mut self, path: PathId, host: IpAddr) {
        self.known.remove(&(path, host));
    }
}
