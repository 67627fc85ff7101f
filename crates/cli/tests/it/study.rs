//! `slowlight study` and `slowlight advise`: results that survive kills, and their reports.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::guard::guarded;

fn slowlight(folder: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_slowlight"));
    command.args(args).current_dir(folder).stdin(Stdio::null());
    command
}

fn run(folder: &Path, args: &[&str]) -> Output {
    slowlight(folder, args).output().unwrap()
}

fn message(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

const WORLD: &str = r#"
seed = 1
[[links]]
from = "a"
to = "b"
link = "geo"
[[links]]
from = "b"
to = "a"
link = "geo"
[[transfers]]
from = "a"
to = "b"
size = "300 kB"
"#;

const STUDY: &str = r#"
about = "a small one"
[[editions.own.sheets]]
name = "small"
world = "world.toml"
runs = 20
[[editions.own.sheets.axes]]
name = "protocol"
keys = ["transfers.0.protocol"]
values = ["cfdp", "ltp", "saratoga"]
[[editions.own.sheets.axes]]
name = "per"
keys = ["links.*.per"]
values = ["0", "1e-2", "1e-1"]
"#;

/// Folder with a study of 180 runs.
fn folder() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("world.toml"), WORLD).unwrap();
    fs::write(folder.path().join("own.toml"), STUDY).unwrap();
    folder
}

fn table(folder: &Path, results: &str) -> Vec<u8> {
    fs::read(folder.join(results).join("small.parquet")).unwrap()
}

#[test]
fn tables_are_identical_for_any_number_of_jobs() {
    let folder = folder();
    for (jobs, out) in [("1", "one"), ("3", "three")] {
        let output =
            run(folder.path(), &["study", "run", "own.toml", "--jobs", jobs, "--out", out]);
        assert!(output.status.success(), "{}", message(&output));
        assert!(message(&output).contains("180 runs, 0 of them from earlier; 0 failed"));
    }
    let one = table(folder.path(), "one");
    assert!(one.starts_with(b"PAR1") && one == table(folder.path(), "three"));
    assert_eq!(conditions(folder.path(), "one"), conditions(folder.path(), "three"));
}

#[test]
fn conditions_have_the_values_of_all_cells_that_were_run() {
    let folder = folder();
    let values = |args: &[&str]| {
        let output =
            run(folder.path(), &[&["study", "run", "own.toml", "--runs", "1"], args].concat());
        assert!(output.status.success(), "{}", message(&output));
        let text = conditions(folder.path(), "results/own-own");
        let found: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(found["links"][0]["from"], serde_json::json!(["a"]));
        let count = |values: &serde_json::Value| values.as_array().map_or(0, Vec::len);
        (count(&found["transfers"][0]["protocol"]), count(&found["links"][1]["per"]))
    };
    assert_eq!(values(&["--filter", "per=0", "--filter", "protocol=cfdp,ltp"]), (2, 1));
    assert_eq!(values(&["--resume"]), (3, 3));
    let there = folder.path().join("results/own-own/small.conditions.json");
    fs::write(&there, "of an earlier run").unwrap();
    let wrong = ["study", "run", "own.toml", "--again", "--filter", "per=3"];
    assert!(!run(folder.path(), &wrong).status.success() && there.is_file());
    assert_eq!(values(&["--again"]), (3, 3));
}

fn conditions(folder: &Path, results: &str) -> String {
    fs::read_to_string(folder.join(results).join("small.conditions.json")).unwrap()
}

/// Complete lines of the journal.
fn lines(folder: &Path) -> usize {
    let journal = fs::read(folder.join("results/own-own/runs.jsonl")).unwrap_or_default();
    journal.iter().filter(|byte| **byte == b'\n').count().saturating_sub(1)
}

#[test]
fn resumed_studies_skip_completed_runs() {
    let whole = folder();
    assert!(run(whole.path(), &["study", "run", "own.toml", "--out", "all"]).status.success());
    let expected = table(whole.path(), "all");
    let folder = folder();
    let mut before = 0;
    for kill in 0..20 {
        let args = ["study", "run", "own.toml", "--resume", "--jobs", "1"];
        let mut running = guarded(slowlight(folder.path(), &args).stderr(Stdio::piped()));
        // Killed after some more runs: each time at another place.
        let until = Instant::now() + Duration::from_secs(60);
        while lines(folder.path()) < before + 1 + kill % 4 && Instant::now() < until {
            if running.child.try_wait().unwrap().is_some() {
                break;
            }
            thread::sleep(Duration::from_micros(200));
        }
        running.child.kill().unwrap();
        let status = running.child.wait().unwrap();
        assert!(status.signal() == Some(9) || status.success(), "{status}");
        let now = lines(folder.path());
        assert!(now >= before, "{now} runs after {before}");
        before = now;
    }
    let output = run(folder.path(), &["study", "run", "own.toml", "--resume"]);
    assert!(output.status.success(), "{}", message(&output));
    let reply = format!("180 runs, {before} of them from earlier");
    assert!(message(&output).contains(&reply), "{reply}: {}", message(&output));
    assert_eq!(table(folder.path(), "results/own-own"), expected);
}

#[test]
fn results_are_resumed_or_restarted_as_requested() {
    let folder = folder();
    let some = ["study", "run", "own.toml", "--filter", "per=0", "--runs", "1"];
    let output = run(folder.path(), &some);
    assert!(message(&output).contains("3 runs, 0 of them from earlier"), "{}", message(&output));
    let again = run(folder.path(), &some);
    assert_eq!(again.status.code(), Some(2));
    assert!(
        message(&again).contains("has 3 runs; --resume continues with them, --again starts over")
    );
    let more = run(folder.path(), &["study", "run", "own.toml", "--resume", "--runs", "2"]);
    assert!(message(&more).contains("18 runs, 3 of them from earlier"), "{}", message(&more));
    let over = run(folder.path(), &[&some[..], &["--again"]].concat());
    assert!(message(&over).contains("3 runs, 0 of them from earlier"), "{}", message(&over));
    let manifest = fs::read_to_string(folder.path().join("results/own-own/manifest.json")).unwrap();
    assert!(manifest.contains("\"complete\": false"), "{manifest}");
    let version = slowlight(folder.path(), &["--version"]).output().unwrap().stdout;
    let version = String::from_utf8(version).unwrap();
    let version = version.trim_end().strip_prefix("slowlight ").unwrap();
    assert!(manifest.contains(&format!("\"slowlight\": \"{version}\"")), "{manifest}");
}

#[test]
fn reports_are_written_with_the_package_of_a_clone() {
    let folder = tempfile::tempdir().unwrap();
    let python = folder.path().join("interpreter");
    let of = |study: &str, script: &str| {
        fs::write(&python, format!("#!/bin/sh\n{script}\n")).unwrap();
        fs::set_permissions(&python, fs::Permissions::from_mode(0o755)).unwrap();
        let mut report = slowlight(folder.path(), &["study", "report", study]);
        report.env("SLOWLIGHT_PYTHON", &python).env("PYTHONPATH", "/others").output().unwrap()
    };
    let with = |script| of("grc-2012", script);
    let output = with(r#"[ "$PYTHONPATH" = python:/others ] && echo "$@""#);
    let printed = String::from_utf8_lossy(&output.stdout);
    assert_eq!(printed, "-m slowlight report grc-2012\n", "{}", message(&output));
    let output = with("echo no polars >&2; exit 1");
    assert_eq!(output.status.code(), Some(1));
    let text = message(&output);
    assert!(text.contains("(no polars)") && text.contains("polars and matplotlib"), "{text}");
}

#[test]
fn studies_are_shown() {
    let folder = folder();
    let figure =
        "[[figures]]\nkind = \"lines\"\nedition = \"own\"\nx = \"per\"\ny = \"goodput_bps\"\n";
    let study = STUDY.replacen("[[editions", &format!("{figure}[[editions"), 1);
    fs::write(folder.path().join("own.toml"), study).unwrap();
    let shown = run(folder.path(), &["study", "show", "own.toml"]);
    let text = String::from_utf8(shown.stdout.clone()).unwrap();
    assert!(shown.status.success() && text.contains("cfdp, ltp, saratoga"), "{}", message(&shown));
}

#[test]
fn advice_names_a_transport_and_why() {
    let folder = tempfile::tempdir().unwrap();
    let args = ["advise", "--link", "geo", "--per", "1e-2", "--size", "200 kB"];
    let output = run(folder.path(), &[&args[..], &["--text"]].concat());
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{text}");
    assert!(text.starts_with("Take ") && text.contains("is next"), "{text}");
    assert!(text.contains("no transport can take less than"), "{text}");
    // The commands for both sides follow, in lines of 100 columns.
    let commands = text.lines().skip(1).all(|line| line.chars().count() <= 100);
    assert!(commands, "{text}");
    let name = text["Take ".len()..].split('.').next().unwrap();
    for command in ["slowlight recv --protocol", "slowlight send --protocol"] {
        assert!(text.contains(&format!("{command} {name}")), "{text}");
    }
    let output = run(folder.path(), &[&args[..], &["--json"]].concat());
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let best = &json["advice"]["ranking"][0];
    let sentence = format!("Take {}.", best["protocol"].as_str().unwrap());
    assert!(text.starts_with(&sentence), "{sentence} {text}");
    // Its world is one that `sim` runs.
    fs::write(folder.path().join("best.toml"), json["scenario"].as_str().unwrap()).unwrap();
    assert!(run(folder.path(), &["sim", "best.toml"]).status.success());
}

#[test]
fn advice_respects_sharing_and_deadlines() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("mine.toml"), "hops = [{ rate = \"10 Mbit/s\" }]").unwrap();
    let args = ["advise", "--link", "mine.toml", "--size", "200 kB", "--text", "--budget", "2 s"];
    let ask = |more: &[&str]| {
        let output = run(folder.path(), &[&args[..], more].concat());
        (output.status.code(), String::from_utf8(output.stdout).unwrap())
    };
    let (code, text) = ask(&[]);
    assert_eq!(code, Some(0), "{text}");
    assert!(text.contains("counts as shared") && text.contains("--dedicated"), "{text}");
    let (_, text) = ask(&["--dedicated"]);
    assert!(text.contains("no congestion control"), "{text}");
    let (code, text) = ask(&["--dedicated", "--deadline", "1 ms"]);
    assert_eq!(code, Some(1), "{text}");
    assert!(text.starts_with("No transport meets the deadline of 1 ms"), "{text}");
    let (code, text) = ask(&["--dedicated", "--deadline", "1 s", "--in-order"]);
    assert_eq!(code, Some(0), "{text}");
    assert!(text.contains("meets the deadline of 1 s") && text.contains("in order"), "{text}");
}
