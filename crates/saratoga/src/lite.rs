//! Selection of packets for UDP-Lite (draft-wood-tsvwg-saratoga-22 §4): DATA of files and streams
//! whose content may be damaged. All others use UDP.

use crate::packet::{Content, Data, Packet, RequestKind, Width};

/// Minimum bytes at the beginning of a packet that the checksum must cover.
pub const COVERAGE_MIN: usize = Data::overhead(Width::W16, false);

/// Bytes at the beginning of a packet that the checksum must cover: the header. `None` if the
/// packet has to use UDP.
#[must_use]
pub fn coverage(packet: &[u8]) -> Option<usize> {
    let Ok(Packet::Data(data)) = Packet::decode(packet) else { return None };
    match data.content {
        Content::File | Content::Stream => {
            Some(Data::overhead(data.descriptor, data.timestamp.is_some()))
        }
        // A listing with errors is useless, and a bundle may be signed.
        Content::Directory | Content::Bundle => None,
    }
}

/// Whether a requester accepts the file by UDP-Lite; `None` if the packet is not a request for a
/// file.
///
/// A file that is deleted after verification must be intact. The abilities in a BEACON do not
/// change how a requested file is sent.
#[must_use]
pub fn offer(packet: &[u8]) -> Option<bool> {
    // Most packets are DATA, which need no further check.
    if packet.first().is_none_or(|first| first & 0x1f != 1) {
        return None;
    }
    let Ok(Packet::Request(request)) = Packet::decode(packet) else { return None };
    match request.kind {
        RequestKind::Get => Some(request.udp_lite),
        RequestKind::Take => Some(false),
        RequestKind::NoOp
        | RequestKind::Put
        | RequestKind::Give
        | RequestKind::Delete
        | RequestKind::GetDir
        | RequestKind::Other(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use crate::packet::Request;

    use super::*;

    fn data(content: Content, descriptor: Width, timestamp: Option<[u8; 16]>) -> Vec<u8> {
        let (wants_status, is_end, session, offset) = (false, false, 1, 2);
        let data = b"content";
        let data =
            Data { descriptor, content, timestamp, wants_status, is_end, session, offset, data };
        Packet::Data(data).to_vec().expect("it can be encoded")
    }

    #[test]
    fn headers_of_data_are_covered() {
        for (descriptor, timestamp, expected) in [
            (Width::W16, None, 10),
            (Width::W32, None, 12),
            (Width::W64, None, 16),
            (Width::W32, Some([1; 16]), 28),
        ] {
            let packet = data(Content::File, descriptor, timestamp);
            assert_eq!(coverage(&packet), Some(expected));
            assert_eq!(packet.len(), expected + 7);
            assert_eq!(offer(&packet), None);
        }
        assert_eq!(COVERAGE_MIN, 10);
        assert_eq!(coverage(&data(Content::Directory, Width::W16, None)), None);
        assert!(coverage(&data(Content::Stream, Width::W64, None)).is_some());
        assert_eq!(coverage(b""), None);
        let mut status = vec![0x24, 0x41, 0, 0, 0x11, 0x22, 0x33, 0x44];
        status.extend([0, 0, 0, 5, 0, 0, 0, 5]);
        assert!(matches!(Packet::decode(&status), Ok(Packet::Status(_))));
        assert_eq!(coverage(&status), None);
    }

    #[test]
    fn a_requester_states_whether_udp_lite_is_accepted() {
        for (kind, udp_lite, expected) in [
            (RequestKind::Get, true, Some(true)),
            (RequestKind::Get, false, Some(false)),
            (RequestKind::Take, true, Some(false)),
            (RequestKind::Put, true, None),
            (RequestKind::GetDir, true, None),
        ] {
            let request = Request {
                kind,
                descriptor: Width::W32,
                bundles: false,
                streams: true,
                udp_lite,
                session: 7,
                path: b"name",
                authentication: &[],
            };
            let packet = Packet::Request(request).to_vec().expect("it can be encoded");
            assert_eq!(offer(&packet), expected);
            assert_eq!(coverage(&packet), None);
        }
    }
}
