//! Common parts of the transfers of the conformance suite over TCP.

use engine::FileName;
use engine::conformance::{Role, Verdict};
use models::ftp::Indication;
use tcp::Buffer;

use super::super::Config;
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
