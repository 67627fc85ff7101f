//! Nodes configured by TOML on real sockets: bundles cross over each layer of datagrams.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::net::{SocketAddr, UdpSocket};
use std::path::Path;
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant, SystemTime};

use bp::agent::{Agent, Indication, SendRequest};
use bp::codec::bp7::{BundleId, Eid};
use bp::layer::Content;
use engine::{FileName, Time};
use rt::node::Node;
use rt::{FileStore, StoreConfig, Waker};
use service::node::{NodeSpec, PlanInForce};

const PATIENCE: Duration = Duration::from_secs(60);

struct Place {
    node: Node,
    delivered: Receiver<(BundleId, Vec<u8>)>,
}

impl Place {
    /// Node `number` of two, with its store in `folder` or in memory.
    fn new(text: &str, number: u32, folder: Option<&Path>) -> Self {
        let spec = NodeSpec::parse(text, "node.toml").unwrap();
        let config =
            spec.config(SystemTime::now(), u64::from(number), &PlanInForce::default()).unwrap();
        let waker = Waker::new().unwrap();
        let store = match folder {
            Some(folder) => FileStore::open(StoreConfig::new(folder), &waker).unwrap(),
            None => FileStore::in_memory(1 << 30, &waker),
        };
        let spool = folder.map(|folder| folder.join(FileName::SPOOL_DIRECTORY).join("spool"));
        let (delivers, delivered) = channel();
        let on = move |now: Time, agent: &mut Agent, indication| {
            if let Indication::Delivered { delivery, id, payload, .. } = indication {
                let bytes = match payload {
                    Content::Bytes(bytes) => bytes.to_vec(),
                    Content::File { name, offset, len } => {
                        let spool = spool.as_ref().expect("there are no files in memory");
                        let all = std::fs::read(spool.join(name.path())).unwrap();
                        all[offset as usize..(offset + len) as usize].to_vec()
                    }
                };
                // A test that has failed receives nothing.
                let _ = delivers.send((id, bytes));
                agent.confirm(now, delivery).unwrap();
            }
        };
        let node = Node::start(config, store, waker, on).unwrap();
        let place = Self { node, delivered };
        let ready = Instant::now() + PATIENCE;
        while !place.ask(|_, agent| agent.is_ready()) {
            assert!(Instant::now() < ready, "the store is not read");
            std::thread::sleep(Duration::from_millis(5));
        }
        place.ask(move |_, agent| agent.register(&Eid::ipn(number, 1)).unwrap());
        place
    }

    fn ask<T: Send + 'static>(
        &self,
        request: impl FnOnce(Time, &mut Agent) -> T + Send + 'static,
    ) -> T {
        let (answer, answered) = channel();
        self.node.handle().ask(move |now, agent| answer.send(request(now, agent)).unwrap());
        answered.recv_timeout(PATIENCE).unwrap()
    }

    fn send(&self, to: u32, bytes: Vec<u8>) -> BundleId {
        let request = SendRequest::new(Eid::ipn(to, 1), bytes);
        self.ask(move |now, agent| agent.send(now, request)).unwrap()
    }
}

fn bytes(len: usize, first: u8) -> Vec<u8> {
    (0..len).map(|at| (at % 251) as u8 ^ first).collect()
}

/// Returns unused ports.
fn ports() -> [SocketAddr; 2] {
    let sockets = [(); 2].map(|()| UdpSocket::bind("127.0.0.1:0").unwrap());
    sockets.map(|socket| socket.local_addr().unwrap())
}

/// Exchanges bundles of all lengths in both directions over a layer with these settings.
fn cross(layer: &str, folders: [Option<&Path>; 2], lengths: &[usize]) {
    let ports = ports();
    let place = |number: usize| {
        let store = match folders[number - 1] {
            Some(folder) => format!("directory = {folder:?}"),
            None => "memory = \"256 MB\"".to_owned(),
        };
        let (own, other) = (ports[number - 1], ports[2 - number]);
        let text = format!(
            "id = \"ipn:{number}.0\"\nstore.{store}\n[[layer]]\nlisten = \"{own}\"\n{layer}\n\
             [[neighbour]]\nnode = \"ipn:{}.0\"\naddress = \"{other}\"\n",
            3 - number
        );
        Place::new(&text, number as u32, folders[number - 1])
    };
    let (first, second) = (place(1), place(2));
    for (turn, len) in lengths.iter().enumerate() {
        for (from, at, to) in [(&first, &second, 2), (&second, &first, 1)] {
            let content = bytes(*len, turn as u8);
            let id = from.send(to, content.clone());
            let (came, got) = at.delivered.recv_timeout(PATIENCE).unwrap();
            assert!(came == id && got == content, "{len} bytes to {to}: {} came", got.len());
        }
    }
    for place in [first, second] {
        assert!(!place.node.has_failed());
        place.node.stop(Duration::from_secs(5));
    }
}

const LENGTHS: &[usize] = &[0, 1, 4097, 65_536, 300_000, 20_000_000];

/// Runs with stores in memory and on disk.
fn cross_twice(kind: &str) {
    let layer = format!("kind = \"{kind}\"\nrate = \"400 Mbit/s\"");
    cross(&layer, [None; 2], LENGTHS);
    let folders = [(); 2].map(|()| tempfile::tempdir().unwrap());
    cross(&layer, [0, 1].map(|at| Some(folders[at].path())), LENGTHS);
}

#[test]
fn bundles_cross_ltp() {
    cross_twice("ltpcl");
}

#[test]
fn bundles_cross_norm() {
    cross_twice("norm");
}

#[test]
fn bundles_cross_saratoga() {
    cross_twice("saratoga");
}
