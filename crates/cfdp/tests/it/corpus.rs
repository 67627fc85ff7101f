//! PDUs of every kind, for checks by independent decoders.

use cfdp::pdu::*;
use slowlight_cfdp as cfdp;

/// One PDU and its name.
#[derive(Clone, Debug)]
pub(crate) struct Case {
    pub(crate) name: String,
    pub(crate) bytes: Vec<u8>,
}

/// Header of the corpus: entities 101 and 102, sequence number 1.
const HEADER: Header = Header {
    version: Version::V1,
    direction: Direction::TowardReceiver,
    mode: TransmissionMode::Acknowledged,
    crc: false,
    large_file: false,
    segmentation_control: false,
    entity_width: Width::TWO,
    sequence_width: Width::TWO,
    source: EntityId(101),
    sequence: 1,
    destination: EntityId(102),
};

const METADATA: Metadata<'_> = Metadata {
    closure_requested: true,
    checksum_type: ChecksumType::Crc32c,
    file_size: 10_000,
    source_name: Lv(b"from/here"),
    destination_name: Lv(b"to/there"),
    tlvs: Tlvs::NONE,
};

/// Returns the corpus.
pub(crate) fn corpus() -> Vec<Case> {
    let mut cases = Vec::new();
    for (header_name, header) in headers() {
        for (body_name, body) in bodies() {
            let forward = !matches!(
                body,
                Body::Nak(_) | Body::Finished(_) | Body::KeepAlive(_) | Body::Ack(_)
            );
            let direction =
                if forward { Direction::TowardReceiver } else { Direction::TowardSender };
            let pdu = Pdu { header: Header { direction, ..header }, body };
            cases.push(case(format!("{body_name}, {header_name}"), &pdu));
        }
        add_tlv_cases(header_name, header, &mut cases);
    }
    add_segment_metadata(&mut cases);
    cases
}

fn case(name: String, pdu: &Pdu<'_>) -> Case {
    let bytes = pdu.to_vec().expect("the corpus can be encoded");
    Case { name, bytes }
}

fn headers() -> Vec<(&'static str, Header)> {
    let wide = Header {
        entity_width: Width::EIGHT,
        sequence_width: Width::FOUR,
        source: EntityId(0x0102_0304_0506_0708),
        sequence: 0x0a0b_0c0d,
        ..HEADER
    };
    let narrow = Header { entity_width: Width::ONE, sequence_width: Width::ONE, ..HEADER };
    vec![
        ("plain", HEADER),
        ("version 0", Header { version: Version::V0, ..HEADER }),
        ("CRC", Header { crc: true, ..HEADER }),
        ("unacknowledged", Header { mode: TransmissionMode::Unacknowledged, ..narrow }),
        ("wide", wide),
        ("large", Header { large_file: true, crc: true, segmentation_control: true, ..wide }),
    ]
}

fn bodies() -> Vec<(&'static str, Body<'static>)> {
    const GAPS: [SegmentRequest; 3] = [
        SegmentRequest::METADATA,
        SegmentRequest { start: 997, end: 1994 },
        SegmentRequest { start: 2991, end: 3988 },
    ];
    let eof = Eof {
        condition: ConditionCode::NoError,
        checksum: 0x1234_5678,
        file_size: 10_000,
        fault_location: None,
    };
    let fault_location = Some(IdField { value: 102, width: Width::TWO });
    let cancelled = Eof { condition: ConditionCode::CancelRequestReceived, fault_location, ..eof };
    let finished = Finished {
        condition: ConditionCode::NoError,
        end_system: true,
        delivery: DeliveryCode::Complete,
        file_status: FileStatus::Retained,
        tlvs: Tlvs::NONE,
    };
    let ack = Ack {
        directive: Acknowledged::Eof,
        subtype: 0,
        condition: ConditionCode::NoError,
        status: TransactionStatus::Active,
    };
    let ack_finished = Ack {
        directive: Acknowledged::Finished,
        subtype: 1,
        status: TransactionStatus::Terminated,
        ..ack
    };
    let requests = SegmentRequests::new(&GAPS);
    let nak = Nak { scope_start: 0, scope_end: 10_000, requests };
    let data = FileData { segment_metadata: None, offset: 997, data: b"some bytes of a file" };
    vec![
        ("file data", Body::FileData(data)),
        ("EOF", Body::Eof(eof)),
        ("cancelling EOF", Body::Eof(cancelled)),
        ("Finished", Body::Finished(finished)),
        ("ACK of EOF", Body::Ack(ack)),
        ("ACK of Finished", Body::Ack(ack_finished)),
        ("Metadata", Body::Metadata(METADATA)),
        ("NAK", Body::Nak(nak)),
        ("NAK of nothing", Body::Nak(Nak { requests: SegmentRequests::new(&[]), ..nak })),
        ("Prompt", Body::Prompt(Prompt { response: PromptResponse::KeepAlive })),
        ("Keep Alive", Body::KeepAlive(KeepAlive { progress: 4711 })),
    ]
}

fn add_tlv_cases(header_name: &str, header: Header, cases: &mut Vec<Case>) {
    let messages: Vec<_> = operations()
        .into_iter()
        .map(|operation| operation.to_vec().expect("the corpus can be encoded"))
        .collect();
    let request = |action, second| FilestoreRequest { action, first: Lv(b"one"), second };
    let two_names = request(FilestoreAction::RenameFile, Lv(b"two"));
    let one_name = request(FilestoreAction::DeleteFile, Lv::default());
    let mut tlvs = vec![
        (
            "fault handler",
            Tlv::FaultHandlerOverride {
                condition: ConditionCode::NakLimitReached,
                handler: FaultHandler::Cancel,
            },
        ),
        ("flow label", Tlv::FlowLabel(Lv(b"label"))),
        ("plain message", Tlv::MessageToUser(Lv(b"hello"))),
        ("filestore request with two names", Tlv::FilestoreRequest(two_names)),
        ("filestore request with one name", Tlv::FilestoreRequest(one_name)),
    ];
    tlvs.extend(messages.iter().map(|message| ("user operation", Tlv::MessageToUser(Lv(message)))));
    for (name, tlv) in tlvs {
        let name = match tlv {
            Tlv::MessageToUser(Lv(message)) if message.starts_with(b"cfdp") => {
                format!("{name} {:#04x}", message[4])
            }
            _ => name.to_owned(),
        };
        let fields = [tlv];
        let metadata = Metadata { tlvs: Tlvs::new(&fields), ..METADATA };
        let pdu = Pdu { header, body: Body::Metadata(metadata) };
        cases.push(case(format!("Metadata with {name}, {header_name}"), &pdu));
    }
    for (name, FilestoreRequest { action, first, second }) in
        [("two names", two_names), ("one name", one_name)]
    {
        // Not status 2: spacepackets 0.32 refuses it for "delete file", tshark names it.
        let status = FilestoreStatus(1);
        let message = Lv(b"sorry");
        let fields = [
            Tlv::FilestoreResponse(FilestoreResponse { action, status, first, second, message }),
            Tlv::EntityId(IdField { value: 102, width: Width::TWO }),
        ];
        let finished = Finished {
            condition: ConditionCode::FilestoreRejection,
            end_system: true,
            delivery: DeliveryCode::Complete,
            file_status: FileStatus::FilestoreRejection,
            tlvs: Tlvs::new(&fields),
        };
        let header = Header { direction: Direction::TowardSender, ..header };
        let pdu = Pdu { header, body: Body::Finished(finished) };
        cases.push(case(format!("Finished with response of {name}, {header_name}"), &pdu));
    }
}

fn operations() -> Vec<UserOperation<'static>> {
    use {UserOperation as U, UserRequest as R};
    let transaction = TransactionField {
        source: IdField { value: 5, width: Width::TWO },
        sequence: IdField { value: 9, width: Width::FOUR },
    };
    let status = TransactionStatus::Active;
    let (directory, file) = (Lv(b"dir"), Lv(b"listing"));
    let suspension = Suspension { suspended: true, status, transaction };
    vec![
        U::Request(R::ProxyPut(ProxyPut {
            destination: IdField { value: 103, width: Width::TWO },
            source_name: Lv(b"a"),
            destination_name: Lv(b"b"),
        })),
        U::Proxy(PutDetail::MessageToUser(Lv(b"hi"))),
        U::Proxy(PutDetail::FaultHandlerOverride {
            condition: ConditionCode::NakLimitReached,
            handler: FaultHandler::Ignore,
        }),
        U::ProxyTransmissionMode(TransmissionMode::Unacknowledged),
        U::Proxy(PutDetail::FlowLabel(Lv(b"label"))),
        U::ProxySegmentationControl(true),
        U::ProxyPutResponse {
            condition: ConditionCode::FilestoreRejection,
            delivery: DeliveryCode::Incomplete,
            file_status: FileStatus::FilestoreRejection,
        },
        U::Request(R::ProxyPutCancel),
        U::OriginatingTransactionId(transaction),
        U::ProxyClosureRequest(true),
        U::Request(R::DirectoryListing { directory, file }),
        U::DirectoryListingResponse { success: false, directory, file },
        U::Request(R::RemoteStatusReport { transaction, file }),
        U::RemoteStatusReportResponse { status, success: true, transaction },
        U::Request(R::RemoteSuspend(transaction)),
        U::RemoteSuspendResponse(suspension),
        U::Request(R::RemoteResume(transaction)),
        U::RemoteResumeResponse(Suspension { suspended: false, ..suspension }),
    ]
}

fn add_segment_metadata(cases: &mut Vec<Case>) {
    let segment_metadata = Some(SegmentMetadata {
        continuation: RecordContinuation::StartAndEnd,
        metadata: b"about this",
    });
    let data = FileData { segment_metadata, offset: 997, data: b"some bytes of a file" };
    let header = Header { segmentation_control: true, ..HEADER };
    let pdu = Pdu { header, body: Body::FileData(data) };
    cases.push(case("file data with segment metadata".to_owned(), &pdu));
}
