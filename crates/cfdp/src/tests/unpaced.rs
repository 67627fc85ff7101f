//! Sender without a rate, limited by its receiver's reported progress.

use std::time::Duration;

use engine::PathInfo;

use super::world::{Line, World, config, content, name, put_request};

const WINDOW: u64 = 20_000;

/// A world without a rate in which `file` is being sent in batches of eight.
fn world(file: &[u8]) -> World {
    let owlt = Some(Duration::from_millis(5));
    let info = PathInfo { owlt, ..PathInfo::datagram(1024) };
    let config = config(|remote| remote.unpaced_window = Some(WINDOW));
    let mut world = World::with_path(&config, info);
    world.batch = 8;
    world.hosts[0].store.insert(name("source"), file.to_vec());
    world
}

fn arrived(world: &World, file: &[u8]) -> bool {
    world.hosts[1].store.get(&name("copy")) == Some(file)
}

/// Maximum distance of new data ahead of the Keep Alives received.
fn furthest_ahead(world: &World) -> u64 {
    let mut keep_alives: Vec<(engine::Time, u64)> = Vec::new();
    let mut most = 0;
    for Line { at, from, text, lost } in &world.datagrams() {
        if let Some(progress) = text.strip_prefix("Keep Alive ").filter(|_| !lost) {
            keep_alives.push((*at + Duration::from_millis(5), progress.parse().expect("a number")));
        } else if let Some((offset, len)) =
            text.strip_prefix("data ").filter(|_| *from == 0).and_then(|data| data.split_once('+'))
        {
            let known = keep_alives
                .iter()
                .rev()
                .find(|(received, _)| received <= at)
                .map_or(0, |last| last.1);
            let end: u64 = offset.parse::<u64>().expect("a number") + len.parse::<u64>().unwrap();
            most = most.max(end.saturating_sub(known));
        }
    }
    most
}

#[test]
fn new_data_waits_for_the_receiver() {
    let file = content(300_000);
    let mut world = world(&file);
    world.put(put_request());
    world.run();
    assert!(arrived(&world, &file));
    let ahead = furthest_ahead(&world);
    assert!((WINDOW..WINDOW + 1024).contains(&ahead), "{ahead}");
    // At least a quarter of the window each 10 ms round trip, at most all of it.
    let finished = world.datagrams().into_iter().find(|line| line.text.starts_with("Finished"));
    let took = finished.expect("it is reported").at.since(engine::Time::ZERO);
    assert!(took >= Duration::from_millis(140) && took < Duration::from_millis(700), "{took:?}");
}

#[test]
fn receivers_that_ignore_prompts_still_get_the_file() {
    let file = content(300_000);
    let mut world = world(&file);
    world.put(put_request());
    world.lose(|side, _, datagram| {
        side == 1
            && matches!(
                crate::pdu::Pdu::decode(datagram).map(|pdu| pdu.body),
                Ok(crate::pdu::Body::KeepAlive(_))
            )
    });
    world.run();
    assert!(arrived(&world, &file));
    let prompts =
        world.datagrams().into_iter().filter(|line| line.text.starts_with("Prompt")).count();
    assert!((4..=20).contains(&prompts), "{prompts}");
    let eof =
        world.datagrams().into_iter().find(|line| line.text.starts_with("EOF")).expect("an end");
    assert!(eof.at.since(engine::Time::ZERO) < Duration::from_secs(1), "{:?}", eof.at);
}

#[test]
fn lost_data_and_lost_replies_end_no_transfer() {
    for every in [2, 3, 5, 10] {
        let file = content(300_000);
        let mut world = world(&file);
        world.put(put_request());
        world.lose(move |_, number, _| number % every == every - 1);
        world.run();
        assert!(arrived(&world, &file), "every {every}th lost: {:#?}", world.transcript());
    }
}

#[test]
fn suspended_senders_keep_their_window() {
    let file = content(300_000);
    let mut world = world(&file);
    let id = world.put(put_request());
    world.run_until(engine::Time::ZERO + Duration::from_millis(30));
    let now = world.now;
    world.hosts[0].engine.suspend(now, id).expect("it can");
    world.run_until(now + Duration::from_secs(2));
    world.hosts[0].engine.resume(world.now, id).expect("it can");
    world.drain(0);
    world.run();
    assert!(arrived(&world, &file));
}
