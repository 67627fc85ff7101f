//! `slowlight send`: sends a file over UDP, or by CFDP in bundles.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, bail, ensure};
use transport::contract::Feature;
use transport::protocol::Protocol;
use transport::quantity::Span;

use crate::sockets::cfdp_over_node::NodeOptions;
use crate::sockets::peers::GroupOptions;
use crate::sockets::scope;
use crate::sockets::session::{self, CfdpOptions, Ends, Job, SendFile, Source, Wish};
use crate::sockets::transfer::{self, Options, resolve};

/// Send a file by CFDP, LTP, NORM or Saratoga
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// File to send
    file: PathBuf,

    /// Receiver's address, e.g. 192.0.2.1:7542 or host:7542
    #[arg(required_unless_present_any = ["group", "node"], conflicts_with = "node")]
    address: Option<String>,

    #[command(flatten)]
    options: Options,

    /// Name of the file at the receiver [default: the local name]
    #[arg(long, value_name = "NAME")]
    remote: Option<String>,

    /// Local address [default: any]
    #[arg(long, value_name = "ADDR", conflicts_with = "node")]
    listen: Option<String>,

    /// Entity number of this end [default: the MIB's, or 1; with --node the node's]
    #[arg(long, value_name = "ID")]
    entity: Option<u64>,

    /// Entity number of the receiver
    #[arg(long, value_name = "ID", default_value_t = 2)]
    remote_entity: u64,

    /// Give up after this time. With CFDP, Saratoga and norm/coded, the same command then resumes;
    /// with LTP and NORM, it restarts
    #[arg(long, value_name = "DURATION")]
    timeout: Option<Span>,

    #[command(flatten)]
    cfdp: CfdpOptions,

    #[command(flatten)]
    node: NodeOptions,

    /// Engine number of the next hop at ADDRESS; delivery beyond it is not confirmed
    #[arg(long, value_name = "ID", help_heading = scope::LTP_T)]
    via: Option<u64>,

    #[command(flatten)]
    norm: NormOptions,

    #[command(flatten)]
    saratoga: SaratogaOptions,
}

/// Options of NORM.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = scope::NORM)]
struct NormOptions {
    /// Multicast group to send to, e.g. 224.1.2.3 or 224.1.2.3:6003
    #[arg(long, value_name = "ADDR", conflicts_with = "address")]
    group: Option<String>,

    /// Network interface of the group, e.g. eth0 [default: by the routing table]
    #[arg(long, value_name = "NAME", requires = "group")]
    interface: Option<String>,

    /// Multicast TTL (hop limit) [default: 1]
    #[arg(long, value_name = "N", requires = "group")]
    ttl: Option<u32>,

    /// Send the file as a stream; it may be a pipe, or - for standard input
    ///
    /// Bytes are sent as soon as they are read; `slowlight recv --stream` delivers them as they
    /// arrive.
    #[arg(long)]
    stream: bool,

    /// Overwrite unacknowledged data of a stream instead of waiting for receivers
    #[arg(long, requires = "stream")]
    push: bool,

    /// Send without acknowledgements, with parity for delivery with this probability, e.g. 0.999
    ///
    /// For a path without return link, by norm/coded. The loss is that of the MIB (sender.loss), or
    /// 1 %.
    #[arg(long, value_name = "P", value_parser = probability, conflicts_with = "stream")]
    confidence: Option<f64>,

    /// Send the file again and again for this time, without acknowledgements, e.g. "10 min"
    ///
    /// For receivers without return link that may start late, by norm/coded. Each round is enough
    /// with the probability of --confidence, or 0.99.
    #[arg(long, value_name = "DURATION", value_parser = rounds, conflicts_with = "stream")]
    carousel: Option<Span>,

    /// Command for the receivers' applications, sent before the file; repeatable
    ///
    /// libnorm may deliver it more than once.
    #[arg(long, value_name = "TEXT", conflicts_with = "stream")]
    command: Vec<String>,
}

/// Probability of an option.
fn probability(text: &str) -> Result<f64, String> {
    let wrong = || format!("{text:?} is no probability; write it like 0.999 or \"99.9 %\"");
    let share = ::session::settings::form::Share::parse(text).map_err(|_| wrong())?;
    if share > 0.0 && share < 1.0 { Ok(share) } else { Err(wrong()) }
}

/// Time of the rounds of a carousel.
fn rounds(text: &str) -> Result<Span, String> {
    let time: Span = text.parse().map_err(|error| format!("{error}"))?;
    if time.duration() < Duration::from_millis(1) {
        return Err("nothing is sent in no time; give at least 1 ms".to_owned());
    }
    Ok(time)
}

/// Options of Saratoga.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = scope::SARATOGA)]
struct SaratogaOptions {
    /// Request permission before sending the file
    #[arg(long)]
    ask: bool,

    /// Delete the local file after delivery
    #[arg(long)]
    give: bool,
}

impl Args {
    /// Error if the file and the address are swapped.
    fn check_order(&self) -> Result<()> {
        let address = self.address.as_deref().filter(|_| !self.file.exists());
        let Some((file, address)) = self.file.to_str().zip(address) else { return Ok(()) };
        transfer::check_order("send", address, file)
    }

    fn address(&self) -> Result<&str> {
        self.address.as_deref().context("give the receiver's address")
    }

    /// The group to send to, if it is one.
    fn group(&self, protocol: &Protocol) -> Result<Option<rt::Group>> {
        let NormOptions { group, interface, ttl, .. } = &self.norm;
        let options = GroupOptions::of(group.clone(), interface.clone(), *ttl);
        if group.is_some() {
            return options.of_norm().map(Some);
        }
        let joins = protocol.kind.has(Feature::Groups);
        let Some(to) = self.address.as_deref().filter(|_| joins) else { return Ok(None) };
        let to = resolve(to)?;
        to.ip().is_multicast().then(|| options.reached(to)).transpose()
    }

    /// Addresses and numbers of both ends.
    fn ends(&self) -> Result<Ends> {
        let protocol = &self.options.protocol;
        ensure!(
            !protocol.kind.top().is_fetched,
            "{protocol} is for fetching: the receiver runs `slowlight get --protocol saratoga`"
        );
        let group = self.group(protocol)?;
        let to = match group {
            Some(group) => group.address,
            None => resolve(self.address()?)?,
        };
        let listen = transfer::from_address(self.listen.as_deref(), to)?;
        let (entity, remote_entity, via) = (self.entity, self.remote_entity, self.via);
        Ok(Ends { to, group, listen, entity, remote_entity, via })
    }

    /// Name of the file as the user wrote it, or as it is found.
    fn called<'a>(&'a self, found: &'a str) -> &'a str {
        self.file.file_name().and_then(|name| name.to_str()).unwrap_or(found)
    }

    fn job(self) -> Result<Job> {
        ensure!(self.remote.as_deref() != Some(""), "--remote is empty; give the file a name");
        self.check_order()?;
        let (root, name) = source(&self.file)?;
        let node = self.node.open(&self.options, self.entity)?;
        let ends = match &node {
            Some(node) => Ends::at_node(node.entity, self.remote_entity),
            None => self.ends()?,
        };
        let called = self.called(&name).to_owned();
        let wish = Wish::Send(Box::new(SendFile {
            remote: self.remote.unwrap_or_else(|| called.clone()),
            called,
            root,
            name,
            asks: self.saratoga.ask,
            gives: self.saratoga.give,
            commands: self.norm.command,
            confidence: self.norm.confidence,
            carousel: self.norm.carousel,
            cfdp: self.cfdp,
            put: None,
        }));
        Ok(Job { options: self.options, ends, wish, timeout: self.timeout, node })
    }
}

/// Sends the file; returns after delivery, or once it is sent if the protocol does not confirm
/// delivery.
pub(crate) fn run(args: Args) -> Result<ExitCode> {
    if !args.norm.stream {
        return session::run(args.job().map_err(transfer::usage)?);
    }
    let ends = args.check_order().and_then(|()| args.ends()).map_err(transfer::usage)?;
    let name = args.remote.clone().unwrap_or_else(|| args.called("").to_owned());
    let source = Source { from: args.file, name, push: args.norm.push };
    session::send_stream(args.options, &ends, source, args.timeout)
}

/// The directory and the name of the file to send, links resolved.
fn source(file: &Path) -> Result<(PathBuf, String)> {
    let path = file.canonicalize().with_context(|| format!("cannot read {}", file.display()))?;
    let found = path.metadata().with_context(|| format!("cannot read {}", file.display()))?;
    ensure!(found.is_file(), "{} is not a regular file", file.display());
    std::fs::File::open(&path).with_context(|| format!("cannot read {}", file.display()))?;
    let (Some(root), Some(name)) = (path.parent(), path.file_name()) else {
        bail!("{} has no name", file.display());
    };
    let name = name
        .to_str()
        .ok_or_else(|| anyhow!("the name of {} is not UTF-8; send a link to it", file.display()))?;
    Ok((root.to_owned(), name.to_owned()))
}
