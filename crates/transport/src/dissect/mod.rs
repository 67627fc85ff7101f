//! Dissectors: descriptions of the datagrams of a protocol, one file per protocol.

pub mod cfdp;
pub mod ltp;
pub mod norm;
pub mod saratoga;
pub mod tcp;
pub mod udpcl;

use std::fmt;

use wire::DecodeError;

/// Kind of a packet for a trace, and its number or offset.
pub type Described = (String, Option<u64>);

/// Prefix of the description of a packet of another protocol.
pub(crate) const UNKNOWN: &str = "not ";

/// Function that describes a datagram in one line.
pub type Line = fn(&[u8]) -> Result<String, DecodeError>;

/// Reader of a protocol's packets.
pub struct Dissector {
    /// Name of the protocol in texts.
    pub title: &'static str,
    /// One line about a datagram, if its datagrams can be read alone.
    pub line: Option<Line>,
    /// Check against chance matches, where the protocol is guessed: fields that almost any bytes
    /// could contain do not count.
    pub plausible: fn(&[u8]) -> Result<(), DecodeError>,
    /// Kind of a packet for a trace.
    pub describe: fn(&[u8]) -> Described,
}

impl fmt::Debug for Dissector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.title)
    }
}

impl PartialEq for Dissector {
    fn eq(&self, other: &Self) -> bool {
        self.title == other.title
    }
}

impl Eq for Dissector {}

impl fmt::Display for Dissector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.title)
    }
}

impl Dissector {
    /// One line about a datagram.
    ///
    /// # Errors
    ///
    /// The datagram is malformed, or not readable alone.
    pub fn line(&self, datagram: &[u8]) -> Result<String, DecodeError> {
        let unreadable =
            || DecodeError::invalid(0, "a part of a stream, which is not put together");
        self.line.ok_or_else(unreadable)?(datagram)
    }

    /// Fields of a packet whose protocol is guessed.
    ///
    /// # Errors
    ///
    /// The datagram is malformed, or could be anything.
    pub fn likely(&self, datagram: &[u8]) -> Result<String, DecodeError> {
        (self.plausible)(datagram)?;
        self.line(datagram)
    }
}

/// All dissectors, in the order of attempts.
pub const ALL: &[&Dissector] = &[
    &cfdp::DISSECTOR,
    &ltp::DISSECTOR,
    &saratoga::DISSECTOR,
    &norm::DISSECTOR,
    &tcp::DISSECTOR,
    &udpcl::DISSECTOR,
];

/// Description of a packet in a world that uses these protocols, by the first that can read it.
#[must_use]
pub fn describe(dissectors: &[&Dissector], packet: &[u8]) -> Described {
    let mut known = dissectors.iter().map(|dissector| (dissector.describe)(packet));
    let first = known.next().unwrap_or_else(|| ("unknown".to_owned(), None));
    if first.0.starts_with(UNKNOWN) {
        return known.find(|(kind, _)| !kind.starts_with(UNKNOWN)).unwrap_or(first);
    }
    first
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bundles_are_known_in_datagrams_and_over_tcp() {
        let fragment = wire::udpcl::Fragment { bundle: 3, length: 40, offset: 7, data: b"x" };
        let fragment = [&fragment.header()[..], b"x"].concat();
        let both = [&tcp::DISSECTOR, &udpcl::DISSECTOR];
        for (datagram, what) in [
            (&[0x9f, 0x88][..], ("bundle", None)),
            (&[0x06, 0][..], ("bundle", None)),
            (&[0; 4][..], ("keep-alive", None)),
            (&fragment[..], ("part of bundle 3", Some(7))),
        ] {
            let (kind, number) = describe(&both, datagram);
            assert_eq!((kind.as_str(), number), what);
        }
        assert!(describe(&both, &[0x45, 0]).0.starts_with(UNKNOWN));
    }
}
