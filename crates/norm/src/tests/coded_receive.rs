//! Reception of coded objects.

use std::time::Duration;

use crate::fec::{Long, LongWork, ReadColumns};
use engine::{PathInfo, Rng};

use super::world::{World, content, lose_one_in, name};
use crate::digest::{BlockDigest, EXT_DIGEST, digest_of};
use crate::message::{
    Body, Command, Data, Extension, Extensions, Flags, Fti, Info, Message, NodeId, NodeList,
    PayloadId, RequestFlags, Scheme, Sender,
};
use crate::report::Report;
use crate::{Config, Content, Failure, Finished, Indication, Node, profile};

/// Receiving side, to which messages are forged.
const HERE: usize = 1;

const MILLI: Duration = Duration::from_millis(1);

/// Bytes of a segment.
const SEGMENT: u16 = 100;

/// Instance with 64 parity positions.
const INSTANCE: u16 = 0x5306;

fn coded() -> Config {
    profile("coded").expect("it exists")
}

#[test]
fn coded_files_cross_many_losses() {
    for seed in 0..10 {
        let world = World::crossed_with(&coded(), 300_000 + seed as usize, lose_one_in(5, seed));
        assert!(world.hosts[1].engine.stats().recovered > 0, "{seed}");
    }
}

#[test]
fn coded_files_have_blocks_of_limited_size() {
    let mut config = coded();
    config.sender.block_bytes = 50_000;
    for seed in 0..5 {
        World::crossed_with(&config, 300_000 + seed as usize, lose_one_in(8, seed));
    }
}

#[test]
fn short_and_empty_coded_objects_cross() {
    for len in [0, 1, 2, 991, 992, 993, 10_000] {
        for lost in [0, 1, 2, 3] {
            World::crossed_with(
                &coded(),
                len,
                Box::new(move |side, number, _| side == 0 && number == lost),
            );
        }
    }
    let mut world = World::with(&coded());
    let bytes = content(150_000);
    world.lose(lose_one_in(4, 3));
    world.request(Content::Data(bytes.clone().into()), "");
    world.run();
    let finished = world.finished(1).expect("it ended");
    assert!(finished.data.as_deref() == Some(&bytes[..]), "{:#?}", world.transcript());
}

/// A node, and a sender that consists of a test's messages.
struct Forged {
    world: World,
    sequence: u16,
    scheme: Scheme,
    fti: Fti,
    flags: Flags,
}

impl Forged {
    fn new(config: &Config, size: u64, block_len: u16) -> Self {
        let mut seed = 8470;
        let nodes = [config, config].map(|config| {
            seed += 1;
            Node::new(Config { node: seed, ..config.clone() }, Rng::new(1, "norm"))
        });
        let info = PathInfo { owlt: Some(MILLI), ..PathInfo::datagram(1024) };
        let fti = Fti {
            object_size: size,
            segment_size: SEGMENT,
            block_len,
            instance: INSTANCE,
            ..Fti::default()
        };
        let world = World::between(nodes, info);
        Self { world, sequence: 0, scheme: Scheme::Compact, fti, flags: Flags::INFO }
    }

    /// Receiver of a file from a known sender.
    fn of_file(size: u64, block_len: u16) -> Self {
        let mut forged = Self::new(&Config::default(), size, block_len);
        forged.flags = Flags::INFO | Flags::FILE;
        forged.data(0, (0, 0), &[]);
        forged
    }

    /// Content of the received file.
    fn file(&self) -> Option<&[u8]> {
        self.world.hosts[HERE].store.get(&name("name"))
    }

    fn recovered(&self) -> u64 {
        self.world.hosts[HERE].engine.stats().recovered
    }

    fn sender() -> Sender {
        Sender { instance: 7, grtt: 0x94, backoff: 0, group_size: 2 }
    }

    fn deliver(&mut self, body: Body<'_>) {
        let message = Message { sequence: self.sequence, source: NodeId(99), body };
        self.sequence = self.sequence.wrapping_add(1);
        let mut datagram = vec![0; message.encoded_len()];
        message.encode(&mut datagram).expect("it can be encoded");
        self.world.hear(HERE, &datagram);
    }

    /// NORM_INFO with the digest of a block, if given.
    fn info(&mut self, object: u16, digest: Option<(u16, &[u8])>) {
        let digest =
            digest.map(|(block, bytes)| BlockDigest { block, digest: digest_of(bytes) }.encode());
        let others: Vec<_> =
            digest.iter().map(|value| Extension { kind: EXT_DIGEST, value }).collect();
        let fti = Some(self.fti);
        self.deliver(Body::Info(Info {
            sender: Self::sender(),
            flags: self.flags,
            fec: self.scheme,
            object,
            fti,
            others: Extensions::new(&others),
            payload: b"name",
        }));
    }

    fn data(&mut self, object: u16, (block, symbol): (u32, u16), payload: &[u8]) {
        self.deliver(Body::Data(Data {
            sender: Self::sender(),
            flags: self.flags,
            fec: self.scheme,
            object,
            id: PayloadId::new(block, symbol),
            fti: None,
            others: Extensions::NONE,
            payload,
        }));
    }

    fn flush(&mut self, object: u16, (block, symbol): (u32, u16)) {
        self.deliver(Body::Command(Command::Flush {
            sender: Self::sender(),
            fec: self.scheme,
            object,
            id: PayloadId::new(block, symbol),
            others: Extensions::NONE,
            ackers: NodeList::NONE,
        }));
        let until = self.world.now + 5 * MILLI;
        self.world.run_until(until);
    }

    fn requested(&self) -> Vec<(RequestFlags, u32)> {
        let nacks = self.world.log.iter().filter(|sent| sent.from == HERE);
        let nacks = nacks.filter_map(|sent| {
            match Message::decode(&sent.bytes).expect("nodes send messages").body {
                Body::Nack(nack) => Some(nack),
                _ => None,
            }
        });
        nacks
            .flat_map(|nack| nack.requests.iter().collect::<Vec<_>>())
            .flat_map(|request| {
                request.ranges().map(|(at, _)| (request.flags, at.id.block)).collect::<Vec<_>>()
            })
            .collect()
    }

    /// Objects and numbers of missing segments in the receiver's reports.
    fn reports(&self) -> Vec<(u16, u16)> {
        let nacks = self.world.log.iter().filter(|sent| sent.from == HERE);
        let reports = nacks.filter_map(|sent| {
            match Message::decode(&sent.bytes).expect("nodes send messages").body {
                Body::Nack(nack) => Report::find(&nack.others),
                _ => None,
            }
        });
        reports.map(|report| (report.object, report.of.missing)).collect()
    }

    fn ends(&self) -> Vec<&Finished> {
        let ends = self.world.hosts[HERE].indications.iter();
        ends.filter_map(|it| match it {
            Indication::Finished(end) => Some(end),
            _ => None,
        })
        .collect()
    }

    fn failures(&self) -> u64 {
        self.world.hosts[HERE].engine.stats().digest_failures
    }
}

/// Segments of a file.
fn segment(bytes: &[u8], symbol: u16) -> &[u8] {
    let at = usize::from(symbol * SEGMENT);
    &bytes[at..bytes.len().min(at + usize::from(SEGMENT))]
}

/// First parity segment of a block.
fn parity(block: &[u8]) -> Vec<u8> {
    parity_of(block, 0)
}

/// Parity segment of a block.
fn parity_of(block: &[u8], row: u16) -> Vec<u8> {
    let count = block.len().div_ceil(SEGMENT.into()) as u16;
    let code = Long::new(count, 64, SEGMENT.into()).expect("there is such a code");
    let mut made = vec![0; SEGMENT.into()];
    let mut source = ReadColumns::new(block, SEGMENT.into());
    code.encode(&mut LongWork::default(), &mut source, row..row + 1, &mut made)
        .expect("it has a row");
    made
}

#[test]
fn segments_before_the_description_are_kept() {
    let bytes = content(350);
    let mut forged = Forged::new(&Config::default(), 350, 4);
    forged.data(1, (0, 1), segment(&bytes, 1));
    forged.data(1, (0, 3), segment(&bytes, 3));
    forged.data(1, (0, 4), &parity(&bytes));
    forged.info(1, Some((0, &bytes)));
    assert!(forged.ends().is_empty());
    forged.data(1, (0, 0), segment(&bytes, 0));
    assert_eq!(forged.ends()[0].data.as_deref(), Some(&bytes[..]));
    assert_eq!(forged.world.hosts[HERE].engine.stats().recovered, 1);
}

#[test]
fn kept_segments_have_limited_memory() {
    let mut config = Config::default();
    config.limits.assembly = 1 << 20;
    let mut forged = Forged::new(&config, 1 << 19, 10_000);
    for object in 1..100 {
        for symbol in 0..200 {
            forged.data(object, (0, symbol), &[1; 100]);
        }
    }
    assert!(forged.world.hosts[HERE].engine.memory() < 700_000);
    let before = forged.world.hosts[HERE].engine.stats().data_dropped;
    forged.data(100, (0, 0), &[1; 100]);
    assert_eq!(forged.world.hosts[HERE].engine.stats().data_dropped, before + 1);
}

#[test]
fn wrong_parity_does_not_deliver() {
    let bytes = content(400);
    let mut forged = Forged::new(&Config::default(), 400, 4);
    forged.info(1, Some((0, &bytes)));
    let mut wrong = parity(&bytes);
    wrong[7] ^= 1;
    for symbol in [0, 1, 3] {
        forged.data(1, (0, symbol), segment(&bytes, symbol));
    }
    forged.data(1, (0, 4), &wrong);
    assert!(forged.ends().is_empty());
    assert_eq!(forged.failures(), 1);
    forged.flush(1, (0, 3));
    assert_eq!(forged.requested(), [(RequestFlags::BLOCK, 0)]);
    for symbol in [0, 1, 2, 3] {
        forged.data(1, (0, symbol), segment(&bytes, symbol));
    }
    // The digest can have been wrong, too.
    assert!(forged.ends().is_empty());
    forged.info(1, Some((0, &bytes)));
    assert_eq!(forged.ends()[0].data.as_deref(), Some(&bytes[..]));
}

#[test]
fn objects_with_wrong_digests_fail() {
    let bytes = content(400);
    let mut forged = Forged::new(&Config::default(), 400, 4);
    for round in 1..=3 {
        assert!(forged.ends().is_empty());
        forged.info(1, Some((0, &bytes[1..])));
        for symbol in [0, 1, 2, 3] {
            forged.data(1, (0, symbol), segment(&bytes, symbol));
        }
        assert_eq!(forged.failures(), round);
    }
    assert_eq!(forged.ends()[0].result, Err(Failure::Damaged));
}

#[test]
fn missing_digests_are_requested() {
    let bytes = content(800);
    let mut forged = Forged::new(&Config::default(), 800, 4);
    forged.info(1, Some((0, &bytes[..400])));
    for (block, symbol) in (0..2).flat_map(|block| (0..4).map(move |symbol| (block, symbol))) {
        forged.data(1, (block, symbol), segment(&bytes, 4 * block as u16 + symbol));
    }
    assert!(forged.ends().is_empty());
    forged.flush(1, (1, 3));
    assert_eq!(forged.requested(), [(RequestFlags::INFO, 1)]);
    forged.info(1, Some((1, &bytes[400..])));
    assert_eq!(forged.ends()[0].data.as_deref(), Some(&bytes[..]));
}

#[test]
fn a_complete_object_is_reported_while_an_older_one_is_not() {
    let bytes = content(400);
    let mut forged = Forged::new(&Config::default(), 400, 4);
    for object in [1, 2] {
        forged.info(object, Some((0, &bytes)));
        (0..3).for_each(|symbol| forged.data(object, (0, symbol), segment(&bytes, symbol)));
    }
    forged.flush(2, (0, 3));
    assert_eq!(forged.reports().last(), Some(&(2, 1)));
    forged.data(2, (0, 3), segment(&bytes, 3));
    assert_eq!(forged.ends().len(), 1);
    let until = forged.world.now + Duration::from_secs(2);
    forged.world.run_until(until);
    forged.flush(2, (0, 3));
    assert_eq!(forged.reports().last(), Some(&(2, 0)), "{:?}", forged.reports());
}

#[test]
fn parity_takes_the_place_of_missing_segments_of_a_file() {
    let bytes = content(350);
    // The last segment is short: its place has no room for parity.
    for (lost, late) in [([1, 2], false), ([1, 3], false), ([0, 3], true), ([1, 2], true)] {
        let mut forged = Forged::of_file(350, 4);
        forged.info(1, Some((0, &bytes)));
        for symbol in (0..4).filter(|symbol| !lost.contains(symbol)) {
            forged.data(1, (0, symbol), segment(&bytes, symbol));
        }
        forged.data(1, (0, 4), &parity_of(&bytes, 0));
        if late {
            // It may take the place of the parity segment, which is lost then.
            forged.data(1, (0, lost[0]), segment(&bytes, lost[0]));
        }
        forged.data(1, (0, 5), &parity_of(&bytes, 1));
        assert_eq!(forged.file(), Some(&bytes[..]), "{lost:?} {late}");
        assert_eq!(forged.recovered(), if late { 1 } else { 2 }, "{lost:?} {late}");
        assert_eq!(forged.ends()[0].result, Ok(()));
    }
    // Source segments that arrive late take the places of all parity.
    let mut forged = Forged::of_file(350, 4);
    forged.info(1, Some((0, &bytes)));
    forged.data(1, (0, 4), &parity_of(&bytes, 0));
    forged.data(1, (0, 9), &parity_of(&bytes, 5));
    (0..4).for_each(|symbol| forged.data(1, (0, symbol), segment(&bytes, symbol)));
    assert_eq!((forged.file(), forged.recovered()), (Some(&bytes[..]), 0));
}

#[test]
fn wrong_parity_leaves_no_file() {
    let bytes = content(350);
    let mut forged = Forged::of_file(350, 4);
    forged.info(1, Some((0, &bytes)));
    let mut wrong = parity(&bytes);
    wrong[7] ^= 1;
    for symbol in [0, 1, 3] {
        forged.data(1, (0, symbol), segment(&bytes, symbol));
    }
    forged.data(1, (0, 4), &wrong);
    assert_eq!((forged.file(), forged.failures()), (None, 1));
    forged.info(1, Some((0, &bytes)));
    (0..4).for_each(|symbol| forged.data(1, (0, symbol), segment(&bytes, symbol)));
    assert_eq!(forged.file(), Some(&bytes[..]));
}

#[test]
fn blocks_of_files_take_little_memory() {
    // Blocks of 2.4 MB.
    let mut forged = Forged::of_file(50_000_000, 24_576);
    forged.fti.instance = 0x530d;
    forged.info(1, None);
    let before = forged.world.hosts[HERE].engine.memory();
    for block in 0..20 {
        forged.data(1, (block, 7), &[1; 100]);
        forged.data(1, (block, 24_576), &[1; 100]);
    }
    let memory = forged.world.hosts[HERE].engine.memory() - before;
    assert!(memory < 20 * 100_000, "{memory}");
}

#[test]
fn unknown_codes_are_refused() {
    let known = Forged::new(&Config::default(), 400, 4).fti;
    let unknown = [
        Fti { instance: 0x52ff, ..known },
        Fti { instance: 0x5310, ..known },
        Fti { segment_size: 101, ..known },
        Fti { block_len: 0, ..known },
        Fti { object_size: 100 * 65_500, block_len: 65_535, instance: 0x5307, ..known },
    ];
    for fti in unknown {
        assert_refused(Scheme::Compact, fti);
    }
    #[cfg(not(feature = "raptorq"))]
    assert_refused(Scheme::RaptorQ, Fti { blocks: 1, sub_blocks: 1, alignment: 4, ..known });
}

/// Asserts that objects of a code are refused, and that nothing of them is kept or requested.
fn assert_refused(scheme: Scheme, fti: Fti) {
    let mut forged = Forged::new(&Config::default(), 400, 4);
    (forged.scheme, forged.fti, forged.flags) = (scheme, fti, Flags::INFO | Flags::FILE);
    // The first message of an unknown sender is not reported.
    forged.info(0, None);
    forged.info(1, None);
    let before = forged.world.hosts[HERE].engine.memory();
    (0..4).for_each(|symbol| forged.data(1, (0, symbol), &[1; 100]));
    forged.flush(1, (0, 3));
    let ends = forged.ends();
    assert!(
        matches!(ends[..], [Finished { result: Err(Failure::Settings(_)), .. }]),
        "{scheme} {fti:?} {ends:?}"
    );
    assert_eq!(forged.requested(), []);
    assert_eq!(forged.world.hosts[HERE].engine.memory(), before);
}
