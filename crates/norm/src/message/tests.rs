//! Vectors from RFC 5740 and RFC 5401, the sizes of a capture of 2011, and round trips.

use std::time::Duration;

use super::*;

const SENDER: Sender = Sender { instance: 0x1234, grtt: 0xb2, backoff: 4, group_size: 3 };

fn bytes(text: &str) -> Vec<u8> {
    text.split_whitespace().map(|pair| u8::from_str_radix(pair, 16).expect("two digits")).collect()
}

fn message(body: Body<'_>) -> Message<'_> {
    Message { sequence: 0x0102, source: NodeId(0x7f00_0001), body }
}

fn fti5() -> Fti {
    Fti { object_size: 10_000, segment_size: 1024, block_len: 32, parity: 8, ..Fti::default() }
}

fn data(payload: &[u8]) -> Data<'_> {
    Data {
        sender: SENDER,
        flags: Flags::FILE | Flags::INFO,
        fec: Scheme::ReedSolomon8,
        object: 7,
        id: PayloadId::new(3, 5),
        fti: Some(fti5()),
        others: Extensions::NONE,
        payload,
    }
}

/// Encodes over bytes that are not zero, and decodes the result.
fn comes_back(message: Message<'_>, field_bits: u8) -> Vec<u8> {
    let mut out = vec![0xa5; message.encoded_len() + 3];
    let len = message.encode_with(&mut out, field_bits).expect("it has a form");
    assert_eq!(len, message.encoded_len(), "{message}");
    assert_eq!(out.split_off(len), [0xa5; 3], "{message}");
    assert_eq!(Message::decode_with(&out, field_bits), Ok(message), "{message}");
    out
}

#[test]
fn sizes_of_a_capture_of_2011() {
    let info = Info {
        sender: SENDER,
        flags: Flags::FILE,
        fec: Scheme::ReedSolomon8,
        object: 0,
        fti: Some(fti5()),
        others: Extensions::NONE,
        payload: b"testfile.10k",
    };
    let fec = Scheme::ReedSolomon8;
    let (id, others, ackers) = (PayloadId::new(0, 9), Extensions::NONE, NodeList::NONE);
    let flush = Command::Flush { sender: SENDER, fec, object: 0, id, others, ackers };
    let cc = Command::Cc {
        sender: SENDER,
        reserved: 0,
        sequence: 9,
        send_time: SendTime { sec: 1, usec: 2 },
        rate: Some(0x51f4),
        others,
        nodes: CcNodes::NONE,
    };
    let ack = Ack {
        server: NodeId(1),
        instance: 2,
        kind: Ack::CC,
        id: 0,
        grtt_response: SendTime { sec: 3, usec: 4 },
        cc: Some(CcFeedback { sequence: 9, rate: 0x51f4, ..CcFeedback::default() }),
        others,
        payload: &[],
    };
    let mut room = [0; 12];
    let mut writer = RequestWriter::new(&mut room, 8);
    writer.item(RequestFlags::SEGMENT, Position { fec, object: 0, id }).expect("there is room");
    let requests = writer.finish();
    let (server, instance, grtt_response, cc_feedback) =
        (ack.server, ack.instance, ack.grtt_response, ack.cc);
    let nack = Nack { server, instance, grtt_response, cc: cc_feedback, others, requests };
    for (body, size) in [
        (Body::Info(info), 40),
        (Body::Data(data(&[0x55; 1024])), 1056),
        (Body::Command(flush), 20),
        (Body::Command(cc), 28),
        (Body::Ack(ack), 36),
        (Body::Nack(nack), 48),
    ] {
        assert_eq!(comes_back(message(body), 8).len(), size, "{body}");
    }
}

/// Ten symbols in two blocks.
fn raptorq_fti() -> Fti {
    let plain = Fti { object_size: 10_000, segment_size: 1024, block_len: 5, ..Fti::default() };
    Fti { blocks: 2, sub_blocks: 1, alignment: 4, ..plain }
}

#[test]
fn fields_have_their_specified_position() {
    let text = "12 08 01 02 7f 00 00 01 12 34 b2 43 14 05 00 07 00 00 03 05 \
                40 03 00 00 00 00 27 10 04 00 20 08 68 69";
    assert_eq!(comes_back(message(Body::Data(data(b"hi"))), 8), bytes(text));
    let fti = Fti { instance: 0x0708, field_bits: 16, block_len: 300, parity: 100, ..fti5() };
    for (fec, id, text) in [
        (
            Scheme::SmallBlockSystematic,
            PayloadId { block: 3, symbol: 5, block_len: Some(32) },
            "81 00 07 00 00 00 03 00 20 00 05 \
             40 04 00 00 00 00 27 10 07 08 04 00 01 2c 00 64",
        ),
        (
            Scheme::ReedSolomonM,
            PayloadId::new(3, 5),
            "02 00 07 00 03 00 05 40 04 00 00 00 00 27 10 10 01 04 00 01 2c 00 64",
        ),
        (
            Scheme::NoCode,
            PayloadId::new(3, 5),
            "00 00 07 00 03 00 05 40 04 00 00 00 00 27 10 00 00 04 00 00 00 01 2c",
        ),
        (
            Scheme::Compact,
            PayloadId::new(3, 5),
            "82 00 07 00 03 00 05 40 04 00 00 00 00 27 10 07 08 04 00 00 00 01 2c",
        ),
        (
            Scheme::RaptorQ,
            PayloadId::new(3, 5),
            "06 00 07 03 00 00 05 40 04 00 00 00 27 10 00 04 00 02 00 01 04 00 00",
        ),
    ] {
        let fti = match fec {
            Scheme::SmallBlockSystematic => Fti { field_bits: 0, ..fti },
            Scheme::ReedSolomonM => Fti { instance: 0, ..fti },
            Scheme::Compact => Fti { field_bits: 0, parity: 0, ..fti },
            Scheme::RaptorQ => raptorq_fti(),
            _ => Fti { field_bits: 0, instance: 0, parity: 0, ..fti },
        };
        let body = Body::Data(Data { fec, id, fti: Some(fti), ..data(b"hi") });
        let out = comes_back(message(body), 8);
        let words = (out.len() - 2) / 4;
        assert_eq!((out[1], &out[13..out.len() - 2]), (words as u8, &*bytes(text)), "{body}");
    }
}

#[test]
fn requests_of_the_specification() {
    // RFC 5740 §4.3.1, examples 1 and 2.
    let fec = Scheme::SmallBlockSystematic;
    let at = |object, block, symbol| {
        let block_len = Some(32);
        Position { fec, object, id: PayloadId { block, symbol, block_len } }
    };
    let mut room = [0xa5; 40];
    let mut writer = RequestWriter::new(&mut room, 8);
    for symbol in [2, 5, 8] {
        writer.item(RequestFlags::SEGMENT, at(12, 3, symbol)).expect("there is room");
    }
    assert!(writer.item(RequestFlags::SEGMENT, at(12, 3, 9)).is_err());
    let requests = writer.finish();
    let text = "01 01 00 24 81 00 00 0c 00 00 00 03 00 20 00 02 \
                81 00 00 0c 00 00 00 03 00 20 00 05 81 00 00 0c 00 00 00 03 00 20 00 08";
    assert_eq!(requests.bytes(), bytes(text));

    let mut room = [0xa5; 100];
    let mut writer = RequestWriter::new(&mut room, 8);
    writer.range(RequestFlags::SEGMENT, at(18, 6, 5), at(18, 6, 10)).expect("there is room");
    let both = RequestFlags::SEGMENT | RequestFlags::INFO;
    writer.item(both, at(19, 1, 3)).expect("there is room");
    let requests = writer.finish();
    let text = "02 01 00 18 81 00 00 12 00 00 00 06 00 20 00 05 \
                81 00 00 12 00 00 00 06 00 20 00 0a \
                01 05 00 0c 81 00 00 13 00 00 00 01 00 20 00 03";
    assert_eq!(requests.bytes(), bytes(text));
    let text = bytes(text);
    let read = Requests::decode(&text, 8).expect("requests");
    assert_eq!(read, requests);
    let all: Vec<_> =
        read.iter().map(|r| (r.form, r.flags, r.ranges().collect::<Vec<_>>())).collect();
    assert_eq!(
        all,
        [
            (Form::Ranges, RequestFlags::SEGMENT, vec![(at(18, 6, 5), at(18, 6, 10))]),
            (Form::Items, both, vec![(at(19, 1, 3), at(19, 1, 3))]),
        ]
    );
}

#[test]
fn round_trip_times_in_a_byte() {
    // Values captured in 2011, to the millisecond.
    for (byte, millis) in [(0xae, 1968), (0xb1, 2479), (0xb2, 2677), (0xb3, 2891)] {
        let exact = rtt(byte).as_secs_f64() * 1e3;
        assert!((exact - f64::from(millis)).abs() < 0.6, "{byte:#04x} is {exact} ms");
    }
    assert_eq!(rtt(0), RTT_MIN);
    assert_eq!(rtt(31), Duration::from_micros(32));
    assert_eq!(rtt(255), RTT_MAX);
    for byte in 0..=255_u8 {
        assert_eq!(quantise_rtt(rtt(byte)), byte);
        let formula = if byte <= 31 {
            f64::from(byte + 1) * 1e-6
        } else {
            1000.0 / (f64::from(255 - byte) / 13.0).exp()
        };
        assert!((rtt(byte).as_secs_f64() - formula).abs() < 2e-9, "{byte}");
    }
    // Halfway between two values, where rounding cannot matter, compares with the formula of RFC
    // 5401.
    for byte in 32..=254_u8 {
        let between = (rtt(byte) + rtt(byte + 1)) / 2;
        let formula = (255.0 - 13.0 * (1000.0 / between.as_secs_f64()).ln()).ceil();
        assert_eq!(f64::from(quantise_rtt(between)), formula);
    }
    assert_eq!(quantise_rtt(Duration::ZERO), 0);
    assert_eq!(quantise_rtt(Duration::from_nanos(1999)), 0);
    assert_eq!(quantise_rtt(Duration::from_nanos(32_999)), 31);
    assert_eq!(quantise_rtt(Duration::from_micros(33)), 32);
    assert_eq!(quantise_rtt(Duration::MAX), 255);
}

#[test]
fn group_sizes_in_four_bits() {
    for (bits, size) in [(0, 10), (8, 50), (1, 100), (9, 500), (3, 10_000), (15, 500_000_000)] {
        assert_eq!(group_size(bits), size);
        assert_eq!(quantise_group_size(size), bits);
    }
    for (size, bits) in [(0, 0), (1, 0), (11, 8), (51, 1), (10_001, 11), (u32::MAX, 15)] {
        assert_eq!(quantise_group_size(size), bits, "{size}");
    }
}

#[test]
fn rates_and_loss_in_sixteen_bits() {
    // RFC 5740 §4.2.3.4.
    assert_eq!(quantise_rate(32_000.0), 0x51f4);
    assert!((rate(0x51f4) / 32_000.0 - 1.0).abs() < 1e-3);
    for exponent in 0..16 {
        for mantissa in 410..4096 {
            let bits = mantissa << 4 | exponent;
            assert_eq!(quantise_rate(rate(bits)), bits);
        }
    }
    for (value, bits) in [
        (0.0, 0),
        (-1.0, 0),
        (f64::NAN, 0),
        (1.0, 410 << 4),
        (0.5, 205 << 4),
        (9.9999, 0xfff0),
        (99_999.9, 0xfff4),
        (1e16, 0xffff),
        (f64::INFINITY, 0xffff),
    ] {
        assert_eq!(quantise_rate(value), bits, "{value}");
    }
    for (value, bits) in [(0.0, 0), (1.0, 65_535), (0.5, 32_767), (2.0, 65_535), (-1.0, 0)] {
        assert_eq!(quantise_loss(value), bits, "{value}");
    }
    assert!((loss(quantise_loss(0.01)) - 0.01).abs() < 2e-5);
}

#[test]
fn heads_of_streams() {
    let header = StreamHeader { len: 2, message_start: 1, offset: 0x0001_0203 };
    let mut symbol = header.encode().to_vec();
    assert_eq!(symbol, bytes("00 02 00 01 00 01 02 03"));
    symbol.extend(b"hi and padding");
    assert_eq!(StreamHeader::decode(&symbol), Ok((header, &b"hi"[..])));
    assert!(StreamHeader::decode(&symbol[..9]).is_err());
    symbol[3] = 3;
    assert_eq!(StreamHeader::decode(&symbol).map_err(|error| error.offset), Err(2));
    assert!(StreamHeader::end(7).is_end() && !header.is_end());
    let end = StreamHeader::end(7).encode();
    assert_eq!(StreamHeader::decode(&end), Ok((StreamHeader::end(7), &[][..])));
}

/// Messages, mostly of the reference implementation, decode to the expected fields and encode to
/// the same bytes.
mod vectors {
    use super::{Message, bytes};

    fn reads(text: &str) {
        let value = |key| text.lines().find_map(|line| line.strip_prefix(key));
        let digits: Vec<_> = text.lines().filter(|line| !line.starts_with('#')).collect();
        let bytes = bytes(&digits.join(" "));
        let field_bits = value("# m: ").expect("it has m").parse().expect("a number");
        let message = Message::decode_with(&bytes, field_bits).expect("it is a message");
        assert_eq!(Some(&*message.to_string()), value("# reads: "));
        assert_eq!(super::comes_back(message, field_bits), bytes);
    }

    macro_rules! vectors {
        ($($name:ident)*) => {
            $(#[test]
            fn $name() {
                reads(include_str!(concat!(
                    "../../testdata/",
                    stringify!($name),
                    ".hex"
                )));
            })*
        };
    }

    vectors! {
        ack_cc ack_flush application cc cc_node data data_129 data_2_16 data_2_8 data_6
        data_stream data_stream_end flush flush_129 flush_2_16 flush_ackers info info_129 info_2_16
        info_stream nack nack_129 nack_2_16 nack_many repair_adv squelch
    }
}

#[test]
fn messages_the_reference_implementation_does_not_send() {
    // Laid out by hand from the figures of RFC 5740 §4.
    let (sender, others) = (SENDER, Extensions::NONE);
    let ackers = [NodeId(2), NodeId::ANY];
    let ackers = NodeList::new(&ackers);
    let id = PayloadId::new(5, 0);
    let odd = [7, 9, 11];
    let invalid = ObjectList::new(&odd);
    let fec = Scheme::NoCode;
    let kind = Ack::APPLICATION;
    let header = [1, 2, 3];
    let report = Report { header: &[1, 2, 3, 4], payload: b"?" };
    for (body, text) in [
        (Body::Command(Command::Eot { sender, others }), "13 04 S 02 00 00 00"),
        (
            Body::Command(Command::AckReq { sender, kind, id: 9, others, ackers }),
            "13 04 S 06 00 10 09 00 00 00 02 ff ff ff ff",
        ),
        (
            Body::Command(Command::Squelch { sender, fec, object: 6, id, others, invalid }),
            "13 05 S 03 00 00 06 00 05 00 00 00 07 00 09 00 0b",
        ),
        (
            Body::Command(Command::Other { sender, subtype: 8, header: &header, payload: b"?" }),
            "13 04 S 08 01 02 03 3f",
        ),
        (Body::Report(report), "16 03 01 02 7f 00 00 01 01 02 03 04 3f"),
    ] {
        let head = "01 02 7f 00 00 01 12 34 b2 43";
        assert_eq!(comes_back(message(body), 8), bytes(&text.replace('S', head)), "{body}");
    }
}

#[test]
fn extensions_follow_those_with_a_field() {
    let long = [7; 18];
    let list = [Extension { kind: 9, value: &long }, Extension { kind: 200, value: &[0, 1, 2] }];
    let others = Extensions::new(&list);
    let body = Body::Data(Data { others, ..data(b"hi") });
    let out = comes_back(message(body), 8);
    assert_eq!(out[1], 8 + 5 + 1);
    assert_eq!(out[32..34], [9, 5]);
    assert_eq!(out[52..], [200, 0, 1, 2, b'h', b'i']);
    // Extensions before and behind it do not matter.
    let (a, b, c) = (&out[..20], &out[20..32], &out[32..]);
    let moved = [a, &c[..20], b, &c[20..]].concat();
    assert_eq!(Message::decode_with(&moved, 8), Ok(message(body)));
    // A second one changes nothing; the header may have 255 words.
    let mut twice = [a, b, b, c].concat();
    twice[1] += 3;
    assert_eq!(Message::decode_with(&twice, 8), Ok(message(body)));
    for value in [&[0; 1][..], &[0; 4], &[]] {
        let list = [Extension { kind: 9, value }];
        let body = Body::Data(Data { others: Extensions::new(&list), ..data(b"hi") });
        assert!(matches!(message(body).to_vec(), Err(EncodeError::Conflict(_))), "{value:?}");
    }
    let longest = vec![0; 1018];
    let many = [Extension { kind: 9, value: &longest }];
    let body = Body::Data(Data { others: Extensions::new(&many), ..data(b"hi") });
    assert_eq!(message(body).to_vec(), Err(EncodeError::TooLarge { field: "hdr_len" }));
}

#[test]
fn fields_have_bounds() {
    let encode = |data: Data<'_>| message(Body::Data(data)).to_vec().map(|_| ());
    let too_large = |field| Err(EncodeError::TooLarge { field });
    let plain = Data { fti: None, ..data(b"") };
    let id = |block, symbol, block_len| PayloadId { block, symbol, block_len };
    let m = Scheme::ReedSolomonM;
    for (fec, id, expected) in [
        (Scheme::ReedSolomon8, id((1 << 24) - 1, 255, None), Ok(())),
        (Scheme::ReedSolomon8, id(1 << 24, 255, None), too_large("source_block_number")),
        (Scheme::ReedSolomon8, id(0, 256, None), too_large("encoding_symbol_id")),
        (Scheme::NoCode, id(0xffff, 0xffff, None), Ok(())),
        (Scheme::NoCode, id(0x1_0000, 0, None), too_large("source_block_number")),
        (m, id(0xffff, 0xffff, None), Ok(())),
        (m, id(0x1_0000, 0, None), too_large("source_block_number")),
        (Scheme::RaptorQ, id(255, 0xffff, None), Ok(())),
        (Scheme::RaptorQ, id(256, 0, None), too_large("source_block_number")),
        (Scheme::SmallBlockSystematic, id(u32::MAX, 0xffff, Some(0xffff)), Ok(())),
    ] {
        assert_eq!(encode(Data { fec, id, ..plain }), expected, "{fec} {id}");
    }
    for (fec, id) in [
        (Scheme::SmallBlockSystematic, id(0, 0, None)),
        (Scheme::ReedSolomon8, id(0, 0, Some(1))),
        (Scheme::Other(3), id(0, 0, None)),
    ] {
        assert!(matches!(encode(Data { fec, id, ..plain }), Err(EncodeError::Conflict(_))));
    }
    let with = |fti: Fti| encode(Data { fti: Some(fti), ..plain });
    assert_eq!(with(Fti { object_size: OBJECT_SIZE_MAX, ..fti5() }), Ok(()));
    assert_eq!(with(Fti { object_size: 1 << 48, ..fti5() }), too_large("object_size"));
    assert_eq!(with(Fti { block_len: 256, ..fti5() }), too_large("fec_max_block_len"));
    assert_eq!(with(Fti { parity: 256, ..fti5() }), too_large("fec_num_parity"));
    let with = |sender| encode(Data { sender, ..plain });
    assert_eq!(with(Sender { backoff: 16, ..SENDER }), too_large("backoff"));
    assert_eq!(with(Sender { group_size: 16, ..SENDER }), too_large("gsize"));
    let other = Command::Other { sender: SENDER, subtype: 7, header: &[0; 3], payload: b"" };
    assert!(message(Body::Command(other)).to_vec().is_err());
    assert_eq!(Scheme::ReedSolomon8.block_mask(16), 0x00ff_ffff);
    assert_eq!((m.block_mask(8), m.block_mask(16)), (0x00ff_ffff, 0xffff));
    assert_eq!(Scheme::SmallBlockSystematic.block_mask(8), u32::MAX);
    assert_eq!(Scheme::NoCode.block_mask(8), 0xffff);
}

#[test]
fn numbers_of_scheme_6_have_bounds() {
    let read = |change: fn(&mut [u8])| {
        let (fec, fti) = (Scheme::RaptorQ, Some(raptorq_fti()));
        let body = Body::Data(Data { fec, id: PayloadId::new(3, 5), fti, ..data(b"") });
        let mut out = message(body).to_vec().expect("a message");
        change(&mut out);
        let read = Message::decode(&out);
        read.map(|message| match message.body {
            Body::Data(data) => data.fti.map_or(0, |fti| fti.block_len),
            _ => 0,
        })
    };
    // Payload id from byte 16, the size from 22, the size of a symbol at 28, the blocks at 30.
    assert_eq!(read(|_| ()).ok(), Some(5));
    assert_eq!(read(|out| out[30] = 3).ok(), Some(4));
    assert_eq!(read(|out| out[22..27].fill(0)).ok(), Some(1));
    assert!(read(|out| out[17] = 1).is_err(), "a symbol above 65,535");
    assert!(read(|out| out[30] = 0).is_err(), "no blocks");
    assert!(read(|out| out[28..30].fill(0)).is_err(), "symbols without bytes");
    assert!(read(|out| out[22] = 1).is_err(), "blocks of more than 65,535 symbols");
    assert_eq!(Scheme::RaptorQ.block_mask(8), 255);
}

#[test]
fn field_bits_of_scheme_2() {
    let id = PayloadId::new(0x0102, 0x0003);
    let fec = Scheme::ReedSolomonM;
    let (sender, others, ackers) = (SENDER, Extensions::NONE, NodeList::NONE);
    let flush = Command::Flush { sender, fec, object: 1, id, others, ackers };
    for (field_bits, last) in [(8, 0x0001_0203), (16, 0x0102_0003), (10, 0x0004_0803)] {
        let out = comes_back(message(Body::Command(flush)), field_bits);
        assert_eq!(out[16..20], u32::to_be_bytes(last));
    }
    assert_eq!(message(Body::Command(flush)).to_vec().unwrap()[16..20], [1, 2, 0, 3]);
    // The message's own m takes precedence; 0 means 8.
    for (m, last) in [(0, 0x0001_0203), (8, 0x0001_0203), (10, 0x0004_0803)] {
        let fti = Some(Fti { field_bits: m, ..fti5() });
        let out = comes_back(message(Body::Data(Data { fec, id, fti, ..data(b"") })), 16);
        assert_eq!(out[16..20], u32::to_be_bytes(last));
    }
}

#[test]
fn errors_are_reported_with_their_offset() {
    let head = "01 02 7f 00 00 01 12 34 b2 43";
    let feedback = "01 02 7f 00 00 02 00 00 00 01 12 34 00 00 00 00 00 01 00 00 00 02";
    for (text, offset) in [
        ("", 0),
        ("22 05 S 00 05 00 07 00 00 03 05", 0),
        ("17 04 S 00 05 00 07", 0),
        ("12 01 S 00 05 00 07 00 00 03 05", 1),
        ("12 06 S 00 05 00 07 00 00 03 05", 8),
        ("12 04 S 00 05 00 07 00 00 03 05", 16),
        ("12 05 S 00 03 00 07 00 00 03 05", 13),
        // Header extensions: no length, a length beyond the header, EXT_FTI of another length.
        ("12 06 S 00 05 00 07 00 00 03 05 09 00 00 00", 21),
        ("12 06 S 00 05 00 07 00 00 03 05 09 02 00 00", 22),
        ("12 06 S 00 05 00 07 00 00 03 05 40 01 00 00", 22),
        ("12 06 S 00 05 00 07 00 00 03 05 80 00 00", 8),
        // EXT_FTI of scheme 2: m, and symbols of a packet.
        ("12 09 S 00 02 00 07 00 00 03 05 40 04 00 00 00 00 00 00 11 01 00 00 00 00 00 00", 28),
        ("12 09 S 00 02 00 07 00 00 03 05 40 04 00 00 00 00 00 00 08 02 00 00 00 00 00 00", 29),
        // Blocks longer than the numbers of symbols.
        ("12 09 S 00 00 00 07 00 00 03 05 40 04 00 00 00 00 00 00 00 00 00 00 00 01 00 00", 32),
        // EOT with a payload; a list that does not end with an entry.
        ("13 04 S 02 00 00 00 00", 16),
        ("13 05 S 01 05 00 00 00 00 00 00 01 02", 20),
        ("13 05 S 01 03 00 00 00 00 00 00", 16),
        // Requests: of an unknown scheme, half a range, longer than the message, half an item.
        ("14 06 F 01 01 00 08 03 00 00 00 00 00 00 00", 32),
        ("14 06 F 02 01 00 08 05 00 00 00 00 00 00 00", 36),
        ("14 06 F 01 01 00 0c 05 00 00 00 00 00 00 00", 28),
        ("14 06 F 01 01 00 04 05 00 00 00", 32),
        // EXT_CC of two words.
        ("15 08 F 03 02 00 00 00 00 00 00", 26),
    ] {
        let bytes = bytes(&text.replace('S', head).replace('F', feedback));
        let error = Message::decode(&bytes).map(|message| message.to_string()).unwrap_err();
        assert_eq!(error.offset, offset, "{text}: {error}");
    }
    // An unknown form is skipped.
    let text = "14 06 F 09 01 00 03 05 00 00 01 01 00 08 05 00 00 00 00 00 00 00";
    let bytes = bytes(&text.replace('F', feedback));
    let message = Message::decode(&bytes).expect("a message");
    let Body::Nack(nack) = message.body else { panic!("{message}") };
    let forms: Vec<_> =
        nack.requests.iter().map(|request| (request.form, request.ranges().count())).collect();
    assert_eq!(forms, [(Form::Other(9), 0), (Form::Items, 1)]);
    assert_eq!(message.to_vec(), Ok(bytes.clone()));
}

#[test]
fn messages_print_on_one_line() {
    let nodes: Vec<_> = (1..=10).map(NodeId).collect();
    let (sender, others, ackers) = (SENDER, Extensions::NONE, NodeList::new(&nodes));
    let line = |command| message(Body::Command(command)).to_string();
    let tail = "instance 4660 GRTT 2.677s backoff 4 group 10000";
    assert_eq!(
        line(Command::AckReq { sender, kind: 16, id: 3, others, ackers }),
        format!(
            "node 2130706433 #258 ACK_REQ 3 of type 16, to be acknowledged by 1 2 3 4 5 6 7 8 and \
             2 more, {tail}"
        )
    );
    assert_eq!(line(Command::Eot { sender, others }), format!("node 2130706433 #258 EOT, {tail}"));
    assert_eq!(NodeId::NONE.to_string() + &NodeId::ANY.to_string(), "noneany");
    assert_eq!((Flags::FILE | Flags(0x80)).to_string(), "FILE flags 0x80");
}

mod properties;
