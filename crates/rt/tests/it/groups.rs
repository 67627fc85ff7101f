//! Multicast groups between drivers of one machine, in a network namespace without a way out that
//! ends with its process.

use std::collections::VecDeque;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use engine::{
    Deadline, Effect, Engine, Input, PathEffect, PathEvent, PathId, PathInfo, Time, Transmit, TxBuf,
};
use slowlight_rt::{Buffers, Config, Control, Driver, Event, FileStore, Group, StoreConfig, Waker};

/// Runs the test `name` again in its own namespace, at most a minute; returns `true` in that run.
fn inside(name: &str) -> bool {
    // The kernel configures the new interface's address and group route a little later.
    let setup = "ip link set lo up multicast on && \
                 ip route add 224.0.0.0/4 dev lo src 127.0.0.1 && \
                 ip link add ends type veth peer name other && \
                 sysctl -qw net.ipv6.conf.ends.accept_dad=0 && \
                 ip link set other up && ip link set ends up && \
                 ip address add 192.0.2.1/24 dev ends && \
                 for i in $(seq 100); do \
                   ip -6 address show dev ends | grep -q 'inet6 fe80' && \
                   ip -6 route show table local dev ends | grep -q ff00 && break; \
                   sleep 0.05; \
                 done";
    testing::namespace::is_inside(&format!("groups::{name}"), setup, 60)
}

/// Sends scripted datagrams and records received ones.
#[derive(Debug, Default)]
struct Chat {
    say: VecDeque<(PathId, &'static [u8])>,
    received: Vec<(PathId, PathId, Vec<u8>)>,
    up: Vec<PathId>,
    effects: VecDeque<Effect>,
}

impl Engine for Chat {
    type Indication = ();

    fn handle_input(&mut self, _now: Time, input: Input<'_>) {
        match input {
            Input::Path(path, PathEvent::Up(_)) => self.up.push(path),
            Input::Path(..) | Input::Done(..) => {}
            Input::Receive(receive) => {
                assert!(self.up.contains(&receive.path) && self.up.contains(&receive.from));
                for bytes in receive.datagrams() {
                    self.received.push((receive.path, receive.from, bytes.to_vec()));
                }
            }
        }
    }

    fn handle_timeout(&mut self, _now: Time) {}

    fn poll_transmit(&mut self, now: Time, tx: &mut TxBuf) -> Option<Transmit> {
        let (path, bytes) = self.say.pop_front()?;
        tx.push(bytes.len())?.copy_from_slice(bytes);
        tx.transmit(path, now)
    }

    fn poll_effect(&mut self) -> Option<Effect> {
        self.effects.pop_front()
    }

    fn poll_indication(&mut self) -> Option<()> {
        None
    }

    fn poll_timeout(&self) -> Option<Deadline> {
        None
    }
}

struct Member {
    _directory: tempfile::TempDir,
    driver: Driver<Chat>,
    group: PathId,
}

impl Member {
    fn new(listen: &str, group: Group) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let waker = Waker::new().unwrap();
        let store = FileStore::open(StoreConfig::new(directory.path()), &waker).unwrap();
        let config = Config {
            buffers: Buffers { receive: 1 << 16, send: 1 << 16 },
            tick: Duration::from_millis(20),
            ..Config::new(listen.parse().unwrap(), PathInfo::datagram(500))
        };
        let mut driver = Driver::new(config, Chat::default(), store, waker).unwrap();
        let group = driver.join_group(group).unwrap();
        Self { _directory: directory, driver, group }
    }

    /// Runs until the next tick.
    fn step(&mut self) -> &mut Chat {
        let on = |_, _: &mut Chat, event| match event {
            Event::Tick => Control::Stop,
            Event::Indication(())
            | Event::Refused(_)
            | Event::NewPeer { .. }
            | Event::Contact(_) => Control::Continue,
        };
        self.driver.run(&AtomicBool::new(false), on).unwrap();
        self.driver.engine_mut()
    }

    fn say(&mut self, path: PathId, bytes: &'static [u8]) {
        self.driver.engine_mut().say.push_back((path, bytes));
        self.step();
    }

    fn received(&mut self) -> Vec<(PathId, PathId, Vec<u8>)> {
        std::mem::take(&mut self.step().received)
    }
}

fn all_hear_and_one_answers(any: &str, group: Group) {
    let mut one = Member::new(&format!("{any}:0"), group);
    let mut two = Member::new(&format!("{any}:0"), group);
    // The groups' port can be bound although others listen to the group on it, but only once.
    let port = group.address.port();
    let mut three = Member::new(&format!("{any}:{port}"), group);
    let twice = std::net::UdpSocket::bind(format!("{any}:{port}"));
    assert_eq!(twice.unwrap_err().kind(), std::io::ErrorKind::AddrInUse);

    one.say(one.group, b"hello");
    assert_eq!(one.received(), [], "nobody hears himself");
    for other in [&mut two, &mut three] {
        let received = other.received();
        let [(path, from, bytes)] = received.as_slice() else { panic!("{received:?}") };
        assert_eq!((*path, bytes.as_slice()), (other.group, &b"hello"[..]));
        assert_ne!(from, path);
        let address = other.driver.peer(*from).unwrap();
        assert_eq!(address.port(), one.driver.local().port());
        other.say(*from, b"I hear you");
    }
    let received = one.received();
    assert_eq!(received.len(), 2, "{received:?}");
    assert!(received.iter().all(|(path, from, _)| path == from && *path != one.group));
    assert_ne!(received[0].0, received[1].0);

    two.driver.engine_mut().effects.push_back(PathEffect::Close { path: two.group }.into());
    two.step();
    one.say(one.group, b"again");
    two.say(two.group, b"who left says nothing");
    assert_eq!((one.received(), two.received()), (vec![], vec![]));
    assert_eq!(three.received().len(), 1);
    two.driver.engine_mut().effects.push_back(PathEffect::Open { path: two.group }.into());
    two.step();
    one.say(one.group, b"and again");
    assert_eq!(two.received().len(), 1);
    assert_eq!(two.driver.engine().up.iter().filter(|path| **path == two.group).count(), 2);
}

#[test]
fn groups_of_ipv4() {
    if inside("groups_of_ipv4") {
        // On the loopback interface datagrams to a group have no source address.
        let interface = slowlight_rt::interface("ends").unwrap();
        let group = Group::new("224.0.0.108:7542".parse().unwrap());
        all_hear_and_one_answers("0.0.0.0", group);
        all_hear_and_one_answers("0.0.0.0", Group { interface, ..group });
    }
}

#[test]
fn groups_of_ipv6() {
    if inside("groups_of_ipv6") {
        // The loopback interface does not support IPv6 multicast.
        let interface = slowlight_rt::interface("ends").unwrap();
        let group = Group::new("[ff02::6c]:7542".parse().unwrap());
        all_hear_and_one_answers("[::]", Group { interface, ..group });
    }
}

#[test]
fn non_multicast_addresses_are_refused() {
    if inside("non_multicast_addresses_are_refused") {
        let mut member = Member::new("0.0.0.0:0", Group::new("224.0.0.108:7542".parse().unwrap()));
        for address in ["127.0.0.1:7542", "224.0.0.108:0", "[ff02::6c]:7542"] {
            let error = member.driver.join_group(Group::new(address.parse().unwrap())).unwrap_err();
            assert_eq!(error.kind(), std::io::ErrorKind::InvalidInput, "{address}");
        }
        assert!(slowlight_rt::interface("none").is_err());
    }
}
