//! Messages of every kind survive a round trip, and arbitrary bytes do no harm.

use proptest::prelude::*;

use super::super::*;
use super::comes_back;

/// Header extensions without a field: type and content.
type Others = Vec<(u8, Vec<u8>)>;

fn scheme() -> impl Strategy<Value = Scheme> {
    let all = [
        Scheme::NoCode,
        Scheme::ReedSolomonM,
        Scheme::ReedSolomon8,
        Scheme::RaptorQ,
        Scheme::SmallBlockSystematic,
        Scheme::Compact,
    ];
    prop::sample::select(all.to_vec())
}

fn field_bits() -> impl Strategy<Value = u8> {
    2_u8..=16
}

prop_compose! {
    fn others()(list in prop::collection::vec((any::<u8>(), 1_usize..6, any::<u8>()), 0..4)) -> Others {
        let known = [EXT_CC, EXT_FTI, EXT_RATE];
        list.into_iter()
            .filter(|(kind, ..)| !known.contains(kind))
            .map(|(kind, words, fill)| {
                let len = if kind < 128 { 4 * words - 2 } else { 3 };
                (kind, vec![fill; len])
            })
            .collect()
    }
}

fn list(others: &Others) -> Vec<Extension<'_>> {
    others.iter().map(|(kind, value)| Extension { kind: *kind, value }).collect()
}

prop_compose! {
    fn sender()(instance: u16, grtt: u8, backoff in 0..16_u8, group_size in 0..16_u8) -> Sender {
        Sender { instance, grtt, backoff, group_size }
    }
}

/// Returns a payload ID that fits a scheme.
fn id(fec: Scheme, field_bits: u8, block: u32, symbol: u16, block_len: u16) -> PayloadId {
    let block = block & fec.block_mask(field_bits);
    let bits = match fec {
        Scheme::ReedSolomonM => field_bits,
        Scheme::ReedSolomon8 => 8,
        Scheme::RaptorQ => 24,
        Scheme::NoCode | Scheme::SmallBlockSystematic | Scheme::Compact | Scheme::Other(_) => 16,
    };
    let symbol = (u32::from(symbol) & ((1 << bits) - 1)) as u16;
    let block_len = (fec == Scheme::SmallBlockSystematic).then_some(block_len);
    PayloadId { block, symbol, block_len }
}

prop_compose! {
    fn fti(fec: Scheme, field_bits: u8)(
        object_size in 0..=OBJECT_SIZE_MAX, segment_size: u16, block_len: u16, parity: u16,
        instance: u16, m in prop::sample::select(vec![0, field_bits]),
    ) -> Fti {
        let plain = Fti { object_size, segment_size, block_len, ..Fti::default() };
        match fec {
            Scheme::NoCode | Scheme::Other(_) => plain,
            Scheme::ReedSolomonM => Fti { parity, field_bits: m, ..plain },
            Scheme::ReedSolomon8 => Fti { block_len: block_len & 0xff, parity: parity & 0xff, ..plain },
            Scheme::SmallBlockSystematic => Fti { parity, instance, ..plain },
            Scheme::Compact => Fti { instance, ..plain },
            Scheme::RaptorQ => raptorq_fti(plain, parity, field_bits),
        }
    }
}

/// Sizes such that the longest block can be numbered.
fn raptorq_fti(plain: Fti, sub_blocks: u16, alignment: u8) -> Fti {
    let segment_size = plain.segment_size.max(1);
    let blocks = (plain.block_len & 0xff).max(1);
    let most = u64::from(segment_size) * u64::from(blocks) * 0xffff;
    let object_size = plain.object_size % most.min(1 << 40);
    let block_len = object_size.div_ceil(segment_size.into()).div_ceil(blocks.into()).max(1);
    let (block_len, blocks) = (block_len as u16, blocks as u8);
    Fti { object_size, segment_size, block_len, blocks, sub_blocks, alignment, ..plain }
}

fn coded() -> impl Strategy<Value = (Scheme, u8, Option<Fti>)> {
    (scheme(), field_bits()).prop_flat_map(|(fec, field_bits)| {
        (Just(fec), Just(field_bits), prop::option::of(fti(fec, field_bits)))
    })
}

prop_compose! {
    fn cc()(sequence: u16, flags: u8, rtt: u8, loss: u16, rate: u16, loss_low: u16) -> CcFeedback {
        CcFeedback { sequence, flags: CcFlags(flags), rtt, loss, rate, loss_low }
    }
}

/// A request: its form, its flags, and positions in pairs.
type RequestSeed = (u8, u8, Vec<(u16, u32, u16)>);

fn requests() -> impl Strategy<Value = Vec<RequestSeed>> {
    let positions = prop::collection::vec(any::<(u16, u32, u16)>(), 1..6);
    prop::collection::vec((0..3_u8, 0..16_u8, positions), 0..6)
}

/// Writes requests until the space runs out; returns what a reader should find.
fn write(
    writer: &mut RequestWriter<'_>,
    requests: &[RequestSeed],
    fec: Scheme,
    field_bits: u8,
) -> Vec<(Form, RequestFlags, Position, Position)> {
    let mut written = Vec::new();
    for (form, flags, positions) in requests {
        for (object, block, symbol) in positions {
            let id = id(fec, field_bits, *block, *symbol, 64);
            let first = Position { fec, object: *object, id };
            let last = Position { object: object.wrapping_add(1), ..first };
            let flags = RequestFlags(*flags);
            let before = writer.len();
            let (form, last, result) = match form {
                0 => (Form::Items, first, writer.item(flags, first)),
                1 => (Form::Ranges, last, writer.range(flags, first, last)),
                _ => (Form::Erasures, first, writer.erasures(flags, first)),
            };
            match result {
                Ok(()) => written.push((form, flags, first, last)),
                Err(error) => {
                    assert!(matches!(error, EncodeError::NoRoom { .. }), "{error}");
                    assert_eq!(writer.len(), before);
                }
            }
        }
    }
    written
}

/// Every truncation of a message either fails or decodes to no more than the message.
fn truncations(bytes: &[u8], field_bits: u8) {
    let header = usize::from(bytes[1]) * 4;
    for end in 0..bytes.len() {
        let read = Message::decode_with(&bytes[..end], field_bits);
        assert!(read.is_err() || end >= header);
        drop(read.map(|message| message.to_string()));
    }
}

proptest! {
    #[test]
    fn content_round_trips(
        (fec, field_bits, fti) in coded(), sender in sender(), flags: u8, object: u16,
        block: u32, symbol: u16, sequence: u16, source: u32, others in others(),
        payload in prop::collection::vec(any::<u8>(), 0..200),
    ) {
        let others = list(&others);
        let (others, flags) = (Extensions::new(&others), Flags(flags));
        // The message's own m takes precedence.
        let m = fti.map_or(field_bits, |fti| fti.effective_field_bits());
        let id = id(fec, m, block, symbol, symbol ^ 0x55);
        let source = NodeId(source);
        let payload = &payload[..];
        let info = Info { sender, flags, fec, object, fti, others, payload };
        let data = Data { sender, flags, fec, object, id, fti, others, payload };
        for body in [Body::Info(info), Body::Data(data)] {
            let message = Message { sequence, source, body };
            let bytes = comes_back(message, field_bits);
            truncations(&bytes, field_bits);
            // The payload can be put in place later.
            let empty = match body {
                Body::Info(info) => Body::Info(Info { payload: &[], ..info }),
                _ => Body::Data(Data { payload: &[], ..data }),
            };
            let head = comes_back(Message { body: empty, ..message }, field_bits);
            prop_assert_eq!([&head[..], payload].concat(), bytes);
        }
    }

    #[test]
    fn commands_round_trip(
        fec in scheme(), field_bits in field_bits(), sender in sender(), object: u16, block: u32,
        symbol: u16, nodes in prop::collection::vec(any::<u32>(), 0..20), others in others(),
        time: (u32, u32), rate: Option<u16>, cc in prop::option::of(cc()), requests in requests(),
        (kind, number, flags, subtype) in any::<(u8, u8, u8, u8)>(),
        payload in prop::collection::vec(any::<u8>(), 0..50),
    ) {
        let others = list(&others);
        let others = Extensions::new(&others);
        let id = id(fec, field_bits, block, symbol, symbol);
        let invalid: Vec<_> = nodes.iter().map(|node| *node as u16).collect();
        let states: Vec<_> = nodes.iter().map(|node| CcNode {
            node: NodeId(*node), flags: CcFlags(flags), rtt: kind, rate: symbol,
        }).collect();
        let nodes: Vec<_> = nodes.into_iter().map(NodeId).collect();
        let ackers = NodeList::new(&nodes);
        let send_time = SendTime { sec: time.0, usec: time.1 };
        let mut room = [0xa5; 1000];
        let mut writer = RequestWriter::new(&mut room, field_bits);
        write(&mut writer, &requests, fec, field_bits);
        let requests = writer.finish();
        let payload = &payload[..];
        let header = [1, 2, 3, kind, number, flags, subtype];
        let subtype = subtype.max(8);
        let (invalid, nodes) = (ObjectList::new(&invalid), CcNodes::new(&states));
        let (reserved, sequence) = (flags, symbol);
        for command in [
            Command::Flush { sender, fec, object, id, others, ackers },
            Command::Eot { sender, others },
            Command::Squelch { sender, fec, object, id, others, invalid },
            Command::Cc { sender, reserved, sequence, send_time, rate, others, nodes },
            Command::RepairAdv { sender, flags, cc, others, requests },
            Command::AckReq { sender, kind, id: number, others, ackers },
            Command::Application { sender, others, payload },
            Command::Other { sender, subtype, header: &header, payload },
        ] {
            let message = Message { sequence: 7, source: NodeId(1), body: Body::Command(command) };
            let bytes = comes_back(message, field_bits);
            truncations(&bytes, field_bits);
            prop_assert!(message.to_string().contains("node 1 #7 "));
        }
    }

    #[test]
    fn feedback_round_trips(
        fec in scheme(), field_bits in field_bits(), server: u32, instance: u16, time: (u32, u32),
        cc in prop::option::of(cc()), others in others(), requests in requests(), kind: u8, number: u8,
        payload in prop::collection::vec(any::<u8>(), 0..50),
    ) {
        let others = list(&others);
        let others = Extensions::new(&others);
        let (server, grtt_response) = (NodeId(server), SendTime { sec: time.0, usec: time.1 });
        let mut room = [0xa5; 1000];
        let mut writer = RequestWriter::new(&mut room, field_bits);
        write(&mut writer, &requests, fec, field_bits);
        let requests = writer.finish();
        let payload = &payload[..];
        let nack = Nack { server, instance, grtt_response, cc, others, requests };
        let ack = Ack { server, instance, kind, id: number, grtt_response, cc, others, payload };
        for body in [Body::Nack(nack), Body::Ack(ack)] {
            let bytes = comes_back(Message { sequence: 7, source: NodeId(1), body }, field_bits);
            truncations(&bytes, field_bits);
        }
    }

    #[test]
    fn requests_round_trip(
        fec in scheme(), field_bits in field_bits(), requests in requests(), room in 0_usize..600,
    ) {
        let mut out = [0xa5; 600];
        let mut writer = RequestWriter::new(&mut out[..room], field_bits);
        let written = write(&mut writer, &requests, fec, field_bits);
        let bytes = writer.finish().bytes().to_vec();
        prop_assert!(bytes.len() <= room);
        let requests = Requests::decode(&bytes, field_bits).expect("written requests");
        let read: Vec<_> = requests
            .iter()
            .flat_map(|request| {
                let head = (request.form, request.flags);
                request.ranges().map(move |(first, last)| (head.0, head.1, first, last))
            })
            .collect();
        prop_assert_eq!(read, written);
        // Consecutive requests of the same form and flags share a head.
        let heads: Vec<_> = requests.iter().map(|request| (request.form, request.flags)).collect();
        prop_assert!(heads.windows(2).all(|pair| pair[0] != pair[1]));
    }

    #[test]
    fn positions_round_trip(
        fec in scheme(), field_bits in field_bits(), object: u16, block: u32, symbol: u16,
    ) {
        let position = Position { fec, object, id: id(fec, field_bits, block, symbol, symbol) };
        let mut out = [0xa5; 12];
        let len = position.encode(&mut out, field_bits).expect("it has a form");
        prop_assert_eq!(len, position.encoded_len());
        prop_assert_eq!(Position::decode(&out[..len], field_bits), Ok(position));
        prop_assert!(Position::decode(&out[..len - 1], field_bits).is_err());
        prop_assert!(position.encode(&mut out[..len - 1], field_bits).is_err());
    }

    #[test]
    fn quantised_values_are_the_nearest_of_their_kind(nanos in 33_000_u64..1_000_000_000_000, value in 1e0..9.9e15) {
        let time = std::time::Duration::from_nanos(nanos);
        let byte = quantise_rtt(time);
        prop_assert!(rtt(byte - 1) < time && time <= rtt(byte));
        let back = rate(quantise_rate(value));
        prop_assert!((back / value - 1.0).abs() <= 0.5 / 409.6, "{value} is {back}");
        let size = (nanos % 500_000_001) as u32;
        let bits = quantise_group_size(size);
        prop_assert!(size <= group_size(bits));
        prop_assert!((0..16).all(|other| group_size(other) < size || group_size(bits) <= group_size(other)));
    }

    #[test]
    fn arbitrary_bytes_never_panic(
        kind in 0..8_u8, words in 0..16_u8, mut bytes in prop::collection::vec(any::<u8>(), 0..100),
        small in prop::collection::vec((0_usize..100, 0..6_u8), 0..8), field_bits: u8,
    ) {
        if let [first, second, ..] = &mut bytes[..] {
            (*first, *second) = (VERSION << 4 | kind, words);
        }
        // Types, lengths and forms are small numbers.
        for (place, value) in small.into_iter().filter(|(place, _)| *place > 1) {
            if let Some(byte) = bytes.get_mut(place) {
                *byte = value;
            }
        }
        if let Ok(message) = Message::decode_with(&bytes, field_bits) {
            prop_assert!(!message.to_string().is_empty());
            let mut again = vec![0xa5; message.encoded_len()];
            let len = message.encode_with(&mut again, field_bits).expect("decoded values fit");
            prop_assert_eq!(len, again.len());
            prop_assert!(len <= bytes.len());
            prop_assert_eq!(Message::decode_with(&again, field_bits), Ok(message));
        }
        let _ = Requests::decode(&bytes, field_bits).map(|requests| requests.to_string());
        let _ = StreamHeader::decode(&bytes).map(|(header, _)| header.encode());
    }
}
