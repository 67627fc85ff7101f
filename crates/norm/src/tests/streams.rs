//! Streams between two nodes.

use std::time::Duration;

use engine::{Input, PathEvent, Rng};
use proptest::prelude::*;
use proptest::test_runner::RngSeed;
use session::timer::Timer;

use super::pipe::{Pipe, brief};
use super::world::{PATH, World, content};
use crate::{
    Config, Content, EndGame, Failure, Indication, Join, Piece, RequestError, Scheme, SendRequest,
    StreamOptions,
};

/// Settings with rare probes.
fn quiet() -> Config {
    let mut config = Config::default();
    config.sender.probe_interval_min = Duration::from_secs(100);
    config.sender.probe_interval_max = Duration::from_secs(100);
    config.receiver.streams = Some(Join::Beginning);
    config
}

/// Blocks of four segments of 100 bytes, with two parity segments each.
fn small() -> Config {
    // Datagrams sent at once may be reordered, which costs a repair.
    let mut config = Config { catch_up: Duration::ZERO, ..quiet() };
    let sender = &mut config.sender;
    (sender.block_len, sender.parity) = (4, 2);
    sender.segment_size = Some(100);
    sender.tail_parity = false;
    config.receiver.streams = Some(Join::FirstBlock);
    config
}

#[test]
fn written_stream_bytes_are_read() {
    let mut pipe = Pipe::with(&quiet(), 100_000);
    let bytes = content(1_000_000);
    pipe.write(&bytes);
    pipe.run();
    pipe.close();
    pipe.run();
    assert!(pipe.bytes() == bytes);
    assert_eq!(pipe.ends(), [Some(Ok(())), Some(Ok(()))]);
    for side in 0..2 {
        let end = pipe.world.finished(side).expect("it ended");
        assert!(end.is_confirmed && end.size == 1_000_000 && &end.info[..] == b"stream", "{end:?}");
        assert_eq!(pipe.world.hosts[side].engine.objects().count(), 0);
    }
}

#[test]
fn less_than_a_segment_waits_for_more_or_a_flush() {
    let mut pipe = Pipe::with(&small(), 10_000);
    pipe.write(&[1; 30]);
    pipe.run();
    assert_eq!(pipe.bytes(), []);
    pipe.flush();
    pipe.run();
    assert_eq!(pipe.bytes(), [1; 30]);
    pipe.write(&[1; 150]);
    pipe.run();
    assert_eq!(pipe.bytes(), [1; 130]);
    pipe.close();
    pipe.run();
    assert_eq!(pipe.bytes(), [1; 180]);
    let lines = [
        "> INFO",
        "> 0/0 0+30",
        "> FLUSH 0/0",
        "< ACK",
        "> 0/1 30+100",
        "> FLUSH 0/1",
        "< ACK",
        "> 0/2 130+50",
        "> 0/3 180+0",
        "> FLUSH 0/3",
        "< ACK",
    ];
    assert_eq!(pipe.transcript(), lines);
    let flushed = |side: usize| {
        let reported = pipe.world.hosts[side].indications.iter();
        reported
            .filter_map(|reported| match reported {
                Indication::Flushed { bytes, acknowledged, .. } => Some((*bytes, *acknowledged)),
                _ => None,
            })
            .collect::<Vec<_>>()
    };
    assert_eq!(flushed(0), [(30, 1), (130, 1)]);
    assert_eq!(flushed(1), []);
}

/// Transcript after some bytes were written and the stream was closed. `lost` messages are given
/// by their text and their number among equal ones.
fn transcript(
    config: &Config,
    bytes: usize,
    lost: &'static [(&'static str, usize)],
) -> Vec<String> {
    let mut pipe = Pipe::with(config, 10_000);
    let mut found = std::collections::BTreeMap::new();
    pipe.world.lose(move |_, _, datagram| {
        let Some(words) = brief(datagram) else { return false };
        let number = found.entry(words.clone()).or_insert(0);
        *number += 1;
        lost.contains(&(words.as_str(), *number - 1))
    });
    let bytes = content(bytes);
    pipe.write(&bytes);
    pipe.close();
    pipe.run();
    assert_eq!(pipe.bytes(), bytes);
    assert_eq!(pipe.ends(), [Some(Ok(())), Some(Ok(()))], "{:#?}", pipe.transcript());
    pipe.transcript()
}

#[test]
fn a_full_block_is_repaired_by_parity() {
    let lines = [
        "> INFO",
        "> 0/0 0+100",
        ">x 0/1 100+100",
        "> 0/2 200+100",
        "> 0/3 300+100",
        "> 1/0 400+100",
        "> 1/1 500+0",
        "> FLUSH 1/1",
        "< NACK 0/4-0/4",
        "> FLUSH 1/1",
        "> 0/4",
        "> FLUSH 1/1",
        "< ACK",
        "< ACK",
    ];
    assert_eq!(transcript(&small(), 500, &[("0/1 100+100", 0)]), lines);
}

#[test]
fn an_incomplete_block_is_repaired_by_its_segments() {
    let lines = [
        "> INFO",
        ">x 0/0 0+100",
        "> 0/1 100+100",
        ">x 0/2 200+0",
        "> FLUSH 0/2",
        "< NACK 0/0-0/0 0/2-0/2",
        "> FLUSH 0/2",
        "> 0/0 0+100",
        "> 0/2 200+0",
        "> FLUSH 0/2",
        "< ACK",
        "< ACK",
    ];
    assert_eq!(transcript(&small(), 200, &[("0/0 0+100", 0), ("0/2 200+0", 0)]), lines);
}

#[test]
fn a_block_that_is_lost_is_sent_again() {
    let mut config = small();
    config.receiver.streams = Some(Join::Beginning);
    let lost: &[_] =
        &[("0/0 0+100", 0), ("0/1 100+100", 0), ("0/2 200+100", 0), ("0/3 300+100", 0)];
    let lines = [
        "> INFO",
        ">x 0/0 0+100",
        ">x 0/1 100+100",
        ">x 0/2 200+100",
        ">x 0/3 300+100",
        "> 1/0 400+50",
        "> 1/1 450+0",
        "> FLUSH 1/1",
        "< NACK 0/0-0/0",
        "> FLUSH 1/1",
        "> 0/0 0+100",
        "> 0/1 100+100",
        "> 0/2 200+100",
        "> 0/3 300+100",
        "> FLUSH 1/1",
        "< ACK",
    ];
    let mut transcript = transcript(&config, 450, lost);
    transcript.truncate(lines.len());
    assert_eq!(transcript, lines);
}

#[test]
fn losses_of_any_message_are_repaired() {
    for seed in 0..30 {
        let mut config = small();
        config.receiver.streams = Some(Join::Beginning);
        config.sender.auto_parity = (seed % 3) as u16;
        config.sender.fec = match seed % 4 {
            0 => Scheme::NoCode,
            1 => Scheme::SmallBlockSystematic,
            2 => Scheme::ReedSolomonM,
            _ => Scheme::ReedSolomon8,
        };
        let mut pipe = Pipe::with(&config, 4_000);
        let mut rng = Rng::new(seed, "losses");
        pipe.world.lose(move |_, _, _| rng.chance(0.2));
        let bytes = content(60_000);
        let mut rng = Rng::new(seed, "writes");
        for part in bytes.chunks(1 + rng.below(3_000) as usize) {
            pipe.write(part);
            if rng.chance(0.3) {
                pipe.flush();
            }
            pipe.run_for(Duration::from_millis(rng.below(300)));
        }
        pipe.run();
        pipe.close();
        pipe.run();
        assert!(pipe.bytes() == bytes, "{seed}: {:#?}", pipe.transcript());
        assert_eq!(pipe.ends(), [Some(Ok(())), Some(Ok(()))], "{seed}");
    }
}

#[test]
fn messages_are_found() {
    let mut pipe = Pipe::with(&small(), 10_000);
    for len in [30, 60, 150] {
        pipe.begin_message();
        pipe.write(&vec![len as u8; len]);
    }
    pipe.close();
    pipe.run();
    let starts = pipe.read.iter().flat_map(|piece| match piece {
        Piece::Bytes { offset, messages, .. } => {
            messages.iter().map(|at| offset + *at as u64).collect()
        }
        Piece::Gap { .. } => Vec::new(),
    });
    // The second begins in the segment of the first.
    assert_eq!(starts.collect::<Vec<_>>(), [0]);
    let mut pipe = Pipe::with(&small(), 10_000);
    for len in [30, 60, 150] {
        pipe.begin_message();
        pipe.write(&vec![len as u8; len]);
        pipe.flush();
    }
    pipe.close();
    pipe.run();
    let starts = pipe.read.iter().flat_map(|piece| match piece {
        Piece::Bytes { offset, messages, .. } => {
            messages.iter().map(|at| offset + *at as u64).collect()
        }
        Piece::Gap { .. } => Vec::new(),
    });
    assert_eq!(starts.collect::<Vec<_>>(), [0, 30, 90]);
}

#[test]
fn a_writer_that_is_too_fast_waits() {
    for end in [EndGame::Acknowledged, EndGame::Flush] {
        let mut config = small();
        config.sender.end = end;
        // Three blocks.
        let mut pipe = Pipe::with(&config, 1_250);
        let bytes = content(20_000);
        pipe.write(&bytes);
        assert!(pipe.waiting.len() >= 20_000 - 1_300, "{}", pipe.waiting.len());
        pipe.run();
        assert_eq!(pipe.waiting.len(), 0);
        pipe.close();
        pipe.run();
        assert!(pipe.bytes() == bytes);
        assert_eq!(pipe.ends(), [Some(Ok(())), Some(Ok(()))]);
        // The end waits for room like other segments.
        let mut pipe = Pipe::with(&config, 1_250);
        pipe.write(&bytes[..1_200]);
        pipe.close();
        pipe.run();
        assert!(pipe.bytes() == bytes[..1_200]);
        assert_eq!(pipe.ends(), [Some(Ok(())), Some(Ok(()))]);
    }
}

#[test]
fn push_keeps_the_newest_bytes() {
    let options = StreamOptions { buffer: 1_200, push: true };
    let mut pipe = Pipe::of([small(), small()], options);
    pipe.write(&content(400));
    pipe.run();
    let bytes = content(10_000);
    pipe.write(&bytes[400..]);
    assert!(pipe.waiting.is_empty());
    pipe.run();
    pipe.close();
    pipe.run();
    // Two blocks of three were still unsent, and the end needs a third.
    let runs = pipe.runs();
    let [(0, first), (offset, rest)] = &runs[..] else { panic!("{runs:?}") };
    assert!(first[..] == bytes[..400] && rest[..] == bytes[*offset as usize..]);
    assert!((8_700..=9_200).contains(offset), "{offset}");
    let end = pipe.world.finished(1).expect("it ended");
    assert!(end.result.is_ok() && !end.is_confirmed, "a gap is reported");
}

#[test]
fn overwritten_data_is_refused_and_the_gap_reported() {
    let mut config = small();
    config.sender.parity = 0;
    config.sender.fec = Scheme::NoCode;
    let options = StreamOptions { buffer: 1_200, push: true };
    let mut pipe = Pipe::of([config.clone(), config], options);
    // The reader gets the second block when the first makes room for the fourth.
    pipe.world
        .lose(|_, _, datagram| brief(datagram).is_some_and(|words| words.starts_with("0/1 ")));
    let bytes = content(800);
    pipe.write(&bytes[..400]);
    pipe.run_for(Duration::from_millis(20));
    pipe.write(&bytes[400..]);
    pipe.run_for(Duration::from_millis(20));
    pipe.write(&[7; 400]);
    pipe.write(&[8; 400]);
    pipe.run();
    pipe.close();
    pipe.run();
    assert!(pipe.transcript().contains(&"> SQUELCH 1".to_owned()), "{:#?}", pipe.transcript());
    let runs = pipe.runs();
    let [(0, first), (200, rest)] = &runs[..] else { panic!("{runs:?}") };
    assert!(first[..] == bytes[..100] && rest[..600] == bytes[200..] && rest.len() == 1_400);
}

#[test]
fn a_late_reader_starts_at_a_block() {
    for (join, first) in [(Join::FirstBlock, 800), (Join::Beginning, 0)] {
        let mut config = small();
        config.receiver.streams = Some(join);
        // No receiver exists to acknowledge.
        config.sender.end = EndGame::Flush;
        let mut pipe = Pipe::with(&config, 4_000);
        let bytes = content(2_000);
        pipe.world.lose(|side, _, _| side == 0);
        pipe.write(&bytes[..1_000]);
        pipe.run_for(Duration::from_millis(5));
        pipe.world.lose(|_, _, _| false);
        pipe.write(&bytes[1_000..]);
        pipe.run();
        pipe.close();
        pipe.run();
        assert!(pipe.runs() == [(first, bytes[first as usize..].to_vec())], "{:?}", pipe.runs());
        assert_eq!(pipe.world.finished(1).expect("it ended").size, 2_000 - first);
    }
}

#[test]
fn unread_data_holds_the_sender_back() {
    let mut config = small();
    config.limits.buffers.write_buffer = 2_000;
    config.limits.stream = 1_700;
    let options = StreamOptions { buffer: 1_700, push: false };
    let mut pipe = Pipe::of([config.clone(), config], options);
    pipe.reads = false;
    let before = pipe.world.hosts[1].engine.memory();
    let bytes = content(30_000);
    pipe.write(&bytes);
    pipe.run_for(Duration::from_secs(5));
    assert!(!pipe.waiting.is_empty());
    let held = pipe.world.hosts[1].engine.memory() - before;
    assert!(held < 15_000, "{held} bytes");
    pipe.reads = true;
    let readable = pipe.world.hosts[1].indications.iter().find_map(|reported| match reported {
        Indication::Readable { id } => Some(*id),
        _ => None,
    });
    pipe.fetch(readable.expect("it is reported"));
    pipe.run();
    pipe.close();
    pipe.run();
    assert!(pipe.bytes() == bytes);
}

#[test]
fn numbers_of_blocks_wrap() {
    // Sixteen bits, with one segment of one byte per block.
    let mut config = small();
    config.sender.fec = Scheme::NoCode;
    (config.sender.block_len, config.sender.parity) = (1, 0);
    config.sender.segment_size = Some(1);
    let mut pipe = Pipe::with(&config, 2_000);
    pipe.world.logging = false;
    pipe.world.lose(super::world::lose_one_in(50, 3));
    let bytes = content(70_000);
    pipe.write(&bytes);
    pipe.run();
    pipe.close();
    pipe.run();
    assert!(pipe.bytes() == bytes);
    assert_eq!(pipe.ends(), [Some(Ok(())), Some(Ok(()))]);
}

#[test]
fn streams_are_exclusive_and_only_accepted_if_enabled() {
    let mut config = small();
    let options = StreamOptions { buffer: 1 << 30, push: false };
    let mut world = World::with(&config);
    let request = |content| SendRequest { peer: PATH, content, info: "x".into() };
    let send = |world: &mut World, content| world.hosts[0].engine.send(world.now, request(content));
    let refused = send(&mut world, Content::Stream(options));
    assert!(matches!(refused, Err(RequestError::Settings(_))), "{refused:?}");
    let options = StreamOptions { buffer: 4_000, push: false };
    let id = send(&mut world, Content::Stream(options)).expect("it is sound");
    let refused = send(&mut world, Content::Data(vec![1].into()));
    assert_eq!(refused, Err(RequestError::Stream));
    let engine = &mut world.hosts[0].engine;
    engine.close(world.now, id).expect("it is open");
    let refused = engine.write(world.now, id, &[1]);
    assert_eq!(refused, Err(RequestError::NotWritable(id)));
    config.receiver.streams = None;
    let mut pipe = Pipe::with(&config, 4_000);
    pipe.write(&[1; 100]);
    pipe.run_for(Duration::from_secs(1));
    let end = pipe.ends()[1].clone();
    assert_eq!(end, Some(Err(Failure::Settings("streams are not received".to_owned()))));
}

#[test]
fn idle_streams_continue() {
    let mut config = small();
    config.sender.probe_interval_max = Duration::from_secs(1_000);
    let mut pipe = Pipe::with(&config, 4_000);
    let bytes = content(3_000);
    pipe.write(&bytes[..1_000]);
    pipe.flush();
    pipe.run_for(Duration::from_secs(86_400));
    pipe.write(&bytes[1_000..]);
    pipe.run();
    pipe.close();
    pipe.run();
    assert!(pipe.bytes() == bytes);
    // Its sender dies.
    let mut pipe = Pipe::with(&config, 4_000);
    pipe.write(&bytes[..1_000]);
    pipe.run_for(Duration::from_secs(10));
    pipe.world.lose(|side, _, _| side == 0);
    pipe.run_for(Duration::from_secs(7_300));
    assert_eq!(pipe.ends()[1], Some(Err(Failure::Silence)));
}

#[test]
fn complete_receivers_may_leave_before_acknowledging_the_end() {
    let mut pipe = Pipe::with(&small(), 4_000);
    pipe.write(&[1; 1_000]);
    pipe.flush();
    pipe.run_for(Duration::from_secs(10));
    assert_eq!(pipe.bytes(), [1; 1_000]);
    pipe.world.lose(|side, _, _| side == 1);
    pipe.close();
    // 20 flushes, two round trips of 50 ms apart.
    pipe.run_for(Duration::from_secs(4));
    assert_eq!(pipe.ends(), [Some(Ok(())), Some(Ok(()))]);
    // A receiver that may lack something is waited for.
    let mut pipe = Pipe::with(&small(), 4_000);
    pipe.write(&[1; 1_000]);
    pipe.run_for(Duration::from_secs(10));
    pipe.world.lose(|side, _, _| side == 1);
    pipe.write(&[1; 500]);
    pipe.close();
    pipe.run_for(Duration::from_secs(3_000));
    assert_eq!(pipe.ends()[0], None);
}

#[test]
fn unresponsive_receivers_end_the_stream() {
    let mut config = small();
    config.sender.patience = Timer::Fixed(Duration::from_secs(20));
    let mut pipe = Pipe::with(&config, 4_000);
    pipe.write(&[1; 1_000]);
    pipe.run_for(Duration::from_secs(10));
    pipe.world.lose(|side, _, _| side == 1);
    pipe.write(&[1; 1_000]);
    pipe.run_for(Duration::from_secs(200));
    assert_eq!(pipe.ends()[0], Some(Err(Failure::Unacknowledged { missing: 1, known: 1 })));
    let mut pipe = Pipe::with(&config, 4_000);
    pipe.world.lose(|side, _, _| side == 1);
    pipe.write(&[1; 1_000]);
    pipe.run_for(Duration::from_secs(200));
    assert_eq!(pipe.ends()[0], Some(Err(Failure::NoReceiver)));
}

/// Operation on a stream.
#[derive(Clone, Debug)]
enum Op {
    Write(u16),
    Message,
    Flush,
    /// Loses the next messages of a side whose bit is set.
    Lose(usize, u32),
    /// Delivers a message of a side again or late: this many before its last.
    Again(usize, u8),
    Outage(u16),
    /// Stops or resumes reading.
    Stall,
    Wait(u16),
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        6 => (0..3_000_u16).prop_map(Op::Write),
        1 => Just(Op::Message),
        2 => Just(Op::Flush),
        4 => (0..2_usize, any::<u32>()).prop_map(|(side, bits)| Op::Lose(side, bits)),
        3 => (0..2_usize, any::<u8>()).prop_map(|(side, back)| Op::Again(side, back)),
        1 => (1..2_000_u16).prop_map(Op::Outage),
        1 => Just(Op::Stall),
        4 => (1..300_u16).prop_map(Op::Wait),
    ]
}

impl Pipe {
    fn apply(&mut self, op: &Op, bytes: &mut Vec<u8>) {
        match *op {
            Op::Write(len) => {
                let from = bytes.len();
                bytes.extend_from_slice(&content(from + usize::from(len))[from..]);
                self.write(&bytes[from..]);
            }
            Op::Message => self.begin_message(),
            Op::Flush => self.flush(),
            Op::Lose(side, bits) => {
                let mut left = bits;
                self.world.lose(move |from, _, _| {
                    let is_lost = from == side && left & 1 == 1;
                    left >>= u32::from(from == side);
                    is_lost
                });
            }
            Op::Again(side, back) => {
                let mut sent = self.world.log.iter().rev().filter(|sent| sent.from == side);
                if let Some(sent) = sent.nth(usize::from(back)).cloned() {
                    self.world.hear(1 - side, &sent.bytes);
                }
            }
            Op::Outage(millis) => {
                for side in 0..2 {
                    self.world.input(side, Input::Path(PATH, PathEvent::Down));
                }
                self.run_for(Duration::from_millis(u64::from(millis)));
                (0..2).for_each(|side| self.world.up(side));
            }
            Op::Stall => self.reads = !self.reads,
            Op::Wait(millis) => self.run_for(Duration::from_millis(u64::from(millis))),
        }
        self.serve();
    }

    /// Reads everything unread.
    fn catch_up(&mut self) {
        self.reads = true;
        let ids = self.world.hosts[1].engine.objects().map(|report| report.id);
        for id in ids.collect::<Vec<_>>() {
            self.fetch(id);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 150,
        failure_persistence: None,
        rng_seed: RngSeed::Fixed(21),
        ..ProptestConfig::default()
    })]

    #[test]
    fn random_operations_keep_streams_intact(
        ops in prop::collection::vec(op(), 1..40),
        scheme in prop_oneof![
            Just(Scheme::ReedSolomon8),
            Just(Scheme::ReedSolomonM),
            Just(Scheme::SmallBlockSystematic),
            Just(Scheme::NoCode),
        ],
        auto_parity in 0..3_u16,
        group in any::<bool>(),
        buffer in 800..6_000_usize,
    ) {
        let mut config = small();
        config.receiver.streams = Some(Join::Beginning);
        (config.sender.fec, config.sender.auto_parity) = (scheme, auto_parity);
        config.limits.buffers.write_buffer = 4_000;
        if group {
            config.groups = vec![PATH];
        }
        let mut pipe = Pipe::with(&config, buffer);
        let mut bytes = Vec::new();
        for op in &ops {
            pipe.apply(op, &mut bytes);
        }
        pipe.catch_up();
        pipe.world.lose(|_, _, _| false);
        pipe.run();
        prop_assert!(pipe.waiting.is_empty());
        pipe.close();
        pipe.run();
        prop_assert!(pipe.bytes() == bytes, "{:#?}", pipe.transcript());
        prop_assert_eq!(pipe.ends(), [Some(Ok(())), Some(Ok(()))]);
        for side in &pipe.world.hosts {
            prop_assert!(side.engine.memory() < 60_000, "{}", side.engine.memory());
        }
    }
}
