//! `slowlight completions` and `slowlight man`.

use std::io;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context as _;
use clap::CommandFactory as _;

use crate::Cli;

/// Options of `completions`.
#[derive(Debug, clap::Args)]
pub(crate) struct CompletionsArgs {
    /// The shell
    shell: clap_complete::Shell,
}

/// Options of `man`.
#[derive(Debug, clap::Args)]
pub(crate) struct ManArgs {
    /// Where the pages go; made if it does not exist
    #[arg(value_name = "DIR")]
    folder: PathBuf,
}

/// Prints a completion script.
pub(crate) fn completions(args: &CompletionsArgs) -> anyhow::Result<ExitCode> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "slowlight", &mut script);
    io::Write::write_all(&mut io::stdout().lock(), &script)?;
    Ok(ExitCode::SUCCESS)
}

/// Writes the manual pages.
pub(crate) fn man(args: &ManArgs) -> anyhow::Result<ExitCode> {
    let wrong = || format!("cannot write manual pages to {}", args.folder.display());
    std::fs::create_dir_all(&args.folder).with_context(wrong)?;
    clap_mangen::generate_to(Cli::command(), &args.folder).with_context(wrong)?;
    Ok(ExitCode::SUCCESS)
}
