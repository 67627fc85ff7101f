//! Small bundles over three nodes as fast as they go: neither memory nor disk may grow.
//!
//! `SLOWLIGHT_SOAK` is the number of bundles (40,000), `SLOWLIGHT_SOAK_STORE` a folder for the
//! stores (in memory). Many need a release build:
//!
//! `SLOWLIGHT_SOAK=20000000 cargo test --release -p slowlight-rt --test it -- soak --nocapture`

use std::collections::BTreeSet;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bp::agent::{self, Agent, Indication, Limits, SendRequest};
use engine::Time;
use slowlight_rt::node::{Handle, Node};

use crate::node::{Spec, ask, endpoint, payload, row, wait_until_ready};
use crate::number;

/// Environment variable of the process that is measured.
const INSIDE: &str = "SLOWLIGHT_TEST_SOAK";
const NODES: usize = 3;
/// Bundles that are sent and not delivered, at most.
const AHEAD: u64 = 4096;
/// Bytes of a bundle.
const BYTES: usize = 100;
/// Samples of memory and disk in a run. The first half is the time of growth.
const SAMPLES: u64 = 100;
/// Growth from the third quarter of a run to the last that counts as none.
const GROWTH: f64 = 0.05;
const GROWTH_BYTES: f64 = (16 << 20) as f64;
/// Longest time without a delivery.
const PATIENCE: Duration = Duration::from_secs(120);

/// Source of bundles with serial numbers, and the ones that were delivered.
struct Flow {
    count: u64,
    sent: u64,
    delivered: Arc<AtomicU64>,
}

impl Flow {
    fn more(&mut self, now: Time, agent: &mut Agent) {
        while self.sent < self.count {
            if self.sent - self.delivered.load(Ordering::Relaxed) >= AHEAD {
                return;
            }
            let mut bytes = vec![0x5a; BYTES];
            bytes[..8].copy_from_slice(&self.sent.to_be_bytes());
            match agent.send(now, SendRequest::new(endpoint(NODES), bytes)) {
                Ok(_) => self.sent += 1,
                // There is room again once others have left.
                Err(_) => return,
            }
        }
    }
}

/// Memory of this process, in bytes.
fn memory() -> f64 {
    let text = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    1024.0 * line.trim_end_matches("kB").trim().parse::<f64>().unwrap()
}

/// Bytes that a folder takes on disk. Files that vanish meanwhile do not count.
fn disk(folder: &Path) -> f64 {
    let Ok(entries) = std::fs::read_dir(folder) else { return 0.0 };
    let sizes = entries.flatten().map(|entry| match entry.metadata() {
        Ok(of) if of.is_dir() => disk(&entry.path()),
        Ok(of) => of.blocks() as f64 * 512.0,
        Err(_) => 0.0,
    });
    sizes.sum()
}

/// Bundles that have arrived, each once.
#[derive(Default)]
struct Arrived {
    /// All below this one have arrived.
    low: u64,
    above: BTreeSet<u64>,
}

impl Arrived {
    fn insert(&mut self, serial: u64) {
        let is_new = serial >= self.low && self.above.insert(serial);
        assert!(is_new, "{serial} was delivered twice");
        while self.above.remove(&self.low) {
            self.low += 1;
        }
    }
}

struct Soak {
    nodes: Vec<Node>,
    delivered: Arc<AtomicU64>,
    store: Option<PathBuf>,
}

impl Soak {
    fn start(count: u64, store: Option<PathBuf>) -> Self {
        let delivered = Arc::new(AtomicU64::new(0));
        let flow = Flow { count, sent: 0, delivered: Arc::clone(&delivered) };
        let flow = Arc::new(Mutex::new(flow));
        let first: Arc<Mutex<Option<Handle>>> = Arc::default();
        let mut nodes: Vec<Node> = Vec::new();
        for number in (1..=NODES).rev() {
            let next = nodes.last().map(|node| (number + 1, node.listening().next().unwrap().1[0]));
            let place = store.as_ref().map(|store| store.join(number.to_string()));
            place.iter().for_each(|place| std::fs::create_dir_all(place).unwrap());
            let limits = Limits { gone: (count / 40) as usize, ..Limits::default() };
            let spec = Spec {
                number,
                listen: "127.0.0.1:0".parse().unwrap(),
                peers: next.into_iter().collect(),
                is_open: true,
                place: place.clone(),
                agent: agent::Config { routing: row(number, NODES), limits, ..Default::default() },
            };
            let (flow, first, delivered) = (flow.clone(), first.clone(), delivered.clone());
            let mut arrived = Arrived::default();
            let node = spec.start(move |now, agent, indication| match indication {
                Indication::Delivered { delivery, payload: content, .. } => {
                    let bytes = payload(&content, place.as_deref());
                    arrived.insert(u64::from_be_bytes(bytes[..8].try_into().unwrap()));
                    agent.confirm(now, delivery).unwrap();
                    if delivered.fetch_add(1, Ordering::Relaxed) % (AHEAD / 8) == 0
                        && let Some(first) = &*first.lock().unwrap()
                    {
                        let flow = flow.clone();
                        first.ask(move |now, agent| flow.lock().unwrap().more(now, agent));
                    }
                }
                Indication::Forwarded { .. } if number == 1 => {
                    flow.lock().unwrap().more(now, agent);
                }
                Indication::Deleted { id, reason } => panic!("{id} was deleted: {reason:?}"),
                _ => {}
            });
            wait_until_ready(&node);
            nodes.push(node);
        }
        let source = nodes.last().unwrap().handle();
        *first.lock().unwrap() = Some(source.clone());
        source.ask(move |now, agent| flow.lock().unwrap().more(now, agent));
        Self { nodes, delivered, store }
    }

    /// Memory, disk and bundles in the stores.
    fn sample(&self) -> [f64; 3] {
        let held = self.nodes.iter().map(|node| ask(node, |_, agent| agent.statistics().bundles));
        [memory(), self.store.as_deref().map_or(0.0, disk), held.sum::<usize>() as f64]
    }
}

/// Mean of a column in a quarter of the samples.
fn mean(samples: &[[f64; 3]], quarter: usize, column: usize) -> f64 {
    let len = samples.len() / 4;
    let of = samples.iter().skip(quarter * len).take(len).map(|sample| sample[column]);
    of.sum::<f64>() / len as f64
}

/// Sends the bundles, and compares the samples.
fn run(count: u64, store: Option<PathBuf>) {
    let soak = Soak::start(count, store);
    let (begin, mut last) = (Instant::now(), (Instant::now(), 0));
    let mut samples: Vec<[f64; 3]> = Vec::new();
    loop {
        let delivered = soak.delivered.load(Ordering::Relaxed);
        if delivered > last.1 {
            last = (Instant::now(), delivered);
        }
        let is_stuck = last.0.elapsed() > PATIENCE;
        assert!(!is_stuck, "{delivered} of {count} were delivered, then none");
        if delivered >= (samples.len() as u64 + 1) * count / SAMPLES {
            let sample = soak.sample();
            let [memory, disk, held] = sample;
            samples.push(sample);
            let rate = delivered as f64 / begin.elapsed().as_secs_f64();
            eprintln!(
                "{delivered} bundles, {rate:.0}/s: memory {:.1} MB, disk {:.1} MB, {held} held",
                memory * 1e-6,
                disk * 1e-6
            );
        } else if delivered == count {
            break;
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    for (column, name) in ["memory", "disk"].into_iter().enumerate() {
        let [before, after] = [2, 3].map(|quarter| mean(&samples, quarter, column));
        let most = before + (before * GROWTH).max(GROWTH_BYTES);
        assert!(after <= most, "{name} grows from {before:.0} to {after:.0} bytes");
    }
    for node in soak.nodes.into_iter().rev() {
        assert!(!node.has_failed());
        node.stop(Duration::from_secs(5));
    }
}

#[test]
fn neither_memory_nor_disk_grows_in_a_soak() {
    let count = number("SLOWLIGHT_SOAK", 40_000);
    if std::env::var_os(INSIDE).is_some() {
        return run(count, std::env::var_os("SLOWLIGHT_SOAK_STORE").map(PathBuf::from));
    }
    // In its own process: other tests use memory, too.
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "soak::neither_memory_nor_disk_grows_in_a_soak", "--nocapture"]);
    let output = command.env(INSIDE, "1").output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    eprintln!("{text}");
    assert!(output.status.success(), "{text}");
}
