//! `slowlight emu tools`: third-party programs for comparisons, and those missing here.

use std::io::{self, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;

use lab::adapter::Adapters;
use testbed::tool;

use crate::compute::table::{Cell, Column, Page, Table, Tone};

/// Options of `emu tools`.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Folder with your own adapters, NAME.toml
    #[arg(long, value_name = "DIR")]
    adapters: Option<PathBuf>,
}

/// Runs the command.
pub(super) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let adapters = Adapters::with(args.adapters.as_deref())?;
    let heads = ["program", "what it does", "on this machine"];
    let mut table = Table::new(heads.map(Column::left));
    for name in adapters.names() {
        let adapter = adapters.find(name)?;
        let missing = tool::missing(&adapter).first().map(ToString::to_string);
        let state = match missing {
            None => Cell::from("here").tone(Tone::Good),
            Some(missing) => Cell::from(missing).tone(Tone::Fair),
        };
        table.row([adapter.name.into(), adapter.about.into(), state]);
    }
    let text = table.drawn(Page::stdout());
    crate::exit_code(writeln!(io::stdout(), "{text}").map_err(Into::into), true)
}
