//! Settings with a name.

use super::config::{ChecksumKind, Config, Remote};

/// The settings of a profile; `None` if there is none of this name.
///
/// * `default`: slowlight's own.
/// * `deferred`: asks what arrived only at the end, as the deferred modes of other protocols do: for
///   return links on which each packet is dear.
/// * `sha1`: files go with SHA-1 in place of CRC-32C.
#[must_use]
pub fn profile(name: &str) -> Option<Config> {
    match name {
        "default" => Some(Config::default()),
        "deferred" => {
            let default_remote = Remote { status_interval: None, ..Remote::default() };
            Some(Config { default_remote, ..Config::default() })
        }
        "sha1" => Some(Config { checksum: ChecksumKind::Sha1, ..Config::default() }),
        _ => None,
    }
}
