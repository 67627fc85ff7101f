//! Peers that break the protocol, and floods.

use std::time::Duration;

use engine::{Input, PathInfo, Receive, Rng, Time};

use super::world::{PATH, World, config, content, name, put_request};
use crate::pdu::{
    Body, ChecksumType, ConditionCode, DeliveryCode, Direction, EntityId, Eof, FileData,
    FileStatus, FilestoreAction, Finished, Header, Lv, Metadata, Nak, Pdu, SegmentRequest,
    SegmentRequests, Tlv, Tlvs, TransactionId, TransmissionMode, Version, Width,
};
use crate::{Config, FilestoreRequest, Indication, Limit, Limits, NakMode, PeerError, PutRequest};

pub(super) fn header(sequence: u64) -> Header {
    Header {
        version: Version::V1,
        direction: Direction::TowardReceiver,
        mode: TransmissionMode::Acknowledged,
        crc: false,
        large_file: true,
        segmentation_control: false,
        entity_width: Width::ONE,
        sequence_width: Width::FOUR,
        source: EntityId(1),
        sequence,
        destination: EntityId(2),
    }
}

/// Header of PDUs from the receiver of a transaction.
pub(super) fn toward_sender(id: TransactionId) -> Header {
    Header {
        direction: Direction::TowardSender,
        large_file: false,
        sequence_width: Width::TWO,
        sequence: id.sequence,
        ..header(0)
    }
}

pub(super) fn say(world: &mut World, to: usize, header: Header, body: Body<'_>) {
    let pdu = Pdu { header, body }.to_vec().expect("a sound PDU");
    world.input(to, Input::Receive(Receive::datagram(PATH, &pdu)));
}

pub(super) fn metadata(size: u64) -> Body<'static> {
    Body::Metadata(Metadata {
        closure_requested: false,
        checksum_type: ChecksumType::Crc32c,
        file_size: size,
        source_name: Lv(b"source"),
        destination_name: Lv(b"copy"),
        tlvs: Tlvs::NONE,
    })
}

pub(super) fn data(offset: u64, data: &[u8]) -> Body<'_> {
    Body::FileData(FileData { segment_metadata: None, offset, data })
}

pub(super) fn eof(file: &[u8]) -> Body<'static> {
    Body::Eof(Eof {
        condition: ConditionCode::NoError,
        checksum: ChecksumType::Crc32c.of(file),
        file_size: file.len() as u64,
        fault_location: None,
    })
}

trait Of {
    fn of(self, file: &[u8]) -> u32;
}

impl Of for ChecksumType {
    fn of(self, file: &[u8]) -> u32 {
        wire::checksum::Checksum::compute(self, file).expect("a known type")
    }
}

fn condition(world: &World) -> Option<ConditionCode> {
    world.finished(1).map(|finished| finished.condition)
}

#[test]
fn offsets_out_of_range_are_faults_or_ignored() {
    let mut world = World::new(&config(|_| {}));
    say(&mut world, 1, header(1), metadata(100));
    say(&mut world, 1, header(1), data(u64::MAX - 2, b"abcdef"));
    assert_eq!(condition(&world), Some(ConditionCode::FileSizeError));
    say(&mut world, 1, header(2), metadata(100));
    say(&mut world, 1, header(2), data(1 << 50, b"abcdef"));
    assert_eq!(world.hosts[1].engine.stats().data_dropped, 1);
    say(&mut world, 1, header(3), data(1 << 50, b"abcdef"));
    assert_eq!(world.hosts[1].engine.stats().data_dropped, 2);
    assert_eq!(world.hosts[1].store.used(), 0);
}

#[test]
fn bytes_behind_a_pdu_are_counted_and_the_pdu_is_accepted() {
    let next = Pdu { header: header(7), body: metadata(1) }.to_vec().unwrap();
    for (tail, crc) in [(&[0][..], false), (&[0; 9], true), (b"any bytes", false), (&next, true)] {
        let mut world = World::new(&config(|_| {}));
        for body in [metadata(10), data(0, b"0123456789"), eof(b"0123456789")] {
            let pdu = Pdu { header: Header { crc, ..header(1) }, body }.to_vec().unwrap();
            let padded = [&pdu[..], tail].concat();
            world.input(1, Input::Receive(Receive::datagram(PATH, &padded)));
        }
        assert_eq!(condition(&world), Some(ConditionCode::NoError), "{tail:?}");
        assert_eq!(world.hosts[1].store.get(&name("copy")), Some(&b"0123456789"[..]));
        let stats = world.hosts[1].engine.stats();
        assert_eq!((stats.surplus, stats.decode_errors, stats.received.total()), (3, 0, 3));
        let surplus = world.hosts[1].indications.iter().filter_map(|indication| {
            let Indication::PeerError { error: PeerError::Surplus { name, count }, .. } =
                indication
            else {
                return None;
            };
            Some((*name, *count))
        });
        assert_eq!(surplus.collect::<Vec<_>>(), [("file data", tail.len())], "once a minute");
    }
}

#[test]
fn offsets_that_no_nak_can_encode_are_ignored() {
    let mut world = World::new(&config(|remote| {
        remote.naks.mode = NakMode::Immediate;
        remote.keep_alive = Some(Duration::from_millis(10));
    }));
    let small = Header { large_file: false, ..header(1) };
    say(&mut world, 1, small, metadata(0));
    say(&mut world, 1, small, data(u64::from(u32::MAX) - 3, b"abcdef"));
    assert_eq!(world.hosts[1].engine.stats().data_dropped, 1);
    say(&mut world, 1, small, data(u64::from(u32::MAX) - 6, b"abcdef"));
    world.run_until(Time::from_nanos(100_000_000));
    let lines = world.transcript();
    assert!(lines.iter().any(|line| line.starts_with("< NAK 0-4294967289")), "{lines:?}");
    assert!(lines.iter().any(|line| line.starts_with("< Keep Alive 4294967295")), "{lines:?}");
}

#[test]
fn senders_must_keep_using_crcs() {
    let mut world = World::new(&config(|_| {}));
    let with_crc = Header { crc: true, ..header(1) };
    say(&mut world, 1, with_crc, metadata(10));
    say(&mut world, 1, header(1), data(0, b"wrong"));
    say(&mut world, 1, with_crc, data(0, b"0123456789"));
    say(&mut world, 1, with_crc, eof(b"0123456789"));
    assert_eq!(condition(&world), Some(ConditionCode::NoError));
    assert_eq!(world.hosts[1].engine.stats().decode_errors, 1);
}

#[test]
fn data_beyond_the_announced_end_is_a_fault() {
    let mut world = World::new(&config(|_| {}));
    say(&mut world, 1, header(1), metadata(0));
    say(&mut world, 1, header(1), data(10, b"abcdef"));
    say(&mut world, 1, header(1), eof(b"0123"));
    assert_eq!(condition(&world), Some(ConditionCode::FileSizeError));
    say(&mut world, 1, header(2), metadata(0));
    say(&mut world, 1, header(2), eof(b"0123"));
    say(&mut world, 1, header(2), data(0, b"01234"));
    assert_eq!(condition(&world), Some(ConditionCode::FileSizeError));
}

#[test]
fn first_received_bytes_win_over_overlaps() {
    let mut world = World::new(&config(|_| {}));
    let file = b"0123456789";
    say(&mut world, 1, header(1), metadata(10));
    say(&mut world, 1, header(1), data(2, b"23456"));
    // Overlaps existing data on both sides, with other bytes there.
    say(&mut world, 1, header(1), data(0, b"01xxxxx789"));
    say(&mut world, 1, header(1), metadata(11));
    say(&mut world, 1, header(1), eof(file));
    say(&mut world, 1, header(1), eof(b"something else"));
    assert_eq!(condition(&world), Some(ConditionCode::NoError));
    assert_eq!(world.hosts[1].store.get(&name("copy")), Some(&file[..]));
    let errors: Vec<_> = world.hosts[1]
        .indications
        .iter()
        .filter_map(|indication| match indication {
            Indication::PeerError { error, .. } => Some(*error),
            _ => None,
        })
        .collect();
    assert_eq!(errors, [PeerError::ConflictingMetadata]);
}

#[test]
fn a_second_end_is_an_error_of_the_peer() {
    let mut world = World::new(&config(|_| {}));
    say(&mut world, 1, header(1), metadata(10));
    say(&mut world, 1, header(1), eof(b"0123456789"));
    say(&mut world, 1, header(1), eof(b"012345678"));
    let sent = world.hosts[1].indications.iter();
    let conflicting = sent.filter(|indication| {
        matches!(indication, Indication::PeerError { error: PeerError::ConflictingEof, .. })
    });
    assert_eq!(conflicting.count(), 1);
    say(&mut world, 1, header(1), data(0, b"0123456789"));
    assert_eq!(condition(&world), Some(ConditionCode::NoError));
}

#[test]
fn a_wrong_checksum_delivers_nothing() {
    let mut world = World::new(&config(|_| {}));
    say(&mut world, 1, header(1), metadata(10));
    say(&mut world, 1, header(1), data(0, b"0123456780"));
    say(&mut world, 1, header(1), eof(b"0123456789"));
    assert_eq!(condition(&world), Some(ConditionCode::FileChecksumFailure));
    assert_eq!(world.hosts[1].store.get(&name("copy")), None);
    assert_eq!(world.hosts[1].store.used(), 0);
}

#[test]
fn an_unknown_checksum_is_a_fault() {
    let mut world = World::new(&config(|_| {}));
    let Body::Metadata(known) = metadata(10) else { unreachable!("it is a Metadata") };
    let unknown = Metadata { checksum_type: ChecksumType::Other(7), ..known };
    say(&mut world, 1, header(1), Body::Metadata(unknown));
    assert_eq!(condition(&world), Some(ConditionCode::UnsupportedChecksumType));
}

#[test]
fn too_many_options_are_refused() {
    let mut world = World::new(&config(|_| {}));
    let options = vec![Tlv::MessageToUser(Lv(b"x")); 65];
    let Body::Metadata(plain) = metadata(10) else { unreachable!("it is a Metadata") };
    let many = Metadata { tlvs: Tlvs::new(&options), ..plain };
    say(&mut world, 1, header(1), Body::Metadata(many));
    assert!(world.hosts[1].indications.iter().any(|indication| matches!(
        indication,
        Indication::PeerError { error: PeerError::TooManyOptions, .. }
    )));
}

#[test]
fn naks_beyond_the_file_cost_nothing() {
    let mut world = World::new(&config(|_| {}));
    world.hosts[0].store.insert(name("source"), content(5000));
    let id = world.put(put_request());
    world.run_until(Time::from_nanos(20_000_000));
    let requests: Vec<_> =
        (0..100).map(|i| SegmentRequest { start: 6000 + 2 * i, end: 6001 + 2 * i }).collect();
    let nak = Nak { scope_start: 0, scope_end: 9000, requests: SegmentRequests::new(&requests) };
    say(&mut world, 0, toward_sender(id), Body::Nak(nak));
    world.run();
    assert_eq!(world.hosts[0].engine.stats().repair_bytes, 0);
    assert_eq!(world.finished(0).map(|f| f.condition), Some(ConditionCode::NoError));
}

fn small() -> Config {
    let mut config = config(|_| {});
    config.limits = Limits {
        transactions: 8,
        finished: 16,
        gaps: 32,
        buffers: session::Buffers {
            write_buffer: 32 << 10,
            write_piece: 4 << 10,
            read_ahead: 16 << 10,
            read_piece: 4 << 10,
            replies: 8,
            ..session::Buffers::default()
        },
        ..Limits::default()
    };
    config
}

/// Memory that the settings of [`small`] allow.
const MEMORY_MAX: usize = 8 * (4 << 10) + (16 << 10) + 48 * 1024 + (24 << 10);

#[test]
fn a_flood_of_transactions_is_bounded() {
    let mut world = World::new(&small());
    world.logging = false;
    for sequence in 0..2000 {
        say(&mut world, 1, header(sequence), metadata(1 << 30));
        say(&mut world, 1, header(sequence), data(sequence * 100, &[7; 900]));
        say(&mut world, 1, header(sequence + 5000), data(0, &[7; 900]));
        assert!(world.hosts[1].engine.memory() <= MEMORY_MAX);
        assert!(world.hosts[1].engine.transactions().count() <= 8);
    }
    let limits = world.hosts[1]
        .indications
        .iter()
        .filter(|i| matches!(i, Indication::LimitReached(Limit::Transactions)));
    assert_eq!(limits.count(), 1);
    world.lose(|_, _, _| true);
    world.run();
    assert_eq!(world.hosts[1].engine.transactions().count(), 0);
}

#[test]
fn a_transfer_completes_during_a_flood() {
    let file = content(10_000_000);
    let mut world = World::new(&config(|_| {}));
    world.logging = false;
    world.hosts[0].store.insert(name("source"), file.clone());
    // 100,000 sessions of one PDU each, from another entity on the same path, until about the end
    // of the file: 12 each millisecond.
    let flood = Header { source: EntityId(3), ..header(0) };
    let (mut sequence, mut memory) = (0, 0);
    let mut put = None;
    while sequence < 100_000 || world.finished(1).is_none() {
        let until = world.now + Duration::from_millis(1);
        for _ in 0..12 {
            let body = if sequence % 2 == 0 { metadata(1 << 30) } else { data(1000, &[7; 900]) };
            say(&mut world, 1, Header { sequence, ..flood }, body);
            sequence += 1;
        }
        // The transfer starts when all slots are taken.
        if sequence > 2000 && put.is_none() {
            put = Some(world.put(put_request()));
        }
        world.run_until(until);
        memory = memory.max(world.hosts[1].engine.memory());
        assert!(world.hosts[1].engine.transactions().count() <= 1000);
        assert!(world.now < Time::from_secs(30), "the transfer does not complete");
    }
    let files = world.hosts[1].files_most;
    println!("{sequence} sessions; {memory} bytes, {files} files; file after {}", world.now);
    assert!(files <= 1000, "{files} files");
    assert_eq!(condition(&world), Some(ConditionCode::NoError));
    assert!(world.hosts[1].store.get(&name("copy")) == Some(&file[..]));
    assert!(memory < 16 << 20, "{memory} bytes");
    assert!(world.hosts[1].store.used() < 16 << 20);
}

#[test]
fn more_gaps_than_tracked_still_end_in_the_whole_file() {
    let file = content(200_000);
    let mut world = World::new(&small());
    world.hosts[0].store.insert(name("source"), file.clone());
    world.put(put_request());
    world.lose(|side, number, _| side == 0 && number < 198 && number % 2 == 1);
    world.run();
    assert!(world.hosts[1].store.get(&name("copy")) == Some(&file[..]));
    assert!(world.hosts[1].engine.stats().data_dropped > 0);
}

#[test]
fn a_store_that_falls_behind_pauses_the_path() {
    let file = content(400_000);
    let info = PathInfo { rate_bps: Some(1_000_000_000), ..crate::test_world::path_info() };
    let mut world = World::with_path(&small(), info);
    world.hosts[0].store.insert(name("source"), file.clone());
    world.hosts[1].slow = Some(Vec::new());
    world.work_off(1);
    world.put(put_request());
    let mut rng = Rng::new(5, "store");
    for _ in 0..2_000_000 {
        let memory = world.hosts[1].engine.memory();
        assert!(memory <= MEMORY_MAX, "{memory} bytes held");
        if rng.chance(0.02) || !world.step() {
            world.work_off(1);
            if !world.step() && world.finished(0).is_some() {
                break;
            }
        }
    }
    assert!(world.hosts[1].store.get(&name("copy")) == Some(&file[..]));
    assert!(world.hosts[1].engine.stats().data_dropped > 0);
}

#[test]
fn arbitrary_bytes_and_damaged_pdus_never_panic() {
    for seed in 0..30 {
        let mut rng = Rng::new(seed, "damage");
        let mut world = World::new(&small());
        world.logging = false;
        let file = content(20_000);
        world.hosts[0].store.insert(name("source"), file.clone());
        world.put(put_request());
        world.lose(move |_, _, datagram| {
            if rng.chance(0.2) {
                let at = rng.below(datagram.len().min(30) as u64) as usize;
                datagram[at] ^= 1 << rng.below(8);
            }
            false
        });
        world.run();
        // Without a CRC, damage can have any effect except this one.
        let copy = world.hosts[1].store.get(&name("copy"));
        assert!(copy.is_none_or(|copy| copy == file), "seed {seed}");
    }
}

/// A peer cancels one or many unknown transactions, a thousand times per second.
#[test]
fn refusals_are_ten_a_second_at_most() {
    for repeats_one in [false, true] {
        let mut world = World::new(&config(|_| {}));
        for n in 0..10_000_u64 {
            let eof = Eof {
                condition: ConditionCode::CancelRequestReceived,
                checksum: 0,
                file_size: 0,
                fault_location: None,
            };
            say(&mut world, 1, header(if repeats_one { 1 } else { 1 + n }), Body::Eof(eof));
            world.run_until(world.now + Duration::from_millis(1));
        }
        let mut seconds = [0; 10];
        for line in world.datagrams() {
            assert!(line.from == 1 && line.text.starts_with("ACK"), "{line:?}");
            seconds[(line.at.as_nanos() / 1_000_000_000) as usize] += 1;
        }
        println!("refusals in each second: {seconds:?}");
        assert!(seconds.iter().all(|count| (1..=10).contains(count)), "{seconds:?}");
        assert!(world.hosts[1].engine.stats().refusals_left_out > 9000);
        let limit = Indication::LimitReached(Limit::Refusals);
        let reached = world.hosts[1].indications.iter().filter(|indication| **indication == limit);
        assert_eq!(reached.count(), 1);
    }
}

fn peer_errors(world: &World, side: usize) -> Vec<String> {
    let indications = world.hosts[side].indications.iter();
    let errors = indications.filter_map(|indication| match indication {
        Indication::PeerError { error, .. } => Some(error.to_string()),
        _ => None,
    });
    errors.collect()
}

#[test]
fn metadata_that_the_peer_does_not_accept_is_reported_with_its_parts() {
    let mut world = World::new(&config(|_| {}));
    world.hosts[0].store.insert(name("source"), content(5000));
    let request = FilestoreRequest {
        action: FilestoreAction::CreateFile,
        first: "made".to_owned(),
        second: String::new(),
    };
    let id = world.put(PutRequest { filestore_requests: vec![request], ..put_request() });
    world.lose(|side, _, _| side == 0);
    let ask = |world: &mut World| {
        let requests = SegmentRequests::new(&[SegmentRequest::METADATA]);
        let nak = Nak { scope_start: 0, scope_end: 5000, requests };
        say(world, 0, toward_sender(id), Body::Nak(nak));
    };
    for second in 1..=5 {
        world.run_until(Time::from_secs(second));
        // Each is fulfilled. The second one left before the metadata of the first could arrive.
        ask(&mut world);
        ask(&mut world);
        assert_eq!(peer_errors(&world, 0).len(), usize::from(second >= 3), "{second}");
    }
    let expected = "the peer requests the Metadata PDU although it was sent 5 times: it may not \
                    know the checksum type CRC-32C, or filestore requests";
    assert_eq!(peer_errors(&world, 0), [expected]);
}

#[test]
fn pdus_that_cannot_be_decoded_are_reported_once_a_minute() {
    let mut world = World::new(&config(|_| {}));
    world.hosts[0].store.insert(name("source"), content(5000));
    let id = world.put(put_request());
    world.lose(|side, _, _| side == 0);
    let cut = |id| {
        let finished = Body::Finished(Finished {
            condition: ConditionCode::NoError,
            end_system: true,
            delivery: DeliveryCode::Complete,
            file_status: FileStatus::Retained,
            tlvs: Tlvs::NONE,
        });
        let mut pdu = Pdu { header: toward_sender(id), body: finished }.to_vec().unwrap();
        // Half a TLV.
        pdu.push(6);
        pdu[2] += 1;
        pdu
    };
    let other = TransactionId { sequence: id.sequence + 1, ..id };
    for (second, id, reported) in [(1, other, 0), (1, id, 1), (2, id, 1), (62, id, 2)] {
        world.run_until(Time::from_secs(second));
        world.input(0, Input::Receive(Receive::datagram(PATH, &cut(id))));
        let errors = peer_errors(&world, 0);
        assert_eq!(errors.len(), reported, "{errors:?}");
        let named = |error: &String| error.starts_with("the Finished PDU of the peer cannot be");
        assert!(errors.iter().all(named), "{errors:?}");
    }
}
