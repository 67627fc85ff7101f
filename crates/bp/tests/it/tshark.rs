//! Bundles and TCPCL of both versions, as decoded by tshark 4.0 (RFC 9171, RFC 5050, RFC 9174, RFC
//! 7242).

use bp::codec::bp6;
use bp::codec::bp7;
use bp::codec::eid::Eid;
use bp::codec::tcpcl3;
use bp::codec::tcpcl4;
use slowlight_bp as bp;

use testing::tshark::{TsharkOutput, number, raw_pcap, run_tshark};

/// UDP port of bundles in datagrams (RFC 7122).
const PORT: u16 = 4556;
const CHECKS: [bp7::CrcType; 3] = [bp7::CrcType::None, bp7::CrcType::Crc16, bp7::CrcType::Crc32c];

/// Returns the columns of a line, each with its occurrences.
fn columns(line: &str) -> Vec<Vec<&str>> {
    line.split('|')
        .map(|cell| cell.split(',').filter(|value| !value.is_empty()).collect())
        .collect()
}

/// Runs tshark over datagrams with one bundle each, for all occurrences of fields.
fn tshark_bundles(fields: &[&str], bundles: &[Vec<u8>]) -> Option<TsharkOutput> {
    let options = ["-d", "udp.port==4556,bundle", "-E", "occurrence=a"];
    let whole = bundles.iter().map(|bytes| (&bytes[..], bytes.len()));
    run_tshark(&options, fields, testing::tshark::pcap(PORT, whole))
}

fn primary7(crc: bp7::CrcType) -> bp7::Primary {
    bp7::Primary {
        flags: bp7::BundleFlags::MUST_NOT_FRAGMENT,
        crc,
        destination: Eid::ipn(2, 7),
        source: "dtn://node/service".parse().expect("an endpoint"),
        report_to: Eid::None,
        creation: bp7::CreationTimestamp { time_ms: 700_000_000_000, sequence: 70_000 },
        lifetime_ms: 86_400_000,
        fragment: None,
    }
}

fn bundle7(crc: bp7::CrcType, fragment: Option<bp7::Fragment>, payload: &[u8]) -> Vec<u8> {
    let hops = bp7::Extension::HopCount(bp7::HopCount { limit: 200, count: 30 });
    let extensions = [
        bp7::Extension::PreviousNode(Eid::ipn(5, 0)),
        bp7::Extension::BundleAge { age_ms: 123_456 },
        hops,
    ];
    let flags = bp7::BlockFlags::REPLICATE;
    let blocks = extensions
        .iter()
        .zip(2..)
        .map(|(extension, number)| extension.to_block(number, flags, crc).expect("a block"));
    let carried = bp7::Payload { flags, crc, len: payload.len() as u64 };
    let mut primary = primary7(crc);
    if fragment.is_some() {
        primary.flags = bp7::BundleFlags::default();
        primary.fragment = fragment;
    }
    let head = bp7::Head::new(primary, blocks.collect(), carried).expect("a head");
    bp7::Bundle { head, payload }.to_vec().expect("a bundle")
}

#[test]
fn tshark_agrees_on_version_7() {
    let fields = [
        "_ws.malformed",
        "bpv7.crc_status",
        "bpv7.primary.dst_uri",
        "bpv7.primary.src_uri",
        "bpv7.create_ts.seqno",
        "bpv7.primary.lifetime",
        "bpv7.canonical.type_code",
        "bpv7.canonical.block_num",
        "bpv7.bundle_age.time",
        "bpv7.hop_count.limit",
        "bpv7.hop_count.current",
        "bpv7.canonical.data",
        "bpv7.previous_node.uri",
        "bpv7.primary.frag_offset",
        "bpv7.primary.total_len",
    ];
    let long = [0x55; 300];
    let bundles = CHECKS.map(|crc| bundle7(crc, None, &long));
    let Some(shown) = tshark_bundles(&fields, &bundles) else { return };
    assert_eq!(shown.lines.len(), bundles.len(), "{}", shown.stderr);
    for (crc, line) in CHECKS.iter().zip(&shown.lines) {
        let columns = columns(line);
        assert_eq!(columns[0], Vec::<&str>::new(), "malformed: {line}");
        // 1 is "good"; one for each block.
        let good = if *crc == bp7::CrcType::None { Vec::new() } else { vec!["1"; 5] };
        assert_eq!(columns[1], good, "{line}");
        assert_eq!(columns[2], ["ipn:2.7"], "{line}");
        assert_eq!(columns[3], ["dtn://node/service"], "{line}");
        assert_eq!((columns[4][0], columns[5][0]), ("70000", "86400000"), "{line}");
        assert_eq!(columns[6], ["6", "7", "10", "1"], "{line}");
        assert_eq!(columns[7], ["2", "3", "4", "1"], "{line}");
        assert_eq!(
            (columns[8][0], columns[9][0], columns[10][0]),
            ("123456", "200", "30"),
            "{line}"
        );
        assert_eq!((columns[11][3], columns[12][0]), ("300", "ipn:5.0"), "{line}");
    }
    // A damaged CRC is reported: the test can fail.
    let mut damaged = bundles[2].clone();
    let last = damaged.len() - 2;
    damaged[last] ^= 1;
    let fragment = bp7::Fragment { offset: 1000, total: 1_000_000 };
    let others = [damaged, bundle7(CHECKS[1], Some(fragment), b"hello")];
    let Some(shown) = tshark_bundles(&fields, &others) else { return };
    assert!(columns(&shown.lines[0])[1].contains(&"0"), "{}", shown.lines[0]);
    let part = columns(&shown.lines[1]);
    assert_eq!((part[13][0], part[14][0]), ("1000", "1000000"), "{}", shown.lines[1]);
}

#[test]
fn tshark_agrees_on_status_reports() {
    let fields = [
        "_ws.malformed",
        "bpv7.admin_rec.type_code",
        "bpv7.status_assert.val",
        "bpv7.status_rep.reason_code",
        "bpv7.status_rep.subj_src_uri",
    ];
    let report = bp7::StatusReport {
        received: bp7::Status::At(700_000_000_000),
        deleted: bp7::Status::Asserted,
        reason: bp7::Reason::HopLimitExceeded,
        source: Eid::ipn(9, 8),
        creation: bp7::CreationTimestamp { time_ms: 700_000_000_000, sequence: 1 },
        // tshark leaves a fragment's fields empty, so this is about a whole bundle.
        fragment: None,
        ..bp7::StatusReport::default()
    };
    let payload = bp7::AdministrativeRecord::StatusReport(report).to_vec().expect("a record");
    let crc = bp7::CrcType::Crc32c;
    let primary = primary7(crc);
    let flags = primary.flags.with(bp7::BundleFlags::ADMINISTRATIVE);
    let carried = bp7::Payload { crc, len: payload.len() as u64, ..bp7::Payload::default() };
    let head = bp7::Head::new(bp7::Primary { flags, ..primary }, Vec::new(), carried);
    let head = head.expect("a head");
    let bundle = bp7::Bundle { head, payload: &payload }.to_vec().expect("a bundle");
    let Some(shown) = tshark_bundles(&fields, &[bundle]) else { return };
    let line = &shown.lines[0];
    let columns = columns(line);
    assert_eq!(columns[0], Vec::<&str>::new(), "malformed: {line}");
    assert_eq!(columns[1], ["1"], "{line}");
    assert_eq!(columns[2].len(), 4, "{line}");
    assert_eq!((columns[3][0], columns[4][0]), ("9", "ipn:9.8"), "{line}");
}

#[test]
fn tshark_agrees_on_security_blocks() {
    let fields = [
        "_ws.malformed",
        "bpsec.asb.target",
        "bpsec.asb.ctxid",
        "bpsec.asb.secsrc.uri",
        "bpsec.asb.param.id",
        "bpsec.asb.result.id",
        "bpsec.defaultsc.shavar",
        "bpsec.defaultsc.aesvar",
        "bpsec.defaultsc.scope",
    ];
    let example = include_str!("../../testdata/bpsec/a3_bundle.hex");
    let digits: String = example.lines().filter(|line| !line.starts_with('#')).collect();
    let pairs = digits.split_whitespace().flat_map(|text| text.as_bytes().chunks(2));
    let bytes: Vec<u8> = pairs
        .map(|pair| {
            let pair = str::from_utf8(pair).expect("ASCII");
            u8::from_str_radix(pair, 16).expect("two digits")
        })
        .collect();
    let read = bp7::Bundle::decode(&bytes, &bp7::Bounds::default()).expect("the example");
    let written = read.to_vec().expect("a bundle");
    let Some(shown) = tshark_bundles(&fields, &[written]) else { return };
    let line = &shown.lines[0];
    let columns = columns(line);
    assert_eq!(columns[0], Vec::<&str>::new(), "malformed: {line}");
    assert_eq!(columns[1], ["0", "2", "1"], "{line}");
    assert_eq!(
        (&columns[2], &columns[3]),
        (&vec!["1", "2"], &vec!["ipn:3.0", "ipn:2.1"]),
        "{line}"
    );
    assert_eq!(columns[4], ["1", "3", "1", "2", "4"], "{line}");
    assert_eq!(columns[5], ["1", "1", "1"], "{line}");
    assert_eq!((columns[6][0], columns[7][0]), ("5", "1"), "{line}");
    assert_eq!(columns[8].len(), 2, "{line}");
}

fn primary6(numbers: bool) -> bp6::Primary {
    let eid = |number: &str, text: &str| -> Eid {
        (if numbers { number } else { text }).parse().expect("an endpoint")
    };
    bp6::Primary {
        flags: bp6::BundleFlags::SINGLETON.with_priority(bp6::Priority::Expedited),
        destination: eid("ipn:2.7", "dtn://b/y"),
        source: eid("ipn:1.1", "dtn://a/x"),
        report_to: Eid::None,
        custodian: eid("ipn:5.0", "dtn://c/"),
        creation: bp6::CreationTimestamp { time_s: 400_000_000, sequence: 1 },
        lifetime_s: 3600,
        dictionary: (!numbers).then(Box::default),
        fragment: None,
    }
}

fn bundle6(primary: bp6::Primary, payload: &[u8]) -> Vec<u8> {
    let flags = bp6::BlockFlags::LAST;
    let carried = bp6::Payload { flags, len: payload.len() as u64, ..bp6::Payload::default() };
    let custody = bp6::CustodyEnhancement { id: 300, custodian: primary.custodian.clone() };
    let block = custody.to_block(bp6::BlockFlags::REPLICATE).expect("a block");
    let head = bp6::Head::new(primary, vec![block], carried).expect("a head");
    let trailer = bp6::Trailer::default();
    bp6::Bundle { head, payload, trailer }.to_vec().expect("a bundle")
}

#[test]
fn tshark_agrees_on_version_6() {
    let fields = [
        "_ws.malformed",
        "bundle.version",
        "bundle.primary.len",
        "bundle.primary.cos.priority",
        "bundle.primary.proc.single",
        "bundle.primary.destination",
        "bundle.primary.source",
        "bundle.primary.custodian",
        "bundle.primary.lifetime_sdnv",
        "bundle.block.cteb_custody_id",
        "bundle.block.cteb_creator_custodian_eid",
        "bundle.payload.length",
    ];
    let bundles = [true, false].map(|numbers| bundle6(primary6(numbers), b"hello"));
    let Some(shown) = tshark_bundles(&fields, &bundles) else { return };
    assert_eq!(shown.lines.len(), 2, "{}", shown.stderr);
    let expected = [(["2.7", "1.1", "5.0"], "ipn:5.0"), (["//b/y", "//a/x", "//c/"], "dtn://c/")];
    for ((line, (eids, custodian)), bytes) in shown.lines.iter().zip(expected).zip(&bundles) {
        let columns = columns(line);
        assert_eq!(columns[0], Vec::<&str>::new(), "malformed: {line}");
        assert_eq!(columns[1], ["6"], "{line}");
        let len = number(columns[2][0]).expect("a length");
        // The block has four bytes before its length counts: version, two of flags, one of the
        // length.
        let next = 4 + len as usize;
        assert_eq!(bytes[next], bp6::CUSTODY_ENHANCEMENT, "{line}");
        assert_eq!(columns[3][0], "2", "{line}");
        for (column, eid) in columns[5..8].iter().zip(eids) {
            assert_eq!(column.last(), Some(&eid), "{line}");
        }
        assert_eq!(
            (columns[8][0], columns[9][0], columns[10][0]),
            ("3600", "300", custodian),
            "{line}"
        );
        assert_eq!(columns[11][0], "5", "{line}");
    }
}

#[test]
fn tshark_agrees_on_records_of_version_6() {
    let fields = [
        "_ws.malformed",
        "bundle.admin.record_type",
        "bundle.admin.status.rcvd",
        "bundle.admin.status.delete",
        "bundle.status_report_reason_code",
        "bundle.custody_signal_reason_code",
        "bundle.admin.endpoint_id",
        "bundle.custody_id_range_start",
        "bundle.custody_id_range_end",
    ];
    let creation = bp6::CreationTimestamp { time_s: 400_000_000, sequence: 1 };
    let subject = bp6::Subject { source: Eid::ipn(1, 1), creation, fragment: None };
    let time = bp6::DtnTime { seconds: 400_000_001, nanoseconds: 500 };
    let report = bp6::StatusReport {
        subject: subject.clone(),
        received: Some(time),
        custody: None,
        forwarded: None,
        delivered: None,
        deleted: Some(time),
        reason: bp6::Reason::NoRoute,
    };
    let signal = bp6::CustodySignal {
        subject,
        succeeded: false,
        reason: bp6::CustodyReason::RedundantReception,
        time,
    };
    let fills = vec![bp6::Fill { start: 300, length: 2 }];
    let reason = bp6::CustodyReason::NoInformation;
    let aggregate = bp6::AggregateCustodySignal { succeeded: true, reason, fills };
    let records = [
        bp6::AdministrativeRecord::StatusReport(report),
        bp6::AdministrativeRecord::CustodySignal(signal),
        bp6::AdministrativeRecord::AggregateCustodySignal(aggregate),
    ];
    let bundles = records.map(|record| {
        let mut primary = primary6(true);
        primary.flags = primary.flags.with(bp6::BundleFlags::ADMINISTRATIVE);
        bundle6(primary, &record.to_vec().expect("a record"))
    });
    let Some(shown) = tshark_bundles(&fields, &bundles) else { return };
    let lines: Vec<_> = shown.lines.iter().map(|line| columns(line)).collect();
    for (columns, line) in lines.iter().zip(&shown.lines) {
        assert_eq!(columns[0], Vec::<&str>::new(), "malformed: {line}");
    }
    let kinds: Vec<_> = lines.iter().map(|columns| number(columns[1][0])).collect();
    assert_eq!(kinds, [Some(1), Some(2), Some(4)]);
    assert_eq!(lines[0][2..5], [vec!["1"], vec!["1"], vec!["6"]]);
    assert_eq!(lines[1][5].first().and_then(|reason| number(reason)), Some(3));
    for columns in &lines[..2] {
        assert_eq!(columns[6], ["ipn:1.1"]);
    }
    assert_eq!((lines[2][7][0], lines[2][8][0]), ("300", "301"));
}

/// Returns the TCP packets of one connection with each side's data, in turn.
fn conversation(turns: &[(bool, Vec<u8>)]) -> Vec<Vec<u8>> {
    let mut next = [1000_u32, 2000];
    let mut packets = Vec::new();
    let hello = [(true, 0x02_u8, vec![]), (false, 0x12, vec![]), (true, 0x10, vec![])];
    let data = turns.iter().map(|(active, bytes)| (*active, 0x18, bytes.clone()));
    for (active, flags, bytes) in hello.into_iter().chain(data) {
        let (from, to) = if active { (0, 1) } else { (1, 0) };
        let ports = [[40_000_u16, PORT], [PORT, 40_000]][from];
        let mut packet = vec![0x45, 0];
        packet.extend((40 + bytes.len() as u16).to_be_bytes());
        packet.extend([
            0,
            0,
            0,
            0,
            64,
            6,
            0,
            0,
            127,
            0,
            0,
            1 + from as u8,
            127,
            0,
            0,
            1 + to as u8,
        ]);
        ports.iter().for_each(|port| packet.extend(port.to_be_bytes()));
        packet.extend(next[from].to_be_bytes());
        packet.extend(if flags == 0x02 { 0 } else { next[to] }.to_be_bytes());
        packet.extend([0x50, flags, 0xff, 0xff, 0, 0, 0, 0]);
        packet.extend(&bytes);
        next[from] += bytes.len() as u32 + u32::from(flags & 0x02 != 0);
        packets.push(packet);
    }
    packets
}

/// Returns tshark's output for a connection: one line per turn.
fn tshark_conversation(fields: &[&str], turns: &[(bool, Vec<u8>)]) -> Option<Vec<String>> {
    let packets = conversation(turns);
    let options = ["-d", "tcp.port==4556,tcpcl", "-E", "occurrence=a"];
    let shown = run_tshark(&options, fields, raw_pcap(packets.iter().map(Vec::as_slice)))?;
    assert_eq!(shown.lines.len(), packets.len(), "{}", shown.stderr);
    Some(shown.lines[3..].to_vec())
}

/// Returns a session of TCPCL 4 that carries `bundle` in two segments, split after `first` bytes;
/// `true` marks the side that opened it.
fn tcpcl_4_session(bundle: &[u8], first: usize) -> [(bool, Vec<u8>); 11] {
    let total = (bundle.len() as u64).to_be_bytes();
    let items = [tcpcl4::Extension::transfer_length(&total)];
    let (first, rest) = bundle.split_at(first);
    let segment = |flags, extensions, bytes: &[u8]| {
        let length = bytes.len() as u64;
        let segment = tcpcl4::Segment { flags, transfer: 0, extensions, length };
        let mut out = tcpcl4::Message::Segment(segment).to_vec().expect("a message");
        out.extend_from_slice(bytes);
        out
    };
    let start = tcpcl4::SegmentFlags { start: true, end: false };
    let end = tcpcl4::SegmentFlags { start: false, end: true };
    let encode = |message: tcpcl4::Message<'_>| message.to_vec().expect("a message");
    let init = |node_id| {
        encode(tcpcl4::Message::Init(tcpcl4::SessionInit {
            keepalive_s: 30,
            segment_mru: 65_535,
            transfer_mru: 1_000_000_000,
            node_id,
            extensions: tcpcl4::Extensions::NONE,
        }))
    };
    let reason = tcpcl4::TermReason::IdleTimeout;
    let contact = tcpcl4::ContactHeader { can_tls: false }.encode().to_vec();
    [
        (true, contact.clone()),
        (false, contact),
        (true, init("ipn:1.0")),
        (false, init("dtn://b/")),
        (true, segment(start, tcpcl4::Extensions::new(&items), first)),
        (
            false,
            encode(tcpcl4::Message::Ack { flags: start, transfer: 0, length: first.len() as u64 }),
        ),
        (true, segment(end, tcpcl4::Extensions::NONE, rest)),
        (
            false,
            encode(tcpcl4::Message::Ack { flags: end, transfer: 0, length: bundle.len() as u64 }),
        ),
        (true, encode(tcpcl4::Message::Keepalive)),
        (true, encode(tcpcl4::Message::Terminate { is_reply: false, reason })),
        (false, encode(tcpcl4::Message::Terminate { is_reply: true, reason })),
    ]
}

#[test]
fn tshark_agrees_on_tcpcl_4() {
    let bundle = bundle7(bp7::CrcType::Crc32c, None, b"hello");
    let turns = tcpcl_4_session(&bundle, 20);
    let fields = [
        "_ws.malformed",
        "tcpcl.contact_hdr.version",
        "tcpcl.v4.mhdr.type",
        "tcpcl.v4.sess_init.nodeid_data",
        "tcpcl.v4.sess_init.seg_mru",
        "tcpcl.v4.xferext.transfer_length.total_len",
        "tcpcl.v4.xfer_segment.data_len",
        "tcpcl.v4.xfer_ack.ack_len",
        "tcpcl.v4.ses_term.reason",
        "bpv7.crc_status",
    ];
    let Some(lines) = tshark_conversation(&fields, &turns) else { return };
    let lines: Vec<_> = lines.iter().map(|line| columns(line)).collect();
    for columns in &lines {
        assert_eq!(columns[0], Vec::<&str>::new(), "{columns:?}");
    }
    assert_eq!((&lines[0][1], &lines[1][1]), (&vec!["4"], &vec!["4"]));
    let kinds: Vec<_> = lines[2..].iter().map(|columns| number(columns[2][0])).collect();
    assert_eq!(kinds, [7, 7, 1, 2, 1, 2, 4, 5, 5].map(Some));
    assert_eq!((lines[2][3][0], lines[3][3][0], lines[2][4][0]), ("ipn:1.0", "dtn://b/", "65535"));
    assert_eq!(lines[4][5], [bundle.len().to_string()]);
    assert_eq!((lines[4][6][0], lines[5][7][0]), ("20", "20"));
    assert_eq!(lines[6][6], [(bundle.len() - 20).to_string()]);
    assert_eq!(lines[7][7], [bundle.len().to_string()]);
    // The bundle is reassembled and decoded: five blocks with correct CRCs.
    assert_eq!(lines[6][9], ["1"; 5]);
    assert_eq!(number(lines[9][8][0]), Some(1));
}

#[test]
fn tshark_agrees_on_tcpcl_3() {
    let bundle = bundle6(primary6(true), b"hello");
    let flags = tcpcl3::Flags { acks: true, reactive_fragmentation: true, ..Default::default() };
    let contact = |eid| {
        tcpcl3::ContactHeader { version: tcpcl3::VERSION, flags, keepalive_s: 30, eid }.to_vec()
    };
    let encode = |message: tcpcl3::Message| message.to_vec().expect("a message");
    let segment = |start, end, bytes: &[u8]| {
        let length = bytes.len() as u64;
        let mut out = encode(tcpcl3::Message::Segment { start, end, length });
        out.extend_from_slice(bytes);
        out
    };
    let (first, rest) = bundle.split_at(20);
    let reason = Some(tcpcl3::ShutdownReason::Busy);
    let turns = [
        (true, contact("dtn://a")),
        (false, contact("dtn://b")),
        (true, segment(true, false, first)),
        (false, encode(tcpcl3::Message::Ack { length: 20 })),
        (true, segment(false, true, rest)),
        (false, encode(tcpcl3::Message::Ack { length: bundle.len() as u64 })),
        (true, encode(tcpcl3::Message::Keepalive)),
        // tshark expects the reason of a refusal in a separate byte, so there is none here.
        (true, encode(tcpcl3::Message::Shutdown { reason, reconnect_s: None })),
    ];
    let fields = [
        "_ws.malformed",
        "tcpcl.contact_hdr.version",
        "tcpcl.contact_hdr.local_eid",
        "tcpcl.contact_hdr.keep_alive",
        "tcpcl.pkt_type",
        "tcpcl.data.length",
        "tcpcl.ack.length",
        "tcpcl.shutdown.reason",
        "bundle.payload.length",
    ];
    let Some(lines) = tshark_conversation(&fields, &turns) else { return };
    let lines: Vec<_> = lines.iter().map(|line| columns(line)).collect();
    for columns in &lines {
        assert_eq!(columns[0], Vec::<&str>::new(), "{columns:?}");
    }
    assert_eq!((lines[0][2][0], lines[1][2][0], lines[0][3][0]), ("dtn://a", "dtn://b", "30"));
    let kinds: Vec<_> = lines[2..].iter().map(|columns| number(columns[4][0])).collect();
    assert_eq!(kinds, [1, 2, 1, 2, 4, 5].map(Some));
    assert_eq!((lines[2][5][0], lines[3][6][0]), ("20", "20"));
    assert_eq!(lines[5][6], [bundle.len().to_string()]);
    assert_eq!(number(lines[7][7][0]), Some(2));
    assert_eq!(lines[4][8], ["5"], "the bundle is put together and read");
}
