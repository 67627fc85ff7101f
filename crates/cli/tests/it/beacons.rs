//! Beacons and UDP-Lite of the program itself, in a temporary network namespace with only a
//! loopback interface.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

use serde_json::Value;

/// Runs the test `name` again in its own namespace, at most a minute; `true` if this is that run.
fn inside(name: &str) -> bool {
    let setup = "ip link set lo up multicast on && ip route add 224.0.0.0/4 dev lo src 127.0.0.1 && \
         ip addr add 127.0.0.9/32 dev lo scope link";
    testing::namespace::is_inside(name, setup, 60)
}

fn slowlight(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_slowlight"));
    command.args(arguments).stdin(Stdio::null()).output().unwrap()
}

fn objects(output: &Output) -> Vec<Value> {
    assert!(output.status.success(), "{output:?}");
    let text = std::str::from_utf8(&output.stdout).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// `slowlight recv`, which does not outlive its test.
struct Server {
    child: Child,
    address: String,
}

impl Server {
    /// Starts it; the error is its output if it does not start.
    fn start(root: &Path, arguments: &[&str]) -> Result<Self, String> {
        let mut command = Command::new(env!("CARGO_BIN_EXE_slowlight"));
        command.args(["recv", "--protocol", "saratoga", "--root"]).arg(root).args(arguments);
        let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let mut message = String::new();
        let address = lines.by_ref().map(Result::unwrap).find_map(|line| {
            message += &line;
            let (address, _) = line.strip_prefix("receiving on ")?.split_once(' ')?;
            Some(address.to_owned())
        });
        let Some(address) = address else {
            child.wait().unwrap();
            return Err(message);
        };
        // A full pipe would stop it.
        std::thread::spawn(move || lines.for_each(drop));
        Ok(Self { child, address })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn peers_are_discovered_by_beacon() {
    if !inside("beacons::peers_are_discovered_by_beacon") {
        return;
    }
    let place = tempfile::tempdir().unwrap();
    let (one, two) = (place.path().join("one"), place.path().join("two"));
    [&one, &two].into_iter().for_each(|root| std::fs::create_dir(root).unwrap());
    let beacon = ["--beacon", "200 ms"];
    let first = [&["--listen", "127.0.0.1:0", "--entity", "7", "--serve"][..], &beacon].concat();
    let first = Server::start(&one, &first).unwrap();
    // Receivers share the port of the group.
    let second =
        [&["--listen", ":7542", "--eid", "second \u{1b}", "--interface", "lo"], &beacon[..]];
    let _second = Server::start(&two, &second.concat()).unwrap();

    let received = objects(&slowlight(&["peers", "--time", "1.5 s", "--json"]));
    let [second, other] = received.as_slice() else { panic!("{received:?}") };
    let (second, other) = if other["eid"] == "ipn:7.0" { (second, other) } else { (other, second) };
    assert_eq!(other["address"], first.address);
    assert_eq!(other["version"], 1);
    assert_eq!((&other["sends"], &other["receives"]), (&"yes".into(), &"yes".into()));
    assert_eq!((&other["streams"], &other["udp_lite"]), (&true.into(), &false.into()));
    assert_eq!(other["descriptor_bits"], 64);
    assert!(other["free_kib"].as_u64().unwrap() > 0);
    assert!(other["beacons"].as_u64().unwrap() >= 2, "{other}");
    assert_eq!((&second["eid"], &second["sends"]), (&"second \u{1b}".into(), &"not now".into()));
    assert_eq!(second["address"], "127.0.0.9:7542");

    let text = slowlight(&["peers", "--time", "1 s", "--interface", "lo"]);
    let text = String::from_utf8(text.stdout).unwrap();
    assert_eq!(text.lines().count(), 3, "{text}");
    assert!(text.starts_with("ADDRESS") && text.contains("second \\u{1b}"), "{text}");

    let nobody = slowlight(&["peers", "--time", "300 ms", "--group", "239.1.1.1"]);
    assert!(nobody.status.success() && nobody.stdout.is_empty() && nobody.stderr.is_empty());
}

/// Datagrams of UDP-Lite that left in this namespace.
fn lite_sent() -> u64 {
    let text = std::fs::read_to_string("/proc/net/snmp").unwrap();
    let numbers = text.lines().filter_map(|line| line.strip_prefix("UdpLite: ")).nth(1).unwrap();
    numbers.split(' ').nth(3).unwrap().parse().unwrap()
}

#[test]
fn files_cross_by_udp_lite() {
    if !inside("beacons::files_cross_by_udp_lite") {
        return;
    }
    let place = tempfile::tempdir().unwrap();
    let (root, here) = (place.path().join("root"), place.path().join("here"));
    [&root, &here].into_iter().for_each(|root| std::fs::create_dir(root).unwrap());
    let serves = ["--listen", "127.0.0.1:0", "--serve", "--allow-delete", "--udp-lite"];
    let server = match Server::start(&root, &serves) {
        Ok(server) => server,
        Err(message) => {
            assert!(message.contains("UDP-Lite is missing; leave out --udp-lite"), "{message}");
            testing::skipped!("{message}");
            return;
        }
    };
    let content: Vec<u8> = (0..200_000u32).map(|i| (i * 7 % 251) as u8).collect();
    std::fs::write(place.path().join("file"), &content).unwrap();
    let file = place.path().join("file");
    let run = |arguments: &[&str]| {
        let common = ["--protocol", "saratoga", "--timeout", "20 s"];
        let output = slowlight(&[arguments, &common].concat());
        assert!(output.status.success(), "{arguments:?}: {output:?}");
        lite_sent()
    };

    let sent = run(&["send", file.to_str().unwrap(), &server.address, "--udp-lite"]);
    assert_eq!(std::fs::read(root.join("file")).unwrap(), content);
    assert!(sent >= 137, "200,000 bytes in 137 datagrams of 1,472 at most, not {sent}");

    let into = ["--root", here.to_str().unwrap(), "--udp-lite"];
    let fetched = run(&[&["get", &server.address, "file"], &into[..]].concat());
    assert_eq!(std::fs::read(here.join("file")).unwrap(), content);
    assert!(fetched >= sent + 137);

    // Only content uses UDP-Lite, and only to peers that requested it.
    let into = ["--root", here.to_str().unwrap(), "--name", "again"];
    let plain = run(&[&["get", &server.address, "file"], &into[..]].concat());
    assert_eq!(std::fs::read(here.join("again")).unwrap(), content);
    assert_eq!(plain, fetched);
    assert_eq!(run(&["ls", &server.address, "--udp-lite"]), fetched);
    assert_eq!(run(&["rm", &server.address, "file", "--udp-lite"]), fetched);
    assert!(!root.join("file").exists());
}
