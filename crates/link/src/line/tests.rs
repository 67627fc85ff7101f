//! A line next to its link, as drivers use both.

use std::time::Duration;

use engine::{Rng, Time};
use wire::ip::{Ipv4, fold, sum};

use super::*;
use crate::{Delay, Departure, ErrorKind, ErrorModel, Fcs, Link, Queue, Rate, Stuffing};

/// Returns a TCP segment of a connection that advances by 100 bytes each time; its checksum is not
/// checked.
fn segment(number: u32) -> Vec<u8> {
    let mut packet = vec![0; 40];
    let ip = Ipv4 {
        traffic_class: 0,
        total_len: 140,
        id: number as u16,
        fragment: 0,
        ttl: 64,
        protocol: 6,
        source: [10, 0, 0, 1].into(),
        destination: [10, 0, 0, 2].into(),
    };
    ip.encode(packet.first_chunk_mut().unwrap());
    packet[24..28].copy_from_slice(&(100 * number).to_be_bytes());
    packet[32..34].copy_from_slice(&[0x50, 0x10]);
    packet.resize(140, 0x7e);
    let pseudo = sum(&packet[12..20]) + 6 + 120;
    let checksum = !fold(pseudo + sum(&packet[20..]));
    packet[36..38].copy_from_slice(&checksum.to_be_bytes());
    packet
}

fn is_right(packet: &[u8]) -> bool {
    let pseudo = sum(&packet[12..20]) + 6 + (packet.len() - 20) as u64;
    fold(pseudo + sum(&packet[20..])) == 0xffff
}

fn config(errors: Vec<ErrorModel>) -> Config {
    Config {
        rate: Rate::Constant(8_000),
        framing: Framing::Ppp {
            fcs: Fcs::Bits16,
            compressed: true,
            stuffing: Stuffing::Exact,
            serial: false,
        },
        header_compression: Some(HeaderCompression::default()),
        queue: Queue { packets: None, bytes: None },
        delay: Delay::Constant(Duration::from_secs(1)),
        errors,
        ..Config::default()
    }
}

/// Arrival time of a frame, and the restored packet.
type Arrival = (Time, Option<Vec<u8>>);

/// Returns the arrivals of this many segments.
fn carry(config: Config, count: u32) -> (Vec<Arrival>, LineStats) {
    let mut line = Line::new(&config).unwrap();
    let mut link = Link::new(config, Rng::new(1, "line")).unwrap();
    for number in 0..count {
        let packet = segment(number);
        let framed = line.enter(&packet);
        link.push_framed(Time::ZERO, packet.len(), framed, packet).unwrap();
    }
    let mut arrived = Vec::new();
    while let Some(at) = link.next() {
        let Some(Departure { at, fate, item, .. }) = link.pop(at) else { continue };
        let packet = match (line.leave(&fate, &item), fate) {
            (Left::Same, Fate::Delivered) => Some(item),
            (Left::Changed(packet), _) => Some(packet),
            (Left::Tossed, _) | (Left::Same, Fate::Lost(_)) => None,
            (Left::Same, Fate::Damaged(_)) => panic!("compressed frames change"),
        };
        arrived.push((at, packet));
    }
    (arrived, *line.stats())
}

#[test]
fn lines_count_compressed_packets_and_bytes() {
    let (arrived, stats) = carry(config(Vec::new()), 3);
    assert_eq!(
        arrived.iter().map(|(_, packet)| packet.clone()).collect::<Vec<_>>(),
        [Some(segment(0)), Some(segment(1)), Some(segment(2)),]
    );
    assert_eq!((stats.uncompressed, stats.compressed, stats.before, stats.after), (1, 2, 420, 346));
    // A flag, one byte of protocol, three of header, 100 escaped bytes, two of the check sequence,
    // a flag: 208 bytes at 1 ms each, if nothing else is escaped.
    let gap = arrived[2].0.since(arrived[1].0).as_millis();
    assert!((208..=212).contains(&gap), "{gap}");
}

#[test]
fn a_serial_line_takes_ten_bits_a_byte() {
    let packet = segment(0);
    let of = |serial, stuffing| {
        let framing = Framing::Ppp { fcs: Fcs::Bits16, compressed: false, stuffing, serial };
        let config = Config { framing, ..Config::default() };
        Line::new(&config).map(|mut line| line.enter(&packet))
    };
    let exact = of(false, Stuffing::Exact).unwrap();
    assert!((140 + 8 + 100..=140 + 8 + 104).contains(&exact), "{exact}");
    assert_eq!(of(true, Stuffing::Exact), Some((exact * 10).div_ceil(8)));
    assert!(of(true, Stuffing::Random).is_none(), "its packets are of no concern");
    let serial = Framing::Ppp {
        fcs: Fcs::Bits16,
        compressed: false,
        stuffing: Stuffing::None,
        serial: true,
    };
    assert_eq!(serial.framed_len(1_500), 1_885);
}

#[test]
fn packets_are_dropped_after_a_loss_until_a_full_header() {
    let lost = ErrorModel::dropping(ErrorKind::DropList(vec![2]));
    let (arrived, stats) = carry(config(vec![lost]), 6);
    let is_there: Vec<bool> = arrived.iter().map(|(_, packet)| packet.is_some()).collect();
    assert_eq!(is_there, [true, true, false, false, false, false]);
    assert_eq!((stats.tossed, stats.wrong), (3, 0));
}

#[test]
fn explicit_slots_restore_wrong_headers_after_a_loss() {
    let lost = ErrorModel::dropping(ErrorKind::DropList(vec![2]));
    let slots = HeaderCompression { may_omit: false, ..HeaderCompression::default() };
    let config = Config { header_compression: Some(slots), ..config(vec![lost]) };
    let (arrived, stats) = carry(config, 6);
    assert_eq!((stats.tossed, stats.wrong), (0, 3));
    for (number, (_, packet)) in arrived.iter().enumerate().skip(3) {
        let packet = packet.as_ref().unwrap();
        assert_ne!(packet, &segment(number as u32));
        assert!(!is_right(packet), "its checksum detects it");
    }
}

#[test]
fn damage_strikes_the_compressed_frame() {
    let struck = ErrorKind::BitErrorRate(0.004);
    let (arrived, stats) = carry(config(vec![ErrorModel::damaging(struck)]), 400);
    assert_eq!(stats.compressed, 399);
    // After an invalid header, only packets that name their slot pass.
    assert!(stats.wrong > 20 && stats.tossed > 100, "{stats:?}");
    // TCP's checksum detects wrongly restored packets, except for one in 65,536.
    let unnoticed = arrived
        .iter()
        .enumerate()
        .filter_map(|(number, (_, packet))| Some((number, packet.as_ref()?)))
        .filter(|(number, packet)| **packet != segment(*number as u32))
        .filter(|(_, packet)| packet.len() >= 40 && is_right(packet))
        .count();
    assert!(unnoticed <= 1, "{unnoticed}");
}

#[test]
fn withdrawn_packets_leave_the_compressor_unchanged() {
    let mut line = Line::new(&config(Vec::new())).unwrap();
    let fate = Fate::Delivered;
    line.enter(&segment(0));
    assert_eq!(line.leave(&fate, &segment(0)), Left::Same);
    line.enter(&segment(1));
    line.withdraw();
    line.enter(&segment(2));
    assert_eq!(line.leave(&fate, &segment(2)), Left::Same);
    line.enter(&segment(3));
    assert_eq!(line.leave(&fate, &segment(3)), Left::Same);
    assert_eq!(line.stats().uncompressed, 2);
}

#[test]
fn other_packets_pass_as_they_are() {
    let mut line = Line::new(&config(Vec::new())).unwrap();
    for protocol in [17, 105, 106] {
        let mut packet = segment(0);
        packet[9] = protocol;
        assert!(line.enter(&packet) >= 140);
        assert_eq!(line.leave(&Fate::Delivered, &packet), Left::Same);
    }
    assert_eq!(line.enter(&[0x60; 60]), 60 + 2 + 2 + 1);
    assert_eq!((line.stats().plain, line.stats().after), (4, 480));
}

#[test]
fn header_compression_needs_ppp() {
    let config = Config { framing: Framing::Raw, ..config(Vec::new()) };
    let error = config.validate().unwrap_err().to_string();
    assert_eq!(error, "header compression needs the framing of PPP");
}

#[test]
fn links_in_use_keep_their_negotiated_compression() {
    let before = config(Vec::new());
    let mut link = Link::<()>::new(before.clone(), Rng::new(1, "line")).unwrap();
    let mut error = |config| link.set_config(Time::ZERO, config).map_err(|error| error.to_string());
    let refused = "header compression and exact framing cannot change while a link is in use";
    let plain = Config { header_compression: None, ..before.clone() };
    assert_eq!(error(plain), Err(refused.to_owned()));
    let framing = Framing::Ppp {
        fcs: Fcs::Bits32,
        compressed: true,
        stuffing: Stuffing::Exact,
        serial: false,
    };
    assert_eq!(error(Config { framing, ..before.clone() }), Err(refused.to_owned()));
    assert_eq!(error(Config { rate: Rate::Constant(9_600), ..before }), Ok(()));
}
