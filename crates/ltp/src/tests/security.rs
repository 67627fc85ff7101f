//! Authentication and cookies, segment by segment and in conversations.

use engine::{Input, Receive};
use proptest::prelude::*;

use super::world::{PATH, World, content, lose_first_report_ack, lose_one_in};
use crate::authentication;
use crate::cookies::Cookies;
use crate::sealed::Sealed;
use crate::segment::{Body, Checkpoint, Data, DataKind, Segment, SessionId};
use crate::{Authentication, Ciphersuite, Config, Key, Red, Remote};

const SESSION: SessionId = SessionId { originator: 101, number: 300 };
const SUITES: [Ciphersuite; 3] =
    [Ciphersuite::HmacSha1, Ciphersuite::HmacSha256, Ciphersuite::Null];

fn hello() -> Body<'static> {
    Body::Data(Data {
        kind: DataKind::EndOfRedBlock,
        service: 1,
        offset: 0,
        checkpoint: Some(Checkpoint { serial: 17, report: 0 }),
        data: b"hello",
    })
}

fn sealed(keys: &Authentication, body: Body<'_>) -> Vec<u8> {
    let sealed = Sealed {
        session: SESSION,
        body,
        authentication: Some(keys),
        cookies: &Cookies::default(),
        transport: &[],
    };
    sealed.to_vec().expect("a segment")
}

fn admits(keys: &Authentication, datagram: &[u8]) -> bool {
    Segment::decode(datagram).is_ok_and(|segment| authentication::admits(keys, datagram, &segment))
}

fn bytes(text: &str) -> Vec<u8> {
    text.split_whitespace().map(|pair| u8::from_str_radix(pair, 16).expect("two digits")).collect()
}

#[test]
fn null_suite_uses_its_fixed_key() {
    // RFC 5327 §2.1.3 has the key; the value is what HMAC-SHA-1 gives with it.
    let expected = "03 65 82 2c 11 00 01 ff 01 00 05 11 00 68 65 6c 6c 6f 00 0a \
                    32 2b e3 29 71 50 05 25 aa 7f";
    let keys = Authentication::new(Key::new(Ciphersuite::Null, b"", b"not used"));
    assert_eq!(sealed(&keys, hello()), bytes(expected));
    assert!(admits(&keys, &bytes(expected)));
}

#[test]
fn authentication_header_matches_rfc_5327() {
    // RFC 5327 §2.1, from the byte of extension counts on.
    let keys = Authentication::new(Key::new(Ciphersuite::HmacSha1, &[0x24], b"secret"));
    assert_eq!(sealed(&keys, hello())[4..9], bytes("11 00 02 00 24"));
}

#[test]
fn a_change_of_any_byte_is_refused() {
    for suite in SUITES {
        let keys = Authentication::new(Key::new(suite, b"k1", b"secret"));
        let segment = sealed(&keys, hello());
        assert!(admits(&keys, &segment));
        for i in 0..segment.len() {
            for bit in 0..8 {
                let mut changed = segment.clone();
                changed[i] ^= 1 << bit;
                assert!(!admits(&keys, &changed), "{suite:?}: bit {bit} of byte {i}");
            }
            assert!(!admits(&keys, &segment[..i]), "{suite:?}: cut at {i}");
        }
        assert!(!admits(&keys, &[&segment[..], &[0]].concat()));
        let bare = Segment::new(SESSION, hello()).to_vec().expect("a segment");
        assert!(!admits(&keys, &bare));
    }
}

#[test]
fn keys_are_distinguished_and_changed() {
    let old = Key::new(Ciphersuite::HmacSha1, b"old", b"first secret");
    let new = Key::new(Ciphersuite::HmacSha256, b"new", b"second secret");
    let segment = sealed(&Authentication::new(old.clone()), hello());
    assert!(!admits(&Authentication::new(new.clone()), &segment));
    let both = Authentication { key: new, accepted: vec![old] };
    assert!(admits(&both, &segment));
    let others = [
        Key::new(Ciphersuite::HmacSha1, b"old", b"another secret"),
        Key::new(Ciphersuite::HmacSha1, b"", b"first secret"),
        Key::new(Ciphersuite::HmacSha256, b"old", b"first secret"),
        Key::new(Ciphersuite::Null, b"old", b"first secret"),
    ];
    for other in others {
        assert!(!admits(&Authentication::new(other), &segment));
    }
    let text = format!("{both:?}");
    assert!(text.contains("HmacSha256") && !text.contains("secret"), "{text}");
}

proptest! {
    #[test]
    fn segments_round_trip(
        suite in 0..3_usize,
        id in prop::collection::vec(any::<u8>(), 0..200),
        secret in prop::collection::vec(any::<u8>(), 0..200),
        data in prop::collection::vec(any::<u8>(), 0..2000),
        offset in 0..1_u64 << 40,
    ) {
        let keys = Authentication::new(Key::new(SUITES[suite], &id, &secret));
        let body = Body::Data(Data {
            kind: DataKind::Green, service: 1, offset, checkpoint: None, data: &data,
        });
        let segment = sealed(&keys, body);
        prop_assert!(admits(&keys, &segment));
        prop_assert_eq!(Segment::decode(&segment).map(|segment| segment.body), Ok(body));
        let bare = Segment::new(SESSION, body).encoded_len();
        prop_assert_eq!(segment.len(), bare + authentication::len(&keys));
    }
}

fn config(keys: Option<Authentication>) -> Config {
    let remote = Remote { authentication: keys, ..Remote::default() };
    Config { default_remote: remote, ..Config::default() }
}

#[test]
fn a_file_crosses_while_keys_change() {
    let old = Key::new(Ciphersuite::HmacSha1, b"1", b"first secret");
    let new = Key::new(Ciphersuite::HmacSha256, b"2", b"second secret");
    let ahead = Authentication { key: new.clone(), accepted: vec![old.clone()] };
    let behind = Authentication { key: old, accepted: vec![new] };
    let file = content(100_000);
    let mut world = World::new([config(Some(ahead)), config(Some(behind))]);
    world.lose(lose_one_in(5, 1));
    world.send(&file, Red::All);
    world.run();
    world.assert_delivered(&file);
    assert!(world.log.iter().all(|sent| sent.bytes.len() <= 1024));
    for side in 0..2 {
        assert_eq!(world.hosts[side].engine.stats().unauthenticated, 0);
        assert_eq!(world.hosts[side].engine.stats().oversize, 0);
    }
}

#[test]
fn unauthenticated_segments_are_dropped_and_counted() {
    let keys = Authentication::new(Key::new(Ciphersuite::HmacSha1, b"1", b"secret"));
    let file = content(20_000);
    let mut world = World::new([config(Some(keys)), config(None)]);
    world.send(&file, Red::All);
    // The sender receives nothing authenticated; a cancellation is not accepted either.
    let id = world.hosts[0].engine.sessions().next().expect("it is under way").id;
    let reason = crate::segment::CancelReason::User;
    let cancel = Body::Cancel { by: crate::segment::End::Receiver, reason };
    let cancel = Segment::new(id, cancel).to_vec().expect("a segment");
    world.input(0, Input::Receive(Receive::datagram(PATH, &cancel)));
    assert_eq!(world.hosts[0].engine.stats().unauthenticated, 1);
    assert_eq!(world.hosts[0].engine.sessions().count(), 1);
    world.run();
    let result = world.finished(0).expect("it gave up").result;
    assert!(result.is_err_and(|failure| failure.by == crate::segment::End::Sender));
    assert!(world.hosts[0].engine.stats().unauthenticated > 1);
    assert_eq!(world.hosts[0].engine.stats().received.total(), 0);
}

#[test]
fn closed_sessions_reply_with_the_key() {
    let keys = Authentication::new(Key::new(Ciphersuite::HmacSha1, b"1", b"secret"));
    // The sender's session ends with it.
    let world = World::crossed_with(&config(Some(keys)), 5_000, Red::All, lose_first_report_ack());
    assert!(world.hosts[0].engine.stats().stray > 0, "{:#?}", world.transcript());
    assert_eq!(world.hosts[1].engine.stats().unauthenticated, 0);
}

/// The cookies in a datagram of the log.
fn cookies(datagram: &[u8]) -> Vec<Vec<u8>> {
    let segment = Segment::decode(datagram).expect("what an engine sends can be read");
    segment.header.iter().filter(|one| one.tag == 1).map(|one| one.value.to_vec()).collect()
}

#[test]
fn cookies_accompany_everything_after_the_first_reply() {
    let with = Config { cookies: true, ..Config::default() };
    let file = content(50_000);
    for configs in [[with.clone(), with.clone()], [Config::default(), with]] {
        let mut world = World::new(configs);
        world.lose(lose_one_in(5, 2));
        world.send(&file, Red::All);
        world.run();
        world.assert_delivered(&file);
        let cookie = world.log.iter().find(|sent| sent.from == 1).map(|sent| cookies(&sent.bytes));
        let cookie = cookie.expect("it answered");
        assert_eq!(cookie.len(), 1);
        let received = world.hosts[0].engine.stats().received;
        assert!(received.total() > 1);
        for sent in &world.log {
            let found = cookies(&sent.bytes);
            assert!(found == cookie || sent.from == 0 && found.is_empty());
        }
        assert_eq!(cookies(&world.log.last().expect("a segment was sent").bytes), cookie);
        for side in 0..2 {
            assert_eq!(world.hosts[side].engine.stats().wrong_cookies, 0);
        }
    }
}

#[test]
fn segments_without_the_cookie_are_dropped() {
    let config = Config {
        cookies: true,
        default_remote: Remote { checkpoint_every: Some(5_000), ..Remote::default() },
        ..Config::default()
    };
    let file = content(200_000);
    let mut world = World::with(&config);
    let id = world.send(&file, Red::All);
    // The sender's first reply with the cookie arrives after one and a half round trips.
    while world.hosts[1].engine.stats().received.report_acks == 0 {
        assert!(world.step());
    }
    let reason = crate::segment::CancelReason::User;
    let ends = [crate::segment::End::Receiver, crate::segment::End::Sender];
    for (side, by) in ends.into_iter().enumerate() {
        let cancel = Segment::new(id, Body::Cancel { by, reason }).to_vec().expect("a segment");
        world.input(side, Input::Receive(Receive::datagram(PATH, &cancel)));
        assert_eq!(world.hosts[side].engine.stats().wrong_cookies, 1);
        assert_eq!(world.hosts[side].engine.sessions().count(), 1);
    }
    world.run();
    world.assert_delivered(&file);
}

#[test]
fn closed_sessions_reply_with_their_cookie() {
    let config = Config { cookies: true, ..Config::default() };
    let world = World::crossed_with(&config, 5_000, Red::All, lose_first_report_ack());
    assert_eq!(world.hosts[0].engine.stats().stray, 1, "{:#?}", world.transcript());
    assert_eq!(world.hosts[1].engine.stats().wrong_cookies, 0);
    assert_eq!(world.hosts[1].engine.stats().received.report_acks, 1);
}
