//! Settings with a name.

use std::time::Duration;

use wire::saratoga::{Width, v0};

use super::config::{ChecksumKind, Config, Congestion, Limits, Remote, Timer, Version};

/// How long the programs of 2011 waited for each other.
const SILENCE: Duration = Duration::from_secs(16);

/// The settings of a profile; `None` if there is none of this name.
///
/// * `default`: slowlight's own.
/// * `deferred`: asks what arrived only at the end, as the deferred modes of other protocols do: for
///   return links on which each packet is dear.
/// * `sha1`: files go with SHA-1 in place of CRC-32C.
/// * `tfrc`: heeds congestion, for networks that are shared; slow over links with bit errors.
/// * `grc-perl-2011`: version 0 as a capture of 2011 shows it: get and nothing else, 1,024 bytes of the
///   file a packet, each packet in the time of a full one, a poll a second once all was sent, 16 s of
///   silence at most. The receiver says once that all is there, and answers no poll after that.
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
