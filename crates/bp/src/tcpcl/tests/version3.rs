//! Version 3.

use super::*;
use crate::tcpcl::{Protocol, Version3};

fn speak(config: Config, settings: Version3) -> Config {
    Config { protocol: Protocol::Tcpcl3(settings), ..config }
}

fn both(settings: Version3) -> [Config; 2] {
    [speak(active(1), settings), speak(config(2), settings)]
}

fn failed(acknowledged: u64) -> Outcome {
    Outcome::Failed { acknowledged }
}

/// Requirements: W01a, W02a, W04, W05.
#[test]
fn the_first_exchange_matches_the_specification() {
    let mut world = World::established(both(Version3::default()), 1);
    world.send(9, Content::Bytes(Bytes::from_static(b"hi")));
    world.settle();
    // Magic, version, acknowledgments, refusals and lengths, 30 s, "ipn:1.0"; a segment with both
    // flags and 7 bytes.
    assert_eq!(world.sent[0], b"dtn!\x03\x0d\x00\x1e\x07ipn:1.0\x13\x07headhi!");
    assert_eq!(world.sent[1], b"dtn!\x03\x0d\x00\x1e\x07ipn:2.0\x20\x07");
    assert_eq!(world.outcomes(), [(9, Outcome::Acknowledged)]);
    let Event::Up { neighbour, .. } = &world.ends[0].events[0] else { panic!("no session") };
    assert_eq!(neighbour.node, Some(Eid::ipn(2, 0)));
}

/// Requirements: W04, W07.
#[test]
fn bundles_of_all_lengths_arrive_in_order_with_lengths() {
    for seed in 0..20 {
        let mut world = World::established(both(Version3::default()), seed);
        let lengths = [1, 100, 65_531, 65_532, 200_000, 10];
        for (tag, len) in lengths.into_iter().enumerate() {
            world.send(tag as u64, Content::Bytes(bytes(len).into()));
        }
        world.settle();
        assert_eq!(world.came(1), lengths.map(whole));
        let acknowledged: Vec<_> = (0..6).map(|tag| (tag, Outcome::Acknowledged)).collect();
        assert_eq!(world.outcomes(), acknowledged);
        let announced: Vec<Option<u64>> = world.ends[1]
            .events
            .iter()
            .filter_map(|event| match event {
                Event::Begins { bytes, .. } => Some(*bytes),
                _ => None,
            })
            .collect();
        assert_eq!(announced, lengths.map(|len| Some(len as u64 + 5)));
    }
}

/// Requirements: W07.
#[test]
fn lengths_are_announced_to_peers_that_request_them() {
    for lengths in [true, false] {
        let settings = Version3 { lengths, ..Version3::default() };
        let peers = [speak(active(1), Version3::default()), speak(config(2), settings)];
        let mut world = World::established(peers, 1);
        let before = world.sent[0].len();
        world.send(1, Content::Bytes(bytes(200_000).into()));
        world.settle();
        // LENGTH before the first segment.
        assert_eq!(world.sent[0][before] == 0x60, lengths);
        assert_eq!(world.came(1), [whole(200_000)]);
    }
}

#[test]
fn a_segment_may_be_as_long_as_a_bundle() {
    // Version 3 cannot announce a longest segment.
    let [a, b] = both(Version3::default());
    let mut world = World::established(
        [Config { segment: 1 << 20, ..a }, Config { segment_mru: 1000, ..b }],
        1,
    );
    world.send(1, Content::Bytes(bytes(300_000).into()));
    world.settle();
    assert_eq!(world.came(1), [whole(300_000)]);
}

#[test]
fn a_segment_of_no_bundle_ends_the_session_without_a_message() {
    let mut world = World::established(both(Version3::default()), 1);
    let before = world.sent[1].len();
    // DATA_SEGMENT with the end flag only, of 5 bytes.
    let receive = Receive::datagram(PASSIVE, b"\x11\x05hello");
    world.ends[1].layer.handle_input(world.now, Input::Receive(receive));
    world.drain(1);
    assert_eq!(world.sent[1].len(), before);
    let is_fault = |event: &Event| matches!(event, Event::PeerFault { .. });
    assert!(world.ends[1].events.iter().any(is_fault));
}

/// Requirements: W05.
#[test]
fn acknowledgments_bound_the_data_in_transit() {
    let [a, b] = both(Version3::default());
    let limits = Limits { unacknowledged: 1000, ..Limits::default() };
    let mut world = World::established([Config { limits, segment: 400, ..a }, b], 1);
    let before = world.sent[0].len();
    world.send(1, Content::Bytes(bytes(100_000).into()));
    world.send(2, Content::Bytes(bytes(100_000).into()));
    // LENGTH of 4 bytes; segments of 400, 400 and 200, each with 3 more.
    assert_eq!(world.sent[0].len() - before, 4 + 1000 + 3 * 3);
    world.settle();
    assert_eq!(world.came(1), [whole(100_000), whole(100_000)]);
    let acknowledged = Outcome::Acknowledged;
    assert_eq!(world.outcomes(), [(1, acknowledged), (2, acknowledged)]);
}

/// Requirements: W03, W05.
#[test]
fn without_acknowledgments_a_bundle_has_only_left() {
    let silent = Version3 { acks: false, ..Version3::default() };
    let [a, _] = both(Version3::default());
    let mut world = World::established([a, speak(config(2), silent)], 1);
    let before = world.sent[1].len();
    world.send(1, Content::Bytes(bytes(200_000).into()));
    world.settle();
    assert_eq!(world.came(1), [whole(200_000)]);
    assert_eq!(world.outcomes(), [(1, Outcome::Left)]);
    assert_eq!(world.sent[1].len(), before);
}

/// Requirements: W03.
#[test]
fn reactive_fragments_are_kept_where_both_agree() {
    for reactive_fragmentation in [true, false] {
        let settings = Version3 { reactive_fragmentation, ..Version3::default() };
        let [a, b] = both(settings);
        let mut world = World::established([Config { segment: 1000, ..a }, b], 1);
        world.send(1, Content::Bytes(bytes(10_000).into()));
        // LENGTH of 3 bytes, three segments, and a part of the fourth.
        world.carry(1, 3 + 3 * 1003 + 500);
        let acks = world.wires[0].coming.len();
        world.carry(0, acks);
        world.down();
        let kept = if reactive_fragmentation { 3000 } else { 0 };
        assert_eq!(world.outcomes(), [(1, failed(kept))]);
        let broken = |event: &&Event| matches!(event, Event::Broken { .. });
        let Some(Event::Broken { keep, .. }) = world.ends[1].events.iter().find(broken) else {
            panic!("it is not broken");
        };
        assert_eq!(*keep, reactive_fragmentation);
        // Each segment has 3 bytes before its data.
        assert_eq!(world.came(1)[0].len(), 3 * 1000 + 500 - 3);
    }
}

/// Requirements: W06a.
#[test]
fn a_refusal_stops_a_transfer() {
    let [a, b] = both(Version3::default());
    let limits = Limits { unacknowledged: 200_000, ..Limits::default() };
    let mut world = World::established([Config { limits, ..a }, b], 1);
    world.send(1, Content::Bytes(bytes(5_000_000).into()));
    world.carry(1, 1000);
    let begins = |event: &&Event| matches!(event, Event::Begins { .. });
    let Some(Event::Begins { link, transfer, .. }) =
        world.ends[1].events.iter().find(begins).cloned()
    else {
        panic!("it did not begin");
    };
    let refuse = Command::Refuse { link, transfer, why: Refusal::Completed };
    world.command(1, refuse);
    world.send(2, Content::Bytes(bytes(7).into()));
    world.settle();
    let completed = Outcome::Refused(Refusal::Completed);
    assert_eq!(world.outcomes(), [(1, completed), (2, Outcome::Acknowledged)]);
    assert!(world.sent[1].ends_with(&[0x31, 0x20, 12]), "{:02x?}", world.sent[1]);
    assert!(world.sent[0].len() < 1_000_000);
}

#[test]
fn without_refusals_unneeded_bundles_are_acknowledged() {
    let settings = Version3 { refusals: false, ..Version3::default() };
    for (why, outcome) in [
        (Refusal::Completed, Outcome::Acknowledged),
        (Refusal::NotAcceptable, Outcome::Acknowledged),
        (Refusal::NoResources, failed(0)),
    ] {
        let mut world = World::established(both(settings), 1);
        world.accepts = false;
        world.send(1, Content::Bytes(bytes(7).into()));
        world.settle();
        let whole = |event: &&Event| matches!(event, Event::Whole { .. });
        let Some(Event::Whole { link, transfer, .. }) =
            world.ends[1].events.iter().find(whole).cloned()
        else {
            panic!("it is not whole");
        };
        world.command(1, Command::Refuse { link, transfer, why });
        world.settle();
        assert_eq!(world.outcomes(), [(1, outcome)]);
    }
}

/// Requirements: W08b.
#[test]
fn started_transfers_complete_before_the_shutdown() {
    let mut world = World::established(both(Version3::default()), 1);
    world.send(1, Content::Bytes(bytes(100_000).into()));
    world.command(0, Command::Close { link: LINK });
    world.settle();
    assert_eq!(world.outcomes(), [(1, Outcome::Acknowledged)]);
    assert_eq!(world.sent[0].last(), Some(&0x50));
    assert!(world.is_down(0) && world.is_down(1));
    assert!(world.ends.iter().all(|end| end.layer.poll_timeout().is_none()));
}

/// Requirements: W08b.
#[test]
fn a_shutdown_sets_the_reconnection_delay() {
    for (reconnect_s, opened) in [(Some(0), [1, 1]), (Some(50), [1, 2]), (None, [2, 2])] {
        let settings = Version3 { reconnect_s, ..Version3::default() };
        let mut world = World::established(both(settings), 1);
        let link = world.link(1);
        world.command(1, Command::Close { link });
        world.settle();
        assert!(world.is_down(0), "{reconnect_s:?}");
        world.pass(Duration::from_secs(49));
        assert_eq!(world.wires[0].opened, opened[0], "{reconnect_s:?}");
        world.pass(Duration::from_secs(1));
        assert_eq!(world.wires[0].opened, opened[1], "{reconnect_s:?}");
    }
}

/// Requirements: W03, W08a.
#[test]
fn keepalives_go_both_ways_and_silence_ends_a_session() {
    let [a, b] = both(Version3::default());
    let mut world = World::established([a, Config { keepalive_s: 10, ..b }], 1);
    let before = world.sent[0].len();
    world.pass(Duration::from_secs(100));
    assert_eq!(&world.sent[0][before..], [0x40; 10]);
    for wire in &mut world.wires {
        wire.is_up = false;
    }
    world.pass(Duration::from_secs(90));
    assert!(world.is_down(0) && world.is_down(1));
}

/// Requirements: W02b.
#[test]
fn later_versions_are_accepted_and_earlier_ones_not() {
    let header = |version: u8| [b"dtn!", &[version, 0x01, 0, 0, 0][..]].concat();
    for (bytes, is_up) in [(header(4), true), (header(2), false), (b"SSH-2.0-O".to_vec(), false)] {
        let mut world = World::new(both(Version3::default()), 1);
        world.wires[1].is_up = true;
        world.event(1, PathEvent::Up(PathInfo::stream()));
        world.receive(1, &bytes);
        assert_eq!(world.wires[1].is_up, is_up, "{bytes:?}");
    }
}

proptest! {
    /// Random bytes after the beginning of a session cause no panic and no unbounded memory.
    #[test]
    fn random_bytes_after_the_start_cause_no_panic(bytes in prop::collection::vec(any::<u8>(), 0..300), cut in 1usize..40) {
        let mut world = World::established(both(Version3::default()), 1);
        let end = &mut world.ends[1];
        for piece in bytes.chunks(cut) {
            end.layer.handle_input(world.now, Input::Receive(Receive::datagram(PASSIVE, piece)));
        }
        world.drain(1);
    }
}
