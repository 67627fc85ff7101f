//! Translation between the engine and the packets of the configured version.
//!
//! The engine uses the terms of version 1. Version 0 has no put, no checksum and no timestamp, and
//! its STATUS lists only missing data, not the receiver's position.

use wire::{DecodeError, EncodeError};

use super::config::Version;
use crate::packet::{
    Content, Data, Entry, EntryKind, FileChecksum, Holes, Metadata, Packet, Request, RequestKind,
    Status, StatusCode, Width, v0,
};

/// Packet of either version.
pub(crate) enum Coded<'a> {
    V1(&'a Packet<'a>),
    V0(v0::Packet<'a>),
}

impl<'a> Coded<'a> {
    /// Packet on the wire; `None` if the version has no equivalent.
    pub(crate) fn new(version: Version, packet: &'a Packet<'a>) -> Option<Self> {
        match version {
            Version::V1 => Some(Self::V1(packet)),
            Version::V0 => as_version_0(packet).map(Self::V0),
        }
    }

    pub(crate) fn encoded_len(&self) -> usize {
        match self {
            Self::V1(packet) => packet.encoded_len(),
            Self::V0(packet) => packet.encoded_len(),
        }
    }

    pub(crate) fn encode(&self, out: &mut [u8]) -> Result<(), EncodeError> {
        match self {
            Self::V1(packet) => packet.encode(out),
            Self::V0(packet) => packet.encode(out),
        }
    }
}

/// Decodes a packet of the configured version.
pub(crate) fn decode(version: Version, bytes: &[u8]) -> Result<Packet<'_>, DecodeError> {
    match version {
        Version::V1 => Packet::decode(bytes),
        Version::V0 => v0::Packet::decode(bytes).map(hear),
    }
}

/// Encoding of a packet that was stored as version 1; `None` if there is no equivalent.
pub(crate) fn translated(version: Version, bytes: Vec<u8>) -> Option<Vec<u8>> {
    let packet = Packet::decode(&bytes).ok()?;
    match Coded::new(version, &packet)? {
        Coded::V1(_) => Some(bytes),
        Coded::V0(packet) => packet.to_vec().ok(),
    }
}

/// Version 0 equivalent of a packet of version 1.
fn as_version_0<'a>(packet: &Packet<'a>) -> Option<v0::Packet<'a>> {
    let short = |value: u64| u32::try_from(value).ok();
    Some(match packet {
        Packet::Beacon(beacon) => v0::Packet::Beacon(v0::Beacon { eid: beacon.eid }),
        Packet::Request(request) if request.kind == RequestKind::Get => {
            v0::Packet::Request(v0::Request { session: request.session, path: request.path })
        }
        // Version 0 has no other request, and no way to report the end of a session.
        Packet::Request(_) => return None,
        Packet::Metadata(metadata) if metadata.is_over => return None,
        Packet::Metadata(metadata) => v0::Packet::Metadata(v0::Metadata {
            session: metadata.session,
            length: short(metadata.entry.size)?,
            path: metadata.entry.path,
        }),
        Packet::Data(data) if data.data.is_empty() => {
            v0::Packet::Poll(v0::Poll { session: data.session, offset: short(data.offset)? })
        }
        Packet::Data(data) => v0::Packet::Data(v0::Data {
            wants_status: data.wants_status,
            session: data.session,
            offset: short(data.offset)?,
            data: data.data,
        }),
        Packet::Status(status) if is_acceptance(status) => {
            v0::Packet::Accept(v0::Accept { session: status.session })
        }
        Packet::Status(status) => v0::Packet::Status(v0::Status {
            lacks_metadata: status.lacks_metadata,
            is_partial: status.is_partial,
            session: status.session,
            code: status.code,
            holes: status.holes,
        }),
    })
}

/// Version 1 equivalent of a packet of version 0.
fn hear(packet: v0::Packet<'_>) -> Packet<'_> {
    let descriptor = Width::W32;
    match packet {
        v0::Packet::Beacon(beacon) => Packet::Beacon(crate::packet::Beacon {
            descriptor,
            bundles: false,
            streams: false,
            sends: crate::packet::Ability::NotNow,
            receives: crate::packet::Ability::NotNow,
            udp_lite: false,
            free_space: None,
            eid: beacon.eid,
        }),
        v0::Packet::Request(request) => Packet::Request(Request {
            kind: RequestKind::Get,
            descriptor,
            bundles: false,
            streams: false,
            udp_lite: false,
            session: request.session,
            path: request.path,
            authentication: &[],
        }),
        v0::Packet::Accept(accept) => Packet::Status(acceptance(accept.session)),
        v0::Packet::Metadata(metadata) => Packet::Metadata(Metadata {
            descriptor,
            content: Content::File,
            is_over: false,
            udp_lite: false,
            session: metadata.session,
            checksum: FileChecksum::None,
            entry: Entry {
                kind: EntryKind::File,
                udp_lite: false,
                width: descriptor,
                size: u64::from(metadata.length),
                modified: 0,
                created: 0,
                path: metadata.path,
            },
        }),
        v0::Packet::Data(data) => {
            let (offset, wants_status) = (u64::from(data.offset), data.wants_status);
            Packet::Data(part(data.session, offset, data.data, wants_status, false))
        }
        v0::Packet::Poll(poll) => {
            Packet::Data(part(poll.session, u64::from(poll.offset), &[], true, true))
        }
        v0::Packet::Status(status) => {
            let first = status.holes.iter().next();
            Packet::Status(Status {
                descriptor,
                timestamp: None,
                lacks_metadata: status.lacks_metadata,
                is_partial: status.is_partial,
                is_voluntary: false,
                code: status.code,
                session: status.session,
                // If nothing is missing, everything has arrived.
                progress: first.map_or(u64::MAX, |hole| hole.start),
                // A STATUS of version 0 does not contain the receiver's position.
                in_response_to: 0,
                holes: status.holes,
            })
        }
    }
}

fn part(session: u32, offset: u64, data: &[u8], wants_status: bool, is_end: bool) -> Data<'_> {
    Data {
        descriptor: Width::W32,
        content: Content::File,
        timestamp: None,
        wants_status,
        is_end,
        session,
        offset,
        data,
    }
}

/// STATUS by which a sender accepts a request.
pub(crate) fn acceptance(session: u32) -> Status<'static> {
    Status {
        descriptor: Width::W16,
        timestamp: None,
        // Nothing was sent yet, so METADATA is lacking; this also distinguishes an acceptance from
        // a completion.
        lacks_metadata: true,
        is_partial: false,
        is_voluntary: true,
        code: StatusCode::Ok,
        session,
        progress: 0,
        in_response_to: 0,
        holes: Holes::NONE,
    }
}

fn is_acceptance(status: &Status<'_>) -> bool {
    *status == acceptance(status.session)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn version_0_encodes_only_what_it_defines() {
        let packet = Packet::Data(part(7, 1024, b"data", true, false));
        let coded = Coded::new(Version::V0, &packet).expect("it has DATA");
        let mut bytes = vec![0xa5; coded.encoded_len()];
        coded.encode(&mut bytes).expect("it fits");
        assert_eq!(bytes.len(), 14);
        assert_eq!(decode(Version::V0, &bytes), Ok(packet));
        let poll = Packet::Data(part(7, 10_000, &[], true, true));
        let coded = Coded::new(Version::V0, &poll).expect("it has a poll");
        let mut bytes = vec![0xa5; coded.encoded_len()];
        coded.encode(&mut bytes).expect("it fits");
        assert_eq!((bytes.len(), decode(Version::V0, &bytes)), (18, Ok(poll)));
        let status = Packet::Status(acceptance(7));
        let coded = Coded::new(Version::V0, &status).expect("it has an acceptance");
        assert_eq!(coded.encoded_len(), 10);
        let request = Request {
            kind: RequestKind::Put,
            descriptor: Width::W32,
            bundles: false,
            streams: false,
            udp_lite: false,
            session: 7,
            path: b"name",
            authentication: &[],
        };
        assert!(Coded::new(Version::V0, &Packet::Request(request)).is_none());
        // Version 0 has no offsets beyond four gigabytes.
        let far = Packet::Data(part(7, 1 << 32, b"data", false, false));
        assert!(Coded::new(Version::V0, &far).is_none());
    }
}
