//! slowlight: transport over links where light is slow.
//!
//! Results go to the standard output, messages for people to the standard error. `exit.rs` lists
//! the exit codes, `help.rs` the sections of `--help` beyond options.

#![forbid(unsafe_code)]

#[cfg(feature = "compute")]
mod compute;
#[cfg(any(feature = "compute", feature = "sockets"))]
mod contacts;
#[cfg(any(feature = "emulate", feature = "sockets"))]
mod doubts;
#[cfg(feature = "emulate")]
mod emulate;
mod exit;
mod features;
mod generate;
mod help;
#[cfg(any(feature = "compute", feature = "sockets"))]
mod known;
mod show;
#[cfg(feature = "sockets")]
mod sockets;
#[cfg(any(feature = "emulate", feature = "sockets"))]
mod state;
mod stop;
mod switch;
#[cfg(any(feature = "compute", feature = "sockets"))]
mod whole;

/// Version, with the commit if the source was a checkout (`build.rs`).
pub(crate) const VERSION: &str = env!("SLOWLIGHT_VERSION");

/// Environment variable with the date from which the outages of an emulated world count, for
/// programs in it.
#[cfg(any(feature = "compute", feature = "sockets"))]
const EPOCH: &str = "SLOWLIGHT_EPOCH";
/// Environment variable of servers in an emulated world, beside which a program has the terminal.
/// A process in a world does not see the foreground job of its terminal.
#[cfg(any(feature = "emulate", feature = "sockets"))]
const BACKGROUND: &str = "SLOWLIGHT_BACKGROUND";

use std::io::{self, IsTerminal as _, Write as _};
use std::process::ExitCode;

use clap::{FromArgMatches as _, Parser, Subcommand};
use mimalloc::MiMalloc;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;
use transport::SpecError;
use transport::text::shortened;

use crate::exit::Exit;

/// Packets and bundles are allocated by one thread and freed by another, which takes the allocator
/// of the C library a sixth longer for a bundle in a node.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

/// Transports over links where light is slow: simulated, emulated and real
///
/// Computes how transports perform over a link (`compare`, `advise`, `sim`, `study`), emulates
/// links for unchanged programs (`link`, `emu`), and transfers files and bundles between machines
/// (`send`, `recv`, `node`, `bp`, `pep`).
#[derive(Debug, Parser)]
#[command(name = "slowlight", version = VERSION, max_term_width = 100)]
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
    /// Print a completion script for a shell
    Completions(generate::CompletionsArgs),
    /// Write the manual pages, one for each command
    Man(generate::ManArgs),
}

/// Maximum length of an error message in characters.
const ERROR_MAX: usize = 1800;

/// Wrong usage that a command finds after clap has read the command line.
#[derive(Debug)]
struct Usage(String);

impl std::fmt::Display for Usage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Usage {}

/// Command of the command line, if it is built and its options apply to its protocol.
fn parsed() -> Result<Command, Usage> {
    let mut command = help::command();
    let matches = match command.try_get_matches_from_mut(std::env::args_os()) {
        Ok(matches) => matches,
        Err(error) => return Err(features::refusal(&error).unwrap_or_else(|| exit(&error))),
    };
    #[cfg(feature = "sockets")]
    sockets::check(&command, &matches)?;
    let cli = Cli::from_arg_matches(&matches).map_err(|error| error.format(&mut command));
    Ok(cli.unwrap_or_else(|error| exit(&error)).command)
}

/// Ends the program with clap's message, without the middle of one that quotes a long value.
fn exit(error: &clap::Error) -> ! {
    let text = error.to_string();
    let short = shortened(&text, ERROR_MAX);
    if !error.use_stderr() || short.len() == text.len() {
        error.exit();
    }
    let _ = write!(io::stderr(), "{short}");
    std::process::exit(error.exit_code());
}

/// Log levels by `RUST_LOG`: `debug`, or `rt=trace,warn` for each crate [default: warn; of a
/// bundle node also the events that an operator must know].
fn log_filter() -> Targets {
    let given = std::env::var("RUST_LOG").ok().and_then(|text| text.parse().ok());
    given.unwrap_or_else(|| {
        Targets::new().with_default(LevelFilter::WARN).with_target("node", LevelFilter::INFO)
    })
}

/// Whether `NO_COLOR` is set and not empty (no-color.org).
pub(crate) fn is_colour_off() -> bool {
    std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty())
}

fn main() -> ExitCode {
    let format = tracing_subscriber::fmt::layer()
        .with_writer(io::stderr)
        .with_ansi(io::stderr().is_terminal() && !is_colour_off())
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

/// Whether the reader of the output has closed it.
fn is_broken_pipe(error: &anyhow::Error) -> bool {
    let broken_pipe = |e: &(dyn std::error::Error + 'static)| {
        e.downcast_ref::<io::Error>().is_some_and(|e| e.kind() == io::ErrorKind::BrokenPipe)
    };
    error.chain().any(broken_pipe)
}

/// Exit code of a command whose result is known; a reader that closed the output does not count
/// as a failure.
fn exit_code(outcome: anyhow::Result<()>, succeeded: bool) -> anyhow::Result<ExitCode> {
    match outcome {
        Err(error) if !is_broken_pipe(&error) => Err(error),
        Ok(()) | Err(_) => Ok(Exit::if_succeeded(succeeded).into()),
    }
}

fn report(error: &anyhow::Error) -> ExitCode {
    if is_broken_pipe(error) {
        return Exit::Done.into();
    }
    // Nothing can be done about a standard error that is closed.
    let _ = writeln!(io::stderr(), "error: {}", shortened(&format!("{error:#}"), ERROR_MAX));
    let is_usage = |e: &(dyn std::error::Error + 'static)| e.is::<Usage>() || e.is::<SpecError>();
    #[cfg(feature = "compute")]
    let is_usage = |e: &(dyn std::error::Error + 'static)| is_usage(e) || compute::is_usage(e);
    #[cfg(feature = "emulate")]
    let is_usage = |e: &(dyn std::error::Error + 'static)| is_usage(e) || emulate::is_usage(e);
    let exit = if error.chain().any(is_usage) { Exit::Usage } else { Exit::Failed };
    exit.into()
}
