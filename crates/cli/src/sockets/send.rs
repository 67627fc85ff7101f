//! `slowlight send`: sends files and folders over UDP, or by CFDP in bundles.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context as _, Result, anyhow, bail, ensure};
use transport::protocol::Protocol;
use transport::quantity::Span;

use crate::sockets::cfdp_over_node::{Node, NodeOptions};
use crate::sockets::screen::Screen;
use crate::sockets::session::{
    self, BatchOptions, CfdpOptions, Choice, Ends, Job, SendBatch, SendFile, Source, WatchOptions,
    Wish,
};
use crate::sockets::transfer::{self, Options, resolve_peer};
use crate::sockets::{directories, groups, scope};

/// Default number of a receiver.
const REMOTE_ENTITY: u64 = 2;

/// Send files and folders by CFDP, LTP, NORM or Saratoga
#[derive(Debug, clap::Args)]
#[command(override_usage = "slowlight send [OPTIONS] <PATH>... <ADDRESS>")]
pub(crate) struct Args {
    /// Files and folders to send, or - for standard input, and the receiver's address at the end,
    /// e.g. 192.0.2.1:7542 or host [default port: 7542]
    ///
    /// One file is sent as it is. Several files, and folders, are sent as tar archives, which
    /// `slowlight recv` unpacks with modes, times and symbolic links. With --group and --node there
    /// is no address.
    #[arg(required = true, value_name = "PATH... ADDRESS")]
    operands: Vec<PathBuf>,

    /// Protocol, with or without a profile, e.g. ltp or ltp/checkpoints [default: that of the last
    /// delivery to ADDRESS, else norm/coded, or cfdp if --rate but no --delay of 1 s is given]
    ///
    /// A receiver with --protocol needs the same one. cfdp is class 2 unless the MIB sets class 1,
    /// cfdp-1 is class 1, cfdp-ltp runs over LTP, ltp-t over several hops.
    #[arg(long, value_name = "NAME", value_parser = crate::known::socket_protocol(), hide_possible_values = true)]
    protocol: Option<Protocol>,

    #[command(flatten)]
    options: Options,

    /// Name of the file or folder at the receiver; of several, the folder they go to [default: the
    /// local names]
    #[arg(long, value_name = "NAME")]
    remote: Option<String>,

    #[command(flatten)]
    batch: BatchOptions,

    /// Send only what the receiver does not have with the same content, mode and time
    ///
    /// It lists what it has, with digests: two round trips. It has to run with --serve, and receive
    /// Saratoga.
    #[arg(long, conflicts_with_all = ["watch", "node", "via"], help_heading = scope::FOLDERS)]
    checksum: bool,

    /// Then delete what only the receiver has in these folders; it has to run with --allow-delete
    ///
    /// Once all else is confirmed, it lists its files again. Deleted are files and links that are
    /// in both lists, and were not here before or after. Folders stay, and so do NAME.~1~ and names
    /// that
    /// --exclude matches.
    #[arg(long, requires = "checksum", help_heading = scope::FOLDERS)]
    delete: bool,

    #[command(flatten)]
    watch: WatchOptions,

    /// Local address [default: any]
    #[arg(long, value_name = "ADDR", conflicts_with = "node")]
    listen: Option<String>,

    /// Entity number of this end [default: the MIB's, or 1; with --node the node's]
    #[arg(long, value_name = "ID")]
    entity: Option<u64>,

    /// Entity number of the receiver [default: 2]
    #[arg(long, value_name = "ID")]
    remote_entity: Option<u64>,

    /// Give up after this time. The same command then resumes
    #[arg(long, value_name = "DURATION")]
    timeout: Option<Span>,

    /// Directory for the state of unfinished transfers
    /// [default: $XDG_STATE_HOME/slowlight or ~/.local/state/slowlight]
    #[arg(long, value_name = "DIR")]
    state: Option<PathBuf>,

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

/// Files and folders to send, and the address of their receiver.
struct Operands {
    paths: Vec<PathBuf>,
    /// Receiver's address; none with a group or a node.
    address: Option<String>,
}

impl Args {
    /// Divides the operands.
    fn operands(&self) -> Result<Operands> {
        let mut paths = self.operands.clone();
        if self.groups.has_group() || self.node.node.is_some() {
            return Ok(Operands { paths, address: None });
        }
        let address = paths.pop().context("give a file")?;
        let address = address.to_str().context("the address is not UTF-8")?.to_owned();
        if let [path] = paths.as_slice()
            && let Some(file) = path.to_str().filter(|_| !path.exists())
        {
            transfer::check_order("send", &address, file)?;
        }
        let is_path = !address.contains(':') && Path::new(&address).exists();
        ensure!(
            !paths.is_empty() || is_path || !transfer::looks_like_address(&address),
            "no file is named; write it before {address}"
        );
        ensure!(
            !paths.is_empty() && !is_path,
            "the receiver's address is missing; write it after {address}, e.g. host:7542"
        );
        Ok(Operands { paths, address: Some(address) })
    }

    /// Uses the protocol of the command line from here on, or chooses one.
    fn settle(&mut self, address: Option<&str>) -> Result<()> {
        self.options.protocol = match self.protocol.take() {
            Some(protocol) => protocol,
            // Only CFDP has a node.
            None if self.node.node.is_some() => Protocol::default(),
            None => self.choose(address)?,
        };
        Ok(())
    }

    fn choose(&self, address: Option<&str>) -> Result<Protocol> {
        self.options.check_unsettled()?;
        let to = resolve_peer(address.context("give the receiver's address")?)?;
        let has_numbers = self.entity.or(self.remote_entity).is_some();
        let Choice { protocol, why } = session::choose(&self.options, to, has_numbers)?;
        let screen = Screen::new(self.options.json);
        screen.print(format_args!("by {protocol}: {why}; --protocol takes another"));
        Ok(protocol)
    }

    /// Whether a single file is sent like a folder.
    fn is_batch(&self) -> bool {
        self.batch.is_wanted() || self.watch.watch || self.checksum
    }

    /// Refuses options of files and folders with standard input, which has no name, mode or time.
    fn check_input(&self) -> Result<()> {
        for (option, is_given) in [
            ("--checksum", self.checksum),
            ("--preserve", self.batch.preserve),
            ("--dry-run", self.batch.dry_run),
            ("--exclude", !self.batch.exclude.is_empty()),
            ("--watch", self.watch.watch),
        ] {
            ensure!(
                !is_given,
                "{option} is for files and folders; send standard input (-) without it, or give a \
                 path in place of -"
            );
        }
        Ok(())
    }

    fn remote_entity(&self) -> u64 {
        self.remote_entity.unwrap_or(REMOTE_ENTITY)
    }

    /// Addresses and numbers of both ends.
    fn ends(&self, address: Option<&str>) -> Result<Ends> {
        let protocol = &self.options.protocol;
        ensure!(
            !protocol.kind.top().is_fetched,
            "{protocol} is for fetching: the receiver runs `slowlight get --protocol saratoga`"
        );
        let group = self.groups.group(protocol.kind, address)?;
        let to = match group {
            Some(group) => group.address,
            None => resolve_peer(address.context("give the receiver's address")?)?,
        };
        let listen = transfer::from_address(self.listen.as_deref(), to)?;
        let (entity, remote_entity, via) = (self.entity, self.remote_entity(), self.via);
        Ok(Ends { to, group, listen, entity, remote_entity, via })
    }

    /// Ends of the transfer, and the node that carries it, if there is one.
    fn route(&self, address: Option<&str>) -> Result<(Ends, Option<Node>)> {
        let node = self.node.open(&self.options, self.entity)?;
        let ends = match &node {
            Some(node) => Ends::at_node(node.entity, self.remote_entity()),
            None => self.ends(address)?,
        };
        Ok((ends, node))
    }

    /// Job to send one file.
    fn file_job(self, path: &Path, address: Option<&str>) -> Result<Job> {
        ensure!(self.remote.as_deref() != Some(""), "--remote is empty; give the file a name");
        let (root, name) = source(path)?;
        let (ends, node) = self.route(address)?;
        // The name as the user wrote it, not that of a link's destination.
        let called = path.file_name().and_then(|name| name.to_str()).unwrap_or(&name).to_owned();
        let wish = Wish::Send(Box::new(SendFile {
            remote: self.remote.unwrap_or_else(|| called.clone()),
            called,
            root,
            name,
            state: self.state,
            cfdp: self.cfdp,
            groups: self.groups,
            directories: self.directories,
            put: None,
        }));
        Ok(Job { options: self.options, ends, wish, timeout: self.timeout, node })
    }

    /// Job to send several files and folders.
    fn batch_job(self, paths: Vec<PathBuf>, address: Option<&str>) -> Result<Job<SendBatch>> {
        ensure!(self.remote.as_deref() != Some(""), "--remote is empty; give the folder a name");
        for (option, is_given) in [
            ("--give", self.directories.give),
            ("--udp-lite", self.options.udp_lite),
            ("--stream", self.groups.stream),
            ("--ask", self.directories.ask),
            ("--command", !self.groups.command.is_empty()),
        ] {
            ensure!(!is_given, "{option} is for one file; send folders without it");
        }
        ensure!(
            !self.cfdp.has_request(),
            "CFDP requests are for one file; send folders without them"
        );
        let (ends, node) = self.route(address)?;
        let wish = SendBatch {
            paths,
            below: self.remote,
            state: self.state,
            cfdp: self.cfdp,
            groups: self.groups,
            batch: self.batch,
            watch: self.watch,
            compares: self.checksum,
            deletes: self.delete,
            packs: Arc::default(),
            put: None,
        };
        Ok(Job { options: self.options, ends, wish, timeout: self.timeout, node })
    }

    /// Sends a stream from a file, a pipe or standard input.
    fn send_stream(self, path: &Path, address: Option<&str>) -> Result<ExitCode> {
        let ends = self.ends(address).map_err(transfer::usage)?;
        let local = || path.file_name().and_then(|name| name.to_str()).unwrap_or("").to_owned();
        let name = self.remote.clone().unwrap_or_else(local);
        let source = Source { from: path.to_owned(), name, push: self.groups.push };
        session::send_stream(self.options, &ends, source, self.timeout)
    }
}

/// Sends the files; returns after delivery, or once they are sent if the protocol does not confirm
/// delivery.
pub(crate) fn run(mut args: Args) -> Result<ExitCode> {
    let Operands { paths, address } = args.operands().map_err(transfer::usage)?;
    let address = address.as_deref();
    if let [path] = paths.as_slice()
        && path == Path::new(STANDARD_INPUT)
    {
        args.check_input().map_err(transfer::usage)?;
    }
    args.settle(address).map_err(transfer::usage)?;
    match paths.as_slice() {
        [path] if args.groups.stream => args.send_stream(path, address),
        [path] if path == Path::new(STANDARD_INPUT) => {
            let copy = copy_of_input(args.remote.as_deref())?;
            session::run(args.file_job(copy.path(), address).map_err(transfer::usage)?)
        }
        [path] if !args.is_batch() && !path.is_dir() => {
            session::run(args.file_job(path, address).map_err(transfer::usage)?)
        }
        _ => session::run_batch(args.batch_job(paths, address).map_err(transfer::usage)?),
    }
}

/// Name of standard input.
const STANDARD_INPUT: &str = "-";

/// Copies standard input to a temporary file: protocols read what is lost again.
fn copy_of_input(remote: Option<&str>) -> Result<tempfile::NamedTempFile> {
    if remote.is_none() {
        let message = "standard input has no name; give one with --remote NAME";
        return Err(crate::Usage(message.to_owned()).into());
    }
    let mut copy = tempfile::NamedTempFile::new().context("cannot make a temporary file")?;
    std::io::copy(&mut std::io::stdin().lock(), &mut copy).context("cannot copy the input")?;
    Ok(copy)
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
