//! `slowlight links`.

use std::io::{self, Write as _};
use std::process::ExitCode;

use lab::preset::{self, Preset};

use crate::compute::table::{Column, Page, Table};
use crate::exit::Exit;

/// Options of `links`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Link to print as TOML [default: list all]
    #[arg(value_name = "NAME", value_parser = crate::known::link(), hide_possible_values = true)]
    name: Option<String>,

    /// Print as JSON
    #[arg(long)]
    json: bool,
}

/// A link of the list in JSON.
#[derive(serde::Serialize)]
struct Listed {
    name: &'static str,
    #[serde(flatten)]
    link: Preset,
}

/// Runs the command.
pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let mut out = io::stdout().lock();
    match &args.name {
        None if args.json => {
            let links: Vec<Listed> = preset::ALL
                .iter()
                .map(|(name, text)| Ok(Listed { name, link: Preset::parse(text, name)? }))
                .collect::<anyhow::Result<_>>()?;
            writeln!(out, "{}", serde_json::to_string_pretty(&links)?)?;
        }
        Some(name) if args.json => {
            writeln!(out, "{}", serde_json::to_string_pretty(&Preset::find(name)?)?)?;
        }
        None => {
            let mut table = Table::new([Column::left("link"), Column::prose("about")]);
            for (name, text) in preset::ALL {
                table.row([(*name).into(), Preset::parse(text, name)?.about.into()]);
            }
            writeln!(out, "{}", table.drawn(Page::stdout()))?;
        }
        Some(name) => {
            let known = preset::ALL.iter().find(|(known, _)| known == name);
            match known {
                Some((_, text)) => out.write_all(text.as_bytes())?,
                None => {
                    // The error names the nearest link, or the fault of the file.
                    let preset = Preset::find(name)?;
                    write!(out, "{}", toml::to_string(&preset)?)?;
                }
            }
        }
    }
    Ok(Exit::Done.into())
}
