//! Sections of `--help` and of manual pages beyond options: examples, exit status, environment and
//! files.

use std::fmt::{Display, Write as _};

use clap::{Command, CommandFactory as _};

use crate::Cli;
use crate::exit;

/// A use of a command.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Example {
    /// Purpose.
    pub(crate) about: &'static str,
    /// Command line.
    pub(crate) line: &'static str,
}

/// An environment variable or a place in the file system.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    /// Variable or path.
    pub(crate) name: &'static str,
    /// Meaning.
    pub(crate) about: &'static str,
    /// Top-level commands that use it; all if empty.
    pub(crate) commands: Vec<&'static str>,
}

/// Examples of all commands: a line with the command, then for each example a line on its purpose
/// and one with the command line.
const EXAMPLES: &str = include_str!("help/examples.txt");

/// Environment variables that affect the program, or that it sets for others: a line with the
/// variable and, in brackets, the commands that use it, then a line on its meaning.
pub(crate) const ENVIRONMENT: &str = include_str!("help/environment.txt");

/// Files and folders, as [`ENVIRONMENT`].
pub(crate) const FILES: &str = include_str!("help/files.txt");

/// Entries of [`ENVIRONMENT`] or [`FILES`].
pub(crate) fn entries(text: &'static str) -> Vec<Entry> {
    let lines: Vec<_> = text.lines().map(str::trim).collect();
    let (entries, _) = lines.as_chunks();
    let entry = |[head, about]: &[&'static str; 2]| {
        let (name, commands) = head.split_once(" (").unwrap_or((head, ""));
        let commands = commands.trim_end_matches(')').split_whitespace().collect();
        Entry { name, about, commands }
    };
    entries.iter().map(entry).collect()
}

/// The command line, with examples and further sections in `--help`.
pub(crate) fn command() -> Command {
    with_examples(Cli::command(), &[]).after_long_help(general())
}

/// Adds examples to a command at a path, and to those below it.
fn with_examples(command: Command, path: &[&str]) -> Command {
    let command = command.mut_subcommands(|below| {
        let name = below.get_name().to_owned();
        with_examples(below, &[path, &[&name]].concat())
    });
    #[cfg(any(feature = "compute", feature = "sockets"))]
    let command = with_protocols(command, path);
    match examples(path).as_slice() {
        [] => command,
        examples => command.after_long_help(section("Examples", &lines(examples))),
    }
}

/// Adds the protocols that a command takes to the help of its option.
#[cfg(any(feature = "compute", feature = "sockets"))]
fn with_protocols(command: Command, path: &[&str]) -> Command {
    let is_listed =
        |option: &clap::Arg| option.get_id() == "protocol" && option.is_hide_possible_values_set();
    if !command.get_arguments().any(is_listed) {
        return command;
    }
    let list = crate::known::protocols_help(path);
    command.mut_arg("protocol", |option| {
        let long = option.get_long_help().or(option.get_help()).map(ToString::to_string);
        option.long_help(format!("{}\n\n{list}", long.unwrap_or_default()))
    })
}

/// Examples of a command, by its words after `slowlight`.
pub(crate) fn examples(path: &[&str]) -> Vec<Example> {
    let path = path.join(" ");
    let below = EXAMPLES.lines().skip_while(|line| *line != path).skip(1);
    let lines: Vec<_> = below.take_while(|line| line.starts_with(' ')).map(str::trim).collect();
    let (examples, _) = lines.as_chunks();
    examples.iter().map(|[about, line]| Example { about, line }).collect()
}

/// Whether an entry for these top-level commands belongs to the page of `path`.
pub(crate) fn concerns(commands: &[&str], path: &[&str]) -> bool {
    commands.is_empty() || path.first().is_none_or(|first| commands.contains(first))
}

fn section(title: &str, text: &str) -> String {
    format!("{title}:\n{text}").trim_end().to_owned()
}

fn lines(examples: &[Example]) -> String {
    examples.iter().fold(String::new(), |mut text, Example { about, line }| {
        let _ = writeln!(text, "  {about}:\n      {line}");
        text
    })
}

/// Sections of the top-level command.
fn general() -> String {
    let rows = exit::ROWS.iter().map(|row| (row.code(), row.about));
    let entries = |text| list(entries(text).iter().map(|entry| (entry.name, entry.about)));
    [
        section("Exit status", &list(rows)),
        section("Environment", &entries(ENVIRONMENT)),
        section("Files", &entries(FILES)),
        "`slowlight COMMAND --help` shows examples; `slowlight man DIR` writes manual pages."
            .to_owned(),
    ]
    .join("\n\n")
}

/// Rows with the meaning below the name.
fn list<'a>(rows: impl Iterator<Item = (impl Display, &'a str)>) -> String {
    rows.fold(String::new(), |mut text, (name, about)| {
        let _ = writeln!(text, "  {name}\n      {about}");
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Words of a command line, with quotes as in a shell.
    fn words(line: &str) -> Vec<String> {
        let parts = line.split('"').enumerate();
        let mut words = vec![];
        for (index, part) in parts {
            match index % 2 {
                0 => words.extend(part.split_whitespace().map(str::to_owned)),
                _ => words.push(part.to_owned()),
            }
        }
        let redirected = words.iter().position(|word| word == ">");
        words.truncate(redirected.unwrap_or(words.len()));
        words
    }

    /// Commands that have examples.
    fn commands() -> impl Iterator<Item = &'static str> {
        EXAMPLES.lines().filter(|line| !line.starts_with(' '))
    }

    #[test]
    fn examples_are_valid_command_lines() {
        let mut examples_in_all = 0;
        for name in commands() {
            let examples = examples(&name.split(' ').collect::<Vec<_>>());
            assert!(!examples.is_empty(), "{name}");
            examples_in_all += examples.len();
            for Example { line, .. } in examples {
                let words = words(line);
                // Features leave commands out, and `source` is the shell's.
                let command = command();
                if words[0] == "source" || command.find_subcommand(&words[1]).is_none() {
                    continue;
                }
                let parsed = command.try_get_matches_from(&words);
                let error = parsed.err().map(|error| error.to_string());
                assert_eq!(error, None, "{name}: {line}");
            }
        }
        let indented = EXAMPLES.lines().filter(|line| line.starts_with(' '));
        assert_eq!(indented.count(), 2 * examples_in_all, "a line on the purpose, and a command");
    }

    #[test]
    fn short_help_refers_to_the_long_one() {
        for name in commands() {
            let command = command();
            let found =
                name.split(' ').try_fold(&command, |below, name| below.find_subcommand(name));
            // Features leave commands out.
            let Some(found) = found else { continue };
            let short = found.clone().render_help().to_string();
            assert!(short.contains("see more with '--help'"), "{name}: {short}");
        }
    }

    #[test]
    fn the_top_command_lists_exit_codes_variables_and_files() {
        let long = command().render_long_help().to_string();
        for row in exit::ROWS {
            assert!(long.contains(&format!("\n  {}\n      ", row.code())), "{long}");
        }
        for entry in [ENVIRONMENT, FILES].into_iter().flat_map(entries) {
            assert!(long.contains(entry.name), "{}", entry.name);
        }
    }
}
