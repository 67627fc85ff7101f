//! Common parts of the transfers of the conformance suite over TCP.

use engine::conformance::{Role, Verdict};
use engine::{FileName, MemoryStore};
use models::ftp::Indication;
use tcp::Buffer;

use super::super::Config;
use super::bytes;
use super::world::{address, config};

pub(super) fn file(name: &str) -> FileName {
    FileName::file(name).unwrap()
}

/// A host that gives up a dead peer within the time that the suite allows, and soon reaches the
/// suite's bounds.
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

/// Maximum memory of such a host: 32 streams with two buffers of 16 KiB and 64 KiB kept, and the
/// stack's state.
pub(super) const HOST_MAX: usize = 6 << 20;

/// Gives the sender a file of this many bytes.
pub(super) fn prepare(role: Role, store: &mut MemoryStore, size: usize) {
    if role == Role::Sender {
        store.insert(file("here"), bytes(size));
    }
}

/// Checks that the receiver has it.
pub(super) fn check(receiver: &MemoryStore, size: usize) -> Result<(), String> {
    match receiver.get(&file("there")) {
        Some(content) if content == bytes(size) => Ok(()),
        Some(content) => Err(format!("another content, of {} bytes", content.len())),
        None => Err("no file".to_owned()),
    }
}

/// Result of an FTP node.
pub(super) fn verdict(indication: &Indication) -> Option<Verdict> {
    match indication {
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
