//! Bytes sent to a peer that never replies: at most three times those that arrived, without the
//! headers of IP and UDP on both sides.

use engine::Time;

use super::hostile::{data, eof, header, metadata};
use super::world::{World, config, content, name};
use crate::Config;
use crate::pdu::{
    Ack, Acknowledged, Body, ChecksumType, ConditionCode, DeliveryCode, Direction, Eof, FileStatus,
    FilestoreAction, FilestoreRequest, Finished, Header, KeepAlive, Lv, Metadata, Nak, Pdu, Prompt,
    PromptResponse, SegmentRequests, Tlv, Tlvs, TransactionStatus, TransmissionMode, UserOperation,
    UserRequest,
};

const HOUR: Time = Time::from_secs(3600);

/// Bytes that arrive and bytes sent in an hour by a receiver whose peer never replies.
fn measure(config: &Config, pdus: &[(Header, Body<'_>)]) -> (usize, usize) {
    let mut world = World::new(config);
    world.lose(|_, _, _| true);
    for number in 0..300 {
        world.hosts[1].store.insert(name(&format!("file-{number}")), content(1));
    }
    let mut arrived = 0;
    for (header, body) in pdus {
        let pdu = Pdu { header: *header, body: *body }.to_vec().expect("a sound PDU");
        arrived += pdu.len();
        world.hear(1, &pdu);
    }
    world.run_until(HOUR);
    let sent = world.log.iter().map(|sent| sent.bytes.len()).sum();
    (arrived, sent)
}

fn check(what: &str, config: &Config, pdus: &[(Header, Body<'_>)]) {
    let (arrived, sent) = measure(config, pdus);
    println!("{what}: {arrived} B in, {sent} B out");
    assert!(sent <= 3 * arrived, "{what}: {arrived} B in, {sent} B out");
}

fn described<'a>(closure_requested: bool, tlvs: &'a [Tlv<'a>]) -> Body<'a> {
    Body::Metadata(Metadata {
        closure_requested,
        checksum_type: ChecksumType::Null,
        file_size: 0,
        source_name: Lv(b""),
        destination_name: Lv(b""),
        tlvs: Tlvs::new(tlvs),
    })
}

fn cancelled() -> Body<'static> {
    Body::Eof(Eof {
        condition: ConditionCode::CancelRequestReceived,
        checksum: 0,
        file_size: 0,
        fault_location: None,
    })
}

/// Empty file without a checksum.
fn empty() -> Body<'static> {
    let condition = ConditionCode::NoError;
    Body::Eof(Eof { condition, checksum: 0, file_size: 0, fault_location: None })
}

#[test]
fn no_pdu_that_opens_something_is_amplified() {
    let config = config(|_| {});
    let class_1 = |header| Header { mode: TransmissionMode::Unacknowledged, ..header };
    let it = header(7);
    let end = eof(b"x");
    for (what, pdus) in [
        ("Metadata", vec![(it, metadata(1000))]),
        ("File Data", vec![(it, data(500, b"x"))]),
        ("EOF", vec![(it, end)]),
        ("EOF of a cancellation", vec![(it, cancelled())]),
        ("file of 1 B", vec![(it, metadata(1)), (it, data(0, b"x")), (it, end)]),
        ("1 B and the end of 4 GB", vec![(it, metadata(0)), (it, data(4_000_000_000, b"x"))]),
        ("Metadata and EOF", vec![(it, metadata(1)), (it, end)]),
        ("many EOF", vec![(it, end); 50]),
        ("class 1 with closure", vec![(class_1(it), described(true, &[])), (class_1(it), empty())]),
    ] {
        check(what, &config, &pdus);
    }
}

#[test]
fn no_pdu_of_an_unknown_transaction_is_amplified() {
    let config = config(|_| {});
    let it = header(7);
    let back = Header { direction: Direction::TowardSender, source: it.destination, ..it };
    let finished = Body::Finished(Finished {
        condition: ConditionCode::NoError,
        end_system: true,
        delivery: DeliveryCode::Complete,
        file_status: FileStatus::Retained,
        tlvs: Tlvs::NONE,
    });
    let ack = Body::Ack(Ack {
        directive: Acknowledged::Finished,
        subtype: 1,
        condition: ConditionCode::NoError,
        status: TransactionStatus::Active,
    });
    let nak = Body::Nak(Nak { scope_start: 0, scope_end: 9, requests: SegmentRequests::new(&[]) });
    let prompt = Body::Prompt(Prompt { response: PromptResponse::Nak });
    for (what, header, body) in [
        ("Finished", back, finished),
        ("NAK", back, nak),
        ("Keep Alive", back, Body::KeepAlive(KeepAlive { progress: 1 })),
        ("ACK", it, ack),
        ("Prompt", it, prompt),
    ] {
        check(what, &config, &[(header, body)]);
    }
    check("Prompt of a reception", &config, &[(it, metadata(9)), (it, prompt)]);
}

#[test]
fn long_naks_are_sent_as_far_as_the_credit_allows() {
    let mut pdus = vec![(header(7), metadata(1_000_000))];
    pdus.extend((0..500).map(|n| (header(7), data(n * 20, b"x"))));
    pdus.push((header(7), eof(&content(1_000_000))));
    check("NAK of 500 gaps", &config(|_| {}), &pdus);
}

#[test]
fn requests_are_not_amplified() {
    let file = Lv(b"l");
    let listing = UserRequest::DirectoryListing { directory: Lv(b""), file };
    let message = UserOperation::from(listing).to_vec().expect("it fits");
    let tlvs = [Tlv::MessageToUser(Lv(&message))];
    for mode in [TransmissionMode::Acknowledged, TransmissionMode::Unacknowledged] {
        let header = Header { mode, ..header(7) };
        let pdus = [(header, described(false, &tlvs)), (header, empty())];
        check(&format!("listing, {mode:?}"), &config(|_| {}), &pdus);
    }
}

/// The Finished PDU carries a response for each request, also when it is repeated from memory.
#[test]
fn filestore_responses_are_not_amplified() {
    let request = |first| {
        Tlv::FilestoreRequest(FilestoreRequest {
            action: FilestoreAction::CreateFile,
            first: Lv(first),
            second: Lv(b""),
        })
    };
    let tlvs: Vec<_> = (0..20).map(|_| request(b"a-file-with-a-name")).collect();
    let mut pdus = vec![(header(7), described(false, &tlvs)), (header(7), empty())];
    check("filestore requests", &config(|_| {}), &pdus);
    pdus.extend([(header(7), empty()); 20]);
    check("filestore requests, EOF repeated", &config(|_| {}), &pdus);
}
