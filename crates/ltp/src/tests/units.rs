//! Units of client data that share blocks.

use std::time::Duration;

use engine::{Input, Receive, Time};
use proptest::prelude::*;

use super::world::{PATH, World, lose_one_in};
use crate::segment::{AGGREGATION_SERVICE, Body, Checkpoint, Data, DataKind, Segment, SessionId};
use crate::{Aggregation, Config, Indication, Limits, PeerError, RequestError};

const SIZE: usize = 1000;
const AGE: Duration = Duration::from_millis(40);

fn config() -> Config {
    Config {
        aggregation: Some(Aggregation { size: SIZE, age: AGE }),
        limits: Limits { units: 4_000, units_total: 20_000, ..Limits::default() },
        ..Config::default()
    }
}

#[test]
fn units_that_arrived_take_no_memory() {
    let limits = Limits { closed: 100, ..config().limits };
    let mut world = World::with(&Config { limits, ..config() });
    world.logging = false;
    let mut held = [0; 2];
    for count in 1..=1_000 {
        let now = world.now;
        let sent = world.hosts[0].engine.charge(|node| node.send_data(now, 2, 7, &[7; 100]));
        sent.expect("it is small");
        world.drain(0);
        world.run();
        for host in &mut world.hosts {
            host.indications.clear();
        }
        // Ended sessions are remembered up to a limit.
        if count == 500 {
            held = [0, 1].map(|host| world.hosts[host].engine.memory());
        }
    }
    for (host, held) in held.into_iter().enumerate() {
        let memory = world.hosts[host].engine.memory();
        assert!(memory < held + 10_000, "{memory} of {held} at host {host}");
    }
}

/// The units that arrived, with their sessions.
fn arrived(world: &World) -> Vec<(SessionId, u64, Vec<u8>)> {
    let units = world.hosts[1].indications.iter().filter_map(|indication| match indication {
        Indication::Data { id, service, bytes } => Some((*id, *service, bytes.to_vec())),
        _ => None,
    });
    units.collect()
}

#[test]
fn small_units_share_a_block_until_it_is_old() {
    let mut world = World::with(&config());
    for i in 0..5 {
        world.hosts[0].engine.send_data(world.now, 2, i, &[i as u8; 20]).expect("it is small");
        world.drain(0);
        world.run_until(world.now + Duration::from_millis(5));
    }
    assert!(world.log.is_empty());
    world.run();
    let units = arrived(&world);
    let session = units[0].0;
    let expected: Vec<_> = (0..5).map(|i| (session, i, vec![i as u8; 20])).collect();
    assert_eq!(units, expected);
    assert_eq!(world.transcript(), ["> red EOB 0-110 CP 1/0", "< RS 1/1 0-110: 0-110", "> RA 1"]);
    assert_eq!(world.log[0].at, Time::ZERO + AGE);
    for side in 0..2 {
        assert_eq!(world.finished(side).map(|finished| finished.result), Some(Ok(())));
    }
}

#[test]
fn aggregation_limits_are_enforced() {
    let mut world = World::with(&Config { aggregation: None, ..config() });
    let node = &mut world.hosts[0].engine;
    let error = node.send_data(Time::ZERO, 2, 1, b"x").expect_err("it is off");
    assert_eq!(error, RequestError::NoAggregation);
    let mut world = World::with(&config());
    let node = &mut world.hosts[0].engine;
    let error = node.send_data(Time::ZERO, 1, 1, b"x").expect_err("that is itself");
    assert_eq!(error, RequestError::Oneself);
    let error = node.send_data(Time::ZERO, 2, 1, &[0; 4_000]).expect_err("it is large");
    assert_eq!(error, RequestError::LargeUnit(4_003));
    let mut taken = 0;
    while node.send_data(Time::ZERO, 2, 1, &[7; 500]).is_ok() {
        taken += 1;
    }
    // 503 bytes each: one alone leaves no room for a second in 1,000.
    assert_eq!(taken, 20_000 / 503);
    world.drain(0);
    world.run();
    assert_eq!(arrived(&world).len(), taken);
    world.hosts[0].engine.send_data(world.now, 2, 1, b"x").expect("there is room again");
}

/// A block of units from engine 1 that holds these bytes, in one segment.
fn block(number: u64, offset: u64, data: &[u8]) -> Vec<u8> {
    let body = Body::Data(Data {
        kind: DataKind::EndOfRedBlock,
        service: AGGREGATION_SERVICE,
        offset,
        checkpoint: Some(Checkpoint { serial: 1, report: 0 }),
        data,
    });
    Segment::new(SessionId { originator: 1, number }, body).to_vec().expect("a segment")
}

#[test]
fn invalid_blocks_of_units_are_refused() {
    let mut world = World::with(&config());
    world.input(1, Input::Receive(Receive::datagram(PATH, &block(1, 0, b"\x01\x05four"))));
    assert!(arrived(&world).is_empty());
    let is_told = world.hosts[1].indications.iter().any(|indication| {
        matches!(indication, Indication::PeerError { error: PeerError::NotUnits, .. })
    });
    assert!(is_told);
    // An offset does not take memory beyond the limits either.
    let before = world.hosts[1].engine.memory();
    for number in 2..20 {
        let segment = block(number, 3_900, b"x");
        world.input(1, Input::Receive(Receive::datagram(PATH, &segment)));
    }
    world.input(1, Input::Receive(Receive::datagram(PATH, &block(20, 1 << 30, b"x"))));
    assert!(world.hosts[1].engine.memory() - before < 20_000 + 20 * 4_000);
    assert!(world.hosts[1].engine.stats().data_dropped > 10);
    // A world without aggregation cancels.
    let mut world = World::with(&Config { aggregation: None, ..config() });
    world.input(1, Input::Receive(Receive::datagram(PATH, &block(1, 0, b"\x01\x04four"))));
    assert_eq!(world.transcript(), ["< CR UNREACH"]);
}

/// An empty segment gives the end of the block, and no byte before it.
#[test]
fn units_arrive_with_the_last_byte_of_their_block() {
    const ID: SessionId = SessionId { originator: 1, number: 1 };
    let mut world = World::with(&config());
    world.hear(1, &block(1, 6, b""));
    for (offset, part) in [(0, &b"\x01\x04fou"[..]), (5, b"r")] {
        assert_eq!(arrived(&world), []);
        let (kind, service) = (DataKind::Red, AGGREGATION_SERVICE);
        let body = Body::Data(Data { kind, service, offset, checkpoint: None, data: part });
        world.hear(1, &Segment::new(ID, body).to_vec().expect("a segment"));
    }
    assert_eq!(arrived(&world), [(ID, 1, b"four".to_vec())]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn every_unit_arrives_once(
        units in prop::collection::vec((0..300_u64, 0..1_500_usize, 0..30_u64), 1..40),
        seed: u64,
    ) {
        let mut config = config();
        config.limits.units_total = 1 << 20;
        let mut world = World::with(&config);
        world.lose(lose_one_in(6, seed));
        let mut sent = Vec::new();
        for (number, (service, len, wait)) in units.into_iter().enumerate() {
            let data = vec![number as u8; len];
            world.hosts[0].engine.send_data(world.now, 2, service, &data).expect("there is room");
            world.drain(0);
            sent.push((service, data));
            world.run_until(world.now + Duration::from_millis(wait));
        }
        world.run();
        // Blocks may be reordered; units of one may not.
        let mut found = arrived(&world);
        for units in found.chunk_by(|a, b| a.0 == b.0) {
            let in_order = units.iter().filter_map(|(_, _, data)| data.first()).is_sorted();
            prop_assert!(in_order, "{:?}", units);
            let bytes = units.iter().map(|unit| unit.2.len()).sum::<usize>();
            prop_assert!(units.len() == 1 || bytes < SIZE, "{} bytes", bytes);
        }
        found.sort_by(|a, b| (a.1, &a.2).cmp(&(b.1, &b.2)));
        sent.sort();
        let found: Vec<_> = found.into_iter().map(|(_, service, data)| (service, data)).collect();
        prop_assert_eq!(found, sent);
        for side in 0..2 {
            prop_assert_eq!(world.hosts[side].engine.sessions().count(), 0);
        }
    }
}
