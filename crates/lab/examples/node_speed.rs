//! How fast bundles go from one node to another over loopback. Both are in this process, each with its threads, as
//! `slowlight node` would run them.
//!
//! `node_speed KIND STORE OCTETS COUNT`, where KIND is a convergence layer and STORE is a directory or `memory`, prints one line
//! of JSON.

#![expect(clippy::print_stdout, reason = "it says what it measured")]

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime};

use bytes::Bytes;
use engine::Time;
use mimalloc::MiMalloc;
use proto::bp::agent::{Agent, Indication, SendRequest};
use rt::node::Node;
use rt::{FileStore, RecordsIn, StoreConfig, Waker};
use slowlight_lab::node::NodeSpec;
use slowlight_lab::text;
use wire::bp7::Eid;

/// That of `slowlight`.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

/// Bundles, and octets of them, that are handed in and have not left.
const AHEAD: (usize, u64) = (2048, 256 << 20);
/// How long nothing may arrive.
const PATIENCE: Duration = Duration::from_secs(10);
/// Octets of a store in memory.
const MEMORY: u64 = 4 << 30;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [kind, store, octets, count] = arguments.as_slice() else {
        panic!("four arguments: KIND, STORE, OCTETS and COUNT");
    };
    let octets: usize = octets.parse().expect("OCTETS is a number");
    let count: u64 = count.parse().expect("COUNT is a number");
    let arrived = Arc::new(AtomicU64::new(0));
    let counts = Arc::clone(&arrived);
    let sink = node(2, (kind, store), "", move |now, agent, indication| {
        if let Indication::Delivered { delivery, .. } = indication {
            agent.confirm(now, delivery).expect("it was handed over just now");
            counts.fetch_add(1, Ordering::Relaxed);
        }
    });
    sink.handle().ask(|_, agent| agent.register(&Eid::ipn(2, 1)).expect("nobody has it"));
    let address = sink.listening().next().expect("there is one layer").1[0];
    let neighbour = format!("[[neighbour]]\nnode = \"ipn:2.0\"\naddress = \"{address}\"\n");
    let source = Source { payload: Bytes::from(vec![0x5a; octets]), count, sent: 0 };
    let source = Arc::new(Mutex::new(source));
    let goes_on = Arc::clone(&source);
    let node = node(1, (kind, store), &neighbour, move |now, agent, indication| {
        if let Indication::Forwarded { .. } = indication {
            goes_on.lock().expect("no thread panicked").more(now, agent);
        }
    });
    wait_until_up(&node);
    let begun = Instant::now();
    node.handle()
        .ask(move |now, agent| source.lock().expect("no thread panicked").more(now, agent));
    let (mut before, mut heard) = (0, Instant::now());
    let taken = loop {
        let now = arrived.load(Ordering::Relaxed);
        if now > before {
            (before, heard) = (now, Instant::now());
        }
        if now >= count || heard.elapsed() > PATIENCE {
            break now;
        }
        std::thread::sleep(Duration::from_micros(200));
    };
    // Over UDP not all need arrive: the last that did counts.
    let seconds = heard.duration_since(begun).as_secs_f64();
    let rate = taken as f64 / seconds;
    println!(
        "{{\"kind\": \"{kind}\", \"octets\": {octets}, \"sent\": {count}, \"arrived\": {taken}, \
         \"seconds\": {seconds:.3}, \"bundles_per_s\": {rate:.0}, \"gbit_per_s\": {:.3}}}",
        rate * octets as f64 * 8e-9
    );
    node.stop(Duration::from_secs(1));
    sink.stop(Duration::from_secs(1));
}

/// Waits until a node takes bundles, and its neighbour can be reached.
fn wait_until_up(node: &Node) {
    let is_up = Arc::new(AtomicBool::new(false));
    while !is_up.load(Ordering::Relaxed) {
        let told = Arc::clone(&is_up);
        node.handle().ask(move |_, agent| {
            told.store(agent.is_ready() && !agent.nodes_up().is_empty(), Ordering::Relaxed);
        });
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// What is handed in.
struct Source {
    payload: Bytes,
    count: u64,
    sent: u64,
}

impl Source {
    fn more(&mut self, now: Time, agent: &mut Agent) {
        let (bundles, octets) = AHEAD;
        while self.sent < self.count {
            let held = agent.statistics();
            if held.bundles >= bundles || held.bundles > 4 && held.octets >= octets {
                break;
            }
            match agent.send(now, SendRequest::new(Eid::ipn(2, 1), self.payload.clone())) {
                Ok(_) => self.sent += 1,
                // There is room when others have left.
                Err(_) => break,
            }
        }
    }
}

fn node(
    number: u32,
    (kind, store): (&str, &str),
    neighbours: &str,
    on: impl FnMut(Time, &mut Agent, Indication) + Send + 'static,
) -> Node {
    let place = Path::new(store).join(number.to_string());
    let kept = match store {
        "memory" => format!("memory = \"{MEMORY} B\""),
        _ => format!("directory = {place:?}"),
    };
    let address = "127.0.0.1:0";
    let layer = match kind {
        "udpcl" => format!(
            "listen = \"{address}\"\nrate = \"20 Gbit/s\"\ndatagram = \"65507 B\"\ncut = true"
        ),
        _ => format!("listen = [\"{address}\"]"),
    };
    let toml = format!(
        "id = \"ipn:{number}.0\"\n[store]\n{kept}\n[[layer]]\nkind = \"{kind}\"\n{layer}\n{neighbours}"
    );
    let spec: NodeSpec =
        text::parse(&toml, "the example").unwrap_or_else(|error| panic!("{error}\n{toml}"));
    let config = spec.config(SystemTime::now(), u64::from(number)).expect("it is sound");
    let waker = Waker::new().expect("a descriptor is left");
    let files = if store == "memory" {
        FileStore::in_memory(MEMORY, &waker)
    } else {
        std::fs::create_dir_all(&place).expect("STORE can be written");
        let index = RecordsIn::Database;
        let config = StoreConfig { bytes_max: 64 << 20, index, ..StoreConfig::new(&place) };
        FileStore::open(config, &waker).expect("STORE can be written")
    };
    Node::start(config, files, waker, on).expect("loopback has room")
}
