//! More sessions than slots.

use engine::{Engine as _, Input, PathEvent, PathId, Receive, StoreEffect, Time};

use super::world::{PATH, World, config, content, data, metadata, quiet, request};
use crate::packet::{FileChecksum, Metadata, Packet, Request, RequestKind, StatusCode};
use crate::{Indication, Limit, Put};

/// First packet of a session that never sends another.
fn first_packet(number: u32) -> Vec<u8> {
    let packet = match number % 3 {
        0 => {
            let mut path = *b"copy-00000000";
            path[5..].copy_from_slice(format!("{number:08}").as_bytes());
            let described = metadata(1 << 20, FileChecksum::Crc32(number));
            let entry = crate::packet::Entry { path: &path, ..described.entry };
            return Packet::Metadata(Metadata { session: number, entry, ..described })
                .to_vec()
                .expect("a packet");
        }
        1 => Packet::Data(crate::packet::Data { session: number, ..data(5000, &[7; 900]) }),
        _ => {
            let Packet::Request(plain) = request(RequestKind::Put, "copy") else { unreachable!() };
            Packet::Request(Request { session: number, ..plain })
        }
    };
    packet.to_vec().expect("a packet")
}

#[test]
fn a_transfer_completes_in_a_flood_of_half_open_sessions() {
    const FLOOD: u32 = 100_000;
    let file = content(10_000_000);
    let mut world = World::with(&config());
    world.logging = false;
    let (mut thrown, mut memory, mut sessions) = (0, 0, 0);
    let mut throw = |world: &mut World, until: u32| {
        while thrown < until.min(FLOOD) {
            thrown += 1;
            world.hear(1, &first_packet(thrown));
            if thrown % 500 == 0 {
                let engine = &world.hosts[1].engine;
                memory = memory.max(engine.memory());
                sessions = sessions.max(engine.sessions().count());
            }
        }
        thrown
    };
    throw(&mut world, FLOOD / 5);
    world.put(&file, Put::Ask);
    let mut until = FLOOD / 5;
    while world.finished(0).is_none() {
        until += 8;
        throw(&mut world, until);
        assert!(world.step(), "the transfer goes on");
    }
    assert_eq!(throw(&mut world, 0), FLOOD, "the flood lasted as long as the transfer");
    assert_eq!(world.finished(0).expect("it ended").result, Ok(()));
    assert!(world.copy() == Some(&file[..]));
    let (evicted, files) = (world.hosts[1].engine.stats().evicted, world.hosts[1].files_most);
    println!(
        "{FLOOD} half-open sessions: {sessions} at a time, {evicted} made room; {memory} bytes, \
         {files} files open; 10 MB delivered after {:.3} s",
        world.now.as_nanos() as f64 / 1e9
    );
    assert!(sessions <= 876 && files <= 2, "{sessions} sessions, {files} files");
    assert!(memory <= 12 << 20, "{memory} bytes");
    let limits = world.hosts[1].indications.iter();
    let limits = limits.filter(|it| matches!(it, Indication::LimitReached(Limit::Sessions)));
    assert!(limits.count() <= 2, "the user learns of it once");
}

/// A server opens a file and sends it to any requester; peers that send nothing else are dropped
/// for others, too.
#[test]
fn requests_for_a_file_do_not_block_others() {
    let mut config = config();
    config.limits.sessions = 16;
    let mut world = World::alone(config);
    world.hosts[0].store.insert(super::name("source"), content(2_000_000));
    for number in 0..200 {
        let Packet::Request(plain) = request(RequestKind::Get, "source") else { unreachable!() };
        world.say(0, Packet::Request(Request { session: 100 + number, ..plain }));
        world.run_until(world.now + std::time::Duration::from_secs(1));
        assert!(world.hosts[0].engine.sessions().count() <= 14);
    }
    let engine = &world.hosts[0].engine;
    assert!(engine.stats().evicted >= 180, "{:?}", engine.stats());
    assert!(world.hosts[0].files_most <= 14, "{} files", world.hosts[0].files_most);
    assert!(engine.sessions().any(|session| session.id.number == 299), "the last has a place");
}

/// Sessions with data stay, and this node's own have reserved slots.
#[test]
fn active_sessions_are_not_evicted() {
    let mut config = quiet();
    config.limits.sessions = 8;
    let mut world = World::alone(config);
    for number in 1..=7 {
        let path = [b'a' + number as u8];
        let described = metadata(1000, FileChecksum::None);
        let entry = crate::packet::Entry { path: &path, ..described.entry };
        world.say(0, Packet::Metadata(Metadata { session: number, entry, ..described }));
        world.say(0, Packet::Data(crate::packet::Data { session: number, ..data(0, b"x") }));
    }
    let Packet::Request(plain) = request(RequestKind::Put, "copy") else { unreachable!() };
    world.say(0, Packet::Request(Request { session: 78, ..plain }));
    world.run_until(world.now + std::time::Duration::from_millis(10));
    let last = world.statuses(0).last().map(|status| (status.session, status.code));
    assert_eq!(last, Some((78, StatusCode::ReceiverResources)));
    assert_eq!(world.hosts[0].engine.sessions().count(), 7);
    world.put(&content(10), Put::Push);
    assert_eq!(world.hosts[0].engine.sessions().count(), 8);
}

/// A peer that has used up its share loses sessions of its own, and not the oldest of all.
#[test]
fn a_peer_beyond_its_share_displaces_no_other() {
    const OTHER: PathId = PathId(2);
    let mut config = quiet();
    (config.limits.sessions, config.limits.sessions_per_path) = (16, 6);
    let mut world = World::alone(config);
    let up = Input::Path(OTHER, PathEvent::Up(world.hops[0].info.clone()));
    world.hosts[0].engine.handle_input(world.now, up);
    for number in 1..=4 {
        let packet = first_packet(3 * number);
        let receive = Input::Receive(Receive::datagram(OTHER, &packet));
        world.hosts[0].engine.handle_input(world.now, receive);
    }
    for number in 5..=20 {
        world.run_until(world.now + std::time::Duration::from_millis(1));
        world.hear(0, &first_packet(3 * number));
        let sessions = || world.hosts[0].engine.sessions().map(|session| session.id.peer);
        assert_eq!(sessions().filter(|peer| *peer == OTHER).count(), 4, "{number}");
        let of_peer = sessions().filter(|peer| *peer == PATH).count();
        assert_eq!(of_peer, (number as usize - 4).min(6), "{number}");
    }
}

/// The store of a test world counts open files.
#[test]
fn a_description_alone_opens_no_file() {
    let mut world = World::alone(quiet());
    world.hosts[0].slow = Some(Vec::new());
    world.say(0, Packet::Metadata(metadata(1000, FileChecksum::None)));
    let opens = |world: &World| {
        let waiting = world.hosts[0].slow.iter().flatten();
        waiting.filter(|effect| matches!(effect, StoreEffect::Open { .. })).count()
    };
    assert_eq!(opens(&world), 0);
    world.say(0, Packet::Data(data(500, b"x")));
    assert_eq!(opens(&world), 1);
}

/// Refusals in each of ten seconds in which a peer sends a packet every millisecond.
fn refusals(repeated: impl Fn(u32) -> Vec<u8>) -> (World, Vec<usize>) {
    let mut world = World::alone(quiet());
    for number in 0..10_000 {
        world.hear(0, &repeated(number));
        world.run_until(Time::from_nanos((u64::from(number) + 1) * 1_000_000));
    }
    let mut seconds = vec![0; 10];
    for sent in world.log.iter().filter(|sent| sent.from == 0) {
        let second = sent.at.as_nanos() as usize / 1_000_000_000;
        match Packet::decode(&sent.bytes).expect("a packet of its own") {
            Packet::Status(status) if status.code != StatusCode::Ok => seconds[second] += 1,
            Packet::Status(_) => {}
            other => panic!("{other}"),
        }
    }
    (world, seconds)
}

/// A request that is not permitted, a file of a forbidden name, and a session that was refused.
#[test]
fn refusals_are_ten_a_second_at_most() {
    let requested = |number| {
        let Packet::Request(plain) = request(RequestKind::Get, "../etc") else { unreachable!() };
        Packet::Request(Request { session: 100 + number, ..plain }).to_vec().expect("a packet")
    };
    let described = |number| {
        let plain = metadata(1000, FileChecksum::None);
        let entry = crate::packet::Entry { path: b"../copy", ..plain.entry };
        let packet = Packet::Metadata(Metadata { session: 100 + number, entry, ..plain });
        packet.to_vec().expect("a packet")
    };
    let kinds: [&dyn Fn(u32) -> Vec<u8>; 4] =
        [&requested, &described, &|_| requested(0), &|_| described(0)];
    for (kind, repeated) in kinds.into_iter().enumerate() {
        let (mut world, seconds) = refusals(repeated);
        println!("refusals in each second: {seconds:?}");
        assert!(seconds.iter().all(|count| (1..=10).contains(count)), "{kind}: {seconds:?}");
        let stats = *world.hosts[0].engine.stats();
        assert!(stats.refusals_left_out > 9000, "{kind}: {stats:?}");
        let limits = world.hosts[0].indications.iter();
        let limits = limits.filter(|it| matches!(it, Indication::LimitReached(Limit::Refusals)));
        assert_eq!(limits.count(), 1, "{kind}");
        // A permitted file is received meanwhile.
        let file = metadata(5, FileChecksum::None);
        world.say(0, Packet::Metadata(Metadata { session: 7, ..file }));
        world.say(0, Packet::Data(crate::packet::Data { session: 7, ..data(0, b"whole") }));
        world.run_until(world.now + std::time::Duration::from_secs(1));
        let copy = world.hosts[0].store.get(&super::name("copy"));
        assert_eq!(copy, Some(&b"whole"[..]), "{kind}");
    }
}
