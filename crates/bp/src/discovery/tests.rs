//! Announcements, losses, and beacons that attack.

use super::*;

const ONE: &str = "192.0.2.1";
const TWO: &str = "192.0.2.2";

fn name(node: u32) -> Eid {
    Eid::ipn(node, 0)
}

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn config() -> Config {
    Config {
        node: name(1),
        aliases: ["dtn://one/".parse().unwrap()].into(),
        neighbours: [name(9)].into(),
        accept: None,
        offers: vec![("tcp".to_owned(), "0.0.0.0:4556".parse().unwrap())],
        layers: vec![("tcp".to_owned(), 1), ("mtcp".to_owned(), 0)],
        period: Duration::from_secs(10),
        nodes: 64,
    }
}

fn link() -> Link {
    let own = |address: &str, bits| Own {
        address: ip(address),
        network: Network::new(ip(address), bits),
    };
    Link { interface: "lan".to_owned(), own: vec![own(ONE, 24), own("fe80::1", 64)] }
}

struct Lan {
    discovery: Discovery,
    link: Link,
    now: Time,
}

impl Lan {
    fn new(config: Config) -> Self {
        let now = Time::from_secs(100);
        Self { discovery: Discovery::new(now, config, Rng::new(1, "discovery")), link: link(), now }
    }

    fn receive(&mut self, from: &str, beacon: &Beacon) -> Vec<News> {
        let from = SocketAddr::new(ip(from), 3003);
        let bytes = beacon.encode().unwrap();
        self.discovery.handle_datagram(self.now, from, &self.link, &bytes);
        self.news()
    }

    fn news(&mut self) -> Vec<News> {
        std::iter::from_fn(|| self.discovery.poll_news()).collect()
    }

    fn pass(&mut self, seconds: u64) -> Vec<News> {
        self.now += Duration::from_secs(seconds);
        self.discovery.handle_timeout(self.now);
        self.news()
    }

    fn nodes(&self) -> Vec<Eid> {
        self.discovery.found().map(|found| found.node.clone()).collect()
    }
}

fn offer(name: &str, port: u16) -> Offer {
    Offer { name: name.to_owned(), port: Some(port) }
}

fn beacon(node: Eid) -> Beacon {
    Beacon { node, layers: vec![offer("tcp", 4556)], ..Beacon::default() }
}

fn found(node: u32, address: &str) -> Found {
    let (node, address) = (name(node), SocketAddr::new(ip(address), 4556));
    Found { node, address, layer: 1, interface: "lan".to_owned() }
}

#[test]
fn a_node_is_found_and_lost() {
    let mut lan = Lan::new(config());
    let beacon = beacon(name(2));
    assert_eq!(lan.receive(TWO, &beacon), [News::Found(found(2, TWO))]);
    // Three periods of this node, since the other does not announce its own.
    assert_eq!(lan.pass(29), []);
    assert_eq!(lan.receive(TWO, &beacon), []);
    assert_eq!(lan.pass(29), []);
    let why = "its announcements have stopped";
    assert_eq!(lan.pass(1), [News::Lost { node: name(2), why }]);
    assert_eq!(lan.nodes(), []);
    // An announced period counts within bounds.
    for (period_s, seconds) in [(0, 3), (2, 6), (u64::MAX, 900)] {
        lan.receive(TWO, &Beacon { period_s: Some(period_s), ..beacon.clone() });
        assert_eq!(lan.pass(seconds - 1), [], "{period_s}");
        assert_eq!(lan.pass(1).len(), 1, "{period_s}");
    }
}

#[test]
fn beacons_are_periodic_and_name_the_layers_of_a_link() {
    let mut lan = Lan::new(config());
    for sequence in 0..3 {
        assert!(lan.discovery.begin_beacons(lan.now) && !lan.discovery.begin_beacons(lan.now));
        let bytes = lan.discovery.beacon(&lan.link, true).unwrap();
        let sent = Beacon { sequence, period_s: Some(10), ..beacon(name(1)) };
        assert_eq!(Beacon::decode(&bytes), Ok(sent));
        let wait = lan.discovery.poll_timeout().since(lan.now);
        assert!((8750..=10_000).contains(&wait.as_millis()), "{wait:?}");
        lan.now += wait;
    }
    // A listener of IPv4 is not reached by IPv6, one on another address not over this link.
    assert_eq!(lan.discovery.beacon(&lan.link, false), None);
    let offers = vec![
        ("tcp".to_owned(), "127.0.0.1:4556".parse().unwrap()),
        ("mtcp".to_owned(), "[fe80::1]:4557".parse().unwrap()),
    ];
    lan.discovery.configure(lan.now, Config { offers, ..config() });
    assert_eq!(lan.discovery.beacon(&lan.link, true), None);
    let bytes = lan.discovery.beacon(&lan.link, false).unwrap();
    assert_eq!(Beacon::decode(&bytes).unwrap().layers, [offer("mtcp", 4557)]);
}

#[test]
fn the_first_usable_layer_is_chosen() {
    let mut lan = Lan::new(config());
    let layers = vec![offer("udp", 4556), offer("mtcp", 16_162), offer("tcp", 4000)];
    lan.receive("fe80::2", &Beacon { layers, ..beacon(name(2)) });
    let found: Vec<_> = lan.discovery.found().map(|it| (it.layer, it.address.port())).collect();
    assert_eq!(found, [(1, 4000)]);
    // Ports of the machine's own services, no port, and layers that are not run here.
    let portless = Offer { name: "tcp".to_owned(), port: None };
    for layer in [offer("tcp", 22), offer("tcp", 0), portless, offer("udp", 4556)] {
        assert_eq!(lan.receive(TWO, &Beacon { layers: vec![layer], ..beacon(name(3)) }), []);
    }
    assert_eq!(lan.discovery.statistics().ignored, 4);
}

#[test]
fn names_of_this_node_and_of_configured_neighbours_are_not_taken() {
    let mut lan = Lan::new(config());
    // Own beacons come back.
    assert_eq!(lan.receive(ONE, &beacon(name(1))), []);
    assert_eq!(lan.discovery.statistics().ignored, 0);
    // Another machine with a name of this node is reported, once a minute.
    assert_eq!(lan.receive(TWO, &beacon(name(1))), [News::OwnName(ip(TWO))]);
    assert_eq!(lan.receive(TWO, &beacon("dtn://one/".parse().unwrap())), []);
    lan.pass(60);
    assert_eq!(lan.receive(TWO, &beacon("dtn://one/".parse().unwrap())).len(), 1);
    let names = ["ipn:9.0", "ipn:!.0", "dtn:none", "ipn:2.7", "dtn://two/in"];
    for forged in names {
        assert_eq!(lan.receive(TWO, &beacon(forged.parse().unwrap())), [], "{forged}");
    }
    assert_eq!(lan.nodes(), []);
}

#[test]
fn addresses_outside_the_link_are_not_reached() {
    let mut lan = Lan::new(config());
    let outside = [
        "198.51.100.7",
        "127.0.0.1",
        "0.0.0.0",
        "192.0.2.0",
        "192.0.2.255",
        "224.0.0.26",
        "255.255.255.255",
        "2001:db8::2",
        "::1",
        "ff02::1",
        "::",
    ];
    for from in outside {
        assert_eq!(lan.receive(from, &beacon(name(2))), [], "{from}");
    }
    assert_eq!((lan.nodes(), lan.discovery.statistics().ignored), (vec![], outside.len() as u64));
    // Another node of the same machine.
    assert_eq!(lan.receive(ONE, &beacon(name(2))), [News::Found(found(2, ONE))]);
}

#[test]
fn the_first_of_two_claims_stays() {
    let mut lan = Lan::new(config());
    lan.receive(TWO, &beacon(name(2)));
    let other = "192.0.2.66";
    let known = SocketAddr::new(ip(TWO), 4556);
    let rival = News::Rival { node: name(2), known, other: ip(other) };
    assert_eq!(lan.receive(other, &beacon(name(2))), [rival]);
    // Nor is it redirected to another port, or kept alive by others.
    let moved = Beacon { layers: vec![offer("tcp", 4999)], ..beacon(name(2)) };
    for _ in 0..5 {
        lan.pass(5);
        assert_eq!(lan.receive(other, &beacon(name(2))), []);
        assert_eq!(lan.receive(TWO, &moved), []);
        assert_eq!(lan.discovery.found().next(), Some(&found(2, TWO)));
    }
    assert_eq!(lan.pass(5).len(), 1);
    assert_eq!(lan.receive(other, &beacon(name(2))), [News::Found(found(2, other))]);
}

#[test]
fn floods_are_bounded() {
    let mut lan = Lan::new(config());
    // Many names from one address.
    for second in 0..10 {
        for node in 0..100 {
            lan.receive(TWO, &beacon(name(1000 + second * 100 + node)));
        }
        lan.pass(1);
    }
    assert_eq!(lan.nodes().len(), PER_ADDRESS);
    // Many names from many addresses: some a second, and not more than permitted.
    let mut full = 0;
    for second in 0..20 {
        let before = lan.nodes().len();
        for host in 10..250 {
            let news = lan.receive(&format!("192.0.2.{host}"), &beacon(name(5000 + host)));
            full += news.iter().filter(|news| **news == News::Full).count();
        }
        assert!(lan.nodes().len() - before <= PER_SECOND as usize, "{second}");
        for node in lan.nodes() {
            // Those that are known keep their places.
            let at = lan.discovery.entries[&node].found.address.ip().to_string();
            assert_eq!(lan.receive(&at, &beacon(node)), []);
        }
        lan.pass(1);
    }
    assert_eq!((lan.nodes().len(), full), (64, 1));
    let large = vec![0; 100_000];
    lan.discovery.handle_datagram(lan.now, (ip(TWO), 1).into(), &lan.link, &large);
    assert_eq!(lan.discovery.statistics().malformed, 1);
    lan.pass(1000);
    assert_eq!(lan.nodes(), []);
}

#[test]
fn changed_settings_exclude_nodes() {
    let mut lan = Lan::new(config());
    for node in 2..6 {
        lan.receive(&format!("192.0.2.{node}"), &beacon(name(node)));
    }
    lan.news();
    let accept = Some([name(2), name(3), name(4)].into());
    let new = Config { accept, neighbours: [name(3)].into(), ..config() };
    lan.discovery.configure(lan.now, new.clone());
    assert_eq!((lan.nodes(), lan.news().len()), (vec![name(2), name(4)], 2));
    assert_eq!(lan.receive("192.0.2.5", &beacon(name(5))), []);
    lan.discovery.configure(lan.now, Config { nodes: 1, ..new.clone() });
    assert_eq!(lan.nodes(), [name(2)]);
    lan.discovery.configure(lan.now, Config { layers: vec![("tcp".to_owned(), 5)], ..new });
    assert_eq!(lan.nodes(), []);
}
