//! Two layers over a path with chosen losses.

use std::time::Duration;

use bytes::Bytes;
use engine::{Engine as _, FileName, Input, PathEvent, PathInfo, Receive, Time, TxBuf};
use proptest::prelude::*;
use testing::memory::Counted;

use super::{Config, Fragmentation, Limits, Udpcl};
use crate::codec::bp7::Eid;
use crate::layer::{
    Command, Configured, Content, Event, Layer as _, LinkId, Outcome, Outgoing, Refusal, Remote,
    Tag, TransferId,
};
use crate::tests::pair::{Chance, LINK, PATH, Pair, bytes, in_file, whole};

const FAILED: Outcome = Outcome::Failed { acknowledged: 0 };

fn config() -> Config {
    Config { peers: [(LINK, PATH)].into(), ..Config::default() }
}

fn cutting() -> Config {
    Config { fragmentation: Fragmentation::OfLayer, ..config() }
}

fn pair_of(configs: [Config; 2], info: PathInfo, seed: u64) -> Pair {
    Pair::new(configs.map(|config| Box::new(Udpcl::new(config)) as _), info, seed)
}

fn pair(config: Config) -> Pair {
    pair_of([config.clone(), config], PathInfo::datagram(1472), 1)
}

fn content(len: usize) -> Content {
    Content::Bytes(bytes(len).into())
}

/// Requirements: U01a.
#[test]
fn a_bundle_is_a_datagram() {
    let mut pair = pair(config());
    let Some(Event::Up { neighbour, .. }) = pair.ends[0].events.first() else { panic!("no link") };
    assert_eq!(neighbour.bundle_max, 1472);
    pair.send(1, content(10));
    pair.send(2, content(1466));
    let file = in_file(&mut pair, 700);
    pair.send(3, file);
    pair.send(4, content(1467));
    pair.pass(Duration::from_secs(1));
    assert_eq!(pair.wires[0].sent, [whole(10), whole(1466), whole(700)]);
    assert_eq!(pair.came(1), [whole(10), whole(1466), whole(700)]);
    let left = Outcome::Left;
    let mut outcomes = pair.outcomes(0);
    outcomes.sort_by_key(|(tag, _)| *tag);
    assert_eq!(outcomes, [(1, left), (2, left), (3, left), (4, FAILED)]);
    assert!(pair.is_idle());
}

#[test]
fn lost_datagrams_count_as_left() {
    let mut pair = pair(config());
    pair.wires[0].lost = [1].into();
    for tag in 0..3 {
        pair.send(tag, content(tag as usize));
    }
    pair.pass(Duration::from_secs(1));
    assert_eq!(pair.came(1), [whole(0), whole(2)]);
    assert_eq!(pair.outcomes(0), [(0, Outcome::Left), (1, Outcome::Left), (2, Outcome::Left)]);
}

/// Requirements: B72.
#[test]
fn rate_and_interval_pace_datagrams() {
    // 147,200 bit/s: 1,472 bytes take 80 ms.
    let info = PathInfo { rate_bps: Some(147_200), ..PathInfo::datagram(1472) };
    let mut pair = pair_of([config(), config()], info.clone(), 1);
    for tag in 0..4 {
        pair.send(tag, content(1466));
    }
    pair.pass(Duration::from_secs(1));
    let since = |pair: &Pair| -> Vec<u64> {
        let times = pair.wires[0].times.iter();
        times.map(|at| (*at - Time::from_secs(1)).as_millis() as u64).collect()
    };
    assert_eq!(since(&pair)[..3], [0, 80, 160]);
    let tick = Config { peers: [(LINK, PATH)].into(), ..Config::dtn2_2007() };
    let mut pair = pair_of([tick.clone(), tick], info, 1);
    pair.batch = 1;
    pair.send(1, content(4 << 10));
    pair.pass(Duration::from_secs(1));
    // 4,096 + 6 bytes, 1,459 in a fragment: three.
    assert_eq!(since(&pair), [0, 20, 40]);
    assert_eq!(pair.came(1), [whole(4 << 10)]);
}

#[test]
fn longer_bundles_are_fragmented_and_reassembled() {
    let mut pair = pair(cutting());
    pair.send(1, content(10));
    pair.send(2, content(100_000));
    let file = in_file(&mut pair, 1_000_000);
    pair.send(3, file);
    pair.pass(Duration::from_secs(1));
    assert_eq!(pair.wires[0].sent[0], whole(10));
    assert_eq!(pair.wires[0].sent[1][..13], [0x46, 0, 0, 0, 1, 0, 1, 0x86, 0xa6, 0, 0, 0, 0]);
    let came = pair.came(1);
    assert!(came == [whole(10), whole(100_000), whole(1_000_000)]);
    assert!(pair.is_idle());
}

#[test]
fn a_fragment_that_is_lost_loses_the_bundle() {
    let mut pair = pair(cutting());
    pair.wires[0].lost = [2].into();
    pair.send(1, content(10_000));
    pair.send(2, content(20_000));
    pair.pass(Duration::from_secs(59));
    assert_eq!(pair.came(1), [whole(20_000)]);
    let is_broken =
        |pair: &Pair| pair.ends[1].events.iter().any(|event| matches!(event, Event::Broken { .. }));
    assert!(!is_broken(&pair));
    pair.pass(Duration::from_secs(2));
    assert!(is_broken(&pair));
    assert!(pair.is_idle());
}

#[test]
fn fragments_may_be_reordered_and_duplicated() {
    for seed in 0..50 {
        let info = PathInfo { rate_bps: Some(10_000_000), ..PathInfo::datagram(500) };
        let mut pair = pair_of([cutting(), cutting()], info, seed);
        pair.chance = Chance { loss: 0, doubled: 300, late: 300 };
        for (tag, len) in [30_000, 700, 12_000].into_iter().enumerate() {
            pair.send(tag as u64, content(len));
        }
        pair.pass(Duration::from_secs(100));
        let mut came = pair.came(1);
        came.sort_by_key(Vec::len);
        assert_eq!(came, [whole(700), whole(12_000), whole(30_000)], "seed {seed}");
        assert!(pair.is_idle());
    }
}

#[test]
fn queued_bundles_fail_when_the_path_goes_down() {
    let info = PathInfo { rate_bps: Some(8_000), ..PathInfo::datagram(1000) };
    let mut pair = pair_of([config(), config()], info, 1);
    pair.ends[0].layer.handle_input(pair.now, Input::Path(PATH, PathEvent::Blocked));
    pair.send(1, content(900));
    pair.down();
    assert_eq!(pair.outcomes(0), [(1, FAILED)]);
    assert!(matches!(pair.ends[0].events.last(), Some(Event::Down { .. })));
    pair.send(2, content(1));
    assert_eq!(pair.outcomes(0), [(1, FAILED), (2, FAILED)]);
    pair.up();
    pair.send(3, content(900));
    pair.pass(Duration::from_secs(10));
    assert_eq!(pair.came(1), [whole(900)]);
    // The contact ends, and begins again.
    pair.command(0, Command::Close { link: LINK });
    pair.send(4, content(900));
    pair.command(0, Command::Open { link: LINK });
    pair.send(5, content(800));
    pair.pass(Duration::from_secs(10));
    assert_eq!(pair.outcomes(0)[2..], [(3, Outcome::Left), (4, FAILED), (5, Outcome::Left)]);
}

#[test]
fn bundles_in_transit_arrive_after_the_end_of_a_contact() {
    let info = PathInfo { rate_bps: Some(80_000), ..PathInfo::datagram(500) };
    let mut pair = pair_of([cutting(), cutting()], info, 1);
    pair.send(1, content(10_000));
    pair.pass(Duration::from_millis(500));
    pair.ends[1].layer.handle_input(pair.now, Input::Path(PATH, PathEvent::Down));
    pair.pass(Duration::from_secs(5));
    assert_eq!(pair.came(1), [whole(10_000)]);
}

#[test]
fn bundles_beyond_a_smaller_mtu_fail() {
    let mut pair = pair(config());
    pair.ends[0].layer.handle_input(pair.now, Input::Path(PATH, PathEvent::Blocked));
    pair.send(1, content(1000));
    pair.send(2, content(100));
    let up = PathEvent::Up(PathInfo::datagram(500));
    pair.ends[0].layer.handle_input(pair.now, Input::Path(PATH, up));
    pair.drain(0);
    pair.pass(Duration::from_secs(1));
    assert_eq!(pair.outcomes(0), [(1, FAILED), (2, Outcome::Left)]);
    assert_eq!(pair.came(1), [whole(100)]);
}

#[test]
fn an_unreadable_file_fails_alone() {
    let mut pair = pair(cutting());
    let name = FileName::spool("bp/none").unwrap();
    pair.send(1, Content::File { name, offset: 0, len: 9000 });
    let file = in_file(&mut pair, 9000);
    pair.send(2, file);
    pair.send(3, content(50));
    pair.pass(Duration::from_secs(1));
    assert_eq!(pair.outcomes(0), [(1, FAILED), (2, Outcome::Left), (3, Outcome::Left)]);
    assert_eq!(pair.came(1), [whole(9000), whole(50)]);
}

#[test]
fn unconfigured_peers_are_neighbours_up_to_a_bound() {
    let limits = Limits { strangers: 1, ..Limits::default() };
    let listening = Config { limits, ..Config::default() };
    let mut pair = pair_of([config(), listening], PathInfo::datagram(1472), 1);
    pair.send(1, content(9));
    pair.pass(Duration::from_secs(1));
    assert_eq!(pair.came(1), [whole(9)]);
    let Some(Event::Up { link, .. }) = pair.ends[1].events.first() else { panic!("no link") };
    assert!(*link > LinkId::CAME);
    let events = pair.ends[1].events.len();
    let up = PathEvent::Up(PathInfo::datagram(1472));
    let other = engine::PathId(9);
    pair.ends[1].layer.handle_input(pair.now, Input::Path(other, up));
    let receive = Receive::datagram(other, b"\x9fx");
    pair.ends[1].layer.handle_input(pair.now, Input::Receive(receive));
    pair.drain(1);
    assert_eq!(pair.ends[1].events.len(), events);
}

/// Requirements: U03.
#[test]
fn keepalives_are_sent_by_idle_links() {
    let keepalive = Some(Duration::from_secs(1));
    let mut pair = pair(Config { keepalive, ..config() });
    pair.pass(Duration::from_secs(20));
    pair.send(1, content(1));
    pair.pass(Duration::from_secs(20));
    // At 15 s, the shortest interval, and 15 s after the bundle.
    assert_eq!(pair.wires[0].sent, [vec![0; 4], whole(1), vec![0; 4]]);
    assert_eq!(pair.came(1), [whole(1)]);
    pair.down();
    assert!(pair.is_idle());
}

#[test]
fn undecided_bundles_pause_reception() {
    let limits = Limits { unanswered: 4, ..Limits::default() };
    let mut pair = pair(Config { limits, ..config() });
    pair.accepts = false;
    for tag in 0..6 {
        pair.send(tag, content(9));
    }
    pair.pass(Duration::from_secs(1));
    assert!(pair.wires[1].is_paused);
    assert_eq!(pair.came(1).len(), 4);
    for transfer in 0..2 {
        let (link, transfer) = (LINK, TransferId(transfer));
        pair.command(1, Command::Refuse { link, transfer, why: Refusal::NoResources });
    }
    assert!(!pair.wires[1].is_paused);
    pair.pass(Duration::from_secs(1));
    assert_eq!(pair.came(1).len(), 6);
    pair.command(1, Command::Pause { link: LINK });
    assert!(pair.wires[1].is_paused);
}

#[test]
fn incomplete_reassemblies_are_bounded() {
    let limits = Limits { incoming: 3, early: 10_000, ..Limits::default() };
    let mut layer = Counted::new(|| Udpcl::new(Config { limits, ..cutting() }));
    let mut now = Time::from_secs(1);
    layer.handle_input(now, Input::Path(PATH, PathEvent::Up(PathInfo::datagram(1472))));
    layer.command(now, Command::Open { link: LINK });
    let mut started = 0;
    for bundle in 0..10_000u32 {
        for offset in [100u32, 900, 500] {
            let fragment =
                crate::codec::udpcl::Fragment { bundle, length: 1 << 20, offset, data: &[] };
            let datagram = [&fragment.header()[..], &[7; 300]].concat();
            layer.handle_input(now, Input::Receive(Receive::datagram(PATH, &datagram)));
            now += Duration::from_micros(1);
            while let Some(event) = layer.poll_indication() {
                started += i32::from(matches!(event, Event::Begins { .. }));
                started -= i32::from(matches!(event, Event::Broken { .. }));
            }
            // Most of it for the numbers of recent bundles.
            assert!(layer.memory() < 50_000, "{}", layer.memory());
            assert!(started <= 3);
        }
    }
    layer.handle_input(now, Input::Path(PATH, PathEvent::Down));
    layer.handle_timeout(now + limits.patience);
    assert_eq!(layer.early, 0);
    assert_eq!(layer.poll_timeout(), None);
}

proptest! {
    /// Random datagrams, whole or fragmented, cause no panic, and complete bundles are reported
    /// once.
    #[test]
    fn random_datagrams_cause_no_panic(
        datagrams in prop::collection::vec((any::<bool>(), 0u8..3, 0u8..4, 0u8..3, prop::collection::vec(any::<u8>(), 0..20)), 0..60),
    ) {
        let mut pair = pair(cutting());
        for (is_fragment, bundle, offset, length, data) in datagrams {
            let datagram = if is_fragment {
                let (bundle, offset, length) =
                    (u32::from(bundle), u32::from(offset) * 7, u32::from(length) * 10 + 15);
                let fragment = crate::codec::udpcl::Fragment { bundle, length, offset, data: &[] };
                [&fragment.header()[..], &data].concat()
            } else {
                data
            };
            let receive = Receive::datagram(PATH, &datagram);
            pair.ends[1].layer.handle_input(pair.now, Input::Receive(receive));
            pair.drain(1);
        }
        pair.pass(Duration::from_secs(120));
        for bundle in pair.came(1) {
            prop_assert!(!bundle.is_empty());
        }
        prop_assert!(pair.is_idle());
    }
}

/// A payload in a file results in the same datagrams as one in memory.
#[test]
fn files_and_bytes_give_equal_datagrams() {
    let bundle = |content: fn(&mut Pair) -> Content| {
        let mut pair = pair(cutting());
        let payload = content(&mut pair);
        pair.send(1, payload);
        pair.pass(Duration::from_secs(1));
        pair.wires[0].sent.clone()
    };
    let there = bundle(|pair| in_file(pair, 300_000));
    assert!(there == bundle(|_| Content::Bytes(Bytes::from(bytes(300_000)))));
}

#[test]
fn neighbours_change_while_the_layer_runs() {
    let mut pair = pair(config());
    let configure = |pair: &mut Pair, links: &[LinkId]| {
        let remote = |_| Remote { node: Eid::ipn(2, 0), server_name: String::new(), engine: 0 };
        let links = links.iter().map(|link| (*link, remote(link))).collect();
        let configured = Configured { links, ..Configured::default() };
        pair.ends[0].layer.configure(pair.now, configured);
    };
    let [ups, downs] = [true, false].map(|is_up| {
        move |pair: &Pair| {
            let of = pair.ends[0].events.iter().filter(|event| match event {
                Event::Up { .. } => is_up,
                Event::Down { .. } => !is_up,
                _ => false,
            });
            of.count()
        }
    });
    configure(&mut pair, &[LINK, LinkId(9)]);
    pair.drain(0);
    assert_eq!((ups(&pair), downs(&pair)), (1, 0), "the link stays");
    configure(&mut pair, &[LinkId(9)]);
    pair.drain(0);
    assert_eq!((ups(&pair), downs(&pair)), (1, 1));
    pair.send(1, content(10));
    pair.pass(Duration::from_secs(1));
    assert_eq!(pair.outcomes(0), [(1, FAILED)]);
    configure(&mut pair, &[LINK]);
    pair.command(0, Command::Open { link: LINK });
    pair.down();
    pair.up();
    pair.send(2, content(20));
    pair.pass(Duration::from_secs(1));
    assert_eq!(pair.came(1), [whole(20)]);
}

#[test]
fn a_stranger_whose_path_becomes_a_neighbours_goes_down() {
    let mut layer = Udpcl::new(cutting());
    let now = Time::from_secs(1);
    let mut links = std::collections::BTreeMap::new();
    for path in [0, 1, 2].map(engine::PathId) {
        layer.handle_input(now, Input::Path(path, PathEvent::Up(PathInfo::datagram(1472))));
        if let Some(Event::Up { link, .. }) = layer.poll_indication() {
            links.insert(path, link);
        }
    }
    let stranger = links[&engine::PathId(2)];
    assert!(stranger >= LinkId::CAME);
    // A part of a bundle in each direction.
    let fragment = crate::codec::udpcl::Fragment { bundle: 1, length: 9000, offset: 0, data: &[] };
    let datagram = [&fragment.header()[..], &[7; 300]].concat();
    layer.handle_input(now, Input::Receive(Receive::datagram(engine::PathId(2), &datagram)));
    let (head, tail) = (Bytes::from_static(b"\x9fhead"), Bytes::from_static(b"!"));
    let bundle = Outgoing { head, payload: content(100), tail, reliable: true, identity: None };
    layer.command(now, Command::Send { link: stranger, tag: Tag(1), bundle });
    while layer.poll_indication().is_some() {}
    let remote = |_| Remote { node: Eid::ipn(2, 0), server_name: String::new(), engine: 0 };
    let of = [LINK, LinkId(2)].map(|link| (link, remote(link)));
    layer.configure(now, Configured { links: of.into(), ..Configured::default() });
    let events: Vec<Event> = std::iter::from_fn(|| layer.poll_indication()).collect();
    let downs: Vec<_> = events
        .iter()
        .filter_map(|event| match event {
            Event::Down { link, .. } => Some(*link),
            _ => None,
        })
        .collect();
    assert_eq!(downs, [stranger], "{events:?}");
    assert!(events.iter().any(|event| matches!(event, Event::Sent { outcome: FAILED, .. })));
    assert!(events.iter().any(|event| matches!(event, Event::Broken { .. })));
    // The neighbour is reached by the path from then on.
    layer.command(now, Command::Open { link: LinkId(2) });
    let up = PathEvent::Up(PathInfo::datagram(1472));
    layer.handle_input(now, Input::Path(engine::PathId(2), up));
    assert!(matches!(layer.poll_indication(), Some(Event::Up { link: LinkId(2), .. })));
}

#[test]
fn bundles_that_the_system_does_not_send_fail() {
    let mut layer = Udpcl::new(cutting());
    let up = PathEvent::Up(PathInfo::datagram(500));
    layer.handle_input(Time::ZERO, Input::Path(PATH, up));
    layer.command(Time::ZERO, Command::Open { link: LINK });
    let outcomes = |layer: &mut Udpcl| -> Vec<_> {
        let events = std::iter::from_fn(|| layer.poll_indication());
        let sent = |event| match event {
            Event::Sent { tag, outcome, .. } => Some((tag.0, outcome)),
            _ => None,
        };
        events.filter_map(sent).collect()
    };
    let send = |layer: &mut Udpcl, tag: u64, len: usize| {
        let (head, tail) = (Bytes::from(bytes(len)), Bytes::new());
        let bundle = Outgoing { head, payload: content(0), tail, reliable: false, identity: None };
        layer.command(Time::ZERO, Command::Send { link: LINK, tag: Tag(tag), bundle });
    };
    // A batch of one datagram holds the first bundle, or half of the third.
    let mut tx = TxBuf::new(1);
    for (tag, len, event, outcome) in [
        (1, 400, None, Outcome::Left),
        (2, 400, Some(PathEvent::Unsent), FAILED),
        (3, 800, Some(PathEvent::Unsent), FAILED),
        (4, 800, Some(PathEvent::Down), FAILED),
    ] {
        send(&mut layer, tag, len);
        tx.clear();
        assert!(layer.poll_transmit(Time::ZERO, &mut tx).is_some());
        // The driver sends it before it asks for events.
        if let Some(event) = event {
            layer.handle_input(Time::ZERO, Input::Path(PATH, event));
        }
        tx.clear();
        assert!(layer.poll_transmit(Time::ZERO, &mut tx).is_none());
        assert_eq!(outcomes(&mut layer), [(tag, outcome)]);
    }
    // A batch that is not due yet, because of the rate.
    let up = PathEvent::Up(PathInfo { rate_bps: Some(8_000), ..PathInfo::datagram(500) });
    layer.handle_input(Time::ZERO, Input::Path(PATH, up));
    for (tag, refused) in [(5, false), (6, false), (7, true)] {
        send(&mut layer, tag, 400);
        tx.clear();
        let transmit = layer.poll_transmit(Time::ZERO, &mut tx).unwrap();
        if transmit.not_before > Time::ZERO {
            assert_eq!(outcomes(&mut layer), [], "{tag}: it has not left");
            layer.handle_timeout(transmit.not_before);
        }
        if refused {
            layer.handle_input(transmit.not_before, Input::Path(PATH, PathEvent::Unsent));
        }
        let outcome = if refused { FAILED } else { Outcome::Left };
        assert_eq!(outcomes(&mut layer), [(tag, outcome)]);
    }
}
