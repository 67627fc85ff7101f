//! Commands that transport: files over UDP, bundle nodes, gateways.

mod ask;
mod bp;
mod cfdp_over_node;
mod node;
mod operations;
mod outcome;
mod peers;
mod pep;
mod punctuality;
mod recv;
mod scope;
mod screen;
mod send;
mod session;
mod tcp;
pub(crate) mod transfer;

pub(crate) use self::scope::check;

use std::process::ExitCode;

use clap::Subcommand;

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Receive files over UDP, or by CFDP in bundles
    Recv(recv::Args),
    /// Send a file over UDP, or by CFDP in bundles
    Send(Box<send::Args>),
    /// Fetch a file that another end serves
    Get(ask::GetArgs),
    /// List a directory of another end
    Ls(ask::LsArgs),
    /// Delete a file at another end
    Rm(ask::RmArgs),
    /// List who says by Saratoga's beacons that it is there
    Peers(peers::Args),
    /// Ask a CFDP entity for something: a listing, a status, one of its files
    Cfdp(operations::Args),
    /// Our TCP on a TUN device, against the kernel's
    Tcp(Box<tcp::Args>),
    /// Split TCP connections that pass this router, as a gateway at a long link does
    Pep(pep::Args),
    /// Run a bundle node: it keeps bundles and passes them on, over every convergence layer that it is given
    Node(node::Args),
    /// Send and receive bundles, ask and measure, by a node that runs
    Bp(bp::Args),
}

/// Runs the command.
pub(crate) fn run(command: Command) -> anyhow::Result<ExitCode> {
    match command {
        Command::Recv(args) => recv::run(args),
        Command::Send(args) => send::run(*args),
        Command::Get(args) => ask::get(args),
        Command::Ls(args) => ask::ls(args),
        Command::Rm(args) => ask::rm(args),
        Command::Peers(args) => peers::run(&args),
        Command::Cfdp(args) => operations::run(args),
        Command::Tcp(args) => tcp::run(*args),
        Command::Pep(args) => pep::run(&args),
        Command::Node(args) => node::run(&args),
        Command::Bp(args) => bp::run(&args),
    }
}
