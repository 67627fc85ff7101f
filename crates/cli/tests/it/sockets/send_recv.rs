//! Files over real sockets on loopback, by the program itself.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde_json::Value;

use super::process::{LIMIT, Running, await_that, make, program, protocol, silent, working_files};

/// Directories of one test.
struct Place {
    directory: tempfile::TempDir,
}

impl Place {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        std::fs::create_dir(directory.path().join("root")).unwrap();
        Self { directory }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn root(&self) -> PathBuf {
        self.path("root")
    }

    /// A file of `len` bytes.
    fn file(&self, name: &str, len: usize) -> PathBuf {
        let path = self.path(name);
        make(&path, len);
        path
    }

    /// The options that name a MIB of this text.
    fn mib(&self, text: &str) -> [&'static str; 2] {
        let count = std::fs::read_dir(self.directory.path()).unwrap().count();
        let path = self.path(&format!("mib-{count}.toml"));
        std::fs::write(&path, text).unwrap();
        ["--mib", path.to_str().unwrap().to_owned().leak()]
    }

    fn send(&self, file: &Path, address: &str, more: &[&str]) -> Running {
        let mut command = program(&["send"]);
        command.arg(file).arg(address).arg("--json");
        command.arg("--state").arg(self.path("state"));
        if !more.contains(&"--linger") && !more.contains(&"--delay") {
            command.args(["--linger", "100 ms"]);
        }
        command.args(protocol(more)).args(more);
        Running::of(command)
    }

    /// Waits until the receiver's working file has `len` bytes.
    fn await_spool(&self, len: u64) {
        let is_there =
            || working_files(&self.root(), "spool").iter().any(|(_, bytes)| *bytes >= len);
        await_that(&format!("{len} bytes received"), is_there);
    }

    /// Receiver and its listening address.
    fn recv(&self, listen: &str, more: &[&str]) -> (Running, String) {
        let mut command = program(&["recv", "--listen", listen, "--json", "--root"]);
        command.arg(self.root()).args(protocol(more)).args(more);
        let mut running = Running::of(command);
        let address = running.address();
        (running, address)
    }
}

fn same(a: &Path, b: &Path) {
    assert!(std::fs::read(a).unwrap() == std::fs::read(b).unwrap(), "the files differ");
}

#[test]
fn files_of_all_sizes_arrive() {
    for (len, class) in [(0, "2"), (1, "2"), (1_000_003, "2"), (0, "1"), (100_003, "1")] {
        let place = Place::new();
        let file = place.file("file", len);
        let (receiver, address) = place.recv("127.0.0.1:0", &["--once"]);
        let more = ["--class", class, "--remote", "copy", "--rate", "200 Mbit/s"];
        let sent = place.send(&file, &address, &more).end().complete();
        let received = receiver.end().complete();
        same(&file, &place.root().join("copy"));
        assert_eq!(sent["file_bytes"], len);
        assert_eq!(received["file_bytes"], len);
        assert_eq!(sent["transaction"], received["transaction"]);
        // A class 1 sender is not informed of the outcome.
        assert_eq!(sent["delivery"], if class == "1" { "unreported" } else { "complete" });
        assert_eq!(received["delivery"], "complete");
        assert_eq!((&sent["role"], &received["role"]), (&"sender".into(), &"receiver".into()));
        // No state is left.
        assert_eq!(std::fs::read_dir(place.path("state")).unwrap().count(), 0);
    }
}

#[test]
fn senders_at_socket_speed_lose_nothing() {
    let place = Place::new();
    let file = place.file("file", 30_000_000);
    let (receiver, address) = place.recv("127.0.0.1:0", &["--once"]);
    place.send(&file, &address, &[]).end().complete();
    receiver.end().complete();
    same(&file, &place.root().join("file"));
}

#[test]
fn two_senders_at_once_to_one_receiver() {
    let place = Place::new();
    let files = [place.file("a", 2_000_000), place.file("b", 3_000_000)];
    let (receiver, address) = place.recv("127.0.0.1:0", &[]);
    let more = ["--rate", "50 Mbit/s"];
    let senders = files.each_ref().map(|file| place.send(file, &address, &more));
    for sender in senders {
        sender.end().complete();
    }
    for file in &files {
        same(file, &place.root().join(file.file_name().unwrap()));
    }
    drop(receiver);
}

#[test]
fn killed_receivers_resume() {
    let place = Place::new();
    let file = place.file("file", 8_000_000);
    let (receiver, address) = place.recv("127.0.0.1:0", &[]);
    let sender = place.send(&file, &address, &["--rate", "80 Mbit/s", "--delay", "1 ms"]);
    place.await_spool(2_000_000);
    receiver.kill();
    let (receiver, _) = place.recv(&address, &["--once"]);
    assert_eq!(sender.end().complete()["peer"], *address);
    // It learns the address after it has read its record.
    assert!(receiver.end().complete()["peer"].is_string());
    same(&file, &place.root().join("file"));
}

#[test]
fn after_a_kill_only_the_rest_is_sent() {
    const LEN: u64 = 8_000_000;
    let place = Place::new();
    let file = place.file("file", 8_000_000);
    let mib = place.mib("[journal]\nbytes = \"100 kB\"\ninterval = \"20 ms\"");
    let (receiver, address) = place.recv("127.0.0.1:0", &mib);
    let more = ["--rate", "40 Mbit/s", "--delay", "1 ms"];
    let sender = place.send(&file, &address, &more);
    place.await_spool(LEN / 2);
    sender.interrupt();
    let moved = sender.end().json()["moved_bytes"].as_u64().unwrap();
    // Many times the duration that the receiver needs to save its last progress.
    std::thread::sleep(Duration::from_millis(500));
    receiver.kill();
    let (receiver, _) = place.recv(&address, &[&mib[..], &["--once"]].concat());
    let outcome = place.send(&file, &address, &more).end().complete();
    let received = receiver.end().complete();
    same(&file, &place.root().join("file"));
    // Progress just before the end of the first half may have been saved late or lost.
    let rest = LEN - moved + LEN / 8;
    for outcome in [&outcome, &received] {
        assert_eq!(outcome["resumed"], true, "{outcome}");
        assert!(outcome["moved_bytes"].as_u64() <= Some(rest), "{moved} before: {outcome}");
    }
    // Each carries 1,400 bytes of the file or more.
    let datagrams = outcome["datagrams_sent"].as_u64().unwrap();
    assert!(datagrams <= rest / 1400 + 20, "{moved} before: {outcome}");
}

#[test]
fn killed_senders_resume_the_same_transaction() {
    let place = Place::new();
    let file = place.file("file", 8_000_000);
    let (receiver, address) = place.recv("127.0.0.1:0", &["--once"]);
    let more = ["--rate", "80 Mbit/s", "--delay", "1 ms"];
    let sender = place.send(&file, &address, &more);
    place.await_spool(2_000_000);
    sender.kill();
    let outcome = place.send(&file, &address, &more).end().complete();
    assert_eq!(outcome["resumed"], true, "{outcome}");
    // Bytes sent by an earlier process do not count: the rate is at most 80 Mbit/s.
    let goodput = outcome["goodput_bps"].as_f64().unwrap();
    assert!(goodput < 82e6, "{outcome}");
    let received = receiver.end().complete();
    assert_eq!(outcome["transaction"], received["transaction"]);
    same(&file, &place.root().join("file"));
}

#[test]
fn changed_files_are_sent_from_the_start() {
    let place = Place::new();
    let file = place.file("file", 8_000_000);
    let (receiver, address) = place.recv("127.0.0.1:0", &[]);
    let more = ["--rate", "80 Mbit/s", "--delay", "1 ms"];
    let sender = place.send(&file, &address, &more);
    place.await_spool(2_000_000);
    sender.kill();
    place.file("file", 1_000_000);
    let outcome = place.send(&file, &address, &more).end().complete();
    assert_eq!(outcome["resumed"], false, "{outcome}");
    same(&file, &place.root().join("file"));
    drop(receiver);
}

#[test]
fn names_outside_the_root_are_refused() {
    let place = Place::new();
    let file = place.file("file", 1000);
    let (receiver, address) = place.recv("127.0.0.1:0", &["--once"]);
    let sender = place.send(&file, &address, &["--remote", "../escaped"]).end();
    assert_eq!(sender.code, Some(1), "{}", sender.message);
    let reason = "the receiver cannot store the file: the name is refused";
    assert!(sender.message.contains(reason), "{}", sender.message);
    let receiver = receiver.end();
    assert_eq!(receiver.code, Some(1));
    assert!(receiver.message.contains("name is refused"), "{}", receiver.message);
    assert!(!place.path("escaped").exists());
}

#[test]
fn store_errors_are_reported_with_their_reason() {
    let place = Place::new();
    let file = place.file("file", 1000);
    std::fs::create_dir_all(place.root().join("taken/by")).unwrap();
    let (receiver, address) = place.recv("127.0.0.1:0", &["--once"]);
    let sender = place.send(&file, &address, &["--remote", "taken"]).end();
    assert_eq!(sender.code, Some(1), "{}", sender.message);
    let receiver = receiver.end();
    let reported = "cannot move a received file to \"taken\": ";
    assert!(receiver.message.contains(reported), "{}", receiver.message);
}

#[test]
fn pdus_for_another_entity_are_reported_once() {
    let place = Place::new();
    let file = place.file("file", 10_000);
    let (receiver, address) = place.recv("127.0.0.1:0", &["--entity", "5"]);
    let sender = place.send(&file, &address, &["--timeout", "1 s"]).end();
    assert_eq!(sender.code, Some(1), "{}", sender.message);
    receiver.interrupt();
    let reported = receiver.end().message;
    let reply = reported.matches("PDUs for entity 2 come here and are dropped: this is entity 5");
    assert_eq!(reply.count(), 1, "{reported}");
}

/// An engine of 2007 counts its transactions from 1 in each run. A receiver that remembers number
/// 1 would report success, although its file is gone.
#[test]
fn a_profile_does_not_repeat_numbers() {
    let place = Place::new();
    let file = place.file("file", 10_000);
    let (_receiver, address) = place.recv("127.0.0.1:0", &[]);
    let mut ids = Vec::new();
    for _ in 0..2 {
        let sent = place.send(&file, &address, &["--profile", "gsfc-2007"]).end().complete();
        ids.push(sent["transaction"].clone());
        same(&file, &place.root().join("file"));
        std::fs::remove_file(place.root().join("file")).unwrap();
    }
    assert_ne!(ids[0], ids[1]);
}

#[test]
fn roots_and_ports_have_one_receiver() {
    let (place, elsewhere) = (Place::new(), Place::new());
    let (_receiver, address) = place.recv("127.0.0.1:0", &[]);
    for (root, message) in
        [(place.root(), "in use"), (elsewhere.root(), "another program uses this port")]
    {
        let ended =
            Running::start(&["recv", "--listen", &address, "--root", root.to_str().unwrap()]).end();
        assert_eq!(ended.code, Some(2), "{}", ended.message);
        assert!(ended.message.contains(message), "{}", ended.message);
    }
}

#[test]
fn command_line_overrides_the_entity_of_the_mib() {
    let place = Place::new();
    let mib = place.mib("entity = 9");
    for (more, number) in [(&[][..], 2), (&mib[..], 9), (&["--entity", "7"][..], 7)] {
        let (receiver, _) = place.recv("127.0.0.1:0", more);
        assert!(
            receiver.message.contains(&format!("as entity {number}\n")),
            "{}",
            receiver.message
        );
    }
    let both = [&mib[..], &["--entity", "7"]].concat();
    let (receiver, _) = place.recv("127.0.0.1:0", &both);
    assert!(receiver.message.contains("as entity 7\n"), "{}", receiver.message);

    let file = place.file("file", 10);
    let (_socket, address) = silent();
    for (more, number) in [(&[][..], 1), (&mib[..], 9), (&both[..], 7)] {
        let class = ["--class", "1"];
        let outcome = place.send(&file, &address, &[more, &class].concat()).end().complete();
        let id = outcome["transaction"].as_str().unwrap();
        assert!(id.starts_with(&format!("{number}_")), "{id}");
    }
}

#[test]
fn class_comes_from_option_then_protocol_then_mib() {
    let place = Place::new();
    let file = place.file("file", 10);
    let (_socket, address) = silent();
    let first = place.mib("[default]\nclass = 1");
    let second = place.mib("[default]\nclass = 2\n[remotes.3]\nclass = 1");
    let cases: [(&[&str], &[&str], u8); 8] = [
        (&[], &[], 2),
        (&[], &["--protocol", "cfdp-1"], 1),
        (&first, &[], 1),
        (&first, &["--protocol", "cfdp"], 1),
        (&first, &["--class", "2"], 2),
        (&second, &["--protocol", "cfdp-1"], 1),
        (&second, &["--protocol", "cfdp-1", "--class", "2"], 2),
        (&second, &["--remote-entity", "3"], 1),
    ];
    for (mib, more, class) in cases {
        // Class 1 requests no reply, and ends by itself.
        let limit = if class == 1 { "60 s" } else { "200 ms" };
        let more = [mib, more, &["--timeout", limit]].concat();
        let ended = place.send(&file, &address, &more).end();
        assert_eq!(ended.code, Some(if class == 1 { 0 } else { 1 }), "{more:?}: {}", ended.message);
    }
}

#[test]
fn command_line_overrides_the_rate_of_the_mib() {
    let place = Place::new();
    let file = place.file("file", 1_000_000);
    let (_socket, address) = silent();
    // At this rate the file takes 16 minutes.
    let mib = place.mib("[default]\nrate = \"8 kbit/s\"\n[remotes.2]\nrate = \"8 kbit/s\"");
    let class = ["--class", "1", "--timeout", "20 s"];
    for rate in ["100 Mbit/s", "0"] {
        let more = [&mib[..], &class, &["--rate", rate]].concat();
        place.send(&file, &address, &more).end().complete();
    }
    let slow = [&mib[..], &["--class", "1", "--timeout", "500 ms"]].concat();
    let ended = place.send(&file, &address, &slow).end();
    assert_eq!(ended.code, Some(1), "{}", ended.message);
    assert!(ended.json()["moved_bytes"].as_u64() < Some(100_000), "{}", ended.out);
}

#[test]
fn receivers_learn_of_the_end_with_any_mib() {
    let place = Place::new();
    let file = place.file("file", 1000);
    let mib = place.mib("[indications]\ntransaction_finished = false");
    let (receiver, address) = place.recv("127.0.0.1:0", &[&mib[..], &["--once"]].concat());
    place.send(&file, &address, &[]).end().complete();
    receiver.end().complete();
}

#[test]
fn failed_sends_report_the_bytes_sent() {
    let place = Place::new();
    let file = place.file("file", 20_000_000);
    let (_receiver, address) = place.recv("127.0.0.1:0", &[]);
    let sender = place.send(&file, &address, &["--rate", "20 Mbit/s", "--delay", "1 ms"]);
    place.await_spool(500_000);
    std::fs::File::options().write(true).open(&file).unwrap().set_len(1000).unwrap();
    let ended = sender.end();
    assert_eq!(ended.code, Some(1), "{}", ended.message);
    let outcome = ended.json();
    assert_eq!(outcome["file_bytes"], 20_000_000, "{outcome}");
    assert_eq!(outcome["goodput_bps"], Value::Null, "{outcome}");
    let moved = outcome["moved_bytes"].as_u64().unwrap();
    assert!((500_000..15_000_000).contains(&moved), "{outcome}");
    assert!(!ended.message.contains("failed after 20 MB"), "{}", ended.message);
}

#[test]
fn senders_without_a_receiver_time_out() {
    let place = Place::new();
    let file = place.file("file", 10);
    let (_nobody, address) = silent();
    let sender = place.send(&file, &address, &["--timeout", "300 ms"]).end();
    assert_eq!(sender.code, Some(1), "{}", sender.message);
    assert!(sender.message.contains("the same command resumes"), "{}", sender.message);
    let outcome = sender.json();
    assert_eq!(outcome["completed"], false, "{outcome}");
    assert_eq!(outcome["condition"], "timeout", "{outcome}");
    assert_eq!(outcome["file_bytes"], 10, "{outcome}");
    assert!(outcome["transaction"].as_str().unwrap().starts_with("1_"), "{outcome}");
}

#[test]
fn slow_senders_stop_at_the_timeout() {
    let place = Place::new();
    let file = place.file("file", 8_000_000);
    let (_receiver, address) = place.recv("127.0.0.1:0", &[]);
    let sender = place.send(&file, &address, &["--rate", "100 kbit/s"]);
    place.await_spool(1);
    sender.interrupt();
    let start = Instant::now();
    let ended = sender.end();
    assert_eq!(ended.code, Some(1), "{}", ended.message);
    // At this rate only the next batch is due later.
    assert!(start.elapsed() < Duration::from_secs(5), "{:?}", start.elapsed());
    let outcome = ended.json();
    assert_eq!(outcome["condition"], "stopped", "{outcome}");
}

#[test]
fn receivers_that_only_repeat_finished_end() {
    let place = Place::new();
    let file = place.file("file", 100_000);
    let (receiver, address) = place.recv("127.0.0.1:0", &["--once"]);
    // The sender receives nothing: it is killed once all is received, and retries later.
    let sender = place.send(&file, &address, &["--rate", "1 Mbit/s"]);
    let arrived = place.root().join("file");
    let start = Instant::now();
    while !arrived.exists() {
        assert!(start.elapsed() < LIMIT);
        std::thread::yield_now();
    }
    sender.kill();
    receiver.kill();
    let (receiver, address) = place.recv(&address, &["--once"]);
    place.send(&file, &address, &["--rate", "1 Mbit/s"]).end().complete();
    assert_eq!(receiver.end().code, Some(0));
    same(&file, &arrived);
}

#[test]
fn senders_linger_to_acknowledge_repeated_finished() {
    let place = Place::new();
    let file = place.file("file", 1000);
    let (receiver, address) = place.recv("127.0.0.1:0", &[]);
    let sender = place.send(&file, &address, &["--linger", "60 s"]);
    let start = Instant::now();
    await_that("the file's arrival", || place.root().join("file").exists());
    // The result is printed before the wait, and ctrl-C ends the wait without changing the result.
    std::thread::sleep(Duration::from_millis(300));
    sender.interrupt();
    sender.end().complete();
    assert!(start.elapsed() < Duration::from_secs(30));
    drop(receiver);
}

#[test]
fn senders_over_long_paths_leave_when_nothing_is_owed() {
    for protocol in ["cfdp", "ltp", "saratoga", "norm"] {
        let place = Place::new();
        let file = place.file("file", 1000);
        let (receiver, address) = place.recv("127.0.0.1:0", &["--protocol", protocol]);
        let mut command = program(&["send", "--json", "--protocol", protocol]);
        // Three round trips are two minutes.
        command.arg(file).arg(address).args(["--delay", "20 s"]);
        let start = Instant::now();
        command.env("XDG_STATE_HOME", place.path("state"));
        Running::of(command).end().complete();
        assert!(start.elapsed() < Duration::from_secs(100), "{protocol}");
        drop(receiver);
    }
}
