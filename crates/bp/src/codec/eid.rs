//! Endpoint identifiers: the names of bundles' sources and destinations, in both versions of the
//! Bundle Protocol and in convergence layers.
//!
//! As text (RFC 9171 §4.2.5.1, RFC 9758 §4):
//!
//! | text | meaning |
//! |---|---|
//! | `dtn:none`, `ipn:0.0` | the null endpoint; both decode to the same value |
//! | `dtn://node/service` | scheme `dtn`; version 7 requires the slash behind the node's name |
//! | `ipn:node.service` | scheme `ipn`, node numbers of the default allocator |
//! | `ipn:allocator.node.service` | scheme `ipn`, another allocator |
//! | `ipn:!.service` | the local node |
//!
//! As CBOR (RFC 9171 §4.2.5.1, RFC 9758 §6): an array of the scheme's number and the
//! scheme-specific part. For `dtn` (1) that part is 0 or a text; for `ipn` (2) it is an array of
//! two or three numbers. Three numbers are written only if the allocator is not the default one,
//! as RFC 9758 §6.1.2 recommends.

use std::fmt;
use std::str::FromStr;

use thiserror::Error;
use wire::cursor::Reader;
use wire::{DecodeError, EncodeError, excerpt};

use crate::codec::cbor::{self, Array};

/// Default maximum length of an endpoint's text, in bytes. RFC 7242 and RFC 9174 leave it open; in
/// bundles of version 6 each half is limited to 1,023 (RFC 5050 §4.4).
pub const LEN_MAX: usize = 1023;
/// Node number of the local node, with the default allocator (RFC 9758 §3.4.2).
pub const LOCAL_NODE: u64 = 0xffff_ffff;

const DTN: u64 = 1;
const IPN: u64 = 2;

/// Endpoint identifier.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Eid {
    /// Null endpoint, `dtn:none`.
    #[default]
    None,
    /// Service of a numbered node.
    Ipn {
        /// Node: its allocator in the upper 32 bits, its number in the lower (RFC 9758 §3.3.1).
        node: u64,
        /// Service; 0 is the administrative endpoint.
        service: u64,
    },
    /// Scheme `dtn`: the text after the colon, for instance `//node/service`.
    Dtn(Box<str>),
    /// Another scheme, as the whole URI. Only bundles of version 6 can carry it.
    Uri(Box<str>),
    /// Scheme of unknown number, in a bundle of version 7.
    Unknown {
        /// Number of the scheme.
        scheme: u64,
        /// Scheme-specific part, one item of CBOR.
        part: Box<[u8]>,
    },
}

/// Text that names no endpoint.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error(
    "{text:?} names no endpoint: {why}; write ipn:NODE.SERVICE, dtn://NODE/SERVICE or dtn:none"
)]
pub struct ParseEidError {
    /// Excerpt of the text.
    pub text: String,
    /// Description of the error.
    pub why: &'static str,
}

impl Eid {
    /// Creates an endpoint of a node number of the default allocator. Node 0 is the null endpoint
    /// with any service (RFC 9758 §3.4.1).
    #[must_use]
    pub const fn ipn(node: u32, service: u64) -> Self {
        Self::from_numbers(node as u64, service)
    }

    /// Whether this is the null endpoint.
    #[must_use]
    pub const fn is_none(&self) -> bool {
        matches!(self, Self::None)
    }

    /// Whether this endpoint means the local node, and so must not cross a link (RFC 9758 §5.4).
    #[must_use]
    pub const fn is_local(&self) -> bool {
        matches!(self, Self::Ipn { node: LOCAL_NODE, .. })
    }

    /// Whether this is a singleton endpoint (RFC 9171 §4.2.5.1.1, RFC 9758 §5.1).
    #[must_use]
    pub fn is_singleton(&self) -> bool {
        match self {
            Self::None => false,
            Self::Ipn { .. } => true,
            Self::Dtn(part) => !demux(part).is_some_and(|demux| demux.starts_with('~')),
            // Services of other schemes are unknown.
            Self::Uri(_) | Self::Unknown { .. } => true,
        }
    }

    /// Returns the administrative endpoint of the same node, which names the node (RFC 9171
    /// §4.2.5.2).
    #[must_use]
    pub fn node(&self) -> Self {
        match self {
            Self::Ipn { node, .. } => Self::Ipn { node: *node, service: 0 },
            Self::Dtn(part) => match demux(part) {
                Some(demux) => Self::Dtn(part[..part.len() - demux.len()].into()),
                // Nodes of version 6 write their names without the slash.
                None if part.starts_with("//") => {
                    let name = part.find(['?', '#']).map_or(&**part, |end| &part[..end]);
                    Self::Dtn(format!("{name}/").into())
                }
                None => self.clone(),
            },
            Self::None | Self::Uri(_) | Self::Unknown { .. } => self.clone(),
        }
    }

    /// Returns the endpoint of a service name at this node; a text with a `:` is parsed as an
    /// endpoint.
    ///
    /// # Errors
    /// The result is not an endpoint.
    pub fn endpoint(&self, text: &str) -> Result<Self, ParseEidError> {
        if text.contains(':') {
            return text.parse();
        }
        let node = self.node().to_string();
        match self {
            Self::Ipn { .. } => format!("{}{text}", node.trim_end_matches('0')).parse(),
            Self::Dtn(_) | Self::None | Self::Uri(_) | Self::Unknown { .. } => {
                format!("{node}{text}").parse()
            }
        }
    }

    /// Returns the service name at its node.
    #[must_use]
    pub fn service(&self) -> Option<String> {
        match self {
            Self::Ipn { service, .. } => Some(service.to_string()),
            Self::Dtn(part) => demux(part).map(str::to_owned),
            Self::None | Self::Uri(_) | Self::Unknown { .. } => None,
        }
    }

    /// Returns the node, with its allocator in the upper 32 bits, of an endpoint of scheme `ipn`.
    pub(crate) const fn ipn_node(&self) -> Option<u64> {
        if let Self::Ipn { node, .. } = self { Some(*node) } else { None }
    }

    /// Returns the text in bundles of version 6.
    pub(crate) fn to_text(&self) -> Result<String, EncodeError> {
        match self {
            Self::Unknown { .. } => {
                Err(EncodeError::Conflict("an endpoint of an unknown scheme has no text"))
            }
            Self::None | Self::Ipn { .. } | Self::Dtn(_) | Self::Uri(_) => Ok(self.to_string()),
        }
    }

    /// Reads an endpoint from CBOR.
    pub(crate) fn read(reader: &mut Reader<'_>, max: usize) -> Result<Self, DecodeError> {
        let mut array = Array::begin(reader)?;
        let scheme = array.uint(reader)?;
        array.item(reader)?;
        let eid = match scheme {
            DTN => Self::read_dtn(reader, max)?,
            IPN => Self::read_ipn(reader)?,
            scheme => {
                let at = reader.offset();
                let part = cbor::item(reader)?;
                if part.len() > max {
                    return Err(DecodeError::invalid(at, "an endpoint is longer than the bound"));
                }
                Self::Unknown { scheme, part: part.into() }
            }
        };
        array.end(reader)?;
        Ok(eid)
    }

    fn read_dtn(reader: &mut Reader<'_>, max: usize) -> Result<Self, DecodeError> {
        let at = reader.offset();
        if reader.left().first().is_some_and(|byte| byte >> 5 == 0) {
            return match cbor::uint(reader)? {
                0 => Ok(Self::None),
                _ => Err(DecodeError::invalid(at, "a dtn endpoint's number is not 0")),
            };
        }
        let part = cbor::text(reader, max)?;
        // Some implementations write `none` as text.
        if part == "none" {
            return Ok(Self::None);
        }
        if !is_printable(&part) {
            return Err(DecodeError::invalid(at, "an endpoint is not printable ASCII"));
        }
        if !is_hierarchical(&part) {
            return Err(DecodeError::invalid(at, "a dtn endpoint is not //NODE/SERVICE"));
        }
        Ok(Self::Dtn(part.into()))
    }

    fn read_ipn(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let at = reader.offset();
        let mut array = Array::begin(reader)?;
        let first = array.uint(reader)?;
        let second = array.uint(reader)?;
        if !array.more(reader)? {
            return Ok(Self::from_numbers(first, second));
        }
        let service = cbor::uint(reader)?;
        array.end(reader)?;
        let (Ok(allocator), Ok(number)) = (u32::try_from(first), u32::try_from(second)) else {
            return Err(DecodeError::invalid(at, "an allocator or a node exceeds 32 bits"));
        };
        Ok(Self::from_numbers(u64::from(allocator) << 32 | u64::from(number), service))
    }

    /// Creates an endpoint from a node, with its allocator in the upper 32 bits, and a service. Node 0
    /// of the default allocator is the null endpoint with any service (RFC 9758 §3.4.1).
    pub(crate) const fn from_numbers(node: u64, service: u64) -> Self {
        if node == 0 { Self::None } else { Self::Ipn { node, service } }
    }

    /// Writes the endpoint as CBOR.
    pub(crate) fn write(&self, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        cbor::put_array(out, 2);
        match self {
            Self::None => {
                cbor::put_uint(out, DTN);
                cbor::put_uint(out, 0);
            }
            Self::Dtn(part) if !is_hierarchical(part) => {
                return Err(EncodeError::Conflict("a dtn endpoint is not dtn://NODE/SERVICE"));
            }
            Self::Dtn(part) => {
                cbor::put_uint(out, DTN);
                cbor::put_text(out, part);
            }
            Self::Ipn { node, service } => {
                cbor::put_uint(out, IPN);
                match node >> 32 {
                    0 => cbor::put_array(out, 2),
                    allocator => {
                        cbor::put_array(out, 3);
                        cbor::put_uint(out, allocator);
                    }
                }
                cbor::put_uint(out, node & LOCAL_NODE);
                cbor::put_uint(out, *service);
            }
            Self::Uri(_) => {
                return Err(EncodeError::Conflict(
                    "only dtn and ipn endpoints have a number of their scheme",
                ));
            }
            Self::Unknown { scheme, part } => {
                cbor::put_uint(out, *scheme);
                out.extend_from_slice(part);
            }
        }
        Ok(())
    }
}

/// Returns the part after the node's name in `//node/demux`.
fn demux(part: &str) -> Option<&str> {
    part.strip_prefix("//")?.split_once('/').map(|(_, demux)| demux)
}

/// Whether this is the `//node/demux` of RFC 9171 §4.2.5.1.1, whose node is a `reg-name` of RFC
/// 3986 §3.2.2: otherwise the same node had several names.
fn is_hierarchical(part: &str) -> bool {
    let node = part.strip_prefix("//").and_then(|part| part.split_once('/'));
    node.is_some_and(|(node, _)| {
        node.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._~%!$&'()*+,;=".contains(&byte))
    })
}

fn is_printable(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_graphic())
}

impl fmt::Display for Eid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => f.write_str("dtn:none"),
            Self::Ipn { node: LOCAL_NODE, service } => write!(f, "ipn:!.{service}"),
            Self::Ipn { node, service } => match node >> 32 {
                0 => write!(f, "ipn:{node}.{service}"),
                allocator => write!(f, "ipn:{allocator}.{}.{service}", node & LOCAL_NODE),
            },
            Self::Dtn(part) => write!(f, "dtn:{part}"),
            Self::Uri(uri) => f.write_str(uri),
            Self::Unknown { scheme, part } => {
                write!(f, "(scheme {scheme}, ")?;
                part.iter().try_for_each(|byte| write!(f, "{byte:02x}"))?;
                f.write_str(")")
            }
        }
    }
}

impl FromStr for Eid {
    type Err = ParseEidError;

    fn from_str(text: &str) -> Result<Self, ParseEidError> {
        let wrong = |why| ParseEidError { text: excerpt(text), why };
        if text.len() > LEN_MAX {
            return Err(wrong("it is longer than 1,023 characters"));
        }
        if !is_printable(text) {
            return Err(wrong("it has blanks, or characters that are not ASCII"));
        }
        let (scheme, part) = text.split_once(':').ok_or_else(|| wrong("it has no scheme"))?;
        let named = scheme.starts_with(|first: char| first.is_ascii_alphabetic())
            && scheme.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte));
        if !named {
            return Err(wrong("the part before the colon is not a scheme"));
        }
        match scheme {
            "dtn" if part == "none" => Ok(Self::None),
            "dtn" if part.is_empty() => Err(wrong("nothing follows the scheme")),
            "dtn" => Ok(Self::Dtn(part.into())),
            "ipn" => parse_ipn(part).map_err(wrong),
            _ => Ok(Self::Uri(text.into())),
        }
    }
}

/// Parses `[allocator.]node.service` or `!.service`.
fn parse_ipn(part: &str) -> Result<Eid, &'static str> {
    let number = |text: &str, max: u64| -> Result<u64, &'static str> {
        if !text.bytes().all(|byte| byte.is_ascii_digit()) || text.is_empty() {
            return Err("numbers with points between are expected");
        }
        if text.len() > 1 && text.starts_with('0') {
            return Err("a number begins with 0");
        }
        text.parse().ok().filter(|value| *value <= max).ok_or("a number is too large")
    };
    let parts: Vec<&str> = part.splitn(4, '.').collect();
    let (allocator, node, service) = match parts[..] {
        ["!", service] => (0, LOCAL_NODE, service),
        [node, service] => (0, number(node, u64::MAX)?, service),
        [allocator, node, service] => {
            (number(allocator, LOCAL_NODE)?, number(node, LOCAL_NODE)?, service)
        }
        _ => return Err("two or three numbers are expected"),
    };
    Ok(Eid::from_numbers(allocator << 32 | node, number(service, u64::MAX)?))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn cbor(eid: &Eid) -> Vec<u8> {
        let mut out = Vec::new();
        eid.write(&mut out).unwrap();
        out
    }

    fn read(bytes: &[u8]) -> Result<Eid, DecodeError> {
        let mut reader = Reader::new(bytes);
        let eid = Eid::read(&mut reader, LEN_MAX)?;
        reader.finish()?;
        Ok(eid)
    }

    /// Requirements: B10, B11, B12, I01, I02, I08a, I08b, I09.
    #[test]
    fn examples_of_the_specifications() {
        // RFC 9758 §6.1 has the allocator 977000 in both forms; RFC 9171 §4.2.5.1 the others.
        let other = Eid::Ipn { node: 977_000 << 32 | 100, service: 1 };
        let long = [0x82, 0x02, 0x82, 0x1b, 0x00, 0x0e, 0xe8, 0x68, 0x00, 0x00, 0x00, 0x64, 0x01];
        assert_eq!(read(&long), Ok(other.clone()));
        assert_eq!(
            cbor(&other),
            [0x82, 0x02, 0x83, 0x1a, 0x00, 0x0e, 0xe8, 0x68, 0x18, 0x64, 0x01]
        );
        assert_eq!(read(&cbor(&other)), Ok(other.clone()));
        assert_eq!(other.to_string(), "ipn:977000.100.1");
        assert_eq!(cbor(&Eid::ipn(2, 1)), [0x82, 0x02, 0x82, 0x02, 0x01]);
        assert_eq!(cbor(&Eid::None), [0x82, 0x01, 0x00]);
        let dtn: Eid = "dtn://a/".parse().unwrap();
        assert_eq!(cbor(&dtn), *b"\x82\x01\x64//a/");
        // Both forms of the null endpoint.
        for bytes in
            [&[0x82, 0x02, 0x82, 0, 0][..], &[0x82, 0x02, 0x83, 0, 0, 0], b"\x82\x01\x64none"]
        {
            assert_eq!(read(bytes), Ok(Eid::None));
        }
        // Node 0 of the default allocator is null with any service (RFC 9758 §3.4.1).
        for bytes in [&[0x82, 0x02, 0x82, 0, 5][..], &[0x82, 0x02, 0x83, 0, 0, 5]] {
            assert_eq!(read(bytes), Ok(Eid::None));
        }
        assert_eq!(Eid::ipn(0, 5), Eid::None);
        // The default allocator in three numbers, and lengths ended by a break.
        assert_eq!(read(&[0x82, 0x02, 0x83, 0, 5, 6]), Ok(Eid::ipn(5, 6)));
        assert_eq!(read(&[0x9f, 0x02, 0x9f, 5, 6, 0xff, 0xff]), Ok(Eid::ipn(5, 6)));
        let unknown = Eid::Unknown { scheme: 9, part: [0x81, 0x05].into() };
        assert_eq!(read(&[0x82, 9, 0x81, 5]), Ok(unknown.clone()));
        assert_eq!(cbor(&unknown), [0x82, 9, 0x81, 5]);
        for bad in [
            &[0x82, 0x01, 0x01][..],
            &[0x82, 0x02, 0x81, 1],
            &[0x82, 0x02, 0x84, 1, 1, 1, 1],
            &[0x81, 0x02],
            &[0x83, 0x02, 0x82, 1, 1, 1],
            &[0x82, 0x02, 0x83, 0x1b, 0, 0, 0, 1, 0, 0, 0, 0, 1, 1],
            b"\x82\x01\x63a b",
        ] {
            assert!(read(bad).is_err(), "{bad:02x?}");
        }
    }

    /// Requirements: I01, I02, I03a, I03b, I03c.
    #[test]
    fn text_round_trips() {
        for text in [
            "dtn:none",
            "ipn:1.0",
            "ipn:!.7",
            "ipn:977000.100.1",
            "ipn:4294967295.4294967295.1",
            "dtn://node/",
            "dtn://node/a/b?c",
            "dtn://node/~group",
            "dtn:old",
            "http://a",
            "ipn:5.18446744073709551615",
        ] {
            let eid: Eid = text.parse().unwrap();
            assert_eq!(eid.to_string(), text);
        }
        for text in ["ipn:0.0.0", "ipn:0.0", "ipn:0.5", "ipn:0.0.5"] {
            assert_eq!(text.parse(), Ok(Eid::None));
        }
        assert_eq!("ipn:0.5.1".parse(), Ok(Eid::ipn(5, 1)));
        assert_eq!("ipn:4294967295.7".parse::<Eid>().unwrap().to_string(), "ipn:!.7");
        for bad in [
            "",
            "ipn",
            "ipn:",
            "ipn:1",
            "ipn:1.",
            "ipn:01.2",
            "ipn:1.2.3.4",
            "ipn:a.b",
            "ipn:+1.2",
            "dtn:",
            ":x",
            "1a:b",
            "dtn://a b/",
            "ipn:4294967296.1.1",
            "ipn:18446744073709551616.1",
            "dtn://ä/",
        ] {
            let error = bad.parse::<Eid>().unwrap_err();
            assert!(error.to_string().contains("ipn:NODE.SERVICE"), "{bad}");
        }
        assert!("dtn://".repeat(200).parse::<Eid>().is_err());
    }

    /// Requirements: B11, I04.
    #[test]
    fn nodes_and_groups() {
        let eid = |text: &str| text.parse::<Eid>().unwrap();
        assert_eq!(eid("ipn:7.9").node(), eid("ipn:7.0"));
        assert_eq!(eid("dtn://a/b/c").node(), eid("dtn://a/"));
        // Version 6 has names without the slash, which are the same node.
        for other in ["dtn://a", "dtn://a?x", "dtn://a#x"] {
            assert_eq!(eid(other).node(), eid("dtn://a/"));
        }
        assert_eq!(eid("dtn:a").node(), eid("dtn:a"));
        assert!(!eid("dtn://a/~b").is_singleton() && eid("dtn://a/b").is_singleton());
        assert!(!Eid::None.is_singleton() && eid("ipn:1.1").is_singleton());
        assert!(eid("ipn:!.1").is_local() && !eid("ipn:1.1").is_local());
        for (node, name, whole) in [
            ("ipn:7.0", "9", "ipn:7.9"),
            ("ipn:10.0", "0", "ipn:10.0"),
            ("ipn:5.0.0", "9", "ipn:5.0.9"),
            ("ipn:977000.100.0", "10", "ipn:977000.100.10"),
            ("ipn:!.0", "4", "ipn:!.4"),
            ("dtn://a/", "b/c", "dtn://a/b/c"),
            ("ipn:7.0", "dtn://b/d", "dtn://b/d"),
        ] {
            let endpoint = eid(node).endpoint(name).unwrap();
            assert_eq!(endpoint.to_string(), whole);
            if !name.contains(':') {
                assert_eq!(endpoint.service().as_deref(), Some(name));
            }
        }
        assert!(eid("ipn:7.0").endpoint("x").is_err() && eid("ipn:7.0").endpoint("1.2.3").is_err());
        assert_eq!(Eid::None.service(), None);
    }

    /// Requirements: B11b.
    #[test]
    fn a_dtn_name_has_a_node_and_a_slash() {
        for (text, is_right) in [
            ("//a/", true),
            ("//a.b-c_d~%41!$&'()*+,;=/x?y#z", true),
            ("//alpha", false),
            ("//alpha?x", false),
            ("//alpha?x/", false),
            ("//alpha#x/", false),
            ("//al@pha/", false),
            ("//alpha:1/", false),
            ("/alpha/x", false),
            ("alpha/x", false),
            ("///", true),
            ("//", false),
            ("x", false),
        ] {
            let mut bytes = vec![0x82, 1, 0x60 | text.len() as u8];
            if text.len() > 23 {
                bytes = vec![0x82, 1, 0x78, text.len() as u8];
            }
            bytes.extend(text.as_bytes());
            assert_eq!(read(&bytes).is_ok(), is_right, "{text}");
            let written = Eid::Dtn(text.into()).write(&mut Vec::new());
            assert_eq!(written.is_ok(), is_right, "{text}");
        }
    }

    proptest! {
        #[test]
        fn endpoints_round_trip(node: u64, service: u64, name in "[a-z0-9.-]{1,20}", part in "[!-~]{0,40}") {
            let part = format!("//{name}/{part}");
            for eid in [Eid::from_numbers(node, service), Eid::Dtn(part.clone().into())] {
                prop_assert_eq!(read(&cbor(&eid)), Ok(eid.clone()));
                prop_assert_eq!(eid.to_string().parse(), Ok(eid));
            }
        }

        #[test]
        fn arbitrary_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..40), text in ".{0,40}") {
            if let Ok(eid) = read(&bytes) {
                prop_assert_eq!(read(&cbor(&eid)), Ok(eid));
            }
            if let Ok(eid) = text.parse::<Eid>() {
                prop_assert_eq!(eid.to_string().parse(), Ok(eid));
            }
        }
    }
}
