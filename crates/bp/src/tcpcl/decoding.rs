//! Decoding of the protocols over streams into messages of version 4.

use wire::DecodeError;

use super::protocol::{Protocol, in_both};
use super::session::Session;
use crate::codec::tcpcl3;
use crate::codec::tcpcl4::{Bounds, Extensions, Message, RefuseReason, Segment, SegmentFlags};

/// Item read from a stream.
#[derive(Debug)]
pub(super) enum Received<'a> {
    /// Message of version 4, or its equivalent.
    Message(Message<'a>),
    /// Length of the next bundle in bytes.
    Length(u64),
    /// End of the session; seconds until the peer may be connected to again, if announced.
    Shutdown(Option<u64>),
}

/// Decodes a message. Returns it and its length in bytes; `None` if more bytes are needed.
pub(super) fn read<'a>(
    session: &mut Session,
    bytes: &'a [u8],
    bounds: &Bounds,
) -> Result<Option<(Received<'a>, usize)>, DecodeError> {
    match session.agreement.protocol {
        Protocol::Tcpcl4 => {
            let read = Message::decode(bytes, bounds)?;
            Ok(read.map(|(message, len)| (Received::Message(message), len)))
        }
        Protocol::Tcpcl3(_) => {
            let read = tcpcl3::Message::decode(bytes)?;
            Ok(read.map(|(message, len)| (received_3(session, message), len)))
        }
        Protocol::Framed(framing) => {
            let read = framing.decode(bytes)?;
            Ok(read.map(|(length, len)| {
                let flags = SegmentFlags { start: true, end: true };
                let message = match length {
                    0 => Message::Keepalive,
                    _ => segment(session, flags, length),
                };
                (Received::Message(message), len)
            }))
        }
    }
}

/// Segment of the bundle being received. Without transfer numbers, transfers are counted.
fn segment<'a>(session: &mut Session, flags: SegmentFlags, length: u64) -> Message<'a> {
    session.incoming.transfers_begun += u64::from(flags.start);
    let transfer = session.incoming.transfers_begun;
    Message::Segment(Segment { flags, transfer, extensions: Extensions::NONE, length })
}

/// Message of version 3, converted to version 4. Replies have no number: they refer to the first
/// bundle that was started and has no reply (RFC 7242 §5.3 and §5.4).
fn received_3<'a>(session: &mut Session, message: tcpcl3::Message) -> Received<'a> {
    let first = session.sending.iter().find(|sending| sending.sent > 0 || sending.is_out);
    let message = match message {
        tcpcl3::Message::Segment { start, end, length } => {
            segment(session, SegmentFlags { start, end }, length)
        }
        tcpcl3::Message::Ack { length } => {
            let transfer = first.map_or(u64::MAX, |sending| sending.transfer);
            Message::Ack { flags: SegmentFlags::default(), transfer, length }
        }
        tcpcl3::Message::Refuse { reason } => {
            let transfer = first.map_or(u64::MAX, |sending| sending.transfer);
            let reason = RefuseReason::from_code(in_both(reason.code()));
            Message::Refuse { reason, transfer }
        }
        tcpcl3::Message::Keepalive => Message::Keepalive,
        tcpcl3::Message::Shutdown { reconnect_s, .. } => return Received::Shutdown(reconnect_s),
        tcpcl3::Message::Length { length } => return Received::Length(length),
        tcpcl3::Message::Unknown { first } => Message::Unknown { kind: first },
    };
    Received::Message(message)
}
