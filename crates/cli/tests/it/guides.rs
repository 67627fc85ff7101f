//! Output printed in guides, compared with the current output.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::guard::guarded;
use crate::ports::Port;
use crate::wait::wait_for;

/// Fenced blocks of a page: language and text.
pub(crate) fn blocks(page: &str) -> Vec<(String, String)> {
    let path: PathBuf = [env!("CARGO_MANIFEST_DIR"), "../../docs/guides", page].iter().collect();
    let text = fs::read_to_string(path).unwrap();
    let parts = text.split("```").skip(1).step_by(2);
    let block = |part: &str| part.split_once('\n').map(|(name, text)| (name.into(), text.into()));
    parts.filter_map(block).collect()
}

/// Words of a command as a shell splits them.
fn words(command: &str) -> Vec<String> {
    let parts = command.split('"').enumerate();
    let words = |(n, part): (usize, &str)| match n % 2 {
        0 => part.split_whitespace().map(str::to_owned).collect(),
        _ => vec![part.to_owned()],
    };
    parts.flat_map(words).collect()
}

/// Standard output of a command in a folder.
fn printed(command: &str, folder: &Path) -> String {
    let words = words(command.trim_start_matches("slowlight "));
    let output = Command::new(env!("CARGO_BIN_EXE_slowlight"))
        .args(words)
        .current_dir(folder)
        .env_remove("RUST_LOG")
        .output()
        .unwrap();
    String::from_utf8(output.stdout).unwrap()
}

/// Output as that of a release, without the commit behind the version.
fn released(output: &str) -> String {
    let version = env!("CARGO_PKG_VERSION");
    let words: Vec<&str> = output.split(version).collect();
    let without = |part: &&str| match part.trim_start().strip_prefix('(') {
        Some(rest) => rest.split_once(')').map_or(rest, |(_, rest)| rest).to_owned(),
        None => (*part).to_owned(),
    };
    let rest = words[1..].iter().map(without);
    [words[0].to_owned()].into_iter().chain(rest).collect::<Vec<_>>().join(version)
}

/// Folder with the link's file of the first guide.
fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let blocks = blocks("first-comparison.md");
    let file = blocks.iter().find(|(_, text)| text.starts_with("# my.toml")).unwrap();
    fs::write(folder.path().join("my.toml"), &file.1).unwrap();
    folder
}

/// Commands of a page that have this beginning and an output behind them, with that output.
fn shown(page: &str, begin: &str) -> Vec<(String, String)> {
    let blocks = blocks(page);
    let pair = |pair: &[(String, String)]| {
        let [(shell, commands), (text, output)] = pair else { return None };
        let command = commands.lines().find(|line| line.starts_with(begin))?;
        (shell == "sh" && text == "text").then(|| (command.to_owned(), output.clone()))
    };
    blocks.windows(2).filter_map(pair).collect()
}

#[test]
fn first_comparison_tables_are_current() {
    let folder = folder();
    let shown = shown("first-comparison.md", "slowlight compare");
    assert_eq!(shown.len(), 2);
    for (command, output) in shown {
        assert_eq!(printed(&command, folder.path()), output, "{command}");
    }
}

#[test]
fn printed_advice_is_current() {
    let folder = folder();
    let shown = shown("advise.md", "slowlight advise");
    assert_eq!(shown.len(), 2);
    for (command, output) in shown {
        // A long line that another program wraps is compared by its words.
        let command = command.split_once(" | fold").map_or(&*command, |(command, _)| command);
        let printed = released(&printed(command, folder.path()));
        // So is the paragraph, where the commit moves line breaks.
        let parts = |text: &str| {
            let (table, text) = text.rsplit_once("\n\n").unwrap_or(("", text));
            (table.to_owned(), text.split_whitespace().map(str::to_owned).collect::<Vec<_>>())
        };
        assert_eq!(parts(&printed), parts(&output), "{command}");
    }
}

/// Text without what differs between runs: numbers, and words of hexadecimal digits, are `0`.
fn masked(text: &str) -> String {
    let mut masked = String::new();
    for run in text.split_inclusive(|c: char| !c.is_ascii_hexdigit()) {
        let end = run.trim_end_matches(|c: char| !c.is_ascii_hexdigit()).len();
        let (word, rest) = run.split_at(end);
        masked += if word.contains(|c: char| c.is_ascii_digit()) { "0" } else { word };
        masked += rest;
    }
    masked.replace("0.0", "0")
}

/// Writes the blocks of TOML in a page that begin with the names of their files.
fn write_files(page: &str, folder: &Path, changed: impl Fn(&str) -> String) {
    for (_, text) in blocks(page).iter().filter(|(language, _)| language == "toml") {
        let name = text.lines().next().and_then(|line| line.strip_prefix("# "));
        if let Some(name) = name.filter(|name| name.ends_with(".toml")) {
            fs::write(folder.join(name), changed(text)).unwrap();
        }
    }
}

/// All that a command prints.
fn output(command: &str, folder: &Path) -> String {
    let words = words(command.split(" #").next().unwrap().trim_start_matches("slowlight "));
    let mut run = Command::new(env!("CARGO_BIN_EXE_slowlight"));
    let ended = run.args(words).current_dir(folder).env_remove("RUST_LOG").output().unwrap();
    let text = [ended.stdout, ended.stderr].concat();
    String::from_utf8(text).unwrap()
}

#[test]
fn printed_studies_are_current() {
    let page = "write-a-study.md";
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    write_files(page, folder, str::to_owned);
    let texts: Vec<_> =
        blocks(page).into_iter().filter(|(name, _)| name == "text").map(|(_, text)| text).collect();
    let shown = output("slowlight study show my-study.toml", folder);
    let ran = output("slowlight study run my-study.toml", folder);
    let lines = |text: &str| text.lines().map(|l| l.trim_end().to_owned()).collect::<Vec<_>>();
    let printed = [lines(&shown), lines(&ran)].concat();
    for line in texts[0].lines().filter(|line| !line.is_empty()) {
        assert!(printed.iter().any(|other| other == line), "{line}\n{shown}{ran}");
    }
    let study = folder.join("my-study.toml");
    let text = fs::read_to_string(&study).unwrap().replace("\"1e-1\"]", "\"1e-1\", \"2e-1\"]");
    fs::write(&study, text).unwrap();
    let ran = output("slowlight study run my-study.toml --resume", folder);
    let printed = lines(&ran);
    for line in texts[1].lines() {
        assert!(printed.iter().any(|other| other == line), "{line}\n{ran}");
    }
    for (n, filter) in ["loss=1", "per=1e-9"].iter().enumerate() {
        let ran = output(&format!("slowlight study run my-study.toml --filter {filter}"), folder);
        let line = texts[3].lines().nth(n).unwrap();
        assert_eq!(ran.trim_end(), line);
    }
}

#[test]
fn printed_nodes_are_current() {
    let page = "run-a-node.md";
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let port = Port::reserve();
    write_files(page, folder, |text| text.replace("4556", &port.number.to_string()));
    fs::write(folder.join("image.raw"), vec![7; 1_000_000]).unwrap();
    fs::create_dir(folder.join("inbox")).unwrap();
    let texts: Vec<_> =
        blocks(page).into_iter().filter(|(name, _)| name == "text").map(|(_, text)| text).collect();
    let start = |name: &str| {
        let log = fs::File::create(folder.join(format!("{name}.log"))).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_slowlight"));
        let command = command.args(["node", &format!("{name}.toml")]).current_dir(folder);
        let command = command.env_remove("RUST_LOG").stdout(log.try_clone().unwrap()).stderr(log);
        let node = guarded(command);
        wait_for("the node is ready", || folder.join(format!("{name}.sock")).exists());
        node
    };
    let same = |printed: &str, shown: &str| assert_eq!(masked(printed), masked(shown));
    let _one = start("one");
    let log = || fs::read_to_string(folder.join("one.log")).unwrap();
    wait_for("the node has started", || log().lines().count() >= 2);
    same(&log(), &texts[0]);
    output("slowlight bp send ipn:2.1 image.raw --node one.sock", folder);
    same(&output("slowlight bp query --node one.sock --bundles", folder), &texts[1]);
    let _two = start("two");
    same(&output("slowlight bp recv 1 inbox --node two.sock --count 1", folder), &texts[2]);
    same(&output("slowlight bp ping ipn:2.2047 --node one.sock --count 3", folder), &texts[3]);
}
