//! Output printed in guides, compared with the current output.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

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
