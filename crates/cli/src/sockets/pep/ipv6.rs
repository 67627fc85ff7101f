//! Use of IPv6 by a gateway: as this host forwards it, unless it is set.

use std::fs;

use anyhow::{Result, bail};
use service::gateway::Gateway;

/// Use of IPv6 in this network namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Host {
    /// The host forwards packets, and its loopback device has an address.
    Forwards,
    /// The host forwards no packets.
    IsNoRouter,
    /// The loopback device has no address to divert connections to.
    HasNoLoopback,
    /// The kernel has no IPv6.
    HasNone,
}

impl Host {
    fn find() -> Self {
        let read = |name: &str| fs::read_to_string(format!("/proc/sys/net/ipv6/conf/{name}"));
        match (read("all/forwarding"), read("lo/disable_ipv6")) {
            (Err(_), _) => Self::HasNone,
            (Ok(forwarding), _) if forwarding.trim() == "0" => Self::IsNoRouter,
            (Ok(_), Ok(disabled)) if disabled.trim() != "0" => Self::HasNoLoopback,
            (Ok(_), Ok(_) | Err(_)) => Self::Forwards,
        }
    }
}

/// Decides on IPv6 where the settings leave it open. Returns a line for the user if connections
/// over IPv6 bypass the gateway.
pub(super) fn settle(gateway: &mut Gateway) -> Option<String> {
    let (takes, notice) = decide(gateway.intercept.ipv6, Host::find());
    gateway.intercept.ipv6 = Some(takes);
    notice.map(|why| format!("connections over IPv6 bypass the gateway: {why}"))
}

fn decide(setting: Option<bool>, host: Host) -> (bool, Option<&'static str>) {
    match (setting, host) {
        (Some(true), _) | (None, Host::Forwards) => (true, None),
        (Some(false), Host::Forwards) => (
            false,
            Some("intercept.ipv6 is false; leave it out, or set it to true, to accelerate them"),
        ),
        (None, Host::IsNoRouter) => (
            false,
            Some(
                "this host does not forward IPv6; sysctl -w net.ipv6.conf.all.forwarding=1 before \
                 the start accelerates them, and intercept.ipv6 = false ends this message",
            ),
        ),
        (None, Host::HasNoLoopback) => (false, Some(NO_LOOPBACK)),
        (Some(false), Host::IsNoRouter | Host::HasNoLoopback | Host::HasNone)
        | (None, Host::HasNone) => (false, None),
    }
}

const NO_LOOPBACK: &str = "the loopback device has no address of IPv6; \
                           sysctl -w net.ipv6.conf.lo.disable_ipv6=0 gives it one";

/// Checks that this host meets the settings for IPv6.
pub(super) fn check(gateway: &Gateway) -> Result<()> {
    if !gateway.intercept.takes_ipv6() {
        return Ok(());
    }
    match Host::find() {
        // Whether it forwards is checked for both versions of IP.
        Host::Forwards | Host::IsNoRouter => Ok(()),
        Host::HasNoLoopback => bail!("intercept.ipv6: {NO_LOOPBACK}"),
        Host::HasNone => {
            bail!("intercept.ipv6: this kernel has no IPv6; leave the setting out")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ipv6_is_taken_where_it_is_forwarded_and_the_user_reads_why_not() {
        use Host::{Forwards, HasNoLoopback, HasNone, IsNoRouter};
        assert_eq!(decide(None, Forwards), (true, None));
        assert_eq!(decide(None, HasNone), (false, None));
        assert_eq!(decide(Some(false), IsNoRouter), (false, None), "nothing passes at all");
        for host in [Forwards, IsNoRouter, HasNoLoopback, HasNone] {
            assert_eq!(decide(Some(true), host), (true, None));
        }
        for (setting, host, remedy) in [
            (Some(false), Forwards, "intercept.ipv6"),
            (None, IsNoRouter, "net.ipv6.conf.all.forwarding=1"),
            (None, HasNoLoopback, "net.ipv6.conf.lo.disable_ipv6=0"),
        ] {
            let (takes, why) = decide(setting, host);
            assert!(!takes && why.is_some_and(|why| why.contains(remedy)), "{why:?}");
        }
    }
}
