//! Programs in worlds of several hosts, whose kernels forward between them: a dumbbell, a chain, a
//! star; and links that change below a flow.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::process::{Child, Command, Output};
use std::thread;
use std::time::{Duration, SystemTime};

use crate::staying::World;
use crate::world::text;

/// Receives bytes over one TCP connection: prints their number, the seconds from the first to the
/// last, and their SHA-256.
const SINK: &str = "
import hashlib, socket, time
listener = socket.create_server(('', 5000), family=socket.AF_INET6, dualstack_ipv6=True)
stream = listener.accept()[0]
total, first, digest = 0, None, hashlib.sha256()
while part := stream.recv(1 << 16):
    first = first or time.monotonic()
    total += len(part)
    digest.update(part)
print(total, time.monotonic() - first, digest.hexdigest())";

/// Sends bytes over TCP to a host: a number of bytes, or for a number of seconds; prints their
/// SHA-256.
const SOURCE: &str = "
import hashlib, random, socket, sys, time
host, bytes, seconds = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
for attempt in range(100):
    try:
        stream = socket.create_connection((host, 5000))
        break
    except ConnectionRefusedError:
        time.sleep(0.05)
stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, b'cubic')
content, digest = random.Random(host), hashlib.sha256()
end = time.monotonic() + seconds
while bytes > 0 and time.monotonic() < end:
    part = content.randbytes(min(bytes, 1 << 14))
    stream.sendall(part)
    digest.update(part)
    bytes -= len(part)
print(digest.hexdigest())";

/// Sends numbered datagrams of 500 bytes, one each 5 ms, to a host.
const STREAM: &str = "
import socket, struct, sys, time
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
started = time.monotonic()
for number in range(int(sys.argv[2])):
    time.sleep(max(0, started + number * 0.005 - time.monotonic()))
    s.sendto(struct.pack('!Qd', number, time.time()).ljust(500), (sys.argv[1], 5001))";

/// Prints the number, send time and arrival time of each, until two seconds pass without one.
const WATCH: &str = "
import socket, struct, time
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.bind(('', 5001))
s.settimeout(20)
try:
    while True:
        data = s.recv(2000)
        print(*struct.unpack('!Qd', data[:16]), time.time())
        s.settimeout(2)
except TimeoutError:
    pass";

/// Joins a group, prints a line when it listens, then prints the first message.
const LISTEN: &str = "
import socket, sys
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.bind(('', 5002))
group = socket.inet_aton('239.0.0.1') + socket.inet_aton(socket.gethostbyname(sys.argv[1]))
s.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, group)
s.settimeout(20)
print(*s.recvfrom(100))";

/// Sends a message to the group several times, since packets are lost.
const SPEAK: &str = "
import socket, time
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_TTL, 4)
for attempt in range(20):
    s.sendto(b'to all', ('239.0.0.1', 5002))
    time.sleep(0.2)";

/// Whether worlds with programs in Python are possible here; prints the reason if not.
fn possible() -> bool {
    if !crate::world::possible(true) {
        return false;
    }
    let python = Command::new("python3").arg("--version").output().is_ok();
    if !python {
        testing::skipped!("there is no python3");
    }
    python
}

impl World {
    /// Changes a link; returns the time of the change.
    fn set(&self, link: &str, changes: &[&str]) -> f64 {
        let output = self.command("set", &[&[link], changes].concat()).output().unwrap();
        assert!(output.status.success(), "{}", text(&output.stderr));
        now()
    }
}

/// Seconds, as the programs count them.
fn now() -> f64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs_f64()
}

/// Output of a program that must succeed.
fn printed(child: Child) -> String {
    let output: Output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    text(&output.stdout).trim().to_owned()
}

/// Bytes, seconds and SHA-256 from a sink, and the SHA-256 of the sent data.
fn carried(sink: Child, source: Child) -> (f64, f64, String, String) {
    let sent = printed(source);
    let received = printed(sink);
    let [bytes, seconds, digest] = received.split(' ').collect::<Vec<_>>()[..] else {
        panic!("{received}")
    };
    (bytes.parse().unwrap(), seconds.parse().unwrap(), digest.to_owned(), sent)
}

#[test]
fn two_tcp_flows_share_the_bottleneck_of_a_dumbbell() {
    if !possible() {
        return;
    }
    let world = World::up("dumbbell");
    let start = |number: usize| {
        let (from, to) = (format!("sender-{number}"), format!("receiver-{number}"));
        let sink = world.start(&to, &["python3", "-c", SINK]);
        let source = world.start(&from, &["python3", "-c", SOURCE, &to, "1000000000", "6"]);
        (format!("{from} -> {to}"), sink, source)
    };
    let flows = [1, 2].map(start);
    let mut rates = Vec::new();
    for (name, sink, source) in flows {
        let (bytes, seconds, received, sent) = carried(sink, source);
        assert_eq!(received, sent, "{name}");
        rates.push(8.0 * bytes / seconds / 1e6);
        eprintln!("{name}: {bytes} bytes in {seconds:.2} s, {:.2} Mbit/s", rates.last().unwrap());
    }
    let (sum, squares) =
        (rates.iter().sum::<f64>(), rates.iter().map(|rate| rate * rate).sum::<f64>());
    let fairness = sum * sum / (rates.len() as f64 * squares);
    eprintln!("together {sum:.2} of 10 Mbit/s, Jain's fairness {fairness:.3}");
    // A program gets 1,448 of 1,514 bytes on the line: 9.56 Mbit/s of ten, if it is always busy.
    assert!((7.5..9.8).contains(&sum), "{rates:?}");
    assert!(fairness > 0.65, "{rates:?}");
    // Packets beyond the queue were lost at the bottleneck, and nowhere else.
    let status = world.command("status", &["--json"]).output().unwrap();
    let status: serde_json::Value = serde_json::from_slice(&status.stdout).unwrap();
    for link in status["links"].as_array().unwrap() {
        let lost = link["counters"]["lost"].as_object().unwrap();
        let lost: u64 = lost.values().map(|one| one["packets"].as_u64().unwrap()).sum();
        assert_eq!(lost > 0, link["name"] == "west:east", "{link}");
    }
}

#[test]
fn orbiter_forwards_both_ip_versions_and_reports_large_packets() {
    if !possible() {
        return;
    }
    let world = World::up("lander");
    let path = world.reply("lander", &["ping", "-c", "1", "-t", "1", "ground"]);
    assert!(path.contains("Time to live exceeded") && path.contains("orbiter"), "{path}");
    let path = world.reply("lander", &["ping", "-c", "1", "-M", "do", "-s", "1300", "ground"]);
    assert!(path.contains("mtu = 1280") || path.contains("mtu=1280"), "{path}");
    let path = world.reply("lander", &["ping", "-c", "1", "-M", "do", "-s", "1300", "ground-6"]);
    assert!(path.contains("Packet too big: mtu=1280"), "{path}");
    let devices = world.reply("orbiter", &["ip", "-o", "link"]);
    let mtu =
        |name: &str| devices.lines().find(|line| line.contains(&format!(" {name}: "))).unwrap();
    assert!(mtu("lander").contains("mtu 1500") && mtu("ground").contains("mtu 1280"), "{devices}");
    for ground in ["ground", "ground-6"] {
        let message = world.reply("lander", &["ping", "-c", "2", "-i", "0.2", ground]);
        let (_, times) = message.split_once("mdev = ").unwrap_or_else(|| panic!("{message}"));
        let least: f64 = times.split('/').next().unwrap().parse().unwrap();
        assert!((420.0..440.0).contains(&least), "{message}");
        let sink = world.start("ground", &["python3", "-c", SINK]);
        let source = ["python3", "-c", SOURCE, ground, "200000", "60"];
        let (bytes, seconds, received, sent) = carried(sink, world.start("lander", &source));
        assert_eq!((bytes, received), (200_000.0, sent), "{ground}");
        // At most the rate of the line to the orbiter.
        assert!(seconds > 0.5, "{ground}: {seconds} s");
    }
}

#[test]
fn hubs_carry_unicast_and_multicast() {
    if !possible() {
        return;
    }
    let world = World::up("geo-fleet");
    let members = ["fleet-01", "fleet-07", "fleet-20"];
    let listeners = members.map(|name| world.start(name, &["python3", "-c", LISTEN, name]));
    // From one terminal to another it is two hops up and two down.
    let message = world.reply("fleet-07", &["ping", "-c", "3", "-i", "0.3", "fleet-20"]);
    let (_, times) = message.split_once("mdev = ").unwrap_or_else(|| panic!("{message}"));
    let least: f64 = times.split('/').next().unwrap().parse().unwrap();
    assert!((500.0..520.0).contains(&least), "{message}");
    printed(world.start("ground", &["python3", "-c", SPEAK]));
    for (name, listener) in members.into_iter().zip(listeners) {
        let announced = printed(listener);
        assert!(
            announced.contains("b'to all'") && announced.contains("'10.0.0.21'"),
            "{name}: {announced}"
        );
    }
}

/// Received datagram: its send and arrival times, in seconds.
struct Came {
    sent: f64,
    came: f64,
}

#[test]
fn flows_observe_changes_of_the_layer_below() {
    if !possible() {
        return;
    }
    let world = World::up("lander");
    let watch = world.start("ground", &["python3", "-c", WATCH]);
    let stream = world.start("lander", &["python3", "-c", STREAM, "ground", "1700"]);
    let wait = |seconds| thread::sleep(Duration::from_secs_f64(seconds));
    wait(1.0);
    let (started, link) = (now(), "orbiter:ground");
    wait(0.8);
    let nearer = world.set(link, &["delay=50ms"]);
    wait(1.0);
    let lossy = world.set(link, &["per=0.5"]);
    wait(1.2);
    let slow = world.set(link, &["per=0", "rate=600 kbit/s"]);
    wait(1.0);
    let fast = world.set(link, &["rate=10 Mbit/s"]);
    wait(0.8);
    let dark = world.set(link, &["outage=0.3 s+0.5 s"]);
    printed(stream);
    let came: Vec<Came> = printed(watch).lines().map(came).collect();
    let within = |from: f64, until: f64| -> Vec<&Came> {
        came.iter().filter(|one| (from..until).contains(&one.sent)).collect()
    };
    let median = |mut of: Vec<f64>| {
        of.sort_by(f64::total_cmp);
        of[of.len() / 2]
    };
    let delay = |from: f64, until: f64| {
        median(within(from, until).iter().map(|one| one.came - one.sent).collect())
    };
    // 10 ms and 2 ms on the line to the orbiter, then 200 ms, then 50 ms.
    assert!(
        (0.210..0.225).contains(&delay(started, started + 0.5)),
        "{}",
        delay(started, started + 0.5)
    );
    let changed = delay(nearer + 0.05, lossy - 0.3);
    assert!((0.060..0.075).contains(&changed), "{changed} s");
    let (arrived, sent) = (within(lossy + 0.1, lossy + 1.1).len(), 200);
    assert!((60..140).contains(&arrived), "half of {sent} are lost: {arrived} came");
    // 528 bytes and their frame each: 7.2 ms on the line.
    let arrivals: Vec<f64> = came
        .iter()
        .map(|one| one.came)
        .filter(|came| (slow + 0.3..slow + 1.0).contains(came))
        .collect();
    let gaps = arrivals.windows(2).map(|pair| pair[1] - pair[0]).collect();
    let rate = (528.0 + 14.0) * 8.0 / median(gaps);
    assert!((570e3..630e3).contains(&rate), "{rate} bit/s");
    let (before, after) = (within(fast + 0.7, dark).len(), within(dark + 0.9, dark + 1.2).len());
    assert!(before > 10 && after > 40, "{before}, {after}");
    // Packets sent meanwhile wait at the orbiter.
    let gaps = came.windows(2).map(|pair| pair[1].came - pair[0].came);
    let longest = gaps.fold(0.0, f64::max);
    assert!((0.48..0.6).contains(&longest), "an outage of {longest} s");
}

fn came(line: &str) -> Came {
    let mut numbers = line.split(' ').map(|number| number.parse::<f64>().unwrap());
    let (_, sent, came) = (numbers.next(), numbers.next().unwrap(), numbers.next().unwrap());
    Came { sent, came }
}
