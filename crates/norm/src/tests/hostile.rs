//! Hostile senders, whose cheap messages could cost their receivers much.

use std::time::Duration;

use crate::fec::LongWork;
use bytes::Bytes;
use engine::{Area, PathInfo, Rng, Time};
use session::timer::Timer;

use super::world::{World, content, name};
use crate::bits::Bits;
use crate::coding::Coding;
use crate::message::{
    Body, Command, Extensions, Flags, Fti, Message, NodeId, NodeList, PayloadId, RequestFlags,
    Scheme, Sender,
};
use crate::{
    Config, Content, EndGame, Failure, Finished, Indication, Join, Limit, Node, SenderConfig,
};

/// Receiving side; its messages are forged, or come from the other side.
const HERE: usize = 1;

const MILLI: Duration = Duration::from_millis(1);

/// Requested range, from one symbol of a block to another.
type Wish = (RequestFlags, (u32, u16), (u32, u16));

/// Node with a sender that consists only of a test's forged messages.
struct Prey {
    world: World,
    sender: Sender,
    sequence: u16,
    scheme: Scheme,
    fti: Fti,
    flags: Flags,
}

impl Prey {
    fn new(scheme: Scheme, blocks: (u16, u16), segment_size: u16, size: u64) -> Self {
        Self::of(&Config::default(), scheme, blocks, (segment_size, size))
    }

    fn of(
        config: &Config,
        scheme: Scheme,
        (block_len, parity): (u16, u16),
        (segment_size, size): (u16, u64),
    ) -> Self {
        let mut seed = 8470;
        let nodes = [config, config].map(|config| {
            seed += 1;
            let mut config = Config { node: seed, ..config.clone() };
            config.receiver.streams = Some(Join::FirstBlock);
            Node::new(config, Rng::new(1, "norm"))
        });
        // As fast as possible.
        let info = PathInfo { owlt: Some(MILLI), ..PathInfo::datagram(1024) };
        let field_bits = if scheme == Scheme::ReedSolomonM { 16 } else { 8 };
        let object_size = size;
        let plain = Fti { object_size, segment_size, block_len, ..Fti::default() };
        Self {
            world: World::between(nodes, info),
            sender: Sender { instance: 7, grtt: 0x94, backoff: 0, group_size: 2 },
            sequence: 0,
            scheme,
            fti: Fti { parity, field_bits, ..plain },
            flags: Flags::NONE,
        }
    }

    fn deliver(&mut self, body: Body<'_>) {
        let message = Message { sequence: self.sequence, source: NodeId(99), body };
        self.sequence = self.sequence.wrapping_add(1);
        let mut datagram = vec![0; message.encoded_len()];
        message.encode(&mut datagram).expect("it can be encoded");
        self.world.hear(HERE, &datagram);
    }

    fn data(&mut self, object: u16, (block, symbol): (u32, u16), payload: &[u8]) {
        self.deliver(Body::Data(crate::message::Data {
            sender: self.sender,
            flags: self.flags,
            fec: self.scheme,
            object,
            id: PayloadId { block, symbol, block_len: None },
            fti: Some(self.fti),
            others: Extensions::NONE,
            payload,
        }));
    }

    fn flush(&mut self, object: u16, (block, symbol): (u32, u16)) {
        self.deliver(Body::Command(Command::Flush {
            sender: self.sender,
            fec: self.scheme,
            object,
            id: PayloadId { block, symbol, block_len: None },
            others: Extensions::NONE,
            ackers: NodeList::NONE,
        }));
    }

    fn wait(&mut self, time: Duration) {
        let until = self.world.now + time;
        self.world.run_until(until);
    }

    /// Requests since a time: blocks and segments, first and last.
    fn requested(&self, since: Time) -> Vec<Wish> {
        let mut requested = Vec::new();
        for sent in &self.world.log {
            let message = Message::decode(&sent.bytes).expect("nodes send messages");
            if let Body::Nack(nack) = message.body
                && sent.from == HERE
                && sent.at >= since
            {
                for request in nack.requests.iter() {
                    let name = |id: PayloadId| (id.block, id.symbol);
                    let ranges = request.ranges();
                    requested.extend(ranges.map(|(a, b)| (request.flags, name(a.id), name(b.id))));
                }
            }
        }
        requested
    }

    fn ends(&self) -> Vec<&Finished> {
        let ends = self.world.hosts[HERE].indications.iter();
        ends.filter_map(|it| match it {
            Indication::Finished(end) => Some(end),
            _ => None,
        })
        .collect()
    }

    fn memory(&self) -> usize {
        self.world.hosts[HERE].engine.memory()
    }
}

#[test]
fn old_gaps_do_not_end_new_objects() {
    let mut config = Config::default();
    config.sender.end = EndGame::Flush;
    (config.sender.robust_factor, config.receiver.robust_factor) = (2, 2);
    let mut world = World::with(&config);
    world.logging = false;
    let send = |world: &mut World, number: usize| {
        let info = number.to_string();
        world.request(Content::Data(content(50).into()), &info);
    };
    send(&mut world, 0);
    world.run();
    world.lose(|from, _, _| from == 0);
    for some in [1..151, 151..301] {
        some.for_each(|number| send(&mut world, number));
        world.run();
    }
    world.lose(|_, _, _| false);
    send(&mut world, 301);
    world.run();
    let here = world.hosts[HERE].indications.iter().filter_map(|it| match it {
        Indication::Finished(end) if end.result.is_ok() => Some(end.info.clone()),
        _ => None,
    });
    assert_eq!(here.collect::<Vec<Bytes>>(), ["0", "301"]);
    assert!(world.hosts[HERE].indications.contains(&Indication::LimitReached(Limit::Objects)));
    assert_eq!(world.hosts[HERE].engine.objects().count(), 0);
}

#[test]
fn old_gaps_are_not_acknowledged() {
    let mut config = Config::default();
    config.limits.objects = 4;
    config.sender.patience = Timer::Fixed(Duration::from_secs(20));
    let mut sender = config.clone();
    sender.limits.objects = 100;
    let mut world = World::new([sender, config]);
    world.request(Content::Data(content(50).into()), "first");
    world.run();
    let sent: Vec<_> = (0..20).map(|n| n.to_string()).collect();
    world.lose(|from, _, _| from == 0);
    for info in &sent {
        world.request(Content::Data(content(50).into()), info);
    }
    world.run_until(world.now + Duration::from_secs(1));
    world.lose(|_, _, _| false);
    world.run();
    let of = |side: usize, confirmed: bool| {
        let ends = world.hosts[side].indications.iter();
        let ends = ends.filter_map(|it| match it {
            Indication::Finished(end) if end.result.is_ok() && end.is_confirmed == confirmed => {
                Some(end.info.clone())
            }
            _ => None,
        });
        ends.collect::<Vec<_>>()
    };
    let (here, there) = (of(HERE, true), of(0, true));
    assert!(here.iter().any(|info| info == "19"), "{here:?}");
    assert!(there.iter().all(|info| here.contains(info)), "{there:?} {here:?}");
}

#[test]
fn parity_that_takes_too_long_is_not_used() {
    let mut config = Config::default();
    config.limits.coding_work = 2 * 8;
    // Eight segments, of which parity may replace two.
    let mut prey = Prey::of(&config, Scheme::ReedSolomonM, (8, 6), (100, 800));
    let bytes = content(800);
    let segment = |symbol: u16| &bytes[usize::from(symbol) * 100..][..100];
    let encoded =
        SenderConfig { fec: Scheme::ReedSolomonM, block_len: 8, parity: 6, ..config.sender };
    let coding = Coding::new(&encoded).expect("there is such a code");
    let mut rows = Bits::new();
    (0..4).for_each(|row| _ = rows.insert(row));
    let parity = coding.rows(&mut LongWork::default(), 100, 8, &bytes, &rows);
    (0..4).for_each(|symbol| prey.data(1, (0, symbol), segment(symbol)));
    for (row, parity) in parity {
        prey.data(1, (0, 8 + row), &parity);
    }
    prey.flush(1, (0, 7));
    prey.wait(MILLI);
    // Of the four missing segments, two must come themselves.
    let named = [6, 7].map(|symbol| (RequestFlags::SEGMENT, (0, symbol), (0, symbol)));
    assert_eq!(prey.requested(Time::ZERO), named);
    prey.data(1, (0, 6), segment(6));
    assert!(prey.ends().is_empty());
    prey.data(1, (0, 7), segment(7));
    assert_eq!(prey.ends()[0].data.as_deref(), Some(&bytes[..]));
}

#[test]
fn messages_about_impossible_blocks_cost_nothing() {
    let kinds = [(Scheme::ReedSolomonM, (1000, 24)), (Scheme::ReedSolomon8, (200, 50))];
    for ((scheme, (block_len, parity)), size) in
        kinds.into_iter().flat_map(|it| [(it, 11), (it, 12)])
    {
        let bytes = content(size);
        let config = SenderConfig { fec: scheme, block_len, parity, ..SenderConfig::default() };
        let coding = Coding::new(&config).expect("there is such a code");
        let mut row = Bits::new();
        row.insert(3);
        let made = coding.rows(&mut LongWork::default(), 12, 1, &bytes, &row).pop();
        let (_, made) = made.expect("a parity segment");
        // As long as a segment is announced to be, and as long as the longest.
        let mut long = made.to_vec();
        long.resize(64_000, 0);
        for segment in [&long, &made[..]].iter().take(if size == 12 { 2 } else { 1 }) {
            let mut prey = Prey::new(scheme, (block_len, parity), 64_000, size as u64);
            prey.data(1, (0, 1 + 3), segment);
            assert_eq!(prey.ends()[0].data.as_deref(), Some(&bytes[..]));
            assert!(prey.memory() < 50_000, "{}", prey.memory());
        }
    }
    // Such an object is not refused.
    let mut prey = Prey::new(Scheme::ReedSolomonM, (2000, 2000), 64_000, 11);
    prey.data(1, (0, 0), &content(11));
    assert_eq!(prey.ends()[0].data.as_deref(), Some(&content(11)[..]));
}

#[test]
fn parity_of_odd_segments_is_not_used() {
    let mut prey = Prey::new(Scheme::ReedSolomonM, (4, 2), 101, 404);
    let bytes = content(404);
    let segment = |symbol: u16| &bytes[usize::from(symbol) * 101..][..101];
    prey.data(1, (0, 4), &[9; 101]);
    prey.data(1, (0, 0), segment(0));
    prey.data(1, (0, 2), segment(2));
    prey.data(1, (0, 5), &[9; 101]);
    prey.flush(1, (0, 3));
    prey.wait(MILLI);
    let of = |symbol| (RequestFlags::SEGMENT, (0, symbol), (0, symbol));
    assert_eq!(prey.requested(Time::ZERO), [of(1), of(3)]);
    prey.data(1, (0, 3), segment(3));
    assert!(prey.ends().is_empty());
    prey.data(1, (0, 1), segment(1));
    let ends = prey.ends();
    assert_eq!(ends.len(), 1);
    assert_eq!(ends[0].data.as_deref(), Some(&bytes[..]));
}

#[test]
fn streams_far_ahead_cost_little() {
    let mut prey = Prey::new(Scheme::ReedSolomon8, (1, 1), 1, 1 << 22);
    prey.flags = Flags::STREAM;
    let segment = |offset: u32| {
        let header = crate::message::StreamHeader { len: 1, message_start: 0, offset };
        let mut bytes = header.encode().to_vec();
        bytes.push(7);
        bytes
    };
    prey.data(1, (0, 0), &segment(0));
    prey.wait(MILLI);
    assert!(prey.ends().is_empty());
    let before = prey.memory();
    prey.data(1, (1_800_000, 0), &segment(1_800_000));
    prey.flush(1, (1_900_000, 0));
    prey.wait(MILLI);
    // No more than is ever remembered.
    let requested = prey.requested(Time::ZERO);
    assert!(matches!(requested[..], [(RequestFlags::BLOCK, (1, 0), (65_536, 0))]), "{requested:?}");
    assert!(prey.memory() < before + 2000, "{} {before}", prey.memory());
}

#[test]
fn zero_grtt_does_not_flood_the_sender_with_naks() {
    let mut prey = Prey::new(Scheme::ReedSolomon8, (1, 0), 10, 100_000);
    prey.sender.grtt = 0;
    for block in 0..400 {
        prey.data(1, (block * 2, 0), &[1; 10]);
    }
    prey.wait(100 * MILLI);
    let since = prey.world.now;
    for block in 800..816 {
        prey.data(1, (block, 0), &[1; 10]);
        prey.wait(MILLI / 20);
    }
    // Each of 400 is requested once more, not once per message.
    let requested = prey.requested(since).len();
    assert!((1..=450).contains(&requested), "{requested}");
}

#[test]
fn objects_without_norm_info_are_stored_and_named_by_number() {
    let object = content(35);
    for (flags, store_data) in [(Flags::FILE, false), (Flags::FILE, true), (Flags::NONE, true)] {
        let mut config = Config::default();
        config.receiver.store_data = store_data;
        let mut prey = Prey::of(&config, Scheme::ReedSolomon8, (4, 2), (10, 35));
        prey.flags = flags;
        for (symbol, payload) in (0..).zip(object.chunks(10)) {
            prey.data(5, (0, symbol), payload);
        }
        prey.flush(5, (0, 3));
        prey.wait(Duration::from_secs(1));
        let [end] = prey.ends()[..] else { panic!("{:?}", prey.ends()) };
        // Sender 99, and its object 5.
        let stored = name("norm-00000063.5");
        assert_eq!((&end.result, end.name.as_ref()), (&Ok(()), Some(&stored)));
        assert!(end.data.is_none() && end.is_confirmed);
        assert!(prey.world.hosts[HERE].store.get(&stored) == Some(&object[..]));
    }
    // An object that is not stored is delivered as bytes.
    let mut prey = Prey::new(Scheme::ReedSolomon8, (4, 2), 10, 35);
    for (symbol, payload) in (0..).zip(object.chunks(10)) {
        prey.data(5, (0, symbol), payload);
    }
    let [end] = prey.ends()[..] else { panic!("{:?}", prey.ends()) };
    assert_eq!((end.data.as_deref(), &end.name), (Some(&object[..]), &None));
}

#[test]
fn norm_info_of_data_is_no_name() {
    let mut config = Config::default();
    config.receiver.store_data = true;
    let mut world = World::with(&config);
    let id = world.request(Content::Data(content(50).into()), "etc");
    world.run();
    let stored = world.finished(HERE).and_then(|end| end.name.clone());
    assert_eq!(stored, Some(name(&format!("norm-{:08x}.{}", id.sender, id.number))));
}

#[test]
fn a_hundred_thousand_senders_keep_no_transfer_out() {
    let mut world = World::with(&Config::default());
    world.logging = false;
    let file = content(10_000_000);
    let (mut memory, mut open, mut sent) = (0, 0, 0_u32);
    let fti = |source: u32| Fti {
        object_size: 1 << 30,
        segment_size: 900,
        // Every other object has one segment per block.
        block_len: if source.is_multiple_of(2) { 64 } else { 1 },
        parity: 32,
        field_bits: 8,
        ..Fti::default()
    };
    while world.finished(0).is_none() {
        for source in sent..100_000.min(sent + 100) {
            let data = crate::message::Data {
                sender: Sender { instance: 7, grtt: 0x94, backoff: 0, group_size: 2 },
                flags: Flags::FILE,
                fec: Scheme::ReedSolomon8,
                object: source as u16,
                id: PayloadId { block: source % 7, symbol: 0, block_len: None },
                fti: Some(fti(source)),
                others: Extensions::NONE,
                payload: &[1; 900],
            };
            let source = NodeId(1_000_000 + source);
            let message = Message { sequence: 0, source, body: Body::Data(data) };
            let mut datagram = vec![0; message.encoded_len()];
            message.encode(&mut datagram).expect("there is room");
            world.hear(HERE, &datagram);
        }
        if sent == 1_000 {
            world.send(&file);
        }
        sent += 100;
        // 20,000 per second, in which the file takes 8 s.
        let until = world.now + Duration::from_millis(5);
        world.run_until(until);
        memory = memory.max(world.hosts[HERE].engine.memory());
        open = open.max(world.hosts[HERE].store.names(Area::Spool).count());
    }
    assert!(sent >= 100_000, "{sent}");
    world.run();
    world.assert_delivered(&file);
    println!("{memory} bytes and {open} working files at the most");
    assert!(memory < 32 << 20 && open <= 1, "{memory} {open}");
    // The user does not get a report for each.
    let reports = |it: &&Indication| {
        matches!(it, Indication::Started { .. } | Indication::SenderDiscovered { .. })
    };
    assert_eq!(world.hosts[HERE].indications.iter().filter(reports).count(), 2);
}

#[test]
fn a_path_that_is_too_narrow_is_refused_at_once() {
    let with = |mtu| {
        let mut world = World::with(&Config::default());
        world.hops[0].info.kind = PathInfo::datagram(mtu).kind;
        (0..2).for_each(|side| world.up(side));
        world
    };
    let file = content(20_000);
    let mut world = with(51);
    world.send(&file);
    world.run();
    let Err(Failure::Settings(why)) = &world.finished(0).expect("it ended").result else {
        panic!("{:?}", world.finished(0));
    };
    assert!(why.contains("52") && why.contains("an MTU of 80"), "{why}");
    assert!(world.log.is_empty(), "{:#?}", world.transcript());
    // Where one item fits, that one is requested.
    for mtu in [52, 60, 68] {
        for (parity, every) in [(32, 6), (2, 6), (0, 10)] {
            let mut world = with(mtu);
            for side in &mut world.hosts {
                let mut config = Config { node: side.engine.node(), ..Config::default() };
                config.sender.parity = parity;
                side.engine = Node::new(config, Rng::new(1, "norm")).into();
            }
            (0..2).for_each(|side| world.up(side));
            world.logging = false;
            world.lose(move |side, number, _| side == 0 && number % every == 2);
            world.send(&file);
            world.run();
            world.assert_delivered(&file);
        }
    }
}
