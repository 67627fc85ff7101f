//! What the two ends of a real transfer have in common.

use std::fmt::Display;
use std::io::{IsTerminal as _, Write as _};
use std::net::{SocketAddr, ToSocketAddrs as _};
use std::path::PathBuf;
use std::process;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, ensure};
use engine::PathInfo;
use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};
use proto::cfdp;
use serde::Serialize;
use transport::engines::EngineConfig;
use transport::protocol::{Family, Kind, Protocol};
use transport::quantity::{Rate, Size, Span};
use wire::cfdp::{ConditionCode, DeliveryCode, FileStatus, TransmissionMode, Width};

use crate::scope;
use crate::session::Ended;
use crate::show;

/// Bytes of Ethernet's header, which a rate counts.
const ETHERNET: usize = 14;

/// At a given rate, a sender that was kept from the processor for this long loses nothing of it.
pub(crate) const CATCH_UP: Duration = Duration::from_millis(10);

/// Without a rate, how far a sender runs ahead of its receiver: half of what the receiver's socket
/// holds where the kernel lets it, so that some datagrams of others have room too.
pub(crate) const UNPACED_WINDOW: u64 = 16 << 20;

/// Longest packet of Ethernet, which most paths carry whatever the interface here takes.
const MTU_MAX: usize = 1500;
/// Bytes of the headers of IPv4 and UDP, and of IPv6 and UDP.
const HEADERS: [usize; 2] = [20 + 8, 40 + 8];
/// Least datagram.
const DATAGRAM_MIN: usize = 64;

/// Least time without an answer after which a sender reports that.
const SILENCE: Duration = Duration::from_secs(5);

/// Time without an answer after which a sender reports that: six light times, at least 5 s.
pub(crate) fn patience(light_time: Duration) -> Duration {
    SILENCE.max(6 * light_time)
}

/// Options of both ends.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Protocol: cfdp (class 2, unless the MIB says otherwise), cfdp-1 (class 1), cfdp-ltp (over LTP), ltp,
    /// ltp-green, ltp-1k-red, ltp-t (over several hops), norm, saratoga or saratoga-blind; a profile
    /// follows a slash, as in ltp/checkpoints
    #[arg(long, default_value = "cfdp", value_name = "NAME")]
    pub(crate) protocol: Protocol,

    /// Rate to send at, headers included; 0 is as fast as the socket takes it [default: the MIB's,
    /// or 0]; NORM: as receivers report it, if none is given
    #[arg(long, value_name = "RATE")]
    pub(crate) rate: Option<Rate>,

    /// Rate of the return link, where it carries a hundredth of --rate or less: a sender with
    /// --delay then repeats what is not confirmed while replies take long
    #[arg(long, value_name = "RATE")]
    pub(crate) return_rate: Option<Rate>,

    /// One-way light time to the other end, as "1.28 s"; found out by measuring if not given
    #[arg(long, value_name = "TIME")]
    pub(crate) delay: Option<Span>,

    /// Settings of this end (its management information base) in the keys of the protocol, as TOML;
    /// options given here come before it
    #[arg(long, value_name = "FILE")]
    pub(crate) mib: Option<PathBuf>,

    /// Profile of the protocol, as after a slash in --protocol
    #[arg(long, value_name = "NAME")]
    pub(crate) profile: Option<String>,

    /// Largest datagram in bytes, without IP and UDP headers [default: what the MTU of the route
    /// holds, at most 1472 over IPv4 and 1452 over IPv6]
    #[arg(long, value_name = "BYTES", value_parser = datagram)]
    pub(crate) datagram: Option<usize>,

    /// Content may be damaged on the way, and goes by UDP-Lite with a checksum over the headers
    /// only, and none over the file; all but data still goes by UDP
    #[arg(long, help_heading = scope::SARATOGA)]
    pub(crate) udp_lite: bool,

    /// Print results as JSON, one object a line
    #[arg(long)]
    pub(crate) json: bool,
}

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
        // Where there is no route yet, one may come.
        let fits = || fitting(to, rt::route_mtu(to).unwrap_or(MTU_MAX));
        self.datagram.unwrap_or_else(fits)
    }

    /// Path facts for an engine whose peer, or own end, has this address; most paths have the rate of
    /// a remote's settings. How much is sent at a time depends on the rate, so it must be the one
    /// that the engine keeps to.
    pub(crate) fn path(&self, rate_bps: Option<u64>, to: SocketAddr) -> PathInfo {
        let rate_bps = self.rate.map(Rate::bps).or(rate_bps);
        PathInfo {
            rate_bps: rate_bps.filter(|rate| *rate > 0),
            overhead: headers(to) + ETHERNET,
            owlt: self.delay.map(Span::duration),
            return_bps: self.return_rate.map(Rate::bps).filter(|rate| *rate > 0),
            ..PathInfo::datagram(self.datagram_to(to))
        }
    }

    /// The protocol with its profile, wherever that is given.
    ///
    /// # Errors
    /// Two profiles are given.
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

    /// The light time that was given; nothing if it was not.
    pub(crate) fn light_time(&self) -> Duration {
        self.delay.map_or(Duration::ZERO, Span::duration)
    }

    /// The settings of an entity, from the protocol's name with its profile, and the MIB. What the
    /// command line says comes before the MIB, and that before `default`, the usual number of
    /// this end.
    pub(crate) fn entity(&self, given: Option<u64>, default: u64) -> Result<cfdp::Config> {
        let protocol = self.full_protocol()?;
        ensure!(protocol.kind.family() == Family::Cfdp, "{protocol} is not CFDP");
        let mut config = transport::engines::cfdp_config(&protocol)?;
        config.entity = default;
        // An engine that a profile is of counted from there in each run. Here a number that comes again
        // would be answered with how its transaction ended the first time.
        config.first_sequence = None;
        config.catch_up = CATCH_UP;
        config.default_remote.unpaced_window = Some(UNPACED_WINDOW);
        if protocol.profile.is_none() {
            // Numbers that are drawn shall not meet again: 2^32 of them.
            config.sequence_width = Width::FOUR;
        }
        if let Some(path) = &self.mib {
            transport::settings::Mib::apply_file(path, &mut config)?;
        }
        config.entity = given.unwrap_or(config.entity);
        if self.rate.is_some() {
            // A remote's rate would count before the path's, which is the one given.
            config.default_remote.rate_bps = None;
            config.remotes.values_mut().for_each(|remote| remote.rate_bps = None);
        }
        transport::engines::tell_of_ends(&mut config);
        Ok(config)
    }

    /// The same for an entity on datagrams or over LTP.
    pub(crate) fn station(&self, given: Option<u64>, default: u64) -> Result<EngineConfig> {
        let protocol = self.full_protocol()?;
        if protocol.kind.family() != Family::CfdpLtp {
            return Ok(EngineConfig::Cfdp(Box::new(self.entity(given, default)?)));
        }
        let mut config = EngineConfig::new(&protocol, default)?;
        if let EngineConfig::CfdpLtp(told) = &mut config {
            told.cfdp.sequence_width = Width::FOUR;
            let ltp = &mut told.below.ltp;
            ltp.catch_up = CATCH_UP;
            ltp.default_remote.unpaced_window = Some(UNPACED_WINDOW);
        }
        if let Some(path) = &self.mib {
            config.apply_file(path)?;
        }
        if let EngineConfig::CfdpLtp(told) = &mut config {
            let number = given.unwrap_or(told.cfdp.entity);
            if self.rate.is_some() {
                let ltp = &mut told.below.ltp;
                ltp.default_remote.rate_bps = None;
                ltp.remotes.values_mut().for_each(|remote| remote.rate_bps = None);
            }
            config.set_entity(number);
        }
        Ok(config)
    }

    /// The transmission mode towards an entity, unless the user asks for a class: that of the
    /// protocol where its name says it, else the MIB's.
    pub(crate) fn mode(&self, config: &cfdp::Config, remote: u64) -> TransmissionMode {
        match self.protocol.kind {
            Kind::Cfdp | Kind::CfdpLtp => config.remote(remote).mode,
            kind => kind.class().into(),
        }
    }
}

/// The address a user wrote: `host:port`, or `:port` for all of this machine's addresses.
pub(crate) fn resolve(text: &str) -> Result<SocketAddr> {
    let full = if text.starts_with(':') { format!("0.0.0.0{text}") } else { text.to_owned() };
    ensure!(full.contains(':'), "address {text:?} has no port; write it like {text}:7542");
    // A name that is not found is most likely not the name.
    let mut found = full.to_socket_addrs().map_err(|error| {
        let remedy = "write it like 192.0.2.1:7542 or host:7542";
        anyhow!("address {text:?} cannot be used; {remedy}: {error}")
    })?;
    found.next().ok_or_else(|| anyhow!("the name in {text:?} has no address"))
}

/// The address to send from: the one given, or any of the family of the one to send to.
pub(crate) fn from_address(given: Option<&str>, to: SocketAddr) -> Result<SocketAddr> {
    match given {
        Some(address) => resolve(address),
        None if to.is_ipv4() => Ok(([0, 0, 0, 0], 0).into()),
        None => Ok(([0u16; 8], 0).into()),
    }
}

/// Marks an error as one that the command line can mend, if it can: another name, directory or
/// address may do. Where the system has no room or forbids it, the same command may work later.
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
            // What this program or the resolver of names says.
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

/// A flag that is set when the end is asked for, by SIGINT, SIGTERM or SIGHUP. Who asks again does not
/// want to wait for what there is to tell.
pub(crate) fn stop_flag() -> Result<Arc<AtomicBool>> {
    let mut requests = rt::signals::Requests::of_all().context("cannot listen for signals")?;
    let stop = Arc::new(AtomicBool::new(false));
    let told = Arc::clone(&stop);
    let listen = move || {
        loop {
            if !requests.wait().is_empty() && told.swap(true, Ordering::Relaxed) {
                process::exit(1);
            }
        }
    };
    thread::Builder::new().name("signals".to_owned()).spawn(listen)?;
    Ok(stop)
}

/// Tells why a socket cannot be opened, and what to do.
pub(crate) fn bind_error(address: SocketAddr, error: std::io::Error) -> anyhow::Error {
    let remedy = match error.kind() {
        std::io::ErrorKind::AddrInUse => "another program uses this port; choose another",
        std::io::ErrorKind::AddrNotAvailable => "this machine does not have this address",
        std::io::ErrorKind::Unsupported => "UDP-Lite is missing; leave out --udp-lite",
        std::io::ErrorKind::PermissionDenied => "ports below 1024 need privileges; choose another",
        _ => "the system refuses",
    };
    anyhow!(error).context(format!("cannot listen on {address}: {remedy}"))
}

/// Text for people on stderr, above progress bars where there are any.
pub(crate) struct Screen {
    bars: MultiProgress,
}

impl Screen {
    /// Bars only when stderr is a terminal and no one reads JSON.
    pub(crate) fn new(json: bool) -> Self {
        let target = if json || !std::io::stderr().is_terminal() {
            ProgressDrawTarget::hidden()
        } else {
            ProgressDrawTarget::stderr()
        };
        Self { bars: MultiProgress::with_draw_target(target) }
    }

    /// One line.
    pub(crate) fn say(&self, text: impl Display) {
        self.bars.suspend(|| {
            // Nobody is left to hear that nobody listens.
            let _ = writeln!(std::io::stderr(), "{text}");
        });
    }

    /// Does something that writes to the terminal, above the bars.
    pub(crate) fn beside<T>(&self, write: impl FnOnce() -> T) -> T {
        self.bars.suspend(write)
    }

    /// A bar for a file of `len` bytes, or of a length that is not known.
    pub(crate) fn bar(&self, name: &str, len: Option<u64>) -> ProgressBar {
        let bar = match len {
            Some(len) => ProgressBar::new(len).with_style(style_with_length()),
            None => ProgressBar::no_length().with_style(style_without_length()),
        };
        self.bars.add(bar.with_prefix(name.to_owned()))
    }
}

/// How the progress of a file of known length looks.
pub(crate) fn style_with_length() -> ProgressStyle {
    let template = "{prefix} {wide_bar} {decimal_bytes}/{decimal_total_bytes} {msg} ETA {eta}";
    ProgressStyle::with_template(template).expect("the template is well formed")
}

/// Progress of a file before anything is received from a peer that answers, without an estimate.
pub(crate) fn style_without_answer() -> ProgressStyle {
    let template = "{prefix} {wide_bar} {decimal_bytes}/{decimal_total_bytes} {msg} ETA -";
    ProgressStyle::with_template(template).expect("the template is well formed")
}

/// How the progress of a file of unknown length looks.
fn style_without_length() -> ProgressStyle {
    let template = "{prefix} {spinner} {decimal_bytes} {msg}";
    ProgressStyle::with_template(template).expect("the template is well formed")
}

/// The outcome of a transaction, as `--json` prints it.
#[derive(Debug, Serialize)]
pub(crate) struct Outcome {
    /// The protocol's name.
    pub(crate) protocol: String,
    /// `sender` or `receiver`.
    pub(crate) role: &'static str,
    /// The transaction's id.
    pub(crate) transaction: String,
    /// The entity or engine at the other side, where these have numbers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) peer_entity: Option<u64>,
    /// The file here.
    pub(crate) file: PathBuf,
    /// Its name at the other side.
    pub(crate) remote: String,
    /// Its size.
    pub(crate) file_bytes: u64,
    /// Whether it is at the receiver, whole; of an unacknowledged sender: whether it was sent.
    pub(crate) completed: bool,
    /// Why it ended.
    pub(crate) condition: String,
    /// `complete`, `incomplete`, or `unreported` where nobody says whether it came.
    pub(crate) delivery: &'static str,
    /// What became of the file, as the receiver tells.
    pub(crate) file_status: String,
    /// Whether it was begun by an earlier process.
    pub(crate) resumed: bool,
    /// Seconds since the transaction began or went on; unknown if its beginning never came.
    pub(crate) elapsed_s: Option<f64>,
    /// File bytes that moved since this process began.
    pub(crate) moved_bytes: u64,
    /// File bits a second; of a resumed transaction counting only what moved since. A transaction
    /// that failed has none.
    pub(crate) goodput_bps: Option<f64>,
    /// Datagrams this process sent, if this was its only transaction.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) datagrams_sent: Option<u64>,
    /// Datagrams this process received, if this was its only transaction.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) datagrams_received: Option<u64>,
}

/// What is known of a transfer that was given up.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Bytes {
    /// The file's size.
    pub(crate) file: u64,
    /// File bytes that moved since this process began.
    pub(crate) moved: u64,
}

/// Measures of a transaction that its outcome needs.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Measures {
    /// How long it took, if its beginning is known.
    pub(crate) elapsed: Option<Duration>,
    /// File bytes that moved since this process began.
    pub(crate) moved: u64,
    /// PDUs sent and received, if this was the entity's only transaction.
    pub(crate) pdus: Option<(u64, u64)>,
}

impl Outcome {
    /// The outcome that the engine tells of.
    pub(crate) fn new(
        protocol: &Protocol,
        finished: &cfdp::TransactionFinished,
        file: PathBuf,
        resumed: bool,
        measures: Measures,
    ) -> Self {
        let (role, remote) = match finished.role {
            cfdp::Role::Sender => ("sender", &finished.destination_name),
            cfdp::Role::Receiver => ("receiver", &finished.source_name),
        };
        let elapsed_s = measures.elapsed.map(|elapsed| elapsed.as_secs_f64());
        let completed = completed(finished);
        let bits = measures.moved as f64 * 8.0;
        let goodput_bps =
            elapsed_s.filter(|elapsed| completed && *elapsed > 0.0).map(|elapsed| bits / elapsed);
        Self {
            protocol: protocol.to_string(),
            role,
            transaction: finished.id.to_string(),
            peer_entity: Some(finished.peer.0),
            file,
            remote: remote.clone(),
            file_bytes: finished.size,
            completed,
            condition: finished.condition.to_string(),
            delivery: match finished.delivery {
                DeliveryCode::Complete if is_unreported(finished) => "unreported",
                DeliveryCode::Complete => "complete",
                DeliveryCode::Incomplete => "incomplete",
            },
            file_status: finished.file_status.to_string(),
            resumed,
            elapsed_s,
            moved_bytes: measures.moved,
            goodput_bps,
            datagrams_sent: measures.pdus.map(|(sent, _)| sent),
            datagrams_received: measures.pdus.map(|(_, received)| received),
        }
    }

    /// The outcome of a session of another protocol.
    pub(crate) fn session(
        protocol: &Protocol,
        ended: &Ended,
        file: PathBuf,
        measures: Measures,
    ) -> Self {
        let elapsed_s = measures.elapsed.map(|elapsed| elapsed.as_secs_f64());
        let completed = ended.result.is_ok();
        let bits = measures.moved as f64 * 8.0;
        let goodput_bps =
            elapsed_s.filter(|elapsed| completed && *elapsed > 0.0).map(|elapsed| bits / elapsed);
        let kept = if ended.is_confirmed { FileStatus::Retained } else { FileStatus::Unreported };
        Self {
            protocol: protocol.to_string(),
            role: if ended.at_sender { "sender" } else { "receiver" },
            transaction: ended.id(),
            peer_entity: ended.originator().filter(|_| !ended.at_sender),
            file,
            remote: ended.name.clone(),
            file_bytes: ended.size,
            completed,
            condition: ended.result.clone().err().unwrap_or_else(|| "no error".to_owned()),
            delivery: match (completed, ended.is_confirmed) {
                (true, true) => "complete",
                (true, false) => "unreported",
                (false, _) => "incomplete",
            },
            file_status: kept.to_string(),
            resumed: ended.resumed > 0,
            elapsed_s,
            moved_bytes: measures.moved,
            goodput_bps,
            datagrams_sent: measures.pdus.map(|(sent, _)| sent),
            datagrams_received: measures.pdus.map(|(_, received)| received),
        }
    }

    /// The outcome of a transfer that was given up here, of which the other end may know nothing.
    pub(crate) fn given_up(
        protocol: &Protocol,
        role: &'static str,
        transaction: Option<String>,
        peer_entity: Option<u64>,
        (file, remote): (PathBuf, String),
        bytes: Bytes,
        why: &str,
    ) -> Self {
        Self {
            protocol: protocol.to_string(),
            role,
            transaction: transaction.unwrap_or_default(),
            peer_entity,
            file,
            remote,
            file_bytes: bytes.file,
            completed: false,
            condition: why.to_owned(),
            delivery: "incomplete",
            file_status: FileStatus::Unreported.to_string(),
            resumed: false,
            elapsed_s: None,
            moved_bytes: bytes.moved,
            goodput_bps: None,
            datagrams_sent: None,
            datagrams_received: None,
        }
    }

    /// Prints the object on stdout. Whoever closes that still wants the transfer and its exit code.
    pub(crate) fn print(&self) -> Result<()> {
        let mut out = std::io::stdout().lock();
        let text = serde_json::to_string(self)?;
        match writeln!(out, "{text}") {
            Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => Err(error.into()),
            Ok(()) | Err(_) => Ok(()),
        }
    }

    /// Size, time and rate, for people.
    pub(crate) fn summary(&self) -> String {
        let size = show::bytes(self.file_bytes as f64);
        match (self.elapsed_s, self.goodput_bps) {
            (Some(elapsed), Some(rate)) => {
                format!("{size} in {}, {}", show::seconds(elapsed), show::rate(rate))
            }
            _ => size,
        }
    }
}

/// Whether it was sent and nobody told what came of it, as in class 1 without closure.
pub(crate) fn is_unreported(finished: &cfdp::TransactionFinished) -> bool {
    finished.role == cfdp::Role::Sender
        && finished.condition == ConditionCode::NoError
        && finished.file_status == FileStatus::Unreported
}

/// Whether the file is where it should be.
fn completed(finished: &cfdp::TransactionFinished) -> bool {
    let kept = match finished.file_status {
        FileStatus::Retained | FileStatus::Unreported => true,
        FileStatus::Discarded | FileStatus::FilestoreRejection | FileStatus::Other(_) => false,
    };
    finished.condition == ConditionCode::NoError
        && finished.delivery == DeliveryCode::Complete
        && kept
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_say_what_is_wrong_with_them() {
        assert_eq!(resolve("127.0.0.1:80").unwrap().port(), 80);
        assert_eq!(resolve(":80").unwrap(), "0.0.0.0:80".parse().unwrap());
        assert!(resolve("127.0.0.1").unwrap_err().to_string().contains("no port"));
        assert!(resolve("127.0.0.1:x").unwrap_err().to_string().contains("127.0.0.1:x"));
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
            udp_lite: false,
            json: false,
        };
        let path = |to: &str| options.path(None, to.parse().unwrap());
        assert_eq!(path("127.0.0.1:9").overhead, 42);
        assert_eq!(path("[::1]:9").overhead, 62);
        assert_eq!(path("[::1]:9").return_bps, Some(2_000));
        assert_eq!(path("[::1]:9").kind, engine::PathKind::Datagram { mtu: 1000 });
        let defaults = Options { datagram: None, ..options };
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
