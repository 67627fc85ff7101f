//! What the transfers have in common that the conformance suite makes over TCP.

use engine::conformance::{Role, Verdict};
use engine::{FileName, MemoryStore};

use super::super::Config;
use super::bytes;
use super::world::{address, config};
use crate::ftp::Indication;
use crate::tcp::Buffer;

pub(super) fn file(name: &str) -> FileName {
    FileName::file(name).unwrap()
}

/// A host whose peer, when it is gone, is given up within the time that the suite allows, and that soon
/// reaches what the suite bounds.
pub(super) fn host(role: Role) -> Config {
    let number = match role {
        Role::Sender => 0,
        Role::Receiver => 1,
    };
    let mut config = config(number);
    config.tcp.addresses = vec![address(number).ip()];
    config.tcp.limits.connections = 64;
    config.tcp.limits.time_wait = 256;
    config.options.send_buffer = Buffer::Fixed(16 << 10);
    config.options.receive_buffer = Buffer::Fixed(16 << 10);
    config.limits.streams = 32;
    config
}

/// What such a host may hold: 32 streams with two buffers of 16 KiB and 64 KiB kept, and what the stack
/// remembers.
pub(super) const HOST_MAX: usize = 6 << 20;

/// The sender has a file of this many bytes.
pub(super) fn prepare(role: Role, store: &mut MemoryStore, size: usize) {
    if role == Role::Sender {
        store.insert(file("here"), bytes(size));
    }
}

/// Whether the receiver has it.
pub(super) fn check(receiver: &MemoryStore, size: usize) -> Result<(), String> {
    match receiver.get(&file("there")) {
        Some(content) if content == bytes(size) => Ok(()),
        Some(content) => Err(format!("another content, of {} bytes", content.len())),
        None => Err("no file".to_owned()),
    }
}

/// What an FTP node says of how it went.
pub(super) fn verdict(told: &Indication) -> Option<Verdict> {
    match told {
        Indication::Finished { .. } | Indication::Received { .. } => Some(Verdict::Delivered),
        Indication::Failed { .. } | Indication::Aborted { .. } => Some(Verdict::Failed),
        Indication::LoggedIn { .. }
        | Indication::Answered { .. }
        | Indication::Begun { .. }
        | Indication::Missing { .. }
        | Indication::Changed { .. }
        | Indication::Sent { .. }
        | Indication::Refused { .. } => None,
    }
}
