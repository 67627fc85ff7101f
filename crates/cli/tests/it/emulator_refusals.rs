//! Refusals of the emulator, each with a remedy.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::process::{Command, Output, Stdio};

use crate::guard::guarded;
use crate::world::{possible, text};

const SLOWLIGHT: &str = env!("CARGO_BIN_EXE_slowlight");
/// World of two hosts, with `RATE` and `TO` as placeholders.
const SCENARIO: &str = r#"
seed = 1
links = [
    { from = "lander", to = "orbiter", rate = "RATE", delay = "1 ms" },
    { from = "orbiter", to = "lander", rate = "8 Mbit/s", delay = "1 ms" },
]
transfers = [{ from = "lander", to = "TO", size = "1 kB" }]
"#;

fn slowlight(arguments: &[&str]) -> Output {
    Command::new(SLOWLIGHT).args(arguments).stdin(Stdio::null()).output().unwrap()
}

/// Checks that a command line is refused as wrong usage, with these texts.
fn refused(arguments: &[&str], expected: &[&str]) {
    let output = slowlight(arguments);
    let reply = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{arguments:?}: {reply}");
    for part in expected {
        assert!(reply.contains(part), "{arguments:?}: no {part:?} in: {reply}");
    }
    assert!(output.stdout.is_empty(), "{arguments:?}: {}", text(&output.stdout));
}

#[test]
fn impossible_quantities_are_refused() {
    for (option, value, expected) in [
        ("--rate", "-5 Mbit/s", "out of range for a rate: 0, or from 1 bit/s to 18 Ebit/s"),
        ("--rate", "0.1 bit/s", "out of range for a rate: 0, or from 1 bit/s"),
        ("--rate", "99999999999 Gbit/s", "to 18 Ebit/s"),
        ("--rate", "fast", "write one like \"10 Mbit/s\""),
        ("--rate", "nan Mbit/s", "write one like \"10 Mbit/s\""),
        ("--rate", "10", "write it with one, like \"10 bit/s\" or \"10 Mbit/s\""),
        ("--rate", "10 Mbits/s", "did you mean \"Mbit/s\"?"),
        ("--return-rate", "-1 bit/s", "out of range for a rate"),
        ("--delay", "-1 s", "--delay"),
        ("--delay", "5", "like \"5 ms\" or \"5 s\""),
        ("--per", "2", "a probability: from 0 to 1"),
        ("--mtu", "20B", "no protocol works with less than 60 B"),
        ("--mtu", "1MB", "the emulator carries packets of 68 to 65535"),
        ("--outage", "5 s", "10 s+30 s"),
        ("--outage-every", "5 s+60 s", "shorter"),
        ("--burst", "0.1", "0.001+0.2"),
        ("--bucket", "8 Mbit/s", "8 Mbit/s+64 KiB"),
        ("--on-error", "lose", "`damage`"),
        ("--loss", "1%", "the option is `--per 1%`"),
    ] {
        refused(&["link", option, value, "--", "true"], &[expected]);
    }
}

#[test]
fn contradictory_options_are_refused() {
    let late = ["--late", "20 ms", "--late-most", "10 ms"];
    for command in [&["link"][..], &["emu", "up"]] {
        let program: &[&str] = if command == ["link"] { &["--", "true"] } else { &[] };
        refused(&[command, &late, program].concat(), &["--late 20 ms is more than --late-most 10"]);
    }
    let outages = ["link", "--outage", "10 s+30 s", "--outage-every", "60 s+5 s", "--", "true"];
    refused(&outages, &["cannot be used with"]);
    let waits = ["link", "--server", "true", "--wait-for", "0", "--", "true"];
    refused(&waits, &["--wait-for must be between 1 and 65535"]);
}

#[test]
fn unknown_names_are_refused() {
    let did_you_mean = |name: &str| format!("did you mean \"{name}\"?");
    let geo = did_you_mean("geo");
    refused(&["link", "--link", "gep", "--", "true"], &[&geo, "links: terrestrial, leo"]);
    let scp = did_you_mean("scp");
    refused(&["emu", "compare", "--tool", "scpp"], &["no tool \"scpp\"", &scp, "sftp"]);
    let cfdp = did_you_mean("cfdp");
    refused(&["emu", "compare", "--protocol", "cfpd"], &["no protocol \"cfpd\"", &cfdp]);
    let own = ["emu", "compare", "--protocol", "sftp"];
    refused(&own, &["sftp runs in the simulator", "use --tool sftp"]);
    let here = ["emu", "compare", "--protocol", "telnet"];
    refused(&here, &["telnet runs in the simulator"]);
    refused(&["emu", "run", "/no/such.toml"], &["/no/such.toml: "]);
}

#[test]
fn invalid_scenarios_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| {
        let path = folder.path().join(name);
        fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let of = |rate: &str, to: &str| SCENARIO.replace("RATE", rate).replace("TO", to);
    let unknown = write("unknown.toml", &of("8 Mbit/s", "orbitr"));
    let expected =
        ["transfers[0].to: no link begins or ends at \"orbitr\"", "did you mean \"orbiter\"?"];
    for command in ["run", "up"] {
        refused(&["emu", command, &unknown], &expected);
    }
    let negative = write("negative.toml", &of("-8 Mbit/s", "orbiter"));
    refused(&["emu", "run", &negative], &["line 4", "\"-8 Mbit/s\" is out of range for a rate"]);
    let lonely = of("8 Mbit/s", "orbiter").replace("to = \"lander\"", "to = \"landr\"");
    let lonely = write("lonely.toml", &lonely);
    refused(&["emu", "run", &lonely], &["no links lead back", "did you mean \"landr\"?"]);
    let good = write("good.toml", &of("8 Mbit/s", "orbiter"));
    let expected = ["no such host", "lander, orbiter"];
    refused(&["emu", "run", &good, "--on", "relay", "--", "true"], &expected);
}

#[test]
fn missing_programs_are_refused() {
    for (tool, program) in [("http-wget", "wget"), ("nuttcp", "nuttcp"), ("iperf3-cubic", "iperf3")]
    {
        let mut command = Command::new(SLOWLIGHT);
        command.args(["emu", "compare", "--tool", tool]).env("PATH", "/nonexistent");
        let output = command.stdin(Stdio::null()).output().unwrap();
        let reply = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{reply}");
        let expected =
            format!("there is no program {program}; it is in the package {program}: apt-get");
        assert!(reply.contains(&expected), "{reply}");
    }
}

/// A world that ends with the test.
struct World(String);

impl World {
    fn exec(&self, host: &str, program: &[&str]) -> Command {
        let mut command = Command::new(SLOWLIGHT);
        command.args(["emu", "exec", "--name", &self.0, host, "--"]).args(program);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }
}

impl Drop for World {
    fn drop(&mut self) {
        let _ = slowlight(&["emu", "down", "--name", &self.0]);
    }
}

#[test]
fn occupied_ports_at_the_far_end_are_reported() {
    if !possible(true) {
        return;
    }
    let world = World(format!("test-port-{}", std::process::id()));
    let output = slowlight(&["emu", "up", "--name", &world.0, "--delay", "0 s"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let folder = tempfile::tempdir().unwrap();
    let listen = |address: &str, root: &str| {
        let root = folder.path().join(root);
        fs::create_dir(&root).unwrap();
        let root = root.to_str().unwrap();
        let receive = ["recv", "--protocol", "cfdp", "--root", root, "--listen", address];
        world.exec("far", &[&[SLOWLIGHT][..], &receive].concat())
    };
    let mut first = guarded(&mut listen(":2502", "first"));
    let mut message =
        BufReader::new(first.child.stderr.take().unwrap()).lines().map(Result::unwrap);
    message.find(|line| line.contains("receiving on")).unwrap();
    let output = listen(":2502", "second").output().unwrap();
    let reply = text(&output.stderr);
    assert!(!output.status.success(), "{reply}");
    assert!(reply.contains("another program uses this port; choose another"), "{reply}");
    let output = listen("192.0.2.1:2502", "third").output().unwrap();
    let reply = text(&output.stderr);
    assert!(reply.contains("this machine does not have this address"), "{reply}");
    drop(world);
    first.child.wait().unwrap();
}
