//! Requests and refusals (draft-wood-tsvwg-saratoga-22 §4.2, §4.5.1, §6.1).

use std::time::Duration;

use engine::Time;

use super::world::{PATH, World, config, content, data, metadata, name, quiet, request, status};
use crate::packet::{
    Ability, Content, Entry, FileChecksum, Packet, Request, RequestKind, Status, StatusCode, Width,
};
use crate::{Beacons, Config, Indication, Permissions, Put, Remote, RequestError, Timer, packet};

const SECOND: Duration = Duration::from_secs(1);

/// Peer's reply to a packet: its first STATUS.
fn answer(config: Config, packet: Packet<'_>) -> (World, StatusCode) {
    let mut world = World::alone(config);
    world.hosts[0].store.insert(name("source"), content(70_000));
    world.say(0, packet);
    world.run_until(Time::ZERO + SECOND);
    let code = world.statuses(0).first().map(|status| status.code);
    let code = code.unwrap_or_else(|| panic!("{:#?}", world.transcript()));
    (world, code)
}

fn permitting(put: bool, get: bool, delete: bool) -> Config {
    Config { permissions: Permissions { put, get, delete }, ..quiet() }
}

#[test]
fn requests_without_permission_are_refused() {
    use RequestKind::{Delete, Get, GetDir, Give, Put, Take};
    for (kind, config) in [
        (Put, permitting(false, true, true)),
        (Give, permitting(false, true, true)),
        (Get, permitting(true, false, true)),
        (GetDir, permitting(true, false, true)),
        (Take, permitting(true, true, false)),
        (Delete, permitting(true, true, false)),
    ] {
        let (mut world, code) = answer(config, request(kind, "source"));
        assert_eq!(code, StatusCode::AccessDenied, "{kind}");
        // A repeated request gets the same reply.
        world.say(0, request(kind, "source"));
        world.run_until(world.now + SECOND);
        let codes: Vec<_> = world.statuses(0).iter().map(|status| status.code).collect();
        assert_eq!(codes, [StatusCode::AccessDenied; 2], "{kind}");
        assert_eq!(world.hosts[0].engine.sessions().count(), 0);
    }
}

#[test]
fn refused_puts_end_at_both_sides() {
    for put in [Put::Ask, Put::Push] {
        let mut world = World::new([quiet(), permitting(false, true, true)]);
        world.put(&content(2500), put);
        world.run();
        assert_eq!(world.failure(0), Some(StatusCode::AccessDenied));
        assert_eq!(world.transcript().last().map(|line| &line[..]), Some("< STATUS access denied"));
        assert!(world.copy().is_none());
    }
}

#[test]
fn missing_files_are_not_found() {
    for kind in [RequestKind::Get, RequestKind::Take, RequestKind::GetDir] {
        let (_, code) = answer(quiet(), request(kind, "nothing"));
        assert_eq!(code, StatusCode::NotFound, "{kind}");
    }
}

/// The draft allows a request without a name for any file; here it is refused.
#[test]
fn a_request_without_a_name_is_refused() {
    for kind in [RequestKind::Get, RequestKind::Delete, RequestKind::Take] {
        assert_eq!(answer(quiet(), request(kind, "")).1, StatusCode::AccessDenied, "{kind}");
    }
}

#[test]
fn names_outside_the_root_are_refused() {
    for path in ["../source", "/etc/passwd", ".slowlight/lock"] {
        let (_, code) = answer(quiet(), request(RequestKind::Get, path));
        assert_eq!(code, StatusCode::AccessDenied, "{path}");
    }
}

#[test]
fn unknown_requests_are_refused() {
    let (_, code) = answer(quiet(), request(RequestKind::Other(9), "source"));
    assert_eq!(code, StatusCode::UnsupportedRequest);
}

#[test]
fn no_op_requests_are_ignored() {
    let mut world = World::alone(quiet());
    world.say(0, request(RequestKind::NoOp, ""));
    world.run();
    assert!(world.log.is_empty());
}

#[test]
fn credentials_are_read_and_ignored() {
    let Packet::Request(plain) = request(RequestKind::Delete, "source") else { unreachable!() };
    let packet = Packet::Request(Request { authentication: b"\x01secret", ..plain });
    let (world, code) = answer(quiet(), packet);
    assert_eq!(code, StatusCode::Ok);
    assert!(world.hosts[0].store.get(&name("source")).is_none());
}

/// 70,000 bytes do not fit a descriptor of 16 bits.
#[test]
fn files_too_long_for_the_requester_are_refused() {
    let Packet::Request(plain) = request(RequestKind::Get, "source") else { unreachable!() };
    let packet = Packet::Request(Request { descriptor: Width::W16, ..plain });
    assert_eq!(answer(quiet(), packet).1, StatusCode::TooLong);
}

/// A peer with 16-bit descriptors sees no file of 70,000 bytes in a directory.
#[test]
fn listings_omit_files_the_requester_cannot_receive() {
    let Packet::Request(plain) = request(RequestKind::GetDir, "") else { unreachable!() };
    for (descriptor, names) in [(Width::W16, &["small"][..]), (Width::W32, &["small", "source"])] {
        let mut world = World::alone(quiet());
        world.hosts[0].store.insert(name("source"), content(70_000));
        world.hosts[0].store.insert(name("small"), content(10));
        world.say(0, Packet::Request(Request { descriptor, ..plain }));
        world.run_until(Time::ZERO + SECOND);
        let listing: Vec<u8> = world
            .packets(0)
            .filter_map(|packet| match packet {
                Packet::Data(data) if !data.data.is_empty() => Some(data.data.to_vec()),
                _ => None,
            })
            .next()
            .expect("it is sent");
        let entries = Entry::decode_record(&listing).expect("a record");
        let found: Vec<_> =
            entries.iter().map(|entry| entry.path.escape_ascii().to_string()).collect();
        assert_eq!(found, names);
    }
}

#[test]
fn files_too_long_for_the_receiver_are_refused() {
    let mut config = quiet();
    config.limits.file = 1000;
    let packet = Packet::Metadata(metadata(1001, FileChecksum::None));
    let mut world = World::alone(config);
    world.say(0, packet);
    world.run_until(Time::ZERO + SECOND);
    let codes: Vec<_> = world.statuses(0).iter().map(|status| status.code).collect();
    assert_eq!(codes.last(), Some(&StatusCode::TooLong), "{:#?}", world.transcript());
}

#[test]
fn requests_with_too_long_paths_are_ignored() {
    // 1,023 bytes and the NUL are the most.
    let long = "x".repeat(packet::PATH_MAX);
    let mut world = World::alone(quiet());
    let now = world.now;
    let requested = world.hosts[0].engine.delete(now, PATH, long.clone());
    assert_eq!(requested, Err(RequestError::Name));
    let mut bytes = request(RequestKind::Get, &long[1..]).to_vec().expect("it fits");
    world.hear(0, &bytes);
    assert_eq!(world.hosts[0].engine.stats().received.requests, 1);
    bytes.insert(8, b'x');
    world.hear(0, &bytes);
    assert_eq!(world.hosts[0].engine.stats().received.requests, 1);
    assert_eq!(world.hosts[0].engine.stats().decode_errors, 1);
}

/// Nothing names its session, so there is no reply.
#[test]
fn packets_of_unknown_type_are_counted() {
    let mut world = World::alone(quiet());
    for byte in [0x25, 0x3f, 0x00, 0x43, 0xff] {
        world.hear(0, &[byte, 0, 0, 0, 0, 0, 0, 77, 0, 0, 0, 0]);
    }
    world.run();
    assert_eq!(world.hosts[0].engine.stats().decode_errors, 5);
    assert!(world.log.is_empty());
}

#[test]
fn repeated_deletes_get_the_same_reply() {
    let mut world = World::with(&quiet());
    world.hosts[0].store.insert(name("source"), content(10));
    let mut lost = 0;
    // The first reply is lost.
    world.lose(move |side, _, _| {
        lost += side;
        side == 0 && lost == 1
    });
    let now = world.now;
    world.hosts[1].engine.delete(now, PATH, "source".into()).expect("it may");
    world.drain(1);
    world.run();
    assert_eq!(world.finished(1).expect("it ended").result, Ok(()));
    assert!(world.hosts[0].store.get(&name("source")).is_none());
    assert_eq!(
        world.transcript(),
        [
            "< REQUEST delete \"source\"",
            ">x STATUS well 0 of 0 voluntary",
            "< REQUEST delete \"source\"",
            "> STATUS well 0 of 0 voluntary",
        ]
    );
    // In another session, too: the file was deleted, as requested.
    let now = world.now;
    world.hosts[1].engine.delete(now, PATH, "source".into()).expect("it may");
    world.drain(1);
    world.run();
    assert_eq!(world.finished(1).expect("it ended").result, Ok(()));
    for status in world.statuses(0) {
        let Status { descriptor, progress, in_response_to, holes, .. } = status;
        assert_eq!((descriptor, progress, in_response_to), (Width::W16, 0, 0));
        assert!(holes.is_empty());
    }
}

#[test]
fn files_that_are_being_sent_or_received_are_not_deleted() {
    let file = content(500_000);
    let mut world = World::with(&quiet());
    world.put(&file, Put::Push);
    world.run_until(Time::ZERO + Duration::from_millis(100));
    world.say(0, request(RequestKind::Delete, "source"));
    world.say(1, request(RequestKind::Delete, "copy"));
    world.run();
    world.assert_delivered(&file);
    for side in 0..2 {
        let statuses = world.statuses(side);
        let refused = statuses.iter().filter(|status| status.code == StatusCode::InUse);
        assert_eq!(refused.count(), 1);
    }
    assert!(world.hosts[0].store.get(&name("source")).is_some());
}

#[test]
fn content_that_changes_in_mid_session_ends_it() {
    let mut world = World::alone(quiet());
    world.say(0, Packet::Metadata(metadata(1000, FileChecksum::None)));
    world.say(0, Packet::Data(packet::Data { content: Content::Directory, ..data(0, b"x") }));
    world.run_until(world.now + SECOND);
    assert_eq!(world.failure(0), Some(StatusCode::FlagsChanged));
    let last = world.statuses(0).last().map(|status| status.code);
    assert_eq!(last, Some(StatusCode::FlagsChanged));
}

#[test]
fn a_descriptor_that_changes_in_mid_session_ends_it() {
    let mut world = World::alone(quiet());
    world.say(0, Packet::Metadata(metadata(1000, FileChecksum::None)));
    world.say(0, Packet::Data(packet::Data { descriptor: Width::W16, ..data(0, b"x") }));
    world.run_until(world.now + SECOND);
    assert_eq!(world.failure(0), Some(StatusCode::DescriptorMismatch));
}

/// §6.6: it is an error without a name.
#[test]
fn an_end_before_the_announced_length_ends_the_session() {
    let mut world = World::alone(quiet());
    world.say(0, Packet::Metadata(metadata(1000, FileChecksum::None)));
    let end = packet::Data { is_end: true, wants_status: true, ..data(0, b"x") };
    world.say(0, Packet::Data(end));
    world.run_until(world.now + SECOND);
    assert_eq!(world.failure(0), Some(StatusCode::Unspecified));
    assert_eq!(world.statuses(0).last().map(|status| status.code), Some(StatusCode::Unspecified));
}

#[test]
fn data_after_the_end_is_dropped() {
    let mut world = World::alone(quiet());
    world.say(0, Packet::Metadata(metadata(10, FileChecksum::None)));
    world.say(0, Packet::Data(data(5, b"123456")));
    assert_eq!(world.hosts[0].engine.stats().data_dropped, 1);
    world.say(0, Packet::Data(data(0, b"0123456789")));
    world.run_until(world.now + SECOND);
    assert_eq!(world.hosts[0].store.get(&name("copy")), Some(&b"0123456789"[..]));
}

#[test]
fn unrequested_bundles_and_directories_are_refused() {
    for content in [Content::Bundle, Content::Directory] {
        let packet = packet::Metadata { content, ..metadata(10, FileChecksum::None) };
        let mut world = World::alone(quiet());
        world.say(0, Packet::Metadata(packet));
        world.run_until(world.now + SECOND);
        assert_eq!(world.failure(0), Some(StatusCode::UnsupportedPacket));
    }
}

/// Data without METADATA waits for it, but not for ever.
#[test]
fn data_that_is_never_described_is_given_up() {
    let mut world = World::alone(quiet());
    world.say(0, Packet::Data(packet::Data { wants_status: true, ..data(0, b"x") }));
    world.run();
    assert!(world.statuses(0)[0].lacks_metadata, "{:#?}", world.transcript());
    assert_eq!(world.failure(0), Some(StatusCode::MetadataRequired));
    let statuses = world.statuses(0);
    let last = statuses.last().expect("it was sent");
    assert_eq!((last.code, last.lacks_metadata), (StatusCode::MetadataRequired, true));
    assert_eq!((last.progress, last.holes.len()), (0, 0));
}

/// Every failure ends either side, whatever offsets it has.
#[test]
fn failures_end_a_session_with_any_offsets() {
    for code in 1..=0x13 {
        let code = StatusCode::from_code(code);
        let mut world = World::alone(quiet());
        let id = world.put(&content(2500), Put::Push);
        world.run_until(world.now + Duration::from_millis(10));
        let failure = Status { code, ..status(id.number, (2500, 2500), &[]) };
        world.say(0, Packet::Status(failure));
        assert_eq!(world.failure(0), Some(code));
        assert_eq!(world.hosts[0].engine.sessions().count(), 0);
        assert!(world.hosts[0].store.get(&name("source")).is_some());

        let mut world = World::with(&quiet());
        world.lose(|_, _, _| true);
        let id = world.get(false);
        world.say(1, Packet::Status(Status { code, ..status(id.number, (0, 0), &[]) }));
        assert_eq!(world.failure(1), Some(code));
    }
}

/// A restarted peer does not reply for an unknown session: a sender starts it again.
#[test]
fn a_status_of_no_session_is_counted() {
    let mut world = World::alone(quiet());
    world.say(0, Packet::Status(status(1234, (0, 0), &[])));
    world.run();
    assert_eq!(world.hosts[0].engine.stats().stray, 1);
    assert!(world.log.is_empty());
}

#[test]
fn sessions_beyond_the_bound_are_refused() {
    let mut config = quiet();
    config.limits.sessions = 1;
    let mut world = World::alone(config);
    world.say(0, Packet::Metadata(metadata(1000, FileChecksum::None)));
    world.say(0, Packet::Data(data(0, b"x")));
    let Packet::Request(plain) = request(RequestKind::Put, "copy") else { unreachable!() };
    world.say(0, Packet::Request(Request { session: 78, ..plain }));
    world.run_until(world.now + Duration::from_millis(10));
    let last = world.statuses(0).last().map(|status| (status.session, status.code));
    assert_eq!(last, Some((78, StatusCode::ReceiverResources)));
    let limits = world.hosts[0].indications.iter();
    assert_eq!(limits.filter(|it| matches!(it, Indication::LimitReached(_))).count(), 1);
}

#[test]
fn a_sender_that_is_silent_is_given_up_and_its_file_is_not_shown() {
    let mut config = quiet();
    config.default_remote.inactivity = Timer::Fixed(Duration::from_secs(16));
    let mut world = World::alone(config);
    world.say(0, Packet::Metadata(metadata(1000, FileChecksum::None)));
    world.say(0, Packet::Data(data(0, b"x")));
    world.run();
    assert_eq!(world.failure(0), Some(StatusCode::SenderTimeout));
    assert_eq!(world.now.as_secs_f64().round(), 16.0);
    assert!(world.hosts[0].store.get(&name("copy")).is_none());
}

#[test]
fn a_receiver_that_is_silent_is_given_up() {
    for put in [Put::Ask, Put::Push] {
        let mut config = quiet();
        config.default_remote.inactivity = Timer::Fixed(Duration::from_secs(16));
        let mut world = World::alone(config);
        world.put(&content(2500), put);
        world.run();
        assert_eq!(world.failure(0), Some(StatusCode::RequestTimeout));
        assert!(world.now.as_secs_f64() < 20.0, "{}", world.now);
    }
}

#[test]
fn beacons_come_at_the_interval() {
    let interval = Duration::from_secs(5);
    let beacons = Some(Beacons { paths: vec![PATH], interval });
    let config = Config { eid: "dtn:moon".into(), beacons, ..permitting(true, false, false) };
    let mut world = World::new([config, quiet()]);
    world.run_until(Time::ZERO + Duration::from_secs(21));
    let times: Vec<_> = world.log.iter().map(|sent| sent.at.as_secs_f64().round() as u64).collect();
    assert_eq!(times, [0, 5, 10, 15, 20]);
    assert!(
        world
            .transcript()
            .iter()
            .all(|line| { line == "> BEACON \"dtn:moon\" 64 bits, sends: not now, receives: yes" })
    );
    let received = world.hosts[1].indications.iter().filter_map(|indication| match indication {
        Indication::Beacon { about, .. } => Some(about),
        _ => None,
    });
    let received: Vec<_> = received.collect();
    assert_eq!(received.len(), 5);
    assert_eq!((&*received[0].eid, received[0].receives), ("dtn:moon", Ability::Yes));
}

/// A request is repeated until it gets a reply.
#[test]
fn requests_are_retransmitted() {
    let mut world = World::with(&Config {
        default_remote: Remote { request_timer: Timer::Fixed(SECOND), ..quiet().default_remote },
        ..config()
    });
    world.hosts[0].store.insert(name("source"), content(10));
    world.lose(|side, number, _| side == 1 && number < 3);
    world.get(false);
    world.run();
    world.assert_delivered(&content(10));
    let requests = world.transcript().iter().filter(|line| line.contains("REQUEST")).count();
    assert_eq!(requests, 4);
}

/// Two peers that deleted a file in a session of the same number would reply to each other for
/// ever.
#[test]
fn statuses_of_deleted_files_get_no_reply() {
    let mut world = World::alone(config());
    world.hosts[0].store.insert(name("source"), content(10));
    world.say(0, request(RequestKind::Delete, "source"));
    world.run();
    let reported = world.statuses(0).last().map(|status| (status.session, status.code));
    assert_eq!(reported, Some((77, StatusCode::Ok)));
    world.log.clear();
    world.say(0, Packet::Status(status(77, (0, 0), &[])));
    world.run();
    assert!(world.log.is_empty(), "{:#?}", world.transcript());
    // A repeated request is.
    world.say(0, request(RequestKind::Delete, "source"));
    world.run();
    assert_eq!(world.log.len(), 1);
}

/// Without a checksum, nothing else would detect it.
#[test]
fn a_file_that_lacks_one_byte_is_incomplete() {
    let file = b"whole";
    for missing in 0..file.len() {
        let mut world = World::alone(quiet());
        world.say(0, Packet::Metadata(metadata(file.len() as u64, FileChecksum::None)));
        let parts = [(0, &file[..missing]), (missing + 1, &file[missing + 1..])];
        for (offset, part) in parts.into_iter().filter(|(_, part)| !part.is_empty()) {
            world.say(0, Packet::Data(data(offset as u64, part)));
        }
        world.run_until(world.now + SECOND);
        assert_eq!(world.hosts[0].store.get(&name("copy")), None, "{missing}");
        world.say(0, Packet::Data(data(missing as u64, &file[missing..=missing])));
        world.run_until(world.now + SECOND);
        assert_eq!(world.hosts[0].store.get(&name("copy")), Some(&file[..]), "{missing}");
    }
}
