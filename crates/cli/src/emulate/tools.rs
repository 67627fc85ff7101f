//! `slowlight emu tools`: the programs that can be compared, and what this machine lacks.

use std::io::{self, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;

use comfy_table::Table;
use comfy_table::presets::NOTHING;
use lab::adapter::Adapters;
use testbed::tool;

/// Options of `emu tools`.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// A folder with adapters of your own, one a file, NAME.toml
    #[arg(long, value_name = "DIR")]
    adapters: Option<PathBuf>,
}

/// Runs the command.
pub(super) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let adapters = Adapters::with(args.adapters.as_deref())?;
    let mut table = Table::new();
    table.load_style(NOTHING);
    for name in adapters.names() {
        let adapter = adapters.find(name)?;
        let missing = tool::missing(&adapter).first().map(ToString::to_string);
        let state = missing.unwrap_or_else(|| "here".to_owned());
        table.add_row([adapter.name, adapter.about, state]);
    }
    crate::exit_code(writeln!(io::stdout(), "{table}").map_err(Into::into), true)
}
