//! slowlight: transport over links where light is slow.
//!
//! Exit codes: 0 done, 1 a transfer failed or the system forbids it, 2 wrong usage, which another
//! command line mends; 130 where ctrl-C stopped a comparison, as shells have it. What is asked for
//! goes to the standard output, what is said to people to the standard error.

#![forbid(unsafe_code)]

mod ask;
mod bp;
mod cfdp_over_node;
mod generate;
#[cfg(feature = "lab")]
mod laboratory;
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
mod show;
mod switch;
mod tcp;
mod transfer;

use std::io::{self, IsTerminal as _, Write as _};
use std::process::ExitCode;

use clap::{CommandFactory as _, FromArgMatches as _, Parser, Subcommand};
use transport::SpecError;

#[derive(Debug, Parser)]
#[command(name = "slowlight", version, about, max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    #[cfg(feature = "lab")]
    #[command(flatten)]
    Laboratory(laboratory::Command),
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
    /// Print a script that completes slowlight's commands in a shell
    Completions(generate::CompletionsArgs),
    /// Write manual pages
    Man(generate::ManArgs),
}

/// Wrong usage that only a command can see.
#[derive(Debug)]
struct Usage(String);

impl std::fmt::Display for Usage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Usage {}

/// The command that the user wrote, if its options are for its protocol.
fn parsed() -> Result<Command, Usage> {
    let mut command = Cli::command();
    let matches = command.get_matches_mut();
    scope::check(&command, &matches)?;
    let cli = Cli::from_arg_matches(&matches).map_err(|error| error.format(&mut command));
    Ok(cli.unwrap_or_else(|error| error.exit()).command)
}

fn main() -> ExitCode {
    tracing_subscriber::fmt()
        .with_env_filter(
            tracing_subscriber::EnvFilter::try_from_default_env().unwrap_or_else(|_| "warn".into()),
        )
        .with_writer(io::stderr)
        .with_ansi(io::stderr().is_terminal())
        .with_target(false)
        .without_time()
        .init();
    let command = match parsed() {
        Ok(command) => command,
        Err(error) => return report(&error.into()),
    };
    let result = match command {
        #[cfg(feature = "lab")]
        Command::Laboratory(command) => laboratory::run(&command),
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
        Command::Completions(args) => generate::completions(&args),
        Command::Man(args) => generate::man(&args),
    };
    result.unwrap_or_else(|error| report(&error))
}

/// Whether a reader of the output has closed it.
fn is_broken_pipe(error: &anyhow::Error) -> bool {
    let broken_pipe = |e: &(dyn std::error::Error + 'static)| {
        e.downcast_ref::<io::Error>().is_some_and(|e| e.kind() == io::ErrorKind::BrokenPipe)
    };
    error.chain().any(broken_pipe)
}

/// The exit code of a command whose result is known, whether or not somebody read about it.
fn exit_code(outcome: anyhow::Result<()>, succeeded: bool) -> anyhow::Result<ExitCode> {
    match outcome {
        Err(error) if !is_broken_pipe(&error) => Err(error),
        Ok(()) | Err(_) => Ok(if succeeded { ExitCode::SUCCESS } else { ExitCode::FAILURE }),
    }
}

fn report(error: &anyhow::Error) -> ExitCode {
    if is_broken_pipe(error) {
        // Whoever read has seen enough.
        return ExitCode::SUCCESS;
    }
    // Nothing can be done about a standard error that is closed.
    let _ = writeln!(io::stderr(), "error: {error:#}");
    let is_usage = |e: &(dyn std::error::Error + 'static)| e.is::<Usage>() || e.is::<SpecError>();
    #[cfg(feature = "lab")]
    let is_usage = |e: &(dyn std::error::Error + 'static)| is_usage(e) || laboratory::is_usage(e);
    ExitCode::from(if error.chain().any(is_usage) { 2 } else { 1 })
}
