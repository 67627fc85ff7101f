//! LTP and Saratoga over sockets on loopback, by the program itself; `get`, `ls` and `rm`.

use std::net::SocketAddr;
use std::path::Path;
use std::time::{Duration, UNIX_EPOCH};

use serde_json::Value;

use super::process::{Ended, Place, Running, await_that, check, make, silent, working_files};
use crate::other_ports::OtherPorts;

const ANY: &str = "127.0.0.1:0";

/// Receiver that lives as long as this value, with its directories.
struct Server {
    place: Place,
    address: String,
    _process: Running,
}

impl Server {
    fn start(protocol: &str, more: &[&str]) -> Self {
        let place = Place::new();
        let (process, address) = place.recv(protocol, ANY, more);
        Self { place, address, _process: process }
    }

    /// Result of `get`, `ls` or `rm` of `what` by Saratoga.
    fn ask(&self, verb: &str, what: &str, more: &[&str]) -> Ended {
        let more = [&[what, "--timeout", "20 s"], more].concat();
        self.place.run("saratoga", &[verb], &self.address, &more).end()
    }
}

/// Sends a file of `len` bytes; the outcomes at the sender and at the receiver.
fn sent(protocol: &str, len: usize, more: &[&str]) -> [Value; 2] {
    let place = Place::new();
    make(&place.here("file"), len);
    let family = protocol.split_once('/').map_or(protocol, |(name, _)| name);
    let receives = if family.starts_with("ltp") { "ltp" } else { protocol };
    let (receiver, address) = place.recv(receives, ANY, &["--once"]);
    let more = [&["--remote", "copy"], more].concat();
    let sender = place.send(protocol, "file", &address, &more).end();
    let outcomes = [sender.complete(), receiver.end().complete()];
    check(&place.root("copy"), len);
    assert!(place.here("file").exists(), "only a give deletes");
    assert_eq!(working_files(&place.root(""), "spool"), [], "nothing is left to go on with");
    outcomes
}

#[test]
fn files_of_all_sizes_arrive() {
    for protocol in ["ltp", "ltp/checkpoints", "saratoga", "saratoga/sha1", "saratoga/deferred"] {
        for len in [0, 1, 1_000_003] {
            let [sender, receiver] = sent(protocol, len, &["--rate", "200 Mbit/s"]);
            assert_eq!(
                (&sender["role"], &receiver["role"]),
                (&"sender".into(), &"receiver".into())
            );
            assert_eq!(sender["transaction"], receiver["transaction"], "{protocol}");
            for (outcome, address) in [(&sender, &sender["peer"]), (&receiver, &receiver["peer"])] {
                let address: SocketAddr = address.as_str().unwrap().parse().unwrap();
                assert!(address.ip().is_loopback() && address.port() > 0, "{outcome}");
                let time = outcome["time"].as_str().unwrap();
                let age = humantime::parse_rfc3339(time).unwrap().elapsed().unwrap();
                assert!(age < Duration::from_secs(3600), "{outcome}");
            }
            for outcome in [sender, receiver] {
                assert_eq!(outcome["protocol"].as_str().map(|name| &name[..3]), protocol.get(..3));
                assert_eq!(outcome["file_bytes"], len, "{outcome}");
                assert_eq!(outcome["delivery"], "complete", "{outcome}");
            }
        }
    }
}

/// Each end listens on one port and sends from another, as ION's LTP does.
#[test]
fn ltp_engines_may_send_from_other_ports_than_they_listen_on() {
    for lose_one_in in [0, 20] {
        for len in [1, 30_003, 10_000_000] {
            let mut ports = OtherPorts::new();
            let place = Place::new();
            make(&place.here("file"), len);
            let peer = format!("1={}", ports.listens[0]);
            let (receiver, address) = place.recv("ltp", ANY, &["--once", "--peer", &peer]);
            ports.start([None, Some(address.parse().unwrap())], lose_one_in);
            let to = ports.listens[1].to_string();
            let more = ["--remote", "copy", "--rate", "100 Mbit/s"];
            let sender = place.send("ltp", "file", &to, &more).end();
            sender.complete();
            let receiver = receiver.end();
            receiver.complete();
            check(&place.root("copy"), len);
            // Each is informed once.
            for (ended, engine) in [(sender, 2), (receiver, 1)] {
                let count = ended.message.matches(&format!("engine {engine} sends from")).count();
                assert_eq!(count, 1, "{}", ended.message);
            }
        }
    }
}

#[test]
fn unacknowledged_transfers_are_sent_without_replies() {
    for protocol in ["ltp-green", "ltp-1k-red", "saratoga-blind"] {
        for len in [1, 30_003] {
            let [sender, receiver] = sent(protocol, len, &["--rate", "20 Mbit/s"]);
            let wanted =
                if protocol == "ltp-1k-red" && len == 1 { "complete" } else { "unreported" };
            assert_eq!(sender["delivery"], wanted, "{protocol}, {len} bytes: {sender}");
            assert_eq!(receiver["delivery"], "complete", "{receiver}");
        }
    }
}

#[test]
fn senders_at_socket_speed_lose_nothing() {
    for protocol in ["ltp", "saratoga"] {
        sent(protocol, 30_000_000, &[]);
    }
}

#[test]
fn saratoga_requests_first_when_configured() {
    sent("saratoga", 100_000, &["--ask"]);
}

#[test]
fn given_files_are_deleted_after_delivery() {
    let server = Server::start("saratoga", &[]);
    let place = &server.place;
    make(&place.here("file"), 100_000);
    let refused = place.send("saratoga", "file", &server.address, &["--give", "--remote", "../x"]);
    refused.end().failed("the receiver cannot store the file: not allowed, or the name is refused");
    let (_socket, nobody) = silent();
    let late = place.send("saratoga", "file", &nobody, &["--give", "--timeout", "300 ms"]);
    late.end().failed("timeout");
    check(&place.here("file"), 100_000);
    place.send("saratoga", "file", &server.address, &["--give"]).end().complete();
    assert!(!place.here("file").exists());
    check(&place.root("file"), 100_000);
}

#[test]
fn two_senders_at_once_to_one_receiver() {
    for protocol in ["ltp", "saratoga"] {
        let server = Server::start(protocol, &[]);
        let files = [("a", 2_000_000, "1"), ("b", 3_000_000, "3")];
        let senders = files.map(|(name, len, entity)| {
            make(&server.place.here(name), len);
            let more = ["--rate", "50 Mbit/s", "--entity", entity];
            server.place.send(protocol, name, &server.address, &more)
        });
        for sender in senders {
            sender.end().complete();
        }
        for (name, len, _) in files {
            check(&server.place.root(name), len);
        }
    }
}

#[test]
fn names_outside_the_root_are_refused() {
    for (protocol, more) in [("ltp", &[][..]), ("saratoga", &["--serve", "--allow-delete"])] {
        let server = Server::start(protocol, more);
        let place = &server.place;
        make(&place.here("file"), 1000);
        let (escaped, absolute) = (place.root("../escaped"), place.here("file"));
        let send = |remote: &str| {
            let more = ["--remote", remote, "--timeout", "20 s"];
            let sent = place.send(protocol, "file", &server.address, &more).end();
            sent.failed("the receiver cannot store the file: ");
            assert!(sent.message.contains("the name is refused"), "{}", sent.message);
        };
        for remote in ["../escaped", "a/../../escaped", ".slowlight/x"] {
            send(remote);
        }
        send(escaped.to_str().unwrap());
        assert!(!escaped.exists());
        if protocol == "saratoga" {
            for name in ["../here/file", ".slowlight/lock", absolute.to_str().unwrap()] {
                let more = ["--name", "got", "--timeout", "20 s"];
                place.get("saratoga", name, &server.address, &more).end().failed("access denied");
                server.ask("rm", name, &[]).failed("access denied");
                server.ask("ls", name, &[]).failed("access denied");
            }
            assert!(!place.here("got").exists());
        }
        check(&place.here("file"), 1000);
    }
}

#[test]
fn a_file_is_fetched() {
    for protocol in ["saratoga", "saratoga/sha1"] {
        let server = Server::start(protocol, &["--serve"]);
        let place = &server.place;
        std::fs::create_dir(place.root("images")).unwrap();
        for len in [0, 1, 1_000_003] {
            make(&place.root("images/one.raw"), len);
            let outcome =
                place.get("saratoga", "images/one.raw", &server.address, &[]).end().complete();
            assert_eq!(
                (&outcome["role"], &outcome["file_bytes"]),
                (&"receiver".into(), &len.into())
            );
            check(&place.here("one.raw"), len);
        }
        let more = ["--name", "mine"];
        place.get("saratoga", "images/one.raw", &server.address, &more).end().complete();
        check(&place.here("mine"), 1_000_003);
        place.get("saratoga", "missing", &server.address, &[]).end().failed("no such file");
        assert!(!place.here("missing").exists());
        let more = ["--take"];
        place
            .get("saratoga", "images/one.raw", &server.address, &more)
            .end()
            .failed("access denied");
        check(&place.root("images/one.raw"), 1_000_003);
    }
}

#[test]
fn taken_files_are_deleted_at_the_peer() {
    let server = Server::start("saratoga", &["--serve", "--allow-delete"]);
    let place = &server.place;
    make(&place.root("file"), 300_000);
    place.get("saratoga", "file", &server.address, &["--take", "--name", "mine"]).end().complete();
    check(&place.here("mine"), 300_000);
    await_that("the file is deleted", || !place.root("file").exists());
}

#[test]
fn directories_are_listed() {
    let server = Server::start("saratoga", &["--serve"]);
    std::fs::create_dir(server.place.root("images")).unwrap();
    make(&server.place.root("images/one.raw"), 17);
    make(&server.place.root("log"), 5);
    for name in ["images/one.raw", "log"] {
        let file = std::fs::File::options().write(true).open(server.place.root(name)).unwrap();
        file.set_modified(UNIX_EPOCH + Duration::from_secs(1_300_000_000)).unwrap();
    }
    let ended = server.ask("ls", "", &[]);
    assert_eq!(ended.code, Some(0), "{}", ended.message);
    let words = |line: &str| line.split_whitespace().map(str::to_owned).collect();
    let mut lines: Vec<Vec<String>> = ended.out.lines().map(words).collect();
    lines.sort();
    // The directory has changed just now.
    assert_eq!((&*lines[0][0], &*lines[0][2]), ("0", "images/"));
    assert_eq!(lines[1..], [["5", "2011-03-13T07:06:40Z", "log"]]);
    let ended = server.ask("ls", "images", &["--json"]);
    let entry = serde_json::json!({
        "name": "one.raw", "kind": "file", "bytes": 17, "modified": 1_300_000_000,
    });
    assert_eq!((ended.code, ended.json()), (Some(0), entry), "{}", ended.message);
    let ended = server.ask("ls", "", &["--json"]);
    assert_eq!(ended.out.lines().count(), 2, "{}", ended.out);
    let ended = server.ask("ls", "nothing", &["--json"]);
    ended.failed("no such file");
    assert_eq!(ended.json()["completed"], false, "{}", ended.out);
}

#[test]
fn a_file_is_deleted() {
    let server = Server::start("saratoga", &["--serve", "--allow-delete"]);
    make(&server.place.root("file"), 5);
    std::fs::create_dir(server.place.root("images")).unwrap();
    server.ask("rm", "file", &["--json"]).complete();
    assert!(!server.place.root("file").exists());
    // Deleting a missing file succeeds.
    server.ask("rm", "file", &["--json"]).complete();
    server.ask("rm", "images", &[]).failed("denied");
    assert!(server.place.root("images").exists());
}

#[test]
fn requests_without_permission_are_refused() {
    let server = Server::start("saratoga", &["--serve"]);
    make(&server.place.root("file"), 5);
    server.ask("rm", "file", &[]).failed("access denied");
    check(&server.place.root("file"), 5);
    let server = Server::start("saratoga", &[]);
    make(&server.place.root("file"), 5);
    for (verb, what) in [("rm", "file"), ("ls", ""), ("get", "file")] {
        let here = server.place.here("");
        let root = ["--root", here.to_str().unwrap()];
        let more = if verb == "get" { &root[..] } else { &[] };
        server.ask(verb, what, more).failed("access denied");
    }
    assert!(!server.place.here("file").exists());
}

#[test]
fn unresponsive_peers_are_reported() {
    let place = Place::new();
    make(&place.here("file"), 100_000);
    let (_socket, nobody) = silent();
    let late = |protocol| place.send(protocol, "file", &nobody, &["--timeout", "20 s"]);
    // In an outage that it knows, a sender expects no reply.
    let outage = ["--outage", "0 s+1 h", "--timeout", "20 s"];
    let mut idle = place.send("cfdp", "file", &nobody, &outage);
    assert_eq!(idle.word_between("the next one begins in ", ","), "1 h");
    // All at once, because each waits for 5 s.
    let mut senders = ["ltp", "saratoga", "norm"].map(|protocol| (protocol, late(protocol)));
    for (protocol, sender) in &mut senders {
        assert_eq!(sender.word_between("no answer from ", " for 5 s; still trying."), nobody);
        let or_any = "(or `recv` without --protocol) running there";
        let remedy = format!("Is `slowlight recv --protocol {protocol}` {or_any}");
        assert!(sender.message.contains(&remedy), "{}", sender.message);
        sender.interrupt();
    }
    idle.interrupt();
    let idle = idle.end();
    assert!(!idle.message.contains("no answer"), "{}", idle.message);
    for (_, sender) in senders {
        sender.end().failed("not finished: stopped; the same command resumes");
    }
}

#[test]
fn missing_receivers_are_reported() {
    let place = Place::new();
    make(&place.here("file"), 10);
    let (_socket, address) = silent();
    let timeout = ["--timeout", "300 ms"];
    let command_line = [
        place.send("ltp", "file", &address, &timeout),
        place.send("saratoga", "file", &address, &timeout),
        place.get("saratoga", "file", &address, &timeout),
        place.run("saratoga", &["rm", "--json"], &address, &[&["file"], &timeout[..]].concat()),
        place.run("saratoga", &["ls", "--json"], &address, &timeout),
    ];
    for ended in command_line.map(Running::end) {
        ended.failed("timeout");
        let outcome = ended.json();
        assert_eq!(outcome["completed"], false, "{outcome}");
        assert_eq!(outcome["condition"], "timeout", "{outcome}");
        assert!(!outcome["transaction"].as_str().unwrap().is_empty(), "{outcome}");
        assert_eq!(outcome["goodput_bps"], Value::Null, "{outcome}");
    }
    check(&place.here("file"), 10);
}

#[test]
fn get_ls_and_rm_by_cfdp() {
    let place = Place::new();
    let mib = place.here("mib.toml");
    let text = "[remotes.1.permissions]\nproxy_put = true\nfilestore = true\n";
    std::fs::write(&mib, text).unwrap();
    let (_receiver, address) = place.recv("cfdp", ANY, &["--mib", mib.to_str().unwrap()]);
    std::fs::create_dir(place.root("images")).unwrap();
    make(&place.root("images/one.raw"), 300_000);
    for (more, name) in [(&[][..], "one.raw"), (&["--name", "mine"], "mine")] {
        let ended = place.get("cfdp", "images/one.raw", &address, more).end();
        ended.complete();
        check(&place.here(name), 300_000);
    }
    let ended = place.get("cfdp", "missing", &address, &[]).end();
    assert_eq!(
        (ended.code, &ended.json()["completed"]),
        (Some(1), &false.into()),
        "{}",
        ended.message
    );
    let ask = |verb: &str, what: &str| place.run("cfdp", &[verb], &address, &[what]).end();
    let ended = ask("ls", "images");
    assert_eq!(
        (ended.code, ended.out.as_str()),
        (Some(0), "images/one.raw\n"),
        "{}",
        ended.message
    );
    ask("ls", "nothing").failed("no such directory");
    let ended = ask("rm", "images/one.raw");
    assert_eq!((ended.code, ended.out.as_str()), (Some(0), "deleted\n"), "{}", ended.message);
    assert!(!place.root("images/one.raw").exists());
    ask("rm", "images/one.raw").failed("refused");
    ask("rm", "../here/mine").failed("refused");
    check(&place.here("mine"), 300_000);
    let (_socket, nobody) = silent();
    for verb in ["get", "rm", "ls"] {
        let more = ["file", "--timeout", "300 ms", "--json"];
        let ended = place.run("cfdp", &[verb], &nobody, &more).end();
        ended.failed("no answer within the time given");
        assert_eq!(ended.json()["completed"], false, "{}", ended.out);
    }
}

/// Waits until a receiver below `root` has saved its progress: two seconds after the start.
fn await_record(root: &Path) {
    await_that("its progress is saved", || {
        working_files(root, "index").iter().any(|(name, _)| name.contains("sar-"))
    });
}

/// Waits until `root` has `len` bytes of an arriving file.
fn await_spool(root: &Path, len: u64) {
    let longest = || working_files(root, "spool").iter().map(|(_, len)| *len).max();
    await_that("the file comes", || longest() >= Some(len));
}

/// At 20 Mbit/s it takes 4 s.
const LONG: usize = 10_000_000;
const SLOW: [&str; 2] = ["--rate", "20 Mbit/s"];
/// More than the rest when progress is saved first, after a quarter of a second.
const REST: u64 = LONG as u64 * 19 / 20;

#[test]
fn after_kills_only_the_rest_is_put() {
    let place = Place::new();
    make(&place.here("file"), LONG);
    let (receiver, address) = place.recv("saratoga", ANY, &[]);
    let sender = place.send("saratoga", "file", &address, &SLOW);
    await_record(&place.root(""));
    sender.kill();
    receiver.kill();
    let (receiver, _) = place.recv("saratoga", &address, &["--once"]);
    let sent = place.send("saratoga", "file", &address, &SLOW).end().complete();
    let received = receiver.end().complete();
    check(&place.root("file"), LONG);
    let moved = received["moved_bytes"].as_u64().unwrap();
    assert!(received["resumed"] == true && moved <= REST, "{received}");
    // It starts at the beginning, until it receives the receiver's position: within half a second.
    let datagrams = sent["datagrams_sent"].as_u64().unwrap();
    assert!(datagrams <= moved / 1400 + 1000, "{sent}");
}

#[test]
fn after_a_kill_only_the_rest_is_fetched() {
    let server = Server::start("saratoga", &[&["--serve"], &SLOW[..]].concat());
    let place = &server.place;
    make(&place.root("file"), LONG);
    let client = place.get("saratoga", "file", &server.address, &[]);
    await_record(&place.here(""));
    client.kill();
    let outcome = place.get("saratoga", "file", &server.address, &[]).end().complete();
    check(&place.here("file"), LONG);
    let moved = outcome["moved_bytes"].as_u64().unwrap();
    assert!(outcome["resumed"] == true && moved <= REST, "{outcome}");
    let datagrams = outcome["datagrams_received"].as_u64().unwrap();
    assert!(datagrams <= moved / 1400 + 50, "{outcome}");
}

#[test]
fn stopped_gets_resume_later() {
    let server = Server::start("saratoga", &[&["--serve"], &SLOW[..]].concat());
    let place = &server.place;
    make(&place.root("file"), LONG);
    let client = place.get("saratoga", "file", &server.address, &[]);
    await_record(&place.here(""));
    client.interrupt();
    assert_eq!(client.end().code, Some(1));
    let outcome = place.get("saratoga", "file", &server.address, &[]).end().complete();
    check(&place.here("file"), LONG);
    let moved = outcome["moved_bytes"].as_u64().unwrap();
    assert!(outcome["resumed"] == true && moved <= REST, "{outcome}");
}

#[test]
fn after_kills_only_the_rest_is_sent_by_ltp() {
    let place = Place::new();
    make(&place.here("file"), LONG);
    let (receiver, address) = place.recv("ltp", ANY, &[]);
    let sender = place.send("ltp", "file", &address, &SLOW);
    await_spool(&place.root(""), LONG as u64 / 4);
    sender.kill();
    receiver.kill();
    assert!(!place.root("file").exists());
    let (_receiver, _) = place.recv("ltp", &address, &[]);
    let sent = place.send("ltp", "file", &address, &SLOW).end().complete();
    assert_eq!(sent["resumed"], true, "{sent}");
    check(&place.root("file"), LONG);
    let datagrams = sent["datagrams_sent"].as_u64().unwrap();
    assert!(datagrams <= REST / 1400, "{sent}");
}
