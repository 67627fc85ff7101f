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
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry {
    /// Variable or path.
    pub(crate) name: &'static str,
    /// Meaning.
    pub(crate) about: &'static str,
    /// Top-level commands that use it; all if empty.
    pub(crate) commands: &'static [&'static str],
}

const fn example(about: &'static str, line: &'static str) -> Example {
    Example { about, line }
}

const fn entry(
    name: &'static str,
    about: &'static str,
    commands: &'static [&'static str],
) -> Entry {
    Entry { name, about, commands }
}

/// Examples of a command, by its words below `slowlight`, separated by spaces.
type Examples = (&'static str, &'static [Example]);

const EXAMPLES: &[Examples] = &[
    (
        "compare",
        &[
            example(
                "Rank transports over a link to the Moon, the best of each family",
                r#"slowlight compare --link cislunar --size "1 MB""#,
            ),
            example(
                "Compare two protocols at a packet error rate of 1 %",
                r#"slowlight compare --link geo --per 1% --protocol cfdp,ltp --runs 20"#,
            ),
            example(
                "Compare TCP's congestion controls by profile",
                "slowlight compare --link geo --protocol ftp,ftp/bbr",
            ),
            example(
                "Describe the link by options, and print JSON",
                r#"slowlight compare --rate "2 Mbit/s" --delay "1.3 s" --ber 1e-7 --json"#,
            ),
        ],
    ),
    (
        "advise",
        &[
            example(
                "Recommend a transport for a file of 10 MB over a link to the Moon",
                r#"slowlight advise --link cislunar --size "10 MB""#,
            ),
            example(
                "Deliver within a pass of 8 min over a link without other traffic",
                r#"slowlight advise --link leo --size "50 MB" --deadline "8 min" --dedicated"#,
            ),
            example(
                "Send one way, to five receivers",
                "slowlight advise --link geo --no-return --receivers 5",
            ),
            example(
                "Print a paragraph for a mission's documents",
                "slowlight advise --link mars-near --text",
            ),
        ],
    ),
    (
        "sim",
        &[
            example("Run a scenario", "slowlight sim scenarios/geo.toml"),
            example(
                "Keep the metrics and recordings of a run with another seed",
                "slowlight sim scenarios/lander.toml --seed 7 --out results/lander",
            ),
            example(
                "Capture all packets for Wireshark",
                "slowlight sim scenarios/geo.toml --pcap geo.pcapng",
            ),
        ],
    ),
    (
        "links",
        &[
            example("List the links that come with slowlight", "slowlight links"),
            example("Start a link of your own", "slowlight links cislunar > moon.toml"),
            example("Use it", "slowlight compare --link moon.toml"),
        ],
    ),
    (
        "decode",
        &[
            example("Decode a capture", "slowlight decode geo.pcapng"),
            example("Decode one PDU", "slowlight decode --protocol cfdp 240006010002"),
            example("Decode a capture from a pipe", "slowlight decode -"),
        ],
    ),
    (
        "route",
        &[
            example(
                "Find the best route of a bundle",
                "slowlight route lunar.ionrc --from 1 --to 4 --size \"1 MB\"",
            ),
            example(
                "List three routes with reasons",
                "slowlight route lunar.ionrc --from 1 --to 4 --all 3 --explain",
            ),
            example("Convert a plan", "slowlight route lunar.ionrc --write lunar.toml"),
        ],
    ),
    (
        "study",
        &[
            example("List the studies that come with slowlight", "slowlight study list"),
            example("Run one, four runs in parallel", "slowlight study run grc-2012 --jobs 4"),
            example("Resume it after an interruption", "slowlight study run grc-2012 --resume"),
            example("Write the report", "slowlight study report grc-2012"),
        ],
    ),
    (
        "link",
        &[
            example(
                "Ping the far end over a link to the Moon",
                "slowlight link --link cislunar -- ping -c 3 far",
            ),
            example(
                "Fetch a page from a server at the far end",
                r#"slowlight link --link geo --server "python3 -m http.server 80" -- curl http://far/"#,
            ),
            example(
                "Reach the machine's network over the link",
                "slowlight link --link leo --uplink -- curl https://example.org/",
            ),
            example(
                "Emulate a rate, a delay and losses, and capture the packets",
                r#"slowlight link --rate "1 Mbit/s" --delay "250 ms" --per 1% --pcap cap -- iperf3 -c far"#,
            ),
        ],
    ),
    (
        "emu",
        &[
            example(
                "Run a scenario's transfers in real time",
                "slowlight emu run scenarios/geo.toml",
            ),
            example("Open a shell at one end of a link", "slowlight emu shell --link cislunar"),
            example("Start a world in the background", "slowlight emu up --link geo"),
            example("Run a program in it", "slowlight emu exec near -- ping -c 3 far"),
            example("End it", "slowlight emu down"),
        ],
    ),
    (
        "recv",
        &[
            example(
                "Receive files by CFDP into a folder",
                "slowlight recv --listen :7542 --root inbox",
            ),
            example(
                "Receive one file by LTP and exit",
                "slowlight recv --protocol ltp --listen :1113 --root inbox --once",
            ),
            example(
                "Serve a folder by Saratoga",
                "slowlight recv --protocol saratoga --listen :7542 --root pub --serve",
            ),
            example(
                "Write a NORM stream to standard output",
                "slowlight recv --protocol norm --listen :6003 --stream -",
            ),
        ],
    ),
    (
        "send",
        &[
            example(
                "Send a file by CFDP; the same command resumes it",
                r#"slowlight send image.raw 192.0.2.7:7542 --rate "2 Mbit/s""#,
            ),
            example(
                "Send by LTP over a one-way light time of 1.28 s",
                r#"slowlight send image.raw 192.0.2.7:1113 --protocol ltp --delay "1.28 s""#,
            ),
            example(
                "Send to a multicast group by NORM",
                "slowlight send image.raw --protocol norm --group 224.1.2.3",
            ),
            example(
                "Send by CFDP in bundles of a local node",
                "slowlight send image.raw --node /run/slowlight/node.sock --remote-entity 3",
            ),
        ],
    ),
    (
        "get",
        &[
            example("Fetch a file by CFDP", "slowlight get 192.0.2.7:7542 logs/day1.txt"),
            example(
                "Fetch a file by Saratoga and delete it at the peer",
                "slowlight get 192.0.2.7:7542 day1.txt --protocol saratoga --take",
            ),
        ],
    ),
    (
        "cfdp",
        &[
            example("List a directory of an entity", "slowlight cfdp ls 192.0.2.7:7542 logs"),
            example(
                "Request the status of a transaction",
                "slowlight cfdp status 192.0.2.7:7542 1_4711",
            ),
            example(
                "Have entity 2 send a file to entity 3",
                "slowlight cfdp put-from 192.0.2.7:7542 image.raw --to-entity 3",
            ),
        ],
    ),
    (
        "tcp",
        &[
            example("Receive a file from the kernel's TCP", "slowlight tcp recv 5001 copy.raw"),
            example(
                "Send a file by Reno with SCPS-TP",
                "slowlight tcp send image.raw 10.9.0.1:5001 --congestion reno --scps",
            ),
            example("Use it as netcat", "slowlight tcp connect 10.9.0.1:5001"),
        ],
    ),
    (
        "pep",
        &[
            example("Run a gateway", "slowlight pep gateway.toml"),
            example("Show the rules that it sets", "slowlight pep gateway.toml --print-rules"),
            example(
                "Write statistics every minute",
                r#"slowlight pep gateway.toml --json pep.json --interval "1 min""#,
            ),
        ],
    ),
    (
        "node",
        &[
            example("Check the settings of a node", "slowlight node node.toml --check"),
            example("Run the node", "slowlight node node.toml"),
        ],
    ),
    (
        "bp",
        &[
            example("Send a file to service 1 of node 2", "slowlight bp send ipn:2.1 image.raw"),
            example("Receive files of service 1", "slowlight bp recv 1 inbox"),
            example("Measure round trips to node 3", "slowlight bp ping ipn:3.2047"),
            example("List the bundles that the node holds", "slowlight bp query --bundles"),
        ],
    ),
    (
        "completions",
        &[
            example(
                "Install completions for bash",
                "slowlight completions bash > ~/.local/share/bash-completion/completions/slowlight",
            ),
            example("Load them into this shell", "source <(slowlight completions bash)"),
        ],
    ),
    (
        "man",
        &[example(
            "Install the manual pages for this user",
            "slowlight man ~/.local/share/man/man1",
        )],
    ),
];

/// Environment variables.
pub(crate) const ENVIRONMENT: &[Entry] = &[
    entry(
        "RUST_LOG",
        "log levels on standard error: `debug`, or `rt=trace,warn` for each crate [default: warn]",
        &[],
    ),
    entry("NO_COLOR", "if set and not empty, no colours", &[]),
    entry(
        "XDG_STATE_HOME",
        "base of the state folder [default: ~/.local/state]",
        &["send", "bp", "unfinished", "link", "emu"],
    ),
    entry(
        "XDG_RUNTIME_DIR",
        "base of the folder of emulated worlds, for users other than root",
        &["link", "emu"],
    ),
    entry("SHELL", "shell of `emu shell` [default: /bin/sh]", &["emu"]),
    entry(
        "SLOWLIGHT_PEER",
        "set for programs in a world: address of the peer's host",
        &["link", "emu"],
    ),
    entry(
        "SLOWLIGHT_EPOCH",
        "set for programs in a world: date from which its outages count; `send` and `recv` read it \
         (--epoch)",
        &["send", "recv", "get", "link", "emu"],
    ),
    entry(
        "SLOWLIGHT_BACKGROUND",
        "set for servers of `link --server`: `send` and `recv` draw no progress bar",
        &["send", "recv", "get", "link"],
    ),
    entry(
        "SLOWLIGHT_PYTHON",
        "Python interpreter with the package slowlight [default: of $VIRTUAL_ENV, of .venv, or \
         python3]",
        &["study"],
    ),
];

/// Files and folders.
pub(crate) const FILES: &[Entry] = &[
    entry(
        "$XDG_STATE_HOME/slowlight, ~/.local/state/slowlight",
        "state folder: unfinished transfers of `send` and `bp send`, losses that `send` measured to \
         its peers (`loss.json`), and the baseline of `emu`",
        &["send", "bp", "unfinished", "link", "emu"],
    ),
    entry(
        "DIR/.slowlight",
        "unfinished receptions in the folder that receives files (`--root DIR`)",
        &["recv", "get", "cfdp"],
    ),
    entry(
        "/run/slowlight/node.sock",
        "default socket of a bundle node",
        &["node", "bp", "send", "recv"],
    ),
    entry(
        "/run/slowlight/emu, $XDG_RUNTIME_DIR/slowlight/emu",
        "emulated worlds of root and of users",
        &["link", "emu"],
    ),
    entry(
        "results/NAME-EDITION, report/NAME",
        "results and report of a study, below the working folder",
        &["study"],
    ),
];

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
    match examples(path) {
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

/// Examples of a command, by its words below `slowlight`.
pub(crate) fn examples(path: &[&str]) -> &'static [Example] {
    let path = path.join(" ");
    EXAMPLES.iter().find(|(of, _)| *of == path).map_or(&[], |(_, examples)| *examples)
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
    let entries = |entries: &[Entry]| -> String {
        list(entries.iter().map(|entry| (entry.name, entry.about)))
    };
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

    #[test]
    fn examples_are_valid_command_lines() {
        for (path, examples) in EXAMPLES {
            for Example { line, .. } in *examples {
                let words = words(line);
                // Features leave commands out, and `source` is the shell's.
                let command = command();
                if words[0] == "source" || command.find_subcommand(&words[1]).is_none() {
                    continue;
                }
                let parsed = command.try_get_matches_from(&words);
                let error = parsed.err().map(|error| error.to_string());
                assert_eq!(error, None, "{path:?}: {line}");
            }
        }
    }

    #[test]
    fn short_help_refers_to_the_long_one() {
        for (path, _) in EXAMPLES {
            let command = command();
            let found =
                path.split(' ').try_fold(&command, |below, name| below.find_subcommand(name));
            // Features leave commands out.
            let Some(found) = found else { continue };
            let short = found.clone().render_help().to_string();
            assert!(short.contains("see more with '--help'"), "{path:?}: {short}");
        }
    }

    #[test]
    fn the_top_command_lists_exit_codes_variables_and_files() {
        let long = command().render_long_help().to_string();
        for row in exit::ROWS {
            assert!(long.contains(&format!("\n  {}\n      ", row.code())), "{long}");
        }
        for entry in ENVIRONMENT.iter().chain(FILES) {
            assert!(long.contains(entry.name), "{}", entry.name);
        }
    }
}
