//! Named settings.

use std::time::Duration;

use crate::packet::{Width, v0};

use super::config::{ChecksumKind, Config, Congestion, Limits, Remote, Timer, Version};

/// Maximum silence of the programs of 2011.
const SILENCE: Duration = Duration::from_secs(16);

/// Settings of a profile; `None` if the name is unknown.
///
/// * `default`: slowlight's own.
/// * `deferred`: requests a STATUS only at the end, like the deferred modes of other protocols:
///   for return links on which each packet is expensive.
/// * `sha1`: files carry SHA-1 instead of CRC-32C.
/// * `tfrc`: congestion control, for shared networks; slow over links with bit errors.
/// * `grc-perl-2011`: version 0 as seen in a capture of 2011: only get, 1,024 bytes of file data
///   per packet, each packet paced as a full one, one poll per second once everything was sent, at
///   most 16 s of silence. The receiver reports completion once, and replies to no poll after
///   that.
#[must_use]
pub fn profile(name: &str) -> Option<Config> {
    match name {
        "default" => Some(Config::default()),
        "deferred" => {
            let default_remote = Remote { status_interval: None, ..Remote::default() };
            Some(Config { default_remote, ..Config::default() })
        }
        "sha1" => Some(Config { checksum: ChecksumKind::Sha1, ..Config::default() }),
        "tfrc" => {
            let default_remote = Remote { congestion: Congestion::Tfrc, ..Remote::default() };
            Some(Config { default_remote, ..Config::default() })
        }
        "grc-perl-2011" => {
            let default_remote = Remote {
                payload_max: Some(v0::DATA_LEN),
                pace_as: Some(v0::DATA_OVERHEAD + v0::DATA_LEN),
                descriptor_min: Width::W32,
                status_interval: None,
                request_timer: Timer::Fixed(SILENCE),
                answer_timer: Timer::Fixed(Duration::from_secs(1)),
                inactivity: Timer::Fixed(SILENCE),
                repair_copies: 1,
                ..Remote::default()
            };
            Some(Config {
                version: Version::V0,
                descriptor: Width::W32,
                checksum: ChecksumKind::None,
                default_remote,
                limits: Limits { closed: 0, ..Limits::default() },
                ..Config::default()
            })
        }
        _ => None,
    }
}
