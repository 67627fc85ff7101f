//! Requests between CFDP entities, by the program itself over loopback.

use std::path::{Path, PathBuf};

use super::process::{Ended, Running, program, protocol, silent};

/// An entity that receives, its root and its address.
struct Server {
    place: tempfile::TempDir,
    address: String,
    _process: Running,
}

impl Server {
    fn start(entity: &str, mib: &str, more: &[&str]) -> Self {
        let place = tempfile::tempdir().unwrap();
        let root = place.path().join("root");
        std::fs::create_dir(&root).unwrap();
        std::fs::write(place.path().join("mib.toml"), mib).unwrap();
        let mut command = program(&["recv", "--listen", "127.0.0.1:0", "--entity", entity]);
        command.args(protocol(more));
        command.arg("--root").arg(&root).arg("--mib").arg(place.path().join("mib.toml"));
        command.args(more);
        let mut process = Running::of(command);
        let address = process.address();
        Self { place, address, _process: process }
    }

    fn file(&self, name: &str) -> PathBuf {
        self.place.path().join("root").join(name)
    }

    /// Runs `slowlight cfdp OPERATION ADDRESS MORE`.
    fn ask(&self, operation: &str, more: &[&str]) -> Ended {
        let mut command = program(&["cfdp", operation, &self.address, "--timeout", "30 s"]);
        command.args(more);
        Running::of(command).end()
    }
}

fn send(file: &Path, address: &str, state: &Path, more: &[&str]) -> Running {
    let mut command = program(&["send"]);
    command.args(protocol(more));
    command.arg(file).arg(address).arg("--state").arg(state);
    command.args(["--linger", "100 ms"]).args(more);
    Running::of(command)
}

#[test]
fn directories_are_listed() {
    let server = Server::start("2", "", &[]);
    std::fs::create_dir(server.file("images")).unwrap();
    std::fs::write(server.file("images/one.raw"), b"1").unwrap();
    std::fs::write(server.file("log"), b"x").unwrap();
    let ended = server.ask("ls", &[]);
    assert_eq!((ended.code, ended.out.as_str()), (Some(0), "images/\nlog\n"), "{}", ended.message);
    let ended = server.ask("ls", &["images", "--json"]);
    let answer = ended.json();
    assert_eq!((&answer["operation"], &answer["completed"]), (&"ls".into(), &true.into()));
    assert_eq!(answer["entries"].as_array().unwrap().len(), 1, "{answer}");
    let ended = server.ask("ls", &["nothing"]);
    assert_eq!(ended.code, Some(1), "{}", ended.message);
    assert!(ended.message.contains("no such directory"), "{}", ended.message);
}

#[test]
fn requests_cross_ltp() {
    let over_ltp = ["--protocol", "cfdp-ltp"];
    let permitted = "[cfdp.default.permissions]\nproxy_put = true\n";
    let server = Server::start("2", permitted, &over_ltp);
    std::fs::write(server.file("log"), b"hello").unwrap();
    let place = tempfile::tempdir().unwrap();
    let request = |command: &str, more: &[&str]| {
        let mut command = program(&[command, &server.address, "--timeout", "30 s"]);
        command.args(over_ltp).args(more);
        Running::of(command).end()
    };
    let listed = request("ls", &[]);
    assert_eq!((listed.code, listed.out.as_str()), (Some(0), "log\n"), "{}", listed.message);
    let fetched = request("get", &["log", "--root", place.path().to_str().unwrap()]);
    assert_eq!(fetched.code, Some(0), "{}", fetched.message);
    assert_eq!(std::fs::read(place.path().join("log")).unwrap(), b"hello");
    let deleted = request("rm", &["log"]);
    assert_eq!(deleted.code, Some(0), "{}", deleted.message);
    assert!(!server.file("log").exists());
}

#[test]
fn operations_without_permission_are_refused() {
    let mib = "[default.permissions]\ndirectory_listing = false\nstatus_report = \"nothing\"\n\
               suspend = \"nothing\"\n";
    let server = Server::start("2", mib, &[]);
    std::fs::write(server.file("secret"), b"x").unwrap();
    let place = tempfile::tempdir().unwrap();
    let root = place.path().to_str().unwrap();
    for (operation, more) in [
        ("ls", vec![]),
        ("status", vec!["1_7"]),
        ("suspend", vec!["1_7"]),
        ("resume", vec!["1_7"]),
        ("put-from", vec!["secret", "--root", root]),
    ] {
        let ended = server.ask(operation, &[more, vec!["--json"]].concat());
        assert_eq!(ended.code, Some(1), "{operation}: {}{}", ended.out, ended.message);
        assert_eq!(ended.json()["completed"], false, "{operation}");
    }
    assert!(!place.path().join("secret").exists());
}

#[test]
fn a_file_is_fetched_and_sent_on() {
    let third = Server::start("3", "", &[]);
    let peer = format!("3={}", third.address);
    let mib = "[remotes.1.permissions]\nproxy_put = true\n";
    let server = Server::start("2", mib, &["--peer", &peer]);
    let content = vec![7; 300_000];
    std::fs::write(server.file("image.raw"), &content).unwrap();
    let place = tempfile::tempdir().unwrap();
    let root = place.path().to_str().unwrap();
    let ended = server.ask("put-from", &["image.raw", "--root", root, "--name", "mine"]);
    assert_eq!(ended.code, Some(0), "{}{}", ended.out, ended.message);
    assert!(std::fs::read(place.path().join("mine")).unwrap() == content);
    let ended = server.ask("put-from", &["image.raw", "--to-entity", "3"]);
    assert_eq!(ended.code, Some(0), "{}{}", ended.out, ended.message);
    assert!(std::fs::read(third.file("image.raw")).unwrap() == content);
    let left: Vec<_> = place.path().read_dir().unwrap().map(|e| e.unwrap().file_name()).collect();
    assert_eq!(left, ["mine"], "nothing else stays behind");
    let ended = server.ask("put-from", &["missing", "--root", root]);
    assert_eq!(ended.code, Some(1), "{}{}", ended.out, ended.message);
}

#[test]
fn transfers_are_listed_suspended_and_resumed() {
    let server = Server::start("2", "", &[]);
    let place = tempfile::tempdir().unwrap();
    let file = place.path().join("image.raw");
    std::fs::write(&file, vec![3; 400_000]).unwrap();
    let mut sending =
        send(&file, &server.address, &place.path().join("state"), &["--rate", "1 Mbit/s"]);
    let id = sending.word_between("", ": sending");
    let status = || {
        let ended = server.ask("status", &[&id, "--json"]);
        assert_eq!(ended.code, Some(0), "{}{}", ended.out, ended.message);
        ended.json()
    };
    assert_eq!(status()["report"]["role"], "receiver");
    let ended = server.ask("suspend", &[&id]);
    assert_eq!((ended.code, ended.out.as_str()), (Some(0), "suspended\n"), "{}", ended.message);
    assert_eq!(status()["report"]["state"], "suspended");
    let ended = server.ask("resume", &[&id]);
    assert_eq!((ended.code, ended.out.as_str()), (Some(0), "going on\n"), "{}", ended.message);
    let ended = sending.end();
    assert_eq!(ended.code, Some(0), "{}", ended.message);
    assert_eq!(status()["status"], "terminated");
    let ended = server.ask("status", &["1_7"]);
    assert_eq!((ended.code, ended.out.as_str()), (Some(1), "state: unrecognized\n"));
}

#[test]
fn filestore_requests_and_messages_accompany_a_file() {
    let server = Server::start("2", "", &[]);
    std::fs::write(server.file("old"), b"x").unwrap();
    let place = tempfile::tempdir().unwrap();
    let file = place.path().join("new");
    std::fs::write(&file, vec![3; 10_000]).unwrap();
    let more = [
        "--filestore=delete old",
        "--filestore=create-directory taken",
        "--filestore=rename new taken/new",
        "--message=hello",
        "--fault=nak-limit=suspend",
        "--unbounded",
    ];
    let ended = send(&file, &server.address, &place.path().join("state"), &more).end();
    assert_eq!(ended.code, Some(0), "{}", ended.message);
    assert!(ended.message.contains("delete old: done"), "{}", ended.message);
    assert!(ended.message.contains("rename new taken/new: done"), "{}", ended.message);
    assert!(!server.file("old").exists());
    assert_eq!(std::fs::read(server.file("taken/new")).unwrap().len(), 10_000);
    let more = ["--class=1", "--closure", "--filestore=delete missing"];
    let ended = send(&file, &server.address, &place.path().join("state"), &more).end();
    assert_eq!(ended.code, Some(0), "{}", ended.message);
    assert!(ended.message.contains("delete missing: refused"), "{}", ended.message);
}

#[test]
fn missing_replies_time_out() {
    let (_socket, address) = silent();
    let ended = Running::start(&["cfdp", "ls", &address, "--timeout", "300 ms", "--json"]).end();
    assert_eq!(ended.code, Some(1), "{}", ended.message);
    assert_eq!(ended.json()["failure"], "no answer within the time given");
}

#[test]
fn a_peer_that_does_not_reply_is_reported_with_its_port_and_protocol() {
    let place = tempfile::tempdir().unwrap();
    for (protocol, server) in [("cfdp", "recv --protocol cfdp`"), ("saratoga", "saratoga --serve`")]
    {
        let (_socket, address) = silent();
        let port = address.rsplit(':').next().unwrap();
        let commands = [&["ls"][..], &["get"][..], &["rm"][..]];
        let running = commands.map(|command| {
            let file = if command == ["ls"] { &[][..] } else { &["file"][..] };
            let options = ["--protocol", protocol, "--timeout", "5500 ms"];
            let mut command = program(&[command, &[&address], file, &options].concat());
            command.current_dir(place.path());
            Running::of(command)
        });
        for ended in running.map(Running::end) {
            let silence = format!("no answer from {address} for 5 s; still trying");
            ended.failed(&silence);
            for part in [server, &format!("let UDP port {port} through")] {
                assert!(ended.message.contains(part), "{part}: {}", ended.message);
            }
        }
    }
}
