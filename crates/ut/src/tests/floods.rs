//! Strangers over LTP: floods of blocks beside a file, and replies to engines that never reply.

use std::net::SocketAddr;
use std::time::Duration;

use cfdp::pdu::{
    self as pdu, ChecksumType, ConditionCode, EntityId, Eof, FileData, Header, Lv, Metadata, Pdu,
    Tlvs, TransmissionMode,
};
use engine::{Input, PathEvent, PathId, PathInfo, Receive, Time};
use ltp::segment::{Body, Checkpoint, Data, DataKind, Segment, SessionId};

use super::super::{CFDP_SERVICE, OverLtp};
use super::world::{CLASS_1, CLASS_2, Case, World, end, is_good, put};

/// Block of one segment.
fn block(engine: u64, number: u64, content: &[u8]) -> Vec<u8> {
    let checkpoint = Some(Checkpoint { serial: 1 + number, report: 0 });
    let kind = DataKind::EndOfRedBlock;
    let data = Data { kind, service: CFDP_SERVICE, offset: 0, checkpoint, data: content };
    let session = SessionId { originator: engine, number };
    Segment::new(session, Body::Data(data)).to_vec().expect("a segment")
}

fn pdu(entity: u64, sequence: u64, mode: TransmissionMode, body: pdu::Body<'_>) -> Vec<u8> {
    let header = Header {
        version: pdu::Version::V1,
        direction: pdu::Direction::TowardReceiver,
        mode,
        crc: false,
        large_file: false,
        segmentation_control: false,
        entity_width: pdu::Width::TWO,
        sequence_width: pdu::Width::FOUR,
        source: EntityId(entity),
        sequence,
        destination: EntityId(2),
    };
    Pdu { header, body }.to_vec().expect("a sound PDU")
}

fn metadata() -> pdu::Body<'static> {
    pdu::Body::Metadata(Metadata {
        closure_requested: false,
        checksum_type: ChecksumType::Null,
        file_size: 1,
        source_name: Lv(b"a"),
        destination_name: Lv(b"b"),
        tlvs: Tlvs::NONE,
    })
}

fn data() -> pdu::Body<'static> {
    pdu::Body::FileData(FileData { segment_metadata: None, offset: 0, data: b"x" })
}

fn eof() -> pdu::Body<'static> {
    let condition = ConditionCode::NoError;
    pdu::Body::Eof(Eof { condition, checksum: 0, file_size: 1, fault_location: None })
}

/// Blocks that strangers send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Flood {
    /// Blocks that are no PDUs, of one engine or of many.
    Junk { engines: u64 },
    /// Beginnings of files in this class.
    Files { engines: u64, mode: TransmissionMode },
}

fn send(world: &mut World<OverLtp>, n: u64, flood: Flood) {
    let path = PathId(1000 + (n % 50) as u32);
    let number = 10_000 + 2 * n;
    let blocks = match flood {
        Flood::Junk { engines } => vec![block(100 + n % engines, number, b"xxxxxxxx")],
        Flood::Files { engines, mode } => {
            let engine = 100 + n % engines;
            let pdu = |body| pdu(engine, n, mode, body);
            vec![block(engine, number, &pdu(metadata())), block(engine, number + 1, &pdu(data()))]
        }
    };
    for block in blocks {
        world.input(1, Input::Receive(Receive::datagram(path, &block)));
    }
}

#[test]
fn files_arrive_after_and_during_a_flood() {
    let files = |engines, mode| Flood::Files { engines, mode };
    for flood in [
        Flood::Junk { engines: 1 },
        Flood::Junk { engines: 2000 },
        files(1, CLASS_1),
        files(300, CLASS_1),
        files(300, CLASS_2),
    ] {
        for (mode, per_ms) in [(CLASS_1, 5), (CLASS_2, 0)] {
            let mut world = Case { mode, ..Case::default() }.world();
            world.logging = false;
            world.lose(|side, _, datagram| {
                let segment = Segment::decode(datagram).expect("a segment");
                side == 1 && segment.session.originator >= 100
            });
            for host in 0..50 {
                let peer = SocketAddr::from(([10, 9, 0, host], 1113));
                let here = SocketAddr::from(([10, 0, 0, 1], 1113));
                let info = PathInfo { ends: Some((here, peer)), ..PathInfo::datagram(1472) };
                let path = PathId(1000 + u32::from(host));
                world.input(1, Input::Path(path, PathEvent::Up(info)));
            }
            (0..1100).for_each(|n| send(&mut world, n, flood));
            put(&mut world, 200_000);
            let (began, mut n) = (world.now, 1100);
            while end(&world, 1).is_none() && n < 20_000 {
                for n in n..n + per_ms {
                    send(&mut world, n, flood);
                }
                n += 5;
                world.run_until(world.now + Duration::from_millis(1));
            }
            let case = format!("{flood:?} {mode:?} {per_ms}");
            assert!(is_good(end(&world, 1).expect("it ended")), "{case}");
            let took = world.now.since(began);
            assert!(took < Duration::from_secs(2), "{case}: {took:?}");
            assert!(world.hosts[1].engine.memory() < 16_000_000);
        }
    }
}

#[test]
fn engines_that_never_reply_get_three_times_what_they_sent() {
    let file = |mode| [metadata(), data(), eof()].map(|body| pdu(1, 7, mode, body)).to_vec();
    for (what, pdus) in [
        ("junk", vec![b"xxxxxxxx".to_vec()]),
        ("EOF of an unknown transaction", vec![pdu(1, 7, CLASS_2, eof())]),
        ("Metadata", vec![pdu(1, 7, CLASS_2, metadata())]),
        ("data", vec![pdu(1, 7, CLASS_2, data())]),
        ("file of class 1", file(CLASS_1)),
        ("file of class 2", file(CLASS_2)),
    ] {
        let mut world = Case { mode: CLASS_2, ..Case::default() }.world();
        world.lose(|_, _, _| true);
        let mut arrived = 0;
        for (content, number) in pdus.iter().zip(4711..) {
            let block = block(1, number, content);
            arrived += block.len();
            world.hear(1, &block);
        }
        world.run_until(Time::from_secs(3600));
        let sent: usize = world.log.iter().map(|sent| sent.bytes.len()).sum();
        println!("{what}: {arrived} B in, {sent} B out");
        assert!(sent <= 3 * arrived, "{what}: {arrived} B in, {sent} B out");
    }
}
