//! Either end of a transfer is killed at a random moment and restarted: the transfer ends with the
//! right file, no end reports it earlier, and no other file ever has its name.
//!
//! `SLOWLIGHT_KILLS` is the number of transfers (6), `SLOWLIGHT_SEED` the first seed (1).

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};
use std::{env, thread};

use engine::Rng;
use serde_json::Value;

use crate::ports::Port;

const FILE_BYTES: usize = 1_500_000;
/// The file takes about 0.8 s at this rate, longer than the longest wait for a kill.
const RATE: &str = "16 Mbit/s";
/// Bytes of the file in a datagram of a coded transfer.
const DATAGRAM: f64 = 1400.0;
/// Time range of a kill, from the start of the ends.
const KILL_WITHIN_MS: u64 = 1000;
const LIMIT: Duration = Duration::from_secs(60);

/// Attempts of a command that may fail when the peer is killed.
const TRIES: u32 = 6;

/// Direction and protocol of the transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Cfdp,
    CfdpLtp,
    Ltp,
    LtpT,
    Norm,
    NormCoded,
    SaratogaPut,
    SaratogaGet,
}

impl Way {
    fn protocol(self) -> &'static str {
        match self {
            Self::Cfdp => "cfdp",
            Self::CfdpLtp => "cfdp-ltp",
            Self::Ltp => "ltp",
            Self::LtpT => "ltp-t",
            Self::Norm => "norm",
            Self::NormCoded => "norm/coded",
            Self::SaratogaPut | Self::SaratogaGet => "saratoga",
        }
    }

    /// Whether a command may fail because the other end forgot a session; repeated, it succeeds.
    fn may_fail(self) -> bool {
        match self {
            Self::Cfdp | Self::CfdpLtp | Self::Norm | Self::NormCoded | Self::SaratogaPut => false,
            Self::Ltp | Self::LtpT | Self::SaratogaGet => true,
        }
    }
}

/// One transfer: its directories, its address and its two processes.
struct Transfer {
    way: Way,
    directory: tempfile::TempDir,
    address: String,
    content: Vec<u8>,
    client: Option<Child>,
    server: Option<Child>,
    starts: u32,
    /// A killed and restarted server finds its port free.
    _port: Port,
}

#[derive(Clone, Copy, Debug)]
enum End {
    /// Sends or fetches one file, and ends.
    Client,
    /// Serves until it is killed.
    Server,
}

impl Transfer {
    fn new(way: Way, rng: &mut Rng) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let mut content = vec![0; FILE_BYTES];
        rng.fill(&mut content);
        for name in ["root", "source"] {
            fs::create_dir(directory.path().join(name)).unwrap();
        }
        fs::write(directory.path().join("source/source.bin"), &content).unwrap();
        let port = Port::reserve();
        let address = format!("127.0.0.1:{}", port.number);
        let (client, server, starts) = (None, None, 0);
        Self { way, directory, address, content, client, server, starts, _port: port }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn start(&mut self, end: End) {
        self.starts += 1;
        let mut command = Command::new(env!("CARGO_BIN_EXE_slowlight"));
        match end {
            End::Client if self.way == Way::SaratogaGet => command
                .args(["get", &self.address, "source.bin", "--name", "received.bin", "--root"])
                .arg(self.path("root")),
            End::Client => command
                .arg("send")
                .args([self.path("source/source.bin"), self.address.clone().into()])
                .args(["--rate", RATE, "--entity", "1", "--remote-entity", "2"])
                .args(["--remote", "received.bin"]),
            End::Server if self.way == Way::SaratogaGet => command
                .args(["recv", "--serve", "--rate", RATE, "--listen", &self.address, "--root"])
                .arg(self.path("source")),
            End::Server => command
                .args(["recv", "--entity", "2", "--listen", &self.address, "--root"])
                .arg(self.path("root")),
        };
        if let (Way::Cfdp | Way::CfdpLtp, End::Client) = (self.way, end) {
            command.args(["--class", "2", "--linger", "100 ms"]);
            command.arg("--state").arg(self.path("state"));
        }
        command.args(["--json", "--protocol", self.way.protocol()]);
        command.env("XDG_STATE_HOME", self.path("state-home"));
        // One file per process, so that the output of a killed one remains.
        let out = File::create(self.path(&format!("{}-{end:?}.out", self.starts))).unwrap();
        let err = File::create(self.path(&format!("{}-{end:?}.err", self.starts))).unwrap();
        let child = command.stdin(Stdio::null()).stdout(out).stderr(err).spawn().unwrap();
        *self.child(end) = Some(child);
    }

    fn child(&mut self, end: End) -> &mut Option<Child> {
        match end {
            End::Client => &mut self.client,
            End::Server => &mut self.server,
        }
    }

    /// SIGKILL: the process cannot clean up.
    fn kill(&mut self, end: End) {
        if let Some(mut child) = self.child(end).take() {
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }

    /// The client's exit status, if it has ended.
    fn client_ended(&mut self) -> Option<ExitStatus> {
        self.client.as_mut().and_then(|child| child.try_wait().unwrap())
    }

    fn is_right(&self) -> bool {
        fs::read(self.path("root/received.bin")).is_ok_and(|received| received == self.content)
    }

    /// Checks that no process reports the file too early, and that no other file has its name.
    fn no_wrong_success(&self, seed: u64, story: &str) {
        if self.said_done() || self.path("root/received.bin").exists() {
            let way = self.way;
            assert!(self.is_right(), "{way:?}, seed {seed}: {story}\n{}", self.transcript());
        }
    }

    /// Whether any process has reported the file as complete.
    fn said_done(&self) -> bool {
        let outputs = fs::read_dir(self.directory.path()).unwrap();
        outputs.map(|entry| entry.unwrap().path()).any(|path| {
            let is_output = path.extension().is_some_and(|extension| extension == "out");
            is_output && says_done(&path)
        })
    }

    /// Bytes of the receiver's working file.
    fn spooled(&self) -> u64 {
        let files = fs::read_dir(self.path("root/.slowlight/spool")).into_iter().flatten();
        let lens = files.filter_map(|file| Some(file.ok()?.metadata().ok()?.len()));
        lens.max().unwrap_or(0)
    }

    /// Datagrams that the last client sent.
    fn datagrams(&self) -> u64 {
        self.largest(End::Client, "datagrams_sent").unwrap()
    }

    /// Bytes that the server received after it was killed.
    fn moved(&self) -> u64 {
        let started = Instant::now();
        loop {
            // It may write its result after the client has ended.
            if let Some(moved) = self.largest(End::Server, "moved_bytes") {
                return moved;
            }
            assert!(started.elapsed() < LIMIT, "{}", self.transcript());
            thread::sleep(Duration::from_millis(10));
        }
    }

    /// Largest number in the results of the processes of an end.
    fn largest(&self, end: End, key: &str) -> Option<u64> {
        let outputs = fs::read_dir(self.directory.path()).unwrap();
        let paths = outputs.map(|entry| entry.unwrap().path());
        let suffix = format!("{end:?}.out");
        let of_end = paths.filter(|path| path.to_string_lossy().ends_with(&suffix));
        let texts: Vec<_> = of_end.map(|path| read_lossy(&path)).collect();
        let lines = texts.iter().flat_map(|text| text.lines());
        let results = lines.filter_map(|line| serde_json::from_str::<Value>(line).ok());
        results.filter_map(|result| result[key].as_u64()).max()
    }

    /// Output of all processes, for the message of a failure.
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
        self.kill(End::Client);
        self.kill(End::Server);
    }
}

fn read_lossy(path: &Path) -> String {
    String::from_utf8_lossy(&fs::read(path).unwrap_or_default()).into_owned()
}

fn says_done(path: &Path) -> bool {
    // The kill may have truncated the last line, which does not count then.
    let text = read_lossy(path);
    let mut lines = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    lines.any(|outcome| outcome["completed"] == Value::Bool(true))
}

/// One transfer with one to three kills.
fn survives(way: Way, seed: u64) {
    let mut rng = Rng::new(seed, "kill");
    let mut transfer = Transfer::new(way, &mut rng);
    transfer.start(End::Server);
    transfer.start(End::Client);
    let mut story = String::new();
    for _ in 0..=rng.below(3) {
        let end = if rng.below(2) == 0 { End::Client } else { End::Server };
        let wait = Duration::from_millis(rng.below(KILL_WITHIN_MS));
        thread::sleep(wait);
        if transfer.client_ended().is_some() {
            break;
        }
        transfer.kill(end);
        story += &format!("{end:?} killed after {wait:?}; ");
        transfer.no_wrong_success(seed, &story);
        transfer.start(end);
    }
    for _ in 1..TRIES {
        let status = await_client(&mut transfer, seed, &story);
        if status.success() {
            break;
        }
        let transcript = transfer.transcript();
        assert!(way.may_fail(), "{way:?}, seed {seed}: {status}: {story}\n{transcript}");
        story += &format!("{status}; ");
        transfer.start(End::Client);
    }
    let status = await_client(&mut transfer, seed, &story);
    let transcript = transfer.transcript();
    let about = format!("{way:?}, seed {seed}: {status}: {story}\n{transcript}");
    assert!(status.success(), "{about}");
    assert!(transfer.is_right(), "wrong file: {about}");
    assert!(transfer.said_done(), "nobody says so: {about}");
}

/// Waits for the end of the client.
fn await_client(transfer: &mut Transfer, seed: u64, story: &str) -> ExitStatus {
    let started = Instant::now();
    loop {
        transfer.no_wrong_success(seed, story);
        if let Some(status) = transfer.client_ended() {
            return status;
        }
        let text = if started.elapsed() < LIMIT { String::new() } else { transfer.transcript() };
        let way = transfer.way;
        assert!(text.is_empty(), "{way:?}, seed {seed} is stuck: {story}\n{text}");
        thread::sleep(Duration::from_millis(20));
    }
}

fn number(name: &str, otherwise: u64) -> u64 {
    env::var(name).map_or(otherwise, |text| text.parse().expect("a whole number"))
}

fn all_survive(way: Way) {
    let first = number("SLOWLIGHT_SEED", 1);
    for seed in first..first + number("SLOWLIGHT_KILLS", 6) {
        survives(way, seed);
    }
}

#[test]
fn killed_cfdp_ends_resume() {
    all_survive(Way::Cfdp);
}

#[test]
fn killed_cfdp_over_ltp_ends_resume() {
    all_survive(Way::CfdpLtp);
}

#[test]
fn killed_ltp_ends_never_report_false_success() {
    all_survive(Way::Ltp);
}

#[test]
fn killed_ltp_t_ends_never_report_false_success() {
    all_survive(Way::LtpT);
}

#[test]
fn killed_norm_ends_resume() {
    all_survive(Way::Norm);
}

#[test]
fn killed_coded_norm_ends_resume() {
    all_survive(Way::NormCoded);
}

/// Kills one end once a share of the file was received, and checks the file. Returns what the next
/// sender, or the same one, sent, and the most that it should, both in files.
fn kill_at(end: End, share: f64) -> (f64, f64) {
    let mut transfer = Transfer::new(Way::NormCoded, &mut Rng::new(7, "kill"));
    transfer.start(End::Server);
    transfer.start(End::Client);
    let started = Instant::now();
    while (transfer.spooled() as f64) < share * FILE_BYTES as f64 {
        assert!(started.elapsed() < LIMIT, "{end:?} {share}\n{}", transfer.transcript());
        thread::sleep(Duration::from_millis(2));
    }
    transfer.kill(end);
    transfer.start(end);
    let story = format!("{end:?} killed at {share}");
    let status = await_client(&mut transfer, 7, &story);
    assert!(status.success() && transfer.is_right(), "{story}\n{}", transfer.transcript());
    if matches!(end, End::Client) {
        // The rate of the last line is that of the rest.
        let moved =
            transfer.largest(End::Client, "moved_bytes").unwrap() as f64 / FILE_BYTES as f64;
        assert!(moved < 1.1 - share, "{story}: {moved}\n{}", transfer.transcript());
    }
    let sent = transfer.datagrams() as f64 * DATAGRAM / FILE_BYTES as f64;
    let most = match end {
        // What was under way.
        End::Client => 1.15 - share,
        // Everything once, as far as the receiver was away, and what it lacked then.
        End::Server => 1.2 + 1.1 * transfer.moved() as f64 / FILE_BYTES as f64,
    };
    (sent, most)
}

/// Little more than the rest is sent, in one of three attempts: on a busy machine a receiver may
/// start after the sender has stopped waiting for it.
#[test]
fn killed_coded_norm_ends_send_the_rest() {
    for end in [End::Client, End::Server] {
        for share in [0.3, 0.6, 0.85] {
            let mut found = Vec::new();
            let mut is_little = || {
                let (sent, most) = kill_at(end, share);
                found.push((sent, most));
                sent < most
            };
            let any = (0..3).any(|_| is_little());
            assert!(any, "{end:?} killed at {share}: {found:?}");
        }
    }
}

#[test]
fn killed_saratoga_put_ends_resume() {
    all_survive(Way::SaratogaPut);
}

#[test]
fn killed_saratoga_get_ends_resume() {
    all_survive(Way::SaratogaGet);
}
