//! Three nodes in a row, each a process of this test binary. Bundles go from the first to the
//! last.
//!
//! A process takes `count` and `stop` from its standard input, and ends with it. It prints a line
//! for each event.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bp::agent::{self, Agent, Indication, SendRequest};
use bp::codec::bp7::BundleId;
use engine::Time;

use crate::node::{Spec, ask, endpoint, free_address, payload, row, wait_until_ready};

/// Environment variable of a process: number, life, own address, next address, folder.
const NODE: &str = "SLOWLIGHT_TEST_NODE";
/// Nodes of a row.
pub(crate) const NODES: usize = 3;
/// Bundles that the source holds at most before it sends more.
const AHEAD: usize = 200;
/// Longest wait for progress of all nodes.
const PATIENCE: Duration = Duration::from_secs(120);

/// Event of a node.
#[derive(Debug)]
enum Event {
    Ready,
    /// A bundle of the source was acknowledged.
    Stored(u64),
    /// A bundle was delivered: serial number and identity.
    Taken(u64, String),
    /// Bundles in the store.
    Held(usize),
}

impl Event {
    /// Event of a line; the test harness prints lines, too.
    fn of(line: &str) -> Option<Self> {
        let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
        match word {
            "ready" => Some(Self::Ready),
            "stored" => Some(Self::Stored(rest.parse().ok()?)),
            "taken" => {
                let (serial, id) = rest.split_once(' ')?;
                Some(Self::Taken(serial.parse().ok()?, id.to_owned()))
            }
            "held" => Some(Self::Held(rest.parse().ok()?)),
            _ => None,
        }
    }
}

fn print(line: &str) {
    // The other end is gone when the test failed.
    let _ = writeln!(std::io::stdout().lock(), "{line}");
}

/// Payload of a serial number: some fit into a record, others are files.
fn content(serial: u64) -> Vec<u8> {
    let mixed = serial.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 16;
    let len = if mixed % 10 < 8 { 8 + mixed % 2000 } else { 5000 + mixed % 40_000 };
    let filler = (0..len).map(|at| (at ^ mixed) as u8);
    serial.to_be_bytes().into_iter().chain(filler).collect()
}

/// Source of bundles.
struct Source {
    next: u64,
    is_over: bool,
    /// Serial numbers of bundles that are not acknowledged.
    sent: BTreeMap<BundleId, u64>,
}

impl Source {
    fn more(&mut self, now: Time, agent: &mut Agent) {
        while !self.is_over && agent.statistics().bundles + self.sent.len() < AHEAD {
            let request = SendRequest::new(endpoint(NODES), content(self.next));
            // There is room again once others have left.
            let Ok(id) = agent.send(now, request) else { break };
            self.sent.insert(id, self.next);
            self.next += 1;
        }
    }
}

/// Runs a node if this process is one.
pub(crate) fn serve() {
    let Ok(spec) = std::env::var(NODE) else { return };
    let fields: Vec<&str> = spec.splitn(5, ' ').collect();
    let [number, life, own, next, place] = fields[..] else { panic!("{spec}") };
    let number: usize = number.parse().unwrap();
    let place = PathBuf::from(place);
    let next = next.parse().ok().map(|address: SocketAddr| (number + 1, address));
    let first = life.parse::<u64>().unwrap() << 32;
    let source = Source { next: first, is_over: number != 1, sent: BTreeMap::new() };
    let source = Arc::new(Mutex::new(source));
    let spec = Spec {
        number,
        listen: own.parse().unwrap(),
        peers: next.into_iter().collect(),
        is_open: true,
        place: Some(place.clone()),
        agent: agent::Config { routing: row(number, NODES), ..agent::Config::default() },
    };
    let of_agent = Arc::clone(&source);
    let node = spec.start(move |now, agent, indication| {
        let mut source = of_agent.lock().unwrap();
        match indication {
            Indication::Stored { id } => {
                if let Some(serial) = source.sent.remove(&id) {
                    print(&format!("stored {serial}"));
                }
            }
            Indication::Delivered { delivery, id, payload: bytes, .. } => {
                let bytes = payload(&bytes, Some(&place));
                let serial = u64::from_be_bytes(bytes[..8].try_into().unwrap());
                assert!(bytes == content(serial), "{serial} is damaged");
                print(&format!("taken {serial} {id}"));
                agent.confirm(now, delivery).unwrap();
            }
            _ => {}
        }
        source.more(now, agent);
    });
    wait_until_ready(&node);
    print("ready");
    let of_agent = Arc::clone(&source);
    node.handle().ask(move |now, agent| of_agent.lock().unwrap().more(now, agent));
    for line in std::io::stdin().lines() {
        match line.unwrap().as_str() {
            "count" => {
                let held = ask(&node, |_, agent| agent.bundles().count());
                print(&format!("held {held}"));
            }
            "stop" => source.lock().unwrap().is_over = true,
            other => panic!("{other}"),
        }
    }
    assert!(!node.has_failed());
}

/// A bundle that was delivered.
#[derive(Debug)]
struct Taken {
    id: String,
    /// Lives of the last node in which it was delivered.
    lives: Vec<u64>,
}

/// A node of the row.
struct Process {
    child: Child,
    input: ChildStdin,
    life: u64,
    is_ready: bool,
    held: Option<usize>,
}

/// Numbers of one row.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Numbers {
    pub(crate) kills: u64,
    pub(crate) acknowledged: u64,
    pub(crate) delivered: u64,
    /// Bundles delivered again after the last node was killed.
    pub(crate) again: u64,
}

impl std::ops::Add for Numbers {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            kills: self.kills + other.kills,
            acknowledged: self.acknowledged + other.acknowledged,
            delivered: self.delivered + other.delivered,
            again: self.again + other.again,
        }
    }
}

/// A row of nodes, and everything that they have reported.
pub(crate) struct Chain {
    folder: tempfile::TempDir,
    addresses: Vec<SocketAddr>,
    processes: Vec<Process>,
    reports: Sender<(usize, u64, Event)>,
    events: Receiver<(usize, u64, Event)>,
    stored: BTreeSet<u64>,
    taken: BTreeMap<u64, Taken>,
    kills: u64,
}

impl Chain {
    /// Starts the nodes of row `number`.
    pub(crate) fn new(number: u8) -> Self {
        // No other program has this address, so that ports stay free while a node is down.
        let [_, _, high, low] = std::process::id().to_be_bytes();
        let ip = [127, 1 + high % 200, low, 1 + number];
        let addresses = (0..NODES).map(|_| free_address(ip)).collect();
        let (reports, events) = channel();
        let mut chain = Self {
            folder: tempfile::tempdir().unwrap(),
            addresses,
            processes: Vec::new(),
            reports,
            events,
            stored: BTreeSet::new(),
            taken: BTreeMap::new(),
            kills: 0,
        };
        for n in 0..NODES {
            std::fs::create_dir(chain.place(n)).unwrap();
            let process = chain.spawn(n, 1);
            chain.processes.push(process);
        }
        chain
    }

    fn place(&self, n: usize) -> PathBuf {
        self.folder.path().join(n.to_string())
    }

    fn spawn(&self, n: usize, life: u64) -> Process {
        let next = self.addresses.get(n + 1).map_or("-".to_owned(), SocketAddr::to_string);
        let (own, place) = (self.addresses[n], self.place(n));
        let spec = format!("{} {life} {own} {next} {}", n + 1, place.display());
        let log = File::options().create(true).append(true).open(self.log(n)).unwrap();
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "kills::a_node_of_a_row", "--nocapture"])
            .env(NODE, spec)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(log)
            .spawn()
            .unwrap();
        let (output, input) = (child.stdout.take().unwrap(), child.stdin.take().unwrap());
        let reports = self.reports.clone();
        std::thread::spawn(move || {
            let lines = BufReader::new(output).lines();
            for event in lines.map_while(Result::ok).filter_map(|line| Event::of(&line)) {
                if reports.send((n, life, event)).is_err() {
                    return;
                }
            }
        });
        Process { child, input, life, is_ready: false, held: None }
    }

    fn log(&self, n: usize) -> PathBuf {
        self.folder.path().join(format!("log-{n}"))
    }

    /// Text of a failure, with the last lines of the logs.
    fn failure(&self, what: &str) -> String {
        let logs = (0..NODES).map(|n| std::fs::read_to_string(self.log(n)).unwrap_or_default());
        format!("{what}\n{}", logs.collect::<Vec<_>>().join("\n"))
    }

    fn handle(&mut self, (n, life, event): (usize, u64, Event)) {
        match event {
            Event::Ready if self.processes[n].life == life => self.processes[n].is_ready = true,
            Event::Held(count) if self.processes[n].life == life => {
                self.processes[n].held = Some(count);
            }
            Event::Ready | Event::Held(_) => {}
            Event::Stored(serial) => {
                assert!(self.stored.insert(serial), "{serial} is acknowledged twice");
            }
            Event::Taken(serial, id) => {
                let before = Taken { id: id.clone(), lives: Vec::new() };
                let taken = self.taken.entry(serial).or_insert(before);
                assert_eq!(taken.id, id, "{serial} was delivered as another bundle");
                assert!(!taken.lives.contains(&life), "{serial} was delivered twice in one life");
                taken.lives.push(life);
            }
        }
    }

    /// Takes reports for some time.
    pub(crate) fn pass(&mut self, time: Duration) {
        let until = Instant::now() + time;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            match self.events.recv_timeout(left) {
                Ok(event) => self.handle(event),
                Err(_) => return,
            }
        }
    }

    /// Waits until a node accepts bundles.
    pub(crate) fn wait_until_ready(&mut self, n: usize) {
        let limit = Instant::now() + PATIENCE;
        while !self.processes[n].is_ready {
            let ended = self.processes[n].child.try_wait().unwrap();
            let is_fine = ended.is_none() && Instant::now() < limit;
            assert!(is_fine, "{}", self.failure(&format!("node {n} does not start: {ended:?}")));
            if let Ok(event) = self.events.recv_timeout(Duration::from_millis(100)) {
                self.handle(event);
            }
        }
    }

    /// Kills a node and starts it again.
    pub(crate) fn kill(&mut self, n: usize) {
        let process = &mut self.processes[n];
        let ended = process.child.try_wait().unwrap();
        assert!(ended.is_none(), "{}", self.failure(&format!("node {n} has ended: {ended:?}")));
        let process = &mut self.processes[n];
        process.child.kill().unwrap();
        process.child.wait().unwrap();
        self.kills += 1;
        let life = self.processes[n].life + 1;
        self.processes[n] = self.spawn(n, life);
    }

    /// Sends no more bundles, and waits until all that were acknowledged have been delivered and
    /// no node holds any.
    pub(crate) fn finish(mut self) -> Numbers {
        (0..NODES).for_each(|n| self.wait_until_ready(n));
        writeln!(self.processes[0].input, "stop").unwrap();
        let mut limit = Instant::now() + PATIENCE;
        let mut before = (0, None);
        loop {
            for process in &mut self.processes {
                process.held = None;
                writeln!(process.input, "count").unwrap();
            }
            self.pass(Duration::from_millis(50));
            let held: Option<usize> = self.processes.iter().map(|process| process.held).sum();
            let missing = self.stored.iter().filter(|serial| !self.taken.contains_key(serial));
            let missing = missing.count();
            if missing == 0 && held == Some(0) {
                break;
            }
            if before != (missing, held) {
                (before, limit) = ((missing, held), Instant::now() + PATIENCE);
            }
            let what = format!("{missing} acknowledged bundles are missing, {held:?} are held");
            assert!(Instant::now() < limit, "{}", self.failure(&what));
        }
        Numbers {
            kills: self.kills,
            acknowledged: self.stored.len() as u64,
            delivered: self.taken.len() as u64,
            again: self.taken.values().filter(|taken| taken.lives.len() > 1).count() as u64,
        }
    }
}

impl Drop for Chain {
    fn drop(&mut self) {
        for process in &mut self.processes {
            let _ = process.child.kill();
            let _ = process.child.wait();
        }
    }
}
