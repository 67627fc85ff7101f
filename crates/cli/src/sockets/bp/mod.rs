//! `slowlight bp`: what applications do with a node that runs.

mod ask;
mod cut;
mod join;
mod kept;
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
    /// Send files, each as the payload of a bundle, or of several if it is long
    Send(send::SendArgs),
    /// Receive what comes for an endpoint, and write it into files
    Recv(recv::RecvArgs),
    /// Measure how long bundles take to an echo and back
    Ping(ask::PingArgs),
    /// Follow a bundle by the reports of the nodes that it passes
    Trace(ask::TraceArgs),
    /// Show what a node does, and the bundles that it holds
    Query(ask::QueryArgs),
    /// Delete a bundle that is held
    Cancel(ask::CancelArgs),
}

/// Which node is asked.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct Place {
    /// The socket of the node, as its configuration says
    #[arg(long, value_name = "SOCKET", default_value = "/run/slowlight/node.sock")]
    node: PathBuf,
}

impl Place {
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
    }
}

fn print(text: &str) -> Result<()> {
    writeln!(io::stdout(), "{text}").map_err(Into::into)
}
