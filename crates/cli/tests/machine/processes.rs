//! Processes of the emulator: requests to end, the start of programs in a world, and the role of
//! each process.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use crate::guard::guarded;
use crate::wait::wait_for;
use crate::world::{possible, text};

const SLOWLIGHT: &str = env!("CARGO_BIN_EXE_slowlight");
const STAGE: &str = "SLOWLIGHT_EMU_STAGE";

fn slowlight(arguments: &[&str]) -> Output {
    let mut command = Command::new(SLOWLIGHT);
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    guarded(&mut command).child.wait_with_output().unwrap()
}

/// Starts the program, and sends a signal to this process alone once a condition holds.
fn command_line(arguments: &[&str], signal: &str, started: impl FnMut() -> bool) -> Output {
    // For runs of these tests without a terminal.
    let mut command = Command::new("env");
    command.args(["--default-signal=HUP", SLOWLIGHT]).args(arguments);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let guarded = guarded(&mut command);
    wait_for("it begins", started);
    let pid = guarded.child.id().to_string();
    assert!(Command::new("kill").args([signal, &pid]).status().unwrap().success());
    let at = Instant::now();
    let output = guarded.child.wait_with_output().unwrap();
    assert!(at.elapsed() < Duration::from_secs(10), "it ends after {:?}", at.elapsed());
    output
}

#[test]
fn signalled_process_ends_programs_and_reports() {
    if !possible(false) {
        return;
    }
    for (signal, code) in [("-INT", 130), ("-TERM", 143), ("-HUP", 129)] {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
        let program = format!("ping -c 1 far > {}; exec sleep 60", path("started"));
        let (captures, report) = (path("captures"), path("report.json"));
        let link = ["link", "--delay", "1 ms", "--pcap", &captures, "--report", &report];
        let arguments = [&link[..], &["--", "sh", "-c", &program]].concat();
        let started =
            || fs::read_to_string(path("started")).is_ok_and(|message| message.contains("rtt"));
        let output = command_line(&arguments, signal, started);
        let message = text(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "as the program: {message}");
        assert!(message.contains("near -> far: 1 of 1 packets arrived;"), "{message}");
        assert!(fs::read_to_string(&report).unwrap().contains("\"trusted\""));
        let far = fs::File::open(Path::new(&captures).join("far.pcapng")).unwrap();
        assert_eq!(pcap::Reader::new(far).unwrap().map(Result::unwrap).count(), 2);
    }
}

const SCENARIO: &str = "
seed = 5
[[links]]
from = \"moon\"
to = \"earth\"
rate = \"1 Mbit/s\"
delay = \"10 ms\"
[[links]]
from = \"earth\"
to = \"moon\"
rate = \"1 Mbit/s\"
delay = \"10 ms\"
[[transfers]]
from = \"moon\"
to = \"earth\"
protocol = \"cfdp\"
size = \"100 MB\"
";

#[test]
fn signalled_process_reports_transfer_progress() {
    if !possible(false) {
        return;
    }
    for signal in ["-INT", "-TERM"] {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
        fs::write(path("moon.toml"), SCENARIO).unwrap();
        let (scenario, captures, out) = (path("moon.toml"), path("captures"), path("out"));
        let arguments = ["emu", "run", &scenario, "--pcap", &captures, "--out", &out];
        let far = Path::new(&captures).join("earth.pcapng");
        let started = || fs::metadata(&far).is_ok_and(|far| far.len() > 100_000);
        let output = command_line(&arguments, signal, started);
        let message = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "a transfer failed: {message}");
        assert!(message.contains("moon -> earth: "), "{message}");
        let metrics = fs::read_to_string(Path::new(&out).join("metrics.json")).unwrap();
        assert!(metrics.contains("\"ended\": \"cancelled\""), "{metrics}");
        let records = pcap::Reader::new(fs::File::open(&far).unwrap()).unwrap();
        assert!(records.map(Result::unwrap).count() > 50, "none is cut off");
    }
}

#[test]
fn signalled_process_removes_its_world() {
    if !possible(false) {
        return;
    }
    for signal in ["-INT", "-TERM", "-HUP"] {
        let name = format!("asked-{}", std::process::id());
        let listed = || text(&slowlight(&["emu", "list"]).stdout).contains(&name);
        let up = ["emu", "up", "--name", &name, "--delay", "1 ms", "--foreground"];
        let answers = || slowlight(&["emu", "status", "--name", &name]).status.success();
        let output = command_line(&up, signal, answers);
        let message = text(&output.stderr);
        assert!(output.status.success(), "{signal}: {message}");
        assert!(message.contains("near -> far: 0 of 0 packets arrived;"), "{message}");
        assert!(!listed());
    }
}

#[test]
fn a_program_begins_when_the_server_listens() {
    if !possible(false) {
        return;
    }
    let fetch = |port: u16| {
        let url = format!("http://far:{port}/");
        [
            "python3".to_owned(),
            "-c".to_owned(),
            format!("import urllib.request as u; u.urlopen('{url}')"),
        ]
    };
    let serve = |port: u16| format!("python3 -m http.server {port}");
    let slow = format!("sleep 0.7; exec {}", serve(8000));
    let link = ["link", "--delay", "1 ms", "--server", &slow];
    let program = fetch(8000);
    let program: Vec<&str> = program.iter().map(String::as_str).collect();
    let output = slowlight(&[&link[..], &["--"], &program].concat());
    assert!(output.status.success(), "{}", text(&output.stderr));
    // One server listens at once, the intended one later.
    let two = format!("{} & sleep 0.7; exec {}", serve(8001), serve(8000));
    let link = ["link", "--delay", "1 ms", "--server", &two, "--wait-for", "8000"];
    let output = slowlight(&[&link[..], &["--"], &program].concat());
    assert!(output.status.success(), "{}", text(&output.stderr));
}

#[test]
fn servers_that_fail_or_do_not_listen_are_reported() {
    if !possible(false) {
        return;
    }
    let output = slowlight(&["link", "--server", "exit 3", "--", "echo", "started"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("exit code 3 before it listened"));
    assert!(!text(&output.stdout).contains("started"));
    let started = Instant::now();
    let output = slowlight(&["link", "--server", "sleep 60", "--", "echo", "started"]);
    assert!(output.status.success() && started.elapsed() < Duration::from_secs(30));
    assert!(text(&output.stderr).contains("listens on no port"), "{}", text(&output.stderr));
    assert!(text(&output.stdout).contains("started"));
    // A command that only prepares something may end early.
    let started = Instant::now();
    let output = slowlight(&["link", "--server", "true", "--", "echo", "started"]);
    assert!(output.status.success() && !text(&output.stderr).contains("listens on no port"));
    assert!(started.elapsed() < Duration::from_secs(20));
}

#[test]
fn forged_environment_variables_are_ignored() {
    if !possible(false) {
        return;
    }
    let mounts = || fs::read_to_string("/proc/self/mountinfo").unwrap();
    let before = mounts();
    for stage in ["first", "inner", "0", "2", "99"] {
        let mut command = Command::new(SLOWLIGHT);
        command.args(["link", "--delay", "1 ms", "--", "sh", "-c", "ping -c 1 far; echo $$"]);
        let output = command.env(STAGE, stage).stdin(Stdio::null()).output().unwrap();
        assert!(output.status.success(), "{stage}: {}", text(&output.stderr));
        // It is one of the first processes of its own namespace.
        let message = text(&output.stdout);
        let pid: u32 = message.lines().last().unwrap().parse().unwrap();
        assert!(pid < 1000 && message.contains("1 received"), "{stage}: {message}");
    }
    assert_eq!(mounts(), before);
}
