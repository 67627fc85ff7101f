//! Blocks of several bundles, in memory and in files.

use std::time::Duration;

use ::ltp::segment::CancelReason;
use ::ltp::{self, Indication, Red};
use engine::{PathInfo, Rng, Time};

use crate::codec::bp6;
use crate::codec::bp7::{BundleFlags, CrcType, CreationTimestamp, Eid, Payload, Primary};
use crate::layer::{Command, Content, Event, LinkId, Outcome, Outgoing, Refusal, Tag};
use crate::ltpcl::{Aggregation, Config, Limits, Ltpcl, Peer, Sharing};
use crate::tests::hub::{Hub, path};
use crate::tests::pair::{LINK, PATH, Pair, bytes, files};

const ION: &str = include_str!("../../../testdata/ltp/ion_aggregated_block.hex");

/// Bundle of version 7 with a payload of this length.
fn seven(number: u64, len: usize, crc: CrcType) -> Vec<u8> {
    let primary = Primary {
        flags: BundleFlags::default(),
        crc: CrcType::Crc16,
        destination: Eid::ipn(2, 1),
        source: Eid::ipn(1, 1),
        report_to: Eid::None,
        creation: CreationTimestamp { time_ms: 845_000_000_000, sequence: number },
        lifetime_ms: 300_000,
        fragment: None,
    };
    let payload = Payload { crc, len: len as u64, ..Payload::default() };
    let head = crate::codec::bp7::Head::new(primary, Vec::new(), payload).unwrap();
    crate::codec::bp7::Bundle { head, payload: &bytes(len) }.to_vec().unwrap()
}

/// Bundle of version 6 with a payload of this length, and with a block behind it or not.
fn six(number: u64, len: usize, has_trailer: bool) -> Vec<u8> {
    let primary = bp6::Primary {
        flags: BundleFlags::SINGLETON,
        destination: Eid::ipn(2, 1),
        source: Eid::ipn(1, 1),
        report_to: Eid::None,
        custodian: Eid::None,
        creation: bp6::CreationTimestamp { time_s: 845_000_000, sequence: number },
        lifetime_s: 300,
        dictionary: None,
        fragment: None,
    };
    let flags = if has_trailer { bp6::BlockFlags::default() } else { bp6::BlockFlags::LAST };
    let payload = bp6::Payload { flags, len: len as u64, ..bp6::Payload::default() };
    let head = bp6::Head::new(primary, Vec::new(), payload).unwrap();
    let block = bp6::Block::new(200, bp6::BlockFlags::default(), Vec::new(), &[7; 100]).unwrap();
    let trailer = bp6::Trailer::new(if has_trailer { vec![block] } else { Vec::new() });
    bp6::Bundle { head, payload: &bytes(len), trailer }.to_vec().unwrap()
}

/// Bundles of all forms.
fn mixed(count: usize, len: usize) -> Vec<Vec<u8>> {
    let one = |n: usize| match n % 5 {
        0 => seven(n as u64, len, CrcType::Crc32c),
        1 => seven(n as u64, len + n, CrcType::None),
        2 => six(n as u64, len, false),
        3 => six(n as u64, len + n, true),
        _ => seven(n as u64, n, CrcType::Crc16),
    };
    (0..count).map(one).collect()
}

fn hub_with(limits: Limits) -> Hub<Ltpcl, ltp::Node> {
    let peers = [(LinkId(1), Peer { engine: 3, path: path(0) })].into();
    let bounds = ltp::Limits { units: 20_000, ..ltp::Limits::default() };
    let ltp = ltp::Config { engine: 2, limits: bounds, ..ltp::Config::default() };
    let config = Config { ltp, peers, limits, ..Config::default() };
    let remotes = [(2, ltp::Remote { path: Some(PATH), ..ltp::Remote::default() })].into();
    let peer = ltp::Config { engine: 3, remotes, ..ltp::Config::default() };
    let peer = ltp::Node::of_blocks(peer, Rng::new(3, "ltp"));
    Hub::new(Ltpcl::new(config, Rng::new(2, "ltp")), vec![peer])
}

fn hub() -> Hub<Ltpcl, ltp::Node> {
    hub_with(Limits::default())
}

fn send(hub: &mut Hub<Ltpcl, ltp::Node>, block: Vec<u8>) {
    hub.peers[0].send_bytes(hub.now, 2, 1, block.into(), Red::All).unwrap();
    hub.pass(Duration::from_secs(30));
}

fn came(hub: &Hub<Ltpcl, ltp::Node>) -> Vec<Vec<u8>> {
    hub.came().into_iter().map(|(_, bundle)| bundle).collect()
}

/// Results of the sender's sessions.
fn results(hub: &Hub<Ltpcl, ltp::Node>) -> Vec<Result<(), CancelReason>> {
    let ends = hub.indications.iter().filter_map(|(_, indication)| match indication {
        Indication::Finished(finished) => Some(finished.result.map_err(|why| why.reason)),
        _ => None,
    });
    ends.collect()
}

fn undecided(hub: &Hub<Ltpcl, ltp::Node>) -> usize {
    hub.layer.transfers.len()
}

/// Bundles that the agent was offered and has not decided on, in order.
fn offered(hub: &Hub<Ltpcl, ltp::Node>) -> Vec<(LinkId, crate::layer::TransferId)> {
    let wholes = hub.events.iter().filter_map(|event| match event {
        Event::Whole { link, transfer, .. } => Some((*link, *transfer)),
        _ => None,
    });
    wholes.filter(|(_, transfer)| hub.layer.transfers.contains_key(transfer)).collect()
}

#[test]
fn a_block_of_ion_arrives_as_three_bundles() {
    let hex: String = ION.lines().filter(|line| !line.starts_with('#')).collect();
    let digits: Vec<u8> =
        hex.chars().filter_map(|c| c.to_digit(16)).map(|digit| digit as u8).collect();
    let segment: Vec<u8> = digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect();
    let info = PathInfo { owlt: Some(Duration::from_millis(10)), ..PathInfo::datagram(1472) };
    let layer = |engine| {
        let peers = [(LINK, Peer { engine: 3 - engine, path: PATH })].into();
        let ltp = ltp::Config { engine, ..ltp::Config::default() };
        let config = Config { ltp, peers, ..Config::default() };
        Box::new(Ltpcl::new(config, Rng::new(engine, "ltp"))) as _
    };
    let mut pair = Pair::new([layer(1), layer(2)], info, 1);
    let receive = engine::Receive::datagram(PATH, &segment);
    pair.ends[1].layer.handle_input(pair.now, engine::Input::Receive(receive));
    pair.drain(1);
    let payloads: Vec<Vec<u8>> = pair
        .came(1)
        .iter()
        .map(|bundle| {
            let bundle =
                crate::codec::bp7::Bundle::decode(bundle, &crate::codec::bp7::Bounds::default());
            bundle.unwrap().payload.to_vec()
        })
        .collect();
    assert_eq!(payloads, [&b"one"[..], b"two", b"three"]);
    // The report that claims all of it.
    assert_eq!(pair.wires[1].sent.len(), 1);
    assert_eq!(pair.wires[1].sent[0][..3], [8, 1, 7]);
}

#[test]
fn blocks_of_1_to_100_bundles_arrive_in_memory_and_in_files() {
    for count in [1, 2, 3, 10, 64, 65, 100] {
        for len in [0, 30, 3000, 40_000] {
            let mut hub = hub();
            let bundles = mixed(count, len);
            let block = bundles.concat();
            let is_file = block.len() > 20_000;
            send(&mut hub, block);
            assert!(came(&hub) == bundles, "{count} bundles of {len} bytes");
            assert_eq!(results(&hub), [Ok(())]);
            // A single bundle stays in the file, which the agent owns.
            assert_eq!(files(&hub.store), usize::from(is_file && count == 1));
            assert!(hub.layer.incoming.is_empty() && hub.layer.cuts.is_empty());
            assert_eq!(hub.layer.statistics().faults, 0);
        }
    }
}

#[test]
fn a_malformed_tail_refuses_only_what_cannot_be_read() {
    for len in [100, 30_000] {
        let bundles = mixed(3, len);
        let cut = bundles[2].len() - 1;
        for tail in [&b"no bundle"[..], &[0; 10_000], &[0x9f], &bundles[2][..cut]] {
            let mut hub = hub();
            send(&mut hub, [&bundles[0][..], &bundles[1], tail].concat());
            assert!(came(&hub) == bundles[..2]);
            assert_eq!(results(&hub), [Ok(())], "{len} {}", tail.len());
            assert_eq!(hub.layer.statistics().faults, 1);
            assert!(hub.events.iter().any(|event| matches!(event, Event::PeerFault { .. })));
            assert_eq!(files(&hub.store), 0);
        }
    }
}

#[test]
fn a_block_without_a_bundle_is_left_to_the_agent() {
    for block in
        [vec![0; 100], vec![0x9f; 50_000], seven(1, 60_000, CrcType::None)[..59_000].into()]
    {
        let mut hub = hub();
        hub.accepts = false;
        send(&mut hub, block.clone());
        assert!(came(&hub) == [block]);
        let (link, transfer) = offered(&hub)[0];
        hub.command(Command::Refuse { link, transfer, why: Refusal::NotAcceptable });
        hub.pass(Duration::from_secs(10));
        assert_eq!(results(&hub), [Err(CancelReason::Unreachable)]);
        assert_eq!(files(&hub.store), 0);
    }
}

#[test]
fn a_block_is_answered_once_all_its_bundles_are() {
    use Refusal::{Completed, NoResources, NotAcceptable};
    for len in [100, 30_000] {
        for (answers, result) in [
            ([None, None, None], Ok(())),
            ([Some(Completed), None, Some(Completed)], Ok(())),
            ([None, Some(NotAcceptable), None], Ok(())),
            ([Some(NotAcceptable); 3], Err(CancelReason::Unreachable)),
            ([None, Some(NoResources), None], Err(CancelReason::User)),
            ([Some(NotAcceptable), None, Some(NoResources)], Err(CancelReason::User)),
        ] {
            let mut hub = hub();
            hub.accepts = false;
            send(&mut hub, mixed(3, len).concat());
            for (at, answer) in answers.into_iter().enumerate() {
                assert_eq!(results(&hub), []);
                let Some((link, transfer)) = offered(&hub).first().copied() else {
                    // The block is refused already.
                    assert!(answers[..at].contains(&Some(NoResources)));
                    break;
                };
                hub.command(match answer {
                    None => Command::Accept { link, transfer },
                    Some(why) => Command::Refuse { link, transfer, why },
                });
            }
            hub.pass(Duration::from_secs(10));
            assert_eq!(results(&hub), [result], "{len} {answers:?}");
            assert_eq!(files(&hub.store), 0, "{len} {answers:?}");
            assert!(hub.layer.incoming.is_empty());
        }
    }
}

#[test]
fn bundles_of_a_block_wait_for_the_agent() {
    for len in [20, 3000] {
        let limits = Limits { window: 4, ..Limits::default() };
        let mut hub = hub_with(limits);
        hub.accepts = false;
        let bundles = mixed(20, len);
        send(&mut hub, bundles.concat());
        assert_eq!((came(&hub).len(), undecided(&hub)), (4, 4));
        let (link, transfer) = offered(&hub)[0];
        hub.command(Command::Accept { link, transfer });
        assert_eq!((came(&hub).len(), undecided(&hub)), (5, 4));
        hub.command(Command::Pause { link });
        for (link, transfer) in offered(&hub) {
            hub.command(Command::Accept { link, transfer });
        }
        assert_eq!((came(&hub).len(), undecided(&hub)), (5, 0));
        hub.accepts = true;
        hub.command(Command::Resume { link });
        hub.pass(Duration::from_secs(10));
        assert!(came(&hub) == bundles);
        assert_eq!(results(&hub), [Ok(())]);
        assert_eq!(files(&hub.store), 0);
    }
}

#[test]
fn a_sender_that_cancels_breaks_what_is_being_read() {
    let limits = Limits { window: 1, ..Limits::default() };
    let mut hub = hub_with(limits);
    hub.accepts = false;
    let block = mixed(5, 30_000).concat();
    let id = hub.peers[0].send_bytes(hub.now, 2, 1, block.into(), Red::All).unwrap();
    hub.pass(Duration::from_secs(2));
    assert_eq!(undecided(&hub), 1);
    hub.peers[0].cancel(hub.now, id).unwrap();
    hub.pass(Duration::from_secs(10));
    let (link, transfer) = offered(&hub)[0];
    hub.command(Command::Accept { link, transfer });
    hub.pass(Duration::from_secs(10));
    assert_eq!(came(&hub).len(), 1);
    assert!(hub.layer.incoming.is_empty() && hub.layer.cuts.is_empty());
    assert_eq!(files(&hub.store), 0);
}

/// Requirements: L03.
#[test]
fn bundles_share_blocks_as_those_of_ion() {
    let info = PathInfo { owlt: Some(Duration::from_millis(10)), ..PathInfo::datagram(1472) };
    let aggregation = Some(Aggregation {
        bytes: 1000,
        delay: Duration::from_millis(100),
        form: Sharing::Bundles,
    });
    let layer = |engine| {
        let peers = [(LINK, Peer { engine: 3 - engine, path: PATH })].into();
        let ltp = ltp::Config { engine, ..ltp::Config::default() };
        let limits = Limits { window: 10, ..Limits::default() };
        let config =
            Config { ltp, peers, limits, aggregation: aggregation.clone(), ..Config::default() };
        Box::new(Ltpcl::new(config, Rng::new(engine, "ltp"))) as _
    };
    let mut pair = Pair::new([layer(1), layer(2)], info, 1);
    let send = |pair: &mut Pair, tag: u64, len| {
        let bundle = seven(tag, len, CrcType::Crc32c);
        let (head, tail) = (bundle.clone().into(), bytes::Bytes::new());
        let payload = Content::Bytes(bytes::Bytes::new());
        let bundle = Outgoing { head, payload, tail, reliable: true, identity: None };
        pair.command(0, Command::Send { link: LINK, tag: Tag(tag), bundle });
    };
    let start: Time = pair.now;
    // Three fill a block, a long one goes alone, and two wait for more.
    for (tag, len) in [(0, 250), (1, 250), (2, 250), (3, 2000), (4, 300), (5, 10)] {
        send(&mut pair, tag, len);
    }
    pair.pass(Duration::from_secs(5));
    let expected = [250, 250, 250, 2000, 300, 10];
    let mut expected: Vec<_> =
        (0..).zip(expected).map(|(tag, len)| seven(tag, len, CrcType::Crc32c)).collect();
    let mut came = pair.came(1);
    came.sort();
    expected.sort();
    assert!(came == expected);
    assert!(pair.outcomes(0).iter().all(|(_, outcome)| *outcome == Outcome::Acknowledged));
    let at = |sent: usize| pair.wires[0].times[sent] - start;
    assert!((at(0), at(1)) == (Duration::ZERO, Duration::ZERO));
    assert!(pair.wires[0].times.iter().any(|at| *at - start == Duration::from_millis(100)));
    // A full window is sent at once.
    let before = pair.wires[0].sent.len();
    for tag in 10..20 {
        send(&mut pair, tag, 1);
    }
    assert_eq!(pair.wires[0].sent.len(), before + 1);
    pair.pass(Duration::from_secs(5));
    assert_eq!(pair.came(1).len(), 16);
    assert!(pair.is_idle());
}
