//! `slowlight pep` between real programs: a client, a gateway, a long link, a gateway, a server.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
#![expect(clippy::print_stderr, reason = "why a test is skipped, and what was measured")]

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;

use crate::gateways::PROGRAMS;
use crate::staying::World;
use crate::wait::wait_for;
use crate::world::text;

const SLOWLIGHT: &str = env!("CARGO_BIN_EXE_slowlight");
/// Gateways with the names of their interfaces, which are the names of their neighbours.
const GATES: [(&str, &str, &str); 2] =
    [("gate-a", "client", "gate-b"), ("gate-b", "server", "gate-a")];

/// Whether worlds with transparent proxies are possible here; prints the reason if not.
pub(crate) fn possible() -> bool {
    if !crate::gateways::possible() {
        return false;
    }
    let rules = "add table inet t; add chain inet t c { type filter hook prerouting priority 0; }; \
                 add rule inet t c meta nfproto ipv4 meta l4proto tcp tproxy ip to 127.0.0.1:9";
    let tried = Command::new("unshare").args(["-n", "nft", rules]).output().unwrap();
    if !tried.status.success() {
        testing::skipped!("this kernel has no transparent proxies: {}", text(&tried.stderr));
    }
    tried.status.success()
}

/// Two networks, with gateways between them.
struct Networks {
    world: World,
    folder: TempDir,
    gateways: [Option<Child>; 2],
}

impl Networks {
    /// Without gateways.
    fn plain() -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("programs.py"), PROGRAMS).unwrap();
        Self { world: World::up("gateways"), folder, gateways: [None, None] }
    }

    /// With gateways that have additional settings.
    fn with_gateways(more: &str) -> Self {
        let mut networks = Self::plain();
        for number in [0, 1] {
            networks.start_gateway(number, more);
        }
        networks
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn start_gateway(&mut self, number: usize, more: &str) {
        let (gate, lan, wan) = GATES[number];
        let config = self.path(&format!("{gate}.toml"));
        // Rules are removed a few round trips after the last connection.
        let limits = "[limits]\nlinger = \"3 s\"\n";
        let more = if more.contains("[limits]\n") {
            more.replace("[limits]\n", limits)
        } else {
            format!("{more}{limits}")
        };
        let text =
            format!("[lan]\ninterfaces = [\"{lan}\"]\n[wan]\ninterfaces = [\"{wan}\"]\n{more}");
        fs::write(&config, text).unwrap();
        let json = self.path(&format!("{gate}.json"));
        let _ = fs::remove_file(&json);
        let command = format!(
            "echo $$ > {pid}; exec {SLOWLIGHT} pep {config} --json {json} --interval '200 ms'",
            pid = self.path(&format!("{gate}.pid")).display(),
            config = config.display(),
            json = json.display(),
        );
        let mut child = self.world.start(gate, &["sh", "-c", &command]);
        let stderr = BufReader::new(child.stderr.take().unwrap());
        let mut message = Vec::new();
        let mut lines = stderr.lines();
        loop {
            match lines.next() {
                Some(Ok(line)) if line == "the gateway is ready" => break,
                Some(Ok(line)) => message.push(line),
                Some(Err(_)) | None => panic!("{gate} does not start: {message:?}"),
            }
        }
        // A full pipe would stop it.
        std::thread::spawn(move || lines.for_each(drop));
        self.gateways[number] = Some(child);
    }

    fn pid(&self, number: usize) -> String {
        let gate = GATES[number].0;
        fs::read_to_string(self.path(&format!("{gate}.pid"))).unwrap().trim().to_owned()
    }

    /// Sends a gateway a signal and waits for its end; returns its exit code.
    fn end_gateway(&mut self, number: usize, signal: &str) -> Option<i32> {
        let reply = self.world.reply(GATES[number].0, &["kill", signal, &self.pid(number)]);
        assert_eq!(reply, "");
        self.gateways[number].take().unwrap().wait().unwrap().code()
    }

    /// Statistics of a gateway, once they fulfil a condition.
    fn statistics(&self, number: usize, what: &str, holds: impl Fn(&Value) -> bool) -> Value {
        let path = self.path(&format!("{}.json", GATES[number].0));
        let mut last = Value::Null;
        wait_for(what, || {
            if let Ok(read) = fs::read(&path)
                && let Ok(value) = serde_json::from_slice(&read)
            {
                last = value;
            }
            holds(&last)
        });
        last
    }

    /// Bytes of memory that a gateway takes.
    fn resident(&self, number: usize) -> u64 {
        let command = format!("grep VmRSS /proc/{}/status", self.pid(number));
        let message = self.world.reply(GATES[number].0, &["sh", "-c", &command]);
        let kibibytes: u64 = message.split_whitespace().nth(1).unwrap().parse().unwrap();
        kibibytes << 10
    }

    /// Rules that are left in a gateway's kernel.
    fn rules(&self, number: usize) -> String {
        let command = "nft list ruleset; ip rule | grep -v '^\\(0\\|32766\\|32767\\):'; \
                       ip route show table 1513; ip link | grep -o 'slowlight[^:]*'";
        self.world.reply(GATES[number].0, &["sh", "-c", command]).trim().to_owned()
    }

    /// Starts one of the programs, and reads its first line if it prints one.
    fn start(&self, host: &str, arguments: &[&str]) -> Child {
        let script = self.path("programs.py");
        let program =
            [&["timeout", "170", "python3", script.to_str().unwrap()], arguments].concat();
        self.world.start(host, &program)
    }

    /// Starts a server, and waits until it listens.
    fn serve(&self, arguments: &[&str]) -> (Child, impl Iterator<Item = String> + use<>) {
        let mut child = self.start("server", arguments);
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
        assert_eq!(lines.next().as_deref(), Some("listens"));
        (child, lines)
    }

    /// Output of a client's program, which must succeed.
    fn client(&self, arguments: &[&str]) -> String {
        printed(self.start("client", arguments))
    }
}

impl Drop for Networks {
    fn drop(&mut self) {
        for child in self.gateways.iter_mut().flatten() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn printed(child: Child) -> String {
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{}{}", text(&output.stdout), text(&output.stderr));
    text(&output.stdout).trim().to_owned()
}

fn content(len: usize) -> Vec<u8> {
    (0..len).map(|n| (n * 7 + n / 251 + n / 65_536) as u8).collect()
}

/// Fetches a file by wget; returns the duration.
fn wget(networks: &Networks, bytes: usize) -> Duration {
    let data = content(bytes);
    let files = networks.path("files");
    fs::create_dir_all(&files).unwrap();
    fs::write(files.join("file"), &data).unwrap();
    let folder = files.to_str().unwrap();
    let command = ["python3", "-u", "-m", "http.server", "8000", "--directory", folder];
    let mut server = networks.world.start("server", &command);
    let mut lines = BufReader::new(server.stdout.take().unwrap()).lines();
    assert!(lines.next().unwrap().unwrap().contains("8000"));
    let got = networks.path("got");
    let started = Instant::now();
    let arguments = ["wget", "-q", "-T", "30", "-t", "1", "-O", got.to_str().unwrap()];
    let client = [&arguments[..], &["http://server:8000/file"]].concat();
    printed(networks.world.start("client", &client));
    let took = started.elapsed();
    server.kill().unwrap();
    let output = server.wait_with_output().unwrap();
    assert!(fs::read(&got).unwrap() == data, "the file is another");
    let (log, client) = (text(&output.stderr), networks.world.reply("client", &["hostname", "-I"]));
    let own = client.split_whitespace().any(|address| log.contains(address));
    assert!(own, "the server saw {log:?}, the client is {client:?}");
    took
}

fn goodput(bytes: usize, took: Duration) -> f64 {
    bytes as f64 * 8.0 / took.as_secs_f64() / 1e6
}

#[test]
fn a_file_crosses_and_nothing_is_left_behind() {
    if !possible() {
        return;
    }
    let mut networks = Networks::with_gateways("");
    let bytes = 3_000_000;
    let took = wget(&networks, bytes);
    eprintln!("wget: {bytes} bytes in {took:?}, {:.2} Mbit/s", goodput(bytes, took));
    for number in [0, 1] {
        let done = |value: &Value| value["completed"] == 1;
        let value = networks.statistics(number, "the connection is complete", done);
        assert_eq!((&value["accepted"], &value["open"]), (&1.into(), &0.into()), "{value}");
        assert!(value["bytes_to_clients"].as_u64().unwrap() > bytes as u64, "{value}");
        assert!(networks.rules(number).contains("slowlight_pep"));
    }
    // The gateway waits for an active connection.
    let (_server, _lines) = networks.serve(&["echo", "5000"]);
    let many = networks.start("client", &["many", "5000", "1", "1500000"]);
    networks.statistics(0, "it is open", |value| value["open"] == 1);
    assert_eq!(networks.end_gateway(0, "-TERM"), Some(0));
    printed(many);
    assert_eq!(networks.rules(0), "");
    // Also after SIGKILL.
    networks.end_gateway(1, "-KILL");
    wait_for("the rules are gone", || networks.rules(1).is_empty());
}

#[test]
fn a_file_crosses_by_scp() {
    if !possible() {
        return;
    }
    if !Path::new("/usr/sbin/sshd").exists() || Command::new("scp").output().is_err() {
        testing::skipped!("there are no sshd and scp");
        return;
    }
    let networks = Networks::with_gateways("");
    let bytes = 2_000_000;
    let took = scp(&networks, bytes);
    eprintln!("scp: {bytes} bytes in {took:?}, {:.2} Mbit/s", goodput(bytes, took));
    networks.statistics(0, "the connection is complete", |value| value["completed"] == 1);
}

/// Sends a file by scp; returns the duration.
fn scp(networks: &Networks, bytes: usize) -> Duration {
    let data = content(bytes);
    fs::write(networks.path("file"), &data).unwrap();
    let (key, host_key) = (networks.path("key"), networks.path("host_key"));
    for key in [&key, &host_key] {
        let mut keygen = Command::new("ssh-keygen");
        keygen.args(["-q", "-t", "ed25519", "-N", "", "-f", key.to_str().unwrap()]);
        assert!(keygen.status().unwrap().success());
    }
    fs::create_dir_all("/run/sshd").unwrap();
    let server = format!(
        "exec /usr/sbin/sshd -D -e -p 2222 -h {} -o AuthorizedKeysFile={} -o StrictModes=no \
         -o PidFile=none -o UsePAM=no -o PermitRootLogin=yes -o 'Subsystem=sftp internal-sftp' \
         -f /dev/null",
        host_key.display(),
        key.with_extension("pub").display()
    );
    let mut server = networks.world.start("server", &["sh", "-c", &server]);
    let mut lines = BufReader::new(server.stderr.take().unwrap()).lines();
    assert!(lines.next().unwrap().unwrap().contains("listening"));
    let got = networks.path("got");
    let client = format!(
        "exec scp -q -F /dev/null -P 2222 -i {} -o BatchMode=yes -o StrictHostKeyChecking=no \
         -o UserKnownHostsFile=/dev/null {} server:{}",
        key.display(),
        networks.path("file").display(),
        got.display()
    );
    let started = Instant::now();
    printed(networks.world.start("client", &["sh", "-c", &client]));
    let took = started.elapsed();
    server.kill().unwrap();
    server.wait().unwrap();
    assert!(fs::read(&got).unwrap() == data, "the file is another");
    took
}

#[test]
fn connections_beyond_the_limit_are_refused() {
    if !possible() {
        return;
    }
    let networks = Networks::with_gateways("[limits]\nconnections = 500\n");
    let (_server, mut lines) = networks.serve(&["echo", "5000"]);
    let before = networks.resident(0);
    let message = networks.client(&["many", "5000", "500", "2000"]);
    eprintln!("{message}; a gateway took {before} bytes before, {} after", networks.resident(0));
    assert!(message.starts_with("500 in"), "{message}");
    for number in [0, 1] {
        let done = |value: &Value| value["completed"] == 500;
        let value = networks.statistics(number, "all are complete", done);
        assert_eq!(value["open"], 0, "{value}");
        assert!(number == 1 || value["open_peak"] == 500, "{value}");
        assert_eq!(value["buffered"], 0, "{value}");
        // 1000 directions with a piece of 64 KiB each, if all were full.
        assert!(networks.resident(number) < before + (100 << 20));
    }
    let client = networks.world.reply("client", &["hostname", "-I"]);
    let own = client.split_whitespace().next().unwrap();
    let found: Vec<_> = lines.by_ref().take(500).collect();
    assert!(found.iter().all(|peer| peer.starts_with(own)), "{own}: {:?}", &found[..3]);

    let more = networks.start("client", &["many", "5000", "501", "100"]);
    let output = more.wait_with_output().unwrap();
    let message = text(&output.stderr);
    assert!(!output.status.success(), "{message}");
    assert!(message.contains("(1, [") && message.contains("ConnectionResetError"), "{message}");
    networks.statistics(0, "one is turned away", |value| value["turned_away"] == 1);
    networks.statistics(0, "the others are complete", |value| value["completed"] == 1000);
}

#[test]
fn fins_and_resets_cross_and_closed_ports_fail() {
    if !possible() {
        return;
    }
    let networks = Networks::with_gateways("[limits]\nbuffer = \"64KiB\"\n");
    let (server, lines) = networks.serve(&["odd-server", "5000"]);
    let message = networks.client(&["odd-client", "5000"]);
    assert_eq!(message, "as it should be");
    assert!(server.wait_with_output().unwrap().status.success());
    let found: Vec<_> = lines.collect();
    assert_eq!(found, ["server got 30000", "server saw reset"]);
    let message = networks.client(&["closed", "5999"]);
    let (how, seconds) = message.split_once(' ').unwrap();
    assert!(how == "reset" || how == "refused", "{message}");
    assert!(seconds.parse::<f64>().unwrap() < 5.0, "{message}");
    let refused = |value: &Value| value["not_connected"].as_u64() >= Some(1);
    networks.statistics(1, "the server is not reached", refused);
    // The bound holds although a reader is blocked.
    for number in [0, 1] {
        let value = networks.statistics(number, "all are over", |value| value["open"] == 0);
        assert!(value["buffered_peak"].as_u64().unwrap() <= 4 * 65_536, "{value}");
        assert_eq!(value["buffered"], 0, "{value}");
    }
}

#[test]
fn killed_far_gateways_are_reported_and_recover() {
    if !possible() {
        return;
    }
    killed("");
}

/// The far gateway is killed while bytes cross, and restarted.
fn killed(more: &str) {
    let mut networks = Networks::with_gateways(more);
    let (_server, _lines) = networks.serve(&["sink", "5000"]);
    let mut pours = networks.start("client", &["pour", "5000"]);
    let mut lines = BufReader::new(pours.stdout.take().unwrap()).lines();
    assert_eq!(lines.next().unwrap().unwrap(), "connected");
    let carries = |value: &Value| value["bytes_to_servers"].as_u64() > Some(100_000);
    networks.statistics(1, "bytes cross", carries);
    networks.end_gateway(1, "-KILL");
    let started = Instant::now();
    let how = lines.next().unwrap().unwrap();
    assert!(how.starts_with("reset"), "{how}");
    assert!(started.elapsed() < Duration::from_secs(10), "{:?}", started.elapsed());
    assert!(pours.wait().unwrap().success());
    networks.statistics(0, "nothing is open", |value| value["open"] == 0);
    // Without the far gateway connections pass directly, as the server itself replies.
    wait_for("the rules are gone", || networks.rules(1).is_empty());
    let (_server, _lines) = networks.serve(&["echo", "5001"]);
    networks.client(&["many", "5001", "5", "10000"]);
    networks.start_gateway(1, more);
    networks.client(&["many", "5001", "5", "10000"]);
    networks.statistics(1, "it carries again", |value| value["completed"] == 5);
    assert!(networks.resident(0) < 100 << 20);
}

#[test]
fn partial_downloads_never_count_as_complete() {
    if !possible() {
        return;
    }
    // If the reset is lost, keep-alives of an idle stream detect the end of its peer.
    let own = OWN.trim_end().trim_end_matches('}');
    let own = format!("{own}, keep_alive = {{ idle = \"2 s\", interval = \"1 s\" }} }}\n");
    for more in ["[wan.kernel]\nkeep_alive = \"2 s\"\n", &own] {
        killed_in_downloads(more);
    }
}

/// The far gateway is killed while bytes come from it over one connection, and over many.
fn killed_in_downloads(more: &str) {
    let mut networks = Networks::with_gateways(more);
    let (_server, _lines) = networks.serve(&["flood", "5000"]);
    for count in [1, 100] {
        let mut drains = networks.start("client", &["drain", "5000", &count.to_string()]);
        let mut lines = BufReader::new(drains.stdout.take().unwrap()).lines();
        assert_eq!(lines.next().unwrap().unwrap(), "connected");
        let all = |value: &Value| {
            value["connections"].as_array().is_some_and(|connections| {
                let carries = |one: &&Value| one["bytes_to_client"].as_u64() > Some(0);
                connections.iter().filter(carries).count() == count
            })
        };
        networks.statistics(0, "bytes cross", all);
        networks.end_gateway(1, "-KILL");
        let started = Instant::now();
        let line = lines.next().unwrap().unwrap();
        assert_eq!(line, format!("{count} reset"), "{more}");
        eprintln!("{count} reset within {:?}", started.elapsed());
        assert!(drains.wait().unwrap().success());
        networks.statistics(0, "nothing is open", |value| value["open"] == 0);
        wait_for("the rules are gone", || networks.rules(1).is_empty());
        networks.start_gateway(1, more);
    }
}

#[test]
fn excluded_ports_bypass_the_gateway() {
    if !possible() {
        return;
    }
    let networks = Networks::with_gateways("[intercept]\nports = \"5000-5010\"\nexcept = 5001\n");
    let (_first, _lines) = networks.serve(&["echo", "5000"]);
    let (_second, _lines) = networks.serve(&["echo", "5001"]);
    networks.client(&["many", "5001", "3", "5000"]);
    networks.client(&["many", "5000", "2", "5000"]);
    let value = networks.statistics(0, "two are complete", |value| value["completed"] == 2);
    assert_eq!(value["accepted"], 2, "{value}");
}

/// Slowlight's own TCP over the link, with a window that fits it.
const OWN: &str = "[wan.own]\ntcp = { send_buffer = \"2MB\", receive_buffer = \"2MB\" }\n";

#[test]
fn our_own_tcp_carries_over_the_link() {
    if !possible() {
        return;
    }
    let mut networks = Networks::with_gateways(OWN);
    let bytes = 3_000_000;
    let took = wget(&networks, bytes);
    eprintln!("wget: {bytes} bytes in {took:?}, {:.2} Mbit/s", goodput(bytes, took));
    let (_server, _lines) = networks.serve(&["odd-server", "5000"]);
    assert_eq!(networks.client(&["odd-client", "5000"]), "as it should be");
    let message = networks.client(&["closed", "5999"]);
    assert!(message.starts_with("reset") || message.starts_with("refused"), "{message}");
    let (_echo, _lines) = networks.serve(&["echo", "5001"]);
    networks.client(&["many", "5001", "100", "3000"]);
    for number in [0, 1] {
        let value = networks.statistics(number, "all are over", |value| value["open"] == 0);
        let own = &value["own_tcp"];
        assert!(own["segments_received"].as_u64() > Some(1000), "{value}");
        assert_eq!(own["bad_checksums"], 0, "{value}");
        assert_eq!(own["malformed"], 0, "{value}");
        assert_eq!(own["refused"], 0, "{value}");
    }
    // So does the kernel's TCP at the far end.
    assert_eq!(networks.end_gateway(1, "-INT"), Some(0));
    assert_eq!(networks.rules(1), "");
    networks.start_gateway(1, "");
    networks.client(&["many", "5001", "10", "30000"]);
    networks.end_gateway(0, "-KILL");
    wait_for("the rules are gone", || networks.rules(0).is_empty());
    networks.client(&["many", "5001", "10", "30000"]);
}

#[test]
fn our_own_tcp_is_reset_when_the_far_gateway_is_killed() {
    if !possible() {
        return;
    }
    killed(OWN);
}

#[test]
#[ignore = "a measurement, whose table is in docs/gateway.md"]
fn goodput_with_and_without() {
    let bytes = 10_000_000;
    let kernel = "[lan.kernel]\ncongestion = \"cubic\"\n[wan.kernel]\ncongestion = \"cubic\"\n";
    let rated = "[lan.kernel]\ncongestion = \"cubic\"\n\
                 [wan.kernel]\ncongestion = \"bbr\"\n";
    let scps = "[wan.own]\nprofile = \"scps-rate\"\nrate = \"7.6 Mbit/s\"\n\
                tcp = { send_buffer = \"2MB\", receive_buffer = \"2MB\" }\n";
    let sides = [
        ("none", None),
        ("cubic", Some(kernel)),
        ("bbr", Some(rated)),
        ("own", Some(OWN)),
        ("scps-rate", Some(scps)),
    ];
    for per in ["0", "1e-4"] {
        for (name, gateways) in sides {
            let networks = gateways.map_or_else(Networks::plain, Networks::with_gateways);
            let change = format!("per={per}");
            let set = networks.world.command("set", &["--both", "gate-a:gate-b", &change]).output();
            assert!(set.unwrap().status.success());
            let (http, ssh) = (wget(&networks, bytes), scp(&networks, bytes));
            let (http, ssh) = (goodput(bytes, http), goodput(bytes, ssh));
            eprintln!("per {per}, {name}: wget {http:.2} Mbit/s, scp {ssh:.2} Mbit/s");
        }
    }
}

#[test]
fn ipv6_crosses_when_enabled() {
    if !possible() {
        return;
    }
    let networks = Networks::with_gateways("[intercept]\nipv6 = true\n");
    let (_server, _lines) = networks.serve(&["echo", "5000"]);
    let script = networks.path("programs.py");
    let program = format!("SERVER=server-6 exec python3 {} many 5000 3 20000", script.display());
    printed(networks.world.start("client", &["sh", "-c", &program]));
    networks.client(&["many", "5000", "2", "20000"]);
    for number in [0, 1] {
        networks.statistics(number, "all are complete", |value| value["completed"] == 5);
    }
}

#[test]
fn impossible_settings_are_refused_with_a_remedy() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("gateway.toml");
    let message = |text: &str| {
        fs::write(&path, text).unwrap();
        let mut command = Command::new("unshare");
        command.args(["-n", SLOWLIGHT, "pep", path.to_str().unwrap()]);
        let output = command.output().unwrap();
        (output.status.code(), crate::world::text(&output.stderr))
    };
    let good = "[lan]\ninterfaces = [\"lo\"]\n[wan]\ninterfaces = [\"sat0\"]\n";
    let print = || {
        fs::write(&path, good).unwrap();
        let mut command = Command::new(SLOWLIGHT);
        command.args(["pep", path.to_str().unwrap(), "--print-rules"]);
        command.output().unwrap()
    };
    let output = print();
    let rules = text(&output.stdout);
    assert!(output.status.success() && rules.contains("tproxy ip to 127.0.0.1:7430"), "{rules}");
    if !possible() {
        return;
    }
    let (code, error) = message(good);
    assert_eq!(code, Some(2), "{error}");
    assert!(error.contains("there is no network interface \"sat0\""), "{error}");
    let output = Command::new("setpriv")
        .args(["--reuid", "65534", "--clear-groups", SLOWLIGHT, "pep", path.to_str().unwrap()])
        .output()
        .unwrap();
    let error = text(&output.stderr);
    // In a folder of root the program does not start.
    let starts = !error.contains("setpriv");
    assert!(!starts || error.contains("only root") || error.contains("cannot read"), "{error}");
}

#[test]
fn statistics_that_cannot_be_written_do_not_end_a_gateway() {
    if !possible() {
        return;
    }
    let networks = Networks::with_gateways("");
    let (json, in_the_way) = (networks.path("gate-a.json"), networks.path("gate-a.json.new"));
    // It writes that file and then renames it.
    wait_for("there is a folder in its place", || fs::create_dir(&in_the_way).is_ok());
    let _ = fs::remove_file(&json);
    let (_server, _lines) = networks.serve(&["echo", "5000"]);
    // Several round trips of 600 ms, with statistics every 200 ms.
    networks.client(&["many", "5000", "2", "20000"]);
    assert!(!json.exists());
    fs::remove_dir(&in_the_way).unwrap();
    networks.statistics(0, "they are written again", |value| value["completed"] == 2);
}

#[test]
fn gateways_may_restart_immediately() {
    if !possible() {
        return;
    }
    for more in ["", OWN] {
        let mut networks = Networks::with_gateways(more);
        let (_server, _lines) = networks.serve(&["echo", "5000"]);
        networks.client(&["many", "5000", "2", "20000"]);
        networks.statistics(0, "both are complete", |value| value["completed"] == 2);
        assert_eq!(networks.world.reply("gate-a", &["kill", "-TERM", &networks.pid(0)]), "");
        let mut before = networks.gateways[0].take().unwrap();
        let names = ["grep", "-o", "slowlight/pep/pep", "/proc/net/unix"];
        wait_for("its name is free", || networks.world.reply("gate-a", &names).is_empty());
        networks.start_gateway(0, more);
        // The earlier gateway removes only its own rules.
        assert!(before.wait().unwrap().success());
        networks.client(&["many", "5000", "3", "20000"]);
        networks.statistics(0, "it carries", |value| value["completed"] == 3);
        assert_ne!(networks.rules(0).contains("changed_early_demux"), more.is_empty());
        assert_eq!(networks.end_gateway(0, "-TERM"), Some(0));
        assert_eq!(networks.rules(0), "");
        let demux = ["cat", "/proc/sys/net/ipv4/tcp_early_demux"];
        assert_eq!(networks.world.reply("gate-a", &demux).trim(), "1");
    }
}

#[test]
fn gateways_of_the_same_name_do_not_interfere() {
    if !possible() {
        return;
    }
    let networks = Networks::with_gateways("");
    let config = networks.path("gate-a.toml");
    let message = networks.world.reply("gate-a", &[SLOWLIGHT, "pep", config.to_str().unwrap()]);
    assert!(message.contains("runs in this network namespace"), "{message}");
    assert!(networks.rules(0).contains("slowlight_pep"), "the first one goes on");
    let rules = networks.world.reply("gate-a", &["nft", "list", "ruleset"]);
    assert_eq!(rules.matches("table inet").count(), 1, "{rules}");
}
