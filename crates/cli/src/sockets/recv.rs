//! `slowlight recv`: receives files over UDP, or by CFDP in bundles.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context as _, Result, ensure};
use transport::protocol::Protocol;
use tree::Existing;

use crate::sockets::beacons::BeaconOptions;
use crate::sockets::cfdp_over_node::{Node, NodeOptions};
use crate::sockets::directories::ServeOptions;
use crate::sockets::groups::ReceiveOptions;
use crate::sockets::peers::GroupOptions;
use crate::sockets::scope;
use crate::sockets::session::{self, Routes, Service};
use crate::sockets::transfer::{self, Options, PORT, resolve};

/// Receive files by CFDP, LTP, NORM or Saratoga
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Address to listen on, e.g. 192.0.2.1:7542 [default: :7542, which is all addresses]
    #[arg(long, value_name = "ADDR", conflicts_with = "node")]
    listen: Option<String>,

    /// Folder for received files; required without --stream or --stdout
    #[arg(long, value_name = "DIR", required_unless_present_any = ["stream", "stdout"])]
    root: Option<PathBuf>,

    /// Write received files to standard output, each when it is complete, and keep none
    ///
    /// Folders come as tar archives. Unfinished files are lost when the process ends.
    #[arg(long, conflicts_with_all = ["root", "stream", "json", "existing"])]
    stdout: bool,

    /// Treatment of files that exist: skip, newer, replace, rename (the old one to NAME.~1~) or
    /// fail
    #[arg(long, value_name = "POLICY", default_value_t = Existing::Rename, help_heading = scope::FOLDERS)]
    existing: Existing,

    /// Protocol, with or without a profile, e.g. ltp or ltp/checkpoints [default: cfdp, ltp, norm
    /// and saratoga at once]
    ///
    /// Without it, the first datagrams of each sender decide. With any protocol but these four,
    /// both ends need it: cfdp-ltp runs CFDP over LTP, ltp-t over several hops.
    #[arg(long, value_name = "NAME", value_parser = crate::known::socket_protocol(), hide_possible_values = true)]
    protocol: Option<Protocol>,

    #[command(flatten)]
    options: Options,

    /// Entity number of this end [default: the MIB's, or 2; with --node the node's]
    #[arg(long, value_name = "ID")]
    entity: Option<u64>,

    /// Exit after the first transaction, with status 1 if it failed
    ///
    /// It stays until the sender has the last reply, or for a minute and four round trips at most.
    #[arg(long)]
    once: bool,

    /// Serve state and metrics by HTTP at this Unix socket: /status and /metrics
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,

    /// Maximum number of peers remembered; those without a transfer give way to others
    #[arg(long, value_name = "N", default_value_t = 1024)]
    peers_max: usize,

    /// Entity and its address, e.g. 3=192.0.2.7:7542; repeatable
    ///
    /// Replies and forwarded files go to this address, whatever port the entity sends from.
    #[arg(long, value_name = "ID=ADDR", conflicts_with = "node", help_heading = scope::CFDP_AND_LTP)]
    peer: Vec<String>,

    #[command(flatten)]
    node: NodeOptions,

    /// Static route DEST=NEXT_HOP, e.g. 4=3; repeatable
    ///
    /// `any=3` sets the default route.
    #[arg(long, value_name = "ID=ID", requires = "peer", help_heading = scope::LTP_T)]
    route: Vec<String>,

    #[command(flatten)]
    groups: ReceiveOptions,

    #[command(flatten, next_help_heading = scope::NORM_AND_SARATOGA)]
    group: GroupOptions,

    #[command(flatten)]
    directories: ServeOptions,

    #[command(flatten)]
    beacons: BeaconOptions,
}

impl Args {
    /// Address to listen on; unspecified with a node, which has its own.
    fn listen(&self) -> Result<SocketAddr> {
        match &self.listen {
            Some(listen) => resolve(listen),
            None if self.node.node.is_some() => Ok(([0, 0, 0, 0], 0).into()),
            None => Ok(([0, 0, 0, 0], PORT).into()),
        }
    }

    /// Uses the protocol of the command line from here on. Returns whether there is none, so that
    /// any is received.
    fn settle(&mut self) -> Result<bool> {
        // Only CFDP has a node.
        let takes_any = self.protocol.is_none() && self.node.node.is_none();
        self.options.protocol = self.protocol.take().unwrap_or_default();
        if takes_any {
            self.options.check_unsettled()?;
        }
        Ok(takes_any)
    }

    fn service(&mut self) -> Result<(Service, Option<Node>)> {
        let takes_any = self.settle()?;
        let listen = self.listen()?;
        let kind = self.options.protocol.kind;
        let beacons = self.beacons.beacons(kind, &self.group, listen.ip())?;
        let has_group = beacons.is_none() && self.group != GroupOptions::default();
        let service = Service {
            listen,
            group: has_group.then(|| self.group.of_norm()).transpose()?,
            beacons,
            root: self.root.clone().unwrap_or_default(),
            entity: self.entity,
            takes_any,
            once: self.once,
            routes: Routes::new(known_peers(&self.peer)?, &self.route)?,
            peers_max: self.peers_max,
            existing: self.existing,
            role: self.directories.role(),
            stdout: self.stdout,
            socket: self.socket.clone(),
        };
        Ok((service, self.node.open(&self.options, self.entity)?))
    }
}

/// Receives until a signal comes, or with `--once` the first transfer has ended.
pub(crate) fn run(mut args: Args) -> Result<ExitCode> {
    let passing = args.stdout.then(tempfile::tempdir).transpose();
    let passing = passing.context("cannot make a directory for received files")?;
    args.root = args.root.or_else(|| Some(passing.as_ref()?.path().to_owned()));
    let (service, node) = args.service().map_err(transfer::usage)?;
    match args.groups.stream {
        Some(to) => session::receive_stream(args.options, &service, &to),
        None => session::serve(args.options, service, node),
    }
}

/// Peers' entity numbers and addresses.
fn known_peers(texts: &[String]) -> Result<Vec<(u64, SocketAddr)>> {
    let known = |text: &String| {
        let (id, address) = text
            .split_once('=')
            .and_then(|(id, address)| Some((id.parse().ok()?, address)))
            .with_context(|| {
                format!("invalid --peer {text:?}: expected one like 3=192.0.2.7:7542")
            })?;
        let address = resolve(address)?;
        ensure!(address.port() != 0, "--peer {text}: port 0 is not a port to send to");
        Ok((id, address))
    };
    let peers = texts.iter().map(known).collect::<Result<Vec<_>>>()?;
    for (index, (id, _)) in peers.iter().enumerate() {
        ensure!(
            peers[..index].iter().all(|(before, _)| before != id),
            "--peer {id} is given twice; an entity has one address"
        );
    }
    Ok(peers)
}
