//! Nodes that discover each other, in a network namespace of their own without a way out.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::net::{SocketAddr, UdpSocket};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime};

use bp::codec::bp7::Eid;
use bp::codec::ipnd::{Beacon, Offer};
use rt::node::Node;
use rt::{FileStore, Waker};
use service::api::{Hub, NodeClient, NodeServer, Shared, model};
use service::node::{NodeSpec, PlanInForce, Reload};

const PATIENCE: Duration = Duration::from_secs(30);

/// Runs the test `name` again in its own namespace, at most two minutes; `true` if this is that
/// run.
fn inside(name: &str) -> bool {
    let setup = "ip link set lo up && ip link add lan type veth peer name other && \
                 sysctl -qw net.ipv6.conf.lan.accept_dad=0 && ip link set other up && \
                 ip link set lan up && \
                 ip addr add 192.0.2.1/24 dev lan && ip addr add 192.0.2.7/24 dev lan && \
                 ip route add 224.0.0.0/4 dev lan";
    testing::namespace::is_inside(&format!("discovery::{name}"), setup, 120)
}

/// Settings of node `number`, with these of the discovery.
fn settings(number: u32, any: &str, discovery: &str) -> String {
    format!(
        "id = \"ipn:{number}.0\"\nstore.memory = \"1 MB\"\n\
         [discovery]\ninterfaces = [\"lan\"]\nperiod = \"1 s\"\n{discovery}\n\
         [[layer]]\nkind = \"tcpcl4\"\nlisten = [\"{any}:0\"]\nreconnect = \"20 ms\"\n\
         reconnect_max = \"200 ms\"\n[[neighbour]]\nnode = \"ipn:9.0\"\nfrom = [\"192.0.2.9\"]\n"
    )
}

/// A node with its interface.
struct Place {
    folder: tempfile::TempDir,
    reload: Arc<Reload>,
    ends: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Place {
    fn new(text: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("node.toml");
        std::fs::write(&file, text).unwrap();
        let spec = NodeSpec::read(&file).unwrap();
        let plan = PlanInForce::default();
        let config = spec.config(SystemTime::now(), 1, &plan).unwrap();
        let waker = Waker::new().unwrap();
        let store = FileStore::in_memory(1_000_000, &waker);
        let hub = Arc::new(Hub::new(None));
        let hears = Arc::clone(&hub);
        let node = Node::start(config, store, waker, move |now, agent, indication| {
            hears.hear(now, agent, indication);
        })
        .unwrap();
        let listening: Vec<Vec<SocketAddr>> = node.listening().map(|(_, at)| at.to_vec()).collect();
        let server = NodeServer::bind(&folder.path().join("sock"), spec.socket.access().unwrap());
        let server = server.unwrap();
        let (name, handle) = (spec.node().unwrap(), node.handle());
        let reload = Arc::new(Reload::new(file, spec, plan, handle.clone()));
        reload.discover(listening).unwrap();
        let again = Arc::clone(&reload);
        let shared = Shared { node: name, handle, hub, spool: None, layers: Vec::new(), reload };
        let ends = Arc::new(AtomicBool::new(false));
        let end = Arc::clone(&ends);
        let thread = std::thread::spawn(move || {
            server.run(shared, || end.load(Ordering::Relaxed));
            node.stop(Duration::from_secs(1));
        });
        let place = Self { folder, reload: again, ends, thread: Some(thread) };
        wait_for("it is ready", || place.state().is_ready);
        place
    }

    fn client(&self) -> NodeClient {
        let socket: PathBuf = self.folder.path().join("sock");
        NodeClient::connect(&socket).unwrap()
    }

    fn state(&self) -> model::Node {
        self.client().get("/node", &[]).unwrap()
    }

    fn discovered(&self) -> Vec<String> {
        self.state().discovered.into_iter().map(|found| found.node).collect()
    }

    fn send(&self, to: &str) {
        let sent = self.client().send(&[("to", to)], b"content".as_slice());
        assert!(!sent.unwrap().id.is_empty());
    }

    fn receive(&self) {
        let mut client = self.client();
        let mut coming = client.take(&[("endpoint", "1"), ("confirm", "true")]).unwrap();
        let delivery = client.next(&mut coming).unwrap().unwrap();
        let payload = client.piece(&mut coming, delivery.bytes).unwrap();
        assert_eq!(payload, b"content".as_slice());
    }

    fn reload(&self, text: &str) {
        std::fs::write(self.folder.path().join("node.toml"), text).unwrap();
        assert!(self.reload.read().unwrap().is_empty());
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn wait_for(what: &str, is_so: impl Fn() -> bool) {
    let limit = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < limit, "{what}: not within {PATIENCE:?}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn a_node_without_addresses_delivers_to_its_neighbour() {
    if !inside("a_node_without_addresses_delivers_to_its_neighbour") {
        return;
    }
    let settings = |number| settings(number, "0.0.0.0", "groups = [\"224.0.0.26:3003\"]");
    let (one, two) = (Place::new(&settings(1)), Place::new(&settings(2)));
    one.send("ipn:2.1");
    two.receive();
    let found = &one.state().discovered[0];
    assert_eq!(
        (found.node.as_str(), found.interface.as_str(), found.layer.as_str()),
        ("ipn:2.0", "lan", "tcp")
    );
    // It vanishes: bundles for it wait, until it is back.
    drop(two);
    wait_for("it is lost", || one.discovered().is_empty());
    one.send("ipn:2.1");
    let waiting = || one.client().get::<Vec<model::Bundle>>("/bundles", &[("state", "waiting")]);
    assert_eq!(waiting().unwrap().len(), 1);
    let two = Place::new(&settings(2));
    two.receive();
    // A reload makes the neighbour a configured one, or ends the discovery.
    let before = settings(1);
    let known = "[[neighbour]]\nnode = \"ipn:2.0\"\nfrom = [\"192.0.2.1\"]\n";
    one.reload(&format!("{before}{known}"));
    assert_eq!(one.discovered(), [""; 0]);
    one.reload(&before);
    wait_for("it is discovered again", || one.discovered() == ["ipn:2.0"]);
    let (start, end) = (before.find("[discovery]").unwrap(), before.find("[[layer]]").unwrap());
    one.reload(&format!("{}{}", &before[..start], &before[end..]));
    assert_eq!(one.discovered(), [""; 0]);
    drop(two);
}

#[test]
fn nodes_find_each_other_over_ipv6() {
    if inside("nodes_find_each_other_over_ipv6") {
        let settings = |number| settings(number, "[::]", "groups = [\"[ff02::1]:3003\"]");
        let (one, two) = (Place::new(&settings(1)), Place::new(&settings(2)));
        one.send("ipn:2.1");
        two.receive();
        let address = one.state().discovered[0].address.to_string();
        assert!(address.starts_with("[fe80::"), "{address}");
    }
}

#[test]
fn forged_beacons_do_no_harm() {
    if !inside("forged_beacons_do_no_harm") {
        return;
    }
    let place = Place::new(&settings(1, "0.0.0.0", "nodes = 4"));
    let announce = |from: &str, node: u32| {
        let layers = vec![Offer { name: "tcp".to_owned(), port: Some(9999) }];
        let beacon = Beacon { node: Eid::ipn(node, 0), layers, ..Beacon::default() };
        let socket = UdpSocket::bind((from, 0)).unwrap();
        socket.send_to(&beacon.encode().unwrap(), "224.0.0.26:3003").unwrap();
    };
    wait_for("it announces itself", || place.state().beacons.sent > 0);
    // A configured neighbour, and one at an address that is none of the link.
    announce("192.0.2.7", 9);
    announce("127.0.0.1", 5);
    wait_for("one is ignored at least", || place.state().beacons.ignored >= 1);
    assert_eq!(place.discovered(), [""; 0]);
    for node in 100..200 {
        announce("192.0.2.7", node);
    }
    wait_for("the bound is reached", || place.discovered().len() == 4);
    let state = place.state();
    assert!(state.beacons.ignored >= 96, "{state:?}");
    assert_eq!(state.neighbours, [""; 0]);
}
