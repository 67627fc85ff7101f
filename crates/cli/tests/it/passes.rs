//! Transfers by `send` and `recv` over a link with passes, which both know.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::thread;
use std::time::Duration;

use serde_json::Value;

use crate::guard::guarded_for;
use crate::world::{possible, text};

const SLOWLIGHT: &str = env!("CARGO_BIN_EXE_slowlight");

/// A link that is up for a third of the time, from the start on, and loses what is sent otherwise.
const LINK: [&str; 12] = [
    "--rate",
    "2 Mbit/s",
    "--delay",
    "6 ms",
    "--per",
    "1e-3",
    "--return-rate",
    "9.6 kbit/s",
    "--while-down",
    "drop",
    "--outage-every",
    PASSES,
];
const PASSES: &str = "3 s+2 s+1 s";
const PERIOD: f64 = 3.0;
const BYTES: usize = 500_000;

fn run(arguments: &[&str]) -> Output {
    let mut command = Command::new(SLOWLIGHT);
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    guarded_for(Duration::from_secs(100), &mut command).child.wait_with_output().unwrap()
}

/// The only object that a command printed.
fn object(output: &Output) -> Value {
    assert!(output.status.success(), "{}", text(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Sends a file over an emulated link; returns what `send` prints.
fn sent(protocol: &str, folder: &Path) -> Value {
    let name = protocol.replace('/', "-");
    let place = |name: &str| folder.join(name).to_str().unwrap().to_owned();
    let (file, root, state) = (place("file"), place(&name), place(&format!("state-{name}")));
    fs::create_dir(&root).unwrap();
    let server = format!(
        "exec {SLOWLIGHT} recv --protocol {protocol} --listen :7542 --root {root} --rate '9.6 kbit/s' \
         --delay '6 ms' --outage-every '{PASSES}'"
    );
    let send = ["--json", "--protocol", protocol, "--rate", "2 Mbit/s", "--delay", "6 ms"];
    let know = ["--return-rate", "9.6 kbit/s", "--outage-every", PASSES, "--timeout", "90 s"];
    let variable = format!("XDG_STATE_HOME={state}");
    let program = ["env", &variable, SLOWLIGHT, "send", &file, "far:7542"];
    let output =
        run(&[&["link"], &LINK[..], &["--server", &server, "--"], &program, &send, &know].concat());
    let report = object(&output);
    assert!(fs::read(folder.join(&name).join("file")).unwrap() == fs::read(file).unwrap());
    report
}

#[test]
fn transfers_over_passes_take_what_was_predicted() {
    if !possible(false) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let content: Vec<u8> = (0..BYTES).map(|n| (n * n / 251) as u8).collect();
    fs::write(folder.path().join("file"), content).unwrap();
    let protocols = ["cfdp", "ltp", "saratoga", "norm", "norm/coded"];
    let all = thread::scope(|scope| {
        let folder = folder.path();
        let start = |protocol| scope.spawn(move || sent(protocol, folder));
        let runs = protocols.map(start);
        runs.map(|run| run.join().unwrap())
    });
    for (protocol, report) in protocols.iter().zip(all) {
        let size = format!("{BYTES} B");
        let options = ["--size", &size, "--protocol", protocol, "--runs", "1", "--json"];
        let predicted = object(&run(&[&["compare"], &LINK[..], &options].concat()));
        let number = |value: &Value, key: &str| {
            value[key].as_f64().unwrap_or_else(|| panic!("{key}: {value}"))
        };
        // Nothing is sent into outages, which are two thirds of the time.
        let packets = number(&report, "datagrams_sent");
        let (least, most) = (BYTES as f64 / 1472.0, 1.5 * BYTES as f64 / 1472.0);
        assert!((least..most).contains(&packets), "{protocol}: {report}");
        // A busy machine may miss the end of one pass.
        let took = number(&report, "elapsed_s");
        let expected = number(&predicted["protocols"][0]["confirmed_s"], "mean");
        assert!(took <= 1.05 * expected + PERIOD, "{protocol}: {took} s, predicted {expected} s");
    }
}
