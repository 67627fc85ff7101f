//! NORM messages, as decoded by tshark 4.0 (RFC 5740, RFC 5445).
//!
//! tshark supports the payload IDs of schemes 0 and 129. It shows the header of messages of scheme
//! 5 and the rest as data. It reads 8 bytes for the payload ID of scheme 2, which has 4, and
//! misreads the header of a stream. These are not compared behind the object.
//!
//! It does not decode nodes of CMD(CC) and does not support REPORT. It reports any list of objects
//! in CMD(SQUELCH) as malformed, and shows the reserved bytes of CMD(APPLICATION) as its payload.

use norm::message::*;
use slowlight_norm as norm;

use testing::tshark::{number, tshark_lines};

const PORT: u16 = 6003;

const FIELDS: [&str; 44] = [
    "norm.version",
    "norm.type",
    "norm.hlen",
    "norm.sequence",
    "norm.source_id",
    "norm.instance_id",
    "norm.grtt",
    "norm.backoff",
    "norm.gsize",
    "norm.flags",
    "norm.flag.repair",
    "norm.flag.stream",
    "norm.object_transport_id",
    "norm.fec_encoding_id",
    "norm.flavor",
    "norm.ccsequence",
    "norm.cc_sts",
    "norm.cc_stus",
    "norm.ack.source",
    "norm.ack.type",
    "norm.ack.id",
    "norm.ack.grtt_sec",
    "norm.ack.grtt_usec",
    "norm.nack.server",
    "norm.nack.grtt_sec",
    "norm.nack.grtt_usec",
    "norm.nack.form",
    "norm.nack.flags",
    "norm.nack.length",
    "rmt-fec.sbn",
    "rmt-fec.sbl",
    "rmt-fec.esi",
    "rmt-fec.fti.transfer_length",
    "rmt-fec.fti.encoding_symbol_length",
    "rmt-fec.fti.max_source_block_length",
    "rmt-fec.fti.max_number_encoding_symbols",
    "rmt-lct.hec.type",
    "rmt-lct.hec.len",
    "rmt-lct.send_rate",
    "rmt-lct.cc_sequence",
    "rmt-lct.cc_flags",
    "rmt-lct.cc_rtt",
    "rmt-lct.cc_loss",
    "rmt-lct.cc_rate",
];

const SENDER: Sender = Sender { instance: 0x1234, grtt: 0xb2, backoff: 4, group_size: 3 };
const CC: CcFeedback = CcFeedback {
    sequence: 513,
    flags: CcFlags(0x0d),
    rtt: 0xae,
    loss: 655,
    rate: 0x51f4,
    loss_low: 0,
};
const TIME: SendTime = SendTime { sec: 1_700_000_000, usec: 654_321 };
const FTI: Fti = Fti {
    object_size: 0x0102_0304_0506,
    segment_size: 1024,
    block_len: 64,
    parity: 0,
    field_bits: 0,
    instance: 0,
    blocks: 0,
    sub_blocks: 0,
    alignment: 0,
};

/// Returns the supported schemes: payload IDs of 0 and 129.
fn schemes() -> [(Scheme, PayloadId, Fti); 3] {
    let id = PayloadId::new(0x0102, 0x25);
    let wide = PayloadId { block: 0x0102_0304, symbol: 0x25, block_len: Some(64) };
    let parity = Fti { parity: 16, ..FTI };
    [
        (Scheme::NoCode, id, FTI),
        (Scheme::SmallBlockSystematic, wide, parity),
        (Scheme::ReedSolomon8, id, parity),
    ]
}

/// Returns requests of every form and with every flag, each alone, as the payload of a message.
fn requests(fec: Scheme, id: PayloadId) -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    let position = Position { fec, object: 7, id };
    for flags in [
        RequestFlags::SEGMENT,
        RequestFlags::BLOCK,
        RequestFlags::INFO,
        RequestFlags::OBJECT,
        RequestFlags::BLOCK | RequestFlags::INFO,
    ] {
        for form in [Form::Items, Form::Ranges, Form::Erasures] {
            let mut room = [0; 100];
            let mut writer = RequestWriter::new(&mut room, 8);
            let last = Position { object: 9, ..position };
            let written = match form {
                Form::Items => writer.item(flags, position),
                Form::Ranges => writer.range(flags, position, last),
                Form::Erasures | Form::Other(_) => writer.erasures(flags, position),
            };
            written.expect("it fits");
            all.push(writer.finish().bytes().to_vec());
        }
    }
    all
}

/// Returns the encoded messages.
fn messages() -> Vec<Vec<u8>> {
    let nodes = [NodeId(0x7f00_0001), NodeId(2)];
    let (sender, ackers, others) = (SENDER, NodeList::new(&nodes), Extensions::NONE);
    let mut all = Vec::new();
    let mut add = |body: Body<'_>| {
        let message = Message { sequence: 0x0102, source: NodeId(0x0a00_0001), body };
        all.push(message.to_vec().expect("a message"));
    };
    let server = NodeId(0x0a00_0002);
    let (instance, grtt_response) = (0x4321, TIME);
    for (fec, id, fti) in schemes() {
        let object = 7;
        for (flags, fti) in [(Flags::FILE | Flags::INFO, Some(fti)), (Flags::REPAIR, None)] {
            let payload = b"payload";
            add(Body::Info(Info { sender, flags, fec, object, fti, others, payload }));
            add(Body::Data(Data { sender, flags, fec, object, id, fti, others, payload }));
        }
        for ackers in [NodeList::NONE, ackers] {
            add(Body::Command(Command::Flush { sender, fec, object, id, others, ackers }));
        }
        let invalid = [8, 9, 10];
        for invalid in [ObjectList::NONE, ObjectList::new(&invalid)] {
            add(Body::Command(Command::Squelch { sender, fec, object, id, others, invalid }));
        }
        for bytes in requests(fec, id) {
            let requests = Requests::decode(&bytes, 8).expect("requests");
            for cc in [None, Some(CC)] {
                let nack = Nack { server, instance, grtt_response, cc, others, requests };
                add(Body::Nack(nack));
            }
        }
    }
    add(Body::Command(Command::Eot { sender, others }));
    let (reserved, sequence, send_time, nodes) = (0, 513, TIME, CcNodes::NONE);
    for rate in [None, Some(0x51f4)] {
        add(Body::Command(Command::Cc {
            sender,
            reserved,
            sequence,
            send_time,
            rate,
            others,
            nodes,
        }));
    }
    let requests = Requests::NONE;
    let flags = Command::REPAIR_ADV_LIMIT;
    let cc = Some(CC);
    add(Body::Command(Command::RepairAdv { sender, flags, cc, others, requests }));
    add(Body::Command(Command::AckReq { sender, kind: 17, id: 3, others, ackers }));
    add(Body::Command(Command::Application { sender, others, payload: b"hello" }));
    for kind in [Ack::CC, Ack::FLUSH, Ack::APPLICATION] {
        let payload = if kind == Ack::CC { &b""[..] } else { b"payload" };
        for cc in [None, Some(CC)] {
            let ack = Ack { server, instance, kind, id: 3, grtt_response, cc, others, payload };
            add(Body::Ack(ack));
        }
    }
    all
}

type Expected = Vec<(&'static str, f64)>;

fn expectations(bytes: &[u8]) -> Expected {
    let message = Message::decode_with(bytes, 8).expect("our own message");
    let mut fields = vec![
        ("norm.version", 1.0),
        ("norm.type", f64::from(bytes[0] & 0x0f)),
        ("norm.hlen", f64::from(bytes[1])),
        ("norm.sequence", f64::from(message.sequence)),
        ("norm.source_id", f64::from(message.source.0)),
    ];
    if let Some(sender) = message.body.sender() {
        fields.extend([
            ("norm.instance_id", f64::from(sender.instance)),
            ("norm.grtt", rtt(sender.grtt).as_secs_f64()),
            ("norm.backoff", f64::from(sender.backoff)),
            ("norm.gsize", f64::from(group_size(sender.group_size))),
        ]);
    }
    match message.body {
        Body::Info(info) => {
            content(&mut fields, info.flags, info.fec, info.object);
            object(&mut fields, info.fec, info.fti);
        }
        Body::Data(data) => {
            content(&mut fields, data.flags, data.fec, data.object);
            place(&mut fields, data.fec, data.id);
            object(&mut fields, data.fec, data.fti);
        }
        Body::Command(command) => {
            fields.push(("norm.flavor", f64::from(command.subtype())));
            command_fields(&mut fields, command);
        }
        Body::Nack(nack) => {
            fields.extend([
                ("norm.nack.server", f64::from(nack.server.0)),
                ("norm.instance_id", f64::from(nack.instance)),
                ("norm.nack.grtt_sec", f64::from(nack.grtt_response.sec)),
                ("norm.nack.grtt_usec", f64::from(nack.grtt_response.usec)),
            ]);
            feedback(&mut fields, nack.cc);
            for request in nack.requests.iter() {
                let position = request.positions().next().expect("a position");
                fields.extend([
                    ("norm.nack.form", f64::from(request.form.code())),
                    ("norm.nack.flags", f64::from(request.flags.0)),
                    ("norm.nack.length", (nack.requests.bytes().len() - 4) as f64),
                    ("norm.object_transport_id", f64::from(position.object)),
                    ("norm.fec_encoding_id", f64::from(position.fec.code())),
                ]);
                place(&mut fields, position.fec, position.id);
            }
        }
        Body::Ack(ack) => {
            fields.extend([
                ("norm.ack.source", f64::from(ack.server.0)),
                ("norm.instance_id", f64::from(ack.instance)),
                ("norm.ack.type", f64::from(ack.kind)),
                ("norm.ack.id", f64::from(ack.id)),
                ("norm.ack.grtt_sec", f64::from(ack.grtt_response.sec)),
                ("norm.ack.grtt_usec", f64::from(ack.grtt_response.usec)),
            ]);
            feedback(&mut fields, ack.cc);
        }
        Body::Report(_) => unreachable!("there is none among the messages"),
    }
    fields
}

fn command_fields(fields: &mut Expected, command: Command<'_>) {
    match command {
        Command::Flush { fec, object, id, .. } | Command::Squelch { fec, object, id, .. } => {
            fields.push(("norm.fec_encoding_id", f64::from(fec.code())));
            fields.push(("norm.object_transport_id", f64::from(object)));
            place(fields, fec, id);
        }
        Command::Cc { sequence, send_time, rate: sent, .. } => {
            fields.push(("norm.ccsequence", f64::from(sequence)));
            fields.push(("norm.cc_sts", f64::from(send_time.sec)));
            fields.push(("norm.cc_stus", f64::from(send_time.usec)));
            if let Some(sent) = sent {
                fields.push(("rmt-lct.hec.type", f64::from(EXT_RATE)));
                fields.push(("rmt-lct.send_rate", rate(sent)));
            }
        }
        Command::RepairAdv { flags, cc, .. } => {
            fields.push(("norm.flags", f64::from(flags)));
            feedback(fields, cc);
        }
        Command::AckReq { kind, id, .. } => {
            fields.push(("norm.ack.type", f64::from(kind)));
            fields.push(("norm.ack.id", f64::from(id)));
        }
        Command::Eot { .. } | Command::Application { .. } | Command::Other { .. } => {}
    }
}

fn content(fields: &mut Expected, flags: Flags, fec: Scheme, object: u16) {
    let set = |flag| f64::from(u8::from(flags.contains(flag)));
    fields.extend([
        ("norm.flags", f64::from(flags.0)),
        ("norm.flag.repair", set(Flags::REPAIR)),
        ("norm.flag.stream", set(Flags::STREAM)),
        ("norm.fec_encoding_id", f64::from(fec.code())),
        ("norm.object_transport_id", f64::from(object)),
    ]);
}

fn place(fields: &mut Expected, fec: Scheme, id: PayloadId) {
    if fec == Scheme::ReedSolomon8 {
        return;
    }
    fields.push(("rmt-fec.sbn", f64::from(id.block)));
    fields.push(("rmt-fec.esi", f64::from(id.symbol)));
    fields.extend(id.block_len.map(|len| ("rmt-fec.sbl", f64::from(len))));
}

fn object(fields: &mut Expected, fec: Scheme, fti: Option<Fti>) {
    let Some(fti) = fti.filter(|_| fec != Scheme::ReedSolomon8) else { return };
    fields.extend([
        ("rmt-lct.hec.type", f64::from(EXT_FTI)),
        ("rmt-lct.hec.len", 4.0),
        ("rmt-fec.fti.transfer_length", fti.object_size as f64),
        ("rmt-fec.fti.encoding_symbol_length", f64::from(fti.segment_size)),
        ("rmt-fec.fti.max_source_block_length", f64::from(fti.block_len)),
    ]);
    if fec == Scheme::SmallBlockSystematic {
        fields.push(("rmt-fec.fti.max_number_encoding_symbols", f64::from(fti.parity)));
    }
}

fn feedback(fields: &mut Expected, cc: Option<CcFeedback>) {
    let Some(cc) = cc else { return };
    fields.extend([
        ("rmt-lct.hec.type", f64::from(EXT_CC)),
        ("rmt-lct.hec.len", 3.0),
        ("rmt-lct.cc_sequence", f64::from(cc.sequence)),
        ("rmt-lct.cc_flags", f64::from(cc.flags.0)),
        ("rmt-lct.cc_rtt", f64::from(cc.rtt)),
        ("rmt-lct.cc_loss", loss(cc.loss)),
        // tshark shows this field unconverted.
        ("rmt-lct.cc_rate", f64::from(cc.rate)),
    ]);
}

/// Parses a number printed by tshark: also a fraction, or a node, which it shows as an address.
fn value(text: &str) -> Option<f64> {
    if let Ok(address) = text.parse::<std::net::Ipv4Addr>() {
        return Some(f64::from(u32::from(address)));
    }
    number(text).map(|number| number as f64).or_else(|| text.parse().ok())
}

#[test]
fn tshark_agrees() {
    let messages = messages();
    let datagrams = messages.iter().map(Vec::as_slice);
    let Some(lines) = tshark_lines(PORT, "norm", &FIELDS, datagrams) else { return };
    assert_eq!(lines.len(), messages.len(), "one line a packet");
    let mut wrong = Vec::new();
    for (bytes, line) in messages.iter().zip(&lines) {
        let message = Message::decode_with(bytes, 8).expect("our own message");
        let columns: Vec<&str> = line.split('|').collect();
        let (malformed, values) = columns.split_first().expect("a line has columns");
        let unread = matches!(
            message.body,
            Body::Command(Command::Squelch { invalid, .. }) if !invalid.is_empty()
        );
        if !malformed.is_empty() && !unread {
            wrong.push(format!("{message}: malformed"));
        }
        for (field, expected) in expectations(bytes) {
            let column = FIELDS.iter().position(|name| *name == field).expect("a requested field");
            let near = |found: f64| (found - expected).abs() <= expected.abs() * 1e-8;
            if !value(values[column]).is_some_and(near) {
                wrong.push(format!("{message}: {field} is {:?}, not {expected}", values[column]));
            }
        }
    }
    assert!(wrong.is_empty(), "tshark disagrees:\n{}", wrong.join("\n"));
}
