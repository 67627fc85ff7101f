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

/// Function that separates the PDUs of a captured packet, of which the last part may be none. The
/// parts follow each other, and none is empty.
pub type Split = fn(&[u8]) -> Vec<&[u8]>;

/// Reader of a protocol's packets.
pub struct Dissector {
    /// Name of the protocol in texts.
    pub title: &'static str,
    /// One line about a datagram, if its datagrams can be read alone.
    pub line: Option<Line>,
    /// Separates the datagrams of a packet that was captured before a network card segmented it,
    /// or after the receiving one joined it.
    pub split: Split,
    /// Check against chance matches, where the protocol is guessed: fields that almost any bytes
    /// could contain do not count.
    pub plausible: fn(&[u8]) -> Result<(), DecodeError>,
    /// Whether a sender can begin with a datagram: every length adds up, every fixed or reserved
    /// field has its value, and nothing is left over.
    pub begins: fn(&[u8]) -> bool,
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

/// The packet as a single datagram.
fn single(packet: &[u8]) -> Vec<&[u8]> {
    if packet.is_empty() { Vec::new() } else { vec![packet] }
}

/// Parts of a packet whose PDUs have their lengths, by the length of the first PDU.
fn by_length(mut packet: &[u8], first: impl Fn(&[u8]) -> Result<usize, DecodeError>) -> Vec<&[u8]> {
    let mut parts = Vec::new();
    while !packet.is_empty() {
        let len = first(packet).unwrap_or(packet.len()).clamp(1, packet.len());
        let (part, rest) = packet.split_at(len);
        parts.push(part);
        packet = rest;
    }
    parts
}

/// Part of a packet.
struct Part<'a> {
    /// Number of parts before it.
    number: usize,
    /// Offset of its first byte in the packet.
    start: usize,
    bytes: &'a [u8],
}

/// Parts of a packet of equal datagrams, of which the last may be shorter: segmentation offload
/// makes no others. Their length is the shortest with which `is_next` accepts all but the first.
fn by_likeness(packet: &[u8], is_next: impl Fn(&Part<'_>) -> bool) -> Vec<&[u8]> {
    let is_right = |len: &usize| {
        packet
            .chunks(*len)
            .enumerate()
            .skip(1)
            .all(|(number, bytes)| is_next(&Part { number, start: number * len, bytes }))
    };
    let len = (PARTS_MIN..packet.len()).find(is_right);
    len.map_or_else(|| single(packet), |len| packet.chunks(len).collect())
}

/// Minimum length of several equal datagrams.
const PARTS_MIN: usize = 16;
/// Payload of the longest datagram in a packet of Ethernet.
pub const ETHERNET_MAX: usize = 1472;

/// All dissectors, in the order of attempts.
pub const ALL: &[&Dissector] = &[
    &cfdp::DISSECTOR,
    &ltp::DISSECTOR,
    &saratoga::DISSECTOR,
    &norm::DISSECTOR,
    &tcp::DISSECTOR,
    &udpcl::DISSECTOR,
];

/// Protocols of [`other_than`]: those that transfer files in datagrams.
const OF_FILES: [&Dissector; 4] =
    [&cfdp::DISSECTOR, &ltp::DISSECTOR, &saratoga::DISSECTOR, &norm::DISSECTOR];

/// Minimum length of a datagram of [`other_than`]: any shorter bytes may be one of LTP.
const KNOWN_MIN: usize = 8;

/// Returns the protocol of a datagram that another than `own` sent, if only one of the protocols
/// can read all of it.
#[must_use]
pub fn other_than(own: &Dissector, datagram: &[u8]) -> Option<&'static Dissector> {
    // PDUs of CFDP and LTP have lengths: bytes behind the last one must be a PDU, too.
    let is_whole = |reader: &Dissector| {
        (reader.split)(datagram).into_iter().all(|part| reader.likely(part).is_ok())
    };
    if datagram.len() < KNOWN_MIN || is_whole(own) {
        return None;
    }
    let mut readers = OF_FILES.into_iter().filter(|other| is_whole(other));
    let first = readers.next()?;
    readers.next().is_none().then_some(first)
}

/// Protocol whose sender begins with a datagram, of those that transfer files in datagrams; `None`
/// if it is none's.
///
/// The first bytes of several protocols can be equal: 0x20 to 0x24 begin PDUs of CFDP as well as
/// packets of Saratoga, and version 0 of CFDP has the numbers of LTP and NORM. If several readers
/// accept all of a datagram, the first of this order has it, by the strictness of the length:
///
/// | Protocol | Its datagram |
/// |---|---|
/// | CFDP | one PDU whose header has its exact length, of a known directive |
/// | LTP | one data segment of the file service, or a sender's cancellation, of exact length |
/// | Saratoga | version 1: a beacon, REQUEST, METADATA or DATA, without reserved flags |
/// | NORM | NORM_INFO, NORM_DATA or a defined NORM_CMD, whose header has its exact length |
#[must_use]
pub fn begun_with(datagram: &[u8]) -> Option<&'static Dissector> {
    OF_FILES.into_iter().find(|reader| (reader.begins)(datagram))
}

/// Title of the protocol of a datagram that another than `own` sent, if one of those that transfer
/// files is likely.
#[must_use]
pub fn title_of_other(own: &Dissector, datagram: &[u8]) -> Option<&'static str> {
    if own.title != ltp::DISSECTOR.title && ltp::carries_cfdp(datagram) {
        return Some("CFDP over LTP");
    }
    let is_own = (own.begins)(datagram);
    let first = || begun_with(datagram).filter(|reader| *reader != own && !is_own);
    other_than(own, datagram).or_else(first).map(|reader| reader.title)
}

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
    use ::saratoga::packet::{Content, Data, Packet, Width, v0};
    use proptest::prelude::*;

    use super::*;

    /// Lengths of the parts, each of which can be read.
    fn lens(dissector: &Dissector, parts: &[Vec<u8>]) -> Vec<usize> {
        let packet = parts.concat();
        let split = (dissector.split)(&packet);
        assert!(split.iter().all(|part| dissector.likely(part).is_ok()), "{dissector}");
        split.iter().map(|part| part.len()).collect()
    }

    /// Number of equal datagrams, length of their data, and that of the last.
    const BATCHES: [(usize, usize, usize); 4] =
        [(3, 1448, 1448), (44, 1400, 1), (2, 500, 20), (0, 0, 90)];

    fn pieces((count, len, last): (usize, usize, usize)) -> impl Iterator<Item = Vec<u8>> {
        (0..count).map(move |_| len).chain([last]).map(|len| vec![0x5a; len])
    }

    #[test]
    fn joined_datagrams_are_separated() {
        let of_saratoga = |(offset, bytes): (usize, Vec<u8>)| {
            let (is_end, data) = (bytes.len() < 100, &bytes[..]);
            let (descriptor, content, timestamp) = (Width::W32, Content::File, None);
            let (wants_status, session, offset) = (is_end, 7, offset as u64);
            let data = Data {
                descriptor,
                content,
                timestamp,
                wants_status,
                is_end,
                session,
                offset,
                data,
            };
            Packet::Data(data).to_vec().unwrap()
        };
        let of_version_0 = |(offset, bytes): (usize, Vec<u8>)| {
            let (offset, data) = (offset as u32, &bytes[..]);
            let data = v0::Data { wants_status: true, session: 7, offset, data };
            v0::Packet::Data(data).to_vec().unwrap()
        };
        let of_norm = |number: usize, bytes: Vec<u8>| {
            let head =
                [0x12, 5, 0xff, 0xf0, 0, 0, 0, 1, 0x12, 0x34, 0x72, 0x40, 0, 5, 0, 0, 0, 0, 0, 0];
            let mut message = [&head[..], &bytes].concat();
            // The numbers wrap.
            let sequence = 0xfff0_u16.wrapping_add(number as u16);
            message[2..4].copy_from_slice(&sequence.to_be_bytes());
            message[19] = number as u8;
            message
        };
        let of_cfdp = |bytes: Vec<u8>| {
            let len = (4 + bytes.len()) as u16;
            let head = [&[0x30][..], &len.to_be_bytes(), &[0, 1, 8, 2, 0, 0, 0, 0]].concat();
            [head, bytes].concat()
        };
        let of_ltp = |bytes: Vec<u8>| {
            let len = [0x80 | (bytes.len() >> 7) as u8, (bytes.len() & 0x7f) as u8];
            [&[0, 1, 2, 0, 1, 0][..], &len, &bytes].concat()
        };
        for batch in BATCHES {
            let at = || pieces(batch).enumerate().map(|(number, bytes)| (number * batch.1, bytes));
            let numbered = || pieces(batch).enumerate();
            for (dissector, header, parts) in [
                (&saratoga::DISSECTOR, 12, at().map(of_saratoga).collect::<Vec<_>>()),
                (&saratoga::DISSECTOR, 10, at().map(of_version_0).collect()),
                (&norm::DISSECTOR, 20, numbered().map(|(n, bytes)| of_norm(n, bytes)).collect()),
                (&cfdp::DISSECTOR, 11, pieces(batch).map(of_cfdp).collect()),
                (&ltp::DISSECTOR, 8, pieces(batch).map(of_ltp).collect()),
            ] {
                let sizes: Vec<usize> = pieces(batch).map(|data| header + data.len()).collect();
                assert_eq!(lens(dissector, &parts), sizes, "{dissector} {batch:?}");
            }
        }
    }

    #[test]
    fn first_datagrams_of_senders_are_known_to_the_others() {
        for (sender, digits) in [
            (&cfdp::DISSECTOR, "20001203019f79d0100207020000271005662e62696e05662e62696e"),
            (&cfdp::DISSECTOR, "2400120301a86bc5550207020000271005662e62696e05662e62696e"),
            (&ltp::DISSECTOR, "0001adcf87040040008b3558e5dad806cc27cb7275f9"),
            (&saratoga::DISSECTOR, "2200001183b6f39af30d4cac80002710329e3a0900000000662e62696e00"),
            (&norm::DISSECTOR, "13070000f1697dbb5a6d9d0004000000000000010000290a80002005"),
        ] {
            let mut datagram: Vec<u8> = (0..digits.len() / 2)
                .map(|at| u8::from_str_radix(&digits[2 * at..2 * at + 2], 16).unwrap())
                .collect();
            if *sender == ltp::DISSECTOR {
                // A segment with 1,461 bytes of data.
                datagram.truncate(9);
                datagram.extend([0x8b, 0x35]);
                datagram.resize(1472, 0x58);
            }
            for own in OF_FILES {
                let expected = (own != sender).then_some(sender);
                assert_eq!(other_than(own, &datagram), expected, "{sender} at {own}");
            }
            assert_eq!(begun_with(&datagram), Some(sender));
        }
    }

    /// Golden datagrams of a crate.
    fn golden(name: &str) -> Vec<(String, Vec<u8>)> {
        let folder = format!("{}/../{name}/testdata", env!("CARGO_MANIFEST_DIR"));
        let files = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap());
        let vectors = files.map(|file| {
            let text = std::fs::read_to_string(file.path()).unwrap();
            let lines = text.lines().filter(|line| !line.starts_with('#'));
            let digits: String = lines.flat_map(str::split_whitespace).collect();
            let byte = |at| u8::from_str_radix(&digits[2 * at..2 * at + 2], 16).unwrap();
            let bytes = (0..digits.len() / 2).map(byte).collect();
            (file.file_name().into_string().unwrap(), bytes)
        });
        vectors.collect()
    }

    #[test]
    fn golden_datagrams_are_of_their_protocol() {
        for (reader, name) in [(&cfdp::DISSECTOR, "cfdp"), (&norm::DISSECTOR, "norm")] {
            let mut known = 0;
            for (file, datagram) in golden(name) {
                if file.starts_with("fec_") {
                    // Symbols of a code.
                    continue;
                }
                let of_receivers = ["nack", "ack_cc", "ack_flush"];
                let is_first = !of_receivers.iter().any(|kind| file.starts_with(kind));
                let expected = is_first.then_some(reader);
                assert_eq!(begun_with(&datagram), expected, "{name} {file}");
                known += usize::from(is_first);
            }
            assert!(known > 8, "{known} vectors of {name}");
        }
    }

    #[test]
    fn noise_is_of_no_protocol() {
        let mut rng = engine::Rng::new(1, "noise");
        for own in OF_FILES {
            for byte in 0..=u8::MAX {
                for len in [1, 2, 7] {
                    assert_eq!(other_than(own, &vec![byte; len]), None);
                }
            }
            let mut known = 0;
            for len in (1..1001).cycle().take(100_000) {
                let mut bytes = vec![0; len];
                rng.fill(&mut bytes);
                known += u32::from(other_than(own, &bytes).is_some());
            }
            assert!(known < 2000, "{own}: {known} of 100,000");
        }
    }

    #[test]
    fn data_like_a_header_does_not_separate_a_datagram() {
        let (descriptor, content, timestamp) = (Width::W32, Content::File, None);
        let data = |offset, data: &[u8]| {
            let data = Data {
                descriptor,
                content,
                timestamp,
                wants_status: false,
                is_end: false,
                session: 0,
                offset,
                data,
            };
            Packet::Data(data).to_vec().unwrap()
        };
        for (offset, parts) in [(9000, 1), (60, 2)] {
            let whole = data(0, &[vec![1; 60], data(offset, &[1; 40])].concat());
            assert_eq!((saratoga::DISSECTOR.split)(&whole).len(), parts, "{offset}");
        }
    }

    proptest! {
        #[test]
        fn parts_are_the_packet(
            bytes in prop::collection::vec(any::<u8>(), 0..300),
            first in prop::sample::select(vec![0x00_u8, 0x01, 0x20, 0x22, 0x30, 0x12, 0x13]),
        ) {
            let mut bytes = bytes;
            if let Some(start) = bytes.first_mut() {
                *start = first;
            }
            for dissector in ALL {
                let parts = (dissector.split)(&bytes);
                prop_assert!(parts.iter().all(|part| !part.is_empty()));
                prop_assert_eq!(parts.concat(), &bytes[..]);
            }
        }
    }

    #[test]
    fn bundles_are_known_in_datagrams_and_over_tcp() {
        let fragment = bp::codec::udpcl::Fragment { bundle: 3, length: 40, offset: 7, data: b"x" };
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
