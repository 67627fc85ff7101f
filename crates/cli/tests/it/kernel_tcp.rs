//! `slowlight tcp` against the kernel's TCP, in network namespaces created by a test.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

const SLOWLIGHT: &str = env!("CARGO_BIN_EXE_slowlight");
/// Program of the kernel's side: runs one case of a test, and fails if the case fails.
const PEER: &str = include_str!("kernel_tcp/peer.py");

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Whether namespaces and devices are possible here; prints the reason if not.
fn possible() -> bool {
    let is_root = fs::metadata("/proc/self").is_ok_and(|own| own.uid() == 0);
    if !is_root {
        testing::skipped!("only root can make network namespaces everywhere");
        return false;
    }
    if fs::File::options().read(true).write(true).open("/dev/net/tun").is_err() {
        testing::skipped!("/dev/net/tun cannot be opened");
        return false;
    }
    true
}

/// Bytes of each transferred file with an option switched: `SLOWLIGHT_TCP_BYTES`.
fn bytes() -> u64 {
    let given = std::env::var("SLOWLIGHT_TCP_BYTES");
    given.map_or(1_000_000, |bytes| bytes.parse().unwrap())
}

/// Runs the kernel's side in its own namespace.
fn peer(folder: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new("timeout");
    // The duration of the program, which counts itself.
    let limit = (60 + bytes() / 5_000_000).to_string();
    command.args([&limit, "unshare", "-n", "python3", "-c", PEER, SLOWLIGHT]);
    command.arg(folder).args(arguments).output().unwrap()
}

/// Runs a case that must succeed; returns its output.
fn carried_out(arguments: &[&str]) -> String {
    let folder = tempfile::tempdir().unwrap();
    let output = peer(folder.path(), arguments);
    let message = text(&output.stdout) + &text(&output.stderr);
    assert!(output.status.success(), "{arguments:?}: {message}");
    text(&output.stdout)
}

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap()
}

#[test]
fn files_arrive_intact_in_both_roles_and_directions() {
    if !possible() {
        return;
    }
    for way in ["send", "recv", "listen-sends", "connect-receives"] {
        carried_out(&[way, "5000000"]);
    }
}

#[test]
fn files_arrive_intact_with_every_option_switched() {
    if !possible() {
        return;
    }
    let options = [
        "--congestion tahoe",
        "--congestion reno",
        "--congestion newreno",
        "--congestion vegas",
        "--congestion vegas-paper",
        "--congestion vegas-scps",
        "--congestion bic",
        "--congestion cubic-rfc9438",
        "--congestion bbr",
        "--congestion none",
        "--recovery newreno",
        "--recovery sack",
        "--recovery rate-halving",
        "--window-scale off",
        "--timestamps off",
        "--sack off",
        "--duplicate-sack off",
        "--rack off",
        "--tail-loss-probe off",
        "--limited-transmit off",
        "--undo off",
        "--ecn on",
        "--nagle off",
        "--minshall off",
        "--pacing on",
        "--ack-every 1",
        "--quick-acks 0",
        "--mss 536",
        "--initial-window rfc3390",
        "--after-pause restart",
        "--send-buffer 64KiB",
        "--receive-buffer 64KiB",
        "--rto-min 1s",
        "--rto-max 1s",
        "--rto-initial 3s",
        "--keep-alive 1s",
        "--robust off",
        "--ack-every 0",
        "--scps",
        "--scps --snack off",
        "--scps --assume corruption",
        "--scps --compress-headers",
        "--scps --snack bits --route-rate 500Mbit/s",
        "--mtu 9000",
        "--mtu 65535",
        "--mtu 576",
        "--timestamps off --sack off --window-scale off",
        "--address fd00:9::2/64 --kernel fd00:9::1",
    ];
    for option in options {
        let words: Vec<&str> = option.split(' ').collect();
        for way in ["send", "recv"] {
            let bytes = bytes().to_string();
            let arguments: Vec<&str> = [way, &bytes].into_iter().chain(words.clone()).collect();
            carried_out(&arguments);
        }
    }
}

#[test]
fn disabled_options_are_not_negotiated() {
    if !possible() {
        return;
    }
    let all = json(&carried_out(&["send", "100000", "--ecn", "on"]));
    let connection = &all["connection"];
    assert_eq!(connection["timestamps"], true, "{all}");
    assert_eq!(connection["sack"], true, "{all}");
    assert_eq!(connection["ecn"], true, "{all}");
    assert_eq!(connection["mss"], 1448, "{all}");
    assert_eq!(all["stack"]["bad_checksums"], 0, "{all}");
    assert_eq!(all["stack"]["malformed"], 0, "{all}");
    assert_eq!(all["stack"]["plain_tcp"], 0, "nothing else was wanted: {all}");
    // The kernel treats the offer of SCPS-TP as an unknown option.
    let scps = json(&carried_out(&["send", "100000", "--scps"]));
    assert_eq!(scps["connection"]["scps"], Value::Null, "{scps}");
    assert_eq!(scps["connection"]["sack"], true, "{scps}");
    assert_eq!(scps["stack"]["plain_tcp"], 1, "{scps}");
    let off = ["send", "100000", "--timestamps", "off", "--sack", "off", "--window-scale", "off"];
    let none = json(&carried_out(&off));
    let connection = &none["connection"];
    assert_eq!(connection["timestamps"], false, "{none}");
    assert_eq!(connection["sack"], false, "{none}");
    assert_eq!(connection["ecn"], false, "{none}");
    assert_eq!(connection["window_scale"]["own"], 0, "{none}");
    assert_eq!(connection["mss"], 1460, "{none}");
}

#[test]
fn unusual_connections_close_cleanly() {
    if !possible() {
        return;
    }
    let kinds = [
        "refused-by-kernel",
        "refused-by-us",
        "half-close",
        "zero-window",
        "kernel-killed",
        "simultaneous-close",
        "interrupted",
        "interface-down",
    ];
    for kind in kinds {
        carried_out(&[kind, "3000000"]);
    }
}

#[test]
fn runs_with_late_timers_are_not_trusted() {
    if !possible() {
        return;
    }
    let late = json(&carried_out(&["stopped", "300000", "--strict"]));
    let exactness = &late["exactness"];
    assert_eq!(exactness["trusted"], false, "{late}");
    assert!(exactness["late_most_us"].as_f64().unwrap() > 300_000.0, "{late}");
    let doubts = exactness["doubts"].to_string();
    assert!(doubts.contains("late (bound 10ms)"), "{doubts}");
    let bounds = ["--late", "10 min", "--late-most", "10 min"];
    let wide = json(&carried_out(&[&["stopped", "300000", "--strict"], &bounds[..]].concat()));
    assert_eq!(wide["exactness"]["trusted"], true, "{wide}");
    assert_eq!(wide["exactness"]["doubts"], serde_json::json!([]), "{wide}");
}

/// The program that plays both ends of an emulated link, in a folder of its own.
struct Script {
    folder: tempfile::TempDir,
}

impl Script {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("peer.py"), PEER).unwrap();
        Self { folder }
    }

    /// Command that plays an end.
    fn end(&self, arguments: &str) -> String {
        let place = self.folder.path().display();
        format!("python3 {place}/peer.py {SLOWLIGHT} {place} {arguments}")
    }

    /// Runs both ends over a link with these options; they must succeed. Returns their output.
    fn run<'a>(
        &self,
        link: impl IntoIterator<Item = &'a str>,
        far: &str,
        near: &str,
    ) -> (String, String) {
        let mut command = Command::new("timeout");
        command.args(["90", SLOWLIGHT, "link"]).args(link);
        command.args(["--server", &self.end(far), "--", "sh", "-c", &self.end(near)]);
        let output = command.output().unwrap();
        let (out, err) = (text(&output.stdout), text(&output.stderr));
        assert!(output.status.success(), "{far}, {near}: {out}{err}");
        (out, err)
    }

    fn captures(&self) -> String {
        self.folder.path().join("captures").display().to_string()
    }

    /// Lines of tshark about the packets at the near end that match a filter.
    fn tshark(&self, filter: &str, options: &[&str]) -> String {
        let mut command = Command::new("tshark");
        command.args(["-r", &(self.captures() + "/near.pcapng"), "-Y", filter]).args(options);
        text(&command.output().unwrap().stdout)
    }
}

fn has_tshark() -> bool {
    let has = Command::new("tshark").arg("--version").output().is_ok();
    if !has {
        testing::skipped!("there is no tshark");
    }
    has
}

/// Over an emulated link that loses packets or changes their order, to a kernel at its far end.
#[test]
fn files_arrive_intact_over_lossy_reordering_links() {
    if !possible() {
        return;
    }
    let script = Script::new();
    // Some 30 packets fall within 3 ms, so delayed ones look lost to a sender that counts three
    // duplicates.
    let links = [
        ("--per 0.01", ""),
        ("--per 0.05", ""),
        ("--per 0.05", "--sack off --timestamps off"),
        ("--per 0.01|--reorder 0.02+3 ms", ""),
        ("--reorder 0.3+2 ms", ""),
    ];
    for (link, way) in links.iter().flat_map(|link| [(link, "send"), (link, "recv")]) {
        let (errors, options) = *link;
        let errors_of_link = errors.split('|').flat_map(|option| option.splitn(2, ' '));
        let (out, _) = script.run(
            ["--delay", "5 ms", "--rate", "100 Mbit/s"].into_iter().chain(errors_of_link),
            &format!("far-{way} 1000000"),
            &format!("near-{way} 1000000 {options}"),
        );
        if way == "send" && errors.contains("--per") {
            let report = json(&out);
            assert!(report["connection"]["retransmissions"].as_u64().unwrap() > 0, "{report}");
        }
    }
}

/// Simultaneous open with SYNs 2 s in flight gives one connection (RFC 9293 §3.5).
#[test]
fn simultaneous_open_gives_one_connection() {
    if !possible() {
        return;
    }
    let script = Script::new();
    let link = ["--delay", "2 s", "--pcap", &script.captures()];
    let (out, err) = script.run(link, "far-opens-too 20000", "near-opens-too 20000");
    if !has_tshark() {
        return;
    }
    for host in ["10.9.0.2", "10.0.0.1"] {
        let syn = format!("tcp.flags.syn == 1 && tcp.flags.ack == 0 && ip.src == {host}");
        assert!(!script.tshark(&syn, &[]).is_empty(), "{host} sent no SYN: {out}{err}");
    }
}

#[test]
fn packets_are_in_order_for_tshark() {
    if !possible() || !has_tshark() {
        return;
    }
    let script = Script::new();
    let link = ["--delay", "5 ms", "--per", "0.02", "--pcap", &script.captures()];
    script.run(link, "far-send 500000", "near-send 500000");
    let mut options = vec!["-o", "tcp.check_checksum:TRUE", "-o", "ip.check_checksum:TRUE"];
    // Otherwise tshark assumes the usual protocol of this port.
    options.extend(["-d", "tcp.port==5000,data"]);
    let wrong = "_ws.malformed || tcp.checksum.status == 0 || ip.checksum.status == 0";
    assert_eq!(script.tshark(wrong, &options), "");
    let good = "ip.src == 10.9.0.2 && tcp.len > 0 && tcp.checksum.status == 1";
    let good = script.tshark(good, &options);
    assert!(good.lines().count() > 300, "{good}");
}

#[test]
fn impossible_options_are_refused_with_a_remedy() {
    let output = Command::new(SLOWLIGHT).args(["tcp", "send", "--help"]).output().unwrap();
    let help = text(&output.stdout);
    let (_, scps) = help.split_once("SCPS-TP:").unwrap();
    for option in ["--robust", "--timeout", "--json", "--quiet"] {
        assert!(help.contains(option) && !scps.contains(option), "{help}");
    }
    if possible() {
        let mut command = Command::new("setpriv");
        command.args(["--reuid", "65534", "--clear-groups", SLOWLIGHT, "tcp", "listen", "9"]);
        let error = text(&command.output().unwrap().stderr);
        let remedies = ["unshare -rn", "chmod 0666 /dev/net/tun"];
        // In a folder of root the program does not start.
        let starts = !error.contains("Permission denied") || error.contains("tun");
        assert!(!starts || remedies.iter().any(|remedy| error.contains(remedy)), "{error}");
    }
}
