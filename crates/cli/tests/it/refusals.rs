//! Refusals of all commands: `testdata/refusals` has a file for each command, with command lines,
//! messages and exit codes.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;
use std::{fs, thread};

use crate::bounded::output;
use crate::world::text;

const FILES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/testdata/refusals");
const SCENARIOS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scenarios");
/// The page with every command.
const PAGE: &str = include_str!("../../../../docs/reference/command-line.md");

/// Output of a shell for a command line, as in the files.
pub(crate) fn printed(folder: &Path, line: &str) -> String {
    let programs = Path::new(env!("CARGO_BIN_EXE_slowlight")).parent().unwrap();
    let path = format!("{}:{}", programs.display(), std::env::var("PATH").unwrap());
    let mut shell = Command::new("bash");
    shell.args(["-c", line]).current_dir(folder);
    shell.env("PATH", path).env("XDG_STATE_HOME", folder.join("state"));
    // Warnings depend on the machine and its user.
    shell.env("RUST_LOG", "error").env_remove("SUDO_UID");
    for variable in ["BASH_ENV", "CLICOLOR_FORCE"] {
        shell.env_remove(variable);
    }
    let output = output(&mut shell);
    let (mut out, mut message) = (text(&output.stdout), text(&output.stderr));
    let code = output.status.code().unwrap();
    if code != 0 {
        out = out.lines().map(|line| format!("stdout: {line}\n")).collect();
        message += &format!("exit code {code}");
    }
    (out + &message).replace(folder.to_str().unwrap(), "FOLDER")
}

fn check(file: &Path) {
    let folder = tempfile::tempdir().unwrap();
    symlink(SCENARIOS, folder.path().join("scenarios")).unwrap();
    testing::snapshot::check(file, |line| printed(folder.path(), line));
}

#[test]
fn refusals_have_the_messages_of_the_files() {
    thread::scope(|scope| {
        for entry in fs::read_dir(FILES).unwrap() {
            scope.spawn(|| check(&entry.unwrap().path()));
        }
    });
}

#[test]
fn every_command_has_refusals() {
    for command in PAGE.lines().filter_map(|line| line.strip_prefix("## ")) {
        let name = command.split(' ').nth(1).unwrap_or("slowlight");
        let file = fs::read_to_string(format!("{FILES}/{name}.txt")).unwrap_or_default();
        let begins = |line: &str| line.starts_with(&format!("$ {command} "));
        assert!(file.lines().any(begins), "{name}.txt has no `{command}`");
    }
}
