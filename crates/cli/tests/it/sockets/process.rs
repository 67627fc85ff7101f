//! Processes of the program and their directories, which end with their test.

use std::ffi::OsStr;
use std::io::{BufRead as _, BufReader, Read as _};
use std::net::UdpSocket;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::wait::wait_for;

/// Maximum duration of any step here.
pub(crate) const LIMIT: Duration = Duration::from_secs(60);

/// Process that ends with its test.
pub(crate) struct Running {
    child: Option<Child>,
    /// Output read so far.
    pub(crate) message: String,
}

/// Process that ended: its exit code and its output.
pub(crate) struct Ended {
    pub(crate) code: Option<i32>,
    pub(crate) out: String,
    pub(crate) message: String,
}

/// The program with these arguments.
pub(crate) fn program<T: AsRef<OsStr>>(arguments: &[T]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_slowlight"));
    command.args(arguments);
    // Not in the user's state folder.
    command.env("XDG_STATE_HOME", concat!(env!("CARGO_TARGET_TMPDIR"), "/state"));
    command
}

/// Option for CFDP, unless a test has another protocol.
pub(crate) fn protocol(more: &[&str]) -> &'static [&'static str] {
    if more.contains(&"--protocol") { &[] } else { &["--protocol", "cfdp"] }
}

impl Running {
    pub(crate) fn start<T: AsRef<OsStr>>(arguments: &[T]) -> Self {
        Self::of(program(arguments))
    }

    pub(crate) fn of(mut command: Command) -> Self {
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        Self { child: Some(command.spawn().unwrap()), message: String::new() }
    }

    /// Address that a receiver prints.
    pub(crate) fn address(&mut self) -> String {
        self.word_between("receiving on ", " ")
    }

    /// Text between `before` and `after`, in the first line with both.
    pub(crate) fn word_between(&mut self, before: &str, after: &str) -> String {
        let child = self.child.as_mut().unwrap();
        let mut lines = BufReader::with_capacity(1, child.stderr.as_mut().unwrap());
        loop {
            let mut line = String::new();
            assert!(lines.read_line(&mut line).unwrap() > 0, "it ended: {}", self.message);
            self.message.push_str(&line);
            if let Some((_, rest)) = line.split_once(before)
                && let Some((word, _)) = rest.split_once(after)
            {
                return word.to_owned();
            }
        }
    }

    /// Sends SIGINT, as ctrl-C does.
    pub(crate) fn interrupt(&self) {
        let id = self.child.as_ref().unwrap().id().to_string();
        assert!(Command::new("kill").args(["-INT", &id]).status().unwrap().success());
    }

    /// SIGKILL: the process cannot clean up.
    pub(crate) fn kill(mut self) {
        let mut child = self.child.take().unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
    }

    /// Waits for its end.
    pub(crate) fn end(mut self) -> Ended {
        let mut child = self.child.take().unwrap();
        let start = Instant::now();
        while child.try_wait().unwrap().is_none() {
            if start.elapsed() > LIMIT {
                child.kill().unwrap();
                let mut message = String::new();
                child.stderr.take().unwrap().read_to_string(&mut message).unwrap();
                panic!("no end after {LIMIT:?}: {}{message}", self.message);
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        let Output { status, stdout, stderr } = child.wait_with_output().unwrap();
        Ended {
            code: status.code(),
            out: String::from_utf8(stdout).unwrap(),
            message: std::mem::take(&mut self.message) + &String::from_utf8(stderr).unwrap(),
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

impl Ended {
    /// The one object it printed.
    pub(crate) fn json(&self) -> Value {
        let text = &self.out;
        serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}{}", self.message))
    }

    /// Its single outcome, which must be complete.
    pub(crate) fn complete(&self) -> Value {
        assert_eq!(self.code, Some(0), "{}", self.message);
        let outcome = self.json();
        assert_eq!(outcome["completed"], true, "{outcome}");
        outcome
    }

    /// Checks that it failed with this reason.
    pub(crate) fn failed(&self, why: &str) {
        assert_eq!(self.code, Some(1), "{why}: {}{}", self.out, self.message);
        assert!(self.message.contains(why), "{why}: {}", self.message);
    }
}

/// Directories of one test: one for the source or the copies of files, and the root of a receiver.
pub(crate) struct Place {
    directory: tempfile::TempDir,
}

impl Place {
    pub(crate) fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        for name in ["here", "root"] {
            std::fs::create_dir(directory.path().join(name)).unwrap();
        }
        Self { directory }
    }

    pub(crate) fn here(&self, name: &str) -> PathBuf {
        self.directory.path().join("here").join(name)
    }

    pub(crate) fn root(&self, name: &str) -> PathBuf {
        self.directory.path().join("root").join(name)
    }

    /// Starts a receiver; also returns its listening address.
    pub(crate) fn recv(&self, protocol: &str, listen: &str, more: &[&str]) -> (Running, String) {
        self.recv_any(listen, &[&["--protocol", protocol], more].concat())
    }

    /// Starts a receiver of any protocol; also returns its listening address.
    pub(crate) fn recv_any(&self, listen: &str, more: &[&str]) -> (Running, String) {
        let root = self.root("");
        let arguments = ["recv", "--json", "--listen", listen, "--root", root.to_str().unwrap()];
        let mut running = Running::start(&[&arguments, more].concat());
        let address = running.address();
        (running, address)
    }

    /// Runs a command for `address`; `what` precedes the address, `more` follows it.
    pub(crate) fn run(
        &self,
        protocol: &str,
        what: &[&str],
        address: &str,
        more: &[&str],
    ) -> Running {
        let middle = [address, "--protocol", protocol];
        Running::start(&[what, &middle, more].concat())
    }

    /// Sends a file of the sender's directory.
    pub(crate) fn send(&self, protocol: &str, name: &str, address: &str, more: &[&str]) -> Running {
        let file = self.here(name);
        let what = ["send", file.to_str().unwrap()];
        self.run(protocol, &what, address, &[&["--json"], more].concat())
    }

    /// Fetches a file to the sender's directory.
    pub(crate) fn get(&self, protocol: &str, name: &str, address: &str, more: &[&str]) -> Running {
        let here = self.here("");
        let what = [name, "--root", here.to_str().unwrap(), "--json"];
        self.run(protocol, &["get"], address, &[&what, more].concat())
    }
}

/// `len` bytes that differ by position.
pub(crate) fn content(len: usize) -> Vec<u8> {
    let mut content = vec![0; len];
    engine::Rng::new(len as u64, "content").fill(&mut content);
    content
}

/// A file of `len` bytes.
pub(crate) fn make(path: &Path, len: usize) {
    std::fs::write(path, content(len)).unwrap();
}

/// Waits for a file of `len` bytes. LTP confirms a file that is safely stored, before its name.
pub(crate) fn check(path: &Path, len: usize) {
    wait_for(&format!("{} does not appear", path.display()), || path.exists());
    let found = std::fs::read(path).unwrap();
    assert!(found == content(len), "{} has {} other bytes", path.display(), found.len());
}

/// A socket that receives datagrams and never replies, and its address.
pub(crate) fn silent() -> (UdpSocket, String) {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.set_read_timeout(Some(LIMIT)).unwrap();
    let address = socket.local_addr().unwrap().to_string();
    (socket, address)
}

/// Waits until `happened` returns `true`.
pub(crate) fn await_that(what: &str, mut happened: impl FnMut() -> bool) {
    let start = Instant::now();
    while !happened() {
        assert!(start.elapsed() < LIMIT, "{what}: not after {LIMIT:?}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// The files in the directory `kind` of the working files below `root`, with their sizes.
pub(crate) fn working_files(root: &Path, kind: &str) -> Vec<(String, u64)> {
    let entries = std::fs::read_dir(root.join(".slowlight").join(kind)).into_iter().flatten();
    let file = |entry: std::fs::DirEntry| {
        Some((entry.file_name().into_string().ok()?, entry.metadata().ok()?.len()))
    };
    entries.flatten().filter_map(file).collect()
}
