//! `slowlight send`: sends a file over UDP, or by CFDP in bundles.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, Result, anyhow, bail, ensure};
use transport::protocol::Protocol;
use transport::quantity::Span;

use crate::sockets::cfdp_over_node::NodeOptions;
use crate::sockets::screen::Screen;
use crate::sockets::session::{self, CfdpOptions, Choice, Ends, Job, SendFile, Source, Wish};
use crate::sockets::transfer::{self, Options, resolve_peer};
use crate::sockets::{directories, groups, scope};

/// Default number of a receiver.
const REMOTE_ENTITY: u64 = 2;

/// Send a file by CFDP, LTP, NORM or Saratoga
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// File to send
    file: PathBuf,

    /// Receiver's address, e.g. 192.0.2.1:7542 or host [default port: 7542]
    #[arg(required_unless_present_any = ["group", "node"], conflicts_with = "node")]
    address: Option<String>,

    /// Protocol, with or without a profile, e.g. ltp or ltp/checkpoints [default: that of the last
    /// delivery to ADDRESS, else norm/coded, or cfdp if --rate but no --delay of 1 s is given]
    ///
    /// A receiver with --protocol needs the same one. cfdp is class 2 unless the MIB sets class 1,
    /// cfdp-1 is class 1, cfdp-ltp runs over LTP, ltp-t over several hops.
    #[arg(long, value_name = "NAME", value_parser = crate::known::socket_protocol(), hide_possible_values = true)]
    protocol: Option<Protocol>,

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

    /// Entity number of the receiver [default: 2]
    #[arg(long, value_name = "ID")]
    remote_entity: Option<u64>,

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
    groups: groups::SendOptions,

    #[command(flatten)]
    directories: directories::DeliveryOptions,
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

    /// Uses the protocol of the command line from here on, or chooses one.
    fn settle(&mut self) -> Result<()> {
        self.options.protocol = match self.protocol.take() {
            Some(protocol) => protocol,
            // Only CFDP has a node.
            None if self.node.node.is_some() => Protocol::default(),
            None => self.choose()?,
        };
        Ok(())
    }

    fn choose(&self) -> Result<Protocol> {
        self.options.check_unsettled()?;
        let to = resolve_peer(self.address()?)?;
        let has_numbers = self.entity.or(self.remote_entity).is_some();
        let Choice { protocol, why } = session::choose(&self.options, to, has_numbers)?;
        let screen = Screen::new(self.options.json);
        screen.print(format_args!("by {protocol}: {why}; --protocol takes another"));
        Ok(protocol)
    }

    fn remote_entity(&self) -> u64 {
        self.remote_entity.unwrap_or(REMOTE_ENTITY)
    }

    /// Addresses and numbers of both ends.
    fn ends(&self) -> Result<Ends> {
        let protocol = &self.options.protocol;
        ensure!(
            !protocol.kind.top().is_fetched,
            "{protocol} is for fetching: the receiver runs `slowlight get --protocol saratoga`"
        );
        let group = self.groups.group(protocol.kind, self.address.as_deref())?;
        let to = match group {
            Some(group) => group.address,
            None => resolve_peer(self.address()?)?,
        };
        let listen = transfer::from_address(self.listen.as_deref(), to)?;
        let (entity, remote_entity, via) = (self.entity, self.remote_entity(), self.via);
        Ok(Ends { to, group, listen, entity, remote_entity, via })
    }

    /// Name of the file as the user wrote it, or as it is found.
    fn called<'a>(&'a self, found: &'a str) -> &'a str {
        self.file.file_name().and_then(|name| name.to_str()).unwrap_or(found)
    }

    fn job(mut self) -> Result<Job> {
        ensure!(self.remote.as_deref() != Some(""), "--remote is empty; give the file a name");
        self.check_order()?;
        self.settle()?;
        let (root, name) = source(&self.file)?;
        let node = self.node.open(&self.options, self.entity)?;
        let ends = match &node {
            Some(node) => Ends::at_node(node.entity, self.remote_entity()),
            None => self.ends()?,
        };
        let called = self.called(&name).to_owned();
        let wish = Wish::Send(Box::new(SendFile {
            remote: self.remote.unwrap_or_else(|| called.clone()),
            called,
            root,
            name,
            cfdp: self.cfdp,
            groups: self.groups,
            directories: self.directories,
            put: None,
        }));
        Ok(Job { options: self.options, ends, wish, timeout: self.timeout, node })
    }
}

/// Sends the file; returns after delivery, or once it is sent if the protocol does not confirm
/// delivery.
pub(crate) fn run(mut args: Args) -> Result<ExitCode> {
    if !args.groups.stream {
        return session::run(args.job().map_err(transfer::usage)?);
    }
    args.check_order().and_then(|()| args.settle()).map_err(transfer::usage)?;
    let ends = args.ends().map_err(transfer::usage)?;
    let name = args.remote.clone().unwrap_or_else(|| args.called("").to_owned());
    let source = Source { from: args.file, name, push: args.groups.push };
    session::send_stream(args.options, &ends, source, args.timeout)
}

/// The directory and the name of the file to send, links resolved.
pub(crate) fn source(file: &Path) -> Result<(PathBuf, String)> {
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
