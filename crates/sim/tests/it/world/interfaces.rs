//! Engines that read and write whole IP packets.

use std::collections::VecDeque;
use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use engine::{
    Deadline, Effect, Engine, Input, PathEffect, PathEvent, PathId, PathInfo, Time, Transmit, TxBuf,
};
use slowlight_sim::{HostConfig, HostId, Limit, Outcome, PacketFate, World};
use wire::ip::{HEADER_LEN, Ipv4, fold, sum};

use super::toy::{EARTH, MOON, RELAY, line};

/// An experimental protocol (RFC 3692 §2.1), and one that is forwarded.
const OURS: u8 = 253;
const OTHERS: u8 = 254;
const INTERFACE: PathId = PathId(3);

/// Sends given packets and keeps received ones.
#[derive(Default)]
struct Raw {
    queue: VecDeque<Vec<u8>>,
    effects: VecDeque<Effect>,
    received: Vec<(PathId, Vec<u8>)>,
    events: Vec<(PathId, PathEvent)>,
}

impl Engine for Raw {
    type Indication = ();

    fn handle_input(&mut self, _now: Time, input: Input<'_>) {
        match input {
            Input::Receive(receive) => {
                let packets = receive.datagrams().map(|bytes| (receive.path, bytes.to_vec()));
                self.received.extend(packets);
            }
            Input::Path(path, event) => self.events.push((path, event)),
            Input::Done(..) => {}
        }
    }

    fn handle_timeout(&mut self, _now: Time) {}

    fn poll_transmit(&mut self, now: Time, tx: &mut TxBuf) -> Option<Transmit> {
        while let Some(next) = self.queue.front() {
            let Some(place) = tx.push(next.len()) else { break };
            place.copy_from_slice(next);
            self.queue.pop_front();
        }
        tx.transmit(INTERFACE, now)
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

fn packet(protocol: u8, source: Ipv4Addr, destination: Ipv4Addr, len: usize) -> Vec<u8> {
    let total_len = u16::try_from(HEADER_LEN + len).unwrap();
    let (traffic_class, id, fragment, ttl) = (2, 7, 0, 9);
    let header =
        Ipv4 { traffic_class, total_len, id, fragment, ttl, protocol, source, destination };
    let mut bytes = vec![0xa5; HEADER_LEN + len];
    header.encode(bytes.first_chunk_mut().unwrap());
    bytes
}

/// Creates Earth - relay - Moon, each with an interface to every neighbour: 3 towards the Moon, 4
/// back.
fn chain(intercepts: &[u8]) -> (World<Raw>, [HostId; 3]) {
    let mut world = World::new(1);
    let intercepts = intercepts.to_vec();
    let hosts = [("earth", EARTH), ("relay", RELAY), ("moon", MOON)].map(|(name, address)| {
        let intercepts = if name == "relay" { intercepts.clone() } else { Vec::new() };
        world.add_host(HostConfig { intercepts, batch: 16, ..HostConfig::new(name, address) })
    });
    let [earth, relay, moon] = hosts;
    let info = || PathInfo::datagram(1500);
    for (from, to, far) in [(earth, relay, MOON), (relay, moon, MOON)] {
        let link = world.add_link(from, to, line(Duration::from_millis(100))).unwrap();
        world.add_route(from, far, link);
        world.add_interface(from, INTERFACE, link, info());
    }
    for (from, to, far) in [(moon, relay, EARTH), (relay, earth, EARTH)] {
        let link = world.add_link(from, to, line(Duration::from_millis(100))).unwrap();
        world.add_route(from, far, link);
        world.add_interface(from, PathId(INTERFACE.0 + 1), link, info());
    }
    for host in hosts {
        world.install(host, |_, _| Raw::default());
    }
    (world, hosts)
}

fn send(world: &mut World<Raw>, from: HostId, packets: Vec<Vec<u8>>) {
    world.call(from, |raw, _| raw.queue.extend(packets));
    assert_eq!(world.run(Limit::default()), Outcome::Idle);
    world.check_conservation().unwrap();
}

#[test]
fn whole_packets_cross_and_others_are_forwarded() {
    let (mut world, [earth, relay, moon]) = chain(&[]);
    let mut packets = vec![packet(OURS, EARTH, MOON, 1000); 3];
    packets.push(packet(OURS, EARTH, MOON, 10));
    packets.push(packet(OURS, EARTH, RELAY, 20));
    send(&mut world, earth, packets.clone());
    let at_relay = &world.engine(relay).unwrap().received;
    // The packet came from Earth, so it arrives over the interface that leads there.
    assert_eq!(at_relay, &[(PathId(4), packets[4].clone())]);
    let at_moon = &world.engine(moon).unwrap().received;
    assert_eq!(at_moon.len(), 4);
    let arrived = Ipv4::decode(&at_moon[0].1).unwrap();
    assert_eq!((arrived.0.ttl, arrived.0.protocol, arrived.1.len()), (8, OURS, 1000));
    assert_eq!(world.host_stats(relay).forwarded, 4);
    assert_eq!(world.host_stats(earth).sent.packets, 5);
    assert_eq!(world.host_stats(earth).sent.ip_bytes, 3 * 1020 + 30 + 40);
}

#[test]
fn a_proxy_gets_the_protocols_that_it_intercepts() {
    let (mut world, [earth, relay, moon]) = chain(&[OURS]);
    let packets = vec![packet(OURS, EARTH, MOON, 100), packet(OTHERS, EARTH, MOON, 100)];
    send(&mut world, earth, packets.clone());
    assert_eq!(world.engine(relay).unwrap().received, [(PathId(4), packets[0].clone())]);
    let at_moon = &world.engine(moon).unwrap().received;
    assert_eq!(at_moon.len(), 1);
    assert_eq!(at_moon[0].1[9], OTHERS);
    // Packets it sends leave unchanged, with any source address.
    send(&mut world, relay, vec![packets[0].clone()]);
    assert_eq!(world.engine(moon).unwrap().received[1], (PathId(4), packets[0].clone()));
}

#[test]
fn packets_wait_while_reading_is_paused() {
    let (mut world, [earth, _, moon]) = chain(&[]);
    let path = PathId(4);
    world.call(moon, |raw, _| raw.effects.push_back(PathEffect::PauseRead { path }.into()));
    send(&mut world, earth, vec![packet(OURS, EARTH, MOON, 100); 2]);
    assert!(world.engine(moon).unwrap().received.is_empty());
    world.call(moon, |raw, _| raw.effects.push_back(PathEffect::ResumeRead { path }.into()));
    assert_eq!(world.engine(moon).unwrap().received.len(), 2);
}

#[test]
fn interfaces_come_up_and_closed_ones_carry_nothing() {
    let (mut world, [earth, relay, _]) = chain(&[]);
    world.call(earth, |raw, _| {
        assert!(matches!(raw.events[..], [(INTERFACE, PathEvent::Up(_))]));
    });
    world.call(relay, |raw, _| raw.effects.push_back(PathEffect::Close { path: PathId(4) }.into()));
    send(&mut world, earth, vec![packet(OURS, EARTH, RELAY, 100)]);
    assert!(world.engine(relay).unwrap().received.is_empty());
    world.call(earth, |raw, _| raw.effects.push_back(PathEffect::Close { path: INTERFACE }.into()));
    send(&mut world, earth, vec![packet(OURS, EARTH, RELAY, 100)]);
    assert_eq!(world.host_stats(earth).unsendable, 1);
}

/// Returns the n-th of 20 TCP segments of 100 bytes each.
fn segment(number: u32) -> Vec<u8> {
    let mut segment = packet(6, EARTH, MOON, 120);
    segment[4..6].copy_from_slice(&(number as u16).to_be_bytes());
    segment[10..12].fill(0);
    let checksum = !fold(sum(&segment[..HEADER_LEN]));
    segment[10..12].copy_from_slice(&checksum.to_be_bytes());
    segment[20..40].fill(0);
    segment[24..28].copy_from_slice(&(100 * number).to_be_bytes());
    segment[32..34].copy_from_slice(&[0x50, 0x10]);
    segment
}

#[test]
fn compressed_headers_are_restored_until_a_frame_is_lost() {
    let mut world = World::new(1);
    let hosts = [("earth", EARTH), ("moon", MOON)];
    let [earth, moon] = hosts.map(|(name, address)| {
        world.add_host(HostConfig { batch: 16, ..HostConfig::new(name, address) })
    });
    let config = link::Config {
        framing: link::Framing::Ppp {
            fcs: link::Fcs::Bits16,
            compressed: true,
            stuffing: link::Stuffing::Exact,
            serial: true,
        },
        header_compression: Some(link::HeaderCompression::default()),
        errors: vec![link::ErrorModel::dropping(link::ErrorKind::DropList(vec![3]))],
        ..line(Duration::from_millis(100))
    };
    let link = world.add_link(earth, moon, config).unwrap();
    world.add_route(earth, MOON, link);
    world.add_interface(earth, INTERFACE, link, PathInfo::datagram(1500));
    let back = world.add_link(moon, earth, line(Duration::from_millis(100))).unwrap();
    world.add_interface(moon, INTERFACE, back, PathInfo::datagram(1500));
    for host in [earth, moon] {
        world.install(host, |_, _| Raw::default());
    }
    let fates = Arc::new(Mutex::new(Vec::new()));
    let log = Arc::clone(&fates);
    world.trace(|_| (String::new(), None), move |row| log.lock().unwrap().push(row.fate.clone()));
    let mut packets: Vec<_> = (0..3).map(segment).collect();
    packets.extend([segment(3), segment(4), packet(OURS, EARTH, MOON, 120), segment(4)]);
    send(&mut world, earth, packets.clone());
    // The fourth packet is lost, and the fifth cannot be restored because it does not name its
    // slot. Its retransmission has the whole header.
    let arrived: Vec<_> =
        world.engine(moon).unwrap().received.iter().map(|(_, packet)| packet.clone()).collect();
    let expected = [0, 1, 2, 5, 6].map(|index| packets[index].clone());
    assert_eq!(arrived, expected);
    let stats = world.line_stats(link).unwrap();
    assert_eq!((stats.uncompressed, stats.compressed, stats.plain), (2, 4, 1));
    assert_eq!((stats.tossed, stats.wrong), (1, 0));
    assert_eq!(world.link_stats(link).delivered.packets, 6);
    let not_restored = PacketFate::Lost("header not restored".to_owned());
    assert_eq!(fates.lock().unwrap()[4], not_restored);
}
