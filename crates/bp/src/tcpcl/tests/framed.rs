//! MTCP and STCP.

use super::*;
use crate::tcpcl::{Framing, Protocol};

fn framed(framing: Framing) -> [Config; 2] {
    let speak = |config: Config| Config { protocol: Protocol::Framed(framing), ..config };
    [speak(active(1)), speak(config(2))]
}

#[test]
fn a_bundle_follows_its_length() {
    let prefixes: [(Framing, &[u8], &[u8]); 2] = [
        (Framing::Mtcp, &[0x47], &[0x59, 0x03, 0xed]),
        (Framing::Stcp, &[0, 0, 0, 7], &[0, 0, 3, 0xed]),
    ];
    for (framing, short, long) in prefixes {
        let mut world = World::established(framed(framing), 1);
        world.send(1, Content::Bytes(bytes(2).into()));
        world.send(2, Content::Bytes(bytes(1000).into()));
        world.settle();
        assert_eq!(world.sent[0], [short, &whole(2), long, &whole(1000)].concat());
        assert_eq!(world.sent[1], b"");
        assert_eq!(world.came(1), [whole(2), whole(1000)]);
        assert_eq!(world.outcomes(), [(1, Outcome::Left), (2, Outcome::Left)]);
    }
}

#[test]
fn a_bundle_leaves_when_its_last_byte_does() {
    let mut world = World::established(framed(Framing::Mtcp), 1);
    let name = FileName::spool("bp/1").unwrap();
    world.ends[0].store.insert(name.clone(), bytes(1_000_000));
    world.event(0, PathEvent::Blocked);
    world.send(1, Content::File { name, offset: 0, len: 1_000_000 });
    world.send(2, Content::Bytes(bytes(300_000).into()));
    assert_eq!(world.outcomes(), []);
    world.event(0, PathEvent::Writable);
    assert_eq!(world.outcomes(), [(1, Outcome::Left), (2, Outcome::Left)]);
    world.settle();
    assert!(world.came(1) == [whole(1_000_000), whole(300_000)]);
}

#[test]
fn unsent_bundles_fail_when_the_stream_breaks() {
    let mut world = World::established(framed(Framing::Stcp), 1);
    world.send(1, Content::Bytes(bytes(10).into()));
    world.event(0, PathEvent::Blocked);
    world.send(2, Content::Bytes(bytes(10).into()));
    world.down();
    let failed = Outcome::Failed { acknowledged: 0 };
    assert_eq!(world.outcomes(), [(1, Outcome::Left), (2, failed)]);
    // It reconnects and continues.
    world.pass(Duration::from_secs(1));
    assert_eq!(world.wires[0].opened, 2);
    world.connect();
    world.send(3, Content::Bytes(bytes(20).into()));
    world.settle();
    assert_eq!(world.came(1).last(), Some(&whole(20)));
}

#[test]
fn the_listening_side_sends_nothing() {
    let mut world = World::established(framed(Framing::Mtcp), 1);
    let Some(Event::Up { link, neighbour }) = world.ends[1].events.first().cloned() else {
        panic!("nobody came");
    };
    assert_eq!((neighbour.node, neighbour.bundle_max), (None, 0));
    let (head, tail) = (Bytes::from_static(b"x"), Bytes::new());
    let payload = Content::Bytes(Bytes::new());
    let bundle = Outgoing { head, payload, tail, reliable: true, identity: None };
    world.command(1, Command::Send { link, tag: Tag(1), bundle });
    let failed = Outcome::Failed { acknowledged: 0 };
    let sent = Event::Sent { link, tag: Tag(1), outcome: failed };
    assert_eq!(world.ends[1].events.last(), Some(&sent));
}

#[test]
fn keepalives_are_optional_and_no_bundles() {
    for (framing, sign) in [(Framing::Mtcp, &[0x40][..]), (Framing::Stcp, &[0; 4])] {
        let mut world = World::established(framed(framing), 1);
        world.pass(Duration::from_secs(100));
        assert_eq!(world.sent[0], [sign; 3].concat());
        assert_eq!(world.came(1).len(), 0);
        assert!(world.ends[1].layer.poll_timeout().is_none());
        world.wires[1].is_up = false;
        world.pass(Duration::from_secs(1000));
        assert!(!world.is_down(1));
    }
}

#[test]
fn a_refused_bundle_is_discarded_alone() {
    let [a, b] = framed(Framing::Stcp);
    let mut world = World::established([a, Config { transfer_mru: 1000, ..b }], 1);
    world.send(1, Content::Bytes(bytes(1000).into()));
    world.send(2, Content::Bytes(bytes(100).into()));
    world.settle();
    assert_eq!(world.came(1), [whole(100)]);
    assert!(!world.ends[1].events.iter().any(|event| matches!(event, Event::PeerFault { .. })));
    // A contact that ends lets transfers in progress complete.
    world.event(0, PathEvent::Blocked);
    world.send(3, Content::Bytes(bytes(900).into()));
    let writable = Input::Path(ACTIVE, PathEvent::Writable);
    world.ends[0].layer.handle_input(world.now, writable);
    world.command(0, Command::Close { link: LINK });
    world.settle();
    assert_eq!(world.outcomes().last(), Some(&(3, Outcome::Left)));
    assert_eq!(world.came(1).last(), Some(&whole(900)));
    assert!(world.is_down(0) && world.is_down(1));
    assert!(world.ends.iter().all(|end| end.layer.poll_timeout().is_none()));
}

#[test]
fn an_invalid_length_ends_the_stream() {
    let mut world = World::established(framed(Framing::Mtcp), 1);
    world.receive(1, &[0x64]);
    assert!(world.ends[1].events.iter().any(|event| matches!(event, Event::PeerFault { .. })));
    assert!(!world.wires[1].is_up);
}

proptest! {
    /// Random bytes cause no panic.
    #[test]
    fn random_bytes_cause_no_panic(bytes in prop::collection::vec(any::<u8>(), 0..300), cut in 1usize..40, is_mtcp: bool) {
        let framing = if is_mtcp { Framing::Mtcp } else { Framing::Stcp };
        let mut world = World::established(framed(framing), 1);
        for piece in bytes.chunks(cut) {
            let receive = Receive::datagram(PASSIVE, piece);
            world.ends[1].layer.handle_input(world.now, Input::Receive(receive));
        }
        world.drain(1);
    }
}
