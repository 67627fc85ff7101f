//! Connections over a line, compressed and restored.

use proptest::prelude::*;

use super::*;

/// Segment of a connection.
#[derive(Clone, Debug)]
struct Segment {
    ports: (u16, u16),
    id: u16,
    seq: u32,
    ack: u32,
    window: u16,
    flags: u8,
    urgent: u16,
    options: Vec<u8>,
    data: Vec<u8>,
}

impl Default for Segment {
    fn default() -> Self {
        Self {
            ports: (1_024, 21),
            id: 100,
            seq: 1_000,
            ack: 5_000,
            window: 4_096,
            flags: ACK,
            urgent: 0,
            options: Vec::new(),
            data: Vec::new(),
        }
    }
}

impl Segment {
    /// Returns the IP packet with correct checksums.
    fn packet(&self) -> Vec<u8> {
        let tcp_len = 20 + self.options.len();
        let len = 20 + tcp_len + self.data.len();
        let mut packet = vec![0; 20];
        let ip = ip::Ipv4 {
            traffic_class: 0,
            total_len: len as u16,
            id: self.id,
            fragment: 0,
            ttl: 64,
            protocol: PROTOCOL_TCP,
            source: [10, 0, 0, 1].into(),
            destination: [10, 0, 0, 2].into(),
        };
        ip.encode(packet.first_chunk_mut().unwrap());
        packet.extend(self.ports.0.to_be_bytes());
        packet.extend(self.ports.1.to_be_bytes());
        packet.extend(self.seq.to_be_bytes());
        packet.extend(self.ack.to_be_bytes());
        packet.extend([(tcp_len as u8 / 4) << 4, self.flags]);
        packet.extend(self.window.to_be_bytes());
        packet.extend([0, 0]);
        packet.extend(self.urgent.to_be_bytes());
        packet.extend(&self.options);
        packet.extend(&self.data);
        let checksum = !tcp_sum(&packet);
        packet[36..38].copy_from_slice(&checksum.to_be_bytes());
        packet
    }
}

/// Returns the sum over a TCP segment and its pseudo header: all ones if its checksum is correct.
fn tcp_sum(packet: &[u8]) -> u16 {
    let len = (packet.len() - 20) as u64;
    fold(sum(&packet[12..20]) + u64::from(PROTOCOL_TCP) + len + sum(&packet[20..]))
}

/// Both ends of a line.
struct Line {
    compressor: Compressor,
    decompressor: Decompressor,
}

impl Line {
    fn new(slots: Slots) -> Self {
        Self { compressor: Compressor::new(slots), decompressor: Decompressor::new(slots) }
    }

    fn send(&mut self, packet: &[u8]) -> (Kind, Vec<u8>) {
        let mut packet = packet.to_vec();
        let (kind, frame) = self.compressor.compress(&mut packet);
        (kind, frame.to_vec())
    }

    fn receive(&mut self, kind: Kind, frame: &[u8]) -> Result<Vec<u8>, DecompressError> {
        let mut out = vec![0xa5];
        let restored = self.decompressor.decompress(kind, frame, &mut out);
        restored.map(|()| out.split_off(1))
    }

    /// Sends a packet over the line and returns its form; it must arrive unchanged.
    fn carry(&mut self, segment: &Segment) -> (Kind, Vec<u8>) {
        let packet = segment.packet();
        let (kind, frame) = self.send(&packet);
        assert_eq!(self.receive(kind, &frame).as_ref(), Ok(&packet), "{segment:?}");
        (kind, frame)
    }
}

#[test]
fn bulk_data_takes_three_bytes_and_its_acks_four() {
    let mut line = Line::new(Slots::default());
    let mut segment = Segment { data: vec![7; 512], ..Segment::default() };
    let (kind, frame) = line.carry(&segment);
    assert_eq!((kind, frame.len(), frame[9]), (Kind::Uncompressed, 552, 0), "slot 0");
    segment.seq += 512;
    segment.id += 1;
    let (kind, frame) = line.carry(&segment);
    let checksum = &segment.packet()[36..38];
    assert_eq!(kind, Kind::Compressed);
    assert_eq!(frame[..3], [DATA, checksum[0], checksum[1]]);
    assert_eq!(frame.len(), 3 + 512);
    let mut line = Line::new(Slots::default());
    let mut ack = Segment::default();
    line.carry(&ack);
    ack.ack += 1_024;
    ack.id += 1;
    let checksum = ack.packet()[36..38].to_vec();
    // 1,024 takes three bytes, 200 one.
    assert_eq!(line.carry(&ack).1, [A, checksum[0], checksum[1], 0, 4, 0]);
    ack.ack += 200;
    ack.id += 1;
    let checksum = ack.packet()[36..38].to_vec();
    assert_eq!(line.carry(&ack).1, [A, checksum[0], checksum[1], 200]);
}

#[test]
fn fields_come_in_their_order() {
    let mut line = Line::new(Slots { may_omit: false, ..Slots::default() });
    line.carry(&Segment { urgent: 9, flags: ACK | URG, ..Segment::default() });
    let segment = Segment {
        seq: 1_000 + 256,
        ack: 5_000 + 255,
        window: 4_096 - 1,
        urgent: 0,
        id: 99,
        flags: ACK | URG | PSH,
        ..Segment::default()
    };
    // S A W U all set encode the special case, so this packet keeps its whole header.
    assert_eq!(line.carry(&segment).0, Kind::Uncompressed);
    // Without a change of the window: mask, slot, checksum; then the changes of U A S I.
    let mut line = Line::new(Slots { may_omit: false, ..Slots::default() });
    line.carry(&Segment { urgent: 9, flags: ACK | URG, ..Segment::default() });
    let segment = Segment { window: 4_096, ..segment };
    let checksum = segment.packet()[36..38].to_vec();
    let (kind, frame) = line.carry(&segment);
    assert_eq!(kind, Kind::Compressed);
    assert_eq!(frame[..4], [C | I | P | S | A | U, 0, checksum[0], checksum[1]]);
    assert_eq!(frame[4..], [0, 0, 0, 255, 0, 1, 0, 0, 0xff, 0xff]);
}

#[test]
fn a_keystroke_and_its_echo_take_three_bytes() {
    let mut line = Line::new(Slots::default());
    let mut key = Segment { data: vec![b'a'], flags: ACK | PSH, ..Segment::default() };
    line.carry(&key);
    // The previous echo acknowledged it, and was one byte.
    key.seq += 1;
    key.ack += 1;
    key.id += 1;
    let (kind, frame) = line.carry(&key);
    assert_eq!((kind, frame[0], frame.len()), (Kind::Compressed, ECHO | P, 4));
}

#[test]
fn unencodable_changes_send_whole_headers_and_other_packets_are_unchanged() {
    let first = Segment { data: vec![1; 10], ..Segment::default() };
    let next = Segment { seq: 1_010, id: 101, ..first.clone() };
    let kind = |change: &dyn Fn(&mut Segment)| {
        let mut line = Line::new(Slots::default());
        line.carry(&first);
        let mut next = next.clone();
        change(&mut next);
        line.carry(&next).0
    };
    assert_eq!(kind(&|_| {}), Kind::Compressed);
    assert_eq!(kind(&|next| next.options = vec![1; 4]), Kind::Uncompressed);
    assert_eq!(kind(&|next| next.seq = 1_000), Kind::Uncompressed, "a retransmission");
    assert_eq!(kind(&|next| next.seq = 999), Kind::Uncompressed, "sent before");
    assert_eq!(kind(&|next| next.ack = 4_999), Kind::Uncompressed);
    assert_eq!(kind(&|next| next.seq += 0x1_0000), Kind::Uncompressed, "too far");
    assert_eq!(kind(&|next| next.urgent = 1), Kind::Uncompressed);
    assert_eq!(kind(&|next| next.flags |= 0x40), Kind::Uncompressed, "ECE");
    assert_eq!(kind(&|next| next.ports.0 += 1), Kind::Uncompressed, "another connection");
    assert_eq!(kind(&|next| next.flags |= FIN), Kind::Ip);
    assert_eq!(kind(&|next| next.flags |= SYN), Kind::Ip);
    assert_eq!(kind(&|next| next.flags |= RST), Kind::Ip);
    assert_eq!(kind(&|next| next.flags = PSH), Kind::Ip);
    let forms = |change: &dyn Fn(&mut Vec<u8>)| {
        let mut line = Line::new(Slots::default());
        line.carry(&first);
        let mut packet = next.packet();
        change(&mut packet);
        packet[10..12].fill(0);
        let checksum = !fold(sum(&packet[..20]));
        packet[10..12].copy_from_slice(&checksum.to_be_bytes());
        let (kind, frame) = line.send(&packet);
        assert_eq!(line.receive(kind, &frame), Ok(packet));
        kind
    };
    assert_eq!(forms(&|packet| packet[1] = 3), Kind::Uncompressed, "type of service");
    assert_eq!(forms(&|packet| packet[6] = 0x40), Kind::Uncompressed, "don't fragment");
    assert_eq!(forms(&|packet| packet[8] = 63), Kind::Uncompressed, "time to live");
    assert_eq!(forms(&|packet| packet[6] = 0x20), Kind::Ip, "more fragments");
    assert_eq!(forms(&|packet| packet[7] = 1), Kind::Ip, "a fragment");
    for protocol in [17, 105, 106] {
        assert_eq!(forms(&|packet| packet[9] = protocol), Kind::Ip, "{protocol}");
    }
    assert_eq!(forms(&|packet| packet.push(0)), Kind::Ip, "padding would become data");
    let mut packet = next.packet();
    packet[10] ^= 1;
    assert_eq!(Line::new(Slots::default()).send(&packet).0, Kind::Ip, "a wrong checksum");
}

#[test]
fn the_least_recently_used_connection_loses_its_slot() {
    let mut line = Line::new(Slots { max: 1, may_omit: true });
    let of = |port: u16, n: u32| Segment {
        ports: (port, 80),
        ack: 5_000 + n,
        id: 100 + n as u16,
        ..Segment::default()
    };
    let slot = |(kind, frame): (Kind, Vec<u8>)| match kind {
        Kind::Uncompressed => Some(frame[9]),
        Kind::Ip | Kind::Compressed => None,
    };
    assert_eq!(slot(line.carry(&of(1, 0))), Some(0));
    assert_eq!(slot(line.carry(&of(2, 0))), Some(1));
    // The slot is named whenever it changes.
    assert_eq!(line.carry(&of(1, 1)).1[..2], [C | A, 0]);
    assert_eq!(line.carry(&of(1, 2)).1.len(), 4);
    assert_eq!(slot(line.carry(&of(3, 0))), Some(1));
    assert_eq!(slot(line.carry(&of(2, 1))), Some(0));
    assert_eq!(line.carry(&of(3, 1)).1[..2], [C | A, 1]);
}

#[test]
fn after_damage_only_packets_that_name_their_slot_pass() {
    let mut line = Line::new(Slots::default());
    let of = |port: u16, n: u32| Segment {
        ports: (port, 80),
        ack: 5_000 + n,
        id: 100 + n as u16,
        ..Segment::default()
    };
    line.carry(&of(1, 0));
    line.carry(&of(2, 0));
    let (kind, frame) = line.send(&of(2, 1).packet());
    line.decompressor.toss();
    assert_eq!(line.receive(kind, &frame), Err(DecompressError::Tossed));
    let (kind, frame) = line.send(&of(2, 2).packet());
    assert_eq!(line.receive(kind, &frame), Err(DecompressError::Tossed));
    // The other connection names its slot and is restored.
    line.carry(&of(1, 1));
    // The first one's state is two packets behind, so the restored packet has a wrong checksum.
    let packet = of(2, 3).packet();
    let (kind, frame) = line.send(&packet);
    let restored = line.receive(kind, &frame).unwrap();
    assert_ne!(restored, packet);
    assert_ne!(tcp_sum(&restored), 0xffff);
    // A retransmission has its whole header, which resynchronises the connection.
    line.carry(&of(2, 3));
    line.carry(&of(2, 4));
}

#[test]
fn unrestorable_packets_are_refused_with_a_reason() {
    let mut line = Line::new(Slots { max: 3, may_omit: true });
    let mut error = |kind, frame: &[u8]| line.receive(kind, frame).unwrap_err();
    assert_eq!(error(Kind::Compressed, &[]), DecompressError::Truncated);
    assert_eq!(error(Kind::Compressed, &[A, 0, 0, 1]), DecompressError::Tossed);
    assert_eq!(error(Kind::Compressed, &[C | A, 4, 0, 0, 1]), DecompressError::SlotRange(4));
    assert_eq!(error(Kind::Compressed, &[C | A, 3, 0, 0, 1]), DecompressError::SlotEmpty(3));
    assert_eq!(error(Kind::Uncompressed, &[0x45; 39]), DecompressError::Header);
    let mut packet = Segment::default().packet();
    packet[9] = 4;
    assert_eq!(error(Kind::Uncompressed, &packet), DecompressError::SlotRange(4));
    packet[9] = 3;
    line.receive(Kind::Uncompressed, &packet).unwrap();
    let mut error = |frame: &[u8]| line.receive(Kind::Compressed, frame).unwrap_err();
    assert_eq!(error(&[A, 0, 0, 0, 1]), DecompressError::Truncated);
    // An error counts as damage: the slot must be named again.
    assert_eq!(error(&[A, 0, 0, 1]), DecompressError::Tossed);
    let long = [&[C | A, 3, 0, 0, 1][..], &[0; 65_500]].concat();
    assert_eq!(error(&long), DecompressError::TooLong);
}

/// Next event in one of several connections.
#[derive(Clone, Debug)]
enum Op {
    Data { len: usize, push: bool },
    Ack { bytes: u32 },
    Echo { len: usize },
    Window { change: u16 },
    Again,
    Urgent { pointer: u16 },
    Options { len: usize },
    Jump { seq: u32, ack: u32, id: u16 },
    Flags { flags: u8 },
}

fn ops() -> impl Strategy<Value = Op> {
    prop_oneof![
        4 => (0..600_usize, any::<bool>()).prop_map(|(len, push)| Op::Data { len, push }),
        4 => (0..70_000_u32).prop_map(|bytes| Op::Ack { bytes }),
        2 => (0..3_usize).prop_map(|len| Op::Echo { len }),
        1 => any::<u16>().prop_map(|change| Op::Window { change }),
        1 => Just(Op::Again),
        1 => any::<u16>().prop_map(|pointer| Op::Urgent { pointer }),
        1 => (0..=10_usize).prop_map(|words| Op::Options { len: 4 * words }),
        1 => any::<(u32, u32, u16)>().prop_map(|(seq, ack, id)| Op::Jump { seq, ack, id }),
        1 => any::<u8>().prop_map(|flags| Op::Flags { flags }),
    ]
}

/// Advances a connection to its next segment.
fn step(segment: &mut Segment, op: &Op) {
    let sent = segment.data.len() as u32;
    segment.id = segment.id.wrapping_add(1);
    let is_again = matches!(op, Op::Again);
    if !is_again {
        segment.seq = segment.seq.wrapping_add(sent);
        segment.data.clear();
        segment.flags = ACK;
    }
    match op {
        Op::Data { len, push } => {
            segment.data = vec![0x7e; *len];
            segment.flags |= if *push { PSH } else { 0 };
        }
        Op::Ack { bytes } => segment.ack = segment.ack.wrapping_add(*bytes),
        Op::Echo { len } => {
            segment.ack = segment.ack.wrapping_add(sent);
            segment.data = vec![b'k'; *len];
        }
        Op::Window { change } => segment.window = segment.window.wrapping_add(*change),
        Op::Again => {}
        Op::Urgent { pointer } => {
            segment.urgent = *pointer;
            segment.flags |= URG;
        }
        Op::Options { len } => segment.options = vec![1; *len],
        Op::Jump { seq, ack, id } => {
            (segment.seq, segment.ack, segment.id) = (*seq, *ack, *id);
        }
        Op::Flags { flags } => segment.flags = *flags,
    }
}

proptest! {
    #[test]
    fn conversations_arrive_as_they_were(
        max in 0..4_u8, may_omit: bool, ops in prop::collection::vec((0..6_u16, ops()), 1..120),
    ) {
        let mut line = Line::new(Slots { max, may_omit });
        let mut talks: Vec<Segment> = (0..6)
            .map(|port| Segment { ports: (port, 80), ..Segment::default() })
            .collect();
        for (talk, op) in &ops {
            let segment = &mut talks[usize::from(*talk)];
            step(segment, op);
            line.carry(segment);
        }
    }

    #[test]
    fn detected_losses_pass_wrong_packets_only_with_bad_checksums(
        ops in prop::collection::vec((0..3_u16, ops(), any::<bool>()), 1..120),
    ) {
        let mut line = Line::new(Slots::default());
        let mut talks: Vec<Segment> = (0..3)
            .map(|port| Segment { ports: (port, 80), ..Segment::default() })
            .collect();
        for (talk, op, is_lost) in &ops {
            let segment = &mut talks[usize::from(*talk)];
            step(segment, op);
            let packet = segment.packet();
            let (kind, frame) = line.send(&packet);
            if *is_lost {
                line.decompressor.toss();
                continue;
            }
            let restored = line.receive(kind, &frame);
            match kind {
                Kind::Ip | Kind::Uncompressed => prop_assert_eq!(restored, Ok(packet)),
                // It is delivered to the connection it names or dropped; TCP's checksum decides.
                Kind::Compressed => {
                    if let Ok(restored) = restored
                        && restored.len() == packet.len()
                    {
                        prop_assert_eq!(&restored[12..24], &packet[12..24]);
                        prop_assert_eq!(&restored[36..38], &packet[36..38]);
                    }
                }
            }
        }
        // Whole headers resynchronise everything, and later packets arrive.
        for segment in &mut talks {
            let packet = segment.packet();
            let (kind, frame) = line.send(&packet);
            let restored = line.receive(kind, &frame);
            if kind == Kind::Uncompressed {
                prop_assert_eq!(restored, Ok(packet));
                step(segment, &Op::Data { len: 100, push: false });
                line.carry(segment);
            }
        }
    }

    #[test]
    fn arbitrary_frames_never_panic(
        frames in prop::collection::vec((0..3_u8, prop::collection::vec(any::<u8>(), 0..80)), 0..20),
    ) {
        let mut decompressor = Decompressor::new(Slots { max: 2, may_omit: true });
        let mut compressor = Compressor::new(Slots { max: 2, may_omit: true });
        for (kind, mut frame) in frames {
            let kind = [Kind::Ip, Kind::Uncompressed, Kind::Compressed][usize::from(kind)];
            let mut out = Vec::new();
            let _ = decompressor.decompress(kind, &frame, &mut out);
            compressor.compress(&mut frame);
        }
    }
}
