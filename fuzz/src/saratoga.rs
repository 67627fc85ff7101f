//! Saratoga peers, driven by a script of bytes.

use std::time::Duration;

use engine::{Rng, Time};
use saratoga::packet::Width;
use saratoga::{
    Beacons, ChecksumKind, Config, GetRequest, Limits, Node, Permissions, Put, PutRequest, Remote,
    Timer,
};
use wire::checksum::crc32c;

use crate::nodes::{DESTINATION, PATH, Play, Protocol, destination, play, source};
use crate::script::Script;

/// Runs a script for two Saratoga peers that put, get, list and delete each other's files.
///
/// # Panics
/// If a peer breaks the contract or delivers a wrong file.
pub fn saratoga_node(data: &[u8]) {
    let mut script = Script(data);
    let options = script.or_zero();
    play(Saratoga { options }, &mut script);
}

struct Saratoga {
    options: u8,
}

impl Protocol for Saratoga {
    type Node = Node;

    fn node(&self, side: usize, restarts: u64) -> Node {
        let has = |bit: u8| self.options & 1 << bit != 0;
        let default_remote = Remote {
            status_interval: (!has(2)).then_some(Timer::Auto),
            voluntary_interval: has(3).then_some(Duration::from_secs(1)),
            unpaced_window: has(4).then_some(600),
            // Short enough to wait for, with several requests a second.
            inactivity: Timer::Fixed(Duration::from_secs(300)),
            ..Remote::default()
        };
        let mut config = Config {
            eid: format!("ipn:{side}.0"),
            default_remote,
            descriptor: if has(5) { Width::W16 } else { Width::W64 },
            checksum: match self.options & 3 {
                0 => ChecksumKind::Crc32,
                1 => ChecksumKind::None,
                2 => ChecksumKind::Md5,
                _ => ChecksumKind::Sha1,
            },
            permissions: Permissions { put: true, get: true, delete: !has(6) },
            limits: Limits {
                sessions: 8,
                sessions_per_path: 6,
                closed: 8,
                partials: 4,
                partial_bytes: 1 << 17,
                partial_age: Duration::from_secs(10_000),
                gaps: 16,
                file: 1 << 16,
                directory: 1 << 12,
                buffers: session::Buffers {
                    write_buffer: 4096,
                    write_piece: 512,
                    read_ahead: 2048,
                    read_ahead_total: 8192,
                    read_piece: 512,
                    replies: 8,
                },
            },
            ..Config::default()
        };
        config.journal.enabled = !has(7);
        config.journal.bytes = 400;
        if has(7) && side == 0 {
            // So rare that the peers count as at rest between two of them.
            let interval = Duration::from_secs(2 * 365 * 86_400);
            config.beacons = Some(Beacons { paths: vec![PATH], interval });
        }
        Node::new(config, Rng::new(restarts, "saratoga"))
    }
}

impl Play for Saratoga {
    fn request(&self, node: &mut Node, now: Time, _side: usize, script: &mut Script<'_>) {
        let op = script.or_zero();
        let name = if op & 128 == 0 { DESTINATION } else { "source" };
        let (peer, delete) = (PATH, op & 64 != 0);
        // Excess transfers, and those that have ended, are refused.
        match op % 8 {
            0..=2 => {
                let put = [Put::Push, Put::Ask, Put::Blind][usize::from(op % 8)];
                let (name, stream) = (name.to_owned(), op & 32 != 0);
                let source = source();
                let terms = PutRequest::new(peer, source, name);
                let _ = node.put(now, PutRequest { put, delete, stream, ..terms });
            }
            3 | 4 => {
                let (name, destination) = ("source".to_owned(), destination());
                let _ = node.get(now, GetRequest { peer, name, destination, delete });
            }
            5 => drop(node.list(now, peer, String::new())),
            6 => drop(node.delete(now, peer, DESTINATION.to_owned())),
            _ => {
                let id = node.sessions().nth(usize::from(op >> 3) % 8).map(|report| report.id);
                let _ = id.map(|id| node.cancel(now, id));
            }
        }
    }

    fn record(&self, script: &mut Script<'_>) -> Option<(String, Vec<u8>)> {
        let len = script.byte().filter(|len| *len > 0)?;
        let mut value = script.bytes(usize::from(len)).to_vec();
        let check = crc32c(&value);
        value.extend(check.to_be_bytes());
        Some(("sar-00000007".to_owned(), value))
    }
}
