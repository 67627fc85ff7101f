//! Commands that transport: files over UDP, bundle nodes, gateways.

mod ask;
mod beacons;
mod bp;
mod cfdp_over_node;
pub(crate) mod contacts;
mod directories;
mod groups;
mod node;
mod object;
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
mod status;
mod tcp;
pub(crate) mod transfer;
mod unfinished;

pub(crate) use self::scope::check;

use std::process::ExitCode;

use clap::Subcommand;

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Receive files by CFDP, LTP, NORM or Saratoga
    Recv(recv::Args),
    /// Send files and folders by CFDP, LTP, NORM or Saratoga
    Send(Box<send::Args>),
    /// Fetch a file from a peer by CFDP or Saratoga
    Get(ask::GetArgs),
    /// List a directory of a peer by CFDP or Saratoga
    Ls(operations::LsArgs),
    /// Delete a file at a peer by CFDP or Saratoga
    Rm(operations::RmArgs),
    /// List Saratoga peers discovered by beacon
    Peers(peers::Args),
    /// List the state of unfinished transfers of `send` and `bp send`, or remove it
    Unfinished(unfinished::Args),
    /// Show running receivers and senders of watched folders
    Status(status::Args),
    /// Send a request to a CFDP entity: listing, status, suspend, resume, file
    Cfdp(operations::Args),
    /// Run slowlight's own TCP on a TUN device
    Tcp(Box<tcp::Args>),
    /// Run a performance-enhancing proxy that splits TCP connections
    Pep(pep::Args),
    /// Run a bundle node (store and forward)
    Node(node::Args),
    /// Send, receive, measure and inspect bundles through a running node
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
        Command::Unfinished(args) => unfinished::run(&args),
        Command::Status(args) => status::run(&args),
        Command::Cfdp(args) => operations::run(args),
        Command::Tcp(args) => tcp::run(*args),
        Command::Pep(args) => pep::run(&args),
        Command::Node(args) => node::run(&args),
        Command::Bp(args) => bp::run(&args),
    }
}
