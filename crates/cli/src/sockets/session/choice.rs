//! Choice of the protocol for a file, where the command line has none.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::Result;
use serde::{Deserialize, Serialize};
use transport::contract::Feature;
use transport::protocol::Protocol;
use transport::quantity::{Rate, Span};

use super::remembered::{self, Fact, Remembered};
use crate::sockets::transfer::Options;

/// One-way light time from which on repairs without round trips save more than a file's checksum
/// is worth.
const LONG: Duration = Duration::from_secs(1);

/// Coded NORM, which keeps a given rate, and adapts to other traffic without one.
const CODED: &str = "norm/coded";
const CFDP: &str = "cfdp";

/// Protocol of the last confirmed transfer to a peer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Proven {
    protocol: String,
    /// Time, in seconds since 1970.
    at: u64,
}

impl Fact for Proven {
    const FILE: &str = "protocols.json";

    fn learnt_at(&self) -> u64 {
        self.at
    }
}

/// A protocol, and the reason for it.
#[derive(Debug)]
pub(crate) struct Choice {
    pub(crate) protocol: Protocol,
    pub(crate) why: &'static str,
}

/// Chooses the protocol for a file to `to`; `has_numbers`: entity numbers are given.
pub(crate) fn choose(options: &Options, to: SocketAddr, has_numbers: bool) -> Result<Choice> {
    let proven = remembered::recall();
    let proven = proven.as_ref().and_then(|known| proven_to(known, to));
    chosen(options, proven, has_numbers)
}

fn proven_to(known: &Remembered<Proven>, to: SocketAddr) -> Option<Protocol> {
    // A later version may not have it any more.
    known.about(&to.to_string())?.protocol.parse().ok()
}

fn chosen(options: &Options, proven: Option<Protocol>, has_numbers: bool) -> Result<Choice> {
    let is_paced = options.rate.is_some_and(|rate: Rate| rate.bps() > 0);
    let is_long = options.delay.map_or(Duration::ZERO, Span::duration) >= LONG;
    let (name, why) = match proven {
        _ if has_numbers => (CFDP, "it has entity numbers"),
        // Without a rate, most fill the path whatever else uses it.
        Some(protocol) if is_paced || adapts(&protocol) => {
            let why = "it delivered the last file to this address";
            return Ok(Choice { protocol, why });
        }
        _ if is_paced && !is_long => (CFDP, "it keeps to --rate, and checks the whole file"),
        _ if is_paced => (CODED, "it keeps to --rate, and its repairs need no round trip"),
        _ => (CODED, "it adapts to other traffic, as there is no --rate"),
    };
    Ok(Choice { protocol: name.parse()?, why })
}

/// Whether a protocol without a rate leaves room for other traffic.
fn adapts(protocol: &Protocol) -> bool {
    protocol.is_controlled() || protocol.kind.has(Feature::Groups)
}

/// Keeps the protocol of a confirmed transfer for the next one to the same peer.
pub(super) fn remember(to: SocketAddr, protocol: &Protocol) {
    let proven = Proven { protocol: protocol.to_string(), at: remembered::now() };
    remembered::keep(&to.to_string(), proven);
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        options: Options,
    }

    #[test]
    fn rate_and_delay_decide_unless_a_protocol_is_proven() {
        let chosen = |words: &[&str], proven: Option<&str>, has_numbers| {
            let line = Line::parse_from([&["x"][..], words].concat());
            let proven = proven.map(|name| name.parse().unwrap());
            chosen(&line.options, proven, has_numbers).unwrap().protocol.to_string()
        };
        assert_eq!(chosen(&[], None, false), "norm/coded");
        assert_eq!(chosen(&["--rate", "0"], None, false), "norm/coded");
        assert_eq!(chosen(&["--rate", "1 Mbit/s"], None, false), "cfdp");
        let long = ["--rate", "1 Mbit/s", "--delay", "1.28 s"];
        assert_eq!(chosen(&long, None, false), "norm/coded");
        assert_eq!(chosen(&long, Some("saratoga"), false), "saratoga");
        assert_eq!(chosen(&long, Some("saratoga"), true), "cfdp");
        assert_eq!(chosen(&[], Some("saratoga"), false), "norm/coded");
        assert_eq!(chosen(&[], Some("saratoga/tfrc"), false), "saratoga/tfrc");
        assert_eq!(chosen(&[], Some("norm"), false), "norm");
    }

    #[test]
    fn a_proven_protocol_is_kept_for_its_peer() {
        let place = tempfile::tempdir().unwrap();
        let to = SocketAddr::from(([127, 0, 0, 1], 7542));
        let mut known = Remembered::<Proven>::read(place.path());
        for (peer, protocol) in [(to.to_string(), "ltp/checkpoints"), ("a:1".into(), "gone")] {
            known.note(&peer, Proven { protocol: protocol.to_owned(), at: 1 });
        }
        known.write(place.path()).unwrap();
        let known = Remembered::read(place.path());
        assert_eq!(proven_to(&known, to), Some("ltp/checkpoints".parse().unwrap()));
        assert_eq!(proven_to(&known, SocketAddr::from(([127, 0, 0, 2], 7542))), None);
    }
}
