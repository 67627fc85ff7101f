//! `slowlight emu tools` and `emu compare` as a user runs them, with adapters of the user's own, so
//! that no program is needed that a machine may lack.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
#![expect(clippy::print_stderr, reason = "a test that is skipped says so")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

const SLOWLIGHT: &str = env!("CARGO_BIN_EXE_slowlight");

/// Something for the client of an adapter, which needs nothing.
fn adapter(client: &str) -> String {
    format!("about = \"made up\"\nport = 4000\nclient = '{client}'\n")
}

/// A folder of adapters.
fn adapters(folder: &Path) -> PathBuf {
    let adapters = folder.join("adapters");
    fs::create_dir(&adapters).unwrap();
    let copy = adapter("sleep 0.1; cp \"$FILE\" \"$OUT\"");
    let needy =
        adapter("true") + "[[needs]]\nprogram = \"no-such-tool\"\npackage = \"none-such\"\n";
    let named = [
        ("copy", copy.as_str()),
        ("broken", &adapter("echo no way >&2; exit 3")),
        ("needy", &needy),
        ("slow", &adapter("exec sleep 60")),
        ("cfdp", &adapter("true")),
    ];
    for (name, text) in named {
        fs::write(adapters.join(format!("{name}.toml")), text).unwrap();
    }
    adapters
}

fn compare(folder: &Path, more: &[&str]) -> Command {
    let mut command = Command::new(SLOWLIGHT);
    command.args(["emu", "compare", "--size", "100kB", "--rate", "20 Mbit/s", "--delay", "5 ms"]);
    command.arg("--adapters").arg(folder.join("adapters")).args(more);
    command
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// What was said, in one.
fn said(output: &Output) -> String {
    text(&output.stdout) + &text(&output.stderr)
}

/// Whether there can be worlds here; says why not.
fn possible() -> bool {
    let tried = Command::new(SLOWLIGHT).args(["link", "--", "true"]).output().unwrap();
    if !tried.status.success() {
        eprintln!("skipped: {}", text(&tried.stderr));
    }
    tried.status.success()
}

#[test]
fn tools_are_listed_with_what_is_missing() {
    let folder = tempfile::tempdir().unwrap();
    let adapters = adapters(folder.path());
    let mut command = Command::new(SLOWLIGHT);
    let output = command.args(["emu", "tools", "--adapters"]).arg(adapters).output().unwrap();
    let listed = text(&output.stdout);
    assert!(output.status.success(), "{}", said(&output));
    let line =
        |name: &str| listed.lines().find(|line| line.trim_start().starts_with(name)).unwrap();
    assert!(line("copy").trim_end().ends_with("here"), "{listed}");
    assert!(line("needy").contains("apt-get install none-such"), "{listed}");
    assert!(line("rsync-daemon").contains("daemon"), "{listed}");
}

#[test]
fn what_cannot_be_compared_is_told() {
    let folder = tempfile::tempdir().unwrap();
    adapters(folder.path());
    for (more, why) in [
        (&["--tool", "copy2"][..], "did you mean \"copy\"?"),
        (&["--tool", "needy"], "apt-get install none-such"),
        (&["--tool", "cfdp", "--protocol", "cfdp"], "the name of a protocol"),
        (&["--tool", "copy", "--delays", "soon"], "soon"),
        (&["--tool", "copy", "--pers", "2"], "--pers"),
        (&["--tool", "copy", "--delays", "1 s"], "--delay"),
    ] {
        let output = compare(folder.path(), more).output().unwrap();
        assert!(!output.status.success(), "{more:?}");
        assert!(said(&output).contains(why), "{more:?}: {}", said(&output));
    }
}

#[test]
fn tools_and_protocols_are_compared_in_one_table_and_kept() {
    if !possible() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    adapters(folder.path());
    let out = folder.path().join("out");
    let who = ["--tool", "copy,broken", "--protocol", "cfdp/gsfc-2007"];
    let more = [&who[..], &["--pers", "0,1e-2", "--runs", "2", "--out", out.to_str().unwrap()]];
    let output = compare(folder.path(), &more.concat()).output().unwrap();
    assert_eq!(output.status.code(), Some(1), "one fails: {}", said(&output));
    let shown = text(&output.stdout);
    let row = |name: &str| shown.lines().find(|line| line.contains(name)).unwrap();
    assert!(row("Mbit/s").contains("1e-2") || row("Mbit/s").contains("0.01"), "{shown}");
    assert_eq!(row("broken").matches("failed").count(), 2, "{shown}");
    assert!(!row("copy").contains("failed") && !row("cfdp").contains("failed"), "{shown}");
    assert!(said(&output).contains("exit status: 3: no way"), "{}", said(&output));
    let results = || fs::read_to_string(out.join("results.jsonl")).unwrap();
    let first = results();
    assert_eq!(first.lines().count(), 3 * 2 * 2);
    for line in first.lines().filter(|line| line.contains("cfdp")) {
        let result: Value = serde_json::from_str(line).unwrap();
        assert_eq!(result["verdict"], "identical");
        let goodput = result["goodput_bps"].as_f64().unwrap();
        assert!(goodput > 1e5 && goodput < 20e6, "{result}");
    }
    // What is there is not done again, but shown; a line that was cut off is.
    fs::write(out.join("results.jsonl"), &first[..first.len() - 10]).unwrap();
    let more = [&more.concat()[..], &["--json"]].concat();
    let again = compare(folder.path(), &more).output().unwrap();
    let all: Value = serde_json::from_str(&text(&again.stdout)).unwrap();
    assert_eq!(all.as_array().unwrap().len(), 12, "{}", said(&again));
    // Twelve, those that had failed once more, and the one that was cut off, if it had not.
    let cut = first.lines().last().unwrap();
    assert_eq!(results().lines().count(), 12 + 4 + usize::from(!cut.contains("broken")));
    let other = [&more[..], &["--rate", "10 Mbit/s"]].concat();
    let mut command = Command::new(SLOWLIGHT);
    command.args(["emu", "compare", "--size", "100kB", "--adapters"]);
    let other = command.arg(folder.path().join("adapters")).args(other).output().unwrap();
    assert!(said(&other).contains("choose another folder"), "{}", said(&other));
}

#[test]
fn an_interrupted_comparison_keeps_what_it_has() {
    if !possible() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    adapters(folder.path());
    let out = folder.path().join("out");
    let more = ["--tool", "copy,slow", "--jobs", "1", "--out", out.to_str().unwrap()];
    let mut command = compare(folder.path(), &more);
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let begun = Instant::now();
    let results = || fs::read_to_string(out.join("results.jsonl")).unwrap_or_default();
    while results().is_empty() {
        assert!(begun.elapsed() < Duration::from_secs(30), "{:?}", child.try_wait());
        std::thread::sleep(Duration::from_millis(20));
    }
    let id = child.id().to_string();
    assert!(Command::new("kill").args(["-TERM", &id]).status().unwrap().success());
    let output = child.wait_with_output().unwrap();
    assert!(begun.elapsed() < Duration::from_secs(40), "it was not waited for what is slow");
    assert_eq!(output.status.code(), Some(130), "{}", said(&output));
    assert!(said(&output).contains("the same command goes on from here"), "{}", said(&output));
    assert_eq!(results().lines().count(), 1);
}
