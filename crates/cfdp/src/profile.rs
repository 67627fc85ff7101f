//! Named settings.

use std::time::Duration;

use crate::pdu::{ChecksumType, TransmissionMode, Version, Width};

use super::config::user_operations::Permissions;
use super::config::{Config, HostDelays, NakMode, Naks, Remote, Timer};

/// Settings of a profile; `None` if the name is unknown. The caller sets the entity's number and
/// its remotes.
///
/// * `default`: best settings between two entities of this implementation.
/// * `gsfc-2007`: the engine 3.1a1 of the Goddard Space Flight Center as measured in 2011 over an
///   emulated link: version 000, modular checksum, 997 bytes per PDU, 20 gaps per NAK, timers of
///   50 s, and the processing delays of its hosts.
/// * `extended-b3`: classes 3 and 4 of issues 1 to 4: version 000; any entity that may send PDUs
///   here may have them relayed. The caller sets the routes. The layout of the PDUs is verified,
///   the procedures are not: no other implementation was found.
#[must_use]
pub fn profile(name: &str) -> Option<Config> {
    match name {
        "default" => Some(Config::default()),
        "gsfc-2007" => Some(gsfc_2007()),
        "extended-b3" => Some(extended_b3()),
        _ => None,
    }
}

fn extended_b3() -> Config {
    let permissions = Permissions { relay: true, ..Permissions::default() };
    let remote = Remote { version: Version::V0, permissions, ..Remote::default() };
    Config { default_remote: remote, ..Config::default() }
}

fn gsfc_2007() -> Config {
    let fifty = Timer::Fixed(Duration::from_secs(50));
    let day = Duration::from_secs(86_400);
    let remote = Remote {
        version: Version::V0,
        mode: TransmissionMode::Acknowledged,
        checksum: ChecksumType::Modular,
        entity_width: Some(Width::TWO),
        // 14 bytes of header and offset, 997 of data: 1,011 of at most 1,029 per PDU.
        segment_max: Some(997),
        datagram_max: Some(1029),
        naks: Naks {
            mode: NakMode::Deferred,
            // The engine kept at most 20 gaps per transaction.
            gaps_max: Some(20),
            pdus_per_round_max: Some(1),
            timer: fifty,
            limit: Some(250),
        },
        repair_copies: 1,
        ack_timer: fifty,
        ack_limit: Some(250),
        inactivity: Timer::Fixed(day),
        probe: Timer::Fixed(day),
        host_delays: HostDelays {
            metadata_to_data: Duration::from_micros(33),
            eof_to_ack: Duration::from_micros(269),
            ack_to_nak: Duration::from_micros(234),
            nak_to_repair: Duration::from_micros(3900),
            // 63.5 ms for 10 MB and 0.178 ms for 10 KB: 0.115 ms + 6.34 ms per 10^6 bytes.
            complete_to_finished: Duration::from_micros(115),
            complete_to_finished_per_mb: Duration::from_micros(6340),
            finished_to_ack: Duration::from_micros(700),
        },
        ..Remote::default()
    };
    Config {
        sequence_width: Width::TWO,
        first_sequence: Some(1),
        default_remote: remote,
        ..Config::default()
    }
}
