//! Throughput of bundles between two nodes over loopback. Both run in this process, each with its
//! own threads, as in `slowlight node`.
//!
//! `node_speed KIND STORE BYTES COUNT`, where KIND is a convergence layer and STORE is a directory
//! or `memory`, prints one line of JSON.

#![expect(clippy::print_stdout, reason = "it prints the results")]

use std::net::{SocketAddr, UdpSocket};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime};

use bp::agent::{Agent, Indication, SendRequest};
use bp::codec::bp7::Eid;
use bytes::Bytes;
use engine::Time;
use mimalloc::MiMalloc;
use rt::node::Node;
use rt::{FileStore, RecordsIn, StoreConfig, Waker};
use service::node::{NodeSpec, PlanInForce};

/// As in `slowlight`.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

/// Maximum bundles, and their bytes, accepted and not yet forwarded.
const AHEAD: (usize, u64) = (2048, 256 << 20);
/// Time without arrivals after which the run ends.
const PATIENCE: Duration = Duration::from_secs(60);
/// Interval of checks for arrivals.
const LOOK: Duration = Duration::from_millis(100);
/// Capacity of a store in memory, in bytes.
const MEMORY: u64 = 4 << 30;
/// Send rate of layers over UDP: above what they achieve.
const RATE: &str = "20 Gbit/s";

/// Parameters of the measurement.
struct Parameters {
    kind: String,
    store: String,
    bytes: usize,
    count: u64,
    /// Addresses of the nodes: LTP engines need them before they start.
    at: [SocketAddr; 2],
}

fn parameters() -> Parameters {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [kind, store, bytes, count] = arguments.as_slice() else {
        panic!("four arguments: KIND, STORE, BYTES and COUNT");
    };
    // Both ports are reserved before either is released.
    let free = [(); 2].map(|()| UdpSocket::bind("127.0.0.1:0").expect("loopback has ports"));
    Parameters {
        kind: kind.clone(),
        store: store.clone(),
        bytes: bytes.parse().expect("BYTES is a number"),
        count: count.parse().expect("COUNT is a number"),
        at: free.map(|socket| socket.local_addr().expect("it is bound")),
    }
}

fn main() {
    let parameters = parameters();
    let Parameters { ref kind, bytes, count, .. } = parameters;
    let arrived = Arc::new(Arrived::default());
    let counts = Arc::clone(&arrived);
    let clock = Instant::now();
    let (all_arrived, all) = sync_channel(1);
    let sink = node(2, &parameters, None, move |now, agent, indication| {
        if let Indication::Delivered { delivery, .. } = indication {
            agent.confirm(now, delivery).expect("it was just delivered");
            counts.last_ns.store(clock.elapsed().as_nanos() as u64, Ordering::Relaxed);
            if counts.bundles.fetch_add(1, Ordering::Release) + 1 == count {
                all_arrived.send(()).expect("it is waited for");
            }
        }
    });
    sink.handle().ask(|_, agent| agent.register(&Eid::ipn(2, 1)).expect("the endpoint is free"));
    let address = sink.listening().next().expect("there is one layer").1[0];
    let source = Source { payload: Bytes::from(vec![0x5a; bytes]), count, sent: 0 };
    let source = Arc::new(Mutex::new(source));
    let goes_on = Arc::clone(&source);
    let node = node(1, &parameters, Some(address), move |now, agent, indication| {
        if let Indication::Forwarded { .. } = indication {
            goes_on.lock().expect("no thread panicked").more(now, agent);
        }
    });
    wait_until_up(&node);
    let start = clock.elapsed();
    node.handle()
        .ask(move |now, agent| source.lock().expect("no thread panicked").more(now, agent));
    let last = || Duration::from_nanos(arrived.last_ns.load(Ordering::Relaxed)).max(start);
    while all.recv_timeout(LOOK).is_err() && clock.elapsed() < last() + PATIENCE {}
    // Over UDP some may be lost: the last arrival ends the measurement.
    let taken = arrived.bundles.load(Ordering::Acquire);
    let seconds = (last() - start).as_secs_f64();
    let rate = taken as f64 / seconds;
    println!(
        "{{\"kind\": \"{kind}\", \"bytes\": {bytes}, \"sent\": {count}, \"arrived\": {taken}, \
         \"seconds\": {seconds:.3}, \"bundles_per_s\": {rate:.0}, \"gbit_per_s\": {:.3}}}",
        rate * bytes as f64 * 8e-9
    );
    node.stop(Duration::from_secs(1));
    sink.stop(Duration::from_secs(1));
}

/// Arrived bundles.
#[derive(Default)]
struct Arrived {
    bundles: AtomicU64,
    /// Time of the last arrival.
    last_ns: AtomicU64,
}

/// Waits until a node accepts bundles, and its neighbour is reachable.
fn wait_until_up(node: &Node) {
    let is_up = Arc::new(AtomicBool::new(false));
    while !is_up.load(Ordering::Relaxed) {
        let ready = Arc::clone(&is_up);
        node.handle().ask(move |_, agent| {
            ready.store(agent.is_ready() && !agent.nodes_up().is_empty(), Ordering::Relaxed);
        });
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Source of the bundles.
struct Source {
    payload: Bytes,
    count: u64,
    sent: u64,
}

impl Source {
    fn more(&mut self, now: Time, agent: &mut Agent) {
        let (bundles, bytes) = AHEAD;
        while self.sent < self.count {
            let held = agent.statistics();
            if held.bundles >= bundles || held.bundles > 4 && held.bytes >= bytes {
                break;
            }
            match agent.send(now, SendRequest::new(Eid::ipn(2, 1), self.payload.clone())) {
                Ok(_) => self.sent += 1,
                // There is room again once others have left.
                Err(_) => break,
            }
        }
    }
}

fn node(
    number: usize,
    parameters: &Parameters,
    other: Option<SocketAddr>,
    on: impl FnMut(Time, &mut Agent, Indication) + Send + 'static,
) -> Node {
    let Parameters { kind, store, at, .. } = parameters;
    let place = Path::new(store).join(number.to_string());
    let kept = match store.as_str() {
        "memory" => format!("memory = \"{MEMORY} B\""),
        _ => format!("directory = {place:?}"),
    };
    let (own, far) = (at[number - 1], at[2 - number]);
    let layer = match kind.as_str() {
        "udpcl" => {
            format!("listen = \"{own}\"\nrate = \"{RATE}\"\ndatagram = \"65507 B\"\ncut = true")
        }
        "ltpcl" => format!("listen = \"{own}\"\nrate = \"{RATE}\""),
        _ => "listen = [\"127.0.0.1:0\"]".to_owned(),
    };
    // Both are neighbours: a stranger gets only a part of the store, and no reply over LTP.
    let place_of_other = match (kind.as_str(), other) {
        ("udpcl" | "ltpcl", _) => format!("address = \"{far}\""),
        (_, Some(address)) => format!("address = \"{address}\""),
        (_, None) => "from = [\"127.0.0.1\"]".to_owned(),
    };
    let neighbour = format!("[[neighbour]]\nnode = \"ipn:{}.0\"\n{place_of_other}\n", 3 - number);
    let toml = format!(
        "id = \"ipn:{number}.0\"\n[store]\n{kept}\n[[layer]]\nkind = \"{kind}\"\n{layer}\n{neighbour}"
    );
    let spec =
        NodeSpec::parse(&toml, "the example").unwrap_or_else(|error| panic!("{error}\n{toml}"));
    let plan = PlanInForce::default();
    let config = spec.config(SystemTime::now(), number as u64, &plan).expect("it is sound");
    let waker = Waker::new().expect("a descriptor is left");
    let files = if store == "memory" {
        FileStore::in_memory(MEMORY, &waker)
    } else {
        std::fs::create_dir_all(&place).expect("STORE can be written");
        let index = RecordsIn::Log;
        let config = StoreConfig { bytes_max: 64 << 20, index, ..StoreConfig::new(&place) };
        FileStore::open(config, &waker).expect("STORE can be written")
    };
    Node::start(config, files, waker, on).expect("loopback has room")
}
