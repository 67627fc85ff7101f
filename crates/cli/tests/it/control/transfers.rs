//! Transfers requested over the interface of a world.

use std::fs;
use std::io::{BufRead as _, BufReader, Lines, Write as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use super::{SLOWLIGHT, World, possible, request};
use crate::guard::guarded;
use crate::wait::wait_for;
use crate::world::text;

/// Requests a transfer from `near` to `far`; returns status and body.
fn ask(world: &World, more: &str) -> (u16, String) {
    world.ask("POST", "/transfers", &format!("{{\"from\": \"near\", \"to\": \"far\", {more}}}"))
}

/// Requests a transfer, which must begin.
fn begin(world: &World, more: &str) -> Value {
    let (status, answer) = ask(world, more);
    assert_eq!(status, 201, "{answer}");
    serde_json::from_str(&answer).unwrap()
}

/// Record of a transfer by the interface.
fn look(world: &World, id: u64) -> Value {
    serde_json::from_str(&world.ask("GET", &format!("/transfers/{id}"), "").1).unwrap()
}

/// Record of an ended transfer, by the interface.
fn ended(world: &World, id: u64) -> Value {
    wait_for("a transfer to end", || look(world, id)["state"] != "running");
    look(world, id)
}

/// Events of a world, from now on.
struct Events(Lines<BufReader<UnixStream>>);

impl Events {
    fn of(world: &World) -> Self {
        let events = UnixStream::connect(world.folder().join("api.sock")).unwrap();
        events.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        (&events).write_all(request("GET", "/events", "", "").as_bytes()).unwrap();
        let mut events = Self(BufReader::new(events).lines());
        events.find(|line| line.starts_with("HTTP/1.1 200"));
        events
    }

    fn find(&mut self, is_it: impl Fn(&str) -> bool) -> String {
        self.0.find_map(|line| Some(line.unwrap()).filter(|line| is_it(line))).unwrap()
    }

    /// The next event of a kind about a transfer.
    fn next(&mut self, kind: &str, id: u64) -> Value {
        let id = format!("\"id\":{id},");
        let is_it =
            |line: &str| line.starts_with("data: ") && line.contains(kind) && line.contains(&id);
        serde_json::from_str(self.find(is_it).trim_start_matches("data: ")).unwrap()
    }
}

/// Descriptions of a tool that copies the file, and of one that never ends.
fn adapters(folder: &Path) -> (PathBuf, PathBuf) {
    let server = "server = 'exec python3 -m http.server $PORT'\nready = 'tcp'";
    let client = "client = 'python3 -c \"import socket,sys; \
        socket.create_connection((sys.argv[1], int(sys.argv[2])))\" \"$PEER\" \"$PORT\" && \
        cp \"$FILE\" \"$OUT\"'";
    let (copies, slow) = (folder.join("mine.toml"), folder.join("slow.toml"));
    fs::write(&copies, format!("port = 4000\n{server}\n{client}\n")).unwrap();
    fs::write(&slow, "port = 4000\nclient = 'sleep 600'\n").unwrap();
    (copies, slow)
}

#[test]
fn transfers_over_the_interface_complete_or_are_stopped() {
    if !possible() {
        return;
    }
    let world = World::started("transfers", &["--delay", "20 ms", "--rate", "20 Mbit/s"]);
    let folder = tempfile::tempdir().unwrap();
    let (adapter, slow) = adapters(folder.path());
    let mut events = Events::of(&world);
    // Others use the link all the while.
    let ping = r#"{"host": "near", "argv": ["ping", "-i", "0.01", "far"]}"#;
    assert_eq!(world.ask("POST", "/commands", ping).0, 201);
    let begin = |more: &str| -> u64 {
        let transfer = begin(&world, more);
        assert_eq!(transfer["state"], "running", "{transfer}");
        transfer["id"].as_u64().unwrap()
    };
    let own = ["cfdp", "ltp", "saratoga", "norm"]
        .map(|protocol| begin(&format!("\"protocol\": \"{protocol}\", \"size\": \"100 kB\"")));
    // Two servers at once, which start with the same port.
    let tools = [(); 2].map(|()| begin(&format!("\"tool\": {adapter:?}, \"file\": {adapter:?}")));
    let endless = begin(&format!("\"tool\": {slow:?}"));
    let carriers = ["cfdp", "ltp", "saratoga", "norm", "", ""];
    for (id, protocol) in own.into_iter().chain(tools).zip(carriers) {
        let reply = ended(&world, id);
        assert_eq!(
            (&reply["state"], &reply["why"]),
            (&"completed".into(), &Value::Null),
            "{reply}"
        );
        let result = &reply["result"];
        assert_eq!((&result["verified"], &reply["to"]), (&true.into(), &"far".into()), "{reply}");
        assert!(result["protocol"] == protocol || result["verdict"] == "identical", "{reply}");
        // 100 kB take 40 ms on the line, and light 20 ms.
        let seconds = result["delivered_s"].as_f64().unwrap();
        assert!((0.04..10.0).contains(&seconds), "{reply}");
    }
    let running = look(&world, endless);
    assert_eq!((&running["state"], &running["trusted"]), (&"running".into(), &Value::Null));
    assert_eq!(world.ask("DELETE", &format!("/transfers/{endless}"), "").0, 202);
    assert_eq!(ended(&world, endless)["state"], "stopped");
    let all: Value = serde_json::from_str(&world.ask("GET", "/transfers", "").1).unwrap();
    assert_eq!(all.as_array().unwrap().len(), 7);
    assert_eq!(events.next("transfer-started", own[0])["from"], "near");
    assert_eq!(events.next("transfer-ended", own[0])["state"], "completed");
    assert_eq!(events.next("transfer-ended", endless)["state"], "stopped");
    // An active transfer does not prevent the end of the world.
    begin(&format!("\"tool\": {slow:?}"));
    begin("\"protocol\": \"cfdp\", \"size\": \"100 MB\"");
    let output = world.run("down", &[]);
    assert!(output.status.success() && !world.folder().exists(), "{}", text(&output.stderr));
}

#[test]
fn transfer_servers_have_their_own_ports() {
    if !possible() {
        return;
    }
    let world = World::started("ports", &["--delay", "20 ms", "--rate", "20 Mbit/s"]);
    let folder = tempfile::tempdir().unwrap();
    let tells = folder.path().join("tells.toml");
    let client =
        "client = 'echo $PORT $PORT2 > ports; echo \"{\\\"rate\\\": $PORT$PORT2}\"; sleep 1'";
    fs::write(&tells, format!("port = 4000\nport2 = 4001\ngoodput = '/rate'\n{client}\n")).unwrap();
    let begin = |tool: &str| -> u64 {
        begin(&world, &format!("\"tool\": {tool:?}, \"size\": \"100 kB\""))["id"].as_u64().unwrap()
    };
    let tells = tells.to_str().unwrap();
    // A refused request uses no number.
    assert_eq!(ask(&world, "\"tool\": \"spc\"").0, 422);
    let both = [begin(tells), begin(tells)];
    assert_eq!(both, [1, 2]);
    let ports = |id| ended(&world, id)["result"]["goodput_bps"].as_f64().unwrap() as u64;
    let reply = both.map(ports);
    let mut four: Vec<_> = reply.iter().flat_map(|two| [two / 10_000, two % 10_000]).collect();
    four.sort_unstable();
    assert_eq!(four, [4000, 4001, 4002, 4003], "{reply:?}");
    assert_eq!(ports(begin(tells)), 40_004_001, "they were given back");
    if !Command::new("nuttcp").arg("-V").output().is_ok_and(|output| output.status.success()) {
        testing::skipped!("there is no nuttcp");
        return;
    }
    // Another transfer uses its first port, so the control port is the default data port.
    let first = folder.path().join("first.toml");
    fs::write(&first, "port = 5000\nclient = 'echo held; sleep 3'\n").unwrap();
    begin(first.to_str().unwrap());
    let both = [begin("nuttcp"), begin("nuttcp")];
    for id in both.into_iter().chain([begin("nuttcp")]) {
        let reply = ended(&world, id);
        assert_eq!(reply["result"]["verdict"], "measured", "{reply}");
    }
}

/// A tool whose preparation or server never gets ready does not block other transfers.
#[test]
fn ending_the_world_stops_transfers_in_preparation() {
    if !possible() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let adapter = |name: &str, text: &str| {
        let path = folder.path().join(name);
        fs::write(&path, format!("port = 4000\nclient = 'true'\n{text}\n")).unwrap();
        path
    };
    let deaf = adapter("deaf.toml", "server = 'sleep 100'\nready = 'tcp'");
    let slow = adapter("slow.toml", "prepare = 'sleep 100'");
    let capture = folder.path().join("capture");
    let world = World { name: format!("test-prepared-{}", std::process::id()) };
    let mut command = Command::new(SLOWLIGHT);
    command.args(["emu", "up", "--foreground", "--name", &world.name, "--pcap"]).arg(&capture);
    command.stdin(Stdio::null()).stderr(Stdio::piped());
    let mut running = guarded(&mut command);
    let mut lines =
        BufReader::new(running.child.stderr.take().unwrap()).lines().map(Result::unwrap);
    lines.find(|line| line.contains("is up")).unwrap();
    let begin = |tool: &Path| {
        let transfer = begin(&world, &format!("\"tool\": {tool:?}"));
        // Until it is being prepared.
        std::thread::sleep(Duration::from_millis(300));
        format!("/transfers/{}", transfer["id"])
    };
    for tool in [&deaf, &slow] {
        let path = begin(tool);
        let started = Instant::now();
        assert_eq!(world.ask("DELETE", &path, "").0, 202);
        wait_for("it to end", || world.ask("GET", &path, "").1.contains("\"state\":\"stopped\""));
        assert!(started.elapsed() < Duration::from_secs(3), "{:?}", started.elapsed());
    }
    begin(&deaf);
    begin(&slow);
    let started = Instant::now();
    let pid = running.child.id().to_string();
    assert!(Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
    assert!(lines.any(|line| line.starts_with("near -> far: ")), "what became of packets");
    assert_eq!(running.child.wait().unwrap().code(), Some(0));
    assert!(started.elapsed() < Duration::from_secs(4), "{:?}", started.elapsed());
    assert_eq!(fs::read_dir(capture).unwrap().count(), 2, "a file a host, complete");
}

#[test]
fn transfers_wait_for_their_path_to_come_up() {
    if !possible() {
        return;
    }
    let world = World::started("down-first", &["--delay", "20 ms", "--rate", "20 Mbit/s"]);
    for protocol in ["cfdp", "ltp"] {
        let output = world.run("set", &["--both", "near:far", "outage=0 s+3 s"]);
        assert!(output.status.success(), "{}", text(&output.stderr));
        let output = world.run("transfer", &["--size", "100kB", "--protocol", protocol, "--json"]);
        let reply: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(reply["state"], "completed", "{reply}");
        let seconds = reply["result"]["delivered_s"].as_f64().unwrap();
        assert!((0.5..10.0).contains(&seconds), "{reply}");
    }
}

#[test]
fn invalid_transfers_are_refused() {
    if !possible() {
        return;
    }
    let world = World::started("refused", &[]);
    testing::snapshot!("worlds/transfers.txt", |body| {
        let (status, answer) = world.ask("POST", "/transfers", body);
        format!("{status} {answer}")
    });
}

#[test]
fn commands_carry_files() {
    if !possible() {
        return;
    }
    let world = World::started("carry", &["--delay", "20 ms", "--rate", "20 Mbit/s"]);
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("some file");
    fs::write(&file, [7; 50_000]).unwrap();
    let output = world.run("transfer", &["--file", file.to_str().unwrap(), "--protocol", "cfdp"]);
    let shown = text(&output.stdout);
    assert!(output.status.success(), "{shown}{}", text(&output.stderr));
    assert!(shown.contains("some file  near -> far") && shown.contains("verified"), "{shown}");
    let back = ["--from", "far", "--to", "near", "--size", "10kB", "--protocol", "ltp", "--json"];
    let output = world.run("transfer", &back);
    let reply: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(
        (&reply["state"], &reply["result"]["file_bytes"]),
        (&"completed".into(), &10_000.into())
    );
    assert_eq!(reply["result"]["from"], "far");
    let doubts = reply["doubts"].as_array().unwrap();
    assert_eq!(reply["trusted"], doubts.is_empty(), "{reply}");
    // A timeout counts as failed, an interruption as stopped.
    world.run("set", &["near:far", "rate=8 kbit/s"]);
    let output = world.run("transfer", &["--size", "1MB", "--timeout", "300 ms"]);
    assert_eq!(output.status.code(), Some(1), "{}", text(&output.stdout));
    assert!(text(&output.stderr).contains("time limit"), "{}", text(&output.stderr));
    for signal in ["-INT", "-HUP"] {
        // For runs of these tests without a terminal.
        let mut command = Command::new("env");
        command.args(["--default-signal=HUP", SLOWLIGHT]);
        let command = command.args(["emu", "transfer", "--name", &world.name, "--size", "1MB"]);
        let mut exec = guarded(command.stdout(Stdio::null()).stderr(Stdio::null()));
        let running = || world.ask("GET", "/transfers", "").1.contains("\"running\"");
        wait_for("the transfer to begin", running);
        let id = exec.child.id().to_string();
        assert!(Command::new("kill").args([signal, &id]).status().unwrap().success());
        assert_eq!(exec.child.wait().unwrap().code(), Some(130), "{signal}");
        let all: Value = serde_json::from_str(&world.ask("GET", "/transfers", "").1).unwrap();
        assert_eq!(all.as_array().unwrap().last().unwrap()["state"], "stopped", "{signal}");
    }
}
