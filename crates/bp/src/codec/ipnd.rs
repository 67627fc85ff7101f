//! Beacons of IP neighbour discovery, as dtn7 sends and reads them: UDP datagrams that announce a
//! node on a LAN.
//!
//! draft-irtf-dtnrg-ipnd-03 has other beacons, of version 4 with self-delimiting numbers and for
//! version 6 of the Bundle Protocol. dtn7 (crate `dtn7`, 0.21.0, `src/ipnd/`) keeps their fields
//! and writes them as CBOR, under version 7. A beacon is an array of four to six items:
//!
//! | item | type | field |
//! |---|---|---|
//! | 0 | number | version, 7 |
//! | 1 | number | flags: 1 the node ID is present (always), 2 item 4, 4 item 5, others reserved |
//! | 2 | endpoint | node ID, as in bundles of version 7 |
//! | 3 | number | sequence number, 32 bits |
//! | 4 | array | service block, if flagged: layers and other services |
//! | 5 | number | period of the beacons in seconds, if flagged |
//!
//! The service block is empty, or has two items. The first is an array of convergence layers, each
//! an array of a name (`tcp` is version 4 of TCPCL, `mtcp`, `udp`) and a port or null. The second
//! is a map of tags, numbers of 8 bits, to arrays of bytes, each a number.

use std::collections::BTreeMap;
use std::fmt;

use wire::cursor::Reader;
use wire::{DecodeError, DecodeErrorKind, EncodeError};

use crate::codec::cbor::{self, Array, Major};
use crate::codec::eid::{self, Eid};

const VERSION: u8 = 7;
const NODE: u8 = 1;
const SERVICES: u8 = 2;
const PERIOD: u8 = 4;
/// The simple value `null` (RFC 8949 §3.3).
const NULL: u8 = 0xf6;

/// Maximum number of convergence layers.
pub const LAYERS_MAX: usize = 32;
/// Maximum number of services other than convergence layers.
pub const SERVICES_MAX: usize = 16;
/// Maximum length of a service, in bytes.
pub const SERVICE_LEN_MAX: usize = 256;
/// Maximum length of a layer's name, in bytes.
pub const NAME_MAX: usize = 64;

/// A beacon.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Beacon {
    /// Node ID of the sender.
    pub node: Eid,
    /// Number of earlier beacons to the same address.
    pub sequence: u32,
    /// Convergence layers on which the sender accepts bundles.
    pub layers: Vec<Offer>,
    /// Other services by their tags.
    pub services: BTreeMap<u8, Vec<u8>>,
    /// Period of the beacons, in seconds.
    pub period_s: Option<u64>,
    /// Reserved flags.
    pub reserved: u8,
}

/// A convergence layer of the sender.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Offer {
    /// Name of the layer.
    pub name: String,
    /// Port, if it is not the layer's default.
    pub port: Option<u16>,
}

impl Beacon {
    /// Encodes the beacon.
    ///
    /// # Errors
    /// A field exceeds its bound, a reserved flag is another flag, or the node has no number of its
    /// scheme.
    pub fn encode(&self) -> Result<Vec<u8>, EncodeError> {
        self.check()?;
        let has_services = !self.layers.is_empty() || !self.services.is_empty();
        let mut flags = self.reserved | NODE;
        flags |= if has_services { SERVICES } else { 0 };
        flags |= if self.period_s.is_some() { PERIOD } else { 0 };
        let mut out = Vec::new();
        cbor::put_array(
            &mut out,
            4 + usize::from(has_services) + usize::from(self.period_s.is_some()),
        );
        cbor::put_uint(&mut out, VERSION.into());
        cbor::put_uint(&mut out, flags.into());
        self.node.write(&mut out)?;
        cbor::put_uint(&mut out, self.sequence.into());
        if has_services {
            self.put_services(&mut out);
        }
        if let Some(seconds) = self.period_s {
            cbor::put_uint(&mut out, seconds);
        }
        Ok(out)
    }

    fn check(&self) -> Result<(), EncodeError> {
        if self.reserved & (NODE | SERVICES | PERIOD) != 0 {
            return Err(EncodeError::Conflict("a reserved flag has a meaning"));
        }
        let is_long = self.services.values().any(|bytes| bytes.len() > SERVICE_LEN_MAX);
        if self.services.len() > SERVICES_MAX || is_long {
            return Err(EncodeError::TooLarge { field: "services" });
        }
        let is_long = self.layers.iter().any(|layer| layer.name.len() > NAME_MAX);
        if self.layers.len() > LAYERS_MAX || is_long {
            return Err(EncodeError::TooLarge { field: "convergence layers" });
        }
        Ok(())
    }

    fn put_services(&self, out: &mut Vec<u8>) {
        cbor::put_array(out, 2);
        cbor::put_array(out, self.layers.len());
        for Offer { name, port } in &self.layers {
            cbor::put_array(out, 2);
            cbor::put_text(out, name);
            match port {
                Some(port) => cbor::put_uint(out, (*port).into()),
                None => out.push(NULL),
            }
        }
        cbor::put(out, Major::Map, self.services.len() as u64);
        for (tag, bytes) in &self.services {
            cbor::put_uint(out, (*tag).into());
            cbor::put_array(out, bytes.len());
            bytes.iter().for_each(|byte| cbor::put_uint(out, (*byte).into()));
        }
    }

    /// Decodes the beacon in a datagram.
    ///
    /// # Errors
    /// The datagram is not a beacon of version 7, or a field exceeds its bound.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(bytes);
        let mut array = Array::begin(&mut reader)?;
        array.item(&mut reader)?;
        let offset = reader.offset();
        let version: u8 = number(&mut reader)?;
        if version != VERSION {
            return Err(DecodeError { offset, kind: DecodeErrorKind::Version(version) });
        }
        let flags: u8 = array.read(&mut reader, number)?;
        array.item(&mut reader)?;
        let node = Eid::read(&mut reader, eid::LEN_MAX)?;
        let sequence = array.read(&mut reader, number)?;
        let reserved = flags & !(NODE | SERVICES | PERIOD);
        let mut beacon = Self { node, sequence, reserved, ..Self::default() };
        if flags & SERVICES != 0 {
            array.read(&mut reader, |reader| beacon.read_services(reader))?;
        }
        if flags & PERIOD != 0 {
            beacon.period_s = Some(array.uint(&mut reader)?);
        }
        array.end(&mut reader)?;
        reader.finish()?;
        Ok(beacon)
    }

    fn read_services(&mut self, reader: &mut Reader<'_>) -> Result<(), DecodeError> {
        let mut block = Array::begin(reader)?;
        if !block.more(reader)? {
            return Ok(());
        }
        let at = reader.offset();
        let mut layers = Array::begin(reader)?;
        while layers.more(reader)? {
            if self.layers.len() >= LAYERS_MAX {
                return Err(DecodeError::invalid(at, "too many convergence layers"));
            }
            self.layers.push(Offer::read(reader)?);
        }
        block.item(reader)?;
        let at = reader.offset();
        let count = match cbor::initial(reader)? {
            cbor::Initial { major: Major::Map, argument: Some(count) } => count,
            _ => return Err(DecodeError::invalid(at, "a map of definite length is expected")),
        };
        if count > SERVICES_MAX as u64 {
            return Err(DecodeError::invalid(at, "too many services"));
        }
        for _ in 0..count {
            let tag = number(reader)?;
            let at = reader.offset();
            let mut service = Array::begin(reader)?;
            let mut bytes = Vec::new();
            while service.more(reader)? {
                if bytes.len() >= SERVICE_LEN_MAX {
                    return Err(DecodeError::invalid(at, "a service is too long"));
                }
                bytes.push(number(reader)?);
            }
            if self.services.insert(tag, bytes).is_some() {
                return Err(DecodeError::invalid(at, "two services have the same tag"));
            }
        }
        block.end(reader)
    }
}

impl Offer {
    fn read(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let mut pair = Array::begin(reader)?;
        pair.item(reader)?;
        let name = cbor::text(reader, NAME_MAX)?;
        pair.item(reader)?;
        let port = match reader.left().first() {
            Some(&NULL) => {
                reader.u8()?;
                None
            }
            _ => Some(number(reader)?),
        };
        pair.end(reader)?;
        Ok(Self { name, port })
    }
}

/// Reads a number of a limited width.
fn number<N: TryFrom<u64>>(reader: &mut Reader<'_>) -> Result<N, DecodeError> {
    let at = reader.offset();
    let value = cbor::uint(reader)?;
    N::try_from(value).map_err(|_| DecodeError::invalid(at, "a number is too large"))
}

impl fmt::Display for Beacon {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "beacon {} of {}", self.sequence, self.node)?;
        for Offer { name, port } in &self.layers {
            match port {
                Some(port) => write!(f, ", {name:?} at port {port}")?,
                None => write!(f, ", {name:?}")?,
            }
        }
        match self.period_s {
            Some(seconds) => write!(f, ", every {seconds} s"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use testing::hex;

    fn offer(name: &str, port: u16) -> Offer {
        Offer { name: name.to_owned(), port: Some(port) }
    }

    #[test]
    fn beacons_of_dtn7() {
        let bytes = hex::vector(include_str!("../../testdata/ipnd/dtn7.hex"));
        let beacon = Beacon {
            node: "dtn://seven/".parse().unwrap(),
            sequence: 1,
            layers: vec![offer("mtcp", 16162), offer("tcp", 4556)],
            period_s: Some(1),
            ..Beacon::default()
        };
        assert_eq!(Beacon::decode(&bytes), Ok(beacon.clone()));
        assert_eq!(beacon.encode(), Ok(bytes));
        assert_eq!(
            beacon.to_string(),
            "beacon 1 of dtn://seven/, \"mtcp\" at port 16162, \"tcp\" at port 4556, every 1 s"
        );
    }

    #[test]
    fn optional_items_follow_the_flags() {
        let beacon = Beacon { node: Eid::ipn(7, 0), ..Beacon::default() };
        let short = [0x84, 7, 1, 0x82, 2, 0x82, 7, 0, 0];
        assert_eq!(beacon.encode().unwrap(), short);
        assert_eq!(Beacon::decode(&short), Ok(beacon.clone()));
        let periodic = Beacon { period_s: Some(300), ..beacon.clone() };
        let bytes = [0x85, 7, 5, 0x82, 2, 0x82, 7, 0, 0, 0x19, 1, 0x2c];
        assert_eq!(periodic.encode().unwrap(), bytes);
        assert_eq!(Beacon::decode(&bytes), Ok(periodic));
        // Other services are arrays of numbers, as dtn7 writes them.
        let service = [
            0x85, 7, 3, 0x82, 2, 0x82, 7, 0, 0, 0x82, 0x80, 0xa1, 0x18, 63, 0x82, 0x18, b'h', 0x18,
            b'i',
        ];
        let services = [(63, b"hi".to_vec())].into();
        assert_eq!(Beacon::decode(&service), Ok(Beacon { services, ..beacon.clone() }));
        // An empty service block, and a layer without a port.
        assert_eq!(Beacon::decode(&[0x85, 7, 3, 0x82, 2, 0x82, 7, 0, 0, 0x80]), Ok(beacon.clone()));
        let portless =
            [0x85, 7, 3, 0x82, 2, 0x82, 7, 0, 0, 0x82, 0x81, 0x82, 0x61, b'x', NULL, 0xa0];
        let layers = vec![Offer { name: "x".to_owned(), port: None }];
        assert_eq!(Beacon::decode(&portless), Ok(Beacon { layers, ..beacon }));
    }

    #[test]
    fn other_datagrams_are_refused() {
        let kind = |bytes: &[u8]| Beacon::decode(bytes).unwrap_err().kind;
        // A beacon of the draft, of version 4, starts with that number.
        assert!(matches!(kind(&[4, 1, 0]), DecodeErrorKind::Invalid(_)));
        assert_eq!(kind(&[0x84, 8, 1, 0x82, 2, 0x82, 7, 0, 0]), DecodeErrorKind::Version(8));
        for bytes in [
            // More and fewer items than flagged, and bytes behind.
            &[0x85, 7, 1, 0x82, 2, 0x82, 7, 0, 0, 9][..],
            &[0x84, 7, 5, 0x82, 2, 0x82, 7, 0, 0],
            &[0x84, 7, 1, 0x82, 2, 0x82, 7, 0, 0, 0],
            // A sequence number and a port that are too large.
            &[0x84, 7, 1, 0x82, 2, 0x82, 7, 0, 0x1b, 0, 0, 0, 1, 0, 0, 0, 0],
            &[0x85, 7, 3, 0x82, 2, 0x82, 7, 0, 0, 0x82, 0x81, 0x82, 0x60, 0x1a, 0, 1, 0, 0, 0xa0],
            // A tag twice, and a map that claims more than there is.
            &[0x85, 7, 3, 0x82, 2, 0x82, 7, 0, 0, 0x82, 0x80, 0xa2, 1, 0x80, 1, 0x80],
            &[0x85, 7, 3, 0x82, 2, 0x82, 7, 0, 0, 0x82, 0x80, 0xbb, 1, 0, 0, 0, 0, 0, 0, 0],
        ] {
            assert!(Beacon::decode(bytes).is_err(), "{bytes:02x?}");
        }
        let many = vec![offer("x", 1); LAYERS_MAX + 1];
        assert!(Beacon { layers: many, ..Beacon::default() }.encode().is_err());
        assert!(Beacon { reserved: PERIOD, ..Beacon::default() }.encode().is_err());
    }

    proptest! {
        #[test]
        fn beacons_survive_encoding(
            node in any::<u32>(),
            sequence in any::<u32>(),
            layers in prop::collection::vec(("[a-z]{0,9}", any::<Option<u16>>()), 0..4),
            services in prop::collection::btree_map(any::<u8>(), any::<Vec<u8>>(), 0..4),
            period_s in any::<Option<u64>>(),
            reserved in any::<u8>(),
        ) {
            let layers = layers.into_iter().map(|(name, port)| Offer { name, port }).collect();
            let (node, reserved) = (Eid::ipn(node, 0), reserved & 0xf8);
            let beacon = Beacon { node, sequence, layers, services, period_s, reserved };
            let bytes = beacon.encode().unwrap();
            prop_assert_eq!(Beacon::decode(&bytes), Ok(beacon));
            for len in 0..bytes.len() {
                prop_assert!(Beacon::decode(&bytes[..len]).is_err());
            }
        }

        #[test]
        fn random_bytes_cause_no_panic(bytes in any::<Vec<u8>>()) {
            let _ = Beacon::decode(&bytes);
        }
    }
}
