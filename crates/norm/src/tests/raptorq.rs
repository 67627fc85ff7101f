//! Transfers with RaptorQ, FEC scheme 6.

use crate::fec::{BlockCode, LongError, LongWork, ReadColumns, Received, SliceColumns};
use bytes::Bytes;
use engine::Time;
use raptorq::{EncodingPacket, ObjectTransmissionInformation, SourceBlockDecoder};

use super::resume::{Interrupted, RECEIVER, SENDER};
use super::world::{World, content, lose_one_in, name};
use crate::message::{Body, Message};
use crate::test_world::Sent;
use crate::{Config, Content, Failure, Scheme, Waste, profile};

/// Bytes of a segment.
const SEGMENT: u16 = 500;

fn config(block_len: u16) -> Config {
    let mut config = profile("coded").expect("there is such a profile");
    config.sender.fec = Scheme::RaptorQ;
    config.sender.block_len = block_len;
    config.sender.segment_size = Some(SEGMENT);
    config
}

/// Number of the symbol in a block, of a sender's NORM_DATA.
fn symbol(side: usize, datagram: &[u8]) -> Option<u16> {
    match Message::decode(datagram).ok()?.body {
        Body::Data(data) if side == 0 => Some(data.id.symbol),
        _ => None,
    }
}

/// First of `count` consecutive parity rows that do not determine a block of `count` segments.
fn dependent_rows(count: u16) -> u16 {
    let len = usize::from(SEGMENT);
    let code = BlockCode::raptorq(count, len).expect("there is such a code");
    let bytes = content(usize::from(count) * len);
    let mut work = LongWork::default();
    let mut parity = vec![0; 2_000 * len];
    let mut columns = ReadColumns::new(&bytes, len);
    code.encode(&mut work, &mut columns, 0..2_000, &mut parity).expect("it can be encoded");
    let is_dependent = |first: &u16| {
        let at = usize::from(*first) * len;
        let mut block = parity[at..at + usize::from(count) * len].to_vec();
        let missing: Vec<u16> = (0..count).collect();
        let rows: Vec<(u16, u16)> = (*first..).zip(0..count).collect();
        let mut columns = SliceColumns::new(&mut block, len);
        let received = Received { missing: &missing, parity: &rows, extra: &[] };
        code.recover(&mut work, &mut columns, &received) == Err(LongError::Dependent)
    };
    (0..2_000 - count).find(is_dependent).expect("one set in 250 is dependent")
}

#[test]
fn files_and_data_cross_many_losses() {
    for (block_len, len) in [(24_576, 1), (24_576, 499), (24_576, 60_001), (9, 60_001), (1, 5_000)]
    {
        for seed in 0..8 {
            let mut config = config(block_len);
            config.receiver.store_data = seed % 2 == 0;
            config.sender.waste = [Waste::Nothing, Waste::Share(0.01)][seed as usize / 2 % 2];
            let mut world = World::with(&config);
            let file = content(len);
            world.lose(lose_one_in(4, seed));
            world.send(&file);
            world.run();
            world.assert_delivered(&file);
            world.lose(lose_one_in(4, seed + 100));
            world.request(Content::Data(file.clone().into()), "data");
            world.run();
            let end = world.finished(1).expect("it ended");
            assert_eq!(end.result, Ok(()), "{:#?}", world.transcript());
            assert!(end.data.is_none() || end.data.as_deref() == Some(&file));
        }
    }
}

#[test]
fn a_failed_recovery_requests_another_segment() {
    let count = 10;
    let first = dependent_rows(count);
    let bytes = content(usize::from(count * SEGMENT));
    for is_file in [true, false] {
        let mut world = World::with(&config(24_576));
        // Only parity from the first dependent row on arrives.
        world.lose(move |side, _, datagram| {
            symbol(side, datagram).is_some_and(|symbol| symbol < count + first)
        });
        if is_file {
            world.send(&bytes);
        } else {
            world.request(Content::Data(Bytes::from(bytes.clone())), "data");
        }
        world.run();
        let end = world.finished(1).expect("it ended");
        assert_eq!(end.result, Ok(()), "{:#?}", world.transcript());
        assert!(is_file || end.data.as_deref() == Some(&bytes));
        if is_file {
            world.assert_delivered(&bytes);
        }
        assert_eq!(world.hosts[1].engine.stats().recovered, u64::from(count));
        assert_eq!(world.hosts[1].engine.stats().digest_failures, 0);
    }
}

#[test]
fn all_rows_are_sent_whatever_parity_is_set() {
    let mut config = config(24_576);
    config.sender.parity = 2;
    // Five rows are needed, and the receiver does not learn how many there are.
    World::crossed_with(
        &config,
        5_000,
        Box::new(|side, _, datagram| symbol(side, datagram).is_some_and(|it| it < 5)),
    );
}

#[test]
fn interrupted_transfers_resume() {
    // Each short block has spare parity.
    for (block_len, lost, spare) in [(24_576, 20, 0.0), (150, 100, 0.12)] {
        for side in [SENDER, RECEIVER] {
            for (share, seed) in [(0.3, 1), (0.6, 2), (0.95, 3)] {
                let mut config = config(block_len);
                config.sender.segment_size = None;
                let mut it = Interrupted::new(config, 2_000_000, lose_one_in(lost, seed));
                it.run_to(share);
                it.restart(side);
                let sent = it.finish();
                it.assert_economy(sent - spare, share, seed);
            }
        }
    }
}

#[test]
fn only_a_receiver_that_runs_on_keeps_parity() {
    let count = 10;
    let first = count + dependent_rows(count);
    for side in [SENDER, RECEIVER] {
        let size = usize::from(count * SEGMENT);
        // At first only parity from the first dependent row on arrives.
        let lose = move |side, _, datagram: &mut Vec<u8>| {
            symbol(side, datagram).is_some_and(|symbol| symbol < first)
        };
        let mut it = Interrupted::new(config(24_576), size, Box::new(lose));
        let arrived = |it: &Interrupted| {
            let log = it.world.log.iter().filter(|sent| !sent.lost);
            log.filter_map(|sent| symbol(sent.from, &sent.bytes)).collect::<Vec<_>>()
        };
        // Its recovery failed, so that it lacks a row.
        while arrived(&it).len() < count.into() {
            assert!(it.world.step(), "it ended");
        }
        it.world.lose(|_, _, _| false);
        it.restart(side);
        it.finish();
        assert_eq!(it.resumed(), 0);
        let rows = arrived(&it).len();
        match side {
            SENDER => assert!((1..6).contains(&rows), "{rows}"),
            _ => assert!(rows >= count.into(), "{rows}"),
        }
    }
}

#[test]
fn the_crate_understands_our_messages() {
    // 25 segments in blocks of 9, 8 and 8, the last one short. All source segments of every second
    // place are ignored.
    let file = content(12_345);
    let mut config = config(9);
    config.sender.waste = Waste::RoundTrip;
    config.sender.fti_in_data = true;
    let mut world = World::with(&config);
    world.send(&file);
    world.run();
    let information = ObjectTransmissionInformation::new(12_345, SEGMENT, 3, 1, 4);
    let mut fields = [0; 16];
    fields[..2].copy_from_slice(&[64, 4]);
    fields[2..14].copy_from_slice(&information.serialize());
    let lens = [9, 8, 8];
    let mut decoders = [0, 1, 2].map(|block| {
        let len = lens[usize::from(block)] * u64::from(SEGMENT);
        SourceBlockDecoder::new(block, &information, len)
    });
    let mut found = [None, None, None];
    for Sent { from, bytes: datagram, .. } in &world.log {
        let header = usize::from(datagram[1]) * 4;
        if symbol(*from, datagram).is_none_or(|symbol| symbol % 2 == 1 && symbol < 8) {
            continue;
        }
        if header == 36 {
            assert_eq!(datagram[20..36], fields);
        }
        let mut packet = datagram[16..20].to_vec();
        packet.extend_from_slice(&datagram[header..]);
        // Symbols of a block are as long as announced, filled up with zeros.
        packet.resize(4 + usize::from(SEGMENT), 0);
        let block = usize::from(packet[0]);
        if found[block].is_none() {
            found[block] = decoders[block].decode([EncodingPacket::deserialize(&packet)]);
        }
    }
    let mut whole: Vec<u8> = found.into_iter().flatten().flatten().collect();
    whole.truncate(file.len());
    assert!(whole == file);
}

#[test]
fn parity_without_a_return_link_is_more_than_enough() {
    let mut config = config(24_576);
    config.sender.confidence = Some(0.999);
    config.sender.loss = Some(0.2);
    let mut delivered = 0;
    for seed in 0..30 {
        let mut world = World::with(&config);
        let mut lose = lose_one_in(5, seed);
        world.lose(move |side, number, bytes| side == 1 || lose(side, number, bytes));
        world.send(&content(50_000));
        world.run_until(Time::from_secs(60));
        delivered += u32::from(world.hosts[1].store.get(&name("copy")).is_some());
    }
    assert!(delivered >= 29, "{delivered}");
}

#[test]
fn blocks_beyond_the_memory_limit_are_refused() {
    let mut config = config(24_576);
    config.limits.assembly = 1 << 20;
    let mut world = World::with(&config);
    world.send(&content(600_000));
    world.run_until(Time::from_secs(5));
    let end = world.finished(1).expect("it ended");
    assert!(matches!(end.result, Err(Failure::Settings(_))), "{end:?}");
    // In shorter blocks the same file is received.
    config.sender.block_bytes = 200_000;
    World::crossed_with(&config, 600_000, lose_one_in(20, 3));
}

#[test]
fn the_number_of_blocks_is_bounded() {
    let mut world = World::with(&config(1));
    world.send(&content(usize::from(SEGMENT) * 256));
    world.run();
    let end = world.finished(0).expect("it ended");
    let Err(Failure::Settings(error)) = &end.result else { panic!("{end:?}") };
    assert!(error.contains("256 blocks") && error.contains("255"), "{error}");
}
