//! Packets that end a session, and confirm or refuse it afterwards.

use crate::packet::{Holes, Packet, Status, StatusCode, Timestamp, Width};

/// Bytes of a STATUS that refuses a request.
pub(super) const REFUSAL_LEN: usize = 12;

/// Whether a packet ends a failed session.
pub(super) fn is_refusal(packet: &[u8]) -> bool {
    match Packet::decode(packet) {
        Ok(Packet::Status(status)) => status.code != StatusCode::Ok,
        Ok(Packet::Metadata(metadata)) => metadata.is_over,
        Ok(Packet::Beacon(_) | Packet::Request(_) | Packet::Data(_)) | Err(_) => false,
    }
}

/// Whether a packet is METADATA.
pub(super) fn is_metadata(word: &[u8]) -> bool {
    matches!(Packet::decode(word), Ok(Packet::Metadata(_)))
}

/// STATUS with the timestamp of the packet it replies to.
pub(super) fn stamped(word: &[u8], timestamp: Option<Timestamp>) -> Vec<u8> {
    match (Packet::decode(word), timestamp) {
        (Ok(Packet::Status(status)), Some(_)) => {
            let packet = Packet::Status(Status { timestamp, ..status });
            packet.to_vec().unwrap_or_default()
        }
        (Ok(_) | Err(_), _) => word.to_vec(),
    }
}

/// STATUS that replies to a request without any known offsets (§4.5).
pub(super) fn status(session: u32, code: StatusCode) -> Vec<u8> {
    last_status(session, code, Width::W16, 0)
}

/// STATUS that confirms a file of `len` bytes.
pub(super) fn ok(session: u32, descriptor: Width, len: u64) -> Vec<u8> {
    last_status(session, StatusCode::Ok, descriptor.max(Width::fitting(len)), len)
}

fn last_status(session: u32, code: StatusCode, descriptor: Width, len: u64) -> Vec<u8> {
    let packet = Packet::Status(Status {
        descriptor,
        timestamp: None,
        lacks_metadata: false,
        is_partial: false,
        is_voluntary: true,
        code,
        session,
        progress: len,
        in_response_to: len,
        holes: Holes::NONE,
    });
    packet.to_vec().unwrap_or_default()
}
