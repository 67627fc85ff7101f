//! Checks of CFDP by tshark's dissector.
//!
//! The dissector follows the older issues of the book (version 000). [`exception`] lists its
//! disagreements with version 001.

use cfdp::pdu::{Body, Direction, Pdu, TransmissionMode, Version};
use slowlight_cfdp as cfdp;
use testing::tshark::{number, tshark_lines};

use crate::corpus::corpus;

/// UDP port of the captured datagrams.
const PORT: u16 = 2501;

/// Requested fields, in the order of the output.
const FIELDS: [&str; 21] = [
    "cfdp.version",
    "cfdp.direction",
    "cfdp.trans_mode",
    "cfdp.data_length",
    "cfdp.srcid",
    "cfdp.transeqnum",
    "cfdp.dstid",
    "cfdp.fdtype",
    "cfdp.offset",
    "cfdp.condition_code",
    "cfdp.checksum",
    "cfdp.file_size",
    "cfdp.delivery_code",
    "cfdp.file_status",
    "cfdp.dir_code_ack",
    "cfdp.dir_subtype_ack",
    "cfdp.trans_stat_ack",
    "cfdp.nak_st_scope",
    "cfdp.nak_sp_scope",
    "cfdp.progress",
    "cfdp.crc_flag",
];

/// Known errors of tshark 4.0 about PDUs of the current book.
fn exception(name: &str, pdu: &Pdu<'_>) -> Option<&'static str> {
    if pdu.header.large_file {
        return Some("it takes the large-file flag for a reserved bit and reads 32-bit fields");
    }
    if matches!(pdu.body, Body::FileData(data) if data.segment_metadata.is_some()) {
        return Some("it takes the segment metadata flag for a reserved bit");
    }
    // Checked by hand: each of these is correct up to the field named here.
    let misread = [
        ("filestore request with one name", "it wants a second name in every filestore request"),
        ("Finished with response", "it looks for the filestore message beyond the TLV"),
        ("user operation 0x05", "it looks for the flow label beyond the message"),
        ("user operation 0x21", "it reads the source entity with the width of all identifiers"),
    ];
    misread.into_iter().find(|(part, _)| name.contains(part)).map(|(_, reason)| reason)
}

#[test]
fn tshark_agrees() {
    let cases = corpus();
    let datagrams = cases.iter().map(|case| &case.bytes[..]);
    let Some(lines) = tshark_lines(PORT, "cfdp", &FIELDS, datagrams) else { return };
    assert_eq!(lines.len(), cases.len(), "one line a packet");
    let mut compared = 0;
    let mut disagreements = Vec::new();
    for (case, line) in cases.iter().zip(&lines) {
        let pdu = Pdu::decode(&case.bytes).expect("our own PDU");
        let columns: Vec<&str> = line.split('|').collect();
        let (malformed, values) = columns.split_first().expect("a line has columns");
        if exception(&case.name, &pdu).is_some() {
            continue;
        }
        if !malformed.is_empty() {
            disagreements.push(format!("{}: malformed", case.name));
        }
        for (field, expected) in expectations(&pdu) {
            let column = FIELDS.iter().position(|name| *name == field).expect("a requested field");
            let found = number(values[column]);
            if found != Some(expected) {
                disagreements.push(format!("{}: {field} {found:?}, not {expected}", case.name));
            }
            compared += 1;
        }
    }
    assert!(disagreements.is_empty(), "tshark disagrees:\n{}", disagreements.join("\n"));
    assert!(compared > 1000, "only {compared} fields were compared");
}

/// Returns the fields that tshark must show, with their values.
fn expectations(pdu: &Pdu<'_>) -> Vec<(&'static str, u64)> {
    let header = &pdu.header;
    let data_length = pdu.encoded_len() - header.encoded_len();
    let mut fields = vec![
        ("cfdp.version", u64::from(header.version == Version::V1)),
        ("cfdp.direction", u64::from(header.direction == Direction::TowardSender)),
        ("cfdp.trans_mode", u64::from(header.mode == TransmissionMode::Unacknowledged)),
        ("cfdp.crc_flag", u64::from(header.crc)),
        ("cfdp.data_length", data_length as u64),
        ("cfdp.srcid", header.source.0),
        ("cfdp.transeqnum", header.sequence),
        ("cfdp.dstid", header.destination.0),
    ];
    if let Some(code) = pdu.body.directive_code() {
        fields.push(("cfdp.fdtype", u64::from(code)));
    }
    match pdu.body {
        Body::FileData(data) => fields.push(("cfdp.offset", data.offset)),
        Body::Eof(eof) => fields.extend([
            ("cfdp.condition_code", u64::from(eof.condition.code())),
            ("cfdp.checksum", u64::from(eof.checksum)),
            ("cfdp.file_size", eof.file_size),
        ]),
        Body::Finished(finished) => fields.extend([
            ("cfdp.condition_code", u64::from(finished.condition.code())),
            ("cfdp.delivery_code", finished.delivery as u64),
            ("cfdp.file_status", u64::from(finished.file_status.code())),
        ]),
        Body::Ack(ack) => fields.extend([
            ("cfdp.dir_code_ack", u64::from(ack.directive.code())),
            ("cfdp.dir_subtype_ack", u64::from(ack.subtype)),
            ("cfdp.condition_code", u64::from(ack.condition.code())),
            ("cfdp.trans_stat_ack", u64::from(ack.status.code())),
        ]),
        Body::Metadata(metadata) => fields.push(("cfdp.file_size", metadata.file_size)),
        Body::Nak(nak) => fields
            .extend([("cfdp.nak_st_scope", nak.scope_start), ("cfdp.nak_sp_scope", nak.scope_end)]),
        Body::KeepAlive(keep_alive) => fields.push(("cfdp.progress", keep_alive.progress)),
        Body::Prompt(_) | Body::Unknown { .. } => {}
    }
    fields
}
