//! A stream path: partial writes, half close, TLS, garbage from a peer.

use slowlight_engine::{PathEvent, PathId, PathInfo};

use crate::framed::{Framed, Security, messages, received};
use crate::world::{Note, TICK, World};

const PATH: PathId = PathId(4);
const LENGTHS: [usize; 5] = [10, 0, 70_000, 1, 3_000];

fn pair(client: Framed, server: Framed, capacity: usize, piece: usize) -> (World, usize) {
    let mut world = World::default();
    let (client, server) = (world.add(client), world.add(server));
    let stream = world.stream([(client, PATH), (server, PATH)], capacity, piece);
    (world, stream)
}

fn up_and_run(world: &mut World) {
    for node in 0..2 {
        world.up(node, PATH, PathInfo::stream());
    }
    world.run();
}

#[test]
fn messages_cross_however_the_stream_is_cut() {
    let (to, back) = (messages(&LENGTHS), messages(&[5, 20_000]));
    // A kernel buffer of 100 bytes takes part of each write; pieces of 1 byte split each frame.
    for (capacity, piece) in [(100, 7), (1, 1), (1 << 20, 65_536), (4_096, 10_000)] {
        let client = Framed::new(PATH, Security::Plain, &to);
        let server = Framed::new(PATH, Security::Plain, &back);
        let (mut world, _) = pair(client, server, capacity, piece);
        up_and_run(&mut world);
        assert_eq!(received(&world.nodes[1].notes), to, "{capacity} {piece}");
        assert_eq!(received(&world.nodes[0].notes), back, "{capacity} {piece}");
        for node in &world.nodes {
            assert!(node.notes.contains(&Note::PeerDone), "half close comes after the bytes");
            assert_eq!(node.notes.last(), Some(&Note::Done));
        }
    }
}

#[test]
fn tls_gets_early_bytes() {
    let to = messages(&LENGTHS);
    for slow in [1, 5, 50] {
        let client = Framed::new(PATH, Security::Tls(Some("peer.example")), &to);
        let server = Framed::new(PATH, Security::Tls(None), &[]);
        let (mut world, stream) = pair(client, server, 1 << 16, 1 << 16);
        // The server reads so late that one piece holds the client's greeting and, behind it, the
        // client's hello.
        world.slow(stream, 0, TICK * slow);
        up_and_run(&mut world);
        for node in &world.nodes {
            assert_eq!(node.notes[0], Note::Secured(vec!["peer.example".into()]), "{slow}");
        }
        // The server has nothing to send and shuts down only once the stream is secure.
        assert_eq!(received(&world.nodes[1].notes), to);
    }
}

#[test]
fn a_connection_that_breaks_is_indicated_once() {
    let client = Framed::new(PATH, Security::Plain, &messages(&[500_000 / 6]));
    let server = Framed::new(PATH, Security::Plain, &messages(&[10]));
    let (mut world, _) = pair(client, server, 100, 100);
    world.notify_at(world.now + TICK * 20, 1, PATH, PathEvent::Down);
    world.notify_at(world.now + TICK * 20, 0, PATH, PathEvent::Down);
    for node in 0..2 {
        world.up(node, PATH, PathInfo::stream());
    }
    world.run();
    for node in &world.nodes {
        let downs = node.notes.iter().filter(|note| **note == Note::Down(PATH)).count();
        assert_eq!(downs, 1);
        assert!(!node.notes.contains(&Note::Done));
    }
}

#[test]
fn a_frame_too_long_closes_the_path() {
    let client = Framed::new(PATH, Security::Plain, &messages(&[100_001]));
    let server = Framed::new(PATH, Security::Plain, &messages(&[10]));
    let (mut world, _) = pair(client, server, 1_000, 1_000);
    up_and_run(&mut world);
    assert_eq!(world.nodes[1].notes, [Note::Failed]);
    assert!(world.nodes[0].notes.contains(&Note::Down(PATH)));
}
