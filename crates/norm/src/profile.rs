//! Named settings of other implementations.

use std::time::Duration;

use crate::message::Scheme;

use super::config::{Config, EndGame, Waste};

/// Settings of a profile; `None` if the name is unknown.
///
/// `cc` enables congestion control: the rate follows the receivers' reports (RFC 5740 §5.5.2).
///
/// `coded` uses blocks as long as the file, up to 24,576 segments, and parity of FEC scheme 130:
/// only slowlight understands it. `coded-cc` is the same with congestion control, `coded-eager`
/// sends parity until receivers report that they have enough.
///
/// `nrl-2011` is the library of the U.S. Naval Research Laboratory of March 2011, as seen in the
/// first paper's captures. It sends segments of 1,024 bytes in blocks of 32, with an initial
/// greatest round trip of 0.25 s. It sends 20 flushes at intervals of twice the greatest round
/// trip, without acknowledgements that would end them.
#[must_use]
pub fn profile(name: &str) -> Option<Config> {
    match name {
        "default" => Some(Config::default()),
        "cc" => Some(cc()),
        "coded" => Some(coded()),
        "coded-cc" => {
            let mut config = coded();
            config.sender.congestion_control = true;
            Some(config)
        }
        "coded-eager" => {
            let mut config = coded();
            config.sender.waste = Waste::RoundTrip;
            Some(config)
        }
        "nrl-2011" => Some(nrl_2011()),
        _ => None,
    }
}

fn cc() -> Config {
    let mut config = Config::default();
    config.sender.congestion_control = true;
    config
}

fn coded() -> Config {
    let mut config = Config::default();
    let sender = &mut config.sender;
    sender.fec = Scheme::Compact;
    // With 8,192 parity positions, a recovery is 32,768 symbols wide.
    sender.block_len = 24_576;
    sender.parity = 0;
    sender.fti_in_data = false;
    sender.tail_parity = false;
    config
}

fn nrl_2011() -> Config {
    let mut config = Config::default();
    let sender = &mut config.sender;
    sender.segment_size = Some(1024);
    sender.block_len = 32;
    sender.parity = 0;
    sender.grtt_initial = Duration::from_millis(250);
    sender.grtt_of_path = false;
    sender.grtt_max = Duration::from_secs(10);
    sender.backoff = Some(4);
    sender.group_size = Some(1000);
    sender.collect = true;
    sender.tail_parity = false;
    sender.end = EndGame::Flush;
    config
}
