//! Checks of PPP and Van Jacobson's header compression: tshark restores the headers itself.

use std::net::Ipv4Addr;

use slowlight_wire as wire;
use wire::ip::{Ipv4, fold, sum};
use wire::ppp;
use wire::ppp::control::{Code, IpcpOption, LcpOption, Packet};
use wire::vj::{Compressor, Kind, Slots};

use testing::tshark::{number, run_tshark};

/// Requested fields, in the order of the output.
const FIELDS: [&str; 10] = [
    "_ws.malformed",
    "ip.id",
    "ip.len",
    "ip.checksum.status",
    "tcp.seq_raw",
    "tcp.ack_raw",
    "tcp.window_size_value",
    "tcp.flags",
    "tcp.urgent_pointer",
    "tcp.checksum.status",
];

/// Returns a pcap of PPP frames with direction (link type 204), all sent, without check sequences.
fn pcap(frames: &[Vec<u8>]) -> Vec<u8> {
    let mut out = Vec::new();
    for word in [0xa1b2_c3d4, 0x0002_0004, 0, 0, 65_535, 204_u32] {
        out.extend(word.to_be_bytes());
    }
    for frame in frames {
        let len = 1 + frame.len() as u32;
        for word in [0, 0, len, len] {
            out.extend(word.to_be_bytes());
        }
        out.push(1);
        out.extend(frame);
    }
    out
}

fn frame(protocol: u16, information: &[u8]) -> Vec<u8> {
    [&[0xff, 0x03], &protocol.to_be_bytes()[..], information].concat()
}

/// The fields of a segment that change from one to the next.
#[derive(Clone, Copy, Debug)]
struct Segment {
    port: u16,
    id: u16,
    seq: u32,
    ack: u32,
    window: u16,
    flags: u8,
    urgent: u16,
    len: usize,
}

impl Segment {
    fn packet(&self) -> Vec<u8> {
        let mut packet = vec![0; 40];
        let ip = Ipv4 {
            traffic_class: 0,
            total_len: (40 + self.len) as u16,
            id: self.id,
            fragment: 0,
            ttl: 64,
            protocol: 6,
            source: Ipv4Addr::new(10, 0, 0, 1),
            destination: Ipv4Addr::new(10, 0, 0, 2),
        };
        ip.encode(packet.first_chunk_mut().expect("there are 40 bytes"));
        packet[20..22].copy_from_slice(&self.port.to_be_bytes());
        packet[22..24].copy_from_slice(&9_u16.to_be_bytes());
        packet[24..28].copy_from_slice(&self.seq.to_be_bytes());
        packet[28..32].copy_from_slice(&self.ack.to_be_bytes());
        packet[32..34].copy_from_slice(&[0x50, self.flags]);
        packet[34..36].copy_from_slice(&self.window.to_be_bytes());
        packet[38..40].copy_from_slice(&self.urgent.to_be_bytes());
        packet.resize(40 + self.len, 0x7e);
        let pseudo = sum(&packet[12..20]) + 6 + 20 + self.len as u64;
        let checksum = !fold(pseudo + sum(&packet[20..]));
        packet[36..38].copy_from_slice(&checksum.to_be_bytes());
        packet
    }
}

/// Returns two alternating connections, with every kind of change except the special cases. There
/// tshark 4.0 adds 20 bytes more than the length of the last data to the sequence number, and the
/// restored checksum is wrong. So the window changes with every byte sent.
fn conversation() -> Vec<Segment> {
    let first = Segment {
        port: 1_024,
        id: 1,
        seq: 1_000,
        ack: 2_000,
        window: 8_192,
        flags: 0x10,
        urgent: 0,
        len: 512,
    };
    let mut segments = vec![first];
    let mut next = |change: &dyn Fn(&mut Segment)| {
        let mut segment = *segments.last().expect("there is one");
        segment.seq = segment.seq.wrapping_add(segment.len as u32);
        segment.window -= u16::from(segment.len > 0);
        segment.id = segment.id.wrapping_add(1);
        // Without URG tshark assumes a zero pointer.
        (segment.flags, segment.urgent) = (0x10, 0);
        change(&mut segment);
        segments.push(segment);
    };
    next(&|_| {});
    next(&|segment| segment.flags = 0x18);
    next(&|segment| (segment.len, segment.ack) = (0, 3_000));
    next(&|segment| segment.window = 1_600);
    next(&|segment| segment.len = 1);
    next(&|segment| segment.ack += 1);
    next(&|segment| segment.id += 300);
    next(&|segment| (segment.flags, segment.urgent) = (0x30, 700));
    next(&|segment| (segment.seq, segment.len) = (segment.seq - 1, 1));
    next(&|segment| (segment.port, segment.len) = (1_025, 100));
    next(&|_| {});
    next(&|segment| segment.port = 1_024);
    next(&|segment| segment.ack += 0x2_0000);
    next(&|segment| segment.ack += 300);
    next(&|segment| segment.flags = 0x11);
    segments
}

#[test]
fn tshark_restores_compressed_headers() {
    for may_omit in [false, true] {
        let mut compressor = Compressor::new(Slots { max: 15, may_omit });
        let segments = conversation();
        let mut kinds = Vec::new();
        let frames: Vec<Vec<u8>> = segments
            .iter()
            .map(|segment| {
                let mut packet = segment.packet();
                let (kind, bytes) = compressor.compress(&mut packet);
                kinds.push(kind);
                let protocol = match kind {
                    Kind::Ip => ppp::IPV4,
                    Kind::Uncompressed => ppp::VJ_UNCOMPRESSED,
                    Kind::Compressed => ppp::VJ_COMPRESSED,
                };
                frame(protocol, bytes)
            })
            .collect();
        for kind in [Kind::Ip, Kind::Uncompressed, Kind::Compressed] {
            assert!(kinds.contains(&kind));
        }
        let checks = ["-o", "ip.check_checksum:TRUE", "-o", "tcp.check_checksum:TRUE"];
        let Some(shown) = run_tshark(&checks, &FIELDS, pcap(&frames)) else { return };
        assert_eq!(shown.lines.len(), segments.len(), "{}", shown.stderr);
        for (line, segment) in shown.lines.iter().zip(&segments) {
            let columns: Vec<&str> = line.split('|').collect();
            assert_eq!(columns[0], "", "{segment:?}: {line}");
            let expected = [
                u64::from(segment.id),
                40 + segment.len as u64,
                1,
                u64::from(segment.seq),
                u64::from(segment.ack),
                u64::from(segment.window),
                u64::from(segment.flags),
                u64::from(segment.urgent),
                1,
            ];
            let numbers: Vec<Option<u64>> = columns[1..].iter().map(|text| number(text)).collect();
            assert_eq!(numbers, expected.map(Some), "{segment:?}: {line}");
        }
    }
}

#[test]
fn tshark_reads_line_configuration() {
    let mut lcp = Vec::new();
    for option in [
        LcpOption::Mru(1_500),
        LcpOption::Accm(0x000a_0000),
        LcpOption::Magic(0x1234_5678),
        LcpOption::CompressProtocol,
        LcpOption::CompressAddress,
        LcpOption::FcsAlternatives(4),
    ] {
        option.encode(&mut lcp);
    }
    let mut ipcp = Vec::new();
    IpcpOption::VjCompression(Slots { max: 15, may_omit: true }).encode(&mut ipcp);
    IpcpOption::Address(Ipv4Addr::new(10, 0, 0, 1)).encode(&mut ipcp);
    let frames: Vec<Vec<u8>> = [(ppp::LCP, &lcp), (ppp::IPCP, &ipcp)]
        .iter()
        .map(|(protocol, data)| {
            let packet = Packet { code: Code::ConfigureRequest, id: 3, data };
            let mut out = [0; 60];
            let len = packet.encode(&mut out).expect("it fits");
            frame(*protocol, &out[..len])
        })
        .collect();
    let fields = [
        "_ws.malformed",
        "ppp.code",
        "ppp.identifier",
        "lcp.opt.mru",
        "lcp.opt.asyncmap",
        "lcp.opt.magic_number",
        "ipcp.opt.ip_address",
        "ipcp.opt.max_slot_id",
        "ipcp.opt.comp_slot_id",
    ];
    let Some(shown) = run_tshark(&[], &fields, pcap(&frames)) else { return };
    assert_eq!(
        shown.lines,
        ["|1|3|1500|0x000a0000|0x12345678|||", "|1|3||||10.0.0.1|15|1"],
        "{}",
        shown.stderr
    );
}
