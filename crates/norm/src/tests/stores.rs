//! Stores that fail, fill up or are slow, and limits that are reached.

use std::time::Duration;

use engine::{
    Area, EffectError, FileName, Input, MemoryStore, NameError, OpenMode, Rng, StoreEffect, Ticket,
    Time,
};
use session::StoreRefusal;

use crate::message::{Body, Message};

use super::world::{World, content, lose_one_in, name};
use crate::refusal::Refusal;
use crate::{Config, Content, Failure, Indication, Limit, Scheme, profile};

/// Working files that are no longer needed.
fn leftovers(store: &MemoryStore) -> Vec<FileName> {
    store.names(Area::Spool).cloned().collect()
}

fn has_limit(world: &World, limit: Limit) -> bool {
    world.hosts[1].indications.contains(&Indication::LimitReached(limit))
}

/// Runs while stores carry out one effect every `pause`.
fn run_slowly(world: &mut World, pause: Duration) {
    for side in 0..2 {
        world.hosts[side].slow.get_or_insert_default();
    }
    for _ in 0..20_000 {
        let until = world.now + pause;
        world.run_until(until);
        (0..2).for_each(|side| world.work_off(side));
        if (0..2).all(|side| world.hosts[side].engine.objects().count() == 0) {
            break;
        }
    }
    (0..2).for_each(|side| world.make_fast(side));
    world.run();
}

#[test]
fn a_full_store_ends_it_at_both_ends() {
    let mut world = World::with(&Config::default());
    world.hosts[1].store.set_capacity(Some(50_000));
    world.send(&content(200_000));
    world.run();
    let here = world.finished(1).expect("it ended");
    assert!(matches!(here.result, Err(Failure::Storage(_))), "{here:?}");
    let there = world.finished(0).expect("it ended");
    assert_eq!(there.result, Err(Failure::Refused(StoreRefusal::NoSpace)));
    assert_eq!(leftovers(&world.hosts[1].store), []);
}

/// The round trip is 50 ms, and the whole file would take 1.7 s.
#[test]
fn senders_stop_soon_if_no_receiver_can_store_the_file() {
    for label in ["default", "coded"] {
        for lost in [0, 1, 2] {
            let mut world = World::with(&profile(label).expect("it exists"));
            let mut refusals = 0;
            world.lose(move |side, _, datagram| {
                let refuses = side == 1 && is_refusal(datagram);
                refusals += usize::from(refuses);
                refuses && refusals <= lost
            });
            world.hosts[1].store.set_capacity(Some(50_000));
            world.send(&content(2_000_000));
            while world.finished(0).is_none() {
                assert!(world.step(), "{label} {lost}: it does not end");
            }
            let there = world.finished(0).expect("it ended");
            assert_eq!(
                there.result,
                Err(Failure::Refused(StoreRefusal::NoSpace)),
                "{label} {lost}"
            );
            let most = Duration::from_millis(if lost == 0 { 1000 } else { 4000 });
            assert!(world.now < Time::ZERO + most, "{label} {lost}: {}", world.now);
        }
    }
}

fn is_refusal(datagram: &[u8]) -> bool {
    match Message::decode(datagram).expect("nodes send messages").body {
        Body::Ack(ack) => Refusal::find(&ack.others).is_some(),
        Body::Nack(_) | Body::Info(_) | Body::Data(_) | Body::Command(_) | Body::Report(_) => false,
    }
}

#[test]
fn a_file_that_gets_shorter_is_not_sent() {
    for left in [0, 100_000, 299_999] {
        let mut config = Config::default();
        // Otherwise the receiver keeps what it has for a later session.
        config.journal.enabled = false;
        let mut world = World::with(&config);
        world.hosts[0].engine = {
            let mut config = world.hosts[0].engine.config().clone();
            config.limits.buffers.read_ahead = 10_000;
            config.limits.buffers.read_piece = 10_000;
            crate::Node::new(config, Rng::new(9, "norm")).into()
        };
        world.up(0);
        world.send(&content(300_000));
        world.run_until(Time::from_nanos(50_000_000));
        world.hosts[0].store.insert(name("source"), content(left));
        world.run();
        assert_eq!(world.finished(0).expect("it ended").result, Err(Failure::Changed), "{left}");
        let here = world.finished(1).expect("it ended");
        assert_eq!(here.result, Err(Failure::Abandoned), "{left}");
        assert_eq!(leftovers(&world.hosts[1].store), []);
    }
}

#[test]
fn names_of_directories_end_the_transfer() {
    let mut world = World::with(&Config::default());
    let ticket = Ticket(0);
    let request = engine::FilestoreRequest::CreateDirectory(name("copy"));
    world.hosts[1].store.execute(StoreEffect::Filestore { ticket, request });
    world.send(&content(20_000));
    world.run();
    assert!(matches!(world.finished(1).expect("it ended").result, Err(Failure::Storage(_))));
    assert!(world.finished(0).expect("it ended").result.is_err());
    assert_eq!(leftovers(&world.hosts[1].store), []);
}

#[test]
fn unsafe_names_are_refused() {
    for (bad, error) in [
        ("../copy", NameError::Parent),
        ("/etc/passwd", NameError::Absolute),
        ("a/../../b", NameError::Parent),
        (".slowlight/lock", NameError::Reserved),
    ] {
        let mut world = World::with(&Config::default());
        world.hosts[0].store.insert(name("source"), content(5_000));
        world.request(Content::File(name("source")), bad);
        world.run();
        let here = world.finished(1).expect("it ended");
        assert_eq!(here.result, Err(Failure::Name(error)), "{bad}");
        let there = &world.finished(0).expect("the sender was informed").result;
        assert_eq!(*there, Err(Failure::Refused(StoreRefusal::NameRefused)), "{bad}");
        assert_eq!(leftovers(&world.hosts[1].store), [], "{bad}");
    }
}

/// Sends a file between stores whose effects take so many milliseconds, with small buffers.
fn cross_slowly(mut config: Config, millis: u64) -> World {
    config.limits.buffers.write_buffer = 100_000;
    config.limits.buffers.read_ahead = 50_000;
    config.limits.buffers.read_piece = 20_000;
    let mut world = World::with(&config);
    world.lose(lose_one_in(20, millis));
    let file = content(400_000);
    world.send(&file);
    run_slowly(&mut world, Duration::from_millis(millis));
    world.assert_delivered(&file);
    assert_eq!(leftovers(&world.hosts[1].store), []);
    world
}

#[test]
fn slow_stores_only_delay_transfers() {
    for (parity, millis) in [(0, 1), (0, 30), (4, 7), (0, 400)] {
        let mut config = Config::default();
        config.sender.auto_parity = parity;
        cross_slowly(config, millis);
    }
}

#[test]
fn slow_stores_only_delay_coded_transfers() {
    for (millis, block_bytes) in [(1, 1 << 20), (30, 100_000), (400, 30_000)] {
        let mut config = profile("coded").expect("it exists");
        config.sender.block_bytes = block_bytes;
        let world = cross_slowly(config, millis);
        assert!(world.hosts[1].engine.memory() < 1 << 20);
    }
}

#[test]
fn full_stores_fail_coded_transfers() {
    let mut world = World::with(&profile("coded").expect("it exists"));
    world.hosts[1].store.set_capacity(Some(100_000));
    world.lose(lose_one_in(20, 1));
    world.send(&content(400_000));
    world.run();
    let here = world.finished(1).expect("it ended");
    assert!(matches!(here.result, Err(Failure::Storage(_))), "{here:?}");
    assert_eq!(leftovers(&world.hosts[1].store), []);
}

#[test]
fn stalled_stores_hold_the_sender_back() {
    let mut config = Config::default();
    config.limits.buffers.write_buffer = 200_000;
    let mut world = World::with(&config);
    world.hosts[1].slow = Some(Vec::new());
    let file = content(600_000);
    world.send(&file);
    world.run_until(Time::from_secs(1));
    let pauses = |effect: &&StoreEffect| matches!(effect, StoreEffect::Write { .. });
    let written = world.hosts[1].slow.iter().flatten().filter(pauses).count();
    assert_eq!(written, 0, "the file is not open yet");
    assert!(world.hosts[1].engine.memory() < 400_000, "{}", world.hosts[1].engine.memory());
    run_slowly(&mut world, Duration::from_millis(1));
    world.assert_delivered(&file);
}

#[test]
fn small_block_memory_only_costs_repairs() {
    for (auto_parity, loss, fec) in [
        (0, 20, Scheme::ReedSolomon8),
        (0, 3, Scheme::ReedSolomon8),
        (8, 3, Scheme::ReedSolomon8),
        (0, 5, Scheme::NoCode),
        (0, 5, Scheme::ReedSolomonM),
    ] {
        for seed in 0..3 {
            let mut config = Config::default();
            config.sender.fec = fec;
            config.sender.block_len = 20;
            config.sender.parity = 20;
            config.sender.auto_parity = auto_parity;
            // Four blocks of twenty.
            config.limits.assembly = 85_000;
            let world = World::crossed_with(&config, 600_000, lose_one_in(loss, seed));
            let seconds = world.now.as_secs_f64();
            assert!(seconds < 60.0, "{seconds}");
            if loss == 3 && auto_parity == 0 {
                assert!(has_limit(&world, Limit::Assembly));
            }
        }
    }
}

#[test]
fn full_block_memory_does_not_request_received_data_again() {
    for (loss, blocks) in [(20, 8), (3, 5), (3, 6), (2, 5)] {
        let mut config = Config::default();
        (config.sender.block_len, config.sender.parity) = (20, 20);
        config.sender.tail_parity = false;
        config.sender.segment_size = Some(960);
        config.limits.assembly = 20_000 * blocks + 1000;
        let mut world = World::with(&config);
        world.lose(lose_one_in(loss, blocks as u64));
        let file = content(3_000_000);
        world.send(&file);
        let mut most = 0;
        while world.finished(0).is_none() && world.now < Time::from_secs(300) {
            world.run_until(world.now + Duration::from_millis(20));
            most = most.max(world.hosts[1].engine.memory());
        }
        world.run();
        world.assert_delivered(&file);
        assert_eq!(has_limit(&world, Limit::Assembly), loss < 20);
        // No datagram was wasted: as many arrived as the file has segments.
        let stats = world.hosts[1].engine.stats();
        assert_eq!((stats.data_dropped, stats.duplicate_data), (0, 0), "{stats:?}");
        assert_eq!(stats.received.data, 3125);
        assert!(most < config.limits.assembly + (96 << 10), "{most}");
    }
}

#[test]
fn objects_beyond_the_memory_limit_are_refused() {
    let mut config = Config::default();
    config.limits.assembly = 100_000;
    let mut world = World::with(&config);
    world.send(&content(300_000));
    world.run();
    let here = world.finished(1).expect("it ended");
    assert!(matches!(here.result, Err(Failure::Settings(_))), "blocks of 64 segments: {here:?}");
    let mut world = World::with(&Config { limits: config.limits, ..few_segments() });
    world.request(Content::Data(content(60_000).into()), "");
    world.run();
    assert!(matches!(world.finished(1).expect("it ended").result, Err(Failure::Settings(_))));
    assert!(has_limit(&world, Limit::Object));
}

fn few_segments() -> Config {
    let mut config = Config::default();
    (config.sender.block_len, config.sender.parity) = (8, 8);
    config
}

#[test]
fn bytes_wait_for_their_turn() {
    let mut config = few_segments();
    config.limits.assembly = 100_000;
    let mut world = World::with(&config);
    world.lose(lose_one_in(10, 1));
    let bytes = content(30_000);
    for _ in 0..6 {
        world.request(Content::Data(bytes.clone().into()), "");
    }
    world.run();
    let ends = world.hosts[1].indications.iter().filter_map(|indication| match indication {
        Indication::Finished(finished) => Some(finished),
        _ => None,
    });
    let all: Vec<_> = ends.collect();
    assert_eq!(all.len(), 6);
    assert!(all.iter().all(|end| end.data.as_deref() == Some(&bytes[..])));
}

#[test]
fn store_replies_after_the_end_leave_nothing() {
    let mut world = World::with(&Config::default());
    world.hosts[1].slow = Some(Vec::new());
    let id = world.send(&content(100_000));
    world.run_until(Time::from_nanos(60_000_000));
    world.hosts[0].engine.cancel(world.now, id).expect("it is under way");
    world.drain(0);
    world.run_until(Time::from_secs(3));
    assert!(world.finished(1).expect("it ended").result.is_err());
    for _ in 0..4 {
        world.work_off(1);
    }
    world.hosts[1].slow = None;
    world.run();
    assert_eq!(leftovers(&world.hosts[1].store), []);
}

#[test]
fn every_failed_effect_is_reported() {
    for side in 0..2 {
        for failing in 0..30 {
            let mut world = World::with(&few_segments());
            world.hosts[side].slow = Some(Vec::new());
            world.send(&content(40_000));
            let mut done = 0;
            for _ in 0..400 {
                world.run_until(world.now + Duration::from_millis(5));
                let effects = world.hosts[side].slow.replace(Vec::new()).expect("it is slow");
                for effect in effects {
                    let ticket = effect.ticket().filter(|_| done == failing);
                    done += usize::from(effect.ticket().is_some());
                    match ticket {
                        Some(ticket) => {
                            let error = Err(EffectError::Failed("broken".to_owned()));
                            world.input(side, Input::Done(ticket, error));
                        }
                        None => {
                            world.hosts[side].slow.as_mut().expect("slow").push(effect);
                            world.work_off(side);
                        }
                    }
                }
            }
            world.hosts[side].slow = None;
            world.run();
            for end in 0..2 {
                assert_eq!(world.hosts[end].engine.objects().count(), 0, "{side} {failing}");
                let is_begun = world.hosts[end]
                    .indications
                    .iter()
                    .any(|indication| matches!(indication, Indication::Started { .. }));
                assert_eq!(world.finished(end).is_some(), is_begun, "{side} {failing}");
            }
            let is_there = world.hosts[1].store.get(&name("copy")).is_some();
            let is_confirmed = world.finished(0).expect("it ended").is_confirmed;
            assert!(is_there || !is_confirmed, "{side} {failing}");
        }
    }
}

#[test]
fn open_modes_preserve_existing_files() {
    // An existing file is replaced only by a complete one.
    let mut world = World::with(&Config::default());
    world.hosts[1].store.insert(name("copy"), b"before".to_vec());
    world.lose(|side, number, _| side == 0 && number > 20);
    world.send(&content(100_000));
    world.run();
    assert_eq!(world.hosts[1].store.get(&name("copy")), Some(&b"before"[..]));
    let ticket = Ticket(0);
    let open = StoreEffect::Open { ticket, name: name("copy"), mode: OpenMode::Read };
    assert!(world.hosts[1].store.execute(open).is_some());
}

#[test]
fn smaller_path_mtu_ends_the_transfer() {
    let mut world = World::with(&Config::default());
    world.send(&content(300_000));
    world.run_until(Time::from_nanos(60_000_000));
    world.hops[0].info.kind = engine::PathKind::Datagram { mtu: 500 };
    (0..2).for_each(|side| world.up(side));
    world.run();
    assert!(matches!(world.finished(0).expect("it ended").result, Err(Failure::Settings(_))));
    assert_eq!(world.finished(1).expect("it ended").result, Err(Failure::Abandoned));
}

#[test]
fn the_coding_is_announced_somewhere() {
    for info in ["", "copy"] {
        for lost in [false, true] {
            let mut config = Config::default();
            config.sender.fti_in_data = false;
            let mut world = World::with(&config);
            world.lose(move |side, number, _| lost && side == 0 && number == 1);
            let bytes = content(20_000);
            world.request(Content::Data(bytes.clone().into()), info);
            world.run();
            let end = world.finished(1).expect("it ended");
            assert!(end.data.as_deref() == Some(&bytes[..]), "{:#?}", world.transcript());
            assert!(world.finished(0).expect("it ended").is_confirmed);
        }
    }
}

#[test]
fn objects_with_wrong_fec_information_are_given_up() {
    use crate::message::{Body, Message};

    let mut world = World::with(&Config::default());
    world.lose(|side, number, datagram| {
        // NORM_INFO, the first message with the FEC information, arrives damaged.
        if (side, number) == (0, 1) {
            let message = Message::decode(datagram).expect("nodes send messages");
            let Body::Info(mut info) = message.body else { panic!("{message}") };
            let fti = info.fti.as_mut().expect("it is reported");
            fti.block_len = 63;
            let damaged = Message { body: Body::Info(info), ..message };
            *datagram = damaged.to_vec().expect("a message");
        }
        false
    });
    world.send(&content(300_000));
    world.run();
    let end = world.finished(1).expect("it ended");
    assert!(matches!(end.result, Err(Failure::Settings(_))), "{end:?}");
    assert!(world.finished(0).expect("it ended").result.is_err());
}

#[test]
fn a_working_file_that_is_being_opened_is_deleted_after_that() {
    let mut config = Config::default();
    config.journal.enabled = false;
    let mut world = World::with(&config);
    world.hosts[1].slow = Some(Vec::new());
    world.send(&content(20_000));
    // Everything has arrived after 16 ms at 10 Mbit/s and 25 ms of delay.
    world.run_until(Time::from_nanos(60_000_000));
    let waiting = |world: &World| world.hosts[1].slow.as_ref().map_or(0, Vec::len);
    assert_eq!(waiting(&world), 1, "the file is being opened");
    let id = world.hosts[1].engine.objects().next().expect("it is under way").id;
    world.hosts[1].engine.cancel(world.now, id).expect("it is under way");
    world.drain(1);
    assert_eq!(waiting(&world), 1, "to delete it may come before that");
    while waiting(&world) > 0 {
        world.work_off(1);
    }
    assert_eq!(leftovers(&world.hosts[1].store), []);
}
