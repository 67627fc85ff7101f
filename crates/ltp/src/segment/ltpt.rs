//! LTP-T: end-to-end LTP via nodes that forward segments as they arrive.
//!
//! A technical report of 2005 (Farrell and Cahill, TCD-CS-2005-69) describes LTP-T. It gives the
//! purposes of extensions; its code points are not known here. The layout below is this project's
//! own profile and interoperates only with itself. It uses tags of the range for private use.
//!
//! Extensions before the content of data segments ([`crate::segment::Segment::header`]); the
//! congestion extension is in report and cancel segments:
//!
//! | tag | extension | value |
//! |---|---|---|
//! | 0xd0 | source | address |
//! | 0xd1 | destination | address |
//! | 0xd2 | estimated size | bytes of the block SDNV, 0 if unknown |
//! | 0xd3 | congestion | reason u8, seconds to wait SDNV |
//! | 0xd4 | intermediate reports | nothing |
//! | 0xd5 | lifetime | hops u8, seconds since 2000-01-01 SDNV |
//! | 0xd6 | flow | session number at the source SDNV |
//!
//! An address is a family u8 (4, 6, or 0 for an engine's number), the IPv4 or IPv6 address or the
//! number as SDNV, the UDP port u16, and the client service SDNV.

use std::net::{Ipv4Addr, Ipv6Addr};

use wire::DecodeError;
use wire::cursor::Reader;
use wire::sdnv;

use crate::segment::Extensions;

/// Tag of the source.
pub const SOURCE: u8 = 0xd0;
/// Tag of the destination.
pub const DESTINATION: u8 = 0xd1;
/// Tag of the estimated size.
pub const SIZE: u8 = 0xd2;
/// Tag of congestion.
pub const CONGESTION: u8 = 0xd3;
/// Tag of intermediate reports.
pub const INTERMEDIATE_REPORTS: u8 = 0xd4;
/// Tag of the lifetime.
pub const LIFETIME: u8 = 0xd5;
/// Tag of the flow.
pub const FLOW: u8 = 0xd6;

/// End of a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct End {
    /// Node.
    pub address: Address,
    /// UDP port; 0 if the engine's number suffices.
    pub port: u16,
    /// Client service.
    pub service: u64,
}

/// Address of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Address {
    /// Family 0: number of its LTP engine.
    Engine(u64),
    /// Family 4.
    V4(Ipv4Addr),
    /// Family 6.
    V6(Ipv6Addr),
}

/// Congestion at a node on the path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Congestion {
    /// Exhausted resource.
    pub reason: CongestionReason,
    /// Seconds after which to retry.
    pub retry_after_s: u64,
}

wire::codes! {
    /// Resource that a node lacks.
    CongestionReason {
        /// Storage.
        Storage = 0;
        /// Contact time with the next node.
        Contact = 1;
    }
}

/// Hop limit and expiry of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lifetime {
    /// Number of nodes that may still forward it.
    pub hops: u8,
    /// Expiry, in seconds since 2000-01-01.
    pub expiry_s: u64,
}

/// LTP-T extensions of a segment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Transport {
    /// Source of the block.
    pub source: Option<End>,
    /// Destination of the block; its presence makes a session a hop of LTP-T.
    pub destination: Option<End>,
    /// Size of the block in bytes, as estimated by the source; `Some(0)` if unknown.
    pub size: Option<u64>,
    /// Congestion.
    pub congestion: Option<Congestion>,
    /// Whether nodes on the path are requested to report.
    pub intermediate_reports: bool,
    /// Hop limit and expiry.
    pub lifetime: Option<Lifetime>,
    /// Session number at the source, which together with the source identifies the transfer.
    pub flow: Option<u64>,
}

impl Transport {
    /// Decodes the LTP-T extensions among those before a segment's content. Ignores others.
    ///
    /// # Errors
    /// A value does not match its tag, or a tag is duplicate. Offsets count from the value's first
    /// byte.
    pub fn from_extensions(extensions: Extensions<'_>) -> Result<Self, DecodeError> {
        let mut transport = Self::default();
        let mut found = 0_u8;
        for extension in extensions.iter() {
            let reader = &mut Reader::new(extension.value);
            match extension.tag {
                SOURCE => transport.source = Some(End::read(reader)?),
                DESTINATION => transport.destination = Some(End::read(reader)?),
                SIZE => transport.size = Some(sdnv::read(reader)?),
                CONGESTION => {
                    let reason = CongestionReason::from_code(reader.u8()?);
                    let retry_after_s = sdnv::read(reader)?;
                    transport.congestion = Some(Congestion { reason, retry_after_s });
                }
                INTERMEDIATE_REPORTS => transport.intermediate_reports = true,
                LIFETIME => {
                    let hops = reader.u8()?;
                    transport.lifetime = Some(Lifetime { hops, expiry_s: sdnv::read(reader)? });
                }
                FLOW => transport.flow = Some(sdnv::read(reader)?),
                _ => continue,
            }
            reader.finish()?;
            // Tags from 0xd0 to 0xd6: one bit each.
            let bit = 1 << (extension.tag - SOURCE);
            if found & bit != 0 {
                return Err(DecodeError::invalid(0, "duplicate LTP-T extension"));
            }
            found |= bit;
        }
        Ok(transport)
    }

    /// Returns tags and encoded values of the present extensions, ordered by tag: at most seven.
    #[must_use]
    pub fn values(&self) -> Vec<(u8, Vec<u8>)> {
        let number = |value| {
            let mut out = Vec::new();
            sdnv::append(&mut out, value);
            out
        };
        let byte_and_number = |byte, value| {
            let mut out = vec![byte];
            sdnv::append(&mut out, value);
            out
        };
        let congestion = self.congestion.map(|c| byte_and_number(c.reason.code(), c.retry_after_s));
        let lifetime = self.lifetime.map(|l| byte_and_number(l.hops, l.expiry_s));
        let all = [
            (SOURCE, self.source.map(End::to_vec)),
            (DESTINATION, self.destination.map(End::to_vec)),
            (SIZE, self.size.map(number)),
            (CONGESTION, congestion),
            (INTERMEDIATE_REPORTS, self.intermediate_reports.then(Vec::new)),
            (LIFETIME, lifetime),
            (FLOW, self.flow.map(number)),
        ];
        all.into_iter().filter_map(|(tag, value)| Some((tag, value?))).collect()
    }
}

impl End {
    fn read(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let at = reader.offset();
        let address = match reader.u8()? {
            0 => Address::Engine(sdnv::read(reader)?),
            4 => Address::V4(Ipv4Addr::from_bits(reader.u32()?)),
            6 => {
                let (high, low) = (reader.uint(8)?, reader.uint(8)?);
                Address::V6(Ipv6Addr::from_bits(u128::from(high) << 64 | u128::from(low)))
            }
            _ => return Err(DecodeError::invalid(at, "the address family is undefined")),
        };
        Ok(Self { address, port: reader.u16()?, service: sdnv::read(reader)? })
    }

    fn to_vec(self) -> Vec<u8> {
        let mut out = Vec::with_capacity(20);
        match self.address {
            Address::Engine(number) => {
                out.push(0);
                sdnv::append(&mut out, number);
            }
            Address::V4(address) => {
                out.push(4);
                out.extend(address.octets());
            }
            Address::V6(address) => {
                out.push(6);
                out.extend(address.octets());
            }
        }
        out.extend(self.port.to_be_bytes());
        sdnv::append(&mut out, self.service);
        out
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::segment::{Body, Extension, Segment, SessionId};
    use testing::hex;

    fn through_a_segment(transport: &Transport) -> Vec<u8> {
        let values = transport.values();
        let extensions: Vec<_> =
            values.iter().map(|(tag, value)| Extension { tag: *tag, value }).collect();
        let session = SessionId { originator: 101, number: 300 };
        let body = Body::ReportAck { serial: 42 };
        let segment =
            Segment { header: Extensions::new(&extensions), ..Segment::new(session, body) };
        segment.to_vec().unwrap()
    }

    #[test]
    fn a_segment_with_all_of_them() {
        // Computed by hand from the table above and RFC 5326 §3.
        let transport = Transport {
            source: Some(End { address: Address::Engine(300), port: 0, service: 1 }),
            destination: Some(End {
                address: Address::V4(Ipv4Addr::new(10, 0, 0, 7)),
                port: 1113,
                service: 1,
            }),
            size: Some(1_000_000),
            congestion: Some(Congestion { reason: CongestionReason::Contact, retry_after_s: 60 }),
            intermediate_reports: true,
            lifetime: Some(Lifetime { hops: 8, expiry_s: 400_000_000 }),
            flow: Some(17),
        };
        let bytes = hex::vector(
            "09 65 82 2c 70 d0 06 00 822c 0000 01 d1 08 04 0a000007 0459 01 d2 03 bd8440 d3 02 01 3c d4 00 \
             d5 06 08 81bede8800 d6 01 11 2a",
        );
        assert_eq!(through_a_segment(&transport), bytes);
        let segment = Segment::decode(&bytes).unwrap();
        assert_eq!(Transport::from_extensions(segment.header), Ok(transport));
    }

    #[test]
    fn invalid_fields_are_refused() {
        let read = |list: &[Extension<'_>]| Transport::from_extensions(Extensions::new(list));
        let other = Extension { tag: 0xc0, value: b"?" };
        assert_eq!(read(&[other]), Ok(Transport::default()));
        for (tag, value) in [
            (SOURCE, &b"\x05\x00\x00\x01"[..]),
            (DESTINATION, b"\x04\x0a\x00"),
            (SIZE, b""),
            (SIZE, b"\x01\x01"),
            (CONGESTION, b"\x01"),
            (INTERMEDIATE_REPORTS, b"\x01"),
            (LIFETIME, b"\x01\x80"),
        ] {
            assert!(read(&[Extension { tag, value }]).is_err(), "{tag:#x}");
        }
        let twice = Extension { tag: FLOW, value: b"\x01" };
        assert!(read(&[twice]).is_ok() && read(&[twice, twice]).is_err());
    }

    fn end() -> impl Strategy<Value = End> {
        let address = prop_oneof![
            any::<u64>().prop_map(Address::Engine),
            any::<u32>().prop_map(|bits| Address::V4(bits.into())),
            any::<u128>().prop_map(|bits| Address::V6(bits.into())),
        ];
        let end = (address, any::<u16>(), any::<u64>());
        end.prop_map(|(address, port, service)| End { address, port, service })
    }

    proptest! {
        #[test]
        fn extensions_round_trip(
            source in prop::option::of(end()), destination in prop::option::of(end()),
            (size, flow) in any::<(Option<u64>, Option<u64>)>(), congestion in any::<Option<(u8, u64)>>(),
            intermediate_reports: bool, lifetime in any::<Option<(u8, u64)>>(),
        ) {
            let congestion = congestion.map(|(code, retry_after_s)| {
                Congestion { reason: CongestionReason::from_code(code), retry_after_s }
            });
            let lifetime = lifetime.map(|(hops, expiry_s)| Lifetime { hops, expiry_s });
            let transport = Transport {
                source, destination, size, congestion, intermediate_reports, lifetime, flow,
            };
            let bytes = through_a_segment(&transport);
            let segment = Segment::decode(&bytes).unwrap();
            prop_assert_eq!(Transport::from_extensions(segment.header), Ok(transport));
        }

        #[test]
        fn arbitrary_values_never_panic(
            list in prop::collection::vec((0xd0..0xd8_u8, prop::collection::vec(any::<u8>(), 0..24)), 0..9),
        ) {
            let list: Vec<_> = list.iter().map(|(tag, value)| Extension { tag: *tag, value }).collect();
            if let Ok(transport) = Transport::from_extensions(Extensions::new(&list)) {
                let values = transport.values();
                prop_assert!(values.len() <= 7);
            }
        }
    }
}
