//! Path with a smaller MTU in the middle than at its ends: through a gateway with the kernel's TCP
//! and with slowlight's, and by `slowlight tcp`, over IPv4 and IPv6.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
#![expect(clippy::print_stderr, reason = "why a test is skipped, and what was measured")]

use std::fmt::Write as _;
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::PathBuf;
use std::process::Child;
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;

use crate::gateways::{PROGRAMS, possible};
use crate::staying::World;
use crate::wait::wait_for;
use crate::world::text;

const SLOWLIGHT: &str = env!("CARGO_BIN_EXE_slowlight");
/// Hosts on the path; between the routers packets have at most 1,280 bytes.
const HOSTS: [&str; 5] = ["client", "gate", "near-router", "far-router", "server"];
const LENGTH: &str = "300000";
/// Maximum time of a transfer on a busy machine: an undiscovered path MTU costs minutes.
const PATIENCE: Duration = Duration::from_secs(15);

fn scenario() -> String {
    let mut text = String::from("seed = 1\nabout = \"a path with a narrow middle\"\n");
    for pair in HOSTS.windows(2) {
        let narrow = pair == ["near-router", "far-router"];
        let mtu = if narrow { "mtu = \"1280 B\"\n" } else { "" };
        for (from, to) in [(pair[0], pair[1]), (pair[1], pair[0])] {
            write!(
                text,
                "[[links]]\nfrom = \"{from}\"\nto = \"{to}\"\nrate = \"20 Mbit/s\"\n\
                 delay = \"5 ms\"\n{mtu}"
            )
            .unwrap();
        }
    }
    text + "[[transfers]]\nfrom = \"client\"\nto = \"server\"\nsize = \"1 MB\"\n"
}

struct Path {
    world: World,
    folder: TempDir,
    /// Programs that run until the end.
    running: Vec<Child>,
}

impl Path {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("programs.py"), PROGRAMS).unwrap();
        let file = folder.path().join("narrow");
        fs::write(file.with_extension("toml"), scenario()).unwrap();
        Self { world: World::up(file.to_str().unwrap()), folder, running: Vec::new() }
    }

    fn at(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Starts a gateway with these settings, beside its interfaces. Returns the lines that it prints
    /// before it is ready.
    fn start_gateway(&mut self, more: &str) -> Vec<String> {
        let (config, json) = (self.at("gate.toml"), self.at("gate.json"));
        let least = "[lan]\ninterfaces = [\"client\"]\n[wan]\ninterfaces = [\"near-router\"]\n";
        fs::write(&config, format!("{least}{more}[limits]\nlinger = \"1 s\"\n")).unwrap();
        let (config, json) = (config.to_str().unwrap(), json.to_str().unwrap());
        let gateway = [SLOWLIGHT, "pep", config, "--json", json, "--interval", "200 ms"];
        let mut child = self.world.start("gate", &gateway);
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines().map_while(Result::ok);
        self.running.push(child);
        let before: Vec<_> =
            lines.by_ref().take_while(|line| line != "the gateway is ready").collect();
        // A full pipe would stop it.
        std::thread::spawn(move || lines.for_each(drop));
        before
    }

    /// Statistics of the gateway, once they fulfil a condition.
    fn statistics(&self, what: &str, holds: impl Fn(&Value) -> bool) -> Value {
        let path = self.at("gate.json");
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

    /// Starts a server, and waits until it listens.
    fn serve(&mut self, arguments: &[&str]) {
        let script = self.at("programs.py");
        let program = ["timeout", "170", "python3", script.to_str().unwrap()];
        let mut child = self.world.start("server", &[&program, arguments].concat());
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        self.running.push(child);
        assert_eq!(lines.next().unwrap().unwrap(), "listens");
        std::thread::spawn(move || lines.for_each(drop));
    }

    /// The time of a transfer to the server and back by the client's TCP.
    fn echo(&self, server: &str) -> Duration {
        let script = self.at("programs.py");
        let program =
            format!("SERVER={server} exec python3 {} many 5000 1 {LENGTH}", script.display());
        let start = Instant::now();
        let child = self.world.start("client", &["timeout", "60", "sh", "-c", &program]);
        let output = child.wait_with_output().unwrap();
        let took = start.elapsed();
        assert!(output.status.success(), "{server}: {}", text(&output.stderr));
        took
    }

    /// Carries data through the gateway, over IPv4 and IPv6.
    fn cross(&self, name: &str) {
        for server in ["server", "server-6"] {
            let took = self.echo(server);
            eprintln!("{name}, {server}: {LENGTH} bytes there and back in {took:.2?}");
            assert!(took < PATIENCE, "{name}, {server}: {took:?}");
        }
    }
}

impl Drop for Path {
    fn drop(&mut self) {
        for child in &mut self.running {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

#[test]
fn the_kernels_tcp_of_a_gateway_discovers_the_path_mtu() {
    if !possible() {
        return;
    }
    let mut path = Path::new();
    path.serve(&["echo", "5000"]);
    path.cross("no gateway");
    for host in HOSTS {
        let flush = "ip route flush cache; ip -6 route flush cache";
        path.world.reply(host, &["sh", "-c", flush]);
    }
    assert_eq!(path.start_gateway(""), [""; 0]);
    path.cross("kernel");
    let value = path.statistics("both are complete", |value| value["completed"] == 2);
    assert_eq!(value["accepted"], 2, "IPv6 is taken, too: {value}");
}

#[test]
fn a_gateway_reports_at_its_start_that_ipv6_bypasses_it() {
    if !possible() {
        return;
    }
    let mut path = Path::new();
    let lines = path.start_gateway("[intercept]\nipv6 = false\n");
    let [line] = &lines[..] else { panic!("{lines:?}") };
    assert!(line.contains("connections over IPv6 bypass the gateway"), "{line}");
    assert!(line.contains("intercept.ipv6 is false"), "{line}");
}

#[test]
fn our_tcp_of_a_gateway_discovers_the_path_mtu() {
    if !possible() {
        return;
    }
    // The second: reports do not arrive, because the gateway's host drops them.
    for reports in [true, false] {
        let mut path = Path::new();
        path.serve(&["echo", "5000"]);
        if !reports {
            let rules = "add table inet t; add chain inet t c { type filter hook prerouting \
                         priority -400; }; add rule inet t c icmp type 3 drop; \
                         add rule inet t c icmpv6 type 2 drop";
            assert_eq!(path.world.reply("gate", &["nft", rules]), "");
        }
        // As many distributions set it.
        let loose = "echo 2 > /proc/sys/net/ipv4/conf/all/rp_filter";
        assert_eq!(path.world.reply("gate", &["sh", "-c", loose]), "");
        assert_eq!(path.start_gateway("[wan.own]\n"), [""; 0]);
        path.cross(if reports { "own" } else { "own, no reports" });
        let value = path.statistics("both are complete", |value| value["completed"] == 2);
        let own = &value["own_tcp"];
        let counts = |name: &str| own[name].as_u64().unwrap();
        if reports {
            assert!(counts("path_mtu_reports") >= 2, "{value}");
        } else {
            assert_eq!(own["path_mtu_reports"], 0, "{value}");
            assert!(counts("black_holes") >= 2, "{value}");
        }
        assert!(own["exactness"]["late_most_us"].as_f64().is_some(), "{value}");
    }
}

#[test]
fn slowlight_tcp_discovers_the_path_mtu() {
    if !possible() {
        return;
    }
    let mut path = Path::new();
    path.serve(&["echo", "5000"]);
    for pair in HOSTS.windows(2) {
        for network in ["10.9.0.0/24", "fd99::/64"] {
            let route = ["ip", "route", "add", network, "dev", pair[0]];
            assert_eq!(path.world.reply(pair[1], &route), "");
        }
    }
    let forward = "for name in ipv4/ip_forward ipv6/conf/all/forwarding; do \
                   echo 1 > /proc/sys/net/$name; done";
    assert_eq!(path.world.reply("client", &["sh", "-c", forward]), "");
    let [file, back, json] = ["file", "back", "tcp.json"].map(|name| path.at(name));
    let data: Vec<u8> = (0..LENGTH.parse().unwrap()).map(|n: u32| (n / 251 + n) as u8).collect();
    fs::write(&file, &data).unwrap();
    let addresses = path.world.reply("server", &["hostname", "-I"]);
    let of = |has: char| addresses.split_whitespace().find(|it| it.contains(has)).unwrap();
    for (to, address, kernel) in [
        (format!("{}:5000", of('.')), "10.9.0.2/24", "10.9.0.1"),
        (format!("[{}]:5000", of(':')), "fd99::2/64", "fd99::1"),
    ] {
        let program = format!(
            "exec timeout 60 {SLOWLIGHT} tcp connect {to} --address {address} --kernel {kernel} \
             --json {} < {} > {}",
            json.display(),
            file.display(),
            back.display()
        );
        let child = path.world.start("client", &["sh", "-c", &program]);
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success(), "{to}: {}", text(&output.stderr));
        assert!(fs::read(&back).unwrap() == data, "{to}: other bytes came back");
        let value: Value = serde_json::from_slice(&fs::read(&json).unwrap()).unwrap();
        let seconds = value["seconds"].as_f64().unwrap();
        eprintln!("slowlight tcp, {to}: {LENGTH} bytes there and back in {seconds:.2} s");
        assert!(seconds < PATIENCE.as_secs_f64(), "{value}");
        let connection = &value["connection"];
        assert!(connection["path_mtu_reports"].as_u64() > Some(0), "{value}");
        assert_eq!(connection["black_holes"], 0, "{value}");
        let headers = if to.starts_with('[') { 72 } else { 52 };
        assert_eq!(connection["mss"], 1280 - headers, "{value}");
    }
}
