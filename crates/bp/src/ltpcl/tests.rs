//! Two layers over a path with chosen losses.

use std::time::Duration;

use ::ltp::segment::{Body, DataKind, Segment};
use engine::{FileName, Input, PathEvent, PathId, PathInfo, Rng};
use proptest::prelude::*;

use super::{Aggregation, Color, Config, Limits, Ltpcl, Peer, Sharing};
use crate::codec::bp7::Eid;
use crate::layer::{
    Command, Configured, Content, Event, Identity, Layer, LinkId, Outcome, Refusal, Remote, Tag,
};
use crate::tests::hub::Hub;
use crate::tests::pair::{
    Chance, LINK, PATH, Pair, assert_arrive, assert_completes, assert_continues, assert_pauses,
    assert_refused, assert_repeats, assert_waits, bytes, content, in_file, whole,
};

const FAILED: Outcome = Outcome::Failed { acknowledged: 0 };

fn config(engine: u64) -> Config {
    let peers = [(LINK, Peer { engine: 3 - engine, path: PATH })].into();
    let limits = ltp::Limits { units: 20_000, ..ltp::Limits::default() };
    let ltp = ltp::Config { engine, limits, ..ltp::Config::default() };
    Config { ltp, peers, ..Config::default() }
}

fn layer_of(config: Config, seed: u64) -> Box<dyn Layer> {
    let rng = Rng::new(seed, &format!("ltp {}", config.ltp.engine));
    Box::new(Ltpcl::new(config, rng).named("ltp"))
}

fn pair_with(change: impl Fn(Config) -> Config, seed: u64) -> Pair {
    let info = PathInfo { owlt: Some(Duration::from_millis(10)), ..PathInfo::datagram(1472) };
    let layer = |engine| layer_of(change(config(engine)), seed);
    Pair::new([layer(1), layer(2)], info, seed)
}

#[test]
fn long_bundles_continue_after_a_restart() {
    assert_continues(|n, seed| layer_of(config(n as u64 + 1), seed));
}

/// The next run of its sender does not know that the session was cancelled.
#[test]
fn a_cancelled_session_is_refused_when_it_is_repeated() {
    let info = PathInfo { rate_bps: Some(10_000_000), ..PathInfo::datagram(1472) };
    let mut pair = Pair::new([1, 2].map(|engine| layer_of(config(engine), 1)), info, 1);
    pair.is_paced = true;
    let payload = in_file(&mut pair, 1_000_000);
    let identity = |resumes| Some(Identity { number: 7, resumes });
    pair.send_as(0, 1, payload.clone(), true, identity(false));
    pair.pass(Duration::from_millis(400));
    pair.command(0, Command::Cancel { link: LINK, tag: Tag(1) });
    pair.pass(Duration::from_secs(10));
    assert_eq!(pair.outcomes(0), [(1, FAILED)]);
    pair.restart(0, layer_of(config(1), 2));
    for tag in [2, 3] {
        pair.send_as(0, tag, payload.clone(), true, identity(true));
        pair.pass(Duration::from_secs(10));
    }
    let refused = Outcome::Refused(Refusal::NoResources);
    assert_eq!(pair.outcomes(0), [(1, FAILED), (2, refused), (3, Outcome::Acknowledged)]);
    assert_eq!(pair.came(1), [whole(1_000_000)]);
}

#[test]
fn repeated_sessions_leave_the_bundle_alone() {
    assert_repeats(|n, seed| layer_of(config(n as u64 + 1), seed));
}

fn sharing(form: Sharing) -> Aggregation {
    Aggregation { bytes: 500, delay: Duration::from_secs(2), form }
}

fn pair() -> Pair {
    pair_with(|config| config, 1)
}

fn kinds(pair: &Pair, n: usize) -> Vec<DataKind> {
    let sent = pair.wires[n].sent.iter().map(|datagram| Segment::decode(datagram).unwrap());
    let data = sent.filter_map(|segment| match segment.body {
        Body::Data(data) => Some((data.kind, data.service)),
        _ => None,
    });
    data.map(|(kind, service)| {
        assert!(service == 1 || service == 2);
        kind
    })
    .collect()
}

/// Requirements: L01, L02, U02b.
#[test]
fn a_bundle_is_a_red_block_of_service_1() {
    let mut pair = pair();
    pair.send(1, content(10));
    pair.pass(Duration::from_secs(10));
    let segment = Segment::decode(&pair.wires[0].sent[0]).unwrap();
    let Body::Data(data) = segment.body else { panic!("{segment:?}") };
    assert_eq!((data.kind, data.service, data.offset), (DataKind::EndOfRedBlock, 1, 0));
    assert_eq!(data.data, whole(10));
    assert_eq!(pair.came(1), [whole(10)]);
    assert_eq!(pair.outcomes(0), [(1, Outcome::Acknowledged)]);
    assert!(pair.is_idle());
}

#[test]
fn bundles_of_all_lengths_arrive_from_memory_and_from_files() {
    for seed in 0..4 {
        assert_arrive(
            seed,
            pair_with(|config| config, seed),
            &[0, 1000, 1500, 19_000, 20_000, 70_000, 700_000],
        );
    }
}

#[test]
fn long_bundles_arrive_as_working_files() {
    let mut pair = pair();
    pair.send(1, content(100_000));
    pair.pass(Duration::from_secs(10));
    let wholes: Vec<_> = pair.ends[1]
        .events
        .iter()
        .filter_map(|event| match event {
            Event::Whole { file, .. } => Some(file.clone()),
            _ => None,
        })
        .collect();
    assert!(matches!(&wholes[..], [Some((_, 100_006))]), "{wholes:?}");
    assert!(pair.came(1) == [whole(100_000)]);
}

#[test]
fn the_last_report_waits_for_the_agent() {
    assert_waits(pair, Duration::from_secs(5), &[100, 50_000]);
}

/// Requirements: L04.
#[test]
fn refused_blocks_are_cancelled_unless_unneeded() {
    let refused = Outcome::Refused(Refusal::NoResources);
    let cases = [
        (Refusal::NoResources, refused),
        (Refusal::Retransmit, refused),
        (Refusal::Completed, Outcome::Acknowledged),
        (Refusal::NotAcceptable, Outcome::Refused(Refusal::NotAcceptable)),
    ];
    assert_refused(pair, &[100, 50_000], &cases);
}

#[test]
fn bundles_without_room_are_reported() {
    // In the store, and as the bound of the engine.
    for (len, bound, why) in [
        (50_000, u64::MAX, Refusal::NoResources),
        (50_000, 30_000, Refusal::NotAcceptable),
        (10_000, 9000, Refusal::NotAcceptable),
    ] {
        let change = |mut config: Config| {
            if config.ltp.engine == 2 {
                config.ltp.limits.block = config.ltp.limits.block.min(bound);
            }
            config
        };
        let mut pair = pair_with(change, 1);
        pair.ends[1].store.set_capacity(Some(20_000));
        pair.send(1, content(len));
        pair.pass(Duration::from_secs(100));
        assert_eq!(pair.outcomes(0), [(1, Outcome::Refused(why))], "{len} {bound}");
        let events = &pair.ends[1].events;
        let refused = events.iter().filter(|event| matches!(event, Event::Refused { .. }));
        assert_eq!(refused.cloned().collect::<Vec<_>>(), [Event::Refused { link: LINK, why }]);
    }
}

/// Requirements: L02, U02b.
#[test]
fn green_blocks_are_sent_once_and_mixed_ones_start_red() {
    let mut pair = pair_with(|config| Config { color: Color::Mixed(100), ..config }, 1);
    pair.send(1, content(3000));
    pair.pass(Duration::from_secs(10));
    let green = [DataKind::Green, DataKind::EndOfGreenBlock];
    assert_eq!(kinds(&pair, 0), [&[DataKind::EndOfRedPart][..], &green].concat());
    assert_eq!(pair.outcomes(0), [(1, Outcome::Left)]);
    assert_eq!(pair.came(1), [whole(3000)]);
    // An unreliable bundle is green: one lost segment loses it.
    let mut pair = pair_with(|config| config, 1);
    pair.wires[0].lost = [1].into();
    pair.send_from(0, 1, content(3000), false);
    pair.send_from(0, 2, content(4000), false);
    pair.pass(Duration::from_secs(10));
    assert_eq!(pair.outcomes(0), [(1, Outcome::Left), (2, Outcome::Left)]);
    assert_eq!(pair.came(1), [whole(4000)]);
    pair.pass(Duration::from_secs(4000));
    assert!(pair.is_idle());
}

#[test]
fn short_bundles_share_a_block_if_configured() {
    let sharing = sharing(Sharing::Units);
    let change = |config: Config| {
        let ltp = ltp::Config { aggregation: Some(ltp::Aggregation::default()), ..config.ltp };
        Config { ltp, aggregation: Some(sharing.clone()), ..config }
    };
    let mut pair = pair_with(change, 1);
    for tag in 0..4 {
        pair.send(tag, content(100));
    }
    // 106 bytes and 2 bytes of overhead: four bundles are 432 bytes. A fifth does not fit, and a
    // long one goes alone.
    assert_eq!(pair.wires[0].sent.len(), 0);
    pair.send(4, content(100));
    pair.send(5, content(5000));
    pair.pass(Duration::from_secs(1));
    assert_eq!(pair.came(1).len(), 5);
    pair.pass(Duration::from_secs(10));
    let mut came = pair.came(1);
    came.sort_by_key(Vec::len);
    assert_eq!(came[..5], [whole(100), whole(100), whole(100), whole(100), whole(100)]);
    assert_eq!(came[5..], [whole(5000)]);
    assert_eq!(pair.outcomes(0).len(), 6);
    let blocks = kinds(&pair, 0).into_iter().filter(|kind| *kind == DataKind::EndOfRedBlock);
    assert_eq!(blocks.count(), 3);
    assert!(pair.is_idle());
}

#[test]
fn a_session_resumes_after_an_outage() {
    let info =
        |pair: &Pair| pair.ends[0].events.iter().filter(|e| matches!(e, Event::Up { .. })).count();
    let mut pair = pair();
    pair.wires[0].lost = (0..40).collect();
    pair.send(1, content(50_000));
    pair.down();
    pair.pass(Duration::from_secs(600));
    pair.send(2, content(100));
    assert_eq!(pair.outcomes(0), []);
    pair.up();
    pair.pass(Duration::from_secs(100));
    assert_eq!(pair.outcomes(0).len(), 2);
    assert!(pair.outcomes(0).iter().all(|(_, outcome)| *outcome == Outcome::Acknowledged));
    assert_eq!(info(&pair), 1);
}

#[test]
fn a_long_outage_is_given_up() {
    let mut pair = pair();
    pair.wires[0].lost = (0..40).collect();
    pair.send(1, content(50_000));
    pair.down();
    pair.pass(Duration::from_secs(3601));
    assert_eq!(pair.outcomes(0), [(1, FAILED)]);
    assert!(matches!(pair.ends[0].events.last(), Some(Event::Down { .. })));
    pair.send(2, content(50));
    assert_eq!(pair.outcomes(0), [(1, FAILED), (2, FAILED)]);
    pair.up();
    pair.send(3, content(50));
    pair.pass(Duration::from_secs(100));
    assert_eq!(pair.outcomes(0)[2..], [(3, Outcome::Acknowledged)]);
    assert!(pair.is_idle());
}

#[test]
fn started_transfers_complete_after_the_contact() {
    assert_completes(pair());
}

#[test]
fn cancelled_and_unreadable_bundles_fail() {
    let mut pair = pair();
    pair.wires[0].lost = (0..100).collect();
    pair.send(1, content(50_000));
    pair.command(0, Command::Cancel { link: LINK, tag: Tag(1) });
    let name = FileName::spool("bp/none").unwrap();
    pair.send(2, Content::File { name, offset: 0, len: 90_000 });
    assert_eq!(pair.outcomes(0), [(1, FAILED), (2, FAILED)]);
    // A file that is shorter than announced.
    let Content::File { name, .. } = in_file(&mut pair, 1000) else { panic!("a file") };
    pair.send(3, Content::File { name, offset: 0, len: 90_000 });
    pair.pass(Duration::from_secs(100));
    assert_eq!(pair.outcomes(0)[2..], [(3, FAILED)]);
    assert_eq!(pair.came(1).len(), 0);
    pair.pass(Duration::from_secs(4000));
    assert!(pair.is_idle());
}

#[test]
fn blocks_wait_while_the_agent_pauses() {
    assert_pauses(pair());
}

#[test]
fn unconfigured_engines_are_accepted_up_to_a_bound() {
    for strangers in [0, 1] {
        let limits = Limits { strangers, ..Limits::default() };
        let change = |config: Config| match config.ltp.engine {
            2 => Config { peers: [].into(), limits, ..config },
            _ => config,
        };
        let mut pair = pair_with(change, 1);
        pair.send(1, content(100));
        pair.pass(Duration::from_secs(10));
        let outcome = match strangers {
            0 => Outcome::Refused(Refusal::NoResources),
            _ => Outcome::Acknowledged,
        };
        assert_eq!(pair.outcomes(0), [(1, outcome)]);
        assert_eq!(pair.came(1).len(), strangers);
    }
}

#[test]
fn settled_unconfigured_engines_make_room() {
    let limits = Limits { strangers: 1, ..Limits::default() };
    let layer = Ltpcl::new(Config { peers: [].into(), limits, ..config(2) }, Rng::new(1, "ltp"));
    let peer = |engine| {
        let remotes = [(2, ltp::Remote { path: Some(PATH), ..ltp::Remote::default() })].into();
        let config = ltp::Config { engine, remotes, ..ltp::Config::default() };
        ltp::Node::of_blocks(config, Rng::new(engine, "ltp"))
    };
    let mut hub = Hub::new(layer, vec![peer(3), peer(4), peer(5)]);
    let send = |hub: &mut Hub<Ltpcl, ltp::Node>, n: usize, len| {
        let block = bytes(len).into();
        hub.peers[n].send_bytes(hub.now, 2, 1, block, ltp::Red::All).unwrap();
        hub.pass(Duration::from_secs(10));
    };
    for n in [0, 1, 2, 0] {
        send(&mut hub, n, 1000 + n);
    }
    let number = |link: LinkId| link.0 - LinkId::CAME.0;
    let came = hub.came().into_iter().map(|(link, it)| (number(link), it.len()));
    assert_eq!(came.collect::<Vec<_>>(), [(1, 1000), (2, 1001), (3, 1002), (4, 1000)]);
    // The agent's decision on the last is pending.
    hub.accepts = false;
    send(&mut hub, 0, 500);
    send(&mut hub, 1, 501);
    assert_eq!(hub.came().len(), 5);
}

#[test]
fn a_contact_ends_if_an_aggregate_cannot_be_sent() {
    let sharing = sharing(Sharing::Units);
    let change = |config: Config| {
        let limits = ltp::Limits { sessions: 1, ..config.ltp.limits };
        let ltp = ltp::Config { limits, ..config.ltp };
        Config { ltp, aggregation: Some(sharing.clone()), ..config }
    };
    let mut pair = pair_with(change, 1);
    // The bundle it receives takes the only slot.
    pair.accepts = false;
    pair.send_from(1, 1, content(1000), true);
    pair.pass(Duration::from_millis(500));
    assert_eq!(pair.came(0), [whole(1000)]);
    pair.send(1, content(10));
    pair.send(2, content(10));
    assert_eq!(pair.outcomes(0), []);
    pair.command(0, Command::Close { link: LINK });
    assert_eq!(pair.outcomes(0), [(1, FAILED), (2, FAILED)]);
    assert!(matches!(pair.ends[0].events.last(), Some(Event::Down { .. })));
}

#[derive(Clone, Debug)]
enum Op {
    Send(usize, bool),
    Cancel(u8),
    Pass(u16),
    Outage,
    Return,
    Close,
    Open,
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        4 => (0usize..40_000, any::<bool>()).prop_map(|(len, in_file)| Op::Send(len, in_file)),
        1 => any::<u8>().prop_map(Op::Cancel),
        4 => (1u16..500).prop_map(Op::Pass),
        1 => Just(Op::Outage),
        2 => Just(Op::Return),
        1 => Just(Op::Close),
        2 => Just(Op::Open),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    /// Each bundle has one result, and acknowledged ones have arrived.
    #[test]
    fn each_send_has_one_result(ops in prop::collection::vec(op(), 1..40), seed in 0u64..1000) {
        let mut pair = pair_with(|config| config, seed);
        pair.chance = Chance { loss: 100, doubled: 50, late: 100 };
        let mut sent = Vec::new();
        for op in ops {
            match op {
                Op::Send(len, is_in_file) => {
                    let payload = if is_in_file { in_file(&mut pair, len) } else { content(len) };
                    pair.send(sent.len() as u64, payload);
                    sent.push(len);
                }
                Op::Cancel(tag) => {
                    pair.command(0, Command::Cancel { link: LINK, tag: Tag(tag.into()) });
                }
                Op::Pass(ms) => pair.pass(Duration::from_millis(ms.into())),
                Op::Outage => pair.down(),
                Op::Return => pair.up(),
                Op::Close => pair.command(0, Command::Close { link: LINK }),
                Op::Open => pair.command(0, Command::Open { link: LINK }),
            }
        }
        pair.up();
        pair.pass(Duration::from_secs(20_000));
        let mut ended: Vec<u64> = pair.outcomes(0).iter().map(|(tag, _)| *tag).collect();
        ended.sort_unstable();
        prop_assert_eq!(ended, (0..sent.len() as u64).collect::<Vec<_>>());
        let came = pair.came(1);
        for (tag, outcome) in pair.outcomes(0) {
            if outcome == Outcome::Acknowledged {
                prop_assert!(came.contains(&whole(sent[tag as usize])));
            }
        }
        prop_assert!(pair.is_idle());
    }
}

#[test]
fn neighbours_change_while_the_layer_runs() {
    let mut pair = pair();
    let remote = |engine: u32| Remote {
        node: Eid::ipn(engine, 0),
        server_name: String::new(),
        engine: engine.into(),
    };
    let configure = |pair: &mut Pair, links: &[(LinkId, u32)]| {
        let links = links.iter().map(|(link, engine)| (*link, remote(*engine)));
        let configured = Configured { links: links.collect(), ..Configured::default() };
        pair.ends[0].layer.configure(pair.now, configured);
        pair.drain(0);
    };
    pair.wires[0].lost = (0..1000).collect();
    pair.send(1, content(10));
    pair.pass(Duration::from_secs(1));
    assert!(pair.outcomes(0).is_empty(), "it is in transit");
    // Another neighbour in its place.
    configure(&mut pair, &[(LinkId(9), 7)]);
    pair.pass(Duration::from_secs(1));
    assert_eq!(pair.outcomes(0), [(1, FAILED)]);
    let down = pair.ends[0].events.iter().filter(|event| matches!(event, Event::Down { .. }));
    assert_eq!(down.count(), 1);
    pair.send(2, content(10));
    pair.pass(Duration::from_secs(1));
    assert_eq!(pair.outcomes(0).last(), Some(&(2, FAILED)), "the link is gone");
    // The neighbour is back, and its path comes up.
    pair.wires[0].lost.clear();
    configure(&mut pair, &[(LINK, 2)]);
    pair.command(0, Command::Open { link: LINK });
    pair.down();
    pair.up();
    pair.send(3, content(20));
    pair.pass(Duration::from_secs(10));
    assert_eq!(pair.outcomes(0).last(), Some(&(3, Outcome::Acknowledged)));
    assert_eq!(pair.came(1), [whole(20)]);
    let is_other = |event: &Event| matches!(event, Event::Up { link, .. } if *link != LINK);
    assert!(!pair.ends[0].events.iter().any(is_other));
}

/// A reload gives a neighbour another link while a block from it is under way, or while its blocks
/// wait for the agent.
#[test]
fn blocks_outlast_a_new_link_to_their_sender() {
    let new = LinkId(9);
    for (len, at_ms, is_paused) in
        [(300_000, 15, false), (300_000, 25, false), (10, 15, true), (50_000, 35, true)]
    {
        let mut pair = pair();
        pair.delay = Duration::from_millis(10);
        if is_paused {
            pair.command(1, Command::Pause { link: LINK });
        }
        pair.wires[0].lost = [3, 7].into();
        pair.send(1, content(len));
        pair.pass(Duration::from_millis(at_ms));
        assert!(pair.came(1).is_empty() && pair.outcomes(0).is_empty(), "it is under way");
        let remote = Remote { node: Eid::ipn(1, 0), server_name: String::new(), engine: 1 };
        let configured = Configured { links: [(new, remote)].into(), ..Configured::default() };
        pair.ends[1].layer.configure(pair.now, configured);
        pair.drain(1);
        // The driver closes the former path, and opens the new one.
        for (path, event) in
            [(PATH, PathEvent::Down), (PathId(new.0), PathEvent::Up(PathInfo::datagram(1472)))]
        {
            pair.ends[1].layer.handle_input(pair.now, Input::Path(path, event));
        }
        pair.paths[1] = PathId(new.0);
        pair.command(1, Command::Open { link: new });
        pair.pass(Duration::from_secs(600));
        assert_eq!(pair.outcomes(0), [(1, Outcome::Acknowledged)], "{len} {at_ms} {is_paused}");
        assert_eq!(pair.came(1), [whole(len)]);
    }
}
