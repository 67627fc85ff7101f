//! Requirements of RFC 9174 on messages, by their bytes.

use crate::codec::tcpcl4::{Bounds, Message, transfer_length};

use super::admission::{FAR, HEADER, Host, NEAR, guarded, init, segment};
use super::*;
use crate::admission::Strangers;

/// A session of the neighbour.
fn session() -> Host {
    let mut host = Host::new(guarded(Strangers::Receive));
    host.session(10, NEAR, "ipn:2.0");
    assert_eq!(host.ups().len(), 1);
    host
}

/// SESS_INIT of the neighbour with an extension item of an unknown type.
fn extended(flags: u8) -> Vec<u8> {
    let mut bytes = init("ipn:2.0");
    bytes.truncate(bytes.len() - 4);
    bytes.extend([0, 0, 0, 5, flags, 0x12, 0x34, 0, 0]);
    bytes
}

/// Requirements: V13.
#[test]
fn messages_of_unknown_types_and_unexpected_ones_are_rejected() {
    // MSG_REJECT with the reason and the first byte of the message.
    for (bytes, reject) in [(&[0x99][..], [6, 1, 0x99]), (&init("ipn:2.0"), [6, 3, 7])] {
        let mut host = session();
        host.receive(10, bytes);
        assert_eq!((host.last(10, 3), host.is_closed(10)), (&reject[..], true));
    }
    // A segment before SESS_INIT.
    let mut host = Host::new(guarded(Strangers::Receive));
    assert!(host.connect(10, NEAR));
    host.receive(10, &[HEADER, &segment(3, 5, b"hello")].concat());
    assert_eq!((host.last(10, 3), host.is_closed(10)), (&[6, 3, 1][..], true));
    // A segment of no transfer, and one of another transfer than that in progress.
    let mut host = session();
    host.receive(
        10,
        &[&[1, 1, 0, 0, 0, 0, 0, 0, 0, 0][..], &[0, 0, 0, 0, 0, 0, 0, 5], b"hello"].concat(),
    );
    assert_eq!((host.last(10, 3), host.is_closed(10)), (&[6, 3, 1][..], true));
    for flags in [0, 1, 2, 3] {
        let mut host = session();
        host.receive(10, &segment(2, 10, b"hello"));
        // Without extensions, and without data.
        let rest = if flags < 2 { 8 } else { 12 };
        let other = [&[1, flags, 0, 0, 0, 0, 0, 0, 0, 9][..], &[0; 12][..rest]];
        host.receive(10, &other.concat());
        assert_eq!((host.last(10, 3), host.is_closed(10)), (&[6, 3, 1][..], true), "{flags}");
    }
    // Messages about a transfer that has ended are not faults: they cross its end.
    let mut host = session();
    host.receive(10, &[2, 1, 0, 0, 0, 0, 0, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0, 5]);
    host.receive(10, &[3, 1, 0, 0, 0, 0, 0, 0, 0, 9]);
    assert!(!host.is_closed(10) && host.faults().is_empty());
}

/// Requirements: V13b.
#[test]
fn messages_that_cannot_be_complied_with_are_rejected() {
    // An extension item that is longer than the list.
    let undecodable =
        [&[1, 3, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 5][..], &[0, 0x12, 0x34, 0, 9, 1, 2]];
    let long = segment(3, 20, &[7; 20]);
    let no_length =
        [&[1, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0][..], &[0, 0, 0, 0, 0, 0, 0, 8], &[7; 8]];
    let more = [&[1, 0, 0, 0, 0, 0, 0, 0, 0, 0][..], &[0, 0, 0, 0, 0, 0, 0, 8], &[7; 8]];
    let beyond = [no_length.concat(), more.concat()].concat();
    for bytes in [undecodable.concat(), long, beyond] {
        let limits = Config { segment_mru: 10, transfer_mru: 15, ..guarded(Strangers::Receive) };
        let mut host = Host::new(limits);
        host.session(10, NEAR, "ipn:2.0");
        host.receive(10, &bytes);
        assert_eq!((host.last(10, 3), host.is_closed(10)), (&[6, 2, 1][..], true), "{bytes:?}");
    }
}

/// Requirements: V08, V10, V11.
#[test]
fn session_parameters_are_accepted_or_a_contact_failure() {
    let mut without_segments = init("ipn:2.0");
    without_segments[3..11].fill(0);
    for (bytes, is_up) in
        [(without_segments, false), (extended(1), false), (extended(0), true), (init(""), true)]
    {
        let mut host = Host::new(guarded(Strangers::Receive));
        assert!(host.connect(10, NEAR));
        host.receive(10, &[HEADER, &bytes].concat());
        assert_eq!((host.ups().len(), host.is_closed(10)), (usize::from(is_up), !is_up));
        if !is_up {
            assert_eq!(host.last(10, 3), [5, 0, 4]);
        }
    }
    // A peer without a node ID is nobody's neighbour.
    let mut host = Host::new(guarded(Strangers::Both));
    host.session(10, FAR, "");
    assert!(matches!(host.ups()[..], [(_, None, _)]), "{:?}", host.ups());
}

/// Requirements: V19.
#[test]
fn unknown_extensions_of_transfers_are_skipped_or_refused() {
    for (flags, is_whole) in [(0, true), (1, false)] {
        let mut bytes = vec![1, 3, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 5, flags, 0x12, 0x34, 0, 0];
        bytes.extend([0, 0, 0, 0, 0, 0, 0, 5]);
        bytes.extend(b"hello");
        let mut host = session();
        host.receive(10, &bytes);
        assert_eq!(matches!(host.events.last(), Some(Event::Whole { .. })), is_whole);
        if !is_whole {
            // XFER_REFUSE, Extension Failure.
            assert_eq!(host.last(10, 10), [3, 5, 0, 0, 0, 0, 0, 0, 0, 0]);
        }
        assert!(!host.is_closed(10));
    }
}

/// Requirements: V21.
#[test]
fn a_session_being_terminated_refuses_transfers() {
    let mut host = session();
    let link = host.ups()[0].0;
    host.layer.command(host.now, Command::Close { link });
    host.drain();
    assert_eq!(host.last(10, 3), [5, 0, 0]);
    host.receive(10, &segment(3, 5, b"hello"));
    // XFER_REFUSE, Session Terminating.
    assert_eq!(host.last(10, 10), [3, 6, 0, 0, 0, 0, 0, 0, 0, 0]);
    assert!(!host.is_closed(10));
    host.receive(10, &[5, 1, 0]);
    assert!(host.is_closed(10));
    // The reply has the reason of the peer, and a transfer in progress ends first.
    let mut host = session();
    host.receive(10, &segment(2, 10, b"hello"));
    host.receive(10, &[5, 0, 3]);
    assert_eq!((host.last(10, 3), host.is_closed(10)), (&[5, 1, 3][..], false));
    let rest = [&[1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 5][..], b"hello"].concat();
    host.receive(10, &rest);
    let Some(Event::Whole { link, transfer, .. }) = host.events.last().cloned() else {
        panic!("{:?}", host.events);
    };
    host.layer.command(host.now, Command::Accept { link, transfer });
    host.drain();
    assert_eq!(host.last(10, 18)[..2], [2, 1]);
    assert!(host.is_closed(10));
}

/// Requirements: V07a, V07b.
#[test]
fn the_side_that_connects_begins_the_session_after_tls() {
    let mut config = Config { tls: Tls::Always, ..guarded(Strangers::Receive) };
    config.peers.values_mut().for_each(|peer| peer.server_name = "two.example".to_owned());
    let mut host = Host::new(config);
    assert!(host.connect(ACTIVE.0, NEAR));
    assert_eq!(host.sent[&ACTIVE], b"dtn!\x04\x01");
    let reply = Receive::datagram(ACTIVE, b"dtn!\x04\x01");
    host.layer.handle_input(host.now, Input::Receive(reply));
    let mut tx = TxBuf::new(1);
    assert!(host.layer.poll_transmit(host.now, &mut tx).is_none());
    let Some(Effect::Stream(StreamEffect::StartTls { server_name, .. })) = host.layer.poll_effect()
    else {
        panic!("no TLS");
    };
    assert_eq!(server_name.as_deref(), Some("two.example"));
    let secured = PathEvent::Secured(vec!["ipn:2.0".to_owned()]);
    host.layer.handle_input(host.now, Input::Path(ACTIVE, secured));
    host.drain();
    // SESS_INIT, before that of the peer.
    assert_eq!(host.sent[&ACTIVE][6], 7);
    assert!(host.ups().is_empty());
}

/// Requirements: V14, V15, V16, V20a.
#[test]
fn segments_have_the_length_the_peer_receives() {
    let mut world = World::established([active(1), Config { segment_mru: 1000, ..config(2) }], 1);
    let mut at = world.sent[0].len();
    for tag in 0..2 {
        world.send(tag, Content::Bytes(bytes(2500).into()));
    }
    world.settle();
    let mut segments = Vec::new();
    while at < world.sent[0].len() {
        let read = Message::decode(&world.sent[0][at..], &Bounds::default()).unwrap();
        let Some((Message::Segment(segment), len)) = read else { panic!("{read:?}") };
        let total = transfer_length(&segment.extensions);
        let flags = segment.flags;
        segments.push((segment.transfer, flags.start, flags.end, total, segment.length));
        at += len + segment.length as usize;
    }
    let of = |transfer| {
        [
            (transfer, true, false, Some(2505), 1000),
            (transfer, false, false, None, 1000),
            (transfer, false, true, None, 505),
        ]
    };
    assert_eq!(segments, [of(0), of(1)].concat());
    assert_eq!(world.came(1), [whole(2500), whole(2500)]);
}
