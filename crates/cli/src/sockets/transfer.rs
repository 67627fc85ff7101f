//! Options and addresses that both ends of a transfer have in common.

use std::io::ErrorKind;
use std::net::{IpAddr, Ipv6Addr, SocketAddr, ToSocketAddrs as _};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Result, anyhow, bail, ensure};
use engine::PathInfo;
use transport::protocol::Protocol;
use transport::quantity::{Rate, Size, Span};

use crate::show;
use crate::sockets::contacts::ContactOptions;
use crate::sockets::scope;

/// Default UDP port of receivers, which Saratoga has registered.
pub(crate) const PORT: u16 = 7542;

/// Bytes of Ethernet's header, which a rate counts.
const ETHERNET: usize = 14;

/// Longest scheduling delay that a paced sender catches up on.
pub(crate) const CATCH_UP: Duration = Duration::from_millis(10);

/// Window of an unpaced sender, in bytes: half of the receiver's socket buffer where the kernel
/// allows its full size, which leaves room for datagrams of others.
pub(crate) const UNPACED_WINDOW: u64 = 16 << 20;

/// MTU of Ethernet, which most paths carry, whatever the local interface takes.
const MTU_MAX: usize = 1500;
/// Bytes of the headers of IPv4 and UDP, and of IPv6 and UDP.
const HEADERS: [usize; 2] = [20 + 8, 40 + 8];
/// Smallest datagram, in bytes.
const DATAGRAM_MIN: usize = 64;

/// Minimum time without a reply after which a sender warns.
const SILENCE: Duration = Duration::from_secs(5);

/// Minimum interval of requests for replies.
const REPLY_INTERVAL: Duration = Duration::from_secs(1);
/// Bytes of a reply, with the headers below it.
const REPLY: usize = 64;

/// Message about a peer that has not replied for this time. `server` is the command that has to
/// run there.
pub(crate) fn silence(to: SocketAddr, waited: Duration, server: &str) -> String {
    format!(
        "no answer from {to} for {}; still trying. Is `slowlight {server}, and no receiver of \
         another protocol? Does a firewall let UDP port {} through? Is the path in an outage \
         (--outage, --contacts)?",
        Span(waited),
        to.port()
    )
}

/// Options of both ends.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Options {
    /// The protocol: that of the command's own option, whose default differs.
    #[arg(skip)]
    pub(crate) protocol: Protocol,

    /// Send rate including headers; 0: unlimited [default: the MIB's, or 0; NORM adapts to the
    /// receivers]
    #[arg(long, value_name = "RATE")]
    pub(crate) rate: Option<Rate>,

    /// One-way light time to the peer, e.g. "1.28 s" [default: measured]
    #[arg(long, value_name = "DURATION")]
    pub(crate) delay: Option<Span>,

    /// Largest UDP payload, e.g. "1024 B" [default: by the route's MTU, at most 1472 B (IPv4) or
    /// 1452 B (IPv6)]
    #[arg(long, value_name = "SIZE", value_parser = datagram)]
    pub(crate) datagram: Option<usize>,

    /// Rate of a return link with 1 % of --rate or less
    ///
    /// A sender with --delay then retransmits unconfirmed data while replies are delayed.
    #[arg(long, value_name = "RATE")]
    pub(crate) return_rate: Option<Rate>,

    /// Profile of the protocol, as after a slash in --protocol
    #[arg(long, value_name = "NAME")]
    pub(crate) profile: Option<String>,

    /// Settings (management information base) in TOML, with the protocol's keys; options override
    /// it
    #[arg(long, value_name = "FILE")]
    pub(crate) mib: Option<PathBuf>,

    #[command(flatten)]
    pub(crate) contacts: ContactOptions,

    /// Send content by UDP-Lite, which may deliver it damaged
    ///
    /// The checksum covers headers only, and the file has none. PDUs other than data use UDP.
    #[arg(long, help_heading = scope::SARATOGA)]
    pub(crate) udp_lite: bool,

    /// Print results as JSON, one object per line
    // Last, behind the options of the command.
    #[arg(long, display_order = LAST)]
    pub(crate) json: bool,
}

/// Place in help behind all other options but --help.
const LAST: usize = 900;

/// A datagram's size: bytes, with or without their unit.
fn datagram(text: &str) -> Result<usize, String> {
    let bytes = match text.parse::<u64>() {
        Ok(bytes) => bytes,
        Err(_) => text.parse::<Size>().map_err(|error| error.to_string())?.bytes(),
    };
    match usize::try_from(bytes) {
        Ok(bytes @ DATAGRAM_MIN..=engine::DATAGRAM_MAX) => Ok(bytes),
        Ok(_) | Err(_) => Err(format!("{bytes} bytes: a datagram has 64 to 65507 bytes")),
    }
}

/// Bytes of the IP and UDP headers of packets to an address.
fn headers(to: SocketAddr) -> usize {
    HEADERS[usize::from(to.is_ipv6())]
}

/// Bytes that fit a packet to an address after the headers, on a route of this MTU.
pub(crate) fn fitting(to: SocketAddr, mtu: usize) -> usize {
    mtu.min(MTU_MAX).saturating_sub(headers(to)).max(DATAGRAM_MIN)
}

impl Options {
    /// Largest datagram to an address, or from it where it is the one to listen on.
    pub(crate) fn datagram_to(&self, to: SocketAddr) -> usize {
        // A route may appear later.
        let fits = || fitting(to, rt::route_mtu(to).unwrap_or(MTU_MAX));
        self.datagram.unwrap_or_else(fits)
    }

    /// Path properties for an engine whose peer, or own end, has this address; most paths have the
    /// rate of a remote's settings. The burst size depends on the rate, so it must be the rate that
    /// the engine keeps to.
    pub(crate) fn path(&self, rate_bps: Option<u64>, to: SocketAddr) -> PathInfo {
        let rate_bps = self.rate.map(Rate::bps).or(rate_bps);
        PathInfo {
            rate_bps: rate_bps.filter(|rate| *rate > 0),
            overhead: headers(to) + ETHERNET,
            owlt: self.delay.map(Span::duration),
            return_bps: self.return_bps(),
            ..PathInfo::datagram(self.datagram_to(to))
        }
    }

    /// Protocol with its profile, of --protocol or --profile.
    ///
    /// # Errors Two profiles are given.
    pub(crate) fn full_protocol(&self) -> Result<Protocol> {
        let mut protocol = self.protocol.clone();
        if let Some(profile) = &self.profile {
            let given = protocol.profile.replace(profile.clone());
            ensure!(
                given.as_ref().is_none_or(|given| given == profile),
                "--protocol {} has a profile, and --profile {profile} is another: give one",
                self.protocol
            );
        }
        Ok(protocol)
    }

    /// Error if an option needs the protocol of the command line, which has none.
    pub(crate) fn check_unsettled(&self) -> Result<()> {
        let given = [(self.profile.is_some(), "--profile"), (self.mib.is_some(), "--mib")];
        match given.into_iter().find(|(is_given, _)| *is_given) {
            Some((_, option)) => {
                bail!("{option} is for one protocol; give the protocol, e.g. --protocol cfdp")
            }
            None => Ok(()),
        }
    }

    /// Light time of --delay, or zero.
    pub(crate) fn light_time(&self) -> Duration {
        self.delay.map_or(Duration::ZERO, Span::duration)
    }

    /// Interval at which a sender requests a reply while it sends, so that its user sees within
    /// three light times whether anybody receives: half a light time until the request, and two
    /// until the reply. On a thin return link the replies take a twentieth of its rate.
    pub(crate) fn reply_interval(&self) -> Duration {
        let back = PathInfo { rate_bps: self.return_bps(), ..PathInfo::datagram(0) };
        let thin = 20 * back.transmission_time(REPLY);
        REPLY_INTERVAL.max(self.light_time() / 2).max(thin)
    }

    /// Time without a reply after which a sender warns.
    pub(crate) fn patience(&self) -> Duration {
        let light = self.light_time();
        SILENCE.max(3 * light).max(2 * self.reply_interval() + 2 * light)
    }

    /// Rate of --return-rate in bit/s, if there is one.
    fn return_bps(&self) -> Option<u64> {
        self.return_rate.map(Rate::bps).filter(|rate| *rate > 0)
    }
}

/// Address from text: `host:port`, or `:port` for all addresses of this machine.
pub(crate) fn resolve(text: &str) -> Result<SocketAddr> {
    let full = if text.starts_with(':') { format!("0.0.0.0{text}") } else { text.to_owned() };
    ensure!(
        text.is_empty() || text.bytes().any(|byte| !byte.is_ascii_digit()),
        "{text:?} is only a port; write :{text} for all addresses of this machine"
    );
    ensure!(full.contains(':'), "address {text:?} has no port; write {text}:7542");
    if let Ok(address) = text.parse::<Ipv6Addr>() {
        bail!("address {text:?} has no port; write [{address}]:7542");
    }
    let mut found = full.to_socket_addrs().map_err(|error| match error.kind() {
        ErrorKind::InvalidInput => {
            let examples = "192.0.2.1:7542, [2001:db8::1]:7542 or host:7542";
            anyhow!("invalid address {text:?}: expected one like {examples} ({error})")
        }
        _ => anyhow!("the name in {text:?} has no address ({error}); is it misspelled?"),
    })?;
    found.next().ok_or_else(|| anyhow!("the name in {text:?} has no address"))
}

/// Address of a peer, with [`PORT`] if the text has none: `host`, `192.0.2.7` or `2001:db8::7`.
pub(crate) fn resolve_peer(text: &str) -> Result<SocketAddr> {
    let is_number = text.bytes().all(|byte| byte.is_ascii_digit());
    match text.parse::<IpAddr>() {
        Ok(address) => Ok((address, PORT).into()),
        Err(_) if !is_number && (!text.contains(':') || text.ends_with(']')) => {
            resolve(&format!("{text}:{PORT}"))
        }
        Err(_) => resolve(text),
    }
}

/// Error if an address stands in the place of a file and the file in that of the address: the
/// command as it was probably meant.
pub(crate) fn check_order(command: &str, address: &str, file: &str) -> Result<()> {
    let is_swapped = looks_like_address(file) && !looks_like_address(address);
    let (first, second) = if command == "send" { (address, file) } else { (file, address) };
    ensure!(
        !is_swapped,
        "{file} is an address, and {address} is none; did you mean: slowlight {command} {} {}",
        show::quoted(first),
        show::quoted(second)
    );
    Ok(())
}

/// Whether text has the form of an address with its port.
pub(crate) fn looks_like_address(text: &str) -> bool {
    let Some((host, port)) = text.rsplit_once(':') else { return false };
    port.parse::<u16>().is_ok() && !host.contains('/')
}

/// Local address: the one given, or the unspecified one of the destination's family.
pub(crate) fn from_address(given: Option<&str>, to: SocketAddr) -> Result<SocketAddr> {
    match given {
        Some(address) => resolve(address),
        None if to.is_ipv4() => Ok(([0, 0, 0, 0], 0).into()),
        None => Ok(([0u16; 8], 0).into()),
    }
}

/// Marks an error as wrong usage if another name, folder or address can fix it. If the system has
/// no room or forbids the operation, the same command may work later.
pub(crate) fn usage(error: anyhow::Error) -> anyhow::Error {
    use std::io::ErrorKind::{
        AddrInUse, AddrNotAvailable, InvalidInput, IsADirectory, NotADirectory, NotFound, Other,
    };

    let mendable = |kind| {
        [
            NotFound,
            NotADirectory,
            IsADirectory,
            InvalidInput,
            AddrInUse,
            AddrNotAvailable,
            // An error of this program or of the name resolver.
            Other,
        ]
        .contains(&kind)
    };
    let of_system = |cause: &(dyn std::error::Error + 'static)| {
        let store = cause.downcast_ref::<rt::StoreError>().and_then(rt::StoreError::system);
        store.or_else(|| cause.downcast_ref::<std::io::Error>()).map(std::io::Error::kind)
    };
    match error.chain().find_map(of_system) {
        Some(kind) if !mendable(kind) => error,
        Some(_) | None => crate::Usage(format!("{error:#}")).into(),
    }
}

/// Error of opening a socket, with a remedy.
pub(crate) fn bind_error(address: SocketAddr, error: std::io::Error) -> anyhow::Error {
    let remedy = match error.kind() {
        ErrorKind::AddrInUse => "another program uses this port; choose another",
        ErrorKind::AddrNotAvailable => "this machine does not have this address",
        ErrorKind::Unsupported => "UDP-Lite is missing; leave out --udp-lite",
        ErrorKind::PermissionDenied => "ports below 1024 need privileges; choose another",
        _ => "the system refuses",
    };
    anyhow!(error).context(format!("cannot listen on {address}: {remedy}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_say_what_is_wrong_with_them() {
        assert_eq!(resolve("127.0.0.1:80").unwrap().port(), 80);
        assert_eq!(resolve(":80").unwrap(), "0.0.0.0:80".parse().unwrap());
        assert!(resolve("127.0.0.1").unwrap_err().to_string().contains("no port"));
        let peer = |text: &str| resolve_peer(text).unwrap().to_string();
        assert_eq!(peer("127.0.0.1"), "127.0.0.1:7542");
        assert_eq!(peer("127.0.0.1:80"), "127.0.0.1:80");
        assert_eq!((peer("::1"), peer("[::1]")), ("[::1]:7542".into(), "[::1]:7542".into()));
        assert_eq!(peer("[::1]:80"), "[::1]:80");
        assert!(resolve_peer("7542").unwrap_err().to_string().contains("only a port"));
        assert!(resolve("127.0.0.1:x").unwrap_err().to_string().contains("127.0.0.1:x"));
    }

    #[test]
    fn swapped_arguments_are_found() {
        let error = |command: &str, address: &str, file: &str| {
            check_order(command, address, file).unwrap_err().to_string()
        };
        let text = error("send", "a b.bin", "10.0.0.7:7542");
        assert!(text.ends_with("did you mean: slowlight send \"a b.bin\" 10.0.0.7:7542"), "{text}");
        let text = error("get", "a.bin", "host:7542");
        assert!(text.ends_with("did you mean: slowlight get host:7542 a.bin"), "{text}");
        for (address, file) in [("host:7542", "a.bin"), ("host", "a.bin"), ("[::1]:9", "b:9")] {
            assert!(check_order("ls", address, file).is_ok(), "{address} {file}");
        }
        assert!(check_order("get", "host", "logs/day:12").is_ok());
    }

    #[test]
    fn paths_count_the_headers_of_their_family() {
        let options = Options {
            protocol: "cfdp".parse().unwrap(),
            rate: None,
            return_rate: Some(Rate(2_000)),
            delay: None,
            mib: None,
            profile: None,
            datagram: Some(1000),
            contacts: ContactOptions::default(),
            udp_lite: false,
            json: false,
        };
        let path = |to: &str| options.path(None, to.parse().unwrap());
        assert_eq!(path("127.0.0.1:9").overhead, 42);
        assert_eq!(path("[::1]:9").overhead, 62);
        assert_eq!(path("[::1]:9").return_bps, Some(2_000));
        assert_eq!(path("[::1]:9").kind, engine::PathKind::Datagram { mtu: 1000 });
        // 64 bytes take 256 ms.
        assert_eq!(options.reply_interval(), Duration::from_millis(5_120));
        assert_eq!(options.patience(), Duration::from_millis(10_240));
        let defaults = Options { datagram: None, return_rate: None, ..options };
        assert_eq!(defaults.reply_interval(), REPLY_INTERVAL);
        assert_eq!(defaults.patience(), SILENCE);
        let far = Options { delay: Some(Span(Duration::from_secs(600))), ..defaults.clone() };
        assert_eq!(far.reply_interval(), Duration::from_secs(300));
        assert_eq!(far.patience(), Duration::from_secs(1800));
        assert_eq!(defaults.datagram_to(([127, 0, 0, 1], 9).into()), 1472);
    }

    #[test]
    fn datagrams_have_limits() {
        assert_eq!(datagram("1024"), Ok(1024));
        assert_eq!(datagram("1.5 kB"), Ok(1500));
        assert!(datagram("10").is_err() && datagram("65508").is_err());
        assert!(datagram("many").is_err());
    }
}
