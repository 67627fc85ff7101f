//! Worlds in the background: control by commands, over the interface, and killed worlds.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use serde_json::Value;

use crate::guard::guarded;
use crate::refusals::printed;
use crate::wait::wait_for;
use crate::world::text;

mod transfers;

const SLOWLIGHT: &str = env!("CARGO_BIN_EXE_slowlight");

/// Whether worlds are possible here; prints the reason if not.
fn possible() -> bool {
    crate::world::possible(true)
}

/// Runs the program with its output in a file, since a world in the background could hold a pipe.
fn slowlight(arguments: &[&str]) -> Output {
    Command::new(SLOWLIGHT).arg("emu").args(arguments).stdin(Stdio::null()).output().unwrap()
}

/// A world that ends with the test.
struct World {
    name: String,
}

impl World {
    fn up(name: &str, options: &[&str]) -> (Self, Output) {
        let name = format!("test-{name}-{}", std::process::id());
        let output = slowlight(&[&["up", "--name", &name], options].concat());
        (Self { name }, output)
    }

    fn started(name: &str, options: &[&str]) -> Self {
        let (world, output) = Self::up(name, options);
        assert!(output.status.success(), "{}", text(&output.stderr));
        world
    }

    fn run(&self, command: &str, rest: &[&str]) -> Output {
        slowlight(&[&[command, "--name", &self.name], rest].concat())
    }

    /// Runs a command that must be refused as wrong usage; returns its error message.
    fn refused(&self, command: &str, rest: &[&str]) -> String {
        let output = self.run(command, rest);
        assert_eq!(output.status.code(), Some(2), "{}", text(&output.stderr));
        text(&output.stderr)
    }

    fn exec(&self, host: &str, program: &[&str]) -> Output {
        self.run("exec", &[&[host, "--"], program].concat())
    }

    fn status(&self) -> Value {
        let output = self.run("status", &["--json"]);
        assert!(output.status.success(), "{}", text(&output.stderr));
        serde_json::from_slice(&output.stdout).unwrap()
    }

    fn link(&self, name: &str) -> Value {
        let world = self.status();
        let links = world["links"].as_array().unwrap().clone();
        links.into_iter().find(|link| link["name"] == name).unwrap()
    }

    fn folder(&self) -> PathBuf {
        Path::new("/run/slowlight/emu").join(&self.name)
    }

    fn pid(&self) -> String {
        fs::read_to_string(self.folder().join("lock")).unwrap().trim().to_owned()
    }

    /// Sends a request over the socket; returns status and body.
    fn ask(&self, method: &str, path: &str, body: &str) -> (u16, String) {
        let stream = UnixStream::connect(self.folder().join("api.sock")).unwrap();
        exchange(stream, &request(method, path, "", body))
    }
}

impl Drop for World {
    fn drop(&mut self) {
        let _ = self.run("down", &[]);
    }
}

fn request(method: &str, path: &str, headers: &str, body: &str) -> String {
    let length = body.len();
    format!(
        "{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{headers}\
         Content-Type: application/json\r\nContent-Length: {length}\r\n\r\n{body}"
    )
}

fn exchange(mut stream: impl std::io::Read + std::io::Write, request: &str) -> (u16, String) {
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned())
}

/// Round trip of one `ping`, in ms.
fn round_trip(world: &World) -> f64 {
    let output = world.exec("near", &["ping", "-c", "1", "-W", "5", "far"]);
    let message = text(&output.stdout);
    let (_, rest) = message.split_once("time=").unwrap_or_else(|| panic!("{message}"));
    rest.split_once(" ms").unwrap().0.parse().unwrap()
}

#[test]
fn worlds_persist_and_change_across_programs() {
    if !possible() {
        return;
    }
    let world = World::started("round", &["--delay", "20 ms", "--rate", "8 Mbit/s"]);
    let before = round_trip(&world);
    assert!((40.0..60.0).contains(&before), "{before} ms");
    let output = world.run("set", &["--both", "near:far", "delay=100ms"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let after = round_trip(&world);
    assert!((200.0..220.0).contains(&after), "{after} ms");
    // A program has the same exit code, input, folder and environment as without a world.
    let mut command = Command::new(SLOWLIGHT);
    command.args(["emu", "exec", "--name", &world.name, "far", "--", "sh", "-c"]);
    command
        .arg("cat; pwd; echo $SLOWLIGHT_PEER $MARK; echo $SLOWLIGHT_EPOCH; exit 7")
        .env("MARK", "here");
    command.current_dir("/usr").stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut exec = guarded(&mut command);
    exec.child.stdin.take().unwrap().write_all(b"message\n").unwrap();
    let output = exec.child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(7));
    let printed = text(&output.stdout);
    let (printed, epoch) = printed.split_once("10.0.0.2 here\n").unwrap();
    assert_eq!(printed, "message\n/usr\n");
    assert!(epoch.starts_with("20") && epoch.ends_with("Z\n"), "{epoch}");
    assert_eq!(world.exec("far", &["no-such-program"]).status.code(), Some(127));
    let link = world.link("near:far");
    assert_eq!(
        (&link["settings"]["delay"], &link["settings"]["rate"]),
        (&"100 ms".into(), &"8 Mbit/s".into())
    );
    assert!(link["counters"]["delivered"]["packets"].as_u64().unwrap() >= 2, "{link}");
    let shown = text(&world.run("status", &[]).stdout);
    assert!(shown.contains("near:far") && shown.contains("10.0.0.1"), "{shown}");
    let folder = world.folder();
    assert_eq!(fs::metadata(&folder).unwrap().mode() & 0o777, 0o700);
    assert_eq!(fs::metadata(folder.join("api.sock")).unwrap().mode() & 0o777, 0o600);
    assert!(world.run("down", &[]).status.success());
    assert!(!folder.exists());
}

#[test]
fn outages_start_at_the_requested_time_and_are_reported() {
    if !possible() {
        return;
    }
    let world = World::started("outage", &["--delay", "1 ms"]);
    let mut events = UnixStream::connect(world.folder().join("api.sock")).unwrap();
    events.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    events.write_all(request("GET", "/events", "", "").as_bytes()).unwrap();
    let mut events = BufReader::new(events).lines().map(Result::unwrap);
    events.find(|line| line.starts_with("HTTP/1.1 200")).unwrap();
    let first_state = world.status()["now"].as_f64().unwrap();
    let output = world.run("set", &["near:far", "outage=0.3 s+0.5 s"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let mut next = |what: &str| -> Value {
        let line = events.find(|line| line.starts_with("data: ") && line.contains(what)).unwrap();
        serde_json::from_str(line.trim_start_matches("data: ")).unwrap()
    };
    assert_eq!(next("link-changed")["link"], "near:far");
    let (down, up) = (next("outage-began"), next("outage-ended"));
    assert_eq!((&down["link"], &up["link"]), (&"near:far".into(), &"near:far".into()));
    let at = |event: &Value| event["at"].as_f64().unwrap();
    assert!((0.3..1.0).contains(&(at(&down) - first_state)), "{down}, message at {first_state}");
    assert!((at(&up) - at(&down) - 0.5).abs() < 1e-6, "{down} {up}");
    assert_eq!(world.link("near:far")["up"], true);
}

#[test]
fn a_scenario_stays_in_the_foreground_until_it_is_terminated() {
    if !possible() {
        return;
    }
    let scenario = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scenarios/far-side.toml");
    let world = World { name: format!("test-scenario-{}", std::process::id()) };
    let folder = tempfile::tempdir().unwrap();
    let capture = folder.path().join("capture");
    let mut command = Command::new(SLOWLIGHT);
    command.args(["emu", "up", scenario, "--foreground", "--name", &world.name, "--pcap"]);
    command.arg(&capture).stdin(Stdio::null()).stderr(Stdio::piped());
    let mut running = guarded(&mut command);
    let mut message =
        BufReader::new(running.child.stderr.take().unwrap()).lines().map(Result::unwrap);
    message.find(|line| line.contains("is up")).unwrap();
    let status = world.status();
    let names = |key: &str| -> Vec<String> {
        let list = status[key].as_array().unwrap().iter();
        list.map(|one| one["name"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(names("hosts"), ["earth", "lander", "relay"]);
    assert!(names("links").contains(&"lander:relay".to_owned()), "{:?}", names("links"));
    let pid = running.child.id().to_string();
    assert!(Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
    assert!(message.any(|line| line.starts_with("lander -> relay: ")), "what became of packets");
    assert_eq!(running.child.wait().unwrap().code(), Some(0));
    assert!(!world.folder().exists());
    assert_eq!(fs::read_dir(capture).unwrap().count(), 3, "a file a host, complete");
}

#[test]
fn several_worlds_have_several_names() {
    if !possible() {
        return;
    }
    let one = World::started("one", &["--delay", "0 s"]);
    let two = World::started("two", &["--delay", "10 ms"]);
    assert!(round_trip(&one) < 20.0 && round_trip(&two) >= 20.0);
    let output = slowlight(&["up", "--name", &one.name]);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("runs already"), "{}", text(&output.stderr));
    let output = slowlight(&["status"]);
    let reply = text(&output.stderr);
    assert!(reply.contains("--name") && reply.contains(&one.name), "{reply}");
    let listed = text(&slowlight(&["list"]).stdout);
    assert!(listed.contains(&one.name) && listed.contains(&two.name), "{listed}");
}

#[test]
fn errors_name_the_invalid_value_and_the_remedy() {
    if !possible() {
        return;
    }
    let world = World::started("wrong", &["--delay", "0 s"]);
    let folder = tempfile::tempdir().unwrap();
    testing::snapshot!("worlds/commands.txt", |line| {
        let output = printed(folder.path(), &line.replace("WORLD", &world.name));
        output.replace(&world.name, "WORLD")
    });
    assert!(world.run("set", &["near:far", "outage=100 s+10 s"]).status.success());
    let reply = world.refused("set", &["near:far", "outage=105 s+10 s"]);
    assert!(
        reply.contains("another outage begins in") && reply.contains("outages=null"),
        "{reply}"
    );
    assert!(!reply.contains("outages["), "{reply}");
    assert_eq!(world.link("near:far")["settings"]["delay"], "0 s", "nothing was changed");
    let output = slowlight(&["status", "--name", "no-such-world"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains(&world.name), "{}", text(&output.stderr));
}

#[test]
fn occupied_ports_at_the_far_end_are_reported() {
    if !possible() {
        return;
    }
    let world = World::started("port", &["--delay", "0 s"]);
    let folder = tempfile::tempdir().unwrap();
    let script = format!(
        "cd {}; mkdir first second
        {SLOWLIGHT} recv --protocol cfdp --root first --listen :2502 2>log & trap 'kill $!' EXIT
        until grep -q 'receiving on' log; do sleep 0.01; done
        {SLOWLIGHT} recv --protocol cfdp --root second --listen :2502",
        folder.path().display()
    );
    let output = world.exec("far", &["bash", "-c", &script]);
    let reply = text(&output.stderr);
    assert!(!output.status.success(), "{reply}");
    assert!(reply.contains("another program uses this port; choose another"), "{reply}");
}

#[test]
fn tcp_addresses_require_the_token() {
    if !possible() {
        return;
    }
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let (_world, output) = World::up("taken", &["--listen", &address]);
    assert_eq!(output.status.code(), Some(1));
    assert!(
        text(&output.stderr).contains("another program listens there"),
        "{}",
        text(&output.stderr)
    );
    let (world, output) = World::up("token", &["--listen", "127.0.0.1:0"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let file = world.folder().join("token");
    assert_eq!(fs::metadata(&file).unwrap().mode() & 0o777, 0o600);
    let token = fs::read_to_string(file).unwrap().trim().to_owned();
    assert!(text(&output.stderr).contains(&token), "the token is printed once");
    let address = world.status()["listen"].as_str().unwrap().to_owned();
    let ask = |headers: &str| {
        let stream = TcpStream::connect(&address).unwrap();
        exchange(stream, &request("GET", "/hosts", headers, "")).0
    };
    assert_eq!(ask(""), 401);
    assert_eq!(ask(&format!("Authorization: Bearer {}0\r\n", &token[1..])), 401);
    assert_eq!(ask(&format!("Authorization: Bearer {token}\r\n")), 200);
}

#[test]
fn captures_and_commands_over_the_interface() {
    if !possible() {
        return;
    }
    let world = World::started("interface", &["--delay", "5 ms"]);
    let folder = tempfile::tempdir().unwrap();
    let body = format!("{{\"folder\": {:?}}}", folder.path());
    assert_eq!(world.ask("POST", "/capture", &body).0, 201);
    assert_eq!(world.ask("POST", "/capture", &body).0, 409, "there is one already");
    let body = r#"{"host": "near", "argv": ["sh", "-c", "ping -c 3 -i 0.1 far; echo to-err >&2; exit 3"]}"#;
    let (status, answer) = world.ask("POST", "/commands", body);
    assert_eq!(status, 201, "{answer}");
    let first_command: Value = serde_json::from_str(&answer).unwrap();
    let path = format!("/commands/{}", first_command["id"]);
    let look = || -> Value { serde_json::from_str(&world.ask("GET", &path, "").1).unwrap() };
    wait_for("the command to end", || look()["running"] == false);
    let ended = look();
    assert_eq!(ended["exit_code"], 3, "{ended}");
    let output = ended["output"].as_str().unwrap();
    assert!(output.contains("3 received") && output.contains("to-err"), "{output}");
    let (status, answer) = world.ask("DELETE", "/capture", "");
    let captured: Value = serde_json::from_str(&answer).unwrap();
    assert_eq!((status, captured["packets"].as_u64() >= Some(12)), (200, true), "{answer}");
    assert_eq!(captured["files"].as_array().unwrap().len(), 2, "{answer}");
    assert_eq!(world.ask("DELETE", "/capture", "").0, 409, "none runs");
    let body = r#"{"host": "near", "argv": ["sleep", "1000"]}"#;
    let (_, answer) = world.ask("POST", "/commands", body);
    let sleeping: Value = serde_json::from_str(&answer).unwrap();
    let path = format!("/commands/{}", sleeping["id"]);
    assert_eq!(world.ask("DELETE", &path, "").0, 202);
    let look = || -> Value { serde_json::from_str(&world.ask("GET", &path, "").1).unwrap() };
    wait_for("the command to be killed", || look()["exit_code"] == 137);
    let (status, answer) =
        world.ask("POST", "/commands", r#"{"host": "near", "argv": ["none-such"]}"#);
    assert_eq!((status, answer.contains("no such program")), (422, true), "{answer}");
    let (status, metrics) = world.ask("GET", "/metrics", "");
    assert_eq!(status, 200);
    let line = r#"slowlight_link_packets_total{link="near:far",outcome="delivered"} "#;
    let count = metrics.lines().find_map(|found| found.strip_prefix(line)).unwrap();
    assert!(count.parse::<u64>().unwrap() >= 3, "{metrics}");
}

#[test]
fn api_lists_the_captures_of_the_world() {
    if !possible() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let captures = folder.path().join("captures");
    let options = ["--pcap", captures.to_str().unwrap(), "--pcap-files", "3"];
    let world = World::started("captured", &options);
    let reply: Value = serde_json::from_str(&world.ask("GET", "/capture", "").1).unwrap();
    assert_eq!(reply["running"]["folder"], captures.to_str().unwrap(), "{reply}");
    assert_eq!(
        (&reply["running"]["files"], &reply["running"]["file_size"]),
        (&3.into(), &"256 MiB".into())
    );
    let (status, answer) = world.ask("DELETE", "/capture", "");
    assert_eq!((status, answer.contains("pcapng")), (200, true), "{answer}");
    assert!(world.ask("GET", "/capture", "").1.contains("null"));
}

/// Whether a process is alive, by a file that it keeps writing.
fn lives(file: &Path) -> bool {
    let now = || fs::read_to_string(file).unwrap_or_default();
    let before = now();
    std::thread::sleep(Duration::from_millis(200));
    now() != before
}

#[test]
fn background_processes_end_with_their_command_or_world() {
    if !possible() {
        return;
    }
    let world = World::started("background", &[]);
    let folder = tempfile::tempdir().unwrap();
    let start = |name: &str| {
        let file = folder.path().join(name);
        let daemon = format!("while :; do date +%N > {}; sleep 0.02; done", file.display());
        // It has another session, another parent and no environment.
        let argv = ["sh", "-c", &format!("env -i setsid sh -c '{daemon}' > /dev/null 2>&1 &")];
        let body = serde_json::json!({ "host": "near", "argv": argv }).to_string();
        let (status, answer) = world.ask("POST", "/commands", &body);
        assert_eq!(status, 201, "{answer}");
        let reply: Value = serde_json::from_str(&answer).unwrap();
        let path = format!("/commands/{}", reply["id"]);
        wait_for("the command to end", || {
            world.ask("GET", &path, "").1.contains("\"running\":false,\"exit_code\":0")
        });
        wait_for("what it left to live", || lives(&file));
        (path, file)
    };
    let (path, ended) = start("ended");
    let (_, other) = start("other");
    assert_eq!(world.ask("DELETE", &path, "").0, 202);
    wait_for("what it left to end", || !lives(&ended));
    wait_for("another command's to live on", || lives(&other));
    assert!(world.run("down", &[]).status.success());
    wait_for("the world's processes to end", || !lives(&other));
}

#[test]
fn killing_exec_kills_its_program() {
    if !possible() {
        return;
    }
    let world = World::started("orphan", &[]);
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("alive");
    let program = format!("while :; do date +%N > {}; sleep 0.02; done", file.display());
    let mut command = Command::new(SLOWLIGHT);
    command.args(["emu", "exec", "--name", &world.name, "near", "--", "sh", "-c", &program]);
    let mut exec = guarded(&mut command);
    wait_for("the program to live", || lives(&file));
    exec.child.kill().unwrap();
    exec.child.wait().unwrap();
    wait_for("the program to end", || !lives(&file));
}

#[test]
fn killed_and_terminated_worlds_leave_nothing() {
    if !possible() {
        return;
    }
    for (signal, name) in [("-KILL", "killed"), ("-TERM", "terminated")] {
        let world = World::started(name, &[]);
        let mark = format!("{}.75", 200_000 + std::process::id());
        let mut command = Command::new(SLOWLIGHT);
        command.args(["emu", "exec", "--name", &world.name, "near", "--", "sleep", &mark]);
        let mut exec = guarded(&mut command);
        let sleeps = || {
            let processes = fs::read_dir("/proc").unwrap().filter_map(Result::ok);
            let mut lines = processes.filter_map(|one| fs::read(one.path().join("cmdline")).ok());
            lines.any(|line| text(&line) == format!("sleep\0{mark}\0"))
        };
        wait_for("the program to run", sleeps);
        assert!(Command::new("kill").args([signal, &world.pid()]).status().unwrap().success());
        assert_eq!(exec.child.wait().unwrap().code(), Some(137), "it ends with its world");
        wait_for("everything to be gone", || !sleeps());
        if signal == "-KILL" {
            // The next command, perhaps of another test, removes its folder.
            let next = Command::new(SLOWLIGHT).args(["link", "--", "true"]).output().unwrap();
            assert!(next.status.success(), "{}", text(&next.stderr));
        }
        wait_for("the folder to be removed", || !world.folder().exists());
    }
}

#[test]
fn examples_of_the_manual_work() {
    if !possible() {
        return;
    }
    let curl = Command::new("curl").arg("--version").output();
    if !curl.is_ok_and(|output| output.status.success()) {
        testing::skipped!("there is no curl");
        return;
    }
    let manual = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/emulator.md");
    let manual = fs::read_to_string(manual).unwrap();
    let (_, after) = manual.split_once("With curl (a test runs these lines):\n\n```sh\n").unwrap();
    let (lines, _) = after.split_once("```").unwrap();
    let folder = tempfile::tempdir().unwrap();
    let world = World { name: format!("manual-{}", std::process::id()) };
    let capture = folder.path().join("capture");
    let lines = lines.replace("demo-capture", "CAPTURE").replace("demo", &world.name);
    let lines = lines.replace("/tmp/CAPTURE", &capture.display().to_string());
    let program = Path::new(SLOWLIGHT).parent().unwrap().display().to_string();
    let path = format!("{program}:{}", std::env::var("PATH").unwrap());
    let mut shell = Command::new("sh");
    shell.args(["-e", "-c", &lines]).env("PATH", path).stdin(Stdio::null());
    let output = shell.output().unwrap();
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{out}\n{err}");
    let expected = [
        "1 Mbit/s",
        "3 received",
        "completed",
        "event: outage-began",
        "slowlight_link_up",
        "pcapng",
    ];
    for expected in expected {
        assert!(out.contains(expected), "no {expected:?} in {out}\n{err}");
    }
    assert!(fs::read_dir(capture).unwrap().count() == 2 && !world.folder().exists());
}
