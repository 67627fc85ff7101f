//! Output printed in guides, compared with the current output.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Fenced blocks of a page: language and text.
fn blocks(page: &str) -> Vec<(String, String)> {
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

#[test]
fn first_comparison_tables_are_current() {
    let folder = tempfile::tempdir().unwrap();
    let blocks = blocks("first-comparison.md");
    let file = blocks.iter().find(|(_, text)| text.starts_with("# my.toml")).unwrap();
    fs::write(folder.path().join("my.toml"), &file.1).unwrap();
    let mut tables = 0;
    for pair in blocks.windows(2) {
        let [(shell, commands), (text, shown)] = pair else { continue };
        let compare = commands.lines().find(|line| line.starts_with("slowlight compare"));
        let (true, true, Some(command)) = (shell == "sh", text == "text", compare) else {
            continue;
        };
        assert_eq!(printed(command, folder.path()), *shown, "{command}");
        tables += 1;
    }
    assert_eq!(tables, 2);
}
