//! Conversations with exact losses.

use engine::{Engine as _, Input, Receive, Rng};

use super::world::{PATH, World, config, content, lose_these, name, put_request};
use crate::pdu::{ConditionCode, DeliveryCode, FileStatus};
use crate::test_world::lose_one_in;

fn delivered(world: &World, file: &[u8]) {
    assert_eq!(world.hosts[1].store.get(&name("copy")), Some(file), "{:#?}", world.transcript());
    for side in 0..2 {
        let finished = world.finished(side).expect("it ended");
        assert_eq!(finished.condition, ConditionCode::NoError);
        assert_eq!(finished.delivery, DeliveryCode::Complete);
        assert_eq!(finished.file_status, FileStatus::Retained);
        assert_eq!(world.hosts[side].engine.transactions().count(), 0);
    }
}

#[test]
fn class_2_without_loss() {
    let mut world = World::new(&config(|_| {}));
    let file = content(2500);
    world.hosts[0].store.insert(name("source"), file.clone());
    world.put(put_request());
    world.run();
    delivered(&world, &file);
    let lines = world.transcript();
    assert_eq!(
        lines,
        [
            "> Metadata 2500",
            "> data 0+1012",
            "> data 1012+1012",
            "> data 2024+476",
            "> EOF 2500 no error",
            "< ACK EOF active",
            "< Finished no error Complete retained",
            "> ACK Finished active",
        ]
    );
}

#[test]
fn every_single_loss_is_repaired() {
    let losses: &[&[(usize, &str)]] = &[
        &[(0, "Metadata")],
        &[(0, "Metadata"), (0, "data 0+")],
        &[(0, "data 0+")],
        &[(0, "data 1012+")],
        &[(0, "data 2024+")],
        &[(0, "data 0+"), (0, "data 2024+")],
        &[(0, "EOF")],
        &[(0, "EOF"), (0, "EOF")],
        &[(1, "ACK")],
        &[(1, "ACK"), (1, "Finished")],
        &[(1, "Finished"), (1, "Finished")],
        &[(0, "ACK"), (0, "ACK")],
        &[(0, "data 1012+"), (1, "NAK"), (1, "NAK")],
        &[(0, "data 1012+"), (0, "data 1012+"), (0, "data 1012+")],
        &[(0, "Metadata"), (0, "data"), (0, "data"), (0, "data"), (0, "EOF")],
        &[(0, "Metadata"), (0, "Metadata"), (1, "NAK")],
    ];
    for lost in losses {
        let mut world = World::new(&config(|_| {}));
        let file = content(2500);
        world.hosts[0].store.insert(name("source"), file.clone());
        world.put(put_request());
        world.lose(lose_these(lost));
        world.run();
        delivered(&world, &file);
        assert!(world.now.as_secs_f64() < 1.0, "{lost:?} took {}", world.now);
    }
}

/// The reply to an EOF may arrive after its timeout, before there was a chance to send. A
/// retransmitted EOF would restart the transaction at a receiver that has forgotten it.
#[test]
fn finished_receivers_get_no_retransmissions() {
    let mut settings = config(|_| {});
    settings.journal.enabled = true;
    let mut world = World::new(&settings);
    world.hosts[0].store.insert(name("source"), content(2500));
    world.put(put_request());
    world.lose(lose_these(&[(1, "ACK"), (1, "Finished")]));
    while !world.transcript().iter().any(|line| line.contains("Finished")) {
        assert!(world.step());
    }
    let lines = world.log.iter().filter(|sent| sent.from == 1);
    let answers: Vec<_> = lines.map(|sent| sent.bytes.clone()).collect();
    assert_eq!(answers.len(), 2, "{:?}", world.transcript());
    // The end of its record is not written at once.
    world.hosts[0].slow = Some(Vec::new());
    let sender = &mut world.hosts[0].engine;
    let overdue = sender.poll_timeout().expect("the EOF waits for its ACK").at;
    world.now = overdue;
    sender.handle_timeout(overdue);
    for answer in &answers {
        sender.handle_input(overdue, Input::Receive(Receive::datagram(PATH, answer)));
    }
    world.drain(0);
    world.work_off(0);
    world.hosts[0].slow = None;
    world.run();
    let lines = world.transcript();
    let ends = lines.iter().filter(|line| line.starts_with("> EOF")).count();
    assert_eq!(ends, 1, "{lines:#?}");
    assert_eq!(world.hosts[1].engine.transactions().count(), 0, "{lines:#?}");
}

/// Busy hosts process several events at once.
#[test]
fn late_hosts_repair_losses() {
    for seed in 0..300 {
        let mut world = World::new(&config(|_| {}));
        let file = content(20_000);
        world.hosts[0].store.insert(name("source"), file.clone());
        world.stalls = Some(Rng::new(seed, "stalls"));
        world.lose(lose_one_in(5, seed));
        world.put(put_request());
        world.run();
        delivered(&world, &file);
    }
}

#[test]
fn every_checksum_type_verifies() {
    use crate::pdu::ChecksumType as Type;
    for checksum in [Type::Modular, Type::Proximity1Crc32, Type::Crc32c, Type::Crc32, Type::Null] {
        for lost in [&[][..], &[(0, "Metadata")], &[(0, "data 3"), (0, "data 17")]] {
            let mut world = World::new(&config(|remote| remote.checksum = checksum));
            let file = content(700_001);
            world.hosts[0].store.insert(name("source"), file.clone());
            world.put(put_request());
            world.lose(lose_these(lost));
            world.run();
            delivered(&world, &file);
        }
    }
}
