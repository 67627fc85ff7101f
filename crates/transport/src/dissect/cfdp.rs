//! PDUs of CFDP.

use cfdp::pdu::{Body, Pdu};
use wire::DecodeError;

use super::{Described, Dissector, by_length};

/// Reader of CFDP PDUs.
pub const DISSECTOR: Dissector =
    Dissector { title: "CFDP", line: Some(line), split, plausible: |_| Ok(()), begins, describe };

fn begins(datagram: &[u8]) -> bool {
    Pdu::decode(datagram).is_ok_and(|pdu| {
        let is_known = !matches!(pdu.body, Body::Unknown { .. });
        is_known && pdu.to_vec().is_ok_and(|bytes| bytes == datagram)
    })
}

fn split(packet: &[u8]) -> Vec<&[u8]> {
    by_length(packet, Pdu::len_of_first)
}

fn line(datagram: &[u8]) -> Result<String, DecodeError> {
    Pdu::decode(datagram).map(|pdu| pdu.to_string())
}

fn describe(datagram: &[u8]) -> Described {
    match Pdu::decode(datagram) {
        Ok(pdu) => match &pdu.body {
            Body::FileData(data) => ("File Data".to_owned(), Some(data.offset)),
            Body::Metadata(_) => ("Metadata".to_owned(), None),
            Body::Eof(_) => ("EOF".to_owned(), None),
            Body::Finished(_) => ("Finished".to_owned(), None),
            Body::Ack(ack) => (format!("ACK({})", ack.directive), None),
            Body::Nak(_) => ("NAK".to_owned(), None),
            Body::Prompt(_) => ("Prompt".to_owned(), None),
            Body::KeepAlive(_) => ("Keep Alive".to_owned(), None),
            Body::Unknown { .. } => ("unknown directive".to_owned(), None),
        },
        Err(error) => (format!("not CFDP: {error}"), None),
    }
}
