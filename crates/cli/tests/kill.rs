//! Either end of a transfer is killed at a random moment and started again: the transfer ends with
//! the right file, and nobody says "done" before that.
//!
//! `SLOWLIGHT_KILLS` is how many transfers are made (6), `SLOWLIGHT_SEED` the first one's seed (1).

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs::{self, File};
use std::net::UdpSocket;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};
use std::{env, thread};

use engine::Rng;
use serde_json::Value;

const FILE_BYTES: usize = 1_500_000;
/// The file takes about 0.8 s at this rate, longer than the longest wait for a kill.
const RATE: &str = "16 Mbit/s";
/// In which time a kill falls, from the start of the ends.
const KILL_WITHIN_MS: u64 = 1000;
const LIMIT: Duration = Duration::from_secs(60);

/// One transfer: its directories, its address and its two processes.
struct Transfer {
    directory: tempfile::TempDir,
    address: String,
    content: Vec<u8>,
    sender: Option<Child>,
    receiver: Option<Child>,
    starts: u32,
}

#[derive(Clone, Copy, Debug)]
enum End {
    Sender,
    Receiver,
}

impl Transfer {
    fn new(rng: &mut Rng) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let mut content = vec![0; FILE_BYTES];
        rng.fill(&mut content);
        fs::write(directory.path().join("source.bin"), &content).unwrap();
        fs::create_dir(directory.path().join("root")).unwrap();
        let free = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let address = free.to_string();
        Self { directory, address, content, sender: None, receiver: None, starts: 0 }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn start(&mut self, end: End) {
        self.starts += 1;
        let mut command = Command::new(env!("CARGO_BIN_EXE_slowlight"));
        match end {
            End::Sender => command
                .args(["send", "--protocol", "cfdp", "--json", "--rate", RATE, "--entity", "1"])
                .args(["--remote-entity", "2", "--remote", "received.bin", "--linger"])
                .args(["100 ms", "--state"])
                .args([self.path("state"), self.path("source.bin")])
                .arg(&self.address),
            End::Receiver => command
                .args(["recv", "--protocol", "cfdp", "--json", "--entity", "2", "--listen"])
                .args([&self.address, "--root"])
                .arg(self.path("root")),
        };
        // A file a process: what the killed one said stays.
        let out = File::create(self.path(&format!("{}-{end:?}.out", self.starts))).unwrap();
        let err = File::create(self.path(&format!("{}-{end:?}.err", self.starts))).unwrap();
        let child = command.stdin(Stdio::null()).stdout(out).stderr(err).spawn().unwrap();
        *self.child(end) = Some(child);
    }

    fn child(&mut self, end: End) -> &mut Option<Child> {
        match end {
            End::Sender => &mut self.sender,
            End::Receiver => &mut self.receiver,
        }
    }

    /// SIGKILL: the process gets no chance to tidy up.
    fn kill(&mut self, end: End) {
        if let Some(mut child) = self.child(end).take() {
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }

    /// The sender's exit status, if it has ended.
    fn sender_ended(&mut self) -> Option<ExitStatus> {
        self.sender.as_mut().and_then(|child| child.try_wait().unwrap())
    }

    fn is_right(&self) -> bool {
        fs::read(self.path("root/received.bin")).is_ok_and(|received| received == self.content)
    }

    fn no_wrong_success(&self, seed: u64, story: &str) {
        if self.said_done() {
            assert!(self.is_right(), "seed {seed}: {story}\n{}", self.transcript());
        }
    }

    /// Whether any process has said that the file is there.
    fn said_done(&self) -> bool {
        let outputs = fs::read_dir(self.directory.path()).unwrap();
        outputs.map(|entry| entry.unwrap().path()).any(|path| {
            let is_output = path.extension().is_some_and(|extension| extension == "out");
            is_output && says_done(&path)
        })
    }

    /// Everything the processes said, for the report of a failure.
    fn transcript(&self) -> String {
        let mut paths: Vec<_> = fs::read_dir(self.directory.path())
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .collect();
        paths.sort();
        let texts = paths.iter().filter(|path| path.extension().is_some_and(|e| e != "bin"));
        texts.map(|path| format!("{}:\n{}", path.display(), read_lossy(path))).collect()
    }
}

impl Drop for Transfer {
    fn drop(&mut self) {
        self.kill(End::Sender);
        self.kill(End::Receiver);
    }
}

fn read_lossy(path: &Path) -> String {
    String::from_utf8_lossy(&fs::read(path).unwrap_or_default()).into_owned()
}

fn says_done(path: &Path) -> bool {
    // The last line may be cut short by the kill; it says nothing then.
    let text = read_lossy(path);
    let mut lines = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    lines.any(|outcome| outcome["completed"] == Value::Bool(true))
}

/// One transfer with one to three kills.
fn survives(seed: u64) {
    let mut rng = Rng::new(seed, "kill");
    let mut transfer = Transfer::new(&mut rng);
    transfer.start(End::Receiver);
    transfer.start(End::Sender);
    let mut story = String::new();
    for _ in 0..=rng.below(3) {
        let end = if rng.below(2) == 0 { End::Sender } else { End::Receiver };
        let wait = Duration::from_millis(rng.below(KILL_WITHIN_MS));
        thread::sleep(wait);
        if transfer.sender_ended().is_some() {
            break;
        }
        transfer.kill(end);
        story += &format!("{end:?} killed after {wait:?}; ");
        transfer.no_wrong_success(seed, &story);
        transfer.start(end);
    }
    let begun = Instant::now();
    let status = loop {
        transfer.no_wrong_success(seed, &story);
        if let Some(status) = transfer.sender_ended() {
            break status;
        }
        let text = if begun.elapsed() < LIMIT { String::new() } else { transfer.transcript() };
        assert!(text.is_empty(), "seed {seed} is stuck: {story}\n{text}");
        thread::sleep(Duration::from_millis(20));
    };
    let transcript = transfer.transcript();
    assert!(status.success(), "seed {seed}: {status}: {story}\n{transcript}");
    assert!(transfer.is_right(), "seed {seed}: wrong file: {story}\n{transcript}");
    assert!(transfer.said_done(), "seed {seed}: nobody says so: {story}\n{transcript}");
}

fn number(name: &str, otherwise: u64) -> u64 {
    env::var(name).map_or(otherwise, |text| text.parse().expect("a whole number"))
}

#[test]
fn a_killed_end_goes_on_where_it_was() {
    let first = number("SLOWLIGHT_SEED", 1);
    for seed in first..first + number("SLOWLIGHT_KILLS", 6) {
        survives(seed);
    }
}
