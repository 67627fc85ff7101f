//! `slowlight bp`: client of a running bundle node.

mod ask;
mod held;
mod options;
mod parts;
mod recv;
mod send;

use std::io::{self, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use service::api::NodeClient;

/// Options of `bp`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Send files as payloads of bundles; long files in several parts
    Send(options::SendArgs),
    /// Receive payloads of an endpoint into files
    Recv(recv::RecvArgs),
    /// Measure round trips of bundles to an echo endpoint
    Ping(ask::PingArgs),
    /// Trace a bundle by the status reports of nodes on its path
    ///
    /// Nodes report forwarding and reception only if their settings have `reports.forwarding` and
    /// `reports.reception`; both are off by default.
    Trace(ask::TraceArgs),
    /// Show the state and counters of a node, and its bundles
    Query(ask::QueryArgs),
    /// Delete a bundle at the node
    Cancel(ask::CancelArgs),
    /// Delete all bundles at the node with a destination, source or state
    Purge(held::PurgeArgs),
}

/// Node of a command.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct Place {
    /// Socket of the node
    #[arg(long, value_name = "SOCKET", default_value = "/run/slowlight/node.sock")]
    node: PathBuf,
}

impl Place {
    fn socket(&self) -> PathBuf {
        self.node.clone()
    }

    fn connect(&self) -> Result<NodeClient> {
        NodeClient::connect(&self.node).map_err(|error| {
            let hint = "is the node running? `slowlight node CONFIG.toml` starts it, --node names its socket";
            anyhow::anyhow!("{error}; {hint}")
        })
    }
}

/// Runs the command.
pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    match &args.command {
        Command::Send(args) => send::run(args),
        Command::Recv(args) => recv::run(args),
        Command::Ping(args) => ask::ping(args),
        Command::Trace(args) => ask::trace(args),
        Command::Query(args) => ask::query(args),
        Command::Cancel(args) => ask::cancel(args),
        Command::Purge(args) => held::purge(args),
    }
}

fn print(text: &str) -> Result<()> {
    writeln!(io::stdout(), "{text}").map_err(Into::into)
}
