//! Two layers over a path with chosen losses, and three around a group.

use std::collections::BTreeMap;
use std::time::Duration;

use ::norm::{self, EndGame};
use bytes::Bytes;
use engine::{
    Engine as _, Input, MemoryStore, PathEvent, PathId, PathInfo, Receive, Rng, Time, drain,
};

use super::{Config, NormCl};
use crate::filecl::Limits;
use crate::layer::{Command, Event, Layer as _, LinkId, Outcome, Outgoing, Refusal, Tag};
use crate::tests::hub::{self, Hub};
use crate::tests::pair::{
    LINK, PATH, Pair, assert_arrive, assert_pauses, assert_refused, assert_waits, bytes, content,
    files, store, whole,
};

const FAILED: Outcome = Outcome::Failed { acknowledged: 0 };

fn info() -> PathInfo {
    let owlt = Some(Duration::from_millis(10));
    PathInfo { owlt, rate_bps: Some(100_000_000), ..PathInfo::datagram(1472) }
}

fn pair_with(end: EndGame, seed: u64) -> Pair {
    let layer = |node| {
        let sender = norm::SenderConfig { end, ..norm::SenderConfig::default() };
        let engine = norm::Config { node, sender, ..norm::Config::default() };
        let config = Config { engine, peers: [(LINK, PATH)].into(), ..Config::default() };
        Box::new(NormCl::new(config, Rng::new(seed, &format!("norm {node}")))) as _
    };
    Pair::new([layer(1), layer(2)], info(), seed)
}

fn pair(seed: u64) -> Pair {
    pair_with(EndGame::Acknowledged, seed)
}

#[test]
fn bundles_arrive_from_memory_and_from_files() {
    for seed in 0..4 {
        assert_arrive(seed, pair(seed), &[0, 1000, 1500, 70_000, 700_000]);
    }
}

#[test]
fn without_acknowledgments_a_bundle_has_only_left() {
    let mut pair = pair_with(EndGame::Flush, 1);
    pair.wires[0].lost = [1, 3].into();
    pair.send(1, content(50_000));
    pair.pass(Duration::from_secs(100));
    assert_eq!(pair.outcomes(0), [(1, Outcome::Left)]);
    assert_eq!(pair.came(1), [whole(50_000)]);
}

#[test]
fn the_acknowledgment_waits_for_the_agent() {
    assert_waits(|| pair(1), Duration::from_millis(500), &[5000, 100_000]);
}

#[test]
fn refused_bundles_are_retransmitted_unless_unneeded() {
    let cases = [
        (Refusal::NoResources, FAILED),
        (Refusal::Completed, Outcome::Acknowledged),
        (Refusal::NotAcceptable, FAILED),
    ];
    assert_refused(|| pair(1), &[5000], &cases);
}

#[test]
fn bundles_wait_while_the_agent_pauses() {
    assert_pauses(pair(1));
}

#[test]
fn a_long_outage_is_given_up() {
    let mut pair = pair(1);
    pair.wires[0].lost = (0..40).collect();
    pair.send(1, content(50_000));
    pair.down();
    pair.pass(Duration::from_secs(3700));
    assert_eq!(pair.outcomes(0), [(1, FAILED)]);
    assert!(matches!(pair.ends[0].events.last(), Some(Event::Down { .. })));
}

/// Receiver configured with the paths of these senders.
fn middle(paths: usize) -> NormCl {
    let peers = (0..paths).map(|n| (LinkId(n as u32), hub::path(n))).collect();
    let engine = norm::Config { node: 1, ..norm::Config::default() };
    let config = Config { engine, peers, ..Config::default() };
    NormCl::new(config, Rng::new(1, "middle"))
}

/// Sender with a node number.
fn sender(node: u32, seed: u64) -> norm::Node {
    let sender = norm::SenderConfig { end: EndGame::Acknowledged, ..norm::SenderConfig::default() };
    norm::Node::new(
        norm::Config { node, sender, ..norm::Config::default() },
        Rng::new(seed, "sender"),
    )
}

fn send(hub: &mut Hub<NormCl, norm::Node>, n: usize, content: norm::Content) {
    let request = norm::SendRequest { peer: PATH, content, info: Bytes::new() };
    hub.peers[n].send(hub.now, request).unwrap();
}

fn send_file(hub: &mut Hub<NormCl, norm::Node>, n: usize, len: usize) {
    let file = hub.file(n, &bytes(len));
    send(hub, n, norm::Content::File(file));
}

/// Senders informed that all receivers acknowledged.
fn confirmed(hub: &Hub<NormCl, norm::Node>) -> Vec<usize> {
    let finished = hub.indications.iter().filter(
        |(_, indication)| matches!(indication, norm::Indication::Finished(finished) if finished.is_confirmed),
    );
    finished.map(|(n, _)| *n).collect()
}

#[test]
fn senders_with_the_same_number_differ_by_path() {
    // Both have the same number and seed, as if one were a copy of the other.
    let mut hub = Hub::new(middle(2), vec![sender(7, 3), sender(7, 3)]);
    for lengths in [[100_000, 70_000], [2000, 1000]] {
        for (n, len) in lengths.into_iter().enumerate() {
            send_file(&mut hub, n, len);
        }
        hub.pass(Duration::from_secs(60));
        let mut came = hub.came();
        came.sort_by_key(|(link, _)| *link);
        let expected = [0, 1].map(|n| (LinkId(n as u32), bytes(lengths[n])));
        assert!(
            came == expected,
            "{:?}",
            came.iter().map(|(link, it)| (link, it.len())).collect::<Vec<_>>()
        );
        let mut meaning = confirmed(&hub);
        meaning.sort_unstable();
        assert_eq!(meaning, [0, 1]);
        hub.events.clear();
        hub.indications.clear();
    }
}

#[test]
fn objects_that_are_no_files_leave_nothing() {
    let mut hub = Hub::new(middle(1), vec![sender(7, 3)]);
    let own = |hub: &Hub<NormCl, norm::Node>| hub.layer.waiting();
    for count in 1..=20 {
        send(&mut hub, 0, norm::Content::Data(bytes(3000).into()));
        hub.pass(Duration::from_secs(10));
        assert_eq!((hub.layer.statistics().faults, own(&hub)), (count, 0));
    }
    send_file(&mut hub, 0, 3000);
    hub.pass(Duration::from_secs(10));
    assert_eq!(hub.came(), [(LinkId(0), bytes(3000))]);
    assert_eq!(own(&hub), 0);
}

#[test]
fn a_restarted_sender_has_one_bundle_waiting_while_paused() {
    for len in [1000, 70_000] {
        let mut hub = Hub::new(middle(1), vec![sender(7, 1)]);
        hub.command(Command::Pause { link: LinkId(0) });
        let mut waiting = Vec::new();
        for life in 2..10 {
            send_file(&mut hub, 0, len);
            hub.pass(Duration::from_secs(1));
            waiting.push(hub.layer.waiting());
            hub.replace(0, sender(7, life));
        }
        assert!(waiting.iter().all(|waiting| *waiting == 1), "{waiting:?}");
        assert_eq!(files(&hub.store), 1);
        assert_eq!(hub.came(), []);
        hub.command(Command::Resume { link: LinkId(0) });
        hub.pass(Duration::from_secs(10));
        assert_eq!(hub.came(), [(LinkId(0), bytes(len))]);
    }
}

#[test]
fn settled_unconfigured_senders_make_room() {
    let engine = norm::Config { node: 1, ..norm::Config::default() };
    let limits = Limits { strangers: 1, ..Limits::default() };
    let config = Config { engine, limits, ..Config::default() };
    let layer = NormCl::new(config, Rng::new(1, "middle"));
    let mut hub = Hub::new(layer, (0..3).map(|n| sender(7 + n, 3)).collect());
    for n in [0, 1, 2, 0] {
        send_file(&mut hub, n, 1000 + n);
        hub.pass(Duration::from_secs(10));
    }
    let came: Vec<_> =
        hub.came().into_iter().map(|(link, it)| (link.0 - LinkId::CAME.0, it.len())).collect();
    assert_eq!(came, [(1, 1000), (2, 1001), (3, 1002), (4, 1000)]);
    // The agent's decision on the last is pending.
    hub.accepts = false;
    send_file(&mut hub, 0, 500);
    hub.pass(Duration::from_secs(1));
    send_file(&mut hub, 1, 501);
    hub.pass(Duration::from_secs(1));
    assert_eq!(hub.came().len(), 5);
}

/// Path of all members to the group.
const GROUP: PathId = PathId(50);

/// Path to a member.
fn member(n: usize) -> PathId {
    PathId(n as u32)
}

/// Three members and the datagrams in transit: time, number, destination; source.
struct Group {
    now: Time,
    layers: [NormCl; 3],
    stores: [MemoryStore; 3],
    flying: BTreeMap<(Time, usize, usize), (usize, Vec<u8>)>,
    sent: usize,
    /// Long datagrams sent by the first member.
    data: usize,
    came: [usize; 3],
    outcomes: Vec<Outcome>,
}

impl Group {
    fn new() -> Self {
        let layer = |n: usize| {
            let node = 1 + n as u32;
            let engine = norm::Config { node, groups: vec![GROUP], ..Default::default() };
            let config = Config { engine, peers: [(LINK, GROUP)].into(), ..Config::default() };
            NormCl::new(config, Rng::new(7, &format!("norm {n}")))
        };
        let mut group = Self {
            now: Time::from_secs(1),
            layers: [0, 1, 2].map(layer),
            stores: [(); 3].map(|()| store()),
            flying: BTreeMap::new(),
            sent: 0,
            data: 0,
            came: [0; 3],
            outcomes: Vec::new(),
        };
        for (n, layer) in group.layers.iter_mut().enumerate() {
            layer.command(group.now, Command::Open { link: LINK });
            for path in (0..3).filter(|to| *to != n).map(member).chain([GROUP]) {
                layer.handle_input(group.now, Input::Path(path, PathEvent::Up(info())));
            }
        }
        group
    }

    /// Delivers a datagram to its destinations. The second member loses every tenth.
    fn fly(&mut self, from: usize, path: PathId, datagram: &[u8]) {
        self.data += usize::from(from == 0 && datagram.len() > 1000);
        self.sent += 1;
        for to in (0..3).filter(|to| *to != from && (path == GROUP || path == member(*to))) {
            if to != 1 || !self.sent.is_multiple_of(10) {
                let at = self.now + Duration::from_millis(10);
                self.flying.insert((at, self.sent, to), (from, datagram.to_vec()));
            }
        }
    }

    fn drain(&mut self, n: usize) {
        loop {
            let drained = drain(self.now, &mut self.layers[n], &mut self.stores[n]);
            if drained.datagrams.is_empty() && drained.indications.is_empty() {
                return;
            }
            for datagram in drained.datagrams {
                self.now = self.now.max(datagram.not_before);
                self.fly(n, datagram.path, &datagram.bytes);
            }
            for event in drained.indications {
                match event {
                    Event::Whole { link, transfer, .. } => {
                        self.came[n] += 1;
                        assert!(link >= LinkId::CAME, "it came from a member, not the group");
                        self.layers[n].command(self.now, Command::Accept { link, transfer });
                    }
                    Event::Sent { outcome, .. } => self.outcomes.push(outcome),
                    _ => {}
                }
            }
        }
    }

    /// Executes the next event; returns whether there was one.
    fn step(&mut self) -> bool {
        (0..3).for_each(|n| self.drain(n));
        let due = self.layers.iter().filter_map(|layer| layer.poll_timeout()).map(|due| due.at);
        let first = self.flying.first_key_value().map(|((at, ..), _)| *at);
        let Some(next) = due.chain(first).min() else { return false };
        self.now = self.now.max(next);
        while let Some(entry) = self.flying.first_entry().filter(|entry| entry.key().0 <= self.now)
        {
            let to = entry.key().2;
            let (from, datagram) = entry.remove();
            let receive = Receive::datagram(member(from), &datagram);
            self.layers[to].handle_input(self.now, Input::Receive(receive));
        }
        self.layers.iter_mut().for_each(|layer| layer.handle_timeout(self.now));
        true
    }
}

#[test]
fn a_bundle_is_sent_once_to_a_whole_group() {
    let mut group = Group::new();
    let (head, tail) = (Bytes::from_static(b"\x9fhead"), Bytes::from_static(b"!"));
    let bundle = Outgoing { head, payload: content(100_000), tail, reliable: true, identity: None };
    group.layers[0].command(group.now, Command::Send { link: LINK, tag: Tag(1), bundle });
    let steps = (0..20_000).take_while(|_| group.step()).count();
    assert!(steps < 20_000, "it comes to rest");
    assert_eq!((group.came, group.outcomes), ([0, 1, 1], vec![Outcome::Acknowledged]));
    // 100,006 bytes are some 70 segments; the lost ones were repaired by some parity.
    assert!((68..110).contains(&group.data), "{}", group.data);
}
