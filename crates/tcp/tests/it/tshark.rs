//! TCP segments in IPv4 and IPv6 packets, as decoded by tshark 4.0.

use std::net::{IpAddr, Ipv6Addr};

use slowlight_tcp as tcp;
use tcp::segment::{
    Capabilities, Flags, HEADER_LEN, Header, PROTOCOL, PseudoHeader, SackBlock, TcpOption, encode,
    options_len,
};
use wire::ip::Ipv4;
use wire::ipv6::Ipv6;

use testing::tshark::{number, raw_pcap, run_tshark};

const FIELDS: [&str; 24] = [
    "_ws.malformed",
    "tcp.srcport",
    "tcp.dstport",
    "tcp.seq_raw",
    "tcp.ack_raw",
    "tcp.flags",
    "tcp.window_size_value",
    "tcp.urgent_pointer",
    "tcp.len",
    "tcp.checksum.status",
    "ip.checksum.status",
    "tcp.options.mss_val",
    "tcp.options.wscale.shift",
    "tcp.options.sack_le",
    "tcp.options.sack_re",
    "tcp.options.sack.count",
    "tcp.options.timestamp.tsval",
    "tcp.options.timestamp.tsecr",
    "tcp.options.scps.vector",
    "tcp.options.scps.binding",
    "tcp.options.snack.offset",
    "tcp.options.snack.size",
    "ip.dsfield.ecn",
    "ipv6.flow",
];

/// A packet and its expected fields.
struct Case {
    bytes: Vec<u8>,
    expected: Vec<(&'static str, u64)>,
}

fn case(v6: bool, header: Header, options: &[TcpOption<'_>], payload: &[u8]) -> Case {
    let ip_len = if v6 { 40 } else { 20 };
    let start = ip_len + HEADER_LEN + options_len(options);
    let mut bytes = vec![0xa5; start + payload.len()];
    bytes[start..].copy_from_slice(payload);
    let mut expected = vec![
        ("tcp.srcport", header.source.into()),
        ("tcp.dstport", header.destination.into()),
        ("tcp.seq_raw", header.sequence.into()),
        ("tcp.ack_raw", header.acknowledgment.into()),
        ("tcp.flags", header.flags.bits().into()),
        ("tcp.window_size_value", header.window.into()),
        ("tcp.urgent_pointer", header.urgent.into()),
        ("tcp.len", payload.len() as u64),
        // 1: good.
        ("tcp.checksum.status", 1),
    ];
    let [source, destination]: [IpAddr; 2] = if v6 {
        let (source, destination) = (v6_address(1), v6_address(2));
        let ip = Ipv6 {
            traffic_class: 2,
            flow_label: 0x12345,
            payload_len: (bytes.len() - 40) as u16,
            next_header: PROTOCOL,
            hop_limit: 64,
            source,
            destination,
        };
        ip.encode(bytes.first_chunk_mut().expect("a header"));
        expected.push(("ipv6.flow", 0x12345));
        [source.into(), destination.into()]
    } else {
        let (source, destination) = ([10, 0, 0, 1].into(), [10, 0, 0, 2].into());
        let ip = Ipv4 {
            traffic_class: 2,
            total_len: bytes.len() as u16,
            id: 7,
            fragment: wire::ip::DONT_FRAGMENT,
            ttl: 64,
            protocol: PROTOCOL,
            source,
            destination,
        };
        ip.encode(bytes.first_chunk_mut().expect("a header"));
        expected.extend([("ip.checksum.status", 1), ("ip.dsfield.ecn", 2)]);
        [source.into(), destination.into()]
    };
    let pseudo = PseudoHeader::new(source, destination, PROTOCOL);
    encode(&header, options, pseudo, &mut bytes[ip_len..]).expect("it fits");
    options.iter().for_each(|option| expected.extend(of_option(option)));
    Case { bytes, expected }
}

fn v6_address(last: u16) -> Ipv6Addr {
    Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, last)
}

fn of_option(option: &TcpOption<'_>) -> Vec<(&'static str, u64)> {
    match option {
        TcpOption::MaximumSegmentSize(size) => vec![("tcp.options.mss_val", (*size).into())],
        TcpOption::WindowScale(shift) => vec![("tcp.options.wscale.shift", (*shift).into())],
        TcpOption::Sack(blocks) => {
            let first = blocks.as_slice()[0];
            vec![
                ("tcp.options.sack_le", first.left.into()),
                ("tcp.options.sack_re", first.right.into()),
                ("tcp.options.sack.count", blocks.as_slice().len() as u64),
            ]
        }
        TcpOption::Timestamps { value, echo } => vec![
            ("tcp.options.timestamp.tsval", (*value).into()),
            ("tcp.options.timestamp.tsecr", (*echo).into()),
        ],
        TcpOption::ScpsCapabilities(Capabilities { bits, connection }) => vec![
            ("tcp.options.scps.vector", (*bits).into()),
            ("tcp.options.scps.binding", (*connection).into()),
        ],
        TcpOption::Snack { offset, size, .. } => vec![
            ("tcp.options.snack.offset", (*offset).into()),
            ("tcp.options.snack.size", (*size).into()),
        ],
        TcpOption::NoOperation
        | TcpOption::SackPermitted
        | TcpOption::ScpsExtended(_)
        | TcpOption::RecordBoundary
        | TcpOption::CorruptionExperienced
        | TcpOption::Unknown { .. } => Vec::new(),
    }
}

fn cases() -> Vec<Case> {
    let header = |flags, sequence| Header {
        source: 4000,
        destination: 5000,
        sequence,
        acknowledgment: if flags == Flags::SYN { 0 } else { 0x0102_0304 },
        flags,
        window: 512,
        urgent: 0,
    };
    let syn = [
        TcpOption::MaximumSegmentSize(1460),
        TcpOption::SackPermitted,
        TcpOption::Timestamps { value: 0xfeed_0001, echo: 0 },
        TcpOption::NoOperation,
        TcpOption::WindowScale(9),
    ];
    let capabilities = Capabilities { bits: 0x50, connection: 5 };
    let scps = [TcpOption::MaximumSegmentSize(536), TcpOption::ScpsCapabilities(capabilities)];
    let stamps = TcpOption::Timestamps { value: 0xfeed_0002, echo: 77 };
    let block = |left| SackBlock { left, right: left + 100 };
    let sack = |count: u32| TcpOption::Sack((0..count).map(|n| block(2000 + 500 * n)).collect());
    let snack = TcpOption::Snack { offset: 3, size: 2, bits: &[] };
    let nop = TcpOption::NoOperation;
    let mut all = Vec::new();
    for v6 in [false, true] {
        all.extend([
            case(v6, header(Flags::SYN, u32::MAX), &syn, b""),
            case(v6, header(Flags::SYN | Flags::ECE | Flags::CWR, 7), &scps, b""),
            case(v6, header(Flags::ACK, 0), &[nop, nop, stamps, nop, nop, sack(3)], b""),
            case(v6, header(Flags::ACK, 0), &[nop, nop, sack(4)], b"odd"),
            case(v6, header(Flags::ACK, 0), &[nop, nop, snack], b""),
            case(v6, header(Flags::ACK | Flags::PSH, 0), &[TcpOption::RecordBoundary], b"data"),
            case(v6, header(Flags::ACK | Flags::FIN, 4), &[], b""),
            case(v6, header(Flags::RST, 4), &[], b""),
        ]);
    }
    all
}

#[test]
fn tshark_agrees() {
    let cases = cases();
    let packets = raw_pcap(cases.iter().map(|case| case.bytes.as_slice()));
    let options = [
        "-o",
        "tcp.check_checksum:TRUE",
        "-o",
        "ip.check_checksum:TRUE",
        "-o",
        "tcp.relative_sequence_numbers:FALSE",
        "-E",
        "occurrence=f",
    ];
    let Some(shown) = run_tshark(&options, &FIELDS, packets) else { return };
    assert_eq!(shown.lines.len(), cases.len(), "one line a packet");
    for (case, line) in cases.iter().zip(&shown.lines) {
        let columns: Vec<&str> = line.split('|').collect();
        // tshark decodes a SNACK's offset and size, and then always fails.
        let snack = case.expected.iter().any(|(field, _)| *field == "tcp.options.snack.size");
        assert_eq!(columns[0].is_empty(), !snack, "{}: {:02x?}", columns[0], case.bytes);
        for (field, expected) in &case.expected {
            let column = FIELDS.iter().position(|name| name == field).expect("a requested field");
            assert_eq!(number(columns[column]), Some(*expected), "{field}: {line}");
        }
    }
}
