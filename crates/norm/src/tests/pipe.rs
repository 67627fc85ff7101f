//! Stream between two nodes.

use std::time::Duration;

use crate::message::{Body, Command, Message, STREAM_HEADER_LEN, StreamHeader};

use super::world::World;
use crate::{Config, Content, Failure, Indication, ObjectId, Piece, StreamOptions};

/// Time in which nothing happens except probes.
const QUIET: Duration = Duration::from_secs(60);

/// Writer and reader of a stream.
pub(super) struct Pipe {
    pub(super) world: World,
    pub(super) id: ObjectId,
    /// Written bytes that the engine has not accepted yet.
    pub(super) waiting: Vec<u8>,
    pub(super) read: Vec<Piece>,
    pub(super) reads: bool,
    found: [usize; 2],
}

impl Pipe {
    pub(super) fn of(configs: [Config; 2], options: StreamOptions) -> Self {
        Self::on(World::new(configs), options)
    }

    pub(super) fn on(mut world: World, options: StreamOptions) -> Self {
        let id = world.request(Content::Stream(options), "stream");
        Self { world, id, waiting: Vec::new(), read: Vec::new(), reads: true, found: [0, 0] }
    }

    pub(super) fn with(config: &Config, buffer: usize) -> Self {
        let options = StreamOptions { buffer, push: false };
        Self::of([config.clone(), config.clone()], options)
    }

    pub(super) fn write(&mut self, bytes: &[u8]) {
        self.waiting.extend_from_slice(bytes);
        self.push();
    }

    pub(super) fn push(&mut self) {
        let (now, id) = (self.world.now, self.id);
        let sender = &mut self.world.hosts[0].engine;
        let taken = sender.charge(|node| node.write(now, id, &self.waiting));
        self.waiting.drain(..taken.expect("it is open"));
        self.world.drain(0);
    }

    pub(super) fn flush(&mut self) {
        let (now, id) = (self.world.now, self.id);
        self.world.hosts[0].engine.flush(now, id).expect("it is open");
        self.world.drain(0);
    }

    pub(super) fn begin_message(&mut self) {
        let (now, id) = (self.world.now, self.id);
        self.world.hosts[0].engine.begin_message(now, id).expect("it is open");
    }

    pub(super) fn close(&mut self) {
        let (now, id) = (self.world.now, self.id);
        self.world.hosts[0].engine.close(now, id).expect("it is open");
        self.world.drain(0);
    }

    /// Handles indications as the users of both sides would.
    pub(super) fn serve(&mut self) {
        for side in 0..2 {
            while let Some(next) = self.world.hosts[side].indications.get(self.found[side]).cloned()
            {
                self.found[side] += 1;
                match next {
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
        while let Some(piece) = self.world.hosts[1].engine.read(now, id) {
            self.read.push(piece);
        }
        self.world.drain(1);
    }

    /// Runs until nothing is left except probes of the round trip.
    pub(super) fn run(&mut self) {
        for _ in 0..2_000_000 {
            self.serve();
            if !self.world.next_is_by(self.world.now + QUIET) || !self.world.step() {
                return;
            }
        }
        panic!("no end at {}: {:?}", self.world.now, self.world.hosts[0].engine.objects().next());
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

    /// All bytes read, which must be contiguous.
    pub(super) fn bytes(&self) -> Vec<u8> {
        let mut all = Vec::new();
        for piece in &self.read {
            match piece {
                Piece::Bytes { offset, bytes, .. } => {
                    assert_eq!(*offset, all.len() as u64);
                    all.extend_from_slice(bytes);
                }
                Piece::Gap { .. } => panic!("{piece:?}"),
            }
        }
        all
    }

    /// Runs of bytes read, between gaps: each with its offset.
    pub(super) fn runs(&self) -> Vec<(u64, Vec<u8>)> {
        let mut runs: Vec<(u64, Vec<u8>)> = Vec::new();
        let mut gap = None;
        for piece in &self.read {
            match (piece, runs.last_mut()) {
                (Piece::Bytes { offset, bytes, .. }, Some((from, run))) if gap.is_none() => {
                    assert_eq!(*offset, *from + run.len() as u64);
                    run.extend_from_slice(bytes);
                }
                (Piece::Bytes { offset, bytes, .. }, _) => {
                    assert!(gap.take().is_none_or(|gap| gap == *offset));
                    runs.push((*offset, bytes.to_vec()));
                }
                (Piece::Gap { from, to }, Some((start, run))) => {
                    assert_eq!(*from, *start + run.len() as u64);
                    gap = Some(*to);
                }
                (Piece::Gap { .. }, None) => panic!("a gap before the first byte"),
            }
        }
        runs
    }

    /// Sent datagrams without times, and without probes of the round trip and their replies.
    pub(super) fn transcript(&self) -> Vec<String> {
        let log = self.world.log.iter();
        log.filter_map(|sent| Some(sent.line(&brief(&sent.bytes)?))).collect()
    }

    /// Results of the stream at both sides.
    pub(super) fn ends(&self) -> [Option<Result<(), Failure>>; 2] {
        [0, 1].map(|side| self.world.finished(side).map(|end| end.result.clone()))
    }
}

/// Datagram as text, unless it is a probe or a reply to one.
pub(super) fn brief(datagram: &[u8]) -> Option<String> {
    let message = Message::decode(datagram).expect("nodes send messages");
    Some(match message.body {
        Body::Info(_) => "INFO".to_owned(),
        Body::Data(data) => {
            let (block, symbol) = (data.id.block, data.id.symbol);
            if symbol >= 4 {
                return Some(format!("{block}/{symbol}"));
            }
            let (header, bytes) = StreamHeader::decode(data.payload).expect("a segment");
            assert_eq!(data.payload.len(), STREAM_HEADER_LEN + bytes.len());
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
