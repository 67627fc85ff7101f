//! Nodes in a row, each a process.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::bounded::output;
use crate::guard::{Guarded, guarded};
use crate::ports::Port;

pub(super) const SLOWLIGHT: &str = env!("CARGO_BIN_EXE_slowlight");

/// Three nodes in a row, each connected to the next.
pub(super) struct Row {
    pub(super) folder: tempfile::TempDir,
    pub(super) nodes: Vec<Option<Child>>,
    /// A killed and restarted node finds its port free.
    ports: Vec<Port>,
}

impl Row {
    pub(super) fn new(count: usize) -> Self {
        Self::of(count, |n, ports| {
            let mut text = format!(
                "[[layer]]\nkind = \"tcpcl4\"\nlisten = [\"127.0.0.1:{}\"]\n\
                 reconnect = \"20 ms\"\nreconnect_max = \"200 ms\"\n",
                ports[n - 1],
            );
            if n > 1 {
                text +=
                    &format!("[[neighbour]]\nnode = \"ipn:{}.0\"\nfrom = [\"127.0.0.1\"]\n", n - 1);
            }
            if n < count {
                text += &format!(
                    "[[neighbour]]\nnode = \"ipn:{}.0\"\naddress = \"127.0.0.1:{}\"\n",
                    n + 1,
                    ports[n]
                );
            }
            for to in 1..=count {
                let via = if to < n { n - 1 } else { n + 1 };
                if to.abs_diff(n) > 1 {
                    text += &format!("[[route]]\nto = \"ipn:{to}.0\"\nvia = \"ipn:{via}.0\"\n");
                }
            }
            text
        })
    }

    /// Nodes with layers, neighbours and routes from `text`, which receives the number of a node,
    /// from 1, and the ports of all.
    pub(super) fn of(count: usize, text: impl Fn(usize, &[u16]) -> String) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let reserved: Vec<_> = (0..count).map(|_| Port::reserve()).collect();
        let ports: Vec<u16> = reserved.iter().map(|port| port.number).collect();
        for n in 1..=count {
            let place = folder.path().join(n.to_string());
            fs::create_dir(&place).unwrap();
            let text = format!(
                "id = \"ipn:{n}.0\"\nsocket = {:?}\ndrain = \"2 s\"\nstore.directory = {:?}\n{}",
                place.join("node.sock"),
                place.join("store"),
                text(n, &ports),
            );
            fs::write(place.join("node.toml"), text).unwrap();
        }
        let nodes = (0..count).map(|_| None).collect();
        let mut row = Self { folder, nodes, ports: reserved };
        for n in 1..=count {
            row.start(n);
        }
        row
    }

    /// The port of a node.
    pub(super) fn port(&self, n: usize) -> u16 {
        self.ports[n - 1].number
    }

    pub(super) fn place(&self, n: usize) -> PathBuf {
        self.folder.path().join(n.to_string())
    }

    /// Restarts a node with more settings: `first` before the others, `last` after them.
    pub(super) fn change(&mut self, n: usize, first: &str, last: &str) {
        if self.nodes[n - 1].is_some() {
            self.kill(n);
        }
        let toml = self.place(n).join("node.toml");
        let text = fs::read_to_string(&toml).unwrap();
        fs::write(&toml, format!("{first}\n{text}\n{last}\n")).unwrap();
        self.start(n);
    }

    pub(super) fn start(&mut self, n: usize) {
        let place = self.place(n);
        let log = fs::File::options().create(true).append(true).open(place.join("log")).unwrap();
        let child = Command::new(SLOWLIGHT)
            .arg("node")
            .arg(place.join("node.toml"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .unwrap();
        self.nodes[n - 1] = Some(child);
        self.wait_until_ready(n);
    }

    pub(super) fn wait_until_ready(&mut self, n: usize) {
        let limit = Instant::now() + Duration::from_secs(30);
        loop {
            if self.query(n).is_some_and(|node| node["is_ready"] == true) {
                return;
            }
            let ended = self.nodes[n - 1].as_mut().unwrap().try_wait().unwrap();
            let log = fs::read_to_string(self.place(n).join("log")).unwrap();
            assert!(ended.is_none() && Instant::now() < limit, "node {n}: {ended:?} {log}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    pub(super) fn bp(&self, n: usize, arguments: &[&str]) -> Output {
        let mut command = Command::new(SLOWLIGHT);
        command.arg("bp").args(arguments).arg("--node").arg(self.place(n).join("node.sock"));
        output(command.env("XDG_STATE_HOME", self.place(n)))
    }

    pub(super) fn query(&self, n: usize) -> Option<Value> {
        let output = self.bp(n, &["query", "--json"]);
        output.status.success().then(|| serde_json::from_slice(&output.stdout).unwrap())
    }

    pub(super) fn kill(&mut self, n: usize) {
        let mut child = self.nodes[n - 1].take().unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
    }

    pub(super) fn receiver(&self, n: usize, into: &Path) -> Guarded {
        self.receiver_at(n, "1", into, &[])
    }

    pub(super) fn receiver_at(&self, n: usize, at: &str, into: &Path, more: &[&str]) -> Guarded {
        fs::create_dir_all(into).unwrap();
        let mut command = Command::new(SLOWLIGHT);
        command.args(["bp", "recv", at]).arg(into).args(more).arg("--node");
        command.arg(self.place(n).join("node.sock"));
        guarded(command.stdout(Stdio::null()).stderr(Stdio::null()))
    }
}

impl Drop for Row {
    fn drop(&mut self) {
        for child in self.nodes.iter_mut().flatten() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

pub(super) fn text(output: &Output) -> String {
    format!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    )
}

/// Files in a folder, without the working files of receivers.
pub(super) fn files(folder: &Path) -> Vec<PathBuf> {
    let paths = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    paths.filter(|path| path.is_file()).collect()
}

pub(super) fn bytes(len: usize, seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()[0]
    };
    (0..len).map(|_| next()).collect()
}

pub(super) fn wait_for(what: &str, mut is_so: impl FnMut() -> bool) {
    let limit = Instant::now() + Duration::from_secs(60);
    while !is_so() {
        assert!(Instant::now() < limit, "{what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}
