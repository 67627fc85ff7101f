//! Streams between two nodes.

use std::time::Duration;

use engine::Rng;
use wire::norm::{Body, Command, Message, STREAM_HEADER_LEN, StreamHeader};

use super::world::{World, content};
use crate::norm::{
    Config, Content, Failure, Indication, Join, ObjectId, Piece, Scheme, StreamOptions,
};

/// Nothing happens for so long but probes.
const QUIET: Duration = Duration::from_secs(60);

/// Settings with which probes are rare.
fn quiet() -> Config {
    let mut config = Config::default();
    config.sender.probe_interval_min = Duration::from_secs(100);
    config.sender.probe_interval_max = Duration::from_secs(100);
    config
}

/// Blocks of four segments of 100 octets, with two parity segments each.
fn small() -> Config {
    // What leaves in one go may overtake, which costs a repair.
    let mut config = Config { catch_up: Duration::ZERO, ..quiet() };
    let sender = &mut config.sender;
    (sender.block_len, sender.parity) = (4, 2);
    sender.segment_size = Some(100);
    sender.tail_parity = false;
    config.receiver.join = Join::Heard;
    config
}

/// A writer and a reader.
pub(super) struct Pipe {
    pub(super) world: World,
    pub(super) id: ObjectId,
    /// What was handed in and not taken yet.
    pub(super) waiting: Vec<u8>,
    pub(super) read: Vec<Piece>,
    pub(super) reads: bool,
    seen: [usize; 2],
}

impl Pipe {
    pub(super) fn of(configs: [Config; 2], options: StreamOptions) -> Self {
        Self::on(World::new(configs), options)
    }

    pub(super) fn on(mut world: World, options: StreamOptions) -> Self {
        let id = world.request(Content::Stream(options), "stream");
        Self { world, id, waiting: Vec::new(), read: Vec::new(), reads: true, seen: [0, 0] }
    }

    pub(super) fn with(config: &Config, buffer: usize) -> Self {
        let options = StreamOptions { buffer, push: false };
        Self::of([config.clone(), config.clone()], options)
    }

    pub(super) fn write(&mut self, octets: &[u8]) {
        self.waiting.extend_from_slice(octets);
        self.push();
    }

    fn push(&mut self) {
        let (now, id) = (self.world.now, self.id);
        let taken = self.world.sides[0].engine.write(now, id, &self.waiting);
        self.waiting.drain(..taken.expect("it is open"));
        self.world.drain(0);
    }

    pub(super) fn flush(&mut self) {
        let (now, id) = (self.world.now, self.id);
        self.world.sides[0].engine.flush(now, id).expect("it is open");
        self.world.drain(0);
    }

    pub(super) fn begin_message(&mut self) {
        let (now, id) = (self.world.now, self.id);
        self.world.sides[0].engine.begin_message(now, id).expect("it is open");
    }

    pub(super) fn close(&mut self) {
        let (now, id) = (self.world.now, self.id);
        self.world.sides[0].engine.close(now, id).expect("it is open");
        self.world.drain(0);
    }

    /// What users of both sides do when they are told something.
    pub(super) fn serve(&mut self) {
        for side in 0..2 {
            while let Some(told) = self.world.sides[side].indications.get(self.seen[side]).cloned()
            {
                self.seen[side] += 1;
                match told {
                    Indication::Writable { .. } if side == 0 && !self.waiting.is_empty() => {
                        self.push();
                    }
                    Indication::Readable { id } if self.reads => self.fetch(id),
                    _ => {}
                }
            }
        }
    }

    pub(super) fn fetch(&mut self, id: ObjectId) {
        let now = self.world.now;
        while let Some(piece) = self.world.sides[1].engine.read(now, id) {
            self.read.push(piece);
        }
        self.world.drain(1);
    }

    /// Runs until nothing but a probe of the round trip is left to happen.
    pub(super) fn run(&mut self) {
        for _ in 0..2_000_000 {
            self.serve();
            if !self.world.next_is_by(self.world.now + QUIET) || !self.world.step() {
                return;
            }
        }
        panic!("no end at {}: {:?}", self.world.now, self.world.sides[0].engine.objects().next());
    }

    pub(super) fn run_for(&mut self, time: Duration) {
        let until = self.world.now + time;
        while self.world.next_is_by(until) {
            self.world.step();
            self.serve();
        }
        self.world.run_until(until);
        self.serve();
    }

    /// All octets that were read, which must follow each other.
    pub(super) fn octets(&self) -> Vec<u8> {
        let mut all = Vec::new();
        for piece in &self.read {
            match piece {
                Piece::Octets { offset, octets, .. } => {
                    assert_eq!(*offset, all.len() as u64);
                    all.extend_from_slice(octets);
                }
                Piece::Gap { .. } => panic!("{piece:?}"),
            }
        }
        all
    }

    /// What was sent, without times, probes of the round trip and answers to them.
    fn told(&self) -> Vec<String> {
        let log = self.world.log.iter();
        let lines = log.filter_map(|(_, side, datagram, lost)| {
            let words = brief(datagram)?;
            let from = if *side == 0 { '>' } else { '<' };
            Some(format!("{from}{} {words}", if *lost { "x" } else { "" }))
        });
        lines.collect()
    }

    /// How the stream ended at both sides.
    fn ends(&self) -> [Option<Result<(), Failure>>; 2] {
        [0, 1].map(|side| self.world.finished(side).map(|end| end.result.clone()))
    }
}

fn brief(datagram: &[u8]) -> Option<String> {
    let message = Message::decode(datagram).expect("nodes send messages");
    Some(match message.body {
        Body::Info(_) => "INFO".to_owned(),
        Body::Data(data) => {
            let (block, symbol) = (data.id.block, data.id.symbol);
            if symbol >= 4 {
                return Some(format!("{block}/{symbol}"));
            }
            let (header, octets) = StreamHeader::decode(data.payload).expect("a segment");
            assert_eq!(data.payload.len(), STREAM_HEADER_LEN + octets.len());
            format!("{block}/{symbol} {}+{}", header.offset, header.len)
        }
        Body::Command(Command::Flush { id, .. }) => format!("FLUSH {}/{}", id.block, id.symbol),
        Body::Command(Command::Squelch { id, .. }) => format!("SQUELCH {}", id.block),
        Body::Command(_) => return None,
        Body::Nack(nack) => {
            let ranges = nack.requests.iter().flat_map(|request| {
                let ranges = request.ranges().collect::<Vec<_>>();
                ranges.into_iter().map(|(first, last)| (first.id, last.id))
            });
            let words: Vec<_> = ranges
                .map(|(a, b)| format!("{}/{}-{}/{}", a.block, a.symbol, b.block, b.symbol))
                .collect();
            format!("NACK {}", words.join(" "))
        }
        Body::Ack(ack) if ack.payload.is_empty() => return None,
        Body::Ack(_) => "ACK".to_owned(),
        Body::Report(_) => "REPORT".to_owned(),
    })
}

#[test]
fn what_is_written_is_read() {
    let mut pipe = Pipe::with(&quiet(), 100_000);
    let octets = content(1_000_000);
    pipe.write(&octets);
    pipe.run();
    pipe.close();
    pipe.run();
    assert!(pipe.octets() == octets);
    assert_eq!(pipe.ends(), [Some(Ok(())), Some(Ok(()))]);
    for side in 0..2 {
        let end = pipe.world.finished(side).expect("it ended");
        assert!(end.is_confirmed && end.size == 1_000_000 && &end.info[..] == b"stream", "{end:?}");
        assert_eq!(pipe.world.sides[side].engine.objects().count(), 0);
    }
}

#[test]
fn less_than_a_segment_waits_for_more_or_a_flush() {
    let mut pipe = Pipe::with(&small(), 10_000);
    pipe.write(&[1; 30]);
    pipe.run();
    assert_eq!(pipe.octets(), []);
    pipe.flush();
    pipe.run();
    assert_eq!(pipe.octets(), [1; 30]);
    pipe.write(&[1; 150]);
    pipe.run();
    assert_eq!(pipe.octets(), [1; 130]);
    pipe.close();
    pipe.run();
    assert_eq!(pipe.octets(), [1; 180]);
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
    assert_eq!(pipe.told(), lines);
    let flushed = |side: usize| {
        let told = pipe.world.sides[side].indications.iter();
        told.filter_map(|told| match told {
            Indication::Flushed { octets, acknowledged, .. } => Some((*octets, *acknowledged)),
            _ => None,
        })
        .collect::<Vec<_>>()
    };
    assert_eq!(flushed(0), [(30, 1), (130, 1)]);
    assert_eq!(flushed(1), []);
}

/// What is said after some octets were written and the stream was closed, when messages are lost
/// that have these words, each with its number among those of the same words.
fn told(config: &Config, octets: usize, lost: &'static [(&'static str, usize)]) -> Vec<String> {
    let mut pipe = Pipe::with(config, 10_000);
    let mut seen = std::collections::BTreeMap::new();
    pipe.world.lose = Box::new(move |_, _, datagram| {
        let Some(words) = brief(datagram) else { return false };
        let number = seen.entry(words.clone()).or_insert(0);
        *number += 1;
        lost.contains(&(words.as_str(), *number - 1))
    });
    let octets = content(octets);
    pipe.write(&octets);
    pipe.close();
    pipe.run();
    assert_eq!(pipe.octets(), octets);
    assert_eq!(pipe.ends(), [Some(Ok(())), Some(Ok(()))], "{:#?}", pipe.told());
    pipe.told()
}

#[test]
fn a_block_that_is_full_is_mended_by_parity() {
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
    assert_eq!(told(&small(), 500, &[("0/1 100+100", 0)]), lines);
}

#[test]
fn a_block_that_is_not_full_is_mended_by_its_segments() {
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
    assert_eq!(told(&small(), 200, &[("0/0 0+100", 0), ("0/2 200+0", 0)]), lines);
}

#[test]
fn a_block_that_is_lost_is_sent_again() {
    let mut config = small();
    config.receiver.join = Join::Beginning;
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
    let mut told = told(&config, 450, lost);
    told.truncate(lines.len());
    assert_eq!(told, lines);
}

#[test]
fn losses_of_everything_are_made_up_for() {
    for seed in 0..30 {
        let mut config = small();
        config.receiver.join = Join::Beginning;
        config.sender.auto_parity = (seed % 3) as u16;
        config.sender.fec = match seed % 4 {
            0 => Scheme::NoCode,
            1 => Scheme::SmallBlockSystematic,
            2 => Scheme::ReedSolomonM,
            _ => Scheme::ReedSolomon8,
        };
        let mut pipe = Pipe::with(&config, 4_000);
        let mut rng = Rng::new(seed, "losses");
        pipe.world.lose = Box::new(move |_, _, _| rng.chance(0.2));
        let octets = content(60_000);
        let mut rng = Rng::new(seed, "writes");
        for part in octets.chunks(1 + rng.below(3_000) as usize) {
            pipe.write(part);
            if rng.chance(0.3) {
                pipe.flush();
            }
            pipe.run_for(Duration::from_millis(rng.below(300)));
        }
        pipe.run();
        pipe.close();
        pipe.run();
        assert!(pipe.octets() == octets, "{seed}: {:#?}", pipe.told());
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
        Piece::Octets { offset, messages, .. } => {
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
        Piece::Octets { offset, messages, .. } => {
            messages.iter().map(|at| offset + *at as u64).collect()
        }
        Piece::Gap { .. } => Vec::new(),
    });
    assert_eq!(starts.collect::<Vec<_>>(), [0, 30, 90]);
}
