//! Checks of CFDP by the Python package `spacepackets`, which implements the current book.
//!
//! Runs with the interpreter in `SLOWLIGHT_PYTHON`, or else the one of `make interop`, if it has
//! the package. The package does not support version 000.
#![expect(clippy::disallowed_methods, reason = "the test runs another program")]
#![expect(clippy::disallowed_types, reason = "the test runs another program")]

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use cfdp::pdu::{
    Body, DeliveryCode, Direction, Lv, Metadata, Pdu, PromptResponse, Tlv, TransmissionMode,
    UserOperation, UserRequest, Version,
};
use serde_json::{Value, json};
use slowlight_cfdp as cfdp;

use crate::corpus::{Case, corpus};

#[test]
fn spacepackets_agrees() {
    let cases: Vec<Case> = corpus().into_iter().filter(is_current).collect();
    let Some(replies) = run_spacepackets(&cases) else {
        return;
    };
    assert_eq!(replies.len(), cases.len(), "one shown a PDU");
    let mut disagreements = Vec::new();
    for (case, shown) in cases.iter().zip(&replies) {
        let pdu = Pdu::decode(&case.bytes).expect("our own PDU");
        for (name, expected) in expectations(&pdu, case) {
            let found = shown.pointer(name).unwrap_or(&Value::Null);
            if *found != expected {
                disagreements.push(format!("{}: {name} {found}, not {expected}", case.name));
            }
        }
        if let Some(error) = shown.get("error") {
            disagreements.push(format!("{}: {error}", case.name));
        }
    }
    assert!(disagreements.is_empty(), "spacepackets disagrees:\n{}", disagreements.join("\n"));
}

fn is_current(case: &Case) -> bool {
    Pdu::decode(&case.bytes).expect("our own PDU").header.version == Version::V1
}

/// Returns JSON pointers into the reply, with their expected values.
fn expectations(pdu: &Pdu<'_>, case: &Case) -> Vec<(&'static str, Value)> {
    let header = &pdu.header;
    let mut fields = vec![
        ("/source", json!(header.source.0)),
        ("/sequence", json!(header.sequence)),
        ("/destination", json!(header.destination.0)),
        ("/direction", json!(u8::from(header.direction == Direction::TowardSender))),
        ("/mode", json!(u8::from(header.mode == TransmissionMode::Unacknowledged))),
        ("/crc", json!(header.crc)),
    ];
    // Release 0.32 omits the data from the length it writes behind segment metadata.
    if !matches!(pdu.body, Body::FileData(data) if data.segment_metadata.is_some()) {
        fields.push(("/hex", json!(hexadecimal(&case.bytes))));
    }
    fields.extend(body_expectations(&pdu.body));
    fields
}

fn body_expectations(body: &Body<'_>) -> Vec<(&'static str, Value)> {
    match body {
        Body::FileData(data) => vec![
            ("/fields/offset", json!(data.offset)),
            ("/fields/data", json!(hexadecimal(data.data))),
            (
                "/fields/segment_metadata",
                json!(data.segment_metadata.map(|segment| hexadecimal(segment.metadata))),
            ),
        ],
        Body::Eof(eof) => vec![
            ("/fields/condition", json!(eof.condition.code())),
            ("/fields/checksum", json!(eof.checksum)),
            ("/fields/file_size", json!(eof.file_size)),
            ("/fields/fault_location", json!(eof.fault_location.map(|id| id.value))),
        ],
        Body::Finished(finished) => vec![
            ("/fields/condition", json!(finished.condition.code())),
            ("/fields/delivery", json!(u8::from(finished.delivery == DeliveryCode::Incomplete))),
            ("/fields/file_status", json!(finished.file_status.code())),
            ("/fields/fault_location", json!(finished.fault_location().map(|id| id.value))),
        ],
        Body::Ack(ack) => vec![
            ("/fields/directive", json!(ack.directive.code())),
            ("/fields/condition", json!(ack.condition.code())),
            ("/fields/status", json!(ack.status.code())),
        ],
        Body::Metadata(metadata) => metadata_expectations(metadata),
        Body::Nak(nak) => {
            let pairs: Vec<_> =
                nak.requests.iter().map(|request| [request.start, request.end]).collect();
            vec![
                ("/fields/scope_start", json!(nak.scope_start)),
                ("/fields/scope_end", json!(nak.scope_end)),
                ("/fields/requests", json!(pairs)),
            ]
        }
        Body::KeepAlive(keep_alive) => vec![("/fields/progress", json!(keep_alive.progress))],
        Body::Prompt(prompt) => {
            let keep_alive = prompt.response == PromptResponse::KeepAlive;
            vec![("/fields/response", json!(u8::from(keep_alive)))]
        }
        Body::Unknown { .. } => Vec::new(),
    }
}

fn metadata_expectations(metadata: &Metadata<'_>) -> Vec<(&'static str, Value)> {
    let mut fields = vec![
        ("/fields/closure_requested", json!(metadata.closure_requested)),
        ("/fields/checksum_type", json!(metadata.checksum_type.code())),
        ("/fields/file_size", json!(metadata.file_size)),
        ("/fields/source_name", json!(metadata.source_name.to_str())),
        ("/fields/destination_name", json!(metadata.destination_name.to_str())),
    ];
    for tlv in metadata.tlvs {
        if let Tlv::MessageToUser(Lv(message)) = tlv
            && let Ok(Some(operation)) = UserOperation::decode(message)
        {
            fields.push(("/fields/operations/0/type", json!(operation.code())));
            fields.extend(operation_expectations(&operation));
        }
    }
    fields
}

/// Returns the parameters of operations that the package decodes.
fn operation_expectations(operation: &UserOperation<'_>) -> Vec<(&'static str, Value)> {
    let directory_pointer = "/fields/operations/0/directory";
    let file_pointer = "/fields/operations/0/file";
    match operation {
        UserOperation::Request(UserRequest::ProxyPut(put)) => vec![
            ("/fields/operations/0/destination", json!(put.destination.value)),
            ("/fields/operations/0/source_name", json!(put.source_name.to_str())),
            ("/fields/operations/0/destination_name", json!(put.destination_name.to_str())),
        ],
        UserOperation::ProxyPutResponse { condition, file_status, .. } => vec![
            ("/fields/operations/0/condition", json!(condition.code())),
            ("/fields/operations/0/file_status", json!(file_status.code())),
        ],
        UserOperation::OriginatingTransactionId(transaction) => vec![
            ("/fields/operations/0/source", json!(transaction.source.value)),
            ("/fields/operations/0/sequence", json!(transaction.sequence.value)),
        ],
        UserOperation::ProxyClosureRequest(requested) => {
            vec![("/fields/operations/0/closure_requested", json!(requested))]
        }
        UserOperation::ProxyTransmissionMode(mode) => {
            let mode = u8::from(*mode == TransmissionMode::Unacknowledged);
            vec![("/fields/operations/0/mode", json!(mode))]
        }
        UserOperation::Request(UserRequest::DirectoryListing { directory, file }) => vec![
            (directory_pointer, json!(directory.to_str())),
            (file_pointer, json!(file.to_str())),
        ],
        UserOperation::DirectoryListingResponse { success, directory, file } => vec![
            ("/fields/operations/0/success", json!(success)),
            (directory_pointer, json!(directory.to_str())),
            (file_pointer, json!(file.to_str())),
        ],
        _ => Vec::new(),
    }
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Returns one JSON object per PDU; `None`, and a printed reason, without the package.
fn run_spacepackets(cases: &[Case]) -> Option<Vec<Value>> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let python = std::env::var_os("SLOWLIGHT_PYTHON")
        .map_or_else(|| root.join("interop/.venv/bin/python"), PathBuf::from);
    let present =
        Command::new(&python).args(["-c", "import spacepackets"]).stderr(Stdio::null()).status();
    if !present.is_ok_and(|status| status.success()) {
        assert!(std::env::var_os("CI").is_none(), "CI needs spacepackets in {}", python.display());
        testing::skipped!("{} has no spacepackets", python.display());
        return None;
    }
    let mut child = Command::new(&python)
        .arg(root.join("interop/oracle/spacepackets_check.py"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("the interpreter ran a moment ago");
    let mut stdin = child.stdin.take().expect("stdin is piped");
    let lines: String = cases.iter().map(|case| hexadecimal(&case.bytes) + "\n").collect();
    let writer = std::thread::spawn(move || stdin.write_all(lines.as_bytes()));
    let output = child.wait_with_output().expect("the script ends");
    writer.join().expect("the writer does not panic").expect("the script reads all lines");
    assert!(output.status.success(), "the script: {}", output.status);
    let text = String::from_utf8(output.stdout).expect("JSON is text");
    Some(text.lines().map(|line| serde_json::from_str(line).expect("a line is JSON")).collect())
}
