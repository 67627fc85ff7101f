//! LTP engines, driven by a script of bytes.

use std::time::Duration;

use engine::{Rng, Time};
use ltp::{
    Aggregation, Authentication, Ciphersuite, Config, Format, Key, Limits, Node, Red, Remote,
    SendRequest,
};

use crate::nodes::{DESTINATION, Play, Protocol, play, source};
use crate::script::Script;

/// Runs a script for two LTP engines that send files and units of data to each other.
///
/// # Panics
/// If an engine breaks the contract or delivers a wrong file.
pub fn ltp_node(data: &[u8]) {
    let mut script = Script(data);
    let options = script.or_zero();
    play(Ltp { options }, &mut script);
}

struct Ltp {
    options: u8,
}

impl Protocol for Ltp {
    type Node = Node;

    fn node(&self, side: usize, restarts: u64) -> Node {
        let has = |bit: u8| self.options & 1 << bit != 0;
        let keys = || Authentication::new(Key::new(Ciphersuite::HmacSha1, b"7", b"secret"));
        let default_remote = Remote {
            checkpoint_every: has(0).then_some(300),
            checkpoint_interval: has(1).then_some(Duration::from_millis(500)),
            report_gaps: has(2),
            authentication: has(3).then(keys),
            unpaced_window: has(4).then_some(600),
            segment_max: has(5).then_some(90),
            ..Remote::default()
        };
        let raw = Format::Raw { name: DESTINATION.to_owned() };
        let config = Config {
            engine: side as u64 + 1,
            default_remote,
            cookies: has(6),
            format: if has(7) { raw } else { Format::Described },
            aggregation: Some(Aggregation { size: 200, age: Duration::from_secs(1) }),
            limits: Limits {
                sessions: 8,
                sessions_per_path: 6,
                closed: 8,
                gaps: 16,
                gaps_total: 64,
                block: 1 << 16,
                units: 1 << 10,
                units_total: 4 << 10,
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
        Node::new(config, Rng::new(restarts, "ltp"))
    }
}

impl Play for Ltp {
    fn request(&self, node: &mut Node, now: Time, side: usize, script: &mut Script<'_>) {
        let destination = 2 - side as u64;
        let op = script.or_zero();
        match op % 8 {
            0..=3 => {
                let red = match op % 4 {
                    0 | 1 => Red::All,
                    2 => Red::Prefix(u64::from(script.or_zero()) * 8),
                    _ => Red::None,
                };
                let name = DESTINATION.to_owned();
                let request = SendRequest { destination, source: source(), name, red };
                // Excess transfers are refused.
                let _ = node.send(now, request);
            }
            4 | 5 => {
                let len = usize::from(script.or_zero());
                let _ = node.send_data(now, destination, u64::from(op), script.bytes(len));
            }
            _ => {
                let nth = usize::from(op >> 3) % 8;
                let id = node.sessions().nth(nth).map(|report| report.id);
                let _ = id.map(|id| node.cancel(now, id));
            }
        }
    }

    fn record(&self, _script: &mut Script<'_>) -> Option<(String, Vec<u8>)> {
        // Sessions keep no records.
        None
    }
}
