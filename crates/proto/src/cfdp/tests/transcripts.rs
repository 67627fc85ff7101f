//! Conversations with exact losses.

use wire::cfdp::{ConditionCode, DeliveryCode, FileStatus};

use super::world::{World, config, content, lose_these, name, put_request};

fn delivered(world: &World, file: &[u8]) {
    assert_eq!(world.sides[1].store.get(&name("copy")), Some(file), "{:#?}", world.transcript());
    for side in 0..2 {
        let finished = world.finished(side).expect("it ended");
        assert_eq!(finished.condition, ConditionCode::NoError);
        assert_eq!(finished.delivery, DeliveryCode::Complete);
        assert_eq!(finished.file_status, FileStatus::Retained);
        assert_eq!(world.sides[side].engine.transactions().count(), 0);
    }
}

#[test]
fn class_2_without_loss() {
    let mut world = World::new(&config(|_| {}));
    let file = content(2500);
    world.sides[0].store.insert(name("source"), file.clone());
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
        world.sides[0].store.insert(name("source"), file.clone());
        world.put(put_request());
        world.lose = lose_these(lost);
        world.run();
        delivered(&world, &file);
        assert!(world.now.as_secs_f64() < 1.0, "{lost:?} took {}", world.now);
    }
}

#[test]
fn every_checksum_type_verifies() {
    use wire::cfdp::ChecksumType as Type;
    for checksum in [Type::Modular, Type::Proximity1Crc32, Type::Crc32c, Type::Crc32, Type::Null] {
        for lost in [&[][..], &[(0, "Metadata")], &[(0, "data 3"), (0, "data 17")]] {
            let mut world = World::new(&config(|remote| remote.checksum = checksum));
            let file = content(700_001);
            world.sides[0].store.insert(name("source"), file.clone());
            world.put(put_request());
            world.lose = lose_these(lost);
            world.run();
            delivered(&world, &file);
        }
    }
}
