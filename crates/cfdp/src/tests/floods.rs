//! Floods of transactions that nobody continues, beside files that are sent.

use std::time::Duration;

use engine::{Area, Input, PathEvent, PathId, PathInfo, Receive, Time};

use super::hostile::{data, header, metadata};
use super::world::{World, config, content, name, put_request};
use crate::pdu::{Body, ConditionCode, EntityId, Header, Pdu, TransmissionMode};
use crate::{Indication, PutRequest};

const CLASS_1: TransmissionMode = TransmissionMode::Unacknowledged;
const CLASS_2: TransmissionMode = TransmissionMode::Acknowledged;

/// Opens a path for each port of each host.
pub(super) fn open(world: &mut World, hosts: u8, ports: u16) {
    for host in 0..hosts {
        for port in 0..ports {
            let peer = std::net::SocketAddr::from(([10, 9, 0, host], 1024 + port));
            let here = std::net::SocketAddr::from(([10, 0, 0, 1], 4556));
            let info = PathInfo { ends: Some((here, peer)), ..PathInfo::datagram(1472) };
            let path = path(host, port);
            world.input(1, Input::Path(path, PathEvent::Up(info)));
        }
    }
}

fn path(host: u8, port: u16) -> PathId {
    PathId(1000 + u32::from(host) * 100 + u32::from(port))
}

/// Metadata and a byte of data of a transaction that nobody continues.
fn begin(world: &mut World, number: u64, hosts: u8, ports: u16, mode: TransmissionMode) {
    let header = Header { source: EntityId(3), mode, ..header(number) };
    let from = path((number % u64::from(hosts)) as u8, (number % u64::from(ports)) as u16);
    for body in [metadata(1000), data(0, b"x")] {
        let pdu = Pdu { header, body }.to_vec().expect("a sound PDU");
        world.input(1, Input::Receive(Receive::datagram(from, &pdu)));
    }
}

fn lost_files(world: &World) -> usize {
    let is_lost = |it: &&Indication| matches!(it, Indication::NoRoom(_));
    world.hosts[1].indications.iter().filter(is_lost).count()
}

#[test]
fn transfers_succeed_at_once_after_a_flood() {
    for (hosts, ports, wait_s) in [(1, 2, 0), (50, 1, 0), (50, 1, 15), (250, 1, 90)] {
        for mode in [CLASS_1, CLASS_2] {
            let mut world = World::new(&config(|_| {}));
            world.logging = false;
            open(&mut world, hosts, ports);
            (0..1000).for_each(|number| begin(&mut world, number, hosts, ports, mode));
            let side = &world.hosts[1];
            let (memory, files) = (side.engine.memory(), side.files_most);
            assert!(memory < 8_000_000 && files <= 876, "{memory} bytes, {files} files");
            assert!(side.store.names(Area::Spool).count() <= 876);
            world.run_until(Time::from_secs(wait_s));
            let file = content(200_000);
            world.hosts[0].store.insert(name("source"), file.clone());
            world.put(PutRequest { mode: Some(mode), ..put_request() });
            let began = world.now;
            while world.finished(1).is_none() && world.step() {}
            assert!(world.hosts[1].store.get(&name("copy")) == Some(&file[..]), "{hosts} {mode:?}");
            // 200 kB at 10 Mbit/s.
            assert!(world.now.since(began) < Duration::from_millis(400), "{}", world.now);
        }
    }
}

#[test]
fn transfers_succeed_during_a_flood() {
    for hosts in [1, 50, 250] {
        for mode in [CLASS_1, CLASS_2] {
            let mut world = World::new(&config(|_| {}));
            world.logging = false;
            open(&mut world, hosts, 1);
            (0..1000).for_each(|number| begin(&mut world, number, hosts, 1, mode));
            let file = content(200_000);
            world.hosts[0].store.insert(name("source"), file.clone());
            world.put(PutRequest { mode: Some(mode), ..put_request() });
            let mut number = 1000;
            while world.finished(1).is_none() && world.step() {
                // About as many bytes as the file.
                for _ in 0..10 {
                    begin(&mut world, number, hosts, 1, mode);
                    number += 1;
                }
            }
            assert!(world.hosts[1].store.get(&name("copy")) == Some(&file[..]), "{hosts} {mode:?}");
            assert!(world.hosts[1].engine.transactions().count() <= 876);
            let lost = lost_files(&world);
            assert!(mode == CLASS_2 || lost > 0 && lost < 20, "{lost}");
        }
    }
}

#[test]
fn metadata_of_class_1_that_gave_way_is_kept_for_its_data() {
    let mut world = World::new(&config(|_| {}));
    world.logging = false;
    open(&mut world, 250, 1);
    let header = Header { mode: CLASS_1, ..header(77) };
    let say = |world: &mut World, body: Body<'_>| {
        let pdu = Pdu { header, body }.to_vec().expect("a sound PDU");
        world.hear(1, &pdu);
    };
    say(&mut world, metadata(10));
    (0..1000).for_each(|number| begin(&mut world, number, 250, 1, CLASS_1));
    let is_under_way = |world: &World| {
        world.hosts[1].engine.transactions().any(|report| report.id == header.transaction())
    };
    assert!(!is_under_way(&world));
    say(&mut world, data(0, b"0123456789"));
    say(&mut world, super::hostile::eof(b"0123456789"));
    assert_eq!(world.finished(1).map(|finished| finished.condition), Some(ConditionCode::NoError));
    assert!(world.hosts[1].store.get(&name("copy")).is_some());
}

#[test]
fn configured_peers_have_places_of_their_own() {
    let mut settings = config(|_| {});
    settings.remotes.insert(1, settings.default_remote.clone());
    settings.remotes.get_mut(&1).expect("inserted").path = Some(super::world::PATH);
    let mut world = World::new(&settings);
    world.logging = false;
    open(&mut world, 250, 1);
    // More data than the file has, and none of them ends.
    for number in 0..2000 {
        begin(&mut world, number, 250, 1, CLASS_1);
    }
    let strangers = world.hosts[1].engine.transactions().count();
    assert_eq!(strangers, 766, "7/8 of 7/8 of 1,000");
}
