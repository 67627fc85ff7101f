//! Groups: one sender and many receivers, each behind its own link.

use std::collections::{BTreeMap, VecDeque};
use std::io::Cursor;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::time::Duration;

use super::toy::{EARTH, PORT, RELAY, Shared, info, line};
use engine::{
    Deadline, Effect, Engine, Input, PathEffect, PathEvent, PathId, PathInfo, Time, Transmit, TxBuf,
};
use link::{Delay, ErrorKind, ErrorModel, Outages, Queue, Rate, WhileDown, Window};
use pcap::Reader;
use proptest::prelude::*;
use slowlight_sim::{Action, EngineCall, HostConfig, HostId, Limit, LinkId, Outcome, World};

const GROUP: PathId = PathId(0);
const ADDRESS: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(224, 1, 2, 3), 12_347);
const LEN: usize = 1000;
/// 1,042 bytes at 10 Mbit/s.
const BUSY: u64 = 833_600;
const MS: u64 = 1_000_000;

/// Indication of a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Note {
    /// A datagram: its path, its sender, and its number, unless damaged.
    Received(PathId, PathId, Option<u32>),
    /// A path event, by its name.
    Path(PathId, &'static str),
}

/// Sends numbered datagrams on any path, and replies to received ones.
#[derive(Default)]
struct Member {
    queue: VecDeque<(PathId, u32)>,
    /// Whether it replies to the sender of each datagram of the group with the same number.
    answers: bool,
    effects: VecDeque<Effect>,
    notes: VecDeque<Note>,
}

impl Member {
    fn send(&mut self, path: PathId, numbers: std::ops::Range<u32>) {
        self.queue.extend(numbers.map(|number| (path, number)));
    }
}

impl Engine for Member {
    type Indication = Note;

    fn handle_input(&mut self, _: Time, input: Input<'_>) {
        match input {
            Input::Receive(receive) => {
                let (number, filling) = receive.bytes.split_first_chunk::<4>().unwrap();
                let number = u32::from_be_bytes(*number);
                let sound = filling.iter().all(|byte| *byte == number as u8);
                let note = Note::Received(receive.path, receive.from, sound.then_some(number));
                self.notes.push_back(note);
                if self.answers && receive.path == GROUP {
                    self.queue.push_back((receive.from, number));
                }
            }
            Input::Path(path, event) => {
                let name = match event {
                    PathEvent::Up(_) => "up",
                    PathEvent::Down => "down",
                    PathEvent::Blocked => "blocked",
                    PathEvent::Writable => "writable",
                    PathEvent::Unsent
                    | PathEvent::ReadClosed
                    | PathEvent::Missing { .. }
                    | PathEvent::Secured(_)
                    | PathEvent::ReturnDown
                    | PathEvent::ReturnUp => "of a stream",
                };
                self.notes.push_back(Note::Path(path, name));
            }
            Input::Done(..) => {}
        }
    }

    fn handle_timeout(&mut self, _: Time) {}

    fn poll_transmit(&mut self, _: Time, tx: &mut TxBuf) -> Option<Transmit> {
        let (path, number) = self.queue.pop_front()?;
        let place = tx.push(LEN)?;
        place.fill(number as u8);
        place[..4].copy_from_slice(&number.to_be_bytes());
        tx.transmit(path, Time::ZERO)
    }

    fn poll_effect(&mut self) -> Option<Effect> {
        self.effects.pop_front()
    }

    fn poll_indication(&mut self) -> Option<Note> {
        self.notes.pop_front()
    }

    fn poll_timeout(&self) -> Option<Deadline> {
        None
    }
}

/// A sender, a relay and receivers. The uplink to the relay has the rate, the links to the
/// receivers have delay and errors.
struct Star {
    world: World<Member>,
    sender: HostId,
    hub: HostId,
    receivers: Vec<HostId>,
    up: LinkId,
    /// Links from the relay to each receiver.
    branches: Vec<LinkId>,
}

fn address(receiver: usize) -> Ipv4Addr {
    let [low, high, ..] = (receiver as u32).to_le_bytes();
    Ipv4Addr::new(10, 1, high, low)
}

fn star(up: link::Config, branches: &[link::Config], hub: HostConfig) -> Star {
    let mut world = World::new(11);
    let sender = world.add_host(HostConfig::new("sender", EARTH));
    let hub = world.add_host(hub);
    let to_hub = world.add_link(sender, hub, up.clone()).unwrap();
    let back = world.add_link(hub, sender, up).unwrap();
    world.add_group_route(sender, EARTH, *ADDRESS.ip(), to_hub);
    let (mut receivers, mut links, mut ups) = (Vec::new(), Vec::new(), Vec::new());
    for (index, branch) in branches.iter().enumerate() {
        let name = format!("receiver {index}");
        let receiver = world.add_host(HostConfig::new(name, address(index)));
        let clear = link::Config { errors: Vec::new(), ..branch.clone() };
        ups.push(world.add_link(receiver, hub, clear).unwrap());
        links.push(world.add_link(hub, receiver, branch.clone()).unwrap());
        world.add_group_route(hub, EARTH, *ADDRESS.ip(), links[index]);
        receivers.push(receiver);
    }
    for (index, receiver) in receivers.iter().enumerate() {
        let source = address(index);
        world.add_group_route(*receiver, source, *ADDRESS.ip(), ups[index]);
        world.add_group_route(hub, source, *ADDRESS.ip(), back);
        let others = links.iter().enumerate().filter(|(other, _)| *other != index);
        for (_, link) in others {
            world.add_group_route(hub, source, *ADDRESS.ip(), *link);
        }
        world.add_route(*receiver, EARTH, ups[index]);
        world.add_route(sender, source, to_hub);
    }
    for host in receivers.iter().chain([&sender]) {
        world.add_path(*host, GROUP, PORT, ADDRESS, info());
        world.install(*host, |_, _| Member::default());
    }
    Star { world, sender, hub, receivers, up: to_hub, branches: links }
}

fn delay(delay: u64) -> link::Config {
    let delay = Delay::Constant(Duration::from_millis(delay));
    link::Config { delay, ..link::Config::default() }
}

fn lossy(per: f64) -> link::Config {
    link::Config { errors: vec![ErrorModel::dropping(ErrorKind::PerPacket(per))], ..delay(10) }
}

fn plain_hub() -> HostConfig {
    HostConfig::new("hub", RELAY)
}

fn idle(world: &mut World<Member>) -> Vec<(Time, HostId, Note)> {
    assert_eq!(world.run(Limit::default()), Outcome::Idle);
    world.check_conservation().unwrap();
    world.drain_indications()
}

/// Returns the datagrams a host received: time, path, sender, number.
fn received(
    notes: &[(Time, HostId, Note)],
    host: HostId,
) -> Vec<(Time, PathId, PathId, Option<u32>)> {
    let of_host = notes.iter().filter(|(_, at, _)| *at == host);
    let receptions = of_host.filter_map(|(at, _, note)| match *note {
        Note::Received(path, from, number) => Some((*at, path, from, number)),
        Note::Path(..) => None,
    });
    receptions.collect()
}

fn events(notes: &[(Time, HostId, Note)], host: HostId) -> Vec<(Time, &'static str)> {
    let of_host = notes.iter().filter(|(_, at, _)| *at == host);
    let of_group = of_host.filter_map(|(at, _, note)| match *note {
        Note::Path(GROUP, name) => Some((*at, name)),
        Note::Path(..) | Note::Received(..) => None,
    });
    of_group.collect()
}

#[test]
fn one_packet_reaches_all_after_their_own_delays() {
    for bent_pipe in [false, true] {
        let hub = HostConfig { bent_pipe, ..plain_hub() };
        let branches = [delay(10), delay(250), delay(3)];
        let Star { mut world, sender, hub, receivers, up, branches } =
            star(line(Duration::from_millis(100)), &branches, hub);
        world.call(sender, |member, _| member.send(GROUP, 0..2));
        let notes = idle(&mut world);
        for (receiver, delay) in receivers.iter().zip([10, 250, 3]) {
            let from = PathId(1);
            let arrival = |n: u64| Time::from_nanos(n * BUSY + (100 + delay) * MS);
            let expected = [(arrival(1), GROUP, from, Some(0)), (arrival(2), GROUP, from, Some(1))];
            assert_eq!(received(&notes, *receiver), expected);
            assert_eq!(world.host_stats(*receiver).received.packets, 2);
        }
        assert_eq!(received(&notes, sender), [], "a sender does not receive its own packets");
        // The sender's queue and line carry each packet once, for any number of receivers.
        assert_eq!(world.host_stats(sender).sent.packets, 2);
        assert_eq!(world.link_stats(up).pushed.packets, 2);
        assert_eq!(world.host_stats(hub).forwarded, 2);
        assert!(branches.iter().all(|link| world.link_stats(*link).delivered.packets == 2));
    }
}

#[test]
fn replies_go_to_the_sender_alone() {
    let Star { mut world, sender, receivers, .. } =
        star(line(Duration::ZERO), &[delay(10), delay(20)], plain_hub());
    for receiver in &receivers {
        world.call(*receiver, |member, _| member.answers = true);
    }
    world.call(sender, |member, _| member.send(GROUP, 7..8));
    let notes = idle(&mut world);
    let there = |delay: u64| Time::from_nanos(2 * BUSY + 2 * delay * MS);
    // Each replies on the path of its sender. The sender gives each its own path, in the order of
    // first reception.
    let expected =
        [(there(10), PathId(1), PathId(1), Some(7)), (there(20), PathId(2), PathId(2), Some(7))];
    assert_eq!(received(&notes, sender), expected);
    assert!(receivers.iter().all(|receiver| received(&notes, *receiver).len() == 1));
}

#[test]
fn a_receiver_reaches_the_sender_and_all_others() {
    let Star { mut world, sender, receivers, .. } =
        star(line(Duration::from_millis(100)), &[delay(10), delay(20), delay(30)], plain_hub());
    world.call(receivers[1], |member, _| member.send(GROUP, 4..5));
    let notes = idle(&mut world);
    let check = |host: HostId, delay| {
        let at = Time::from_nanos(delay);
        assert_eq!(received(&notes, host), [(at, GROUP, PathId(1), Some(4))]);
    };
    check(sender, BUSY + 120 * MS);
    check(receivers[0], 30 * MS);
    check(receivers[2], 50 * MS);
    assert_eq!(received(&notes, receivers[1]), []);
}

#[test]
fn branch_losses_are_independent_and_trunk_losses_hit_all() {
    const COUNT: u32 = 5_000;
    let up = link::Config { queue: Queue { packets: None, bytes: None }, ..line(Duration::ZERO) };
    let lost = ErrorModel::dropping(ErrorKind::DropList([3, 9].into()));
    let up = link::Config { errors: vec![lost], ..up };
    let Star { mut world, sender, receivers, branches, .. } =
        star(up, &vec![lossy(0.01); 100], plain_hub());
    world.call(sender, |member, _| member.send(GROUP, 0..COUNT));
    let notes = idle(&mut world);
    let mut held = BTreeMap::<u32, u32>::new();
    for (receiver, branch) in receivers.iter().zip(&branches) {
        let (stats, receptions) = (world.link_stats(*branch), received(&notes, *receiver));
        assert_eq!(stats.pushed.packets, u64::from(COUNT) - 2);
        assert_eq!(stats.delivered.packets, receptions.len() as u64);
        // 50 of 5,000, plus or minus five times the deviation of 7.
        assert!((15..85).contains(&stats.lost_total().packets), "{stats:?}");
        receptions
            .iter()
            .for_each(|(_, _, _, number)| *held.entry(number.unwrap()).or_default() += 1);
    }
    assert!(!held.contains_key(&3) && !held.contains_key(&9));
    // A packet reaches all 100 with a probability of 0.99^100 = 0.366.
    let whole = held.values().filter(|count| **count == 100).count();
    assert!((1_650..2_010).contains(&whole), "{whole}");
}

#[test]
fn damage_on_one_branch_affects_no_other() {
    let damaged = link::Config {
        errors: vec![ErrorModel::damaging(ErrorKind::BitErrorRate(0.01))],
        ..delay(10)
    };
    let mut hosts =
        star(line(Duration::ZERO), &[delay(30), damaged.clone(), delay(5)], plain_hub());
    hosts.world.call(hosts.sender, |member, _| member.send(GROUP, 0..20));
    let notes = idle(&mut hosts.world);
    assert_eq!(received(&notes, hosts.receivers[1]), []);
    let stats = hosts.world.host_stats(hosts.receivers[1]);
    assert_eq!(stats.bad_udp + stats.bad_ip, 20);
    for clear in [0, 2] {
        let receptions = received(&notes, hosts.receivers[clear]);
        let numbers: Vec<_> = receptions.iter().filter_map(|(_, _, _, number)| *number).collect();
        assert_eq!(numbers, Vec::from_iter(0..20));
    }
}

#[test]
fn a_capture_shows_the_group_in_every_header() {
    let Star { mut world, sender, receivers, .. } =
        star(line(Duration::from_millis(5)), &[delay(10), delay(20)], plain_hub());
    let (near, far) = (Shared::default(), Shared::default());
    world.capture_host(sender, near.clone()).unwrap();
    world.capture_host(receivers[1], far.clone()).unwrap();
    world.call(sender, |member, _| member.send(GROUP, 0..3));
    let _ = idle(&mut world);
    world.finish_captures().unwrap();
    for (capture, ttl) in [(near, 64), (far, 63)] {
        let records: Vec<_> =
            Reader::new(Cursor::new(capture.bytes())).unwrap().map(Result::unwrap).collect();
        assert_eq!(records.len(), 3);
        for record in &records {
            if record.link_type == pcap::LinkType::Ethernet {
                assert_eq!(record.bytes[..6], [0x01, 0x00, 0x5e, 1, 2, 3]);
            }
            // This checks both checksums.
            let datagram = record.udp().unwrap();
            assert_eq!(
                SocketAddrV4::new(datagram.ip.destination, datagram.udp.destination),
                ADDRESS
            );
            assert_eq!((datagram.ip.source, datagram.udp.source), (EARTH, PORT));
            assert_eq!(datagram.ip.ttl, ttl);
        }
    }
}

/// Creates a sender with a link to each of two receivers.
fn fork(first: link::Config, second: link::Config) -> (World<Member>, HostId, [HostId; 2]) {
    let mut world = World::new(3);
    let sender = world.add_host(HostConfig::new("sender", EARTH));
    let receivers = [(0, first), (1, second)].map(|(index, config)| {
        let receiver = world.add_host(HostConfig::new(format!("receiver {index}"), address(index)));
        let link = world.add_link(sender, receiver, config).unwrap();
        world.add_group_route(sender, EARTH, *ADDRESS.ip(), link);
        receiver
    });
    for host in receivers.into_iter().chain([sender]) {
        world.add_path(host, GROUP, PORT, ADDRESS, info());
        world.install(host, |_, _| Member::default());
    }
    (world, sender, receivers)
}

#[test]
fn separate_links_have_separate_queues() {
    let slow = link::Config { rate: Rate::Constant(1_000_000), ..line(Duration::ZERO) };
    let (mut world, sender, receivers) = fork(slow, line(Duration::ZERO));
    world.call(sender, |member, _| member.send(GROUP, 0..3));
    let notes = idle(&mut world);
    for (receiver, busy) in receivers.into_iter().zip([10 * BUSY, BUSY]) {
        let times: Vec<_> = received(&notes, receiver).into_iter().map(|(at, ..)| at).collect();
        assert_eq!(times, [1, 2, 3].map(|n| Time::from_nanos(n * busy)));
    }
    assert_eq!(world.host_stats(sender).sent.packets, 3, "sent once, over two links");
}

#[test]
fn a_group_is_up_while_one_of_its_links_is() {
    let during = |from: u64, until: u64| {
        let window =
            Window { start: Time::from_nanos(from * MS), end: Time::from_nanos(until * MS) };
        let outages = Outages::List(vec![window]);
        link::Config { outages, while_down: WhileDown::Drop, ..line(Duration::ZERO) }
    };
    let (mut world, sender, receivers) = fork(during(10, 30), during(20, 40));
    for at in [15, 25, 35] {
        let send: EngineCall<Member> = Box::new(move |member, _| member.send(GROUP, at..at + 1));
        world.schedule(Time::from_nanos(u64::from(at) * MS), Action::Call(sender, send));
    }
    assert_eq!(world.run_until(Time::from_secs(1)), Outcome::Idle);
    let notes = world.drain_indications();
    let changes: Vec<_> =
        events(&notes, sender).into_iter().filter(|(_, e)| *e == "down").collect();
    assert_eq!(changes, [(Time::from_nanos(20 * MS), "down")]);
    assert_eq!(events(&notes, sender).last(), Some(&(Time::from_nanos(40 * MS), "up")));
    let numbers = |receiver| {
        received(&notes, receiver)
            .into_iter()
            .map(|(.., number)| number.unwrap())
            .collect::<Vec<_>>()
    };
    assert_eq!((numbers(receivers[0]), numbers(receivers[1])), (vec![35], vec![15]));
    world.check_conservation().unwrap();
}

#[test]
fn a_group_has_room_while_all_of_its_links_have() {
    let short = |rate, packets| link::Config {
        rate: Rate::Constant(rate),
        queue: Queue { packets: Some(packets), bytes: None },
        ..line(Duration::ZERO)
    };
    let (mut world, sender, receivers) = fork(short(1_000_000, 4), short(2_000_000, 2));
    world.call(sender, |member, _| member.send(GROUP, 0..4));
    let notes = idle(&mut world);
    // The second queue fills with the third packet and, once more, when the fourth is rejected; the
    // first one holds three and never fills up.
    let names: Vec<_> = events(&notes, sender).into_iter().map(|(_, name)| name).collect();
    assert_eq!(names, ["up", "blocked", "writable"]);
    assert_eq!(
        (received(&notes, receivers[0]).len(), received(&notes, receivers[1]).len()),
        (4, 3)
    );
    let stats = world.host_stats(sender);
    assert_eq!((stats.sent.packets, stats.rejected), (4, 1));
}

#[test]
fn a_member_that_forwards_and_reads_later_forwards_once() {
    let Star { mut world, sender, hub, receivers, .. } =
        star(line(Duration::ZERO), &[delay(10)], plain_hub());
    world.add_path(hub, GROUP, PORT, ADDRESS, PathInfo::datagram(LEN));
    world.install(hub, |_, _| Member::default());
    world.call(hub, |member, _| {
        member.effects.push_back(PathEffect::PauseRead { path: GROUP }.into());
    });
    world.call(sender, |member, _| member.send(GROUP, 0..2));
    let notes = idle(&mut world);
    assert_eq!((received(&notes, hub).len(), received(&notes, receivers[0]).len()), (0, 2));
    world.call(hub, |member, _| {
        member.effects.push_back(PathEffect::ResumeRead { path: GROUP }.into());
    });
    let notes = idle(&mut world);
    assert_eq!((received(&notes, hub).len(), received(&notes, receivers[0]).len()), (2, 0));
    assert_eq!(world.host_stats(hub).forwarded, 2);
}

#[test]
fn non_members_get_nothing_and_a_restart_forgets_unknown_peers() {
    let Star { mut world, sender, hub, receivers, .. } =
        star(line(Duration::ZERO), &[delay(10), delay(10)], plain_hub());
    let other = PathId(8);
    let elsewhere = SocketAddrV4::new(Ipv4Addr::new(224, 9, 9, 9), ADDRESS.port());
    world.add_path(sender, other, PORT, elsewhere, info());
    world.call(sender, |member, _| {
        member.send(other, 0..1);
        member.send(GROUP, 1..2);
    });
    let _ = idle(&mut world);
    assert_eq!(world.host_stats(sender).no_route, 1);
    assert_eq!(world.host_stats(hub).no_route, 0);
    world.schedule(world.now(), Action::Restart(receivers[0]));
    let notes = idle(&mut world);
    assert_eq!(events(&notes, receivers[0]).len(), 1, "only the group comes up again");
    world.call(sender, |member, _| member.send(GROUP, 2..3));
    let notes = idle(&mut world);
    assert_eq!(
        received(&notes, receivers[0])[0].2,
        PathId(2),
        "a new peer after the restart gets a new number"
    );
    assert_eq!(received(&notes, receivers[1])[0].2, PathId(1));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, ..ProptestConfig::default() })]

    /// Every branch accounts for every packet, and the same world runs the same way.
    #[test]
    fn each_branch_accounts_for_every_packet(
        branches in prop::collection::vec((0..40_u64, 0.0..0.5_f64, any::<bool>()), 1..12),
        sends in prop::collection::vec((0..12_usize, 1..30_u32, 0..60_u64), 1..12),
        room in 1..40_usize,
        crash in prop::option::of((0..12_usize, 0..60_u64)),
    ) {
        let run = || {
            let up = link::Config {
                queue: Queue { packets: Some(room), bytes: None },
                ..line(Duration::from_millis(5))
            };
            let branches: Vec<_> = branches.iter().map(|(wait, per, damages)| {
                let kind = ErrorKind::PerPacket(*per);
                let model = if *damages { ErrorModel::damaging(kind) } else { ErrorModel::dropping(kind) };
                link::Config { errors: vec![model], ..delay(*wait) }
            }).collect();
            let Star { mut world, sender, receivers, up, branches, hub } =
                star(up, &branches, plain_hub());
            let hosts: Vec<_> = [sender].into_iter().chain(receivers.clone()).collect();
            for (host, count, at) in &sends {
                let count = *count;
                let host = hosts[host % hosts.len()];
                let call: EngineCall<Member> =
                    Box::new(move |member, _| member.send(GROUP, 0..count));
                world.schedule(Time::from_nanos(at * MS), Action::Call(host, call));
            }
            if let Some((host, at)) = crash {
                let host = hosts[host % hosts.len()];
                world.schedule(Time::from_nanos(at * MS), Action::Restart(host));
            }
            let notes = idle(&mut world);
            let forwarded = world.host_stats(hub).forwarded;
            assert!(forwarded >= world.link_stats(up).delivered.packets);
            for (receiver, branch) in receivers.iter().zip(&branches) {
                let (host, link) = (world.host_stats(*receiver), world.link_stats(*branch));
                assert_eq!(link.queued.packets, 0);
                let known = host.received.packets + host.bad_ip + host.bad_udp + host.no_port;
                // A damaged packet may appear to be for another host.
                assert_eq!(link.delivered.packets, known + host.no_route + host.forwarded);
            }
            notes
        };
        let first = run();
        prop_assert_eq!(&first, &run());
    }
}
