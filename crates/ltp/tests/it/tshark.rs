//! LTP segments, as decoded by tshark 4.0 (RFC 5326).

use ltp::segment::{
    Body, CancelReason, Checkpoint, Claim, Claims, Data, DataKind, End, Extension, Extensions,
    Report, Segment, SessionId,
};
use slowlight_ltp as ltp;

use testing::tshark::{number, tshark_lines};

const FIELDS: [&str; 15] = [
    "ltp.version",
    "ltp.type",
    "ltp.session.orig",
    "ltp.session.number",
    "ltp.hdr.extn.cnt",
    "ltp.data.client.id",
    "ltp.data.offset",
    "ltp.data.length",
    "ltp.data.chkp",
    "ltp.data.rpt",
    "ltp.rpt.sno",
    "ltp.rpt.chkp",
    "ltp.rpt.ub",
    "ltp.rpt.lb",
    "ltp.rpt.clm.cnt",
];

/// One segment of each kind, with numbers of one byte and of several.
fn segments() -> Vec<Vec<u8>> {
    let claims: Vec<_> = (0..30).map(|i| Claim { offset: i * 2000, length: 1000 }).collect();
    let cookie = [Extension { tag: 1, value: b"cookie" }];
    let mut all = Vec::new();
    // tshark ignores segments shorter than six bytes, so no session has one-byte numbers. It also
    // keeps the bounds of reports in 31 bits.
    for number in [200, 30_000, 2_000_000_000] {
        let session = SessionId { originator: number, number: number + 7 };
        let mut bodies = vec![
            Body::ReportAck { serial: number },
            Body::CancelAck { by: End::Sender },
            Body::CancelAck { by: End::Receiver },
            Body::Cancel { by: End::Sender, reason: CancelReason::CycleLimit },
            Body::Cancel { by: End::Receiver, reason: CancelReason::Unreachable },
        ];
        for kind in [
            DataKind::Red,
            DataKind::Checkpoint,
            DataKind::EndOfRedPart,
            DataKind::EndOfRedBlock,
            DataKind::Green,
            DataKind::EndOfGreenBlock,
        ] {
            let checkpoint =
                kind.is_checkpoint().then_some(Checkpoint { serial: number, report: number / 2 });
            let data = &[0x55; 200][..];
            bodies.push(Body::Data(Data { kind, service: 4, offset: number, checkpoint, data }));
        }
        // tshark reports a report without claims as malformed; such a report is meaningless anyway.
        for count in [1, 30] {
            let claims = Claims::new(&claims[..count]);
            let upper = 100_000 + number;
            let report =
                Report { serial: number, checkpoint: number + 1, upper, lower: number, claims };
            bodies.push(Body::Report(report));
        }
        for body in bodies {
            let plain = Segment::new(session, body);
            let extended = Segment { header: Extensions::new(&cookie), ..plain };
            // tshark reads on behind the extension counts, where nothing need follow in these.
            let whole = !matches!(body, Body::CancelAck { .. });
            let kinds = [plain, extended].into_iter().filter(|s| whole || !s.header.is_empty());
            all.extend(kinds.map(|segment| segment.to_vec().expect("a segment")));
        }
    }
    all
}

fn expectations(bytes: &[u8]) -> Vec<(&'static str, u64)> {
    let segment = Segment::decode(bytes).expect("our own segment");
    let mut fields = vec![
        ("ltp.version", 0),
        ("ltp.type", u64::from(bytes[0] & 0x0f)),
        ("ltp.session.orig", segment.session.originator),
        ("ltp.session.number", segment.session.number),
        ("ltp.hdr.extn.cnt", segment.header.len() as u64),
    ];
    match segment.body {
        Body::Data(data) => {
            fields.extend([
                ("ltp.data.client.id", data.service),
                ("ltp.data.offset", data.offset),
                ("ltp.data.length", data.data.len() as u64),
            ]);
            if let Some(checkpoint) = data.checkpoint {
                let serials = [checkpoint.serial, checkpoint.report];
                fields.extend([("ltp.data.chkp", serials[0]), ("ltp.data.rpt", serials[1])]);
            }
        }
        Body::Report(report) => fields.extend([
            ("ltp.rpt.sno", report.serial),
            ("ltp.rpt.chkp", report.checkpoint),
            ("ltp.rpt.ub", report.upper),
            ("ltp.rpt.lb", report.lower),
            ("ltp.rpt.clm.cnt", report.claims.len() as u64),
        ]),
        Body::ReportAck { .. } | Body::Cancel { .. } | Body::CancelAck { .. } => {}
    }
    fields
}

#[test]
fn tshark_agrees() {
    let segments = segments();
    let datagrams = segments.iter().map(Vec::as_slice);
    let Some(lines) = tshark_lines(ltp::segment::PORT, "ltp", &FIELDS, datagrams) else { return };
    assert_eq!(lines.len(), segments.len(), "one line a packet");
    let mut wrong = Vec::new();
    for (bytes, line) in segments.iter().zip(&lines) {
        let segment = Segment::decode(bytes).expect("our own segment");
        let columns: Vec<&str> = line.split('|').collect();
        let (malformed, values) = columns.split_first().expect("a line has columns");
        if !malformed.is_empty() {
            wrong.push(format!("{segment}: malformed"));
        }
        for (field, expected) in expectations(bytes) {
            let column = FIELDS.iter().position(|name| *name == field).expect("a requested field");
            let found = number(values[column]);
            if found != Some(expected) {
                wrong.push(format!("{segment}: {field} is {:?}, not {expected}", values[column]));
            }
        }
    }
    assert!(wrong.is_empty(), "tshark disagrees:\n{}", wrong.join("\n"));
}
