//! `slowlight completions` and `slowlight man`.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context as _;
use clap::Command;
use clap_mangen::Man;

use crate::exit::{self, Exit};
use crate::help::{self, Example};

/// Options of `completions`.
#[derive(Debug, clap::Args)]
pub(crate) struct CompletionsArgs {
    /// Shell
    shell: clap_complete::Shell,
}

/// Options of `man`.
#[derive(Debug, clap::Args)]
pub(crate) struct ManArgs {
    /// Folder for the pages; created if it does not exist
    #[arg(value_name = "DIR")]
    folder: PathBuf,
}

/// Prints a completion script.
pub(crate) fn completions(args: &CompletionsArgs) -> anyhow::Result<ExitCode> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut help::command(), "slowlight", &mut script);
    io::stdout().lock().write_all(&script)?;
    Ok(Exit::Done.into())
}

/// Writes the manual pages.
pub(crate) fn man(args: &ManArgs) -> anyhow::Result<ExitCode> {
    let wrong = || format!("cannot write manual pages to {}", args.folder.display());
    fs::create_dir_all(&args.folder).with_context(wrong)?;
    let mut command = help::command().disable_help_subcommand(true);
    command.build();
    write_pages(&command, &mut Vec::new(), &args.folder).with_context(wrong)?;
    Ok(Exit::Done.into())
}

/// Writes the page of a command and those of the commands below it.
fn write_pages<'a>(command: &'a Command, path: &mut Vec<&'a str>, folder: &Path) -> io::Result<()> {
    for below in command.get_subcommands().filter(|below| !below.is_hide_set()) {
        path.push(below.get_name());
        write_pages(below, path, folder)?;
        path.pop();
    }
    let man = Man::new(command.clone());
    fs::write(folder.join(man.get_filename()), page(&man, command, path)?)
}

/// A manual page.
fn page(man: &Man, command: &Command, path: &[&str]) -> io::Result<Vec<u8>> {
    let mut page = Vec::new();
    man.render_title(&mut page)?;
    man.render_name_section(&mut page)?;
    write_synopsis(command, &mut page)?;
    man.render_description_section(&mut page)?;
    write_options(man, &mut page)?;
    if command.get_subcommands().any(|below| !below.is_hide_set()) {
        man.render_subcommands_section(&mut page)?;
    }
    write_examples(&help::examples(path), &mut page)?;
    let rows = exit::ROWS.iter().filter(|row| help::concerns(row.commands, path));
    write_list("EXIT STATUS", rows.map(|row| (row.code(), row.about)), &mut page)?;
    let entries = |text| {
        let concerned =
            help::entries(text).into_iter().filter(|it| help::concerns(&it.commands, path));
        concerned.map(|entry| (entry.name, entry.about))
    };
    write_list("ENVIRONMENT", entries(help::ENVIRONMENT), &mut page)?;
    write_list("FILES", entries(help::FILES), &mut page)?;
    Ok(page)
}

/// Writes the synopsis: options with the names of their values, then arguments.
fn write_synopsis(command: &Command, page: &mut Vec<u8>) -> io::Result<()> {
    let name = command.get_bin_name().unwrap_or_else(|| command.get_name());
    writeln!(page, ".SH SYNOPSIS\n\\fB{}\\fR", escaped(name))?;
    let shown = || command.get_arguments().filter(|argument| !argument.is_hide_set());
    for option in shown().filter(|argument| !argument.is_positional()) {
        let text = escaped(&option.to_string());
        if option.is_required_set() {
            writeln!(page, "{text}")?;
        } else {
            writeln!(page, "[{text}]")?;
        }
    }
    for argument in shown().filter(|argument| argument.is_positional()) {
        let dashes = if argument.is_last_set() { "\\-\\- " } else { "" };
        writeln!(page, "{dashes}{}", escaped(&argument.to_string()))?;
    }
    if command.get_subcommands().any(|below| !below.is_hide_set()) {
        writeln!(page, "<COMMAND>")?;
    }
    Ok(())
}

/// Writes the options, items of lists in their help each on a line of its own.
fn write_options(man: &Man, page: &mut Vec<u8>) -> io::Result<()> {
    let mut options = Vec::new();
    man.render_options_section(&mut options)?;
    for line in String::from_utf8_lossy(&options).lines() {
        if line.starts_with("\\- ") {
            writeln!(page, ".br")?;
        }
        writeln!(page, "{line}")?;
    }
    Ok(())
}

fn write_examples(examples: &[Example], page: &mut Vec<u8>) -> io::Result<()> {
    if examples.is_empty() {
        return Ok(());
    }
    writeln!(page, ".SH EXAMPLES")?;
    for Example { about, line } in examples {
        writeln!(page, ".TP\n{}:\n\\fB{}\\fR", escaped(about), escaped(line))?;
    }
    Ok(())
}

fn write_list<'a>(
    title: &str,
    rows: impl Iterator<Item = (impl AsRef<str>, &'a str)>,
    page: &mut Vec<u8>,
) -> io::Result<()> {
    let mut rows = rows.peekable();
    if rows.peek().is_some() {
        writeln!(page, ".SH \"{title}\"")?;
    }
    for (name, about) in rows {
        writeln!(page, ".TP\n\\fB{}\\fR\n{}", escaped(name.as_ref()), escaped(about))?;
    }
    Ok(())
}

/// Text that roff(7) prints as it is.
fn escaped(text: &str) -> String {
    let text = text.replace('\\', "\\e").replace('-', "\\-");
    // At the beginning of a line both are requests.
    if text.starts_with(['.', '\'']) { format!("\\&{text}") } else { text }
}
