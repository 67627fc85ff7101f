//! slowlight: transport over links where light is slow.
//!
//! Exit codes: 0 done, 1 a transfer failed or the system forbids it, 2 wrong usage, which another
//! command line mends; 130 where ctrl-C stopped a comparison, as shells have it. What is asked for
//! goes to the standard output, what is said to people to the standard error.

#![forbid(unsafe_code)]

#[cfg(feature = "compute")]
mod compute;
#[cfg(feature = "emulate")]
mod emulate;
mod features;
mod generate;
mod show;
#[cfg(feature = "sockets")]
mod sockets;
#[cfg(any(feature = "emulate", feature = "sockets"))]
mod state;
mod stop;
mod switch;

use std::io::{self, IsTerminal as _, Write as _};
use std::process::ExitCode;

use clap::{CommandFactory as _, FromArgMatches as _, Parser, Subcommand};
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;
use transport::SpecError;

#[derive(Debug, Parser)]
#[command(name = "slowlight", version, about, max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    #[cfg(feature = "compute")]
    #[command(flatten)]
    Compute(compute::Command),
    #[cfg(feature = "emulate")]
    #[command(flatten)]
    Emulate(emulate::Command),
    #[cfg(feature = "sockets")]
    #[command(flatten)]
    Sockets(Box<sockets::Command>),
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

/// The command that the user wrote, if it is built and its options are for its protocol.
fn parsed() -> Result<Command, Usage> {
    let mut command = Cli::command();
    let matches = match command.try_get_matches_from_mut(std::env::args_os()) {
        Ok(matches) => matches,
        Err(error) => return Err(features::refusal(&error).unwrap_or_else(|| error.exit())),
    };
    #[cfg(feature = "sockets")]
    sockets::check(&command, &matches)?;
    let cli = Cli::from_arg_matches(&matches).map_err(|error| error.format(&mut command));
    Ok(cli.unwrap_or_else(|error| error.exit()).command)
}

/// Levels of the log, as `RUST_LOG` gives them: `debug`, or `rt=trace,warn` for each crate.
fn log_filter() -> Targets {
    let given = std::env::var("RUST_LOG").ok().and_then(|text| text.parse().ok());
    given.unwrap_or_else(|| Targets::new().with_default(LevelFilter::WARN))
}

fn main() -> ExitCode {
    let format = tracing_subscriber::fmt::layer()
        .with_writer(io::stderr)
        .with_ansi(io::stderr().is_terminal())
        .with_target(false)
        .without_time();
    tracing_subscriber::registry().with(log_filter()).with(format).init();
    let command = match parsed() {
        Ok(command) => command,
        Err(error) => return report(&error.into()),
    };
    let result = match command {
        #[cfg(feature = "compute")]
        Command::Compute(command) => compute::run(&command),
        #[cfg(feature = "emulate")]
        Command::Emulate(command) => emulate::run(&command),
        #[cfg(feature = "sockets")]
        Command::Sockets(command) => sockets::run(*command),
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
    #[cfg(feature = "compute")]
    let is_usage = |e: &(dyn std::error::Error + 'static)| is_usage(e) || compute::is_usage(e);
    #[cfg(feature = "emulate")]
    let is_usage = |e: &(dyn std::error::Error + 'static)| is_usage(e) || emulate::is_usage(e);
    ExitCode::from(if error.chain().any(is_usage) { 2 } else { 1 })
}
