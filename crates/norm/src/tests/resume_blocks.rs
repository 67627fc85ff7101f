//! Files with short blocks whose sender or receiver is killed and restarted.

use std::time::Duration;

use engine::Rng;
use proptest::prelude::*;
use proptest::test_runner::RngSeed;

use super::resume::{Interrupted, RECEIVER, SENDER, op, survive};
use super::world::{World, content, lose_one_in, name};
use crate::message::{Body, Message};
use crate::{Config, Content, Indication, Node};

/// Bytes of a file.
const SIZE: usize = 2_000_000;

/// Share of a file in a round trip of 50 ms at 10 Mbit/s, and in a record of the receiver.
const ROUND_TRIP: f64 = 62_500.0 / SIZE as f64;
const RECORD: f64 = 65_536.0 / SIZE as f64;

/// Share of the file to send after this share, with headers of 4 % and losses of 2 %.
fn lacking(sent: f64) -> f64 {
    (1.0 - sent / 1.04) * 1.07 + 0.02
}

#[test]
fn restarted_senders_leave_out_what_arrived() {
    for share in [0.1, 0.5, 0.95] {
        for seed in 0..4 {
            let mut it = Interrupted::new(Config::default(), SIZE, lose_one_in(50, seed));
            it.run_to(share);
            it.restart(SENDER);
            let sent = it.finish();
            let most = lacking(share) + ROUND_TRIP / 2.0;
            assert!(sent < most, "{share} {seed}: {sent} of {most}: {:#?}", it.control());
        }
    }
}

#[test]
fn restarted_receivers_keep_what_was_recorded() {
    for share in [0.2, 0.5, 0.95] {
        for seed in 0..4 {
            let mut it = Interrupted::new(Config::default(), SIZE, lose_one_in(50, seed));
            it.run_to(share);
            it.restart(RECEIVER);
            let sent = it.finish();
            // What was sent and not recorded, and what was under way.
            let lost = RECORD + 1.5 * ROUND_TRIP;
            let most = lacking(share) + lost;
            assert!(sent < most, "{share} {seed}: {sent} of {most}: {:#?}", it.control());
        }
    }
}

#[test]
fn both_sides_may_restart_at_once() {
    for seed in 0..4 {
        let mut it = Interrupted::new(Config::default(), SIZE, lose_one_in(50, seed));
        it.run_to(0.6);
        it.restart(RECEIVER);
        it.restart(SENDER);
        let sent = it.finish();
        assert!(sent < lacking(0.6) + RECORD + 1.5 * ROUND_TRIP, "{seed}: {sent}");
    }
}

/// The acknowledgement of a stored file is lost.
#[test]
fn stored_files_are_not_sent_again() {
    for (config, is_coded) in [(Config::default(), false), (super::resume::coded(), true)] {
        for sides in [&[SENDER][..], &[RECEIVER], &[SENDER, RECEIVER]] {
            let mut it = Interrupted::new(config.clone(), SIZE, Box::new(|_, _, _| false));
            it.run_to(0.9);
            it.world.lose(|side, _, _| side == RECEIVER);
            while it.world.hosts[RECEIVER].store.get(&name("copy")).is_none() {
                assert!(it.world.step(), "it ended");
            }
            it.world.lose(|_, _, _| false);
            sides.iter().for_each(|side| it.restart(*side));
            let sent = it.finish();
            assert!(sent < 0.01, "{is_coded} {sides:?}: {sent}: {:#?}", it.control());
        }
    }
}

/// The replies to several restarted senders are lost.
#[test]
fn stored_files_are_known_after_every_restart() {
    for config in [Config::default(), super::resume::coded()] {
        let mut it = Interrupted::new(config, SIZE, Box::new(|_, _, _| false));
        it.run_to(0.9);
        it.world.lose(|side, _, _| side == RECEIVER);
        while it.world.hosts[RECEIVER].store.get(&name("copy")).is_none() {
            assert!(it.world.step(), "it ended");
        }
        for _ in 0..3 {
            it.restart(SENDER);
            it.world.run_until(it.world.now + Duration::from_millis(300));
        }
        it.world.lose(|_, _, _| false);
        it.restart(SENDER);
        let sent = it.finish();
        assert!(sent < 0.01, "{sent}: {:#?}", it.control());
    }
}

/// A restarted sender names two files, and the receiver has nothing of the first one.
#[test]
fn files_that_did_not_arrive_do_not_hide_others() {
    let config = Config::default();
    let mut world = World::with(&config);
    world.hops[0].info.owlt = Some(Duration::from_secs(1));
    (0..2).for_each(|side| world.up(side));
    let files = [content(200_000), content(300_000)];
    let request = |world: &mut World| {
        for number in 0..files.len() {
            let source = Content::File(name(&format!("source-{number}")));
            world.request(source, &format!("copy-{number}"));
        }
    };
    for (number, file) in files.iter().enumerate() {
        world.hosts[SENDER].store.insert(name(&format!("source-{number}")), file.clone());
    }
    let mut first = None;
    world.lose(move |side, number, datagram| {
        let message = Message::decode(datagram).expect("nodes send messages");
        let Body::Data(data) = message.body else { return side == RECEIVER };
        *first.get_or_insert(data.object) == data.object || number % 20 == 0
    });
    request(&mut world);
    world.run_until(world.now + Duration::from_secs(4));
    world.lose(|_, _, _| false);
    world.log.clear();
    world.replace(SENDER, Node::new(Config { node: 77, ..config }, Rng::new(77, "norm")));
    request(&mut world);
    world.run();
    for (number, file) in files.iter().enumerate() {
        let found = world.hosts[RECEIVER].store.get(&name(&format!("copy-{number}")));
        assert!(found == Some(&file[..]), "{number}");
    }
    let sent = world.log.iter().filter(|sent| sent.from == SENDER);
    let sent: usize = sent.map(|sent| sent.bytes.len()).sum();
    assert!(sent < 240_000, "{sent}");
}

/// The receiver has parts of two files and all of a third one.
#[test]
fn restarted_receivers_remember_the_objects_of_a_session() {
    for config in [Config::default(), super::resume::coded()] {
        let mut world = World::with(&config);
        let files: Vec<_> = (1..=4).map(|n| content(150_000 * n)).collect();
        for (number, file) in files.iter().enumerate() {
            let source = format!("source-{number}");
            world.hosts[SENDER].store.insert(name(&source), file.clone());
            world.request(Content::File(name(&source)), &format!("copy-{number}"));
        }
        // The first object is not confirmed, and the second one lacks some segments.
        let from = 170;
        world.lose(move |side, number, _| {
            side == RECEIVER || side == SENDER && number > from && number % 20 == 0
        });
        world.run_until(world.now + Duration::from_millis(600));
        assert!(world.hosts[RECEIVER].store.get(&name("copy-0")).is_some());
        assert!(world.hosts[RECEIVER].store.get(&name("copy-1")).is_none());
        world.lose(|_, _, _| false);
        world.log.clear();
        world.replace(RECEIVER, Node::new(Config { node: 77, ..config }, Rng::new(77, "norm")));
        world.run();
        for (number, file) in files.iter().enumerate() {
            let found = world.hosts[RECEIVER].store.get(&name(&format!("copy-{number}")));
            assert!(found == Some(&file[..]), "{number}");
        }
        let ends = world.hosts[SENDER].indications.iter().filter_map(|it| match it {
            Indication::Finished(end) => Some(end),
            _ => None,
        });
        let ends: Vec<_> = ends.collect();
        assert!(ends.len() == files.len() && ends.iter().all(|end| end.is_confirmed), "{ends:#?}");
    }
}

/// NORM_INFO of the restarted sender is lost, then also its first flush.
#[test]
fn lost_messages_of_a_restarted_sender_cost_little() {
    for lost in [&[0][..], &[1], &[2], &[0, 1], &[0, 1, 2]] {
        let mut it = Interrupted::new(Config::default(), 200_000, Box::new(|_, _, _| false));
        it.run_to(0.6);
        let mut number = 0;
        it.world.lose(move |side, _, _| {
            let is_lost = side == SENDER && lost.contains(&number);
            number += usize::from(side == SENDER);
            is_lost
        });
        it.restart(SENDER);
        let sent = it.finish();
        assert!(sent < 0.45, "{lost:?}: {sent}: {:#?}", it.control());
    }
}

/// The receiver does not join parts of different files, which no digest tells apart.
#[test]
fn senders_without_a_record_begin_again() {
    let mut it = Interrupted::new(Config::default(), SIZE, Box::new(|_, _, _| false));
    it.run_to(0.6);
    it.file = content(SIZE);
    it.file[1000] ^= 1;
    it.world.hosts[SENDER].store = engine::MemoryStore::new();
    it.world.hosts[SENDER].store.insert(name("source"), it.file.clone());
    it.restart(SENDER);
    it.world.run();
    assert!(it.world.hosts[RECEIVER].store.get(&name("copy")) == Some(&it.file[..]));
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 150,
        failure_persistence: None,
        rng_seed: RngSeed::Fixed(26),
        ..ProptestConfig::default()
    })]

    #[test]
    fn random_kills_of_plain_transfers_end_with_the_right_file(
        ops in prop::collection::vec(op(), 1..12),
        size in prop_oneof![1..20_000_usize, 200_000..900_000_usize],
        block_len in 2..80_u16,
        seed in any::<u64>(),
    ) {
        survive(Config::default(), &ops, size, (block_len, seed));
    }
}

/// A file in blocks with proactive parity, whose receiver restarts under its number at any moment.
#[test]
fn receivers_restart_at_any_moment() {
    for steps in 1..200 {
        let mut config = Config::default();
        let sender = &mut config.sender;
        (sender.block_len, sender.parity, sender.auto_parity) = (4, 3, 1);
        sender.segment_size = Some(200);
        let mut it = Interrupted::new(config, 6_000, Box::new(|_, _, _| false));
        for _ in 0..steps {
            it.world.step();
        }
        if it.world.finished(SENDER).is_some() {
            return;
        }
        it.restart_as(RECEIVER, 8472);
        it.world.run_until(it.world.now + Duration::from_secs(20));
        let finished = it.world.finished(SENDER);
        assert!(
            finished.is_some_and(|end| end.is_confirmed),
            "{steps}: {:#?}",
            it.world.transcript()
        );
    }
}
