//! What is said, packet by packet, with chosen losses.

use super::world::{User, World, content, finished, lose};
use crate::tcp::{Backlog, Options};

fn sending(len: usize) -> User {
    User { content: content(len), ..User::default() }
}

/// The first host sends so much to the second, which closes when it has it all.
fn transfer(options: Options, len: usize, fate: super::world::Fate) -> World {
    let mut world = World::plain(1);
    world.fate = fate;
    world.hosts[1].template.waits_for_peer = true;
    world.listen(options.clone(), Backlog::default());
    world.connect(options, sending(len));
    world.run();
    world
}

#[test]
fn a_few_octets_and_the_end() {
    let world = transfer(Options::default(), 100, lose(&[], &[]));
    finished(&world).unwrap();
    assert_eq!(
        world.lines(),
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
    let count = |host| clean.log.iter().filter(|(_, from, ..)| *from == host).count();
    for host in 0..2 {
        for number in 0..count(host) {
            let fate: super::world::Fate = Box::new(move |passing| {
                let lost = passing.from == host && passing.number == number;
                if lost { Vec::new() } else { vec![std::time::Duration::ZERO] }
            });
            let world = transfer(Options::default(), 60_000, fate);
            finished(&world).unwrap_or_else(|error| panic!("{host} {number}: {error}"));
        }
    }
}
