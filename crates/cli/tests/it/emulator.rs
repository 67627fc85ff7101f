//! `slowlight link` and `slowlight emu` as a user runs them.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;
use std::process::{Command, Output, Stdio};

use crate::guard::{Guarded, guarded};
use crate::wait::wait_for;
use crate::world::{possible, text};

const SLOWLIGHT: &str = env!("CARGO_BIN_EXE_slowlight");

fn slowlight(arguments: &[&str]) -> Output {
    let mut command = Command::new(SLOWLIGHT);
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    guarded(&mut command).child.wait_with_output().unwrap()
}

/// Program that prints the shortest of five round trips to `SERVER`; busy machines delay some.
const ROUND_TRIP: &str = "import socket, sys, time
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.settimeout(0.3)
times = []
for attempt in range(50):
    started = time.monotonic()
    s.sendto(bytes([attempt]), (sys.argv[1], 4000))
    try:
        while s.recv(10) != bytes([attempt]):
            pass
    except TimeoutError:
        continue
    times.append(time.monotonic() - started)
    if len(times) == 5:
        break
print(min(times))";

const SERVER: &str = "exec python3 -c \"
import socket
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.bind(('', 4000))
while True:
    data, peer = s.recvfrom(2000)
    s.sendto(data, peer)\"";

#[test]
fn terminated_worlds_still_print_their_report() {
    if !possible(false) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let mut command = Command::new(SLOWLIGHT);
    command.args(["link", "--pcap", &path("captures"), "--report", &path("report.json"), "--"]);
    command.args(["sh", "-c", &format!("touch {}; exec sleep 60", path("started"))]);
    let guarded = guarded(command.stdout(Stdio::null()).stderr(Stdio::piped()));
    wait_for("the program to begin", || folder.path().join("started").exists());
    let child = guarded.child;
    assert!(Command::new("kill").arg(child.id().to_string()).status().unwrap().success());
    let output = child.wait_with_output().unwrap();
    let message = text(&output.stderr);
    assert_eq!(output.status.code(), Some(143), "as the program: {message}");
    assert!(message.contains("near -> far: 0 of 0 packets arrived;"), "{message}");
    let report = fs::read_to_string(folder.path().join("report.json")).unwrap();
    assert!(report.contains("\"trusted\""), "{report}");
    assert!(fs::metadata(folder.path().join("captures/near.pcapng")).unwrap().len() > 0);
}

#[test]
fn links_may_be_too_small_for_ipv6() {
    if !possible(false) {
        return;
    }
    let small = ["link", "--mtu", "576B", "--delay", "0 ms", "--", "getent", "hosts", "far"];
    let output = slowlight(&small);
    assert!(output.status.success(), "{}", text(&output.stderr));
}

#[test]
fn tcp_buffers_come_from_the_option_or_the_scenario() {
    if !possible(false) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("world.toml");
    let world = "seed = 1
        links = [{ from = \"a\", to = \"b\" }, { from = \"b\", to = \"a\" }]
        transfers = [{ from = \"a\", to = \"b\", protocol = \"ftp\", size = \"1 kB\" }]
        [nodes.a.mib.tcp]
        buffers = \"linux\"";
    fs::write(&path, world).unwrap();
    let limits = |options: &[&str]| {
        let show = ["--", "cat", "/proc/sys/net/ipv4/tcp_wmem", "/proc/sys/net/ipv4/tcp_rmem"];
        let run = ["emu", "run", path.to_str().unwrap()];
        let output = slowlight(&[&run[..], options, &show[..]].concat());
        assert!(output.status.success(), "{}", text(&output.stderr));
        let shown = text(&output.stdout);
        let last = |line: &str| line.split_whitespace().next_back().unwrap().parse().unwrap();
        shown.lines().map(last).collect::<Vec<u64>>()
    };
    assert_eq!(limits(&[]), [4 << 20, 6 << 20], "the scenario's");
    assert_eq!(limits(&["--on", "b"]), [256 << 20; 2], "the default");
    assert_eq!(limits(&["--tcp-buffers", "unlimited"]), [256 << 20; 2]);
    assert_eq!(limits(&["--on", "b", "--tcp-buffers", "linux"]), [4 << 20, 6 << 20]);
}

#[test]
fn worlds_start_side_by_side() {
    if !possible(false) {
        return;
    }
    let start = || {
        let mut command = Command::new(SLOWLIGHT);
        command.args(["link", "--", "getent", "hosts", "far"]);
        guarded(command.stdout(Stdio::piped()).stderr(Stdio::piped()))
    };
    let started: Vec<Guarded> = (0..12).map(|_| start()).collect();
    for one in started {
        let output = one.child.wait_with_output().unwrap();
        assert!(output.status.success(), "{}", text(&output.stderr));
        assert!(text(&output.stdout).contains("far"), "{}", text(&output.stdout));
    }
}

#[test]
fn link_delays_programs_and_returns_their_exit_code() {
    if !possible(false) {
        return;
    }
    let link = ["link", "--delay", "60ms", "--server", SERVER, "--"];
    let output = slowlight(&[&link[..], &["python3", "-c", ROUND_TRIP, "far"]].concat());
    assert!(output.status.success(), "{}", text(&output.stderr));
    let seconds: f64 = text(&output.stdout).trim().parse().unwrap();
    assert!((0.120..0.180).contains(&seconds), "{seconds} s");
    assert!(text(&output.stderr).contains("near -> far"), "{}", text(&output.stderr));
    let output = slowlight(&["link", "--", "sh", "-c", "echo $SLOWLIGHT_PEER; exit 7"]);
    assert_eq!((output.status.code(), text(&output.stdout)), (Some(7), "10.0.0.1\n".to_owned()));
    let output = slowlight(&["link", "--", "no-such-program"]);
    assert_eq!(output.status.code(), Some(127));
    let message = text(&output.stderr);
    assert!(message.contains("no such program") && !message.contains("arrived"), "{message}");
}

#[test]
fn scenario_hosts_exist() {
    if !possible(false) {
        return;
    }
    let scenario = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scenarios/far-side.toml");
    let output = slowlight(&["emu", "run", scenario, "--", "cat", "/etc/hosts"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let hosts = text(&output.stdout);
    assert!(["earth", "lander", "relay"].iter().all(|name| hosts.contains(name)), "{hosts}");
}

/// Command lines of all processes that contain a mark.
fn marked(mark: &str) -> Vec<String> {
    let processes = fs::read_dir("/proc").unwrap().filter_map(Result::ok);
    let lines = processes.filter_map(|process| fs::read(process.path().join("cmdline")).ok());
    lines.map(|line| text(&line)).filter(|line| line.contains(mark)).collect()
}

/// Number of those that sleep.
fn asleep(mark: &str) -> usize {
    marked(mark).iter().filter(|line| line.starts_with("sleep\0")).count()
}

#[test]
fn killed_worlds_leave_nothing() {
    if !possible(false) {
        return;
    }
    // A background process of the program, and one that left its session.
    let mark = format!("{}.5", 100_000 + std::process::id());
    let program = format!("sleep {mark} & setsid sleep {mark} & sleep {mark}");
    let mut command = Command::new(SLOWLIGHT);
    command.args(["link", "--link", "geo", "--server", &format!("sleep {mark}"), "--"]);
    command.args(["sh", "-c", &program]).stderr(Stdio::null());
    let mut running = guarded(&mut command);
    wait_for("the world to run", || asleep(&mark) == 4);
    running.child.kill().unwrap();
    running.child.wait().unwrap();
    wait_for("everything to be gone", || marked(&mark).is_empty());
}

#[test]
fn a_terminated_world_ends_its_programs() {
    if !possible(false) {
        return;
    }
    let mark = format!("{}.25", 100_000 + std::process::id());
    let mut command = Command::new(SLOWLIGHT);
    command.args(["link", "--", "sleep", &mark]).stderr(Stdio::null());
    let mut running = guarded(&mut command);
    wait_for("the world to run", || asleep(&mark) == 1);
    let pid = running.child.id().to_string();
    assert!(Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
    let status = running.child.wait().unwrap();
    assert!(!status.success());
    wait_for("everything to be gone", || marked(&mark).is_empty());
}

#[test]
fn servers_draw_no_bar_beside_the_program() {
    if !possible(false) || Command::new("script").arg("--version").output().is_err() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    fs::write(path("file"), [7; 100_000]).unwrap();
    fs::create_dir(path("inbox")).unwrap();
    // The bar of `send` goes elsewhere; that of `recv` would be on the terminal.
    let line = format!(
        "XDG_STATE_HOME={} {SLOWLIGHT} link --server '{SLOWLIGHT} recv --listen :7542 --root {}' -- \
         sh -c '{SLOWLIGHT} send {} far:7542 --rate \"2 Mbit/s\" 2>&1 | cat'",
        path("state"),
        path("inbox"),
        path("file")
    );
    let mut command = Command::new("script");
    command.args(["-qec", &line, "/dev/null"]).env("TERM", "xterm").stdin(Stdio::null());
    let guarded = guarded(command.stdout(Stdio::piped()).stderr(Stdio::piped()));
    let printed = text(&guarded.child.wait_with_output().unwrap().stdout);
    assert_eq!(fs::read(path("inbox/file")).unwrap(), [7; 100_000], "{printed}");
    assert!(!printed.contains(['█', '░']), "{printed}");
}
