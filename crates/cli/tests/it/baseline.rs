//! `slowlight emu baseline`, and worlds that are checked against the baseline.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

use crate::world::{possible, text};

fn slowlight(state: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_slowlight"));
    command.args(arguments).env("XDG_STATE_HOME", state).output().unwrap()
}

fn reply(output: &Output) -> String {
    text(&output.stderr)
}

#[test]
fn worlds_are_compared_with_the_measured_baseline() {
    let state = tempfile::tempdir().unwrap();
    let state = state.path();
    if !possible(false) {
        return;
    }
    let unknown = slowlight(state, &["link", "--strict", "--", "true"]);
    assert_eq!(unknown.status.code(), Some(1));
    assert!(reply(&unknown).contains("`slowlight emu baseline` first"), "{}", reply(&unknown));

    let measured = slowlight(state, &["emu", "baseline", "--time", "100 ms", "--json"]);
    assert!(measured.status.success(), "{}", reply(&measured));
    assert!(reply(&measured).contains("measuring: TCP over a link"), "{}", reply(&measured));
    let figures: Value = serde_json::from_slice(&measured.stdout).unwrap();
    for between in ["wire", "link"] {
        for figure in ["batched_datagrams_s", "single_datagrams_s", "tcp_bps"] {
            let value = figures[between][figure].as_f64().unwrap();
            assert!(value > 100.0, "{between} {figure}: {value}");
        }
    }
    let kept = fs::read(state.join("slowlight/emulator.json")).unwrap();
    assert_eq!(serde_json::from_slice::<Value>(&kept).unwrap(), figures);

    let slow = ["link", "--strict", "--rate", "1 Mbit/s", "--late", "1 s", "--late-most", "1 min"];
    let fits = slowlight(state, &[&slow[..], &["--", "true"]].concat());
    assert!(fits.status.success(), "{}", reply(&fits));
    let fast = ["link", "--rate", "1000 Gbit/s", "--", "true"];
    let warned = slowlight(state, &fast);
    assert!(warned.status.success(), "{}", reply(&warned));
    assert!(reply(&warned).contains("warning: full links ask for 1000000 Mbit/s"));
    let refused = slowlight(state, &[&["link", "--strict"], &fast[1..]].concat());
    assert_eq!(refused.status.code(), Some(1));
    assert!(reply(&refused).contains("does not fit this machine"), "{}", reply(&refused));
}

#[test]
fn long_delays_warn_about_memory_before_the_start() {
    let state = tempfile::tempdir().unwrap();
    if !possible(false) {
        return;
    }
    let far = ["link", "--rate", "100 Mbit/s", "--delay", "20 min", "--", "true"];
    let warned = slowlight(state.path(), &far);
    assert!(warned.status.success(), "{}", reply(&warned));
    let expected = "warning: near -> far: 100.0 Mbit/s for 1200s are on the way at once";
    assert!(reply(&warned).contains(expected), "{}", reply(&warned));
    let near = ["link", "--rate", "100 Mbit/s", "--delay", "2 s", "--memory", "64 MiB"];
    let fits = slowlight(state.path(), &[&near[..], &["--", "true"]].concat());
    assert!(!reply(&fits).contains("warning"), "{}", reply(&fits));
}

#[test]
fn late_runs_are_marked() {
    let state = tempfile::tempdir().unwrap();
    let state = state.path();
    if !possible(false) {
        return;
    }
    let report = state.join("report.json");
    let path = report.to_str().unwrap();
    let ping = ["--report", path, "--", "ping", "-c", "1", "far"];
    let wide = ["link", "--late", "10 s", "--late-most", "10 s"];
    let trusted = slowlight(state, &[&wide[..], &ping].concat());
    assert!(trusted.status.success(), "{}", reply(&trusted));
    assert!(!reply(&trusted).contains("not trustworthy"), "{}", reply(&trusted));
    let account: Value = serde_json::from_slice(&fs::read(&report).unwrap()).unwrap();
    assert_eq!((&account["trusted"], &account["doubts"]), (&true.into(), &Value::Array(vec![])));
    assert!(account["links"][0]["delivered"].as_u64().unwrap() >= 1);

    // No packet is handed over within a microsecond.
    let narrow = ["link", "--late", "1 us"];
    let late = slowlight(state, &[&narrow[..], &ping].concat());
    assert!(late.status.success(), "{}", reply(&late));
    assert!(reply(&late).contains("not trustworthy: near -> far: "), "{}", reply(&late));
    let account: Value = serde_json::from_slice(&fs::read(&report).unwrap()).unwrap();
    assert_eq!(account["trusted"], false);
    assert!(account["doubts"][0].as_str().unwrap().contains("(bound 1µs)"));
}
