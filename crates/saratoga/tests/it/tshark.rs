//! Saratoga packets, as decoded by this project's dissector for Wireshark.
//!
//! Its code is independent of the codec, so each checks the other: all fields of valid packets,
//! and which packets are invalid. Both follow the same reading of the drafts, which nothing else
//! checks.

use std::collections::BTreeMap;
use std::path::Path;

use saratoga::packet::{
    Ability, Beacon, Content, Data, Entry, EntryKind, FileChecksum, Hole, Holes, Metadata, PORT,
    Packet, Request, RequestKind, Status, StatusCode, Width, v0,
};
use slowlight_saratoga as saratoga;

use testing::tshark::{number, pcap, run_tshark};

/// All fields of the dissector except the node of each hole.
const FIELDS: &[&str] = &[
    "_ws.lua.error",
    "_ws.malformed",
    "saratoga.malformed",
    "saratoga.version",
    "saratoga.type",
    "saratoga.flags",
    "saratoga.descriptor",
    "saratoga.content",
    "saratoga.sends",
    "saratoga.receives",
    "saratoga.flags.bundles",
    "saratoga.flags.streams",
    "saratoga.flags.udp_lite",
    "saratoga.flags.free_space",
    "saratoga.flags.over",
    "saratoga.flags.timestamp",
    "saratoga.flags.status_requested",
    "saratoga.flags.eod",
    "saratoga.flags.poll",
    "saratoga.flags.metadata_missing",
    "saratoga.flags.partial",
    "saratoga.flags.voluntary",
    "saratoga.request",
    "saratoga.session",
    "saratoga.free_space.width",
    "saratoga.free_space",
    "saratoga.eid",
    "saratoga.path",
    "saratoga.authentication",
    "saratoga.checksum",
    "saratoga.checksum.type",
    "saratoga.checksum.length",
    "saratoga.entry.properties",
    "saratoga.entry.kind",
    "saratoga.entry.width",
    "saratoga.entry.udp_lite",
    "saratoga.size",
    "saratoga.modified",
    "saratoga.created",
    "saratoga.timestamp",
    "saratoga.offset",
    "saratoga.data",
    "saratoga.data.length",
    "saratoga.status",
    "saratoga.progress",
    "saratoga.in_response_to",
    "saratoga.hole.start",
    "saratoga.hole.end",
    "saratoga.hole.count",
    "saratoga.ignored",
];

/// Random numbers that are the same in every run.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        // SplitMix64 (Steele, Lea and Flood 2014).
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    /// Returns a number below `end`.
    fn below(&mut self, end: usize) -> usize {
        (self.next() % end as u64) as usize
    }

    fn flag(&mut self) -> bool {
        self.below(2) == 1
    }

    fn pick<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len())]
    }

    /// Returns a number of any size up to `max`, which is one less than a power of two.
    fn up_to(&mut self, max: u64) -> u64 {
        (self.next() & max) >> self.below(max.count_ones() as usize)
    }

    fn u32(&mut self) -> u32 {
        self.next() as u32
    }

    fn bytes(&mut self, len: usize) -> Vec<u8> {
        (0..len).map(|_| self.next() as u8).collect()
    }

    /// Returns letters, which tshark shows unchanged.
    fn name(&mut self, len_max: usize) -> Vec<u8> {
        let len = self.below(len_max + 1);
        (0..len).map(|_| self.pick(b"abcdefghij/.-_ ")).collect()
    }
}

const WIDTHS: [Width; 4] = [Width::W16, Width::W32, Width::W64, Width::W128];
const ABILITIES: [Ability; 3] = [Ability::No, Ability::NotNow, Ability::Yes];

/// Returns the largest number that fits, with room for the data behind it.
fn max(width: Width) -> u64 {
    match width {
        Width::W16 => 0xffff,
        Width::W32 => 0xffff_ffff,
        Width::W64 | Width::W128 => u64::MAX >> 1,
    }
}

fn holes(random: &mut Random, width: Width) -> Vec<Hole> {
    let count = random.below(20);
    let pair = |random: &mut Random| [random.up_to(max(width)), random.up_to(max(width))];
    (0..count)
        .map(|_| pair(random))
        .map(|[a, b]| Hole { start: a.min(b), last: a.max(b) })
        .collect()
}

/// Returns a packet of version 1, of kind 0 to 4.
fn packet_v1(random: &mut Random, kind: usize) -> Vec<u8> {
    let descriptor = random.pick(&WIDTHS);
    let session = random.u32();
    let timestamp = random.flag().then(|| random.next().to_be_bytes());
    let timestamp = timestamp.map(|half| std::array::from_fn(|i| half[i % 8] ^ i as u8));
    let content =
        random.pick(&[Content::File, Content::Directory, Content::Bundle, Content::Stream]);
    let (text, bytes) = (random.name(60), random.bytes(100));
    let some = &bytes[random.below(101)..];
    let holes = holes(random, descriptor);
    let packet = match kind {
        0 => Packet::Beacon(Beacon {
            descriptor,
            bundles: random.flag(),
            streams: random.flag(),
            sends: random.pick(&ABILITIES),
            receives: random.pick(&ABILITIES),
            udp_lite: random.flag(),
            free_space: random.flag().then(|| (descriptor, random.up_to(max(descriptor)))),
            eid: &text,
        }),
        1 => Packet::Request(Request {
            kind: request_kind(random),
            descriptor,
            bundles: random.flag(),
            streams: random.flag(),
            udp_lite: random.flag(),
            session,
            path: &text,
            authentication: some,
        }),
        2 => return metadata_v1(random, descriptor, session, content),
        3 => Packet::Data(Data {
            descriptor,
            content,
            timestamp,
            wants_status: random.flag(),
            is_end: random.flag(),
            session,
            offset: random.up_to(max(descriptor)),
            data: some,
        }),
        _ => Packet::Status(Status {
            descriptor,
            timestamp,
            lacks_metadata: random.flag(),
            is_partial: random.flag(),
            is_voluntary: random.flag(),
            code: StatusCode::from_code(random.pick(&[0, 0, 4, 0x12, 0x13, 0xff])),
            session,
            progress: random.up_to(max(descriptor)),
            in_response_to: random.up_to(max(descriptor)),
            holes: Holes::new(&holes),
        }),
    };
    packet.to_vec().expect("a good packet")
}

fn request_kind(random: &mut Random) -> RequestKind {
    random.pick(&[
        RequestKind::NoOp,
        RequestKind::Get,
        RequestKind::Put,
        RequestKind::Take,
        RequestKind::Give,
        RequestKind::Delete,
        RequestKind::GetDir,
        RequestKind::Other(7),
        RequestKind::Other(0xff),
    ])
}

fn metadata_v1(random: &mut Random, descriptor: Width, session: u32, content: Content) -> Vec<u8> {
    let bytes = random.bytes(60);
    let width = random.pick(&WIDTHS);
    let kinds =
        [EntryKind::File, EntryKind::Directory, EntryKind::Special, EntryKind::SpecialDirectory];
    let checksum = match random.below(5) {
        0 => FileChecksum::None,
        1 => FileChecksum::Crc32(random.u32()),
        2 => FileChecksum::Md5(bytes[..16].try_into().expect("16 bytes")),
        3 => FileChecksum::Sha1(bytes[..20].try_into().expect("20 bytes")),
        _ => FileChecksum::Other { kind: 9, bytes: &bytes[4 * random.below(16)..] },
    };
    let packet = Packet::Metadata(Metadata {
        descriptor,
        content,
        is_over: random.flag(),
        udp_lite: random.flag(),
        session,
        checksum,
        entry: Entry {
            kind: random.pick(&kinds),
            udp_lite: random.flag(),
            width,
            size: random.up_to(max(width)),
            modified: random.u32(),
            created: random.u32(),
            path: &random.name(60),
        },
    });
    let mut bytes = packet.to_vec().expect("a good packet");
    bytes.resize(bytes.len() + random.pick(&[0, 0, 1, 9]), 0);
    bytes
}

/// Returns a packet of version 0, of kind 0 to 6.
fn packet_v0(random: &mut Random, kind: usize) -> Vec<u8> {
    let session = random.u32();
    let (text, bytes) = (random.name(40), random.bytes(100));
    let holes = holes(random, Width::W32);
    let offset = 1 + random.up_to(0x7fff_ffff) as u32;
    let packet = match kind {
        0 => v0::Packet::Beacon(v0::Beacon { eid: &text }),
        1 => v0::Packet::Request(v0::Request { session, path: &text }),
        2 => v0::Packet::Metadata(v0::Metadata { session, length: random.u32(), path: &text }),
        3 => v0::Packet::Data(v0::Data {
            wants_status: random.flag(),
            session,
            offset,
            data: &bytes[random.below(101)..],
        }),
        4 => v0::Packet::Accept(v0::Accept { session }),
        5 => v0::Packet::Poll(v0::Poll { session, offset }),
        _ => v0::Packet::Status(v0::Status {
            lacks_metadata: random.flag(),
            is_partial: random.flag(),
            session,
            code: StatusCode::from_code(random.pick(&[0, 0, 4, 9, 0xff])),
            holes: Holes::new(&holes),
        }),
    };
    packet.to_vec().expect("a good packet")
}

fn packets(port: u16, random: &mut Random, rounds: usize) -> Vec<Vec<u8>> {
    let of_round = |_| match port {
        PORT => (0..5).map(|kind| packet_v1(random, kind)).collect::<Vec<_>>(),
        _ => (0..7).map(|kind| packet_v0(random, kind)).collect(),
    };
    (0..rounds).flat_map(of_round).collect()
}

/// Exactly the fields that the dissector must show of a packet.
type Shown = BTreeMap<&'static str, String>;

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("letters")
}

fn show(shown: &mut Shown, fields: &[(&'static str, u64)]) {
    shown.extend(fields.iter().map(|(name, value)| (*name, value.to_string())));
}

fn show_holes(shown: &mut Shown, holes: Holes<'_>) {
    let all = |part: fn(Hole) -> u64| {
        let texts: Vec<_> = holes.iter().map(|hole| part(hole).to_string()).collect();
        texts.join(",")
    };
    shown.insert("saratoga.hole.start", all(|hole| hole.start));
    shown.insert("saratoga.hole.end", all(|hole| hole.last));
    shown.insert("saratoga.hole.count", holes.len().to_string());
}

fn shown_v1(bytes: &[u8]) -> Shown {
    let packet = Packet::decode(bytes).expect("our own packet");
    let mut shown = Shown::new();
    let flags = u64::from(bytes[1]) << 16 | u64::from(bytes[2]) << 8 | u64::from(bytes[3]);
    let code = match &packet {
        Packet::Beacon(beacon) => {
            show_beacon(&mut shown, beacon);
            0
        }
        Packet::Request(request) => {
            show_request(&mut shown, request);
            1
        }
        Packet::Metadata(metadata) => {
            show_metadata(&mut shown, metadata);
            shown.insert("saratoga.ignored", hex(&bytes[packet.encoded_len()..]));
            let at = packet.encoded_len()
                - (2 + metadata.entry.width.bytes() + 8 + metadata.entry.path.len() + 1);
            let properties = u16::from_be_bytes([bytes[at], bytes[at + 1]]);
            shown.insert("saratoga.entry.properties", properties.to_string());
            2
        }
        Packet::Data(data) => {
            show_data(&mut shown, data);
            3
        }
        Packet::Status(status) => {
            show_status(&mut shown, status);
            4
        }
    };
    show(
        &mut shown,
        &[("saratoga.version", 1), ("saratoga.type", code), ("saratoga.flags", flags)],
    );
    shown
}

fn show_beacon(shown: &mut Shown, beacon: &Beacon<'_>) {
    let code = |ability| match ability {
        Ability::No => 0,
        Ability::NotNow => 2,
        Ability::Yes => 3,
    };
    let fields = [
        ("saratoga.descriptor", beacon.descriptor as u64),
        ("saratoga.flags.bundles", u64::from(beacon.bundles)),
        ("saratoga.flags.streams", u64::from(beacon.streams)),
        ("saratoga.flags.udp_lite", u64::from(beacon.udp_lite)),
        ("saratoga.flags.free_space", u64::from(beacon.free_space.is_some())),
        ("saratoga.sends", code(beacon.sends)),
        ("saratoga.receives", code(beacon.receives)),
    ];
    show(shown, &fields);
    if let Some((width, space)) = beacon.free_space {
        let fields = [("saratoga.free_space.width", width as u64), ("saratoga.free_space", space)];
        show(shown, &fields);
    }
    shown.insert("saratoga.eid", text(beacon.eid));
}

fn show_request(shown: &mut Shown, request: &Request<'_>) {
    let kind = match request.kind {
        RequestKind::NoOp => 0,
        RequestKind::Get => 1,
        RequestKind::Put => 2,
        RequestKind::Take => 3,
        RequestKind::Give => 4,
        RequestKind::Delete => 5,
        RequestKind::GetDir => 6,
        RequestKind::Other(code) => code,
    };
    let fields = [
        ("saratoga.descriptor", request.descriptor as u64),
        ("saratoga.flags.bundles", u64::from(request.bundles)),
        ("saratoga.flags.streams", u64::from(request.streams)),
        ("saratoga.flags.udp_lite", u64::from(request.udp_lite)),
        ("saratoga.request", u64::from(kind)),
        ("saratoga.session", u64::from(request.session)),
    ];
    show(shown, &fields);
    shown.insert("saratoga.path", text(request.path));
    shown.insert("saratoga.authentication", hex(request.authentication));
}

fn show_metadata(shown: &mut Shown, metadata: &Metadata<'_>) {
    let entry = &metadata.entry;
    let (kind, checksum) = match metadata.checksum {
        FileChecksum::None => (0, Vec::new()),
        FileChecksum::Crc32(crc) => (1, crc.to_be_bytes().to_vec()),
        FileChecksum::Md5(bytes) => (2, bytes.to_vec()),
        FileChecksum::Sha1(bytes) => (3, bytes.to_vec()),
        FileChecksum::Other { kind, bytes } => (kind, bytes.to_vec()),
    };
    let entry_kind = match entry.kind {
        EntryKind::File => 0,
        EntryKind::Directory => 1,
        EntryKind::Special => 2,
        EntryKind::SpecialDirectory => 3,
    };
    let fields = [
        ("saratoga.descriptor", metadata.descriptor as u64),
        ("saratoga.content", metadata.content as u64),
        ("saratoga.flags.over", u64::from(metadata.is_over)),
        ("saratoga.flags.udp_lite", u64::from(metadata.udp_lite)),
        ("saratoga.session", u64::from(metadata.session)),
        ("saratoga.checksum.type", u64::from(kind)),
        ("saratoga.checksum.length", checksum.len() as u64 / 4),
        ("saratoga.entry.kind", entry_kind),
        ("saratoga.entry.udp_lite", u64::from(entry.udp_lite)),
        ("saratoga.entry.width", entry.width as u64),
        ("saratoga.size", entry.size),
        ("saratoga.modified", u64::from(entry.modified)),
        ("saratoga.created", u64::from(entry.created)),
    ];
    show(shown, &fields);
    shown.insert("saratoga.checksum", hex(&checksum));
    shown.insert("saratoga.path", text(entry.path));
}

fn show_data(shown: &mut Shown, data: &Data<'_>) {
    let fields = [
        ("saratoga.descriptor", data.descriptor as u64),
        ("saratoga.content", data.content as u64),
        ("saratoga.flags.timestamp", u64::from(data.timestamp.is_some())),
        ("saratoga.flags.status_requested", u64::from(data.wants_status)),
        ("saratoga.flags.eod", u64::from(data.is_end)),
        ("saratoga.session", u64::from(data.session)),
        ("saratoga.offset", data.offset),
        ("saratoga.data.length", data.data.len() as u64),
    ];
    show(shown, &fields);
    shown.insert("saratoga.timestamp", hex(data.timestamp.as_ref().map_or(&[], |bytes| bytes)));
    shown.insert("saratoga.data", hex(data.data));
}

fn show_status(shown: &mut Shown, status: &Status<'_>) {
    let fields = [
        ("saratoga.descriptor", status.descriptor as u64),
        ("saratoga.flags.timestamp", u64::from(status.timestamp.is_some())),
        ("saratoga.flags.metadata_missing", u64::from(status.lacks_metadata)),
        ("saratoga.flags.partial", u64::from(status.is_partial)),
        ("saratoga.flags.voluntary", u64::from(status.is_voluntary)),
        ("saratoga.status", u64::from(status.code.code())),
        ("saratoga.session", u64::from(status.session)),
        ("saratoga.progress", status.progress),
        ("saratoga.in_response_to", status.in_response_to),
    ];
    show(shown, &fields);
    shown.insert("saratoga.timestamp", hex(status.timestamp.as_ref().map_or(&[], |bytes| bytes)));
    show_holes(shown, status.holes);
}

fn shown_v0(bytes: &[u8]) -> Shown {
    let mut shown = Shown::new();
    let packet = v0::Packet::decode(bytes).expect("our own packet");
    let session = |session: u32| ("saratoga.session", u64::from(session));
    let named = |shown: &mut Shown, path: &[u8], at: usize| {
        shown.insert("saratoga.path", text(path));
        shown.insert("saratoga.ignored", hex(&bytes[at + path.len() + 1..]));
    };
    let sent = |shown: &mut Shown, wants_status: bool, is_poll: bool, offset: u32| {
        let fields = [
            ("saratoga.flags.status_requested", u64::from(wants_status)),
            ("saratoga.flags.poll", u64::from(is_poll)),
            ("saratoga.offset", u64::from(offset)),
        ];
        show(shown, &fields);
    };
    match packet {
        v0::Packet::Beacon(beacon) => drop(shown.insert("saratoga.eid", text(beacon.eid))),
        v0::Packet::Request(request) => {
            show(&mut shown, &[session(request.session)]);
            named(&mut shown, request.path, 6);
        }
        v0::Packet::Metadata(metadata) => {
            let size = ("saratoga.size", u64::from(metadata.length));
            show(&mut shown, &[session(metadata.session), size]);
            named(&mut shown, metadata.path, 10);
        }
        v0::Packet::Accept(accept) => {
            show(&mut shown, &[session(accept.session)]);
            sent(&mut shown, false, false, 0);
        }
        v0::Packet::Data(data) => {
            let len = ("saratoga.data.length", data.data.len() as u64);
            show(&mut shown, &[session(data.session), len]);
            sent(&mut shown, data.wants_status, false, data.offset);
            shown.insert("saratoga.data", hex(data.data));
        }
        v0::Packet::Poll(poll) => {
            show(&mut shown, &[session(poll.session)]);
            sent(&mut shown, true, true, poll.offset);
            shown.insert("saratoga.ignored", hex(&[0; 8]));
        }
        v0::Packet::Status(status) => {
            let fields = [
                session(status.session),
                ("saratoga.flags.metadata_missing", u64::from(status.lacks_metadata)),
                ("saratoga.flags.partial", u64::from(status.is_partial)),
                ("saratoga.status", u64::from(status.code.code())),
            ];
            show(&mut shown, &fields);
            show_holes(&mut shown, status.holes);
        }
    }
    let (code, flags) = (u64::from(bytes[0]), u64::from(bytes[1]));
    show(
        &mut shown,
        &[("saratoga.version", 0), ("saratoga.type", code), ("saratoga.flags", flags)],
    );
    shown
}

/// Normalises a field of any tshark version: numbers in decimal.
fn canonical(text: &str) -> String {
    let part = |part: &str| match part {
        "True" => "1".to_owned(),
        "False" => "0".to_owned(),
        _ => number(part).map_or_else(|| part.to_owned(), |number| number.to_string()),
    };
    text.split(',').map(part).collect::<Vec<_>>().join(",")
}

/// Returns the dissector's output for these packets, truncated to the given captured length, one
/// line each. No packet crashes it.
fn dissector_lines(port: u16, fields: &[&str], packets: &[(&[u8], usize)]) -> Option<Vec<String>> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../dissectors/saratoga.lua");
    let script = format!("lua_script:{}", script.display());
    let options = ["-X", &script, "-E", "occurrence=a"];
    let shown = run_tshark(&options, fields, pcap(port, packets.iter().copied()))?;
    let stderr = shown.stderr.to_lowercase();
    assert!(!stderr.contains("lua"), "{}", shown.stderr);
    assert_eq!(shown.lines.len(), packets.len(), "one line a packet");
    Some(shown.lines)
}

fn whole(packets: &[Vec<u8>]) -> Vec<(&[u8], usize)> {
    packets.iter().map(|bytes| (&bytes[..], bytes.len())).collect()
}

fn compare(port: u16, shown: fn(&[u8]) -> Shown) {
    let packets = packets(port, &mut Random(1), 300);
    let Some(lines) = dissector_lines(port, FIELDS, &whole(&packets)) else { return };
    let mut wrong = Vec::new();
    for (bytes, line) in packets.iter().zip(&lines) {
        let expected = shown(bytes);
        assert!(expected.keys().all(|name| FIELDS.contains(name)), "{expected:?}");
        let columns: Vec<&str> = line.split('|').collect();
        assert_eq!(columns.len(), FIELDS.len(), "{line}");
        for (name, found) in FIELDS.iter().zip(columns) {
            let expected = expected.get(name).map_or("", |text| text);
            if canonical(found) != canonical(expected) {
                wrong.push(format!("{}: {name} is {found:?}, not {expected:?}", hex(bytes)));
            }
        }
    }
    assert!(wrong.is_empty(), "the dissector disagrees:\n{}", wrong.join("\n"));
}

#[test]
fn every_field_of_version_1_is_shown() {
    compare(PORT, shown_v1);
}

#[test]
fn every_field_of_version_0_is_shown() {
    compare(v0::PORT, shown_v0);
}

/// Returns packets truncated at every position, with bytes changed, and arbitrary bytes.
fn damaged(port: u16, random: &mut Random) -> Vec<Vec<u8>> {
    let mut all = vec![Vec::new()];
    // Data that ends at, and beyond, the longest file.
    for last in 0xf0..=0xff {
        let offset = |bytes: usize| [vec![0xff; bytes - 1], vec![last], vec![0x55; 9]].concat();
        all.push([vec![3, 0, 1, 2, 3, 4], offset(4)].concat());
        all.push([vec![0x23, 0x80, 0, 0, 1, 2, 3, 4], offset(8)].concat());
    }
    for bytes in packets(port, random, 12) {
        let step = 1 + bytes.len() / 100;
        all.extend((1..bytes.len()).step_by(step).map(|len| bytes[..len].to_vec()));
    }
    for bytes in packets(port, random, 300) {
        let mut changed = bytes;
        for _ in 0..=random.below(4) {
            // Most errors are in the first bytes.
            let at = random.pick(&[12, changed.len()]).min(changed.len());
            let any = random.next() as u8;
            changed[random.below(at)] = random.pick(&[0, 1, 0xff, any]);
        }
        all.push(changed);
    }
    for _ in 0..2000 {
        let len = random.below(80);
        let first = random.pick(&[0, 1, 2, 3, 4, 5, 0x20, 0x21, 0x22, 0x23, 0x24, 0x25, 0x41]);
        all.push([vec![first], random.bytes(len)].concat());
    }
    all
}

/// Whether the codec refuses a packet; the first byte selects its version.
fn is_refused(bytes: &[u8]) -> bool {
    match bytes {
        [0x20..0x40, ..] => Packet::decode(bytes).is_err(),
        _ => v0::Packet::decode(bytes).is_err(),
    }
}

#[test]
fn dissector_flags_packets_the_codec_refuses() {
    for port in [PORT, v0::PORT] {
        let packets = damaged(port, &mut Random(2));
        assert!(packets.len() > 4000, "only {} packets", packets.len());
        let fields = ["_ws.lua.error", "saratoga.malformed"];
        let Some(lines) = dissector_lines(port, &fields, &whole(&packets)) else { return };
        let mut refused = 0;
        for (bytes, line) in packets.iter().zip(&lines) {
            // tshark does not pass empty packets to the dissector.
            let is_refused = !bytes.is_empty() && is_refused(bytes);
            let expected = if is_refused { "|1" } else { "|" };
            assert_eq!(line, expected, "{}", hex(bytes));
            refused += usize::from(is_refused);
        }
        assert!(refused > 1000 && refused < packets.len() - 1000, "{refused} are refused");
    }
}

#[test]
fn truncated_captures_are_not_malformed() {
    let fields = [
        "_ws.lua.error",
        "_ws.malformed",
        "saratoga.malformed",
        "saratoga.cut",
        "saratoga.data.length",
    ];
    for (port, shown) in [(PORT, shown_v1 as fn(&[u8]) -> Shown), (v0::PORT, shown_v0)] {
        let packets = packets(port, &mut Random(3), 10);
        // tshark does not pass empty packets to the dissector.
        let cuts: Vec<_> = packets
            .iter()
            .flat_map(|bytes| (1..bytes.len()).map(|captured| (&bytes[..], captured)))
            .collect();
        let Some(lines) = dissector_lines(port, &fields, &cuts) else { return };
        for ((bytes, captured), line) in cuts.into_iter().zip(&lines) {
            let mut expected = "|||1|".to_owned();
            // The longest header of DATA has 40 bytes.
            let data_len = shown(bytes).remove("saratoga.data.length").unwrap_or_default();
            if captured >= 40 || line.len() > expected.len() {
                expected += &data_len;
            }
            assert_eq!(*line, expected, "{captured} bytes of {}", hex(bytes));
        }
    }
}
