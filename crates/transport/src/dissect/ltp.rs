//! Segments of LTP.

use ltp::segment::{Body, End, Segment};
use wire::DecodeError;

use super::{Described, Dissector, by_length};

/// Reader of LTP segments.
pub const DISSECTOR: Dissector =
    Dissector { title: "LTP", line: Some(line), split, plausible: |_| Ok(()), begins, describe };

/// A sender may cancel a session of which a restarted receiver knows nothing.
fn begins(datagram: &[u8]) -> bool {
    Segment::decode(datagram).is_ok_and(|segment| {
        let is_first = match segment.body {
            Body::Data(data) => data.service == ltp::FILE_SERVICE,
            Body::Cancel { by, .. } => by == End::Sender,
            Body::Report(_) | Body::ReportAck { .. } | Body::CancelAck { .. } => false,
        };
        is_first && segment.to_vec().is_ok_and(|bytes| bytes == datagram)
    })
}

/// Whether a datagram is a segment with a whole PDU of CFDP over LTP.
pub(super) fn carries_cfdp(datagram: &[u8]) -> bool {
    Segment::decode(datagram).is_ok_and(|segment| match segment.body {
        Body::Data(data) => {
            let is_start = data.service == ut::CFDP_SERVICE && data.offset == 0;
            is_start && (super::cfdp::DISSECTOR.begins)(data.data)
        }
        Body::Report(_) | Body::ReportAck { .. } | Body::Cancel { .. } | Body::CancelAck { .. } => {
            false
        }
    })
}

fn split(packet: &[u8]) -> Vec<&[u8]> {
    by_length(packet, Segment::len_of_first)
}

fn line(datagram: &[u8]) -> Result<String, DecodeError> {
    Segment::decode(datagram).map(|segment| segment.to_string())
}

fn describe(datagram: &[u8]) -> Described {
    match Segment::decode(datagram).map(|segment| segment.body) {
        Ok(Body::Data(data)) => (data.kind.to_string(), Some(data.offset)),
        Ok(Body::Report(report)) => ("report".to_owned(), Some(report.serial)),
        Ok(Body::ReportAck { serial }) => ("report acknowledgement".to_owned(), Some(serial)),
        Ok(Body::Cancel { by, .. }) => (format!("cancel by the {by}"), None),
        Ok(Body::CancelAck { by }) => (format!("cancel by the {by} acknowledged"), None),
        Err(error) => (format!("not LTP: {error}"), None),
    }
}
