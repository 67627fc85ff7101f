//! Engine of a gateway: the proxy over the kernel's streams alone, or with slowlight's own TCP at
//! one side.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

use anyhow::Result;
use engine::{Engine, Time};
use pep::{Indication, Pep};
use service::gateway::Gateway;
use stack::{self, OverTcp};
use tcp::{self, Stack};

/// Engine that contains a proxy.
pub(super) trait Proxy: Engine<Indication = Indication> {
    fn pep(&self) -> &Pep;

    /// Calls the proxy.
    fn ask<R>(&mut self, now: Time, request: impl FnOnce(&mut Pep) -> R) -> R;

    /// slowlight's own TCP, if it is in use.
    fn own_tcp(&self) -> Option<&Stack>;

    /// Whether there is no connection. Unsent data of slowlight's own TCP is lost with this
    /// process; the kernel's is not.
    fn is_idle(&self) -> bool {
        self.pep().statistics().open == 0 && self.own_tcp().is_none_or(|stack| stack.open() == 0)
    }
}

impl Proxy for Pep {
    fn pep(&self) -> &Pep {
        self
    }

    fn ask<R>(&mut self, _now: Time, request: impl FnOnce(&mut Pep) -> R) -> R {
        request(self)
    }

    fn own_tcp(&self) -> Option<&Stack> {
        None
    }
}

impl Proxy for OverTcp<Pep> {
    fn pep(&self) -> &Pep {
        self.above()
    }

    fn ask<R>(&mut self, now: Time, request: impl FnOnce(&mut Pep) -> R) -> R {
        self.call(now, request)
    }

    fn own_tcp(&self) -> Option<&Stack> {
        Some(self.below())
    }
}

/// A few streams are left and have something to send, beside those of the proxy.
const LEFT: usize = 64;

/// Proxy between the kernel's streams and those of slowlight's own TCP, which accepts what the
/// kernel's rules divert to it, for any address and port.
pub(super) fn over_own_tcp(
    gateway: &Gateway,
    options: tcp::Options,
    pep: Pep,
) -> Result<OverTcp<Pep>> {
    let streams = gateway.limits.connections + LEFT;
    let limits = tcp::Limits { connections: streams, ..tcp::Limits::default() };
    let mut listen = vec![SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0))];
    if gateway.intercept.takes_ipv6() {
        listen.push(SocketAddr::from((Ipv6Addr::UNSPECIFIED, 0)));
    }
    let config = stack::Config {
        tcp: tcp::Config { limits, ..tcp::Config::default() },
        options,
        listen,
        has_driver_streams: true,
        limits: stack::Limits { streams, ..stack::Limits::default() },
        ..stack::Config::default()
    };
    Ok(OverTcp::new(config, pep, rt::entropy()?))
}
