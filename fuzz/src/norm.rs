//! NORM nodes, driven by a script of bytes.

use std::time::Duration;

use bytes::Bytes;
use engine::{FileName, Rng, Time};
use norm::{
    Config, Content, EndGame, Join, Limits, Nacking, Node, ReceiverConfig, RepairBoundary,
    SPOOL_PREFIX, Scheme, SendRequest, StreamOptions, SyncPolicy,
};
use wire::checksum::crc32c;

use crate::nodes::{DESTINATION, PATH, Play, Protocol, World, change, play, source};
use crate::script::Script;

/// Runs a script for two NORM nodes that send files, bytes and streams to each other, and other
/// messages.
///
/// # Panics
/// If a node breaks the contract or delivers a wrong file.
pub fn norm_node(data: &[u8]) {
    let mut script = Script(data);
    let (options, more) = (script.or_zero(), script.or_zero());
    play(Norm { options, more, is_coded: false }, &mut script);
}

/// Does the same for two nodes that send coded objects.
///
/// # Panics
/// If a node breaks the contract or delivers a wrong file.
pub fn norm_coded(data: &[u8]) {
    let mut script = Script(data);
    let (options, more) = (script.or_zero(), script.or_zero());
    play(Norm { options, more, is_coded: true }, &mut script);
}

/// Starts a receiver with records and working files of an earlier run, as from a damaged disk, and
/// sends it the file. The checksums of the records are correct.
///
/// # Panics
/// If a node breaks the contract or delivers a wrong file.
pub fn norm_journal(data: &[u8]) {
    let mut script = Script(data);
    let options = script.or_zero();
    let mut world = World::new(Norm { options, more: SYNC_ALL, is_coded: true });
    while let Some(number) = script.byte() {
        let key = format!("{SPOOL_PREFIX}{number:016x}");
        let len = usize::from(script.or_zero());
        let spool = FileName::spool(&key).expect("a good name");
        world.fill(RECEIVER, spool, |content| {
            content.truncate(len * 8);
            change(content, &mut script);
        });
        let record = record(world.content().len() as u64, &mut script);
        world.plant(RECEIVER, key, record);
    }
    world.restart(RECEIVER);
    world.make_request(1 - RECEIVER, |node, now| {
        let info = Bytes::from_static(DESTINATION.as_bytes());
        let request = SendRequest { peer: PATH, content: Content::File(source()), info };
        node.send(now, request).expect("the first object has room");
    });
    world.finish();
    // Digests of blocks hold for what a damaged disk has, too.
    world.check_content(RECEIVER);
}

const RECEIVER: usize = 1;

/// Bits of further options with which a receiver takes all objects.
const SYNC_ALL: u8 = 2;

/// A record of a file of `size` bytes, which most often is the sender's.
fn record(size: u64, script: &mut Script<'_>) -> Vec<u8> {
    let mut value = vec![1];
    value.extend((DESTINATION.len() as u32).to_be_bytes());
    value.extend(DESTINATION.as_bytes());
    value.extend(size.to_be_bytes());
    value.extend(SEGMENT.to_be_bytes());
    let block_len: u16 = [3, 11_650, 5, 6][usize::from(script.or_zero() & 3)];
    value.extend(block_len.to_be_bytes());
    value.extend(u64::from(script.or_zero()).to_be_bytes());
    let (at, len) = (usize::from(script.or_zero()), usize::from(script.or_zero()));
    // Other identities, now and then.
    value.truncate(value.len() - at.saturating_sub(200).min(value.len()));
    value.extend(script.bytes(len));
    let check = crc32c(&value);
    value.extend(check.to_be_bytes());
    value
}

/// Bytes of a file in a message.
const SEGMENT: u16 = 90;

struct Norm {
    options: u8,
    more: u8,
    is_coded: bool,
}

impl Protocol for Norm {
    type Node = Node;

    fn node(&self, side: usize, restarts: u64) -> Node {
        let has = |bit: u8| self.options & 1 << bit != 0;
        let (fec, parity) = match self.options & 3 {
            0 => (Scheme::ReedSolomon8, 2),
            1 => (Scheme::SmallBlockSystematic, 1),
            2 => (Scheme::ReedSolomonM, 4),
            _ => (Scheme::NoCode, 0),
        };
        let limits = Limits {
            senders: 3,
            objects: 4,
            receivers: 3,
            object: 1 << 16,
            stream: 2048,
            assembly: 4096,
            coding_work: 1 << 10,
            buffers: session::Buffers {
                write_buffer: 2048,
                write_piece: 512,
                read_ahead: 1024,
                read_ahead_total: 4096,
                read_piece: 512,
                replies: 8,
            },
            partials: 2,
            partial_bytes: 1 << 17,
            partial_age: Duration::from_secs(10_000),
            repairs: 8,
            commands: 3,
        };
        let more = |bit: u8| self.more & 1 << bit != 0;
        let receiver = ReceiverConfig {
            silent: has(6),
            unicast_nack: has(7),
            robust_factor: 3,
            sync: [SyncPolicy::Object, SyncPolicy::Current, SyncPolicy::All, SyncPolicy::All]
                [usize::from(self.more & 3)],
            nacking: [Nacking::Normal, Nacking::Normal, Nacking::InfoOnly, Nacking::None]
                [usize::from(self.more >> 2 & 3)],
            repair_boundary: if more(4) { RepairBoundary::Object } else { RepairBoundary::Block },
            streams: Some(if more(5) { Join::FirstBlock } else { Join::Beginning }),
            ..ReceiverConfig::default()
        };
        let mut config = Config { node: 1 + side as u32, limits, receiver, ..Config::default() };
        if has(2) {
            config.groups = vec![PATH];
        }
        let sender = &mut config.sender;
        (sender.fec, sender.parity) = (fec, parity);
        sender.segment_size = Some(SEGMENT);
        sender.block_len = 4;
        sender.auto_parity = if has(3) { parity.min(1) } else { 0 };
        sender.info_every = 2;
        sender.robust_factor = 3;
        sender.fti_in_data = !has(4);
        sender.end = if has(5) { EndGame::Flush } else { EndGame::Acknowledged };
        sender.congestion_control = more(6);
        if self.is_coded {
            sender.fec = Scheme::Compact;
            sender.parity = [0, 1, 2, 64][usize::from(self.options & 3)];
            sender.block_len = if has(3) { 3 } else { 24_576 };
            sender.block_bytes = if has(4) { 500 } else { 1 << 20 };
            (sender.auto_parity, sender.fti_in_data, sender.tail_parity) = (0, false, false);
        }
        sender.group_size = more(7).then_some(3);
        sender.grtt_max = Duration::from_secs(10);
        Node::new(config, Rng::new(2 * restarts + side as u64, "norm"))
    }

    fn rest(node: &mut Node, now: Time) {
        let objects: Vec<_> = node.objects().map(|report| report.id).collect();
        // Objects that are no streams, or not this node's, are refused.
        objects.into_iter().for_each(|id| _ = node.close(now, id));
    }
}

impl Play for Norm {
    fn request(&self, node: &mut Node, now: Time, _side: usize, script: &mut Script<'_>) {
        let op = script.or_zero();
        match op % 8 {
            0..=3 => {
                let info = if op > 127 { "" } else { DESTINATION };
                let info = Bytes::from_static(info.as_bytes());
                let content = Content::File(source());
                // Excess objects are refused.
                let _ = node.send(now, SendRequest { peer: PATH, content, info });
            }
            4 => {
                let options = StreamOptions { buffer: 1024, push: op > 127 };
                let content = Content::Stream(options);
                let _ = node.send(now, SendRequest { peer: PATH, content, info: Bytes::new() });
            }
            5 => {
                let len = usize::from(script.or_zero());
                let content = Content::Data(Bytes::copy_from_slice(script.bytes(len)));
                let _ = node.send(now, SendRequest { peer: PATH, content, info: Bytes::new() });
            }
            6 => talk(node, now, op >> 3, script),
            _ => {
                let nth = usize::from(op >> 3) % 8;
                let id = node.objects().nth(nth).map(|report| report.id);
                let Some(id) = id else { return };
                let bytes = usize::from(script.or_zero());
                // Most requests are refused: objects that are no streams, or not this node's.
                match script.or_zero() % 6 {
                    0 => _ = node.cancel(now, id),
                    1 => _ = node.flush(now, id),
                    2 => _ = node.close(now, id),
                    3 => _ = node.begin_message(now, id),
                    4 => _ = node.read(now, id),
                    _ => _ = node.write(now, id, script.bytes(bytes)),
                }
            }
        }
    }

    fn record(&self, _script: &mut Script<'_>) -> Option<(String, Vec<u8>)> {
        // Objects keep no records.
        None
    }
}

/// Sends messages besides objects. Most are refused.
fn talk(node: &mut Node, now: Time, what: u8, script: &mut Script<'_>) {
    let (kind, number) = (script.or_zero(), script.or_zero());
    let len = usize::from(script.or_zero()) % 64;
    let bytes = Bytes::copy_from_slice(script.bytes(len));
    match what % 5 {
        0 => _ = node.command(now, PATH, bytes, Some(u32::from(number) % 4)),
        1 => _ = node.stop_command(PATH, u64::from(number)),
        2 => _ = node.question(now, PATH, kind, &[u32::from(number) % 4]),
        3 => _ = node.answer(now, PATH, 1 + u32::from(number) % 2, kind, number, bytes),
        _ => {
            node.end(now, PATH);
        }
    }
}
