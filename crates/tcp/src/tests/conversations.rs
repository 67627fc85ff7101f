//! Transcripts, packet by packet, with chosen losses.

use std::time::Duration;

use super::world::{User, World, content, finished, lose};
use crate::cc::Algorithm;
use crate::test_world::Losses;
use crate::{Backlog, Options};

fn sending(len: usize) -> User {
    User { content: content(len), ..User::default() }
}

/// Sends `len` bytes from the first host to the second, which closes when it has everything.
fn transfer(options: Options, len: usize, losses: Losses) -> World {
    let mut world = World::plain(1);
    world.lose(losses);
    world.hosts[1].engine.template.waits_for_peer = true;
    world.listen(options.clone(), Backlog::default());
    world.connect(options, sending(len));
    world.run();
    world
}

#[test]
fn short_transfers_complete_and_close() {
    let world = transfer(Options::default(), 100, lose(&[], &[]));
    finished(&world).unwrap();
    assert_eq!(
        world.transcript(),
        [
            "> SYN 0+0",
            "< SYN 0+0 ack 1",
            "> 1+0 ack 1",
            "> FIN 1+100 ack 1",
            "< FIN 1+0 ack 102",
            "> 102+0 ack 2",
        ]
    );
}

#[test]
fn any_one_packet_may_be_lost() {
    let clean = transfer(Options::default(), 60_000, lose(&[], &[]));
    let count = |host| clean.log.iter().filter(|sent| sent.from == host).count();
    for host in 0..2 {
        for number in 0..count(host) {
            let losses: Losses = Box::new(move |from, n, _| (from, n) == (host, number));
            let world = transfer(Options::default(), 60_000, losses);
            finished(&world).unwrap_or_else(|error| panic!("{host} {number}: {error}"));
        }
    }
}

/// Twenty turns of 500 bytes, each after the reply to the previous one, do not indicate a slow
/// path: later data starts as on a new connection. 1 MB in windows that double from 10 segments
/// takes seven round trips of 2 s.
#[test]
fn dialogues_do_not_lower_the_rate_estimate() {
    const TURNS: usize = 20;
    let options = Options { congestion: Algorithm::Bbr, nagle: false, ..Options::default() };
    let mut world = World::plain(1);
    world.line().delay = Duration::from_secs(1);
    world.line().rate_bps = Some(20_000_000);
    world.hosts[1].engine.template.waits_for_peer = true;
    world.listen(options.clone(), Backlog::default());
    let all = content(TURNS * 500 + 1_000_000);
    let first = User { content: all[..500].to_vec(), closes: false, ..User::default() };
    let id = world.connect(options, first);
    world.run_for(Duration::from_millis(4500));
    for turn in 1..=TURNS {
        let end = if turn < TURNS { (turn + 1) * 500 } else { all.len() };
        let user = world.hosts[0].engine.users.get_mut(&id).expect("it is there");
        user.content = all[..end].to_vec();
        user.closes = turn == TURNS;
        world.use_connection(0, id);
        if turn < TURNS {
            world.run_for(Duration::from_millis(2500));
        }
    }
    let started = world.now;
    world.run();
    finished(&world).unwrap();
    let took =
        world.hosts[1].engine.users.values().next().and_then(|user| user.closed).expect("closed").0;
    assert!(took.since(started) < Duration::from_secs(24), "{:?}", took.since(started));
}
