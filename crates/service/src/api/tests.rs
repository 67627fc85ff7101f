mod applications;
mod receivers;

use std::io;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Instant;

use bp::agent::SendRequest;
use bp::app::{Excerpt, Outgoing, OutgoingId};
use rt::node::Node;
use rt::{FileStore, RecordsIn, StoreConfig, Waker};

use super::model::{Bundle, Pong, Report};
use super::*;
use crate::http::ClientError;
use crate::node::{NodeSpec, PlanInForce};

/// A node by itself, with its interface.
struct Place {
    folder: tempfile::TempDir,
    /// Further settings.
    more: String,
    access: Access,
    ends: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Place {
    fn new(on_disk: bool) -> Self {
        let mut place = Self {
            folder: tempfile::tempdir().unwrap(),
            more: String::new(),
            access: Access::default(),
            ends: Arc::default(),
            thread: None,
        };
        place.start(on_disk);
        place
    }

    fn start(&mut self, on_disk: bool) {
        let folder = self.folder.path().to_owned();
        let store = if on_disk {
            format!("directory = {:?}", folder.join("store"))
        } else {
            "memory = \"100 MB\"".to_owned()
        };
        let text = format!(
            "id = \"ipn:1.0\"\n\
             echo = \"7\"\n\
             limits.bundle = \"50 MB\"\n\
             {}\
             [store]\n{store}\n\
             [[layer]]\nkind = \"tcpcl4\"\nlisten = [\"127.0.0.1:0\"]\n\
             [[neighbour]]\nnode = \"ipn:2.0\"\nfrom = [\"127.0.0.1\"]\n",
            self.more
        );
        let spec = NodeSpec::parse(&text, "test").unwrap();
        let plan = PlanInForce::default();
        let config = spec.config(std::time::SystemTime::now(), 1, &plan).unwrap();
        let waker = Waker::new().unwrap();
        let store = if on_disk {
            std::fs::create_dir_all(folder.join("store")).unwrap();
            let index = RecordsIn::Log;
            let config = StoreConfig { index, ..StoreConfig::new(folder.join("store")) };
            FileStore::open(config, &waker).unwrap()
        } else {
            FileStore::in_memory(100_000_000, &waker)
        };
        let hub = Arc::new(Hub::new(spec.echo_endpoint().unwrap()));
        let hears = Arc::clone(&hub);
        let node = Node::start(config, store, waker, move |now, agent, indication| {
            hears.hear(now, agent, indication);
        })
        .unwrap();
        let begins = Arc::clone(&hub);
        node.handle().ask(move |_, agent| begins.begin(agent));
        let server = NodeServer::bind(&self.socket(), self.access).unwrap();
        let spool = on_disk.then(|| folder.join("store/.slowlight/spool"));
        let (name, handle) = (spec.node().unwrap(), node.handle());
        let file = folder.join("node.toml");
        std::fs::write(&file, &text).unwrap();
        let reload = Arc::new(Reload::new(file, spec, plan, handle.clone()));
        let shared = Shared { node: name, handle, hub, spool, layers: Vec::new(), reload };
        let ends = Arc::new(AtomicBool::new(false));
        self.ends = Arc::clone(&ends);
        self.thread = Some(std::thread::spawn(move || {
            let end = || ends.load(Ordering::Relaxed);
            server.run(shared, end);
            node.stop(Duration::from_secs(1));
        }));
        let mut client = self.client();
        let limit = Instant::now() + Duration::from_secs(10);
        while !client.get::<model::Node>("/node", &[]).unwrap().is_ready {
            assert!(Instant::now() < limit, "the store is not read");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    fn stop(&mut self) {
        self.ends.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
    }

    fn socket(&self) -> PathBuf {
        self.folder.path().join("node.sock")
    }

    fn client(&self) -> NodeClient {
        NodeClient::connect(&self.socket()).unwrap()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.stop();
    }
}

fn bytes(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at % 251) as u8).collect()
}

fn whole(client: &mut NodeClient, coming: &mut Coming, len: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    while (bytes.len() as u64) < len {
        let left = len - bytes.len() as u64;
        bytes.extend_from_slice(&client.piece(coming, left).unwrap());
    }
    bytes
}

/// Requirements: P14, P21.
#[test]
fn payloads_are_delivered_until_they_are_confirmed() {
    for on_disk in [false, true] {
        let place = Place::new(on_disk);
        let mut client = place.client();
        let lengths = [0, 5, 4096, 4097, 3_000_000];
        let mut ids = Vec::new();
        for len in lengths {
            let payload = io::Cursor::new(bytes(len));
            ids.push(client.send(&[("to", "ipn:1.5"), ("from", "9")], payload).unwrap().id);
        }
        let mut first = place.client();
        let mut coming = first.take(&[("endpoint", "5")]).unwrap();
        let mut taken = Vec::new();
        for len in lengths {
            let delivery = first.next(&mut coming).unwrap().unwrap();
            assert_eq!(delivery.source, "ipn:1.9");
            assert_eq!(whole(&mut first, &mut coming, delivery.bytes), bytes(len));
            taken.push(delivery);
        }
        taken.sort_by_key(|delivery| ids.iter().position(|id| *id == delivery.id));
        assert_eq!(
            taken.iter().map(|delivery| &delivery.id).collect::<Vec<_>>(),
            ids.iter().collect::<Vec<_>>()
        );
        // The number belongs to another bundle.
        let other = model::Delivery { id: taken[1].id.clone(), ..taken[0].clone() };
        let error = client.confirm(&other).unwrap_err();
        assert!(matches!(error, ClientError::Refused { status: 404, .. }), "{error}");
        client.confirm(&taken[0]).unwrap();
        let error = client.confirm(&taken[0]).unwrap_err();
        assert!(matches!(error, ClientError::Refused { status: 404, .. }), "{error}");
        let error = place.client().take(&[("endpoint", "5")]).unwrap_err();
        assert!(matches!(error, ClientError::Refused { status: 409, .. }), "{error}");
        // The rest is delivered to the next client.
        drop((first, coming));
        let limit = Instant::now() + Duration::from_secs(10);
        let mut second = place.client();
        let mut coming = loop {
            match second.take(&[("endpoint", "ipn:1.5"), ("confirm", "true")]) {
                Ok(coming) => break coming,
                Err(error) => assert!(Instant::now() < limit, "{error}"),
            }
            std::thread::sleep(Duration::from_millis(10));
        };
        for _ in 1..lengths.len() {
            let delivery = second.next(&mut coming).unwrap().unwrap();
            assert_ne!(delivery.id, taken[0].id);
            whole(&mut second, &mut coming, delivery.bytes);
        }
        let limit = Instant::now() + Duration::from_secs(10);
        while client.get::<model::Node>("/node", &[]).unwrap().counts.bundles > 0 {
            assert!(Instant::now() < limit, "handing over confirms");
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

#[test]
fn the_socket_has_the_mode_and_the_group_of_the_settings() {
    use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};

    let mut place = Place::new(false);
    let found = || std::fs::metadata(place.socket()).unwrap();
    let group = found().gid();
    assert_eq!(found().permissions().mode() & 0o777, 0o600);
    place.stop();
    place.access = Access { mode: 0o660, group: Some(group) };
    place.start(false);
    let found = std::fs::metadata(place.socket()).unwrap();
    assert_eq!((found.permissions().mode() & 0o777, found.gid()), (0o660, group));
}

#[test]
fn only_a_socket_is_replaced() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("node.sock");
    let target = folder.path().join("target");
    std::fs::write(&target, "kept").unwrap();
    let bind = || NodeServer::bind(&path, Access::default());
    let make: [(&str, &dyn Fn()); 3] = [
        ("a file", &|| std::fs::write(&path, "kept").unwrap()),
        ("a symbolic link", &|| std::os::unix::fs::symlink(&target, &path).unwrap()),
        ("a folder", &|| std::fs::create_dir(&path).unwrap()),
    ];
    for (kind, make) in make {
        make();
        let error = bind().unwrap_err().to_string();
        assert!(error.contains(&format!("node.sock: {kind} has this path; remove it")), "{error}");
        assert!(path.symlink_metadata().is_ok());
        if path.is_dir() { std::fs::remove_dir(&path) } else { std::fs::remove_file(&path) }
            .unwrap();
    }
    assert_eq!(std::fs::read_to_string(&target).unwrap(), "kept");
    drop(bind().unwrap());
    assert!(path.exists(), "an ended node left it");
    drop(bind().unwrap());
}

/// Requirements: P21.
#[test]
fn bundles_are_listed_and_cancelled_and_survive() {
    let mut place = Place::new(true);
    let mut client = place.client();
    let far = [("to", "ipn:2.1"), ("lifetime_ms", "60000")];
    let short = client.send(&far, io::Cursor::new(bytes(10))).unwrap().id;
    let long = client.send(&far, io::Cursor::new(bytes(100_000))).unwrap().id;
    let held: Vec<Bundle> = client.get("/bundles", &[]).unwrap();
    assert_eq!(held.iter().map(|bundle| &bundle.id).collect::<Vec<_>>(), [&short, &long]);
    assert!(held.iter().all(|bundle| bundle.state == "queued" && bundle.left <= 60.0), "{held:?}");
    place.stop();
    place.start(true);
    let mut client = place.client();
    let held: Vec<Bundle> = client.get("/bundles", &[]).unwrap();
    assert_eq!(held.len(), 2);
    client.delete("/bundles", &[("id", &long)]).unwrap();
    let error = client.delete("/bundles", &[("id", &long)]).unwrap_err();
    assert!(error.to_string().contains("no such bundle"), "{error}");
    let held: Vec<Bundle> = client.get("/bundles", &[]).unwrap();
    assert_eq!(held.iter().map(|bundle| &bundle.id).collect::<Vec<_>>(), [&short]);
}

#[test]
fn pings_are_timed_and_lost_ones_reported() {
    let place = Place::new(false);
    let mut client = place.client();
    let mut pongs = Vec::new();
    let query = [("to", "ipn:1.7"), ("count", "20"), ("bytes", "1000")];
    let on = |pong: Pong| {
        pongs.push(pong);
        true
    };
    client.lines("/ping", &query, on).unwrap();
    assert_eq!(pongs.len(), 20);
    assert!(pongs.iter().all(|pong| pong.rtt_us.is_some()), "{pongs:?}");
    let query = [("to", "ipn:1.99"), ("timeout_ms", "50")];
    let mut silent = Vec::new();
    client
        .lines("/ping", &query, |pong: Pong| {
            silent.push(pong);
            true
        })
        .unwrap();
    assert_eq!(silent, [Pong { number: 0, rtt_us: None, timeout_ms: 50 }]);
    let text = client.get::<model::Node>("/node", &[]).unwrap();
    assert!(text.endpoints.is_empty(), "its endpoint is nobody's again: {text:?}");
}

#[test]
fn an_interrupted_ping_leaves_no_bundle() {
    use std::io::Write as _;

    let place = Place::new(false);
    let mut client = place.client();
    let mut interrupted = UnixStream::connect(place.socket()).unwrap();
    let head = "POST /ping?to=ipn:2.1&timeout_ms=600000 HTTP/1.1\r\nhost: x\r\n\r\n";
    interrupted.write_all(head.as_bytes()).unwrap();
    let limit = Instant::now() + Duration::from_secs(30);
    let mut holds = |count: usize| {
        while client.get::<Vec<Bundle>>("/bundles", &[]).unwrap().len() != count {
            assert!(Instant::now() < limit, "the node does not hold {count} bundles");
            std::thread::sleep(Duration::from_millis(1));
        }
    };
    holds(1);
    drop(interrupted);
    holds(0);
}

#[test]
fn echoes_of_an_earlier_run_match_no_ping() {
    let place = Place::new(false);
    let (mut client, mut other) = (place.client(), place.client());
    let limit = Instant::now() + Duration::from_secs(10);
    let late = std::thread::spawn(move || {
        // The endpoint of the ping has the same number after each start of a node.
        let endpoint = loop {
            let node: model::Node = other.get("/node", &[]).unwrap();
            if let Some(endpoint) = node.endpoints.into_iter().next() {
                break endpoint;
            }
            assert!(Instant::now() < limit, "nothing pings");
            std::thread::sleep(Duration::from_millis(1));
        };
        let mut payload = b"ping".to_vec();
        payload.resize(16, 0);
        let to = [("to", endpoint.as_str()), ("from", "9")];
        other.send(&to, io::Cursor::new(payload)).unwrap();
        // Everything sent before has been delivered when this one has.
        let count = |node: model::Node| node.counts.delivered;
        while count(other.get("/node", &[]).unwrap()) == 0 {
            assert!(Instant::now() < limit, "the echo is not delivered");
            std::thread::sleep(Duration::from_millis(1));
        }
    });
    let mut pongs = Vec::new();
    let request = [("to", "ipn:1.99"), ("bytes", "16"), ("timeout_ms", "2000")];
    let on = |pong: Pong| {
        pongs.push(pong);
        true
    };
    client.lines("/ping", &request, on).unwrap();
    late.join().unwrap();
    assert_eq!(pongs, [Pong { number: 0, rtt_us: None, timeout_ms: 2000 }]);
}

#[test]
fn a_bundle_is_followed_to_its_end() {
    let place = Place::new(false);
    let mut reports = Vec::new();
    let query = [("to", "ipn:1.7"), ("timeout_ms", "5000")];
    place
        .client()
        .lines("/trace", &query, |report: Report| {
            let is_there = report.what.contains(&"delivered".to_owned());
            reports.push(report);
            !is_there
        })
        .unwrap();
    assert_eq!(reports.last().unwrap().from, "ipn:1.0");
}

#[test]
fn invalid_requests_are_refused_with_a_reason() {
    let place = Place::new(false);
    let mut client = place.client();
    // A client refused early reads the reason, however much it still has to send.
    let zeros = |len| io::Read::take(io::repeat(0), len);
    for (query, status, event) in [
        (&[("to", "nowhere")][..], 422, "names no endpoint"),
        (&[("to", "dtn:none")], 422, "not to dtn:none"),
        (&[("to", "ipn:2.1"), ("from", "ipn:2.2")], 422, "not an endpoint of this node"),
        (&[("to", "ipn:2.1"), ("priority", "high")], 422, "bulk, normal, expedited"),
        (&[("to", "ipn:2.1"), ("prioritty", "bulk")], 422, "unknown field"),
        (&[], 422, "missing field"),
    ] {
        let error = client.send(query, zeros(5_000_000)).unwrap_err();
        let ClientError::Refused { status: found, error } = error else { panic!("{error}") };
        assert!(found == status && error.contains(event), "{query:?}: {found} {error}");
    }
    for len in [50_000_001, 60_000_000] {
        let error = client.send(&[("to", "ipn:2.1")], zeros(len)).unwrap_err();
        let ClientError::Refused { status: 413, error } = error else { panic!("{error}") };
        assert!(error.contains("longer than"), "{error}");
    }
    let error = client.get::<model::Node>("/nodes", &[]).unwrap_err();
    assert!(matches!(error, ClientError::Refused { status: 404, .. }), "{error}");
    // A second node does not take over the socket.
    assert!(NodeServer::bind(&place.socket(), place.access).is_err());
    assert!(client.get::<model::Node>("/node", &[]).is_ok());
}

/// A courier between two endpoints of one node, and its events so far.
fn courier(place: &Place, endpoint: &str, takes: bool) -> Courier {
    let waker = Waker::new().unwrap();
    let state = place.folder.path().join(endpoint);
    let store = StoreConfig { state, ..StoreConfig::new(place.folder.path()) };
    let config = CourierConfig {
        socket: place.socket(),
        files: FileStore::open(store, &waker).unwrap().reader(),
        endpoint: takes.then(|| endpoint.to_owned()),
        share: None,
        persists: true,
    };
    Courier::start(config, waker).unwrap()
}

/// Sends a bundle from `ipn:1.9`.
fn send(courier: &Courier, number: u64, to: &str, payload: Vec<u8>, excerpt: Option<Excerpt>) {
    let request = SendRequest {
        source: Some("ipn:1.9".parse().unwrap()),
        ..SendRequest::new(to.parse().unwrap(), payload)
    };
    courier.send(Box::new(Outgoing { id: OutgoingId(number), request, excerpt }));
}

/// Waits until `ask` returns something.
fn await_some<T>(what: &str, mut ask: impl FnMut() -> Option<T>) -> T {
    let limit = Instant::now() + Duration::from_secs(20);
    loop {
        if let Some(found) = ask() {
            return found;
        }
        assert!(Instant::now() < limit, "{what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Receives a bundle, and confirms it if wanted.
fn take_one(taker: &mut Courier, confirms: bool) -> Vec<u8> {
    let Handed::Came(delivery, first) = await_some("a bundle", || taker.bundle()) else {
        panic!("a bundle begins")
    };
    let (mut payload, mut is_last) = (first.bytes.to_vec(), first.is_last);
    while !is_last {
        let Handed::More(piece) = await_some("more of it", || taker.bundle()) else {
            panic!("it has not ended")
        };
        payload.extend_from_slice(&piece.bytes);
        is_last = piece.is_last;
    }
    assert_eq!(delivery.source, "ipn:1.9");
    if confirms {
        taker.confirm(delivery);
    }
    payload
}

#[test]
fn couriers_wait_for_a_node_that_is_away() {
    let mut place = Place::new(true);
    let mut taker = courier(&place, "ipn:1.5", true);
    assert!(matches!(await_some("it is there", || taker.news()), News::There(_)));
    place.stop();
    assert!(matches!(await_some("it is gone", || taker.news()), News::Gone(_)));
    let mut sender = courier(&place, "ipn:1.9", false);
    let len = |number: u64| 1000 * usize::try_from(number).unwrap();
    for number in 0..20 {
        send(&sender, number, "ipn:1.5", bytes(len(number)), None);
    }
    std::thread::sleep(Duration::from_millis(50));
    assert!(sender.outcome().is_none() && !sender.is_idle());
    place.start(true);
    for number in 0..20 {
        let outcome = await_some("what became of it", || sender.outcome());
        assert_eq!(outcome, Outcome::Stored(OutgoingId(number)));
    }
    assert!(sender.is_idle());
    let mut take_all = |confirms| {
        assert!(matches!(await_some("it is there", || taker.news()), News::There(_)));
        let mut payloads: Vec<_> = (0..20).map(|_| take_one(&mut taker, confirms)).collect();
        payloads.sort_by_key(Vec::len);
        assert!(payloads.into_iter().eq((0..20).map(|number| bytes(len(number)))));
        if confirms {
            await_some("all are confirmed", || taker.is_idle().then_some(()));
        } else {
            place.stop();
            assert!(matches!(await_some("it is gone", || taker.news()), News::Gone(_)));
            place.start(true);
        }
    };
    // Nothing is confirmed: all are delivered again.
    take_all(false);
    take_all(true);
    let held: Vec<Bundle> = place.client().get("/bundles", &[]).unwrap();
    assert!(held.is_empty(), "{held:?}");
    // A killed predecessor may still hold the endpoint, so a courier waits for a while.
    let mut second = courier(&place, "ipn:1.5", true);
    std::thread::sleep(Duration::from_millis(300));
    assert!(second.news().is_none());
    drop(taker);
    assert!(matches!(await_some("it has it", || second.news()), News::There(_)));
    let mut third = courier(&place, "ipn:1.5", true);
    let event = await_some("it is refused", || third.news());
    assert!(matches!(event, News::Refused { is_taken: true, .. }), "{event:?}");
}

#[test]
fn couriers_send_excerpts_of_files() {
    let place = Place::new(true);
    let content = bytes(600_000);
    std::fs::write(place.folder.path().join("file"), &content).unwrap();
    let crc = bp::codec::file_part::crc_append(7, &content[20_000..]);
    let excerpt = |name: &str, crc_after, len| Excerpt {
        file: engine::FileName::file(name).unwrap(),
        offset: 20_000,
        len,
        crc_before: 7,
        crc_after,
    };
    let mut sender = courier(&place, "ipn:1.9", false);
    let head = content[..20_000].to_vec();
    for (number, to, excerpt) in [
        (0, "ipn:1.5", excerpt("file", crc, 580_000)),
        // It has changed, is shorter, or is gone, or the node never accepts the bundle.
        (1, "ipn:1.5", excerpt("file", crc + 1, 580_000)),
        (2, "ipn:1.5", excerpt("file", crc, 580_001)),
        (3, "ipn:1.5", excerpt("other", crc, 580_000)),
        (4, "dtn:none", excerpt("file", crc, 580_000)),
        (5, "ipn:1.5", excerpt("file", crc, 580_000)),
    ] {
        send(&sender, number, to, head.clone(), Some(excerpt));
    }
    let (mut stored, mut refused, mut passed) = (Vec::new(), Vec::new(), 0);
    while stored.len() + refused.len() < 6 {
        match await_some("what became of it", || sender.outcome()) {
            Outcome::Stored(OutgoingId(number)) => stored.push(number),
            Outcome::Refused(OutgoingId(number), why) => refused.push((number, why)),
            Outcome::Passed(_, bytes) => passed = passed.max(bytes),
            Outcome::Waiting(..) => panic!("there is room"),
        }
    }
    assert!(sender.is_idle() && passed >= 580_000, "{passed}");
    assert_eq!(stored, [0, 5]);
    refused.sort();
    let whys = ["changed while it was sent", "changed while it was sent", "no such file", "no"];
    for ((number, why), (expected, text)) in refused.iter().zip((1..5).zip(whys)) {
        assert!(*number == expected && why.contains(text), "{refused:?}");
    }
    let mut taker = courier(&place, "ipn:1.5", true);
    await_some("it is there", || taker.news());
    (0..2).for_each(|_| assert!(take_one(&mut taker, true) == content));
}
